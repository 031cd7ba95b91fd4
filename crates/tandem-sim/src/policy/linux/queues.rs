//! The queues of all CPUs and their tasks: how tasks join and leave queues and CPUs, and are charged for
//! their time.
//!
//! Problem: a task that comes, goes or moves changes its queue, the state of the discipline, the tracked load
//! and the set of idle CPUs, and these must agree.
//!
//! Approach: [`Queues`] owns all four. Code that only reads, such as placement, borrows the [`Runqueues`] in
//! it; balancing asks for moves. The [`Discipline`] decides which task runs; `turns.rs` has when it is asked.

mod bandwidth;
mod buddies;
mod decay;
mod entity;
mod group_load;
mod hierarchy;
mod load;
mod member;
mod run_queue;
mod stolen;
mod timeline;
mod turns;
mod use_estimate;

pub use entity::weight_of_nice;
pub(super) use entity::{Entity, NICE_0_WEIGHT, scale};
pub(super) use load::{FULL_USE, Loads};
pub(super) use member::{GroupId, LevelId, Member, OfMembers};
pub(super) use run_queue::{Push, RunQueue};
pub(super) use stolen::StolenMemory;
pub(super) use timeline::Timeline;

use super::Context;
use super::counters::QueueCounters;
use super::discipline::{Charged, Coming, Discipline};
use super::domains::{CPU_CAPACITY, Group};
use super::features::{Features, LoadTracking, UseEstimates};
use super::settings::{LinuxSettings, Preemption, Tunables};
use super::soft_affinity::{MoveDirection, Strays};
use crate::policy::{Later, Reason};
use crate::scenario::TaskPolicy;
use bandwidth::Bandwidth;
pub(super) use hierarchy::GroupFacts;
use hierarchy::{Level, TaskGroup};
use std::ops::Deref;
use stolen::Stolen;
use tandem_machine::Machine;
use tandem_machine::cpumask::CpuMask;
use tandem_machine::ids::{CpuId, TaskId};

/// The queues of all CPUs and their tasks, to read.
#[derive(Clone, Debug)]
pub(super) struct Runqueues {
    cpus: Vec<RunQueue>,
    entities: Vec<Entity>,
    /// The root comes first.
    groups: Vec<TaskGroup>,
    /// What the groups have on each CPU, but for the root.
    levels: Vec<Level>,
    /// CPUs that idle and have an empty queue.
    idle: CpuMask,
    /// Which CPUs seem to be preempted, in a guest that heeds that.
    preempted: Option<CpuMask>,
    /// The CPUs that idle and are not preempted, in such a guest.
    available: CpuMask,
    /// Some CPU had several tasks when one came, and no look at all CPUs has found otherwise
    /// (`rd->overload`).
    overload: bool,
    load: LoadTracking,
}

impl Runqueues {
    /// Number of tasks that there is room for.
    #[inline]
    pub fn task_count(&self) -> usize {
        self.entities.len()
    }

    /// One task, if it has ever begun.
    #[inline]
    pub fn known(&self, task: TaskId) -> Option<&Entity> {
        self.entities.get(task.index())
    }

    /// One task.
    #[inline]
    pub fn entity(&self, task: TaskId) -> &Entity {
        &self.entities[task.index()]
    }

    /// The queue of a CPU.
    #[inline]
    pub fn of(&self, cpu: CpuId) -> &RunQueue {
        &self.cpus[cpu.index()]
    }

    /// The queues of all CPUs.
    #[inline]
    pub fn all(&self) -> &[RunQueue] {
        &self.cpus
    }

    /// CPUs that idle and have an empty queue.
    #[inline]
    pub fn idle(&self) -> &CpuMask {
        &self.idle
    }

    /// Those of these that do not seem to be preempted (`available_idle_cpu()`).
    #[inline]
    pub fn available(&self) -> &CpuMask {
        if self.preempted.is_some() { &self.available } else { &self.idle }
    }

