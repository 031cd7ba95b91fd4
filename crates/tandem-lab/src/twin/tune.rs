//! A search for settings of the scheduler that make a measure of a replay small.
//!
//! **Approach.** Some settings of the scheduler, each on a grid that grows by a factor, are searched in turns: a
//! first part of the trials draws all of them at random, the rest changes one or two of the best so far. A trial
//! runs on the *training* seeds and counts the mean of the measure. In the end the best one and the defaults run
//! on *other* seeds, and that is the result: what was best on the training seeds was in part lucky there.
//!
//! **Limits.** It is plain, so that it is honest: no model of the measure, no gradients. It finds no better
//! settings than the replay can tell apart.

use super::comparison::Row;
use super::grouping::TOTAL;
use super::replay::{Measured, Twin, unfinished};
use super::situation::Situation;
use crate::statistics::{Effect, mean, paired_effect};
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::fmt;
use tandem_file::units::Duration;
use tandem_settings::Settings;

/// Part of the trials that draws all settings at random.
const RANDOM_PART: f64 = 0.4;

/// What to make small, or large: a measure of a group, or of all.
#[derive(Clone, Debug, PartialEq)]
pub struct Objective {
    measure: Measure,
    /// The group; all if `None`.
    group: Option<String>,
    is_larger_better: bool,
}

/// A measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Measure {
    Run,
    Wait,
    WaitP50,
    WaitP95,
    WaitP99,
    WaitMax,
    Switches,
    Preemptions,
    Migrations,
    Span,
}

/// Measures, with the names that they have in objectives.
const MEASURES: [(&str, Measure); 10] = [
    ("run", Measure::Run),
    ("wait", Measure::Wait),
    ("wait_p50", Measure::WaitP50),
    ("wait_p95", Measure::WaitP95),
    ("wait_p99", Measure::WaitP99),
    ("wait_max", Measure::WaitMax),
    ("switches", Measure::Switches),
    ("preemptions", Measure::Preemptions),
    ("migrations", Measure::Migrations),
    ("span", Measure::Span),
];

impl Objective {
    /// From a text such as `wait_p99(web)`, `span`, or `-run(batch)`, where the minus makes it large.
    ///
    /// # Errors
    /// A sentence, if it is no objective.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (is_larger_better, rest) = match text.trim().strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.trim()),
        };
        let (name, group) = match rest.split_once('(') {
            Some((name, rest)) => {
                let group = rest.strip_suffix(')').ok_or("the parenthesis is not closed")?;
                (name, Some(group.to_owned()).filter(|group| group != TOTAL))
            }
            None => (rest, None),
        };
        let measure = MEASURES.iter().find(|(known, _)| *known == name.trim()).ok_or_else(|| {
            let known: Vec<&str> = MEASURES.iter().map(|(name, _)| *name).collect();
            format!("'{name}' is no measure; measures: {}", known.join(", "))
        })?;
        Ok(Self { measure: measure.1, group, is_larger_better })
    }

    /// The group that it is about; all if `None`.
    pub fn group(&self) -> Option<&str> {
        self.group.as_deref()
    }

    fn value(&self, twin: &Twin<'_>, run: &Measured) -> f64 {
        let at = self.group.as_ref().and_then(|group| twin.groups.iter().position(|name| name == group));
        let row = Row::from(at.map_or(&run.total, |at| &run.groups[at]));
        match self.measure {
            Measure::Run => row.run_s,
            Measure::Wait => row.wait_s,
            Measure::WaitP50 => row.wait_p50_us,
            Measure::WaitP95 => row.wait_p95_us,
            Measure::WaitP99 => row.wait_p99_us,
            Measure::WaitMax => row.wait_max_us,
            Measure::Switches => row.switches,
            Measure::Preemptions => row.preemptions,
            Measure::Migrations => row.migrations,
            Measure::Span => row.span_s,
        }
    }

    /// Smaller is better.
    fn cost(&self, value: f64) -> f64 {
        if self.is_larger_better { -value } else { value }
    }
}

/// A setting that is searched.
struct Dial {
    name: &'static str,
    /// Its values on the grid.
    values_us: &'static [u64],
    set: fn(&mut Settings, u64),
    get: fn(&Settings) -> u64,
}

/// A setting that is a time, with its grid, us.
macro_rules! time {
    ($table:ident.$key:ident, $values_us:expr) => {
        Dial {
            name: concat!(stringify!($table), ".", stringify!($key)),
            values_us: &$values_us,
            set: |settings, value| settings.$table.$key = Duration { ns: value * 1_000 },
            get: |settings| settings.$table.$key.ns / 1_000,
        }
    };
}

