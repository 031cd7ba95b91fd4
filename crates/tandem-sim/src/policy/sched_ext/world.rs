//! What happens around the scheduler while it runs: settings of cgroups and tasks change, higher scheduling classes take CPUs,
//! CPUs go offline and come back.

use super::SchedExt;
use super::kernel::{CpuState, Purpose, ScxKernel, TaskBlock, field, store};
use super::masks;
use super::start::{DEFAULT_PRIO, cgroup_weight};
use super::types::{CpuReleaseArgs, RunQueue, SCX_CPU_PREEMPT_RT, SCX_CPU_PREEMPT_STOP, Task};
use crate::policy::Context;
use crate::scenario::{BandwidthLimit, CgroupName};
use tandem_ebpf::{Fault, State};
use tandem_machine::ids::{CpuId, TaskId};

/// Rounds in which tasks of a local queue are enqueued again and come back to it (`SCX_REENQ_LOCAL_MAX_REPEAT`).
const REENQUEUE_ROUNDS_MAX: usize = 256;
const SCHED_FIFO: u64 = 1;
/// Of the task that takes CPUs: in the middle of those of real-time tasks.
const INTRUDER_RT_PRIORITY: u64 = 50;
/// `MAX_RT_PRIO - 1`, less which a real-time priority is.
const PRIO_OF_RT_0: u64 = 99;

/// Who takes a CPU from the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taker {
    /// A real-time task.
    RealTime,
    /// The kernel, as the CPU goes offline.
    Hotplug,
}

impl SchedExt {
    /// After which time a task that can run and does not ends the run, ns.
    pub(crate) fn watchdog_timeout_ns(&self) -> u64 {
        self.settings.watchdog_timeout_ns.unwrap_or(self.kernel.callbacks.timeout_ns)
    }

    /// A cgroup has another weight (`scx_group_set_weight()`).
    pub(crate) fn group_weight_changed(&mut self, ctx: &mut Context<'_>, name: CgroupName, weight: u32) {
        self.begin(ctx, CpuId(0));
        if let Some(at) = self.kernel.cgroup_named(name)
            && std::mem::replace(&mut self.kernel.cgroups[at].weight, weight.into()) != u64::from(weight)
        {
            let arguments = [self.kernel.cgroups[at].address, weight.into()];
            self.call(self.kernel.callbacks.cgroup_set_weight, Purpose::Other, &arguments);
        }
        self.end(ctx);
    }

    /// A cgroup has another limit (`scx_group_set_bandwidth()`).
    pub(crate) fn group_limit_changed(
        &mut self,
        ctx: &mut Context<'_>,
        name: CgroupName,
        limit: Option<BandwidthLimit>,
    ) {
        const NO_BURST: u64 = 0;
        self.begin(ctx, CpuId(0));
        if let Some(at) = self.kernel.cgroup_named(name)
            && self.kernel.cgroups[at].set_limit(limit)
        {
            let group = &self.kernel.cgroups[at];
            let arguments = [group.address, group.period_us, group.quota_us, NO_BURST];
            self.call(self.kernel.callbacks.cgroup_set_bandwidth, Purpose::Other, &arguments);
        }
        self.end(ctx);
    }

    /// The nice value of a task has changed: it is taken out of where it is and put back, running or not (`set_user_nice()`).
    pub(crate) fn weight_changed(&mut self, ctx: &mut Context<'_>, task: TaskId) {
        if !self.is_known(task) {
            return;
        }
        let at = self.kernel.tasks[task.index()].cpu;
        self.begin(ctx, CpuId::from(at));
        let was_queued = self.kernel.tasks[task.index()].is_queued;
        let runs = was_queued && self.kernel.cpus[at].curr == Some(task);
        self.make_quiescent(task, 0);
        let (weight, nice) = (cgroup_weight(ctx.tasks[task.index()].weight), ctx.tasks[task.index()].nice);
        if let Some((kernel, state)) = self.parts() {
            let prio = DEFAULT_PRIO.wrapping_add_signed(nice.into());
            for field in [field!(Task, prio), field!(Task, static_prio), field!(Task, normal_prio)] {
                kernel.set(state, task, field, prio);
            }
            kernel.set(state, task, field!(Task, scx.weight), weight);
        }
        let address = self.address(task);
        self.call(self.kernel.callbacks.set_weight, Purpose::Other, &[address, weight]);
        match (was_queued, runs) {
            (true, true) => self.go_on_running(task, at),
            (true, false) => self.make_runnable(task, at, 0),
            (false, _) => {}
        }
        self.end(ctx);
    }

    /// A task that was made quiescent while it ran is runnable again, and runs, on the same CPU.
    pub(super) fn go_on_running(&mut self, task: TaskId, cpu: usize) {
        self.note_runnable(task, cpu, 0);
        if let Some((kernel, state)) = self.parts() {
            kernel.set_current(state, cpu, Some(task));
            kernel.cpus[cpu].accounted_ns = kernel.now_ns;
        }
        let address = self.address(task);
        self.call(self.kernel.callbacks.running, Purpose::Other, &[address]);
    }

