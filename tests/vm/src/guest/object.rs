//! A scheduler from an object file, which `load-scheduler` loads.

use super::process::Process;
use super::{sched_ext, wait};
use crate::leg::OBJECTS_FOLDER;
use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

/// Where the configuration of the guest's kernel lies.
pub const CONFIGURATION: &str = "/boot/config";

/// A scheduler's own program, or the loader of an object, while its scheduler is loaded.
pub struct Loaded {
    process: Process,
}

impl Loaded {
    /// Loads the object file of that name.
    pub fn object(name: &str) -> Result<Self> {
        let file = Path::new(OBJECTS_FOLDER).join(format!("{name}.bpf.o"));
        // What its user space would do, where that is known.
        let preparation = Some(file.with_extension("json")).filter(|file| file.exists());
        Self::start(name, Command::new("load-scheduler").arg(file).args(preparation))
    }

    /// Starts a command that loads a scheduler, and waits until it has.
    pub fn start(name: &str, command: &mut Command) -> Result<Self> {
        show_configuration()?;
        let before = sched_ext::loadings()?;
        let mut loaded = Self { process: Process::start(command)? };
        wait::until(&format!("loading {name}"), || {
            loaded.check()?;
            // One that fails at once is loaded and gone between two looks.
            let has_failed = sched_ext::loadings()? > before && !sched_ext::is_loaded()?;
            ensure!(!has_failed, "the kernel ejected the scheduler at once");
            Ok((sched_ext::state()? == "enabled").then_some(()))
        })?;
        Ok(loaded)
    }

    /// Unloads it; an error if it was no longer loaded.
    pub fn stop(mut self) -> Result<()> {
        self.check()?;
        ensure!(sched_ext::is_loaded()?, "the kernel has ejected the scheduler");
        self.process.signal(Signal::INT)?;
        sched_ext::wait_disabled()
    }

    /// An error with what its loader says if that has ended.
    pub fn check(&mut self) -> Result<()> {
        let status = self.process.ended()?;
        ensure!(status.is_none(), "its loader ended: {}", self.process.output().trim());
        Ok(())
    }
}

/// Puts the configuration where libbpf looks for it: schedulers ask for some of its values.
fn show_configuration() -> Result<()> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let link = format!("{CONFIGURATION}-{}", release.trim());
    if !Path::new(&link).exists() {
        symlink(CONFIGURATION, &link).with_context(|| format!("cannot make {link}"))?;
    }
    Ok(())
}
