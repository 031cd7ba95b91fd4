use super::*;
use crate::{CpuSpec, MachineBuilder, NodeSpec};
use proptest::prelude::*;

const GIB: u64 = 1 << 30;

/// A machine of nodes given as (pCPUs, memory in GiB).
fn machine(nodes: &[(u32, u64)]) -> Machine {
    let mut builder = MachineBuilder::new("test");
    let mut cpus = 0;
    for (node, &(pcpus, memory_gib)) in (0..).zip(nodes) {
        builder = builder.node(NodeSpec {
            os_index: node,
            memory_bytes: memory_gib * GIB,
            bandwidth_bytes_per_s: 1,
        });
        for cpu in cpus..cpus + pcpus {
            builder = builder.cpu(CpuSpec {
                os_index: cpu,
                core: cpu,
                llc: None,
                node,
                package: node,
                capacity: 1,
            });
        }
        cpus += pcpus;
    }
    builder.build().unwrap()
}

fn ids(nodes: &[u32]) -> Vec<NodeId> {
    nodes.iter().copied().map(NodeId).collect()
}

fn request(vcpus: u32, memory_gib: u64) -> Request {
    Request { vcpus, memory_bytes: memory_gib * GIB }
}

/// An occupancy from VMs given as (vCPUs, memory in GiB, nodes).
fn occupancy(machine: &Machine, vms: &[(u32, u64, &[u32])]) -> Occupancy {
    let mut occupancy = Occupancy::empty(machine);
    for &(vcpus, memory_gib, nodes) in vms {
        occupancy.add(request(vcpus, memory_gib), &ids(nodes)).unwrap();
    }
    occupancy
}

fn placed(machine: &Machine, occupancy: &Occupancy, request: Request) -> Placement {
    match place(machine, occupancy, request) {
        PlacementOutcome::Placed(placement) => placement,
        other => panic!("{other:?}"),
    }
}

