//! The scheduler on one and two CPUs, driven by hand: ticks come as time passes, kicks are answered at once.

use super::super::Later;
use super::discipline::Discipline;
use super::queues::Entity;
use super::*;
use crate::policy::Alarm;
use crate::scenario::TaskPolicy;
use proptest::prelude::*;
use std::sync::Arc;
use tandem_machine::MachineBuilder;
use tandem_machine::cpumask::CpuMask;

mod directed_yield;
mod eras;
mod fairness;
mod group_entities;
mod groups;
mod invariants;
mod loads;
mod oracle;
mod task_policies;
mod wakeups;

const ERAS: [LinuxEra; 6] =
    [LinuxEra::V3_6, LinuxEra::V4_2, LinuxEra::V5_2, LinuxEra::V6_12, LinuxEra::V6_18, LinuxEra::V7_3];
const EEVDF: [LinuxEra; 3] = [LinuxEra::V6_12, LinuxEra::V6_18, LinuxEra::V7_3];
const CFS: [LinuxEra; 3] = [LinuxEra::V3_6, LinuxEra::V4_2, LinuxEra::V5_2];
const MS: u64 = 1_000_000;
const CPU: CpuId = CpuId(0);

/// A kernel whose tasks the test controls.
struct Hand {
    machine: Machine,
    facts: Vec<TaskFacts>,
    linux: Linux,
    now_ns: u64,
    stolen_ns: Vec<u64>,
    running: Vec<Option<TaskId>>,
    ran_ns: Vec<u64>,
    alarms: Vec<Alarm>,
}

impl Hand {
    /// A machine with this many cores, and tasks of these weights that have not begun yet.
    fn new(era: LinuxEra, cpus: u32, weights: &[u32]) -> Self {
        Self::with(LinuxSettings { era, ..LinuxSettings::default() }, cpus, weights)
    }

    fn with(settings: LinuxSettings, cpus: u32, weights: &[u32]) -> Self {
        let machine = MachineBuilder::symmetric(1, cpus, 1).build().unwrap();
        let all = Arc::new(machine.all_cpus().clone());
        let facts: Vec<TaskFacts> = weights
            .iter()
            .map(|&weight| TaskFacts {
                vm: tandem_machine::ids::VmId(0),
                weight,
                hard_affinity: all.clone(),
                nice: 0,
                policy: TaskPolicy::Normal,
                soft_affinity: None,
                past_cpu: None,
                is_kernel_thread: false,
            })
            .collect();
        // Ticks that are finer than any slice, so that slices end when they are over.
        let settings = LinuxSettings { tick_hz: 10_000, ..settings };
        Self {
            linux: Linux::new(settings, &machine, &[], &[], &[], 1),
            stolen_ns: vec![0; machine.cpu_count()],
            running: vec![None; machine.cpu_count()],
            ran_ns: vec![0; facts.len()],
            alarms: Vec::new(),
            now_ns: 0,
            machine,
            facts,
        }
    }

    /// Each task is a set of processes of its own, with these facts, in these cgroups.
    fn grouped(era: LinuxEra, cpus: u32, weights: &[u32], sets: &[VmFacts], cgroups: &[Cgroup]) -> Self {
        let mut hand = Self::new(era, cpus, weights);
        for (task, facts) in (0..).zip(&mut hand.facts) {
            facts.vm = tandem_machine::ids::VmId(task);
        }
        let settings = LinuxSettings { groups: Some(true), ..hand.linux.settings };
        hand.linux = Linux::new(settings, &hand.machine, &[], sets, cgroups, 1);
        hand
    }

