//! NUMA balancing of a Linux host (`kernel/sched/fair.c` and `mm/mempolicy.c` of 5.2): memory moves to the
//! tasks that use it, and tasks move to their memory.
//!
//! Problem: the kernel does not know which task uses which page.
//!
//! Approach, as in the kernel:
//! 1. From time to time each task marks a part of its memory ([`scan`]), unless somebody has bound that
//!    ([`reach`]).
//! 2. When it touches a marked page, it faults. The fault is counted by the node of the page and that of the
//!    CPU ([`faults`]), and may move the page to the CPU's node ([`filter`]).
//! 3. After each pass over its memory, a task prefers the node that most of the faults were on; the policy is
//!    asked to move it there ([`Policy::prefer_node`]).
//!
//! There are no single pages here. The memory of a VM, which all its tasks use alike, is a number of pages of
//! which parts lie on nodes, are marked, and were last touched from some node; what a fault does is taken at
//! its expected value. All of that happens at the ticks of the host, so that it needs no events of its own:
//! for the time that the task has run since, its touches of pages are those of its memory profile
//! ([`MemoryProfile::memory_lines_per_us`]), each of a page drawn at random. Faults at one tick take at most
//! as long as a tick.
//!
//! Memory is in pages of 4 KiB, of which whole blocks of 2 MiB may be huge pages: one entry to mark, one fault,
//! one move for 512 of them.
//!
//! Limits: a task without a memory profile touches nothing. All memory is used alike, and none is the task's own
//! unless it is alone in its VM. Huge pages are neither split nor made, and there is always a free one where
//! there is room. Nodes are at equal distances: a task is sent to the node that it prefers, and to no other.
//!
//! [`MemoryProfile::memory_lines_per_us`]: crate::program::MemoryProfile::memory_lines_per_us

mod faults;
mod filter;
mod price;
mod reach;
mod scan;

use super::memory_state::PageSize;
use super::{CpuRef, Kernels, MemoryState, Processors};
use crate::metrics::NumaMetrics;
use crate::policy::linux::LinuxEra;
use crate::policy::{NodePreference, Policy};
use crate::program::code::ProfileId;
use crate::scenario::{PolicySettings, Scenario, WorkloadKind};
use faults::{Group, TaskFaults};
use filter::Touched;
use price::Price;
use reach::Reach;
use scan::{AddressSpace, Clocks, Scan};
use tandem_machine::ids::{CpuId, NodeId, TaskId, VmId};

/// Longest time between two attempts to move a task to the node that it prefers, ns (`HZ` jiffies).
const RETRY_MAX_NS: u64 = 1_000_000_000;

/// What is known of a task of the host.
#[derive(Clone, Debug)]
struct Balanced {
    /// Position of its address space.
    space: usize,
    scan: Scan,
    faults: TaskFaults,
    preferred: Option<NodeId>,
    /// When it is tried again to move it, ns.
    retry_ns: u64,
    /// Run time that its metrics showed last, ns.
    seen_run_ns: u64,
    /// Run time for which its touches have not been counted yet, ns.
    pending_ns: u64,
    /// Run time in all, ns.
    run_ns: u64,
}

/// What NUMA balancing knows of the host's tasks and their memory. See the [module](self).
#[derive(Clone, Debug)]
pub(crate) struct NumaBalancing {
    groups: Vec<Group>,
    /// Where the memory of each group may move; `None` if it is not scanned.
    reach: Vec<Option<Reach>>,
    prices: Vec<Price>,
    /// Whether tasks mark pages more seldom where that takes long.
    rests: bool,
    spaces: Vec<AddressSpace>,
    tasks: Vec<Balanced>,
    hint_faults: f64,
    hint_faults_local: f64,
    pages_migrated: f64,
}

/// The address space of each of the host's tasks: one for a VM or for threads, one each for processes.
fn space_of_tasks(scenario: &Scenario, tasks: usize) -> Vec<usize> {
    let mut spaces = Vec::with_capacity(tasks);
    let mut next = 0;
    for workload in &scenario.workloads {
        let tasks = workload.task_count();
        let own = matches!(workload.kind, WorkloadKind::Processes(_));
        spaces.extend((0..tasks).map(|task| if own { next + task } else { next }));
        next += if own { tasks } else { 1 };
    }
    spaces
}

/// What happened at a tick.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Faulted {
    faults: f64,
    local: f64,
    migrated: f64,
    cost_ns: f64,
}

