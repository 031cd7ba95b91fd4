//! By the rule of Xen's libxl: a machine whose only VMs are those of `--vm`.

use super::present::{PresentVm, wrong};
use super::{Answer, CANDIDATES_SHOWN, for_number, os_numbers};
use serde_json::{Value, json};
use tandem_file::units::Size;
use tandem_machine::Machine;
use tandem_machine::placement::{
    Candidate, DecidedBy, Occupancy, Placement, PlacementOutcome, Request, place,
};
use tandemd::error::BadInput;

/// Places `count` equal VMs, each of which then takes its room.
pub fn place_all(
    machine: &Machine,
    present: &[PresentVm],
    request: Request,
    count: u32,
) -> Result<Vec<Answer>, BadInput> {
    let mut occupancy = Occupancy::empty(machine);
    for (number, vm) in (1..).zip(present) {
        if vm.busy.is_some() {
            let error = "Xen's rule counts vCPUs and not how busy they are; leave out `busy`";
            return Err(wrong(number, error));
        }
        let nodes = vm.node_ids(machine, number)?;
        occupancy.add(vm.request, &nodes).map_err(|error| wrong(number, error))?;
    }
    let mut answers = Vec::new();
    for number in 1..=count {
        let no_room = |error: String| for_number(number, count, &error);
        let (nodes, answer) = match place(machine, &occupancy, request) {
            PlacementOutcome::Placed(placement) => {
                (placement.best().nodes.clone(), Answer::placed(machine, &placement))
            }
            PlacementOutcome::Skipped(reason) => {
                (Vec::new(), Answer::anywhere(format!("There is no choice: {reason}.")))
            }
            PlacementOutcome::NoCandidate(shortage) => return Err(no_room(shortage.to_string())),
        };
        occupancy.add(request, &nodes).map_err(|error| no_room(error.to_string()))?;
        answers.push(answer);
    }
    Ok(answers)
}

impl Answer {
    fn placed(machine: &Machine, placement: &Placement) -> Self {
        let candidates = placement.candidates();
        Self {
            nodes: os_numbers(machine, &placement.best().nodes),
            reason: reason(placement),
            candidate_count: candidates.len(),
            candidates: candidates
                .iter()
                .take(CANDIDATES_SHOWN)
                .map(|candidate| candidate_to_json(machine, candidate))
                .collect(),
        }
    }

    fn anywhere(reason: String) -> Self {
        Self { nodes: Vec::new(), reason, candidate_count: 0, candidates: Vec::new() }
    }
}

fn candidate_to_json(machine: &Machine, candidate: &Candidate) -> Value {
    json!({
        "nodes": os_numbers(machine, &candidate.nodes),
        "pcpus": candidate.pcpus,
        "runnable_vcpus": candidate.runnable_vcpus,
        "free_memory_bytes": candidate.free_memory_bytes,
    })
}

