//! The behaviour of calls of an instance, with both engines.

use super::{Code, Engine, Instance};
use crate::fault::Fault;
use crate::image::{DataSection, FunctionId, Image, Import, MapKind};
use crate::kernel::{Kernel, KernelFunction};
use crate::memory::Memory;
use crate::op::{AtomicOp, Op, Size};
use crate::state::State;
use crate::testing::{TestKernel, add, address, image, imm, instance, jump_if_equal, load, map, mov, reg};
use crate::testing::{runtime, scratch, store};
use std::sync::Arc;

const ENGINES: [Engine; 2] = [Engine::Interpreted, Engine::Compiled];
const FIRST: FunctionId = FunctionId(0);

fn call(instance: &mut Instance, arguments: [u64; 5]) -> Result<u64, Fault> {
    instance.call(&mut TestKernel::default(), FIRST, arguments)
}

fn fault_of(ops: &[Op], arguments: [u64; 5]) -> [String; 2] {
    ENGINES.map(|engine| {
        let mut image = image(&[("wrong", ops)]);
        image.sections.push(scratch(64));
        call(&mut instance(image, engine), arguments).expect_err("this is a fault").0
    })
}

#[test]
fn sections_are_at_the_images_addresses() {
    for engine in ENGINES {
        let mut image = image(&[("read", &[load(0, 1, 0), Op::Exit])]);
        let section = |address, byte, length| DataSection {
            name: ".data".to_owned(),
            address,
            bytes: vec![byte; length],
        };
        image.sections = vec![section(Memory::BASE, 1, 9), section(Memory::BASE + 64, 2, 8)];
        let mut instance = instance(image, engine);
        assert_eq!(call(&mut instance, [Memory::BASE, 0, 0, 0, 0]), Ok(0x0101_0101_0101_0101));
        assert_eq!(call(&mut instance, [Memory::BASE + 8, 0, 0, 0, 0]), Ok(1));
        assert_eq!(call(&mut instance, [Memory::BASE + 64, 0, 0, 0, 0]), Ok(0x0202_0202_0202_0202));
    }
}

/// Counts in global data, and keeps the sum of the arguments in a map and in the storage of a task.
fn counter() -> Image {
    let ops = [
        mov(6, reg(1)),
        address(7, Memory::BASE),
        load(1, 7, 0),
        add(1, imm(1)),
        store(7, 0, reg(1)),
        store(10, -8, reg(6)),
        address(1, Image::MAPS),
        mov(2, reg(10)),
        add(2, imm(-8)),
        mov(3, reg(7)),
        mov(4, imm(0)),
        Op::CallKernel { import: 0 },
        address(1, Image::MAPS + 1),
        mov(2, reg(6)),
        mov(3, imm(0)),
        mov(4, imm(1)),
        Op::CallKernel { import: 1 },
        jump_if_equal(0, 0, 20),
        load(1, 0, 0),
        Op::Atomic { op: AtomicOp::Add, size: Size::D, fetch: false, base: 0, offset: 0, src: 6 },
        load(0, 0, 0),
        Op::Exit,
    ];
    let mut image = image(&[("count", &ops)]);
    image.sections.push(scratch(8));
    image.maps = vec![map(MapKind::LruHash, 8, 8, 5), map(MapKind::TaskStorage, 4, 8, 0)];
    image.imports = runtime(&["bpf_map_update_elem", "bpf_task_storage_get"]);
    image
}

#[test]
fn instances_share_nothing_and_do_the_same() {
    let contents = |instance: &Instance| {
        let memory = &instance.state().memory;
        memory.slice(Memory::BASE, memory.len()).unwrap().to_vec()
    };
    let mut all = Vec::new();
    for engine in ENGINES {
        let code = Arc::new(Code::new(counter(), engine).unwrap());
        let mut first = Instance::new(code.clone(), 4).unwrap();
        let mut second = Instance::new(code, 4).unwrap();
        let untouched = contents(&second);
        let sequence: Vec<u64> = (0..100).map(|number| 1 + number * number % 13).collect();
        let results: Vec<_> = sequence.iter().map(|&key| call(&mut first, [key, 0, 0, 0, 0])).collect();
        assert_eq!(first.state().memory.load(Memory::BASE, 8), Ok(100));
        assert_eq!(contents(&second), untouched);
        let again: Vec<_> = sequence.iter().map(|&key| call(&mut second, [key, 0, 0, 0, 0])).collect();
        assert_eq!(results, again);
        assert!(results.iter().all(Result::is_ok));
        assert_eq!(contents(&first), contents(&second));
        all.push((results, contents(&first)));
    }
    assert_eq!(all[0], all[1], "both engines");
}

