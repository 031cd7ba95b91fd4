//! Homes of VMs that are chosen while the scenario runs: by placement when they start, or by an agent, which looks now and
//! then.
//!
//! The agent sees what one on a real host sees: which VMs there are, how long their vCPUs ran or waited, where they may run,
//! where their memory lies, and what is free. It is told at once when a VM starts, as by a hook of the toolstack. Its own
//! work takes no CPU time.

use super::event_queue::NEVER;
use super::simulation::Simulation;
use crate::kernel::{Task, TaskState};
use crate::metrics::HomeMove;
use crate::scenario::Homes;
use crate::trace::Observer;
use std::sync::Arc;
use tandem_machine::cpumask::CpuMask;
use tandem_machine::homes::{Decision, Home, HomeRequest, HomeSettings, Planner, View, VmView};
use tandem_machine::ids::{NodeId, TaskId, VmId};
use tandem_machine::placement::{self, Occupancy, PlacementOutcome, Request};

/// An agent while it runs.
pub(super) struct Agent {
    planner: Planner,
    last_look_ns: u64,
    /// By VM.
    known: Vec<Known>,
    /// What it did with homes that VMs had, since the measuring started.
    pub moves: Vec<HomeMove>,
}

/// What the agent knows of a VM.
#[derive(Clone, Default)]
struct Known {
    home: Option<Home>,
    /// Whether it was there at the last look.
    was_seen: bool,
    demand: Option<f64>,
    /// Time that its vCPUs had run or waited when that was read last, ns, since the measuring of tasks began.
    awake_ns: u64,
    /// The same between the last look and that beginning, ns.
    awake_before_ns: u64,
}

impl Agent {
    /// The one of the settings, if there is one.
    pub fn new(homes: Homes, vms: usize) -> Option<Self> {
        let Homes::Agent(settings) = homes else { return None };
        Some(Self {
            planner: Planner::new(settings),
            last_look_ns: 0,
            known: vec![Known::default(); vms],
            moves: Vec::new(),
        })
    }

    fn settings(&self) -> &HomeSettings {
        self.planner.settings()
    }
}

/// Time that a task has run or waited since it began to be measured, ns.
fn awake_ns(task: &Task, now_ns: u64) -> u64 {
    let sleeps = matches!(task.state, TaskState::New | TaskState::Blocked | TaskState::Exited);
    let sleeping_ns = if sleeps { now_ns.saturating_sub(task.blocked_since_ns) } else { 0 };
    (now_ns - task.measured_since_ns).saturating_sub(task.metrics.sleep_ns + sleeping_ns)
}

