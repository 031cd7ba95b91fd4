//! How far a task has come in its program.

use crate::engine::random::{Entity, Stream};
use crate::program::channel::{Message, Request, Token};
use crate::program::code::Instruction;
use crate::program::{Amount, LOOP_DEPTH_MAX};
use std::sync::Arc;

/// The run of a task's program.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    code: Arc<[Instruction]>,
    next_instruction: u32,
    loops: [u64; LOOP_DEPTH_MAX],
    random: Stream,
    /// Whether it is in the middle of a burst of work.
    in_burst: bool,
    /// Work left of the current burst, ns.
    pub work_left_ns: u64,
    request: Option<Request>,
    /// A message that it got while it was blocked, and that it has not read yet.
    unread: Option<Message>,
    timer_started_ns: u64,
    /// Whether its timer was started, and not stopped since.
    is_timing: bool,
    /// Tokens that it took at once and has not answered.
    tokens_taken: u32,
}

impl Run {
    /// At the start of the program. Its random numbers are those of `random_key` under the seed.
    pub fn new(code: Arc<[Instruction]>, seed: u64, random_key: u64) -> Self {
        Self {
            code,
            next_instruction: 0,
            loops: [0; LOOP_DEPTH_MAX],
            random: Stream::new(seed, Entity::Task, random_key),
            in_burst: false,
            work_left_ns: 0,
            request: None,
            unread: None,
            timer_started_ns: 0,
            is_timing: false,
            tokens_taken: 0,
        }
    }

    /// The program.
    pub fn code(&self) -> &[Instruction] {
        &self.code
    }

    /// Begins another program.
    pub fn exec(&mut self, code: Arc<[Instruction]>) {
        self.code = code;
        self.next_instruction = 0;
    }

    /// The next instruction; the one after it comes next.
    #[inline]
    pub fn fetch(&mut self) -> Instruction {
        let instruction = self.code[self.next_instruction as usize];
        self.next_instruction += 1;
        instruction
    }

    /// The instruction that was fetched last comes again.
    pub fn retry(&mut self) {
        self.next_instruction -= 1;
    }

    /// This instruction comes next.
    #[inline]
    pub fn jump(&mut self, to: u32) {
        self.next_instruction = to;
    }

    /// Begins a loop of so many rounds, which ends there.
    #[inline]
    pub fn start_loop(&mut self, depth: u8, times: u64, end: u32) {
        self.loops[depth as usize] = times;
        if times == 0 {
            self.next_instruction = end;
        }
    }

    /// A round of a loop is over; it goes on with its body unless that was the last.
    #[inline]
    pub fn end_round(&mut self, depth: u8, body: u32) {
        let left = &mut self.loops[depth as usize];
        *left -= 1;
        if *left > 0 {
            self.next_instruction = body;
        }
    }

    /// Lets the program end as soon as it runs: what it had before that is skipped.
    pub fn cut_short(&mut self) {
        self.work_left_ns = 0;
        self.next_instruction = self.code.len() as u32 - 1;
        debug_assert_eq!(self.code.last(), Some(&Instruction::Exit), "every program ends");
    }

    /// Draws an amount, ns.
    #[inline]
    pub fn draw(&mut self, amount: Amount) -> u64 {
        self.random.draw(amount)
    }

    /// Begins a burst of work.
    #[inline]
    pub fn begin_burst(&mut self, work_ns: u64) {
        self.in_burst = true;
        self.work_left_ns = work_ns;
    }

    /// Ends the burst of work; whether there was one.
    #[inline]
    pub fn end_burst(&mut self) -> bool {
        self.work_left_ns = 0;
        std::mem::take(&mut self.in_burst)
    }

    /// Gets a token for which it has waited. To read a message, it goes back to its wait.
    pub fn receive(&mut self, token: Token) {
        self.request = None;
        match token {
            Token::Signal => {}
            Token::Request(request) => self.request = Some(request),
            Token::Message(message) => {
                self.unread = Some(message);
                self.retry();
            }
        }
    }

    /// Takes a token without having to wait. Returns its message, to be read at once.
    pub fn take(&mut self, token: Token) -> Option<Message> {
        self.request = None;
        match token {
            Token::Signal => None,
            Token::Request(request) => {
                self.request = Some(request);
                None
            }
            Token::Message(message) => Some(message),
        }
    }

    /// The message that came while it was blocked, to be read now.
    pub fn take_unread(&mut self) -> Option<Message> {
        self.unread.take()
    }

    /// The request that it answers now.
    pub fn take_request(&mut self) -> Option<Request> {
        self.request.take()
    }

    /// It has taken so many tokens at once, which it answers together.
    pub fn took(&mut self, tokens: u32) {
        self.tokens_taken = tokens;
    }

    /// The tokens that it answers now.
    pub fn take_tokens(&mut self) -> u32 {
        std::mem::take(&mut self.tokens_taken)
    }

    pub fn start_timer(&mut self, now_ns: u64) {
        self.timer_started_ns = now_ns;
        self.is_timing = true;
    }

    /// Stops its timer: the time since it was started, ns.
    pub fn stop_timer(&mut self, now_ns: u64) -> u64 {
        self.is_timing = false;
        now_ns - self.timer_started_ns
    }

    /// When what it has not answered began, ns: a request that it took, and the time that it measures itself.
    pub fn unanswered_since_ns(&self) -> impl Iterator<Item = u64> + use<> {
        let timed_ns = self.is_timing.then_some(self.timer_started_ns);
        self.request.map(|request| request.arrived_ns).into_iter().chain(timed_ns)
    }
}
