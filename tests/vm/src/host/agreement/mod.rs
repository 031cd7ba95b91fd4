//! Compares the simulator with a real kernel: the same small programs under the same scheduler object on the
//! same machine.
//!
//! **Problem.** The simulator's predictions about the scheduler are worth something only if a real kernel
//! with that scheduler behaves the same.
//!
//! **Approach.** Once the leg `agreement` has recorded its programs, each is run in the simulator as well,
//! with several seeds for each record. Each [figure](figures) has a target, the largest acceptable
//! difference. Single runs differ, the guest's and the simulator's, so means are compared, and a figure fails
//! only if chance does not explain that it misses its target: if all of the difference's confidence interval
//! does.
//!
//! **Limits.** A difference that is smaller than the interval's half width goes unnoticed; the table shows
//! both.

mod emulator;
mod figures;
mod misses;
mod simulated;

use crate::leg;
use crate::record::{Record, Scheduler};
use anyhow::{Context, Result, bail, ensure};
pub use emulator::Emulator;
use figures::{Figure, Source};
pub use simulated::{run as simulate, scenario};
use std::fmt;
use std::fs;
use std::path::PathBuf;
use tandem_lab::scenario::policy::scheduler::SchedulerName;
use tandem_lab::statistics::{mean, unpaired_half_width};

/// The program in which paths of the kernel are measured.
const PING_PONG: &str = "ping-pong";
/// How sure it has to be that a figure misses its target: of fifteen that just meet it, none fails in most
/// runs.
const CONFIDENCE: f64 = 0.99;
/// Seeds with which the simulator runs each program, its records in turn.
const SEEDS: std::ops::RangeInclusive<u64> = 1..=72;

/// A figure of a program, of the real kernel and of the simulator.
struct Row {
    of: Source,
    figure: Figure,
    /// Of each record.
    real: Vec<f64>,
    /// Of each seed.
    simulated: Vec<f64>,
}

/// All figures, to be printed.
pub struct Comparison {
    /// Whose scheduling it was.
    title: String,
    emulator: Emulator,
    rows: Vec<Row>,
}

/// The records in folders, such as the leg leaves them, one folder for each run.
pub fn read_records(folders: &[PathBuf]) -> Result<Vec<Record>> {
    let mut records = Vec::new();
    for folder in folders {
        let files = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
        for file in files {
            let file = file.with_context(|| format!("cannot read {}", folder.display()))?.path();
            if file.extension().is_some_and(|extension| extension == "json") {
                let text =
                    fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
                let rounds: Vec<Record> = serde_json::from_str(&text)
                    .with_context(|| format!("{} has no records", file.display()))?;
                records.extend(rounds);
            }
        }
    }
    Ok(records)
}

/// Runs the programs of the records in the simulator, and compares: for each scheduler and kernel that is
/// among them. Each program may have several records.
pub fn compare(records: &[Record]) -> Result<Vec<Comparison>> {
    let mut known: Vec<(&Scheduler, &str)> = Vec::new();
    for record in records {
        let of = (&record.scheduler, record.kernel.as_str());
        if !known.contains(&of) {
            known.push(of);
        }
    }
    let compare = |&(scheduler, kernel): &(&Scheduler, &str)| {
        let is_of = |record: &&Record| (&record.scheduler, record.kernel.as_str()) == (scheduler, kernel);
        compare_with(scheduler, kernel, &records.iter().filter(is_of).collect::<Vec<_>>())
    };
    known.iter().map(compare).collect()
}

/// The same for records of one scheduler on one kernel.
fn compare_with(scheduler: &Scheduler, kernel: &str, records: &[&Record]) -> Result<Comparison> {
    let leg = leg::of(scheduler);
    let of = |program: &str| {
        records.iter().copied().filter(|record| record.program == program).collect::<Vec<_>>()
    };
    let host = match scheduler {
        Scheduler::Tandem => SchedulerName::Tandem,
        Scheduler::Eevdf => SchedulerName::Linux,
        Scheduler::Object(name) => bail!("records under {name} are for `vm-arena`"),
    };
    ensure!(
        !of(PING_PONG).is_empty(),
        "there is no record of {PING_PONG}, in which the kernel's paths are measured"
    );
    let ping_pong = scenario(PING_PONG, host.clone(), kernel)?;
    let emulator = Emulator::measured(leg, &ping_pong, &of(PING_PONG), records);
    let mut rows = Vec::new();
    for program in leg::programs(scheduler) {
        let real = of(program);
        if real.is_empty() {
            continue;
        }
        let scenario = scenario(program, host.clone(), kernel)?;
        let simulated = SEEDS
            .zip(real.iter().cycle())
            .map(|(seed, record)| simulated::run(&scenario, &emulator, record, seed))
            .collect::<Result<Vec<_>>>()?;
        for figure in figures::of(&scenario, scheduler) {
            rows.push(Row {
                of: Source { program: program.into(), scheduler: scheduler.clone(), kernel: kernel.into() },
                real: real.iter().map(|record| figure.value(record)).collect(),
                simulated: simulated.iter().map(|record| figure.value(record)).collect(),
                figure,
            });
        }
    }
    let title = format!("{scheduler}, Linux {kernel}");
    Ok(Comparison { title, emulator, rows })
}

