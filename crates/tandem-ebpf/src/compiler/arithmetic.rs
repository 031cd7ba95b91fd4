//! Arithmetic, byte order and comparisons, as RFC 9669 defines them: nothing here traps.

use crate::op::{AluOp, AtomicOp, Condition, Swap};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8, I16, I32, I64};
use cranelift_codegen::ir::{InstBuilder, Type, Value};
use cranelift_frontend::FunctionBuilder;

/// The type of an operation of 64 or of 32 bits.
pub(super) fn operand_type(wide: bool) -> Type {
    if wide { I64 } else { I32 }
}

/// The lower part of a register as a type.
pub(super) fn truncate(builder: &mut FunctionBuilder, value: Value, to: Type) -> Value {
    if to == I64 { value } else { builder.ins().ireduce(to, value) }
}

/// A number of any type as a register, with zeros above it.
pub(super) fn zero_extend(builder: &mut FunctionBuilder, value: Value) -> Value {
    if builder.func.dfg.value_type(value) == I64 { value } else { builder.ins().uextend(I64, value) }
}

/// A constant of a type.
pub(super) fn constant(builder: &mut FunctionBuilder, kind: Type, value: i64) -> Value {
    let value = if kind == I64 { value } else { i64::from(value as u32) };
    builder.ins().iconst(kind, value)
}

/// An operation on two operands of the same type.
pub(super) fn alu(builder: &mut FunctionBuilder, op: AluOp, a: Value, b: Value) -> Value {
    match op {
        AluOp::Add => builder.ins().iadd(a, b),
        AluOp::Sub => builder.ins().isub(a, b),
        AluOp::Mul => builder.ins().imul(a, b),
        AluOp::Or => builder.ins().bor(a, b),
        AluOp::And => builder.ins().band(a, b),
        AluOp::Xor => builder.ins().bxor(a, b),
        // Cranelift's shifts use the amount modulo the width, as eBPF's do.
        AluOp::ShiftLeft => builder.ins().ishl(a, b),
        AluOp::ShiftRight => builder.ins().ushr(a, b),
        AluOp::ShiftRightSigned => builder.ins().sshr(a, b),
        AluOp::Div | AluOp::SignedDiv | AluOp::Mod | AluOp::SignedMod => divide(builder, op, a, b),
    }
}

/// Divides by 1 where the processor would trap, and then puts the result that is defined for it in place.
fn divide(builder: &mut FunctionBuilder, op: AluOp, a: Value, b: Value) -> Value {
    let kind = builder.func.dfg.value_type(a);
    let zero = constant(builder, kind, 0);
    let one = constant(builder, kind, 1);
    let by_zero = builder.ins().icmp(IntCC::Equal, b, zero);
    let mut divisor = builder.ins().select(by_zero, one, b);
    match op {
        AluOp::Div => {
            let quotient = builder.ins().udiv(a, divisor);
            builder.ins().select(by_zero, zero, quotient)
        }
        AluOp::Mod => {
            let rest = builder.ins().urem(a, divisor);
            builder.ins().select(by_zero, a, rest)
        }
        _ => {
            let minus_one = constant(builder, kind, -1);
            let by_minus_one = builder.ins().icmp(IntCC::Equal, b, minus_one);
            divisor = builder.ins().select(by_minus_one, one, divisor);
            if op == AluOp::SignedDiv {
                let quotient = builder.ins().sdiv(a, divisor);
                let negated = builder.ins().ineg(a);
                let quotient = builder.ins().select(by_minus_one, negated, quotient);
                builder.ins().select(by_zero, zero, quotient)
            } else {
                let rest = builder.ins().srem(a, divisor);
                builder.ins().select(by_zero, a, rest)
            }
        }
    }
}

/// The new value in memory, from the old one and a register of the same type.
pub(super) fn atomic(builder: &mut FunctionBuilder, op: AtomicOp, old: Value, operand: Value) -> Value {
    match op {
        AtomicOp::Add => builder.ins().iadd(old, operand),
        AtomicOp::Or => builder.ins().bor(old, operand),
        AtomicOp::And => builder.ins().band(old, operand),
        AtomicOp::Xor => builder.ins().bxor(old, operand),
        AtomicOp::Exchange | AtomicOp::CompareExchange | AtomicOp::LoadAcquire | AtomicOp::StoreRelease => {
            operand
        }
    }
}

/// A copy of the lowest 8, 16 or 32 bits (0: of all) with their sign, as a register.
pub(super) fn sign_extend(builder: &mut FunctionBuilder, value: Value, wide: bool, from: u8) -> Value {
    let to = operand_type(wide);
    let value = match from {
        8 | 16 => {
            let narrow = builder.ins().ireduce(if from == 8 { I8 } else { I16 }, value);
            builder.ins().sextend(to, narrow)
        }
        32 if wide => {
            let narrow = builder.ins().ireduce(I32, value);
            builder.ins().sextend(I64, narrow)
        }
        _ => truncate(builder, value, to),
    };
    zero_extend(builder, value)
}

/// Cuts a register to its lowest bits, in their order or reversed byte by byte.
pub(super) fn swap(builder: &mut FunctionBuilder, swap: Swap, bits: u8, value: Value) -> Value {
    let kind = match bits {
        16 => I16,
        32 => I32,
        _ => I64,
    };
    let mut value = truncate(builder, value, kind);
    if swap == Swap::Reverse {
        value = builder.ins().bswap(value);
    }
    zero_extend(builder, value)
}

/// Whether a condition holds for two operands of the same type.
pub(super) fn compare(builder: &mut FunctionBuilder, condition: Condition, a: Value, b: Value) -> Value {
    let code = match condition {
        Condition::Test => return builder.ins().band(a, b),
        Condition::Equal => IntCC::Equal,
        Condition::NotEqual => IntCC::NotEqual,
        Condition::Greater => IntCC::UnsignedGreaterThan,
        Condition::GreaterOrEqual => IntCC::UnsignedGreaterThanOrEqual,
        Condition::Less => IntCC::UnsignedLessThan,
        Condition::LessOrEqual => IntCC::UnsignedLessThanOrEqual,
        Condition::SignedGreater => IntCC::SignedGreaterThan,
        Condition::SignedGreaterOrEqual => IntCC::SignedGreaterThanOrEqual,
        Condition::SignedLess => IntCC::SignedLessThan,
        Condition::SignedLessOrEqual => IntCC::SignedLessThanOrEqual,
    };
    builder.ins().icmp(code, a, b)
}
