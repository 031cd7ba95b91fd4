//! A pass over the memory of one VM, which moves memory outside its home, chunk by chunk.
//!
//! Each step locates the pages of a chunk, moves those that are far, and locates them again: only pages that
//! are at home then count as moved. Each step first checks the process, so as not to touch another one with
//! its number. Between check and call remain microseconds, in which the kernel would have to assign all other
//! numbers first; even then, the only effect would be that pages of a process move within its cpuset.

use super::pages::Pages;
use crate::vms::Mapping;
use rustix::io::Errno;
use std::ops::AddAssign;

/// Most bytes that a step moves: some 8 ms of work. Steps are not smaller because the kernel drains the lists
/// of all CPUs for each call. Pages that are larger, of 1 GiB, stay: vCPUs would wait for the whole copy of
/// one.
pub const CHUNK_BYTES: u64 = 8 << 20;

/// After this many bytes in a row that could not move, the pass ends: a device may hold the memory.
const STUCK_BYTES: u64 = 256 << 20;

/// What happened to memory outside of homes, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MovedMemory {
    /// Moved to the home.
    pub moved: u64,
    /// Stayed, because other processes have mapped it as well.
    pub shared: u64,
    /// Stayed, because it was in use, or a device holds it.
    pub busy: u64,
    /// Stayed, because the home had no room for it.
    pub no_room: u64,
}

impl MovedMemory {
    /// Memory that stayed where it was, bytes.
    pub fn stayed(&self) -> u64 {
        self.shared + self.busy + self.no_room
    }
}

impl AddAssign for MovedMemory {
    fn add_assign(&mut self, other: Self) {
        self.moved += other.moved;
        self.shared += other.shared;
        self.busy += other.busy;
        self.no_room += other.no_room;
    }
}

/// Why a pass has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All memory that should and can be at home is.
    Done,
    /// No more pages could be moved.
    Stuck,
    /// The home is full.
    NoRoom,
    /// The VM has ended.
    Gone,
    /// Moving no longer pays.
    CalledOff,
    /// The kernel refuses.
    Refused(Errno),
}

/// A pass over one VM.
pub struct Pass {
    pid: u32,
    is_there: Box<dyn Fn() -> bool + Send>,
    home: Vec<u32>,
    /// Bytes still to be moved.
    left: u64,
    mappings: std::vec::IntoIter<Mapping>,
    /// The rest of the mapping that the pass is in.
    mapping: Option<Mapping>,
    /// Bytes in a row that could not move.
    stuck: u64,
    /// Chunks that had something to move: the nodes of the home take turns.
    turns: usize,
}

impl Pass {
    /// A pass over these mappings of a process, as long as it `is_there`. Moves `bytes_max` to the nodes of
    /// the home, and at most one chunk more.
    pub fn new(
        pid: u32,
        is_there: impl Fn() -> bool + Send + 'static,
        home: Vec<u32>,
        mappings: Vec<Mapping>,
        bytes_max: u64,
    ) -> Self {
        let mappings = mappings.into_iter();
        Self {
            pid,
            is_there: Box::new(is_there),
            home,
            left: bytes_max,
            mappings,
            mapping: None,
            stuck: 0,
            turns: 0,
        }
    }

    /// Moves the far pages of the next chunk; adds the result to the sum.
    ///
    /// # Errors
    /// Why there is no next step.
    pub fn step(&mut self, pages: &dyn Pages, sum: &mut MovedMemory) -> Result<(), End> {
        if self.left == 0 {
            return Err(End::Done);
        }
        if self.stuck >= STUCK_BYTES {
            return Err(End::Stuck);
        }
        let (addresses, page_bytes) = self.next_chunk().ok_or(End::Done)?;
        if !(self.is_there)() {
            return Err(End::Gone);
        }
        let before = pages.locate(self.pid, &addresses).map_err(end)?;
        let far =
            addresses.iter().zip(before).filter(|(_, at)| at.is_ok_and(|node| !self.home.contains(&node)));
        let far: Vec<u64> = far.map(|(address, _)| *address).collect();
        if far.is_empty() {
            return Ok(());
        }
        let node = self.home[self.turns % self.home.len()];
        self.turns += 1;
        let mut statuses = Vec::new();
        let result = pages.transfer(self.pid, &far, node, &mut statuses);
        let after = pages.locate(self.pid, &far).map_err(end)?;

        let mut done = MovedMemory::default();
        for (after, status) in after.into_iter().zip(statuses) {
            // A page may have been freed meanwhile.
            let Ok(node) = after else { continue };
            let count = match (status, result) {
                _ if self.home.contains(&node) => &mut done.moved,
                (Err(Errno::ACCESS), _) => &mut done.shared,
                (Err(Errno::NOMEM), _) | (_, Err(Errno::NOMEM)) => &mut done.no_room,
                _ => &mut done.busy,
            };
            *count += page_bytes;
        }
        *sum += done;
        self.left = self.left.saturating_sub(done.moved);
        self.stuck = if done.moved > 0 { 0 } else { self.stuck + done.stayed() };
        result.map_err(end)
    }

