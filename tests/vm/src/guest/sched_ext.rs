//! The kernel's state of sched_ext.

use super::wait;
use anyhow::{Context, Result};
use std::fs;
use std::path::Path;

const FOLDER: &str = "/sys/kernel/sched_ext";

/// `disabled`, `enabling`, `enabled`, `disabling` or `bypassing`.
pub fn state() -> Result<String> {
    read("state")
}

/// Whether a scheduler runs, or is about to; none does in a kernel that cannot load any.
pub fn is_loaded() -> Result<bool> {
    Ok(Path::new(FOLDER).exists() && state()? != "disabled")
}

/// The name of the scheduler that runs; none if none does.
pub fn scheduler() -> Option<String> {
    read("root/ops").ok()
}

/// How often a scheduler has been loaded since boot.
pub fn loadings() -> Result<u64> {
    number("enable_seq")
}

/// How many tasks a scheduler has refused since it was loaded.
pub fn rejected_tasks() -> Result<u64> {
    number("nr_rejected")
}

/// Waits until none does.
pub fn wait_disabled() -> Result<()> {
    wait::until("unloading the scheduler", || Ok((!is_loaded()?).then_some(())))
}

/// Makes the kernel throw out a scheduler that is loaded; whether one was.
pub fn disable() -> Result<bool> {
    if !is_loaded()? {
        return Ok(false);
    }
    // The system request S is "reset sched_ext".
    fs::write("/proc/sysrq-trigger", "S").context("cannot write to /proc/sysrq-trigger")?;
    wait_disabled()?;
    Ok(true)
}

fn number(file: &str) -> Result<u64> {
    read(file)?.parse().with_context(|| format!("no number in {FOLDER}/{file}"))
}

fn read(file: &str) -> Result<String> {
    let file = format!("{FOLDER}/{file}");
    let text = fs::read_to_string(&file).with_context(|| format!("cannot read {file}"))?;
    Ok(text.trim().to_owned())
}
