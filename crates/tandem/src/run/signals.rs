//! The signals for the command, received when it asks for them, so that it always ends in order.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::os::fd::AsFd;
use std::time::Duration;

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// SIGINT, SIGTERM: to end.
    End,
    /// SIGHUP: to read the settings again.
    Reload,
}

/// SIGINT, SIGTERM and SIGHUP, held back until they are asked for.
pub struct Signals(SignalFd);

impl Signals {
    /// Holds the signals back from now on.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn catch() -> nix::Result<Self> {
        let signals: SigSet = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect();
        signals.thread_block()?;
        SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).map(Self)
    }

    /// Waits for a signal, at most so long; returns what it asks for, if one came.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn wait(&mut self, at_most: Duration) -> nix::Result<Option<Wish>> {
        let timeout = PollTimeout::try_from(at_most).unwrap_or(PollTimeout::MAX);
        poll(&mut [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)], timeout)?;
        let signal = self.0.read_signal()?;
        Ok(signal.map(|signal| match signal.ssi_signo as i32 {
            hangup if hangup == Signal::SIGHUP as i32 => Wish::Reload,
            _ => Wish::End,
        }))
    }
}
