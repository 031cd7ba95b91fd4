//! The waiters of a spin lock of a guest, and whose turn it is: a state machine without time.
//!
//! - A **fair** lock has a queue, and goes to its first.
//! - A **test-and-set** lock, with which Linux guests do without paravirtual locks on a host that offers none
//!   (`virt_spin_lock()`), has a crowd, and goes to any of these that runs.
//! - Waiters of **paravirtual** locks halt when they have spun for long, and are kicked. Those of ticket
//!   locks, and of queued ones up to 4.2, are kicked when it is their turn (`kvm_unlock_kick()`,
//!   `pv_kick_node()`).
//! - **Hybrid** locks are paravirtual queued locks from 4.5 on, in the form of 4.15
//!   (`pv_hybrid_queued_unfair_trylock()`, `pv_wait_head_or_lock()`): as long as the first of the queue does
//!   not spin, any task may take the lock past the queue, and those that find it taken spin unqueued, as a
//!   crowd. An unlock kicks the first if that has halted, and lets go of the lock. A waiter behind one that
//!   has halted halts at once (`pv_wait_early()`); in some releases also one behind a waiter whose vCPU is
//!   preempted, which the engine knows.
//!
//! Limits: waiters have interrupts enabled. A waiter that comes to the head of a hybrid queue sets the
//! pending bit at once, even if its vCPU has no pCPU then.

use crate::policy::linux::{LinuxEra, SpinLockKind};
use crate::scenario::PolicySettings;
use std::collections::VecDeque;
use tandem_machine::ids::TaskId;

/// How a guest's spin locks treat waiters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LockRules {
    /// In the order of arrival; waiters spin.
    Fair,
    /// In no order; waiters spin.
    TestAndSet,
    /// In the order of arrival; waiters halt.
    PvTicket,
    /// The same, and one that comes to the head of the queue is kicked.
    PvQueued,
    /// In the order of arrival while the first spins; waiters halt.
    PvHybrid,
}

impl LockRules {
    /// Those of a guest on a host.
    pub fn of(host: &PolicySettings, guest: &PolicySettings) -> Self {
        let (era, kind, is_paravirtual) = match guest {
            PolicySettings::Linux(it) => (it.era, it.spin_lock_kind(), it.paravirt_locks),
            PolicySettings::SchedExt(it) => (LinuxEra::V6_12, SpinLockKind::Queued, it.paravirt_locks),
            PolicySettings::Credit(_) | PolicySettings::Credit2(_) => return Self::Fair,
        };
        // KVM offers PV_UNHALT since 3.12. Of the guests, 3.6 has no support for KVM, and none by default for
        // Xen.
        let is_offered = !matches!(host, PolicySettings::Linux(it) if it.era == LinuxEra::V3_6);
        match (kind, era) {
            (_, LinuxEra::V3_6) => Self::Fair,
            _ if !is_paravirtual => Self::Fair,
            (SpinLockKind::Ticket, _) if is_offered => Self::PvTicket,
            (SpinLockKind::Ticket, _) => Self::Fair,
            (SpinLockKind::Queued, _) if !is_offered => Self::TestAndSet,
            (SpinLockKind::Queued, LinuxEra::V4_2) => Self::PvQueued,
            (SpinLockKind::Queued, _) => Self::PvHybrid,
        }
    }

    /// Whether waiters halt.
    pub fn halts(self) -> bool {
        matches!(self, Self::PvTicket | Self::PvQueued | Self::PvHybrid)
    }

    /// Whether a waiter that comes back to its pCPU finds out by itself what to do.
    pub fn looks(self) -> bool {
        self != Self::Fair
    }
}

/// A waiter in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Waiter {
    task: TaskId,
    /// It has halted, and has not run since.
    is_halted: bool,
}

/// What a waiter does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// Nothing: it has got the lock.
    HasLock,
    /// It spins, until it halts.
    Spins,
    /// It spins for as long as it takes.
    SpinsOn,
    Halts,
}

/// What an unlock does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Released {
    /// Has got the lock.
    pub next: Option<TaskId>,
    /// Are kicked, as they have halted.
    pub kicked: [Option<TaskId>; 2],
}

