//! Moves memory of VMs to their homes, if the operator wants that.
//!
//! **Problem.** Memory that a VM has touched stays where it is when its home moves, and copying it costs the
//! VM and others: bandwidth, CPU time, and waits of vCPUs for pages in transit.
//!
//! **Approach.** One VM at a time: the one that gains most of those for which moving pays
//! ([`Planner::far_memory`]). A [`Pass`] moves its memory chunk by chunk on a thread of its own, which
//! [`Pace`] limits to the bandwidth in the settings and to half of a CPU, so that the agent's scans do not
//! wait. In each scan the agent checks whether moving still pays, and cancels the pass if not: when the home
//! has moved, or is full. After a pass the mover leaves a VM with the same home alone for [`PAUSE`].
//!
//! **Limits.** [`pass`](super::pass) and [`Vm::read_far_mappings`] leave some memory where it is. The mover
//! leaves a VM with passed-through devices alone, because these hold its memory; so too one whose virtual
//! nodes have homes of their own, because nothing shows which memory belongs to which. A helper that the
//! kernel blocks ends moving, and nothing else, until the agent restarts.
//!
//! [`Planner::far_memory`]: tandem_machine::homes::Planner::far_memory

use super::log_quota::Line;
use super::pages::Pages;
use super::pass::{End, MovedMemory, Pass};
use super::tracked_vm::TrackedVm;
use crate::log_entry::Level;
use crate::vms::{Identity, Vm, name_nodes};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long the mover leaves memory of a VM alone after a pass: what could not move then can hardly move
/// soon. This is also the maximum age of the knowledge where memory is.
const PAUSE: Duration = Duration::from_secs(3600);

/// How long a pass may find nothing to move: mappings may be very large and almost empty, and other VMs wait
/// for their turn. At 20 us per MiB, a pass searches an address space of 1 TiB in 40 s.
const SEARCH_MAX: Duration = Duration::from_secs(60);

/// Moves memory of VMs, one VM after another.
pub struct Mover {
    bytes_per_s: u64,
    pages: Arc<dyn Pages>,
    underway: Option<Underway>,
    /// VMs that are left alone: with which home, and until when.
    done: BTreeMap<Identity, (Vec<u32>, Duration)>,
    totals: Arc<Mutex<MovedMemory>>,
}

/// A pass on its thread.
struct Underway {
    vm: Vm,
    home: Vec<u32>,
    begun: Duration,
    is_called_off: Arc<AtomicBool>,
    thread: JoinHandle<(MovedMemory, End)>,
}

impl Mover {
    /// Limits the rate of all VMs together.
    pub fn new(mib_per_s: u32, pages: Arc<dyn Pages>) -> Self {
        Self {
            bytes_per_s: u64::from(mib_per_s) << 20,
            pages,
            underway: None,
            done: BTreeMap::new(),
            totals: Arc::default(),
        }
    }

    /// The sums since it began.
    pub fn totals(&self) -> MovedMemory {
        *lock(&self.totals)
    }

    #[cfg(test)]
    pub fn is_busy(&self) -> bool {
        self.underway.is_some()
    }

    /// Continues a pass, cancels one that no longer pays, or begins with the first of these VMs that may
    /// begin: those for which moving so many bytes pays, with their homes. Returns what to log.
    pub fn step<'a>(
        &mut self,
        worth: impl Iterator<Item = (&'a TrackedVm, Vec<u32>, u64)>,
        now: Duration,
    ) -> Option<Line> {
        let mut worth = worth.filter(|(tracked, home, _)| may_move(tracked, home));
        if let Some(Underway { vm, home, is_called_off, .. }) = &self.underway {
            let is_worth_it =
                worth.any(|(tracked, nodes, _)| tracked.vm.identity == vm.identity && nodes == *home);
            is_called_off.store(!is_worth_it, Ordering::Relaxed);
            return None;
        }
        self.done.retain(|_, (_, until)| now < *until);
        let is_next = |tracked: &TrackedVm, home: &[u32]| {
            self.done.get(&tracked.vm.identity).is_none_or(|(before, _)| before != home)
        };
        let (tracked, home, bytes) = worth.find(|(tracked, home, _)| is_next(tracked, home))?;
        self.begin(&tracked.vm, home, bytes, now)
    }

    fn begin(&mut self, vm: &Vm, home: Vec<u32>, bytes_max: u64, now: Duration) -> Option<Line> {
        let mappings = vm.read_far_mappings(&home).unwrap_or_default();
        if mappings.is_empty() {
            self.done.insert(vm.identity, (home, now + PAUSE));
            return None;
        }
        let text = format!(
            ": moving {} of its memory to {}, at most {} MiB per second",
            size(bytes_max),
            name_nodes(&home),
            self.bytes_per_s >> 20
        );
        let asked = vm.clone();
        let pass = Pass::new(vm.identity.pid, move || asked.is_alive(), home.clone(), mappings, bytes_max);
        let is_called_off = Arc::new(AtomicBool::new(false));
        let (pages, totals, called_off) = (self.pages.clone(), self.totals.clone(), is_called_off.clone());
        let pace = Pace { bytes_per_s: self.bytes_per_s, due: Duration::ZERO };
        let work = move || run(pass, &*pages, pace, &totals, &called_off);
        // Without a thread the next scan tries again.
        let thread = thread::Builder::new().name("memory".into()).spawn(work).ok()?;
        self.underway = Some(Underway { vm: vm.clone(), home, begun: now, is_called_off, thread });
        Some(Line::about(vm, Level::Info, "memory", &text))
    }