impl<O: Observer> Simulation<'_, O> {
    /// When the agent looks next, ns.
    pub fn next_look_ns(&self, now_ns: u64) -> u64 {
        self.agent.as_ref().map_or(NEVER, |agent| now_ns + agent.settings().look_interval_ns)
    }

    /// The agent looks.
    pub fn look(&mut self, now_ns: u64) {
        let Some(mut agent) = self.agent.take() else { return };
        let passed_ns = (now_ns - agent.last_look_ns).max(1);
        agent.last_look_ns = now_ns;
        for vm in (0..self.vms.len()).map(VmId::from) {
            let awake_ns = self.awake_ns(vm, now_ns);
            let is_there = self.vms[vm.index()].is_there;
            let known = &mut agent.known[vm.index()];
            let spent_ns = known.awake_before_ns + awake_ns.saturating_sub(known.awake_ns);
            known.demand = known.was_seen.then(|| spent_ns as f64 / passed_ns as f64).filter(|_| is_there);
            (known.was_seen, known.awake_ns, known.awake_before_ns) = (is_there, awake_ns, 0);
        }
        let decisions = self.ask_agent(&mut agent, now_ns, Planner::plan);
        self.carry_out(&mut agent, decisions, now_ns);
        self.agent = Some(agent);
    }

    /// The tasks begin to be measured anew.
    pub fn agent_reads_clocks(&mut self, now_ns: u64) {
        let Some(mut agent) = self.agent.take() else { return };
        for vm in (0..self.vms.len()).map(VmId::from) {
            let known = &mut agent.known[vm.index()];
            known.awake_before_ns += self.awake_ns(vm, now_ns).saturating_sub(known.awake_ns);
            known.awake_ns = 0;
        }
        agent.moves.clear();
        self.agent = Some(agent);
    }

    fn awake_ns(&self, vm: VmId, now_ns: u64) -> u64 {
        let tasks = self.system.kernels.host().tasks().all();
        self.tasks_of(vm).map(|task| awake_ns(&tasks[task], now_ns)).sum()
    }

    /// Chooses a home for a VM that starts, lets its vCPUs heed it, and tells its nodes; none if it has none.
    pub fn choose_home(&mut self, vm: VmId, now_ns: u64) -> Vec<NodeId> {
        let is_pinned = match self.scenario.homes {
            Homes::Given => return Vec::new(),
            Homes::Pin => true,
            Homes::Prefer => false,
            Homes::Agent(_) => {
                let Some(mut agent) = self.agent.take() else { return Vec::new() };
                let decisions = self.ask_agent(&mut agent, now_ns, |planner, view| planner.place(view));
                self.carry_out(&mut agent, decisions, now_ns);
                let nodes = agent.known[vm.index()].home.as_ref().map(|home| home.nodes.clone());
                self.agent = Some(agent);
                return nodes.unwrap_or_default();
            }
        };
        let spec = &self.scenario.vms[vm.index()];
        let request = Request { vcpus: spec.vcpus.len() as u32, memory_bytes: spec.memory_bytes };
        match placement::place(&self.scenario.machine, &self.occupancy(vm), request) {
            PlacementOutcome::Placed(placed) => {
                let nodes = placed.best().nodes.clone();
                self.settle_on(vm, &nodes, is_pinned, now_ns);
                nodes
            }
            PlacementOutcome::Skipped(_) | PlacementOutcome::NoCandidate(_) => Vec::new(),
        }
    }

    /// The VM has ended, and its home with it.
    pub fn forget_home(&mut self, vm: VmId) {
        if let Some(agent) = &mut self.agent {
            agent.known[vm.index()] = Known::default();
        }
    }

    /// An administrator has changed where a VM may run: its home holds as far as that allows.
    pub fn keep_home(&mut self, vm: VmId, now_ns: u64) {
        let home = self.agent.as_ref().and_then(|agent| agent.known[vm.index()].home.clone());
        if let Some(home) = home {
            self.settle_on(vm, &home.nodes, false, now_ns);
        }
    }

    /// Share of a VM's memory on each node when it starts with that home; none if it is empty.
    pub fn shares_at_start(&self, vm: VmId, home: &[NodeId]) -> Vec<f64> {
        let spec = &self.scenario.vms[vm.index()];
        match spec.memory_at_home && !home.is_empty() {
            true => placement::memory_shares(home, &self.scenario.machine),
            false => spec.memory_shares.clone(),
        }
    }

    /// What the VMs that are there, but this one, leave to placement.
    fn occupancy(&self, except: VmId) -> Occupancy {
        let mut occupancy = Occupancy::with_free_memory(&self.system.processors.memory().free_bytes());
        for (vm, state) in self.vms.iter().enumerate().filter(|(_, state)| state.is_there) {
            if vm != except.index() {
                let vcpus = self.scenario.vms[vm].vcpus.len() as u32;
                let tasks = self.system.kernels.host().tasks().facts();
                let facts = &tasks[state.first_vcpu.index()];
                let runs_on = self.nodes_of(facts.soft_affinity.as_deref().unwrap_or(&facts.hard_affinity));
                let added = occupancy.add(Request { vcpus, memory_bytes: 0 }, &runs_on);
                debug_assert!(added.is_ok(), "no memory always fits");
            }
        }
        occupancy
    }

    /// Shows the host to the agent's planner.
    fn ask_agent(
        &self,
        agent: &mut Agent,
        now_ns: u64,
        question: impl FnOnce(&mut Planner, &View<'_>) -> Vec<Decision>,
    ) -> Vec<Decision> {
        let there = self.vms.iter().enumerate().filter(|(_, state)| state.is_there);
        let vms: Vec<VmView> = there.map(|(vm, _)| self.vm_view(vm.into(), &agent.known[vm])).collect();
        let free_bytes = self.system.processors.memory().free_bytes();
        let machine = &self.scenario.machine;
        question(&mut agent.planner, &View { machine, free_bytes: &free_bytes, vms: &vms, now_ns })
    }

    fn vm_view(&self, vm: VmId, known: &Known) -> VmView {
        let spec = &self.scenario.vms[vm.index()];
        let facts = self.system.kernels.host().tasks().facts();
        let machine = &self.scenario.machine;
        let not_isolated = |task: usize| facts[task].hard_affinity.iter_and(machine.housekeeping_cpus());
        let may_use = CpuMask::from_cpus(machine.cpu_count(), self.tasks_of(vm).flat_map(not_isolated));
        VmView {
            id: vm.index() as u64,
            vcpus: self.tasks_of(vm).filter(|&task| not_isolated(task).next().is_some()).count() as u32,
            memory_bytes: spec.memory_bytes,
            resident_bytes: self.system.processors.memory().resident_bytes(vm),
            demand: known.demand,
            allowed: self.nodes_of(&may_use),
            devices: Vec::new(),
            request: if spec.is_placed { HomeRequest::Any } else { HomeRequest::Exempt },
            home: known.home.clone(),
            part: None,
        }
    }

    fn carry_out(&mut self, agent: &mut Agent, decisions: Vec<Decision>, now_ns: u64) {
        for Decision { vm, nodes, reason } in decisions {
            let vm = VmId::from(vm as usize);
            self.settle_on(vm, &nodes, false, now_ns);
            let home = (!nodes.is_empty()).then_some(Home { nodes, since_ns: now_ns });
            let before = std::mem::replace(&mut agent.known[vm.index()].home, home);
            if before.is_some() {
                agent.moves.push(HomeMove { at_ns: now_ns, vm, reason });
            }
        }
    }

    /// Lets the vCPUs of a VM prefer these nodes, or be pinned there, as far as they may use them.
    fn settle_on(&mut self, vm: VmId, nodes: &[NodeId], is_pinned: bool, now_ns: u64) {
        let machine = &self.scenario.machine;
        let cpus =
            nodes.iter().flat_map(|&node| machine.node_cpus(node).iter_and(machine.housekeeping_cpus()));
        let cpus = CpuMask::from_cpus(machine.cpu_count(), cpus);
        for task in self.tasks_of(vm) {
            let hard = &self.system.kernels.host().tasks().facts()[task].hard_affinity;
            let usable = Arc::new(cpus.and(hard));
            let (hard, soft) = match usable.is_empty() {
                true => (hard.clone(), None),
                false if is_pinned => (usable, None),
                false => (hard.clone(), Some(usable)),
            };
            self.system.change_affinity(TaskId::from(task), hard, soft, now_ns);
        }
    }

    fn nodes_of(&self, cpus: &CpuMask) -> Vec<NodeId> {
        let nodes = placement::usable_nodes(&self.scenario.machine).into_iter();
        nodes.filter(|&node| self.scenario.machine.node_cpus(node).intersects(cpus)).collect()
    }
}
