//! Hinting faults of NUMA balancing, and the pages that they move.
//!
//! To mark pages, the kernel passes over their entries in page tables: one for each small page, one for each
//! huge page. A fault enters the kernel, finds the page, and maps it again. To move a page, the kernel takes it
//! off its list and out of all page tables, allocates another one, copies it over the interconnect, and maps
//! that. Limits: the fixed costs contain the memory bandwidth that both use, and the flushes of other CPUs' TLBs;
//! that a TLB covers more memory with huge pages is part of how fast programs are.

use tandem_machine::CACHE_LINE_BYTES;
use tandem_machine::Hardware;

/// Costs of a hinting fault.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NumaFault {
    /// Marking an entry of a page table, ns.
    pub mark_ns: u64,
    /// A fault that leaves the page where it is, ns.
    pub fault_ns: u64,
    /// In addition for a page that moves, without the copy, ns.
    pub migrate_ns: u64,
    /// Lines that a copy transfers at once.
    pub copy_parallelism: f64,
}

impl Default for NumaFault {
    /// All assumed. Marking: of 23,270 interruptions of more than 0.5 ms by scans of 65,536 entries at most
    /// (256 MiB in small pages), 7,435 took 2 to 4 ms (pmbench on two sockets; kernel.org, vishal/tiering, branch
    /// tiering-0.6), so 8 to 60 ns an entry. A minor fault takes about 1 us: a kernel build on four cores spends
    /// at most 1.3 us of system time on each (perf.mvermeulen.com, build-linux-kernel). The fixed part of moving a
    /// page is several times that. Ten lines at once are the line fill buffers of a core since Nehalem (Intel's
    /// optimization manual).
    fn default() -> Self {
        Self { mark_ns: 30, fault_ns: 1_000, migrate_ns: 3_000, copy_parallelism: 10.0 }
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
