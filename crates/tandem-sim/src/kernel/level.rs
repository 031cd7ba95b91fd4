//! One scheduling level: the CPUs and tasks of a kernel, and the policy that decides for it.

use super::cpu::{Cpu, CpuUse};
use super::outbox::Outbox;
use super::paravirt::Paravirt;
use super::task::{Task, TaskKind};
use super::tasks::Tasks;
use super::ticks::Ticks;
use super::usage::Usage;
use crate::cost::{ContextSwitch, Interrupt, Timer};
use crate::engine::event_queue::NEVER;
use crate::policy::sched_ext::Ending;
use crate::policy::{AnyPolicy, Context, Policy, TaskFacts};
use std::ops::{Index, IndexMut};
use std::sync::Arc;
use tandem_machine::Machine;
use tandem_machine::ids::{CpuId, KernelId, TaskId};

/// A kernel, the host's or a guest's. Indexed by its CPUs and tasks.
pub(crate) struct Kernel {
    id: KernelId,
    /// The CPUs as it sees them.
    machine: Arc<Machine>,
    context_switch: Option<ContextSwitch>,
    interrupt: Option<Interrupt>,
    policy: AnyPolicy,
    outbox: Outbox,
    /// Since when the policy decides, ns: it may have been loaded again.
    scheduler_since_ns: u64,
    cpus: Vec<Cpu>,
    tasks: Tasks,
    usage: Usage,
    ticks: Ticks,
    /// In a guest's kernel, the first of the host's tasks that are its CPUs; they follow each other.
    first_vcpu: TaskId,
    /// In a guest's kernel, the vCPU that the host has yielded to last.
    last_boosted: CpuId,
    paravirt: Paravirt,
    /// By CPU, as the policy gets it.
    stolen_ns: Vec<u64>,
}

impl Index<CpuId> for Kernel {
    type Output = Cpu;

    #[inline]
    fn index(&self, cpu: CpuId) -> &Cpu {
        &self.cpus[cpu.index()]
    }
}

impl IndexMut<CpuId> for Kernel {
    #[inline]
    fn index_mut(&mut self, cpu: CpuId) -> &mut Cpu {
        &mut self.cpus[cpu.index()]
    }
}

impl Index<TaskId> for Kernel {
    type Output = Task;

    #[inline]
    fn index(&self, task: TaskId) -> &Task {
        self.tasks.get(task)
    }
}

impl IndexMut<TaskId> for Kernel {
    #[inline]
    fn index_mut(&mut self, task: TaskId) -> &mut Task {
        self.tasks.get_mut(task)
    }
}

/// The parts that a kernel is made of.
pub(crate) struct KernelParts {
    pub id: KernelId,
    pub machine: Arc<Machine>,
    pub context_switch: Option<ContextSwitch>,
    pub interrupt: Option<Interrupt>,
    pub timer: Option<Timer>,
    pub seed: u64,
    pub policy: AnyPolicy,
    pub tasks: Vec<Task>,
    pub facts: Vec<TaskFacts>,
    /// Groups of tasks that are measured together.
    pub groups: usize,
    pub first_vcpu: TaskId,
    pub paravirt: Paravirt,
}

impl Kernel {
    pub fn new(parts: KernelParts) -> Self {
        let cpu_count = parts.machine.cpu_count();
        let is_host = parts.id == KernelId::HOST;
        let cpus = (0..cpu_count).map(|cpu| Cpu::new(is_host.then(|| CpuId::from(cpu))));
        let tasks = Tasks::new(parts.tasks, parts.facts);
        let (apart, period_ns) = (parts.policy.ticks_apart(), parts.policy.tick_period_ns());
        let ticks = Ticks::new(parts.timer, parts.seed, parts.id, cpu_count, apart, period_ns);
        Self {
            id: parts.id,
            context_switch: parts.context_switch,
            interrupt: parts.interrupt,
            policy: parts.policy,
            outbox: Outbox::default(),
            scheduler_since_ns: 0,
            cpus: cpus.collect(),
            usage: Usage::new(parts.groups, !is_host, tasks.all()),
            tasks,
            ticks,
            first_vcpu: parts.first_vcpu,
            last_boosted: CpuId(0),
            paravirt: parts.paravirt,
            stolen_ns: vec![0; cpu_count],
            machine: parts.machine,
        }
    }

