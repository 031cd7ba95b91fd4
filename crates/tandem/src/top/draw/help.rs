//! What the columns and lines mean.

use crate::top;
use crate::vms;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Stylize;
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

const LINES: &str = "  MIGR/s  how often its vCPUs changed their CPU, per second
  TREND   CPU of the samples before, of what its vCPUs could have
  WHY     why it lives on its home nodes

Lines of the scheduler, in events per second:
  wake-ups      where waking tasks went
  preferences   where tasks went that prefer some CPUs, as those of VMs with a home do
  migrations    tasks that idle CPUs took from elsewhere
  yields        vCPUs that spin give their CPU to the one that KVM names
  rate control  windows of so many decisions that the next had fewer preemptions
";

/// Draws it over everything, without the first lines; returns how many of them are left out.
pub fn draw(frame: &mut Frame<'_>, area: Rect, scroll: usize) -> usize {
    let keys = top::HELP.split("\n\n").next().unwrap_or_default();
    let columns = vms::HELP.split("\n\n").next().unwrap_or_default();
    let text = format!("{keys}\n\n{columns}\n{LINES}");
    let [above, below] = Layout::vertical([Constraint::Min(1), Constraint::Length(1)]).areas(area);
    let scroll = scroll.min(text.lines().count().saturating_sub(above.height.into()));
    frame.render_widget(Paragraph::new(text).scroll((scroll as u16, 0)), above);
    frame.render_widget(Line::from("↑↓ scroll, another key goes back").bold(), below);
    scroll
}
