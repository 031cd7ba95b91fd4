//! Topological numbers of CPUs, cids (`kernel/sched/ext/cid.c`): the CPUs of a core, of a last-level cache and of a node
//! have numbers that follow each other.
//!
//! Every scheduler may ask for them (`scx_bpf_cid_topo()`); one whose operations are a `sched_ext_ops_cid` gets and gives
//! them instead of CPUs. The kernel numbers the CPUs that are online when a scheduler starts, and those that are not come
//! last, without a place in the topology. Parts of a cache with at most so many CPUs as the scheduler says
//! (`cid_shard_size`) are *shards*.
//!
//! Limits: there are no clusters between cores and caches: a core counts as one.

use super::super::structures::{field, store};
use super::super::types::{CidMask, CidTopology};
use tandem_ebpf::{Fault, Memory, State};
use tandem_machine::Machine;
use tandem_machine::cpumask::CpuMask;
use tandem_machine::ids::CpuId;

/// CPUs of a shard if the scheduler does not say (`SCX_CID_SHARD_SIZE_DFL`), and at most (`SCX_CID_SHARD_MAX_CPUS`).
const SHARD_SIZE: usize = 24;
const SHARD_SIZE_MAX: usize = 512;

/// A part of the topology: its first cid, and its number among those of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    cid: i32,
    index: i32,
}

impl Part {
    const NONE: Self = Self { cid: -1, index: -1 };
}

/// Where a cid is in the topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    core: Part,
    llc: Part,
    node: Part,
    shard: Part,
}

impl Place {
    /// That of a CPU that was offline.
    const NOWHERE: Self = Self { core: Part::NONE, llc: Part::NONE, node: Part::NONE, shard: Part::NONE };
}

/// The cids of a scheduler's CPUs, and the sets of cids that the kernel makes in its memory.
#[derive(Debug)]
pub struct Cids {
    /// The scheduler gets and gives cids instead of CPUs.
    replace_cpus: bool,
    shard_size: usize,
    cpu_of: Vec<usize>,
    cid_of: Vec<usize>,
    places: Vec<Place>,
    /// Addresses of the sets of online CPUs and of the argument of `set_cmask`.
    online: u64,
    argument: u64,
}

impl Cids {
    /// The state without cids, for a scheduler that wants shards of that many CPUs; 0 if it does not say.
    pub fn new(replace_cpus: bool, shard_size: u64) -> Self {
        let shard_size = match usize::try_from(shard_size) {
            Ok(0) => SHARD_SIZE,
            asked => asked.map_or(SHARD_SIZE_MAX, |asked| asked.min(SHARD_SIZE_MAX)),
        };
        let [cpu_of, cid_of] = [Vec::new(), Vec::new()];
        Self { replace_cpus, shard_size, cpu_of, cid_of, places: Vec::new(), online: 0, argument: 0 }
    }

    /// The state before the start.
    pub fn forgotten(&self) -> Self {
        Self::new(self.replace_cpus, self.shard_size as u64)
    }

    /// Numbers the CPUs, and makes the kernel's sets.
    pub fn prepare(&mut self, state: &mut State, machine: &Machine, online: &CpuMask) -> Result<(), Fault> {
        self.number(machine, online);
        self.online = self.make_set(state)?;
        self.argument = self.make_set(state)?;
        online.iter().try_for_each(|cpu| self.set_online(state, cpu.index(), true))
    }

