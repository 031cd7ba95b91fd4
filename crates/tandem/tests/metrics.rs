//! The metrics as others use them: the dashboard for Grafana and the table in the book name those that there
//! are.

use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tandem_host::agent::{Actuator, Agent, DryRun, KernelPages};
use tandem_host::control::RequestCounts;
use tandem_host::metrics::{Exporter, Format};
use tandem_host::scheduler::{PreferenceError, SchedulerError, Status};
use tandem_host::topology::read_sysfs;
use tandem_host::vms::testing::{Cgroups, Process, Tree};
use tandem_settings::{Counters, Held, Mode, Place, Preference, Settings};

/// Width of a dashboard, in columns.
const COLUMNS: u64 = 24;

/// All threads have a home and are there.
struct AtHome;

impl Actuator for AtHome {
    fn held(&self, _: u32) -> Result<Option<Held>, PreferenceError> {
        let place = Some(Place::Nodes { nodes: vec![0], cpus: vec![0] });
        let preference = Preference { place, latency_critical: false };
        Ok(Some(Held { preference, by_agent: true, home_ns: 2, away_ns: 1 }))
    }

    fn give(&self, _: u32, _: &[u32]) -> Result<(), PreferenceError> {
        Ok(())
    }
}

fn status() -> Result<Status, SchedulerError> {
    let named: Vec<_> = Counters::names().map(|name| (name.to_owned(), 1)).collect();
    let since = SystemTime::UNIX_EPOCH;
    Ok(Status {
        state: "enabled".into(),
        mode: Mode::Host,
        since,
        counters: named.try_into().expect("the names are this version's"),
    })
}

/// Every metric that hosts with a VM have, be it steered or observed.
fn names() -> BTreeSet<String> {
    let pages = page(AtHome, status) + &page(DryRun, || Err(SchedulerError::NotLoaded));
    let kinds = pages.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    kinds.filter_map(|rest| Some(rest.split_once(' ')?.0.to_owned())).collect()
}

/// What a host of two nodes tells whose VM has a limit and two virtual nodes, and runs, and whose scheduler
/// was ejected once.
fn page(
    actuator: impl Actuator,
    status: impl Fn() -> Result<Status, SchedulerError> + Send + Sync + 'static,
) -> String {
    let folder = tempfile::tempdir().unwrap();
    let tree = Tree::new(folder.path());
    tree.machine(2, 2);
    tree.cgroups(Cgroups::Unified);
    tree.write("proc/stat", "cpu0 1 1 1 1 1 1 1 1 1 1\ncpu1 1 1 1 1 1 1 1 1 1 1\n");
    tree.write("sys/devices/system/node/node0/meminfo", "Node 0 MemTotal: 8 kB\nNode 0 MemFree: 3 kB\n");
    tree.write("var/log/tandem/history.json", r#"{"ejections": {"x": 1}, "last_ejection_unix_s": 1}"#);
    let mut vm = Process::libvirt(100, "web", 2);
    vm.arguments.extend(["-numa", "node,cpus=0", "-numa", "node,cpus=1"].map(str::to_owned));
    let scope = vm.cgroup.trim_end_matches("/libvirt/emulator");
    tree.cgroup(scope, "memory.numa_stat", "anon N0=1073741824\n");
    tree.cgroup(scope, "cpu.max", "100000 100000\n");
    tree.process(&vm);
    let machine = read_sysfs(tree.root()).unwrap();
    // No VM has had its home for long enough in this short time: nothing is moved.
    let mut agent = Agent::new(tree.root(), machine.clone(), &Settings::default(), actuator)
        .with_moved_memory(1, Arc::new(KernelPages));
    for look in 1..4 {
        vm.threads.iter_mut().for_each(|thread| thread.run_ns = look * 1_000_000_000);
        tree.process(&vm);
        agent.step(Duration::from_secs(10 * look)).unwrap();
    }
    Exporter::of_scheduler(tree.root(), status)
        .with_host(&machine, Some(agent.reports()))
        .with_requests(RequestCounts::default())
        .page(Format::Classic)
}

/// The metrics that a text names.
fn named_in(text: &str) -> BTreeSet<&str> {
    let words = text.split(|character: char| !character.is_ascii_alphanumeric() && character != '_');
    words.filter(|word| word.starts_with("tandem_")).collect()
}

fn read(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn dashboard() -> Value {
    serde_json::from_str(&read("packaging/grafana/tandem.json")).expect("the dashboard is JSON")
}

/// All texts that stand under a key, however deep.
fn texts<'a>(value: &'a Value, key: &str, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                match field {
                    Value::String(text) if name == key => found.push(text),
                    field => texts(field, key, found),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| texts(value, key, found)),
        _ => {}
    }
}

