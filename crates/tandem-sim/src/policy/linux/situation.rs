//! A scheduler in a situation that a test sets up by hand, with a small loop of ticks to observe the result.

use super::super::Later;
use super::queues::RunQueue;
use super::*;
use crate::scenario::TaskPolicy;
use std::sync::Arc;
use tandem_machine::cpumask::CpuMask;
use tandem_machine::ids::VmId;
use tandem_machine::{CpuSpec, MachineBuilder, NodeSpec};

/// Packages of cores with threads on one node, as a guest that sees no NUMA nodes has them.
pub(super) fn one_node(packages: u32, cores: u32, threads: u32) -> Machine {
    let nodes = MachineBuilder::symmetric(packages, cores, threads).build().unwrap();
    let node = NodeSpec { os_index: 0, memory_bytes: 1 << 30, bandwidth_bytes_per_s: 1 << 30 };
    let mut builder = MachineBuilder::new("guest").node(node);
    for package in 0..packages {
        builder = builder.llc(package, 1 << 20);
    }
    for cpu in nodes.cpus() {
        builder = builder.cpu(CpuSpec {
            os_index: cpu.os_index,
            core: cpu.core.0,
            llc: cpu.llc.map(|llc| llc.0),
            node: 0,
            package: cpu.package.0,
            capacity: 1,
        });
    }
    builder.build().unwrap()
}

/// All CPUs idle, and there are no tasks yet.
pub(super) struct Situation {
    pub machine: Machine,
    pub linux: Linux,
    pub facts: Vec<TaskFacts>,
    /// The policy of new tasks.
    pub policy: TaskPolicy,
    pub now_ns: u64,
    pub scanned: u32,
    /// Queues of other CPUs that were locked, in this order.
    pub locked: Vec<CpuId>,
    stolen_ns: Vec<u64>,
    kicked: Vec<CpuId>,
}

impl Situation {
    pub fn new(era: LinuxEra, domains: Domains, machine: Machine) -> Self {
        Self::with(LinuxSettings { era, domains, ..LinuxSettings::default() }, machine)
    }

    pub fn with(settings: LinuxSettings, machine: Machine) -> Self {
        Self {
            linux: Linux::new(settings, &machine, &[], &[], &[], 1),
            facts: Vec::new(),
            policy: TaskPolicy::Normal,
            now_ns: 10_000_000_000,
            scanned: 0,
            locked: Vec::new(),
            stolen_ns: vec![0; machine.cpu_count()],
            kicked: Vec::new(),
            machine,
        }
    }

