//! Schedulers on many scenarios: where each one stands.
//!
//! **Problem.** A scheduler that is best at one load may be worst at the next one; who writes or chooses one wants to see
//! all loads at once.
//!
//! **Approach.** Each comparison gives two figures a run: the *work*, which is the geometric mean of the rates of all that
//! the scenario's programs count, and the *delay*, that of the 99th percentiles of its groups' response times; of their
//! wake-ups, where nothing responds. A geometric mean gives a group's factor the same weight whatever its unit. Both
//! figures have effects and intervals as any measure has. A scheduler's standing is the geometric mean of its factors over
//! the scenarios, its mean rank, and how often it is better or worse than the baseline beyond chance.
//!
//! **Limits.** Which scenarios there are decides who wins: a standing is of this list. Work does not count where it is
//! the same whoever schedules, which brings factors closer to 1. A group with fewer than a hundred responses or wake-ups a
//! run has no 99th percentile, and does not count by delay. Where a scheduler starves a group altogether, there is no
//! factor: it is counted apart, comes last, and is worse than a baseline that lets all groups have something.

use super::table::write_effect;
use super::{Comparison, Figure, Row, Weight, figures};
use crate::results::Better;
use crate::statistics::mean;
use serde::Serialize;
use std::fmt;

/// Delays below this count as this long, us: what the clocks of real kernels tell apart.
const DELAY_MIN_US: f64 = 1.0;

/// Schedulers on many scenarios.
#[derive(Clone, Debug, Serialize)]
pub struct Arena {
    /// Version of the program.
    pub version: &'static str,
    /// The schedulers; the first one is the baseline.
    pub policies: Vec<String>,
    /// The comparisons that it is made of.
    pub scenarios: Vec<Entry>,
    /// The figures that count: work and delay.
    pub figures: Vec<Figures>,
}

/// A comparison of an arena.
#[derive(Clone, Debug, Serialize)]
pub struct Entry {
    /// The scenario.
    pub scenario: String,
    /// Its machine.
    pub machine: String,
    /// The folder of its page and its results, within that of the arena.
    pub folder: String,
    /// The seeds of its runs.
    pub seeds: Vec<u64>,
    /// Of each scheduler, the hash over everything that its runs depend on but the seed and the version.
    pub scenario_hashes: Vec<String>,
}

/// A figure in every scenario.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// Which one.
    pub name: &'static str,
    /// Which way it is better.
    pub better: Better,
    /// Its values in each scenario that has it.
    pub lines: Vec<Line>,
    /// Where each scheduler stands by it.
    pub standings: Vec<Standing>,
}

/// A figure in a scenario.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// The position of the scenario among those of the arena.
    pub scenario: usize,
    /// Its values, by scheduler.
    pub figures: Vec<Figure>,
}

/// Where a scheduler stands.
#[derive(Clone, Debug, Serialize)]
pub struct Standing {
    /// The geometric mean of its factors of the baseline, over the scenarios where neither starves a group.
    pub factor: Option<f64>,
    /// Its mean rank, from 1; those that are alike share theirs, and those that starve a group come last.
    pub rank: Option<f64>,
    /// Scenarios in which it is better than the baseline beyond chance, or lets all groups have something where the
    /// baseline starves one.
    pub better: usize,
    /// Those in which it is worse, the other way round.
    pub worse: usize,
    /// Those in which a group gets nothing in a run.
    pub starved: usize,
}

impl Arena {
    /// Of comparisons with the same schedulers in the same order, each with its folder; `None` without any.
    pub fn new(comparisons: &[(String, Comparison)]) -> Option<Self> {
        let (_, first) = comparisons.first()?;
        let entry = |(folder, comparison): &(String, Comparison)| Entry {
            scenario: comparison.scenario.clone(),
            machine: comparison.machine.clone(),
            folder: folder.clone(),
            seeds: comparison.seeds.clone(),
            scenario_hashes: comparison.scenario_hashes.clone(),
        };
        let lines = |of: fn(&Comparison) -> Option<Vec<Figure>>| {
            let all = comparisons.iter().enumerate();
            all.filter_map(move |(scenario, (_, comparison))| {
                Some(Line { scenario, figures: of(comparison)? })
            })
        };
        let figures = [
            Figures::new("work", Better::Higher, lines(work).collect()),
            Figures::new("delay", Better::Lower, lines(delay).collect()),
        ];
        Some(Self {
            version: first.version,
            policies: first.policies.clone(),
            scenarios: comparisons.iter().map(entry).collect(),
            figures: figures.into(),
        })
    }

