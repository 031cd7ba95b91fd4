//! Access to the loaded scheduler: root uses its pinned maps, other users the service's socket.

use crate::error::BadInput;
use anyhow::anyhow;
use std::fs;
use std::path::{Path, PathBuf};
use tandem_host::agent::VmReport;
use tandem_host::cgroups::Cgroup;
use tandem_host::control::{Answer, Client, ClientError, ErrorKind, Request, WantedPlace, Whom};
use tandem_host::scheduler::{Loaded, PreferenceError, Preferences, RunningKernel, SchedulerError, Status};
use tandem_settings::{Asker, Held, Mode, Place, Preference, Subject};

/// A way to the loaded scheduler.
pub enum Access {
    /// By its pins.
    Direct(Loaded, Preferences),
    /// By the socket.
    Service(Client),
}

/// The subject of a preference.
#[derive(Clone, Copy, Debug)]
pub enum Who<'a> {
    /// A thread, by its number.
    Task(u32),
    /// A cgroup.
    Cgroup(&'a Cgroup),
}

/// Why a preference cannot be set or read.
#[derive(Debug)]
pub enum AccessError {
    /// The task or cgroup does not exist any more.
    Gone,
    /// Anything else; the message names the subject, if there is one.
    Other(anyhow::Error),
}

impl Access {
    /// Finds the scheduler.
    ///
    /// # Errors
    /// If none is loaded, or the user is not root and there is no service.
    pub fn find() -> anyhow::Result<Self> {
        match Loaded::find(RunningKernel::new(Path::new("/"))) {
            Ok(loaded) => {
                let preferences = loaded.preferences()?;
                Ok(Self::Direct(loaded, preferences))
            }
            Err(SchedulerError::NotRoot) => Client::connect()
                .map(Self::Service)
                .map_err(|error| anyhow!("only root reaches the scheduler without its service: {error}")),
            Err(error) => Err(error.into()),
        }
    }

    /// The scheduler's mode; `None` for users who may only steer their own tasks.
    ///
    /// # Errors
    /// If it is gone.
    pub fn mode(&self) -> anyhow::Result<Option<Mode>> {
        match self {
            Self::Direct(loaded, _) => Ok(Some(loaded.mode()?)),
            Self::Service(_) => Ok(None),
        }
    }

    /// Mode, age and counters of the scheduler.
    ///
    /// # Errors
    /// If it is gone, or the user may not read this.
    pub fn status(&self) -> anyhow::Result<Status> {
        match self {
            Self::Direct(loaded, _) => Ok(loaded.status()?),
            Self::Service(client) => match client.ask(&Request::Status)? {
                Answer::Status(status) => Ok(*status),
                _ => Err(client.other_version().into()),
            },
        }
    }

    /// The agent's reports about the VMs of this host; `None` if the settings give no homes. Only the agent
    /// has them, so that root asks the service as well.
    ///
    /// # Errors
    /// If the service is not there, or the user may not read this.
    pub fn vms(&self) -> anyhow::Result<Option<Vec<VmReport>>> {
        let connected;
        let client = match self {
            Self::Direct(..) => {
                connected = Client::connect()?;
                &connected
            }
            Self::Service(client) => client,
        };
        match client.ask(&Request::Vms)? {
            Answer::Vms(vms) => Ok(vms),
            _ => Err(client.other_version().into()),
        }
    }

    /// The preference of a task or cgroup, if it has one.
    ///
    /// # Errors
    /// If it is gone, or the user may not read it.
    pub fn preference_of(&self, who: Who<'_>) -> Result<Option<Held>, AccessError> {
        match self {
            Self::Direct(_, preferences) => {
                preferences.get(who.subject(), Asker::Root).map_err(|error| who.failed(error))
            }
            Self::Service(client) => {
                match client
                    .ask(&Request::PreferenceOf { whom: who.whom() })
                    .map_err(|error| who.told(error))?
                {
                    Answer::Preference(told) => Ok(told.map(Held::from)),
                    _ => Err(AccessError::Other(client.other_version().into())),
                }
            }
        }
    }

    /// Sets the preference of a task or cgroup.
    ///
    /// # Errors
    /// If it is gone, the user may not, or the scheduler cannot hold it.
    pub fn prefer(&self, who: Who<'_>, preference: &Preference) -> Result<(), AccessError> {
        match self {
            Self::Direct(_, preferences) => {
                let set = preferences.set(who.subject(), preference, Asker::Root);
                set.map_err(|error| who.failed(error))
            }
            Self::Service(client) => {
                let place = preference.place.as_ref().map(|place| match place {
                    Place::Cpus(cpus) => WantedPlace::Cpus(cpus.clone()),
                    Place::Nodes { nodes, .. } => WantedPlace::Nodes(nodes.clone()),
                });
                let latency_critical = preference.latency_critical;
                let request = Request::Prefer { whom: who.whom(), place, latency_critical };
                client.ask(&request).map(|_| ()).map_err(|error| who.told(error))
            }
        }
    }
}

impl Who<'_> {
    fn subject(self) -> Subject {
        match self {
            Self::Task(tid) => Subject::Task(tid),
            Self::Cgroup(cgroup) => Subject::Cgroup(cgroup.id),
        }
    }

    fn whom(self) -> Whom {
        match self {
            Self::Task(tid) => Whom::Task(tid),
            // Paths of cgroups begin with `/`, and the service wants them from there.
            Self::Cgroup(cgroup) => {
                Whom::Cgroup(cgroup.path.strip_prefix("/").map_or_else(|_| PathBuf::new(), Path::to_owned))
            }
        }
    }

    fn name(self) -> String {
        match self {
            Self::Task(tid) => match fs::read_to_string(format!("/proc/{tid}/comm")) {
                Ok(name) => format!("thread {tid} ({})", name.trim_end()),
                Err(_) => format!("thread {tid}"),
            },
            Self::Cgroup(cgroup) => format!("cgroup {}", cgroup.path.display()),
        }
    }

    fn failed(self, error: PreferenceError) -> AccessError {
        match error {
            PreferenceError::Gone => AccessError::Gone,
            // A missing scheduler concerns no particular subject.
            PreferenceError::Scheduler(error @ SchedulerError::NotLoaded) => AccessError::Other(error.into()),
            PreferenceError::TooLarge { .. } => {
                AccessError::Other(BadInput::new(format!("{}: {error}", self.name())).into())
            }
            error => AccessError::Other(anyhow!("{}: {error}", self.name())),
        }
    }

    fn told(self, error: ClientError) -> AccessError {
        match error.kind() {
            Some(ErrorKind::Gone) => AccessError::Gone,
            Some(ErrorKind::BadRequest) => {
                AccessError::Other(BadInput::new(format!("{}: {error}", self.name())).into())
            }
            Some(_) => AccessError::Other(anyhow!("{}: {error}", self.name())),
            None => AccessError::Other(error.into()),
        }
    }

    /// The error that it is gone.
    pub fn gone(self) -> anyhow::Error {
        BadInput::new(format!("{}: it does not exist any more", self.name())).into()
    }
}
