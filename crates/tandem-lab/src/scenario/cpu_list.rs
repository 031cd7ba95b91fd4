//! Lists of CPUs in words: "0-3,8", "node:0", "all".

use tandem_machine::cpumask::CpuMask;
use tandem_machine::ids::CpuId;
use tandem_machine::{Machine, parse_cpulist};

/// The CPUs of the machine that the list names, by the numbers of the operating system; at least one.
///
/// # Errors
/// A sentence, if the list is malformed, or names no CPU or one that the machine lacks.
pub fn parse(list: &str, machine: &Machine) -> Result<CpuMask, String> {
    let mut mask = CpuMask::empty(machine.cpu_count());
    for part in list.split(',').map(str::trim) {
        cpus_of_part(part, machine)?.into_iter().for_each(|cpu| mask.insert(cpu));
    }
    if mask.is_empty() {
        return Err(format!("`{list}` names no CPU; {}", allowed(machine)));
    }
    Ok(mask)
}

fn cpus_of_part(part: &str, machine: &Machine) -> Result<Vec<CpuId>, String> {
    let wrong = || format!("`{part}` names no CPUs of the machine; {}", allowed(machine));
    if part == "all" {
        return Ok(machine.all_cpus().iter().collect());
    }
    if let Some(number) = part.strip_prefix("node:") {
        let number: u32 = number.parse().map_err(|_| wrong())?;
        let node = machine.nodes().iter().find(|node| node.os_index == number).ok_or_else(wrong)?;
        return Ok(node.cpus.iter().collect());
    }
    let numbers = parse_cpulist(part).map_err(|_| wrong())?;
    numbers.into_iter().map(|number| machine.find_cpu(number).ok_or_else(wrong)).collect()
}

/// What a list may look like, for errors.
fn allowed(machine: &Machine) -> String {
    let nodes: Vec<_> = machine.nodes().iter().map(|node| format!("\"node:{}\"", node.os_index)).collect();
    format!(
        "allowed are numbers and ranges within \"{}\", {}, and \"all\"",
        machine.os_list(machine.all_cpus()),
        nodes.join(", "),
    )
}
