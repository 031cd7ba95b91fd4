use super::*;
use crate::policy::linux::features::Features;
use crate::policy::linux::situation::one_node;
use crate::policy::linux::{Domains, LinuxEra, LinuxSettings, describe_domains};
use proptest::prelude::*;
use tandem_machine::{MachineBuilder, preset, preset_names};

fn tree(era: LinuxEra, domains: Domains, machine: &Machine) -> DomainTree {
    DomainTree::new(&Features::of(era).domains, domains, machine)
}

fn settings(era: LinuxEra, domains: Domains) -> LinuxSettings {
    LinuxSettings { era, domains, ..LinuxSettings::default() }
}

/// The machine of a guest that sees no NUMA nodes.
fn two_packages_one_node() -> Machine {
    one_node(2, 4, 2)
}

/// The lines of the description that are about CPU 2.
fn about_cpu_2(era: LinuxEra, domains: Domains, machine: &Machine) -> String {
    let text = describe_domains(&settings(era, domains), machine);
    let log = text.split("CPU3 ").next().unwrap();
    let log = &log[log.find("CPU2 ").unwrap()..];
    let constants: Vec<_> = text.lines().filter(|line| line.starts_with("cpu2/")).collect();
    format!("{log}{}", constants.join("\n"))
}

#[test]
fn a_guest_of_4_2_has_threads_caches_and_a_die() {
    assert_eq!(
        about_cpu_2(LinuxEra::V4_2, Domains::Topology, &two_packages_one_node()),
        "\
CPU2 attaching sched-domain:
 domain 0: span 2-3 level SMT
  groups: 2 (cpu_capacity = 589) 3 (cpu_capacity = 589)
  domain 1: span 0-7 level MC
   groups: 2-3 (cpu_capacity = 1178) 4-5 (cpu_capacity = 1178) 6-7 (cpu_capacity = 1178) 0-1 (cpu_capacity = 1178)
   domain 2: span 0-15 level DIE
    groups: 0-7 (cpu_capacity = 4712) 8-15 (cpu_capacity = 4712)
cpu2/domain0: name=SMT min_interval=2 max_interval=4 busy_idx=0 idle_idx=0 busy_factor=32 imbalance_pct=110 \
cache_nice_tries=0 flags=SD_BALANCE_NEWIDLE,SD_BALANCE_EXEC,SD_BALANCE_FORK,SD_WAKE_AFFINE,SD_SHARE_CPUCAPACITY,\
SD_SHARE_PKG_RESOURCES,SD_PREFER_SIBLING
cpu2/domain1: name=MC min_interval=8 max_interval=16 busy_idx=2 idle_idx=0 busy_factor=32 imbalance_pct=117 \
cache_nice_tries=1 flags=SD_BALANCE_NEWIDLE,SD_BALANCE_EXEC,SD_BALANCE_FORK,SD_WAKE_AFFINE,SD_SHARE_PKG_RESOURCES
cpu2/domain2: name=DIE min_interval=16 max_interval=32 busy_idx=2 idle_idx=1 busy_factor=32 imbalance_pct=125 \
cache_nice_tries=1 flags=SD_BALANCE_NEWIDLE,SD_BALANCE_EXEC,SD_BALANCE_FORK,SD_WAKE_AFFINE,SD_PREFER_SIBLING"
    );
}

#[test]
fn a_flat_guest_of_4_2_has_one_level_without_topology_flags() {
    assert_eq!(
        about_cpu_2(LinuxEra::V4_2, Domains::Flat, &two_packages_one_node()),
        "\
CPU2 attaching sched-domain:
 domain 0: span 0-15 level VCPU
  groups: 2 3 4 5 6 7 8 9 10 11 12 13 14 15 0 1
cpu2/domain0: name=VCPU min_interval=16 max_interval=32 busy_idx=2 idle_idx=1 busy_factor=32 imbalance_pct=125 \
cache_nice_tries=1 flags=SD_BALANCE_NEWIDLE,SD_BALANCE_EXEC,SD_BALANCE_FORK,SD_WAKE_AFFINE,SD_PREFER_SIBLING"
    );
}

