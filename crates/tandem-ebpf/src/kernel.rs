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

    /// The clock that programs read, ns. It does not advance while a program runs.
    fn clock_ns(&self) -> u64;

    /// Executes a function for a program, and returns its r0.
    ///
    /// # Errors
    /// The fault that ends the program: arguments that a verifier or the kernel would refuse.
    fn call(
        &mut self,
        state: &mut State,
        function: KernelFunction,
        arguments: [u64; 5],
    ) -> Result<u64, Fault>;

    /// Starts the timer whose `struct bpf_timer` is at an address, to expire in this many ns, or at this time
    /// if `absolute`; false if there is no memory for it.
    fn start_timer(&mut self, timer: u64, nsecs: u64, absolute: bool) -> bool;

    /// Whether storage for an object cannot be made: there is no memory for it, or the map is full.
    fn storage_is_full(&mut self) -> bool {
        false
    }

    /// Stops a timer; returns whether it had been started.
    fn cancel_timer(&mut self, timer: u64) -> bool;
}
