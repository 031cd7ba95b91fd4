//! The pictures of a comparison.

use super::moment::{COLUMNS, Moment, Who};
use super::{Comparison, Figure, Row};
use crate::report::number;
use crate::report::plot::scale::{Scale, Spacing, logarithmic_ticks};
use crate::report::plot::{COLOURS, SHAPES};
use crate::report::svg::{Anchor, Shape, Svg};
use crate::results::Better;
use tandem_sim::times::Times;

const LETTER: f64 = 7.4;

/// Colour and shape of a contender: the baseline has its own.
fn mark(contender: usize) -> (String, Shape) {
    match contender.checked_sub(1) {
        None => ("base".into(), Shape::Circle),
        Some(at) => (format!("s{}", at % COLOURS), SHAPES[at % SHAPES.len()]),
    }
}

/// The colour of a group.
fn colour(group: usize) -> String {
    format!("s{}", group % COLOURS)
}

/// A small picture of the mark of a contender.
pub(super) fn swatch(contender: usize, name: &str) -> String {
    let (colour, shape) = mark(contender);
    let mut svg = Svg::new(16.0, 16.0, name);
    svg.marker(shape, (8.0, 8.0), 5.0, &format!("mark {colour}"), None);
    svg.finish()
}

/// A small picture of the colour of a group, by position.
pub(super) fn patch(group: usize, name: &str) -> String {
    let mut svg = Svg::new(16.0, 16.0, name);
    svg.rect((2.0, 3.0), (14.0, 13.0), &format!("mark {}", colour(group)));
    svg.finish()
}

/// Parts of the times at which a distribution is drawn, and the largest of them in powers of ten of what is left: 99.99%
/// of the times are below.
const POINTS: usize = 81;
const NINES: f64 = 4.0;
/// The least time on a scale, us: a nanosecond has no width.
const TIME_MIN_US: f64 = 0.1;

/// Distributions, one a contender: the share of times, from none to 99.99%, that are shorter than a time. The scale of
/// shares gives each nine the same room, as delays are about their last percent. `None` without times.
pub(super) fn distributions(title: &str, names: &[String], times: &[&Times]) -> Option<String> {
    const WIDTH: f64 = 440.0;
    const HEIGHT: f64 = 270.0;
    const LEFT: f64 = 56.0;
    const RIGHT: f64 = 14.0;
    const TOP: f64 = 12.0;
    const BOTTOM: f64 = 46.0;
    let parts: [f64; POINTS] =
        std::array::from_fn(|at| 1.0 - 10f64.powf(-NINES * at as f64 / (POINTS - 1) as f64));
    let curve = |times: &&Times| -> Vec<(f64, f64)> {
        // Beyond its last time a distribution is not known.
        let known = (times.count() as f64).log10();
        let values_ns = times.quantiles_ns(parts);
        let points = values_ns
            .iter()
            .enumerate()
            .map(|(at, &ns)| ((ns as f64 / 1e3).max(TIME_MIN_US), NINES * at as f64 / (POINTS - 1) as f64));
        points.filter(|(_, nines)| times.count() > 0 && *nines <= known).collect()
    };
    let curves: Vec<Vec<(f64, f64)>> = times.iter().map(curve).collect();
    if curves.iter().all(Vec::is_empty) {
        return None;
    }
    let ticks = logarithmic_ticks(curves.iter().flatten().map(|(us, _)| *us));
    let (first, last) = (ticks.first()?, ticks.last()?);
    // All times alike make one tick.
    let ends = (first.0, if last.0 > first.0 { last.0 } else { 10.0 * first.0 });
    let x = Scale { values: ends, places: (LEFT, WIDTH - RIGHT), spacing: Spacing::Logarithmic };
    let y = Scale::linear((0.0, NINES), (HEIGHT - BOTTOM, TOP));

    let mut svg = Svg::new(WIDTH, HEIGHT, &format!("{title}: share of times that are shorter"));
    for (nines, label) in
        [(0.0, "0"), (2f64.log10(), "50%"), (1.0, "90%"), (2.0, "99%"), (3.0, "99.9%"), (4.0, "99.99%")]
    {
        let class = if nines == 0.0 { "zero" } else { "grid" };
        svg.line((LEFT, y.place(nines)), (WIDTH - RIGHT, y.place(nines)), class);
        svg.text((LEFT - 7.0, y.place(nines) + 4.0), Anchor::End, "tick", label);
    }
    // Labels of many ticks would run into each other.
    let step = ticks.len().div_ceil(8);
    for (at, (us, label)) in ticks.iter().enumerate() {
        svg.line((x.place(*us), TOP), (x.place(*us), HEIGHT - BOTTOM + 4.0), "grid");
        if at % step == 0 {
            svg.text((x.place(*us), HEIGHT - BOTTOM + 18.0), Anchor::Middle, "tick", label);
        }
    }
    svg.text(((LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 6.0), Anchor::Middle, "axis", "us");
    for (contender, curve) in curves.iter().enumerate() {
        let (colour, shape) = mark(contender);
        let places: Vec<_> = curve.iter().map(|(us, nines)| (x.place(*us), y.place(*nines))).collect();
        svg.polyline(&places, &format!("curve {colour}"));
        for nines in [1.0, 2.0, 3.0] {
            let Some(at) = curve.iter().position(|(_, known)| (known - nines).abs() < 1e-9) else { continue };
            let share = 100.0 - 100.0 * 10f64.powf(-nines);
            let tooltip =
                format!("{}: {share:.4}% within {} us", names[contender], number::value(curve[at].0));
            svg.marker(shape, places[at], 3.4, &format!("mark {colour}"), Some(&tooltip));
        }
    }
    Some(svg.finish())
}

/// Ratios to the baseline that a scale may end at.
const RATIOS: [f64; 9] = [1.02, 1.05, 1.1, 1.25, 1.5, 2.0, 4.0, 16.0, 64.0];

/// What is drawn in a line of effects.
pub(super) struct Line<'a> {
    pub name: &'a str,
    pub better: Better,
    pub figures: &'a [Figure],
}

