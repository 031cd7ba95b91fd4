//! Scheduling at one level: wake-ups, ticks, decisions and switches, the same for the host and for guests.

use super::decision_cost::{charge_decision, charge_locked, charge_queues};
use super::presence::{Presence, take};
use super::{CpuRef, HOST, System, TaskState, TimerTarget};
use crate::engine::event_queue::NEVER;
use crate::policy::{Alarm, Dispatch, Later, Policy, Reason};
use crate::trace::{EventKind, Observer};
use std::sync::Arc;
use tandem_machine::cpumask::CpuMask;
use tandem_machine::ids::{CpuId, TaskId};

/// Why a CPU decides anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaving {
    /// Its task can go on.
    Preempt,
    /// Its task gives way, but can go on.
    Yield,
    /// The same, and the policy knows already in favour of which task.
    YieldTo,
    /// Its task cannot go on now.
    Block,
    /// Its task has ended.
    Exit,
    /// Its task goes on, on this other CPU, where it has been queued.
    Move(CpuId),
}

impl Leaving {
    /// Whether the task can go on, on its CPU.
    #[inline]
    pub fn can_go_on(self) -> bool {
        matches!(self, Self::Preempt | Self::Yield | Self::YieldTo)
    }
}

/// What wakes a task, on some CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waker {
    /// The task that runs there; `sync` says that it is about to block.
    Task { sync: bool },
    /// An interrupt, of a timer or a device. As in Linux, the policy takes what it interrupts for the waker.
    Interrupt,
}

impl<O: Observer> System<O> {
    /// Gives a new task to a kernel's policy, runnable.
    pub fn start(&mut self, kernel: usize, task: TaskId, now_ns: u64) {
        let cpu = self.kernels[kernel].ask(now_ns, |policy, ctx| policy.select_cpu(ctx, task, Reason::Start));
        self.kernels[kernel][task].last_cpu = cpu;
        self.kernels[kernel][task].start(now_ns);
        self.make_runnable(kernel, task, cpu, Reason::Start, None, now_ns);
        self.deliver_kicks(CpuRef { kernel, cpu }, now_ns);
    }

    /// Starts a task that the one on the CPU has forked: the policy chooses where.
    pub fn start_child(&mut self, on: CpuRef, parent: TaskId, child: TaskId, now_ns: u64) {
        let kernel = &mut self.kernels[on.kernel];
        let reason = Reason::Fork { parent, cpu: on.cpu };
        let cpu = kernel.ask(now_ns, |policy, ctx| policy.select_cpu(ctx, child, reason));
        // It comes from its parent's CPU: another one counts as a migration, as in Linux.
        kernel[child].last_cpu = on.cpu;
        kernel[child].start(now_ns);
        charge_queues(&mut self.kernels, &mut self.processors, on);
        self.make_runnable(on.kernel, child, cpu, reason, Some((on.cpu, Some(parent))), now_ns);
        self.deliver_kicks(on, now_ns);
        self.returns_to_task(on, now_ns);
    }

    /// Wakes a blocked task. `by` is the CPU on which that happens, whose time must be settled.
    pub fn wake(&mut self, task: TaskId, now_ns: u64, by: CpuRef, waker: Waker) {
        let kernel = &mut self.kernels[by.kernel];
        if kernel[task].state() != TaskState::Blocked {
            return;
        }
        self.events += 1;
        let current = kernel[by.cpu].current;
        let (sync, waker) = match waker {
            Waker::Task { sync } => (sync, current),
            Waker::Interrupt => (false, None),
        };
        let reason = Reason::Wake { waker: current, cpu: by.cpu, sync };
        let cpu = kernel.ask(now_ns, |policy, ctx| policy.select_cpu(ctx, task, reason));
        charge_queues(&mut self.kernels, &mut self.processors, by);
        let kernel = &self.kernels[by.kernel];
        if by.is_host() && cpu != by.cpu && !kernel.policy().wakes_by_interrupt(by.cpu, cpu) {
            let hold_ns = kernel.work_under_lock_ns();
            self.processors.lock_queue(&mut self.kernels, by.cpu, cpu, hold_ns);
        }
        self.kernels[by.kernel][task].wake(now_ns);
        self.make_runnable(by.kernel, task, cpu, reason, Some((by.cpu, waker)), now_ns);
        charge_locked(&mut self.kernels, &mut self.processors, by);
        self.deliver_kicks(by, now_ns);
        self.returns_to_task(by, now_ns);
    }

