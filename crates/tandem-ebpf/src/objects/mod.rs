//! Objects that programs allocate (`bpf_obj_new()`), and the lists and trees that they are in.
//!
//! Problem: on a kernel, a verifier proves that a program gives each object back, and that it uses none that it
//! has given back. Here a program runs without such a proof, and its mistakes must neither disturb other data
//! nor stay unseen.
//!
//! Approach: objects lie in the memory of programs, since these read and write them; all else is kept here:
//! which objects live, how many references each has and how many of these a program holds, in which fields
//! (`__kptr`) and in which lists ([`graph`]) and trees ([`tree`]) they are. Functions check their arguments
//! against that.
//!
//! Memory of an object that has gone is filled with a pattern that is no address, and is used again only when
//! the call that dropped the object has ended and no word of memory points to it any more: a sweep over memory
//! finds out, once a share of it waits. So what a program reads through a pointer that it should not have kept
//! is never another's data.
//!
//! Limits: pointers that a program keeps in parts, or at addresses that are no multiples of 8, are not seen.

pub(crate) mod graph;
#[cfg(test)]
mod tests;
pub(crate) mod tree;

use crate::fault::Fault;
use crate::image::{Image, NodeKind, ObjectType};
use crate::memory::Memory;
use graph::{Node, Root};
use std::collections::BTreeMap;

/// All objects of an instance.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    /// By the addresses that programs have.
    live: BTreeMap<u64, Object>,
    /// Objects by the addresses of the fields that they are in.
    pub fields: BTreeMap<u64, u64>,
    /// Lists and trees that are not empty, by their addresses.
    pub roots: BTreeMap<u64, Root>,
    /// Their nodes, by their addresses.
    pub nodes: BTreeMap<u64, Node>,
    /// Blocks of objects that have gone, by their addresses.
    waiting: BTreeMap<u64, Block>,
    waiting_bytes: usize,
    /// Bytes of all objects, those that have gone included.
    bytes: usize,
    /// The [`Objects::waiting_bytes`] that begin a sweep.
    sweep_bytes: usize,
}

/// An object that lives.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    /// The type's number in the object file.
    pub of: u64,
    pub block: Block,
    /// Those of programs, and one for each field, list and tree that it is in.
    references: u32,
    /// Those that programs hold while they run.
    owned: u32,
}

/// Memory of an object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    address: u64,
    /// Bytes of an object, or of what each CPU has of one.
    stride: usize,
    /// How many there are: the number of CPUs, or 1.
    copies: usize,
}

impl Block {
    fn bytes(self) -> usize {
        self.stride * self.copies
    }

    fn end(self) -> u64 {
        self.address + self.bytes() as u64
    }
}

/// Bytes of objects, those that have gone included, beyond which there is no memory for another one.
pub(crate) const BYTES_MAX: usize = 128 << 20;
/// Bytes of the largest object, and of the largest one of which each CPU has its own, as in the kernel.
const SIZE_MAX: usize = 4096;
const PER_CPU_SIZE_MAX: usize = 512;
/// Bytes of the smallest amount for which a sweep is worth the time.
const SWEEP_BYTES_MIN: usize = 1 << 20;
/// A sweep begins when this part of all memory waits.
const SWEEP_SHARE: usize = 4;
/// What memory of an object that has gone contains: no address.
const GONE: u8 = 0xa5;

impl Objects {
    /// Makes an object of zeros, which the caller owns; `None` if there is no memory for it. With `cpu_count`,
    /// each CPU has its own, and the address stands for all of them.
    pub fn make(
        &mut self,
        memory: &mut Memory,
        (of, size): (u64, usize),
        cpu_count: Option<usize>,
    ) -> Result<Option<u64>, Fault> {
        let size_max = if cpu_count.is_some() { PER_CPU_SIZE_MAX } else { SIZE_MAX };
        let (stride, copies) = (size.max(1).next_multiple_of(8), cpu_count.unwrap_or(1));
        let bytes = stride.saturating_mul(copies);
        if size > size_max || bytes > BYTES_MAX.saturating_sub(self.bytes) {
            return Ok(None);
        }
        let block = Block { address: memory.allocate(bytes)?, stride, copies };
        let address = match cpu_count {
            Some(_) => Image::PER_CPU_OBJECTS | block.address,
            None => block.address,
        };
        self.bytes += bytes;
        self.live.insert(address, Object { of, block, references: 1, owned: 1 });
        Ok(Some(address))
    }

