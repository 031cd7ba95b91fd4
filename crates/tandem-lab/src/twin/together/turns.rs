//! When the vCPUs of a VM ran, as their host saw it.

use tandem_recording::{Event, Kind, NO_TASK, Recording, TaskState};

/// Exits for a guest that halts: VMX (12), SVM (0x78).
const HALT_EXITS: [u32; 2] = [12, 0x78];
/// Longest time from the turn of a vCPU to its guest's handling of the interrupt that it was woken for, ns: far above
/// what entering a guest takes. An assumption.
const HANDLING_MAX_NS: u64 = 200_000;

/// A turn of a vCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    /// When it got a CPU, ns.
    pub from_ns: u64,
    /// When it left it, ns.
    pub to_ns: u64,
    /// When it was woken before this turn, ns; `None` if it had been preempted.
    pub woken_ns: Option<u64>,
    /// It was not preempted in the end: it slept.
    pub sleeps: bool,
}

/// All turns of a vCPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Turns {
    pub(super) turns: Vec<Turn>,
    /// How long it had run before each turn, ns.
    ran_before_ns: Vec<u64>,
    /// When its guest halted, ns, as far as that is recorded.
    pub(super) halts_ns: Vec<u64>,
}

impl Turns {
    /// Those of this task of the host.
    pub(super) fn of(host: &Recording, vcpu: u32) -> Self {
        let mut found = Self::default();
        let (mut since_ns, mut woken_ns) = (None, None);
        // The first switch of each CPU tells what ran on it before.
        let mut is_known = vec![false; host.about.cpus as usize];
        for event in &host.events {
            let Event { at_ns, cpu, kind, task, other, .. } = *event;
            match kind {
                Kind::Switch => {
                    let was_known =
                        is_known.get_mut(cpu as usize).is_none_or(|known| std::mem::replace(known, true));
                    if task == vcpu {
                        let before = if !was_known && found.turns.is_empty() { Some(0) } else { None };
                        if let Some(from_ns) = since_ns.take().or(before) {
                            let sleeps = event.state() != TaskState::Runnable;
                            found.turns.push(Turn { from_ns, to_ns: at_ns, woken_ns, sleeps });
                        }
                        woken_ns = None;
                    }
                    if other == vcpu {
                        since_ns = Some(at_ns);
                    }
                }
                Kind::Wake if task == vcpu && since_ns.is_none() => woken_ns = Some(at_ns),
                Kind::GuestExit if task == vcpu && HALT_EXITS.contains(&event.detail) => {
                    found.halts_ns.push(at_ns);
                }
                _ => {}
            }
        }
        if let Some(from_ns) = since_ns {
            found.turns.push(Turn { from_ns, to_ns: host.about.length_ns, woken_ns, sleeps: false });
        }
        found.sum_up();
        found
    }

    fn sum_up(&mut self) {
        let mut ran_ns = 0;
        self.ran_before_ns.clear();
        for turn in &self.turns {
            self.ran_before_ns.push(ran_ns);
            ran_ns += turn.to_ns - turn.from_ns;
        }
    }

    /// The same on a clock that begins at that time.
    pub(super) fn since(&self, start_ns: u64) -> Self {
        let moved = |ns: u64| ns.saturating_sub(start_ns);
        let turns = self.turns.iter().filter(|turn| turn.to_ns > start_ns).map(|turn| Turn {
            from_ns: moved(turn.from_ns),
            to_ns: moved(turn.to_ns),
            woken_ns: turn.woken_ns.map(moved),
            sleeps: turn.sleeps,
        });
        let halts_ns = self.halts_ns.iter().filter(|ns| **ns >= start_ns).map(|ns| moved(*ns)).collect();
        let mut found = Self { turns: turns.collect(), ran_before_ns: Vec::new(), halts_ns };
        found.sum_up();
        found
    }

    /// How long it had run up to this time, ns. Of one that the recording never met, nothing is known: it has run
    /// all the time.
    pub fn ran_ns(&self, at_ns: u64) -> u64 {
        if self.turns.is_empty() {
            return at_ns;
        }
        let after = self.turns.partition_point(|turn| turn.from_ns <= at_ns);
        match after.checked_sub(1) {
            Some(at) => self.ran_before_ns[at] + at_ns.min(self.turns[at].to_ns) - self.turns[at].from_ns,
            None => 0,
        }
    }

