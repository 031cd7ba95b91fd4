//! Shared by the tests of both engines: images written by hand, a minimal kernel, and tables of the results
//! of instructions, taken from RFC 9669 and not from an implementation.

mod bench;

use crate::data_types::DataTypes;
use crate::fault::Fault;
use crate::image::{DataSection, Function, FunctionId, Image, Import, MapDefinition, MapKind};
use crate::instance::{Code, Engine, Instance};
use crate::kernel::{Kernel, KernelFunction};
use crate::memory::Memory;
use crate::op::{AluOp, AtomicOp, Condition, Op, Operand, Size, Swap};
use crate::state::State;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(crate) use bench::Bench;

/// An image of functions, without data and maps; tests add what they need.
pub(crate) fn image(functions: &[(&str, &[Op])]) -> Image {
    let functions =
        functions.iter().map(|&(name, ops)| Function { name: name.to_owned(), ops: ops.to_vec() }).collect();
    Image {
        functions,
        imports: Vec::new(),
        poisons: Vec::new(),
        sections: Vec::new(),
        maps: Vec::new(),
        struct_ops: Vec::new(),
        programs: BTreeMap::new(),
        variables: BTreeMap::new(),
        kernel_variables: Vec::new(),
        objects: BTreeMap::new(),
        types: DataTypes::default(),
    }
}

/// A section of zeros at the beginning of memory, as scratch space at [`Memory::BASE`].
pub(crate) fn scratch(bytes: usize) -> DataSection {
    DataSection { name: ".bss".to_owned(), address: Memory::BASE, bytes: vec![0; bytes] }
}

/// A map.
pub(crate) fn map(kind: MapKind, key_size: usize, value_size: usize, max_entries: usize) -> MapDefinition {
    MapDefinition {
        name: format!("{kind:?}"),
        kind,
        key_size,
        value_size,
        max_entries,
        types: [None; 2],
        inner: None,
        initial: Vec::new(),
    }
}

