//! Xen's credit2 scheduler, its default since 4.12.
//!
//! Problem: share CPUs among VMs by weight and cap, with little latency for vCPUs that sleep much, on
//! machines of many CPUs.
//!
//! Approach, as in Xen's `common/sched/credit2.c` (`common/sched_credit2.c` before 4.13):
//! 1. CPUs that are close to each other share a run queue ([`arrangement`], [`run_queue`]), ordered by
//!    credit.
//! 2. A running vCPU burns credit, faster the less its weight. When the first of a queue has none left, all
//!    of that queue get the same amount ([`credits`]). One that slept has kept its credit, and so comes
//!    first.
//! 3. A vCPU that is queued tickles a CPU: an idle one, or one whose vCPU has less credit ([`tickle`]). A
//!    CPU runs the vCPU with most credit that it may, unless the rate limit holds the present one
//!    ([`candidate`]).
//! 4. Averages of load ([`load`]) decide which queue a new vCPU joins, and at resets which vCPUs change
//!    queues ([`balance`]).
//! 5. A capped VM has a budget for each period ([`budget`]).
//!
//! Limits: one CPU pool; no core scheduling and no power saving (`sched_smt_power_savings`); locks are not
//! contended in the policy, so that a trylock always succeeds; the windows and tolerances of load balancing
//! are fixed at their defaults.

mod arrangement;
mod balance;
mod budget;
mod candidate;
mod credits;
mod load;
mod run_queue;
mod settings;
#[cfg(test)]
mod tests;
mod tickle;

pub use settings::{Credit2Settings, Release, Sharing};

use super::{Context, Dispatch, Policy, Reason, TaskFacts, VmFacts};
use budget::{Budget, UNCAPPED};
use credits::CREDIT_INIT;
use load::VcpuLoad;
use run_queue::RunQueue;
use tandem_machine::Machine;
use tandem_machine::cpumask::CpuMask;
use tandem_machine::ids::{CpuId, TaskId, VmId};

/// Credit for a vCPU that takes another CPU of its queue, ns (`CSCHED2_MIGRATE_COMPENSATION`).
const MIGRATE_COMPENSATION_NS: i64 = 50_000;
/// The period of a tick that there is not, ns.
const NO_TICK_NS: u64 = u64::MAX / 4;
/// The turn of a CPU that was tickled while it decided, ns: it decides once more.
const AT_ONCE_NS: u64 = 1;

/// The scheduler's state of a vCPU (`struct csched2_unit`).
#[derive(Clone, Debug)]
struct Vcpu {
    vm: VmId,
    weight: i64,
    /// ns.
    credit: i64,
    /// What is left of burnt time when it is divided by the weight.
    residual: i64,
    /// Time up to which its credit is burnt, while it runs, ns.
    burnt_until_ns: u64,
    /// When it was put on its CPU, ns.
    started_ns: u64,
    /// The CPU that it runs on, or was on last; of its queue.
    cpu: CpuId,
    /// The run queue that it is assigned to; `None` before its start.
    queue: Option<usize>,
    load: VcpuLoad,
    /// Its part of the VM's budget, ns; [`UNCAPPED`] without a cap.
    budget_ns: i64,
    /// The CPU that was tickled for it, until it runs.
    tickled_cpu: Option<CpuId>,
    /// It is not blocked.
    awake: bool,
    /// Its VM had no budget for it.
    parked: bool,
    /// To be moved as soon as it is off its CPU.
    migrating: bool,
    /// The queue that balancing has chosen for it.
    migrate_to: Option<usize>,
    /// It waits in its run queue.
    waits: bool,
    /// It is on a CPU, or about to leave it.
    scheduled: bool,
    yielded: bool,
    /// Its soft affinity is narrower than its hard affinity.
    prefers: bool,
}

impl Vcpu {
    fn is_runnable(&self) -> bool {
        self.awake && !self.parked && !self.migrating
    }

    fn is_capped(&self) -> bool {
        self.budget_ns != UNCAPPED
    }
}

/// The scheduler's state of a CPU.
#[derive(Clone, Debug)]
struct Pcpu {
    current: Option<TaskId>,
    queue: usize,
    /// The threads of its core that share its queue.
    threads: CpuMask,
}

/// Counters, by the names of Xen's where it has them.
#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    tickled_idle: u64,
    tickled_busy: u64,
    tickled_none: u64,
    ratelimited: u64,
    resisted: u64,
    deferred: u64,
    migrated: u64,
    resets: u64,
    balances: u64,
    balanced: u64,
    parked: u64,
}