/// The settings that are searched: those that decide which task runs next, for how long, and where. Values are
/// us, but of the threshold, which is a number.
const DIALS: [Dial; 8] = [
    time!(fairness.slice, [1_000, 2_000, 5_000, 10_000, 20_000, 50_000]),
    time!(fairness.slice_min, [100, 200, 500, 1_000]),
    time!(fairness.sleeper_credit, [0, 500, 1_500, 3_000, 6_000, 12_000]),
    time!(fairness.preempt_margin, [0, 350, 700, 1_400, 2_800, 5_600, 11_200]),
    time!(fairness.sync_run_max, [0, 20, 50, 100, 200]),
    time!(fairness.migration_margin, [1_000, 3_000, 6_000, 12_000, 24_000]),
    time!(rate_control.ratelimit, [0, 200, 500, 1_000, 2_000, 5_000]),
    Dial {
        name: "rate_control.threshold",
        values_us: &[10, 25, 50, 100, 400],
        set: |settings, value| settings.rate_control.threshold = value as u32,
        get: |settings| u64::from(settings.rate_control.threshold),
    },
];

/// The end of a search.
#[derive(Clone, Debug)]
pub struct Tuned {
    /// The best settings.
    pub settings: Settings,
    /// Trials that ran.
    pub trials: usize,
    /// Means of the measure on the training seeds: of the defaults, of the best.
    pub training: (f64, f64),
    /// The same on other seeds.
    pub held_out: (f64, f64),
    /// The difference on other seeds.
    pub effect: Option<Effect>,
    /// That not all of the work was done on other seeds.
    pub problem: Option<String>,
    /// How many other seeds there were.
    pub held_out_seeds: usize,
    larger_is_better: bool,
}

impl Tuned {
    /// Whether it is better than the defaults on other seeds, beyond chance.
    pub fn is_better(&self) -> bool {
        let interval = self.effect.and_then(|effect| effect.interval_pct);
        // Pairs that are all the same leave nothing to chance.
        let (low, high) = match (interval, self.effect) {
            (Some(interval), _) => interval,
            (None, Some(effect)) => (effect.percent, effect.percent),
            (None, None) => return false,
        };
        self.problem.is_none() && if self.larger_is_better { low > 0.0 } else { high < 0.0 }
    }
}

/// Searches with so many trials, from `seed`: training seeds are the first, others follow. `progress` is called
/// after each trial with how many have run and the best mean so far.
///
/// # Errors
/// A sentence, if the scheduler cannot run the replay.
pub fn tune(
    twin: &Twin<'_>,
    situation: &Situation,
    objective: &Objective,
    trials: usize,
    seed: u64,
    mut progress: impl FnMut(usize, f64) -> bool,
) -> Result<Tuned, String> {
    let training: Vec<u64> = (0..TRAINING_SEEDS).map(|at| seed.wrapping_add(at)).collect();
    let others: Vec<u64> = (0..OTHER_SEEDS).map(|at| seed.wrapping_add(TRAINING_SEEDS + at)).collect();
    let run = |settings: &Settings, seeds: &[u64]| -> Result<Vec<Measured>, String> {
        let mut situation = situation.clone();
        situation.set_tandem(settings)?;
        twin.run_all(&situation, seeds)
    };
    let values =
        |runs: &[Measured]| -> Vec<f64> { runs.iter().map(|run| objective.value(twin, run)).collect() };
    let mean_of = |values: &[f64]| mean(values.iter().copied()).unwrap_or(0.0);
    let defaults = Settings::default();
    let runs = run(&defaults, &training)?;
    if let Some(problem) = unfinished(&runs) {
        return Err(format!("{problem}, with the defaults: there is nothing to compare settings with"));
    }
    let first = mean_of(&values(&runs));
    let mut best = (defaults.clone(), first);
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut ran = 1;
    for trial in 1..trials.max(1) {
        if !progress(ran, best.1) {
            break;
        }
        let mut settings = best.0.clone();
        match (trial as f64) < RANDOM_PART * trials as f64 {
            true => DIALS.iter().for_each(|dial| draw(dial, &mut settings, &mut random)),
            false => {
                for _ in 0..1 + random.next_u32() % 2 {
                    step(&DIALS[random.next_u32() as usize % DIALS.len()], &mut settings, &mut random);
                }
            }
        }
        settings.fairness.slice_min.ns = settings.fairness.slice_min.ns.min(settings.fairness.slice.ns);
        if settings == best.0 || settings.check().is_err() {
            continue;
        }
        ran += 1;
        // Settings under which the scheduler fails, or does not get the work done, are none to be advised.
        if let Ok(runs) = run(&settings, &training)
            && unfinished(&runs).is_none()
        {
            let value = mean_of(&values(&runs));
            if objective.cost(value) < objective.cost(best.1) {
                best = (settings, value);
            }
        }
    }
    progress(ran, best.1);
    let (before, after) = (run(&defaults, &others)?, run(&best.0, &others)?);
    let problem = unfinished(&before).or_else(|| unfinished(&after));
    let (before, after) = (values(&before), values(&after));
    let pairs: Vec<(f64, f64)> = before.iter().copied().zip(after.iter().copied()).collect();
    Ok(Tuned {
        settings: best.0,
        trials: ran,
        training: (first, best.1),
        held_out: (mean_of(&before), mean_of(&after)),
        effect: paired_effect(&pairs, pairs.len()).map(Effect::of_amounts),
        problem,
        held_out_seeds: others.len(),
        larger_is_better: objective.is_larger_better,
    })
}

