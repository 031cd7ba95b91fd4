//! A point of a study, computed: all its replications, on one thread.
//!
//! How many there are follows in two stages, as [`statistics`](crate::statistics) has them, from this point's own runs alone. So it does not
//! matter where and when others are computed.

use super::plan::{Job, key};
use super::{Objective, Replications, Study};
use crate::simulate::{Simulation, Watched};
use crate::statistics::{mean_interval, pairs_for};
use crate::tables::RunTable;
use std::sync::atomic::{AtomicBool, Ordering};

/// A point that was computed.
#[derive(Clone, Debug, PartialEq)]
pub struct Done {
    /// Its key.
    pub key: String,
    /// Its runs, by seed.
    pub runs: Vec<RunTable>,
    /// Why there are no more.
    pub failure: Option<String>,
    /// What is wrong with a run although it came to its end, the first such thing.
    pub warning: Option<String>,
}

impl Objective {
    /// The value of a run; `None` if it has none.
    pub fn of(&self, run: &RunTable) -> Option<f64> {
        let is_it =
            |(group, measure): (&Option<String>, &str)| *group == self.group && measure == self.measure;
        let found = run.measurements.iter().find(|it| is_it((&it.group, &it.measure)));
        found.map(|measurement| measurement.value)
    }
}

/// Computes the points of a job, until `cancel` becomes true: those that are done by then count. `done` is called at the end of each.
///
/// # Errors
/// A sentence, if a point is not the one that the job means: this is another program, or its files differ.
pub fn compute(
    study: &Study,
    job: &Job,
    cancel: &AtomicBool,
    done: &(dyn Fn() + Sync),
) -> Result<Vec<Done>, String> {
    let mut all = Vec::new();
    for (point, expected) in job.points.iter().zip(&job.keys) {
        let scenario = study.scenario_at(point).map_err(|error| error.to_string())?;
        let key = key(study, &scenario);
        if key != *expected {
            return Err(format!(
                "{}: the point {} is another one here: use the same tandem and the same files everywhere",
                study.title,
                study.shown(point)
            ));
        }
        let mut of_point = Done { key, runs: Vec::new(), failure: None, warning: None };
        let Replications { seed: first_seed, min, .. } = study.replications;
        let mut planned = min;
        while of_point.runs.len() < planned {
            let seed = first_seed + of_point.runs.len() as u64;
            let name = &study.scenario_name;
            let simulation = Simulation { name, scenario: &scenario, seed, with_stat: false };
            let simulated = simulation.run(Watched::new((), &scenario, &|_| (), cancel));
            if cancel.load(Ordering::Relaxed) {
                return Ok(all);
            }
            match simulated {
                Ok((simulated, ())) => {
                    if of_point.warning.is_none() {
                        of_point.warning = simulated.summary().warnings().into_iter().next();
                    }
                    of_point.runs.push(simulated.table());
                }
                Err(error) => {
                    of_point.failure = Some(error.to_string());
                    break;
                }
            }
            if of_point.runs.len() == min {
                planned = study.wanted(&of_point.runs);
            }
        }
        all.push(of_point);
        done();
    }
    Ok(all)
}

impl Study {
    /// How many replications a point has, by its first ones.
    fn wanted(&self, first: &[RunTable]) -> usize {
        let Replications { min, max, precision_pct, .. } = self.replications;
        let (Some(precision_pct), Some(objective)) = (precision_pct, &self.objective) else { return min };
        let values: Option<Vec<f64>> = first.iter().map(|run| objective.of(run)).collect();
        // Without all values there is nothing to be precise about.
        let Some(values) = values else { return min };
        let Some((mean, half_width)) = mean_interval(&values, min) else { return min };
        let half_pct = 100.0 * half_width / mean.abs();
        match half_pct.is_finite() {
            true => pairs_for(min, (-half_pct, half_pct), precision_pct).clamp(min, max),
            false => max,
        }
    }
}
