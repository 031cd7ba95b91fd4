//! Work stealing: a CPU that would idle, or run a vCPU without credit, searches for a more urgent vCPU.
//!
//! Xen 4.2 searches the other CPUs in a ring, from the next one on (`csched_load_balance()`). Later releases
//! search them in two steps, each node by node, starting with its own: first for vCPUs whose soft affinity
//! contains this CPU, then for any whose hard affinity does. It considers only busy CPUs, and in each queue
//! only vCPUs that are strictly more urgent.

use super::run_queue::Priority;
use super::{Context, Credit, Era, Step};
use tandem_machine::ids::{CpuId, NodeId, TaskId};

impl Credit {
    /// Takes a more urgent vCPU than `candidate` (`None`: the CPU would idle) out of another CPU's queue.
    /// Also returns the number of queues that were searched.
    pub(super) fn steal(
        &mut self,
        ctx: &Context<'_>,
        cpu: CpuId,
        candidate: Option<Priority>,
    ) -> (Option<TaskId>, u32) {
        let mut peers_scanned = 0;
        let steps: &[Step] =
            if self.settings.era < Era::Xen4_3 { &[Step::Hard] } else { &[Step::Soft, Step::Hard] };
        for &step in steps {
            if let Some((task, scanned)) = self.steal_in_step(ctx, cpu, candidate, step) {
                match step {
                    Step::Soft => self.counters.steals_preferred += 1,
                    Step::Hard => self.counters.steals += 1,
                }
                self.queues.remove(task);
                return (Some(task), peers_scanned + scanned);
            }
            peers_scanned += self.peers_of(ctx, cpu);
        }
        (None, peers_scanned)
    }

    /// The number of CPUs that Xen searches in one step: busy ones, since 4.9 only those with a queued vCPU.
    /// (The masks save the simulator all but the promising ones, but the simulated CPU pays for all.)
    fn peers_of(&mut self, ctx: &Context<'_>, cpu: CpuId) -> u32 {
        let all = if self.settings.era < Era::Xen4_9 { ctx.machine.all_cpus() } else { self.queues.queued() };
        let [peers, ..] = &mut self.scratch;
        peers.assign_and(all, ctx.machine.all_cpus());
        peers.remove_all(&self.idlers);
        peers.remove(cpu);
        peers.count() as u32
    }

    fn steal_in_step(
        &mut self,
        ctx: &Context<'_>,
        cpu: CpuId,
        candidate: Option<Priority>,
        step: Step,
    ) -> Option<(TaskId, u32)> {
        if step == Step::Soft && self.preferring == 0 {
            return None;
        }
        let mut scanned = 0;
        let promising = if candidate.is_none() { self.queues.queued() } else { self.queues.urgent() };
        let [peers, ..] = &mut self.scratch;
        peers.assign_and(promising, ctx.machine.all_cpus());
        peers.remove_all(&self.idlers);
        peers.remove(cpu);
        if peers.is_empty() {
            return None;
        }
        if self.settings.era < Era::Xen4_3 {
            return self.steal_in_ring(ctx, cpu, candidate);
        }
        let nodes = ctx.machine.node_count();
        let own = ctx.machine.cpu(cpu).node.index();
        for node in (own..nodes).chain(0..own).map(NodeId::from) {
            let [peers, at_node, _] = &mut self.scratch;
            at_node.assign_and(peers, ctx.machine.node_cpus(node));
            let mut last = self.balance_bias[node.index()];
            while let Some(peer) = self.scratch[1].next_after(last) {
                self.scratch[1].remove(peer);
                last = peer;
                scanned += 1;
                if let Some(task) = self.steal_from(ctx, peer, cpu, candidate, step) {
                    if self.settings.era >= Era::Xen4_9 {
                        self.balance_bias[node.index()] = peer;
                    }
                    return Some((task, scanned));
                }
            }
        }
        None
    }

    /// Xen 4.1 and 4.2 know no nodes: they search all CPUs, from the next one on.
    fn steal_in_ring(
        &mut self,
        ctx: &Context<'_>,
        cpu: CpuId,
        candidate: Option<Priority>,
    ) -> Option<(TaskId, u32)> {
        let mut scanned = 0;
        let mut last = cpu;
        while let Some(peer) = self.scratch[0].next_after(last) {
            self.scratch[0].remove(peer);
            last = peer;
            scanned += 1;
            if let Some(task) = self.steal_from(ctx, peer, cpu, candidate, Step::Hard) {
                return Some((task, scanned));
            }
        }
        None
    }

    fn steal_from(
        &self,
        ctx: &Context<'_>,
        peer: CpuId,
        cpu: CpuId,
        candidate: Option<Priority>,
        step: Step,
    ) -> Option<TaskId> {
        self.queues.iter(peer).take_while(|task| Some(self.vcpus[task.index()].priority) > candidate).find(
            |&task| {
                self.mask(ctx, task, step).is_some_and(|mask| mask.contains(cpu))
                    && !self.is_cache_hot(task, ctx.now_ns)
            },
        )
    }

    fn is_cache_hot(&self, task: TaskId, now_ns: u64) -> bool {
        let stopped_ns = self.vcpus[task.index()].stopped_ns;
        stopped_ns > 0 && now_ns - stopped_ns < self.settings.migration_delay_ns
    }
}
