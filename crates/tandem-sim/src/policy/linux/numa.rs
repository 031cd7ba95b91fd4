//! NUMA balancing's part of the scheduler: tasks go to the node that they prefer, and balancing leaves them
//! there.
//!
//! The kernel around the policy supplies the preferences ([`NodePreference`]). As in 5.2
//! (`task_numa_migrate()`, `task_numa_find_cpu()`, `task_numa_compare()`), a task goes to a CPU of the node,
//! idle ones first, if that does not increase the difference between the loads of the two nodes; or it swaps
//! with a task that gains less where it is. Load balancing respects the preferences
//! (`migrate_degrades_locality()`).
//!
//! Limits: the rules are those of 5.2 in all eras. Tasks of a group have the weights of their group. Of idle
//! CPUs the first one of an idle core is taken, else the first. CPUs that swap tasks do so each at its own
//! next decision. A group that finds no room stays where it is; no nodes other than the preferred one are
//! considered. The search for the busiest queue ignores preferences (`fbq_type`).

use super::Context;
use super::counters::BalanceCounters;
use super::domains::{DomainTree, Flags};
use super::features::BalanceFeatures;
use super::queues::{Push, Queues, Runqueues};
use crate::policy::NodePreference;
use tandem_machine::ids::{CpuId, NodeId, TaskId};

/// Least gain for which tasks swap, in 1000ths of their faults (`SMALLIMP`).
const SMALL_GAIN: i64 = 30;

/// Where a task could go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Destination {
    Free(CpuId),
    /// To a CPU whose task comes here instead.
    Swap(CpuId),
}

/// Loads of the node that a task is on, and of the one that it prefers.
struct NodeLoads {
    from: i128,
    to: i128,
    /// CPUs of them.
    cpus: [i128; 2],
}

impl NodeLoads {
    /// Whether the loads would be further apart if this much of it moved (`load_too_imbalanced()`).
    fn gets_worse(&self, moved: i128) -> bool {
        let apart =
            |moved: i128| ((self.to + moved) * self.cpus[0] - (self.from - moved) * self.cpus[1]).abs();
        apart(moved) > apart(0)
    }
}

/// The node preference of each task that NUMA balancing has found so far, by task.
#[derive(Clone, Debug, Default)]
pub(super) struct Nodes(Vec<Option<Box<NodePreference>>>);

impl Nodes {
    /// Resets the preference of a task number; new numbers come in order.
    pub fn begin(&mut self, task: TaskId) {
        match self.0.get_mut(task.index()) {
            Some(known) => *known = None,
            None => self.0.push(None),
        }
    }

    fn of(&self, task: TaskId) -> Option<&NodePreference> {
        self.0[task.index()].as_deref()
    }

    /// Gain of a task from moving from one node to another, in 1000ths of its faults.
    fn gain(&self, task: TaskId, from: NodeId, to: NodeId) -> i64 {
        let weight = |node: NodeId| self.node_weight(task, node);
        weight(to) - weight(from)
    }

    fn node_weight(&self, task: TaskId, node: NodeId) -> i64 {
        self.of(task).map_or(0, |numa| numa.weights[node.index()])
    }

    /// Whether balancing should leave a task where it is, like a cache-hot one, instead of moving it to CPU
    /// `to`, which idles or not; `None` if its memory gives no preference.
    pub fn degrades_locality(
        &self,
        ctx: &Context<'_>,
        queues: &Runqueues,
        task: TaskId,
        to: CpuId,
        to_idles: bool,
        features: &BalanceFeatures,
    ) -> Option<bool> {
        let preferred = self.of(task)?.node;
        let entity = queues.entity(task);
        let (from, to) = (ctx.machine.cpu(entity.cpu).node, ctx.machine.cpu(to).node);
        if from == to {
            return None;
        }
        if from == preferred {
            let queue = queues.of(entity.cpu);
            let at_home = |task: TaskId| self.of(task).is_some_and(|numa| numa.node == from);
            let mut others_would_go = !queue.curr().is_none_or(at_home);
            queues.visit_waiting(entity.cpu, &mut |task| others_would_go |= !at_home(task));
            return others_would_go.then_some(true);
        }
        if to == preferred {
            return Some(false);
        }
        let gain = self.gain(task, from, to);
        if to_idles || (gain == 0 && features.equal_nodes_are_neutral) {
            return None;
        }
        Some(gain < 0)
    }
}

/// Sends tasks to the nodes that they prefer.
pub(super) struct NodeBalancer<'a> {
    pub queues: &'a mut Queues,
    pub domains: &'a DomainTree,
    pub nodes: &'a mut Nodes,
    pub counters: &'a mut BalanceCounters,
}

