//! The processors of a machine, which execute what kernels have put on them: their clocks, and the time that
//! the kernels' code takes.

use super::cpu::{Processor, Spinning};
use super::hardware::Hardware;
use super::run_queue_locks::QueueLocks;
use super::{CpuRef, Kernels, Leaving, TaskKind, TaskRef};
use crate::cost::IdleEnd;
use crate::engine::event_queue::{EventQueue, NEVER};
use crate::policy::halt_poll::HaltPoll;
use crate::policy::linux::SpinLockKind;
use crate::policy::pause_loop::PauseLoop;
use std::ops::{Index, IndexMut};
use tandem_machine::ids::CpuId;

/// The processors, with the hardware and the locks that they share. Indexed by pCPU.
pub(crate) struct Processors {
    pub(super) hardware: Hardware,
    pub(super) list: Vec<Processor>,
    /// The locks of the host's run queues.
    pub(super) locks: QueueLocks,
    /// What the host does about vCPUs that spin.
    pub(super) pause_loop: Option<PauseLoop>,
    /// Whether and how it polls for vCPUs that halt.
    pub(super) halt_poll: Option<HaltPoll>,
    /// The next event of each processor.
    queue: EventQueue,
}

impl Index<CpuId> for Processors {
    type Output = Processor;

    #[inline]
    fn index(&self, pcpu: CpuId) -> &Processor {
        &self.list[pcpu.index()]
    }
}

impl IndexMut<CpuId> for Processors {
    #[inline]
    fn index_mut(&mut self, pcpu: CpuId) -> &mut Processor {
        &mut self.list[pcpu.index()]
    }
}

impl Processors {
    /// They execute nothing yet. The kind is that of the locks of the host's run queues.
    pub fn new(
        hardware: Hardware,
        pause_loop: Option<PauseLoop>,
        halt_poll: Option<HaltPoll>,
        lock_kind: SpinLockKind,
    ) -> Self {
        let count = hardware.machine().cpu_count();
        Self {
            list: vec![Processor::new(); count],
            locks: QueueLocks::new(lock_kind, hardware.costs().spin_lock, count),
            pause_loop,
            halt_poll,
            queue: EventQueue::new(count),
            hardware,
        }
    }

    #[inline]
    pub fn hardware(&self) -> &Hardware {
        &self.hardware
    }

    #[inline]
    pub fn hardware_mut(&mut self) -> &mut Hardware {
        &mut self.hardware
    }

    /// When the next event comes, and on which processor.
    #[inline]
    pub fn next_event(&self) -> (u64, CpuId) {
        let (at_ns, pcpu) = self.queue.peek();
        (at_ns, CpuId::from(pcpu))
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// The CPU of a kernel, and the task on it, whose program the processor executes.
    #[inline]
    pub fn executing(&self, pcpu: CpuId) -> Option<(CpuRef, TaskRef)> {
        let processor = &self[pcpu];
        let on = processor.guest.unwrap_or(CpuRef::host(pcpu));
        Some((on, processor.executes?))
    }

    /// Brings the queue up to date with the processor's next event.
    #[inline]
    pub fn refresh(&mut self, kernels: &Kernels, pcpu: CpuId) {
        let processor = &self[pcpu];
        if processor.waits_for_lock {
            return self.queue.set(pcpu.index(), NEVER);
        }
        if processor.searches {
            return self.queue.set(pcpu.index(), processor.settled_ns);
        }
        let mut first_ns = processor.burst_end_ns.min(kernels.host()[pcpu].next_event_ns());
        if let Some(guest) = processor.guest {
            first_ns = first_ns.min(kernels[guest].next_event_ns());
        }
        self.queue.set(pcpu.index(), first_ns.max(processor.settled_ns));
    }

    /// Lets the code of a kernel run on its CPU, whose time must be settled; what runs there is put off.
    #[inline]
    pub fn charge(&mut self, kernels: &mut Kernels, on: CpuRef, cost_ns: u64) {
        let Some(pcpu) = kernels[on].pcpu else { return };
        let processor = &mut self[pcpu];
        processor.settled_ns += cost_ns;
        if processor.burst_end_ns != NEVER {
            processor.burst_end_ns += cost_ns;
        }
        kernels[on].used.overhead_ns += cost_ns;
        if !on.is_host() {
            let ahead_ns = &mut processor.ahead_by_guest.get_or_insert((on, 0)).1;
            *ahead_ns += cost_ns;
            self.charge_vcpu(kernels, pcpu, cost_ns);
        }
    }

    /// The pCPU gets to a vCPU: what ran on that goes on, or the guest decides what to run.
    pub(super) fn enter_guest(&mut self, kernels: &mut Kernels, pcpu: CpuId, vcpu: CpuRef, now_ns: u64) {
        kernels[vcpu.kernel].settle_stolen(vcpu.cpu, now_ns);
        self[pcpu].guest = Some(vcpu);
        let state = &mut kernels[vcpu];
        state.deprived_since_ns = NEVER;
        state.spinning = Spinning::default();
        state.pcpu = Some(pcpu);
        let current = state.current;
        if let Some(settings) = self.halt_poll {
            state.halt.end(settings, self[pcpu].settled_ns.max(now_ns));
        }
        if kernels[vcpu.kernel].paravirt().hides_idle {
            kernels[vcpu.kernel].policy_mut().set_preempted(vcpu.cpu, false);
        }
        match current {
            Some(task) => {
                kernels[vcpu.kernel][task].spin.look();
                self.execute(kernels, pcpu, vcpu.kernel, task);
            }
            None => kernels[vcpu].resched_ns = kernels[vcpu].resched_ns.min(now_ns),
        }
    }

    /// The pCPU leaves the vCPU on it, for that reason.
    pub(super) fn leave_guest(&mut self, kernels: &mut Kernels, pcpu: CpuId, leaving: Leaving, now_ns: u64) {
        if let Some(vcpu) = self[pcpu].guest.take() {
            let vcpu = &mut kernels[vcpu];
            vcpu.pcpu = None;
            if leaving.can_go_on() {
                vcpu.deprived_since_ns = now_ns;
                vcpu.spinning.is_preempted = true;
                vcpu.spinning.has_yielded = leaving != Leaving::Preempt;
            }
        }
    }

    /// Charges an exit from the VM on the processor, if what runs there is in one.
    #[inline]
    pub fn charge_exit(&mut self, kernels: &mut Kernels, pcpu: CpuId) {
        let host = kernels.host();
        let is_other = host[pcpu].current.is_some_and(|task| host[task].kind != TaskKind::Vcpu);
        if is_other || self[pcpu].polls {
            return;
        }
        let round_trip_ns = self.hardware.costs().vm_exit.map_or(0, |cost| cost.round_trip_ns);
        self.charge(kernels, CpuRef::host(pcpu), round_trip_ns);
    }

    /// Charges an interrupt to the kernel that handles it, and the exit of the guest that it interrupts.
    #[inline]
    pub fn charge_interrupt(&mut self, kernels: &mut Kernels, on: CpuRef, now_ns: u64) {
        let Some(pcpu) = kernels[on].pcpu else { return };
        self.settle(kernels, pcpu, now_ns);
        let handling_ns = kernels[on.kernel].interrupt_ns();
        let exit_ns = self.hardware.idle_exit_ns(pcpu, &kernels.host()[pcpu], IdleEnd::Interrupt);
        self.charge(kernels, on, exit_ns + handling_ns);
        let is_in_guest = !self[pcpu].searches;
        if is_in_guest && kernels.host()[pcpu].current.is_some() {
            self.charge_exit(kernels, pcpu);
        }
    }
}
