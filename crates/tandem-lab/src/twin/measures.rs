//! What is measured of a recording, and of a run of its model: one definition for both.
//!
//! A task *waits* from its wake-up, or from when it lost its CPU although it could have gone on, until it gets
//! a CPU. A *switch* is a task leaving its CPU; a *preemption* is one at which it could have gone on, yields
//! included, which a recording does not tell apart. A *migration* is a turn on another CPU than the one before.

use serde::Serialize;
use tandem_machine::Machine;
use tandem_machine::ids::CpuId;
use tandem_recording::{Event, Kind, TaskState};

/// Measures of a group of tasks, or of all.
#[derive(Clone, Debug, Default)]
pub struct Measures {
    /// On a CPU, ns.
    pub run_ns: u64,
    /// Runnable and without a CPU, ns.
    pub wait_ns: u64,
    /// Neither, while it was there, ns.
    pub sleep_ns: u64,
    /// Tasks that left a CPU.
    pub switches: u64,
    /// Those that could have gone on.
    pub preemptions: u64,
    /// Turns on another CPU than the one before, by distance.
    pub migrations: Migrations,
    /// Each time that a task waited, ns, in ascending order.
    pub waits_ns: Vec<u64>,
    /// From the first turn of a task to the last end of one, ns.
    pub span_ns: u64,
}

/// Turns of tasks on another CPU than before, by the nearest that the two CPUs share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Migrations {
    /// A core.
    pub core: u64,
    /// A last-level cache.
    pub llc: u64,
    /// A NUMA node.
    pub node: u64,
    /// The machine.
    pub machine: u64,
}

impl Migrations {
    /// A turn on a CPU after one on another, or the same.
    fn count(&mut self, machine: &Machine, before: CpuId, now: CpuId) {
        let (from, to) = (machine.cpu(before), machine.cpu(now));
        if before == now {
        } else if from.core == to.core {
            self.core += 1;
        } else if from.llc == to.llc {
            self.llc += 1;
        } else if from.node == to.node {
            self.node += 1;
        } else {
            self.machine += 1;
        }
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.core + self.llc + self.node + self.machine
    }
}

impl Measures {
    /// Adds those of the same group in another copy of its kernel.
    pub(super) fn add_copy(&mut self, other: &Self) {
        self.add(other);
        self.waits_ns.sort_unstable();
        self.span_ns = self.span_ns.max(other.span_ns);
    }

    /// Adds those of another group. Waits are not in order then.
    fn add(&mut self, other: &Self) {
        self.run_ns = self.run_ns.saturating_add(other.run_ns);
        self.wait_ns = self.wait_ns.saturating_add(other.wait_ns);
        self.sleep_ns = self.sleep_ns.saturating_add(other.sleep_ns);
        self.switches += other.switches;
        self.preemptions += other.preemptions;
        self.migrations.core += other.migrations.core;
        self.migrations.llc += other.migrations.llc;
        self.migrations.node += other.migrations.node;
        self.migrations.machine += other.migrations.machine;
        self.waits_ns.extend(&other.waits_ns);
    }

    /// The time that this share of the waits does not exceed, ns; 0 if nothing waited.
    pub fn wait_percentile_ns(&self, share: f64) -> u64 {
        let rank = (share * self.waits_ns.len() as f64).ceil() as usize;
        self.waits_ns.get(rank.saturating_sub(1)).copied().unwrap_or(0)
    }
}

/// What is known of a task.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    now: Now,
    /// Since when, ns.
    since_ns: u64,
    /// It was woken during this turn.
    woken: bool,
    last_cpu: Option<u32>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Now {
    /// Nothing is known yet.
    #[default]
    Unknown,
    Runs,
    Waits,
    Sleeps,
    Ended,
}

/// Takes the measures from events in the order of time.
pub struct Measuring<'a> {
    machine: &'a Machine,
    /// The group of each task.
    groups: &'a [usize],
    /// Until when tasks that go on are measured, ns, by task.
    until_ns: Vec<u64>,
    states: Vec<State>,
    /// What each CPU has run since its last switch; `None` before the first.
    on_cpu: Vec<Option<u32>>,
    measures: Vec<Measures>,
    /// First and last time that a task of each group had a CPU, ns.
    spans: Vec<Option<(u64, u64)>>,
}

impl<'a> Measuring<'a> {
    /// For tasks in these groups, of which there are so many, on that machine.
    pub fn new(machine: &'a Machine, groups: &'a [usize], group_count: usize) -> Self {
        let cpus = machine.cpus().iter().map(|cpu| cpu.os_index + 1).max().unwrap_or(0);
        Self {
            machine,
            groups,
            until_ns: vec![u64::MAX; groups.len()],
            states: vec![State::default(); groups.len()],
            on_cpu: vec![None; cpus as usize],
            measures: vec![Measures::default(); group_count],
            spans: vec![None; group_count],
        }
    }

    /// Measures a task up to this time only, ns.
    pub fn cut(&mut self, task: usize, until_ns: u64) {
        self.until_ns[task] = until_ns;
    }

    /// The next event.
    pub fn read(&mut self, event: &Event) {
        match event.kind {
            Kind::Switch => {
                let on_cpu = self.on_cpu.get_mut(event.cpu as usize);
                let before = on_cpu.and_then(|on_cpu| on_cpu.replace(event.other));
                if let Some(lost) = before.filter(|before| *before != event.task) {
                    self.ends_unseen(lost, event);
                }
                self.leaves(event, before.is_none());
                self.comes(event);
            }
            Kind::Wake | Kind::WakeNew => self.wakes(event),
            _ => {}
        }
    }

