//! The interpreter: the reference for instructions. Clarity comes before speed.

use crate::fault::Fault;
use crate::maps::follow;
use crate::op::{AluOp, AtomicOp, Condition, Op, Operand, Size, Swap};
use crate::runtime::Run;

/// Registers; as many as their numbers have bits for, so that none is out of bounds.
type Registers = [u64; 16];
const FRAME_POINTER: usize = 10;

/// Runs a function with the given frame pointer. Not inlined: its stack frame in the process is large, and
/// the caller also calls machine code.
#[inline(never)]
pub(crate) fn run(run: &mut Run, function: u32, arguments: [u64; 5], frame: u64) -> Result<u64, Fault> {
    let mut registers = [0; 16];
    registers[1..6].copy_from_slice(&arguments);
    registers[FRAME_POINTER] = frame;
    let mut at = 0;
    execute(run, function, &mut registers, &mut at).map_err(|fault| run.locate(function, at, fault))?;
    Ok(registers[0])
}

/// Executes instructions from `at` on, which stays at the one that is being executed.
fn execute(run: &mut Run, function: u32, registers: &mut Registers, at: &mut usize) -> Result<(), Fault> {
    let image = run.image;
    let ops = &image.functions[function as usize].ops;
    let frame = registers[FRAME_POINTER];
    let mut may_goto = Run::MAY_GOTO_MAX;
    loop {
        let op = *ops.get(*at).ok_or_else(|| Fault("the function has no instruction here".to_owned()))?;
        let mut next = *at + 1;
        run.state.instructions += 1;
        match op {
            Op::Alu { op, wide, dst, src } => {
                let (a, b) = (registers[index(dst)], value(registers, src));
                registers[index(dst)] =
                    if wide { alu_64(op, a, b) } else { alu_32(op, a as u32, b as u32).into() };
            }
            Op::Negate { wide, dst } => {
                let negated = registers[index(dst)].wrapping_neg();
                registers[index(dst)] = if wide { negated } else { low(negated) };
            }
            Op::Move { wide, dst, src, sign_extend_from } => {
                let value = value(registers, src);
                let value = match sign_extend_from {
                    8 => value as i8 as u64,
                    16 => value as i16 as u64,
                    32 => value as i32 as u64,
                    _ => value,
                };
                registers[index(dst)] = if wide { value } else { low(value) };
            }
            Op::CastArena { dst, src } => registers[index(dst)] = follow(registers[index(src)]),
            Op::Swap { dst, swap, bits } => {
                registers[index(dst)] = swapped(registers[index(dst)], swap, bits)
            }
            Op::LoadImmediate { dst, value } => registers[index(dst)] = value,
            Op::Load { dst, base, offset, size, signed, probe } => {
                let address = address(registers, base, offset);
                let bytes = size.bytes() as usize;
                let value = if probe && !run.state.memory.contains(address, bytes) {
                    0
                } else {
                    run.state.memory.load(address, bytes)?
                };
                registers[index(dst)] = if signed { sign_extend(value, size) } else { value };
            }
            Op::Store { base, offset, size, src } => {
                let (address, value) = (address(registers, base, offset), value(registers, src));
                run.state.memory.store(address, size.bytes() as usize, value)?;
            }
            Op::Atomic { op, size, fetch, base, offset, src } => {
                let address = address(registers, base, offset);
                atomic(run, registers, op, size, fetch, address, src)?;
            }
            Op::Jump { target } => next = target as usize,
            Op::Branch { condition, wide, dst, src, target } => {
                if holds(condition, wide, registers[index(dst)], value(registers, src)) {
                    next = target as usize;
                }
            }
            Op::MayGoto { target } => match may_goto {
                0 => next = target as usize,
                _ => may_goto -= 1,
            },
            Op::Call { function } => {
                registers[0] =
                    run.call_function(function, called_with(registers), frame + Run::FRAME_SIZE)?;
            }
            Op::CallKernel { import } => {
                registers[0] = run.call_import(import, called_with(registers), frame)?;
            }
            Op::Exit => return Ok(()),
            Op::Poison { reason } => return Err(Fault(image.poisons[reason as usize].clone())),
        }
        if next <= *at {
            run.burn(Run::cost_of_jump(*at, next))?;
        }
        *at = next;
    }
}

fn index(register: u8) -> usize {
    usize::from(register & 15)
}

fn value(registers: &Registers, operand: Operand) -> u64 {
    match operand {
        Operand::Reg(register) => registers[index(register)],
        Operand::Imm(value) => value as u64,
    }
}

fn address(registers: &Registers, base: u8, offset: i16) -> u64 {
    registers[index(base)].wrapping_add_signed(offset.into())
}

