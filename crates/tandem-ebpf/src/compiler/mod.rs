//! Machine code: the same results as the interpreter's, many times faster.
//!
//! Problem: a simulated scheduler decides millions of times, and an interpreter would dominate the time of a
//! run.
//!
//! Approach: each function is translated to Cranelift's intermediate language, one basic block after the
//! other (`translate`, `access`, `arithmetic`), and compiled when an image is loaded. Code does not depend on
//! an instance: it gets a context with the place of the instance's memory, so that any number of instances
//! and threads can share it. Accesses are checked against the length of memory, unless an earlier check
//! suffices; where one is outside, code asks `fault_of` for the interpreter's text. Functions whose result is
//! known without a call are inlined (`inline`).
//!
//! Limits: no optimisation across functions. Lookups in maps other than arrays are calls, but for storage of an object
//! that was asked for not long ago.

mod access;
mod arithmetic;
mod entry;
mod inline;
#[cfg(test)]
mod tests;
mod translate;

use crate::fault::{Fault, LoadError};
use crate::image::{Image, Import};
use crate::known::KnownResult;
use crate::op::Op;
use crate::runtime::Run;
use cranelift_codegen::Context;
use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{AbiParam, Signature};
use cranelift_codegen::isa::TargetIsa;
use cranelift_codegen::settings::{self, Configurable};
use cranelift_frontend::FunctionBuilderContext;
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{FuncId, Linkage, Module, ModuleReloc, default_libcall_names};
use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};
use std::{fmt, thread};
use translate::Translator;

/// An image as machine code.
pub(crate) struct Compiled(entry::Machine);

impl Compiled {
    /// Calls a function, whose frame pointer has been checked by [`Run::check_frame`].
    #[inline]
    pub(crate) fn call(
        &self,
        run: &mut Run<'_>,
        function: u32,
        arguments: [u64; 5],
        frame: u64,
    ) -> Result<u64, Fault> {
        self.0.call(run, function, arguments, frame)
    }
}

/// Most threads that compile functions: more would wait for the longest function.
const THREADS_MAX: usize = 4;

/// Cranelift's effort for the speed of the code: `none`, or `speed`, which takes longer.
const OPT_LEVEL: &str = "speed";

/// Translates all functions of an image.
pub(crate) fn compile(image: &Image) -> Result<Compiled, LoadError> {
    compile_with(image, OPT_LEVEL)
}

fn compile_with(image: &Image, opt_level: &str) -> Result<Compiled, LoadError> {
    let mut module = new_module(opt_level).map_err(LoadError)?;
    let pointers = |count| vec![AbiParam::new(I64); count];
    let signature = |params, returns| Signature {
        params: pointers(params),
        returns: pointers(returns),
        call_conv: module.isa().default_call_conv(),
    };
    let of_functions = signature(7, 1);
    let of_imports = signature(8, 1);
    let of_faults = signature(4, 0);
    let unusable = |name: &str, error: &dyn fmt::Display| {
        LoadError(format!("`{name}` cannot be translated to machine code: {error}"))
    };
    let mut declare = |name: &str, linkage, signature: &Signature| {
        module.declare_function(name, linkage, signature).map_err(|error| unusable(name, &error))
    };
    let call_import = declare(entry::CALL_IMPORT, Linkage::Import, &of_imports)?;
    let call_kernel = declare(entry::CALL_KERNEL, Linkage::Import, &of_imports)?;
    let fault = declare(entry::FAULT, Linkage::Import, &of_faults)?;
    // By number, since names of functions in the source can occur twice.
    let functions: Vec<FuncId> = (0..image.functions.len())
        .map(|number| declare(&format!("function {number}"), Linkage::Local, &of_functions))
        .collect::<Result<_, _>>()?;

    let mut builder_context = FunctionBuilderContext::new();
    let mut contexts = Vec::new();
    for (number, function) in image.functions.iter().enumerate() {
        let mut context = module.make_context();
        context.func.signature = of_functions.clone();
        let outside = translate::Callees { functions: &functions, call_import, call_kernel, fault };
        Translator::new(&mut module, &mut context.func, &mut builder_context, image, number, outside)
            .translate()
            .map_err(|reason| unusable(&function.name, &reason))?;
        contexts.push(context);
    }
    compile_all(module.isa(), &mut contexts)
        .map_err(|(number, error)| unusable(&image.functions[number].name, &error))?;
    for ((function, context), &id) in image.functions.iter().zip(&contexts).zip(&functions) {
        let code = &context.compiled_code().expect("it has been compiled").buffer;
        let relocations = code.relocs().iter();
        let relocations: Vec<_> = relocations
            .map(|relocation| ModuleReloc::from_mach_reloc(relocation, &context.func, id))
            .collect();
        module
            .define_function_bytes(id, code.alignment.into(), code.data(), &relocations)
            .map_err(|error| unusable(&function.name, &error))?;
    }
    module.finalize_definitions().map_err(|error| unusable("the object", &error))?;
    Ok(Compiled(entry::Machine::new(module, &functions, image.data_end())))
}

