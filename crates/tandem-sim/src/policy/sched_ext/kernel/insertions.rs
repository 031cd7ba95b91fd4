//! Insertions of programs into dispatch queues: a callback requests them, and they happen after it.

use super::super::callbacks::Callbacks;
use super::super::settings::KernelVersion;
use super::super::structures::field;
use super::super::types::{SCX_DSQ_LOCAL, SCX_ENQ_DSQ_PRIQ, SCX_ENQ_IMMED, SCX_OPS_ALWAYS_ENQ_IMMED, Task};
use super::pending::Pending;
use super::queues::Queues;
use super::run_queues::RunQueues;
use super::tasks::Custody;
use tandem_ebpf::State;
use tandem_machine::ids::TaskId;

/// Purpose of a running program, where functions of the kernel depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// `select_cpu` or `enqueue` of a task: it alone may be inserted, after the callback.
    Place(TaskId),
    /// `dispatch` on this CPU.
    Dispatch,
    /// A timer, whose callback may always start it again.
    Timer,
    /// `init_cids`, which may number the CPUs.
    NumberCids,
    /// Something else.
    Other,
}

/// An insertion that `dispatch` has requested.
#[derive(Clone, Copy, Debug)]
struct Insertion {
    task: TaskId,
    queue: u64,
    flags: u64,
}

/// What the present callback may insert, and its requests so far.
#[derive(Debug)]
pub struct Insertions {
    pub(super) purpose: Purpose,
    asked: Vec<Insertion>,
    version: KernelVersion,
    /// Most insertions of one `dispatch`.
    batch_max: usize,
    /// Every task that is inserted into a local queue must run at once.
    always_immediate: bool,
}

impl Insertions {
    pub fn new(version: KernelVersion, callbacks: &Callbacks) -> Self {
        Self {
            purpose: Purpose::Other,
            asked: Vec::new(),
            version,
            batch_max: callbacks.dispatch_max_batch,
            always_immediate: callbacks.has(SCX_OPS_ALWAYS_ENQ_IMMED),
        }
    }

    /// Number of insertions that `dispatch` may still request.
    pub fn left(&self) -> usize {
        self.batch_max.saturating_sub(self.asked.len())
    }

    /// Takes the last insertion back.
    pub fn cancel(&mut self) {
        self.asked.pop();
    }

    /// Notes the request to insert a task into a queue after the callback. False, with a complaint, if that
    /// is not allowed.
    pub fn ask(
        &mut self,
        run_queues: &mut RunQueues,
        state: &mut State,
        task: TaskId,
        [queue, slice, flags]: [u64; 3],
    ) -> bool {
        let RunQueues { tasks, pending, .. } = run_queues;
        let Some(flags) = self.vetted(pending, queue, flags) else { return false };
        let refusal = match self.purpose {
            Purpose::Place(placed) if placed != task => {
                Some("`enqueue` or `select_cpu` of another task inserted it")
            }
            Purpose::Place(_) if tasks[task].direct.is_some() => {
                Some("it was inserted twice, by `select_cpu` and `enqueue` or by one of them")
            }
            Purpose::Dispatch if self.left() == 0 => {
                Some("`dispatch` had inserted as many tasks as `dispatch_max_batch` allows")
            }
            Purpose::Timer | Purpose::NumberCids | Purpose::Other => {
                Some("it was inserted outside of `select_cpu`, `enqueue` and `dispatch`")
            }
            Purpose::Place(_) | Purpose::Dispatch => None,
        };
        if let Some(refusal) = refusal {
            pending.complain(format!("{} cannot be inserted: {refusal}", tasks.in_words(state, task)));
            return false;
        }
        let slice_ns = match slice {
            0 => tasks.slice_ns(state, task).max(1),
            slice => slice,
        };
        tasks.set_slice_ns(state, task, slice_ns);
        match self.purpose {
            Purpose::Dispatch => self.asked.push(Insertion { task, queue, flags }),
            _ => tasks[task].direct = Some((queue, flags)),
        }
        true
    }

    /// The same by virtual time.
    pub fn ask_by_vtime(
        &mut self,
        run_queues: &mut RunQueues,
        state: &mut State,
        task: TaskId,
        [queue, slice, vtime, flags]: [u64; 4],
    ) -> bool {
        let is_asked = self.ask(run_queues, state, task, [queue, slice, flags | SCX_ENQ_DSQ_PRIQ]);
        if is_asked {
            run_queues.tasks.set(state, task, field!(Task, scx.dsq_vtime), vtime);
        }
        is_asked
    }

    /// Carries out the requests of `dispatch` on a CPU; returns the number of insertions.
    pub fn carry_out(&mut self, run_queues: &mut RunQueues, state: &mut State, cpu: usize) -> usize {
        let count = self.asked.len();
        for Insertion { task, queue, flags } in self.asked.drain(..) {
            // It may have been dequeued, or inserted, meanwhile.
            if run_queues.tasks[task].custody == Custody::Scheduler {
                run_queues.tasks[task].custody = Custody::None;
                let position = run_queues.queue_named(queue, task, cpu);
                run_queues.join(state, task, position, flags);
            }
        }
        count
    }

    /// Moves the first task of a queue that may run on the CPU into its local queue, after earlier requests;
    /// returns whether there was one.
    pub fn consume(
        &mut self,
        run_queues: &mut RunQueues,
        state: &mut State,
        cpu: usize,
        [queue, flags]: [u64; 2],
    ) -> bool {
        if self.purpose != Purpose::Dispatch {
            run_queues.pending.complain("a queue was consumed outside of `dispatch`");
            return false;
        }
        self.carry_out(run_queues, state, cpu);
        let Some(flags) = self.vetted(&mut run_queues.pending, SCX_DSQ_LOCAL, flags) else { return false };
        match run_queues.queues.own(queue) {
            Some(position) => run_queues.move_first(state, position, cpu, flags),
            None => {
                run_queues.pending.complain(format!("there is no dispatch queue {queue:#x} to consume"));
                false
            }
        }
    }

    /// Moves a task from its queue into another one, which a program on a CPU has named
    /// (`scx_bpf_dsq_move()`). False, with a complaint, if it may not go there.
    pub fn move_to(
        &self,
        run_queues: &mut RunQueues,
        state: &mut State,
        cpu: usize,
        task: TaskId,
        [to, flags]: [u64; 2],
    ) -> bool {
        let Some(flags) = self.vetted(&mut run_queues.pending, to, flags) else { return false };
        let position = run_queues.queue_named(to, task, cpu);
        if run_queues.queues.is_local(position) && !run_queues.tasks.may_run(state, task, position) {
            let who = run_queues.tasks.in_words(state, task);
            let message = format!("{who} was moved to CPU {position}, where it may not run");
            run_queues.pending.complain(message);
            return false;
        }
        run_queues.leave_queue(state, task);
        run_queues.join(state, task, position, flags);
        true
    }

    /// The flags of an insertion that this kernel accepts; `None`, with a complaint, if it refuses them
    /// (`scx_vet_enq_flags()`).
    fn vetted(&self, pending: &mut Pending, queue: u64, flags: u64) -> Option<u64> {
        if self.version < KernelVersion::V7_3 {
            return Some(flags & !SCX_ENQ_IMMED);
        }
        match (flags & SCX_ENQ_IMMED != 0, Queues::names_local(queue)) {
            (true, false) => {
                let message = format!("SCX_ENQ_IMMED was given for the dispatch queue {queue:#x} of no CPU");
                pending.complain(message);
                None
            }
            (false, true) if self.always_immediate => Some(flags | SCX_ENQ_IMMED),
            _ => Some(flags),
        }
    }
}
