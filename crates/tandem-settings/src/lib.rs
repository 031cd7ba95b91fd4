//! The interface between user space and the scheduler, in the bytes of its object.
//!
//! Problem: the service on a host and the simulator run the very same object, and must configure it in the
//! same way.
//!
//! Approach: [`Settings`] are what an operator may set in a TOML file, with the defaults and the reasons for
//! them. [`Places`] are the topology of a [`Machine`](tandem_machine::Machine). [`rodata`] writes both into
//! the object's read-only data. A [`Preference`] is a request to the loaded scheduler, and [`Counters`] are
//! what it has counted. The scheduler's side is `bpf/settings.h`, `bpf/requests.h` and `bpf/counters.h`.
//!
//! Limits: nothing here loads the object or talks to a kernel.

mod agent;
mod counters;
mod file;
mod metrics;
mod object;
mod partial;
mod places;
mod preference;
mod write;

pub use agent::{Agent, CoreUse, ManagerName, VmRule};
pub use counters::{Counter, Counters, OtherCounters};
pub use file::settings_schema;
use file::within;
pub use metrics::{Listen, Metrics};
pub use object::{OBJECT, request_bytes, rodata, write};
pub use partial::Partial;
pub use places::{Places, PlacesError};
pub use preference::{Asker, Held, Place, Preference, Subject, TooLarge, request_about};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tandem_file::units::Duration;

const fn us(us: u64) -> Duration {
    Duration { ns: us * 1_000 }
}

const fn ms(ms: u64) -> Duration {
    us(ms * 1_000)
}

/// All settings of an operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Where the scheduler runs
    pub mode: Mode,
    /// The kernel ejects the scheduler if a task that could run has waited for this long: 1 s to 30 s
    pub watchdog: Duration,
    /// Risks in spite of which the scheduler loads
    pub ignore: Ignore,
    /// Which tasks the scheduler has: all of them, unless cgroups are named here. The kernel's own scheduler
    /// has the rest
    pub partial: Partial,
    /// Which task runs next, and for how long
    pub fairness: Fairness,
    /// Tasks that prefer some CPUs and may use the others
    pub soft_affinity: SoftAffinity,
    /// Tasks that prefer the CPUs of some NUMA nodes
    pub numa_homes: NumaHomes,
    /// Fewer preemptions where there are too many
    pub rate_control: RateControl,
    /// Yields that name the task which should run instead
    pub directed_yield: DirectedYield,
    /// Guest mode only
    pub guest: Guest,
    /// Home nodes for the VMs of the host; host mode only
    pub agent: Agent,
    /// Which users may set preferences of tasks
    pub steering: Steering,
    /// Metrics for Prometheus, over HTTP
    pub metrics: Metrics,
    /// Exceptions for single VMs: each has one of home, isolated and exempt, or cores, or both
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub vm: Vec<VmRule>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            mode: Mode::Host,
            // The kernel checks at half of this interval: a task that the scheduler has lost waits 10 to 15
            // s, against 30 to 45 s with the kernel's own 30 s. No task waits that long by intent, and the
            // schedulers of sched-ext/scx have 5 to 30 s. A shorter time would be wrong in a guest, whose
            // vCPUs wait for the host besides: an ejection cures nothing there.
            watchdog: ms(10_000),
            ignore: Ignore::default(),
            partial: Partial::default(),
            fairness: Fairness::default(),
            soft_affinity: SoftAffinity::default(),
            numa_homes: NumaHomes::default(),
            rate_control: RateControl::default(),
            directed_yield: DirectedYield::default(),
            guest: Guest::default(),
            agent: Agent::default(),
            steering: Steering::default(),
            metrics: Metrics::default(),
            vm: Vec::new(),
        }
    }
}

impl Settings {
    /// Whether the agent gives VMs homes.
    pub fn gives_homes(&self) -> bool {
        self.mode == Mode::Host && self.numa_homes.enabled && self.agent.enabled
    }

    /// These settings, with the defaults for all that the loaded scheduler does not read.
    pub fn scheduler_only(&self) -> Self {
        Self {
            ignore: Ignore::default(),
            agent: Agent::default(),
            steering: Steering::default(),
            metrics: Metrics::default(),
            vm: Vec::new(),
            ..self.clone()
        }
    }

    /// The mechanisms that can be switched on and off, by name, and whether they are on. Guest mode has no
    /// nodes.
    pub fn mechanisms(&self) -> [(&'static str, bool); 5] {
        [
            ("cgroup weights", self.fairness.cgroup_weights),
            ("soft affinity", self.soft_affinity.enabled),
            ("NUMA homes", self.numa_homes.enabled && self.mode == Mode::Host),
            ("rate control", self.rate_control.enabled),
            ("directed yield", self.directed_yield.enabled),
        ]
    }
}

/// Where the scheduler runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// On a machine whose topology is as the kernel reports it: queues for each last-level cache, NUMA nodes
    /// as homes
    Host,
    /// In a virtual machine: one domain over all vCPUs, whatever topology the hypervisor reports
    Guest,
}

impl Mode {
    /// The mode, as the settings file spells it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Guest => "guest",
        }
    }
}

/// Risks in spite of which the scheduler loads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Ignore {
    /// CPU limits of cgroups (cpu.max) that would not be enforced
    pub limits: bool,
    /// VMs that use core scheduling, on a kernel that hangs with it
    pub cookies: bool,
    /// Tasks of a part that would starve beside those of the kernel's scheduler, which run first
    pub starvation: bool,
}

