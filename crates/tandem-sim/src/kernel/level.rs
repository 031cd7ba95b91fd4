//! One scheduling level: the CPUs and tasks of a kernel, and the policy that decides for it.

use super::cpu::Cpu;
use super::task::{Birth, Task, TaskState};
use crate::cost::{ContextSwitch, Interrupt};
use crate::engine::event_queue::NEVER;
use crate::metrics::TaskMetrics;
use crate::policy::{Alarm, AnyPolicy, Context, Policy, TaskFacts};
use crate::scenario::VmKind;
use hdrhistogram::Histogram;
use std::sync::Arc;
use tandem_machine::Machine;
use tandem_machine::ids::{CpuId, KernelId, TaskId};

/// Digits of a time in a histogram that are kept: percentiles are good to 1%.
const SIGNIFICANT_DIGITS: u8 = 2;

/// An empty histogram of times.
fn new_histogram() -> Box<Histogram<u64>> {
    let mut histogram = Histogram::new(SIGNIFICANT_DIGITS).expect("between 0 and 5 digits");
    histogram.auto(true);
    Box::new(histogram)
}

/// Records a time in a histogram, which is made when the first one comes.
pub(crate) fn record(histogram: &mut Option<Box<Histogram<u64>>>, time_ns: u64) {
    histogram.get_or_insert_with(new_histogram).record(time_ns).expect("it resizes to any value");
}

/// What is measured of a program's tasks in a guest, besides wake-ups.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProgramUse {
    /// Tasks that ran it since the measuring started.
    pub tasks: u64,
    /// Sums over those that do no more.
    pub total: TaskMetrics,
}

/// A kernel, the host's or a guest's. Tasks are added as they are forked.
pub(crate) struct Kernel {
    pub id: KernelId,
    /// The CPUs as it sees them.
    pub machine: Arc<Machine>,
    pub context_switch: Option<ContextSwitch>,
    pub interrupt: Option<Interrupt>,
    pub policy: AnyPolicy,
    pub cpus: Vec<Cpu>,
    pub tasks: Vec<Task>,
    pub facts: Vec<TaskFacts>,
    /// From wake-ups to the moments that tasks ran, ns, by group of tasks: by VM in the host's kernel, by program in a
    /// guest's.
    pub wakeups: Vec<Option<Box<Histogram<u64>>>>,
    /// By program, in a guest's kernel.
    pub programs: Vec<ProgramUse>,
    /// In the host's kernel, the first of the vCPUs that are a guest's CPUs; they follow each other.
    pub first_vcpu: TaskId,
    /// In a guest's kernel, the vCPU that the host has yielded to last.
    pub last_boosted: CpuId,
    pub stolen_ns: Vec<u64>,
    pub kicked: Vec<CpuId>,
    pub peers_scanned: u32,
    /// Other CPUs' queues that the policy has locked, in this question.
    pub locked: Vec<CpuId>,
    /// Timers that the policy wants.
    pub alarms: Vec<Alarm>,
    /// Why the policy cannot go on.
    pub failure: Option<String>,
    /// Since when it decides, ns: it may have been loaded again.
    pub scheduler_since_ns: u64,
    free: Vec<TaskId>,
    births: u32,
}

/// The parts that a kernel is made of.
pub(crate) struct KernelParts {
    pub id: KernelId,
    pub machine: Arc<Machine>,
    pub context_switch: Option<ContextSwitch>,
    pub interrupt: Option<Interrupt>,
    pub policy: AnyPolicy,
    pub tasks: Vec<Task>,
    pub facts: Vec<TaskFacts>,
    /// Groups of tasks whose wake-ups are measured together.
    pub groups: usize,
    pub first_vcpu: TaskId,
}

impl Kernel {
    pub fn new(parts: KernelParts) -> Self {
        let cpu_count = parts.machine.cpu_count();
        let is_host = parts.id == KernelId::HOST;
        let cpus = (0..cpu_count).map(|cpu| Cpu::new(is_host.then(|| CpuId::from(cpu))));
        let mut tasks = parts.tasks;
        for (birth, task) in (0..).zip(&mut tasks) {
            task.birth = birth;
        }
        let programs = if is_host { 0 } else { parts.groups };
        let mut kernel = Self {
            id: parts.id,
            context_switch: parts.context_switch,
            interrupt: parts.interrupt,
            policy: parts.policy,
            cpus: cpus.collect(),
            births: tasks.len() as u32,
            tasks,
            facts: parts.facts,
            wakeups: vec![None; parts.groups],
            programs: vec![ProgramUse::default(); programs],
            first_vcpu: parts.first_vcpu,
            last_boosted: CpuId(0),
            stolen_ns: vec![0; cpu_count],
            kicked: Vec::new(),
            peers_scanned: 0,
            locked: Vec::new(),
            alarms: Vec::new(),
            failure: None,
            scheduler_since_ns: 0,
            free: Vec::new(),
            machine: parts.machine,
        };
        kernel.forget_use();
        kernel
    }