    /// Whether some CPU has several tasks, as far as the kernel knows (`rd->overload`).
    #[inline]
    pub fn overload(&self) -> bool {
        self.overload
    }

    /// The loads of CPUs and tasks.
    #[inline]
    pub fn loads(&self) -> Loads<'_> {
        Loads { tracking: self.load, cpus: &self.cpus, entities: &self.entities, levels: &self.levels }
    }

    /// Capacity of the group, less what stolen time takes of it; at least 1 for each CPU.
    pub fn capacity(&self, group: &Group) -> u64 {
        let full = u64::from(group.capacity / group.weight);
        let left = |cpu: CpuId| (full * self.of(cpu).capacity_left() / u64::from(CPU_CAPACITY)).max(1);
        group.cpus.iter().map(left).sum()
    }

    /// Whether all that a CPU has to run are idle tasks, and it has any (`sched_idle_rq()`).
    #[inline]
    pub fn runs_idle_tasks(&self, cpu: CpuId) -> bool {
        let queue = self.of(cpu);
        queue.nr_running() > 0 && queue.nr_running() == queue.nr_idle()
    }

    /// Whether the task runs.
    #[inline]
    pub fn is_running(&self, task: TaskId) -> bool {
        self.of(self.entity(task).cpu).curr() == Some(task)
    }
}

/// The queues of all CPUs and their tasks, to change.
#[derive(Clone, Debug)]
pub(super) struct Queues {
    rqs: Runqueues,
    discipline: Discipline,
    strays: Strays,
    /// Positions in the lists of tasks that have been given out.
    list_positions: u64,
    tick_period_ns: u64,
    steal_clock: bool,
    /// Unit of the stolen time that clocks skip, ns.
    steal_unit_ns: u64,
    lru_tasks: bool,
    lb_bias: bool,
    use_estimates: UseEstimates,
    idle_sample_is_capped: bool,
    idle_sampled_always: bool,
    lazy: bool,
    hrtick: bool,
    forks_preempt: bool,
    idle_entities: bool,
    group_weight_min: u64,
    wakeup_removes_delayed: bool,
    wakeup_charges_first: bool,
    pub(super) counters: QueueCounters,
}

/// Code that may change the queues may also read them.
impl Deref for Queues {
    type Target = Runqueues;

    #[inline]
    fn deref(&self) -> &Runqueues {
        &self.rqs
    }
}

impl Queues {
    /// Empty queues for all CPUs of the machine.
    pub fn new(
        settings: &LinuxSettings,
        features: &Features,
        tunables: &Tunables,
        machine: &Machine,
        groups: &[GroupFacts],
    ) -> Self {
        let cpus = machine.cpu_count();
        let root = TaskGroup { shares: NICE_0_WEIGHT.into(), ..TaskGroup::default() };
        let below = groups.iter().map(|group| TaskGroup {
            shares: group.shares,
            limit: group.limit.map(|limit| Box::new(Bandwidth::new(limit))),
            ..TaskGroup::default()
        });
        let levels = groups.iter().zip(1..).flat_map(|(group, at)| {
            let level = move |cpu| Level::new(GroupId(at), LevelId::of(group.parent, cpu, cpus));
            machine.all_cpus().iter().map(level)
        });
        let all_levels = cpus * (1 + groups.len());
        let tick_period_ns = settings.tick_period_ns();
        let stolen = settings.steal_clock.then(|| Stolen::new(features.stolen_memory));
        Self {
            rqs: Runqueues {
                cpus: vec![RunQueue::new(tunables.migration_cost_ns, stolen); cpus],
                entities: Vec::new(),
                groups: std::iter::once(root).chain(below).collect(),
                levels: levels.collect(),
                idle: machine.all_cpus().clone(),
                preempted: None,
                available: machine.all_cpus().clone(),
                overload: false,
                load: features.load,
            },
            discipline: Discipline::new(features, tunables, all_levels, tick_period_ns),
            strays: Strays::new(settings.soft_affinity, cpus),
            list_positions: 0,
            tick_period_ns,
            steal_clock: settings.steal_clock,
            steal_unit_ns: if features.steal_in_ticks { tick_period_ns } else { 1 },
            lru_tasks: features.balance.lru_tasks,
            lb_bias: features.balance.lb_bias,
            use_estimates: features.use_estimates,
            idle_sample_is_capped: features.idle_sample_is_capped,
            idle_sampled_always: features.idle_sampled_always,
            lazy: settings.preemption() == Preemption::Lazy,
            hrtick: features.hrtick,
            forks_preempt: features.forks_preempt,
            idle_entities: features.idle_entities,
            group_weight_min: features.group_weight_min,
            wakeup_removes_delayed: features.wakeup_removes_delayed,
            wakeup_charges_first: features.wakeup_charges_first,
            counters: QueueCounters::default(),
        }
    }

