//! One scheduling level: CPUs, tasks, and a policy that decides.
//!
//! The kernel carries out what the policy decides, and makes it cost what the machine's models say: it keeps
//! the time of each CPU (running a task, idling, or in the kernel's own code), the progress of each task, and
//! each CPU's next event. It does not know what tasks do when their burst of work ends; the engine does.
//!
//! While a CPU runs kernel code it takes no events: interrupts that come then are handled after it, as with
//! interrupts disabled.

mod cpu;
mod memory_state;
mod progress;
mod task;

pub(crate) use cpu::{Cpu, CpuUse, Due};
pub(crate) use memory_state::MemoryState;
pub(crate) use task::{Task, TaskState, TimerTarget};

use crate::cpumask::CpuMask;
use crate::engine::event_queue::{EventQueue, NEVER};
use crate::ids::{CpuId, KernelId, TaskId};
use crate::machine::Machine;
use crate::machine::cost::{CacheFill, CostModels};
use crate::policy::{Context, Policy, Reason, TaskFacts};
use crate::program::MemoryProfile;
use crate::trace::{Event, EventKind, Observer, TraceHash};
use std::cmp::Reverse;
use std::sync::Arc;

/// One scheduling level. See the [module](self).
pub(crate) struct Kernel<P, O> {
    pub machine: Arc<Machine>,
    pub costs: CostModels,
    pub policy: P,
    pub cpus: Vec<Cpu>,
    pub tasks: Vec<Task>,
    facts: Vec<TaskFacts>,
    /// The next event of each CPU; the engine's own sources of events follow the CPUs.
    pub queue: EventQueue,
    pub memory: MemoryState,
    profiles: Vec<Arc<MemoryProfile>>,
    /// The other threads of each CPU's core.
    siblings: Vec<Box<[CpuId]>>,
    private_fill: Vec<CacheFill>,
    llc_fill: Vec<CacheFill>,
    stolen_ns: Vec<u64>,
    kicked: Vec<CpuId>,
    peers_scanned: u32,
    observer: O,
    pub trace_hash: TraceHash,
    /// Wake-ups, and ends of slices and bursts, that were handled.
    pub events: u64,
}

/// Why a CPU decides anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaving {
    /// Its task can go on.
    Preempt,
    /// Its task gives way, but can go on.
    Yield,
    /// Its task cannot go on now.
    Block,
    /// Its task has ended.
    Exit,
}

/// The parts that a kernel is made of.
pub(crate) struct KernelParts<P, O> {
    pub machine: Arc<Machine>,
    pub costs: CostModels,
    pub policy: P,
    pub tasks: Vec<(Task, TaskFacts)>,
    pub profiles: Vec<Arc<MemoryProfile>>,
    pub memory: MemoryState,
    pub observer: O,
    /// Sources of events besides the CPUs.
    pub extra_sources: usize,
}

impl<P: Policy, O: Observer> Kernel<P, O> {
    pub fn new(parts: KernelParts<P, O>) -> Self {
        let machine = parts.machine;
        let cpu_count = machine.cpu_count();
        let siblings = (0..cpu_count)
            .map(CpuId::from)
            .map(|cpu| machine.siblings(cpu).iter().filter(|&other| other != cpu).collect());
        let (tasks, facts) = parts.tasks.into_iter().unzip();
        Self {
            siblings: siblings.collect(),
            costs: parts.costs,
            policy: parts.policy,
            cpus: (0..cpu_count).map(|_| Cpu::new()).collect(),
            tasks,
            facts,
            queue: EventQueue::new(cpu_count + parts.extra_sources),
            memory: parts.memory,
            profiles: parts.profiles,
            private_fill: vec![CacheFill::default(); machine.cores().len()],
            llc_fill: vec![CacheFill::default(); machine.llcs().len()],
            stolen_ns: vec![0; cpu_count],
            kicked: Vec::new(),
            peers_scanned: 0,
            observer: parts.observer,
            trace_hash: TraceHash::default(),
            events: 0,
            machine,
        }
    }