    /// How many scenarios there are, in words.
    pub(super) fn scenarios_in_words(&self) -> String {
        let count = self.scenarios.len();
        format!("{count} scenario{}", if count == 1 { "" } else { "s" })
    }

    /// What each figure is, in words.
    pub fn meaning(figure: &str) -> &'static str {
        match figure {
            "work" => "What programs count, per second; more is better",
            _ => "The 99th percentile of responses, or of wake-ups where nothing responds; less is better",
        }
    }
}

impl Entry {
    /// The scenario and its machine, in words.
    pub fn name(&self) -> String {
        format!("{} on {}", self.scenario, self.machine)
    }
}

impl Figures {
    fn new(name: &'static str, better: Better, lines: Vec<Line>) -> Self {
        let contenders = lines.first().map_or(0, |line| line.figures.len());
        let standing = |contender| Standing::new(better, &lines, contender);
        Self { name, better, standings: (0..contenders).map(standing).collect(), lines }
    }
}

impl Standing {
    fn new(better: Better, lines: &[Line], contender: usize) -> Self {
        let factor = |line: &Line| Some(amount(&line.figures[contender])? / amount(&line.figures[0])?);
        let word = |line: &Line| match [0, contender].map(|at| amount(&line.figures[at]).is_some()) {
            [true, true] => line.figures[contender].interval_pct.map_or("", |interval| better.word(interval)),
            [true, false] => "worse",
            [false, true] => "better",
            [false, false] => "",
        };
        let count = |counted: &str| lines.iter().filter(|line| word(line) == counted).count();
        Self {
            factor: mean(lines.iter().filter_map(factor).map(f64::ln)).map(f64::exp),
            rank: mean(lines.iter().map(|line| rank(better, &line.figures, contender))),
            better: count("better"),
            worse: count("worse"),
            starved: lines.iter().filter(|line| amount(&line.figures[contender]).is_none()).count(),
        }
    }
}

/// The mean of a figure; `None` if a group gets nothing in a run.
fn amount(figure: &Figure) -> Option<f64> {
    let is_some = |value: Option<f64>| value.is_some_and(|value| value > 0.0);
    figure.mean.filter(|&mean| is_some(Some(mean)) && figure.values.iter().copied().all(is_some))
}

/// The rank of a contender, from 1.
fn rank(better: Better, figures: &[Figure], contender: usize) -> f64 {
    // The less, the better; without an amount, the worst.
    let cost = |figure: &Figure| match (amount(figure), better) {
        (None, _) => f64::INFINITY,
        (Some(amount), Better::Lower) => amount,
        (Some(amount), _) => -amount,
    };
    let own = cost(&figures[contender]);
    let before = figures.iter().filter(|other| cost(other) < own).count();
    let alike = figures.iter().filter(|other| cost(other) == own).count();
    before as f64 + (alike + 1) as f64 / 2.0
}

fn work(comparison: &Comparison) -> Option<Vec<Figure>> {
    let is_work = |row: &&Row| row.weight == Weight::First && row.better == Better::Higher;
    combined(comparison, comparison.rows.iter().filter(is_work).collect(), 0.0)
}

fn delay(comparison: &Comparison) -> Option<Vec<Figure>> {
    let of = |what: &str| -> Vec<&Row> {
        let measure = format!("{what} p99, us");
        let rows = comparison.rows.iter().filter(|row| row.measure == measure);
        rows.filter(|row| comparison.has_tail(row.group.as_deref(), what)).collect()
    };
    let responses = of("response");
    combined(comparison, if responses.is_empty() { of("wake-up") } else { responses }, DELAY_MIN_US)
}

