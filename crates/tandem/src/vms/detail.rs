//! All about one VM.

use std::fmt::Write;
use tandem_host::vms::homes_file::{Cores, HomeSaving, PartHome};
use tandem_host::vms::{HomeSource, Manager, MemorySource, Thread, ThreadKind, VmCgroup};
use tandem_machine::{Machine, format_cpulist};
use tandemd::observe::{Observation, ObservedThread, ObservedVm};
use tandemd::text::{Percentages, UNKNOWN, bytes, name, pct};

/// Writes a line for each subject, and a table of the threads.
pub fn show(observation: &Observation, machine: &Machine) -> String {
    let mut text = String::new();
    let Some(vm) = observation.vms.first() else {
        return "the virtual machine has ended meanwhile\n".into();
    };
    for (subject, about) in facts(vm, observation) {
        let _ = writeln!(text, "{subject:<9}{about}");
    }
    text.push('\n');
    write_threads(vm, observation, machine, &mut text);
    for note in &observation.notes {
        let _ = writeln!(text, "{note}");
    }
    text
}

/// Everything about a VM except its threads: subjects, and a line about each.
pub fn facts(vm: &ObservedVm, observation: &Observation) -> Vec<(&'static str, String)> {
    let mut facts = vec![
        ("name", name(&vm.vm.name)),
        ("started", format!("by {}; {}, process {}", manager(vm), vm.vm.monitor, vm.vm.identity.pid)),
        ("home", home(vm)),
    ];
    facts.extend(vm.homes.parts.iter().map(|part| ("", part_home(part))));
    facts.extend([
        ("memory", memory(vm)),
        ("usage", usage(vm, observation)),
        ("may use", limits(vm)),
        ("cgroup", vm.limits.cgroup.as_ref().map_or(UNKNOWN.into(), cgroup)),
    ]);
    facts.extend(vm.cores.map(|cores| ("cores", name_cores(cores, observation.is_plan))));
    facts.extend(vm.vm.devices.iter().map(|device| {
        let node = device
            .node
            .map_or("on a node that the kernel does not report".into(), |node| format!("on node {node}"));
        ("device", format!("{} {node}", name(&device.name)))
    }));
    facts
}

/// The threads of a VM: vCPUs first, by their numbers.
pub fn in_order(vm: &ObservedVm) -> Vec<&ObservedThread> {
    let mut threads: Vec<&ObservedThread> = vm.threads.iter().collect();
    let order = |kind| {
        [ThreadKind::Vcpu, ThreadKind::Io, ThreadKind::Emulator].iter().position(|&known| known == kind)
    };
    threads.sort_by_key(|observed| (order(observed.thread.kind), observed.thread.vcpu, observed.thread.tid));
    threads
}

/// What a thread does.
pub fn kind(thread: &Thread) -> String {
    match (thread.kind, thread.vcpu) {
        (ThreadKind::Vcpu, Some(vcpu)) => format!("vCPU {vcpu}"),
        (ThreadKind::Vcpu, None) => "vCPU".into(),
        (ThreadKind::Io, _) => "I/O".into(),
        (ThreadKind::Emulator, _) => "emulator".into(),
    }
}

fn manager(vm: &ObservedVm) -> String {
    match &vm.vm.manager {
        Manager::None => "hand".into(),
        Manager::Libvirt => "libvirt".into(),
        Manager::Proxmox { id } => format!("proxmox as {id}"),
        Manager::Lxd { project } => format!("lxd in project {}", name(project)),
        Manager::Incus { project } => format!("incus in project {}", name(project)),
    }
}

fn home(vm: &ObservedVm) -> String {
    let why = match vm.homes.parts[..] {
        [] => name(&vm.homes.why),
        _ => "each virtual node has its own".into(),
    };
    let Some(nodes) = nodes(&vm.homes.nodes) else { return format!("none: {}", name(&vm.homes.why)) };
    if vm.homes.source != Some(HomeSource::Planned) {
        return format!("{nodes}: {why}");
    }
    let saving = vm.homes.saving.map_or("; what it would save is not known yet".into(), |saving| {
        let HomeSaving { least_cpus, expected_cpus, most_cpus } = saving;
        format!("; it would save {expected_cpus:.2} CPUs ({least_cpus:.2} to {most_cpus:.2})")
    });
    format!("would be {nodes}: {why}{saving}")
}

fn part_home(part: &PartHome) -> String {
    let nodes = nodes(&part.home).unwrap_or_else(|| "none".into());
    let vcpus = format_cpulist(part.vcpus.iter().copied());
    format!("virtual node {} (vCPUs {vcpus}): {nodes}: {}", part.virtual_node, name(&part.why))
}

