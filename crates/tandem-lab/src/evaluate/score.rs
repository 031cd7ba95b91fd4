//! The number: what each VM gets, against what it gets under Linux.
//!
//! **Problem.** A sum over VMs can be raised by starving one that gains little; a mean of ratios by one that gains much.
//!
//! **Approach.** Each VM has a factor: the square root of (work done, against Linux) times (tail of its delays under Linux, against
//! this), or the first alone where it waits for nothing. The number is the geometric mean of all factors over the VMs of a
//! case, and over the cases. So it has no unit and no scale; a VM that loses a half weighs as much as one that gains
//! twice; and among VMs that divide a fixed amount of CPU time it is largest when all get what is fair (the product of
//! shares, J. Nash's bargaining solution, 1950). A gain counts up to a factor of [`GAIN_MAX`], a loss without a bound, so that
//! no gain can pay for starving. A VM that gets less than [`FAIR_MIN`] of the CPU time that is [fair](super::fair), or whose tail
//! grows by more than [`TAIL_MAX`], is [sold](Kind::Sold), and one of whose tasks waits for longer than [`WAIT_MAX`], or is served less than
//! [`SERVED_MIN`], [starves](Kind::Starvation): there is no number at all.
//!
//! **Limits.** Both runs have the same arrivals and work, but not the same schedule: a factor of one VM is noisy by some
//! percent, the number by much less.

use super::reasons::{Kind, Reason};
use super::run::{Got, Outcome, References};
use super::suite::{Case, Role};
use crate::check::promises::Promise;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;

/// The largest factor that counts.
pub const GAIN_MAX: f64 = 4.0;
/// The least CPU time that a VM must get, against what is fair: schedulers that share by weight, as five that were measured, give each
/// VM 0.58 and more.
pub const FAIR_MIN: f64 = 0.5;
/// The least that a task of it must be served, against all of its tasks: nobody starves behind siblings that do the same work.
/// Schedulers that were measured, Linux among them, have 0.38 and more.
pub const SERVED_MIN: f64 = 0.25;
/// The part of the measured time for which no task may wait at a stretch. The same schedulers have 0.12 at most.
pub const WAIT_MAX: f64 = 0.25;
/// How many times as long its tail may be as under Linux,
pub const TAIL_MAX: f64 = 8.0;
/// and how long it may be in any case, ns: a slice of Linux and two ticks, which no user of a server notices once in a
/// hundred requests.
pub const TAIL_FINE_NS: u64 = 12_000_000;

/// A score. In JSON a number, or the text `"-inf"`: JSON has no infinity, and what some writers print for it is an
/// error to others. Python's `float()` takes both.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Score(pub f64);

impl Score {
    /// That of a candidate that breaks a rule.
    pub const REFUSED: Self = Self(f64::NEG_INFINITY);
}

impl Serialize for Score {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.is_finite() {
            true => serializer.serialize_f64(self.0),
            false => serializer.serialize_str("-inf"),
        }
    }
}

/// A scored case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Part {
    /// The geometric mean of the factors of its VMs.
    pub score: Score,
    /// That of the work alone.
    pub work: Score,
    /// That of the tails alone; 1 if there are none.
    pub tail: Score,
    /// Each VM, or set of processes.
    pub vms: BTreeMap<String, Factors>,
}

/// How a VM does against Linux: above 1 is better.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Factors {
    /// Work done.
    pub work: f64,
    /// The tail of its delays under Linux, against its own; absent if it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tail: Option<f64>,
}

impl Factors {
    /// The logarithm of its factor.
    pub(super) fn log(self) -> f64 {
        let work = log(self.work);
        self.tail.map_or(work, |tail| (work + log(tail)) / 2.0)
    }
}

/// A logarithm of a factor as far as it counts.
fn log(factor: f64) -> f64 {
    libm::log(factor.clamp(1e-6, GAIN_MAX))
}

/// The mean of numbers; 0 of none.
fn mean(numbers: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = numbers.fold((0.0, 0_u32), |(sum, count), number| (sum + number, count + 1));
    if count == 0 { 0.0 } else { sum / f64::from(count) }
}

/// The number of all cases together.
pub fn combined<'a>(parts: impl Iterator<Item = &'a Part>) -> Score {
    Score(libm::exp(mean(parts.map(|part| libm::log(part.score.0)))))
}