    /// Asks the scheduler; returns the answer and the CPUs that it kicks, as if all returned to their tasks
    /// right afterwards.
    fn ask<R>(&mut self, question: impl FnOnce(&mut Linux, &mut Context<'_>) -> R) -> (R, Vec<CpuId>) {
        let (mut kicked, mut later) = (Vec::new(), Vec::new());
        let mut context = Context {
            now_ns: self.now_ns,
            machine: &self.machine,
            tasks: &self.facts,
            stolen_ns: &self.stolen_ns,
            kicked: &mut kicked,
            peers_scanned: &mut 0,
            locked: &mut Vec::new(),
            shared_locked: &mut Vec::new(),
            alarms: &mut self.alarms,
            later: &mut later,
            failure: &mut None,
        };
        let answer = question(&mut self.linux, &mut context);
        kicked.extend(later.iter().filter_map(|what| match what {
            Later::AtReturn(cpu) => Some(cpu),
            Later::At { .. } => None,
        }));
        (answer, kicked)
    }

    /// Asks the scheduler, and lets the CPUs that it kicks decide; returns these CPUs.
    fn tell(&mut self, what: impl FnOnce(&mut Linux, &mut Context<'_>)) -> Vec<CpuId> {
        let ((), kicked) = self.ask(what);
        for &cpu in &kicked {
            self.decide(cpu);
        }
        kicked
    }

    fn decide(&mut self, cpu: CpuId) {
        let previous = self.running[cpu.index()];
        let (dispatch, kicked) = self.ask(|linux, ctx| linux.dispatch(ctx, cpu, previous));
        self.running[cpu.index()] = dispatch.task;
        for cpu in kicked {
            self.decide(cpu);
        }
    }

    fn enqueue(&mut self, task: u32, cpu: CpuId, reason: Reason) -> Vec<CpuId> {
        self.tell(|linux, ctx| linux.enqueue(ctx, TaskId(task), cpu, reason))
    }

    /// From now on the task may run on this CPU only, so that balancing leaves it alone.
    fn pin(&mut self, task: u32, cpu: CpuId) {
        let mask = CpuMask::from_cpus(self.machine.cpu_count(), [cpu]);
        self.facts[task as usize].hard_affinity = Arc::new(mask);
    }

    fn start(&mut self, task: u32) {
        self.enqueue(task, CPU, Reason::Start);
    }

    /// The task wakes up on the CPU; returns whether that kicks a CPU.
    fn wake_on(&mut self, task: u32, cpu: CpuId) -> bool {
        !self.enqueue(task, cpu, Reason::Wake { waker: None, cpu, sync: false }).is_empty()
    }

    fn wake(&mut self, task: u32) -> bool {
        self.wake_on(task, CPU)
    }

    /// The task that runs on the CPU blocks.
    fn block(&mut self, cpu: CpuId) {
        let task = self.running[cpu.index()].take().unwrap();
        self.tell(|linux, ctx| linux.blocked(ctx, cpu, task));
        self.decide(cpu);
    }

    /// Lets time pass, with ticks.
    fn pass(&mut self, time_ns: u64) {
        let end_ns = self.now_ns + time_ns;
        while self.now_ns < end_ns {
            let period_ns = self.linux.tick_period_ns();
            let tick_ns = (self.now_ns / period_ns + 1) * period_ns;
            let alarm_ns = self.alarms.iter().map(|alarm| alarm.at_ns).min().unwrap_or(u64::MAX);
            let next_ns = tick_ns.min(alarm_ns).min(end_ns);
            for task in self.running.iter().flatten() {
                self.ran_ns[task.index()] += next_ns - self.now_ns;
            }
            self.now_ns = next_ns;
            if next_ns == tick_ns {
                for cpu in self.machine.all_cpus().clone().iter() {
                    if let Some(task) = self.running[cpu.index()] {
                        self.tell(|linux, ctx| linux.tick(ctx, cpu, task));
                    }
                }
            }
            let due = self.alarms.iter().position(|alarm| alarm.at_ns <= self.now_ns);
            if let Some(Alarm { cpu, token, .. }) = due.map(|at| self.alarms.remove(at)) {
                self.tell(|linux, ctx| linux.alarm(ctx, cpu, token));
            }
        }
    }

    /// Lets time pass until this task runs on CPU 0.
    fn pass_until_runs(&mut self, task: u32) {
        let deadline_ns = self.now_ns + 1000 * MS;
        while self.running[0] != Some(TaskId(task)) {
            assert!(self.now_ns < deadline_ns, "task {task} does not run");
            self.pass(MS / 10);
        }
    }

    fn counter(&self, name: &str) -> u64 {
        self.linux.counters().into_iter().find(|counter| counter.0 == name).unwrap().1
    }

    fn entity(&self, task: u32) -> &Entity {
        self.linux.queues.entity(TaskId(task))
    }

    /// Virtual run time of the task.
    fn vruntime(&self, task: u32) -> i64 {
        self.linux.queues.place_of(TaskId(task)).1
    }

    fn discipline(&mut self) -> &mut Discipline {
        self.linux.queues.discipline_mut()
    }
}
