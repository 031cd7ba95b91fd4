//! A copy of a scheduler that runs.

#[cfg(test)]
mod tests;

use crate::budget::Budget;
use crate::compiler::{self, Compiled};
use crate::fault::{Fault, LoadError};
use crate::helpers::{self, Helper};
use crate::image::{FunctionId, Image, Import};
use crate::kernel::{Kernel, KernelFunction};
use crate::known::KnownResult;
use crate::maps::Key;
use crate::runtime::Run;
use crate::state::State;
use std::fmt;
use std::sync::Arc;

/// The way to run code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// As machine code.
    #[default]
    Compiled,
    /// Instruction by instruction: the reference.
    Interpreted,
}

/// Code that is ready to run, for any number of instances in any threads.
pub struct Code {
    image: Image,
    /// The functions for [`Image::imports`], by position.
    pub(crate) callees: Vec<Callee>,
    /// Machine code, if it is not to be interpreted.
    pub(crate) compiled: Option<Compiled>,
    /// What an instance may execute.
    budget: Budget,
}

/// The image, from which all else follows. The hash of a scenario covers this output: addresses of this
/// process, such as those of helpers, would give each process a different hash.
impl fmt::Debug for Code {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Code").field(&self.image).finish()
    }
}

/// A function of the kernel that is called.
#[derive(Clone, Copy)]
pub(crate) enum Callee {
    Runtime(Helper),
    Known(KnownResult),
    Kernel(KernelFunction),
}

impl Code {
    /// Makes an image ready to run.
    ///
    /// # Errors
    /// If it cannot be translated.
    pub fn new(image: Image, engine: Engine) -> Result<Self, LoadError> {
        let callee = |import: &Import| match *import {
            Import::Known(known) => Ok(Callee::Known(known)),
            Import::Kernel(function, _) => Ok(Callee::Kernel(function)),
            Import::Runtime(name) => helpers::helper(name)
                .map(Callee::Runtime)
                .ok_or_else(|| LoadError(format!("the runtime has no function `{name}`"))),
        };
        let callees = image.imports.iter().map(callee).collect::<Result<_, _>>()?;
        let compiled = match engine {
            Engine::Compiled => Some(compiler::compile(&image)?),
            Engine::Interpreted => None,
        };
        Ok(Self { image, callees, compiled, budget: Budget::default() })
    }

    /// What a fault says of an instance that has spent what [`Code::bounded`] gives it, after the number.
    pub const BUDGET_SPENT: &str = Budget::SPENT;

    /// The same code, of which an instance may execute so many instructions in all; then its calls end with a fault.
    /// Instructions are counted as [`Instance::spent`] says.
    pub fn bounded(self, instructions: u64) -> Self {
        Self { budget: Budget::of(instructions), ..self }
    }

    /// The code that it runs.
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

/// Bytes below the first frame of a call from outside, for what its arguments point to.
const ARGUMENTS_SIZE: u64 = 128;

impl Instance {
    /// A copy with the object's initial data and maps, for a kernel with this many CPUs.
    ///
    /// # Errors
    /// If its memory would be too large.
    pub fn new(code: Arc<Code>, cpu_count: usize) -> Result<Self, Fault> {
        let mut state = State::new(&code.image, cpu_count)?;
        state.budget = code.budget;
        Ok(Self { code, state })
    }

    /// The image.
    pub fn image(&self) -> &Image {
        &self.code.image
    }

    /// Its state.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Instructions that its calls have executed: never fewer than they really have, and the same number with both engines. Where
    /// a program jumps forward, those that it jumps over count as well.
    pub fn spent(&self) -> u64 {
        self.state.budget.spent()
    }

    /// Its state, for changes.
    pub fn state_mut(&mut self) -> &mut State {
        &mut self.state
    }

    /// Calls a function with arguments in r1 to r5; the result is r0.
    ///
    /// # Errors
    /// If the program does something that is not allowed.
    #[inline]
    pub fn call(
        &mut self,
        kernel: &mut dyn Kernel,
        function: FunctionId,
        arguments: [u64; 5],
    ) -> Result<u64, Fault> {
        let frame = self.state.stack_top + ARGUMENTS_SIZE + Run::FRAME_SIZE;
        let mut run = Run::new(&self.code, &mut self.state, kernel);
        let begun = run.fuel;
        let result = run.call_function(function.0, arguments, frame)?;
        if !run.held.is_nothing() {
            run.held.check_released(&run.image.functions[function.0 as usize].name)?;
        }
        let left = run.fuel;
        self.state.budget.end_call(begun, left);
        self.state.end_call();
        Ok(result)
    }

    /// Calls a callback of a scheduler, whose arguments are in memory (at most 16), where r1 points.
    ///
    /// # Errors
    /// As [`Instance::call`].
    #[inline]
    pub fn call_back<const COUNT: usize>(
        &mut self,
        kernel: &mut dyn Kernel,
        function: FunctionId,
        arguments: &[u64; COUNT],
    ) -> Result<u64, Fault> {
        const { assert!(8 * COUNT as u64 <= ARGUMENTS_SIZE, "a callback has too many arguments") };
        let context = self.outside_arguments()?;
        // The length is a constant, so that each copy takes one instruction.
        if let Some(words) =
            self.state.memory.slice_mut(context, 8 * COUNT)?.as_chunks_mut().0.first_chunk_mut()
        {
            *words = arguments.map(u64::to_le_bytes);
        }
        self.call(kernel, function, [context, 0, 0, 0, 0])
    }

    /// Runs the callback of a timer that was passed to [`Kernel::start_timer`] and has expired. A timer that
    /// has gone since, with the element of the map that it was in, does nothing.
    ///
    /// # Errors
    /// As [`Instance::call`].
    pub fn timer_expired(&mut self, kernel: &mut dyn Kernel, timer: u64) -> Result<(), Fault> {
        let expired = self.state.timers.get_mut(&timer).and_then(|timer| timer.expire());
        let Some((callback, map, key, value)) = expired else { return Ok(()) };
        let key = match key {
            Key::At(address) => address,
            Key::Index(index) => {
                let address = self.outside_arguments()?;
                self.state.memory.store(address, 4, u64::from(index))?;
                address
            }
        };
        let map = Image::MAPS + map as u64;
        let result = self.call(kernel, callback, [map, key, value, 0, 0]);
        if let Some(timer) = self.state.timers.get_mut(&timer) {
            timer.is_running = false;
        }
        result.map(|_| ())
    }

    /// Address for the data that the arguments of a call from outside point to.
    fn outside_arguments(&self) -> Result<u64, Fault> {
        let address = self.state.stack_top;
        if address + ARGUMENTS_SIZE > self.state.stack_end {
            return Err(Fault(
                "calls of the kernel and programs nest more deeply than the stack allows".to_owned(),
            ));
        }
        Ok(address)
    }
}