impl Row {
    fn difference(&self) -> f64 {
        self.figure.difference(average(&self.real), average(&self.simulated))
    }

    /// How far the difference may be from that of the means of all runs there could be, in its unit; none
    /// from single runs.
    fn half_width(&self) -> Option<f64> {
        let half_width = unpaired_half_width(&self.real, &self.simulated, CONFIDENCE)?;
        Some(self.figure.in_unit(half_width, average(&self.real)))
    }

    /// How far the difference may be from that of the means of all runs there could be.
    fn chance(&self) -> f64 {
        unpaired_half_width(&self.real, &self.simulated, CONFIDENCE).unwrap_or(0.0)
    }

    /// Whether it is within its bound, or chance explains that it is not.
    fn agrees(&self) -> bool {
        let chance = self.chance();
        let bound = self.figure.bound(&self.of);
        self.figure.agrees(average(&self.real), average(&self.simulated), bound, chance)
    }

    /// Whether it is listed as a miss, and meets its target with all of its interval.
    fn is_no_miss(&self) -> bool {
        let (real, simulated) = (average(&self.real), average(&self.simulated));
        let is_within = |value| self.figure.agrees(real, value, self.target(), 0.0);
        misses::bound(&self.of, &self.figure).is_some()
            && is_within(simulated - self.chance())
            && is_within(simulated + self.chance())
    }

    fn target(&self) -> f64 {
        self.figure.target(&self.of.scheduler)
    }

    /// Whether the difference itself is as small as is aimed at.
    fn meets_target(&self) -> bool {
        self.figure.agrees(average(&self.real), average(&self.simulated), self.target(), 0.0)
    }
}

impl Comparison {
    /// How many figures miss their bounds, and not by chance, or meet their targets although they are listed
    /// as misses.
    pub fn failures(&self) -> usize {
        self.rows.iter().filter(|row| !row.agrees() || row.is_no_miss()).count()
    }

    /// How many figures are as near as is aimed at.
    fn met(&self) -> usize {
        self.rows.iter().filter(|row| row.meets_target()).count()
    }
}

/// A table in Markdown.
impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Emulator { path_ns, idle_wake_ns, .. } = self.emulator;
        writeln!(
            f,
            "{}: path of the kernel {:.1} us, to wake an idle CPU {:.1} us. Means, and the least and the largest value; differences \
             with their {:.0}% confidence intervals. {} of {} figures meet their targets.",
            self.title,
            path_ns / 1e3,
            idle_wake_ns / 1e3,
            100.0 * CONFIDENCE,
            self.met(),
            self.rows.len()
        )?;
        writeln!(
            f,
            "| {:11} | {:22} | {:25} | {:25} | {:15} | target |",
            "program", "figure", "real", "simulated", "difference"
        )?;
        writeln!(f, "|-{0:-<11}-|-{0:-<22}-|-{0:-<25}-|-{0:-<25}-|-{0:-<15}-|--------|", "")?;
        for row in &self.rows {
            let unit = row.figure.unit();
            let verdict = match (row.agrees(), row.meets_target()) {
                (false, _) => " not by chance",
                _ if row.is_no_miss() => " is listed as a miss",
                (true, false) => " misses the target",
                (true, true) => "",
            };
            let chance = row.half_width().map_or(String::new(), |half_width| format!(" ± {half_width:.1}"));
            writeln!(
                f,
                "| {:11} | {:22} | {:25} | {:25} | {:15} | {:6} |{verdict}",
                row.of.program,
                row.figure.to_string(),
                spread(&row.real),
                spread(&row.simulated),
                format!("{:+.1}{chance}{unit}", row.difference()),
                format!("{}{unit}", row.target())
            )?;
        }
        Ok(())
    }
}

fn average(values: &[f64]) -> f64 {
    mean(values.iter().copied()).expect("there is a value")
}

