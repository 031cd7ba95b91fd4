//! Marking pages, so that touching them faults (`task_tick_numa()`, `task_numa_work()`).
//!
//! A task marks a part of its memory each time that it has run for its *scan period*, and goes on from there
//! the next time; once it has been through all of it, a pass is done. In a group whose memory is shared,
//! periods grow with the number of its tasks, as each of them scans that memory.

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

/// How far a task is with scanning its memory.
#[derive(Clone, Debug)]
pub(super) struct Scan {
    /// Passes over all of its memory.
    pub passes: u32,
    /// Run time between two scans, ms.
    pub period_ms: u64,
    /// Pages that are marked, by node.
    pub marked: Vec<f64>,
    /// Pages of the memory, as far as is known.
    pages: f64,
    /// Pages that this pass has marked.
    offset: f64,
    /// Run time at which the last scan was due, ns (`node_stamp`).
    due_run_ns: u64,
    /// Time before which there is no scan, ns (`numa_next_scan`).
    next_ns: u64,
}

impl Scan {
    /// That of a task that is there from the start.
    pub fn new(nodes: usize) -> Self {
        Self {
            passes: 0,
            period_ms: SCAN_DELAY_MS,
            marked: vec![0.0; nodes],
            pages: 0.0,
            offset: 0.0,
            due_run_ns: 0,
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

    /// A tick: marks pages if it is time for that. The task has run for that long in all; its memory has so
    /// many pages, with these shares on the nodes.
    pub fn tick(&mut self, group: &Group, pages: f64, shares: &[f64], run_ns: u64, now_ns: u64) {
        self.pages = pages;
        if run_ns <= self.due_run_ns + self.period_ms * 1_000_000 {
            return;
        }
        if self.due_run_ns == 0 {
            self.period_ms = self.start_period_ms(group);
        }
        self.due_run_ns += self.period_ms * 1_000_000;
        if now_ns < self.next_ns {
            return;
        }
        self.next_ns = now_ns + self.period_ms * 1_000_000;
        let part = ((SCAN_SIZE_MIB << 20) / PAGE_BYTES) as f64;
        let newly = part.min(pages - self.offset);
        for (marked, share) in self.marked.iter_mut().zip(shares) {
            let on_node = share * pages;
            // What moved away is not marked any longer.
            *marked = marked.min(on_node);
            if on_node > 0.0 {
                *marked += newly * share * (1.0 - *marked / on_node);
            }
        }
        self.offset += newly;
        if self.offset >= pages {
            self.offset = 0.0;
            self.passes += 1;
        }
    }

    /// Waits with the next scan for a whole period (as after a period without faults).
    pub fn put_off(&mut self, now_ns: u64) {
        self.next_ns = now_ns + self.period_ms * 1_000_000;
    }

    /// Parts that the memory is scanned in (`task_nr_scan_windows()`).
    fn parts(&self) -> u64 {
        ((self.pages as u64 * PAGE_BYTES).div_ceil(SCAN_SIZE_MIB << 20)).max(1)
    }

    /// Shortest period, ms (`task_scan_min()`).
    pub fn min_period_ms(&self) -> u64 {
        (SCAN_PERIOD_MIN_MS / self.parts()).max(1_000 * SCAN_SIZE_MIB / SCAN_MIB_PER_S_MAX)
    }

    /// The first period, ms (`task_scan_start()`).
    fn start_period_ms(&self, group: &Group) -> u64 {
        let least_ms = self.min_period_ms();
        least_ms.max(group.stretched_ms(least_ms))
    }

    /// Longest period, ms (`task_scan_max()`).
    pub fn max_period_ms(&self, group: &Group) -> u64 {
        let most_ms = SCAN_PERIOD_MAX_MS / self.parts();
        self.min_period_ms().max(most_ms).max(group.stretched_ms(most_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB_PAGES: f64 = 256.0;

    #[test]
    fn scans_come_by_run_time_and_pass_over_all_memory() {
        let group = Group::new(2, 1);
        let mut scan = Scan::new(2);
        let mut marks = Vec::new();
        for tick in 1..=40_000u64 {
            let now_ns = tick * 1_000_000;
            let before = scan.marked[0];
            // It has a CPU half of the time, and memory of two and a half parts.
            scan.tick(&group, 640.0 * MIB_PAGES, &[0.5, 0.5], now_ns / 2, now_ns);
            if scan.marked[0] != before {
                marks.push((tick, scan.marked.iter().sum::<f64>() / MIB_PAGES));
                scan.marked.fill(0.0);
            }
        }
        assert_eq!(scan.period_ms, 333, "a third of a second for each of three parts");
        assert_eq!(marks[0].1, 256.0);
        assert_eq!(marks[2].1, 128.0, "the rest");
        assert_eq!(marks[0].0, 2_001, "none before it has run for the delay");
        let intervals: Vec<u64> = marks.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
        assert!(intervals.iter().all(|&ms| ms >= 333), "{intervals:?}");
        assert!(intervals[6..].iter().all(|&ms| (665..=668).contains(&ms)), "by run time: {intervals:?}");
        assert_eq!(scan.passes as usize, marks.len() / 3);
    }

    #[test]
    fn touches_at_random_fault_on_what_is_marked() {
        let scan = Scan { pages: 1_000.0, marked: vec![400.0, 100.0], ..Scan::new(2) };
        assert_eq!(scan.marked_share(), 0.5);
        assert!((scan.faulting_share(1.0, 1e9) - 0.001).abs() < 1e-6, "each page is as likely as any other");
        assert_eq!(scan.faulting_share(1e9, 1e9), 1.0, "each faults once");
        assert_eq!(scan.faulting_share(1e9, 50.0), 0.1, "there is no time for more");
        assert_eq!(scan.faulting_share(0.0, 1e9), 0.0);
        assert_eq!(Scan::new(2).faulting_share(5.0, 1e9), 0.0, "nothing is known of the memory yet");
    }

    #[test]
    fn periods_have_bounds() {
        let mut scan = Scan { pages: 100.0 * MIB_PAGES, ..Scan::new(2) };
        let alone = Group::new(2, 1);
        assert_eq!((scan.min_period_ms(), scan.max_period_ms(&alone)), (1_000, 60_000));
        scan.pages = 1024.0 * 1024.0 * MIB_PAGES;
        assert_eq!(
            (scan.min_period_ms(), scan.max_period_ms(&alone)),
            (100, 100),
            "2560 MiB a second at most"
        );
        scan.pages = 100.0 * MIB_PAGES;
        let mut many = Group::new(2, 32);
        many.shared = 900.0;
        many.private = 99.0;
        assert_eq!(scan.max_period_ms(&many), 60_000 * 32 * 901 / 1_000);
    }
}
