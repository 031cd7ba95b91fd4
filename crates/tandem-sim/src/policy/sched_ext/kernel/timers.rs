//! Timers of programs, and tasks that enter a queue a moment after they have run: both are alarms of the
//! policy, with tokens.

use super::number_map::NumberMap;
use tandem_machine::ids::TaskId;

/// Timers and returns to come.
#[derive(Debug)]
pub struct Timers {
    /// The token of each timer that has been started, by its address, and the other way round.
    tokens: NumberMap<u64, u32>,
    armed: NumberMap<u32, u64>,
    next_token: u32,
    /// Tasks that have run and will enter a queue, by token.
    returning: Vec<(u32, TaskId)>,
    /// Alarms to set: time, ns, and token.
    alarms: Vec<(u64, u32)>,
}

impl Timers {
    /// No timers; tokens start at this number.
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

    /// Starts the timer at an address, or restarts it.
    pub fn start(&mut self, timer: u64, at_ns: u64) {
        self.cancel(timer);
        let token = self.set_alarm(at_ns);
        self.tokens.insert(timer, token);
        self.armed.insert(token, timer);
    }

    /// Stops a timer; returns whether it was pending.
    pub fn cancel(&mut self, timer: u64) -> bool {
        let token = self.tokens.remove(&timer);
        token.is_some_and(|token| self.armed.remove(&token).is_some())
    }

    /// The timer of an alarm that has expired; `None` if the timer has been stopped or restarted since.
    pub fn expire(&mut self, token: u32) -> Option<u64> {
        let timer = self.armed.remove(&token)?;
        self.tokens.remove(&timer);
        Some(timer)
    }

    /// Lets a task return to a queue at that time.
    pub fn return_at(&mut self, at_ns: u64, task: TaskId) {
        let token = self.set_alarm(at_ns);
        self.returning.push((token, task));
    }

    /// Takes the task that returns at this alarm.
    pub fn returned(&mut self, token: u32) -> Option<TaskId> {
        let at = self.returning.iter().position(|&(other, _)| other == token)?;
        Some(self.returning.swap_remove(at).1)
    }

    /// Whether a task returns at this alarm.
    pub fn is_return(&self, token: u32) -> bool {
        self.returning.iter().any(|&(returns, _)| returns == token)
    }

    /// Cancels the return of a task, if one is due.
    pub fn forget(&mut self, task: TaskId) {
        self.returning.retain(|&(_, other)| other != task);
    }

    /// Whether there are alarms to set.
    #[inline]
    pub fn has_alarms(&self) -> bool {
        !self.alarms.is_empty()
    }

    /// Takes the alarms to set: time, ns, and token.
    pub fn take_alarms(&mut self) -> impl Iterator<Item = (u64, u32)> + '_ {
        self.alarms.drain(..)
    }
}