/// The credit2 scheduler of one pool of CPUs.
#[derive(Clone, Debug)]
pub struct Credit2 {
    settings: Credit2Settings,
    vcpus: Vec<Vcpu>,
    pcpus: Vec<Pcpu>,
    queues: Vec<RunQueue>,
    budgets: Vec<Budget>,
    idle: CpuMask,
    tickled: CpuMask,
    /// CPUs whose whole core idles and was not tickled (`smt_idle`).
    idle_cores: CpuMask,
    /// A temporary mask, so that no decision allocates.
    scratch: CpuMask,
    counters: Counters,
}

/// A step of a two-step search: first the CPUs that vCPUs prefer, then those that they may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Soft,
    Hard,
}

impl Credit2 {
    /// A scheduler for all CPUs of the machine.
    pub fn new(settings: Credit2Settings, machine: &Machine, tasks: &[TaskFacts], vms: &[VmFacts]) -> Self {
        let cpus = machine.cpu_count();
        let queues: Vec<RunQueue> =
            arrangement::arrange(&settings, machine).into_iter().map(RunQueue::new).collect();
        let pcpus = (0..cpus).map(CpuId::from).map(|cpu| {
            let queue = queues.iter().position(|queue| queue.cpus.contains(cpu)).expect("each has a queue");
            Pcpu { current: None, queue, threads: machine.siblings(cpu).and(&queues[queue].cpus) }
        });
        let vcpus_of = |vm: usize| tasks.iter().filter(|facts| facts.vm.index() == vm).count();
        let budgets: Vec<Budget> =
            (0..).zip(vms).map(|(at, vm)| Budget::new(vm, vcpus_of(at), settings.cap_period_ns)).collect();
        let vcpus = tasks.iter().map(|facts| Vcpu {
            vm: facts.vm,
            weight: i64::from(vms[facts.vm.index()].weight.max(1)),
            credit: CREDIT_INIT,
            residual: 0,
            burnt_until_ns: 0,
            started_ns: 0,
            cpu: facts.hard_affinity.iter().next().unwrap_or(CpuId(0)),
            queue: None,
            load: VcpuLoad::new(0),
            budget_ns: budgets[facts.vm.index()].first_ns(),
            tickled_cpu: None,
            awake: false,
            parked: false,
            migrating: false,
            migrate_to: None,
            waits: false,
            scheduled: false,
            yielded: false,
            prefers: restricts(facts, machine),
        });
        Self {
            settings,
            vcpus: vcpus.collect(),
            pcpus: pcpus.collect(),
            queues,
            budgets,
            idle: machine.all_cpus().clone(),
            tickled: CpuMask::empty(cpus),
            idle_cores: machine.all_cpus().clone(),
            scratch: CpuMask::empty(cpus),
            counters: Counters::default(),
        }
    }

    /// The mask that counts for the vCPU in this step; `None` if the step does not concern it.
    fn mask<'a>(&self, ctx: &'a Context<'_>, task: TaskId, step: Step) -> Option<&'a CpuMask> {
        let facts = &ctx.tasks[task.index()];
        match step {
            Step::Hard => Some(&facts.hard_affinity),
            Step::Soft if self.vcpus[task.index()].prefers => facts.soft_affinity.as_deref(),
            Step::Soft => None,
        }
    }

    fn queue_of_vcpu(&self, task: TaskId) -> Option<usize> {
        self.vcpus[task.index()].queue
    }

    fn queue_index(&self, task: TaskId) -> usize {
        self.queue_of_vcpu(task).expect("a vCPU that has started has a queue")
    }

    /// `_runq_assign()`
    fn assign(&mut self, task: TaskId, to: usize) {
        let vcpu = &mut self.vcpus[task.index()];
        vcpu.queue = Some(to);
        let queue = &mut self.queues[to];
        queue.assigned.push(task);
        queue.weight_max = queue.weight_max.max(vcpu.weight);
        queue.load.balanced += vcpu.load.average;
    }

    /// `_runq_deassign()`
    fn deassign(&mut self, task: TaskId) {
        let Some(from) = self.vcpus[task.index()].queue.take() else {
            return;
        };
        let queue = &mut self.queues[from];
        queue.assigned.retain(|&other| other != task);
        let weights = queue.assigned.iter().map(|other| self.vcpus[other.index()].weight);
        queue.weight_max = weights.max().unwrap_or(1);
        queue.load.balanced = (queue.load.balanced - self.vcpus[task.index()].load.average).max(0);
    }

