//! Timers of programs, and tasks that come into a queue a moment after they have run: both are alarms of the
//! policy's, with tokens.

use super::number_map::NumberMap;
use tandem_machine::ids::TaskId;

/// What is to happen later.
#[derive(Debug)]
pub struct Timers {
    /// The token of each timer that has been started, by its address, and the other way round.
    tokens: NumberMap<u64, u32>,
    armed: NumberMap<u32, u64>,
    next_token: u32,
    /// Tasks that have run and are yet to be put into a queue, by token.
    returning: Vec<(u32, TaskId)>,
    /// Alarms to be set: when, ns, and token.
    alarms: Vec<(u64, u32)>,
}

impl Timers {
    /// None, after so many tokens that have been used.
    pub fn new(next_token: u32) -> Self {
        Self {
            tokens: NumberMap::default(),
            armed: NumberMap::default(),
            next_token,
            returning: Vec::new(),
            alarms: Vec::new(),
        }
    }

    pub fn next_token(&self) -> u32 {
        self.next_token
    }

    fn set_alarm(&mut self, at_ns: u64) -> u32 {
        let token = self.next_token;
        self.next_token = token.wrapping_add(1);
        self.alarms.push((at_ns, token));
        token
    }

    /// Starts a timer, which has an address, or starts it anew.
    pub fn start(&mut self, timer: u64, at_ns: u64) {
        self.cancel(timer);
        let token = self.set_alarm(at_ns);
        self.tokens.insert(timer, token);
        self.armed.insert(token, timer);
    }

    /// Stops a timer; whether it was going to expire.
    pub fn cancel(&mut self, timer: u64) -> bool {
        let token = self.tokens.remove(&timer);
        token.is_some_and(|token| self.armed.remove(&token).is_some())
    }

    /// The timer whose alarm has come; `None` if it has been stopped, or started anew, since.
    pub fn expire(&mut self, token: u32) -> Option<u64> {
        let timer = self.armed.remove(&token)?;
        self.tokens.remove(&timer);
        Some(timer)
    }

    /// Lets a task return at that time.
    pub fn return_at(&mut self, at_ns: u64, task: TaskId) {
        let token = self.set_alarm(at_ns);
        self.returning.push((token, task));
    }

    /// Takes the task that returns at the alarm.
    pub fn returned(&mut self, token: u32) -> Option<TaskId> {
        let at = self.returning.iter().position(|&(other, _)| other == token)?;
        Some(self.returning.swap_remove(at).1)
    }

    /// Whether a task returns at the alarm.
    pub fn is_return(&self, token: u32) -> bool {
        self.returning.iter().any(|&(returns, _)| returns == token)
    }

    /// A task does not return any longer, if it was to.
    pub fn forget(&mut self, task: TaskId) {
        self.returning.retain(|&(_, other)| other != task);
    }

    /// Whether there are alarms to be set.
    #[inline]
    pub fn has_alarms(&self) -> bool {
        !self.alarms.is_empty()
    }

    /// Takes the alarms that are to be set: when, ns, and token.
    pub fn take_alarms(&mut self) -> impl Iterator<Item = (u64, u32)> + '_ {
        self.alarms.drain(..)
    }
}