#[test]
fn the_dashboard_asks_for_metrics_that_there_are() {
    let (dashboard, names) = (dashboard(), names());
    let mut asked = Vec::new();
    texts(&dashboard["panels"], "expr", &mut asked);
    let in_panels = asked.len();
    texts(&dashboard["annotations"], "expr", &mut asked);
    texts(&dashboard["templating"], "query", &mut asked);
    assert!(in_panels > 20 && asked.len() > in_panels, "{in_panels} and {}", asked.len());
    for text in asked {
        for name in named_in(text) {
            assert!(names.contains(name), "there is no {name}: {text}");
        }
    }
    let mut sources = Vec::new();
    texts(&dashboard["panels"], "uid", &mut sources);
    assert!(!sources.is_empty() && sources.iter().all(|uid| *uid == "${datasource}"), "{sources:?}");
}

#[test]
fn the_dashboards_panels_have_places_of_their_own() {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().expect("there are panels");
    let ids: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().expect("an id")).collect();
    assert_eq!(ids.len(), panels.len(), "ids are unique");
    let mut taken = BTreeSet::new();
    for panel in panels {
        let side = |name: &str| panel["gridPos"][name].as_u64().expect("a place has four numbers");
        let (x, y, w, h) = (side("x"), side("y"), side("w"), side("h"));
        assert!(w > 0 && h > 0 && x + w <= COLUMNS, "{}", panel["title"]);
        for cell in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
            assert!(taken.insert(cell), "{} overlaps another panel", panel["title"]);
        }
        assert!(panel["title"].as_str().is_some_and(|title| !title.is_empty()));
    }
}

#[test]
fn the_book_has_all_metrics_and_no_others() {
    let (chapter, names) = (read("docs/src/metrics.md"), names());
    let rows = chapter.lines().filter(|line| line.starts_with("| `tandem_"));
    let told: BTreeSet<&str> =
        rows.flat_map(|row| named_in(row.split('|').nth(1).unwrap_or_default())).collect();
    let counters: BTreeSet<String> = Counters::names().map(|name| format!("tandem_{name}_total")).collect();
    let others: BTreeSet<&str> =
        names.iter().filter(|name| !counters.contains(*name)).map(String::as_str).collect();
    assert_eq!(told, others);
    assert!(names.is_superset(&counters));
}

#[test]
fn alerts_ask_for_metrics_that_there_are_and_have_their_place_in_the_runbook() {
    let (rules, runbook, names) =
        (read("packaging/prometheus/tandem.rules.yml"), read("docs/src/runbook.md"), names());
    let of = |key: &str| {
        let lines = rules.lines().filter_map(|line| line.trim_start_matches([' ', '-']).strip_prefix(key));
        lines.map(str::trim).collect::<Vec<_>>()
    };
    let (alerts, asked) = (of("alert:"), of("expr:"));
    assert!(alerts.len() > 5 && asked.len() == alerts.len(), "{alerts:?}");
    for name in asked.iter().flat_map(|text| named_in(text)) {
        assert!(names.contains(name), "there is no {name}");
    }
    let sections: Vec<&str> = runbook.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    assert_eq!(alerts, sections);
    let told: Vec<String> = alerts.iter().map(|alert| format!("\"{alert}\"")).collect();
    assert_eq!(of("runbook:"), told);
}