    #[inline]
    pub fn id(&self) -> KernelId {
        self.id
    }

    #[inline]
    pub fn context_switch(&self) -> Option<ContextSwitch> {
        self.context_switch
    }

    /// What handling an interrupt takes, ns.
    #[inline]
    pub fn interrupt_ns(&self) -> u64 {
        self.interrupt.map_or(0, |cost| cost.handling_ns)
    }

    #[inline]
    pub fn policy(&self) -> &AnyPolicy {
        &self.policy
    }

    /// The policy, for what needs no [`Context`].
    pub fn policy_mut(&mut self) -> &mut AnyPolicy {
        &mut self.policy
    }

    #[inline]
    pub fn outbox_mut(&mut self) -> &mut Outbox {
        &mut self.outbox
    }

    /// Why its policy cannot go on, if it cannot.
    #[inline]
    pub fn failure(&self) -> Option<&str> {
        self.outbox.failure()
    }

    #[inline]
    pub fn cpus(&self) -> &[Cpu] {
        &self.cpus
    }

    #[inline]
    pub fn tasks(&self) -> &Tasks {
        &self.tasks
    }

    #[inline]
    pub fn tasks_mut(&mut self) -> &mut Tasks {
        &mut self.tasks
    }

    pub fn usage(&self) -> &Usage {
        &self.usage
    }

    #[inline]
    pub fn usage_mut(&mut self) -> &mut Usage {
        &mut self.usage
    }

    /// The host's task that is a CPU of this guest's kernel.
    #[inline]
    pub fn vcpu_task(&self, cpu: CpuId) -> TaskId {
        TaskId::from(self.first_vcpu.index() + cpu.index())
    }

    /// The vCPU of this guest's kernel that was the last target of a directed yield.
    pub fn last_boosted_mut(&mut self) -> &mut CpuId {
        &mut self.last_boosted
    }

    /// What it has of its host, if it is a guest's.
    #[inline]
    pub fn paravirt(&self) -> Paravirt {
        self.paravirt
    }

    /// Since when its policy decides, ns.
    pub fn scheduler_since_ns(&self) -> u64 {
        self.scheduler_since_ns
    }

    /// Asks a compiled scheduler to begin anew at that time.
    pub fn reload_scheduler(&mut self, ending: Ending, now_ns: u64) {
        self.scheduler_since_ns = now_ns;
        self.ask(now_ns, |policy, ctx| {
            if let Some(scx) = policy.sched_ext() {
                scx.reload(ctx, ending);
            }
        });
    }

    /// Accounts for the time that was stolen from a CPU, which is a vCPU, up to now: with the CPU, with the
    /// task on it, and for the policy to read.
    #[inline]
    pub fn settle_stolen(&mut self, cpu: CpuId, now_ns: u64) {
        let state = &mut self.cpus[cpu.index()];
        if state.deprived_since_ns == NEVER {
            return;
        }
        let stolen_ns = now_ns - state.deprived_since_ns;
        state.deprived_since_ns = now_ns;
        state.used.stolen_ns += stolen_ns;
        self.stolen_ns[cpu.index()] += stolen_ns;
        if let Some(task) = state.current {
            self.tasks.get_mut(task).metrics.stolen_ns += stolen_ns;
        }
    }

    /// Begins to measure anew.
    pub fn start_measuring(&mut self, now_ns: u64) {
        self.usage.reset(self.tasks.all());
        for cpu in &mut self.cpus {
            cpu.used = CpuUse::default();
        }
        for task in self.tasks.all_mut() {
            task.start_measuring(now_ns);
        }
        self.policy.reset_counters();
    }

    /// Counts what tasks that have woken up or started and not run have been delayed by so far.
    pub fn count_delays(&mut self, now_ns: u64) {
        for task in self.tasks.all() {
            if let Some(delayed_ns) = task.delayed_ns(now_ns) {
                self.usage.delayed(task.group, delayed_ns);
            }
        }
    }

