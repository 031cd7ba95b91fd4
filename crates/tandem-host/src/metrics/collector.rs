//! The metrics by name, each with its description.

use super::cpu_counters::{CpuGroup, CpuGroupTimes};
use crate::agent::{HomeDecisions, MovedMemory, VmReport};
use crate::control::Requests;
use crate::scheduler::{History, Status};
use crate::vms::homes_file::HomeSaving;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, EncodeLabelSet, EncodeMetric,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use std::borrow::Cow;
use std::fmt;

/// Labels of a metric: names and values.
type Labels<'a, const N: usize> = [(&'static str, Cow<'a, str>); N];

/// All values of a page.
#[derive(Debug)]
pub struct Sample {
    pub kernel_release: String,
    /// `None` if the scheduler is gone.
    pub status: Option<Status>,
    pub history: History,
    /// `None` if there is no socket.
    pub requests: Option<Requests>,
    pub places: Vec<(CpuGroup, CpuGroupTimes)>,
    /// By node.
    pub available_bytes: Vec<(u32, u64)>,
    /// `None` if no agent runs, as opposed to an agent without VMs.
    pub vms: Option<Vec<VmReport>>,
    pub decisions: Option<HomeDecisions>,
    pub steps: Option<u64>,
    pub stepped_unix_s: Option<u64>,
    /// `None` where memory of VMs stays where it is.
    pub memory: Option<MovedMemory>,
}

impl Collector for Sample {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut page = Page(encoder);
        self.encode_scheduler(&mut page)?;
        self.encode_history(&mut page)?;
        self.encode_machine(&mut page)?;
        self.encode_agent(&mut page)
    }
}

impl Sample {
    fn encode_scheduler(&self, page: &mut Page<'_>) -> fmt::Result {
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        page.gauges("build_info", "version of tandem that serves these metrics", [(version, 1u64)])?;
        page.gauge(
            "scheduler_up",
            "1 while the scheduler is loaded, otherwise 0",
            self.status.is_some().into(),
        )?;
        let Some(status) = &self.status else { return Ok(()) };
        let labels = [("mode", status.mode.name()), ("kernel", &self.kernel_release)];
        page.gauges("scheduler_info", "mode of the scheduler, and release of the kernel", [(labels, 1u64)])?;
        page.gauge(
            "scheduler_loaded_timestamp_seconds",
            "time when the scheduler was first loaded, in Unix time",
            status.loaded_unix_s(),
        )?;
        for counter in status.counters.iter() {
            page.one(counter.name, counter.description, &ConstCounter::new(counter.value))?;
        }
        Ok(())
    }

    fn encode_history(&self, page: &mut Page<'_>) -> fmt::Result {
        let History { loads, ejections, last_ejection_unix_s, failed_reloads, agent_restarts } =
            &self.history;
        let counters = [
            ("scheduler_loads", "number of times that the scheduler was loaded on this machine", loads),
            (
                "settings_reload_failures",
                "number of reloads that found a mistake in the settings",
                failed_reloads,
            ),
            (
                "agent_restarts",
                "number of times that the agent ended or stopped responding, and was restarted",
                agent_restarts,
            ),
        ];
        for (name, help, value) in counters {
            page.one(name, help, &ConstCounter::new(*value))?;
        }
        let ejections = ejections.iter().map(|(reason, count)| ([("reason", reason.as_str())], *count));
        page.counters(
            "scheduler_ejections",
            "number of times that the kernel ejected the scheduler on this machine, by the kernel's reason",
            ejections,
        )?;
        if let Some(unix_s) = *last_ejection_unix_s {
            let help = "time when the kernel last ejected the scheduler, in Unix time";
            page.gauge("scheduler_last_ejection_timestamp_seconds", help, unix_s)?;
        }
        let Some(Requests { changed, refused, turned_away }) = self.requests else { return Ok(()) };
        page.counters(
            "requests",
            "preferences set through the socket, requests refused, and connections turned away, since the agent began",
            [("changed", changed), ("refused", refused), ("turned_away", turned_away)]
                .map(|(outcome, count)| ([("outcome", outcome)], count)),
        )
    }

