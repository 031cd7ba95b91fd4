//! What a policy asks for while it answers: it cannot call the kernel back, so that goes into an outbox,
//! which the kernel empties.

use crate::policy::{Alarm, Context, Later, SharedLock, TaskFacts};
use tandem_machine::Machine;
use tandem_machine::ids::CpuId;

/// The outbox of a policy. Its lists keep their memory.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    kicked: Vec<CpuId>,
    peers_scanned: u32,
    locked: Vec<CpuId>,
    shared_locked: Vec<SharedLock>,
    alarms: Vec<Alarm>,
    later: Vec<Later>,
    failure: Option<String>,
}

impl Outbox {
    /// What a policy gets with a question, with this outbox in it.
    #[inline]
    pub fn context<'a>(
        &'a mut self,
        now_ns: u64,
        machine: &'a Machine,
        tasks: &'a [TaskFacts],
        stolen_ns: &'a [u64],
    ) -> Context<'a> {
        Context {
            now_ns,
            machine,
            tasks,
            stolen_ns,
            kicked: &mut self.kicked,
            peers_scanned: &mut self.peers_scanned,
            locked: &mut self.locked,
            shared_locked: &mut self.shared_locked,
            alarms: &mut self.alarms,
            later: &mut self.later,
            failure: &mut self.failure,
        }
    }

    /// Whether nothing is to be delivered: kicks, timers, what is for later, a failure. Mostly so.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        self.kicked.is_empty() && self.alarms.is_empty() && self.later.is_empty() && self.failure.is_none()
    }

    /// Whether queues were locked.
    #[inline]
    pub fn has_locked(&self) -> bool {
        !self.locked.is_empty() || !self.shared_locked.is_empty()
    }

    /// How many other CPUs' queues were scanned since the last time.
    #[inline]
    pub fn take_peers_scanned(&mut self) -> u64 {
        std::mem::take(&mut self.peers_scanned).into()
    }

    /// The CPUs that are to reschedule. To be given back to [`Outbox::reuse_kicked`].
    #[inline]
    pub fn take_kicked(&mut self) -> Vec<CpuId> {
        std::mem::take(&mut self.kicked)
    }

    /// Keeps the memory of a list that has been worked off.
    #[inline]
    pub fn reuse_kicked(&mut self, kicked: Vec<CpuId>) {
        reuse(&mut self.kicked, kicked);
    }

    /// The CPUs whose queues were locked, in that order. To be given back to [`Outbox::reuse_locked`].
    #[inline]
    pub fn take_locked(&mut self) -> Vec<CpuId> {
        std::mem::take(&mut self.locked)
    }

    /// The locks of shared queues that were taken. To be given back to [`Outbox::reuse_shared_locked`].
    #[inline]
    pub fn take_shared_locked(&mut self) -> Vec<SharedLock> {
        std::mem::take(&mut self.shared_locked)
    }

    /// Keeps the memory of a list that has been worked off.
    #[inline]
    pub fn reuse_shared_locked(&mut self, locked: Vec<SharedLock>) {
        reuse(&mut self.shared_locked, locked);
    }

    /// Keeps the memory of a list that has been worked off.
    #[inline]
    pub fn reuse_locked(&mut self, locked: Vec<CpuId>) {
        reuse(&mut self.locked, locked);
    }

    /// The timers to be started. To be given back to [`Outbox::reuse_alarms`].
    #[inline]
    pub fn take_alarms(&mut self) -> Vec<Alarm> {
        std::mem::take(&mut self.alarms)
    }

    /// Keeps the memory of a list that has been worked off.
    #[inline]
    pub fn reuse_alarms(&mut self, alarms: Vec<Alarm>) {
        reuse(&mut self.alarms, alarms);
    }

    /// What CPUs are to do later. To be given back to [`Outbox::reuse_later`].
    #[inline]
    pub fn take_later(&mut self) -> Vec<Later> {
        std::mem::take(&mut self.later)
    }

    /// Keeps the memory of a list that has been worked off.
    #[inline]
    pub fn reuse_later(&mut self, later: Vec<Later>) {
        reuse(&mut self.later, later);
    }

    /// The policy cannot go on; the first reason counts.
    pub fn fail(&mut self, reason: String) {
        self.failure.get_or_insert(reason);
    }

    /// Why the policy cannot go on, if it cannot.
    #[inline]
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }
}

/// Gives an empty list the memory of one that has been worked off.
#[inline]
fn reuse<T>(list: &mut Vec<T>, mut worked_off: Vec<T>) {
    debug_assert!(list.is_empty(), "what is worked off asks for no more");
    worked_off.clear();
    *list = worked_off;
}
