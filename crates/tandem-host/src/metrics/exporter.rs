//! Collects the values of the metrics page, and writes it.

use super::classic;
use super::collector::Sample;
use super::cpu_counters::CpuCounters;
use crate::agent::{Reports, available_bytes};
use crate::control::RequestCounts;
use crate::cpu_time::read_cpu_times;
use crate::scheduler::{History, RunningKernel, SchedulerError, Status};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use tandem_machine::Machine;

/// The prefix of all names.
const PREFIX: &str = "tandem";

/// The format of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0, for clients that request it.
    OpenMetrics,
    /// Prometheus' text format 0.0.4.
    Classic,
}

impl Format {
    /// The content type in HTTP.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Classic => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// How the exporter gets the scheduler's status.
type AskStatus = dyn Fn() -> Result<Status, SchedulerError> + Send + Sync;

/// Generates pages of metrics.
pub struct Exporter {
    root: PathBuf,
    kernel_release: String,
    status: Box<AskStatus>,
    requests: Option<RequestCounts>,
    host: Option<Host>,
}

/// The metrics of a host besides those of its scheduler.
struct Host {
    nodes: Vec<u32>,
    cpus: Mutex<CpuCounters>,
    /// `None` if no agent runs.
    reports: Option<Reports>,
}

impl Exporter {
    /// Metrics of the scheduler alone, as in a guest, whose reported topology need not be true. The root is
    /// `/` for this machine.
    pub fn of_scheduler(
        root: &Path,
        status: impl Fn() -> Result<Status, SchedulerError> + Send + Sync + 'static,
    ) -> Self {
        let kernel_release = RunningKernel::new(root).release();
        Self { root: root.to_owned(), kernel_release, status: Box::new(status), requests: None, host: None }
    }

    /// Adds the CPUs and nodes of this machine, and the VMs of an agent, if one runs.
    pub fn with_host(mut self, machine: &Machine, reports: Option<Reports>) -> Self {
        let times = read_cpu_times(&self.root).unwrap_or_default();
        let nodes = machine.nodes().iter().map(|node| node.os_index).collect();
        self.host = Some(Host { nodes, cpus: Mutex::new(CpuCounters::start(machine, &times)), reports });
        self
    }

    /// Adds the counts of requests at the socket.
    pub fn with_requests(mut self, requests: RequestCounts) -> Self {
        self.requests = Some(requests);
        self
    }

    /// All metrics with their current values.
    pub fn page(&self, format: Format) -> String {
        let mut registry = Registry::with_prefix(PREFIX);
        registry.register_collector(Box::new(self.sample()));
        let mut text = String::new();
        // Only a writer can fail, and this one cannot.
        let _ = encode(&mut text, &registry);
        match format {
            Format::OpenMetrics => text,
            Format::Classic => classic::from_openmetrics(&text),
        }
    }

    fn sample(&self) -> Sample {
        let host = self.host.as_ref();
        let reports = host.and_then(|host| host.reports.as_ref());
        Sample {
            kernel_release: self.kernel_release.clone(),
            status: (self.status)().ok(),
            history: History::read(&self.root),
            requests: self.requests.as_ref().map(RequestCounts::read),
            places: host.map(|host| self.places(host)).unwrap_or_default(),
            available_bytes: host
                .iter()
                .flat_map(|host| &host.nodes)
                .filter_map(|&node| Some((node, available_bytes(&self.root, node)?)))
                .collect(),
            vms: reports.map(Reports::vms),
            decisions: reports.map(Reports::decisions),
            memory: reports.and_then(Reports::moved_memory),
            steps: reports.map(Reports::steps),
            stepped_unix_s: reports.and_then(Reports::stepped_unix_s),
        }
    }

    fn places(
        &self,
        host: &Host,
    ) -> Vec<(super::cpu_counters::CpuGroup, super::cpu_counters::CpuGroupTimes)> {
        let mut cpus = host.cpus.lock().unwrap_or_else(PoisonError::into_inner);
        // Counters that cannot be read keep their values.
        if let Ok(times) = read_cpu_times(&self.root) {
            cpus.count(&times);
        }
        cpus.places().collect()
    }
}

#[cfg(test)]
mod tests;
