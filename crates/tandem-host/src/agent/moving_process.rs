//! Moves pages in a process of its own, which has the privilege, and which the agent can do without.
//!
//! A user can hold the lock of an address space with a file system of their own, and thereby block, within
//! the kernel, a process that moves its pages. Here that process is a helper, which nothing has to wait for.

use super::pages::{KernelPages, Pages, Status, status_of};
use crate::guarded::filter::{Duty, confine_to};
use crate::guarded::{Channel, answer_all};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::io;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// Longest answer, bytes: a status for each of some thousand pages.
const ANSWER_MAX_BYTES: u64 = 1 << 20;

/// A request about the pages of a process at these addresses: locate them, or move them to a node.
#[derive(Serialize, Deserialize)]
struct Question {
    pid: u32,
    addresses: Vec<u64>,
    node: Option<u32>,
}

/// The result: a status for each page, a node or a negative error number, and the error of the whole call.
#[derive(Serialize, Deserialize)]
struct Answer {
    statuses: Vec<i32>,
    error: Option<i32>,
}

/// Reaches the pages of this machine through a helper.
pub struct PagesByHelper {
    /// `None` once the helper has ended.
    channel: Mutex<Option<Channel>>,
}

impl PagesByHelper {
    /// Starts the helper: a process that calls [`serve_moves`].
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(helper: Command) -> io::Result<Self> {
        Ok(Self { channel: Mutex::new(Some(Channel::start(helper)?)) })
    }

    fn ask(&self, question: &Question, statuses: &mut Vec<Status>) -> Result<(), Errno> {
        let mut channel = self.channel.lock().unwrap_or_else(PoisonError::into_inner);
        // There is no time limit: only the thread that moves memory waits for it.
        let asked = channel.as_mut().map(|helper| helper.ask(question, ANSWER_MAX_BYTES, |_| Ok(())));
        let answer = match asked {
            Some(Ok(Some(bytes))) => serde_json::from_slice::<Answer>(&bytes).ok(),
            _ => None,
        };
        let Some(answer) = answer else {
            *channel = None;
            return Err(Errno::PIPE);
        };
        *statuses = answer.statuses.into_iter().map(status_of).collect();
        statuses.resize(question.addresses.len(), Err(Errno::BUSY));
        answer.error.map_or(Ok(()), |error| Err(Errno::from_raw_os_error(error)))
    }
}

impl Pages for PagesByHelper {
    fn locate(&self, pid: u32, addresses: &[u64]) -> Result<Vec<Status>, Errno> {
        let mut statuses = Vec::new();
        self.ask(&Question { pid, addresses: addresses.to_vec(), node: None }, &mut statuses)?;
        Ok(statuses)
    }

    fn transfer(
        &self,
        pid: u32,
        addresses: &[u64],
        node: u32,
        statuses: &mut Vec<Status>,
    ) -> Result<(), Errno> {
        self.ask(&Question { pid, addresses: addresses.to_vec(), node: Some(node) }, statuses)
    }
}

impl Drop for PagesByHelper {
    fn drop(&mut self) {
        let channel = self.channel.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(helper) = channel {
            // A helper that waits within the kernel ends as soon as the kernel lets it.
            let _ = helper.child.kill();
            let _ = helper.child.try_wait();
        }
    }
}

/// The helper's work: moves pages until standard input is closed.
///
/// # Errors
/// If the requester is gone, or a request is malformed.
pub fn serve_moves() -> io::Result<()> {
    confine_to(Duty::Move)?;
    answer_all(|question: Question| {
        let Question { pid, addresses, node } = question;
        let mut statuses = Vec::new();
        let done = match node {
            Some(node) => KernelPages.transfer(pid, &addresses, node, &mut statuses),
            None => KernelPages.locate(pid, &addresses).map(|found| statuses = found),
        };
        let number = |status: &Status| match status {
            Ok(node) => i32::try_from(*node).unwrap_or(i32::MAX),
            Err(error) => -error.raw_os_error(),
        };
        let statuses = statuses.iter().map(number).collect();
        serde_json::to_vec(&Answer { statuses, error: done.err().map(Errno::raw_os_error) }).ok()
    })
}
