//! Schedulers on one scenario, compared by runs with the same seeds.
//!
//! **Problem.** Two schedulers are to be told apart by a scenario, without an experiment and its folder.
//!
//! **Approach.** Every contender runs with every seed. What a run measures of each group, and of the host, has
//! one value a run ([`mod@values`]); the first contender is the baseline of all others, with effects and intervals as
//! [`statistics`](crate::statistics) has them. How many seeds there are is given, or follows from a [`precision`].
//!
//! **Limits.** Percentiles that are compared are those of a run, pooled over its VMs, and the mean of them over the
//! runs; those of all runs together stand beside. With many measures some intervals do not hold zero by chance: one in
//! twenty.

mod arena;
mod arena_page;
mod moment;
pub mod page;
mod pictures;
mod pool;
mod precision;
mod table;
mod values;

pub use arena::Arena;
pub use moment::{Lane, Moment, Who, moments};
pub use precision::{Precision, Widest};
pub use values::Measurement;

use crate::latency::LatencyFigures;
use crate::results::Better;
use crate::runner::{Abortable, Progress};
use crate::simulate::policy_name;
use crate::statistics::{Effect, mean, paired_effect};
use crate::summary::scenario_hash;
use pool::Pool;
use rayon::iter::{ParallelBridge, ParallelIterator};
use serde::Serialize;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use tandem_sim::scenario::Scenario;
use values::{Kind, Measured, Values, Weight, values};

/// Which runs to make.
#[derive(Clone, Copy, Debug)]
pub struct Runs {
    /// The first seed; the next ones count up from it.
    pub seed: u64,
    /// How many; with a precision, at most.
    pub seeds: usize,
    /// Half the width of an interval that is narrow enough, in percent of the baseline.
    pub precision_pct: Option<f64>,
    /// Runs at the same time.
    pub jobs: NonZeroUsize,
}

/// Schedulers on one scenario.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// Version of the program.
    pub version: &'static str,
    /// The scenario, by the name that the user gave.
    pub scenario: String,
    /// The machine.
    pub machine: String,
    /// Measured time, s: the mean over the runs, which may end early.
    pub length_s: f64,
    /// The seeds that all contenders ran with.
    pub seeds: Vec<u64>,
    /// The contenders; the first one is the baseline.
    pub policies: Vec<String>,
    /// Of each contender, the hash over everything that its runs depend on but the seed and the version.
    pub scenario_hashes: Vec<String>,
    /// Of each contender, the hash over the events of its run with each seed.
    pub trace_hashes: Vec<Vec<String>>,
    /// What became of the precision that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub precision: Option<Precision>,
    /// Each measure of each group, then those of the host.
    pub rows: Vec<Row>,
    /// The times of all seeds together, of each group.
    pub pooled: Vec<Pooled>,
    /// Of each contender, the seed of the run with the longest wait.
    #[serde(skip)]
    pub worst_seeds: Vec<u64>,
}

/// A measure.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The group; `None`: the host.
    pub group: Option<String>,
    /// The measure, with its unit.
    pub measure: String,
    /// The unit alone.
    #[serde(skip)]
    pub unit: &'static str,
    /// Which way it is better.
    pub better: Better,
    /// How much a precision is asked of it.
    #[serde(skip)]
    weight: Weight,
    /// Its values, by contender.
    pub figures: Vec<Figure>,
}

/// The values of a measure under one scheduler.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// One for each seed; `None` where nothing happened that could be measured, such as a response.
    pub values: Vec<Option<f64>>,
    /// The mean of those that there are.
    pub mean: Option<f64>,
    /// Against the baseline, in percent of that; `None` of the baseline itself, if that is zero, or if a value of either
    /// is missing.
    pub effect_pct: Option<f64>,
    /// Ends of the 95% confidence interval; `None` from one seed, or where the seed changes nothing.
    pub interval_pct: Option<(f64, f64)>,
}

