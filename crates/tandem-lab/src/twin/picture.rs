//! The answers to what-if as a page with pictures, for a browser. It needs nothing from elsewhere.

use super::what_if::{Answer, Outcome, Shown, WhatIf};
use crate::report::svg::{Anchor, Svg};
use askama::Template;
use tandem_file::shown::readable;

#[derive(Template)]
#[template(path = "what-if.html")]
struct Page<'a> {
    name: &'a str,
    answer: &'a WhatIf,
    off: String,
    pictures: Vec<(String, String)>,
    rows: Vec<(&'a str, String, String, String)>,
}

/// The page about a recording of that name.
///
/// # Errors
/// None that a user could cause.
pub fn html(name: &str, answer: &WhatIf) -> Result<String, askama::Error> {
    let off = answer.replay_off_pct[0].map_or(String::new(), |pct| {
        format!("The replay of the recorded situation itself is off by {pct:+.0}% in the time of waiting.")
    });
    let groups = answer.answers.first().map_or(0, |recorded| recorded.outcomes.len());
    let pictures = (0..groups)
        .map(|at| {
            let group = &answer.answers[0].outcomes[at].group;
            let title = if at == 0 { "All tasks".to_owned() } else { readable(group, &[]) };
            let picture = bars(&title, &answer.answers, at);
            (title, picture)
        })
        .collect();
    let rows = answer.answers.iter().map(|answer| {
        let total = answer.outcomes.first();
        let shown = |of: fn(&Outcome) -> Shown| {
            total.map_or_else(|| answer.problem.clone().unwrap_or_default(), |total| of(total).words())
        };
        let words = match (&answer.problem, total) {
            (Some(problem), Some(_)) => format!("{}; not trusted: {problem}", answer.words),
            _ => answer.words.clone(),
        };
        (answer.variant, words, shown(|it| it.wait_s), shown(|it| it.wait_p99_us))
    });
    Page { name, answer, off, pictures, rows: rows.collect() }.render()
}

/// Size of a picture, and what it consists of, in units of the page.
const WIDTH: f64 = 900.0;
const NAMES: f64 = 110.0;
const ROW: f64 = 44.0;
const BAR: f64 = 14.0;

/// The differences in a group's time of waiting, and in its 99th percentile, variant by variant.
fn bars(title: &str, answers: &[Answer], group: usize) -> String {
    let variants: Vec<&Answer> = answers[1..].iter().filter(|answer| answer.outcomes.len() > group).collect();
    let height = ROW * variants.len() as f64 + 40.0;
    let mut svg = Svg::new(WIDTH, height, &format!("{title}: change of waits by variant, percent"));
    // Gains end at -100%; losses beyond that are cut there.
    let x = |pct: f64| NAMES + (WIDTH - NAMES - 60.0) * (pct.clamp(-100.0, 100.0) + 100.0) / 200.0;
    for pct in [-100.0, -50.0, 0.0, 50.0, 100.0] {
        let class = if pct == 0.0 { "zero" } else { "grid" };
        svg.line((x(pct), 8.0), (x(pct), height - 28.0), class);
        svg.text((x(pct), height - 10.0), Anchor::Middle, "tick", &format!("{pct:+.0}%"));
    }
    for (at, answer) in variants.iter().enumerate() {
        let top = 12.0 + ROW * at as f64;
        let outcome = &answer.outcomes[group];
        svg.text((NAMES - 8.0, top + BAR + 4.0), Anchor::End, "tick", answer.variant);
        for (line, (measure, shown)) in
            [("wait", outcome.wait_s), ("p99", outcome.wait_p99_us)].into_iter().enumerate()
        {
            let Some(effect) = shown.effect_pct else { continue };
            let y = top + (BAR + 2.0) * line as f64;
            let class = if effect < 0.0 { "gain" } else { "loss" };
            svg.rect((x(0.0), y), (x(effect), y + BAR - 2.0), class);
            if let (Some(low), Some(high)) = (shown.low_pct, shown.high_pct) {
                svg.line((x(low), y + BAR / 2.0 - 1.0), (x(high), y + BAR / 2.0 - 1.0), "whisker");
            }
            let more = if effect > 100.0 { format!(" ({effect:+.0}%)") } else { String::new() };
            svg.text(
                (x(effect.max(0.0)) + 6.0, y + BAR - 4.0),
                Anchor::Start,
                "tick",
                &format!("{measure}{more}"),
            );
        }
    }
    svg.finish()
}
