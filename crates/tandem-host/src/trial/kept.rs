//! A process below a keeper, as the process of the trial sees it.

use super::keeper::InvokingUser;
use rustix::fs::{MemfdFlags, memfd_create};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tandem_file::shown::readable;

/// How much of an output is read, bytes.
const OUTPUT_MAX: u64 = 1 << 20;
/// Longest line that is shown, characters.
const LINE_MAX: usize = 300;
/// How long a keeper may take to end what it keeps: twice what it allows that.
const KEEPER_ENDING_MAX: Duration = Duration::from_secs(30);

/// How keepers are started: a program and its arguments. Those of the kept command follow, after a number
/// and a user if there is one.
#[derive(Clone, Debug)]
pub struct Keeping {
    /// The program that calls [`keep`](super::keep).
    pub program: OsString,
    /// Its arguments before those that [`Kept::start`] adds.
    pub arguments: Vec<OsString>,
}

/// A process that ends, with all that it has started, when this is dropped or the trial's process ends.
#[derive(Debug)]
pub struct Kept {
    keeper: Child,
    output: File,
    errors: File,
    ended: Option<ExitStatus>,
}

impl Kept {
    /// Starts a command: a program and its arguments.
    ///
    /// # Errors
    /// If the keeper cannot be started. That the command cannot is in its output.
    pub fn start(keeping: &Keeping, command: &[OsString], user: Option<InvokingUser>) -> io::Result<Self> {
        let output = File::from(memfd_create("output", MemfdFlags::CLOEXEC)?);
        let errors = File::from(memfd_create("errors", MemfdFlags::CLOEXEC)?);
        let mut start = Command::new(&keeping.program);
        start.args(&keeping.arguments);
        if let Some(InvokingUser { uid, gid }) = user {
            start.arg(format!("--user={uid}")).arg(format!("--group={gid}"));
        }
        let keeper = start
            .arg("--")
            .args(command)
            .stdin(Stdio::piped())
            .stdout(output.try_clone()?)
            .stderr(errors.try_clone()?)
            // It is no service, though the trial's process may be one.
            .env_remove("NOTIFY_SOCKET")
            .env_remove("WATCHDOG_USEC")
            // Ctrl-C in a terminal is for the trial's process, which ends it in an orderly way.
            .process_group(0)
            .spawn()?;
        Ok(Self { keeper, output, errors, ended: None })
    }

    /// How it ended, if it has.
    ///
    /// # Errors
    /// If the system does not say.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        if self.ended.is_none() {
            self.ended = self.keeper.try_wait()?;
        }
        Ok(self.ended)
    }

    /// Whether it has written more than is read.
    pub fn has_written_too_much(&self) -> bool {
        self.output.metadata().is_ok_and(|output| output.len() > OUTPUT_MAX)
    }

    /// What it has written to standard output, or its beginning.
    ///
    /// # Errors
    /// If it cannot be read, or is no UTF-8.
    pub fn output(&self) -> io::Result<String> {
        String::from_utf8(head(&self.output)?).map_err(|_| io::Error::other("its output is not UTF-8"))
    }

    /// The last line that it has written, to standard error rather than to standard output; empty if there is
    /// none.
    pub fn last_line(&self) -> String {
        [&self.errors, &self.output]
            .into_iter()
            .map(|file| last_line(&tail(file)))
            .find(|line| !line.is_empty())
            .unwrap_or_default()
    }

    /// Ends it, and waits until it has ended.
    ///
    /// # Errors
    /// If it does not end.
    pub fn stop(&mut self) -> io::Result<()> {
        drop(self.keeper.stdin.take());
        let begin = Instant::now();
        while self.ended()?.is_none() {
            if begin.elapsed() > KEEPER_ENDING_MAX {
                return Err(io::Error::other("it does not end"));
            }
            sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = self.stop();
    }
}

fn head(file: &File) -> io::Result<Vec<u8>> {
    read_at(file, 0)
}

fn tail(file: &File) -> String {
    let length = file.metadata().map_or(0, |file| file.len());
    let bytes = read_at(file, length.saturating_sub(4096)).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Its content from there on. The position of the file is that of its writers.
fn read_at(file: &File, from: u64) -> io::Result<Vec<u8>> {
    let length = file.metadata()?.len().saturating_sub(from).min(OUTPUT_MAX);
    let mut bytes = vec![0; length as usize];
    file.read_exact_at(&mut bytes, from)?;
    Ok(bytes)
}

fn last_line(text: &str) -> String {
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    readable(&line.chars().take(LINE_MAX).collect::<String>(), &[])
}

/// The words that a shell runs a command line with.
pub fn shell(line: &str) -> Vec<OsString> {
    ["/bin/sh", "-c", line].map(|word| OsStr::new(word).to_owned()).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_is_shown_without_control_characters() {
        assert_eq!(last_line("a\n\u{1b}[1mb\n\n  \n"), "\\u{1b}[1mb");
        assert_eq!(last_line("\n"), "");
        assert_eq!(last_line(&"x".repeat(1_000)).len(), LINE_MAX);
    }
}
