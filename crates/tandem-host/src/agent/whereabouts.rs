//! The nodes on which the vCPUs of a VM run, where no scheduler counts that.
//!
//! At each scan, the time that a vCPU has run since the scan before counts for the node of its current CPU.
//! Over many scans that is right on average, wherever the kernel moves it in between.

use super::locality::Time;
use crate::vms::{Thread, Vm, node_of};
use std::collections::BTreeMap;
use tandem_machine::Machine;

/// Number of scans over which the shares average; later scans push out earlier ones. With a scan every ten
/// seconds, five minutes: the time within which a home has to pay (`HomeSettings::horizon_ns`).
const SAMPLES_MAX: u32 = 30;

/// The observations so far.
#[derive(Debug, Default)]
pub(super) struct Whereabouts {
    /// Run time of vCPUs at the last scan, ns, by thread.
    ran: BTreeMap<u32, u64>,
    /// Share of their time on each node, in the order of the machine; empty until they were observed running.
    parts: Vec<f64>,
    samples: u32,
    /// Time on the nodes of the home, and on others, since the first scan; `None` until it had a home.
    time: Option<Time>,
}

impl Whereabouts {
    /// Observes these vCPUs of a VM, each with its run time so far, ns. `home` has the numbers of the home's
    /// nodes.
    pub fn sample<'a>(
        &mut self,
        vm: &Vm,
        vcpus: impl Iterator<Item = &'a (Thread, u64)>,
        home: &[u32],
        machine: &Machine,
    ) {
        let is_first = self.ran.is_empty();
        let mut ran = BTreeMap::new();
        let mut on_nodes = vec![0u64; machine.node_count()];
        for &(ref vcpu, run_ns) in vcpus {
            let before = self.ran.get(&vcpu.tid).copied();
            ran.insert(vcpu.tid, run_ns);
            // A new vCPU has run here; at the first scan it is unknown where vCPUs ran before.
            let since_ns = run_ns.saturating_sub(before.unwrap_or(if is_first { run_ns } else { 0 }));
            if since_ns == 0 {
                continue;
            }
            let node = vm.read_cpu(vcpu).and_then(|cpu| node_of(machine, cpu));
            let at = node.and_then(|node| machine.nodes().iter().position(|known| known.os_index == node));
            if let (Some(node), Some(at)) = (node, at) {
                on_nodes[at] += since_ns;
                if !home.is_empty() {
                    let time = self.time.get_or_insert_default();
                    *if home.contains(&node) { &mut time.home_ns } else { &mut time.away_ns } += since_ns;
                }
            }
        }
        self.ran = ran;
        let all: u64 = on_nodes.iter().sum();
        if all == 0 {
            return;
        }
        self.samples = (self.samples + 1).min(SAMPLES_MAX);
        self.parts.resize(on_nodes.len(), 0.0);
        for (part, ns) in self.parts.iter_mut().zip(on_nodes) {
            *part += (ns as f64 / all as f64 - *part) / f64::from(self.samples);
        }
    }

    /// The share of their time on each node, in the order of the machine; `None` until they were observed
    /// running.
    pub fn parts(&self) -> Option<&[f64]> {
        (!self.parts.is_empty()).then_some(&self.parts[..])
    }

    /// Time at home and on other nodes; `None` until they were observed running with a home.
    pub fn time(&self) -> Option<Time> {
        self.time
    }
}
