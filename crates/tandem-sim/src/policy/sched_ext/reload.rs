//! A scheduler is unloaded and loaded again: it is told that all tasks and cgroups end, its maps and queues go, and another one
//! of the same code begins with what is there.
//!
//! Tasks keep what is the kernel's of them. Between the two, they would be the kernel's own scheduler's; that takes no time
//! here.

use super::SchedExt;
use super::kernel::{CpuState, Purpose, ScxKernel, field, store};
use super::types::{
    ExitInfo, SCX_ECODE_ACT_RESTART, SCX_ECODE_RSN_HOTPLUG, SCX_EXIT_UNREG, SCX_EXIT_UNREG_KERN, Task,
};
use crate::policy::Context;
use std::sync::Arc;
use tandem_ebpf::{Fault, Instance};
use tandem_machine::ids::{CpuId, TaskId};

/// Fields of a task that are the kernel's, and stay.
const KEPT: [(u64, usize); 10] = [
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
struct Survivor {
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
    /// Somebody unloads it.
    Unloaded,
    /// A CPU goes offline or comes online, and it has no callback for that.
    Hotplug,
}

impl SchedExt {
    /// Unloads the scheduler and loads it again.
    pub(crate) fn reload(&mut self, ctx: &mut Context<'_>, ending: Ending) {
        self.begin(ctx, CpuId(0));
        if self.instance.is_some() && self.failure.is_none() {
            let survivors = self.unload(ending);
            self.count_so_far();
            if let Err(fault) = self.load(ctx, &survivors) {
                self.fail(fault.to_string());
            }
        }
        self.end(ctx);
    }

    fn unload(&mut self, ending: Ending) -> Vec<Survivor> {
        let mut survivors = Vec::new();
        for task in (0..self.kernel.tasks.len()).map(TaskId::from) {
            if !self.is_known(task) {
                continue;
            }
            let state = &self.kernel.tasks[task.index()];
            let (cpu, pid, was_queued) = (state.cpu, state.pid, state.is_queued);
            let ran = self.kernel.cpus[cpu].curr == Some(task);
            self.make_quiescent(task, 0);
            let kept = KEPT.map(|field| self.kernel.get_if(self.instance.as_ref(), task, field));
            survivors.push(Survivor { task, pid, cpu, was_queued, ran, kept });
            let (address, arguments) = (self.address(task), self.kernel.exit_task_args);
            self.call(self.kernel.callbacks.disable, Purpose::Other, &[address]);
            self.call(self.kernel.callbacks.exit_task, Purpose::Other, &[address, arguments]);
        }
        self.end_cgroups();
        if let (Some(callback), Ok(info)) = (self.kernel.callbacks.exit, self.exit_info(ending)) {
            self.call(Some(callback), Purpose::Other, &[info]);
        }
        survivors
    }

    /// What the scheduler is told of its end.
    fn exit_info(&mut self, ending: Ending) -> Result<u64, Fault> {
        const MESSAGE_BYTES: usize = 8;
        let Some((_, state)) = self.parts() else { return Ok(0) };
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

    fn load(&mut self, ctx: &Context<'_>, survivors: &[Survivor]) -> Result<(), Fault> {
        let old = &mut self.kernel;
        let mut kernel =
            ScxKernel::new(&self.settings, &old.machine, old.callbacks.clone(), old.disturbances.clone());
        (kernel.now_ns, kernel.random, kernel.next_token) = (old.now_ns, old.random, old.next_token);
        (kernel.cgroups, kernel.memberships) =
            (std::mem::take(&mut old.cgroups), std::mem::take(&mut old.memberships));
        let next_pid = old.next_pid;
        for (cpu, old) in kernel.cpus.iter_mut().zip(&old.cpus) {
            let CpuState { is_idle, is_taken, is_offline, is_released, .. } = *old;
            *cpu = CpuState { is_idle, is_taken, is_offline, is_released, ..CpuState::default() };
        }
        kernel.visited = old.visited;
        // What was found out before is still to be told.
        kernel.error = old.error.take();
        self.kernel = kernel;
        self.instance = Some(Instance::new(Arc::clone(&self.settings.code), self.kernel.cpu_count)?);
        self.boot()?;
        self.show_intruders()?;
        for &Survivor { task, pid, cpu, ref kept, .. } in survivors {
            self.kernel.next_pid = pid;
            let facts = &ctx.tasks[task.index()];
            self.begin_task(task, facts, Some(CpuId::from(cpu)), false)?;
            if let Some((kernel, state)) = self.parts() {
                KEPT.iter().zip(kept).for_each(|(&field, &value)| kernel.set(state, task, field, value));
            }
        }
        self.kernel.next_pid = next_pid;
        // Those that wait are given to the scheduler at the end of the bypass mode, when it knows of all that run.
        let queued = || survivors.iter().filter(|survivor| survivor.was_queued);
        for &Survivor { task, cpu, .. } in queued().filter(|survivor| survivor.ran) {
            self.go_on_running(task, cpu);
            self.kernel.resched.push(CpuId::from(cpu));
        }
        for &Survivor { task, cpu, .. } in queued().filter(|survivor| !survivor.ran) {
            let to = match self.parts() {
                Some((kernel, state)) => kernel.allowed_cpu(state, task, cpu),
                None => cpu,
            };
            self.make_runnable(task, to, 0);
        }
        Ok(())
    }

    /// The new scheduler counts from 0: what the old one has counted is not lost.
    fn count_so_far(&mut self) {
        let before = self.counted_before.iter().copied().chain(std::iter::repeat(0));
        let counted = self.own_counters().into_iter().zip(before);
        self.counted_before = counted.map(|(now, before)| before.wrapping_sub(now)).collect();
    }
}
