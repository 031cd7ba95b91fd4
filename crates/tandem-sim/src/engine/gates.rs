//! Gates: what tasks of recorded programs wait for.

use crate::kernel::TaskRef;

/// A gate, which opens once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Gate {
    #[default]
    Closed,
    /// A task waits for it.
    Awaited(TaskRef),
    Open,
}

/// All gates of a scenario.
#[derive(Clone, Debug)]
pub(super) struct Gates(Vec<Gate>);

impl Gates {
    /// So many, all of them closed.
    pub fn new(count: usize) -> Self {
        Self(vec![Gate::Closed; count])
    }

    /// Whether the task may go on; if not, it is the one that waits.
    pub fn pass(&mut self, gate: u32, task: TaskRef) -> bool {
        let gate = &mut self.0[gate as usize];
        let is_open = *gate == Gate::Open;
        if !is_open {
            *gate = Gate::Awaited(task);
        }
        is_open
    }

    /// Opens a gate. Returns the task that has waited for it, to be woken.
    pub fn open(&mut self, gate: u32) -> Option<TaskRef> {
        match std::mem::replace(&mut self.0[gate as usize], Gate::Open) {
            Gate::Awaited(task) => Some(task),
            Gate::Closed | Gate::Open => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tandem_machine::ids::TaskId;

    #[test]
    fn a_gate_holds_up_only_who_comes_before_it_opens() {
        let (early, late) = (TaskRef::host(TaskId(1)), TaskRef::host(TaskId(2)));
        let mut gates = Gates::new(2);
        assert!(!gates.pass(0, early));
        assert_eq!(gates.open(0), Some(early));
        assert_eq!(gates.open(0), None, "it is woken once");
        assert_eq!(gates.open(1), None);
        assert!(gates.pass(1, late));
    }
}