    /// A CPU seems to be preempted or no longer.
    pub fn set_preempted(&mut self, cpu: CpuId, is_preempted: bool) {
        let preempted = self.rqs.preempted.get_or_insert_with(|| CpuMask::empty(self.rqs.cpus.len()));
        match is_preempted {
            true => preempted.insert(cpu),
            false => preempted.remove(cpu),
        }
    }

    /// Finds out anew which idle CPUs are available.
    #[inline]
    pub fn update_available(&mut self) {
        let Runqueues { preempted, available, idle, .. } = &mut self.rqs;
        if let Some(preempted) = preempted {
            available.assign_and(idle, idle);
            available.remove_all(preempted);
        }
    }

    /// Makes room for one more task, of this group and weight.
    pub fn add_task(&mut self, group: GroupId, weight: u32) {
        let entity = Entity::new(weight, TaskPolicy::Normal, group, CpuId(0));
        self.discipline.begin(TaskId::from(self.rqs.entities.len()), entity.weight);
        self.rqs.entities.push(entity);
    }

    /// Resets the state of a task number for a new task that was born on this CPU.
    pub fn begin(&mut self, ctx: &Context<'_>, task: TaskId, cpu: CpuId, group: GroupId, weight: u32) {
        let entity = Entity::new(weight, ctx.tasks[task.index()].policy, group, cpu);
        self.discipline.begin(task, entity.weight);
        self.rqs.entities[task.index()] = entity;
        self.advance_clock(ctx, cpu);
        let slice_ns = self.slice_ns(Member::Task(task), self.rqs.level_of(task), true);
        let queue = &self.rqs.cpus[cpu.index()];
        self.rqs.load.start(queue, &mut self.rqs.entities[task.index()], slice_ns);
    }

    /// The queue of a CPU, to make a request to it.
    #[inline]
    pub fn of_mut(&mut self, cpu: CpuId) -> &mut RunQueue {
        &mut self.rqs.cpus[cpu.index()]
    }

    /// Which CPUs may have tasks that prefer others.
    pub fn strays(&self) -> &Strays {
        &self.strays
    }

    /// Which CPUs may have tasks that prefer others, to correct it.
    pub fn strays_mut(&mut self) -> &mut Strays {
        &mut self.strays
    }

    /// The direction, by its preference, of a move of the task from its CPU to another one.
    pub fn direction(&self, ctx: &Context<'_>, task: TaskId, to: CpuId) -> MoveDirection {
        self.strays.direction(ctx, task, self.entity(task).cpu, to)
    }

    /// How long ago the task, queued or running, last ran, by the clock of its CPU, ns.
    pub fn ran_ago_ns(&mut self, ctx: &Context<'_>, task: TaskId) -> u64 {
        let Entity { cpu, exec_start_ns, .. } = self.rqs.entities[task.index()];
        self.advance_clock(ctx, cpu);
        self.of(cpu).clock.task_ns.saturating_sub(exec_start_ns)
    }

