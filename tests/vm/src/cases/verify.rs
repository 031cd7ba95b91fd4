//! `tandem verify`: trials of schedulers that take turns.

use crate::guest::process::Process;
use crate::guest::tandem::{self, Tandem};
use crate::guest::{Guest, sched_ext, wait, work};
use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

/// Settings of the arm `tandem`; see [`Tandem::run_with`] for the watchdog.
const SETTINGS: &str = "/tmp/verify.toml";
/// The state file.
const OUT: &str = "/tmp/trial.jsonl";
/// A user that is not root.
const NOBODY: u32 = 65_534;
/// How long loading may take, for an emulated CPU that has to share the machine's.
const PATIENCE: [&str; 2] = ["--load-limit", "10 min"];

/// `tandem verify` with these arguments.
fn verify(arguments: &[&str]) -> Result<Command> {
    fs::write(SETTINGS, "watchdog = \"30 s\"\n")?;
    let mut command = tandem::command("verify");
    if !arguments.contains(&PATIENCE[0]) {
        command.args(PATIENCE);
    }
    command.args(arguments);
    Ok(command)
}

/// Runs a trial to its end.
fn trial(arguments: &[&str]) -> Result<Output> {
    let output = verify(arguments)?.output().context("cannot start tandem")?;
    ensure!(!sched_ext::is_loaded()?, "a scheduler is loaded after the end: {}", tandem::describe(&output));
    ensure!(processes_of_trials()?.is_empty(), "processes of the trial are left");
    Ok(output)
}

fn json(output: &Output) -> Result<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text).with_context(|| format!("it printed {text}; {}", tandem::describe(output)))
}

/// Numbers of the processes between trials and their schedulers.
fn processes_of_trials() -> Result<Vec<i32>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        if fs::read(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|line| line.starts_with(b"/proc/self/exe\0arm\0"))
        {
            found.push(pid);
        }
    }
    Ok(found)
}

/// Waits until all processes of a trial have ended, and its scheduler with them.
fn wait_until_nothing_is_left() -> Result<()> {
    sched_ext::wait_disabled()?;
    wait::until("the end of all processes of the trial", || {
        Ok(processes_of_trials()?.is_empty().then_some(()))
    })
}

/// The kernel's scheduler and tandem take turns, each as often; what tasks wait and what a command prints is
/// compared, and nothing stays loaded.
pub fn takes_turns(guest: &Guest) -> Result<()> {
    // One of them waits, and three CPUs are left to load schedulers.
    let load = work::burn(2).on(&[0]).start()?;
    let _ = fs::remove_file(OUT);
    let loadings = sched_ext::loadings()?;
    let metric = "read up idle < /proc/uptime; echo idle $idle lower; echo \"tasks 40 higher\"";
    let arms = format!("kernel,tandem:{SETTINGS}");
    let arguments =
        ["--arms", &arms, "--block", "3s", "--blocks", "7", "--out", OUT, "--seed", "5", "--metric", metric];
    let output = trial(&arguments)?;
    ensure!(output.status.success(), "it ended with {}", tandem::describe(&output));
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    guest.note(table.trim())?;
    ensure!(
        table.starts_with("complete: 8 of 8 blocks of 3 s without their first 0.75 s, seed 5\n"),
        "{table}"
    );
    ensure!(
        sched_ext::loadings()? == loadings + 4,
        "tandem was loaded {} times",
        sched_ext::loadings()? - loadings
    );
    let progress = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(progress.matches(" of 8: kernel").count() == 4, "{progress}");
    ensure!(progress.matches(" of 8: tandem").count() == 4, "{progress}");

    // All is in the file: going on with it runs nothing, and says the same.
    let again = trial(&[&arguments[..], &["--resume", "--format", "json"]].concat())?;
    let report = json(&again)?;
    ensure!(sched_ext::loadings()? == loadings + 4, "a complete trial has loaded something");
    let measures: Vec<_> = report["comparisons"].as_array().context("a list")?.iter().collect();
    let of = |name: &str| {
        measures.iter().find(|found| found["measure"] == name).context(format!("{name}: {report}"))
    };
    let waiting = of("waiting tasks")?;
    // One of the two, besides what the kernel and the trial do.
    for side in ["baseline_value", "arm_value"] {
        let value = waiting[side].as_f64().context("a number")?;
        ensure!((0.8..20.0).contains(&value), "{side} of waiting tasks is {value}");
    }
    ensure!(of("pressure")?["arm_value"].as_f64().context("a number")? > 50.0, "{report}");
    if report["errors"].as_array().is_some_and(Vec::is_empty) {
        ensure!(of("idle")?["is_decisive"] == true && of("tasks")?["better"] == "higher", "{report}");
        ensure!(of("tasks")?["arm_value"] == 40.0, "{report}");
    }
    guest.note(format!("errors: {}", report["errors"]))?;
    drop(load);
    Ok(())
}

