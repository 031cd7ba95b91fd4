//! A study's file, as it is written.

use super::dimension::Dimension;
use crate::scenario::Parameters;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use tandem_file::file_error::FileError;
use tandem_file::located::{Located, Named, SourceFile};

/// Most points of a study.
pub const POINTS_MAX: usize = 10_000_000;
/// Most replications of a point.
pub const REPLICATIONS_MAX: usize = 10_000;
/// Least precision, percent.
const PRECISION_MIN_PCT: f64 = 0.1;

/// A study: a scenario at many points of a space of its parameters and schedulers.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Tandem study")]
pub struct StudyFile {
    /// Title, as results print it; the name of the scenario if absent.
    pub title: Option<String>,
    /// The scenario: the name of one of the library, such as "noisy-neighbour", or the path of a file, relative to this one.
    pub scenario: Located<String>,
    /// Values that are the same at all points, for parameters of the scenario.
    #[serde(default)]
    pub set: Parameters,
    /// What differs between points, by the name of a parameter of the scenario. Where it has no such parameters, `host` and
    /// `guest` are the schedulers of the host and of all guests, by names as `tandem sim --policy` has them; the path of an
    /// object begins where this file is.
    #[serde(default)]
    pub space: Named<Dimension>,
    /// Which points of the space are run.
    #[serde(default)]
    pub points: Located<PointsTable>,
    /// How often each point is run, with other random numbers.
    #[serde(default)]
    pub replications: Located<ReplicationsTable>,
    /// What is to be made small or large.
    pub objective: Option<Located<ObjectiveTable>>,
}

/// Which points of a space are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PointsTable {
    /// "grid", which it is if absent: all combinations; "random"; or "sobol": a sequence that fills the space more
    /// evenly than chance does.
    pub method: Method,
    /// How many, of "random" and "sobol"; 64 if absent.
    pub count: Option<usize>,
    /// Seed of the points, of "random" and "sobol"; 1 if absent.
    pub seed: u64,
}

/// How points are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// All combinations.
    Grid,
    /// Each by itself, at random.
    Random,
    /// A Sobol sequence, scrambled.
    Sobol,
}

impl Default for PointsTable {
    fn default() -> Self {
        Self { method: Method::Grid, count: None, seed: 1 }
    }
}

/// How often each point is run.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ReplicationsTable {
    /// The first seed; the next ones count up from it. All points have the same, so that their differences are less by
    /// chance. 1 if absent.
    pub seed: u64,
    /// At least this often; 5 if absent.
    pub min: usize,
    /// At most this often; with a precision 10 times `min` if absent, else `min`.
    pub max: Option<usize>,
    /// Half the width of the 95% confidence interval of the objective that is narrow enough, in percent of its mean. How
    /// many replications that takes follows once from the first `min`, two at least.
    pub precision_pct: Option<f64>,
}

impl Default for ReplicationsTable {
    fn default() -> Self {
        Self { seed: 1, min: 5, max: None, precision_pct: None }
    }
}

/// What is to be made small or large: a measure of a run, as the tables of `tandem sim --format parquet` name it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ObjectiveTable {
    /// The measure that is to be small, such as "response p99".
    pub minimize: Option<String>,
    /// The measure that is to be large, such as "rounds".
    pub maximize: Option<String>,
    /// The group of VMs or processes that it is of; the host if absent.
    pub group: Option<String>,
}

/// How often each point is run: checked, with its defaults.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Replications {
    /// The first seed.
    pub seed: u64,
    /// At least this often.
    pub min: usize,
    /// At most this often.
    pub max: usize,
    /// Half the width of an interval that is narrow enough, percent of the mean.
    pub precision_pct: Option<f64>,
}

impl Replications {
    /// Of a study's file.
    pub(super) fn new(
        table: &Located<ReplicationsTable>,
        has_objective: bool,
        source: &SourceFile,
    ) -> Result<Self, FileError> {
        let wrong = |message: String| Err(source.error(table.span(), message));
        let ReplicationsTable { seed, min, max, precision_pct } = **table;
        let max = max.unwrap_or(match precision_pct {
            Some(_) => min.saturating_mul(10).min(REPLICATIONS_MAX),
            None => min,
        });
        if !(1..=REPLICATIONS_MAX).contains(&min) || !(min..=REPLICATIONS_MAX).contains(&max) {
            return wrong(format!(
                "`min` is {min} and `max` {max}; allowed are 1 to {REPLICATIONS_MAX}, and `max` from `min` on"
            ));
        }
        if precision_pct.is_none() && max > min {
            return wrong("`max` has no effect without `precision_pct`; remove it".into());
        }
        if let Some(precision) = precision_pct {
            if !(PRECISION_MIN_PCT..=100.0).contains(&precision) {
                return wrong(format!(
                    "`precision_pct` is {precision}; allowed are {PRECISION_MIN_PCT} to 100"
                ));
            }
            if !has_objective {
                return wrong("`precision_pct` is one of the objective; add [objective]".into());
            }
            if min < 2 {
                return wrong("`precision_pct` needs an interval, which takes a `min` of 2 or more".into());
            }
        }
        if seed.checked_add(max as u64 - 1).is_none() {
            return wrong(format!("seeds from {seed} on go beyond the largest, {}", u64::MAX));
        }
        Ok(Self { seed, min, max, precision_pct })
    }
}

/// What is to be made small or large.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Objective {
    /// The measure.
    pub measure: String,
    /// The group; `None`: the host.
    pub group: Option<String>,
    /// Whether it is to be large.
    pub is_larger_better: bool,
}

impl Objective {
    /// Of a study's file.
    pub(super) fn new(table: &Located<ObjectiveTable>, source: &SourceFile) -> Result<Self, FileError> {
        let group = table.group.clone();
        match (&table.minimize, &table.maximize) {
            (Some(measure), None) => Ok(Self { measure: measure.clone(), group, is_larger_better: false }),
            (None, Some(measure)) => Ok(Self { measure: measure.clone(), group, is_larger_better: true }),
            _ => Err(source.error(table.span(), "an objective has either `minimize` or `maximize`")),
        }
    }
}

/// As results print it: "response p99 of web".
impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.measure)?;
        self.group.as_ref().map_or(Ok(()), |group| write!(f, " of {group}"))
    }
}
