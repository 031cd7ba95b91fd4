//! Marking pages, so that touching them faults (`task_tick_numa()`, `task_numa_work()`).
//!
//! A task marks a part of its address space each time that it has run for its *scan period*; once all of it has
//! been marked, a pass is done. Threads of a process, such as the vCPUs of a VM, share the address space: the
//! first one whose period has passed marks the next part for all of them, and by its own period puts off when
//! that happens again. In a group whose memory is shared, periods grow with the number of its tasks.
//!
//! Numbers of pages are in small ones, also of those that are huge. A huge page is marked, and faults, as a whole.

use super::super::memory_state::{PAGE_BYTES, PageSize};
use super::faults::Group;
use super::price::Price;
use tandem_machine::ids::NodeId;

/// Time, and run time, before the first scan of a task, ms (`numa_balancing_scan_delay_ms`).
const SCAN_DELAY_MS: u64 = 1_000;
/// Shortest period for memory of one part, ms (`numa_balancing_scan_period_min_ms`).
const SCAN_PERIOD_MIN_MS: u64 = 1_000;
/// Longest period for memory of one part, ms (`numa_balancing_scan_period_max_ms`).
const SCAN_PERIOD_MAX_MS: u64 = 60_000;
/// How much is marked at once, MiB (`numa_balancing_scan_size_mb`).
const SCAN_SIZE_MIB: u64 = 256;
/// Most that a task may mark in a second, MiB (`MAX_SCAN_WINDOW`).
const SCAN_MIB_PER_S_MAX: u64 = 2_560;

/// Memory as a process maps it (`mm_struct`).
#[derive(Clone, Debug)]
pub(super) struct AddressSpace {
    /// Passes over all of it (`numa_scan_seq`).
    pub passes: u32,
    /// Pages that are marked, in small ones: for each size, by node.
    pub marked: [Vec<f64>; 2],
    /// How many pages it has, as far as is known.
    pages: f64,
    /// Pages that this pass has marked (`numa_scan_offset`).
    offset: f64,
    /// Time before which nothing is marked, ns (`numa_next_scan`).
    next_ns: u64,
}

/// When a task marks pages.
#[derive(Clone, Debug)]
pub(super) struct Scan {
    /// Run time between two times, ms (`numa_scan_period`).
    pub period_ms: u64,
    /// Run time at which it was last due, ns (`node_stamp`).
    due_run_ns: u64,
}

impl AddressSpace {
    /// That of tasks that are there from the start.
    pub fn new(nodes: usize) -> Self {
        Self {
            passes: 0,
            marked: PageSize::ALL.map(|_| vec![0.0; nodes]),
            pages: 0.0,
            offset: 0.0,
            next_ns: SCAN_DELAY_MS * 1_000_000,
        }
    }

    /// So many touches of pages at random by a CPU of that node: which share of the marked pages of each size
    /// fault, if that takes no more than so long, ns.
    pub fn faulting_shares(&self, touches: f64, node: NodeId, price: &Price, time_max_ns: f64) -> [f64; 2] {
        if self.pages == 0.0 {
            return [0.0; 2];
        }
        let shares = PageSize::ALL.map(|size| -libm::expm1(-touches * size.small_pages() / self.pages));
        let time_ns: f64 = (PageSize::ALL.into_iter().zip(shares))
            .map(|(size, share)| share / size.small_pages() * self.most_ns(size, node, price))
            .sum();
        if time_ns > time_max_ns { shares.map(|share| share * time_max_ns / time_ns) } else { shares }
    }

    /// The most that a touch of a page at random by a CPU of that node takes on average, ns.
    pub fn touch_ns(&self, node: NodeId, price: &Price) -> f64 {
        if self.pages == 0.0 {
            return 0.0;
        }
        PageSize::ALL.map(|size| self.most_ns(size, node, price)).iter().sum::<f64>() / self.pages
    }

    /// The most that a fault on each small page would take that is marked as part of a page of that size, ns.
    fn most_ns(&self, size: PageSize, node: NodeId, price: &Price) -> f64 {
        let marked = self.marked[size as usize].iter().enumerate();
        marked.map(|(at, marked)| marked * price.most_ns(size, at == node.index())).sum()
    }

    /// Waits with the next part for a whole period (as after a period without faults).
    pub fn put_off(&mut self, period_ms: u64, now_ns: u64) {
        self.next_ns = now_ns + period_ms * 1_000_000;
    }