/// A command that ends, one that loads nothing in time, and a scheduler that the kernel ejects are reported as
/// failed arms.
pub fn failed_arms(guest: &Guest) -> Result<()> {
    guest.expect_ejection();
    let reason = |arguments: &[&str]| -> Result<String> {
        let output = trial(
            &[&["--arms", "kernel", "--block", "1s", "--blocks", "4", "--format", "json"], arguments]
                .concat(),
        )?;
        let report = json(&output)?;
        ensure!(output.status.code() == Some(1), "it ended with {}", tandem::describe(&output));
        ensure!(report["end"] == "stopped" && report["winner"] == "kernel", "{report}");
        Ok(report["arms"][1]["failed"].as_str().with_context(|| format!("{report}"))?.to_owned())
    };
    let ended = reason(&["--arm", "gone=echo no such device >&2; exit 3"])?;
    guest.note(&ended)?;
    ensure!(ended.ends_with("(exit status: 3): no such device"), "{ended}");
    // It leaves a process behind, which ends all the same.
    let late = reason(&["--arm", "late=tandem top & read line < /dev/zero", "--load-limit", "1 s"])?;
    guest.note(&late)?;
    ensure!(late.starts_with("it loaded no scheduler"), "{late}");

    let arms = format!("kernel,tandem:{SETTINGS}");
    let mut ejected = Process::start(&mut verify(&["--arms", &arms, "--block", "1min", "--settle", "1s"])?)?;
    eject_when_loaded(&mut ejected)?;
    let status = ejected.wait()?;
    let said = ejected.output();
    ensure!(status.code() == Some(1), "it ended with {status}: {said}");
    let failed = said.lines().find(|line| line.contains("the kernel ejected the scheduler"));
    guest.note(failed.with_context(|| format!("it does not report why the arm failed: {said}"))?)?;
    ensure!(said.contains("The winner is kernel."), "{said}");
    wait_until_nothing_is_left()
}

/// Waits until a trial has loaded a scheduler, and ejects that. The baseline may have its block first, so that
/// this takes a minute.
fn eject_when_loaded(trial: &mut Process) -> Result<()> {
    wait::until("the first scheduler of the trial", || {
        let status = trial.ended()?;
        ensure!(status.is_none(), "the trial ended: {}", trial.output().trim());
        Ok((sched_ext::state()? == "enabled").then_some(()))
    })?;
    ensure!(sched_ext::disable()?, "no scheduler was loaded any more");
    Ok(())
}

/// A trial that is killed, or whose keeper is killed, leaves no scheduler behind; it goes on where it was.
pub fn killed_and_resumed(guest: &Guest) -> Result<()> {
    let _ = fs::remove_file(OUT);
    let arms = format!("kernel,tandem:{SETTINGS}");
    let arguments = ["--arms", &arms, "--block", "2s", "--blocks", "8", "--out", OUT];
    let lines = || fs::read_to_string(OUT).unwrap_or_default().lines().count();
    let wait_until_loaded = |trial: &mut Process, lines_min: usize| {
        wait::until("a scheduler of the trial", || {
            let status = trial.ended()?;
            ensure!(status.is_none(), "the trial ended: {}", trial.output().trim());
            Ok((lines() >= lines_min && sched_ext::state()? == "enabled").then_some(()))
        })
    };
    let mut killed = Process::start(&mut verify(&arguments)?)?;
    wait_until_loaded(&mut killed, 2)?;
    killed.signal(Signal::KILL)?;
    killed.wait()?;
    wait_until_nothing_is_left()?;
    let complete = lines() - 1;
    guest.note(format!("killed after {complete} blocks"))?;
    ensure!(complete < 8, "the trial was complete");

    let resumed = [&arguments[..], &["--resume"]].concat();
    let mut interrupted = Process::start(&mut verify(&resumed)?)?;
    wait_until_loaded(&mut interrupted, complete + 2)?;
    interrupted.signal(Signal::INT)?;
    let status = interrupted.wait()?;
    let said = interrupted.output();
    ensure!(status.code() == Some(1), "it ended with {status}: {said}");
    ensure!(said.contains("--resume goes on with it: interrupted"), "{said}");
    wait_until_nothing_is_left()?;

    let output = trial(&[&resumed[..], &["--format", "json"]].concat())?;
    let report = json(&output)?;
    ensure!(
        output.status.success() && report["end"] == "complete",
        "{report}; {}",
        tandem::describe(&output)
    );
    let text = fs::read_to_string(OUT)?;
    for block in 0..8 {
        let times = text.matches(&format!("{{\"block\":{{\"block\":{block},")).count();
        ensure!(times == 1, "block {block} is {times} times in {text}");
    }

    let mut orphaned = Process::start(&mut verify(&["--arms", &arms, "--block", "1min"])?)?;
    wait::until("a scheduler of the trial", || Ok((sched_ext::state()? == "enabled").then_some(())))?;
    let keeper = Pid::from_raw(*processes_of_trials()?.first().context("there is no keeper")?);
    kill_process(keeper.context("a process has a number")?, Signal::KILL)?;
    let status = orphaned.wait()?;
    ensure!(status.code() == Some(1) && orphaned.output().contains("signal: 9"), "{}", orphaned.output());
    wait_until_nothing_is_left()
}