#[test]
fn a_host_of_6_12_has_a_level_for_its_nodes_and_none_for_its_packages() {
    let machine = MachineBuilder::symmetric(2, 2, 2).build().unwrap();
    assert_eq!(
        about_cpu_2(LinuxEra::V6_12, Domains::Topology, &machine),
        "\
CPU2 attaching sched-domain(s):
 domain-0: span=2-3 level=SMT
  groups: 2:{ span=2 }, 3:{ span=3 }
  domain-1: span=0-3 level=MC
   groups: 2:{ span=2-3 cap=2048 }, 0:{ span=0-1 cap=2048 }
   domain-2: span=0-7 level=NUMA
    groups: 0:{ span=0-3 cap=4096 }, 4:{ span=4-7 cap=4096 }
cpu2/domain0: name=SMT min_interval=2 max_interval=4 busy_factor=16 imbalance_pct=110 cache_nice_tries=0 \
flags=SD_BALANCE_NEWIDLE,SD_BALANCE_EXEC,SD_BALANCE_FORK,SD_WAKE_AFFINE,SD_SHARE_CPUCAPACITY,SD_SHARE_LLC,\
SD_PREFER_SIBLING
cpu2/domain1: name=MC min_interval=4 max_interval=8 busy_factor=16 imbalance_pct=117 cache_nice_tries=1 \
flags=SD_BALANCE_NEWIDLE,SD_BALANCE_EXEC,SD_BALANCE_FORK,SD_WAKE_AFFINE,SD_SHARE_LLC,SD_PREFER_SIBLING
cpu2/domain2: name=NUMA min_interval=8 max_interval=16 busy_factor=16 imbalance_pct=117 cache_nice_tries=2 \
flags=SD_BALANCE_NEWIDLE,SD_BALANCE_EXEC,SD_BALANCE_FORK,SD_WAKE_AFFINE,SD_SERIALIZE,SD_NUMA"
    );
}

#[test]
fn a_host_of_5_2_has_the_log_of_6_12_with_averages_of_load_and_whole_cpus() {
    let machine = MachineBuilder::symmetric(2, 2, 2).build().unwrap();
    assert_eq!(
        about_cpu_2(LinuxEra::V5_2, Domains::Topology, &machine),
        "\
CPU2 attaching sched-domain(s):
 domain-0: span=2-3 level=SMT
  groups: 2:{ span=2 }, 3:{ span=3 }
  domain-1: span=0-3 level=MC
   groups: 2:{ span=2-3 cap=2048 }, 0:{ span=0-1 cap=2048 }
   domain-2: span=0-7 level=NUMA
    groups: 0:{ span=0-3 cap=4096 }, 4:{ span=4-7 cap=4096 }
cpu2/domain0: name=SMT min_interval=2 max_interval=4 busy_idx=0 idle_idx=0 busy_factor=32 imbalance_pct=110 \
cache_nice_tries=0 flags=SD_BALANCE_NEWIDLE,SD_BALANCE_EXEC,SD_BALANCE_FORK,SD_WAKE_AFFINE,SD_SHARE_CPUCAPACITY,\
SD_SHARE_PKG_RESOURCES,SD_PREFER_SIBLING
cpu2/domain1: name=MC min_interval=4 max_interval=8 busy_idx=2 idle_idx=0 busy_factor=32 imbalance_pct=117 \
cache_nice_tries=1 flags=SD_BALANCE_NEWIDLE,SD_BALANCE_EXEC,SD_BALANCE_FORK,SD_WAKE_AFFINE,SD_SHARE_PKG_RESOURCES,\
SD_PREFER_SIBLING
cpu2/domain2: name=NUMA min_interval=8 max_interval=16 busy_idx=3 idle_idx=2 busy_factor=32 imbalance_pct=125 \
cache_nice_tries=2 flags=SD_BALANCE_NEWIDLE,SD_BALANCE_EXEC,SD_BALANCE_FORK,SD_WAKE_AFFINE,SD_SERIALIZE,SD_NUMA"
    );
}

