//! The signals that end the command, received when it asks for them, so that it always ends in order.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::os::fd::AsFd;
use std::time::Duration;

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

    /// Waits for a signal, at most so long; returns whether one came.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn wait(&mut self, at_most: Duration) -> nix::Result<bool> {
        let timeout = PollTimeout::try_from(at_most).unwrap_or(PollTimeout::MAX);
        poll(&mut [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)], timeout)?;
        Ok(self.0.read_signal()?.is_some())
    }
}