    /// Of each group, and of all, when the recording or the run has ended.
    pub fn end(mut self, end_ns: u64) -> (Vec<Measures>, Measures) {
        for task in 0..self.states.len() {
            let end_ns = end_ns.min(self.until_ns[task]);
            self.settle(task, end_ns);
            if self.states[task].now == Now::Runs {
                self.had_cpu(task, end_ns);
            }
        }
        let mut total = Measures::default();
        let (mut first_ns, mut last_ns) = (u64::MAX, 0);
        for (measures, span) in self.measures.iter_mut().zip(&self.spans) {
            measures.waits_ns.sort_unstable();
            if let Some((from_ns, to_ns)) = span {
                measures.span_ns = to_ns - from_ns;
                (first_ns, last_ns) = (first_ns.min(*from_ns), last_ns.max(*to_ns));
            }
            total.add(measures);
        }
        total.waits_ns.sort_unstable();
        total.span_ns = last_ns.saturating_sub(first_ns);
        (self.measures, total)
    }

    /// A task had the CPU, and another one leaves it: the end of its turn is not recorded.
    fn ends_unseen(&mut self, task: u32, event: &Event) {
        if self.is_measured(task, event.at_ns) && self.states[task as usize].now == Now::Runs {
            self.settle(task as usize, event.at_ns);
            self.states[task as usize].now = Now::Sleeps;
        }
    }

    fn leaves(&mut self, event: &Event, is_first: bool) {
        if !self.is_measured(event.task, event.at_ns) {
            return;
        }
        let task = event.task as usize;
        let state = &mut self.states[task];
        if state.now == Now::Unknown && is_first {
            *state = State { now: Now::Runs, since_ns: 0, last_cpu: Some(event.cpu), ..*state };
            self.had_cpu(task, 0);
        }
        self.settle(task, event.at_ns);
        self.had_cpu(task, event.at_ns);
        let measures = &mut self.measures[self.groups[task]];
        measures.switches += 1;
        measures.preemptions += u64::from(event.state() == TaskState::Runnable);
        let state = &mut self.states[task];
        (state.now, state.since_ns) = match event.state() {
            TaskState::Runnable => (Now::Waits, event.at_ns),
            TaskState::Dead => (Now::Ended, event.at_ns),
            _ => (Now::Sleeps, event.at_ns),
        };
    }

    fn comes(&mut self, event: &Event) {
        if !self.is_measured(event.other, event.at_ns) {
            return;
        }
        let task = event.other as usize;
        let state = &mut self.states[task];
        if state.now == Now::Unknown {
            (state.now, state.since_ns) = (Now::Waits, 0);
        }
        if state.now == Now::Sleeps && state.woken {
            // It was woken while it was about to leave its CPU.
            state.now = Now::Waits;
        }
        self.settle(task, event.at_ns);
        self.had_cpu(task, event.at_ns);
        let state = &mut self.states[task];
        let before = state.last_cpu.replace(event.cpu);
        *state = State { now: Now::Runs, since_ns: event.at_ns, woken: false, ..*state };
        let cpu_of = |cpu: u32| self.machine.find_cpu(cpu);
        if let (Some(before), Some(now)) = (before.and_then(cpu_of), cpu_of(event.cpu)) {
            self.measures[self.groups[task]].migrations.count(self.machine, before, now);
        }
    }

    fn wakes(&mut self, event: &Event) {
        if !self.is_measured(event.task, event.at_ns) {
            return;
        }
        let state = &mut self.states[event.task as usize];
        match state.now {
            Now::Unknown | Now::Sleeps => {
                let task = event.task as usize;
                if event.kind == Kind::WakeNew || state.now == Now::Unknown {
                    state.since_ns = if event.kind == Kind::WakeNew { event.at_ns } else { 0 };
                    state.now = Now::Sleeps;
                }
                self.settle(task, event.at_ns);
                let state = &mut self.states[task];
                (state.now, state.since_ns) = (Now::Waits, event.at_ns);
            }
            Now::Runs => state.woken = true,
            Now::Waits | Now::Ended => {}
        }
    }

    fn is_measured(&self, task: u32, at_ns: u64) -> bool {
        self.until_ns.get(task as usize).is_some_and(|until_ns| at_ns <= *until_ns)
    }

    fn had_cpu(&mut self, task: usize, at_ns: u64) {
        let span = &mut self.spans[self.groups[task]];
        let (_, last_ns) = span.get_or_insert((at_ns, at_ns));
        *last_ns = at_ns.max(*last_ns);
    }

    /// Accounts the time up to now.
    fn settle(&mut self, task: usize, now_ns: u64) {
        let state = &mut self.states[task];
        let measures = &mut self.measures[self.groups[task]];
        let elapsed_ns = now_ns.saturating_sub(state.since_ns);
        match state.now {
            Now::Runs => measures.run_ns = measures.run_ns.saturating_add(elapsed_ns),
            Now::Waits => {
                measures.wait_ns = measures.wait_ns.saturating_add(elapsed_ns);
                measures.waits_ns.push(elapsed_ns);
            }
            Now::Sleeps => measures.sleep_ns = measures.sleep_ns.saturating_add(elapsed_ns),
            Now::Unknown | Now::Ended => {}
        }
        state.since_ns = now_ns;
    }
}
