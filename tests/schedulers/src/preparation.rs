//! What the user space of a scheduler does besides loading its object, in terms that need no information about the
//! machine or the object's types: a file for `load-scheduler`.
//!
//! Who has both, and the recipe, writes it (`Preparation::of`, in the tests of real kernels).

use serde::{Deserialize, Serialize};

/// All of it, in the order in which it is done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preparation {
    /// What is written into global variables, before the kernel gets the object.
    pub variables: Vec<Patch>,
    /// Numbers of `struct sched_ext_ops`, by member; `None` removes a callback.
    pub operations: Vec<(String, Option<u64>)>,
    /// Numbers of elements that maps get, by the maps' names.
    pub sizes: Vec<(String, u32)>,
    /// What is written into maps, before the scheduler starts.
    pub elements: Vec<Element>,
    /// Programs that run then.
    pub calls: Vec<Call>,
    /// Programs that run once it has started.
    pub calls_after_start: Vec<Call>,
}

/// Bytes of a global variable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Patch {
    /// Its name.
    pub variable: String,
    /// The first of these bytes in it.
    pub offset: usize,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// An element of a map.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Element {
    /// The map's name.
    pub map: String,
    /// The CPU whose value it is, in a map with values for each; `None`: of all.
    pub cpu: Option<usize>,
    /// The key's bytes.
    pub key: Vec<u8>,
    /// The value's bytes.
    pub value: Vec<u8>,
}

/// A program that user space runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// Its name.
    pub program: String,
    /// What its argument points to.
    pub argument: Vec<u8>,
    /// What the call has to do with a set of CPUs in the scheduler's memory.
    pub set: Option<CpuSetUse>,
}

/// A program makes a set of CPUs, which user space fills in, and another one gets it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CpuSetUse {
    /// The program leaves the address of a set at this place of its argument; these words are written to the set.
    Fill(usize, Vec<u64>),
    /// The program gets the address of the last set that was filled in, at this place of its argument.
    Pass(usize),
}
