//! A scheduler while its turn lasts.

use super::kept::{Keeping, Kept, shell};
use crate::scheduler::{RunningKernel, SchedulerError};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::thread::sleep;
use std::time::{Duration, Instant};
use thiserror::Error;

/// Time between two checks of the kernel's state.
const POLL: Duration = Duration::from_millis(20);
/// How long a scheduler whose process has ended may stay, and one may be gone that loads itself again.
const CHANGE_MAX: Duration = Duration::from_secs(10);
/// The system request that ejects a scheduler: the kernel's `kernel/sched/ext.c`, `sysrq_handle_sched_ext_reset`.
const EJECT: &str = "S";

/// The scheduler of an arm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArmScheduler {
    /// The kernel's own: none of sched_ext.
    Kernel,
    /// What a program with arguments loads and keeps.
    Program(Vec<OsString>),
    /// What a command line of the shell loads and keeps.
    Shell(String),
}

/// Why an arm cannot go on. Each message is one sentence.
#[derive(Debug, Error)]
pub enum ArmError {
    /// The arm has failed, and is not to be tried again.
    #[error("{0}")]
    Failed(String),
    /// The block has to be repeated.
    #[error("{0}")]
    Disturbed(String),
    /// A signal asks for the end of the trial.
    #[error("interrupted")]
    Interrupted,
    /// The trial cannot go on.
    #[error("{0}")]
    Fatal(String),
}

impl From<SchedulerError> for ArmError {
    fn from(error: SchedulerError) -> Self {
        Self::Fatal(error.to_string())
    }
}

/// A loaded arm. Dropping it unloads it.
#[derive(Debug)]
pub struct Arm<'a> {
    kernel: &'a RunningKernel,
    kept: Option<Kept>,
    /// What sched_ext says while it is loaded.
    scheduler: Option<String>,
    /// How many schedulers had been loaded since the machine booted, with this one once it is.
    loadings: Option<u64>,
}

impl<'a> Arm<'a> {
    /// Loads the scheduler, and waits until it is loaded, at most `limit`; `is_over` says that a signal has come.
    ///
    /// # Errors
    /// If it does not become loaded.
    pub fn load(
        kernel: &'a RunningKernel,
        scheduler: &ArmScheduler,
        keeping: &Keeping,
        limit: Duration,
        is_over: impl Fn() -> bool,
    ) -> Result<Self, ArmError> {
        let command = match scheduler {
            ArmScheduler::Kernel => {
                return Ok(Self { kernel, kept: None, scheduler: None, loadings: None });
            }
            ArmScheduler::Program(words) => words.clone(),
            ArmScheduler::Shell(line) => shell(line),
        };
        let before = loadings(kernel);
        let kept = Kept::start(keeping, &command, None)
            .map_err(|error| ArmError::Fatal(format!("cannot start a process: {error}")))?;
        let mut arm = Self { kernel, kept: Some(kept), scheduler: None, loadings: before };
        match arm.wait_until_loaded(limit, is_over) {
            Ok(()) => Ok(arm),
            Err(error) => {
                arm.unload()?;
                Err(error)
            }
        }
    }

    fn wait_until_loaded(&mut self, limit: Duration, is_over: impl Fn() -> bool) -> Result<(), ArmError> {
        let begin = Instant::now();
        loop {
            let state = self.kernel.state()?;
            let now = loadings(self.kernel);
            // The kernel counts after it has enabled it: `scx_enable` in `kernel/sched/ext.c`.
            let is_counted = now.is_none() || now != self.loadings;
            if state.is_enabled() && state.scheduler.is_some() && is_counted {
                self.loadings = now;
                self.scheduler = state.scheduler;
                return Ok(());
            }
            if let Some(why) = self.end_of_process()? {
                return Err(ArmError::Failed(format!("it loaded no scheduler: {why}")));
            }
            if begin.elapsed() > limit {
                let line = self.last_line();
                return Err(ArmError::Failed(format!(
                    "it loaded no scheduler within {} s{line}",
                    limit.as_secs()
                )));
            }
            if is_over() {
                return Err(ArmError::Interrupted);
            }
            sleep(POLL);
        }
    }

