//! Compares slices with a separate account of both levels.

use super::fixture;
use crate::trace::Selection;
use crate::trace::names::Names;
use crate::trace::timeline::{Flow, Mark, Timeline, Track};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use std::collections::BTreeSet;
use tandem_machine::ids::{CpuId, KernelId, TaskId};
use tandem_sim::scenario::Scenario;
use tandem_sim::trace::{Event, EventKind, Observer};

/// Keeps the marks with their times.
pub struct Recorder {
    pub names: Names,
    timeline: Timeline,
    pub marks: Vec<(u64, Mark)>,
}

impl Recorder {
    fn new(scenario: &Scenario) -> Self {
        Self::of_part(scenario, &Selection::default())
    }

    pub fn of_part(scenario: &Scenario, selection: &Selection) -> Self {
        let mut names = Names::new(scenario);
        let timeline = Timeline::new(scenario, selection.filter(scenario).unwrap(), &mut names);
        Self { names, timeline, marks: Vec::new() }
    }

    fn advance(&mut self, now_ns: u64) {
        self.timeline.advance(now_ns, &self.names, |at_ns, mark| self.marks.push((at_ns, mark)));
    }

    pub fn finish(&mut self, at_ns: u64) {
        self.advance(at_ns);
        self.timeline.finish(|mark| self.marks.push((at_ns, mark)));
    }
}

impl Observer for Recorder {
    fn observe(&mut self, event: Event) {
        self.advance(event.at_ns);
        self.timeline.observe(event, &self.names, |mark| self.marks.push((event.at_ns, mark)));
    }

    fn named(&mut self, at_ns: u64, kernel: KernelId, task: TaskId, name: &str) {
        self.advance(at_ns);
        self.names.set(kernel, task, name);
        self.timeline.renamed(kernel, task, &self.names, |mark| self.marks.push((at_ns, mark)));
    }
}

/// Track, name, from, to and why it ended, in the order of ends.
fn slices(recorder: &Recorder) -> Vec<(usize, &str, u64, u64, &'static str)> {
    let mut open: Vec<Option<(&str, u64)>> = vec![None; 16];
    let mut slices = Vec::new();
    for &(at_ns, mark) in &recorder.marks {
        match mark {
            Mark::Begin { track, name, .. } => {
                let before = open[track.0].replace((recorder.names.text(name), at_ns));
                assert_eq!(before, None, "two slices on {track:?} at {at_ns}");
            }
            Mark::End { track, why } => {
                let (name, from_ns) = open[track.0].take().expect("only a slice that began ends");
                slices.push((track.0, name, from_ns, at_ns, why));
            }
            Mark::Wake { .. } => {}
        }
    }
    assert_eq!(open, [None; 16]);
    slices
}

fn played() -> Recorder {
    let mut recorder = Recorder::new(&fixture::scenario());
    fixture::play(&mut recorder);
    recorder.finish(fixture::END_NS);
    recorder
}

/// Tracks: 0 and 1 are the pCPUs, 2 is plain's vCPU, 3 and 4 are web's.
#[test]
fn a_guest_task_is_seen_only_while_its_vcpu_runs() {
    let left = "the vCPU left its pCPU";
    let expected = [
        (2, "on CPU 0", 120, 220, left),
        (0, "plain/vcpu0", 120, 220, "preempted"),
        (3, "sh", 110, 300, left),
        (1, "web/vcpu0", 100, 300, "preempted"),
        (2, "on CPU 1", 300, 400, left),
        (1, "plain/vcpu0", 300, 400, "blocked"),
        (4, "cc", 220, 500, "exec"),
        (4, "as", 500, 600, "blocked"),
        (0, "web/vcpu1", 220, 600, "blocked"),
        (3, "sh", 400, 700, "preempted"),
        (3, "as", 700, 800, "exited"),
        (1, "web/vcpu0", 400, 1000, "end of the run"),
        (3, "ld", 800, 1000, "end of the run"),
    ];
    assert_eq!(slices(&played()), expected);
}

