//! The process of the agent: started, started again when it ends, ended.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::env;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tandem_host::scheduler::Settings;

/// Pause before an agent that ended is started again; doubled each time, until one has lived for [`SETTLED`].
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// An agent that lives so long has nothing that makes it end at once.
const SETTLED: Duration = Duration::from_secs(60);
/// How long an agent may take to end once its input is closed.
const ENDING_MAX: Duration = Duration::from_secs(2);
/// How long is waited for the first agent to be ready: who starts the scheduler finds all of it there.
const READY_MAX: Duration = Duration::from_secs(10);

/// The agent, alive or about to be.
pub struct AgentProcess {
    /// What it is told: a line.
    settings: String,
    state: State,
    pause: Duration,
}

enum State {
    Alive(Child, Instant),
    Ended(Instant),
}

impl AgentProcess {
    /// Starts it, and waits until it is ready or has ended.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(settings: &Settings) -> io::Result<Self> {
        let settings = serde_json::to_string(settings)? + "\n";
        let state = State::Alive(spawn_ready(&settings)?, Instant::now());
        Ok(Self { settings, state, pause: PAUSE_MIN })
    }

    /// Ends it, and starts another one with these settings.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn replace(&mut self, settings: &Settings) -> io::Result<()> {
        self.end();
        *self = Self::start(settings)?;
        Ok(())
    }

    /// Starts it again if it has ended and the pause is over; returns what there is to tell.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn look(&mut self) -> io::Result<Option<String>> {
        match &mut self.state {
            State::Alive(child, since) => {
                let Some(status) = child.try_wait()? else { return Ok(None) };
                if since.elapsed() >= SETTLED {
                    self.pause = PAUSE_MIN;
                }
                let message = ended(status, self.pause);
                self.state = State::Ended(Instant::now());
                Ok(Some(message))
            }
            State::Ended(since) if since.elapsed() >= self.pause => {
                self.pause = (2 * self.pause).min(PAUSE_MAX);
                self.state = State::Alive(spawn(&self.settings)?, Instant::now());
                Ok(None)
            }
            State::Ended(_) => Ok(None),
        }
    }

    fn end(&mut self) {
        let State::Alive(child, _) = &mut self.state else { return };
        drop(child.stdin.take());
        let begin = Instant::now();
        while begin.elapsed() < ENDING_MAX {
            match child.try_wait() {
                Ok(None) => sleep(Duration::from_millis(5)),
                _ => return,
            }
        }
        // It did not end by itself.
        let _ = child.kill();
        let _ = child.wait();
    }
}

fn ended(status: ExitStatus, pause: Duration) -> String {
    format!(
        "the agent ended ({status}), the scheduler goes on; the agent starts again in {} s",
        pause.as_secs()
    )
}

/// Starts one, and waits until it writes that it is ready; one that takes too long is not waited for.
fn spawn_ready(settings: &str) -> io::Result<Child> {
    let mut child = spawn(settings)?;
    if let Some(output) = child.stdout.take() {
        let timeout = PollTimeout::try_from(READY_MAX).unwrap_or(PollTimeout::MAX);
        poll(&mut [PollFd::new(output.as_fd(), PollFlags::POLLIN)], timeout)?;
    }
    Ok(child)
}

fn spawn(settings: &str) -> io::Result<Child> {
    let mut child = Command::new(env::current_exe()?)
        .arg("agent")
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
