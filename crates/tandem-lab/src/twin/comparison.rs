//! Measures of a recording beside those of runs of its model, as a table and as JSON.

use super::grouping::TOTAL;
use super::guest::GuestTwin;
use super::measures::{Measures, Migrations};
use super::model::{ModelTask, Wakeups};
use super::replay::{Measured, Twin, unfinished};
use super::together::Clocks;
use super::trust::{Doubt, doubts};
use crate::statistics::{mean, t_quantile};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use tandem_file::shown::{readable, shortened};

/// The measures of a group, in the units of people.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// On a CPU, s.
    pub run_s: f64,
    /// Runnable without one, s.
    pub wait_s: f64,
    /// Neither, s.
    pub sleep_s: f64,
    /// Tasks that left a CPU.
    pub switches: f64,
    /// Those that could have gone on.
    pub preemptions: f64,
    /// Turns on another CPU than the one before.
    pub migrations: f64,
    /// The median wait, us.
    pub wait_p50_us: f64,
    /// The 95th percentile, us.
    pub wait_p95_us: f64,
    /// The 99th percentile, us.
    pub wait_p99_us: f64,
    /// The longest wait, us.
    pub wait_max_us: f64,
    /// From the first turn of a task to the end of the last, s.
    pub span_s: f64,
}

impl From<&Measures> for Row {
    fn from(of: &Measures) -> Self {
        let s = |ns: u64| ns as f64 / 1e9;
        let us = |share: f64| of.wait_percentile_ns(share) as f64 / 1e3;
        Self {
            run_s: s(of.run_ns),
            wait_s: s(of.wait_ns),
            sleep_s: s(of.sleep_ns),
            switches: of.switches as f64,
            preemptions: of.preemptions as f64,
            migrations: of.migrations.total() as f64,
            wait_p50_us: us(0.5),
            wait_p95_us: us(0.95),
            wait_p99_us: us(0.99),
            wait_max_us: us(1.0),
            span_s: s(of.span_ns),
        }
    }
}

impl Row {
    /// Its numbers, in order.
    pub fn values(&self) -> [f64; 11] {
        [
            self.run_s,
            self.wait_s,
            self.sleep_s,
            self.switches,
            self.preemptions,
            self.migrations,
            self.wait_p50_us,
            self.wait_p95_us,
            self.wait_p99_us,
            self.wait_max_us,
            self.span_s,
        ]
    }

    fn of_values(values: [f64; 11]) -> Self {
        let [run_s, wait_s, sleep_s, switches, preemptions, migrations, p50, p95, p99, max, span_s] = values;
        Self {
            run_s,
            wait_s,
            sleep_s,
            switches,
            preemptions,
            migrations,
            wait_p50_us: p50,
            wait_p95_us: p95,
            wait_p99_us: p99,
            wait_max_us: max,
            span_s,
        }
    }
}

/// Means over runs with different seeds, and the ends of their 95% confidence intervals.
#[derive(Clone, Debug, PartialEq)]
pub struct Simulated {
    /// The means.
    pub mean: Row,
    /// The low and the high ends; `None` from one run.
    pub interval: Option<(Row, Row)>,
}

impl Simulated {
    /// Of runs, of which there is at least one.
    pub fn of(runs: &[Row]) -> Self {
        let values: Vec<[f64; 11]> = runs.iter().map(Row::values).collect();
        let means = std::array::from_fn(|at| mean(values.iter().map(|row| row[at])).unwrap_or(0.0));
        let half_width = |at: usize| {
            let freedom = values.len() as f64 - 1.0;
            let squares: f64 = values.iter().map(|row| (row[at] - means[at] as f64).powi(2)).sum();
            t_quantile(0.95, freedom) * (squares / freedom / values.len() as f64).sqrt()
        };
        let interval = (values.len() > 1).then(|| {
            let halves: [f64; 11] = std::array::from_fn(half_width);
            let low = std::array::from_fn(|at| (means[at] - halves[at]).max(0.0));
            (Row::of_values(low), Row::of_values(std::array::from_fn(|at| means[at] + halves[at])))
        });
        Self { mean: Row::of_values(means), interval }
    }
}

/// A group, recorded and simulated.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The name of the group, as a stranger may have chosen it.
    pub group: String,
    /// What was recorded.
    pub recorded: Row,
    /// Where it went when it changed its CPU.
    pub recorded_migrations: Migrations,
    /// What the runs gave.
    pub simulated: Simulated,
    /// The means of where it went.
    pub simulated_migrations: [f64; 4],
    /// Doubts, with how many of its tasks they concern.
    pub doubts: BTreeMap<Doubt, usize>,
    /// Its wake-ups by what caused them.
    pub wakeups: Wakeups,
    /// How far the replay of the recorded situation is from the recording.
    pub off: Off,
}

