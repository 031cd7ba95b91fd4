//! From the events of a recording to its model.

use super::grouping::{Group, GroupBy, Grouped, names};
use super::model::{End, Model, ModelTask, Step, Wait, Wakeups};
use super::timers::{TimerWait, told};
use super::together::Turns;
use super::wakers::{Cause, Wakers};
use std::collections::{BTreeMap, HashMap, HashSet};
use tandem_recording::{About, Context, Event, Kind, NO_TASK, Recording, TaskState};

/// A task that has computed for such a part of the recording, and still did at its end, would have gone on: an
/// assumption.
const GOES_ON_PART: u64 = 20;

impl Model {
    /// Understands a recording, whose tasks are measured in such groups.
    pub fn of(recording: &Recording, by: GroupBy) -> Self {
        Self::of_host(recording, by, &HashSet::new())
    }

    /// The same of a host, where these tasks are vCPUs of guests of which more is known: what they did is left out, and
    /// what they did for others comes from outside.
    pub fn of_host(recording: &Recording, by: GroupBy, vcpus: &HashSet<usize>) -> Self {
        Reading::new(recording, vcpus, &[]).read_all(by)
    }

    /// The same of a guest by the clock of its host, whose CPUs are vCPUs with these turns. What others had of its time
    /// is none of its work.
    pub fn of_guest(recording: &Recording, by: GroupBy, turns: &[Turns]) -> Self {
        Reading::new(recording, &HashSet::new(), turns).read_all(by)
    }
}

/// Whether a wake-up of a task by another one was synchronous. The kernel does not say: wake-ups through pipes,
/// sockets, polls and the ends of children are (`wake_up_interruptible_sync_poll()`, `__wake_up_sync_key()`),
/// those through futexes, locks and by the kernel's threads are not. Threads of a process are taken to use the
/// latter, and processes the former.
fn is_sync(about: &About, waker: u32, wake: &Event) -> bool {
    let facts = |task: u32| about.tasks.get(task as usize);
    let (Some(waker), Some(woken)) = (facts(waker), facts(wake.task)) else { return false };
    let of_users = !waker.is_kernel && !woken.is_kernel;
    let in_one_process = waker.pid == woken.pid && waker.pid != 0;
    of_users && (!in_one_process || wake.context() == Context::SoftInterrupt)
}

/// A task while its recording is read.
#[derive(Default)]
struct Life {
    met: bool,
    is_forked: bool,
    ended: bool,
    first_cpu: Option<u32>,
    steps: Vec<Step>,
    /// Since when it has a CPU, as far as its work is not yet among its steps, ns.
    since_ns: Option<u64>,
    /// That CPU.
    cpu: u32,
    /// Work that is not yet among its steps, ns.
    work_ns: u64,
    /// Since when it waits, ns, unless it has been woken.
    waits_since_ns: Option<u64>,
    /// A wake-up that came before it had left its CPU.
    early: Option<Cause>,
    /// Gate of that wake-up, if a task did it.
    early_gate: Option<u32>,
    /// Its waits for timers: where among its steps, by timer.
    timer_waits: BTreeMap<u32, Vec<(usize, TimerWait)>>,
    wakeups: Wakeups,
}

struct Reading<'a> {
    recording: &'a Recording,
    wakers: Wakers,
    lives: Vec<Life>,
    /// What each CPU has run since its last switch; `None` before the first.
    on_cpu: Vec<Option<u32>>,
    breaks: u64,
    gates: u32,
    /// Tasks whose inside is known from elsewhere.
    vcpus: HashSet<usize>,
    /// In a guest, when its CPUs ran, by number.
    turns: &'a [Turns],
    /// Time in which tasks of a guest had CPUs that slept, ns.
    stalled_ns: u64,
}

impl<'a> Reading<'a> {
    fn new(recording: &'a Recording, vcpus: &HashSet<usize>, turns: &'a [Turns]) -> Self {
        let about = &recording.about;
        Self {
            recording,
            wakers: Wakers::new(about),
            lives: about.tasks.iter().map(|_| Life::default()).collect(),
            on_cpu: vec![None; about.cpus as usize],
            breaks: 0,
            gates: 0,
            vcpus: vcpus.clone(),
            turns,
            stalled_ns: 0,
        }
    }

    fn read_all(mut self, by: GroupBy) -> Model {
        for event in &self.recording.events {
            self.read(event);
        }
        self.end(by)
    }

    /// Adds to the work of a task what it has done up to this time.
    fn account(&mut self, task: u32, at_ns: u64) {
        let turns = self.turns;
        let Some(life) = self.lives.get_mut(task as usize) else { return };
        let Some(since_ns) = &mut life.since_ns else { return };
        let from_ns = std::mem::replace(since_ns, at_ns);
        life.work_ns += match turns.get(life.cpu as usize) {
            Some(turns) => {
                self.stalled_ns += turns.slept_ns(from_ns, at_ns);
                turns.ran_ns(at_ns).saturating_sub(turns.ran_ns(from_ns))
            }
            None => at_ns.saturating_sub(from_ns),
        };
    }

