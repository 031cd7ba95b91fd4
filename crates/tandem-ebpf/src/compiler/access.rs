//! Loads, stores and atomic operations, with their checks.

use super::arithmetic;
use super::translate::Translator;
use crate::memory::Memory;
use crate::op::{AtomicOp, Reg, Size};
use crate::runtime::Run;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8, I16, I32, I64};
use cranelift_codegen::ir::{
    AliasRegion, BlockArg, InstBuilder, InstructionData, MemFlagsData, Opcode, Type, Value,
};
use std::collections::BTreeMap;
use std::mem::offset_of;
use std::ops::Range;

/// Offsets from an address that are known to be inside of memory. They stay valid, since memory never
/// shrinks.
#[derive(Clone, Default)]
pub(super) struct Inside(BTreeMap<Value, Range<i64>>);

impl Inside {
    /// Whether an access, or one before and one after it, has been checked on every path to here.
    fn has(&self, base: Value, offset: i32, bytes: u64) -> bool {
        let (start, end) = (i64::from(offset), i64::from(offset) + bytes as i64);
        self.0.get(&base).is_some_and(|known| known.start <= start && end <= known.end)
    }

    fn add(&mut self, base: Value, offset: i32, bytes: u64) {
        let (start, end) = (i64::from(offset), i64::from(offset) + bytes as i64);
        let known = self.0.entry(base).or_insert(start..end);
        *known = known.start.min(start)..known.end.max(end);
    }

    /// Keeps only the offsets that `other` has as well.
    pub fn keep_common(&mut self, other: &Self) {
        self.0.retain(|address, known| {
            let Some(other) = other.0.get(address) else { return false };
            *known = known.start.max(other.start)..known.end.min(other.end);
            !known.is_empty()
        });
    }
}

