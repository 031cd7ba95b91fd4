//! Cases by hand, and properties of all VMs with virtual nodes.

use super::super::tests::{GIB, SECOND, follow, free, new_vm, settled};
use super::super::*;
use super::*;
use crate::{MachineBuilder, preset};
use proptest::prelude::*;

fn planner() -> Planner {
    Planner::new(HomeSettings::default())
}

/// Makes VMs the virtual nodes of one.
fn parts<const N: usize>(mut vms: [VmView; N]) -> [VmView; N] {
    vms.iter_mut().for_each(|vm| vm.part = Some(Part { of: 7, bound: Vec::new() }));
    vms
}

fn homes(vms: &[VmView]) -> Vec<Vec<u32>> {
    let of = |vm: &VmView| vm.home.iter().flat_map(|home| &home.nodes).map(|node| node.0).collect();
    vms.iter().map(of).collect()
}

/// A machine with this many nodes of four CPUs and 16 GiB.
fn machine(nodes: u32) -> Machine {
    MachineBuilder::symmetric(nodes, 4, 1).every_node(16 * GIB, 10_000_000_000).build().unwrap()
}

#[test]
fn each_virtual_node_of_a_new_vm_lives_on_its_own_node() {
    let machine = preset("xeon-e5620-2s").unwrap();
    // A VM with 4 vCPUs fills half of node 0; either part would fit beside it, and both on node 1.
    let [a, b] = parts([new_vm(1, 4, 1, 2), new_vm(2, 4, 1, 2)]);
    let mut vms = [settled(0, 4, 1, 2, 0), a, b];
    let decisions = follow(&mut planner(), &machine, &mut vms, 0..1);
    assert_eq!(homes(&vms), [[0], [1], [0]]);
    assert_eq!(
        decisions[1].reason.to_string(),
        "node 0: no other virtual node is there; demand there is 8.0 of 8 CPUs with this VM; 5.0 GiB are free there"
    );
    vms[1].part = None;
    vms[2].part = None;
    vms[0].demand = Some(8.0);
    vms[0].vcpus = 8;
    (vms[1].home, vms[2].home) = (None, None);
    follow(&mut planner(), &machine, &mut vms, 0..1);
    assert_eq!(homes(&vms), [[0], [1], [1]], "two VMs keep away from a full node");
}

#[test]
fn more_virtual_nodes_than_nodes_share_evenly() {
    let mut vms = parts([0, 1, 2, 3].map(|id| new_vm(id, 2, 1, 2)));
    follow(&mut planner(), &machine(2), &mut vms, 0..10);
    assert_eq!(homes(&vms), [[0], [1], [0], [1]]);
}

#[test]
fn parts_that_share_a_node_part_if_no_memory_holds_them() {
    let machine = machine(2);
    let spread = |id| VmView { resident_bytes: vec![GIB, GIB], ..settled(id, 2, 2, 2, 0) };
    let mut vms = parts([spread(0), spread(1)]);
    let mut planner = planner();
    assert_eq!(follow(&mut planner, &machine, &mut vms, 0..2), [], "a move needs three scans");
    let decisions = follow(&mut planner, &machine, &mut vms, 2..30);
    assert_eq!(homes(&vms), [[1], [0]]);
    assert_eq!(decisions.len(), 1);
    // By hand: both lose a twentieth of 2 CPUs; memory is as far as before.
    assert_eq!(
        decisions[0].reason.to_string(),
        "node 1: no other virtual node is there; 1.0 of 2.0 GiB of its memory is there; demand on node 0 is 4.0 of 4 CPUs; \
         demand there is 2.0 of 4 CPUs with this VM; it saves 0.20 CPUs"
    );
}

#[test]
fn parts_stay_together_and_come_together_where_their_memory_is() {
    let machine = preset("xeon-e5620-2s").unwrap();
    let mut vms = parts([settled(0, 2, 2, 2, 0), settled(1, 2, 2, 2, 0)]);
    assert_eq!(follow(&mut planner(), &machine, &mut vms, 0..50), []);
    // Memory of the second one was moved to the first: 0.18 of 2 CPUs are lost if it was all, and 0.05 of 4
    // CPUs by sharing a node.
    let mut vms = parts([settled(0, 2, 2, 2, 0), settled(1, 2, 2, 2, 1)]);
    vms[1].resident_bytes = vec![GIB, GIB];
    assert_eq!(follow(&mut planner(), &machine, &mut vms, 0..50), []);
    vms[1].resident_bytes = vec![2 * GIB, 0];
    follow(&mut planner(), &machine, &mut vms, 50..100);
    assert_eq!(homes(&vms), [[0], [0]]);
}

#[test]
fn a_wish_limits_the_choice_of_nodes() {
    let mut vms = parts([0, 1].map(|id| new_vm(id, 2, 1, 4)));
    vms.iter_mut().for_each(|vm| vm.request = HomeRequest::Nodes(vec![NodeId(2), NodeId(3)]));
    let decisions = follow(&mut planner(), &machine(4), &mut vms, 0..30);
    assert_eq!(homes(&vms), [[2], [3]]);
    assert!(
        decisions[0]
            .reason
            .to_string()
            .starts_with("node 2: the configuration says so; no other virtual node")
    );
    vms.iter_mut().for_each(|vm| vm.request = HomeRequest::Nodes(vec![NodeId(0), NodeId(1)]));
    follow(&mut planner(), &machine(4), &mut vms, 30..31);
    assert_eq!(homes(&vms), [[0], [1]], "another wish is obeyed at once");
    vms.iter_mut().for_each(|vm| vm.request = HomeRequest::Exempt);
    follow(&mut planner(), &machine(4), &mut vms, 31..32);
    assert_eq!(homes(&vms), [[0; 0], [0; 0]]);
}