/// The parts of all scored cases, and why there is no number.
pub fn parts(
    cases: &[Case],
    outcomes: &[Outcome],
    references: &References,
) -> (BTreeMap<String, Part>, Vec<Reason>) {
    let (mut parts, mut reasons) = (BTreeMap::new(), Vec::new());
    for (case, outcome) in cases.iter().zip(outcomes) {
        reasons.extend(outcome.broken.iter().map(|broken| {
            let kind = match Promise::named(&broken.promise) {
                Some(Promise::Waits) => Kind::Starvation,
                Some(Promise::Runs) if broken.seen.contains("runnable task stall") => Kind::Watchdog,
                Some(Promise::Runs) if broken.is_limit() => Kind::Limit,
                Some(Promise::Runs) => Kind::Fault,
                _ => Kind::Promise,
            };
            let text = Promise::named(&broken.promise).map(super::super::check::promises::Promise::text);
            let promise = match (kind, text) {
                (Kind::Promise | Kind::Starvation, Some(text)) => {
                    format!("{} ({}): ", text.number, text.name)
                }
                _ => String::new(),
            };
            Reason::new(
                kind,
                Some(&case.name),
                format!("{promise}{} {}, at {}", broken.who, broken.seen, broken.at),
            )
        }));
        let (Role::Scored, false) = (case.role, outcome.got.is_empty()) else { continue };
        let Some(reference) = references.of(case) else { continue };
        let vms: BTreeMap<String, Factors> = outcome
            .got
            .iter()
            .zip(&reference.linux)
            .map(|(got, linux)| (got.name.clone(), factors(got, linux)))
            .collect();
        let ran_ns: Vec<u64> = outcome.got.iter().map(|got| got.ran_ns).collect();
        let each = outcome.got.iter().zip(reference.shares.fair_ns(&ran_ns));
        reasons.extend(each.filter_map(|(got, fair_ns)| sold(case, got, fair_ns, vms.get(&got.name)?)));
        let length_ns = reference.shares.length_ns as f64;
        reasons.extend(outcome.got.iter().filter_map(|got| starved(case, got, length_ns)));
        let of = |log: &dyn Fn(&Factors) -> Option<f64>| Score(libm::exp(mean(vms.values().filter_map(log))));
        parts.insert(
            case.name.clone(),
            Part {
                score: of(&|factors| Some(factors.log())),
                work: of(&|factors| Some(log(factors.work))),
                tail: of(&|factors| factors.tail.map(log)),
                vms,
            },
        );
    }
    (parts, reasons)
}

/// What a VM gets against what it gets under Linux. Of several counters, the mean counts.
fn factors(got: &Got, reference: &Got) -> Factors {
    let ratio = |(counter, &count): (&String, &u64)| {
        let of_reference = reference.work.get(counter).copied().unwrap_or(0);
        // One more of each: what has done nothing under both is as good under both.
        (count as f64 + 1.0) / (of_reference as f64 + 1.0)
    };
    let work = libm::exp(mean(got.work.iter().map(ratio).map(libm::log)));
    let tail = match (got.tail_ns, reference.tail_ns) {
        (Some(own), Some(reference)) => Some(reference as f64 / own.max(1) as f64),
        // Too few answers where Linux gives enough.
        (None, Some(_)) => Some(1.0 / TAIL_MAX),
        _ => None,
    };
    Factors { work, tail }
}

/// Whether a task waits for so long, or so much longer than its siblings, that it starves.
fn starved(case: &Case, got: &Got, length_ns: f64) -> Option<Reason> {
    let name = &got.name;
    let waits = got.longest_wait_ns as f64 / length_ns;
    let message = if waits > WAIT_MAX {
        format!(
            "a task of `{name}` waits for {:.1} ms without a break; {:.0}% of the measured time, {:.1} ms, are allowed",
            got.longest_wait_ns as f64 / 1e6,
            WAIT_MAX * 100.0,
            WAIT_MAX * length_ns / 1e6
        )
    } else if let Some(served) = got.least_served.filter(|served| *served < SERVED_MIN) {
        format!(
            "a task of `{name}` runs for a part of the time in which it can run that is {:.0}% of that of all its tasks; at least \
             {:.0}% are allowed",
            served * 100.0,
            SERVED_MIN * 100.0
        )
    } else {
        return None;
    };
    Some(Reason::new(Kind::Starvation, Some(&case.name), message))
}

/// Whether a VM loses more than any gain of others is worth.
fn sold(case: &Case, got: &Got, fair_ns: f64, factors: &Factors) -> Option<Reason> {
    let name = &got.name;
    let share = got.ran_ns as f64 / fair_ns.max(1.0);
    let message = if share < FAIR_MIN {
        format!(
            "`{name}` gets {:.0}% of its fair share of CPU time, {:.1} of {:.1} ms; at least {:.0}% are allowed",
            share * 100.0,
            got.ran_ns as f64 / 1e6,
            fair_ns / 1e6,
            FAIR_MIN * 100.0
        )
    } else if let (Some(tail), Some(tail_ns)) = (factors.tail, got.tail_ns)
        && tail < 1.0 / TAIL_MAX
        && tail_ns > TAIL_FINE_NS
    {
        format!(
            "`{name}` waits {:.1} times as long as under Linux at the 99th percentile, {:.1} ms; at most {TAIL_MAX:.0} times \
             are allowed above {} ms",
            1.0 / tail,
            tail_ns as f64 / 1e6,
            TAIL_FINE_NS / 1_000_000
        )
    } else {
        return None;
    };
    Some(Reason::new(Kind::Sold, Some(&case.name), message))
}
