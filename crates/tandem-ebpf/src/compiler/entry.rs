//! The border between Rust and machine code: calling it, what it calls, and giving its memory back.
//!
//! This is the only unsafe code of the crate. What it relies on:
//!
//! - Code checks each access against the length of memory, except for those in a range that it has checked before on the
//!   same way, and those relative to the frame pointer. Frames lie between what [`Machine::call`] checks and the end of
//!   the stack, which the code checks.
//! - Memory never shrinks while code runs: checked after each call that code makes.
//! - Nothing unwinds through machine code: [`guarded`] catches panics, and [`Machine::call`] resumes them.
#![allow(unsafe_code)]

use crate::fault::Fault;
use crate::memory::Memory;
use crate::runtime::Run;
use cranelift_jit::{JITBuilder, JITModule};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;

/// What machine code knows of the instance that it runs for.
#[repr(C)]
pub(super) struct Context<'a, 'b> {
    /// Where the process would have address 0 of the instance's memory, which begins at [`Memory::BASE`].
    pub origin: *mut u8,
    /// The last position in memory at which 8 bytes have addresses.
    pub last_word: u64,
    /// The first address beyond the stack.
    pub stack_end: u64,
    /// [`Run::fuel`] while machine code runs.
    pub fuel: u64,
    /// Not 0: the program has ended, and all functions return.
    pub ended: u64,
    /// What [`Known`](crate::Known) functions give.
    pub cpu: u64,
    pub clock_ns: u64,
    run: &'a mut Run<'b>,
    fault: Option<Fault>,
    panic: Option<Box<dyn Any + Send>>,
}

/// A function of the image: context, r1 to r5, frame pointer.
type Function = unsafe extern "C" fn(*mut Context<'_, '_>, u64, u64, u64, u64, u64, u64) -> u64;

/// The name under which code calls [`call_import`].
pub(super) const CALL_IMPORT: &str = "call_import";
/// The name under which code calls [`fault`].
pub(super) const FAULT: &str = "fault";

/// Tells the linker of machine code where the functions of this file are.
pub(super) fn declare(builder: &mut JITBuilder) {
    builder.symbol(CALL_IMPORT, call_import as *const u8);
    builder.symbol(FAULT, fault as *const u8);
}

/// Machine code that is ready to run.
pub(super) struct Machine {
    functions: Vec<Function>,
    /// Owns the memory that the functions are in.
    module: Mutex<Option<JITModule>>,
}

impl Machine {
    /// The functions of a module, in the order of their numbers.
    pub fn new(module: JITModule, functions: &[cranelift_module::FuncId]) -> Self {
        let functions = functions
            .iter()
            .map(|&id| {
                let code = module.get_finalized_function(id);
                // SAFETY: `compile` has declared and defined each of these with the signature of `Function`.
                unsafe { std::mem::transmute::<*const u8, Function>(code) }
            })
            .collect();
        Self { functions, module: Mutex::new(Some(module)) }
    }

    /// Calls a function; see [`super::Compiled::call`].
    #[inline]
    pub fn call(
        &self,
        run: &mut Run<'_>,
        function: u32,
        arguments: [u64; 5],
        frame: u64,
    ) -> Result<u64, Fault> {
        let code = self.functions[function as usize];
        let stack_end = run.state.stack_end;
        let (base, length) = run.state.memory.raw();
        // Code accesses its frame, and the frames up to the end of the stack, without a check.
        assert!(
            frame >= Memory::BASE + Run::FRAME_SIZE
                && frame <= stack_end
                && stack_end - Memory::BASE <= length,
            "the frame of a function lies in the stack, and the stack in memory"
        );
        let mut context = Context {
            origin: origin_of(base),
            last_word: length - 8,
            stack_end,
            fuel: run.fuel,
            ended: 0,
            cpu: run.kernel.cpu() as u64,
            clock_ns: run.kernel.clock_ns(),
            run,
            fault: None,
            panic: None,
        };
        let [r1, r2, r3, r4, r5] = arguments;
        // SAFETY: the code is alive, since `self` owns it, and has this signature. The context lives until it returns,
        // and describes memory that `run` borrows exclusively; frames are valid as checked above.
        let result = unsafe { code(&raw mut context, r1, r2, r3, r4, r5, frame) };
        context.run.fuel = context.fuel;
        if let Some(panic) = context.panic {
            resume_unwind(panic);
        }
        match context.fault {
            Some(fault) => Err(fault),
            None => Ok(result),
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let module = self.module.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(module) = module.take() {
            // SAFETY: code runs only within `Machine::call`, which borrows `self`; the pointers go away with `self`.
            unsafe { module.free_memory() }
        }
    }
}

/// Called by machine code: a function of the kernel.
unsafe extern "C" fn call_import(
    context: *mut Context<'_, '_>,
    r1: u64,
    r2: u64,
    r3: u64,
    r4: u64,
    r5: u64,
    frame: u64,
    import: u64,
) -> u64 {
    // SAFETY: machine code passes on the pointer that `Machine::call` gave it, which nobody else uses meanwhile.
    let context = unsafe { &mut *context };
    guarded(context, |run| run.call_import(import as u32, [r1, r2, r3, r4, r5], frame))
}

/// Called by machine code: an instruction cannot be executed, see [`super::fault_of`], or the import that it called has
/// ended the program.
unsafe extern "C" fn fault(context: *mut Context<'_, '_>, function: u64, instruction: u64, address: u64) {
    // SAFETY: as in `call_import`.
    let context = unsafe { &mut *context };
    if context.panic.is_some() {
        return;
    }
    let fault = context.fault.take();
    guarded(context, |run| {
        let fault =
            fault.unwrap_or_else(|| super::fault_of(run, function as usize, instruction as usize, address));
        Err(run.locate(function as u32, instruction as usize, fault))
    });
}

/// See [`Context::origin`].
fn origin_of(base: *mut u8) -> *mut u8 {
    base.wrapping_sub(Memory::BASE as usize)
}

/// Runs Rust code for machine code, which goes on with what it returns, or ends.
fn guarded(context: &mut Context<'_, '_>, call: impl FnOnce(&mut Run<'_>) -> Result<u64, Fault>) -> u64 {
    let known = context.last_word;
    context.run.fuel = context.fuel;
    let result = catch_unwind(AssertUnwindSafe(|| {
        let result = call(context.run);
        let (base, length) = context.run.state.memory.raw();
        assert!(length >= known + 8, "the kernel does not take memory away");
        (context.origin, context.last_word) = (origin_of(base), length - 8);
        result
    }));
    context.fuel = context.run.fuel;
    match result {
        Ok(Ok(value)) => return value,
        Ok(Err(fault)) => context.fault = Some(fault),
        Err(panic) => context.panic = Some(panic),
    }
    context.ended = 1;
    0
}
