//! An experiment file, as it is written.

use crate::measure::Measure;
use crate::published::{CellKeys, has_all};
use crate::results::{Better, HeatMap, Key};
use crate::scenario::Parameters;
use crate::scenario::policy::PolicyTable;
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;
use tandem_file::located::{Located, Named};
use tandem_file::units::Duration;
use tandem_sim::metrics::RunMetrics;

/// Least magnitude of a published effect whose sign means something, in points; the default of an experiment.
pub const NOISE_PCT: f64 = 1.0;

/// An experiment: scenarios, at several loads, with several settings of the policy, beside a published table.
/// Its folder has its name, and holds the published table in `published.csv`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Tandem experiment")]
pub struct ExperimentFile {
    /// Title, as reports print it.
    pub title: String,
    /// The story: what was done, what came out, why it matters; a sentence each.
    pub story: Vec<String>,
    /// Source of the published numbers.
    pub source: String,
    /// What the simulation models, a point each.
    pub modelled: Vec<String>,
    /// What it leaves out, a point each.
    pub not_modelled: Vec<String>,
    /// How often each run is repeated, with other random numbers.
    #[serde(default)]
    pub replications: Located<ReplicationsTable>,
    /// How the quick form of the experiment is shorter.
    #[serde(default)]
    pub quick: Located<QuickTable>,
    /// The variant that effects are measured against, where a run does not name another.
    pub baseline: Located<String>,
    /// The variants. Each is a table of what an administrator of the host decides, and nothing else: so any
    /// effect of a variant comes from the policy.
    pub variants: Named<PolicyTable>,
    /// Published effects of less than this, in points, may be chance, and their sign means nothing; 1 if
    /// absent. Where the published table has standard deviations, twice the larger one counts instead.
    #[serde(default = "default_noise_pct")]
    pub noise_pct: f64,
    /// How many of the signs of published effects beyond noise should come out right, in percent; all if
    /// absent.
    #[serde(default = "all_signs_pct")]
    pub signs_right_pct: f64,
    /// Values for parameters of scenarios that several runs share, by a name for `with`.
    #[serde(default)]
    pub parameters: BTreeMap<String, Parameters>,
    /// What the baseline leaves open.
    #[serde(default, rename = "calibration")]
    pub calibrations: Vec<CalibrationTable>,
    /// What to run.
    #[serde(rename = "run")]
    pub runs: Located<Vec<RunTable>>,
    /// Scores that sum up several cells.
    #[serde(default, rename = "composite")]
    pub composites: Vec<CompositeTable>,
    /// How close the predicted effects should come to the published ones; if there is none, within 3 points
    /// in the median of all.
    #[serde(default, rename = "accuracy")]
    pub accuracies: Vec<AccuracyTable>,
    /// Targets of the experiment.
    #[serde(default, rename = "target")]
    pub targets: Vec<TargetTable>,
    /// Orders that it expects among variants.
    #[serde(default, rename = "order")]
    pub orders: Vec<OrderTable>,
    /// Heat maps of the report.
    #[serde(default, rename = "heat_map")]
    pub heat_maps: Vec<HeatMapTable>,
}

fn default_noise_pct() -> f64 {
    NOISE_PCT
}

fn all_signs_pct() -> f64 {
    100.0
}

/// How often each run is repeated. After the least number, the runs are repeated until the 95% confidence
/// interval of every effect that has a published number is narrow enough.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ReplicationsTable {
    /// At least this often; 5 if absent.
    pub min: usize,
    /// At most this often; as `min` if absent.
    pub max: Option<usize>,
    /// Half the width of an interval that is narrow enough, in points of effect; 1 if absent.
    pub precision_pct: f64,
}

/// How the quick form of an experiment is shorter.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct QuickTable {
    /// Replications of each run; 2 if absent.
    pub replications: usize,
    /// Length of each run in percent of the full one, its warm-up and count to stop at too; 25 if absent.
    pub length_pct: u64,
}

impl ReplicationsTable {
    /// The least number, from which the intervals follow: 2 at least, if more than one is allowed.
    pub fn first_stage(&self) -> usize {
        self.min.max(self.max.unwrap_or(self.min).min(2))
    }
}

impl Default for ReplicationsTable {
    fn default() -> Self {
        Self { min: 5, max: None, precision_pct: 1.0 }
    }
}