    /// Asks the policy.
    #[inline]
    fn ask<R>(&mut self, now_ns: u64, question: impl FnOnce(&mut P, &mut Context<'_>) -> R) -> R {
        let mut context = Context {
            now_ns,
            machine: &self.machine,
            tasks: &self.facts,
            stolen_ns: &self.stolen_ns,
            kicked: &mut self.kicked,
            peers_scanned: &mut self.peers_scanned,
        };
        question(&mut self.policy, &mut context)
    }

    #[inline]
    fn note(&mut self, at_ns: u64, kind: EventKind, cpu: CpuId, task: TaskId) {
        let event = Event { at_ns, kernel: KernelId::HOST, kind, cpu, task, by: None };
        self.trace_hash.add(event);
        self.observer.observe(event);
    }

    /// Brings the queue up to date with the CPU's next event.
    #[inline]
    pub fn refresh(&mut self, cpu: CpuId) {
        self.queue.set(cpu.index(), self.cpus[cpu.index()].next_event_ns());
    }

    /// Lets kernel code run on the CPU, whose time must be settled; what runs there is put off.
    #[inline]
    pub fn charge(&mut self, cpu: CpuId, cost_ns: u64) {
        let cpu = &mut self.cpus[cpu.index()];
        cpu.settled_ns += cost_ns;
        cpu.used.overhead_ns += cost_ns;
        if cpu.burst_end_ns != NEVER {
            cpu.burst_end_ns += cost_ns;
        }
    }

    /// Charges an interrupt, and the exit of the guest that it interrupts.
    pub fn charge_interrupt(&mut self, cpu: CpuId, now_ns: u64) {
        self.settle(cpu, now_ns);
        let handling_ns = self.costs.interrupt.map_or(0, |cost| cost.handling_ns);
        self.charge(cpu, handling_ns);
        if self.cpus[cpu.index()].current.is_some() {
            self.charge_exit(cpu);
        }
    }

    /// Charges an exit from the guest on the CPU.
    pub fn charge_exit(&mut self, cpu: CpuId) {
        let round_trip_ns = self.costs.vm_exit.map_or(0, |cost| cost.round_trip_ns);
        self.charge(cpu, round_trip_ns);
    }

    /// Starts a timer on the CPU.
    pub fn arm(&mut self, cpu: CpuId, at_ns: u64, target: TimerTarget) {
        self.cpus[cpu.index()].timers.push(Reverse((at_ns, target)));
    }

    /// Puts a new task under the policy's care, runnable.
    pub fn start(&mut self, task: TaskId, now_ns: u64) {
        let cpu = self.ask(now_ns, |policy, ctx| policy.select_cpu(ctx, task, Reason::Start));
        self.tasks[task.index()].last_cpu = cpu;
        self.make_runnable(task, cpu, Reason::Start, now_ns);
        self.deliver_kicks(cpu, now_ns);
    }

    /// Wakes a blocked task. `by` is the CPU on which that happens; its time must be settled.
    pub fn wake(&mut self, task: TaskId, now_ns: u64, by: CpuId) {
        if self.tasks[task.index()].state != TaskState::Blocked {
            return;
        }
        self.events += 1;
        self.tasks[task.index()].metrics.wakeups += 1;
        let reason = Reason::Wake { waker: self.cpus[by.index()].current, cpu: by, sync: false };
        let cpu = self.ask(now_ns, |policy, ctx| policy.select_cpu(ctx, task, reason));
        if let Some(lock) = self.costs.spin_lock
            && cpu != by
        {
            let spent_ns = self.cpus[cpu.index()].queue_lock.take(&lock, now_ns, 0);
            self.charge(by, spent_ns);
        }
        self.make_runnable(task, cpu, reason, now_ns);
        self.deliver_kicks(by, now_ns);
    }

    fn make_runnable(&mut self, task: TaskId, cpu: CpuId, reason: Reason, now_ns: u64) {
        let state = &mut self.tasks[task.index()];
        state.state = TaskState::Runnable;
        state.metrics.sleep_ns += now_ns - state.blocked_since_ns;
        self.note(now_ns, EventKind::Wake, cpu, task);
        self.ask(now_ns, |policy, ctx| policy.enqueue(ctx, task, cpu, reason));
    }

    /// Sends the kicks that the policy asked for, from CPU `by`: at once to itself, as an IPI to others.
    fn deliver_kicks(&mut self, by: CpuId, now_ns: u64) {
        let delivery_ns = self.costs.ipi.map_or(0, |cost| cost.delivery_ns);
        let sent_ns = self.cpus[by.index()].settled_ns.max(now_ns);
        for at in 0..self.kicked.len() {
            let cpu = self.kicked[at];
            let arrives_ns = if cpu == by { now_ns } else { sent_ns + delivery_ns };
            let resched_ns = &mut self.cpus[cpu.index()].resched_ns;
            *resched_ns = (*resched_ns).min(arrives_ns);
            self.refresh(cpu);
        }
        self.kicked.clear();
    }

    /// A tick on a CPU that runs a task.
    pub fn tick(&mut self, cpu: CpuId, now_ns: u64) {
        self.charge_interrupt(cpu, now_ns);
        self.cpus[cpu.index()].tick_ns = self.next_tick_ns(now_ns);
        if let Some(task) = self.cpus[cpu.index()].current {
            self.ask(now_ns, |policy, ctx| policy.tick(ctx, cpu, task));
            self.deliver_kicks(cpu, now_ns);
        }
        self.refresh(cpu);
    }

    /// Ticks fall on multiples of their period, on all CPUs alike.
    fn next_tick_ns(&self, now_ns: u64) -> u64 {
        let period_ns = self.policy.tick_period_ns();
        (now_ns / period_ns + 1) * period_ns
    }

    /// The policy's own timer, on CPU 0.
    pub fn policy_timer(&mut self, now_ns: u64) {
        self.ask(now_ns, |policy, ctx| policy.timer(ctx));
        self.deliver_kicks(CpuId(0), now_ns);
    }

    /// Changes where a task may and prefers to run.
    pub fn change_affinity(
        &mut self,
        task: TaskId,
        hard: Arc<CpuMask>,
        soft: Option<Arc<CpuMask>>,
        now_ns: u64,
    ) {
        let facts = &mut self.facts[task.index()];
        facts.hard_affinity = hard;
        facts.soft_affinity = soft;
        self.ask(now_ns, |policy, ctx| policy.affinity_changed(ctx, task));
        self.deliver_kicks(CpuId(0), now_ns);
    }

    /// The slice ended or a kick arrived: decide anew.
    pub fn reschedule(&mut self, cpu: CpuId, now_ns: u64) {
        if self.cpus[cpu.index()].slice_end_ns <= now_ns {
            self.events += 1;
        }
        self.decide(cpu, now_ns, Leaving::Preempt);
    }

    /// The task on the CPU sleeps or waits.
    pub fn block(&mut self, cpu: CpuId, now_ns: u64) {
        self.decide(cpu, now_ns, Leaving::Block);
    }

    /// The task on the CPU ends.
    pub fn exit(&mut self, cpu: CpuId, now_ns: u64) {
        self.decide(cpu, now_ns, Leaving::Exit);
    }

    /// The task on the CPU gives way.
    pub fn yield_cpu(&mut self, cpu: CpuId, now_ns: u64) {
        self.decide(cpu, now_ns, Leaving::Yield);
    }

    /// Asks the policy what the CPU runs next, and switches to it.
    fn decide(&mut self, cpu: CpuId, now_ns: u64, leaving: Leaving) {
        self.settle(cpu, now_ns);
        let before = self.cpus[cpu.index()].current;
        match (before, leaving) {
            (Some(task), Leaving::Yield) => {
                self.charge_exit(cpu);
                self.ask(now_ns, |policy, ctx| policy.yielded(ctx, cpu, task));
            }
            (Some(task), Leaving::Block | Leaving::Exit) => {
                self.charge_exit(cpu);
                self.ask(now_ns, |policy, ctx| policy.blocked(ctx, cpu, task));
            }
            _ => {}
        }
        let can_go_on = matches!(leaving, Leaving::Preempt | Leaving::Yield);
        let previous = before.filter(|_| can_go_on);
        let dispatch = self.ask(now_ns, |policy, ctx| policy.dispatch(ctx, cpu, previous));

        let mut decision_ns = 0;
        if let Some(cost) = &self.costs.context_switch {
            decision_ns =
                cost.decision_ns + cost.peer_scan_ns * u64::from(std::mem::take(&mut self.peers_scanned));
        }
        let state = &mut self.cpus[cpu.index()];
        if let Some(lock) = &self.costs.spin_lock {
            decision_ns = state.queue_lock.take(lock, now_ns, decision_ns);
        }
        state.used.schedules += 1;
        state.resched_ns = NEVER;
        state.slice_end_ns = if dispatch.task.is_some() { now_ns + dispatch.slice_ns } else { NEVER };
        self.charge(cpu, decision_ns);

        match previous {
            Some(task) if dispatch.task == previous => self.note(now_ns, EventKind::Continue, cpu, task),
            _ => {
                if let Some(task) = before {
                    self.take_off(cpu, task, now_ns, leaving);
                }
                self.switch(cpu, before, dispatch.task, now_ns);
            }
        }
        self.deliver_kicks(cpu, now_ns);
        self.refresh(cpu);
    }

    fn take_off(&mut self, cpu: CpuId, task: TaskId, now_ns: u64, leaving: Leaving) {
        self.leave_caches(cpu, task);
        let state = &mut self.tasks[task.index()];
        let (next_state, kind) = match leaving {
            Leaving::Preempt => (TaskState::Runnable, EventKind::Preempt),
            Leaving::Yield => (TaskState::Runnable, EventKind::Yield),
            Leaving::Block => (TaskState::Blocked, EventKind::Block),
            Leaving::Exit => (TaskState::Exited, EventKind::Exit),
        };
        state.state = next_state;
        state.blocked_since_ns = now_ns;
        if leaving == Leaving::Preempt {
            state.metrics.preemptions += 1;
            self.cpus[cpu.index()].used.preemptions += 1;
        }
        self.note(now_ns, kind, cpu, task);
    }

    /// Makes `next` the CPU's task; `before` has been taken off.
    fn switch(&mut self, cpu: CpuId, before: Option<TaskId>, next: Option<TaskId>, now_ns: u64) {
        let state = &mut self.cpus[cpu.index()];
        state.current = next;
        state.burst_end_ns = NEVER;
        if before == next {
            return; // from idle to idle
        }
        state.used.context_switches += 1;
        let Some(task) = next else {
            state.tick_ns = NEVER;
            self.rerate_siblings(cpu, now_ns);
            return;
        };
        if state.loaded.replace(task) != Some(task)
            && let Some(cost) = self.costs.context_switch
        {
            self.charge(cpu, cost.switch_ns);
        }
        if before.is_none() {
            self.cpus[cpu.index()].tick_ns = self.next_tick_ns(now_ns);
            self.rerate_siblings(cpu, now_ns);
        }
        self.count_migration(task, cpu);
        let state = &mut self.tasks[task.index()];
        debug_assert_eq!(state.state, TaskState::Runnable, "the policy dispatched a task that cannot run");
        debug_assert!(
            self.facts[task.index()].hard_affinity.contains(cpu),
            "dispatched outside its affinity"
        );
        state.state = TaskState::Running;
        state.last_cpu = cpu;
        state.metrics.dispatches += 1;
        self.enter_caches(cpu, task);
        self.rerate(cpu);
        self.note(now_ns, EventKind::Start, cpu, task);
        self.ask(now_ns, |policy, ctx| policy.running(ctx, cpu, task));
    }

    fn count_migration(&mut self, task: TaskId, to: CpuId) {
        let state = &mut self.tasks[task.index()];
        if state.last_cpu == to {
            return;
        }
        let (from, to) = (self.machine.cpu(state.last_cpu), self.machine.cpu(to));
        let metrics = &mut state.metrics;
        if from.node != to.node {
            metrics.migrations_across_nodes += 1;
        } else if from.llc != to.llc {
            metrics.migrations_in_node += 1;
        } else {
            metrics.migrations_in_llc += 1;
        }
    }
}
