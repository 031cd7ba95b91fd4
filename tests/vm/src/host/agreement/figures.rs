//! The figures that are compared.

use super::misses;
use crate::record::{Record, Scheduler, Task};
use std::fmt;
use tandem_sim::scenario::Scenario;

/// What records are of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The program.
    pub program: String,
    /// The scheduler that was in charge.
    pub scheduler: Scheduler,
    /// The release of the kernel.
    pub kernel: String,
}

/// A property of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Figure {
    /// Context switches away from the program's tasks.
    Switches,
    /// How often they continued on another CPU.
    Migrations,
    /// The set's share of the program's CPU time, percent.
    Share(String),
    /// The share of the set's CPU time that it had on node 0, percent.
    Node0(String),
    /// The median of the waits for a CPU, us.
    MedianWait,
    /// Their 99th percentile, us.
    LongWait,
}

/// The figures of a program under a scheduler: shares of sets if there are several, nodes where the program
/// names the ones that it prefers, waits under the kernel's own.
pub fn of(scenario: &Scenario, scheduler: &Scheduler) -> Vec<Figure> {
    let mut figures = vec![Figure::Switches, Figure::Migrations];
    if scenario.workloads.len() > 1 {
        figures.extend(scenario.workloads.iter().skip(1).map(|set| Figure::Share(set.name.clone())));
    }
    let prefer = scenario.workloads.iter().filter(|set| set.affinity(0).soft.is_some());
    figures.extend(prefer.map(|set| Figure::Node0(set.name.clone())));
    if *scheduler == Scheduler::Eevdf {
        figures.extend([Figure::MedianWait, Figure::LongWait]);
    }
    figures
}

/// Counts that differ by less than this many events do not differ: runs of the guest do by as much.
const FEW_EVENTS: f64 = 5.0;

/// How many CPUs the program kept busy on average, from its start to its end.
pub fn busy_cpus(record: &Record) -> f64 {
    total_ns(record) as f64 / record.span_ns as f64
}

fn total_ns(record: &Record) -> u64 {
    record.tasks.iter().map(Task::total_ns).sum()
}

impl Figure {
    /// The value in the record.
    pub fn value(&self, record: &Record) -> f64 {
        let percent = |part: u64, whole: u64| 100.0 * part as f64 / whole as f64;
        match self {
            Self::Switches => record.tasks.iter().map(Task::switches).sum::<u64>() as f64,
            Self::Migrations => record.tasks.iter().map(|task| task.migrations).sum::<u64>() as f64,
            Self::Share(set) => percent(record.of_set(set).total_ns(), total_ns(record)),
            Self::Node0(set) => {
                let set = record.of_set(set);
                let node_0 = set.run_ns.iter().take(set.run_ns.len() / 2).sum();
                percent(node_0, set.total_ns())
            }
            Self::MedianWait => record.waits.median_ns as f64 / 1e3,
            Self::LongWait => record.waits.p99_ns as f64 / 1e3,
        }
    }

    /// By how much the simulated value is larger: percent of a count or a time, points of a share.
    pub fn difference(&self, real: f64, simulated: f64) -> f64 {
        self.in_unit(simulated - real, real)
    }

    /// A difference of values in the figure's unit, beside a real one.
    pub fn in_unit(&self, difference: f64, real: f64) -> f64 {
        // Of nothing, as of one event.
        if self.is_share() { difference } else { 100.0 * difference / real.max(1.0) }
    }

    /// Whether the values are within a limit of each other, in the figure's unit, or chance alone might have
    /// put them out of it, which it can by so much of a value.
    pub fn agrees(&self, real: f64, simulated: f64, limit: f64, chance: f64) -> bool {
        let apart = ((simulated - real).abs() - chance).max(0.0);
        self.in_unit(apart, real) <= limit || (self.is_count() && apart < FEW_EVENTS)
    }

    fn is_count(&self) -> bool {
        matches!(self, Self::Switches | Self::Migrations)
    }

    fn is_share(&self) -> bool {
        matches!(self, Self::Share(_) | Self::Node0(_))
    }

    /// The unit of differences.
    pub fn unit(&self) -> &'static str {
        if self.is_share() { " p" } else { "%" }
    }

    /// The difference with which the comparison fails, chance apart, in its unit: the target, but for figures
    /// in which boots differ from each other. The interval knows of the runs of one boot alone. These bounds
    /// were set after such boots had been seen: they notice a change for the worse, and show no agreement.
    ///
    /// - Of the kernel's own scheduler, the figures that miss their targets are [listed](misses).
    /// - Ping-pong's migrations are some twenty in 10,000 switches, 16 to 35 in the means of eleven boots:
    ///   how long a round trip takes decides where in it ticks fall.
    /// - In two of four boots an idle CPU took twice as long to wake up. There the simulated burners migrated
    ///   by a quarter to two fifths more than the real ones, and the real yielders came to yield by an eighth
    ///   to three tenths less often.
    pub fn bound(&self, of: &Source) -> f64 {
        if of.scheduler == Scheduler::Eevdf {
            return misses::bound(of, self).unwrap_or(self.target(&of.scheduler));
        }
        match (of.program.as_str(), self) {
            ("ping-pong" | "burners", Self::Migrations) | ("yield-storm", Self::Switches) => 60.0,
            ("yield-storm", Self::Migrations) => 95.0,
            ("burners", Self::Switches) => 25.0,
            ("spill", Self::Migrations) => 30.0,
            ("spill", Self::Node0(_)) => 4.0,
            _ => self.target(&of.scheduler),
        }
    }

    /// The difference that is aimed at, in its unit.
    pub fn target(&self, scheduler: &Scheduler) -> f64 {
        match (self, scheduler) {
            (Self::Switches | Self::Migrations, _) => 10.0,
            (Self::Share(_) | Self::Node0(_), Scheduler::Eevdf) => 1.0,
            (Self::Share(_) | Self::Node0(_), _) => 2.0,
            (Self::MedianWait | Self::LongWait, _) => 20.0,
        }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Switches => f.write_str("switches"),
            Self::Migrations => f.write_str("migrations"),
            Self::Share(set) => write!(f, "share of {set}, %"),
            Self::Node0(set) => write!(f, "{set} on node 0, %"),
            Self::MedianWait => f.write_str("median wait, us"),
            Self::LongWait => f.write_str("99th pct of waits, us"),
        }
    }
}
