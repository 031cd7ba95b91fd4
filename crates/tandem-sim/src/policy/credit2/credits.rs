//! Credits: how they burn, when all get new ones, and how long a turn lasts.
//!
//! Credit is time. The vCPU with the largest weight of its run queue burns a nanosecond of credit for each
//! nanosecond on a CPU, one of half that weight two. When the first of the queue is out of credit, all of
//! the queue get the same amount anew.

use super::settings::Release;
use super::{Context, Credit2};
use tandem_machine::ids::{CpuId, TaskId};

/// Credit that a vCPU starts with, and gets at each reset, ns (`CSCHED2_CREDIT_INIT`).
pub(super) const CREDIT_INIT: i64 = 10_000_000;
/// Least credit, ns (`CSCHED2_CREDIT_MIN`).
const CREDIT_MIN: i64 = -CREDIT_INIT;
/// Less than any vCPU has, ns: that of an idle CPU (`CSCHED2_IDLE_CREDIT`).
pub(super) const IDLE_CREDIT: i64 = CREDIT_MIN - 1;
/// Shortest turn, ns; also the most credit that a reset leaves above what it gives
/// (`CSCHED2_MIN_TIMER`, `CSCHED2_CARRYOVER_MAX`).
pub(super) const MIN_TIMER_NS: i64 = 500_000;
/// Longest turn, ns (`CSCHED2_MAX_TIMER`).
const MAX_TIMER_NS: i64 = CREDIT_INIT;

impl Credit2 {
    /// Burns credit, and budget, for the time that the running vCPU has used (`burn_credits()`).
    pub(super) fn burn(&mut self, task: TaskId, now_ns: u64) {
        let weight_max = self.queue_of_vcpu(task).map_or(1, |queue| self.queues[queue].weight_max);
        let vcpu = &mut self.vcpus[task.index()];
        let ran_ns = (now_ns - vcpu.burnt_until_ns) as i64;
        if ran_ns == 0 {
            return;
        }
        let weighted = ran_ns * weight_max + vcpu.residual;
        vcpu.residual = weighted % vcpu.weight;
        vcpu.credit = (vcpu.credit - weighted / vcpu.weight).max(CREDIT_MIN);
        if vcpu.is_capped() {
            vcpu.budget_ns -= ran_ns;
        }
        vcpu.burnt_until_ns = now_ns;
    }

    /// Gives all vCPUs of the CPU's queue new credit (`reset_credit()`).
    pub(super) fn reset_credit(&mut self, ctx: &mut Context<'_>, queue: usize, next: TaskId) {
        self.counters.resets += 1;
        let twice = self.vcpus[next.index()].credit == CREDIT_MIN;
        let fresh = if twice { 2 * CREDIT_INIT } else { CREDIT_INIT };
        for at in 0..self.queues[queue].assigned.len() {
            let task = self.queues[queue].assigned[at];
            let cpu = self.vcpus[task.index()].cpu;
            if self.pcpus[cpu.index()].current == Some(task) {
                self.burn(task, ctx.now_ns);
                if self.vcpus[task.index()].budget_ns <= 0 {
                    self.tickle_cpu(ctx, cpu);
                }
            }
            let vcpu = &mut self.vcpus[task.index()];
            vcpu.credit = (vcpu.credit + fresh).min(CREDIT_INIT + MIN_TIMER_NS);
            vcpu.burnt_until_ns = ctx.now_ns;
        }
    }

    /// How long the vCPU may run on its CPU (`csched2_runtime()`). `preempted`: the credit of the vCPU that
    /// it takes the place of, if that waits from now on.
    pub(super) fn runtime_ns(&self, queue: usize, next: TaskId, preempted: Option<i64>, now_ns: u64) -> u64 {
        let vcpu = &self.vcpus[next.index()];
        let queue = &self.queues[queue];
        let mut least_ns = MIN_TIMER_NS;
        if self.settings.ratelimit_ns > 0 {
            let ran_ns = (now_ns - vcpu.started_ns) as i64;
            least_ns = least_ns.max(self.settings.ratelimit_ns as i64 - ran_ns);
        }
        let first = queue.waiting.first().map_or(0, |first| self.vcpus[first.index()].credit);
        let preempted = preempted.filter(|_| self.settings.release >= Release::Xen4_20);
        let rival = first.max(0).max(preempted.unwrap_or(0));
        let credit = vcpu.credit - rival;
        let mut time_ns = if credit > 0 { credit * vcpu.weight / queue.weight_max } else { 0 };
        if vcpu.is_capped() {
            time_ns = time_ns.min(vcpu.budget_ns);
        }
        // Not a clamp: the rate limit may be above the longest turn.
        if time_ns < least_ns { least_ns as u64 } else { time_ns.min(MAX_TIMER_NS) as u64 }
    }

    /// Whether an epoch has come to an end: neither the vCPU that runs next nor the first that waits has
    /// credit.
    pub(super) fn is_out_of_credit(&self, queue: usize, next: TaskId) -> bool {
        let first = self.queues[queue].waiting.first().copied();
        [Some(next), first].into_iter().flatten().all(|task| self.vcpus[task.index()].credit <= 0)
    }

    /// Puts the vCPU into the run queue, behind others with as much credit (`runq_insert()`).
    pub(super) fn insert(&mut self, task: TaskId) {
        let credit = self.vcpus[task.index()].credit;
        let queue = self.queue_index(task);
        let waiting = &self.queues[queue].waiting;
        let at = waiting.partition_point(|other| self.vcpus[other.index()].credit >= credit);
        self.queues[queue].waiting.insert(at, task);
        self.vcpus[task.index()].waits = true;
    }

    /// Takes the vCPU out of the run queue (`runq_remove()`).
    pub(super) fn remove(&mut self, task: TaskId) {
        let queue = self.queue_index(task);
        self.queues[queue].waiting.retain(|&other| other != task);
        self.vcpus[task.index()].waits = false;
    }

    /// The run queue of the CPU.
    pub(super) fn queue_of_cpu(&self, cpu: CpuId) -> usize {
        self.pcpus[cpu.index()].queue
    }
}