/// Which users may set preferences of tasks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Steering {
    /// Whether users other than root may set preferences of their own tasks and cgroups
    pub users: bool,
    /// Whether users may do so for threads of VMs that a manager such as libvirt started: these often share
    /// one user although they belong to several
    pub managed: bool,
}

impl Default for Steering {
    fn default() -> Self {
        Self { users: true, managed: false }
    }
}

/// Which task runs next, and for how long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Fairness {
    /// Longest time that a task runs while others wait: 100 us to 1 s
    pub slice: Duration,
    /// Shortest time that a task runs while others wait; slices approach it as more tasks wait: 50 us to the
    /// slice
    pub slice_min: Duration,
    /// Most CPU time that a task may be owed when it wakes: 0 s to 1 s
    pub sleeper_credit: Duration,
    /// A task that wakes preempts a running one that has had this much more CPU time, the sleeper credit of
    /// the waking task aside, and has run for at least this long: 0 s to 1 s
    pub preempt_margin: Duration,
    /// A task that has run for less than this and wakes another, to wait for it, hands over its CPU: 0 s,
    /// never, to 1 s
    pub sync_run_max: Duration,
    /// CPU time that a task must be owed before it moves from the CPU where its slice ended to another one of
    /// its last-level cache; twice that to another cache: 0 s to 1 s
    pub migration_margin: Duration,
    /// How often a CPU checks whether another last-level cache is less loaded: 1 ms to 10 s
    pub balance_interval: Duration,
    /// Whether the scheduler first divides CPU time between cgroups by their cpu.weight
    pub cgroup_weights: bool,
}

impl Default for Fairness {
    fn default() -> Self {
        Self {
            // The default slice of sched_ext (SCX_SLICE_DFL). Tasks that wake do not wait for its end: they
            // preempt.
            slice: ms(20),
            // A context switch costs a few microseconds with its cold caches: about 1% of this.
            slice_min: us(500),
            // About half the base slice of Linux's EEVDF on 8 CPUs and more: a sleeper runs before tasks that
            // ran, but does not delay them for long.
            sleeper_credit: us(1_500),
            // The base slice of Linux's EEVDF on 8 CPUs and more, for which it lets a task go on (3 ms before
            // 6.15).
            preempt_margin: us(2_800),
            // Longer than a round of a pipe ping-pong, shorter than any request of real work.
            sync_run_max: us(50),
            // Shorter than a slice: a CPU with one task takes one that shares another CPU after a slice or
            // two. Of 3, 6, 12 and 24 ms, tried in the simulator with 10 VMs of specjbb2005, this is the
            // shortest that saves nearly all of the cost of moves.
            migration_margin: ms(12),
            // A tick of a kernel with 250 Hz.
            balance_interval: ms(4),
            cgroup_weights: true,
        }
    }
}

/// Tasks that prefer some CPUs and may use the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SoftAffinity {
    /// Whether preferences for CPUs have an effect
    pub enabled: bool,
    /// Weight of the utilisation of the other CPUs: 0 to 10000
    pub allowed: u32,
    /// Weight of the utilisation of the preferred CPUs: 0 to 10000. If preferred x their utilisation >
    /// allowed x that of the others, a task that finds no idle CPU waits on any CPU, not only on its
    /// preferred ones
    pub preferred: u32,
}

impl Default for SoftAffinity {
    fn default() -> Self {
        // The defaults of the patches that brought soft affinity to Linux's list (2019): stay, as a rule.
        Self { enabled: true, allowed: 100, preferred: 1 }
    }
}

/// Tasks that prefer the CPUs of some NUMA nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NumaHomes {
    /// Whether preferences for nodes have an effect
    pub enabled: bool,
    /// Least time that a task stays away from its home after it had to leave: 0 s to 10 s
    pub away_min: Duration,
}

impl Default for NumaHomes {
    fn default() -> Self {
        // Some slices: by then the caches no longer hold what the task left there.
        Self { enabled: true, away_min: ms(10) }
    }
}

/// Fewer preemptions where there are too many.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RateControl {
    /// Whether these limits on preemption apply: those of windows, and ratelimit
    pub enabled: bool,
    /// Length of a window: 1 ms to 1 s
    pub window: Duration,
    /// Number of decisions of a CPU in a window at which the next window is limited: 1 to 100000
    pub threshold: u32,
    /// Least time that a task runs before a waking task may preempt it, in any window: 0 s, off, to 500 ms
    pub ratelimit: Duration,
    /// Whether tasks with a negative nice value, or marked as latency-critical, preempt regardless of the
    /// limit
    pub latency_exempt: bool,
}

impl Default for RateControl {
    fn default() -> Self {
        Self {
            enabled: true,
            // Window and threshold of the rate controller that was posted for Xen's credit scheduler (2011).
            window: ms(10),
            threshold: 50,
            // Xen's `sched_ratelimit_us`.
            ratelimit: ms(1),
            latency_exempt: true,
        }
    }
}

/// Yields that name the task which should run instead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DirectedYield {
    /// Whether a spinning vCPU hands its CPU to the vCPU that KVM names
    pub enabled: bool,
}

impl Default for DirectedYield {
    fn default() -> Self {
        Self { enabled: true }
    }
}

/// Guest mode only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Guest {
    /// An idle vCPU that lost time to the host less than this ago counts as not running: 0 s to 10 s
    pub steal_memory: Duration,
}

impl Default for Guest {
    fn default() -> Self {
        // Some slices of the host: the task that took the physical CPU probably still runs there.
        Self { steal_memory: ms(10) }
    }
}
