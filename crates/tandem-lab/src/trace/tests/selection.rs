//! A trace of a part of a run, against the trace of all of it, from which a separate account takes that part.

use super::fixture;
use super::timeline::Recorder;
use crate::trace::timeline::Mark;
use crate::trace::{JsonLines, Selection, TracedRun};
use proptest::prelude::*;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;
use tandem_machine::ids::{KernelId, TaskId};
use tandem_sim::scenario::Scenario;
use tandem_sim::trace::{Event, Observer};

/// End of the run, ns.
const END_NS: u64 = 50_000_000;

/// What an observer sees of a run.
#[derive(Clone)]
enum Seen {
    Event(Event),
    Name(u64, KernelId, TaskId, String),
}

/// Keeps what it sees.
#[derive(Default)]
struct Memory(Vec<Seen>);

impl Observer for Memory {
    fn observe(&mut self, event: Event) {
        self.0.push(Seen::Event(event));
    }

    fn named(&mut self, at_ns: u64, kernel: KernelId, task: TaskId, name: &str) {
        self.0.push(Seen::Name(at_ns, kernel, task, name.to_owned()));
    }
}

/// The scenario and its run, once for all tests.
static RUN: LazyLock<(Scenario, Vec<Seen>)> = LazyLock::new(|| {
    let scenario = fixture::mixed();
    let mut seen = Memory::default();
    tandem_sim::run_observed(&scenario, 3, &mut seen).unwrap();
    (scenario, seen.0)
});

fn replay(to: &mut impl Observer) {
    for seen in &RUN.1 {
        match seen {
            Seen::Event(event) => to.observe(*event),
            Seen::Name(at_ns, kernel, task, name) => to.named(*at_ns, *kernel, *task, name),
        }
    }
}