    fn number(&mut self, machine: &Machine, online: &CpuMask) {
        let mut left = online.clone();
        let (mut nodes, mut llcs, mut cores, mut shards) = (0, 0, 0, 0);
        let next = |count: &mut i32, cid: usize| {
            *count += 1;
            Part { cid: cid as i32, index: *count - 1 }
        };
        while let Some(first) = lowest(&left) {
            let in_node = left.and(machine.node_cpus(machine.cpu(first).node));
            let node = next(&mut nodes, self.cpu_of.len());
            while let Some(first) = lowest(&left.and(&in_node)) {
                let in_llc = left.and(&in_node).and(machine.llc_cpus(first));
                let llc = next(&mut llcs, self.cpu_of.len());
                let mut shards_of_llc = Shards::new(machine, &in_llc, self.shard_size);
                let mut shard = next(&mut shards, self.cpu_of.len());
                while let Some(first) = lowest(&left.and(&in_llc)) {
                    let in_core = left.and(&in_llc).and(machine.siblings(first));
                    let core = next(&mut cores, self.cpu_of.len());
                    if shards_of_llc.is_full_for(in_core.count()) {
                        shard = next(&mut shards, self.cpu_of.len());
                    }
                    for cpu in in_core.iter() {
                        left.remove(cpu);
                        self.cpu_of.push(cpu.index());
                        self.places.push(Place { core, llc, node, shard });
                    }
                }
            }
        }
        let mut shard = Part::NONE;
        for (position, cpu) in machine.all_cpus().iter().filter(|&cpu| !online.contains(cpu)).enumerate() {
            if position % self.shard_size == 0 {
                shard = next(&mut shards, self.cpu_of.len());
            }
            self.cpu_of.push(cpu.index());
            self.places.push(Place { shard, ..Place::NOWHERE });
        }
        self.invert();
    }

    fn invert(&mut self) {
        self.cid_of = vec![0; self.cpu_of.len()];
        for (cid, &cpu) in self.cpu_of.iter().enumerate() {
            self.cid_of[cpu] = cid;
        }
    }

    /// Replaces the numbers by those of the scheduler, with the first cid of each shard; the topology is forgotten
    /// (`scx_bpf_cid_override()`). The error says what is wrong with them.
    pub fn replace(&mut self, cid_of: &[i32], shard_starts: &[i32]) -> Result<(), String> {
        let count = self.cpu_of.len();
        if cid_of.len() != count {
            return Err(format!("there are {count} CPUs, and {} cids were given", cid_of.len()));
        }
        let mut ends = shard_starts.iter().skip(1).copied().chain([count as i32]);
        let is_shard = |(&start, end): (&i32, i32)| start < end && (end - start) as usize <= SHARD_SIZE_MAX;
        if shard_starts.first() != Some(&0) || !shard_starts.iter().zip(ends.by_ref()).all(is_shard) {
            return Err(format!(
                "shards begin at cid 0, each after the one before, and have at most {SHARD_SIZE_MAX} cids"
            ));
        }
        let mut cpu_of = vec![None; count];
        for (cpu, &cid) in cid_of.iter().enumerate() {
            match usize::try_from(cid).ok().and_then(|cid| cpu_of.get_mut(cid)) {
                Some(free @ None) => *free = Some(cpu),
                Some(Some(other)) => return Err(format!("cid {cid} is given to CPUs {other} and {cpu}")),
                None => return Err(format!("cid {cid} of CPU {cpu} does not exist: cids are below {count}")),
            }
        }
        self.cpu_of = cpu_of.into_iter().flatten().collect();
        self.invert();
        for cid in 0..count {
            let index = shard_starts.partition_point(|&start| start as usize <= cid) - 1;
            let shard = Part { cid: shard_starts[index], index: index as i32 };
            self.places[cid] = Place { shard, ..Place::NOWHERE };
        }
        Ok(())
    }

    /// Whether the scheduler gets and gives cids instead of CPUs.
    #[inline]
    pub fn replace_cpus(&self) -> bool {
        self.replace_cpus
    }

    /// The cid of a CPU.
    pub fn of(&self, cpu: usize) -> usize {
        self.cid_of[cpu]
    }

    /// The CPU of a cid that a program names, if it exists.
    pub fn cpu(&self, cid: u64) -> Option<usize> {
        self.cpu_of.get(cid as u32 as usize).copied()
    }

