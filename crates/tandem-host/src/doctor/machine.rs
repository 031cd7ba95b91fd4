//! The hardware: whether the scheduler has room for it, and its NUMA nodes.

use super::{Finding, read};
use crate::scheduler::{Kernel, Places, SchedulerError};
use crate::topology::read_sysfs;

pub fn look(kernel: &Kernel) -> Vec<Finding> {
    let subject = "topology";
    let machine = match read_sysfs(kernel.root()) {
        Ok(machine) => machine,
        Err(error) => return vec![Finding::missing(subject, error.to_string())],
    };
    let places = Places::of_host(&machine, kernel.possible_cpus().unwrap_or(0)).map_err(SchedulerError::from);
    let topology = Finding::needed(subject, places, |places| {
        format!("CPUs: {}, last-level caches: {}", places.cpu_count(), places.llc_count())
    });
    let nodes =
        match (machine.node_count(), read(kernel.root(), "/proc/sys/kernel/numa_balancing").as_deref()) {
            (1, _) => "one node".to_owned(),
            (nodes, None | Some("0")) => format!("{nodes} nodes; the kernel's NUMA balancing is off"),
            (nodes, Some(_)) => format!("{nodes} nodes; the kernel's NUMA balancing is on"),
        };
    vec![topology, Finding::ok("NUMA", nodes)]
}
