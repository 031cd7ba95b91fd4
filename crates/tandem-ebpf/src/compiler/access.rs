//! Loads, stores and atomic operations, with their checks.

use super::arithmetic;
use super::entry::Context;
use super::translate::Translator;
use crate::memory::Memory;
use crate::op::{AtomicOp, Reg, Size};
use crate::runtime::Run;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8, I16, I32, I64};
use cranelift_codegen::ir::{
    AliasRegion, BlockArg, InstBuilder, InstructionData, MemFlagsData, Opcode, Type, Value,
};
use std::mem::offset_of;

impl Translator<'_> {
    /// A field of the context.
    pub(super) fn field(&mut self, offset: usize) -> Value {
        self.builder.ins().load(I64, access(self.settings), self.context, offset as i32)
    }

    /// Where in the process an access goes to, as a value and an offset, after a check that it is allowed.
    pub(super) fn place(&mut self, base: Reg, offset: i16, size: Size) -> Result<(Value, i32), String> {
        let base = self.get(base)?;
        Ok(self.place_of(base, offset, size.bytes()))
    }

    /// As [`Translator::place`], for so many bytes, at most [`Run::FRAME_SIZE`].
    pub(super) fn place_of(&mut self, base: Value, offset: i16, bytes: u64) -> (Value, i32) {
        let from_frame = self.from_frame(base).and_then(|base| base.checked_add(offset.into()));
        if let Some(from_frame) = from_frame
            && (-(Run::FRAME_SIZE as i64)..=-(bytes as i64)).contains(&from_frame)
        {
            let frame = self.builder.ins().iadd_imm_s(self.frame, -(Memory::BASE as i64));
            let memory = self.field(offset_of!(Context, base));
            return (self.builder.ins().iadd(memory, frame), from_frame as i32);
        }
        let (position, is_outside) = self.position(base, offset, bytes);
        let address = self.builder.ins().iadd_imm_s(position, Memory::BASE as i64);
        self.fault_if(is_outside, address);
        let memory = self.field(offset_of!(Context, base));
        (self.builder.ins().iadd(memory, position), 0)
    }

    /// How far an address is from the frame pointer, if it is known to be that, or the sum of that and a constant.
    fn from_frame(&self, address: Value) -> Option<i64> {
        let dfg = &self.builder.func.dfg;
        let instruction_of = |value| dfg.value_def(value).inst().map(|inst| dfg.insts[inst]);
        let address = dfg.resolve_aliases(address);
        if address == self.frame {
            return Some(0);
        }
        let InstructionData::Binary { opcode: Opcode::Iadd, args: [base, constant] } =
            instruction_of(address)?
        else {
            return None;
        };
        let InstructionData::UnaryImm { opcode: Opcode::Iconst, imm } = instruction_of(constant)? else {
            return None;
        };
        (base == self.frame).then_some(imm.bits())
    }

    /// The position in memory that an access goes to, and whether a part of it is outside. Memory is never shorter than a
    /// frame.
    fn position(&mut self, base: Value, offset: i16, bytes: u64) -> (Value, Value) {
        let position = self.builder.ins().iadd_imm_s(base, i64::from(offset) - Memory::BASE as i64);
        let length = self.field(offset_of!(Context, length));
        let last = self.builder.ins().iadd_imm_s(length, -(bytes as i64));
        let is_outside = self.builder.ins().icmp(IntCC::UnsignedGreaterThan, position, last);
        (position, is_outside)
    }

    /// A load that gives 0 outside of memory.
    pub(super) fn probe(&mut self, base: Reg, offset: i16, size: Size) -> Result<Value, String> {
        let base = self.get(base)?;
        let (position, is_outside) = self.position(base, offset, size.bytes());
        let (inside, merged) = (self.builder.create_block(), self.builder.create_block());
        let result = self.builder.append_block_param(merged, type_of(size));
        let zero = self.builder.ins().iconst(type_of(size), 0);
        self.builder.ins().brif(is_outside, merged, &[BlockArg::Value(zero)], inside, &[]);
        self.go_on_in(inside);
        let memory = self.field(offset_of!(Context, base));
        let place = self.builder.ins().iadd(memory, position);
        let value = self.builder.ins().load(type_of(size), access(self.memory), place, 0);
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