/// How far a replay of the recorded situation is from the recording, percent; `None`: there was none of it, or
/// too little to matter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Off {
    /// In the number of switches.
    pub switches_pct: Option<f64>,
    /// In the time of waiting.
    pub wait_pct: Option<f64>,
}

/// How far a replay may be off before it is not trusted, percent: an assumption.
pub(super) const TRUSTED_PCT: f64 = 25.0;
/// Fewest switches, and least share of the length of the recording in which tasks wait, that matter.
const SWITCHES_MIN: f64 = 100.0;
const WAIT_SHARE_MIN: f64 = 0.01;

impl Off {
    fn new(recorded: &Row, simulated: &Row, length_s: f64) -> Self {
        let off = |recorded: f64, simulated: f64, least: f64| {
            let base = recorded.max(least / 10.0);
            (recorded.max(simulated) >= least).then(|| 100.0 * (simulated - recorded) / base)
        };
        Self {
            switches_pct: off(recorded.switches, simulated.switches, SWITCHES_MIN),
            wait_pct: off(recorded.wait_s, simulated.wait_s, WAIT_SHARE_MIN * length_s),
        }
    }

    /// What is so far off that it is not trusted, in words.
    fn words(self) -> Option<String> {
        let far = |pct: Option<f64>, of: &str| {
            pct.filter(|pct| pct.abs() > TRUSTED_PCT).map(|pct| format!("{pct:+.0}% in {of}"))
        };
        let parts = [far(self.switches_pct, "switches"), far(self.wait_pct, "the time of waiting")];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        (!parts.is_empty()).then(|| parts.join(" and "))
    }
}

/// A guest that was recorded, too, and how its recording fits that of the host.
#[derive(Clone, Debug, Serialize)]
pub struct Matched {
    /// The name of its VM.
    pub name: String,
    /// How its clock differs from the host's.
    #[serde(flatten)]
    pub clocks: Clocks,
    /// Events that its recording has lost.
    pub lost_events: u64,
    /// Time in which its tasks had vCPUs that slept in the host, s.
    pub stalled_s: f64,
    /// The same, as a share of the time in which its tasks ran, percent.
    pub stalled_pct: f64,
}

impl Matched {
    fn of(guest: &GuestTwin<'_>) -> Self {
        let stalled_s = guest.model.stalled_ns as f64 / 1e9;
        let ran_s = guest.measured().iter().map(|group| group.run_ns).sum::<u64>() as f64 / 1e9;
        Self {
            name: guest.recorded.name.clone(),
            clocks: guest.recorded.clocks,
            lost_events: guest.recorded.recording.about.lost_events(),
            stalled_s,
            stalled_pct: if ran_s > 0.0 { 100.0 * stalled_s / ran_s } else { 0.0 },
        }
    }
}

/// A recording beside the runs of its model.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Share of the wake-ups whose cause is known, percent.
    pub attributed_pct: f64,
    /// Events that the recording has lost.
    pub lost_events: u64,
    /// Turns of tasks whose end the recording does not have.
    pub breaks: u64,
    /// How many runs there were.
    pub runs: usize,
    /// Runs in which not all work was done in the longest time that they may take.
    pub incomplete: usize,
    /// The same of the runs in the recorded situation, if that is another one.
    pub incomplete_as_recorded: usize,
    /// The longest that a run may take, ns.
    pub longest_ns: u64,
    /// That not all work was done, in sentences without their ends.
    unfinished: Vec<String>,
    /// Guests that were recorded, too.
    pub guests: Vec<Matched>,
    /// Of all tasks of the host.
    pub total: Pair,
    /// Of each group, that with the most CPU time first.
    pub groups: Vec<Pair>,
}

