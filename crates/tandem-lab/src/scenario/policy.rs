//! The policy table: all that a variant of an experiment may change.

/// The settings of one table, each from the lower one where the upper one leaves it out.
macro_rules! laid_over {
    ($top:ident, $base:ident: $($key:ident),+) => { Self { $($key: $top.$key.or($base.$key)),+ } };
}

pub mod agent;
mod arena_library;
pub mod compiled;
pub mod credit;
pub mod credit2;
pub mod former;
pub mod group;
pub mod linux;
mod machine_words;
pub mod named;
pub mod pause_loop;
pub mod sched_ext;
pub mod scheduler;
pub mod soft_affinity;
pub mod switch;
pub mod user_space;
pub mod words;

use agent::AgentTable;
use group::GroupPolicyTable;
use pause_loop::PauseLoopTable;
use scheduler::{GuestScheduler, HostScheduler};
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ops::Range;
use switch::Switch;
use tandem_file::file_error::FileError;
use tandem_file::located::{Located, SourceFile};
use tandem_file::units::Duration;
use tandem_machine::Machine;
use tandem_sim::policy::halt_poll::HaltPoll;
use tandem_sim::policy::pause_loop::PauseLoop;
use tandem_sim::scenario::{Homes, PolicySettings};

/// The schedulers of the host and of the guests, and what else an administrator of the host decides: where VMs
/// run, and where their memory lies. A variant of an experiment is such a table too: what it leaves out is as in
/// the scenario. Its scheduler's table changes only the settings that it names, if the scenario has the same
/// scheduler; another one begins with its own defaults, and `pause_loop` and `halt_poll` with it.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyTable {
    /// The scheduler of the host: "xen-credit", which it is if absent, "xen-credit2", "linux" or "tandem"
    /// with its defaults; or a table with its settings, such as { linux = { version = "5.2" } }; or one with
    /// the path of another sched_ext scheduler's object file, such as { object = "scheduler.bpf.o" }.
    pub host: Option<HostScheduler>,
    /// The scheduler of every guest kernel, in the same forms: "linux", which it is if absent, "tandem", in
    /// guest mode, or a table.
    pub guest: Option<GuestScheduler>,
    /// What the host does about vCPUs that spin: "off", or a table of settings, where {} is as the host's
    /// scheduler has it; "off" if absent. A variant's table changes what it names in the scenario's.
    pub pause_loop: Option<Switch<PauseLoopTable>>,
    /// How long the host polls at most before it lets a vCPU sleep (`halt_poll_ns` of KVM), up to "4294ms";
    /// "0us" is never; "default", which it is if absent, is "200us" from version "5.2" on, and "0us" before.
    /// No other time than "0us" is for Xen, nor for version "3.6".
    pub halt_poll: Option<Located<HaltPollForm>>,
    /// How VMs without an affinity of their own get one, and what the homes of processes mean; "none" if
    /// absent.
    pub placement: Option<PlacementMode>,
    /// For placement "agent": how often the agent scans and when it moves homes.
    pub agent: Option<Located<AgentTable>>,
    /// Where VMs and processes run and where their memory lies, by the name of their group: each key takes the
    /// place of that key in their table, as in { db = { memory_policy = { bind = "0" } } }.
    #[serde(default)]
    pub group: BTreeMap<String, GroupPolicyTable>,
}

/// How long the host polls at most: as that of its version does, or for a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected \"default\", or a time such as \"50us\"")]
pub enum HaltPollForm {
    /// As by default.
    Named(HaltPollName),
    /// So long.
    Longest(Duration),
}

/// What the host does without being told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HaltPollName {
    /// As long as by default.
    Default,
}

/// How VMs without an affinity of their own get one, and what the homes of processes mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PlacementMode {
    /// They run everywhere, their memory is spread evenly over all nodes. Homes count for nothing.
    #[default]
    None,
    /// Automatic placement chooses nodes for VMs, processes have homes; their memory lies there, and they run
    /// nowhere else.
    Pin,
    /// The same, but they prefer to run there.
    Prefer,
    /// An agent chooses nodes for VMs when they start, and others while they run; they prefer to run there.
    /// Processes prefer their homes, which stay.
    Agent,
}

