//! A call of an instance while it lasts: what the interpreter and machine code share.

use crate::fault::Fault;
use crate::image::Image;
use crate::instance::Code;
use crate::kernel::{Kernel, State};

/// A call while it lasts.
pub(crate) struct Run<'a> {
    pub image: &'a Image,
    pub code: &'a Code,
    pub state: &'a mut State,
    pub kernel: &'a mut dyn Kernel,
    /// Backward jumps, calls and rounds of loops that it may still make: a program that does not end is a fault.
    pub fuel: u64,
}

impl Run<'_> {
    /// Bytes of a function's stack.
    pub const FRAME_SIZE: u64 = 512;
    /// What [`Run::fuel`] is at first.
    pub const FUEL: u64 = 50_000_000;
    /// How often a call of a function passes its [`crate::Op::MayGoto`]s before they jump, as in the kernel.
    pub const MAY_GOTO_MAX: u64 = 8 << 20;

    /// The fault of a program that has no [`Run::fuel`] left.
    #[cold]
    pub fn exhausted() -> Fault {
        Fault(format!("the program does not end: it has made {} jumps back and calls", Self::FUEL))
    }

    /// Calls a function of the kernel (or of the runtime, which stands for it): the position in [`Image::imports`]. `frame` is the
    /// frame pointer (r10) of the caller.
    pub fn call_import(&mut self, import: u32, arguments: [u64; 5], frame: u64) -> Result<u64, Fault> {
        let _ = (import, arguments, frame);
        todo!()
    }

    /// Calls a function of the image, as machine code or interpreted. `frame` is the callee's frame pointer: the caller's plus
    /// [`Run::FRAME_SIZE`], at most [`State::stack_end`]; beyond that, a fault.
    pub fn call_function(&mut self, function: u32, arguments: [u64; 5], frame: u64) -> Result<u64, Fault> {
        let _ = (function, arguments, frame);
        todo!()
    }
}
