//! Decodes bytes of instructions to [`Op`]s (RFC 9669, and the kernel's additions).
//!
//! The caller resolves what depends on the rest of the object and on the kernel: calls, and constants that
//! are addresses. Jumps become positions among the operations instead of distances in slots of 8 bytes.

use crate::fault::LoadError;
use crate::op::{AluOp, AtomicOp, Condition, Op, Operand, Reg, Size, Swap};

/// Bytes of an instruction; a constant of 64 bits takes two.
pub(crate) const SLOT: usize = 8;

/// An instruction as the object has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Instruction {
    pub opcode: u8,
    pub dst: Reg,
    pub src: u8,
    pub offset: i16,
    /// Sign-extended from 32 bits, or 64 bits of two slots.
    pub imm: i64,
}

/// The result of linking an instruction.
pub(crate) enum Linked {
    /// It stands for itself.
    Plain,
    /// It stands for itself, and accesses a field of the kernel's types.
    Probe,
    /// It becomes this operation.
    As(Op),
}

impl Instruction {
    const LOAD_IMMEDIATE: u8 = 0x18;
    const CALL: u8 = 0x85;

    fn read(slots: &[u8]) -> Self {
        let number = |at: usize| i32::from_le_bytes([slots[at], slots[at + 1], slots[at + 2], slots[at + 3]]);
        let mut instruction = Self {
            opcode: slots[0],
            dst: slots[1] & 15,
            src: slots[1] >> 4,
            offset: i16::from_le_bytes([slots[2], slots[3]]),
            imm: i64::from(number(4)),
        };
        if instruction.is_load_immediate() && slots.len() >= 2 * SLOT {
            instruction.imm = i64::from(number(12)) << 32 | i64::from(number(4) as u32);
        }
        instruction
    }

    pub fn is_load_immediate(&self) -> bool {
        self.opcode == Self::LOAD_IMMEDIATE
    }

    pub fn is_call(&self) -> bool {
        self.opcode == Self::CALL
    }

    /// Whether it accesses memory at a register with an offset.
    pub fn is_access(&self) -> bool {
        matches!(self.opcode & 7, 1..=3)
    }

    pub fn is_load(&self) -> bool {
        self.opcode & 7 == 1
    }

    /// Whether it is a load that extends the sign.
    pub fn is_signed_load(&self) -> bool {
        self.is_load() && self.opcode & 0xe0 == 0x80
    }

    /// Whether it has a constant.
    pub fn has_imm(&self) -> bool {
        self.is_load_immediate() || matches!(self.opcode & 0x0f, 4 | 7)
    }

    /// Size of its access to memory.
    pub fn access_size(&self) -> Size {
        match self.opcode & 0x18 {
            0 => Size::W,
            0x08 => Size::H,
            0x10 => Size::B,
            _ => Size::D,
        }
    }

    pub fn set_access_size(&mut self, size: Size) {
        self.opcode = self.opcode & !0x18
            | match size {
                Size::W => 0,
                Size::H => 0x08,
                Size::B => 0x10,
                Size::D => 0x18,
            };
    }
}

/// Decodes a function. `link` is asked about each instruction, with its slot, and may change it.
pub(crate) fn decode(
    name: &str,
    bytes: &[u8],
    mut link: impl FnMut(usize, &mut Instruction) -> Result<Linked, LoadError>,
) -> Result<Vec<Op>, LoadError> {
    let invalid =
        |slot: usize, problem: &str| LoadError(format!("instruction {slot} of function `{name}` {problem}"));
    let slot_count = bytes.len() / SLOT;
    let mut ops = Vec::with_capacity(slot_count);
    // Of each slot, its position among the operations; of each operation, its slot.
    let mut positions = vec![None; slot_count];
    let mut slots = Vec::with_capacity(slot_count);
    let mut slot = 0;
    while slot < slot_count {
        let mut instruction = Instruction::read(&bytes[slot * SLOT..]);
        let length = if instruction.is_load_immediate() { 2 } else { 1 };
        if slot + length > slot_count {
            return Err(invalid(slot, "is cut off"));
        }
        positions[slot] = Some(ops.len() as u32);
        slots.push(slot);
        let op = match link(slot, &mut instruction)? {
            Linked::Plain => translate(&instruction, slot),
            Linked::Probe => translate(&instruction, slot).map(|op| match op {
                Op::Load { dst, base, offset, size, signed, probe: _ } => {
                    Op::Load { dst, base, offset, size, signed, probe: true }
                }
                other => other,
            }),
            Linked::As(op) => Some(op),
        };
        let op = op.ok_or_else(|| {
            invalid(
                slot,
                &format!("is not one that the simulator knows (opcode {:#04x})", instruction.opcode),
            )
        })?;
        if !registers_are_valid(&op) {
            return Err(invalid(slot, "uses a register that does not exist, or writes to the frame pointer"));
        }
        ops.push(op);
        slot += length;
    }
    for (op, &slot) in ops.iter_mut().zip(&slots) {
        if let Op::Jump { target } | Op::Branch { target, .. } | Op::MayGoto { target } = op {
            let position = positions.get(*target as usize).copied().flatten();
            *target = position.ok_or_else(|| invalid(slot, "jumps to where no instruction begins"))?;
        }
    }
    match ops.last() {
        Some(Op::Exit | Op::Jump { .. } | Op::Poison { .. }) => Ok(ops),
        _ => Err(LoadError(format!("function `{name}` does not end with a jump or an exit"))),
    }
}