impl NodeBalancer<'_> {
    /// Sends the task that runs on the CPU to the node that it prefers, if possible. Returns its preference
    /// from now on.
    pub fn settle(
        &mut self,
        ctx: &mut Context<'_>,
        cpu: CpuId,
        task: TaskId,
        mut preference: NodePreference,
    ) -> Option<NodeId> {
        let (from, to) = (ctx.machine.cpu(cpu).node, preference.node);
        let is_alone = preference.is_alone;
        let knows_nodes =
            self.domains.of(cpu).any(|at| self.domains.domain(at).tunables.flags.contains(Flags::NUMA));
        if !knows_nodes {
            preference.node = from;
        }
        let node = preference.node;
        self.nodes.0[task.index()] = Some(Box::new(preference));
        if node == from || self.queues.of(cpu).has_push() {
            return Some(node);
        }
        match self.place_on_node(ctx, cpu, task, to) {
            Some(Destination::Free(place)) => {
                self.counters.numa_moves += 1;
                self.push_to_node(ctx, cpu, place);
            }
            Some(Destination::Swap(place)) => {
                self.counters.numa_swaps += 1;
                self.push_to_node(ctx, cpu, place);
                self.push_to_node(ctx, place, cpu);
                for swapping in [cpu, place] {
                    self.queues.of_mut(swapping).expect_swap();
                }
            }
            // The rest of the group may settle where it is.
            None if !is_alone => {
                if let Some(preference) = &mut self.nodes.0[task.index()] {
                    preference.node = from;
                }
                return Some(from);
            }
            None => {}
        }
        Some(node)
    }

    /// Makes a CPU hand its running task over to another one.
    fn push_to_node(&mut self, ctx: &mut Context<'_>, cpu: CpuId, to: CpuId) {
        self.queues.of_mut(cpu).ask_push(Push { to, is_for_node: true });
        self.queues.reschedule(ctx, cpu);
    }

    /// The best destination on the node for a task of another one.
    fn place_on_node(
        &mut self,
        ctx: &mut Context<'_>,
        cpu: CpuId,
        task: TaskId,
        node: NodeId,
    ) -> Option<Destination> {
        let from = ctx.machine.cpu(cpu).node;
        let loads = self.loads(ctx, from, node);
        let load = i128::from(self.queues.loads().of_task(task));
        let may_move = !loads.gets_worse(load);
        let gain = self.nodes.gain(task, from, node);
        let allowed = &ctx.tasks[task.index()].hard_affinity;
        let mut best = (0, None);
        for to in ctx.machine.node_cpus(node).iter().filter(|&to| allowed.contains(to)) {
            *ctx.peers_scanned += 1;
            if self.queues.of(to).has_push() {
                continue;
            }
            let Some(other) = self.queues.of(to).curr() else {
                if may_move && self.queues.idle().contains(to) && gain >= best.0 {
                    let is_first = !matches!(best.1, Some(Destination::Free(known)) if self.queues.idle().contains(known));
                    let core_idles = ctx.machine.siblings(to).is_subset(self.queues.idle());
                    if is_first || core_idles {
                        best = (gain, Some(Destination::Free(to)));
                    }
                    if core_idles {
                        break;
                    }
                }
                continue;
            };
            let other_may = ctx.tasks[other.index()].hard_affinity.contains(cpu);
            let swap_gain = if other_may { gain + self.nodes.gain(other, node, from) } else { i64::MIN };
            if may_move && gain > swap_gain && gain > best.0 {
                best = (gain, Some(Destination::Free(to)));
            } else if swap_gain >= SMALL_GAIN && swap_gain > best.0 + SMALL_GAIN / 2 {
                let difference = load - i128::from(self.queues.loads().of_task(other));
                if difference == 0 || !loads.gets_worse(difference) {
                    best = (swap_gain, Some(Destination::Swap(to)));
                }
            }
        }
        best.1
    }

    fn loads(&self, ctx: &Context<'_>, from: NodeId, to: NodeId) -> NodeLoads {
        let load = |node| {
            ctx.machine.node_cpus(node).iter().map(|cpu| i128::from(self.queues.loads().of_cpu(cpu))).sum()
        };
        let cpus = |node| ctx.machine.node_cpus(node).count() as i128;
        NodeLoads { from: load(from), to: load(to), cpus: [cpus(from), cpus(to)] }
    }
}

#[cfg(test)]
mod tests {
    use super::super::situation::Situation;
    use super::super::{Domains, LinuxEra};
    use super::*;
    use crate::policy::Policy;
    use tandem_machine::MachineBuilder;

    /// Two nodes of two CPUs each.
    fn two_nodes() -> Situation {
        let machine = MachineBuilder::symmetric(2, 2, 1).build().unwrap();
        Situation::new(LinuxEra::V4_2, Domains::Topology, machine)
    }

    fn prefers(node: u32, weights: [i64; 2]) -> NodePreference {
        NodePreference { node: NodeId(node), weights: weights.into(), is_alone: true }
    }

