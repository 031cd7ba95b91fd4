//! Runs experiments: every case, with every variant, as often as the experiment says, on all cores.
//!
//! Replication *r* of every run has the seed `seed + r`, so that variants see the same random numbers; `tandem sim
//! --seed` can repeat any one of them. The outcome of a run depends on its scenario and seed alone, and outcomes
//! are put together in a fixed order: results do not depend on the number of jobs.

use crate::experiment::{Case, Experiment, verdict};
use crate::results::{Cell, ExperimentResults, Role};
use crate::statistics::{mean, paired_effect};
use rayon::iter::{ParallelBridge, ParallelIterator};
use std::collections::BTreeMap;
use std::error::Error;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use tandem_sim::metrics::RunMetrics;
use tandem_sim::scenario::Scenario;

/// How to run an experiment.
#[derive(Clone, Copy, Debug)]
pub struct RunOptions {
    /// Seed of the first replication.
    pub seed: u64,
    /// Runs at the same time.
    pub jobs: NonZeroUsize,
}

/// Is told how far an experiment has come. Called from several threads.
pub trait Progress: Sync {
    /// So many more runs will be made.
    fn planned(&self, runs: usize);

    /// A run is done.
    fn done(&self);
}

/// Tells nobody.
impl Progress for () {
    fn planned(&self, _runs: usize) {}

    fn done(&self) {}
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
        /// What the engine says.
        error: Box<dyn Error + Send + Sync>,
    },
    /// A metric had nothing to be measured on.
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
struct Run {
    case: usize,
    replication: usize,
    variant: usize,
}

/// The values of the case's metrics in each finished run.
type Values = BTreeMap<Run, Vec<f64>>;

/// Runs the experiment.
///
/// When `cancel` becomes true, no more runs are started; the results are those of the replications that all
/// variants of a case have finished, and cases without any are left out.
///
/// # Errors
/// If a scenario is refused, a metric cannot be measured, or threads cannot be started.
pub fn run(
    experiment: &Experiment,
    options: RunOptions,
    progress: &dyn Progress,
    cancel: &AtomicBool,
) -> Result<ExperimentResults, ExperimentError> {
    run_with(experiment, options, progress, cancel, tandem_sim::run)
}

/// [`run`], with the function that simulates a scenario with a seed.
fn run_with<E: Error + Send + Sync + 'static>(
    experiment: &Experiment,
    options: RunOptions,
    progress: &dyn Progress,
    cancel: &AtomicBool,
    simulate: impl Fn(&Scenario, u64) -> Result<RunMetrics, E> + Sync,
) -> Result<ExperimentResults, ExperimentError> {
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(options.jobs.get())
        .build()?;
    let most = experiment.replications.max.unwrap_or(experiment.replications.min);
    let mut values = Values::new();
    let mut replications = 0..experiment.replications.min;
    loop {
        let runs = runs(experiment, replications.clone());
        progress.planned(runs.len());
        let run = |run: Run| {
            if cancel.load(Ordering::Relaxed) {
                return None;
            }
            let outcome = run_once(experiment, run, options.seed, &simulate);
            progress.done();
            Some(outcome.map(|values| (run, values)))
        };
        // A bridge takes the runs in order, so that a cancelled experiment has whole replications.
        let finished: Result<Vec<_>, ExperimentError> =
            pool.install(|| runs.into_iter().par_bridge().filter_map(run).collect());
        values.extend(finished?);
        let results = results(experiment, options.seed, &values);
        let done = replications.end;
        if done >= most || cancel.load(Ordering::Relaxed) || is_precise(experiment, &results.cells) {
            return Ok(results);
        }
        replications = done..most.min(done + done.div_ceil(2));
    }
}

/// The runs of some replications, one whole replication after the other.
fn runs(experiment: &Experiment, replications: std::ops::Range<usize>) -> Vec<Run> {
    let mut runs = Vec::new();
    for replication in replications {
        for (case, Case { variants, .. }) in experiment.cases.iter().enumerate() {
            runs.extend((0..variants.len()).map(|variant| Run {
                case,
                replication,
                variant,
            }));
        }
    }
    runs
}

