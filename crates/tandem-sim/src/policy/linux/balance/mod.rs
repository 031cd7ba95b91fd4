//! Load balancing: moving tasks from busy CPUs to less busy ones.
//!
//! A CPU balances each of its domains now and then: at its ticks while it is busy, and, when it has just run
//! out of work, at once (`new_idle.rs`). CPUs that idle have no ticks; one of them is kicked to balance for
//! all (`nohz.rs`). An attempt ([`Balancer::balance`]) first asks whether this CPU is the one that balances
//! for its group, then which group is the busiest and how much should move (`by_load.rs` for 3.6, 4.2 and
//! 5.2, `by_kind.rs` for 6.12), then which queue of that group is, and takes tasks out of it (`detach.rs`).
//! After repeated failures it takes tasks with a hot cache, and finally the running task. An attempt that
//! finds nothing to do, or that is another CPU's to make, ends the count of failures. `locks.rs` has the
//! queues of others that it locks for that.
//!
//! Simplified against the kernels:
//! - An attempt takes no time in which other CPUs could interfere: a queue does not change between the search
//!   and its lock. Before 6.12, two CPUs may balance a level between nodes at one time; from then on, one is
//!   taken to be at it for as long as the search of a newly idle CPU takes.
//! - A task that may not run on the CPU that balances is not offered to the other CPUs of its group.
//! - CPUs are equal, and lose capacity to stolen time alone, not to interrupts or real-time tasks; there is
//!   no packing. A group's capacity is the sum of what its CPUs found when they last balanced. An idle CPU is
//!   not kicked, and 6.12 finds no misfit task, for a CPU that has lost capacity.

mod by_kind;
mod by_load;
mod detach;
mod locks;
mod new_idle;
mod nohz;

use super::Context;
use super::counters::BalanceCounters;
use super::domains::{DomainTree, Flags, Group};
use super::features::{BalanceFeatures, KeepsGroupImbalance};
use super::numa::Nodes;
use super::queues::{FULL_USE, Queues, Runqueues};
use crate::engine::random::{Entity, Stream};
use new_idle::NewIdleSearch;
use tandem_machine::cpumask::CpuMask;
use tandem_machine::ids::CpuId;

/// Failures beyond `cache_nice_tries` after which the running task is moved.
const ACTIVE_AFTER: u32 = 2;

/// State of balancing beside domains and queues.
#[derive(Clone, Debug)]
pub(super) struct Balancing {
    /// CPUs whose tasks cannot move, found in the present attempt.
    pinned: CpuMask,
    /// Tick from which on an idle CPU may be kicked to balance for all idle ones.
    next_nohz_tick: u64,
    new_idle_search: Option<NewIdleSearch>,
    /// Until when some CPU balances between nodes, ns (`sched_balance_running`).
    serialised_until_ns: u64,
    /// What decides whether a newly idle CPU searches (`sched_rng()`).
    random: Stream,
    pub counters: BalanceCounters,
}

impl Balancing {
    pub fn new(cpus: usize, seed: u64) -> Self {
        Self {
            pinned: CpuMask::empty(cpus),
            next_nohz_tick: 0,
            new_idle_search: None,
            serialised_until_ns: 0,
            random: Stream::new(seed, Entity::NewIdle, 0),
            counters: BalanceCounters::default(),
        }
    }
}

/// Balances the queues.
pub(super) struct Balancer<'a> {
    pub queues: &'a mut Queues,
    pub domains: &'a mut DomainTree,
    pub balancing: &'a mut Balancing,
    pub nodes: &'a Nodes,
    pub features: &'a BalanceFeatures,
    /// A task that ran less than this ago is cache-hot.
    pub migration_cost_ns: u64,
    /// Most tasks that one attempt examines.
    pub nr_migrate: u32,
    /// Time to look at a queue, beside that in which its cache lines travel.
    pub queue_scan_ns: u64,
    pub tick_hz: u32,
    pub tick_period_ns: u64,
}

