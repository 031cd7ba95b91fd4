//! An agent that only observes: its reports of VMs where no scheduler is loaded.

use super::metrics::{LISTEN, page, start_loopback, value};
use super::succeeds;
use super::vms::QUICK;
use crate::guest::process::Process;
use crate::guest::tandem::{self, Tandem, service};
use crate::guest::vm::{Vm, homes};
use crate::guest::{Guest, sched_ext, wait};
use anyhow::{Result, ensure};
use rustix::process::Signal;
use std::fs;

/// A file of settings.
const SETTINGS_FILE: &str = "/tmp/observe.toml";

/// The home that a VM would get, and what that would save, is told by `tandem vms`, by metrics and in the
/// log. Nothing is loaded, and there is one service at a time. When it has ended, the scheduler can be
/// loaded.
pub fn before_loading(guest: &Guest) -> Result<()> {
    start_loopback()?;
    fs::write(SETTINGS_FILE, format!("{QUICK}{LISTEN}"))?;
    let mut run = service();
    let mut observer = Process::start(run.args(["--observe", "--interval", "1", "--config", SETTINGS_FILE]))?;
    let vm = Vm::start("shown", 2)?;
    let planned = vm.wait_for_home()?.home;
    ensure!(!sched_ext::is_loaded()?, "observing has loaded a scheduler");
    let told = wait::until("what the home would save", || {
        let page = page()?;
        Ok(page.contains("tandem_vm_home_saving_cpus{vm=\"shown\"").then_some(page))
    })?;
    ensure!(value(&told, "tandem_scheduler_up ")? == 0.0, "a scheduler is up");
    let saving = value(&told, "tandem_vm_home_saving_cpus{vm=\"shown\"")?;
    let shown = succeeds(&["vms", "--interval", "200ms"])?;
    guest.note(format!("node {planned:?} would save {saving:.3} CPUs at least"))?;
    ensure!(shown.contains(&format!("({})", planned[0])), "`tandem vms` shows {shown}");
    let detail = succeeds(&["vms", "shown", "--interval", "200ms"])?;
    ensure!(detail.contains("would be node") && detail.contains("would save"), "it shows {detail}");
    for verb in [&["run"][..], &["run", "--observe"]] {
        let output = tandem::call(verb)?;
        ensure!(output.status.code() == Some(1), "a second one: {}", tandem::describe(&output));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(
            said == "tandem: another `tandem run` is running; stop it first\n",
            "a second one prints {said}"
        );
    }
    wait::until("a line of figures", || {
        Ok(observer.output().contains("these homes would save").then_some(()))
    })?;
    observer.signal(Signal::INT)?;
    let output = observer.wait_success()?;
    ensure!(
        output.contains("VM shown (process ") && output.contains("would get node"),
        "the log has {output}"
    );
    ensure!(homes()?.is_empty(), "homes are published after the end");

    let tandem = Tandem::run_with(QUICK)?;
    ensure!(vm.wait_for_home()?.home.len() == 1, "the scheduler gives it no home");
    drop(vm);
    tandem.stop()?;
    Ok(())
}
