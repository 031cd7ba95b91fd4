//! A part of a recording, on a clock of its own.

use tandem_recording::{Event, Kind, NO_TASK, Recording, TaskState};

/// What a recording has from one time to another, which becomes its start and its end; `moved` gives the time of an
/// event by the clock on which these are, ns.
pub(super) fn cut(recording: &Recording, from_ns: u64, to_ns: u64, moved: impl Fn(u64) -> i64) -> Recording {
    let mut about = recording.about.clone();
    about.length_ns = to_ns - from_ns;
    // What each CPU runs when the part starts, if that is known.
    let mut on_cpu = vec![None; about.cpus as usize];
    let mut events = Vec::new();
    for event in &recording.events {
        let at_ns = moved(event.at_ns);
        if at_ns < from_ns as i64 {
            if event.kind == Kind::Switch
                && let Some(on_cpu) = on_cpu.get_mut(event.cpu as usize)
            {
                *on_cpu = Some(event.other);
            }
        } else if at_ns <= to_ns as i64 {
            events.push(Event { at_ns: at_ns as u64 - from_ns, ..*event });
        }
    }
    let running = on_cpu.iter().enumerate().filter_map(|(cpu, task)| Some((cpu as u32, (*task)?)));
    let starts = running.filter(|(_, task)| *task != NO_TASK).map(|(cpu, task)| Event {
        at_ns: 0,
        cpu,
        kind: Kind::Switch,
        task: NO_TASK,
        other: task,
        detail: TaskState::Runnable as u32,
    });
    Recording { about, events: starts.chain(events).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_begins_with_what_runs_then() {
        let switch = |at_ns, task, other| Event { at_ns, cpu: 0, kind: Kind::Switch, task, other, detail: 0 };
        let mut whole = Recording::default();
        (whole.about.cpus, whole.about.length_ns) = (1, 1_000);
        whole.events = vec![switch(100, NO_TASK, 0), switch(300, 0, 1), switch(700, 1, 0)];
        let part = cut(&whole, 500, 800, |at_ns| at_ns as i64 + 100);
        assert_eq!(part.events, [switch(0, NO_TASK, 1), switch(300, 1, 0)]);
        assert_eq!(part.about.length_ns, 300);
    }
}
