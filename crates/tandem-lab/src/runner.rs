//! Runs experiments: every case, with every variant, as often as the experiment says, on all cores.
//!
//! Replication *r* of every run has the seed `seed + r`, so that variants see the same random numbers;
//! `tandem sim --seed` can repeat any one of them. The outcome of a run depends on its scenario and seed
//! alone, and outcomes are combined in a fixed order: results do not depend on the number of jobs.
//!
//! Where a calibration says what the baseline leaves open, effects are measured at other points, too: see
//! [`ranges`].

use crate::experiment::file::ExperimentMetric;
use crate::experiment::{Case, Experiment, verdict};
use crate::published::CellKeys;
use crate::results::{Better, Cell, CellRuns, ExperimentResults, HeatMap, RangeBasis, Role};
use crate::scenario::policy::named::{named, named_guests};
use crate::statistics::{mean, paired_effect};
use crate::summary::scenario_hash;
use precision::Plan;
use rayon::iter::{ParallelBridge, ParallelIterator};
use std::collections::BTreeMap;
use std::error::Error;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use tandem_machine::ids::{KernelId, TaskId};
use tandem_sim::metrics::RunMetrics;
use tandem_sim::scenario::Scenario;
use tandem_sim::trace::{Event, Observer};

mod precision;
mod ranges;

/// How to run an experiment.
#[derive(Clone, Copy, Debug)]
pub struct RunOptions {
    /// Seed of the first replication.
    pub seed: u64,
    /// Runs at the same time.
    pub jobs: NonZeroUsize,
}

/// What no run is aborted by.
pub(crate) static NEVER: AtomicBool = AtomicBool::new(false);

/// Receives the progress of an experiment. Called from several threads.
pub trait Progress: Sync {
    /// This many more runs are planned.
    fn planned(&self, runs: usize);

    /// A run is done.
    fn done(&self);

    /// When this becomes true, runs end in the middle, and nothing is made of them.
    fn abort(&self) -> &AtomicBool {
        &NEVER
    }
}

/// Reports nothing.
impl Progress for () {
    fn planned(&self, _runs: usize) {}

    fn done(&self) {}
}

/// An observer, whose run ends in the middle when the flag becomes true.
pub(crate) struct Abortable<'a, O>(pub O, pub &'a AtomicBool);

impl<O: Observer> Observer for Abortable<'_, O> {
    #[inline]
    fn observe(&mut self, event: Event) {
        self.0.observe(event);
    }

    #[inline]
    fn named(&mut self, at_ns: u64, kernel: KernelId, task: TaskId, name: &str) {
        self.0.named(at_ns, kernel, task, name);
    }

    #[inline]
    fn goes_on(&mut self, now_ns: u64) -> bool {
        !self.1.load(Ordering::Relaxed) && self.0.goes_on(now_ns)
    }
}

/// Why an experiment could not be run.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// The engine refused a scenario.
    #[error("experiment `{experiment}`, {case}, variant `{variant}`: {error}")]
    Scenario {
        /// The experiment.
        experiment: String,
        /// The case.
        case: String,
        /// The variant.
        variant: String,
        /// The engine's error.
        error: Box<dyn Error + Send + Sync>,
    },
    /// A run had nothing to measure for a metric.
    #[error(
        "experiment `{experiment}`, {case}, variant `{variant}`: nothing happened that metric `{metric}` could be measured on; make the run longer or measure something else"
    )]
    NoValue {
        /// The experiment.
        experiment: String,
        /// The case.
        case: String,
        /// The variant.
        variant: String,
        /// The metric.
        metric: String,
    },
    /// The threads could not be started.
    #[error("cannot start threads for the jobs: {0}; try fewer with --jobs")]
    Threads(#[from] rayon::ThreadPoolBuildError),
}

/// One run: positions of its case and its variant, and its replication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RunKey {
    case: usize,
    replication: usize,
    variant: usize,
}

/// What a run gave.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    /// The values of the case's metrics.
    pub values: Vec<f64>,
    /// The hash over its events.
    trace_hash: u64,
}

/// What each finished run gave.
type Finished = BTreeMap<RunKey, Measured>;

