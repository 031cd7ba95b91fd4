//! The memory system as the CPUs find it: sampled, smoothed, constant between two samples.
//!
//! See [`crate::cost::Memory`] for the model. What a task pays is in two small tables, one by the
//! layout of its VM's memory and node (latency), one by profile and last-level cache (misses), so that the
//! path of an event computes neither. VMs whose memory is spread alike, and stays where it is, share a
//! layout.
//!
//! Memory that moves while the run goes on (NUMA balancing, first touch) changes shares at once; how long
//! loads take follows at the next sample.

use crate::cost::Memory;
use crate::program::MemoryProfile;
use crate::program::code::ProfileId;
use std::sync::Arc;
use tandem_machine::CACHE_LINE_BYTES;
use tandem_machine::Machine;
use tandem_machine::ids::{CpuId, NodeId, VmId};

/// A small page of memory on x86, bytes.
pub(crate) const PAGE_BYTES: u64 = 4096;

/// Sizes of pages on x86 that can be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageSize {
    /// 4 KiB.
    Small,
    /// 2 MiB.
    Huge,
}

impl PageSize {
    pub const ALL: [Self; 2] = [Self::Small, Self::Huge];

    /// Small pages in one of them (`HPAGE_PMD_NR`).
    pub fn small_pages(self) -> f64 {
        match self {
            Self::Small => 1.0,
            Self::Huge => 512.0,
        }
    }

    pub fn bytes(self) -> u64 {
        self.small_pages() as u64 * PAGE_BYTES
    }
}

/// The memory of a VM at the start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VmMemory<'a> {
    pub bytes: u64,
    /// Sum to 1 over the nodes.
    pub shares: &'a [f64],
    /// Share of it in huge pages.
    pub huge_share: f64,
    /// It may change where it lies.
    pub moves: bool,
    /// It takes room from the start.
    pub is_there: bool,
}

/// State of a machine's memory system.
#[derive(Clone, Debug)]
pub(crate) struct MemoryState {
    model: Option<Memory>,
    profiles: Vec<Arc<MemoryProfile>>,
    /// The layout of each VM's memory.
    layout_of: Vec<u32>,
    /// How many pages each VM has.
    pages: Vec<f64>,
    /// Which share of each VM's memory is in huge pages.
    huge_share: Vec<f64>,
    /// The same by VM, then by node: of all its memory, that in huge pages on the node.
    huge_shares: Vec<f64>,
    /// Whether each VM's memory takes room.
    is_there: Vec<bool>,
    /// Pages of each node that no VM has; below 0 if VMs were given more than there is.
    free_pages: Vec<f64>,
    /// Share of the memory on each node: a row a layout.
    shares: Vec<f64>,
    node_count: usize,
    /// Smoothed bytes per ns that are asked of each node.
    demand: Vec<f64>,
    /// Smoothed number of tasks that use each last-level cache.
    users: Vec<f64>,
    /// Mean latency of a load, ns: by layout, then by node of the CPU.
    latency_ns: Vec<f64>,
    /// Lines from memory per ns of work: by profile, then by last-level cache.
    lines_per_ns: Vec<f64>,
    /// Both tables as tasks felt them last.
    felt: [Vec<f64>; 2],
}

/// A change that tasks need not feel.
const NEGLIGIBLE_CHANGE: f64 = 0.005;

/// Whether a table has changed so much that tasks feel it.
pub(super) fn is_felt(now: &[f64], felt: &[f64]) -> bool {
    now.iter().zip(felt).any(|(now, felt)| (now - felt).abs() > felt * NEGLIGIBLE_CHANGE)
}

