//! How long tasks wait while CPUs that they may use idle, by a trace of context switches.
//!
//! A task waits from where it is switched out though it could go on, to where it runs next. What such a wait has in common
//! with a stretch in which one CPU idles is counted if it is longer than some time; of several CPUs, the one that idles
//! longest beside it.

use super::switches::{Switch, parse};
use std::collections::HashMap;
use std::ops::Range;

/// The number of the task that runs where nothing does.
const IDLE: u32 = 0;

/// What tasks waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waited {
    /// How often they waited.
    pub waits: u64,
    /// How long, ns, all together.
    pub waited_ns: u64,
    /// The part of it beside a CPU that idled for longer than the limit meanwhile, ns.
    pub beside_idle_ns: u64,
    /// The longest that one waited beside an idle CPU, ns.
    pub longest_ns: u64,
}

/// How threads with these numbers waited beside CPUs that idled for longer than `limit_ns`. They may use all CPUs.
pub fn waited(trace: &str, threads: &[u32], limit_ns: u64) -> Waited {
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
    let mut waited = Waited::default();
    for wait in waits {
        waited.waits += 1;
        waited.waited_ns += wait.end - wait.start;
        let beside = |idle: &Range<u64>| idle.end.min(wait.end).saturating_sub(idle.start.max(wait.start));
        let longest_ns = idle.iter().map(beside).max().unwrap_or(0);
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

    fn line(cpu: usize, ms: u64, from: (u32, &str), to: u32) -> String {
        let (from, state) = from;
        format!(
            "  x-{from} [{cpu:03}] d..2. {}.{:06}: sched_switch: prev_comm=a prev_pid={from} prev_prio=120 \
             prev_state={state} ==> next_comm=b next_pid={to} next_prio=120\n",
            ms / 1000,
            ms % 1000 * 1000
        )
    }

    #[test]
    fn only_waits_beside_a_cpu_that_idles_count() {
        let trace = [
            line(1, 10, (9, "S"), 0),
            line(0, 20, (71, "R+"), 72),
            line(1, 25, (0, "R"), 9),
            line(0, 30, (72, "S"), 71),
            // It sleeps, and CPU 1 idles: no wait.
            line(1, 40, (9, "S"), 0),
            line(0, 50, (71, "S"), 72),
            line(0, 60, (72, "R"), 71),
            // 72 waits from 60 to 100, CPU 1 idles to 90.
            line(1, 90, (0, "R"), 9),
            line(0, 100, (71, "S"), 72),
        ]
        .concat();
        let expected =
            Waited { waits: 2, waited_ns: 50_000_000, beside_idle_ns: 30_000_000, longest_ns: 30_000_000 };
        assert_eq!(waited(&trace, &[71, 72], 20_000_000), expected);
        assert_eq!(waited(&trace, &[71], 1_000_000).beside_idle_ns, 5_000_000);
        assert_eq!(waited(&trace, &[71, 72], 30_000_000).beside_idle_ns, 0);
    }
}