impl Default for QuickTable {
    fn default() -> Self {
        Self { replications: 2, length_pct: 25 }
    }
}

/// A scenario to run, at one load or several.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunTable {
    /// Path of the scenario file, relative to this file.
    pub scenario: Located<String>,
    /// Keys that distinguish the cells of this run, such as { benchmark = "specjbb2005" }.
    #[serde(default)]
    pub keys: CellKeys,
    /// Names of `[parameters]` of this file whose values the scenario gets.
    #[serde(default)]
    pub with: Vec<Located<String>>,
    /// Values for parameters of the scenario; they come before those of `with`.
    #[serde(default)]
    pub set: Located<Parameters>,
    /// Parameters of the scenario to vary, such as { vms = [2, 6, 10] }; they are keys of the cells too.
    /// Every combination of their values is run.
    #[serde(default)]
    pub sweep: Located<BTreeMap<String, Vec<Key>>>,
    /// The variant that effects of this run are measured against; the experiment's baseline if absent.
    pub baseline: Option<Located<String>>,
    /// Names of the variants to run beside the baseline of this run; all if absent.
    pub variants: Option<Vec<Located<String>>>,
    /// Time before measuring starts, for variants that settle more slowly or quickly than the scenario's
    /// `warmup` assumes, such as { slow = "1s" }.
    #[serde(default)]
    pub warmup: Named<Located<Duration>>,
    /// Why this run may be shorter, with its warm-up, than ten times the period at which a Linux kernel in it
    /// balances its largest domain. What tasks do until then depends on where they began.
    pub short: Option<Located<String>>,
    /// Most replications of this run, where few are enough; those of the experiment if absent.
    pub replications: Option<Located<usize>>,
    /// What to measure.
    pub metrics: Vec<ExperimentMetric>,
}

/// Among the keys of `calibrated_at`, the variant; cells cannot have this key, as it is a column of the
/// published table.
pub const VARIANT: &str = "variant";

/// A metric of an experiment.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExperimentMetric {
    /// Its name, as in the published table.
    pub name: String,
    /// What it measures.
    pub of: Measure,
    /// Only VMs of this group; all if absent.
    pub group: Option<Located<String>>,
    /// Unit of its values, as reports print it.
    pub unit: String,
    /// Which way is better.
    pub better: Better,
    /// Factor on its values, for another unit; 1 if absent.
    pub scale: Option<f64>,
    /// Whether constants of the scenario were calibrated on the published values of the baseline.
    #[serde(default)]
    pub calibrated: bool,
    /// The same, for the cells alone that have one of these sets of keys, such as [{ vms = 2 }]. With a
    /// `variant` among the keys, it is the cell of that variant: what calibration has used is no prediction,
    /// although it is no baseline.
    #[serde(default)]
    pub calibrated_at: Vec<CellKeys>,
}

impl ExperimentMetric {
    /// Whether constants were calibrated on the cell with these keys of that variant.
    pub fn is_calibrated_at(&self, keys: &CellKeys, variant: &str, baseline: &str) -> bool {
        let is_meant = |some: &CellKeys| {
            let mut some = some.clone();
            let named = some.remove(VARIANT).map_or(baseline.to_owned(), |named| named.to_string());
            named == variant && has_all(keys, &some)
        };
        self.calibrated && variant == baseline || self.calibrated_at.iter().any(is_meant)
    }

    /// The metric's value in a run; `None` if the run has nothing to measure it on.
    pub fn value(&self, run: &RunMetrics) -> Option<f64> {
        let group = self.group.as_ref().map(|group| group.as_str());
        let value = self.of.value(run, group)? * self.scale.unwrap_or(1.0);
        value.is_finite().then_some(value)
    }
}

/// A score that sums up cells: the geometric mean of a metric over several values of one key. There is one
/// for each set of cells that agree in all other keys and have all of these values.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CompositeTable {
    /// Its name, as a metric of the published table. Unit and direction are those of the metric that it sums
    /// up.
    pub name: Located<String>,
    /// The metric that it sums up.
    pub of: String,
    /// The key in which the cells differ.
    pub over: String,
    /// The values of that key.
    pub parts: Vec<Key>,
    /// Keys in the place of that key, such as { benchmark = "all" }.
    pub keys: CellKeys,
}

