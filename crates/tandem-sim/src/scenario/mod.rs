//! A scenario: a machine, a host policy, VMs with their programs, and how long to run.

mod cgroups;
mod check;
mod events;

pub use cgroups::{BandwidthLimit, Cgroup, CgroupName};
pub use check::ScenarioError;
pub use events::{HostAction, HostEvent};

use crate::cost::{ContextSwitch, CostModels, Interrupt};
use crate::policy::credit::CreditSettings;
use crate::policy::linux::LinuxSettings;
use crate::policy::pause_loop::PauseLoop;
use crate::policy::sched_ext::SchedExtSettings;
use crate::program::{Amount, Program};
use std::ops::RangeInclusive;
use std::sync::Arc;
use tandem_machine::Machine;
use tandem_machine::cpumask::CpuMask;
use tandem_machine::homes::HomeSettings;

/// Longest time that a scenario may contain, and longest warm-up and length together, ns: a day, far from any overflow
/// of sums of times.
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
    /// Cgroups of the host, parents before their children. Those of VMs, which they make themselves, are not among them.
    pub cgroups: Vec<Cgroup>,
    /// The virtual machines.
    pub vms: Vec<Vm>,
    /// What happens to the host while it runs, in the order of time.
    pub events: Vec<HostEvent>,
    /// Who chooses the homes of VMs that are [placed](Vm::is_placed).
    pub homes: Homes,
    /// Time before measuring starts, ns.
    pub warmup_ns: u64,
    /// Measured time, ns; the run ends after warm-up and this.
    pub length_ns: u64,
    /// End earlier, once every VM's first counter has reached this since the warm-up.
    pub stop_at_count: Option<u64>,
}

/// The policy of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub enum PolicySettings {
    /// Xen's credit scheduler; for hosts.
    Credit(CreditSettings),
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
    /// [Placement](tandem_machine::placement), once, when they start: they run on these nodes and nowhere else. Where there is no
    /// room they run everywhere, as they do where there is nothing to choose.
    Pin,
    /// The same, but they prefer to run there.
    Prefer,
    /// An agent, when they start and while they run ([`tandem_machine::homes`]): they prefer to run there.
    Agent(HomeSettings),
}

/// What the tasks of a [`Vm`] are to the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VmKind {
    /// vCPUs: they leave the VM for the host and enter it again, which takes time.
    #[default]
    Machine,
    /// Processes of the host's own, which are in the host anyway, each with an address space of its own. There may be
    /// more of them than pCPUs, but there is no guest kernel, and they do not start others.
    Processes,
    /// The same with one address space for all of them: threads of one process.
    Threads,
}

/// A virtual machine, or processes of the host that belong together.
#[derive(Clone, Debug)]
pub struct Vm {
    /// What its tasks are.
    pub kind: VmKind,
    /// Unique name.
    pub name: String,
    /// What kind of VM it is; results are summed up by group.
    pub group: String,
    /// The cgroup below which a VM makes its own, or which processes join, by position in [`Scenario::cgroups`]; `None`: the
    /// root.
    pub cgroup: Option<usize>,
    /// Its virtual CPUs, or its processes.
    pub vcpus: Vec<Vcpu>,
    /// How much memory it has, bytes.
    pub memory_bytes: u64,
    /// Share of its memory on each node of the machine; sums to 1.
    pub memory_shares: Vec<f64>,
    /// Its memory lies where its tasks first touch it: once all of them have started, the shares become those of the nodes
    /// that they are on then.
    pub first_touch: bool,
    /// A home is chosen for it when it starts, as [`Scenario::homes`] says. Its affinities hold until then, its hard ones
    /// also beyond that.
    pub is_placed: bool,
    /// Its memory lies evenly on the nodes of that home; if it gets none, its shares hold.
    pub memory_at_home: bool,
    /// When it starts, ns since the start of the run; `None`: it is there from the start.
    pub start: Option<Amount>,
    /// How long it is there, ns; `None`: to the end of the run. Then it is killed, and its memory is free.
    pub life: Option<Amount>,
    /// Weight against other VMs.
    pub weight: u32,
    /// Most CPU time it may use, in percent of one pCPU; 0 for no cap.
    pub cap_pct: u32,
    /// How many channels its programs and sources use.
    pub channels: usize,
    /// Names of its counters.
    pub counters: Vec<String>,
    /// What interrupts it.
    pub sources: Vec<Source>,
    /// What an administrator changes while it runs, in the order of time.
    pub affinity_changes: Vec<AffinityChange>,
    /// Its vCPUs have run for long before, and the host has moved them about: they start on pCPUs drawn at random, each
    /// on another one as far as its affinity and the number of pCPUs allow.
    pub has_past: bool,
    /// How many spin locks its programs use.
    pub locks: usize,
    /// Its kernel, with what runs on it; `None` if each vCPU runs its own program and nothing else.
    pub guest: Option<Guest>,
}

