//! What a task holds or waits for while it keeps its CPU: spin locks, and answers to its interrupts.

use crate::engine::event_queue::NEVER;

/// The spinning of a task.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spin {
    /// It waits, for a spin lock or for answers.
    spins: bool,
    /// Spin locks that it holds.
    locks_held: u32,
    /// Answers that it still waits for.
    answers_missing: u32,
    /// It looks at the lock when it comes back to a pCPU.
    looks: bool,
    is_to_look: bool,
    /// The lock that it waits for.
    lock: u32,
    /// How long it still spins, ns; [`NEVER`] without a limit.
    left_ns: u64,
}

impl Spin {
    /// Whether it waits, and keeps its CPU busy with that.
    #[inline]
    pub fn is_spinning(self) -> bool {
        self.spins
    }

    /// Whether it holds or waits for something, so that its kernel does not preempt it.
    #[inline]
    pub fn forbids_preemption(self) -> bool {
        self.spins || self.locks_held > 0
    }

    /// It waits for that lock, and spins for so long, or without a limit. `looks`: it looks at the lock when
    /// it comes back to a pCPU.
    pub fn await_lock(&mut self, lock: u32, limit_ns: u64, looks: bool) {
        self.spins = true;
        self.lock = lock;
        self.looks = looks;
        self.is_to_look = false;
        self.left_ns = limit_ns;
    }

    /// It has got a lock.
    pub fn get_lock(&mut self) {
        self.spins = false;
        self.looks = false;
        self.is_to_look = false;
        self.locks_held += 1;
    }

    /// The lock that it waits for.
    pub fn lock(self) -> usize {
        self.lock as usize
    }

    /// It comes back to a pCPU, or has to look at its lock for another reason.
    #[inline]
    pub fn look(&mut self) {
        self.is_to_look = self.looks;
    }

    /// Whether it has to look at its lock.
    #[inline]
    pub fn is_to_look(self) -> bool {
        self.is_to_look
    }

    /// It has spun for so long.
    #[inline]
    pub fn spun(&mut self, spent_ns: u64) {
        if self.looks && self.left_ns != NEVER {
            self.left_ns = self.left_ns.saturating_sub(spent_ns);
        }
    }

    /// How long it goes on until it looks at its lock or halts, ns; `None` without a limit.
    #[inline]
    pub fn left_ns(self) -> Option<u64> {
        match (self.looks, self.is_to_look) {
            (false, _) => None,
            (_, true) => Some(0),
            _ => (self.left_ns != NEVER).then_some(self.left_ns),
        }
    }

    /// It spins for so long at most.
    pub fn limit(&mut self, limit_ns: u64) {
        self.left_ns = self.left_ns.min(limit_ns);
    }

    /// It has looked at its lock, and spins for so long. One that had not spun out goes on where it was.
    pub fn looked(&mut self, limit_ns: u64) {
        if !self.is_to_look
            || self.left_ns == 0
            || self.left_ns == NEVER
            || limit_ns == 0
            || limit_ns == NEVER
        {
            self.left_ns = limit_ns;
        }
        self.is_to_look = false;
    }

    /// It spins for so long from now on.
    pub fn restart(&mut self, limit_ns: u64) {
        self.left_ns = limit_ns;
    }

    /// One that stands in no line looks at its lock when it is back from the host.
    pub fn look_if_unqueued(&mut self) {
        self.is_to_look |= self.looks && self.left_ns == NEVER;
    }

    /// It has given a lock back.
    pub fn release_lock(&mut self) {
        self.locks_held -= 1;
    }

    /// It waits for this many answers. Returns whether there are any.
    pub fn await_answers(&mut self, answers: u32) -> bool {
        self.answers_missing = answers;
        self.looks = false;
        self.spins = answers > 0;
        self.spins
    }

    /// An answer has come; whether it was the last.
    pub fn get_answer(&mut self) -> bool {
        self.answers_missing -= 1;
        self.spins = self.answers_missing > 0;
        !self.spins
    }

    /// Whether it waits for a lock.
    #[cfg(test)]
    pub fn awaits_lock(self) -> bool {
        self.spins && self.answers_missing == 0
    }

    #[cfg(test)]
    pub fn locks_held(self) -> u32 {
        self.locks_held
    }
}
