//! Holds the simulator to what a real kernel did: the same small programs under the same scheduler object on the same machine.
//!
//! **Problem.** What the simulator says of the scheduler is worth something only if a real kernel with that scheduler does the
//! same.
//!
//! **Approach.** Once the leg `agreement` has recorded its programs, each is run in the simulator as well, with several seeds.
//! Each [figure](figures) has a bound, the target unless the [table of bounds](bounds) gives another one with the reason for it.
//!
//! **Limits.** The guest's run is one of many that another seed would have given: single runs differ by as much as
//! `tests/vm/README.md` says, the simulator's mean over seeds does not know in which direction.

mod bounds;
mod emulator;
mod figures;
mod simulated;

use crate::guest::perform;
use crate::leg::{self, AGREEMENT_LEG};
use crate::record::Record;
use anyhow::{Context, Result, ensure};
use bounds::Bound;
use emulator::Emulator;
use figures::Figure;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// The program in which paths of the kernel are measured.
const PING_PONG: &str = "ping-pong";
/// Seeds with which the simulator runs each program.
const SEEDS: std::ops::RangeInclusive<u64> = 1..=32;

/// A figure of a program, of the real kernel and of the simulator.
struct Row {
    program: String,
    figure: Figure,
    /// Of each record.
    real: Vec<f64>,
    /// Of each seed.
    simulated: Vec<f64>,
    bound: Bound,
}

/// All figures, to be printed.
pub struct Comparison {
    emulator: Emulator,
    rows: Vec<Row>,
}

/// The records in folders, such as the leg leaves them, one folder for each run.
pub fn read_records(folders: &[PathBuf]) -> Result<Vec<Record>> {
    let mut records = Vec::new();
    let programs = leg::find(AGREEMENT_LEG).context("there is no such leg")?.scenarios;
    for folder in folders {
        for program in programs {
            let file = folder.join(format!("{}.json", program.name));
            if file.exists() {
                let text =
                    fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
                let record = serde_json::from_str(&text);
                records.push(record.with_context(|| format!("{} is no record", file.display()))?);
            }
        }
    }
    Ok(records)
}

/// Runs the programs of the records in the simulator, and compares. Each program may have several records.
pub fn compare(records: &[Record]) -> Result<Comparison> {
    let leg = leg::find(AGREEMENT_LEG).context("there is no such leg")?;
    let of = |program: &str| records.iter().filter(|record| record.program == program).collect::<Vec<_>>();
    let file = |program: &str| {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("agreement").join(format!("{program}.toml"))
    };
    ensure!(
        !of(PING_PONG).is_empty(),
        "there is no record of {PING_PONG}, in which the kernel's paths are measured"
    );
    let ping_pong = perform::read_scenario(&file(PING_PONG))?;
    let emulator = Emulator::measured(leg, &ping_pong, &of(PING_PONG), &records.iter().collect::<Vec<_>>());
    let mut rows = Vec::new();
    for program in leg.scenarios.iter().map(|scenario| scenario.name) {
        let real = of(program);
        if real.is_empty() {
            continue;
        }
        let scenario = simulated::scenario(&file(program))?;
        let busy_cpus = real.iter().map(|record| figures::busy_cpus(record)).sum::<f64>() / real.len() as f64;
        let simulated = SEEDS
            .map(|seed| simulated::run(program, &scenario, &emulator, busy_cpus, seed))
            .collect::<Result<Vec<_>>>()?;
        for figure in figures::of(&scenario) {
            rows.push(Row {
                program: program.into(),
                bound: bounds::of(program, &figure),
                real: real.iter().map(|record| figure.value(record)).collect(),
                simulated: simulated.iter().map(|record| figure.value(record)).collect(),
                figure,
            });
        }
    }
    Ok(Comparison { emulator, rows })
}

impl Row {
    fn difference(&self) -> f64 {
        self.figure.difference(mean(&self.real), mean(&self.simulated))
    }

    fn agrees(&self) -> bool {
        self.agrees_within(self.bound.limit)
    }

    fn agrees_within(&self, limit: f64) -> bool {
        self.figure.agrees(mean(&self.real), mean(&self.simulated), limit)
    }
}

impl Comparison {
    /// How many figures are out of bounds.
    pub fn misses(&self) -> usize {
        self.rows.iter().filter(|row| !row.agrees()).count()
    }
}

