//! What the agent reports about a VM: why it has its homes, and the entries of files and reports.

use super::locality::Time;
use super::parts::Part;
use super::report::{MemoryReport, PublishedVm, VmReport};
use super::tracked_vm::{Apart, TrackedVm, numbers};
use crate::vms::homes_file::{Cores, HomeEntry, PartHome};
use crate::vms::{Vm, name_nodes};
use tandem_machine::Machine;
use tandem_machine::homes::HomeRequest;
use tandem_settings::VmRule;

/// Why a VM has no home before the planner has decided.
const JUST_FOUND: &str = "the agent has just found it";

impl Part {
    fn why(&self) -> &str {
        self.why.as_deref().unwrap_or(JUST_FOUND)
    }

    /// Its home and the reason, as a sentence without its full stop.
    pub fn home_and_why(&self, machine: &Machine) -> String {
        match &numbers(machine, self.home.as_ref())[..] {
            [] => format!("no home: {}", self.why()),
            nodes => format!("{}: {}", name_nodes(nodes), self.why()),
        }
    }
}

impl TrackedVm {
    /// Explains why its parts have no home, if the planner gave no reason.
    pub fn explain_no_home(&mut self, machine: &Machine) {
        for part in self.parts.iter_mut().filter(|part| part.home.is_none() && part.why.is_none()) {
            part.why = Some(match (&self.decided, &self.rule) {
                (Some(decided), _) => format!("left alone; {}", decided.why),
                (None, Some(VmRule { exempt: true, .. })) => "the configuration says so".into(),
                _ if machine.node_count() == 1 => "the machine has one NUMA node".into(),
                _ => "no nodes have what it needs".into(),
            });
        }
    }

    /// Why it has its home, or none; for virtual nodes, the reason of each.
    pub(super) fn why(&self) -> String {
        let why = |part: &Part| match part.virtual_node(&self.vm) {
            Some(node) => format!("virtual node {}: {}", node.number, part.why()),
            None => part.why().to_owned(),
        };
        self.parts.iter().map(why).collect::<Vec<_>>().join("; ")
    }

    /// The homes of its virtual nodes, if they have homes of their own.
    fn homes(&self, machine: &Machine) -> Vec<PartHome> {
        let of_part = |part: &Part| {
            let node = part.virtual_node(&self.vm)?;
            Some(PartHome {
                virtual_node: node.number,
                vcpus: node.vcpus.clone(),
                home: numbers(machine, part.home.as_ref()),
                why: part.why().to_owned(),
            })
        };
        self.parts.iter().filter_map(of_part).collect()
    }

    /// The name of a part in log lines about it, after the VM's name and process; empty for all of a VM.
    pub fn part_name(&self, part: &Part) -> String {
        part.virtual_node(&self.vm).map_or_else(String::new, |node| format!(", virtual node {}", node.number))
    }

    /// Its entry in the file of homes.
    pub(super) fn entry(&self, machine: &Machine) -> HomeEntry {
        HomeEntry {
            identity: self.vm.identity,
            name: self.vm.name.clone(),
            home: self.home_numbers(machine),
            why: self.why(),
            parts: self.homes(machine),
            saving: self.saving,
            cores: self.cores(machine),
        }
    }

    /// How it is isolated, if the settings ask for that.
    fn cores(&self, machine: &Machine) -> Option<Cores> {
        Some(match self.apart? {
            Apart::OneThread => Cores::OneThread,
            Apart::Cookie => Cores::CoreScheduling,
            Apart::Home if machine.node_count() > 1 && self.request(machine) == HomeRequest::Isolated => {
                Cores::Placement
            }
            Apart::Home => Cores::Shared,
        })
    }

    /// What other threads may know of it.
    pub(super) fn known(&self, machine: &Machine) -> PublishedVm {
        let Vm { identity, monitor, manager, name, memory_bytes, .. } = &self.vm;
        let by_node = self.memory.by_node.as_ref();
        let seen = || {
            let times = self.parts.iter().filter_map(|part| part.whereabouts.time());
            times.reduce(|a, b| Time { home_ns: a.home_ns + b.home_ns, away_ns: a.away_ns + b.away_ns })
        };
        let time = self.locality.total().or_else(seen);
        let report = VmReport {
            identity: *identity,
            name: name.clone(),
            manager: manager.clone(),
            monitor: *monitor,
            vcpus: self.vcpus().count(),
            quota_cpus: self.limits.quota_cpus,
            memory: MemoryReport {
                given_bytes: *memory_bytes,
                resident_bytes: self.memory.resident_bytes,
                by_node: by_node.map(|by_node| by_node.bytes.clone()),
                source: by_node.map(|by_node| by_node.source),
            },
            home: self.home_numbers(machine),
            why: self.why(),
            parts: self.homes(machine),
            cpu_ns: 0,
            vcpu_ns: 0,
            steal_ns: None,
            home_ns: time.map(|time| time.home_ns),
            away_ns: time.map(|time| time.away_ns),
            saving: self.saving,
            cores: self.cores(machine),
        };
        PublishedVm { report, vcpu_times: self.vcpu_times.clone() }
    }
}
