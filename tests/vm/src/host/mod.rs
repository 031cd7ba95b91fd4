//! The machine's side: packs an initramfs, boots the legs, prints what came out.

mod agreement;
pub mod bench;
mod c_project;
mod cpio;
mod initramfs;
mod monitor;
mod options;
mod outcome;
mod qemu;
mod table;
mod vms;

pub use options::Options;

use crate::guest::parameters::Parameters;
use crate::leg::{LEGS, Leg, Scenario, VMS_LEG};
use crate::record::Record;
use crate::report::Event;
use anyhow::{Context, Result, ensure};
use options::KERNEL_FOLDER;
use outcome::Outcome;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, mpsc};
use std::thread;

/// How often a leg is booted at most, if it ends by a fault of the emulator.
const BOOTS_MAX: usize = 3;

/// A leg and those of its scenarios that are to run.
struct Plan {
    leg: &'static Leg,
    scenarios: Vec<&'static Scenario>,
}

/// Runs what the options ask for; whether all of it passed.
pub fn run(options: &Options) -> Result<bool> {
    if !options.compare.is_empty() {
        return compare(&agreement::read_records(&options.compare)?);
    }
    let plans = plan(options)?;
    if options.list {
        for plan in &plans {
            for scenario in &plan.scenarios {
                println!("{}/{}", plan.leg.name, scenario.name);
            }
        }
        return Ok(true);
    }

    let kernel = find_kernel(&options.kernel)?;
    let programs = programs_folder()?;
    let work = programs.join("vm");
    fs::create_dir_all(&work).with_context(|| format!("cannot create {}", work.display()))?;
    let modules = options.kernel.join("modules");
    let initramfs = work.join("initramfs");
    initramfs::pack(&initramfs, &programs, &modules, &work, |_| Ok(()))?;
    let with_qemu = work.join("initramfs-with-qemu");
    if plans.iter().any(|plan| plan.leg.name == VMS_LEG) {
        initramfs::pack(&with_qemu, &programs, &modules, &work, |archive| vms::add(archive, &work))?;
    }

    let repeated = Mutex::new(Vec::new());
    let records = Mutex::new(Vec::new());
    let boot = |plan: &Plan| {
        let parameters = Parameters {
            leg: plan.leg.name.into(),
            scenario: options.scenario.clone(),
            churn_s: options.churn,
        };
        let folder = work.join(plan.leg.name);
        let initramfs = if plan.leg.name == VMS_LEG { &with_qemu } else { &initramfs };
        let boot = || qemu::boot(plan.leg, &parameters, options.seed, &kernel, initramfs, &folder);
        let mut run = boot()?;
        for _ in 1..BOOTS_MAX {
            let Some(fault) = run.emulators_fault() else { break };
            let spoilt = (plan.leg.name, fault, outcome::last_lines(&run.console));
            repeated.lock().expect("no thread panics with the lock").push(spoilt);
            run = boot()?;
        }
        write_records(&run.events, &folder)?;
        records
            .lock()
            .expect("no thread panics with the lock")
            .extend(run.events.iter().filter_map(Event::record));
        Ok(Outcome::new(plan.leg.name, &plan.scenarios, &run))
    };
    let mut passed = 0;
    let mut failed = 0;
    let mut release = None;
    in_parallel(
        &plans,
        options.jobs,
        |plan| plan.leg.cpu_s,
        boot,
        |outcome: Result<Outcome>| {
            let outcome = outcome?;
            print!("{outcome}");
            passed += outcome.passed();
            failed += outcome.failed();
            release = release.take().or(outcome.release);
            Ok(())
        },
    )?;
    let release = release.as_deref().unwrap_or("that never came up");
    println!("vm tests: {passed} passed, {failed} failed, kernel {release}");
    for (leg, fault, console) in repeated.into_inner().expect("no thread panics with the lock") {
        println!("a boot of the leg {leg} was repeated: QEMU {fault}");
        console.iter().for_each(|line| println!("    console: {line}"));
    }
    let records = records.into_inner().expect("no thread panics with the lock");
    let agrees = match options.scenario {
        None if !records.is_empty() => compare(&records)?,
        _ => true,
    };
    Ok(failed == 0 && agrees)
}

/// Prints how far the simulator is from what was recorded; whether that is near enough.
fn compare(records: &[Record]) -> Result<bool> {
    let comparison = agreement::compare(records)?;
    print!("{comparison}");
    match comparison.misses() {
        0 => println!("agreement: no figure is out of its bound by more than chance explains"),
        misses => {
            println!("agreement: {misses} figures are out of their bounds by more than chance explains")
        }
    }
    Ok(comparison.misses() == 0)
}

