//! Machine code: the same results as the interpreter's, many times faster.
//!
//! Problem: a simulated scheduler decides millions of times, and an interpreter would dominate the time of a run.
//!
//! Approach: each function is translated to Cranelift's intermediate language, one basic block after the other
//! (`translate`, `access`, `arithmetic`), and compiled when an image is loaded. Code knows nothing of an instance: it gets a
//! context with the place of its memory, so that any number of instances and threads share it. Accesses are checked
//! against the length of memory, unless an earlier check says enough; where one is outside, code asks `fault_of` for the
//! interpreter's words. What is known without a call is a part of the code (`inline`).
//!
//! Limits: no optimisation across functions. Lookups in maps are calls, since instances have their arrays at places of
//! their own.

mod access;
mod arithmetic;
mod entry;
mod inline;
#[cfg(test)]
mod tests;
mod translate;

use crate::fault::{Fault, LoadError};
use crate::image::{Image, Import};
use crate::op::Op;
use crate::runtime::Run;
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{AbiParam, Signature};
use cranelift_codegen::settings::{self, Configurable};
use cranelift_frontend::FunctionBuilderContext;
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{FuncId, Linkage, Module, default_libcall_names};
use std::fmt;
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

impl fmt::Debug for Compiled {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("Compiled")
    }
}

/// What Cranelift does for speed of the code: `none`, or `speed`, which takes longer.
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
    let fault = declare(entry::FAULT, Linkage::Import, &of_faults)?;
    // By number, since names of functions in the source can occur twice.
    let functions: Vec<FuncId> = (0..image.functions.len())
        .map(|number| declare(&format!("function {number}"), Linkage::Local, &of_functions))
        .collect::<Result<_, _>>()?;

    let mut context = module.make_context();
    let mut builder_context = FunctionBuilderContext::new();
    for (number, function) in image.functions.iter().enumerate() {
        context.func.signature = of_functions.clone();
        let outside = translate::Callees { functions: &functions, call_import, fault };
        Translator::new(&mut module, &mut context.func, &mut builder_context, image, number, outside)
            .translate()
            .map_err(|reason| unusable(&function.name, &reason))?;
        // Cranelift's own text is only the kind of error.
        module
            .define_function(functions[number], &mut context)
            .map_err(|error| unusable(&function.name, &format!("{error:?}")))?;
        module.clear_context(&mut context);
    }
    module.finalize_definitions().map_err(|error| unusable("the object", &error))?;
    Ok(Compiled(entry::Machine::new(module, &functions)))
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

/// Why an instruction cannot be executed, in the words of the interpreter. `address` is where it accesses memory, or the
/// frame that a call needs.
fn fault_of(run: &mut Run<'_>, function: usize, instruction: usize, address: u64) -> Fault {
    let image = run.image;
    let outside = |size: u64| run.state.memory.slice(address, size as usize).err();
    let fault = match image.functions[function].ops[instruction] {
        Op::Load { size, .. } | Op::Store { size, .. } | Op::Atomic { size, .. } => outside(size.bytes()),
        Op::Call { .. } => Some(run.check_frame(address).err().unwrap_or_else(Run::exhausted)),
        Op::Poison { reason } => Some(Fault(image.poisons[reason as usize].clone())),
        Op::CallKernel { import } => match image.imports[import as usize] {
            Import::Known(known) => known.result(run, address).err(),
            // An iterator over numbers.
            _ => outside(8),
        },
        _ => Some(Run::exhausted()),
    };
    fault.expect("code only comes here if the instruction cannot be executed")
}
