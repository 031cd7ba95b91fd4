//! The arena: each function runs all of its programs under one scheduler, and hands over what they did.
//!
//! The programs are some of those of [`super::agreement`], which are measured in the same way.

use super::agreement::{PAUSE, as_modelled, run_program};
use crate::guest::Guest;
use crate::guest::object::Loaded;
use crate::guest::tandem::Tandem;
use crate::leg::ARENA_PROGRAMS;
use crate::record::Scheduler;
use anyhow::{Context, Result};
use std::thread;

/// How often each program runs.
const ROUNDS: usize = 2;

/// Under the kernel's own scheduler.
pub fn eevdf(guest: &Guest) -> Result<()> {
    as_modelled()?;
    run_programs(guest, &Scheduler::Eevdf)
}

/// Under `tandem`, as it is without settings.
pub fn tandem(guest: &Guest) -> Result<()> {
    let tandem = Tandem::run(&["--interval", "0"])?;
    run_programs(guest, &Scheduler::Tandem)?;
    tandem.stop()?;
    Ok(())
}

/// Under the scheduler of the object file that the guest's parameters name.
pub fn object(guest: &Guest) -> Result<()> {
    let name = guest.object.as_ref().context("no object file is named")?;
    let loaded = Loaded::object(name)?;
    run_programs(guest, &Scheduler::Object(name.clone()))?;
    loaded.stop()
}

fn run_programs(guest: &Guest, scheduler: &Scheduler) -> Result<()> {
    thread::sleep(PAUSE);
    for round in 1..=ROUNDS {
        ARENA_PROGRAMS.iter().try_for_each(|program| run_program(guest, program, scheduler, round))?;
    }
    Ok(())
}