fn called_with(registers: &Registers) -> [u64; 5] {
    [registers[1], registers[2], registers[3], registers[4], registers[5]]
}

/// The lower half.
fn low(value: u64) -> u64 {
    u64::from(value as u32)
}

fn sign_extend(value: u64, size: Size) -> u64 {
    match size {
        Size::B => value as i8 as u64,
        Size::H => value as i16 as u64,
        Size::W => value as i32 as u64,
        Size::D => value,
    }
}

fn swapped(value: u64, swap: Swap, bits: u8) -> u64 {
    match (swap, bits) {
        (Swap::Truncate, 16) => u64::from(value as u16),
        (Swap::Truncate, 32) => low(value),
        (Swap::Truncate, _) => value,
        (Swap::Reverse, 16) => u64::from((value as u16).swap_bytes()),
        (Swap::Reverse, 32) => u64::from((value as u32).swap_bytes()),
        (Swap::Reverse, _) => value.swap_bytes(),
    }
}

macro_rules! alu {
    ($name:ident, $unsigned:ty, $signed:ty) => {
        fn $name(op: AluOp, a: $unsigned, b: $unsigned) -> $unsigned {
            match op {
                AluOp::Add => a.wrapping_add(b),
                AluOp::Sub => a.wrapping_sub(b),
                AluOp::Mul => a.wrapping_mul(b),
                AluOp::Div => a.checked_div(b).unwrap_or(0),
                AluOp::SignedDiv if b == 0 => 0,
                AluOp::SignedDiv => (a as $signed).wrapping_div(b as $signed) as $unsigned,
                AluOp::Mod => a.checked_rem(b).unwrap_or(a),
                AluOp::SignedMod if b == 0 => a,
                AluOp::SignedMod => (a as $signed).wrapping_rem(b as $signed) as $unsigned,
                AluOp::Or => a | b,
                AluOp::And => a & b,
                AluOp::Xor => a ^ b,
                AluOp::ShiftLeft => a.wrapping_shl(b as u32),
                AluOp::ShiftRight => a.wrapping_shr(b as u32),
                AluOp::ShiftRightSigned => (a as $signed).wrapping_shr(b as u32) as $unsigned,
            }
        }
    };
}

alu!(alu_64, u64, i64);
alu!(alu_32, u32, i32);

fn holds(condition: Condition, wide: bool, a: u64, b: u64) -> bool {
    // Sign-extended halves compare, also without sign, as the halves do.
    let (a, b) = if wide { (a, b) } else { (a as i32 as u64, b as i32 as u64) };
    match condition {
        Condition::Equal => a == b,
        Condition::NotEqual => a != b,
        Condition::Test => a & b != 0,
        Condition::Greater => a > b,
        Condition::GreaterOrEqual => a >= b,
        Condition::Less => a < b,
        Condition::LessOrEqual => a <= b,
        Condition::SignedGreater => a as i64 > b as i64,
        Condition::SignedGreaterOrEqual => a as i64 >= b as i64,
        Condition::SignedLess => (a as i64) < b as i64,
        Condition::SignedLessOrEqual => a as i64 <= b as i64,
    }
}

/// One thread runs an instance, so that these are a load and a store.
fn atomic(
    run: &mut Run,
    registers: &mut Registers,
    op: AtomicOp,
    size: Size,
    fetch: bool,
    address: u64,
    src: u8,
) -> Result<(), Fault> {
    let memory = &mut run.state.memory;
    let bytes = size.bytes() as usize;
    let operand = registers[index(src)];
    if op == AtomicOp::StoreRelease {
        return memory.store(address, bytes, operand);
    }
    let old = memory.load(address, bytes)?;
    let new = match op {
        AtomicOp::Add => old.wrapping_add(operand),
        AtomicOp::Or => old | operand,
        AtomicOp::And => old & operand,
        AtomicOp::Xor => old ^ operand,
        AtomicOp::Exchange => operand,
        AtomicOp::CompareExchange => {
            let expected = if size == Size::D { registers[0] } else { low(registers[0]) };
            registers[0] = old;
            if old == expected { operand } else { old }
        }
        AtomicOp::LoadAcquire | AtomicOp::StoreRelease => old,
    };
    if op != AtomicOp::LoadAcquire {
        memory.store(address, bytes, new)?;
    }
    if op == AtomicOp::LoadAcquire || fetch && op != AtomicOp::CompareExchange {
        registers[index(src)] = old;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::instance::Engine;
    use crate::testing;

    #[test]
    fn instructions_follow_the_standard() {
        testing::check_instructions(Engine::Interpreted);
    }
}
