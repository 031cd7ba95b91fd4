//! Translates the questions of the simulator to a policy into the kernel's calls of the scheduler.

use super::SchedExt;
use super::cost::Decision;
use super::cycle::Balance;
use super::kernel::{PF_EXITING, Purpose, Wakeup};
use super::scheduler::Scheduler;
use super::structures::field;
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
        let from = (by.map_or(0, CpuId::index), by.is_none());
        let cpu = self.act_from(ctx, from, |scheduler, ctx| {
            let facts = &ctx.tasks[task.index()];
            scheduler.costs.begin(scheduler.kernel.run_queues().queues().visited());
            if !scheduler.is_known(task) {
                let is_new = reason.is_new();
                let begun = scheduler.init_task(task, facts, by, is_new);
                let begun = begun.and_then(|()| scheduler.enable_task(task, facts, is_new));
                scheduler.check(begun);
            }
            let prev_cpu = scheduler.cpu_of(task);
            if by.is_none() {
                scheduler.kernel.set_cpu(prev_cpu);
            }
            let cpu = match facts.hard_affinity.count() > 1 {
                true => select(scheduler, task, prev_cpu, flags),
                false => prev_cpu,
            };
            let (kernel, state) = scheduler.parts();
            kernel.allowed_cpu(state, task, cpu)
        });
        CpuId::from(cpu.unwrap_or(0))
    }

    fn enqueue(&mut self, ctx: &mut Context<'_>, task: TaskId, cpu: CpuId, reason: Reason) {
        let (by, flags) = match reason {
            Reason::Start => (cpu, 0),
            Reason::Fork { cpu: by, .. } | Reason::Exec { cpu: by } => (by, 0),
            Reason::Wake { cpu: by, .. } => (by, SCX_ENQ_WAKEUP),
        };
        self.wakeups += 1;
        self.act_from(ctx, (by.index(), matches!(reason, Reason::Start)), |scheduler, _| {
            scheduler.make_runnable(task, cpu.index(), flags);
            scheduler.costs.end(Decision::Wake, scheduler.kernel.run_queues().queues().visited());
        });
    }

    fn dispatch(&mut self, ctx: &mut Context<'_>, cpu: CpuId, previous: Option<TaskId>) -> Dispatch {
        self.decisions += 1;
        let next = self.act(ctx, cpu.index(), |scheduler, _| {
            scheduler.costs.begin(scheduler.kernel.run_queues().queues().visited());
            let next = choose(scheduler, cpu.index(), previous);
            scheduler.costs.end(Decision::Dispatch, scheduler.kernel.run_queues().queues().visited());
            next
        });
        Dispatch { task: next.flatten(), slice_ns: Dispatch::NO_SLICE }
    }

    fn running(&mut self, ctx: &mut Context<'_>, cpu: CpuId, task: TaskId) {
        let at = cpu.index();
        self.act(ctx, at, |scheduler, ctx| {
            let clock_ns = scheduler.kernel.clock_ns();
            let (queues, state) = scheduler.queues();
            queues.set_current(state, at, Some(task));
            queues.cpu_mut(at).accounted_ns = ctx.now_ns;
            queues.tasks().set(state, task, field!(Task, se.exec_start), clock_ns);
            queues.tasks().note_arrives(state, task, clock_ns);
            let address = scheduler.address(task);
            scheduler.call(scheduler.kernel.callbacks().running, Purpose::Other, &[address]);
            let (queues, state) = scheduler.queues();
            let slice_ns = queues.tasks().slice_ns(state, task);
            queues.cpu_mut(at).can_stop_tick = slice_ns == SCX_SLICE_INF;
        });
    }

    fn blocked(&mut self, ctx: &mut Context<'_>, cpu: CpuId, task: TaskId) {
        self.act(ctx, cpu.index(), |scheduler, _| {
            scheduler.make_quiescent(task, SCX_DEQ_SLEEP);
            let (queues, state) = scheduler.queues();
            queues.tasks().add(state, task, field!(Task, nvcsw), 1);
            queues.set_current(state, cpu.index(), None);
        });
    }

    fn exits(&mut self, task: TaskId) {
        if let Ok(scheduler) = &mut self.scheduler
            && scheduler.is_known(task)
        {
            let (queues, state) = scheduler.queues();
            let flags = queues.tasks().get(state, task, field!(Task, flags));
            queues.tasks().set(state, task, field!(Task, flags), flags | PF_EXITING);
        }
    }

    fn exited(&mut self, ctx: &mut Context<'_>, task: TaskId) {
        if self.cpu_of_known(task).is_none() {
            return;
        }
        // The kernel ends a task on its last CPU.
        let cpu = self.scheduler.as_ref().map_or(0, |scheduler| scheduler.kernel.cpu());
        self.act(ctx, cpu, |scheduler, _| {
            let (address, arguments) = (scheduler.address(task), scheduler.kernel.exit_task_args());
            scheduler.call(scheduler.kernel.callbacks().disable, Purpose::Other, &[address]);
            scheduler.call(scheduler.kernel.callbacks().exit_task, Purpose::Other, &[address, arguments]);
            let (kernel, state) = scheduler.parts();
            kernel.free_task(state, task);
        });
    }

    fn yielded(&mut self, ctx: &mut Context<'_>, cpu: CpuId, task: TaskId) {
        self.act(ctx, cpu.index(), |scheduler, _| match scheduler.kernel.callbacks().yield_ {
            Some(callback) => {
                let (kernel, state) = scheduler.parts();
                kernel.account(state, cpu.index());
                let address = scheduler.address(task);
                scheduler.call(Some(callback), Purpose::Other, &[address, 0]);
            }
            None => {
                let (queues, state) = scheduler.queues();
                queues.tasks().set_slice_ns(state, task, 0);
            }
        });
    }

    fn yield_to(&mut self, ctx: &mut Context<'_>, cpu: CpuId, task: TaskId, target: TaskId) -> bool {
        let yields = self.act(ctx, cpu.index(), |scheduler, _| {
            let Some(callback) = scheduler.kernel.callbacks().yield_ else { return false };
            let (kernel, state) = scheduler.parts();
            kernel.account(state, cpu.index());
            let arguments = [scheduler.address(task), scheduler.address(target)];
            let yields = scheduler.call(Some(callback), Purpose::Other, &arguments) & 1 != 0;
            let other = scheduler.cpu_of(target);
            if yields && other != cpu.index() {
                // As `yield_to()` does for every class; the task there goes on while it has slice left.
                scheduler.kernel.run_queues_mut().pending_mut().reschedule(other);
            }
            yields
        });
        yields.unwrap_or(false)
    }

    fn queue_of(&self, task: TaskId) -> Option<CpuId> {
        let task = self.scheduler.as_ref().ok()?.kernel.run_queues().tasks().state(task)?;
        task.is_queued.then(|| CpuId::from(task.cpu))
    }

    fn queue_length(&self, cpu: CpuId) -> usize {
        self.scheduler
            .as_ref()
            .map_or(0, |scheduler| scheduler.kernel.run_queues().cpu(cpu.index()).nr_running)
    }

    fn wakes_by_interrupt(&self, _: CpuId, _: CpuId) -> bool {
        // Not without SCX_OPS_ALLOW_QUEUED_WAKEUP: schedulers expect to be asked on the waker's CPU.
        false
    }

    fn affinity_changed(&mut self, ctx: &mut Context<'_>, task: TaskId) {
        let Some(at) = self.cpu_of_known(task) else { return };
        self.act(ctx, at, |scheduler, ctx| {
            let facts = &ctx.tasks[task.index()];
            let queues = scheduler.kernel.run_queues();
            let runs = queues.runs(task);
            let waits = queues.tasks()[task].is_queued && !runs;
            if waits {
                scheduler.make_quiescent(task, 0);
            }
            let (kernel, state) = scheduler.parts();
            let result = kernel.set_affinity(state, task, &facts.hard_affinity);
            scheduler.check(result);
            scheduler.tell_affinity(task, &facts.hard_affinity);
            let result = scheduler.set_preference(task, facts);
            scheduler.check(result);
            let (kernel, state) = scheduler.parts();
            let to = kernel.allowed_cpu(state, task, at);
            if waits {
                scheduler.make_runnable(task, to, 0);
            } else if runs && to != at {
                scheduler.kernel.run_queues_mut().pending_mut().reschedule(at);
            }
        });
    }

    fn tick_period_ns(&self) -> u64 {
        self.settings.tick_period_ns
    }

    fn tick_delay_ns(&mut self) -> u64 {
        match (self.settings.tick_delay_max_ns, &mut self.scheduler) {
            (0, _) | (_, Err(_)) => 0,
            (max_ns, Ok(scheduler)) => scheduler.kernel.random().next() % (max_ns + 1),
        }
    }

    fn stops_tick(&self, cpu: CpuId) -> bool {
        let scheduler = self.scheduler.as_ref();
        scheduler.is_ok_and(|scheduler| scheduler.kernel.run_queues().cpu(cpu.index()).can_stop_tick)
    }

    fn tick(&mut self, ctx: &mut Context<'_>, cpu: CpuId, task: TaskId) {
        let at = cpu.index();
        let period_ns = self.settings.tick_period_ns;
        self.act(ctx, at, |scheduler, ctx| {
            scheduler.costs.begin(scheduler.kernel.run_queues().queues().visited());
            let (kernel, state) = scheduler.parts();
            kernel.account(state, at);
            let queues = kernel.run_queues();
            // As in kernels without exact accounting: the task that runs at a tick has run since the last
            // one.
            queues.tasks().add(state, task, field!(Task, utime), period_ns);
            let steal = queues.cpu(at).steal;
            if steal != 0 {
                let _ = state.memory.store(steal, 8, ctx.stolen_ns[at]);
            }
            let address = scheduler.address(task);
            scheduler.call(scheduler.kernel.callbacks().tick, Purpose::Other, &[address]);
            let (queues, state) = scheduler.queues();
            if queues.tasks().slice_ns(state, task) == 0 {
                queues.pending_mut().reschedule(at);
            }
            scheduler.costs.end(Decision::Tick, scheduler.kernel.run_queues().queues().visited());
        });
    }

    fn alarm(&mut self, ctx: &mut Context<'_>, cpu: CpuId, token: u32) {
        self.act(ctx, cpu.index(), |scheduler, _| {
            if let Some(task) = scheduler.kernel.timers_mut().returned(token) {
                // The decision in which it was put back is over.
                scheduler.give(task, 0);
            } else if let Some(timer) = scheduler.kernel.timers_mut().expire(token) {
                scheduler.call_timer(timer);
            }
        });
    }

    fn is_interrupt(&self, token: u32) -> bool {
        self.scheduler.as_ref().is_ok_and(|scheduler| !scheduler.kernel.timers().is_return(token))
    }

    fn timer_period_ns(&self) -> u64 {
        u64::MAX
    }

    fn timer(&mut self, _: &mut Context<'_>) {}

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut counters =
            vec![("decisions", self.decisions), ("kicks", self.kicks), ("wakeups", self.wakeups)];
        if let Some(own) = &self.settings.counters {
            counters.extend(own.names.iter().copied().zip(self.counted()));
        }
        counters
    }

    fn reset_counters(&mut self) {
        (self.decisions, self.kicks, self.wakeups) = (0, 0, 0);
        self.counted_before = self.own_counters();
        if let Ok(scheduler) = &mut self.scheduler {
            scheduler.costs.reset();
        }
    }
}

