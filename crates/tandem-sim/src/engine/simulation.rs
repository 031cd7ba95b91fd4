//! The event loop.

use super::RunError;
use super::build::{Built, build};
use super::event_queue::NEVER;
use super::events::HostEvents;
use super::homes::Agent;
use super::life::{Change, Life, changes};
use super::measure::VmState;
use super::source::SourceState;
use crate::cost::CostModels;
use crate::kernel::{
    CpuRef, Due, HOST, MemoryState, NumaBalancing, ProcessorDue, ProcessorParts, Processors, SharedState,
    System, SystemParts, TaskKind, TaskRef, TimerTarget, VmMemory,
};
use crate::metrics::RunMetrics;
use crate::policy::Policy;
use crate::program::channel::{Request, Token};
use crate::scenario::{PolicySettings, Scenario, Workload};
use crate::trace::Observer;
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::Arc;
use tandem_machine::ids::{CpuId, TaskId, VmId};

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
    /// Something else happens to the host.
    HostEvent,
    /// The watchdog of compiled schedulers looks.
    Watchdog,
    /// VMs come or go.
    VmChange,
    /// The agent that chooses homes looks.
    Look,
    /// The next task starts. Comes after the CPUs in the queue, so that each task finds them as those before it
    /// have left them.
    Start,
}

/// In the order of their numbers.
const EXTRAS: [Extra; 9] = [
    Extra::PolicyTimer,
    Extra::MemorySample,
    Extra::Phase,
    Extra::AffinityChange,
    Extra::HostEvent,
    Extra::Watchdog,
    Extra::VmChange,
    Extra::Look,
    Extra::Start,
];

/// Time between the starts of two tasks, ns: longer than the decisions that a start brings about.
const START_SPACING_NS: u64 = 20_000;
/// The same after a process of the host: they are many, and what starts them wakes one after the other.
const PROCESS_START_SPACING_NS: u64 = 1_000;

/// A scenario while it runs.
pub(super) struct Simulation<'a, O> {
    pub scenario: &'a Scenario,
    pub seed: u64,
    pub system: System<O>,
    pub vms: Vec<VmState>,
    pub sources: Vec<SourceState>,
    /// When the measuring began; none during the warm-up.
    pub measuring_since_ns: Option<u64>,
    /// VMs that have not yet done the work at which the run may stop.
    pub vms_to_go: usize,
    /// Changes of affinity to come: when, of which VM, and which of its changes; the next one is last.
    affinity_changes: Vec<(u64, VmId, usize)>,
    pub host_events: HostEvents,
    /// VMs that are to come or to go: when, what, and which; the next one is last.
    pub vm_changes: Vec<(u64, Change, VmId)>,
    /// Who chooses homes while the scenario runs.
    pub agent: Option<Agent>,
    /// Tasks that are yet to start. Of VMs that are there from the start, vCPUs come first, then the tasks of the first
    /// guest, and so on.
    pub to_start: VecDeque<TaskRef>,
    /// When the last task was started, and how long the next one has to wait after it, ns.
    last_start: (u64, u64),
    ended: bool,
}

impl<'a, O: Observer> Simulation<'a, O> {
    /// The scenario must have been checked.
    pub fn new(scenario: &'a Scenario, seed: u64, observer: O) -> Self {
        let Built { kernels, vms, profiles } = build(scenario, seed);
        let lives: Vec<Life> = vms.iter().map(|vm| vm.life).collect();
        let mut sources = Vec::new();
        for (vm, spec) in scenario.workloads.iter().enumerate() {
            for source in &spec.sources {
                sources.push(SourceState::new(vm.into(), source, seed, sources.len(), lives[vm].start_ns));
            }
        }
        let numa = NumaBalancing::new(scenario, kernels.host().tasks().all().len());
        let memories: Vec<VmMemory<'_>> = (scenario.workloads.iter())
            .map(|vm| VmMemory {
                bytes: vm.memory_bytes,
                shares: &vm.memory_shares,
                moves: vm.first_touch || numa.is_some() || !is_there_with_memory(vm),
                is_there: is_there_with_memory(vm),
            })
            .collect();
        let profiles = profiles.as_slice().to_vec();
        let memory = MemoryState::new(scenario.costs.memory, &scenario.machine, profiles.clone(), &memories);
        let shared = SharedState::new(&scenario.costs, &scenario.machine, profiles.clone(), vms.len());
        let processors = Processors::new(ProcessorParts {
            machine: Arc::clone(&scenario.machine),
            costs: scenario.costs.clone(),
            profiles,
            memory,
            shared,
            pause_loop: scenario.pause_loop,
            lock_kind: kernels.host().policy().spin_lock_kind(),
            extra_sources: EXTRAS.len() + sources.len(),
        });
        let system = System::new(SystemParts { kernels, processors, numa, observer });
        let mut simulation = Self {
            scenario,
            seed,
            system,
            vms_to_go: vms.len(),
            affinity_changes: affinity_changes(scenario),
            host_events: HostEvents::new(scenario),
            vms,
            sources,
            measuring_since_ns: None,
            vm_changes: changes(&lives),
            agent: Agent::new(scenario.homes, scenario.workloads.len()),
            to_start: VecDeque::new(),
            last_start: (0, 0),
            ended: false,
        };
        for kernel in simulation.system.kernels.positions().skip(1) {
            for task in 0..simulation.system.kernels[kernel].tasks().all().len() {
                simulation.name_task(TaskRef { kernel, task: task.into() }, 0);
            }
        }
        simulation
    }

