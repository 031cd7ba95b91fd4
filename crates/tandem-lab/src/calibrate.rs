//! Searches the box of a calibration for the points that meet the baseline.
//!
//! **Problem.** The accepted points may be a small part of the box, and a thin one: where two constants make
//! up for each other they lie along a curve. A grid that is fine enough costs too much.
//!
//! **Approach.** The experiment's own values come first, and then waves of points. One half of each wave
//! fills the box evenly, by J. H. Halton's sequence (*Numerische Mathematik* 2, 1960), so that no part of it
//! is passed over; so does all of the first. The other half starts from accepted points, or the nearest ones
//! while these are few, and moves by the difference of two others, as differential evolution does (R. Storn
//! and K. Price, *Journal of Global Optimization* 11, 1997): such steps lead to the set, follow it, and reach
//! beyond it. What leaves the box is put on its edge, so that a set that reaches an edge has points there. A
//! wave depends on the waves before it and on nothing else: the number of jobs changes nothing, and a search
//! that was interrupted goes on where it was. A point that cannot be run or measured does not meet the
//! baseline.
//!
//! Limits: a part of the set that is small and away from the rest may be missed. Runs are those of the
//! experiment's quick form, of the baseline alone.

use crate::experiment::calibration::{CalibratedSet, SetState};
use crate::experiment::{Calibration, Case, Experiment};
use crate::runner::{ExperimentError, Progress, RunOptions, measure};
use crate::scenario::Parameters;
use rayon::iter::{IndexedParallelIterator, IntoParallelRefIterator, ParallelIterator};
use std::collections::BTreeMap;
use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use tandem_sim::metrics::RunMetrics;
use tandem_sim::scenario::Scenario;

/// Points that are tried if nothing else is said.
pub const POINTS: usize = 384;
/// Points that are tried at once.
const WAVE: usize = 32;
/// Runs of each baseline cell at a point.
const REPLICATIONS: u64 = 3;
/// Share of the difference of two points that a step has. 1 would only mirror; Storn and Price use 0.5 to 1.
const STEP: f64 = 0.8;
/// Largest width of what is added to a step, as part of the box, so that points do not stay in a plane. Most
/// of it is far smaller: a set may be thin.
const JITTER: f64 = 0.1;
/// Points that steps start from: the accepted ones, if there are so many, or else so many of the nearest.
const POPULATION: usize = 16;
/// Bases of the sequence that fills the box.
const BASES: [u64; crate::experiment::calibration::FREE_MAX] = [2, 3, 5, 7, 11, 13];

/// How far to search.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plan {
    /// Points to try; `None`: as many as an earlier search planned, or else [`POINTS`].
    pub points: Option<usize>,
    /// Whether to search anew where a set is known.
    pub again: bool,
}

impl Plan {
    /// The set to go on from; one that is complete if there is nothing to do.
    pub fn start(&self, calibration: &Calibration) -> CalibratedSet {
        match &calibration.set {
            SetState::Known(set) if !self.again => {
                let planned = self.points.filter(|points| *points > set.tried).unwrap_or(set.planned);
                CalibratedSet { planned, ..set.clone() }
            }
            _ => CalibratedSet {
                against: calibration.fingerprint.clone(),
                planned: self.points.unwrap_or(POINTS),
                tried: 0,
                running: Vec::new(),
                accepted: Vec::new(),
                nearest: Vec::new(),
            },
        }
    }
}

/// Searches the box of a calibration as planned, in the experiment's quick form, and gives the set to `save`
/// after every wave and when it is cancelled. Goes on from the set that is known.
///
/// # Errors
/// If threads cannot be started, or `save` fails.
pub fn search<S: From<ExperimentError>>(
    experiment: &Experiment,
    calibration: &Calibration,
    plan: Plan,
    options: RunOptions,
    progress: &dyn Progress,
    cancel: &AtomicBool,
    save: impl FnMut(&CalibratedSet) -> Result<(), S>,
) -> Result<CalibratedSet, S> {
    search_with(experiment, calibration, plan, options, progress, cancel, save, &tandem_sim::run)
}