fn nodes(numbers: &[u32]) -> Option<String> {
    let list = format_cpulist(numbers.iter().copied());
    match numbers {
        [] => None,
        [_] => Some(format!("node {list}")),
        _ => Some(format!("nodes {list}")),
    }
}

fn memory(vm: &ObservedVm) -> String {
    let amount = |amount: Option<u64>| amount.map_or(UNKNOWN.into(), bytes);
    let mut text = format!("{} of {} resident", amount(vm.memory.resident_bytes), amount(vm.vm.memory_bytes));
    let Some(by_node) = &vm.memory.by_node else {
        return text + "; on which nodes: ?";
    };
    for (at, (node, &on_node)) in by_node.bytes.iter().enumerate() {
        let _ = write!(text, "{} {} on node {node}", if at == 0 { ";" } else { "," }, bytes(on_node));
    }
    text + match by_node.source {
        MemorySource::Cgroup => " (its cgroup says)",
        MemorySource::NumaMaps => " (its page tables say)",
    }
}

fn usage(vm: &ObservedVm, observation: &Observation) -> String {
    let percentages = Percentages::of(vm, observation);
    let local = match percentages.local {
        Some(local) => format!("{} of its vCPUs' time at home", pct(Some(local))),
        None if vm.homes.nodes.is_empty() => "no home to be at".into(),
        None => "no vCPU has run".into(),
    };
    format!(
        "in {:.1} s: CPU {}, wait {}, steal {}; {local}",
        observation.interval.as_secs_f64(),
        pct(Some(percentages.cpu)),
        pct(percentages.wait),
        pct(percentages.steal)
    )
}

fn limits(vm: &ObservedVm) -> String {
    let list = |numbers: &[u32]| format_cpulist(numbers.iter().copied());
    let pinned = if vm.limits.is_pinned { "not all of the machine" } else { "all of the machine" };
    let mut text = format!("CPUs {} ({pinned})", list(&vm.limits.cpus));
    if let Some(cpus) = vm.limits.quota_cpus {
        let _ = write!(text, ", {cpus:.2} of them at a time (cpu.max)");
    }
    let _ = match &vm.limits.memory_nodes[..] {
        [] => Ok(()),
        [node] => write!(text, ", memory of node {node}"),
        nodes => write!(text, ", memory of nodes {}", list(nodes)),
    };
    text
}

/// How a VM is kept apart.
fn name_cores(cores: Cores, is_plan: bool) -> String {
    let by = match cores {
        Cores::CoreScheduling => "core scheduling",
        Cores::Placement => "by placement",
        Cores::OneThread => "one thread each",
        Cores::Shared => return "shared, though the settings say apart".into(),
    };
    format!("{}apart ({by})", if is_plan { "would be " } else { "" })
}

fn cgroup(cgroup: &VmCgroup) -> String {
    let path = name(&cgroup.path.display().to_string());
    let own = if cgroup.is_own { "its own" } else { "shared with others" };
    let cpus = cgroup.cpus.as_ref().map(|cpus| format!(", CPUs {}", format_cpulist(cpus.iter().copied())));
    format!("{path} (version {}, {own}{})", cgroup.version, cpus.unwrap_or_default())
}

fn write_threads(vm: &ObservedVm, observation: &Observation, machine: &Machine, text: &mut String) {
    let node_of = |cpu: u32| {
        let node = machine.cpu(machine.find_cpu(cpu)?).node;
        Some(machine.nodes()[node.index()].os_index.to_string())
    };
    let of_interval = |ns: u64| pct(Some(100.0 * ns as f64 / observation.interval.as_nanos() as f64));
    let titles = ["TID", "NAME", "KIND", "RUN", "WAIT", "CPU", "NODE", "ALLOWED"].map(str::to_owned);
    let mut rows = vec![titles];
    rows.extend(in_order(vm).into_iter().map(|observed| {
        let (thread, usage) = (&observed.thread, &observed.usage);
        let unknown = || UNKNOWN.to_owned();
        [
            thread.tid.to_string(),
            name(&thread.name),
            kind(thread),
            of_interval(usage.run_ns),
            usage.wait_ns.map_or_else(unknown, of_interval),
            usage.cpu.map_or_else(unknown, |cpu| cpu.to_string()),
            usage.cpu.and_then(node_of).unwrap_or_else(unknown),
            observed.cpus.as_ref().map_or_else(unknown, |cpus| format_cpulist(cpus.iter().copied())),
        ]
    }));
    let widths: [usize; 8] =
        std::array::from_fn(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0));
    for row in rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
            let gap = if column == 0 { "" } else { " " };
            // Names and the last column are text.
            let _ = match column {
                1 | 2 | 7 => write!(line, "{gap}{cell:<width$}"),
                _ => write!(line, "{gap}{cell:>width$}"),
            };
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
}
