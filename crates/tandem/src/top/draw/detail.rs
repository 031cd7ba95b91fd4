//! One VM: what there is to tell of it, and its threads.

use super::{TITLE, alarm, cell};
use crate::top::sample::Sample;
use crate::top::state::State;
use crate::vms::detail::{facts, in_order, kind};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Row, Table};
use std::borrow::Cow;
use tandem_host::vms::Identity;
use tandem_machine::format_cpulist;
use tandem_settings::{Held, Place};
use tandemd::observe::{ObservedThread, ObservedVm};
use tandemd::text::{UNKNOWN, name, pct, rate};
use textwrap::wrap;

const TITLES: [&str; 8] = ["TID", "NAME", "KIND", "RUN", "WAIT", "CPU", "MIGR/s", "PREFERS, MAY USE"];
/// Columns of a label.
const SUBJECT: usize = 9;
const WIDTHS: [u16; 7] = [7, 15, 9, 5, 5, 4, 6];

/// Draws it; returns how many threads there is room for.
pub fn draw(frame: &mut Frame<'_>, area: Rect, state: &State, vm: Identity) -> usize {
    let Some(sample) = &state.sample else { return 1 };
    let Some(vm) = sample.vm(vm) else {
        frame.render_widget("the virtual machine has ended", area);
        return 1;
    };
    let room = usize::from(area.width).saturating_sub(SUBJECT);
    let facts: Vec<Line<'static>> = facts(vm, &sample.vms)
        .into_iter()
        .flat_map(|(subject, about)| {
            let lines: Vec<String> = wrap(&about, room).into_iter().map(Cow::into_owned).collect();
            lines.into_iter().enumerate().map(move |(at, line)| {
                let subject = if at == 0 { subject } else { "" };
                Line::from(vec![format!("{subject:<SUBJECT$}").dim(), Span::raw(line)])
            })
        })
        .collect();
    let heights = [Constraint::Length(facts.len() as u16 + 1), Constraint::Min(2)];
    let [above, below] = Layout::vertical(heights).areas(area);
    frame.render_widget(Paragraph::new(facts), above);
    let page = usize::from(below.height.saturating_sub(1)).max(1);
    let threads = in_order(vm);
    // Threads may have ended since somebody scrolled.
    let first = state.scroll.min(threads.len().saturating_sub(page));
    let lines = threads[first..].iter().map(|observed| line(observed, vm, sample));
    let is_text = [false, true, true, false, false, false, false, true];
    let titles = TITLES.iter().zip(is_text).map(|(title, is_text)| cell((*title).into(), is_text, TITLE));
    let widths = WIDTHS.map(Constraint::Length).into_iter().chain([Constraint::Fill(1)]);
    frame.render_widget(Table::new(lines, widths).header(Row::new(titles).style(TITLE)), below);
    page
}

fn line(observed: &ObservedThread, vm: &ObservedVm, sample: &Sample) -> Row<'static> {
    let (thread, usage) = (&observed.thread, &observed.usage);
    let unknown = || UNKNOWN.to_owned();
    let of_interval = |ns: u64| 100.0 * ns as f64 / sample.vms.interval.as_nanos() as f64;
    let wait_pct = usage.wait_ns.map(of_interval);
    let allowed = match &observed.cpus {
        Some(cpus) if vm.limits.is_pinned => format!("may use CPUs {}", format_cpulist(cpus.iter().copied())),
        _ => String::new(),
    };
    let prefers = sample.preferences.get(&thread.tid).map(prefers).unwrap_or_default();
    let gap = if prefers.is_empty() || allowed.is_empty() { "" } else { "; " };
    let migrations = sample.thread_migrations.get(&thread.tid).copied();
    Row::new([
        cell(thread.tid.to_string(), false, Style::new()),
        cell(name(&thread.name), true, Style::new()),
        cell(kind(thread), true, Style::new()),
        cell(pct(Some(of_interval(usage.run_ns))), false, Style::new()),
        cell(pct(wait_pct), false, alarm(wait_pct, 5.0, 20.0)),
        cell(usage.cpu.map_or_else(unknown, |cpu| cpu.to_string()), false, Style::new()),
        cell(migrations.map_or_else(unknown, rate), false, Style::new()),
        cell(format!("{prefers}{gap}{allowed}"), true, Style::new()),
    ])
}

/// What a thread prefers, and how much of its time it was there.
fn prefers(held: &Held) -> String {
    let mut text = match &held.preference.place {
        Some(Place::Nodes { nodes, .. }) => format!("nodes {}", format_cpulist(nodes.iter().copied())),
        Some(Place::Cpus(cpus)) => format!("CPUs {}", format_cpulist(cpus.iter().copied())),
        None => String::new(),
    };
    if held.preference.latency_critical {
        text += if text.is_empty() { "latency-critical" } else { ", latency-critical" };
    }
    match held.home_ns + held.away_ns {
        0 => text,
        ran_ns => format!("{text}: {} there", pct(Some(100.0 * held.home_ns as f64 / ran_ns as f64))),
    }
}
