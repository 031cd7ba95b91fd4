//! One instance at a time, and what it leaves in the BPF file system for other processes while it runs.
//!
//! The directory `/sys/fs/bpf/tandem` is both: who loads the scheduler holds a lock on it, and in it are pins of the
//! maps and programs that other processes use. Pins of a process that was killed stay until the next one starts. The
//! directory itself stays, and so does the one in it that is locked to set preferences: what is locked must be the same
//! for all.

use super::{Kernel, SchedulerError};
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Name of the pin of the counters.
pub const COUNTERS: &str = "counters";
/// Name of the pin of the read-only data: settings and topology.
pub const READ_ONLY_DATA: &str = "settings";
/// Name of the program that sets and clears preferences, and of its pin.
pub const PREFER: &str = "prefer";
/// Name of the program that reads preferences, and of its pin.
pub const PREFERENCE_OF: &str = "preference_of";

/// Name of the directory that who sets preferences locks.
pub const STEERING: &str = "steering";

/// How long a scheduler that is being unloaded may take.
const UNLOADING_MAX: Duration = Duration::from_secs(10);

/// Where pins are, below the BPF file system.
pub fn directory(kernel: &Kernel) -> PathBuf {
    kernel.bpf_file_system().join("tandem")
}

/// The right to load the scheduler. Dropping it removes the pins.
#[derive(Debug)]
pub struct Instance {
    kernel: Kernel,
    directory: PathBuf,
    /// Locked; the lock goes with the last of its descriptors.
    _locked: File,
}

impl Instance {
    /// Takes the right to load the scheduler, after checking that it can be loaded, and removes pins that a killed
    /// process left.
    ///
    /// # Errors
    /// If the kernel or the user cannot, another `tandem run` is at work, or another scheduler is loaded. Nothing is
    /// changed then.
    pub fn acquire(kernel: Kernel) -> Result<Self, SchedulerError> {
        kernel.check()?;
        if !nix::unistd::geteuid().is_root() {
            return Err(SchedulerError::NotRoot);
        }
        let directory = directory(&kernel);
        make(&directory)?;
        let locked = lock(&directory)?;
        let instance = Self { kernel, directory, _locked: locked };
        instance.wait_until_disabled()?;
        instance.remove_pins()?;
        make(&instance.pin(STEERING))?;
        Ok(instance)
    }

    /// The kernel that it is about.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// Waits for a scheduler that is being unloaded, as one is whose process was killed a moment ago.
    ///
    /// # Errors
    /// If one is loaded and stays.
    pub fn wait_until_disabled(&self) -> Result<(), SchedulerError> {
        let begin = Instant::now();
        loop {
            let state = self.kernel.state()?;
            if state.is_disabled() {
                return Ok(());
            }
            if state.is_enabled() || begin.elapsed() > UNLOADING_MAX {
                let name = state.scheduler.unwrap_or_else(|| format!("in state {}", state.name));
                return Err(SchedulerError::OtherScheduler { name });
            }
            sleep(Duration::from_millis(10));
        }
    }

    /// Where its pins are.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Path of a pin.
    pub(super) fn pin(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn remove_pins(&self) -> Result<(), SchedulerError> {
        for entry in fs::read_dir(&self.directory).map_err(SchedulerError::file(&self.directory))? {
            let path = entry.map_err(SchedulerError::file(&self.directory))?.path();
            if path.ends_with(STEERING) {
                continue;
            }
            fs::remove_file(&path).map_err(SchedulerError::file(&path))?;
        }
        Ok(())
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // What stays is removed when the next one starts.
        let _ = self.remove_pins();
    }
}

/// Makes a directory for root alone, unless it is there.
fn make(directory: &Path) -> Result<(), SchedulerError> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(cause) if cause.kind() != ErrorKind::AlreadyExists => {
            Err(SchedulerError::File { file: directory.to_owned(), cause })
        }
        _ => Ok(()),
    }
}

/// Where the service and its socket are.
const SERVICE_FOLDER: &str = "/run/tandem";

/// Takes the right to be the one `tandem run` that has the socket, whether it loads the scheduler or only observes. It goes with the
/// file.
///
/// # Errors
/// If another one is at work, or the folder cannot be made.
pub fn lock_service() -> Result<File, SchedulerError> {
    let folder = Path::new(SERVICE_FOLDER);
    loop {
        fs::create_dir_all(folder).map_err(SchedulerError::file(folder))?;
        let locked = lock(folder)?;
        // It may have been removed, and made anew, in between.
        let is_there = |now: fs::Metadata| locked.metadata().is_ok_and(|own| own.ino() == now.ino());
        if fs::metadata(folder).is_ok_and(is_there) {
            return Ok(locked);
        }
    }
}

fn lock(directory: &Path) -> Result<File, SchedulerError> {
    let locked = File::open(directory).map_err(SchedulerError::file(directory))?;
    match locked.try_lock() {
        Ok(()) => Ok(locked),
        Err(TryLockError::WouldBlock) => Err(SchedulerError::AlreadyRunning),
        Err(TryLockError::Error(cause)) => Err(SchedulerError::File { file: directory.to_owned(), cause }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instance(root: &Path, state: &str) -> Instance {
        let sched_ext = root.join("sys/kernel/sched_ext");
        fs::create_dir_all(sched_ext.join("root")).unwrap();
        fs::write(sched_ext.join("state"), state).unwrap();
        fs::write(sched_ext.join("root/ops"), "simple\n").unwrap();
        let directory = root.join("pins");
        make(&directory).unwrap();
        let locked = lock(&directory).unwrap();
        make(&directory.join(STEERING)).unwrap();
        Instance { kernel: Kernel::new(root), directory, _locked: locked }
    }

    #[test]
    fn there_is_one_at_a_time() {
        let root = tempfile::tempdir().unwrap();
        let first = instance(root.path(), "disabled");
        let error = lock(&first.directory).unwrap_err();
        assert_eq!(error.to_string(), "another `tandem run` is at work; end it first");
        let directory = first.directory.clone();
        drop(first);
        lock(&directory).expect("the lock went with the first instance");
    }

    #[test]
    fn its_pins_go_with_it_and_what_is_locked_stays() {
        let root = tempfile::tempdir().unwrap();
        let first = instance(root.path(), "disabled");
        let directory = first.directory.clone();
        fs::write(first.pin(COUNTERS), "").unwrap();
        drop(first);
        let left: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, [STEERING]);
    }

    #[test]
    fn another_scheduler_is_named() {
        let root = tempfile::tempdir().unwrap();
        instance(root.path(), "disabled").wait_until_disabled().unwrap();
        let error = instance(root.path(), "enabled").wait_until_disabled().unwrap_err();
        assert_eq!(error.to_string(), "the kernel runs another sched_ext scheduler, `simple`; end it first");
    }
}
