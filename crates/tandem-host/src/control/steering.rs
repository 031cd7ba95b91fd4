//! Executes requests with the loaded scheduler.

use super::permission::Refusal;
use super::protocol::{Answer, ErrorKind, ErrorTold, PreferenceTold, Request, WantedPlace, Whom};
use super::server::Backend;
use crate::agent::Reports;
use crate::cgroups::Hierarchy;
use crate::scheduler::{Loaded, PreferenceError, Preferences, SchedulerError, cpus_of_nodes};
use crate::tasks;
use crate::vms::Manager;
use std::path::{Component, Path};
use tandem_machine::Machine;
use tandem_settings::{Asker, Held, Mode, Place, Preference, Subject};

/// The loaded scheduler, for the service.
pub struct Steering {
    loaded: Loaded,
    preferences: Preferences,
    machine: Machine,
    mode: Mode,
    reports: Option<Reports>,
    managed: bool,
}

impl Steering {
    /// Opens the scheduler's maps and programs; works without privileges from then on, until the scheduler is
    /// loaded again. The reports are those of the agent, if one runs; `managed`: users may steer VMs that a
    /// manager has started.
    ///
    /// # Errors
    /// If the scheduler is not loaded.
    pub fn open(
        loaded: Loaded,
        machine: Machine,
        reports: Option<Reports>,
        managed: bool,
    ) -> Result<Self, SchedulerError> {
        Ok(Self {
            preferences: loaded.preferences()?,
            mode: loaded.mode()?,
            loaded,
            machine,
            reports,
            managed,
        })
    }

    fn prefer(
        &self,
        asker: Asker,
        whom: &Whom,
        place: Option<WantedPlace>,
        latency_critical: bool,
    ) -> Result<Answer, ErrorTold> {
        let subject = find(whom, asker)?;
        if let (Asker::User { .. }, Whom::Task(tid), false) = (asker, whom, self.managed) {
            if self.reports.as_ref().is_some_and(|reports| reports.steps() == 0) {
                let message = "the agent has just started and does not know the VMs yet; ask again".into();
                return Err(ErrorTold { kind: ErrorKind::Busy, message });
            }
            if is_managed(Path::new("/"), *tid, self.reports.as_ref()) {
                return Err(ErrorTold { kind: ErrorKind::Refused, message: Refusal::Managed.to_string() });
            }
        }
        let place = place.map(|place| self.place(place)).transpose()?;
        self.preferences.set(subject, &Preference { place, latency_critical }, asker).map_err(told)?;
        Ok(Answer::Done)
    }

    fn preference_of(&self, asker: Asker, whom: &Whom) -> Result<Answer, ErrorTold> {
        let held = self.preferences.get(find(whom, asker)?, asker).map_err(told)?;
        Ok(Answer::Preference(held.map(PreferenceTold::from)))
    }

    /// Looks up the CPUs of a place here, because a client is not trusted with them.
    fn place(&self, wanted: WantedPlace) -> Result<Place, ErrorTold> {
        match wanted {
            WantedPlace::Cpus(cpus) if cpus.is_empty() => {
                Err(bad_request("a place must have at least one CPU"))
            }
            WantedPlace::Cpus(cpus) => Ok(Place::Cpus(ascending(cpus))),
            WantedPlace::Nodes(_) if self.mode == Mode::Guest => {
                Err(bad_request("the scheduler runs in guest mode, which has no nodes"))
            }
            WantedPlace::Nodes(nodes) => {
                let nodes = ascending(nodes);
                let cpus = cpus_of_nodes(&self.machine, &nodes);
                match cpus.is_empty() {
                    true => Err(bad_request("no CPU of these nodes is online and not isolated")),
                    false => Ok(Place::Nodes { nodes, cpus }),
                }
            }
        }
    }
}

impl Backend for Steering {
    fn answer(&self, asker: Asker, request: Request) -> Answer {
        let answer = match request {
            Request::Prefer { whom, place, latency_critical } => {
                self.prefer(asker, &whom, place, latency_critical)
            }
            Request::PreferenceOf { whom } => self.preference_of(asker, &whom),
            Request::Status => match self.loaded.status() {
                Ok(status) => Ok(Answer::Status(Box::new(status))),
                Err(error) => Err(told(error.into())),
            },
            Request::Vms => Ok(Answer::Vms(self.reports.as_ref().map(Reports::vms))),
        };
        answer.unwrap_or_else(Answer::Error)
    }
}

impl From<Held> for PreferenceTold {
    fn from(held: Held) -> Self {
        let Held { preference: Preference { place, latency_critical }, by_agent, home_ns, away_ns } = held;
        let (place, cpus) = match place {
            None => (None, Vec::new()),
            Some(Place::Cpus(cpus)) => (Some(WantedPlace::Cpus(cpus.clone())), cpus),
            Some(Place::Nodes { nodes, cpus }) => (Some(WantedPlace::Nodes(nodes)), cpus),
        };
        Self { place, cpus, latency_critical, by_agent, home_ns, away_ns }
    }
}

