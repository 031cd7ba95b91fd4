//! Differences between releases: the kernel's features, chosen by version here and nowhere else.
//!
//! Each release lists the changes since the previous one. Names are those of the kernel where it has one
//! (`kernel/sched/features.h`, or the function or field that does it); a release in a comment is the one that
//! brought the change, if that is not the era itself.

use super::LinuxEra;
use super::queues::StolenMemory;

/// The discipline of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DisciplineKind {
    Cfs,
    Eevdf(EevdfFeatures),
}

/// Features of EEVDF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EevdfFeatures {
    /// A task that was picked twice in a row loses its protection for good: each charge asks for another pick
    /// (6.17, `update_curr()`). Before, only once it is no longer eligible (`did_preempt_short()`).
    pub unprotected_resched: bool,
    /// The longest lag is a slice and a tick (6.19, `entity_lag()`); before, two slices or, if that is
    /// longer, a tick.
    pub lag_of_slice_and_tick: bool,
    /// The check of a wake-up prefers the next buddy as a pick does (6.19, `__pick_eevdf()`).
    pub buddy_at_wakeup: bool,
    /// What a task owes when its dequeue is delayed cannot grow until it leaves or wakes up (7.1,
    /// `update_entity_lag()`).
    pub delayed_debt_is_fixed: bool,
    /// A task in its slice stays protected if its weight changes (7.1, `rescale_entity()`).
    pub reweigh_keeps_protection: bool,
}

/// The load measure of tasks and CPUs; `queues/load.rs` describes each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LoadTracking {
    /// `load.weight`.
    Weight,
    /// `load_avg_contrib`: averages of tasks, and their sum over those that run or wait.
    Contributions,
    /// `runnable_load_avg` beside the averages of a CPU.
    RunnableLoad,
    /// `load_avg`: the averages of a CPU alone.
    LoadAvg,
}

impl LoadTracking {
    /// Whether a CPU remembers the use by tasks that have blocked.
    pub fn keeps_blocked_load(self) -> bool {
        matches!(self, Self::RunnableLoad | Self::LoadAvg)
    }
}

/// The estimate of what a task will use when it wakes up (`UTIL_EST`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UseEstimates {
    None,
    /// Its use when it last went to sleep, or an average of those uses.
    LastAndAverage,
    /// The average, which a larger use replaces, and which does not fall because the task had to wait.
    RisesAtOnce,
}

/// The test for a waker of many tasks (`wake_wide()`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WakeWide {
    Absent,
    /// The waker has many times the flips of the one that wakes up.
    OfWaker,
    /// Either of the two has.
    OfEither,
}

/// The former CPU that a wake-up tries (`recent_used_cpu`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecentUsedCpu {
    Absent,
    /// The CPU where the task last woke another one, or else was before.
    Waker,
    /// The CPU where the task was before.
    Wakee,
}

/// Whether a CPU that runs idle tasks alone is as good as one that idles, for a task that wakes up, is new or
/// is at its `exec` (`sched_idle_cpu()`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SchedIdle {
    Never,
    /// For any task (5.4).
    Any,
    /// For tasks that are not idle themselves (7.1, `choose_sched_idle_rq()`).
    NotIdle,
}

/// The measure that finds the idlest group (`find_idlest_group()`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdlestGroup {
    Load,
    SpareCapacity,
    GroupType,
}

/// The search of a cache for an idle CPU (`select_idle_sibling()`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdleSibling {
    /// Groups that idle as a whole.
    Groups,
    /// As far as the usual idle time allows (`SIS_PROP`).
    SisProp,
    /// The fewer CPUs, the busier the cache (`SIS_UTIL`).
    SisUtil,
}

/// The locks that the CPU that balances for all idle ones takes to update another CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NohzRefresh {
    /// Nothing: it refreshes itself each time instead, by mistake.
    Itself,
    /// Its queue twice when it is due: for the clock and the history of its load, then for its groups' share
    /// of it.
    ClockAndGroups,
    /// Its queue for the remaining load, as long as there is any, and for the clock when it is due.
    BlockedLoad,
}

/// When the mark of a group that affinity keeps imbalanced stays, although nothing is found to move
/// (`sg_imbalanced()`, `out_balanced` in `load_balance()`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeepsGroupImbalance {
    Never,
    /// If the tasks of all other CPUs with several are pinned.
    AllPinned,
    /// If those of the queue that was tried last are.
    LastPinned,
}

