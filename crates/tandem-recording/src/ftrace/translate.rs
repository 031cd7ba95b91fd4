//! From what tracepoints report to the events of a recording.
//!
//! **Wake-ups.** `sched_waking` is hit in the waker's context, `sched_wakeup` perhaps later and on another
//! CPU. A wake-up is the first of the two that the trace has: a `sched_wakeup` of a task of which a
//! `sched_waking` was seen is left out, so traces with one of them, with both, and with losses all become the
//! same events. A task that runs when it is woken, as by an interrupt before it has gone to sleep, has not
//! blocked: left out.
//!
//! **Interrupts** are recorded when they begin.
//!
//! **Halts.** A vCPU that has halted polls, then blocks. `kvm_vcpu_wakeup` says how long both took together;
//! only if the vCPU did not block is that the time of polling, so only then is there an event.
//!
//! **Times** are clamped to the order of the trace: a record with an earlier time than the one before, as
//! clocks that are not quite the same on all CPUs cause, gets the time of that one.

use super::decode::{Moment, Tracepoint};
use super::symbols::Symbols;
use super::tasks::{Tasks, rename};
use crate::error::TraceError;
use crate::event::{Context, Event, Kind, NO_TASK, Source, TaskState};
use crate::facts::About;
use crate::file::CPUS_MAX;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Functions of timers and devices that a recording names. Those after them have no event.
const NAMES_MAX: usize = 1 << 16;
/// The number of kthreadd, the parent of all threads of the kernel.
const KTHREADD: u32 = 2;

/// Makes events of a recording. Records come in the order of time.
#[derive(Debug, Default)]
pub struct Translator {
    symbols: Symbols,
    /// The time of the clock at which the recording starts.
    start_ns: Option<u64>,
    last_ns: u64,
    cpus: u32,
    tasks: Tasks,
    /// Tasks with a `sched_waking` after which there was no `sched_wakeup`.
    waking: HashSet<u32>,
    /// Tasks that begin a process of their own, before their forks are reported.
    new_processes: HashSet<u32>,
    /// Numbers of timers, by the address of their function.
    timers: HashMap<u64, u32>,
    timer_names: Vec<String>,
    devices: BTreeMap<u32, String>,
}

impl Translator {
    /// A translator for a recording that starts with its first record.
    pub fn new(symbols: Symbols) -> Self {
        Self { symbols, ..Self::default() }
    }

    /// The recording starts at this time of the clock. Earlier records are of tasks, but no events.
    pub fn start_at(&mut self, clock_ns: u64) {
        self.start_ns = Some(clock_ns);
    }

    /// The tasks that have been met.
    pub fn tasks(&mut self) -> &mut Tasks {
        &mut self.tasks
    }

    /// The event that a record becomes.
    ///
    /// # Errors
    /// If there are too many tasks or CPUs.
    pub fn translate(&mut self, moment: &Moment, point: &Tracepoint) -> Result<Option<Event>, TraceError> {
        if moment.cpu >= CPUS_MAX {
            return Err(TraceError::Unsupported(format!(
                "has a CPU {}; at most {CPUS_MAX} are supported",
                moment.cpu
            )));
        }
        let Some(event) = self.event(moment, point)? else { return Ok(None) };
        let start_ns = *self.start_ns.get_or_insert(moment.clock_ns);
        if moment.clock_ns < start_ns && self.last_ns == 0 {
            return Ok(None);
        }
        self.cpus = self.cpus.max(moment.cpu + 1);
        self.last_ns = self.last_ns.max(moment.clock_ns.saturating_sub(start_ns));
        if i64::try_from(self.last_ns).is_err() {
            return Err(TraceError::Unsupported(format!("has a record at {} ns", moment.clock_ns)));
        }
        Ok(Some(Event { at_ns: self.last_ns, cpu: moment.cpu, ..event }))
    }

