//! The kernel's own choice of a CPU for a task that wakes (`scx_select_cpu_dfl()`).

use super::super::settings::KernelVersion;
use super::super::types::{SCX_PICK_IDLE_CORE, SCX_PICK_IDLE_IN_NODE, SCX_WAKE_SYNC};
use super::idle::Search;
use super::{RunQueues, ScxKernel, sets};
use tandem_ebpf::{Fault, State};
use tandem_machine::ids::{CpuId, NodeId, TaskId};

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
    /// What a program gets that asks for the kernel's choice (`select_cpu_from_kfunc()`).
    pub(super) fn select_asked(&mut self, state: &mut State, wakeup: Wakeup) -> Result<Option<usize>, Fault> {
        if !self.tracks_idle() {
            return Ok(None);
        }
        let Wakeup { task, prev_cpu, allowed, .. } = wakeup;
        let own_mask = self.run_queues.tasks[task].cpus_mask;
        if self.version < KernelVersion::V7_3 || self.sets.weight(state, own_mask)? > 1 {
            return self.select_default(state, wakeup);
        }
        // Who may run on one CPU gets that, or none: there is nothing to choose.
        let is_idle = sets::contains(&state.memory, allowed.unwrap_or(own_mask), prev_cpu)?
            && self.idle.take(state, prev_cpu)?;
        Ok(is_idle.then_some(prev_cpu))
    }

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
        let node_of = |cpu| match idle.is_per_node() {
            true => self.machine.cpu(CpuId::from(cpu)).node.index(),
            false => 0,
        };
        let (node, waker_node) = (node_of(prev_cpu), node_of(this_cpu));
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
                && (flags & SCX_PICK_IDLE_IN_NODE == 0 || waker_node == node)
                && idle.any_beside(state, sets, this_cpu)?
                && queues[this_cpu].is_empty()
                && sets::contains(&state.memory, mask, this_cpu)?
            {
                return Ok(Some(this_cpu));
            }
        }
        let last = &mut cpus[this_cpu].distributed;
        let search = Search { allowed: mask, node, flags };
        if idle.has_smt() {
            if prev_allowed && idle.take_core(state, prev_cpu)? {
                return Ok(Some(prev_cpu));
            }
            let cores = Search { flags: flags | SCX_PICK_IDLE_CORE, ..search };
            let core = idle.pick_near(state, sets, last, prev_cpu, cores)?;
            if core.is_some() || flags & SCX_PICK_IDLE_CORE != 0 {
                return Ok(core);
            }
        }
        if prev_allowed && idle.take(state, prev_cpu)? {
            return Ok(Some(prev_cpu));
        }
        if !is_old && let Some(sibling) = idle.take_sibling(state, prev_cpu, mask)? {
            return Ok(Some(sibling));
        }
        idle.pick_near(state, sets, last, prev_cpu, search)
    }

    /// Claims an idle CPU.
    pub(super) fn pick_idle(&mut self, state: &mut State, search: Search) -> Result<Option<usize>, Fault> {
        let last = &mut self.run_queues.cpus[self.cpu].distributed;
        self.idle.pick(state, &self.sets, last, search)
    }

    /// The same; without an idle CPU, the next one of the set, in a cycle.
    pub(super) fn pick_any(&mut self, state: &mut State, search: Search) -> Result<Option<usize>, Fault> {
        if self.callbacks.builtin_idle()
            && let Some(cpu) = self.pick_idle(state, search)?
        {
            return Ok(Some(cpu));
        }
        let within = match search.flags & SCX_PICK_IDLE_IN_NODE != 0 && self.idle.is_per_node() {
            true => {
                let node = self.machine.node_cpus(NodeId::from(search.node));
                let room = self.sets.scratch(1);
                self.sets.write(state, room, node)?;
                room
            }
            false => search.allowed,
        };
        let cpu = self.distribute(state, within, search.allowed)?;
        Ok(Some(cpu).filter(|&cpu| cpu < self.machine.cpu_count()))
    }

    /// The node whose idle CPUs a program asks for; `None`, with a complaint, if they are not known by node, or there is
    /// no such node (`validate_node()`). `NUMA_NO_NODE` is none, without a complaint.
    pub(super) fn idle_node(&mut self, node: u64) -> Option<usize> {
        const NUMA_NO_NODE: i32 = -1;
        let node = node as i32;
        let known = 0..self.machine.node_count() as i32;
        let complaint = match node {
            _ if !self.idle.is_per_node() => {
                "idle CPUs of a node were asked for without SCX_OPS_BUILTIN_IDLE_PER_NODE".to_owned()
            }
            NUMA_NO_NODE => return None,
            node if !known.contains(&node) => {
                format!("node {node} does not exist: nodes have numbers below {}", known.end)
            }
            node => return Some(node as usize),
        };
        self.complain(complaint);
        None
    }

    /// Whether a program may ask for idle CPUs of the machine; false, with a complaint, if they are known by node alone.
    pub(super) fn knows_idle(&mut self) -> bool {
        let is_known = !self.idle.is_per_node();
        if !is_known {
            self.complain("idle CPUs of the machine were asked for with SCX_OPS_BUILTIN_IDLE_PER_NODE");
        }
        is_known
    }

    /// Whether the kernel keeps track of idle CPUs; false, with a complaint, if the scheduler does that itself
    /// (`check_builtin_idle_enabled()`).
    pub(super) fn tracks_idle(&mut self) -> bool {
        let tracks = self.callbacks.builtin_idle();
        if !tracks {
            self.complain("idle CPUs were asked for, which `update_idle` without SCX_OPS_KEEP_BUILTIN_IDLE tracks itself");
        }
        tracks
    }

    /// The next CPU in both sets, in a cycle; a number beyond all CPUs if there is none.
    pub(super) fn distribute(&mut self, state: &State, a: u64, b: u64) -> Result<usize, Fault> {
        self.sets.distribute(state, &mut self.run_queues.cpus[self.cpu].distributed, a, b)
    }
}
