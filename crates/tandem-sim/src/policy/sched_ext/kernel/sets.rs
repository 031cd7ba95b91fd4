//! Sets of CPUs in the memory of programs, and the functions of the kernel on them (`bpf_cpumask_*`).

use tandem_ebpf::{Fault, Memory, State};
use tandem_machine::Machine;
use tandem_machine::cpumask::CpuMask;

/// The bits of a set, `words` of 64.
fn words(
    memory: &Memory,
    mask: u64,
    words: usize,
) -> Result<impl DoubleEndedIterator<Item = u64> + Clone, Fault> {
    let bytes = memory.slice(mask, words * 8)?;
    Ok(bytes.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes)))
}

/// Whether a CPU is in a set; false for a number out of range.
pub fn contains(memory: &Memory, mask: u64, cpu: usize) -> Result<bool, Fault> {
    Ok(memory.load(mask + cpu as u64 / 64 * 8, 8)? >> (cpu % 64) & 1 != 0)
}

/// Adds a CPU to a set, or removes it; returns whether it was in it.
pub fn assign(memory: &mut Memory, mask: u64, cpu: usize, is_in: bool) -> Result<bool, Fault> {
    let address = mask + cpu as u64 / 64 * 8;
    let (word, bit) = (memory.load(address, 8)?, 1 << (cpu % 64));
    memory.store(address, 8, if is_in { word | bit } else { word & !bit })?;
    Ok(word & bit != 0)
}

