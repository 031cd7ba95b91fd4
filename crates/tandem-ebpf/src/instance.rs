//! A copy of a scheduler that runs.

use crate::fault::{Fault, LoadError};
use crate::image::{FunctionId, Image};
use crate::kernel::{Kernel, State};
use std::sync::Arc;

/// How code runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// As machine code.
    #[default]
    Compiled,
    /// Instruction by instruction: the reference.
    Interpreted,
}

/// Code that is ready to run, for any number of instances in any threads.
#[derive(Debug)]
pub struct Code {
    image: Image,
    // machine code, if compiled
}

impl Code {
    /// Makes an image ready to run.
    ///
    /// # Errors
    /// If it cannot be translated.
    pub fn new(image: Image, engine: Engine) -> Result<Self, LoadError> {
        let _ = engine;
        Ok(Self { image })
    }

    /// What it was made of.
    pub fn image(&self) -> &Image {
        &self.image
    }
}

/// A copy of a scheduler that runs: memory and maps of its own.
#[derive(Debug)]
pub struct Instance {
    code: Arc<Code>,
    state: State,
}

impl Instance {
    /// A copy with data and maps as the object has them at first, for a kernel with so many CPUs.
    ///
    /// # Errors
    /// If its memory would be too large.
    pub fn new(code: Arc<Code>, cpu_count: usize) -> Result<Self, Fault> {
        let _ = (code, cpu_count);
        todo!()
    }

    /// The image.
    pub fn image(&self) -> &Image {
        &self.code.image
    }

    /// What it knows.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// What it knows, to be changed.
    pub fn state_mut(&mut self) -> &mut State {
        &mut self.state
    }

    /// Calls a function with arguments in r1 to r5; the result is r0.
    ///
    /// # Errors
    /// If the program does what it may not do.
    pub fn call(
        &mut self,
        kernel: &mut dyn Kernel,
        function: FunctionId,
        arguments: [u64; 5],
    ) -> Result<u64, Fault> {
        let _ = (kernel, function, arguments);
        todo!()
    }

    /// Calls a callback of a scheduler, whose arguments stand in memory (at most 12), where r1 points to.
    ///
    /// # Errors
    /// As [`Instance::call`].
    pub fn call_back(
        &mut self,
        kernel: &mut dyn Kernel,
        function: FunctionId,
        arguments: &[u64],
    ) -> Result<u64, Fault> {
        let _ = (kernel, function, arguments);
        todo!()
    }

    /// Runs the callback of a timer that [`Kernel::start_timer`] was told of, and whose time has come.
    ///
    /// # Errors
    /// As [`Instance::call`].
    pub fn timer_expired(&mut self, kernel: &mut dyn Kernel, timer: u64) -> Result<(), Fault> {
        let _ = (kernel, timer);
        todo!()
    }
}
