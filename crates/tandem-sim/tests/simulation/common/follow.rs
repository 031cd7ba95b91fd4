//! The life of each task in a run, from the run's events alone.

use proptest::test_runner::TestCaseError;
use tandem_machine::ids::{CpuId, TaskId, VmId};
use tandem_sim::metrics::RunMetrics;
use tandem_sim::run_observed;
use tandem_sim::scenario::{Affinity, Scenario};
use tandem_sim::trace::{Event, EventKind};

/// The state of a task for some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    Sleeps,
    Waits,
    RunsOn(CpuId),
    HasEnded,
}

/// A stretch of a task's life.
#[derive(Clone, Copy, Debug)]
pub struct Stretch {
    pub from_ns: u64,
    pub to_ns: u64,
    pub doing: Doing,
}

/// The life of a task: stretches without gaps from 0 to the end of the run.
#[derive(Clone, Debug)]
pub struct Life {
    pub vm: VmId,
    /// Its number in the VM.
    pub vcpu: usize,
    pub stretches: Vec<Stretch>,
}

impl Life {
    pub fn affinity<'a>(&self, scenario: &'a Scenario) -> &'a Affinity {
        scenario.workloads[self.vm.index()].affinity(self.vcpu)
    }

    /// The stretches of a kind.
    pub fn while_doing(&self, doing: Doing) -> impl Iterator<Item = &Stretch> {
        self.stretches.iter().filter(move |stretch| stretch.doing == doing)
    }

    fn change(&mut self, at_ns: u64, doing: Doing, end_ns: u64) {
        self.last().to_ns = at_ns;
        self.stretches.push(Stretch { from_ns: at_ns, to_ns: end_ns, doing });
    }

    fn last(&mut self) -> &mut Stretch {
        self.stretches.last_mut().expect("a life begins asleep")
    }
}

/// A run that was followed.
pub struct Followed {
    pub metrics: RunMetrics,
    /// The lives of all tasks, from the start of the run.
    pub lives: Vec<Life>,
    pub end_ns: u64,
}

/// Runs the scenario, and returns the lives of its tasks.
///
/// # Errors
/// If an event cannot follow those before it.
pub fn follow(scenario: &Scenario, seed: u64) -> Result<Followed, TestCaseError> {
    let mut events: Vec<Event> = Vec::new();
    let metrics = run_observed(scenario, seed, &mut events).unwrap();
    let end_ns = scenario.warmup_ns + metrics.length_ns;
    let lives = lives(scenario, &events, end_ns).map_err(TestCaseError::fail)?;
    Ok(Followed { metrics, lives, end_ns })
}

/// The lives of all tasks until `end_ns`.
///
/// # Errors
/// The first event that cannot follow those before it: one that is impossible in the task's state, two tasks
/// on one CPU, or time that goes back.
fn lives(scenario: &Scenario, events: &[Event], end_ns: u64) -> Result<Vec<Life>, String> {
    let vms = scenario.workloads.iter().enumerate().map(|(at, spec)| (VmId::from(at), spec));
    let asleep = Stretch { from_ns: 0, to_ns: end_ns, doing: Doing::Sleeps };
    let mut lives: Vec<Life> = vms
        .flat_map(|(vm, spec)| {
            (0..spec.task_count()).map(move |vcpu| Life { vm, vcpu, stretches: vec![asleep] })
        })
        .collect();
    let mut on_cpu: Vec<Option<TaskId>> = vec![None; scenario.machine.cpu_count()];
    let mut clock_ns = 0;
    for event in events {
        let Event { at_ns, kind, cpu, task, .. } = *event;
        if at_ns < clock_ns || at_ns > end_ns {
            return Err(format!("{event:?} is not between {clock_ns} ns and {end_ns} ns"));
        }
        clock_ns = at_ns;
        let life = &mut lives[task.index()];
        let before = life.last().doing;
        let after = match (kind, before) {
            (EventKind::Wake, Doing::Sleeps) => Doing::Waits,
            (EventKind::Start, Doing::Waits) => {
                if let Some(other) = on_cpu[cpu.index()].replace(task) {
                    return Err(format!("{event:?} while {other:?} is there"));
                }
                Doing::RunsOn(cpu)
            }
            (EventKind::Continue, Doing::RunsOn(there)) if there == cpu => continue,
            (EventKind::Preempt | EventKind::Yield, Doing::RunsOn(there)) if there == cpu => Doing::Waits,
            (EventKind::Block, Doing::RunsOn(there)) if there == cpu => Doing::Sleeps,
            (EventKind::Exit, Doing::RunsOn(there)) if there == cpu => Doing::HasEnded,
            _ => return Err(format!("{event:?} of a task that is {before:?}")),
        };
        if let Doing::RunsOn(there) = before {
            on_cpu[there.index()] = None;
        }
        life.change(at_ns, after, end_ns);
    }
    Ok(lives)
}

/// The longest time that a CPU idled while a vCPU that may run there waited, ns; for scenarios without
/// changes of affinity.
pub fn longest_idle_beside_waiting_ns(scenario: &Scenario, run: &Followed) -> u64 {
    let idle_of = |cpu: CpuId| {
        let mut busy: Vec<&Stretch> =
            run.lives.iter().flat_map(|life| life.while_doing(Doing::RunsOn(cpu))).collect();
        busy.sort_by_key(|stretch| (stretch.from_ns, stretch.to_ns));
        let starts = std::iter::once(0).chain(busy.iter().map(|stretch| stretch.to_ns));
        let ends = busy.iter().map(|stretch| stretch.from_ns).chain([run.end_ns]);
        starts.zip(ends).collect::<Vec<_>>()
    };
    let mut longest_ns = 0;
    for cpu in scenario.machine.all_cpus().iter() {
        let idle = idle_of(cpu);
        for life in &run.lives {
            if !life.affinity(scenario).hard.contains(cpu) {
                continue;
            }
            for wait in life.while_doing(Doing::Waits) {
                let first = idle.partition_point(|(_, to_ns)| *to_ns <= wait.from_ns);
                let beside = idle[first..].iter().take_while(|(from_ns, _)| *from_ns < wait.to_ns);
                for (from_ns, to_ns) in beside {
                    longest_ns = longest_ns.max(wait.to_ns.min(*to_ns) - wait.from_ns.max(*from_ns));
                }
            }
        }
    }
    longest_ns
}