impl Translator<'_> {
    /// A field of the context.
    pub(super) fn field(&mut self, offset: usize) -> Value {
        self.builder.ins().load(I64, access(self.settings), self.context, offset as i32)
    }

    /// The place of an access in the process, as a value and an offset, after a check that it is allowed.
    pub(super) fn place(&mut self, base: Reg, offset: i16, size: Size) -> Result<(Value, i32), String> {
        let base = self.get(base)?;
        Ok(self.place_of(base, offset, size.bytes()))
    }

    /// As [`Translator::place`], for this many bytes, at most [`Run::FRAME_SIZE`].
    pub(super) fn place_of(&mut self, base: Value, offset: i16, bytes: u64) -> (Value, i32) {
        let (base, offset) = self.sum(base, offset);
        if base == self.frame && (-(Run::FRAME_SIZE as i64)..=-(bytes as i64)).contains(&offset.into()) {
            return (self.in_process(base), offset);
        }
        if let Some(address) = self.constant(base) {
            let position = (address as u64).wrapping_sub(Memory::BASE).wrapping_add_signed(offset.into());
            let data_size = self.image.data_end() - Memory::BASE;
            if position < data_size && bytes <= data_size - position {
                return (self.field(offset_of!(Run, memory)), position as i32);
            }
        }
        if !self.inside.has(base, offset, bytes) {
            let is_outside = self.is_outside(base, offset, bytes);
            let address = self.builder.ins().iadd_imm_s(base, i64::from(offset));
            self.fault_if(is_outside, address);
            self.inside.add(base, offset, bytes);
        }
        (self.in_process(base), offset)
    }

    /// The place of an address in the process.
    fn in_process(&mut self, address: Value) -> Value {
        let origin = self.field(offset_of!(Run, origin));
        self.builder.ins().iadd(origin, address)
    }

    /// An address as the base from which it was computed by additions of constants, and their sum.
    fn sum(&self, address: Value, offset: i16) -> (Value, i32) {
        let dfg = &self.builder.func.dfg;
        let (mut base, mut sum) = (dfg.resolve_aliases(address), i32::from(offset));
        while let Some(InstructionData::Binary { opcode: Opcode::Iadd, args: [before, constant] }) =
            self.instruction_of(base)
            && let Some(constant) = self.constant(constant)
            && let Some(together) =
                i32::try_from(constant).ok().and_then(|constant| sum.checked_add(constant))
        {
            (base, sum) = (dfg.resolve_aliases(before), together);
        }
        (base, sum)
    }

    /// A value that is known.
    pub(super) fn constant(&self, value: Value) -> Option<i64> {
        match self.instruction_of(value)? {
            InstructionData::UnaryImm { opcode: Opcode::Iconst, imm } => Some(imm.bits()),
            _ => None,
        }
    }

    fn instruction_of(&self, value: Value) -> Option<InstructionData> {
        let dfg = &self.builder.func.dfg;
        dfg.value_def(value).inst().map(|inst| dfg.insts[inst])
    }

    /// Whether a part of an access is outside of memory, which is never shorter than a frame.
    fn is_outside(&mut self, base: Value, offset: i32, bytes: u64) -> Value {
        let position = self.builder.ins().iadd_imm_s(base, i64::from(offset) - Memory::BASE as i64);
        let mut last = self.field(offset_of!(Run, last_word));
        if bytes != Size::D.bytes() {
            last = self.builder.ins().iadd_imm_s(last, Size::D.bytes() as i64 - bytes as i64);
        }
        self.builder.ins().icmp(IntCC::UnsignedGreaterThan, position, last)
    }

    /// A load whose value is 0 outside of memory.
    pub(super) fn probe(&mut self, base: Reg, offset: i16, size: Size) -> Result<Value, String> {
        let base = self.get(base)?;
        let (base, offset) = self.sum(base, offset);
        if self.inside.has(base, offset, size.bytes()) {
            let place = self.in_process(base);
            return Ok(self.builder.ins().load(type_of(size), access(self.memory), place, offset));
        }
        let is_outside = self.is_outside(base, offset, size.bytes());
        let (inside, merged) = (self.builder.create_block(), self.builder.create_block());
        let result = self.builder.append_block_param(merged, type_of(size));
        let zero = self.builder.ins().iconst(type_of(size), 0);
        self.builder.ins().brif(is_outside, merged, &[BlockArg::Value(zero)], inside, &[]);
        self.go_on_in(inside);
        let place = self.in_process(base);
        let value = self.builder.ins().load(type_of(size), access(self.memory), place, offset);
        self.builder.ins().jump(merged, &[BlockArg::Value(value)]);
        self.go_on_in(merged);
        Ok(result)
    }

    /// One thread runs an instance, so that these are a load and a store.
    pub(super) fn atomic(
        &mut self,
        op: AtomicOp,
        size: Size,
        fetch: bool,
        (base, offset): (Reg, i16),
        src: Reg,
    ) -> Result<(), String> {
        let kind = type_of(size);
        let operand = self.part(src, kind)?;
        let (place, offset) = self.place(base, offset, size)?;
        let flags = access(self.memory);
        if op == AtomicOp::StoreRelease {
            self.builder.ins().store(flags, operand, place, offset);
            return Ok(());
        }
        let old = self.builder.ins().load(kind, flags, place, offset);
        let mut new = arithmetic::atomic(&mut self.builder, op, old, operand);
        if op == AtomicOp::CompareExchange {
            let expected = self.part(0, kind)?;
            let is_equal = self.builder.ins().icmp(IntCC::Equal, old, expected);
            new = self.builder.ins().select(is_equal, operand, old);
            self.set(0, old)?;
        }
        if op != AtomicOp::LoadAcquire {
            self.builder.ins().store(flags, new, place, offset);
        }
        if op == AtomicOp::LoadAcquire || fetch && op != AtomicOp::CompareExchange {
            self.set(src, old)?;
        }
        Ok(())
    }
}

/// An access to a kind of memory. None traps, since all are checked.
pub(super) fn access(region: AliasRegion) -> MemFlagsData {
    MemFlagsData::new().with_notrap().with_alias_region(Some(region))
}

pub(super) fn type_of(size: Size) -> Type {
    match size {
        Size::B => I8,
        Size::H => I16,
        Size::W => I32,
        Size::D => I64,
    }
}
