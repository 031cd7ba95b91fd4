//! What a service manager such as systemd is told: sd_notify(3).
//!
//! | when | message |
//! |---|---|
//! | the kernel runs its tasks with the scheduler | `READY=1`, and the usual `WATCHDOG_USEC` |
//! | the kernel has sent the scheduler away, and it is loaded again | `RELOADING=1`, and a longer `WATCHDOG_USEC`; then `READY=1` |
//! | a signal asked for the end | `STOPPING=1` |
//! | while the scheduler is loaded, twice in each `WATCHDOG_USEC` | `WATCHDOG=1` |
//!
//! Each but the last goes with a `STATUS=` for people, and so does an error. Without `NOTIFY_SOCKET` in the environment
//! nothing is sent. That a message does not arrive is no error here: the manager acts on what it does not hear.

use crate::error::one_line;
use sd_notify::{NotifyState, notify};
use std::time::{Duration, Instant};

/// How long the command may be silent while it loads the scheduler: the kernel verifies it in one call, which takes a second or two, and
/// many times as long on a machine that is emulated and has other things to do.
const LOADING_MAX: Duration = Duration::from_secs(300);

/// The manager that started the command, if one did and listens.
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

    /// The scheduler is loaded, and there is news about it.
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

    /// That the manager is to bear so long a silence, or the usual one if that is longer.
    fn silence(&self, at_least: Duration) -> Option<NotifyState<'static>> {
        let timeout = self.heartbeat.as_ref()?.timeout.max(at_least);
        Some(NotifyState::WatchdogUsec(u32::try_from(timeout.as_micros()).unwrap_or(u32::MAX)))
    }

    /// The scheduler is being unloaded because somebody asked for it.
    pub fn stopping(&self) {
        send(&[NotifyState::Stopping, NotifyState::Status("Unloading")]);
    }

    /// The command ends with this error.
    pub fn failed(&self, error: &anyhow::Error) {
        self.status(&one_line(&format!("{error:#}")));
    }

    /// The scheduler is loaded still; to be called more often than the manager wants to hear it.
    pub fn alive(&mut self) {
        if self.heartbeat.as_mut().is_some_and(|heartbeat| heartbeat.is_due(Instant::now())) {
            send(&[NotifyState::Watchdog]);
        }
    }
}

fn send(states: &[NotifyState<'_>]) {
    let _ = notify(states);
}

/// When to tell the manager's watchdog that all is well.
struct Heartbeat {
    timeout: Duration,
    sent: Instant,
}

impl Heartbeat {
    /// For a watchdog that bites after `timeout`.
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
