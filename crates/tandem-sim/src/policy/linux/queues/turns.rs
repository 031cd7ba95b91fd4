//! Turns on a CPU: which task gets the next one, and what ends it.
//!
//! A task may yield to one particular task (`yield_to()`, `yield_to_task_fair()`): a hypervisor has found a
//! vCPU that might hold the lock for which the vCPU on this CPU spins, and wants it to run instead. In the
//! kernels' order:
//! 1. A target that does not wait in a queue is refused: it already runs, or sleeps.
//! 2. The target becomes the *next* buddy of the CPU in whose queue it waits. CFS then picks it out of turn,
//!    unless that is unfair by more than the wake-up granularity; it stays the buddy until it is picked,
//!    leaves that queue, or another task takes its place.
//! 3. The task that asks yields as in any other yield: CFS skips it once, EEVDF moves its deadline by a
//!    slice. Alone on its CPU it loses nothing.
//! 4. If the target waits in another queue, its CPU is asked to reschedule.
//!
//! In 6.12 the second step has no effect. Whether a CPU takes its next buddy depends there on the feature
//! `NEXT_BUDDY`, which is off by default; it was meant for buddies of wake-ups alone. The yield remains, and
//! a reschedule that keeps the CPU's task if that is within its slice (`RUN_TO_PARITY`). A feature of its
//! own, `PICK_BUDDY`, which is on, came with 6.14; the stable releases of 6.12 have it since February 2025,
//! this model does not.
//!
//! Limits: a buddy does not count as cache-hot when CPUs are balanced (`CACHE_HOT_BUDDY`), in any era.

use super::{LoadTracking, Queues};
use crate::policy::Context;
use tandem_machine::ids::{CpuId, TaskId};

impl Queues {
    /// A CPU begins to decide: its running task is charged. From here on, the CPU sees changes without a
    /// kick.
    pub fn begin_decision(&mut self, ctx: &mut Context<'_>, cpu: CpuId) {
        self.counters.sched_count += 1;
        self.rqs.cpus[cpu.index()].tell();
        self.charge(ctx, cpu);
    }

    /// The task that the CPU should run next; tasks that are leaving and would be next leave first.
    pub fn pick(&mut self, ctx: &mut Context<'_>, cpu: CpuId) -> Option<TaskId> {
        loop {
            let chosen = self.discipline.pick(cpu, &self.rqs.cpus[cpu.index()].tasks)?;
            if !self.rqs.entities[chosen.index()].delayed {
                return Some(chosen);
            }
            self.leave_at_last(ctx, chosen);
        }
    }

    /// A CPU has decided what to run.
    pub fn end_decision(&mut self, ctx: &Context<'_>, cpu: CpuId, next: Option<TaskId>) {
        let queue = &mut self.rqs.cpus[cpu.index()];
        queue.has_decided();
        match next {
            Some(task) if queue.curr() == next => self.discipline.goes_on(task),
            Some(task) => {
                queue.busy();
                self.put_back_current(cpu);
                self.set_current(cpu, task);
            }
            None => {
                self.counters.sched_goidle += u64::from(queue.idle(ctx.now_ns));
                self.rqs.idle.insert(cpu);
            }
        }
    }

    /// Puts the running task of the CPU, which can go on, back into the queue.
    pub fn put_back_current(&mut self, cpu: CpuId) {
        if let Some(task) = self.rqs.cpus[cpu.index()].curr() {
            self.track(task);
            self.rqs.cpus[cpu.index()].tasks.stop();
            self.insert(task, cpu);
        }
    }

    /// Takes a task out of the queue of a CPU to run it.
    fn set_current(&mut self, cpu: CpuId, task: TaskId) {
        self.track(task);
        self.remove(task, cpu);
        let queue = &mut self.rqs.cpus[cpu.index()];
        let entity = &mut self.rqs.entities[task.index()];
        queue.tasks.run(task, entity.weight);
        entity.exec_start_ns = queue.clock.task_ns;
        self.discipline.set_next(task);
        if self.lru_tasks {
            self.move_to_list_head(task);
        }
    }

    /// A tick on a CPU that runs the task.
    pub fn tick(&mut self, ctx: &mut Context<'_>, cpu: CpuId, task: TaskId) {
        self.charge(ctx, cpu);
        self.track(task);
        self.update_history(ctx, cpu);
        if self.discipline.tick(cpu, &self.rqs.cpus[cpu.index()].tasks, task) {
            self.counters.slices_ended += 1;
            self.reschedule(ctx, cpu);
        }
    }

    /// The task on the CPU blocks: it leaves the CPU, and also the queue unless the discipline keeps it
    /// there.
    pub fn blocked(&mut self, ctx: &mut Context<'_>, cpu: CpuId, task: TaskId) {
        self.charge(ctx, cpu);
        if self.discipline.delays_dequeue(cpu, &self.rqs.cpus[cpu.index()].tasks, task) {
            self.counters.delayed += 1;
            self.put_back_current(cpu);
            let entity = &mut self.rqs.entities[task.index()];
            entity.delayed = true;
            LoadTracking::discount_estimate(&mut self.rqs.cpus[cpu.index()], entity);
            LoadTracking::sleeps(self.use_estimates, entity);
            return;
        }
        self.track(task);
        let queue = &mut self.rqs.cpus[cpu.index()];
        let entity = &mut self.rqs.entities[task.index()];
        self.rqs.load.count_out(queue, entity);
        LoadTracking::sleeps(self.use_estimates, entity);
        self.discipline.leaves(cpu, &queue.tasks, task);
        queue.tasks.stop();
        self.discipline.left_running(cpu, &queue.tasks, task);
    }

    /// The task on the CPU yields to the next one.
    pub fn yields(&mut self, ctx: &mut Context<'_>, cpu: CpuId, task: TaskId) {
        self.counters.yld_count += 1;
        if !self.rqs.cpus[cpu.index()].tasks.none_waits() {
            self.charge(ctx, cpu);
            self.discipline.yields(cpu, task);
        }
    }

    /// The task on the CPU yields to `target`; `false`, and no change, if that waits in no queue.
    pub fn yields_to(&mut self, ctx: &mut Context<'_>, cpu: CpuId, task: TaskId, target: TaskId) -> bool {
        let waiting = self.known(target).filter(|entity| entity.queued && !entity.delayed);
        let Some(target_cpu) = waiting.map(|entity| entity.cpu) else { return false };
        self.discipline.yielded_to(target_cpu, target);
        self.yields(ctx, cpu, task);
        if target_cpu != cpu {
            self.reschedule(ctx, target_cpu);
        }
        true
    }
}