/// Functions of the runtime, as imports.
pub(crate) fn runtime(names: &[&'static str]) -> Vec<Import> {
    names.iter().map(|&name| Import::Runtime(name)).collect()
}

/// An instance of an image for 4 CPUs.
pub(crate) fn instance(image: Image, engine: Engine) -> Instance {
    let code = Code::new(image, engine).expect("the image can be translated");
    Instance::new(Arc::new(code), 4).expect("its memory is small")
}

/// A kernel that records its calls. Its functions return the sum of their arguments; function 13 is a fault.
#[derive(Debug, Default)]
pub(crate) struct TestKernel {
    pub cpu: usize,
    pub clock_ns: u64,
    pub calls: Vec<(KernelFunction, [u64; 5])>,
    /// Timers that were started, with the arguments.
    pub started: Vec<(u64, u64, bool)>,
    /// Those of these that have neither expired nor been stopped.
    pub pending: BTreeSet<u64>,
}

impl Kernel for TestKernel {
    fn cpu(&self) -> usize {
        self.cpu
    }

    fn clock_ns(&self) -> u64 {
        self.clock_ns
    }

    fn call(&mut self, _: &mut State, function: KernelFunction, arguments: [u64; 5]) -> Result<u64, Fault> {
        self.calls.push((function, arguments));
        match function {
            KernelFunction(13) => Err(Fault("this is not allowed".to_owned())),
            _ => Ok(arguments.iter().fold(0, |sum, argument| sum.wrapping_add(*argument))),
        }
    }

    fn start_timer(&mut self, timer: u64, nsecs: u64, absolute: bool) -> bool {
        self.started.push((timer, nsecs, absolute));
        self.pending.insert(timer);
        true
    }

    fn cancel_timer(&mut self, timer: u64) -> bool {
        self.pending.remove(&timer)
    }
}

/// A register as an operand.
pub(crate) fn reg(number: u8) -> Operand {
    Operand::Reg(number)
}

/// A constant as an operand.
pub(crate) fn imm(value: i64) -> Operand {
    Operand::Imm(value)
}

/// `dst = src`, 64 bits.
pub(crate) fn mov(dst: u8, src: Operand) -> Op {
    Op::Move { wide: true, dst, src, sign_extend_from: 0 }
}

/// `dst += src`, 64 bits.
pub(crate) fn add(dst: u8, src: Operand) -> Op {
    Op::Alu { op: AluOp::Add, wide: true, dst, src }
}

/// `dst = an address or a constant of 64 bits`.
pub(crate) fn address(dst: u8, value: u64) -> Op {
    Op::LoadImmediate { dst, value }
}

/// `dst = *(u64 *)(base + offset)`.
pub(crate) fn load(dst: u8, base: u8, offset: i16) -> Op {
    Op::Load { dst, base, offset, size: Size::D, signed: false, probe: false }
}

/// `*(u64 *)(base + offset) = src`.
pub(crate) fn store(base: u8, offset: i16, src: Operand) -> Op {
    Op::Store { base, offset, size: Size::D, src }
}

/// Jumps if `dst` equals a constant.
pub(crate) fn jump_if_equal(dst: u8, value: i64, target: u32) -> Op {
    Op::Branch { condition: Condition::Equal, wide: true, dst, src: imm(value), target }
}

/// One line of the tables: r1 and r2, the operation, and the resulting r1.
pub(crate) struct Case {
    pub op: Op,
    pub r1: u64,
    pub r2: u64,
    pub result: u64,
}

const MINUS_1: u64 = u64::MAX;
const MIN: u64 = 1 << 63;
const MIN_32: u64 = 1 << 31;
const LOW: u64 = 0xffff_ffff;
const PATTERN: u64 = 0x0123_4567_89ab_cdef;

/// Operation, whether 64 bits, operands, result.
#[rustfmt::skip]
const ALU: &[(AluOp, bool, u64, u64, u64)] = &[
    (AluOp::Add, true, 1, 2, 3),
    (AluOp::Add, true, MINUS_1, 1, 0),
    (AluOp::Add, true, LOW, 1, 1 << 32),
    (AluOp::Add, true, 5, MINUS_1, 4),
    (AluOp::Add, false, LOW, 1, 0),
    (AluOp::Add, false, 0xdead_0000_0001, MINUS_1, 0),
    (AluOp::Add, false, MINUS_1, MINUS_1, 0xffff_fffe),
    (AluOp::Sub, true, 1, 2, MINUS_1),
    (AluOp::Sub, true, MIN, 1, MIN - 1),
    (AluOp::Sub, false, 0, 1, LOW),
    (AluOp::Sub, false, PATTERN, 0xcdef, 0x89ab_0000),
    (AluOp::Mul, true, 3, MINUS_1, MINUS_1 - 2),
    (AluOp::Mul, true, 1 << 32, 1 << 32, 0),
    (AluOp::Mul, true, 0x1_0000_0001, 3, 0x3_0000_0003),
    (AluOp::Mul, false, 0x1_0000_0003, 0x1_0000_0005, 15),
    (AluOp::Mul, false, LOW, LOW, 1),
    (AluOp::Div, true, 7, 2, 3),
    (AluOp::Div, true, 7, 0, 0),
    (AluOp::Div, true, MINUS_1, 2, MIN - 1),
    (AluOp::Div, true, MINUS_1, MINUS_1, 1),
    (AluOp::Div, true, MIN, MINUS_1, 0),
    (AluOp::Div, false, PATTERN, 0, 0),
    (AluOp::Div, false, PATTERN, 1 << 32, 0),
    (AluOp::Div, false, MINUS_1, 2, 0x7fff_ffff),
    (AluOp::Div, false, MIN_32, MINUS_1, 0),
    (AluOp::SignedDiv, true, MINUS_1 - 6, 2, MINUS_1 - 2),
    (AluOp::SignedDiv, true, 7, MINUS_1 - 1, MINUS_1 - 2),
    (AluOp::SignedDiv, true, 7, 0, 0),
    (AluOp::SignedDiv, true, MIN, MINUS_1, MIN),
    (AluOp::SignedDiv, false, 0xffff_fff9, 2, 0xffff_fffd),
    (AluOp::SignedDiv, false, MIN_32, MINUS_1, MIN_32),
    (AluOp::SignedDiv, false, MIN_32, LOW, MIN_32),
    (AluOp::SignedDiv, false, MINUS_1, 0, 0),
    (AluOp::SignedDiv, false, PATTERN, 1, 0x89ab_cdef),
    (AluOp::Mod, true, 7, 4, 3),
    (AluOp::Mod, true, PATTERN, 0, PATTERN),
    (AluOp::Mod, true, MINUS_1, 10, 5),
    (AluOp::Mod, true, 5, MINUS_1, 5),
    (AluOp::Mod, false, PATTERN, 0, 0x89ab_cdef),
    (AluOp::Mod, false, MINUS_1, 10, 5),
    (AluOp::Mod, false, 7, 1 << 32, 7),
    (AluOp::SignedMod, true, MINUS_1 - 6, 4, MINUS_1 - 2),
    (AluOp::SignedMod, true, 7, MINUS_1 - 3, 3),
    (AluOp::SignedMod, true, MIN, MINUS_1, 0),
    (AluOp::SignedMod, true, PATTERN, 0, PATTERN),
    (AluOp::SignedMod, false, 0xffff_fff9, 4, 0xffff_fffd),
    (AluOp::SignedMod, false, MIN_32, MINUS_1, 0),
    (AluOp::SignedMod, false, PATTERN, 0, 0x89ab_cdef),
    (AluOp::Or, true, 0xf0, 0x0f, 0xff),
    (AluOp::Or, true, 1, MINUS_1, MINUS_1),
    (AluOp::Or, false, PATTERN, 0x10, 0x89ab_cdff),
    (AluOp::Or, false, 1, MINUS_1, LOW),
    (AluOp::And, true, PATTERN, 0xff, 0xef),
    (AluOp::And, true, PATTERN, MINUS_1, PATTERN),
    (AluOp::And, false, PATTERN, MINUS_1, 0x89ab_cdef),
    (AluOp::Xor, true, PATTERN, MINUS_1, !PATTERN),
    (AluOp::Xor, true, PATTERN, PATTERN, 0),
    (AluOp::Xor, false, PATTERN, MINUS_1, 0x7654_3210),
    (AluOp::ShiftLeft, true, 1, 63, MIN),
    (AluOp::ShiftLeft, true, 3, 64, 3),
    (AluOp::ShiftLeft, true, 3, 65, 6),
    (AluOp::ShiftLeft, true, 1, MINUS_1, MIN),
    (AluOp::ShiftLeft, false, PATTERN, 0, 0x89ab_cdef),
    (AluOp::ShiftLeft, false, 1, 31, MIN_32),
    (AluOp::ShiftLeft, false, 3, 32, 3),
    (AluOp::ShiftLeft, false, 3, 33, 6),
    (AluOp::ShiftRight, true, MINUS_1, 63, 1),
    (AluOp::ShiftRight, true, PATTERN, 64, PATTERN),
    (AluOp::ShiftRight, true, PATTERN, 4, 0x0012_3456_789a_bcde),
    (AluOp::ShiftRight, false, PATTERN, 4, 0x089a_bcde),
    (AluOp::ShiftRight, false, MINUS_1, 32, LOW),
    (AluOp::ShiftRight, false, MINUS_1, 63, 1),
    (AluOp::ShiftRightSigned, true, MIN, 63, MINUS_1),
    (AluOp::ShiftRightSigned, true, MIN, 64, MIN),
    (AluOp::ShiftRightSigned, true, PATTERN, 56, 1),
    (AluOp::ShiftRightSigned, false, MIN_32, 31, LOW),
    (AluOp::ShiftRightSigned, false, MIN, 31, 0),
    (AluOp::ShiftRightSigned, false, PATTERN, 36, 0xf89a_bcde),
];

/// Condition, whether 64 bits, operands, whether it jumps.
#[rustfmt::skip]
const BRANCHES: &[(Condition, bool, u64, u64, bool)] = &[
    (Condition::Equal, true, 1, 1, true),
    (Condition::Equal, true, 1 << 32, 0, false),
    (Condition::Equal, false, 1 << 32, 0, true),
    (Condition::Equal, false, LOW, MINUS_1, true),
    (Condition::Equal, true, LOW, MINUS_1, false),
    (Condition::NotEqual, true, LOW, MINUS_1, true),
    (Condition::NotEqual, true, 7, 7, false),
    (Condition::NotEqual, false, LOW, MINUS_1, false),
    (Condition::NotEqual, false, 1, 2, true),
    (Condition::Test, true, 6, 2, true),
    (Condition::Test, true, 6, 9, false),
    (Condition::Test, true, 1 << 40, MINUS_1, true),
    (Condition::Test, false, 1 << 40, MINUS_1, false),
    (Condition::Greater, true, MINUS_1, 1, true),
    (Condition::Greater, true, 1, 1, false),
    (Condition::Greater, true, 1 << 32, 1, true),
    (Condition::Greater, false, 1 << 32, 1, false),
    (Condition::GreaterOrEqual, true, 1, 1, true),
    (Condition::GreaterOrEqual, true, 0, MINUS_1, false),
    (Condition::GreaterOrEqual, false, 1 << 33, 0, true),
    (Condition::GreaterOrEqual, false, 1 << 33, 1, false),
    (Condition::Less, true, 1, MINUS_1, true),
    (Condition::Less, true, MINUS_1, 1, false),
    (Condition::Less, false, 1 << 33, 1, true),
    (Condition::Less, false, 5, 5, false),
    (Condition::LessOrEqual, true, 1, 1, true),
    (Condition::LessOrEqual, true, 2, 1, false),
    (Condition::LessOrEqual, false, 1 << 33, 0, true),
    (Condition::SignedGreater, true, 1, MINUS_1, true),
    (Condition::SignedGreater, true, MINUS_1, 1, false),
    (Condition::SignedGreater, true, LOW, 1, true),
    (Condition::SignedGreater, false, LOW, 1, false),
    (Condition::SignedGreaterOrEqual, true, MIN, MIN, true),
    (Condition::SignedGreaterOrEqual, true, MIN, 0, false),
    (Condition::SignedGreaterOrEqual, false, MIN, 0, true),
    (Condition::SignedGreaterOrEqual, false, MIN_32, 0, false),
    (Condition::SignedLess, true, MINUS_1, 0, true),
    (Condition::SignedLess, true, 0, MINUS_1, false),
    (Condition::SignedLess, true, MIN_32, 0, false),
    (Condition::SignedLess, false, MIN_32, 0, true),
    (Condition::SignedLessOrEqual, true, MINUS_1, MINUS_1, true),
    (Condition::SignedLessOrEqual, true, 1, MINUS_1, false),
    (Condition::SignedLessOrEqual, false, LOW, 0, true),
    (Condition::SignedLessOrEqual, false, 1, MINUS_1, false),
];

/// Arithmetic on registers, and on constants that fit into 32 bits.
pub(crate) fn arithmetic_cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for &(op, wide, r1, r2, result) in ALU {
        cases.push(Case { op: Op::Alu { op, wide, dst: 1, src: reg(2) }, r1, r2, result });
        if let Some(src) = constant(r2) {
            cases.push(Case { op: Op::Alu { op, wide, dst: 1, src }, r1, r2: !r2, result });
        }
    }
    let negate = |wide| Op::Negate { wide, dst: 1 };
    let swap = |swap, bits| Op::Swap { dst: 1, swap, bits };
    let copy = |wide, src, sign_extend_from| Op::Move { wide, dst: 1, src, sign_extend_from };
    let unary: &[(Op, u64, u64)] = &[
        (Op::CastArena { dst: 1, src: 1 }, PATTERN, Memory::BASE | PATTERN & LOW),
        (Op::CastArena { dst: 1, src: 1 }, 7 << 32, 0),
        (negate(true), 1, MINUS_1),
        (negate(true), MIN, MIN),
        (negate(false), 1, LOW),
        (negate(false), 1 << 32, 0),
        (swap(Swap::Truncate, 16), PATTERN, 0xcdef),
        (swap(Swap::Truncate, 32), PATTERN, 0x89ab_cdef),
        (swap(Swap::Truncate, 64), PATTERN, PATTERN),
        (swap(Swap::Reverse, 16), PATTERN, 0xefcd),
        (swap(Swap::Reverse, 32), PATTERN, 0xefcd_ab89),
        (swap(Swap::Reverse, 64), PATTERN, 0xefcd_ab89_6745_2301),
        (Op::LoadImmediate { dst: 1, value: PATTERN }, 0, PATTERN),
        (copy(true, imm(-2), 0), 0, MINUS_1 - 1),
        (copy(false, imm(-2), 0), MINUS_1, 0xffff_fffe),
        (copy(true, reg(1), 0), PATTERN, PATTERN),
        (copy(false, reg(1), 0), PATTERN, 0x89ab_cdef),
        (copy(true, reg(1), 8), PATTERN, 0xffff_ffff_ffff_ffef),
        (copy(true, reg(1), 8), 0xff7f, 0x7f),
        (copy(true, reg(1), 16), PATTERN, 0xffff_ffff_ffff_cdef),
        (copy(true, reg(1), 32), PATTERN, 0xffff_ffff_89ab_cdef),
        (copy(true, reg(1), 32), 0xf_7000_0000, 0x7000_0000),
        (copy(false, reg(1), 8), PATTERN, 0xffff_ffef),
        (copy(false, reg(1), 16), PATTERN, 0xffff_cdef),
        (copy(false, reg(1), 16), 0xf_7fff, 0x7fff),
    ];
    cases.extend(unary.iter().map(|&(op, r1, result)| Case { op, r1, r2: PATTERN, result }));
    cases
}

