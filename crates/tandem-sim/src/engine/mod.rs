//! Runs scenarios: the clock, the event loop, and what happens between kernels, VMs and the world.
//!
//! A [`Simulation`] takes the earliest event: of a processor, whose kernels it lets act
//! ([`crate::kernel::System`]), or of the engine's own, which are on an [`agenda`]. Each part of the engine
//! owns its state and says when it acts next: tasks that wait to be started ([`starts`]), interrupts
//! ([`interrupts`]), homes ([`homes`]), and what has its time from the start ([`timetable`]). When a burst of
//! work ends, an [execution](program) of the task's program borrows what it needs until that takes time
//! again.
//!
//! Limits: one thread; what happens at one instant has an order, but takes no time of its own.

mod agenda;
mod build;
mod deadlock;
pub(crate) mod event_queue;
mod events;
mod gates;
mod homes;
mod interrupts;
mod life;
#[cfg(test)]
mod lock_properties;
mod measure;
mod phase;
mod program;
pub(crate) mod random;
mod simulation;
mod source;
mod spin_lock;
mod starts;
mod timetable;
mod tlb;
mod vm;
mod waiters;
mod watchdog;

use crate::metrics::RunMetrics;
use crate::scenario::{Scenario, ScenarioError};
use crate::trace::Observer;
use simulation::Simulation;
use tandem_machine::ids::VmId;

/// Why a run did not come to its end.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RunError {
    /// The scenario is not one that can be run.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// The clock does not advance.
    #[error(
        "the clock has not advanced from {at_ns} ns for {events} events: a program of VM '{vm}' seems to loop \
         without computing, sleeping or waiting; put an operation that takes time into the loop"
    )]
    Stuck {
        /// Name of the VM that ran last.
        vm: String,
        /// The time of the clock.
        at_ns: u64,
        /// Events, or steps of a program, since it last moved.
        events: u64,
    },
    /// A compiled scheduler did what it may not do, or gave up.
    #[error("the scheduler '{scheduler}' of {kernel} failed at {at_ns} ns: {message}")]
    Scheduler {
        /// Its name.
        scheduler: String,
        /// The kernel that it belongs to.
        kernel: String,
        /// When, ns since the start of the run.
        at_ns: u64,
        /// What it did.
        message: String,
    },
    /// A guest forks without end.
    #[error(
        "VM '{vm}' has {TASKS_MAX} tasks at {at_ns} ns: its programs fork faster than children exit; wait for children with \
         `wait_child` before forking more"
    )]
    TooManyTasks {
        /// Name of the VM.
        vm: String,
        /// When, ns since the start of the run.
        at_ns: u64,
    },
    /// Requests come faster than anybody takes them.
    #[error(
        "VM '{vm}' has {REQUESTS_MAX} requests waiting at {at_ns} ns: they come faster than its programs take them; let \
         them come more slowly, or make the run shorter"
    )]
    TooManyRequests {
        /// Name of the VM.
        vm: String,
        /// When, ns since the start of the run.
        at_ns: u64,
    },
}

/// Most requests of a source that may wait, on their way or in their channel: a bound on memory, not a part of the model.
const REQUESTS_MAX: usize = 1 << 20;

/// Most tasks that may live in a guest at a time, whatever its programs fork.
const TASKS_MAX: usize = 1 << 17;

/// The error that says that the VM's program does not let time go on.
fn stuck(scenario: &Scenario, vm: VmId, at_ns: u64, events: u64) -> RunError {
    RunError::Stuck { vm: scenario.workloads[vm.index()].name.clone(), at_ns, events }
}

/// Runs a scenario with a seed. Equal scenarios and seeds give equal results, on every machine.
///
/// # Errors
/// If the scenario does not fit together, or its time stands still.
pub fn run(scenario: &Scenario, seed: u64) -> Result<RunMetrics, RunError> {
    run_observed(scenario, seed, &mut ())
}

/// Runs a scenario with a seed, and shows every scheduling event to an observer. In the host's kernel, tasks
/// are numbered over all VMs: the vCPUs of the first VM, then those of the second, and so on. The kernel of
/// the first VM, if it has one, is number 1, that of the second number 2, and so on.
///
/// The engine is compiled once, for any observer: a copy for each type of them would take most of the time of building what
/// uses it.
///
/// # Errors
/// As [`run`].
pub fn run_observed(
    scenario: &Scenario,
    seed: u64,
    observer: &mut dyn Observer,
) -> Result<RunMetrics, RunError> {
    scenario.check()?;
    Simulation::new(scenario, seed, observer).run()
}
