use super::*;
use crate::placement::{MAX_NODES, place};
use crate::{MachineBuilder, preset};
use std::ops::Range;

pub(super) const GIB: u64 = 1 << 30;
pub(super) const SECOND: u64 = 1_000_000_000;

/// A VM that has just started.
pub(super) fn new_vm(id: u64, vcpus: u32, memory_gib: u64, nodes: usize) -> VmView {
    VmView::starting(id, Request { vcpus, memory_bytes: memory_gib * GIB }, nodes)
}

/// A VM that has lived on one node for long, where all its memory is.
pub(super) fn settled(id: u64, vcpus: u32, memory_gib: u64, nodes: usize, home: u32) -> VmView {
    let mut vm = new_vm(id, vcpus, memory_gib, nodes);
    vm.resident_bytes[home as usize] = memory_gib * GIB;
    vm.demand = Some(f64::from(vcpus));
    vm.home = Some(Home { nodes: vec![NodeId(home)], since_ns: 0 });
    vm
}

/// The memory that VMs leave free.
pub(super) fn free(machine: &Machine, vms: &[VmView]) -> Vec<u64> {
    let taken = |node: usize| vms.iter().map(|vm| vm.resident_bytes[node]).sum::<u64>();
    let nodes = machine.nodes().iter().enumerate();
    nodes.map(|(at, node)| node.memory_bytes.saturating_sub(taken(at))).collect()
}

/// Scans this often, at the interval of the settings, and applies the decisions.
pub(super) fn follow(
    planner: &mut Planner,
    machine: &Machine,
    vms: &mut [VmView],
    scans: Range<u64>,
) -> Vec<Decision> {
    let mut all = Vec::new();
    for scan in scans {
        // Long after the homes of `settled` began.
        let now_ns = 1_000 * SECOND + scan * planner.settings().look_interval_ns;
        let free_bytes = free(machine, vms);
        let decisions = planner.plan(&View { machine, free_bytes: &free_bytes, vms, now_ns });
        for decision in &decisions {
            let vm = vms.iter_mut().find(|vm| vm.id == decision.vm).unwrap();
            let nodes = decision.nodes.clone();
            vm.home = (!nodes.is_empty()).then_some(Home { nodes, since_ns: now_ns });
        }
        all.extend(decisions);
    }
    all
}

fn two_nodes() -> Machine {
    preset("xeon-e5620-2s").unwrap()
}

fn planner() -> Planner {
    Planner::new(HomeSettings::default())
}

fn homes(decisions: &[Decision]) -> Vec<(u64, Vec<u32>)> {
    decisions.iter().map(|it| (it.vm, it.nodes.iter().map(|node| node.0).collect())).collect()
}

#[test]
fn a_new_vm_lives_where_libxl_would_place_it() {
    let machine = two_nodes();
    let mut occupancy = Occupancy::empty(&machine);
    let mut vms: Vec<VmView> = Vec::new();
    for (id, (vcpus, memory_gib)) in [(2, 1), (4, 2), (2, 1), (8, 2), (1, 1), (12, 2)].into_iter().enumerate()
    {
        let request = Request { vcpus, memory_bytes: memory_gib * GIB };
        let PlacementOutcome::Placed(placed) = place(&machine, &occupancy, request) else { panic!() };
        occupancy.add(request, &placed.best().nodes).unwrap();
        vms.push(new_vm(id as u64, vcpus, memory_gib, 2));
        let decisions = follow(&mut planner(), &machine, &mut vms, 0..1);
        assert_eq!(decisions[0].nodes, placed.best().nodes, "VM {id}: {}", decisions[0].reason);
        for node in &placed.best().nodes {
            let share = memory_gib * GIB / placed.best().nodes.len() as u64;
            vms[id].resident_bytes[node.index()] = share;
        }
    }
}

#[test]
fn measured_demand_counts_and_not_vcpus() {
    let machine = two_nodes();
    let mut sleeping = settled(0, 8, 1, 2, 0);
    sleeping.demand = Some(0.0);
    let mut vms = vec![sleeping, settled(1, 4, 1, 2, 1), new_vm(2, 4, 1, 2)];
    let decisions = follow(&mut planner(), &machine, &mut vms, 0..1);
    assert_eq!(homes(&decisions), [(2, vec![0])]);
    assert_eq!(
        decisions[0].reason.to_string(),
        "node 0: demand there is 4.1 of 8 CPUs with this VM; 5.0 GiB are free there"
    );
}

