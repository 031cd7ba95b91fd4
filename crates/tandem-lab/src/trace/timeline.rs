//! Turns scheduling events into slices: which task is visible on which CPU, from when to when.
//!
//! Each CPU, of the host and of every VM, has a track. On it there is a slice while its kernel runs a task on
//! it *and* the CPU itself runs: a vCPU that the host has taken off its pCPU runs nothing, although the guest
//! does not notice. So the slice of a guest's task ends when its vCPU leaves the pCPU, and another slice of
//! the task begins when the vCPU is back.
//!
//! ```text
//! pCPU 0    [ web/vcpu0      ][ batch/vcpu0 ][ web/vcpu0 ]
//! web       [ httpd ][ cron  ]               [ cron ]         vCPU 0
//! ```
//!
//! Where only a part of the run is traced, slices are drawn only of its VMs and on its pCPUs, and those that reach into
//! the window of time or out of it are cut there. The timeline follows the rest all the same.

use super::names::{NameId, Names};
use super::selection::Filter;
use tandem_machine::ids::{CpuId, KernelId, TaskId};
use tandem_sim::scenario::Scenario;
use tandem_sim::trace::{Event, EventKind};

/// The track of a CPU: first come those of the pCPUs, then those of the vCPUs of each VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Track(pub usize);

/// An element of the drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// A slice begins.
    Begin {
        track: Track,
        name: NameId,
        /// The wake-up that led to it.
        flow: Option<Flow>,
        /// The number of the CPU, of the same kernel, on which the task ran before, if that was another one.
        came_from: Option<u32>,
        /// For a guest's task: the number of the pCPU below its vCPU.
        pcpu: Option<u32>,
    },
    /// The slice of the track ends.
    End { track: Track, why: &'static str },
    /// A task is woken on this track, by that task or, if there is none, an interrupt.
    Wake { track: Track, task: NameId, by: Option<NameId>, flow: Flow },
}

/// The unique number of a wake-up that an arrow shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flow(pub u64);

/// The state of all tracks.
pub(super) struct Timeline {
    filter: Filter,
    window: Window,
    pcpus: usize,
    tracks: Vec<TrackState>,
    /// By number of the kernel.
    kernels: Vec<KernelState>,
    /// The name, on each pCPU, of the slice of a vCPU without a guest kernel.
    on_pcpu: Vec<NameId>,
    flows: u64,
}

/// Where the run is relative to the window of time that is drawn.
#[derive(Clone, Copy, PartialEq)]
enum Window {
    Before,
    Within,
    After,
}

struct TrackState {
    /// The pCPU on which the CPU of the track runs, if it does.
    pcpu: Option<CpuId>,
    runs: Runs,
}

/// The task that a kernel runs on a CPU.
#[derive(Clone, Copy)]
enum Runs {
    Nothing,
    Task(KernelId, TaskId),
    /// There is no kernel: the vCPU runs its own program.
    Itself,
}

struct KernelState {
    /// The track of its first CPU.
    first_track: usize,
    tasks: Vec<TaskState>,
}

#[derive(Clone, Copy, Default)]
struct TaskState {
    cpu: Option<CpuId>,
    /// Shown with the next slice.
    came_from: Option<CpuId>,
    /// Shown with the next slice.
    flow: Option<Flow>,
}

impl Timeline {
    pub fn new(scenario: &Scenario, filter: Filter, names: &mut Names) -> Self {
        let pcpus = scenario.machine.cpus().len();
        let mut tracks: Vec<_> =
            (0..pcpus).map(|cpu| TrackState { pcpu: Some(cpu.into()), runs: Runs::Nothing }).collect();
        let mut kernels = vec![KernelState { first_track: 0, tasks: Vec::new() }];
        for vm in &scenario.workloads {
            kernels.push(KernelState { first_track: tracks.len(), tasks: Vec::new() });
            let runs = if vm.guest().is_some() { Runs::Nothing } else { Runs::Itself };
            tracks.extend((0..vm.task_count()).map(|_| TrackState { pcpu: None, runs }));
        }
        let on_pcpu = scenario.machine.cpus().iter();
        let on_pcpu = on_pcpu.map(|cpu| names.intern(&format!("on CPU {}", cpu.os_index))).collect();
        Self { filter, window: Window::Before, pcpus, tracks, kernels, on_pcpu, flows: 0 }
    }

    /// Lets time go on: before anything that happens at `now_ns`, what the ends of the window do to slices is emitted,
    /// with its time.
    pub fn advance(&mut self, now_ns: u64, names: &Names, mut emit: impl FnMut(u64, Mark)) {
        let (from_ns, to_ns) = (self.filter.from_ns, self.filter.to_ns);
        if self.window == Window::Before && now_ns >= from_ns {
            self.window = Window::Within;
            for track in (0..self.tracks.len()).map(Track) {
                self.begin(track, names, &mut |mark| emit(from_ns, mark));
            }
        }
        if self.window == Window::Within && now_ns >= to_ns {
            for track in (0..self.tracks.len()).map(Track) {
                self.end(track, "end of the window", &mut |mark| emit(to_ns, mark));
            }
            self.window = Window::After;
        }
    }

    /// Emits the marks of an event.
    pub fn observe(&mut self, event: Event, names: &Names, mut emit: impl FnMut(Mark)) {
        let is_shown = self.filter.shows(event);
        match event.kind {
            EventKind::Wake if is_shown => emit(self.wake(event, names)),
            EventKind::Wake => self.task(event.kernel, event.task).flow = None,
            EventKind::Start => self.start(event, names, emit),
            EventKind::Continue => {}
            EventKind::Preempt => self.stop(event, "preempted", emit),
            EventKind::Yield => self.stop(event, "yielded", emit),
            EventKind::Block => self.stop(event, "blocked", emit),
            EventKind::Exit => {
                self.stop(event, "exited", emit);
                *self.task(event.kernel, event.task) = TaskState::default();
            }
        }
    }

