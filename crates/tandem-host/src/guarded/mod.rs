//! Reads files that may never answer, and separates the privilege to read them from the process that serves
//! users.
//!
//! **Problem.** Some files of a process wait for its memory: `/proc/PID/cmdline`, `maps` and `numa_maps`. A
//! user who backs a page of that memory with a file system of their own (FUSE) which does not answer blocks
//! every reader of these files; a file that an untrusted user has named may be on such a file system itself.
//! A thread that waits there cannot be ended. And reading these files of other users' processes takes
//! `CAP_SYS_PTRACE`, which also allows writing into any process.
//!
//! **Approach.** A helper, the *reader*, reads them. It has a pipe for questions and one for answers, and a
//! [filter] that leaves it nothing but reading. A reader that waits within the kernel for too long is killed
//! and left behind, another one replaces it, and the user in question gets no questions for a while: a
//! minute, then two, up to an hour. So a hostile user costs others some seconds, ever more rarely. A reader
//! that could run but gets no CPU has much longer: that is not the user's fault.
//!
//! Commands ask a reader directly ([`guard_with`]). The agent, which serves users and parses what they write,
//! gives up all privileges. It asks a *broker* ([`delegate_to`]), which has kept them and checks each
//! question: it allows three files of any process, and files that a process's command line names and its user
//! may read. A process with neither, such as tests and libraries, reads directly.
//!
//! **Limits.** One file at a time. A killed reader that does not end keeps its memory; at most [`LEFT_MAX`]
//! of them are left behind, and beyond that nothing is read. Without its broker the agent has to end:
//! [`is_lost`].

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

/// Reads a file of a process of this user, by its directory in `/proc`: its start, as far as that is useful.
pub fn read_of_process(process: &Path, file: ProcessFile, user: u32) -> Option<Vec<u8>> {
    ask(Question { process: process.to_owned(), what: What::OfProcess(file) }, user)
}

/// Longest path that the kernel follows, bytes: `PATH_MAX`.
const PATH_MAX_BYTES: usize = 4096;

/// Reads a file that a process of `user` has named, from a folder on:
/// [`read_file`](crate::untrusted::read_file).
pub fn read_named(process: &Path, start: &Path, path: &str, user: u32) -> Option<Vec<u8>> {
    if path.len() > PATH_MAX_BYTES {
        return None;
    }
    let what = What::Named { start: start.to_owned(), path: path.to_owned(), user };
    ask(Question { process: process.to_owned(), what }, user)
}

/// Whether a thread has a core scheduling cookie; `None` if the kernel does not say.
pub fn has_cookie(thread: u32) -> Option<bool> {
    match &mut *lock() {
        Some(Way::Broker(broker)) => broker.tell(&Request::HasCookie(thread))?,
        _ => broker::has_cookie(thread),
    }
}

/// Gives all threads of a process a new core scheduling cookie, which no other process has. They keep it
/// until they end.
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

/// Numbers of a process's vCPUs with those of their threads, from KVM: only root may read
/// `/sys/kernel/debug`.
pub fn vcpus_told_by_kvm(root: &Path, pid: u32) -> Vec<(u32, u32)> {
    match &mut *lock() {
        Some(Way::Broker(broker)) => broker.tell(&Request::VcpusOf(pid)).unwrap_or_default(),
        _ => told_by_kvm(root, pid),
    }
}

/// Starts a helper, a process that calls [`serve`], and reads such files through it from now on.
pub fn guard_with(reader: fn() -> Command) {
    *lock() = Some(Way::Reader(Guard::new(reader)));
}

/// Starts a broker, a process that calls [`serve_as_broker`], and asks it from now on. The caller may then
/// give up the privilege to trace processes.
///
/// # Errors
/// If it cannot be started.
pub fn delegate_to(broker: Command) -> io::Result<()> {
    *lock() = Some(Way::Broker(Broker::start(broker)?));
    Ok(())
}

/// Whether a broker is in use, which has the privilege to read about all processes.
pub fn is_delegated() -> bool {
    matches!(&*lock(), Some(Way::Broker(_)))
}

/// Whether there was a broker, and it has ended: nothing can be read any more.
pub fn is_lost() -> bool {
    matches!(&*lock(), Some(Way::Broker(broker)) if broker.is_lost())
}

/// The reader's work: answers questions on standard input until it is closed.
///
/// # Errors
/// If the asking process is gone.
pub fn serve() -> io::Result<()> {
    confine_to(Duty::Read)?;
    answer_all(|question: Question| question.answer())
}

/// The broker's work: answers the agent until that has ended, through readers that `reader` starts.
/// `gives_cookies`: it gives cookies to processes that the agent names.
///
/// # Errors
/// If the agent is gone.
pub fn serve_as_broker(reader: fn() -> Command, gives_cookies: bool) -> io::Result<()> {
    broker::serve(reader, gives_cookies)
}

/// How files are read.
enum Way {
    Reader(Guard),
    Broker(Broker),
}

static WAY: Mutex<Option<Way>> = Mutex::new(None);

fn lock() -> MutexGuard<'static, Option<Way>> {
    // Each question leaves the state consistent, or without a helper.
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