/// Mean, and the least and the largest value if there are several.
fn spread(values: &[f64]) -> String {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let largest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    match values.len() {
        1 => format!("{least:.1}"),
        _ => format!("{:.1} ({least:.1} to {largest:.1})", average(values)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Burst, Other, Task};
    use std::ops::RangeInclusive;

    const EMULATOR: Emulator =
        Emulator { path_ns: 13_600.0, idle_wake_ns: 7_000.0, interrupt_delay_max_ns: 40_000 };

    /// The record of a kernel that behaves exactly like the simulator.
    fn simulated_records(seeds: RangeInclusive<u64>) -> Vec<Record> {
        let programs = [(PING_PONG, 1.0), ("hackbench", 8.0), ("yield-storm", 2.0)];
        let run = |(program, busy_cpus): (&str, f64), seed| {
            let scenario = scenario(program, SchedulerName::Tandem, "").unwrap();
            let tasks: usize = scenario.workloads.iter().map(|set| set.task_count()).sum();
            let started = (0..tasks).map(|number| Task {
                start_ns: (number as u64 + 1) * 500_000,
                run_ns: vec![if number == 0 { (1e9 * busy_cpus) as u64 } else { 0 }],
                ..Task::default()
            });
            let bursts =
                |count| (1..=count).map(|at| Burst { at_ns: at * 20_000_000, run_ns: 100_000 }).collect();
            let other = |name: &str, count| Other { name: name.into(), nice: 0, bursts: bursts(count) };
            let around = Record {
                program: program.into(),
                span_ns: 1_000_000_000,
                tasks: started.collect(),
                others: vec![other("kworker/0:1", 10), other("kworker/u8:1", 15), other("rcu_preempt", 5)],
                ..Record::default()
            };
            let mut record = simulated::run(&scenario, &EMULATOR, &around, seed).unwrap();
            record.others = around.others;
            record.idle_wakes = 100;
            record.idle_wake_ns = (100.0 * EMULATOR.idle_wake_ns * busy_cpus) as u64;
            record
        };
        programs.into_iter().flat_map(|program| seeds.clone().map(move |seed| run(program, seed))).collect()
    }

    #[test]
    fn what_the_emulator_adds_is_found_in_the_records() {
        let records = simulated_records(100..=100);
        let found = compare(&records).unwrap()[0].emulator;
        assert!((found.path_ns / EMULATOR.path_ns - 1.0).abs() < 0.05, "{found:?}");
        assert!((found.idle_wake_ns / EMULATOR.idle_wake_ns - 1.0).abs() < 0.05, "{found:?}");
        assert_eq!(found.interrupt_delay_max_ns, 40_000);
    }

    #[test]
    fn a_kernel_that_does_something_else_is_noticed() {
        let records = simulated_records(101..=106);
        assert_eq!(compare(&records).unwrap()[0].failures(), 0);
        type Change = fn(&mut Record);
        let changes: [(&str, Change, &str); 4] = [
            ("hackbench", |record| record.tasks[0].runnable += 400, "switches"),
            (
                "hackbench",
                |record| record.tasks.iter_mut().for_each(|task| task.migrations /= 2),
                "migrations",
            ),
            ("yield-storm", |record| record.tasks[4].run_ns[0] += 60_000_000, "share"),
            (
                "hackbench",
                |record| record.tasks.iter_mut().for_each(|task| task.migrations = 0),
                "migrations",
            ),
        ];
        for (program, change, what) in changes {
            let mut changed = records.clone();
            changed.iter_mut().filter(|record| record.program == program).for_each(change);
            let comparison = &compare(&changed).unwrap()[0];
            let missed: Vec<_> = comparison.rows.iter().filter(|row| !row.agrees()).collect();
            assert_eq!(missed.len(), 1, "{what}\n{comparison}");
            assert!(missed[0].figure.to_string().starts_with(what), "{comparison}");
        }
    }

    #[test]
    fn a_listed_miss_may_neither_grow_nor_go_unnoticed() {
        for (kernel, program, name, bound) in misses::ALL {
            let of = Source {
                program: (*program).into(),
                scheduler: Scheduler::Eevdf,
                kernel: format!("{kernel}.1"),
            };
            let scenario = scenario(program, SchedulerName::Linux, &of.kernel).unwrap();
            let figures = figures::of(&scenario, &Scheduler::Eevdf);
            let figure = figures.into_iter().find(|figure| figure.to_string() == *name).unwrap();
            // Half of the distance that is allowed, and twice as much.
            let [met, held, lost] = [0.0, 0.5, 2.0].map(|part| {
                let far = if figure.unit() == "%" { 10.0 } else { 1.0 } * part * bound;
                let (real, simulated) = (vec![1000.0; 3], vec![1000.0 + far; 3]);
                Row { of: of.clone(), figure: figure.clone(), real, simulated }
            });
            assert!(met.agrees() && met.is_no_miss(), "{program}: {name}");
            assert!(held.agrees(), "{program}: {name}");
            assert!(!lost.agrees() && !lost.is_no_miss(), "{program}: {name}");
        }
    }

    #[test]
    fn one_odd_run_is_chance() {
        let mut records = simulated_records(101..=106);
        let odd = records.iter_mut().find(|record| record.program == "hackbench").unwrap();
        odd.tasks[0].runnable += 150;
        assert_eq!(compare(&records).unwrap()[0].failures(), 0);
    }

    #[test]
    fn without_ping_pong_nothing_can_be_compared() {
        let error = compare(&simulated_records(100..=100)[1..]).err().unwrap().to_string();
        assert!(error.starts_with("there is no record of ping-pong"), "{error}");
    }
}
