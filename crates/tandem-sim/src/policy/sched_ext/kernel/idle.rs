//! The sets of idle CPUs, and the search for one (`kernel/sched/ext_idle.c`).
//!
//! There is one pair of sets for the machine or, if the scheduler says so (`SCX_OPS_BUILTIN_IDLE_PER_NODE`), one for each
//! node. A search then begins at a node, and goes on to other nodes, near ones first, unless it may not.

use super::super::settings::KernelVersion;
use super::super::types::{SCX_PICK_IDLE_CORE, SCX_PICK_IDLE_IN_NODE};
use super::sets::{self, CpuSets};
use std::collections::BTreeMap;
use std::sync::Arc;
use tandem_ebpf::{Fault, State};
use tandem_machine::Machine;
use tandem_machine::cpumask::CpuMask;
use tandem_machine::ids::{CpuId, NodeId};

/// The idle CPUs of the machine, or of a node.
#[derive(Clone, Copy, Debug)]
struct Sets {
    cpus: u64,
    /// CPUs whose whole core idles.
    cores: u64,
}

/// A search for an idle CPU.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    /// The set that it may choose from.
    pub allowed: u64,
    /// The node where it begins; without meaning if nodes have no sets of their own.
    pub node: usize,
    /// `SCX_PICK_IDLE_*`.
    pub flags: u64,
}

/// The sets of idle CPUs, in the memory of the scheduler.
#[derive(Debug)]
pub struct IdleCpus {
    machine: Arc<Machine>,
    has_smt: bool,
    is_per_node: bool,
    /// The set of CPUs that are online.
    online: u64,
    /// One for each node, or one.
    sets: Vec<Sets>,
    /// The sets of each CPU's last-level cache and node, if the search for an idle CPU considers them.
    llcs: Vec<u64>,
    nodes: Vec<u64>,
}

