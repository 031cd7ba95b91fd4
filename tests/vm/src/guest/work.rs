//! Work for the scheduler: `vm-guest work NAME ...`, started by scenarios as a [`Process`].

use super::process::Process;
use anyhow::{Context, Result, bail};
use std::hint::black_box;
use std::process::Command;
use std::thread;

/// How `vm-guest` is called to work.
pub const ARGUMENT: &str = "work";

/// The command for a process that works.
pub fn command(name: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new("vm-guest");
    command.args([ARGUMENT, name]).args(arguments);
    command
}

/// Starts a process with that many threads which do nothing but compute, until it is killed.
pub fn burn(threads: u32) -> Result<Process> {
    Process::start(&mut command("burn", &[&threads.to_string()]))
}

/// Works.
pub fn run(name: &str, arguments: &[&str]) -> Result<()> {
    match (name, arguments) {
        ("burn", [threads]) => run_burn(threads.parse().context("burn THREADS")?),
        _ => bail!("there is no such work: {name} {arguments:?}"),
    }
}

fn run_burn(threads: u32) -> Result<()> {
    for _ in 1..threads {
        thread::spawn(compute_forever);
    }
    compute_forever()
}

/// Computes without a system call and without PAUSE, which an emulator may take as a reason to run another CPU.
fn compute_forever() -> ! {
    let mut number = 1_u64;
    loop {
        number = black_box(number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
}
