//! How the clock of a guest and that of its host differ.
//!
//! **Problem.** Both recordings have their own clock. They differ by any offset, and a little in speed, because each
//! side corrects its own.
//!
//! **Approach.** A guest's CPU that idles makes its vCPU sleep, a moment later; a vCPU that gets a CPU lets its guest
//! go on, a moment later. The first bounds the offset from one side, the second from the other, and the truth lies
//! in between. Which idle period is which sleep, the whole pattern says: for the true offset, the guest idles when
//! its vCPUs sleep, and for others it does not. What is between the bounds in one part of the recording after the
//! other tells the offset and the drift.
//!
//! **Limits.** A guest that never idles shows nothing. A guest that does the same again and again, to the
//! microsecond, fits in several ways: that is found out, and refused.

use super::turns::{Turns, idle_times};
use crate::statistics::median;
use serde::Serialize;
use std::fmt;
use tandem_recording::Recording;

/// Idle periods of a CPU, the longest, whose beginnings are looked for among the sleeps of its vCPU.
const IDLES_MAX: usize = 100;
/// Sleeps of a vCPU among which they are looked for.
const SLEEPS_MAX: usize = 10_000;
/// vCPUs that are looked at for that, those that sleep most often.
const VCPUS_MAX: usize = 4;
/// How far beginnings of one pair may be apart from those of others, ns: halt polling and drift come into it.
const WINDOW_NS: i64 = 400_000;
/// Offsets that are tried out.
const CANDIDATES: usize = 12;
/// How well idle times and sleeps must fit: their correlation. An assumption, far above what chance gives.
const FIT_MIN: f64 = 0.5;
/// How much better the best offset must fit than any other that is not near.
const CLEARER: f64 = 0.03;
/// Offsets nearer than this are the same, ns.
const NEAR_NS: i64 = 2_000_000;
/// Least time that both must have been recorded, ns.
const OVERLAP_MIN_NS: i64 = 100_000_000;
/// Parts of the recording in which the offset is looked for, and how far it may have moved from one to the next, ns.
const PARTS: u64 = 16;
const MOVED_MAX_NS: i64 = 1_000_000;
/// Delays from an event in the one recording to what follows in the other differ by less than this, mostly, ns.
const DELAYS_NS: i64 = 100_000;
/// Fewest delays of a part that say something.
const DELAYS_MIN: usize = 3;
/// Largest residual that is accepted, ns.
const RESIDUAL_MAX_NS: f64 = 1_000_000.0;

/// What makes the clock of a guest that of its host.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Clocks {
    /// Time of the host at the start of the guest's recording, ns since the start of the host's.
    pub offset_ns: f64,
    /// How much slower the guest's clock is, parts of a million.
    pub drift_ppm: f64,
    /// How far from the truth times may be, ns.
    pub residual_ns: f64,
}

impl Clocks {
    /// The host's time of a guest's, ns.
    pub fn host_ns(&self, guest_ns: u64) -> i64 {
        let guest_ns = guest_ns as f64;
        (self.offset_ns + guest_ns + guest_ns * self.drift_ppm / 1e6).round() as i64
    }
}

impl fmt::Display for Clocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "its recording starts {:+.6} s after the host's, its clock drifts by {:+.1} ppm, and times are known to \
             {:.0} us",
            self.offset_ns / 1e9,
            self.drift_ppm,
            self.residual_ns / 1e3
        )
    }
}

/// What one vCPU shows.
struct Shown {
    /// When the guest's CPU idled, ns by its clock.
    idles: Vec<(u64, u64)>,
    /// When the vCPU slept, ns.
    sleeps: Vec<(u64, u64)>,
    /// When the guest halted, or the vCPU began to sleep, ns.
    halts_ns: Vec<u64>,
    /// When it got a CPU after a sleep, ns.
    resumes_ns: Vec<u64>,
}

