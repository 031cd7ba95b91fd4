//! What the scheduler decided: a line for each of its mechanisms.

use super::WIDE;
use crate::top::sample::{Sample, SchedulerSample};
use ratatui::style::Stylize;
use ratatui::text::{Line, Span};
use tandem_settings::Mode;
use tandemd::text::{cut, pct, rate};

/// The mechanisms' names have so many columns.
const SUBJECT: usize = 14;

/// The lines; one that says why, if nothing is known.
pub fn lines(sample: &Sample, width: u16) -> Vec<Line<'static>> {
    let scheduler = match &sample.scheduler {
        Ok(scheduler) => scheduler,
        Err(why) => return vec![Line::from(cut(why, width.into())).yellow()],
    };
    let facts = facts(scheduler);
    let columns = if width >= WIDE { 2 } else { 1 };
    let width = usize::from(width) / columns;
    let lines = facts.chunks(columns).map(|facts| {
        let spans = facts.iter().flat_map(|(subject, about)| {
            let about_width = width.saturating_sub(SUBJECT);
            [format!("{subject:<SUBJECT$}").dim(), Span::raw(format!("{about:<about_width$}"))]
        });
        Line::from(spans.collect::<Vec<_>>())
    });
    lines.collect()
}

/// The mechanisms, and what each has done.
fn facts(scheduler: &SchedulerSample) -> Vec<(&'static str, String)> {
    let per_s = |counter: &str| scheduler.rate(counter).unwrap_or(0.0);
    let told = |counter: &str| rate(per_s(counter)) + "/s";
    let share = |part: f64, whole: f64| match whole > 0.0 {
        true => pct(Some(100.0 * part / whole)),
        false => "-".into(),
    };
    let [idle, queued, stay] = ["wake_idle", "wake_queued", "wake_stay"].map(per_s);
    let wake_ups = idle + queued + stay;
    let [preferred, elsewhere, waited, whole] =
        ["soft_preferred", "soft_rest", "soft_waited", "soft_whole"].map(per_s);
    let choices = preferred + elsewhere + waited + whole;
    let [tried, honoured] = ["yield_to", "yield_to_honoured"].map(per_s);
    let mut facts = vec![
        (
            "wake-ups",
            format!(
                "{}/s: {} to idle CPUs, {} queued, {} stay; {} preempt",
                rate(wake_ups),
                share(idle, wake_ups),
                share(queued, wake_ups),
                share(stay, wake_ups),
                told("preempted")
            ),
        ),
        (
            "preferences",
            format!(
                "{}/s: {} at home, {} wait for it, {} elsewhere; {} return",
                rate(choices),
                share(preferred, choices),
                share(waited, choices),
                share(elsewhere + whole, choices),
                told("soft_returned")
            ),
        ),
        (
            "migrations",
            format!(
                "{} in the node, {} between nodes, {} to shorter queues",
                told("stolen_near"),
                told("stolen_far"),
                told("balanced")
            ),
        ),
        (
            "yields",
            format!(
                "{} plain; {}/s to a vCPU, {} honoured",
                told("yields"),
                rate(tried),
                share(honoured, tried)
            ),
        ),
        (
            "rate control",
            format!(
                "{} windows limited; preemptions: {} refused, {} delayed",
                told("rate_windows"),
                told("rate_limited"),
                told("ratelimit_delayed")
            ),
        ),
    ];
    if scheduler.mode == Mode::Guest {
        facts.push(("steal", format!("{} idle vCPUs passed over", told("guest_stolen"))));
    }
    facts
}