/// Branches on registers, and on constants where 32 bits hold them. They jump to instruction 3, and the
/// result is whether they did: see [`check_instructions`].
pub(crate) fn branch_cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for &(condition, wide, r1, r2, jumps) in BRANCHES {
        let branch = |src| Op::Branch { condition, wide, dst: 1, src, target: 3 };
        cases.push(Case { op: branch(reg(2)), r1, r2, result: u64::from(jumps) });
        if let Some(src) = constant(r2) {
            cases.push(Case { op: branch(src), r1, r2: !r2, result: u64::from(jumps) });
        }
    }
    cases
}

/// An atomic operation: what is in memory, in r0 and r2 before, and in memory, r0 and r2 after it.
#[rustfmt::skip]
#[allow(clippy::type_complexity)]
const ATOMICS: &[(AtomicOp, Size, bool, [u64; 3], [u64; 3])] = &[
    (AtomicOp::Add, Size::D, false, [LOW, 7, 1], [1 << 32, 7, 1]),
    (AtomicOp::Add, Size::D, true, [LOW, 7, 1], [1 << 32, 7, LOW]),
    (AtomicOp::Add, Size::W, false, [MINUS_1, 7, 1], [MINUS_1 << 32, 7, 1]),
    (AtomicOp::Add, Size::W, true, [MINUS_1, 7, 1], [MINUS_1 << 32, 7, LOW]),
    (AtomicOp::Or, Size::D, true, [0xf0, 7, 0x0f], [0xff, 7, 0xf0]),
    (AtomicOp::Or, Size::W, false, [0, 7, MINUS_1], [LOW, 7, MINUS_1]),
    (AtomicOp::And, Size::D, false, [PATTERN, 7, 0xff], [0xef, 7, 0xff]),
    (AtomicOp::And, Size::W, true, [PATTERN, 7, 0xff], [0x0123_4567_0000_00ef, 7, 0x89ab_cdef]),
    (AtomicOp::Xor, Size::D, false, [PATTERN, 7, MINUS_1], [!PATTERN, 7, MINUS_1]),
    (AtomicOp::Xor, Size::W, true, [PATTERN, 7, MINUS_1], [0x0123_4567_7654_3210, 7, 0x89ab_cdef]),
    (AtomicOp::Exchange, Size::D, true, [1, 7, PATTERN], [PATTERN, 7, 1]),
    (AtomicOp::Exchange, Size::W, true, [MINUS_1, 7, PATTERN], [0xffff_ffff_89ab_cdef, 7, LOW]),
    (AtomicOp::CompareExchange, Size::D, true, [7, 7, 9], [9, 7, 9]),
    (AtomicOp::CompareExchange, Size::D, true, [8, 7, 9], [8, 8, 9]),
    (AtomicOp::CompareExchange, Size::W, true, [PATTERN, 0x89ab_cdef, 9], [0x0123_4567_0000_0009, 0x89ab_cdef, 9]),
    (AtomicOp::CompareExchange, Size::W, true, [7, MIN | 7, 9], [9, 7, 9]),
    (AtomicOp::CompareExchange, Size::W, true, [PATTERN, 1, 9], [PATTERN, 0x89ab_cdef, 9]),
    (AtomicOp::LoadAcquire, Size::D, false, [PATTERN, 7, 0], [PATTERN, 7, PATTERN]),
    (AtomicOp::LoadAcquire, Size::B, false, [PATTERN, 7, MINUS_1], [PATTERN, 7, 0xef]),
    (AtomicOp::StoreRelease, Size::H, false, [MINUS_1, 7, 0x1234], [0xffff_ffff_ffff_1234, 7, 0x1234]),
    (AtomicOp::StoreRelease, Size::D, false, [MINUS_1, 7, PATTERN], [PATTERN, 7, PATTERN]),
];