impl Row {
    /// The measure without its unit.
    pub fn what(&self) -> &str {
        let what = self.measure.strip_suffix(self.unit).unwrap_or(&self.measure);
        what.trim_end_matches([',', ' '])
    }
}

impl Figure {
    /// better or worse, where chance alone does not explain the effect; else nothing.
    pub fn verdict(&self, better: Better) -> &'static str {
        // What prints as no difference is none.
        let prints = self.effect_pct.is_some_and(|pct| pct.abs() >= 0.05);
        self.interval_pct.filter(|_| prints).map_or("", |interval| better.word(interval))
    }

    /// Half the width of the interval, percent: that above the effect, as the part below may be cut off at -100.
    fn half_width_pct(&self) -> Option<f64> {
        Some(self.interval_pct?.1 - self.effect_pct?)
    }
}

/// Times of a group over all seeds, by contender.
#[derive(Clone, Debug, Serialize)]
pub struct Pooled {
    /// The group.
    pub group: String,
    /// From the arrival of a request to its answer; `None` if there was no answer.
    pub response: Vec<Option<LatencyFigures>>,
    /// From a wake-up of a vCPU or a process to the moment it runs; `None` if nothing woke up.
    pub wakeup: Vec<Option<LatencyFigures>>,
    /// Both as distributions, by contender.
    #[serde(skip)]
    pub times: Vec<[tandem_sim::times::Times; 2]>,
}

/// A run, as far as it is compared.
struct Run {
    length_ns: u64,
    trace_hash: u64,
    longest_wait_ns: u64,
    values: Values,
}

/// The runs that are done, by number of the seed and contender.
type Finished = BTreeMap<(usize, usize), Run>;

