//! Which CPUs idle, and the kernel's own search for one (`kernel/sched/ext_idle.c`).

use super::kernel::ScxKernel;
use super::masks;
use super::settings::KernelVersion;
use super::types::{SCX_PICK_IDLE_CORE, SCX_WAKE_SYNC};
use tandem_ebpf::{Fault, State};
use tandem_machine::ids::{CpuId, TaskId};

/// The task exits (`PF_EXITING`).
pub const PF_EXITING: u64 = 4;
const EBUSY: i64 = -16;

impl ScxKernel {
    /// A CPU begins or ends to idle.
    pub fn set_idle(&mut self, state: &mut State, cpu: usize, idles: bool) -> Result<(), Fault> {
        masks::assign(&mut state.memory, self.idle_mask, cpu, idles)?;
        if self.has_smt {
            self.note_core(state, cpu, idles)?;
        }
        Ok(())
    }

    /// Whole cores idle if all of their threads do.
    fn note_core(&self, state: &mut State, cpu: usize, idles: bool) -> Result<(), Fault> {
        let siblings = self.machine.siblings(CpuId::from(cpu));
        if idles {
            for sibling in siblings.iter() {
                if !masks::contains(&state.memory, self.idle_mask, sibling.index())? {
                    return Ok(());
                }
            }
        }
        for sibling in siblings.iter() {
            masks::assign(&mut state.memory, self.idle_core_mask, sibling.index(), idles)?;
        }
        Ok(())
    }

    /// Takes a CPU, if it idles: others do not find it any longer.
    pub fn take_idle(&mut self, state: &mut State, cpu: usize) -> Result<bool, Fault> {
        if self.has_smt {
            self.note_core(state, cpu, false)?;
        }
        masks::assign(&mut state.memory, self.idle_mask, cpu, false)
    }

    /// Takes an idle CPU of a set (`scx_pick_idle_cpu()`).
    pub fn pick_idle(&mut self, state: &mut State, allowed: u64, flags: u64) -> Result<Option<usize>, Fault> {
        state.memory.slice(allowed, self.mask_words * 8)?;
        if !self.any_idle(state)? {
            return Ok(None);
        }
        if self.has_smt {
            let cpu = self.distribute(state, self.idle_core_mask, allowed)?;
            if cpu < self.cpu_count {
                self.take_idle(state, cpu)?;
                return Ok(Some(cpu));
            }
            if flags & SCX_PICK_IDLE_CORE != 0 {
                return Ok(None);
            }
        }
        let cpu = self.distribute(state, self.idle_mask, allowed)?;
        if cpu < self.cpu_count {
            self.take_idle(state, cpu)?;
            return Ok(Some(cpu));
        }
        Ok(None)
    }

    /// The kernel's own choice for a task that wakes: an idle CPU, or, woken synchronously, the waker's; none: there is none.
    pub fn select_default(
        &mut self,
        state: &mut State,
        task: TaskId,
        prev_cpu: usize,
        wake_flags: u64,
        allowed: Option<u64>,
        flags: u64,
    ) -> Result<Option<usize>, Fault> {
        let own_mask = self.tasks[task.index()].cpus_mask;
        let mut mask = own_mask;
        if let Some(allowed) = allowed {
            let scratch = self.scratch_masks[0];
            if self.combine(state, scratch, (own_mask, allowed), |a, b| a & b)? == 0 {
                return Ok(None);
            }
            mask = scratch;
        }
        let is_old = self.version < KernelVersion::V7_3;
        let prev_allowed = masks::contains(&state.memory, mask, prev_cpu)?;
        let this_cpu = self.cpu;
        if wake_flags & SCX_WAKE_SYNC != 0 {
            if !is_old
                && prev_allowed
                && self.share_cache(this_cpu, prev_cpu)
                && self.take_idle(state, prev_cpu)?
            {
                return Ok(Some(prev_cpu));
            }
            if !self.exits(state, this_cpu)
                && self.any_idle(state)?
                && self.queues[this_cpu].is_empty()
                && masks::contains(&state.memory, mask, this_cpu)?
            {
                return Ok(Some(this_cpu));
            }
        }
        let near = self.near_masks(prev_cpu);
        if self.has_smt {
            if prev_allowed
                && masks::contains(&state.memory, self.idle_core_mask, prev_cpu)?
                && self.take_idle(state, prev_cpu)?
            {
                return Ok(Some(prev_cpu));
            }
            if let Some(cpu) = self.pick_near(state, near, mask, SCX_PICK_IDLE_CORE)? {
                return Ok(Some(cpu));
            }
            if flags & SCX_PICK_IDLE_CORE != 0 {
                return Ok(None);
            }
        }
        if prev_allowed && self.take_idle(state, prev_cpu)? {
            return Ok(Some(prev_cpu));
        }
        self.pick_near(state, near, mask, 0)
    }

