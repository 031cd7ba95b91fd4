//! VMs that come and go: when, and what starts and ends with them.

use super::agenda::Item;
use super::event_queue::NEVER;
use super::random::{Entity, Stream};
use super::simulation::Simulation;
use super::starts::{PROCESS_START_SPACING_NS, START_SPACING_NS};
use super::timetable::Timetable;
use super::vm::VmState;
use crate::cost::CostModels;
use crate::kernel::{CpuRef, HOST, System, TaskKind, TaskRef, TaskState, Waker};
use crate::program::Amount;
use crate::scenario::{Guest, HomeChoice, Scenario, Vm, Workload};
use crate::trace::Observer;
use tandem_machine::ids::{TaskId, VmId};
use tandem_machine::placement;

/// Within what time VMs that are there from the start begin to work, ns, if the warm-up is four times as
/// long: several of the longest slices, Xen's of 30 ms, so that they come at any phase of each other's. An
/// assumption.
const BOOT_SPREAD_NS: u64 = 100_000_000;

/// When a VM is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Life {
    pub start_ns: u64,
    /// [`NEVER`]: it stays.
    pub end_ns: u64,
}

impl Life {
    /// That of a VM under a seed. It depends on nothing else, so that the same VMs come and go in all
    /// variants.
    ///
    /// No two VMs boot at one instant: with a [timer](crate::cost::Timer), those that are there from the
    /// start begin to work at times of their own in the warm-up.
    pub fn drawn(scenario: &Scenario, vm: usize, seed: u64) -> Self {
        let spec = &scenario.workloads[vm];
        let mut random = Stream::new(seed, Entity::Life, vm as u64);
        let boots_alone = spec.vm().is_some() && scenario.costs.timer.is_some();
        let boot = Amount::Uniform(0, (scenario.warmup_ns / 4).min(BOOT_SPREAD_NS));
        let start_ns = match spec.start() {
            Some(start) => random.draw(start),
            None if boots_alone => random.draw(boot),
            None => 0,
        };
        let life = spec.vm().and_then(Vm::life);
        let end_ns = life.map_or(NEVER, |life| start_ns + random.draw(life).max(1));
        Self { start_ns, end_ns }
    }

    /// How much of the time between the two it is there, ns.
    pub fn within_ns(&self, from_ns: u64, to_ns: u64) -> u64 {
        self.end_ns.min(to_ns).saturating_sub(self.start_ns.max(from_ns))
    }
}

/// A VM comes or goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Change {
    /// Goes: first, so that VMs that come at the same time find its room.
    End,
    Start,
}

/// All changes: when, what, and of which VM.
pub(super) fn changes(vms: &[VmState]) -> Timetable<(Change, VmId)> {
    let of_vm = |(vm, state): (usize, &VmState)| {
        let Life { start_ns, end_ns } = state.life;
        [(start_ns, (Change::Start, VmId::from(vm))), (end_ns, (Change::End, VmId::from(vm)))]
    };
    vms.iter().enumerate().flat_map(of_vm).collect()
}

/// Whether the VM has its memory before it starts: nothing can still decide where that lies.
pub(super) fn is_there_with_memory(workload: &Workload) -> bool {
    workload.start().is_none() && !workload.home().is_chosen()
}

