//! Which NUMA nodes are the home of each VM, while VMs come and go and their load changes.
//!
//! **Problem.** [`crate::placement`] chooses nodes once, for a new VM, by counting vCPUs. Later a node is
//! crowded because idle VMs have begun to work, or empty because others have ended, or memory has been moved.
//! But a home that follows every change is worse than one that stays: memory does not move with it, and
//! caches have to be refilled.
//!
//! **Approach.** A [`Planner`] gets the VMs as an agent on the host observes them ([`View`]), and answers
//! with [`Decision`]s. Everything that a choice costs is [estimated](estimate) in one unit, CPUs: CPU time
//! lost per second.
//! 1. *Must*: a home outside the nodes that the VM may use, or other than the configuration requests, is
//!    corrected at once.
//! 2. *New VMs*, the largest first, get as few nodes as have enough CPUs and memory, as with libxl; of all
//!    such combinations the one that loses the least CPU time. Ties are broken by the CPU time that VMs
//!    demand of the nodes, then by free memory, then by the nodes' numbers.
//! 3. *Moves*: at most one per scan, of the VM that gains most. A VM with demand *d* may move if its gain is
//!    more than *d* x (refill / horizon + least gain), was so for the same nodes in several consecutive
//!    scans, and its home has been the same for the rest time. See [`HomeSettings`].
//! 4. VMs that are to be isolated come before all of that: of two choices, the one with fewer pairs of an
//!    isolated VM and another home on the same node is better. A move that separates such a pair needs no
//!    other gain.
//!
//! So a VM moves at most once in a rest time, and all together once per scan. While nothing changes, each
//! move reduces the number of such pairs, or keeps it and reduces the lost time by at least the least gain:
//! moves come to an end.
//!
//! **Isolated CPUs** ([`Machine::isolated`]) are for tasks that are pinned to them. They are not part of a
//! node's capacity; a node without other CPUs is no VM's home. vCPUs that may use no others demand nothing of
//! the rest: the view of a VM leaves them out.
//!
//! **Virtual nodes** of a VM have homes of their own: see [`parts`].
//!
//! **Memory** does not move with a home. Memory that a VM has not touched yet will lie there, by first touch.
//! Memory that it has touched stays, unless the agent moves what [is worth it](far_memory), or another
//! program does (`migratepages`); the estimate counts on neither. If memory moves, the home follows.
//!
//! **Limits.** All VMs are assumed to wait for memory equally much. Bandwidth of memory and links, sizes of
//! caches, and clocks do not count. A home has as many nodes as when it was chosen, until its CPUs no longer
//! suffice. Machines with one node, or with more than [`MAX_NODES`](crate::placement::MAX_NODES), have no
//! homes.

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
    /// Time between two scans, ns. The agent keeps the interval, not the planner.
    pub look_interval_ns: u64,
    /// Number of consecutive scans in which a move must have been worth it. At least 1.
    pub looks_in_a_row: u32,
    /// Time within which a move must pay, ns. Demand is smoothed over the same time.
    pub horizon_ns: u64,
    /// Least time that a VM keeps a home, ns.
    pub rest_ns: u64,
    /// What a move must gain beyond its cost, in percent of the VM's demand.
    pub gain_min_pct: u32,
}

impl Default for HomeSettings {
    /// Chosen, not measured. A scan reads some files for each VM, and demand over ten seconds is more than a
    /// burst. The least gain is what a VM loses on the machines of `machine::preset` with a quarter of its
    /// memory far away.
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

/// A machine and its VMs, as an agent observes them at one time.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// Free memory of each node, bytes.
    pub free_bytes: &'a [u64],
    /// All VMs, in any order.
    pub vms: &'a [VmView],
    /// The time of the observation, ns, by a clock that does not go back.
    pub now_ns: u64,
}

/// A VM, or a virtual node of one, as an agent observes it.
#[derive(Clone, Debug, PartialEq)]
pub struct VmView {
    /// The agent's number for it, which no earlier VM had.
    pub id: u64,
    /// Number of vCPUs that may use CPUs which are not isolated.
    pub vcpus: u32,
    /// Memory that it may come to use, bytes.
    pub memory_bytes: u64,
    /// Memory that it has on each node, bytes.
    pub resident_bytes: Vec<u64>,
    /// CPUs that its vCPUs ran on and waited for, on average since the last scan; `None` if it did not exist
    /// then, or has not been measured yet: every vCPU counts as busy.
    pub demand: Option<f64>,
    /// Nodes that it may use, by its cpuset and affinities; empty: all.
    pub allowed: Vec<NodeId>,
    /// Nodes of the devices that are passed through to it.
    pub devices: Vec<NodeId>,
    /// What the configuration requests for it.
    pub request: HomeRequest,
    /// Its home, if it has one.
    pub home: Option<Home>,
    /// Its virtual node, if it is one of several of a VM.
    pub part: Option<Part>,
}

