//! Leaving a guest for the host and coming back.

/// Cost of a VM exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VmExit {
    /// Exit and re-entry, ns. Paid when an interrupt hits a running vCPU, when a vCPU blocks or yields, and
    /// when it notifies another.
    pub round_trip_ns: u64,
}

impl Default for VmExit {
    /// Mean of an external-interrupt exit on a Skylake server under KVM (Linux commit 0c5f81dad46c).
    fn default() -> Self {
        Self { round_trip_ns: 710 }
    }
}