/// Whether the CPU that balances is busy or idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Idleness {
    Busy,
    /// Has idled for a while.
    Idle,
    /// Has just run out of work.
    Newly,
}

/// An attempt to balance a domain.
#[derive(Clone, Copy)]
struct Attempt {
    /// The CPU that takes tasks.
    cpu: CpuId,
    /// The CPU that does the work: a different one if `cpu` idles.
    by: CpuId,
    /// The domain, one of the CPU's.
    at: usize,
    idleness: Idleness,
}

/// Unit of an imbalance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Load,
    Util,
    Tasks,
}

/// What should move, and from where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Imbalance {
    /// The busiest group, counted from the own one.
    group: usize,
    amount: u64,
    unit: Unit,
}

/// Outcome of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// Another CPU balances for this one.
    NotOurs,
    /// Nothing moved.
    Nothing,
    /// This many tasks moved.
    Moved(u32),
}

/// Answer to the request for the running task of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// It may not move.
    Refused,
    Now,
    /// It has been asked for already.
    Before,
}

/// The input of the search for an imbalance.
#[derive(Clone, Copy)]
struct Search<'a> {
    queues: &'a Runqueues,
    domains: &'a DomainTree,
    /// CPUs that are excluded.
    pinned: &'a CpuMask,
    features: &'a BalanceFeatures,
    attempt: Attempt,
}

