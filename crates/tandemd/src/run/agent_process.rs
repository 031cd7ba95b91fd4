//! The supervisor of the agent: starts it, restarts it when it ends or hangs, and ends it.
//!
//! The agent reads what strangers write, and can always be held up in one more way. It writes a byte whenever
//! it makes progress; the supervisor kills an agent that is silent for [`SILENT_MAX`], and starts another
//! one. An agent that is blocked inside the kernel does not end even then; the supervisor does not wait for
//! it.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tandem_settings::Settings;

/// Pause before an agent that ended is started again; doubled each time, until one has lived for [`SETTLED`].
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// An agent that lives this long does not fail at its start.
const SETTLED: Duration = Duration::from_secs(60);
/// How long an agent may take to end once its input is closed.
const ENDING_MAX: Duration = Duration::from_secs(2);
/// How long to wait for the first agent to be ready, so that the service is complete when it is reported as
/// ready.
const READY_MAX: Duration = Duration::from_secs(10);
/// How long an agent may be silent. It makes progress once a second, or with each VM of a scan; to read where
/// the memory of a large VM is takes seconds.
const SILENT_MAX: Duration = Duration::from_secs(30);

/// The agent, running or about to start.
pub struct AgentProcess {
    role: Role,
    /// The line for its standard input.
    settings: String,
    state: State,
    pause: Duration,
    /// Killed agents that have not ended yet.
    left: Vec<Child>,
}

/// What the agent does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Gives VMs homes, with the loaded scheduler.
    Steer,
    /// Reports which homes it would give.
    Observe,
}

enum State {
    Alive { child: Child, since: Instant, heard: Instant },
    Ended(Instant),
}

impl AgentProcess {
    /// Starts it, and waits until it is ready or has ended.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(settings: &Settings, role: Role) -> io::Result<Self> {
        let settings = serde_json::to_string(settings)? + "\n";
        let state = State::alive(spawn_ready(&settings, role)?);
        Ok(Self { role, settings, state, pause: PAUSE_MIN, left: Vec::new() })
    }

    /// Ends it, and starts another one with these settings.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn replace(&mut self, settings: &Settings) -> io::Result<()> {
        self.end();
        let mut next = Self::start(settings, self.role)?;
        next.left.append(&mut self.left);
        *self = next;
        Ok(())
    }

    /// Starts it again if it has ended and the pause is over; returns a message for the log.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn supervise(&mut self) -> io::Result<Option<String>> {
        self.left.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        match &mut self.state {
            State::Alive { child, since, heard } => {
                let how = match child.try_wait()? {
                    Some(status) => format!("ended ({status})"),
                    None if is_heard(child) => {
                        *heard = Instant::now();
                        return Ok(None);
                    }
                    None if heard.elapsed() < SILENT_MAX => return Ok(None),
                    // It is runnable: on a busy machine it has no CPU, or its computation takes longer.
                    None if could_run(child) && heard.elapsed() < 4 * SILENT_MAX => return Ok(None),
                    None => {
                        child.kill()?;
                        format!("was silent for {} s and was killed", SILENT_MAX.as_secs())
                    }
                };
                if since.elapsed() >= SETTLED {
                    self.pause = PAUSE_MIN;
                }
                let ended = std::mem::replace(&mut self.state, State::Ended(Instant::now()));
                self.left.extend(ended.child());
                let pause_s = self.pause.as_secs();
                let rest = if self.role == Role::Steer { ", the scheduler goes on" } else { "" };
                Ok(Some(format!("the agent {how}{rest}; the agent starts again in {pause_s} s")))
            }
            State::Ended(since) if since.elapsed() >= self.pause => {
                self.pause = (2 * self.pause).min(PAUSE_MAX);
                self.state = State::alive(spawn(&self.settings, self.role)?);
                Ok(None)
            }
            State::Ended(_) => Ok(None),
        }
    }

    fn end(&mut self) {
        let State::Alive { child, .. } = &mut self.state else { return };
        drop(child.stdin.take());
        let begin = Instant::now();
        while begin.elapsed() < ENDING_MAX {
            match child.try_wait() {
                Ok(None) => sleep(Duration::from_millis(5)),
                _ => return,
            }
        }
        // It did not end by itself. One that is blocked in the kernel does not end now either; do not wait
        // for it.
        let _ = child.kill();
        sleep(Duration::from_millis(50));
        let _ = child.try_wait();
    }
}

impl State {
    fn alive(child: Child) -> Self {
        Self::Alive { child, since: Instant::now(), heard: Instant::now() }
    }

    fn child(self) -> Option<Child> {
        match self {
            Self::Alive { child, .. } => Some(child),
            Self::Ended(_) => None,
        }
    }
}

/// Whether it has written since the last call. A closed output means nothing here: its end is noticed
/// elsewhere.
fn is_heard(child: &mut Child) -> bool {
    let Some(output) = &mut child.stdout else { return false };
    let is_readable = poll(&mut [PollFd::new(output.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO);
    is_readable.is_ok_and(|readable| readable > 0)
        && output.read(&mut [0; 4096]).is_ok_and(|length| length > 0)
}

/// Whether its main thread waits for nothing but a CPU.
fn could_run(child: &Child) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('R'))
}

/// Starts one, and waits until it is ready, but not for ever.
fn spawn_ready(settings: &str, role: Role) -> io::Result<Child> {
    let child = spawn(settings, role)?;
    if let Some(output) = &child.stdout {
        let timeout = PollTimeout::try_from(READY_MAX).unwrap_or(PollTimeout::MAX);
        poll(&mut [PollFd::new(output.as_fd(), PollFlags::POLLIN)], timeout)?;
    }
    Ok(child)
}

fn spawn(settings: &str, role: Role) -> io::Result<Child> {
    // An update may have replaced the file.
    let mut child = Command::new("/proc/self/exe")
        .arg("agent")
        .args((role == Role::Observe).then_some("--observe"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        // Ctrl-C in a terminal is for the parent, which ends this one in an orderly way.
        .process_group(0)
        .spawn()?;
    if let Some(input) = &mut child.stdin {
        // One that has ended already is noticed later.
        let _ = input.write_all(settings.as_bytes());
    }
    Ok(child)
}

impl Drop for AgentProcess {
    fn drop(&mut self) {
        self.end();
    }
}