    /// The VM whose pass has ended since the last call, and what to log.
    pub fn take_ended(&mut self, now: Duration) -> Option<(Identity, Line)> {
        let Underway { vm, home, begun, thread, .. } =
            self.underway.take_if(|underway| underway.thread.is_finished())?;
        // The thread has reported a panic itself.
        let (sum, end) = thread.join().unwrap_or((MovedMemory::default(), End::Stuck));
        let mut text = format!(
            ": {} of its memory moved to {} in {} s",
            size(sum.moved),
            name_nodes(&home),
            now.saturating_sub(begun).as_secs()
        );
        let stayed = [("shared", sum.shared), ("in use", sum.busy), ("without room there", sum.no_room)];
        for (why, bytes) in stayed.into_iter().filter(|(_, bytes)| *bytes > 0) {
            let _ = write!(text, ", {} stayed, being {why}", size(bytes));
        }
        match end {
            End::Done => {}
            End::Stuck => text += "; no more pages could be moved",
            End::NoRoom => text += "; the home is full",
            End::Gone => text += "; the VM has ended",
            End::CalledOff => text += "; moving more is not worth its cost now",
            End::Refused(error) => {
                let _ = write!(text, "; the kernel refuses to move more: {error}");
            }
        }
        self.done.insert(vm.identity, (home, now + PAUSE));
        Some((vm.identity, Line::about(&vm, Level::Info, "memory", &text)))
    }
}

/// Whether memory of the VM may move to that home: no other process has decided otherwise, and the memory is
/// known to belong there.
fn may_move(tracked: &TrackedVm, home: &[u32]) -> bool {
    tracked.decided.is_none()
        && tracked.parts.len() == 1
        && tracked.vm.devices.is_empty()
        && home.iter().all(|node| tracked.limits.memory_nodes.contains(node))
}

/// The work of the thread.
fn run(
    mut pass: Pass,
    pages: &dyn Pages,
    mut pace: Pace,
    totals: &Mutex<MovedMemory>,
    is_called_off: &AtomicBool,
) -> (MovedMemory, End) {
    let begun = Instant::now();
    let mut sum = MovedMemory::default();
    let mut found = Duration::ZERO;
    loop {
        if is_called_off.load(Ordering::Relaxed) {
            return (sum, End::CalledOff);
        }
        if begun.elapsed() - found > SEARCH_MAX {
            return (sum, End::Stuck);
        }
        let before = begun.elapsed();
        let mut step = MovedMemory::default();
        let result = pass.step(pages, &mut step);
        sum += step;
        if step.moved + step.stayed() > 0 {
            found = begun.elapsed();
        }
        *lock(totals) += step;
        if let Err(end) = result {
            return (sum, end);
        }
        thread::sleep(pace.pause(before, begun.elapsed(), step.moved + step.stayed()));
    }
}

/// The rate of a pass.
struct Pace {
    bytes_per_s: u64,
    /// When the next step may begin, since the pass began.
    due: Duration,
}

impl Pace {
    /// How long to wait after a step from `begin` to `end` that tried to move so many bytes. Idle time is not
    /// made up for.
    fn pause(&mut self, begin: Duration, end: Duration, bytes: u64) -> Duration {
        let took = Duration::from_secs_f64(bytes as f64 / self.bytes_per_s as f64);
        self.due = (self.due.max(begin) + took).max(end + end.saturating_sub(begin));
        self.due - end
    }
}

fn lock(totals: &Mutex<MovedMemory>) -> std::sync::MutexGuard<'_, MovedMemory> {
    // A panic leaves the sums consistent.
    totals.lock().unwrap_or_else(PoisonError::into_inner)
}

fn size(bytes: u64) -> String {
    match bytes {
        0..0x4000_0000 => format!("{} MiB", bytes >> 20),
        _ => format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_is_kept_and_bursts_are_not() {
        let mib = 1 << 20;
        let mut pace = Pace { bytes_per_s: 100 * mib, due: Duration::ZERO };
        let ms = Duration::from_millis;
        assert_eq!(pace.pause(ms(0), ms(10), 10 * mib), ms(90));
        assert_eq!(
            pace.pause(ms(5_000), ms(5_010), 10 * mib),
            ms(90),
            "five seconds of nothing count for nothing"
        );
        assert_eq!(pace.pause(ms(5_100), ms(5_300), 10 * mib), ms(200), "half of a CPU");
        assert_eq!(pace.pause(ms(5_500), ms(5_510), 0), ms(10), "looking is work, too");
    }

    #[test]
    fn over_time_no_more_is_moved_than_allowed() {
        let mib = 1 << 20;
        let mut pace = Pace { bytes_per_s: 200 * mib, due: Duration::ZERO };
        let (mut now, mut moved) = (Duration::ZERO, 0);
        for step in 0..1_000u64 {
            let bytes = (step % 9) * mib;
            let end = now + Duration::from_micros(bytes / 2_000);
            moved += bytes;
            now = end + pace.pause(now, end, bytes);
            let allowed = 200.0 * mib as f64 * now.as_secs_f64();
            assert!(moved as f64 <= allowed + 1.0, "{moved} bytes after {now:?}");
        }
    }
}
