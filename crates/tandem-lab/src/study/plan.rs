//! What of a study is to be computed: the key of each point, and points in batches.

use super::{PROGRAM, Point, Study};
use rayon::iter::{IntoParallelRefIterator, ParallelIterator};
use std::fmt::{self, Write};
use std::num::NonZeroUsize;
use tandem_sim::scenario::Scenario;
use twox_hash::XxHash3_128;

/// Batches that a study has at most if nothing is said: as many files as any file system has in a folder.
const BATCHES: usize = 4096;

/// The key of each point, or why it cannot run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// By the position of the point.
    pub points: Vec<Result<String, String>>,
}

/// Some points to be computed together, with the keys that their results have to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The points.
    pub points: Vec<Point>,
    /// Their keys.
    pub keys: Vec<String>,
}

impl Plan {
    /// That of all points, found by the threads of rayon's current pool.
    pub fn new(study: &Study) -> Self {
        let key = |point: &Point| match study.scenario_at(point) {
            Ok(scenario) => Ok(key(study, &scenario)),
            Err(error) => Err(error.to_string()),
        };
        Self { points: study.points().par_iter().map(key).collect() }
    }

    /// How many points can run.
    pub fn runnable(&self) -> usize {
        self.points.iter().flatten().count()
    }

    /// Why the first point that cannot run cannot, if none can.
    pub fn refusal(&self) -> Option<&str> {
        match self.runnable() {
            0 => self.points.iter().find_map(|point| point.as_ref().err()).map(String::as_str),
            _ => None,
        }
    }
}

/// A part of the points in batches of so many, by default as many as make at most some thousands of batches. What `is_there` already is left
/// out, and so are points that cannot run.
pub fn batches(
    study: &Study,
    plan: &Plan,
    batch: Option<NonZeroUsize>,
    part: Part,
    is_there: impl Fn(&str) -> bool,
) -> Vec<Job> {
    let batch = batch.map_or(plan.points.len().div_ceil(BATCHES).max(1), NonZeroUsize::get);
    let number_of = |start: usize| start / batch;
    let mine =
        (0..plan.points.len()).step_by(batch).filter(|&start| number_of(start) % part.of == part.number);
    let job = |start: usize| {
        let positions = start..plan.points.len().min(start + batch);
        let runnable = positions.filter_map(|at| Some((&study.points()[at], plan.points[at].as_ref().ok()?)));
        let missing = runnable.filter(|(_, key)| !is_there(key));
        let (points, keys) = missing.map(|(point, key)| (point.clone(), key.clone())).unzip();
        Job { points, keys }
    };
    mine.map(job).filter(|job| !job.points.is_empty()).collect()
}

/// A part of a study's batches: every `of`th one from `number` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its number, from 0.
    pub number: usize,
    /// How many parts there are.
    pub of: usize,
}

impl Part {
    /// All of it.
    pub const WHOLE: Self = Self { number: 0, of: 1 };
}

/// What the results of a point are known by: a hash over all that they depend on, in hexadecimal. 128 bits, so that no two points
/// of all that a folder may hold are likely to share one.
pub(super) fn key(study: &Study, scenario: &Scenario) -> String {
    let mut hash = Hash(XxHash3_128::with_seed(0));
    let (replications, objective) = (&study.replications, &study.objective);
    // Without a precision the objective decides nothing.
    let objective = objective.as_ref().filter(|_| replications.precision_pct.is_some());
    write!(hash, "{PROGRAM}\n{replications:?}\n{objective:?}\n{scenario:?}").expect("hashing cannot fail");
    format!("{:032x}", hash.0.finish_128())
}

struct Hash(XxHash3_128);

impl fmt::Write for Hash {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}
