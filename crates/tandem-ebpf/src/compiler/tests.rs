//! Machine code and the interpreter have to agree in everything: results, memory, fuel and the words of faults.

use super::*;
use crate::image::{FunctionId, Import};
use crate::instance::{Code, Engine, Instance};
use crate::kernel::{Kernel, KernelFunction};
use crate::known::{Known, ObjectField};
use crate::maps::errno;
use crate::memory::Memory;
use crate::op::{AtomicOp, Condition, Size};
use crate::state::State;
use crate::testing::{self, TestKernel, add, address, imm, load, mov, reg, store};
use std::sync::Arc;

mod random;

/// Bytes of the section at the beginning of memory.
const SCRATCH_SIZE: usize = 256;

#[test]
fn instructions_do_what_the_standard_says() {
    testing::check_instructions(Engine::Compiled);
}

#[test]
fn unoptimised_code_does_the_same() {
    let ops = [mov(0, reg(1)), add(0, imm(-3)), Op::Exit];
    let image = testing::image(&[("unoptimised", &ops)]);
    let mut code = Code::new(image, Engine::Interpreted).unwrap();
    code.compiled = Some(compile_with(code.image(), "none").unwrap());
    let mut instance = Instance::new(Arc::new(code), 1).unwrap();
    assert_eq!(call(&mut instance, [10, 0, 0, 0, 0]), Ok(7));
}

/// A program of the function 0, which can call 1 (which can call kernel functions), and kernel functions 0 and 13.
fn image(functions: &[(&str, &[Op])]) -> Image {
    let mut image = testing::image(functions);
    image.sections.push(testing::scratch(SCRATCH_SIZE));
    image.imports =
        [0, 13].map(|number| Import::Kernel(KernelFunction(number), format!("kernel_{number}"))).to_vec();
    image.poisons.push("this kernel has no such field".to_owned());
    image
}

fn call(instance: &mut Instance, arguments: [u64; 5]) -> Result<u64, Fault> {
    instance.call(&mut TestKernel::default(), FunctionId(0), arguments)
}

/// What both engines make of a program.
fn both(functions: &[(&str, &[Op])], arguments: [u64; 5]) -> Result<u64, Fault> {
    both_with(Run::FUEL, functions, arguments)
}

fn both_with(fuel: u64, functions: &[(&str, &[Op])], arguments: [u64; 5]) -> Result<u64, Fault> {
    let [compiled, interpreted] = [Engine::Compiled, Engine::Interpreted].map(|engine| {
        let code = Code::new(image(functions), engine).unwrap();
        let mut state = State::new(code.image(), 1).unwrap();
        let frame = state.stack_top + Run::FRAME_SIZE;
        let mut kernel = TestKernel::default();
        let mut run = Run::new(&code, &mut state, &mut kernel);
        run.fuel = fuel;
        let result = run.call_function(0, arguments, frame);
        let fuel = run.fuel;
        let memory = state.memory.slice(Memory::BASE, state.memory.len()).unwrap().to_vec();
        ((result, fuel, kernel.calls), memory)
    });
    assert_eq!(compiled.0, interpreted.0, "{functions:#?} {arguments:x?}");
    assert!(compiled.1 == interpreted.1, "memory differs: {functions:#?} {arguments:x?}");
    compiled.0.0
}

fn fault_of_both(functions: &[(&str, &[Op])], arguments: [u64; 5]) -> String {
    both(functions, arguments).expect_err("this is not allowed").0
}

#[test]
fn accesses_at_the_edges_of_memory_are_checked() {
    let end = {
        let instance = testing::instance(image(&[("f", &[Op::Exit])]), Engine::Interpreted);
        Memory::BASE + instance.state().memory.len() as u64
    };
    for size in [Size::B, Size::H, Size::W, Size::D] {
        let bytes = size.bytes();
        for offset in [0, -8, i16::MIN, i16::MAX] {
            let load = Op::Load { dst: 0, base: 1, offset, size, signed: false, probe: false };
            let store = Op::Store { base: 1, offset, size, src: imm(0) };
            let at = |address: u64| [address.wrapping_sub(i64::from(offset) as u64), 0, 0, 0, 0];
            for op in [load, store] {
                let program: &[(&str, &[Op])] = &[("f", &[op, mov(0, imm(0)), Op::Exit])];
                assert_eq!(both(program, at(Memory::BASE)), Ok(0));
                assert_eq!(both(program, at(end - bytes)), Ok(0));
                for outside in
                    [end - bytes + 1, end, Memory::BASE - 1, 0, 8, u64::MAX, u64::MAX - 7, Image::MAPS]
                {
                    fault_of_both(program, at(outside));
                }
            }
        }
    }
}

