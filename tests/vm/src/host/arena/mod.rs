//! Ranks schedulers on a real kernel in QEMU and in the simulator.
//!
//! **Problem.** Who compares schedulers in the simulator wants to know which one is better, so that the order
//! of schedulers has to be that of a real kernel.
//!
//! **Approach.** The same small programs run under each scheduler in both worlds. What the simulator is told of
//! the machine, such as how long a path of the kernel takes and what else runs, comes from the records of
//! the kernel's own scheduler alone: nothing of another scheduler's run enters its prediction. Schedulers are
//! ranked by throughput and by the 99th percentile of their tasks' waits, in each program and over all, and the
//! rank correlation (Spearman's) of the two worlds is printed.
//!
//! **Limits.** Those of the emulated machine: all instructions take equally long, and while a CPU runs the
//! others stand still. In the simulator the code of a scheduler takes no time of its own; what it takes in the
//! guest shows in ping-pong.

mod ranks;

use super::agreement::{self, Emulator};
use super::objects::{self, Contender, Object};
use super::options::KERNEL_FOLDER;
use super::outcome::Outcome;
use super::{find_kernel, in_parallel, initramfs, programs_folder, qemu, write_records};
use crate::leg::{ARENA, ARENA_PROGRAMS};
use crate::record::{Record, Scheduler};
use anyhow::{Context, Result};
use clap::Parser;
use ranks::{Figure, Ranks};
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::thread;
use tandem_lab::scenario::policy::scheduler::SchedulerName;
use tandem_sim::program::Op;
use tandem_sim::scenario::Scenario;

/// Seeds with which the simulator runs each program.
const SIMULATED_SEEDS: RangeInclusive<u64> = 1..=12;

/// Ranks schedulers on a real kernel in QEMU, in instruction-counted time, and in the simulator.
#[derive(Debug, Parser)]
#[command(version)]
pub struct Options {
    /// Folder of the kernel: vmlinuz, config
    #[arg(long, value_name = "DIR", default_value = KERNEL_FOLDER)]
    pub kernel: PathBuf,
    /// A further scheduler: its object file NAME.bpf.o; may be given several times
    #[arg(long = "object", value_name = "FILE")]
    pub objects: Vec<PathBuf>,
    /// How many seeds, each a boot for every scheduler
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub seeds: u32,
    /// Where records of boots go, a folder for each [default: target/debug/vm/arena]
    #[arg(long, value_name = "DIR")]
    pub records: Option<PathBuf>,
    /// Boot only what has left no records there before
    #[arg(long)]
    pub resume: bool,
    /// Boot nothing: rank those that have left records there
    #[arg(long)]
    pub recorded: bool,
    /// Write every value into a file, as comma-separated values
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Boots at a time
    #[arg(long, value_name = "N", default_value_t = thread::available_parallelism().map_or(1, usize::from))]
    pub jobs: usize,
}

/// A boot.
struct Plan<'a> {
    contender: &'a Contender,
    seed: u32,
    /// Where its records go.
    folder: PathBuf,
}

/// Runs what the options ask for, and prints it.
pub fn run(options: &Options) -> Result<()> {
    let objects = [Object::compiled()?, Object::all(&options.objects)?].concat();
    let contenders = Contender::all(&ARENA, &objects)?;
    let programs = programs_folder()?;
    let work = programs.join("vm").join(ARENA.name);
    let records = options.records.as_ref().unwrap_or(&work);
    let mut plans = Vec::new();
    for seed in 1..=options.seeds {
        plans.extend(contenders.iter().map(|contender| Plan {
            contender,
            seed,
            folder: records.join(format!("{}-{seed}", contender.name)),
        }));
    }
    let (old, new): (Vec<&Plan<'_>>, Vec<&Plan<'_>>) =
        plans.iter().partition(|plan| (options.resume || options.recorded) && has_all(&plan.folder));
    let mut folders: Vec<PathBuf> = old.into_iter().map(|plan| plan.folder.clone()).collect();
    if !options.recorded {
        fs::create_dir_all(&work).with_context(|| format!("cannot create {}", work.display()))?;
        let kernel = find_kernel(&options.kernel)?;
        let initramfs = work.join("initramfs");
        initramfs::pack(&initramfs, &programs, &options.kernel.join("modules"), &work, |archive| {
            objects::add(archive, &objects, &programs, &options.kernel)
        })?;
        let boot = |plan: &&Plan<'_>| boot(plan, &kernel, &initramfs);
        in_parallel(
            &new,
            options.jobs,
            |_| 0,
            boot,
            |folder: Result<Option<PathBuf>>| {
                folders.extend(folder?);
                Ok(())
            },
        )?;
    }

    let ranks = compare(&contenders, &agreement::read_records(&folders)?)?;
    if let Some(file) = &options.csv {
        fs::write(file, ranks.csv()).with_context(|| format!("cannot write {}", file.display()))?;
    }
    print!("{ranks}");
    Ok(())
}