#[test]
fn intervals_of_3_6_do_not_grow_with_the_machine() {
    let machine = MachineBuilder::symmetric(2, 4, 2).build().unwrap();
    let tree = tree(LinuxEra::V3_6, Domains::Topology, &machine);
    let levels: Vec<_> = tree
        .of(CpuId(0))
        .map(|at| {
            let domain = tree.domain(at);
            let it = domain.tunables;
            (domain.name, it.min_interval_ms, it.max_interval_ms, it.busy_factor, it.imbalance_pct)
        })
        .collect();
    assert_eq!(levels, [("SIBLING", 1, 2, 64, 110), ("MC", 1, 4, 64, 125), ("NUMA", 16, 32, 32, 125)]);
}

#[test]
fn levels_for_nodes_stay_above_a_flat_table_until_6_12() {
    let machine = MachineBuilder::symmetric(2, 4, 2).build().unwrap();
    let names = |era| {
        let tree = tree(era, Domains::Flat, &machine);
        tree.of(CpuId(9)).map(|at| (tree.domain(at).name, tree.groups(at).count())).collect::<Vec<_>>()
    };
    // The level for nodes has the CPUs of the flat one, and so one group: it balances nothing.
    assert_eq!(names(LinuxEra::V4_2), [("VCPU", 16), ("NUMA", 1)]);
    assert_eq!(names(LinuxEra::V5_2), [("VCPU", 16), ("NUMA", 1)]);
    assert_eq!(names(LinuxEra::V6_12), [("VCPU", 16)]);
}

#[test]
fn cpus_share_a_cache_only_if_a_level_says_so() {
    let machine = two_packages_one_node();
    let real = tree(LinuxEra::V4_2, Domains::Topology, &machine);
    assert_eq!(real.llc_size(CpuId(9)), 8);
    assert!(real.share_cache(CpuId(9), CpuId(15)) && !real.share_cache(CpuId(9), CpuId(7)));
    let flat = tree(LinuxEra::V4_2, Domains::Flat, &machine);
    assert_eq!(flat.llc_size(CpuId(9)), 1);
    assert!(flat.share_cache(CpuId(9), CpuId(9)) && !flat.share_cache(CpuId(8), CpuId(9)));
}

#[test]
fn a_level_for_each_distance_with_groups_that_overlap() {
    // A ring of four nodes with one CPU each.
    let mut builder = MachineBuilder::new("ring");
    for node in 0..4 {
        builder = builder
            .node(tandem_machine::NodeSpec { os_index: node, memory_bytes: 1, bandwidth_bytes_per_s: 1 })
            .cpu(tandem_machine::CpuSpec {
                os_index: node,
                core: node,
                llc: None,
                node,
                package: node,
                capacity: 1,
            });
    }
    let distance = |a: u32, b: u32| [10, 20, 31, 20][(a.abs_diff(b)) as usize];
    let machine = builder
        .distances((0..4).map(|a| (0..4).map(|b| distance(a, b)).collect()).collect())
        .build()
        .unwrap();
    let tree = tree(LinuxEra::V4_2, Domains::Topology, &machine);
    let shape: Vec<_> = tree
        .of(CpuId(1))
        .map(|at| {
            let groups: Vec<_> = tree.groups(at).map(|group| machine.os_list(&group.cpus)).collect();
            let far = !tree.domain(at).tunables.flags.contains(Flags::FORK);
            (machine.os_list(&tree.span(at).cpus), groups.join(" "), far)
        })
        .collect();
    assert_eq!(
        shape,
        [
            ("0-2".into(), "1 2 0".into(), false),
            // The groups are the domains of CPUs 1 and 3 one level below.
            ("0-3".into(), "0-2 0,2-3".into(), true),
        ]
    );
}

/// Commit "sched/topology: Improve load balancing on AMD EPYC".
#[test]
fn packages_of_zen_are_near_since_5_4() {
    let searched = |era, distance| {
        let machine =
            MachineBuilder::symmetric(2, 4, 2).distances(vec![vec![10, distance], vec![distance, 10]]);
        let machine = machine.build().unwrap();
        let tree = tree(era, Domains::Topology, &machine);
        let top = tree.of(CpuId(0)).last().unwrap();
        let flags = tree.domain(top).tunables.flags;
        assert_eq!(tree.domain(top).name, "NUMA");
        flags != flags.without(Flags::EXEC | Flags::FORK | Flags::WAKE_AFFINE)
    };
    for (distance, before, since) in
        [(30, true, true), (31, false, false), (32, false, true), (40, false, false)]
    {
        assert_eq!(searched(LinuxEra::V5_2, distance), before, "{distance}");
        assert_eq!(searched(LinuxEra::V6_12, distance), since, "{distance}");
    }
}

