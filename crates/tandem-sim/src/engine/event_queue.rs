//! The next event of each source of events, in an indexed heap.
//!
//! Sources are numbered `0..len`. Each has at most one pending event; setting it anew
//! reschedules it, setting [`NEVER`] cancels it, both in O(log sources). Events at the same instant come in
//! the order of their numbers, so that a run does not depend on the heap's history.

/// The time of an event that does not happen.
pub const NEVER: u64 = u64::MAX;

/// Children a node has. Four keep the heap shallow, and their keys in one or two cache lines.
const ARITY: usize = 4;

/// An indexed heap of pending events. See the [module](self).
#[derive(Clone, Debug)]
pub struct EventQueue {
    /// (time, source) in heap order.
    heap: Vec<(u64, u32)>,
    /// Where each source stands in the heap.
    position: Vec<u32>,
}

impl EventQueue {
    /// A queue of `len` sources without pending events. `len` must not be 0.
    pub fn new(len: usize) -> Self {
        assert!(len > 0, "an event queue needs a source");
        let len = u32::try_from(len).expect("fewer than 2^32 sources");
        Self { heap: (0..len).map(|source| (NEVER, source)).collect(), position: (0..len).collect() }
    }

    /// Time and number of the earliest event; [`NEVER`] if none is pending. O(1).
    #[inline]
    pub fn peek(&self) -> (u64, usize) {
        let (time_ns, source) = self.heap[0];
        (time_ns, source as usize)
    }

    /// Makes `time_ns` the time of the source's event, or cancels it with [`NEVER`]. O(log sources).
    #[inline]
    pub fn set(&mut self, source: usize, time_ns: u64) {
        let at = self.position[source] as usize;
        let before = self.heap[at].0;
        if time_ns == before {
            return;
        }
        self.heap[at].0 = time_ns;
        if time_ns < before { self.sift_up(at) } else { self.sift_down(at) }
    }

    fn sift_up(&mut self, mut at: usize) {
        let entry = self.heap[at];
        while at > 0 {
            let parent = (at - 1) / ARITY;
            if self.heap[parent] <= entry {
                break;
            }
            self.place(at, self.heap[parent]);
            at = parent;
        }
        self.place(at, entry);
    }

    fn sift_down(&mut self, mut at: usize) {
        let entry = self.heap[at];
        loop {
            let first = at * ARITY + 1;
            let last = (first + ARITY).min(self.heap.len());
            let Some(least) = (first..last).min_by_key(|&child| self.heap[child]) else {
                break;
            };
            if entry <= self.heap[least] {
                break;
            }
            self.place(at, self.heap[least]);
            at = least;
        }
        self.place(at, entry);
    }

    #[inline]
    fn place(&mut self, at: usize, entry: (u64, u32)) {
        self.heap[at] = entry;
        self.position[entry.1 as usize] = at as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ties_come_in_the_order_of_sources() {
        let mut queue = EventQueue::new(9);
        for source in [7, 3, 5] {
            queue.set(source, 10);
        }
        assert_eq!(queue.peek(), (10, 3));
        queue.set(3, NEVER);
        assert_eq!(queue.peek(), (10, 5));
    }

    proptest! {
        /// Whatever is set, moved or cancelled, the earliest comes first.
        #[test]
        fn agrees_with_a_plain_array(
            len in 1usize..40,
            changes in prop::collection::vec((any::<usize>(), prop_oneof![0u64..50, Just(NEVER)]), 1..200),
        ) {
            let mut queue = EventQueue::new(len);
            let mut plain = vec![NEVER; len];
            for (source, time_ns) in changes {
                let source = source % len;
                queue.set(source, time_ns);
                plain[source] = time_ns;
                let expected = (0..len).map(|s| (plain[s], s)).min().unwrap();
                prop_assert_eq!(queue.peek(), expected);
            }
        }
    }
}
