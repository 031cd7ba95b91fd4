//! How tasks come to queues and CPUs and leave them, and are charged for their time: what CFS and EEVDF have
//! in common.

use super::entity::Entity;
use super::{Context, Linux};
use tandem_machine::ids::{CpuId, TaskId};

impl Linux {
    /// How long ago the task, queued or running, last ran, by the clock of its CPU, ns.
    pub(super) fn ran_ago_ns(&mut self, ctx: &Context<'_>, task: TaskId) -> u64 {
        let Entity { cpu, exec_start_ns, .. } = self.entities[task.index()];
        self.advance_clock(ctx, cpu);
        self.cpus[cpu.index()].clock.task_ns.saturating_sub(exec_start_ns)
    }

    pub(super) fn advance_clock(&mut self, ctx: &Context<'_>, cpu: CpuId) {
        let stolen_ns = if self.settings.steal_clock { ctx.stolen_ns[cpu.index()] } else { 0 };
        self.cpus[cpu.index()].clock.advance(ctx.now_ns, stolen_ns);
    }

    /// Tells the CPU to decide anew, unless it has been told already.
    pub(super) fn reschedule(&mut self, ctx: &mut Context<'_>, cpu: CpuId) {
        let queue = &mut self.cpus[cpu.index()];
        if !queue.resched {
            queue.resched = true;
            ctx.kicked.push(cpu);
        }
    }

    /// Charges the running task of the CPU up to now (`update_curr()`).
    pub(super) fn charge(&mut self, ctx: &mut Context<'_>, cpu: CpuId) {
        self.advance_clock(ctx, cpu);
        let queue = &self.cpus[cpu.index()];
        let Some(task) = queue.curr else { return };
        let now_ns = queue.clock.task_ns;
        let entity = &mut self.entities[task.index()];
        let ran_ns = now_ns - entity.exec_start_ns;
        if ran_ns == 0 {
            return;
        }
        entity.exec_start_ns = now_ns;
        entity.sum_exec_ns += ran_ns;
        entity.vruntime += entity.virtual_time(ran_ns);
        if !self.is_eevdf() {
            self.cfs_update_min_vruntime(cpu);
        } else if self.eevdf_slice_is_over(task) && !self.cpus[cpu.index()].is_empty() {
            self.counters.slices_ended += 1;
            self.reschedule(ctx, cpu);
        }
    }

    /// Puts a task into the queue of a CPU.
    pub(super) fn insert(&mut self, task: TaskId, cpu: CpuId) {
        let key = self.key(task);
        self.cpus[cpu.index()].insert(key, task, &mut self.entities[task.index()]);
        self.idle.remove(cpu);
    }

    /// Takes a task out of the queue of a CPU.
    pub(super) fn remove(&mut self, task: TaskId, cpu: CpuId) {
        let key = self.key(task);
        let queue = &mut self.cpus[cpu.index()];
        queue.remove(key, task, &mut self.entities[task.index()]);
        if queue.idling && queue.is_empty() {
            self.idle.insert(cpu);
        }
    }

    /// What the queues are sorted by.
    pub(super) fn key(&self, task: TaskId) -> i64 {
        let entity = &self.entities[task.index()];
        if self.is_eevdf() { entity.deadline } else { entity.vruntime }
    }

    /// A task comes to the queue of its CPU, which is charged up to now and, if it was on another one before
    /// (`is_foreign`), is new to it.
    pub(super) fn join_queue(
        &mut self,
        ctx: &mut Context<'_>,
        task: TaskId,
        is_foreign: bool,
        keeps_deadline: bool,
    ) {
        let cpu = self.entities[task.index()].cpu;
        self.count_in(task, is_foreign);
        if self.is_eevdf() {
            self.eevdf_place(task, cpu, keeps_deadline);
        }
        self.entities[task.index()].is_new = false;
        self.move_to_list_head(task);
        self.insert(task, cpu);
        self.note_stray(ctx, task, cpu);
        self.preempt(ctx, cpu, task);
    }

