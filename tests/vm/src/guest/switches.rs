//! Who ran when and where: a trace of the kernel's context switches, and what it says about tasks.

use crate::record::Task;
use anyhow::{Context, Result, ensure};
use std::collections::HashMap;
use std::fs;

const TRACING: &str = "/sys/kernel/tracing";
/// Room for the switches of each CPU, KiB: some 80 bytes each.
const BUFFER_KIB: u32 = 4096;

/// A trace of all context switches, which goes on until it is stopped.
pub struct Trace(());

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
}

/// A task that is followed.
#[derive(Default)]
struct Followed {
    task: Task,
    last_cpu: Option<usize>,
    /// Since when it has been on that CPU, if it is.
    since_ns: Option<u64>,
}

impl Trace {
    /// Traces from now on.
    pub fn start() -> Result<Self> {
        set("buffer_size_kb", &BUFFER_KIB.to_string())?;
        set("trace_clock", "mono")?;
        set("trace", "")?;
        set("events/sched/sched_switch/enable", "1")?;
        set("tracing_on", "1")?;
        Ok(Self(()))
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
        ensure!(kept == written, "only {kept} of {written} switches fit into the trace's buffer");
        Ok(text)
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        // What stays on makes the next trace larger, no more.
        let _ = set("events/sched/sched_switch/enable", "0");
        let _ = set("tracing_on", "0");
        let _ = set("buffer_size_kb", "1");
    }
}

fn set(file: &str, value: &str) -> Result<()> {
    let file = format!("{TRACING}/{file}");
    fs::write(&file, value).with_context(|| format!("cannot write to {file}"))
}

/// What the tasks of these names did from `start_ns` to `end_ns`, and when one of them last left a CPU.
pub fn of_tasks(
    trace: &str,
    names: &[String],
    cpus: usize,
    start_ns: u64,
    end_ns: u64,
) -> Result<(Vec<Task>, u64)> {
    let switches: Vec<Switch> = trace.lines().filter_map(parse).collect();
    // A thread gives itself its name when it has begun to run; it is known by its number before.
    let mut numbers = HashMap::new();
    for switch in &switches {
        for (pid, name) in [(switch.from, &switch.from_name), (switch.to, &switch.to_name)] {
            if let Some(task) = names.iter().position(|known| known == name) {
                numbers.insert(pid, task);
            }
        }
    }
    ensure!(numbers.len() == names.len(), "{} of {} tasks are in the trace", numbers.len(), names.len());
    let mut tasks: Vec<Followed> = names
        .iter()
        .map(|name| Followed {
            task: Task { name: name.clone(), run_ns: vec![0; cpus], ..Task::default() },
            ..Followed::default()
        })
        .collect();
    let mut last_ns = start_ns;
    for switch in switches.iter().filter(|switch| (start_ns..end_ns).contains(&switch.at_ns)) {
        if let Some(&task) = numbers.get(&switch.from) {
            tasks[task].leave(switch);
            last_ns = switch.at_ns;
        }
        if let Some(&task) = numbers.get(&switch.to) {
            tasks[task].enter(switch);
        }
    }
    for task in &mut tasks {
        if let (Some(since_ns), Some(cpu)) = (task.since_ns, task.last_cpu) {
            task.task.run_ns[cpu] += end_ns - since_ns;
            last_ns = end_ns;
        }
    }
    Ok((tasks.into_iter().map(|followed| followed.task).collect(), last_ns - start_ns))
}

impl Followed {
    fn enter(&mut self, switch: &Switch) {
        self.task.migrations += u64::from(self.last_cpu.is_some_and(|cpu| cpu != switch.cpu));
        self.last_cpu = Some(switch.cpu);
        self.since_ns = Some(switch.at_ns);
    }

    fn leave(&mut self, switch: &Switch) {
        if let Some(since_ns) = self.since_ns.take() {
            self.task.run_ns[switch.cpu] += switch.at_ns - since_ns;
        }
        *(if switch.runnable { &mut self.task.runnable } else { &mut self.task.blocked }) += 1;
    }
}

/// A line such as `  a/1-71  [002] d..2.  12.345678: sched_switch: prev_comm=a/1 prev_pid=71 prev_prio=120 prev_state=R+ ==>
/// next_comm=swapper/2 next_pid=0 next_prio=120`.
pub(super) fn parse(line: &str) -> Option<Switch> {
    let (place, event) = line.split_once(": sched_switch: prev_comm=")?;
    let (_, cpu) = place.rsplit_once('[')?;
    let (seconds, micros) = place.rsplit_once(' ')?.1.split_once('.')?;
    let (from, to) = event.split_once(" ==> next_comm=")?;
    let (from_name, from) = from.rsplit_once(" prev_pid=")?;
    let (to_name, to) = to.rsplit_once(" next_pid=")?;
    let (_, state) = from.split_once("prev_state=")?;
    Some(Switch {
        cpu: cpu.split_once(']')?.0.parse().ok()?,
        at_ns: seconds.parse::<u64>().ok()? * 1_000_000_000 + micros.parse::<u64>().ok()? * 1_000,
        from: from.split_whitespace().next()?.parse().ok()?,
        from_name: from_name.into(),
        runnable: state.starts_with('R'),
        to: to.split_whitespace().next()?.parse().ok()?,
        to_name: to_name.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "\
# tracer: nop
          <idle>-0       [001] d..2.     1.000100: sched_switch: prev_comm=swapper/1 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=vm-guest next_pid=71 next_prio=120
             a/0-71      [001] d..2.     1.000300: sched_switch: prev_comm=a/0 prev_pid=71 prev_prio=120 prev_state=R+ ==> next_comm=a/1 next_pid=72 next_prio=120
          <idle>-0       [003] d..2.     1.000350: sched_switch: prev_comm=swapper/3 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=a/0 next_pid=71 next_prio=120
             a/0-71      [003] d..2.     1.000400: sched_switch: prev_comm=a/0 prev_pid=71 prev_prio=120 prev_state=S ==> next_comm=k worker next_pid=9 next_prio=120
             a/1-72      [001] d..2.     1.000900: sched_switch: prev_comm=a/1 prev_pid=72 prev_prio=120 prev_state=X ==> next_comm=swapper/1 next_pid=0 next_prio=120
";

    #[test]
    fn runs_switches_and_migrations_are_those_of_the_trace() {
        let names = ["a/0".to_owned(), "a/1".to_owned()];
        let (tasks, span_ns) = of_tasks(TRACE, &names, 4, 1_000_000_000, 1_000_800_000).unwrap();
        let first = Task {
            name: "a/0".into(),
            run_ns: vec![0, 200_000, 0, 50_000],
            blocked: 1,
            runnable: 1,
            migrations: 1,
        };
        // The second still runs when the time is over.
        let second = Task { name: "a/1".into(), run_ns: vec![0, 500_000, 0, 0], ..Task::default() };
        assert_eq!((tasks, span_ns), (vec![first, second], 800_000));
        assert!(of_tasks(TRACE, &["a/2".to_owned()], 4, 0, 1).is_err());
    }

    #[test]
    fn a_name_may_have_blanks() {
        let switch = parse(TRACE.lines().nth(4).unwrap()).unwrap();
        assert_eq!((switch.to_name.as_str(), switch.to, switch.runnable), ("k worker", 9, false));
        assert_eq!(parse("# tracer: nop"), None);
    }
}