    #[inline]
    fn advance_clock(&mut self, ctx: &Context<'_>, cpu: CpuId) {
        let stolen_ns = if self.steal_clock { ctx.stolen_ns[cpu.index()] } else { 0 };
        let queue = &mut self.rqs.cpus[cpu.index()];
        let newly_stolen_ns = queue.clock.advance(ctx.now_ns, stolen_ns, self.steal_unit_ns);
        if newly_stolen_ns > 0
            && let Some(stolen) = &mut queue.stolen
        {
            stolen.add(ctx.now_ns, newly_stolen_ns);
        }
    }

    /// A look at all CPUs has found whether some CPU has several tasks.
    pub fn set_overload(&mut self, overload: bool) {
        self.rqs.overload = overload;
    }

    /// Asks the CPU to reschedule, unless it has been asked already.
    #[inline]
    pub fn reschedule(&mut self, ctx: &mut Context<'_>, cpu: CpuId) {
        if self.rqs.cpus[cpu.index()].tell() {
            ctx.kicked.push(cpu);
        }
    }

    /// Whether preemption is lazy.
    pub fn is_lazy(&self) -> bool {
        self.lazy
    }

    /// Asks the CPU, which runs a task, to reschedule when it next returns to that, if preemption is lazy; if
    /// not, at once (`resched_curr_lazy()`). A thread of the kernel never returns to user space: the next tick
    /// makes it reschedule (`sched_tick()` of 6.18).
    fn reschedule_lazily(&mut self, ctx: &mut Context<'_>, cpu: CpuId) {
        if !self.lazy {
            return self.reschedule(ctx, cpu);
        }
        let queue = &mut self.rqs.cpus[cpu.index()];
        let returns = queue.curr().is_none_or(|curr| !ctx.tasks[curr.index()].is_kernel_thread);
        if queue.tell_lazily() && returns {
            ctx.later.push(Later::AtReturn(cpu));
        }
    }

    /// Charges the running task of the CPU up to now, and the groups that it is in (`update_curr()`). The
    /// kernel charges some of the groups a little later.
    fn charge(&mut self, ctx: &mut Context<'_>, cpu: CpuId) {
        self.advance_clock(ctx, cpu);
        let queue = &self.rqs.cpus[cpu.index()];
        let Some(task) = queue.curr() else { return };
        let now_ns = queue.clock.task_ns;
        let entity = &mut self.rqs.entities[task.index()];
        let ran_ns = now_ns - entity.exec_start_ns;
        if ran_ns == 0 {
            return;
        }
        entity.exec_start_ns = now_ns;
        let (mut member, mut level) = (Member::Task(task), self.rqs.level_of(task));
        let mut charged = Charged::GoesOn;
        loop {
            charged = charged.max(self.discipline.charge(level, self.rqs.timeline(level), member, ran_ns));
            let Some(above) = self.rqs.up(level) else { break };
            if self.use_up(ctx, level, ran_ns) {
                self.reschedule(ctx, cpu);
            }
            (member, level) = above;
        }
        if charged != Charged::GoesOn {
            self.counters.slices_ended += u64::from(charged == Charged::SliceOver);
            self.reschedule_lazily(ctx, cpu);
        }
    }

    /// Updates the averages of a task and of its CPU. Call it before the state of the task or of its CPU
    /// changes, with the clock of the CPU advanced.
    #[inline]
    fn track(&mut self, task: TaskId) {
        let entity = &mut self.rqs.entities[task.index()];
        let queue = &mut self.rqs.cpus[entity.cpu.index()];
        let runs = queue.curr() == Some(task);
        let before = entity.averages.contribution();
        self.rqs.load.track(queue, entity, runs);
        if entity.group != GroupId::ROOT {
            let (now, is_here) = (entity.averages.contribution(), runs || entity.queued);
            if is_here {
                self.contribute(task, before, now);
            }
            self.track_groups(task);
        }
    }

