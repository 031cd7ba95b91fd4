//! Ranges of effects over the points that meet the baseline.
//!
//! Each effect is measured again at some accepted points of its calibration, against the baseline at the same
//! point and with the seeds of the first replications. The range is that of these effects and of the effect
//! at the experiment's own values. The runs of the baseline judge each point once more, with the noise that
//! they have ([`Calibration::is_missed`]): a point that misses it is left out of the range, and reported.
//!
//! What is not known makes no verdict more certain. The effects at points that were left out stay
//! [in doubt](crate::results::RangeBasis::doubt_pct). Every effect does where the set is not complete, where
//! no point is left, or where one cannot be measured.
//!
//! Limits: the ends of a range are effects at points that were tried, each of them with its own chance; what
//! lies between and beyond them is not known. Composites have no range.

use super::{Progress, RunOptions, measure};
use crate::experiment::calibration::SetState;
use crate::experiment::{Calibration, Case, Experiment};
use crate::results::{Cell, RangeBasis, SetWord};
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
const QUICK_POINTS: usize = 8;
const QUICK_REPLICATIONS: usize = 1;

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
) -> Vec<String> {
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
        let case = &experiment.cases[case];
        let (variant, _) = &case.variants[variant];
        let seed = options.seed.wrapping_add(replication as u64);
        let scenario = experiment.scenario_at(case, variant, &points[number][point]).ok();
        let run = scenario.and_then(|it| measure(experiment, case, variant, &it, seed, simulate).ok());
        progress.done();
        Some((key, run.map(|run| run.values)))
    };
    let count = runs.len();
    // A run without values could not be measured.
    let values: BTreeMap<RunKey, Option<Vec<f64>>> =
        pool.install(|| runs.into_iter().par_bridge().filter_map(run).collect());
    let is_interrupted = values.len() < count;
    let mut sentences = Vec::new();
    for (number, calibration) in experiment.calibrations.iter().enumerate() {
        let of_runs = |point: usize, case: usize, variant: usize, metric: usize| -> Option<Vec<f64>> {
            let keys = (0..replications).map(|it| (number, point, case, variant, it));
            keys.map(|key| Some(values.get(&key)?.as_ref()?[metric])).collect()
        };
        let standing = |point: usize| {
            let of_baseline =
                |case: usize, metric| of_runs(point, case, baseline_of(&experiment.cases[case]), metric);
            if calibration.cells(experiment).any(|(case, metric)| of_baseline(case, metric).is_none()) {
                return Standing::Unmeasured;
            }
            let values = |case, metric| of_baseline(case, metric).unwrap_or_default();
            match calibration.is_missed(experiment, values) {
                true => Standing::Misses,
                false => Standing::Meets,
            }
        };
        let standings: Vec<Standing> = match is_interrupted {
            true => Vec::new(),
            false => (0..points[number].len()).map(standing).collect(),
        };
        for &case in &calibration.cases {
            let Case { keys, metrics, baseline, variants, .. } = &experiment.cases[case];
            let base = baseline_of(&experiment.cases[case]);
            for cell in cells.iter_mut().filter(|it| it.cell == *keys && it.variant != *baseline) {
                let metric = metrics.iter().position(|metric| metric.name == cell.metric);
                let variant = variants.iter().position(|(name, _)| *name == cell.variant);
                let (Some(metric), Some(variant)) = (metric, variant) else { continue };
                let effect = |point: usize| {
                    let one = of_runs(point, case, base, metric)?;
                    let pairs: Vec<_> = one.into_iter().zip(of_runs(point, case, variant, metric)?).collect();
                    let effect = paired_effect(&pairs, replications)?;
                    Some(effect.percent).filter(|effect| effect.is_finite())
                };
                let effects: Vec<_> =
                    standings.iter().enumerate().map(|(at, standing)| (*standing, effect(at))).collect();
                set_range(cell, calibration, &effects);
            }
        }
        sentences.push(match is_interrupted {
            true => calibration.sentence(experiment) + "; interrupted, so that effects have no range" + OPEN,
            false => calibration.sentence(experiment) + &used(calibration, &standings, experiment.is_quick),
        });
    }
    sentences
}

/// How a point stands by the runs of the baseline there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// Nothing shows that it does not meet the baseline.
    Meets,
    /// It misses the baseline.
    Misses,
    /// It cannot be run, or there is nothing to measure.
    Unmeasured,
}

/// Gives a cell its range, by the effects at the measured points.
fn set_range(cell: &mut Cell, calibration: &Calibration, effects: &[(Standing, Option<f64>)]) {
    let of = |standing| {
        let with = effects.iter().filter(move |(of_point, _)| *of_point == standing);
        with.filter_map(|(_, effect)| *effect)
    };
    let kept = of(Standing::Meets).count();
    let is_known = calibration.set_word() == SetWord::Complete
        && kept > 0
        && effects.iter().all(|(standing, effect)| *standing != Standing::Unmeasured && effect.is_some());
    let hull = |effects: &mut dyn Iterator<Item = f64>| {
        effects.fold(None, |hull: Option<(f64, f64)>, effect| {
            let (low, high) = hull.unwrap_or((effect, effect));
            Some((low.min(effect), high.max(effect)))
        })
    };
    cell.basis = RangeBasis {
        calibrated_set: Some(calibration.set_word()),
        points_accepted: calibration.accepted(),
        points_measured: Some(kept),
        doubt_pct: match is_known {
            true => hull(&mut of(Standing::Misses)),
            false => Some(RangeBasis::ANY),
        },
    };
    if let (true, Some(own)) = (kept > 0, cell.simulated_effect_pct) {
        let range = hull(&mut of(Standing::Meets).chain([own]));
        (cell.range_low_pct, cell.range_high_pct) = range.unzip();
    }
}

/// What an incomplete set means, in words that go on.
const OPEN: &str = "; signs and targets of these effects are open";

/// How many points the ranges are over, in words that go on.
fn used(calibration: &Calibration, standings: &[Standing], is_quick: bool) -> String {
    let count = |of| standings.iter().filter(|&&standing| standing == of).count();
    let (kept, missed, unmeasured) =
        (count(Standing::Meets), count(Standing::Misses), count(Standing::Unmeasured));
    let mut text = match (kept, calibration.accepted()) {
        (1.., Some(1)) => "; ranges are over that point".to_owned(),
        (1.., Some(accepted)) => {
            format!("; ranges are over {kept} of the {accepted} points that meet the baseline")
        }
        _ => "; effects have no range".to_owned(),
    };
    if missed > 0 {
        let why = match is_quick {
            true => "the simulator has changed since: calibrate again",
            false => "the search has judged them by shorter runs, or the simulator has changed since",
        };
        text += &format!(
            "; {missed} of {} measured points are left out, as they miss it by more than that and the noise of \
             their runs ({why}), but signs and targets that depend on them are open",
            standings.len()
        );
    }
    if unmeasured > 0 {
        text += &format!("; {unmeasured} of {} points could not be measured", standings.len());
    }
    if calibration.set_word() != SetWord::Complete || kept == 0 || unmeasured > 0 {
        text += OPEN;
    }
    text
}

fn baseline_of(case: &Case) -> usize {
    case.variant_names().position(|name| name == case.baseline).expect("every case has its baseline")
}
