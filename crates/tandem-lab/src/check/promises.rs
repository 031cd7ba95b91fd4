//! The promises that can be judged in a simulation: their numbers, names, bounds and exclusions.

/// Longest time for which a task of usual weight runs before another gets its turn, ns: the default `slice`
/// of the scheduler.
pub const SLICE_NS: u64 = 20_000_000;
/// The tick, ns: 250 a second. No task can count on being taken off its CPU sooner.
pub const TICK_NS: u64 = 4_000_000;

/// A task waits for at most this many of its fair turns.
pub const TURNS_MAX: u64 = 4;
/// Longest wait under any competition, ns: at most a third of the kernel's watchdog.
pub const WAIT_MAX_NS: u64 = 10_000_000_000;
/// How far CPU time may be from the fair share, in percent of that, beyond one slice.
pub const SHARE_TOLERANCE_PCT: f64 = 5.0;
/// The tolerance holds over this time, ns. In a shorter run, CPU time may be off by as much in absolute
/// terms, but by at most five times as much in percent; a case that is off by more is run again for longer.
pub const WINDOW_NS: u64 = 10_000_000_000;
/// Shares are judged over this time at least, ns.
pub const WINDOW_MIN_NS: u64 = 1_000_000_000;
/// Shares of single tasks are judged if tasks that sleep use at most this part of the CPUs, in percent: when
/// these come and go, the CPU that they use at any time cannot be predicted.
pub const SLEEPERS_MAX_PCT: f64 = 10.0;
/// Tasks whose fair rate is more than this part of a CPU each, in percent, need their CPUs all the time: they
/// lose what tasks that sleep use while all CPUs are busy.
pub const FULL_PCT: f64 = 90.0;
/// Time that a wake-up takes although it finds an idle CPU, ns: an interrupt, leaving idle and a decision.
/// Shorter waits do not count.
pub const WAKE_UP_NS: u64 = 50_000;
/// Time that CPUs idle beside a task that waits, in percent of all their time.
pub const IDLE_MAX_PCT: f64 = 0.2;
/// By how much waits at wake-ups may be longer than under EEVDF, ns: a tick.
pub const LATENCY_RESOLUTION_NS: u64 = TICK_NS;
/// Rate control delays preemptions by its window at most, ns,
pub const RATE_WINDOW_NS: u64 = 10_000_000;
/// on CPUs with half as many wake-ups a second as the decisions that it allows: 50 in a window.
pub const STORM_PER_S: f64 = 2_500.0;
/// Wake-ups that a percentile needs.
pub const WAKEUPS_MIN: usize = 200;
/// A task is light if it uses at most this part of its share, in percent.
pub const LIGHT_MAX_PCT: f64 = 50.0;
/// How much more than its limit a cgroup may use, in percent, beyond the quota of one period.
pub const LIMIT_TOLERANCE_PCT: f64 = 2.0;
/// Queued tasks that a decision may visit under locks.
pub const VISITS_MAX: u64 = 32;
/// After an affinity changes, or VMs come or go, the promises hold again within this time, ns.
pub const SETTLE_NS: u64 = 1_000_000_000;

/// What a scheduler promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Promise {
    /// No task starves.
    Waits,
    /// Cgroups get their shares.
    Shares,
    /// Single tasks get their shares.
    TaskShares,
    /// No CPU idles beside a waiting task.
    Idle,
    /// A task that uses less than its share runs soon after it wakes.
    Latency,
    /// Limits hold.
    Limits,
    /// Preferences cost nothing.
    Preferences,
    /// Yields take nothing from others.
    Yields,
    /// The other promises, within a time after a change.
    Changes,
    /// Decisions stay cheap.
    Cost,
    /// The scheduler does not fail.
    Runs,
}

/// A promise in words.
#[derive(Clone, Copy, Debug)]
pub struct Text {
    /// The promise.
    pub promise: Promise,
    /// Its number in the book.
    pub number: &'static str,
    /// The name by which the command knows it.
    pub name: &'static str,
    /// The promise in a sentence.
    pub text: &'static str,
    /// The bound.
    pub bound: &'static str,
    /// Cases that the promise does not cover.
    pub exclusions: &'static str,
}

