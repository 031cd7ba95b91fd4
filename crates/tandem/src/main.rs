//! The `tandem` command: one file a verb.
//!
//! Every verb has its arguments (`Args`) and a function `run` that writes its result to standard output. What
//! goes wrong is reported in one line on standard error, and by the exit status: see [`tandemd::error`].

// `println!` panics when the reader of a pipe is gone; `writeln!` to [`tandemd::out::out`] returns an error that
// [`tandemd::error::report`] knows.
#![warn(clippy::print_stdout)]

mod bar;
mod build;
mod calibrate;
mod check;
mod compare;
mod doctor;
mod evaluate;
mod generate;
mod machine_source;
mod new;
mod out_file;
mod place;
mod prefer;
mod record;
mod recording_source;
mod replay;
mod reproduce;
mod scenario_source;
mod schema;
mod sim;
mod stat;
mod study;
mod top;
mod topology;
mod tune;
mod verify;
mod vms;
mod what_if;

use clap::{CommandFactory, Parser, Subcommand};
use std::process::ExitCode;
use tandemd::{begin, command_line, end, error};

/// Make the schedulers of hosts and guests work together: run the scheduler on this machine, watch its VMs,
/// place new ones, simulate both levels, and reproduce published results.
#[derive(Parser)]
#[command(version, propagate_version = true, after_help = error::EXIT_STATUS_HELP)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Draw a machine: packages, NUMA nodes, caches, cores and CPUs
    Topology(topology::Args),
    /// Find the best NUMA nodes for a new VM, and explain the choice
    Place(place::Args),
    /// Run one scenario and print what it measured
    Sim(sim::Args),
    /// Run one scenario with several schedulers and print them side by side
    Compare(compare::Args),
    /// Run a scenario at many points of its parameters, on one machine or many, and keep the results
    Study(study::Args),
    /// Run what was recorded again, as it was or otherwise, and print both side by side
    Replay(replay::Args),
    /// Show what changes of a recorded machine would do, and advise one
    WhatIf(what_if::Args),
    /// Search settings of the scheduler for a recorded machine
    Tune(tune::Args),
    /// Make a folder with a small scheduler of your own: source, scenario, Makefile, README
    New(new::Args),
    /// Compile a scheduler for sched_ext into an object file, for simulations and for kernels
    Build(build::Args),
    /// Give a scheduler a number, or the reasons why it has none, for programs that search for better ones
    Evaluate(evaluate::Args),
    /// Compile or simulate for an evaluation, and nothing else; `evaluate` starts this
    #[command(hide = true)]
    Confined(evaluate::ConfinedArgs),
    /// Search for a case that breaks a promise of the scheduler
    Check(check::Args),
    /// Run experiments and print the published results beside the simulated ones
    Reproduce(reproduce::Args),
    /// Find the values of an experiment's free constants that meet its published baseline
    Calibrate(calibrate::Args),
    #[command(flatten)]
    Service(tandemd::Verb),
    /// Compare schedulers on this machine by letting them take turns
    Verify(verify::Args),
    /// Start a scheduler of a trial, and end it with the trial; `verify` starts this
    #[command(hide = true)]
    Arm(verify::arm_process::Args),
    /// Set the preferred CPUs or NUMA nodes of a process, a thread or a cgroup
    Prefer(prefer::Args),
    /// Print the counters of the loaded scheduler
    Stat(stat::Args),
    /// Watch the machine, the scheduler and the VMs in the terminal
    Top(top::Args),
    /// Check whether this machine can run the scheduler, and say how to fix what is missing
    Doctor(doctor::Args),
    /// Show the virtual machines of this host: vCPUs, memory by node, CPU usage, steal
    Vms(vms::Args),
    /// Record what the kernel's scheduler does on this machine, for a time or while a command runs
    Record(record::Args),
    /// Print the JSON Schema of a file format
    Schema(schema::Args),
    /// Write what packages install beside the command: manual pages, completions, the file of settings
    #[command(hide = true)]
    Generate(generate::Args),
}

fn main() -> ExitCode {
    begin();
    let cli: Cli = match command_line() {
        Ok(cli) => cli,
        Err(status) => return status,
    };
    end(match cli.verb {
        Verb::Topology(args) => topology::run(&args),
        Verb::Place(args) => place::run(&args),
        Verb::Sim(args) => sim::run(&args),
        Verb::Compare(args) => compare::run(&args),
        Verb::Study(args) => study::run(&args),
        Verb::Replay(args) => replay::run(&args),
        Verb::WhatIf(args) => what_if::run(&args),
        Verb::Tune(args) => tune::run(&args),
        Verb::New(args) => new::run(&args),
        Verb::Build(args) => build::run(&args),
        Verb::Evaluate(args) => evaluate::run(&args),
        Verb::Confined(args) => evaluate::confined(&args),
        Verb::Check(args) => check::run(&args),
        Verb::Reproduce(args) => reproduce::run(&args),
        Verb::Calibrate(args) => calibrate::run(&args),
        Verb::Service(verb) => verb.run(),
        Verb::Verify(args) => verify::run(&args),
        Verb::Arm(args) => verify::arm_process::run(&args),
        Verb::Prefer(args) => prefer::run(&args),
        Verb::Stat(args) => stat::run(&args),
        Verb::Top(args) => top::run(&args),
        Verb::Doctor(args) => doctor::run(&args),
        Verb::Vms(args) => vms::run(&args),
        Verb::Record(args) => record::run(&args),
        Verb::Schema(args) => schema::run(&args),
        Verb::Generate(args) => generate::run(&args, Cli::command()),
    })
}