/// An instruction that stands for itself. Targets are slots; one before the first is beyond the last.
fn translate(instruction: &Instruction, slot: usize) -> Option<Op> {
    let Instruction { opcode, dst, src, offset, imm } = *instruction;
    let target = |distance: i64| u32::try_from(slot as i64 + 1 + distance).unwrap_or(u32::MAX);
    let operand = if opcode & 8 != 0 { Operand::Reg(src) } else { Operand::Imm(imm) };
    let size = instruction.access_size();
    Some(match opcode & 7 {
        0 if opcode == Instruction::LOAD_IMMEDIATE && src == 0 => {
            Op::LoadImmediate { dst, value: imm as u64 }
        }
        1 => {
            let signed = match opcode & 0xe0 {
                0x60 => false,
                0x80 if size != Size::D => true,
                _ => return None,
            };
            Op::Load { dst, base: src, offset, size, signed, probe: false }
        }
        2 if opcode & 0xe0 == 0x60 => Op::Store { base: dst, offset, size, src: Operand::Imm(imm) },
        3 if opcode & 0xe0 == 0x60 => Op::Store { base: dst, offset, size, src: Operand::Reg(src) },
        3 if opcode & 0xe0 == 0xc0 => atomic(instruction, size)?,
        4 => alu(instruction, operand, false)?,
        7 => alu(instruction, operand, true)?,
        5 => match opcode >> 4 {
            0 if opcode == 0x05 => Op::Jump { target: target(offset.into()) },
            9 if opcode == 0x95 => Op::Exit,
            0xe if opcode == 0xe5 && src == 0 => Op::MayGoto { target: target(offset.into()) },
            code => {
                let condition = condition(code)?;
                Op::Branch { condition, wide: true, dst, src: operand, target: target(offset.into()) }
            }
        },
        6 if opcode == 0x06 => Op::Jump { target: target(imm) },
        6 => {
            let condition = condition(opcode >> 4)?;
            Op::Branch { condition, wide: false, dst, src: operand, target: target(offset.into()) }
        }
        _ => return None,
    })
}

/// The offset of a move that casts between address spaces, and its constants: the new space in the upper half,
/// the old one in the lower, where 1 is the arena's.
const ARENA_CAST: i16 = 1;
const ARENA_TO_KERNEL: i64 = 1;
const KERNEL_TO_ARENA: i64 = 1 << 16;