#[test]
fn callbacks_find_their_arguments_in_memory() {
    for engine in ENGINES {
        let ops = [
            load(0, 1, 0),
            load(2, 1, 88),
            add(0, reg(2)),
            store(10, -512, imm(-1)),
            load(3, 1, 0),
            Op::Exit,
        ];
        let mut instance = instance(image(&[("sum", &ops)]), engine);
        let arguments: [u64; 12] = std::array::from_fn(|at| at as u64 + 1);
        assert_eq!(instance.call_back(&mut TestKernel::default(), FIRST, &arguments), Ok(13));
    }
}

#[test]
fn wrong_accesses_are_faults_that_say_where() {
    let fetch = Op::Atomic { op: AtomicOp::Add, size: Size::D, fetch: true, base: 1, offset: 16, src: 2 };
    for wrong in [load(0, 1, 16), store(1, 16, imm(1)), fetch] {
        for fault in fault_of(&[mov(0, imm(0)), wrong, Op::Exit], [0; 5]) {
            assert_eq!(fault, "`wrong`, instruction 1: a null pointer was followed (8 bytes at offset 16)");
        }
        for outside in
            [Memory::BASE - 17, Memory::BASE + (1 << 30), Image::MAPS, Image::FUNCTIONS, u64::MAX - 16]
        {
            for fault in fault_of(&[wrong, Op::Exit], [outside, 0, 0, 0, 0]) {
                let place = outside.wrapping_add(16);
                let expected = format!("8 bytes at address {place:#x} are outside of the scheduler's memory");
                assert_eq!(fault, format!("`wrong`, instruction 0: {expected}"));
            }
        }
    }
}

#[test]
fn the_last_byte_counts() {
    for engine in ENGINES {
        for (size, bytes) in [(Size::B, 1), (Size::H, 2), (Size::W, 4), (Size::D, 8)] {
            let ops = [Op::Load { dst: 0, base: 1, offset: 0, size, signed: false, probe: false }, Op::Exit];
            let mut instance = instance(image(&[("edge", &ops)]), engine);
            let end = Memory::BASE + instance.state().memory.len() as u64;
            assert_eq!(call(&mut instance, [end - bytes, 0, 0, 0, 0]), Ok(0));
            assert!(call(&mut instance, [end - bytes + 1, 0, 0, 0, 0]).is_err());
            assert!(call(&mut instance, [Memory::BASE - 1, 0, 0, 0, 0]).is_err());
        }
    }
}

#[test]
fn probing_loads_give_0_where_nothing_is() {
    for engine in ENGINES {
        let probe = Op::Load { dst: 0, base: 1, offset: 8, size: Size::W, signed: true, probe: true };
        let mut instance = instance(image(&[("probe", &[mov(0, imm(5)), probe, Op::Exit])]), engine);
        for nowhere in [0, 4000, Image::MAPS, u64::MAX - 8, u64::MAX] {
            assert_eq!(call(&mut instance, [nowhere, 0, 0, 0, 0]), Ok(0), "{nowhere:#x}");
        }
    }
}

#[test]
fn a_program_that_does_not_end_is_a_fault() {
    let forever = [Op::Jump { target: 0 }];
    let recursive = [Op::Call { function: 0 }, Op::Exit];
    for fault in fault_of(&forever, [0; 5]) {
        assert_eq!(
            fault,
            "`wrong`, instruction 0: the program does not end: it has executed 268435456 instructions"
        );
    }
    for fault in fault_of(&recursive, [0; 5]) {
        assert!(fault.ends_with("calls of functions nest more deeply than the stack allows"), "{fault}");
    }
}

#[test]
fn all_calls_together_have_a_budget() {
    // Ten rounds of three instructions, of which nine jump back, in a function of five.
    let rounds = [mov(0, imm(10)), add(0, imm(-1)), jump_if_equal(0, 0, 4), Op::Jump { target: 1 }, Op::Exit];
    const CALL: u64 = 5 + 9 * 3;
    let spent = ENGINES.map(|engine| {
        let code = Code::new(image(&[("rounds", &rounds)]), engine).unwrap().bounded(10 * CALL + 20);
        let mut instance = Instance::new(Arc::new(code), 1).unwrap();
        (0..10).for_each(|_| assert_eq!(call(&mut instance, [0; 5]), Ok(0)));
        assert_eq!(instance.spent(), 10 * CALL);
        let fault = call(&mut instance, [0; 5]).unwrap_err().0;
        let said = format!(
            "the scheduler has spent the {} instructions that it may execute in a run",
            10 * CALL + 20
        );
        assert_eq!(fault, format!("`rounds`, instruction 3: {said}"));
        instance.spent()
    });
    assert_eq!(spent[0], spent[1]);
    let mut unbounded = instance(image(&[("rounds", &rounds)]), Engine::Compiled);
    (0..100).for_each(|_| assert_eq!(call(&mut unbounded, [0; 5]), Ok(0)));
}

