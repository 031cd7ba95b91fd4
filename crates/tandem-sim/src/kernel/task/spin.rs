//! What a task holds or waits for while it keeps its CPU: spin locks, and answers to its interrupts.

/// The spinning of a task.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spin {
    /// It waits, for a spin lock or for answers.
    spins: bool,
    /// Spin locks that it holds.
    locks_held: u32,
    /// Answers that it still waits for.
    answers_missing: u32,
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

    /// It waits for a lock.
    pub fn await_lock(&mut self) {
        self.spins = true;
    }

    /// It has got a lock.
    pub fn get_lock(&mut self) {
        self.spins = false;
        self.locks_held += 1;
    }

    /// It has given a lock back.
    pub fn release_lock(&mut self) {
        self.locks_held -= 1;
    }

    /// It waits for this many answers. Returns whether there are any.
    pub fn await_answers(&mut self, answers: u32) -> bool {
        self.answers_missing = answers;
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
