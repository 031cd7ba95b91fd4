//! A run of the simulator as events of a recording.

use tandem_machine::Machine;
use tandem_recording::{Context, Event, Kind, NO_TASK, TaskState};
use tandem_sim::trace::{self, EventKind, Observer};

/// Turns events of the host's kernel into those of a recording, and passes them on.
pub struct Observed<'a, F> {
    machine: &'a Machine,
    /// Takes each event.
    next: F,
    /// When the last one was, ns.
    last_ns: u64,
}

impl<'a, F: FnMut(&Event)> Observed<'a, F> {
    /// Of runs on that machine.
    pub fn new(machine: &'a Machine, next: F) -> Self {
        Self { machine, next, last_ns: 0 }
    }

    /// When the last event was, ns.
    pub fn last_ns(&self) -> u64 {
        self.last_ns
    }
}

impl<F: FnMut(&Event)> Observer for Observed<'_, F> {
    fn observe(&mut self, event: trace::Event) {
        if event.kernel != tandem_machine::ids::KernelId::HOST {
            return;
        }
        let task = event.task.0;
        let leaves = |state: TaskState| (Kind::Switch, task, NO_TASK, state as u32);
        let (kind, task, other, detail) = match event.kind {
            EventKind::Wake => {
                let waker = event.by.and_then(|(_, task)| task).map_or(NO_TASK, |task| task.0);
                let context = if waker == NO_TASK { Context::Interrupt } else { Context::Task };
                (Kind::Wake, task, waker, context as u32)
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
        self.last_ns = event.at_ns;
        let cpu = self.machine.cpu(cpu).os_index;
        (self.next)(&Event { at_ns: event.at_ns, cpu, kind, task, other, detail });
    }
}
