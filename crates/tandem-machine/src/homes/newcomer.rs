//! Where a VM that is about to start would live, and the alternatives.
//!
//! **Problem.** An operator who starts a VM wants to know beforehand which nodes it will get, and what others
//! would cost.
//!
//! **Approach.** The existing VMs get the homes that they should have now; then the new VM is one of the
//! view, as it will be when it has started. So the answer is the planner's own for the same view. Each choice
//! states how much more all VMs lose with the new one there than without it. How much a VM waits for memory
//! is unknown, so the loss is a range, as with [`Saving`](super::Saving).
//!
//! **Limits.** The choices have as few nodes as have room for the VM; larger ones are not evaluated. Until
//! the VM starts, others may move.

use super::estimate::{MEMORY_SHARE, Others, Situation};
use super::saving::{MEMORY_SHARE_LEAST, MEMORY_SHARE_MOST};
use super::{Home, MICRO, Planner, Reason, View, VmView, candidates, rank};
use crate::ids::NodeId;
use crate::placement::{Request, Shortage};

/// Most choices that are listed for a new VM: the best ones.
pub const CHOICES_MAX: usize = 10;

/// A VM that is about to start.
#[derive(Clone, Debug, PartialEq)]
pub struct Newcomer {
    /// The VM, with its home, and a number that no VM of the view has: input for the next one.
    pub vm: VmView,
    /// Why that is its home, or why it has none.
    pub reason: Reason,
    /// What its nodes lack: CPUs, so that it gets no home, or memory, so that only CPUs counted.
    pub shortage: Option<Shortage>,
    /// The number of combinations of nodes to choose from.
    pub choice_count: usize,
    /// The best choices, in their order: at most [`CHOICES_MAX`], the first is its home. Empty if there is
    /// nothing to choose from.
    pub choices: Vec<Choice>,
}

/// Nodes on which a new VM could live.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// The nodes, ascending.
    pub nodes: Vec<NodeId>,
    /// Other VMs there from which the configuration would isolate it, or them from it.
    pub pairs: usize,
    /// Its cost.
    pub lost: Loss,
    /// CPUs that all VMs demand of the nodes, including this one.
    pub asked_cpus: f64,
    /// CPUs of the nodes that are not isolated.
    pub cpus: usize,
    /// Free memory of the nodes, less what VMs at home there have not touched yet, bytes.
    pub free_bytes: u64,
}

/// How much more CPU time per second all VMs lose with the new one, in CPUs, to a millionth. Negative if they
/// lose less, as when a node that was idle, and is far away, no longer takes what another one is crowded
/// with.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Loss {
    /// If VMs wait for memory as little as the least memory-bound programs.
    pub least: f64,
    /// With the planner's own assumption.
    pub expected: f64,
    /// If they wait as much as the most memory-bound programs.
    pub most: f64,
}

impl Planner {
    /// The home of a VM that starts now, and the alternatives. A VM of the view whose home should change, or
    /// that has none yet, gets its home first.
    ///
    /// # Panics
    /// As [`Planner::place`].
    pub fn newcomer(&self, view: &View, request: Request) -> Newcomer {
        let mut vms = view.vms.to_vec();
        for decision in self.place(view) {
            let vm =
                vms.iter_mut().find(|vm| vm.id == decision.vm).expect("a decision is about a VM of the view");
            vm.home = home(decision.nodes, view.now_ns);
        }
        let id = vms.iter().map(|vm| vm.id + 1).max().unwrap_or(0);
        let new = VmView::starting(id, request, view.machine.node_count());
        vms.push(new.clone());
        let mut situation = self.situation(&View { vms: &vms, ..*view });
        // The VMs are in the order of their numbers.
        let at = situation.vms.len() - 1;
        let others = situation.others(at);
        let (nodes, shortage, nothing) = match candidates(&situation, at, &others) {
            Ok(candidates) => (candidates.nodes, candidates.shortage, None),
            Err(shortage) => (Vec::new(), Some(shortage), Some(shortage)),
        };
        let choice_count = nodes.len();
        let mut ranks: Vec<_> = nodes.into_iter().map(|nodes| rank(&situation, at, &others, nodes)).collect();
        ranks.sort_unstable();
        ranks.truncate(CHOICES_MAX);
        let Some(best) = ranks.first().map(|best| best.4.clone()) else {
            let (reason, choices) = (Reason::none(nothing), Vec::new());
            return Newcomer { vm: new, reason, shortage, choice_count, choices };
        };
        let reason = Reason::of_new(&situation, at, &best);
        let choices = ranks.into_iter().map(|(pairs, _, _, free_bytes, nodes)| Choice {
            pairs,
            lost: loss(&mut situation, at, &others, &nodes),
            asked_cpus: situation.asked(at, &nodes, &nodes),
            cpus: situation.cpus(&nodes),
            free_bytes: free_bytes.0,
            nodes,
        });
        Newcomer {
            choices: choices.collect(),
            choice_count,
            vm: VmView { home: home(best, view.now_ns), ..new },
            reason,
            shortage,
        }
    }
}