#[test]
fn a_vm_that_already_has_memory_lives_with_it() {
    let machine = two_nodes();
    let mut vm = new_vm(1, 2, 4, 2);
    vm.resident_bytes = vec![GIB / 2, 3 * GIB];
    let mut vms = vec![settled(0, 2, 1, 2, 1), vm];
    let decisions = follow(&mut planner(), &machine, &mut vms, 0..1);
    assert_eq!(homes(&decisions), [(1, vec![1])]);
    let reason = decisions[0].reason.to_string();
    assert!(reason.starts_with("node 1: 3.0 of 3.5 GiB of its memory is there; "), "{reason}");
}

/// Nodes 0 and 2 are near each other, and so are 1 and 3.
fn four_nodes() -> Machine {
    let distance = |from: usize, to: usize| match (from, to) {
        _ if from == to => 10,
        _ if from % 2 == to % 2 => 16,
        _ => 32,
    };
    let distances = (0..4).map(|from| (0..4).map(|to| distance(from, to)).collect()).collect();
    MachineBuilder::symmetric(4, 4, 1)
        .every_node(8 * GIB, 10_000_000_000)
        .distances(distances)
        .build()
        .unwrap()
}

#[test]
fn a_vm_too_big_for_a_node_gets_near_ones() {
    let machine = four_nodes();
    for (vcpus, memory_gib) in [(6, 4), (2, 12)] {
        let mut vms = vec![new_vm(0, vcpus, memory_gib, 4)];
        assert_eq!(homes(&follow(&mut planner(), &machine, &mut vms, 0..1)), [(0, vec![0, 2])]);
    }
}

#[test]
fn a_device_draws_a_vm_near() {
    let machine = four_nodes();
    let mut vm = new_vm(0, 2, 1, 4);
    vm.devices = vec![NodeId(3)];
    let decisions = follow(&mut planner(), &machine, &mut [vm], 0..1);
    assert_eq!(homes(&decisions), [(0, vec![3])]);
    assert!(decisions[0].reason.facts.contains(&Fact::Device), "{}", decisions[0].reason);
}

#[test]
fn the_best_home_is_kept() {
    let machine = two_nodes();
    let mut vms: Vec<_> = (0..4).map(|id| settled(id, 4, 1, 2, id as u32 % 2)).collect();
    assert_eq!(follow(&mut planner(), &machine, &mut vms, 0..100), []);
}

#[test]
fn a_home_follows_moved_memory() {
    let machine = two_nodes();
    let mut vms = vec![settled(0, 2, 1, 2, 0), settled(1, 2, 4, 2, 0)];
    vms[1].resident_bytes = vec![GIB, 3 * GIB];
    let mut planner = planner();
    assert_eq!(follow(&mut planner, &machine, &mut vms, 0..2), [], "not before the third scan");
    let decisions = follow(&mut planner, &machine, &mut vms, 2..100);
    assert_eq!(homes(&decisions), [(1, vec![1])]);
    let reason = decisions[0].reason.to_string();
    assert!(
        reason.starts_with(
            "node 1: 3.0 of 4.0 GiB of its memory is there; demand on node 0 is 4.0 of 8 CPUs; "
        )
    );
}

#[test]
fn a_gain_that_goes_away_moves_no_vm() {
    let machine = two_nodes();
    let mut vms = vec![settled(0, 2, 4, 2, 0)];
    let mut planner = planner();
    for scan in 0..30 {
        let away = scan % 3 != 2;
        vms[0].resident_bytes = if away { vec![GIB, 3 * GIB] } else { vec![4 * GIB, 0] };
        assert_eq!(follow(&mut planner, &machine, &mut vms, scan..scan + 1), []);
    }
}

#[test]
fn a_crowded_node_is_relieved_one_vm_per_scan() {
    let machine = two_nodes();
    let mut vms: Vec<_> = (0..5).map(|id| settled(id, 4, 1, 2, 0)).collect();
    // Half of their memory is there already, so that they lose nothing by a move.
    vms.iter_mut().for_each(|vm| vm.resident_bytes = vec![GIB / 2, GIB / 2]);
    let mut planner = planner();
    let decisions = follow(&mut planner, &machine, &mut vms, 0..100);
    assert_eq!(homes(&decisions), [(0, vec![1]), (1, vec![1])], "8 CPUs for 12 and 8 asked for");
    assert!(decisions[0].reason.to_string().contains("demand on node 0 is 20.0 of 8 CPUs"));
}