    /// A task that waits leaves the queue of its CPU, which is charged up to now.
    pub(super) fn leave_queue(&mut self, task: TaskId, cpu: CpuId) {
        self.count_out(task);
        if self.is_eevdf() {
            self.eevdf_note_lag(task, cpu);
        }
        self.remove(task, cpu);
        self.left(task, cpu);
        if !self.is_eevdf() {
            self.cfs_update_min_vruntime(cpu);
        }
    }

    /// A task has left a CPU and its queue.
    pub(super) fn left(&mut self, task: TaskId, cpu: CpuId) {
        let is_eevdf = self.is_eevdf();
        let queue = &mut self.cpus[cpu.index()];
        queue.clear_buddies(task);
        if is_eevdf {
            let entity = &mut self.entities[task.index()];
            entity.deadline -= entity.vruntime;
            if queue.is_empty() && queue.curr.is_none() {
                queue.min_vruntime = entity.vruntime;
            }
        }
    }

    pub(super) fn move_to_list_head(&mut self, task: TaskId) {
        self.list_positions += 1;
        self.entities[task.index()].list_position = self.list_positions;
    }

    /// Lets a task that has come into the queue of a CPU preempt what runs there, if it should.
    pub(super) fn preempt(&mut self, ctx: &mut Context<'_>, cpu: CpuId, task: TaskId) {
        let queue = &self.cpus[cpu.index()];
        if queue.resched {
            return;
        }
        let Some(current) = queue.curr else {
            return self.reschedule(ctx, cpu);
        };
        let preempts = if self.is_eevdf() {
            self.eevdf_choose(cpu) == Some(task)
        } else {
            self.cfs_preempts(cpu, current, task)
        };
        if preempts {
            self.counters.wakeup_preemptions += 1;
            self.reschedule(ctx, cpu);
        }
    }

    /// Moves a task that waits, and is not leaving, from one queue to another, and lets it preempt there.
    pub(super) fn move_queued(&mut self, ctx: &mut Context<'_>, task: TaskId, from: CpuId, to: CpuId) {
        debug_assert!(!self.entities[task.index()].delayed, "a task that is leaving stays where it is");
        self.charge(ctx, from);
        self.charge(ctx, to);
        self.leave_queue(task, from);
        self.change_cpu(task, to);
        self.join_queue(ctx, task, true, true);
    }

    /// A task in no queue is from now on one of CPU `to`, whose clock and that of its CPU have been advanced.
    pub(super) fn change_cpu(&mut self, task: TaskId, to: CpuId) {
        let from = self.entities[task.index()].cpu;
        self.track(task);
        self.carry_over(task, to);
        if !self.is_eevdf() {
            self.cfs_carry_over(task, from, to);
        }
        let entity = &mut self.entities[task.index()];
        entity.cpu = to;
        entity.exec_start_ns = 0; // on its new CPU, it is not cache-hot
    }

    /// Puts the running task of the CPU, which can go on, back into the queue.
    pub(super) fn put_back_current(&mut self, cpu: CpuId) {
        if let Some(task) = self.cpus[cpu.index()].curr {
            self.track(task);
            self.cpus[cpu.index()].curr = None;
            self.insert(task, cpu);
        }
    }

    /// Takes a task out of the queue of a CPU to run it.
    pub(super) fn set_current(&mut self, cpu: CpuId, task: TaskId) {
        self.track(task);
        self.remove(task, cpu);
        let queue = &mut self.cpus[cpu.index()];
        queue.curr = Some(task);
        let entity = &mut self.entities[task.index()];
        entity.exec_start_ns = queue.clock.task_ns;
        entity.prev_sum_exec_ns = entity.sum_exec_ns;
        entity.chosen_deadline = entity.deadline;
        if self.features.balance.lru_tasks {
            self.move_to_list_head(task);
        }
    }
}