impl NumaBalancing {
    /// For the tasks of the scenario's host, if that balances and has several nodes.
    pub fn new(scenario: &Scenario, tasks: usize) -> Option<Box<Self>> {
        let nodes = scenario.machine.node_count();
        let era = match &scenario.policy {
            PolicySettings::Linux(settings) if settings.numa_balancing && nodes > 1 => settings.era,
            _ => return None,
        };
        let space_of = space_of_tasks(scenario, tasks);
        Some(Box::new(Self {
            groups: scenario.workloads.iter().map(|it| Group::new(nodes, it.task_count())).collect(),
            reach: scenario.workloads.iter().map(|it| Reach::new(it, era, nodes)).collect(),
            prices: scenario.workloads.iter().map(|it| Price::new(scenario, it)).collect(),
            rests: era >= LinuxEra::V5_2,
            spaces: vec![AddressSpace::new(nodes); space_of.last().map_or(0, |last| last + 1)],
            tasks: space_of.into_iter().map(|space| Balanced::new(nodes, space)).collect(),
            hint_faults: 0.0,
            hint_faults_local: 0.0,
            pages_migrated: 0.0,
        }))
    }

    /// Whether the memory of the workload may move.
    pub fn may_move(&self, vm: VmId) -> bool {
        self.reach[vm.index()].is_some()
    }

    /// Begins to count anew. The tasks' own metrics do, too.
    pub fn start_measuring(&mut self) {
        self.tasks.iter_mut().for_each(|task| task.seen_run_ns = 0);
        (self.hint_faults, self.hint_faults_local, self.pages_migrated) = (0.0, 0.0, 0.0);
    }

    /// What was counted.
    pub fn metrics(&self) -> NumaMetrics {
        NumaMetrics {
            numa_hint_faults: self.hint_faults as u64,
            numa_hint_faults_local: self.hint_faults_local as u64,
            numa_pages_migrated: self.pages_migrated as u64,
        }
    }

    /// The task of the VM, on a CPU of that node, touches so many pages.
    fn touch(&mut self, memory: &mut MemoryState, touched: Touched) -> Faulted {
        let Touched { vm, task, node, .. } = touched;
        let state = &mut self.tasks[task.index()];
        let group = &mut self.groups[vm.index()];
        let space = &mut self.spaces[state.space];
        let price = &self.prices[vm.index()];
        let shares = space.faulting_shares(touched.touches, node, price, touched.time_max_ns);
        let mut result = Faulted::default();
        let may_move = self.reach[vm.index()].as_ref().is_some_and(|reach| reach.contains(node));
        let is_young = state.preferred.is_none() || state.faults.pass <= filter::YOUNG_PASSES;
        for (size, share) in PageSize::ALL.into_iter().zip(shares) {
            let marked = &mut space.marked[size as usize];
            for from in (0..marked.len()).map(NodeId::from) {
                let pages = memory.pages_on(vm, from, size);
                let marked = &mut marked[from.index()];
                *marked = marked.min(pages);
                // In small pages, as is all that is counted of the tasks.
                let touched = share * *marked;
                *marked -= touched;
                if touched <= 0.0 {
                    continue;
                }
                let faults = touched / size.small_pages();
                let private = group.private_share(size, from, pages);
                let mut moved = 0.0;
                if from == node {
                    result.local += faults;
                } else {
                    let wanted = touched * group.chance_to_migrate(size, from, pages, node, is_young);
                    moved = if may_move { memory.move_pages(vm, size, from, node, wanted) } else { 0.0 };
                    state.faults.failed |= moved < wanted * 0.999;
                    result.migrated += moved;
                }
                result.faults += faults;
                result.cost_ns +=
                    faults * price.fault_ns + moved / size.small_pages() * price.move_ns[size as usize];
                state.faults.count(group, touched - moved, from, node, private, from == node);
                state.faults.count(group, moved, node, node, private, false);
                group.touched(size, from, pages, node, touched, moved);
            }
        }
        self.hint_faults += result.faults;
        self.hint_faults_local += result.local;
        self.pages_migrated += result.migrated;
        result
    }

