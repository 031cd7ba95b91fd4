//! Signals, received when the command asks for them, so that it always ends in an orderly way.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::os::fd::AsFd;
use std::time::Duration;

/// The request that a signal makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalRequest {
    /// SIGINT, SIGTERM: to end.
    End,
    /// SIGHUP: to read the settings again.
    Reload,
}

/// SIGINT, SIGTERM and SIGHUP, blocked and read on request.
pub struct Signals(SignalFd);

impl Signals {
    /// Blocks the signals from now on.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn catch() -> nix::Result<Self> {
        let signals: SigSet = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect();
        signals.thread_block()?;
        SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).map(Self)
    }

    /// Waits for a signal, at most this long; returns what it asks for.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn wait(&mut self, at_most: Duration) -> nix::Result<Option<SignalRequest>> {
        let timeout = PollTimeout::try_from(at_most).unwrap_or(PollTimeout::MAX);
        poll(&mut [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)], timeout)?;
        let signal = self.0.read_signal()?;
        Ok(signal.map(|signal| match signal.ssi_signo as i32 {
            hangup if hangup == Signal::SIGHUP as i32 => SignalRequest::Reload,
            _ => SignalRequest::End,
        }))
    }
}