    /// How many live.
    pub fn count(&self) -> usize {
        self.live.len()
    }

    /// The object at an address; `function` needs one.
    pub fn expect(&self, function: &str, address: u64) -> Result<&Object, Fault> {
        self.live.get(&address).ok_or_else(|| self.no_object(function, address))
    }

    /// Whether an address is in memory of an object that has gone.
    pub fn has_gone(&self, address: u64) -> bool {
        let address = address & !Image::PER_CPU_OBJECTS;
        self.waiting.range(..=address).next_back().is_some_and(|(_, block)| address < block.end())
    }

    /// The address of the object in which another address is.
    pub fn around(&self, address: u64) -> Option<u64> {
        let (&begin, object) = self.live.range(..=address).next_back()?;
        (address - begin < object.block.stride as u64).then_some(begin)
    }

    /// The object of a node of a list or tree, by the node's address, with the node's offset in it.
    pub fn of_node(
        &self,
        function: &str,
        node: u64,
        kind: NodeKind,
        types: &BTreeMap<u64, ObjectType>,
    ) -> Result<(u64, u64), Fault> {
        let object = self.around(node).ok_or_else(|| self.no_object(function, node))?;
        let offset = node - object;
        let of = types.get(&self.live[&object].of);
        if !of.is_some_and(|of| of.nodes.contains(&(offset as usize, kind))) {
            let name = of.map_or("an unknown type", |of| &of.name);
            return Err(Fault(format!(
                "`{function}` got an address that is not that of a `struct {}` in an object, but offset {offset} of \
                 `struct {name}`",
                kind.structure()
            )));
        }
        Ok((object, offset))
    }

    /// Takes a reference of a program away from it, for a field, list or tree, or to release it.
    pub fn take(&mut self, function: &str, object: u64) -> Result<(), Fault> {
        match self.live.get_mut(&object) {
            Some(Object { owned: owned @ 1.., .. }) => {
                *owned -= 1;
                Ok(())
            }
            Some(_) => Err(Fault(format!(
                "`{function}` got an object that the program does not own: it is in a field, list or tree"
            ))),
            None => Err(self.no_object(function, object)),
        }
    }

    /// Gives a program a reference that a field, list or tree had.
    pub fn give(&mut self, object: u64) {
        if let Some(object) = self.live.get_mut(&object) {
            object.owned += 1;
        }
    }

    /// Gives a program another reference.
    pub fn acquire(&mut self, object: u64) -> Result<(), Fault> {
        if let Some(object) = self.live.get_mut(&object) {
            object.references = object
                .references
                .checked_add(1)
                .ok_or_else(|| Fault("an object has too many references".to_owned()))?;
            object.owned += 1;
        }
        Ok(())
    }

    /// Removes a reference that nobody holds any more; the object goes with the last one, and what is in it.
    pub fn release(&mut self, memory: &mut Memory, object: u64) -> Result<(), Fault> {
        let mut released = vec![object];
        // A chain of objects may be long.
        while let Some(address) = released.pop() {
            let Some(object) = self.live.get_mut(&address) else { continue };
            object.references -= 1;
            if object.references > 0 {
                continue;
            }
            let block = object.block;
            self.live.remove(&address);
            self.empty(block.address, block.end(), &mut released);
            memory.slice_mut(block.address, block.bytes())?.fill(GONE);
            self.waiting_bytes += block.bytes();
            self.waiting.insert(block.address, block);
        }
        Ok(())
    }

