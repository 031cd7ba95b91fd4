//! Virtual NUMA nodes: which vCPUs are near which memory, according to a monitor's command line.
//!
//! - QEMU's `-numa node,nodeid=0,cpus=0-3,memdev=ram-node0`, with `cpus` several times or `mem=2G` instead of
//!   `memdev` in old ones, and `-numa cpu,node-id=0,socket-id=0,core-id=1`, which names vCPUs by their place
//!   in `-smp` (QEMU's `qapi/machine.json`; the number of a vCPU is its place in the order of sockets, dies,
//!   clusters, modules, cores, threads, as in `hw/i386/x86-common.c` and `hw/arm/virt.c`). A backend's
//!   `host-nodes` with the policy `bind` or `preferred` is where its memory lies.
//! - Cloud Hypervisor's `--numa guest_numa_id=0,cpus=[0-1],memory_zones=[mem0]`, and `host_numa_node` of a
//!   `--memory-zone` (its `docs/memory.md`).
//!
//! Limits: where `-smp` does not give the numbers of sockets and cores, which releases of QEMU choose
//! differently, places identify no vCPU. For a node that names no vCPUs, the machine's type decides, and this
//! module does not guess.

use super::options::{Parts, size_bytes};
use std::collections::{BTreeMap, HashMap};

/// Most vCPUs of a VM: KVM's limit on x86, the highest of all architectures (`KVM_MAX_VCPUS`).
pub const VCPUS_MAX: u32 = 4096;

/// Most virtual nodes of a VM: QEMU's limit (`MAX_NODES`); Cloud Hypervisor counts to 255.
pub(super) const NODES_MAX: u32 = 256;

/// Exclusive limit on the numbers of host nodes that are accepted: that of Linux (`CONFIG_NODES_SHIFT` is 10
/// at most).
const HOST_NODES_MAX: u32 = 1024;

/// A virtual node that has vCPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VirtualNode {
    /// Its number in the guest.
    pub number: u32,
    /// The numbers of its vCPUs, in ascending order; no other node has them.
    pub vcpus: Vec<u32>,
    /// Its memory, bytes; `None` if the command line does not give it.
    pub memory_bytes: Option<u64>,
    /// Nodes of the host to which its memory is bound, by the operating system's numbers, in ascending order;
    /// empty if it is not bound.
    pub host_nodes: Vec<u32>,
}

/// The size and binding of a piece of memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Backend {
    pub bytes: Option<u64>,
    pub host_nodes: Vec<u32>,
}

impl Backend {
    /// Of a QEMU `memory-backend-*`.
    pub fn of_qemu(object: &Parts) -> Self {
        let is_bound = matches!(object.get("policy"), Some("bind" | "preferred"));
        // `host-nodes=0-1`, `"host-nodes":[0,1]`, or `host-nodes.0 = "0"` in a file.
        let lists = object.all("host-nodes").chain(object.get("host-nodes.0"));
        let host_nodes = if is_bound { numbers(lists, HOST_NODES_MAX) } else { Vec::new() };
        Self { bytes: object.get("size").and_then(|size| size_bytes(size, 1)), host_nodes }
    }
}

/// Collects what the command line says about nodes, within the limits above.
#[derive(Debug, Default)]
pub(super) struct Collector {
    /// The node of each vCPU: the first one that names it.
    node_of: BTreeMap<u32, u32>,
    memory: BTreeMap<u32, Backend>,
}

impl Collector {
    /// Adds vCPUs to a node, as lists such as `0-3`.
    pub fn vcpus<'a>(&mut self, node: u32, lists: impl IntoIterator<Item = &'a str>) {
        if node < NODES_MAX {
            for vcpu in numbers(lists, VCPUS_MAX) {
                self.node_of.entry(vcpu).or_insert(node);
            }
        }
    }

    /// Adds memory to a node.
    pub fn memory(&mut self, node: u32, backend: &Backend) {
        if node < NODES_MAX {
            let all = self.memory.entry(node).or_default();
            let bytes = all.bytes.unwrap_or(0).saturating_add(backend.bytes.unwrap_or(0));
            all.bytes = (bytes > 0).then_some(bytes);
            all.host_nodes.extend(&backend.host_nodes);
        }
    }

    /// The nodes that have vCPUs, in the order of their numbers.
    pub fn nodes(mut self) -> Vec<VirtualNode> {
        let mut nodes = BTreeMap::new();
        for (vcpu, number) in self.node_of {
            let new = || {
                let Backend { bytes, mut host_nodes } = self.memory.remove(&number).unwrap_or_default();
                host_nodes.sort_unstable();
                host_nodes.dedup();
                VirtualNode { number, vcpus: Vec::new(), memory_bytes: bytes, host_nodes }
            };
            nodes.entry(number).or_insert_with(new).vcpus.push(vcpu);
        }
        nodes.into_values().collect()
    }
}