#[test]
fn takes_the_best_of_the_smallest_candidates() {
    let two = machine(&[(4, 8), (4, 8)]);
    let four = machine(&[(4, 8), (4, 8), (4, 8), (4, 8)]);
    let uneven = machine(&[(2, 8), (8, 8), (4, 8)]);
    type Vms<'a> = &'a [(u32, u64, &'a [u32])];
    type Case<'a> = (&'a str, &'a Machine, Vms<'a>, Request, &'a [u32], DecidedBy);
    use DecidedBy::{FreeMemory, NodeOrder, OnlyCandidate, RunnableVcpus};
    #[rustfmt::skip]
    let cases: &[Case] = &[
        ("an empty machine", &two, &[], request(2, 1), &[0], NodeOrder),
        ("the node without vCPUs", &two, &[(2, 1, &[0])], request(2, 1), &[1], RunnableVcpus),
        ("fewer vCPUs before more memory", &two, &[(2, 1, &[0]), (1, 6, &[1])], request(2, 1), &[1], RunnableVcpus),
        ("more memory among equals", &two, &[(2, 3, &[0]), (2, 2, &[1])], request(2, 1), &[1], FreeMemory),
        ("an uneven byte decides nothing", &four, &[(1, 4, &[0, 2, 3])], request(5, 1), &[0, 1], NodeOrder),
        ("a vCPU that may run anywhere counts everywhere", &two, &[(2, 2, &[]), (1, 0, &[0])], request(1, 1), &[1], RunnableVcpus),
        ("no room for the memory on the quiet node", &two, &[(2, 1, &[0]), (1, 7, &[1])], request(2, 2), &[0], OnlyCandidate),
        ("memory for which one node is too small", &two, &[], request(2, 9), &[0, 1], OnlyCandidate),
        ("vCPUs for which one node is too small", &four, &[(1, 0, &[0]), (1, 0, &[2])], request(5, 1), &[1, 3], RunnableVcpus),
        ("two nodes at a tie, by number", &four, &[(1, 0, &[1])], request(8, 1), &[0, 2], NodeOrder),
        ("all nodes", &four, &[(4, 2, &[0])], request(16, 1), &[0, 1, 2, 3], OnlyCandidate),
        ("only the large node holds it", &uneven, &[(8, 0, &[1])], request(6, 1), &[1], OnlyCandidate),
        ("a pair with the large node", &uneven, &[], request(10, 1), &[0, 1], NodeOrder),
    ];
    for &(name, machine, vms, request, nodes, decided_by) in cases {
        let placement = placed(machine, &occupancy(machine, vms), request);
        assert_eq!(placement.best().nodes, ids(nodes), "{name}: {placement:?}");
        assert_eq!(placement.decided_by(), decided_by, "{name}: {placement:?}");
    }
}

#[test]
fn reports_when_there_is_nothing_to_decide() {
    let cases = [(1, SkipReason::OneNode), (17, SkipReason::TooManyNodes { nodes: 17 })];
    for (nodes, reason) in cases {
        let machine = machine(&vec![(1, 1); nodes]);
        let outcome = place(&machine, &Occupancy::empty(&machine), request(1, 1));
        assert_eq!(outcome, PlacementOutcome::Skipped(reason));
    }
    let sixteen = machine(&[(1, 1); 16]);
    let half = placed(&sixteen, &Occupancy::empty(&sixteen), request(8, 1));
    assert_eq!(half.candidates().len(), 12870);
    assert_eq!(half.best().nodes, ids(&[0, 1, 2, 3, 4, 5, 6, 7]));
}

#[test]
fn names_what_is_short() {
    // Node 2 has memory only: no vCPU can live there.
    let machine = machine(&[(2, 4), (2, 4), (0, 64)]);
    let occupancy = occupancy(&machine, &[(1, 3, &[0])]);
    let pcpus = Shortage::Pcpus { vcpus: 5, pcpus: 4, isolated: 0 };
    let memory = Shortage::Memory { memory_bytes: 6 * GIB, free_bytes: 5 * GIB };
    for (request, shortage) in [(request(5, 1), pcpus), (request(1, 6), memory)] {
        let outcome = place(&machine, &occupancy, request);
        assert_eq!(outcome, PlacementOutcome::NoCandidate(shortage));
    }
}

#[test]
fn memory_is_taken_evenly_where_there_is_room() {
    let machine = machine(&[(1, 8), (1, 8), (1, 2)]);
    let free = |vms| {
        let occupancy = occupancy(&machine, vms);
        [0, 1, 2].map(|node| occupancy.free_memory_bytes(NodeId(node)) / GIB)
    };
    assert_eq!(free(&[(1, 4, &[0, 1])]), [6, 6, 2]);
    assert_eq!(free(&[(1, 4, &[1, 0, 1])]), [6, 6, 2]);
    assert_eq!(free(&[(1, 12, &[])]), [3, 3, 0]);
    assert_eq!(free(&[(1, 18, &[])]), [0, 0, 0]);
}

#[test]
fn a_vm_that_cannot_be_there_changes_nothing() {
    let machine = machine(&[(1, 8), (1, 8)]);
    let mut occupancy = Occupancy::empty(&machine);
    let unknown = OccupancyError::UnknownNode { node: NodeId(2), nodes: 2 };
    assert_eq!(occupancy.add(request(1, 1), &ids(&[0, 2])), Err(unknown));
    let large = OccupancyError::TooLittleMemory { memory_bytes: 9 * GIB, free_bytes: 8 * GIB };
    assert_eq!(occupancy.add(request(1, 9), &ids(&[1])), Err(large));
    assert_eq!(occupancy, Occupancy::empty(&machine));
}

#[test]
fn memory_is_shared_evenly_by_nodes_that_have_some() {
    let machine = machine(&[(1, 8), (1, 0), (1, 2)]);
    let cases: [(&[u32], [f64; 3]); 4] = [
        (&[0], [1.0, 0.0, 0.0]),
        (&[0, 1, 2], [0.5, 0.0, 0.5]),
        (&[1], [0.5, 0.0, 0.5]),
        (&[], [0.5, 0.0, 0.5]),
    ];
    for (nodes, shares) in cases {
        assert_eq!(memory_shares(&ids(nodes), &machine), shares, "{nodes:?}");
    }
    let bare = self::machine(&[(1, 0), (1, 0)]);
    assert_eq!(memory_shares(&[], &bare), [0.5, 0.5]);
}

#[derive(Clone, Debug)]
struct Case {
    machine: Machine,
    occupancy: Occupancy,
    request: Request,
}

/// Machines of 2 to 6 nodes, some without pCPUs or memory, with VMs on them.
fn cases() -> impl Strategy<Value = Case> {
    let nodes = prop::collection::vec((0u32..5, 0u64..9), 2..7)
        .prop_filter("a machine has a pCPU", |nodes| nodes.iter().any(|node| node.0 > 0));
    let vm = (1u32..5, 0u64..6, prop::collection::vec(0usize..6, 0..4));
    let vms = prop::collection::vec(vm, 0..6);
    (nodes, vms, 1u32..20, 0u64..30).prop_map(|(nodes, vms, vcpus, memory_gib)| {
        let machine = machine(&nodes);
        let mut occupancy = Occupancy::empty(&machine);
        for (vcpus, memory_gib, on) in vms {
            let on: Vec<NodeId> = on.iter().map(|node| NodeId::from(node % nodes.len())).collect();
            // A VM that does not fit is left out.
            let _ = occupancy.add(request(vcpus, memory_gib), &on);
        }
        Case { machine, occupancy, request: request(vcpus, memory_gib) }
    })
}

/// All sets of nodes that satisfy the request, by exhaustive search.
fn all_candidates(case: &Case) -> Vec<Candidate> {
    let nodes = case.machine.nodes();
    (1u32..1 << nodes.len())
        .map(|set| (0..nodes.len() as u32).filter(move |node| set >> node & 1 == 1).map(NodeId))
        .map(|set| candidate(&case.machine, &case.occupancy, set.collect()))
        .filter(|candidate| candidate.nodes.iter().all(|node| !nodes[node.index()].cpus.is_empty()))
        .filter(|candidate| candidate.pcpus >= case.request.vcpus as usize)
        .filter(|candidate| candidate.free_memory_bytes >= case.request.memory_bytes)
        .collect()
}

proptest! {
    #[test]
    fn the_choice_is_the_best_of_all_the_smallest_candidates(case in cases()) {
        let outcome = place(&case.machine, &case.occupancy, case.request);
        prop_assert_eq!(&outcome, &place(&case.machine, &case.occupancy, case.request));
        let all = all_candidates(&case);
        match outcome {
            PlacementOutcome::Skipped(reason) => prop_assert!(false, "skipped: {}", reason),
            PlacementOutcome::NoCandidate(_) => prop_assert!(all.is_empty()),
            PlacementOutcome::Placed(placement) => {
                let best = placement.best();
                prop_assert!(best.pcpus >= case.request.vcpus as usize);
                prop_assert!(best.free_memory_bytes >= case.request.memory_bytes);
                prop_assert!(all.iter().all(|other| other.nodes.len() >= best.nodes.len()));
                let rivals: Vec<_> = all.iter().filter(|c| c.nodes.len() == best.nodes.len()).collect();
                prop_assert_eq!(rivals.len(), placement.candidates().len());
                for rival in rivals {
                    prop_assert!(rival.runnable_vcpus >= best.runnable_vcpus);
                    if rival.runnable_vcpus == best.runnable_vcpus {
                        prop_assert!(rival.free_memory_bytes <= best.free_memory_bytes);
                    }
                }
            }
        }
    }

    #[test]
    fn a_placed_vm_fits_and_its_memory_is_all_taken(case in cases()) {
        let before: u64 = case.occupancy.nodes.iter().map(|node| node.free_memory_bytes).sum();
        if let PlacementOutcome::Placed(placement) = place(&case.machine, &case.occupancy, case.request) {
            let mut occupancy = case.occupancy.clone();
            prop_assert_eq!(occupancy.add(case.request, &placement.best().nodes), Ok(()));
            let after: u64 = occupancy.nodes.iter().map(|node| node.free_memory_bytes).sum();
            prop_assert_eq!(before - after, case.request.memory_bytes);
            let shares = memory_shares(&placement.best().nodes, &case.machine);
            prop_assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        }
    }
}
