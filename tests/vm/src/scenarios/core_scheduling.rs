//! Core scheduling: threads of different cookies never run on a core at the same time. For a small leg whose cores have two
//! threads each.

use crate::guest::process::Process;
use crate::guest::tandem::{self, Tandem};
use crate::guest::tasks::{self, Usage, threads};
use crate::guest::{Guest, cpus, wait, work};
use anyhow::{Context, Result, ensure};
use rustix::io::Errno;
use rustix::process::getpid;
use rustix::thread::{CoreSchedulingScope, core_scheduling_cookie};

/// How often all threads are seen to have run on.
const LOOKS: u32 = 60;

/// Busy threads of two cookies, as many of each as there are CPUs, all run on, and get CPU time by their nice values.
pub fn cookies(guest: &Guest) -> Result<()> {
    match core_scheduling_cookie(getpid(), CoreSchedulingScope::Thread) {
        Ok(_) => {}
        Err(Errno::INVAL) => return guest.note("this kernel has no CONFIG_SCHED_CORE: nothing was tried"),
        Err(error) => return Err(error).context("the kernel does not tell cookies of core scheduling"),
    }
    if tandem::doctor_finds("hangs with a sched_ext scheduler as soon as a VM uses it")? {
        return guest.note("this kernel hangs with cookies under any sched_ext scheduler, and the doctor says so: nothing was tried");
    }
    let tandem = Tandem::run(&[])?;
    let count = cpus::online()?.len() as u32;
    let usual = work::burn(count).with_cookie().start()?;
    let nice = work::burn(count).with_cookie().nice(5).start()?;
    let pids: Vec<u32> = [&usual, &nice].map(Process::pid).into();
    let all: Vec<u32> = pids.iter().map(|&pid| threads(pid)).collect::<Result<Vec<_>>>()?.concat();
    let look = || all.iter().map(|&thread| tasks::usage(thread)).collect::<Result<Vec<Usage>>>();
    let of_processes = || pids.iter().map(|&pid| tasks::usage_of_process(pid)).collect::<Result<Vec<_>>>();
    let (begin, mut last) = (of_processes()?, look()?);
    for _ in 0..LOOKS {
        last = wait::until("that all threads of two cookies run on", || {
            let now = look()?;
            let ran = now.iter().zip(&last).all(|(now, last)| now.run_ns > last.run_ns);
            Ok(ran.then_some(now))
        })?;
    }
    let used: Vec<Usage> = of_processes()?.iter().zip(&begin).map(|(now, begin)| now.since(begin)).collect();
    let ratio = used[0].run_ns as f64 / used[1].run_ns as f64;
    guest.note(format!(
        "two cookies, {count} threads each on {count} CPUs: nice 0 : nice 5 = {ratio:.2} : 1; by weight 3.06 : 1"
    ))?;
    ensure!(ratio > 1.0, "threads of another cookie get more for a higher nice value");
    drop((usual, nice));
    tandem.stop()?;
    Ok(())
}