/// A spin lock of a VM.
#[derive(Clone, Debug)]
pub(super) struct SpinLock {
    rules: LockRules,
    holder: Option<TaskId>,
    /// Those that stand in line, first come first.
    queue: VecDeque<Waiter>,
    /// Those that spin without standing in line.
    crowd: Vec<TaskId>,
    /// The next unlock kicks the first of the queue (`_Q_SLOW_VAL`).
    is_slow: bool,
    /// The first of the queue has been made known to unlocks, which happens once (`pv_hash()`).
    is_hashed: bool,
}

impl SpinLock {
    /// Free.
    pub fn new(rules: LockRules) -> Self {
        Self {
            rules,
            holder: None,
            queue: VecDeque::new(),
            crowd: Vec::new(),
            is_slow: false,
            is_hashed: false,
        }
    }

    pub fn rules(&self) -> LockRules {
        self.rules
    }

    /// The task that has it.
    pub fn holder(&self) -> Option<TaskId> {
        self.holder
    }

    /// All that wait: those that stand in line first, in that order.
    pub fn waiting(&self) -> impl Iterator<Item = TaskId> + '_ {
        self.queue.iter().map(|waiter| waiter.task).chain(self.crowd.iter().copied())
    }

    /// Those that do not stand in line.
    pub fn crowd(&self) -> &[TaskId] {
        &self.crowd
    }

    /// The task behind that one in the queue, if it is one that has not halted.
    pub fn spinning_behind(&self, task: TaskId) -> Option<TaskId> {
        let at = self.position(task)?;
        self.queue.get(at + 1).filter(|next| !next.is_halted).map(|next| next.task)
    }

    /// The first of the queue, if paravirtual and not halted.
    pub fn spinning_head(&self) -> Option<TaskId> {
        let first = self.queue.front().filter(|first| self.rules.halts() && !first.is_halted)?;
        Some(first.task)
    }

    /// Whether those that wait without standing in line have to look what to do: the first of the queue
    /// spins, or there is no queue.
    pub fn crowd_has_to_queue(&self) -> bool {
        self.rules == LockRules::PvHybrid && !self.crowd.is_empty() && !self.may_pass_queue()
    }

    /// The first of the queue has halted.
    fn may_pass_queue(&self) -> bool {
        self.queue.front().is_some_and(|first| first.is_halted)
    }

    fn position(&self, task: TaskId) -> Option<usize> {
        self.queue.iter().position(|waiter| waiter.task == task)
    }

    fn is_free_to_take(&self) -> bool {
        self.holder.is_none() && (self.queue.is_empty() || self.may_pass_queue())
    }

    /// The task wants the lock. `is_preempted` says of other waiters whether one behind them halts for that.
    pub fn take(&mut self, task: TaskId, is_preempted: impl Fn(TaskId) -> bool) -> Wait {
        if self.is_free_to_take() {
            self.holder = Some(task);
            return Wait::HasLock;
        }
        match self.rules {
            LockRules::TestAndSet => self.crowd.push(task),
            LockRules::PvHybrid if self.may_pass_queue() => self.crowd.push(task),
            _ => return self.stand_in_line(task, is_preempted),
        }
        Wait::SpinsOn
    }

    fn stand_in_line(&mut self, task: TaskId, is_preempted: impl Fn(TaskId) -> bool) -> Wait {
        let is_halted = self.halts_early(self.queue.len(), is_preempted);
        self.queue.push_back(Waiter { task, is_halted });
        if is_halted { Wait::Halts } else { Wait::Spins }
    }

    /// Whether a waiter in that place halts without spinning (`pv_wait_early()`).
    fn halts_early(&self, at: usize, is_preempted: impl Fn(TaskId) -> bool) -> bool {
        let Some(before) = at.checked_sub(1).map(|before| self.queue[before]) else { return false };
        self.rules == LockRules::PvHybrid && (before.is_halted || is_preempted(before.task))
    }

    /// The holder gives the lock back. Of a crowd, the task with the least `distance` gets it; `None`: it
    /// does not run. Changes nothing if the task is not the holder.
    pub fn release(&mut self, task: TaskId, distance: impl Fn(TaskId) -> Option<u64>) -> Released {
        let mut released = Released::default();
        if self.holder != Some(task) {
            return released;
        }
        self.holder = None;
        if std::mem::take(&mut self.is_slow) {
            released.kicked[0] = self.queue.front().filter(|first| first.is_halted).map(|first| first.task);
        }
        let is_in_order = !matches!(self.rules, LockRules::TestAndSet | LockRules::PvHybrid);
        if is_in_order || (!self.queue.is_empty() && !self.may_pass_queue()) {
            if let Some(first) = self.queue.pop_front() {
                self.holder = Some(first.task);
                released =
                    Released { next: self.holder, kicked: [first.is_halted.then_some(first.task), None] };
                self.begin_head(&mut released);
            }
            return released;
        }
        let nearest = self.crowd.iter().enumerate().filter_map(|(at, &task)| Some((distance(task)?, at)));
        if let Some((_, at)) = nearest.min() {
            self.holder = Some(self.crowd.remove(at));
            released.next = self.holder;
        }
        released
    }

    /// The first of the queue is a new one.
    fn begin_head(&mut self, released: &mut Released) {
        self.is_slow = false;
        self.is_hashed = false;
        let Some(head) = self.queue.front().filter(|head| head.is_halted) else { return };
        match self.rules {
            LockRules::PvQueued => released.kicked[1] = Some(head.task),
            // The unlock kicks it.
            LockRules::PvHybrid => (self.is_slow, self.is_hashed) = (true, true),
            _ => {}
        }
    }

    /// A waiter runs again, or looks at the lock for another reason. `is_preempted`: as for
    /// [`SpinLock::take`].
    pub fn look(&mut self, task: TaskId, is_preempted: impl Fn(TaskId) -> bool) -> Wait {
        let Some(at) = self.position(task) else { return self.look_unqueued(task, is_preempted) };
        self.queue[at].is_halted = false;
        if self.rules == LockRules::PvHybrid && at == 0 && self.holder.is_none() {
            self.queue.pop_front();
            self.holder = Some(task);
            self.begin_head(&mut Released::default());
            return Wait::HasLock;
        }
        self.queue[at].is_halted = self.halts_early(at, is_preempted);
        if self.queue[at].is_halted { Wait::Halts } else { Wait::Spins }
    }

    fn look_unqueued(&mut self, task: TaskId, is_preempted: impl Fn(TaskId) -> bool) -> Wait {
        let Some(at) = self.crowd.iter().position(|&other| other == task) else { return Wait::SpinsOn };
        if self.is_free_to_take() {
            self.holder = Some(self.crowd.remove(at));
            return Wait::HasLock;
        }
        if self.rules == LockRules::TestAndSet || self.may_pass_queue() {
            return Wait::SpinsOn;
        }
        self.crowd.remove(at);
        self.stand_in_line(task, is_preempted)
    }

    /// A waiter has spun for long enough.
    pub fn spun_out(&mut self, task: TaskId) -> Wait {
        let Some(at) = self.position(task) else { return Wait::SpinsOn };
        if self.rules == LockRules::PvHybrid && at == 0 {
            if self.holder.is_none() {
                return self.look(task, |_| false);
            }
            // It is made known once; from then on, it only halts as long as no unlock has kicked it.
            self.is_slow |= !std::mem::replace(&mut self.is_hashed, true);
            if !self.is_slow {
                return Wait::Spins;
            }
        }
        self.queue[at].is_halted = true;
        Wait::Halts
    }

    /// A waiter that was to halt does not: an interrupt has come.
    pub fn stays_awake(&mut self, task: TaskId) {
        if let Some(at) = self.position(task) {
            self.queue[at].is_halted = false;
        }
    }

    /// Whether the waiter halts without spinning, for the one before it.
    pub fn is_early(&self, task: TaskId, is_preempted: impl Fn(TaskId) -> bool) -> bool {
        self.position(task).is_some_and(|at| self.halts_early(at, is_preempted))
    }

    /// Whether the waiter has halted.
    #[cfg(test)]
    pub fn is_halted(&self, task: TaskId) -> bool {
        self.position(task).is_some_and(|at| self.queue[at].is_halted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::credit::CreditSettings;
    use crate::policy::linux::LinuxSettings;
    use LockRules::{Fair, PvHybrid, PvQueued, PvTicket, TestAndSet};
    use proptest::prelude::*;
    use proptest::sample::select;

    const A: TaskId = TaskId(0);
    const B: TaskId = TaskId(1);
    const C: TaskId = TaskId(2);
    const D: TaskId = TaskId(3);

    fn on(_: TaskId) -> bool {
        false
    }

    fn near(_: TaskId) -> Option<u64> {
        Some(1)
    }

    #[test]
    fn kvm_spinlock_init_chooses_by_release_of_guest_and_host() {
        let linux = |era| LinuxSettings { era, ..LinuxSettings::default() };
        let credit = PolicySettings::Credit(CreditSettings::default());
        let eras = [LinuxEra::V3_6, LinuxEra::V4_2, LinuxEra::V5_2, LinuxEra::V6_12];
        for (host, of_guests) in [
            (PolicySettings::Linux(linux(LinuxEra::V3_6)), [Fair, TestAndSet, TestAndSet, TestAndSet]),
            (PolicySettings::Linux(linux(LinuxEra::V4_2)), [Fair, PvQueued, PvHybrid, PvHybrid]),
            (PolicySettings::Linux(linux(LinuxEra::V6_12)), [Fair, PvQueued, PvHybrid, PvHybrid]),
            (credit, [Fair, PvQueued, PvHybrid, PvHybrid]),
        ] {
            for (era, expected) in eras.into_iter().zip(of_guests) {
                let rules = |guest| LockRules::of(&host, &PolicySettings::Linux(guest));
                assert_eq!(rules(linux(era)), expected, "{era:?} on {host:?}");
                assert_eq!(rules(LinuxSettings { paravirt_locks: false, ..linux(era) }), Fair);
            }
        }
    }

    #[test]
    fn fair_locks_serve_their_waiters_in_order() {
        for rules in [Fair, PvTicket, PvQueued] {
            let mut lock = SpinLock::new(rules);
            assert_eq!(lock.take(D, on), Wait::HasLock);
            for task in [B, C, A] {
                assert_eq!(lock.take(task, on), Wait::Spins);
            }
            assert_eq!(lock.release(A, near), Released::default(), "not its holder");
            for (holder, next) in [(D, Some(B)), (B, Some(C)), (C, Some(A)), (A, None)] {
                assert_eq!(lock.release(holder, near).next, next, "{rules:?}");
            }
        }
    }

    #[test]
    fn kvm_unlock_kick_and_pv_kick_node_wake_the_next_in_line() {
        for (rules, early) in [(PvTicket, None), (PvQueued, Some(C))] {
            let mut lock = SpinLock::new(rules);
            for task in [A, B, C] {
                lock.take(task, on);
            }
            assert_eq!((lock.spun_out(B), lock.spun_out(C)), (Wait::Halts, Wait::Halts));
            let released = lock.release(A, near);
            assert_eq!(released, Released { next: Some(B), kicked: [Some(B), early] }, "{rules:?}");
        }
    }

    #[test]
    fn pv_wait_early_halts_behind_a_waiter_that_has_halted() {
        let mut lock = SpinLock::new(PvHybrid);
        for task in [A, B, C] {
            lock.take(task, on);
        }
        assert_eq!(lock.spun_out(C), Wait::Halts);
        assert_eq!(lock.take(D, on), Wait::Halts, "before it spins at all");
        assert_eq!(lock.look(D, on), Wait::Halts, "and again, when an interrupt wakes it");
        assert_eq!(lock.look(C, on), Wait::Spins);
        assert_eq!(lock.look(D, on), Wait::Spins);
    }

    #[test]
    fn pv_wait_early_halts_behind_a_waiter_that_is_preempted() {
        let mut lock = SpinLock::new(PvHybrid);
        for task in [A, B] {
            lock.take(task, on);
        }
        assert_eq!(lock.take(C, |before| before == B), Wait::Halts);
        assert_eq!(lock.look(C, |before| before == B), Wait::Halts, "an interrupt wakes it");
        assert_eq!(lock.look(C, on), Wait::Spins);
        assert_eq!(lock.look(B, |before| before == A), Wait::Spins, "none is before it");
    }

    #[test]
    fn pv_hybrid_queued_unfair_trylock_steals_only_past_a_head_that_does_not_spin() {
        let mut lock = SpinLock::new(PvHybrid);
        assert_eq!((lock.take(A, on), lock.take(B, on)), (Wait::HasLock, Wait::Spins));
        assert_eq!(lock.take(C, on), Wait::Spins, "the head spins: it stands in line");
        assert_eq!(lock.spun_out(B), Wait::Halts);
        assert_eq!(lock.take(D, on), Wait::SpinsOn, "the head has halted: it spins without standing in line");
        let released = lock.release(A, near);
        assert_eq!(released, Released { next: Some(D), kicked: [Some(B), None] }, "and gets the lock first");
        assert_eq!(lock.take(A, on), Wait::SpinsOn, "the head is on its way");
        assert_eq!(lock.look(B, on), Wait::Spins);
        assert!(lock.crowd_has_to_queue());
        assert_eq!(lock.look(A, on), Wait::Spins, "the head spins again");
        assert_eq!(lock.spun_out(B), Wait::Spins, "it is made known to unlocks once, and halts no more");
        assert_eq!(lock.release(D, near), Released { next: Some(B), kicked: [None; 2] });
    }

    #[test]
    fn pv_kick_node_of_hybrid_locks_leaves_the_kick_to_the_unlock() {
        let mut lock = SpinLock::new(PvHybrid);
        for task in [A, B, C] {
            lock.take(task, on);
        }
        lock.spun_out(C);
        assert_eq!(lock.release(A, near), Released { next: Some(B), kicked: [None; 2] });
        assert_eq!(lock.release(B, near), Released { next: None, kicked: [Some(C), None] });
        assert_eq!((lock.holder(), lock.look(C, on), lock.holder()), (None, Wait::HasLock, Some(C)));
    }

    #[test]
    fn virt_spin_lock_goes_to_the_nearest_that_runs() {
        let mut lock = SpinLock::new(TestAndSet);
        for task in [A, B, C, D] {
            lock.take(task, on);
        }
        let far = |task: TaskId| (task != B).then_some(10 - u64::from(task.0));
        assert_eq!(lock.release(A, far).next, Some(D));
        assert_eq!(lock.release(D, |_| None).next, None, "none of them runs");
        assert_eq!((lock.look(B, on), lock.look(C, on)), (Wait::HasLock, Wait::SpinsOn));
    }

    proptest! {
        /// Tasks take, release, spin out and look at random, as the engine lets them.
        #[test]
        fn one_holder_none_lost_and_kicks_where_they_are_due(
            rules in select(vec![Fair, TestAndSet, PvTicket, PvQueued, PvHybrid]),
            steps in prop::collection::vec((0..4u32, 0..6u32), 1..200),
        ) {
            let mut lock = SpinLock::new(rules);
            // What has been woken and has not looked, and what has halted.
            let mut halted = std::collections::BTreeSet::new();
            let mut order = VecDeque::new();
            for (what, task) in steps {
                let task = TaskId(task);
                let waits = lock.waiting().any(|other| other == task);
                let is_asleep = halted.contains(&task);
                let wait = match what {
                    0 if !waits && lock.holder() != Some(task) => {
                        let wait = lock.take(task, on);
                        if wait != Wait::HasLock {
                            order.push_back(task);
                        }
                        Some(wait)
                    }
                    1 if lock.holder() == Some(task) => {
                        let spins = |task: TaskId| (!halted.contains(&task)).then_some(u64::from(task.0));
                        let released = lock.release(task, spins);
                        for kicked in released.kicked.into_iter().flatten() {
                            halted.remove(&kicked);
                        }
                        if !matches!(rules, TestAndSet | PvHybrid) {
                            prop_assert_eq!(released.next, order.pop_front(), "in order");
                        }
                        None
                    }
                    2 if waits && rules.halts() && !is_asleep => Some(lock.spun_out(task)),
                    // An interrupt wakes it.
                    3 if waits && rules.looks() => {
                        halted.remove(&task);
                        Some(lock.look(task, on))
                    }
                    _ => None,
                };
                if wait == Some(Wait::Halts) {
                    halted.insert(task);
                }
                for &task in &halted {
                    prop_assert!(lock.is_halted(task) && rules.halts());
                }
                prop_assert!(lock.waiting().all(|other| lock.holder() != Some(other)));
                if lock.holder().is_none()
                    && let Some(first) = lock.waiting().next()
                {
                    prop_assert!(!halted.contains(&first), "a free lock has woken its first waiter");
                }
                let mut waiting: Vec<_> = lock.waiting().collect();
                let count = waiting.len();
                waiting.sort_unstable();
                waiting.dedup();
                prop_assert_eq!(waiting.len(), count, "each waits once");
            }
        }
    }
}
