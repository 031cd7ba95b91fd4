//! Halt polling: a pCPU on which the host's code waits for the next event of a vCPU that has halted.
//!
//! While it polls, the vCPU's task runs, as the host's scheduler sees it: nothing else gets the pCPU unless
//! polling ends, and no CPU idles. The vCPU itself is out of its guest: it has no pCPU there, and no time is
//! stolen from it. An event that comes meanwhile needs no wake-up, no interrupt of another pCPU and no
//! switch. Polling ends without one after the vCPU's window, or as soon as the pCPU has another task to run
//! (`single_task_running()`) or has to reschedule for another reason; then the vCPU sleeps.
//!
//! Limits: only vCPUs of guest kernels are polled for; one that runs a program by itself sleeps at once.
//! A poll slows the other threads of its core as any task does. What interrupts of the host take is added
//! to the window.

use super::cpu::Cpu;
use super::schedule::Leaving;
use super::{CpuRef, Kernels, System, TimerTarget};
use crate::engine::event_queue::NEVER;
use crate::metrics::HaltPollMetrics;
use crate::policy::Policy;
use crate::policy::halt_poll::HaltPoll;
use crate::trace::Observer;
use tandem_machine::ids::CpuId;

/// What the host knows of the halts of a vCPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Halt {
    /// Since when it is halted, ns; [`NEVER`] if it is not, or if nobody asks.
    since_ns: u64,
    /// How long the host polls for it, ns; `None` before its first halt.
    window_ns: Option<u64>,
    /// The host polls for it.
    polls: bool,
    /// Another vCPU or a device has woken it while the host polled.
    is_woken: bool,
}

impl Default for Halt {
    fn default() -> Self {
        Self { since_ns: NEVER, window_ns: None, polls: false, is_woken: false }
    }
}

impl Halt {
    /// Whether the host polls for the vCPU.
    #[inline]
    pub fn polls(&self) -> bool {
        self.polls
    }

    /// It halts, and the host polls for so long, ns.
    fn begin(&mut self, settings: HaltPoll, now_ns: u64) -> u64 {
        self.since_ns = now_ns;
        *self.window_ns.get_or_insert(settings.first_ns())
    }

    /// It goes on.
    #[inline]
    pub(super) fn end(&mut self, settings: HaltPoll, now_ns: u64) {
        if self.since_ns == NEVER {
            return;
        }
        let halted_ns = now_ns.saturating_sub(self.since_ns);
        self.window_ns = self.window_ns.map(|window_ns| settings.next_ns(window_ns, halted_ns));
        self.since_ns = NEVER;
    }
}

/// The pCPUs that poll, and what came of it.
#[derive(Debug, Default)]
pub(crate) struct HaltPolls {
    pub metrics: HaltPollMetrics,
    polling: Vec<CpuId>,
}

impl<O: Observer> System<O> {
    /// A vCPU of a guest, which is on that pCPU, halts until an interrupt at that time or an earlier one. The
    /// host polls first, if it does so at all; whether it does.
    pub(super) fn polls_first(&mut self, cpu: CpuRef, pcpu: CpuId, next_ns: u64) -> bool {
        let Some(settings) = self.processors.halt_poll else { return false };
        let since_ns = self.processors[pcpu].settled_ns;
        let window_ns = self.kernels[cpu].halt.begin(settings, since_ns);
        if window_ns == 0 {
            return false;
        }
        self.halt_polls.metrics.attempted += 1;
        // The loop looks once, in any case.
        if self.is_crowded(pcpu) {
            return false;
        }
        self.processors.charge_exit(&mut self.kernels, pcpu);
        self.processors.leave_caches(&mut self.kernels, pcpu);
        let Self { kernels, processors, halt_polls, .. } = self;
        let processor = &mut processors[pcpu];
        processor.polls = true;
        (processor.guest, processor.executes) = (None, None);
        processor.burst_end_ns = next_ns.min(processor.settled_ns + window_ns);
        let state = &mut kernels[cpu];
        state.pcpu = None;
        (state.halt.polls, state.halt.is_woken) = (true, false);
        state.halt.since_ns = processor.settled_ns;
        halt_polls.polling.push(pcpu);
        processors.refresh(kernels, pcpu);
        true
    }

    /// Whether the pCPU has another task to run than the one on it.
    fn is_crowded(&self, pcpu: CpuId) -> bool {
        self.kernels.host().policy().queue_length(pcpu) > 1
    }

    /// Ends the polling of pCPUs that have something else to run by now.
    #[inline]
    pub(super) fn end_crowded_polls(&mut self, now_ns: u64) {
        for at in 0..self.halt_polls.polling.len() {
            let pcpu = self.halt_polls.polling[at];
            if self.is_crowded(pcpu) && self.processors[pcpu].burst_end_ns > now_ns {
                self.processors[pcpu].burst_end_ns = now_ns;
                self.processors.refresh(&self.kernels, pcpu);
            }
        }
    }