#[test]
fn memory_that_would_stay_behind_keeps_a_vm() {
    let machine = two_nodes();
    let mut vms: Vec<_> = (0..5).map(|id| settled(id, 4, 1, 2, 0)).collect();
    let decisions = follow(&mut planner(), &machine, &mut vms, 0..100);
    assert_eq!(decisions, [], "those that find no CPU are as far from their memory either way");
}

#[test]
fn where_all_cpus_are_busy_no_vm_gets_much_less_than_others() {
    let machine = two_nodes();
    let mut vms: Vec<_> = (0..5).map(|id| settled(id, 4, 1, 2, 1)).collect();
    vms.push(settled(5, 8, 1, 2, 0));
    let decisions = follow(&mut planner(), &machine, &mut vms, 0..100);
    // Each of the five had 0.4 of its demand, and the one all of it; afterwards four have a half, and two
    // 0.7.
    assert_eq!(homes(&decisions), [(0, vec![0])]);
}

#[test]
fn a_cpuset_that_shrinks_is_obeyed_at_once() {
    let machine = two_nodes();
    let mut vms = vec![settled(0, 2, 1, 2, 0), settled(1, 2, 1, 2, 0)];
    vms.iter_mut().for_each(|vm| vm.home.as_mut().unwrap().since_ns = 1_000 * SECOND);
    vms.iter_mut().for_each(|vm| vm.allowed = vec![NodeId(1)]);
    let decisions = follow(&mut planner(), &machine, &mut vms, 0..1);
    assert_eq!(homes(&decisions), [(0, vec![1]), (1, vec![1])]);
    assert!(decisions[0].reason.to_string().starts_with("node 1: it cannot stay on node 0; "));
}

#[test]
fn a_node_has_only_the_cpus_that_are_not_isolated() {
    let isolated = |cpus: &[u32]| MachineBuilder::symmetric(2, 4, 1).isolated(cpus.to_vec()).build().unwrap();
    let home = |machine: &Machine, vcpus| {
        homes(&follow(&mut planner(), machine, &mut [new_vm(0, vcpus, 0, 2)], 0..1))
    };
    let machine = isolated(&[0, 1]);
    assert_eq!(home(&machine, 2), [(0, vec![0])]);
    let decisions = follow(&mut planner(), &machine, &mut [settled(0, 3, 1, 2, 0)], 0..1);
    assert_eq!(homes(&decisions), [(0, vec![1])], "two of four CPUs are left on node 0, where its memory is");
    assert_eq!(home(&machine, 5), [(0, vec![0, 1])]);
    let machine = isolated(&[0, 1, 2, 3]);
    assert_eq!(home(&machine, 1), [(0, vec![1])], "no CPU is left on node 0");
    let mut vms = [settled(0, 5, 0, 2, 0)];
    let decisions = follow(&mut planner(), &machine, &mut vms, 0..1);
    assert_eq!(
        decisions[0].reason.to_string(),
        "no home: the VM has 5 vCPUs, but the machine only 4 pCPUs that are not isolated"
    );
}

#[test]
fn wishes_are_obeyed() {
    let machine = four_nodes();
    let mut vms: Vec<_> = (0..3).map(|id| settled(id, 2, 1, 4, 0)).collect();
    vms[0].request = HomeRequest::Nodes(vec![NodeId(3), NodeId(2)]);
    vms[1].request = HomeRequest::Exempt;
    vms[2].request = HomeRequest::Nodes(vec![NodeId(1)]);
    vms[2].allowed = vec![NodeId(0)];
    let decisions = follow(&mut planner(), &machine, &mut vms, 0..10);
    assert_eq!(homes(&decisions), [(0, vec![2, 3]), (1, vec![])]);
    assert_eq!(decisions[0].reason.to_string(), "nodes 2 and 3: the configuration says so");
    assert_eq!(decisions[1].reason.to_string(), "no home: the configuration says so");
}

#[test]
fn isolated_vms_are_left_alone() {
    let machine = two_nodes();
    let mut vms = vec![new_vm(0, 2, 1, 2), new_vm(1, 2, 1, 2), new_vm(2, 2, 1, 2)];
    vms[0].request = HomeRequest::Isolated;
    assert_eq!(
        homes(&follow(&mut planner(), &machine, &mut vms, 0..1)),
        [(0, vec![0]), (1, vec![1]), (2, vec![1])]
    );
}

