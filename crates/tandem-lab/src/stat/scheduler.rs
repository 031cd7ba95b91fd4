//! The cost of a compiled scheduler's decisions: their instructions, and the queued tasks that they visit
//! while other CPUs wait for the queue's lock.

use super::grouped;
use serde::Serialize;
use std::fmt;
use tandem_sim::metrics::{DecisionCost, SchedulerCosts};

/// The cost of a compiled scheduler's decisions.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SchedulerStat {
    /// Decisions: "wake" is `select_cpu` and `enqueue`, "dispatch" the choice of the next task, "tick" a
    /// tick.
    pub decisions: Vec<DecisionStat>,
    /// Callbacks, by name.
    pub callbacks: Vec<DecisionStat>,
}

/// The cost of one kind of decision, or of one callback.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DecisionStat {
    /// Name of the decision or the callback.
    pub name: String,
    /// Number of calls.
    pub count: u64,
    /// BPF instructions of a call, on average; 0 if they were not counted.
    pub instructions_mean: f64,
    /// Most instructions of a call.
    pub instructions_max: u64,
    /// Queued tasks that a call visited under locks of dispatch queues, on average.
    pub visited_mean: f64,
    /// Most visits of a call.
    pub visited_max: u64,
}

impl SchedulerStat {
    pub(super) fn new(costs: &SchedulerCosts) -> Self {
        let decisions = [("wake", &costs.wake), ("dispatch", &costs.dispatch), ("tick", &costs.tick)];
        Self {
            decisions: decisions.into_iter().map(|(name, cost)| DecisionStat::new(name, cost)).collect(),
            callbacks: costs.callbacks.iter().map(|(name, cost)| DecisionStat::new(name, cost)).collect(),
        }
    }
}

impl DecisionStat {
    fn new(name: &str, cost: &DecisionCost) -> Self {
        Self {
            name: name.into(),
            count: cost.count,
            instructions_mean: cost.instructions_mean().unwrap_or(0.0),
            instructions_max: cost.instructions_max,
            visited_mean: cost.visited_mean().unwrap_or(0.0),
            visited_max: cost.visited_max,
        }
    }
}

/// A table of decisions, then one of callbacks.
impl fmt::Display for SchedulerStat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (title, costs) in [("decision", &self.decisions), ("callback", &self.callbacks)] {
            let columns = ["count", "instructions", "max", "tasks visited", "max"];
            let [count, instructions, instructions_max, visited, visited_max] = columns;
            writeln!(
                f,
                "{title:22} {count:>14} {instructions:>13} {instructions_max:>9} {visited:>14} {visited_max:>7}"
            )?;
            for cost in costs {
                writeln!(
                    f,
                    "{:22} {:>14} {:>13.1} {:>9} {:>14.2} {:>7}",
                    cost.name,
                    grouped(cost.count),
                    cost.instructions_mean,
                    cost.instructions_max,
                    cost.visited_mean,
                    cost.visited_max
                )?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
