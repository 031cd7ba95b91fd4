//! Functions of the runtime without a program around them.

use super::{TestKernel, image, instance, runtime, scratch};
use crate::fault::Fault;
use crate::image::{FunctionId, Image, MapDefinition};
use crate::instance::{Engine, Instance};
use crate::memory::Memory;
use crate::op::Op;

/// Calls functions of the runtime one by one, as a program would that does nothing else.
pub(crate) struct Bench {
    pub instance: Instance,
    pub kernel: TestKernel,
    names: Vec<&'static str>,
}

impl Bench {
    /// Bytes of scratch space at [`Memory::BASE`].
    pub const SCRATCH: usize = 4096;

    /// With these maps and functions of the runtime.
    pub fn new(maps: Vec<MapDefinition>, names: &[&'static str]) -> Self {
        Self::with_image(names, |image| image.maps = maps)
    }

    /// A bench with these functions of the runtime, and additions to the image. Its first functions are those
    /// calls.
    pub fn with_image(names: &[&'static str], change: impl FnOnce(&mut Image)) -> Self {
        let calls: Vec<[Op; 2]> =
            (0..names.len()).map(|import| [Op::CallKernel { import: import as u32 }, Op::Exit]).collect();
        let functions: Vec<_> = names.iter().zip(&calls).map(|(&name, ops)| (name, ops.as_slice())).collect();
        let mut image = image(&functions);
        image.imports = runtime(names);
        image.sections.push(scratch(Self::SCRATCH));
        change(&mut image);
        let instance = instance(image, Engine::Interpreted);
        Self { instance, kernel: TestKernel::default(), names: names.to_vec() }
    }

    /// Calls one of them.
    pub fn try_call(&mut self, name: &str, arguments: &[u64]) -> Result<u64, Fault> {
        let function = self.names.iter().position(|&known| known == name).expect("the bench has it");
        let mut all = [0; 5];
        all[..arguments.len()].copy_from_slice(arguments);
        self.instance.call(&mut self.kernel, FunctionId(function as u32), all)
    }

    /// Calls one of them, which must not fault.
    pub fn call(&mut self, name: &str, arguments: &[u64]) -> u64 {
        self.try_call(name, arguments).unwrap_or_else(|fault| panic!("{name}: {fault}"))
    }

    /// The result as a signed number, to compare it with an error number.
    pub fn error(&mut self, name: &str, arguments: &[u64]) -> i64 {
        self.call(name, arguments) as i64
    }

    /// The message of the fault of a call.
    pub fn fault(&mut self, name: &str, arguments: &[u64]) -> String {
        self.try_call(name, arguments).expect_err("this is a fault").0
    }

    /// Memory.
    pub fn memory(&mut self) -> &mut Memory {
        &mut self.instance.state_mut().memory
    }

    /// Puts bytes into the scratch space, at an offset; returns their address.
    pub fn put(&mut self, offset: u64, bytes: &[u8]) -> u64 {
        let address = Memory::BASE + offset;
        self.memory().slice_mut(address, bytes.len()).expect("the scratch space").copy_from_slice(bytes);
        address
    }

    /// Puts a number of 64 bits into the scratch space; returns its address.
    pub fn put_number(&mut self, offset: u64, number: u64) -> u64 {
        self.put(offset, &number.to_le_bytes())
    }

    /// The number of 64 bits at an address.
    pub fn number(&mut self, address: u64) -> u64 {
        self.memory().load(address, 8).expect("an address inside")
    }
}
