//! The cost of the scheduler's decisions: instructions, and queued tasks that are visited under a queue's
//! lock.
//!
//! A wake-up is `select_cpu` and `enqueue` with its effects; a dispatch is everything that a CPU runs to
//! choose its next task. The kernel's own search of a queue for a task that may run on a CPU counts for the
//! scheduler that owns the queue.
//!
//! Limits: instructions are counted by the interpreter alone ([`super::SchedExtSettings::counting`]); with
//! machine code the count is 0.

use crate::metrics::{DecisionCost, SchedulerCosts};
use tandem_ebpf::{FunctionId, Image};

/// Instructions and visits.
type Spent = [u64; 2];

/// The counts so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Costs {
    by_function: Vec<DecisionCost>,
    wake: DecisionCost,
    dispatch: DecisionCost,
    tick: DecisionCost,
    /// Instructions of the present decision.
    instructions: u64,
    /// Number of visits when it began.
    visited_before: u64,
}

/// Kind of decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    Wake,
    Dispatch,
    Tick,
}

impl Costs {
    /// A callback has run.
    pub fn called(&mut self, function: FunctionId, before: Spent, after: Spent) {
        let spent = [after[0] - before[0], after[1] - before[1]];
        let at = function.0 as usize;
        if self.by_function.len() <= at {
            self.by_function.resize(at + 1, DecisionCost::default());
        }
        self.by_function[at].add(spent[0], spent[1]);
        self.instructions += spent[0];
    }

    /// Begins to count for another decision, after this many visits. A wake-up has two parts; the second one
    /// continues it.
    pub fn begin(&mut self, visited: u64) {
        (self.instructions, self.visited_before) = (0, visited);
    }

    /// Ends the count for the decision, after this many visits.
    pub fn end(&mut self, decision: Decision, visited: u64) {
        let cost = match decision {
            Decision::Wake => &mut self.wake,
            Decision::Dispatch => &mut self.dispatch,
            Decision::Tick => &mut self.tick,
        };
        let visits = visited - std::mem::replace(&mut self.visited_before, visited);
        cost.add(std::mem::take(&mut self.instructions), visits);
    }

    /// Counts from 0.
    pub fn reset(&mut self) {
        *self = Self { visited_before: self.visited_before, ..Self::default() };
    }

    /// The counts by the names of the callbacks.
    pub fn by_callback(&self, image: &Image) -> SchedulerCosts {
        let Self { by_function, wake, dispatch, tick, .. } = self;
        let ops = image.struct_ops.first();
        let callbacks = ops.into_iter().flat_map(|ops| &ops.callbacks).filter_map(|(name, function)| {
            let cost = by_function.get(function.0 as usize).filter(|cost| cost.count > 0)?;
            Some((name.clone(), *cost))
        });
        SchedulerCosts { wake: *wake, dispatch: *dispatch, tick: *tick, callbacks: callbacks.collect() }
    }
}
