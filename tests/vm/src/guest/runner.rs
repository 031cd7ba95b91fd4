//! Runs a leg's cases, one after the other, and checks after each whether the system is as it was before.

use super::kernel_log::{self, KernelLog};
use super::parameters::Parameters;
use super::{Guest, cpus, sched_ext};
use crate::leg::{self, Case};
use crate::report::{Event, Failure, GUEST_PORT};
use anyhow::{Context, Result, anyhow, ensure};
use std::any::Any;
use std::cell::Cell;
use std::fs::{self, File};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// How `vm-guest` is called to be the runner.
pub const ARGUMENT: &str = "leg";
/// How many of the last records of the kernel's log go with a failure.
const LOG_RECORDS: usize = 60;

/// Runs the cases that the kernel's command line names.
pub fn run() -> Result<()> {
    let parameters = Parameters::parse(&read("/proc/cmdline")?)?;
    let leg = leg::find(&parameters.leg).with_context(|| format!("there is no leg {}", parameters.leg))?;
    let port = File::options().write(true).open(GUEST_PORT).with_context(|| format!("no {GUEST_PORT}"))?;
    let guest = Guest {
        leg,
        case: Cell::new(""),
        churn: Duration::from_secs(parameters.churn_s),
        object: parameters.object,
        port,
        ejection_expected: Cell::new(false),
    };

    // One that did not come up in the kernel's 10 s makes another machine, and the boot worth nothing.
    let (online, cpus) = (cpus::online()?, leg.machine.cpus());
    ensure!(online.len() == cpus as usize, "of {cpus} CPUs only {online:?} came up");
    guest.report(&Event::Booted(release()?))?;
    for case in leg.cases {
        let wanted = &parameters.cases;
        if wanted.is_empty() || wanted.iter().any(|name| name == case.name) {
            run_case(&guest, case)?;
        }
    }
    guest.report(&Event::End)
}

fn run_case(guest: &Guest, case: &'static Case) -> Result<()> {
    guest.report(&Event::Started(case.name.into()))?;
    guest.case.set(case.name);
    guest.ejection_expected.set(false);
    let mut log = KernelLog::from_now()?;
    let start = Instant::now();
    let result = catch_unwind(AssertUnwindSafe(|| (case.run)(guest)))
        .unwrap_or_else(|panic| Err(anyhow!("it panicked: {}", panic_message(&*panic))));
    let seconds = start.elapsed().as_secs_f64();

    let restored = restore();
    let records = log.read_new()?;
    let complaint = kernel_log::first_complaint(&records, &release()?, guest.ejection_expected.get());
    let complaint = complaint.map_or(Ok(()), |record| Err(anyhow!("the kernel complained: {record}")));
    let failure = result.and(restored).and(complaint).err().map(|error| Failure {
        why: format!("{error:#}").trim().lines().collect::<Vec<_>>().join("; "),
        dmesg: records[records.len().saturating_sub(LOG_RECORDS)..].iter().map(ToString::to_string).collect(),
    });
    guest.report(&Event::Finished { seconds, failure })
}

/// Brings the system back to how cases find it; that this was needed is an error.
fn restore() -> Result<()> {
    let loaded = sched_ext::disable()?;
    let offline = cpus::bring_all_online()?;
    ensure!(!loaded, "it left a scheduler loaded");
    ensure!(offline.is_empty(), "it left the CPUs {offline:?} offline");
    Ok(())
}

/// The kernel's release, as `uname -r` prints it.
fn release() -> Result<String> {
    Ok(read("/proc/sys/kernel/osrelease")?.trim().to_owned())
}

fn read(file: &str) -> Result<String> {
    fs::read_to_string(file).with_context(|| format!("cannot read {file}"))
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
