//! Messages to a service manager such as systemd: sd_notify(3).
//!
//! | when | message |
//! |---|---|
//! | the kernel runs its tasks with the scheduler | `READY=1`, and the usual `WATCHDOG_USEC` |
//! | the scheduler is being loaded again | `RELOADING=1`, and a longer `WATCHDOG_USEC`; then `READY=1` |
//! | a signal has asked for the end | `STOPPING=1` |
//! | while the scheduler is loaded, twice in each `WATCHDOG_USEC` | `WATCHDOG=1` |
//!
//! Each but the last has a readable `STATUS=`, and so has an error. Without `NOTIFY_SOCKET` in the
//! environment nothing is sent. A message that does not arrive is no error here: the manager acts on a
//! missing message.

use crate::error::one_line;
use sd_notify::{NotifyState, notify};
use std::time::{Duration, Instant};

/// How long the command may be silent while it loads the scheduler. The kernel verifies it in one call, which
/// takes a second or two, and many times as long on an emulated, busy machine.
const LOADING_MAX: Duration = Duration::from_secs(300);

/// The manager that started the command, if there is one that listens.
pub struct Service {
    heartbeat: Option<Heartbeat>,
}

impl Service {
    /// The manager that the environment names.
    pub fn from_environment() -> Self {
        let timeout = sd_notify::watchdog_enabled().filter(|timeout| !timeout.is_zero());
        Self { heartbeat: timeout.map(|timeout| Heartbeat::new(timeout, Instant::now())) }
    }

    /// The scheduler is loaded, and schedules.
    pub fn ready(&self, status: &str) {
        let mut states = vec![NotifyState::Ready, NotifyState::Status(status)];
        states.extend(self.silence(Duration::ZERO));
        send(&states);
    }

    /// The scheduler is loaded; updates the status line.
    pub fn status(&self, status: &str) {
        send(&[NotifyState::Status(status)]);
    }

    /// The scheduler is being loaded again.
    pub fn reloading(&self, reason: &str) {
        let mut states = vec![NotifyState::Reloading, NotifyState::Status(reason)];
        // systemd wants to know which reload the next READY=1 ends.
        states.extend(NotifyState::monotonic_usec_now());
        states.extend(self.silence(LOADING_MAX));
        send(&states);
    }

    /// Asks the manager to accept a silence this long, or the usual one if that is longer.
    fn silence(&self, at_least: Duration) -> Option<NotifyState<'static>> {
        let timeout = self.heartbeat.as_ref()?.timeout.max(at_least);
        Some(NotifyState::WatchdogUsec(u32::try_from(timeout.as_micros()).unwrap_or(u32::MAX)))
    }

    /// The scheduler is being unloaded on request.
    pub fn stopping(&self) {
        send(&[NotifyState::Stopping, NotifyState::Status("Unloading")]);
    }

    /// The command ends with this error.
    pub fn failed(&self, error: &anyhow::Error) {
        self.status(&one_line(&format!("{error:#}")));
    }

    /// The scheduler is still loaded; call it more often than the manager expects messages.
    pub fn alive(&mut self) {
        if self.heartbeat.as_mut().is_some_and(|heartbeat| heartbeat.is_due(Instant::now())) {
            send(&[NotifyState::Watchdog]);
        }
    }
}

fn send(states: &[NotifyState<'_>]) {
    let _ = notify(states);
}

/// When to notify the manager's watchdog.
struct Heartbeat {
    timeout: Duration,
    sent: Instant,
}

impl Heartbeat {
    /// For a watchdog that expires after `timeout`.
    fn new(timeout: Duration, now: Instant) -> Self {
        Self { timeout, sent: now }
    }

    fn is_due(&mut self, now: Instant) -> bool {
        // Half of it is what sd_watchdog_enabled(3) recommends.
        let is_due = now.duration_since(self.sent) >= self.timeout / 2;
        if is_due {
            self.sent = now;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heart_beats_twice_in_each_timeout() {
        let begin = Instant::now();
        let mut heartbeat = Heartbeat::new(Duration::from_secs(30), begin);
        let beats = (0..=60).filter(|&s| heartbeat.is_due(begin + Duration::from_secs(s)));
        assert_eq!(beats.collect::<Vec<_>>(), [15, 30, 45, 60]);
    }
}