#[test]
fn a_loop_that_may_be_left_is() {
    for engine in ENGINES {
        let ops =
            [mov(0, imm(0)), Op::MayGoto { target: 4 }, add(0, imm(1)), Op::Jump { target: 1 }, Op::Exit];
        let mut instance = instance(image(&[("rounds", &ops)]), engine);
        assert_eq!(call(&mut instance, [0; 5]), Ok(8 << 20));
        assert_eq!(call(&mut instance, [0; 5]), Ok(8 << 20), "each call has its own budget");
    }
}

#[test]
fn what_was_not_linked_is_named_when_it_is_reached() {
    for engine in ENGINES {
        let mut image = image(&[("old", &[jump_if_equal(1, 0, 2), Op::Poison { reason: 0 }, Op::Exit])]);
        image.poisons.push("this kernel has no field `core_cookie`".to_owned());
        let mut instance = instance(image, engine);
        assert_eq!(call(&mut instance, [0; 5]), Ok(0));
        let fault = call(&mut instance, [1, 0, 0, 0, 0]).unwrap_err().0;
        assert_eq!(fault, "`old`, instruction 1: this kernel has no field `core_cookie`");
        assert_eq!(call(&mut instance, [0; 5]), Ok(0), "a fault ends the call, not the instance");
    }
}

#[test]
fn the_kernel_is_called_and_its_refusal_is_a_fault_of_the_caller() {
    for engine in ENGINES {
        let outer = [Op::Call { function: 1 }, add(0, imm(1)), Op::Exit];
        let inner = [
            jump_if_equal(1, 0, 3),
            Op::CallKernel { import: 0 },
            Op::Exit,
            Op::CallKernel { import: 1 },
            Op::Exit,
        ];
        let mut image = image(&[("outer", &outer), ("inner", &inner)]);
        let kernel_function = |number| Import::Kernel(KernelFunction(number), format!("scx_{number}"));
        image.imports = vec![kernel_function(4), kernel_function(13)];
        let mut instance = instance(image, engine);
        let mut kernel = TestKernel::default();
        assert_eq!(instance.call(&mut kernel, FIRST, [1, 2, 3, 4, 5]), Ok(16));
        assert_eq!(kernel.calls, [(KernelFunction(4), [1, 2, 3, 4, 5])]);
        let fault = instance.call(&mut kernel, FIRST, [0; 5]).unwrap_err().0;
        assert_eq!(fault, "`inner`, instruction 3: this is not allowed");
    }
}

#[test]
fn an_image_needs_functions_that_the_runtime_has() {
    let mut image = image(&[("f", &[Op::Exit])]);
    image.imports = vec![Import::Runtime("bpf_redirect")];
    let error = Code::new(image, Engine::Interpreted).unwrap_err();
    assert_eq!(error.0, "the runtime has no function `bpf_redirect`");
}

/// A kernel that uses the stack while it is called, as for a callback.
struct StackUser;

impl Kernel for StackUser {
    fn cpu(&self) -> usize {
        0
    }

    fn clock_ns(&self) -> u64 {
        0
    }

    fn call(&mut self, state: &mut State, _: KernelFunction, _: [u64; 5]) -> Result<u64, Fault> {
        let free = state.stack_end - state.stack_top;
        state.memory.slice_mut(state.stack_top, free as usize)?.fill(0xff);
        Ok(free)
    }

    fn start_timer(&mut self, _: u64, _: u64, _: bool) -> bool {
        true
    }

    fn cancel_timer(&mut self, _: u64) -> bool {
        false
    }
}

#[test]
fn the_kernel_finds_the_stack_above_its_caller_free() {
    for engine in ENGINES {
        let ops =
            [store(10, -8, imm(7)), Op::CallKernel { import: 0 }, load(1, 10, -8), add(0, reg(1)), Op::Exit];
        let mut image = image(&[("f", &ops)]);
        image.imports = vec![Import::Kernel(KernelFunction(0), "scx_f".to_owned())];
        let mut instance = instance(image, engine);
        let before = instance.state().stack_top;
        let free = instance.call(&mut StackUser, FIRST, [0; 5]).unwrap() - 7;
        assert!(free >= 32 * 512, "{free} bytes for those that nest");
        assert_eq!(instance.state().stack_top, before);
    }
}
