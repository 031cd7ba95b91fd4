//! What the command refuses: each with one sentence, the right exit status, and without a change.

use crate::guest::cgroup::Cgroup;
use crate::guest::process::Process;
use crate::guest::tandem::{self, Tandem};
use crate::guest::{Guest, sched_ext, work};
use anyhow::{Context, Result, ensure};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};

/// Exit status for wrong options and files.
pub(super) const BAD_INPUT: i32 = 2;
/// Exit status for any other failure.
pub(super) const FAILURE: i32 = 1;
/// User and group of `nobody`.
pub(super) const NOBODY: u32 = 65534;
/// Where the BPF file system is mounted.
const BPF_FILE_SYSTEM: &str = "/sys/fs/bpf";

/// Without root nothing can be loaded, and shared state can be neither read nor changed.
pub fn without_root(_: &Guest) -> Result<()> {
    let as_nobody = |arguments: &[&str]| -> Result<Output> {
        let output = Command::new("tandem").args(arguments).uid(NOBODY).gid(NOBODY).output();
        output.context("cannot start tandem as nobody")
    };
    let loadings = sched_ext::loadings()?;
    refused(&as_nobody(&["run"])?, FAILURE, "needs root")?;
    ensure!(sched_ext::loadings()? == loadings, "a scheduler was loaded");

    let tandem = Tandem::run(&[])?;
    for (arguments, message) in [
        (&["run"][..], "needs root"),
        (&["stat"], "only root and members of the group"),
        (&["prefer", "--cpus", "0", "--pid", "1"], "it belongs to another user"),
    ] {
        refused(&as_nobody(arguments)?, FAILURE, message)?;
    }
    tandem.stop()?;
    Ok(())
}

/// A second instance ends; the first continues.
pub fn second_instance(_: &Guest) -> Result<()> {
    let tandem = Tandem::run(&[])?;
    let loadings = sched_ext::loadings()?;
    refused(&tandem::call(&["run"])?, FAILURE, "another `tandem run` is running")?;
    ensure!(sched_ext::loadings()? == loadings, "a scheduler was loaded");
    tandem::counters()?;
    tandem.stop()?;
    Ok(())
}

/// A file of settings with a mistake is refused before anything is loaded.
pub fn wrong_settings(_: &Guest) -> Result<()> {
    let loadings = sched_ext::loadings()?;
    for (settings, message) in [
        ("watchdog = \"1 min\"\n", "watchdog"),
        ("[fairness]\nslice = \"3\"\n", "unit"),
        ("[rate_control]\nthresold = 50\n", "thresold"),
    ] {
        let file = "/tmp/wrong.toml";
        fs::write(file, settings)?;
        refused(&tandem::call(&["run", "--config", file])?, BAD_INPUT, message)?;
    }
    refused(&tandem::call(&["run", "--config", "/tmp/none.toml"])?, BAD_INPUT, "/tmp/none.toml")?;
    ensure!(sched_ext::loadings()? == loadings, "a scheduler was loaded");
    Ok(())
}

/// A CPU limit that would not be enforced is refused, with the cgroup's name, until it is ignored or gone.
/// The doctor knows whether it would.
pub fn lost_limits(_: &Guest) -> Result<()> {
    let loadings = sched_ext::loadings()?;
    let cgroup = Cgroup::create("limited")?;
    cgroup.set("cpu.max", "50000 100000")?;
    if tandem::doctor_finds("would not be enforced: /limited; `tandem run` refuses")? {
        refused(
            &tandem::call(&["run"])?,
            BAD_INPUT,
            "/limited; remove the limits, or run it with --ignore limits",
        )?;
        ensure!(sched_ext::loadings()? == loadings, "a scheduler was loaded");
        Tandem::run(&["--ignore", "limits"])?.stop()?;
        Tandem::run_with("[ignore]\nlimits = true\n")?.stop()?;
        cgroup.set("cpu.max", "max 100000")?;
    }
    Tandem::run(&[])?.stop()?;
    Ok(())
}

