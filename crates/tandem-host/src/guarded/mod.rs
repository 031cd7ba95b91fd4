//! Reads files that may never answer, and keeps the right to read them apart from who serves users.
//!
//! **Problem.** Some files of a process wait for its memory: `/proc/PID/cmdline`, `maps` and `numa_maps`. Whoever backs a page of it with a
//! file system of its own (FUSE), and does not answer, holds up all who read them, and a file that a stranger has named may be on such a
//! file system itself. A thread that waits there cannot be ended. And to read them of other users' processes takes `CAP_SYS_PTRACE`, with
//! which one may write into any process.
//!
//! **Approach.** They are read by a helper, a *reader*, which has a pipe for questions and one for answers, and a [filter] that
//! leaves it nothing but reading. One that is seen to wait within the kernel for too long is killed and left, another one takes its place, and
//! the user in question is not asked about for a while: a minute, then two, up to an hour. So a hostile user costs others some seconds,
//! ever more rarely. One that could run and has no CPU is waited for much longer: that is nobody's doing.
//!
//! Commands ask a reader themselves ([`guard_with`]). The agent, which serves users and parses what they write, gives up all rights; it asks a
//! *broker* ([`delegate_to`]) that has kept them, and checks what it is asked: three files of any process, and those that a process's command
//! line names and its user may read. Whoever has neither, as tests and libraries, reads directly.
//!
//! **Limits.** One file at a time. A killed reader that does not end keeps its memory; [`LEFT_MAX`] of them are left at most, and nothing
//! is read beyond that. Without its broker the agent has to end: [`is_lost`].

mod broker;
mod channel;
pub mod filter;
mod guard;
mod question;

pub use channel::{Channel, answer_all};
pub use guard::LEFT_MAX;
pub use question::ProcessFile;

use crate::vms::told_by_kvm;
use broker::{Broker, Request};
use filter::{Duty, confine_to};
use guard::Guard;
use question::{Question, What};
use rustix::io::Errno;
use std::io;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Reads a file of a process of that user, by its directory in `/proc`: the start of it, as far as such a file is of use.
pub fn read_of_process(process: &Path, file: ProcessFile, user: u32) -> Option<Vec<u8>> {
    ask(Question { process: process.to_owned(), what: What::OfProcess(file) }, user)
}

/// Longest path that the kernel follows, bytes: `PATH_MAX`.
const PATH_MAX_BYTES: usize = 4096;

/// Reads a file that a process of `user` has named, from a folder on: [`read_file`](crate::untrusted::read_file).
pub fn read_named(process: &Path, start: &Path, path: &str, user: u32) -> Option<Vec<u8>> {
    if path.len() > PATH_MAX_BYTES {
        return None;
    }
    let what = What::Named { start: start.to_owned(), path: path.to_owned(), user };
    ask(Question { process: process.to_owned(), what }, user)
}

/// Whether a thread has a cookie of core scheduling; nothing if the kernel does not tell.
pub fn has_cookie(thread: u32) -> Option<bool> {
    match &mut *lock() {
        Some(Way::Broker(broker)) => broker.tell(&Request::HasCookie(thread))?,
        _ => broker::has_cookie(thread),
    }
}

/// Gives all threads of a process a new cookie of core scheduling, which nobody else has. It stays with them to their end.
///
/// # Errors
/// If the process is gone, may not be traced, or the kernel has no core scheduling.
pub fn give_cookie(process: u32) -> Result<(), Errno> {
    match &mut *lock() {
        Some(Way::Broker(broker)) => match broker.tell::<Option<i32>>(&Request::GiveCookie(process)) {
            Some(None) => Ok(()),
            Some(Some(error)) => Err(Errno::from_raw_os_error(error)),
            None => Err(Errno::PIPE),
        },
        _ => broker::give_cookie(process),
    }
}

/// Numbers of a process's vCPUs with those of their threads, as far as KVM tells: `/sys/kernel/debug` is root's.
pub fn vcpus_told_by_kvm(root: &Path, pid: u32) -> Vec<(u32, u32)> {
    match &mut *lock() {
        Some(Way::Broker(broker)) => broker.tell(&Request::VcpusOf(pid)).unwrap_or_default(),
        _ => told_by_kvm(root, pid),
    }
}

/// From now on such files are read by a helper, which this starts: a process that calls [`serve`].
pub fn guard_with(reader: fn() -> Command) {
    *lock() = Some(Way::Reader(Guard::new(reader)));
}

/// From now on a broker is asked, which this starts: a process that calls [`serve_as_broker`]. Who starts it may give up the right to
/// trace processes then.
///
/// # Errors
/// If it cannot be started.
pub fn delegate_to(broker: Command) -> io::Result<()> {
    *lock() = Some(Way::Broker(Broker::start(broker)?));
    Ok(())
}

/// Whether a broker is asked, which has the right to look at all processes.
pub fn is_delegated() -> bool {
    matches!(&*lock(), Some(Way::Broker(_)))
}

/// Whether there was a broker, and it has ended: nothing can be read any more.
pub fn is_lost() -> bool {
    matches!(&*lock(), Some(Way::Broker(broker)) if broker.is_lost())
}

/// Answers questions on standard input until it is closed: what a reader does.
///
/// # Errors
/// If who asks is gone.
pub fn serve() -> io::Result<()> {
    confine_to(Duty::Read)?;
    answer_all(|question: Question| question.answer())
}

/// Answers the agent until it has ended: what a broker does, by readers that are started so. `gives_cookies`: it keeps processes apart that
/// the agent names.
///
/// # Errors
/// If the agent is gone.
pub fn serve_as_broker(reader: fn() -> Command, gives_cookies: bool) -> io::Result<()> {
    broker::serve(reader, gives_cookies)
}

/// Who reads.
enum Way {
    Reader(Guard),
    Broker(Broker),
}

static WAY: Mutex<Option<Way>> = Mutex::new(None);

fn lock() -> MutexGuard<'static, Option<Way>> {
    // Each question leaves it whole, or without a helper.
    WAY.lock().unwrap_or_else(PoisonError::into_inner)
}

fn ask(question: Question, user: u32) -> Option<Vec<u8>> {
    match &mut *lock() {
        None => question.answer(),
        Some(Way::Reader(guard)) => guard.ask(&question, user),
        Some(Way::Broker(broker)) => broker.read(question),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_helper_files_are_read_directly() {
        let own = Path::new("/proc/self");
        assert!(read_of_process(own, ProcessFile::Cmdline, 0).is_some_and(|bytes| !bytes.is_empty()));
        assert_eq!(read_of_process(Path::new("/proc/none"), ProcessFile::Cmdline, 0), None);
        assert!(!is_delegated() && !is_lost());
    }
}
