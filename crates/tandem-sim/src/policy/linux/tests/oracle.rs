//! EEVDF against real kernels: recordings of programs on one CPU (`tests/linux/README.md`).
//!
//! **Problem.** A rule that the model gets wrong changes which task runs next, but in a simulation of its own
//! that one pick changes all that come after it.
//!
//! **Approach.** The scheduler goes through the history of the real kernel: tasks wake up, are forked, yield,
//! block and end when they did, and the running one is charged when it was. At each switch it is asked for
//! its pick, and then given the kernel's. A pick is equal if the scheduler asks to reschedule as well, and
//! picks the same task. A switch that it asks for alone counts against it, too.
//!
//! **Limits.** A request to reschedule is granted for [`GRACE_NS`], the time in which a kernel that is busy
//! for its task does not react.

use super::*;
use crate::policy::linux::queues::weight_of_nice;
use std::fmt;
use std::fs;
use tandem_machine::ids::VmId;

/// From a request to reschedule to the switch, ns.
const GRACE_NS: u64 = 100_000;
/// From a yield to its switch, ns.
const YIELD_NS: u64 = 10_000;
/// How late the timer of a turn may be, ns.
const TIMER_LATE_NS: u64 = 20_000;

const PROGRAMS: [&str; 15] = [
    "equal-hogs",
    "nice-hogs",
    "many-hogs",
    "sleeper",
    "sleepers",
    "nice-sleepers",
    "ping-pong",
    "pipeline",
    "yielders",
    "yield-and-sleep",
    "forks",
    "generations",
    "semaphore",
    "bursts",
    "server",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Happening {
    Forked(TaskId),
    Woken(TaskId),
    /// The task that runs yields.
    Yields,
    /// The task that runs is charged, at a tick.
    Ticks,
    /// The same, at another time: the timer of its turn expires.
    Charged,
    /// The program starts.
    Starts,
    /// The CPU switches from the task that runs, which could go on.
    Preempted(Option<TaskId>),
    /// The same, and it blocks.
    Blocks(Option<TaskId>),
    /// The same, and it ends.
    Ends(Option<TaskId>),
}

use Happening::{Blocks, Charged, Ends, Forked, Preempted, Starts, Ticks, Woken, Yields};

/// What the tasks of a program did in a real kernel, and when, ns since the start.
struct Recording {
    /// Nice values of the tasks.
    nice: Vec<i8>,
    events: Vec<(u64, Happening)>,
}

impl Recording {
    fn read(release: &str, program: &str) -> Self {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/linux/recordings");
        let text = fs::read_to_string(format!("{folder}/{release}/{program}")).unwrap();
        let (tasks, events) = text.split_once("\n\n").unwrap();
        // A task of a class above is close to one of the greatest weight.
        let nice = |line: &str| line.split(' ').nth(1).unwrap().parse::<i32>().unwrap().max(-20) as i8;
        let mut at_ns = 0;
        let event = |line: &str| {
            let [after_ns, kind, task] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
            at_ns += after_ns.parse::<u64>().unwrap();
            let task = task.parse().ok().map(TaskId);
            let happening = match kind {
                "n" => Forked(task.unwrap()),
                "w" => Woken(task.unwrap()),
                "y" => Yields,
                "t" => Ticks,
                "c" => Charged,
                "s" => Starts,
                "r" => Preempted(task),
                "b" => Blocks(task),
                "x" => Ends(task),
                _ => panic!("{line}"),
            };
            (at_ns, happening)
        };
        Self { nice: tasks.lines().map(nice).collect(), events: events.lines().map(event).collect() }
    }
}

/// A scheduler that goes through a recording.
struct Replay {
    machine: Machine,
    facts: Vec<TaskFacts>,
    linux: Linux,
    now_ns: u64,
    /// Since when it has asked to reschedule, ns.
    asks_since_ns: Option<u64>,
    counts: Counts,
}

/// How its picks compare with the kernel's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    /// The kernel's picks of a task.
    picks: u32,
    /// Those that it shares.
    equal: u32,
    /// Switches that only it asks for.
    extra: u32,
}

impl Counts {
    fn equal_share(self) -> f64 {
        f64::from(self.equal) / f64::from(self.picks + self.extra)
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "| {:5} | {:5} | {:3} | {:6.2}% |",
            self.picks,
            self.equal,
            self.extra,
            100.0 * self.equal_share()
        )
    }
}

