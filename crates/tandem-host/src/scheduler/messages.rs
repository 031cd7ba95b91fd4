//! libbpf's messages. By default libbpf prints them to standard error; this module keeps them for an error
//! message instead.

use libbpf_rs::{PrintLevel, set_print};
use std::sync::{Mutex, PoisonError};

/// Warnings since [`begin`].
static WARNINGS: Mutex<String> = Mutex::new(String::new());

/// Lines of a verifier's log that an error contains: the reason is at the end of the log.
const LINES_OF_LOG: usize = 5;

/// Discards old warnings and collects new ones.
pub fn begin() {
    kept().clear();
    set_print(Some((PrintLevel::Warn, |_, message| kept().push_str(&message))));
}

/// The reason of a failed load, from the warnings: the end of the verifier's log, or the last warning.
pub fn reason() -> Option<String> {
    reason_in(&kept())
}

fn kept() -> std::sync::MutexGuard<'static, String> {
    WARNINGS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn reason_in(warnings: &str) -> Option<String> {
    let lines: Vec<&str> = warnings.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let begin = lines.iter().rposition(|line| line.contains("BEGIN PROG LOAD LOG"));
    let Some(begin) = begin else {
        return lines.last().map(|line| line.trim_start_matches("libbpf: ").to_owned());
    };
    let program = lines[begin].split('\'').nth(1).unwrap_or("?");
    let log: Vec<&str> = lines[begin + 1..]
        .iter()
        .copied()
        .take_while(|line| !line.contains("END PROG LOAD LOG"))
        .filter(|line| !is_statistics(line))
        .collect();
    let end = &log[log.len().saturating_sub(LINES_OF_LOG)..];
    Some(format!("program `{program}`: {}", end.join("; ")))
}

/// Whether a line of the log is a statistic of the verifier.
fn is_statistics(line: &str) -> bool {
    ["processed ", "verification time", "stack depth"].iter().any(|start| line.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_the_verifiers_log_is_the_reason() {
        let warnings = "libbpf: prog 'tandem_enqueue': BPF program load failed: -EACCES\n\
            libbpf: prog 'tandem_enqueue': -- BEGIN PROG LOAD LOG --\n\
            0: R1=ctx() R10=fp0\n; u64 now = 0;\n1: (79) r2 = *(u64 *)(r1 +8)\n2: (05) goto pc+0\n\
            3: (b7) r0 = 0\n4: (79) r3 = *(u64 *)(r2 +0)\nR2 invalid mem access 'scalar'\n\
            processed 5 insns (limit 1000000) max_states_per_insn 0\n-- END PROG LOAD LOG --\n\
            libbpf: prog 'tandem_enqueue': failed to load: -EACCES\n";
        assert_eq!(
            reason_in(warnings).unwrap(),
            "program `tandem_enqueue`: 1: (79) r2 = *(u64 *)(r1 +8); 2: (05) goto pc+0; 3: (b7) r0 = 0; \
             4: (79) r3 = *(u64 *)(r2 +0); R2 invalid mem access 'scalar'"
        );
    }

    #[test]
    fn without_a_log_the_last_warning_is() {
        let warnings = "libbpf: map 'counters': one\nlibbpf: struct_ops init_kern: not found in kernel BTF\n";
        assert_eq!(reason_in(warnings).unwrap(), "struct_ops init_kern: not found in kernel BTF");
        assert_eq!(reason_in(""), None);
    }
}
