//! How work progresses: accounting for time, and the speed that caches, memory and siblings allow.

use super::cpu::Speed;
use super::{Kernel, TaskState};
use crate::engine::event_queue::NEVER;
use crate::ids::{CpuId, TaskId};
use crate::machine::cost::{CACHE_LINE_BYTES, Residue};
use crate::policy::Policy;
use crate::program::code::ProfileId;
use crate::trace::Observer;

impl<P: Policy, O: Observer> Kernel<P, O> {
    /// Accounts for the CPU's time up to now.
    #[inline]
    pub fn settle(&mut self, cpu: CpuId, now_ns: u64) {
        let state = &mut self.cpus[cpu.index()];
        if now_ns <= state.settled_ns {
            return;
        }
        let spent_ns = now_ns - state.settled_ns;
        state.settled_ns = now_ns;
        match state.current {
            None => state.used.idle_ns += spent_ns,
            Some(task) => {
                state.used.busy_ns += spent_ns;
                self.progress(cpu, task, spent_ns);
            }
        }
    }

    fn progress(&mut self, cpu: CpuId, task: TaskId, spent_ns: u64) {
        let node = self.machine.cpu(cpu).node;
        let state = &mut self.tasks[task.index()];
        state.metrics.run_ns += spent_ns;
        state.metrics.local_run_ns += (spent_ns as f64 * self.memory.share(state.vm, node)) as u64;
        if state.work_left_ns == 0 {
            return;
        }
        let (refill_ns, steady_ns) =
            self.cpus[cpu.index()].speed.work_ns(spent_ns, state.refill_work_left_ns);
        state.work_left_ns = state.work_left_ns.saturating_sub(refill_ns + steady_ns);
        if state.profile != ProfileId::NONE {
            state.refill_work_left_ns -= refill_ns;
            self.fill_caches(cpu, task, refill_ns, steady_ns);
        }
    }

    /// The task brings lines into the caches of the CPU: what it lacked of its footprint, and what it streams.
    fn fill_caches(&mut self, cpu: CpuId, task: TaskId, refill_ns: u64, steady_ns: u64) {
        if self.costs.cache.is_none() {
            return;
        }
        let state = &self.tasks[task.index()];
        let profile = &self.profiles[state.profile.0 as usize];
        let lines = self.memory.lines_per_ns(&self.machine, state.profile, cpu);
        let streamed = lines * CACHE_LINE_BYTES as f64 * (refill_ns + steady_ns) as f64;
        let swept = if profile.sweep_ns > 0 { refill_ns as f64 / profile.sweep_ns as f64 } else { 0.0 };
        let place = self.machine.cpu(cpu);
        self.private_fill[place.core.index()].filled_bytes += streamed + swept * state.missing_bytes[0];
        if let Some(llc) = place.llc {
            self.llc_fill[llc.index()].filled_bytes += streamed + swept * state.missing_bytes[1];
        }
    }

    /// The task starts a burst of work on the CPU, whose time is settled.
    pub fn begin_burst(&mut self, cpu: CpuId, task: TaskId, work_ns: u64, profile: ProfileId) {
        if self.tasks[task.index()].profile != profile {
            self.leave_caches(cpu, task);
            self.tasks[task.index()].profile = profile;
            self.enter_caches(cpu, task);
        }
        let state = &mut self.tasks[task.index()];
        state.in_burst = true;
        state.work_left_ns = work_ns;
        self.rerate(cpu);
    }

    /// The burst of the CPU's task has come to its end.
    pub fn finish_burst(&mut self, cpu: CpuId, now_ns: u64) {
        self.settle(cpu, now_ns);
        let state = &mut self.cpus[cpu.index()];
        state.burst_end_ns = NEVER;
        if let Some(task) = state.current {
            let task = &mut self.tasks[task.index()];
            self.events += u64::from(std::mem::take(&mut task.in_burst));
            task.work_left_ns = 0;
        }
    }

    /// Finds what the task has, and lacks, of its footprint in the caches of the CPU.
    pub fn enter_caches(&mut self, cpu: CpuId, task: TaskId) {
        let state = &mut self.tasks[task.index()];
        let profile = &self.profiles[state.profile.0 as usize];
        state.refill_work_left_ns = 0;
        if self.costs.cache.is_none() || profile.footprint_bytes == 0 {
            return;
        }
        let place = self.machine.cpu(cpu);
        let footprint = profile.footprint_bytes as f64;
        let levels = [
            Some((
                place.core.index(),
                self.machine.hardware().l2_bytes,
                self.private_fill[place.core.index()],
            )),
            place.llc.map(|llc| {
                (llc.index(), self.machine.llcs()[llc.index()].size_bytes, self.llc_fill[llc.index()])
            }),
        ];
        for (level, cache) in levels.into_iter().enumerate() {
            let (mut have, mut want) = (0.0, 0.0);
            if let Some((number, size_bytes, fill)) = cache {
                want = footprint.min(size_bytes as f64);
                have = state.residues[level].survived_bytes(number, &fill, size_bytes as f64).min(want);
            }
            state.resident_bytes[level] = have;
            state.missing_bytes[level] = want - have;
        }
        if state.missing_bytes != [0.0; 2] {
            state.refill_work_left_ns = profile.sweep_ns;
        }
    }

