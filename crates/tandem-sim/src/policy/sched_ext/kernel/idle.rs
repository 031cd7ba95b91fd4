//! The sets of idle CPUs, and the search for one (`kernel/sched/ext_idle.c`).

use super::super::settings::KernelVersion;
use super::super::types::SCX_PICK_IDLE_CORE;
use super::sets::{self, CpuSets};
use std::collections::BTreeMap;
use std::sync::Arc;
use tandem_ebpf::{Fault, State};
use tandem_machine::Machine;
use tandem_machine::cpumask::CpuMask;
use tandem_machine::ids::CpuId;

/// The sets of idle CPUs, in the memory of the scheduler.
#[derive(Debug)]
pub struct IdleCpus {
    machine: Arc<Machine>,
    has_smt: bool,
    cpus: u64,
    /// CPUs whose whole core idles.
    cores: u64,
    /// The sets of each CPU's last-level cache and node, if the search for an idle CPU considers them.
    llcs: Vec<u64>,
    nodes: Vec<u64>,
}

impl IdleCpus {
    /// The state without sets.
    pub fn new(machine: &Arc<Machine>) -> Self {
        Self {
            machine: Arc::clone(machine),
            has_smt: machine.cores().iter().any(|core| core.cpus.count() > 1),
            cpus: 0,
            cores: 0,
            llcs: Vec::new(),
            nodes: Vec::new(),
        }
    }

    /// Makes the sets. All CPUs that are online idle at first.
    pub fn prepare(
        &mut self,
        state: &mut State,
        sets: &CpuSets,
        online: &CpuMask,
        version: KernelVersion,
    ) -> Result<(), Fault> {
        self.cpus = sets.copy(state, online)?;
        self.cores = sets.copy(state, online)?;
        match version < KernelVersion::V7_3 {
            true => Ok(()),
            false => self.prepare_near(state, sets),
        }
    }

    /// Makes the sets of last-level caches and nodes for the search, if the newest kernel considers them:
    /// caches if there are several, nodes if they differ from caches.
    fn prepare_near(&mut self, state: &mut State, sets: &CpuSets) -> Result<(), Fault> {
        let machine = &self.machine;
        let cpu_count = machine.cpu_count();
        let cpus = || (0..cpu_count).map(CpuId::from);
        let has_caches = cpus().all(|cpu| machine.cpu(cpu).llc.is_some());
        let node_cpus = |cpu: CpuId| machine.node_cpus(machine.cpu(cpu).node);
        let several_caches = has_caches && machine.llc_cpus(CpuId(0)).count() < cpu_count;
        let nodes_differ = node_cpus(CpuId(0)).count() < cpu_count
            && cpus().any(|cpu| node_cpus(cpu) != machine.llc_cpus(cpu));
        let mut copies = BTreeMap::new();
        for cpu in cpus() {
            let near = [
                (several_caches, machine.llc_cpus(cpu), &mut self.llcs, false),
                (nodes_differ, node_cpus(cpu), &mut self.nodes, true),
            ];
            for (_, set, copied, is_node) in near.into_iter().filter(|(wanted, ..)| *wanted) {
                let key = (is_node, set.iter().next());
                let copy = match copies.get(&key) {
                    Some(&copy) => copy,
                    None => {
                        let copy = sets.copy(state, set)?;
                        copies.insert(key, copy);
                        copy
                    }
                };
                copied.push(copy);
            }
        }
        Ok(())
    }

    /// The set of idle CPUs.
    pub fn cpus(&self) -> u64 {
        self.cpus
    }

    /// The set of CPUs whose whole core idles.
    pub fn cores(&self) -> u64 {
        if self.has_smt { self.cores } else { self.cpus }
    }

    pub fn has_smt(&self) -> bool {
        self.has_smt
    }

    /// A CPU begins or stops idling.
    pub fn set(&self, state: &mut State, cpu: usize, idles: bool) -> Result<(), Fault> {
        sets::assign(&mut state.memory, self.cpus, cpu, idles)?;
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
                if !sets::contains(&state.memory, self.cpus, sibling.index())? {
                    return Ok(());
                }
            }
        }
        for sibling in siblings.iter() {
            sets::assign(&mut state.memory, self.cores, sibling.index(), idles)?;
        }
        Ok(())
    }

    /// Claims a CPU if it idles: other searches no longer find it.
    pub fn take(&self, state: &mut State, cpu: usize) -> Result<bool, Fault> {
        if self.has_smt {
            self.note_core(state, cpu, false)?;
        }
        sets::assign(&mut state.memory, self.cpus, cpu, false)
    }

    /// Claims a CPU if its whole core idles.
    pub fn take_core(&self, state: &mut State, cpu: usize) -> Result<bool, Fault> {
        Ok(sets::contains(&state.memory, self.cores, cpu)? && self.take(state, cpu)?)
    }

    /// Claims an idle CPU of a set (`scx_pick_idle_cpu()`), a different one than the `last` if there are
    /// several.
    pub fn pick(
        &self,
        state: &mut State,
        sets: &CpuSets,
        last: &mut usize,
        allowed: u64,
        flags: u64,
    ) -> Result<Option<usize>, Fault> {
        state.memory.slice(allowed, sets.bytes())?;
        if !self.any(state, sets)? {
            return Ok(None);
        }
        let cpu_count = self.machine.cpu_count();
        if self.has_smt {
            let cpu = sets.distribute(state, last, self.cores, allowed)?;
            if cpu < cpu_count {
                self.take(state, cpu)?;
                return Ok(Some(cpu));
            }
            if flags & SCX_PICK_IDLE_CORE != 0 {
                return Ok(None);
            }
        }
        let cpu = sets.distribute(state, last, self.cpus, allowed)?;
        if cpu < cpu_count {
            self.take(state, cpu)?;
            return Ok(Some(cpu));
        }
        Ok(None)
    }

    /// The same for a task that was on that CPU: first in its last-level cache and node, if the search
    /// considers these.
    pub fn pick_near(
        &self,
        state: &mut State,
        sets: &CpuSets,
        last: &mut usize,
        (near, allowed): (usize, u64),
        flags: u64,
    ) -> Result<Option<usize>, Fault> {
        if !self.any(state, sets)? {
            return Ok(None);
        }
        for set in [self.llcs.get(near), self.nodes.get(near)].into_iter().flatten() {
            let room = sets.scratch(1);
            if sets.combine(state, room, (*set, allowed), |a, b| a & b)? == 0 {
                continue;
            }
            if let Some(cpu) = self.pick(state, sets, last, room, flags)? {
                return Ok(Some(cpu));
            }
        }
        self.pick(state, sets, last, allowed, flags)
    }

    /// Whether any CPU idles.
    pub fn any(&self, state: &State, sets: &CpuSets) -> Result<bool, Fault> {
        Ok(!sets.is_empty(state, self.cpus)?)
    }
}