/// The geometric mean of the rows in each run; no value counts as less than `least`.
fn combined(comparison: &Comparison, rows: Vec<&Row>, least: f64) -> Option<Vec<Figure>> {
    if rows.is_empty() {
        return None;
    }
    let value = |contender: usize, run: usize| {
        let logs: Option<Vec<f64>> =
            rows.iter().map(|row| Some(row.figures[contender].values[run]?.max(least).ln())).collect();
        mean(logs?).map(f64::exp)
    };
    let seeds = comparison.seeds.len();
    let of = |contender| (0..seeds).map(|run| value(contender, run)).collect();
    let first_stage = comparison.precision.as_ref().map_or(seeds, |precision| precision.first_stage);
    Some(figures((0..comparison.policies.len()).map(of).collect(), first_stage))
}

/// A table of at most 100 columns, but for long names.
impl fmt::Display for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}, tandem {}", self.scenarios_in_words(), self.version)?;
        for (at, policy) in self.policies.iter().enumerate() {
            let role = if at == 0 { ", the baseline" } else { "" };
            writeln!(f, "{:10}[{}] {policy}{role}", if at == 0 { "policies" } else { "" }, at + 1)?;
        }
        for figures in &self.figures {
            writeln!(f, "\n{}. {}", figures.name, Self::meaning(figures.name))?;
            writeln!(f, "{:36}     {:>9} {:>20}", "", "effect", "95% interval")?;
            for line in &figures.lines {
                let name = self.scenarios[line.scenario].name();
                for (at, figure) in line.figures.iter().enumerate().skip(1) {
                    write!(f, "{:36} [{}]", if at == 1 { &*name } else { "" }, at + 1)?;
                    write_effect(f, figure, figures.better)?;
                    writeln!(f)?;
                }
            }
            writeln!(f, "{:36}        factor   rank better  worse starved", "all of them")?;
            for (at, standing) in figures.standings.iter().enumerate() {
                let number = |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:.2}"));
                let (factor, rank) = (number(standing.factor), number(standing.rank));
                let Standing { better, worse, starved, .. } = standing;
                writeln!(
                    f,
                    "{:36} [{}] {factor:>9} {rank:>6} {better:>6} {worse:>6} {starved:>7}",
                    "",
                    at + 1
                )?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::run;
    use super::*;
    use proptest::prelude::*;

    fn arena(seeds: [usize; 2]) -> (Vec<(String, Comparison)>, Arena) {
        let of = |seeds| run(&["linux", "xen-credit", "xen-credit2"], seeds, 1, false).unwrap();
        let comparisons: Vec<_> =
            seeds.into_iter().enumerate().map(|(at, seeds)| (format!("f{at}"), of(seeds))).collect();
        let arena = Arena::new(&comparisons).unwrap();
        (comparisons, arena)
    }

    #[test]
    fn a_run_counts_as_the_root_of_the_product_of_its_measures() {
        let (comparisons, arena) = arena([3, 2]);
        let [work, delay] = &arena.figures[..] else { panic!("{} figures", arena.figures.len()) };
        for (at, (_, comparison)) in comparisons.iter().enumerate() {
            let product = |end: &str, contender: usize, run: usize| {
                // The hogs' few wake-ups, their starts, have no 99th percentile.
                let counts = |row: &&Row| end.ends_with("/s") || row.group.as_deref() == Some("light");
                let rows = comparison.rows.iter().filter(|row| row.measure.ends_with(end));
                let rows: Vec<&Row> = rows.filter(counts).collect();
                let product: f64 =
                    rows.iter().map(|row| row.figures[contender].values[run].unwrap()).product();
                product.powf(1.0 / rows.len() as f64)
            };
            for (figures, end) in [(work, "rounds /s"), (delay, "wake-up p99, us")] {
                assert_eq!(figures.lines[at].scenario, at);
                for (contender, figure) in figures.lines[at].figures.iter().enumerate() {
                    for (run, value) in figure.values.iter().enumerate() {
                        let (value, expected) = (value.unwrap(), product(end, contender, run));
                        assert!((value / expected - 1.0).abs() < 1e-9, "{end}: {value}, not {expected}");
                    }
                }
            }
        }
        assert_eq!(arena.scenarios[1].seeds, [1, 2]);
        assert_eq!(work.standings[0].factor, Some(1.0), "the baseline is one of itself");
        let factor = |line: &Line| line.figures[2].mean.unwrap() / line.figures[0].mean.unwrap();
        let [one, other] = &delay.lines[..] else { panic!("{} scenarios", delay.lines.len()) };
        let expected = (factor(one) * factor(other)).sqrt();
        assert!((delay.standings[2].factor.unwrap() / expected - 1.0).abs() < 1e-9);
    }

    #[test]
    fn the_page_links_to_those_of_its_scenarios_and_escapes_their_names() {
        let (mut comparisons, _) = arena([2, 2]);
        comparisons[1].1.scenario = "<script>".into();
        let html = Arena::new(&comparisons).unwrap().html().unwrap();
        assert!(html.contains("<a href=\"f0/compare.html\">s.toml</a>"), "{html}");
        assert!(!html.contains("<script>"), "{html}");
        assert_eq!(
            html.matches("<svg").count(),
            3 + 2,
            "a mark for each scheduler and a picture for each figure"
        );
    }

    fn figure(mean: Option<f64>) -> Figure {
        Figure { values: Vec::new(), mean, effect_pct: None, interval_pct: None }
    }

    proptest! {
        #[test]
        fn ranks_are_places_in_the_sorted_list(
            // Few values, so that some are alike.
            means in proptest::collection::vec(proptest::option::of(0u8..6), 1..9), more: bool,
        ) {
            let better = if more { Better::Higher } else { Better::Lower };
            let figures: Vec<Figure> = means.iter().map(|mean| figure(mean.map(f64::from))).collect();
            let mut sorted: Vec<f64> = means.iter().flatten().map(|&mean| f64::from(mean)).collect();
            sorted.sort_by(f64::total_cmp);
            if more {
                sorted.reverse();
            }
            // Zero is as nothing, and nothing comes last.
            let sorted: Vec<f64> = sorted.into_iter().filter(|&mean| mean > 0.0).collect();
            for (contender, of) in figures.iter().enumerate() {
                let places: Vec<f64> = (1u8..)
                    .zip((0..figures.len()).map(|place| sorted.get(place)))
                    .filter(|(_, other)| other.copied() == of.mean.filter(|&mean| mean > 0.0))
                    .map(|(place, _)| place.into())
                    .collect();
                prop_assert_eq!(Some(rank(better, &figures, contender)), mean(places));
            }
        }
    }

    #[test]
    fn who_starves_a_group_comes_last_and_is_counted_apart() {
        let line =
            |means: [f64; 2]| Line { scenario: 0, figures: means.map(|mean| figure(Some(mean))).into() };
        let standing = Standing::new(Better::Higher, &[line([0.0, 3.0]), line([1.0, 2.0])], 1);
        assert_eq!((standing.factor, standing.rank), (Some(2.0), Some(1.0)));
        assert_eq!((standing.better, standing.worse, standing.starved), (1, 0, 0));
        let starved = Standing::new(Better::Higher, &[line([1.0, 0.0])], 1);
        assert_eq!((starved.factor, starved.rank), (None, Some(2.0)));
        assert_eq!((starved.better, starved.worse, starved.starved), (0, 1, 1));
        // A delay that a run has none of is no good one.
        let mut delays = line([100.0, 1.0]);
        delays.figures[1].values = vec![Some(1.0), None];
        let starved = Standing::new(Better::Lower, &[delays], 1);
        assert_eq!((starved.factor, starved.rank, starved.worse), (None, Some(2.0), 1));
    }
}