    /// Puts a task, which has started or woken up, in a queue. `by` is for the observer.
    fn make_runnable(
        &mut self,
        kernel: usize,
        task: TaskId,
        cpu: CpuId,
        reason: Reason,
        by: Option<(CpuId, Option<TaskId>)>,
        now_ns: u64,
    ) {
        let state = &self.kernels[kernel][task];
        if let Some(guest) = state.guest() {
            self.kernels[guest].deprived_since_ns = now_ns;
        }
        self.note(now_ns, EventKind::Wake, CpuRef { kernel, cpu }, task, by);
        self.kernels[kernel].ask(now_ns, |policy, ctx| policy.enqueue(ctx, task, cpu, reason));
    }

    /// Sends the kicks that the policy asked for, from the CPU `by`: at once to itself, by an interrupt to
    /// others.
    pub fn deliver_kicks(&mut self, by: CpuRef, now_ns: u64) {
        if by.is_host() {
            self.end_crowded_polls(now_ns);
        }
        if self.kernels[by.kernel].outbox_mut().is_quiet() {
            return;
        }
        let kicked = self.kernels[by.kernel].outbox_mut().take_kicked();
        for &cpu in &kicked {
            self.kick(cpu, by, now_ns);
        }
        self.kernels[by.kernel].outbox_mut().reuse_kicked(kicked);
        let kernel = &self.kernels[by.kernel];
        self.idle_beside[by.kernel].kicked(now_ns, |cpu| kernel[cpu].may_idle());
        self.has_failed |= self.kernels[by.kernel].failure().is_some();
        let alarms = self.kernels[by.kernel].outbox_mut().take_alarms();
        for &Alarm { cpu, at_ns, token } in &alarms {
            let on = CpuRef { kernel: by.kernel, cpu };
            self.arm(on, at_ns, TimerTarget::Policy(token));
            if let Some(pcpu) = self.kernels[on].pcpu {
                self.processors.refresh(&self.kernels, pcpu);
            }
        }
        self.kernels[by.kernel].outbox_mut().reuse_alarms(alarms);
        let later = self.kernels[by.kernel].outbox_mut().take_later();
        for &what in &later {
            match what {
                Later::AtReturn(cpu) if cpu == by.cpu => self.kick(cpu, by, now_ns),
                Later::AtReturn(cpu) => self.kernels[by.kernel][cpu].resched_at_return = true,
                Later::At { cpu, at_ns } => self.start_turn_timer(CpuRef { cpu, ..by }, at_ns, by, now_ns),
            }
        }
        self.kernels[by.kernel].outbox_mut().reuse_later(later);
    }

    /// Makes one CPU reschedule, from another one of its kernel or from itself.
    fn kick(&mut self, cpu: CpuId, by: CpuRef, now_ns: u64) {
        match by.is_host() {
            true => self.kicks.send(&mut self.kernels, &mut self.processors, cpu, by.cpu, now_ns),
            false => self.kick_vcpu(CpuRef { cpu, ..by }, by, now_ns),
        }
    }

    /// Starts the timer that ends the turn of the task on a CPU. Another CPU does it in an interrupt.
    fn start_turn_timer(&mut self, on: CpuRef, at_ns: u64, by: CpuRef, now_ns: u64) {
        self.kernels[on].turn_end_ns = at_ns;
        if on != by {
            match by.is_host() {
                true => {
                    let sent_ns = self.processors[by.cpu].settled_ns.max(now_ns);
                    let arrives_ns = sent_ns + self.processors.hardware.ipi_ns();
                    self.arm(on, arrives_ns, TimerTarget::StartTurnTimer);
                }
                false => self.interrupt_vcpu(by, on, TimerTarget::StartTurnTimer, now_ns),
            }
        }
        if let Some(pcpu) = self.kernels[on].pcpu {
            self.processors.refresh(&self.kernels, pcpu);
        }
    }

