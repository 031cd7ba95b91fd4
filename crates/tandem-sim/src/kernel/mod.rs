//! Kernels on top of each other: the host's on the machine, those of guests on its vCPUs.
//!
//! A [`Kernel`] is one level: CPUs, tasks, and a policy that decides, and that leaves what it asks for in an
//! outbox. The [`System`] carries out what policies decide, at both levels with the same code. It has one
//! method for each thing that can happen to a kernel, and these call each other across the levels: a guest's
//! kick wakes a vCPU, which is a wake-up in the host, which kicks a pCPU. In the host's kernel CPUs are pCPUs
//! and tasks are vCPUs; in a guest's, CPUs are vCPUs and tasks run programs. A vCPU without a guest kernel
//! runs a program itself.
//!
//! [`Processors`], one for each pCPU, do the work: they borrow the kernels whose accounts they keep, and make
//! everything take the time that the models say. Each has one clock, on which both levels' kernel code and
//! the program on top take turns; how fast the program goes is the business of the [`Hardware`]. What tasks
//! do when a burst of work ends is that of the engine.
//!
//! What needs one level or none is no business of the system: kicks of pCPUs ([`kicks`]), the searches of
//! vCPUs that spin ([`pause_loop`]), the cost of decisions ([`decision_cost`]), and CPUs that come and go
//! ([`presence`]).
//!
//! While a processor runs kernel code it takes no events: interrupts that come then are handled after it, as
//! with interrupts disabled.
//!
//! Limits: the host does not preempt a guest's kernel code halfway.

mod caches;
mod cpu;
mod decision_cost;
mod halt_poll;
mod hardware;
mod idle_beside;
mod kernels;
mod kicks;
mod level;
mod memory_state;
mod numa_balancing;
mod outbox;
mod paravirt;
mod pause_loop;
pub(crate) mod presence;
mod processors;
mod progress;
mod run_queue_locks;
mod schedule;
mod shared_state;
mod task;
mod tasks;
mod ticks;
mod usage;
mod vcpu;

pub(crate) use cpu::Due;
pub(crate) use hardware::Hardware;
pub(crate) use kernels::{CpuRef, Kernels, TaskRef};
pub(crate) use level::{Kernel, KernelParts};
pub(crate) use memory_state::{MemoryState, VmMemory};
pub(crate) use numa_balancing::NumaBalancing;
pub(crate) use paravirt::{Paravirt, Shootdown};
pub(crate) use processors::Processors;
pub(crate) use schedule::{Leaving, Waker};
pub(crate) use shared_state::SharedState;
pub(crate) use task::{Spin, Task, TaskKind, TaskState, TimerTarget};

use crate::metrics::ParavirtMetrics;
use crate::trace::{Event, EventKind, Observer, TraceHash};
use halt_poll::HaltPolls;
use idle_beside::IdleBeside;
use kicks::Kicks;
use pause_loop::PauseLoops;
use std::cmp::Reverse;
use tandem_machine::cpumask::CpuMask;
use tandem_machine::ids::{CpuId, TaskId};

/// Position of the host's kernel; those of guests follow.
pub(crate) const HOST: usize = 0;

/// A machine with all kernels on it. See the [module](self).
pub(crate) struct System<O> {
    pub kernels: Kernels,
    pub processors: Processors,
    pub pause_loops: PauseLoops,
    pub halt_polls: HaltPolls,
    /// What guests did because they know of their host.
    pub paravirt: ParavirtMetrics,
    /// Tasks of guests that wait for something and whose vCPU has been taken off since the engine asked last,
    /// where others notice that.
    pub preempted_waiters: Vec<TaskRef>,
    /// CPUs of the host that are online.
    online: CpuMask,
    kicks: Kicks,
    /// By position of the kernel.
    pub idle_beside: Vec<IdleBeside>,
    /// What the host's NUMA balancing has found out, if that is on.
    pub numa: Option<Box<NumaBalancing>>,
    pub observer: O,
    pub trace_hash: TraceHash,
    /// Events that were handled: see [`crate::metrics::RunMetrics::events`].
    pub events: u64,
    /// A policy cannot go on: its kernel says why.
    pub has_failed: bool,
}

