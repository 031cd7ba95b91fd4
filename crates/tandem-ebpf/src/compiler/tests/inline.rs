//! Functions that code executes inline instead of calling them.

use super::{call, image};
use crate::image::{FunctionId, Image, Import, MapKind};
use crate::instance::Engine;
use crate::known::{ArrayField, KnownResult, ObjectField};
use crate::maps::errno;
use crate::memory::Memory;
use crate::op::{Op, Size};
use crate::testing::{self, TestKernel, add, address, imm, load, mov, reg};
use proptest::prelude::*;

/// Address of an object of the tests' kernel, which holds its own address and a number that is 7.
const OBJECT: u64 = Memory::BASE + 64;

/// Functions that code executes inline, and the result of a call of each in both engines: r0, or the text of
/// a fault, and the first word of scratch memory.
#[test]
fn functions_without_a_call_do_the_same() {
    let field = |size| {
        Import::Known(KnownResult::Field(ObjectField { object: "an object", mark: 16, offset: 8, size }))
    };
    let set_field = |size| {
        Import::Known(KnownResult::SetField(ObjectField { object: "an object", mark: 16, offset: 0, size }))
    };
    let in_set = || Import::Known(KnownResult::CpuInSet);
    let numbers = |from: i32, to: i32| u64::from(from as u32) | u64::from(to as u32) << 32;
    let new = || Import::Runtime("bpf_iter_num_new");
    let next = || Import::Runtime("bpf_iter_num_next");
    let destroy = || Import::Runtime("bpf_iter_num_destroy");
    let at = Memory::BASE;
    let not_an_object = "is not that of an object";
    for (import, arguments, before, result, after) in [
        (Import::Known(KnownResult::Nothing), [5, 6, 7], 1, Ok(0), 1),
        (Import::Known(KnownResult::FirstArgument), [5, 6, 7], 1, Ok(5), 1),
        (Import::Known(KnownResult::Cpu), [5, 6, 7], 1, Ok(3), 1),
        (Import::Known(KnownResult::Clock), [5, 6, 7], 1, Ok(1 << 40), 1),
        (field(Size::D), [OBJECT, 0, 0], 1, Ok(0x1_0000_0007), 1),
        (field(Size::W), [OBJECT, 0, 0], 1, Ok(7), 1),
        (field(Size::D), [OBJECT + 8, 0, 0], 1, Err(not_an_object), 1),
        (field(Size::D), [0, 0, 0], 1, Err(not_an_object), 1),
        (field(Size::D), [Memory::BASE - 16, 0, 0], Memory::BASE - 16, Err(not_an_object), Memory::BASE - 16),
        (field(Size::D), [u64::MAX, 0, 0], 1, Err(not_an_object), 1),
        (set_field(Size::D), [at, 9, 0], 1, Ok(1), 9),
        (set_field(Size::W), [at, u64::MAX, 0], 5 << 32 | 1, Ok(1), 5 << 32 | 0xffff_ffff),
        (set_field(Size::D), [OBJECT + 8, 9, 0], 1, Err(not_an_object), 1),
        (in_set(), [3, at, 0], 0b1000, Ok(1), 0b1000),
        (in_set(), [2, at, 0], 0b1000, Ok(0), 0b1000),
        (in_set(), [1 << 32 | 3, at, 0], 0b1000, Ok(1), 0b1000),
        // There are four CPUs.
        (in_set(), [4, at, 0], 0b1_0000, Ok(0), 0b1_0000),
        (in_set(), [4, 0, 0], 1, Ok(0), 1),
        (in_set(), [3, 8, 0], 1, Err("a null pointer was followed (8 bytes at offset 8)"), 1),
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
            memory.store(Memory::BASE + 16, 8, Memory::BASE).unwrap();
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

#[test]
fn inlined_array_lookups_equal_calls() {
    let program = |map: u64| {
        [
            address(1, Image::MAPS + map),
            Op::CallKernel { import: 0 },
            testing::jump_if_equal(0, 0, 4),
            load(0, 0, 0),
            Op::Exit,
        ]
    };
    // The element that is looked up contains 10 times its index, and on CPU 3 of each its own one more.
    for (map, key, at, result) in [
        (0, 0, Memory::BASE, Ok(0)),
        (0, 2, Memory::BASE, Ok(20)),
        (0, 3, Memory::BASE, Ok(0)),
        (0, u32::MAX, Memory::BASE, Ok(0)),
        (1, 0, Memory::BASE, Ok(1)),
        (1, 2, Memory::BASE, Ok(21)),
        (1, 3, Memory::BASE, Ok(0)),
        (0, 0, 8, Err("a null pointer was followed (4 bytes at offset 8)")),
    ] {
        for engine in [Engine::Compiled, Engine::Interpreted] {
            let mut image = image(&[("f", &program(map))]);
            image.imports = testing::runtime(&["bpf_map_lookup_elem"]);
            image.maps =
                [MapKind::Array, MapKind::PerCpuArray].map(|kind| testing::map(kind, 4, 8, 3)).to_vec();
            let mut instance = testing::instance(image, engine);
            let state = instance.state_mut();
            for index in 0..3u32 {
                for (map, value) in [(0, 10 * index), (1, 10 * index + 1)] {
                    let value = u64::from(value).to_le_bytes();
                    assert_eq!(state.set_element(map, &index.to_le_bytes(), 3, &value), Ok(true));
                }
            }
            state.memory.store(Memory::BASE, 4, key.into()).unwrap();
            let mut kernel = TestKernel { cpu: 3, ..TestKernel::default() };
            match (instance.call(&mut kernel, FunctionId(0), [0, at, 0, 0, 0]), result) {
                (Ok(got), Ok(expected)) => assert_eq!(got, expected, "{engine:?}: map {map}, element {key}"),
                (Err(fault), Err(words)) => assert!(fault.0.contains(words), "{engine:?}: {fault}"),
                (got, _) => panic!("{engine:?}: map {map}, element {key}: {got:?}"),
            }
        }
    }
}

/// A loop over numbers on the stack, through a pointer to it, as compilers make it; the sum of 3 to 9.
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

/// Of the array of a structure: where its last index is, and where it begins.
const ARRAY: ArrayField = ArrayField { last: 8, first: 16 };

/// What a program gets of the structure at an address, by arithmetic on all bytes of memory: the element, 0, or
/// the address that is outside.
fn element_of(bytes: &[u8], structure: u64, index: i32) -> Result<u64, u64> {
    let word = |address: u64| {
        let start = address.checked_sub(Memory::BASE).and_then(|start| usize::try_from(start).ok());
        let word = start.and_then(|start| bytes.get(start..start.checked_add(8)?));
        word.map(|word| u64::from_le_bytes(word.try_into().unwrap())).ok_or(address)
    };
    let last = word(structure.wrapping_add(8))? as u32 as i32;
    if (0..=i64::from(last)).contains(&i64::from(index)) {
        word(structure.wrapping_add(16).wrapping_add(8 * index as u64))
    } else {
        Ok(0)
    }
}

proptest! {
    #[test]
    fn elements_of_an_array_are_those_up_to_the_last(
        structure in prop_oneof![
            6 => (0..24u64).prop_map(|word| Memory::BASE + 8 * word),
            1 => (0..64u64).prop_map(|before| Memory::BASE - before),
            2 => any::<u64>(),
        ],
        // The last words of memory: an element may begin inside and end outside.
        from_end in prop_oneof![2 => Just(None), 1 => (8..40u64).prop_map(Some)],
        index in prop_oneof![3 => -1..3i32, 3 => -2..24i32, 1 => any::<i32>()],
        upper in prop_oneof![3 => Just(0u64), 1 => any::<u32>().prop_map(|upper| u64::from(upper) << 32)],
        last in prop_oneof![6 => -2..24i32, 1 => any::<i32>()],
    ) {
        let results = [Engine::Compiled, Engine::Interpreted].map(|engine| {
            let mut image = image(&[("f", &[Op::CallKernel { import: 0 }, Op::Exit])]);
            image.imports = vec![Import::Known(KnownResult::Element(ARRAY))];
            let mut instance = testing::instance(image, engine);
            let memory = &mut instance.state_mut().memory;
            let length = memory.len();
            let structure = from_end.map_or(structure, |before| Memory::BASE + length as u64 - before);
            for word in 0..24 {
                memory.store(Memory::BASE + 8 * word, 8, 1000 + word).unwrap();
            }
            let _ = memory.store(structure.wrapping_add(8), 4, last as u32 as u64);
            let expected = element_of(memory.slice(Memory::BASE, length).unwrap(), structure, index);
            let arguments = [structure, u64::from(index as u32) | upper, 0, 0, 0];
            let result = instance.call(&mut TestKernel::default(), FunctionId(0), arguments);
            (result, expected)
        });
        let [(compiled, expected), (interpreted, _)] = results;
        prop_assert_eq!(&compiled, &interpreted);
        match (compiled, expected) {
            (Ok(got), Ok(expected)) => prop_assert_eq!(got, expected),
            (Err(fault), Err(at)) => {
                let place = if at < 4096 { format!("8 bytes at offset {at})") } else { format!("8 bytes at address {at:#x} ") };
                prop_assert!(fault.0.contains(&place), "{fault}: {at:#x}");
            }
            (got, expected) => prop_assert!(false, "{got:?}, not {expected:?}"),
        }
    }
}