    /// Brings the load of the vCPU and its queue up to date; `change`: it begins to want to run (1), or no
    /// longer does (-1) (`update_load()`).
    fn update_load(&mut self, task: TaskId, change: i64, now_ns: u64) {
        let queue = self.queue_index(task);
        self.queues[queue].load.update(now_ns, change);
        let vcpu = &mut self.vcpus[task.index()];
        let wanted_to_run = match change {
            0 => vcpu.is_runnable(),
            change => change < 0,
        };
        vcpu.load.update(now_ns, wanted_to_run);
    }

    /// The vCPU wants to run, and does not yet (`csched2_unit_wake()`).
    fn wake(&mut self, ctx: &mut Context<'_>, task: TaskId) {
        self.update_load(task, 1, ctx.now_ns);
        self.insert(task);
        self.tickle(ctx, task);
    }

    /// The vCPU has left its CPU (`csched2_context_saved()`, then `sched_unit_migrate_finish()`).
    fn left_cpu(&mut self, ctx: &mut Context<'_>, task: TaskId) {
        self.vcpus[task.index()].scheduled = false;
        if self.vcpus[task.index()].is_runnable() {
            self.insert(task);
            self.tickle(ctx, task);
        } else {
            self.update_load(task, -1, ctx.now_ns);
        }
        self.return_budget(ctx, task);
        if self.vcpus[task.index()].migrating {
            self.move_off_cpu(ctx, task);
        }
    }

    /// Moves a vCPU that is neither on a CPU nor in a queue (`sched_unit_migrate_finish()`).
    fn move_off_cpu(&mut self, ctx: &mut Context<'_>, task: TaskId) {
        self.vcpus[task.index()].migrating = false;
        let cpu = self.pick_cpu(ctx, task);
        let to = self.queue_of_cpu(cpu);
        if self.vcpus[task.index()].queue == Some(to) {
            self.vcpus[task.index()].cpu = cpu;
        } else {
            self.migrate(ctx, task, to);
        }
        if self.vcpus[task.index()].is_runnable() {
            self.wake(ctx, task);
        }
    }

    /// Puts a new vCPU into the queue of a CPU (`csched2_unit_insert()`).
    fn start(&mut self, ctx: &Context<'_>, task: TaskId) -> CpuId {
        let vcpu = &mut self.vcpus[task.index()];
        vcpu.credit = CREDIT_INIT;
        vcpu.load = VcpuLoad::new(ctx.now_ns);
        let past = ctx.tasks[task.index()].past_cpu;
        self.deassign(task);
        let cpu = past.unwrap_or_else(|| self.pick_cpu(ctx, task));
        self.vcpus[task.index()].cpu = cpu;
        self.assign(task, self.queue_of_cpu(cpu));
        cpu
    }
}

/// Whether the task's soft affinity restricts it (`has_soft_affinity()`): there is one, and it is a proper
/// part of the hard affinity.
fn restricts(facts: &TaskFacts, machine: &Machine) -> bool {
    facts.soft_affinity.as_ref().is_some_and(|soft| {
        !machine.all_cpus().is_subset(soft)
            && !facts.hard_affinity.is_subset(soft)
            && soft.intersects(&facts.hard_affinity)
    })
}

impl Policy for Credit2 {
    fn select_cpu(&mut self, ctx: &mut Context<'_>, task: TaskId, reason: Reason) -> CpuId {
        if reason.is_new() { self.start(ctx, task) } else { self.vcpus[task.index()].cpu }
    }

    fn enqueue(&mut self, ctx: &mut Context<'_>, task: TaskId, _: CpuId, _: Reason) {
        self.vcpus[task.index()].awake = true;
        if self.vcpus[task.index()].is_runnable() {
            self.wake(ctx, task);
        }
    }