/// [`search`], with the function that simulates a scenario with a seed.
#[expect(clippy::too_many_arguments, reason = "those of `search`, which has no state")]
pub(crate) fn search_with<S: From<ExperimentError>, E: Error + Send + Sync + 'static>(
    experiment: &Experiment,
    calibration: &Calibration,
    plan: Plan,
    options: RunOptions,
    progress: &dyn Progress,
    cancel: &AtomicBool,
    mut save: impl FnMut(&CalibratedSet) -> Result<(), S>,
    simulate: &(impl Fn(&Scenario, u64) -> Result<RunMetrics, E> + Sync),
) -> Result<CalibratedSet, S> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(options.jobs.get()).build();
    let pool = pool.map_err(ExperimentError::from)?;
    let own = calibration.own_points(experiment);
    let mut set = plan.start(calibration);
    progress.planned(set.planned.saturating_sub(set.tried + set.running.len()));
    while set.tried < set.planned {
        let wave = wave(calibration, &own, &set);
        let known: BTreeMap<usize, f64> = set.running.drain(..).collect();
        let judge = |(at, point): (usize, &Parameters)| {
            if let Some(misfit) = known.get(&at) {
                return Some(*misfit);
            }
            if cancel.load(Ordering::Relaxed) {
                return None;
            }
            let misfit = misfit(experiment, calibration, point, options.seed, simulate);
            progress.done();
            // JSON has no infinity.
            Some(misfit.unwrap_or(f64::INFINITY).min(f64::MAX))
        };
        let misfits: Vec<Option<f64>> = pool.install(|| wave.par_iter().enumerate().map(judge).collect());
        let Some(whole) = misfits.iter().copied().collect::<Option<Vec<f64>>>() else {
            let done = misfits.into_iter().enumerate().filter_map(|(at, misfit)| Some((at, misfit?)));
            set.running = done.collect();
            save(&set)?;
            break;
        };
        set.tried += wave.len();
        for (point, misfit) in wave.into_iter().zip(whole) {
            // Points on an edge may be tried more than once.
            if misfit <= 1.0 && !set.accepted.contains(&point) {
                set.accepted.push(point.clone());
            }
            if set.nearest.iter().all(|(other, _)| *other != point) {
                set.nearest.push((point, misfit));
            }
        }
        set.nearest.sort_by(|(_, one), (_, other)| one.total_cmp(other));
        set.nearest.truncate(POPULATION);
        save(&set)?;
    }
    Ok(set)
}

/// How far a point is from the baseline, by runs of the calibrated cells; `None` if it cannot be run, or
/// there is nothing to measure.
fn misfit<E: Error + Send + Sync + 'static>(
    experiment: &Experiment,
    calibration: &Calibration,
    point: &Parameters,
    seed: u64,
    simulate: &impl Fn(&Scenario, u64) -> Result<RunMetrics, E>,
) -> Option<f64> {
    let mut runs: Vec<(usize, Vec<Vec<f64>>)> = Vec::new();
    for (case, _) in calibration.cells(experiment) {
        if runs.iter().any(|(known, _)| *known == case) {
            continue;
        }
        let Case { baseline, .. } = &experiment.cases[case];
        let scenario = experiment.scenario_at(&experiment.cases[case], baseline, point).ok()?;
        let replications = (0..REPLICATIONS).map(|replication| {
            let seed = seed.wrapping_add(replication);
            let run = measure(experiment, &experiment.cases[case], baseline, &scenario, seed, simulate);
            run.ok().map(|run| run.values)
        });
        runs.push((case, replications.collect::<Option<_>>()?));
    }
    Some(calibration.misfit(experiment, |case, metric| {
        let of_case = runs.iter().find(|(known, _)| *known == case);
        of_case.into_iter().flat_map(|(_, runs)| runs.iter().map(|values| values[metric])).collect()
    }))
}

/// The next points to try, up to the end of the wave or of the search; `own` come first.
fn wave(calibration: &Calibration, own: &[Parameters], set: &CalibratedSet) -> Vec<Parameters> {
    let points: Vec<&Parameters> = match set.accepted.len() >= POPULATION {
        true => set.accepted.iter().collect(),
        false => set.nearest.iter().map(|(point, _)| point).collect(),
    };
    let points: Vec<Vec<f64>> = points.into_iter().filter_map(|it| calibration.parts(it)).collect();
    let dimensions = calibration.free.len();
    let parts = |index: usize| -> Vec<f64> {
        if index < WAVE || index.is_multiple_of(2) || points.is_empty() {
            // The sequence has a counter of its own: in base 2 all odd numbers are in the upper half.
            let number = if index < WAVE { index } else { (index + WAVE) / 2 } as u64 + 1;
            return (0..dimensions).map(|it| halton(number, BASES[it])).collect();
        }
        let any = |nth: u64| {
            let place = uniform(index as u64, nth) * points.len() as f64;
            &points[(place as usize).min(points.len() - 1)]
        };
        let (from, one, other) = (any(0), any(1), any(2));
        let width = JITTER * uniform(index as u64, 3).powi(4);
        (0..dimensions)
            .map(|it| {
                let jitter = width * (uniform(index as u64, 4 + it as u64) - 0.5);
                (from[it] + STEP * (one[it] - other[it]) + jitter).clamp(0.0, 1.0)
            })
            .collect()
    };
    let end = (set.tried + 1).next_multiple_of(WAVE).min(set.planned);
    let point = |at: usize| match own.get(at) {
        Some(own) => own.clone(),
        None => calibration.point(&parts(at - own.len())),
    };
    (set.tried..end).map(point).collect()
}

/// The digits of the number in that base, mirrored at the point: a place from 0 to 1.
fn halton(mut number: u64, base: u64) -> f64 {
    let (mut place, mut weight) = (0.0, 1.0);
    while number > 0 {
        weight /= base as f64;
        place += weight * (number % base) as f64;
        number /= base;
    }
    place
}

/// A number from 0 to 1, evenly distributed over all pairs: the finaliser of SplitMix64 (G. L. Steele et al.,
/// OOPSLA 2014).
fn uniform(index: u64, nth: u64) -> f64 {
    let mut z = (16 * index + nth + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests;
