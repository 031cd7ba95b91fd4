//! `tandem topology`: what machine this is, as a drawing, as JSON, or as a machine file.

mod drawing;

use crate::machine_source::MachineSource;
use serde_json::{Value, json};
use std::io::Write;
use tandem_lab::machine_file::to_toml;
use tandem_machine::Machine;
use tandem_machine::ids::NodeId;
use tandemd::out::out;

const HELP: &str =
    "The drawing includes the CPUs that are online and usable, the cores, caches and packages that have such a \
    CPU, and all online NUMA nodes, even those without CPUs or without memory.

Values that neither /sys nor hwloc has (latencies, bandwidths, often the clock) are those of a generic server.

Examples:
  tandem topology
  tandem topology --machine xeon-e5620-2s
  tandem topology --machine 2x64x2
  tandem topology --hwloc host.xml --format toml > host.toml";

/// Which machine to show, and how.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    #[command(flatten)]
    machine: MachineSource,
    /// How to print it
    #[arg(long, value_enum, default_value_t = Format::Tree)]
    format: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// A drawing of at most 80 columns; equal neighbours are drawn once
    Tree,
    /// Counts (packages, numa_nodes, llcs, cores, pcpus), distances, and every part
    Json,
    /// A machine file
    Toml,
}

/// Reads the machine and prints it.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let machine = args.machine.load()?;
    let text = match args.format {
        Format::Tree => drawing::draw(&machine),
        Format::Json => format!("{:#}\n", to_json(&machine)),
        Format::Toml => to_toml(&machine),
    };
    out().write_all(text.as_bytes())?;
    Ok(())
}

fn to_json(machine: &Machine) -> Value {
    let ids = || (0..machine.node_count()).map(NodeId::from);
    let distances: Vec<Vec<u32>> =
        ids().map(|from| ids().map(|to| machine.distance(from, to)).collect()).collect();
    let nodes: Vec<Value> = machine
        .nodes()
        .iter()
        .map(|node| {
            json!({
                "number": node.os_index,
                "cpus": machine.os_list(&node.cpus),
                "memory_bytes": node.memory_bytes,
                "bandwidth_bytes_per_s": node.bandwidth_bytes_per_s,
            })
        })
        .collect();
    let llcs: Vec<Value> = machine
        .llcs()
        .iter()
        .map(|llc| json!({"cpus": machine.os_list(&llc.cpus), "size_bytes": llc.size_bytes}))
        .collect();
    let packages: Vec<Value> = machine
        .packages()
        .iter()
        .map(|package| json!({"number": package.os_index, "cpus": machine.os_list(&package.cpus)}))
        .collect();
    let hardware = machine.hardware();
    json!({
        "name": machine.name(),
        "packages": machine.packages().len(),
        "numa_nodes": machine.node_count(),
        "llcs": machine.llcs().len(),
        "cores": machine.cores().len(),
        "pcpus": machine.cpu_count(),
        "isolated": machine.os_list(machine.isolated()),
        "tickless": machine.os_list(machine.tickless()),
        "distances": distances,
        "package_list": packages,
        "node_list": nodes,
        "llc_list": llcs,
        "core_list": cores(machine),
        "hardware": {
            "clock_mhz": hardware.clock_mhz,
            "l2_bytes": hardware.l2_bytes,
            "llc_latency_ns": hardware.llc_latency_ns,
            "local_memory_latency_ns": hardware.local_memory_latency_ns,
            "remote_memory_latency_ns": hardware.remote_memory_latency_ns,
        },
    })
}

/// Each core; package and node by their numbers, the last-level cache by its place in `llc_list`.
fn cores(machine: &Machine) -> Vec<Value> {
    let one = |core: &tandem_machine::Core| {
        let cpu = machine.cpu(core.cpus.iter().next()?);
        Some(json!({
            "cpus": machine.os_list(&core.cpus),
            "package": machine.packages()[cpu.package.index()].os_index,
            "node": machine.nodes()[cpu.node.index()].os_index,
            "llc": cpu.llc.map(|llc| llc.0),
            "capacity_permille": cpu.capacity_permille,
        }))
    };
    machine.cores().iter().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tandem_machine::preset;

    #[test]
    fn json_counts_what_there_is() {
        let json = to_json(&preset("westmere-ex-4s").unwrap());
        let counts =
            ["packages", "numa_nodes", "llcs", "cores", "pcpus"].map(|key| json[key].as_u64().unwrap());
        assert_eq!(counts, [4, 4, 4, 40, 80]);
        assert_eq!(json["distances"][0], json!([10, 20, 20, 20]));
        assert_eq!(json["core_list"][1]["cpus"], "2-3");
        assert_eq!(json["node_list"][3]["cpus"], "60-79");
    }
}