    /// The event, without time and CPU.
    fn event(&mut self, moment: &Moment, point: &Tracepoint) -> Result<Option<Event>, TraceError> {
        let event =
            |kind, task, other, detail| Ok(Some(Event { at_ns: 0, cpu: 0, kind, task, other, detail }));
        match *point {
            Tracepoint::Switch { previous, state, next } => {
                let (task, other) = (self.tasks.see(previous)?, self.tasks.see(next)?);
                if state == TaskState::Dead {
                    self.tasks.end(previous.tid);
                    self.waking.remove(&previous.tid);
                }
                event(Kind::Switch, task, other, state as u32)
            }
            Tracepoint::Waking(seen) => {
                let task = self.tasks.see(seen)?;
                if seen.tid == moment.tid {
                    // Its `sched_wakeup` is at the same moment, and left out for the same reason.
                    return Ok(None);
                }
                self.waking.insert(seen.tid);
                event(Kind::Wake, task, self.tasks.meet(moment.tid)?, moment.context as u32)
            }
            Tracepoint::Wakeup(seen) => {
                let task = self.tasks.see(seen)?;
                if self.waking.remove(&seen.tid) || seen.tid == moment.tid {
                    return Ok(None);
                }
                event(Kind::Wake, task, self.tasks.meet(moment.tid)?, moment.context as u32)
            }
            Tracepoint::WakeupNew(seen) => {
                let task = self.tasks.see(seen)?;
                event(Kind::WakeNew, task, self.tasks.meet(moment.tid)?, Context::Task as u32)
            }
            Tracepoint::NewTask { tid, is_thread } => {
                // Forks that were lost leave nothing behind: there are at most as many numbers as tasks.
                match is_thread {
                    true => self.new_processes.remove(&tid),
                    false => self.new_processes.insert(tid),
                };
                Ok(None)
            }
            Tracepoint::Fork { parent, child, name } => {
                let other = self.tasks.meet(parent)?;
                let task = self.tasks.begin(child)?;
                self.waking.remove(&child);
                if let Some(task) = self.tasks.get_mut(task) {
                    rename(task, name);
                    task.is_kernel = parent == KTHREADD;
                    task.pid = if self.new_processes.remove(&child) { child } else { 0 };
                }
                event(Kind::Fork, task, other, 0)
            }
            Tracepoint::Exec { tid, old_tid } => {
                let task = self.tasks.renumber(old_tid, tid)?;
                event(Kind::Exec, task, NO_TASK, 0)
            }
            Tracepoint::Exit { tid } => event(Kind::Exit, self.tasks.meet(tid)?, NO_TASK, 0),
            Tracepoint::Interrupt { number, name } => {
                if !self.devices.contains_key(&number) {
                    if self.devices.len() == NAMES_MAX {
                        return Ok(None);
                    }
                    self.devices.insert(number, String::from_utf8_lossy(name).into_owned());
                }
                let task = self.tasks.meet(moment.tid)?;
                event(Kind::Interrupt, task, NO_TASK, Source::Device(number).detail())
            }
            Tracepoint::Softirq { number } => {
                let task = self.tasks.meet(moment.tid)?;
                event(Kind::Interrupt, task, NO_TASK, Source::Softirq(number).detail())
            }
            Tracepoint::HrTimer { function } | Tracepoint::Timer { function } => {
                let Some(timer) = self.timer(function) else { return Ok(None) };
                let source = match point {
                    Tracepoint::HrTimer { .. } => Source::HrTimer(timer),
                    _ => Source::Timer(timer),
                };
                event(Kind::Interrupt, self.tasks.meet(moment.tid)?, NO_TASK, source.detail())
            }
            Tracepoint::GuestExit { reason, vcpu } => {
                event(Kind::GuestExit, self.vcpu(moment, vcpu)?, NO_TASK, reason)
            }
            Tracepoint::GuestEnter { vcpu } => event(Kind::GuestEnter, self.vcpu(moment, vcpu)?, NO_TASK, 0),
            Tracepoint::VcpuWakeup { halted_ns, has_blocked } => {
                let task = self.vcpu(moment, None)?;
                let polled_us = u32::try_from(halted_ns / 1_000).unwrap_or(u32::MAX);
                match has_blocked {
                    true => Ok(None),
                    false => event(Kind::HaltPoll, task, NO_TASK, polled_us),
                }
            }
        }
    }