    /// Begins to count anew what programs use, with the tasks that there are.
    pub fn forget_use(&mut self) {
        self.wakeups.fill(None);
        self.programs.fill_with(ProgramUse::default);
        for task in self.tasks.iter().filter(|task| task.state != TaskState::Exited) {
            if let Some(program) = self.programs.get_mut(task.group as usize) {
                program.tasks += 1;
            }
        }
    }

    /// Tasks that have not ended.
    pub fn live_tasks(&self) -> usize {
        self.tasks.len() - self.free.len()
    }

    /// Adds a task of a guest that is yet to start.
    pub fn add(&mut self, mut task: Task, facts: TaskFacts) -> TaskId {
        task.birth = self.births;
        self.births = self.births.wrapping_add(1);
        self.programs[task.group as usize].tasks += 1;
        match self.free.pop() {
            Some(id) => {
                self.tasks[id.index()] = task;
                self.facts[id.index()] = facts;
                id
            }
            None => {
                self.tasks.push(task);
                self.facts.push(facts);
                TaskId::from(self.tasks.len() - 1)
            }
        }
    }

    /// The number of a task that has ended may be used again.
    pub fn release(&mut self, task: TaskId) {
        self.free.push(task);
    }

    /// How to find a task again, if it still lives.
    pub fn birth(&self, task: TaskId) -> Birth {
        Birth { task, number: self.tasks[task.index()].birth }
    }

    /// Asks the policy.
    #[inline]
    pub fn ask<R>(&mut self, now_ns: u64, question: impl FnOnce(&mut AnyPolicy, &mut Context<'_>) -> R) -> R {
        let mut context = Context {
            now_ns,
            machine: &self.machine,
            tasks: &self.facts,
            stolen_ns: &self.stolen_ns,
            kicked: &mut self.kicked,
            peers_scanned: &mut self.peers_scanned,
            locked: &mut self.locked,
            alarms: &mut self.alarms,
            failure: &mut self.failure,
        };
        question(&mut self.policy, &mut context)
    }

    /// What a tick, a wake-up or a directed yield does under the lock of a queue, ns: about as much as a decision does.
    pub fn work_under_lock_ns(&self) -> u64 {
        match self.policy.holds_locks_long() {
            true => self.context_switch.map_or(0, |cost| cost.decision_ns),
            false => 0,
        }
    }

    /// What it costs to change the address space, if `loaded`, which ran last, and `next` are processes of the host and
    /// differ in it, ns.
    pub fn address_space_ns(&self, loaded: Option<TaskId>, next: TaskId) -> u64 {
        let next = &self.tasks[next.index()];
        let shares =
            |loaded: TaskId| next.kind == VmKind::Threads && self.tasks[loaded.index()].vm == next.vm;
        if next.kind == VmKind::Machine || loaded.is_some_and(shares) {
            return 0;
        }
        self.context_switch.map_or(0, |cost| cost.address_space_ns)
    }

    /// Ticks fall on multiples of their period, on all CPUs alike, but for what they are late by.
    pub fn next_tick_ns(&mut self, now_ns: u64) -> u64 {
        let period_ns = self.policy.tick_period_ns();
        (now_ns / period_ns + 1) * period_ns + self.policy.tick_delay_ns()
    }

    /// Stops the tick of a CPU if its task lets it stop, and starts it again if not. A CPU that idles has none.
    pub fn update_tick(&mut self, cpu: CpuId, now_ns: u64) {
        let at = cpu.index();
        if !self.machine.tickless().contains(cpu) || self.cpus[at].current.is_none() {
            return;
        }
        if self.policy.stops_tick(cpu) {
            self.cpus[at].tick_ns = NEVER;
        } else if self.cpus[at].tick_ns == NEVER {
            self.cpus[at].tick_ns = self.next_tick_ns(now_ns);
        }
    }

    /// What other CPUs' queues that were looked into cost the CPU that did, ns.
    pub fn take_scan_cost_ns(&mut self) -> u64 {
        let peers = u64::from(std::mem::take(&mut self.peers_scanned));
        self.context_switch.map_or(0, |cost| cost.peer_scan_ns * peers)
    }

    /// Whether the CPU's task holds or wants a spin lock.
    fn is_in_spin_lock(&self, cpu: CpuId) -> bool {
        self.cpus[cpu.index()].current.is_some_and(|task| {
            let task = &self.tasks[task.index()];
            task.spins || task.locks_held > 0
        })
    }

    /// A decision is due on the CPU; whether it has to wait for a spin lock.
    pub fn defers_preemption(&mut self, cpu: CpuId) -> bool {
        let defers = self.is_in_spin_lock(cpu);
        if defers {
            let cpu = &mut self.cpus[cpu.index()];
            cpu.resched_deferred = true;
            cpu.resched_ns = NEVER;
            cpu.slice_end_ns = NEVER;
        }
        defers
    }

    /// Whether a decision has waited on the CPU, and need not any longer.
    pub fn ends_deferral(&self, cpu: CpuId) -> bool {
        self.cpus[cpu.index()].resched_deferred && !self.is_in_spin_lock(cpu)
    }

    pub fn count_migration(&mut self, task: TaskId, to: CpuId) {
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
