//! The running kernel's own types (BTF): its members and functions, whatever its release.
//!
//! Distributions backport fixes and features to older releases, so a release says less than the types.

use super::{RunningKernel, SchedulerError, messages};
use libbpf_rs::Btf;
use libbpf_rs::btf::types::{Func, Struct};

/// The structure of a scheduler's callbacks and settings.
pub const OPS: &str = "sched_ext_ops";

/// The types of a kernel.
pub struct KernelTypes(Btf<'static>);

impl KernelTypes {
    /// Reads the types of the running kernel.
    ///
    /// # Errors
    /// If the kernel does not publish them, or they are malformed.
    pub fn read(kernel: &RunningKernel) -> Result<Self, SchedulerError> {
        let file = kernel.types();
        if !file.exists() {
            return Err(SchedulerError::NoTypes { release: kernel.release() });
        }
        // Keeps libbpf from printing what is wrong with them.
        messages::begin();
        Btf::from_path(file).map(Self).map_err(SchedulerError::refused("report its types"))
    }

    /// Whether there is a structure of this name with this member.
    pub fn has_member(&self, structure: &str, member: &str) -> bool {
        let found = self.0.type_by_name::<Struct<'_>>(structure);
        found.is_some_and(|found| found.iter().any(|one| one.name.is_some_and(|name| name == member)))
    }

    /// Whether there is a function of this name which other files of the kernel can call.
    pub fn has_function(&self, function: &str) -> bool {
        self.0.type_by_name::<Func<'_>>(function).is_some()
    }
}

#[cfg(test)]
pub mod testing {
    //! Types of kernels that do not exist: the kernel's `Documentation/bpf/btf.rst`.

    use super::KernelTypes;
    use crate::scheduler::RunningKernel;
    use std::fs;

    const MAGIC: u16 = 0xeb9f;
    const HEADER_BYTES: u32 = 24;
    const KIND_INT: u32 = 1;
    const KIND_STRUCT: u32 = 4;
    const KIND_FUNC: u32 = 12;
    const KIND_FUNC_PROTO: u32 = 13;
    const GLOBAL: u32 = 1;
    const INT: u32 = 1;
    const INT_BITS: u32 = 32;

    /// The bytes of a kernel's types with these structures, whose members are all `int`, and functions
    /// without parameters.
    pub fn btf(structures: &[(&str, &[&str])], functions: &[&str]) -> Vec<u8> {
        let mut strings = vec![0];
        let mut name = |text: &str| {
            let at = strings.len() as u32;
            strings.extend(text.as_bytes().iter().chain(&[0]));
            at
        };
        let kind = |kind: u32, length: usize| kind << 24 | length as u32;
        let mut types = vec![name("int"), kind(KIND_INT, 0), INT_BITS / 8, INT_BITS];
        for (structure, members) in structures {
            let bytes = members.len() as u32 * INT_BITS / 8;
            types.extend([name(structure), kind(KIND_STRUCT, members.len()), bytes]);
            for (at, member) in (0..).zip(*members) {
                types.extend([name(member), INT, at * INT_BITS]);
            }
        }
        let proto = structures.len() as u32 + 2;
        types.extend([0, kind(KIND_FUNC_PROTO, 0), INT]);
        for function in functions {
            types.extend([name(function), kind(KIND_FUNC, 0) | GLOBAL, proto]);
        }
        let type_bytes = types.len() as u32 * 4;
        let mut bytes = Vec::from(MAGIC.to_ne_bytes());
        bytes.extend([1, 0]);
        let header = [HEADER_BYTES, 0, type_bytes, type_bytes, strings.len() as u32];
        bytes.extend(header.iter().chain(&types).flat_map(|word| word.to_ne_bytes()));
        bytes.extend(strings);
        bytes
    }

    /// The types of a kernel with only these structures.
    pub fn kernel_types(structures: &[(&str, &[&str])]) -> KernelTypes {
        let root = tempfile::tempdir().unwrap();
        let kernel = RunningKernel::new(root.path());
        fs::create_dir_all(kernel.types().parent().unwrap()).unwrap();
        fs::write(kernel.types(), btf(structures, &[])).unwrap();
        KernelTypes::read(&kernel).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn members_and_functions_are_found_by_their_names() {
        let root = tempfile::tempdir().unwrap();
        let kernel = RunningKernel::new(root.path());
        fs::create_dir_all(kernel.types().parent().unwrap()).unwrap();
        let bytes = testing::btf(&[("rq", &["lock"]), (OPS, &["init", "exit"])], &["schedule"]);
        fs::write(kernel.types(), bytes).unwrap();
        let types = KernelTypes::read(&kernel).unwrap();
        assert!(types.has_member(OPS, "exit") && types.has_member("rq", "lock"));
        assert!(!types.has_member(OPS, "lock") && !types.has_member("schedule", "lock"));
        assert!(types.has_function("schedule") && !types.has_function("rq"));
    }

    #[test]
    fn malformed_types_are_refused_in_a_sentence() {
        let root = tempfile::tempdir().unwrap();
        let kernel = RunningKernel::new(root.path());
        assert!(matches!(KernelTypes::read(&kernel), Err(SchedulerError::NoTypes { .. })));
        fs::create_dir_all(kernel.types().parent().unwrap()).unwrap();
        for bytes in [&b""[..], b"\x9f\xeb\x01", &[0xff; 64]] {
            fs::write(kernel.types(), bytes).unwrap();
            let error = KernelTypes::read(&kernel).err().unwrap().to_string();
            assert!(error.starts_with("the kernel refused to report its types: "), "{error}");
        }
    }
}
