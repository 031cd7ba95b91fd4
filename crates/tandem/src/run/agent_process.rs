//! The process of the agent: started, started again when it ends or hangs, ended.
//!
//! It reads what strangers write, and there is always one more way to hold up who does. So it writes a byte whenever it has got on
//! with its work; one that is silent for [`SILENT_MAX`] is killed, and another one takes its place. A process that waits within the
//! kernel does not even end then. Nobody waits for it.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::env;
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
/// An agent that lives so long has nothing that makes it end at once.
const SETTLED: Duration = Duration::from_secs(60);
/// How long an agent may take to end once its input is closed.
const ENDING_MAX: Duration = Duration::from_secs(2);
/// How long is waited for the first agent to be ready: who starts the scheduler finds all of it there.
const READY_MAX: Duration = Duration::from_secs(10);
/// How long an agent may be silent. It gets on once a second, or with each VM in a look at all of them; where the memory of a large VM is
/// takes some seconds to read.
const SILENT_MAX: Duration = Duration::from_secs(30);

/// The agent, alive or about to be.
pub struct AgentProcess {
    role: Role,
    /// What it is told: a line.
    settings: String,
    state: State,
    pause: Duration,
    /// Those that were killed, and may take long to end.
    left: Vec<Child>,
}

/// What the agent is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// To give VMs homes, with the loaded scheduler.
    Steer,
    /// To see which homes it would give.
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

    /// Starts it again if it has ended and the pause is over; returns what there is to tell.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn look(&mut self) -> io::Result<Option<String>> {
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
                    // It could go on, and has no CPU, or computes: that takes longer on a busy machine.
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
        // It did not end by itself. One that hangs in the kernel does not even now, and is not waited for.
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

/// Whether it has written since this was asked last. That its output is closed tells nothing: its end is noticed otherwise.
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

/// Starts one, and waits until it writes that it is ready; one that takes too long is not waited for.
fn spawn_ready(settings: &str, role: Role) -> io::Result<Child> {
    let child = spawn(settings, role)?;
    if let Some(output) = &child.stdout {
        let timeout = PollTimeout::try_from(READY_MAX).unwrap_or(PollTimeout::MAX);
        poll(&mut [PollFd::new(output.as_fd(), PollFlags::POLLIN)], timeout)?;
    }
    Ok(child)
}

fn spawn(settings: &str, role: Role) -> io::Result<Child> {
    let mut child = Command::new(env::current_exe()?)
        .arg("agent")
        .args((role == Role::Observe).then_some("--observe"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        // Ctrl-C in a terminal is for the parent, which ends this one in order.
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