/// Runs every contender with every seed. Its name in results is that of its schedulers, with the word that it was
/// asked for by, if there is one.
///
/// When `cancel` becomes true, no more runs are started: the comparison is of the seeds that all contenders have
/// finished, and `None` if there is none. When [`Progress::abort`] becomes true, those that go on end at once and count as
/// not started.
///
/// # Errors
/// The engine's, with the name of the contender that it refused; threads that could not be started; or seeds beyond the
/// largest number.
pub fn compare(
    scenario: &str,
    contenders: &[(Option<String>, Scenario)],
    runs: Runs,
    progress: &dyn Progress,
    cancel: &AtomicBool,
) -> Result<Option<Comparison>, String> {
    let Some((_, first)) = contenders.first() else { return Ok(None) };
    if runs.seed.checked_add(runs.seeds as u64 - 1).is_none() {
        return Err(format!(
            "{} seeds from {} on go beyond the largest, {}; begin with a smaller one",
            runs.seeds,
            runs.seed,
            u64::MAX
        ));
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(runs.jobs.get()).build();
    let threads =
        pool.map_err(|error| format!("cannot start threads for the jobs: {error}; try fewer with --jobs"))?;
    let names = names(contenders);
    let groups = first.groups();
    let times = Mutex::new(Pool::new(contenders.len(), groups.len()));
    let stage = |seeds: Range<usize>| -> Result<Finished, String> {
        progress.planned(contenders.len() * seeds.len());
        let all = seeds.flat_map(|run| (0..contenders.len()).map(move |contender| (run, contender)));
        let one = |(run, contender): (usize, usize)| {
            if cancel.load(Ordering::Relaxed) {
                return None;
            }
            let scenario = &contenders[contender].1;
            let seed = runs.seed + run as u64;
            let metrics = tandem_sim::run_observed(scenario, seed, &mut Abortable((), progress.abort()));
            if progress.abort().load(Ordering::Relaxed) {
                return None;
            }
            progress.done();
            let done = metrics.map(|metrics| {
                let of_groups = groups.iter().map(|group| values::times(group, &metrics)).collect();
                times.lock().unwrap_or_else(PoisonError::into_inner).add((run, contender), of_groups);
                ((run, contender), Run::new(scenario, &metrics))
            });
            Some(done.map_err(|error| format!("{}: {error}", names[contender])))
        };
        // `par_bridge` takes them in order, so that a cancelled comparison has whole seeds.
        threads.install(|| all.par_bridge().filter_map(one).collect())
    };
    let whole = |finished: &Finished| -> Vec<usize> {
        let is_whole =
            |run: &usize| (0..contenders.len()).all(|contender| finished.contains_key(&(*run, contender)));
        (0..runs.seeds).filter(is_whole).collect()
    };
    let first_stage = runs.precision_pct.map_or(runs.seeds, |_| precision::first_stage(runs.seeds));
    let mut finished = stage(0..first_stage)?;
    let mut seeds = whole(&finished);
    let mut found = rows(first, contenders.len(), &seeds, first_stage, &finished);
    let mut precision = None;
    if let Some(asked_pct) = runs.precision_pct {
        let wanted = precision::wanted(&found, first_stage, asked_pct);
        // One more stage at most: see [`crate::statistics`].
        if seeds.len() == first_stage && wanted > first_stage {
            finished.extend(stage(first_stage..wanted.min(runs.seeds))?);
            seeds = whole(&finished);
            found = rows(first, contenders.len(), &seeds, first_stage, &finished);
        }
        precision = Some(precision::outcome(&found, first_stage, wanted, asked_pct, seeds.len()));
    }
    if seeds.is_empty() {
        return Ok(None);
    }
    let seed_of = |run: usize| runs.seed + run as u64;
    let of_each = |of: &dyn Fn(usize) -> u64| (0..contenders.len()).map(of).collect::<Vec<u64>>();
    let worst = |contender: usize| {
        // The first of those that are alike.
        let worst = seeds.iter().rev().max_by_key(|&&run| finished[&(run, contender)].longest_wait_ns);
        worst.map_or(runs.seed, |&run| seed_of(run))
    };
    let hex = |hash: u64| format!("{hash:016x}");
    let hashes =
        |contender: usize| seeds.iter().map(|&run| hex(finished[&(run, contender)].trace_hash)).collect();
    let times = times.into_inner().unwrap_or_else(PoisonError::into_inner).pooled;
    let pooled = groups.iter().enumerate().map(|(group, name)| {
        let times: Vec<_> = times.iter().map(|of_contender| of_contender[group].clone()).collect();
        let of = |times: &tandem_sim::times::Times| (times.count() > 0).then(|| LatencyFigures::from(times));
        let figures = |which: usize| times.iter().map(|times| of(&times[which])).collect();
        Pooled { group: (*name).to_owned(), response: figures(0), wakeup: figures(1), times: times.clone() }
    });
    Ok(Some(Comparison {
        version: env!("CARGO_PKG_VERSION"),
        scenario: scenario.to_owned(),
        machine: first.machine.name().to_owned(),
        length_s: mean(finished.values().map(|run| run.length_ns as f64)).unwrap_or(0.0) / 1e9,
        pooled: pooled.collect(),
        worst_seeds: of_each(&worst),
        trace_hashes: (0..contenders.len()).map(hashes).collect(),
        scenario_hashes: contenders.iter().map(|(_, scenario)| hex(scenario_hash(scenario))).collect(),
        seeds: seeds.iter().map(|&run| seed_of(run)).collect(),
        precision,
        rows: found,
        policies: names,
    }))
}

impl Comparison {
    /// Whether a group has so many responses or wake-ups a run, under one of the schedulers, that a 99th percentile is more
    /// than the largest.
    fn has_tail(&self, group: Option<&str>, what: &str) -> bool {
        const LEAST_A_RUN: u64 = 100;
        let pooled = self.pooled.iter().filter(|pooled| Some(&*pooled.group) == group);
        let figures = |pooled: &'_ Pooled| match what {
            "response" => pooled.response.clone(),
            _ => pooled.wakeup.clone(),
        };
        let most = pooled.flat_map(figures).flatten().map(|figures| figures.count).max();
        most.is_some_and(|most| most >= LEAST_A_RUN * self.seeds.len() as u64)
    }

    /// Its seeds, in words.
    fn seeds_in_words(&self) -> String {
        match &self.seeds[..] {
            [first, .., last] => format!("seeds {first} to {last}"),
            few => few.iter().map(|seed| format!("seed {seed}")).collect(),
        }
    }

    /// Whether seeds are missing that it should have had.
    pub fn is_cut_short(&self, runs: Runs) -> bool {
        let wanted = self.precision.as_ref().map(|precision| precision.wanted.unwrap_or(usize::MAX));
        self.seeds.len() < wanted.unwrap_or(usize::MAX).min(runs.seeds)
    }
}

