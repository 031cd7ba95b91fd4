//! The cycle of callbacks: what the kernel does, and asks the scheduler, as tasks wake, run, and stop.

use super::SchedExt;
use super::idle::PF_EXITING;
use super::kernel::{Custody, Purpose, ScxKernel, field};
use super::types::{
    CPUTIME_STEAL, RunQueue, SCX_DEQ_SLEEP, SCX_DSQ_LOCAL, SCX_ENQ_LAST, SCX_ENQ_WAKEUP, SCX_OPS_ENQ_EXITING,
    SCX_OPS_ENQ_LAST, SCX_SLICE_INF, SCX_TASK_QUEUED, SCX_WAKE_FORK, SCX_WAKE_SYNC, SCX_WAKE_TTWU, Task,
};
use crate::ids::{CpuId, TaskId};
use crate::policy::{Alarm, Context, Dispatch, Policy, Reason};
use tandem_ebpf::{Instance, State};

/// Rounds of `dispatch` that insert tasks which cannot run here, before the CPU gives up (`SCX_DSP_MAX_LOOPS`).
const DISPATCH_ROUNDS_MAX: usize = 32;

impl SchedExt {
    /// Takes over the time, and the CPU on which the kernel's code runs.
    fn begin(&mut self, ctx: &Context<'_>, cpu: CpuId) {
        self.kernel.now_ns = ctx.now_ns;
        self.kernel.cpu = cpu.index();
    }

    /// Passes on what the callbacks have brought about: kicks, timers, complaints.
    fn end(&mut self, ctx: &mut Context<'_>) {
        if let Some(instance) = &mut self.instance {
            self.kernel.flush_kicks(instance.state_mut());
        }
        self.kicks += self.kernel.resched.len() as u64;
        ctx.kicked.append(&mut self.kernel.resched);
        let cpu = CpuId::from(self.kernel.cpu);
        ctx.alarms.extend(self.kernel.alarms.drain(..).map(|(at_ns, token)| Alarm { cpu, at_ns, token }));
        if let Some(error) = self.kernel.error.take() {
            self.fail(error);
        }
        if let Some(failure) = &self.failure
            && ctx.failure.is_none()
        {
            *ctx.failure = Some(failure.clone());
        }
    }

    /// The kernel and the instance's state.
    fn parts(&mut self) -> Option<(&mut ScxKernel, &mut State)> {
        Some((&mut self.kernel, self.instance.as_mut().map(Instance::state_mut)?))
    }

    fn address(&self, task: TaskId) -> u64 {
        self.kernel.tasks[task.index()].address
    }

    fn is_known(&self, task: TaskId) -> bool {
        self.kernel.tasks.get(task.index()).is_some_and(|task| task.address != 0)
    }

