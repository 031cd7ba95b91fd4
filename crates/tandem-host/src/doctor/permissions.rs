//! Whether this process may load the scheduler: capabilities(7).

use super::{Finding, read};
use crate::scheduler::SchedulerError;
use std::path::Path;

/// The capabilities that the kernel requires to load a scheduler, with their numbers in
/// `include/uapi/linux/capability.h`.
const NEEDED: [(&str, u32); 2] = [("CAP_BPF", 39), ("CAP_PERFMON", 38)];
/// Replaces both.
const CAP_SYS_ADMIN: u32 = 21;

pub fn check(root: &Path) -> Finding {
    let subject = "permissions";
    let status = read(root, "/proc/self/status").unwrap_or_default();
    let values = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        line.unwrap_or_default().split_whitespace()
    };
    // Real, effective, saved and of file systems.
    if values("Uid").nth(1) != Some("0") {
        return Finding::missing(subject, SchedulerError::NotRoot.to_string());
    }
    let effective = values("CapEff").next().and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or(0);
    let has = |capability: u32| effective >> capability & 1 == 1;
    let lacking: Vec<_> = NEEDED
        .into_iter()
        .filter_map(|(name, capability)| (!has(capability) && !has(CAP_SYS_ADMIN)).then_some(name))
        .collect();
    match lacking.is_empty() {
        true => Finding::ok(subject, "root, with CAP_BPF and CAP_PERFMON"),
        false => Finding::missing(
            subject,
            format!(
                "this process is root without {}; run it outside of the container",
                lacking.join(" and ")
            ),
        ),
    }
}
