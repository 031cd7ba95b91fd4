//! Sets of CPUs in the memory of programs, and the functions of the kernel on them (`bpf_cpumask_*`).

use super::kernel::ScxKernel;
use tandem_ebpf::{Fault, Memory, State};
use tandem_machine::cpumask::CpuMask;

/// The bits of a set, `words` of 64.
pub fn words(
    memory: &Memory,
    mask: u64,
    words: usize,
) -> Result<impl DoubleEndedIterator<Item = u64> + Clone, Fault> {
    let bytes = memory.slice(mask, words * 8)?;
    Ok(bytes.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes)))
}

/// Whether a CPU is in a set. One that cannot be is not.
pub fn contains(memory: &Memory, mask: u64, cpu: usize) -> Result<bool, Fault> {
    Ok(memory.load(mask + cpu as u64 / 64 * 8, 8)? >> (cpu % 64) & 1 != 0)
}

/// Adds a CPU to a set, or takes it out; whether it was in it.
pub fn assign(memory: &mut Memory, mask: u64, cpu: usize, is_in: bool) -> Result<bool, Fault> {
    let address = mask + cpu as u64 / 64 * 8;
    let (word, bit) = (memory.load(address, 8)?, 1 << (cpu % 64));
    memory.store(address, 8, if is_in { word | bit } else { word & !bit })?;
    Ok(word & bit != 0)
}

/// Writes a set of the simulator's.
pub fn write(memory: &mut Memory, mask: u64, words: usize, cpus: &CpuMask) -> Result<(), Fault> {
    let to = memory.slice_mut(mask, words * 8)?.as_chunks_mut().0;
    for (to, word) in to.iter_mut().zip(cpus.words().chain(std::iter::repeat(0))) {
        *to = word.to_le_bytes();
    }
    Ok(())
}

/// The first CPU in both sets, from `start` on, and then from the beginning.
pub fn first_and_from(
    memory: &Memory,
    a: u64,
    b: u64,
    count: usize,
    start: usize,
) -> Result<Option<usize>, Fault> {
    let a = memory.slice(a, count * 8)?.as_chunks::<8>().0;
    let b = memory.slice(b, count * 8)?.as_chunks::<8>().0;
    let both = |at: usize| u64::from_le_bytes(a[at]) & u64::from_le_bytes(b[at]);
    let first_of = |at: usize, word: u64| (word != 0).then(|| at * 64 + word.trailing_zeros() as usize);
    let at = start / 64;
    if at < count
        && let Some(first) = first_of(at, both(at) & !0 << (start % 64))
    {
        return Ok(Some(first));
    }
    let mut around = (at + 1..count).chain(0..count.min(at + 1));
    Ok(around.find_map(|at| first_of(at, both(at))))
}

impl ScxKernel {
    /// A new set, which is empty; with the number of its users behind it.
    pub fn new_mask(&mut self, state: &mut State) -> Result<u64, Fault> {
        let mask = state.memory.allocate(self.mask_words * 8 + 8)?;
        state.memory.store(mask + self.mask_words as u64 * 8, 8, 1)?;
        Ok(mask)
    }

    pub(super) fn change_mask_users(&mut self, state: &mut State, mask: u64, by: i64) -> Result<u64, Fault> {
        let users = mask + self.mask_words as u64 * 8;
        let left = (state.memory.load(users, 8)? as i64).wrapping_add(by);
        if left < 0 {
            return Err(Fault("a set of CPUs was released more often than acquired".to_owned()));
        }
        state.memory.store(users, 8, left as u64)?;
        if left == 0 {
            state.memory.free(mask, self.mask_words * 8 + 8);
        }
        Ok(mask)
    }

    /// CPUs in a set.
    pub(super) fn weight(&self, state: &State, mask: u64) -> Result<u64, Fault> {
        Ok(words(&state.memory, mask, self.mask_words)?.map(|word| u64::from(word.count_ones())).sum())
    }

    /// Puts `combine(a, b)` into `to`; whether anything is in it.
    pub(super) fn combine(
        &self,
        state: &mut State,
        to: u64,
        (a, b): (u64, u64),
        combine: impl Fn(u64, u64) -> u64,
    ) -> Result<u64, Fault> {
        let mut any = 0;
        for offset in (0..self.mask_words as u64).map(|word| word * 8) {
            let word = combine(state.memory.load(a + offset, 8)?, state.memory.load(b + offset, 8)?);
            state.memory.store(to + offset, 8, word)?;
            any |= word;
        }
        Ok(u64::from(any != 0))
    }

    /// Whether `test` holds for each pair of words.
    pub(super) fn all(
        &self,
        state: &State,
        (a, b): (u64, u64),
        test: impl Fn(u64, u64) -> bool,
    ) -> Result<u64, Fault> {
        let (a, b) = (words(&state.memory, a, self.mask_words)?, words(&state.memory, b, self.mask_words)?);
        Ok(u64::from(a.zip(b).all(|(a, b)| test(a, b))))
    }

    /// The first CPU in both sets; a number beyond all CPUs if there is none.
    pub(super) fn first(&self, state: &State, a: u64, b: u64) -> Result<u64, Fault> {
        let first = first_and_from(&state.memory, a, b, self.mask_words, 0)?;
        Ok(first.unwrap_or(self.cpu_count) as u64)
    }

    /// A CPU in both sets, another one each time it is asked on the same CPU (`cpumask_any_and_distribute()`); none: a number
    /// beyond all CPUs.
    pub(super) fn distribute(&mut self, state: &State, a: u64, b: u64) -> Result<usize, Fault> {
        let last = &mut self.cpus[self.cpu].distributed;
        let next = first_and_from(&state.memory, a, b, self.mask_words, *last + 1)?;
        if let Some(next) = next {
            *last = next;
        }
        Ok(next.unwrap_or(self.cpu_count))
    }

    /// Sets all CPUs that there are.
    pub(super) fn set_all(&self, state: &mut State, mask: u64) -> Result<u64, Fault> {
        self.combine(state, mask, (self.possible_mask, self.possible_mask), |all, _| all)?;
        Ok(0)
    }

    /// The number of a CPU that a program names; a fault if there is none.
    pub(super) fn cpu_named(&self, cpu: u64) -> Result<usize, Fault> {
        match cpu as u32 as usize {
            cpu if cpu < self.cpu_count => Ok(cpu),
            _ => Err(Fault(format!(
                "CPU {} does not exist: CPUs have numbers below {}",
                cpu as i32, self.cpu_count
            ))),
        }
    }
}