    /// Memory from one address to another holds fields, lists and trees no more: releases what is in them.
    pub fn release_all_in(&mut self, memory: &mut Memory, begin: u64, end: u64) -> Result<(), Fault> {
        let mut released = Vec::new();
        self.empty(begin, end, &mut released);
        released.into_iter().try_for_each(|object| self.release(memory, object))
    }

    /// Whether no object is in a field, list or tree.
    pub fn are_nowhere(&self) -> bool {
        self.fields.is_empty() && self.roots.is_empty()
    }

    /// The places of fields, lists and trees in memory from one address to another.
    pub fn places_in(&self, begin: u64, end: u64) -> Vec<u64> {
        let fields = self.fields.range(begin..end).map(|(&at, _)| at);
        fields.chain(self.roots.range(begin..end).map(|(&at, _)| at)).collect()
    }

    /// Removes the fields, lists and trees in memory from one address to another; adds the objects that were in
    /// them, each of which has had a reference by that.
    fn empty(&mut self, begin: u64, end: u64, released: &mut Vec<u64>) {
        for at in self.places_in(begin, end) {
            released.extend(self.fields.remove(&at));
            if let Some(root) = self.roots.remove(&at) {
                let nodes = root.nodes(&self.nodes);
                for node in nodes {
                    self.nodes.remove(&node);
                    released.extend(self.around(node));
                }
            }
        }
    }

    /// The memory of a CPU's part of an object, by an address that stands for it or for a part of it.
    pub fn of_cpu(&self, address: u64, cpu: usize) -> Option<u64> {
        let begin = self.around(address)?;
        let Block { address: block, stride, copies } = self.live[&begin].block;
        (begin & Image::PER_CPU_OBJECTS == Image::PER_CPU_OBJECTS && cpu < copies)
            .then(|| block + (cpu * stride) as u64 + (address - begin))
    }

    /// Whether it is time to use memory of objects again that have gone.
    #[inline]
    pub fn wants_sweep(&self) -> bool {
        self.waiting_bytes > self.sweep_bytes
    }

    /// Uses memory of objects again that have gone and that no word in memory points to. No program runs.
    pub fn sweep(&mut self, memory: &mut Memory) {
        let share = memory.len() / SWEEP_SHARE;
        if self.waiting_bytes >= share.max(SWEEP_BYTES_MIN) {
            let blocks: Vec<Block> = self.waiting.values().copied().collect();
            let mut is_kept = vec![false; blocks.len()];
            let range =
                blocks.first().map_or(0, |block| block.address)..blocks.last().map_or(0, |block| block.end());
            // Those of which each CPU has its own are known by another address.
            let words = memory.words().map(|word| word & !Image::PER_CPU_OBJECTS);
            for word in words.filter(|word| range.contains(word)) {
                let after = blocks.partition_point(|block| block.address <= word);
                if let Some(at) = after.checked_sub(1)
                    && word < blocks[at].end()
                {
                    is_kept[at] = true;
                }
            }
            for (block, _) in blocks.into_iter().zip(is_kept).filter(|(_, is_kept)| !is_kept) {
                memory.free(block.address, block.bytes());
                self.waiting.remove(&block.address);
                self.bytes -= block.bytes();
                self.waiting_bytes -= block.bytes();
            }
        }
        self.sweep_bytes = self.waiting_bytes + (memory.len() / SWEEP_SHARE).max(SWEEP_BYTES_MIN);
    }

    #[cold]
    fn no_object(&self, function: &str, address: u64) -> Fault {
        Fault(match address {
            0 => format!("`{function}` got a null pointer instead of an object"),
            _ if self.has_gone(address) => format!("`{function}` got an object that has been dropped"),
            _ => format!("`{function}` got {address:#x}, which is no object from `bpf_obj_new`"),
        })
    }
}
