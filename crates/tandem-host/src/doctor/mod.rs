//! What this machine lacks to run the scheduler, and how to fix that.
//!
//! Everything is read from `/proc`, `/sys`, `/etc`, `/run` and the folders of units, below a root: tests use
//! their own. Nothing is changed, and nothing is loaded as a test, so faults that only the kernel's verifier
//! would find are not reported.

mod machine;
mod permissions;
mod risks;
mod service;
mod vms;

pub(crate) use service::is_service_active;

use crate::cgroups::CgroupError;
use crate::mounts::mount_points;
use crate::scheduler::{RunningKernel, SchedulerError};
use serde::Serialize;
use std::fs;
use std::path::Path;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// As it should be.
    Ok,
    /// The scheduler can be loaded, but does less than it could.
    Warning,
    /// The scheduler cannot be loaded.
    Missing,
}

impl Severity {
    /// Its name in the output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Missing => "missing",
        }
    }
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was checked.
    pub subject: &'static str,
    /// How it is.
    pub level: Severity,
    /// What the check found, in one sentence; with a remedy if something is wrong.
    pub message: String,
}

impl Finding {
    fn ok(subject: &'static str, message: impl Into<String>) -> Self {
        Self { subject, level: Severity::Ok, message: message.into() }
    }

    fn warning(subject: &'static str, message: impl Into<String>) -> Self {
        Self { subject, level: Severity::Warning, message: message.into() }
    }

    fn missing(subject: &'static str, message: impl Into<String>) -> Self {
        Self { subject, level: Severity::Missing, message: message.into() }
    }

    /// A requirement for loading the scheduler.
    fn needed<T>(
        subject: &'static str,
        found: Result<T, SchedulerError>,
        message: impl FnOnce(T) -> String,
    ) -> Self {
        match found {
            Ok(found) => Self::ok(subject, message(found)),
            Err(error) => Self::missing(subject, error.to_string()),
        }
    }
}

/// Checks the machine whose `/proc`, `/sys`, `/etc` and so on are under `root`: `/` for this one.
pub fn examine(root: &Path) -> Vec<Finding> {
    let kernel = RunningKernel::new(root);
    let mut findings = Vec::new();
    for (subject, found) in kernel.needs() {
        findings.push(Finding::needed(subject, found, |()| match subject {
            "sched_ext" => format!("in Linux {}", kernel.release()),
            _ => "present".into(),
        }));
    }
    findings.push(permissions::check(root));
    findings.extend(loaded(&kernel));
    findings.extend(machine::check(&kernel));
    findings.push(cgroups(root));
    findings.extend(risks::check(&kernel));
    findings.extend(vms::check(root));
    findings.push(schedstats(root));
    findings.push(service::group(root));
    findings.extend(service::unit(root));
    findings
}

/// Whether the scheduler could be loaded, according to these findings.
pub fn is_loadable(findings: &[Finding]) -> bool {
    findings.iter().all(|finding| finding.level < Severity::Missing)
}

/// The loaded scheduler. `None` without sched_ext.
fn loaded(kernel: &RunningKernel) -> Option<Finding> {
    let subject = "loaded";
    let state = kernel.state().ok()?;
    Some(match state.scheduler {
        Some(name) if name == crate::scheduler::NAME => {
            Finding::ok(subject, format!("{name} ({})", state.name))
        }
        Some(name) => Finding::missing(subject, SchedulerError::OtherScheduler { name }.to_string()),
        None => Finding::ok(subject, "no sched_ext scheduler"),
    })
}

/// The unified hierarchy, and its CPU controllers.
fn cgroups(root: &Path) -> Finding {
    let subject = "cgroup2";
    let Some(mount) = mount_points(root, "cgroup2").into_iter().next() else {
        return Finding::warning(subject, CgroupError::NotMounted.to_string());
    };
    let without = |file: &str| {
        let list = read(root, mount.join(file)).unwrap_or_default();
        let has = |name: &&str| list.split_whitespace().any(|found| found == *name);
        ["cpu", "cpuset"].into_iter().filter(|name| !has(name)).collect::<Vec<_>>()
    };
    let not_there = without("cgroup.controllers");
    if !not_there.is_empty() {
        let message =
            "not in the unified hierarchy; boot with systemd.unified_cgroup_hierarchy=1 and without cgroup1";
        return Finding::warning(subject, format!("{} {message}", controllers(&not_there)));
    }
    let off = without("cgroup.subtree_control");
    if off.is_empty() {
        return Finding::ok(subject, format!("at {}, with cpu and cpuset", mount.display()));
    }
    let switch: Vec<String> = off.iter().map(|name| format!("+{name}")).collect();
    let file = mount.join("cgroup.subtree_control");
    Finding::warning(
        subject,
        format!("{} off; run `echo {} > {}`", controllers(&off), switch.join(" "), file.display()),
    )
}

fn controllers(names: &[&str]) -> String {
    match names {
        [name] => format!("the controller {name} is"),
        _ => format!("the controllers {} are", names.join(" and ")),
    }
}

/// Statistics of wait times, which are off by default.
fn schedstats(root: &Path) -> Finding {
    let subject = "schedstats";
    match read(root, "/proc/sys/kernel/sched_schedstats").as_deref() {
        Some("0") => Finding::warning(
            subject,
            "the kernel does not count in /proc how long tasks wait and sleep; run `sysctl kernel.sched_schedstats=1`, which \
             costs a little time at each context switch",
        ),
        Some(_) => Finding::ok(subject, "counted"),
        None => Finding::warning(
            subject,
            "this kernel does not count how long tasks wait and sleep; it needs CONFIG_SCHEDSTATS=y",
        ),
    }
}

/// A file's text without surrounding white space, by its absolute path; `None` if it cannot be read.
fn read(root: &Path, path: impl AsRef<Path>) -> Option<String> {
    let text = fs::read_to_string(below(root, path.as_ref())).ok()?;
    Some(text.trim().to_owned())
}

/// Whether such a file exists, by its absolute path.
fn exists(root: &Path, path: &str) -> bool {
    below(root, Path::new(path)).exists()
}

fn below(root: &Path, path: &Path) -> std::path::PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

#[cfg(test)]
mod tests;