impl Comparison {
    /// Of a recording and runs of its model, of which there is at least one. `baseline` are runs in the recorded
    /// situation, the same ones if that is the question.
    pub fn new(twin: &Twin<'_>, recorded: &Measured, runs: &[Measured], baseline: &[Measured]) -> Self {
        let incomplete = |runs: &[Measured]| runs.iter().filter(|run| !run.is_complete).count();
        // The runs as recorded may be the same ones.
        let others = if std::ptr::eq(runs, baseline) { &[] } else { baseline };
        let model = &twin.model;
        // Tasks with their groups, those of guests after the host's.
        let mut members: Vec<(usize, &ModelTask, Vec<Doubt>)> = Vec::new();
        let mut first_group = 0;
        let guests = twin.guests.iter().map(|guest| (&guest.recorded.recording, &guest.model));
        for (recording, model) in std::iter::once((twin.recording, model)).chain(guests) {
            let of_tasks = model.tasks.iter().zip(doubts(recording, model));
            members.extend(of_tasks.map(|(task, doubts)| (first_group + task.group, task, doubts)));
            first_group += model.groups.len();
        }
        let baseline = |of: &dyn Fn(&Measured) -> &Measures| {
            let rows: Vec<Row> = baseline.iter().map(|run| Row::from(of(run))).collect();
            Simulated::of(&rows).mean
        };
        let pair =
            |name: &str, recorded: &Measures, of: &dyn Fn(&Measured) -> &Measures, group: Option<usize>| {
                let rows: Vec<Row> = runs.iter().map(|run| Row::from(of(run))).collect();
                let members = || {
                    let is_in = move |at: usize| group.map_or(at < model.groups.len(), |group| at == group);
                    members.iter().filter(move |(at, ..)| is_in(*at))
                };
                let mut counted = BTreeMap::new();
                for doubt in members().flat_map(|(_, _, doubts)| doubts) {
                    *counted.entry(*doubt).or_default() += 1;
                }
                let mut wakeups = Wakeups::default();
                members().for_each(|(_, task, _)| wakeups += task.wakeups);
                let moved = |of_run: fn(&Migrations) -> u64| {
                    mean(runs.iter().map(|run| of_run(&of(run).migrations) as f64)).unwrap_or(0.0)
                };
                Pair {
                    group: name.to_owned(),
                    recorded: Row::from(recorded),
                    recorded_migrations: recorded.migrations,
                    simulated: Simulated::of(&rows),
                    simulated_migrations: [
                        moved(|it| it.core),
                        moved(|it| it.llc),
                        moved(|it| it.node),
                        moved(|it| it.machine),
                    ],
                    doubts: counted,
                    wakeups,
                    off: Off::new(&Row::from(recorded), &baseline(of), model.length_ns as f64 / 1e9),
                }
            };
        let mut groups: Vec<Pair> = (twin.groups.iter().enumerate())
            .map(|(at, name)| {
                pair(name, &recorded.groups[at], &move |run: &Measured| &run.groups[at], Some(at))
            })
            .collect();
        groups.sort_by(|a, b| b.recorded.run_s.total_cmp(&a.recorded.run_s));
        Self {
            attributed_pct: model.wakeups.attributed_pct(),
            lost_events: twin.recording.about.lost_events(),
            breaks: model.breaks,
            runs: runs.len(),
            incomplete: incomplete(runs),
            incomplete_as_recorded: incomplete(others),
            longest_ns: runs.iter().map(|run| run.longest_ns).max().unwrap_or(0),
            unfinished: [
                unfinished(runs),
                unfinished(others).map(|words| format!("of the situation as it was recorded, {words}")),
            ]
            .into_iter()
            .flatten()
            .collect(),
            guests: twin.guests.iter().map(Matched::of).collect(),
            total: pair(TOTAL, &recorded.total, &|run: &Measured| &run.total, None),
            groups,
        }
    }

    /// The whole comparison as JSON.
    pub fn to_json(&self) -> serde_json::Value {
        let of_pair = |pair: &Pair| {
            let [core, llc, node, machine] = pair.simulated_migrations;
            let mut value = serde_json::json!({
                "recorded": pair.recorded,
                "simulated": pair.simulated.mean,
                "recorded_migrations_within": pair.recorded_migrations,
                "simulated_migrations_within": { "core": core, "llc": llc, "node": node, "machine": machine },
                "attributed_wakeups_pct": pair.wakeups.attributed_pct(),
                "replay_off": pair.off,
            });
            if let Some((low, high)) = &pair.simulated.interval {
                value["simulated_low"] = serde_json::json!(low);
                value["simulated_high"] = serde_json::json!(high);
            }
            if !pair.doubts.is_empty() {
                let doubts = pair.doubts.iter().map(|(doubt, tasks)| {
                    serde_json::json!({ "doubt": doubt, "tasks": tasks, "words": doubt.words() })
                });
                value["doubts"] = doubts.collect();
            }
            value
        };
        let groups = self.groups.iter().map(|pair| {
            let mut value = of_pair(pair);
            value["group"] = pair.group.as_str().into();
            value
        });
        serde_json::json!({
            "attributed_wakeups_pct": self.attributed_pct,
            "lost_events": self.lost_events,
            "turns_without_end": self.breaks,
            "runs": self.runs,
            "incomplete_runs": self.incomplete,
            "incomplete_runs_as_recorded": self.incomplete_as_recorded,
            "longest_run_s": self.longest_ns as f64 / 1e9,
            "guests": self.guests,
            "total": of_pair(&self.total),
            "groups": groups.collect::<Vec<_>>(),
        })
    }
}

