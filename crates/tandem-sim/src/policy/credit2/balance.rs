//! Moving vCPUs between run queues.
//!
//! New vCPUs, and those whose affinity changes, get the run queue with the least average load
//! (`csched2_res_pick()`). At each reset of credits, a CPU compares its queue with the one whose load differs
//! most. If they differ enough, it pushes a vCPU, pulls one, or swaps two, whatever brings the loads closest
//! (`balance_load()`). Averages know neither weights nor which vCPU will run next.

use super::load::PRECISION;
use super::{Context, Credit2, Step};
use tandem_machine::ids::{CpuId, TaskId};

/// Least difference that is balanced while no queue has more load than CPUs, and otherwise
/// (`credit2_balance_under`, `credit2_balance_over`): a vCPU, and an eighth of one.
const UNDERLOAD_TOLERANCE: i64 = 1 << PRECISION;
const OVERLOAD_TOLERANCE: i64 = UNDERLOAD_TOLERANCE >> 3;

/// The best exchange found so far between the own queue and another one.
struct Exchange {
    difference: i64,
    push: Option<TaskId>,
    pull: Option<TaskId>,
}

impl Credit2 {
    /// A CPU for a vCPU that must have a new one: of the queue that was chosen for it, or of the one with the
    /// least load, among those that it prefers if there are any.
    pub(super) fn pick_cpu(&mut self, ctx: &Context<'_>, task: TaskId) -> CpuId {
        let hard = &ctx.tasks[task.index()].hard_affinity;
        if let Some(to) = self.vcpus[task.index()].migrate_to.take()
            && hard.intersects(&self.queues[to].cpus)
        {
            return self.next_cpu(ctx, task, to, to, Step::Hard);
        }
        let soft = self.mask(ctx, task, Step::Soft);
        let own = self.vcpus[task.index()].queue;
        let mut least: Option<(i64, usize)> = None;
        let mut least_preferred: Option<(i64, usize)> = None;
        for (at, queue) in self.queues.iter().enumerate() {
            if !hard.intersects(&queue.cpus) {
                continue;
            }
            let mut load = queue.load.balanced;
            if own == Some(at) {
                load = (load - self.vcpus[task.index()].load.average).max(0);
            }
            if soft.is_some_and(|soft| soft.iter_and(&queue.cpus).any(|cpu| hard.contains(cpu)))
                && least_preferred.is_none_or(|(other, _)| load < other)
            {
                least_preferred = Some((load, at));
            }
            if least.is_none_or(|(other, _)| load < other) {
                least = Some((load, at));
            }
        }
        let (_, least) = least.expect("a vCPU may use some CPU");
        match least_preferred {
            // Xen goes on from the last CPU of the queue with the least load, even if that is another one.
            Some((_, preferred)) => self.next_cpu(ctx, task, preferred, least, Step::Soft),
            None => self.next_cpu(ctx, task, least, least, Step::Hard),
        }
    }

    /// The CPU of the queue that the next vCPU is assigned by. `bias`: the queue that keeps the last one.
    fn next_cpu(&mut self, ctx: &Context<'_>, task: TaskId, queue: usize, bias: usize, step: Step) -> CpuId {
        let hard = &ctx.tasks[task.index()].hard_affinity;
        let mut mask = std::mem::take(&mut self.scratch);
        mask.assign_and(hard, &self.queues[queue].cpus);
        if let Some(soft) = self.mask(ctx, task, step) {
            mask.retain(soft);
        }
        let cpu = mask.next_after(self.queues[bias].pick_bias).expect("the queue has a CPU for the vCPU");
        self.scratch = mask;
        self.queues[bias].pick_bias = cpu;
        cpu
    }

