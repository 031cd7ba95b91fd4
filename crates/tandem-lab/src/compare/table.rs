//! A comparison as a table for a terminal.

use super::{Comparison, Figure};
use crate::results::Better;
use crate::summary::number;
use std::fmt;

/// A table of at most 100 columns, but for long names.
impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seeds = self.seeds_in_words();
        writeln!(f, "scenario  {}, {seeds}, tandem {}", self.scenario, self.version)?;
        writeln!(f, "machine   {}; {} s measured", self.machine, self.length_s)?;
        for (at, policy) in self.policies.iter().enumerate() {
            let role = if at == 0 { ", the baseline" } else { "" };
            writeln!(f, "{:10}[{}] {policy}{role}", if at == 0 { "policies" } else { "" }, at + 1)?;
        }
        if let Some(precision) = &self.precision {
            let (words, widest) = precision.in_words();
            let widest = widest.map_or(String::new(), |widest| format!(";\n          {widest}"));
            writeln!(f, "precision {words}{widest}")?;
        }
        let mut group = None;
        for row in &self.rows {
            if group != Some(&row.group) {
                group = Some(&row.group);
                let name = row.group.as_deref().unwrap_or("the host");
                let heads = ["mean", "effect", "95% interval"];
                writeln!(f, "\n{name:36}     {:>12} {:>9} {:>20}", heads[0], heads[1], heads[2])?;
            }
            for (at, figure) in row.figures.iter().enumerate() {
                let name = if at == 0 { row.measure.as_str() } else { "" };
                write!(f, "{name:36} [{}] {:>12}", at + 1, number(figure.mean))?;
                write_effect(f, figure, row.better)?;
                writeln!(f)?;
            }
        }
        Ok(())
    }
}

/// The effect, its interval and what that says.
pub(super) fn write_effect(f: &mut fmt::Formatter<'_>, figure: &Figure, better: Better) -> fmt::Result {
    if let Some(pct) = figure.effect_pct {
        write!(f, " {:>9}", format!("{pct:+.1}%"))?;
    }
    if let Some((low_pct, high_pct)) = figure.interval_pct {
        write!(f, " {:>20}", format!("[{low_pct:+.1}, {high_pct:+.1}]"))?;
        let word = figure.verdict(better);
        write!(f, "{}{word}", if word.is_empty() { "" } else { " " })?;
    }
    Ok(())
}
