//! Results of an experiment: published and simulated numbers side by side.

use crate::precision::{Interval, Precision};
use crate::summary::hash_of_texts;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// Results of one experiment.
#[derive(Clone, Debug)]
pub struct ExperimentResults {
    /// Short name, also the name of its folder.
    pub name: String,
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
    /// Replications of each run.
    pub replications: usize,
    /// Seed of the first replication.
    pub seed: u64,
    /// Whether it was interrupted, so that runs are missing.
    pub is_cut: bool,
    /// What became of the precision that the file asks for; `None` where it allows no replications for it.
    pub precision: Option<Precision<WidestEffect>>,
    /// Every number, in the order of the experiment file.
    pub cells: Vec<Cell>,
    /// Which of them a report shows as heat maps.
    pub heat_maps: Vec<HeatMap>,
    /// What the baseline leaves open, a sentence for each calibration.
    pub calibrations: Vec<String>,
    /// The targets of the experiment, and whether they are met.
    pub verdict: Verdict,
}

impl ExperimentResults {
    /// Whether something is published that its numbers can be compared with.
    pub fn has_published(&self) -> bool {
        self.cells.iter().any(|cell| cell.published.is_some() || cell.published_effect_pct.is_some())
    }

    /// Its seeds, in words.
    pub fn seeds_in_words(&self) -> String {
        match self.replications {
            0 | 1 => format!("seed {}", self.seed),
            more => format!("seeds {} to {}", self.seed, self.seed.wrapping_add(more as u64 - 1)),
        }
    }

    /// The schedulers that ran, each with the variants that had it: "linux 6.12 (none, pin)".
    pub fn policies_in_words(&self) -> String {
        let mut policies: Vec<(String, Vec<&str>)> = Vec::new();
        for cell in &self.cells {
            let CellRuns { scheduler, guest_schedulers, .. } = &cell.runs;
            let guests = match guest_schedulers.is_empty() {
                true => String::new(),
                false => format!(", guests {}", guest_schedulers.join(" and ")),
            };
            let name = format!("{scheduler}{guests}");
            let known = policies.iter().position(|(known, _)| *known == name);
            let at = known.unwrap_or_else(|| {
                policies.push((name, Vec::new()));
                policies.len() - 1
            });
            if !policies[at].1.contains(&&*cell.variant) {
                policies[at].1.push(&cell.variant);
            }
        }
        let texts = policies.iter().map(|(name, variants)| format!("{name} ({})", variants.join(", ")));
        texts.collect::<Vec<_>>().join("; ")
    }

    /// A hash over the hashes of all scenarios, and one over those of all runs, in hexadecimal: equal results have
    /// equal ones.
    pub fn hashes(&self) -> (String, String) {
        let runs = || self.cells.iter().map(|cell| &cell.runs);
        (
            hash_of_texts(runs().filter_map(|runs| runs.scenario_hash.as_deref())),
            hash_of_texts(runs().flat_map(|runs| runs.trace_hashes.iter().map(String::as_str))),
        )
    }
}

/// Which cells a heat map shows, and its labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeatMap {
    /// Title, as reports print it.
    pub title: String,
    /// Name of the metric.
    pub metric: String,
    /// Keys of the cells.
    pub keys: BTreeMap<String, Key>,
    /// The key along the horizontal axis.
    pub columns: String,
    /// The variants, top to bottom, each with its label.
    pub rows: Vec<(String, String)>,
    /// Title of the column of labels.
    pub rows_title: Option<String>,
}

/// One metric of one variant at one load.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    /// Name of the experiment.
    pub experiment: String,
    /// Keys that identify this cell within its metric and variant, such as `benchmark` and `vms`.
    pub cell: BTreeMap<String, Key>,
    /// Name of the metric.
    pub metric: String,
    /// Name of the variant that effects are measured against.
    pub baseline: String,
    /// Name of this variant; equals `baseline` for the baseline itself.
    pub variant: String,
    /// Published value, where there is one.
    pub published: Option<f64>,
    /// Simulated value: the mean over replications.
    pub simulated: f64,
    /// Published effect, where there is one: (variant - baseline) / baseline x 100.
    pub published_effect_pct: Option<f64>,
    /// Simulated effect, from pairs of runs with equal seeds.
    pub simulated_effect_pct: Option<f64>,
    /// Lower end of the effect's 95% confidence interval; `None` where it is not known, or chance has no
    /// part.
    pub ci_low_pct: Option<f64>,
    /// Upper end of the effect's 95% confidence interval.
    pub ci_high_pct: Option<f64>,
    /// The least simulated effect over the measured points that meet the baseline; `None` where no
    /// calibration says what the baseline leaves open.
    pub range_low_pct: Option<f64>,
    /// The largest of these effects.
    pub range_high_pct: Option<f64>,
    /// What that range is over.
    #[serde(flatten)]
    pub basis: RangeBasis,
    /// Published effects of less than this, in points, may be chance, and their sign means nothing.
    #[serde(skip)]
    pub noise_pct: f64,
    /// Whether a constant was calibrated on the published number.
    pub role: Role,
    /// Which way is better.
    pub better: Better,
    /// Unit of the values, as reports print it.
    pub unit: String,
    /// How narrow the interval of the effect should be: half its width, in points; `None` where that is not asked.
    pub precision_pct: Option<f64>,
    /// The runs that it is from.
    #[serde(flatten)]
    pub runs: CellRuns,
}