/// All promises.
pub const PROMISES: [Text; 11] = [
    Text {
        promise: Promise::Runs,
        number: "P10",
        name: "runs",
        text: "The scheduler does not fail.",
        bound: "No fault, no error that the kernel would eject it for, no stall that its watchdog sees.",
        exclusions: "None.",
    },
    Text {
        promise: Promise::Waits,
        number: "P1",
        name: "waits",
        text: "No task starves: every runnable task runs before long.",
        bound: "4 x (slice + slice / e + tick / r), twice that while CPUs are away, and never more than 10 s. r is the task's fair rate in CPUs if \
                all tasks computed all the time, e the same if all weighed the same.",
        exclusions: "None.",
    },
    Text {
        promise: Promise::Shares,
        number: "P2",
        name: "shares",
        text: "VMs and sets of processes get the CPU time that is weighted max-min fair under their affinities.",
        bound: "Within 5% and a slice over 10 s, from 1 s after the last change to the end. On more than 100 CPUs the time is shorter; \
                CPU time may be as far off as over 10 s, but by 25% at most.",
        exclusions: "Runs with limits. Groups with tasks that do not compute all the time. The CPU time of such tasks is taken off the CPUs; \
                     it is taken off a second time for tasks whose fair rate is above 0.9 CPUs. Runs in which one of these pauses. Runs in which \
                     VMs come and go: how much they leave to others depends on when they exist.",
    },
    Text {
        promise: Promise::TaskShares,
        number: "P2",
        name: "task-shares",
        text: "Every single task gets its fair share as well.",
        bound: "The same.",
        exclusions: "The same; and runs in which tasks that sleep use more than 10% of the CPUs.",
    },
    Text {
        promise: Promise::Idle,
        number: "P3",
        name: "idle",
        text: "No CPU idles beside a waiting task that may use it.",
        bound: "A tick at a time, and 0.2% of the time of all CPUs that the task may use.",
        exclusions: "Waits of less than 50 us, which a wake-up of an idle CPU takes.",
    },
    Text {
        promise: Promise::Latency,
        number: "P4",
        name: "latency",
        text: "A task that uses less than half of its fair share waits, when it wakes, no longer than under EEVDF.",
        bound: "At the 99th percentile at most a tick longer than under EEVDF with the same work; where a task wakes 2,500 times a second, \
                also the window of rate control, 10 ms; and never longer than half of the bound of P1.",
        exclusions: "Groups with fewer than 200 wake-ups. The absolute bound holds for them as well.",
    },
    Text {
        promise: Promise::Limits,
        number: "P5",
        name: "limits",
        text: "No cgroup uses more than its limit (cpu.max).",
        bound: "2%, and the quota of a period.",
        exclusions: "Runs in which limits change. With limits, waits, shares and idle CPUs are not judged.",
    },
    Text {
        promise: Promise::Cost,
        number: "P9",
        name: "cost",
        text: "No decision visits many queued tasks under locks.",
        bound: "32 tasks.",
        exclusions: "None.",
    },
    Text {
        promise: Promise::Preferences,
        number: "P6",
        name: "preferences",
        text: "A preference costs nothing: a task that has one gets its fair share.",
        bound: "The lower bound of the shares of groups.",
        exclusions: "As for the shares of groups.",
    },
    Text {
        promise: Promise::Yields,
        number: "P7",
        name: "yields",
        text: "Yields take nothing from other tasks.",
        bound: "A task that never yields gets at least its fair share, as if those that yield computed; within 5% and a \
                slice.",
        exclusions: "As for the shares of groups.",
    },
    Text {
        promise: Promise::Changes,
        number: "P8",
        name: "changes",
        text: "After affinities, weights and CPUs change, and after a reload, nothing is lost and nothing is stranded.",
        bound: "The bounds of waits, shares and idle CPUs hold from 1 s after a change.",
        exclusions: "As for these.",
    },
];

impl Promise {
    /// The promise in words.
    pub fn text(self) -> &'static Text {
        PROMISES.iter().find(|text| text.promise == self).expect("every promise has its text")
    }

    /// The promise of that name.
    pub fn named(name: &str) -> Option<Self> {
        PROMISES.iter().find(|text| text.name == name).map(|text| text.promise)
    }
}