impl Replay {
    fn new(era: LinuxEra, recording: &Recording) -> Self {
        let machine = MachineBuilder::symmetric(1, 1, 1).build().unwrap();
        let facts = |&nice: &i8| TaskFacts {
            vm: VmId(0),
            weight: weight_of_nice(nice),
            hard_affinity: Arc::new(machine.all_cpus().clone()),
            nice,
            policy: TaskPolicy::Normal,
            soft_affinity: None,
            past_cpu: None,
            is_kernel_thread: false,
        };
        let facts = recording.nice.iter().map(facts).collect();
        let linux = Linux::new(LinuxSettings { era, ..LinuxSettings::default() }, &machine, &[], &[], &[], 1);
        Self { machine, facts, linux, now_ns: 0, asks_since_ns: None, counts: Counts::default() }
    }

    fn ask<R>(&mut self, question: impl FnOnce(&mut Linux, &mut Context<'_>) -> R) -> R {
        let mut context = Context {
            now_ns: self.now_ns,
            machine: &self.machine,
            tasks: &self.facts,
            stolen_ns: &[0],
            kicked: &mut Vec::new(),
            peers_scanned: &mut 0,
            locked: &mut Vec::new(),
            shared_locked: &mut Vec::new(),
            alarms: &mut Vec::new(),
            later: &mut Vec::new(),
            failure: &mut None,
        };
        let answer = question(&mut self.linux, &mut context);
        let queue = self.linux.queues.of(CPU);
        if queue.is_told() || queue.is_told_lazily() {
            self.asks_since_ns.get_or_insert(self.now_ns);
        }
        answer
    }

    fn current(&self) -> Option<TaskId> {
        self.linux.queues.of(CPU).curr()
    }

    /// All tasks that were there before sleep; the first one runs.
    fn start(&mut self, recording: &Recording) {
        let forked: Vec<TaskId> = recording
            .events
            .iter()
            .filter_map(|(_, happening)| if let Forked(task) = happening { Some(*task) } else { None })
            .collect();
        let tasks = (0..self.facts.len() as u32).rev().map(TaskId).filter(|task| !forked.contains(task));
        for task in tasks {
            self.ask(|linux, ctx| linux.enqueue(ctx, task, CPU, Reason::Start));
            self.switch(Some(task));
            if task != TaskId(0) {
                self.ask(|linux, ctx| linux.blocked(ctx, CPU, task));
                self.switch(None);
            }
        }
    }

    /// The scheduler's pick; the CPU switches to the kernel's.
    fn switch(&mut self, kernels: Option<TaskId>) -> Option<TaskId> {
        self.asks_since_ns = None;
        self.ask(|linux, ctx| linux.queues.begin_decision(ctx, CPU));
        self.asks_since_ns = None;
        let picked = self.ask(|linux, ctx| linux.queues.pick(ctx, CPU));
        self.ask(|linux, ctx| {
            if let Some(task) = kernels
                && linux.queue_of(task).is_none()
            {
                linux.enqueue(ctx, task, CPU, Reason::Wake { waker: None, cpu: CPU, sync: false });
            }
            linux.queues.end_decision(ctx, CPU, kernels);
        });
        self.asks_since_ns = None;
        picked
    }

    /// The kernel switches, which the scheduler asks for as well, or not.
    fn compare(&mut self, kernels: Option<TaskId>, asks: bool) {
        let picked = self.switch(kernels);
        if kernels.is_some() {
            self.counts.picks += 1;
            let equal = asks && picked == kernels;
            self.counts.equal += u32::from(equal);
        }
    }

    /// The kernel does not switch when the scheduler asks for it.
    fn go_on(&mut self) {
        let current = self.current();
        let picked = self.switch(current);
        self.counts.extra += u32::from(picked != current);
    }

    /// The scheduler asks to reschedule, and the kernel does not switch by `next_ns`.
    fn settle(&mut self, next_ns: u64) {
        if self.asks_since_ns.is_some_and(|since_ns| next_ns > since_ns + GRACE_NS) {
            self.go_on();
        }
    }

    /// Time passes until the next event; `switch_ns` is when the kernel switches next. A turn ends by its
    /// timer when the kernel charges the task, or a little later.
    fn pass(&mut self, until_ns: u64, is_charge: bool, switch_ns: u64) {
        if let Some(timer_ns) = self.linux.queues.of(CPU).hrtick_ns()
            && let Some(task) = self.current()
        {
            let is_near = is_charge && until_ns.abs_diff(timer_ns) < TIMER_LATE_NS;
            if is_near || until_ns > timer_ns + TIMER_LATE_NS {
                self.settle(switch_ns);
                self.now_ns = if is_near { until_ns } else { timer_ns.max(self.now_ns) };
                self.ask(|linux, ctx| linux.queues.turn_ends(ctx, CPU, task));
            }
        }
        self.settle(switch_ns);
        self.now_ns = until_ns;
    }

    fn run(mut self, recording: &Recording) -> Counts {
        self.start(recording);
        let is_switch = |happening: Happening| matches!(happening, Preempted(_) | Blocks(_) | Ends(_));
        for (number, &(at_ns, happening)) in recording.events.iter().enumerate() {
            let rest = &recording.events[number..];
            let switch_ns = |from: &[(u64, Happening)]| {
                from.iter().find(|(_, happening)| is_switch(*happening)).map_or(u64::MAX, |(at_ns, _)| *at_ns)
            };
            self.pass(at_ns, happening == Charged, switch_ns(rest));
            let current = self.current();
            match happening {
                Forked(task) => {
                    let reason = Reason::Fork { parent: current.unwrap_or(task), cpu: CPU };
                    self.ask(|linux, ctx| linux.enqueue(ctx, task, CPU, reason));
                }
                Woken(task) => {
                    if self.linux.queue_of(task).is_none() {
                        let reason = Reason::Wake { waker: current, cpu: CPU, sync: false };
                        self.ask(|linux, ctx| linux.enqueue(ctx, task, CPU, reason));
                    }
                }
                Starts => self.counts = Counts::default(),
                Ticks | Charged => {
                    if let Some(task) = current {
                        self.ask(|linux, ctx| linux.tick(ctx, CPU, task));
                    }
                }
                Yields => {
                    if let Some(task) = current {
                        self.ask(|linux, ctx| linux.yielded(ctx, CPU, task));
                        // Another switch that comes soon is not that of the yield.
                        self.asks_since_ns = Some((self.now_ns + YIELD_NS).saturating_sub(GRACE_NS));
                    }
                }
                Preempted(next) => {
                    let asks = self.asks_since_ns.is_some() || current.is_none();
                    self.compare(next, asks);
                }
                Blocks(next) | Ends(next) => {
                    if let Some(task) = current {
                        let ends = matches!(happening, Ends(_));
                        if ends {
                            self.linux.exits(task);
                        }
                        self.ask(|linux, ctx| linux.blocked(ctx, CPU, task));
                        self.compare(next, true);
                        if ends {
                            self.ask(|linux, ctx| linux.exited(ctx, task));
                        }
                    }
                }
            }
            self.settle(switch_ns(&rest[1..]));
        }
        self.counts
    }
}

/// The share of equal picks that is the goal.
const GOAL: f64 = 0.99;

/// Compares all programs, and fails if one misses the goal that is not in the list, or falls below its share
/// there.
fn compare(release: &str, era: LinuxEra, misses: &[(&str, f64)]) {
    println!("| program         | picks | equal | extra | share |");
    let mut failed = Vec::new();
    for program in PROGRAMS {
        let recording = Recording::read(release, program);
        let counts = Replay::new(era, &recording).run(&recording);
        println!("| {program:15} {counts}");
        let least = misses.iter().find(|(name, _)| *name == program).map_or(GOAL, |(_, share)| *share);
        if counts.picks < 100 || counts.equal_share() < least {
            failed.push(program);
        }
    }
    assert!(failed.is_empty(), "{release}: {failed:?}");
}

#[test]
fn picks_are_those_of_linux_6_12() {
    let misses = [("pipeline", 0.97), ("forks", 0.98), ("generations", 0.82), ("semaphore", 0.96)];
    compare("6.12", LinuxEra::V6_12, &misses);
}

#[test]
fn picks_are_those_of_linux_7_3() {
    let misses = [("forks", 0.98), ("generations", 0.87), ("server", 0.94)];
    compare("7.3", LinuxEra::V7_3, &misses);
}

/// A scheduler with the rules of another release does not pass.
#[test]
fn another_release_picks_otherwise() {
    for (release, era) in [("6.12", LinuxEra::V7_3), ("7.3", LinuxEra::V6_12)] {
        let missed = PROGRAMS.iter().filter(|program| {
            let recording = Recording::read(release, program);
            Replay::new(era, &recording).run(&recording).equal_share() < GOAL
        });
        assert!(missed.count() >= 3, "{release} as {era:?}");
    }
}
