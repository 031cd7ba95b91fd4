//! What callbacks ask for, and what follows from what they did, until they are over.

use tandem_machine::ids::CpuId;

/// What is to happen when the callback is over. Mostly nothing.
#[derive(Debug, Default)]
pub struct Pending {
    /// CPU and flags.
    kicks: Vec<(usize, u64)>,
    /// CPUs that are to reschedule.
    reschedules: Vec<CpuId>,
    /// Queues, by position, whose tasks are to be enqueued again: all of them, or those that were to run at
    /// once and cannot.
    reenqueues: Vec<(usize, bool)>,
    /// What the scheduler complained of, or did wrong, first.
    complaint: Option<String>,
}

impl Pending {
    /// Nothing but what the scheduler did wrong before.
    pub fn with_complaint(complaint: Option<String>) -> Self {
        Self { complaint, ..Self::default() }
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.kicks.is_empty()
            && self.reschedules.is_empty()
            && self.reenqueues.is_empty()
            && self.complaint.is_none()
    }

    /// A program kicks a CPU.
    pub fn kick(&mut self, cpu: usize, flags: u64) {
        self.kicks.push((cpu, flags));
    }

    /// A CPU is to reschedule.
    #[inline]
    pub fn reschedule(&mut self, cpu: usize) {
        self.reschedules.push(CpuId::from(cpu));
    }

    /// Tasks of a queue are to be enqueued again; a second wish for it changes nothing.
    pub fn reenqueue(&mut self, position: usize, all: bool) {
        match self.reenqueues.iter_mut().find(|(other, _)| *other == position) {
            Some((_, all_of_it)) => *all_of_it |= all,
            None => self.reenqueues.push((position, all)),
        }
    }

    /// The scheduler has done something for which the kernel would unload it.
    pub fn complain(&mut self, message: impl Into<String>) {
        self.complaint.get_or_insert(message.into());
    }

    /// The kicks, to be carried out and given back to [`Pending::reuse_kicks`].
    pub fn take_kicks(&mut self) -> Vec<(usize, u64)> {
        std::mem::take(&mut self.kicks)
    }

    /// Keeps the memory of kicks that have been carried out.
    pub fn reuse_kicks(&mut self, mut kicks: Vec<(usize, u64)>) {
        kicks.clear();
        self.kicks = kicks;
    }

    /// Hands over the CPUs that are to reschedule; how many.
    pub fn move_reschedules(&mut self, to: &mut Vec<CpuId>) -> usize {
        let count = self.reschedules.len();
        to.append(&mut self.reschedules);
        count
    }

    /// Hands over the queues whose tasks are to be enqueued again, and whether that is for all of them.
    pub fn take_reenqueues(&mut self) -> Vec<(usize, bool)> {
        std::mem::take(&mut self.reenqueues)
    }

    /// Hands over what the scheduler did wrong.
    pub fn take_complaint(&mut self) -> Option<String> {
        self.complaint.take()
    }
}
