//! Whether a page moves to the node of the CPU that touched it (`should_numa_migrate_memory()`).
//!
//! - Early in the life of a task, pages move that no task has touched before, or only this one.
//! - Otherwise the last fault on the page must have come from the same node, so that one stray touch moves
//!   nothing.
//! - A page that others share moves only if the group uses the node of the CPU far more, or if its memory
//!   would then be spread more like its use of CPUs.

use super::super::memory_state::PageSize;
use super::faults::Group;
use tandem_machine::ids::{NodeId, TaskId, VmId};

/// A node is active if it has more than this part of the faults of the busiest node (`ACTIVE_NODE_FRACTION`).
pub(super) const ACTIVE_NODE_FRACTION: f64 = 3.0;
/// Passes over its memory for which a task counts as early in its life.
pub(super) const YOUNG_PASSES: u32 = 4;

/// Pages that a task has touched.
#[derive(Clone, Copy, Debug)]
pub(super) struct Touched {
    pub vm: VmId,
    pub task: TaskId,
    /// That of the CPU.
    pub node: NodeId,
    /// How many times, marked pages or not, each time one drawn at random from all the memory.
    pub touches: f64,
    /// Most time that faults may take, ns.
    pub time_max_ns: f64,
}

impl Group {
    /// Chance that a page of that size that is touched from node `to` moves there, over those on node `from`,
    /// which are as many as so many small ones.
    pub fn chance_to_migrate(
        &self,
        size: PageSize,
        from: NodeId,
        pages: f64,
        to: NodeId,
        is_young: bool,
    ) -> f64 {
        let own = 1.0 / self.tasks as f64;
        let same_node = (self.last_from[size as usize][from.index()][to.index()] / pages).min(1.0);
        let shared_may = f64::from(u8::from(self.shared_may_migrate(from, to)));
        let touched = self.touched_share(size, from, pages);
        let untouched = 1.0 - touched;
        if is_young {
            return untouched + touched * own + same_node * (1.0 - own) * shared_may;
        }
        untouched * shared_may + same_node * (own + (1.0 - own) * shared_may)
    }

    /// Whether a page that tasks of the group share may move.
    fn shared_may_migrate(&self, from: NodeId, to: NodeId) -> bool {
        if self.tasks == 1 {
            return true;
        }
        let cpu = |node: NodeId| self.from_cpus[node.index()];
        let memory = |node: NodeId| self.on_memory[node.index()];
        cpu(to) > cpu(from) * ACTIVE_NODE_FRACTION
            || cpu(to) * memory(from) * 3.0 > cpu(from) * memory(to) * 4.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: NodeId = NodeId(0);
    const THERE: NodeId = NodeId(1);

    /// With 100 pages on each node, of which so many were touched last from each.
    fn group(tasks: usize, from_cpus: [f64; 2], on_memory: [f64; 2], last_from: [f64; 2]) -> Group {
        Group {
            from_cpus: from_cpus.into(),
            on_memory: on_memory.into(),
            last_from: [vec![last_from.into(); 2], vec![vec![0.0; 2]; 2]],
            ..Group::new(2, tasks)
        }
    }

    #[test]
    fn shared_pages_follow_the_use_of_cpus_with_hysteresis() {
        let may =
            |from_cpus, on_memory| group(2, from_cpus, on_memory, [0.0; 2]).shared_may_migrate(THERE, HERE);
        assert!(may([31.0, 10.0], [1e6, 1.0]), "used more than three times as much from here");
        assert!(!may([29.0, 10.0], [1e6, 1.0]), "not quite");
        assert!(may([10.0, 10.0], [10.0, 14.0]), "memory is more uneven than the use by more than a third");
        assert!(!may([10.0, 10.0], [10.0, 13.0]), "and not if by less");
        assert!(!may([10.0, 10.0], [10.0, 10.0]), "all is even");
    }

    #[test]
    fn two_faults_from_the_same_node_move_a_page() {
        let alone = group(1, [0.0; 2], [0.0; 2], [25.0, 75.0]);
        assert_eq!(alone.chance_to_migrate(PageSize::Small, THERE, 100.0, HERE, false), 0.25);
        assert_eq!(alone.chance_to_migrate(PageSize::Small, HERE, 100.0, THERE, false), 0.75);
        assert_eq!(
            alone.chance_to_migrate(PageSize::Small, THERE, 100.0, HERE, true),
            1.0,
            "early in life, private pages move at once"
        );
    }

    #[test]
    fn early_pages_move_that_nobody_else_has_touched() {
        let new = group(4, [0.0; 2], [0.0; 2], [0.0; 2]);
        assert_eq!(new.chance_to_migrate(PageSize::Small, THERE, 100.0, HERE, true), 1.0);
        let even = group(4, [10.0; 2], [10.0; 2], [50.0; 2]);
        assert_eq!(
            even.chance_to_migrate(PageSize::Small, THERE, 100.0, HERE, true),
            0.25,
            "those that it touched last itself"
        );
        assert_eq!(even.chance_to_migrate(PageSize::Small, THERE, 100.0, HERE, false), 0.125, "from here");
    }
}