    /// Tells the observer the name of a task of a guest.
    pub fn name_task(&mut self, task: TaskRef, now_ns: u64) {
        let kernel = &self.system.kernels[task.kernel];
        let state = &kernel[task.task];
        if let Some(guest) = self.scenario.workloads[state.vm.index()].guest()
            && !task.is_host()
        {
            let name = &guest.programs[state.group as usize].name;
            self.system.observer.named(now_ns, kernel.id(), task.task, name);
        }
    }

    /// Runs to the end.
    pub fn run(mut self) -> Result<RunMetrics, RunError> {
        self.set_extra(Extra::PolicyTimer, self.system.kernels.host().policy().timer_period_ns());
        self.set_extra(Extra::MemorySample, self.system.processors.sample_period_ns().unwrap_or(NEVER));
        self.set_extra(Extra::Phase, self.scenario.warmup_ns);
        self.set_next_affinity_change();
        self.set_extra(Extra::HostEvent, self.host_events.next_ns());
        self.set_extra(Extra::Watchdog, self.next_watch_ns(0));
        self.set_extra(Extra::Look, self.next_look_ns(0));
        self.change_vms(0);
        // vCPUs of all VMs come before the tasks of their guests.
        self.to_start.make_contiguous().sort_by_key(|task| task.kernel);
        self.set_next_vm_change();
        for source in 0..self.sources.len() {
            self.refresh_source(source);
        }
        let (mut clock_ns, mut at_once) = (0, 0);
        while !self.ended {
            let (now_ns, source) = self.system.processors.next_event();
            #[cfg(test)]
            self.check_locks();
            at_once = if now_ns == clock_ns { at_once + 1 } else { 0 };
            clock_ns = now_ns;
            if at_once > EVENTS_AT_ONCE_MAX {
                return Err(self.stuck(source, now_ns, at_once));
            }
            self.handle(source, now_ns)?;
            if self.system.has_failed {
                return Err(self.scheduler_failed(now_ns));
            }
        }
        Ok(self.results(clock_ns))
    }

    fn handle(&mut self, source: usize, now_ns: u64) -> Result<(), RunError> {
        let processors = self.system.processors.len();
        if source < processors {
            return self.handle_processor(CpuId::from(source), now_ns);
        }
        let extra = source - processors;
        match EXTRAS.get(extra) {
            Some(Extra::PolicyTimer) => {
                self.system.policy_timer(now_ns);
                let period_ns = self.system.kernels.host().policy().timer_period_ns();
                self.set_extra(Extra::PolicyTimer, now_ns.saturating_add(period_ns));
            }
            Some(Extra::MemorySample) => {
                self.system.processors.sample_memory(&mut self.system.kernels, now_ns);
                let period_ns = self.system.processors.sample_period_ns().unwrap_or(NEVER - now_ns);
                self.set_extra(Extra::MemorySample, now_ns + period_ns);
            }
            Some(Extra::Phase) => self.next_phase(now_ns),
            Some(Extra::AffinityChange) => self.change_affinity(now_ns),
            Some(Extra::HostEvent) => {
                self.happen(now_ns);
                self.set_extra(Extra::HostEvent, self.host_events.next_ns());
            }
            Some(Extra::Watchdog) => {
                self.watch(now_ns);
                self.set_extra(Extra::Watchdog, self.next_watch_ns(now_ns));
            }
            Some(Extra::VmChange) => {
                self.change_vms(now_ns);
                self.set_next_vm_change();
            }
            Some(Extra::Look) => {
                self.look(now_ns);
                self.set_extra(Extra::Look, self.next_look_ns(now_ns));
            }
            Some(Extra::Start) => self.start_next(now_ns),
            None => self.interrupt_arrives(extra - EXTRAS.len(), now_ns),
        }
        Ok(())
    }

