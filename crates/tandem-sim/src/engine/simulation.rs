//! The event loop.

use super::RunError;
use super::event_queue::NEVER;
use super::measure::VmState;
use super::random::{Entity, Stream};
use super::source::SourceState;
use crate::ids::{CpuId, TaskId, VmId};
use crate::kernel::{Due, Kernel, KernelParts, MemoryState, Task, TimerTarget};
use crate::machine::cost::CostModels;
use crate::metrics::RunMetrics;
use crate::policy::{Policy, TaskFacts};
use crate::program::channel::Request;
use crate::program::code::{ProfileTable, compile};
use crate::scenario::Scenario;
use crate::trace::Observer;
use std::cmp::Reverse;
use std::sync::Arc;

/// Events at one instant after which time is held to stand still.
const EVENTS_AT_ONCE_MAX: u64 = 10_000_000;

/// The engine's own sources of events; in the queue they follow the CPUs, and the interrupt sources follow them.
#[derive(Clone, Copy)]
enum Extra {
    PolicyTimer,
    MemorySample,
    /// End of the warm-up, then end of the run.
    Phase,
    /// An administrator changes the affinity of a VM.
    AffinityChange,
    /// The next task starts. Comes after the CPUs in the queue, so that each task finds them as those before it
    /// have left them.
    Start,
}

/// In the order of their numbers.
const EXTRAS: [Extra; 5] =
    [Extra::PolicyTimer, Extra::MemorySample, Extra::Phase, Extra::AffinityChange, Extra::Start];

/// Time between the starts of two tasks, ns: longer than the decisions that a start brings about.
const START_SPACING_NS: u64 = 20_000;

/// A scenario while it runs.
pub(super) struct Simulation<'a, P, O> {
    pub scenario: &'a Scenario,
    pub kernel: Kernel<P, O>,
    pub vms: Vec<VmState>,
    pub sources: Vec<SourceState>,
    /// When the measuring began; none during the warm-up.
    pub measuring_since_ns: Option<u64>,
    /// VMs that have not yet done the work at which the run may stop.
    pub vms_to_go: usize,
    /// Changes of affinity to come: when, of which VM, and which of its changes; the next one is last.
    affinity_changes: Vec<(u64, VmId, usize)>,
    /// Tasks that have started.
    started: usize,
    ended: bool,
}

impl<'a, P: Policy, O: Observer> Simulation<'a, P, O> {
    /// `facts` are those of the scenario's vCPUs, in order.
    pub fn new(scenario: &'a Scenario, seed: u64, policy: P, facts: Vec<TaskFacts>, observer: O) -> Self {
        let mut profiles = ProfileTable::new();
        let mut tasks = Vec::with_capacity(facts.len());
        let mut vms = Vec::with_capacity(scenario.vms.len());
        let mut sources = Vec::new();
        for (vm, spec) in scenario.vms.iter().enumerate().map(|(at, spec)| (VmId::from(at), spec)) {
            vms.push(VmState::new(spec, TaskId::from(tasks.len())));
            for vcpu in &spec.vcpus {
                let random = Stream::new(seed, Entity::Task, tasks.len());
                tasks.push(Task::new(vm, compile(&vcpu.program, &mut profiles), random));
            }
            for source in &spec.sources {
                sources.push(SourceState::new(vm, source, seed, sources.len()));
            }
        }
        let shares: Vec<&[f64]> = scenario.vms.iter().map(|vm| &vm.memory_shares[..]).collect();
        let profiles = profiles.as_slice().to_vec();
        let memory = MemoryState::new(scenario.costs.memory, &scenario.machine, profiles.clone(), &shares);
        let kernel = Kernel::new(KernelParts {
            machine: Arc::clone(&scenario.machine),
            costs: scenario.costs.clone(),
            policy,
            tasks: tasks.into_iter().zip(facts).collect(),
            profiles,
            memory,
            observer,
            extra_sources: EXTRAS.len() + sources.len(),
        });
        Self {
            scenario,
            kernel,
            vms_to_go: vms.len(),
            affinity_changes: affinity_changes(scenario),
            vms,
            sources,
            measuring_since_ns: None,
            started: 0,
            ended: false,
        }
    }