/// Runs the experiment.
///
/// When `cancel` becomes true, no more runs are started; the results are those of the replications that all
/// variants of a case have finished, and cases without any are left out. When [`Progress::abort`] becomes true, runs end
/// in the middle, and the results mean nothing.
///
/// # Errors
/// If a scenario is refused, a metric cannot be measured, or threads cannot be started.
pub fn run(
    experiment: &Experiment,
    options: RunOptions,
    progress: &dyn Progress,
    cancel: &AtomicBool,
) -> Result<ExperimentResults, ExperimentError> {
    let abortable = |scenario: &Scenario, seed: u64| {
        tandem_sim::run_observed(scenario, seed, &mut Abortable((), progress.abort()))
    };
    run_with(experiment, options, progress, cancel, abortable)
}

/// [`run`], with the function that simulates a scenario with a seed.
pub(crate) fn run_with<E: Error + Send + Sync + 'static>(
    experiment: &Experiment,
    options: RunOptions,
    progress: &dyn Progress,
    cancel: &AtomicBool,
    simulate: impl Fn(&Scenario, u64) -> Result<RunMetrics, E> + Sync,
) -> Result<ExperimentResults, ExperimentError> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(options.jobs.get()).build()?;
    let mut finished = Finished::new();
    let mut planned = 0;
    let mut stage = |replications: Range<usize>| -> Result<ExperimentResults, ExperimentError> {
        let runs = runs(experiment, replications);
        planned += runs.len();
        progress.planned(runs.len());
        let run = |run: RunKey| {
            if cancel.load(Ordering::Relaxed) {
                return None;
            }
            let outcome = run_once(experiment, run, options.seed, &simulate);
            progress.done();
            Some(outcome.map(|measured| (run, measured)))
        };
        // `par_bridge` takes the runs in order, so that a cancelled experiment has whole replications.
        let of_stage: Result<Vec<_>, ExperimentError> =
            pool.install(|| runs.into_iter().par_bridge().filter_map(run).collect());
        finished.extend(of_stage?);
        Ok(results(experiment, options.seed, &finished))
    };
    let first = experiment.replications.first_stage();
    let mut results = stage(0..first)?;
    let plan = Plan::new(experiment, &results.cells);
    // One more stage at most: see [`crate::statistics`].
    if plan.replications() > first && !cancel.load(Ordering::Relaxed) {
        results = stage(first..plan.replications())?;
    }
    results.precision = plan.outcome(&mut results.cells);
    results.calibrations =
        ranges::add_ranges(experiment, &mut results.cells, options, progress, cancel, &pool, &simulate);
    let is_without_ranges = !experiment.calibrations.is_empty() && cancel.load(Ordering::Relaxed);
    results.is_cut = finished.len() < planned || is_without_ranges;
    results.verdict = verdict(&results.cells, &experiment.file);
    Ok(results)
}

/// The runs of some replications, one whole replication after the other.
fn runs(experiment: &Experiment, replications: Range<usize>) -> Vec<RunKey> {
    let mut runs = Vec::new();
    for replication in replications {
        let has_more = |case: &Case| case.replications.is_none_or(|most| replication < most);
        for (case, Case { variants, .. }) in
            experiment.cases.iter().enumerate().filter(|(_, case)| has_more(case))
        {
            runs.extend((0..variants.len()).map(|variant| RunKey { case, replication, variant }));
        }
    }
    runs
}

/// One run.
fn run_once<E: Error + Send + Sync + 'static>(
    experiment: &Experiment,
    run: RunKey,
    seed: u64,
    simulate: &impl Fn(&Scenario, u64) -> Result<RunMetrics, E>,
) -> Result<Measured, ExperimentError> {
    let case = &experiment.cases[run.case];
    let (variant, scenario) = &case.variants[run.variant];
    measure(experiment, case, variant, scenario, seed.wrapping_add(run.replication as u64), simulate)
}

/// Measures a run of a scenario of a case.
pub(crate) fn measure<E: Error + Send + Sync + 'static>(
    experiment: &Experiment,
    case: &Case,
    variant: &str,
    scenario: &Scenario,
    seed: u64,
    simulate: &impl Fn(&Scenario, u64) -> Result<RunMetrics, E>,
) -> Result<Measured, ExperimentError> {
    let metrics = simulate(scenario, seed).map_err(|error| ExperimentError::Scenario {
        experiment: experiment.name.clone(),
        case: case.label(),
        variant: variant.to_owned(),
        error: error.into(),
    })?;
    let value = |metric: &ExperimentMetric| {
        metric.value(&metrics).ok_or_else(|| ExperimentError::NoValue {
            experiment: experiment.name.clone(),
            case: case.label(),
            variant: variant.to_owned(),
            metric: metric.name.clone(),
        })
    };
    let values = case.metrics.iter().map(value).collect::<Result<_, _>>()?;
    Ok(Measured { values, trace_hash: metrics.trace_hash })
}

