//! Distributions of times, pooled over seeds.
//!
//! A run has a histogram for each group, too large to keep for each seed of thousands. So those of a seed are kept until
//! all contenders have run with it, and then added to those before: a pool is of whole seeds, as all else is. Sums of
//! counts do not depend on their order, so that a pool does not depend on the number of jobs.

use std::collections::BTreeMap;
use tandem_sim::times::Times;

/// The response times and the delays of wake-ups of each group of a scenario.
pub(super) type GroupTimes = Vec<[Times; 2]>;

/// Pools of each contender.
#[derive(Default)]
pub(super) struct Pool {
    contenders: usize,
    /// Of seeds that not all contenders have run with, by seed and contender.
    pending: BTreeMap<usize, BTreeMap<usize, GroupTimes>>,
    pub pooled: Vec<GroupTimes>,
}

impl Pool {
    pub fn new(contenders: usize, groups: usize) -> Self {
        let pooled = vec![vec![Default::default(); groups]; contenders];
        Self { contenders, pending: BTreeMap::new(), pooled }
    }

    /// Takes the times of a run.
    pub fn add(&mut self, (run, contender): (usize, usize), times: GroupTimes) {
        let of_seed = self.pending.entry(run).or_default();
        of_seed.insert(contender, times);
        if of_seed.len() < self.contenders {
            return;
        }
        for (contender, times) in self.pending.remove(&run).into_iter().flatten() {
            for (pooled, times) in self.pooled[contender].iter_mut().flatten().zip(times.iter().flatten()) {
                pooled.add(times);
            }
        }
    }
}