    /// Asks the scheduler, and keeps the CPUs that it kicks and locks.
    pub fn ask<R>(&mut self, question: impl FnOnce(&mut Linux, &mut Context<'_>) -> R) -> R {
        let mut later = Vec::new();
        let mut context = Context {
            now_ns: self.now_ns,
            machine: &self.machine,
            tasks: &self.facts,
            stolen_ns: &self.stolen_ns,
            kicked: &mut self.kicked,
            peers_scanned: &mut self.scanned,
            locked: &mut self.locked,
            shared_locked: &mut Vec::new(),
            alarms: &mut Vec::new(),
            later: &mut later,
            failure: &mut None,
        };
        let answer = question(&mut self.linux, &mut context);
        self.kicked.extend(later.iter().filter_map(|what| match what {
            Later::AtReturn(cpu) => Some(cpu),
            Later::At { .. } => None,
        }));
        answer
    }

    /// From now on newly idle CPUs leave nothing to chance.
    pub fn always_search(&mut self) {
        for cpu in self.machine.all_cpus().iter() {
            for at in self.linux.domains.of(cpu) {
                self.linux.domains.domain_mut(at).newidle.ratio = domains::NewidleRate::SCALE;
            }
        }
    }

    /// Sets the CPUs that a task may use.
    pub fn allow(&mut self, task: TaskId, cpus: impl IntoIterator<Item = u32>) {
        let mask = CpuMask::from_cpus(self.machine.cpu_count(), cpus.into_iter().map(CpuId));
        self.facts[task.index()].hard_affinity = Arc::new(mask);
    }

    /// Sets the CPUs that a task prefers among those that it may use.
    pub fn prefer(&mut self, task: TaskId, cpus: impl IntoIterator<Item = u32>) {
        let mask = CpuMask::from_cpus(self.machine.cpu_count(), cpus.into_iter().map(CpuId));
        self.facts[task.index()].soft_affinity = Some(Arc::new(mask));
        self.ask(|linux, ctx| linux.affinity_changed(ctx, task));
    }

    /// A new task in the queue of this CPU; it may run anywhere.
    pub fn queue_on(&mut self, cpu: u32) -> TaskId {
        let task = self.start_on(CpuMask::from_cpus(self.machine.cpu_count(), [CpuId(cpu)]));
        self.allow(task, 0..self.machine.cpu_count() as u32);
        task
    }

    /// A new task, placed by the scheduler.
    pub fn start(&mut self) {
        self.start_on(self.machine.all_cpus().clone());
        self.settle();
    }

    fn start_on(&mut self, allowed: CpuMask) -> TaskId {
        let task = TaskId::from(self.facts.len());
        self.facts.push(TaskFacts {
            vm: VmId(0),
            weight: self.policy.weight(0),
            hard_affinity: Arc::new(allowed),
            nice: 0,
            policy: self.policy,
            soft_affinity: None,
            past_cpu: None,
            is_kernel_thread: false,
        });
        self.ask(|linux, ctx| {
            let chosen = linux.select_cpu(ctx, task, Reason::Start);
            linux.enqueue(ctx, task, chosen, Reason::Start);
        });
        task
    }

    /// A new task that runs on this CPU.
    pub fn run_on(&mut self, cpu: u32) -> TaskId {
        let task = self.queue_on(cpu);
        self.settle();
        task
    }

    /// A task that last ran on this CPU and sleeps.
    pub fn sleep_on(&mut self, cpu: u32) -> TaskId {
        let task = self.run_on(cpu);
        self.now_ns += 1_000_000;
        self.ask(|linux, ctx| linux.blocked(ctx, CpuId(cpu), task));
        self.dispatch(CpuId(cpu));
        self.settle();
        task
    }

    pub fn dispatch(&mut self, cpu: CpuId) {
        let previous = self.linux.queues.of(cpu).curr();
        self.ask(|linux, ctx| linux.dispatch(ctx, cpu, previous));
    }

    /// Lets all CPUs decide that were asked to reschedule.
    pub fn settle(&mut self) {
        while let Some(cpu) = self.kicked.pop() {
            self.dispatch(cpu);
        }
    }

    /// The CPU on which the task would wake up.
    pub fn wake(&mut self, task: TaskId, waker: TaskId, sync: bool) -> u32 {
        let cpu = self.linux.queues.entity(waker).cpu;
        self.ask(|linux, ctx| {
            linux.selector().select(ctx, task, Reason::Wake { waker: Some(waker), cpu, sync })
        })
        .0
    }

    /// Lets tasks run for this many ticks. They never block.
    pub fn run_ticks(&mut self, ticks: u64) {
        for _ in 0..ticks {
            self.now_ns += self.linux.tick_period_ns();
            for cpu in self.machine.all_cpus().clone().iter() {
                if let Some(task) = self.linux.queues.of(cpu).curr() {
                    self.ask(|linux, ctx| linux.tick(ctx, cpu, task));
                }
                self.settle();
            }
        }
    }

    /// The host takes so much time from a CPU.
    pub fn steal(&mut self, cpu: u32, stolen_ns: u64) {
        self.stolen_ns[cpu as usize] += stolen_ns;
    }

    /// Number of tasks of each CPU.
    pub fn tasks_by_cpu(&self) -> Vec<usize> {
        self.linux.queues.all().iter().map(RunQueue::nr_running).collect()
    }
}