    /// There are tasks to start: the first one now, or as long after the last one as it takes.
    pub fn start_soon(&mut self, now_ns: u64) {
        let (last_ns, spacing_ns) = self.last_start;
        self.set_extra(Extra::Start, now_ns.max(last_ns + spacing_ns));
    }

    fn start_next(&mut self, now_ns: u64) {
        let mut spacing_ns = START_SPACING_NS;
        if let Some(TaskRef { kernel, task }) = self.to_start.pop_front() {
            if self.system.kernels[kernel][task].kind != TaskKind::Vcpu {
                spacing_ns = PROCESS_START_SPACING_NS;
            }
            self.system.start(kernel, task, now_ns);
            if kernel == HOST {
                self.touch_memory(task);
            }
        }
        if self.scenario.costs == CostModels::off() {
            spacing_ns = 0;
        }
        self.last_start = (now_ns, spacing_ns);
        self.set_extra(Extra::Start, if self.to_start.is_empty() { NEVER } else { now_ns + spacing_ns });
    }

    /// The task of the host has just started: if it is the last one of its VM, they touch its memory for the first time.
    fn touch_memory(&mut self, task: TaskId) {
        let tasks = self.system.kernels.host().tasks().all();
        let vm = tasks[task.index()].vm;
        let spec = &self.scenario.workloads[vm.index()];
        let first = self.vms[vm.index()].first_vcpu.index();
        let last = first + spec.task_count() - 1;
        if !spec.first_touch || task.index() != last {
            return;
        }
        let mut shares = vec![0.0; self.scenario.machine.node_count()];
        for task in &tasks[first..=last] {
            shares[self.scenario.machine.cpu(task.last_cpu).node.index()] += 1.0 / spec.task_count() as f64;
        }
        self.system.processors.memory_mut().set_shares(&self.scenario.machine, vm, &shares);
    }

    fn handle_processor(&mut self, pcpu: CpuId, now_ns: u64) -> Result<(), RunError> {
        match self.system.due(pcpu, now_ns) {
            Some(ProcessorDue::BurstEnd) => {
                self.system.finish_burst(pcpu, now_ns);
                self.advance(pcpu, now_ns)?;
            }
            Some(ProcessorDue::PauseLoop) => self.system.pause_loop_exit(pcpu, now_ns),
            Some(ProcessorDue::Search) => self.system.continue_search(pcpu, now_ns),
            Some(ProcessorDue::Kernel(on, Due::Timer)) => self.timer_expires(on, now_ns),
            Some(ProcessorDue::Kernel(on, Due::Tick)) => self.system.tick(on, now_ns),
            Some(ProcessorDue::Kernel(on, Due::Reschedule)) => self.system.reschedule(on, now_ns),
            None => {}
        }
        self.system.processors.refresh(&self.system.kernels, pcpu);
        Ok(())
    }

    fn timer_expires(&mut self, on: CpuRef, now_ns: u64) {
        let timers = &mut self.system.kernels[on].timers;
        let Some(Reverse((at_ns, target))) = timers.pop() else {
            return;
        };
        if let TimerTarget::Task(task) = target
            && on.is_host()
            && self.system.vcpu_timer_is_stale(task, now_ns)
        {
            return;
        }
        let kernel = &self.system.kernels[on.kernel];
        if !matches!(target, TimerTarget::Policy(token) if !kernel.policy().is_interrupt(token)) {
            self.system.processors.charge_interrupt(&mut self.system.kernels, on, now_ns);
        }
        match target {
            TimerTarget::Task(task) => self.system.wake(task, now_ns, on, false),
            TimerTarget::Source(source) => self.interrupt_handled(on, source, at_ns, now_ns),
            TimerTarget::Policy(token) => self.system.policy_alarm(on, token, now_ns),
            TimerTarget::Flush(sender) => self.answer_flush(on, sender, now_ns),
        }
    }

    /// A CPU of the kernel that the source's VM belongs to has taken the interrupt; or a CPU of the host has, which
    /// passes it on to the VM's guest kernel.
    fn interrupt_handled(&mut self, on: CpuRef, source: u32, arrived_ns: u64, now_ns: u64) {
        let SourceState { vm, channel, .. } = self.sources[source as usize];
        let kernel = self.vms[vm.index()].kernel;
        if kernel != on.kernel {
            let vcpu = self.interrupted_cpu(source as usize);
            self.system.arm(vcpu, arrived_ns, TimerTarget::Source(source));
            match self.system.kernels[vcpu].pcpu {
                Some(pcpu) => self.system.processors.refresh(&self.system.kernels, pcpu),
                None => self.system.wake_vcpu(vcpu, now_ns, Some(on.cpu)),
            }
            return;
        }
        let token = Token::Request(Request { arrived_ns, source });
        if let Some(task) = self.vms[vm.index()].channels[channel].put(token) {
            self.system.kernels[kernel][task].receive(token);
            self.system.wake(task, now_ns, on, false);
        }
    }

