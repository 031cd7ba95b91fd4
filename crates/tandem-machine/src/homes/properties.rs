//! Properties that hold for all VMs, loads and noise.

use super::tests::{SECOND, follow, free, new_vm, settled};
use super::*;
use crate::{MachineBuilder, preset};
use proptest::prelude::*;

const NODES: usize = 4;

fn machine() -> Machine {
    machine_with(&[])
}

/// A machine with these CPUs isolated.
fn machine_with(isolated: &[u32]) -> Machine {
    let builder = MachineBuilder::symmetric(NODES as u32, 4, 2).every_node(16 << 30, 10_000_000_000);
    builder.isolated(isolated.iter().copied()).build().unwrap()
}

/// A VM that has lived somewhere for long, with memory there or elsewhere.
fn any_vm() -> impl Strategy<Value = VmView> {
    let request = prop_oneof![
        6 => Just(HomeRequest::Any),
        1 => Just(HomeRequest::Isolated),
        1 => Just(HomeRequest::Exempt),
        1 => proptest::collection::vec((0..NODES as u32).prop_map(NodeId), 1..3).prop_map(HomeRequest::Nodes),
    ];
    let allowed = proptest::collection::vec((0..NODES as u32).prop_map(NodeId), 0..4);
    let resident = proptest::collection::vec(0..2u64 << 30, NODES);
    (1..12u32, 0.0..12.0, request, allowed, resident, proptest::option::of(0..NODES as u32)).prop_map(
        |(vcpus, demand, request, allowed, resident_bytes, home)| VmView {
            request,
            allowed,
            demand: (demand < 10.0).then_some(demand),
            memory_bytes: resident_bytes.iter().sum::<u64>().max(1 << 28),
            resident_bytes,
            home: home.map(|node| Home { nodes: vec![NodeId(node)], since_ns: 0 }),
            ..new_vm(0, vcpus, 1, NODES)
        },
    )
}

fn any_vms() -> impl Strategy<Value = Vec<VmView>> {
    proptest::collection::vec(any_vm(), 1..16).prop_map(|mut vms| {
        vms.iter_mut().zip(0..).for_each(|(vm, id)| vm.id = id);
        vms
    })
}