    fn encode_machine(&self, page: &mut Page<'_>) -> fmt::Result {
        let cpus = self.places.iter().map(|(place, times)| (place_labels(place), times.cpus));
        page.gauges("cpus", "online CPUs, by node and last-level cache", cpus)?;
        let times = self.places.iter().flat_map(|(place, times)| {
            let states = [("busy", times.busy_ns), ("idle", times.idle_ns), ("steal", times.steal_ns)];
            states.map(|(state, ns)| {
                let [node, llc] = place_labels(place);
                ([node, llc, ("state", state.into())], seconds(ns))
            })
        });
        page.counters(
            "cpu_seconds",
            "CPU time since the agent began, by state; busy includes guests, steal is time that a hypervisor below took",
            times,
        )?;
        let guests = self.places.iter().map(|(place, times)| (place_labels(place), seconds(times.guest_ns)));
        page.counters("cpu_guest_seconds", "busy time in which CPUs ran guests", guests)?;
        let available = self.available_bytes.iter().map(|(node, bytes)| ([node_label(*node)], *bytes));
        page.gauges(
            "node_memory_available_bytes",
            "memory that a node can still give: free, or caching files",
            available,
        )
    }

    fn encode_agent(&self, page: &mut Page<'_>) -> fmt::Result {
        if let Some(steps) = self.steps {
            page.one(
                "agent_looks",
                "steps of the agent since it began, about one per second",
                &ConstCounter::new(steps),
            )?;
        }
        if let Some(unix_s) = self.stepped_unix_s {
            page.gauge(
                "agent_last_look_timestamp_seconds",
                "time of the agent's last step, in Unix time",
                unix_s,
            )?;
        }
        if let Some(HomeDecisions { given, moved, withdrawn }) = self.decisions {
            let decisions = [("given", given), ("moved", moved), ("withdrawn", withdrawn)];
            page.counters(
                "home_decisions",
                "homes that the agent has given, moved and withdrawn since it began",
                decisions.map(|(decision, count)| ([("decision", decision)], count)),
            )?;
        }
        if let Some(MovedMemory { moved, shared, busy, no_room }) = self.memory {
            page.one(
                "memory_moved_bytes",
                "memory of VMs that the agent has moved to their homes since it began",
                &ConstCounter::new(moved),
            )?;
            let stayed = [("shared", shared), ("busy", busy), ("no_room", no_room)];
            page.counters(
                "memory_unmoved_bytes",
                "memory of VMs that the agent tried to move without success, by reason",
                stayed.map(|(reason, bytes)| ([("reason", reason)], bytes)),
            )?;
        }
        match &self.vms {
            Some(vms) => encode_vms(vms, page),
            None => Ok(()),
        }
    }
}