impl Balancer<'_> {
    /// At a tick: balances if it is time to, and kicks an idle CPU that should balance for all idle ones.
    pub fn balance_at_tick(&mut self, ctx: &mut Context<'_>, cpu: CpuId) {
        self.balance_due(ctx, cpu, cpu, Idleness::Busy);
        self.kick_idle_balancer(ctx, cpu);
    }

    /// Balances those domains of the CPU whose time has come (`rebalance_domains()`); CPU `by` does the work.
    fn balance_due(&mut self, ctx: &mut Context<'_>, cpu: CpuId, by: CpuId, mut idleness: Idleness) {
        let tick = self.balance_tick(ctx);
        self.queues.refresh_load(ctx, cpu);
        let (mut decays, mut longest_ns, mut is_ours) = (false, 0, true);
        for at in self.domains.of(cpu) {
            let decayed = self.decay_new_idle_cost(ctx.now_ns, at);
            // Up to 5.2, one domain is enough; later the last one decides.
            decays = decayed || (decays && !self.features.newidle_cost_fades_in_use);
            longest_ns += self.domains.domain(at).newidle_cost_ns;
            if !is_ours {
                if decays {
                    continue;
                }
                break;
            }
            let busy = idleness == Idleness::Busy
                && !(self.features.sched_idle_is_not_busy && self.queues.runs_idle_tasks(cpu));
            if tick < self.next_balance_tick(at, busy) {
                continue;
            }
            if !self.features.newidle_is_serialised && !self.begins_alone(ctx.now_ns, at) {
                continue;
            }
            let outcome = self.balance(ctx, Attempt { cpu, by, at, idleness });
            self.domains.domain_mut(at).last_balance_tick = tick;
            match outcome {
                // At the levels above, another CPU would balance as well.
                Outcome::NotOurs => is_ours = false,
                Outcome::Nothing => {}
                Outcome::Moved(_) => idleness = Idleness::Busy,
            }
        }
        if decays {
            self.queues.of_mut(cpu).set_idle_balance_cost(longest_ns.max(self.migration_cost_ns));
        }
    }

    /// Ticks since the beginning (`jiffies`).
    fn balance_tick(&self, ctx: &Context<'_>) -> u64 {
        ctx.now_ns / self.tick_period_ns
    }

    /// Tick of the next balance of a domain, by a CPU that is busy or not (`get_sd_balance_interval()`).
    fn next_balance_tick(&self, at: usize, busy: bool) -> u64 {
        let domain = self.domains.domain(at);
        let hz = u64::from(self.tick_hz);
        let factor = if busy { u64::from(domain.tunables.busy_factor) } else { 1 };
        let mut ticks = (u64::from(domain.interval_ms) * factor * hz).div_ceil(1_000);
        if busy && self.features.staggered_intervals {
            // So that the levels are not all due at the same tick.
            ticks -= 1;
        }
        let longest = (hz * self.queues.all().len() as u64 / 10).max(1);
        domain.last_balance_tick + ticks.clamp(1, longest)
    }

    /// Tries to balance one domain (`load_balance()`).
    fn balance(&mut self, ctx: &mut Context<'_>, attempt: Attempt) -> Outcome {
        if !self.should_balance(ctx, attempt) {
            self.found_balance(attempt, false);
            return Outcome::NotOurs;
        }
        if self.features.newidle_is_serialised && !self.begins_alone(ctx.now_ns, attempt.at) {
            self.found_balance(attempt, false);
            return Outcome::Nothing;
        }
        if attempt.idleness != Idleness::Newly {
            self.queues.of_mut(attempt.cpu).update_capacity(ctx.now_ns);
        }
        self.balancing.pinned.remove_all(ctx.machine.all_cpus());
        let mut all_pinned = false;
        loop {
            let found = self.busiest_group(ctx, attempt);
            let Some((busiest, imbalance)) = found.and_then(|imbalance| {
                self.search(attempt).busiest_queue(ctx, imbalance).map(|busiest| (busiest, imbalance))
            }) else {
                self.found_balance(attempt, all_pinned);
                return Outcome::Nothing;
            };
            let runs_alone = self.queues.of(busiest).nr_running() <= 1;
            let detached = self.detach_tasks(ctx, attempt, busiest, imbalance);
            if detached.some_pinned && detached.missing > 0 {
                self.mark_imbalanced(attempt, true);
            }
            if detached.all_pinned {
                // Search for another queue.
                all_pinned = true;
                self.balancing.pinned.insert(busiest);
                continue;
            }
            if detached.moved > 0 {
                let domain = self.domains.domain_mut(attempt.at);
                domain.failed = 0;
                domain.interval_ms = domain.tunables.min_interval_ms;
                return Outcome::Moved(detached.moved);
            }
            self.moved_nothing(ctx, attempt, busiest, imbalance.unit, runs_alone);
            return Outcome::Nothing;
        }
    }

    /// Whether no other CPU balances between nodes, if this domain is between nodes; this one does from now
    /// on, for as long as it takes to compare the queues (`SD_SERIALIZE`).
    fn begins_alone(&mut self, now_ns: u64, at: usize) -> bool {
        let domain = self.domains.domain(at);
        if !self.features.serialised || !domain.tunables.flags.contains(Flags::NUMA) {
            return true;
        }
        let is_alone = now_ns >= self.balancing.serialised_until_ns;
        if is_alone {
            self.balancing.serialised_until_ns = now_ns + self.search_ns(at);
        }
        is_alone
    }

    /// How long it takes to compare the queues of a domain, ns.
    fn search_ns(&self, at: usize) -> u64 {
        let weight = u64::from(self.domains.span(at).weight);
        self.domains.domain(at).lines_ns * u64::from(self.features.queue_lines) + weight * self.queue_scan_ns
    }

    /// Counts the failure, and asks for the running task if there were too many. `runs_alone`: it is the only
    /// one of its queue.
    fn moved_nothing(
        &mut self,
        ctx: &mut Context<'_>,
        attempt: Attempt,
        busiest: CpuId,
        unit: Unit,
        runs_alone: bool,
    ) {
        let domain = self.domains.domain_mut(attempt.at);
        if attempt.idleness != Idleness::Newly {
            domain.failed += 1;
        }
        let tries = domain.tunables.cache_nice_tries;
        let only_tasks = !self.features.group_type || unit == Unit::Tasks;
        let keeps_on = self.features.active_balance_keeps_on;
        let mut backs_off = false;
        let failed = domain.failed;
        if (failed > tries + ACTIVE_AFTER && only_tasks) || self.runs_with_less(attempt, busiest) {
            match self.ask_for_running(ctx, attempt, busiest) {
                // Before 6.12, the tasks of the queue count as pinned in any case.
                Asked::Refused => return self.stretch_interval(attempt, runs_alone || !keeps_on),
                Asked::Now => backs_off = !keeps_on,
                Asked::Before => {}
            }
            if !keeps_on {
                self.domains.domain_mut(attempt.at).failed = tries + 1;
            }
        }
        let domain = self.domains.domain_mut(attempt.at);
        if backs_off {
            domain.stretch_interval(false);
        } else {
            domain.interval_ms = domain.tunables.min_interval_ms;
        }
    }

    /// Whether the only task of the busiest queue would have enough more capacity on the CPU that balances
    /// (`need_active_balance()`).
    fn runs_with_less(&self, attempt: Attempt, busiest: CpuId) -> bool {
        let imbalance_pct = u64::from(self.domains.domain(attempt.at).tunables.imbalance_pct);
        let capacity_left = |cpu| self.queues.of(cpu).capacity_left();
        attempt.idleness != Idleness::Busy
            && self.queues.of(busiest).nr_running() == 1
            && self.search(attempt).has_lost_capacity(busiest)
            && capacity_left(busiest) * imbalance_pct < 100 * capacity_left(attempt.cpu)
    }

    /// Nothing to move, nothing that can move, or not the task of this CPU: the domain is balanced less
    /// often. `pinned`: the tasks of the queue that was tried last cannot move.
    fn found_balance(&mut self, attempt: Attempt, pinned: bool) {
        let keeps_mark = pinned
            && match self.features.keeps_group_imbalance {
                KeepsGroupImbalance::Never => false,
                KeepsGroupImbalance::AllPinned => self.all_others_are_pinned(attempt),
                KeepsGroupImbalance::LastPinned => true,
            };
        if !keeps_mark {
            self.mark_imbalanced(attempt, false);
        }
        self.domains.domain_mut(attempt.at).failed = 0;
        self.stretch_interval(attempt, pinned);
    }

    /// Whether no CPU is left to take tasks from.
    fn all_others_are_pinned(&self, attempt: Attempt) -> bool {
        let own = &self.domains.group(attempt.at, 0).cpus;
        let others = self.domains.span(attempt.at).cpus.iter().filter(|&cpu| !own.contains(cpu));
        others.into_iter().all(|cpu| self.balancing.pinned.contains(cpu))
    }

    fn stretch_interval(&mut self, attempt: Attempt, pinned: bool) {
        if attempt.idleness != Idleness::Newly || !self.features.newidle_keeps_interval {
            self.domains.domain_mut(attempt.at).stretch_interval(pinned);
        }
    }

    /// Marks, for the level above, whether balancing within the group that this domain forms failed because
    /// of affinity (3.6 uses the spread of loads instead).
    fn mark_imbalanced(&mut self, attempt: Attempt, imbalanced: bool) {
        let above = attempt.at + 1;
        if self.domains.of(attempt.cpu).contains(&above) {
            self.domains.own_group_mut(above).imbalanced = imbalanced;
        }
    }

    /// Whether this CPU is the one of its group that balances: the first that idles, or else the first
    /// (`should_we_balance()`). 6.12 prefers one whose core idles.
    fn should_balance(&self, ctx: &Context<'_>, attempt: Attempt) -> bool {
        let newly = attempt.idleness == Idleness::Newly;
        if newly {
            return !self.features.newidle_stops_at_work || self.queues.of(attempt.cpu).nr_running() == 0;
        }
        let group = &self.domains.group(attempt.at, 0).cpus;
        let first = |mask: &CpuMask| group.next_and_wrapping(mask, CpuId(0));
        let by_core = self.features.idle_core_balances
            && !self.domains.domain(attempt.at).tunables.flags.contains(Flags::SHARE_CAPACITY);
        let core_idles = |cpu: &CpuId| ctx.machine.siblings(*cpu).is_subset(self.queues.idle());
        let idle_core = if by_core { group.iter_and(self.queues.idle()).find(core_idles) } else { None };
        idle_core.or_else(|| first(self.queues.idle())).or_else(|| first(group)) == Some(attempt.cpu)
    }

    fn busiest_group(&mut self, ctx: &mut Context<'_>, attempt: Attempt) -> Option<Imbalance> {
        *ctx.peers_scanned += self.domains.span(attempt.at).weight - 1;
        self.update_overload(attempt);
        if !self.features.group_type {
            return self.search(attempt).busiest_group_by_load();
        }
        let (found, util) = self.search(attempt).busiest_group_by_kind();
        if attempt.idleness != Idleness::Newly {
            by_kind::limit_idle_scan(self.domains, attempt, util);
        }
        found
    }

    /// A look at the CPUs of the widest domain tells whether some CPU has several tasks
    /// (`update_sd_lb_stats()`); between two of these looks, the kernel may believe so in vain.
    fn update_overload(&mut self, attempt: Attempt) {
        if !self.domains.of(attempt.cpu).contains(&(attempt.at + 1)) {
            let mut members = self.domains.span(attempt.at).cpus.iter();
            let is_member = |cpu: &CpuId| !self.balancing.pinned.contains(*cpu);
            let overload = members.any(|cpu| is_member(&cpu) && self.queues.of(cpu).nr_running() > 1);
            self.queues.set_overload(overload);
        }
    }

    fn search(&self, attempt: Attempt) -> Search<'_> {
        let Self { queues, domains, balancing, features, .. } = self;
        Search { queues, domains, pinned: &balancing.pinned, features, attempt }
    }
}

