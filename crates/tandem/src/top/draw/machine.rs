//! A line for each node: its load, that of its last-level caches and CPUs, its free memory.

use super::{WIDE, block};
use crate::top::sample::{CpuSample, NodeSample, Sample, busy};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use tandemd::text::{bytes, pct};

/// Width of the bar, and of what stands around it.
const BAR: usize = 20;
/// Nodes get so much of the height at most.
const HEIGHT_SHARE: u16 = 4;
/// As many lines they have in any case.
const LINES_MIN: usize = 2;
/// A CPU with at least this share of steal is marked as stolen.
const STOLEN_MIN: f64 = 0.005;

/// The lines, for a terminal of that size.
pub fn lines(sample: &Sample, width: u16, height: u16) -> Vec<Line<'static>> {
    let nodes = &sample.machine.nodes;
    let lines_max = usize::from(height / HEIGHT_SHARE).max(LINES_MIN);
    let columns = if width >= WIDE && nodes.len() > lines_max { 2 } else { 1 };
    let width = usize::from(width) / columns;
    let (shown, rest) = match nodes.len().div_ceil(columns) <= lines_max {
        true => (&nodes[..], &[][..]),
        false => nodes.split_at((lines_max - 1) * columns),
    };
    let label_width = nodes.iter().map(|node| node.number.to_string().len()).max().unwrap_or(1);
    let mut lines: Vec<Line<'static>> = shown
        .chunks(columns)
        .map(|nodes| {
            let mut spans = Vec::new();
            for node in nodes {
                let mut of_node = spans_of(node, label_width, width);
                let length: usize = of_node.iter().map(Span::width).sum();
                of_node.push(Span::raw(" ".repeat(width.saturating_sub(length))));
                spans.extend(of_node);
            }
            Line::from(spans)
        })
        .collect();
    if !rest.is_empty() {
        let busy = pct(Some(100.0 * busy(rest.iter().flat_map(NodeSample::cpus))));
        lines.push(Line::from(format!("and {} more nodes, {busy} busy", rest.len())).dim());
    }
    lines
}

fn spans_of(node: &NodeSample, label_width: usize, width: usize) -> Vec<Span<'static>> {
    let share = busy(node.cpus());
    let full = (share * BAR as f64).round() as usize;
    let cpus = node.cpus().count();
    let mut spans = vec![
        Span::raw(format!("node {:<label_width$} ", node.number)),
        "█".repeat(full).fg(load_colour(share)),
        "░".repeat(BAR.saturating_sub(full)).dark_gray(),
        Span::raw(format!(" {:>4} of {cpus:>3} CPUs ", pct(Some(100.0 * share)))),
        Span::raw(format!("{:>5} free", bytes(node.free_bytes))),
    ];
    let stolen = node.cpus().map(|cpu| cpu.stolen).sum::<f64>() / cpus.max(1) as f64;
    if stolen >= STOLEN_MIN {
        spans.push(format!(" {} stolen", pct(Some(100.0 * stolen))).yellow());
    }
    let used: usize = spans.iter().map(Span::width).sum();
    spans.extend(caches(node, width.saturating_sub(used)));
    spans
}

/// How a cache is drawn.
type Way<'a> = &'a dyn Fn(&Vec<CpuSample>) -> Vec<Span<'static>>;

/// The caches, as much of them as there is room for: with their CPUs, in figures, or a block each.
fn caches(node: &NodeSample, room: usize) -> Vec<Span<'static>> {
    let figure = |llc: &Vec<CpuSample>| pct(Some(100.0 * busy(llc)));
    let cpus = |llc: &Vec<CpuSample>| -> Vec<Span<'static>> {
        llc.iter().map(|cpu| block(cpu.busy).to_string().fg(load_colour(cpu.busy)).on_black()).collect()
    };
    let ways: [Way<'_>; 4] = [
        &|llc| {
            let mut spans = cpus(llc);
            spans.push(Span::raw(format!(" {:<4} ", figure(llc))));
            spans
        },
        &|llc| {
            let mut spans = cpus(llc);
            spans.push(Span::raw(" "));
            spans
        },
        &|llc| vec![Span::raw(format!("{} ", figure(llc)))],
        &|llc| vec![block(busy(llc)).to_string().fg(load_colour(busy(llc))).on_black()],
    ];
    let title = if node.llcs.len() == 1 { "  LLC " } else { "  LLCs " };
    ways.iter()
        .map(|way| {
            let mut spans = vec![Span::styled(title, Style::new().dim())];
            spans.extend(node.llcs.iter().flat_map(way));
            spans
        })
        .find(|spans| spans.iter().map(Span::width).sum::<usize>() <= room)
        .unwrap_or_default()
}

fn load_colour(share: f64) -> Color {
    match share {
        share if share < 0.7 => Color::Green,
        share if share < 0.9 => Color::Yellow,
        _ => Color::Red,
    }
}