#[test]
fn probing_loads_give_0_outside_of_memory() {
    let probe = Op::Load { dst: 0, base: 1, offset: 8, size: Size::W, signed: true, probe: true };
    let ops: &[(&str, &[Op])] = &[("f", &[mov(0, imm(5)), probe, Op::Exit])];
    assert_eq!(both(ops, [0; 5]), Ok(0));
    assert_eq!(both(ops, [u64::MAX, 0, 0, 0, 0]), Ok(0));
    let ops: &[(&str, &[Op])] = &[("f", &[store(1, 8, imm(-2)), probe, Op::Exit])];
    assert_eq!(both(ops, [Memory::BASE, 0, 0, 0, 0]), Ok(-2i64 as u64));
}

#[test]
fn a_fault_names_the_innermost_function() {
    let ops = [Op::Call { function: 1 }, Op::Exit];
    let callee = [mov(1, imm(0)), load(0, 1, 16), Op::Exit];
    let fault = fault_of_both(&[("outer", &ops), ("inner", &callee)], [0; 5]);
    assert!(fault.contains("`inner`, instruction 1: a null pointer"), "{fault}");
    let callee = [mov(1, imm(0)), Op::CallKernel { import: 1 }, Op::Exit];
    let fault = fault_of_both(&[("outer", &ops), ("inner", &callee)], [0; 5]);
    assert!(fault.contains("`inner`, instruction 1: this is not allowed"), "{fault}");
    let fault = fault_of_both(&[("outer", &ops), ("inner", &[Op::Poison { reason: 0 }])], [0; 5]);
    assert!(fault.contains("`inner`, instruction 0: this kernel has no such field"), "{fault}");
}

#[test]
fn deep_recursion_is_a_fault() {
    let fault = fault_of_both(&[("f", &[Op::Call { function: 0 }, Op::Exit])], [0; 5]);
    assert!(fault.contains("nest more deeply"), "{fault}");
}

#[test]
fn a_loop_without_end_is_a_fault() {
    for ops in [
        &[Op::Jump { target: 0 }][..],
        &[add(0, imm(1)), testing::jump_if_equal(1, 0, 0), Op::Exit],
        &[Op::Call { function: 1 }, Op::Jump { target: 0 }],
    ] {
        let fault = fault_of_both(&[("f", ops), ("g", &[Op::Exit])], [0; 5]);
        assert!(fault.contains("does not end"), "{fault}");
    }
}

#[test]
fn may_goto_ends_a_loop() {
    let ops = [Op::MayGoto { target: 3 }, add(0, imm(1)), Op::Jump { target: 0 }, Op::Exit];
    assert_eq!(both(&[("f", &ops)], [0; 5]), Ok(Run::MAY_GOTO_MAX));
}

#[test]
fn what_no_program_has_is_refused() {
    for (ops, what) in [
        (&[mov(10, imm(0)), Op::Exit][..], "writes to r10"),
        (&[mov(0, reg(11)), Op::Exit], "no r11"),
        (&[mov(0, imm(0))], "goes on"),
        (&[], "goes on"),
        (&[Op::Jump { target: 1 }], "jumps to instruction 1"),
        (&[Op::Call { function: 7 }, Op::Exit], "no function 7"),
        (&[Op::CallKernel { import: 2 }, Op::Exit], "no import 2"),
        (&[Op::Poison { reason: 1 }], "no reason 1"),
    ] {
        let error = compile(&image(&[("f", ops)])).unwrap_err().to_string();
        assert!(error.contains(what) && error.contains("`f`"), "{error}");
    }
}

/// A kernel that panics, or does away with an instance's memory.
struct BadKernel {
    takes_memory: bool,
}

impl Kernel for BadKernel {
    fn cpu(&self) -> usize {
        0
    }

    fn clock_ns(&self) -> u64 {
        0
    }

    fn call(&mut self, state: &mut State, _: KernelFunction, _: [u64; 5]) -> Result<u64, Fault> {
        if self.takes_memory {
            state.memory = Memory::new();
            return Ok(0);
        }
        panic!("the kernel has panicked")
    }

    fn start_timer(&mut self, _: u64, _: u64, _: bool) {}

    fn cancel_timer(&mut self, _: u64) -> bool {
        false
    }
}

#[test]
fn a_panic_of_the_kernel_arrives_at_the_caller() {
    let callee = [Op::CallKernel { import: 0 }, store(10, -8, imm(1)), Op::Exit];
    let image = image(&[("outer", &[Op::Call { function: 1 }, Op::Exit]), ("inner", &callee)]);
    let code = Arc::new(Code::new(image, Engine::Compiled).unwrap());
    for (takes_memory, message) in [(false, "has panicked"), (true, "does not take memory away")] {
        let mut instance = Instance::new(code.clone(), 1).unwrap();
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            instance.call(&mut BadKernel { takes_memory }, FunctionId(0), [0; 5])
        }))
        .unwrap_err();
        let text = panic.downcast_ref::<&str>().copied().unwrap_or_default();
        assert!(text.contains(message), "{text}");
    }
    let mut instance = Instance::new(code, 1).unwrap();
    assert_eq!(call(&mut instance, [1, 2, 3, 4, 5]), Ok(15));
}