impl Run {
    fn new(scenario: &Scenario, metrics: &tandem_sim::metrics::RunMetrics) -> Self {
        let waits_ns = metrics.vms.iter().flat_map(|vm| &vm.vcpus).map(|task| task.longest_wait_ns);
        Self {
            length_ns: metrics.length_ns,
            trace_hash: metrics.trace_hash,
            longest_wait_ns: waits_ns.max().unwrap_or(0),
            values: values(scenario, metrics),
        }
    }
}

/// The schedulers of each contender; those that have the same name get numbers.
fn names(contenders: &[(Option<String>, Scenario)]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for (word, contender) in contenders {
        let word = word.as_ref().map_or(String::new(), |word| format!(" ({word})"));
        let name = format!("{}{word}", policy_name(contender));
        let alike = names.iter().filter(|known| known.split(" #").next() == Some(&name)).count();
        names.push(if alike == 0 { name } else { format!("{name} #{}", alike + 1) });
    }
    names
}

/// Every measure, from the seeds that are whole; the first `first_stage` of them gave their number.
fn rows(
    scenario: &Scenario,
    contenders: usize,
    whole: &[usize],
    first_stage: usize,
    finished: &Finished,
) -> Vec<Row> {
    let groups = scenario.groups();
    let mut measures: BTreeMap<&Measured, Kind> = BTreeMap::new();
    for run in finished.values() {
        measures.extend(run.values.iter().map(|(measured, (kind, _))| (measured, *kind)));
    }
    let row = |(measured, kind): (&Measured, Kind)| {
        let of = |contender: usize| -> Vec<Option<f64>> {
            let value =
                |&run: &usize| finished[&(run, contender)].values.get(measured).map(|(_, value)| *value);
            whole.iter().map(value).collect()
        };
        Row {
            group: groups.get(measured.group).map(|group| (*group).to_owned()),
            measure: measured.name.clone(),
            unit: measured.unit,
            better: kind.better,
            weight: kind.weight,
            figures: figures((0..contenders).map(of).collect(), first_stage),
        }
    };
    measures.into_iter().map(row).collect()
}

/// The values of each contender, one for each seed, against the first contender's.
fn figures(all: Vec<Vec<Option<f64>>>, first_stage: usize) -> Vec<Figure> {
    let figure = |(at, values): (usize, &Vec<Option<f64>>)| {
        let pairs = all[0].iter().zip(values).map(|(one, other)| one.zip(*other));
        let pairs: Option<Vec<(f64, f64)>> = pairs.collect();
        let effect = pairs
            .filter(|_| at > 0)
            .and_then(|pairs| paired_effect(&pairs, first_stage))
            .map(Effect::of_amounts);
        Figure {
            mean: mean(values.iter().copied().flatten()),
            values: values.clone(),
            effect_pct: effect.map(|Effect { percent, .. }| percent),
            interval_pct: effect.and_then(|effect| effect.interval_pct),
        }
    };
    all.iter().enumerate().map(figure).collect()
}

#[cfg(test)]
pub(crate) mod tests;
