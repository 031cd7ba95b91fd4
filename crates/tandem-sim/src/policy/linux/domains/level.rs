//! The levels of scheduling domains that each release knows, with their constants.
//!
//! Their places in the kernels:
//! - 3.6: `SD_SIBLING_INIT`, `SD_MC_INIT` and `SD_CPU_INIT` in `include/linux/topology.h`, `sd_numa_init()`
//!   in `kernel/sched/core.c` (it replaced the older NODE level in 3.5).
//! - 4.2: `sd_init()` and `default_topology` in `kernel/sched/core.c`.
//! - 5.2 and 6.12: `sd_init()` and `default_topology` in `kernel/sched/topology.c`.
//!
//! Not modelled: the level CLS of 6.12 (cores that share an L2), as a [`Machine`] has no such caches, and the
//! flags for packages with CPUs of unequal capacity or priority.

use super::flags::Flags;
use crate::policy::linux::Domains;
use crate::policy::linux::features::DomainFeatures;
use tandem_machine::cpumask::CpuMask;
use tandem_machine::ids::CpuId;
use tandem_machine::{LOCAL_DISTANCE, Machine};

/// Nodes farther apart than this are not searched at a fork, an exec or a wake-up (`RECLAIM_DISTANCE`).
const RECLAIM_DISTANCE: u32 = 30;
/// The limit on Zen. A [`Machine`] has no vendor, and the firmware of no other processors is known to say it.
const ZEN_RECLAIM_DISTANCE: u32 = 32;

/// Capacity of a core with threads, in units of 1024 for a core without: threads add 15% (`smt_gain` of 3.6
/// and 4.2).
const SMT_CORE_CAPACITY: u32 = 1178;
/// Capacity of a CPU that is a core, and since 5.0 of every CPU (`SCHED_CAPACITY_SCALE`).
pub const CPU_CAPACITY: u32 = 1024;

/// The CPUs that the domains of a level span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spread {
    /// The threads of a core.
    Core,
    /// The CPUs that share a last-level cache.
    Cache,
    /// A NUMA node, which the kernel treats as a package.
    Node,
    /// The nodes up to this distance.
    Distance(u32),
    /// Every CPU.
    Machine,
}

/// One level.
#[derive(Clone, Copy, Debug)]
pub(super) struct Level {
    pub name: &'static str,
    spread: Spread,
}

/// Constants of a domain. Those that are indices choose one of the load averages of 3.6 to 5.2, from the load
/// of now (0) to the slowest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunables {
    pub flags: Flags,
    /// Shortest time between two balances of an idle CPU, ms.
    pub min_interval_ms: u32,
    /// Longest, ms: the time doubles while a domain is found in balance.
    pub max_interval_ms: u32,
    /// Factor on the interval of a busy CPU.
    pub busy_factor: u32,
    /// Loads whose ratio is at most this, in percent, count as balanced.
    pub imbalance_pct: u32,
    /// Failed attempts after which tasks are moved although their cache is hot.
    pub cache_nice_tries: u32,
    /// Which load average counts when a busy CPU balances.
    pub busy_idx: u32,
    /// Which one counts when an idle CPU balances.
    pub idle_idx: u32,
}

/// The levels of a kernel from the lowest to the highest, before useless ones are removed.
pub(super) fn levels(features: &DomainFeatures, domains: Domains, machine: &Machine) -> Vec<Level> {
    let mut levels: Vec<_> = match domains {
        Domains::Topology => features
            .level_names
            .into_iter()
            .zip([Spread::Core, Spread::Cache, Spread::Node])
            .map(|(name, spread)| Level { name, spread })
            .collect(),
        Domains::Flat => vec![Level { name: "VCPU", spread: Spread::Machine }],
    };
    levels.extend(
        remote_distances(machine)
            .into_iter()
            .map(|distance| Level { name: "NUMA", spread: Spread::Distance(distance) }),
    );
    levels
}

/// The distances between different nodes, ascending.
fn remote_distances(machine: &Machine) -> Vec<u32> {
    let nodes = || (0..machine.node_count()).map(tandem_machine::ids::NodeId::from);
    let mut distances: Vec<_> = nodes()
        .flat_map(|from| nodes().map(move |to| machine.distance(from, to)))
        .filter(|&distance| distance > LOCAL_DISTANCE)
        .collect();
    distances.sort_unstable();
    distances.dedup();
    distances
}