/// Writes the records of each program into a file of the leg's folder, `PROGRAM.json`.
fn write_records(events: &[Event], folder: &Path) -> Result<()> {
    let mut of_programs: BTreeMap<String, Vec<Record>> = BTreeMap::new();
    for record in events.iter().filter_map(Event::record) {
        of_programs.entry(record.program.clone()).or_default().push(record);
    }
    for (program, records) in of_programs {
        let file = folder.join(format!("{program}.json"));
        let text = serde_json::to_string_pretty(&records)? + "\n";
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

/// What the options leave of the table.
fn plan(options: &Options) -> Result<Vec<Plan>> {
    let wanted = |filter: &Option<String>, name| filter.as_deref().is_none_or(|wanted| wanted == name);
    let mut plans = Vec::new();
    for leg in LEGS.iter().filter(|leg| wanted(&options.leg, leg.name)) {
        let scenarios: Vec<_> =
            leg.scenarios.iter().filter(|scenario| wanted(&options.scenario, scenario.name)).collect();
        if !scenarios.is_empty() {
            plans.push(Plan { leg, scenarios });
        }
    }
    ensure!(!plans.is_empty(), "there is no such leg or scenario; `--list` shows those that there are");
    Ok(plans)
}

/// The kernel in a folder such as `scripts/kernel-debian` makes.
fn find_kernel(folder: &Path) -> Result<PathBuf> {
    let kernel = folder.join("vmlinuz");
    ensure!(
        kernel.is_file(),
        "there is no {}; `scripts/kernel-debian` unpacks a kernel into {KERNEL_FOLDER}",
        kernel.display()
    );
    Ok(kernel)
}

/// The folder of this program, where cargo puts the others as well.
fn programs_folder() -> Result<PathBuf> {
    let mut path = std::env::current_exe().context("cannot find this program")?;
    path.pop();
    Ok(path)
}

/// Runs all plans, at most `jobs` at a time, and hands on what came out in the order of the plans.
///
/// The longest start first, so that none of them is alone at the end.
fn in_parallel<P: Sync, T: Send>(
    plans: &[P],
    jobs: usize,
    length: impl Fn(&P) -> u64,
    run: impl Fn(&P) -> T + Sync,
    mut done: impl FnMut(T) -> Result<()>,
) -> Result<()> {
    let mut queue: Vec<usize> = (0..plans.len()).rev().collect();
    queue.sort_by_key(|&index| length(&plans[index])); // taken from the end
    let queue = Mutex::new(queue);
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..jobs.min(plans.len()) {
            let (sender, queue, run) = (sender.clone(), &queue, &run);
            scope.spawn(move || {
                loop {
                    // The lock is released before the plan runs.
                    let next = queue.lock().expect("no thread panics with the lock").pop();
                    let Some(index) = next else { break };
                    if sender.send((index, run(&plans[index]))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        let mut waiting: Vec<Option<T>> = plans.iter().map(|_| None).collect();
        let mut next = 0;
        for (index, outcome) in receiver {
            waiting[index] = Some(outcome);
            while let Some(outcome) = waiting.get_mut(next).and_then(Option::take) {
                done(outcome)?;
                next += 1;
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn names(arguments: &[&str]) -> Result<Vec<(&'static str, usize)>> {
        let options = Options::parse_from([&["vm-tests"], arguments].concat());
        Ok(plan(&options)?.iter().map(|plan| (plan.leg.name, plan.scenarios.len())).collect())
    }

    #[test]
    fn options_choose_legs_and_scenarios() {
        assert_eq!(names(&[]).unwrap().len(), LEGS.len());
        assert_eq!(names(&["--leg", "life"]).unwrap(), [("life", LEGS[0].scenarios.len())]);
        assert_eq!(names(&["--scenario", "hackbench-runs"]).unwrap(), [("life", 1)]);
        assert!(names(&["--leg", "numa", "--scenario", "hackbench-runs"]).is_err());
    }

    #[test]
    fn results_come_in_order_whatever_ends_first() {
        let plans: Vec<Plan> = LEGS.iter().map(|leg| Plan { leg, scenarios: Vec::new() }).collect();
        for jobs in [1, 2, 16] {
            let mut done = Vec::new();
            in_parallel(
                &plans,
                jobs,
                |plan| plan.leg.cpu_s,
                |plan| plan.leg.name,
                |name| {
                    done.push(name);
                    Ok(())
                },
            )
            .unwrap();
            assert_eq!(done, LEGS.iter().map(|leg| leg.name).collect::<Vec<_>>());
        }
    }
}
