//! Searches the box of a calibration for the points that meet the baseline.
//!
//! **Problem.** The accepted points may be a small part of the box, and a thin one: where two constants make
//! up for each other they lie along a curve. A grid that is fine enough costs too much.
//!
//! **Approach.** Waves of points. One half of each wave fills the box evenly, by J. H. Halton's sequence
//! (*Numerische Mathematik* 2, 1960), so that no part of it is passed over. The other half starts from
//! accepted points, or the nearest ones while these are few, and moves by the difference of two others, as
//! differential evolution does (R. Storn and K. Price, *Journal of Global Optimization* 11, 1997): such steps
//! lead to the set, follow it, and reach beyond it. What leaves the box is put on its edge, so that a set
//! that reaches an edge has points there. A wave depends on
//! the waves before it and on nothing else: the number of jobs changes nothing, and a search that was
//! interrupted goes on from its last complete wave.
//!
//! Limits: a part of the set that is small and away from the rest may be missed. Runs are those of the
//! experiment's quick form, of the baseline alone.

use crate::experiment::calibration::{CalibratedSet, SetState};
use crate::experiment::{Calibration, Case, Experiment};
use crate::runner::{ExperimentError, Progress, RunOptions, measure};
use crate::scenario::Parameters;
use rayon::iter::{IntoParallelRefIterator, ParallelIterator};
use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use tandem_sim::metrics::RunMetrics;
use tandem_sim::scenario::Scenario;

/// Points that are tried at once.
pub const WAVE: usize = 32;
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

/// Searches the box of a calibration with so many points at least, whole waves, in the experiment's quick
/// form, and gives the set to `save` after every wave. Goes on where an earlier search was interrupted; a set
/// that is complete is searched anew.
///
/// # Errors
/// If a scenario is refused, a metric cannot be measured, threads cannot be started, or `save` fails.
pub fn search<S: From<ExperimentError>>(
    experiment: &Experiment,
    calibration: &Calibration,
    points: usize,
    options: RunOptions,
    progress: &dyn Progress,
    cancel: &AtomicBool,
    save: impl FnMut(&CalibratedSet) -> Result<(), S>,
) -> Result<CalibratedSet, S> {
    search_with(experiment, calibration, points, options, progress, cancel, save, &tandem_sim::run)
}

/// [`search`], with the function that simulates a scenario with a seed.
#[expect(clippy::too_many_arguments, reason = "those of `search`, which has no state")]
pub(crate) fn search_with<S: From<ExperimentError>, E: Error + Send + Sync + 'static>(
    experiment: &Experiment,
    calibration: &Calibration,
    points: usize,
    options: RunOptions,
    progress: &dyn Progress,
    cancel: &AtomicBool,
    mut save: impl FnMut(&CalibratedSet) -> Result<(), S>,
    simulate: &(impl Fn(&Scenario, u64) -> Result<RunMetrics, E> + Sync),
) -> Result<CalibratedSet, S> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(options.jobs.get()).build();
    let pool = pool.map_err(ExperimentError::from)?;
    let planned = points.next_multiple_of(WAVE);
    let mut set = match &calibration.set {
        SetState::Known(set) if set.tried < set.planned => CalibratedSet { planned, ..set.clone() },
        _ => CalibratedSet {
            against: calibration.fingerprint.clone(),
            planned,
            tried: 0,
            accepted: Vec::new(),
            nearest: Vec::new(),
        },
    };
    progress.planned(planned.saturating_sub(set.tried));
    while set.tried < planned {
        let wave = wave(calibration, &set);
        let judge = |point: &Parameters| {
            if cancel.load(Ordering::Relaxed) {
                return None;
            }
            let misfit = misfit(experiment, calibration, point, options.seed, simulate);
            progress.done();
            Some(misfit)
        };
        let misfits: Option<Vec<_>> = pool.install(|| wave.par_iter().map(judge).collect());
        let Some(misfits) = misfits else { break };
        for (point, misfit) in wave.into_iter().zip(misfits) {
            let misfit = misfit?;
            // JSON has no infinity.
            set.nearest.push((point.clone(), misfit.min(f64::MAX)));
            if misfit <= 1.0 {
                set.accepted.push(point);
            }
        }
        set.nearest.sort_by(|(_, one), (_, other)| one.total_cmp(other));
        set.nearest.truncate(POPULATION);
        set.tried += WAVE;
        save(&set)?;
    }
    Ok(set)
}

/// How far a point is from the baseline, by runs of the calibrated cells.
fn misfit<E: Error + Send + Sync + 'static>(
    experiment: &Experiment,
    calibration: &Calibration,
    point: &Parameters,
    seed: u64,
    simulate: &impl Fn(&Scenario, u64) -> Result<RunMetrics, E>,
) -> Result<f64, ExperimentError> {
    let mut runs: Vec<(usize, Vec<Vec<f64>>)> = Vec::new();
    for (case, _) in calibration.cells(experiment) {
        if runs.iter().any(|(known, _)| *known == case) {
            continue;
        }
        let Case { baseline, .. } = &experiment.cases[case];
        let scenario = experiment.scenario_at(&experiment.cases[case], baseline, point);
        let scenario = scenario.map_err(|error| ExperimentError::point(experiment, calibration, error))?;
        let replications = (0..REPLICATIONS).map(|replication| {
            let seed = seed.wrapping_add(replication);
            measure(experiment, &experiment.cases[case], baseline, &scenario, seed, simulate)
        });
        runs.push((case, replications.collect::<Result<_, _>>()?));
    }
    Ok(calibration.misfit(experiment, |case, metric| {
        let of_case = runs.iter().find(|(known, _)| *known == case);
        of_case.into_iter().flat_map(|(_, runs)| runs.iter().map(|values| values[metric])).collect()
    }))
}

/// The next points to try.
fn wave(calibration: &Calibration, set: &CalibratedSet) -> Vec<Parameters> {
    let points: Vec<&Parameters> = match set.accepted.len() >= POPULATION {
        true => set.accepted.iter().collect(),
        false => set.nearest.iter().map(|(point, _)| point).collect(),
    };
    let points: Vec<Vec<f64>> = points.into_iter().filter_map(|it| calibration.parts(it)).collect();
    let dimensions = calibration.free.len();
    let parts = |index: usize| -> Vec<f64> {
        let even = || (0..dimensions).map(|it| halton(index as u64 + 1, BASES[it])).collect();
        if index.is_multiple_of(2) || points.is_empty() {
            return even();
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
    (set.tried..set.tried + WAVE).map(|index| calibration.point(&parts(index))).collect()
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