impl<O: Observer> Simulation<'_, O> {
    /// VMs come or go at this time.
    pub(super) fn change_vms(&mut self, now_ns: u64) {
        while let Some((_, (change, vm))) = self.vm_changes.pop_due(now_ns) {
            match change {
                Change::Start => self.start_vm(vm, now_ns),
                Change::End => self.end_vm(vm, now_ns),
            }
        }
        self.agenda.set(Item::Start, self.starts.next_ns());
    }

    /// The VM comes: it gets a home, and its tasks are to start.
    fn start_vm(&mut self, vm: VmId, now_ns: u64) {
        let spec = &self.scenario.workloads[vm.index()];
        self.vms[vm.index()].is_there = true;
        let home = match spec.home().is_chosen() {
            true => self.homes.choose(&mut self.system, &self.vms, vm, now_ns),
            false => Vec::new(),
        };
        if !spec.first_touch && (spec.home().is_chosen() || spec.start().is_some()) {
            let shares = match spec.home() == HomeChoice::ChosenWithMemory && !home.is_empty() {
                true => placement::memory_shares(&home, &self.scenario.machine),
                false => spec.memory_shares.clone(),
            };
            self.system.processors.hardware_mut().memory_mut().set_shares(
                &self.scenario.machine,
                vm,
                &shares,
            );
        }
        let state = &self.vms[vm.index()];
        let starts = state.tasks().enumerate().filter(|(number, _)| !spec.is_forked(*number));
        self.starts.add(starts.map(|(_, task)| TaskRef::host(task.into())), now_ns);
        let kernel = state.kernel;
        if kernel != HOST {
            let forked = spec.guest().map(Guest::forked).unwrap_or_default();
            let tasks = 0..self.system.kernels[kernel].tasks().all().len();
            let tasks = tasks.filter(|task| !forked.contains(task));
            self.starts.add(tasks.map(|task| TaskRef { kernel, task: task.into() }), now_ns);
        }
    }

    /// Kills the VM. Its tasks end as soon as they run, as on Linux; its memory is free at once.
    fn end_vm(&mut self, vm: VmId, now_ns: u64) {
        self.vms[vm.index()].is_there = false;
        self.homes.forget(vm);
        let kernel = self.vms[vm.index()].kernel;
        if kernel != HOST {
            self.system.idle_beside[kernel].end(now_ns);
        }
        self.starts.retain(|task| self.system.kernels[task].vm != vm);
        self.interrupts.stop(vm, &mut self.agenda);
        for task in self.vms[vm.index()].tasks() {
            kill(&mut self.system, task.into(), now_ns);
        }
        self.system.processors.hardware_mut().memory_mut().leave(vm);
    }

    /// The next task starts.
    pub(super) fn start_next(&mut self, now_ns: u64) {
        let mut spacing_ns = START_SPACING_NS;
        if let Some(TaskRef { kernel, task }) = self.starts.take_next() {
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
        self.starts.space_out(now_ns, spacing_ns);
    }

    /// The task of the host has just started. If it is the last one of its VM, they touch its memory for the
    /// first time.
    fn touch_memory(&mut self, task: TaskId) {
        let machine = &self.scenario.machine;
        let all = self.system.kernels.host().tasks().all();
        let vm = all[task.index()].vm;
        let tasks = self.vms[vm.index()].tasks();
        if !self.scenario.workloads[vm.index()].first_touch || task.index() + 1 != tasks.end {
            return;
        }
        let part = 1.0 / tasks.len() as f64;
        let mut shares = vec![0.0; machine.node_count()];
        for task in &all[tasks] {
            shares[machine.cpu(task.last_cpu).node.index()] += part;
        }
        self.system.processors.hardware_mut().memory_mut().set_shares(machine, vm, &shares);
    }
}

/// A task of the host, which is no vCPU of a guest kernel, does nothing any longer but end.
fn kill<O: Observer>(system: &mut System<O>, task: TaskId, now_ns: u64) {
    let state = &mut system.kernels.host_mut()[task];
    let on = CpuRef::host(state.last_cpu);
    match state.state() {
        TaskState::New => state.end_before_start(),
        TaskState::Exited => {}
        TaskState::Runnable | TaskState::Blocked => {
            state.run.cut_short();
            system.processors.settle(&mut system.kernels, on.cpu, now_ns);
            system.wake(task, now_ns, on, Waker::Interrupt);
            system.processors.refresh(&system.kernels, on.cpu);
        }
        TaskState::Running => {
            system.processors.settle(&mut system.kernels, on.cpu, now_ns);
            system.kernels.host_mut()[task].run.cut_short();
            system.processors.rerate(&system.kernels, on.cpu);
            system.processors.refresh(&system.kernels, on.cpu);
        }
    }
}
