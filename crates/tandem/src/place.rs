//! `tandem place`: which NUMA nodes a new VM should live on, and why.

use crate::error::BadInput;
use crate::machine_source::MachineSource;
use crate::text::to_json_text;
use serde_json::{Value, json};
use std::io::{self, Write};
use tandem_file::units::Size;
use tandem_sim::ids::NodeId;
use tandem_sim::machine::{Machine, format_cpulist, parse_cpulist};
use tandem_sim::placement::{Candidate, DecidedBy, Occupancy, Placement, PlacementOutcome, Request, place};

/// Candidates that the JSON output holds for each VM: the best ones.
const CANDIDATES_SHOWN: usize = 10;

const EXAMPLES: &str = "Examples:
  tandem place --vcpus 4 --memory 2GiB --machine xeon-e5620-2s
  tandem place --vcpus 2 --memory 960MiB --count 6 --machine xeon-e5620-2s --format json
  tandem place --vcpus 8 --memory 16GiB --vm vcpus=4,memory=8GiB,nodes=0 --vm vcpus=2,memory=1GiB";

/// What to place, and where.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// vCPUs of the VM
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    vcpus: u32,
    /// Memory of the VM, with its unit, such as 2GiB
    #[arg(long, value_name = "SIZE")]
    memory: Size,
    #[command(flatten)]
    machine: MachineSource,
    /// A VM that is already there; repeat it for each. Its memory lies evenly on the nodes that it may run on
    /// (without `nodes`: on all)
    #[arg(long = "vm", value_name = "vcpus=N,memory=SIZE[,nodes=LIST]", value_parser = parse_vm)]
    vms: Vec<PresentVm>,
    /// Place this many such VMs, one after another
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    count: u32,
    /// How to print the nodes
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// A line for each VM
    Table,
    /// An array with an object for each VM; no nodes mean that it may run on any
    Json,
}

/// A VM that is already there.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PresentVm {
    request: Request,
    /// The operating system's numbers of its nodes; none for all.
    nodes: Vec<u32>,
}

/// Where a VM should go.
#[derive(Clone, Debug, PartialEq)]
struct Answer {
    /// The operating system's numbers of the nodes; none for any.
    nodes: Vec<u32>,
    /// A sentence.
    reason: String,
    /// How many candidates there were.
    candidate_count: usize,
    /// The best of them.
    candidates: Vec<Value>,
}

/// Places the VMs and prints where they go.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let machine = args.machine.load()?;
    let request = Request { vcpus: args.vcpus, memory_bytes: args.memory.bytes };
    let answers = place_all(&machine, &args.vms, request, args.count)?;
    let mut out = io::stdout().lock();
    match args.format {
        Format::Table => {
            for (number, answer) in (1..).zip(&answers) {
                writeln!(out, "VM {number}: {}. {}", name_nodes(&answer.nodes), answer.reason)?;
            }
        }
        Format::Json => {
            let vms: Vec<Value> = (1..).zip(answers).map(|(number, answer)| answer.to_json(number)).collect();
            out.write_all(to_json_text(&vms)?.as_bytes())?;
        }
    }
    Ok(())
}

