//! Which task ran when and where: a trace of the kernel's context switches and wake-ups, and its evaluation.

use crate::record::{Burst, Other, Task, Waits};
use anyhow::{Context, Result, ensure};
use std::collections::{BTreeMap, HashMap};
use std::fs;

const TRACING: &str = "/sys/kernel/tracing";
const SWITCHES: [&str; 3] = ["sched/sched_switch", "sched/sched_waking", "task/task_rename"];
/// Interrupts of the CPUs' own timers; on one that runs a task most are ticks.
const TICKS: &str = "irq_vectors/local_timer_entry";
/// Time from tick to tick, ns: both kernels have HZ=250.
pub const TICK_NS: u64 = 4_000_000;
/// Room for the events of each CPU, KiB: some 80 bytes each.
const BUFFER_KIB: u32 = 4096;

/// The priority of a task with the nice value 0.
const NICE_0_PRIORITY: i32 = 120;
/// The number of what runs on a CPU that has nothing to do.
const IDLE: u32 = 0;

/// A trace of all context switches and wake-ups, which continues until it is stopped.
pub struct Trace {
    events: Vec<&'static str>,
}

/// A context switch.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Switch {
    pub cpu: usize,
    pub at_ns: u64,
    pub from: u32,
    pub from_name: String,
    /// Whether the task that leaves the CPU could have gone on.
    pub runnable: bool,
    pub to: u32,
    pub to_name: String,
    /// The nice value of that one, if it has a priority of that kind.
    pub to_nice: i32,
}

/// An event that is traced.
pub(super) enum Event {
    Switch(Switch),
    /// A task is woken.
    Waking {
        at_ns: u64,
        task: u32,
    },
    /// A task gives itself a name.
    Rename {
        at_ns: u64,
        task: u32,
        name: String,
    },
}

/// A task that is followed.
#[derive(Default)]
struct Followed {
    task: Task,
    last_cpu: Option<usize>,
    /// Since when it has been on that CPU, if it is.
    since_ns: Option<u64>,
    /// Since when it has waited for a CPU, if it does.
    waits_since_ns: Option<u64>,
    /// How long it waited each time.
    waits_ns: Vec<u64>,
}

/// Another task.
#[derive(Default)]
struct OtherFollowed {
    other: Other,
    /// Since it woke up.
    burst: Option<Burst>,
    /// Since when it has been on a CPU, if it is.
    since_ns: Option<u64>,
}

impl Trace {
    /// Traces from now on.
    pub fn start() -> Result<Self> {
        Self::start_of(SWITCHES.to_vec())
    }

    /// Traces from now on, including how long CPUs run by their own clocks.
    pub fn start_with_ticks() -> Result<Self> {
        Self::start_of([&SWITCHES[..], &[TICKS]].concat())
    }

    fn start_of(events: Vec<&'static str>) -> Result<Self> {
        set("buffer_size_kb", &BUFFER_KIB.to_string())?;
        set("trace_clock", "mono")?;
        set("trace", "")?;
        let trace = Self { events };
        for event in &trace.events {
            set(&format!("events/{event}/enable"), "1")?;
        }
        set("tracing_on", "1")?;
        Ok(trace)
    }

    /// Ends the trace; its text.
    pub fn stop(self) -> Result<String> {
        set("tracing_on", "0")?;
        let file = format!("{TRACING}/trace");
        let text = fs::read_to_string(&file).with_context(|| format!("cannot read {file}"))?;
        let entries =
            text.lines().find_map(|line| line.strip_prefix("# entries-in-buffer/entries-written: "));
        let (kept, written) = entries
            .and_then(|entries| entries.split_whitespace().next()?.split_once('/'))
            .with_context(|| format!("{file} does not say how many entries it has"))?;
        ensure!(kept == written, "only {kept} of {written} events fit into the trace's buffer");
        Ok(text)
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        // What stays on makes the next trace larger, no more.
        for event in &self.events {
            let _ = set(&format!("events/{event}/enable"), "0");
        }
        let _ = set("tracing_on", "0");
        let _ = set("buffer_size_kb", "1");
    }
}

fn set(file: &str, value: &str) -> Result<()> {
    let file = format!("{TRACING}/{file}");
    fs::write(&file, value).with_context(|| format!("cannot write to {file}"))
}