/// Levels of QEMU's topology, the widest first, with the key that names a place at each level.
const LEVELS: [(&str, &str); 6] = [
    ("sockets", "socket-id"),
    ("dies", "die-id"),
    ("clusters", "cluster-id"),
    ("modules", "module-id"),
    ("cores", "core-id"),
    ("threads", "thread-id"),
];

/// The virtual nodes of a QEMU, from its options `-numa` and `-smp` and its memory backends.
pub(super) fn of_qemu(
    numa: &[Parts],
    smp: Option<&Parts>,
    backends: &HashMap<&str, Backend>,
) -> Vec<VirtualNode> {
    let mut collector = Collector::default();
    let is = |kind: &'static str| move |parts: &&Parts| parts.first_or("type") == Some(kind);
    let number = |parts: &Parts, key: &str| parts.get(key)?.parse::<u32>().ok();
    // A node without a number has the next one.
    let mut next = 0;
    for parts in numa.iter().filter(is("node")).take(NODES_MAX as usize) {
        let node = number(parts, "nodeid").unwrap_or(next);
        next = node.saturating_add(1);
        collector.vcpus(node, parts.all("cpus"));
        if let Some(backend) = parts.get("memdev").and_then(|id| backends.get(id)) {
            collector.memory(node, backend);
        } else if let Some(bytes) = parts.get("mem").and_then(|size| size_bytes(size, 1 << 20)) {
            collector.memory(node, &Backend { bytes: Some(bytes), host_nodes: Vec::new() });
        }
    }
    let Some(levels) = smp.and_then(levels) else { return collector.nodes() };
    // The vCPUs that no option has named yet: each option either takes some of them, or ends soon.
    let all = levels.iter().product::<u32>();
    let mut left: Vec<u32> = (0..all).collect();
    for parts in numa.iter().filter(is("cpu")).take(VCPUS_MAX as usize) {
        let Some(node) = number(parts, "node-id").filter(|&node| node < NODES_MAX) else { continue };
        let wanted = LEVELS.map(|(_, key)| number(parts, key));
        if levels.iter().zip(wanted).any(|(&count, wanted)| wanted.is_some_and(|wanted| wanted >= count)) {
            continue;
        }
        left.retain(|&vcpu| {
            let mut rest = vcpu;
            let mut levels = levels.iter().zip(wanted).rev();
            let is_it = levels.all(|(&count, wanted)| {
                let place = rest % count;
                rest /= count;
                wanted.is_none_or(|wanted| wanted == place)
            });
            if is_it {
                collector.node_of.entry(vcpu).or_insert(node);
            }
            !is_it
        });
    }
    collector.nodes()
}

/// How many of each level are within one of the level above; `None` if `-smp` does not give it, or the
/// product is too large.
fn levels(smp: &Parts) -> Option<[u32; 6]> {
    let mut levels = [1; 6];
    let mut missing = None;
    for (at, (key, _)) in LEVELS.iter().enumerate() {
        match smp.get(key).map(|count| count.parse::<u32>().ok().filter(|&count| count > 0)) {
            Some(count) => levels[at] = count?,
            None if matches!(*key, "sockets" | "cores") && missing.replace(at).is_some() => return None,
            None => {}
        }
    }
    let known = levels.iter().try_fold(1u32, |all, &count| all.checked_mul(count))?;
    if let Some(missing) = missing {
        let all = smp.get("maxcpus").or(smp.first_or("cpus"))?.parse::<u32>().ok()?;
        levels[missing] = (all / known).max(1);
    }
    let all = levels.iter().try_fold(1u32, |all, &count| all.checked_mul(count))?;
    (all <= VCPUS_MAX).then_some(levels)
}

