//! Directed yield: a guest in the guest, whose vCPUs spin for each other on fewer CPUs than they are.
//!
//! KVM intercepts PAUSE and calls `yield_to` for those vCPUs that may help; the kernel asks the scheduler,
//! unless it knows that the target runs already.

use crate::guest::probe::Probe;
use crate::guest::process::Process;
use crate::guest::tandem::{self, Tandem};
use crate::guest::{Guest, tasks, wait, work};
use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use std::process::Command;

const VCPUS: u32 = 4;
/// Number of their exits by PAUSE over which outcomes are counted. Where directed yields help, one in two or
/// three is followed by a turn; where they do not, one in some hundred.
const PAUSES: u64 = 3_000;

/// How often the pauses of a turn are counted.
const RUNS: u32 = 5;

/// How often each task is switched while shares are measured.
const TURNS: u64 = 100;

const ON: &str = "[directed_yield]\nenabled = true\n";
const OFF: &str = "[directed_yield]\nenabled = false\n";

/// The outcomes of a directed yield; in one more, the yielder's CPU had to run another task first.
const OUTCOMES: [&str; 6] = [
    "yield_to_honoured",
    "yield_to_running",
    "yield_to_busy",
    "yield_to_forbidden",
    "yield_to_unfair",
    "yield_to_gone",
];

/// A virtual machine whose vCPUs take turns: see `programs/spin_vm.c`.
struct SpinningVm {
    process: Process,
    vcpus: Vec<u32>,
}

impl SpinningVm {
    /// Starts one on CPUs from 0 on, and waits until its vCPUs run.
    fn start(cpus: u32, options: &[&str]) -> Result<Self> {
        let mut command = Command::new("spin_vm");
        command.args([VCPUS, cpus].map(|number| number.to_string())).args(options);
        let mut process = Process::start(&mut command)?;
        let vcpus = wait::until("the start of the vCPUs", || {
            let status = process.ended()?;
            ensure!(status.is_none(), "spin_vm ended: {}", process.output().trim());
            let output = process.output();
            let threads = output.lines().find_map(|line| line.strip_prefix("threads "));
            Ok(threads.map(|numbers| numbers.split(' ').filter_map(|number| number.parse().ok()).collect()))
        })?;
        Ok(Self { process, vcpus })
    }

    /// Stops it; how many turns there were.
    fn stop(mut self) -> Result<u64> {
        self.process.signal(Signal::TERM)?;
        let output = self.process.wait_success()?;
        let turns = output.lines().find_map(|line| line.strip_prefix("turns ")?.parse().ok());
        turns.context("spin_vm reports no turns")
    }

    /// Starts one, lets its vCPUs leave their guest by PAUSE that often, and stops it; how many turns there
    /// were.
    fn pause(cpus: u32, options: &[&str], pauses: &Probe) -> Result<u64> {
        let before = pauses.calls()?;
        let vm = Self::start(cpus, options)?;
        wait::until("that vCPUs spin", || Ok((pauses.calls()? >= before + PAUSES).then_some(())))?;
        vm.stop()
    }

    /// How often vCPUs on one CPU leave their guest by PAUSE until the next has had its turn, in the least
    /// disturbed of some runs. Time does not matter: a CPU that QEMU does not run has no turns, but neither
    /// has it pauses. But the vCPU that was there is charged for that time, and if it is its turn it waits
    /// until the others have had as much.
    fn pauses_of_turn(pauses: &Probe) -> Result<f64> {
        let mut least = f64::INFINITY;
        for _ in 0..RUNS {
            let before = pauses.calls()?;
            let turns = Self::pause(1, &[], pauses)?;
            least = least.min((pauses.calls()? - before) as f64 / turns.max(1) as f64);
        }
        Ok(least)
    }
}

