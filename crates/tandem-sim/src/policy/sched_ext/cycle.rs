//! The cycle of callbacks: what the kernel does, and asks the scheduler, as tasks wake, run, and stop.

use super::SchedExt;
use super::idle::PF_EXITING;
use super::kernel::{Custody, Purpose, ScxKernel, field, word};
use super::types::{
    RunQueue, SCX_ENQ_LAST, SCX_OPS_ENQ_EXITING, SCX_OPS_ENQ_LAST, SCX_SLICE_INF, SCX_TASK_QUEUED, Task,
};
use crate::policy::{Alarm, Context};
use tandem_ebpf::{Instance, State};
use tandem_machine::ids::{CpuId, TaskId};

/// Rounds of `dispatch` that insert tasks which cannot run here, before the CPU gives up (`SCX_DSP_MAX_LOOPS`).
const DISPATCH_ROUNDS_MAX: usize = 32;

impl SchedExt {
    /// Takes over the time, and the CPU on which the kernel's code runs.
    pub(super) fn begin(&mut self, ctx: &Context<'_>, cpu: CpuId) {
        self.kernel.now_ns = ctx.now_ns;
        self.kernel.cpu = cpu.index();
        self.kernel.from_outside = false;
    }

    /// Passes on what the callbacks have brought about: kicks, timers, complaints. Mostly nothing.
    #[inline]
    pub(super) fn end(&mut self, ctx: &mut Context<'_>) {
        let ScxKernel { kicks, resched, alarms, error, to_reenqueue, .. } = &self.kernel;
        let is_quiet = kicks.is_empty()
            && resched.is_empty()
            && alarms.is_empty()
            && to_reenqueue.is_empty()
            && error.is_none();
        if !is_quiet || self.failure.is_some() {
            self.pass_on(ctx);
        }
    }

    fn pass_on(&mut self, ctx: &mut Context<'_>) {
        self.reenqueue();
        if let Some(instance) = &mut self.instance
            && !self.kernel.kicks.is_empty()
        {
            self.kernel.flush_kicks(instance.state_mut());
        }
        if !self.kernel.resched.is_empty() {
            self.kicks += self.kernel.resched.len() as u64;
            ctx.kicked.append(&mut self.kernel.resched);
        }
        if !self.kernel.alarms.is_empty() {
            let cpu = CpuId::from(self.kernel.cpu);
            ctx.alarms.extend(self.kernel.alarms.drain(..).map(|(at_ns, token)| Alarm { cpu, at_ns, token }));
        }
        if self.kernel.error.is_some()
            && let Some(error) = self.kernel.error.take()
        {
            self.fail(error);
        }
        if let Some(failure) = &self.failure
            && ctx.failure.is_none()
        {
            *ctx.failure = Some(failure.clone());
        }
    }

    /// The kernel and the instance's state.
    pub(super) fn parts(&mut self) -> Option<(&mut ScxKernel, &mut State)> {
        Some((&mut self.kernel, self.instance.as_mut().map(Instance::state_mut)?))
    }

    pub(super) fn address(&self, task: TaskId) -> u64 {
        self.kernel.tasks[task.index()].address
    }

    pub(super) fn is_known(&self, task: TaskId) -> bool {
        self.kernel.tasks.get(task.index()).is_some_and(|task| task.address != 0)
    }

    /// A task that can run is given to the scheduler, or goes where it must (`do_enqueue_task()`).
    pub(super) fn give(&mut self, task: TaskId, flags: u64) {
        let callback = self.kernel.callbacks.enqueue;
        let Some((kernel, state)) = self.parts() else { return };
        kernel.end_immediate(state, task);
        if kernel.insert_directly(state, task, flags) {
            return;
        }
        let exits = kernel.get(state, task, field!(Task, flags)) & PF_EXITING != 0;
        let cpu = kernel.tasks[task.index()].cpu;
        if exits && !kernel.callbacks.has(SCX_OPS_ENQ_EXITING) {
            kernel.refill(state, task);
            return kernel.join(state, task, cpu, flags);
        }
        if callback.is_none() {
            kernel.refill(state, task);
            let queue = kernel.global_queue(task);
            return kernel.join(state, task, queue, flags);
        }
        kernel.tasks[task.index()].custody = Custody::Scheduler;
        let address = self.address(task);
        self.call(callback, Purpose::Place(task), &[address, flags]);
        let Some((kernel, state)) = self.parts() else { return };
        if kernel.tasks[task.index()].direct.is_some() {
            kernel.tasks[task.index()].custody = Custody::None;
            kernel.insert_directly(state, task, flags);
        }
    }

