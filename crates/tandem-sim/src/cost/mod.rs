//! Cost models of a machine, one a file; each can be switched off by itself.
//!
//! With every model off, host code takes no time and work proceeds at the speed of the CPU: the result is
//! exactly the textbook schedule. Constants are those of the systems that the published tables were measured
//! on (two-socket Westmere servers, Xen 4.1 to 4.5), each with its source.

mod cache;
mod coherence;
mod context_switch;
mod idle;
mod interrupt;
mod ipi;
mod memory;
mod numa_fault;
mod smt;
mod spin_lock;
mod timer;
mod vm_exit;

pub use cache::{Cache, CacheFill, Residue};
pub use coherence::Coherence;
pub use context_switch::ContextSwitch;
pub use idle::Idle;
pub(crate) use idle::IdleEnd;
pub use interrupt::Interrupt;
pub use ipi::Ipi;
pub use memory::Memory;
pub use numa_fault::NumaFault;
pub use smt::Smt;
pub use spin_lock::SpinLock;
pub use timer::Timer;
pub use vm_exit::VmExit;

/// The cost models of a machine; `None` switches one off.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct CostModels {
    /// Scheduling decisions and switches.
    pub context_switch: Option<ContextSwitch>,
    /// Refilling caches after others used them.
    pub cache: Option<Cache>,
    /// Sharing a core between its threads.
    pub smt: Option<Smt>,
    /// NUMA latency, node bandwidth and the shared cache's capacity.
    pub memory: Option<Memory>,
    /// Moving cache lines between tasks that write and read the same ones.
    pub coherence: Option<Coherence>,
    /// Telling another CPU to reschedule.
    pub ipi: Option<Ipi>,
    /// Leaving and re-entering a guest.
    pub vm_exit: Option<VmExit>,
    /// Spin locks: those of the host's run queues, and those of guests.
    pub spin_lock: Option<SpinLock>,
    /// NUMA balancing: marking pages, hinting faults, and the pages that they move.
    pub numa_fault: Option<NumaFault>,
    /// Device and timer interrupts.
    pub interrupt: Option<Interrupt>,
    /// When ticks come.
    pub timer: Option<Timer>,
    /// Waking an idle CPU. Depends on the settings of the firmware and the host, so there is no default.
    pub idle: Option<Idle>,
}

impl CostModels {
    /// No costs: the textbook schedule.
    pub fn off() -> Self {
        Self::default()
    }

    /// Every model that has default constants, with these.
    pub fn all() -> Self {
        Self {
            context_switch: Some(ContextSwitch::default()),
            cache: Some(Cache),
            smt: Some(Smt::default()),
            memory: Some(Memory::default()),
            coherence: Some(Coherence),
            ipi: Some(Ipi::default()),
            vm_exit: Some(VmExit::default()),
            spin_lock: Some(SpinLock::default()),
            numa_fault: Some(NumaFault::default()),
            interrupt: Some(Interrupt::default()),
            timer: Some(Timer::Hardware),
            idle: None,
        }
    }
}
