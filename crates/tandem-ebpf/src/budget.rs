//! How many instructions the calls of an instance may execute in all.
//!
//! Problem: a program that computes for long in each of its calls, and for too long in none, holds up a simulation, in which no
//! time passes meanwhile. A bound of CPU time would end it, earlier on a slow machine than on a fast one.
//!
//! Approach: the instructions of all calls are counted, as those of one call are (`Run::burn`), and their number is bounded:
//! the same program ends at the same point on every machine and in both engines.
//!
//! Limits: a function of the kernel or of the runtime counts as one instruction, whatever it does.

use crate::fault::Fault;
use crate::runtime::Run;

/// Instructions of an instance.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    /// All that it may execute.
    given: u64,
    /// Those of them that are left.
    left: u64,
}

/// No bound but that of a call.
impl Default for Budget {
    fn default() -> Self {
        Self::of(u64::MAX)
    }
}

impl Budget {
    /// What a fault says of a budget that is spent, after the number.
    pub const SPENT: &str = "instructions that it may execute in a run";

    /// So many instructions.
    pub fn of(instructions: u64) -> Self {
        Self { given: instructions, left: instructions }
    }

    /// Instructions that a call has at its beginning.
    #[inline]
    pub fn of_call(&self) -> u64 {
        self.left.min(Run::FUEL)
    }

    /// A call has ended that began with [`Budget::of_call`], and has so many of these left.
    #[inline]
    pub fn end_call(&mut self, begun: u64, left: u64) {
        self.left = self.left.saturating_sub(begun - left);
    }

    /// Instructions that have been executed.
    pub fn spent(&self) -> u64 {
        self.given - self.left
    }

    /// The fault of a call that has none left.
    pub fn exhausted(&self) -> Fault {
        match self.left < Run::FUEL {
            true => Fault(format!("the scheduler has spent the {} {}", self.given, Self::SPENT)),
            false => Fault(format!("the program does not end: it has executed {} instructions", Run::FUEL)),
        }
    }
}