/// Matches the clocks of a guest and its host; `vcpus` has the turns of the vCPU that each of the guest's CPUs is.
///
/// # Errors
/// Words that follow the name of the guest.
pub(super) fn matched(host: &Recording, vcpus: &[Turns], guest: &Recording) -> Result<Clocks, String> {
    let shown: Vec<Shown> = idle_times(guest)
        .into_iter()
        .zip(vcpus)
        .map(|(idles, turns)| Shown {
            idles,
            sleeps: turns.sleeps(),
            halts_ns: match turns.halts_ns.is_empty() {
                true => turns.sleeps().iter().map(|(from_ns, _)| *from_ns).collect(),
                false => turns.halts_ns.clone(),
            },
            resumes_ns: turns.sleeps().iter().map(|(_, to_ns)| *to_ns).collect(),
        })
        .collect();
    if shown.iter().all(|vcpu| vcpu.idles.is_empty()) {
        return Err("never idles in its recording, which is what clocks are matched by; record it while it has less to \
             do"
        .into());
    }
    if shown.iter().all(|vcpu| vcpu.sleeps.is_empty()) {
        return Err("has vCPUs that never sleep in the host's recording, which is what clocks are matched by; record \
             both at the same time, while it has less to do"
            .into());
    }
    let lengths_ns = (host.about.length_ns as i64, guest.about.length_ns as i64);
    let mut fits: Vec<(f64, i64)> = candidates(&shown)
        .into_iter()
        .map(|offset_ns| (fit(&shown, offset_ns, lengths_ns), offset_ns))
        .collect();
    fits.sort_by(|a, b| b.0.total_cmp(&a.0));
    let misfit = || {
        "idles at other times than its vCPUs sleep in the host's recording; are the two recordings of this VM and of the \
         same time?"
            .to_owned()
    };
    let &(best, offset_ns) = fits.first().ok_or_else(misfit)?;
    if best < FIT_MIN {
        return Err(misfit());
    }
    let is_other = |other: &&(f64, i64)| (other.1 - offset_ns).abs() > NEAR_NS;
    if fits.iter().find(is_other).is_some_and(|other| other.0 > best - CLEARER) {
        return Err("does the same again and again, so that its clock fits the host's in several ways; record both for \
             longer"
            .into());
    }
    let clocks = refined(&shown, offset_ns, guest.about.length_ns).ok_or_else(misfit)?;
    match clocks.residual_ns <= RESIDUAL_MAX_NS {
        true => Ok(clocks),
        false => Err(misfit()),
    }
}

/// Offsets at which most idle periods begin with a sleep.
fn candidates(shown: &[Shown]) -> Vec<i64> {
    let mut apart_ns: Vec<i64> = Vec::new();
    let mut sleepy: Vec<&Shown> = shown.iter().collect();
    sleepy.sort_by_key(|vcpu| std::cmp::Reverse(vcpu.sleeps.len()));
    for Shown { idles, sleeps, .. } in sleepy.into_iter().take(VCPUS_MAX) {
        let mut longest = idles.clone();
        longest.sort_by_key(|(from_ns, to_ns)| std::cmp::Reverse(to_ns - from_ns));
        longest.truncate(IDLES_MAX);
        let every = sleeps.len().div_ceil(SLEEPS_MAX).max(1);
        for (sleep_ns, _) in sleeps.iter().step_by(every) {
            apart_ns.extend(longest.iter().map(|(idle_ns, _)| *sleep_ns as i64 - *idle_ns as i64));
        }
    }
    apart_ns.sort_unstable();
    let mut end = 0;
    let mut counts: Vec<(usize, usize)> = Vec::with_capacity(apart_ns.len());
    for (at, ns) in apart_ns.iter().enumerate() {
        while apart_ns.get(end).is_some_and(|end_ns| end_ns - ns < WINDOW_NS) {
            end += 1;
        }
        counts.push((end - at, at));
    }
    counts.sort_by_key(|(count, at)| (std::cmp::Reverse(*count), *at));
    let mut found: Vec<i64> = Vec::new();
    for (count, at) in counts {
        let middle_ns = apart_ns[at + count / 2];
        if found.iter().all(|known| (known - middle_ns).abs() > WINDOW_NS) {
            found.push(middle_ns);
        }
        if found.len() == CANDIDATES {
            break;
        }
    }
    found
}

/// The correlation of idling and sleeping over the time of both recordings; -1 if there is too little of that.
fn fit(shown: &[Shown], offset_ns: i64, (host_ns, guest_ns): (i64, i64)) -> f64 {
    let (from_ns, to_ns) = (offset_ns.max(0), (offset_ns + guest_ns).min(host_ns));
    if to_ns - from_ns < OVERLAP_MIN_NS {
        return -1.0;
    }
    let within = |(begin_ns, end_ns): (i64, i64)| {
        let cut = (begin_ns.max(from_ns), end_ns.min(to_ns));
        (cut.0 < cut.1).then_some(cut)
    };
    let (mut all, mut idle, mut asleep, mut both) = (0.0, 0.0, 0.0, 0.0);
    for Shown { idles, sleeps, .. } in shown {
        let moved = |ns: u64| ns as i64 + offset_ns;
        let idles: Vec<(i64, i64)> =
            idles.iter().filter_map(|it| within((moved(it.0), moved(it.1)))).collect();
        let sleeps: Vec<(i64, i64)> =
            sleeps.iter().filter_map(|it| within((it.0 as i64, it.1 as i64))).collect();
        let sum = |times: &[(i64, i64)]| {
            times.iter().map(|(begin_ns, end_ns)| end_ns - begin_ns).sum::<i64>() as f64
        };
        all += (to_ns - from_ns) as f64;
        (idle, asleep) = (idle + sum(&idles), asleep + sum(&sleeps));
        let mut next = 0;
        for (begin_ns, end_ns) in idles {
            while sleeps.get(next).is_some_and(|sleep| sleep.1 <= begin_ns) {
                next += 1;
            }
            for sleep in sleeps[next..].iter().take_while(|sleep| sleep.0 < end_ns) {
                both += (sleep.1.min(end_ns) - sleep.0.max(begin_ns)) as f64;
            }
        }
    }
    let (idle, asleep, both) = (idle / all, asleep / all, both / all);
    let spread = (idle * (1.0 - idle) * asleep * (1.0 - asleep)).sqrt();
    if spread > 0.0 { (both - idle * asleep) / spread } else { -1.0 }
}