fn lines(selection: &Selection) -> Vec<Value> {
    let run = TracedRun { scenario_name: "mixed.toml", scenario: &RUN.0, seed: 3, selection };
    let mut trace = JsonLines::new(Vec::new(), run).unwrap();
    replay(&mut trace);
    let text = String::from_utf8(trace.finish(END_NS).unwrap()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// What a user asks for, with what it means, in the words of the trace.
#[derive(Clone, Debug)]
struct Asked {
    selection: Selection,
    vms: BTreeSet<String>,
    cpus: BTreeSet<u64>,
}

impl Asked {
    fn has_time(&self, at_ns: u64) -> bool {
        self.selection.from_ns.unwrap_or(0) <= at_ns && at_ns < self.selection.to_ns.unwrap_or(u64::MAX)
    }

    /// The lines of the whole trace that are asked for.
    fn of_lines(&self, all: &[Value]) -> Vec<Value> {
        let mut pcpu_below: BTreeMap<String, u64> = BTreeMap::new();
        let mut kept = Vec::new();
        for line in all {
            let Some(at_ns) = line["at_ns"].as_u64() else { continue };
            let kind = line["kind"].as_str().unwrap();
            if kind == "end" {
                kept.push(line.clone());
                continue;
            }
            let task = line["task"].as_str().unwrap();
            let cpus = [line["cpu"].as_u64(), line["by"]["cpu"].as_u64()];
            let (vm, pcpus): (&str, Vec<u64>) = match line["guest"].as_str() {
                None => (task.split('/').next().unwrap(), cpus.into_iter().flatten().collect()),
                Some(vm) => {
                    let vcpus = cpus.into_iter().flatten().map(|cpu| format!("{vm}/vcpu{cpu}"));
                    (vm, vcpus.filter_map(|vcpu| pcpu_below.get(&vcpu).copied()).collect())
                }
            };
            let is_on_cpu = self.selection.cpus.is_none()
                || kind == "name"
                || pcpus.iter().any(|cpu| self.cpus.contains(cpu));
            if self.has_time(at_ns) && self.vms.contains(vm) && is_on_cpu {
                kept.push(line.clone());
            }
            if line["guest"].is_null() {
                match kind {
                    "start" => drop(pcpu_below.insert(task.to_owned(), line["cpu"].as_u64().unwrap())),
                    "preempt" | "yield" | "block" | "exit" => drop(pcpu_below.remove(task)),
                    _ => {}
                }
            }
        }
        kept
    }
}

/// A slice: track, name, from, to, why it ended, from which CPU its task came, and the pCPU below.
type Slice = (usize, String, u64, u64, &'static str, Option<u32>, u64);

/// The slices in the order of their track and time, and the times and tasks of wake-ups.
fn drawn(selection: &Selection) -> (Vec<Slice>, Vec<(u64, String)>) {
    let mut recorder = Recorder::of_part(&RUN.0, selection);
    replay(&mut recorder);
    recorder.finish(END_NS);
    let (mut open, mut slices, mut wakes) = (BTreeMap::new(), Vec::new(), Vec::new());
    let (mut begun, mut before_ns) = (BTreeSet::new(), 0);
    for &(at_ns, mark) in &recorder.marks {
        assert!(before_ns <= at_ns, "time goes on");
        before_ns = at_ns;
        match mark {
            Mark::Begin { track, name, flow, came_from, pcpu } => {
                assert!(
                    flow.is_none_or(|flow| begun.remove(&flow.0)),
                    "an arrow ends once, and began before"
                );
                let name = recorder.names.text(name).to_owned();
                let below = match (track.0 < 16, pcpu) {
                    (true, _) => track.0 as u64,
                    (false, Some(pcpu)) => pcpu.into(),
                    (false, None) => name.strip_prefix("on CPU ").unwrap().parse().unwrap(),
                };
                let before = open.insert(track.0, (name, at_ns, came_from, below));
                assert!(before.is_none(), "two slices on {track:?}");
            }
            Mark::End { track, why } => {
                let (name, from_ns, came_from, below) = open.remove(&track.0).expect("only what began ends");
                slices.push((track.0, name, from_ns, at_ns, why, came_from, below));
            }
            Mark::Wake { task, flow, .. } => {
                begun.insert(flow.0);
                wakes.push((at_ns, recorder.names.text(task).to_owned()));
            }
        }
    }
    assert!(open.is_empty(), "every slice ends");
    slices.sort();
    (slices, wakes)
}

/// The VM of each track of a vCPU, after those of the 16 pCPUs.
fn vm_of_track() -> Vec<&'static str> {
    let of_vm = |vm: &'static tandem_sim::scenario::Workload| (0..vm.task_count()).map(|_| vm.name.as_str());
    RUN.0.workloads.iter().flat_map(of_vm).collect()
}

fn asked() -> impl Strategy<Value = Asked> {
    let vms = prop_oneof![
        Just((vec![], vec!["batch-0", "batch-1", "web-0", "builder-0", "builder-1"])),
        Just((vec!["web"], vec!["web-0"])),
        Just((vec!["builder"], vec!["builder-0", "builder-1"])),
        Just((vec!["builder-1", "batch"], vec!["builder-1", "batch-0", "batch-1"])),
    ];
    let cpus = prop_oneof![
        Just((None, (0..16).collect::<Vec<u64>>())),
        Just((Some("0-3"), vec![0, 1, 2, 3])),
        Just((Some("5, 12"), vec![5, 12])),
        Just((Some("node:1"), (8..16).collect())),
        Just((Some("all"), (0..16).collect())),
    ];
    let at = || prop_oneof![1 => Just(None), 3 => (0..END_NS + 1).prop_map(Some)];
    let window = (at(), at()).prop_map(|ends| match ends {
        (Some(one), Some(other)) if one != other => (Some(one.min(other)), Some(one.max(other))),
        (Some(one), _) => (Some(one), None),
        (None, other) => (None, other.map(|at| at.max(1))),
    });
    (vms, cpus, window)
        .prop_filter("it begins within the run", |(_, _, (from_ns, _))| from_ns.is_none_or(|it| it < END_NS))
        .prop_map(|((vms, names), (cpus, numbers), (from_ns, to_ns))| Asked {
            selection: Selection {
                from_ns,
                to_ns,
                vms: vms.into_iter().map(str::to_owned).collect(),
                cpus: cpus.map(str::to_owned),
            },
            vms: names.into_iter().map(str::to_owned).collect(),
            cpus: numbers.into_iter().collect(),
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn lines_of_a_part_are_those_of_the_whole_that_belong_to_it(asked in asked()) {
        let mut part = lines(&asked.selection);
        let mut all = lines(&Selection::default());
        let mut header = part.remove(0);
        let told = header.as_object_mut().unwrap().remove("selection");
        prop_assert_eq!(told.is_none(), asked.selection.is_all());
        prop_assert_eq!(header, all.remove(0));
        prop_assert_eq!(part, asked.of_lines(&all));
    }

    #[test]
    fn slices_of_a_part_are_those_of_the_whole_cut_at_the_ends_of_the_window(asked in asked()) {
        let from_ns = asked.selection.from_ns.unwrap_or(0);
        let to_ns = asked.selection.to_ns.unwrap_or(u64::MAX);
        let vms = vm_of_track();
        let is_asked = |(track, name, from, to, .., below): &Slice| {
            let vm = track.checked_sub(16).map_or_else(|| name.split('/').next().unwrap(), |track| vms[track]);
            asked.vms.contains(vm) && asked.cpus.contains(below) && *to >= from_ns && *from < to_ns
        };
        let cut = |(track, name, from, to, why, came_from, below): Slice| {
            let (to, why) = if to >= to_ns { (to_ns, "end of the window") } else { (to, why) };
            // The slice that a window begins with says nothing of what was before.
            let came_from = came_from.filter(|_| from >= from_ns);
            (track, name, from.max(from_ns), to, why, came_from, below)
        };
        let (all, _) = drawn(&Selection::default());
        let mut expected: Vec<Slice> = all.into_iter().filter(is_asked).map(cut).collect();
        expected.sort();
        let (part, wakes) = drawn(&asked.selection);
        prop_assert_eq!(part, expected);
        let of_lines = lines(&asked.selection).into_iter().filter(|line| line["kind"] == "wake");
        let of_lines = of_lines.map(|line| (line["at_ns"].as_u64().unwrap(), line["task"].as_str().unwrap().to_owned()));
        prop_assert_eq!(wakes, of_lines.collect::<Vec<_>>(), "both formats have the same wake-ups");
    }
}

#[test]
fn what_the_run_does_not_have_is_refused() {
    let refused = |selection: Selection| {
        let run = TracedRun { scenario_name: "mixed.toml", scenario: &RUN.0, seed: 3, selection: &selection };
        JsonLines::new(Vec::new(), run).err().unwrap().to_string()
    };
    let all = Selection::default;
    for (selection, message) in [
        (
            Selection { from_ns: Some(5), to_ns: Some(5), ..all() },
            "would end at 5 ns, before it begins at 5 ns",
        ),
        (
            Selection { to_ns: Some(END_NS + 1), ..all() },
            "would end at 50000001 ns, but the run ends at 50000000",
        ),
        (Selection { from_ns: Some(END_NS), ..all() }, "the run ends at 50000000 ns, its warm-up included"),
        (
            Selection { vms: vec!["wbe".into()], ..all() },
            "no group `wbe` to trace; there are the groups batch, web, builder",
        ),
        (Selection { cpus: Some("16".into()), ..all() }, "`16` names no CPUs of the machine; allowed are"),
        (Selection { cpus: Some("".into()), ..all() }, "names no CPU"),
    ] {
        let error = refused(selection);
        assert!(error.contains(message), "{error}");
    }
}

/// Ends a run at the first event from this time on, ns.
struct Cut {
    at_ns: u64,
    ended_ns: u64,
    seen: Vec<Event>,
}

impl Observer for Cut {
    fn observe(&mut self, event: Event) {
        self.seen.push(event);
    }

    fn goes_on(&mut self, now_ns: u64) -> bool {
        self.ended_ns = now_ns;
        now_ns < self.at_ns
    }
}

#[test]
fn a_run_that_is_ended_is_the_beginning_of_the_whole() {
    let whole: Vec<Event> = RUN
        .1
        .iter()
        .filter_map(|seen| match seen {
            Seen::Event(event) => Some(*event),
            Seen::Name(..) => None,
        })
        .collect();
    for at_ns in [1, 3_000_000, 17_123_456, END_NS - 1] {
        let mut cut = Cut { at_ns, ended_ns: 0, seen: Vec::new() };
        let metrics = tandem_sim::run_observed(&RUN.0, 3, &mut cut).unwrap();
        let before = whole.iter().take_while(|event| event.at_ns < cut.ended_ns).copied();
        assert_eq!(cut.seen, before.collect::<Vec<_>>(), "{at_ns}");
        assert!(cut.ended_ns >= at_ns && cut.ended_ns <= END_NS);
        assert_eq!(metrics.length_ns, cut.ended_ns, "what is measured is the time until then");
        let host = &metrics.host;
        let times_ns = host.busy_ns + host.idle_ns + host.away_ns + host.overhead_ns;
        assert_eq!(times_ns, 16 * cut.ended_ns, "all of it is accounted for");
    }
}