    /// A task that can run is given to the scheduler, or goes where it must (`do_enqueue_task()`).
    fn give(&mut self, task: TaskId, flags: u64) {
        let callback = self.kernel.callbacks.enqueue;
        let Some((kernel, state)) = self.parts() else { return };
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
    fn make_runnable(&mut self, task: TaskId, cpu: usize, flags: u64) {
        let Some((kernel, state)) = self.parts() else { return };
        kernel.move_to_cpu(state, task, cpu);
        kernel.tasks[task.index()].is_queued = true;
        kernel.cpus[cpu].nr_running += 1;
        kernel.change_flags(state, task, SCX_TASK_QUEUED, true);
        let address = self.address(task);
        self.call(self.kernel.callbacks.runnable, Purpose::Other, &[address, flags]);
        self.give(task, flags);
        // A CPU that idles looks for work when a task comes to it, wherever that waits.
        if self.kernel.cpus[cpu].curr.is_none() {
            self.kernel.resched.push(CpuId::from(cpu));
        }
    }

    /// A task can no longer run, or is about to be put elsewhere (`dequeue_task_scx()`).
    fn make_quiescent(&mut self, task: TaskId, flags: u64) {
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
    fn balance(&mut self, cpu: usize, previous: Option<TaskId>) -> Balance {
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
    fn put_back(&mut self, cpu: usize, task: TaskId, goes_idle: bool) {
        let Some((kernel, state)) = self.parts() else { return };
        kernel.account(state, cpu);
        let address = self.address(task);
        self.call(self.kernel.callbacks.stopping, Purpose::Other, &[address, 1]);
        let Some((kernel, state)) = self.parts() else { return };
        kernel.add(state, task, field!(Task, nivcsw), 1);
        kernel.set_current(state, cpu, None);
        if kernel.slice_ns(state, task) > 0 {
            return kernel.join(state, task, cpu, super::types::SCX_ENQ_HEAD);
        }
        if goes_idle || kernel.put_back_ns == 0 {
            return self.give(task, if goes_idle { SCX_ENQ_LAST } else { 0 });
        }
        // It is on its way until the decision is over: CPUs that decide at the same time do not find it in a queue.
        let token = kernel.next_token;
        kernel.next_token = token.wrapping_add(1);
        kernel.alarms.push((kernel.now_ns + kernel.put_back_ns, token));
        kernel.returning.push((token, task));
    }

    /// The decision in which a task was put back is over.
    fn finish_put_back(&mut self, token: u32) -> bool {
        let Some(at) = self.kernel.returning.iter().position(|&(other, _)| other == token) else {
            return false;
        };
        let (_, task) = self.kernel.returning.swap_remove(at);
        self.give(task, 0);
        true
    }

    /// A CPU begins to idle, or ends to, or idles on (not a `change`) after it has looked for work.
    fn note_idle(&mut self, cpu: usize, idles: bool, change: bool) {
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
enum Balance {
    /// The running task goes on.
    Keep,
    /// The first of its local queue.
    Local,
    Nothing,
}

impl ScxKernel {
    /// Charges the running task of a CPU for the time since it was charged last (`update_curr_scx()`).
    fn account(&mut self, state: &mut State, cpu: usize) {
        let Some(task) = self.cpus[cpu].curr else { return };
        let ran_ns = self.now_ns - std::mem::replace(&mut self.cpus[cpu].accounted_ns, self.now_ns);
        let sum_ns = self.get(state, task, field!(Task, se.sum_exec_runtime)) + ran_ns;
        self.set(state, task, field!(Task, se.sum_exec_runtime), sum_ns);
        let slice_ns = self.slice_ns(state, task);
        if slice_ns != SCX_SLICE_INF {
            self.set_slice_ns(state, task, slice_ns.saturating_sub(ran_ns));
        }
    }

    fn change_flags(&self, state: &mut State, task: TaskId, flag: u64, is_set: bool) {
        let flags = self.get(state, task, field!(Task, scx.flags));
        self.set(state, task, field!(Task, scx.flags), if is_set { flags | flag } else { flags & !flag });
    }

    fn set_current(&mut self, state: &mut State, cpu: usize, task: Option<TaskId>) {
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

    /// A CPU where the task may run: this one if possible.
    fn allowed_cpu(&self, state: &State, task: TaskId, cpu: usize) -> usize {
        if self.may_run(state, task, cpu) {
            return cpu;
        }
        let mask = self.tasks[task.index()].cpus_mask;
        self.first(state, mask, mask).map_or(cpu, |first| (first as usize).min(self.cpu_count - 1))
    }
}

impl Policy for SchedExt {
    fn select_cpu(&mut self, ctx: &mut Context<'_>, task: TaskId, reason: Reason) -> CpuId {
        let (by, flags) = match reason {
            Reason::Start => (None, SCX_WAKE_FORK),
            Reason::Fork { cpu, .. } => (Some(cpu), SCX_WAKE_FORK),
            // The kernel does not ask at an exec: the task stays where it is.
            Reason::Exec { cpu } => return cpu,
            Reason::Wake { cpu, sync, .. } => {
                (Some(cpu), SCX_WAKE_TTWU | if sync { SCX_WAKE_SYNC } else { 0 })
            }
        };
        self.begin(ctx, by.unwrap_or(CpuId(0)));
        let facts = &ctx.tasks[task.index()];
        if !self.is_known(task)
            && let Err(fault) = self.begin_task(task, facts, by, reason.is_new())
        {
            self.fail(fault.to_string());
        }
        let mut cpu = self.kernel.tasks.get(task.index()).map_or(0, |task| task.cpu);
        if by.is_none() {
            self.begin(ctx, CpuId::from(cpu));
        }
        let callback = self.kernel.callbacks.select_cpu;
        if facts.hard_affinity.count() > 1 && self.instance.is_some() {
            let prev_cpu = cpu;
            if callback.is_some() {
                let address = self.address(task);
                let chosen =
                    self.call(callback, Purpose::Place(task), &[address, prev_cpu as u64, flags]) as i32;
                match usize::try_from(chosen) {
                    Ok(chosen) if chosen < self.kernel.cpu_count => cpu = chosen,
                    _ => self.fail(format!("`select_cpu` chose CPU {chosen}, which does not exist")),
                }
            } else if let Some((kernel, state)) = self.parts() {
                match kernel.select_default(state, task, prev_cpu, flags, None, 0) {
                    Ok(Some(chosen)) => {
                        cpu = chosen;
                        kernel.refill(state, task);
                        kernel.tasks[task.index()].direct = Some((SCX_DSQ_LOCAL, 0));
                    }
                    Ok(None) => {}
                    Err(fault) => self.fail(fault.to_string()),
                }
            }
        }
        if let Some((kernel, state)) = self.parts() {
            cpu = kernel.allowed_cpu(state, task, cpu);
        }
        self.end(ctx);
        CpuId::from(cpu)
    }

    fn enqueue(&mut self, ctx: &mut Context<'_>, task: TaskId, cpu: CpuId, reason: Reason) {
        let (by, flags) = match reason {
            Reason::Start => (cpu, 0),
            Reason::Fork { cpu: by, .. } | Reason::Exec { cpu: by } => (by, 0),
            Reason::Wake { cpu: by, .. } => (by, SCX_ENQ_WAKEUP),
        };
        self.begin(ctx, by);
        self.wakeups += 1;
        self.make_runnable(task, cpu.index(), flags);
        self.end(ctx);
    }

    fn dispatch(&mut self, ctx: &mut Context<'_>, cpu: CpuId, previous: Option<TaskId>) -> Dispatch {
        self.begin(ctx, cpu);
        self.decisions += 1;
        let at = cpu.index();
        let mut previous = previous;
        if let Some((kernel, state)) = self.parts() {
            kernel.account(state, at);
            kernel.cpus[at].in_balance = true;
        }
        // Its affinity has changed under it: the kernel's stopper takes it elsewhere.
        if let Some(task) = previous
            && let Some((kernel, state)) = self.parts()
            && !kernel.may_run(state, task, at)
        {
            let to = kernel.allowed_cpu(state, task, at);
            self.make_quiescent(task, 0);
            if let Some((kernel, state)) = self.parts() {
                kernel.set_current(state, at, None);
            }
            self.make_runnable(task, to, 0);
            previous = None;
        }
        let balance = self.balance(at, previous);
        let next = match balance {
            Balance::Keep => previous,
            Balance::Local => self.kernel.queues[at].first(),
            Balance::Nothing => None,
        };
        if next != previous
            && let Some(task) = previous
        {
            self.put_back(at, task, next.is_none());
        }
        if let (Some(task), Some((kernel, state))) = (next, self.parts()) {
            kernel.leave_queue(state, task);
            if kernel.slice_ns(state, task) == 0 {
                kernel.refill(state, task);
            }
        }
        self.kernel.cpus[at].in_balance = false;
        let idled = std::mem::replace(&mut self.kernel.cpus[at].is_idle, next.is_none());
        if idled || next.is_none() {
            self.note_idle(at, next.is_none(), idled != next.is_none());
        }
        if next.is_none()
            && let Some((kernel, state)) = self.parts()
        {
            kernel.set_current(state, at, None);
            // What came into the local queue while the CPU was deciding is seen at once.
            if !kernel.queues[at].is_empty() {
                kernel.resched.push(cpu);
            }
        }
        self.end(ctx);
        Dispatch { task: next, slice_ns: Dispatch::NO_SLICE }
    }

    fn running(&mut self, ctx: &mut Context<'_>, cpu: CpuId, task: TaskId) {
        self.begin(ctx, cpu);
        if let Some((kernel, state)) = self.parts() {
            kernel.set_current(state, cpu.index(), Some(task));
            kernel.cpus[cpu.index()].accounted_ns = ctx.now_ns;
            let now_ns = kernel.clock_ns();
            kernel.set(state, task, field!(Task, se.exec_start), now_ns);
        }
        let address = self.address(task);
        self.call(self.kernel.callbacks.running, Purpose::Other, &[address]);
        self.end(ctx);
    }

    fn blocked(&mut self, ctx: &mut Context<'_>, cpu: CpuId, task: TaskId) {
        self.begin(ctx, cpu);
        self.make_quiescent(task, SCX_DEQ_SLEEP);
        if let Some((kernel, state)) = self.parts() {
            kernel.add(state, task, field!(Task, nvcsw), 1);
            kernel.set_current(state, cpu.index(), None);
        }
        self.end(ctx);
    }

    fn exited(&mut self, ctx: &mut Context<'_>, task: TaskId) {
        self.kernel.now_ns = ctx.now_ns;
        if !self.is_known(task) {
            return;
        }
        let Some((kernel, state)) = self.parts() else { return };
        kernel.set(state, task, field!(Task, flags), PF_EXITING);
        let arguments = kernel.scratch_masks[0];
        let _ = state.memory.store(arguments, 1, 0);
        let address = self.address(task);
        self.call(self.kernel.callbacks.disable, Purpose::Other, &[address]);
        self.call(self.kernel.callbacks.exit_task, Purpose::Other, &[address, arguments]);
        if let Some((kernel, state)) = self.parts() {
            kernel.free_task(state, task);
        }
        self.end(ctx);
    }

    fn yielded(&mut self, ctx: &mut Context<'_>, cpu: CpuId, task: TaskId) {
        self.begin(ctx, cpu);
        match self.kernel.callbacks.yield_ {
            Some(callback) => {
                if let Some((kernel, state)) = self.parts() {
                    kernel.account(state, cpu.index());
                }
                let address = self.address(task);
                self.call(Some(callback), Purpose::Other, &[address, 0]);
            }
            None => {
                if let Some((kernel, state)) = self.parts() {
                    kernel.set_slice_ns(state, task, 0);
                }
            }
        }
        self.end(ctx);
    }

    fn yield_to(&mut self, ctx: &mut Context<'_>, cpu: CpuId, task: TaskId, target: TaskId) -> bool {
        self.begin(ctx, cpu);
        let Some(callback) = self.kernel.callbacks.yield_ else { return false };
        if let Some((kernel, state)) = self.parts() {
            kernel.account(state, cpu.index());
        }
        let arguments = [self.address(task), self.address(target)];
        let yields = self.call(Some(callback), Purpose::Other, &arguments) & 1 != 0;
        let other = self.kernel.tasks[target.index()].cpu;
        if yields && other != cpu.index() {
            // As `yield_to()` does for every class; the task there goes on while it has slice left.
            self.kernel.resched.push(CpuId::from(other));
        }
        self.end(ctx);
        yields
    }

    fn queue_of(&self, task: TaskId) -> Option<CpuId> {
        let task = self.kernel.tasks.get(task.index())?;
        task.is_queued.then(|| CpuId::from(task.cpu))
    }

    fn queue_length(&self, cpu: CpuId) -> usize {
        self.kernel.cpus[cpu.index()].nr_running
    }

    fn wakes_by_interrupt(&self, _: CpuId, _: CpuId) -> bool {
        // Not without SCX_OPS_ALLOW_QUEUED_WAKEUP: schedulers expect to be asked on the waker's CPU.
        false
    }

    fn affinity_changed(&mut self, ctx: &mut Context<'_>, task: TaskId) {
        if !self.is_known(task) {
            return;
        }
        let at = self.kernel.tasks[task.index()].cpu;
        self.begin(ctx, CpuId::from(at));
        let facts = &ctx.tasks[task.index()];
        let runs = self.kernel.cpus[at].curr == Some(task);
        let waits = self.kernel.tasks[task.index()].is_queued && !runs;
        if waits {
            self.make_quiescent(task, 0);
        }
        let Some((kernel, state)) = self.parts() else { return };
        if let Err(fault) = kernel.set_affinity(state, task, &facts.hard_affinity) {
            self.fail(fault.to_string());
        }
        let arguments = [self.address(task), self.kernel.tasks[task.index()].cpus_mask];
        self.call(self.kernel.callbacks.set_cpumask, Purpose::Other, &arguments);
        if let Err(fault) = self.tell_preference(task, facts) {
            self.fail(fault.to_string());
        }
        let Some((kernel, state)) = self.parts() else { return };
        let to = kernel.allowed_cpu(state, task, at);
        if waits {
            self.make_runnable(task, to, 0);
        } else if runs && to != at {
            self.kernel.resched.push(CpuId::from(at));
        }
        self.end(ctx);
    }

    fn tick_period_ns(&self) -> u64 {
        self.settings.tick_period_ns
    }

    fn tick_delay_ns(&mut self) -> u64 {
        match self.settings.tick_delay_max_ns {
            0 => 0,
            max_ns => self.kernel.next_random() % (max_ns + 1),
        }
    }

    fn tick(&mut self, ctx: &mut Context<'_>, cpu: CpuId, task: TaskId) {
        self.begin(ctx, cpu);
        let period_ns = self.settings.tick_period_ns;
        if let Some((kernel, state)) = self.parts() {
            kernel.account(state, cpu.index());
            // As kernels do that are not built to account exactly: who is there at a tick has run since the last one.
            kernel.add(state, task, field!(Task, utime), period_ns);
            if let Some(stat) = state.variable("kernel_cpustat", cpu.index()) {
                let stolen_ns = ctx.stolen_ns[cpu.index()];
                let _ = state.memory.store(stat + CPUTIME_STEAL as u64 * 8, 8, stolen_ns);
            }
        }
        let address = self.address(task);
        self.call(self.kernel.callbacks.tick, Purpose::Other, &[address]);
        if let Some((kernel, state)) = self.parts()
            && kernel.slice_ns(state, task) == 0
        {
            kernel.resched.push(cpu);
        }
        self.end(ctx);
    }

    fn alarm(&mut self, ctx: &mut Context<'_>, cpu: CpuId, token: u32) {
        self.begin(ctx, cpu);
        if self.finish_put_back(token) {
            return self.end(ctx);
        }
        // It may have been stopped, or started again.
        let Some(timer) = self.kernel.armed.remove(&token) else { return };
        self.kernel.timers.remove(&timer);
        if let (Some(instance), None) = (&mut self.instance, &self.failure)
            && let Err(fault) = instance.timer_expired(&mut self.kernel, timer)
        {
            self.fail(fault.to_string());
        }
        self.end(ctx);
    }

    fn is_interrupt(&self, token: u32) -> bool {
        self.kernel.returning.iter().all(|&(returns, _)| returns != token)
    }

    fn timer_period_ns(&self) -> u64 {
        u64::MAX
    }

    fn timer(&mut self, _: &mut Context<'_>) {}

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut counters =
            vec![("decisions", self.decisions), ("kicks", self.kicks), ("wakeups", self.wakeups)];
        if let Some(own) = &self.settings.counters {
            let before = self.counted_before.iter().copied().chain(std::iter::repeat(0));
            let since =
                self.own_counters().into_iter().zip(before).map(|(now, before)| now.wrapping_sub(before));
            counters.extend(own.names.iter().copied().zip(since));
        }
        counters
    }

    fn reset_counters(&mut self) {
        (self.decisions, self.kicks, self.wakeups) = (0, 0, 0);
        self.counted_before = self.own_counters();
    }
}