    /// Sets the preference of the task that runs on the CPU.
    fn tell(situation: &mut Situation, cpu: u32, preference: NodePreference) -> Option<NodeId> {
        let task = situation.linux.queues.of(CpuId(cpu)).curr().unwrap();
        let told = situation.ask(|linux, ctx| linux.prefer_node(ctx, CpuId(cpu), task, preference));
        situation.settle();
        told
    }

    #[test]
    fn a_task_goes_to_an_idle_cpu_of_its_node() {
        let mut situation = two_nodes();
        situation.run_on(0);
        situation.run_on(1);
        assert_eq!(tell(&mut situation, 0, prefers(1, [100, 900])), Some(NodeId(1)));
        assert_eq!(situation.tasks_by_cpu(), [0, 1, 1, 0]);
        assert_eq!(situation.linux.balancing.counters.numa_moves, 1);
    }

    #[test]
    fn no_task_goes_where_it_may_not_or_where_it_would_crowd() {
        let mut situation = two_nodes();
        let pinned = situation.run_on(0);
        situation.allow(pinned, 0..2);
        tell(&mut situation, 0, prefers(1, [0, 1000]));
        assert_eq!(situation.tasks_by_cpu(), [1, 0, 0, 0], "its affinity holds");

        let mut situation = two_nodes();
        for cpu in [0, 2, 3] {
            let task = situation.run_on(cpu);
            situation.allow(task, [cpu]);
        }
        situation.run_ticks(200);
        for task in 0..3 {
            situation.allow(TaskId(task), 0..4);
        }
        for cpu in [2, 3] {
            tell(&mut situation, cpu, prefers(1, [0, 1000]));
        }
        let told = tell(&mut situation, 0, NodePreference { is_alone: false, ..prefers(1, [0, 1000]) });
        assert_eq!(situation.tasks_by_cpu(), [1, 0, 1, 1], "the node has more to do already");
        assert_eq!(told, Some(NodeId(0)), "so the task of a group settles where it is");
    }

    #[test]
    fn tasks_change_places_if_both_gain() {
        let mut situation = two_nodes();
        let tasks = [0, 1, 2, 3].map(|cpu| situation.run_on(cpu));
        tell(&mut situation, 2, prefers(1, [500, 500]));
        tell(&mut situation, 3, prefers(1, [300, 700]));
        tell(&mut situation, 0, prefers(1, [100, 900]));
        assert_eq!(situation.linux.balancing.counters.numa_swaps, 1);
        let cpu = |task: TaskId| situation.linux.queues.entity(task).cpu.0;
        assert_eq!((cpu(tasks[0]), cpu(tasks[2])), (2, 0), "with the one that loses least");
        assert_eq!(situation.tasks_by_cpu(), [1; 4]);
    }

    /// The task prefers a third node, and its memory is as near from both.
    #[test]
    fn migrate_degrades_locality_of_6_18_leaves_equal_nodes_to_the_heat_of_caches() {
        for (era, expected) in [(LinuxEra::V6_12, Some(false)), (LinuxEra::V6_18, None)] {
            let machine = MachineBuilder::symmetric(3, 2, 1).build().unwrap();
            let mut situation = Situation::new(era, Domains::Topology, machine);
            let task = situation.run_on(0);
            for (weights, expected) in
                [([300, 300, 400], expected), ([350, 250, 400], Some(true)), ([250, 350, 400], Some(false))]
            {
                let preference = NodePreference { node: NodeId(2), weights: weights.into(), is_alone: true };
                situation.linux.nodes.0[task.index()] = Some(Box::new(preference));
                let degrades = situation.ask(|linux, ctx| {
                    let features = &linux.features.balance;
                    linux.nodes.degrades_locality(ctx, &linux.queues, task, CpuId(2), false, features)
                });
                assert_eq!(degrades, expected, "{era:?}: {weights:?}");
            }
        }
    }

    #[test]
    fn balancing_leaves_tasks_where_they_prefer_to_be() {
        let mut situation = two_nodes();
        let task = situation.run_on(0);
        situation.queue_on(0);
        let asked = |situation: &mut Situation, to| {
            situation.ask(|linux, ctx| {
                let features = &linux.features.balance;
                linux.nodes.degrades_locality(ctx, &linux.queues, task, CpuId(to), false, features)
            })
        };
        assert_eq!(asked(&mut situation, 2), None, "nothing is known of it");
        tell(&mut situation, 0, prefers(0, [900, 100]));
        assert_eq!(asked(&mut situation, 2), Some(true), "it is at home, and the other one is not");
        assert_eq!(asked(&mut situation, 1), None, "the node stays the same");
        situation.linux.nodes.0[task.index()] = Some(Box::new(prefers(1, [100, 900])));
        assert_eq!(asked(&mut situation, 2), Some(false), "it would come home");
    }
}