    /// Somebody above takes a CPU, on which `before` ran: if it can go on, it waits at the head of the local queue, with what is left of
    /// its slice (`put_prev_task_scx()`, `switch_class()`).
    pub(crate) fn taken(
        &mut self,
        ctx: &mut Context<'_>,
        cpu: CpuId,
        before: Option<TaskId>,
        can_go_on: bool,
        by: Taker,
    ) {
        self.begin(ctx, cpu);
        let at = cpu.index();
        let idled = std::mem::replace(&mut self.kernel.cpus[at].is_idle, false);
        let previous = before.filter(|&task| can_go_on && !self.leave_if_forbidden(task, at));
        if let Some((kernel, state)) = self.parts()
            && let Some(task) = previous
        {
            kernel.account(state, at);
            let address = self.address(task);
            self.call(self.kernel.callbacks.stopping, Purpose::Other, &[address, 1]);
        }
        if let Some((kernel, state)) = self.parts() {
            kernel.set_current(state, at, None);
            kernel.cpus[at].is_taken = true;
            if let Err(fault) = kernel.show_intruder(state, at) {
                self.fail(fault.to_string());
            }
        }
        if let Some(task) = previous
            && let Some((kernel, state)) = self.parts()
        {
            kernel.add(state, task, field!(Task, nivcsw), 1);
            match kernel.slice_ns(state, task) {
                // The stopper takes it to another CPU before this one decides again.
                _ if by == Taker::Hotplug => {
                    let to = kernel.allowed_cpu(state, task, at);
                    kernel.move_to_cpu(state, task, to);
                    self.give(task, 0);
                }
                0 => self.give(task, 0),
                _ => self.put_aside(task, at),
            }
        }
        self.kernel.recall_immediate(at);
        if before.is_some() {
            self.release(at, by);
        }
        if idled {
            self.note_idle(at, false, true);
        }
        if by == Taker::Hotplug {
            self.push_away(at);
            // The idle task is the last to run there.
            self.kernel.cpus[at].is_idle = true;
            self.note_idle(at, true, true);
        }
        self.end(ctx);
    }

    /// Lets programs of a new scheduler see who has CPUs.
    pub(super) fn show_intruders(&mut self) -> Result<(), Fault> {
        let Some((kernel, state)) = self.parts() else { return Ok(()) };
        let taken = (0..kernel.cpu_count).filter(|&cpu| kernel.cpus[cpu].is_taken).collect::<Vec<_>>();
        taken.into_iter().try_for_each(|cpu| kernel.show_intruder(state, cpu))
    }

    /// Tells the scheduler that it has lost a CPU, once until it has it back.
    fn release(&mut self, cpu: usize, by: Taker) {
        if std::mem::replace(&mut self.kernel.cpus[cpu].is_released, true) {
            return;
        }
        let Some(callback) = self.kernel.callbacks.cpu_release else { return };
        let Some((kernel, state)) = self.parts() else { return };
        let reason = match by {
            Taker::RealTime => SCX_CPU_PREEMPT_RT,
            Taker::Hotplug => SCX_CPU_PREEMPT_STOP,
        };
        let arguments = || -> Result<u64, Fault> {
            let arguments = state.memory.allocate(CpuReleaseArgs::SIZE)?;
            store(&mut state.memory, arguments, field!(CpuReleaseArgs, reason), reason)?;
            store(&mut state.memory, arguments, field!(CpuReleaseArgs, task), kernel.intruder)?;
            Ok(arguments)
        }();
        match arguments {
            Ok(arguments) => {
                self.call(Some(callback), Purpose::Other, &[cpu as u64, arguments]);
                if let Some((_, state)) = self.parts() {
                    state.memory.free(arguments, CpuReleaseArgs::SIZE);
                }
            }
            Err(fault) => self.fail(fault.to_string()),
        }
    }

    /// A CPU decides again: if it had been taken, the scheduler is told that it has it back (`balance_one()`).
    pub(super) fn acquire(&mut self, cpu: usize) {
        if !self.kernel.cpus[cpu].is_taken && !self.kernel.cpus[cpu].is_released {
            return;
        }
        if std::mem::take(&mut self.kernel.cpus[cpu].is_taken)
            && let Some((kernel, state)) = self.parts()
        {
            kernel.set_current(state, cpu, None);
        }
        if std::mem::take(&mut self.kernel.cpus[cpu].is_released) {
            self.call(self.kernel.callbacks.cpu_acquire, Purpose::Other, &[cpu as u64, 0]);
        }
    }