/// Whether a newly idle CPU leaves a search of a domain to chance (`NI_RANDOM`, 6.19 and stable releases of
/// 6.12 and 6.18).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NewidleRandom {
    Never,
    /// It searches as often as searches have succeeded of late.
    BySuccess,
    /// The more often, too, the fewer searches there are in a time (`NI_RATE`, 7.1).
    BySuccessAndRate,
}

/// When a CPU with a single task kicks an idle one (`nohz_balancer_kick()`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NohzKick {
    /// If its group has several busy CPUs, at some level that shares a cache.
    Group,
    /// If its cache has, and there is a level above it.
    CacheOfSeveral,
    /// If its cache has (`nr_busy_cpus`).
    Cache,
}

/// Features of placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PlacementFeatures {
    pub wake_wide: WakeWide,
    /// An idle CPU decides between waker and old CPU, then the load that was tracked (`WA_IDLE`,
    /// `WA_WEIGHT`); before, the weights of the tasks are added to the loads.
    pub wa_idle: bool,
    /// An old CPU that idles keeps its task, at any distance (5.11, `available_idle_cpu(prev_cpu)`).
    pub wa_idle_prev: bool,
    /// A task that exits is no synchronous waker (`PF_EXITING` in `select_task_rq_fair()`).
    pub exiting_is_not_sync: bool,
    /// Two CPUs with no more than a usual task count as idle (`cpu_avg_load_per_task()`).
    pub wa_avg_load_per_task: bool,
    /// A task that could not be pulled has an idle CPU looked for near its old one, too.
    pub sis_near_prev: bool,
    /// The old CPU is tried if it shares the target's cache.
    pub sis_prev: bool,
    pub recent_used_cpu: RecentUsedCpu,
    pub idle_sibling: IdleSibling,
    pub idlest_group: IdlestGroup,
    /// The CPU that became idle last is the idlest (`idle_stamp`).
    pub idlest_by_idle_stamp: bool,
    pub sched_idle: SchedIdle,
}

