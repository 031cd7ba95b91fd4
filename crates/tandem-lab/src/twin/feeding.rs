//! Tasks that take what others have left for them.
//!
//! **Problem.** A wake-up shows that something came; what comes while the task is awake, or waits for a CPU,
//! shows nowhere. A reader of a pipe that waits for long finds much, and then works for long. With its wake-up
//! as its only dependency, a replay that lets it run at once would let it read what nobody has written yet.
//!
//! **Approach.** The recording tells such tasks from those whose work is independent of that: the more those
//! that wake it have done since its wake-up, the longer it works. Where that is so, its work is cut into parts,
//! and each part waits for a part of what the others did from its wake-up to its end.
//!
//! **Limits.** Parts are equal, and what the others do counts by its time. A task that works long for another
//! reason at just those times is taken for one that is fed.

use super::model::{Step, Wait};

/// Parts of a turn of work.
const PARTS: u64 = 4;
/// Fewest turns from which it is told.
const TURNS_MIN: usize = 20;
/// Correlation from which on a task counts as fed: an assumption.
const CORRELATION_MIN: f64 = 0.9;
/// Most tasks whose work is followed for one.
const FEEDERS_MAX: usize = 64;

/// A stretch of a task's work, from a wake-up by another task to the next wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    /// When it was woken, ns.
    pub woken_ns: u64,
    /// Where the wait is among its steps.
    pub wait_step: usize,
}

/// When a task had a CPU.
#[derive(Clone, Debug, Default)]
pub(super) struct Runs {
    /// From, to, and the work before, ns.
    stretches: Vec<(u64, u64, u64)>,
}

impl Runs {
    /// It had a CPU from then until now.
    pub fn add(&mut self, from_ns: u64, to_ns: u64) {
        let before_ns = self.stretches.last().map_or(0, |(from, to, before)| before + (to - from));
        self.stretches.push((from_ns, to_ns.max(from_ns), before_ns));
    }

    /// The work that it had done at a time, ns.
    fn done_ns(&self, at_ns: u64) -> u64 {
        let at = self.stretches.partition_point(|(from_ns, ..)| *from_ns <= at_ns);
        let Some((from_ns, to_ns, before_ns)) = at.checked_sub(1).map(|at| self.stretches[at]) else {
            return 0;
        };
        before_ns + at_ns.min(to_ns) - from_ns
    }

    /// When it had done that much work, ns.
    fn time_of_ns(&self, done_ns: u64) -> u64 {
        let at = self.stretches.partition_point(|(.., before_ns)| *before_ns <= done_ns);
        let Some((from_ns, to_ns, before_ns)) = at.checked_sub(1).map(|at| self.stretches[at]) else {
            return 0;
        };
        (from_ns + (done_ns - before_ns)).min(to_ns)
    }
}

/// A task as far as feeding is concerned.
pub(super) struct Fed<'a> {
    pub runs: &'a Runs,
    pub turns: &'a [Turn],
    /// Those that have woken it, each once.
    pub feeders: &'a [u32],
    pub steps: &'a [Step],
}

/// A step to be put into the program of a task, after so much of its work, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Insertion {
    pub task: u32,
    pub after_ns: u64,
    pub step: Step,
}

/// A turn, with what follows from the steps.
struct Stretch {
    woken_ns: u64,
    /// The work of the task before it and at its end, ns.
    work_ns: (u64, u64),
    end_ns: u64,
}

/// The steps that make a fed task wait for those that feed it, with new gates from `gates` on; none if it is
/// not fed. `task` is its position; `runs_of` says when each task had a CPU.
pub(super) fn insertions<'r>(
    task: u32,
    fed: &Fed<'_>,
    runs_of: impl Fn(u32) -> &'r Runs,
    gates: &mut u32,
) -> Vec<Insertion> {
    if fed.turns.len() < TURNS_MIN || fed.feeders.len() > FEEDERS_MAX {
        return Vec::new();
    }
    let stretches = stretches(fed);
    let fed_ns = |stretch: &Stretch| -> u64 {
        let of = |&feeder: &u32| {
            let runs = runs_of(feeder);
            runs.done_ns(stretch.end_ns) - runs.done_ns(stretch.woken_ns)
        };
        fed.feeders.iter().map(of).sum()
    };
    let points: Vec<(f64, f64)> =
        stretches.iter().map(|it| (fed_ns(it) as f64, (it.work_ns.1 - it.work_ns.0) as f64)).collect();
    if correlation(&points) < CORRELATION_MIN {
        return Vec::new();
    }
    let mut found = Vec::new();
    for stretch in &stretches {
        let (from_ns, to_ns) = stretch.work_ns;
        for part in 1..PARTS {
            let after_ns = from_ns + (to_ns - from_ns) * part / PARTS;
            let until = |part: u64| stretch.woken_ns + (stretch.end_ns - stretch.woken_ns) * part / PARTS;
            // What it waits for must have been done when it did this part.
            let by_ns = until(part).min(fed.runs.time_of_ns(after_ns));
            for &feeder in fed.feeders {
                let runs = runs_of(feeder);
                let (before_ns, done_ns) = (runs.done_ns(until(part - 1)), runs.done_ns(by_ns));
                if done_ns > before_ns {
                    let gate = *gates;
                    *gates += 1;
                    let open = Step::Open { gate, sync: false };
                    found.push(Insertion { task: feeder, after_ns: done_ns, step: open });
                    found.push(Insertion { task, after_ns, step: Step::Wait(Wait::Gate(gate)) });
                }
            }
        }
    }
    found
}