/// Where the arrow of each wake-up begins and ends.
#[test]
fn an_arrow_leads_from_the_waker_to_the_next_slice() {
    let marks = played().marks;
    let end_of = |wanted: Flow| {
        marks.iter().find_map(|&(at_ns, mark)| match mark {
            Mark::Begin { track, flow: Some(flow), .. } if flow == wanted => Some((track.0, at_ns)),
            _ => None,
        })
    };
    let arrows = marks.iter().filter_map(|&(at_ns, mark)| match mark {
        Mark::Wake { track, flow, .. } => Some(((track.0, at_ns), end_of(flow).unwrap())),
        _ => None,
    });
    let expected = [
        ((3, 110), (3, 110)),
        ((0, 120), (0, 120)),
        ((3, 200), (4, 220)),
        ((1, 210), (0, 220)),
        ((3, 700), (3, 700)),
    ];
    assert_eq!(arrows.collect::<Vec<_>>(), expected);
}

#[test]
fn a_slice_after_a_migration_tells_the_cpu_before() {
    let recorder = played();
    let moves = recorder.marks.iter().filter_map(|&(at_ns, mark)| match mark {
        Mark::Begin { name, came_from: Some(cpu), .. } => Some((at_ns, recorder.names.text(name), cpu)),
        _ => None,
    });
    // ld has the number of a task that ended, but never ran elsewhere.
    assert_eq!(moves.collect::<Vec<_>>(), [(300, "plain/vcpu0", 0), (700, "as", 1)]);
}

/// The state of a task in the account.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Sleeps,
    Waits,
    RunsOn(u32),
    /// Its number may be used again.
    Gone,
}

/// One level of the account.
struct Level {
    kernel: KernelId,
    cpus: u32,
    tasks: Vec<State>,
    names: Vec<String>,
}

impl Level {
    fn new(kernel: u32, cpus: u32, tasks: usize) -> Self {
        let name = |task| format!("{kernel}.{task}");
        Self {
            kernel: KernelId(kernel),
            cpus,
            tasks: vec![State::Sleeps; tasks],
            names: (0..tasks).map(name).collect(),
        }
    }

    fn running(&self, cpu: u32) -> Option<usize> {
        self.tasks.iter().position(|&state| state == State::RunsOn(cpu))
    }

    /// One possible event on this CPU.
    fn step(&mut self, cpu: u32, choice: Choice, at_ns: u64, to: &mut impl Observer) {
        let mut show = |kind, task: usize, by| {
            let (cpu, task) = (CpuId(cpu), TaskId::from(task));
            to.observe(Event { at_ns, kernel: self.kernel, kind, cpu, task, by });
        };
        let chosen = choice.task.index(self.tasks.len());
        let running = self.running(cpu);
        match (choice.what % 8, running, self.tasks[chosen]) {
            (0, _, State::Sleeps) => {
                show(EventKind::Wake, chosen, running.map(|by| (CpuId(cpu), Some(TaskId::from(by)))));
                self.tasks[chosen] = State::Waits;
            }
            (1..5, None, State::Waits) => {
                show(EventKind::Start, chosen, None);
                self.tasks[chosen] = State::RunsOn(cpu);
            }
            (1, Some(task), _) => {
                show(EventKind::Preempt, task, None);
                self.tasks[task] = State::Waits;
            }
            (2, Some(task), _) => {
                show(EventKind::Yield, task, None);
                self.tasks[task] = State::Waits;
            }
            (3, Some(task), _) => {
                show(EventKind::Block, task, None);
                self.tasks[task] = State::Sleeps;
            }
            (4, Some(task), _) => show(EventKind::Continue, task, None),
            // A vCPU neither ends nor becomes another program.
            (5, Some(task), _) if self.kernel != KernelId::HOST => {
                show(EventKind::Exit, task, None);
                self.tasks[task] = State::Gone;
            }
            (6, Some(task), _) if self.kernel != KernelId::HOST => self.name(task, at_ns, to),
            (7, _, State::Gone) => {
                self.tasks[chosen] = State::Sleeps;
                self.name(chosen, at_ns, to);
            }
            _ => {}
        }
    }

    fn name(&mut self, task: usize, at_ns: u64, to: &mut impl Observer) {
        self.names[task] = format!("{}.{task} since {at_ns}", self.kernel.0);
        to.named(at_ns, self.kernel, TaskId::from(task), &self.names[task]);
    }
}

