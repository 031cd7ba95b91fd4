//! How work progresses: accounting for time, and the speed that caches, memory and siblings allow.

use super::cpu::Processor;
use super::halt_poll::account_poll;
use super::processors::Processors;
use super::task::Spin;
use super::{CpuRef, Kernels, TaskRef};
use crate::cost::SpinLock;
use crate::engine::event_queue::NEVER;
use crate::program::code::ProfileId;
use tandem_machine::ids::{CpuId, TaskId};

impl Processors {
    /// Accounts for the processor's time up to now, at both levels.
    #[inline]
    pub fn settle(&mut self, kernels: &mut Kernels, pcpu: CpuId, now_ns: u64) {
        let processor = &mut self[pcpu];
        if now_ns < processor.settled_ns {
            return;
        }
        processor.ahead_by_guest = None;
        if now_ns == processor.settled_ns {
            return;
        }
        if processor.waits_for_lock {
            return self.settle_spinning(kernels, pcpu, now_ns);
        }
        let spent_ns = now_ns - processor.settled_ns;
        if processor.searches {
            return self.charge(kernels, CpuRef::host(pcpu), spent_ns);
        }
        processor.settled_ns = now_ns;
        let (executes, guest, polls) = (processor.executes, processor.guest, processor.polls);
        if kernels.host()[pcpu].current.is_none() {
            let cpu = &mut kernels.host_mut()[pcpu];
            match cpu.is_away {
                true => cpu.used.away_ns += spent_ns,
                false => cpu.used.idle_ns += spent_ns,
            }
            return;
        }
        self.charge_vcpu(kernels, pcpu, spent_ns);
        if let Some(task) = executes {
            self.progress(kernels, pcpu, task, spent_ns);
        }
        if let Some(guest) = guest {
            let used = &mut kernels[guest].used;
            match executes {
                Some(_) => used.busy_ns += spent_ns,
                None => used.overhead_ns += spent_ns,
            }
        } else if polls {
            account_poll(kernels, pcpu, spent_ns);
        }
    }

    /// Accounts for time that the vCPU on the processor has used, in its tasks or its kernel.
    #[inline]
    pub(super) fn charge_vcpu(&mut self, kernels: &mut Kernels, pcpu: CpuId, spent_ns: u64) {
        let host = kernels.host_mut();
        let cpu = &mut host[pcpu];
        cpu.used.busy_ns += spent_ns;
        if let Some(vcpu) = cpu.current {
            let state = &mut host[vcpu];
            state.metrics.run_ns += spent_ns;
            state.metrics.local_run_ns +=
                (spent_ns as f64 * self.hardware.local_share(state.vm, pcpu)) as u64;
        }
    }

    #[inline]
    fn progress(&mut self, kernels: &mut Kernels, pcpu: CpuId, task: TaskRef, spent_ns: u64) {
        let speed = self[pcpu].speed;
        let state = &mut kernels[task];
        if !task.is_host() {
            state.metrics.run_ns += spent_ns;
            state.metrics.local_run_ns +=
                (spent_ns as f64 * self.hardware.local_share(state.vm, pcpu)) as u64;
        }
        if state.run.work_left_ns == 0 {
            state.spin.spun(spent_ns);
            return;
        }
        let footprint = &mut state.footprint;
        let (refill_ns, steady_ns) = speed.work_ns(spent_ns, footprint.refill_work_left_ns);
        state.run.work_left_ns = state.run.work_left_ns.saturating_sub(refill_ns + steady_ns);
        if footprint.profile != ProfileId::NONE {
            footprint.refill_work_left_ns -= refill_ns;
            self.hardware.fill_caches(pcpu, footprint, (refill_ns, steady_ns));
        }
    }

    /// Lets the processor execute the task's program from where it is.
    #[inline]
    pub(super) fn execute(&mut self, kernels: &mut Kernels, pcpu: CpuId, kernel: usize, task: TaskId) {
        let task = TaskRef { kernel, task };
        self[pcpu].executes = Some(task);
        self.hardware.enter_caches(pcpu, &mut kernels[task].footprint);
        self.rerate(kernels, pcpu);
    }

