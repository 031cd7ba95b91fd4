//! The hardware that processors share, with what its use costs: caches, memory, sibling threads, lines that
//! travel.

use super::caches::{Caches, Footprint};
use super::cpu::{Cpu, Speed, Spinning};
use super::presence::Presence;
use super::task::Task;
use super::{Kernels, MemoryState, SharedState};
use crate::cost::{CostModels, IdleEnd};
use crate::engine::event_queue::NEVER;
use crate::policy::pause_loop::PauseLoop;
use crate::program::MemoryProfile;
use crate::program::code::ProfileId;
use std::sync::Arc;
use tandem_machine::ids::{CpuId, VmId};
use tandem_machine::{CACHE_LINE_BYTES, Machine};

/// A machine with the state of its caches and memory. See the [module](self).
pub(crate) struct Hardware {
    machine: Arc<Machine>,
    costs: CostModels,
    /// The other threads of each pCPU's core.
    siblings: Vec<Box<[CpuId]>>,
    caches: Caches,
    memory: MemoryState,
    shared: SharedState,
}

impl Hardware {
    /// With empty caches.
    pub fn new(
        machine: &Arc<Machine>,
        costs: &CostModels,
        profiles: Vec<Arc<MemoryProfile>>,
        memory: MemoryState,
        shared: SharedState,
    ) -> Self {
        let siblings = (0..machine.cpu_count())
            .map(CpuId::from)
            .map(|cpu| machine.siblings(cpu).iter().filter(|&other| other != cpu).collect());
        Self {
            siblings: siblings.collect(),
            caches: Caches::new(machine, profiles, costs.cache.is_some()),
            memory,
            shared,
            costs: costs.clone(),
            machine: Arc::clone(machine),
        }
    }

    #[inline]
    pub fn machine(&self) -> &Arc<Machine> {
        &self.machine
    }

    #[inline]
    pub fn costs(&self) -> &CostModels {
        &self.costs
    }

    #[inline]
    pub fn memory(&self) -> &MemoryState {
        &self.memory
    }

    #[inline]
    pub fn memory_mut(&mut self) -> &mut MemoryState {
        &mut self.memory
    }

    #[inline]
    pub(super) fn profile(&self, profile: ProfileId) -> &MemoryProfile {
        self.caches.profile(profile)
    }

    /// The other threads of the pCPU's core, if they slow each other down.
    #[inline]
    pub(super) fn siblings(&self, pcpu: CpuId) -> &[CpuId] {
        if self.costs.smt.is_some() { &self.siblings[pcpu.index()] } else { &[] }
    }

    /// Share of the VM's memory that is local to the pCPU.
    #[inline]
    pub(super) fn local_share(&self, vm: VmId, pcpu: CpuId) -> f64 {
        self.memory.share(vm, self.machine.cpu(pcpu).node)
    }

    /// How long an interrupt travels between pCPUs, ns.
    #[inline]
    pub(super) fn ipi_ns(&self) -> u64 {
        self.costs.ipi.map_or(0, |cost| cost.delivery_ns)
    }

    /// How long a pCPU takes to wake up from idling, ns; 0 if it does not idle.
    #[inline]
    pub(super) fn idle_exit_ns(&self, pcpu: CpuId, cpu: &Cpu, end: IdleEnd) -> u64 {
        let is_idle = cpu.current.is_none() && !cpu.is_away;
        let idle = self.costs.idle.as_ref().filter(|_| is_idle);
        // An idle period is known by its CPU, and by how often that has decided.
        idle.map_or(0, |cost| cost.exit_ns(end, (u64::from(pcpu.0) << 40) ^ cpu.used.schedules))
    }

    /// How long a vCPU may spin before it leaves its guest, ns; `None` if the pCPU does not notice that.
    #[inline]
    pub(super) fn pause_window_ns(&self, settings: PauseLoop, spinning: &Spinning) -> Option<u64> {
        let interval_cycles = self.costs.spin_lock.map_or(0, |cost| cost.pause_interval_cycles);
        if interval_cycles > settings.gap_cycles {
            return None;
        }
        let cycles = u64::from(spinning.window_cycles.unwrap_or(settings.window_cycles));
        Some((cycles * 1_000).div_ceil(u64::from(self.machine.hardware().clock_mhz.max(1))))
    }

    /// How long a waiter of a paravirtual lock spins until it halts, ns.
    pub fn spin_threshold_ns(&self) -> u64 {
        self.costs.spin_lock.map_or(NEVER, |cost| cost.threshold_ns(self.machine.hardware().clock_mhz))
    }