impl VmView {
    /// A VM that is about to start on a machine with this many nodes: it has touched no memory, has not been
    /// measured, and may live anywhere.
    pub fn starting(id: u64, request: Request, nodes: usize) -> Self {
        Self {
            id,
            vcpus: request.vcpus,
            memory_bytes: request.memory_bytes,
            resident_bytes: vec![0; nodes],
            demand: None,
            allowed: Vec::new(),
            devices: Vec::new(),
            request: HomeRequest::Any,
            home: None,
            part: None,
        }
    }
}

/// The home that the configuration requests for a VM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HomeRequest {
    /// The best nodes.
    #[default]
    Any,
    /// On these nodes, as far as it may use them.
    Nodes(Vec<NodeId>),
    /// On nodes that are no other VM's home, as far as possible.
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
    /// Its nodes from now on, ascending; empty if it is to have no home.
    pub nodes: Vec<NodeId>,
    /// Why.
    pub reason: Reason,
}

/// Chooses homes, scan by scan. The same views in the same order give the same decisions.
#[derive(Clone, Debug)]
pub struct Planner {
    settings: HomeSettings,
    /// VMs that would be better off elsewhere.
    wants: BTreeMap<u64, Want>,
    /// Demand of each VM over many scans.
    demands: BTreeMap<u64, Demand>,
}

/// A VM's demand over the time within which a home must pay: the mean of its scans at first, later smoothed
/// over as many as there are in the horizon. A VM that pauses does not count as idle.
#[derive(Clone, Copy, Debug)]
struct Demand {
    cpus: f64,
    /// The number of scans averaged, at most those of the horizon.
    scans: u64,
}

/// Where a VM would be better off.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Want {
    nodes: Vec<NodeId>,
    /// The number of consecutive scans.
    scans: u32,
}

/// A choice of nodes: the smaller is better. Numbers of pairs, millionths of a CPU, thousandths of a CPU,
/// bytes.
type Rank = (usize, i64, i64, Reverse<u64>, Vec<NodeId>);

/// A move that is worth it.
struct Move {
    at: usize,
    nodes: Vec<NodeId>,
    /// Reduction in pairs of an isolated VM and another home.
    pairs: usize,
    gain: f64,
}

impl Planner {
    /// A planner that has seen no VM.
    pub fn new(settings: HomeSettings) -> Self {
        Self { settings, wants: BTreeMap::new(), demands: BTreeMap::new() }
    }

    /// Its settings.
    pub fn settings(&self) -> &HomeSettings {
        &self.settings
    }

    /// Decisions that cannot wait for the next scan: homes for VMs that have none, and for VMs whose home is
    /// not allowed. The agent should ask when a VM starts, before it touches its memory, if the agent learns
    /// of that.
    ///
    /// # Panics
    /// If the view has free memory, or memory of a VM, for another number of nodes than the machine has.
    pub fn place(&self, view: &View) -> Vec<Decision> {
        self.settle(&mut self.situation(view))
    }