impl From<PreferenceTold> for Held {
    fn from(told: PreferenceTold) -> Self {
        let PreferenceTold { place, cpus, latency_critical, by_agent, home_ns, away_ns } = told;
        let place = place.map(|place| match place {
            WantedPlace::Cpus(cpus) => Place::Cpus(cpus),
            WantedPlace::Nodes(nodes) => Place::Nodes { nodes, cpus },
        });
        Self { preference: Preference { place, latency_critical }, by_agent, home_ns, away_ns }
    }
}

fn ascending(mut numbers: Vec<u32>) -> Vec<u32> {
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// Whether a thread belongs to a VM that a manager has started, as far as the agent has found it: within two
/// seconds of its start.
fn is_managed(root: &Path, tid: u32, reports: Option<&Reports>) -> bool {
    let process = tasks::task(root, tid).map(|task| task.pid);
    let manager = process.and_then(|pid| reports?.manager_of(pid));
    manager.is_some_and(|manager| manager != Manager::None)
}

/// The subject of a request to the scheduler. Checks the owner of a cgroup; the scheduler itself checks the
/// owner of a task.
fn find(whom: &Whom, asker: Asker) -> Result<Subject, ErrorTold> {
    match whom {
        Whom::Task(tid) => Ok(Subject::Task(*tid)),
        Whom::Cgroup(path) => {
            // On a user's behalf, no path outside of the hierarchy is accessed, not even to see whether it
            // exists.
            if !is_plain(path) {
                return Err(bad_request(
                    "give the cgroup's path from the mount point of cgroups, without `..`",
                ));
            }
            let hierarchy = Hierarchy::find(Path::new("/")).map_err(bad_request)?;
            let cgroup = hierarchy.cgroup(path).map_err(bad_request)?;
            match asker {
                Asker::User { user, .. } if user != cgroup.owner => {
                    Err(ErrorTold { kind: ErrorKind::Refused, message: Refusal::NotOwner.to_string() })
                }
                _ => Ok(Subject::Cgroup(cgroup.id)),
            }
        }
    }
}

fn is_plain(path: &Path) -> bool {
    path.components().all(|component| matches!(component, Component::Normal(_) | Component::CurDir))
}

fn bad_request(why: impl ToString) -> ErrorTold {
    ErrorTold { kind: ErrorKind::BadRequest, message: why.to_string() }
}

fn told(error: PreferenceError) -> ErrorTold {
    let kind = match error {
        PreferenceError::NotOwner => {
            return ErrorTold { kind: ErrorKind::Refused, message: Refusal::NotOwner.to_string() };
        }
        PreferenceError::Gone => ErrorKind::Gone,
        PreferenceError::TooLarge { .. } => ErrorKind::BadRequest,
        PreferenceError::NoRoom | PreferenceError::OwnShare | PreferenceError::Scheduler(_) => {
            ErrorKind::Failed
        }
    };
    ErrorTold { kind, message: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::{Agent, DryRun};
    use crate::vms::testing::{Cgroups, Process, Tree};
    use std::time::Duration;
    use tandem_settings::Settings;

    #[test]
    fn vms_of_a_manager_are_known_by_their_process() {
        let folder = tempfile::tempdir().unwrap();
        let tree = Tree::new(folder.path());
        tree.machine(1, 2);
        tree.cgroups(Cgroups::Unified);
        tree.process(&Process::libvirt(100, "web", 2));
        tree.process(
            &Process::new(200, "/usr/bin/qemu-system-x86_64", &["-name", "own"]).thread("CPU 0/KVM"),
        );
        let machine = crate::topology::read_sysfs(tree.root()).unwrap();
        let mut agent = Agent::new(tree.root(), machine, &Settings::default(), DryRun);
        let reports = agent.reports();
        agent.step(Duration::from_secs(1)).unwrap();
        assert_eq!(reports.vms().len(), 2);
        let managed = [100, 200, 300].map(|tid| is_managed(tree.root(), tid, Some(&reports)));
        assert_eq!(managed, [true, false, false]);
        assert!(!is_managed(tree.root(), 100, None), "without an agent it is unknown");
    }

    #[test]
    fn paths_that_lead_out_of_the_hierarchy_are_refused() {
        for path in ["/etc", "..", "a/../../etc", "a/.."] {
            let error =
                find(&Whom::Cgroup(path.into()), Asker::User { user: 1000, payer: 1000 }).unwrap_err();
            assert_eq!(error.kind, ErrorKind::BadRequest);
            assert!(error.message.starts_with("give the cgroup's path"), "{path}: {}", error.message);
        }
        assert!(is_plain(Path::new("machine.slice/vm1.scope")));
    }

    #[test]
    fn answers_have_all_of_a_preference() {
        let place = Some(Place::Nodes { nodes: vec![1], cpus: vec![2, 3] });
        let preference = Preference { place, latency_critical: true };
        let held = Held { preference, by_agent: true, home_ns: 7, away_ns: 8 };
        let told = PreferenceTold::from(held.clone());
        assert_eq!(Held::from(told.clone()), held);
        assert_eq!((told.place, told.cpus), (Some(WantedPlace::Nodes(vec![1])), vec![2, 3]));
        assert!(told.latency_critical && told.by_agent);
        assert_eq!((told.home_ns, told.away_ns), (7, 8));
    }
}
