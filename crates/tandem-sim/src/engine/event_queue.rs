//! The next event of each source of events, in an indexed heap.
//!
//! Sources are numbered `0..len`. Each has at most one pending event; setting it anew
//! reschedules it, setting [`NEVER`] cancels it, both in O(log sources). Events at the same instant come in
//! the order of their numbers, so that a run does not depend on the heap's history.

/// The time of an event that does not happen.
pub const NEVER: u64 = u64::MAX;

/// Children a node has. Four keep the heap shallow, and their keys in one or two cache lines.
const ARITY: usize = 4;

/// Time and source in one number, which compares without a branch; the source in the low [`SOURCE_BITS`].
type Key = u128;

const SOURCE_BITS: u32 = 32;

#[inline]
fn key(time_ns: u64, source: u32) -> Key {
    Key::from(time_ns) << SOURCE_BITS | Key::from(source)
}

#[inline]
fn time_ns(key: Key) -> u64 {
    (key >> SOURCE_BITS) as u64
}

#[inline]
fn source(key: Key) -> usize {
    key as u32 as usize
}

/// An indexed heap of pending events. See the [module](self).
#[derive(Clone, Debug)]
pub struct EventQueue {
    heap: Vec<Key>,
    /// Where each source stands in the heap.
    position: Vec<u32>,
}

impl EventQueue {
    /// A queue of `len` sources without pending events. `len` must not be 0.
    pub fn new(len: usize) -> Self {
        assert!(len > 0, "an event queue needs a source");
        let len = u32::try_from(len).expect("fewer than 2^32 sources");
        Self { heap: (0..len).map(|source| key(NEVER, source)).collect(), position: (0..len).collect() }
    }

    /// Time and number of the earliest event; [`NEVER`] if none is pending. O(1).
    #[inline]
    pub fn peek(&self) -> (u64, usize) {
        (time_ns(self.heap[0]), source(self.heap[0]))
    }

    /// Makes `time_ns` the time of the source's event, or cancels it with [`NEVER`]. O(log sources).
    #[inline]
    pub fn set(&mut self, source: usize, time_ns: u64) {
        let at = self.position[source] as usize;
        let before = self.heap[at];
        let now = key(time_ns, source as u32);
        if now == before {
            return;
        }
        self.heap[at] = now;
        if now < before { self.sift_up(at) } else { self.sift_down(at) }
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
            let least = match self.heap.get(first..first + ARITY) {
                Some(&[a, b, c, d]) => a.min(b).min(c.min(d)),
                _ => match self.heap.get(first..).and_then(|children| children.iter().min()) {
                    Some(&least) => least,
                    None => break,
                },
            };
            if entry <= least {
                break;
            }
            let next = self.position[source(least)] as usize;
            self.place(at, least);
            at = next;
        }
        self.place(at, entry);
    }

    #[inline]
    fn place(&mut self, at: usize, entry: Key) {
        self.heap[at] = entry;
        self.position[source(entry)] = at as u32;
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