fn home(nodes: Vec<NodeId>, since_ns: u64) -> Option<Home> {
    (!nodes.is_empty()).then_some(Home { nodes, since_ns })
}

fn loss(situation: &mut Situation<'_>, at: usize, others: &Others, nodes: &[NodeId]) -> Loss {
    let mut with = |share| {
        situation.memory_share = share;
        let more = situation.lost(at, others, nodes) - situation.crowding(others);
        // This also avoids a negative zero.
        (more * MICRO).round() / MICRO + 0.0
    };
    let [least, most, expected] = [MEMORY_SHARE_LEAST, MEMORY_SHARE_MOST, MEMORY_SHARE].map(&mut with);
    Loss { least: least.min(most).min(expected), expected, most: least.max(most).max(expected) }
}

#[cfg(test)]
mod tests {
    use super::super::HomeSettings;
    use super::super::tests::{GIB, free, settled};
    use super::*;
    use crate::preset;

    /// A new VM on a machine of two nodes with four cores of two CPUs, and 6 GiB, each.
    fn newcomer(vms: &[VmView], vcpus: u32, memory_gib: u64) -> Newcomer {
        let machine = preset("xeon-e5620-2s").unwrap();
        let free_bytes = free(&machine, vms);
        let view = View { machine: &machine, free_bytes: &free_bytes, vms, now_ns: 0 };
        let request = Request { vcpus, memory_bytes: memory_gib * GIB };
        Planner::new(HomeSettings::default()).newcomer(&view, request)
    }

    fn costs(newcomer: &Newcomer) -> Vec<(u32, [i64; 3])> {
        let milli = |cpus: f64| (cpus * 1e3).round() as i64;
        let cost = |Choice { nodes, lost, .. }: &Choice| {
            (nodes[0].0, [milli(lost.least), milli(lost.expected), milli(lost.most)])
        };
        newcomer.choices.iter().map(cost).collect()
    }

    #[test]
    fn a_crowded_node_costs_its_way_to_the_other() {
        let new = newcomer(&[settled(7, 4, 3, 2, 0)], 4, 2);
        // Four of the eight CPUs that VMs demand go from four cores to the four that idle. A load takes 122
        // ns there instead of 84, and 4096 lines of an L2 are filled twice in 20 ms: 4 x (share x 0.4524 +
        // 0.0500).
        assert_eq!(costs(&new), [(1, [0, 0, 0]), (0, [453, 924, 1268])]);
        assert_eq!((new.vm.id, new.vm.home), (8, home(vec![NodeId(1)], 0)));
        let told = new.choices.iter().map(|it| (it.asked_cpus, it.cpus, it.free_bytes / GIB));
        assert_eq!(told.collect::<Vec<_>>(), [(4.0, 8, 6), (8.0, 8, 3)]);
        assert_eq!((new.shortage, new.choice_count), (None, 2));
        let why = "node 1: demand there is 4.0 of 8 CPUs with this VM; 6.0 GiB are free there";
        assert_eq!(new.reason.to_string(), why);
    }

    #[test]
    fn an_idle_vm_is_no_reason_to_go_elsewhere() {
        let idle = VmView { demand: Some(0.0), ..settled(0, 4, 1, 2, 0) };
        let new = newcomer(&[idle, settled(1, 2, 1, 2, 1)], 4, 2);
        // An idle VM counts as 0.04 CPUs, so that this much finds no core on node 0, and 2 CPUs on node 1.
        let away = |cpus: f64, share: f64| (1e3 * cpus * (share * 38.0 / 84.0 + 0.049_971)).round() as i64;
        let cost = |cpus: f64| [0.14, 0.4, 0.59].map(|share| away(cpus, share));
        assert_eq!(costs(&new), [(0, cost(0.04)), (1, cost(2.0))]);
    }

    #[test]
    fn what_is_lost_without_it_is_not_its_cost() {
        let new = newcomer(&[settled(0, 8, 1, 2, 0), settled(1, 8, 1, 2, 1)], 2, 1);
        // Two CPUs more wait, whatever loads cost. Its node gets 8 of 8.89 CPUs that would be its share.
        assert_eq!(costs(&new), [(0, [2444; 3]), (1, [2444; 3])]);
    }

    #[test]
    fn shortages_are_reported() {
        let new = newcomer(&[], 2, 20);
        assert_eq!(new.vm.home, home(vec![NodeId(0)], 0));
        let shortage = Shortage::Memory { memory_bytes: 20 * GIB, free_bytes: 12 * GIB };
        assert_eq!(new.shortage, Some(shortage));
        let new = newcomer(&[], 17, 1);
        assert_eq!((new.vm.home, new.choices), (None, vec![]));
        assert_eq!(new.shortage, Some(Shortage::Pcpus { vcpus: 17, pcpus: 16, isolated: 0 }));
    }

    #[test]
    fn those_without_a_home_get_theirs_first() {
        let homeless = VmView { home: None, ..settled(0, 2, 1, 2, 0) };
        let new = newcomer(&[homeless], 4, 1);
        assert_eq!(
            new.vm.home,
            home(vec![NodeId(1)], 0),
            "the other one lives with its memory, though it is smaller"
        );
    }
}