/// Preferences without a subject, without CPUs, or for CPUs that are not available change nothing.
pub fn wrong_preferences(_: &Guest) -> Result<()> {
    let tandem = Tandem::run(&[])?;
    let work = work::burn(1).on(&[0, 1]).preferring(&["--cpus", "1"]).start()?;
    let pid = work.pid().to_string();
    let cgroup = Cgroup::create("narrow")?;
    cgroup.set("cpuset.cpus", "0")?;
    let dead = dead_pid()?;
    let dead = dead.to_string();

    let offline = 3;
    tandem.hotplug(offline, false)?;

    let preferences = super::preferences()?;
    let loadings = sched_ext::loadings()?;
    for (arguments, message) in [
        (&["--cpus", "0", "--pid", &dead][..], "no process"),
        (&["--cpus", "0", "--tid", &dead], "no thread"),
        (&["--cpus", "", "--pid", &pid], "names none"),
        (&["--cpus", "3", "--pid", &pid], "CPU 3 is not online"),
        (&["--cpus", "99", "--pid", &pid], "CPU 99 is not online"),
        (&["--nodes", "7", "--pid", &pid], "node 7 is not online"),
        (&["--cpus", "2", "--pid", &pid], "may use CPUs 0-1 alone"),
        (&["--cpus", "1", "--cgroup", cgroup.directory()], "may use CPUs 0 alone"),
        (&["--cpus", "0", "--cgroup", "/no/such"], "/no/such"),
        (&["--cpus", "0", "--", "no-such-command"], "no-such-command"),
        (&["--cpus", "0"], "required"),
    ] {
        refused(&tandem::call(&[&["prefer"], arguments].concat())?, BAD_INPUT, message)?;
    }
    let now = super::preferences()?;
    ensure!(now == preferences, "preferences were\n{preferences}and are\n{now}");
    ensure!(sched_ext::loadings()? == loadings, "the scheduler was loaded again");
    tandem.hotplug(offline, true)?;
    drop(work);
    tandem.stop()?;
    Ok(())
}

/// Without a scheduler, the verbs that need one report that.
pub fn not_loaded(_: &Guest) -> Result<()> {
    for arguments in [&["stat"][..], &["prefer", "show"], &["prefer", "--cpus", "0", "--", "true"]] {
        refused(&tandem::call(arguments)?, FAILURE, "the scheduler is not loaded")?;
    }
    Ok(())
}

/// `tandem doctor` finds that the scheduler can be loaded; without the BPF file system it does not, and says
/// what to do, as `tandem run` does.
pub fn doctor_agrees(_: &Guest) -> Result<()> {
    let found = tandem::call(&["doctor"])?;
    ensure!(found.status.success(), "`tandem doctor`: {}", tandem::describe(&found));
    let tandem = Tandem::run(&[])?;
    let found = String::from_utf8(tandem::call(&["doctor"])?.stdout)?;
    ensure!(found.contains("tandem (enabled)"), "`tandem doctor` beside `tandem run` prints {found}");
    tandem.stop()?;

    unmount(BPF_FILE_SYSTEM, UnmountFlags::empty()).context("cannot unmount")?;
    let (found, run) = (tandem::call(&["doctor"]), tandem::call(&["run"]));
    mount("bpf", BPF_FILE_SYSTEM, "bpf", MountFlags::empty(), None).context("cannot mount again")?;
    let (found, cure) = (found?, "run `mount -t bpf bpf /sys/fs/bpf`");
    refused(&run?, FAILURE, cure)?;
    ensure!(found.status.code() == Some(FAILURE), "`tandem doctor`: {}", tandem::describe(&found));
    let lines = String::from_utf8(found.stdout)?;
    let missing: Vec<_> = lines.lines().filter(|line| line.starts_with("missing")).collect();
    ensure!(matches!(missing[..], [line] if line.ends_with(cure)), "`tandem doctor` prints {lines}");
    Ok(())
}

/// The number of a process that has ended.
fn dead_pid() -> Result<u32> {
    let mut process = Process::start(&mut Command::new("true"))?;
    process.wait_success()?;
    Ok(process.pid())
}

/// Checks that a call ended with that status and a message, on standard error alone, with that text in it.
pub(super) fn refused(output: &Output, status: i32, text: &str) -> Result<()> {
    let message = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.code() == Some(status),
        "exit status {status} was expected: {}",
        tandem::describe(output)
    );
    ensure!(message.contains(text), "{text:?} was expected: {}", tandem::describe(output));
    ensure!(output.stdout.is_empty(), "it printed {}", String::from_utf8_lossy(&output.stdout));
    Ok(())
}