    /// When what its guest handles at this time has come, ns. If the vCPU has just got a CPU, it was woken for that;
    /// or, if it had been preempted, it came at some time since, of which the middle is taken.
    pub fn came_ns(&self, at_ns: u64) -> u64 {
        let after = self.turns.partition_point(|turn| turn.from_ns <= at_ns);
        let Some(turn) = after.checked_sub(1).map(|at| self.turns[at]) else { return at_ns };
        if at_ns - turn.from_ns > HANDLING_MAX_NS {
            return at_ns;
        }
        let left_ns = after.checked_sub(2).map(|at| self.turns[at].to_ns);
        match (turn.woken_ns, left_ns) {
            (Some(woken_ns), _) => woken_ns.min(at_ns),
            (None, Some(left_ns)) => left_ns.midpoint(turn.from_ns),
            (None, None) => at_ns,
        }
    }

    /// How long it slept from one time to the other, ns.
    pub fn slept_ns(&self, from_ns: u64, to_ns: u64) -> u64 {
        let first = self.turns.partition_point(|turn| turn.to_ns <= from_ns).saturating_sub(1);
        let pairs = self.turns[first.min(self.turns.len())..].windows(2);
        let gaps = pairs.take_while(|pair| pair[0].to_ns < to_ns).filter(|pair| pair[0].sleeps);
        gaps.map(|pair| {
            let end_ns = pair[1].woken_ns.unwrap_or(pair[1].from_ns);
            end_ns.min(to_ns).saturating_sub(pair[0].to_ns.max(from_ns))
        })
        .sum()
    }

    /// From when to when it slept, ns, until it had a CPU again.
    pub(super) fn sleeps(&self) -> Vec<(u64, u64)> {
        let pairs = self.turns.windows(2).filter(|pair| pair[0].sleeps);
        pairs.map(|pair| (pair[0].to_ns, pair[1].from_ns)).collect()
    }
}

/// From when to when each CPU of a recording idled, ns.
pub(super) fn idle_times(recording: &Recording) -> Vec<Vec<(u64, u64)>> {
    let mut since_ns = vec![None; recording.about.cpus as usize];
    let mut found = vec![Vec::new(); since_ns.len()];
    for event in recording.events.iter().filter(|event| event.kind == Kind::Switch) {
        let at = event.cpu as usize;
        let (Some(since_ns), Some(found)) = (since_ns.get_mut(at), found.get_mut(at)) else { continue };
        if event.task == NO_TASK
            && let Some(from_ns) = since_ns.take()
        {
            found.push((from_ns, event.at_ns));
        }
        if event.other == NO_TASK {
            *since_ns = Some(event.at_ns);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(from_ns: u64, to_ns: u64, woken_ns: Option<u64>, sleeps: bool) -> Turn {
        Turn { from_ns, to_ns, woken_ns, sleeps }
    }

    /// Runs from 100 to 200, is preempted until 500, runs until 900, and sleeps until it is woken at 1500.
    fn some() -> Turns {
        let turns = vec![
            turn(100, 200, None, false),
            turn(500, 900, None, true),
            turn(1_600, 2_000, Some(1_500), false),
        ];
        let mut turns = Turns { turns, ..Turns::default() };
        turns.sum_up();
        turns
    }

    #[test]
    fn time_of_others_is_none_of_its_own() {
        let turns = some();
        let ran = [0, 100, 150, 200, 400, 500, 600, 900, 1_000, 1_700, 2_500].map(|ns| turns.ran_ns(ns));
        assert_eq!(ran, [0, 0, 50, 100, 100, 100, 200, 500, 500, 600, 900]);
        assert_eq!(turns.slept_ns(0, 3_000), 600);
        assert_eq!(turns.slept_ns(1_000, 1_200), 200);
        assert_eq!(turns.sleeps(), [(900, 1_600)]);
        assert_eq!(Turns::default().ran_ns(7), 7, "of one that was never met nothing is known");
    }

    #[test]
    fn what_is_handled_first_in_a_turn_came_before_it() {
        let turns = some();
        assert_eq!(turns.came_ns(1_610), 1_500, "it was woken for that");
        assert_eq!(turns.came_ns(510), 350, "some time while it was preempted");
        assert_eq!(turns.came_ns(50), 50);
        let late = Turns { turns: vec![turn(0, 10_000_000, Some(0), false)], ..Turns::default() };
        assert_eq!(late.came_ns(1_000_000), 1_000_000, "the vCPU was there");
    }

    #[test]
    fn another_clock_begins_later() {
        let moved = some().since(600);
        assert_eq!(moved.turns[0], turn(0, 300, None, true));
        assert_eq!(moved.ran_ns(1_400), 700);
    }
}