    /// Updates the load measures of a CPU, which an idle CPU does not do by itself (`update_idle_cpu_load()`,
    /// later `update_blocked_averages()`).
    pub fn refresh_load(&mut self, ctx: &Context<'_>, cpu: CpuId) {
        self.advance_clock(ctx, cpu);
        let queue = &mut self.rqs.cpus[cpu.index()];
        queue.load_updated(ctx.now_ns);
        self.rqs.load.track_cpu(queue);
        self.refresh_groups(cpu);
        self.update_history(ctx, cpu);
    }

    /// Includes the present load of a CPU in the averages of its past loads, if it has these.
    fn update_history(&mut self, ctx: &Context<'_>, cpu: CpuId) {
        if self.lb_bias {
            self.rqs.load.update_history(&mut self.rqs.cpus[cpu.index()], ctx.now_ns / self.tick_period_ns);
        }
    }

    /// A task joins the queue of its CPU, which is charged up to now. `is_foreign`: it was on another CPU
    /// before. It may preempt the task that runs there.
    fn join(&mut self, ctx: &mut Context<'_>, task: TaskId, is_foreign: bool, coming: Coming) {
        self.track(task);
        let entity = &mut self.rqs.entities[task.index()];
        let cpu = entity.cpu;
        let queue = &mut self.rqs.cpus[cpu.index()];
        self.rqs.load.count_in(queue, entity, is_foreign);
        let contribution = entity.averages.contribution();
        if !entity.delayed {
            self.rqs.load.count_estimate(queue, entity);
        }
        entity.is_new = false;
        if entity.group != GroupId::ROOT {
            self.contribute(task, 0, contribution);
            if is_foreign {
                self.move_load(task, false);
            }
        }
        self.move_to_list_head(task);
        self.come(ctx, task, coming);
        self.rqs.overload |= self.rqs.cpus[cpu.index()].nr_running() > 1;
        self.strays.note(ctx, task, cpu);
        self.update_hrtick(ctx, cpu);
        self.preempt(ctx, cpu, task, coming);
    }

    /// A task that waits leaves the queue of its CPU, which is charged up to now; `sleeps`: it has blocked.
    fn leave(&mut self, task: TaskId, cpu: CpuId, sleeps: bool) {
        self.track(task);
        let queue = &mut self.rqs.cpus[cpu.index()];
        self.rqs.load.count_out(queue, &mut self.rqs.entities[task.index()]);
        self.contribute(task, self.entity(task).averages.contribution(), 0);
        self.go(task, sleeps);
    }

    fn move_to_list_head(&mut self, task: TaskId) {
        self.list_positions += 1;
        self.rqs.entities[task.index()].list_position = self.list_positions;
    }

    /// Lets a task that has come to the queue of a CPU preempt the one that runs there, if it should
    /// (`check_preempt_wakeup()`, in 6.12 `check_preempt_wakeup_fair()`, in 7.3 `wakeup_preempt_fair()`).
    fn preempt(&mut self, ctx: &mut Context<'_>, cpu: CpuId, task: TaskId, coming: Coming) {
        let queue = &self.rqs.cpus[cpu.index()];
        if queue.is_told() {
            return;
        }
        let Some(current) = queue.curr() else {
            return self.reschedule(ctx, cpu);
        };
        if self.is_throttled(task, cpu) {
            return;
        }
        let own = self.rqs.level_of(current);
        let [(rival, level), (member, _)] = self.rqs.rivals(current, task);
        match self.preempts_by_policy([current, task], [rival, member]) {
            Some(true) => {
                self.discipline.cancel_protection(rival);
                self.counters.wakeup_preemptions += 1;
                return self.reschedule_lazily(ctx, cpu);
            }
            Some(false) => return,
            None => {}
        }
        let is_leaving = self.wakeup_removes_delayed && self.rqs.entities[task.index()].delayed;
        if is_leaving || (coming == Coming::New && !self.forks_preempt) {
            return;
        }
        self.charge(ctx, cpu);
        let (current, task) = (rival, member);
        let preempts = match self.wakeup_removes_delayed {
            true => self.pick_from(ctx, level) == Some(task),
            false => self.discipline.preempts(level, self.rqs.timeline(level), current, task),
        };
        if !preempts {
            return;
        }
        self.counters.wakeup_preemptions += 1;
        self.reschedule_lazily(ctx, cpu);
        let Some(cfs) = self.discipline.cfs() else { return };
        let last = cfs.is_full(self.rqs.timeline(own));
        self.mark_next(task, level);
        if last && current.task().is_some() {
            self.mark_last(current, level);
        }
    }