fn alu(instruction: &Instruction, src: Operand, wide: bool) -> Option<Op> {
    let Instruction { opcode, dst, offset, imm, .. } = *instruction;
    let op = match (opcode >> 4, offset) {
        (0x0, 0) => AluOp::Add,
        (0x1, 0) => AluOp::Sub,
        (0x2, 0) => AluOp::Mul,
        (0x3, 0) => AluOp::Div,
        (0x3, 1) => AluOp::SignedDiv,
        (0x4, 0) => AluOp::Or,
        (0x5, 0) => AluOp::And,
        (0x6, 0) => AluOp::ShiftLeft,
        (0x7, 0) => AluOp::ShiftRight,
        (0x8, 0) => return Some(Op::Negate { wide, dst }),
        (0x9, 0) => AluOp::Mod,
        (0x9, 1) => AluOp::SignedMod,
        (0xa, 0) => AluOp::Xor,
        (0xb, 0) => return Some(Op::Move { wide, dst, src, sign_extend_from: 0 }),
        (0xb, ARENA_CAST) if wide && matches!(imm, ARENA_TO_KERNEL | KERNEL_TO_ARENA) => match src {
            Operand::Reg(src) => return Some(Op::CastArena { dst, src }),
            Operand::Imm(_) => return None,
        },
        (0xb, 8 | 16 | 32) if matches!(src, Operand::Reg(_)) && (wide || offset != 32) => {
            return Some(Op::Move { wide, dst, src, sign_extend_from: offset as u8 });
        }
        (0xc, 0) => AluOp::ShiftRightSigned,
        (0xd, 0) => {
            let swap = match (wide, opcode & 8 != 0) {
                (false, false) => Swap::Truncate,
                (false, true) | (true, false) => Swap::Reverse,
                (true, true) => return None,
            };
            let bits = matches!(imm, 16 | 32 | 64).then_some(imm as u8)?;
            return Some(Op::Swap { dst, swap, bits });
        }
        _ => return None,
    };
    Some(Op::Alu { op, wide, dst, src })
}

fn atomic(instruction: &Instruction, size: Size) -> Option<Op> {
    let Instruction { dst, src, offset, imm, .. } = *instruction;
    let (op, fetch) = match imm {
        // The register that is loaded into is where other instructions have their base.
        0x100 => {
            let op = AtomicOp::LoadAcquire;
            return Some(Op::Atomic { op, size, fetch: false, base: src, offset, src: dst });
        }
        0x110 => {
            let op = AtomicOp::StoreRelease;
            return Some(Op::Atomic { op, size, fetch: false, base: dst, offset, src });
        }
        _ if matches!(size, Size::B | Size::H) => return None,
        0xe1 => (AtomicOp::Exchange, true),
        0xf1 => (AtomicOp::CompareExchange, true),
        0x00 | 0x01 => (AtomicOp::Add, imm & 1 != 0),
        0x40 | 0x41 => (AtomicOp::Or, imm & 1 != 0),
        0x50 | 0x51 => (AtomicOp::And, imm & 1 != 0),
        0xa0 | 0xa1 => (AtomicOp::Xor, imm & 1 != 0),
        _ => return None,
    };
    Some(Op::Atomic { op, size, fetch, base: dst, offset, src })
}

fn condition(code: u8) -> Option<Condition> {
    Some(match code {
        0x1 => Condition::Equal,
        0x2 => Condition::Greater,
        0x3 => Condition::GreaterOrEqual,
        0x4 => Condition::Test,
        0x5 => Condition::NotEqual,
        0x6 => Condition::SignedGreater,
        0x7 => Condition::SignedGreaterOrEqual,
        0xa => Condition::Less,
        0xb => Condition::LessOrEqual,
        0xc => Condition::SignedLess,
        0xd => Condition::SignedLessOrEqual,
        _ => return None,
    })
}

/// Whether all registers exist, and none that is written is the frame pointer.
fn registers_are_valid(op: &Op) -> bool {
    const FRAME: Reg = 10;
    let read = |operand: Operand| match operand {
        Operand::Reg(reg) => reg <= FRAME,
        Operand::Imm(_) => true,
    };
    match *op {
        Op::Alu { dst, src, .. } | Op::Move { dst, src, .. } => dst < FRAME && read(src),
        Op::CastArena { dst, src } => dst < FRAME && src <= FRAME,
        Op::Negate { dst, .. } | Op::Swap { dst, .. } | Op::LoadImmediate { dst, .. } => dst < FRAME,
        Op::Load { dst, base, .. } => dst < FRAME && base <= FRAME,
        Op::Store { base, src, .. } => base <= FRAME && read(src),
        Op::Atomic { op, fetch, base, src, .. } => {
            let writes = op == AtomicOp::LoadAcquire || fetch && op != AtomicOp::CompareExchange;
            base <= FRAME && if writes { src < FRAME } else { src <= FRAME }
        }
        Op::Branch { dst, src, .. } => dst <= FRAME && read(src),
        Op::Jump { .. } | Op::MayGoto { .. } | Op::Call { .. } | Op::CallKernel { .. } => true,
        Op::Exit | Op::Poison { .. } => true,
    }
}
