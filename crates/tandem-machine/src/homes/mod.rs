//! Which NUMA nodes are the home of each VM, while VMs come, go, and work now more, now less.
//!
//! **Problem.** [`crate::placement`] chooses nodes once, for a new VM, by counting vCPUs. Later a node is crowded because
//! idle VMs have begun to work, or empty because others have ended, or somebody has moved memory. But a home that follows
//! every change is worse than one that stays: memory does not come with it, and caches have to be filled again.
//!
//! **Approach.** A [`Planner`] is shown the VMs as an agent on the host can see them ([`View`]) and answers with
//! [`Decision`]s. Everything that a choice costs is [estimated](estimate) in one unit, CPUs: CPU time lost per second.
//! 1. *Must*: a home outside the nodes that the VM may use, or other than the configuration wishes, is put right at once.
//! 2. *New VMs*, the largest first, get as few nodes as have its CPUs and its memory, as with libxl; of all such
//!    combinations the one by which the least CPU time is lost. Equals are told apart by how much CPU time is asked of
//!    the nodes, then by free memory, then by the nodes' numbers.
//! 3. *Moves*: at most one a look, of the VM that gains most. A VM with demand *d* may move if what it gains is more than
//!    *d* x (refill / horizon + least gain), was so for the same nodes in several looks in a row, and its home has been
//!    the same for the rest time. See [`HomeSettings`].
//! 4. VMs that wish to be isolated come before all of that: of two choices, the one with fewer pairs of an isolated VM and
//!    another home on the same node is better. A move that separates such a pair needs no other gain.
//!
//! So a VM moves at most once in a rest time, and all together once a look. While nothing changes, each move makes the
//! number of such pairs smaller, or with as many of them the lost time by the least gain: moves come to an end.
//!
//! **Isolated CPUs** ([`Machine::isolated`]) are for those who are pinned to them. They are no part of what a node has, a node
//! without others is nobody's home, and vCPUs that may use no others ask nothing of the rest: a VM is shown without them.
//!
//! **Virtual nodes** of a VM have homes of their own: see [`parts`].
//!
//! **Memory** does not come with a home. What a VM has not touched yet will lie there, by first touch. What it has touched
//! stays, unless the agent moves what [is worth it](far_memory), or somebody else does (`migratepages`); the estimate
//! counts on neither. If it happens, the home follows.
//!
//! **Limits.** All VMs are taken to wait for memory equally much. Bandwidth of memory and links, and sizes of caches, do
//! not count, nor do clocks. A home has as many nodes as when it was chosen, until its CPUs no longer suffice. Machines
//! with one node, or with more than [`MAX_NODES`](crate::placement::MAX_NODES), have no homes.

mod estimate;
mod far_memory;
mod newcomer;
mod parts;
mod reason;
mod saving;

pub use estimate::{DEVICE_SHARE, MEMORY_SHARE, UNFAIR_SHARE};
pub use far_memory::FarMemory;
pub use newcomer::{CHOICES_MAX, Choice, Loss, Newcomer};
pub use parts::{Part, TOGETHER_SHARE};
pub use reason::{Fact, Reason};
pub use saving::{MEMORY_SHARE_LEAST, MEMORY_SHARE_MOST, Saving};

use crate::Machine;
use crate::ids::NodeId;
use crate::placement::{self, Occupancy, PlacementOutcome, Request, Shortage};
use estimate::{Others, Situation};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// How eagerly homes move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HomeSettings {
    /// Time between two looks, ns. The planner leaves keeping it to the agent.
    pub look_interval_ns: u64,
    /// In how many looks in a row a move must have been worth it. At least 1.
    pub looks_in_a_row: u32,
    /// Time over which a move must pay, ns. Demand is smoothed over as long.
    pub horizon_ns: u64,
    /// How long a VM keeps a home at least, ns.
    pub rest_ns: u64,
    /// What a move must gain beyond its cost, in percent of the VM's demand.
    pub gain_min_pct: u32,
}

impl Default for HomeSettings {
    /// Chosen, not measured. A look reads some files for each VM, and demand over ten seconds is more than a burst.
    /// The least gain is what a VM loses on the machines of `machine::preset` with a quarter of its memory far away.
    fn default() -> Self {
        Self {
            look_interval_ns: 10_000_000_000,
            looks_in_a_row: 3,
            horizon_ns: 300_000_000_000,
            rest_ns: 120_000_000_000,
            gain_min_pct: 5,
        }
    }
}

