//! Homes of VMs that are chosen while the scenario runs: by placement when they start, or by an agent, which
//! scans the host at intervals.
//!
//! The agent sees what one on a real host sees: which VMs there are, how long their vCPUs ran or waited,
//! where they may run, where their memory lies, and what is free. It learns at once that a VM starts, as by a
//! hook of the toolstack. Its own work takes no CPU time.

use super::event_queue::NEVER;
use super::vm::VmState;
use crate::kernel::System;
use crate::metrics::HomeMove;
use crate::scenario::{Homes, Scenario};
use crate::trace::Observer;
use std::sync::Arc;
use tandem_machine::Machine;
use tandem_machine::cpumask::CpuMask;
use tandem_machine::homes::{Decision, Home, HomeRequest, Planner, View, VmView};
use tandem_machine::ids::{NodeId, TaskId, VmId};
use tandem_machine::placement::{self, Occupancy, PlacementOutcome, Request};

/// Chooses homes as the scenario says.
pub(super) struct HomeKeeper<'a> {
    scenario: &'a Scenario,
    /// For [`Homes::Agent`].
    agent: Option<Agent>,
}

/// An agent while it runs.
struct Agent {
    planner: Planner,
    last_scan_ns: u64,
    /// By VM.
    known: Vec<Known>,
    /// What it did with homes that VMs had, since the measuring started.
    moves: Vec<HomeMove>,
}

/// What the agent knows of a VM.
#[derive(Clone, Default)]
struct Known {
    home: Option<Home>,
    /// Whether it was there at the last scan.
    was_seen: bool,
    demand: Option<f64>,
    /// Time that its vCPUs had run or waited when that was read last, ns, since the measuring of tasks began.
    awake_ns: u64,
    /// The same between the last scan and that beginning, ns.
    awake_before_ns: u64,
}

impl<'a> HomeKeeper<'a> {
    pub fn new(scenario: &'a Scenario) -> Self {
        let agent = match scenario.homes {
            Homes::Agent(settings) => Some(Agent {
                planner: Planner::new(settings),
                last_scan_ns: 0,
                known: vec![Known::default(); scenario.workloads.len()],
                moves: Vec::new(),
            }),
            Homes::Given | Homes::Pin | Homes::Prefer => None,
        };
        Self { scenario, agent }
    }

    /// When the agent scans the host next, ns.
    pub fn next_scan_ns(&self) -> u64 {
        self.agent
            .as_ref()
            .map_or(NEVER, |agent| agent.last_scan_ns + agent.planner.settings().look_interval_ns)
    }

    /// The agent reads how busy the VMs are, and moves homes.
    pub fn scan<O: Observer>(&mut self, system: &mut System<O>, vms: &[VmState], now_ns: u64) {
        let Some(agent) = &mut self.agent else { return };
        let passed_ns = (now_ns - agent.last_scan_ns).max(1);
        agent.last_scan_ns = now_ns;
        for (vm, known) in vms.iter().zip(&mut agent.known) {
            let awake_ns = awake_ns(system, vm, now_ns);
            let spent_ns = known.awake_before_ns + awake_ns.saturating_sub(known.awake_ns);
            known.demand = known.was_seen.then(|| spent_ns as f64 / passed_ns as f64).filter(|_| vm.is_there);
            (known.was_seen, known.awake_ns, known.awake_before_ns) = (vm.is_there, awake_ns, 0);
        }
        let mut host = Host { scenario: self.scenario, system, vms, now_ns };
        agent.act(&mut host, Planner::plan);
    }

    /// The tasks begin to be measured anew.
    pub fn read_clocks<O>(&mut self, system: &System<O>, vms: &[VmState], now_ns: u64) {
        let Some(agent) = &mut self.agent else { return };
        for (vm, known) in vms.iter().zip(&mut agent.known) {
            known.awake_before_ns += awake_ns(system, vm, now_ns).saturating_sub(known.awake_ns);
            known.awake_ns = 0;
        }
        agent.moves.clear();
    }

    /// Chooses a home for a VM that starts, and lets its vCPUs heed it. Returns its nodes; none if it has
    /// none.
    pub fn choose<O: Observer>(
        &mut self,
        system: &mut System<O>,
        vms: &[VmState],
        vm: VmId,
        now_ns: u64,
    ) -> Vec<NodeId> {
        let mut host = Host { scenario: self.scenario, system, vms, now_ns };
        if let Some(agent) = &mut self.agent {
            agent.act(&mut host, |planner, view| planner.place(view));
            return agent.home(vm).map_or_else(Vec::new, |home| home.nodes.clone());
        }
        let is_pinned = match self.scenario.homes {
            Homes::Given | Homes::Agent(_) => return Vec::new(),
            Homes::Pin => true,
            Homes::Prefer => false,
        };
        let nodes = host.place(vm);
        if !nodes.is_empty() {
            host.settle_on(vm, &nodes, is_pinned);
        }
        nodes
    }

    /// The VM has ended, and its home with it.
    pub fn forget(&mut self, vm: VmId) {
        if let Some(agent) = &mut self.agent {
            agent.known[vm.index()] = Known::default();
        }
    }

    /// An administrator has changed where a VM may run: its home holds as far as that allows.
    pub fn keep<O: Observer>(&self, system: &mut System<O>, vms: &[VmState], vm: VmId, now_ns: u64) {
        if let Some(home) = self.agent.as_ref().and_then(|agent| agent.home(vm)) {
            Host { scenario: self.scenario, system, vms, now_ns }.settle_on(vm, &home.nodes, false);
        }
    }

    /// What the agent did with homes that VMs had, since the measuring started.
    pub fn into_moves(self) -> Vec<HomeMove> {
        self.agent.map_or_else(Vec::new, |agent| agent.moves)
    }
}