    /// What a scheduler gets for a CPU.
    #[inline]
    pub fn argument(&self, cpu: usize) -> u64 {
        match self.replace_cpus {
            true => self.cid_of[cpu] as u64,
            false => cpu as u64,
        }
    }

    /// The CPU that a scheduler names, if it exists.
    #[inline]
    pub fn named(&self, cpu: u64) -> Option<usize> {
        match self.replace_cpus {
            true => self.cpu(cpu),
            false => Some(cpu as u32 as usize).filter(|&cpu| cpu < self.cid_of.len()),
        }
    }

    /// Writes the place of a cid into the first bytes of a program's structure, in which all else becomes 0; -1 everywhere if
    /// there is no such cid.
    pub fn write_place(&self, memory: &mut Memory, cid: u64, to: u64, bytes: u64) -> Result<(), Fault> {
        let Place { core, llc, node, shard } =
            self.places.get(cid as u32 as usize).copied().unwrap_or(Place::NOWHERE);
        // In the order of the kernel's structure; a core is a cluster.
        let words = [core, llc, node, shard, core].into_iter().flat_map(|part| [part.cid, part.index]);
        let all: Vec<u8> =
            words.flat_map(i32::to_le_bytes).chain(std::iter::repeat(0)).take(bytes as usize).collect();
        debug_assert_eq!(CidTopology::SIZE, 10 * size_of::<i32>());
        memory.slice_mut(to, all.len())?.copy_from_slice(&all);
        Ok(())
    }

    /// The set of online CPUs.
    pub fn online(&self) -> u64 {
        self.online
    }

    /// A CPU comes online or goes offline.
    pub fn set_online(&self, state: &mut State, cpu: usize, is_online: bool) -> Result<(), Fault> {
        assign(&mut state.memory, self.online, self.cid_of[cpu], is_online)
    }

    /// The argument of `set_cmask` for a task that may use these CPUs.
    pub fn allowed(&self, state: &mut State, cpus: &CpuMask) -> Result<u64, Fault> {
        for (cpu, &cid) in self.cid_of.iter().enumerate() {
            assign(&mut state.memory, self.argument, cid, cpus.contains(CpuId::from(cpu)))?;
        }
        Ok(self.argument)
    }

    /// Writes a set of all cids, or of none, into the one of a program.
    pub fn fill(&self, state: &mut State, set: u64, is_in: bool) -> Result<(), Fault> {
        let number = |(offset, bytes), memory: &Memory| memory.load(set + offset, bytes);
        let base = number(field!(CidMask, base), &state.memory)? as usize;
        let count = number(field!(CidMask, nr_cids), &state.memory)? as usize;
        for cid in base..base.saturating_add(count).min(self.cpu_of.len()) {
            let word = CidMask::SIZE as u64 + (cid / 64 - base / 64) as u64 * 8;
            let bits = state.memory.load(set + word, 8)?;
            let bit = 1 << (cid % 64);
            state.memory.store(set + word, 8, if is_in { bits | bit } else { bits & !bit })?;
        }
        Ok(())
    }

    /// Makes an empty set of all cids (`scx_cmask_init()`).
    fn make_set(&self, state: &mut State) -> Result<u64, Fault> {
        let words = self.cpu_of.len().div_ceil(64) + 1;
        let set = state.memory.allocate(CidMask::SIZE + words * 8)?;
        store(&mut state.memory, set, field!(CidMask, nr_cids), self.cpu_of.len() as u64)?;
        store(&mut state.memory, set, field!(CidMask, alloc_words), words as u64)?;
        Ok(set)
    }
}

/// Adds a cid to one of the kernel's sets, which begin at cid 0, or removes it.
fn assign(memory: &mut Memory, set: u64, cid: usize, is_in: bool) -> Result<(), Fault> {
    super::sets::assign(memory, set + CidMask::SIZE as u64, cid, is_in).map(drop)
}

fn lowest(cpus: &CpuMask) -> Option<CpuId> {
    cpus.iter().next()
}