    /// Whether a task that comes preempts the one that runs, where their policies decide that: any task
    /// preempts an idle one that is not idle itself, and no other does that is not a normal one. Since 5.15,
    /// when groups got `cpu.idle`, those of the two decide that are in one queue (`se_is_idle()`); a group is
    /// not idle here.
    fn preempts_by_policy(&self, tasks: [TaskId; 2], members: [Member; 2]) -> Option<bool> {
        let [current, coming] = match self.idle_entities {
            true => members.map(|member| self.rqs.is_idle(member)),
            false => tasks.map(|task| self.rqs.is_idle(Member::Task(task))),
        };
        if current && !coming {
            return Some(true);
        }
        let differs = self.idle_entities && current != coming;
        let is_normal = self.entity(tasks[1]).policy == TaskPolicy::Normal;
        (differs || !is_normal).then_some(false)
    }

    /// A task comes to the queue of a CPU because it is new or wakes up, or, at its exec, from another CPU.
    pub fn enqueue(&mut self, ctx: &mut Context<'_>, task: TaskId, cpu: CpuId, reason: Reason) {
        let coming = Coming::from(reason);
        if let Reason::Wake { cpu: waker_cpu, .. } = reason {
            self.counters.ttwu_count += 1;
            self.counters.ttwu_local += u64::from(waker_cpu == cpu);
            self.rqs.cpus[cpu.index()].idle_ended(ctx.now_ns, self.idle_sample_is_capped);
        }
        if self.rqs.entities[task.index()].delayed {
            if coming == Coming::Woken && self.rqs.entities[task.index()].cpu == cpu {
                return self.requeue_delayed(ctx, task);
            }
            self.leave_at_last(ctx, task);
        }
        self.charge(ctx, cpu);
        let from = self.rqs.entities[task.index()].cpu;
        let is_foreign = from != cpu || coming == Coming::New;
        if coming == Coming::New && self.discipline.places_at_birth() {
            self.charge(ctx, from);
            let (member, level) = (Member::Task(task), self.rqs.level_of(task));
            let slice_ns = self.slice_ns(member, level, true);
            self.discipline.place_at_birth(level, self.rqs.timeline(level), member, slice_ns);
        }
        if from != cpu {
            self.advance_clock(ctx, from);
            self.change_cpu(task, cpu);
        }
        self.join(ctx, task, is_foreign, coming);
    }

    /// Moves a task that waits from one queue to another, and lets it preempt there. One that is leaving
    /// takes its load along, and leaves from there.
    pub fn move_queued(&mut self, ctx: &mut Context<'_>, task: TaskId, from: CpuId, to: CpuId) {
        self.charge(ctx, from);
        self.charge(ctx, to);
        self.leave(task, from, false);
        self.change_cpu(task, to);
        self.join(ctx, task, true, Coming::Moved);
    }

