//! Random programs have the same results in both engines.

use super::{SCRATCH_SIZE, both_with};
use crate::memory::Memory;
use crate::op::{AluOp, AtomicOp, Condition, Op, Operand, Reg, Size, Swap};
use crate::testing::{address, imm, mov};
use proptest::prelude::*;

fn register() -> impl Strategy<Value = Reg> {
    0..10u8
}

fn operand() -> impl Strategy<Value = Operand> {
    prop_oneof![
        (0..11u8).prop_map(Operand::Reg),
        prop_oneof![-2..3i64, Just(i64::from(i32::MIN)), any::<i32>().prop_map(i64::from)]
            .prop_map(Operand::Imm)
    ]
}

fn size() -> impl Strategy<Value = Size> {
    prop::sample::select(vec![Size::B, Size::H, Size::W, Size::D])
}

/// A base and an offset: of the stack, mostly inside, of scratch memory through r9, or of any register.
fn place() -> impl Strategy<Value = (Reg, i16)> {
    prop_oneof![
        4 => (Just(10), -64..-8i16),
        4 => (Just(9), 0..(SCRATCH_SIZE as i16 - 8)),
        1 => (Just(10), -600..600i16),
        1 => (0..11u8, any::<i16>()),
    ]
}

fn alu_op() -> impl Strategy<Value = AluOp> {
    use AluOp::*;
    let ops = [
        Add,
        Sub,
        Mul,
        Div,
        SignedDiv,
        Mod,
        SignedMod,
        Or,
        And,
        Xor,
        ShiftLeft,
        ShiftRight,
        ShiftRightSigned,
    ];
    prop::sample::select(ops.to_vec())
}

fn condition() -> impl Strategy<Value = Condition> {
    use Condition::*;
    let unsigned = [Equal, NotEqual, Test, Greater, GreaterOrEqual, Less, LessOrEqual];
    let signed = [SignedGreater, SignedGreaterOrEqual, SignedLess, SignedLessOrEqual];
    prop::sample::select([&unsigned[..], &signed[..]].concat())
}

fn atomic_op() -> impl Strategy<Value = AtomicOp> {
    use AtomicOp::*;
    prop::sample::select(vec![Add, Or, And, Xor, Exchange, CompareExchange, LoadAcquire, StoreRelease])
}

/// Any instruction of a function of `length` instructions that can call `callees`; jumps that do not
/// end run out of fuel.
fn op(length: u32, callees: u32) -> impl Strategy<Value = Op> {
    let call = move |function: u32| match function {
        _ if callees == 0 => Op::CallKernel { import: 0 },
        _ => Op::Call { function: function % callees + 1 },
    };
    let target = 1..length;
    let wide = any::<bool>;
    prop_oneof![
        8 => (alu_op(), wide(), 0..9u8, operand()).prop_map(|(op, wide, dst, src)| Op::Alu { op, wide, dst, src }),
        1 => (wide(), register()).prop_map(|(wide, dst)| Op::Negate { wide, dst }),
        3 => (wide(), 0..9u8, operand(), prop::sample::select(vec![0, 8, 16, 32]))
            .prop_map(|(wide, dst, src, sign_extend_from)| Op::Move { wide, dst, src, sign_extend_from }),
        1 => (0..9u8, register()).prop_map(|(dst, src)| Op::CastArena { dst, src }),
        1 => (0..9u8, wide(), prop::sample::select(vec![16, 32, 64])).prop_map(|(dst, reverse, bits)| {
            Op::Swap { dst, swap: if reverse { Swap::Reverse } else { Swap::Truncate }, bits }
        }),
        1 => (0..9u8, any::<u64>()).prop_map(|(dst, value)| address(dst, value)),
        1 => (0..9u8, -16..SCRATCH_SIZE as i64 + 16)
            .prop_map(|(dst, offset)| address(dst, Memory::BASE.wrapping_add_signed(offset))),
        4 => (0..9u8, place(), size(), wide(), prop::bool::weighted(0.3)).prop_map(
            |(dst, (base, offset), size, signed, probe)| Op::Load { dst, base, offset, size, signed, probe }
        ),
        4 => (place(), size(), operand())
            .prop_map(|((base, offset), size, src)| Op::Store { base, offset, size, src }),
        3 => (atomic_op(), wide(), wide(), place(), 0..9u8).prop_map(|(op, wide, fetch, (base, offset), src)| {
            Op::Atomic { op, size: if wide { Size::D } else { Size::W }, fetch, base, offset, src }
        }),
        1 => target.clone().prop_map(|target| Op::Jump { target }),
        4 => (condition(), wide(), register(), operand(), target.clone()).prop_map(
            |(condition, wide, dst, src, target)| Op::Branch { condition, wide, dst, src, target }
        ),
        1 => target.prop_map(|target| Op::MayGoto { target }),
        2 => any::<u32>().prop_map(call),
        1 => prop::bool::weighted(0.1).prop_map(|fails| Op::CallKernel { import: u32::from(fails) }),
        1 => prop::bool::weighted(0.1)
            .prop_map(|fails| if fails { Op::Poison { reason: 0 } } else { mov(0, imm(1)) }),
    ]
}

/// A function that begins by pointing r9 to scratch memory, and ends with an exit.
fn function(callees: u32) -> impl Strategy<Value = Vec<Op>> {
    (3..40u32).prop_flat_map(move |length| {
        prop::collection::vec(op(length, callees), length as usize - 2)
            .prop_map(|middle| [vec![address(9, Memory::BASE)], middle, vec![Op::Exit]].concat())
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn both_engines_agree(
        main in function(2),
        second in function(0),
        third in function(0),
        arguments in any::<[u64; 5]>(),
    ) {
        let _ = both_with(500, &[("main", &main), ("second", &second), ("third", &third)], arguments);
    }
}
