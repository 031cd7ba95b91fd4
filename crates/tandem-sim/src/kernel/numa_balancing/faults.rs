//! Statistics of hinting faults, of tasks and of groups of tasks that share memory (`task_numa_fault()`,
//! `task_numa_placement()`).
//!
//! A task counts its faults by the node of the page and by the node of the CPU. After each pass over its
//! memory the new ones are added to half of the old ones; then it settles how fast it scans next. A fault on a
//! huge page counts as one on each of the small pages in its place.

use super::super::memory_state::PageSize;
use super::filter::ACTIVE_NODE_FRACTION;
use super::scan::{AddressSpace, Scan};
use tandem_machine::ids::NodeId;

/// Parts that a period is changed by (`NUMA_PERIOD_SLOTS`).
const PERIOD_SLOTS: u64 = 10;
/// Of these, how many parts of the faults must be local, or private, to scan more slowly
/// (`NUMA_PERIOD_THRESHOLD`).
const PERIOD_THRESHOLD: u64 = 7;
/// Faults count by use of CPUs: this is one CPU's.
const FULL_USE: f64 = 65_536.0;

/// Tasks that share memory (`struct numa_group`): those of a VM.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub tasks: usize,
    /// Faults by the node of the page.
    pub on_memory: Vec<f64>,
    /// Use of CPUs in faults, by the node of the CPU.
    pub from_cpus: Vec<f64>,
    /// Pages on each node that were touched last from each node: a row for each node that they are on, for
    /// each size. Those that are missing have not been touched yet.
    pub last_from: [Vec<Vec<f64>>; 2],
    /// Faults on pages that another task had touched last.
    pub shared: f64,
    /// All others.
    pub private: f64,
}

impl Group {
    pub fn new(nodes: usize, tasks: usize) -> Self {
        let none = || vec![0.0; nodes];
        Self {
            tasks,
            on_memory: none(),
            from_cpus: none(),
            last_from: PageSize::ALL.map(|_| vec![none(); nodes]),
            shared: 0.0,
            private: 0.0,
        }
    }

    /// Share of the pages of that size on a node, which are so many, that were touched.
    pub fn touched_share(&self, size: PageSize, memory: NodeId, pages: f64) -> f64 {
        (self.last_from[size as usize][memory.index()].iter().sum::<f64>() / pages).min(1.0)
    }

    /// Share of the faults of a task, on these pages, on those that no task or it has touched
    /// last.
    pub fn private_share(&self, size: PageSize, memory: NodeId, pages: f64) -> f64 {
        1.0 - self.touched_share(size, memory, pages) * (1.0 - 1.0 / self.tasks as f64)
    }

    /// Faults from a node on some of the pages of that size on node `memory`, which are so many; some moved.
    pub fn touched(
        &mut self,
        size: PageSize,
        memory: NodeId,
        pages: f64,
        from: NodeId,
        faults: f64,
        moved: f64,
    ) {
        let left = (1.0 - faults / pages).max(0.0);
        let last_from = &mut self.last_from[size as usize];
        last_from[memory.index()].iter_mut().for_each(|last| *last *= left);
        last_from[memory.index()][from.index()] += faults - moved;
        last_from[from.index()][from.index()] += moved;
    }

    /// The node with most of the memory that its tasks use; `None` before the first statistics.
    pub fn busiest_node(&self) -> Option<NodeId> {
        let mut best = (0.0, None);
        for (node, &faults) in self.on_memory.iter().enumerate() {
            if faults > best.0 {
                best = (faults, Some(NodeId::from(node)));
            }
        }
        best.1
    }

    /// Faults by the node of the page, in 1000ths (`group_weight()`).
    pub fn weights(&self) -> Box<[i64]> {
        let total: f64 = self.on_memory.iter().sum();
        self.on_memory.iter().map(|faults| (1_000.0 * faults / total.max(1.0)) as i64).collect()
    }

    /// A scan period of one task, when this many scan the same memory.
    pub fn stretched_ms(&self, period_ms: u64) -> u64 {
        if self.tasks == 1 || self.shared + self.private == 0.0 {
            return period_ms;
        }
        let (shared, private) = (self.shared as u64, self.private as u64);
        period_ms * self.tasks as u64 * (shared + 1) / (private + shared + 1)
    }

    fn is_active(&self, node: NodeId) -> bool {
        let most = self.from_cpus.iter().copied().fold(0.0, f64::max);
        self.from_cpus[node.index()] * ACTIVE_NODE_FRACTION > most
    }

