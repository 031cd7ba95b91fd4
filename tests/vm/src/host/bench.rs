//! Runs the benchmarks: boots the same machine once for each scheduler and seed, and compares.
//!
//! **Problem.** Emulated CPUs share the machine's with its other work, so times by its clock mean little for
//! a scheduler.
//!
//! **Approach.** QEMU counts instructions ([`Emulation::Counted`](crate::leg::Emulation)): a run repeats to
//! the last nanosecond. Different seeds give different runs, whose means are compared, with their confidence
//! intervals.
//!
//! **Limits.** All instructions take equally long, and CPUs take turns: while one runs the others stand
//! still. Time is thus the length of the path through kernel, scheduler and workload, with waiting. It does
//! not include the effects of running at the same time, of caches and of NUMA.

use super::objects::{self, Contender, Object};
use super::options::KERNEL_FOLDER;
use super::outcome::Outcome;
use super::qemu;
use super::table::Table;
use super::{c_project, find_kernel, in_parallel, initramfs, programs_folder};
use crate::leg::BENCH;
use crate::report::Event;
use anyhow::{Context, Result, ensure};
use clap::Parser;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

/// The published scheduler to compare with.
const PUBLISHED: &str = "scx_bpfland";

/// Compares schedulers on a real kernel in QEMU, in instruction-counted time.
#[derive(Debug, Parser)]
#[command(version)]
pub struct Options {
    /// Folder of the kernel: vmlinuz, config
    #[arg(long, value_name = "DIR", default_value = KERNEL_FOLDER)]
    pub kernel: PathBuf,
    /// How many seeds, each a run of its own
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    pub seeds: u32,
    /// A further scheduler: its object file NAME.bpf.o; may be given several times
    #[arg(long = "object", value_name = "FILE")]
    pub objects: Vec<PathBuf>,
    /// These schedulers only, besides the kernel's own and object files
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub schedulers: Vec<String>,
    /// Write the time of every run into a file, as comma-separated values
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Runs at a time
    #[arg(long, value_name = "N", default_value_t = thread::available_parallelism().map_or(1, usize::from))]
    pub jobs: usize,
}

/// A scheduler and a seed.
struct Plan {
    scheduler: Contender,
    seed: u32,
}

/// The results of a run.
struct Times {
    scheduler: String,
    seed: u32,
    /// The release of the guest's kernel.
    release: Option<String>,
    /// Workloads and how long they took, seconds of the guest's clock.
    of_workloads: Vec<(String, f64)>,
}

/// Runs what the options ask for, and prints it.
pub fn run(options: &Options) -> Result<()> {
    let objects = Object::all(&options.objects)?;
    let schedulers = schedulers(&options.schedulers, &objects)?;
    let plans: Vec<Plan> = (1..=options.seeds)
        .flat_map(|seed| schedulers.iter().cloned().map(move |scheduler| Plan { scheduler, seed }))
        .collect();
    let kernel = find_kernel(&options.kernel)?;
    let programs = programs_folder()?;
    let work = programs.join("vm").join(BENCH.name);
    fs::create_dir_all(&work).with_context(|| format!("cannot create {}", work.display()))?;
    let initramfs = work.join("initramfs");
    initramfs::pack(&initramfs, &programs, &options.kernel.join("modules"), &work, |archive| {
        c_project::add(archive)?;
        initramfs::add_program(archive, PUBLISHED, &initramfs::find_program(PUBLISHED)?)?;
        objects::add(archive, &objects, &programs, &options.kernel)
    })?;

    let mut table = Table::default();
    let mut release = None;
    let run = |plan: &Plan| run_once(plan, &kernel, &initramfs, &work);
    in_parallel(
        &plans,
        options.jobs,
        |_| 0,
        run,
        |times: Result<Times>| {
            let times = times?;
            release = release.take().or(times.release);
            for (workload, seconds) in times.of_workloads {
                table.add(&times.scheduler, &workload, times.seed, seconds);
            }
            Ok(())
        },
    )?;
    if let Some(file) = &options.csv {
        fs::write(file, table.csv()).with_context(|| format!("cannot write {}", file.display()))?;
    }
    println!(
        "Kernel {}, {} seeds; mean of eevdf, and of others the ratio to it.\n",
        release.unwrap_or_default(),
        options.seeds
    );
    print!("{table}");
    Ok(())
}

/// Boots the machine with the plan's seed, and lets it run all workloads under the plan's scheduler.
fn run_once(plan: &Plan, kernel: &Path, initramfs: &Path, work: &Path) -> Result<Times> {
    let Plan { scheduler, seed } = plan;
    let folder = work.join(format!("{}-{seed}", scheduler.name));
    let run = qemu::boot(&BENCH, &scheduler.parameters(&BENCH), *seed, kernel, initramfs, &folder)?;
    let outcome = Outcome::new(BENCH.name, &[scheduler.case], &run);
    ensure!(outcome.failed() == 0, "the run of {} with seed {seed} failed:\n{outcome}", scheduler.name);
    let of_workloads: Vec<(String, f64)> = run
        .events
        .into_iter()
        .filter_map(|event| match event {
            Event::Took { workload, seconds } => Some((workload, seconds)),
            _ => None,
        })
        .collect();
    let words: Vec<String> =
        of_workloads.iter().map(|(workload, seconds)| format!("{workload} {seconds:.4} s")).collect();
    eprintln!("{}, seed {seed}: {}", scheduler.name, words.join("; "));
    Ok(Times { scheduler: scheduler.name.clone(), seed: *seed, release: outcome.release, of_workloads })
}

/// The kernel's own scheduler, those that are asked for, or all, and object files.
fn schedulers(names: &[String], objects: &[Object]) -> Result<Vec<Contender>> {
    let all = Contender::all(&BENCH, objects)?;
    let others = || all.iter().skip(1).filter(|it| it.object.is_none()).map(|it| it.name.as_str());
    for name in names {
        let known: Vec<&str> = others().collect();
        ensure!(known.contains(&&**name), "there is no scheduler {name}; there are: {}", known.join(", "));
    }
    let is_unwanted = |it: &Contender| !names.is_empty() && it.object.is_none() && !names.contains(&it.name);
    let wanted = all.iter().enumerate().filter(|(at, it)| *at == 0 || !is_unwanted(it));
    Ok(wanted.map(|(_, it)| it.clone()).collect())
}
