//! The questions that the simulator asks a policy, as the kernel would come to ask the scheduler.

use super::SchedExt;
use super::cost::{Costs, Decision};
use super::cycle::Balance;
use super::idle::PF_EXITING;
use super::kernel::{Purpose, field};
use super::types::{
    SCX_DEQ_SLEEP, SCX_DSQ_LOCAL, SCX_ENQ_WAKEUP, SCX_SLICE_INF, SCX_WAKE_FORK, SCX_WAKE_SYNC, SCX_WAKE_TTWU,
    Task,
};
use crate::policy::{Context, Dispatch, Policy, Reason};
use tandem_ebpf::Kernel;
use tandem_machine::ids::{CpuId, TaskId};

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
        self.kernel.from_outside = by.is_none();
        self.begin_decision();
        let facts = &ctx.tasks[task.index()];
        if !self.is_known(task)
            && let Err(fault) = self.begin_task(task, facts, by, reason.is_new())
        {
            self.fail(fault.to_string());
        }
        let mut cpu = self.kernel.tasks.get(task.index()).map_or(0, |task| task.cpu);
        if by.is_none() {
            self.kernel.cpu = cpu;
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
        self.kernel.from_outside = matches!(reason, Reason::Start);
        self.wakeups += 1;
        self.make_runnable(task, cpu.index(), flags);
        self.end_decision(Decision::Wake);
        self.end(ctx);
    }

    fn dispatch(&mut self, ctx: &mut Context<'_>, cpu: CpuId, previous: Option<TaskId>) -> Dispatch {
        self.begin(ctx, cpu);
        self.begin_decision();
        self.decisions += 1;
        let at = cpu.index();
        let mut previous = previous;
        if let Some((kernel, state)) = self.parts() {
            kernel.account(state, at);
            kernel.cpus[at].in_balance = true;
        }
        // Its affinity may have changed under it.
        previous = previous.filter(|&task| !self.leave_if_forbidden(task, at));
        self.acquire(at);
        let balance = self.balance(at, previous);
        let waiting = self.kernel.queues[at].len();
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
        self.kernel.cpus[at].has_next = next.is_some();
        // Of those that are to run at once, others than the first came while it was not known what is next.
        if !matches!(balance, Balance::Nothing) && waiting > 1 {
            self.kernel.recall_immediate(at);
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
        self.end_decision(Decision::Dispatch);
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
        if let Some((kernel, state)) = self.parts() {
            kernel.cpus[cpu.index()].can_stop_tick = kernel.slice_ns(state, task) == SCX_SLICE_INF;
        }
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

    fn exits(&mut self, task: TaskId) {
        if !self.is_known(task) {
            return;
        }
        if let Some((kernel, state)) = self.parts() {
            kernel.set(state, task, field!(Task, flags), PF_EXITING);
        }
    }

    fn exited(&mut self, ctx: &mut Context<'_>, task: TaskId) {
        self.kernel.now_ns = ctx.now_ns;
        if !self.is_known(task) {
            return;
        }
        let arguments = self.kernel.exit_task_args;
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

    fn stops_tick(&self, cpu: CpuId) -> bool {
        self.kernel.cpus[cpu.index()].can_stop_tick
    }

    fn tick(&mut self, ctx: &mut Context<'_>, cpu: CpuId, task: TaskId) {
        self.begin(ctx, cpu);
        self.begin_decision();
        let period_ns = self.settings.tick_period_ns;
        if let Some((kernel, state)) = self.parts() {
            kernel.account(state, cpu.index());
            // As kernels do that are not built to account exactly: who is there at a tick has run since the last one.
            kernel.add(state, task, field!(Task, utime), period_ns);
            let steal = kernel.cpus[cpu.index()].steal;
            if steal != 0 {
                let _ = state.memory.store(steal, 8, ctx.stolen_ns[cpu.index()]);
            }
        }
        let address = self.address(task);
        self.call(self.kernel.callbacks.tick, Purpose::Other, &[address]);
        if let Some((kernel, state)) = self.parts()
            && kernel.slice_ns(state, task) == 0
        {
            kernel.resched.push(cpu);
        }
        self.end_decision(Decision::Tick);
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
        self.kernel.in_timer = true;
        if let (Some(instance), None) = (&mut self.instance, &self.failure)
            && let Err(fault) = instance.timer_expired(&mut self.kernel, timer)
        {
            self.fail(fault.to_string());
        }
        self.kernel.in_timer = false;
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
        self.costs = Costs::default();
    }
}
