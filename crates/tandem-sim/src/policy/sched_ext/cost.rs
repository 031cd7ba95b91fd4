//! What the scheduler's decisions cost: instructions, and queued tasks that were visited under a queue's lock.
//!
//! A wake-up is `select_cpu` and what comes of `enqueue`; a dispatch all that a CPU runs to choose what comes next. The search
//! of the kernel's own for a task that may run on a CPU counts as the scheduler's, whose queue it is.
//!
//! Limits: instructions are counted by the interpreter alone ([`super::SchedExtSettings::counting`]); in machine code they are
//! 0.

use super::SchedExt;
use super::kernel::ScxKernel;
use crate::metrics::{DecisionCost, SchedulerCosts};
use tandem_ebpf::{FunctionId, Instance};

/// Instructions and visits.
type Spent = [u64; 2];

/// What has been counted.
#[derive(Clone, Debug, Default)]
pub(super) struct Costs {
    by_function: Vec<DecisionCost>,
    wake: DecisionCost,
    dispatch: DecisionCost,
    tick: DecisionCost,
    /// Of the decision that is being made.
    spent: Spent,
}

/// What is decided.
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
        self.spent[0] += spent[0];
    }

    /// What is spent from now on is that of another decision.
    pub fn begin(&mut self) {
        self.spent = [0; 2];
    }

    /// The decision has been made.
    pub fn end(&mut self, decision: Decision) {
        let cost = match decision {
            Decision::Wake => &mut self.wake,
            Decision::Dispatch => &mut self.dispatch,
            Decision::Tick => &mut self.tick,
        };
        let [instructions, visited] = std::mem::take(&mut self.spent);
        cost.add(instructions, visited);
    }
}

impl SchedExt {
    /// Instructions and visits up to now.
    pub(super) fn spent(kernel: &ScxKernel, instance: &Instance) -> Spent {
        [instance.state().instructions(), kernel.visited]
    }

    /// A decision begins; a wake-up has two parts, and goes on with the second.
    pub(super) fn begin_decision(&mut self) {
        self.costs.begin();
        self.visited_before = self.kernel.visited;
    }

    /// A decision has been made.
    pub(super) fn end_decision(&mut self, decision: Decision) {
        self.costs.spent[1] += self.kernel.visited - self.visited_before;
        self.visited_before = self.kernel.visited;
        self.costs.end(decision);
    }

    /// What decisions have cost since the counters were reset.
    pub(crate) fn decision_costs(&self) -> SchedulerCosts {
        let Costs { by_function, wake, dispatch, tick, .. } = &self.costs;
        let ops = self.settings.code.image().struct_ops.first();
        let callbacks = ops.into_iter().flat_map(|ops| &ops.callbacks).filter_map(|(name, function)| {
            let cost = by_function.get(function.0 as usize).filter(|cost| cost.count > 0)?;
            Some((name.clone(), *cost))
        });
        SchedulerCosts { wake: *wake, dispatch: *dispatch, tick: *tick, callbacks: callbacks.collect() }
    }
}
