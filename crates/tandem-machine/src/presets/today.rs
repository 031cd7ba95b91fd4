//! Hosts of today, as their firmware shows them by default.
//!
//! Beside each value stands where it was read. Cores, base clocks, caches and channels without an address
//! are the maker's product specifications as they are known, which were not looked up again: check them
//! before a result hangs on one. Latencies that nobody is known to have measured are taken from another
//! machine, which is named. The clock is the nominal one where there is one.
//!
//! Assumed for all but Grace: every channel holds one module of 64 GiB.

use super::{Distances, GIB, MIB, Numbering, Preset};
use crate::{Hardware, Shape};

/// EPYC hosts with a node for each socket (NPS1, the default) say 32 for the other: a host with two EPYC
/// 9375F, <https://github.com/egandro/proxmox-cpu-affinity/issues/58>.
const EPYC: Distances = Distances::one_node_each(32);

/// Memory of the own socket on a Xeon Platinum 8468, where two sockets with four sub-NUMA clusters each
/// were measured (`info/sapphirerapids_mlc.txt` of <https://github.com/gjbex/Code-optimization>, Memory
/// Latency Checker 3.11a): 95 to 123 ns within a socket. A node that is a whole socket sees the average.
const XEON_8468_NS: u32 = 108;
/// What memory of the other socket takes longer there: 188 ns altogether.
const XEON_8468_HOP_NS: u32 = 80;

/// Xeon 6 in its default mode, SNC3: each compute die is a node. Linux evens out distances between the
/// packages to 24, their average (`slit_cluster_distance()` in its commit 528d89a4707e, which has the
/// firmware's table).
const XEON_6: Distances = Distances { within: &[&[10, 15, 17], &[15, 10, 15], &[17, 15, 10]], between: 24 };

/// Load from the L3 of Xeon 6 in SNC3: 33 ns, and 11 ns on an EPYC 9355P at 4.4 GHz (Chips and Cheese,
/// quoted in <https://www.realworldtech.com/forum/?curpostid=226712&threadid=226708>).
const XEON_6_L3_NS: u32 = 33;

