//! The broker, which keeps the privileges that the agent has given up.
//!
//! The agent asks it. The broker checks each question ([`Question::checked`]), and has a reader read, through
//! a [`Guard`]. Of other users' processes it reads nothing itself except their owner.

use super::channel::{Channel, answer_all};
use super::guard::Guard;
use super::question::{ProcessFile, Question, What};
use crate::vms::told_by_kvm;
use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::{CoreSchedulingScope, core_scheduling_cookie, create_core_scheduling_cookie};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// How long the broker may take: longer than it waits for a reader.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// Longest answer to a request that is not about a file, bytes: two numbers for each of 8192 threads.
const TOLD_MAX_BYTES: u64 = 1 << 18;

/// A request to the broker.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Request {
    Read(Question),
    /// Whether a thread has a core scheduling cookie.
    HasCookie(u32),
    /// Gives all threads of a process a new cookie; the answer is the error's number, if there is one.
    GiveCookie(u32),
    /// Which threads of a process are vCPUs, according to KVM.
    VcpusOf(u32),
}

/// The agent's side of the broker.
#[derive(Debug)]
pub(super) struct Broker {
    /// `None` once it has ended: the agent cannot start another one.
    channel: Option<Channel>,
}

impl Broker {
    pub fn start(command: Command) -> io::Result<Self> {
        Ok(Self { channel: Some(Channel::start(command)?) })
    }

    pub fn is_lost(&self) -> bool {
        self.channel.is_none()
    }

    pub fn read(&mut self, question: Question) -> Option<Vec<u8>> {
        let max_bytes = question.max_bytes();
        self.ask(&Request::Read(question), max_bytes)
    }

    pub fn tell<Answer: DeserializeOwned>(&mut self, request: &Request) -> Option<Answer> {
        serde_json::from_slice(&self.ask(request, TOLD_MAX_BYTES)?).ok()
    }

    fn ask(&mut self, request: &Request, max_bytes: u64) -> Option<Vec<u8>> {
        let deadline = Instant::now() + ANSWER_MAX;
        let in_time =
            |_: &_| if Instant::now() < deadline { Ok(()) } else { Err(io::ErrorKind::TimedOut.into()) };
        let answer = self.channel.as_mut()?.ask(request, max_bytes, in_time);
        if answer.is_err() {
            self.channel = None;
        }
        answer.ok()?
    }
}

/// The broker's work: answers the agent until that has ended.
///
/// # Errors
/// If the agent is gone.
pub(super) fn serve(reader: fn() -> Command, gives_cookies: bool) -> io::Result<()> {
    let mut guard = Guard::new(reader);
    answer_all(|request| match request {
        Request::Read(question) => {
            let user = question.checked()?;
            if let What::Named { path, .. } = &question.what {
                let named = Question {
                    process: question.process.clone(),
                    what: What::OfProcess(ProcessFile::Cmdline),
                };
                contains(&guard.ask(&named, user)?, path.as_bytes()).then_some(())?;
            }
            guard.ask(&question, user)
        }
        Request::GiveCookie(_) if !gives_cookies => None,
        Request::HasCookie(thread) => serde_json::to_vec(&has_cookie(thread)).ok(),
        Request::GiveCookie(pid) => serde_json::to_vec(&give_cookie(pid).err().map(Errno::raw_os_error)).ok(),
        Request::VcpusOf(pid) => serde_json::to_vec(&told_by_kvm(Path::new("/"), pid)).ok(),
    })
}

/// Whether a command line contains this text.
fn contains(arguments: &[u8], text: &[u8]) -> bool {
    !text.is_empty() && arguments.windows(text.len()).any(|window| window == text)
}

/// Gives all threads of a process a new core scheduling cookie.
pub(super) fn give_cookie(process: u32) -> Result<(), Errno> {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
    create_core_scheduling_cookie(pid, CoreSchedulingScope::ThreadGroup)
}

/// Whether a thread has a core scheduling cookie; `None` if the kernel does not say.
pub(super) fn has_cookie(thread: u32) -> Option<bool> {
    let pid = i32::try_from(thread).ok().and_then(Pid::from_raw)?;
    match core_scheduling_cookie(pid, CoreSchedulingScope::Thread) {
        Ok(cookie) => Some(cookie != 0),
        // Without core scheduling, or on cores of one thread each, there are no cookies. A thread that is
        // gone has none.
        Err(Errno::INVAL | Errno::NODEV | Errno::SRCH) => Some(false),
        Err(_) => None,
    }
}
