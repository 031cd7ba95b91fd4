//! Kernels on top of each other: the host's on the machine, those of guests on its vCPUs.
//!
//! A [`Kernel`] is one level: CPUs, tasks, and a policy that decides. The [`System`] carries out what policies
//! decide, at both levels with the same code, and makes it cost what the models say. In the host's kernel CPUs are
//! pCPUs and tasks are vCPUs; in a guest's, CPUs are vCPUs and tasks run programs. A vCPU without a guest kernel runs
//! a program itself.
//!
//! Work is done by [`Processor`]s, one a pCPU. Each has one clock, on which both levels' kernel code and the program on
//! top take turns; how fast the program goes depends on the caches, the memory and the sibling threads of that
//! processor. What tasks do when a burst of work ends is the engine's business.
//!
//! While a processor runs kernel code it takes no events: interrupts that come then are handled after it, as with
//! interrupts disabled. The host does not preempt a guest's kernel code halfway.

mod caches;
mod cpu;
mod kernels;
mod level;
mod memory_state;
mod numa_balancing;
mod outbox;
mod pause_loop;
mod presence;
mod progress;
mod run_queue_locks;
mod schedule;
mod shared_state;
mod task;
mod tasks;
mod usage;
mod vcpu;

pub(crate) use cpu::Due;
pub(crate) use kernels::{CpuRef, Kernels, TaskRef};
pub(crate) use level::{Kernel, KernelParts};
pub(crate) use memory_state::{MemoryState, VmMemory};
pub(crate) use numa_balancing::NumaBalancing;
pub(crate) use shared_state::SharedState;
pub(crate) use task::{Task, TaskState, TimerTarget};
pub(crate) use usage::record;

use crate::cost::CostModels;
use crate::engine::event_queue::{EventQueue, NEVER};
use crate::metrics::PauseLoopMetrics;
use crate::policy::pause_loop::PauseLoop;
use crate::program::MemoryProfile;
use crate::scenario::VmKind;
use crate::trace::{Event, EventKind, Observer, TraceHash};
use caches::Caches;
use cpu::{Midway, Processor};
use run_queue_locks::QueueLocks;
use std::cmp::Reverse;
use std::sync::Arc;
use tandem_machine::Machine;
use tandem_machine::cpumask::CpuMask;
use tandem_machine::ids::{CpuId, TaskId};

/// Position of the host's kernel; those of guests follow.
pub(crate) const HOST: usize = 0;

/// A machine with all kernels on it. See the [module](self).
pub(crate) struct System<O> {
    pub machine: Arc<Machine>,
    pub costs: CostModels,
    pub kernels: Kernels,
    /// What the host does about vCPUs that spin, and how often it did.
    pub pause_loop: Option<PauseLoop>,
    pub pause_loop_use: PauseLoopMetrics,
    queue_locks: QueueLocks,
    /// CPUs of the host that are online.
    pub online: CpuMask,
    processors: Vec<Processor>,
    /// By processor.
    midway: Vec<Midway>,
    /// The next event of each processor; the engine's own sources of events follow them.
    pub queue: EventQueue,
    pub memory: MemoryState,
    /// What the host's NUMA balancing has found out, if that is on.
    pub numa: Option<Box<NumaBalancing>>,
    shared: SharedState,
    caches: Caches,
    /// The other threads of each processor's core.
    siblings: Vec<Box<[CpuId]>>,
    pub observer: O,
    pub trace_hash: TraceHash,
    /// What was handled: see [`crate::metrics::RunMetrics::events`].
    pub events: u64,
    /// A policy cannot go on: its kernel says why.
    pub has_failed: bool,
}

/// The parts that a system is made of.
pub(crate) struct SystemParts<O> {
    pub machine: Arc<Machine>,
    pub costs: CostModels,
    pub kernels: Kernels,
    pub pause_loop: Option<PauseLoop>,
    pub profiles: Vec<Arc<MemoryProfile>>,
    pub memory: MemoryState,
    pub numa: Option<Box<NumaBalancing>>,
    pub shared: SharedState,
    pub observer: O,
    /// Sources of events besides the processors.
    pub extra_sources: usize,
}

impl<O: Observer> System<O> {
    pub fn new(parts: SystemParts<O>) -> Self {
        let machine = parts.machine;
        let cpu_count = machine.cpu_count();
        let siblings = (0..cpu_count)
            .map(CpuId::from)
            .map(|cpu| machine.siblings(cpu).iter().filter(|&other| other != cpu).collect());
        Self {
            siblings: siblings.collect(),
            queue_locks: QueueLocks::new(
                parts.kernels.host().policy().spin_lock_kind(),
                parts.costs.spin_lock,
                cpu_count,
            ),
            caches: Caches::new(&machine, parts.profiles, parts.costs.cache.is_some()),
            costs: parts.costs,
            kernels: parts.kernels,
            pause_loop: parts.pause_loop,
            online: machine.all_cpus().clone(),
            pause_loop_use: PauseLoopMetrics::default(),
            processors: vec![Processor::new(); cpu_count],
            midway: vec![Midway::default(); cpu_count],
            queue: EventQueue::new(cpu_count + parts.extra_sources),
            memory: parts.memory,
            numa: parts.numa,
            shared: parts.shared,
            observer: parts.observer,
            trace_hash: TraceHash::default(),
            events: 0,
            has_failed: false,
            machine,
        }
    }

