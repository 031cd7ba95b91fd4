//! A run of the simulator as events of a recording.

use tandem_machine::Machine;
use tandem_machine::ids::KernelId;
use tandem_recording::{Context, Event, Kind, NO_TASK, TaskState};
use tandem_sim::trace::{self, EventKind, Observer};

/// Turns events of a kernel into those of a recording, and passes them on.
pub struct Observed<'a, F> {
    machine: &'a Machine,
    kernel: KernelId,
    /// Takes each event.
    next: F,
    /// Tasks that have begun.
    known: Vec<bool>,
}

impl<'a, F: FnMut(&Event)> Observed<'a, F> {
    /// Of the host in runs on that machine.
    pub fn new(machine: &'a Machine, next: F) -> Self {
        Self::of_kernel(KernelId::HOST, machine, next)
    }

    /// Of that kernel, which sees such a machine.
    pub fn of_kernel(kernel: KernelId, machine: &'a Machine, next: F) -> Self {
        Self { machine, kernel, next, known: Vec::new() }
    }
}

impl<F> Observed<'_, F> {
    /// Notes that a task has begun; whether it had before.
    fn begins(&mut self, task: u32) -> bool {
        let at = task as usize;
        if self.known.len() <= at {
            self.known.resize(at + 1, false);
        }
        std::mem::replace(&mut self.known[at], true)
    }
}

impl<F: FnMut(&Event)> Observer for Observed<'_, F> {
    fn observe(&mut self, event: trace::Event) {
        if event.kernel != self.kernel {
            return;
        }
        let task = event.task.0;
        let leaves = |state: TaskState| (Kind::Switch, task, NO_TASK, state as u32);
        let (kind, task, other, detail) = match event.kind {
            EventKind::Wake => {
                let waker = event.by.and_then(|(_, task)| task).map_or(NO_TASK, |task| task.0);
                let context = if waker == NO_TASK { Context::Interrupt } else { Context::Task };
                let kind = if self.begins(task) { Kind::Wake } else { Kind::WakeNew };
                (kind, task, waker, context as u32)
            }
            EventKind::Start => (Kind::Switch, NO_TASK, task, TaskState::Runnable as u32),
            EventKind::Continue => return,
            EventKind::Preempt | EventKind::Yield => leaves(TaskState::Runnable),
            EventKind::Block => leaves(TaskState::Interruptible),
            EventKind::Exit => leaves(TaskState::Dead),
        };
        let cpu = match (event.kind, event.by) {
            (EventKind::Wake, Some((cpu, _))) => cpu,
            _ => event.cpu,
        };
        let cpu = self.machine.cpu(cpu).os_index;
        (self.next)(&Event { at_ns: event.at_ns, cpu, kind, task, other, detail });
    }
}

/// Several kernels of a run.
pub struct Kernels<'a, F>(pub Vec<Observed<'a, F>>);

impl<F: FnMut(&Event)> Observer for Kernels<'_, F> {
    fn observe(&mut self, event: trace::Event) {
        self.0.iter_mut().for_each(|kernel| kernel.observe(event));
    }
}
