//! How long tasks wait after they have woken up, by a trace of wake-ups, context switches and ticks.

use super::switches::{Event, TICK_NS, parse_tick};
use std::collections::{BTreeSet, HashMap};

/// Waits of a thread after each of its wake-ups in the trace, ns, ascending, by the clock of the CPU on which
/// it then ran. A wait shorter than a tick may count as nothing or as a tick.
pub fn waits_ns(trace: &str, thread: u32) -> Vec<u64> {
    let mut ticks: HashMap<usize, BTreeSet<u64>> = HashMap::new();
    for (cpu, at_ns) in trace.lines().filter_map(parse_tick) {
        ticks.entry(cpu).or_default().insert(at_ns);
    }
    let mut woken_ns = None;
    let mut waits_ns = Vec::new();
    for event in trace.lines().filter_map(Event::parse) {
        match event {
            Event::Waking { at_ns, task } if task == thread => woken_ns = Some(at_ns),
            Event::Switch(switch) if switch.to == thread => {
                let ticks = |woken_ns| {
                    ticks.get(&switch.cpu).map(|ticks| ticks.range(woken_ns..switch.at_ns).count())
                };
                waits_ns
                    .extend(woken_ns.take().map(|woken_ns| ticks(woken_ns).unwrap_or(0) as u64 * TICK_NS));
            }
            _ => {}
        }
    }
    waits_ns.sort_unstable();
    waits_ns
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "\
          <idle>-0       [001] d.h2.     1.000000: sched_waking: comm=a pid=71 prio=120 target_cpu=001
             b-72        [001] d.h1.     1.000100: local_timer_entry: vector=236
             b-72        [002] d.h1.     1.000100: local_timer_entry: vector=236
             b-72        [001] d.h1.     1.004100: local_timer_entry: vector=236
             b-72        [001] d..2.     1.005000: sched_switch: prev_comm=b prev_pid=72 prev_prio=120 prev_state=R+ ==> next_comm=a next_pid=71 next_prio=120
             a-71        [001] d.h1.     1.008100: local_timer_entry: vector=236
             a-71        [001] d..2.     1.009000: sched_switch: prev_comm=a prev_pid=71 prev_prio=120 prev_state=R+ ==> next_comm=b next_pid=72 next_prio=120
             b-72        [001] d..2.     1.010000: sched_switch: prev_comm=b prev_pid=72 prev_prio=120 prev_state=S ==> next_comm=a next_pid=71 next_prio=120
             a-71        [001] d..3.     1.011000: sched_waking: comm=b pid=72 prio=120 target_cpu=003
          <idle>-0       [003] d..2.     1.011100: sched_switch: prev_comm=swapper/3 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=b next_pid=72 next_prio=120
";

    #[test]
    fn only_waits_after_wake_ups_count() {
        assert_eq!(waits_ns(TRACE, 71), [2 * TICK_NS]);
        assert_eq!(waits_ns(TRACE, 72), [0]);
        assert!(waits_ns(TRACE, 73).is_empty());
    }
}
