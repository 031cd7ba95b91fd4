//! How long idle CPUs of a recorded machine took to run what they were woken for.

use std::sync::Arc;
use tandem_recording::{Event, Kind, NO_TASK, Recording};
use tandem_sim::cost::Idle;

/// Quantiles that are kept of the measured times.
const QUANTILES: usize = 200;

/// The times from wake-ups of tasks to their turns on CPUs that were idle until then.
pub fn idle_exits(recording: &Recording) -> Idle {
    // For each task that was woken while some CPU was idle: when, and on which CPU.
    let mut woken: Vec<Option<(u64, u32)>> = vec![None; recording.about.tasks.len()];
    // Since when each CPU idles, ns.
    let mut idle_since_ns = vec![u64::MAX; recording.about.cpus as usize];
    let (mut by_others_ns, mut by_itself_ns) = (Vec::new(), Vec::new());
    for event in &recording.events {
        let Event { at_ns, cpu, kind, task, other, .. } = *event;
        let at = cpu as usize;
        if at >= idle_since_ns.len() {
            continue;
        }
        match kind {
            Kind::Wake => {
                if let Some(woken) = woken.get_mut(task as usize) {
                    *woken = Some((at_ns, cpu));
                }
            }
            Kind::Switch => {
                if let Some((woken_ns, by)) = woken.get_mut(other as usize).and_then(Option::take)
                    && task == NO_TASK
                    && idle_since_ns[at] <= woken_ns
                {
                    let times = if by == cpu { &mut by_itself_ns } else { &mut by_others_ns };
                    times.push(at_ns - woken_ns);
                }
                idle_since_ns[at] = if other == NO_TASK { at_ns } else { u64::MAX };
            }
            _ => {}
        }
    }
    Idle::Measured { by_others_ns: quantiles(by_others_ns), by_itself_ns: quantiles(by_itself_ns) }
}

/// Times that stand for all of them.
fn quantiles(mut times_ns: Vec<u64>) -> Arc<[u64]> {
    times_ns.sort_unstable();
    if times_ns.len() <= QUANTILES {
        return times_ns.into();
    }
    (0..QUANTILES).map(|at| times_ns[(2 * at + 1) * times_ns.len() / (2 * QUANTILES)]).collect()
}