/// The kernel asks the scheduler, which lets targets run that wait in a CPU's queue or in that of an LLC;
/// what it refuses, it refuses for a reason.
pub fn they_succeed(guest: &Guest) -> Result<()> {
    let spins = Probe::set("kvm_vcpu_on_spin")?;
    let asked = Probe::set("yield_to_task_scx")?;
    let tandem = Tandem::run_with(ON)?;
    for (cpus, options) in [(1, &[][..]), (2, &[]), (2, &["pinned"])] {
        let before = (spins.calls()?, asked.calls()?, tandem::counters()?);
        SpinningVm::pause(cpus, options, &spins)?;
        let (spins, asked) = (spins.calls()? - before.0, asked.calls()? - before.1);
        let counters = tandem::counters()?.since(&before.2);

        let outcomes = OUTCOMES.map(|name| format!("{} {}", &name["yield_to_".len()..], counters[name]));
        guest.note(format!(
            "{VCPUS} vCPUs on {cpus} CPU(s) {}: {spins} pause exits, {asked} yields asked for, {} tried: {}",
            options.join(" "),
            counters["yield_to"],
            outcomes.join(", ")
        ))?;
        let known: u64 = OUTCOMES.iter().map(|name| counters[name]).sum();
        ensure!(counters["yield_to"] == asked, "the scheduler does not count what the kernel asks");
        ensure!(known <= asked && known > asked * 9 / 10, "yields came to nothing without a reason");
        ensure!(counters["yield_to_honoured"] > asked / 50, "nearly no directed yield was honoured");
        ensure!(counters["yield_to_forbidden"] == 0, "one that is pinned can run on its own CPU");
    }
    tandem.stop()?;
    Ok(())
}

/// With directed yields the vCPU whose turn it is soon runs; without, the others wait for the end of their
/// slices.
pub fn they_help(guest: &Guest) -> Result<()> {
    let pauses = Probe::set("kvm_vcpu_on_spin")?;
    let kernels_own = SpinningVm::pauses_of_turn(&pauses)?;
    let [on, off] = [ON, OFF].map(|settings| -> Result<f64> {
        let tandem = Tandem::run_with(settings)?;
        let pauses_of_turn = SpinningVm::pauses_of_turn(&pauses)?;
        let asked = tandem::counters()?["yield_to"];
        ensure!((asked > 0) == (settings == ON), "{asked} directed yields were tried with {settings}");
        tandem.stop()?;
        Ok(pauses_of_turn)
    });
    let (on, off) = (on?, off?);
    guest.note(format!(
        "pauses until the next turn: {on:.1}; without directed yield {off:.1}; by EEVDF {kernels_own:.1}"
    ))?;
    ensure!(off > 3.0 * on, "directed yields do not help");
    Ok(())
}

/// vCPUs that yield to each other keep their shares, and leave a task beside them its own.
pub fn they_are_fair(guest: &Guest) -> Result<()> {
    let tandem = Tandem::run_with(ON)?;
    let vm = SpinningVm::start(1, &[])?;
    let other = work::burn(1).on(&[0]).start()?;
    let all = [&vm.vcpus[..], &[other.pid()]].concat();
    let fair = 1.0 / all.len() as f64;
    let look = || all.iter().map(|&thread| tasks::usage(thread)).collect::<Result<Vec<_>>>();
    let before = look()?;
    let mut shares = Vec::new();
    // Eventually: the charge of a vCPU while QEMU's CPU does not run takes seconds to even out.
    let division = wait::until("a fair division of the CPU", || {
        let now = look()?;
        let ran = now.iter().zip(&before).map(|(now, before)| (now.run_ns - before.run_ns) as f64);
        let sum: f64 = ran.clone().sum();
        shares = ran.map(|ran| ran / sum).collect();
        let have_had_turns =
            now.iter().zip(&before).all(|(now, before)| now.switches() > before.switches() + TURNS);
        let is_fair = shares.iter().all(|share| (0.5 * fair..2.0 * fair).contains(share));
        Ok((have_had_turns && is_fair).then_some(()))
    });
    let counters = tandem::counters()?;
    let [honoured, unfair] = ["yield_to_honoured", "yield_to_unfair"].map(|name| counters[name]);
    let shares: Vec<String> = shares.iter().map(|share| format!("{:.0}%", 100.0 * share)).collect();
    guest.note(format!(
        "{VCPUS} vCPUs and a task that computes: {}; honoured {honoured}, refused as unfair {unfair}",
        shares.join(", ")
    ))?;
    division?;
    ensure!(honoured > 0 && unfair > 0, "directed yields did not have to stay inside the shares");
    drop(other);
    vm.stop()?;
    tandem.stop()?;
    Ok(())
}
