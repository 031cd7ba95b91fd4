//! The kernels of a machine, and references to their CPUs and tasks.

use super::HOST;
use super::cpu::Cpu;
use super::level::Kernel;
use super::task::{Task, TaskState};
use std::ops::{Index, IndexMut};
use tandem_machine::ids::{CpuId, TaskId};

/// A task of one of the kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TaskRef {
    /// Position of its kernel.
    pub kernel: usize,
    pub task: TaskId,
}

/// A CPU of one of the kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CpuRef {
    /// Position of its kernel.
    pub kernel: usize,
    pub cpu: CpuId,
}

impl TaskRef {
    /// A task of the host's kernel.
    pub fn host(task: TaskId) -> Self {
        Self { kernel: HOST, task }
    }

    #[inline]
    pub fn is_host(self) -> bool {
        self.kernel == HOST
    }
}

impl CpuRef {
    /// A CPU of the host's kernel, which is a pCPU.
    #[inline]
    pub fn host(cpu: CpuId) -> Self {
        Self { kernel: HOST, cpu }
    }

    #[inline]
    pub fn is_host(self) -> bool {
        self.kernel == HOST
    }
}

/// The host's kernel, and then those of guests. Indexed by position, and by what [`CpuRef`]s and [`TaskRef`]s
/// refer to.
pub(crate) struct Kernels(Vec<Kernel>);

impl Kernels {
    /// The host's kernel comes first.
    pub fn new(kernels: Vec<Kernel>) -> Self {
        assert!(!kernels.is_empty(), "there is a host");
        Self(kernels)
    }

    #[inline]
    pub fn host(&self) -> &Kernel {
        &self.0[HOST]
    }

    #[inline]
    pub fn host_mut(&mut self) -> &mut Kernel {
        &mut self.0[HOST]
    }

    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = &Kernel> {
        self.0.iter()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Kernel> {
        self.0.iter_mut()
    }

    /// The host's task that is a guest's CPU.
    pub fn vcpu_task(&self, cpu: CpuRef) -> TaskId {
        self[cpu.kernel].vcpu_task(cpu.cpu)
    }

    /// Whether a timer that was to wake an idle vCPU has become pointless: it woke for something else.
    pub fn vcpu_timer_is_stale(&self, vcpu: TaskId, now_ns: u64) -> bool {
        let state = &self.host()[vcpu];
        state.guest().is_some_and(|cpu| {
            let cpu = &self[cpu];
            state.state() != TaskState::Blocked || cpu.next_interrupt_ns() > now_ns
        })
    }

    /// Positions of all kernels.
    pub fn positions(&self) -> std::ops::Range<usize> {
        0..self.0.len()
    }
}

impl Index<usize> for Kernels {
    type Output = Kernel;

    #[inline]
    fn index(&self, kernel: usize) -> &Kernel {
        &self.0[kernel]
    }
}

impl IndexMut<usize> for Kernels {
    #[inline]
    fn index_mut(&mut self, kernel: usize) -> &mut Kernel {
        &mut self.0[kernel]
    }
}

impl Index<CpuRef> for Kernels {
    type Output = Cpu;

    #[inline]
    fn index(&self, on: CpuRef) -> &Cpu {
        &self.0[on.kernel][on.cpu]
    }
}

impl IndexMut<CpuRef> for Kernels {
    #[inline]
    fn index_mut(&mut self, on: CpuRef) -> &mut Cpu {
        &mut self.0[on.kernel][on.cpu]
    }
}

impl Index<TaskRef> for Kernels {
    type Output = Task;

    #[inline]
    fn index(&self, task: TaskRef) -> &Task {
        &self.0[task.kernel][task.task]
    }
}

impl IndexMut<TaskRef> for Kernels {
    #[inline]
    fn index_mut(&mut self, task: TaskRef) -> &mut Task {
        &mut self.0[task.kernel][task.task]
    }
}
