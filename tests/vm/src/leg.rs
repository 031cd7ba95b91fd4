//! The table of legs: which machine boots, and which scenarios run on it.

use crate::guest::Guest;
use crate::scenarios;

/// A virtual machine, booted once, and what runs on it.
pub struct Leg {
    /// What it is called on the command line.
    pub name: &'static str,
    /// CPUs, nodes and memory.
    pub machine: Machine,
    /// Parameters for the guest's kernel besides those that every leg has.
    pub kernel_parameters: &'static str,
    /// Modules of the kernel to load, in this order; one that is not there counts as built in.
    pub modules: &'static [&'static str],
    /// After how long the leg is given up, seconds of the machine's clock. On two CPUs with another leg beside it a
    /// scenario may take ten times as long as on an idle machine.
    pub timeout_s: u64,
    /// What runs, in this order.
    pub scenarios: &'static [Scenario],
}

/// The hardware that QEMU emulates.
pub struct Machine {
    /// QEMU's name of the CPU, with features.
    pub cpu: &'static str,
    /// Sockets; each has one last-level cache.
    pub sockets: u32,
    /// Cores of a socket, with one thread each.
    pub cores: u32,
    /// NUMA nodes; CPUs and memory are divided among them evenly, in order.
    pub nodes: u32,
    /// Memory, MiB.
    pub memory_mib: u32,
}

impl Machine {
    /// How many CPUs there are.
    pub const fn cpus(&self) -> u32 {
        self.sockets * self.cores
    }

    /// The CPUs of a node.
    pub fn cpus_of(&self, node: u32) -> std::ops::Range<u32> {
        let per_node = self.cpus() / self.nodes;
        node * per_node..(node + 1) * per_node
    }
}

/// Something that is tried in the guest.
pub struct Scenario {
    /// What it is called on the command line, and in the results.
    pub name: &'static str,
    /// Tries it.
    pub run: fn(&Guest) -> anyhow::Result<()>,
}

/// All legs, in the order of the results.
pub const LEGS: &[Leg] = &[
    Leg {
        name: "base",
        machine: Machine { cpu: "max", sockets: 1, cores: 4, nodes: 1, memory_mib: 1024 },
        kernel_parameters: "",
        modules: &[],
        timeout_s: 600,
        scenarios: &[
            Scenario { name: "sched-ext-is-there", run: scenarios::harness::sched_ext_is_there },
            Scenario { name: "hackbench-runs", run: scenarios::harness::hackbench_runs },
            Scenario { name: "programs-are-verified", run: scenarios::programs::programs_are_verified },
        ],
    },
    Leg {
        name: "numa",
        machine: Machine { cpu: "max", sockets: 2, cores: 4, nodes: 2, memory_mib: 2048 },
        kernel_parameters: "",
        modules: &[],
        timeout_s: 600,
        scenarios: &[Scenario {
            name: "machine-is-as-asked-for",
            run: scenarios::harness::machine_is_as_asked_for,
        }],
    },
    Leg {
        name: "nested",
        machine: Machine { cpu: "max,+svm", sockets: 1, cores: 4, nodes: 1, memory_mib: 1024 },
        // Emulated SVM can intercept PAUSE, but does not tell; KVM looks for both features before it uses it.
        kernel_parameters: "setcpuid=pausefilter,pfthreshold",
        modules: &["irqbypass", "kvm", "kvm-amd"],
        timeout_s: 600,
        scenarios: &[Scenario { name: "kvm-is-there", run: scenarios::harness::kvm_is_there }],
    },
];

/// The leg of that name.
pub fn find(name: &str) -> Option<&'static Leg> {
    LEGS.iter().find(|leg| leg.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_and_machines_even() {
        let mut legs = HashSet::new();
        for leg in LEGS {
            assert!(legs.insert(leg.name), "{}", leg.name);
            let mut scenarios = HashSet::new();
            for scenario in leg.scenarios {
                assert!(scenarios.insert(scenario.name), "{}/{}", leg.name, scenario.name);
            }
            assert_eq!(leg.machine.cpus() % leg.machine.nodes, 0, "{}", leg.name);
            assert_eq!(leg.machine.memory_mib % leg.machine.nodes, 0, "{}", leg.name);
        }
    }
}