/// A load of each size from the bytes of a number: offset, size, signed, result.
#[rustfmt::skip]
const LOADS: &[(i16, Size, bool, u64)] = &[
    (0, Size::B, false, 0xef),
    (0, Size::B, true, 0xffff_ffff_ffff_ffef),
    (7, Size::B, true, 0x01),
    (0, Size::H, false, 0xcdef),
    (0, Size::H, true, 0xffff_ffff_ffff_cdef),
    (1, Size::H, false, 0xabcd),
    (0, Size::W, false, 0x89ab_cdef),
    (0, Size::W, true, 0xffff_ffff_89ab_cdef),
    (4, Size::W, true, 0x0123_4567),
    (0, Size::D, false, PATTERN),
];

/// A store of each size of `PATTERN` over ones: offset, size, result.
const STORES: &[(i16, Size, u64)] = &[
    (0, Size::B, 0xffff_ffff_ffff_ffef),
    (7, Size::B, 0xefff_ffff_ffff_ffff),
    (2, Size::H, 0xffff_ffff_cdef_ffff),
    (4, Size::W, 0x89ab_cdef_ffff_ffff),
    (0, Size::D, PATTERN),
];

fn constant(value: u64) -> Option<Operand> {
    (i64::from(value as i32) as u64 == value).then_some(Operand::Imm(value as i64))
}