    /// The task that the processor executes starts a burst of work; its time is settled.
    #[inline]
    pub fn begin_burst(
        &mut self,
        kernels: &mut Kernels,
        pcpu: CpuId,
        task: TaskRef,
        work_ns: u64,
        profile: ProfileId,
    ) {
        if kernels[task].footprint.profile != profile {
            self.leave_caches(kernels, pcpu);
            let footprint = &mut kernels[task].footprint;
            footprint.profile = profile;
            self.hardware.enter_caches(pcpu, footprint);
        }
        kernels[task].run.begin_burst(work_ns);
        self.rerate(kernels, pcpu);
    }

    /// The burst of what the processor executes has come to its end; whether there was one.
    #[inline]
    pub fn finish_burst(&mut self, kernels: &mut Kernels, pcpu: CpuId, now_ns: u64) -> bool {
        self.settle(kernels, pcpu, now_ns);
        self[pcpu].burst_end_ns = NEVER;
        let Some(task) = self[pcpu].executes else { return false };
        kernels[task].run.end_burst()
    }

    /// Remembers what the task that the processor executes leaves in its caches.
    #[inline]
    pub fn leave_caches(&mut self, kernels: &mut Kernels, pcpu: CpuId) {
        if let Some(task) = self[pcpu].executes {
            self.hardware.leave_caches(pcpu, &mut kernels[task].footprint);
        }
    }

    /// Finds the speed of the processor anew, and with it the end of the burst. A task without work left is
    /// due at once: its program says what comes next. One that spins is due when it has done so for too long.
    #[inline]
    pub fn rerate(&mut self, kernels: &Kernels, pcpu: CpuId) {
        let Processor { executes: Some(task), searches: false, guest, burst_end_ns, .. } = self[pcpu] else {
            return;
        };
        let speed = self.hardware.speed(kernels, pcpu, &kernels[task]);
        let spun_ns = match (kernels[task].spin.is_spinning(), guest) {
            (true, Some(spinner)) if burst_end_ns == NEVER => {
                let window_ns = self
                    .pause_loop
                    .and_then(|settings| self.hardware.pause_window_ns(settings, &kernels[spinner].spinning));
                window_ns.into_iter().chain(kernels[task].spin.left_ns()).min()
            }
            _ => None,
        };
        let task = &kernels[task];
        let processor = &mut self[pcpu];
        processor.speed = speed;
        processor.burst_end_ns = match task.spin.is_spinning() {
            true => spun_ns.map_or(burst_end_ns, |window_ns| processor.settled_ns + window_ns),
            false => {
                let refill_ns = task.footprint.refill_work_left_ns;
                processor.settled_ns + speed.time_ns(task.run.work_left_ns, refill_ns)
            }
        };
    }

    /// Whether a task of a guest, which waits for a spin lock, is doing so at the moment: on a pCPU, and in
    /// its guest.
    pub fn spins_now(&self, kernels: &Kernels, kernel: usize, task: TaskId) -> bool {
        let kernel = &kernels[kernel];
        let cpu = &kernel[kernel[task].last_cpu];
        cpu.current == Some(task) && cpu.pcpu.is_some_and(|pcpu| !self[pcpu].searches)
    }

    /// A task of a guest, whose CPU is `there`, need not spin any longer: the processor `from` has written
    /// so, at that time, to a cache line that so many processors watch. It goes on once it sees that, if it
    /// has a pCPU.
    pub fn go_on(
        &mut self,
        kernels: &Kernels,
        there: CpuRef,
        task: TaskId,
        from: CpuId,
        at_ns: u64,
        watching: u32,
    ) {
        let kernel = &kernels[there.kernel];
        let cpu = &kernel[there.cpu];
        if let Some(pcpu) = cpu.pcpu.filter(|_| cpu.current == Some(task)) {
            let transfer_ns = self.hardware.line_transfer_ns(from, pcpu);
            let hand_over_ns =
                SpinLock::hand_over_ns(kernel.policy().spin_lock_kind(), transfer_ns, watching);
            self.end_spin(kernels, pcpu, at_ns + hand_over_ns);
        }
    }