    /// Runs to the end.
    pub fn run(mut self) -> Result<RunMetrics, RunError> {
        self.set_extra(Extra::PolicyTimer, self.kernel.policy.timer_period_ns());
        self.set_extra(Extra::MemorySample, self.kernel.memory.sample_period_ns().unwrap_or(NEVER));
        self.set_extra(Extra::Phase, self.scenario.warmup_ns);
        self.set_next_affinity_change();
        for source in 0..self.sources.len() {
            self.refresh_source(source);
        }
        self.set_extra(Extra::Start, 0);
        let (mut clock_ns, mut at_once) = (0, 0);
        while !self.ended {
            let (now_ns, source) = self.kernel.queue.peek();
            at_once = if now_ns == clock_ns { at_once + 1 } else { 0 };
            clock_ns = now_ns;
            if at_once > EVENTS_AT_ONCE_MAX {
                return Err(self.stuck(source, now_ns, at_once));
            }
            self.handle(source, now_ns)?;
        }
        Ok(self.results(clock_ns))
    }

    fn handle(&mut self, source: usize, now_ns: u64) -> Result<(), RunError> {
        let cpus = self.kernel.cpus.len();
        if source < cpus {
            return self.handle_cpu(CpuId::from(source), now_ns);
        }
        let extra = source - cpus;
        match EXTRAS.get(extra) {
            Some(Extra::PolicyTimer) => {
                self.kernel.policy_timer(now_ns);
                self.set_extra(Extra::PolicyTimer, now_ns + self.kernel.policy.timer_period_ns());
            }
            Some(Extra::MemorySample) => {
                self.kernel.sample_memory(now_ns);
                let period_ns = self.kernel.memory.sample_period_ns().unwrap_or(NEVER - now_ns);
                self.set_extra(Extra::MemorySample, now_ns + period_ns);
            }
            Some(Extra::Phase) => self.next_phase(now_ns),
            Some(Extra::AffinityChange) => self.change_affinity(now_ns),
            Some(Extra::Start) => self.start_next(now_ns),
            None => self.interrupt_arrives(extra - EXTRAS.len(), now_ns),
        }
        Ok(())
    }

    fn start_next(&mut self, now_ns: u64) {
        self.kernel.start(TaskId::from(self.started), now_ns);
        self.started += 1;
        let spacing_ns = if self.scenario.costs == CostModels::off() { 0 } else { START_SPACING_NS };
        let is_last = self.started == self.kernel.tasks.len();
        self.set_extra(Extra::Start, if is_last { NEVER } else { now_ns + spacing_ns });
    }

    fn handle_cpu(&mut self, cpu: CpuId, now_ns: u64) -> Result<(), RunError> {
        match self.kernel.cpus[cpu.index()].due(now_ns) {
            Some(Due::BurstEnd) => {
                self.kernel.finish_burst(cpu, now_ns);
                self.advance(cpu, now_ns)?;
            }
            Some(Due::Timer) => self.timer_expires(cpu, now_ns),
            Some(Due::Tick) => self.kernel.tick(cpu, now_ns),
            Some(Due::Reschedule) => self.kernel.reschedule(cpu, now_ns),
            None => {}
        }
        self.kernel.refresh(cpu);
        Ok(())
    }