impl IdleCpus {
    /// The state without sets.
    pub fn new(machine: &Arc<Machine>, is_per_node: bool) -> Self {
        Self {
            machine: Arc::clone(machine),
            has_smt: machine.cores().iter().any(|core| core.cpus.count() > 1),
            is_per_node,
            online: 0,
            sets: Vec::new(),
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
        self.online = sets.online();
        let parts = match self.is_per_node {
            true => self.machine.nodes().iter().map(|node| node.cpus.and(online)).collect(),
            false => vec![online.clone()],
        };
        for part in parts {
            self.sets.push(Sets { cpus: sets.copy(state, &part)?, cores: sets.copy(state, &part)? });
        }
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
        let nodes_differ = !self.is_per_node
            && node_cpus(CpuId(0)).count() < cpu_count
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

    /// The set of idle CPUs of a node, or of the machine.
    pub fn cpus(&self, node: usize) -> u64 {
        self.at(node).cpus
    }

    /// The set of CPUs of a node, or of the machine, whose whole core idles.
    pub fn cores(&self, node: usize) -> u64 {
        let Sets { cpus, cores } = self.at(node);
        if self.has_smt { cores } else { cpus }
    }

    pub fn has_smt(&self) -> bool {
        self.has_smt
    }

    /// Whether each node has sets of its own.
    pub fn is_per_node(&self) -> bool {
        self.is_per_node
    }

    fn at(&self, node: usize) -> Sets {
        self.sets[if self.is_per_node { node } else { 0 }]
    }

    fn of(&self, cpu: usize) -> Sets {
        self.at(self.machine.cpu(CpuId::from(cpu)).node.index())
    }

    /// A CPU begins or stops idling.
    pub fn set(&self, state: &mut State, cpu: usize, idles: bool) -> Result<(), Fault> {
        sets::assign(&mut state.memory, self.of(cpu).cpus, cpu, idles)?;
        if self.has_smt {
            self.note_core(state, cpu, idles)?;
        }
        Ok(())
    }

    /// Whole cores idle if all of their threads that are online do.
    fn note_core(&self, state: &mut State, cpu: usize, idles: bool) -> Result<(), Fault> {
        let siblings = self.machine.siblings(CpuId::from(cpu));
        let Sets { cpus, cores } = self.of(cpu);
        if idles {
            for sibling in siblings.iter() {
                let sibling = sibling.index();
                if !sets::contains(&state.memory, cpus, sibling)?
                    && sets::contains(&state.memory, self.online, sibling)?
                {
                    return Ok(());
                }
            }
        }
        for sibling in siblings.iter().map(CpuId::index) {
            let idles = idles && sets::contains(&state.memory, self.online, sibling)?;
            sets::assign(&mut state.memory, cores, sibling, idles)?;
        }
        Ok(())
    }

    /// Claims a CPU if it idles: other searches no longer find it.
    pub fn take(&self, state: &mut State, cpu: usize) -> Result<bool, Fault> {
        if self.has_smt {
            self.note_core(state, cpu, false)?;
        }
        sets::assign(&mut state.memory, self.of(cpu).cpus, cpu, false)
    }

    /// Claims a CPU if its whole core idles.
    pub fn take_core(&self, state: &mut State, cpu: usize) -> Result<bool, Fault> {
        Ok(sets::contains(&state.memory, self.of(cpu).cores, cpu)? && self.take(state, cpu)?)
    }

    /// Claims the idle sibling of a CPU, if there is one in the set.
    pub fn take_sibling(&self, state: &mut State, cpu: usize, allowed: u64) -> Result<Option<usize>, Fault> {
        for sibling in self.machine.siblings(CpuId::from(cpu)).iter().map(CpuId::index) {
            if sibling != cpu
                && sets::contains(&state.memory, allowed, sibling)?
                && self.take(state, sibling)?
            {
                return Ok(Some(sibling));
            }
        }
        Ok(None)
    }

    /// Claims an idle CPU of a set (`scx_pick_idle_cpu()`), a different one than the `last` if there are
    /// several.
    pub fn pick(
        &self,
        state: &mut State,
        sets: &CpuSets,
        last: &mut usize,
        search: Search,
    ) -> Result<Option<usize>, Fault> {
        if !self.is_per_node {
            return self.pick_in(state, sets, last, search);
        }
        let node = NodeId::from(search.node);
        for &node in self.machine.nodes_by_distance(node) {
            let found = self.pick_in(state, sets, last, Search { node: node.index(), ..search })?;
            if found.is_some() || search.flags & SCX_PICK_IDLE_IN_NODE != 0 {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// The same in one node alone, if nodes have sets of their own (`pick_idle_cpu_in_node()`).
    fn pick_in(
        &self,
        state: &mut State,
        sets: &CpuSets,
        last: &mut usize,
        Search { allowed, node, flags }: Search,
    ) -> Result<Option<usize>, Fault> {
        state.memory.slice(allowed, sets.bytes())?;
        let Sets { cpus, cores } = self.at(node);
        if sets.is_empty(state, cpus)? {
            return Ok(None);
        }
        let cpu_count = self.machine.cpu_count();
        if self.has_smt {
            let cpu = sets.distribute(state, last, cores, allowed)?;
            if cpu < cpu_count {
                self.take(state, cpu)?;
                return Ok(Some(cpu));
            }
            if flags & SCX_PICK_IDLE_CORE != 0 {
                return Ok(None);
            }
        }
        let cpu = sets.distribute(state, last, cpus, allowed)?;
        if cpu < cpu_count {
            self.take(state, cpu)?;
            return Ok(Some(cpu));
        }
        Ok(None)
    }

    /// The same for a task that was on a CPU: first in its last-level cache and node, if the search considers these, for
    /// a whole core alone if `SCX_PICK_IDLE_CORE` says so.
    pub fn pick_near(
        &self,
        state: &mut State,
        sets: &CpuSets,
        last: &mut usize,
        near: usize,
        search: Search,
    ) -> Result<Option<usize>, Fault> {
        if !self.is_per_node && !self.any_beside(state, sets, near)? {
            return Ok(None);
        }
        for set in [self.llcs.get(near), self.nodes.get(near)].into_iter().flatten() {
            let room = sets.scratch(1);
            if sets.combine(state, room, (*set, search.allowed), |a, b| a & b)? == 0 {
                continue;
            }
            let search = Search { allowed: room, ..search };
            if let Some(cpu) = self.pick_in(state, sets, last, search)? {
                return Ok(Some(cpu));
            }
        }
        self.pick(state, sets, last, search)
    }

    /// Whether any CPU idles on the node of a CPU, or on the machine.
    pub fn any_beside(&self, state: &State, sets: &CpuSets, cpu: usize) -> Result<bool, Fault> {
        Ok(!sets.is_empty(state, self.of(cpu).cpus)?)
    }
}
