//! Runs a process with a bound on what it says and on how long it takes.

use std::io::{self, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// What a process may say, and how long it may take.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Most bytes of standard output.
    pub output_bytes: u64,
    /// Most bytes of standard error that are kept; what comes after them is dropped.
    pub error_bytes: u64,
    /// Longest time, whether it has a CPU or not.
    pub time: Duration,
}

/// A process that has ended.
#[derive(Debug)]
pub struct Ended {
    /// How.
    pub status: ExitStatus,
    /// Standard output.
    pub output: Vec<u8>,
    /// The first part of standard error.
    pub errors: Vec<u8>,
    /// The bound that it broke, for which it was killed.
    pub broke: Option<Broke>,
}

/// A bound that was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broke {
    /// It wrote too much.
    Output,
    /// It took too long.
    Time,
    /// The caller has ended it.
    Ended,
}

/// Time between two looks at whether the caller has ended a command.
const LOOK: Duration = Duration::from_millis(20);

/// Runs a command with this input until it ends, breaks a bound, or `ended` is set.
///
/// # Errors
/// If it cannot be started.
pub fn run(command: &mut Command, input: &[u8], bounds: Bounds, ended: &AtomicBool) -> io::Result<Ended> {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(mut to_child), Some(output), Some(errors)) = pipes else {
        return Err(io::Error::other("it has no pipes"));
    };
    thread::scope(|scope| {
        // One that does not read its input, or ends before, is no error of ours.
        scope.spawn(move || drop(to_child.write_all(input)));
        let errors = scope.spawn(move || first_bytes(errors, bounds.error_bytes));
        let (send, receive) = channel();
        scope.spawn(move || {
            let mut all = Vec::new();
            let read = output.take(bounds.output_bytes + 1).read_to_end(&mut all);
            drop(send.send(read.map(|_| all)));
        });
        let begun = Instant::now();
        let (output, broke) = loop {
            match receive.recv_timeout(LOOK.min(bounds.time)) {
                Ok(Ok(output)) if output.len() as u64 > bounds.output_bytes => {
                    break (output, Some(Broke::Output));
                }
                Ok(output) => break (output?, None),
                Err(_) if ended.load(Ordering::Relaxed) => break (Vec::new(), Some(Broke::Ended)),
                Err(RecvTimeoutError::Timeout) if begun.elapsed() < bounds.time => {}
                Err(_) => break (Vec::new(), Some(Broke::Time)),
            }
        };
        if broke.is_some() {
            kill(&mut child);
        }
        // It may have closed its output and go on.
        let (status, late) = wait(&mut child, bounds.time)?;
        let errors = errors.join().unwrap_or_default();
        Ok(Ended { status, output, errors, broke: broke.or(late) })
    })
}

/// Waits for the end, up to a time; then makes it.
fn wait(child: &mut Child, time: Duration) -> io::Result<(ExitStatus, Option<Broke>)> {
    const SOON: Duration = Duration::from_millis(1);
    let looks = time.as_millis() as u64;
    for _ in 0..looks {
        if let Some(status) = child.try_wait()? {
            return Ok((status, None));
        }
        thread::sleep(SOON);
    }
    kill(child);
    Ok((child.wait()?, Some(Broke::Time)))
}

fn kill(child: &mut Child) {
    // It may have ended.
    drop(child.kill());
}

/// The first bytes of what is said; the rest is read, so that nobody waits for a full pipe, and dropped.
fn first_bytes(mut from: impl Read, most: u64) -> Vec<u8> {
    let mut first = Vec::new();
    let mut rest = [0; 4096];
    // What has come until an error counts.
    drop(from.by_ref().take(most).read_to_end(&mut first));
    while from.read(&mut rest).is_ok_and(|bytes| bytes > 0) {}
    first
}
