//! Cgroups as schedulers see them: the root, those of the scenario, and one for each VM.
//!
//! They are made in that order and have increasing numbers. The scheduler gets them depth first, parents
//! before children, as the kernel walks them (`css_for_each_descendant_pre()`).

use super::super::structures::{field, store};
use super::super::types::{Cgroup, CssSet, KernfsNode, SignalStruct};
use crate::policy::VmFacts;
use crate::scenario::{self, BandwidthLimit, CgroupName};
use tandem_ebpf::{Fault, State};
use tandem_machine::ids::VmId;

/// The default weight of a cgroup, and the weight of a task at nice 0.
pub const USUAL_WEIGHT: u64 = 100;

/// The kernel's state of a cgroup.
#[derive(Clone, Debug)]
pub struct CgroupState {
    /// Address of its structure.
    pub address: u64,
    /// Address of the `css_set` that links tasks to it.
    css_set: u64,
    id: u64,
    parent: Option<usize>,
    pub weight: u64,
    /// `cpu.max`; [`RUNTIME_INF`] without a limit.
    pub quota_us: u64,
    pub period_us: u64,
    name: Option<CgroupName>,
    /// The last part of its path, as `struct kernfs_node` has it.
    file_name: String,
}

/// No limit, us.
const RUNTIME_INF: u64 = u64::MAX;

impl CgroupState {
    fn new(
        (name, file_name): (Option<CgroupName>, String),
        id: u64,
        parent: Option<usize>,
        weight: u64,
    ) -> Self {
        Self {
            address: 0,
            css_set: 0,
            id,
            parent,
            weight,
            quota_us: RUNTIME_INF,
            period_us: BandwidthLimit::DEFAULT_PERIOD_US,
            name,
            file_name,
        }
    }

    /// Sets the limit; returns whether that changes it.
    fn set_limit(&mut self, limit: Option<BandwidthLimit>) -> bool {
        let before = (self.period_us, self.quota_us);
        match limit {
            Some(limit) => (self.period_us, self.quota_us) = (limit.period_us, limit.quota_us),
            None => self.quota_us = RUNTIME_INF,
        }
        before != (self.period_us, self.quota_us)
    }
}

/// The cgroup and the process of the tasks of a VM, or of a set of processes.
#[derive(Clone, Copy, Debug)]
struct Membership {
    /// Position in [`Cgroups::groups`].
    cgroup: usize,
    /// Address of the structure that the vCPUs of a VM share, as threads of a process; 0 for other tasks.
    signal: u64,
}

/// The cgroups, and the membership of tasks.
#[derive(Debug, Default)]
pub struct Cgroups {
    /// The root first, parents before their children.
    groups: Vec<CgroupState>,
    /// By VM; empty in a guest.
    memberships: Vec<Membership>,
}

/// The cgroup and the process of a task: addresses of structures.
#[derive(Clone, Copy, Debug)]
pub struct Belonging {
    pub cgroup: u64,
    pub css_set: u64,
    /// The structure that it shares with the other threads of its process; 0 if it has a process of its own.
    pub signal: u64,
}

impl Cgroups {
    /// The cgroups, without structures yet.
    pub fn new(cgroups: &[scenario::Cgroup], vms: &[VmFacts]) -> Self {
        const ROOT_ID: u64 = 1;
        let below = |cgroup: Option<usize>| cgroup.map_or(0, |cgroup| cgroup + 1);
        let mut groups = vec![CgroupState::new((None, String::new()), ROOT_ID, None, USUAL_WEIGHT)];
        for (at, cgroup) in cgroups.iter().enumerate() {
            let name = (Some(CgroupName::Declared(at)), cgroup.name().to_owned());
            let id = ROOT_ID + 1 + at as u64;
            let mut state = CgroupState::new(name, id, Some(below(cgroup.parent)), cgroup.weight.into());
            state.set_limit(cgroup.limit);
            groups.push(state);
        }
        let mut memberships = Vec::with_capacity(vms.len());
        for (at, vm) in vms.iter().enumerate() {
            let mut cgroup = below(vm.cgroup);
            if vm.is_cgroup {
                let weight = u64::from(vm.weight) * USUAL_WEIGHT / u64::from(VmFacts::USUAL_WEIGHT);
                let id = ROOT_ID + 1 + (cgroups.len() + at) as u64;
                let name = (Some(CgroupName::OfVm(at.into())), format!("vm-{at}"));
                groups.push(CgroupState::new(name, id, Some(cgroup), weight));
                cgroup = groups.len() - 1;
            }
            memberships.push(Membership { cgroup, signal: 0 });
        }
        Self { groups, memberships }
    }

