//! How long tasks wait while CPUs that they may use idle, by a trace of context switches and ticks.
//!
//! A task waits from when it is switched out although it could continue, to when it runs next. The part of
//! such a wait during which one CPU idles counts if it is longer than some time; of several CPUs, the one
//! that idles longest during it.
//!
//! Time is what the other CPUs can do meanwhile: the ticks that the busiest of them takes. By the guest's
//! clock it would depend on the machine, since an idle CPU first has to get one of the machine's to run
//! anything.

use super::switches::{Switch, TICK_NS, parse, parse_tick};
use std::collections::HashMap;
use std::ops::Range;

/// The number of the task that runs where nothing does.
const IDLE: u32 = 0;

/// The waits of tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waited {
    /// How often they waited.
    pub waits: u64,
    /// How long, ns of the guest's clock, all together.
    pub waited_ns: u64,
    /// How long the observation took, ns by the busiest CPU's own clock.
    pub observed_ns: u64,
    /// The part of it in which a CPU idled for longer than the limit, ns.
    pub beside_idle_ns: u64,
    /// The longest that one waited beside an idle CPU, ns.
    pub longest_ns: u64,
}

/// How threads with these numbers waited beside CPUs that idled for longer than `limit_ns`. They may use all
/// CPUs.
pub fn waited(trace: &str, threads: &[u32], limit_ns: u64) -> Waited {
    let mut ticks: HashMap<usize, Vec<u64>> = HashMap::new();
    for (cpu, at_ns) in trace.lines().filter_map(parse_tick) {
        ticks.entry(cpu).or_default().push(at_ns);
    }
    let own_ns = |during: Range<u64>| {
        let taken = |at_ns: &Vec<u64>| at_ns.iter().filter(|at_ns| during.contains(at_ns)).count() as u64;
        ticks.values().map(taken).max().unwrap_or(0) * TICK_NS
    };
    let mut idle_since = HashMap::new();
    let mut idle: Vec<Range<u64>> = Vec::new();
    let mut ready_since = HashMap::new();
    let mut waits: Vec<Range<u64>> = Vec::new();
    for Switch { cpu, at_ns, from, runnable, to, .. } in trace.lines().filter_map(parse) {
        if from == IDLE {
            idle.extend(idle_since.remove(&cpu).map(|since| since..at_ns));
        }
        if to == IDLE {
            idle_since.insert(cpu, at_ns);
        }
        waits.extend(ready_since.remove(&to).map(|since| since..at_ns));
        if runnable && threads.contains(&from) {
            ready_since.insert(from, at_ns);
        }
    }
    let mut waited = Waited { observed_ns: own_ns(0..u64::MAX), ..Waited::default() };
    for wait in waits {
        waited.waits += 1;
        waited.waited_ns += wait.end - wait.start;
        let both = |idle: &Range<u64>| idle.start.max(wait.start)..idle.end.min(wait.end);
        let beside = idle.iter().map(both).filter(|both| !both.is_empty());
        let longest_ns = beside.map(own_ns).max().unwrap_or(0);
        waited.longest_ns = waited.longest_ns.max(longest_ns);
        if longest_ns > limit_ns {
            waited.beside_idle_ns += longest_ns;
        }
    }
    waited
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn switch(cpu: usize, ms: u64, from: (u32, &str), to: u32) -> String {
        let (from, state) = from;
        format!(
            "  x-{from} [{cpu:03}] d..2. {}.{:06}: sched_switch: prev_comm=a prev_pid={from} prev_prio=120 \
             prev_state={state} ==> next_comm=b next_pid={to} next_prio=120\n",
            ms / 1000,
            ms % 1000 * 1000
        )
    }

    /// A tick on CPU 0.
    fn tick(ms: u64) -> String {
        format!("  x-7 [000] d.h1. {}.{:06}: local_timer_entry: vector=236\n", ms / 1000, ms % 1000 * 1000)
    }

    #[test]
    fn only_waits_beside_a_cpu_that_idles_count() {
        let switches = [
            switch(1, 10, (9, "S"), 0),
            switch(0, 20, (71, "R+"), 72),
            switch(1, 25, (0, "R"), 9),
            switch(0, 30, (72, "S"), 71),
            // It sleeps, and CPU 1 idles: no wait.
            switch(1, 40, (9, "S"), 0),
            switch(0, 50, (71, "S"), 72),
            switch(0, 60, (72, "R"), 71),
            // 72 waits from 60 to 100, CPU 1 idles to 90.
            switch(1, 90, (0, "R"), 9),
            switch(0, 100, (71, "S"), 72),
        ]
        .concat();
        let ticks = |every_ms| (0..100).step_by(every_ms).map(tick).collect::<String>();
        let trace = switches.clone() + &ticks(4);
        let expected = Waited {
            waits: 2,
            waited_ns: 50 * MS,
            observed_ns: 100 * MS,
            beside_idle_ns: 32 * MS,
            longest_ns: 32 * MS,
        };
        assert_eq!(waited(&trace, &[71, 72], 20 * MS), expected);
        assert_eq!(waited(&trace, &[71], MS).beside_idle_ns, 8 * MS);
        assert_eq!(waited(&trace, &[71, 72], 32 * MS).beside_idle_ns, 0);
        // A CPU that gets only a fifth of a CPU of the machine can do only a fifth of the work while others
        // wait.
        assert_eq!(waited(&(switches + &ticks(20)), &[71, 72], 20 * MS).longest_ns, 8 * MS);
    }
}