/// Features of balancing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BalanceFeatures {
    /// The busiest group is found by kinds of groups, and what moves is counted in load, use or tasks
    /// (`group_type`, `migration_type`); before, by load.
    pub group_type: bool,
    /// By load: groups that are over their capacity come first, then those that affinity keeps imbalanced
    /// (`group_overloaded`, `group_imbalanced`); before, capacity is counted in whole cores, and a spread of
    /// loads makes a group imbalanced.
    pub group_overloaded: bool,
    /// By load: a group whose tasks use little of its time is not over its capacity (`group_util`, in 4.2
    /// `group_usage`).
    pub group_util: bool,
    /// By load: siblings are evened out only if that brings them closer (4.12, `prefer_sibling`).
    pub prefer_sibling_evens: bool,
    /// By load: CPUs that have idled for a while fill up like those that have just become idle (4.14).
    pub idle_fills_up: bool,
    /// By load: the excess over the capacity counts as load for 1024 of it (4.8).
    pub scaled_excess: bool,
    /// By load: averages of past loads count, too (`cpu_load[]`, `LB_BIAS`); off in 5.2.
    pub lb_bias: bool,
    /// A CPU that loses capacity hands over even its only task (4.2, `check_cpu_capacity()`).
    pub checks_cpu_capacity: bool,
    /// By load: a group without an imbalance is none to take from (`find_busiest_group()`); before, its
    /// queues are locked in vain, as if their tasks were pinned.
    pub no_group_without_imbalance: bool,
    pub keeps_group_imbalance: KeepsGroupImbalance,
    /// Asking for a running task neither counts as progress nor makes the balancing of the domain less
    /// frequent (`need_active_balance()`).
    pub active_balance_keeps_on: bool,
    /// A running task that has moved ends the count of failures (`active_load_balance_cpu_stop()`; not in
    /// 4.2).
    pub push_resets_failed: bool,
    /// The longest-waiting task moves first, not the newest (4.14, `cfs_tasks` in LRU order).
    pub lru_tasks: bool,
    /// Both queues are locked at a time (`double_rq_lock()`); before 3.18.
    pub double_rq_lock: bool,
    /// A CPU that idles does not take the last task (`detach_tasks()`: `nr_running <= 1`; not in 4.2).
    pub leaves_last_task: bool,
    /// A CPU that has just run out of work takes one task (`CONFIG_PREEMPTION`). All releases have the rule,
    /// but distributions built servers' kernels without preemption before `PREEMPT_DYNAMIC`, which sets it.
    pub newidle_takes_one: bool,
    /// A CPU that has just run out of work goes on only while it has none (`should_we_balance()`).
    pub newidle_stops_at_work: bool,
    /// A CPU whose core idles is the one that balances (`should_we_balance()`).
    pub idle_core_balances: bool,
    /// Threads of a core share their caches, so that none is cache-hot for another (5.10, `task_hot()`).
    pub smt_is_cache_hot: bool,
    /// Each failure doubles the load that may move (`shr_bound()`); before, twice the imbalance may.
    pub shr_bound: bool,
    /// The levels are not all due at the same tick (`get_sd_balance_interval()`).
    pub staggered_intervals: bool,
    /// A CPU that runs idle tasks alone balances as often as one that idles (`sched_balance_domains()`).
    pub sched_idle_is_not_busy: bool,
    /// A new-idle attempt does not make the balancing of the domain less frequent (5.1).
    pub newidle_keeps_interval: bool,
    /// New-idle balancing only if the CPU usually idles for as long as a migration costs.
    pub newidle_migration_cost: bool,
    /// New-idle balancing knows what it costs, and whether any CPU has more than one task (3.13,
    /// `max_newidle_lb_cost`, `rd->overload`).
    pub newidle_lb_cost: bool,
    /// The longest search of a domain also fades while the CPU keeps searching, a second after it was last as
    /// long (`update_newidle_cost()`).
    pub newidle_cost_fades_in_use: bool,
    /// A newly idle CPU updates what is left of the load of CPUs that idle, once a tick
    /// (`update_nohz_stats()`).
    pub newidle_updates_idle: bool,
    pub newidle_random: NewidleRandom,
    /// Tasks that are leaving do not count in groups and in the choice of the busiest queue, and move only if
    /// load is to (6.14, `h_nr_runnable`).
    pub h_nr_runnable: bool,
    /// A task that is ahead of its share does not move to a CPU that has any, until an attempt has failed
    /// (`task_is_ineligible_on_dst_cpu()`, first seen in 6.18).
    pub ineligible_stays: bool,
    /// A node that is as good for a task as another leaves it to the heat of caches whether it moves
    /// (`migrate_degrades_locality()`, first seen in 6.18).
    pub equal_nodes_are_neutral: bool,
    /// One CPU at a time balances between nodes (`SD_SERIALIZE`). All releases do, but those before 6.12 not
    /// here.
    pub serialised: bool,
    /// Newly idle CPUs are no exception (6.19), and another CPU at it counts as balance.
    pub newidle_is_serialised: bool,
    /// The CPU that balances for all idle ones is one whose core idles, if there is one (7.3,
    /// `find_new_ilb()`).
    pub ilb_idle_core: bool,
    /// Cache lines of a queue that [`Balancer`](super::balance::Balancer) compares: those in `struct rq`, as
    /// laid out on x86-64, of the fields that `update_sg_lb_stats()` reads.
    pub queue_lines: u32,
    pub nohz_kick: NohzKick,
    pub nohz_refresh: NohzRefresh,
    /// The CPU that balances for all begins with itself.
    pub nohz_own_first: bool,
}

/// Features of the building and printing of scheduling domains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DomainFeatures {
    /// Names of the levels for threads, caches and nodes.
    pub level_names: [&'static str; 3],
    /// Threads share a core's capacity (`smt_gain`).
    pub smt_gain: bool,
    /// Intervals grow with the number of CPUs (3.16).
    pub intervals_by_weight: bool,
    /// Factor on the interval of a busy CPU: levels up to the node, and others.
    pub busy_factors: [u32; 2],
    /// A domain names the averages of past loads that it balances by (`busy_idx`, `idle_idx`).
    pub load_indices: bool,
    /// Imbalance that is tolerated, in percent: among CPUs of a cache, and beyond.
    pub imbalance_pcts: [u32; 2],
    /// Whether tasks are spread over cores, and over caches (`SD_PREFER_SIBLING`).
    pub prefers_siblings: [bool; 2],
    /// A level that is removed hands that flag down (3.13).
    pub keeps_prefer_sibling: bool,
    /// A level between nodes is also removed if it adds nothing.
    pub removes_numa: bool,
    /// Packages of AMD's Zen, at distance 32, are near enough for a fork, an exec or a wake-up (5.4,
    /// `node_reclaim_distance` in `init_amd_zn()`, now `init_amd_zen_common()`).
    pub zen_packages_are_near: bool,
    /// Name of the flag `SHARE_CAPACITY`.
    pub share_capacity: &'static str,
    /// Name of the flag `SHARE_LLC`.
    pub share_llc: &'static str,
    /// The log's word for the capacity of a group; none if it gives the span of each group with it.
    pub capacity_word: Option<&'static str>,
    /// The folder of the files with the constants.
    pub folder: &'static str,
}