    /// A task becomes runnable on a CPU (`enqueue_task_scx()`).
    pub(super) fn make_runnable(&mut self, task: TaskId, cpu: usize, flags: u64) {
        self.note_runnable(task, cpu, flags);
        self.give(task, flags);
        // A CPU that idles looks for work when a task comes to it, wherever that waits.
        if self.kernel.cpus[cpu].idles() {
            self.kernel.cpus[cpu].has_next = true;
            self.kernel.resched.push(CpuId::from(cpu));
        }
    }

    /// A task belongs to a CPU and can run.
    pub(super) fn note_runnable(&mut self, task: TaskId, cpu: usize, flags: u64) {
        let Some((kernel, state)) = self.parts() else { return };
        kernel.move_to_cpu(state, task, cpu);
        kernel.tasks[task.index()].is_queued = true;
        kernel.cpus[cpu].nr_running += 1;
        kernel.change_flags(state, task, SCX_TASK_QUEUED, true);
        let address = self.address(task);
        self.call(self.kernel.callbacks.runnable, Purpose::Other, &[address, flags]);
    }

    /// A task can no longer run, or is about to be put elsewhere (`dequeue_task_scx()`).
    pub(super) fn make_quiescent(&mut self, task: TaskId, flags: u64) {
        let Some((kernel, state)) = self.parts() else { return };
        if !kernel.tasks[task.index()].is_queued {
            return;
        }
        let cpu = kernel.tasks[task.index()].cpu;
        let was_kept = kernel.tasks[task.index()].custody == Custody::Scheduler;
        let runs = kernel.cpus[cpu].curr == Some(task);
        kernel.leave_queue(state, task);
        kernel.returning.retain(|&(_, other)| other != task);
        if runs {
            kernel.account(state, cpu);
        }
        let address = self.address(task);
        if was_kept {
            self.call(self.kernel.callbacks.dequeue, Purpose::Other, &[address, flags]);
        }
        if runs {
            self.call(self.kernel.callbacks.stopping, Purpose::Other, &[address, 0]);
        }
        self.call(self.kernel.callbacks.quiescent, Purpose::Other, &[address, flags]);
        let Some((kernel, state)) = self.parts() else { return };
        kernel.tasks[task.index()].is_queued = false;
        kernel.cpus[cpu].nr_running -= 1;
        kernel.change_flags(state, task, SCX_TASK_QUEUED, false);
    }

    /// Chooses what a CPU runs next, or tells that the running task goes on (`balance_one()`).
    pub(super) fn balance(&mut self, cpu: usize, previous: Option<TaskId>) -> Balance {
        let callback = self.kernel.callbacks.dispatch;
        let Some((kernel, state)) = self.parts() else { return Balance::Nothing };
        let keeps =
            |kernel: &ScxKernel, state: &State| previous.is_some_and(|task| kernel.slice_ns(state, task) > 0);
        if keeps(kernel, state) {
            return Balance::Keep;
        }
        let global = kernel.global_queue_of(cpu);
        if !kernel.queues[cpu].is_empty() || kernel.move_first(state, global, cpu, 0) {
            return Balance::Local;
        }
        if callback.is_some() {
            for _ in 0..DISPATCH_ROUNDS_MAX {
                let address = previous.map_or(0, |task| self.address(task));
                self.call(callback, Purpose::Dispatch, &[cpu as u64, address]);
                let Some((kernel, state)) = self.parts() else { return Balance::Nothing };
                let inserted = kernel.flush_insertions(state);
                if keeps(kernel, state) {
                    return Balance::Keep;
                }
                if !kernel.queues[cpu].is_empty() || kernel.move_first(state, global, cpu, 0) {
                    return Balance::Local;
                }
                if inserted == 0 || self.failure.is_some() {
                    break;
                }
            }
        }
        match previous {
            Some(_) if !self.kernel.callbacks.has(SCX_OPS_ENQ_LAST) => Balance::Keep,
            _ => Balance::Nothing,
        }
    }

