//! Machine code and the interpreter have to agree in everything: results, memory, fuel and the texts of
//! faults.

use super::*;
use crate::image::{FunctionId, Import};
use crate::instance::{Code, Engine, Instance};
use crate::kernel::{Kernel, KernelFunction};
use crate::memory::Memory;
use crate::op::{AtomicOp, Condition, Size};
use crate::state::State;
use crate::testing::{self, TestKernel, add, address, imm, load, mov, reg, store};
use std::sync::Arc;

mod inline;
mod random;
mod storage;

/// Bytes of the section at the beginning of memory.
const SCRATCH_SIZE: usize = 256;

#[test]
fn instructions_follow_the_standard() {
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

/// A program of the function 0, which can call 1 (which can call kernel functions), and kernel functions 0
/// and 13.
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

/// The result of a program in both engines.
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

/// Addresses that are computed from the frame pointer are checked unless they are in the frame.
#[test]
fn addresses_relative_to_the_frame_are_checked_beyond_it() {
    for beyond in [-520, 0, 1 << 30, i64::from(i32::MIN)] {
        let ops = [mov(1, reg(10)), add(1, imm(beyond)), store(1, 0, imm(7)), load(0, 1, 0), Op::Exit];
        let _ = both(&[("f", &ops)], [0; 5]);
        let ops = [mov(1, reg(10)), add(1, imm(beyond)), load(0, 1, i16::MAX), Op::Exit];
        let _ = both(&[("f", &ops)], [0; 5]);
    }
}

/// A check holds for later accesses in its range if every path leads through it, and as long as the base is
/// the same.
#[test]
fn checks_hold_where_they_were_made() {
    let end = {
        let instance = testing::instance(image(&[("f", &[Op::Exit])]), Engine::Interpreted);
        Memory::BASE + instance.state().memory.len() as u64
    };
    let around = [load(3, 1, 0), load(3, 1, -16), load(0, 1, -8), Op::Exit];
    assert!(both(&[("f", &around)], [end - 8, 0, 0, 0, 0]).is_ok());
    for (ops, arguments, place) in [
        (&[load(3, 1, 0), load(3, 1, -8), load(0, 1, 1), Op::Exit][..], [end - 8, 0], "instruction 2"),
        (&[load(3, 1, 8), load(0, 1, -1), Op::Exit], [Memory::BASE, 0], "instruction 1"),
        (
            &[
                testing::jump_if_equal(2, 0, 3),
                load(3, 1, 8),
                Op::Jump { target: 4 },
                load(3, 1, 0),
                load(0, 1, 8),
                Op::Exit,
            ],
            [end - 8, 0],
            "instruction 4",
        ),
        (
            &[load(3, 1, 0), load(0, 1, 0), add(1, imm(1 << 30)), Op::Jump { target: 1 }],
            [Memory::BASE, 0],
            "instruction 1",
        ),
        (&[address(1, end - 7), load(0, 1, 0), Op::Exit], [0, 0], "instruction 1"),
        (&[load(3, 1, 0), add(1, imm(1 << 30)), load(0, 1, 0), Op::Exit], [Memory::BASE, 0], "instruction 2"),
        (&[testing::jump_if_equal(2, 0, 2), load(3, 1, 0), load(0, 1, 0), Op::Exit], [0, 0], "instruction 2"),
        (&[testing::jump_if_equal(2, 0, 2), load(3, 1, 0), load(0, 1, 0), Op::Exit], [0, 1], "instruction 1"),
    ] {
        let [r1, r2] = arguments;
        let fault = fault_of_both(&[("f", ops)], [r1, r2, 0, 0, 0]);
        assert!(fault.contains(place), "{fault}");
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
        let error = compile(&image(&[("f", ops)])).err().expect("it cannot be translated").to_string();
        assert!(error.contains(what) && error.contains("`f`"), "{error}");
    }
}

/// A kernel that panics, or replaces an instance's memory.
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

    fn start_timer(&mut self, _: u64, _: u64, _: bool) -> bool {
        true
    }

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

    fn start_timer(&mut self, _: u64, _: u64, _: bool) -> bool {
        true
    }

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