/// Whether a folder has the records of all programs.
fn has_all(folder: &Path) -> bool {
    ARENA_PROGRAMS.iter().all(|program| folder.join(format!("{program}.json")).is_file())
}

/// Boots the machine, and lets it run all programs under the plan's scheduler. Returns the folder with the
/// records; none if the scheduler failed, which is printed.
fn boot(plan: &Plan<'_>, kernel: &Path, initramfs: &Path) -> Result<Option<PathBuf>> {
    let Plan { contender, seed, folder } = plan;
    for program in ARENA_PROGRAMS {
        // What an earlier boot left would look like this one's.
        let _ = fs::remove_file(folder.join(format!("{program}.json")));
    }
    eprintln!("{}, seed {seed}: booting", contender.name);
    let run = qemu::boot(&ARENA, &contender.parameters(&ARENA), *seed, kernel, initramfs, folder)?;
    let outcome = Outcome::new(ARENA.name, &[contender.case], &run);
    if outcome.failed() > 0 {
        eprintln!("{}, seed {seed}, takes no part, as it failed:\n{outcome}", contender.name);
        return Ok(None);
    }
    write_records(&run.events, folder)?;
    eprintln!("{}, seed {seed}: done in {:.0} s", contender.name, run.duration.as_secs_f64());
    Ok(Some(folder.clone()))
}

/// Runs the programs under each scheduler in the simulator, and ranks both worlds.
fn compare(contenders: &[Contender], records: &[Record]) -> Result<Ranks> {
    let of = |scheduler: &Scheduler, program: &str| -> Vec<&Record> {
        records.iter().filter(|it| it.scheduler == *scheduler && it.program == program).collect()
    };
    let baseline: Vec<&Record> = records.iter().filter(|it| it.scheduler == Scheduler::Eevdf).collect();
    let kernel = &baseline.first().context("the kernel's own scheduler has no records")?.kernel;
    let first = ARENA_PROGRAMS[0];
    let ping_pong = agreement::scenario(first, SchedulerName::Linux, kernel)?;
    let emulator = Emulator::measured(&ARENA, &ping_pong, &of(&Scheduler::Eevdf, first), &baseline);
    let mut ranks = Ranks::default();
    for contender in contenders {
        let (scheduler, name) = match (&contender.object, contender.case.name) {
            (Some(object), _) => (Scheduler::Object(object.name.clone()), object.scheduler()?),
            (None, "tandem") => (Scheduler::Tandem, SchedulerName::Tandem.into()),
            (None, _) => (Scheduler::Eevdf, SchedulerName::Linux.into()),
        };
        for program in ARENA_PROGRAMS {
            let real = of(&scheduler, program);
            if real.is_empty() {
                continue;
            }
            let scenario = agreement::scenario(program, name.clone(), kernel)?;
            let simulated: Result<Vec<Record>> = SIMULATED_SEEDS
                .zip(of(&Scheduler::Eevdf, program).into_iter().cycle())
                .map(|(seed, record)| agreement::simulate(&scenario, &emulator, record, seed))
                .collect();
            let simulated = match simulated {
                Ok(simulated) => simulated,
                Err(error) => {
                    eprintln!("{} takes no part in {program}: {error:#}", contender.name);
                    continue;
                }
            };
            let ends = ends(&scenario);
            for figure in Figure::ALL {
                let mean = |records: &mut dyn Iterator<Item = &Record>| {
                    tandem_lab::statistics::mean(records.map(|record| figure.value(record, ends)))
                };
                if let (Some(real), Some(simulated)) =
                    (mean(&mut real.iter().copied()), mean(&mut simulated.iter()))
                {
                    ranks.add(&contender.name, program, figure, real, simulated);
                }
            }
        }
    }
    Ok(ranks)
}

/// Whether all tasks of a program end.
fn ends(scenario: &Scenario) -> bool {
    fn is_endless(op: &Op) -> bool {
        matches!(op, Op::Repeat { times: None, .. })
    }
    let programs = scenario.workloads.iter().flat_map(|set| set.programs());
    !programs.flat_map(|task| &task.program.ops).any(is_endless)
}