/// The evaluation of a trace over some time.
#[derive(Debug, Default)]
pub struct Seen {
    /// The records of the requested tasks, in that order.
    pub tasks: Vec<Task>,
    /// From the beginning to when one of these last left a CPU, ns.
    pub span_ns: u64,
    /// How long these waited.
    pub waits: Waits,
    /// All other tasks that ran; idling is not a task.
    pub others: Vec<Other>,
    /// How often one of the tasks was woken and then the next on a CPU that had been idle.
    pub idle_wakes: u64,
    /// From these wake-ups to when it was on the CPU, in all, ns.
    pub idle_wake_ns: u64,
}

/// The activity of the tasks with these names, and of others, from `start_ns` to `end_ns`.
pub fn of_tasks(trace: &str, names: &[String], cpus: usize, start_ns: u64, end_ns: u64) -> Result<Seen> {
    let events: Vec<Event> = trace.lines().filter_map(Event::parse).collect();
    // A thread gives itself its name when it has begun to run; before, its number identifies it.
    let mut numbers = HashMap::new();
    for event in &events {
        if let Event::Rename { task, name, .. } = event
            && let Some(number) = names.iter().position(|known| known == name)
        {
            numbers.insert(*task, number);
        }
    }
    ensure!(numbers.len() == names.len(), "{} of {} tasks are in the trace", numbers.len(), names.len());
    let follow = |name: &str| Followed {
        task: Task { name: name.into(), run_ns: vec![0; cpus], ..Task::default() },
        ..Followed::default()
    };
    let mut tasks: Vec<Followed> = names.iter().map(|name| follow(name)).collect();
    let mut others: BTreeMap<u32, OtherFollowed> = BTreeMap::new();
    let mut last_ns = start_ns;
    let mut woken = HashMap::new();
    let (mut idle_wakes, mut idle_wake_ns) = (0, 0);
    for event in events.iter().filter(|event| (start_ns..end_ns).contains(&event.at_ns())) {
        let switch = match event {
            Event::Switch(switch) => switch,
            Event::Waking { at_ns, task } => {
                woken.insert(*task, *at_ns);
                if let Some(&task) = numbers.get(task) {
                    tasks[task].wake(*at_ns);
                }
                continue;
            }
            Event::Rename { .. } => continue,
        };
        match numbers.get(&switch.from) {
            Some(&task) => {
                tasks[task].leave(switch);
                last_ns = switch.at_ns;
            }
            None if switch.from == IDLE => {}
            None => others.entry(switch.from).or_default().leave(switch),
        }
        match numbers.get(&switch.to) {
            Some(&task) => {
                tasks[task].enter(switch, start_ns);
                if let (IDLE, Some(woken_ns)) = (switch.from, woken.remove(&switch.to)) {
                    idle_wakes += 1;
                    idle_wake_ns += switch.at_ns - woken_ns;
                }
            }
            None if switch.to == IDLE => {}
            None => {
                let woken_ns = woken.remove(&switch.to).unwrap_or(switch.at_ns) - start_ns;
                others.entry(switch.to).or_default().enter(switch, woken_ns);
            }
        }
    }
    tasks.iter_mut().for_each(|task| task.end(end_ns));
    if tasks.iter().any(|task| task.since_ns.is_some()) {
        last_ns = end_ns;
    }
    let waits = Waits::of(tasks.iter().flat_map(|followed| followed.waits_ns.iter().copied()).collect());
    let tasks = tasks.into_iter().map(|followed| followed.task).collect();
    let others = others.into_values().map(|followed| followed.end(end_ns)).collect();
    Ok(Seen { tasks, span_ns: last_ns - start_ns, waits, others, idle_wakes, idle_wake_ns })
}

impl Followed {
    /// It is woken. On its CPU still, it may be about to leave that, or may go on: no one can tell.
    fn wake(&mut self, at_ns: u64) {
        if self.last_cpu.is_some() && self.since_ns.is_none() {
            self.waits_since_ns.get_or_insert(at_ns);
        }
    }

    fn enter(&mut self, switch: &Switch, start_ns: u64) {
        if self.last_cpu.is_none() {
            self.task.start_ns = switch.at_ns - start_ns;
            self.task.start_cpu = switch.cpu;
        }
        if let Some(since_ns) = self.waits_since_ns.take() {
            self.waits_ns.push(switch.at_ns - since_ns);
        }
        self.task.migrations += u64::from(self.last_cpu.is_some_and(|cpu| cpu != switch.cpu));
        self.last_cpu = Some(switch.cpu);
        self.since_ns = Some(switch.at_ns);
    }

