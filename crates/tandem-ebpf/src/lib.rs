//! Runs the eBPF programs of a scheduler (`struct_ops`) outside of a kernel.
//!
//! Problem: a simulator wants to run the very object file that a kernel loads, as fast as its own code, many copies of
//! it at once, with the same result each time, and without trusting it.
//!
//! Approach: [`Image::link`] reads the file (ELF and BTF) and links it against an [`Environment`]: the types (CO-RE),
//! functions and variables of the kernel that the simulator makes it believe in. An [`Instance`] is a copy that runs:
//! memory and maps of its own, code shared with the others. All that a program can see lies in one linear [`Memory`],
//! whose addresses mean nothing to the process: each access is checked against its bounds, and addresses are the same
//! in each run. What the kernel does for a program it asks of a [`Kernel`]; what needs no kernel (maps, loops, reading
//! memory) is done here.
//!
//! Code runs as machine code (`compiler`) or in an interpreter, which is the reference: see [`Engine`].
//!
//! Limits: no verifier: what is wrong with a program is found when it happens, and ends the call with a [`Fault`]. One
//! thread at a time runs an instance, so atomic operations are ordinary ones. No arenas, no maps in maps, no BPF lists
//! and trees, no exceptions; what is missing is named when an object is linked.

mod btf;
mod compiler;
mod core_relocation;
mod data;
mod decode;
mod environment;
mod externs;
mod fault;
mod helper_numbers;
mod helpers;
mod image;
mod instance;
mod interpreter;
mod kernel;
mod known;
mod link;
mod map_definition;
mod maps;
mod memory;
mod object;
mod op;
mod runtime;
mod state;
mod struct_ops;
#[cfg(test)]
mod testing;

pub use environment::{Environment, FieldType, KernelEnum, KernelField, KernelStruct, KernelVariable};
pub use fault::{Fault, LoadError};
pub use image::{
    DataSection, Function, FunctionId, Image, Import, MapDefinition, MapKind, Program, StructOps, Variable,
};
pub use instance::{Code, Engine, Instance};
pub use kernel::{Kernel, KernelFunction};
pub use known::{Known, ObjectField};
pub use memory::Memory;
pub use op::{AluOp, AtomicOp, Condition, Op, Operand, Reg, Size, Swap};
pub use state::State;