    /// Moves a vCPU to another queue, or marks it to be moved when it is off its CPU (`migrate()`).
    pub(super) fn migrate(&mut self, ctx: &mut Context<'_>, task: TaskId, to: usize) {
        if self.vcpus[task.index()].scheduled {
            let vcpu = &mut self.vcpus[task.index()];
            vcpu.migrate_to = Some(to);
            vcpu.migrating = true;
            let cpu = vcpu.cpu;
            self.tickle_cpu(ctx, cpu);
            return;
        }
        self.counters.balanced += 1;
        let waited = self.vcpus[task.index()].waits;
        if waited {
            self.remove(task);
            let from = self.queue_index(task);
            self.queues[from].load.update(ctx.now_ns, -1);
        }
        self.deassign(task);
        let cpu = self.next_cpu(ctx, task, to, to, Step::Hard);
        self.vcpus[task.index()].cpu = cpu;
        self.assign(task, to);
        if waited {
            self.queues[to].load.update(ctx.now_ns, 1);
            self.insert(task);
            self.tickle(ctx, task);
        }
    }

    /// Brings the loads of the CPU's queue and another one closer to each other (`balance_load()`).
    pub(super) fn balance(&mut self, ctx: &mut Context<'_>, own: usize) {
        let now_ns = ctx.now_ns;
        self.queues[own].load.update(now_ns, 0);
        let mut farthest: Option<usize> = None;
        let mut difference = 0;
        for at in (0..self.queues.len()).filter(|&at| at != own) {
            *ctx.peers_scanned += 1;
            self.queues[at].load.update(now_ns, 0);
            let this = (self.queues[own].load.balanced - self.queues[at].load.balanced).abs();
            if this > difference {
                (difference, farthest) = (this, Some(at));
            }
        }
        let Some(other) = farthest else {
            return;
        };
        // Xen looks at the last queue of its list here, whichever is the farthest.
        let [own_queue, last] = [&self.queues[own], &self.queues[self.queues.len() - 1]];
        let load_max = own_queue.load.balanced.max(last.load.balanced);
        let full = own_queue.cpu_count.max(last.cpu_count) << PRECISION;
        let tolerance = if load_max < full { UNDERLOAD_TOLERANCE } else { OVERLOAD_TOLERANCE };
        if difference < tolerance {
            return;
        }
        self.counters.balances += 1;
        let Exchange { push, pull, .. } = self.best_exchange(ctx, own, other, difference);
        if let Some(task) = push {
            self.migrate(ctx, task, other);
        }
        if let Some(task) = pull {
            self.migrate(ctx, task, own);
        }
    }

    /// Every pair of vCPUs, and every single one: the exchange that leaves the least difference, less than
    /// the present one (`consider()`).
    fn best_exchange(&mut self, ctx: &Context<'_>, own: usize, other: usize, difference: i64) -> Exchange {
        for queue in [own, other] {
            for at in 0..self.queues[queue].assigned.len() {
                let vcpu = &mut self.vcpus[self.queues[queue].assigned[at].index()];
                let runnable = vcpu.is_runnable();
                vcpu.load.update(ctx.now_ns, runnable);
            }
        }
        let this = &*self;
        let mut best = Exchange { difference, push: None, pull: None };
        let ahead = this.queues[own].load.balanced - this.queues[other].load.balanced;
        let mut consider = |push: Option<TaskId>, pull: Option<TaskId>| {
            let load = |task: Option<TaskId>| task.map_or(0, |task| this.vcpus[task.index()].load.average);
            let left = (ahead - 2 * load(push) + 2 * load(pull)).abs();
            if left < best.difference {
                best = Exchange { difference: left, push, pull };
            }
        };
        let movable = |from: usize, to: usize| {
            this.queues[from].assigned.iter().copied().filter(move |task| {
                this.vcpus[task.index()].migrate_to.is_none()
                    && ctx.tasks[task.index()].hard_affinity.intersects(&this.queues[to].cpus)
            })
        };
        for push in movable(own, other) {
            for pull in movable(other, own) {
                consider(Some(push), Some(pull));
            }
            consider(Some(push), None);
        }
        for pull in movable(other, own) {
            consider(None, Some(pull));
        }
        best
    }
}