/// A guest kernel, which schedules tasks on the vCPUs of its VM.
#[derive(Clone, Debug)]
pub struct Guest {
    /// Its policy and settings.
    pub policy: PolicySettings,
    /// What the guest believes its CPUs are: as many as the VM has vCPUs. The truth is where the host puts them.
    pub topology: Arc<Machine>,
    /// What its scheduling decisions and switches cost; `None`: nothing. Exits to the host come on top.
    pub context_switch: Option<ContextSwitch>,
    /// What interrupts cost it, ticks too; `None`: nothing. Exits to the host come on top.
    pub interrupt: Option<Interrupt>,
    /// The programs that its tasks run.
    pub programs: Vec<GuestProgram>,
    /// What runs from the start.
    pub processes: Vec<Process>,
    /// Channels that each process of the start has for itself and its descendants. Their numbers follow those of the
    /// VM's channels, which all share.
    pub family_channels: usize,
}

/// A program of a guest.
#[derive(Clone, Debug)]
pub struct GuestProgram {
    /// The name by which its tasks are known.
    pub name: String,
    /// What it does.
    pub program: Arc<Program>,
}

/// Processes that run from the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Index in [`Guest::programs`].
    pub program: usize,
    /// How many of them.
    pub copies: u32,
    /// Nice value, -20 (most urgent) to 19; their descendants inherit it.
    pub nice: i8,
    /// vCPUs on which they may run; all if `None`. Their descendants inherit it.
    pub affinity: Option<Arc<CpuMask>>,
}

impl Process {
    /// Nice values that Linux allows.
    pub const NICE: RangeInclusive<i8> = -20..=19;
}

impl Vm {
    /// Weight of a VM unless an administrator changes it: Xen's default.
    pub const DEFAULT_WEIGHT: u32 = 256;
    /// Weights that Xen allows.
    pub const WEIGHTS: RangeInclusive<u32> = 1..=65_535;

    /// Memory of a VM unless something else is said: 1 GiB, an assumption. Only NUMA balancing asks how much it is.
    pub const DEFAULT_MEMORY_BYTES: u64 = 1 << 30;

    /// A VM that is a group of its own, of usual weight, without a cap, and that nothing interrupts.
    pub fn new(name: impl Into<String>, vcpus: Vec<Vcpu>, memory_shares: Vec<f64>) -> Self {
        let name = name.into();
        Self {
            kind: VmKind::Machine,
            group: name.clone(),
            cgroup: None,
            name,
            vcpus,
            memory_bytes: Self::DEFAULT_MEMORY_BYTES,
            memory_shares,
            first_touch: false,
            is_placed: false,
            memory_at_home: false,
            start: None,
            life: None,
            weight: Self::DEFAULT_WEIGHT,
            cap_pct: 0,
            channels: 0,
            counters: Vec::new(),
            sources: Vec::new(),
            affinity_changes: Vec::new(),
            has_past: false,
            locks: 0,
            guest: None,
        }
    }
}

/// A change of the affinity of all vCPUs of a VM while it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AffinityChange {
    /// When, ns since the start of the run.
    pub at_ns: u64,
    /// Where they may run from then on.
    pub hard_affinity: Arc<CpuMask>,
    /// Where they prefer to run from then on; must lie within the hard affinity.
    pub soft_affinity: Option<Arc<CpuMask>>,
}

/// A virtual CPU and what it does.
#[derive(Clone, Debug)]
pub struct Vcpu {
    /// What it runs; empty in a VM with a guest kernel.
    pub program: Arc<Program>,
    /// Where it may run.
    pub hard_affinity: Arc<CpuMask>,
    /// Where it prefers to run; must lie within the hard affinity.
    pub soft_affinity: Option<Arc<CpuMask>>,
    /// Nice value, -20 (most urgent) to 19: a factor on the weight of its VM or set of processes.
    pub nice: i8,
}

/// A source of interrupts that put tokens into a channel of its VM.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// The channel that gets a token with each interrupt.
    pub channel: usize,
    /// When they come.
    pub arrivals: Arrivals,
}

/// How interrupts of a source arrive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrivals {
    /// Independently of what the VM does, with this time between two.
    Open {
        /// Time between two arrivals.
        interval: Amount,
    },
    /// From clients that each send a request, await its answer, and think.
    Closed {
        /// Number of clients.
        clients: u32,
        /// From an answer to the next request.
        think: Amount,
    },
}
