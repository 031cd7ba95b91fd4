//! Runs a program in the simulator, and records the same as the guest.

use super::emulator::Emulator;
use crate::guest::perform::task_name;
use crate::record::{Record, Task, Waits};
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::sync::Arc;
use tandem_lab::scenario::ScenarioSource;
use tandem_lab::scenario::policy::PolicyTable;
use tandem_lab::scenario::policy::scheduler::HostScheduler;
use tandem_machine::Machine;
use tandem_machine::cpumask::CpuMask;
use tandem_machine::ids::{KernelId, TaskId};
use tandem_settings::{Place, Preference, Subject, request_bytes};
use tandem_sim::policy::linux::LinuxEra;
use tandem_sim::scenario::{PolicySettings, Scenario};
use tandem_sim::trace::{Event, EventKind, Observer};

/// The scenario of a program, with this scheduler as the host's; Linux's is that of a kernel of this release.
pub fn scenario(program: &str, host: impl Into<HostScheduler>, kernel: &str) -> Result<Scenario> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("agreement").join(format!("{program}.toml"));
    let policy = PolicyTable { host: Some(host.into()), ..PolicyTable::default() };
    let mut scenario = ScenarioSource::read(&file)?.build(&Default::default(), &policy)?;
    // What the guest's kernel does is in its records.
    scenario.remove_kernel_threads();
    match &mut scenario.policy {
        PolicySettings::SchedExt(settings) => {
            if let Some(preferences) = &mut Arc::make_mut(settings).preferences {
                preferences.request = preference_request;
            }
        }
        PolicySettings::Linux(settings) => settings.era = era(kernel)?,
        PolicySettings::Credit(_) | PolicySettings::Credit2(_) => {}
    }
    Ok(scenario)
}

/// The model of a release.
fn era(kernel: &str) -> Result<LinuxEra> {
    let eras = [("6.12.", LinuxEra::V6_12), ("6.18.", LinuxEra::V6_18), ("7.3.", LinuxEra::V7_3)];
    match eras.iter().find(|(release, _)| kernel.starts_with(release)) {
        Some((_, era)) => Ok(*era),
        None => bail!("there is no model of the scheduler of {kernel}; there are of 6.12, 6.18 and 7.3"),
    }
}

/// The request that sets the preference of a task: the guest names CPUs, whole nodes too.
fn preference_request(pid: u64, preferred: Option<&CpuMask>, _: &Machine) -> Vec<u8> {
    let place = preferred.map(|preferred| Place::Cpus(preferred.iter().map(|cpu| cpu.0).collect()));
    request_bytes(Subject::Task(pid as u32), &Preference { place, latency_critical: false })
}

/// The run of a record's program in the simulator with this seed, with the surroundings of the guest.
pub fn run(scenario: &Scenario, emulator: &Emulator, record: &Record, seed: u64) -> Result<Record> {
    let program = &record.program;
    let mut watch = Watch::new(scenario, &record.tasks);
    let mut surrounded = scenario.clone();
    emulator.surround(&mut surrounded, record);
    let metrics = tandem_sim::run_observed(&surrounded, seed, &mut watch)
        .with_context(|| format!("cannot simulate {program}"))?;
    let length_ns = scenario.length_ns;
    let (tasks, span_ns, waits) = watch.end(length_ns);
    let counters = metrics.host.policy.iter().map(|(&name, &count)| (name.to_owned(), count)).collect();
    Ok(Record {
        program: program.clone(),
        scheduler: record.scheduler.clone(),
        kernel: "simulated".into(),
        length_ns,
        span_ns,
        tasks,
        waits,
        counters,
        others: Vec::new(),
        idle_wakes: 0,
        idle_wake_ns: 0,
        search_ns: Vec::new(),
    })
}

/// Follows the tasks of the program.
struct Watch {
    tasks: Vec<Watched>,
    span_ns: u64,
    waits_ns: Vec<u64>,
}

#[derive(Default)]
struct Watched {
    task: Task,
    last_cpu: Option<usize>,
    since_ns: Option<u64>,
    waits_since_ns: Option<u64>,
}

impl Watch {
    fn new(scenario: &Scenario, started: &[Task]) -> Self {
        let cpus = scenario.machine.cpu_count();
        let names = scenario
            .workloads
            .iter()
            .flat_map(|set| (0..set.task_count()).map(|number| task_name(&set.name, number)));
        let tasks = names.zip(started).map(|(name, Task { start_ns, .. })| Watched {
            task: Task { name, start_ns: *start_ns, run_ns: vec![0; cpus], ..Task::default() },
            ..Watched::default()
        });
        Self { tasks: tasks.collect(), span_ns: 0, waits_ns: Vec::new() }
    }

    fn leaves(&mut self, task: TaskId, at_ns: u64) {
        let watched = &mut self.tasks[task.index()];
        if let (Some(cpu), Some(since_ns)) = (watched.last_cpu, watched.since_ns.take()) {
            watched.task.run_ns[cpu] += at_ns - since_ns;
            self.span_ns = at_ns;
        }
    }

    /// The activity of the tasks, when one of them last left a CPU, and how long they waited.
    fn end(mut self, length_ns: u64) -> (Vec<Task>, u64, Waits) {
        for task in 0..self.tasks.len() {
            self.leaves(task.into(), length_ns);
        }
        let tasks = self.tasks.into_iter().map(|watched| watched.task).collect();
        (tasks, self.span_ns, Waits::of(self.waits_ns))
    }
}

impl Observer for Watch {
    fn observe(&mut self, event: Event) {
        if event.kernel != KernelId::HOST || event.task.index() >= self.tasks.len() {
            return;
        }
        let watched = &mut self.tasks[event.task.index()];
        if event.at_ns < watched.task.start_ns {
            return;
        }
        match event.kind {
            EventKind::Start => {
                let cpu = event.cpu.index();
                if watched.last_cpu.replace(cpu).is_some_and(|last| last != cpu) {
                    watched.task.migrations += 1;
                }
                watched.since_ns = Some(event.at_ns);
                self.waits_ns.extend(watched.waits_since_ns.take().map(|since_ns| event.at_ns - since_ns));
            }
            EventKind::Preempt | EventKind::Yield => {
                watched.task.runnable += 1;
                watched.waits_since_ns = Some(event.at_ns);
                self.leaves(event.task, event.at_ns);
            }
            EventKind::Block | EventKind::Exit => {
                watched.task.blocked += 1;
                self.leaves(event.task, event.at_ns);
            }
            EventKind::Wake if watched.last_cpu.is_some() => watched.waits_since_ns = Some(event.at_ns),
            EventKind::Wake | EventKind::Continue => {}
        }
    }
}
