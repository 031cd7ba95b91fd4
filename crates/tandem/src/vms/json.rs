//! Everything as JSON; the help of the verb names the fields.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use tandem_host::vms::homes_file::PartHome;
use tandem_machine::format_cpulist;
use tandemd::observe::{Observation, ObservedThread, ObservedVm};
use tandemd::text::Percentages;

/// The whole observation.
pub fn to_json(observation: &Observation) -> Value {
    let vms: Vec<Value> = observation.vms.iter().map(|vm| vm_to_json(vm, observation)).collect();
    json!({
        // Without VMs, there is nothing to wait for.
        "interval_s": (!observation.vms.is_empty()).then_some(observation.interval.as_secs_f64()),
        "vms": vms,
        "notes": observation.notes,
    })
}

fn list(numbers: &[u32]) -> String {
    format_cpulist(numbers.iter().copied())
}

/// Objects in a list, for keys of JSON are texts.
fn by_node(amounts: &BTreeMap<u32, u64>, unit: &str) -> Vec<Value> {
    amounts.iter().map(|(node, amount)| json!({ "node": node, unit: amount })).collect()
}

fn vm_to_json(vm: &ObservedVm, observation: &Observation) -> Value {
    let percentages = Percentages::of(vm, observation);
    let mut value = json!({
        "name": vm.vm.name,
        "monitor": vm.vm.monitor,
        "pid": vm.vm.identity.pid,
        "start_ticks": vm.vm.identity.start_ticks,
        "vcpus": vm.vcpu_count(),
        "memory": {
            "given_bytes": vm.vm.memory_bytes,
            "resident_bytes": vm.memory.resident_bytes,
            "by_node": vm.memory.by_node.as_ref().map(|on| by_node(&on.bytes, "bytes")),
            "source": vm.memory.by_node.as_ref().map(|on| on.source),
        },
        "home": {
            "nodes": vm.homes.nodes,
            "source": vm.homes.source,
            "why": vm.homes.why,
            "saving": vm.homes.saving,
        },
        "cores": vm.cores,
        "usage": {
            "cpu_pct": percentages.cpu,
            "wait_pct": percentages.wait,
            "steal_pct": percentages.steal,
            "local_pct": percentages.local,
            "vcpu_run_ns_by_node": by_node(&vm.usage.vcpu_run_ns_by_node, "ns"),
        },
        "limits": {
            "cpus": list(&vm.limits.cpus),
            "is_pinned": vm.limits.is_pinned,
            "quota_cpus": vm.limits.quota_cpus,
            "memory_nodes": list(&vm.limits.memory_nodes),
        },
        "cgroup": vm.limits.cgroup.as_ref().map(|cgroup| json!({
            "path": cgroup.path.to_string_lossy(),
            "version": cgroup.version,
            "is_own": cgroup.is_own,
            "cpus": cgroup.cpus.as_deref().map(list),
        })),
        "devices": vm.vm.devices,
        "threads": vm.threads.iter().map(thread_to_json).collect::<Vec<_>>(),
    });
    if !vm.homes.parts.is_empty() {
        value["home"]["parts"] = vm.homes.parts.iter().map(part_to_json).collect();
    }
    // The manager's own fields stand beside its name.
    if let (Value::Object(all), Value::Object(manager)) = (&mut value, json!(vm.vm.manager)) {
        all.extend(manager);
    }
    value
}

fn part_to_json(part: &PartHome) -> Value {
    json!({
        "virtual_node": part.virtual_node,
        "vcpus": list(&part.vcpus),
        "nodes": part.home,
        "why": part.why,
    })
}

fn thread_to_json(observed: &ObservedThread) -> Value {
    json!({
        "tid": observed.thread.tid,
        "name": observed.thread.name,
        "kind": observed.thread.kind,
        "vcpu": observed.thread.vcpu,
        "cpus": observed.cpus.as_deref().map(list),
        "last_cpu": observed.usage.cpu,
        "run_ns": observed.usage.run_ns,
        "wait_ns": observed.usage.wait_ns,
        "migrations": observed.migrations,
    })
}
