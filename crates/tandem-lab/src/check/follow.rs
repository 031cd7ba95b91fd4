//! Follows a run by its events, and keeps the figures that the judges need.
//!
//! The events are the only source; nothing comes from the scheduler's own state. A task waits from the event
//! that makes it runnable to the one that puts it on a CPU. A CPU idles from the event that takes its task
//! off to the next one that puts a task there.

use super::facts::{Facts, MaskChange};
use super::promises::{SETTLE_NS, WAKE_UP_NS};
use tandem_machine::ids::KernelId;
use tandem_sim::trace::{Event, EventKind, Observer};

/// A stretch of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stretch {
    /// When it began, ns.
    pub from_ns: u64,
    /// How long it was, ns.
    pub length_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Away,
    Waits { since_ns: u64, woken: bool },
    Runs { since_ns: u64, cpu: usize },
}

/// What is kept of a task.
#[derive(Clone, Debug)]
pub struct TaskRecord {
    state: State,
    mask: usize,
    /// Its longest wait.
    pub longest: Stretch,
    /// Its longest wait that ended, or began, after the run had settled from a change.
    pub longest_settled: Stretch,
    /// Time on CPUs since the start of the judged window, ns.
    pub ran_ns: u64,
    /// Waits from wake-ups since the start of the judged window, ns; the first [`WAKEUPS_MAX`].
    pub wakeups_ns: Vec<u64>,
    /// The longest of them.
    pub longest_wakeup: Stretch,
}

/// What is kept of the CPUs of a mask.
#[derive(Clone, Debug, Default)]
pub struct MaskRecord {
    waiting: usize,
    idle: usize,
    /// Since when a CPU of the mask idles beside a waiting task, and the CPU time that this has cost.
    since_ns: Option<u64>,
    changed_ns: u64,
    cost_ns: u64,
    /// The longest such stretch.
    pub longest: Stretch,
    /// CPU time that idled in all stretches together, ns.
    pub idled_ns: u64,
    /// The longest one after the run had settled from a change.
    pub longest_settled: Stretch,
}

/// A run as the judges see it.
#[derive(Debug)]
pub struct Follower<'a> {
    facts: &'a Facts,
    /// By number.
    pub tasks: Vec<TaskRecord>,
    /// By number.
    pub masks: Vec<MaskRecord>,
    /// Time for which each CPU idled while no task waited, ns, since the start of the judged window.
    pub unwanted_ns: Vec<u64>,
    /// Time in which no task waited, ns, since the start of the judged window.
    pub quiet_ns: u64,
    /// Number of tasks that wait.
    waiting: usize,
    changed_ns: u64,
    is_idle: Vec<bool>,
    masks_of_cpu: Vec<Vec<usize>>,
    is_away: Vec<bool>,
    runs_on: Vec<bool>,
    changes_done: usize,
    absences_done: usize,
    happenings_done: usize,
    /// When the run has settled from the last change, ns.
    settles_ns: u64,
}

/// Most wake-ups that are kept of a task.
const WAKEUPS_MAX: usize = 20_000;

impl<'a> Follower<'a> {
    /// At the beginning of a run.
    pub fn new(facts: &'a Facts) -> Self {
        let mut masks_of_cpu = vec![Vec::new(); facts.cpus];
        let mut masks = Vec::new();
        for (mask, cpus) in facts.masks.iter().enumerate() {
            cpus.iter().for_each(|cpu| masks_of_cpu[cpu.index()].push(mask));
            masks.push(MaskRecord { idle: cpus.count(), ..MaskRecord::default() });
        }
        let record = |task: &super::facts::TaskFacts| TaskRecord {
            state: State::Away,
            mask: task.mask,
            longest: Stretch::default(),
            longest_settled: Stretch::default(),
            ran_ns: 0,
            wakeups_ns: Vec::new(),
            longest_wakeup: Stretch::default(),
        };
        Self {
            facts,
            tasks: facts.tasks.iter().map(record).collect(),
            masks,
            unwanted_ns: vec![0; facts.cpus],
            quiet_ns: 0,
            waiting: 0,
            changed_ns: 0,
            is_idle: vec![true; facts.cpus],
            masks_of_cpu,
            is_away: vec![false; facts.cpus],
            runs_on: vec![false; facts.cpus],
            changes_done: 0,
            absences_done: 0,
            happenings_done: 0,
            settles_ns: 0,
        }
    }

    /// Ends every wait and idle stretch that is open at the end of the run.
    pub fn finish(mut self) -> Self {
        let end_ns = self.facts.end_ns;
        self.apply_changes(end_ns);
        self.count_unwanted(end_ns);
        for task in 0..self.tasks.len() {
            match self.tasks[task].state {
                State::Runs { since_ns, .. } => self.count_run(task, since_ns, end_ns),
                State::Waits { since_ns, woken } => self.end_wait(task, since_ns, woken, end_ns),
                State::Away => {}
            }
        }
        for mask in 0..self.masks.len() {
            self.change(mask, end_ns, |record| record.waiting = 0);
        }
        self
    }

    fn apply_changes(&mut self, now_ns: u64) {
        while let Some(&at_ns) = self.facts.happenings_ns.get(self.happenings_done)
            && at_ns <= now_ns
        {
            self.happenings_done += 1;
            self.settles_ns = at_ns + SETTLE_NS;
        }
        while let Some(&(at_ns, cpu, is_away)) = self.facts.absences.get(self.absences_done)
            && at_ns <= now_ns
        {
            self.absences_done += 1;
            self.is_away[cpu] = is_away;
            self.set_idle(cpu, at_ns);
        }
        while let Some(&MaskChange { at_ns, first, count, mask }) = self.facts.changes.get(self.changes_done)
            && at_ns <= now_ns
        {
            self.changes_done += 1;
            for task in first..first + count {
                let old = std::mem::replace(&mut self.tasks[task].mask, mask);
                if matches!(self.tasks[task].state, State::Waits { .. }) {
                    self.change(old, at_ns, |record| record.waiting -= 1);
                    self.change(mask, at_ns, |record| record.waiting += 1);
                }
            }
        }
    }

