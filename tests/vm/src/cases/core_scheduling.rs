//! Core scheduling: threads of different cookies never run on a core at the same time. For a small leg whose
//! cores have two threads each.

use super::succeeds;
use super::vms::QUICK;
use crate::guest::process::Process;
use crate::guest::tandem::{self, Tandem};
use crate::guest::tasks::{self, Usage, threads};
use crate::guest::vm::Vm;
use crate::guest::{Guest, cpus, wait, work};
use anyhow::{Context, Result, ensure};
use rustix::io::Errno;
use rustix::process::{Pid, getpid};
use rustix::thread::{CoreSchedulingScope, core_scheduling_cookie};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How often all threads are seen to have run on.
const LOOKS: u32 = 60;

/// How long two VMs are observed on one core.
const OBSERVED: Duration = Duration::from_secs(6);
/// Which part of that two vCPUs run in sum on the two threads of a core: no more than one of them at a time,
/// with a little for what the kernel counts otherwise; and nearly both all the time.
const APART_MAX: f64 = 1.15;
const TOGETHER_MIN: f64 = 1.5;

/// Why cookies are not tried here, if they are not.
fn obstacle() -> Result<Option<&'static str>> {
    match core_scheduling_cookie(getpid(), CoreSchedulingScope::Thread) {
        Ok(_) => {}
        Err(Errno::INVAL) => return Ok(Some("this kernel has no CONFIG_SCHED_CORE")),
        Err(error) => return Err(error).context("the kernel does not report core scheduling cookies"),
    }
    let hangs = tandem::doctor_finds("hangs with a sched_ext scheduler as soon as a VM uses it")?;
    Ok(hangs.then_some(
        "this kernel hangs with cookies under any sched_ext scheduler, and the doctor reports that",
    ))
}

/// Busy threads of two cookies, as many of each as there are CPUs, all run on, and get CPU time by their nice
/// values.
pub fn cookies(guest: &Guest) -> Result<()> {
    if let Some(obstacle) = obstacle()? {
        return guest.note(format!("{obstacle}: nothing was tried"));
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

/// A VM whose rule asks for it gets a cookie, which stays with it, and another one does not; from then on
/// they never run on a core at the same time. Where there are no cookies, the log and `tandem vms` report
/// that.
pub fn apart(guest: &Guest) -> Result<()> {
    let obstacle = obstacle()?;
    let tandem = Tandem::run_with(QUICK)?;
    // Each on one of the two threads of a core.
    let core = cpus::of_core(0)?;
    ensure!(core.len() == 2, "a core has the CPUs {core:?}");
    let start = |name, cpu: u32| Vm::start_by(name, 1, &["busybox", "taskset", &format!("{:x}", 1 << cpu)]);
    let vms = [start("secret", core[0])?, start("other", core[1])?];
    let together = time_on_cpus(&vms)?;

    tandem.reload(&format!("{QUICK}[[vm]]\nname = \"secret\"\ncores = \"apart\"\n"))?;
    let shown = wait::until("that `tandem vms` shows whether it is apart", || {
        let shown = succeeds(&["vms", "secret", "--interval", "100ms"])?;
        Ok(shown.lines().find(|line| line.starts_with("cores ")).map(str::to_owned))
    })?;
    let have_cookies =
        || vms.iter().map(|vm| threads_with_cookie(vm.process().pid())).collect::<Result<Vec<_>>>();
    if let Some(obstacle) = obstacle {
        guest.note(format!("{obstacle}: {shown}"))?;
        ensure!(shown == "cores    shared, though the settings say apart", "`tandem vms` shows {shown}");
        let log = tandem.stop()?;
        ensure!(log.contains("only placement isolates VMs with"), "the log has {log}");
        return Ok(());
    }
    ensure!(shown == "cores    apart (core scheduling)", "`tandem vms` shows {shown}");
    let [secret, other] = have_cookies()?[..] else { unreachable!("there are two VMs") };
    ensure!(secret.0 == secret.1 && other.0 == 0, "threads with cookies, of all: {secret:?}, {other:?}");
    let apart = time_on_cpus(&vms)?;
    guest.note(format!(
        "vCPUs of two VMs on the two threads of a core, CPU time of both for each second: {together:.2} s together, {apart:.2} s apart"
    ))?;
    ensure!(together > TOGETHER_MIN, "they did not share the core before");
    ensure!(apart < APART_MAX, "they shared the core");
    tandem.stop()?;
    let [secret, _] = have_cookies()?[..] else { unreachable!("there are two VMs") };
    ensure!(secret.0 == secret.1, "the cookie has gone with the scheduler: {secret:?}");
    Ok(())
}

/// CPU time that the vCPUs of VMs have in sum, in parts of the time.
fn time_on_cpus(vms: &[Vm]) -> Result<f64> {
    let look = || {
        let vcpus = vms.iter().flat_map(Vm::vcpus);
        vcpus.map(|&vcpu| tasks::usage(vcpu)).sum::<Result<Usage>>()
    };
    let (start, before) = (Instant::now(), look()?);
    sleep(OBSERVED);
    Ok(look()?.since(&before).run().div_duration_f64(start.elapsed()))
}

/// How many threads of a process have a cookie, and how many there are.
fn threads_with_cookie(pid: u32) -> Result<(usize, usize)> {
    let threads = threads(pid)?;
    let has_cookie = |thread: &&u32| {
        let pid = Pid::from_raw(**thread as i32);
        pid.is_some_and(|pid| {
            core_scheduling_cookie(pid, CoreSchedulingScope::Thread).is_ok_and(|cookie| cookie != 0)
        })
    };
    Ok((threads.iter().filter(has_cookie).count(), threads.len()))
}