    /// Makes the structures of the cgroups, and of VMs, which are processes.
    pub fn make(&mut self, state: &mut State) -> Result<(), Fault> {
        let mut paths: Vec<Vec<u64>> = Vec::with_capacity(self.groups.len());
        for at in 0..self.groups.len() {
            let CgroupState { id, parent, .. } = self.groups[at];
            let kn = state.memory.allocate(KernfsNode::SIZE)?;
            store(&mut state.memory, kn, field!(KernfsNode, id), id)?;
            let file_name = self.groups[at].file_name.as_bytes();
            let text = state.memory.allocate(file_name.len() + 1)?;
            state.memory.slice_mut(text, file_name.len())?.copy_from_slice(file_name);
            store(&mut state.memory, kn, field!(KernfsNode, name), text)?;
            let cgroup = state.memory.allocate(Cgroup::SIZE)?;
            let mut path = parent.map_or_else(Vec::new, |parent| paths[parent].clone());
            let level = path.len();
            path.push(cgroup);
            store(&mut state.memory, cgroup, field!(Cgroup, kn), kn)?;
            store(&mut state.memory, cgroup, field!(Cgroup, level), level as u64)?;
            store(&mut state.memory, cgroup, field!(Cgroup, self_.cgroup), cgroup)?;
            if let Some(parent) = parent {
                // The state of a cgroup is its first field.
                store(&mut state.memory, cgroup, field!(Cgroup, self_.parent), self.groups[parent].address)?;
            }
            for (level, ancestor) in path.iter().enumerate() {
                state.memory.store(cgroup + ancestor_offset(level), 8, *ancestor)?;
            }
            let css_set = state.memory.allocate(CssSet::SIZE)?;
            store(&mut state.memory, css_set, field!(CssSet, dfl_cgrp), cgroup)?;
            let own = &mut self.groups[at];
            (own.address, own.css_set) = (cgroup, css_set);
            if let Some(CgroupName::OfVm(vm)) = own.name {
                self.memberships[vm.index()].signal = state.memory.allocate(SignalStruct::SIZE)?;
            }
            paths.push(path);
        }
        Ok(())
    }

    /// The cgroups in the order in which the kernel walks them.
    pub fn in_order(&self) -> Vec<usize> {
        let mut children = vec![Vec::new(); self.groups.len()];
        for (at, cgroup) in self.groups.iter().enumerate().rev() {
            cgroup.parent.into_iter().for_each(|parent| children[parent].push(at));
        }
        let mut order = Vec::with_capacity(self.groups.len());
        let mut to_visit = vec![0];
        while let Some(at) = to_visit.pop() {
            order.push(at);
            to_visit.append(&mut children[at]);
        }
        order
    }

    /// The cgroup at a position.
    pub fn get(&self, position: usize) -> &CgroupState {
        &self.groups[position]
    }

    /// The structure of the root.
    pub fn root(&self) -> u64 {
        self.groups[0].address
    }

    /// The cgroup and the process of the tasks of a VM; all tasks of guests are in the root.
    pub fn of_vm(&self, vm: VmId) -> Belonging {
        let membership = self.memberships.get(vm.index());
        let group = &self.groups[membership.map_or(0, |membership| membership.cgroup)];
        let signal = membership.map_or(0, |membership| membership.signal);
        Belonging { cgroup: group.address, css_set: group.css_set, signal }
    }

    /// Sets the weight of a cgroup; returns the cgroup if it exists and its weight changes.
    pub fn set_weight(&mut self, name: CgroupName, weight: u64) -> Option<&CgroupState> {
        let group = self.named(name)?;
        (std::mem::replace(&mut group.weight, weight) != weight).then_some(group)
    }

    /// Sets the limit of a cgroup; returns the cgroup if it exists and its limit changes.
    pub fn set_limit(&mut self, name: CgroupName, limit: Option<BandwidthLimit>) -> Option<&CgroupState> {
        let group = self.named(name)?;
        group.set_limit(limit).then_some(group)
    }

    fn named(&mut self, name: CgroupName) -> Option<&mut CgroupState> {
        self.groups.iter_mut().find(|cgroup| cgroup.name == Some(name))
    }

    /// The structure of the cgroup with a number; 0 if there is none.
    pub fn with_id(&self, id: u64) -> u64 {
        self.groups.iter().find(|cgroup| cgroup.id == id).map_or(0, |cgroup| cgroup.address)
    }
}

/// Offset, in the structure of a cgroup, of its ancestor on that level.
const fn ancestor_offset(level: usize) -> u64 {
    std::mem::offset_of!(Cgroup, ancestors) as u64 + level as u64 * 8
}
