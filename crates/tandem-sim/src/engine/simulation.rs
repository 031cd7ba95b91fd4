//! The event loop.

use super::agenda::{Agenda, Item};
use super::build::{Built, build};
use super::event_queue::NEVER;
use super::gates::Gates;
use super::homes::HomeKeeper;
use super::interrupts::Interrupts;
use super::life::Change;
use super::phase::Phase;
use super::program::{Execution, name_task};
use super::starts::Starts;
use super::timetable::Timetable;
use super::vm::VmState;
use super::{RunError, life, measure, stuck, tlb, watchdog};
use crate::kernel::{
    CpuRef, Due, HOST, Hardware, MemoryState, NumaBalancing, ProcessorDue, Processors, SharedState, System,
    TaskRef, TimerTarget, VmMemory, Waker,
};
use crate::metrics::RunMetrics;
use crate::policy::Policy;
use crate::policy::halt_poll::HaltPoll;
use crate::scenario::{PolicySettings, Scenario, Which, Workload};
use crate::trace::Observer;
use std::cmp::Reverse;
use std::sync::Arc;
use tandem_machine::cpumask::CpuMask;
use tandem_machine::ids::{CpuId, VmId};

/// Events at one instant after which the run fails.
const EVENTS_AT_ONCE_MAX: u64 = 10_000_000;

/// A scenario while it runs.
pub(super) struct Simulation<'a, O> {
    pub(super) scenario: &'a Scenario,
    seed: u64,
    pub(super) system: System<O>,
    pub(super) vms: Vec<VmState>,
    pub(super) agenda: Agenda,
    phase: Phase,
    gates: Gates,
    pub(super) interrupts: Interrupts,
    /// Which VM's affinity changes, and to which of its changes.
    affinity_changes: Timetable<(VmId, usize)>,
    /// Which of the scenario's events happens to the host.
    pub(super) host_events: Timetable<usize>,
    pub(super) vm_changes: Timetable<(Change, VmId)>,
    pub(super) homes: HomeKeeper<'a>,
    pub(super) starts: Starts,
}

impl<'a, O: Observer> Simulation<'a, O> {
    /// The scenario must have been checked.
    pub fn new(scenario: &'a Scenario, seed: u64, observer: O) -> Self {
        let Built { kernels, vms, profiles } = build(scenario, seed);
        let numa = NumaBalancing::new(scenario, kernels.host().tasks().all().len());
        let is_balanced = |vm: usize| numa.as_ref().is_some_and(|numa| numa.may_move(vm.into()));
        let memories: Vec<VmMemory<'_>> = (scenario.workloads.iter().enumerate())
            .map(|(at, vm)| VmMemory {
                bytes: vm.memory_bytes,
                shares: &vm.memory_shares,
                huge_share: vm.pages.transparent_share(),
                moves: vm.first_touch || is_balanced(at) || !life::is_there_with_memory(vm),
                is_there: life::is_there_with_memory(vm),
            })
            .collect();
        let profiles = profiles.as_slice().to_vec();
        let memory = MemoryState::new(scenario.costs.memory, &scenario.machine, profiles.clone(), &memories);
        let shared = SharedState::new(&scenario.costs, &scenario.machine, profiles.clone(), vms.len());
        let hardware = Hardware::new(&scenario.machine, &scenario.costs, profiles, memory, shared);
        let lock_kind = kernels.host().policy().spin_lock_kind();
        let halt_poll = HaltPoll::of(&scenario.policy, scenario.halt_poll_ns);
        let processors = Processors::new(hardware, scenario.pause_loop, halt_poll, lock_kind);
        let held = (0..scenario.workloads.len()).map(|vm| scenario.may_be_held(vm.into())).collect();
        let mut system = System::new(kernels, processors, numa, held, observer);
        for kernel in system.kernels.positions().skip(1) {
            for task in 0..system.kernels[kernel].tasks().all().len() {
                name_task(scenario, &mut system, TaskRef { kernel, task: task.into() }, 0);
            }
        }
        let interrupts = Interrupts::new(scenario, &vms, seed);
        Self {
            scenario,
            seed,
            system,
            agenda: Agenda::new(interrupts.sources()),
            phase: Phase::new(scenario),
            gates: Gates::new(scenario.gates),
            interrupts,
            affinity_changes: affinity_changes(scenario),
            host_events: (scenario.events.iter().enumerate()).map(|(at, event)| (event.at_ns, at)).collect(),
            vm_changes: life::changes(&vms),
            homes: HomeKeeper::new(scenario),
            starts: Starts::new(),
            vms,
        }
    }

