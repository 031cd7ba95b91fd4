//! The first process: mounts a system's file systems, starts the runner, and powers off when that has ended.
//!
//! The runner is a process of its own, so that the first one can reap all processes that the cases leave
//! behind, and so that a runner that panics ends the leg instead of the kernel.

use super::parameters::Parameters;
use super::runner;
use crate::leg::{self, MODULES_FOLDER};
use anyhow::{Context, Result};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};
use rustix::process::{WaitOptions, wait};
use rustix::system::{RebootCommand, init_module, reboot};
use std::fs;
use std::path::Path;
use std::process::Command;

/// File systems: the kernel's name of the kind, and where it goes. The first must come first.
const FILE_SYSTEMS: [(&str, &str); 9] = [
    ("proc", "/proc"),
    ("sysfs", "/sys"),
    ("devtmpfs", "/dev"),
    ("tmpfs", "/tmp"),
    ("tmpfs", "/run"),
    ("debugfs", "/sys/kernel/debug"),
    ("tracefs", "/sys/kernel/tracing"),
    ("bpf", "/sys/fs/bpf"),
    ("cgroup2", "/sys/fs/cgroup"),
];

/// Runs the leg and powers off. An error is for the console; the machine sees that the leg did not end.
pub fn run() -> Result<()> {
    let result = run_leg();
    if let Err(error) = &result {
        eprintln!("vm-guest: {error:#}");
    }
    reboot(RebootCommand::PowerOff).context("cannot power off")?;
    result
}

fn run_leg() -> Result<()> {
    for (kind, target) in FILE_SYSTEMS {
        mount(kind, target, kind, MountFlags::empty(), None)
            .with_context(|| format!("cannot mount {kind} on {target}"))?;
    }
    load_modules()?;
    let runner = Command::new("/proc/self/exe")
        .arg(runner::ARGUMENT)
        .env("PATH", "/bin")
        .spawn()
        .context("cannot start the runner")?;
    let runner = rustix::process::Pid::from_child(&runner);
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, _))) if pid == runner => return Ok(()),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error).context("cannot wait for the runner"),
        }
    }
}

fn load_modules() -> Result<()> {
    let command_line = fs::read_to_string("/proc/cmdline").context("cannot read /proc/cmdline")?;
    let parameters = Parameters::parse(&command_line)?;
    let leg = leg::find(&parameters.leg).with_context(|| format!("there is no leg {}", parameters.leg))?;
    for name in leg.modules {
        let file = Path::new(MODULES_FOLDER).join(format!("{name}.ko"));
        if file.exists() {
            let module = fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
            init_module(&module, c"").with_context(|| format!("cannot load the module {name}"))?;
        }
    }
    Ok(())
}
