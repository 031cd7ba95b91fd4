//! What replays are held to: how far they may be from their recordings, and how predictions score.

use std::fmt::Write as _;
use tandem_lab::statistics::median;
use tandem_lab::twin::comparison::Row;
use tandem_lab::twin::measures::Measures;
use tandem_lab::twin::replay::{Measured, Twin};
use tandem_lab::twin::situation::Situation;

/// A measure: its name, how to get it, and the least that matters.
pub(super) type Measure = (&'static str, fn(&Row) -> f64, f64);

/// What is compared.
pub(super) const MEASURES: [Measure; 5] = [
    ("switches", |row| row.switches, 20.0),
    ("wait", |row| row.wait_s, 0.002),
    ("p50", |row| row.wait_p50_us, 10.0),
    ("p99", |row| row.wait_p99_us, 10.0),
    ("span", |row| row.span_s, 0.01),
];

/// The mean of a measure of some runs.
pub(super) fn mean(runs: &[Measured], measures: impl Fn(&Measured) -> &Measures, of: fn(&Row) -> f64) -> f64 {
    runs.iter().map(|run| of(&Row::from(measures(run)))).sum::<f64>() / runs.len() as f64
}

/// Five runs.
pub(super) fn run(twin: &Twin<'_>, situation: &Situation) -> Vec<Measured> {
    twin.run_all(situation, &[1, 2, 3, 4, 5]).unwrap()
}

/// The lines that say where a replay is more than 10% off though no miss of that measure is listed, or not within 5%
/// of how far off it is listed to be.
pub(super) fn unlisted(
    name: &str,
    misses: &[(&str, f64)],
    recorded: &Row,
    simulated: impl Fn(fn(&Row) -> f64) -> f64,
) -> String {
    let mut wrong = String::new();
    for (measure, of, least) in MEASURES {
        let (was, is) = (of(recorded), simulated(of));
        let off_pct = if was.max(is) < least { 0.0 } else { 100.0 * (is / was - 1.0) };
        let listed_pct = misses.iter().find(|(known, _)| *known == measure).map(|(_, pct)| *pct);
        let is_fine = match listed_pct {
            None => off_pct.abs() <= 10.0,
            Some(listed_pct) => off_pct.abs() > 10.0 && (off_pct - listed_pct).abs() <= 5.0,
        };
        if !is_fine {
            let _ = writeln!(wrong, "{name}: {measure} was {was:.4}, is {is:.4}: {off_pct:+.1}%");
        }
    }
    wrong
}

/// Effects below this are noise, percent. Two recordings of one program differ by less, as a rule; switches of `mix`
/// differ by up to 16% and those of the pair by up to 26%, as docs/src/replay.md says.
const NOISE_PCT: f64 = 5.0;

/// How predictions score.
#[derive(Debug, Default)]
pub(super) struct Score {
    /// Effects beyond noise.
    pub effects: usize,
    /// Those of them that have the sign that was foretold.
    pub signs: usize,
    errors_pct: Vec<f64>,
    /// Every prediction, a line each.
    pub table: String,
}

impl Score {
    /// Adds one value: before the change, as foretold, and as measured after it. `least` is the least that matters.
    pub(super) fn add(&mut self, of: &str, least: f64, (was, predicted, is): (f64, f64, f64)) {
        if was.max(is) < least {
            return;
        }
        let (effect, foretold) = (100.0 * (is / was - 1.0), 100.0 * (predicted / was - 1.0));
        self.errors_pct.push(100.0 * (predicted / is - 1.0).abs());
        if effect.abs() > NOISE_PCT {
            self.effects += 1;
            self.signs += usize::from(effect * foretold > 0.0);
        }
        let _ = writeln!(
            self.table,
            "{of:39} was {was:9.3} predicted {predicted:9.3} ({foretold:+7.1}%) measured {is:9.3} ({effect:+7.1}%)"
        );
    }

    /// How many values there are.
    pub(super) fn values(&self) -> usize {
        self.errors_pct.len()
    }

    /// The median of the errors, percent of the value.
    pub(super) fn error_pct(&self) -> f64 {
        median(&self.errors_pct).unwrap()
    }

    /// All of it, with its sums.
    pub(super) fn shown(&self) -> String {
        let Self { effects, signs, table, .. } = self;
        format!(
            "{table}{signs} of {effects} signs, median error {:.1}% of {}\n",
            self.error_pct(),
            self.values()
        )
    }
}
