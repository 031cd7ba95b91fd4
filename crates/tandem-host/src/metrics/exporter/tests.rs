use super::*;
use crate::agent::{Actuator, Agent, KernelPages};
use crate::scheduler::PreferenceError;
use crate::topology::read_sysfs;
use crate::vms::testing::{Cgroups, Process, Tree};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tandem_settings::{Counters, Held, Mode, Place, Preference, Settings};

/// All threads live on node 1, and have been there for a second more at each query.
#[derive(Default)]
struct AtHome(std::cell::Cell<u64>);

impl Actuator for AtHome {
    fn held(&self, _: u32) -> Result<Option<Held>, PreferenceError> {
        self.0.set(self.0.get() + 1_000_000_000);
        Ok(Some(Held {
            preference: Preference {
                place: Some(Place::Nodes { nodes: vec![1], cpus: vec![4, 5, 6, 7] }),
                latency_critical: false,
            },
            by_agent: true,
            home_ns: self.0.get(),
            away_ns: 500_000_000,
        }))
    }

    fn give(&self, _: u32, _: &[u32]) -> Result<(), PreferenceError> {
        Ok(())
    }
}

fn status() -> Result<Status, SchedulerError> {
    let named: Vec<_> = Counters::names().zip(100..).map(|(name, value)| (name.to_owned(), value)).collect();
    let since = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    Ok(Status {
        state: "enabled".into(),
        mode: Mode::Host,
        since,
        counters: named.try_into().expect("the names are this version's"),
    })
}

/// A host of two nodes with four CPUs each.
fn host() -> (tempfile::TempDir, Tree) {
    let folder = tempfile::tempdir().unwrap();
    let tree = Tree::new(folder.path());
    tree.machine(2, 4);
    tree.cgroups(Cgroups::Unified);
    tree.write("proc/stat", &stat(1_000));
    tree.write("sys/devices/system/node/node0/meminfo", "Node 0 MemTotal: 8 kB\nNode 0 MemFree: 3 kB\n");
    (folder, tree)
}

/// All CPUs were busy for this many ticks, half of it with guests.
fn stat(ticks: u64) -> String {
    (0..8).map(|cpu| format!("cpu{cpu} {ticks} 0 0 {ticks} 0 0 0 5 {} 0\n", ticks / 2)).collect()
}

/// The line of a metric, by name and labels.
fn value<'a>(page: &'a str, metric: &str) -> Option<&'a str> {
    page.lines().find_map(|line| line.strip_prefix(metric)?.strip_prefix(' '))
}

#[test]
fn a_page_has_the_scheduler_the_machine_and_the_vms() {
    let (_folder, tree) = host();
    let machine = read_sysfs(tree.root()).unwrap();
    let mut vm = Process::libvirt(100, "we\"b\\\n\u{fffd}", 2);
    for (thread, at) in vm.threads.iter_mut().zip(1..) {
        (thread.run_ns, thread.wait_ns) = (at * 1_000_000_000, 250_000_000);
    }
    tree.process(&vm);
    let mut agent = Agent::new(tree.root(), machine.clone(), &Settings::default(), AtHome::default());
    let exporter = Exporter::of_scheduler(tree.root(), status).with_host(&machine, Some(agent.reports()));
    agent.step(Duration::from_secs(1)).unwrap();
    agent.scan(Duration::from_secs(11)).unwrap();
    tree.write("proc/stat", &stat(1_150));
    let page = exporter.page(Format::Classic);

    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(value(&page, &format!("tandem_build_info{{version=\"{version}\"}}")), Some("1"));
    assert_eq!(value(&page, "tandem_scheduler_up"), Some("1"));
    assert_eq!(value(&page, "tandem_scheduler_loaded_timestamp_seconds"), Some("1800000000"));
    assert_eq!(value(&page, "tandem_wake_stay_total"), Some("100"), "{page}");
    assert!(page.contains("# HELP tandem_yields_total plain yields\n# TYPE tandem_yields_total counter\n"));

    let llc =
        page.lines().find_map(|line| line.strip_prefix("tandem_cpus{node=\"0\",llc=\"")?.split('"').next());
    let place = format!("node=\"0\",llc=\"{}\"", llc.expect("node 0 has CPUs"));
    assert_eq!(
        value(&page, &format!("tandem_cpu_seconds_total{{{place},state=\"busy\"}}")),
        Some("6.0"),
        "{page}"
    );
    assert_eq!(value(&page, &format!("tandem_cpu_guest_seconds_total{{{place}}}")), Some("3.0"));
    assert_eq!(value(&page, "tandem_node_memory_available_bytes{node=\"0\"}"), Some("3072"));
    assert_eq!(
        value(&page, "tandem_node_memory_available_bytes{node=\"1\"}"),
        None,
        "the node does not report it"
    );

    // As the format requires: a backslash before backslashes and quotes; the new line appears as a backslash
    // and an n.
    let name = "vm=\"we\\\"b\\\\\\\\n\u{fffd}\",pid=\"100\"";
    assert_eq!(value(&page, &format!("tandem_vm_vcpus{{{name}}}")), Some("2"), "{page}");
    assert!(page.contains(&format!("tandem_vm_info{{{name},manager=\"libvirt\",monitor=\"qemu\"}} 1\n")));
    assert_eq!(value(&page, &format!("tandem_vm_cpu_seconds_total{{{name}}}")), Some("1.0"));
    assert_eq!(value(&page, &format!("tandem_vm_steal_seconds_total{{{name}}}")), Some("0.5"));
    assert!(
        value(&page, &format!("tandem_vm_home_seconds_total{{{name}}}")).is_some_and(|home| home != "0.0")
    );
    assert_eq!(value(&page, &format!("tandem_vm_away_seconds_total{{{name}}}")), Some("0.0"));
    assert_eq!(value(&page, &format!("tandem_vm_home{{{name},node=\"1\"}}")), Some("1"));
    assert_eq!(value(&page, "tandem_vms"), Some("1"));
    assert_eq!(value(&page, "tandem_agent_looks_total"), Some("1"), "of its own accord, once");
    assert_eq!(
        page.lines().filter(|line| line.contains("tandem_vm_memory_bytes{")).count(),
        0,
        "it is not known"
    );
    assert!(exporter.page(Format::OpenMetrics).ends_with("\n# EOF\n"));
}