    /// Runs to the end.
    pub fn run(mut self) -> Result<RunMetrics, RunError> {
        self.fill_agenda();
        let (mut clock_ns, mut at_once) = (0, 0);
        while !self.phase.has_ended() {
            let (processor_ns, pcpu) = self.system.processors.next_event();
            let own_ns = self.agenda.next_ns();
            // At one instant processors come first.
            let pcpu = (processor_ns <= own_ns).then_some(pcpu);
            let now_ns = processor_ns.min(own_ns);
            #[cfg(test)]
            super::lock_properties::check_locks(&self.system, &self.vms, now_ns);
            if now_ns == clock_ns {
                at_once += 1;
            } else {
                at_once = 0;
                clock_ns = now_ns;
                if !self.system.observer.goes_on(now_ns) {
                    break;
                }
            }
            if at_once > EVENTS_AT_ONCE_MAX {
                return Err(stuck(self.scenario, self.running_vm(pcpu), now_ns, at_once));
            }
            match pcpu {
                Some(pcpu) => self.handle_processor(pcpu, now_ns)?,
                None => self.handle_own(now_ns)?,
            }
            if self.system.has_failed {
                return Err(self.scheduler_failed(now_ns));
            }
        }
        let measured_since_ns = self.phase.measured_since_ns();
        let moves = self.homes.into_moves();
        Ok(measure::results(self.scenario, self.system, &self.vms, moves, measured_since_ns, clock_ns))
    }

    /// The first event of each kind.
    fn fill_agenda(&mut self) {
        self.agenda.set(Item::PolicyTimer, self.system.kernels.host().policy().timer_period_ns());
        self.agenda
            .set(Item::MemorySample, self.system.processors.hardware().sample_period_ns().unwrap_or(NEVER));
        self.agenda.set(Item::Phase, self.phase.next_ns());
        self.agenda.set(Item::AffinityChange, self.affinity_changes.next_ns());
        self.agenda.set(Item::HostEvent, self.host_events.next_ns());
        self.agenda.set(Item::Watchdog, watchdog::next_ns(&self.system, 0));
        self.agenda.set(Item::HomeScan, self.homes.next_scan_ns());
        for source in 0..self.interrupts.sources() {
            self.agenda.set(Item::Interrupt(source), self.interrupts.next_ns(source));
        }
        self.change_vms(0);
        self.agenda.set(Item::VmChange, self.vm_changes.next_ns());
        self.starts.put_vcpus_first();
    }

    /// Handles the next event on the agenda, and puts the one after it there.
    fn handle_own(&mut self, now_ns: u64) -> Result<(), RunError> {
        let item = self.agenda.next_item();
        let next_ns = match item {
            Item::PolicyTimer => {
                self.system.policy_timer(now_ns);
                now_ns.saturating_add(self.system.kernels.host().policy().timer_period_ns())
            }
            Item::MemorySample => {
                self.system.processors.sample_memory(&mut self.system.kernels, now_ns);
                self.system
                    .processors
                    .hardware()
                    .sample_period_ns()
                    .map_or(NEVER, |period_ns| now_ns + period_ns)
            }
            Item::Phase => {
                self.begin_next_phase(now_ns);
                self.phase.next_ns()
            }
            Item::AffinityChange => {
                self.change_affinity(now_ns);
                self.affinity_changes.next_ns()
            }
            Item::HostEvent => {
                self.happen(now_ns);
                self.host_events.next_ns()
            }
            Item::Watchdog => {
                watchdog::check(self.scenario, &mut self.system, &self.vms, now_ns);
                watchdog::next_ns(&self.system, now_ns)
            }
            Item::VmChange => {
                self.change_vms(now_ns);
                self.vm_changes.next_ns()
            }
            Item::HomeScan => {
                self.homes.scan(&mut self.system, &self.vms, now_ns);
                self.homes.next_scan_ns()
            }
            Item::Start => {
                self.start_next(now_ns);
                self.starts.next_ns()
            }
            Item::Interrupt(source) => {
                if let Some(vm) = self.interrupts.arrive(source, &mut self.system, &self.vms, now_ns) {
                    let vm = self.scenario.workloads[vm.index()].name.clone();
                    return Err(RunError::TooManyRequests { vm, at_ns: now_ns });
                }
                self.interrupts.next_ns(source)
            }
        };
        self.agenda.set(item, next_ns);
        Ok(())
    }

    fn handle_processor(&mut self, pcpu: CpuId, now_ns: u64) -> Result<(), RunError> {
        match self.system.due(pcpu, now_ns) {
            Some(ProcessorDue::BurstEnd) => {
                self.system.finish_burst(pcpu, now_ns);
                self.execute(pcpu, now_ns)?;
            }
            Some(ProcessorDue::PauseLoop) => self.spins_for_long(pcpu, now_ns),
            Some(ProcessorDue::Search) => self.system.continue_search(pcpu, now_ns),
            Some(ProcessorDue::Kernel(on, Due::Timer)) => self.timer_expires(on, now_ns),
            Some(ProcessorDue::Kernel(on, Due::Tick)) => self.system.tick(on, now_ns),
            Some(ProcessorDue::Kernel(on, Due::TurnEnd)) => self.system.turn_ends(on, now_ns),
            Some(ProcessorDue::Kernel(on, Due::Reschedule)) => self.system.reschedule(on, now_ns),
            None => {}
        }
        self.notice_preempted(now_ns);
        self.system.processors.refresh(&self.system.kernels, pcpu);
        Ok(())
    }