/// Share of a guest's time in which its vCPUs may have slept before that is said, percent: an assumption.
const STALLED_PCT: f64 = 2.0;
/// Groups that a table shows.
const GROUPS_SHOWN: usize = 15;
/// Characters of a group's name that a table shows.
const NAME_WIDTH: usize = 24;

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:NAME_WIDTH$} {:9} {:>8} {:>8} {:>8} {:>8} {:>7} {:>9} {:>9} {:>9} {:>8}",
            "group",
            "",
            "run s",
            "wait s",
            "switches",
            "preempt.",
            "migr.",
            "p50 us",
            "p95 us",
            "p99 us",
            "span s"
        )?;
        for pair in std::iter::once(&self.total).chain(self.groups.iter().take(GROUPS_SHOWN)) {
            let name = shortened(&readable(&pair.group, &[]), NAME_WIDTH);
            line(f, &name, "recorded", &pair.recorded)?;
            line(f, "", "simulated", &pair.simulated.mean)?;
        }
        if self.groups.len() > GROUPS_SHOWN {
            writeln!(f, "{} more groups: --format json has all", self.groups.len() - GROUPS_SHOWN)?;
        }
        writeln!(f)?;
        writeln!(
            f,
            "The cause of {:.1}% of the wake-ups is known; {} events were lost; means of {} runs.",
            self.attributed_pct, self.lost_events, self.runs
        )?;
        for guest in &self.guests {
            writeln!(f, "The guest of {}: {}.", readable(&guest.name, &[]), guest.clocks)?;
        }
        for guest in self.guests.iter().filter(|guest| guest.stalled_pct > STALLED_PCT) {
            writeln!(
                f,
                "Not trusted: {:.0}% of the time of {}'s tasks its vCPUs slept in the host, as for the emulation of a \
                 device, which takes no time in the replay.",
                guest.stalled_pct,
                readable(&guest.name, &[])
            )?;
        }
        for guest in self.guests.iter().filter(|guest| guest.lost_events > 0) {
            writeln!(
                f,
                "Not trusted: {} events of the guest of {} were lost.",
                guest.lost_events,
                readable(&guest.name, &[])
            )?;
        }
        for words in &self.unfinished {
            writeln!(f, "Not trusted: {words}.")?;
        }
        if self.lost_events > 0 {
            writeln!(f, "Not trusted: what ran when events were lost is not known.")?;
        }
        if self.breaks > 0 {
            writeln!(
                f,
                "Not trusted: {} turns have no end in the recording, which counts some CPU time for the wrong task.",
                self.breaks
            )?;
        }
        for pair in std::iter::once(&self.total).chain(self.groups.iter().take(GROUPS_SHOWN)) {
            if let Some(off) = pair.off.words() {
                let name = readable(&pair.group, &[]);
                writeln!(f, "Not trusted: the replay of {name} as it was recorded is off by {off}.")?;
            }
        }
        for pair in self.groups.iter().take(GROUPS_SHOWN) {
            for (doubt, tasks) in &pair.doubts {
                let name = readable(&pair.group, &[]);
                writeln!(f, "Not trusted: {tasks} tasks of {name} {}.", doubt.words())?;
            }
        }
        Ok(())
    }
}

fn line(f: &mut fmt::Formatter<'_>, name: &str, of: &str, row: &Row) -> fmt::Result {
    writeln!(
        f,
        "{name:NAME_WIDTH$} {of:9} {:>8.3} {:>8.3} {:>8.0} {:>8.0} {:>7.0} {:>9.1} {:>9.1} {:>9.1} {:>8.3}",
        row.run_s,
        row.wait_s,
        row.switches,
        row.preemptions,
        row.migrations,
        row.wait_p50_us,
        row.wait_p95_us,
        row.wait_p99_us,
        row.span_s
    )
}