    fn leave(&mut self, switch: &Switch) {
        if let Some(since_ns) = self.since_ns.take() {
            self.task.run_ns[switch.cpu] += switch.at_ns - since_ns;
        }
        self.waits_since_ns = switch.runnable.then_some(switch.at_ns);
        *(if switch.runnable { &mut self.task.runnable } else { &mut self.task.blocked }) += 1;
    }

    /// The time is over; it may be on a CPU still.
    fn end(&mut self, end_ns: u64) {
        if let (Some(since_ns), Some(cpu)) = (self.since_ns, self.last_cpu) {
            self.task.run_ns[cpu] += end_ns - since_ns;
        }
    }
}

impl OtherFollowed {
    fn enter(&mut self, switch: &Switch, woken_ns: u64) {
        self.other.name.clone_from(&switch.to_name);
        self.other.nice = switch.to_nice;
        let burst = self.burst.get_or_insert(Burst { at_ns: woken_ns, run_ns: 0 });
        burst.at_ns = burst.at_ns.min(woken_ns);
        self.since_ns = Some(switch.at_ns);
    }

    fn leave(&mut self, switch: &Switch) {
        let (Some(since_ns), Some(burst)) = (self.since_ns.take(), &mut self.burst) else { return };
        burst.run_ns += switch.at_ns - since_ns;
        if !switch.runnable {
            self.other.bursts.extend(self.burst.take());
        }
    }

    /// The time is over; it may be on a CPU still.
    fn end(mut self, end_ns: u64) -> Other {
        if let (Some(since_ns), Some(burst)) = (self.since_ns, &mut self.burst) {
            burst.run_ns += end_ns - since_ns;
        }
        self.other.bursts.extend(self.burst);
        self.other
    }
}

impl Event {
    /// A line such as `  a/1-71  [002] d..2.  12.345678: sched_waking: comm=a/2 pid=72 prio=120
    /// target_cpu=001`, a switch, or `  a/1-71  [002] .....  12.345678: task_rename: oldcomm=vm-guest
    /// newcomm=a/1 oom_score_adj=0`.
    pub fn parse(line: &str) -> Option<Self> {
        if let Some((place, event)) = line.split_once(": task_rename: ") {
            let (name, _) = event.split_once("newcomm=")?.1.rsplit_once(" oom_score_adj=")?;
            let (task, _) = place.rsplit_once('[')?;
            let (_, task) = task.trim_end().rsplit_once('-')?;
            return Some(Self::Rename {
                at_ns: time_ns(place)?,
                task: task.parse().ok()?,
                name: name.into(),
            });
        }
        let Some((place, event)) = line.split_once(": sched_waking: comm=") else {
            return parse(line).map(Self::Switch);
        };
        let (_, task) = event.rsplit_once(" pid=")?;
        Some(Self::Waking { at_ns: time_ns(place)?, task: task.split_whitespace().next()?.parse().ok()? })
    }

    fn at_ns(&self) -> u64 {
        match self {
            Self::Switch(switch) => switch.at_ns,
            Self::Waking { at_ns, .. } | Self::Rename { at_ns, .. } => *at_ns,
        }
    }
}

/// A line such as `  a/1-71  [002] d..2.  12.345678: sched_switch: prev_comm=a/1 prev_pid=71 prev_prio=120
/// prev_state=R+ ==> next_comm=swapper/2 next_pid=0 next_prio=120`.
pub(super) fn parse(line: &str) -> Option<Switch> {
    let (place, event) = line.split_once(": sched_switch: prev_comm=")?;
    let (from, to) = event.split_once(" ==> next_comm=")?;
    let (from_name, from) = from.rsplit_once(" prev_pid=")?;
    let (to_name, to) = to.rsplit_once(" next_pid=")?;
    let (_, state) = from.split_once("prev_state=")?;
    Some(Switch {
        cpu: cpu(place)?,
        at_ns: time_ns(place)?,
        from: from.split_whitespace().next()?.parse().ok()?,
        from_name: from_name.into(),
        runnable: state.starts_with('R'),
        to: to.split_whitespace().next()?.parse().ok()?,
        to_name: to_name.into(),
        to_nice: to.split_once("next_prio=")?.1.trim().parse::<i32>().ok()? - NICE_0_PRIORITY,
    })
}