    /// A vCPU that the host polls for has got something to do, from the pCPU `by`: that is seen at the next
    /// look.
    pub(super) fn wake_polling(&mut self, cpu: CpuRef, now_ns: u64, by: Option<CpuId>) {
        let vcpu = self.kernels.vcpu_task(cpu);
        let pcpu = self.kernels.host()[vcpu].last_cpu;
        let Self { kernels, processors, .. } = self;
        let written_ns = by.map_or(now_ns, |by| {
            processors[by].settled_ns.max(now_ns) + processors.hardware.line_transfer_ns(by, pcpu)
        });
        kernels[cpu].halt.is_woken = true;
        processors[pcpu].burst_end_ns = processors[pcpu].burst_end_ns.min(written_ns);
        processors.refresh(kernels, pcpu);
    }

    /// The polling at the pCPU ends, if it polls: its vCPU goes on if it has something to do, and sleeps
    /// otherwise.
    pub fn poll_ends(&mut self, pcpu: CpuId, now_ns: u64) {
        if !self.processors[pcpu].polls {
            return;
        }
        let host = CpuRef::host(pcpu);
        let Some(cpu) = polled_for(&self.kernels, pcpu) else { return };
        self.processors.settle(&mut self.kernels, pcpu, now_ns);
        self.processors[pcpu].burst_end_ns = NEVER;
        self.events += 1;
        self.halt_polls.polling.retain(|&polling| polling != pcpu);
        let halt = &mut self.kernels[cpu].halt;
        halt.polls = false;
        let is_woken = std::mem::take(&mut halt.is_woken);
        let next_ns = self.kernels[cpu].next_interrupt_ns();
        if is_woken || next_ns <= now_ns {
            self.halt_polls.metrics.successful += 1;
            if !is_woken {
                self.processors.charge_interrupt(&mut self.kernels, host, now_ns);
            }
            self.processors[pcpu].polls = false;
            self.processors.enter_guest(&mut self.kernels, pcpu, cpu, now_ns);
            self.processors.refresh(&self.kernels, pcpu);
            return;
        }
        // A polling vCPU is out of its guest already.
        self.sleep_until(cpu, pcpu, next_ns, now_ns);
        self.processors[pcpu].polls = false;
    }

    /// Panics unless polling is as it should be before what happens at that time.
    #[cfg(test)]
    pub fn check_polls(&self, now_ns: u64) {
        let mut polled_for_count = 0;
        for pcpu in (0..self.processors.len()).map(CpuId::from) {
            let processor = &self.processors[pcpu];
            assert_eq!(processor.polls, self.halt_polls.polling.contains(&pcpu));
            if !processor.polls {
                continue;
            }
            polled_for_count += 1;
            let cpu = polled_for(&self.kernels, pcpu).expect("it polls for a vCPU that has it");
            assert!(self.kernels[cpu].is_polled_for() && self.kernels[cpu].pcpu.is_none());
            assert!(processor.guest.is_none() && processor.executes.is_none());
            assert!(processor.burst_end_ns != NEVER, "it comes to an end");
            if self.is_crowded(pcpu) {
                let at_ns = processor.burst_end_ns;
                assert!(at_ns <= now_ns.max(processor.settled_ns), "at the next look: {at_ns}, {now_ns}");
            }
        }
        let all = self.kernels.iter().flat_map(super::Kernel::cpus);
        assert_eq!(all.filter(|cpu| cpu.is_polled_for()).count(), polled_for_count, "none is lost");
    }

    /// Lets the vCPU, which has that pCPU, sleep until an interrupt at that time or an earlier one.
    pub(super) fn sleep_until(&mut self, cpu: CpuRef, pcpu: CpuId, next_ns: u64, now_ns: u64) {
        let host = CpuRef::host(pcpu);
        if next_ns != NEVER {
            let vcpu = self.kernels.vcpu_task(cpu);
            self.arm(host, next_ns, TimerTarget::Task(vcpu));
        }
        self.decide(host, now_ns, Leaving::Block);
    }
}

/// Accounts for time in which the pCPU has polled.
#[cold]
pub(super) fn account_poll(kernels: &mut Kernels, pcpu: CpuId, spent_ns: u64) {
    if let Some(cpu) = polled_for(kernels, pcpu) {
        kernels[cpu].used.polled_ns += spent_ns;
    }
}

/// The vCPU that the pCPU, which polls, does so for.
fn polled_for(kernels: &Kernels, pcpu: CpuId) -> Option<CpuRef> {
    let host = kernels.host();
    host[host[pcpu].current?].guest()
}

impl Cpu {
    /// Whether the host polls for it, as it has halted.
    #[inline]
    pub fn is_polled_for(&self) -> bool {
        self.halt.polls()
    }
}
