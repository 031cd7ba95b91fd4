//! Functions of the kernel that code executes inline instead of calling them: those that are [`KnownResult`],
//! lookups in arrays, and loops over numbers. Where one of them faults, `fault_of` provides the text.

use super::access::{access, type_of};
use super::arithmetic;
use super::translate::Translator;
use crate::helpers::STORAGE_CREATE;
use crate::helpers::loops::ROUNDS_MAX;
use crate::image::{Image, Import, MapKind};
use crate::known::{ArrayField, KnownResult, ObjectField};
use crate::maps::{Recent, errno, stride_of};
use crate::memory::Memory;
use crate::runtime::Run;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{Block, BlockArg, InstBuilder, Value};
use std::mem::offset_of;

impl Translator<'_> {
    /// Executes an import inline and sets r0, if that is possible; returns whether it is.
    pub(super) fn inline(&mut self, import: &Import) -> Result<bool, String> {
        let result = match *import {
            Import::Runtime("bpf_map_lookup_elem") => match self.array_lookup()? {
                Some(value) => value,
                None => return Ok(false),
            },
            Import::Known(known) => self.known(known)?,
            Import::Runtime("bpf_iter_num_new") => self.numbers_new()?,
            Import::Runtime("bpf_iter_num_next") => self.numbers_next()?,
            Import::Runtime("bpf_iter_num_destroy") => self.numbers_destroy()?,
            _ => return Ok(false),
        };
        self.set(0, result)?;
        Ok(true)
    }

    /// Whether an import gets the value of an object from storage: the block to continue in with a value that is
    /// found without the call, which is translated next.
    pub(super) fn storage_lookup(&mut self, import: &Import) -> Result<Option<Block>, String> {
        let Import::Runtime("bpf_task_storage_get" | "bpf_cgrp_storage_get") = *import else {
            return Ok(None);
        };
        let (map, object, flags) = (self.get(1)?, self.get(2)?, self.get(4)?);
        let number = self.constant(map).map(|map| (map as u64).wrapping_sub(Image::MAPS) as usize);
        let Some(number) =
            number.filter(|&number| self.image.maps.get(number).is_some_and(|map| map.kind.is_storage()))
        else {
            return Ok(None);
        };
        if !self.constant(flags).is_some_and(|flags| (0..=STORAGE_CREATE as i64).contains(&flags)) {
            return Ok(None);
        }
        let product = self.builder.ins().imul_imm_u(object, Recent::FACTOR as i64);
        let place = self.builder.ins().ushr_imm_u(product, i64::from(u64::BITS - Recent::BITS));
        let distance = self.builder.ins().imul_imm_u(place, Recent::PLACE_SIZE as i64);
        // The places are behind global data, and this is one of them, whatever the object.
        let first = self.image.recent_values(number).places - Memory::BASE;
        let first = i32::try_from(first).map_err(|_| "global data is too large".to_owned())?;
        let memory = self.field(offset_of!(Run, memory));
        let place = self.builder.ins().iadd(memory, distance);
        let flags = access(self.memory);
        let known = self.builder.ins().load(I64, flags, place, first);
        let value = self.builder.ins().load(I64, flags, place, first + 8);
        let is_known = self.builder.ins().icmp(IntCC::Equal, known, object);
        let (call, found) = (self.builder.create_block(), self.builder.create_block());
        self.set(0, value)?;
        self.builder.ins().brif(is_known, found, &[], call, &[]);
        self.go_on_in(call);
        Ok(Some(found))
    }

    fn known(&mut self, known: KnownResult) -> Result<Value, String> {
        Ok(match known {
            KnownResult::Nothing => self.builder.ins().iconst(I64, 0),
            KnownResult::FirstArgument => self.get(1)?,
            KnownResult::Cpu => self.field(offset_of!(Run, cpu)),
            KnownResult::Clock => self.field(offset_of!(Run, clock_ns)),
            KnownResult::Field(field) => {
                let (place, offset) = self.object_field(field)?;
                let value = self.builder.ins().load(type_of(field.size), access(self.memory), place, offset);
                arithmetic::zero_extend(&mut self.builder, value)
            }
            KnownResult::SetField(field) => {
                let value = self.part(2, type_of(field.size))?;
                let (place, offset) = self.object_field(field)?;
                self.builder.ins().store(access(self.memory), value, place, offset);
                self.builder.ins().iconst(I64, 1)
            }
            KnownResult::CpuInSet => self.cpu_in_set()?,
            KnownResult::Element(array) => self.element(array)?,
        })
    }

    /// The address of a value of an array, or 0; `None` if the map is not known to be an array.
    fn array_lookup(&mut self) -> Result<Option<Value>, String> {
        let (map, key) = (self.get(1)?, self.get(2)?);
        let Some(number) = self.constant(map).map(|map| (map as u64).wrapping_sub(Image::MAPS)) else {
            return Ok(None);
        };
        let Some(map) = self.image.maps.get(number as usize) else { return Ok(None) };
        // User space says how many elements one without a number has.
        if !matches!(map.kind, MapKind::Array | MapKind::PerCpuArray) || map.max_entries == 0 {
            return Ok(None);
        }
        let (place, offset) = self.place_of(key, 0, 4);
        let index = self.builder.ins().load(I32, access(self.memory), place, offset);
        let index = self.builder.ins().uextend(I64, index);
        let mut position = index;
        if map.kind == MapKind::PerCpuArray {
            let cpu_count = self.field(offset_of!(Run, cpu_count));
            let cpu = self.field(offset_of!(Run, cpu));
            let first = self.builder.ins().imul(index, cpu_count);
            position = self.builder.ins().iadd(first, cpu);
        }
        let values = self.builder.ins().iconst(I64, (self.image.places_of_arrays() + 8 * number) as i64);
        let (place, offset) = self.place_of(values, 0, 8);
        let values = self.builder.ins().load(I64, access(self.memory), place, offset);
        let distance = self.builder.ins().imul_imm_u(position, stride_of(map.value_size) as i64);
        let address = self.builder.ins().iadd(values, distance);
        let is_in = self.builder.ins().icmp_imm_u(IntCC::UnsignedLessThan, index, map.max_entries as i64);
        let zero = self.builder.ins().iconst(I64, 0);
        Ok(Some(self.builder.ins().select(is_in, address, zero)))
    }

    fn cpu_in_set(&mut self) -> Result<Value, String> {
        let (cpu, set) = (self.part(1, I32)?, self.get(2)?);
        let cpu = self.builder.ins().uextend(I64, cpu);
        let cpu_count = self.field(offset_of!(Run, cpu_count));
        let exists = self.builder.ins().icmp(IntCC::UnsignedLessThan, cpu, cpu_count);
        let (existing, merged) = (self.builder.create_block(), self.builder.create_block());
        let result = self.builder.append_block_param(merged, I64);
        let zero = self.builder.ins().iconst(I64, 0);
        self.builder.ins().brif(exists, existing, &[], merged, &[BlockArg::Value(zero)]);
        self.go_on_in(existing);
        let inside = self.inside.clone();
        let word = self.builder.ins().ushr_imm_u(cpu, 6);
        let distance = self.builder.ins().ishl_imm_u(word, 3);
        let address = self.builder.ins().iadd(set, distance);
        let (place, offset) = self.place_of(address, 0, 8);
        let word = self.builder.ins().load(I64, access(self.memory), place, offset);
        // Shifts use the amount modulo 64.
        let bits = self.builder.ins().ushr(word, cpu);
        let bit = self.builder.ins().band_imm_u(bits, 1);
        self.builder.ins().jump(merged, &[BlockArg::Value(bit)]);
        // The checks here do not hold on the other path.
        self.inside = inside;
        self.go_on_in(merged);
        Ok(result)
    }

    fn element(&mut self, array: ArrayField) -> Result<Value, String> {
        let offset =
            |offset: u16| i16::try_from(offset).map_err(|_| format!("no structure is like {array:?}"));
        let (last_at, first_at) = (offset(array.last)?, offset(array.first)?);
        let (structure, index) = (self.get(1)?, self.part(2, I32)?);
        let (place, offset) = self.place_of(structure, last_at, 8);
        let flags = access(self.memory);
        let last = self.builder.ins().load(I32, flags, place, offset);
        let is_beyond = self.builder.ins().icmp(IntCC::SignedGreaterThan, index, last);
        let is_negative = self.builder.ins().icmp_imm_s(IntCC::SignedLessThan, index, 0);
        let is_none = self.builder.ins().bor(is_beyond, is_negative);
        let (existing, merged) = (self.builder.create_block(), self.builder.create_block());
        let result = self.builder.append_block_param(merged, I64);
        let zero = self.builder.ins().iconst(I64, 0);
        self.builder.ins().brif(is_none, merged, &[BlockArg::Value(zero)], existing, &[]);
        self.go_on_in(existing);
        let inside = self.inside.clone();
        let index = self.builder.ins().uextend(I64, index);
        let distance = self.builder.ins().ishl_imm_u(index, 3);
        let address = self.builder.ins().iadd(structure, distance);
        // A fault names the address of the element.
        let element = self.builder.ins().iadd_imm_s(address, i64::from(first_at));
        let (place, offset) = self.place_of(element, 0, 8);
        let value = self.builder.ins().load(I64, flags, place, offset);
        self.builder.ins().jump(merged, &[BlockArg::Value(value)]);
        // The checks here do not hold on the other path.
        self.inside = inside;
        self.go_on_in(merged);
        Ok(result)
    }

    /// The place of a number of the object in r1, after a check that it is such an object.
    fn object_field(&mut self, field: ObjectField) -> Result<(Value, i32), String> {
        if field.end() as u64 > Run::FRAME_SIZE || field.offset >= field.mark {
            return Err(format!("the kernel's objects are not like {field:?}"));
        }
        let object = self.get(1)?;
        let (place, offset) = self.place_of(object, 0, field.end() as u64);
        let flags = access(self.memory);
        let own_address = self.builder.ins().load(I64, flags, place, offset + i32::from(field.mark));
        let is_other = self.builder.ins().icmp(IntCC::NotEqual, own_address, object);
        self.fault_if(is_other, object);
        Ok((place, offset + i32::from(field.offset)))
    }

    fn numbers_new(&mut self) -> Result<Value, String> {
        let (start, end) = (self.part(2, I32)?, self.part(3, I32)?);
        let from = self.builder.ins().sextend(I64, start);
        let to = self.builder.ins().sextend(I64, end);
        let count = self.builder.ins().isub(to, from);
        let is_negative = self.builder.ins().icmp_imm_s(IntCC::SignedLessThan, count, 0);
        // Negative ones are large then.
        let is_invalid = self.builder.ins().icmp_imm_s(IntCC::UnsignedGreaterThan, count, ROUNDS_MAX);
        let negative = self.builder.ins().iconst(I64, errno::EINVAL as i64);
        let too_many = self.builder.ins().iconst(I64, errno::E2BIG as i64);
        let error = self.builder.ins().select(is_negative, negative, too_many);
        let before = self.builder.ins().iadd_imm_s(start, -1);
        let before = self.builder.ins().uextend(I64, before);
        let end = self.builder.ins().ishl_imm_u(to, 32);
        let both = self.builder.ins().bor(before, end);
        let zero = self.builder.ins().iconst(I64, 0);
        let word = self.builder.ins().select(is_invalid, zero, both);
        self.store_iterator(word)?;
        Ok(self.builder.ins().select(is_invalid, error, zero))
    }

    fn numbers_next(&mut self) -> Result<Value, String> {
        let iterator = self.get(1)?;
        let (place, offset) = self.place_of(iterator, 0, 8);
        let flags = access(self.memory);
        let word = self.builder.ins().load(I64, flags, place, offset);
        let number = self.builder.ins().ireduce(I32, word);
        let next = self.builder.ins().iadd_imm_s(number, 1);
        let upper = self.builder.ins().ushr_imm_u(word, 32);
        let end = self.builder.ins().ireduce(I32, upper);
        let is_over = self.builder.ins().icmp(IntCC::SignedGreaterThanOrEqual, next, end);
        let next = self.builder.ins().uextend(I64, next);
        let upper = self.builder.ins().ishl_imm_u(upper, 32);
        let both = self.builder.ins().bor(next, upper);
        let zero = self.builder.ins().iconst(I64, 0);
        let word = self.builder.ins().select(is_over, zero, both);
        self.builder.ins().store(flags, word, place, offset);
        Ok(self.builder.ins().select(is_over, zero, iterator))
    }

    fn numbers_destroy(&mut self) -> Result<Value, String> {
        let zero = self.builder.ins().iconst(I64, 0);
        self.store_iterator(zero)?;
        Ok(zero)
    }

    /// Writes to the iterator over numbers at r1.
    fn store_iterator(&mut self, word: Value) -> Result<(), String> {
        let iterator = self.get(1)?;
        let (place, offset) = self.place_of(iterator, 0, 8);
        self.builder.ins().store(access(self.memory), word, place, offset);
        Ok(())
    }
}
