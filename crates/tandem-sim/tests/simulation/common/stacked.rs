//! Checks that the events of stacked kernels can follow each other.

use std::collections::BTreeMap;
use tandem_machine::ids::{CpuId, KernelId, TaskId};
use tandem_sim::scenario::Scenario;
use tandem_sim::trace::{Event, EventKind, Observer};

/// Follows a run, and keeps the first contradiction.
#[derive(Default)]
pub struct Stacked {
    clock_ns: u64,
    /// The states of the tasks of all kernels; tasks that have not begun, or have ended, are absent.
    tasks: BTreeMap<(KernelId, TaskId), Doing>,
    /// The task on each CPU.
    on_cpu: BTreeMap<(KernelId, CpuId), TaskId>,
    /// The host's task that is each vCPU of a guest.
    vcpus: BTreeMap<(KernelId, CpuId), TaskId>,
    names: BTreeMap<(KernelId, TaskId), String>,
    pub guest_events: u64,
    pub wrong: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    Sleeps,
    Waits,
    RunsOn(CpuId),
}

impl Stacked {
    pub fn new(scenario: &Scenario) -> Self {
        let mut vcpus = BTreeMap::new();
        let mut first = 0;
        for (at, vm) in scenario.workloads.iter().enumerate() {
            if vm.guest().is_some() {
                vcpus.extend(
                    (0..vm.task_count())
                        .map(|cpu| ((KernelId::from(at + 1), CpuId::from(cpu)), TaskId::from(first + cpu))),
                );
            }
            first += vm.task_count();
        }
        Self { vcpus, ..Self::default() }
    }

    fn check(&mut self, event: Event) -> Result<(), String> {
        let Event { at_ns, kernel, kind, cpu, task, .. } = event;
        if at_ns < self.clock_ns {
            return Err(format!("{event:?} is before {} ns", self.clock_ns));
        }
        self.clock_ns = at_ns;
        if kernel != KernelId::HOST {
            self.guest_events += 1;
            if !self.names.contains_key(&(kernel, task)) {
                return Err(format!("{event:?} of a task without a name"));
            }
            let vcpu = self.vcpus[&(kernel, cpu)];
            let runs = matches!(self.tasks.get(&(KernelId::HOST, vcpu)), Some(Doing::RunsOn(_)));
            if kind != EventKind::Wake && !runs {
                return Err(format!("{event:?}, but the vCPU has no pCPU"));
            }
        }
        let before = self.tasks.get(&(kernel, task)).copied().unwrap_or(Doing::Sleeps);
        let after = match (kind, before) {
            (EventKind::Wake, Doing::Sleeps) => Some(Doing::Waits),
            (EventKind::Start, Doing::Waits) => {
                if let Some(other) = self.on_cpu.insert((kernel, cpu), task) {
                    return Err(format!("{event:?} while {other:?} is there"));
                }
                Some(Doing::RunsOn(cpu))
            }
            (EventKind::Continue, Doing::RunsOn(there)) if there == cpu => return Ok(()),
            (EventKind::Preempt | EventKind::Yield, Doing::RunsOn(there)) if there == cpu => {
                Some(Doing::Waits)
            }
            (EventKind::Block, Doing::RunsOn(there)) if there == cpu => Some(Doing::Sleeps),
            (EventKind::Exit, Doing::RunsOn(there)) if there == cpu => None,
            _ => return Err(format!("{event:?} of a task that {before:?}")),
        };
        if let Doing::RunsOn(there) = before {
            self.on_cpu.remove(&(kernel, there));
        }
        match after {
            Some(doing) => self.tasks.insert((kernel, task), doing),
            None => {
                self.names.remove(&(kernel, task));
                self.tasks.remove(&(kernel, task))
            }
        };
        Ok(())
    }
}

impl Observer for Stacked {
    fn observe(&mut self, event: Event) {
        if self.wrong.is_none() {
            self.wrong = self.check(event).err();
        }
    }

    fn named(&mut self, _: u64, kernel: KernelId, task: TaskId, name: &str) {
        self.names.insert((kernel, task), name.into());
    }
}
