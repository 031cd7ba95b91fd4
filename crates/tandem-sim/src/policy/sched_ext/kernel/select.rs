//! The kernel's own choice of a CPU for a task that wakes (`scx_select_cpu_dfl()`).

use super::super::settings::KernelVersion;
use super::super::types::{SCX_PICK_IDLE_CORE, SCX_WAKE_SYNC};
use super::{RunQueues, ScxKernel, sets};
use tandem_ebpf::{Fault, State};
use tandem_machine::ids::{CpuId, TaskId};

/// The input of a placement.
#[derive(Clone, Copy, Debug)]
pub struct Wakeup {
    pub task: TaskId,
    pub prev_cpu: usize,
    pub wake_flags: u64,
    /// A set that it may not leave, besides its affinity.
    pub allowed: Option<u64>,
    /// `SCX_PICK_IDLE_*`.
    pub flags: u64,
}

impl ScxKernel {
    /// An idle CPU or, at a synchronous wake-up, the waker's; `None` if there is none.
    pub fn select_default(&mut self, state: &mut State, wakeup: Wakeup) -> Result<Option<usize>, Fault> {
        let Wakeup { task, prev_cpu, wake_flags, allowed, flags } = wakeup;
        let Self { run_queues: RunQueues { tasks, cpus, queues, .. }, sets, idle, .. } = self;
        let own_mask = tasks[task].cpus_mask;
        let mut mask = own_mask;
        if let Some(allowed) = allowed {
            let scratch = sets.scratch(0);
            if sets.combine(state, scratch, (own_mask, allowed), |a, b| a & b)? == 0 {
                return Ok(None);
            }
            mask = scratch;
        }
        let is_old = self.version < KernelVersion::V7_3;
        let prev_allowed = sets::contains(&state.memory, mask, prev_cpu)?;
        let this_cpu = self.cpu;
        if wake_flags & SCX_WAKE_SYNC != 0 {
            let share_cache = || {
                let llc = |cpu| self.machine.cpu(CpuId::from(cpu)).llc;
                this_cpu == prev_cpu || (llc(this_cpu).is_some() && llc(this_cpu) == llc(prev_cpu))
            };
            if !is_old && prev_allowed && share_cache() && idle.take(state, prev_cpu)? {
                return Ok(Some(prev_cpu));
            }
            let exits = cpus[this_cpu].curr.is_some_and(|curr| tasks.exits(state, curr));
            if !exits
                && idle.any(state, sets)?
                && queues[this_cpu].is_empty()
                && sets::contains(&state.memory, mask, this_cpu)?
            {
                return Ok(Some(this_cpu));
            }
        }
        let last = &mut cpus[this_cpu].distributed;
        if idle.has_smt() {
            if prev_allowed && idle.take_core(state, prev_cpu)? {
                return Ok(Some(prev_cpu));
            }
            let core = idle.pick_near(state, sets, last, (prev_cpu, mask), SCX_PICK_IDLE_CORE)?;
            if core.is_some() || flags & SCX_PICK_IDLE_CORE != 0 {
                return Ok(core);
            }
        }
        if prev_allowed && idle.take(state, prev_cpu)? {
            return Ok(Some(prev_cpu));
        }
        idle.pick_near(state, sets, last, (prev_cpu, mask), 0)
    }

    /// Claims an idle CPU of a set.
    pub(super) fn pick_idle(
        &mut self,
        state: &mut State,
        allowed: u64,
        flags: u64,
    ) -> Result<Option<usize>, Fault> {
        let last = &mut self.run_queues.cpus[self.cpu].distributed;
        self.idle.pick(state, &self.sets, last, allowed, flags)
    }

    /// The same; without an idle CPU, the next one of the set, in a cycle.
    pub(super) fn pick_any(
        &mut self,
        state: &mut State,
        allowed: u64,
        flags: u64,
    ) -> Result<Option<usize>, Fault> {
        if self.callbacks.builtin_idle()
            && let Some(cpu) = self.pick_idle(state, allowed, flags)?
        {
            return Ok(Some(cpu));
        }
        let cpu = self.distribute(state, allowed, allowed)?;
        Ok(Some(cpu).filter(|&cpu| cpu < self.machine.cpu_count()))
    }

    /// The next CPU in both sets, in a cycle; a number beyond all CPUs if there is none.
    pub(super) fn distribute(&mut self, state: &State, a: u64, b: u64) -> Result<usize, Fault> {
        self.sets.distribute(state, &mut self.run_queues.cpus[self.cpu].distributed, a, b)
    }
}
