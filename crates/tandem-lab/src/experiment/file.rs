//! An experiment file, as it is written.

use crate::located::{Located, Named};
use crate::measure::Measure;
use crate::published::CellKeys;
use crate::results::Better;
use crate::scenario::amount::Parameters;
use crate::scenario::policy::PolicyTable;
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;
use tandem_sim::metrics::RunMetrics;

/// An experiment: scenarios, at several loads, with several settings of the policy, beside a published table. It
/// lies in a folder of its name, with the published table in `published.csv`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Tandem experiment")]
pub struct ExperimentFile {
    /// Title for people.
    pub title: String,
    /// The story: what was done, what came out, why it matters; a sentence each.
    pub story: Vec<String>,
    /// Where the published numbers are from.
    pub source: String,
    /// What the simulation models, a point each.
    pub modelled: Vec<String>,
    /// What it leaves out, a point each.
    pub not_modelled: Vec<String>,
    /// How often each run is repeated, with other random numbers.
    #[serde(default)]
    pub replications: Located<ReplicationsTable>,
    /// What the quick form of the experiment saves.
    #[serde(default)]
    pub quick: Located<QuickTable>,
    /// The variant that effects are measured against.
    pub baseline: Located<String>,
    /// The variants. Each is a table of policy settings, and nothing else: what a variant does to a result comes
    /// from the policy.
    pub variants: Named<PolicyTable>,
    /// What to run.
    #[serde(rename = "run")]
    pub runs: Located<Vec<RunTable>>,
    /// What the experiment sets itself.
    #[serde(default, rename = "target")]
    pub targets: Vec<TargetTable>,
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

/// What the quick form of an experiment saves.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct QuickTable {
    /// Replications of each run; 2 if absent.
    pub replications: usize,
    /// Length of each run in percent of the full one, its warm-up and count to stop at too; 25 if absent.
    pub length_pct: u64,
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
    /// Keys that tell the cells of this run from those of others, such as { benchmark = "specjbb2005" }.
    #[serde(default)]
    pub keys: CellKeys,
    /// Values for parameters of the scenario.
    #[serde(default)]
    pub set: Located<Parameters>,
    /// Parameters of the scenario to vary, such as { vms = [2, 6, 10] }; they are keys of the cells too.
    #[serde(default)]
    pub sweep: Located<BTreeMap<String, Vec<u64>>>,
    /// Names of the variants to run beside the baseline; all if absent.
    pub variants: Option<Vec<Located<String>>>,
    /// What to measure.
    pub metrics: Vec<ExperimentMetric>,
}

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
    /// Unit of its values, for people.
    pub unit: String,
    /// Which way is better.
    pub better: Better,
    /// What its values are multiplied with, for another unit; 1 if absent.
    pub scale: Option<f64>,
    /// Whether constants of the scenario were calibrated on the published values of the baseline. Values of other
    /// variants cannot be calibrated on.
    #[serde(default)]
    pub calibrated: bool,
}

impl ExperimentMetric {
    /// The metric's value in a run; `None` if the run has nothing to measure it on.
    pub fn value(&self, run: &RunMetrics) -> Option<f64> {
        let group = self.group.as_ref().map(|group| group.as_str());
        let value = self.of.value(run, group)? * self.scale.unwrap_or(1.0);
        value.is_finite().then_some(value)
    }
}

/// An effect that the experiment wants to come close to.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TargetTable {
    /// What it is about, in a few words.
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