/// A choice among the possible events.
#[derive(Clone, Debug)]
struct Choice {
    level: Index,
    cpu: Index,
    task: Index,
    what: u8,
}

fn choice() -> impl Strategy<Value = Choice> {
    (any::<Index>(), any::<Index>(), any::<Index>(), any::<u8>())
        .prop_map(|(level, cpu, task, what)| Choice { level, cpu, task, what })
}

const PCPUS: u32 = 2;
/// The VMs: `a` has vCPUs 0 and 1 and a guest kernel, `b` has vCPU 2 and none, `c` has vCPUs 3 and 4 and a
/// guest kernel.
const VMS: [(&str, u32, bool); 3] = [("a", 2, true), ("b", 1, false), ("c", 2, true)];
const VCPUS: [(&str, KernelId, u32); 5] = [
    ("a/vcpu0", KernelId(1), 0),
    ("a/vcpu1", KernelId(1), 1),
    ("b/vcpu0", KernelId(2), 0),
    ("c/vcpu0", KernelId(3), 0),
    ("c/vcpu1", KernelId(3), 1),
];

/// What each track must show according to the account.
fn expected(host: &Level, guests: &[Level]) -> Vec<Option<String>> {
    let pcpus = (0..PCPUS).map(|cpu| host.running(cpu).map(|vcpu| VCPUS[vcpu].0.to_owned()));
    let vcpus = VCPUS.iter().enumerate().map(|(vcpu, &(_, kernel, cpu))| {
        let State::RunsOn(pcpu) = host.tasks[vcpu] else { return None };
        match guests.iter().find(|guest| guest.kernel == kernel) {
            None => Some(format!("on CPU {pcpu}")),
            Some(guest) => guest.running(cpu).map(|task| guest.names[task].clone()),
        }
    });
    pcpus.chain(vcpus).collect()
}

proptest! {
    /// After each event, the tracks show the tasks that run, and nothing else; slices do not overlap, and
    /// each arrow ends once, after it began.
    #[test]
    fn tracks_show_what_runs(choices in vec(choice(), 0..400)) {
        let mut recorder = Recorder::new(&fixture::scenario_with(PCPUS, &VMS));
        let mut host = Level::new(0, PCPUS, VCPUS.len());
        let mut guests = [Level::new(1, 2, 3), Level::new(3, 2, 3)];
        for guest in &mut guests {
            for task in 0..guest.tasks.len() {
                guest.name(task, 0, &mut recorder);
            }
        }
        let mut shown = vec![None; PCPUS as usize + VCPUS.len()];
        let mut flows = BTreeSet::new();
        let mut seen = 0;
        for (at_ns, choice) in (1..).zip(choices) {
            match choice.level.index(3) {
                0 => host.step(choice.cpu.index(host.cpus as usize) as u32, choice, at_ns, &mut recorder),
                level => {
                    let guest = &mut guests[level - 1];
                    let cpu = choice.cpu.index(guest.cpus as usize) as u32;
                    let vcpu = VCPUS.iter().position(|&(_, kernel, at)| (kernel, at) == (guest.kernel, cpu));
                    // A guest does something on a vCPU only while that runs.
                    if let State::RunsOn(_) = host.tasks[vcpu.unwrap()] {
                        guest.step(cpu, choice, at_ns, &mut recorder);
                    }
                }
            }
            for &(_, mark) in &recorder.marks[seen..] {
                match mark {
                    Mark::Begin { track: Track(track), name, flow, .. } => {
                        let name = recorder.names.text(name).to_owned();
                        prop_assert_eq!(shown[track].replace(name), None);
                        prop_assert!(flow.is_none_or(|flow| flows.remove(&flow.0)));
                    }
                    Mark::End { track: Track(track), .. } => prop_assert!(shown[track].take().is_some()),
                    Mark::Wake { flow, .. } => prop_assert!(flows.insert(flow.0)),
                }
            }
            seen = recorder.marks.len();
            prop_assert_eq!(&shown, &expected(&host, &guests));
        }
        recorder.finish(1000);
        let open = shown.iter().flatten().count();
        prop_assert_eq!(recorder.marks.len() - seen, open);
        slices(&recorder);
    }
}