    /// Marks the next part; there are so many pages of each size on each node. Returns how many entries of
    /// page tables that are.
    fn mark(&mut self, pages_on: impl Fn(NodeId, PageSize) -> f64) -> f64 {
        let part = ((SCAN_SIZE_MIB << 20) / PAGE_BYTES) as f64;
        let newly = part.min(self.pages - self.offset);
        let mut entries = 0.0;
        for size in PageSize::ALL {
            for (node, marked) in self.marked[size as usize].iter_mut().enumerate() {
                let on_node = pages_on(node.into(), size);
                // What moved away is not marked any longer.
                *marked = marked.min(on_node);
                if on_node > 0.0 {
                    let passed = newly * on_node / self.pages;
                    *marked += passed * (1.0 - *marked / on_node);
                    entries += passed / size.small_pages();
                }
            }
        }
        self.offset += newly;
        if self.offset >= self.pages {
            self.offset = 0.0;
            self.passes += 1;
        }
        entries
    }

    /// Parts that it is scanned in (`task_nr_scan_windows()`).
    fn parts(&self) -> u64 {
        ((self.pages as u64 * PAGE_BYTES).div_ceil(SCAN_SIZE_MIB << 20)).max(1)
    }

    /// Shortest period of its tasks, ms (`task_scan_min()`).
    pub fn min_period_ms(&self) -> u64 {
        (SCAN_PERIOD_MIN_MS / self.parts()).max(1_000 * SCAN_SIZE_MIB / SCAN_MIB_PER_S_MAX)
    }

    /// The first period of a task, ms (`task_scan_start()`).
    fn start_period_ms(&self, group: &Group) -> u64 {
        let least_ms = self.min_period_ms();
        least_ms.max(group.stretched_ms(least_ms))
    }

    /// Longest period of a task, ms (`task_scan_max()`).
    pub fn max_period_ms(&self, group: &Group) -> u64 {
        let most_ms = SCAN_PERIOD_MAX_MS / self.parts();
        self.min_period_ms().max(most_ms).max(group.stretched_ms(most_ms))
    }
}

/// The clocks at a tick, ns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clocks {
    /// How long the task has run.
    pub run_ns: u64,
    pub now_ns: u64,
    /// From one tick to the next.
    pub tick_ns: u64,
}

impl Scan {
    /// That of a task that is there from the start.
    pub fn new() -> Self {
        Self { period_ms: SCAN_DELAY_MS, due_run_ns: 0 }
    }

    /// A tick: marks pages if it is time for that. The memory has so many pages, and so many of each size on
    /// each node. Returns how many entries of page tables it passed over.
    pub fn tick(
        &mut self,
        space: &mut AddressSpace,
        group: &Group,
        pages: f64,
        pages_on: impl Fn(NodeId, PageSize) -> f64,
        Clocks { run_ns, now_ns, tick_ns }: Clocks,
    ) -> f64 {
        space.pages = pages;
        if run_ns <= self.due_run_ns + self.period_ms * 1_000_000 {
            return 0.0;
        }
        if self.due_run_ns == 0 {
            self.period_ms = space.start_period_ms(group);
        }
        self.due_run_ns += self.period_ms * 1_000_000;
        if now_ns < space.next_ns {
            return 0.0;
        }
        space.put_off(self.period_ms, now_ns);
        // Another task of the address space is likely to be the first one the next time.
        self.due_run_ns += 2 * tick_ns;
        space.mark(pages_on)
    }

