//! `tandem place`: which NUMA nodes a new VM should live on, and why.
//!
//! On this host the planner that gives homes is shown the VMs which are there, and a new one beside them. On
//! a machine that is described, the VMs are those of `--vm`. Xen's rule is for comparisons.

mod planner;
mod present;
mod xen;

use crate::machine_source::MachineSource;
use present::{PresentVm, parse_vm};
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use tandem_file::units::Size;
use tandem_host::vms::VCPUS_MAX;
use tandem_machine::ids::NodeId;
use tandem_machine::placement::Request;
use tandem_machine::{Machine, format_cpulist};
use tandem_settings::Settings;
use tandemd::error::BadInput;
use tandemd::out::out;
use tandemd::text::to_json_text;

/// Candidates that the JSON output holds for each VM: the best ones.
const CANDIDATES_SHOWN: usize = 10;

const HELP: &str = "Without a machine option, it observes the VMs of this host for two seconds, as `tandem run --plan` does, and asks \
the planner for the home of a new VM. The other VMs have the homes that a running `tandem run` gave them, or else the planner's. What \
it cannot read is reported on standard error; root can read more.

Below each VM, the table lists the best candidate nodes. `CPUs lost` is the additional CPU time per second that all VMs together \
lose if the new VM runs there; its range covers programs that wait little and much for memory.

If no node has room, the exit status is 2.

JSON: an array with an object for each VM: vm (its number), nodes (none: it may run on any), reason, candidate_count, \
candidates, the best ten: nodes, pcpus, asked_cpus (the demand with this VM), free_memory_bytes, not_apart (VMs there from which the settings keep it apart), lost_cpus (least, expected, most). With Xen's \
rule, runnable_vcpus replaces asked_cpus, not_apart and lost_cpus.

Examples:
  tandem place --vcpus 4 --memory 8GiB
  tandem place --vcpus 4 --memory 8GiB --count 3 --config /etc/tandem/tandem.toml --format json
  tandem place --vcpus 4 --memory 2GiB --machine xeon-e5620-2s --vm vcpus=4,memory=1GiB,nodes=0,busy=0.5
  tandem place --vcpus 4 --memory 2GiB --machine xeon-e5620-2s --rule xen";

/// What to place, and where.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// vCPUs of the VM
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(VCPUS_MAX)))]
    vcpus: u32,
    /// Memory of the VM, with its unit, such as 2GiB
    #[arg(long, value_name = "SIZE")]
    memory: Size,
    #[command(flatten)]
    machine: MachineSource,
    /// Take another VM into account: on a described machine, one that runs there; on this host, one that
    /// starts before the new one. May be repeated. The VM may run on `nodes` (default: all); on a described
    /// machine its memory is spread evenly over them. It demands `busy` CPUs (default: one for each vCPU)
    #[arg(long = "vm", value_name = "vcpus=N,memory=SIZE[,nodes=LIST][,busy=CPUS]", value_parser = parse_vm)]
    vms: Vec<PresentVm>,
    /// Place this many equal VMs, one after another
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    count: u32,
    /// The rule that chooses the nodes
    #[arg(long, value_enum, default_value_t = Rule::Planner)]
    rule: Rule,
    /// The settings of `tandem run` on this host, for their exceptions [default: what
    /// `tandem run --print-config` prints]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["machine", "sysfs", "hwloc"])]
    config: Option<PathBuf>,
    /// Include VMs of this host that run without KVM
    #[arg(long, conflicts_with_all = ["machine", "sysfs", "hwloc"])]
    emulated: bool,
    /// How to print the nodes
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Rule {
    /// The planner of `tandem run`
    Planner,
    /// The rule of Xen's libxl, which counts vCPUs, on a machine whose only VMs are those of --vm
    Xen,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// A line for each VM, and with the planner's rule one for each of the best candidates
    Table,
    /// An array with an object for each VM; an empty list of nodes means any node
    Json,
}

/// Where a VM should go.
#[derive(Clone, Debug, PartialEq)]
struct Answer {
    /// The operating system's numbers of the nodes; none for any.
    nodes: Vec<u32>,
    reason: String,
    /// How many candidates there were.
    candidate_count: usize,
    /// The best of them.
    candidates: Vec<Value>,
}

/// Places the VMs and prints where they go.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let request = Request { vcpus: args.vcpus, memory_bytes: args.memory.bytes };
    let mut out = out();
    let answers = match args.rule {
        Rule::Xen if args.config.is_some() || args.emulated => {
            return Err(BadInput::new(
                "Xen's rule ignores the VMs of this host; leave out --config and --emulated",
            )
            .into());
        }
        Rule::Xen => {
            let answers = xen::place_all(&args.machine.load()?, &args.vms, request, args.count)?;
            if args.format == Format::Table {
                for (number, answer) in (1..).zip(&answers) {
                    writeln!(out, "VM {number}: {}. {}", name_nodes(&answer.nodes), answer.reason)?;
                }
            }
            answers
        }
        Rule::Planner => {
            let scene = scene(args)?;
            let newcomers = scene.place_all(request, args.count)?;
            if args.format == Format::Table {
                for (number, newcomer) in (1..).zip(&newcomers) {
                    out.write_all(planner::describe(&scene.machine, number, newcomer).as_bytes())?;
                }
            }
            newcomers.iter().map(|newcomer| planner::answer(&scene.machine, newcomer)).collect()
        }
    };
    if args.format == Format::Json {
        let vms: Vec<Value> = (1..).zip(answers).map(|(number, answer)| answer.to_json(number)).collect();
        out.write_all(to_json_text(&vms)?.as_bytes())?;
    }
    Ok(())
}

/// What the planner is shown.
fn scene(args: &Args) -> anyhow::Result<planner::Scene> {
    if !args.machine.is_this_machine() {
        return Ok(planner::Scene::described(args.machine.load()?, &args.vms)?);
    }
    let mut settings = match &args.config {
        Some(file) => Settings::read(file).map_err(BadInput::new)?,
        None => Settings::default(),
    };
    settings.agent.emulated |= args.emulated;
    let (scene, notes) =
        planner::Scene::of_host(Path::new("/"), &settings, &args.vms, tandemd::host_vms::OBSERVED)?;
    for note in notes {
        // Who reads it may be gone.
        let _ = writeln!(io::stderr(), "tandem: {note}");
    }
    Ok(scene)
}

impl Answer {
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

/// The error of one VM of so many.
fn for_number(number: u32, count: u32, error: &str) -> BadInput {
    match count {
        1 => BadInput::new(error),
        _ => BadInput::new(format!("VM {number} of {count}: {error}")),
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