    /// How long it spins until it looks at the waiter before it, ns.
    pub fn prev_check_ns(&self) -> u64 {
        self.costs.spin_lock.map_or(NEVER, |cost| cost.prev_check_ns(self.machine.hardware().clock_mhz))
    }

    /// How long the line of a lock travels from one pCPU to another, ns; nothing with the model of locks off.
    #[inline]
    pub fn line_transfer_ns(&self, from: CpuId, to: CpuId) -> u64 {
        self.costs.spin_lock.map_or(0, |_| self.machine.line_transfer_ns(from, to))
    }

    /// Two operations on a counter that all CPUs share, when its cache line is here, ns: as much as to lock
    /// and unlock.
    #[inline]
    pub(super) fn uncontended_lock_ns(&self) -> u64 {
        self.costs.spin_lock.map_or(0, |cost| cost.uncontended_ns)
    }

    /// A task with that footprint gets to the pCPU: finds what it has, and lacks, in the caches.
    #[inline]
    pub(super) fn enter_caches(&self, pcpu: CpuId, footprint: &mut Footprint) {
        self.caches.enter(pcpu, footprint);
    }

    /// A task with that footprint leaves the pCPU: remembers what it leaves in the caches.
    #[inline]
    pub(super) fn leave_caches(&self, pcpu: CpuId, footprint: &mut Footprint) {
        self.caches.leave(pcpu, footprint);
    }

    /// A task on the pCPU brings lines into its caches, while it does so much work: with cold caches, and the
    /// rest.
    #[inline]
    pub(super) fn fill_caches(&mut self, pcpu: CpuId, footprint: &Footprint, work_ns: (u64, u64)) {
        let lines_per_ns = self.memory.lines_per_ns(&self.machine, footprint.profile, pcpu);
        self.caches.fill(pcpu, footprint, lines_per_ns, work_ns);
    }

    /// Speed of the pCPU for the task, as things are.
    #[inline]
    pub(super) fn speed(&self, kernels: &Kernels, pcpu: CpuId, task: &Task) -> Speed {
        let place = self.machine.cpu(pcpu);
        let footprint = &task.footprint;
        let profile = self.caches.profile(footprint.profile);
        let mut core = 1000.0 / f64::from(place.capacity_permille);
        let is_busy = |&other: &CpuId| {
            let other = &kernels.host()[other];
            other.current.is_some() || matches!(other.presence, Presence::Taken { .. } if other.is_away)
        };
        if let Some(smt) = &self.costs.smt
            && self.siblings[pcpu.index()].iter().any(is_busy)
        {
            core *= profile.smt_slowdown.unwrap_or(smt.slowdown);
        }
        if footprint.profile == ProfileId::NONE {
            return Speed { refill_slowdown: core, steady_slowdown: core };
        }
        let hardware = self.machine.hardware();
        let latency_ns = match self.costs.memory {
            Some(_) => self.memory.latency_ns(task.vm, place.node),
            None => f64::from(hardware.local_memory_latency_ns),
        };
        let lines = self.memory.lines_per_ns(&self.machine, footprint.profile, pcpu);
        let shared_ns = self.shared.wait_ns(task.vm, footprint.profile, pcpu);
        let steady_slowdown = core + (lines * latency_ns + shared_ns) / profile.parallelism;
        let mut refill_slowdown = steady_slowdown;
        if footprint.refill_work_left_ns > 0 {
            let [private, shared] = footprint.missing_bytes.map(|bytes| bytes / CACHE_LINE_BYTES as f64);
            let refill_ns = private * f64::from(hardware.llc_latency_ns) + shared * latency_ns;
            refill_slowdown += refill_ns / profile.parallelism / profile.sweep_ns as f64;
        }
        Speed { refill_slowdown, steady_slowdown }
    }

    /// Time between two samples of the memory system and of shared data; `None` if none are needed.
    pub fn sample_period_ns(&self) -> Option<u64> {
        self.memory.sample_period_ns().or_else(|| self.shared.sample_period_ns())
    }

    /// Takes a sample of both: for each busy pCPU its task's VM and profile, and the time that a unit of its
    /// work takes. Whether anything has changed enough for tasks to feel it.
    pub(super) fn sample(
        &mut self,
        running: impl Iterator<Item = (CpuId, VmId, ProfileId, f64)> + Clone,
    ) -> bool {
        let memory_changed = self.memory.sample(&self.machine, running.clone());
        self.shared.sample(running) || memory_changed
    }
}
