//! An arena as a page, with links to the pages of its comparisons.

use super::Figure;
use super::arena::{Arena, Entry, Figures, Standing};
use super::page::class;
use super::pictures::{Line, effects, swatch};
use crate::report::number;
use crate::results::Better;
use askama::Template;

#[derive(Template)]
#[template(path = "arena.html")]
struct Page<'a> {
    arena: &'a Arena,
    /// How many scenarios there are, in words.
    scenarios: String,
    /// The mark of each scheduler and its name.
    policies: Vec<(String, &'a str)>,
    sections: Vec<Section<'a>>,
}

/// A figure in all scenarios.
struct Section<'a> {
    title: &'static str,
    meaning: &'static str,
    effects: Option<String>,
    rows: Vec<(&'a Entry, Vec<Cell>)>,
    /// Where each scheduler stands: what that is, and its values.
    standings: [(&'static str, Vec<String>); 4],
}

/// An effect.
struct Cell {
    effect: String,
    interval: String,
    /// Class and word.
    word: (&'static str, &'static str),
}

impl Arena {
    /// The page.
    ///
    /// # Errors
    /// None that a user could cause.
    pub fn html(&self) -> Result<String, askama::Error> {
        let policies = self.policies.iter().enumerate().map(|(at, name)| (swatch(at, name), &**name));
        Page {
            scenarios: self.scenarios_in_words(),
            policies: policies.collect(),
            sections: self.figures.iter().map(|figures| self.section(figures)).collect(),
            arena: self,
        }
        .render()
    }

    fn section<'a>(&'a self, figures: &'a Figures) -> Section<'a> {
        let entry = |scenario: usize| &self.scenarios[scenario];
        let names: Vec<String> = figures.lines.iter().map(|line| entry(line.scenario).name()).collect();
        let lines = figures.lines.iter().zip(&names);
        let lines = lines.map(|(line, name)| Line { name, better: figures.better, figures: &line.figures });
        let of_standings = |of: &dyn Fn(&Standing) -> String| figures.standings.iter().map(of).collect();
        let decimals =
            |value: Option<f64>| value.map_or(number::MISSING.into(), |value| format!("{value:.2}"));
        Section {
            title: if figures.better == Better::Higher { "Work" } else { "Delay" },
            meaning: Self::meaning(figures.name),
            effects: effects(figures.name, &lines.collect::<Vec<_>>(), &self.policies),
            rows: figures
                .lines
                .iter()
                .map(|line| {
                    let cells = line.figures.iter().skip(1).map(|figure| Cell::new(figure, figures.better));
                    (entry(line.scenario), cells.collect())
                })
                .collect(),
            standings: [
                ("Geometric mean", of_standings(&|standing| decimals(standing.factor))),
                ("Mean rank", of_standings(&|standing| decimals(standing.rank))),
                (
                    "Better, worse",
                    of_standings(&|standing| format!("{}, {}", standing.better, standing.worse)),
                ),
                ("A group gets nothing", of_standings(&|standing| standing.starved.to_string())),
            ],
        }
    }
}

impl Cell {
    fn new(figure: &Figure, better: Better) -> Self {
        let word = figure.interval_pct.map_or("", |interval| better.word(interval));
        Self {
            effect: figure.effect_pct.map_or(number::MISSING.into(), number::effect),
            interval: figure.interval_pct.map_or(String::new(), number::interval),
            word: (class(word), word),
        }
    }
}