/// The offset and the drift, from parts of the guest's recording.
fn refined(shown: &[Shown], offset_ns: i64, length_ns: u64) -> Option<Clocks> {
    let part_ns = length_ns / PARTS + 1;
    // From the part that most pairs are in, to both ends.
    let pairs = |part: u64, near_ns: i64| within_part(shown, part * part_ns..(part + 1) * part_ns, near_ns);
    let first = (0..PARTS).max_by_key(|part| pairs(*part, offset_ns).map_or(0, |found| found.2))?;
    let mut found: Vec<(f64, f64, f64)> = Vec::new();
    for parts in [(0..first).rev().collect::<Vec<u64>>(), (first..PARTS).collect()] {
        let mut near_ns = offset_ns;
        for part in parts {
            if let Some((part_offset_ns, half_ns, _)) = pairs(part, near_ns) {
                near_ns = part_offset_ns.round() as i64;
                found.push((part as f64 * part_ns as f64 + part_ns as f64 / 2.0, part_offset_ns, half_ns));
            }
        }
    }
    let slopes: Vec<f64> = (found.iter().enumerate())
        .flat_map(|(at, one)| found[at + 1..].iter().map(move |other| (other.1 - one.1) / (other.0 - one.0)))
        .collect();
    let slope = median(&slopes).unwrap_or(0.0);
    let offsets: Vec<f64> = found.iter().map(|(at_ns, offset_ns, _)| offset_ns - slope * at_ns).collect();
    let offset_ns = median(&offsets)?;
    let off: Vec<f64> = offsets.iter().map(|one| (one - offset_ns).abs()).collect();
    let halves: Vec<f64> = found.iter().map(|part| part.2).collect();
    Some(Clocks { offset_ns, drift_ppm: slope * 1e6, residual_ns: median(&halves)? + median(&off)? })
}

/// The offset in a part of the guest's recording, how far it may be off, and how many delays tell so.
fn within_part(shown: &[Shown], part: std::ops::Range<u64>, near_ns: i64) -> Option<(f64, f64, usize)> {
    let (mut to_halt_ns, mut from_resume_ns) = (Vec::new(), Vec::new());
    for Shown { idles, halts_ns, resumes_ns, .. } in shown {
        let first = idles.partition_point(|idle| idle.0 < part.start);
        for (idle_ns, busy_ns) in idles[first..].iter().take_while(|idle| idle.0 < part.end) {
            to_halt_ns.extend(around(halts_ns, *idle_ns as i64 + near_ns));
            from_resume_ns.extend(around(resumes_ns, *busy_ns as i64 + near_ns).map(|ns| -ns));
        }
    }
    let (halt_ns, halts) = least(to_halt_ns)?;
    let (resume_ns, resumes) = least(from_resume_ns)?;
    let (halt_ns, resume_ns) = (halt_ns as f64, resume_ns as f64);
    Some((near_ns as f64 + (halt_ns - resume_ns) / 2.0, ((halt_ns + resume_ns) / 2.0).abs(), halts + resumes))
}

/// The distances of times that are near to that one, ns.
fn around(times_ns: &[u64], at_ns: i64) -> impl Iterator<Item = i64> {
    let first = times_ns.partition_point(|ns| (*ns as i64) < at_ns - MOVED_MAX_NS);
    times_ns[first..].iter().map(move |ns| *ns as i64 - at_ns).take_while(|ns| *ns <= MOVED_MAX_NS)
}

/// The least of the delays that are most frequent, and how many these are.
fn least(mut delays_ns: Vec<i64>) -> Option<(i64, usize)> {
    delays_ns.sort_unstable();
    let count = |at: usize| delays_ns.partition_point(|ns| *ns < delays_ns[at] + DELAYS_NS) - at;
    let at = (0..delays_ns.len()).max_by_key(|&at| (count(at), std::cmp::Reverse(at)))?;
    (count(at) >= DELAYS_MIN).then(|| (delays_ns[at], count(at)))
}
