//! Decoded instructions: the interpreter executes them, and the compiler translates them.
//!
//! The instruction set is that of RFC 9669. An [`Op`] is an instruction with everything that linking fills
//! in: addresses, targets of jumps as positions in the function, functions by their numbers.

/// A register, 0 to 10. 10 is the frame pointer, which programs only read.
pub type Reg = u8;

/// The second operand of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// A register.
    Reg(Reg),
    /// A constant, sign-extended from the 32 bits that instructions have.
    Imm(i64),
}

/// Width of an access to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// 8 bits.
    B,
    /// 16 bits.
    H,
    /// 32 bits.
    W,
    /// 64 bits.
    D,
}

impl Size {
    /// Bytes.
    pub fn bytes(self) -> u64 {
        match self {
            Self::B => 1,
            Self::H => 2,
            Self::W => 4,
            Self::D => 8,
        }
    }
}

/// Arithmetic and logic on two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum AluOp {
    Add,
    Sub,
    Mul,
    /// Unsigned; a division by 0 results in 0.
    Div,
    /// Signed; the smallest number divided by -1 is itself.
    SignedDiv,
    /// Unsigned; modulo 0 leaves the first operand (its lower half, zero-extended, in 32 bits).
    Mod,
    SignedMod,
    Or,
    And,
    Xor,
    /// Shifts use the lower 6 (5) bits of the second operand.
    ShiftLeft,
    ShiftRight,
    ShiftRightSigned,
}

/// The comparison of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Condition {
    Equal,
    NotEqual,
    /// Some bit is set in both.
    Test,
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
    SignedGreater,
    SignedGreaterOrEqual,
    SignedLess,
    SignedLessOrEqual,
}

/// The effect of an atomic operation on memory and a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum AtomicOp {
    Add,
    Or,
    And,
    Xor,
    Exchange,
    /// Compares with r0, and puts the previous value into r0.
    CompareExchange,
    LoadAcquire,
    StoreRelease,
}

/// The effect of a byte-order operation (on a little-endian machine).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swap {
    /// Cuts to the lowest bits.
    Truncate,
    /// Reverses the lowest bytes, and cuts to them.
    Reverse,
}

/// An instruction. `wide` means 64 bits; else the lower halves count, and the result is zero-extended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Op {
    Alu {
        op: AluOp,
        wide: bool,
        dst: Reg,
        src: Operand,
    },
    Negate {
        wide: bool,
        dst: Reg,
    },
    /// `sign_extend_from` is 8, 16, 32, or 0 for a plain copy.
    Move {
        wide: bool,
        dst: Reg,
        src: Operand,
        sign_extend_from: u8,
    },
    /// The address that a pointer into an arena means, or the pointer for an address (`addr_space_cast`): the
    /// same here.
    CastArena {
        dst: Reg,
        src: Reg,
    },
    /// `bits` is 16, 32 or 64.
    Swap {
        dst: Reg,
        swap: Swap,
        bits: u8,
    },
    /// A constant of 64 bits, or an address.
    LoadImmediate {
        dst: Reg,
        value: u64,
    },
    /// With `probe` (a field of the kernel's types), an access near address 0 gives 0 instead of a fault: as
    /// in the kernel, where such a load survives.
    Load {
        dst: Reg,
        base: Reg,
        offset: i16,
        size: Size,
        signed: bool,
        probe: bool,
    },
    Store {
        base: Reg,
        offset: i16,
        size: Size,
        src: Operand,
    },
    /// `wide` or 32 bits. With `fetch`, `src` gets the old value (zero-extended). LoadAcquire loads from
    /// `base` into `src`; the loads and stores of those two have any size.
    Atomic {
        op: AtomicOp,
        size: Size,
        fetch: bool,
        base: Reg,
        offset: i16,
        src: Reg,
    },
    Jump {
        target: u32,
    },
    Branch {
        condition: Condition,
        wide: bool,
        dst: Reg,
        src: Operand,
        target: u32,
    },
    /// Jumps once the function has come here too often (`may_goto`).
    MayGoto {
        target: u32,
    },
    /// A function of the image, by number. Arguments r1 to r5, result r0.
    Call {
        function: u32,
    },
    /// A function of the kernel: the position in [`crate::Image::imports`].
    CallKernel {
        import: u32,
    },
    Exit,
    /// An instruction that linking could not fill in, which is a fault to execute: the position in
    /// [`crate::Image::poisons`].
    Poison {
        reason: u32,
    },
}
