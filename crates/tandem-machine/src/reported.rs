//! The topology that a guest sees of the machine below it.

use super::{CpuSpec, Machine, MachineBuilder, NodeSpec};

impl Machine {
    /// This machine as it is reported to a guest with as many vCPUs: packages, caches and cores are the same,
    /// CPUs and nodes are numbered from 0. Without `numa` there is one node over all CPUs, with all the
    /// memory.
    pub fn reported(&self, numa: bool) -> Self {
        let mut builder = MachineBuilder::new(self.name()).hardware(self.hardware().clone());
        if numa {
            for (number, node) in (0..).zip(self.nodes()) {
                builder = builder.node(NodeSpec {
                    os_index: number,
                    memory_bytes: node.memory_bytes,
                    bandwidth_bytes_per_s: node.bandwidth_bytes_per_s,
                });
            }
            builder = builder
                .distances(self.distances.chunks_exact(self.node_count()).map(<[u32]>::to_vec).collect());
        } else {
            let total =
                |what: fn(&super::Node) -> u64| self.nodes().iter().map(what).fold(0, u64::saturating_add);
            builder = builder.node(NodeSpec {
                os_index: 0,
                memory_bytes: total(|node| node.memory_bytes),
                bandwidth_bytes_per_s: total(|node| node.bandwidth_bytes_per_s),
            });
        }
        for (label, llc) in (0..).zip(self.llcs()) {
            builder = builder.llc(label, llc.size_bytes);
        }
        for (number, cpu) in (0..).zip(self.cpus()) {
            builder = builder.cpu(CpuSpec {
                os_index: number,
                core: cpu.core.0,
                llc: cpu.llc.map(|llc| llc.0),
                node: if numa { cpu.node.0 } else { 0 },
                package: cpu.package.0,
                capacity: cpu.capacity_permille,
            });
        }
        builder.build().expect("the parts of a checked machine fit together")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preset;

    #[test]
    fn a_machine_numbered_from_0_is_reported_as_it_is_with_its_nodes() {
        let machine = preset("xeon-e5620-2s").unwrap();
        assert_eq!(machine.reported(true), machine);
    }

    #[test]
    fn without_numa_one_node_has_all_cpus_and_all_memory() {
        let machine = MachineBuilder::symmetric(2, 4, 2).build().unwrap();
        let reported = machine.reported(false);
        assert_eq!(reported.node_count(), 1);
        assert_eq!(reported.nodes()[0].cpus, *machine.all_cpus());
        assert_eq!(reported.nodes()[0].memory_bytes, 2 * machine.nodes()[0].memory_bytes);
        assert_eq!(
            (reported.packages(), reported.llcs(), reported.cores()),
            (machine.packages(), machine.llcs(), machine.cores())
        );
    }

    #[test]
    fn numbers_without_gaps_take_the_place_of_the_hosts() {
        let cpu = |os_index, node, package| CpuSpec {
            os_index,
            core: os_index,
            llc: None,
            node,
            package,
            capacity: 1,
        };
        let node = |os_index| NodeSpec { os_index, memory_bytes: 0, bandwidth_bytes_per_s: 0 };
        let machine = MachineBuilder::new("gaps")
            .node(node(1))
            .node(node(4))
            .distances(vec![vec![10, 17], vec![25, 10]])
            .cpu(cpu(2, 1, 3))
            .cpu(cpu(9, 4, 8))
            .build()
            .unwrap();
        let reported = machine.reported(true);
        assert_eq!(reported.os_list(reported.all_cpus()), "0-1");
        let nodes: Vec<_> = reported.nodes().iter().map(|node| node.os_index).collect();
        assert_eq!(nodes, [0, 1]);
        let [from, to] = [0, 1].map(crate::ids::NodeId);
        assert_eq!((reported.distance(from, to), reported.distance(to, from)), (17, 25));
    }
}
