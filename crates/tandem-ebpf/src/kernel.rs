//! The interface of an instance to the kernel that runs it.

use crate::fault::Fault;
use crate::state::State;

/// A function of the kernel, in the kernel's own numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KernelFunction(pub u16);

/// The kernel, as programs see it.
pub trait Kernel {
    /// The CPU on which the program runs. It does not change meanwhile.
    fn cpu(&self) -> usize;

    /// The clock that programs read, ns. It stands still while a program runs.
    fn clock_ns(&self) -> u64;

    /// Executes a function for a program, and returns its r0.
    ///
    /// # Errors
    /// What ends the program: arguments that a verifier or the kernel would not let pass.
    fn call(
        &mut self,
        state: &mut State,
        function: KernelFunction,
        arguments: [u64; 5],
    ) -> Result<u64, Fault>;

    /// Starts the timer whose `struct bpf_timer` is at an address, for so many ns from now, or until then if
    /// `absolute`; false if there was no memory to do so.
    fn start_timer(&mut self, timer: u64, nsecs: u64, absolute: bool) -> bool;

    /// Whether storage for an object cannot be made: there is no memory for it, or the map is full.
    fn storage_is_full(&mut self) -> bool {
        false
    }

    /// Stops a timer; whether it had been started.
    fn cancel_timer(&mut self, timer: u64) -> bool;
}
