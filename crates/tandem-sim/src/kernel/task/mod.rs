//! A task of a kernel, in parts: how far it has come in its program ([`Run`]), what it waits for while it
//! keeps its CPU ([`Spin`]), what it descends from ([`Lineage`]), what it has in the caches ([`Footprint`]),
//! and where it is in its life, with the clocks that its metrics follow ([`state`]).

mod lineage;
mod run;
mod spin;
mod state;

pub(crate) use lineage::{Birth, Lineage};
pub(crate) use run::Run;
pub(crate) use spin::Spin;
pub(crate) use state::TaskState;

use super::HOST;
use super::caches::Footprint;
use super::kernels::CpuRef;
use crate::metrics::TaskMetrics;
use crate::program::code::Instruction;
use state::Clocks;
use std::sync::Arc;
use tandem_machine::ids::{CpuId, TaskId, VmId};

/// What a task of the host is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskKind {
    Vcpu,
    /// A process with an address space of its own.
    Process,
    /// A thread that shares the address space of its workload.
    Thread,
    /// A thread of the kernel, which runs in whatever address space is there.
    KernelThread,
}

/// A task. See the [module](self).
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub vm: VmId,
    /// What its measurements are summed up by: the VM in the host's kernel, the program in a guest's.
    pub group: u32,
    /// For a vCPU of a guest kernel: position of that kernel, and the CPU that it is there. The host's
    /// otherwise.
    guest_kernel: u32,
    guest_cpu: CpuId,
    /// What it is to the host.
    pub kind: TaskKind,
    state: TaskState,
    clocks: Clocks,
    /// Where it ran last; before it ever ran, where it was forked or queued first.
    pub last_cpu: CpuId,
    pub run: Run,
    pub spin: Spin,
    pub lineage: Lineage,
    pub footprint: Footprint,
    pub metrics: TaskMetrics,
}

impl Task {
    /// A task that is yet to start. Its random numbers are those of `random_key` under the seed.
    pub fn new(vm: VmId, group: usize, code: Arc<[Instruction]>, seed: u64, random_key: u64) -> Self {
        Self {
            vm,
            group: group as u32,
            guest_kernel: HOST as u32,
            guest_cpu: CpuId(0),
            kind: TaskKind::Vcpu,
            state: TaskState::New,
            clocks: Clocks::default(),
            last_cpu: CpuId(0),
            run: Run::new(code, seed, random_key),
            spin: Spin::default(),
            lineage: Lineage::new(random_key),
            footprint: Footprint::default(),
            metrics: TaskMetrics::default(),
        }
    }

    /// Its child, which runs that program. The child shares what its parent has in the caches: their memory
    /// is the same until one of them writes.
    pub fn fork(&mut self, birth: Birth, program: u32, code: Arc<[Instruction]>, seed: u64) -> Self {
        let lineage = self.lineage.fork(birth);
        let mut child = Self::new(self.vm, program as usize, code, seed, lineage.random_key());
        child.lineage = lineage;
        child.footprint = self.footprint.left_behind();
        child
    }

    /// It goes on as another program, with memory that is in no cache yet. Returns what it has come to as the
    /// one before.
    pub fn exec(&mut self, program: u32, code: Arc<[Instruction]>, now_ns: u64) -> TaskMetrics {
        let total = self.measured(now_ns);
        self.start_measuring(now_ns);
        self.group = program;
        self.run.exec(code);
        self.footprint.forget();
        self.lineage.own_memory();
        total
    }

    /// For a vCPU of a guest kernel: the CPU that it is there.
    #[inline]
    pub fn guest(&self) -> Option<CpuRef> {
        let kernel = self.guest_kernel as usize;
        (kernel != HOST).then_some(CpuRef { kernel, cpu: self.guest_cpu })
    }

    /// Makes it that CPU of a guest kernel.
    pub fn set_guest(&mut self, cpu: CpuRef) {
        self.guest_kernel = cpu.kernel as u32;
        self.guest_cpu = cpu.cpu;
    }
}

/// What an entry of a CPU's timer queue is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TimerTarget {
    /// Ends the sleep of a task.
    Task(TaskId),
    /// An interrupt of the source with this number.
    Source(u32),
    /// The timer of the policy with this token.
    Policy(u32),
    /// The interrupt by which this task of the guest asks the CPU to flush its TLB.
    Flush(TaskId),
    /// The interrupt by which another CPU has it start the timer that ends the turn of its task.
    StartTurnTimer,
}
