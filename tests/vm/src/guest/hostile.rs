//! Processes of a hostile user: `programs/hostile.c` has their actions.

use super::process::Process;
use super::wait;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

/// Where hostile users keep their files.
pub const FOLDER: &str = "/tmp/hostile";
/// The program under the name of a monitor.
pub const MONITOR: &str = "/tmp/hostile/qemu-system-x86_64";

/// Creates the folder, to which all users may write, with the false monitor.
pub fn prepare() -> Result<()> {
    fs::create_dir_all(FOLDER)?;
    fs::set_permissions(FOLDER, fs::Permissions::from_mode(0o777))?;
    // It may run already.
    match fs::exists(MONITOR)? {
        true => Ok(()),
        false => {
            fs::copy("/bin/hostile", MONITOR).map(drop).with_context(|| format!("cannot copy to {MONITOR}"))
        }
    }
}

/// A command that executes another one, as this user, with limits at their highest.
pub fn as_user(user: u32, command: &[&str]) -> Command {
    let mut hostile = Command::new("hostile");
    hostile.args(["as", &user.to_string()]).args(command);
    hostile
}

/// Starts a hostile process, and waits until it reports that it is ready.
pub fn start(command: &mut Command) -> Result<Process> {
    let mut process = Process::start(command)?;
    wait::until("a hostile process", || {
        let status = process.ended()?;
        let output = process.output();
        ensure!(status.is_none() || output.ends_with("ready\n"), "it ended: {}", output.trim());
        Ok(output.ends_with("ready\n").then_some(()))
    })?;
    Ok(process)
}

/// Starts a false monitor with this many vCPUs and open files, with further arguments.
pub fn start_monitor(user: u32, vcpus: u32, files: u32, more: &[&str]) -> Result<Process> {
    let (vcpus, files) = (vcpus.to_string(), files.to_string());
    start(as_user(user, &[MONITOR, "vm", &vcpus, &files, "0"]).args(more))
}
