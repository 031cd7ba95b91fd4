//! Unloads a scheduler and loads it again: all tasks and cgroups end for it, its maps and queues go, and a
//! new instance of the same code begins with the present tasks and cgroups.
//!
//! Tasks keep the kernel's part of their state. Between the two, the kernel's own scheduler would have them;
//! that takes no time here.

use super::kernel::{Purpose, TaskState};
use super::scheduler::Scheduler;
use super::structures::{Field, field, store};
use super::types::{
    ExitInfo, SCX_ECODE_ACT_RESTART, SCX_ECODE_RSN_HOTPLUG, SCX_EXIT_UNREG, SCX_EXIT_UNREG_KERN, Task,
};
use crate::policy::TaskFacts;
use std::sync::Arc;
use tandem_ebpf::{Fault, Instance, State};
use tandem_machine::ids::{CpuId, TaskId};

/// Fields of a task that belong to the kernel, and stay.
const KEPT: [Field; 10] = [
    field!(Task, flags),
    field!(Task, se.exec_start),
    field!(Task, se.sum_exec_runtime),
    field!(Task, se.nr_migrations),
    field!(Task, nvcsw),
    field!(Task, nivcsw),
    field!(Task, utime),
    field!(Task, stime),
    field!(Task, start_time),
    field!(Task, start_boottime),
];

/// A task while there is no scheduler.
pub(super) struct Survivor {
    task: TaskId,
    pid: i32,
    cpu: usize,
    was_queued: bool,
    ran: bool,
    kept: [u64; KEPT.len()],
}

/// Why a scheduler ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// An administrator unloads it.
    Unloaded,
    /// A CPU goes offline or comes online, and the scheduler has no callback for that.
    Hotplug,
}

impl Scheduler {
    /// Unloads the scheduler, and ends all tasks and cgroups for it; returns the tasks that exist.
    pub fn unload(&mut self, ending: Ending) -> Vec<Survivor> {
        let mut survivors = Vec::new();
        for task in self.kernel.run_queues().tasks().known().collect::<Vec<_>>() {
            let queues = self.kernel.run_queues();
            let TaskState { cpu, pid, is_queued: was_queued, .. } = queues.tasks()[task];
            let ran = queues.runs(task);
            self.make_quiescent(task, 0);
            let (queues, state) = self.queues();
            let kept = KEPT.map(|field| queues.tasks().get(state, task, field));
            survivors.push(Survivor { task, pid, cpu, was_queued, ran, kept });
            let (address, arguments) = (self.address(task), self.kernel.exit_task_args());
            self.call(self.kernel.callbacks().disable, Purpose::Other, &[address]);
            self.call(self.kernel.callbacks().exit_task, Purpose::Other, &[address, arguments]);
        }
        // In reverse order, each cgroup still comes after its descendants (`css_for_each_descendant_post()`).
        for at in self.kernel.cgroups().in_order().into_iter().rev() {
            let arguments = [self.kernel.cgroups().get(at).address];
            self.call(self.kernel.callbacks().cgroup_exit, Purpose::Other, &arguments);
        }
        if let Some(callback) = self.kernel.callbacks().exit
            && let Ok(info) = exit_info(self.instance.state_mut(), ending)
        {
            self.call(Some(callback), Purpose::Other, &[info]);
        }
        survivors
    }

    /// Loads the scheduler again, with the facts of all tasks and the tasks that exist.
    pub fn load(&mut self, facts: &[TaskFacts], survivors: &[Survivor]) -> Result<(), Fault> {
        let next_pid = self.kernel.run_queues_mut().tasks_mut().set_next_pid(0);
        self.kernel.unload();
        self.instance = Instance::new(Arc::clone(&self.settings.code), self.kernel.machine().cpu_count())?;
        self.boot()?;
        let (kernel, state) = self.parts();
        for cpu in 0..kernel.machine().cpu_count() {
            if kernel.run_queues().cpu(cpu).is_taken {
                kernel.show_intruder(state, cpu)?;
            }
        }
        for &Survivor { task, pid, cpu, ref kept, .. } in survivors {
            self.kernel.run_queues_mut().tasks_mut().set_next_pid(pid);
            self.init_task(task, &facts[task.index()], Some(CpuId::from(cpu)), false)?;
            let (queues, state) = self.queues();
            KEPT.iter().zip(kept).for_each(|(&field, &value)| queues.tasks().set(state, task, field, value));
        }
        self.kernel.run_queues_mut().tasks_mut().set_next_pid(next_pid);
        for survivor in survivors {
            self.enable_task(survivor.task, &facts[survivor.task.index()], false)?;
        }
        // The scheduler gets the waiting tasks at the end of the bypass mode, after all running ones.
        let queued = || survivors.iter().filter(|survivor| survivor.was_queued);
        for &Survivor { task, cpu, .. } in queued().filter(|survivor| survivor.ran) {
            self.go_on_running(task, cpu);
            self.kernel.run_queues_mut().pending_mut().reschedule(cpu);
        }
        for &Survivor { task, cpu, .. } in queued().filter(|survivor| !survivor.ran) {
            let (kernel, state) = self.parts();
            let to = kernel.allowed_cpu(state, task, cpu);
            self.make_runnable(task, to, 0);
        }
        self.finish_start()
    }
}

/// The argument of the scheduler's `exit`.
fn exit_info(state: &mut State, ending: Ending) -> Result<u64, Fault> {
    const MESSAGE_BYTES: usize = 8;
    let info = state.memory.allocate(ExitInfo::SIZE)?;
    let nothing = state.memory.allocate(MESSAGE_BYTES)?;
    let (kind, code) = match ending {
        Ending::Unloaded => (SCX_EXIT_UNREG, 0),
        Ending::Hotplug => (SCX_EXIT_UNREG_KERN, SCX_ECODE_ACT_RESTART | SCX_ECODE_RSN_HOTPLUG),
    };
    store(&mut state.memory, info, field!(ExitInfo, kind), kind)?;
    store(&mut state.memory, info, field!(ExitInfo, exit_code), code)?;
    for field in [field!(ExitInfo, reason), field!(ExitInfo, msg), field!(ExitInfo, dump)] {
        store(&mut state.memory, info, field, nothing)?;
    }
    Ok(info)
}