    /// The masks of a CPU's last-level cache and node, where the search looks at them.
    fn near_masks(&self, cpu: usize) -> [Option<u64>; 2] {
        [self.llc_masks.get(cpu).copied(), self.node_masks.get(cpu).copied()]
    }

    /// Takes an idle CPU, near ones first.
    fn pick_near(
        &mut self,
        state: &mut State,
        near: [Option<u64>; 2],
        allowed: u64,
        flags: u64,
    ) -> Result<Option<usize>, Fault> {
        if !self.any_idle(state)? {
            return Ok(None);
        }
        for mask in near.into_iter().flatten() {
            let room = self.scratch_masks[1];
            if self.combine(state, room, (mask, allowed), |a, b| a & b)? == 0 {
                continue;
            }
            if let Some(cpu) = self.pick_idle(state, room, flags)? {
                return Ok(Some(cpu));
            }
        }
        self.pick_idle(state, allowed, flags)
    }

    fn any_idle(&self, state: &State) -> Result<bool, Fault> {
        Ok(masks::words(&state.memory, self.idle_mask, self.mask_words)?.any(|word| word != 0))
    }

    fn share_cache(&self, a: usize, b: usize) -> bool {
        let llc = |cpu| self.machine.cpu(CpuId::from(cpu)).llc;
        a == b || (llc(a).is_some() && llc(a) == llc(b))
    }

    /// The masks of last-level caches and nodes for the search for an idle CPU, where the newest kernel looks at them: caches if
    /// there are several, nodes if they are not the same as caches.
    pub fn prepare_near_masks(&mut self, state: &mut State) -> Result<(), Fault> {
        if self.version < KernelVersion::V7_3 {
            return Ok(());
        }
        let machine = std::sync::Arc::clone(&self.machine);
        let cpus = || (0..self.cpu_count).map(CpuId::from);
        let has_caches = cpus().all(|cpu| machine.cpu(cpu).llc.is_some());
        let node_cpus = |cpu: CpuId| machine.node_cpus(machine.cpu(cpu).node);
        let several_caches = has_caches && machine.llc_cpus(CpuId(0)).count() < self.cpu_count;
        let nodes_differ = node_cpus(CpuId(0)).count() < self.cpu_count
            && cpus().any(|cpu| node_cpus(cpu) != machine.llc_cpus(cpu));
        let (mut llc_masks, mut node_masks) = (Vec::new(), Vec::new());
        let mut copies = std::collections::BTreeMap::new();
        for cpu in (0..self.cpu_count).map(CpuId::from) {
            let sets = [
                (several_caches, machine.llc_cpus(cpu), &mut llc_masks, false),
                (nodes_differ, node_cpus(cpu), &mut node_masks, true),
            ];
            for (_, set, masks, is_node) in sets.into_iter().filter(|(wanted, ..)| *wanted) {
                let key = (is_node, set.iter().next());
                let copy = match copies.get(&key) {
                    Some(&copy) => copy,
                    None => {
                        let copy = self.new_mask(state)?;
                        masks::write(&mut state.memory, copy, self.mask_words, set)?;
                        copies.insert(key, copy);
                        copy
                    }
                };
                masks.push(copy);
            }
        }
        (self.llc_masks, self.node_masks) = (llc_masks, node_masks);
        Ok(())
    }

    /// `-EBUSY`, as programs get it where there is no idle CPU.
    pub fn cpu_or_busy(cpu: Option<usize>) -> u64 {
        cpu.map_or(EBUSY as u64, |cpu| cpu as u64)
    }
}