/// A machine and its VMs, as an agent sees them at one time.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// Free memory of each node, bytes.
    pub free_bytes: &'a [u64],
    /// All VMs, in any order.
    pub vms: &'a [VmView],
    /// When this is, ns, by a clock that does not go back.
    pub now_ns: u64,
}

/// A VM, or a virtual node of one, as an agent sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct VmView {
    /// The agent's number for it, never that of an earlier one.
    pub id: u64,
    /// Number of vCPUs that may use CPUs which are not isolated.
    pub vcpus: u32,
    /// Memory that it may come to use, bytes.
    pub memory_bytes: u64,
    /// Memory that it has on each node, bytes.
    pub resident_bytes: Vec<u64>,
    /// CPUs that its vCPUs ran on and waited for, on average since the last look; `None` if it was not there then, or has
    /// not been measured yet: every vCPU counts as busy.
    pub demand: Option<f64>,
    /// Nodes that it may use, by its cpuset and affinities; all if there are none.
    pub allowed: Vec<NodeId>,
    /// Nodes of the devices that are passed through to it.
    pub devices: Vec<NodeId>,
    /// What the configuration wishes for it.
    pub wish: Wish,
    /// Its home, if it has one.
    pub home: Option<Home>,
    /// What makes it one of several virtual nodes of a VM, if it is.
    pub part: Option<Part>,
}

impl VmView {
    /// One that is about to start on a machine of so many nodes: it has touched no memory, nobody has measured it, and it may live
    /// anywhere.
    pub fn starting(id: u64, request: Request, nodes: usize) -> Self {
        Self {
            id,
            vcpus: request.vcpus,
            memory_bytes: request.memory_bytes,
            resident_bytes: vec![0; nodes],
            demand: None,
            allowed: Vec::new(),
            devices: Vec::new(),
            wish: Wish::Any,
            home: None,
            part: None,
        }
    }
}

/// Where a VM is to live, by configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Wish {
    /// Wherever it is best.
    #[default]
    Any,
    /// On these nodes, as far as it may use them.
    Nodes(Vec<NodeId>),
    /// On nodes that are nobody else's home, as far as possible.
    Isolated,
    /// It gets no home.
    Exempt,
}

/// The home of a VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    /// Its nodes, ascending; at least one.
    pub nodes: Vec<NodeId>,
    /// Since when, ns.
    pub since_ns: u64,
}

/// A home for a VM.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The VM.
    pub vm: u64,
    /// Its nodes from now on, ascending; none if it is to have no home.
    pub nodes: Vec<NodeId>,
    /// Why.
    pub reason: Reason,
}

/// Chooses homes, look by look. The same views in the same order give the same decisions.
#[derive(Clone, Debug)]
pub struct Planner {
    settings: HomeSettings,
    /// VMs that would rather be elsewhere.
    wants: BTreeMap<u64, Want>,
    /// Demand of each VM over many looks.
    demands: BTreeMap<u64, Demand>,
}

/// What a VM asks for over the time that a home must pay: the mean of its looks at first, later smoothed over as many as there
/// are in the horizon. A VM that pauses is not taken for one that idles.
#[derive(Clone, Copy, Debug)]
struct Demand {
    cpus: f64,
    /// Looks that it is the mean of, at most those of the horizon.
    looks: u64,
}

/// Where a VM would rather be.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Want {
    nodes: Vec<NodeId>,
    /// In how many looks in a row.
    looks: u32,
}

/// A choice of nodes: what comes first is better. Numbers of pairs, millionths of a CPU, thousandths of a CPU, bytes.
type Rank = (usize, i64, i64, Reverse<u64>, Vec<NodeId>);

/// A move that is worth it.
struct Move {
    at: usize,
    nodes: Vec<NodeId>,
    /// Fewer pairs of an isolated VM and another home.
    pairs: usize,
    gain: f64,
}

impl Planner {
    /// One that has seen nothing.
    pub fn new(settings: HomeSettings) -> Self {
        Self { settings, wants: BTreeMap::new(), demands: BTreeMap::new() }
    }

    /// Its settings.
    pub fn settings(&self) -> &HomeSettings {
        &self.settings
    }

    /// What cannot wait for the next look: homes for VMs that have none, and homes that are not allowed. To be asked when a
    /// VM comes, before it touches its memory, if the agent gets to know that.
    ///
    /// # Panics
    /// If the view has free memory, or memory of a VM, for another number of nodes than the machine has.
    pub fn place(&self, view: &View) -> Vec<Decision> {
        self.settle(&mut self.situation(view))
    }