    /// Adds a task of a guest that is yet to start.
    pub fn add(&mut self, task: Task, facts: TaskFacts) -> TaskId {
        self.usage.begins(task.group);
        self.tasks.add(task, facts)
    }

    /// Asks the policy.
    #[inline]
    pub fn ask<R>(&mut self, now_ns: u64, question: impl FnOnce(&mut AnyPolicy, &mut Context<'_>) -> R) -> R {
        let facts = self.tasks.facts();
        let mut context = self.outbox.context(now_ns, &self.machine, facts, &self.stolen_ns);
        question(&mut self.policy, &mut context)
    }

    /// What a tick, a wake-up or a directed yield does under the lock of a queue, ns: about as much as a
    /// decision does.
    #[inline]
    pub fn work_under_lock_ns(&self) -> u64 {
        match self.policy.holds_locks_long() {
            true => self.context_switch.map_or(0, |cost| cost.decision_ns),
            false => 0,
        }
    }

    /// What it costs to change the address space, if `loaded`, which ran last, and `next` are processes of
    /// the host and differ in it, ns.
    pub fn address_space_ns(&self, loaded: Option<TaskId>, next: TaskId) -> u64 {
        let next = &self[next];
        let shares = |loaded: TaskId| next.kind == TaskKind::Thread && self[loaded].vm == next.vm;
        if matches!(next.kind, TaskKind::Vcpu | TaskKind::KernelThread) || loaded.is_some_and(shares) {
            return 0;
        }
        self.context_switch.map_or(0, |cost| cost.address_space_ns)
    }

    /// When the next tick of the CPU comes.
    #[inline]
    pub fn next_tick_ns(&mut self, cpu: CpuId, now_ns: u64) -> u64 {
        self.ticks.next_ns(cpu, now_ns) + self.policy.tick_delay_ns()
    }

    pub fn ticks_mut(&mut self) -> &mut Ticks {
        &mut self.ticks
    }

    /// Stops the tick of a CPU if its task lets it stop, and starts it again if not. A CPU that idles has
    /// none.
    #[inline]
    pub fn update_tick(&mut self, cpu: CpuId, now_ns: u64) {
        if !self.machine.tickless().contains(cpu) || self[cpu].current.is_none() {
            return;
        }
        if self.policy.stops_tick(cpu) {
            self[cpu].tick_ns = NEVER;
        } else if self[cpu].tick_ns == NEVER {
            self[cpu].tick_ns = self.next_tick_ns(cpu, now_ns);
        }
    }

    /// What the scans of other CPUs' queues cost the CPU that made them, ns.
    #[inline]
    pub fn take_scan_cost_ns(&mut self) -> u64 {
        let peers = self.outbox.take_peers_scanned();
        self.context_switch.map_or(0, |cost| cost.peer_scan_ns * peers)
    }

    /// Whether the CPU's task holds or wants a spin lock.
    #[inline]
    fn is_in_spin_lock(&self, cpu: CpuId) -> bool {
        self[cpu].current.is_some_and(|task| self[task].spin.forbids_preemption())
    }

    /// A decision is due on the CPU; whether it has to wait until its task is out of its spin lock.
    #[inline]
    pub fn defers_preemption(&mut self, cpu: CpuId) -> bool {
        let defers = self.is_in_spin_lock(cpu);
        if defers {
            let cpu = &mut self[cpu];
            cpu.resched_deferred = true;
            cpu.resched_ns = NEVER;
            cpu.slice_end_ns = NEVER;
        }
        defers
    }

    /// Whether a decision has waited on the CPU, and need not any longer.
    pub fn ends_deferral(&self, cpu: CpuId) -> bool {
        self[cpu].resched_deferred && !self.is_in_spin_lock(cpu)
    }

    #[inline]
    pub fn count_migration(&mut self, task: TaskId, to: CpuId) {
        let state = self.tasks.get_mut(task);
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
