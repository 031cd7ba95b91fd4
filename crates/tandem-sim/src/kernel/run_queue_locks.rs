//! The locks of the host's run queues.
//!
//! Problem: each CPU's queue has a spin lock. Its own CPU takes it to decide and at ticks, others take it to
//! wake a task there, to balance, and to yield to a task. Linux holds it for all of that, and for the whole
//! of a switch. A CPU that finds it taken spins: that is time of the host, and what the CPU would do next
//! comes later, with everything that waits for the locks that it holds meanwhile.
//!
//! Approach: a CPU's code asks for one lock at a time. Most sections have a length that is known when they
//! begin: then the time at which the lock is free is known too, and with it when the next CPU gets the lock.
//! A directed yield holds one lock while it waits for another, for a time that is not known. A CPU that asks
//! for a lock that is held *openly* stands in line, its processor is stalled, and the release lets the line
//! move up. Either way the CPUs that wait are served in the order in which they asked.
//!
//! The lines are linked through the processors, as each stands in one at most: no lock and no request
//! allocates.
//!
//! Queues of no CPU, such as the dispatch queues of a sched_ext scheduler, have locks of the same kind, which are
//! never held openly. Under such a lock the line of the queue comes from the CPU that had it last, and those of
//! the tasks that are looked at from the CPU's last-level cache.
//!
//! Limits: what a policy decides, it decides when its CPU asks for the lock, not when it gets it. Balancing
//! takes its locks one after the other. Interrupts wait as long as the CPU spins, as they do in the kernel,
//! which disables them.

use super::processors::Processors;
use super::{CpuRef, Kernels};
use crate::cost::SpinLock;
use crate::policy::SharedLock;
use crate::policy::linux::SpinLockKind;
use std::collections::VecDeque;
use tandem_machine::Machine;
use tandem_machine::ids::CpuId;

/// Which lock: that of a CPU's run queue or, numbered after these, of a queue that CPUs share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LockId(usize);

impl From<CpuId> for LockId {
    fn from(queue: CpuId) -> Self {
        Self(queue.index())
    }
}

/// The lock of a queue.
#[derive(Clone, Copy, Debug, Default)]
struct QueueLock {
    /// When it is free, if no processor holds it openly.
    free_at_ns: u64,
    /// The processor that holds it for a time that is not known yet.
    open_holder: Option<CpuId>,
    /// The processor that had it last: where its cache line is.
    line_at: Option<CpuId>,
    first: Option<CpuId>,
    last: Option<CpuId>,
    waiting: u32,
}

/// How long a CPU wants to hold a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    /// For so many ns.
    For(u64),
    /// Until it gives it back, which it will not do before so many ns.
    Open(u64),
}

/// What a processor waits for.
#[derive(Clone, Copy, Debug)]
struct LockRequest {
    queue: LockId,
    hold: Hold,
    /// From when on its time has not been accounted for, ns.
    since_ns: u64,
}

/// A processor that waits, or does not.
#[derive(Clone, Debug, Default)]
struct Waiter {
    /// The locks that it waits for, one after the other.
    requests: VecDeque<LockRequest>,
    /// The processor that comes after it in the line for the first of them.
    next_in_line: Option<CpuId>,
}

/// A lock that a processor has got: how long it waited for it, and how long its code holds it at least, ns.
#[derive(Clone, Copy, Debug)]
struct Grant {
    waited_ns: u64,
    held_ns: u64,
}

/// What becomes of a processor that has got a lock.
enum Next {
    /// It waits for no other.
    Free,
    /// It wants another one, and has got it.
    Granted(Grant),
    /// It stands in another line.
    InLine,
}

/// The locks of all queues, and the lines before them.
#[derive(Clone, Debug)]
pub(super) struct QueueLocks {
    kind: SpinLockKind,
    /// Without the model, locks cost nothing.
    model: Option<SpinLock>,
    /// By [`LockId`].
    locks: Vec<QueueLock>,
    /// By processor.
    waiters: Vec<Waiter>,
}

impl QueueLocks {
    pub fn new(kind: SpinLockKind, model: Option<SpinLock>, pcpus: usize) -> Self {
        Self {
            kind,
            model,
            locks: vec![QueueLock::default(); pcpus],
            waiters: vec![Waiter::default(); pcpus],
        }
    }

    /// The lock of a queue that CPUs share.
    fn shared(&mut self, queue: u32) -> LockId {
        let lock = LockId(self.waiters.len() + queue as usize);
        if self.locks.len() <= lock.0 {
            self.locks.resize(lock.0 + 1, QueueLock::default());
        }
        lock
    }

    /// A processor asks for a lock; `None`: it stands in line.
    #[inline]
    fn ask(&mut self, machine: &Machine, pcpu: CpuId, request: LockRequest) -> Option<Grant> {
        let waits = !self.waiters[pcpu.index()].requests.is_empty();
        if !waits && self.locks[request.queue.0].open_holder.is_none() {
            return Some(self.grant(machine, pcpu, request, 0));
        }
        self.waiters[pcpu.index()].requests.push_back(request);
        if !waits {
            self.stand_in_line(pcpu, request.queue);
        }
        None
    }