impl<'a> From<&'a Row> for Line<'a> {
    fn from(row: &'a Row) -> Self {
        Self { name: &row.measure, better: row.better, figures: &row.figures }
    }
}

/// The effects of a group's measures with their intervals, against the baseline; `None` if there are none.
pub(super) fn effects(title: &str, lines: &[Line<'_>], names: &[String]) -> Option<String> {
    const WIDTH: f64 = 900.0;
    // Half of the longest label of the axis.
    const RIGHT: f64 = 34.0;
    const LINE: f64 = 15.0;
    const GAP: f64 = 9.0;
    const BOTTOM: f64 = 46.0;
    let has_effect = |line: &&Line| line.figures.iter().any(|figure| figure.effect_pct.is_some());
    let rows: Vec<&Line> = lines.iter().filter(has_effect).collect();
    let ratio = |pct: f64| 1.0 + pct / 100.0;
    let all = rows.iter().flat_map(|row| row.figures).filter_map(|figure| figure.effect_pct);
    let away = |pct: f64| ratio(pct).max(1.0 / ratio(pct).max(1e-9));
    let largest =
        all.map(away).fold(None, |most: Option<f64>, it| Some(most.map_or(it, |most| most.max(it))))?;
    let end = RATIOS.into_iter().find(|end| *end >= largest).unwrap_or(RATIOS[RATIOS.len() - 1]);
    let letters = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
    let left = letters as f64 * LETTER + 22.0;
    let x = Scale { values: (1.0 / end, end), places: (left, WIDTH - RIGHT), spacing: Spacing::Logarithmic };
    // What is beyond an end of the scale is drawn there, with a sign that it goes on.
    let place = |pct: f64| x.place(ratio(pct).clamp(1.0 / end, end));
    let marks = names.len() - 1;
    let height = rows.len() as f64 * (marks as f64 * LINE + GAP) + BOTTOM;
    let mut svg = Svg::new(WIDTH, height, &format!("{title}: effects on each measure, with intervals"));
    for tick in [1.0 / end, 1.0 / end.sqrt(), 1.0, end.sqrt(), end] {
        let class = if tick == 1.0 { "zero" } else { "grid" };
        svg.line((x.place(tick), 2.0), (x.place(tick), height - BOTTOM + 4.0), class);
        let label = number::effect(100.0 * (tick - 1.0));
        svg.text((x.place(tick), height - BOTTOM + 20.0), Anchor::Middle, "tick", &label);
    }
    let axis = "effect against the baseline; a factor has the same length either way";
    svg.text(((left + WIDTH - RIGHT) / 2.0, height - 5.0), Anchor::Middle, "axis", axis);
    let mut top = 2.0;
    for row in rows {
        let middle = top + GAP / 2.0 + marks as f64 * LINE / 2.0;
        svg.text((left - 18.0, middle + 4.0), Anchor::End, "tick", row.name);
        for (contender, figure) in row.figures.iter().enumerate().skip(1) {
            let Some(effect_pct) = figure.effect_pct else { continue };
            let y = top + GAP / 2.0 + (contender as f64 - 0.5) * LINE;
            let (colour, shape) = mark(contender);
            let mut words = String::new();
            if let Some((low_pct, high_pct)) = figure.interval_pct {
                svg.line((place(low_pct), y), (place(high_pct), y), &format!("error {colour}"));
                words = format!(
                    "{} {}",
                    number::interval((low_pct, high_pct)),
                    row.better.word((low_pct, high_pct))
                );
            }
            let (least_pct, most_pct) = figure.interval_pct.unwrap_or((effect_pct, effect_pct));
            if ratio(least_pct) < 1.0 / end {
                svg.text((x.places.0 - 11.0, y + 4.0), Anchor::Middle, "tick", "‹");
            }
            if ratio(most_pct) > end {
                svg.text((x.places.1 + 11.0, y + 4.0), Anchor::Middle, "tick", "›");
            }
            let tooltip =
                format!("{}, {}: {} {words}", names[contender], row.name, number::effect(effect_pct));
            svg.marker(
                shape,
                (place(effect_pct), y),
                4.2,
                &format!("mark {colour}"),
                Some(tooltip.trim_end()),
            );
        }
        top += marks as f64 * LINE + GAP;
    }
    Some(svg.finish())
}

/// The share of the pCPUs' time that each group had under each scheduler.
pub(super) fn shares(comparison: &Comparison) -> String {
    const WIDTH: f64 = 900.0;
    const LINE: f64 = 26.0;
    const BOTTOM: f64 = 30.0;
    let left = 40.0;
    let height = comparison.policies.len() as f64 * LINE + BOTTOM;
    let x = Scale::linear((0.0, 100.0), (left, WIDTH - 24.0));
    let mut svg = Svg::new(WIDTH, height, "Shares of the pCPUs' time by group");
    for pct in [0.0, 25.0, 50.0, 75.0, 100.0] {
        let class = if pct == 0.0 { "zero" } else { "grid" };
        svg.line((x.place(pct), 0.0), (x.place(pct), height - BOTTOM + 4.0), class);
        svg.text((x.place(pct), height - 8.0), Anchor::Middle, "tick", &format!("{pct}%"));
    }
    let shares = comparison.rows.iter().filter(|row| row.measure.starts_with("share, "));
    let shares: Vec<&Row> = shares.collect();
    for contender in 0..comparison.policies.len() {
        let top = contender as f64 * LINE + 3.0;
        svg.text((left - 8.0, top + LINE / 2.0 + 2.0), Anchor::End, "tick", &format!("[{}]", contender + 1));
        let mut from_pct = 0.0;
        for (group, row) in shares.iter().enumerate() {
            let Some(pct) = row.figures[contender].mean else { continue };
            let to_pct = (from_pct + pct).min(100.0);
            let class = format!("mark {}", colour(group));
            let tooltip =
                format!("[{}] {}: {pct:.1}%", contender + 1, row.group.as_deref().unwrap_or_default());
            let (corner, opposite) = ((x.place(from_pct), top), (x.place(to_pct), top + LINE - 8.0));
            svg.shaded_rect(corner, opposite, &class, 1.0, Some(&tooltip));
            from_pct = to_pct;
        }
    }
    svg.finish()
}

/// The worst moment under a scheduler: who had the CPUs while somebody waited.
pub(super) fn timeline(title: &str, moment: &Moment) -> String {
    const WIDTH: f64 = 900.0;
    const LEFT: f64 = 70.0;
    const RIGHT: f64 = 20.0;
    const LINE: f64 = 17.0;
    const TOP: f64 = 26.0;
    const BOTTOM: f64 = 42.0;
    let height = TOP + moment.cpus.len() as f64 * LINE + BOTTOM;
    let mut svg = Svg::new(WIDTH, height, title);
    let (begin_ns, end_ns) = moment.shown_ns;
    let width_ns = (end_ns - begin_ns).div_ceil(COLUMNS as u64).max(1);
    let span_ns = width_ns as f64 * COLUMNS as f64;
    let place = |ns: f64| LEFT + (WIDTH - LEFT - RIGHT) * (ns - begin_ns as f64) / span_ns;
    let (from, to) = (place(moment.wait_ns.0 as f64), place(moment.wait_ns.1 as f64));
    svg.rect((from, 4.0), (to, height - BOTTOM), "band");
    svg.text((LEFT, 16.0), Anchor::Start, "tick", &format!("{} waits where it is shaded", moment.task));
    for (at, lane) in moment.cpus.iter().enumerate() {
        let top = TOP + at as f64 * LINE;
        let name = format!("{}CPU {}", if lane.is_where_it_ran { "→ " } else { "" }, lane.cpu);
        svg.text((LEFT - 8.0, top + LINE - 5.0), Anchor::End, "tick", &name);
        let mut column = 0;
        while column < lane.columns.len() {
            let who = lane.columns[column];
            let length = lane.columns[column..].iter().take_while(|it| **it == who).count();
            let class = match who {
                Who::Nobody => None,
                Who::Kernel => Some("mark base".into()),
                Who::Group(group) => Some(format!("mark {}", colour(group))),
                Who::Waiter => Some("waiter".into()),
            };
            if let Some(class) = class {
                let at_ns = |column: usize| begin_ns as f64 + column as f64 * width_ns as f64;
                let ends = (place(at_ns(column)), place(at_ns(column + length).min(end_ns as f64)));
                svg.rect((ends.0, top + 1.0), (ends.1, top + LINE - 2.0), &class);
            }
            column += length;
        }
    }
    // Times since the wait began.
    let wait_ns = moment.wait_ns.1 - moment.wait_ns.0;
    for part in 0..=4u64 {
        let after_ns = wait_ns as f64 * part as f64 / 4.0;
        let x = place(moment.wait_ns.0 as f64 + after_ns);
        svg.line((x, height - BOTTOM), (x, height - BOTTOM + 5.0), "zero");
        svg.text((x, height - BOTTOM + 19.0), Anchor::Middle, "tick", &number::value(after_ns / 1e3));
    }
    svg.text(((from + to) / 2.0, height - 4.0), Anchor::Middle, "axis", "us since the wait began");
    svg.finish()
}
