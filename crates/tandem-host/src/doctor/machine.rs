//! The hardware: whether the scheduler's tables have room for it, and its NUMA nodes.

use super::{Finding, read};
use crate::scheduler::{RunningKernel, SchedulerError};
use crate::topology::read_sysfs_assuming;
use tandem_settings::Places;

pub fn check(kernel: &RunningKernel) -> Vec<Finding> {
    let subject = "topology";
    let (machine, assumed) = match read_sysfs_assuming(kernel.root()) {
        Ok(read) => read,
        Err(error) => return vec![Finding::missing(subject, error.to_string())],
    };
    let places = Places::of_host(&machine, kernel.possible_cpus().unwrap_or(0)).map_err(SchedulerError::from);
    let topology = Finding::needed(subject, places, |places| {
        format!("CPUs: {}, last-level caches: {}", places.cpu_count(), places.llc_count())
    });
    let balancing = read(kernel.root(), "/proc/sys/kernel/numa_balancing");
    let nodes = match (machine.node_count(), balancing.as_deref()) {
        (1, _) => Finding::ok("NUMA", "one node"),
        (nodes, None | Some("0")) => {
            Finding::ok("NUMA", format!("{nodes} nodes; the kernel's NUMA balancing is off"))
        }
        // The kernel scans memory in the tick of its fair class.
        (nodes, Some(_)) => Finding::ok(
            "NUMA",
            format!(
                "{nodes} nodes; the kernel's NUMA balancing is on, but moves no memory of tasks that a sched_ext scheduler runs; to move \
                 it, use `migratepages`"
            ),
        ),
    };
    let assumed = (!assumed.is_empty()).then(|| {
        let message = format!(
            "/sys is incomplete; assumed: {}; if this is a virtual machine, report it to the maker",
            assumed.join("; ")
        );
        Finding::warning(subject, message)
    });
    [topology].into_iter().chain(assumed).chain([nodes]).collect()
}
