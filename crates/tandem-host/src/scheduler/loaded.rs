//! The scheduler that another process loaded, reached through its pins.

use super::instance::{COUNTERS, PREFER, PREFERENCE_OF, READ_ONLY_DATA, STEERING, directory};
use super::{RunningKernel, SchedExtState, SchedulerError};
use libbpf_rs::{MapCore, MapFlags, MapHandle, ProgramHandle};
use nix::errno::Errno;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::mem::offset_of;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use tandem_bpf::run_request;
use tandem_bpf::types::{preference_request, rodata};
use tandem_settings::{Asker, Counters, Held, Mode, Preference, Subject, TooLarge, request_about};
use thiserror::Error;

/// The scheduler's name, as the kernel shows it.
pub const NAME: &str = "tandem";

/// Why a preference cannot be set or read.
#[derive(Debug, Error)]
pub enum PreferenceError {
    /// The task has ended, or the cgroup was removed.
    #[error("it does not exist any more")]
    Gone,
    /// The task belongs to another user.
    #[error("it belongs to another user")]
    NotOwner,
    /// The scheduler has no room for another set of CPUs.
    #[error("all of the scheduler's sets of CPUs are in use by other preferences; clear some of those first")]
    NoRoom,
    /// The user has used up the quota of one user.
    #[error(
        "the user has as many different sets of CPUs in use as one user may have; clear some of those first"
    )]
    OwnShare,
    /// A number that the scheduler's tables do not hold.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// Something else went wrong.
    #[error(transparent)]
    Scheduler(#[from] SchedulerError),
}

/// The scheduler that another process loaded.
#[derive(Clone, Debug)]
pub struct Loaded {
    kernel: RunningKernel,
    directory: PathBuf,
}

impl Loaded {
    /// Finds the loaded scheduler.
    ///
    /// # Errors
    /// If there is none, or the user is not root.
    pub fn find(kernel: RunningKernel) -> Result<Self, SchedulerError> {
        let state = kernel.state()?;
        if !state.is_enabled() || state.scheduler.as_deref() != Some(NAME) {
            return Err(SchedulerError::NotLoaded);
        }
        let directory = directory(&kernel);
        // It belongs to root, or to the service's user.
        if fs::read_dir(&directory).is_err_and(|error| error.kind() == ErrorKind::PermissionDenied) {
            return Err(SchedulerError::NotRoot);
        }
        Ok(Self { kernel, directory })
    }

    /// The state of sched_ext.
    ///
    /// # Errors
    /// If the kernel does not report it.
    pub fn state(&self) -> Result<SchedExtState, SchedulerError> {
        self.kernel.state()
    }

    /// When it was loaded first; loading it again because of hotplug does not count.
    ///
    /// # Errors
    /// If it is gone.
    pub fn since(&self) -> Result<SystemTime, SchedulerError> {
        let pin = self.directory.join(COUNTERS);
        fs::metadata(&pin).and_then(|pin| pin.modified()).map_err(|_| SchedulerError::NotLoaded)
    }

    /// Its counters.
    ///
    /// # Errors
    /// If it is gone, or of another version.
    pub fn counters(&self) -> Result<Counters, SchedulerError> {
        read_counters(&map(&self.directory.join(COUNTERS))?)
    }

    /// Its mode.
    ///
    /// # Errors
    /// If it is gone, or of another version.
    pub fn mode(&self) -> Result<Mode, SchedulerError> {
        let map = map(&self.directory.join(READ_ONLY_DATA))?;
        let data = map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY);
        let data = data.map_err(SchedulerError::refused("report the scheduler's settings"))?;
        match data.as_deref().and_then(|data| data.get(offset_of!(rodata, settings.guest))) {
            Some(0) => Ok(Mode::Host),
            Some(_) => Ok(Mode::Guest),
            None => Err(SchedulerError::OtherVersion { what: "the size of its settings".into() }),
        }
    }

    /// Opens the programs that set and read preferences.
    ///
    /// # Errors
    /// If it is gone.
    pub fn preferences(&self) -> Result<Preferences, SchedulerError> {
        Preferences::open(&self.directory)
    }
}