    pub fn processor_count(&self) -> usize {
        self.processors.len()
    }

    /// The CPU of a kernel, and the task on it, whose program the processor executes.
    #[inline]
    pub fn executing(&self, pcpu: CpuId) -> Option<(CpuRef, TaskRef)> {
        let processor = &self.processors[pcpu.index()];
        let on = processor.guest.unwrap_or(CpuRef::host(pcpu));
        Some((on, processor.executes?))
    }

    /// What the processor has to do now.
    #[inline]
    pub fn due(&self, pcpu: CpuId, now_ns: u64) -> Option<ProcessorDue> {
        let processor = &self.processors[pcpu.index()];
        if processor.waits_for_lock {
            return None;
        }
        if processor.searches {
            return Some(self.due_in_search(pcpu, now_ns));
        }
        if processor.burst_end_ns <= now_ns {
            let spins = processor.executes.is_some_and(|task| self.kernels[task].spins);
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
        self.observer.observe(event);
    }

    /// Brings the queue up to date with the processor's next event.
    #[inline]
    pub fn refresh(&mut self, pcpu: CpuId) {
        let processor = &self.processors[pcpu.index()];
        if processor.waits_for_lock {
            return self.queue.set(pcpu.index(), NEVER);
        }
        if processor.searches {
            return self.queue.set(pcpu.index(), processor.settled_ns);
        }
        let mut first_ns = processor.burst_end_ns.min(self.kernels.host()[pcpu].next_event_ns());
        if let Some(guest) = processor.guest {
            first_ns = first_ns.min(self.kernels[guest].next_event_ns());
        }
        self.queue.set(pcpu.index(), first_ns.max(processor.settled_ns));
    }

    /// Lets the code of a kernel run on its CPU, whose time must be settled; what runs there is put off.
    #[inline]
    pub fn charge(&mut self, on: CpuRef, cost_ns: u64) {
        let Some(pcpu) = self.pcpu(on) else { return };
        let processor = &mut self.processors[pcpu.index()];
        processor.settled_ns += cost_ns;
        if processor.burst_end_ns != NEVER {
            processor.burst_end_ns += cost_ns;
        }
        self.kernels[on].used.overhead_ns += cost_ns;
        if !on.is_host() {
            let ahead_ns = &mut processor.ahead_by_guest.get_or_insert((on, 0)).1;
            *ahead_ns += cost_ns;
            self.charge_vcpu(pcpu, cost_ns);
        }
    }

    /// Charges an exit from the VM on the processor, if what runs there is in one.
    pub fn charge_exit(&mut self, pcpu: CpuId) {
        let host = &self.kernels.host();
        if host[pcpu].current.is_some_and(|task| host[task].kind != VmKind::Machine) {
            return;
        }
        let round_trip_ns = self.costs.vm_exit.map_or(0, |cost| cost.round_trip_ns);
        self.charge(CpuRef::host(pcpu), round_trip_ns);
    }

    /// How long an idle processor takes to wake up, ns; 0 if it is not idle.
    pub fn idle_exit_ns(&self, pcpu: CpuId) -> u64 {
        let cpu = &self.kernels.host()[pcpu];
        let is_idle = cpu.current.is_none() && !cpu.is_away;
        self.costs.idle.filter(|_| is_idle).map_or(0, |cost| cost.exit_ns)
    }

    /// Charges an interrupt to the kernel that handles it, and the exit of the guest that it interrupts.
    pub fn charge_interrupt(&mut self, on: CpuRef, now_ns: u64) {
        let Some(pcpu) = self.pcpu(on) else { return };
        self.settle(pcpu, now_ns);
        let handling_ns = self.kernels[on.kernel].interrupt_ns();
        self.charge(on, self.idle_exit_ns(pcpu) + handling_ns);
        let is_in_guest = !self.processors[pcpu.index()].searches;
        if is_in_guest && self.kernels.host()[pcpu].current.is_some() {
            self.charge_exit(pcpu);
        }
    }

    /// Up to when the processor's time is accounted for.
    pub fn settled_ns(&self, pcpu: CpuId) -> u64 {
        self.processors[pcpu.index()].settled_ns
    }

    /// How long the line of a lock travels from one processor to another, ns; nothing with the model of locks off.
    pub fn line_transfer_ns(&self, from: CpuId, to: CpuId) -> u64 {
        self.costs.spin_lock.map_or(0, |_| self.machine.line_transfer_ns(from, to))
    }

    /// The pCPU beneath a CPU, if it has one.
    #[inline]
    pub fn pcpu(&self, on: CpuRef) -> Option<CpuId> {
        self.kernels[on].pcpu
    }

    /// Starts a timer on the CPU.
    pub fn arm(&mut self, mut on: CpuRef, at_ns: u64, target: TimerTarget) {
        let is_offline = on.is_host() && !self.online.contains(on.cpu);
        if is_offline {
            on.cpu = self.first_online();
        }
        self.kernels[on].timers.push(Reverse((at_ns, target)));
        if is_offline {
            self.refresh(on.cpu);
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