/// The values of the metrics in one run.
fn run_once<E: Error + Send + Sync + 'static>(
    experiment: &Experiment,
    run: Run,
    seed: u64,
    simulate: &impl Fn(&Scenario, u64) -> Result<RunMetrics, E>,
) -> Result<Vec<f64>, ExperimentError> {
    let case = &experiment.cases[run.case];
    let (variant, scenario) = &case.variants[run.variant];
    let metrics = simulate(scenario, seed.wrapping_add(run.replication as u64)).map_err(|error| {
        ExperimentError::Scenario {
            experiment: experiment.name.clone(),
            case: case.label(),
            variant: variant.clone(),
            error: error.into(),
        }
    })?;
    let value = |metric: &crate::experiment::file::ExperimentMetric| {
        metric.value(&metrics).ok_or_else(|| ExperimentError::NoValue {
            experiment: experiment.name.clone(),
            case: case.label(),
            variant: variant.clone(),
            metric: metric.name.clone(),
        })
    };
    case.metrics.iter().map(value).collect()
}

/// Whether the interval of every effect with a published number is narrow enough.
fn is_precise(experiment: &Experiment, cells: &[Cell]) -> bool {
    let published = cells
        .iter()
        .filter(|cell| cell.published_effect_pct.is_some() && cell.variant != cell.baseline);
    published
        .map(|cell| cell.ci_low_pct.zip(cell.ci_high_pct))
        .all(|interval| {
            interval.is_some_and(|(low, high)| (high - low) / 2.0 <= experiment.replications.precision_pct)
        })
}

