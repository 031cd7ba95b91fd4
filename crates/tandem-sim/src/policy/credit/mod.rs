//! Xen's credit scheduler (credit1), and the rate controller that was proposed for it.
//!
//! Problem: share CPUs among VMs by weight and cap, keep all of them busy, and run vCPUs that do I/O
//! promptly.
//!
//! Approach, as in Xen's `common/sched/credit.c`:
//! 1. A running vCPU burns 10 credits a millisecond. Every timeslice the credits of all CPUs are handed out
//!    anew, to VMs by weight and to their active vCPUs evenly ([`accounting`]). Credit left means priority
//!    UNDER, none left OVER.
//! 2. A vCPU that wakes up UNDER becomes BOOST, until a tick finds it running. It is queued on the CPU where
//!    it was, and CPUs that could run it are tickled ([`wake`]).
//! 3. A CPU runs the first of its queue. If that is OVER, or the queue is empty, it searches the queues of
//!    others for a more urgent vCPU, nearest nodes first: first for vCPUs that prefer to run here, then for
//!    any that may ([`balance`]).
//! 4. At each tick, a running vCPU that would be better off elsewhere is moved: idle cores before idle
//!    threads, other sockets only if twice as idle ([`pick`]).
//! 5. The rate limit lets a vCPU go on that has run for less than `ratelimit_ns`. The older proposal, the
//!    rate controller, counts decisions instead ([`rate`]).
//!
//! Limits: one CPU pool; locks are not contended in the policy (the kernel charges for them); the trylock of
//! a steal always succeeds.

mod accounting;
mod balance;
mod pick;
mod rate;
mod run_queue;
mod settings;
#[cfg(test)]
mod tests;
mod wake;

pub use settings::{CreditSettings, Era, RateControl};

use super::{Context, Dispatch, Policy, Reason, TaskFacts, VmFacts};
use accounting::Accounting;
use rate::RateController;
use run_queue::{Priority, RunQueues};
use tandem_machine::Machine;
use tandem_machine::cpumask::CpuMask;
use tandem_machine::ids::{CpuId, TaskId, VmId};

/// Ticks a timeslice.
const TICKS_PER_TIMESLICE: u64 = 3;
/// Timer that the rate limit sets for a vCPU that has run for less than this, ns (`CSCHED_MIN_TIMER`).
const RATELIMIT_TIMER_MIN_NS: u64 = 100_000;

/// The scheduler's state of a vCPU.
#[derive(Clone, Debug)]
struct Vcpu {
    vm: VmId,
    priority: Priority,
    credit: i64,
    /// Burnt time that is not yet a whole credit, ns.
    residual_ns: u64,
    /// Time up to which its credit is burnt, while it runs, ns.
    burnt_until_ns: u64,
    /// When it was put on its CPU, ns.
    started_ns: u64,
    /// When it last left a CPU, ns.
    stopped_ns: u64,
    /// The CPU that it runs on, or is queued on, or was on last.
    cpu: CpuId,
    /// Wants to run.
    runnable: bool,
    /// Its VM has used up its cap.
    parked: bool,
    /// To be moved as soon as it is off its CPU.
    migrating: bool,
    /// Its CPU was picked anew since it was last queued.
    picked: bool,
    yielded: bool,
    /// Takes part in the accounting.
    active: bool,
    /// Its soft affinity is narrower than its hard affinity.
    prefers: bool,
}

/// The scheduler's state of a CPU.
#[derive(Clone, Debug)]
struct Pcpu {
    current: Option<TaskId>,
    /// Where to begin the search for an idle CPU near this one.
    idle_bias: CpuId,
    /// The last idle CPU that was tickled from here.
    last_tickled: CpuId,
    /// The accounting after which its queue was last sorted.
    sorted_in_round: u32,
    rate: RateController,
}

/// Counters, by the names of Xen's where it has them.
#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    src: u64,
    nosrc: u64,
    ratelimited: u64,
    steals_preferred: u64,
    steals: u64,
    tickled_idle: u64,
    tickled_busy: u64,
    kicked_away: u64,
    moved_at_tick: u64,
    parked: u64,
}

