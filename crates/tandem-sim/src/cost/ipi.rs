//! Inter-processor interrupts: how one CPU makes another reschedule.

/// Cost of an IPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipi {
    /// From sending to the handler's start on the other CPU, ns.
    pub delivery_ns: u64,
}

impl Default for Ipi {
    /// 1317 ns for a normal IPI between two CPUs (Norov's IPI benchmark, in the cover letter of the IPI
    /// virtualisation series v7, Intel 2022, with hardware support, that is without exits).
    fn default() -> Self {
        Self { delivery_ns: 1_317 }
    }
}