/// The results, from the replications that all variants of a case have finished.
fn results(experiment: &Experiment, seed: u64, values: &Values) -> ExperimentResults {
    let mut cells = Vec::new();
    let mut fewest = None;
    for (position, case) in experiment.cases.iter().enumerate() {
        let run = |replication, variant| {
            values.get(&Run {
                case: position,
                replication,
                variant,
            })
        };
        let replications: Vec<Vec<&Vec<f64>>> = (0..)
            .take_while(|&replication| {
                replication <= values.keys().map(|run| run.replication).max().unwrap_or(0)
            })
            .filter_map(|replication| {
                (0..case.variants.len())
                    .map(|variant| run(replication, variant))
                    .collect()
            })
            .collect();
        if !replications.is_empty() {
            fewest = Some(fewest.unwrap_or(usize::MAX).min(replications.len()));
            cells.extend(cells_of(experiment, case, &replications));
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
        verdict: verdict(&cells, &file.targets),
        cells,
    }
}

/// The cells of a case: metric by metric, variant by variant. `replications` holds values by replication, variant
/// and metric.
fn cells_of(experiment: &Experiment, case: &Case, replications: &[Vec<&Vec<f64>>]) -> Vec<Cell> {
    let baseline = experiment.baseline();
    let base = case
        .variants
        .iter()
        .position(|(name, _)| name == baseline)
        .expect("every case has the baseline");
    let mut cells = Vec::new();
    for (m, metric) in case.metrics.iter().enumerate() {
        for (v, (variant, _)) in case.variants.iter().enumerate() {
            let pairs: Vec<(f64, f64)> = replications.iter().map(|run| (run[base][m], run[v][m])).collect();
            let effect = if v == base { None } else { paired_effect(&pairs) };
            let published = experiment.published.value(&case.keys, &metric.name, variant);
            let is_calibrated = metric.calibrated && v == base && published.is_some();
            cells.push(Cell {
                experiment: experiment.name.clone(),
                cell: case.keys.clone(),
                metric: metric.name.clone(),
                baseline: baseline.into(),
                variant: variant.clone(),
                published,
                simulated: mean(pairs.iter().map(|&(_, value)| value)).expect("there are replications"),
                published_effect_pct: experiment.published.effect_pct(
                    &case.keys,
                    &metric.name,
                    variant,
                    baseline,
                ),
                simulated_effect_pct: effect.map(|effect| effect.percent),
                ci_low_pct: effect.and_then(|effect| effect.interval_pct).map(|(low, _)| low),
                ci_high_pct: effect
                    .and_then(|effect| effect.interval_pct)
                    .map(|(_, high)| high),
                role: if is_calibrated {
                    Role::Calibrated
                } else {
                    Role::Predicted
                },
                better: metric.better,
                unit: metric.unit.clone(),
            });
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Key;
    use std::fs;
    use std::sync::atomic::AtomicUsize;
    use tandem_sim::metrics::VmMetrics;
    use tandem_sim::policy::credit::RateControl;
    use tandem_sim::scenario::PolicySettings;

    const SCENARIO: &str = r#"
        length = "1s"
        machine = "xeon-e5620-2s"
        [parameters]
        vms = 1
        [programs.hog]
        ops = [{ forever = [{ compute = "1ms" }, { count = "done" }] }]
        [[vm]]
        group = "hog"
        count = "$vms"
        vcpus = 1
        memory = "1GiB"
        programs = ["hog"]
    "#;

    fn experiment(replications: &str) -> Experiment {
        let folder = tempfile::tempdir().unwrap();
        let text = format!(
            r#"
            title = "T"
            story = []
            source = "S"
            modelled = []
            not_modelled = []
            baseline = "plain"
            replications = {replications}
            [variants.plain]
            [variants.src]
            rate_control = {{}}
            [[run]]
            scenario = "s.toml"
            sweep = {{ vms = [1, 2] }}
            metrics = [{{ name = "done", of = {{ rate = "done" }}, unit = "1/s", better = "higher", calibrated = true }}]
            "#
        );
        let published =
            "vms,metric,variant,value,effect_pct\n1,done,plain,100,\n1,done,src,110,\n2,done,src,,5\n";
        for (name, text) in [
            ("experiment.toml", text.as_str()),
            ("s.toml", SCENARIO),
            ("published.csv", published),
        ] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        Experiment::read(folder.path()).unwrap()
    }

    fn options(jobs: usize) -> RunOptions {
        RunOptions {
            seed: 10,
            jobs: NonZeroUsize::new(jobs).unwrap(),
        }
    }

    /// An engine whose noise comes from the seed alone, and whose rate control is worth 8 % and a little noise.
    fn engine(scenario: &Scenario, seed: u64) -> Result<RunMetrics, std::io::Error> {
        let PolicySettings::Credit(credit) = scenario.policy;
        let noise = seed * 7 % 5;
        let done = 1_000 * scenario.vms.len() as u64 + noise * 100;
        let gain = if credit.rate_control == Some(RateControl::default()) {
            80 + noise
        } else {
            0
        };
        Ok(RunMetrics {
            length_ns: scenario.length_ns,
            events: 0,
            trace_hash: 0,
            host: Default::default(),
            vms: vec![VmMetrics {
                group: "hog".into(),
                counts: [("done".into(), done + done * gain / 1_000)].into(),
                ..VmMetrics::default()
            }],
        })
    }

    #[test]
    fn cells_stand_beside_published_numbers_with_their_roles() {
        let no_cancel = AtomicBool::new(false);
        let results = run_with(&experiment("{ min = 3 }"), options(1), &(), &no_cancel, engine).unwrap();
        assert_eq!(
            (results.replications, results.seed, results.cells.len()),
            (3, 10, 4)
        );
        let told: Vec<_> = results
            .cells
            .iter()
            .map(|cell| {
                (
                    &cell.cell["vms"],
                    cell.variant.as_str(),
                    cell.published,
                    cell.published_effect_pct,
                    cell.role,
                )
            })
            .collect();
        let (one, two) = (Key::Number(1), Key::Number(2));
        let expected = [
            (&one, "plain", Some(100.0), None, Role::Calibrated),
            (&one, "src", Some(110.0), Some(10.0), Role::Predicted),
            (&two, "plain", None, None, Role::Predicted),
            (&two, "src", None, Some(5.0), Role::Predicted),
        ];
        for (cell, (keys, variant, published, effect, role)) in told.iter().zip(expected) {
            let effect_is_right = match (cell.3, effect) {
                (Some(told), Some(expected)) => (told - expected).abs() < 1e-9,
                (told, expected) => told == expected,
            };
            assert!(effect_is_right, "{cell:?}");
            assert_eq!((cell.0, cell.1, cell.2, cell.4), (keys, variant, published, role));
        }
        // The noise of a pair is common: it moves the values by up to a third, the effect by tenths of a point.
        let src = &results.cells[1];
        assert!((8.0..8.5).contains(&src.simulated_effect_pct.unwrap()), "{src:?}");
        assert!(
            src.ci_high_pct.unwrap() - src.ci_low_pct.unwrap() < 1.0,
            "{src:?}"
        );
        assert_eq!(results.verdict.sign_right, 2);
    }

    #[test]
    fn results_do_not_depend_on_the_number_of_jobs() {
        let no_cancel = AtomicBool::new(false);
        let experiment = experiment("{ min = 4 }");
        let run = |jobs| {
            format!(
                "{:?}",
                run_with(&experiment, options(jobs), &(), &no_cancel, engine)
            )
        };
        assert_eq!(run(1), run(3));
    }

    #[test]
    fn replications_grow_until_the_intervals_are_narrow_enough() {
        let no_cancel = AtomicBool::new(false);
        for (replications, expected) in [
            ("{ min = 2, max = 9, precision_pct = 100 }", 2),
            ("{ min = 2, max = 9, precision_pct = 0 }", 9),
            ("{ min = 1, max = 2, precision_pct = 100 }", 2),
        ] {
            let results = run_with(&experiment(replications), options(2), &(), &no_cancel, engine).unwrap();
            assert_eq!(results.replications, expected, "{replications}");
        }
    }

    #[test]
    fn a_cancelled_experiment_reports_whole_replications() {
        let cancel = AtomicBool::new(false);
        let started = AtomicUsize::new(0);
        // A replication has four runs; the seventh completes the first case's second replication with the sixth.
        let engine = |scenario: &Scenario, seed| {
            if started.fetch_add(1, Ordering::Relaxed) + 1 == 7 {
                cancel.store(true, Ordering::Relaxed);
            }
            engine(scenario, seed)
        };
        let results = run_with(&experiment("{ min = 5 }"), options(1), &(), &cancel, engine).unwrap();
        assert_eq!(started.load(Ordering::Relaxed), 7);
        assert_eq!((results.replications, results.cells.len()), (1, 4));
        assert!(results.cells[1].ci_low_pct.is_some() && results.cells[3].ci_low_pct.is_none());

        let results = run_with(
            &experiment("{ min = 5 }"),
            options(1),
            &(),
            &AtomicBool::new(true),
            engine,
        )
        .unwrap();
        assert_eq!((results.replications, results.cells.len()), (0, 0));
    }

    #[test]
    fn what_the_engine_refuses_or_cannot_measure_is_told_with_its_place() {
        let no_cancel = AtomicBool::new(false);
        let refuse = |_: &Scenario, _| Err::<RunMetrics, _>(std::io::Error::other("no"));
        let mut error = run_with(&experiment("{ min = 1 }"), options(1), &(), &no_cancel, refuse)
            .unwrap_err()
            .to_string();
        assert!(error.ends_with("`, vms=1, variant `plain`: no"), "{error}");
        let nothing = |scenario: &Scenario, seed| {
            engine(scenario, seed).map(|run| RunMetrics {
                vms: Vec::new(),
                ..run
            })
        };
        error = run_with(&experiment("{ min = 1 }"), options(1), &(), &no_cancel, nothing)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("nothing happened that metric `done` could be measured on"),
            "{error}"
        );
    }
}