    /// A look: what [`Planner::place`] does, and a move if one is worth it.
    ///
    /// # Panics
    /// As [`Planner::place`].
    pub fn look(&mut self, view: &View) -> Vec<Decision> {
        self.remember(view);
        let mut situation = self.situation(view);
        let mut decisions = self.settle(&mut situation);
        let mut wants = BTreeMap::new();
        let mut best: Option<Move> = None;
        for at in 0..situation.vms.len() {
            let Some(worth) = self.worth_moving(&situation, at) else { continue };
            let VmView { id, home, .. } = situation.vms[at].view;
            let before = self.wants.get(id).filter(|want| want.nodes == worth.nodes);
            let looks = before.map_or(0, |want| want.looks) + 1;
            wants.insert(*id, Want { nodes: worth.nodes.clone(), looks });
            let is_better =
                |than: &Move| worth.pairs.cmp(&than.pairs).then(worth.gain.total_cmp(&than.gain)).is_gt();
            let since_ns = home.as_ref().map_or(0, |home| home.since_ns);
            let has_rested = view.now_ns.saturating_sub(since_ns) >= self.settings.rest_ns;
            if has_rested && looks >= self.settings.looks_in_a_row && best.as_ref().is_none_or(is_better) {
                best = Some(worth);
            }
        }
        self.wants = wants;
        if let Some(Move { at, nodes, gain, .. }) = best {
            let id = situation.vms[at].view.id;
            self.wants.remove(&id);
            let reason = Reason::of_move(&situation, at, &nodes, gain);
            situation.vms[at].home = nodes.clone();
            decisions.push(Decision { vm: id, nodes, reason });
        }
        decisions
    }

    /// Adds what the VMs have asked for since the last look to what is known of that.
    fn remember(&mut self, view: &View) {
        let before = std::mem::take(&mut self.demands);
        let remembered = (self.settings.horizon_ns / self.settings.look_interval_ns.max(1)).max(1);
        for vm in view.vms {
            let known = before.get(&vm.id);
            let demand = match (vm.demand, known) {
                (Some(now), Some(&Demand { cpus, looks })) => {
                    let looks = (looks + 1).min(remembered);
                    Some(Demand { cpus: cpus + (now - cpus) / looks as f64, looks })
                }
                (Some(cpus), None) => Some(Demand { cpus, looks: 1 }),
                (None, known) => known.copied(),
            };
            self.demands.extend(demand.map(|demand| (vm.id, demand)));
        }
    }

    fn situation<'a>(&self, view: &View<'a>) -> Situation<'a> {
        Situation::new(view, |vm| self.demands.get(&vm.id).map(|demand| demand.cpus).or(vm.demand))
    }

    /// Puts homes right that must be other ones, and finds homes for new VMs.
    fn settle(&self, situation: &mut Situation<'_>) -> Vec<Decision> {
        let mut decisions = Vec::new();
        let mut homeless = Vec::new();
        for at in 0..situation.vms.len() {
            let vm = &situation.vms[at];
            let wished = situation.wished(at);
            let must = match &vm.view.wish {
                Wish::Exempt => Some(Vec::new()),
                Wish::Nodes(_) if vm.view.part.is_none() && !wished.is_empty() => Some(wished),
                Wish::Any | Wish::Nodes(_) | Wish::Isolated => None,
            };
            if let Some(nodes) = must {
                let had = vm.view.home.as_ref().map_or(&[][..], |home| &home.nodes);
                if nodes != had {
                    let reason = Reason::wished(situation, &nodes);
                    decisions.push(Decision { vm: vm.view.id, nodes: nodes.clone(), reason });
                }
                situation.vms[at].home = nodes;
            } else if vm.home.is_empty() || !situation.is_possible(at) {
                situation.vms[at].home = Vec::new();
                homeless.push(at);
            }
        }
        homeless.sort_by_key(|&at| {
            let vm = situation.vms[at].view;
            (Reverse(vm.vcpus), Reverse(vm.memory_bytes), vm.id)
        });
        for at in homeless {
            let had = situation.vms[at].view.home.as_ref();
            let (nodes, reason) = match best_for_new(situation, at) {
                Ok(nodes) => (nodes.clone(), Reason::of_new(situation, at, &nodes)),
                Err(shortage) => (Vec::new(), Reason::none(shortage)),
            };
            if had.map_or(&[][..], |home| &home.nodes) != nodes {
                decisions.push(Decision { vm: situation.vms[at].view.id, nodes: nodes.clone(), reason });
            }
            situation.vms[at].home = nodes;
        }
        decisions
    }

    /// Where the VM would be better off by more than the move costs.
    fn worth_moving(&self, situation: &Situation<'_>, at: usize) -> Option<Move> {
        let vm = &situation.vms[at];
        // What was decided just now is not taken back.
        vm.view.home.as_ref().filter(|home| home.nodes == vm.home)?;
        let may_move = match vm.view.wish {
            Wish::Any | Wish::Isolated => true,
            Wish::Nodes(_) => vm.view.part.is_some() || situation.wished(at).is_empty(),
            Wish::Exempt => false,
        };
        if !may_move {
            return None;
        }
        let others = situation.others(at);
        let stay = rank(situation, at, &others, vm.home.clone());
        let choices = placement::combinations(&vm.choices, vm.home.len());
        let choices = choices.filter(|nodes| situation.has_cpus(at, nodes));
        let best = choices.map(|nodes| rank(situation, at, &others, nodes)).min()?;
        let gain = (stay.1 - best.1) as f64 / MICRO;
        let refill = situation.refill_ns / self.settings.horizon_ns.max(1) as f64;
        let needed = vm.demand * (refill + f64::from(self.settings.gain_min_pct) / 100.0);
        let is_worth_it = best.0 < stay.0 || best.0 == stay.0 && gain > needed;
        is_worth_it.then(|| Move { at, nodes: best.4, pairs: stay.0 - best.0, gain })
    }
}