    /// Remembers what the task leaves in the caches of the CPU.
    pub fn leave_caches(&mut self, cpu: CpuId, task: TaskId) {
        let state = &mut self.tasks[task.index()];
        let profile = &self.profiles[state.profile.0 as usize];
        if self.costs.cache.is_none() || profile.footprint_bytes == 0 {
            return;
        }
        let to_go = if profile.sweep_ns > 0 {
            state.refill_work_left_ns as f64 / profile.sweep_ns as f64
        } else {
            0.0
        };
        let place = self.machine.cpu(cpu);
        let resident =
            |level: usize| state.resident_bytes[level] + state.missing_bytes[level] * (1.0 - to_go);
        let (private, shared) = (resident(0), resident(1));
        let core = place.core.index();
        state.residues[0] = Residue::leave(core, &self.private_fill[core], private);
        if let Some(llc) = place.llc {
            state.residues[1] = Residue::leave(llc.index(), &self.llc_fill[llc.index()], shared);
        }
    }

    /// Speed of the CPU for the task on it, as things are.
    fn speed(&self, cpu: CpuId, task: TaskId) -> Speed {
        let place = self.machine.cpu(cpu);
        let mut core = 1000.0 / f64::from(place.capacity_permille);
        if let Some(smt) = &self.costs.smt
            && self.siblings[cpu.index()].iter().any(|other| self.cpus[other.index()].current.is_some())
        {
            core *= smt.slowdown;
        }
        let state = &self.tasks[task.index()];
        if state.profile == ProfileId::NONE {
            return Speed { refill_slowdown: core, steady_slowdown: core };
        }
        let profile = &self.profiles[state.profile.0 as usize];
        let hardware = self.machine.hardware();
        let latency_ns = match self.costs.memory {
            Some(_) => self.memory.latency_ns(state.vm, place.node),
            None => f64::from(hardware.local_memory_latency_ns),
        };
        let lines = self.memory.lines_per_ns(&self.machine, state.profile, cpu);
        let steady_slowdown = core + lines * latency_ns / profile.parallelism;
        let mut refill_slowdown = steady_slowdown;
        if state.refill_work_left_ns > 0 {
            let [private, shared] = state.missing_bytes.map(|bytes| bytes / CACHE_LINE_BYTES as f64);
            let refill_ns = private * f64::from(hardware.llc_latency_ns) + shared * latency_ns;
            refill_slowdown += refill_ns / profile.parallelism / profile.sweep_ns as f64;
        }
        Speed { refill_slowdown, steady_slowdown }
    }

    /// Finds the speed of the CPU's task anew, and with it the end of its burst. A task without work left is
    /// due at once: its program says what comes next.
    pub fn rerate(&mut self, cpu: CpuId) {
        let Some(task) = self.cpus[cpu.index()].current else {
            return;
        };
        let speed = self.speed(cpu, task);
        let task = &self.tasks[task.index()];
        let state = &mut self.cpus[cpu.index()];
        state.speed = speed;
        state.burst_end_ns = state.settled_ns + speed.time_ns(task.work_left_ns, task.refill_work_left_ns);
    }

    /// The CPU became busy or idle: that changes the speed of the threads beside it.
    pub fn rerate_siblings(&mut self, cpu: CpuId, now_ns: u64) {
        if self.costs.smt.is_none() {
            return;
        }
        for at in 0..self.siblings[cpu.index()].len() {
            let sibling = self.siblings[cpu.index()][at];
            if self.cpus[sibling.index()].current.is_some() {
                self.settle(sibling, now_ns);
                self.rerate(sibling);
                self.refresh(sibling);
            }
        }
    }

    /// Takes a sample of the memory system, and lets tasks feel it.
    pub fn sample_memory(&mut self, now_ns: u64) {
        let (tasks, cpus) = (&self.tasks, &self.cpus);
        let running = cpus.iter().enumerate().filter_map(|(at, cpu)| {
            let task = &tasks[cpu.current?.index()];
            Some((CpuId::from(at), task.vm, task.profile, cpu.speed.steady_slowdown))
        });
        if !self.memory.sample(&self.machine, running) {
            return;
        }
        for cpu in (0..self.cpus.len()).map(CpuId::from) {
            if self.cpus[cpu.index()].current.is_some() {
                self.settle(cpu, now_ns);
                self.rerate(cpu);
                self.refresh(cpu);
            }
        }
    }

    /// Accounts for all time up to now; what kernel code will take of a CPU's time after now is taken out of
    /// its use, and returned by CPU, ns.
    pub fn settle_all(&mut self, now_ns: u64) -> Vec<u64> {
        for cpu in (0..self.cpus.len()).map(CpuId::from) {
            self.settle(cpu, now_ns);
        }
        for task in self.tasks.iter_mut() {
            if matches!(task.state, TaskState::Blocked | TaskState::Exited) {
                task.metrics.sleep_ns += now_ns - task.blocked_since_ns;
                task.blocked_since_ns = now_ns;
            }
        }
        let ahead = self.cpus.iter_mut().map(|cpu| {
            let ahead_ns = cpu.settled_ns - now_ns;
            cpu.used.overhead_ns -= ahead_ns;
            ahead_ns
        });
        ahead.collect()
    }
}
