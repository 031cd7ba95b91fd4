//! How homes reach the scheduler, and core scheduling cookies the VMs.

use crate::core_scheduling::{self, Cookie};
use crate::guarded::give_cookie;
use crate::scheduler::{PreferenceError, Preferences, cpus_of_nodes};
use rustix::io::Errno;
use tandem_machine::Machine;
use tandem_settings::{Asker, Held, Place, Preference, Subject};

/// Reads and sets the preferences of threads, and isolates VMs.
pub trait Hands {
    /// Whether homes have an effect. If not, they are plans, and VMs run where the kernel puts them.
    fn are_real(&self) -> bool {
        true
    }

    /// The preference of a thread, if it has one.
    ///
    /// # Errors
    /// If the thread is gone, or the scheduler.
    fn held(&self, tid: u32) -> Result<Option<Held>, PreferenceError>;

    /// Gives a thread its home; withdraws it if there are no nodes.
    ///
    /// # Errors
    /// If the thread is gone, the scheduler is gone, or has no room.
    fn give(&self, tid: u32, nodes: &[u32]) -> Result<(), PreferenceError>;

    /// Whether a thread has a core scheduling cookie.
    fn cookie(&self, tid: u32) -> Cookie {
        core_scheduling::ask(tid)
    }

    /// Gives all threads of a process a new core scheduling cookie. Hands that change nothing do not.
    ///
    /// # Errors
    /// If the process is gone, or the kernel refuses.
    fn set_apart(&self, _pid: u32) -> Result<(), Errno> {
        Ok(())
    }
}

/// Hands on the loaded scheduler.
pub struct SchedulerHands {
    preferences: Preferences,
    machine: Machine,
}

impl SchedulerHands {
    /// Hands on a scheduler for this machine.
    pub fn new(preferences: Preferences, machine: Machine) -> Self {
        Self { preferences, machine }
    }
}

impl Hands for SchedulerHands {
    fn held(&self, tid: u32) -> Result<Option<Held>, PreferenceError> {
        self.preferences.get(Subject::Task(tid), Asker::Agent)
    }

    fn give(&self, tid: u32, nodes: &[u32]) -> Result<(), PreferenceError> {
        let place = (!nodes.is_empty())
            .then(|| Place::Nodes { nodes: nodes.to_vec(), cpus: cpus_of_nodes(&self.machine, nodes) });
        // A mark that another process has set stays.
        let latency_critical = self.held(tid)?.is_some_and(|held| held.preference.latency_critical);
        self.preferences.set(Subject::Task(tid), &Preference { place, latency_critical }, Asker::Agent)
    }

    fn set_apart(&self, pid: u32) -> Result<(), Errno> {
        give_cookie(pid)
    }
}

/// Hands that find nothing and change nothing, to show what the agent would do.
pub struct NoHands;

impl<H: Hands + ?Sized> Hands for Box<H> {
    fn are_real(&self) -> bool {
        (**self).are_real()
    }

    fn held(&self, tid: u32) -> Result<Option<Held>, PreferenceError> {
        (**self).held(tid)
    }

    fn give(&self, tid: u32, nodes: &[u32]) -> Result<(), PreferenceError> {
        (**self).give(tid, nodes)
    }

    fn cookie(&self, tid: u32) -> Cookie {
        (**self).cookie(tid)
    }

    fn set_apart(&self, pid: u32) -> Result<(), Errno> {
        (**self).set_apart(pid)
    }
}

impl Hands for NoHands {
    fn are_real(&self) -> bool {
        false
    }

    fn held(&self, _: u32) -> Result<Option<Held>, PreferenceError> {
        Ok(None)
    }

    fn give(&self, _: u32, _: &[u32]) -> Result<(), PreferenceError> {
        Ok(())
    }
}