    fn active_nodes(&self) -> usize {
        (0..self.from_cpus.len()).filter(|&node| self.is_active(node.into())).count()
    }
}

/// Faults of a task.
#[derive(Clone, Debug)]
pub(super) struct TaskFaults {
    /// Since the last pass: by node of the page, and of the CPU.
    new_on_memory: Vec<f64>,
    new_from_cpus: Vec<f64>,
    new_private: f64,
    new_shared: f64,
    /// Since the last pass: on local pages, or as good as that, and on others.
    local: f64,
    remote: f64,
    /// A page could not move for want of room since the last pass.
    pub failed: bool,
    /// As they count in the group.
    on_memory: Vec<f64>,
    from_cpus: Vec<f64>,
    private: f64,
    shared: f64,
    /// The pass after which the statistics were made up last (the task's `numa_scan_seq`).
    pub pass: u32,
    /// Run time and time then, ns.
    run_ns: u64,
    at_ns: u64,
}

impl TaskFaults {
    pub fn new(nodes: usize) -> Self {
        let none = || vec![0.0; nodes];
        Self {
            new_on_memory: none(),
            new_from_cpus: none(),
            new_private: 0.0,
            new_shared: 0.0,
            local: 0.0,
            remote: 0.0,
            failed: false,
            on_memory: none(),
            from_cpus: none(),
            private: 0.0,
            shared: 0.0,
            pass: 0,
            run_ns: 0,
            at_ns: 0,
        }
    }

    /// Counts faults from a node on pages that are now on node `memory`, and were local or not. Shared pages
    /// among the nodes that the group has settled on are as good as local.
    pub fn count(
        &mut self,
        group: &Group,
        faults: f64,
        memory: NodeId,
        cpu: NodeId,
        private_share: f64,
        is_local: bool,
    ) {
        self.new_on_memory[memory.index()] += faults;
        self.new_from_cpus[cpu.index()] += faults;
        let private = faults * private_share;
        self.new_private += private;
        self.new_shared += faults - private;
        let is_settled = group.active_nodes() > 1 && group.is_active(memory) && group.is_active(cpu);
        let local = match (is_local, is_settled) {
            (true, _) => faults,
            (false, true) => faults - private,
            (false, false) => 0.0,
        };
        self.local += local;
        self.remote += faults - local;
    }

    /// Makes the statistics up if there has been a pass since they were last, for a task that has run for
    /// that long; whether it did.
    pub fn place(
        &mut self,
        group: &mut Group,
        space: &mut AddressSpace,
        scan: &mut Scan,
        run_ns: u64,
        now_ns: u64,
    ) -> bool {
        if self.pass == space.passes {
            return false;
        }
        self.pass = space.passes;
        let use_of_cpu = (run_ns - self.run_ns) as f64 / (now_ns - self.at_ns + 1) as f64;
        (self.run_ns, self.at_ns) = (run_ns, now_ns);
        let weight = FULL_USE * use_of_cpu / (self.local + self.remote + 1.0);
        for node in 0..self.on_memory.len() {
            let new = std::mem::take(&mut self.new_on_memory[node]);
            age(&mut self.on_memory[node], new, &mut group.on_memory[node]);
            let new = std::mem::take(&mut self.new_from_cpus[node]);
            age(&mut self.from_cpus[node], weight * new, &mut group.from_cpus[node]);
        }
        age(&mut self.private, self.new_private, &mut group.private);
        age(&mut self.shared, self.new_shared, &mut group.shared);
        self.adapt_period(group, space, scan, now_ns);
        (self.new_private, self.new_shared, self.local, self.remote) = (0.0, 0.0, 0.0, 0.0);
        self.failed = false;
        true
    }

    /// Scans more slowly if most faults are private or local, and faster if not
    /// (`update_task_scan_period()`).
    fn adapt_period(&self, group: &Group, space: &mut AddressSpace, scan: &mut Scan, now_ns: u64) {
        let [local, remote, private, shared] =
            [self.local, self.remote, self.new_private, self.new_shared].map(|faults| faults as u64);
        let most_ms = space.max_period_ms(group);
        if local + shared == 0 || self.failed {
            scan.period_ms = most_ms.min(2 * scan.period_ms);
            return space.put_off(scan.period_ms, now_ns);
        }
        let part_ms = scan.period_ms.div_ceil(PERIOD_SLOTS);
        let part_of = |some: u64, others: u64| some * PERIOD_SLOTS / (some + others).max(1);
        let (locals, privates) = (part_of(local, remote), part_of(private, shared));
        let slower = |parts: u64| scan.period_ms + part_ms * (parts - PERIOD_THRESHOLD).max(1);
        let period_ms = if privates >= PERIOD_THRESHOLD {
            slower(privates)
        } else if locals >= PERIOD_THRESHOLD {
            slower(locals)
        } else {
            scan.period_ms.saturating_sub(part_ms * (PERIOD_THRESHOLD - locals.max(privates)))
        };
        scan.period_ms = period_ms.clamp(space.min_period_ms(), most_ms);
    }
}