    /// A task in no queue is from now on one of CPU `to`, whose clock and that of its CPU have been advanced.
    fn change_cpu(&mut self, task: TaskId, to: CpuId) {
        self.track(task);
        let clock_ns = self.of(to).clock.task_ns;
        let entity = &mut self.rqs.entities[task.index()];
        let from = entity.cpu;
        if !entity.is_new {
            self.rqs.load.forget(&mut self.rqs.cpus[from.index()], entity);
            self.forget_in_groups(task);
        }
        let entity = &mut self.rqs.entities[task.index()];
        entity.averages.move_to(clock_ns);
        entity.cpu = to;
        entity.exec_start_ns = 0; // on its new CPU, it is not cache-hot
        let [from, to] = [from, to].map(|cpu| self.rqs.level_on(task, cpu));
        self.discipline.migrate(Member::Task(task), from, to);
    }

    /// Takes a task that was leaving out of its queue for good.
    pub fn leave_at_last(&mut self, ctx: &mut Context<'_>, task: TaskId) {
        let cpu = self.rqs.entities[task.index()].cpu;
        self.charge(ctx, cpu);
        self.leave(task, cpu, true);
        self.discipline.end_delay(Member::Task(task));
        self.rqs.entities[task.index()].delayed = false;
    }

    /// A task that was leaving wakes up: it stays, and may preempt. Before 7.3, the average by which it is
    /// placed again is that of the last charge (`requeue_delayed_entity()`).
    fn requeue_delayed(&mut self, ctx: &mut Context<'_>, task: TaskId) {
        let cpu = self.rqs.entities[task.index()].cpu;
        match self.wakeup_charges_first {
            true => self.charge(ctx, cpu),
            false => self.advance_clock(ctx, cpu),
        }
        self.track(task);
        self.stays_after_all(Member::Task(task), self.rqs.level_of(task));
        if !self.is_throttled(task, cpu) {
            self.rqs.cpus[cpu.index()].leaves_no_longer();
        }
        let entity = &mut self.rqs.entities[task.index()];
        self.rqs.load.count_estimate(&mut self.rqs.cpus[cpu.index()], entity);
        self.preempt(ctx, cpu, task, Coming::Woken);
    }

    /// Whether the task, on a CPU or in a queue, is ahead of its share, by a discipline that knows.
    pub fn is_ahead(&self, task: TaskId) -> bool {
        let level = self.level_of(task);
        self.discipline.is_ahead(level, self.rqs.timeline(level), Member::Task(task))
    }

    /// Whether the queue for the task on the CPU is empty.
    pub fn is_empty_for(&self, task: TaskId, cpu: CpuId) -> bool {
        self.rqs.timeline(self.level_on(task, cpu)).is_empty()
    }

    /// The task, which runs, begins to exit.
    pub fn exits(&mut self, task: TaskId) {
        self.rqs.entities[task.index()].exiting = true;
    }

    /// The task, in no queue, has ended.
    pub fn exited(&mut self, ctx: &mut Context<'_>, task: TaskId) {
        if self.rqs.entities[task.index()].delayed {
            self.leave_at_last(ctx, task);
        }
        let cpu = self.rqs.entities[task.index()].cpu;
        self.advance_clock(ctx, cpu);
        self.track(task);
        let entity = &mut self.rqs.entities[task.index()];
        self.rqs.load.forget(&mut self.rqs.cpus[cpu.index()], entity);
        entity.is_new = false;
        self.forget_in_groups(task);
    }
}

/// For the tests: situations that would take long to produce.
#[cfg(test)]
impl Queues {
    pub fn entity_mut(&mut self, task: TaskId) -> &mut Entity {
        &mut self.rqs.entities[task.index()]
    }

    pub fn discipline_mut(&mut self) -> &mut Discipline {
        &mut self.discipline
    }

    /// Makes a task that waits one that is about to leave.
    pub fn delay(&mut self, task: TaskId) {
        let entity = &mut self.rqs.entities[task.index()];
        entity.delayed = true;
        self.rqs.cpus[entity.cpu.index()].begins_to_leave();
    }

    /// Another task has yielded to this one, which waits.
    pub fn mark_yielded_to(&mut self, task: TaskId) {
        self.mark_next(Member::Task(task), self.level_of(task));
    }