    /// Checks that the arm has been loaded all the time.
    ///
    /// # Errors
    /// If it has not.
    pub fn check(&mut self) -> Result<(), ArmError> {
        let state = self.kernel.state()?;
        if self.kept.is_none() {
            let name = state.scheduler.unwrap_or_else(|| "in an unknown state".into());
            return match state.name.as_str() {
                "disabled" => Ok(()),
                _ => Err(ArmError::Fatal(format!(
                    "another sched_ext scheduler, `{name}`, was loaded meanwhile"
                ))),
            };
        }
        if let Some(why) = self.end_of_process()? {
            return Err(ArmError::Failed(why));
        }
        if state.is_enabled() && state.scheduler == self.scheduler && loadings(self.kernel) == self.loadings {
            return Ok(());
        }
        // The kernel has ejected it, or it is loading itself again, as after a change of the online CPUs.
        let begin = Instant::now();
        while begin.elapsed() < CHANGE_MAX {
            if let Some(why) = self.end_of_process()? {
                return Err(ArmError::Failed(why));
            }
            if self.kernel.state()?.is_enabled() {
                return Err(ArmError::Disturbed("the scheduler was loaded again".into()));
            }
            sleep(POLL);
        }
        Err(ArmError::Failed(format!("the kernel ejected its scheduler{}", self.last_line())))
    }

    /// How many tasks the scheduler has refused since it was loaded; 0 if the kernel does not count them.
    pub fn refused_tasks(&self) -> u64 {
        number(self.kernel, "nr_rejected").filter(|_| self.kept.is_some()).unwrap_or(0)
    }

    /// Unloads it, and waits until the kernel's own scheduler has taken over.
    ///
    /// # Errors
    /// If a scheduler stays loaded.
    pub fn unload(&mut self) -> Result<(), ArmError> {
        let Some(mut kept) = self.kept.take() else { return Ok(()) };
        let stopped = kept.stop();
        if is_disabled_soon(self.kernel)? {
            return stopped.map_err(|error| ArmError::Fatal(format!("a process of the trial: {error}")));
        }
        // What loads schedulers may have escaped from its keeper.
        let request = self.kernel.root().join("proc/sysrq-trigger");
        let ejected = fs::write(&request, EJECT);
        match is_disabled_soon(self.kernel)? {
            true => Ok(()),
            false => Err(ArmError::Fatal(format!(
                "a scheduler stays loaded; run `echo {EJECT} > /proc/sysrq-trigger` to eject it{}",
                ejected.err().map(|error| format!(" ({error})")).unwrap_or_default()
            ))),
        }
    }

    /// How its process has ended, if it has: a sentence.
    fn end_of_process(&mut self) -> Result<Option<String>, ArmError> {
        let Some(kept) = &mut self.kept else { return Ok(None) };
        let ended = kept.ended().map_err(|error: io::Error| ArmError::Fatal(error.to_string()))?;
        Ok(ended.map(|status| format!("its command ended ({status}){}", after_colon(&kept.last_line()))))
    }

    fn last_line(&self) -> String {
        self.kept.as_ref().map(|kept| after_colon(&kept.last_line())).unwrap_or_default()
    }
}

impl Drop for Arm<'_> {
    fn drop(&mut self) {
        let _ = self.unload();
    }
}

fn after_colon(line: &str) -> String {
    if line.is_empty() { String::new() } else { format!(": {line}") }
}

fn is_disabled_soon(kernel: &RunningKernel) -> Result<bool, ArmError> {
    let begin = Instant::now();
    while begin.elapsed() < CHANGE_MAX {
        if kernel.state()?.is_disabled() {
            return Ok(true);
        }
        sleep(POLL);
    }
    Ok(false)
}

/// How many schedulers have been loaded since the machine booted.
fn loadings(kernel: &RunningKernel) -> Option<u64> {
    number(kernel, "enable_seq")
}

