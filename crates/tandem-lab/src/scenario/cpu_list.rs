//! Lists of CPUs in words: "0-3,8", "node:0", "all".

use tandem_sim::cpumask::CpuMask;
use tandem_sim::ids::CpuId;
use tandem_sim::machine::Machine;

/// What a list may look like, for errors.
const ALLOWED: &str =
    "allowed are numbers and ranges such as \"0-3,8\", nodes such as \"node:0\", and \"all\"";

/// The CPUs of the machine that the list names, by the numbers of the operating system.
///
/// # Errors
/// A sentence, if the list is malformed or names a CPU or a node that the machine has not.
pub fn parse(list: &str, machine: &Machine) -> Result<CpuMask, String> {
    let mut mask = CpuMask::empty(machine.cpus().len());
    for part in list.split(',').map(str::trim) {
        let cpus = parse_part(part, machine)?;
        cpus.into_iter().for_each(|cpu| mask.insert(cpu));
    }
    Ok(mask)
}

fn parse_part(part: &str, machine: &Machine) -> Result<Vec<CpuId>, String> {
    let malformed = || format!("`{part}` is not a list of CPUs; {ALLOWED}");
    if part == "all" {
        return Ok((0..machine.cpus().len()).map(CpuId::from).collect());
    }
    if let Some(number) = part.strip_prefix("node:") {
        let number: u32 = number.parse().map_err(|_| malformed())?;
        let node = machine.nodes().iter().find(|node| node.os_index == number);
        return node.map(|node| node.cpus.iter().collect()).ok_or_else(|| {
            let nodes: Vec<_> = machine
                .nodes()
                .iter()
                .map(|node| node.os_index.to_string())
                .collect();
            format!(
                "the machine has no node {number}; its nodes are {}",
                nodes.join(", ")
            )
        });
    }
    let (first, last) = part.split_once('-').unwrap_or((part, part));
    let first: u32 = first.parse().map_err(|_| malformed())?;
    let last: u32 = last.parse().map_err(|_| malformed())?;
    if first > last {
        return Err(malformed());
    }
    let named: Vec<_> = (0..machine.cpus().len())
        .filter(|&cpu| (first..=last).contains(&machine.cpus()[cpu].os_index))
        .map(CpuId::from)
        .collect();
    if named.len() as u64 != u64::from(last - first) + 1 {
        let highest = machine.cpus().iter().map(|cpu| cpu.os_index).max().unwrap_or(0);
        return Err(format!(
            "`{part}` names a CPU that the machine has not; its {} CPUs are numbered up to {highest}",
            machine.cpus().len(),
        ));
    }
    Ok(named)
}
