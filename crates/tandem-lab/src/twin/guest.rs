//! Guests that were recorded at the same time as their host: their tasks, in a kernel of their own, on vCPUs that the
//! host schedules.
//!
//! **Approach.** The host's model keeps the threads that are vCPUs, without what they did. The guest's model, by the
//! clock of the host, says what the guest did on them: its work without the time that the host took from its vCPUs,
//! and interrupts when they came rather than when a vCPU could handle them.
//!
//! **Limits.** What a vCPU wakes in the host, as threads for its devices, comes when it did, and what these do for the
//! guest takes as long as it took. Cgroups within the guest do not count. Emulation that lets a vCPU sleep takes no time.

use super::grouping::{GroupBy, Grouped};
use super::measures::{Measures, Measuring};
use super::model::{End, Model};
use super::situation::Situation;
use super::together::GuestRecording;
use super::work::{Deed, nice_of, policy_of, recorded_cpus, work_of};
use std::sync::Arc;
use tandem_file::shown::readable;
use tandem_machine::Machine;
use tandem_machine::ids::KernelId;
use tandem_recording::{Kind, Recording};
use tandem_sim::program::{Op, Program};
use tandem_sim::scenario::{Guest, GuestProgram, PolicySettings, Process};

/// A recorded guest, understood.
#[derive(Debug)]
pub struct GuestTwin<'a> {
    /// What was recorded.
    pub recorded: &'a GuestRecording,
    /// Its model. Within its [twin](super::replay::Twin), the names of its groups begin with that of the VM.
    pub model: Model,
    /// The threads of the host that are its CPUs, by position in the host's model.
    pub vcpus: Vec<usize>,
    machine: Arc<Machine>,
    policy: PolicySettings,
}

/// A guest in a scenario.
#[derive(Clone, Copy, Debug)]
pub struct StagedGuest {
    /// Which of the twin's.
    pub guest: usize,
    /// Its kernel.
    pub kernel: KernelId,
}

impl<'a> GuestTwin<'a> {
    /// Of the guest of a host with that model.
    ///
    /// # Errors
    /// A sentence, if the recorded machine of the guest is not one.
    pub fn new(recorded: &'a GuestRecording, host: &Model, by: GroupBy) -> Result<Self, String> {
        let Situation { machine, policy, .. } = Situation::recorded(&recorded.recording)
            .map_err(|problem| format!("the guest of VM '{}': {problem}", readable(&recorded.name, &[])))?;
        let model = Model::of_guest(&recorded.recording, by, &recorded.turns);
        let position = |vcpu: &usize| host.tasks.iter().position(|task| task.recorded == *vcpu);
        let vcpus = recorded.vcpus.iter().filter_map(position).collect();
        Ok(Self { recorded, model, vcpus, machine, policy })
    }

    /// Its groups, to be named.
    pub(super) fn grouped(&self) -> Grouped<'_> {
        let GuestRecording { name, recording, .. } = self.recorded;
        Grouped { guest: Some(name), groups: &self.model.kinds, about: &recording.about }
    }

    /// What it sees as its machine.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Whether some of its tasks compute as long as they may.
    pub fn goes_on(&self) -> bool {
        self.model.tasks.iter().any(|task| task.end == End::GoesOn)
    }

    /// What its recording says of each group.
    pub fn measured(&self) -> Vec<Measures> {
        let recording: &Recording = &self.recorded.recording;
        let mut groups = vec![0; recording.about.tasks.len()];
        for task in &self.model.tasks {
            groups[task.recorded] = task.group;
        }
        let mut measuring = Measuring::new(&self.machine, &groups, self.model.groups.len());
        recording.events.iter().for_each(|event| measuring.read(event));
        measuring.end(self.model.length_ns).0
    }

    /// Where its tasks are measured.
    pub fn groups(&self) -> Vec<usize> {
        self.model.tasks.iter().map(|task| task.group).collect()
    }

    /// What measures a run of it, whose tasks are in these groups.
    pub fn measuring<'b>(&'b self, groups: &'b [usize]) -> Measuring<'b> {
        let mut measuring = Measuring::new(&self.machine, groups, self.model.groups.len());
        for (at, task) in self.model.tasks.iter().enumerate() {
            if task.end == End::GoesOn {
                measuring.cut(at, self.model.length_ns);
            }
        }
        measuring
    }

    /// The guest, in the workload at that position of a scenario whose gates from there on are its own. Each task has a
    /// process and a program of its own, in the order of the model. `done` is what each counts when it is done.
    pub(super) fn staged(
        &self,
        situation: &Situation,
        workload: usize,
        first_gate: usize,
        done: u64,
    ) -> Guest {
        let about = &self.recorded.recording.about;
        let machine = &self.machine;
        let count = self.model.tasks.len() as u64;
        let (mut programs, mut processes) = (Vec::new(), Vec::new());
        for (at, task) in self.model.tasks.iter().enumerate() {
            let amount = done / count + if at == 0 { done % count } else { 0 };
            let ops = work_of(task, Op::Count { counter: 0, amount }, |ops, deed| {
                ops.push(match deed {
                    Deed::Pass(gate) => Op::Pass { gate: first_gate + gate as usize },
                    Deed::Open { gate, sync } => Op::Open { gate: first_gate + gate as usize, sync },
                    Deed::Fork(child) => Op::StartTask { workload, task: child as usize },
                });
            });
            let facts = &about.tasks[task.recorded];
            let program = Arc::new(Program { ops, profiles: Vec::new() });
            programs.push(GuestProgram {
                is_kernel_thread: facts.is_kernel,
                ..GuestProgram::new(facts.name.clone(), program)
            });
            let change = situation.changes.get(&self.model.groups[task.group]);
            let (nice, policy) = (nice_of(facts, change), policy_of(facts, change));
            let affinity = recorded_cpus(facts, machine);
            processes.push(Process { program: at, copies: 1, nice, policy, affinity });
        }
        Guest {
            policy: self.policy.clone(),
            topology: Arc::clone(machine),
            context_switch: None,
            interrupt: None,
            programs,
            processes,
            locks: 0,
            family_channels: 0,
        }
    }
}

/// The kernel of the guest of the workload at that position.
pub(super) fn kernel_of(workload: usize) -> KernelId {
    KernelId::from(workload + 1)
}

/// Whether the host of a recording polls for vCPUs that halt, as the longest time: `None` is its default.
pub(super) fn halt_poll_ns(recording: &Recording) -> Option<u64> {
    let polls = recording.events.iter().any(|event| event.kind == Kind::HaltPoll);
    (!polls).then_some(0)
}