    /// The same queues without any record of soft affinity.
    pub fn without_strays(&self) -> Self {
        let cpus = self.rqs.cpus.len();
        Self { strays: Strays::new(crate::policy::linux::SoftAffinity::Ignored, cpus), ..self.clone() }
    }

    /// The weights of a group on all CPUs.
    pub fn group_weights(&self, group: u32) -> Vec<u32> {
        let of_it = self.rqs.levels.iter().filter(|level| level.group.0 == group);
        of_it.map(|level| level.weight).collect()
    }

    /// Checks that each queue agrees with what stands in it.
    pub fn check(&self) {
        let levels = self.rqs.cpus.len() + self.rqs.levels.len();
        for level in (0..levels).map(|level| LevelId::of(GroupId::ROOT, CpuId(level as u32), levels)) {
            let tasks = self.rqs.timeline(level);
            let weight: u64 =
                tasks.waiting().chain(tasks.curr()).map(|member| u64::from(self.rqs.weight(member))).sum();
            assert_eq!(tasks.weight(), weight);
            assert!(tasks.waiting().all(|member| self.rqs.is_queued(member)));
            let mut discipline = self.discipline.clone();
            if let Discipline::Eevdf(eevdf) = &self.discipline {
                let weighted = tasks.waiting().map(|member| eevdf.weighted_vruntime(member));
                assert_eq!(eevdf.waiting_vruntime(level), weighted.sum::<i128>());
                assert_eq!(eevdf.blocked(level), None, "no CPU is about to decide");
            }
            assert!(
                tasks.waiting().map(|member| discipline.dequeue(level, member)).is_sorted(),
                "it is in order"
            );
            let Some((group, above)) = self.rqs.up(level) else { continue };
            let is_there = self.rqs.is_queued(group) || self.rqs.timeline(above).curr() == Some(group);
            let is_empty = tasks.is_empty();
            let competes = !is_empty && !self.rqs.level(level).throttled;
            assert_eq!(is_there && !self.rqs.is_delayed(group), competes, "a group with tasks competes");
            let below = tasks.waiting().chain(tasks.curr()).map(|member| match member {
                Member::Task(_) => 1,
                Member::Group(below) => self.rqs.level(below).nr_tasks,
            });

            assert_eq!(self.rqs.level(level).nr_tasks, below.sum::<u32>());
        }
        for (at, group) in self.rqs.groups.iter().enumerate().skip(1) {
            let of_it = self.rqs.levels.iter().filter(|level| level.group.index() == at);
            assert_eq!(group.total, of_it.map(|level| level.contribution).sum::<u64>());
        }
    }

    /// The sort key of the task, and its virtual run time.
    pub fn place_of(&self, task: TaskId) -> (i64, i64) {
        let mut discipline = self.discipline.clone();
        let vruntime = *discipline.vruntime_mut(task);
        (discipline.enqueue(self.level_of(task), Member::Task(task)), vruntime)
    }

    /// Changes the discipline's state of a task, which may be waiting.
    pub fn replace(&mut self, task: TaskId, change: impl FnOnce(&mut Discipline)) {
        let (queued, level) = (self.entity(task).queued, self.level_of(task));
        if queued {
            self.remove(Member::Task(task), level);
        }
        change(&mut self.discipline);
        if queued {
            self.insert(Member::Task(task), level);
        }
    }

    pub fn is_eligible(&mut self, task: TaskId) -> bool {
        !self.is_ahead(task)
    }

    pub fn note_lag(&mut self, task: TaskId) -> i64 {
        let level = self.level_of(task);
        self.discipline.leaves(level, self.rqs.timeline(level), Member::Task(task));
        self.discipline.eevdf_mut().task_mut(task).lag
    }

    pub fn choose(&mut self, cpu: CpuId) -> Option<TaskId> {
        let root = LevelId::root(cpu);
        self.discipline.pick(root, self.rqs.timeline(root))?.task()
    }
}