/// Constants that are not known, and the cells of the baseline that say something about them.
/// `tandem calibrate` finds the points, a value for each constant, that meet these cells; the effects of its
/// runs then get a range: that over the points.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CalibrationTable {
    /// Its name.
    pub name: Located<String>,
    /// Keys of the runs that it is about, such as [{ benchmark = "specjbb2005" }]. The points must meet their
    /// baseline in the cells that `calibrated` marks; all their effects get a range.
    pub runs: Vec<CellKeys>,
    /// Metrics of which nothing but how their cells relate to each other counts, because the amount of work
    /// that makes a unit of them is arbitrary, such as ["throughput"].
    #[serde(default)]
    pub relative: Vec<Located<String>>,
    /// How far a cell may be from its published value, in percent, where the published table has no standard
    /// deviation; twice the standard deviation otherwise.
    pub within_pct: f64,
    /// Where that number comes from.
    pub because: String,
    /// The constants: parameters of the scenarios, each with bounds.
    pub free: Named<FreeTable>,
}

/// A constant that is not known.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FreeTable {
    /// The least value that it may have: a number, or a time such as "5us".
    pub low: Key,
    /// The largest.
    pub high: Key,
    /// Where the bounds come from.
    pub source: String,
}

/// How close the predicted effects on a metric should come to the published ones.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AccuracyTable {
    /// Description in a few words.
    pub text: Located<String>,
    /// The metric.
    pub metric: String,
    /// Only cells with these keys; all if absent.
    #[serde(default)]
    pub keys: CellKeys,
    /// A key that divides the cells into sets, each of which must be close enough by itself.
    pub each: Option<String>,
    /// Which error counts.
    pub error: AccuracyError,
    /// Largest magnitude of that error, in points.
    pub within_pct: f64,
}

/// Which of many errors counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AccuracyError {
    /// The median.
    Median,
    /// The largest.
    Largest,
}

/// An effect that the simulation should come close to.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TargetTable {
    /// Description in a few words.
    pub text: Located<String>,
    /// The cell.
    pub cell: CellKeys,
    /// The metric.
    pub metric: String,
    /// The variant.
    pub variant: String,
    /// The effect against the baseline.
    pub effect_pct: f64,
    /// How far from that the simulated effect may be, in points.
    pub within_pct: f64,
}

/// An order of variants that should hold at every load: the gain of each is larger than that of the one
/// before. A gain is the effect against the baseline, turned so that positive is better; that of the baseline
/// is 0.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OrderTable {
    /// Description in a few words.
    pub text: Located<String>,
    /// The metric.
    pub metric: Located<String>,
    /// Only cells with these keys; all if absent.
    #[serde(default)]
    pub keys: Located<CellKeys>,
    /// The key that is the load. The cells must differ in it alone.
    pub over: Located<String>,
    /// The variants, the worst first.
    pub variants: Vec<Located<String>>,
}

/// A heat map of a report: the gain of each variant at each load. A gain is the effect against the baseline,
/// turned so that positive is better.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HeatMapTable {
    /// Title, as reports print it.
    pub title: Located<String>,
    /// The metric.
    pub metric: Located<String>,
    /// Only cells with these keys; all if absent.
    #[serde(default)]
    pub keys: Located<CellKeys>,
    /// The key along the horizontal axis. The cells must differ in it alone.
    pub columns: Located<String>,
    /// The variants, top to bottom.
    pub rows: Vec<Located<String>>,
    /// Labels of rows instead of the names of their variants, such as { soft-5-4 = "5:4" }.
    #[serde(default)]
    pub labels: Named<String>,
    /// Title of the column with the names or labels of the rows.
    pub rows_title: Option<String>,
}

impl From<&HeatMapTable> for HeatMap {
    fn from(table: &HeatMapTable) -> Self {
        let row = |variant: &Located<String>| {
            let label = table.labels.get(variant).unwrap_or(variant);
            ((**variant).clone(), label.clone())
        };
        Self {
            title: (*table.title).clone(),
            metric: (*table.metric).clone(),
            keys: (*table.keys).clone(),
            columns: (*table.columns).clone(),
            rows: table.rows.iter().map(row).collect(),
            rows_title: table.rows_title.clone(),
        }
    }
}