/// The credit scheduler of one pool of CPUs.
#[derive(Clone, Debug)]
pub struct Credit {
    settings: CreditSettings,
    vcpus: Vec<Vcpu>,
    /// Number of vCPUs that prefer some CPUs.
    preferring: usize,
    pcpus: Vec<Pcpu>,
    queues: RunQueues,
    idlers: CpuMask,
    accounting: Accounting,
    /// Where the next search for work to steal begins, by node.
    balance_bias: Vec<CpuId>,
    /// Temporary masks, so that no decision allocates.
    scratch: [CpuMask; 3],
    counters: Counters,
}

/// A step of a two-step search: first the CPUs that vCPUs prefer, then those that they may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Soft,
    Hard,
}

impl Credit {
    /// A scheduler for all CPUs of the machine.
    pub fn new(settings: CreditSettings, machine: &Machine, tasks: &[TaskFacts], vms: &[VmFacts]) -> Self {
        let cpus = machine.cpu_count();
        let vcpus = tasks.iter().zip(initial_cpus(machine, tasks)).map(|(facts, cpu)| Vcpu {
            vm: facts.vm,
            priority: Priority::Under,
            credit: 0,
            residual_ns: 0,
            burnt_until_ns: 0,
            started_ns: 0,
            stopped_ns: 0,
            cpu,
            runnable: false,
            parked: false,
            migrating: false,
            picked: false,
            yielded: false,
            active: false,
            prefers: settings.era >= Era::Xen4_3 && restricts(facts, machine),
        });
        let pcpus = (0..cpus).map(CpuId::from).map(|cpu| Pcpu {
            current: None,
            idle_bias: CpuId::from(cpus - 1),
            last_tickled: cpu,
            sorted_in_round: 0,
            rate: RateController::default(),
        });
        let vcpus: Vec<Vcpu> = vcpus.collect();
        Self {
            settings,
            preferring: vcpus.iter().filter(|vcpu| vcpu.prefers).count(),
            vcpus,
            pcpus: pcpus.collect(),
            queues: RunQueues::new(cpus, tasks.len()),
            idlers: machine.all_cpus().clone(),
            accounting: Accounting::new(settings.timeslice_ns, cpus, vms),
            balance_bias: vec![CpuId::from(cpus - 1); machine.node_count()],
            scratch: std::array::from_fn(|_| CpuMask::empty(cpus)),
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

    /// Priority of what runs on the CPU; `None` if it idles.
    fn current_priority(&self, cpu: CpuId) -> Option<Priority> {
        self.pcpus[cpu.index()].current.map(|task| self.vcpus[task.index()].priority)
    }

    fn set_priority(&mut self, task: TaskId, priority: Priority) {
        self.vcpus[task.index()].priority = priority;
        self.queues.priority_changed(task, priority);
    }

    fn queue(&mut self, cpu: CpuId, task: TaskId) {
        let vcpu = &mut self.vcpus[task.index()];
        vcpu.cpu = cpu;
        if std::mem::take(&mut vcpu.yielded) {
            self.queues.push_behind_one_lower(cpu, task, vcpu.priority);
        } else {
            self.queues.push(cpu, task, vcpu.priority);
        }
    }

    /// Moves a vCPU that is off its CPU and marked to a better place, and queues it there if it wants to run.
    fn migrate(&mut self, ctx: &mut Context<'_>, task: TaskId) {
        self.vcpus[task.index()].migrating = false;
        let cpu = self.pick_cpu(ctx, task, true);
        let vcpu = &mut self.vcpus[task.index()];
        vcpu.cpu = cpu;
        vcpu.picked = true;
        if vcpu.runnable && !vcpu.parked {
            self.queue_awake(ctx, task, true);
        }
    }
}

/// The CPUs of vCPUs before they first run (Xen's `common/domctl.c`): the first vCPU of a VM gets the CPU
/// with the fewest vCPUs so far, on the second thread of a core if it has several, the last of equal ones;
/// each further vCPU gets the next CPU after the previous one's that it may use.
fn initial_cpus(machine: &Machine, tasks: &[TaskFacts]) -> Vec<CpuId> {
    let mut population = vec![0; machine.cpu_count()];
    let mut initial: Vec<CpuId> = Vec::with_capacity(tasks.len());
    for (at, facts) in tasks.iter().enumerate() {
        let may_use = &facts.hard_affinity;
        let cpu = match at.checked_sub(1).filter(|&before| tasks[before].vm == facts.vm) {
            Some(before) => may_use.next_after(initial[before]),
            None => {
                let rank = |cpu: &CpuId| (population[cpu.index()], std::cmp::Reverse(*cpu));
                let seats = machine.cores().iter().filter_map(|core| core.cpus.iter().take(2).last());
                let seat = seats.filter(|&seat| may_use.contains(seat)).min_by_key(rank);
                seat.or_else(|| may_use.iter().min_by_key(rank))
            }
        };
        let cpu = cpu.unwrap_or(CpuId(0));
        population[cpu.index()] += 1;
        initial.push(cpu);
    }
    initial
}

/// Whether the task's soft affinity restricts it: there is one, and it is a proper subset of the hard
/// affinity.
fn restricts(facts: &TaskFacts, machine: &Machine) -> bool {
    facts.soft_affinity.as_ref().is_some_and(|soft| {
        !machine.all_cpus().is_subset(soft)
            && !facts.hard_affinity.is_subset(soft)
            && soft.intersects(&facts.hard_affinity)
    })
}

impl Policy for Credit {
    fn select_cpu(&mut self, ctx: &mut Context<'_>, task: TaskId, reason: Reason) -> CpuId {
        match (reason, ctx.tasks[task.index()].past_cpu) {
            (Reason::Start, Some(past_cpu)) => past_cpu,
            (Reason::Start | Reason::Fork { .. }, _) => {
                self.vcpus[task.index()].picked = true;
                self.pick_cpu(ctx, task, true)
            }
            _ => self.vcpus[task.index()].cpu,
        }
    }

    fn enqueue(&mut self, ctx: &mut Context<'_>, task: TaskId, cpu: CpuId, _: Reason) {
        self.wake(ctx, task, cpu);
    }

    fn dispatch(&mut self, ctx: &mut Context<'_>, cpu: CpuId, previous: Option<TaskId>) -> Dispatch {
        let can_go_on = previous.filter(|task| {
            let vcpu = &self.vcpus[task.index()];
            !vcpu.migrating && !vcpu.parked
        });
        if let Some(control) = self.settings.rate_control
            && self.pcpus[cpu.index()].rate.decision(&control, ctx.now_ns)
        {
            if let Some(task) = can_go_on {
                self.counters.src += 1;
                self.vcpus[task.index()].yielded = false;
                return Dispatch { task: Some(task), slice_ns: self.settings.timeslice_ns };
            }
            self.counters.nosrc += 1;
        }
        if let Some(task) = previous {
            self.burn(task, ctx.now_ns);
        }
        if let Some(task) = can_go_on
            && let Some(slice_ns) = self.ratelimit_timer_ns(task, ctx.now_ns)
        {
            self.counters.ratelimited += 1;
            return Dispatch { task: Some(task), slice_ns };
        }
        if let Some(task) = can_go_on {
            self.queue(cpu, task);
        }
        let first = self.queues.first(cpu);
        let next = match first.map(|task| self.vcpus[task.index()].priority) {
            Some(Priority::Under | Priority::Boost) => first,
            priority => {
                let (stolen, scanned) = self.steal(ctx, cpu, priority);
                *ctx.peers_scanned += scanned;
                stolen.or(first)
            }
        };
        match next {
            Some(task) => {
                // A stolen vCPU is no longer in its queue.
                if self.queues.contains(task) {
                    self.queues.remove(task);
                }
                self.vcpus[task.index()].yielded = false;
                self.idlers.remove(cpu);
            }
            None => self.idlers.insert(cpu),
        }
        self.pcpus[cpu.index()].current = next;
        if let Some(task) = previous
            && next != previous
        {
            self.vcpus[task.index()].stopped_ns = ctx.now_ns;
            if self.vcpus[task.index()].migrating {
                self.migrate(ctx, task);
            }
        }
        Dispatch { task: next, slice_ns: self.settings.timeslice_ns }
    }

    fn running(&mut self, ctx: &mut Context<'_>, cpu: CpuId, task: TaskId) {
        let vcpu = &mut self.vcpus[task.index()];
        vcpu.cpu = cpu;
        vcpu.burnt_until_ns = ctx.now_ns;
        vcpu.started_ns = ctx.now_ns;
    }

    fn blocked(&mut self, ctx: &mut Context<'_>, cpu: CpuId, task: TaskId) {
        self.burn(task, ctx.now_ns);
        self.pcpus[cpu.index()].current = None;
        let vcpu = &mut self.vcpus[task.index()];
        vcpu.runnable = false;
        vcpu.stopped_ns = ctx.now_ns;
        vcpu.yielded = false;
        if vcpu.migrating {
            self.migrate(ctx, task);
        }
    }

    fn exited(&mut self, _: &mut Context<'_>, _: TaskId) {}

    fn yielded(&mut self, _: &mut Context<'_>, _: CpuId, task: TaskId) {
        self.vcpus[task.index()].yielded = true;
    }

    fn wakes_by_interrupt(&self, _: CpuId, _: CpuId) -> bool {
        false
    }

    /// Xen takes the vCPU off its CPU or queue and picks a CPU anew, even if it might have stayed.
    fn affinity_changed(&mut self, ctx: &mut Context<'_>, task: TaskId) {
        let prefers = self.settings.era >= Era::Xen4_3 && restricts(&ctx.tasks[task.index()], ctx.machine);
        let vcpu = &mut self.vcpus[task.index()];
        self.preferring -= usize::from(vcpu.prefers);
        self.preferring += usize::from(prefers);
        vcpu.prefers = prefers;
        if self.pcpus[vcpu.cpu.index()].current == Some(task) {
            vcpu.migrating = true;
            ctx.kicked.push(vcpu.cpu);
            return;
        }
        if self.queues.contains(task) {
            self.queues.remove(task);
        }
        self.migrate(ctx, task);
    }

    fn tick_period_ns(&self) -> u64 {
        self.settings.timeslice_ns / TICKS_PER_TIMESLICE
    }

    fn ticks_apart(&self) -> bool {
        true
    }

    fn tick(&mut self, ctx: &mut Context<'_>, cpu: CpuId, task: TaskId) {
        if self.vcpus[task.index()].priority == Priority::Boost {
            self.set_priority(task, Priority::Under);
        }
        self.burn(task, ctx.now_ns);
        if !self.vcpus[task.index()].active {
            self.activate(task);
        } else if self.pick_cpu(ctx, task, false) != cpu {
            self.counters.moved_at_tick += 1;
            self.vcpus[task.index()].migrating = true;
            ctx.kicked.push(cpu);
        }
        // Priorities of queued vCPUs change only in an accounting.
        if std::mem::replace(&mut self.pcpus[cpu.index()].sorted_in_round, self.accounting.rounds)
            != self.accounting.rounds
        {
            self.queues.sort(cpu);
        }
    }

    fn timer_period_ns(&self) -> u64 {
        self.settings.timeslice_ns
    }

    fn timer(&mut self, ctx: &mut Context<'_>) {
        self.account(ctx);
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let Counters {
            src,
            nosrc,
            ratelimited,
            steals_preferred,
            steals,
            tickled_idle,
            tickled_busy,
            kicked_away,
            moved_at_tick,
            parked,
        } = self.counters;
        vec![
            ("src", src),
            ("nosrc", nosrc),
            ("ratelimited", ratelimited),
            ("steals_preferred", steals_preferred),
            ("steals", steals),
            ("tickled_idle", tickled_idle),
            ("tickled_busy", tickled_busy),
            ("kicked_away", kicked_away),
            ("moved_at_tick", moved_at_tick),
            ("parked", parked),
        ]
    }

    fn reset_counters(&mut self) {
        self.counters = Counters::default();
    }
}
