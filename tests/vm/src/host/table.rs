//! The times of the benchmarks, compared with those under the first scheduler.

use std::fmt::{self, Write};
use tandem_lab::statistics::{mean, paired_effect};

/// One workload's time in one run.
struct Time {
    scheduler: String,
    workload: String,
    seed: u32,
    seconds: f64,
}

/// Times of all runs. Schedulers and workloads are shown in the order in which they came; the first scheduler
/// is the baseline.
#[derive(Default)]
pub struct Table {
    times: Vec<Time>,
}

impl Table {
    /// Adds how long a workload took.
    pub fn add(&mut self, scheduler: &str, workload: &str, seed: u32, seconds: f64) {
        self.times.push(Time { scheduler: scheduler.into(), workload: workload.into(), seed, seconds });
    }

    /// Every time, as comma-separated values.
    pub fn csv(&self) -> String {
        let mut text = String::from("scheduler,workload,seed,seconds\n");
        for Time { scheduler, workload, seed, seconds } in &self.times {
            writeln!(text, "{scheduler},{workload},{seed},{seconds:.9}").expect("a string takes all");
        }
        text
    }

    /// Under a scheduler, the workload's times in the order of the seeds.
    fn of(&self, scheduler: &str, workload: &str) -> Vec<f64> {
        let mut times: Vec<&Time> = self
            .times
            .iter()
            .filter(|time| time.scheduler == scheduler && time.workload == workload)
            .collect();
        times.sort_by_key(|time| time.seed);
        times.iter().map(|time| time.seconds).collect()
    }

    /// The baseline's mean time in seconds, and for others the ratio of the means to it with its 95%
    /// confidence interval.
    fn cell(&self, baseline: &str, scheduler: &str, workload: &str) -> String {
        let times = self.of(scheduler, workload);
        let baseline_times = self.of(baseline, workload);
        if scheduler == baseline {
            return mean(times).map_or_else(String::new, |seconds| format!("{seconds:.3} s"));
        }
        let pairs: Vec<(f64, f64)> = baseline_times.into_iter().zip(times).collect();
        let Some(effect) = paired_effect(&pairs, pairs.len()) else { return String::new() };
        let ratio = 1.0 + effect.percent / 100.0;
        match effect.interval_pct {
            Some((low, high)) => format!("{ratio:.3} ± {:.3}", (high - low) / 200.0),
            None => format!("{ratio:.3}"),
        }
    }

    fn rows(&self) -> Vec<Vec<String>> {
        let schedulers = in_order(self.times.iter().map(|time| time.scheduler.as_str()));
        let workloads = in_order(self.times.iter().map(|time| time.workload.as_str()));
        let Some(baseline) = schedulers.first() else { return Vec::new() };
        let heads = ["scheduler"].iter().chain(&workloads).map(|&head| head.to_owned()).collect();
        let mut rows = vec![heads];
        for scheduler in &schedulers {
            let cells = workloads.iter().map(|workload| self.cell(baseline, scheduler, workload));
            rows.push([(*scheduler).to_owned()].into_iter().chain(cells).collect());
        }
        rows
    }
}

/// A table in Markdown, aligned for the eye.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = self.rows();
        let columns = rows.first().map_or(0, Vec::len);
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for (number, row) in rows.iter().enumerate() {
            for (cell, width) in row.iter().zip(&widths) {
                write!(f, "| {cell:width$} ")?;
            }
            writeln!(f, "|")?;
            if number == 0 {
                widths.iter().try_for_each(|width| write!(f, "|{}", "-".repeat(width + 2)))?;
                writeln!(f, "|")?;
            }
        }
        Ok(())
    }
}

/// Each once, in the order in which they come first.
pub fn in_order<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = Vec::new();
    for name in names {
        if !seen.contains(&name) {
            seen.push(name);
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(seeds: u32) -> Table {
        let mut table = Table::default();
        for seed in 1..=seeds {
            let luck = f64::from(seed) / 10.0;
            table.add("eevdf", "build", seed, 2.0 + luck);
            table.add("eevdf", "ping-pong", seed, 1.0);
            table.add("other", "build", seed, 3.0 + 1.5 * luck);
            table.add("other", "ping-pong", seed, 0.8 + luck);
        }
        table
    }

    #[test]
    fn others_are_ratios_to_the_first() {
        assert_eq!(
            table(1).to_string(),
            "| scheduler | build   | ping-pong |\n\
             |-----------|---------|-----------|\n\
             | eevdf     | 2.100 s | 1.000 s   |\n\
             | other     | 1.500   | 0.900     |\n"
        );
    }

    #[test]
    fn the_interval_is_that_of_pairs() {
        // The build's pairs have all the same ratio; those of ping-pong are 0.9, 1.0 and 1.1, with a standard
        // error of 0.1 / sqrt(3) and a t quantile of 4.303.
        let text = table(3).to_string();
        assert!(text.contains("| other     | 1.500 ± 0.000 | 1.000 ± 0.248 |"), "{text}");
    }

    #[test]
    fn csv_has_every_time() {
        assert_eq!(table(1).csv().lines().nth(3), Some("other,build,1,3.150000000"));
        assert_eq!(Table::default().to_string(), "");
    }
}