    /// The timer that ends the turn of the task on the CPU has expired.
    pub fn turn_ends(&mut self, on: CpuRef, now_ns: u64) {
        self.kernels[on].turn_end_ns = NEVER;
        self.processors.charge_interrupt(&mut self.kernels, on, now_ns);
        let kernel = &self.kernels[on.kernel];
        if on.is_host() {
            let hold_ns = kernel.work_under_lock_ns();
            self.processors.lock_queue(&mut self.kernels, on.cpu, on.cpu, hold_ns);
        }
        if let Some(task) = self.kernels[on].current {
            self.kernels[on.kernel].ask(now_ns, |policy, ctx| policy.turn_ends(ctx, on.cpu, task));
            self.deliver_kicks(on, now_ns);
        }
        self.returns_to_task(on, now_ns);
    }

    /// The CPU is about to return from its kernel to its task: it decides first, if it was asked to do so
    /// then.
    #[inline]
    pub fn returns_to_task(&mut self, on: CpuRef, now_ns: u64) {
        let cpu = &mut self.kernels[on];
        if std::mem::take(&mut cpu.resched_at_return) {
            cpu.resched_ns = cpu.resched_ns.min(now_ns);
            if let Some(pcpu) = cpu.pcpu {
                self.processors.refresh(&self.kernels, pcpu);
            }
        }
    }

    /// A timer of a kernel's policy has expired on the CPU.
    pub fn policy_alarm(&mut self, on: CpuRef, token: u32, now_ns: u64) {
        self.kernels[on.kernel].ask(now_ns, |policy, ctx| policy.alarm(ctx, on.cpu, token));
        charge_queues(&mut self.kernels, &mut self.processors, on);
        self.deliver_kicks(on, now_ns);
    }

    /// A tick on a CPU that runs a task.
    pub fn tick(&mut self, on: CpuRef, now_ns: u64) {
        self.processors.charge_interrupt(&mut self.kernels, on, now_ns);
        if on.is_host()
            && let Some(numa) = &mut self.numa
        {
            numa.tick(&mut self.kernels, &mut self.processors, on.cpu, now_ns);
            charge_queues(&mut self.kernels, &mut self.processors, on);
            self.deliver_kicks(on, now_ns);
        }
        let kernel = &self.kernels[on.kernel];
        if on.is_host() && kernel.policy().holds_locks_long() {
            let hold_ns = kernel.work_under_lock_ns();
            self.processors.lock_queue(&mut self.kernels, on.cpu, on.cpu, hold_ns);
        }
        let kernel = &mut self.kernels[on.kernel];
        kernel.ticks_mut().handled(on.cpu, now_ns);
        kernel[on.cpu].tick_ns = kernel.next_tick_ns(on.cpu, now_ns);
        if let Some(task) = kernel[on.cpu].current {
            kernel.ask(now_ns, |policy, ctx| policy.tick(ctx, on.cpu, task));
            charge_queues(&mut self.kernels, &mut self.processors, on);
            self.deliver_kicks(on, now_ns);
        }
        self.returns_to_task(on, now_ns);
    }

    /// The timer of the host's policy, on CPU 0.
    pub fn policy_timer(&mut self, now_ns: u64) {
        self.kernels.host_mut().ask(now_ns, |policy, ctx| policy.timer(ctx));
        self.deliver_kicks(CpuRef::host(CpuId(0)), now_ns);
    }

    /// Changes where a vCPU may and prefers to run.
    pub fn change_affinity(
        &mut self,
        task: TaskId,
        hard: Arc<CpuMask>,
        soft: Option<Arc<CpuMask>>,
        now_ns: u64,
    ) {
        // Linux refuses that.
        if !hard.intersects(&self.online) {
            return;
        }
        let kernel = self.kernels.host_mut();
        let facts = kernel.tasks_mut().facts_mut(task);
        facts.past_cpu = facts.past_cpu.filter(|&cpu| hard.contains(cpu));
        facts.hard_affinity = hard;
        facts.soft_affinity = soft;
        self.idle_beside[HOST].moves(task, facts);
        kernel.ask(now_ns, |policy, ctx| policy.affinity_changed(ctx, task));
        self.deliver_kicks(CpuRef::host(CpuId(0)), now_ns);
    }

