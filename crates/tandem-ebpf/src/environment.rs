//! The kernel that an object is linked against: types, functions, variables, configuration.

use crate::kernel::KernelFunction;
use crate::known::KnownResult;
use std::collections::{HashMap, HashSet};

/// The types, functions, variables and configuration that a kernel offers to programs.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// Structures, by name.
    pub structs: HashMap<&'static str, KernelStruct>,
    /// Enumerations, by name.
    pub enums: HashMap<&'static str, KernelEnum>,
    /// Functions that programs may call: kfuncs by name, helpers by the names of their C declarations
    /// (`bpf_ktime_get_ns`).
    pub functions: HashMap<&'static str, KernelFunction>,
    /// Functions that need no call, in the same way.
    pub known: HashMap<&'static str, KnownResult>,
    /// Functions of the runtime that this kernel does not have.
    pub lacks: HashSet<&'static str>,
    /// The parameters and results of kfuncs, by name; a program that declares others does not mean the function.
    ///
    /// In parentheses: first the result, then the parameters. `v` is nothing, `i` a number, `e` an enumeration, `s` a
    /// structure, parentheses a function, and `p` before one of these a pointer to it: `(ips)` is
    /// `int f(struct x *)`. As in the kernel, sizes and names do not matter.
    pub prototypes: HashMap<&'static str, &'static str>,
    /// Variables (`__ksym`), by name.
    pub variables: HashMap<&'static str, KernelVariable>,
    /// Values of the build configuration (`__kconfig`), with `LINUX_KERNEL_VERSION` among them.
    pub config: HashMap<&'static str, u64>,
}

/// A structure as the simulator lays it out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelStruct {
    /// Bytes.
    pub size: u32,
    /// In any order.
    pub fields: &'static [KernelField],
}

/// A field of a structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelField {
    /// As in the kernel.
    pub name: &'static str,
    /// From the beginning of the structure, bytes.
    pub offset: u32,
    /// Bytes.
    pub size: u32,
    /// Its content.
    pub kind: FieldType,
}

/// The content of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldType {
    /// A number or a pointer.
    Scalar,
    /// A structure, by name.
    Struct(&'static str),
    /// An array of numbers or pointers of this many bytes each.
    Array(u32),
}

/// An enumeration: names and values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelEnum {
    /// Names and values.
    pub values: &'static [(&'static str, u64)],
}

/// A variable of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelVariable {
    /// Bytes.
    pub size: u32,
    /// Each CPU has its own.
    pub per_cpu: bool,
}
