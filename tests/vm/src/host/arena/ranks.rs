//! How schedulers rank in two worlds.

use crate::host::table::in_order;
use crate::record::{Record, Task};
use std::fmt::{self, Write};
use tandem_lab::statistics::{mean, rank_correlation};

/// What schedulers are ranked by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Figure {
    /// Runs of a program that ends, a second; of another one, seconds of CPU time, a second.
    Throughput,
    /// The 99th percentile of waits for a CPU, us.
    LongWait,
}

/// A figure of a scheduler in a program, in both worlds.
struct Cell {
    scheduler: String,
    program: String,
    figure: Figure,
    real: f64,
    simulated: f64,
}

/// All figures. Schedulers and programs are shown in the order in which they came; the first scheduler is the
/// one that others are compared with.
#[derive(Default)]
pub struct Ranks {
    cells: Vec<Cell>,
}

impl Figure {
    pub const ALL: [Self; 2] = [Self::Throughput, Self::LongWait];

    /// The value of a record of a program that ends, or does not.
    pub fn value(self, record: &Record, ends: bool) -> f64 {
        match self {
            Self::Throughput if ends => 1e9 / record.span_ns as f64,
            Self::Throughput => {
                record.tasks.iter().map(Task::total_ns).sum::<u64>() as f64 / record.length_ns as f64
            }
            Self::LongWait => record.waits.p99_ns as f64 / 1e3,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Throughput => "throughput",
            Self::LongWait => "p99 of waits",
        }
    }
}

impl Ranks {
    /// Adds a figure of a scheduler in a program.
    pub fn add(&mut self, scheduler: &str, program: &str, figure: Figure, real: f64, simulated: f64) {
        let (scheduler, program) = (scheduler.to_owned(), program.to_owned());
        self.cells.push(Cell { scheduler, program, figure, real, simulated });
    }

    /// Every value, as comma-separated values.
    pub fn csv(&self) -> String {
        let mut text = String::from("scheduler,program,figure,real,simulated\n");
        for Cell { scheduler, program, figure, real, simulated } in &self.cells {
            writeln!(text, "{scheduler},{program},{},{real},{simulated}", figure.name())
                .expect("a string takes all");
        }
        text
    }

    /// In both worlds, the ratio of a scheduler's figure to the first one's.
    fn ratios(&self, scheduler: &str, program: &str, figure: Figure) -> Option<[f64; 2]> {
        let find = |scheduler: &str| {
            let is_it = |cell: &&Cell| {
                cell.scheduler == scheduler && cell.program == program && cell.figure == figure
            };
            self.cells.iter().find(is_it)
        };
        let (first, it) = (find(&self.cells.first()?.scheduler)?, find(scheduler)?);
        // No wait at all counts as one of a microsecond.
        let ratio = |value: f64, first: f64| match figure {
            Figure::Throughput => value / first,
            Figure::LongWait => value.max(1.0) / first.max(1.0),
        };
        Some([ratio(it.real, first.real), ratio(it.simulated, first.simulated)])
    }

    /// The geometric mean of a scheduler's ratios over all programs; none if it has not run them all.
    fn overall(&self, scheduler: &str, figure: Figure) -> Option<[f64; 2]> {
        let programs = in_order(self.cells.iter().map(|cell| cell.program.as_str()));
        let ratios: Option<Vec<[f64; 2]>> =
            programs.iter().map(|program| self.ratios(scheduler, program, figure)).collect();
        let ratios = ratios?;
        let of = |world: usize| Some(mean(ratios.iter().map(|ratio| ratio[world].ln()))?.exp());
        Some([of(0)?, of(1)?])
    }
}

/// A table for each figure, in Markdown: real before simulated, as ratios to the first scheduler.
impl fmt::Display for Ranks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let schedulers = in_order(self.cells.iter().map(|cell| cell.scheduler.as_str()));
        let programs = in_order(self.cells.iter().map(|cell| cell.program.as_str()));
        let Some(first) = schedulers.first() else { return writeln!(f, "no scheduler has run") };
        for figure in Figure::ALL {
            writeln!(f, "{}, real and simulated, as ratios to {first}:\n", figure.name())?;
            writeln!(f, "| scheduler | {} | all |", programs.join(" | "))?;
            writeln!(f, "|---{}|---|", "|---".repeat(programs.len()))?;
            let show = |ratios: Option<[f64; 2]>| match ratios {
                Some([real, simulated]) => format!("{real:.2} {simulated:.2}"),
                None => "–".to_owned(),
            };
            for scheduler in &schedulers {
                let of = |program: &&str| show(self.ratios(scheduler, program, figure));
                let cells: Vec<String> = programs.iter().map(of).collect();
                let overall = show(self.overall(scheduler, figure));
                writeln!(f, "| {scheduler} | {} | {overall} |", cells.join(" | "))?;
            }
            let correlation = |of: &dyn Fn(&str) -> Option<[f64; 2]>| {
                let pairs: Vec<[f64; 2]> = schedulers.iter().filter_map(|scheduler| of(scheduler)).collect();
                let world = |world: usize| pairs.iter().map(|pair| pair[world]).collect::<Vec<_>>();
                rank_correlation(&world(0), &world(1)).map_or("–".to_owned(), |value| format!("{value:.2}"))
            };
            let of = |program: &&str| correlation(&|scheduler| self.ratios(scheduler, program, figure));
            let cells: Vec<String> = programs.iter().map(of).collect();
            let overall = correlation(&|scheduler| self.overall(scheduler, figure));
            writeln!(f, "| *rank correlation* | {} | {overall} |\n", cells.join(" | "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_of_each_program_and_of_all() {
        let mut ranks = Ranks::default();
        for (scheduler, real, simulated) in [("a", 1.0, 1.0), ("b", 2.0, 3.0), ("c", 4.0, 2.0)] {
            ranks.add(scheduler, "p", Figure::Throughput, real, simulated);
            ranks.add(scheduler, "q", Figure::Throughput, 10.0 * real, 5.0 * real);
        }
        ranks.add("d", "p", Figure::Throughput, 8.0, 4.0);
        let text = ranks.to_string();
        // Of four schedulers one pair is the other way round in p: 1 - 6 * 2 / (4 * 15).
        assert!(text.contains("| *rank correlation* | 0.80 | 1.00 |"), "{text}");
        assert!(text.contains("| c | 4.00 2.00 | 4.00 4.00 | 4.00 2.83 |"), "{text}");
        assert!(text.contains("| d | 8.00 4.00 | – | – |"), "{text}");
        assert!(ranks.csv().contains("b,p,throughput,2,3\n"));
    }

    #[test]
    fn no_wait_is_as_a_microsecond() {
        let mut ranks = Ranks::default();
        ranks.add("a", "p", Figure::LongWait, 0.0, 0.5);
        ranks.add("b", "p", Figure::LongWait, 2.0, 4.0);
        assert_eq!(ranks.ratios("b", "p", Figure::LongWait), Some([2.0, 4.0]));
    }

    #[test]
    fn throughput_is_of_runs_or_of_time() {
        let task = Task { run_ns: vec![3_000_000_000, 1_000_000_000], ..Task::default() };
        let record =
            Record { span_ns: 500_000_000, length_ns: 2_000_000_000, tasks: vec![task], ..Record::default() };
        assert_eq!(Figure::Throughput.value(&record, true), 2.0);
        assert_eq!(Figure::Throughput.value(&record, false), 2.0);
    }
}