/// The features of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Features {
    pub discipline: DisciplineKind,
    pub load: LoadTracking,
    pub use_estimates: UseEstimates,
    pub stolen_memory: StolenMemory,
    /// The clock of tasks skips stolen time in whole ticks (`steal_ticks()`).
    pub steal_in_ticks: bool,
    /// CFS: a task that goes on without a switch begins a new slice (`put_prev_task()`).
    pub slice_restarts: bool,
    /// A timer of the CPU ends the slice of its task at the virtual deadline (`HRTICK`, on since 7.1);
    /// before, slices end at ticks and wake-ups.
    pub hrtick: bool,
    /// A new task may preempt the one that runs where it is queued (`WF_FORK` in `wakeup_preempt_fair()`;
    /// not since 6.19).
    pub forks_preempt: bool,
    /// Whether a task that wakes up preempts for its idle policy, or that of the one that runs, is decided
    /// between the two, tasks or groups, that are in one queue (5.15); before, between the tasks themselves.
    pub idle_entities: bool,
    /// The check of a wake-up is a real pick: tasks that are leaving and come out first leave (7.1,
    /// `wakeup_preempt_fair()`).
    pub wakeup_removes_delayed: bool,
    /// The running task is charged before a task that was leaving is placed again at its wake-up (7.3,
    /// `enqueue_task_fair()`); before, the average is then that of the last charge.
    pub wakeup_charges_first: bool,
    /// The least weight by which virtual time counts a group on a CPU (`MIN_SHARES`). From 5.2 on, groups
    /// have 10 more bits of weight, but not in virtual time (`scale_load_down()`); where that leaves nothing,
    /// as it may in 5.2, 1 counts (`__update_inv_weight()`).
    pub group_weight_min: u64,
    /// A long idle time sets the average to its limit at once (`avg_idle`).
    pub idle_sample_is_capped: bool,
    /// An idle time that ends by pulled work counts in the average as well (7.0, `update_rq_avg_idle()`);
    /// before, those that end by a wake-up alone.
    pub idle_sampled_always: bool,
    /// A wake-up is left to its target CPU if that has nothing to run (`TTWU_QUEUE`, `ttwu_queue_cond()`).
    pub ttwu_queue_on_idle: bool,
    pub placement: PlacementFeatures,
    pub balance: BalanceFeatures,
    pub domains: DomainFeatures,
}

impl Features {
    /// The features of a release.
    pub fn of(era: LinuxEra) -> &'static Self {
        match era {
            LinuxEra::V3_6 => &V3_6,
            LinuxEra::V4_2 => &V4_2,
            LinuxEra::V5_2 => &V5_2,
            LinuxEra::V6_12 => &V6_12,
            LinuxEra::V6_18 => &V6_18,
            LinuxEra::V7_3 => &V7_3,
        }
    }
}

/// The least weight of a group on a CPU.
pub(super) const MIN_SHARES: u64 = 2;

