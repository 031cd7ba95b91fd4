//! What the kernel tells about sched_ext.

use super::wait;
use anyhow::{Context, Result};
use std::fs;

const FOLDER: &str = "/sys/kernel/sched_ext";

/// `disabled`, `enabling`, `enabled`, `disabling` or `bypassing`.
pub fn state() -> Result<String> {
    read("state")
}

/// Whether a scheduler runs, or is about to.
pub fn is_loaded() -> Result<bool> {
    Ok(state()? != "disabled")
}

/// The name of the scheduler that runs; none if none does.
pub fn scheduler() -> Option<String> {
    read("root/ops").ok()
}

/// Waits until a scheduler runs.
pub fn wait_enabled() -> Result<()> {
    wait::until("loading a scheduler", || Ok((state()? == "enabled").then_some(())))
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

fn read(file: &str) -> Result<String> {
    let file = format!("{FOLDER}/{file}");
    let text = fs::read_to_string(&file).with_context(|| format!("cannot read {file}"))?;
    Ok(text.trim().to_owned())
}