    /// The task that has run is put back, as another one or none comes next (`put_prev_task_scx()`).
    pub(super) fn put_back(&mut self, cpu: usize, task: TaskId, goes_idle: bool) {
        let put_back_ns = self.settings.put_back_ns;
        let Some((kernel, state)) = self.parts() else { return };
        kernel.account(state, cpu);
        let address = self.address(task);
        self.call(self.kernel.callbacks.stopping, Purpose::Other, &[address, 1]);
        let Some((kernel, state)) = self.parts() else { return };
        kernel.add(state, task, field!(Task, nivcsw), 1);
        kernel.set_current(state, cpu, None);
        if kernel.slice_ns(state, task) > 0 {
            return self.put_aside(task, cpu);
        }
        if goes_idle || put_back_ns == 0 {
            return self.give(task, if goes_idle { SCX_ENQ_LAST } else { 0 });
        }
        // It is on its way until the decision is over: CPUs that decide at the same time do not find it in a queue.
        let token = kernel.next_token;
        kernel.next_token = token.wrapping_add(1);
        kernel.alarms.push((kernel.now_ns + put_back_ns, token));
        kernel.returning.push((token, task));
    }

    /// The decision in which a task was put back is over.
    pub(super) fn finish_put_back(&mut self, token: u32) -> bool {
        let Some(at) = self.kernel.returning.iter().position(|&(other, _)| other == token) else {
            return false;
        };
        let (_, task) = self.kernel.returning.swap_remove(at);
        self.give(task, 0);
        true
    }

    /// A CPU begins to idle, or ends to, or idles on (not a `change`) after it has looked for work.
    pub(super) fn note_idle(&mut self, cpu: usize, idles: bool, change: bool) {
        if self.kernel.callbacks.builtin_idle() {
            let Some((kernel, state)) = self.parts() else { return };
            let _ = kernel.set_idle(state, cpu, idles);
        }
        if change {
            self.call(self.kernel.callbacks.update_idle, Purpose::Other, &[cpu as u64, u64::from(idles)]);
        }
    }
}

/// What a CPU does next.
pub(super) enum Balance {
    /// The running task goes on.
    Keep,
    /// The first of its local queue.
    Local,
    Nothing,
}

impl ScxKernel {
    /// Charges the running task of a CPU for the time since it was charged last (`update_curr_scx()`).
    pub(super) fn account(&mut self, state: &mut State, cpu: usize) {
        let Some(task) = self.cpus[cpu].curr else { return };
        let ran_ns = self.now_ns - std::mem::replace(&mut self.cpus[cpu].accounted_ns, self.now_ns);
        let Some(block) = self.block(state, task) else { return };
        let sum = word(block, field!(Task, se.sum_exec_runtime));
        *sum = (u64::from_le_bytes(*sum) + ran_ns).to_le_bytes();
        let slice = word(block, field!(Task, scx.slice));
        let slice_ns = u64::from_le_bytes(*slice);
        if slice_ns != SCX_SLICE_INF {
            *slice = slice_ns.saturating_sub(ran_ns).to_le_bytes();
        }
    }

    pub(super) fn change_flags(&self, state: &mut State, task: TaskId, flag: u64, is_set: bool) {
        let flags = self.get(state, task, field!(Task, scx.flags));
        self.set(state, task, field!(Task, scx.flags), if is_set { flags | flag } else { flags & !flag });
    }

    pub(super) fn set_current(&mut self, state: &mut State, cpu: usize, task: Option<TaskId>) {
        let (offset, bytes) = field!(RunQueue, curr);
        let address = task.map_or(self.idle_task, |task| self.tasks[task.index()].address);
        let _ = state.memory.store(self.cpus[cpu].rq + offset, bytes, address);
        if let Some(before) = self.cpus[cpu].curr {
            self.set(state, before, field!(Task, on_cpu), 0);
        }
        if let Some(task) = task {
            self.set(state, task, field!(Task, on_cpu), 1);
        }
        self.cpus[cpu].curr = task;
    }

    /// A CPU where the task may run, which is online: this one if possible.
    pub(super) fn allowed_cpu(&self, state: &State, task: TaskId, cpu: usize) -> usize {
        if self.may_run(state, task, cpu) && !self.cpus[cpu].is_offline {
            return cpu;
        }
        let mask = self.tasks[task.index()].cpus_mask;
        self.first(state, mask, self.online_mask)
            .map_or(cpu, |first| (first as usize).min(self.cpu_count - 1))
    }
}
