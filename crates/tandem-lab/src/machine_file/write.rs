//! Writes machine files.

use super::FULL_CAPACITY;
use std::fmt::{self, Write};
use tandem_file::units::{Bandwidth, Duration, Frequency, Size};
use tandem_machine::ids::NodeId;
use tandem_machine::{Cpu, Machine};

/// Cores on one line of a file.
const CORES_A_LINE: usize = 8;

/// The machine file of a machine; reading it gives the same machine again.
pub fn to_toml(machine: &Machine) -> String {
    let mut text = format!("name = {}\n", toml::Value::from(machine.name()));
    write_tables(machine, &mut text).expect("a string takes any text");
    text
}

fn write_tables(machine: &Machine, text: &mut String) -> fmt::Result {
    if !machine.isolated().is_empty() {
        writeln!(text, "isolated = \"{}\"", machine.os_list(machine.isolated()))?;
    }
    if !machine.tickless().is_empty() {
        writeln!(text, "tickless = \"{}\"", machine.os_list(machine.tickless()))?;
    }
    let hardware = machine.hardware();
    let hz = u64::from(hardware.clock_mhz) * 1_000_000;
    let ns = |ns: u32| Duration { ns: ns.into() };
    writeln!(text, "\n[hardware]")?;
    writeln!(text, "clock = \"{}\"", Frequency { hz })?;
    writeln!(text, "l2 = \"{}\"", size(hardware.l2_bytes))?;
    writeln!(text, "llc_latency = \"{}\"", ns(hardware.llc_latency_ns))?;
    let (local, remote) = (hardware.local_memory_latency_ns, hardware.remote_memory_latency_ns);
    writeln!(text, "local_memory_latency = \"{}\"", ns(local))?;
    writeln!(text, "remote_memory_latency = \"{}\"", ns(remote))?;

    let ids = || (0..machine.node_count()).map(NodeId::from);
    for (node, from) in machine.nodes().iter().zip(ids()) {
        writeln!(text, "\n[[node]]\nnumber = {}", node.os_index)?;
        if node.memory_bytes > 0 {
            let bytes_per_s = node.bandwidth_bytes_per_s;
            writeln!(text, "memory = \"{}\"", size(node.memory_bytes))?;
            writeln!(text, "bandwidth = \"{}\"", Bandwidth { bytes_per_s })?;
        }
        let row: Vec<String> = ids().map(|to| machine.distance(from, to).to_string()).collect();
        writeln!(text, "distances = [{}]", row.join(", "))?;
    }
    for (number, llc) in machine.llcs().iter().enumerate() {
        writeln!(text, "\n[[llc]]\nnumber = {number}")?;
        writeln!(text, "size = \"{}\"", size(llc.size_bytes))?;
    }
    core_groups(machine).iter().try_for_each(|group| group.write(machine, text))
}

fn size(bytes: u64) -> Size {
    Size { bytes }
}

/// Cores that share package, node, cache and capacity.
struct CoreGroup<'a> {
    shared: &'a Cpu,
    /// The CPUs of each core, as lists in quotes.
    cores: Vec<String>,
}

impl CoreGroup<'_> {
    fn write(&self, machine: &Machine, text: &mut String) -> fmt::Result {
        let cpu = self.shared;
        let package = &machine.packages()[cpu.package.index()];
        let node = &machine.nodes()[cpu.node.index()];
        writeln!(text, "\n[[cores]]\npackage = {}\nnode = {}", package.os_index, node.os_index)?;
        if let Some(llc) = cpu.llc {
            writeln!(text, "llc = {}", llc.0)?;
        }
        if cpu.capacity_permille != FULL_CAPACITY {
            writeln!(text, "capacity = {}", cpu.capacity_permille)?;
        }
        let lines: Vec<String> = self.cores.chunks(CORES_A_LINE).map(|line| line.join(", ")).collect();
        match &lines[..] {
            [line] => writeln!(text, "cpus = [{line}]"),
            _ => writeln!(text, "cpus = [\n    {},\n]", lines.join(",\n    ")),
        }
    }
}

fn core_groups(machine: &Machine) -> Vec<CoreGroup<'_>> {
    let mut groups: Vec<CoreGroup<'_>> = Vec::new();
    for core in machine.cores() {
        let Some(first) = core.cpus.iter().next() else {
            continue;
        };
        let cpu = machine.cpu(first);
        let key = |cpu: &Cpu| (cpu.package, cpu.node, cpu.llc, cpu.capacity_permille);
        let list = format!("\"{}\"", machine.os_list(&core.cpus));
        match groups.iter_mut().rev().find(|group| key(group.shared) == key(cpu)) {
            Some(group) => group.cores.push(list),
            None => groups.push(CoreGroup { shared: cpu, cores: vec![list] }),
        }
    }
    groups
}