    /// Moves a task that runs on a CPU where it may not any longer, as the kernel's stopper does; whether it was one.
    pub(super) fn leave_if_forbidden(&mut self, task: TaskId, cpu: usize) -> bool {
        let Some((kernel, state)) = self.parts() else { return false };
        if kernel.may_run(state, task, cpu) {
            return false;
        }
        let to = kernel.allowed_cpu(state, task, cpu);
        self.make_quiescent(task, 0);
        if let Some((kernel, state)) = self.parts() {
            kernel.set_current(state, cpu, None);
        }
        self.make_runnable(task, to, 0);
        true
    }

    /// A CPU is about to go offline. Whether the scheduler goes on: without a callback for that, the kernel unloads it
    /// (`handle_hotplug()`).
    pub(crate) fn goes_offline(&mut self, ctx: &mut Context<'_>, cpu: CpuId) -> bool {
        self.begin(ctx, CpuId(0));
        self.kernel.cpus[cpu.index()].is_offline = true;
        let callback = self.kernel.callbacks.cpu_offline;
        self.call(callback, Purpose::Other, &[u64::from(cpu.0)]);
        self.note_online(cpu.index(), false);
        self.end(ctx);
        callback.is_some()
    }

    /// A CPU has come online. Whether the scheduler goes on.
    pub(crate) fn comes_online(&mut self, ctx: &mut Context<'_>, cpu: CpuId) -> bool {
        self.begin(ctx, cpu);
        self.note_online(cpu.index(), true);
        self.kernel.cpus[cpu.index()].is_offline = false;
        let callback = self.kernel.callbacks.cpu_online;
        self.call(callback, Purpose::Other, &[u64::from(cpu.0)]);
        self.end(ctx);
        callback.is_some()
    }

    fn note_online(&mut self, cpu: usize, is_online: bool) {
        if let Some((kernel, state)) = self.parts()
            && let Err(fault) = masks::assign(&mut state.memory, kernel.online_mask, cpu, is_online)
        {
            self.fail(fault.to_string());
        }
    }

    /// A CPU goes offline: what is in its local queue goes to other CPUs (`__balance_push_cpu_stop()`), and what else belongs to
    /// it does not any longer.
    fn push_away(&mut self, cpu: usize) {
        let Some((kernel, state)) = self.parts() else { return };
        let pushed: Vec<TaskId> = kernel.queues[cpu].iter().collect();
        for at in 0..kernel.tasks.len() {
            let task = TaskId::from(at);
            if kernel.tasks[at].is_queued && kernel.tasks[at].cpu == cpu {
                if pushed.contains(&task) {
                    kernel.leave_queue(state, task);
                }
                let to = kernel.allowed_cpu(state, task, cpu);
                kernel.move_to_cpu(state, task, to);
            }
        }
        for task in pushed {
            self.give(task, 0);
        }
    }

    /// Enqueues the tasks of queues anew where the scheduler has asked for that, or they cannot run at once (`reenq_local()`).
    pub(super) fn reenqueue(&mut self) {
        for _ in 0..REENQUEUE_ROUNDS_MAX {
            let asked = std::mem::take(&mut self.kernel.to_reenqueue);
            if asked.is_empty() {
                return;
            }
            for (position, all) in asked {
                let Some((kernel, state)) = self.parts() else { return };
                let tasks = kernel.tasks_to_reenqueue(position, all);
                for &(task, _) in &tasks {
                    kernel.leave_queue(state, task);
                }
                for (task, reason) in tasks {
                    self.give_again(task, reason);
                }
            }
        }
        self.kernel.to_reenqueue.clear();
        self.fail(format!("SCX_ENQ_REENQ on SCX_DSQ_LOCAL repeated {REENQUEUE_ROUNDS_MAX} times"));
    }
}

impl CpuState {
    /// Whether nothing runs on it, and something could.
    pub fn idles(&self) -> bool {
        self.curr.is_none() && !self.is_away()
    }

    /// Whether it is not the scheduler's at the moment.
    pub fn is_away(&self) -> bool {
        self.is_taken || self.is_offline
    }
}

impl ScxKernel {
    /// Lets programs see that a task of a higher class runs on a CPU.
    fn show_intruder(&mut self, state: &mut State, cpu: usize) -> Result<(), Fault> {
        if self.intruder == 0 {
            self.intruder = state.memory.allocate(TaskBlock::SIZE)?;
            for (field, value) in [
                (field!(Task, policy), SCHED_FIFO),
                (field!(Task, rt_priority), INTRUDER_RT_PRIORITY),
                (field!(Task, prio), PRIO_OF_RT_0 - INTRUDER_RT_PRIORITY),
                (field!(Task, cpus_ptr), self.possible_mask),
                (field!(Task, nr_cpus_allowed), self.cpu_count as u64),
                (field!(TaskBlock, number), u64::MAX),
                (field!(TaskBlock, cgroup), self.cgroups[0].address),
            ] {
                store(&mut state.memory, self.intruder, field, value)?;
            }
        }
        store(&mut state.memory, self.cpus[cpu].rq, field!(RunQueue, curr), self.intruder)
    }
}