impl<O: Observer> System<O> {
    pub fn new(
        kernels: Kernels,
        processors: Processors,
        numa: Option<Box<NumaBalancing>>,
        held: Vec<bool>,
        observer: O,
    ) -> Self {
        let guests = kernels.iter().skip(1).map(|guest| CpuMask::first(guest.cpus().len()));
        let guests = guests.map(|cpus| IdleBeside::new(&cpus, Vec::new()));
        let host = IdleBeside::new(processors.hardware.machine().all_cpus(), held);
        let idle_beside = std::iter::once(host).chain(guests).collect();
        Self {
            idle_beside,
            online: processors.hardware.machine().all_cpus().clone(),
            kicks: Kicks::new(processors.len()),
            pause_loops: PauseLoops::new(processors.len()),
            halt_polls: HaltPolls::default(),
            paravirt: ParavirtMetrics::default(),
            preempted_waiters: Vec::new(),
            kernels,
            processors,
            numa,
            observer,
            trace_hash: TraceHash::default(),
            events: 0,
            has_failed: false,
        }
    }

    /// What the processor has to do now.
    #[inline]
    pub fn due(&self, pcpu: CpuId, now_ns: u64) -> Option<ProcessorDue> {
        let processor = &self.processors[pcpu];
        if processor.waits_for_lock {
            return None;
        }
        if processor.searches {
            return Some(self.pause_loops.due(&self.kernels, pcpu, now_ns));
        }
        if processor.burst_end_ns <= now_ns {
            let spins = processor.executes.is_some_and(|task| self.kernels[task].spin.is_spinning());
            return Some(if spins { ProcessorDue::PauseLoop } else { ProcessorDue::BurstEnd });
        }
        let host = CpuRef::host(pcpu);
        let at = |at: CpuRef| {
            let due = self.kernels[at].due(now_ns);
            due.map(|due| ProcessorDue::Kernel(at, due))
        };
        at(host).or_else(|| processor.guest.and_then(at))
    }

    #[inline]
    fn note(
        &mut self,
        at_ns: u64,
        kind: EventKind,
        on: CpuRef,
        task: TaskId,
        by: Option<(CpuId, Option<TaskId>)>,
    ) {
        let event = Event { at_ns, kernel: self.kernels[on.kernel].id(), kind, cpu: on.cpu, task, by };
        self.trace_hash.add(event);
        let kernel = &self.kernels[on.kernel];
        let facts = &kernel.tasks().facts()[task.index()];
        self.idle_beside[on.kernel].follow(event, facts, |cpu| kernel[cpu].may_idle());
        self.observer.observe(event);
    }

    /// The first CPU of the host that is online.
    pub fn first_online(&self) -> CpuId {
        self.online.iter().next().unwrap_or(CpuId(0))
    }

    /// Starts a timer on the CPU.
    pub fn arm(&mut self, mut on: CpuRef, at_ns: u64, target: TimerTarget) {
        let is_offline = on.is_host() && !self.online.contains(on.cpu);
        if is_offline {
            on.cpu = self.first_online();
        }
        self.kernels[on].timers.push(Reverse((at_ns, target)));
        if is_offline {
            self.processors.refresh(&self.kernels, on.cpu);
        }
    }

    /// The burst of what the processor executes has come to its end.
    pub fn finish_burst(&mut self, pcpu: CpuId, now_ns: u64) {
        self.events += u64::from(self.processors.finish_burst(&mut self.kernels, pcpu, now_ns));
    }

    /// Accounts for all time up to now.
    pub fn settle_all(&mut self, now_ns: u64) {
        for pcpu in (0..self.processors.len()).map(CpuId::from) {
            self.processors.settle(&mut self.kernels, pcpu, now_ns);
            self.pause_loops.account(&mut self.kernels, pcpu, now_ns);
        }
        for kernel in self.kernels.positions() {
            for cpu in (0..self.kernels[kernel].cpus().len()).map(CpuId::from) {
                self.kernels[kernel].settle_stolen(cpu, now_ns);
            }
            for task in self.kernels[kernel].tasks_mut().all_mut() {
                task.settle_sleep(now_ns);
            }
        }
    }
}

/// What a processor has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcessorDue {
    /// The program's burst of work is over.
    BurstEnd,
    /// The program has spun for a whole window.
    PauseLoop,
    /// The search for a vCPU to yield to goes on.
    Search,
    /// Something in one of the kernels on it.
    Kernel(CpuRef, Due),
}
