//! Data that tasks of a VM share: how much it is used from which last-level cache, sampled and smoothed as
//! the memory system is.
//!
//! See [`crate::cost::Coherence`] for the model. What a line costs is in a table by data set and
//! last-level cache, so that the path of an event does not compute it. A CPU without a last-level cache
//! counts as one with a cache of its core.
//!
//! Limits: as in [`super::MemoryState`], what happens between two samples is felt after the next. A task that
//! has just come to a cache counts there from then on, and finds what others do there as if it had done so
//! itself.

use super::memory_state::is_felt;
use crate::cost::{Coherence, CostModels};
use crate::program::code::ProfileId;
use crate::program::{MemoryProfile, SharedData};
use std::sync::Arc;
use tandem_machine::Machine;
use tandem_machine::ids::{CpuId, VmId};

/// State of the data sets of all VMs. Tables have a row for each data set, in the order in which they are
/// used first, and a column for each last-level cache.
#[derive(Clone, Debug)]
pub(crate) struct SharedState {
    profiles: Vec<Arc<MemoryProfile>>,
    /// Data sets of a VM; 0 if no tasks share any, or the model is off.
    sets: usize,
    /// The row of each data set, VM by VM; [`UNUSED`] before it is used.
    row_of: Vec<u32>,
    sample_period_ns: u64,
    sample_weight: f64,
    /// The column of each CPU.
    cache_of: Vec<u32>,
    caches: usize,
    /// A line from its own last-level cache, ns.
    near_ns: f64,
    /// From one cache to another, ns, row by row.
    transfer_ns: Vec<f64>,
    /// Smoothed accesses, and writes among them, per ns.
    accesses: Vec<f64>,
    writes: Vec<f64>,
    /// Mean time for a line, ns.
    line_ns: Vec<f64>,
    /// The same as tasks felt it last.
    felt: Vec<f64>,
}

/// A data set without a row.
const UNUSED: u32 = u32::MAX;

impl SharedState {
    /// Nobody has used anything yet.
    pub fn new(costs: &CostModels, machine: &Machine, profiles: Vec<Arc<MemoryProfile>>, vms: usize) -> Self {
        let shared = profiles.iter().filter_map(|profile| profile.shared);
        let sets = match costs.coherence {
            Some(Coherence) => shared.map(|shared| shared.data + 1).max().unwrap_or(0),
            None => 0,
        };
        let first_of = |cpu| machine.llc_cpus(cpu).iter().next().unwrap_or(cpu);
        let mut firsts: Vec<CpuId> = machine.all_cpus().iter().map(first_of).collect();
        let cache_of = firsts.clone();
        firsts.sort_unstable();
        firsts.dedup();
        let cache_of = cache_of.iter().map(|first| firsts.partition_point(|known| known < first) as u32);
        let caches = firsts.len();
        let pairs = firsts.iter().flat_map(|&from| firsts.iter().map(move |&to| (from, to)));
        let sampling = costs.memory.unwrap_or_default();
        Self {
            profiles,
            sets,
            row_of: vec![UNUSED; vms * sets],
            sample_period_ns: sampling.sample_period_ns,
            sample_weight: sampling.sample_weight,
            cache_of: cache_of.collect(),
            caches,
            near_ns: f64::from(machine.hardware().llc_latency_ns),
            transfer_ns: pairs.map(|(from, to)| machine.line_transfer_ns(from, to) as f64).collect(),
            accesses: Vec::new(),
            writes: Vec::new(),
            line_ns: Vec::new(),
            felt: Vec::new(),
        }
    }

    /// Time between two samples; `None` if none are needed.
    pub fn sample_period_ns(&self) -> Option<u64> {
        (self.sets > 0).then_some(self.sample_period_ns)
    }

    /// Where the data set and the CPU's cache are in tables; `None` if no task has used it yet.
    fn cell(&self, vm: VmId, shared: SharedData, cpu: CpuId) -> Option<usize> {
        let row = self.row_of[vm.index() * self.sets + shared.data];
        (row != UNUSED).then(|| row as usize * self.caches + self.cache_of[cpu.index()] as usize)
    }

    fn add_row(&mut self, vm: VmId, shared: SharedData) {
        self.row_of[vm.index() * self.sets + shared.data] = (self.accesses.len() / self.caches) as u32;
        let cells = self.accesses.len() + self.caches;
        self.accesses.resize(cells, 0.0);
        self.writes.resize(cells, 0.0);
        self.line_ns.resize(cells, self.near_ns);
        self.felt.resize(cells, self.near_ns);
    }

    fn shared(&self, profile: ProfileId) -> Option<SharedData> {
        if self.sets == 0 { None } else { self.profiles[profile.0 as usize].shared }
    }

    /// Time that a task of the VM waits for shared lines per ns of work on this CPU, if it waits for one at a
    /// time.
    #[inline]
    pub fn wait_ns(&self, vm: VmId, profile: ProfileId, cpu: CpuId) -> f64 {
        let Some(shared) = self.shared(profile) else { return 0.0 };
        let line_ns = self.cell(vm, shared, cpu).map_or(self.near_ns, |cell| self.line_ns[cell]);
        shared.lines_per_us / 1e3 * line_ns
    }

