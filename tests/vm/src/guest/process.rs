//! Processes that cases start, which end with them.

use super::wait;
use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// A process, its children, and their output. All of them are killed when it goes out of scope.
pub struct Process {
    name: String,
    child: Child,
    output: PathBuf,
}

impl Process {
    /// Starts a command; its standard output and error go to a file.
    pub fn start(command: &mut Command) -> Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = command.get_program().to_string_lossy().into_owned();
        let output = PathBuf::from(format!("/tmp/output-{}", NUMBER.fetch_add(1, Ordering::Relaxed)));
        let file = File::create(&output).with_context(|| format!("cannot create {}", output.display()))?;
        let child = command
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        Ok(Self { name, child, output })
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The output of the process and its children so far.
    pub fn output(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.output).unwrap_or_default()).into_owned()
    }

    /// Sends it, and not its children, a signal.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        kill_process(Pid::from_child(&self.child), signal)
            .with_context(|| format!("cannot send {signal:?} to {}", self.name))
    }

    /// Its exit status, if it has ended.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().with_context(|| format!("cannot wait for {}", self.name))
    }

    /// Waits until it ends.
    pub fn wait(&mut self) -> Result<ExitStatus> {
        wait::until(&format!("the end of {}", self.name.clone()), || self.ended())
    }

    /// Waits until it ends, which must be with success; returns its output.
    pub fn wait_success(&mut self) -> Result<String> {
        let status = self.wait()?;
        ensure!(status.success(), "{} ended with {status}: {}", self.name, self.output().trim());
        Ok(self.output())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The rest of the group; an error means that it is empty.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
        let _ = fs::remove_file(&self.output);
    }
}
