//! A call of an instance in progress: the state that the interpreter and machine code share.

use crate::fault::Fault;
use crate::helpers::Held;
use crate::image::Image;
use crate::instance::{Callee, Code};
use crate::interpreter;
use crate::kernel::{Kernel, KernelFunction};
use crate::memory::Memory;
use crate::state::State;
use std::any::Any;
use std::ptr;

/// A call in progress.
pub(crate) struct Run<'a> {
    pub image: &'a Image,
    pub code: &'a Code,
    pub state: &'a mut State,
    pub kernel: &'a mut dyn Kernel,
    /// Instructions that it may still execute, as [`Run::burn`] counts them: a program that does not end is a fault.
    pub fuel: u64,
    /// For machine code: the beginning of the instance's memory, which programs see at [`Memory::BASE`].
    pub memory: *mut u8,
    /// The place in the process that corresponds to address 0.
    pub origin: *mut u8,
    /// The last position in memory at which 8 bytes have addresses.
    pub last_word: u64,
    /// The first address beyond the stack.
    pub stack_end: u64,
    /// The return values of [`KnownResult`](crate::KnownResult) functions.
    pub cpu: u64,
    pub clock_ns: u64,
    /// CPUs of the kernel.
    pub cpu_count: u64,
    /// Not 0: the program has ended, and all functions of machine code return, for the reason below.
    pub ended: u64,
    pub fault: Option<Fault>,
    pub panic: Option<Box<dyn Any + Send>>,
    /// Locks and sections that it must release before it ends.
    pub held: Held,
    /// Its fault already names the place.
    pub is_located: bool,
}

impl<'a> Run<'a> {
    /// Bytes of a function's stack.
    pub const FRAME_SIZE: u64 = 512;
    /// The most [`Run::fuel`] that a call has at its beginning.
    pub const FUEL: u64 = 1 << 28;
    /// How often a call of a function passes its [`crate::Op::MayGoto`]s before they jump, as in the kernel.
    pub const MAY_GOTO_MAX: u64 = 8 << 20;

    /// A call that begins. Inlined, so that it is written where it stays: one begins for every callback.
    #[inline(always)]
    pub fn new(code: &'a Code, state: &'a mut State, kernel: &'a mut dyn Kernel) -> Self {
        Self {
            image: code.image(),
            code,
            fuel: state.budget.of_call(),
            memory: ptr::null_mut(),
            origin: ptr::null_mut(),
            last_word: 0,
            stack_end: state.stack_end,
            cpu: kernel.cpu() as u64,
            clock_ns: kernel.clock_ns(),
            cpu_count: state.cpu_count as u64,
            ended: 0,
            fault: None,
            panic: None,
            held: Held::default(),
            is_located: false,
            state,
            kernel,
        }
    }

    /// Updates the place of memory for machine code.
    #[inline]
    pub fn refresh_memory(&mut self) {
        let (base, length) = self.state.memory.raw();
        self.memory = base;
        self.origin = base.wrapping_sub(Memory::BASE as usize);
        self.last_word = length.saturating_sub(8);
    }

    /// Calls a function of the kernel (or of the runtime, which stands for it): the position in
    /// [`Image::imports`]. `frame` is the frame pointer (r10) of the caller.
    pub fn call_import(&mut self, import: u32, arguments: [u64; 5], frame: u64) -> Result<u64, Fault> {
        let code = self.code;
        match code.callees[import as usize] {
            Callee::Runtime(helper) => helper(self, arguments, frame),
            Callee::Known(known) => known.result(self, arguments),
            Callee::Kernel(function) => self.call_kernel(function, arguments, frame),
        }
    }

    /// Calls a function of the kernel; as [`Run::call_import`].
    #[inline]
    pub fn call_kernel(
        &mut self,
        function: KernelFunction,
        arguments: [u64; 5],
        frame: u64,
    ) -> Result<u64, Fault> {
        let stack_top = std::mem::replace(&mut self.state.stack_top, frame);
        let result = self.kernel.call(self.state, function, arguments);
        self.state.stack_top = stack_top;
        result
    }

    /// Calls a function of the image, as machine code or interpreted. `frame` is the callee's frame pointer:
    /// the caller's plus
    /// [`Run::FRAME_SIZE`], at most [`State::stack_end`]; beyond that, a fault.
    #[inline]
    pub fn call_function(&mut self, function: u32, arguments: [u64; 5], frame: u64) -> Result<u64, Fault> {
        self.check_frame(frame)?;
        let code = self.code;
        self.burn(Self::cost_of_call(code.image(), function))?;
        match &code.compiled {
            Some(compiled) => compiled.call(self, function, arguments, frame),
            None => interpreter::run(self, function, arguments, frame),
        }
    }

    /// Checks that a frame is on the stack, by its frame pointer.
    #[inline]
    pub fn check_frame(&self, frame: u64) -> Result<(), Fault> {
        if frame > self.state.stack_end {
            return Err(Fault("calls of functions nest more deeply than the stack allows".to_owned()));
        }
        Ok(())
    }

    /// Calls the function that an address stands for, from a function of the runtime whose caller has the
    /// given frame pointer.
    pub fn call_address(&mut self, address: u64, arguments: [u64; 5], frame: u64) -> Result<u64, Fault> {
        let function = self.function_number(address)?;
        self.call_function(function, arguments, frame + Self::FRAME_SIZE)
    }

    /// The number of the function that an address stands for.
    pub fn function_number(&self, address: u64) -> Result<u32, Fault> {
        let number = address.wrapping_sub(Image::FUNCTIONS);
        if number < self.image.functions.len() as u64 {
            Ok(number as u32)
        } else {
            Err(Fault(format!("{address:#x} is not a function")))
        }
    }

    /// Counts instructions where a program may come to some again: a jump back counts those that it jumps back over, itself
    /// included, and a call those of the function. Between two counts code runs forward alone, so that what is counted is never
    /// less than what is executed, and costs nothing elsewhere.
    #[inline]
    pub fn burn(&mut self, instructions: u64) -> Result<(), Fault> {
        if self.fuel < instructions {
            return Err(self.exhausted());
        }
        self.fuel -= instructions;
        Ok(())
    }

    /// What a call of a function counts. The translation of a call looks at functions that an image may lack.
    #[inline]
    pub fn cost_of_call(image: &Image, function: u32) -> u64 {
        image.functions[function as usize].ops.len() as u64
    }

    /// What a jump back counts.
    #[inline]
    pub fn cost_of_jump(from: usize, to: usize) -> u64 {
        (from - to) as u64 + 1
    }

    /// The fault of a program that has no [`Run::fuel`] left.
    #[cold]
    pub fn exhausted(&self) -> Fault {
        self.state.budget.exhausted()
    }

    /// Adds its location to a fault: the function by its number, and the instruction. In a call of a call,
    /// the innermost place stays.
    #[cold]
    pub fn locate(&mut self, function: u32, instruction: usize, fault: Fault) -> Fault {
        if std::mem::replace(&mut self.is_located, true) {
            return fault;
        }
        let name = &self.image.functions[function as usize].name;
        Fault(format!("`{name}`, instruction {instruction}: {}", fault.0))
    }
}