/// A kernel in which a call lets memory grow, so that it lies elsewhere.
struct GrowingKernel;

impl Kernel for GrowingKernel {
    fn cpu(&self) -> usize {
        0
    }

    fn clock_ns(&self) -> u64 {
        0
    }

    fn call(&mut self, state: &mut State, _: KernelFunction, _: [u64; 5]) -> Result<u64, Fault> {
        let address = state.memory.allocate(1 << 20)?;
        state.memory.store(address, 8, 42)?;
        Ok(address)
    }

    fn start_timer(&mut self, _: u64, _: u64, _: bool) {}

    fn cancel_timer(&mut self, _: u64) -> bool {
        false
    }
}

#[test]
fn memory_may_grow_during_a_call() {
    let ops = [
        store(10, -8, imm(7)),
        load(6, 10, -8),
        Op::CallKernel { import: 0 },
        load(1, 0, 0),
        load(2, 10, -8),
        mov(0, reg(1)),
        add(0, reg(2)),
        add(0, reg(6)),
        Op::Exit,
    ];
    let mut instance = testing::instance(image(&[("f", &ops)]), Engine::Compiled);
    assert_eq!(instance.call(&mut GrowingKernel, FunctionId(0), [0; 5]), Ok(42 + 7 + 7));
}

#[test]
fn threads_share_code() {
    let ops = [
        address(6, Memory::BASE),
        Op::Atomic { op: AtomicOp::Add, size: Size::D, fetch: false, base: 6, offset: 0, src: 1 },
        Op::CallKernel { import: 0 },
        add(2, imm(-1)),
        Op::Branch { condition: Condition::NotEqual, wide: true, dst: 2, src: imm(0), target: 1 },
        load(0, 6, 0),
        Op::Exit,
    ];
    let code = Arc::new(Code::new(image(&[("f", &ops)]), Engine::Compiled).unwrap());
    let threads = [3u64, 5].map(|step| {
        let code = code.clone();
        std::thread::spawn(move || {
            let mut instance = Instance::new(code, 1).unwrap();
            let result = instance.call(&mut TestKernel::default(), FunctionId(0), [step, 10_000, 0, 0, 0]);
            (result, step * 10_000)
        })
    });
    drop(code);
    for thread in threads {
        let (result, expected) = thread.join().unwrap();
        assert_eq!(result, Ok(expected));
    }
}

/// Where the kernel of the tests has objects: their own address, and a number that is 7.
const OBJECT: u64 = Memory::BASE + 64;