    fn timer_expires(&mut self, cpu: CpuId, now_ns: u64) {
        let Some(Reverse((at_ns, target))) = self.kernel.cpus[cpu.index()].timers.pop() else {
            return;
        };
        self.kernel.charge_interrupt(cpu, now_ns);
        match target {
            TimerTarget::Task(task) => self.kernel.wake(task, now_ns, cpu),
            TimerTarget::Source(source) => {
                let SourceState { vm, channel, .. } = self.sources[source as usize];
                let request = Some(Request { arrived_ns: at_ns, source });
                if let Some(task) = self.vms[vm.index()].channels[channel].put(request) {
                    self.kernel.tasks[task.index()].request = request;
                    self.kernel.wake(task, now_ns, cpu);
                }
            }
        }
    }

    /// An interrupt comes in at the CPU where the vCPU is, or was, that will take it.
    fn interrupt_arrives(&mut self, source: usize, now_ns: u64) {
        let SourceState { vm, channel, .. } = self.sources[source];
        let taker = self.vms[vm.index()].channels[channel].likely_taker();
        let cpu = self.kernel.tasks[taker.index()].last_cpu;
        self.kernel.arm(cpu, now_ns, TimerTarget::Source(source as u32));
        self.kernel.refresh(cpu);
        self.sources[source].arrived(now_ns);
        self.refresh_source(source);
    }

    fn change_affinity(&mut self, now_ns: u64) {
        if let Some((_, vm, change)) = self.affinity_changes.pop() {
            let spec = &self.scenario.vms[vm.index()];
            let change = &spec.affinity_changes[change];
            for at in 0..spec.vcpus.len() {
                let task = TaskId::from(self.vms[vm.index()].first_task.index() + at);
                let (hard, soft) = (Arc::clone(&change.hard_affinity), change.soft_affinity.clone());
                self.kernel.change_affinity(task, hard, soft, now_ns);
            }
        }
        self.set_next_affinity_change();
    }

    fn set_next_affinity_change(&mut self) {
        let next_ns = self.affinity_changes.last().map_or(NEVER, |(at_ns, ..)| *at_ns);
        self.set_extra(Extra::AffinityChange, next_ns);
    }

    fn next_phase(&mut self, now_ns: u64) {
        let end_ns = self.scenario.warmup_ns + self.scenario.length_ns;
        if now_ns < end_ns {
            self.start_measuring(now_ns);
            self.set_extra(Extra::Phase, end_ns);
        } else {
            self.ended = true;
        }
    }

    /// Ends the run as soon as what happens now is done.
    pub fn end(&mut self) {
        self.ended = true;
    }

    fn set_extra(&mut self, extra: Extra, at_ns: u64) {
        self.kernel.queue.set(self.kernel.cpus.len() + extra as usize, at_ns);
    }

    /// Brings the queue up to date with the next interrupt of the source.
    pub fn refresh_source(&mut self, source: usize) {
        let slot = self.kernel.cpus.len() + EXTRAS.len() + source;
        self.kernel.queue.set(slot, self.sources[source].next_ns());
    }

    fn stuck(&self, source: usize, at_ns: u64, events: u64) -> RunError {
        let current = self.kernel.cpus.get(source).and_then(|cpu| cpu.current);
        let vm = current.map_or(VmId(0), |task| self.kernel.tasks[task.index()].vm);
        self.stuck_vm(vm, at_ns, events)
    }

    /// The error that says that the VM's program does not let time go on.
    pub fn stuck_vm(&self, vm: VmId, at_ns: u64, events: u64) -> RunError {
        RunError::Stuck { vm: self.scenario.vms[vm.index()].name.clone(), at_ns, events }
    }
}

/// All changes of affinity, the last one first.
fn affinity_changes(scenario: &Scenario) -> Vec<(u64, VmId, usize)> {
    let mut changes: Vec<_> = scenario
        .vms
        .iter()
        .enumerate()
        .flat_map(|(vm, spec)| {
            let times = spec.affinity_changes.iter().enumerate();
            times.map(move |(at, change)| (change.at_ns, VmId::from(vm), at))
        })
        .collect();
    changes.sort_unstable_by(|a, b| b.cmp(a));
    changes
}
