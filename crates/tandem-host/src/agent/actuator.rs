//! The interface through which the agent acts: gives homes to the scheduler, and core scheduling cookies to
//! VMs.

use crate::core_scheduling::{self, Cookie};
use crate::guarded::give_cookie;
use crate::scheduler::{PreferenceError, Preferences, cpus_of_nodes};
use rustix::io::Errno;
use tandem_machine::Machine;
use tandem_settings::{Asker, Held, Place, Preference, Subject};

/// Reads and sets the preferences of threads, and isolates VMs.
pub trait Actuator {
    /// Whether homes have an effect. If not, they are plans, and VMs run where the kernel puts them.
    fn has_effect(&self) -> bool {
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

    /// Gives all threads of a process a new core scheduling cookie; by default, does nothing.
    ///
    /// # Errors
    /// If the process is gone, or the kernel refuses.
    fn set_apart(&self, _pid: u32) -> Result<(), Errno> {
        Ok(())
    }
}

/// Acts on the loaded scheduler.
pub struct SchedulerActuator {
    preferences: Preferences,
    machine: Machine,
}

impl SchedulerActuator {
    /// An actuator for a scheduler on this machine.
    pub fn new(preferences: Preferences, machine: Machine) -> Self {
        Self { preferences, machine }
    }
}

impl Actuator for SchedulerActuator {
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

/// Finds and changes nothing, to show what the agent would do.
pub struct DryRun;

impl<H: Actuator + ?Sized> Actuator for Box<H> {
    fn has_effect(&self) -> bool {
        (**self).has_effect()
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

impl Actuator for DryRun {
    fn has_effect(&self) -> bool {
        false
    }

    fn held(&self, _: u32) -> Result<Option<Held>, PreferenceError> {
        Ok(None)
    }

    fn give(&self, _: u32, _: &[u32]) -> Result<(), PreferenceError> {
        Ok(())
    }
}