const V3_6: Features = Features {
    discipline: DisciplineKind::Cfs,
    group_weight_min: MIN_SHARES,
    load: LoadTracking::Weight,
    use_estimates: UseEstimates::None,
    stolen_memory: StolenMemory::Halved,
    steal_in_ticks: true,
    slice_restarts: true,
    hrtick: false,
    forks_preempt: true,
    idle_entities: false,
    wakeup_removes_delayed: false,
    wakeup_charges_first: false,
    idle_sample_is_capped: true,
    idle_sampled_always: false,
    ttwu_queue_on_idle: false,
    placement: PlacementFeatures {
        wake_wide: WakeWide::Absent,
        wa_idle: false,
        wa_idle_prev: false,
        exiting_is_not_sync: false,
        wa_avg_load_per_task: true,
        sis_near_prev: false,
        sis_prev: false,
        recent_used_cpu: RecentUsedCpu::Absent,
        idle_sibling: IdleSibling::Groups,
        idlest_group: IdlestGroup::Load,
        idlest_by_idle_stamp: false,
        sched_idle: SchedIdle::Never,
    },
    balance: BalanceFeatures {
        group_type: false,
        group_overloaded: false,
        group_util: false,
        prefer_sibling_evens: false,
        idle_fills_up: false,
        scaled_excess: false,
        lb_bias: true,
        checks_cpu_capacity: false,
        no_group_without_imbalance: false,
        keeps_group_imbalance: KeepsGroupImbalance::Never,
        active_balance_keeps_on: false,
        push_resets_failed: false,
        lru_tasks: false,
        double_rq_lock: true,
        leaves_last_task: false,
        newidle_takes_one: false,
        newidle_stops_at_work: false,
        idle_core_balances: false,
        smt_is_cache_hot: true,
        shr_bound: false,
        staggered_intervals: false,
        sched_idle_is_not_busy: false,
        newidle_keeps_interval: false,
        newidle_migration_cost: true,
        newidle_lb_cost: false,
        newidle_cost_fades_in_use: false,
        newidle_updates_idle: false,
        newidle_random: NewidleRandom::Never,
        h_nr_runnable: false,
        ineligible_stays: false,
        equal_nodes_are_neutral: false,
        serialised: false,
        newidle_is_serialised: false,
        ilb_idle_core: false,
        queue_lines: 0,
        nohz_kick: NohzKick::Group,
        nohz_refresh: NohzRefresh::Itself,
        nohz_own_first: true,
    },
    domains: DomainFeatures {
        level_names: ["SIBLING", "MC", "CPU"],
        smt_gain: true,
        intervals_by_weight: false,
        busy_factors: [64, 32],
        load_indices: true,
        imbalance_pcts: [125, 125],
        prefers_siblings: [false, false],
        keeps_prefer_sibling: false,
        removes_numa: false,
        zen_packages_are_near: false,
        share_capacity: "SD_SHARE_CPUPOWER",
        share_llc: "SD_SHARE_PKG_RESOURCES",
        capacity_word: Some("cpu_power"),
        folder: "/proc/sys/kernel/sched_domain",
    },
};

const V4_2: Features = Features {
    load: LoadTracking::Contributions,
    steal_in_ticks: false,
    slice_restarts: false,
    idle_sample_is_capped: false,
    placement: PlacementFeatures {
        wake_wide: WakeWide::OfWaker,
        wa_avg_load_per_task: false,
        sis_near_prev: true,
        sis_prev: true,
        idlest_by_idle_stamp: true,
        ..V3_6.placement
    },
    balance: BalanceFeatures {
        group_overloaded: true,
        checks_cpu_capacity: true,
        group_util: true,
        double_rq_lock: false,
        newidle_lb_cost: true,
        // nr_running and cpu_load[]; h_nr_running; runnable_load_avg; curr and idle; cpu_capacity_orig.
        queue_lines: 5,
        nohz_kick: NohzKick::CacheOfSeveral,
        nohz_refresh: NohzRefresh::ClockAndGroups,
        nohz_own_first: false,
        ..V3_6.balance
    },
    domains: DomainFeatures {
        level_names: ["SMT", "MC", "DIE"],
        intervals_by_weight: true,
        busy_factors: [32, 32],
        imbalance_pcts: [117, 125],
        prefers_siblings: [true, false],
        keeps_prefer_sibling: true,
        share_capacity: "SD_SHARE_CPUCAPACITY",
        capacity_word: Some("cpu_capacity"),
        ..V3_6.domains
    },
    ..V3_6
};