    /// `csched2_schedule()`
    fn dispatch(&mut self, ctx: &mut Context<'_>, cpu: CpuId, previous: Option<TaskId>) -> Dispatch {
        let now_ns = ctx.now_ns;
        let queue = self.queue_of_cpu(cpu);
        if self.tickled.contains(cpu) {
            self.tickled.remove(cpu);
            self.core_may_idle(cpu);
        }
        if let Some(task) = previous {
            self.burn(task, now_ns);
            if self.vcpus[task.index()].budget_ns <= 0 {
                self.grab_budget(task, now_ns);
            }
        }
        let next = self.candidate(ctx, queue, cpu, previous);
        let leaves = previous.filter(|_| next != previous);
        let mut slice_ns = Dispatch::NO_SLICE;
        if let Some(task) = next {
            if next != previous {
                self.remove(task);
                let vcpu = &mut self.vcpus[task.index()];
                vcpu.scheduled = true;
                vcpu.started_ns = now_ns;
            } else {
                self.update_load(task, 0, now_ns);
            }
            self.idle.remove(cpu);
            self.core_no_longer_idles(cpu);
            if self.is_out_of_credit(queue, task) {
                self.reset_credit(ctx, queue, task);
                self.balance(ctx, queue);
            }
            debug_assert!(!self.is_out_of_credit(queue, task), "a reset gives credit");
            let waits_from_now = leaves.filter(|task| self.vcpus[task.index()].is_runnable());
            let preempted = waits_from_now.map(|task| self.vcpus[task.index()].credit);
            let vcpu = &mut self.vcpus[task.index()];
            vcpu.burnt_until_ns = now_ns;
            vcpu.tickled_cpu = None;
            if vcpu.cpu != cpu {
                self.counters.migrated += 1;
                vcpu.credit += MIGRATE_COMPENSATION_NS;
                vcpu.cpu = cpu;
            }
            slice_ns = self.runtime_ns(queue, task, preempted, now_ns);
        } else {
            if !self.idle.contains(cpu) {
                self.idle.insert(cpu);
                self.core_may_idle(cpu);
            }
            self.queues[queue].load.update(now_ns, 0);
        }
        self.pcpus[cpu.index()].current = next;
        if let Some(task) = leaves {
            self.left_cpu(ctx, task);
        }
        if next.is_some() && self.tickled.contains(cpu) {
            slice_ns = AT_ONCE_NS;
        }
        Dispatch { task: next, slice_ns }
    }

    fn running(&mut self, _: &mut Context<'_>, _: CpuId, _: TaskId) {}

    fn blocked(&mut self, ctx: &mut Context<'_>, cpu: CpuId, task: TaskId) {
        self.burn(task, ctx.now_ns);
        let vcpu = &mut self.vcpus[task.index()];
        vcpu.awake = false;
        vcpu.yielded = false;
        if vcpu.budget_ns <= 0 {
            self.grab_budget(task, ctx.now_ns);
        }
        self.pcpus[cpu.index()].current = None;
        self.left_cpu(ctx, task);
    }

    fn exited(&mut self, _: &mut Context<'_>, task: TaskId) {
        self.deassign(task);
        self.forget_parked(task);
    }

    fn yielded(&mut self, _: &mut Context<'_>, _: CpuId, task: TaskId) {
        self.vcpus[task.index()].yielded = true;
    }

    fn wakes_by_interrupt(&self, _: CpuId, _: CpuId) -> bool {
        false
    }

    /// Xen takes the vCPU off its CPU or queue and picks a CPU anew, even if it might have stayed.
    fn affinity_changed(&mut self, ctx: &mut Context<'_>, task: TaskId) {
        self.vcpus[task.index()].prefers = restricts(&ctx.tasks[task.index()], ctx.machine);
        if self.vcpus[task.index()].queue.is_none() {
            return;
        }
        self.vcpus[task.index()].migrating = true;
        if self.vcpus[task.index()].scheduled {
            let cpu = self.vcpus[task.index()].cpu;
            self.tickle_cpu(ctx, cpu);
            return;
        }
        if self.vcpus[task.index()].waits {
            self.update_load(task, -1, ctx.now_ns);
            self.remove(task);
        }
        self.move_off_cpu(ctx, task);
    }

    fn tick_period_ns(&self) -> u64 {
        NO_TICK_NS
    }

    fn tick(&mut self, _: &mut Context<'_>, _: CpuId, _: TaskId) {}

    fn timer_period_ns(&self) -> u64 {
        let capped = self.budgets.iter().any(Budget::is_capped);
        if capped { self.settings.cap_period_ns } else { u64::MAX }
    }

    fn timer(&mut self, ctx: &mut Context<'_>) {
        self.replenish(ctx);
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let Counters {
            tickled_idle,
            tickled_busy,
            tickled_none,
            ratelimited,
            resisted,
            deferred,
            migrated,
            resets,
            balances,
            balanced,
            parked,
        } = self.counters;
        vec![
            ("tickled_idle", tickled_idle),
            ("tickled_busy", tickled_busy),
            ("tickled_none", tickled_none),
            ("ratelimited", ratelimited),
            ("resisted", resisted),
            ("deferred", deferred),
            ("migrated", migrated),
            ("resets", resets),
            ("balances", balances),
            ("balanced", balanced),
            ("parked", parked),
        ]
    }

    fn reset_counters(&mut self) {
        self.counters = Counters::default();
    }
}