/// The CPU that the scheduler, or else the kernel, chooses for a task that wakes.
fn select(scheduler: &mut Scheduler, task: TaskId, prev_cpu: usize, flags: u64) -> usize {
    let callback = scheduler.kernel.callbacks().select_cpu;
    if callback.is_some() {
        let arguments = [scheduler.address(task), scheduler.kernel.cpu_argument(prev_cpu), flags];
        let chosen = scheduler.call(callback, Purpose::Place(task), &arguments) as i32;
        return match scheduler.kernel.cpu_returned(chosen) {
            Some(chosen) => chosen,
            None => {
                let [callback, what] = match scheduler.kernel.callbacks().is_by_cid {
                    true => ["select_cid", "cid"],
                    false => ["select_cpu", "CPU"],
                };
                scheduler.fail(format!("`{callback}` chose {what} {chosen}, which does not exist"));
                prev_cpu
            }
        };
    }
    let (kernel, state) = scheduler.parts();
    let wakeup = Wakeup { task, prev_cpu, wake_flags: flags, allowed: None, flags: 0 };
    match kernel.select_default(state, wakeup) {
        Ok(Some(chosen)) => {
            let tasks = kernel.run_queues_mut().tasks_mut();
            tasks.refill(state, task);
            tasks[task].direct = Some((SCX_DSQ_LOCAL, 0));
            chosen
        }
        Ok(None) => prev_cpu,
        Err(fault) => {
            scheduler.fail(fault.to_string());
            prev_cpu
        }
    }
}