const V5_2: Features = Features {
    load: LoadTracking::RunnableLoad,
    group_weight_min: 1,
    use_estimates: UseEstimates::LastAndAverage,
    stolen_memory: StolenMemory::Average,
    placement: PlacementFeatures {
        wake_wide: WakeWide::OfEither,
        wa_idle: true,
        exiting_is_not_sync: true,
        recent_used_cpu: RecentUsedCpu::Waker,
        idle_sibling: IdleSibling::SisProp,
        idlest_group: IdlestGroup::SpareCapacity,
        ..V4_2.placement
    },
    balance: BalanceFeatures {
        prefer_sibling_evens: true,
        idle_fills_up: true,
        scaled_excess: true,
        leaves_last_task: true,
        lb_bias: false,
        no_group_without_imbalance: true,
        push_resets_failed: true,
        keeps_group_imbalance: KeepsGroupImbalance::AllPinned,
        lru_tasks: true,
        newidle_keeps_interval: true,
        newidle_updates_idle: true,
        // nr_running; h_nr_running; avg; cpu_capacity, or curr and idle.
        queue_lines: 4,
        nohz_kick: NohzKick::Cache,
        nohz_refresh: NohzRefresh::BlockedLoad,
        ..V4_2.balance
    },
    domains: DomainFeatures {
        smt_gain: false,
        prefers_siblings: [true, true],
        capacity_word: None,
        ..V4_2.domains
    },
    ..V4_2
};

const V6_12: Features = Features {
    discipline: DisciplineKind::Eevdf(EEVDF_6_12),
    group_weight_min: MIN_SHARES,
    idle_entities: true,
    load: LoadTracking::LoadAvg,
    use_estimates: UseEstimates::RisesAtOnce,
    ttwu_queue_on_idle: true,
    placement: PlacementFeatures {
        wa_idle_prev: true,
        recent_used_cpu: RecentUsedCpu::Wakee,
        idle_sibling: IdleSibling::SisUtil,
        idlest_group: IdlestGroup::GroupType,
        sched_idle: SchedIdle::Any,
        ..V5_2.placement
    },
    balance: BalanceFeatures {
        group_type: true,
        keeps_group_imbalance: KeepsGroupImbalance::LastPinned,
        active_balance_keeps_on: true,
        newidle_takes_one: true,
        newidle_stops_at_work: true,
        idle_core_balances: true,
        smt_is_cache_hot: false,
        shr_bound: true,
        staggered_intervals: true,
        sched_idle_is_not_busy: true,
        newidle_migration_cost: false,
        newidle_cost_fades_in_use: true,
        newidle_updates_idle: false,
        newidle_random: NewidleRandom::BySuccess,
        serialised: true,
        ..V5_2.balance
    },
    domains: DomainFeatures {
        level_names: ["SMT", "MC", "PKG"],
        busy_factors: [16, 16],
        load_indices: false,
        imbalance_pcts: [117, 117],
        removes_numa: true,
        zen_packages_are_near: true,
        share_llc: "SD_SHARE_LLC",
        folder: "/sys/kernel/debug/sched/domains",
        ..V5_2.domains
    },
    ..V5_2
};

const EEVDF_6_12: EevdfFeatures = EevdfFeatures {
    unprotected_resched: false,
    lag_of_slice_and_tick: false,
    buddy_at_wakeup: false,
    delayed_debt_is_fixed: false,
    reweigh_keeps_protection: false,
};

const EEVDF_6_18: EevdfFeatures = EevdfFeatures { unprotected_resched: true, ..EEVDF_6_12 };

const V6_18: Features = Features {
    discipline: DisciplineKind::Eevdf(EEVDF_6_18),
    balance: BalanceFeatures {
        h_nr_runnable: true,
        ineligible_stays: true,
        equal_nodes_are_neutral: true,
        ..V6_12.balance
    },
    ..V6_12
};

const EEVDF_7_3: EevdfFeatures = EevdfFeatures {
    lag_of_slice_and_tick: true,
    buddy_at_wakeup: true,
    delayed_debt_is_fixed: true,
    reweigh_keeps_protection: true,
    ..EEVDF_6_18
};

const V7_3: Features = Features {
    discipline: DisciplineKind::Eevdf(EEVDF_7_3),
    hrtick: true,
    forks_preempt: false,
    wakeup_removes_delayed: true,
    idle_sampled_always: true,
    placement: PlacementFeatures { sched_idle: SchedIdle::NotIdle, ..V6_18.placement },
    balance: BalanceFeatures {
        newidle_random: NewidleRandom::BySuccessAndRate,
        newidle_is_serialised: true,
        ilb_idle_core: true,
        ..V6_18.balance
    },
    wakeup_charges_first: true,
    ..V6_18
};
