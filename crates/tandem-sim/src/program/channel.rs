//! Channels: tokens that tasks wait for, some of which stand for requests. A channel that tasks send to is a
//! pipe, which holds a limited number of tokens.

use std::collections::VecDeque;
use tandem_machine::ids::{CpuId, TaskId};

/// A client's request, until its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// When it arrived, ns.
    pub arrived_ns: u64,
    /// The interrupt source, over all VMs, that it came from.
    pub source: u32,
}

/// Cache lines of a message, in the cache of the sender's pCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    /// The pCPU where it was sent.
    pub sent_on: CpuId,
    pub lines: u32,
}

/// An element of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// A task's signal, or a message of which only the arrival matters.
    Signal,
    Message(Message),
    Request(Request),
}

/// A channel of a VM.
#[derive(Clone, Debug)]
pub(crate) struct Channel {
    /// Tokens that no task has taken, oldest first.
    tokens: VecDeque<Token>,
    /// Tasks that wait for a token, longest wait first.
    waiting: VecDeque<TaskId>,
    /// Senders that found it full, longest wait first.
    senders: VecDeque<TaskId>,
    /// Number of tokens at which all senders are woken; `None`: one sender for each token that is taken.
    resume_at: Option<u32>,
    /// The task that took a token last; interrupts go to the CPU where it was.
    pub last_taker: TaskId,
    /// Cache lines of the channel itself; senders set the number.
    pub queue_lines: u32,
    /// The pCPU where its lines are.
    queue_at: Option<CpuId>,
}

impl Channel {
    pub fn new(first_taker: TaskId) -> Self {
        Self {
            tokens: VecDeque::new(),
            waiting: VecDeque::new(),
            senders: VecDeque::new(),
            resume_at: None,
            last_taker: first_taker,
            queue_lines: 0,
            queue_at: None,
        }
    }

    /// Moves the lines of the channel itself to a pCPU; returns where they were.
    pub fn move_queue(&mut self, to: CpuId) -> Option<CpuId> {
        self.queue_at.replace(to)
    }

    /// Takes a token for the task; if there is none, adds the task to those that wait and returns `None`.
    pub fn take(&mut self, task: TaskId) -> Option<Token> {
        let token = self.take_present(task);
        if token.is_none() {
            self.waiting.push_back(task);
        }
        token
    }

    /// Takes a token for the task, if there is one.
    pub fn take_present(&mut self, task: TaskId) -> Option<Token> {
        let token = self.tokens.pop_front()?;
        self.last_taker = task;
        Some(token)
    }

    /// Adds a token. Returns the waiting task that gets it at once, if there is one, to be woken.
    pub fn put(&mut self, token: Token) -> Option<TaskId> {
        let taker = self.waiting.pop_front();
        match taker {
            Some(task) => self.last_taker = task,
            None => self.tokens.push_back(token),
        }
        taker
    }

    /// Requests that nobody has taken.
    pub fn requests(&self) -> impl Iterator<Item = Request> + '_ {
        self.tokens.iter().filter_map(|token| match token {
            Token::Request(request) => Some(*request),
            Token::Signal | Token::Message(_) => None,
        })
    }

    /// How many tokens nobody has taken.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether a token may be sent; if not, adds the task to the senders, to be woken and to try again.
    pub fn has_room(&mut self, capacity: u32, resume_at: Option<u32>, task: TaskId) -> bool {
        let has_room = self.tokens.len() < capacity as usize;
        if !has_room {
            self.senders.push_back(task);
            self.resume_at = resume_at;
        }
        has_room
    }

    /// How many senders to wake after a token was taken.
    pub fn senders_to_wake(&self) -> usize {
        match self.resume_at {
            None => self.senders.len().min(1),
            Some(tokens) if self.tokens.len() <= tokens as usize => self.senders.len(),
            Some(_) => 0,
        }
    }

    /// Removes the sender that has waited longest.
    pub fn next_sender(&mut self) -> Option<TaskId> {
        self.senders.pop_front()
    }

    /// Tasks that wait for a token.
    pub fn waiting(&self) -> impl Iterator<Item = TaskId> + '_ {
        self.waiting.iter().copied()
    }

    /// Tasks that wait until it has room.
    pub fn senders(&self) -> impl Iterator<Item = TaskId> + '_ {
        self.senders.iter().copied()
    }

    /// The task that the next token would probably go to.
    pub fn likely_taker(&self) -> TaskId {
        self.waiting.front().copied().unwrap_or(self.last_taker)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_and_waiting_tasks_meet_in_order() {
        let mut channel = Channel::new(TaskId(9));
        assert_eq!(channel.likely_taker(), TaskId(9));
        assert_eq!(channel.take(TaskId(1)), None);
        assert_eq!(channel.take(TaskId(2)), None);
        assert_eq!(channel.put(Token::Signal), Some(TaskId(1)));
        assert_eq!(channel.put(Token::Signal), Some(TaskId(2)));
        let request = Token::Request(Request { arrived_ns: 5, source: 0 });
        assert_eq!(channel.put(request), None);
        assert_eq!(channel.put(Token::Signal), None);
        assert_eq!(channel.take(TaskId(1)), Some(request));
        assert_eq!(channel.take(TaskId(3)), Some(Token::Signal));
        assert_eq!(channel.likely_taker(), TaskId(3));
    }

    #[test]
    fn tokens_stay_small() {
        assert_eq!(size_of::<Token>(), 24, "a request with what tells that it is one");
    }

    #[test]
    fn a_full_pipe_holds_up_its_senders() {
        let mut pipe = Channel::new(TaskId(0));
        assert!(pipe.has_room(1, None, TaskId(1)));
        assert_eq!(pipe.put(Token::Signal), None);
        assert!(!pipe.has_room(1, None, TaskId(1)));
        assert!(!pipe.has_room(1, None, TaskId(3)));
        assert_eq!(pipe.take(TaskId(2)), Some(Token::Signal));
        assert_eq!(pipe.senders_to_wake(), 1, "there is room for one");
        assert_eq!(pipe.next_sender(), Some(TaskId(1)));
        assert!(pipe.has_room(1, None, TaskId(1)));
    }

    #[test]
    fn senders_may_wait_until_there_is_much_room() {
        let mut socket = Channel::new(TaskId(0));
        for _ in 0..4 {
            assert!(socket.has_room(4, Some(1), TaskId(1)));
            socket.put(Token::Signal);
        }
        assert!(!socket.has_room(4, Some(1), TaskId(1)));
        assert!(!socket.has_room(4, Some(1), TaskId(2)));
        let woken: Vec<_> = (0..4)
            .map(|_| {
                socket.take(TaskId(9));
                socket.senders_to_wake()
            })
            .collect();
        assert_eq!(woken, [0, 0, 2, 2], "all of them, once one token is left");
    }
}
