//! The requests of callbacks and the effects of their actions, until they are over.

use tandem_machine::ids::CpuId;

/// Actions after the present callback; usually none.
#[derive(Debug, Default)]
pub struct Pending {
    /// CPU and flags.
    kicks: Vec<(usize, u64)>,
    /// CPUs that must reschedule.
    reschedules: Vec<CpuId>,
    /// Queues, by position, whose tasks must be enqueued again: all of them, or those that must run at once
    /// and cannot.
    reenqueues: Vec<(usize, bool)>,
    /// The first error that the scheduler reported or made.
    complaint: Option<String>,
}

impl Pending {
    /// No actions; keeps an earlier complaint.
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

    /// A CPU must reschedule.
    #[inline]
    pub fn reschedule(&mut self, cpu: usize) {
        self.reschedules.push(CpuId::from(cpu));
    }

    /// Tasks of a queue must be enqueued again; a second request changes nothing.
    pub fn reenqueue(&mut self, position: usize, all: bool) {
        match self.reenqueues.iter_mut().find(|(other, _)| *other == position) {
            Some((_, all_of_it)) => *all_of_it |= all,
            None => self.reenqueues.push((position, all)),
        }
    }

    /// The scheduler made an error for which the kernel would unload it.
    pub fn complain(&mut self, message: impl Into<String>) {
        self.complaint.get_or_insert(message.into());
    }

    /// The kicks to carry out and then return to [`Pending::reuse_kicks`].
    pub fn take_kicks(&mut self) -> Vec<(usize, u64)> {
        std::mem::take(&mut self.kicks)
    }

    /// Keeps the memory of kicks that have been carried out.
    pub fn reuse_kicks(&mut self, mut kicks: Vec<(usize, u64)>) {
        kicks.clear();
        self.kicks = kicks;
    }

    /// Hands over the CPUs that must reschedule; returns their number.
    pub fn move_reschedules(&mut self, to: &mut Vec<CpuId>) -> usize {
        let count = self.reschedules.len();
        to.append(&mut self.reschedules);
        count
    }

    /// Hands over the queues whose tasks must be enqueued again, each with whether that means all of its
    /// tasks.
    pub fn take_reenqueues(&mut self) -> Vec<(usize, bool)> {
        std::mem::take(&mut self.reenqueues)
    }

    /// Hands over the scheduler's first error.
    pub fn take_complaint(&mut self) -> Option<String> {
        self.complaint.take()
    }
}
