//! Interrupts that the host handles: devices and its own timers.

/// Cost of an interrupt to the CPU that takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupt {
    /// Handling, up to the wake-up of the task that waits for it; ns. If it interrupts a guest, the exit is
    /// added ([`super::VmExit`]).
    pub handling_ns: u64,
}

impl Default for Interrupt {
    /// An external-interrupt exit with its handling takes 3.91 us on a 24-core host (exit statistics in a KVM
    /// bug report); less the exit itself (0.71 us) that is 3.2 us.
    fn default() -> Self {
        Self { handling_ns: 3_200 }
    }
}
