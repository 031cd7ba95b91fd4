//! What came out of a study, by its shards.

use super::shards::{Shards, ShardsError};
use super::{Done, Objective, PROGRAM, Plan, Point, Replications, Study};
use crate::results::{Decimal, Key};
use crate::statistics::{Effect, mean_interval, paired_effect};
use crate::tables::{self, RunTable};
use serde::Serialize;
use serde::ser::Serializer;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};
use tandem_recording::parquet::{Column, Table, TableFile, Values, Words};

/// Points that are printed.
const SHOWN: usize = 10;
/// Widest line.
const COLUMNS: usize = 100;

/// What became of a study.
#[derive(Debug)]
pub struct Results<'a> {
    study: &'a Study,
    plan: &'a Plan,
    /// By the position of the point.
    pub points: Vec<PointResult>,
}

/// What became of a point.
#[derive(Clone, Debug, PartialEq)]
pub struct PointResult {
    /// Whether it has results.
    pub standing: Standing,
    /// Runs that were made.
    pub runs: usize,
    /// The objective, by run; empty if there is none, or a run has no value.
    pub values: Vec<f64>,
    /// Their mean.
    pub mean: Option<f64>,
    /// Half the width of its 95% confidence interval; `None` from one run, or where the seed changes nothing.
    pub half_width: Option<f64>,
    /// What is wrong with a run although it came to its end.
    pub warning: Option<String>,
}

/// Whether a point has results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It has all.
    Done,
    /// Nobody has computed it yet.
    Missing,
    /// The scenario does not allow it, and why.
    Refused(String),
    /// A run failed, and why.
    Failed(String),
    /// All runs ended, but some without a value of the objective.
    Without,
}

impl Standing {
    /// In a word.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Missing => "missing",
            Self::Refused(_) => "refused",
            Self::Failed(_) => "failed",
            Self::Without => "no value",
        }
    }

    /// Why.
    fn reason(&self) -> Option<&str> {
        match self {
            Self::Refused(reason) | Self::Failed(reason) => Some(reason),
            Self::Done | Self::Missing | Self::Without => None,
        }
    }
}

impl PointResult {
    fn without(standing: Standing) -> Self {
        Self { standing, runs: 0, values: Vec::new(), mean: None, half_width: None, warning: None }
    }

    fn new(done: &Done, objective: Option<&Objective>, first_stage: usize) -> Self {
        let values =
            objective.map(|objective| done.runs.iter().map(|run| objective.of(run)).collect::<Option<_>>());
        let standing = match (&done.failure, &values) {
            (Some(failure), _) => Standing::Failed(failure.clone()),
            (None, Some(None)) => Standing::Without,
            (None, _) => Standing::Done,
        };
        let values: Vec<f64> = values.flatten().filter(|_| standing == Standing::Done).unwrap_or_default();
        let interval = mean_interval(&values, first_stage);
        Self {
            standing,
            runs: done.runs.len(),
            mean: crate::statistics::mean(values.iter().copied()),
            half_width: interval.map(|(_, half_width)| half_width),
            values,
            warning: done.warning.clone(),
        }
    }

    /// Ends of the interval. No mean of what is never negative is.
    fn interval(&self) -> Option<(f64, f64)> {
        let least = if self.values.iter().all(|value| *value >= 0.0) { 0.0 } else { f64::NEG_INFINITY };
        self.mean.zip(self.half_width).map(|(mean, half)| ((mean - half).max(least), mean + half))
    }
}

impl<'a> Results<'a> {
    /// Those of the plan's points, as far as the folder has them.
    ///
    /// # Errors
    /// If a file cannot be read any more.
    pub fn collect(study: &'a Study, plan: &'a Plan, shards: &Shards) -> Result<Self, ShardsError> {
        let mut reader = shards.reader(&study.scenario_name);
        let (objective, first_stage) = (study.objective.as_ref(), study.replications.min);
        let mut point = |key: &Result<String, String>| match key {
            Err(reason) => Ok(PointResult::without(Standing::Refused(reason.clone()))),
            Ok(key) => Ok(match reader.read(key)? {
                Some(done) => PointResult::new(done, objective, first_stage),
                None => PointResult::without(Standing::Missing),
            }),
        };
        Ok(Self { study, plan, points: plan.points.iter().map(&mut point).collect::<Result<_, _>>()? })
    }