fn encode_vms(vms: &[VmReport], page: &mut Page<'_>) -> fmt::Result {
    page.gauge("vms", "VMs that the agent knows", vms.len() as u64)?;
    let all = |value: fn(&VmReport) -> Option<u64>| {
        vms.iter().filter_map(move |vm| Some((vm_labels(vm), value(vm)?)))
    };
    let times = |value| all(value).map(|(labels, ns)| (labels, seconds(ns)));

    let info = vms.iter().map(|vm| {
        let [name, pid] = vm_labels(vm);
        let manager = ("manager", vm.manager.to_string().into());
        ([name, pid, manager, ("monitor", vm.monitor.to_string().into())], 1u64)
    });
    page.gauges("vm_info", "manager that started a VM, and program that runs it", info)?;
    page.gauges("vm_vcpus", "vCPUs of a VM", all(|vm| Some(vm.vcpus as u64)))?;
    let quotas = vms.iter().filter_map(|vm| Some((vm_labels(vm), vm.quota_cpus?)));
    page.gauges(
        "vm_cpu_quota_cpus",
        "CPUs that a VM may use on average, by the limits of its cgroups",
        quotas,
    )?;
    page.counters(
        "vm_cpu_seconds",
        "CPU time of all threads of a VM's process since its start",
        times(|vm| Some(vm.cpu_ns)),
    )?;
    page.counters(
        "vm_vcpu_seconds",
        "time that a VM's vCPUs have run since its start",
        times(|vm| Some(vm.vcpu_ns)),
    )?;
    page.counters(
        "vm_steal_seconds",
        "time in which a VM's vCPUs were ready to run and waited for a CPU: what its guest sees as steal",
        times(|vm| vm.steal_ns),
    )?;
    page.counters(
        "vm_home_seconds",
        "time that a VM's vCPUs ran on the CPUs that they prefer, since the agent found it",
        times(|vm| vm.home_ns),
    )?;
    page.counters(
        "vm_away_seconds",
        "time that a VM's vCPUs ran on CPUs that they do not prefer, since the agent found it",
        times(|vm| vm.away_ns),
    )?;
    let given = all(|vm| vm.memory.given_bytes);
    page.gauges("vm_memory_given_bytes", "memory that a VM was given at its start", given)?;
    let resident = all(|vm| vm.memory.resident_bytes);
    page.gauges("vm_memory_resident_bytes", "resident memory of a VM", resident)?;
    let by_node = vms.iter().flat_map(|vm| {
        let by_node = vm.memory.by_node.iter().flatten();
        by_node.map(move |(node, bytes)| (vm_node_labels(vm, *node), *bytes))
    });
    page.gauges("vm_memory_bytes", "resident memory of a VM, by node", by_node)?;
    let homes = vms.iter().flat_map(|vm| vm.home.iter().map(|node| (vm_node_labels(vm, *node), 1u64)));
    page.gauges("vm_home", "1 for each home node of a VM, or planned home node", homes)?;
    let parts = vms.iter().flat_map(|vm| vm.parts.iter().map(move |part| (vm, part)));
    let parts = parts.flat_map(|(vm, part)| {
        let virtual_node = ("virtual_node", part.virtual_node.to_string().into());
        let of_node = move |node: &u32| {
            let [name, pid] = vm_labels(vm);
            ([name, pid, virtual_node.clone(), node_label(*node)], 1u64)
        };
        part.home.iter().map(of_node)
    });
    page.gauges(
        "vm_virtual_node_home",
        "1 for each home node, or planned home node, of a VM's virtual node that has a home of its own",
        parts,
    )?;
    let savings = vms.iter().filter_map(|vm| Some((vm, vm.saving?))).flat_map(|(vm, saving)| {
        let HomeSaving { least_cpus, expected_cpus, most_cpus } = saving;
        [("least", least_cpus), ("expected", expected_cpus), ("most", most_cpus)].map(|(bound, cpus)| {
            let [name, pid] = vm_labels(vm);
            ([name, pid, ("bound", bound.into())], cpus)
        })
    });
    page.gauges(
        "vm_home_saving_cpus",
        "CPU time per second that the planned home of a VM would save",
        savings,
    )
}

/// Two VMs of one name have different processes.
fn vm_labels(vm: &VmReport) -> Labels<'_, 2> {
    [("vm", vm.name.as_str().into()), ("pid", vm.identity.pid.to_string().into())]
}

fn vm_node_labels(vm: &VmReport, node: u32) -> Labels<'_, 3> {
    let [name, pid] = vm_labels(vm);
    [name, pid, node_label(node)]
}

fn node_label(node: u32) -> (&'static str, Cow<'static, str>) {
    ("node", node.to_string().into())
}

/// CPUs without a last-level cache have an empty label, which Prometheus treats as a missing one.
fn place_labels(place: &CpuGroup) -> Labels<'static, 2> {
    let llc = place.llc.map_or_else(String::new, |llc| llc.to_string());
    [node_label(place.node), ("llc", llc.into())]
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// The page as it is written; leaves out metrics without a value.
struct Page<'a>(DescriptorEncoder<'a>);

impl Page<'_> {
    fn gauge(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.one(name, help, &ConstGauge::new(value))
    }

    fn one(&mut self, name: &str, help: &str, value: &impl EncodeMetric) -> fmt::Result {
        value.encode(self.0.encode_descriptor(name, help, None, value.metric_type())?)
    }

    fn gauges<L: EncodeLabelSet, V: EncodeGaugeValue>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (L, V)>,
    ) -> fmt::Result {
        let values = values.into_iter().map(|(labels, value)| (labels, ConstGauge::new(value)));
        self.write(name, help, MetricType::Gauge, values)
    }

    fn counters<L: EncodeLabelSet, V: EncodeCounterValue>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (L, V)>,
    ) -> fmt::Result {
        let values = values.into_iter().map(|(labels, value)| (labels, ConstCounter::new(value)));
        self.write(name, help, MetricType::Counter, values)
    }

    fn write<L: EncodeLabelSet, M: EncodeMetric>(
        &mut self,
        name: &str,
        help: &str,
        kind: MetricType,
        values: impl Iterator<Item = (L, M)>,
    ) -> fmt::Result {
        let mut values = values.peekable();
        if values.peek().is_none() {
            return Ok(());
        }
        let mut encoder = self.0.encode_descriptor(name, help, None, kind)?;
        for (labels, value) in values {
            value.encode(encoder.encode_family(&labels)?)?;
        }
        Ok(())
    }
}