/// The next task of a CPU, after `previous` if that could go on.
fn choose(scheduler: &mut Scheduler, cpu: usize, previous: Option<TaskId>) -> Option<TaskId> {
    let (kernel, state) = scheduler.parts();
    kernel.account(state, cpu);
    kernel.run_queues_mut().cpu_mut(cpu).in_balance = true;
    // Its affinity may have changed under it.
    let previous = previous.filter(|&task| !scheduler.leave_if_forbidden(task, cpu));
    scheduler.acquire(cpu);
    let balance = scheduler.balance(cpu, previous);
    let local = &scheduler.kernel.run_queues().queues()[cpu];
    let waiting = local.len();
    let next = match balance {
        Balance::Keep => previous,
        Balance::Local => local.first(),
        Balance::Nothing => None,
    };
    if next != previous
        && let Some(task) = previous
    {
        scheduler.put_back(cpu, task, next.is_none());
    }
    let (queues, state) = scheduler.queues();
    if let Some(task) = next {
        queues.leave_queue(state, task);
        if queues.tasks().slice_ns(state, task) == 0 {
            queues.tasks().refill(state, task);
        }
    }
    queues.cpu_mut(cpu).has_next = next.is_some();
    // Of the tasks that must run at once, those after the first came while the next task was not known.
    if !matches!(balance, Balance::Nothing) && waiting > 1 {
        queues.recall_immediate(cpu);
    }
    queues.cpu_mut(cpu).in_balance = false;
    let idled = std::mem::replace(&mut queues.cpu_mut(cpu).is_idle, next.is_none());
    if idled || next.is_none() {
        scheduler.note_idle(cpu, next.is_none(), idled != next.is_none());
    }
    if next.is_none() {
        let (queues, state) = scheduler.queues();
        queues.set_current(state, cpu, None);
        // The CPU sees tasks at once that came into the local queue while it was deciding.
        if !queues.queues()[cpu].is_empty() {
            queues.pending_mut().reschedule(cpu);
        }
    }
    next
}
