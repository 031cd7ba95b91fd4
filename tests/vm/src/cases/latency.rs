//! How long tasks wait that use less than their share.

use crate::guest::switches::{TICK_NS, Trace};
use crate::guest::tandem::Tandem;
use crate::guest::tasks;
use crate::guest::{Guest, cpus, wait, wakeups, work};
use anyhow::{Result, ensure};
use std::time::Duration;

/// Wake-ups that are evaluated.
const WAKE_UPS: u64 = 250;
/// The longest that a sleeper may wait, by its CPU's own clock: the scheduler's longest slice, 20 ms, and a
/// tick.
const WAIT_MAX_NS: u64 = 24_000_000;

/// What waits after wake-ups were.
struct Waits {
    p99_ns: u64,
    longest_ns: u64,
}

/// A task that sleeps most of the time, beside two that compute on each CPU, waits no longer than under the
/// kernel's own scheduler where it has waited long, and never longer than a slice.
pub fn sleepers_wait_little(guest: &Guest) -> Result<()> {
    let own = waits(guest, "EEVDF")?;
    let tandem = Tandem::run(&[])?;
    let waits = waits(guest, "tandem")?;
    tandem.stop()?;
    ensure!(waits.longest_ns <= WAIT_MAX_NS, "a sleeper waited for {} ms", waits.longest_ns / 1_000_000);
    // Both are counted in ticks, to within one.
    ensure!(waits.p99_ns <= own.p99_ns + TICK_NS, "one wake-up in a hundred waits longer than under EEVDF");
    Ok(())
}

fn waits(guest: &Guest, scheduler: &str) -> Result<Waits> {
    let hogs = work::burn(2 * cpus::online()?.len() as u32).start()?;
    let sleeper = work::pulse(1, Duration::from_micros(500), Duration::from_millis(10)).start()?;
    let trace = Trace::start_with_ticks()?;
    let before = tasks::usage(sleeper.pid())?;
    wait::until("that a sleeper wakes up often", || {
        let switches = tasks::usage(sleeper.pid())?.since(&before).voluntary_switches;
        Ok((switches >= WAKE_UPS).then_some(()))
    })?;
    let waits = wakeups::waits_ns(&trace.stop()?, sleeper.pid());
    drop((hogs, sleeper));
    ensure!(waits.len() as u64 >= WAKE_UPS / 2, "only {} wake-ups are in the trace", waits.len());
    let [p50_ns, p99_ns] = [50, 99].map(|percent| waits[waits.len() * percent / 100]);
    let longest_ns = waits[waits.len() - 1];
    let ms = |ns: u64| ns / 1_000_000;
    guest.note(format!(
        "{scheduler}: {} wake-ups beside two hogs a CPU waited for {} ms in the median, {} ms at the 99th percentile, {} ms at most",
        waits.len(),
        ms(p50_ns),
        ms(p99_ns),
        ms(longest_ns)
    ))?;
    Ok(Waits { p99_ns, longest_ns })
}