    fn stand_in_line(&mut self, pcpu: CpuId, queue: LockId) {
        let lock = &mut self.locks[queue.0];
        match lock.last.replace(pcpu) {
            Some(ahead) => self.waiters[ahead.index()].next_in_line = Some(pcpu),
            None => lock.first = Some(pcpu),
        }
        lock.waiting += 1;
    }

    /// The processor, whose time is settled up to `since_ns`, has got what it waited for, and asks for the
    /// next lock that it wants, if there is one.
    fn ask_for_next(&mut self, machine: &Machine, pcpu: CpuId, since_ns: u64) -> Next {
        let Some(request) = self.waiters[pcpu.index()].requests.front_mut() else { return Next::Free };
        request.since_ns = since_ns;
        let request = *request;
        if self.locks[request.queue.0].open_holder.is_some() {
            self.stand_in_line(pcpu, request.queue);
            return Next::InLine;
        }
        self.waiters[pcpu.index()].requests.pop_front();
        Next::Granted(self.grant(machine, pcpu, request, 0))
    }

    /// The processor gets a lock as soon as it is free; `others` watch it besides.
    #[inline]
    fn grant(&mut self, machine: &Machine, pcpu: CpuId, request: LockRequest, others: u32) -> Grant {
        let uncontended_ns = self.model.map_or(0, |model| model.uncontended_ns);
        let lock = &mut self.locks[request.queue.0];
        let mut begins_ns = request.since_ns;
        if lock.free_at_ns > begins_ns {
            let from = lock.line_at.filter(|_| self.model.is_some());
            let transfer_ns = from.map_or(0, |from| machine.line_transfer_ns(from, pcpu));
            begins_ns = lock.free_at_ns + SpinLock::hand_over_ns(self.kind, transfer_ns, others + 1);
        }
        let (hold_ns, is_open) = match request.hold {
            Hold::For(hold_ns) => (hold_ns, false),
            Hold::Open(work_ns) => (work_ns, true),
        };
        let held_ns = uncontended_ns + hold_ns;
        lock.free_at_ns = begins_ns + held_ns;
        lock.line_at = Some(pcpu);
        lock.open_holder = is_open.then_some(pcpu);
        Grant { waited_ns: begins_ns - request.since_ns, held_ns }
    }

    /// A processor gives back a lock that it has held openly.
    fn give_back(&mut self, pcpu: CpuId, queue: CpuId, now_ns: u64) {
        let lock = &mut self.locks[queue.index()];
        debug_assert_eq!(lock.open_holder, Some(pcpu), "only the holder gives a lock back");
        lock.open_holder = None;
        lock.free_at_ns = now_ns;
    }

    /// The first in the line for a lock gets it, if no processor holds it openly.
    fn move_up(&mut self, machine: &Machine, queue: CpuId) -> Option<(CpuId, Grant)> {
        let lock = &mut self.locks[queue.index()];
        let next = lock.first.filter(|_| lock.open_holder.is_none())?;
        lock.waiting -= 1;
        let others = lock.waiting;
        let waiter = &mut self.waiters[next.index()];
        lock.first = waiter.next_in_line.take();
        if lock.first.is_none() {
            lock.last = None;
        }
        let request = waiter.requests.pop_front().expect("a processor in a line waits for something");
        Some((next, self.grant(machine, next, request, others)))
    }

    /// So much of the time for which a processor waits has been accounted for, ns.
    #[inline]
    fn spun(&mut self, pcpu: CpuId, spent_ns: u64) {
        if let Some(request) = self.waiters[pcpu.index()].requests.front_mut() {
            request.since_ns += spent_ns;
        }
    }
}

impl Processors {
    /// The host's code on a processor, whose time is settled, takes the lock of a queue, holds it for a time,
    /// and gives it back.
    #[inline]
    pub(super) fn lock_queue(&mut self, kernels: &mut Kernels, pcpu: CpuId, queue: CpuId, hold_ns: u64) {
        match self.hardware.costs().spin_lock {
            Some(_) => {
                self.ask_for_lock(kernels, pcpu, queue, Hold::For(hold_ns));
            }
            None => self.charge(kernels, CpuRef::host(pcpu), hold_ns),
        }
    }

    /// The host's code on a processor takes the lock of a queue that CPUs share, looks at tasks in it, and gives it
    /// back.
    pub(super) fn lock_shared_queue(&mut self, kernels: &mut Kernels, lock: SharedLock) {
        let Some(SpinLock { uncontended_ns, .. }) = self.hardware.costs().spin_lock else { return };
        let SharedLock { cpu: pcpu, queue, times, visited } = lock;
        let queue = self.locks.shared(queue);
        let machine = self.hardware.machine();
        let from = self.locks.locks[queue.0].line_at.filter(|&from| from != pcpu);
        let queue_ns = from.map_or(0, |from| machine.line_transfer_ns(from, pcpu));
        let tasks_ns = u64::from(visited) * u64::from(machine.hardware().llc_latency_ns);
        let again_ns = u64::from(times.saturating_sub(1)) * uncontended_ns;
        let hold = Hold::For(queue_ns + tasks_ns + again_ns);
        self.ask_for_lock(kernels, pcpu, queue, hold);
    }