#[test]
fn moved_memory_is_counted_where_memory_is_moved() {
    let (_folder, tree) = host();
    let machine = read_sysfs(tree.root()).unwrap();
    let page = |moves: bool| {
        let agent = Agent::new(tree.root(), machine.clone(), &Settings::default(), AtHome::default());
        let mut agent = if moves { agent.with_moved_memory(1, Arc::new(KernelPages)) } else { agent };
        let exporter = Exporter::of_scheduler(tree.root(), status).with_host(&machine, Some(agent.reports()));
        agent.scan(Duration::from_secs(1)).unwrap();
        exporter.page(Format::Classic)
    };
    let with = page(true);
    assert_eq!(value(&with, "tandem_memory_moved_bytes_total"), Some("0"), "{with}");
    for reason in ["shared", "busy", "no_room"] {
        let metric = format!("tandem_memory_unmoved_bytes_total{{reason=\"{reason}\"}}");
        assert_eq!(value(&with, &metric), Some("0"), "{with}");
    }
    let without = page(false);
    assert!(!without.contains("tandem_memory_"), "{without}");
}

#[test]
fn a_vm_without_preferences_has_no_times_at_home() {
    let (_folder, tree) = host();
    let machine = read_sysfs(tree.root()).unwrap();
    tree.process(&Process::libvirt(100, &"x".repeat(1_000), 2));
    let mut agent = Agent::new(tree.root(), machine.clone(), &Settings::default(), crate::agent::DryRun);
    let exporter = Exporter::of_scheduler(tree.root(), status).with_host(&machine, Some(agent.reports()));
    agent.step(Duration::from_secs(1)).unwrap();
    let page = exporter.page(Format::Classic);
    assert!(!page.contains("tandem_vm_home_seconds") && !page.contains("tandem_vm_away_seconds"), "{page}");
    assert!(page.contains(&format!("vm=\"{}\"", "x".repeat(254) + "…")), "a name has its limit");
}

#[test]
fn a_guest_has_its_scheduler_alone_and_one_that_is_gone_is_down() {
    let (_folder, tree) = host();
    let page = Exporter::of_scheduler(tree.root(), status).page(Format::Classic);
    assert!(
        page.contains("tandem_yields_total ") && !page.contains("tandem_cpu") && !page.contains("tandem_vm")
    );
    let gone = Exporter::of_scheduler(tree.root(), || Err(SchedulerError::NotLoaded)).page(Format::Classic);
    assert_eq!(value(&gone, "tandem_scheduler_up"), Some("0"));
    assert!(!gone.contains("tandem_yields"), "{gone}");
}

#[test]
fn the_history_is_served_when_the_scheduler_is_gone() {
    let (_folder, tree) = host();
    tree.write(
        "var/log/tandem/history.json",
        r#"{"loads": 3, "ejections": {"runnable task stall": 2}, "last_ejection_unix_s": 1800000000}"#,
    );
    let gone = || Exporter::of_scheduler(tree.root(), || Err(SchedulerError::NotLoaded));
    let page = gone().with_requests(RequestCounts::default()).page(Format::Classic);
    for (metric, expected) in [
        ("tandem_scheduler_loads_total", "3"),
        ("tandem_scheduler_ejections_total{reason=\"runnable task stall\"}", "2"),
        ("tandem_scheduler_last_ejection_timestamp_seconds", "1800000000"),
        ("tandem_settings_reload_failures_total", "0"),
        ("tandem_requests_total{outcome=\"refused\"}", "0"),
    ] {
        assert_eq!(value(&page, metric), Some(expected), "{page}");
    }
    tree.write("var/log/tandem/history.json", "{}");
    let page = gone().page(Format::Classic);
    assert!(!page.contains("ejection") && !page.contains("tandem_requests"), "{page}");
}