/// There is one trial at a time, none beside a loaded scheduler, and none of another user.
pub fn refuses(_: &Guest) -> Result<()> {
    let refused = |mut command: Command, says: &str| -> Result<()> {
        let output = command.output().context("cannot start tandem")?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(
            output.status.code() == Some(1) && said == format!("tandem: {says}\n"),
            "{}: {said}",
            output.status
        );
        Ok(())
    };
    let mut as_nobody = verify(&[])?;
    as_nobody.uid(NOBODY).gid(NOBODY);
    refused(as_nobody, "a trial loads schedulers, which needs root; run it with sudo")?;

    let tandem = Tandem::run(&[])?;
    refused(verify(&[])?, "another `tandem run` is running; stop it first")?;
    tandem.stop()?;

    let first = Process::start(&mut verify(&["--block", "1min"])?)?;
    wait::until("the first block", || Ok(first.output().contains("block 1 of").then_some(())))?;
    refused(verify(&[])?, "another `tandem verify` is running; wait for its end")?;
    drop(first);
    wait_until_nothing_is_left()?;
    // A unit of systemd that is active has a cgroup.
    let unit = Path::new("/sys/fs/cgroup/system.slice/tandem.service");
    fs::create_dir_all(unit)?;
    let result = refused(
        verify(&[])?,
        "tandem.service is active; run `systemctl stop tandem.service` first, and start it again afterwards",
    );
    fs::remove_dir(unit)?;
    fs::remove_dir(unit.parent().context("it has a parent")?)?;
    result
}

/// A command that prints this number, and up to 4 more, while tandem is loaded, and 200 otherwise.
fn metric(with_tandem: u32) -> String {
    format!(
        "read state < /sys/kernel/sched_ext/state; read up rest < /proc/uptime; value=200; \
         if [ $state = enabled ]; then value={with_tandem}; fi; echo $((value + ${{up%.*}} % 5))"
    )
}

/// The arm with the better values wins, and stays until a signal.
pub fn ends_with_the_winner(guest: &Guest) -> Result<()> {
    let arms = format!("kernel,tandem:{SETTINGS}");
    let metric = metric(100);
    let arguments =
        ["--arms", &arms, "--block", "3s", "--blocks", "20", "--end", "winner", "--metric", &metric];
    let mut trial = Process::start(&mut verify(&arguments)?)?;
    wait::until("the winner", || {
        let status = trial.ended()?;
        ensure!(status.is_none(), "the trial ended: {}", trial.output().trim());
        Ok(trial.output().contains("tandem stays loaded until a signal").then_some(()))
    })?;
    ensure!(sched_ext::state()? == "enabled", "the winner is not loaded");
    let said = trial.output();
    guest
        .note(said.lines().skip_while(|line| !line.starts_with("complete")).collect::<Vec<_>>().join("\n"))?;
    ensure!(said.contains("metric: tandem is better: −") && said.contains("The winner is tandem."), "{said}");
    trial.signal(Signal::TERM)?;
    trial.wait_success()?;
    wait_until_nothing_is_left()
}

/// An arm that is worse beyond the bound ends the trial before all blocks have run.
pub fn drops_an_arm_that_harms(guest: &Guest) -> Result<()> {
    let arms = format!("kernel,tandem:{SETTINGS}");
    let metric = metric(2_000);
    let arguments =
        ["--arms", &arms, "--block", "3s", "--blocks", "40", "--format", "json", "--metric", &metric];
    let output = trial(&arguments)?;
    let report = json(&output)?;
    ensure!(output.status.success() && report["end"] == "stopped", "{report}; {}", tandem::describe(&output));
    guest.note(format!("after {} blocks: {}", report["blocks"], report["arms"][1]["failed"]))?;
    ensure!(report["arms"][1]["is_harm"] == true && report["winner"] == "kernel", "{report}");
    Ok(())
}