    /// The CPU of its VM's kernel at which an interrupt of the source comes in: where the task is, or was, that will
    /// take it.
    fn interrupted_cpu(&self, source: usize) -> CpuRef {
        let SourceState { vm, channel, .. } = self.sources[source];
        let state = &self.vms[vm.index()];
        let taker = state.channels[channel].likely_taker();
        let tasks = self.system.kernels[state.kernel].tasks().all();
        // A guest may have no task at all.
        let cpu = tasks.get(taker.index()).map_or(CpuId(0), |task| task.last_cpu);
        CpuRef { kernel: state.kernel, cpu }
    }

    /// An interrupt comes in at the pCPU where the vCPU is, or was, that will take it.
    fn interrupt_arrives(&mut self, source: usize, now_ns: u64) {
        let cpu = self.interrupted_cpu(source);
        let pcpu = match cpu.is_host() {
            true => cpu.cpu,
            false => self.system.kernels.host()[self.system.vcpu_task(cpu)].last_cpu,
        };
        let host = CpuRef::host(pcpu);
        self.system.arm(host, now_ns, TimerTarget::Source(source as u32));
        self.system.processors.refresh(&self.system.kernels, pcpu);
        self.sources[source].arrived(now_ns);
        self.refresh_source(source);
    }

    fn change_affinity(&mut self, now_ns: u64) {
        if let Some((_, vm, change)) = self.affinity_changes.pop() {
            let spec = &self.scenario.workloads[vm.index()];
            let change = &spec.affinity_changes[change];
            for at in 0..spec.task_count() {
                let task = TaskId::from(self.vms[vm.index()].first_vcpu.index() + at);
                let (hard, soft) = (Arc::clone(&change.affinity.hard), change.affinity.soft.clone());
                self.system.change_affinity(task, hard, soft, now_ns);
            }
            self.keep_home(vm, now_ns);
        }
        self.set_next_affinity_change();
    }

    fn set_next_vm_change(&mut self) {
        let next_ns = self.vm_changes.last().map_or(NEVER, |(at_ns, ..)| *at_ns);
        self.set_extra(Extra::VmChange, next_ns);
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
        self.system.processors.set_extra_event(extra as usize, at_ns);
    }

    /// Brings the queue up to date with the next interrupt of the source.
    pub fn refresh_source(&mut self, source: usize) {
        let at_ns = self.sources[source].next_ns();
        self.system.processors.set_extra_event(EXTRAS.len() + source, at_ns);
    }

    /// The error that says which kernel's scheduler cannot go on, and why.
    fn scheduler_failed(&self, at_ns: u64) -> RunError {
        let failed = self.system.kernels.iter().position(|kernel| kernel.failure().is_some()).unwrap_or(HOST);
        let guest =
            self.scenario.workloads.iter().filter(|vm| vm.guest().is_some()).nth(failed.wrapping_sub(1));
        let policy = match guest.and_then(Workload::guest) {
            Some(guest) => &guest.policy,
            None => &self.scenario.policy,
        };
        let scheduler = match policy {
            PolicySettings::SchedExt(settings) => settings.name.clone(),
            PolicySettings::Credit(_) | PolicySettings::Linux(_) => String::new(),
        };
        let kernel = guest.map_or_else(|| "the host".to_owned(), |vm| format!("VM '{}'", vm.name));
        let message = self.system.kernels[failed].failure().unwrap_or_default().to_owned();
        RunError::Scheduler { scheduler, kernel, at_ns, message }
    }

    fn stuck(&self, source: usize, at_ns: u64, events: u64) -> RunError {
        let host = self.system.kernels.host();
        let current = host.cpus().get(source).and_then(|cpu| cpu.current);
        let vm = current.map_or(VmId(0), |task| host[task].vm);
        self.stuck_vm(vm, at_ns, events)
    }

    /// The error that says that the VM's program does not let time go on.
    pub fn stuck_vm(&self, vm: VmId, at_ns: u64, events: u64) -> RunError {
        RunError::Stuck { vm: self.scenario.workloads[vm.index()].name.clone(), at_ns, events }
    }
}

/// Whether the VM has its memory before it starts: there is nobody who could still say where that lies.
fn is_there_with_memory(workload: &Workload) -> bool {
    workload.start().is_none() && !workload.home().is_chosen()
}

/// All changes of affinity, the last one first.
fn affinity_changes(scenario: &Scenario) -> Vec<(u64, VmId, usize)> {
    let mut changes: Vec<_> = scenario
        .workloads
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
