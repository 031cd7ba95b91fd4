//! Settings of Linux's fair scheduler.

use std::ops::RangeInclusive;

/// Releases whose scheduler is modelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LinuxEra {
    /// CFS of 2012: load as weights, without tracking of single tasks.
    V3_6,
    /// CFS of 2015: load tracked for each task.
    V4_2,
    /// CFS of 2019: a CPU remembers the use of tasks that sleep, and the search for idle CPUs has a limit.
    V5_2,
    /// EEVDF of 2024, as its stable releases have it since early 2026 (read: 6.12.107).
    V6_12,
    /// EEVDF of 2025, as its stable releases have it (from 6.18.5 on).
    V6_18,
    /// EEVDF of 2026.
    V7_3,
}

/// When a CPU that has to reschedule does so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preemption {
    /// At once if its task is in user mode or in a guest, as all work here is.
    Voluntary,
    /// At once. Here that is the same.
    Full,
    /// For the end of a slice and for a wake-up, when it next returns from its kernel to its task, for which
    /// no interrupt is sent; else at once. From 6.13 on.
    Lazy,
}

impl Preemption {
    /// That of a kernel as distributions ship it. Assumed for 6.18: as Debian's 6.12.
    fn usual(era: LinuxEra) -> Self {
        if era < LinuxEra::V7_3 { Self::Voluntary } else { Self::Lazy }
    }

    /// Why a kernel of that era cannot have it, in one sentence.
    pub fn problem(self, era: LinuxEra) -> Option<&'static str> {
        match self {
            Self::Lazy if era <= LinuxEra::V6_12 => Some("`preemption = \"lazy\"` begins with version 6.18"),
            Self::Voluntary if era >= LinuxEra::V7_3 => {
                Some("version 7.3 has no `preemption = \"voluntary\"`; allowed are \"full\" and \"lazy\"")
            }
            _ => None,
        }
    }
}

impl LinuxEra {
    /// The newest of them.
    pub const LATEST: Self = Self::V7_3;
}

/// Source of the scheduling domains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Domains {
    /// The topology that the kernel sees: a level for threads, caches, packages and nodes.
    Topology,
    /// One level 'VCPU' over all CPUs, without flags: the flat domain.
    Flat,
}

/// How a kernel's spin lock queues its waiters. Both kinds serve them in the order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpinLockKind {
    /// All waiters watch one cache line for their number, and each release invalidates it for all of them.
    Ticket,
    /// Each waiter watches a line of its own, which its predecessor writes.
    Queued,
}

/// How the scheduler treats soft affinities: the CPUs that a task prefers among those that it may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SoftAffinity {
    /// It ignores them, as every released Linux does.
    #[default]
    Ignored,
    /// As in the patches "Scheduler Soft Affinity" of June 2019, for a kernel of era 5.2: a task is placed
    /// only among the CPUs that it prefers until `preferred` x the use of the first of these exceeds
    /// `allowed` x that of the first of the others. Both are in [`SoftAffinity::TUNABLES`]; the patches start
    /// with 100 and 1.
    Tunables {
        /// `sched_allowed`.
        allowed: u32,
        /// `sched_preferred`.
        preferred: u32,
    },
    /// A variant of this project's own, from 5.2 on: a task that wakes up takes an idle CPU, one that it
    /// prefers if there is one, and waits only where it prefers to be.
    WorkConserving,
}

impl SoftAffinity {
    /// Allowed values of either tunable. Assumed: the patches have no bounds.
    pub const TUNABLES: RangeInclusive<u32> = 1..=1_000_000;

    /// Initial `sched_allowed` of the patches.
    pub const POSTED_ALLOWED: u32 = 100;
    /// Initial `sched_preferred` of the patches.
    pub const POSTED_PREFERRED: u32 = 1;
    /// With the initial tunables of the patches.
    pub const POSTED: Self =
        Self::Tunables { allowed: Self::POSTED_ALLOWED, preferred: Self::POSTED_PREFERRED };

    /// Why it is not possible in a kernel of that era, in one sentence.
    pub fn problem(self, era: LinuxEra) -> Option<&'static str> {
        match self {
            Self::Tunables { allowed, preferred }
                if !Self::TUNABLES.contains(&allowed) || !Self::TUNABLES.contains(&preferred) =>
            {
                Some("the tunables of soft affinity are out of range; 1 to 1000000 are allowed")
            }
            Self::Tunables { .. } if era != LinuxEra::V5_2 => {
                Some("soft affinity with tunables is for version 5.2 only")
            }
            Self::WorkConserving if era < LinuxEra::V5_2 => {
                Some("work-conserving soft affinity begins with version 5.2")
            }
            _ => None,
        }
    }
}