impl<'a> Search<'a> {
    /// The busiest queue of the group, in the unit of the imbalance (`find_busiest_queue()`).
    fn busiest_queue(&self, ctx: &mut Context<'_>, imbalance: Imbalance) -> Option<CpuId> {
        let group = self.domains.group(self.attempt.at, imbalance.group);
        *ctx.peers_scanned += group.weight;
        let loads = self.queues.loads();
        let mut busiest: Option<(u64, CpuId)> = None;
        for cpu in self.members(group) {
            let queue = self.queues.of(cpu);
            let running = if self.features.h_nr_runnable { queue.nr_runnable() } else { queue.nr_running() };
            let capacity_left = queue.capacity_left();
            let measure = match imbalance.unit {
                // Its only task would be too much.
                Unit::Load
                    if running == 1
                        && loads.of_cpu(cpu) > imbalance.amount
                        && !self.has_lost_capacity(cpu) =>
                {
                    continue;
                }
                Unit::Load => loads.of_cpu(cpu) * FULL_USE / capacity_left,
                Unit::Util if running <= 1 => continue,
                // Waiting counts, too (`cpu_util_cfs_boost()`).
                Unit::Util => loads.cpu_util(cpu).max(loads.runnable(cpu).min(FULL_USE)),
                Unit::Tasks => running as u64,
            };
            if running > 0 && measure > busiest.map_or(0, |(most, _)| most) {
                busiest = Some((measure, cpu));
            }
        }
        busiest.map(|(_, cpu)| cpu).filter(|&cpu| cpu != self.attempt.cpu)
    }

    /// Whether stolen time takes so much of a CPU's capacity that the domain is not balanced by that
    /// (`check_cpu_capacity()`).
    fn has_lost_capacity(&self, cpu: CpuId) -> bool {
        let imbalance_pct = self.domains.domain(self.attempt.at).tunables.imbalance_pct;
        self.features.checks_cpu_capacity
            && self.queues.of(cpu).capacity_left() * u64::from(imbalance_pct) < 100 * FULL_USE
    }

    /// The CPUs of a group that the attempt considers.
    fn members(&self, group: &'a Group) -> impl Iterator<Item = CpuId> + use<'a> {
        let pinned = self.pinned;
        group.cpus.iter().filter(move |&cpu| !pinned.contains(cpu))
    }
}

#[cfg(test)]
mod tests;