    /// Decisions of a scan: those of [`Planner::place`], and a move if one is worth it.
    ///
    /// # Panics
    /// As [`Planner::place`].
    pub fn plan(&mut self, view: &View) -> Vec<Decision> {
        self.remember(view);
        let mut situation = self.situation(view);
        let mut decisions = self.settle(&mut situation);
        let mut wants = BTreeMap::new();
        let mut best: Option<Move> = None;
        for at in 0..situation.vms.len() {
            let Some(worth) = self.worth_moving(&situation, at) else { continue };
            let VmView { id, home, .. } = situation.vms[at].view;
            let before = self.wants.get(id).filter(|want| want.nodes == worth.nodes);
            let scans = before.map_or(0, |want| want.scans) + 1;
            wants.insert(*id, Want { nodes: worth.nodes.clone(), scans });
            let is_better =
                |than: &Move| worth.pairs.cmp(&than.pairs).then(worth.gain.total_cmp(&than.gain)).is_gt();
            let since_ns = home.as_ref().map_or(0, |home| home.since_ns);
            let has_rested = view.now_ns.saturating_sub(since_ns) >= self.settings.rest_ns;
            if has_rested && scans >= self.settings.looks_in_a_row && best.as_ref().is_none_or(is_better) {
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

    /// Updates the demand of the VMs with that since the last scan.
    fn remember(&mut self, view: &View) {
        let before = std::mem::take(&mut self.demands);
        let remembered = (self.settings.horizon_ns / self.settings.look_interval_ns.max(1)).max(1);
        for vm in view.vms {
            let known = before.get(&vm.id);
            let demand = match (vm.demand, known) {
                (Some(now), Some(&Demand { cpus, scans })) => {
                    let scans = (scans + 1).min(remembered);
                    Some(Demand { cpus: cpus + (now - cpus) / scans as f64, scans })
                }
                (Some(cpus), None) => Some(Demand { cpus, scans: 1 }),
                (None, known) => known.copied(),
            };
            self.demands.extend(demand.map(|demand| (vm.id, demand)));
        }
    }

    fn situation<'a>(&self, view: &View<'a>) -> Situation<'a> {
        Situation::new(view, |vm| self.demands.get(&vm.id).map(|demand| demand.cpus).or(vm.demand))
    }

    /// Corrects homes that are not allowed, and finds homes for new VMs.
    fn settle(&self, situation: &mut Situation<'_>) -> Vec<Decision> {
        let mut decisions = Vec::new();
        let mut homeless = Vec::new();
        for at in 0..situation.vms.len() {
            let vm = &situation.vms[at];
            let requested = situation.requested(at);
            let must = match &vm.view.request {
                HomeRequest::Exempt => Some(Vec::new()),
                HomeRequest::Nodes(_) if vm.view.part.is_none() && !requested.is_empty() => Some(requested),
                HomeRequest::Any | HomeRequest::Nodes(_) | HomeRequest::Isolated => None,
            };
            if let Some(nodes) = must {
                let had = vm.view.home.as_ref().map_or(&[][..], |home| &home.nodes);
                if nodes != had {
                    let reason = Reason::requested(situation, &nodes);
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

    /// The move that would gain the VM more than it costs, if there is one.
    fn worth_moving(&self, situation: &Situation<'_>, at: usize) -> Option<Move> {
        let vm = &situation.vms[at];
        // A decision of this scan is not reversed.
        vm.view.home.as_ref().filter(|home| home.nodes == vm.home)?;
        let may_move = match vm.view.request {
            HomeRequest::Any | HomeRequest::Isolated => true,
            HomeRequest::Nodes(_) => vm.view.part.is_some() || situation.requested(at).is_empty(),
            HomeRequest::Exempt => false,
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

/// The quality of a choice of nodes for a VM.
fn rank(situation: &Situation<'_>, at: usize, others: &Others, nodes: Vec<NodeId>) -> Rank {
    let lost = situation.lost(at, others, &nodes);
    let asked: f64 = nodes.iter().map(|node| others.asked[node.index()]).sum();
    let free = nodes.iter().map(|node| others.free_bytes[node.index()]).fold(0, u64::saturating_add);
    let pairs = situation.pairs(at, &nodes);
    (pairs, (lost * MICRO).round() as i64, (asked * 1e3).round() as i64, Reverse(free), nodes)
}

/// The choices for a VM without a home.
struct Candidates {
    /// Empty if the machine gives no choice.
    nodes: Vec<Vec<NodeId>>,
    /// The nodes lack memory, so that only CPUs count.
    shortage: Option<Shortage>,
}

/// The nodes that a VM without a home may get, or why none have enough CPUs.
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
        // The VM has to live somewhere: memory that does not fit will lie farther away.
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

/// The best nodes for a VM without a home; `None` if there is nothing to choose from.
fn best_for_new(situation: &Situation<'_>, at: usize) -> Result<Vec<NodeId>, Option<Shortage>> {
    let others = situation.others(at);
    let choices = candidates(situation, at, &others).map_err(Some)?.nodes.into_iter();
    choices.map(|nodes| rank(situation, at, &others, nodes)).min().map(|best| best.4).ok_or(None)
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