/// Settings of Linux's fair scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinuxSettings {
    /// Release whose behaviour to follow.
    pub era: LinuxEra,
    /// Source of the scheduling domains.
    pub domains: Domains,
    /// Ticks a second (`CONFIG_HZ`): 100, 250, 300 or 1000.
    pub tick_hz: u32,
    /// Whether a vCPU's stolen time is subtracted from the time that its tasks are charged for, as with
    /// `CONFIG_PARAVIRT_TIME_ACCOUNTING` and a hypervisor that reports it. Makes no difference on real CPUs.
    pub steal_clock: bool,
    /// When a CPU that has to reschedule does so; `None`: lazily in 7.3, at once before.
    pub preemption: Option<Preemption>,
    /// Spin locks of the kernel; `None`: those of the era, queued from 4.2 on and ticket locks before.
    pub spin_locks: Option<SpinLockKind>,
    /// Whether a guest's waiters for a spin lock halt, where the host can wake them
    /// (`CONFIG_PARAVIRT_SPINLOCKS`, without `nopvspin`); from 4.2 on. Makes no difference on real CPUs.
    pub paravirt_locks: bool,
    /// Treatment of the soft affinities of tasks.
    pub soft_affinity: SoftAffinity,
    /// Whether a host's kernel moves tasks and their memory towards each other (`kernel.numa_balancing`);
    /// from 4.2 on. A stock kernel does if it has several nodes. A guest's kernel never does here.
    pub numa_balancing: bool,
    /// Whether tasks are in groups: on a host, those of each VM, and the cgroups of the scenario; in a guest,
    /// all in one (`sched_autogroup_enabled`). `None`: if the scenario has cgroups.
    pub groups: Option<bool>,
    /// EEVDF: length of a slice (`base_slice_ns`); `None`: as the kernel sets it by the number of CPUs.
    pub base_slice_ns: Option<u64>,
    /// For how long a CPU that balances looks at another queue, beside what the cache lines of that take to
    /// travel, ns. For CPUs whose instructions are slow; otherwise left out.
    pub queue_scan_ns: u64,
}

impl LinuxSettings {
    /// Ticks a second that Linux can be configured with on x86.
    pub const TICKS_HZ: [u32; 4] = [100, 250, 300, 1000];

    /// Kind of the kernel's spin locks.
    pub fn spin_lock_kind(&self) -> SpinLockKind {
        self.spin_locks.unwrap_or(match self.era {
            LinuxEra::V3_6 => SpinLockKind::Ticket,
            _ => SpinLockKind::Queued,
        })
    }

    /// When a CPU that has to reschedule does so.
    pub fn preemption(&self) -> Preemption {
        self.preemption.unwrap_or(Preemption::usual(self.era))
    }

    /// Length of a tick, ns.
    pub(super) fn tick_period_ns(&self) -> u64 {
        1_000_000_000 / u64::from(self.tick_hz.max(1))
    }
}

impl Default for LinuxSettings {
    /// 6.12 as Debian builds it: 250 Hz, no steal clock (`CONFIG_PARAVIRT_TIME_ACCOUNTING` is off).
    fn default() -> Self {
        Self {
            era: LinuxEra::V6_12,
            domains: Domains::Topology,
            tick_hz: 250,
            steal_clock: false,
            preemption: None,
            spin_locks: None,
            paravirt_locks: true,
            soft_affinity: SoftAffinity::Ignored,
            numa_balancing: false,
            groups: None,
            base_slice_ns: None,
            queue_scan_ns: 0,
        }
    }
}

/// The kernel's tunables (`/sys/kernel/debug/sched`), with their initial values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tunables {
    /// CFS: time in which every task of a CPU should run once (`sched_latency`), ns.
    pub latency_ns: u64,
    /// CFS: shortest slice (`sched_min_granularity`), ns.
    pub min_granularity_ns: u64,
    /// CFS: how far behind the running task one that wakes up must be to preempt it
    /// (`sched_wakeup_granularity`), ns.
    pub wakeup_granularity_ns: u64,
    /// EEVDF: length of a slice (`sched_base_slice`), ns.
    pub base_slice_ns: u64,
    /// A task that ran less than this ago is cache-hot (`sched_migration_cost`), ns.
    pub migration_cost_ns: u64,
    /// Most tasks that one balancing looks at (`sched_nr_migrate`).
    pub nr_migrate: u32,
}

impl Tunables {
    /// Tunables of a kernel with this many CPUs (`kernel/sched/fair.c`): times are multiplied by 1 +
    /// log2(CPUs), at most by 4.
    pub fn new(cpus: usize) -> Self {
        let factor = u64::from(1 + cpus.clamp(1, 8).ilog2());
        Self {
            latency_ns: 6_000_000 * factor,
            min_granularity_ns: 750_000 * factor,
            wakeup_granularity_ns: 1_000_000 * factor,
            base_slice_ns: 700_000 * factor,
            migration_cost_ns: 500_000,
            nr_migrate: 32,
        }
    }

    /// CFS: with more tasks than this on a CPU, the latency cannot hold (`sched_nr_latency`).
    pub fn nr_latency(&self) -> u64 {
        self.latency_ns / self.min_granularity_ns
    }
}
