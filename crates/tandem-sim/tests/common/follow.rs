//! What became of each task in a run, told from its events alone.

use tandem_sim::ids::{CpuId, TaskId, VmId};
use tandem_sim::scenario::Scenario;
use tandem_sim::trace::{Event, EventKind};

/// What a task does for some time.
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
    pub stretches: Vec<Stretch>,
}

impl Life {
    fn change(&mut self, at_ns: u64, doing: Doing, end_ns: u64) {
        if let Some(last) = self.stretches.last_mut() {
            last.to_ns = at_ns;
        }
        self.stretches.push(Stretch { from_ns: at_ns, to_ns: end_ns, doing });
    }

    fn doing(&self) -> Doing {
        self.stretches.last().map_or(Doing::Sleeps, |last| last.doing)
    }

    /// Time in stretches of a kind between two instants, ns.
    pub fn time_ns(&self, from_ns: u64, to_ns: u64, is_meant: impl Fn(Doing) -> bool) -> u64 {
        let meant = self.stretches.iter().filter(|stretch| is_meant(stretch.doing));
        meant.map(|s| s.to_ns.min(to_ns).saturating_sub(s.from_ns.max(from_ns))).sum()
    }
}

/// The lives of all tasks until `end_ns`.
///
/// # Errors
/// The first event that cannot follow on those before it: a task that does something that it cannot do in its
/// state, two tasks on one CPU, or time that goes back.
pub fn lives(scenario: &Scenario, events: &[Event], end_ns: u64) -> Result<Vec<Life>, String> {
    let owners = scenario.vms.iter().enumerate().flat_map(|(vm, spec)| vec![VmId::from(vm); spec.vcpus.len()]);
    let mut lives: Vec<Life> = owners.map(|vm| Life { vm, stretches: vec![] }).collect();
    for life in &mut lives {
        life.change(0, Doing::Sleeps, end_ns);
    }
    let mut on_cpu: Vec<Option<TaskId>> = vec![None; scenario.machine.cpu_count()];
    let mut clock_ns = 0;
    for event in events {
        let Event { at_ns, kind, cpu, task } = *event;
        if at_ns < clock_ns || at_ns > end_ns {
            return Err(format!("{event:?} is not between {clock_ns} ns and {end_ns} ns"));
        }
        clock_ns = at_ns;
        let life = &mut lives[task.index()];
        let before = life.doing();
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
