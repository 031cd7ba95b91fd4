//! The hosts of the published tables.
//!
//! Sources of the values:
//! - Cores, clocks, cache sizes and memory channels: Intel's product specifications (ARK) and datasheets.
//! - Latencies: measured; each preset names the source.
//! - Memory sizes: the published tables, where they have them.
//!
//! Assumed for all: threads of a core have neighbouring numbers, as under Xen, and every remote node is at
//! distance 20, as all sockets of these machines are linked directly.

use super::{Distances, GIB, KIB, MIB, Numbering, Preset};
use crate::{Hardware, Shape};

pub(super) const PRESETS: [Preset; 5] = [
    // The first host of the flat-domain table (12285 MB, 2 nodes), and of the NUMA affinity table (16 pCPUs,
    // 12 GB). Channels: DDR3-1066. Latencies: those of the X5650 below, its L3 at 40 cycles of 2.4 GHz.
    Preset {
        name: "xeon-e5620-2s",
        shape: Shape::new(2, 4, 2),
        numbering: Numbering::ThreadsTogether,
        distances: Distances::ONE_NODE_EACH,
        llc_bytes: 12 * MIB,
        node_memory_bytes: 6 * GIB,
        peak_mb_per_s: 3 * 1_066 * 8,
        hardware: Hardware {
            clock_mhz: 2_400,
            l2_bytes: 256 * KIB,
            llc_latency_ns: 17,
            local_memory_latency_ns: 84,
            remote_memory_latency_ns: 122,
        },
    },
    // The second host of the flat-domain table (36851 MB, 2 nodes). Channels: DDR3-1333. Latencies:
    // https://7-cpu.com/cpu/Westmere.html, L3 40 cycles, memory 40 cycles + 67 ns, remote 40 cycles + 105 ns.
    Preset {
        name: "xeon-x5650-2s",
        shape: Shape::new(2, 6, 2),
        numbering: Numbering::ThreadsTogether,
        distances: Distances::ONE_NODE_EACH,
        llc_bytes: 12 * MIB,
        node_memory_bytes: 18 * GIB,
        peak_mb_per_s: 3 * 1_333 * 8,
        hardware: Hardware {
            clock_mhz: 2_667,
            l2_bytes: 256 * KIB,
            llc_latency_ns: 15,
            local_memory_latency_ns: 82,
            remote_memory_latency_ns: 120,
        },
    },
    // The third host of the flat-domain table: 48 pCPUs, 393138 MB, 2 nodes. The table calls it an X5650,
    // which has 24 threads on two sockets, so all of it is inferred from the table's baseline ("vanilla")
    // columns:
    // - 2 x 12 cores x 2 threads: 24 copies of Dhrystone score 21.6 times one copy and 48 only 25.1 times, so
    //   24 cores run 48 threads.
    // - Clock 2.1 GHz: one copy of Dhrystone scores 2037.6 against 2302.2 on the E5620 at 2.4 GHz.
    // - The last-level cache, over which CPUs talk, and remote memory are 1.7 times slower than the E5620's:
    //   pipe-based context switching scores 41.5 against 70.6.
    // Not inferable, taken from Xeons with 12 cores (E5-2600 v2): 30 MiB of L3, 4 channels of DDR3-1866.
    // Local memory is as on the E5620.
    Preset {
        name: "flat-domain-48",
        shape: Shape::new(2, 12, 2),
        numbering: Numbering::ThreadsTogether,
        distances: Distances::ONE_NODE_EACH,
        llc_bytes: 30 * MIB,
        node_memory_bytes: 192 * GIB,
        peak_mb_per_s: 4 * 1_866 * 8,
        hardware: Hardware {
            clock_mhz: 2_100,
            l2_bytes: 256 * KIB,
            llc_latency_ns: 29,
            local_memory_latency_ns: 84,
            remote_memory_latency_ns: 207,
        },
    },
    // The host of the directed yield table: 4 sockets, 40 cores, 80 threads. Assumed to be Xeon E7-4870.
    // Memory latencies: Intel's Memory Latency Checker on four sockets of the E7-4800 family (Intel blog
    // "Memory Latencies on Intel Xeon Processor E5-4600 and E7-4800 product families", 2014). L3 latency and
    // 4 memory links that read 6.4 GB/s each: AnandTech's article 3648 on the preceding Xeon 7500, of the
    // same platform. Not published and assumed: 64 GiB per node.
    Preset {
        name: "westmere-ex-4s",
        shape: Shape::new(4, 10, 2),
        numbering: Numbering::ThreadsTogether,
        distances: Distances::ONE_NODE_EACH,
        llc_bytes: 30 * MIB,
        node_memory_bytes: 64 * GIB,
        peak_mb_per_s: 4 * 6_400,
        hardware: Hardware {
            clock_mhz: 2_400,
            l2_bytes: 256 * KIB,
            llc_latency_ns: 21,
            local_memory_latency_ns: 135,
            remote_memory_latency_ns: 197,
        },
    },
    // The host of the soft affinity table: 2 sockets of 22 cores. Assumed to be Xeon E5-2699 v4, the 22-core
    // part of that time. Channels: DDR4-2400. Latencies: Memory Latency Checker 3.9 on a two-socket E5-2682
    // v4; L3 50 to 60 cycles (Intel's optimization manual). Not published and assumed: hyper-threads on (88
    // pCPUs), as the machine is delivered, and 128 GiB per node.
    Preset {
        name: "broadwell-2s",
        shape: Shape::new(2, 22, 2),
        numbering: Numbering::ThreadsTogether,
        distances: Distances::ONE_NODE_EACH,
        llc_bytes: 55 * MIB,
        node_memory_bytes: 128 * GIB,
        peak_mb_per_s: 4 * 2_400 * 8,
        hardware: Hardware {
            clock_mhz: 2_200,
            l2_bytes: 256 * KIB,
            llc_latency_ns: 25,
            local_memory_latency_ns: 85,
            remote_memory_latency_ns: 136,
        },
    },
];