fn stretches(fed: &Fed<'_>) -> Vec<Stretch> {
    let mut found = Vec::with_capacity(fed.turns.len());
    let (mut at, mut work_ns) = (0, 0);
    let work = |step: &Step| match step {
        Step::Work(ns) => *ns,
        _ => 0,
    };
    for turn in fed.turns {
        work_ns += fed.steps[at..turn.wait_step].iter().map(work).sum::<u64>();
        at = turn.wait_step;
        let burst = fed.steps[at + 1..].iter().take_while(|step| !matches!(step, Step::Wait(_)));
        let length_ns: u64 = burst.map(work).sum();
        if length_ns > 0 {
            let end_ns = fed.runs.time_of_ns((work_ns + length_ns).saturating_sub(1));
            let work_ns = (work_ns, work_ns + length_ns);
            found.push(Stretch { woken_ns: turn.woken_ns, work_ns, end_ns: end_ns.max(turn.woken_ns) });
        }
    }
    found
}

/// Pearson's; 0 if either does not vary.
fn correlation(points: &[(f64, f64)]) -> f64 {
    let count = points.len() as f64;
    let (x, y) = points.iter().fold((0.0, 0.0), |(x, y), point| (x + point.0 / count, y + point.1 / count));
    let sums = points.iter().fold((0.0, 0.0, 0.0), |(xy, xx, yy), point| {
        let (dx, dy) = (point.0 - x, point.1 - y);
        (xy + dx * dy, xx + dx * dx, yy + dy * dy)
    });
    let scale = (sums.1 * sums.2).sqrt();
    if scale > 0.0 { sums.0 / scale } else { 0.0 }
}

/// The steps with insertions, which are in the order of the work before them, put in their places.
pub(super) fn merged(steps: Vec<Step>, mut insertions: &[Insertion]) -> Vec<Step> {
    let mut merged = Vec::with_capacity(steps.len() + 2 * insertions.len());
    let mut done_ns = 0;
    for step in steps {
        let Step::Work(mut left_ns) = step else {
            merged.push(step);
            continue;
        };
        while let Some((first, rest)) = insertions.split_first()
            && first.after_ns <= done_ns + left_ns
        {
            let part_ns = first.after_ns.saturating_sub(done_ns);
            if part_ns > 0 {
                merged.push(Step::Work(part_ns));
            }
            (done_ns, left_ns) = (done_ns + part_ns, left_ns - part_ns);
            merged.push(first.step);
            insertions = rest;
        }
        if left_ns > 0 {
            merged.push(Step::Work(left_ns));
        }
        done_ns += left_ns;
    }
    merged.extend(insertions.iter().map(|insertion| insertion.step));
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_a_function_of_time_and_back() {
        let mut runs = Runs::default();
        runs.add(10, 30);
        runs.add(50, 60);
        assert_eq!([0, 10, 20, 40, 55, 99].map(|at| runs.done_ns(at)), [0, 0, 10, 20, 25, 30]);
        assert_eq!([0, 5, 19, 25].map(|done| runs.time_of_ns(done)), [10, 15, 29, 55]);
    }

    #[test]
    fn insertions_cut_work_where_they_belong() {
        let open = |gate| Step::Open { gate, sync: false };
        let insertion = |after_ns, gate| Insertion { task: 0, after_ns, step: open(gate) };
        let wait = Step::Wait(Wait::For(7));
        let steps = vec![Step::Work(10), wait, Step::Work(20)];
        let found = merged(steps, &[insertion(4, 0), insertion(10, 1), insertion(15, 2), insertion(30, 3)]);
        let expected = [
            Step::Work(4),
            open(0),
            Step::Work(6),
            open(1),
            wait,
            Step::Work(5),
            open(2),
            Step::Work(15),
            open(3),
        ];
        assert_eq!(found, expected);
    }

    /// A reader that is woken every 100 us by a writer that goes on, and gets a CPU late by turns.
    fn reader(is_fed: bool) -> (Runs, Runs, Vec<Turn>, Vec<Step>) {
        let (mut own, mut writer) = (Runs::default(), Runs::default());
        let (mut turns, mut steps) = (Vec::new(), Vec::new());
        writer.add(0, 100_000_000);
        for turn in 0..40 {
            let woken_ns = 1_000_000 * turn;
            let late_ns = 10_000 + 20_000 * (turn % 7);
            let work_ns = if is_fed { late_ns / 2 } else { 30_000 + 5_000 * (turn * turn % 5) };
            turns.push(Turn { woken_ns, wait_step: steps.len() });
            steps.push(Step::Wait(Wait::Gate(turn as u32)));
            steps.push(Step::Work(work_ns));
            own.add(woken_ns + late_ns, woken_ns + late_ns + work_ns);
        }
        (own, writer, turns, steps)
    }

    #[test]
    fn only_what_grows_with_the_work_of_others_waits_for_it() {
        for is_fed in [true, false] {
            let (own, writer, turns, steps) = reader(is_fed);
            let fed = Fed { runs: &own, turns: &turns, feeders: &[1], steps: &steps };
            let mut gates = 40;
            let found = insertions(0, &fed, |_| &writer, &mut gates);
            assert_eq!(!found.is_empty(), is_fed);
            assert_eq!(found.len() as u32, 2 * (gates - 40), "each gate is opened and passed");
            for pair in found.chunks(2) {
                let (open, pass) = (pair[0], pair[1]);
                assert_eq!((open.task, pass.task), (1, 0));
                let opened_ns = writer.time_of_ns(open.after_ns);
                assert!(opened_ns <= own.time_of_ns(pass.after_ns) + 1, "as it was recorded, nobody waits");
            }
        }
    }
}