    /// The task has faulted: brings its statistics up to date, and returns the node that it should be moved
    /// to, if it is time to try that.
    fn preference(&mut self, vm: VmId, task: TaskId, now_ns: u64) -> Option<NodePreference> {
        let state = &mut self.tasks[task.index()];
        if now_ns <= state.retry_ns {
            return None;
        }
        let group = &mut self.groups[vm.index()];
        let space = &mut self.spaces[state.space];
        if state.faults.place(group, space, &mut state.scan, state.run_ns, now_ns) {
            state.preferred = group.busiest_node().or(state.preferred);
        }
        let node = state.preferred?;
        let period_ns = state.scan.period_ms * 1_000_000;
        state.retry_ns = now_ns + RETRY_MAX_NS.min(period_ns / 16);
        Some(NodePreference { node, weights: group.weights(), is_alone: group.tasks == 1 })
    }
}

impl Balanced {
    fn new(nodes: usize, space: usize) -> Self {
        Self {
            space,
            scan: Scan::new(),
            faults: TaskFaults::new(nodes),
            preferred: None,
            retry_ns: 0,
            seen_run_ns: 0,
            pending_ns: 0,
            run_ns: 0,
        }
    }

    /// Its metrics now show this run time.
    fn ran(&mut self, run_ns: u64) {
        let ran_ns = run_ns.saturating_sub(self.seen_run_ns);
        self.seen_run_ns = run_ns;
        self.pending_ns += ran_ns;
        self.run_ns += ran_ns;
    }
}

impl NumaBalancing {
    /// A tick on a CPU of the host whose time is settled: the task on it has touched pages, and marks others.
    /// The policy may ask for something.
    #[cold]
    pub fn tick(&mut self, kernels: &mut Kernels, processors: &mut Processors, pcpu: CpuId, now_ns: u64) {
        let Some(task) = kernels.host()[pcpu].current else { return };
        let state = &kernels.host()[task];
        let (vm, run_ns) = (state.vm, state.metrics.run_ns);
        if !self.may_move(vm) {
            return;
        }
        self.tasks[task.index()].ran(run_ns);
        let touched = self.touched(kernels, processors, pcpu, vm, task);
        let faulted = self.touch(processors.hardware.memory_mut(), touched);
        let wish = if faulted.faults > 0.0 { self.preference(vm, task, now_ns) } else { None };
        let marking_ns = self.mark(kernels, processors.hardware.memory(), vm, task, now_ns);
        let cost_ns = faulted.cost_ns as u64 + marking_ns;
        if cost_ns > 0 {
            processors.charge(kernels, CpuRef::host(pcpu), cost_ns);
        }
        if let Some(wish) = wish {
            let host = kernels.host_mut();
            let settled = host.ask(now_ns, |policy, ctx| policy.prefer_node(ctx, pcpu, task, wish));
            self.tasks[task.index()].preferred = settled;
        }
    }

    /// What the task on the CPU has touched since its last tick. Its faults have kept it from touching more.
    fn touched(
        &mut self,
        kernels: &Kernels,
        processors: &Processors,
        pcpu: CpuId,
        vm: VmId,
        task: TaskId,
    ) -> Touched {
        let state = &mut self.tasks[task.index()];
        let tick_ns = kernels.host().policy().tick_period_ns();
        let ran_ns = state.pending_ns.min(tick_ns);
        state.pending_ns -= ran_ns;
        let processor = &processors[pcpu];
        let profile = processor.executes.map_or(ProfileId::NONE, |task| kernels[task].footprint.profile);
        let touches_per_ns =
            processors.hardware.profile(profile).memory_lines_per_us / 1e3 / processor.speed.steady_slowdown;
        let node = processors.hardware.machine().cpu(pcpu).node;
        let fault_ns = touches_per_ns * self.spaces[state.space].touch_ns(node, &self.prices[vm.index()]);
        Touched {
            vm,
            task,
            node,
            touches: touches_per_ns * ran_ns as f64 / (1.0 + fault_ns),
            time_max_ns: tick_ns as f64,
        }
    }

    /// Lets the task mark pages if it is time for that; how long that takes, ns.
    fn mark(&mut self, kernels: &Kernels, memory: &MemoryState, vm: VmId, task: TaskId, now_ns: u64) -> u64 {
        let state = &mut self.tasks[task.index()];
        let (space, group) = (&mut self.spaces[state.space], &self.groups[vm.index()]);
        let clocks =
            Clocks { run_ns: state.run_ns, now_ns, tick_ns: kernels.host().policy().tick_period_ns() };
        let pages_on = |node, size| memory.pages_on(vm, node, size);
        let entries = state.scan.tick(space, group, memory.pages(vm), pages_on, clocks);
        let marking_ns = (entries * self.prices[vm.index()].mark_ns) as u64;
        if self.rests {
            state.scan.rest(marking_ns);
        }
        marking_ns
    }
}
