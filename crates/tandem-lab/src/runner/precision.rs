//! How many replications the precision of an experiment takes.
//!
//! **Problem.** An experiment says how narrow intervals should be. How many replications that takes is known only from
//! some of them, and to look again and again makes intervals hold the effect too seldom.
//!
//! **Approach.** Two stages, as [`statistics`](crate::statistics) has them. The precision is asked of every effect with
//! a published number. Where the experiment has none it is asked of every effect on a metric of which one way is better,
//! and where all metrics only describe, of every effect. A run with a number of replications of its own gets no more
//! than these: where the first stage has made all of them, nothing is asked of it.
//!
//! **Limits.** Beside published numbers the intervals of other effects are as wide as they happen to be.

use crate::experiment::Experiment;
use crate::experiment::file::ReplicationsTable;
use crate::precision::{Precision, widest};
use crate::published::CellKeys;
use crate::results::{Better, Cell, WidestEffect};
use crate::statistics::pairs_for;

/// What the first stage says.
pub(super) struct Plan {
    asked_pct: f64,
    first_stage: usize,
    /// The most that the experiment allows.
    most: usize,
    /// By cell, the replications that make its interval narrow enough, and how many it may have; `None` where nothing
    /// is asked of it, or chance has no part in it.
    wanted: Vec<Option<(usize, usize)>>,
}

impl Plan {
    /// From the cells of the first stage.
    pub fn new(experiment: &Experiment, cells: &[Cell]) -> Self {
        let ReplicationsTable { max, precision_pct, .. } = experiment.replications;
        let first = experiment.replications.first_stage();
        let most = max.unwrap_or(first).max(first);
        let weight = cells.iter().map(weight).max().unwrap_or(Weight::None);
        let wanted = |cell: &Cell| {
            let most = own_limit(experiment, cell).map_or(most, |own| own.min(most));
            if most <= first || weight == Weight::None || self::weight(cell) < weight {
                return None;
            }
            let interval = cell.ci_low_pct.zip(cell.ci_high_pct)?;
            Some((pairs_for(first, interval, precision_pct).max(first), most))
        };
        Self {
            asked_pct: precision_pct,
            first_stage: first,
            most,
            wanted: cells.iter().map(wanted).collect(),
        }
    }

    /// How many replications there should be in all.
    pub fn replications(&self) -> usize {
        let wanted = self.wanted.iter().flatten().map(|&(wanted, most)| wanted.min(most));
        wanted.max().unwrap_or(self.first_stage)
    }

    /// What became of it, by the same cells at the end, which learn what was asked of them. `None` if the experiment
    /// allows nothing beyond the first stage, or has no effect with an interval.
    pub fn outcome(&self, cells: &mut [Cell]) -> Option<Precision<WidestEffect>> {
        if self.most <= self.first_stage || self.wanted.iter().all(Option::is_none) {
            return None;
        }
        let asked = || self.wanted.iter().enumerate().filter_map(|(at, asked)| Some((at, asked.as_ref()?.0)));
        for (at, _) in asked() {
            cells[at].precision_pct = Some(self.asked_pct);
        }
        let wanted = asked().map(|(_, wanted)| wanted).max().unwrap_or(self.first_stage);
        Some(Precision {
            asked_pct: self.asked_pct,
            first_stage: self.first_stage,
            wanted: Some(wanted).filter(|&wanted| wanted < usize::MAX),
            lacking: 0,
            is_reached: asked().all(|(at, wanted)| cells[at].runs.n >= wanted),
            widest: widest(asked().filter_map(|(at, _)| WidestEffect::of(&cells[at]))),
        })
    }
}

/// The most replications that the run of a cell has by itself; of a composite, the least of its parts.
fn own_limit(experiment: &Experiment, cell: &Cell) -> Option<usize> {
    let is_it = |keys: &CellKeys, metric: &str| *keys == cell.cell && metric == cell.metric;
    let composite = experiment.composites.iter().find(|it| is_it(&it.keys, &it.name));
    match composite {
        Some(it) => it.parts.iter().filter_map(|&(case, _)| experiment.cases[case].replications).min(),
        None => experiment.cases.iter().find(|case| case.keys == cell.cell)?.replications,
    }
}

/// How much a precision is asked of an effect.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Weight {
    /// There is no effect: it is the baseline's.
    None,
    /// It describes.
    Description,
    /// One way is better.
    Gain,
    /// It stands beside a published one.
    Published,
}

fn weight(cell: &Cell) -> Weight {
    match cell.better {
        _ if cell.variant == cell.baseline => Weight::None,
        _ if cell.published_effect_pct.is_some() => Weight::Published,
        Better::Higher | Better::Lower => Weight::Gain,
        Better::Neither => Weight::Description,
    }
}

impl WidestEffect {
    fn of(cell: &Cell) -> Option<Self> {
        let half_width_pct = (cell.ci_high_pct? - cell.ci_low_pct?) / 2.0;
        let keys = cell.cell.iter().map(|(key, value)| format!("{key} {value}, ")).collect::<String>();
        Some(Self { cell: format!("{keys}{}, {}", cell.metric, cell.variant), half_width_pct })
    }
}