/// Runs all cases of the tables.
pub(crate) fn check_instructions(engine: Engine) {
    let mut programs: Vec<(String, Vec<Op>, [u64; 5], u64)> = Vec::new();
    for Case { op, r1, r2, result } in arithmetic_cases() {
        programs.push((format!("{op:x?}"), vec![op, mov(0, reg(1)), Op::Exit], [r1, r2, 0, 0, 0], result));
    }
    for Case { op, r1, r2, result } in branch_cases() {
        let ops = vec![op, mov(0, imm(0)), Op::Exit, mov(0, imm(1)), Op::Exit];
        programs.push((format!("{op:x?}"), ops, [r1, r2, 0, 0, 0], result));
    }
    for &(op, size, fetch, [memory, r0, r2], after) in ATOMICS {
        let atomic = Op::Atomic { op, size, fetch, base: 10, offset: -16, src: 2 };
        for (what, result) in after.into_iter().enumerate() {
            let seen = [load(0, 10, -16), mov(0, reg(0)), mov(0, reg(2))][what];
            let ops = vec![store(10, -16, reg(1)), mov(0, reg(3)), atomic, seen, Op::Exit];
            programs.push((format!("{atomic:x?}, {what}"), ops, [memory, r2, r0, 0, 0], result));
        }
    }
    for &(offset, size, signed, result) in LOADS {
        for probe in [false, true] {
            let op = Op::Load { dst: 0, base: 10, offset: offset - 8, size, signed, probe };
            let ops = vec![store(10, -8, reg(1)), op, Op::Exit];
            programs.push((format!("{op:x?}"), ops, [PATTERN, 0, 0, 0, 0], result));
        }
    }
    for &(offset, size, result) in STORES {
        let op = Op::Store { base: 10, offset: offset - 8, size, src: reg(1) };
        let ops = vec![store(10, -8, imm(-1)), op, load(0, 10, -8), Op::Exit];
        programs.push((format!("{op:x?}"), ops, [PATTERN, 0, 0, 0, 0], result));
    }
    let functions: Vec<_> = programs.iter().map(|(name, ops, ..)| (name.as_str(), ops.as_slice())).collect();
    let mut instance = instance(image(&functions), engine);
    for (number, (name, _, arguments, result)) in programs.iter().enumerate() {
        let got = instance.call(&mut TestKernel::default(), FunctionId(number as u32), *arguments);
        assert_eq!(got, Ok(*result), "{name} of {arguments:x?}");
    }
}