/// Seeds on which a trial runs.
const TRAINING_SEEDS: u64 = 3;
/// Other seeds, on which the result is measured.
const OTHER_SEEDS: u64 = 8;

/// Sets it to a value of its grid.
fn draw(dial: &Dial, settings: &mut Settings, random: &mut Pcg64Mcg) {
    let at = random.next_u32() as usize % dial.values_us.len();
    (dial.set)(settings, dial.values_us[at]);
}

/// Sets it to a value next to the one that it has.
fn step(dial: &Dial, settings: &mut Settings, random: &mut Pcg64Mcg) {
    let now = (dial.get)(settings);
    let at = dial.values_us.partition_point(|value| *value < now);
    let at = if random.next_u32().is_multiple_of(2) { at.saturating_sub(1) } else { at + 1 };
    if let Some(value) = dial.values_us.get(at) {
        (dial.set)(settings, *value);
    }
}

impl fmt::Display for Tuned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (before, after) = self.training;
        writeln!(f, "{:28} {:>12} {:>12}", "", "defaults", "best")?;
        writeln!(f, "{:28} {before:>12.3} {after:>12.3}", format!("{TRAINING_SEEDS} training seeds"))?;
        let (before, after) = self.held_out;
        writeln!(f, "{:28} {before:>12.3} {after:>12.3}", format!("{} other seeds", self.held_out_seeds))?;
        writeln!(f)?;
        let defaults = Settings::default();
        for dial in &DIALS {
            let (before, after) = ((dial.get)(&defaults), (dial.get)(&self.settings));
            if before != after {
                let unit = if dial.name.ends_with("threshold") { "" } else { " us" };
                writeln!(f, "{:28} {before:>9}{unit:3} {after:>9}{unit:3}", dial.name)?;
            }
        }
        let interval = self.effect.and_then(|effect| effect.interval_pct);
        let effect = match (self.effect, interval) {
            (Some(effect), Some((low, high))) => format!("{:+.1}% [{low:+.1}, {high:+.1}]", effect.percent),
            (Some(effect), None) => format!("{:+.1}%", effect.percent),
            (None, _) => "not known".into(),
        };
        if let Some(problem) = &self.problem {
            return writeln!(f, "\nNot trusted: {problem}. Keep the defaults.");
        }
        match self.is_better() {
            true => writeln!(f, "\nBetter than the defaults on seeds that were not searched: {effect}."),
            false => writeln!(
                f,
                "\nNot better than the defaults beyond chance on seeds that were not searched: {effect}. Keep the \
                 defaults."
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objectives_are_measures_of_groups() {
        let objective = Objective::parse("wait_p99(my web(1))").unwrap();
        assert_eq!((objective.group(), objective.measure), (Some("my web(1)"), Measure::WaitP99));
        let objective = Objective::parse("-run").unwrap();
        assert!(objective.is_larger_better && objective.group().is_none());
        assert!(Objective::parse("wait_p98(web)").unwrap_err().contains("wait_p99"));
        assert!(Objective::parse("wait(web").is_err());
    }

    #[test]
    fn the_grids_hold_the_defaults_and_are_allowed() {
        for dial in &DIALS {
            let default = (dial.get)(&Settings::default());
            assert!(dial.values_us.contains(&default), "{} has {default}", dial.name);
            for value in dial.values_us {
                let mut settings = Settings::default();
                (dial.set)(&mut settings, *value);
                settings.fairness.slice_min.ns =
                    settings.fairness.slice_min.ns.min(settings.fairness.slice.ns);
                assert_eq!(settings.check(), Ok(()), "{} = {value}", dial.name);
                assert_eq!((dial.get)(&settings), *value);
            }
        }
    }
}
