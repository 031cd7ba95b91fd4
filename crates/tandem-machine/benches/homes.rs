//! Speed of the planner of homes: the time to place 200 VMs from nothing on machines with several nodes, and
//! of each scan afterwards. Each figure is the best of several rounds.

use std::hint::black_box;
use std::time::{Duration, Instant};
use tandem_machine::MachineBuilder;
use tandem_machine::homes::{Home, HomeRequest, HomeSettings, Planner, View, VmView};

const VMS: u64 = 200;
const NODES: [u32; 4] = [2, 4, 8, 16];
const ROUNDS: usize = 7;
const GIB: u64 = 1 << 30;

fn main() {
    println!("{:>5} {:>5} {:>10} {:>10}", "nodes", "VMs", "place, ms", "look, ms");
    for nodes in NODES {
        let machine = MachineBuilder::symmetric(nodes, 32, 2).every_node(512 * GIB, 100_000_000_000).build();
        let machine = machine.expect("a regular machine");
        let free_bytes = vec![512 * GIB; nodes as usize];
        let mut vms: Vec<VmView> = (0..VMS).map(|id| vm(id, nodes as usize)).collect();
        let mut planner = Planner::new(HomeSettings::default());
        let mut place = Duration::MAX;
        let mut placed = Vec::new();
        for _ in 0..ROUNDS {
            let start = Instant::now();
            let view = View { machine: &machine, free_bytes: &free_bytes, vms: &vms, now_ns: 0 };
            placed = black_box(planner.place(&view));
            place = place.min(start.elapsed());
        }
        for decision in placed {
            vms[decision.vm as usize].home = Some(Home { nodes: decision.nodes, since_ns: 0 });
        }
        let mut look = Duration::MAX;
        for round in 1..=ROUNDS as u64 {
            let start = Instant::now();
            let now_ns = round * 1_000_000_000_000;
            let view = View { machine: &machine, free_bytes: &free_bytes, vms: &vms, now_ns };
            black_box(planner.plan(&view));
            look = look.min(start.elapsed());
        }
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        println!("{nodes:>5} {VMS:>5} {:>10.2} {:>10.2}", ms(place), ms(look));
    }
}

/// VMs of 1 to 16 vCPUs; every tenth is larger than a node.
fn vm(id: u64, nodes: usize) -> VmView {
    let vcpus = if id.is_multiple_of(10) { 96 } else { 1 + id as u32 % 16 };
    VmView {
        id,
        vcpus,
        memory_bytes: u64::from(vcpus) * GIB / 4,
        resident_bytes: vec![0; nodes],
        demand: Some(f64::from(vcpus) * (id % 7) as f64 / 7.0),
        allowed: vec![],
        devices: vec![],
        request: HomeRequest::Any,
        home: None,
        part: None,
    }
}
