//! Events around the scheduler while it runs: settings of cgroups and tasks change, higher scheduling classes
//! take CPUs, CPUs go offline and come back, the scheduler is loaded again.

use super::kernel::Purpose;
use super::{Ending, SchedExt, Taker};
use crate::policy::Context;
use crate::scenario::{BandwidthLimit, CgroupName};
use tandem_machine::ids::{CpuId, TaskId};

impl SchedExt {
    /// A cgroup has another weight (`scx_group_set_weight()`).
    pub(crate) fn group_weight_changed(&mut self, ctx: &mut Context<'_>, name: CgroupName, weight: u32) {
        self.act(ctx, 0, |scheduler, _| {
            if let Some(group) = scheduler.kernel.cgroups_mut().set_weight(name, weight.into()) {
                let arguments = [group.address, weight.into()];
                let callback = scheduler.kernel.callbacks().cgroup_set_weight;
                scheduler.call(callback, Purpose::Other, &arguments);
            }
        });
    }

    /// A cgroup has another limit (`scx_group_set_bandwidth()`).
    pub(crate) fn group_limit_changed(
        &mut self,
        ctx: &mut Context<'_>,
        name: CgroupName,
        limit: Option<BandwidthLimit>,
    ) {
        const NO_BURST: u64 = 0;
        self.act(ctx, 0, |scheduler, _| {
            if let Some(group) = scheduler.kernel.cgroups_mut().set_limit(name, limit) {
                let arguments = [group.address, group.period_us, group.quota_us, NO_BURST];
                let callback = scheduler.kernel.callbacks().cgroup_set_bandwidth;
                scheduler.call(callback, Purpose::Other, &arguments);
            }
        });
    }

    /// The nice value of a task has changed: it is dequeued and enqueued again, running or not
    /// (`set_user_nice()`).
    pub(crate) fn weight_changed(&mut self, ctx: &mut Context<'_>, task: TaskId) {
        let Some(cpu) = self.cpu_of_known(task) else { return };
        self.act(ctx, cpu, |scheduler, ctx| {
            let queues = scheduler.kernel.run_queues();
            let was_queued = queues.tasks()[task].is_queued;
            let runs = was_queued && queues.runs(task);
            scheduler.make_quiescent(task, 0);
            let (queues, state) = scheduler.queues();
            let weight = queues.tasks().set_weight(state, task, &ctx.tasks[task.index()]);
            let arguments = [scheduler.address(task), weight];
            scheduler.call(scheduler.kernel.callbacks().set_weight, Purpose::Other, &arguments);
            match (was_queued, runs) {
                (true, true) => scheduler.go_on_running(task, cpu),
                (true, false) => scheduler.make_runnable(task, cpu, 0),
                (false, _) => {}
            }
        });
    }

    /// A higher class, or the kernel, takes a CPU, on which `before` ran.
    pub(crate) fn taken(
        &mut self,
        ctx: &mut Context<'_>,
        cpu: CpuId,
        before: Option<TaskId>,
        can_go_on: bool,
        by: Taker,
    ) {
        self.act(ctx, cpu.index(), |scheduler, _| scheduler.taken(cpu.index(), before, can_go_on, by));
    }

    /// A CPU is about to go offline. Returns whether the scheduler stays: without a callback for that, the
    /// kernel unloads it (`handle_hotplug()`).
    pub(crate) fn goes_offline(&mut self, ctx: &mut Context<'_>, cpu: CpuId) -> bool {
        let goes_on = self.act(ctx, 0, |scheduler, _| {
            scheduler.kernel.run_queues_mut().cpu_mut(cpu.index()).is_offline = true;
            let callback = scheduler.kernel.callbacks().cpu_offline;
            let argument = scheduler.kernel.cpu_argument(cpu.index());
            scheduler.call(callback, Purpose::Other, &[argument]);
            let (kernel, state) = scheduler.parts();
            let result = kernel.note_online(state, cpu.index(), false);
            scheduler.check(result);
            callback.is_some()
        });
        goes_on.unwrap_or(false)
    }

    /// A CPU has come online. Returns whether the scheduler stays.
    pub(crate) fn comes_online(&mut self, ctx: &mut Context<'_>, cpu: CpuId) -> bool {
        let goes_on = self.act(ctx, cpu.index(), |scheduler, _| {
            let (kernel, state) = scheduler.parts();
            let result = kernel.note_online(state, cpu.index(), true);
            scheduler.check(result);
            scheduler.kernel.run_queues_mut().cpu_mut(cpu.index()).is_offline = false;
            let callback = scheduler.kernel.callbacks().cpu_online;
            let argument = scheduler.kernel.cpu_argument(cpu.index());
            scheduler.call(callback, Purpose::Other, &[argument]);
            callback.is_some()
        });
        goes_on.unwrap_or(false)
    }

    /// Unloads the scheduler and loads it again.
    pub(crate) fn reload(&mut self, ctx: &mut Context<'_>, ending: Ending) {
        let survivors =
            self.act(ctx, 0, |scheduler, _| (!scheduler.has_failed()).then(|| scheduler.unload(ending)));
        let Some(Some(survivors)) = survivors else { return };
        // The new scheduler counts from 0: keep the counts of the old one.
        self.counted_before = self.counted().map(u64::wrapping_neg).collect();
        self.act(ctx, 0, |scheduler, ctx| {
            let result = scheduler.load(ctx.tasks, &survivors);
            scheduler.check(result);
        });
    }
}
