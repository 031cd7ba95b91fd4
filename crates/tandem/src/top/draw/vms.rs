//! The table of VMs.

use super::{SELECTED, TITLE, alarm, block, cell};
use crate::top::column::Column;
use crate::top::sample::Sample;
use crate::top::state::{State, TREND_MAX};
use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::style::Style;
use ratatui::widgets::{Row, Table, TableState};
use tandemd::observe::ObservedVm;
use tandemd::text::{Percentages, cut, name};

/// A name gets so much before other columns come.
const NAME: usize = 20;
/// Trends and reasons come where there is so much left for them.
const TREND_MIN: usize = 10;
const WHY_MIN: usize = 24;

/// What stands in a column.
#[derive(Clone, Copy, PartialEq)]
enum Shown {
    Column(Column),
    /// How its load went.
    Trend,
    /// Why it lives where it does.
    Why,
}

/// Draws the table.
pub fn draw(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let Some(sample) = &state.sample else { return };
    let rows = state.rows();
    if rows.is_empty() {
        let text = match sample.vms.vms.is_empty() {
            true => "no virtual machines are running".to_owned(),
            false => format!("no VM has `{}` in its name or manager", state.filter),
        };
        frame.render_widget(text, area);
        return;
    }
    let columns = columns(&rows, sample, area.width.into());
    let titles = columns.iter().map(|&(shown, width)| {
        let title = match shown {
            Shown::Column(column) if column == state.sorted_by => {
                format!("{}{}", column.title(), if state.is_reversed { '▲' } else { '▼' })
            }
            Shown::Column(column) => column.title().into(),
            Shown::Trend => "TREND".into(),
            Shown::Why => "WHY".into(),
        };
        cell(cut(&title, width), is_text(shown), TITLE)
    });
    let header = Row::new(titles).style(TITLE);
    let selected = state.selected_row(&rows);
    let lines = rows.iter().map(|vm| {
        Row::new(columns.iter().map(|&(shown, width)| {
            let text = match shown {
                Shown::Column(column) => column.cell(vm, sample),
                Shown::Trend => trend(vm, state, width),
                Shown::Why => name(&vm.homes.why),
            };
            cell(cut(&text, width), is_text(shown), style(shown, vm, sample))
        }))
    });
    let widths = columns.iter().map(|&(_, width)| Constraint::Length(width as u16));
    let table = Table::new(lines, widths).header(header).row_highlight_style(SELECTED);
    frame.render_stateful_widget(table, area, &mut TableState::new().with_selected(Some(selected)));
}

fn is_text(shown: Shown) -> bool {
    match shown {
        Shown::Column(column) => column.is_text(),
        Shown::Trend | Shown::Why => true,
    }
}

/// The columns that there is room for, with their widths.
fn columns(rows: &[&ObservedVm], sample: &Sample, room: usize) -> Vec<(Shown, usize)> {
    let needed = |column: Column| {
        let cells = rows.iter().map(|vm| column.cell(vm, sample).chars().count());
        cells.max().unwrap_or(0).max(column.width_min())
    };
    let name = needed(Column::Name);
    let mut widths: Vec<(Column, usize)> = Column::ALL
        .iter()
        .filter(|column| !Column::SPARE.contains(column))
        .map(|&column| (column, if column == Column::Name { name.min(NAME) } else { needed(column) }))
        .collect();
    let used = |widths: &[(Column, usize)]| widths.iter().map(|(_, width)| width + 1).sum::<usize>() - 1;
    for column in Column::SPARE {
        let width = needed(column);
        if used(&widths) + 1 + width <= room {
            widths.push((column, width));
        }
    }
    let mut left = room.saturating_sub(used(&widths));
    // In a narrow terminal it is the name that gives way.
    let is_narrow = used(&widths) > room;
    if let Some((_, width)) = widths.iter_mut().find(|(column, _)| *column == Column::Name) {
        let more = left.min(name - *width);
        *width += more;
        left -= more;
        if is_narrow {
            *width = Column::Name.width_min().min(*width);
        }
    }
    let mut shown: Vec<(Shown, usize)> = Column::ALL
        .iter()
        .filter_map(|column| widths.iter().find(|(known, _)| known == column))
        .map(|&(column, width)| (Shown::Column(column), width))
        .collect();
    if left > TREND_MIN {
        // Reasons come after it, if they get enough.
        let width = if left > TREND_MAX + WHY_MIN { TREND_MAX } else { (left - 1).min(TREND_MAX) };
        shown.push((Shown::Trend, width));
        left -= width + 1;
    }
    if left > WHY_MIN {
        shown.push((Shown::Why, left - 1));
    }
    shown
}

/// The CPU of its last samples, of what its vCPUs could have; the last one on the right.
fn trend(vm: &ObservedVm, state: &State, width: usize) -> String {
    let Some(trend) = state.trends.get(&vm.vm.identity) else { return String::new() };
    let full_pct = 100.0 * vm.vcpu_count().max(1) as f64;
    let skipped = trend.len().saturating_sub(width);
    let blocks = trend.iter().skip(skipped).map(|cpu_pct| block(cpu_pct / full_pct));
    format!("{:>width$}", blocks.collect::<String>())
}

fn style(shown: Shown, vm: &ObservedVm, sample: &Sample) -> Style {
    let percentages = Percentages::of(vm, &sample.vms);
    match shown {
        Shown::Column(Column::Steal) => alarm(percentages.steal, 5.0, 20.0),
        Shown::Column(Column::Wait) => alarm(percentages.wait, 10.0, 50.0),
        Shown::Column(Column::Local) => alarm(percentages.local, 80.0, 50.0),
        Shown::Trend => Style::new().fg(ratatui::style::Color::Cyan),
        _ => Style::new(),
    }
}
