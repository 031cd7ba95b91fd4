//! What a task of a model did, as operations of a program.

use super::model::{End, ModelTask, Step, Wait};
use super::situation::Change;
use std::sync::Arc;
use tandem_machine::cpumask::CpuMask;
use tandem_machine::{Machine, parse_cpulist};
use tandem_recording::Task;
use tandem_sim::program::{Amount, Op};
use tandem_sim::scenario::{Process, TIME_MAX_NS, TaskPolicy};

/// A step that has to do with other tasks.
#[derive(Clone, Copy, Debug)]
pub(super) enum Deed {
    /// Waits for a gate of the model.
    Pass(u32),
    /// Opens one.
    Open { gate: u32, sync: bool },
    /// Forks a task of the model.
    Fork(u32),
}

/// The operations of a task; `deed` adds those that have to do with others. `done` says that it has done its work.
pub(super) fn work_of(task: &ModelTask, done: Op, mut deed: impl FnMut(&mut Vec<Op>, Deed)) -> Vec<Op> {
    let mut ops = Vec::with_capacity(task.steps.len() + 2);
    // Nobody waits for the end of what has none.
    if task.end == End::GoesOn {
        ops.push(done.clone());
    }
    for step in &task.steps {
        match *step {
            Step::Work(work_ns) => ops.push(Op::Compute { work: Amount::Fixed(work_ns), profile: None }),
            Step::Wait(Wait::Gate(gate)) => deed(&mut ops, Deed::Pass(gate)),
            Step::Wait(Wait::For(ns)) => ops.push(Op::Sleep(Amount::Fixed(ns))),
            Step::Wait(Wait::Until(at_ns)) => ops.push(Op::SleepUntil(at_ns)),
            Step::Open { gate, sync } => deed(&mut ops, Deed::Open { gate, sync }),
            Step::Fork(child) => deed(&mut ops, Deed::Fork(child)),
        }
    }
    match task.end {
        End::Ended => ops.push(done),
        End::Waits => ops.extend([done, Op::SleepUntil(TIME_MAX_NS)]),
        End::GoesOn => ops.push(Op::Compute { work: Amount::Fixed(TIME_MAX_NS), profile: None }),
    }
    ops
}

/// The nice value of a recorded task after a change. Real-time tasks are the most urgent ones, unless the change gives
/// them another policy: then they have what a task has that nobody gave a nice value.
pub(super) fn nice_of(facts: &Task, change: Option<&Change>) -> i8 {
    let stays_real_time = facts.is_real_time() && change.is_none_or(|change| change.policy.is_none());
    let nice = change.and_then(|change| change.nice).or_else(|| facts.nice());
    nice.unwrap_or(if stays_real_time { *Process::NICE.start() } else { 0 })
}

/// The policy of a recorded task after a change; real-time tasks have the usual one.
pub(super) fn policy_of(facts: &Task, change: Option<&Change>) -> TaskPolicy {
    let recorded = || facts.policy.and_then(TaskPolicy::of_number).unwrap_or_default();
    change.and_then(|change| change.policy).unwrap_or_else(recorded)
}

/// The CPUs that a recorded task may use, as far as the machine has them; `None`: all.
pub(super) fn recorded_cpus(facts: &Task, machine: &Machine) -> Option<Arc<CpuMask>> {
    let mut mask = CpuMask::empty(machine.cpu_count());
    for cpu in parse_cpulist(facts.cpus.as_deref()?).ok()? {
        if let Some(cpu) = machine.find_cpu(cpu) {
            mask.insert(cpu);
        }
    }
    (!mask.is_empty() && mask != *machine.all_cpus()).then(|| Arc::new(mask))
}
