//! Divides cells into tables and plots.
//!
//! A group holds the cells of one metric that share the baseline and every key that is a word, such as the
//! benchmark. They differ in keys that are numbers, such as a load, and in the variant: these are the rows of
//! a table and the axis of a plot.

use super::{number, outcome};
use crate::results::{Better, Cell, Key};

/// The cells of one metric that share the baseline and every key that is a word.
pub struct Group<'a> {
    pub cells: Vec<&'a Cell>,
    /// Names of the keys that are numbers, in order.
    pub number_keys: Vec<&'a str>,
    /// Whether to show effects on the metric: not if it is a mere description and no number of it is
    /// published.
    pub shows_effects: bool,
    /// Whether an effect on the metric is published, here or in another group.
    pub is_compared: bool,
    /// Whether other cells of the experiment have another baseline.
    names_baseline: bool,
    /// How many replications its cells have, least and most, if others have more.
    fewer_runs: Option<(usize, usize)>,
}

/// Groups in the order in which they first appear; never an empty one.
pub fn groups(cells: &[Cell]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group> = Vec::new();
    for cell in cells {
        let same = |group: &&mut Group| {
            let first = group.cells[0];
            first.metric == cell.metric && first.baseline == cell.baseline && words(first).eq(words(cell))
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.cells.push(cell),
            None => groups.push(Group {
                cells: vec![cell],
                number_keys: Vec::new(),
                shows_effects: false,
                is_compared: false,
                names_baseline: false,
                fewer_runs: None,
            }),
        }
    }
    let most = cells.iter().map(|cell| cell.runs.n).max().unwrap_or(0);
    for group in &mut groups {
        let runs = || group.cells.iter().map(|cell| cell.runs.n);
        group.fewer_runs = runs().min().zip(runs().max()).filter(|&(fewest, _)| fewest < most);
        group.number_keys = distinct(group.cells.iter().flat_map(|cell| numbers(cell).map(|(name, _)| name)));
        group.number_keys.sort_unstable();
        let first = group.cells[0];
        group.names_baseline = cells.iter().any(|cell| cell.baseline != first.baseline);
        let of_metric = || cells.iter().filter(|cell| cell.metric == first.metric);
        group.is_compared = of_metric().any(|cell| cell.published_effect_pct.is_some());
        group.shows_effects = group.is_compared
            || first.better != Better::Neither
            || of_metric().any(|cell| cell.published.is_some());
    }
    groups
}

impl<'a> Group<'a> {
    /// Heading: the words, the metric, its unit and which way is better.
    pub fn title(&self) -> String {
        match self.notes() {
            notes if notes.is_empty() => self.name(),
            notes => format!("{} ({notes})", self.name()),
        }
    }

    /// Unit of the metric, which way is better, the baseline if there are several, and the number of replications where
    /// other cells have more.
    pub fn notes(&self) -> String {
        let cell = self.cells[0];
        let better = match cell.better {
            Better::Higher => "higher is better",
            Better::Lower => "lower is better",
            Better::Neither => "",
        };
        let baseline = if self.names_baseline { format!("against {}", cell.baseline) } else { String::new() };
        let runs = match self.fewer_runs {
            Some((1, 1)) => "1 replication".to_owned(),
            Some((fewest, most)) if fewest == most => format!("{most} replications"),
            Some((fewest, most)) => format!("{fewest} to {most} replications"),
            None => String::new(),
        };
        let notes = [cell.unit.as_str(), better, &baseline, &runs];
        notes.into_iter().filter(|note| !note.is_empty()).collect::<Vec<_>>().join(", ")
    }

    /// The metric, and the words after it.
    pub fn name(&self) -> String {
        let words = words(self.cells[0]).map(|(name, word)| format!("{name} {word}"));
        [self.cells[0].metric.clone()].into_iter().chain(words).collect::<Vec<_>>().join(", ")
    }

    /// The cells of loads for which some number is published.
    pub fn published(&self) -> Vec<&'a Cell> {
        let is_published = |cell: &&&Cell| cell.published.is_some() || cell.published_effect_pct.is_some();
        let loads =
            distinct(self.cells.iter().filter(is_published).map(|cell| numbers(cell).collect::<Vec<_>>()));
        let has_such_load = |cell: &&Cell| loads.contains(&numbers(cell).collect());
        self.cells.iter().copied().filter(has_such_load).collect()
    }

    /// The key that a sweep runs along: the number with the most values, if they are at least three. `None`
    /// too for a group whose loads are all published: the other plots show it better.
    pub fn sweep_key(&self) -> Option<&'a str> {
        if self.published().len() == self.cells.len() {
            return None;
        }
        let values = |key: &str| distinct(self.cells.iter().filter_map(|cell| number_of(cell, key))).len();
        // The first of several equals, so that the choice is the same in each run.
        let key = self.number_keys.iter().copied().rev().max_by_key(|key| values(key))?;
        (values(key) >= 3).then_some(key)
    }

    /// The numbers of one of the cells, formatted.
    pub fn row(&self, cell: &Cell) -> Row {
        let row = Row::of(cell);
        if self.shows_effects {
            row
        } else {
            Row { simulated_effect: String::new(), interval: String::new(), range: String::new(), ..row }
        }
    }

    /// Variants in the order in which they first appear.
    pub fn variants(&self) -> Vec<&'a str> {
        distinct(self.cells.iter().map(|cell| cell.variant.as_str()))
    }

    /// Values of the keys that are numbers, each set once, in the order in which they first appear.
    pub fn loads(&self) -> Vec<Vec<(&'a str, i64)>> {
        distinct(self.cells.iter().map(|cell| numbers(cell).collect()))
    }
}