    /// How many points stand so.
    fn count(&self, word: &str) -> usize {
        self.points.iter().filter(|point| point.standing.word() == word).count()
    }

    /// All runs.
    pub fn runs(&self) -> usize {
        self.points.iter().map(|point| point.runs).sum()
    }

    /// The positions of the points with a mean, the best first; of equal ones, the first in the study.
    pub fn ranking(&self) -> Vec<usize> {
        let is_larger_better =
            self.study.objective.as_ref().is_some_and(|objective| objective.is_larger_better);
        let cost = |(at, point): (usize, &PointResult)| {
            let mean = point.mean?;
            Some((if is_larger_better { -mean } else { mean }, at))
        };
        let mut ranking: Vec<(f64, usize)> = self.points.iter().enumerate().filter_map(cost).collect();
        ranking.sort_by(|one, other| one.0.total_cmp(&other.0));
        ranking.into_iter().map(|(_, at)| at).collect()
    }

    /// A point against another one, by the seeds that both have.
    fn against(&self, at: usize, best: usize) -> Option<Effect> {
        let [one, best] = [at, best].map(|at| &self.points[at].values);
        let pairs: Vec<(f64, f64)> = best.iter().copied().zip(one.iter().copied()).collect();
        paired_effect(&pairs, pairs.len()).map(Effect::of_amounts)
    }

    fn summary(&self, at: usize) -> PointSummary<'_> {
        let it = &self.points[at];
        PointSummary {
            point: self.plan.points[at].as_deref().ok(),
            values: self.study.values(&self.study.points()[at]),
            stands: it.standing.word(),
            runs: it.runs,
            mean: it.mean,
            low: it.interval().map(|(low, _)| low),
            high: it.interval().map(|(_, high)| high),
            reason: it.standing.reason(),
            warning: it.warning.as_deref(),
        }
    }

    /// How many points are as precise as was asked; `None` if nothing was.
    fn precise(&self) -> Option<usize> {
        let asked_pct = self.study.replications.precision_pct?;
        let is_precise = |point: &&PointResult| {
            let half = point.half_width.unwrap_or(0.0);
            point.mean.is_some_and(|mean| 100.0 * half <= asked_pct * mean.abs())
        };
        Some(self.points.iter().filter(is_precise).count())
    }

    /// A row for each point: its `point`, the key that rows of runs have; the dimensions; how it `stands`, `runs`, the objective's
    /// `mean` with the ends of its 95% confidence interval, and what is wrong.
    pub fn table(&self) -> Table {
        let texts = |of: &dyn Fn(usize) -> Option<String>| {
            let texts: Vec<Option<String>> = (0..self.points.len()).map(of).collect();
            Values::Texts(texts.iter().map(Option::as_deref).collect::<Words>())
        };
        let numbers =
            |of: fn(&PointResult) -> Option<f64>| Values::Numbers(self.points.iter().map(of).collect());
        let mut columns = vec![("point".into(), texts(&|at| self.plan.points[at].clone().ok()))];
        let points: Vec<&Point> = self.study.points().iter().collect();
        columns.extend(dimension_columns(self.study, &points));
        let word = |at: usize| Some(self.points[at].standing.word().to_owned());
        let problem = |at: usize| {
            let point: &PointResult = &self.points[at];
            point.standing.reason().map(str::to_owned).or_else(|| point.warning.clone())
        };
        columns.extend([
            ("stands".into(), texts(&word)),
            ("runs".into(), Values::Counts(self.points.iter().map(|point| point.runs as u64).collect())),
            ("mean".into(), numbers(|point| point.mean)),
            ("low".into(), numbers(|point| Some(point.interval()?.0))),
            ("high".into(), numbers(|point| Some(point.interval()?.1))),
            ("problem".into(), texts(&problem)),
        ]);
        Table::new(columns.into_iter().map(|(name, values)| Column { name, values }).collect())
    }

    /// Writes all measures of all runs as one Parquet file: the columns of `tandem sim --format parquet`, and before them the
    /// dimensions.
    ///
    /// # Errors
    /// If a shard cannot be read any more, or the writer fails.
    pub fn write_parquet(&self, shards: &Shards, out: impl Write) -> io::Result<()> {
        let mut file = TableFile::new(out)?;
        self.each_table(shards, |table| file.push(table))?;
        file.finish(&[]).map(drop)
    }

    /// All rows in memory, as [`Results::write_parquet`] writes them.
    ///
    /// # Errors
    /// If a shard cannot be read any more.
    pub fn rows(&self, shards: &Shards) -> io::Result<Table> {
        let mut rows: Option<Table> = None;
        self.each_table(shards, |table| {
            match &mut rows {
                Some(rows) => rows.append(table),
                None => rows = Some(table.clone()),
            }
            Ok(())
        })?;
        Ok(rows.unwrap_or_default())
    }

    /// Shows the rows of each point, in order; first a table without rows, which has the columns.
    fn each_table(&self, shards: &Shards, mut show: impl FnMut(&Table) -> io::Result<()>) -> io::Result<()> {
        let mut reader = shards.reader(&self.study.scenario_name);
        show(&rows_of(self.study, &Point::new(), &[]))?;
        for (point, key) in self.study.points().iter().zip(&self.plan.points) {
            let Ok(key) = key else { continue };
            if let Some(done) = reader.read(key).map_err(io::Error::other)? {
                show(&rows_of(self.study, point, &done.runs))?;
            }
        }
        Ok(())
    }
}