    /// The slice ended or a kick arrived: decide anew.
    pub fn reschedule(&mut self, on: CpuRef, now_ns: u64) {
        if on.is_host() && self.processors[on.cpu].polls {
            return self.poll_ends(on.cpu, now_ns);
        }
        if on.is_host() && self.kernels[on].presence != Presence::Present {
            self.processors.settle(&mut self.kernels, on.cpu, now_ns);
            if !self.kernels[on].is_to_decide(now_ns) {
                return;
            }
        }
        let cpu = &mut self.kernels[on];
        self.events += u64::from(cpu.slice_end_ns <= now_ns);
        if std::mem::take(&mut cpu.kicked_from_afar)
            && let Some(pcpu) = cpu.pcpu
        {
            self.processors.settle(&mut self.kernels, pcpu, now_ns);
            self.processors.charge_exit(&mut self.kernels, pcpu);
            self.returns_to_task(CpuRef::host(pcpu), now_ns);
        }
        if !self.kernels[on.kernel].defers_preemption(on.cpu) {
            self.decide(on, now_ns, Leaving::Preempt);
        }
    }

    /// The task on the CPU begins another program; whether it has moved to another CPU for that. (Linux
    /// lets its stopper thread move it, which is two more switches.)
    pub fn exec(&mut self, on: CpuRef, task: TaskId, now_ns: u64) -> bool {
        let reason = Reason::Exec { cpu: on.cpu };
        let to = self.kernels[on.kernel].ask(now_ns, |policy, ctx| policy.select_cpu(ctx, task, reason));
        charge_queues(&mut self.kernels, &mut self.processors, on);
        if to == on.cpu {
            return false;
        }
        if let Some(cost) = self.kernels[on.kernel].context_switch() {
            self.processors.charge(&mut self.kernels, on, 2 * (cost.decision_ns + cost.switch_ns));
        }
        self.decide(on, now_ns, Leaving::Move(to));
        true
    }

    /// Asks the policy what the CPU runs next, and switches to it.
    pub fn decide(&mut self, on: CpuRef, now_ns: u64, leaving: Leaving) {
        let Some(pcpu) = self.kernels[on].pcpu else { return };
        self.processors.settle(&mut self.kernels, pcpu, now_ns);
        let is_host = on.is_host();
        let before = self.kernels[on].current;
        if is_host && before.is_some() && !matches!(leaving, Leaving::Preempt | Leaving::YieldTo) {
            self.processors.charge_exit(&mut self.kernels, pcpu);
        }
        let kernel = &mut self.kernels[on.kernel];
        match (before, leaving) {
            (Some(task), Leaving::Yield) => {
                kernel.ask(now_ns, |policy, ctx| policy.yielded(ctx, on.cpu, task))
            }
            (Some(task), Leaving::Block | Leaving::Exit | Leaving::Move(_)) => {
                kernel.ask(now_ns, |policy, ctx| policy.blocked(ctx, on.cpu, task));
            }
            _ => {}
        }
        if let (Some(task), Leaving::Move(to)) = (before, leaving) {
            let reason = Reason::Exec { cpu: on.cpu };
            kernel.ask(now_ns, |policy, ctx| policy.enqueue(ctx, task, to, reason));
        }
        let can_go_on = leaving.can_go_on();
        let previous = before.filter(|_| can_go_on);
        let dispatch = match is_host && take(self.kernels.host_mut(), on.cpu, before, can_go_on, now_ns) {
            true => Dispatch { task: None, slice_ns: Dispatch::NO_SLICE },
            false => {
                self.kernels[on.kernel].ask(now_ns, |policy, ctx| policy.dispatch(ctx, on.cpu, previous))
            }
        };
        charge_decision(
            &mut self.kernels,
            &mut self.processors,
            on,
            dispatch.task.filter(|_| dispatch.task != previous),
        );
        let cpu = &mut self.kernels[on];
        cpu.used.schedules += 1;
        cpu.resched_ns = NEVER;
        cpu.resched_at_return = false;
        cpu.resched_deferred = false;
        cpu.slice_end_ns =
            if dispatch.task.is_some() { now_ns.saturating_add(dispatch.slice_ns) } else { cpu.returns_ns() };

        match previous {
            Some(task) if dispatch.task == previous => {
                self.note(now_ns, EventKind::Continue, on, task, None);
            }
            _ => {
                if let Some(task) = before {
                    self.take_off(on, pcpu, task, now_ns, leaving);
                }
                self.switch(on, pcpu, before, dispatch.task, now_ns);
            }
        }
        self.kernels[on.kernel].update_tick(on.cpu, now_ns);
        self.deliver_kicks(on, now_ns);
        if !is_host && dispatch.task.is_none() {
            self.vcpu_idles(on, pcpu, now_ns);
        }
        self.processors.refresh(&self.kernels, pcpu);
    }

