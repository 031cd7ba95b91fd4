//! Translates a function to Cranelift's intermediate language.

use super::access::{Inside, access, type_of};
use super::arithmetic;
use crate::image::{Image, Import};
use crate::memory::Memory;
use crate::op::{Op, Operand, Reg, Size};
use crate::runtime::Run;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{
    self, AliasRegion, AliasRegionData, Block, BlockArg, FuncRef, InstBuilder, Type, Value,
};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext, Variable};
use cranelift_jit::JITModule;
use cranelift_module::{FuncId, Module};
use std::collections::HashMap;
use std::mem::offset_of;

const FRAME_POINTER: Reg = 10;

/// The functions that code calls.
#[derive(Clone, Copy)]
pub(super) struct Callees<'a> {
    /// The functions of the image, by number.
    pub functions: &'a [FuncId],
    /// `entry::call_import`.
    pub call_import: FuncId,
    /// `entry::call_kernel`.
    pub call_kernel: FuncId,
    /// `entry::fault`.
    pub fault: FuncId,
}

/// An instruction that is jumped to.
struct JumpTarget {
    block: Block,
    /// A jump back goes there, so that not all paths to it are known when its translation begins.
    is_loop: bool,
    /// Addresses that are inside of memory on all paths to it so far; `None` without a path so far.
    inside: Option<Inside>,
}

/// The translation of a function.
pub(super) struct Translator<'a> {
    pub(super) builder: FunctionBuilder<'a>,
    module: &'a mut JITModule,
    pub(super) image: &'a Image,
    callees: Callees<'a>,
    /// The function's number.
    number: usize,
    /// The instructions that are jumped to.
    targets: HashMap<u32, JumpTarget>,
    /// r0 to r9.
    registers: [Variable; 10],
    /// Number of times that MayGoto will still not jump.
    may_goto: Option<Variable>,
    pub(super) context: Value,
    pub(super) frame: Value,
    /// Ends the function with a fault; takes the instruction and the `address` of `fault_of`.
    fault: Block,
    /// Returns after a fault.
    ended: Block,
    /// Three kinds of memory that do not overlap: the program's, the fields of the context that Rust code
    /// sets, and fuel, which machine code sets.
    pub(super) memory: AliasRegion,
    pub(super) settings: AliasRegion,
    fuel: AliasRegion,
    /// Addresses that are inside of memory at the present instruction.
    pub(super) inside: Inside,
    /// The position of the instruction that is being translated.
    at: usize,
}