/// A table in Markdown, and below it the reasons of bounds that are not the target.
impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Emulator { path_ns, background_per_s, .. } = self.emulator;
        writeln!(
            f,
            "Path of the kernel {:.1} us, {background_per_s:.0} other wake-ups a second.",
            path_ns / 1e3
        )?;
        writeln!(
            f,
            "| program     | figure                 | real                     | simulated                | difference | bound |"
        )?;
        writeln!(
            f,
            "|-------------|------------------------|--------------------------|--------------------------|------------|-------|"
        )?;
        for row in &self.rows {
            let (difference, unit) = (row.difference(), row.figure.unit());
            let verdict = match (row.agrees(), row.bound.reason) {
                (false, _) => " out of bounds",
                (true, Some(_)) if !row.agrees_within(row.figure.target()) => " misses the target",
                (true, _) => "",
            };
            writeln!(
                f,
                "| {:11} | {:22} | {:24} | {:24} | {:10} | {:5} |{verdict}",
                row.program,
                row.figure.to_string(),
                spread(&row.real),
                spread(&row.simulated),
                format!("{difference:+.1}{unit}"),
                format!("{}{unit}", row.bound.limit)
            )?;
        }
        for row in &self.rows {
            if let Some(reason) = row.bound.reason {
                writeln!(f, "{}, {}: {reason}", row.program, row.figure)?;
            }
        }
        Ok(())
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Mean, and the least and the largest value if there are several.
fn spread(values: &[f64]) -> String {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let largest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    match values.len() {
        1 => format!("{least:.1}"),
        _ => format!("{:.1} ({least:.1} to {largest:.1})", mean(values)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Task;

    const EMULATOR: Emulator =
        Emulator { path_ns: 13_600.0, background_per_s: 80.0, tick_delay_max_ns: 40_000 };

    /// What a kernel that does what the simulator does would have recorded.
    fn simulated_records(seed: u64) -> Vec<Record> {
        let programs = [(PING_PONG, 1.0), ("hackbench", 8.0), ("yield-storm", 2.0)];
        let run = |(program, busy_cpus): (&str, f64)| {
            let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("agreement/{program}.toml"));
            let scenario = simulated::scenario(&file).unwrap();
            let mut record = simulated::run(program, &scenario, &EMULATOR, busy_cpus, seed).unwrap();
            record.background = [("wake_idle".to_owned(), 40), ("kept".to_owned(), 1_000)].into();
            record
        };
        programs.map(run).into()
    }

    #[test]
    fn what_the_emulator_adds_is_found_in_the_records() {
        let found = compare(&simulated_records(100)).unwrap().emulator;
        assert!((found.path_ns / EMULATOR.path_ns - 1.0).abs() < 0.05, "{found:?}");
        assert!((found.background_per_s - 3.0 * 40.0 / 1.8).abs() < 0.01, "{found:?}");
        assert_eq!(found.tick_delay_max_ns, 40_000);
    }

    #[test]
    fn a_kernel_that_does_something_else_is_noticed() {
        let records = simulated_records(100);
        assert_eq!(compare(&records).unwrap().misses(), 0);
        type Change = fn(&mut Record);
        let (hackbench, yield_storm) = (1, 2);
        let changes: [(usize, Change, &str); 4] = [
            (
                hackbench,
                |record| record.tasks[0].runnable += record.tasks.iter().map(Task::switches).sum::<u64>(),
                "switches",
            ),
            (hackbench, |record| record.tasks.iter_mut().for_each(|task| task.migrations /= 3), "migrations"),
            (
                yield_storm,
                |record| {
                    let moved_ns = std::mem::take(&mut record.tasks[0].run_ns[0]);
                    record.tasks[4].run_ns[0] += moved_ns;
                },
                "share",
            ),
            (hackbench, |record| record.tasks.iter_mut().for_each(|task| task.migrations = 0), "migrations"),
        ];
        for (program, change, what) in changes {
            let mut changed = records.clone();
            change(&mut changed[program]);
            let comparison = compare(&changed).unwrap();
            let missed: Vec<_> = comparison.rows.iter().filter(|row| !row.agrees()).collect();
            assert_eq!(missed.len(), 1, "{what}\n{comparison}");
            assert!(missed[0].figure.to_string().starts_with(what), "{comparison}");
        }
    }

    #[test]
    fn every_bound_can_fail() {
        for row in compare(&simulated_records(100)).unwrap().rows {
            assert!(row.bound.limit < 100.0 && row.bound.limit >= row.figure.target(), "{}", row.figure);
            assert_eq!(row.bound.reason.is_some(), row.bound.limit > row.figure.target(), "{}", row.figure);
        }
    }

    #[test]
    fn without_ping_pong_nothing_can_be_compared() {
        let error = compare(&simulated_records(100)[1..]).err().unwrap().to_string();
        assert!(error.starts_with("there is no record of ping-pong"), "{error}");
    }
}