    /// Renames a task: if it runs, another slice begins.
    pub fn renamed(&mut self, kernel: KernelId, task: TaskId, names: &Names, mut emit: impl FnMut(Mark)) {
        let Some(cpu) = self.task(kernel, task).cpu else { return };
        let track = self.track(kernel, cpu);
        if matches!(self.tracks[track.0].runs, Runs::Task(_, running) if running == task) {
            self.end(track, "exec", &mut emit);
            self.begin(track, names, &mut emit);
        }
    }

    /// Ends all slices.
    pub fn finish(&mut self, mut emit: impl FnMut(Mark)) {
        for track in (0..self.tracks.len()).map(Track) {
            self.end(track, "end of the run", &mut emit);
            self.tracks[track.0].pcpu = None;
        }
    }

    /// A wake-up from outside, or from a pCPU that is not traced, is drawn on the CPU that the task is put on.
    fn wake(&mut self, event: Event, names: &Names) -> Mark {
        let is_traced = |cpu: &CpuId| event.kernel != KernelId::HOST || self.filter.has_cpu(*cpu);
        let cpu = event.by.map(|(cpu, _)| cpu).filter(is_traced).unwrap_or(event.cpu);
        self.flows += 1;
        let flow = Flow(self.flows);
        self.task(event.kernel, event.task).flow = Some(flow);
        let name = |task| names.of(event.kernel, task);
        let by = event.by.and_then(|(_, waker)| waker).map(name);
        Mark::Wake { track: self.track(event.kernel, cpu), task: name(event.task), by, flow }
    }

    fn start(&mut self, event: Event, names: &Names, mut emit: impl FnMut(Mark)) {
        let task = self.task(event.kernel, event.task);
        task.came_from = task.cpu.replace(event.cpu).filter(|&cpu| cpu != event.cpu);
        let track = self.track(event.kernel, event.cpu);
        self.tracks[track.0].runs = Runs::Task(event.kernel, event.task);
        self.begin(track, names, &mut emit);
        if event.kernel == KernelId::HOST {
            let vcpu = self.vcpu_track(event.task);
            self.tracks[vcpu.0].pcpu = Some(event.cpu);
            self.begin(vcpu, names, &mut emit);
        }
    }

    fn stop(&mut self, event: Event, why: &'static str, mut emit: impl FnMut(Mark)) {
        if event.kernel == KernelId::HOST {
            let vcpu = self.vcpu_track(event.task);
            self.end(vcpu, "the vCPU left its pCPU", &mut emit);
            self.tracks[vcpu.0].pcpu = None;
        }
        let track = self.track(event.kernel, event.cpu);
        self.end(track, why, &mut emit);
        self.tracks[track.0].runs = Runs::Nothing;
    }

    /// Begins the slice of the task that runs on the track, if there is one.
    fn begin(&mut self, track: Track, names: &Names, emit: &mut impl FnMut(Mark)) {
        let TrackState { pcpu: Some(pcpu), runs } = self.tracks[track.0] else { return };
        let is_drawn = self.is_drawn(track);
        let mark = match runs {
            Runs::Nothing => return,
            Runs::Itself => {
                let name = self.on_pcpu[pcpu.index()];
                Mark::Begin { track, name, flow: None, came_from: None, pcpu: None }
            }
            Runs::Task(kernel, task) => {
                let state = self.task(kernel, task);
                // What is not drawn has these for itself: they are not of a later slice.
                let (flow, came_from) = (state.flow.take(), state.came_from.take());
                Mark::Begin {
                    track,
                    name: names.of(kernel, task),
                    flow,
                    came_from: came_from.map(|cpu| names.cpu(kernel, cpu)),
                    pcpu: (kernel != KernelId::HOST).then(|| names.cpu(KernelId::HOST, pcpu)),
                }
            }
        };
        if is_drawn {
            emit(mark);
        }
    }

    /// Ends the slice of the track, if there is one.
    fn end(&self, track: Track, why: &'static str, emit: &mut impl FnMut(Mark)) {
        if self.is_drawn(track) {
            emit(Mark::End { track, why });
        }
    }

    /// Whether there is a slice on the track now, and in the trace.
    fn is_drawn(&self, track: Track) -> bool {
        let TrackState { pcpu, runs } = &self.tracks[track.0];
        let has_vm = match runs {
            Runs::Nothing => return false,
            Runs::Task(KernelId::HOST, vcpu) => self.filter.has_vcpu(*vcpu),
            Runs::Task(..) | Runs::Itself => self.filter.has_vcpu(TaskId::from(track.0 - self.pcpus)),
        };
        has_vm && self.window == Window::Within && pcpu.is_some_and(|pcpu| self.filter.has_cpu(pcpu))
    }

    fn track(&self, kernel: KernelId, cpu: CpuId) -> Track {
        Track(self.kernels[kernel.index()].first_track + cpu.index())
    }

    fn vcpu_track(&self, vcpu: TaskId) -> Track {
        Track(self.pcpus + vcpu.index())
    }

    fn task(&mut self, kernel: KernelId, task: TaskId) -> &mut TaskState {
        let tasks = &mut self.kernels[kernel.index()].tasks;
        if tasks.len() <= task.index() {
            tasks.resize(task.index() + 1, TaskState::default());
        }
        &mut tasks[task.index()]
    }
}