#[test]
fn every_host_of_today_is_spanned() {
    for name in preset_names() {
        let machine = preset(name).unwrap();
        let tree = tree(LinuxEra::V6_12, Domains::Topology, &machine);
        for cpu in machine.all_cpus().iter() {
            let top = tree.of(cpu).last().unwrap();
            assert_eq!(&tree.span(top).cpus, machine.all_cpus(), "{name}");
        }
    }
    let machine = preset("xeon-6972p-2s").unwrap();
    let tree = tree(LinuxEra::V6_12, Domains::Topology, &machine);
    let weights: Vec<_> = tree.of(CpuId(0)).map(|at| tree.span(at).weight).collect();
    assert_eq!(weights, [2, 64, 128, 192, 384], "threads, a die, one die on, the socket, both");
}

#[test]
fn one_cpu_has_no_domain() {
    let machine = MachineBuilder::symmetric(1, 1, 1).build().unwrap();
    for domains in [Domains::Topology, Domains::Flat] {
        let text = describe_domains(&settings(LinuxEra::V4_2, domains), &machine);
        assert_eq!(text, "CPU0 attaching NULL sched-domain.\n/proc/sys/kernel/sched_domain:\n");
    }
}

proptest! {
    /// Each CPU's domains grow from level to level, and their groups cover them: the own one first, and
    /// without overlap where there are at most two distances.
    #[test]
    fn domains_nest_and_groups_cover(
        (packages, cores, threads) in (1u32..5, 1u32..5, 1u32..4),
        knows_nodes: bool,
        flat: bool,
        era in prop::sample::select(vec![LinuxEra::V3_6, LinuxEra::V4_2, LinuxEra::V5_2, LinuxEra::V6_12]),
    ) {
        let machine = if knows_nodes {
            MachineBuilder::symmetric(packages, cores, threads).build().unwrap()
        } else {
            one_node(packages, cores, threads)
        };
        let domains = if flat { Domains::Flat } else { Domains::Topology };
        let tree = tree(era, domains, &machine);
        for cpu in machine.all_cpus().iter() {
            let mut below = CpuMask::from_cpus(machine.cpu_count(), [cpu]);
            for at in tree.of(cpu) {
                let span = tree.span(at);
                prop_assert!(below.is_subset(&span.cpus));
                prop_assert_eq!(span.cpus.count(), span.weight as usize);
                prop_assert!(tree.group(at, 0).cpus.contains(cpu));
                prop_assert_eq!(tree.groups(at).map(|group| group.weight).sum::<u32>(), span.weight);
                let members = tree.groups(at).flat_map(|group| group.cpus.iter());
                prop_assert_eq!(&CpuMask::from_cpus(machine.cpu_count(), members), &span.cpus);
                below = span.cpus.clone();
            }
            prop_assert_eq!(&below, machine.all_cpus());
        }
    }
}

/// Half of 1024 calls count at the start, of which every second one succeeded.
#[test]
fn update_newidle_stats_takes_the_ratio_of_successes_and_since_7_1_adds_the_rate() {
    for (with_rate, ratios) in [(false, [256, 128, 576]), (true, [732, 604, 1024])] {
        let mut rate = NewidleRate::new();
        for (round, (successes, expected)) in [0, 0, 1].into_iter().zip(ratios).enumerate() {
            for _ in 0..512 {
                assert_eq!(rate.ratio, if round == 0 { 512 } else { ratios[round - 1] });
                rate.count((round as u64 + 1) * 2_000_000_000, successes, with_rate);
            }
            assert_eq!(rate.ratio, expected, "round {round}, rate {with_rate}");
        }
    }
}
