//! Marking pages, so that touching them faults (`task_tick_numa()`, `task_numa_work()`).
//!
//! A task marks a part of its address space each time that it has run for its *scan period*; once all of it has
//! been marked, a pass is done. Threads of a process, such as the vCPUs of a VM, share the address space: the
//! first one whose period has passed marks the next part for all of them, and by its own period puts off when
//! that happens again. In a group whose memory is shared, periods grow with the number of its tasks.

use super::super::memory_state::PAGE_BYTES;
use super::faults::Group;

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
    /// Pages that are marked, by node.
    pub marked: Vec<f64>,
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
            marked: vec![0.0; nodes],
            pages: 0.0,
            offset: 0.0,
            next_ns: SCAN_DELAY_MS * 1_000_000,
        }
    }

    /// So many touches of pages at random: which share of the marked ones fault, if that are not too many.
    pub fn faulting_share(&self, touches: f64, faults_max: f64) -> f64 {
        let marked: f64 = self.marked.iter().sum();
        if marked <= 0.0 {
            return 0.0;
        }
        (-libm::expm1(-touches / self.pages)).min(faults_max / marked)
    }

    /// Share of the memory that is marked.
    pub fn marked_share(&self) -> f64 {
        let marked: f64 = self.marked.iter().sum();
        if marked > 0.0 { marked / self.pages } else { 0.0 }
    }

    /// Waits with the next part for a whole period (as after a period without faults).
    pub fn put_off(&mut self, period_ms: u64, now_ns: u64) {
        self.next_ns = now_ns + period_ms * 1_000_000;
    }

    /// Marks the next part, where these shares of the memory are on the nodes.
    fn mark(&mut self, shares: &[f64]) {
        let part = ((SCAN_SIZE_MIB << 20) / PAGE_BYTES) as f64;
        let newly = part.min(self.pages - self.offset);
        for (marked, share) in self.marked.iter_mut().zip(shares) {
            let on_node = share * self.pages;
            // What moved away is not marked any longer.
            *marked = marked.min(on_node);
            if on_node > 0.0 {
                *marked += newly * share * (1.0 - *marked / on_node);
            }
        }
        self.offset += newly;
        if self.offset >= self.pages {
            self.offset = 0.0;
            self.passes += 1;
        }
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

    /// A tick: marks pages if it is time for that. The memory has so many pages, with these shares on the
    /// nodes.
    pub fn tick(
        &mut self,
        space: &mut AddressSpace,
        group: &Group,
        pages: f64,
        shares: &[f64],
        Clocks { run_ns, now_ns, tick_ns }: Clocks,
    ) {
        space.pages = pages;
        if run_ns <= self.due_run_ns + self.period_ms * 1_000_000 {
            return;
        }
        if self.due_run_ns == 0 {
            self.period_ms = space.start_period_ms(group);
        }
        self.due_run_ns += self.period_ms * 1_000_000;
        if now_ns < space.next_ns {
            return;
        }
        space.put_off(self.period_ms, now_ns);
        // Another task of the address space is likely to be the first one the next time.
        self.due_run_ns += 2 * tick_ns;
        space.mark(shares);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB_PAGES: f64 = 256.0;
    const MS: u64 = 1_000_000;

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
            scan.tick(&mut space, &group, 640.0 * MIB_PAGES, &[0.5, 0.5], clocks(now_ns / 2, now_ns));
            let marked: f64 = space.marked.iter().sum();
            if marked > 0.0 {
                marks.push((tick, marked / MIB_PAGES));
                space.marked.fill(0.0);
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
        let (group, pages) = (Group::new(1, 4), 1_024.0 * MIB_PAGES);
        let marked = |spaces: usize| {
            let mut scans = vec![Scan::new(); 4];
            let mut spaces = vec![AddressSpace::new(1); spaces];
            let (mut marked, mut by) = (0.0, [0; 4]);
            for tick in 1..=20_000u64 {
                for (task, scan) in scans.iter_mut().enumerate() {
                    let at = task % spaces.len();
                    scan.tick(&mut spaces[at], &group, pages, &[1.0], clocks(tick * MS, tick * MS));
                    by[task] += usize::from(spaces[at].marked[0] > 0.0);
                    marked += std::mem::take(&mut spaces[at].marked[0]);
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
        let space = AddressSpace { pages: 1_000.0, marked: vec![400.0, 100.0], ..AddressSpace::new(2) };
        assert_eq!(space.marked_share(), 0.5);
        assert!((space.faulting_share(1.0, 1e9) - 0.001).abs() < 1e-6, "each page is as likely as any other");
        assert_eq!(space.faulting_share(1e9, 1e9), 1.0, "each faults once");
        assert_eq!(space.faulting_share(1e9, 50.0), 0.1, "there is no time for more");
        assert_eq!(space.faulting_share(0.0, 1e9), 0.0);
        assert_eq!(AddressSpace::new(2).faulting_share(5.0, 1e9), 0.0, "nothing is known of it yet");
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