    /// The task that runs, which is this vCPU.
    fn vcpu(&mut self, moment: &Moment, vcpu: Option<u32>) -> Result<u32, TraceError> {
        let task = self.tasks.meet(moment.tid)?;
        if let Some(known) = self.tasks.get_mut(task) {
            known.vcpu = vcpu.or(known.vcpu);
        }
        Ok(task)
    }

    fn timer(&mut self, function: u64) -> Option<u32> {
        if let Some(&timer) = self.timers.get(&function) {
            return Some(timer);
        }
        let timer = self.timer_names.len();
        if timer == NAMES_MAX {
            return None;
        }
        self.timer_names.push(self.symbols.name(function));
        self.timers.insert(function, timer as u32);
        Some(timer as u32)
    }

    /// Ends the recording: what was met goes to `about`, which keeps what else it has. Its CPUs and its
    /// length become at least what the events need.
    pub fn finish(self, about: &mut About) {
        about.cpus = about.cpus.max(self.cpus);
        about.length_ns = about.length_ns.max(self.last_ns);
        about.clock_start_ns = self.start_ns.unwrap_or(about.clock_start_ns);
        about.tasks = self.tasks.into_all();
        about.devices = self.devices.into_iter().collect();
        about.timers = self.timer_names;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ftrace::decode::TaskSeen;

    /// A translator whose records are a microsecond apart on CPU 0.
    #[derive(Default)]
    struct Scene {
        translator: Translator,
        clock_ns: u64,
    }

    impl Scene {
        fn hit(&mut self, tid: u32, context: Context, point: Tracepoint) -> Option<Event> {
            self.clock_ns += 1_000;
            let moment = Moment { clock_ns: self.clock_ns, cpu: 0, tid, context };
            self.translator.translate(&moment, &point).unwrap()
        }

        fn switch(&mut self, from: u32, state: TaskState, to: u32) -> Event {
            let point = Tracepoint::Switch { previous: seen(from), state, next: seen(to) };
            self.hit(from, Context::Task, point).unwrap()
        }
    }

    fn seen(tid: u32) -> TaskSeen<'static> {
        TaskSeen { tid, name: b"name", priority: Some(120) }
    }

    #[test]
    fn a_wake_up_is_one_event_whichever_tracepoints_there_are() {
        for (waking, wakeup) in [(true, true), (true, false), (false, true)] {
            let mut scene = Scene::default();
            let mut events = Vec::new();
            for _ in 0..3 {
                if waking {
                    events.extend(scene.hit(1, Context::Interrupt, Tracepoint::Waking(seen(2))));
                }
                if wakeup {
                    events.extend(scene.hit(1, Context::Interrupt, Tracepoint::Wakeup(seen(2))));
                }
            }
            assert_eq!(events.len(), 3);
            for event in events {
                assert_eq!((event.kind, event.task, event.other), (Kind::Wake, 0, 1));
                assert_eq!(event.context(), Context::Interrupt);
            }
        }
    }

    #[test]
    fn a_task_that_runs_is_not_woken() {
        let mut scene = Scene::default();
        assert_eq!(scene.hit(5, Context::Interrupt, Tracepoint::Waking(seen(5))), None);
        assert_eq!(scene.hit(5, Context::Interrupt, Tracepoint::Wakeup(seen(5))), None);
        // The idle task wakes others.
        let woken = scene.hit(0, Context::SoftInterrupt, Tracepoint::Waking(seen(5))).unwrap();
        assert_eq!((woken.other, woken.context()), (NO_TASK, Context::SoftInterrupt));
    }

