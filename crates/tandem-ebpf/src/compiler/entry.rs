//! The boundary between Rust and machine code: calling it, its calls, and freeing its memory.
//!
//! This is the only unsafe code of the crate. It relies on:
//!
//! - Code checks each access against the length of memory, except for those in a range that it has checked
//!   before on every path to them, those at constant addresses of global data, those in the places of
//!   [`Recent`](crate::maps::Recent) values behind it, and those relative to the frame pointer. Frames lie between what [`Machine::call`] checks, which is behind global data, and the
//!   end of the stack, which the code checks.
//! - Memory never shrinks while code runs: checked after each call that code makes.
//! - Nothing unwinds through machine code: [`guarded`] catches panics, and [`Machine::call`] resumes them.
#![allow(unsafe_code)]

use crate::fault::Fault;
use crate::kernel::KernelFunction;
use crate::memory::Memory;
use crate::runtime::Run;
use cranelift_jit::{JITBuilder, JITModule};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;

/// A function of the image: the call, r1 to r5, frame pointer.
type Function = unsafe extern "C" fn(*mut Run<'_>, u64, u64, u64, u64, u64, u64) -> u64;

/// The name under which code calls [`call_import`].
pub(super) const CALL_IMPORT: &str = "call_import";
/// The name under which code calls [`call_kernel`].
pub(super) const CALL_KERNEL: &str = "call_kernel";
/// The name under which code calls [`fault`].
pub(super) const FAULT: &str = "fault";

/// Gives the linker of machine code the addresses of the functions in this file.
pub(super) fn declare(builder: &mut JITBuilder) {
    builder.symbol(CALL_IMPORT, call_import as *const u8);
    builder.symbol(CALL_KERNEL, call_kernel as *const u8);
    builder.symbol(FAULT, fault as *const u8);
}

/// Machine code that is ready to run.
pub(super) struct Machine {
    functions: Vec<Function>,
    /// [`Image::data_end`](crate::Image::data_end).
    data_end: u64,
    /// Owns the memory that the functions are in.
    module: Mutex<Option<JITModule>>,
}

impl Machine {
    /// The functions of a module, in the order of their numbers.
    pub fn new(module: JITModule, functions: &[cranelift_module::FuncId], data_end: u64) -> Self {
        let functions = functions
            .iter()
            .map(|&id| {
                let code = module.get_finalized_function(id);
                // SAFETY: `compile` has declared and defined each of these with the signature of `Function`.
                unsafe { std::mem::transmute::<*const u8, Function>(code) }
            })
            .collect();
        Self { functions, data_end, module: Mutex::new(Some(module)) }
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
        let stack_end = run.stack_end;
        let (_, length) = run.state.memory.raw();
        // Code accesses global data, its frame, and the frames up to the end of the stack, without a check.
        assert!(
            frame >= self.data_end + Run::FRAME_SIZE
                && frame <= stack_end
                && stack_end - Memory::BASE <= length,
            "the frame of a function lies in the stack, and the stack in memory, behind global data"
        );
        run.refresh_memory();
        let [r1, r2, r3, r4, r5] = arguments;
        // SAFETY: the code is alive, since `self` owns it, and has this signature. It alone uses `run` until
        // it returns, which describes memory that it borrows exclusively; frames are valid as checked above.
        let result = unsafe { code(&raw mut *run, r1, r2, r3, r4, r5, frame) };
        match std::mem::replace(&mut run.ended, 0) {
            0 => Ok(result),
            _ => Err(failure_of(run)),
        }
    }
}

/// The reason for the end of machine code: the fault, or the panic, which is resumed.
#[cold]
fn failure_of(run: &mut Run<'_>) -> Fault {
    if let Some(panic) = run.panic.take() {
        resume_unwind(panic);
    }
    run.fault.take().expect("code ends early with a fault or a panic")
}

impl Drop for Machine {
    fn drop(&mut self) {
        let module = self.module.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(module) = module.take() {
            // SAFETY: code runs only within `Machine::call`, which borrows `self`; the pointers go away with
            // `self`.
            unsafe { module.free_memory() }
        }
    }
}

/// Called by machine code: a function of the kernel, by its number there.
unsafe extern "C" fn call_kernel(
    run: *mut Run<'_>,
    r1: u64,
    r2: u64,
    r3: u64,
    r4: u64,
    r5: u64,
    frame: u64,
    function: u64,
) -> u64 {
    // SAFETY: as in `call_import`.
    let run = unsafe { &mut *run };
    guarded(run, |run| run.call_kernel(KernelFunction(function as u16), [r1, r2, r3, r4, r5], frame))
}

/// Called by machine code: a function of the kernel or the runtime, by its position in the image's imports.
unsafe extern "C" fn call_import(
    run: *mut Run<'_>,
    r1: u64,
    r2: u64,
    r3: u64,
    r4: u64,
    r5: u64,
    frame: u64,
    import: u64,
) -> u64 {
    // SAFETY: machine code passes on the pointer from `Machine::call`, which nothing else uses meanwhile.
    let run = unsafe { &mut *run };
    guarded(run, |run| run.call_import(import as u32, [r1, r2, r3, r4, r5], frame))
}

/// Called by machine code: an instruction cannot be executed, see [`super::fault_of`], or the import that it
/// called has ended the program.
unsafe extern "C" fn fault(run: *mut Run<'_>, function: u64, instruction: u64, address: u64) {
    // SAFETY: as in `call_import`.
    let run = unsafe { &mut *run };
    if run.panic.is_some() {
        return;
    }
    let fault = run.fault.take();
    guarded(run, |run| {
        let fault =
            fault.unwrap_or_else(|| super::fault_of(run, function as usize, instruction as usize, address));
        Err(run.locate(function as u32, instruction as usize, fault))
    });
}

/// Runs Rust code for machine code, which continues with the result, or ends.
#[inline(always)]
fn guarded(run: &mut Run<'_>, call: impl FnOnce(&mut Run<'_>) -> Result<u64, Fault>) -> u64 {
    let known = run.last_word;
    // What the closure returns is one number: results of several words would be copied twice.
    let result = catch_unwind(AssertUnwindSafe(|| {
        let result = call(run);
        run.refresh_memory();
        assert!(run.last_word >= known, "the kernel does not take memory away");
        result.unwrap_or_else(|fault| {
            run.fault = Some(fault);
            run.ended = 1;
            0
        })
    }));
    result.unwrap_or_else(|panic| {
        run.panic = Some(panic);
        run.ended = 1;
        0
    })
}