/// The results, from the replications that all variants of a case have finished.
fn results(experiment: &Experiment, seed: u64, finished: &Finished) -> ExperimentResults {
    let started = finished.keys().map(|run| run.replication + 1).max().unwrap_or(0);
    let value_of = |case, metric: usize, replication, variant| -> Option<f64> {
        finished.get(&RunKey { case, replication, variant }).map(|run| run.values[metric])
    };
    let case_runs: Vec<Vec<CellRuns>> = (0..experiment.cases.len())
        .map(|case| runs_of_case(experiment, case, seed, started, finished))
        .collect();
    let mut cells = Vec::new();
    let mut fewest = None;
    for (position, case) in experiment.cases.iter().enumerate() {
        for (number, metric) in case.metrics.iter().enumerate() {
            let label =
                Label { keys: &case.keys, metric: &metric.name, unit: &metric.unit, better: metric.better };
            let role = |variant: &str| match metric.is_calibrated_at(&case.keys, variant, &case.baseline) {
                true => Role::Calibrated,
                false => Role::Predicted,
            };
            let runs = complete(started, case.variants.len(), |replication, variant| {
                value_of(position, number, replication, variant)
            });
            if !runs.is_empty() {
                if case.replications.is_none() {
                    fewest = Some(fewest.unwrap_or(usize::MAX).min(runs.len()));
                }
                cells.extend(cells_of(experiment, case, &label, role, &runs, &case_runs[position]));
            }
        }
    }
    for composite in &experiment.composites {
        let label = Label {
            keys: &composite.keys,
            metric: &composite.name,
            unit: &composite.unit,
            better: composite.better,
        };
        let case = &experiment.cases[composite.parts[0].0];
        let role = |variant: &str| {
            // Parts with published effects count by themselves.
            let part_counts = |&(case, metric): &(usize, usize)| {
                let Case { keys, metrics, baseline, .. } = &experiment.cases[case];
                experiment.published.effect_pct(keys, &metrics[metric].name, variant, baseline).is_some()
            };
            match composite.is_calibrated(&experiment.cases, variant) {
                true => Role::Calibrated,
                false if composite.parts.iter().any(part_counts) => Role::Composite,
                false => Role::Predicted,
            }
        };
        let runs = complete(started, case.variants.len(), |replication, variant| {
            composite.value(|case, metric| value_of(case, metric, replication, variant))
        });
        if !runs.is_empty() {
            let parts: Vec<&[CellRuns]> =
                composite.parts.iter().map(|&(case, _)| case_runs[case].as_slice()).collect();
            cells.extend(cells_of(experiment, case, &label, role, &runs, &runs_of_parts(&parts)));
        }
    }
    let file = &experiment.file;
    ExperimentResults {
        name: experiment.name.clone(),
        title: file.title.clone(),
        story: file.story.clone(),
        source: file.source.clone(),
        modelled: file.modelled.clone(),
        not_modelled: file.not_modelled.clone(),
        replications: fewest.unwrap_or(0),
        seed,
        is_cut: false,
        precision: None,
        verdict: verdict(&cells, file),
        heat_maps: file.heat_maps.iter().map(HeatMap::from).collect(),
        calibrations: Vec::new(),
        cells,
    }
}

/// The runs of each variant of a case, in the replications that all of them have finished, without values.
fn runs_of_case(
    experiment: &Experiment,
    case: usize,
    seed: u64,
    started: usize,
    finished: &Finished,
) -> Vec<CellRuns> {
    let variants = &experiment.cases[case].variants;
    let hash =
        |replication, variant| finished.get(&RunKey { case, replication, variant }).map(|run| run.trace_hash);
    let is_whole =
        |&replication: &usize| (0..variants.len()).all(|variant| hash(replication, variant).is_some());
    let whole: Vec<usize> = (0..started).filter(is_whole).collect();
    let hex = |hash: u64| format!("{hash:016x}");
    let of_variant = |(variant, (_, scenario)): (usize, &(String, Scenario))| CellRuns {
        version: env!("CARGO_PKG_VERSION"),
        scheduler: named(&scenario.policy),
        guest_schedulers: named_guests(scenario),
        scenario_hash: Some(hex(scenario_hash(scenario))),
        n: whole.len(),
        seeds: whole.iter().map(|&replication| seed.wrapping_add(replication as u64)).collect(),
        values: Vec::new(),
        trace_hashes: whole.iter().filter_map(|&replication| hash(replication, variant)).map(hex).collect(),
    };
    variants.iter().enumerate().map(of_variant).collect()
}