    fn take_off(&mut self, on: CpuRef, pcpu: CpuId, task: TaskId, now_ns: u64, leaving: Leaving) {
        self.processors.leave_caches(&mut self.kernels, pcpu);
        let kernel = &mut self.kernels[on.kernel];
        let state = &mut kernel[task];
        let (next_state, kind) = match leaving {
            Leaving::Preempt | Leaving::Move(_) => (TaskState::Runnable, EventKind::Preempt),
            Leaving::Yield | Leaving::YieldTo => (TaskState::Runnable, EventKind::Yield),
            Leaving::Block => (TaskState::Blocked, EventKind::Block),
            Leaving::Exit => (TaskState::Exited, EventKind::Exit),
        };
        state.stop_running(next_state, now_ns);
        let guest = state.guest();
        match kind {
            EventKind::Preempt => state.metrics.preemptions += 1,
            _ => state.metrics.voluntary_switches += 1,
        }
        if let Some(vcpu) = guest {
            self.processors.leave_guest(&mut self.kernels, pcpu, leaving, now_ns);
            self.note_preempted(vcpu);
        }
        self.note(now_ns, kind, on, task, None);
        if leaving == Leaving::Exit {
            self.kernels[on.kernel].ask(now_ns, |policy, ctx| policy.exited(ctx, task));
        }
    }

    /// Makes `next` the CPU's task; `before` has been taken off.
    fn switch(&mut self, on: CpuRef, pcpu: CpuId, before: Option<TaskId>, next: Option<TaskId>, now_ns: u64) {
        self.processors[pcpu].executes = None;
        self.processors[pcpu].burst_end_ns = NEVER;
        let kernel = &mut self.kernels[on.kernel];
        let cpu = &mut kernel[on.cpu];
        cpu.current = next;
        if before.is_none() && next.is_none() {
            return;
        }
        let Some(task) = next else {
            cpu.tick_ns = NEVER;
            cpu.turn_end_ns = NEVER;
            if on.is_host() {
                self.processors.rerate_siblings(&mut self.kernels, pcpu, now_ns);
            }
            return;
        };
        cpu.loaded = Some(task);
        if before.is_none() {
            kernel.ticks_mut().resumed(on.cpu);
            let tick_ns = kernel.next_tick_ns(on.cpu, now_ns);
            kernel[on.cpu].tick_ns = tick_ns;
        }
        if before.is_none() && on.is_host() {
            self.processors.rerate_siblings(&mut self.kernels, pcpu, now_ns);
        }
        let kernel = &mut self.kernels[on.kernel];
        kernel.count_migration(task, on.cpu);
        debug_assert!(
            kernel.tasks().facts()[task.index()].hard_affinity.contains(on.cpu),
            "dispatched outside its affinity"
        );
        let state = &mut kernel[task];
        let runs_ns = self.processors[pcpu].settled_ns.max(now_ns);
        let (guest, group) = (state.guest(), state.group);
        if let Some(waited_ns) = state.start_running(on.cpu, runs_ns) {
            kernel.usage_mut().delayed(group, waited_ns);
        }
        match guest {
            None => self.processors.execute(&mut self.kernels, pcpu, on.kernel, task),
            Some(guest) => self.processors.enter_guest(&mut self.kernels, pcpu, guest, now_ns),
        }
        self.note(now_ns, EventKind::Start, on, task, None);
        self.kernels[on.kernel].ask(now_ns, |policy, ctx| policy.running(ctx, on.cpu, task));
    }
}