    /// The host's code on a processor asks for a lock that it will give back by [`Processors::give_back`];
    /// whether it has got it. If not, the processor is stalled until it has. Its time is settled up to
    /// `work_ns` after that.
    pub(super) fn lock_queue_openly(
        &mut self,
        kernels: &mut Kernels,
        pcpu: CpuId,
        queue: CpuId,
        work_ns: u64,
    ) -> bool {
        self.ask_for_lock(kernels, pcpu, queue, Hold::Open(work_ns))
    }

    #[inline]
    fn ask_for_lock(
        &mut self,
        kernels: &mut Kernels,
        pcpu: CpuId,
        queue: impl Into<LockId>,
        hold: Hold,
    ) -> bool {
        let request = LockRequest { queue: queue.into(), hold, since_ns: self[pcpu].settled_ns };
        let grant = self.locks.ask(self.hardware.machine(), pcpu, request);
        match grant {
            Some(grant) => self.charge_lock(kernels, pcpu, grant),
            None => self[pcpu].waits_for_lock = true,
        }
        grant.is_some()
    }

    /// The code of the host on a processor has waited for a lock, and holds it.
    #[inline]
    fn charge_lock(&mut self, kernels: &mut Kernels, pcpu: CpuId, Grant { waited_ns, held_ns }: Grant) {
        kernels.host_mut()[pcpu].used.spin_ns += waited_ns;
        self.charge(kernels, CpuRef::host(pcpu), waited_ns + held_ns);
    }

    /// Accounts for the time up to now of a processor that is stalled.
    pub(super) fn settle_spinning(&mut self, kernels: &mut Kernels, pcpu: CpuId, now_ns: u64) {
        let spent_ns = now_ns - self[pcpu].settled_ns;
        self.locks.spun(pcpu, spent_ns);
        kernels.host_mut()[pcpu].used.spin_ns += spent_ns;
        self.charge(kernels, CpuRef::host(pcpu), spent_ns);
    }

    /// The processor gives back a lock that it has held openly. The line then moves up: see
    /// [`Processors::move_line_up`].
    pub(super) fn give_back(&mut self, pcpu: CpuId, queue: CpuId, now_ns: u64) {
        self.locks.give_back(pcpu, queue, now_ns);
    }

    /// The first in the line for a lock gets it, if it is free, and asks for the next lock that it wants;
    /// which processor that is.
    pub(super) fn move_line_up(&mut self, kernels: &mut Kernels, queue: CpuId) -> Option<CpuId> {
        let (next, grant) = self.locks.move_up(self.hardware.machine(), queue)?;
        self.charge_lock(kernels, next, grant);
        loop {
            let since_ns = self[next].settled_ns;
            match self.locks.ask_for_next(self.hardware.machine(), next, since_ns) {
                Next::Granted(grant) => self.charge_lock(kernels, next, grant),
                Next::InLine => return Some(next),
                Next::Free => {
                    self[next].waits_for_lock = false;
                    return Some(next);
                }
            }
        }
    }
}

#[cfg(test)]
impl<O: crate::trace::Observer> super::System<O> {
    /// Panics unless every lock has one holder at most, and every processor that waits stands in the line
    /// that it should.
    pub fn check_queue_locks(&self) {
        let mut standing = 0;
        for (queue, lock) in self.processors.locks.locks.iter().enumerate() {
            let (mut at, mut last, mut length) = (lock.first, None, 0);
            while let Some(pcpu) = at {
                let waiter = &self.processors.locks.waiters[pcpu.index()];
                let request = waiter.requests.front().expect("a processor in a line waits for something");
                assert_eq!(request.queue.0, queue, "it stands in the line of what it waits for");
                assert_ne!(lock.open_holder, Some(pcpu), "the holder does not wait for its own lock");
                length += 1;
                assert!(length <= self.processors.len(), "the line has an end");
                (last, at) = (at, waiter.next_in_line);
            }
            assert_eq!((lock.last, lock.waiting as usize), (last, length), "the line is whole");
            standing += length;
            match lock.open_holder {
                None => {
                    assert_eq!(
                        length, 0,
                        "no processor waits for a lock that is free or will be at a known time"
                    )
                }
                Some(holder) => {
                    assert!(self.processors[holder].searches, "only searches hold openly")
                }
            }
        }
        for (processor, waiter) in self.processors.list.iter().zip(&self.processors.locks.waiters) {
            assert_eq!(processor.waits_for_lock, !waiter.requests.is_empty());
        }
        for (pcpu, processor) in (0..).map(CpuId).zip(self.processors.list.iter()) {
            assert_eq!(processor.searches, self.pause_loops.is_searching(pcpu));
        }
        let waiting: Vec<_> =
            self.processors.list.iter().filter(|processor| processor.waits_for_lock).collect();
        assert_eq!(waiting.len(), standing, "no processor is lost");
    }
}
