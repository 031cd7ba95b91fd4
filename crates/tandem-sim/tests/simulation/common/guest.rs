//! Short constructors for VMs with guest kernels.

use super::{MS, textbook};
use std::sync::Arc;
use tandem_machine::{Machine, MachineBuilder};
use tandem_sim::metrics::{GuestMetrics, ProgramMetrics, RunMetrics};
use tandem_sim::policy::credit::CreditSettings;
use tandem_sim::policy::linux::{Domains, LinuxEra, LinuxSettings};
use tandem_sim::program::{Op, Program};
use tandem_sim::scenario::{
    Affinity, Guest, GuestProgram, PolicySettings, Process, Scenario, TaskPolicy, Workload, WorkloadKind,
};

/// All eras.
pub const ERAS: [LinuxEra; 6] =
    [LinuxEra::V3_6, LinuxEra::V4_2, LinuxEra::V5_2, LinuxEra::V6_12, LinuxEra::V6_18, LinuxEra::V7_3];

/// Linux of an era, with those domains.
pub fn linux(era: LinuxEra, domains: Domains) -> LinuxSettings {
    LinuxSettings { era, domains, ..LinuxSettings::default() }
}

/// A guest that sees this topology and runs the first of these programs this many times; the others are for
/// fork and exec. Its costs are off.
pub fn guest(topology: Machine, policy: LinuxSettings, programs: Vec<(&str, Vec<Op>)>, copies: u32) -> Guest {
    Guest {
        policy: PolicySettings::Linux(policy),
        topology: Arc::new(topology),
        context_switch: None,
        interrupt: None,
        programs: programs
            .into_iter()
            .map(|(name, ops)| GuestProgram::new(name, Arc::new(Program { ops, profiles: vec![] })))
            .collect(),
        processes: vec![Process { program: 0, copies, nice: 0, policy: TaskPolicy::Normal, affinity: None }],
        locks: 1,
        family_channels: 2,
    }
}

/// A VM with that guest, whose vCPUs may run anywhere on the host.
pub fn guest_vm(name: &str, host: &Machine, guest: Guest) -> Workload {
    let nodes = host.node_count();
    let vcpus = vec![Affinity::hard(host.all_cpus().clone()); guest.topology.cpu_count()];
    Workload {
        counters: vec!["work".into()],
        ..Workload::new(name, WorkloadKind::guest(vcpus, guest), vec![1.0 / nodes as f64; nodes])
    }
}

/// A guest alone on as many pCPUs as it has vCPUs, costs off.
pub fn alone(guest: Guest, length_ns: u64) -> Scenario {
    let cpus = guest.topology.cpu_count() as u32;
    let host = Arc::new(MachineBuilder::symmetric(1, cpus, 1).build().unwrap());
    let vm = guest_vm("guest", &host, guest);
    textbook(host, CreditSettings::default(), length_ns, vec![vm])
}

/// A topology of packages, cores a package, and threads a core.
pub fn topology(packages: u32, cores: u32, threads: u32) -> Machine {
    MachineBuilder::symmetric(packages, cores, threads).build().unwrap()
}

/// The measurements of the VM's guest.
pub fn guest_of(metrics: &RunMetrics, vm: usize) -> &GuestMetrics {
    metrics.vms[vm].guest.as_ref().expect("the VM has a guest")
}

/// The measurements of the tasks of a program of the first VM's guest.
pub fn program<'a>(metrics: &'a RunMetrics, name: &str) -> &'a ProgramMetrics {
    let mut programs = guest_of(metrics, 0).programs.iter();
    programs.find(|program| program.name == name).expect("it ran")
}

/// One second, ns.
pub const SECOND: u64 = 1_000 * MS;
