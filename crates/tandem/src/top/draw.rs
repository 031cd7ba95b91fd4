//! Draws what is shown: the machine above, the scheduler below it, then the VMs, or one of them.
//!
//! Everything fits 80 columns; wider terminals get more columns, not wider ones. Colours only repeat what the
//! text says.

mod detail;
mod help;
mod machine;
mod scheduler;
mod vms;

use super::sample::{Sample, busy};
use super::state::{State, View};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Cell, Paragraph};
use tandem_host::vms::HomeSource;
use tandemd::text::{age, cut, many, pct};

/// Fewer columns or lines hold nothing of use.
const WIDTH_MIN: u16 = 40;
const HEIGHT_MIN: u16 = 8;
/// From here on, panels have two columns.
const WIDE: u16 = 160;

/// Titles of tables.
const TITLE: Style = Style::new().fg(Color::Black).bg(Color::Cyan);
/// The line that keys act on.
const SELECTED: Style = Style::new().fg(Color::White).bg(Color::Blue).add_modifier(Modifier::BOLD);

/// Draws all of it.
pub fn draw(frame: &mut Frame<'_>, state: &mut State) {
    let area = frame.area();
    if area.width < WIDTH_MIN || area.height < HEIGHT_MIN {
        frame.render_widget(format!("tandem top needs {WIDTH_MIN} x {HEIGHT_MIN}"), area);
        return;
    }
    if state.view == View::Help {
        state.scroll = help::draw(frame, area, state.scroll);
        return;
    }
    let Some(sample) = &state.sample else {
        frame.render_widget("tandem: sampling ...", area);
        return;
    };
    let machine = machine::lines(sample, area.width, area.height);
    let scheduler = scheduler::lines(sample, area.width);
    let note = sample.vms.notes.first().map(|first| match sample.vms.notes.len() {
        1 => first.clone(),
        count => format!("{first} (and {} more: `tandem vms`)", count - 1),
    });
    let heights = [
        Constraint::Length(1),
        Constraint::Length(machine.len() as u16),
        Constraint::Length(scheduler.len() as u16),
        Constraint::Min(3),
        Constraint::Length(note.is_some().into()),
        Constraint::Length(1),
    ];
    let [top, machine_area, scheduler_area, main, note_area, bottom] = Layout::vertical(heights).areas(area);
    frame.render_widget(headline(sample, state, top), top);
    frame.render_widget(Paragraph::new(machine), machine_area);
    frame.render_widget(Paragraph::new(scheduler), scheduler_area);
    if let Some(note) = note {
        frame.render_widget(Line::from(cut(&note, note_area.width.into())).yellow(), note_area);
    }
    frame.render_widget(keys(state), bottom);
    state.page = usize::from(main.height.saturating_sub(1)).max(1);
    match state.view {
        View::Detail(vm) => state.page = detail::draw(frame, main, state, vm),
        _ => vms::draw(frame, main, state),
    }
}

fn headline(sample: &Sample, state: &State, area: Rect) -> Line<'static> {
    let vms = &sample.vms.vms;
    let vcpus: usize = vms.iter().map(|vm| vm.vcpu_count()).sum();
    let cpus = sample.machine.cpus().count();
    let busy = pct(Some(100.0 * busy(sample.machine.cpus())));
    let scheduler = match &sample.scheduler {
        Ok(scheduler) => {
            let age = age(scheduler.since.elapsed().unwrap_or_default());
            format!("{} mode for {age}   ", scheduler.mode.name())
        }
        // The line of the scheduler says why.
        Err(_) if vms.iter().any(|vm| vm.homes.source == Some(HomeSource::Planned)) => "observing   ".into(),
        Err(_) => String::new(),
    };
    let left = format!("tandem: {scheduler}{} with {}", many(vms.len(), "VM"), many(vcpus, "vCPU"));
    let right = match state.is_paused {
        true => "PAUSED".to_owned(),
        false => format!("{} {busy} busy", many(cpus, "CPU")),
    };
    let gap = usize::from(area.width).saturating_sub(left.chars().count() + right.chars().count()).max(1);
    Line::from(vec![left.bold(), Span::raw(" ".repeat(gap)), right.bold()])
}

/// The last line: what is typed, or which keys there are.
fn keys(state: &State) -> Line<'static> {
    if state.view == View::Filter {
        return Line::from(format!("show VMs with: {}▏", state.filter)).bold();
    }
    let keys: &[(&str, &str)] = match state.view {
        View::Detail(_) => &[("esc", "back"), ("↑↓", "threads"), ("space", "pause"), ("?", "help")],
        _ => &[
            ("↑↓", "select"),
            ("⏎", "detail"),
            ("<>", "sort"),
            ("r", "reverse"),
            ("/", "filter"),
            ("space", "pause"),
            ("?", "help"),
            ("q", "quit"),
        ],
    };
    let mut spans = Vec::new();
    for (key, what) in keys {
        spans.extend([key.to_string().bold(), Span::raw(format!(" {what}  ")).dim()]);
    }
    if !state.filter.is_empty() && state.view == View::List {
        spans.insert(0, format!("with `{}`  ", state.filter).yellow());
    }
    Line::from(spans)
}

/// One cell, on the left or on the right.
fn cell(text: String, is_text: bool, style: Style) -> Cell<'static> {
    let line = Line::from(text);
    Cell::from(Text::from(if is_text { line } else { line.right_aligned() })).style(style)
}

/// A share as the height of a block.
fn block(share: f64) -> char {
    const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    BLOCKS[(share.clamp(0.0, 1.0) * 8.0).round() as usize]
}

/// How far from good a figure is, in colour: nothing, from `noticed` on yellow, from `bad` on red.
fn alarm(figure: Option<f64>, noticed: f64, bad: f64) -> Style {
    // Of some figures less is worse.
    let is_worse = |figure: f64, limit| if bad > noticed { figure >= limit } else { figure <= limit };
    let is_beyond = |limit| figure.is_some_and(|figure| is_worse(figure, limit));
    match () {
        () if is_beyond(bad) => Style::new().red(),
        () if is_beyond(noticed) => Style::new().yellow(),
        () => Style::new(),
    }
}
