//! VMs that come and go: when, and what starts and ends with them.

use super::event_queue::NEVER;
use super::random::{Entity, Stream};
use super::simulation::Simulation;
use crate::kernel::{CpuRef, HOST, TaskRef, TaskState};
use crate::scenario::{Scenario, Vm};
use crate::trace::Observer;
use std::ops::Range;
use tandem_machine::ids::{TaskId, VmId};

/// When a VM is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Life {
    pub start_ns: u64,
    /// [`NEVER`]: it stays.
    pub end_ns: u64,
}

impl Life {
    /// That of a VM under a seed: it depends on nothing else, so that all variants see the same VMs come and go.
    pub fn drawn(scenario: &Scenario, vm: usize, seed: u64) -> Self {
        let spec = &scenario.workloads[vm];
        let mut random = Stream::new(seed, Entity::Life, vm as u64);
        let start_ns = spec.start().map_or(0, |start| random.draw(start));
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
    /// Goes: first, so that those who come at the same time find its room.
    End,
    Start,
}

/// All changes, the last one first: when, what, and of which VM.
pub(super) fn changes(lives: &[Life]) -> Vec<(u64, Change, VmId)> {
    let of_vm = |(vm, life): (usize, &Life)| {
        [(life.start_ns, Change::Start, VmId::from(vm)), (life.end_ns, Change::End, VmId::from(vm))]
    };
    let mut changes: Vec<_> = lives.iter().enumerate().flat_map(of_vm).collect();
    changes.retain(|&(at_ns, ..)| at_ns != NEVER);
    changes.sort_unstable_by(|a, b| b.cmp(a));
    changes
}

impl<O: Observer> Simulation<'_, O> {
    /// VMs come or go at this time.
    pub fn change_vms(&mut self, now_ns: u64) {
        while let Some((_, change, vm)) = self.vm_changes.pop_if(|(at_ns, ..)| *at_ns <= now_ns) {
            match change {
                Change::Start => self.start_vm(vm, now_ns),
                Change::End => self.end_vm(vm, now_ns),
            }
        }
    }

    /// The VM comes: it gets a home, and its tasks are to start.
    pub fn start_vm(&mut self, vm: VmId, now_ns: u64) {
        let spec = &self.scenario.workloads[vm.index()];
        self.vms[vm.index()].is_there = true;
        let home = if spec.home().is_chosen() { self.choose_home(vm, now_ns) } else { Vec::new() };
        if !spec.first_touch && (spec.home().is_chosen() || spec.start().is_some()) {
            let shares = self.shares_at_start(vm, &home);
            self.system.processors.memory_mut().set_shares(&self.scenario.machine, vm, &shares);
        }
        let kernel = self.vms[vm.index()].kernel;
        self.to_start.extend(self.tasks_of(vm).map(|task| TaskRef::host(task.into())));
        if kernel != HOST {
            let tasks = 0..self.system.kernels[kernel].tasks().all().len();
            self.to_start.extend(tasks.map(|task| TaskRef { kernel, task: task.into() }));
        }
        self.start_soon(now_ns);
    }

    /// The VM is killed. Its tasks end as soon as they run, as on Linux; its memory is free at once.
    fn end_vm(&mut self, vm: VmId, now_ns: u64) {
        self.vms[vm.index()].is_there = false;
        self.forget_home(vm);
        self.to_start.retain(|&task| self.system.kernels[task].vm != vm);
        for source in 0..self.sources.len() {
            if self.sources[source].vm == vm {
                self.sources[source].stop();
                self.refresh_source(source);
            }
        }
        for task in self.tasks_of(vm) {
            self.kill(task.into(), now_ns);
        }
        self.system.processors.memory_mut().leave(vm);
    }

    /// A task of the host, which is no vCPU of a guest kernel, does nothing any longer but end.
    fn kill(&mut self, task: TaskId, now_ns: u64) {
        let state = &mut self.system.kernels.host_mut()[task];
        let on = CpuRef::host(state.last_cpu);
        match state.state {
            TaskState::New => state.state = TaskState::Exited,
            TaskState::Exited => {}
            TaskState::Runnable | TaskState::Blocked => {
                state.cut_short();
                self.system.processors.settle(&mut self.system.kernels, on.cpu, now_ns);
                self.system.wake(task, now_ns, on, false);
                self.system.processors.refresh(&self.system.kernels, on.cpu);
            }
            TaskState::Running => {
                self.system.processors.settle(&mut self.system.kernels, on.cpu, now_ns);
                self.system.kernels.host_mut()[task].cut_short();
                self.system.processors.rerate(&self.system.kernels, on.cpu);
                self.system.processors.refresh(&self.system.kernels, on.cpu);
            }
        }
    }

    /// The host's tasks of the VM.
    pub fn tasks_of(&self, vm: VmId) -> Range<usize> {
        let first = self.vms[vm.index()].first_vcpu.index();
        first..first + self.scenario.workloads[vm.index()].task_count()
    }
}
