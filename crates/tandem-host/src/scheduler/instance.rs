//! One instance at a time, and what it publishes in the BPF file system for other processes while it runs.
//!
//! The directory `/sys/fs/bpf/tandem` serves both: the process that loads the scheduler holds a lock on it,
//! and it contains pins of the maps and programs that other processes use. Pins of a process that was killed
//! stay until the next one starts. The directory itself stays, and so does the one in it that serves as the
//! lock for setting preferences: a lock must be the same file for all.

use super::{RunningKernel, SchedulerError};
use crate::privileges::{Capabilities, held};
use nix::unistd::User;
use rustix::fs::OFlags;
use rustix::process::geteuid;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, lchown};
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

/// Name of the directory that a process locks to set preferences.
pub const STEERING: &str = "steering";

/// How long unloading a scheduler may take.
const UNLOADING_MAX: Duration = Duration::from_secs(10);

/// The directory of the pins, below the BPF file system.
pub fn directory(kernel: &RunningKernel) -> PathBuf {
    kernel.bpf_file_system().join("tandem")
}

/// The right to load the scheduler. Dropping it removes the pins.
#[derive(Debug)]
pub struct Instance {
    kernel: RunningKernel,
    directory: PathBuf,
    /// Locked; the lock ends with the last of its descriptors.
    _locked: File,
}

impl Instance {
    /// Takes the right to load the scheduler, after checking that it can be loaded, and removes pins that a
    /// killed process left.
    ///
    /// # Errors
    /// If the kernel or the user cannot load it, another `tandem run` is running, or another scheduler is
    /// loaded. Nothing is changed then.
    pub fn acquire(kernel: RunningKernel) -> Result<Self, SchedulerError> {
        kernel.check()?;
        let needed = Capabilities::BPF | Capabilities::PERFMON;
        if !held(needed).is_ok_and(|held| held == needed) {
            return Err(SchedulerError::NotRoot);
        }
        let directory = directory(&kernel);
        make(&directory)?;
        let locked = lock_directory(&directory)?;
        let instance = Self { kernel, directory, _locked: locked };
        instance.wait_until_disabled()?;
        instance.remove_pins()?;
        make_own(&instance.pin(STEERING))?;
        Ok(instance)
    }

    /// The kernel that would run the scheduler.
    pub fn kernel(&self) -> &RunningKernel {
        &self.kernel
    }

    /// Waits for a scheduler that is being unloaded, such as one whose process was killed a moment ago.
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

    /// The directory of its pins.
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
        // The next instance removes what stays.
        let _ = self.remove_pins();
    }
}

/// Creates the directory of the pins, unless it exists. It belongs to the service's user and root's group,
/// because root may run the command by hand without the right to enter other users' folders; or to root,
/// where there is no such user.
fn make(directory: &Path) -> Result<(), SchedulerError> {
    let create = || match DirBuilder::new().mode(0o770).create(directory) {
        Ok(()) => match User::from_name(SERVICE_USER).ok().flatten().filter(|_| geteuid().is_root()) {
            // Regardless of the umask of this process.
            Some(user) => lchown(directory, Some(user.uid.as_raw()), Some(0))
                .and_then(|()| fs::set_permissions(directory, Permissions::from_mode(0o770))),
            None => Ok(()),
        },
        Err(cause) if cause.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(cause) => Err(cause),
    };
    create().map_err(SchedulerError::file(directory))
}

/// Creates a directory in it for this user alone. Replaces one of another user, who ran the command before.
fn make_own(directory: &Path) -> Result<(), SchedulerError> {
    let create = || DirBuilder::new().mode(0o700).create(directory);
    let is_own = || fs::symlink_metadata(directory).is_ok_and(|found| found.uid() == geteuid().as_raw());
    match create() {
        Err(cause) if cause.kind() != ErrorKind::AlreadyExists => Err(cause),
        Err(_) if !is_own() => fs::remove_dir(directory).and_then(|()| create()),
        _ => Ok(()),
    }
    .map_err(SchedulerError::file(directory))
}

/// Makes root the owner of a directory of the service's user, if root runs the command by hand: from then on,
/// no other user can place a link there. systemd gives it back when the service starts.
fn take_over(directory: &Path) -> io::Result<()> {
    let is_others = || fs::symlink_metadata(directory).is_ok_and(|found| found.uid() != 0);
    if geteuid().is_root() && is_others() {
        lchown(directory, Some(0), Some(0))?;
    }
    Ok(())
}

/// The service's user.
const SERVICE_USER: &str = "tandem";
/// The folder of the service and its socket.
const SERVICE_FOLDER: &str = "/run/tandem";

/// Takes the right to be the only `tandem run` with the socket, whether it loads the scheduler or only
/// observes. Closing the file ends it.
///
/// # Errors
/// If another one is running, or the folder cannot be created.
pub fn lock_service() -> Result<File, SchedulerError> {
    lock_in_service_folder("lock")
}

/// Takes the right to make the only trial of schedulers. Closing the file ends it.
///
/// # Errors
/// If another trial is made, or the folder cannot be created.
pub fn lock_trial() -> Result<File, SchedulerError> {
    lock_in_service_folder("trial").map_err(|error| match error {
        SchedulerError::AlreadyRunning => SchedulerError::TrialRunning,
        other => other,
    })
}

fn lock_in_service_folder(name: &str) -> Result<File, SchedulerError> {
    let folder = Path::new(SERVICE_FOLDER);
    loop {
        fs::create_dir_all(folder).and_then(|()| take_over(folder)).map_err(SchedulerError::file(folder))?;
        // A file that no other user may open: a user who can open the file can lock it.
        let path = folder.join(name);
        let flags = OFlags::NOFOLLOW.bits() as i32;
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(flags)
            .open(&path);
        let locked = lock(file.map_err(SchedulerError::file(&path))?, &path)?;
        // It may have been removed and created anew in between.
        let is_there = |now: fs::Metadata| locked.metadata().is_ok_and(|own| own.ino() == now.ino());
        if fs::metadata(&path).is_ok_and(is_there) {
            return Ok(locked);
        }
    }
}

fn lock_directory(directory: &Path) -> Result<File, SchedulerError> {
    lock(File::open(directory).map_err(SchedulerError::file(directory))?, directory)
}

fn lock(file: File, path: &Path) -> Result<File, SchedulerError> {
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(SchedulerError::AlreadyRunning),
        Err(TryLockError::Error(cause)) => Err(SchedulerError::File { file: path.to_owned(), cause }),
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
        let locked = lock_directory(&directory).unwrap();
        make(&directory.join(STEERING)).unwrap();
        Instance { kernel: RunningKernel::new(root), directory, _locked: locked }
    }

    #[test]
    fn there_is_one_at_a_time() {
        let root = tempfile::tempdir().unwrap();
        let first = instance(root.path(), "disabled");
        let error = lock_directory(&first.directory).unwrap_err();
        assert_eq!(error.to_string(), "another `tandem run` is running; stop it first");
        let directory = first.directory.clone();
        drop(first);
        lock_directory(&directory).expect("the lock went with the first instance");
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
        assert_eq!(error.to_string(), "the kernel runs another sched_ext scheduler, `simple`; stop it first");
    }
}
