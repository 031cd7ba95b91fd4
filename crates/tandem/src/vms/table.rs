//! The table of all VMs, a line each.

use std::fmt::Write;
use tandemd::observe::{Observation, ObservedVm};
use tandemd::text::{Percentages, UNKNOWN, by, bytes, cut, home, main_node, name, pct};

const TITLES: [&str; 11] =
    ["NAME", "BY", "PID", "VCPU", "MEMORY", "NODE", "HOME", "CPU", "WAIT", "STEAL", "LOCAL"];

/// Columns with text, which stands on the left; numbers stand on the right.
const TEXT_COLUMNS: [usize; 2] = [0, 1];

/// A name has this many columns at least, however narrow the terminal is.
const SHORTEST_NAME: usize = 8;

/// The columns of the terminal that standard output is; `None` if it is a file or a pipe.
pub fn width_of_terminal() -> Option<usize> {
    terminal_size::terminal_size_of(std::io::stdout()).map(|(width, _)| width.0.into())
}

/// Draws the table. Names are cut to the width; the reasons for homes are shown if there is room for them.
pub fn draw(observation: &Observation, width: Option<usize>) -> String {
    let mut text = match observation.vms.is_empty() {
        true => "no virtual machines are running\n".to_owned(),
        false => rows_of(observation, width),
    };
    for note in &observation.notes {
        let _ = writeln!(text, "{note}");
    }
    text
}

/// The titles and a line for each VM.
fn rows_of(observation: &Observation, width: Option<usize>) -> String {
    let mut rows: Vec<[String; 11]> = vec![TITLES.map(str::to_owned)];
    rows.extend(observation.vms.iter().map(|vm| row(vm, observation)));
    let length = |text: &String| text.chars().count();
    let mut widths: [usize; 11] =
        std::array::from_fn(|column| rows.iter().map(|row| length(&row[column])).max().unwrap_or(0));
    let others: usize = widths[1..].iter().map(|width| width + 1).sum();
    if let Some(width) = width {
        widths[0] = widths[0].min(width.saturating_sub(others).max(SHORTEST_NAME));
    }
    let reasons: Vec<String> = std::iter::once("WHY".to_owned())
        .chain(observation.vms.iter().map(|vm| name(&vm.homes.why)))
        .collect();
    let with_reasons = widths[0] + others + 1 + reasons.iter().map(length).max().unwrap_or(0);
    let is_room = width.is_some_and(|width| with_reasons <= width);

    let mut text = String::new();
    for (row, reason) in rows.iter().zip(&reasons) {
        let mut line = String::new();
        for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
            let cell = cut(cell, width);
            let gap = if column == 0 { "" } else { " " };
            let _ = match TEXT_COLUMNS.contains(&column) {
                true => write!(line, "{gap}{cell:<width$}"),
                false => write!(line, "{gap}{cell:>width$}"),
            };
        }
        if is_room {
            let _ = write!(line, " {reason}");
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

fn row(vm: &ObservedVm, observation: &Observation) -> [String; 11] {
    let unknown = || UNKNOWN.to_owned();
    let amount = |amount: Option<u64>| amount.map_or_else(unknown, bytes);
    let percentages = Percentages::of(vm, observation);
    [
        name(&vm.vm.name),
        by(&vm.vm),
        vm.vm.identity.pid.to_string(),
        vm.vcpu_count().to_string(),
        format!("{}/{}", amount(vm.memory.resident_bytes), amount(vm.vm.memory_bytes)),
        main_node(&vm.memory).unwrap_or_else(unknown),
        home(&vm.homes),
        pct(Some(percentages.cpu)),
        pct(percentages.wait),
        pct(percentages.steal),
        percentages.local.map_or("-".into(), |local| pct(Some(local))),
    ]
}