impl PolicyTable {
    /// This table, with what it leaves out taken from `base`; but settings of one scheduler are none of
    /// another's.
    pub fn over(&self, base: &Self) -> Self {
        let (top, base) = (self.clone(), base.clone());
        let base_host = base.host.unwrap_or_default();
        let is_other = top.host.as_ref().is_some_and(|host| !host.is_like(&base_host));
        let base_pause_loop = base.pause_loop.filter(|_| !is_other);
        let base_halt_poll = base.halt_poll.filter(|_| !is_other);
        let base_guest = base.guest.unwrap_or_default();
        Self {
            host: Some(match top.host {
                Some(host) => host.over(base_host),
                None => base_host,
            }),
            guest: Some(match top.guest {
                Some(guest) => guest.over(base_guest),
                None => base_guest,
            }),
            pause_loop: match (top.pause_loop, base_pause_loop) {
                (Some(top), Some(base)) => Some(top.over(base, PauseLoopTable::over)),
                (top, base) => top.or(base),
            },
            halt_poll: top.halt_poll.or(base_halt_poll),
            placement: top.placement.or(base.placement),
            agent: top.agent.or(base.agent),
            group: groups_over(top.group, base.group),
        }
    }

    /// Which tables of this policy do not hold under another one, since they are settings of a host scheduler that it
    /// replaces.
    pub fn left_out_by(&self, top: &Self) -> Vec<&'static str> {
        let under = top.over(self);
        let lost = [
            ("pause_loop", self.pause_loop_table().is_some() && under.pause_loop.is_none()),
            ("halt_poll", self.halt_poll.is_some() && under.halt_poll.is_none()),
        ];
        lost.into_iter().filter(|(_, is_lost)| *is_lost).map(|(name, _)| name).collect()
    }

    /// Checks each setting by itself.
    ///
    /// # Errors
    /// Names the line of the first setting that is not allowed, and what is.
    pub fn check(&self, source: &SourceFile) -> Result<(), FileError> {
        if let Some(host) = &self.host {
            host.check(source)?;
        }
        if let Some(guest) = &self.guest {
            guest.check(source)?;
        }
        if let Some(table) = self.pause_loop_table() {
            table.check(source)?;
        }
        if let Some((span, longest_ns)) = self.halt_poll_time()
            && longest_ns > HaltPoll::MAX_NS
        {
            let message = "`halt_poll` is longer than \"4294ms\", the longest that KVM allows";
            return Err(source.error(span, message));
        }
        if let Some(agent) = &self.agent {
            agent.check(source)?;
        }
        match self.host.as_ref().and_then(|host| self.foreign_yield(host)) {
            Some((span, problem)) => Err(source.error(span, problem)),
            None => Ok(()),
        }
    }

    /// Checks a table that is a whole policy: that its settings go together, too.
    ///
    /// # Errors
    /// As [`PolicyTable::check`].
    pub fn check_whole(&mut self, source: &SourceFile) -> Result<(), FileError> {
        let problem = self.host.get_or_insert_default().problem();
        let problem = problem.or_else(|| self.guest.as_ref()?.problem());
        self.check(source)?;
        self.checked_pause_loop().map_err(|(span, message)| source.error(span, message))?;
        match problem.or_else(|| self.foreign_halt_poll()) {
            Some((span, problem)) => Err(source.error(span, problem)),
            None => Ok(()),
        }
    }

    /// The engine's form of the host's policy on a machine, with defaults for what is left out. Paths begin
    /// where the source lies.
    ///
    /// # Errors
    /// A sentence, if settings do not go together, or a compiled scheduler cannot be used.
    pub fn host_settings(&self, machine: &Machine, source: &SourceFile) -> Result<PolicySettings, String> {
        self.host.clone().unwrap_or_default().settings(machine, source)
    }

    /// The engine's form of the policy of a guest that sees this topology. Paths begin where the source lies.
    ///
    /// # Errors
    /// A sentence, if a compiled scheduler cannot be used.
    pub fn guest_settings(&self, topology: &Machine, source: &SourceFile) -> Result<PolicySettings, String> {
        self.guest.clone().unwrap_or_default().settings(topology, source)
    }

    /// The engine's form of who chooses homes.
    pub fn homes(&self) -> Homes {
        match self.placement.unwrap_or_default() {
            PlacementMode::None => Homes::Given,
            PlacementMode::Pin => Homes::Pin,
            PlacementMode::Prefer => Homes::Prefer,
            PlacementMode::Agent => {
                Homes::Agent(self.agent.as_deref().cloned().unwrap_or_default().settings())
            }
        }
    }

    /// The engine's form of what the host does about vCPUs that spin.
    ///
    /// # Errors
    /// A sentence, if the settings do not go together.
    pub fn pause_loop_settings(&self) -> Result<Option<PauseLoop>, String> {
        self.checked_pause_loop().map_err(|(_, message)| message)
    }

    /// The same, with the place of what is wrong.
    fn checked_pause_loop(&self) -> Result<Option<PauseLoop>, (Range<usize>, String)> {
        let host = self.host.clone().unwrap_or_default();
        if let Some((span, problem)) = self.foreign_yield(&host) {
            return Err((span, problem.into()));
        }
        self.pause_loop_table().map(|table| table.settings(host.pause_loop())).transpose()
    }

    /// Directed yields, if the host does not have them.
    fn foreign_yield(&self, host: &HostScheduler) -> Option<(Range<usize>, &'static str)> {
        let yields = self.pause_loop_table()?.directed_yield.as_ref()?;
        let problem = match host {
            HostScheduler::XenCredit(_) => {
                "`directed_yield` has no effect under the host `xen-credit`; remove it"
            }
            HostScheduler::XenCredit2(_) => {
                "`directed_yield` has no effect under the host `xen-credit2`; remove it"
            }
            HostScheduler::Linux(_) | HostScheduler::Tandem(_) | HostScheduler::Object(_) => return None,
        };
        Some((yields.span(), problem))
    }

    /// The engine's form of how long the host polls for a vCPU that halts, ns; `None`: as it does by default.
    ///
    /// # Errors
    /// A sentence, if the host never does.
    pub fn halt_poll_ns(&self) -> Result<Option<u64>, &'static str> {
        match self.foreign_halt_poll() {
            Some((_, problem)) => Err(problem),
            None => Ok(self.halt_poll_time().map(|(_, longest_ns)| longest_ns)),
        }
    }

    /// The time that is written, ns, and where.
    fn halt_poll_time(&self) -> Option<(Range<usize>, u64)> {
        let written = self.halt_poll.as_ref()?;
        match **written {
            HaltPollForm::Named(HaltPollName::Default) => None,
            HaltPollForm::Longest(time) => Some((written.span(), time.ns)),
        }
    }

    /// A time of halt polling, if the host has none.
    fn foreign_halt_poll(&self) -> Option<(Range<usize>, &'static str)> {
        let (span, _) = self.halt_poll_time().filter(|&(_, longest_ns)| longest_ns > 0)?;
        Some((span, self.host.clone().unwrap_or_default().without_halt_poll()?))
    }

    fn pause_loop_table(&self) -> Option<&PauseLoopTable> {
        self.pause_loop.as_ref().and_then(Switch::on)
    }
}

/// What a policy says of each group, with what it leaves out taken from `base`.
fn groups_over(
    top: BTreeMap<String, GroupPolicyTable>,
    mut base: BTreeMap<String, GroupPolicyTable>,
) -> BTreeMap<String, GroupPolicyTable> {
    for (name, group) in top {
        let below = base.remove(&name).unwrap_or_default();
        base.insert(name, group.over(below));
    }
    base
}
