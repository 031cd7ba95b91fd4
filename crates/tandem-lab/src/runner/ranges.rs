//! Ranges of effects over the points that meet the baseline.
//!
//! Each effect is measured again at some accepted points of its calibration, against the baseline at the same
//! point and with the seeds of the first replications. The range is that of these effects and of the effect
//! at the experiment's own values. The runs of the baseline judge each point once more: one that is now
//! beyond [`LEFT_OUT`] does not count, and is reported.
//!
//! Limits: the ends of a range are effects at points that were tried, each of them with its own chance; what
//! lies between and beyond them is not known. Composites have no range.

use super::{ExperimentError, Progress, RunOptions, measure};
use crate::experiment::calibration::SetState;
use crate::experiment::{Calibration, Case, Experiment};
use crate::results::Cell;
use crate::statistics::paired_effect;
use rayon::iter::{ParallelBridge, ParallelIterator};
use std::collections::BTreeMap;
use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use tandem_sim::metrics::RunMetrics;
use tandem_sim::scenario::Scenario;

/// Points of each set that effects are measured at, and how often; the same of the quick form.
const POINTS: usize = 12;
const REPLICATIONS: usize = 2;
const QUICK_POINTS: usize = 4;
const QUICK_REPLICATIONS: usize = 1;
/// A point with a larger misfit does not count. More than 1: points at the edge of a set, which matter most,
/// are accepted by some runs and not by others.
const LEFT_OUT: f64 = 1.5;

/// A run at a point: positions of the calibration, the point, the case and the variant, and the replication.
type RunKey = (usize, usize, usize, usize, usize);

/// Gives the cells their ranges. Returns a sentence for each calibration. After a cancellation, nothing has
/// one.
pub(super) fn add_ranges<E: Error + Send + Sync + 'static>(
    experiment: &Experiment,
    cells: &mut [Cell],
    options: RunOptions,
    progress: &dyn Progress,
    cancel: &AtomicBool,
    pool: &rayon::ThreadPool,
    simulate: &(impl Fn(&Scenario, u64) -> Result<RunMetrics, E> + Sync),
) -> Result<Vec<String>, ExperimentError> {
    let (most, replications) = match experiment.is_quick {
        true => (QUICK_POINTS, QUICK_REPLICATIONS),
        false => (POINTS, REPLICATIONS),
    };
    let points_of = |calibration: &Calibration| match &calibration.set {
        SetState::Known(set) => calibration.representatives(set, most),
        SetState::Missing | SetState::Stale => Vec::new(),
    };
    let points: Vec<_> = experiment.calibrations.iter().map(points_of).collect();
    let mut runs: Vec<RunKey> = Vec::new();
    for (number, calibration) in experiment.calibrations.iter().enumerate() {
        for point in 0..points[number].len() {
            for &case in &calibration.cases {
                for variant in 0..experiment.cases[case].variants.len() {
                    runs.extend((0..replications).map(|it| (number, point, case, variant, it)));
                }
            }
        }
    }
    progress.planned(runs.len());
    let run = |key: RunKey| {
        if cancel.load(Ordering::Relaxed) {
            return None;
        }
        let (number, point, case, variant, replication) = key;
        let calibration = &experiment.calibrations[number];
        let case = &experiment.cases[case];
        let (variant, _) = &case.variants[variant];
        let values = experiment
            .scenario_at(case, variant, &points[number][point])
            .map_err(|error| ExperimentError::point(experiment, calibration, error))
            .and_then(|scenario| {
                let seed = options.seed.wrapping_add(replication as u64);
                measure(experiment, case, variant, &scenario, seed, simulate)
            });
        progress.done();
        Some(values.map(|values| (key, values)))
    };
    let count = runs.len();
    let finished: Result<BTreeMap<RunKey, Vec<f64>>, ExperimentError> =
        pool.install(|| runs.into_iter().par_bridge().filter_map(run).collect());
    let values = finished?;
    if values.len() < count {
        return Ok(vec!["interrupted, so that effects have no range".to_owned()]);
    }
    let mut sentences = Vec::new();
    for (number, calibration) in experiment.calibrations.iter().enumerate() {
        let of_runs = |point: usize, case: usize, variant: usize, metric: usize| -> Vec<f64> {
            let keys = (0..replications).map(|it| (number, point, case, variant, it));
            keys.map(|key| values[&key][metric]).collect()
        };
        let meets = |point: &usize| {
            let misfit = calibration.misfit(experiment, |case, metric| {
                of_runs(*point, case, baseline_of(&experiment.cases[case]), metric)
            });
            misfit <= LEFT_OUT
        };
        let kept: Vec<usize> = (0..points[number].len()).filter(meets).collect();
        for &case in &calibration.cases {
            let Case { keys, metrics, baseline, variants, .. } = &experiment.cases[case];
            let base = baseline_of(&experiment.cases[case]);
            for cell in cells.iter_mut().filter(|it| it.cell == *keys && it.variant != *baseline) {
                let metric = metrics.iter().position(|metric| metric.name == cell.metric);
                let variant = variants.iter().position(|(name, _)| *name == cell.variant);
                let (Some(metric), Some(variant)) = (metric, variant) else { continue };
                let effect = |&point: &usize| {
                    let one = of_runs(point, case, base, metric);
                    let pairs: Vec<_> = one.into_iter().zip(of_runs(point, case, variant, metric)).collect();
                    paired_effect(&pairs, replications).map(|effect| effect.percent)
                };
                let effects: Vec<f64> =
                    kept.iter().filter_map(effect).filter(|effect| effect.is_finite()).collect();
                if let (false, Some(own)) = (effects.is_empty(), cell.simulated_effect_pct) {
                    cell.range_low_pct = Some(effects.iter().copied().fold(own, f64::min));
                    cell.range_high_pct = Some(effects.iter().copied().fold(own, f64::max));
                }
            }
        }
        sentences.push(calibration.sentence(&experiment.name) + &used(kept.len(), points[number].len()));
    }
    Ok(sentences)
}

/// How many points the ranges are over, in words that go on.
fn used(kept: usize, measured: usize) -> String {
    let left_out = measured - kept;
    match measured {
        0 => "; effects have no range".to_owned(),
        _ if left_out == 0 => format!("; ranges are over {measured} of them"),
        _ => format!(
            "; ranges are over {kept} of them, as {left_out} of {measured} no longer meet the baseline: calibrate again"
        ),
    }
}

fn baseline_of(case: &Case) -> usize {
    case.variant_names().position(|name| name == case.baseline).expect("every case has its baseline")
}