/// Compiles functions, a few at a time. The error has the number of a function that cannot be compiled, and
/// the reason.
fn compile_all(isa: &dyn TargetIsa, contexts: &mut [Context]) -> Result<(), (usize, String)> {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
    let waiting = Mutex::new(contexts.iter_mut().enumerate());
    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || {
        while let Some((number, context)) = next() {
            // Cranelift's own text is only the kind of error.
            let result = context.compile(isa, &mut ControlPlane::default());
            result.map_err(|error| (number, format!("{:?}", error.inner)))?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let own = work();
        let join = |other: thread::ScopedJoinHandle<'_, _>| {
            other.join().unwrap_or_else(|panic| resume_unwind(panic))
        };
        others.into_iter().map(join).chain([own]).collect()
    })
}

fn new_module(opt_level: &str) -> Result<JITModule, String> {
    let mut flags = settings::builder();
    for (name, value) in [
        ("opt_level", opt_level),
        ("enable_verifier", if cfg!(debug_assertions) { "true" } else { "false" }),
        ("use_colocated_libcalls", "false"),
        ("is_pic", "false"),
        // Nothing unwinds through this code.
        ("unwind_info", "false"),
    ] {
        flags.set(name, value).map_err(|error| error.to_string())?;
    }
    let target = cranelift_native::builder()?;
    let target = target.finish(settings::Flags::new(flags)).map_err(|error| error.to_string())?;
    let mut builder = JITBuilder::with_isa(target, default_libcall_names());
    entry::declare(&mut builder);
    Ok(JITModule::new(builder))
}

/// Why an instruction cannot be executed, in the words of the interpreter. `address` is the address that it
/// accesses, or the frame that a call needs.
fn fault_of(run: &mut Run<'_>, function: usize, instruction: usize, address: u64) -> Fault {
    let image = run.image;
    let outside = |size: u64| run.state.memory.slice(address, size as usize).err();
    let fault = match image.functions[function].ops[instruction] {
        Op::Load { size, .. } | Op::Store { size, .. } | Op::Atomic { size, .. } => outside(size.bytes()),
        Op::Call { .. } => Some(run.check_frame(address).err().unwrap_or_else(|| run.exhausted())),
        Op::Poison { reason } => Some(Fault(image.poisons[reason as usize].clone())),
        Op::CallKernel { import } => match image.imports[import as usize] {
            Import::Known(known @ (KnownResult::Field(_) | KnownResult::SetField(_))) => {
                known.result(run, [address, 0, 0, 0, 0]).err()
            }
            // The key of an array.
            Import::Runtime("bpf_map_lookup_elem") => outside(4),
            // An iterator over numbers, or a word of a set.
            _ => outside(8),
        },
        _ => Some(run.exhausted()),
    };
    fault.expect("code only comes here if the instruction cannot be executed")
}