impl MemoryState {
    /// With the memory of each VM.
    pub fn new(
        model: Option<Memory>,
        machine: &Machine,
        profiles: Vec<Arc<MemoryProfile>>,
        vms: &[VmMemory<'_>],
    ) -> Self {
        let node_count = machine.node_count();
        let mut layouts: Vec<VmMemory<'_>> = Vec::new();
        let layout_of = vms.iter().map(|vm| {
            let is_same = |layout: &VmMemory<'_>| !vm.moves && !layout.moves && layout.shares == vm.shares;
            layouts.iter().position(is_same).unwrap_or_else(|| {
                layouts.push(*vm);
                layouts.len() - 1
            }) as u32
        });
        let layout_of = layout_of.collect();
        let pages: Vec<f64> = vms.iter().map(|vm| vm.bytes.div_ceil(PAGE_BYTES) as f64).collect();
        let mut free_pages: Vec<f64> =
            machine.nodes().iter().map(|node| (node.memory_bytes / PAGE_BYTES) as f64).collect();
        for (vm, pages) in vms.iter().zip(&pages).filter(|(vm, _)| vm.is_there) {
            for (free, share) in free_pages.iter_mut().zip(vm.shares) {
                *free -= share * pages;
            }
        }
        let mut state = Self {
            model,
            layout_of,
            huge_share: vms.iter().map(|vm| vm.huge_share).collect(),
            huge_shares: (vms.iter())
                .flat_map(|vm| vm.shares.iter().map(|share| share * vm.huge_share))
                .collect(),
            pages,
            is_there: vms.iter().map(|vm| vm.is_there).collect(),
            free_pages,
            shares: layouts.iter().flat_map(|layout| layout.shares).copied().collect(),
            node_count,
            demand: vec![0.0; node_count],
            users: vec![1.0; machine.llcs().len()],
            latency_ns: vec![0.0; layouts.len() * node_count],
            lines_per_ns: vec![0.0; profiles.len() * machine.llcs().len()],
            felt: [Vec::new(), Vec::new()],
            profiles,
        };
        state.update_tables(machine);
        state.felt = [state.latency_ns.clone(), state.lines_per_ns.clone()];
        state
    }

    /// Time between two samples; `None` if none are needed.
    pub fn sample_period_ns(&self) -> Option<u64> {
        let anyone_waits = self.profiles.iter().any(|profile| profile.memory_lines_per_us > 0.0);
        self.model.filter(|_| anyone_waits).map(|model| model.sample_period_ns)
    }

    /// Share of the VM's memory that lies on the node.
    #[inline]
    pub fn share(&self, vm: VmId, node: NodeId) -> f64 {
        self.shares[self.layout_of[vm.index()] as usize * self.node_count + node.index()]
    }

    /// How many small pages the VM's memory has, or would have.
    pub fn pages(&self, vm: VmId) -> f64 {
        self.pages[vm.index()]
    }

    /// Share of the VM's memory on each node.
    pub fn shares(&self, vm: VmId) -> &[f64] {
        let first = self.layout_of[vm.index()] as usize * self.node_count;
        &self.shares[first..first + self.node_count]
    }

    /// How many small pages the VM's memory has on the node, in pages of that size.
    pub fn pages_on(&self, vm: VmId, node: NodeId, size: PageSize) -> f64 {
        let huge = self.huge_shares[vm.index() * self.node_count + node.index()];
        let share = match size {
            PageSize::Huge => huge,
            PageSize::Small => (self.share(vm, node) - huge).max(0.0),
        };
        share * self.pages(vm)
    }

    /// Moves pages of that size, as many as so many small ones, of a VM whose memory may move to another node,
    /// or as many as it has and that has room for; returns how many small ones that are.
    pub fn move_pages(&mut self, vm: VmId, size: PageSize, from: NodeId, to: NodeId, pages: f64) -> f64 {
        let of_vm = self.pages(vm);
        let moved = pages.min(self.pages_on(vm, from, size)).min(self.free_pages[to.index()]).max(0.0);
        if size == PageSize::Huge {
            let first = vm.index() * self.node_count;
            let left = &mut self.huge_shares[first + from.index()];
            *left = (*left - moved / of_vm).max(0.0);
            self.huge_shares[first + to.index()] += moved / of_vm;
        }
        let first = self.layout_of[vm.index()] as usize * self.node_count;
        let left = &mut self.shares[first + from.index()];
        *left = (*left - moved / of_vm).max(0.0);
        self.shares[first + to.index()] += moved / of_vm;
        self.free_pages[from.index()] += moved;
        self.free_pages[to.index()] -= moved;
        moved
    }

    /// Lets the memory of a VM, which may move, lie elsewhere, and take room there. The shares sum to 1 over
    /// the nodes. What a node has no room for lies on the nearest others that have; what none has room for,
    /// on that node after all.
    pub fn set_shares(&mut self, machine: &Machine, vm: VmId, shares: &[f64]) {
        self.leave(vm);
        let pages = self.pages(vm);
        let first = self.layout_of[vm.index()] as usize * self.node_count;
        let mut fitting = shares.to_vec();
        for node in 0..self.node_count {
            let mut excess = (shares[node] * pages - self.free_pages[node].max(0.0)).max(0.0);
            for &other in &machine.nodes_by_distance(node.into())[1..] {
                let room = self.free_pages[other.index()] - fitting[other.index()] * pages;
                let moved = excess.min(room).max(0.0);
                fitting[node] -= moved / pages;
                fitting[other.index()] += moved / pages;
                excess -= moved;
            }
        }
        for (node, share) in fitting.into_iter().enumerate() {
            self.shares[first + node] = share;
            self.huge_shares[vm.index() * self.node_count + node] = share * self.huge_share[vm.index()];
            self.free_pages[node] -= share * pages;
        }
        self.is_there[vm.index()] = true;
        self.update_tables(machine);
    }

    /// The memory of a VM takes no room any longer.
    pub fn leave(&mut self, vm: VmId) {
        if std::mem::replace(&mut self.is_there[vm.index()], false) {
            for node in 0..self.node_count {
                self.free_pages[node] += self.share(vm, node.into()) * self.pages(vm);
            }
        }
    }

    /// Memory that a VM has on each node, bytes.
    pub fn resident_bytes(&self, vm: VmId) -> Vec<u64> {
        let bytes = if self.is_there[vm.index()] { self.pages(vm) * PAGE_BYTES as f64 } else { 0.0 };
        self.shares(vm).iter().map(|share| (share * bytes).round() as u64).collect()
    }

    /// Memory of each node that no VM has, bytes.
    pub fn free_bytes(&self) -> Vec<u64> {
        self.free_pages.iter().map(|pages| (pages.max(0.0) * PAGE_BYTES as f64).round() as u64).collect()
    }

    /// Mean latency of a load of the VM's memory from a CPU of the node, ns; 0 with the model off.
    #[inline]
    pub fn latency_ns(&self, vm: VmId, node: NodeId) -> f64 {
        self.latency_ns[self.layout_of[vm.index()] as usize * self.node_count + node.index()]
    }

    /// Lines that come from memory per ns of work on this CPU; 0 with the model off.
    #[inline]
    pub fn lines_per_ns(&self, machine: &Machine, profile: ProfileId, cpu: CpuId) -> f64 {
        if self.model.is_none() {
            return 0.0;
        }
        match machine.cpu(cpu).llc {
            Some(llc) => self.lines_per_ns[profile.0 as usize * self.users.len() + llc.index()],
            None => self.profiles[profile.0 as usize].memory_lines_per_us / 1e3,
        }
    }

    /// Takes a sample: for each busy CPU its task's VM and profile, and the time that a unit of its work
    /// takes. Whether anything has changed enough for tasks to feel it.
    pub fn sample(
        &mut self,
        machine: &Machine,
        running: impl Iterator<Item = (CpuId, VmId, ProfileId, f64)>,
    ) -> bool {
        let Some(model) = self.model else { return false };
        let keep = 1.0 - model.sample_weight;
        self.demand.iter_mut().for_each(|demand| *demand *= keep);
        self.users.iter_mut().for_each(|users| *users *= keep);
        let mut demand_of_layout = vec![0.0; self.shares.len() / self.node_count];
        for (cpu, vm, profile, slowdown) in running {
            let lines = self.lines_per_ns(machine, profile, cpu) / slowdown;
            if lines == 0.0 {
                continue;
            }
            demand_of_layout[self.layout_of[vm.index()] as usize] += lines * CACHE_LINE_BYTES as f64;
            if let Some(llc) = machine.cpu(cpu).llc {
                self.users[llc.index()] += model.sample_weight;
            }
        }
        for (shares, demand) in self.shares.chunks(self.node_count).zip(demand_of_layout) {
            for (node, share) in shares.iter().enumerate() {
                self.demand[node] += model.sample_weight * demand * share;
            }
        }
        self.update_tables(machine);
        let tables = [&self.latency_ns, &self.lines_per_ns];
        let changed = tables.into_iter().zip(&self.felt).any(|(table, felt)| is_felt(table, felt));
        if changed {
            self.felt = [self.latency_ns.clone(), self.lines_per_ns.clone()];
        }
        changed
    }

    fn update_tables(&mut self, machine: &Machine) {
        let Some(model) = self.model else { return };
        let queueing_ns: Vec<f64> = (machine.nodes().iter().zip(&self.demand))
            .map(|(node, demand)| {
                let bandwidth = node.bandwidth_bytes_per_s as f64 / 1e9;
                if bandwidth > 0.0 { model.queueing_ns(demand / bandwidth) } else { 0.0 }
            })
            .collect();
        for (at, latency_ns) in self.latency_ns.iter_mut().enumerate() {
            let (layout, cpu_node) = (at / self.node_count, NodeId::from(at % self.node_count));
            *latency_ns = (0..self.node_count)
                .map(|node| {
                    let share = self.shares[layout * self.node_count + node];
                    share * (model.latency_ns(machine, cpu_node, NodeId::from(node)) + queueing_ns[node])
                })
                .sum();
        }
        let llcs = self.users.len();
        for (at, lines_per_ns) in self.lines_per_ns.iter_mut().enumerate() {
            let profile = &self.profiles[at / llcs];
            let factor = Memory::miss_factor(self.users[at % llcs], profile.cache_sensitivity);
            *lines_per_ns = profile.memory_lines_per_us / 1e3 * factor;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tandem_machine::MachineBuilder;

    fn state(sensitivity: f64) -> (Machine, MemoryState) {
        let machine = MachineBuilder::symmetric(2, 2, 1).build().unwrap();
        let waiting = MemoryProfile {
            memory_lines_per_us: 10.0,
            parallelism: 1.0,
            cache_sensitivity: sensitivity,
            ..MemoryProfile::default()
        };
        let profiles = vec![Arc::default(), Arc::new(waiting)];
        let vms = [[1.0, 0.0], [0.5, 0.5]];
        let vms = vms.each_ref().map(|shares| VmMemory {
            bytes: 1 << 20,
            shares,
            huge_share: 0.0,
            moves: true,
            is_there: true,
        });
        let state = MemoryState::new(Some(Memory::default()), &machine, profiles, &vms);
        (machine, state)
    }

    #[test]
    fn latency_follows_where_the_memory_is() {
        let (machine, state) = state(0.0);
        let hardware = machine.hardware();
        let local = f64::from(hardware.local_memory_latency_ns);
        let remote = f64::from(hardware.remote_memory_latency_ns);
        assert_eq!(state.latency_ns(VmId(0), NodeId(0)), local);
        assert_eq!(state.latency_ns(VmId(0), NodeId(1)), remote);
        assert_eq!(state.latency_ns(VmId(1), NodeId(1)), (local + remote) / 2.0);
    }

    #[test]
    fn neighbours_take_cache_and_bandwidth() {
        let (machine, mut state) = state(0.5);
        let before = state.latency_ns(VmId(0), NodeId(0));
        for _ in 0..100 {
            let running = (0..2).map(|cpu| (CpuId(cpu), VmId(0), ProfileId(1), 2.0));
            state.sample(&machine, running);
        }
        let lines = state.lines_per_ns(&machine, ProfileId(1), CpuId(0));
        assert!(
            (lines - 0.01 * 2f64.sqrt()).abs() < 1e-6,
            "two users: sqrt(2) times the misses, not {lines}"
        );
        assert_eq!(
            state.lines_per_ns(&machine, ProfileId(1), CpuId(3)),
            0.01,
            "the other cache has no users"
        );
        assert!(state.latency_ns(VmId(0), NodeId(0)) > before);
    }

    #[test]
    fn memory_moves_as_far_as_there_is_room() {
        let (machine, mut state) = state(0.0);
        assert_eq!(state.move_pages(VmId(0), PageSize::Small, NodeId(0), NodeId(1), 64.0), 64.0);
        assert_eq!(state.shares(VmId(0)), [0.75, 0.25]);
        assert_eq!(state.shares(VmId(1)), [0.5, 0.5], "the other VM's memory stays");
        assert_eq!(
            state.move_pages(VmId(0), PageSize::Small, NodeId(0), NodeId(1), 500.0),
            192.0,
            "no more than there is"
        );
        assert_eq!(state.shares(VmId(0)), [0.0, 1.0]);
        let room = state.free_pages[0];
        state.free_pages[0] = 10.0;
        assert_eq!(
            state.move_pages(VmId(0), PageSize::Small, NodeId(1), NodeId(0), 20.0),
            10.0,
            "the node is full then"
        );
        assert_eq!(state.move_pages(VmId(0), PageSize::Small, NodeId(1), NodeId(0), 20.0), 0.0);
        state.free_pages[0] = room - 10.0;
        state.set_shares(&machine, VmId(0), &[1.0, 0.0]);
        let local = f64::from(machine.hardware().local_memory_latency_ns);
        assert_eq!(state.latency_ns(VmId(0), NodeId(0)), local, "loads feel it");
        assert_eq!(state.free_pages[0], room - 256.0);
    }

    #[test]
    fn huge_and_small_pages_move_each_by_themselves() {
        let (machine, state) = state(0.0);
        let halves =
            VmMemory { bytes: 8 << 20, shares: &[1.0, 0.0], huge_share: 0.5, moves: true, is_there: true };
        let mut state = MemoryState::new(state.model, &machine, vec![Arc::default()], &[halves]);
        let pages = |state: &MemoryState| {
            [0, 1].map(|node| PageSize::ALL.map(|size| state.pages_on(VmId(0), NodeId(node), size)))
        };
        assert_eq!(pages(&state), [[1_024.0, 1_024.0], [0.0, 0.0]]);
        assert_eq!(state.move_pages(VmId(0), PageSize::Huge, NodeId(0), NodeId(1), 512.0), 512.0);
        assert_eq!(pages(&state), [[1_024.0, 512.0], [0.0, 512.0]]);
        assert_eq!(state.move_pages(VmId(0), PageSize::Small, NodeId(0), NodeId(1), 2_000.0), 1_024.0);
        assert_eq!(pages(&state), [[0.0, 512.0], [1_024.0, 512.0]]);
        assert_eq!(state.shares(VmId(0)), [0.25, 0.75]);
        state.set_shares(&machine, VmId(0), &[0.5, 0.5]);
        assert_eq!(pages(&state), [[512.0, 512.0]; 2], "what is touched anew is in pages of both sizes");
    }

    #[test]
    fn memory_that_finds_no_room_lies_nearby() {
        let (machine, mut state) = state(0.0);
        state.leave(VmId(0));
        state.free_pages = vec![64.0, 1_000.0];
        state.set_shares(&machine, VmId(0), &[1.0, 0.0]);
        assert_eq!(state.shares(VmId(0)), [0.25, 0.75]);
        assert_eq!(state.resident_bytes(VmId(0)), [256 << 10, 768 << 10]);
        assert_eq!(state.free_bytes(), [0, 808 * PAGE_BYTES]);
        state.leave(VmId(0));
        assert_eq!(state.resident_bytes(VmId(0)), [0, 0]);
        assert_eq!(state.free_pages, [64.0, 1_000.0]);
        state.leave(VmId(0));
        assert_eq!(state.free_pages, [64.0, 1_000.0], "it can leave only once");
    }
}