    #[test]
    fn tasks_live_from_their_fork_to_their_last_switch() {
        let mut scene = Scene::default();
        let fork = Tracepoint::Fork { parent: 4, child: 9, name: b"child" };
        let first = scene.hit(4, Context::Task, fork).unwrap();
        assert_eq!((first.kind, first.task, first.other), (Kind::Fork, 1, 0));
        assert_eq!(scene.hit(4, Context::Task, Tracepoint::WakeupNew(seen(9))).unwrap().task, 1);
        assert_eq!(scene.hit(9, Context::Task, Tracepoint::Exit { tid: 9 }).unwrap().task, 1);
        let last = scene.switch(9, TaskState::Dead, 0);
        assert_eq!((last.task, last.other, last.state()), (1, NO_TASK, TaskState::Dead));
        // The number is used again, whether its fork was recorded or not.
        assert_eq!(scene.switch(0, TaskState::Runnable, 9).other, 2);
        assert_eq!(scene.hit(2, Context::Task, fork).unwrap().task, 3);
        for (tid, is_thread) in [(12, true), (13, false)] {
            assert_eq!(scene.hit(4, Context::Task, Tracepoint::NewTask { tid, is_thread }), None);
            scene.hit(4, Context::Task, Tracepoint::Fork { parent: 4, child: tid, name: b"x" });
        }
        let pids: Vec<_> = scene.translator.tasks().all().iter().rev().take(2).map(|task| task.pid).collect();
        assert_eq!(pids, [13, 0]);
        let kernel = Tracepoint::Fork { parent: 2, child: 10, name: b"kworker" };
        scene.hit(2, Context::Task, kernel);
        let mut about = About::default();
        scene.translator.finish(&mut about);
        let tasks: Vec<_> = about.tasks.iter().map(|task| (task.tid, task.name.as_str())).collect();
        assert_eq!(
            tasks,
            [(4, ""), (9, "name"), (9, "name"), (9, "child"), (12, "x"), (13, "x"), (2, ""), (10, "kworker")]
        );
        assert!(about.tasks[7].is_kernel && !about.tasks[3].is_kernel);
    }

    #[test]
    fn times_start_with_the_recording_and_never_go_back() {
        let mut translator = Translator::default();
        translator.start_at(1_000);
        let mut at = |clock_ns| {
            let moment = Moment { clock_ns, cpu: 3, tid: 0, context: Context::Interrupt };
            let event = translator.translate(&moment, &Tracepoint::Softirq { number: 1 }).unwrap();
            event.map(|event| event.at_ns)
        };
        assert_eq!(
            [at(900), at(1_000), at(1_500), at(1_400), at(600)],
            [None, Some(0), Some(500), Some(500), Some(500)]
        );
        let mut about = About { length_ns: 20, ..About::default() };
        translator.finish(&mut about);
        assert_eq!((about.cpus, about.length_ns, about.clock_start_ns), (4, 500, 1_000));
    }

    #[test]
    fn sources_have_names() {
        let symbols = Symbols::from_kallsyms("ffffffff81000010 t hrtimer_wakeup");
        let mut scene = Scene { translator: Translator::new(symbols), ..Scene::default() };
        let mut source = |point| scene.hit(0, Context::Interrupt, point).unwrap().source();
        let known = Tracepoint::HrTimer { function: 0xffff_ffff_8100_0010 };
        assert_eq!(source(known), Source::HrTimer(0));
        assert_eq!(source(Tracepoint::Timer { function: 0x20 }), Source::Timer(1));
        assert_eq!(source(known), Source::HrTimer(0));
        assert_eq!(source(Tracepoint::Interrupt { number: 24, name: b"eth0" }), Source::Device(24));
        let mut about = About::default();
        scene.translator.finish(&mut about);
        assert_eq!(about.timers, ["hrtimer_wakeup", "0x20"]);
        assert_eq!(about.devices, [(24, "eth0".to_owned())]);
    }

    #[test]
    fn only_a_halt_that_did_not_block_was_all_polling() {
        let mut scene = Scene::default();
        let halt = |has_blocked| Tracepoint::VcpuWakeup { halted_ns: 17_900, has_blocked };
        assert_eq!(scene.hit(3, Context::Task, halt(true)), None);
        let poll = scene.hit(3, Context::Task, halt(false)).unwrap();
        assert_eq!((poll.kind, poll.detail), (Kind::HaltPoll, 17));
        let enter = Tracepoint::GuestEnter { vcpu: Some(6) };
        assert_eq!(scene.hit(3, Context::Task, enter).unwrap().task, 0);
        assert_eq!(scene.translator.tasks().all()[0].vcpu, Some(6));
    }
}