impl<'a> Translator<'a> {
    pub fn new(
        module: &'a mut JITModule,
        function: &'a mut ir::Function,
        builder_context: &'a mut FunctionBuilderContext,
        image: &'a Image,
        number: usize,
        callees: Callees<'a>,
    ) -> Self {
        let mut region = |user_id, description: &'static str| {
            function.dfg.alias_regions.insert(AliasRegionData { user_id, description: description.into() })
        };
        let (memory, settings, fuel) = (region(0, "memory"), region(1, "settings"), region(2, "fuel"));
        let mut builder = FunctionBuilder::new(function, builder_context);
        let entry = builder.create_block();
        builder.append_block_params_for_function_params(entry);
        builder.switch_to_block(entry);
        let &[context, r1, r2, r3, r4, r5, frame] = builder.block_params(entry) else {
            unreachable!("`compile` gives functions seven parameters")
        };
        let registers = std::array::from_fn(|_| builder.declare_var(I64));
        let zero = builder.ins().iconst(I64, 0);
        let initial = [zero, r1, r2, r3, r4, r5, zero, zero, zero, zero];
        for (register, value) in registers.into_iter().zip(initial) {
            builder.def_var(register, value);
        }
        let ops = &image.functions[number].ops;
        let may_goto = ops.iter().any(|op| matches!(op, Op::MayGoto { .. })).then(|| {
            let variable = builder.declare_var(I64);
            let rounds = builder.ins().iconst(I64, Run::MAY_GOTO_MAX as i64);
            builder.def_var(variable, rounds);
            variable
        });
        let fault = builder.create_block();
        builder.append_block_param(fault, I64);
        builder.append_block_param(fault, I64);
        let ended = builder.create_block();
        builder.set_cold_block(fault);
        builder.set_cold_block(ended);
        let mut targets = HashMap::new();
        for (at, op) in ops.iter().enumerate() {
            if let Op::Jump { target } | Op::Branch { target, .. } | Op::MayGoto { target } = *op {
                let new = || JumpTarget { block: builder.create_block(), is_loop: false, inside: None };
                targets.entry(target).or_insert_with(new).is_loop |= target as usize <= at;
            }
        }
        Self {
            builder,
            module,
            image,
            callees,
            number,
            targets,
            registers,
            may_goto,
            context,
            frame,
            fault,
            ended,
            memory,
            settings,
            fuel,
            inside: Inside::default(),
            at: 0,
        }
    }

    /// Translates all instructions.
    ///
    /// # Errors
    /// If an instruction has operands that no program has.
    pub fn translate(mut self) -> Result<(), String> {
        let ops = &self.image.functions[self.number].ops;
        if let Some(target) = self.targets.keys().find(|&&target| target as usize >= ops.len()) {
            return Err(format!("it jumps to instruction {target}, which it does not have"));
        }
        let mut is_reachable = true;
        for (at, &op) in ops.iter().enumerate() {
            self.at = at;
            if self.targets.contains_key(&(at as u32)) {
                if is_reachable {
                    let block = self.way_to(at as u32);
                    self.builder.ins().jump(block, &[]);
                }
                self.begin_target(at as u32);
                is_reachable = true;
            }
            if is_reachable {
                is_reachable = self.op(op).map_err(|reason| format!("instruction {at}: {reason}"))?;
            }
        }
        if is_reachable {
            return Err("its last instruction goes on to a next one".to_owned());
        }
        self.ends();
        self.builder.seal_all_blocks();
        let config = self.module.target_config();
        self.builder.finalize(config);
        Ok(())
    }

    /// The block of an instruction that is jumped to, for a jump that is made here.
    fn way_to(&mut self, target: u32) -> Block {
        let target = self.targets.get_mut(&target).expect("all targets have been collected");
        match &mut target.inside {
            Some(inside) => inside.keep_common(&self.inside),
            none => *none = Some(self.inside.clone()),
        }
        target.block
    }

    /// Continues with an instruction that is a jump target.
    fn begin_target(&mut self, at: u32) {
        let target = self.targets.get_mut(&at).expect("it is a target");
        let inside = target.inside.take().unwrap_or_default();
        let (block, is_loop) = (target.block, target.is_loop);
        self.builder.switch_to_block(block);
        if is_loop {
            self.inside = Inside::default();
        } else {
            self.builder.seal_block(block);
            self.inside = inside;
        }
    }

    /// The blocks where the function ends early.
    fn ends(&mut self) {
        self.builder.switch_to_block(self.fault);
        let &[instruction, address] = self.builder.block_params(self.fault) else {
            unreachable!("the block has been given two parameters")
        };
        let number = self.builder.ins().iconst(I64, self.number as i64);
        let fault = self.callee(self.callees.fault);
        self.builder.ins().call(fault, &[self.context, number, instruction, address]);
        self.builder.ins().jump(self.ended, &[]);
        self.builder.switch_to_block(self.ended);
        let zero = self.builder.ins().iconst(I64, 0);
        self.builder.ins().return_(&[zero]);
    }

    /// Translates an instruction; whether the next one can follow it.
    fn op(&mut self, op: Op) -> Result<bool, String> {
        match op {
            Op::Alu { op, wide, dst, src } => {
                let kind = arithmetic::operand_type(wide);
                let (a, b) = (self.part(dst, kind)?, self.operand(src, kind)?);
                let result = arithmetic::alu(&mut self.builder, op, a, b);
                self.set(dst, result)?;
            }
            Op::Negate { wide, dst } => {
                let value = self.part(dst, arithmetic::operand_type(wide))?;
                let result = self.builder.ins().ineg(value);
                self.set(dst, result)?;
            }
            Op::Move { wide, dst, src, sign_extend_from } => {
                let value = self.operand(src, I64)?;
                let result = arithmetic::sign_extend(&mut self.builder, value, wide, sign_extend_from);
                self.set(dst, result)?;
            }
            Op::CastArena { dst, src } => {
                let low = self.part(src, I32)?;
                let low = self.builder.ins().uextend(I64, low);
                let address = self.builder.ins().bor_imm_u(low, Memory::BASE as i64);
                let is_address = self.builder.ins().icmp_imm_u(IntCC::NotEqual, low, 0);
                let result = self.builder.ins().select(is_address, address, low);
                self.set(dst, result)?;
            }
            Op::Swap { dst, swap, bits } => {
                let value = self.get(dst)?;
                let result = arithmetic::swap(&mut self.builder, swap, bits, value);
                self.set(dst, result)?;
            }
            Op::LoadImmediate { dst, value } => {
                let value = self.builder.ins().iconst(I64, value as i64);
                self.set(dst, value)?;
            }
            Op::Load { dst, base, offset, size, signed, probe } => {
                let value = if probe {
                    self.probe(base, offset, size)?
                } else {
                    let (place, offset) = self.place(base, offset, size)?;
                    self.builder.ins().load(type_of(size), access(self.memory), place, offset)
                };
                let value = if signed && size != Size::D {
                    self.builder.ins().sextend(I64, value)
                } else {
                    arithmetic::zero_extend(&mut self.builder, value)
                };
                self.set(dst, value)?;
            }
            Op::Store { base, offset, size, src } => {
                let value = self.operand(src, I64)?;
                let value = arithmetic::truncate(&mut self.builder, value, type_of(size));
                let (place, offset) = self.place(base, offset, size)?;
                self.builder.ins().store(access(self.memory), value, place, offset);
            }
            Op::Atomic { op, size, fetch, base, offset, src } => {
                self.atomic(op, size, fetch, (base, offset), src)?
            }
            Op::Jump { target } => {
                self.jump(target);
                return Ok(false);
            }
            Op::Branch { condition, wide, dst, src, target } => {
                let kind = arithmetic::operand_type(wide);
                let (a, b) = (self.part(dst, kind)?, self.operand(src, kind)?);
                let condition = arithmetic::compare(&mut self.builder, condition, a, b);
                self.branch(condition, target);
            }
            Op::MayGoto { target } => {
                let variable = self.may_goto.expect("declared for functions with such an instruction");
                let rounds = self.builder.use_var(variable);
                let is_over = self.builder.ins().icmp_imm_u(IntCC::Equal, rounds, 0);
                self.branch(is_over, target);
                let rounds = self.builder.ins().iadd_imm_s(rounds, -1);
                self.builder.def_var(variable, rounds);
            }
            Op::Call { function } => self.call(function)?,
            Op::CallKernel { import } => {
                let function = self.image.imports.get(import as usize);
                let function = function.ok_or_else(|| format!("there is no import {import}"))?;
                if !self.inline(function)? {
                    let inside = self.inside.clone();
                    let found = self.storage_lookup(function)?;
                    let (callee, number): (_, i64) = match *function {
                        Import::Kernel(function, _) => (self.callees.call_kernel, function.0.into()),
                        _ => (self.callees.call_import, import.into()),
                    };
                    let number = self.builder.ins().iconst(I64, number);
                    self.call_code(callee, &[self.frame, number]);
                    let ended = self.has_ended();
                    // The fault has no location yet.
                    self.fault_if(ended, ended);
                    if let Some(found) = found {
                        self.builder.ins().jump(found, &[]);
                        // What is checked on the way of the call is not on the other one.
                        self.inside = inside;
                        self.go_on_in(found);
                    }
                }
            }
            Op::Exit => {
                let result = self.get(0)?;
                self.builder.ins().return_(&[result]);
                return Ok(false);
            }
            Op::Poison { reason } => {
                if reason as usize >= self.image.poisons.len() {
                    return Err(format!("there is no reason {reason}"));
                }
                self.raise(self.frame);
                return Ok(false);
            }
        }
        Ok(true)
    }

    pub(super) fn get(&mut self, register: Reg) -> Result<Value, String> {
        match self.registers.get(usize::from(register)) {
            Some(&variable) => Ok(self.builder.use_var(variable)),
            None if register == FRAME_POINTER => Ok(self.frame),
            None => Err(format!("there is no r{register}")),
        }
    }

    pub(super) fn part(&mut self, register: Reg, kind: Type) -> Result<Value, String> {
        let value = self.get(register)?;
        Ok(arithmetic::truncate(&mut self.builder, value, kind))
    }

    fn operand(&mut self, operand: Operand, kind: Type) -> Result<Value, String> {
        match operand {
            Operand::Reg(register) => self.part(register, kind),
            Operand::Imm(value) => Ok(arithmetic::constant(&mut self.builder, kind, value)),
        }
    }

    /// Sets a register to a number of any type, zero-extended.
    pub(super) fn set(&mut self, register: Reg, value: Value) -> Result<(), String> {
        let &variable = self
            .registers
            .get(usize::from(register))
            .ok_or_else(|| format!("it writes to r{register}, which only r0 to r9 allow"))?;
        let value = arithmetic::zero_extend(&mut self.builder, value);
        self.builder.def_var(variable, value);
        Ok(())
    }

    fn jump(&mut self, target: u32) {
        if target as usize <= self.at {
            self.burn(self.frame, Run::cost_of_jump(self.at, target as usize));
        }
        let block = self.way_to(target);
        self.builder.ins().jump(block, &[]);
    }

    fn branch(&mut self, condition: Value, target: u32) {
        let next = self.builder.create_block();
        if target as usize <= self.at {
            let taken = self.builder.create_block();
            self.builder.ins().brif(condition, taken, &[], next, &[]);
            self.go_on_in(taken);
            self.jump(target);
        } else {
            let block = self.way_to(target);
            self.builder.ins().brif(condition, block, &[], next, &[]);
        }
        self.go_on_in(next);
    }

    /// Counts a jump back or a call: [`Run::burn`].
    fn burn(&mut self, address: Value, instructions: u64) {
        // A function has fewer than 2^31 instructions: an object of that size is not read.
        let instructions = instructions as i64;
        let flags = access(self.fuel);
        let place = offset_of!(Run, fuel) as i32;
        let fuel = self.builder.ins().load(I64, flags, self.context, place);
        let is_over = self.builder.ins().icmp_imm_u(IntCC::UnsignedLessThan, fuel, instructions);
        self.fault_if(is_over, address);
        let fuel = self.builder.ins().iadd_imm_s(fuel, -instructions);
        self.builder.ins().store(flags, fuel, self.context, place);
    }

    /// Calls a function of the image, after the checks of [`Run::call_function`].
    fn call(&mut self, function: u32) -> Result<(), String> {
        let &callee = self
            .callees
            .functions
            .get(function as usize)
            .ok_or_else(|| format!("there is no function {function}"))?;
        let frame = self.builder.ins().iadd_imm_s(self.frame, Run::FRAME_SIZE as i64);
        let stack_end = self.field(offset_of!(Run, stack_end));
        let is_outside = self.builder.ins().icmp(IntCC::UnsignedGreaterThan, frame, stack_end);
        self.fault_if(is_outside, frame);
        self.burn(frame, Run::cost_of_call(self.image, function));
        self.call_code(callee, &[frame]);
        let ended = self.has_ended();
        let next = self.builder.create_block();
        self.builder.ins().brif(ended, self.ended, &[], next, &[]);
        self.go_on_in(next);
        Ok(())
    }

    /// Calls code with the context, r1 to r5 and more; its result is r0.
    fn call_code(&mut self, callee: FuncId, more: &[Value]) {
        let callee = self.callee(callee);
        let mut arguments = vec![self.context];
        for register in 1..=5 {
            arguments.push(self.builder.use_var(self.registers[register]));
        }
        arguments.extend(more);
        let call = self.builder.ins().call(callee, &arguments);
        let result = self.builder.inst_results(call)[0];
        self.builder.def_var(self.registers[0], result);
    }

    fn callee(&mut self, callee: FuncId) -> FuncRef {
        self.module.declare_func_in_func(callee, self.builder.func)
    }

    /// Not 0: a callee has ended with a fault.
    fn has_ended(&mut self) -> Value {
        self.field(offset_of!(Run, ended))
    }

    /// Ends the function with this instruction's fault if a condition is not 0.
    pub(super) fn fault_if(&mut self, condition: Value, address: Value) {
        let (raise, next) = (self.builder.create_block(), self.builder.create_block());
        self.builder.ins().brif(condition, raise, &[], next, &[]);
        self.go_on_in(raise);
        self.builder.set_cold_block(raise);
        self.raise(address);
        self.go_on_in(next);
    }

    /// Continues in a block to which all jumps have been made.
    pub(super) fn go_on_in(&mut self, block: Block) {
        self.builder.switch_to_block(block);
        self.builder.seal_block(block);
    }

    /// Ends the function with this instruction's fault.
    fn raise(&mut self, address: Value) {
        let instruction = self.builder.ins().iconst(I64, self.at as i64);
        let arguments = [BlockArg::Value(instruction), BlockArg::Value(address)];
        self.builder.ins().jump(self.fault, &arguments);
    }
}
