//! A kernel's own time for choosing the next task, and for switching to it.

/// Direct cost of scheduling; the indirect cost is in [`super::Cache`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextSwitch {
    /// A decision, with any outcome: soft interrupt, run-queue lock, choice, timer; ns.
    pub decision_ns: u64,
    /// In addition when another task is put on the CPU, ns.
    pub switch_ns: u64,
    /// In addition for each other CPU whose queue is searched for work to steal, ns.
    pub peer_scan_ns: u64,
    /// In addition for a switch between processes of the host with different address spaces, ns.
    pub address_space_ns: u64,
}

impl Default for ContextSwitch {
    /// - From a wake-up's kick to "go on with the running vCPU" a Xen trace shows 4.8 us (Xen commit
    ///   4b6923acff); less the IPI (1.32 us, [`super::Ipi`]) and the exit (0.71 us, [`super::VmExit`]) that
    ///   is 2.76 us for a decision.
    /// - A direct context switch takes 3.8 us on a 2 GHz Xeon (Li, Ding, Shen: "Quantifying the Cost of
    ///   Context Switch", ExpCS 2007), the decision included: 1.04 us are left for the switch.
    /// - A scan of 127 peers takes 50 us (Xen commit 58feb9e0ac): 394 ns each.
    /// - The switch contains that of address spaces.
    fn default() -> Self {
        Self { decision_ns: 2_760, switch_ns: 1_040, peer_scan_ns: 394, address_space_ns: 0 }
    }
}

impl ContextSwitch {
    /// Linux, as a guest or as a host.
    /// - 1391 ns a switch between two tasks that wake each other in a KVM guest that polls instead of
    ///   blocking (halt polling series, lkml, August 2017); the split, a third for the decision, is an
    ///   assumption that matters little, as most decisions lead to a switch.
    /// - Reading the queue of another CPU fetches a line that that CPU wrote: 60 ns, between the latency of
    ///   the last-level cache and of memory (16 and 82 ns on a Xeon X5650).
    /// - Another address space: a new page table and the translations that it lacks. Assumed: 300 ns with
    ///   `PCID`. In a guest, and between vCPUs, the other figures contain it.
    pub fn linux() -> Self {
        Self { decision_ns: 464, switch_ns: 927, peer_scan_ns: 60, address_space_ns: 300 }
    }
}