#[test]
fn a_wish_for_too_few_cpus_is_obeyed_and_kept() {
    let mut vms = parts([0, 1].map(|id| new_vm(id, 6, 1, 4)));
    vms.iter_mut().for_each(|vm| vm.request = HomeRequest::Nodes(vec![NodeId(2)]));
    let decisions = follow(&mut planner(), &machine(4), &mut vms, 0..30);
    assert_eq!((homes(&vms), decisions.len()), (vec![vec![2], vec![2]], 2));
}

#[test]
fn a_part_lives_where_its_memory_is_bound() {
    let mut vms = parts([0, 1].map(|id| new_vm(id, 2, 1, 2)));
    for (vm, node) in vms.iter_mut().zip([1, 0]) {
        vm.part.as_mut().unwrap().bound = vec![NodeId(node)];
    }
    let decisions = follow(&mut planner(), &machine(2), &mut vms, 0..30);
    assert_eq!((homes(&vms), decisions.len()), (vec![vec![1], vec![0]], 2));
    assert!(decisions[0].reason.to_string().starts_with("node 1: its memory is bound there; "));
    // Memory that is bound elsewhere does not limit the operator's wish.
    vms.iter_mut().for_each(|vm| vm.request = HomeRequest::Nodes(vec![NodeId(0)]));
    follow(&mut planner(), &machine(2), &mut vms, 30..31);
    assert_eq!(homes(&vms), [[0], [0]]);
}

#[test]
fn parts_are_no_others_to_an_isolated_vm() {
    let mut vms = parts([0, 1].map(|id| new_vm(id, 2, 1, 4))).to_vec();
    vms.iter_mut().for_each(|vm| vm.request = HomeRequest::Isolated);
    vms.extend([2, 3].map(|id| new_vm(id, 2, 1, 4)));
    follow(&mut planner(), &machine(4), &mut vms, 0..30);
    assert_eq!(homes(&vms), [[0], [1], [2], [3]]);
    let allowed = vec![NodeId(0)];
    vms.truncate(2);
    vms.iter_mut().for_each(|vm| (vm.allowed, vm.home) = (allowed.clone(), None));
    let decisions = follow(&mut planner(), &machine(4), &mut vms, 30..60);
    assert_eq!(homes(&vms), [[0], [0]]);
    let reason = decisions[1].reason.to_string();
    assert!(reason.contains("one other virtual node is there; it is apart from others there"), "{reason}");
}

/// A VM of several virtual nodes, which may be bound, with one wish for all of them.
fn any_parts(nodes: u32) -> impl Strategy<Value = Vec<VmView>> {
    let some = || proptest::collection::vec((0..nodes).prop_map(NodeId), 0..3);
    let part = (1..6u32, some(), 0.0..6.0, proptest::collection::vec(0..2 * GIB, nodes as usize));
    (proptest::collection::vec(part, 1..5), some(), some()).prop_map(move |(parts, allowed, requested)| {
        let vm =
            |(id, (vcpus, bound, demand, resident_bytes)): (u64, (u32, Vec<NodeId>, f64, Vec<u64>))| VmView {
                demand: (demand < 5.0).then_some(demand),
                resident_bytes,
                allowed: allowed.clone(),
                request: if requested.is_empty() {
                    HomeRequest::Any
                } else {
                    HomeRequest::Nodes(requested.clone())
                },
                part: Some(Part { of: 7, bound }),
                ..new_vm(id, vcpus, 2, nodes as usize)
            };
        (0..).zip(parts).map(vm).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// New virtual nodes live on as many nodes as they can, whatever other VMs there are.
    #[test]
    fn new_parts_are_apart(count in 1..5u64, others in proptest::collection::vec((0..4u32, 0.0..1.0f64), 0..3)) {
        let machine = machine(4);
        let part = |id| VmView { part: Some(Part { of: 7, bound: Vec::new() }), ..new_vm(id, 2, 1, 4) };
        let mut vms: Vec<VmView> = (0..count).map(part).collect();
        vms.extend((10..).zip(others).map(|(id, (home, demand))| VmView {
            demand: Some(demand),
            ..settled(id, 1, 1, 4, home)
        }));
        follow(&mut planner(), &machine, &mut vms, 0..1);
        let mut nodes = homes(&vms[..count as usize]).concat();
        nodes.sort_unstable();
        nodes.dedup();
        prop_assert_eq!(nodes.len() as u64, count);
    }

    /// Homes are within what is allowed, requested and bound, in that order; a decision is not reversed in
    /// the next scan; and when nothing changes, moves come to an end.
    #[test]
    fn homes_are_within_the_rules(mut vms in any_parts(4)) {
        let machine = machine(4);
        let mut planner = planner();
        follow(&mut planner, &machine, &mut vms, 0..1);
        let before = homes(&vms);
        prop_assert_eq!(follow(&mut planner, &machine, &mut vms, 1..2), []);
        prop_assert_eq!(homes(&vms), before);
        follow(&mut planner, &machine, &mut vms, 2..400);
        prop_assert_eq!(follow(&mut planner, &machine, &mut vms, 400..500), []);
        for vm in &vms {
            let HomeRequest::Nodes(requested) = &vm.request else { continue };
            let allowed = |node: &NodeId| vm.allowed.is_empty() || vm.allowed.contains(node);
            for node in vm.home.iter().flat_map(|home| &home.nodes) {
                prop_assert!(allowed(node));
                prop_assert!(requested.contains(node) || !requested.iter().any(allowed));
            }
        }
        let free_bytes = free(&machine, &vms);
        let view = View { machine: &machine, free_bytes: &free_bytes, vms: &vms, now_ns: 9_000 * SECOND };
        let _ = planner.far_memory(&view);
    }
}