    /// Marking took so long: leaves 32 times as much to other work, so that it takes 3% of the time at most.
    pub fn rest(&mut self, marking_ns: u64) {
        self.due_run_ns += 32 * marking_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB_PAGES: f64 = 256.0;
    const MS: u64 = 1_000_000;

    /// So many MiB in small pages, half of them on each of two nodes.
    fn halves(mib: f64) -> impl Fn(NodeId, PageSize) -> f64 {
        move |_, size| if size == PageSize::Small { mib * MIB_PAGES / 2.0 } else { 0.0 }
    }

    fn clocks(run_ns: u64, now_ns: u64) -> Clocks {
        Clocks { run_ns, now_ns, tick_ns: MS }
    }

    #[test]
    fn scans_come_by_run_time_and_pass_over_all_memory() {
        let group = Group::new(2, 1);
        let (mut scan, mut space) = (Scan::new(), AddressSpace::new(2));
        let mut marks = Vec::new();
        for tick in 1..=40_000u64 {
            let now_ns = tick * MS;
            // It has a CPU half of the time, and memory of two and a half parts.
            scan.tick(&mut space, &group, 640.0 * MIB_PAGES, halves(640.0), clocks(now_ns / 2, now_ns));
            let marked: f64 = space.marked[0].iter().sum();
            if marked > 0.0 {
                marks.push((tick, marked / MIB_PAGES));
                space.marked[0].fill(0.0);
            }
        }
        assert_eq!(scan.period_ms, 333, "a third of a second for each of three parts");
        assert_eq!(marks[0].1, 256.0);
        assert_eq!(marks[2].1, 128.0, "the rest");
        assert_eq!(marks[0].0, 2_001, "none before it has run for the delay");
        let intervals: Vec<u64> = marks.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
        assert!(intervals.iter().all(|&ms| ms >= 333), "{intervals:?}");
        let two_ticks_more = 669..=672;
        assert!(intervals[6..].iter().all(|ms| two_ticks_more.contains(ms)), "by run time: {intervals:?}");
        assert_eq!(space.passes as usize, marks.len() / 3);
    }

    /// Four threads that run all the time, and four processes.
    #[test]
    fn task_numa_work_scans_an_address_space_once_for_all_its_threads() {
        let (group, pages) = (Group::new(2, 4), 1_024.0 * MIB_PAGES);
        let marked = |spaces: usize| {
            let mut scans = vec![Scan::new(); 4];
            let mut spaces = vec![AddressSpace::new(2); spaces];
            let (mut marked, mut by) = (0.0, [0; 4]);
            for tick in 1..=20_000u64 {
                for (task, scan) in scans.iter_mut().enumerate() {
                    let at = task % spaces.len();
                    scan.tick(&mut spaces[at], &group, pages, halves(1_024.0), clocks(tick * MS, tick * MS));
                    let new: f64 = spaces[at].marked[0].iter().sum();
                    spaces[at].marked[0].fill(0.0);
                    by[task] += usize::from(new > 0.0);
                    marked += new;
                }
            }
            (marked / (256.0 * MIB_PAGES), by)
        };
        let (by_threads, turns) = marked(1);
        let (by_processes, _) = marked(4);
        assert!((by_processes / by_threads - 4.0).abs() < 0.2, "{by_threads}, {by_processes}");
        assert!(turns.iter().all(|&turns| turns > 0), "they take turns: {turns:?}");
    }

    #[test]
    fn touches_at_random_fault_on_what_is_marked() {
        let (here, free) = (NodeId(0), Price::default());
        let marked = [vec![400.0, 100.0], vec![0.0; 2]];
        let space = AddressSpace { pages: 1_000.0, marked, ..AddressSpace::new(2) };
        let small = |touches, price: &Price, time| space.faulting_shares(touches, here, price, time)[0];
        assert!((small(1.0, &free, 0.0) - 0.001).abs() < 1e-6, "each page is as likely as any other");
        assert_eq!(small(1e9, &free, 0.0), 1.0, "each faults once");
        assert_eq!(small(0.0, &free, 0.0), 0.0);
        let dear = Price { fault_ns: 1_000.0, ..Price::default() };
        assert_eq!(small(1e9, &dear, 5e5), 1.0);
        assert_eq!(small(1e9, &dear, 5e4), 0.1, "there is no time for more");
        assert_eq!(space.touch_ns(here, &dear), 500.0, "half of the pages are marked");
        assert_eq!(AddressSpace::new(2).faulting_shares(5.0, here, &dear, 1e9), [0.0; 2], "nothing is known");
    }

    #[test]
    fn change_huge_pmd_marks_512_pages_by_one_entry() {
        let mut space = AddressSpace { pages: 512.0 * MIB_PAGES, ..AddressSpace::new(2) };
        let entries = space.mark(|node, size| match (node, size) {
            (NodeId(0), PageSize::Huge) => 384.0 * MIB_PAGES,
            (NodeId(1), PageSize::Small) => 128.0 * MIB_PAGES,
            _ => 0.0,
        });
        assert_eq!(space.marked, [vec![0.0, 64.0 * MIB_PAGES], vec![192.0 * MIB_PAGES, 0.0]]);
        assert_eq!(entries, 64.0 * MIB_PAGES + 96.0);
        let shares = space.faulting_shares(1_000.0, NodeId(0), &Price::default(), 0.0);
        assert!(shares[1] > 0.97 && shares[0] < 0.01, "a touch takes all of a huge page: {shares:?}");
    }

    #[test]
    fn periods_have_bounds() {
        let mut space = AddressSpace { pages: 100.0 * MIB_PAGES, ..AddressSpace::new(2) };
        let alone = Group::new(2, 1);
        assert_eq!((space.min_period_ms(), space.max_period_ms(&alone)), (1_000, 60_000));
        space.pages = 1024.0 * 1024.0 * MIB_PAGES;
        assert_eq!(
            (space.min_period_ms(), space.max_period_ms(&alone)),
            (100, 100),
            "2560 MiB a second at most"
        );
        space.pages = 100.0 * MIB_PAGES;
        let mut many = Group::new(2, 32);
        many.shared = 900.0;
        many.private = 99.0;
        assert_eq!(space.max_period_ms(&many), 60_000 * 32 * 901 / 1_000);
    }
}
