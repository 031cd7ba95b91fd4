//! Sets of CPUs as bit masks of any length.

use crate::ids::CpuId;

const BITS: usize = u64::BITS as usize;

/// A set of CPUs of one kernel.
///
/// Every mask of a kernel has the same capacity, fixed when it is made; operations on two masks require equal
/// capacity.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct CpuMask {
    words: Box<[u64]>,
}

impl CpuMask {
    /// The empty set with room for CPUs `0..capacity`.
    pub fn empty(capacity: usize) -> Self {
        Self { words: vec![0; capacity.div_ceil(BITS).max(1)].into() }
    }

    /// The set of CPUs `0..count`.
    pub fn first(count: usize) -> Self {
        Self::from_cpus(count, (0..count).map(CpuId::from))
    }

    /// The set of the given CPUs, with room for `0..capacity`.
    ///
    /// # Panics
    /// If a CPU is outside the capacity.
    pub fn from_cpus(capacity: usize, cpus: impl IntoIterator<Item = CpuId>) -> Self {
        let mut mask = Self::empty(capacity);
        for cpu in cpus {
            mask.insert(cpu);
        }
        mask
    }

    /// Adds a CPU.
    #[inline]
    pub fn insert(&mut self, cpu: CpuId) {
        self.words[cpu.index() / BITS] |= 1 << (cpu.index() % BITS);
    }

    /// Removes a CPU.
    #[inline]
    pub fn remove(&mut self, cpu: CpuId) {
        self.words[cpu.index() / BITS] &= !(1 << (cpu.index() % BITS));
    }

    /// Whether the CPU is in the set.
    #[inline]
    pub fn contains(&self, cpu: CpuId) -> bool {
        self.words[cpu.index() / BITS] >> (cpu.index() % BITS) & 1 == 1
    }

    /// Number of CPUs in the set.
    pub fn count(&self) -> usize {
        self.words.iter().map(|w| w.count_ones() as usize).sum()
    }

    /// Whether the set is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|&w| w == 0)
    }

    /// Whether the two sets share a CPU.
    #[inline]
    pub fn intersects(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).any(|(a, b)| a & b != 0)
    }

    /// Whether every CPU of this set is in the other.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).all(|(a, b)| a & !b == 0)
    }

    /// The CPUs that both sets hold.
    pub fn and(&self, other: &Self) -> Self {
        Self { words: self.words.iter().zip(&other.words).map(|(a, b)| a & b).collect() }
    }

    /// Number of CPUs that both sets hold.
    #[inline]
    pub fn count_and(&self, other: &Self) -> usize {
        self.words.iter().zip(&other.words).map(|(a, b)| (a & b).count_ones() as usize).sum()
    }

    /// Makes this the set of CPUs that both given sets hold.
    #[inline]
    pub fn assign_and(&mut self, a: &Self, b: &Self) {
        for (word, (a, b)) in self.words.iter_mut().zip(a.words.iter().zip(&b.words)) {
            *word = a & b;
        }
    }

    /// Keeps the CPUs that the other set holds too.
    #[inline]
    pub fn retain(&mut self, other: &Self) {
        self.words.iter_mut().zip(&other.words).for_each(|(word, other)| *word &= other);
    }

    /// Removes the CPUs that the other set holds.
    #[inline]
    pub fn remove_all(&mut self, other: &Self) {
        self.words.iter_mut().zip(&other.words).for_each(|(word, other)| *word &= !other);
    }

    /// The first CPU after the given one, wrapping around once: the given one comes last.
    #[inline]
    pub fn next_after(&self, cpu: CpuId) -> Option<CpuId> {
        self.next_and_after(self, cpu)
    }

    /// The first CPU after the given one that both sets contain, wrapping around once: the given one comes
    /// last.
    #[inline]
    pub fn next_and_after(&self, other: &Self, cpu: CpuId) -> Option<CpuId> {
        let next = CpuId(cpu.0 + 1);
        let start = if next.index() < self.words.len() * BITS { next } else { CpuId(0) };
        self.next_and_wrapping(other, start)
    }

    /// The bits, 64 a word.
    #[inline]
    pub fn words(&self) -> impl Iterator<Item = u64> + '_ {
        self.words.iter().copied()
    }

    /// The CPUs in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = CpuId> + '_ {
        iter_words(self.words.iter().copied())
    }

    /// The CPUs that all the given masks hold, in ascending order, without building the intersection.
    #[inline]
    pub fn iter_and<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = CpuId> + 'a {
        iter_words(self.words.iter().zip(&other.words).map(|(a, b)| a & b))
    }

    /// The CPUs of this set that the other one does not hold, in ascending order.
    #[inline]
    pub fn iter_and_not<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = CpuId> + 'a {
        iter_words(self.words.iter().zip(&other.words).map(|(a, b)| a & !b))
    }

    /// The first CPU at or after `start` that both sets contain, wrapping around once; `None` if they share
    /// none.
    #[inline]
    pub fn next_and_wrapping(&self, other: &Self, start: CpuId) -> Option<CpuId> {
        let words = self.words.len();
        let first = start.index() / BITS;
        let below_start = (1u64 << (start.index() % BITS)) - 1;
        for step in 0..=words {
            let at = (first + step) % words;
            let mut word = self.words[at] & other.words[at];
            if step == 0 {
                word &= !below_start;
            } else if step == words {
                word &= below_start;
            }
            if word != 0 {
                return Some(CpuId((at * BITS) as u32 + word.trailing_zeros()));
            }
        }
        None
    }
}

#[inline]
fn iter_words<'a>(words: impl Iterator<Item = u64> + 'a) -> impl Iterator<Item = CpuId> + 'a {
    words.enumerate().flat_map(|(at, word)| {
        std::iter::successors(Some(word), |&rest| Some(rest & rest.wrapping_sub(1)))
            .take_while(|&rest| rest != 0)
            .map(move |rest| CpuId((at * BITS) as u32 + rest.trailing_zeros()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iterates_and_wraps_over_word_boundaries() {
        let a = CpuMask::from_cpus(130, [3, 64, 129].map(CpuId));
        let b = CpuMask::from_cpus(130, [3, 65, 129].map(CpuId));
        assert_eq!(a.iter().collect::<Vec<_>>(), [3, 64, 129].map(CpuId));
        assert_eq!(a.iter_and(&b).collect::<Vec<_>>(), [3, 129].map(CpuId));
        assert_eq!(a.iter_and_not(&b).collect::<Vec<_>>(), [CpuId(64)]);
        assert_eq!(a.next_and_wrapping(&b, CpuId(4)), Some(CpuId(129)));
        assert_eq!(a.next_and_wrapping(&a, CpuId(65)), Some(CpuId(129)));
        assert_eq!(b.next_and_wrapping(&b, CpuId(127)), Some(CpuId(129)));
        let low = CpuMask::from_cpus(130, [CpuId(3)]);
        assert_eq!(a.next_and_wrapping(&low, CpuId(4)), Some(CpuId(3)));
        assert_eq!(a.next_and_wrapping(&CpuMask::empty(130), CpuId(0)), None);
        assert_eq!(a.next_after(CpuId(129)), Some(CpuId(3)));
        let full = CpuMask::first(64);
        assert_eq!(full.next_after(CpuId(63)), Some(CpuId(0)), "the last bit");
    }

    #[test]
    fn set_relations() {
        let all = CpuMask::first(70);
        let some = CpuMask::from_cpus(70, [CpuId(0), CpuId(69)]);
        assert!(some.is_subset(&all) && !all.is_subset(&some));
        assert_eq!(all.count_and(&some), 2);
        assert_eq!(all.and(&some), some);
    }
}
