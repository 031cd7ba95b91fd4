//! The agent's knowledge of VMs, for the socket and the metrics.
//!
//! **Problem.** Requests arrive at any time, on threads of their own, while the agent may be busy for seconds
//! reading page tables.
//!
//! **Approach.** After each scan the agent publishes what it knows ([`Reports`]). A request reads that, and
//! reads anew only what changes all the time and costs little: how long the process and its vCPUs have run
//! and waited, from files that are already open. So no request waits for the agent.
//!
//! **Limits.** Memory, homes and times at home are as old as the last scan. A VM that has just started
//! appears once the agent has found it.

use super::pass::MovedMemory;
use super::vcpu_times::VcpuTimes;
use crate::vms::homes_file::{Cores, HomeSaving, PartHome};
use crate::vms::{Identity, Manager, Memory, MemoryByNode, MemorySource, Monitor};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

/// A VM as the agent knows it. Times are counters, which never decrease; unknown values are `None`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VmReport {
    /// Its process and start time.
    #[serde(flatten)]
    pub identity: Identity,
    /// Its name, as the manager shows it. It may contain any character.
    pub name: String,
    /// The manager that started it.
    #[serde(flatten)]
    pub manager: Manager,
    /// The program that runs it.
    pub monitor: Monitor,
    /// The number of its vCPUs.
    pub vcpus: usize,
    /// CPUs that it may use on average, if its cgroup or one around it has a limit.
    #[serde(default)]
    pub quota_cpus: Option<f64>,
    /// Its memory.
    pub memory: MemoryReport,
    /// Its home nodes by the operating system's numbers, in ascending order; empty if it has no home.
    pub home: Vec<u32>,
    /// Why it has these nodes, or none: a clause without a full stop.
    pub why: String,
    /// The homes of its virtual nodes, if each has its own; [`VmReport::home`] has the nodes of all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<PartHome>,
    /// CPU time of its process since its start, ns: all threads, including those that have ended.
    pub cpu_ns: u64,
    /// Time that its vCPUs have run since its start, ns.
    pub vcpu_ns: u64,
    /// Time in which its vCPUs were ready to run and waited for a CPU, ns: what the guest sees as steal time.
    pub steal_ns: Option<u64>,
    /// Time that its vCPUs ran on the CPUs that they prefer, since the agent found it, ns.
    pub home_ns: Option<u64>,
    /// Time that they ran on other CPUs, since the agent found it, ns.
    pub away_ns: Option<u64>,
    /// What its home is expected to save, if that is a plan; [`VmReport::home_ns`] is then the time on that
    /// home's nodes, sampled at scans.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saving: Option<HomeSaving>,
    /// How it is isolated from others on their cores, if the settings ask for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<Cores>,
}

/// The memory of a VM, bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryReport {
    /// The size that it was given at its start.
    pub given_bytes: Option<u64>,
    /// Resident memory.
    pub resident_bytes: Option<u64>,
    /// Resident memory on each node, by the node's number.
    pub by_node: Option<BTreeMap<u32, u64>>,
    /// Where the numbers by node come from.
    pub source: Option<MemorySource>,
}

impl MemoryReport {
    /// The memory, in the form that [`Vm::read_memory`](crate::vms::Vm::read_memory) returns.
    pub fn memory(&self) -> Memory {
        let by_node = self.by_node.clone().zip(self.source);
        Memory {
            resident_bytes: self.resident_bytes,
            by_node: by_node.map(|(bytes, source)| MemoryByNode { bytes, source }),
        }
    }
}

/// How often the agent has decided about homes since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HomeDecisions {
    /// A VM, or a virtual node of one, that had no home got one.
    pub given: u64,
    /// One got another home.
    pub moved: u64,
    /// One lost its home.
    pub withdrawn: u64,
}

impl HomeDecisions {
    pub(super) fn count(&mut self, had_home: bool, has_home: bool) {
        match (had_home, has_home) {
            (false, true) => self.given += 1,
            (true, true) => self.moved += 1,
            (true, false) => self.withdrawn += 1,
            (false, false) => {}
        }
    }
}

/// What an agent has published last; all clones belong to the same agent.
#[derive(Clone, Debug, Default)]
pub struct Reports {
    published: Arc<RwLock<Arc<Published>>>,
    steps: Arc<AtomicU64>,
    /// Time of the last step, in Unix time; 0: never.
    stepped_unix_s: Arc<AtomicU64>,
}

/// What the agent knew after a scan.
#[derive(Debug, Default)]
pub(super) struct Published {
    pub vms: Vec<PublishedVm>,
    pub decisions: HomeDecisions,
    /// `None` where memory stays where it is.
    pub memory: Option<MovedMemory>,
}

/// What is known of a VM, and where to read the rest.
#[derive(Debug)]
pub(super) struct PublishedVm {
    /// Without the times that are read for each request.
    pub report: VmReport,
    pub vcpu_times: Arc<VcpuTimes>,
}

impl Reports {
    /// The existing VMs, in no order.
    pub fn vms(&self) -> Vec<VmReport> {
        self.published().vms.iter().filter_map(PublishedVm::read).collect()
    }

    /// The manager of the VM whose process this is, if it is one.
    pub fn manager_of(&self, pid: u32) -> Option<Manager> {
        let published = self.published();
        let vm = published.vms.iter().find(|vm| vm.report.identity.pid == pid);
        vm.map(|vm| vm.report.manager.clone())
    }

    /// The number of steps since the agent began.
    pub fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    /// When the last step was, in Unix time; `None` before the first.
    pub fn stepped_unix_s(&self) -> Option<u64> {
        Some(self.stepped_unix_s.load(Ordering::Relaxed)).filter(|&unix_s| unix_s > 0)
    }

    pub(super) fn count_step(&self) {
        self.steps.fetch_add(1, Ordering::Relaxed);
        let unix_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        self.stepped_unix_s.store(unix_s, Ordering::Relaxed);
    }

    /// How often the agent has decided about homes.
    pub fn decisions(&self) -> HomeDecisions {
        self.published().decisions
    }

    /// Memory that the agent has moved to homes since it began; `None` if it moves none.
    pub fn moved_memory(&self) -> Option<MovedMemory> {
        self.published().memory
    }

    pub(super) fn publish(&self, published: Published) {
        *self.published.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(published);
    }

    fn published(&self) -> Arc<Published> {
        self.published.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl PublishedVm {
    /// The report with current times; `None` if the VM has ended.
    fn read(&self) -> Option<VmReport> {
        let cpu_ns = self.vcpu_times.vm().read_cpu_ns()?;
        let vcpus = self.vcpu_times.total();
        Some(VmReport { cpu_ns, vcpu_ns: vcpus.run_ns, steal_ns: vcpus.wait_ns, ..self.report.clone() })
    }
}
