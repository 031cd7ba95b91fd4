//! The VMs of `--vm`.

use tandem_file::units::Size;
use tandem_host::vms::VCPUS_MAX;
use tandem_machine::ids::NodeId;
use tandem_machine::placement::Request;
use tandem_machine::{Machine, format_cpulist, parse_cpulist};
use tandemd::error::BadInput;

/// A VM that runs already, or starts before the new ones.
#[derive(Clone, Debug, PartialEq)]
pub struct PresentVm {
    pub request: Request,
    /// The operating system's numbers of the nodes that it may use; none for all.
    pub nodes: Vec<u32>,
    /// CPUs that it asks for, if that is known.
    pub busy: Option<f64>,
}

impl PresentVm {
    /// The nodes that it may use; none for all. `number` is its place among the options.
    pub fn node_ids(&self, machine: &Machine, number: usize) -> Result<Vec<NodeId>, BadInput> {
        let nodes: Result<Vec<NodeId>, String> =
            self.nodes.iter().map(|&node| find_node(machine, node)).collect();
        nodes.map_err(|error| wrong(number, error))
    }
}

/// The error of the `--vm` in that place.
pub fn wrong(number: usize, error: impl std::fmt::Display) -> BadInput {
    BadInput::new(format!("--vm number {number}: {error}"))
}

fn find_node(machine: &Machine, number: u32) -> Result<NodeId, String> {
    let numbers = || machine.nodes().iter().map(|node| node.os_index);
    match numbers().position(|known| known == number) {
        Some(index) => Ok(NodeId::from(index)),
        None => Err(format!("the machine has no node {number}; its nodes are {}", format_cpulist(numbers()))),
    }
}

/// Reads `vcpus=2,memory=960MiB,nodes=0-1,3`. A part without `=` goes on with the list before it.
pub fn parse_vm(text: &str) -> Result<PresentVm, String> {
    let (mut vcpus, mut memory, mut nodes, mut busy) = (None, None, None, None);
    let mut rest = text;
    while !rest.is_empty() {
        let (key, value) = rest.split_once('=').ok_or_else(|| {
            format!("`{rest}` is no KEY=VALUE; allowed keys are vcpus, memory, nodes and busy")
        })?;
        // The value ends at the last comma before the next key.
        let end = match value.find('=') {
            Some(next) => value[..next].rfind(',').unwrap_or(next),
            None => value.len(),
        };
        let slot = match key {
            "vcpus" => &mut vcpus,
            "memory" => &mut memory,
            "nodes" => &mut nodes,
            "busy" => &mut busy,
            _ => {
                return Err(format!("unknown key `{key}`; allowed are vcpus, memory, nodes and busy"));
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
    let vcpus = match vcpus.parse() {
        Ok(vcpus @ 1..=VCPUS_MAX) => vcpus,
        _ => return Err(format!("vcpus: `{vcpus}` is no number from 1 to {VCPUS_MAX}")),
    };
    let parse_busy = |text: &str| match text.parse() {
        Ok(busy) if (0.0..=f64::from(vcpus)).contains(&busy) => Ok(busy),
        _ => Err(format!("busy: `{text}` is no number of CPUs from 0 to its {vcpus} vCPUs")),
    };
    Ok(PresentVm {
        request: Request { vcpus, memory_bytes: memory.bytes },
        nodes: parse_cpulist(nodes.unwrap_or("")).map_err(|error| format!("nodes: {error}"))?,
        busy: busy.map(parse_busy).transpose()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn reads_vms() {
        let vm = |vcpus, memory_bytes, nodes: &[u32]| {
            Ok(PresentVm { request: Request { vcpus, memory_bytes }, nodes: nodes.to_vec(), busy: None })
        };
        assert_eq!(parse_vm("vcpus=2,memory=960MiB,nodes=0"), vm(2, 960 << 20, &[0]));
        assert_eq!(parse_vm("nodes=0-1,3,memory=1 GiB,vcpus=4"), vm(4, GIB, &[0, 1, 3]));
        assert_eq!(parse_vm("vcpus=1,memory=0 B"), vm(1, 0, &[]));
        let busy = parse_vm("vcpus=4,busy=0.5,nodes=0,2,memory=1GiB").unwrap();
        assert_eq!((busy.busy, busy.nodes), (Some(0.5), vec![0, 2]));
    }

    #[test]
    fn says_what_is_wrong_with_a_vm() {
        #[rustfmt::skip]
        let cases = [
            ("", "vcpus=N is missing"),
            ("vcpus=1", "memory=SIZE is missing"),
            ("two", "`two` is no KEY=VALUE; allowed keys are vcpus, memory, nodes and busy"),
            ("cpus=1,memory=1GiB", "unknown key `cpus`; allowed are vcpus, memory, nodes and busy"),
            ("vcpus=0,memory=1GiB", "vcpus: `0` is no number from 1 to 4096"),
            ("vcpus=1,vcpus=2,memory=1GiB", "`vcpus` is given twice"),
            ("vcpus==1,memory=1GiB", "unknown key ``; allowed are vcpus, memory, nodes and busy"),
            ("vcpus=2,memory=1GiB,busy=2.5", "busy: `2.5` is no number of CPUs from 0 to its 2 vCPUs"),
            ("vcpus=2,memory=1GiB,busy=-1", "busy: `-1` is no number of CPUs from 0 to its 2 vCPUs"),
            ("vcpus=2,memory=1GiB,busy=nan", "busy: `nan` is no number of CPUs from 0 to its 2 vCPUs"),
        ];
        for (text, message) in cases {
            assert_eq!(parse_vm(text), Err(message.to_owned()), "{text}");
        }
        assert!(parse_vm("vcpus=1,memory=960").unwrap_err().contains("has no unit"));
        assert!(parse_vm("vcpus=1,memory=1GiB,nodes=x").unwrap_err().starts_with("nodes: "));
    }
}