/// The first CPU in both sets, from `start` on, and then from the beginning.
fn first_and_from(
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

/// The kernel's own sets in the memory of a scheduler, and the operations of programs on any set.
#[derive(Debug)]
pub struct CpuSets {
    cpu_count: usize,
    /// Words of 64 bits of a set.
    words: usize,
    possible: u64,
    online: u64,
    none: u64,
    scratch: [u64; 2],
}

impl CpuSets {
    /// The state without sets.
    pub fn new(cpu_count: usize) -> Self {
        Self { cpu_count, words: cpu_count.div_ceil(64), possible: 0, online: 0, none: 0, scratch: [0; 2] }
    }

    /// Makes the kernel's own sets.
    pub fn prepare(&mut self, state: &mut State, machine: &Machine, online: &CpuMask) -> Result<(), Fault> {
        self.possible = self.copy(state, machine.all_cpus())?;
        self.online = self.copy(state, online)?;
        self.none = self.create(state)?;
        self.scratch = [self.create(state)?, self.create(state)?];
        Ok(())
    }

    /// All CPUs.
    pub fn possible(&self) -> u64 {
        self.possible
    }

    pub fn online(&self) -> u64 {
        self.online
    }

    /// No CPU.
    pub fn none(&self) -> u64 {
        self.none
    }

    /// One of two sets for the kernel's intermediate results.
    pub fn scratch(&self, which: usize) -> u64 {
        self.scratch[which]
    }

    /// Bytes of a set.
    pub fn bytes(&self) -> usize {
        self.words * 8
    }

    /// Makes a new, empty set, followed by the number of its users.
    pub fn create(&self, state: &mut State) -> Result<u64, Fault> {
        let mask = state.memory.allocate(self.words * 8 + 8)?;
        state.memory.store(mask + self.words as u64 * 8, 8, 1)?;
        Ok(mask)
    }

    /// Makes a set of the kernel's own with these CPUs, which programs cannot free.
    pub fn copy(&self, state: &mut State, cpus: &CpuMask) -> Result<u64, Fault> {
        let mask = state.memory.allocate(self.words * 8 + 8)?;
        self.write(state, mask, cpus)?;
        Ok(mask)
    }

    /// Writes a set of the simulator's.
    pub fn write(&self, state: &mut State, mask: u64, cpus: &CpuMask) -> Result<(), Fault> {
        let to = state.memory.slice_mut(mask, self.words * 8)?.as_chunks_mut().0;
        for (to, word) in to.iter_mut().zip(cpus.words().chain(std::iter::repeat(0))) {
            *to = word.to_le_bytes();
        }
        Ok(())
    }

    /// Whether a set is empty.
    pub fn is_empty(&self, state: &State, mask: u64) -> Result<bool, Fault> {
        Ok(words(&state.memory, mask, self.words)?.all(|word| word == 0))
    }

    /// Adds or removes a user of a set, which is freed with the last one.
    pub fn change_users(&self, state: &mut State, mask: u64, by: i64) -> Result<u64, Fault> {
        let users = mask + self.words as u64 * 8;
        let left = (state.memory.load(users, 8)? as i64).wrapping_add(by);
        if left < 0 {
            return Err(Fault("a set of CPUs was released more often than acquired".to_owned()));
        }
        state.memory.store(users, 8, left as u64)?;
        if left == 0 {
            state.memory.free(mask, self.words * 8 + 8);
        }
        Ok(mask)
    }

    /// CPUs in a set.
    pub fn weight(&self, state: &State, mask: u64) -> Result<u64, Fault> {
        Ok(words(&state.memory, mask, self.words)?.map(|word| u64::from(word.count_ones())).sum())
    }

    /// Puts `combine(a, b)` into `to`; returns whether the result is not empty.
    pub fn combine(
        &self,
        state: &mut State,
        to: u64,
        (a, b): (u64, u64),
        combine: impl Fn(u64, u64) -> u64,
    ) -> Result<u64, Fault> {
        let mut any = 0;
        for offset in (0..self.words as u64).map(|word| word * 8) {
            let word = combine(state.memory.load(a + offset, 8)?, state.memory.load(b + offset, 8)?);
            state.memory.store(to + offset, 8, word)?;
            any |= word;
        }
        Ok(u64::from(any != 0))
    }

    /// Whether `test` holds for each pair of words.
    pub fn all(
        &self,
        state: &State,
        (a, b): (u64, u64),
        test: impl Fn(u64, u64) -> bool,
    ) -> Result<u64, Fault> {
        let (a, b) = (words(&state.memory, a, self.words)?, words(&state.memory, b, self.words)?);
        Ok(u64::from(a.zip(b).all(|(a, b)| test(a, b))))
    }

    /// The first CPU in both sets; a number beyond all CPUs if there is none.
    pub fn first(&self, state: &State, a: u64, b: u64) -> Result<u64, Fault> {
        let first = first_and_from(&state.memory, a, b, self.words, 0)?;
        Ok(first.unwrap_or(self.cpu_count) as u64)
    }

    /// The next CPU in both sets after the `last` one, in a cycle (`cpumask_any_and_distribute()`); a number
    /// beyond all CPUs if there is none.
    pub fn distribute(&self, state: &State, last: &mut usize, a: u64, b: u64) -> Result<usize, Fault> {
        let next = first_and_from(&state.memory, a, b, self.words, *last + 1)?;
        if let Some(next) = next {
            *last = next;
        }
        Ok(next.unwrap_or(self.cpu_count))
    }

    /// Copies a set of `size` bytes that a program has in a map, up to the number of CPUs.
    pub fn populate(&self, state: &mut State, mask: u64, from: u64, size: usize) -> Result<u64, Fault> {
        const EACCES: i64 = -13;
        if !size.is_multiple_of(8) || size < self.words * 8 {
            return Ok(EACCES as u64);
        }
        let scratch = self.scratch[1];
        for offset in (0..self.words as u64).map(|word| word * 8) {
            let word = state.memory.load(from + offset, 8)?;
            state.memory.store(scratch + offset, 8, word)?;
        }
        self.combine(state, mask, (scratch, self.possible), |set, all| set & all)?;
        Ok(0)
    }

    /// Removes all CPUs from a set.
    pub fn clear(&self, state: &mut State, mask: u64) -> Result<u64, Fault> {
        state.memory.slice_mut(mask, self.words * 8)?.fill(0);
        Ok(0)
    }

    /// Adds all CPUs to a set.
    pub fn set_all(&self, state: &mut State, mask: u64) -> Result<u64, Fault> {
        self.combine(state, mask, (self.possible, self.possible), |all, _| all)?;
        Ok(0)
    }
}