    /// When what woke a task has come: in a guest, before its vCPU could handle it.
    fn came_ns(&self, event: &Event) -> u64 {
        self.turns.get(event.cpu as usize).map_or(event.at_ns, |turns| turns.came_ns(event.at_ns))
    }

    fn life(&mut self, task: u32) -> Option<&mut Life> {
        self.lives.get_mut(task as usize)
    }

    fn read(&mut self, event: &Event) {
        match event.kind {
            Kind::Switch => {
                let on_cpu = self.on_cpu.get_mut(event.cpu as usize);
                let before = on_cpu.and_then(|on_cpu| on_cpu.replace(event.other));
                if let Some(lost) = before.filter(|before| *before != event.task) {
                    self.ends_unseen(lost, event.at_ns);
                }
                self.leaves(event, before.is_none());
                self.comes(event);
            }
            Kind::Wake => self.wakes(event),
            Kind::WakeNew => self.starts(event),
            Kind::Interrupt => self.wakers.interrupted(event),
            Kind::Fork | Kind::Exec | Kind::Exit | Kind::GuestExit | Kind::GuestEnter | Kind::HaltPoll => {}
        }
    }

    /// Another task leaves the CPU that this one had: the end of its turn is not recorded.
    fn ends_unseen(&mut self, task: u32, at_ns: u64) {
        self.breaks += 1;
        self.account(task, at_ns);
        if let Some(life) = self.life(task).filter(|life| life.since_ns.is_some()) {
            life.since_ns = None;
            life.flush();
            life.waits_since_ns = Some(at_ns);
        }
    }

    /// The task of a switch leaves its CPU.
    fn leaves(&mut self, event: &Event, is_first: bool) {
        let Some(life) = self.life(event.task) else { return };
        if !life.met && is_first {
            // It was there before the recording.
            (life.since_ns, life.cpu) = (Some(0), event.cpu);
            life.first_cpu = Some(event.cpu);
        }
        life.met = true;
        self.account(event.task, event.at_ns);
        let life = &mut self.lives[event.task as usize];
        life.since_ns = None;
        match event.state() {
            TaskState::Runnable => life.early = None,
            TaskState::Dead => {
                life.flush();
                life.ended = true;
            }
            TaskState::Interruptible | TaskState::Uninterruptible | TaskState::Stopped => {
                life.flush();
                life.waits_since_ns = Some(event.at_ns);
            }
        }
    }

    /// The other task of a switch gets the CPU.
    fn comes(&mut self, event: &Event) {
        let at_ns = event.at_ns;
        let Some(life) = self.lives.get_mut(event.other as usize) else { return };
        if !life.met {
            life.met = true;
            life.first_cpu = Some(event.cpu);
        }
        if let Some(from_ns) = life.waits_since_ns.take() {
            // Nobody woke it since it left its CPU: somebody did while it was about to.
            let cause = life.early.take().unwrap_or(Cause::Unknown);
            let gate = life.early_gate.take();
            life.waited(cause, gate, from_ns, at_ns);
        }
        life.early = None;
        (life.since_ns, life.cpu) = (Some(at_ns), event.cpu);
    }

    fn wakes(&mut self, event: &Event) {
        let cause = match self.wakers.cause(event) {
            Cause::Task(waker) if self.vcpus.contains(&(waker as usize)) => Cause::Outside,
            cause => cause,
        };
        let Some(life) = self.lives.get(event.task as usize) else { return };
        let is_new = !life.met;
        let gate = match cause {
            Cause::Task(waker) if waker != event.task => {
                let sync = is_sync(&self.recording.about, waker, event);
                self.opens(waker, event, sync)
            }
            _ => None,
        };
        let cause = match (cause, gate) {
            (Cause::Task(_), None) => Cause::Unknown,
            (cause, _) => cause,
        };
        let came_ns = if gate.is_some() { event.at_ns } else { self.came_ns(event) };
        let life = &mut self.lives[event.task as usize];
        if is_new {
            // It has waited since before the recording.
            life.met = true;
            life.waits_since_ns = Some(0);
        }
        match life.waits_since_ns.take() {
            Some(from_ns) => life.waited(cause, gate, from_ns, came_ns.max(from_ns)),
            None if life.since_ns.is_some() => (life.early, life.early_gate) = (Some(cause), gate),
            None => {}
        }
    }

    /// A task opens a gate at this point of its work; which.
    fn opens(&mut self, task: u32, event: &Event, sync: bool) -> Option<u32> {
        let gate = self.gates;
        let is_first_of_cpu = |life: &Life| life.since_ns.is_none() && !life.met;
        let life = self.lives.get_mut(task as usize)?;
        if is_first_of_cpu(life) {
            life.met = true;
            (life.since_ns, life.cpu) = (Some(0), event.cpu);
        }
        self.account(task, event.at_ns);
        let life = &mut self.lives[task as usize];
        life.flush();
        life.steps.push(Step::Open { gate, sync });
        self.gates += 1;
        Some(gate)
    }