/// When and on which CPU a tick came while a task ran, from a line such as `  a/1-71  [002] d.h1.  12.345678:
/// local_timer_entry: vector=236`.
pub(super) fn parse_tick(line: &str) -> Option<(usize, u64)> {
    let (place, _) = line.split_once(": local_timer_entry: ")?;
    let idles = place.trim_start().starts_with("<idle>-");
    (!idles).then_some((cpu(place)?, time_ns(place)?))
}

/// The CPU in the part of a line before the event's name.
fn cpu(place: &str) -> Option<usize> {
    place.rsplit_once('[')?.1.split_once(']')?.0.parse().ok()
}

/// The time in the part of a line before the event's name.
fn time_ns(place: &str) -> Option<u64> {
    let (seconds, micros) = place.rsplit_once(' ')?.1.split_once('.')?;
    Some(seconds.parse::<u64>().ok()? * 1_000_000_000 + micros.parse::<u64>().ok()? * 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "\
# tracer: nop
          <idle>-0       [001] d..2.     1.000100: sched_switch: prev_comm=swapper/1 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=vm-guest next_pid=71 next_prio=120
             a/0-71      [001] .....     1.000110: task_rename: oldcomm=vm-guest newcomm=a/0 oom_score_adj=0
             a/0-71      [001] d..2.     1.000300: sched_switch: prev_comm=a/0 prev_pid=71 prev_prio=120 prev_state=R+ ==> next_comm=a/1 next_pid=72 next_prio=120
           <...>-72      [001] .....     1.000310: task_rename: pid=72 oldcomm=vm-guest newcomm=a/1 oom_score_adj=0
             a/1-72      [001] d..3.     1.000320: sched_waking: comm=a/0 pid=71 prio=120 target_cpu=003
          <idle>-0       [003] d..2.     1.000350: sched_switch: prev_comm=swapper/3 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=a/0 next_pid=71 next_prio=120
             a/0-71      [003] d..2.     1.000400: sched_switch: prev_comm=a/0 prev_pid=71 prev_prio=120 prev_state=S ==> next_comm=k worker next_pid=9 next_prio=139
             a/1-72      [001] d..2.     1.000900: sched_switch: prev_comm=a/1 prev_pid=72 prev_prio=120 prev_state=X ==> next_comm=swapper/1 next_pid=0 next_prio=120
";

    #[test]
    fn runs_switches_and_migrations_are_those_of_the_trace() {
        let names = ["a/0".to_owned(), "a/1".to_owned()];
        let seen = of_tasks(TRACE, &names, 4, 1_000_000_000, 1_000_800_000).unwrap();
        let first = Task {
            name: "a/0".into(),
            start_ns: 100_000,
            start_cpu: 1,
            run_ns: vec![0, 200_000, 0, 50_000],
            blocked: 1,
            runnable: 1,
            migrations: 1,
        };
        // The second still runs when the time is over.
        let second = Task {
            name: "a/1".into(),
            start_ns: 300_000,
            start_cpu: 1,
            run_ns: vec![0, 500_000, 0, 0],
            ..Task::default()
        };
        assert_eq!((seen.tasks, seen.span_ns), (vec![first, second], 800_000));
        // From when it lost its CPU, not from the wake-up that followed.
        assert_eq!(seen.waits, Waits::of(vec![50_000]));
        let other = Other {
            name: "k worker".into(),
            nice: 19,
            bursts: vec![Burst { at_ns: 400_000, run_ns: 400_000 }],
        };
        assert_eq!(seen.others, [other]);
        assert_eq!((seen.idle_wakes, seen.idle_wake_ns), (1, 30_000));
        assert!(of_tasks(TRACE, &["a/2".to_owned()], 4, 0, 1).is_err());
    }

    #[test]
    fn a_name_may_have_blanks() {
        let switch = parse(TRACE.lines().nth(7).unwrap()).unwrap();
        assert_eq!((switch.to_name.as_str(), switch.to, switch.runnable), ("k worker", 9, false));
        assert_eq!(parse("# tracer: nop"), None);
    }

    #[test]
    fn ticks_are_those_of_tasks() {
        let tick = |who| format!(" {who}  [012] d.h1.  1.000320: local_timer_entry: vector=236");
        assert_eq!(parse_tick(&tick("a b/1-71")), Some((12, 1_000_320_000)));
        assert_eq!(parse_tick(&tick("<idle>-0")), None);
        assert_eq!(parse_tick(TRACE.lines().nth(1).unwrap()), None);
    }
}