/// Places `count` equal VMs, each of which then takes its room.
fn place_all(
    machine: &Machine,
    present: &[PresentVm],
    request: Request,
    count: u32,
) -> Result<Vec<Answer>, BadInput> {
    let mut occupancy = Occupancy::empty(machine);
    for (number, vm) in (1..).zip(present) {
        let wrong = |error: String| BadInput::new(format!("--vm number {number}: {error}"));
        let nodes: Result<Vec<NodeId>, String> =
            vm.nodes.iter().map(|&node| find_node(machine, node)).collect();
        let nodes = nodes.map_err(wrong)?;
        occupancy.add(vm.request, &nodes).map_err(|error| wrong(error.to_string()))?;
    }
    let mut answers = Vec::new();
    for number in 1..=count {
        let no_room = |error: String| match count {
            1 => BadInput::new(error),
            _ => BadInput::new(format!("VM {number} of {count}: {error}")),
        };
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

    fn to_json(&self, number: u32) -> Value {
        json!({
            "vm": number,
            "nodes": self.nodes,
            "reason": self.reason,
            "candidate_count": self.candidate_count,
            "candidates": self.candidates,
        })
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

fn name_nodes(nodes: &[u32]) -> String {
    let list = format_cpulist(nodes.iter().copied());
    match nodes.len() {
        0 => "any node".to_owned(),
        1 => format!("node {list}"),
        _ => format!("nodes {list}"),
    }
}

fn os_numbers(machine: &Machine, nodes: &[NodeId]) -> Vec<u32> {
    nodes.iter().map(|node| machine.nodes()[node.index()].os_index).collect()
}

fn find_node(machine: &Machine, number: u32) -> Result<NodeId, String> {
    let numbers = || machine.nodes().iter().map(|node| node.os_index);
    match numbers().position(|known| known == number) {
        Some(index) => Ok(NodeId::from(index)),
        None => Err(format!("the machine has no node {number}; its nodes are {}", format_cpulist(numbers()))),
    }
}

/// Reads `vcpus=2,memory=960MiB,nodes=0-1,3`. A part without `=` goes on with the list before it.
fn parse_vm(text: &str) -> Result<PresentVm, String> {
    let (mut vcpus, mut memory, mut nodes) = (None, None, None);
    let mut rest = text;
    while !rest.is_empty() {
        let (key, value) = rest
            .split_once('=')
            .ok_or_else(|| format!("`{rest}` is no KEY=VALUE; allowed keys are vcpus, memory and nodes"))?;
        // The value ends at the last comma before the next key.
        let end = match value.find('=') {
            Some(next) => value[..next].rfind(',').unwrap_or(next),
            None => value.len(),
        };
        let slot = match key {
            "vcpus" => &mut vcpus,
            "memory" => &mut memory,
            "nodes" => &mut nodes,
            _ => {
                return Err(format!("unknown key `{key}`; allowed are vcpus, memory and nodes"));
            }
        };
        if slot.replace(&value[..end]).is_some() {
            return Err(format!("`{key}` is given twice"));
        }
        rest = value[end..].trim_start_matches(',');
    }
    let vcpus = vcpus.ok_or("vcpus=N is missing")?;
    let memory = memory.ok_or("memory=SIZE is missing")?;
    let memory: Size = memory.parse().map_err(|error| format!("memory: {error}"))?;
    Ok(PresentVm {
        request: Request {
            vcpus: match vcpus.parse() {
                Ok(vcpus @ 1..) => vcpus,
                _ => return Err(format!("vcpus: `{vcpus}` is no number from 1 to {}", u32::MAX)),
            },
            memory_bytes: memory.bytes,
        },
        nodes: parse_cpulist(nodes.unwrap_or("")).map_err(|error| format!("nodes: {error}"))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tandem_sim::machine::MachineBuilder;

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
    fn reads_vms() {
        let vm = |vcpus, memory_bytes, nodes: &[u32]| {
            Ok(PresentVm { request: Request { vcpus, memory_bytes }, nodes: nodes.to_vec() })
        };
        assert_eq!(parse_vm("vcpus=2,memory=960MiB,nodes=0"), vm(2, 960 << 20, &[0]));
        assert_eq!(parse_vm("nodes=0-1,3,memory=1 GiB,vcpus=4"), vm(4, GIB, &[0, 1, 3]));
        assert_eq!(parse_vm("vcpus=1,memory=0 B"), vm(1, 0, &[]));
    }

    #[test]
    fn says_what_is_wrong_with_a_vm() {
        #[rustfmt::skip]
        let cases = [
            ("", "vcpus=N is missing"),
            ("vcpus=1", "memory=SIZE is missing"),
            ("two", "`two` is no KEY=VALUE; allowed keys are vcpus, memory and nodes"),
            ("cpus=1,memory=1GiB", "unknown key `cpus`; allowed are vcpus, memory and nodes"),
            ("vcpus=0,memory=1GiB", "vcpus: `0` is no number from 1 to 4294967295"),
            ("vcpus=1,vcpus=2,memory=1GiB", "`vcpus` is given twice"),
            ("vcpus==1,memory=1GiB", "unknown key ``; allowed are vcpus, memory and nodes"),
        ];
        for (text, message) in cases {
            assert_eq!(parse_vm(text), Err(message.to_owned()), "{text}");
        }
        assert!(parse_vm("vcpus=1,memory=960").unwrap_err().contains("has no unit"));
        assert!(parse_vm("vcpus=1,memory=1GiB,nodes=x").unwrap_err().starts_with("nodes: "));
    }
}