/// Keys of a cell that are numbers.
pub fn numbers(cell: &Cell) -> impl Iterator<Item = (&str, i64)> {
    cell.cell.iter().filter_map(|(name, key)| match key {
        Key::Number(number) => Some((name.as_str(), *number)),
        Key::Decimal(_) | Key::Text(_) => None,
    })
}

/// The number of that name.
pub fn number_of(cell: &Cell, key: &str) -> Option<i64> {
    numbers(cell).find(|(name, _)| *name == key).map(|(_, number)| number)
}

/// Keys of a cell that are words.
fn words(cell: &Cell) -> impl Iterator<Item = (&str, &str)> {
    cell.cell.iter().filter_map(|(name, key)| match key {
        Key::Number(_) | Key::Decimal(_) => None,
        Key::Text(word) => Some((name.as_str(), word.as_str())),
    })
}

/// Each item once, in the order in which they first appear.
pub fn distinct<T: PartialEq>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut distinct = Vec::new();
    for item in items {
        if !distinct.contains(&item) {
            distinct.push(item);
        }
    }
    distinct
}

/// The numbers of one cell, formatted; empty where there is none.
pub struct Row {
    pub published: String,
    pub simulated: String,
    pub published_effect: String,
    pub simulated_effect: String,
    pub interval: String,
    pub range: String,
    pub error: String,
}

impl Row {
    fn of(cell: &Cell) -> Self {
        let or_empty = |number: Option<f64>, print: fn(f64) -> String| number.map(print).unwrap_or_default();
        Self {
            published: or_empty(cell.published, number::value),
            simulated: number::value(cell.simulated),
            published_effect: or_empty(cell.published_effect_pct, number::effect),
            simulated_effect: or_empty(cell.simulated_effect_pct, number::effect),
            interval: outcome::interval(cell).map(number::interval).unwrap_or_default(),
            range: cell.open_range_pct().map(number::interval).unwrap_or_default(),
            error: or_empty(
                outcome::effects(cell).map(|(published, simulated)| simulated - published),
                number::points,
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    #[test]
    fn groups_share_metric_and_words() {
        let numa = fixture::numa_affinity();
        let groups = groups(&numa.cells);
        let names: Vec<String> = groups.iter().map(Group::name).collect();
        assert_eq!(
            names,
            [
                "throughput, benchmark specjbb2005",
                "throughput, benchmark sysbench-memory",
                "latency, benchmark lmbench-proc"
            ]
        );
        assert_eq!(groups[2].title(), "latency, benchmark lmbench-proc (us, lower is better)");
        for group in &groups {
            assert_eq!(group.number_keys, ["vms"]);
            assert_eq!(group.variants(), ["no-affinity", "pinning", "numa"]);
            assert_eq!(group.loads(), [[("vms", 2)], [("vms", 6)], [("vms", 10)]]);
            assert_eq!(group.published().len(), 9);
        }
    }

    #[test]
    fn cells_with_another_baseline_are_another_group() {
        let mut cells = fixture::numa_affinity().cells;
        cells.truncate(6);
        cells[3..].iter_mut().for_each(|cell| cell.baseline = "pinning".into());
        let titles: Vec<String> = groups(&cells).iter().map(Group::notes).collect();
        let notes = "1/s, higher is better, against";
        assert_eq!(titles, [format!("{notes} no-affinity"), format!("{notes} pinning")]);
    }

    #[test]
    fn a_published_load_has_all_its_variants() {
        let rate_control = fixture::rate_control();
        let published: Vec<usize> =
            groups(&rate_control.cells).iter().map(|group| group.published().len()).collect();
        assert_eq!(published, [10, 5, 5, 0, 0, 0, 0]);
    }

    #[test]
    fn a_sweep_needs_three_loads_and_something_unpublished() {
        let (numa, rate) = (fixture::numa_affinity(), fixture::rate_control());
        assert!(groups(&numa.cells).iter().all(|group| group.sweep_key().is_none()));
        assert!(groups(&rate.cells).iter().all(|group| group.sweep_key() == Some("load_pct")));
        let two_loads = &rate.cells[..10];
        assert_eq!(groups(two_loads)[0].sweep_key(), None);
    }

    #[test]
    fn effects_on_what_is_only_a_description_are_not_shown() {
        let effect = fixture::effect(14.0, 12.0, 1.0);
        let description = Cell {
            metric: "local".to_owned(),
            better: Better::Neither,
            published: None,
            published_effect_pct: None,
            ..effect.clone()
        };
        let published = Cell { published: Some(50.0), ..description.clone() };
        let shown = |cells: &[Cell]| {
            let groups = groups(cells);
            (groups[0].row(&cells[0]).simulated_effect, groups[0].is_compared)
        };
        assert_eq!(shown(&[description.clone(), effect.clone()]), (String::new(), false));
        assert_eq!(shown(&[description, published]), ("+12.0%".to_owned(), false));
        assert_eq!(shown(&[effect]), ("+12.0%".to_owned(), true));
    }

    #[test]
    fn rows_leave_out_what_is_missing() {
        let numa = fixture::numa_affinity();
        let baseline = Row::of(&numa.cells[0]);
        assert_eq!((baseline.published.as_str(), baseline.error.as_str()), ("43,319", ""));
        let row = Row::of(&fixture::effect(14.0, 12.34, 1.0));
        let shown = [row.published_effect, row.simulated_effect, row.interval, row.error];
        assert_eq!(shown, ["+14.0%", "+12.3%", "[+11.3, +13.3]", "−1.7"]);
    }
}