/// The runs of each variant of a composite, by those of its parts, which have the same variants.
fn runs_of_parts(parts: &[&[CellRuns]]) -> Vec<CellRuns> {
    let of_variant = |variant: usize| {
        let of_parts = || parts.iter().map(move |part| &part[variant]);
        let fewest = of_parts().min_by_key(|runs| runs.n).cloned().unwrap_or_default();
        let guests = of_parts().flat_map(|runs| &runs.guest_schedulers).cloned();
        CellRuns {
            scheduler: each_once(of_parts().map(|runs| runs.scheduler.clone())).join(" and "),
            guest_schedulers: each_once(guests),
            scenario_hash: None,
            trace_hashes: Vec::new(),
            ..fewest
        }
    };
    (0..parts.first().map_or(0, |part| part.len())).map(of_variant).collect()
}

/// Each text once, in the order in which they first appear.
fn each_once(texts: impl Iterator<Item = String>) -> Vec<String> {
    let mut once = Vec::new();
    for text in texts {
        if !once.contains(&text) {
            once.push(text);
        }
    }
    once
}

/// Keys, metric, unit and direction of a set of cells.
struct Label<'a> {
    keys: &'a CellKeys,
    metric: &'a str,
    unit: &'a str,
    better: Better,
}

/// Values by replication and variant. A replication that lacks a variant does not count.
fn complete(
    replications: usize,
    variants: usize,
    value: impl Fn(usize, usize) -> Option<f64>,
) -> Vec<Vec<f64>> {
    (0..replications).filter_map(|run| (0..variants).map(|variant| value(run, variant)).collect()).collect()
}

/// The cells of a metric, one a variant of the case, from values by replication and variant; `about` says what is
/// known of the runs of each variant. `role` is that of a published number of a variant.
fn cells_of(
    experiment: &Experiment,
    case: &Case,
    label: &Label,
    role: impl Fn(&str) -> Role,
    runs: &[Vec<f64>],
    about: &[CellRuns],
) -> Vec<Cell> {
    let (baseline, published) = (case.baseline.as_str(), &experiment.published);
    let base = case.variant_names().position(|name| name == baseline).expect("every case has its baseline");
    let cell = |(at, (variant, _)): (usize, &(String, Scenario))| {
        let pairs: Vec<(f64, f64)> = runs.iter().map(|run| (run[base], run[at])).collect();
        let effect =
            if at == base { None } else { paired_effect(&pairs, experiment.replications.first_stage()) };
        let value = published.value(label.keys, label.metric, variant);
        let published_effect_pct = published.effect_pct(label.keys, label.metric, variant, baseline);
        let noise_pct = published.noise_pct(label.keys, label.metric, variant, baseline);
        Cell {
            experiment: experiment.name.clone(),
            cell: label.keys.clone(),
            metric: label.metric.into(),
            baseline: baseline.into(),
            variant: variant.clone(),
            published: value,
            simulated: mean(pairs.iter().map(|&(_, value)| value)).expect("there are replications"),
            published_effect_pct,
            simulated_effect_pct: effect.map(|effect| effect.percent),
            ci_low_pct: effect.and_then(|effect| effect.interval_pct).map(|(low, _)| low),
            ci_high_pct: effect.and_then(|effect| effect.interval_pct).map(|(_, high)| high),
            range_low_pct: None,
            range_high_pct: None,
            basis: RangeBasis::default(),
            noise_pct: noise_pct.unwrap_or(experiment.file.noise_pct),
            role: if value.is_some() || published_effect_pct.is_some() {
                role(variant)
            } else {
                Role::Predicted
            },
            better: label.better,
            unit: label.unit.into(),
            precision_pct: None,
            runs: CellRuns { values: pairs.iter().map(|&(_, value)| value).collect(), ..about[at].clone() },
        }
    };
    case.variants.iter().enumerate().map(cell).collect()
}

#[cfg(test)]
mod tests;
