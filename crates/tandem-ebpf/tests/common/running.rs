//! Runs objects in both engines, which have to agree.

use std::sync::Arc;
use tandem_ebpf::{Code, Engine, Fault, Image, Instance, Kernel, KernelFunction, Memory, State};

/// A kernel without functions.
pub struct NoKernel;

impl Kernel for NoKernel {
    fn cpu(&self) -> usize {
        1
    }

    fn clock_ns(&self) -> u64 {
        0
    }

    fn call(&mut self, _: &mut State, _: KernelFunction, _: [u64; 5]) -> Result<u64, Fault> {
        Ok(0)
    }

    fn start_timer(&mut self, _: u64, _: u64, _: bool) -> bool {
        false
    }

    fn cancel_timer(&mut self, _: u64) -> bool {
        false
    }
}

/// An object in both engines, for two CPUs.
pub struct Both(pub [Instance; 2]);

impl Both {
    pub fn of(image: &Image) -> Self {
        Self([Engine::Compiled, Engine::Interpreted].map(|engine| {
            let code = Code::new(image.clone(), engine).expect("it can be translated");
            Instance::new(Arc::new(code), 2).expect("its memory is small")
        }))
    }

    /// Runs a program, whose argument is an array of numbers.
    pub fn try_call(&mut self, program: &str, argument: &[u64]) -> Result<u64, String> {
        let results = self.0.each_mut().map(|instance| {
            let function = instance.image().programs[program].function;
            let memory = &mut instance.state_mut().memory;
            let address = memory.allocate(8 * argument.len().max(1)).unwrap();
            for (at, number) in (address..).step_by(8).zip(argument) {
                memory.store(at, 8, *number).unwrap();
            }
            let result = instance.call(&mut NoKernel, function, [address, 0, 0, 0, 0]);
            instance.state_mut().memory.free(address, 8 * argument.len().max(1));
            result.map_err(|fault| fault.0)
        });
        let [compiled, interpreted] = results;
        assert_eq!(compiled, interpreted, "{program} of {argument:?}");
        compiled
    }

    pub fn call(&mut self, program: &str, argument: &[u64]) -> u64 {
        self.try_call(program, argument).unwrap_or_else(|fault| panic!("{program} of {argument:?}: {fault}"))
    }

    pub fn fault(&mut self, program: &str, argument: &[u64]) -> String {
        self.try_call(program, argument).expect_err("this is a mistake")
    }

    /// Bytes of memory, which must be the same in both.
    pub fn memory(&self) -> usize {
        let memory = self.0.each_ref().map(|instance| {
            let memory = &instance.state().memory;
            memory.slice(Memory::BASE, memory.len()).unwrap()
        });
        assert!(memory[0] == memory[1], "memory differs");
        memory[0].len()
    }

    /// Objects that live.
    pub fn object_count(&self) -> usize {
        let counts = self.0.each_ref().map(|instance| instance.state().object_count());
        assert_eq!(counts[0], counts[1]);
        counts[0]
    }
}