    /// Lets what the processor executes go on with its program until that takes time.
    fn execute(&mut self, pcpu: CpuId, now_ns: u64) -> Result<(), RunError> {
        let Some((on, task)) = self.system.processors.executing(pcpu) else {
            self.system.poll_ends(pcpu, now_ns);
            return Ok(());
        };
        let vm = self.system.kernels[task].vm;
        let execution = Execution {
            scenario: self.scenario,
            seed: self.seed,
            system: &mut self.system,
            vm: &mut self.vms[vm.index()],
            interrupts: &mut self.interrupts,
            agenda: &mut self.agenda,
            phase: &mut self.phase,
            gates: &mut self.gates,
            on,
            pcpu,
            task,
            now_ns,
        };
        execution.run()
    }

    fn timer_expires(&mut self, on: CpuRef, now_ns: u64) {
        let timers = &mut self.system.kernels[on].timers;
        let Some(Reverse((at_ns, target))) = timers.pop() else {
            return;
        };
        if let TimerTarget::Task(task) = target
            && on.is_host()
            && self.system.kernels.vcpu_timer_is_stale(task, now_ns)
        {
            return;
        }
        let kernel = &self.system.kernels[on.kernel];
        if !matches!(target, TimerTarget::Policy(token) if !kernel.policy().is_interrupt(token)) {
            self.system.processors.charge_interrupt(&mut self.system.kernels, on, now_ns);
        }
        match target {
            TimerTarget::Task(task) => self.system.wake(task, now_ns, on, Waker::Interrupt),
            TimerTarget::Source(source) => {
                self.interrupts.handle(source, &mut self.system, &mut self.vms, on, at_ns, now_ns);
            }
            TimerTarget::Policy(token) => self.system.policy_alarm(on, token, now_ns),
            // It has been started as it was asked for; the interrupt is what is left.
            TimerTarget::StartTurnTimer => {}
            TimerTarget::Flush(sender) => tlb::answer_flush(&mut self.system, on, sender, now_ns),
        }
        self.system.timer_handled(on, now_ns);
    }

    fn begin_next_phase(&mut self, now_ns: u64) {
        if self.phase.begin_next(now_ns) {
            self.homes.read_clocks(&self.system, &self.vms, now_ns);
            measure::start(&mut self.system, &mut self.vms, now_ns);
        }
    }

    fn change_affinity(&mut self, now_ns: u64) {
        if let Some((_, (vm, change))) = self.affinity_changes.pop_due(now_ns) {
            let change = &self.scenario.workloads[vm.index()].affinity_changes[change];
            self.set_affinity(
                vm,
                &change.tasks,
                &change.affinity.hard,
                change.affinity.soft.as_ref(),
                now_ns,
            );
        }
    }

    /// These tasks of the VM may and prefer to run there from now on.
    pub(super) fn set_affinity(
        &mut self,
        vm: VmId,
        which: &Which,
        hard: &Arc<CpuMask>,
        soft: Option<&Arc<CpuMask>>,
        now_ns: u64,
    ) {
        let all = self.vms[vm.index()].tasks();
        for (_, task) in all.enumerate().filter(|(number, _)| which.contains(*number)) {
            self.system.change_affinity(task.into(), Arc::clone(hard), soft.cloned(), now_ns);
        }
        self.homes.keep(&mut self.system, &self.vms, vm, now_ns);
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
            PolicySettings::Credit(_) | PolicySettings::Credit2(_) | PolicySettings::Linux(_) => {
                String::new()
            }
        };
        let kernel = guest.map_or_else(|| "the host".to_owned(), |vm| format!("VM '{}'", vm.name));
        let message = self.system.kernels[failed].failure().unwrap_or_default().to_owned();
        RunError::Scheduler { scheduler, kernel, at_ns, message }
    }

    /// The VM that runs on the processor; the first one if there is none.
    fn running_vm(&self, pcpu: Option<CpuId>) -> VmId {
        let host = self.system.kernels.host();
        let current = pcpu.and_then(|pcpu| host[pcpu].current);
        current.map_or(VmId(0), |task| host[task].vm)
    }
}

/// All changes of affinity.
fn affinity_changes(scenario: &Scenario) -> Timetable<(VmId, usize)> {
    let of_vm = |(vm, spec): (usize, &Workload)| {
        let changes = spec.affinity_changes.iter().enumerate();
        changes.map(|(at, change)| (change.at_ns, (VmId::from(vm), at))).collect::<Vec<_>>()
    };
    scenario.workloads.iter().enumerate().flat_map(of_vm).collect()
}
