//! Guest kernels: the topology that they see, and what runs on them.

use super::{PolicySettings, TaskPolicy};
use crate::cost::{ContextSwitch, Interrupt};
use crate::program::{Op, Program};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;
use tandem_machine::Machine;
use tandem_machine::cpumask::CpuMask;

/// A guest kernel, which schedules tasks on the vCPUs of its VM.
#[derive(Clone, Debug)]
pub struct Guest {
    /// Its policy and settings.
    pub policy: PolicySettings,
    /// What the guest believes its CPUs are: as many as the VM has vCPUs. The truth is where the host puts
    /// them.
    pub topology: Arc<Machine>,
    /// What its scheduling decisions and switches cost; `None`: nothing. Exits to the host come on top.
    pub context_switch: Option<ContextSwitch>,
    /// What interrupts cost it, ticks too; `None`: nothing. Exits to the host come on top.
    pub interrupt: Option<Interrupt>,
    /// The programs that its tasks run.
    pub programs: Vec<GuestProgram>,
    /// What runs from the start, or is [started](Guest::forked) by another of these.
    pub processes: Vec<Process>,
    /// Spin locks that its programs use.
    pub locks: usize,
    /// Channels that each process of the start has for itself and its descendants. Their numbers follow those
    /// of the VM's channels, which all share.
    pub family_channels: usize,
}

/// A program of a guest.
#[derive(Clone, Debug)]
pub struct GuestProgram {
    /// The name by which its tasks are known.
    pub name: String,
    /// What it does.
    pub program: Arc<Program>,
    /// Its tasks are threads of the guest's kernel: they have no address space, and are measured apart from
    /// the others.
    pub is_kernel_thread: bool,
}

impl Guest {
    /// Those of its first tasks, which are those of its processes in order, that its programs start by
    /// [`Op::StartTask`]: they do not run from the start.
    pub fn forked(&self) -> BTreeSet<usize> {
        let started = |op: &Op| match op {
            Op::StartTask { task, .. } => Some(*task),
            _ => None,
        };
        self.programs.iter().flat_map(|program| program.program.ops.iter().filter_map(started)).collect()
    }

    /// How many processes it has, threads of the kernel left out.
    pub fn started(&self) -> u64 {
        let is_kernel = |program: usize| self.programs.get(program).is_some_and(|it| it.is_kernel_thread);
        let of_users = |process: &&Process| !is_kernel(process.program);
        self.processes.iter().filter(of_users).map(|process| u64::from(process.copies)).sum()
    }
}

impl GuestProgram {
    /// A program of users' processes.
    pub fn new(name: impl Into<String>, program: Arc<Program>) -> Self {
        Self { name: name.into(), program, is_kernel_thread: false }
    }
}

/// Processes of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Index in [`Guest::programs`].
    pub program: usize,
    /// How many of them.
    pub copies: u32,
    /// Nice value, -20 (most urgent) to 19; their descendants inherit it.
    pub nice: i8,
    /// Scheduling policy; their descendants inherit it.
    pub policy: TaskPolicy,
    /// vCPUs on which they may run; all if `None`. Their descendants inherit it.
    pub affinity: Option<Arc<CpuMask>>,
}

impl Process {
    /// Nice values that Linux allows.
    pub const NICE: RangeInclusive<i8> = -20..=19;
}