    /// A task begins its life.
    fn starts(&mut self, event: &Event) {
        let parent = event.other;
        let is_vcpu = [parent, event.task].iter().any(|task| self.vcpus.contains(&(*task as usize)));
        let Some(child) = self.lives.get_mut(event.task as usize).filter(|life| !life.met) else { return };
        child.met = true;
        if parent == NO_TASK || parent == event.task || is_vcpu {
            child.waited(Cause::Unknown, None, 0, event.at_ns);
            return;
        }
        child.is_forked = true;
        self.account(parent, event.at_ns);
        if let Some(parent) = self.life(parent) {
            parent.met = true;
            parent.flush();
            parent.steps.push(Step::Fork(event.task));
        }
    }

    fn end(mut self, by: GroupBy) -> Model {
        let (recording, about) = (self.recording, &self.recording.about);
        for task in 0..self.lives.len() {
            self.account(task as u32, about.length_ns);
            let life = &mut self.lives[task];
            life.flush();
            life.tell_timers(&about.timers);
            if self.vcpus.contains(&task) {
                (life.met, life.ended) = (true, false);
                (life.wakeups, life.waits_since_ns) = (Wakeups::default(), Some(0));
                life.steps.clear();
            }
        }
        let mut model = Model {
            gates: self.gates,
            breaks: self.breaks,
            length_ns: about.length_ns,
            stalled_ns: self.stalled_ns,
            ..Model::default()
        };
        // Positions of recorded tasks among those of the model: some were never met.
        let mut numbers = vec![None; self.lives.len()];
        let mut positions: HashMap<Group, usize> = HashMap::new();
        for (recorded, life) in self.lives.into_iter().enumerate().filter(|(_, life)| life.met) {
            numbers[recorded] = Some(model.tasks.len() as u32);
            let group = by.group(recording, recorded);
            let group = *positions.entry(group.clone()).or_insert_with(|| {
                model.kinds.push(group);
                model.kinds.len() - 1
            });
            model.wakeups += life.wakeups;
            model.tasks.push(ModelTask {
                recorded,
                group,
                first_cpu: life.first_cpu,
                is_forked: life.is_forked,
                end: life.end(about.length_ns),
                steps: life.steps,
                wakeups: life.wakeups,
            });
        }
        model.groups = names(&[Grouped { guest: None, groups: &model.kinds, about }]);
        for step in model.tasks.iter_mut().flat_map(|task| &mut task.steps) {
            if let Step::Fork(child) = step {
                *child = numbers[*child as usize].expect("who is forked was met");
            }
        }
        model
    }
}

impl Life {
    /// What it does at the end of the recording.
    fn end(&self, length_ns: u64) -> End {
        let work_ns = |step: &Step| match step {
            Step::Work(ns) => *ns,
            _ => 0,
        };
        let burst = self.steps.iter().rev().take_while(|step| !matches!(step, Step::Wait(_)));
        let burst_ns: u64 = burst.map(work_ns).sum();
        if self.ended {
            End::Ended
        } else if self.waits_since_ns.is_none() && burst_ns >= length_ns / GOES_ON_PART {
            End::GoesOn
        } else {
            End::Waits
        }
    }

    /// Puts its work among its steps.
    fn flush(&mut self) {
        match std::mem::take(&mut self.work_ns) {
            0 => {}
            work_ns => self.steps.push(Step::Work(work_ns)),
        }
    }

    /// It has waited, and this has ended it.
    fn waited(&mut self, cause: Cause, gate: Option<u32>, from_ns: u64, to_ns: u64) {
        let wait = match (cause, gate) {
            (Cause::Task(_), Some(gate)) => {
                self.wakeups.by_tasks += 1;
                Wait::Gate(gate)
            }
            (Cause::Timer(timer), _) => {
                self.wakeups.by_timers += 1;
                let wait = TimerWait { from_ns, to_ns };
                self.timer_waits.entry(timer).or_default().push((self.steps.len(), wait));
                Wait::For(to_ns - from_ns)
            }
            (Cause::Device, _) => {
                self.wakeups.by_devices += 1;
                Wait::For(to_ns - from_ns)
            }
            (Cause::Outside, _) => {
                self.wakeups.by_devices += 1;
                Wait::Until(to_ns)
            }
            (Cause::Task(_) | Cause::Unknown, _) => {
                self.wakeups.unknown += 1;
                // Before the recording there was a past.
                if from_ns == 0 { Wait::Until(to_ns) } else { Wait::For(to_ns - from_ns) }
            }
        };
        self.steps.push(Step::Wait(wait));
    }

    /// Its waits for timers become what they were.
    fn tell_timers(&mut self, names: &[String]) {
        for (timer, waits) in &self.timer_waits {
            let function = names.get(*timer as usize).map_or("", String::as_str);
            let times: Vec<TimerWait> = waits.iter().map(|(_, wait)| *wait).collect();
            for ((at, wait), what) in waits.iter().zip(told(function, &times)) {
                // What it had begun to wait for before the recording has its time.
                let what = if wait.from_ns == 0 { Wait::Until(wait.to_ns) } else { what };
                self.steps[*at] = Step::Wait(what);
            }
        }
    }
}