/// Sets and reads preferences.
#[derive(Debug)]
pub struct Preferences {
    directory: PathBuf,
    prefer: ProgramHandle,
    preference_of: ProgramHandle,
}

impl Preferences {
    pub(super) fn open(directory: &Path) -> Result<Self, SchedulerError> {
        let program = |name| {
            ProgramHandle::from_pinned_path(directory.join(name)).map_err(|_| SchedulerError::NotLoaded)
        };
        Ok(Self {
            directory: directory.to_owned(),
            prefer: program(PREFER)?,
            preference_of: program(PREFERENCE_OF)?,
        })
    }

    /// The preference of a task or cgroup, if it has one.
    ///
    /// # Errors
    /// If there is no such task or cgroup, the asker is not permitted, or the kernel does not report it.
    pub fn get(&self, subject: Subject, asker: Asker) -> Result<Option<Held>, PreferenceError> {
        let mut request = request_about(subject);
        asker.write(&mut request);
        match run(&self.preference_of, &mut request)? {
            Ok(()) => Ok(Some(Held::read(&request))),
            Err(Errno::ENOENT) => Ok(None),
            Err(error) => Err(refusal(error)),
        }
    }

    /// Replaces the preference of a task or cgroup.
    ///
    /// # Errors
    /// If there is no such task or cgroup, the asker is not permitted, or the scheduler cannot hold the
    /// preference. Nothing is changed then.
    pub fn set(
        &self,
        subject: Subject,
        preference: &Preference,
        asker: Asker,
    ) -> Result<(), PreferenceError> {
        let mut request = request_about(subject);
        asker.write(&mut request);
        preference.write(&mut request)?;
        let _alone = self.steer_alone()?;
        run(&self.prefer, &mut request)?.map_err(refusal)
    }

    /// Clears the preference of a task or cgroup.
    ///
    /// # Errors
    /// If there is no such task or cgroup, or the asker is not permitted.
    pub fn clear(&self, subject: Subject, asker: Asker) -> Result<(), PreferenceError> {
        self.set(subject, &Preference { place: None, latency_critical: false }, asker)
    }

    /// Waits until no other process sets preferences: the scheduler allows one at a time.
    fn steer_alone(&self) -> Result<File, SchedulerError> {
        let path = self.directory.join(STEERING);
        let file = File::open(&path).map_err(|_| SchedulerError::NotLoaded)?;
        file.lock().map_err(SchedulerError::file(&path))?;
        Ok(file)
    }
}

/// Reads the scheduler's counters from its map.
pub(super) fn read_counters(map: &impl MapCore) -> Result<Counters, SchedulerError> {
    if map.value_size() as usize != Counters::SIZE {
        return Err(SchedulerError::OtherVersion { what: "the number of counters".into() });
    }
    let values = map.lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY);
    let values = values.map_err(SchedulerError::refused("report the counters"))?;
    Ok(Counters::sum(values.iter().flatten().map(Vec::as_slice)))
}

fn map(pin: &Path) -> Result<MapHandle, SchedulerError> {
    MapHandle::from_pinned_path(pin).map_err(|_| SchedulerError::NotLoaded)
}

/// Runs a program; the inner result is the program's answer.
fn run(
    program: &ProgramHandle,
    request: &mut preference_request,
) -> Result<Result<(), Errno>, SchedulerError> {
    let answer = run_request(program.as_fd(), request);
    match answer.map_err(SchedulerError::refused("pass on the preference"))? {
        0 => Ok(Ok(())),
        error => Ok(Err(Errno::from_raw(-error))),
    }
}

fn refusal(error: Errno) -> PreferenceError {
    match error {
        Errno::ESRCH => PreferenceError::Gone,
        Errno::EPERM => PreferenceError::NotOwner,
        Errno::ENOSPC => PreferenceError::NoRoom,
        Errno::EDQUOT => PreferenceError::OwnShare,
        error => {
            SchedulerError::Refused { action: "pass on the preference".into(), cause: error.to_string() }
                .into()
        }
    }
}