#[test]
fn others_make_way_for_an_isolated_vm() {
    let machine = two_nodes();
    let mut vms: Vec<_> = (0..4).map(|id| settled(id, 2, 1, 2, id as u32 % 2)).collect();
    vms.push(settled(4, 2, 1, 2, 0));
    vms[1].request = HomeRequest::Isolated;
    let decisions = follow(&mut planner(), &machine, &mut vms, 0..100);
    assert_eq!(homes(&decisions), [(3, vec![0])]);
    assert!(decisions[0].reason.to_string().starts_with("node 0: it is apart from others there"));
}

#[test]
fn a_vm_larger_than_the_machine_has_no_home() {
    let machine = two_nodes();
    let mut vms = vec![new_vm(0, 17, 1, 2)];
    assert_eq!(follow(&mut planner(), &machine, &mut vms, 0..3), []);
    vms[0].home = Some(Home { nodes: vec![NodeId(0)], since_ns: 0 });
    let decisions = follow(&mut planner(), &machine, &mut vms, 0..3);
    assert_eq!(homes(&decisions), [(0, vec![])]);
    assert_eq!(
        decisions[0].reason.to_string(),
        "no home: the VM has 17 vCPUs, but the machine only 16 pCPUs"
    );
}

#[test]
fn a_vm_that_finds_no_room_still_gets_a_home() {
    let machine = two_nodes();
    let mut vms = vec![settled(0, 2, 5, 2, 0), settled(1, 2, 5, 2, 1), new_vm(2, 2, 4, 2)];
    assert_eq!(homes(&follow(&mut planner(), &machine, &mut vms, 0..1)), [(2, vec![0])]);
}

#[test]
fn the_number_of_combinations_is_bounded() {
    let machine = MachineBuilder::symmetric(MAX_NODES as u32, 2, 1).build().unwrap();
    let nodes = placement::usable_nodes(&machine);
    let most = (1..=MAX_NODES).map(|count| placement::combinations(&nodes, count).count()).max();
    assert_eq!(most, Some(12_870), "8 of 16");
    let beyond = MachineBuilder::symmetric(MAX_NODES as u32 + 1, 2, 1).build().unwrap();
    assert_eq!(follow(&mut planner(), &beyond, &mut [new_vm(0, 2, 1, MAX_NODES + 1)], 0..3), []);
}

#[test]
fn a_home_saves_what_far_memory_costs_now() {
    let machine = two_nodes();
    let at_home = settled(0, 4, 2, 2, 1);
    let vms = [at_home];
    let free_bytes = free(&machine, &vms);
    let view = View { machine: &machine, free_bytes: &free_bytes, vms: &vms, now_ns: 0 };
    let saved = |runs: [f64; 2]| planner().savings(&view, |_| Some(runs.to_vec())).get(&0).copied();
    // By hand: 4 CPUs x its share of time that waits x how much longer that takes x its share of time away.
    let longer = machine.memory_latency_ns(NodeId(0), NodeId(1))
        / machine.memory_latency_ns(NodeId(1), NodeId(1))
        - 1.0;
    let half = saved([0.5, 0.5]).unwrap();
    for (saved, share) in [(half.least, 0.14), (half.expected, 0.4), (half.most, 0.59)] {
        assert!((saved - 4.0 * share * longer * 0.5).abs() < 1e-9, "{half:?}");
    }
    assert_eq!(saved([0.0, 1.0]).unwrap(), Saving::default(), "it is there already");
    assert_eq!(planner().savings(&view, |_| None), BTreeMap::new(), "it is unknown where it runs");
}

#[test]
fn a_crowded_home_saves_less_and_one_far_from_the_memory_costs() {
    let machine = two_nodes();
    let mut vms: Vec<VmView> = (0..4).map(|id| settled(id, 4, 1, 2, 0)).collect();
    let saved = |vms: &[VmView]| {
        let free_bytes = free(&machine, vms);
        let view = View { machine: &machine, free_bytes: &free_bytes, vms, now_ns: 0 };
        planner().savings(&view, |_| Some(vec![0.5, 0.5]))[&0]
    };
    let (alone, crowded) = (saved(&vms[..1]), saved(&vms));
    // VMs demand 16 CPUs of 8.
    assert!((crowded.expected - alone.expected / 2.0).abs() < 1e-9, "{alone:?} {crowded:?}");
    vms[0].resident_bytes = vec![0, GIB];
    let far = saved(&vms[..1]);
    assert!(far.most < 0.0 && far.least < far.expected && far.expected < far.most, "{far:?}");
}
