//! What is to happen at times that are known already.

use super::event_queue::NEVER;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What is to happen, earliest first; at one instant in the order of `T`.
#[derive(Clone, Debug)]
pub(super) struct Timetable<T>(BinaryHeap<Reverse<(u64, T)>>);

impl<T: Ord> Timetable<T> {
    /// When the first comes, ns; [`NEVER`] if there is none.
    pub fn next_ns(&self) -> u64 {
        self.0.peek().map_or(NEVER, |Reverse((at_ns, _))| *at_ns)
    }

    /// Takes the first if it has come by that time, with the time at which it was to come.
    pub fn pop_due(&mut self, now_ns: u64) -> Option<(u64, T)> {
        if self.0.is_empty() || self.next_ns() > now_ns {
            return None;
        }
        self.0.pop().map(|Reverse(first)| first)
    }

    pub fn add(&mut self, at_ns: u64, what: T) {
        self.0.push(Reverse((at_ns, what)));
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// What is to happen [`NEVER`] is left out.
impl<T: Ord> FromIterator<(u64, T)> for Timetable<T> {
    fn from_iter<I: IntoIterator<Item = (u64, T)>>(items: I) -> Self {
        Self(items.into_iter().filter(|(at_ns, _)| *at_ns != NEVER).map(Reverse).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_comes_first() {
        let mut table: Timetable<char> =
            [(20, 'b'), (NEVER, 'n'), (20, 'a'), (10, 'z')].into_iter().collect();
        assert_eq!((table.next_ns(), table.pop_due(9)), (10, None));
        table.add(5, 'q');
        let all: Vec<_> = std::iter::from_fn(|| table.pop_due(20)).collect();
        assert_eq!(all, [(5, 'q'), (10, 'z'), (20, 'a'), (20, 'b')]);
        assert_eq!((table.next_ns(), table.pop_due(NEVER)), (NEVER, None));
    }
}
