//! Hinting faults of NUMA balancing, and the pages that they move.
//!
//! A fault enters the kernel, finds the page, and maps it again. To move a page, the kernel takes it off its
//! list and out of all page tables, allocates another one, copies it over the interconnect, and maps that.
//! Limit: the fixed costs contain the memory bandwidth that both use, and the flushes of other CPUs' TLBs.

use tandem_machine::CACHE_LINE_BYTES;
use tandem_machine::Hardware;

/// Costs of a hinting fault.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NumaFault {
    /// A fault that leaves the page where it is, ns.
    pub fault_ns: u64,
    /// In addition for a page that moves, without the copy, ns.
    pub migrate_ns: u64,
    /// Lines that a copy transfers at once.
    pub copy_parallelism: f64,
}

impl Default for NumaFault {
    /// All assumed: a minor fault takes about 1 us on such servers, and the fixed part of moving a page
    /// several times that. Ten lines at once are the line fill buffers of a core since Nehalem (Intel's
    /// optimization manual).
    fn default() -> Self {
        Self { fault_ns: 1_000, migrate_ns: 3_000, copy_parallelism: 10.0 }
    }
}

impl NumaFault {
    /// Moving a page of this many bytes to another node, in addition to the fault, ns.
    pub fn move_ns(&self, hardware: &Hardware, bytes: u64) -> u64 {
        let lines = bytes.div_ceil(CACHE_LINE_BYTES) as f64;
        let copy_ns = lines * f64::from(hardware.remote_memory_latency_ns) / self.copy_parallelism;
        self.migrate_ns + copy_ns as u64
    }
}