/// The division of a cache's CPUs into shards: as many as its CPUs need, with cores spread evenly.
struct Shards {
    size: usize,
    cores_each: usize,
    /// So many of the first ones have a core more.
    larger: usize,
    cores: usize,
    cpus: usize,
}

impl Shards {
    fn new(machine: &Machine, cpus: &CpuMask, size: usize) -> Self {
        let is_first = |cpu: &CpuId| lowest(machine.siblings(*cpu)) == Some(*cpu);
        let cores = cpus.iter().filter(is_first).count();
        let shards = cpus.count().div_ceil(size).max(1);
        Self { size, cores_each: cores / shards, larger: cores % shards, cores: 0, cpus: 0 }
    }

    /// Whether a core with that many CPUs goes to a new shard, to which it is then added.
    fn is_full_for(&mut self, cpus: usize) -> bool {
        let cores_max = self.cores_each + usize::from(self.larger > 0);
        let is_full = self.cores > 0 && (self.cores >= cores_max || self.cpus + cpus > self.size);
        if is_full {
            self.larger = self.larger.saturating_sub(1);
            (self.cores, self.cpus) = (0, 0);
        }
        self.cores += 1;
        self.cpus += cpus;
        is_full
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use tandem_machine::machine_named;

    fn machine(text: &str) -> Machine {
        machine_named(text).ok().flatten().unwrap_or_else(|| panic!("there is no machine {text}"))
    }

    /// A machine that numbers its CPUs as Linux does on x86, siblings far apart, with these CPUs offline.
    fn numbered(text: &str, offline: &[u32], shard_size: u64) -> (Machine, CpuMask, Cids) {
        let machine = machine(text);
        let mut online = machine.all_cpus().clone();
        offline.iter().for_each(|&cpu| online.remove(CpuId(cpu)));
        let mut cids = Cids::new(true, shard_size);
        cids.number(&machine, &online);
        (machine, online, cids)
    }

    /// The cids of each part of a kind, which have to follow each other from the part's first one on; the parts have to be
    /// numbered in the order of these.
    fn check_parts<K: Ord + Copy>(
        cids: &Cids,
        of: impl Fn(CpuId) -> Option<K>,
        part: impl Fn(&Place) -> Part,
    ) {
        let mut parts: BTreeMap<K, Vec<usize>> = BTreeMap::new();
        for (cid, &cpu) in cids.cpu_of.iter().enumerate() {
            match of(CpuId::from(cpu)) {
                Some(key) => parts.entry(key).or_default().push(cid),
                None => assert_eq!(part(&cids.places[cid]), Part::NONE, "cid {cid}"),
            }
        }
        let mut ordered: Vec<_> = parts.into_values().collect();
        ordered.sort();
        for (index, part_cids) in ordered.iter().enumerate() {
            let first = part_cids[0];
            assert!(part_cids.iter().copied().eq(first..first + part_cids.len()), "{part_cids:?}");
            let expected = Part { cid: first as i32, index: index as i32 };
            part_cids.iter().for_each(|&cid| assert_eq!(part(&cids.places[cid]), expected, "cid {cid}"));
        }
    }

    #[test]
    fn parts_of_any_machine_have_cids_that_follow_each_other() {
        let machines =
            ["1x1x1", "1x2x1", "2x4x1", "2x8x2", "1x64x2", "4x12x2", "epyc-9654-2s", "xeon-e5620-2s"];
        let mut random = 1u64;
        for text in machines {
            for shard_size in [0, 1, 3, 8, 600] {
                let count = machine(text).cpu_count() as u64;
                let offline: Vec<u32> = (0..count.min(5))
                    .map(|_| {
                        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        (random >> 33) % count
                    })
                    .filter(|&cpu| cpu != 0)
                    .map(|cpu| cpu as u32)
                    .collect();
                let (machine, online, cids) = numbered(text, &offline, shard_size);
                let mut cpus = cids.cpu_of.clone();
                cpus.sort_unstable();
                assert!(cpus.into_iter().eq(0..machine.cpu_count()), "{text}: each CPU has one cid");
                assert!((0..machine.cpu_count()).all(|cpu| cids.cpu_of[cids.of(cpu)] == cpu));
                let there = |cpu| online.contains(cpu).then(|| machine.cpu(cpu));
                check_parts(&cids, |cpu| there(cpu).map(|cpu| cpu.core), |place| place.core);
                check_parts(
                    &cids,
                    |cpu| there(cpu).map(|own| lowest(machine.llc_cpus(cpu)).unwrap_or(CpuId(own.core.0))),
                    |place| place.llc,
                );
                check_parts(&cids, |cpu| there(cpu).map(|cpu| cpu.node), |place| place.node);
                check_parts(
                    &cids,
                    |cpu| Some(cids.places[cids.of(cpu.index())].shard.index),
                    |place| place.shard,
                );
                // No shard is larger than it may be, unless one core alone is.
                let mut sizes: BTreeMap<i32, usize> = BTreeMap::new();
                cids.places.iter().for_each(|place| *sizes.entry(place.shard.index).or_default() += 1);
                let threads = machine.cores().iter().map(|core| core.cpus.count()).max().unwrap();
                assert!(
                    sizes.values().all(|&size| size <= cids.shard_size.max(threads)),
                    "{text}: {sizes:?}"
                );
            }
        }
    }

    #[test]
    fn a_cache_is_divided_as_the_kernel_does_it() {
        // 16 cores of two threads in shards of at most 24 CPUs: two of eight cores, not one of twelve and one of four.
        let (_, _, cids) = numbered("1x16x2", &[], 0);
        let shards: Vec<_> = cids.places.iter().map(|place| place.shard.cid).collect();
        assert_eq!(shards, [vec![0; 16], vec![16; 16]].concat());
        // Seven cores in three shards: three, two and two.
        let (_, _, cids) = numbered("1x7x1", &[], 3);
        let shards: Vec<_> = cids.places.iter().map(|place| place.shard.index).collect();
        assert_eq!(shards, [0, 0, 0, 1, 1, 2, 2]);
    }

    #[test]
    fn a_scheduler_may_number_the_cpus_itself_if_it_does_it_right() {
        let (_, _, mut cids) = numbered("1x4x1", &[], 0);
        let before = format!("{cids:?}");
        for (numbers, starts, expected) in [
            (&[0, 1, 2][..], &[0][..], "there are 4 CPUs, and 3 cids were given"),
            (&[0, 1, 2, 2], &[0], "cid 2 is given to CPUs 2 and 3"),
            (&[0, 1, 2, 4], &[0], "cid 4 of CPU 3 does not exist: cids are below 4"),
            (&[0, 1, 2, -1], &[0], "cid -1 of CPU 3 does not exist: cids are below 4"),
            (
                &[0, 1, 2, 3],
                &[],
                "shards begin at cid 0, each after the one before, and have at most 512 cids",
            ),
            (&[0, 1, 2, 3], &[1], "shards begin at cid 0"),
            (&[0, 1, 2, 3], &[0, 2, 2], "shards begin at cid 0"),
            (&[0, 1, 2, 3], &[0, 4], "shards begin at cid 0"),
        ] {
            let error = cids.replace(numbers, starts).expect_err(expected);
            assert!(error.contains(expected), "{error}");
            assert_eq!(format!("{cids:?}"), before, "wrong numbers change nothing");
        }
        cids.replace(&[3, 2, 1, 0], &[0, 1]).unwrap();
        assert_eq!(cids.cpu_of, [3, 2, 1, 0]);
        assert_eq!(cids.argument(0), 3);
        assert_eq!(cids.named(3), Some(0));
        let shard = |cid: usize| cids.places[cid].shard;
        assert_eq!([shard(0).index, shard(1).index, shard(3).cid], [0, 1, 1]);
        assert_eq!(cids.places[2].core, Part::NONE);
    }
}