/// Why the best candidate is the best, as a sentence.
fn reason(placement: &Placement) -> String {
    let candidates = placement.candidates();
    let best = placement.best();
    let free = |candidate: &Candidate| Size { bytes: candidate.free_memory_bytes };
    let (set, sets) = match best.nodes.len() {
        1 => ("node".to_owned(), "nodes".to_owned()),
        count => (format!("set of {count} nodes"), format!("sets of {count} nodes")),
    };
    let vcpus = match best.runnable_vcpus {
        1 => "1 runnable vCPU".to_owned(),
        count => format!("{count} runnable vCPUs"),
    };
    let like_best = candidates.iter().filter(|other| other.runnable_vcpus == best.runnable_vcpus);
    match placement.decided_by() {
        DecidedBy::OnlyCandidate => format!("No other {set} has room for it."),
        DecidedBy::RunnableVcpus => format!(
            "Of {} {sets} with room it has the fewest runnable vCPUs: {}; the next has {}.",
            candidates.len(),
            best.runnable_vcpus,
            candidates[1].runnable_vcpus
        ),
        DecidedBy::FreeMemory => format!(
            "Of {} {sets} with room and {vcpus} each it has the most free memory: {}; the next has {}.",
            like_best.count(),
            free(best),
            free(&candidates[1])
        ),
        DecidedBy::NodeOrder => format!(
            "It is the first of {} equally good {sets}, with {vcpus} and {} free each.",
            like_best.filter(|other| other.free_memory_bytes == best.free_memory_bytes).count(),
            free(best)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::name_nodes;
    use super::super::present::parse_vm;
    use super::*;
    use tandem_machine::MachineBuilder;

    const GIB: u64 = 1 << 30;

    fn machine(nodes: u32) -> Machine {
        let builder = MachineBuilder::symmetric(nodes, 4, 1).every_node(8 * GIB, 1_000_000_000);
        builder.build().unwrap()
    }

    fn lines(nodes: u32, present: &[&str], vcpus: u32, memory_bytes: u64, count: u32) -> Vec<String> {
        let present: Vec<_> = present.iter().map(|text| parse_vm(text).unwrap()).collect();
        let request = Request { vcpus, memory_bytes };
        match place_all(&machine(nodes), &present, request, count) {
            Ok(answers) => answers
                .iter()
                .map(|answer| format!("{}. {}", name_nodes(&answer.nodes), answer.reason))
                .collect(),
            Err(error) => vec![error.to_string()],
        }
    }

    #[test]
    fn says_where_and_why() {
        #[rustfmt::skip]
        let cases: &[(u32, &[&str], u32, u64, &str)] = &[
            (1, &[], 2, GIB, "any node. There is no choice: the machine has one NUMA node."),
            (2, &[], 2, GIB, "node 0. It is the first of 2 equally good nodes, with 0 runnable vCPUs and 8 GiB free each."),
            (2, &["vcpus=2,memory=1GiB,nodes=0"], 2, GIB, "node 1. Of 2 nodes with room it has the fewest runnable vCPUs: 0; the next has 2."),
            (2, &["vcpus=2,memory=3GiB,nodes=0", "vcpus=2,memory=1GiB,nodes=1"], 2, GIB, "node 1. Of 2 nodes with room and 2 runnable vCPUs each it has the most free memory: 7 GiB; the next has 5 GiB."),
            (2, &[], 6, GIB, "nodes 0-1. No other set of 2 nodes has room for it."),
            (4, &["vcpus=1,memory=3GiB,nodes=0,2-3"], 6, GIB, "nodes 0-1. It is the first of 3 equally good sets of 2 nodes, with 1 runnable vCPU and 15 GiB free each."),
            (2, &[], 9, GIB, "the VM has 9 vCPUs, but the machine only 8 pCPUs"),
            (2, &["vcpus=1,memory=1.5GiB"], 1, 16 * GIB, "the VM needs 16384 MiB of memory, but the nodes with pCPUs have only 14848 MiB free"),
            (2, &["vcpus=1,memory=1GiB", "vcpus=1,memory=1GiB,nodes=2"], 1, GIB, "--vm number 2: the machine has no node 2; its nodes are 0-1"),
            (2, &["vcpus=1,memory=9GiB,nodes=0"], 1, GIB, "--vm number 1: 9216 MiB of memory do not fit on the nodes, which have 8192 MiB free"),
        ];
        for &(nodes, present, vcpus, memory_bytes, expected) in cases {
            assert_eq!(lines(nodes, present, vcpus, memory_bytes, 1), [expected], "{present:?}");
        }
    }

    #[test]
    fn isolated_cpus_are_no_room() {
        let machine = MachineBuilder::symmetric(2, 4, 1).isolated([0, 1, 2]).build().unwrap();
        let place = |vcpus| place_all(&machine, &[], Request { vcpus, memory_bytes: 0 }, 1);
        assert_eq!(place(2).unwrap()[0].nodes, [1]);
        assert_eq!(
            place(6).unwrap_err().to_string(),
            "the VM has 6 vCPUs, but the machine only 5 pCPUs that are not isolated"
        );
    }

    #[test]
    fn each_placed_vm_takes_its_room() {
        let lines = lines(2, &[], 2, 3 * GIB, 4);
        let nodes: Vec<_> = lines.iter().map(|line| line.split('.').next().unwrap()).collect();
        assert_eq!(nodes, ["node 0", "node 1", "node 0", "node 1"]);
        let full = self::lines(2, &[], 2, 3 * GIB, 6);
        assert_eq!(
            full,
            ["VM 6 of 6: the VM needs 3072 MiB of memory, but the nodes with pCPUs have only 1024 MiB free"]
        );
    }

    #[test]
    fn how_busy_a_vm_is_does_not_count() {
        let expected = "--vm number 1: Xen's rule counts vCPUs and not how busy they are; leave out `busy`";
        assert_eq!(lines(2, &["vcpus=2,memory=1GiB,busy=0"], 1, GIB, 1), [expected]);
    }
}
