//! The machine's side: packs an initramfs, boots the legs, prints the results.

mod agreement;
pub mod arena;
pub mod bench;
mod c_project;
mod cpio;
mod initramfs;
mod monitor;
mod objects;
mod options;
mod outcome;
mod qemu;
mod table;
mod vms;

pub use options::Options;

use crate::guest::parameters::Parameters;
use crate::leg::{Addition, Case, LEGS, Leg};
use crate::record::Record;
use crate::report::Event;
use anyhow::{Context, Result, ensure};
use objects::Object;
use options::KERNEL_FOLDER;
use outcome::Outcome;
use qemu::Run;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, mpsc};
use std::thread;

/// How many boots of a leg in a row may end by a fault of the emulator before a case does.
const FRUITLESS_MAX: usize = 8;

/// A leg and those of its cases that are to run.
struct Plan {
    leg: &'static Leg,
    cases: Vec<&'static Case>,
}

/// Runs what the options ask for; whether all of it passed.
pub fn run(options: &Options) -> Result<bool> {
    if !options.compare.is_empty() {
        return compare(&agreement::read_records(&options.compare)?);
    }
    let plans = plan(options)?;
    if options.list {
        for plan in &plans {
            for case in &plan.cases {
                println!("{}/{}", plan.leg.name, case.name);
            }
        }
        return Ok(true);
    }

    let kernel = find_kernel(&options.kernel)?;
    let programs = programs_folder()?;
    let work = programs.join("vm");
    fs::create_dir_all(&work).with_context(|| format!("cannot create {}", work.display()))?;
    let modules = options.kernel.join("modules");
    let mut archives = BTreeMap::new();
    for addition in plans.iter().map(|plan| plan.leg.addition()) {
        if let Entry::Vacant(place) = archives.entry(addition) {
            let file = place.insert(work.join(format!("initramfs-{addition:?}").to_lowercase()));
            initramfs::pack(file, &programs, &modules, &work, |archive| match addition {
                Addition::Nothing => Ok(()),
                Addition::Qemu => vms::add(archive, &work),
                Addition::Schedulers => {
                    objects::add(archive, &Object::compiled()?, &programs, &options.kernel)
                }
            })?;
        }
    }

    let faults = Mutex::new(Vec::new());
    let records = Mutex::new(Vec::new());
    let boot = |plan: &Plan| {
        let folder = work.join(plan.leg.name);
        let initramfs = &archives[&plan.leg.addition()];
        let boot = |cases: &[&'static Case]| {
            println!("booting the leg {}", plan.leg.name);
            let parameters = Parameters {
                leg: plan.leg.name.into(),
                cases: cases.iter().map(|case| case.name.to_owned()).collect(),
                churn_s: options.churn,
                object: None,
            };
            qemu::boot(plan.leg, &parameters, options.seed, &kernel, initramfs, &folder)
        };
        let (run, its_faults) = run_all(&plan.cases, boot)?;
        let named = its_faults.into_iter().map(|(fault, console)| (plan.leg.name, fault, console));
        faults.lock().expect("no thread panics with the lock").extend(named);
        write_records(&run.events, &folder)?;
        records
            .lock()
            .expect("no thread panics with the lock")
            .extend(run.events.iter().filter_map(Event::record));
        Ok(Outcome::new(plan.leg.name, &plan.cases, &run))
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
    if options.short {
        println!("vm tests: those that take long were left out; `make soak` runs them");
    }
    for (leg, fault, console) in faults.into_inner().expect("no thread panics with the lock") {
        println!("the leg {leg} was booted again: QEMU {fault}");
        console.iter().for_each(|line| println!("    console: {line}"));
    }
    let records = records.into_inner().expect("no thread panics with the lock");
    let agrees = match options.case {
        None if !records.is_empty() => compare(&records)?,
        _ => true,
    };
    Ok(failed == 0 && agrees)
}

/// A fault of the emulator, and the end of the output of the guest's kernel.
type Spoilt = (&'static str, Vec<String>);

/// Boots a leg; if the emulator is at fault, again, for the cases that have not ended. Returns all
/// reports, and the faults.
fn run_all(
    cases: &[&'static Case],
    boot: impl Fn(&[&'static Case]) -> Result<Run>,
) -> Result<(Run, Vec<Spoilt>)> {
    let mut left = cases.to_vec();
    let mut whole: Option<Run> = None;
    let (mut faults, mut fruitless) = (Vec::new(), 0);
    loop {
        let mut run = boot(&left)?;
        let fault = run.emulators_fault();
        if let Some(fault) = fault {
            faults.push((fault, outcome::last_lines(&run.console)));
            let before = left.len();
            let finished = run.keep_finished();
            left.retain(|case| !finished.iter().any(|name| name == case.name));
            fruitless = if left.len() < before { 0 } else { fruitless + 1 };
            if left.is_empty() {
                run.end_well();
            }
        }
        let so_far = match whole.take() {
            Some(before) => before.and_then(run),
            None => run,
        };
        if fault.is_none() || left.is_empty() || fruitless == FRUITLESS_MAX {
            return Ok((so_far, faults));
        }
        whole = Some(so_far);
    }
}

/// Prints how far the simulator is from the records; returns whether that is near enough.
fn compare(records: &[Record]) -> Result<bool> {
    let mut failures = 0;
    for comparison in agreement::compare(records)? {
        print!("{comparison}");
        failures += comparison.failures();
    }
    match failures {
        0 => println!("agreement: no figure is out of its bound by more than chance explains"),
        _ => println!("agreement: {failures} figures are out of their bounds by more than chance explains"),
    }
    Ok(failures == 0)
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

/// The part of the table that the options select.
fn plan(options: &Options) -> Result<Vec<Plan>> {
    let wanted = |filter: &Option<String>, name| filter.as_deref().is_none_or(|wanted| wanted == name);
    let mut plans = Vec::new();
    for leg in LEGS.iter().filter(|leg| wanted(&options.leg, leg.name)) {
        let asked = leg.cases.iter().filter(|case| wanted(&options.case, case.name));
        let cases: Vec<_> = asked.filter(|case| !(options.short && case.is_long)).collect();
        if !cases.is_empty() {
            plans.push(Plan { leg, cases });
        }
    }
    ensure!(!plans.is_empty(), "there is no such leg or case; `--list` shows those that there are");
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

/// Runs all plans, at most `jobs` at a time, and hands on what came out as each ends.
///
/// The longest start first, so that none of them is alone at the end.
fn in_parallel<P: Sync, T: Send>(
    plans: &[P],
    jobs: usize,
    length: impl Fn(&P) -> u64,
    run: impl Fn(&P) -> T + Sync,
    mut done: impl FnMut(T) -> Result<()>,
) -> Result<()> {
    let mut queue: Vec<&P> = plans.iter().rev().collect();
    queue.sort_by_key(|&plan| length(plan)); // taken from the end
    let queue = Mutex::new(queue);
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..jobs.min(plans.len()) {
            let (sender, queue, run) = (sender.clone(), &queue, &run);
            scope.spawn(move || {
                loop {
                    // The lock is released before the plan runs.
                    let next = queue.lock().expect("no thread panics with the lock").pop();
                    let Some(plan) = next else { break };
                    if sender.send(run(plan)).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        receiver.into_iter().try_for_each(&mut done)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn names(arguments: &[&str]) -> Result<Vec<(&'static str, usize)>> {
        let options = Options::parse_from([&["vm-tests"], arguments].concat());
        Ok(plan(&options)?.iter().map(|plan| (plan.leg.name, plan.cases.len())).collect())
    }

    #[test]
    fn options_choose_legs_and_cases() {
        assert_eq!(names(&[]).unwrap().len(), LEGS.len());
        assert_eq!(names(&["--leg", "life"]).unwrap(), [("life", LEGS[0].cases.len())]);
        assert_eq!(names(&["--case", "hackbench-runs"]).unwrap(), [("life", 1)]);
        assert!(names(&["--leg", "numa", "--case", "hackbench-runs"]).is_err());
        assert!(names(&["--leg", "large", "--case", "cores-before-threads"]).is_ok());
        assert!(names(&["--short", "--leg", "large", "--case", "cores-before-threads"]).is_err());
        let churn_s = |arguments: &[&str]| Options::parse_from([&["vm-tests"], arguments].concat()).churn;
        assert_eq!(
            [churn_s(&[]), churn_s(&["--short"]), churn_s(&["--short", "--churn", "7"])],
            [120, 20, 7]
        );
    }

    /// The reports of a boot that ends these of the requested cases, and then has a fault or not.
    fn told(asked: &[&'static Case], ends: usize, has_fault: bool) -> Run {
        let mut events = vec![Event::Booted("7.3".into())];
        for case in &asked[..ends] {
            events.push(Event::Started(case.name.into()));
            events.push(Event::Finished { seconds: 1.0, failure: None });
        }
        let console = if has_fault { "Oops: int3" } else { "" };
        match asked.get(ends) {
            Some(case) => events.push(Event::Started(case.name.into())),
            None => events.push(Event::End),
        }
        let second = std::time::Duration::from_secs(1);
        let end = qemu::End::Left(std::process::ExitStatus::default());
        Run { events, end, console: console.into(), duration: second, cpu_time: second }
    }

    #[test]
    fn a_leg_continues_where_the_emulator_was_at_fault() {
        let cases: Vec<&Case> = LEGS[0].cases.iter().take(5).collect();
        let passed = |ends: &[(usize, bool)]| {
            let boots = std::cell::Cell::new(0);
            let (run, faults) = run_all(&cases, |asked| {
                let (ends, has_fault) = ends[boots.replace(boots.get() + 1)];
                Ok(told(asked, ends, has_fault))
            })
            .unwrap();
            assert_eq!(run.duration.as_secs(), boots.get() as u64);
            let outcome = Outcome::new(LEGS[0].name, &cases, &run);
            (outcome.passed(), outcome.failed(), faults.len(), boots.get())
        };
        assert_eq!(passed(&[(5, false)]), (5, 0, 0, 1));
        assert_eq!(
            passed(&[(0, true), (0, true), (2, true), (0, true), (0, true), (3, false)]),
            (5, 0, 5, 6)
        );
        assert_eq!(passed(&[(2, true), (3, true)]), (5, 0, 2, 2), "all was tried before the second fault");
        let never = [&[(2, true)][..], &[(0, true); FRUITLESS_MAX]].concat();
        assert_eq!(passed(&never), (2, 3, never.len(), never.len()), "it never gets on");
        assert_eq!(passed(&[(2, true), (1, false)]), (3, 2, 1, 2), "that was no fault of the emulator's");
    }

    #[test]
    fn every_plan_runs_once_and_the_longest_start_first() {
        let plans: Vec<u64> = vec![3, 1, 4, 1, 5, 9, 2, 6];
        for jobs in [1, 2, 16] {
            let started = Mutex::new(Vec::new());
            let mut done = Vec::new();
            in_parallel(
                &plans,
                jobs,
                |&length| length,
                |&length| {
                    started.lock().unwrap().push(length);
                    length
                },
                |length| {
                    done.push(length);
                    Ok(())
                },
            )
            .unwrap();
            if jobs == 1 {
                assert_eq!(*started.lock().unwrap(), [9, 6, 5, 4, 3, 2, 1, 1]);
            }
            done.sort_unstable();
            assert_eq!(done, [1, 1, 2, 3, 4, 5, 6, 9], "{jobs} at a time");
        }
    }
}