impl Agent {
    fn home(&self, vm: VmId) -> Option<&Home> {
        self.known[vm.index()].home.as_ref()
    }

    /// Shows the host to the planner, and carries out what it decides.
    fn act<O: Observer>(
        &mut self,
        host: &mut Host<'_, O>,
        question: impl FnOnce(&mut Planner, &View<'_>) -> Vec<Decision>,
    ) {
        let there = host.vms.iter().enumerate().filter(|(_, vm)| vm.is_there);
        let vms: Vec<VmView> = there.map(|(vm, _)| host.vm_view(vm.into(), &self.known[vm])).collect();
        let free_bytes = host.system.processors.hardware().memory().free_bytes();
        let machine = &host.scenario.machine;
        let view = View { machine, free_bytes: &free_bytes, vms: &vms, now_ns: host.now_ns };
        for Decision { vm, nodes, reason } in question(&mut self.planner, &view) {
            let vm = VmId::from(vm as usize);
            host.settle_on(vm, &nodes, false);
            let home = (!nodes.is_empty()).then_some(Home { nodes, since_ns: host.now_ns });
            let before = std::mem::replace(&mut self.known[vm.index()].home, home);
            if before.is_some() {
                self.moves.push(HomeMove { at_ns: host.now_ns, vm, reason });
            }
        }
    }
}

/// Time that the vCPUs of a VM have run or waited since their measuring began, ns.
fn awake_ns<O>(system: &System<O>, vm: &VmState, now_ns: u64) -> u64 {
    let tasks = &system.kernels.host().tasks().all()[vm.tasks()];
    tasks.iter().map(|task| task.awake_ns(now_ns)).sum()
}

/// The host with its VMs at an instant, as those that choose homes see and change it.
struct Host<'a, O> {
    scenario: &'a Scenario,
    system: &'a mut System<O>,
    vms: &'a [VmState],
    now_ns: u64,
}

impl<O: Observer> Host<'_, O> {
    /// Nodes with room for a VM that starts; none if there are none.
    fn place(&self, vm: VmId) -> Vec<NodeId> {
        let spec = &self.scenario.workloads[vm.index()];
        let request = Request { vcpus: spec.task_count() as u32, memory_bytes: spec.memory_bytes };
        match placement::place(&self.scenario.machine, &self.occupancy(vm), request) {
            PlacementOutcome::Placed(placed) => placed.best().nodes.clone(),
            PlacementOutcome::Skipped(_) | PlacementOutcome::NoCandidate(_) => Vec::new(),
        }
    }

    /// What the VMs that are there, but this one, leave to placement.
    fn occupancy(&self, except: VmId) -> Occupancy {
        let mut occupancy =
            Occupancy::with_free_memory(&self.system.processors.hardware().memory().free_bytes());
        let facts = self.system.kernels.host().tasks().facts();
        for (vm, state) in self.vms.iter().enumerate().filter(|(_, state)| state.is_there) {
            if vm != except.index() {
                let vcpus = self.scenario.workloads[vm].task_count() as u32;
                let machine = &self.scenario.machine;
                let cpus = facts[state.tasks()]
                    .iter()
                    .flat_map(|facts| facts.soft_affinity.as_deref().unwrap_or(&facts.hard_affinity).iter());
                let runs_on = nodes_of(machine, &CpuMask::from_cpus(machine.cpu_count(), cpus));
                let added = occupancy.add(Request { vcpus, memory_bytes: 0 }, &runs_on);
                debug_assert!(added.is_ok(), "no memory always fits");
            }
        }
        occupancy
    }

    fn vm_view(&self, vm: VmId, known: &Known) -> VmView {
        let spec = &self.scenario.workloads[vm.index()];
        let tasks = self.vms[vm.index()].tasks();
        let facts = self.system.kernels.host().tasks().facts();
        let machine = &self.scenario.machine;
        let not_isolated = |task: usize| facts[task].hard_affinity.iter_and(machine.housekeeping_cpus());
        let may_use = CpuMask::from_cpus(machine.cpu_count(), tasks.clone().flat_map(not_isolated));
        VmView {
            id: vm.index() as u64,
            vcpus: tasks.filter(|&task| not_isolated(task).next().is_some()).count() as u32,
            memory_bytes: spec.memory_bytes,
            resident_bytes: self.system.processors.hardware().memory().resident_bytes(vm),
            demand: known.demand,
            allowed: nodes_of(machine, &may_use),
            devices: Vec::new(),
            request: if spec.home().is_chosen() { HomeRequest::Any } else { HomeRequest::Exempt },
            home: known.home.clone(),
            part: None,
        }
    }

    /// Lets the vCPUs of a VM prefer these nodes, or be pinned there, as far as they may use them.
    fn settle_on(&mut self, vm: VmId, nodes: &[NodeId], is_pinned: bool) {
        let cpus = placement::home_cpus(nodes, &self.scenario.machine);
        for task in self.vms[vm.index()].tasks() {
            let hard = &self.system.kernels.host().tasks().facts()[task].hard_affinity;
            let usable = Arc::new(cpus.and(hard));
            let (hard, soft) = match usable.is_empty() {
                true => (hard.clone(), None),
                false if is_pinned => (usable, None),
                false => (hard.clone(), Some(usable)),
            };
            self.system.change_affinity(TaskId::from(task), hard, soft, self.now_ns);
        }
    }
}

/// Nodes of which VMs may use CPUs that are among these.
fn nodes_of(machine: &Machine, cpus: &CpuMask) -> Vec<NodeId> {
    let nodes = placement::usable_nodes(machine).into_iter();
    nodes.filter(|&node| machine.node_cpus(node).intersects(cpus)).collect()
}
