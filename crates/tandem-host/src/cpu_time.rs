//! How long each CPU was busy and idle since the machine booted: the `cpuN` lines of `/proc/stat`.
//!
//! The kernel counts in ticks of 10 ms; its `Documentation/filesystems/proc.rst` describes the columns. The
//! time that a guest has run on a CPU is in `guest`, and in `user` as well (`account_guest_time` in
//! `kernel/sched/cputime.c`), so it is part of the busy time and must not be added to it.
//!
//! **Limits.** The kernel does not list the counters of an offline CPU. Idle time and the wait for disks may
//! decrease a little when a CPU comes back, as the kernel warns: callers must saturate differences. All time
//! is rounded down to ticks.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

/// A tick of the times in `stat` files, ns: the kernel's `USER_HZ` is 100 for user space on every
/// architecture that has KVM.
pub(crate) const TICK_NS: u64 = 10_000_000;

/// The times of a CPU since the machine booted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuTimes {
    /// Its number in the operating system.
    pub cpu: u32,
    /// Time in which it ran tasks, guests or interrupts, ns.
    pub busy_ns: u64,
    /// Time in which it ran nothing, including waits for disks, ns.
    pub idle_ns: u64,
    /// Time in which it was ready and the hypervisor below ran something else, ns; neither busy nor idle.
    pub steal_ns: u64,
    /// The part of the busy time in which it ran guests, ns.
    pub guest_ns: u64,
}

/// Reads the times of the online CPUs, in ascending order of their numbers; the root is `/` for this machine.
///
/// # Errors
/// If `proc/stat` cannot be read, or has a line that is not one of the kernel's.
pub fn read_cpu_times(root: &Path) -> io::Result<Vec<CpuTimes>> {
    let file = root.join("proc/stat");
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", file.display()));
    let text = fs::read_to_string(&file).map_err(named)?;
    let mut times = Vec::new();
    for line in text.lines() {
        // The first line, `cpu`, adds up those of the CPUs, which follow it.
        let Some(line) = line.strip_prefix("cpu").filter(|line| !line.starts_with(' ')) else { continue };
        let no_times =
            || io::Error::new(ErrorKind::InvalidData, format!("`cpu{line:.60}` is not a line of times"));
        times.push(CpuTimes::parse(line).ok_or_else(no_times).map_err(named)?);
    }
    times.sort_unstable_by_key(|times| times.cpu);
    Ok(times)
}

impl CpuTimes {
    /// Parses a line without its `cpu`: the number, then user, nice, system, idle, iowait, irq, softirq,
    /// steal, guest and guest_nice. A later kernel may append more columns.
    fn parse(line: &str) -> Option<Self> {
        let mut numbers = line.split_ascii_whitespace();
        let cpu = numbers.next()?.parse().ok()?;
        let mut times = [0u64; 10];
        for time in &mut times {
            *time = numbers.next()?.parse::<u64>().ok()?.saturating_mul(TICK_NS);
        }
        let [user, nice, system, idle, iowait, irq, softirq, steal, guest, guest_nice] = times;
        let sum = |times: &[u64]| times.iter().fold(0, |sum: u64, &time| sum.saturating_add(time));
        Some(Self {
            cpu,
            busy_ns: sum(&[user, nice, system, irq, softirq]),
            idle_ns: sum(&[idle, iowait]),
            steal_ns: steal,
            guest_ns: sum(&[guest, guest_nice]),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> io::Result<Vec<CpuTimes>> {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("proc")).unwrap();
        fs::write(root.path().join("proc/stat"), text).unwrap();
        read_cpu_times(root.path())
    }

    #[test]
    fn guests_are_counted_once() {
        let text = "cpu  11 22 33 44 55 66 77 88 9 10\ncpu2 1 1 1 1 1 1 1 1 1 1\n\
            cpu0 1000 200 30 4000 500 6 7 80 900 100\nintr 12 0 0\nctxt 5\n";
        let first = CpuTimes {
            cpu: 0,
            busy_ns: 1243 * TICK_NS,
            idle_ns: 4500 * TICK_NS,
            steal_ns: 80 * TICK_NS,
            guest_ns: 1000 * TICK_NS,
        };
        let times = read(text).unwrap();
        assert_eq!(times.iter().map(|times| times.cpu).collect::<Vec<_>>(), [0, 2]);
        assert_eq!(times[0], first);
    }

    #[test]
    fn the_error_of_a_cut_line_names_the_file() {
        let error = read("cpu0 1 2 3 4\n").unwrap_err().to_string();
        assert!(error.ends_with("proc/stat: `cpu0 1 2 3 4` is not a line of times"), "{error}");
        let nowhere = read_cpu_times(Path::new("/nowhere")).unwrap_err().to_string();
        assert!(nowhere.starts_with("/nowhere/proc/stat: "), "{nowhere}");
    }

    #[test]
    fn this_machine_has_cpus_that_have_worked() {
        let times = read_cpu_times(Path::new("/")).unwrap();
        assert!(times.iter().any(|times| times.busy_ns > 0));
        assert!(times.is_sorted_by_key(|times| times.cpu));
    }

    proptest! {
        #[test]
        fn no_line_makes_it_panic(line: String) {
            let _ = CpuTimes::parse(&line);
        }
    }
}
