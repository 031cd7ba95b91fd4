//! What drawings look like.

use super::*;
use tandem_machine::{CpuSpec, MachineBuilder, NodeSpec};

fn node(os_index: u32, memory_bytes: u64) -> NodeSpec {
    NodeSpec { os_index, memory_bytes, bandwidth_bytes_per_s: 20_000_000_000 }
}

fn cpu(os_index: u32, core: u32) -> CpuSpec {
    CpuSpec { os_index, core, llc: Some(0), node: 0, package: 0, capacity: 2 }
}

#[test]
fn every_oddity_has_its_line() {
    let machine = MachineBuilder::new("odd")
        .node(node(0, 1 << 30))
        .node(node(3, 3 << 29))
        .llc(0, 12 << 20)
        .cpu(cpu(0, 0))
        .cpu(cpu(4, 0))
        .cpu(cpu(1, 1))
        .cpu(cpu(5, 1))
        .cpu(CpuSpec { capacity: 1, ..cpu(2, 2) })
        .cpu(CpuSpec { llc: None, package: 1, ..cpu(3, 3) })
        .distances(vec![vec![10, 17], vec![17, 14]])
        .build()
        .unwrap();
    assert_eq!(
        draw(&machine),
        "\
odd
2 packages · 2 NUMA nodes · 1 LLC · 4 cores · 6 CPUs · 2.5 GiB
2100 MHz · L2 1 MiB · latency: LLC 29 ns, memory 89 ns, remote 139 ns

├─ node 0, 1 GiB at 20.0 GB/s
│  ├─ package 0
│  │  └─ LLC 12 MiB
│  │     ├─ 2 cores × 2 threads: 0,4 1,5
│  │     └─ 1 core at 50% speed: 2
│  └─ package 1
│     └─ no LLC: 1 core: 3
└─ node 3, 1.5 GiB at 20.0 GB/s, no CPUs

distances from a node (row) to another (column)
node  0  3
   0 10 17
   3 17 14
"
    );
}

#[test]
fn big_machines_are_folded_and_stay_within_80_columns() {
    for (packages, cores, threads) in [(2, 128, 2), (8, 64, 2), (40, 2, 1), (1, 300, 4), (1, 1, 1)] {
        let machine = MachineBuilder::symmetric(packages, cores, threads).build().unwrap();
        let drawing = draw(&machine);
        assert!(drawing.lines().all(|line| line.chars().count() <= WIDTH), "{drawing}");
        assert!(drawing.lines().count() <= 8 + 4 * packages as usize, "{drawing}");
    }
}

#[test]
fn equal_caches_side_by_side_share_a_line() {
    let mut builder = MachineBuilder::new("many").node(node(0, 0));
    for llc in 0..4 {
        builder = builder.llc(llc, 32 << 20);
        for core in [2 * llc, 2 * llc + 1] {
            builder = builder.cpu(CpuSpec { llc: Some(llc), ..cpu(core, core) });
        }
    }
    let drawing = draw(&builder.build().unwrap());
    assert!(drawing.contains("└─ 4 × LLC 32 MiB, each 2 cores: 0-7\n"), "{drawing}");
}

#[test]
fn long_lists_show_both_ends() {
    let parts: Vec<String> = (10..20).map(|number| number.to_string()).collect();
    assert_eq!(fit(&parts, 30), " 10 11 12 13 14 15 16 17 18 19");
    assert_eq!(fit(&parts, 29), " 10 11 12 13 14 15 16 17 … 19");
    assert_eq!(fit(&parts, 0), " … 19");
}

#[test]
fn sizes_are_short() {
    let cases = [(0, "0 B"), (1, "1 B"), (256 << 10, "256 KiB"), (3 << 29, "1.5 GiB"), (u64::MAX, "16 EiB")];
    for (bytes, text) in cases {
        assert_eq!(memory_size(bytes), text);
    }
}