/// The numbers in lists such as `0-3`, `5` or `[0-1,3]` that are below a limit, in ascending order.
fn numbers<'a>(lists: impl IntoIterator<Item = &'a str>, limit: u32) -> Vec<u32> {
    let mut are_in = vec![false; limit as usize];
    let inner = |list: &'a str| list.trim_start_matches('[').trim_end_matches(']').split(',');
    for range in lists.into_iter().flat_map(inner) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        if let (Ok(first), Ok(last)) = (first.trim().parse::<usize>(), last.trim().parse::<usize>())
            && first < are_in.len()
            && first <= last
        {
            // Texts are long: a range must not cost more than some bytes.
            let end = last.min(are_in.len() - 1);
            are_in[first..=end].fill(true);
        }
    }
    (0..limit).filter(|&number| are_in[number as usize]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn qemu(numa: &[&str], smp: Option<&str>) -> Vec<(u32, Vec<u32>)> {
        let numa: Vec<Parts> = numa.iter().map(|text| Parts::parse(text)).collect();
        let smp = smp.map(Parts::parse);
        let nodes = of_qemu(&numa, smp.as_ref(), &HashMap::new());
        nodes.into_iter().map(|node| (node.number, node.vcpus)).collect()
    }

    #[test]
    fn ranges_of_cpus() {
        let nodes =
            qemu(&["node,nodeid=1,cpus=2-3,cpus=5", "node,cpus=4", "node,nodeid=0,cpus=0-2,cpus=x"], None);
        assert_eq!(nodes, [(0, vec![0, 1]), (1, vec![2, 3, 5]), (2, vec![4])]);
        assert_eq!(qemu(&["node,nodeid=0", "node,nodeid=1", "dist,src=0,dst=1,val=20"], Some("4")), []);
    }

    #[test]
    fn places_of_cpus() {
        let sockets =
            ["node,nodeid=0", "node,nodeid=1", "cpu,node-id=0,socket-id=0", "cpu,node-id=1,socket-id=1"];
        let expected = [(0, vec![0, 1, 2, 3]), (1, vec![4, 5, 6, 7])];
        for smp in [
            "8,sockets=2,dies=1,clusters=1,cores=2,threads=2",
            "4,maxcpus=8,cores=2,threads=2",
            "cpus=8,sockets=2,threads=2",
            "8,sockets=2,cores=4",
        ] {
            assert_eq!(qemu(&sockets, Some(smp)), expected, "{smp}");
        }
        for smp in [
            None,
            Some("8"),
            Some("8,threads=2"),
            Some("8,sockets=0,cores=4"),
            Some("8,sockets=9999,cores=9999"),
        ] {
            assert_eq!(qemu(&sockets, smp), [], "{smp:?}");
        }
        let cores =
            ["cpu,node-id=0,socket-id=0,core-id=0", "cpu,node-id=1,core-id=1,thread-id=1", "cpu,node-id=2"];
        let smp = "8,sockets=2,cores=2,threads=2";
        assert_eq!(qemu(&cores, Some(smp)), [(0, vec![0, 1]), (1, vec![3, 7]), (2, vec![2, 4, 5, 6])]);
        let dies = ["cpu,node-id=0,die-id=0", "cpu,node-id=1,die-id=1"];
        assert_eq!(qemu(&dies, Some("4,sockets=1,dies=2,cores=2")), [(0, vec![0, 1]), (1, vec![2, 3])]);
    }

    #[test]
    fn backends_say_how_much_and_where() {
        let numa = ["node,nodeid=0,cpus=0,memdev=a", "node,nodeid=1,cpus=1,mem=512"].map(Parts::parse);
        let object = |text: &str| {
            let nodes = of_qemu(&numa, None, &[("a", Backend::of_qemu(&Parts::parse(text)))].into());
            nodes.into_iter().map(|node| (node.memory_bytes, node.host_nodes)).collect::<Vec<_>>()
        };
        let second = (Some(512 << 20), vec![]);
        let json =
            r#"{"qom-type":"memory-backend-ram","id":"a","size":1024,"host-nodes":[1,0],"policy":"bind"}"#;
        assert_eq!(object(json), [(Some(1024), vec![0, 1]), second.clone()]);
        let plain = "memory-backend-ram,size=1G,host-nodes=2,host-nodes=4-5,policy=preferred";
        assert_eq!(object(plain), [(Some(1 << 30), vec![2, 4, 5]), second.clone()]);
        assert_eq!(
            object("memory-backend-ram,size=x,host-nodes=0,policy=interleave"),
            [(None, vec![]), second]
        );
    }

    #[test]
    fn a_stranger_gets_no_more_than_there_can_be() {
        let all: Vec<u32> = (0..VCPUS_MAX).collect();
        assert_eq!(qemu(&["node,cpus=0-4294967295"], None), [(0, all)]);
        assert_eq!(qemu(&["node,nodeid=4294967295,cpus=0", "node,cpus=1"], None), []);
        assert_eq!(qemu(&["node,cpus=9-2,cpus=4096,cpus=-1"], None), []);
        let many = vec!["cpu,node-id=0,core-id=9"; 100_000];
        assert_eq!(qemu(&many, Some("4096,sockets=1024,cores=4")), []);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(
            numa in proptest::collection::vec(
                "((node|cpu|dist),)?((nodeid|node-id|cpus|socket-id|core-id|mem|memdev)=[0-9]{0,11}(-[0-9]{0,11})?,?){0,5}|\\PC*", 0..6),
            smp in "([0-9]{0,5},)?((sockets|dies|cores|threads|maxcpus)=[0-9]{0,11},?){0,5}|\\PC*",
        ) {
            let numa: Vec<Parts> = numa.iter().map(|text| Parts::parse(text)).collect();
            let named = numa.iter().filter_map(|parts| parts.get("memdev"));
            let backends = named.map(|id| (id, Backend::of_qemu(&Parts::parse(id)))).collect();
            let nodes = of_qemu(&numa, Some(&Parts::parse(&smp)), &backends);
            let mut vcpus: Vec<u32> = nodes.iter().flat_map(|node| &node.vcpus).copied().collect();
            let all = vcpus.len();
            vcpus.sort_unstable();
            vcpus.dedup();
            prop_assert!(vcpus.len() == all && vcpus.last().is_none_or(|&last| last < VCPUS_MAX));
            prop_assert!(nodes.iter().all(|node| !node.vcpus.is_empty() && node.number < NODES_MAX));
        }
    }
}
