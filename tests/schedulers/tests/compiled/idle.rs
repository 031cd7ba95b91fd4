//! Whether CPUs idle while tasks wait that could use them.

use crate::support::{build, count, file_with};
use scheduler_tests::{EXAMPLES, PUBLISHED};
use std::collections::BTreeMap;
use tandem_machine::cpumask::CpuMask;
use tandem_machine::ids::{CpuId, TaskId};
use tandem_sim::metrics::RunMetrics;
use tandem_sim::run_observed;
use tandem_sim::scenario::Scenario;
use tandem_sim::trace::{Event, EventKind, Observer};

/// Follows which tasks of the host wait and which of its CPUs idle, and since when.
struct Beside<'a> {
    allowed: Vec<&'a CpuMask>,
    waiting: BTreeMap<TaskId, u64>,
    idle: BTreeMap<CpuId, u64>,
    longest_ns: u64,
}

impl<'a> Beside<'a> {
    fn new(scenario: &'a Scenario) -> Self {
        let affinities = scenario.workloads.iter().flat_map(|workload| workload.affinities());
        Self {
            allowed: affinities.map(|affinity| &*affinity.hard).collect(),
            waiting: BTreeMap::new(),
            idle: scenario.machine.all_cpus().iter().map(|cpu| (cpu, 0)).collect(),
            longest_ns: 0,
        }
    }

    /// A task has waited, and a CPU idled, until now.
    fn compare(&mut self, now_ns: u64, task: (TaskId, u64), cpu: (CpuId, u64)) {
        if self.allowed[task.0.index()].contains(cpu.0) {
            self.longest_ns = self.longest_ns.max(now_ns - task.1.max(cpu.1));
        }
    }
}

impl Observer for Beside<'_> {
    fn observe(&mut self, Event { at_ns, kernel, kind, cpu, task, .. }: Event) {
        if kernel.index() != 0 {
            return;
        }
        match kind {
            EventKind::Continue => return,
            EventKind::Wake => {}
            EventKind::Start => {
                assert!(
                    self.allowed[task.index()].contains(cpu),
                    "{task:?} runs on {cpu:?}, where it may not"
                );
                let since_ns = self.waiting.remove(&task).expect("it waited");
                for other in self.idle.clone() {
                    self.compare(at_ns, (task, since_ns), other);
                }
                // `None` if the CPU changes from one task to another, which it reports later.
                if let Some(idle_ns) = self.idle.remove(&cpu) {
                    for other in self.waiting.clone() {
                        self.compare(at_ns, other, (cpu, idle_ns));
                    }
                }
                return;
            }
            EventKind::Preempt | EventKind::Yield | EventKind::Block | EventKind::Exit => {
                self.idle.insert(cpu, at_ns);
            }
        }
        if matches!(kind, EventKind::Wake | EventKind::Preempt | EventKind::Yield) {
            self.waiting.insert(task, at_ns);
        }
    }
}

/// Runs a scenario; and the longest time that a CPU idled while a task waited that could have run there, ns.
fn run_beside(scenario: &Scenario) -> (RunMetrics, u64) {
    let mut beside = Beside::new(scenario);
    let metrics = run_observed(scenario, 1, &mut beside).unwrap_or_else(|error| panic!("{error}"));
    let end_ns = scenario.warmup_ns + metrics.length_ns;
    for task in beside.waiting.clone() {
        for cpu in beside.idle.clone() {
            beside.compare(end_ns, task, cpu);
        }
    }
    (metrics, beside.longest_ns)
}

/// Sleepers, hogs and pinned tasks, fewer than CPUs at some times and more at others.
const MIXED: &str = r#"length = "300ms"
machine = "xeon-e5620-2s"
policy = { host = HOST }
[programs.hog]
ops = [{ forever = [{ compute = "1ms" }, { count = "rounds" }] }]
[programs.sleeper]
ops = [{ forever = [{ compute = { exponential = "200us" } }, { sleep = { exponential = "400us" } }, { count = "rounds" }] }]
[programs.batch]
ops = [{ repeat = { times = 8, body = [{ compute = "5ms" }, { sleep = "10ms" }] } }, { count = "ended" }]
[[processes]]
group = "hogs"
memory = "1GiB"
process = [{ program = "hog", copies = 6 }]
[[processes]]
group = "sleepers"
memory = "1GiB"
process = [{ program = "sleeper", copies = 20 }]
[[processes]]
group = "batches"
memory = "1GiB"
process = [{ program = "batch", copies = 10 }]
[[vm]]
group = "half"
vcpus = 4
memory = "1GiB"
affinity = { hard = "node:1" }
programs = ["sleeper"]
[[vm]]
group = "pinned"
vcpus = 1
memory = "1GiB"
affinity = { hard = "3" }
programs = ["sleeper"]
"#;

/// Several times the time that a CPU needs to wake up, decide and switch, ns.
const AT_ONCE_NS: u64 = 50_000;
/// A period of the timer of `central`, which ends the wait of tasks whose CPUs got no kick, ns.
const TIMER_NS: u64 = 1_000_000;
/// The published ones have queues for single CPUs besides, and are not work-conserving by design: a few
/// slices, ns.
const SOON_NS: u64 = 10_000_000;

#[test]
fn all_work_is_done_and_no_cpu_idles_for_long_beside_it() {
    for name in EXAMPLES.into_iter().chain(PUBLISHED) {
        // Kernels before 7.3 have no cids.
        let kernels = if name == "topological" { &["7.3"][..] } else { &["6.12", "7.3"] };
        for kernel in kernels {
            let host = file_with(name, &format!("kernel = \"{kernel}\""));
            let (metrics, longest_ns) = run_beside(&build(&MIXED.replace("HOST", &host)));
            let bound_ns = match name {
                "fifo" | "weighted" | "tree" | "topological" => AT_ONCE_NS,
                "central" => TIMER_NS,
                _ => SOON_NS,
            };
            assert!(
                longest_ns < bound_ns,
                "{name} in {kernel}: a CPU idled for {longest_ns} ns beside a waiting task"
            );
            assert_eq!(count(&metrics, "batches"), 10, "{name} in {kernel}");
            // Alone they would do 1800, 10,000, 2000 and 500.
            for (group, least) in [("hogs", 600), ("sleepers", 5000), ("half", 900), ("pinned", 100)] {
                let done = count(&metrics, group);
                assert!(done > least, "{name} in {kernel}: {group} did {done}");
            }
        }
    }
}