/// Adds new faults to half of the old ones, in the sum over the group, too.
fn age(faults: &mut f64, new: f64, of_group: &mut f64) {
    let change = new - *faults / 2.0;
    *faults += change;
    *of_group = (*of_group + change).max(0.0);
}

#[cfg(test)]
mod tests {
    use super::super::scan::Clocks;
    use super::*;

    /// A task of a group of so many, with a scan period of 2 s, that has been through its memory once.
    fn after_a_pass(tasks: usize) -> (Group, TaskFaults, AddressSpace, Scan) {
        let (mut scan, mut space) = (Scan::new(), AddressSpace::new(2));
        let group = Group::new(2, tasks);
        let clocks = Clocks { run_ns: 0, now_ns: 0, tick_ns: 1_000_000 };
        scan.tick(&mut space, &group, 1_000.0, |_, _| 0.0, clocks);
        (scan.period_ms, space.passes) = (2_000, 1);
        (group, TaskFaults::new(2), space, scan)
    }

    #[test]
    fn old_faults_fade() {
        let (mut group, mut faults, mut space, mut scan) = after_a_pass(1);
        faults.count(&group, 800.0, NodeId(1), NodeId(0), 1.0, false);
        assert!(faults.place(&mut group, &mut space, &mut scan, 1_000, 1_000));
        assert!(!faults.place(&mut group, &mut space, &mut scan, 1_000, 1_000), "once a pass");
        assert_eq!((&group.on_memory[..], group.busiest_node()), (&[0.0, 800.0][..], Some(NodeId(1))));
        space.passes = 2;
        faults.count(&group, 500.0, NodeId(0), NodeId(0), 1.0, true);
        faults.place(&mut group, &mut space, &mut scan, 2_000, 2_000);
        assert_eq!((&group.on_memory[..], group.busiest_node()), (&[500.0, 400.0][..], Some(NodeId(0))));
        assert_eq!(*group.weights(), [555, 444]);
    }

    #[test]
    fn periods_follow_what_the_faults_are_like() {
        // Local, remote, and the share of private faults; the next period.
        for (local, remote, private, expected_ms) in [
            (900.0, 100.0, 1.0, 2_600),
            (100.0, 900.0, 1.0, 2_600),
            (900.0, 100.0, 0.0, 2_400),
            (700.0, 300.0, 0.0, 2_200),
            (300.0, 700.0, 0.0, 1_200),
            (0.0, 900.0, 1.0, 4_000),
        ] {
            let (mut group, mut faults, mut space, mut scan) = after_a_pass(1);
            faults.count(&group, local, NodeId(0), NodeId(0), private, true);
            faults.count(&group, remote, NodeId(1), NodeId(0), private, false);
            faults.place(&mut group, &mut space, &mut scan, 1_000, 1_000);
            assert_eq!(scan.period_ms, expected_ms, "{local} local, {remote} remote, {private} private");
        }
    }

    #[test]
    fn shared_pages_of_a_settled_group_count_as_local() {
        let (mut group, mut faults, mut space, mut scan) = after_a_pass(8);
        group.from_cpus = vec![100.0, 100.0];
        faults.count(&group, 1_000.0, NodeId(1), NodeId(0), 0.0, false);
        faults.place(&mut group, &mut space, &mut scan, 1_000, 1_000);
        assert_eq!(scan.period_ms, 2_600, "slower: there is nothing to gain");
    }

    #[test]
    fn pages_remember_the_last_touch() {
        let mut group = Group::new(2, 4);
        assert_eq!(group.private_share(PageSize::Small, NodeId(0), 100.0), 1.0, "first touches are private");
        group.touched(PageSize::Small, NodeId(0), 100.0, NodeId(0), 50.0, 0.0);
        group.touched(PageSize::Small, NodeId(0), 100.0, NodeId(1), 50.0, 20.0);
        assert_eq!(group.last_from[0], [[25.0, 30.0], [0.0, 20.0]]);
        assert_eq!(group.private_share(PageSize::Small, NodeId(0), 80.0), 1.0 - 55.0 / 80.0 * 0.75);
    }
}