/// Functions that code does itself, and what both engines make of a call of each: r0, or the words of a fault, and the
/// first word of scratch memory.
#[test]
fn functions_without_a_call_do_the_same() {
    let field =
        |size| Import::Known(Known::Field(ObjectField { object: "an object", mark: 16, offset: 8, size }));
    let numbers = |from: i32, to: i32| u64::from(from as u32) | u64::from(to as u32) << 32;
    let new = || Import::Runtime("bpf_iter_num_new");
    let next = || Import::Runtime("bpf_iter_num_next");
    let destroy = || Import::Runtime("bpf_iter_num_destroy");
    let at = Memory::BASE;
    let not_an_object = "is not that of an object";
    for (import, arguments, before, result, after) in [
        (Import::Known(Known::Nothing), [5, 6, 7], 1, Ok(0), 1),
        (Import::Known(Known::FirstArgument), [5, 6, 7], 1, Ok(5), 1),
        (Import::Known(Known::Cpu), [5, 6, 7], 1, Ok(3), 1),
        (Import::Known(Known::Clock), [5, 6, 7], 1, Ok(1 << 40), 1),
        (field(Size::D), [OBJECT, 0, 0], 1, Ok(0x1_0000_0007), 1),
        (field(Size::W), [OBJECT, 0, 0], 1, Ok(7), 1),
        (field(Size::D), [OBJECT + 8, 0, 0], 1, Err(not_an_object), 1),
        (field(Size::D), [0, 0, 0], 1, Err(not_an_object), 1),
        (field(Size::D), [Memory::BASE - 16, 0, 0], Memory::BASE - 16, Err(not_an_object), Memory::BASE - 16),
        (field(Size::D), [u64::MAX, 0, 0], 1, Err(not_an_object), 1),
        (new(), [at, 2, 5], 1, Ok(0), numbers(1, 5)),
        (new(), [at, u64::MAX, 5], 1, Ok(0), numbers(-2, 5)),
        (new(), [at, 5, 5], 1, Ok(0), numbers(4, 5)),
        (new(), [at, 5, 4], 1, Ok(errno::EINVAL), 0),
        (new(), [at, 0, 8 << 20], 1, Ok(0), numbers(-1, 8 << 20)),
        (new(), [at, 0, (8 << 20) + 1], 1, Ok(errno::E2BIG), 0),
        (new(), [at, 1 << 31, (1 << 31) - 1], 1, Ok(errno::E2BIG), 0),
        (new(), [0, 2, 5], 1, Err("a null pointer was followed (8 bytes at offset 0)"), 1),
        (next(), [at, 0, 0], numbers(1, 5), Ok(at), numbers(2, 5)),
        (next(), [at, 0, 0], numbers(-3, -1), Ok(at), numbers(-2, -1)),
        (next(), [at, 0, 0], numbers(4, 5), Ok(0), 0),
        (next(), [at, 0, 0], 0, Ok(0), 0),
        (next(), [8, 0, 0], 1, Err("a null pointer was followed (8 bytes at offset 8)"), 1),
        (destroy(), [at, 0, 0], numbers(4, 5), Ok(0), 0),
        (destroy(), [8, 0, 0], 1, Err("a null pointer was followed (8 bytes at offset 8)"), 1),
    ] {
        let [compiled, interpreted] = [Engine::Compiled, Engine::Interpreted].map(|engine| {
            let mut image = image(&[("f", &[Op::CallKernel { import: 0 }, Op::Exit])]);
            image.imports = vec![import.clone()];
            let mut instance = testing::instance(image, engine);
            let memory = &mut instance.state_mut().memory;
            memory.store(Memory::BASE, 8, before).unwrap();
            memory.store(OBJECT + 8, 8, 0x1_0000_0007).unwrap();
            memory.store(OBJECT + 16, 8, OBJECT).unwrap();
            let [r1, r2, r3] = arguments;
            let mut kernel = TestKernel { cpu: 3, clock_ns: 1 << 40, ..TestKernel::default() };
            let result = instance.call(&mut kernel, FunctionId(0), [r1, r2, r3, 0, 0]);
            (result, instance.state().memory.load(Memory::BASE, 8).unwrap())
        });
        assert_eq!(compiled, interpreted, "{import:?} of {arguments:x?}");
        match (&compiled.0, result) {
            (Ok(got), Ok(expected)) => assert_eq!(*got, expected, "{import:?} of {arguments:x?}"),
            (Err(fault), Err(words)) => assert!(fault.0.contains(words), "{import:?}: {fault}"),
            (got, _) => panic!("{import:?} of {arguments:x?}: {got:?}"),
        }
        assert_eq!(compiled.1, after, "{import:?} of {arguments:x?}");
    }
}

/// A loop over numbers on the stack, by way of a pointer to it, as compilers make it; the sum of 3 to 9.
#[test]
fn a_loop_over_numbers_on_the_stack() {
    let ops = [
        mov(1, reg(10)),
        add(1, imm(-8)),
        mov(2, imm(3)),
        mov(3, imm(10)),
        Op::CallKernel { import: 0 },
        mov(6, imm(0)),
        mov(1, reg(10)),
        add(1, imm(-8)),
        Op::CallKernel { import: 1 },
        testing::jump_if_equal(0, 0, 13),
        Op::Load { dst: 1, base: 0, offset: 0, size: Size::W, signed: false, probe: false },
        add(6, reg(1)),
        Op::Jump { target: 6 },
        mov(0, reg(6)),
        Op::Exit,
    ];
    for engine in [Engine::Compiled, Engine::Interpreted] {
        let mut image = testing::image(&[("f", &ops)]);
        image.imports = testing::runtime(&["bpf_iter_num_new", "bpf_iter_num_next"]);
        assert_eq!(call(&mut testing::instance(image, engine), [0; 5]), Ok((3..10).sum()));
    }
}

/// An address next to the stack is not taken to be on it: the first frame begins at the end of other memory.
#[test]
fn addresses_relative_to_the_frame_are_checked_beyond_it() {
    for beyond in [-520, 0, 1 << 30, i64::from(i32::MIN)] {
        let ops = [mov(1, reg(10)), add(1, imm(beyond)), store(1, 0, imm(7)), load(0, 1, 0), Op::Exit];
        let _ = both(&[("f", &ops)], [0; 5]);
        let ops = [mov(1, reg(10)), add(1, imm(beyond)), load(0, 1, i16::MAX), Op::Exit];
        let _ = both(&[("f", &ops)], [0; 5]);
    }
}