    /// Changes how long a task of a guest spins for a lock.
    pub fn change_spin(
        &mut self,
        kernels: &mut Kernels,
        kernel: usize,
        task: TaskId,
        now_ns: u64,
        change: impl FnOnce(&mut Spin),
    ) {
        let there = CpuRef { kernel, cpu: kernels[kernel][task].last_cpu };
        let pcpu = kernels[there].pcpu.filter(|_| self.spins_now(kernels, kernel, task));
        if let Some(pcpu) = pcpu {
            self.settle(kernels, pcpu, now_ns);
        }
        change(&mut kernels[kernel][task].spin);
        if let Some(pcpu) = pcpu {
            self.spin_anew(kernels, pcpu);
        }
    }

    /// Finds out anew when what the processor executes has spun for long enough.
    pub fn spin_anew(&mut self, kernels: &Kernels, pcpu: CpuId) {
        self[pcpu].burst_end_ns = NEVER;
        self.rerate(kernels, pcpu);
        self.refresh(kernels, pcpu);
    }

    /// Lets the task on the processor, which has spun for a lock, go on at that time.
    #[inline]
    fn end_spin(&mut self, kernels: &Kernels, pcpu: CpuId, at_ns: u64) {
        let processor = &mut self[pcpu];
        if processor.searches {
            return; // it finds out when it is back
        }
        processor.burst_end_ns = match processor.waits_for_lock {
            true => processor.settled_ns,
            false => at_ns.max(processor.settled_ns),
        };
        self.refresh(kernels, pcpu);
    }

    /// The processor became busy or idle: that changes the speed of the threads beside it.
    #[inline]
    pub(super) fn rerate_siblings(&mut self, kernels: &mut Kernels, pcpu: CpuId, now_ns: u64) {
        for at in 0..self.hardware.siblings(pcpu).len() {
            let sibling = self.hardware.siblings(pcpu)[at];
            if self[sibling].executes.is_some() {
                self.settle(kernels, sibling, now_ns);
                self.rerate(kernels, sibling);
                self.refresh(kernels, sibling);
            }
        }
    }

    /// Takes a sample of the memory system and of shared data, and lets tasks feel it.
    pub fn sample_memory(&mut self, kernels: &mut Kernels, now_ns: u64) {
        let tasks = &*kernels;
        let running = self.list.iter().enumerate().filter_map(|(at, processor)| {
            let task = &tasks[processor.executes?];
            Some((CpuId::from(at), task.vm, task.footprint.profile, processor.speed.steady_slowdown))
        });
        if !self.hardware.sample(running) {
            return;
        }
        for pcpu in (0..self.list.len()).map(CpuId::from) {
            if self[pcpu].executes.is_some() {
                self.settle(kernels, pcpu, now_ns);
                self.rerate(kernels, pcpu);
                self.refresh(kernels, pcpu);
            }
        }
    }

    /// Changes the accounts of all kernel code that is running now by the time that it still takes after now.
    /// Where measuring begins, that puts the time in; where it ends, it takes the time out again.
    pub fn account_ahead(&mut self, kernels: &mut Kernels, now_ns: u64, change: fn(&mut u64, u64)) {
        for (pcpu, processor) in (0..).map(CpuId).zip(&self.list) {
            let ahead_ns = processor.settled_ns - now_ns;
            let (by_guest_ns, guest) = match processor.ahead_by_guest {
                Some((guest, ns)) => (ns.min(ahead_ns), Some(guest)),
                None => (0, None),
            };
            let used = &mut kernels.host_mut()[pcpu].used;
            change(&mut used.overhead_ns, ahead_ns - by_guest_ns);
            // A wait for a lock is booked when it begins, and may be what is ahead.
            used.spin_ns = used.spin_ns.min(used.overhead_ns);
            change(&mut used.busy_ns, by_guest_ns);
            if let Some(guest) = guest {
                change(&mut kernels[guest].used.overhead_ns, by_guest_ns);
                let vcpu = kernels[guest.kernel].vcpu_task(guest.cpu);
                let metrics = &mut kernels.host_mut()[vcpu].metrics;
                change(&mut metrics.run_ns, by_guest_ns);
                metrics.local_run_ns = metrics.local_run_ns.min(metrics.run_ns);
            }
        }
    }
}