/// The rows of a point's runs.
fn rows_of(study: &Study, point: &Point, runs: &[RunTable]) -> Table {
    let runs = tables::of_runs(runs);
    let same: Vec<&Point> = vec![point; runs.rows()];
    let columns = dimension_columns(study, &same).map(|(name, values)| Column { name, values });
    Table::new(columns.chain(runs.columns().iter().cloned()).collect())
}

/// The dimensions of points: numbers where all values are, else texts.
fn dimension_columns<'a>(
    study: &'a Study,
    points: &'a [&'a Point],
) -> impl Iterator<Item = (String, Values)> + 'a {
    study.dimensions().iter().enumerate().map(move |(at, (name, dimension))| {
        let values = points.iter().map(|point| &point[at]);
        let values = match dimension.is_numeric() {
            true => Values::Numbers(values.map(number).collect()),
            false => {
                let texts: Vec<String> = values.map(Key::to_string).collect();
                Values::Texts(texts.iter().map(|text| Some(text.as_str())).collect())
            }
        };
        (column_name(study, name), values)
    })
}

/// What the column of a dimension is called, which may have the name of another column.
fn column_name(study: &Study, dimension: &str) -> String {
    let is_other = |name: &str| study.dimensions().iter().any(|(other, _)| other == name);
    let mut name = dimension.to_owned();
    while TAKEN.contains(&name.as_str()) || (name != dimension && is_other(&name)) {
        name += "_set";
    }
    name
}

/// Columns that tables have beside the dimensions.
const TAKEN: [&str; 15] = [
    "scenario", "machine", "policy", "seed", "group", "measure", "unit", "value", "point", "stands", "runs",
    "mean", "low", "high", "problem",
];

fn number(key: &Key) -> Option<f64> {
    match key {
        Key::Number(number) => Some(*number as f64),
        Key::Decimal(Decimal(number)) => Some(*number),
        Key::Text(_) => None,
    }
}

/// A study's results as JSON.
#[derive(Serialize)]
struct Summary<'a> {
    program: &'static str,
    title: &'a str,
    scenario: &'a str,
    dimensions: Vec<&'a str>,
    replications: Replications,
    objective: Option<&'a Objective>,
    runs: usize,
    /// Points that are as precise as was asked.
    precise: Option<usize>,
    /// The position of the best point.
    best: Option<usize>,
    points: Vec<PointSummary<'a>>,
}

