//! The VMs of this host as the planner sees them, for verbs that ask it and change nothing.

use crate::observe::{Gaps, note_of_monitors, unreadable};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};
use tandem_host::agent::{Agent, AgentError, DryRun};
use tandem_host::topology::read_sysfs;
use tandem_host::vms::homes_file::HomesFile;
use tandem_machine::Machine;
use tandem_settings::Settings;

/// How long VMs are observed, to learn which of them are busy.
pub const OBSERVED: Duration = Duration::from_secs(2);

/// A host and its VMs.
pub struct HostVms {
    /// The topology of the host.
    pub machine: Machine,
    /// Observes, and gives no homes.
    pub agent: Agent<DryRun>,
    begin: Instant,
}

impl HostVms {
    /// Finds them, with the homes that the file says. `root` is `/` for this machine.
    ///
    /// # Errors
    /// If the machine or its processes cannot be read.
    pub fn find(root: &Path, settings: &Settings, homes: Option<&HomesFile>) -> anyhow::Result<Self> {
        let machine = read_sysfs(root)?;
        let mut agent = Agent::new(root, machine.clone(), settings, DryRun);
        let begin = Instant::now();
        agent.observe(begin.elapsed(), homes)?;
        Ok(Self { machine, agent, begin })
    }

    /// Measures how busy they are within that time, and plans homes. Without VMs it does not wait.
    ///
    /// # Errors
    /// None arises, because no homes are given.
    pub fn measure(&mut self, time: Duration) -> Result<(), AgentError> {
        if self.agent.tracked_vms().next().is_some() {
            sleep(time);
        }
        self.agent.scan(self.begin.elapsed())?;
        Ok(())
    }

    /// How long it has been observing.
    pub fn elapsed(&self) -> Duration {
        self.begin.elapsed()
    }

    /// What could not be read, and what to do: a sentence each, without a full stop.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = unreadable(&self.agent.tracked_vms().map(Gaps::of_tracked).collect::<Vec<_>>());
        notes.extend(note_of_monitors(self.agent.monitors_without_vcpus().collect()));
        notes
    }
}