/// The runs of a cell: all that is needed to make them again, and what came out of each.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CellRuns {
    /// Version of the program.
    pub version: &'static str,
    /// The host's scheduler and the release that this follows; of a composite those of all parts.
    pub scheduler: String,
    /// Those of the guest kernels, each once.
    pub guest_schedulers: Vec<String>,
    /// Hash over everything that the runs depend on except the seed and the version, in hexadecimal; `None` of a
    /// composite, whose parts have one each.
    pub scenario_hash: Option<String>,
    /// How many runs there are.
    pub n: usize,
    /// The seed of each.
    pub seeds: Vec<u64>,
    /// The value of each.
    pub values: Vec<f64>,
    /// The hash over the scheduling events of each, in hexadecimal; none of a composite.
    pub trace_hashes: Vec<String>,
}

/// The interval of an effect that is the widest of those that a precision is asked of.
#[derive(Clone, Debug, Serialize)]
pub struct WidestEffect {
    /// The cell: its keys, metric and variant.
    pub cell: String,
    /// Half its width, in points.
    pub half_width_pct: f64,
}

impl Interval for WidestEffect {
    fn half_width_pct(&self) -> f64 {
        self.half_width_pct
    }
}

impl fmt::Display for WidestEffect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.cell)
    }
}

impl Cell {
    /// Where the simulated effect may be: within its 95% interval, which reaches as far beyond either end of
    /// the range that the baseline leaves open, if there is one, and what is [in
    /// doubt](RangeBasis::doubt_pct). Without an interval it is the range, without either the effect alone.
    /// `None` if the effect is not known.
    pub fn effect_range_pct(&self) -> Option<(f64, f64)> {
        let effect = self.simulated_effect_pct.filter(|effect| effect.is_finite())?;
        let interval = self.ci_low_pct.zip(self.ci_high_pct);
        let (low, high) =
            interval.filter(|(low, high)| low.is_finite() && high.is_finite()).unwrap_or((effect, effect));
        let (least, most) = self.open_range_pct().unwrap_or((effect, effect));
        let (least, most) = match self.basis.doubt_pct {
            Some((low, high)) => (least.min(low), most.max(high)),
            None => (least, most),
        };
        Some((low.min(least - (effect - low)), high.max(most + (high - effect))))
    }

    /// The effects over the points that meet the baseline, where they are known.
    pub fn open_range_pct(&self) -> Option<(f64, f64)> {
        self.range_low_pct.zip(self.range_high_pct).filter(|(low, high)| low.is_finite() && high.is_finite())
    }

    /// The simulated effect, with its sign reversed if less is better; 0 for the baseline. `None` if it is
    /// not known, or if neither way is better.
    pub fn gain_pct(&self) -> Option<f64> {
        let sign = match self.better {
            Better::Higher => 1.0,
            Better::Lower => -1.0,
            Better::Neither => return None,
        };
        if self.variant == self.baseline {
            return Some(0.0);
        }
        self.simulated_effect_pct.filter(|effect| effect.is_finite()).map(|effect| sign * effect)
    }

    /// Where the gain may be, as [`Cell::effect_range_pct`]; that of the baseline is 0.
    pub fn gain_range_pct(&self) -> Option<(f64, f64)> {
        if self.variant == self.baseline {
            return Some((0.0, 0.0));
        }
        let (low, high) = self.effect_range_pct()?;
        match self.better {
            Better::Higher => Some((low, high)),
            Better::Lower => Some((-high, -low)),
            Better::Neither => None,
        }
    }

    /// The 95% confidence interval of the gain; that of the baseline is 0 to 0.
    pub fn gain_interval_pct(&self) -> Option<(f64, f64)> {
        if self.variant == self.baseline {
            return Some((0.0, 0.0));
        }
        let (low, high) = (self.ci_low_pct?, self.ci_high_pct?);
        match self.better {
            _ if !(low.is_finite() && high.is_finite()) => None,
            Better::Higher => Some((low, high)),
            Better::Lower => Some((-high, -low)),
            Better::Neither => None,
        }
    }
}