    /// The pages of the next chunk, by address, and their size, bytes. Chunks end at multiples of
    /// [`CHUNK_BYTES`], so that no huge page is in two.
    fn next_chunk(&mut self) -> Option<(Vec<u64>, u64)> {
        let is_left = |mapping: &Mapping| !mapping.addresses.is_empty() && mapping.page_bytes <= CHUNK_BYTES;
        if !self.mapping.as_ref().is_some_and(is_left) {
            self.mapping = self.mappings.find(is_left);
        }
        let Mapping { addresses, page_bytes } = self.mapping.as_mut()?;
        let begin = addresses.start;
        addresses.start = (begin - begin % CHUNK_BYTES).saturating_add(CHUNK_BYTES).min(addresses.end);
        Some(((begin..addresses.start).step_by(*page_bytes as usize).collect(), *page_bytes))
    }
}

/// How a pass ends on an error of the kernel.
fn end(error: Errno) -> End {
    match error {
        // A process that is about to end has no memory: EINVAL.
        Errno::SRCH | Errno::INVAL => End::Gone,
        Errno::NOMEM => End::NoRoom,
        error => End::Refused(error),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::agent::pages::Status;
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use std::sync::{Arc, Mutex};

    const PAGE: u64 = 4096;
    const CHUNK_PAGES: u64 = CHUNK_BYTES / PAGE;

    /// Memory of one process that tests can move.
    #[derive(Default)]
    pub(in crate::agent) struct FakePages {
        /// The node of each page.
        pub nodes: Mutex<BTreeMap<u64, u32>>,
        /// Pages that stay, and why.
        pub stay: BTreeMap<u64, Errno>,
        /// The number of moved pages after which the node is full.
        pub room: Option<usize>,
        pub calls: AtomicU32,
        pub refuses: Option<Errno>,
    }

    impl FakePages {
        /// These page numbers, all on one node.
        pub fn on(node: u32, pages: std::ops::Range<u64>) -> Self {
            Self { nodes: Mutex::new(pages.map(|page| (page * PAGE, node)).collect()), ..Self::default() }
        }

        pub fn count_on(&self, node: u32) -> usize {
            self.nodes.lock().unwrap().values().filter(|&&at| at == node).count()
        }
    }

    impl Pages for FakePages {
        fn locate(&self, _: u32, addresses: &[u64]) -> Result<Vec<Status>, Errno> {
            let nodes = self.nodes.lock().unwrap();
            Ok(addresses.iter().map(|address| nodes.get(address).copied().ok_or(Errno::NOENT)).collect())
        }

        fn transfer(
            &self,
            _: u32,
            addresses: &[u64],
            node: u32,
            statuses: &mut Vec<Status>,
        ) -> Result<(), Errno> {
            self.calls.fetch_add(1, Ordering::Relaxed);
            if let Some(error) = self.refuses {
                return Err(error);
            }
            let mut nodes = self.nodes.lock().unwrap();
            for address in addresses {
                if self.room.is_some_and(|room| nodes.values().filter(|&&at| at == node).count() >= room) {
                    statuses.resize(addresses.len(), Err(Errno::BUSY));
                    return Err(Errno::NOMEM);
                }
                match self.stay.get(address) {
                    Some(&error) => statuses.push(Err(error)),
                    None => {
                        nodes.insert(*address, node);
                        statuses.push(Ok(node));
                    }
                }
            }
            Ok(())
        }
    }

    fn small(pages: std::ops::Range<u64>) -> Mapping {
        Mapping { addresses: pages.start * PAGE..pages.end * PAGE, page_bytes: PAGE }
    }

    fn pass(home: &[u32], mappings: Vec<Mapping>, bytes_max: u64) -> Pass {
        Pass::new(7, || true, home.to_vec(), mappings, bytes_max)
    }

    fn run(mut pass: Pass, pages: &FakePages) -> (MovedMemory, End) {
        let mut sum = MovedMemory::default();
        loop {
            if let Err(end) = pass.step(pages, &mut sum) {
                return (sum, end);
            }
        }
    }

    #[test]
    fn all_that_is_far_comes_home_and_nothing_else_is_touched() {
        let pages = FakePages::on(1, 10..CHUNK_PAGES + 10);
        pages.nodes.lock().unwrap().extend((0..5).map(|page| (page * PAGE, 0)));
        let outside = 3 * CHUNK_PAGES * PAGE;
        pages.nodes.lock().unwrap().insert(outside, 1);
        let (sum, end) = run(pass(&[0], vec![small(0..2 * CHUNK_PAGES)], u64::MAX), &pages);
        assert_eq!((sum, end), (MovedMemory { moved: CHUNK_BYTES, ..MovedMemory::default() }, End::Done));
        assert_eq!(pages.nodes.lock().unwrap()[&outside], 1);
        assert_eq!(pages.calls.into_inner(), 2, "a call for each chunk");
    }

    #[test]
    fn the_nodes_of_a_home_take_turns() {
        let pages = FakePages::on(2, 0..4 * CHUNK_PAGES);
        run(pass(&[0, 1], vec![small(0..4 * CHUNK_PAGES)], u64::MAX), &pages);
        assert_eq!([0, 1, 2].map(|node| pages.count_on(node) as u64), [2 * CHUNK_PAGES, 2 * CHUNK_PAGES, 0]);
    }

    #[test]
    fn what_stays_is_counted_by_its_reason() {
        let mut pages = FakePages::on(1, 0..10);
        pages.stay =
            [(0, Errno::ACCESS), (PAGE, Errno::BUSY), (2 * PAGE, Errno::AGAIN), (3 * PAGE, Errno::NOMEM)]
                .into();
        let (sum, end) = run(pass(&[0], vec![small(0..10)], u64::MAX), &pages);
        assert_eq!(sum, MovedMemory { moved: 6 * PAGE, shared: PAGE, busy: 2 * PAGE, no_room: PAGE });
        assert_eq!(end, End::Done);
    }

    #[test]
    fn a_pass_moves_no_more_than_it_should() {
        let pages = FakePages::on(1, 0..3 * CHUNK_PAGES);
        let (sum, end) = run(pass(&[0], vec![small(0..3 * CHUNK_PAGES)], CHUNK_BYTES + 1), &pages);
        assert_eq!((sum.moved, end), (2 * CHUNK_BYTES, End::Done));
    }

    #[test]
    fn a_full_home_ends_a_pass_early() {
        let pages = FakePages { room: Some(100), ..FakePages::on(1, 0..CHUNK_PAGES) };
        let (sum, end) = run(pass(&[0], vec![small(0..CHUNK_PAGES)], u64::MAX), &pages);
        assert_eq!((sum.moved, sum.no_room, end), (100 * PAGE, CHUNK_BYTES - 100 * PAGE, End::NoRoom));
    }

    #[test]
    fn memory_that_a_device_holds_is_not_tried_for_ever() {
        let all = 100 * CHUNK_PAGES;
        let mut pages = FakePages::on(1, 0..all);
        pages.stay = (0..all).map(|page| (page * PAGE, Errno::BUSY)).collect();
        let (sum, end) = run(pass(&[0], vec![small(0..all)], u64::MAX), &pages);
        assert_eq!((sum.busy, sum.moved, end), (STUCK_BYTES, 0, End::Stuck));
    }

    #[test]
    fn another_process_with_the_number_is_not_touched() {
        let pages = FakePages::on(1, 0..2 * CHUNK_PAGES);
        let is_there = Arc::new(AtomicBool::new(true));
        let asked = is_there.clone();
        let mappings = vec![small(0..2 * CHUNK_PAGES)];
        let mut pass = Pass::new(7, move || asked.load(Ordering::Relaxed), vec![0], mappings, u64::MAX);
        let mut sum = MovedMemory::default();
        assert_eq!(pass.step(&pages, &mut sum), Ok(()));
        is_there.store(false, Ordering::Relaxed);
        assert_eq!(pass.step(&pages, &mut sum), Err(End::Gone));
        assert_eq!(pages.count_on(0) as u64, CHUNK_PAGES);
    }

    #[test]
    fn the_kernels_refusal_ends_it() {
        for (error, wanted) in [(Errno::PERM, End::Refused(Errno::PERM)), (Errno::SRCH, End::Gone)] {
            let pages = FakePages { refuses: Some(error), ..FakePages::on(1, 0..10) };
            assert_eq!(
                run(pass(&[0], vec![small(0..10)], u64::MAX), &pages),
                (MovedMemory::default(), wanted)
            );
        }
    }

    #[test]
    fn huge_pages_have_an_address_each_and_gigantic_ones_stay() {
        let huge = 2 << 20;
        let pages = FakePages {
            nodes: Mutex::new((0..8).map(|page| (page * huge, 1)).collect()),
            ..FakePages::default()
        };
        let of = |page_bytes| Mapping { addresses: 0..8 * huge, page_bytes };
        assert_eq!(run(pass(&[0], vec![of(1 << 30)], u64::MAX), &pages).0, MovedMemory::default());
        assert_eq!(run(pass(&[0], vec![of(huge)], u64::MAX), &pages).0.moved, 8 * huge);
    }

    #[test]
    fn chunks_end_where_no_huge_page_is_cut() {
        let mut pass = pass(&[0], vec![small(CHUNK_PAGES - 3..2 * CHUNK_PAGES + 2)], u64::MAX);
        let chunks = std::iter::from_fn(|| pass.next_chunk().map(|(addresses, _)| addresses.len() as u64));
        assert_eq!(chunks.collect::<Vec<_>>(), [3, CHUNK_PAGES, 2]);
    }
}
