//! What virtual machines need of a host, and other programs that decide where they run.

use super::{Finding, exists, read};
use crate::mounts::mount_points;
use crate::tasks::{Task, processes, task};
use std::path::Path;

/// KVM's modules on x86, with the CPU flag that each needs, and the parameter that detects spinning vCPUs.
/// The parameter is 0 if detection is off, or the CPU does not support it.
const MODULES: [(&str, &str, &str); 2] =
    [("kvm_intel", "vmx", "ple_gap"), ("kvm_amd", "svm", "pause_filter_count")];

pub fn check(root: &Path) -> Vec<Finding> {
    let mut findings = vec![kvm(root)];
    findings.extend(spinning(root));
    findings.push(match mount_points(root, "debugfs").is_empty() {
        true => Finding::warning(
            "debugfs",
            "not mounted, so KVM's statistics cannot be read; run `mount -t debugfs none /sys/kernel/debug`",
        ),
        false => Finding::ok("debugfs", "mounted"),
    });
    findings.push(numad(root));
    findings
}

fn kvm(root: &Path) -> Finding {
    let subject = "KVM";
    let loaded = MODULES.iter().find(|(module, ..)| is_loaded(root, module)).map(|(module, ..)| *module);
    if exists(root, "/dev/kvm") {
        return Finding::ok(subject, loaded.unwrap_or("in the kernel"));
    }
    let cpuinfo = read(root, "/proc/cpuinfo").unwrap_or_default();
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    let has = |flag: &str| flags.split_whitespace().any(|found| found == flag);
    let loadable = MODULES.iter().find(|(_, flag, _)| has(flag)).map(|(module, ..)| *module);
    match (loaded, loadable) {
        (Some(module), _) => {
            let message = format!(
                "{module} is loaded, but there is no /dev/kvm; run `modprobe -r {module}`, then \
                `modprobe {module}`"
            );
            Finding::warning(subject, message)
        }
        (None, Some(module)) => {
            Finding::warning(subject, format!("not loaded, so no VM can run here; run `modprobe {module}`"))
        }
        (None, None) if has("hypervisor") => {
            Finding::ok(subject, "absent: this is a VM without nested virtualisation; use `--mode guest`")
        }
        (None, None) => Finding::warning(
            subject,
            "the CPU cannot run VMs; enable virtualisation in the firmware, if it offers that",
        ),
    }
}

/// Whether KVM detects spinning vCPUs. `None` without a module that could.
fn spinning(root: &Path) -> Option<Finding> {
    let subject = "directed yield";
    let (module, _, parameter) = MODULES.into_iter().find(|(module, ..)| is_loaded(root, module))?;
    let value = read(root, format!("/sys/module/{module}/parameters/{parameter}"))?;
    Some(match value.as_str() {
        "0" => Finding::warning(
            subject,
            format!(
                "{module} does not detect spinning vCPUs; load it without {parameter}=0, on a CPU that supports it"
            ),
        ),
        _ => Finding::ok(subject, format!("{module} detects spinning vCPUs")),
    })
}

fn is_loaded(root: &Path, module: &str) -> bool {
    exists(root, &format!("/sys/module/{module}"))
}

/// The daemon that pins processes to nodes: root's, since any user's process may have the name. libvirt can
/// ask `numad` where to put a VM without the daemon.
fn numad(root: &Path) -> Finding {
    let subject = "numad";
    let daemon = processes(root)
        .into_iter()
        .filter_map(|pid| task(root, pid))
        .find(|task| task.name == "numad" && task.user == 0);
    match daemon {
        Some(Task { pid, .. }) => Finding::warning(
            subject,
            format!(
                "runs as process {pid} and pins VMs to nodes, which no preference can undo; run `systemctl \
                disable --now numad`"
            ),
        ),
        None => Finding::ok(subject, "does not run"),
    }
}
