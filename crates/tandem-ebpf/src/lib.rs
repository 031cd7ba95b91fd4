//! Runs the eBPF programs of a scheduler (`struct_ops`) outside of a kernel.
//!
//! Problem: a simulator needs to run the same object file that a kernel loads, as fast as its own code, many
//! copies at once, with the same result each time, and without trusting it.
//!
//! Approach: [`Image::link`] reads the file (ELF and BTF) and links it against an [`Environment`]: the types
//! (CO-RE), functions and variables of the simulated kernel. An [`Instance`] is a copy that runs, with memory
//! and maps of its own, and code that it shares with the others. Everything that a program can see lies in
//! one linear [`Memory`], whose addresses mean nothing to the process: each access is checked against its
//! bounds, and addresses are the same in each run. A [`Kernel`] provides the functions that need a kernel;
//! this crate provides those that need none (maps, loops, reading memory).
//!
//! Code runs as machine code (`compiler`) or in an interpreter, which is the reference: see [`Engine`].
//!
//! Limits: there is no verifier. An error in a program ends the call with a [`Fault`] when it happens. One
//! thread at a time runs an instance, so atomic operations are ordinary ones. No exceptions; linking an object
//! names what is missing.

mod btf;
mod budget;
mod compiler;
mod core_relocation;
mod data;
mod data_types;
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
mod object_types;
mod objects;
mod op;
mod runtime;
mod state;
mod struct_ops;
#[cfg(test)]
mod testing;
mod value;

pub use data_types::{DataField, DataType, DataTypeId, DataTypes};
pub use environment::{Environment, FieldType, KernelEnum, KernelField, KernelStruct, KernelVariable};
pub use fault::{Fault, LoadError};
pub use image::{
    DataSection, Function, FunctionId, Image, Import, MapDefinition, MapKind, NodeKind, ObjectType, Program,
    StructOps, Variable,
};
pub use instance::{Code, Engine, Instance};
pub use kernel::{Kernel, KernelFunction};
pub use known::{ArrayField, KnownResult, ObjectField};
pub use memory::Memory;
pub use op::{AluOp, AtomicOp, Condition, Op, Operand, Reg, Size, Swap};
pub use state::State;
pub use value::{Patch, Value, listed};