impl Level {
    /// The CPUs of the domain of `cpu`.
    pub fn span(&self, machine: &Machine, cpu: CpuId) -> CpuMask {
        match self.spread {
            Spread::Core => machine.siblings(cpu).clone(),
            Spread::Cache => machine.llc_cpus(cpu).clone(),
            Spread::Node => machine.node_cpus(machine.cpu(cpu).node).clone(),
            Spread::Distance(limit) => {
                let own = machine.cpu(cpu).node;
                let near = machine
                    .nodes_by_distance(own)
                    .iter()
                    .filter(|&&node| machine.distance(own, node) <= limit)
                    .flat_map(|&node| machine.node_cpus(node).iter());
                CpuMask::from_cpus(machine.cpu_count(), near)
            }
            Spread::Machine => machine.all_cpus().clone(),
        }
    }

    /// Whether domains of this level may overlap.
    pub fn is_numa(&self) -> bool {
        matches!(self.spread, Spread::Distance(_))
    }

    /// Capacity of a CPU in a kernel whose lowest level this is.
    pub fn cpu_capacity(&self, features: &DomainFeatures, threads: usize) -> u32 {
        if features.smt_gain && self.spread == Spread::Core && threads > 1 {
            (SMT_CORE_CAPACITY / threads as u32).max(1)
        } else {
            CPU_CAPACITY
        }
    }

    /// The constants of a domain with this many CPUs.
    pub fn tunables(&self, features: &DomainFeatures, weight: u32) -> Tunables {
        let mut flags = self.flags(features);
        let is_near = |distance| {
            distance <= RECLAIM_DISTANCE
                || (features.zen_packages_are_near && distance == ZEN_RECLAIM_DISTANCE)
        };
        if matches!(self.spread, Spread::Distance(distance) if !is_near(distance)) {
            flags = flags.without(Flags::EXEC | Flags::FORK | Flags::WAKE_AFFINE);
        }
        let by_weight = (weight, 2 * weight);
        let (min_interval_ms, max_interval_ms) = match self.spread {
            _ if features.intervals_by_weight => by_weight,
            Spread::Core => (1, 2),
            Spread::Cache | Spread::Node => (1, 4),
            // `set_sched_topology()` came in 3.16 and, with it, intervals by weight. A flat table in 3.6 is a
            // backport, so it has those too.
            Spread::Distance(_) | Spread::Machine => by_weight,
        };
        let [within_node, elsewhere] = features.busy_factors;
        let busy_factor = match self.spread {
            Spread::Core | Spread::Cache | Spread::Node => within_node,
            Spread::Distance(_) | Spread::Machine => elsewhere,
        };
        let [within_cache, beyond] = features.imbalance_pcts;
        let imbalance_pct = match self.spread {
            Spread::Core => 110,
            Spread::Cache => within_cache,
            Spread::Node | Spread::Distance(_) | Spread::Machine => beyond,
        };
        // Number of failures and load averages, by the extent of the domain.
        let (cache_nice_tries, busy_idx, idle_idx) = match self.spread {
            Spread::Core => (0, 0, 0),
            Spread::Cache => (1, 2, 0),
            Spread::Node | Spread::Machine => (1, 2, 1),
            Spread::Distance(_) => (2, 3, 2),
        };
        Tunables {
            flags,
            min_interval_ms,
            max_interval_ms,
            busy_factor,
            imbalance_pct,
            cache_nice_tries,
            busy_idx,
            idle_idx,
        }
    }

    fn flags(&self, features: &DomainFeatures) -> Flags {
        let base = Flags::NEWIDLE | Flags::EXEC | Flags::FORK | Flags::WAKE_AFFINE;
        // Whether the level above should spread tasks over domains of this level.
        let [over_cores, over_caches] = features.prefers_siblings;
        let prefer_sibling = match self.spread {
            Spread::Core => over_cores,
            Spread::Cache => over_caches,
            Spread::Node | Spread::Machine => true,
            Spread::Distance(_) => false,
        };
        let own = match self.spread {
            Spread::Core => Flags::SHARE_CAPACITY | Flags::SHARE_LLC,
            Spread::Cache => Flags::SHARE_LLC,
            Spread::Node | Spread::Machine => Flags::NONE,
            Spread::Distance(_) => Flags::SERIALIZE | Flags::NUMA,
        };
        base | own | if prefer_sibling { Flags::PREFER_SIBLING } else { Flags::NONE }
    }
}
