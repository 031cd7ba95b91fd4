//! How much all tasks of the machine wait for a CPU.
//!
//! `/proc/pressure/cpu` counts the time in which some task waited, as the kernel's
//! `Documentation/accounting/psi.rst` describes; `/proc/schedstat` counts for each CPU how long tasks waited
//! there, ns (`Documentation/scheduler/sched-stats.rst`: the eighth number of a CPU's line, in all versions of
//! the format so far).

use std::fs;
use std::path::Path;

/// Time in which at least one task waited for a CPU, since the machine booted, us; `None` if the kernel does
/// not count it.
pub fn some_waited_us(root: &Path) -> Option<u64> {
    parse_pressure(&fs::read_to_string(root.join("proc/pressure/cpu")).ok()?)
}

fn parse_pressure(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    line.split_whitespace().find_map(|word| word.strip_prefix("total="))?.parse().ok()
}

/// Time that all tasks together waited for a CPU, since the machine booted, ns; `None` if the kernel does not
/// count it.
pub fn all_waited_ns(root: &Path) -> Option<u64> {
    parse_schedstat(&fs::read_to_string(root.join("proc/schedstat")).ok()?)
}

fn parse_schedstat(text: &str) -> Option<u64> {
    let is_cpu = |line: &&str| {
        line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    let mut lines = text.lines().filter(is_cpu).peekable();
    lines.peek()?;
    lines.map(|line| line.split_whitespace().nth(8)?.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn pressure_is_that_of_some_tasks() {
        let text = "some avg10=0.00 avg60=0.12 avg300=0.09 total=123456\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        assert_eq!(parse_pressure(text), Some(123_456));
        assert_eq!(parse_pressure("some avg10=0.00\n"), None);
    }

    #[test]
    fn waits_of_all_cpus_are_added_up() {
        let text = "version 17\ntimestamp 4294892296\ncpu0 1 0 3 4 5 6 70 80 9\ndomain0 SMT 3 1 2 3 4 5 6 7 8\n\
            cpu1 0 0 0 0 0 0 1 20 3\n";
        assert_eq!(parse_schedstat(text), Some(100));
        assert_eq!(parse_schedstat("version 17\n"), None);
        assert_eq!(parse_schedstat("cpu0 1 2\n"), None);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text: String) {
            let _ = (parse_pressure(&text), parse_schedstat(&text));
        }
    }
}