    /// Accounts for the time up to now, then changes a mask.
    fn change(&mut self, mask: usize, now_ns: u64, change: impl FnOnce(&mut MaskRecord)) {
        let settles_ns = self.settles_ns;
        let record = &mut self.masks[mask];
        let now_ns = now_ns.max(record.changed_ns);
        record.cost_ns += (now_ns - record.changed_ns) * record.waiting.min(record.idle) as u64;
        record.changed_ns = now_ns;
        change(record);
        match (record.since_ns, record.waiting > 0 && record.idle > 0) {
            (None, true) => {
                record.since_ns = Some(now_ns);
                record.cost_ns = 0;
            }
            (Some(since_ns), false) => {
                record.since_ns = None;
                let stretch = Stretch { from_ns: since_ns, length_ns: now_ns.saturating_sub(since_ns) };
                if stretch.length_ns > WAKE_UP_NS {
                    record.idled_ns += record.cost_ns;
                }
                longer(&mut record.longest, stretch);
                if since_ns >= settles_ns {
                    longer(&mut record.longest_settled, stretch);
                }
            }
            _ => {}
        }
    }

    /// Accounts for the time up to now, before tasks begin or end to wait, or CPUs to idle.
    fn count_unwanted(&mut self, now_ns: u64) {
        let from_ns = self.changed_ns.max(self.facts.window_ns);
        if self.waiting == 0 && now_ns > from_ns {
            self.quiet_ns += now_ns - from_ns;
            let idle = self.unwanted_ns.iter_mut().zip(&self.is_idle).filter(|(_, idle)| **idle);
            idle.for_each(|(unwanted_ns, _)| *unwanted_ns += now_ns - from_ns);
        }
        self.changed_ns = self.changed_ns.max(now_ns);
    }

    /// Updates whether the CPU idles, which it does while it runs no task and is not away.
    fn set_idle(&mut self, cpu: usize, now_ns: u64) {
        let idle = !self.runs_on[cpu] && !self.is_away[cpu];
        self.count_unwanted(now_ns);
        if std::mem::replace(&mut self.is_idle[cpu], idle) != idle {
            for at in 0..self.masks_of_cpu[cpu].len() {
                let mask = self.masks_of_cpu[cpu][at];
                self.change(mask, now_ns, |record| match idle {
                    true => record.idle += 1,
                    false => record.idle -= 1,
                });
            }
        }
    }

    fn count_run(&mut self, task: usize, since_ns: u64, now_ns: u64) {
        self.tasks[task].ran_ns += now_ns.saturating_sub(since_ns.max(self.facts.window_ns));
    }

    fn end_wait(&mut self, task: usize, since_ns: u64, woken: bool, now_ns: u64) {
        let stretch = Stretch { from_ns: since_ns, length_ns: now_ns.saturating_sub(since_ns) };
        let record = &mut self.tasks[task];
        longer(&mut record.longest, stretch);
        let settled_from_ns = since_ns.max(self.settles_ns);
        if let Some(length_ns) = now_ns.checked_sub(settled_from_ns) {
            longer(&mut record.longest_settled, Stretch { from_ns: settled_from_ns, length_ns });
        }
        if woken && since_ns >= self.facts.window_ns {
            longer(&mut record.longest_wakeup, stretch);
            if record.wakeups_ns.len() < WAKEUPS_MAX {
                record.wakeups_ns.push(stretch.length_ns);
            }
        }
    }
}

fn longer(longest: &mut Stretch, stretch: Stretch) {
    if stretch.length_ns > longest.length_ns {
        *longest = stretch;
    }
}

impl Observer for Follower<'_> {
    fn observe(&mut self, event: Event) {
        let Event { at_ns, kind, .. } = event;
        if event.kernel != KernelId::HOST {
            return;
        }
        self.apply_changes(at_ns);
        let (task, cpu) = (event.task.index(), event.cpu.index());
        let mask = self.tasks[task].mask;
        self.count_unwanted(at_ns);
        match kind {
            EventKind::Wake => {
                self.waiting += 1;
                self.tasks[task].state = State::Waits { since_ns: at_ns, woken: true };
                self.change(mask, at_ns, |record| record.waiting += 1);
            }
            EventKind::Start => {
                if let State::Waits { since_ns, woken } = self.tasks[task].state {
                    self.waiting -= 1;
                    self.change(mask, at_ns, |record| record.waiting -= 1);
                    self.end_wait(task, since_ns, woken, at_ns);
                }
                self.tasks[task].state = State::Runs { since_ns: at_ns, cpu };
                self.runs_on[cpu] = true;
                self.set_idle(cpu, at_ns);
            }
            EventKind::Continue => {}
            EventKind::Preempt | EventKind::Yield | EventKind::Block | EventKind::Exit => {
                if let State::Runs { since_ns, cpu } = self.tasks[task].state {
                    self.count_run(task, since_ns, at_ns);
                    self.runs_on[cpu] = false;
                    self.set_idle(cpu, at_ns);
                }
                let goes_on = matches!(kind, EventKind::Preempt | EventKind::Yield);
                self.tasks[task].state = match goes_on {
                    true => State::Waits { since_ns: at_ns, woken: false },
                    false => State::Away,
                };
                if goes_on {
                    self.waiting += 1;
                    self.change(mask, at_ns, |record| record.waiting += 1);
                }
            }
        }
    }
}