/// Adapts a VM to a machine with this many nodes.
fn fit(vm: &mut VmView, nodes: usize) {
    let is_there = |node: &NodeId| node.index() < nodes;
    vm.resident_bytes.truncate(nodes);
    vm.allowed.retain(is_there);
    vm.home = vm.home.take().filter(|home| home.nodes.iter().all(is_there));
    if let HomeRequest::Nodes(requested) = &mut vm.request {
        requested.retain(is_there);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Whatever loads do, a VM moves at most once in a rest time, and all of them together once per scan.
    #[test]
    fn moves_are_bounded(
        mut vms in any_vms(),
        period in 1..12u64,
        noise in proptest::collection::vec(0.0..1.0f64, 300 * 16),
    ) {
        const LOOKS: u64 = 300;
        let machine = machine();
        let mut planner = Planner::new(HomeSettings::default());
        follow(&mut planner, &machine, &mut vms, 0..1);
        let mut of_vm = BTreeMap::new();
        for scan in 1..LOOKS {
            for (at, vm) in vms.iter_mut().enumerate() {
                let busy = f64::from(u8::from((scan / period + vm.id).is_multiple_of(2)));
                vm.demand = Some(f64::from(vm.vcpus) * (0.7 * busy + 0.3 * noise[scan as usize * 16 + at]));
            }
            let decisions = follow(&mut planner, &machine, &mut vms, scan..scan + 1);
            prop_assert!(decisions.len() <= 1, "{decisions:?}");
            for decision in decisions {
                *of_vm.entry(decision.vm).or_insert(0u64) += 1;
            }
        }
        let settings = planner.settings();
        let most = LOOKS * settings.look_interval_ns / settings.rest_ns + 1;
        prop_assert!(of_vm.values().all(|&moves| moves <= most), "{of_vm:?}");
    }

    /// While nothing changes, moves come to an end: each reduces what is lost, and none is reversed.
    #[test]
    fn homes_come_to_rest(mut vms in any_vms()) {
        let machine = machine();
        let mut planner = Planner::new(HomeSettings::default());
        follow(&mut planner, &machine, &mut vms, 0..600);
        prop_assert_eq!(follow(&mut planner, &machine, &mut vms, 600..700), vec![]);
    }

    /// Noise that is smaller than the least gain does not move a VM whose home is best.
    #[test]
    fn small_noise_moves_no_vm(noise in proptest::collection::vec(-0.1..0.1f64, 100 * 8)) {
        let machine = preset("xeon-e5620-2s").unwrap();
        let mut vms: Vec<_> = (0..8).map(|id| settled(id, 2, 1, 2, id as u32 % 2)).collect();
        let mut planner = Planner::new(HomeSettings::default());
        for scan in 0..100u64 {
            for (at, vm) in vms.iter_mut().enumerate() {
                vm.demand = Some(1.8 + noise[scan as usize * 8 + at]);
            }
            prop_assert_eq!(follow(&mut planner, &machine, &mut vms, scan..scan + 1), vec![]);
        }
    }

    /// Homes are where they may be and as requested, from the first scan on.
    #[test]
    fn rules_are_kept(mut vms in any_vms()) {
        let machine = machine();
        follow(&mut Planner::new(HomeSettings::default()), &machine, &mut vms, 0..1);
        for vm in &vms {
            let allowed = |node: &NodeId| vm.allowed.is_empty() || vm.allowed.contains(node);
            let nodes = vm.home.as_ref().map_or(&[][..], |home| &home.nodes);
            prop_assert!(nodes.iter().all(allowed), "{vm:?}");
            prop_assert!(nodes.is_sorted_by(|a, b| a < b), "{vm:?}");
            match &vm.request {
                HomeRequest::Exempt => prop_assert!(nodes.is_empty(), "{vm:?}"),
                HomeRequest::Nodes(requested) if requested.iter().any(allowed) => {
                    let is_right = |node: &NodeId| nodes.contains(node) == allowed(node);
                    prop_assert!(requested.iter().all(is_right), "{vm:?}");
                    prop_assert!(nodes.iter().all(|node| requested.contains(node)), "{vm:?}");
                }
                HomeRequest::Any | HomeRequest::Nodes(_) | HomeRequest::Isolated => {}
            }
        }
    }

    /// No home consists of isolated CPUs alone, or of fewer others than the VM has vCPUs, unless the
    /// configuration requests it; and no reason counts isolated CPUs.
    #[test]
    fn isolated_cpus_are_no_room(mut vms in any_vms(), isolated in proptest::collection::vec(0..32u32, 0..31)) {
        let machine = machine_with(&isolated);
        let room = |nodes: &[NodeId]| -> usize {
            let is_free = |cpu: &&crate::Cpu| nodes.contains(&cpu.node) && !isolated.contains(&cpu.os_index);
            machine.cpus().iter().filter(is_free).count()
        };
        let decisions = follow(&mut Planner::new(HomeSettings::default()), &machine, &mut vms, 0..60);
        for Decision { nodes, reason, .. } in &decisions {
            for fact in &reason.facts {
                if let Fact::Asked { nodes: others, cpus, .. } = fact {
                    let others: Vec<_> = others.iter().map(|&node| NodeId(node)).collect();
                    prop_assert_eq!(*cpus, room(if others.is_empty() { nodes } else { &others }), "{}", reason);
                }
            }
        }
        for vm in &vms {
            let nodes = vm.home.as_ref().map_or(&[][..], |home| &home.nodes);
            prop_assert!(nodes.iter().all(|&node| room(&[node]) > 0), "{vm:?}");
            let is_requested = matches!(vm.request, HomeRequest::Nodes(_));
            prop_assert!(is_requested || nodes.is_empty() || room(nodes) >= vm.vcpus as usize, "{vm:?}");
        }
    }

    /// A VM that lives on isolated CPUs demands nothing of the others: homes are as if it did not exist.
    #[test]
    fn a_vm_on_isolated_cpus_takes_no_room(vms in any_vms(), confined in any_vm(), busy in 0.0..12.0f64) {
        let machine = machine_with(&[0, 1, 2, 3]);
        let all = |mut vms: Vec<VmView>| follow(&mut Planner::new(HomeSettings::default()), &machine, &mut vms, 0..50);
        let confined = VmView {
            id: 1000,
            vcpus: 0,
            demand: Some(busy),
            // Memory that it holds is still not free for others.
            resident_bytes: vec![0; NODES],
            request: HomeRequest::Exempt,
            home: None,
            ..confined
        };
        let with = [vms.clone(), vec![confined]].concat();
        prop_assert_eq!(all(with), all(vms));
    }

    /// The order of the VMs makes no difference.
    #[test]
    fn order_does_not_matter(vms in any_vms(), keys in proptest::collection::vec(any::<u32>(), 16)) {
        let machine = machine();
        let mut shuffled = vms.clone();
        shuffled.sort_by_key(|vm| keys[vm.id as usize]);
        let all = |mut vms: Vec<VmView>| {
            follow(&mut Planner::new(HomeSettings::default()), &machine, &mut vms, 0..50)
        };
        prop_assert_eq!(all(vms), all(shuffled));
    }

    /// `place` decides what a scan would decide first.
    #[test]
    fn placing_is_the_first_part_of_a_scan(vms in any_vms()) {
        let machine = machine();
        let mut planner = Planner::new(HomeSettings::default());
        let free_bytes = free(&machine, &vms);
        let view = View { machine: &machine, free_bytes: &free_bytes, vms: &vms, now_ns: 1_000 * SECOND };
        let placed = planner.place(&view);
        prop_assert_eq!(planner.plan(&view), placed);
    }

    /// The prediction for a VM before it starts is what happens when it has started, for several VMs in turn;
    /// and it is the best of all choices.
    #[test]
    fn a_newcomer_gets_the_predicted_home(
        mut vms in any_vms(),
        coming in proptest::collection::vec((1..40u32, 0..24u64), 1..4),
        (nodes, cores, threads) in (1..=NODES, 1..5u32, 1..3u32),
        isolated in proptest::collection::vec(0..32u32, 0..8),
    ) {
        let cpus = nodes as u32 * cores * threads;
        let builder = MachineBuilder::symmetric(nodes as u32, cores, threads).every_node(16 << 30, 10_000_000_000);
        let machine = builder.isolated(isolated.into_iter().filter(|cpu| *cpu < cpus - 1)).build().unwrap();
        vms.iter_mut().for_each(|vm| fit(vm, nodes));
        let planner = Planner::new(HomeSettings::default());
        let free_bytes = free(&machine, &vms);
        let now_ns = 1_000 * SECOND;
        let place = |vms: &mut Vec<VmView>| {
            for decision in planner.place(&View { machine: &machine, free_bytes: &free_bytes, vms, now_ns }) {
                let vm = vms.iter_mut().find(|vm| vm.id == decision.vm).unwrap();
                vm.home = (!decision.nodes.is_empty()).then_some(Home { nodes: decision.nodes, since_ns: now_ns });
            }
        };
        // The result is the same whether the others have their homes already.
        let before = vms.clone();
        place(&mut vms);
        let (vcpus, gib) = coming[0];
        let first = Request { vcpus, memory_bytes: gib << 30 };
        let tell = |vms: &[VmView], request| {
            planner.newcomer(&View { machine: &machine, free_bytes: &free_bytes, vms, now_ns }, request)
        };
        prop_assert_eq!(tell(&before, first), tell(&vms, first));
        for (id, (vcpus, gib)) in (100..).zip(coming) {
            let request = Request { vcpus, memory_bytes: gib << 30 };
            let told = tell(&vms, request);
            vms.push(VmView::starting(id, request, nodes));
            place(&mut vms);
            prop_assert_eq!(&told.vm.home, &vms.last().unwrap().home);
            prop_assert_eq!(told.choices.first().map(|choice| &choice.nodes), told.vm.home.as_ref().map(|home| &home.nodes));
            prop_assert_eq!(told.choices.len(), told.choice_count.min(CHOICES_MAX));
            let order = |choice: &Choice| (choice.pairs, (choice.lost.expected * MICRO).round() as i64);
            prop_assert!(told.choices.is_sorted_by(|a, b| {
                // The rounding of a difference is not that of its parts.
                order(a).0 < order(b).0 || order(a).0 == order(b).0 && order(a).1 <= order(b).1 + 1
            }), "{told:?}");
            for Loss { least, expected, most } in told.choices.iter().map(|choice| choice.lost) {
                prop_assert!(least <= expected && expected <= most, "{told:?}");
            }
        }
    }
}
