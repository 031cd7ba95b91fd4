//! The `tandem` command: one file a verb.
//!
//! Every verb has its arguments (`Args`) and a function `run` that writes its result to standard output. What goes
//! wrong is told in one line on standard error, and by the exit status: see [`error`].

// `println!` panics when the reader of a pipe is gone; `writeln!` returns an error that [`error::report`] knows.
#![warn(clippy::print_stdout)]

mod access;
mod agent;
mod check;
mod counters;
mod doctor;
mod error;
mod generate;
mod helper;
mod host_vms;
mod journal;
mod machine_source;
mod observe;
mod open_files;
mod place;
mod prefer;
mod reproduce;
mod run;
mod schema;
mod sim;
mod stat;
mod text;
mod top;
mod topology;
mod vms;

use clap::{CommandFactory, Parser, Subcommand};
use std::process::ExitCode;

/// Schedulers of hosts and guests, made to work together: simulate them, reproduce published results, place VMs,
/// look at machines, and run the scheduler on this one.
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
    /// Find the NUMA nodes for a new VM's vCPUs and memory, and say why
    Place(place::Args),
    /// Run one scenario and print what it measured
    Sim(sim::Args),
    /// Search for a case that breaks a promise of the scheduler
    Check(check::Args),
    /// Run experiments and print the published results beside the simulated ones
    Reproduce(reproduce::Args),
    /// Load the scheduler into this machine's kernel, and report until it is ended
    Run(run::Args),
    /// Serve users and look after VMs; `tandem run` starts this
    #[command(hide = true)]
    Agent(agent::Args),
    /// Do what takes rights that the other verbs lack or give up; they start this
    #[command(hide = true)]
    Helper(helper::Args),
    /// Say which CPUs or NUMA nodes a process, a thread or a cgroup would rather use
    Prefer(prefer::Args),
    /// Print what the loaded scheduler has counted
    Stat(stat::Args),
    /// Watch the machine, the scheduler and the VMs in the terminal
    Top(top::Args),
    /// Say what this machine lacks to run the scheduler, and what to do
    Doctor(doctor::Args),
    /// Show the virtual machines of this host: vCPUs, memory and its nodes, use, steal
    Vms(vms::Args),
    /// Print the JSON Schema of a file format
    Schema(schema::Args),
    /// Write what packages install beside the command: manual pages, completions, the file of settings
    #[command(hide = true)]
    Generate(generate::Args),
}

fn main() -> ExitCode {
    error::install_panic_hook();
    helper::use_for_strangers();
    let result = match Cli::parse().verb {
        Verb::Topology(args) => topology::run(&args),
        Verb::Place(args) => place::run(&args),
        Verb::Sim(args) => sim::run(&args),
        Verb::Check(args) => check::run(&args),
        Verb::Reproduce(args) => reproduce::run(&args),
        Verb::Run(args) => run::run(&args),
        Verb::Agent(args) => agent::run(&args),
        Verb::Helper(args) => helper::run(&args),
        Verb::Prefer(args) => prefer::run(&args),
        Verb::Stat(args) => stat::run(&args),
        Verb::Top(args) => top::run(&args),
        Verb::Doctor(args) => doctor::run(&args),
        Verb::Vms(args) => vms::run(&args),
        Verb::Schema(args) => schema::run(&args),
        Verb::Generate(args) => generate::run(&args, Cli::command()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error::report(&error),
    }
}