/// What the range of an effect is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct RangeBasis {
    /// What is known of the points that meet the baseline; `None` where no calibration is about the cell.
    pub calibrated_set: Option<SetWord>,
    /// How many points are known to meet the baseline.
    pub points_accepted: Option<usize>,
    /// At how many of them the effect was measured: the range is over these.
    pub points_measured: Option<usize>,
    /// Effects that are possible beside those of the range, in percent: all where it is not known which
    /// points meet the baseline, and those of points that were left out. They make no range, but a verdict is
    /// not more certain without them.
    #[serde(skip)]
    pub doubt_pct: Option<(f64, f64)>,
}

impl RangeBasis {
    /// Any effect is possible.
    pub const ANY: (f64, f64) = (f64::NEG_INFINITY, f64::INFINITY);

    /// Whether any effect is possible, as far as is known.
    pub fn is_unknown(&self) -> bool {
        self.doubt_pct == Some(Self::ANY)
    }
}

/// What is known of the points that meet a baseline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SetWord {
    /// The search is complete, and has found some.
    Complete,
    /// It was interrupted.
    Interrupted,
    /// It has found none.
    Empty,
    /// The experiment has changed since.
    Stale,
    /// There was none.
    Missing,
}

impl SetWord {
    /// It in a word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Interrupted => "interrupted",
            Self::Empty => "empty",
            Self::Stale => "stale",
            Self::Missing => "missing",
        }
    }
}

/// Value of a cell's key, or of a scenario's parameter.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(untagged, expecting = "expected a number or a text")]
pub enum Key {
    /// A number, such as a count of VMs.
    Number(i64),
    /// A number that need not be whole; for parameters of scenarios alone.
    Decimal(Decimal),
    /// A word, such as the name of a benchmark.
    Text(String),
}

impl Key {
    /// Reads a number; any other text becomes a word.
    pub fn parse(text: &str) -> Self {
        text.parse().map_or_else(|_| Self::Text(text.into()), Self::Number)
    }

    /// The key as TOML.
    pub(crate) fn to_toml(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Decimal(Decimal(number)) => toml::Value::from(*number).to_string(),
            Self::Text(text) => toml::Value::from(text.as_str()).to_string(),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Decimal(Decimal(number)) => number.fmt(f),
            Self::Text(text) => f.pad(text),
        }
    }
}

/// A number that need not be whole, with the total order of IEEE 754.
#[derive(Clone, Copy, Debug, Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub struct Decimal(pub f64);

impl Ord for Decimal {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Decimal {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Decimal {}

/// Whether a constant was calibrated on a published number or the number was predicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// A constant was calibrated on it.
    Calibrated,
    /// Nothing was calibrated on it.
    Predicted,
    /// It sums up predictions that count by themselves.
    Composite,
}

impl Role {
    /// The role in a word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Calibrated => "calibrated",
            Self::Predicted => "predicted",
            Self::Composite => "composite",
        }
    }
}

/// Which way a metric is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// More is better.
    Higher,
    /// Less is better.
    Lower,
    /// Neither: a description.
    Neither,
}

impl Better {
    /// What the interval of an effect, in percent, says of it, if chance alone does not explain it.
    pub fn word(self, (low_pct, high_pct): (f64, f64)) -> &'static str {
        match self {
            Self::Higher if low_pct > 0.0 => "better",
            Self::Higher if high_pct < 0.0 => "worse",
            Self::Lower if high_pct < 0.0 => "better",
            Self::Lower if low_pct > 0.0 => "worse",
            Self::Higher | Self::Lower | Self::Neither => "",
        }
    }
}

/// How well the predicted effects of an experiment agree with the published ones.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdict {
    /// Predicted effects that have a published number.
    pub predicted: usize,
    /// Of these, the ones whose published effect is beyond the noise of its publication.
    pub beyond_noise: usize,
    /// Of these, the ones whose sign is right, beyond chance.
    pub sign_right: usize,
    /// Those of these whose simulated effect may have either sign, by chance or by what the baseline leaves
    /// open.
    pub sign_open: usize,
    /// Median absolute error of predicted effects, in points.
    pub median_abs_error_pct: Option<f64>,
    /// Largest absolute error, in points.
    pub max_abs_error_pct: Option<f64>,
    /// The experiment's own targets: each a sentence with the numbers, and whether it was met.
    pub targets: Vec<(String, Target)>,
}

impl Verdict {
    /// How many of the targets are met.
    pub fn targets_met(&self) -> usize {
        self.targets.iter().filter(|(_, target)| *target == Target::Met).count()
    }
}

/// Whether a target is met. Where effects have intervals or ranges, these decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// It is, wherever in their intervals and ranges the effects are.
    Met,
    /// It is not, wherever they are.
    Missed,
    /// Chance decides, or what the baseline leaves open.
    Open,
}

impl Target {
    /// Met if it is met at the worst that the effects may be, missed if it is not even at the best.
    pub(crate) fn between(at_worst: bool, at_best: bool) -> Self {
        match (at_worst, at_best) {
            (true, _) => Self::Met,
            (false, true) => Self::Open,
            (false, false) => Self::Missed,
        }
    }
}
