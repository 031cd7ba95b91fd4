//! A scenario: a machine, a host policy, VMs with their programs, and how long to run.

mod cgroups;
mod check;
mod events;
mod guest;
mod kernel_threads;
mod memory;
mod task_policy;
mod workload;

pub use cgroups::{BandwidthLimit, Cgroup, CgroupName};
pub use check::ScenarioError;
pub use events::{HostAction, HostEvent};
pub use guest::{Guest, GuestProgram, Process};
pub use memory::{MemoryPolicy, Pages};
pub use task_policy::TaskPolicy;
pub use workload::{
    Affinity, AffinityChange, Arrivals, HomeChoice, HostTask, Source, Vcpus, Vm, Which, Workload,
    WorkloadKind,
};

use crate::cost::CostModels;
use crate::policy::credit::CreditSettings;
use crate::policy::credit2::Credit2Settings;
use crate::policy::linux::LinuxSettings;
use crate::policy::pause_loop::PauseLoop;
use crate::policy::sched_ext::SchedExtSettings;
use std::sync::Arc;
use tandem_machine::Machine;
use tandem_machine::homes::HomeSettings;

/// Longest time that a scenario may contain, and longest warm-up and length together, ns: a day, far from any
/// overflow of sums of times.
pub const TIME_MAX_NS: u64 = 86_400_000_000_000;

/// Most processes that run in the host and the guests of a scenario from the start.
pub const PROCESSES_MAX: u64 = 100_000;

/// Everything that a run needs, but the seed.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The host's hardware.
    pub machine: Arc<Machine>,
    /// What things cost on it.
    pub costs: CostModels,
    /// The host's policy and its settings.
    pub policy: PolicySettings,
    /// What it does about vCPUs that spin; `None`: nothing, they are not noticed.
    pub pause_loop: Option<PauseLoop>,
    /// How long a host under KVM polls at most before it lets a vCPU of a guest kernel sleep, ns
    /// (`halt_poll_ns`); 0: not at all; `None`: as its release does by default.
    pub halt_poll_ns: Option<u64>,
    /// Cgroups of the host, parents before their children. Those of VMs, which they make themselves, are not
    /// among them.
    pub cgroups: Vec<Cgroup>,
    /// Virtual machines and processes of the host.
    pub workloads: Vec<Workload>,
    /// How many gates its programs use.
    pub gates: usize,
    /// What happens to the host while it runs, in the order of time.
    pub events: Vec<HostEvent>,
    /// How VMs without a [home of their own](HomeChoice::Own) get one.
    pub homes: Homes,
    /// Time before measuring starts, ns.
    pub warmup_ns: u64,
    /// Measured time, ns; the run ends after warm-up and this.
    pub length_ns: u64,
    /// End earlier, once every VM's first counter has reached this since the warm-up.
    pub stop_at_count: Option<u64>,
}

impl Scenario {
    /// Its workloads, threads of the host's kernel left out.
    pub fn measured(&self) -> impl Iterator<Item = &Workload> {
        self.workloads.iter().filter(|workload| !workload.is_kernel())
    }

    /// Takes out the threads of the host's kernel.
    pub fn remove_kernel_threads(&mut self) {
        self.workloads.retain(|workload| !workload.is_kernel());
    }

    /// The names of their groups.
    pub fn groups(&self) -> Vec<&str> {
        let mut groups: Vec<_> = self.measured().map(|workload| workload.group.as_str()).collect();
        groups.dedup();
        groups
    }
}

/// The policy of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub enum PolicySettings {
    /// Xen's credit scheduler; for hosts.
    Credit(CreditSettings),
    /// Xen's credit2 scheduler; for hosts.
    Credit2(Credit2Settings),
    /// Linux's fair scheduler; for hosts and guests.
    Linux(LinuxSettings),
    /// A compiled scheduler for Linux's sched_ext; for hosts and guests.
    SchedExt(Arc<SchedExtSettings>),
}

/// Who chooses where VMs live, and what that means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Homes {
    /// Nobody: they run where their affinities say.
    #[default]
    Given,
    /// [Placement](tandem_machine::placement), once, when they start: they run on these nodes and nowhere
    /// else. Where there is no room they run everywhere, as they do where there is nothing to choose.
    Pin,
    /// The same, but they prefer to run there.
    Prefer,
    /// An agent, when they start and while they run ([`tandem_machine::homes`]): they prefer to run there.
    Agent(HomeSettings),
}
