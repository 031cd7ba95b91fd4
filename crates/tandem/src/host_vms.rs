//! The VMs that are on this host now, as the planner is shown them: for verbs that ask it, and do nothing.

use crate::observe::{Gaps, note_of_monitors, unreadable};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};
use tandem_host::agent::{Agent, AgentError, NoHands};
use tandem_host::topology::read_sysfs;
use tandem_host::vms::homes_file::HomesFile;
use tandem_machine::Machine;
use tandem_settings::Settings;

/// How long VMs are looked at, so that it is known which of them work.
pub const OBSERVED: Duration = Duration::from_secs(2);

/// A host and its VMs.
pub struct HostVms {
    pub machine: Machine,
    /// Looks, and gives nobody a home.
    pub agent: Agent<NoHands>,
    begin: Instant,
}

impl HostVms {
    /// Finds them, with the homes that the file says. `root` is `/` for this machine.
    ///
    /// # Errors
    /// If the machine or its processes cannot be read.
    pub fn find(root: &Path, settings: &Settings, homes: Option<&HomesFile>) -> anyhow::Result<Self> {
        let machine = read_sysfs(root)?;
        let mut agent = Agent::new(root, machine.clone(), settings, NoHands);
        let begin = Instant::now();
        agent.observe(begin.elapsed(), homes)?;
        Ok(Self { machine, agent, begin })
    }

    /// Sees how much they work within that time, and decides about homes. Without VMs it does not wait.
    ///
    /// # Errors
    /// None arises where nobody is given homes.
    pub fn measure(&mut self, time: Duration) -> Result<(), AgentError> {
        if self.agent.residents().next().is_some() {
            sleep(time);
        }
        self.agent.look(self.begin.elapsed())?;
        Ok(())
    }

    /// How long it has been looking.
    pub fn elapsed(&self) -> Duration {
        self.begin.elapsed()
    }

    /// What could not be seen, and what to do: a sentence each, without a full stop.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = unreadable(&self.agent.residents().map(Gaps::of_resident).collect::<Vec<_>>());
        notes.extend(note_of_monitors(self.agent.monitors_without_vcpus().collect()));
        notes
    }
}