    /// Takes a sample: for each busy CPU its task's VM and profile, and the time that a unit of its work
    /// takes. Whether anything has changed enough for tasks to feel it.
    pub fn sample(&mut self, running: impl Iterator<Item = (CpuId, VmId, ProfileId, f64)>) -> bool {
        if self.sets == 0 {
            return false;
        }
        let keep = 1.0 - self.sample_weight;
        self.accesses.iter_mut().chain(&mut self.writes).for_each(|rate| *rate *= keep);
        for (cpu, vm, profile, slowdown) in running {
            let Some(shared) = self.shared(profile) else { continue };
            if self.cell(vm, shared, cpu).is_none() {
                self.add_row(vm, shared);
            }
            let Some(cell) = self.cell(vm, shared, cpu) else { continue };
            let rate = self.sample_weight * shared.lines_per_us / 1e3 / slowdown;
            self.accesses[cell] += rate;
            self.writes[cell] += rate * shared.write_share;
        }
        self.update_lines();
        let changed = is_felt(&self.line_ns, &self.felt);
        if changed {
            self.felt.clone_from(&self.line_ns);
        }
        changed
    }

    fn update_lines(&mut self) {
        for (at, line_ns) in self.line_ns.iter_mut().enumerate() {
            let to = at % self.caches;
            let writes = &self.writes[at - to..][..self.caches];
            let (mut elsewhere, mut weighted_ns) = (0.0, 0.0);
            for (from, rate) in writes.iter().enumerate().filter(|&(from, _)| from != to) {
                elsewhere += rate;
                weighted_ns += rate * self.transfer_ns[from * self.caches + to];
            }
            let hits = Coherence::hit_chance(self.accesses[at], elsewhere);
            let far_ns = if elsewhere > 0.0 { weighted_ns / elsewhere } else { 0.0 };
            *line_ns = hits * self.near_ns + (1.0 - hits) * far_ns;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tandem_machine::MachineBuilder;

    /// The machine, the tasks that run on it (each a CPU and the share of its accesses that write), and the
    /// CPUs from which the test then reads lines: what one costs there, ns.
    fn line_ns(machine: &Machine, tasks: &[(u32, f64)], from: &[u32]) -> Vec<f64> {
        let profile = |write_share: f64| {
            let shared = Some(SharedData { data: 0, lines_per_us: 1e3, write_share });
            Arc::new(MemoryProfile { parallelism: 1.0, shared, ..MemoryProfile::default() })
        };
        let profiles = tasks.iter().map(|&(_, write_share)| profile(write_share)).collect();
        let costs = CostModels { coherence: Some(Coherence), ..CostModels::off() };
        let mut state = SharedState::new(&costs, machine, profiles, 2);
        for _ in 0..3 {
            let running = tasks.iter().zip(0..);
            state.sample(running.map(|(&(cpu, _), profile)| (CpuId(cpu), VmId(1), ProfileId(profile), 2.0)));
        }
        from.iter().map(|&cpu| state.wait_ns(VmId(1), ProfileId(0), CpuId(cpu))).collect()
    }

    fn mean_ns(valid: f64, near_ns: f64, far_ns: f64) -> f64 {
        valid * near_ns + (1.0 - valid) * far_ns
    }

    fn assert_close(found: &[f64], expected: &[f64]) {
        let is_close = |(found, expected): (&f64, &f64)| (found - expected).abs() < 1e-9 * expected;
        assert!(found.iter().zip(expected).all(is_close), "{found:?}, not {expected:?}");
    }

    #[test]
    fn two_caches() {
        let machine = MachineBuilder::symmetric(2, 20, 1).build().unwrap();
        let hardware = machine.hardware();
        let (near, far) = (f64::from(hardware.llc_latency_ns), f64::from(hardware.remote_memory_latency_ns));
        let on = |cpus: std::ops::Range<u32>| cpus.map(|cpu| (cpu, 0.2)).collect::<Vec<_>>();
        assert_close(&line_ns(&machine, &on(0..20), &[0, 20]), &[near, far]);
        let half = mean_ns(1.0 / 1.2, near, far);
        assert_close(&line_ns(&machine, &on(10..30), &[0, 20]), &[half, half]);
        let spilled = [mean_ns(19.0 / 19.2, near, far), mean_ns(1.0 / (1.0 + 0.2 * 19.0), near, far)];
        assert_close(&line_ns(&machine, &on(1..21), &[0, 20]), &spilled);
        let read: Vec<_> = (0..40).map(|cpu| (cpu, 0.0)).collect();
        assert_eq!(line_ns(&machine, &read, &[0, 20]), [near, near], "what nobody writes stays valid");
    }

    #[test]
    fn lines_come_from_who_writes_most_and_from_its_distance() {
        let rows = vec![vec![10, 20, 30], vec![20, 10, 20], vec![30, 20, 10]];
        let machine = MachineBuilder::symmetric(3, 1, 1).distances(rows).build().unwrap();
        let hardware = machine.hardware();
        let near = f64::from(hardware.llc_latency_ns);
        let (local, one_hop) =
            (f64::from(hardware.local_memory_latency_ns), f64::from(hardware.remote_memory_latency_ns));
        let two_hops = 2.0 * one_hop - local;
        let expected = [
            mean_ns(1.0 / 2.25, near, (0.25 * one_hop + 1.0 * two_hops) / 1.25),
            mean_ns(1.0 / 2.5, near, one_hop),
            mean_ns(1.0 / 1.75, near, (0.5 * two_hops + 0.25 * one_hop) / 0.75),
        ];
        assert_close(&line_ns(&machine, &[(0, 0.5), (1, 0.25), (2, 1.0)], &[0, 1, 2]), &expected);
    }
}