pub(super) const PRESETS: [Preset; 8] = [
    // 12 dies of 8 cores that share 32 MiB, 1 MiB of L2:
    // https://www.tomshardware.com/pc-components/cpus/new-zen-5-128-core-epyc-cpu-weilds-512mb-of-l3-cache
    // and http://3dfxzone.it/mobile/news/reader.php?objid=33558&page=73. Clock 2.4 GHz; 12 channels of
    // DDR5-4800. L3: 50 cycles, 4 fewer than with the stacked cache, at 3.7 GHz; memory: about as on
    // Sapphire Rapids (https://chipsandcheese.com/p/genoa-x-server-v-cache-round-2). The other socket:
    // assumed, as on the 8468.
    Preset {
        name: "epyc-9654-2s",
        shape: Shape::new(2, 96, 2).split(12, 1),
        numbering: Numbering::ThreadsApart,
        distances: EPYC,
        llc_bytes: 32 * MIB,
        node_memory_bytes: 12 * 64 * GIB,
        peak_mb_per_s: 12 * 4_800 * 8,
        hardware: Hardware {
            clock_mhz: 2_400,
            l2_bytes: MIB,
            llc_latency_ns: 14,
            local_memory_latency_ns: XEON_8468_NS,
            remote_memory_latency_ns: EPYC.latency_at_20(XEON_8468_NS, XEON_8468_NS + XEON_8468_HOP_NS),
        },
    },
    // 128 cores, 512 MB of L3 (Tom's Hardware, as above) in 16 dies. Clock 2.7 GHz; 12 channels of
    // DDR5-6000. L3: 11 ns at 4.4 GHz is 12 ns at 4.1 GHz, the highest clock
    // (https://chipsandcheese.com/p/amds-epyc-9355p-inside-a-32-core). Memory: 130 ns in NPS1, 90 ns less
    // than the 220 ns of loads that are spread over both sockets
    // (https://cnznews.com/evaluating-uniform-memory-access-mode-on-amds-turin-ft-verda-formerly-datacrunch-io).
    // The other socket: assumed, as much longer as on the 8468.
    Preset {
        name: "epyc-9755-2s",
        shape: Shape::new(2, 128, 2).split(16, 1),
        numbering: Numbering::ThreadsApart,
        distances: EPYC,
        llc_bytes: 32 * MIB,
        node_memory_bytes: 12 * 64 * GIB,
        peak_mb_per_s: 12 * 6_000 * 8,
        hardware: Hardware {
            clock_mhz: 2_700,
            l2_bytes: MIB,
            llc_latency_ns: 12,
            local_memory_latency_ns: 130,
            remote_memory_latency_ns: EPYC.latency_at_20(130, 130 + XEON_8468_HOP_NS),
        },
    },
    // 192 cores in 12 dies of 16 that share 32 MiB. Clock 2.25 GHz; 12 channels of DDR5-6000. Latencies:
    // as on the 9755, the L3 at 3.7 GHz, the highest clock (Chips and Cheese, as above).
    Preset {
        name: "epyc-9965-2s",
        shape: Shape::new(2, 192, 2).split(12, 1),
        numbering: Numbering::ThreadsApart,
        distances: EPYC,
        llc_bytes: 32 * MIB,
        node_memory_bytes: 12 * 64 * GIB,
        peak_mb_per_s: 12 * 6_000 * 8,
        hardware: Hardware {
            clock_mhz: 2_250,
            l2_bytes: MIB,
            llc_latency_ns: 13,
            local_memory_latency_ns: 130,
            remote_memory_latency_ns: EPYC.latency_at_20(130, 130 + XEON_8468_HOP_NS),
        },
    },
    // 4 tiles of 14 cores and 2 channels, one node and one L3 without sub-NUMA clusters, which are off by
    // default:
    // https://servethehome.com/intel-xeon-max-9480-deep-dive-intel-has-64gb-hbm2e-onboard-like-a-gpu-or-ai-accelerator/3.
    // L3 of 105 MiB, as the 8468 reports (`info/sapphirerapids_cpuinfo.txt`, beside the measurement).
    // Clock 2.0 GHz; L2 2 MiB; DDR5-4800. Memory latencies: those of the 8468. L3: assumed, as on Xeon 6.
    // Distance: Linux's default, assumed.
    Preset {
        name: "xeon-8480-2s",
        shape: Shape::new(2, 56, 2),
        numbering: Numbering::ThreadsApart,
        distances: Distances::ONE_NODE_EACH,
        llc_bytes: 105 * MIB,
        node_memory_bytes: 8 * 64 * GIB,
        peak_mb_per_s: 8 * 4_800 * 8,
        hardware: Hardware {
            clock_mhz: 2_000,
            l2_bytes: 2 * MIB,
            llc_latency_ns: XEON_6_L3_NS,
            local_memory_latency_ns: XEON_8468_NS,
            remote_memory_latency_ns: XEON_8468_NS + XEON_8468_HOP_NS,
        },
    },
    // Three dies of 32 cores in a socket, each a node with its third of the L3 of 480 MiB and of the
    // channels, as SNC3 is the default: https://phoronix.com/review/xeon-6980p-snc3-hex. 96 cores, 2.4
    // GHz, 480 MB, 12 channels of DDR5-6400:
    // https://www.hardwareluxx.de/index.php/artikel/hardware/prozessoren/64561-intels-comeback-granite-rapids-mit-96-kernen-im-test.html.
    // L2 2 MiB:
    // https://techpowerup.com/326957/intel-granite-rapids-ucc-powering-xeon-6-6980p-detailed-up-to-132-cores-possible.
    // Memory latencies: two 6972P (`info/granite_rapids_mlc.txt` of
    // https://github.com/gjbex/Code-optimization, Memory Latency Checker 3.11a), 96 ns in the node and
    // 239 ns on average to the other socket. The nodes of the own socket take 110 to 158 ns there. That
    // is less than the 147 and 167 ns that latencies linear in the distance make of 15 and 17.
    Preset {
        name: "xeon-6972p-2s",
        shape: Shape::new(2, 96, 2).split(3, 3),
        numbering: Numbering::ThreadsApart,
        distances: XEON_6,
        llc_bytes: 160 * MIB,
        node_memory_bytes: 4 * 64 * GIB,
        peak_mb_per_s: 4 * 6_400 * 8,
        hardware: Hardware {
            clock_mhz: 2_400,
            l2_bytes: 2 * MIB,
            llc_latency_ns: XEON_6_L3_NS,
            local_memory_latency_ns: 96,
            remote_memory_latency_ns: XEON_6.latency_at_20(96, 239),
        },
    },
    // M128-30: 128 cores, 3.0 GHz, 8 channels of DDR4-3200 (the table of AnandTech's review, article
    // 16979); 1 MiB of L2. Linux finds no last-level cache on Altra: the system-level cache of 16 MiB is
    // not on the side of the CPUs (commit db1e59483dfd, "topology: make core_mask include at least
    // cluster_siblings"); its pairs of cores, which that adds, are not modelled. One node for each
    // socket. Latencies: assumed, memory as on a two-socket Cascade Lake with DDR4
    // (https://github.com/gjbex/Code-optimization/pull/13.patch), the system-level cache as the L3 of
    // Xeon 6. Distance: Linux's default, assumed.
    Preset {
        name: "altra-max-2s",
        shape: Shape::new(2, 128, 1).split(0, 1),
        numbering: Numbering::ThreadsTogether,
        distances: Distances::ONE_NODE_EACH,
        llc_bytes: 0,
        node_memory_bytes: 8 * 64 * GIB,
        peak_mb_per_s: 8 * 3_200 * 8,
        hardware: Hardware {
            clock_mhz: 3_000,
            l2_bytes: MIB,
            llc_latency_ns: XEON_6_L3_NS,
            local_memory_latency_ns: 81,
            remote_memory_latency_ns: 141,
        },
    },
    // A192-32X: 192 cores with 2 MiB of L2 each, 64 MiB of L3 in the coherency engines of the mesh:
    // https://servethehome.com/?p=80362. Clock 3.2 GHz; 8 channels of DDR5-5200. Assumed, as on Altra:
    // Linux finds no last-level cache. Latencies: assumed, as on the 8468.
    Preset {
        name: "ampereone-a192",
        shape: Shape::new(1, 192, 1).split(0, 1),
        numbering: Numbering::ThreadsTogether,
        distances: Distances::ONE_NODE_EACH,
        llc_bytes: 0,
        node_memory_bytes: 8 * 64 * GIB,
        peak_mb_per_s: 8 * 5_200 * 8,
        hardware: Hardware {
            clock_mhz: 3_200,
            l2_bytes: 2 * MIB,
            llc_latency_ns: XEON_6_L3_NS,
            local_memory_latency_ns: XEON_8468_NS,
            remote_memory_latency_ns: XEON_8468_NS + XEON_8468_HOP_NS,
        },
    },
    // Two Grace CPUs of 72 cores with 1 MiB of L2, 114 MiB of L3 and 240 GB of LPDDR5X each, 1 TB/s
    // together: https://docs.nvidia.com/grace-perf-tuning-guide/index.html; each is one node with one L3:
    // https://github.com/open-mpi/hwloc/issues/689. STREAM reaches 820 to 972 GB/s on both
    // (https://github.com/NVIDIA/grace-cpu-benchmarking-guide), so 80% of the peak is careful. Clock 3.44
    // GHz, the highest of a GH200:
    // https://chipsandcheese.com/2024/07/31/grace-hopper-nvidias-halfway-apu. Latencies: assumed, as on
    // the 8468 and Xeon 6. Distance: Linux's default, assumed.
    Preset {
        name: "grace-superchip",
        shape: Shape::new(2, 72, 1),
        numbering: Numbering::ThreadsTogether,
        distances: Distances::ONE_NODE_EACH,
        llc_bytes: 114 * MIB,
        node_memory_bytes: 240_000_000_000,
        peak_mb_per_s: 512_000,
        hardware: Hardware {
            clock_mhz: 3_440,
            l2_bytes: MIB,
            llc_latency_ns: XEON_6_L3_NS,
            local_memory_latency_ns: XEON_8468_NS,
            remote_memory_latency_ns: XEON_8468_NS + XEON_8468_HOP_NS,
        },
    },
];
