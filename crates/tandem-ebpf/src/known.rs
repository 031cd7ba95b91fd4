//! Functions of the kernel that need no call: the runtime knows their results.
//!
//! Problem: schedulers ask for the time, the CPU of a task and the like several times in each decision, and a
//! call of the kernel takes longer than the answer.
//!
//! Approach: the environment declares that a function is one of these; the interpreter computes it here, and
//! the compiler inlines it.

use crate::fault::Fault;
use crate::op::Size;
use crate::runtime::Run;

/// The result of a function of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnownResult {
    /// 0: its effect has no meaning here, such as releasing a reference.
    Nothing,
    /// Its first argument: it takes a reference.
    FirstArgument,
    /// [`Kernel::cpu`](crate::Kernel::cpu).
    Cpu,
    /// [`Kernel::clock_ns`](crate::Kernel::clock_ns).
    Clock,
    /// A number in the object that is its first argument.
    Field(ObjectField),
    /// Writes its second argument to a number in the object that is its first, and returns 1.
    SetField(ObjectField),
    /// Whether the CPU that is its first argument, of 32 bits, is in the set at its second: one bit each, in
    /// words of 64. CPUs that do not exist are in no set.
    CpuInSet,
    /// An element of the array in the structure at its first argument; the index is its second one, of 32 bits.
    Element(ArrayField),
}

/// An array of words of 64 bits in a structure, which also has the index of its last element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrayField {
    /// Offset of the index of the last element, a number of 32 bits with at least as many bits behind it, bytes.
    pub last: u16,
    /// Offset of the array, bytes.
    pub first: u16,
}

/// A number in an object of the kernel, such as a task. An object contains its own address, which
/// distinguishes it from anything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectField {
    /// The kind of the object, for the fault of a program that passes something else: `a task`.
    pub object: &'static str,
    /// Offset of the object's own address in it, bytes.
    pub mark: u16,
    /// Offset of the number, bytes: before the mark.
    pub offset: u16,
    /// Size of the number.
    pub size: Size,
}

impl KnownResult {
    /// The result of the function for a program that runs.
    pub(crate) fn result(self, run: &mut Run<'_>, arguments: [u64; 5]) -> Result<u64, Fault> {
        let [first, second, ..] = arguments;
        match self {
            Self::Nothing => Ok(0),
            Self::FirstArgument => Ok(first),
            Self::Cpu => Ok(run.kernel.cpu() as u64),
            Self::Clock => Ok(run.kernel.clock_ns()),
            Self::Field(field) => run.state.memory.load(field.address(run, first)?, field.bytes()),
            Self::SetField(field) => {
                let address = field.address(run, first)?;
                run.state.memory.store(address, field.bytes(), second).map(|()| 1)
            }
            Self::CpuInSet => match first as u32 {
                cpu if (cpu as usize) < run.state.cpu_count => {
                    let word = second.wrapping_add(u64::from(cpu / 64 * 8));
                    Ok(run.state.memory.load(word, 8)? >> (cpu % 64) & 1)
                }
                _ => Ok(0),
            },
            Self::Element(array) => {
                let (memory, index) = (&run.state.memory, second as i32);
                let last = memory.load(first.wrapping_add(array.last.into()), 8)? as i32;
                match u64::try_from(index) {
                    Ok(at) if index <= last => {
                        memory.load(first.wrapping_add(u64::from(array.first) + at * 8), 8)
                    }
                    _ => Ok(0),
                }
            }
        }
    }
}

impl ObjectField {
    /// The address of the number, after a check that the argument is such an object.
    fn address(self, run: &Run<'_>, object: u64) -> Result<u64, Fault> {
        let memory = &run.state.memory;
        if memory.contains(object, self.end()) && memory.load(object + u64::from(self.mark), 8)? == object {
            return Ok(object + u64::from(self.offset));
        }
        Err(Fault(format!("address {object:#x} is not that of {}", self.object)))
    }

    fn bytes(self) -> usize {
        self.size.bytes() as usize
    }

    /// Size of the part of the object that is read, bytes.
    pub(crate) fn end(self) -> usize {
        usize::from(self.mark) + 8
    }
}
