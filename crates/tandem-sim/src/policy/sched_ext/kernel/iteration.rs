//! Iterations of programs over dispatch queues (`bpf_iter_scx_dsq_*`), and moves out of them.

use super::super::structures::field;
use super::super::types::{SCX_DSQ_ITER_REV, SCX_ENQ_DSQ_PRIQ, Task};
use super::queue::QueueKey;
use super::queues::Queues;
use super::run_queues::RunQueues;
use super::tasks::Tasks;
use tandem_ebpf::{Fault, State};
use tandem_machine::ids::TaskId;

const ENOENT: i64 = -2;
const EINVAL: i64 = -22;

/// Words of an iteration over a queue (`struct bpf_iter_scx_dsq`, six of them): the queue's position + 1 or 0
/// and the arrivals when it began, flags and the index of the last task in the queue, the key of that task,
/// and the values that the next move gives it.
mod words {
    pub const QUEUE: u64 = 0;
    pub const FLAGS: u64 = 8;
    pub const SLICE: u64 = 32;
    pub const VTIME: u64 = 40;
    /// The lower half of the word is the position of the queue.
    pub const POSITION_BITS: u32 = 24;
    pub const STARTED: u64 = 1;
    pub const BACKWARDS: u64 = 2;
    pub const HAS_SLICE: u64 = 4;
    pub const HAS_VTIME: u64 = 8;
    /// The rest of the word is the index of the last task.
    pub const FLAG_BITS: u32 = 4;
}

/// An iteration, identified by the address at which a program keeps it.
#[derive(Clone, Copy, Debug)]
pub struct Iteration(pub u64);

impl Iteration {
    /// Begins it; 0, or an error number.
    pub fn begin(self, queues: &Queues, state: &mut State, queue: u64, flags: u64) -> Result<u64, Fault> {
        let noted = state.memory.slice_mut(self.0, 48)?.as_chunks_mut().0;
        let noted: &mut [[u8; 8]; 6] = noted.first_chunk_mut().expect("these are six words");
        *noted = [[0; 8]; 6];
        if flags & !SCX_DSQ_ITER_REV != 0 {
            return Ok(EINVAL as u64);
        }
        let Some(position) = queues.own(queue) else { return Ok(ENOENT as u64) };
        let began = (queues[position].arrivals() as u64) << words::POSITION_BITS;
        let backwards = if flags != 0 { words::BACKWARDS } else { 0 };
        noted[words::QUEUE as usize / 8] = (began | (position as u64 + 1)).to_le_bytes();
        noted[words::FLAGS as usize / 8] = backwards.to_le_bytes();
        Ok(0)
    }

    /// The address of the next task; 0 if there is none.
    #[inline]
    pub fn next(self, queues: &mut Queues, tasks: &Tasks, state: &mut State) -> Result<u64, Fault> {
        // The queue, the flags, and the key.
        let noted = state.memory.slice_mut(self.0 + words::QUEUE, 32)?.as_chunks_mut().0;
        let noted: &mut [[u8; 8]; 4] = noted.first_chunk_mut().expect("these are four words");
        let [queue, flags, vtime, arrival] = noted.map(u64::from_le_bytes);
        let Some((position, began)) = iterated(queues, queue) else { return Ok(0) };
        let after = (flags & words::STARTED != 0).then(|| {
            let index = (flags >> words::FLAG_BITS) as usize;
            (index, QueueKey::from_words([vtime, arrival]))
        });
        let next = queues[position].next(after, flags & words::BACKWARDS != 0, began);
        let Some((index, place, task)) = next else { return Ok(0) };
        // From the last task to this one; for the first one, all before it.
        let backwards = flags & words::BACKWARDS != 0;
        let start = if backwards { queues[position].len() } else { 0 };
        let step = match after {
            Some((last, _)) => index.abs_diff(last).max(1),
            None if backwards => start - index,
            None => index + 1,
        };
        queues.visit(position, step);
        let flags =
            flags & ((1 << words::FLAG_BITS) - 1) | words::STARTED | (index as u64) << words::FLAG_BITS;
        let [vtime, arrival] = place.to_words();
        *noted = [queue, flags, vtime, arrival].map(u64::to_le_bytes);
        Ok(tasks[task].address)
    }

    /// Notes the slice, or the virtual time, for the next task that the iteration moves.
    pub fn note(self, state: &mut State, value: u64, vtime: bool) -> Result<u64, Fault> {
        let (at, flag) = match vtime {
            true => (words::VTIME, words::HAS_VTIME),
            false => (words::SLICE, words::HAS_SLICE),
        };
        let flags = state.memory.load(self.0 + words::FLAGS, 8)?;
        state.memory.store(self.0 + words::FLAGS, 8, flags | flag)?;
        state.memory.store(self.0 + at, 8, value)?;
        Ok(0)
    }

    /// A program moves a task of the iteration's queue, by virtual time or not: sets the noted values of the
    /// task, and returns it with the flags of the move. `None` if it has left the queue.
    pub fn prepare_move(
        self,
        run_queues: &RunQueues,
        state: &mut State,
        task: u64,
        (flags, vtime): (u64, bool),
    ) -> Result<Option<(TaskId, u64)>, Fault> {
        let queue = state.memory.load(self.0 + words::QUEUE, 8)?;
        let Some((from, _)) = iterated(&run_queues.queues, queue) else { return Ok(None) };
        let tasks = &run_queues.tasks;
        let task = tasks.at(state, task)?;
        let noted = state.memory.load(self.0 + words::FLAGS, 8)?;
        if !run_queues.is_in_queue(task, from) {
            return Ok(None);
        }
        if noted & words::HAS_SLICE != 0 {
            let slice_ns = state.memory.load(self.0 + words::SLICE, 8)?;
            tasks.set_slice_ns(state, task, slice_ns);
        }
        if noted & words::HAS_VTIME != 0 {
            let vtime = state.memory.load(self.0 + words::VTIME, 8)?;
            tasks.set(state, task, field!(Task, scx.dsq_vtime), vtime);
        }
        let used = words::HAS_SLICE | words::HAS_VTIME;
        state.memory.store(self.0 + words::FLAGS, 8, noted & !used)?;
        let flags = if vtime { flags | SCX_ENQ_DSQ_PRIQ } else { flags & !SCX_ENQ_DSQ_PRIQ };
        Ok(Some((task, flags)))
    }
}

/// The queue of an iteration, by position, and the arrivals when it began.
#[inline]
fn iterated(queues: &Queues, word: u64) -> Option<(usize, i64)> {
    let position = ((word & ((1 << words::POSITION_BITS) - 1)) as usize).checked_sub(1)?;
    let began = (word >> words::POSITION_BITS) as i64;
    queues.has(position).then_some((position, began))
}
