//! Waiting for memory: NUMA latency, contention for a node's memory, and for the shared cache's capacity.
//!
//! Problem: the time of a miss depends on where the memory is and which other tasks use it, and the number of
//! misses on which other tasks use the cache; both change all the time.
//!
//! Approach: the state of the memory system is sampled at a fixed period and smoothed over some samples; in
//! between it is constant.
//! - *Latency* of a load from node `n` by a CPU of node `c` is linear in the distance: local at 10, remote at 20.
//! - *Contention*: a node with utilisation `u` (bytes moved against its bandwidth) delays each load by the
//!   mean wait of a queue with random arrivals and fixed service (M/D/1): `bank_busy_ns * u / (2 (1 - u))`.
//!   Slower loads lower the demand, so that it settles below the bandwidth.
//! - *Capacity*: tasks that use a last-level cache at the same time get equal shares; misses grow with the
//!   inverse of the share to the power of the profile's `cache_sensitivity` (0.5 is the square-root rule:
//!   Hartstein et al., "Cache miss behavior: is it sqrt(2)?", Computing Frontiers 2006).
//!
//! Limits: no interconnect bandwidth, no prefetching beyond the profile's `parallelism`, equal cache shares.

use tandem_machine::Machine;
use tandem_machine::ids::NodeId;

/// Constants of the memory system's model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Memory {
    /// Time for which one access occupies a memory bank, ns.
    pub bank_busy_ns: f64,
    /// Time between two samples, ns. Not a divisor of a scheduler's tick, so that samples do not fall on
    /// ticks.
    pub sample_period_ns: u64,
    /// Weight of the newest sample in the smoothed state.
    pub sample_weight: f64,
}

impl Default for Memory {
    /// The row cycle time of DDR3-1333 is 49 ns (JEDEC JESD79-3). Period and weight belong to the numerical
    /// method: about 1 ms, smoothed over about 8 samples.
    fn default() -> Self {
        Self { bank_busy_ns: 49.0, sample_period_ns: 997_000, sample_weight: 0.125 }
    }
}

impl Memory {
    /// Highest utilisation of a node that the queueing formula is used for.
    const UTILISATION_MAX: f64 = 0.98;

    /// Latency of a load from `memory` by a CPU of node `cpu` without contention, ns.
    pub fn latency_ns(&self, machine: &Machine, cpu: NodeId, memory: NodeId) -> f64 {
        machine.memory_latency_ns(cpu, memory)
    }

    /// Mean wait for a bank at this utilisation of the node, ns.
    pub fn queueing_ns(&self, utilisation: f64) -> f64 {
        let u = utilisation.clamp(0.0, Self::UTILISATION_MAX);
        self.bank_busy_ns * u / (2.0 * (1.0 - u))
    }

    /// Factor on a task's misses with `users` tasks on its last-level cache.
    pub fn miss_factor(users: f64, sensitivity: f64) -> f64 {
        libm::pow(users.max(1.0), sensitivity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queueing_grows_without_bound_but_stays_finite() {
        let memory = Memory { bank_busy_ns: 50.0, ..Memory::default() };
        assert_eq!(memory.queueing_ns(0.0), 0.0);
        assert_eq!(memory.queueing_ns(0.5), 25.0);
        assert!(memory.queueing_ns(7.0).is_finite());
        assert!(memory.queueing_ns(0.9) > memory.queueing_ns(0.8));
    }

    #[test]
    fn square_root_rule() {
        assert_eq!(Memory::miss_factor(4.0, 0.5), 2.0);
        assert_eq!(Memory::miss_factor(0.3, 0.5), 1.0, "a cache to itself");
        assert_eq!(Memory::miss_factor(8.0, 0.0), 1.0, "streaming");
    }
}