/// Costs are compared in millionths of a CPU, so that no rounding decides.
const MICRO: f64 = 1e6;

/// How good a choice of nodes is for a VM.
fn rank(situation: &Situation<'_>, at: usize, others: &Others, nodes: Vec<NodeId>) -> Rank {
    let lost = situation.lost(at, others, &nodes);
    let asked: f64 = nodes.iter().map(|node| others.asked[node.index()]).sum();
    let free = nodes.iter().map(|node| others.free_bytes[node.index()]).fold(0, u64::saturating_add);
    let pairs = situation.pairs(at, &nodes);
    (pairs, (lost * MICRO).round() as i64, (asked * 1e3).round() as i64, Reverse(free), nodes)
}

/// What there is to choose from for a VM without a home.
struct Candidates {
    /// None if the machine gives no choice.
    nodes: Vec<Vec<NodeId>>,
    /// There is no room for its memory, so that only CPUs count.
    shortage: Option<Shortage>,
}

/// The nodes that a VM without a home may be given, or why there are none that have its CPUs.
fn candidates(situation: &Situation<'_>, at: usize, others: &Others) -> Result<Candidates, Shortage> {
    let vm = &situation.vms[at];
    let room: Vec<u64> = (others.free_bytes.iter().zip(&vm.view.resident_bytes))
        .map(|(free, own)| free.saturating_add(*own))
        .collect();
    let occupancy = Occupancy::with_free_memory(&room);
    let place = |memory_bytes| {
        let request = Request { vcpus: vm.view.vcpus, memory_bytes };
        placement::place_within(situation.machine, &occupancy, request, &vm.choices)
    };
    let (outcome, shortage) = match place(vm.view.memory_bytes) {
        // It has to live somewhere: what finds no room will lie farther away.
        PlacementOutcome::NoCandidate(shortage @ Shortage::Memory { .. }) => (place(0), Some(shortage)),
        outcome => (outcome, None),
    };
    let nodes = match outcome {
        PlacementOutcome::Skipped(_) => Vec::new(),
        PlacementOutcome::NoCandidate(_) if vm.is_narrowed() => vec![vm.choices.clone()],
        PlacementOutcome::NoCandidate(shortage) => return Err(shortage),
        PlacementOutcome::Placed(placed) => {
            placed.candidates().iter().map(|candidate| candidate.nodes.clone()).collect()
        }
    };
    Ok(Candidates { nodes, shortage })
}

/// The best nodes for a VM without a home; none if there is nothing to choose from.
fn best_for_new(situation: &Situation<'_>, at: usize) -> Result<Vec<NodeId>, Option<Shortage>> {
    let others = situation.others(at);
    let choices = candidates(situation, at, &others).map_err(Some)?.nodes.into_iter();
    choices.map(|nodes| rank(situation, at, &others, nodes)).min().map(|best| best.4).ok_or(None)
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