#[derive(Serialize)]
struct PointSummary<'a> {
    point: Option<&'a str>,
    values: BTreeMap<String, Key>,
    stands: &'static str,
    runs: usize,
    mean: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    warning: Option<&'a str>,
}

/// All but the runs' measures, for programs.
impl Serialize for Results<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let study = self.study;
        let summary = Summary {
            program: PROGRAM,
            title: &study.title,
            scenario: &study.scenario_name,
            dimensions: study.dimensions().iter().map(|(name, _)| name.as_str()).collect(),
            replications: study.replications,
            objective: study.objective.as_ref(),
            runs: self.runs(),
            precise: self.precise(),
            best: self.ranking().first().copied(),
            points: (0..self.points.len()).map(|at| self.summary(at)).collect(),
        };
        summary.serialize(serializer)
    }
}

/// The best points, and what else became of the others.
impl fmt::Display for Results<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let study = self.study;
        let line = |f: &mut fmt::Formatter<'_>, text: String| writeln!(f, "{}", cut(&text, COLUMNS));
        line(f, format!("{}: {} points, {} runs", study.title, self.points.len(), self.runs()))?;
        for (word, what) in [
            ("missing", "are not computed yet"),
            ("refused", "do not fit the scenario"),
            ("failed", "failed"),
            ("no value", "have no value of the objective"),
        ] {
            let count = self.count(word);
            if count > 0 {
                line(f, format!("{count} {what}"))?;
                if let Some(reason) = self
                    .points
                    .iter()
                    .find_map(|it| it.standing.reason().filter(|_| it.standing.word() == word))
                {
                    line(f, format!("  the first one: {reason}"))?;
                }
            }
        }
        let warned = self.points.iter().filter(|point| point.warning.is_some()).count();
        if let Some(warning) = self.points.iter().find_map(|point| point.warning.as_ref()) {
            line(f, format!("{warned} with a warning, the first one: {warning}"))?;
        }
        let Some(objective) = &study.objective else { return Ok(()) };
        if let (Some(precise), Some(asked_pct)) = (self.precise(), study.replications.precision_pct) {
            let all = self.points.iter().filter(|point| point.mean.is_some()).count();
            line(f, format!("{precise} of {all} means are known to within {asked_pct}%"))?;
        }
        let ranking = self.ranking();
        let Some(&best) = ranking.first() else { return Ok(()) };
        let way = if objective.is_larger_better { "the largest" } else { "the smallest" };
        writeln!(f)?;
        line(f, format!("{way} {objective} first; to the first one with the same seeds, 95% intervals"))?;
        writeln!(f, "{:>12} {:>10} {:>5}  {:<26} point", "mean", "+-", "runs", "against the first, %")?;
        for &at in ranking.iter().take(SHOWN) {
            let it = &self.points[at];
            let against = self.against(at, best).filter(|_| at != best).map_or(String::new(), |effect| {
                match effect.interval_pct {
                    Some((low, high)) => format!("{:+.1} [{low:+.1}, {high:+.1}]", effect.percent),
                    None => format!("{:+.1}", effect.percent),
                }
            });
            let half = it.half_width.map_or(String::new(), shown);
            let mean = it.mean.map_or(String::new(), shown);
            let point = study.shown(&study.points()[at]);
            line(f, format!("{mean:>12} {half:>10} {:>5}  {against:<26} {point}", it.runs))?;
        }
        if ranking.len() > SHOWN {
            line(f, format!("and {} more; --format json and parquet have all", ranking.len() - SHOWN))?;
        }
        Ok(())
    }
}

/// A number with about four digits.
fn shown(number: f64) -> String {
    let digits = match number.abs() {
        small if small < 10.0 => 3,
        small if small < 100.0 => 2,
        small if small < 1000.0 => 1,
        _ => 0,
    };
    format!("{number:.digits$}")
}

/// No more than so many columns.
fn cut(text: &str, columns: usize) -> String {
    let text = tandem_file::shown::one_line(text);
    match text.chars().count() > columns {
        true => text.chars().take(columns - 3).chain("...".chars()).collect(),
        false => text,
    }
}