fn number(kernel: &RunningKernel, file: &str) -> Option<u64> {
    fs::read_to_string(kernel.root().join("sys/kernel/sched_ext").join(file)).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// A kernel with a scheduler of that name, or without one.
    fn kernel(root: &Path, scheduler: Option<&str>) -> RunningKernel {
        let folder = root.join("sys/kernel/sched_ext");
        fs::create_dir_all(folder.join("root")).unwrap();
        fs::write(folder.join("state"), if scheduler.is_some() { "enabled\n" } else { "disabled\n" })
            .unwrap();
        fs::write(folder.join("root/ops"), scheduler.unwrap_or_default()).unwrap();
        fs::write(folder.join("enable_seq"), "1\n").unwrap();
        RunningKernel::new(root)
    }

    /// A keeper that starts the command, and nothing else: it ends with its input as cat does.
    fn keeping() -> Keeping {
        Keeping { program: "/usr/bin/env".into(), arguments: Vec::new() }
    }

    fn load<'a>(kernel: &'a RunningKernel, line: &str) -> Result<Arm<'a>, ArmError> {
        Arm::load(kernel, &ArmScheduler::Shell(line.into()), &keeping(), Duration::from_secs(60), || false)
    }

    #[test]
    fn a_command_that_ends_has_failed_with_its_last_line() {
        let root = tempfile::tempdir().unwrap();
        let kernel = kernel(root.path(), None);
        let error = load(&kernel, "echo starting; echo no such device >&2; exit 3").unwrap_err();
        assert!(matches!(error, ArmError::Failed(_)));
        assert_eq!(
            error.to_string(),
            "it loaded no scheduler: its command ended (exit status: 3): no such device"
        );
    }

    #[test]
    fn a_command_that_loads_nothing_in_time_has_failed_and_is_ended() {
        let root = tempfile::tempdir().unwrap();
        let kernel = kernel(root.path(), None);
        let arm = ArmScheduler::Shell("read line".into());
        let error = Arm::load(&kernel, &arm, &keeping(), Duration::ZERO, || false).unwrap_err();
        assert_eq!(error.to_string(), "it loaded no scheduler within 0 s");
        let error = Arm::load(&kernel, &arm, &keeping(), Duration::MAX, || true).unwrap_err();
        assert!(matches!(error, ArmError::Interrupted));
    }

    #[test]
    fn a_loaded_arm_is_checked_and_unloaded() {
        let root = tempfile::tempdir().unwrap();
        let state = root.path().join("sys/kernel/sched_ext/state");
        let kernel = kernel(root.path(), Some("lavd"));
        // It unloads its scheduler when its input ends.
        let count = root.path().join("sys/kernel/sched_ext/enable_seq");
        let line = format!("echo 2 > {}; read line; echo disabled > {}", count.display(), state.display());
        let mut arm = load(&kernel, &line).unwrap();
        arm.check().unwrap();
        fs::write(&count, "3\n").unwrap();
        assert!(matches!(arm.check(), Err(ArmError::Disturbed(_))));
        arm.unload().unwrap();
        assert!(kernel.state().unwrap().is_disabled());
    }

    #[test]
    fn the_kernels_own_scheduler_is_disturbed_by_any_other() {
        let root = tempfile::tempdir().unwrap();
        let kernel = kernel(root.path(), None);
        let own = ArmScheduler::Kernel;
        let mut arm = Arm::load(&kernel, &own, &keeping(), Duration::ZERO, || false).unwrap();
        arm.check().unwrap();
        fs::write(root.path().join("sys/kernel/sched_ext/state"), "enabled\n").unwrap();
        fs::write(root.path().join("sys/kernel/sched_ext/root/ops"), "lavd\n").unwrap();
        let error = arm.check().unwrap_err();
        assert!(matches!(error, ArmError::Fatal(_)));
        assert_eq!(error.to_string(), "another sched_ext scheduler, `lavd`, was loaded meanwhile");
    }
}
