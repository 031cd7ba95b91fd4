//! Rate control: a storm of wake-ups against tasks that compute.

use crate::guest::tandem::{self, Counters, Tandem};
use crate::guest::tasks::{self, Usage};
use crate::guest::{Guest, cpus, work};
use anyhow::{Result, ensure};
use std::time::Duration;

/// The CPU on which the storm rages.
const CPU: u32 = 1;
const US: Duration = Duration::from_micros(1);
/// How long the first window may last, and how long the storm is looked at then, by the CPU's own clock.
const BEGIN: Duration = Duration::from_millis(500);
const LOOK: Duration = Duration::from_secs(2);

/// Every wake-up may preempt at once, so that rate control alone makes the difference. Limits are by the
/// guest's clock, and a CPU that QEMU seldom runs has few context switches by that anyway; so slices are the
/// usual 20 ms five times over, and what is limited is limited to fewer switches than a CPU has that gets a
/// hundredth of the machine's. The end of a slice is enough for the threshold, so that all windows are
/// limited but the first.
const STORMY: &str = "[fairness]\npreempt_margin = \"0 s\"\nslice = \"100 ms\"\nslice_min = \"100 ms\"\n\
     [rate_control]\nwindow = \"400 ms\"\n";

/// The activity of a task that computes, and of its CPU, during the storm.
struct Storm {
    /// Context switches of the CPU for each millisecond that the task computes.
    switches_per_ms: f64,
    /// The share of the CPU that went to the task that computes.
    computed: f64,
    counters: Counters,
}

impl Storm {
    /// Lets two threads of that nice value wake up thousands of times a second where a task computes.
    fn rage(rate_control: &str, nice: i32) -> Result<Self> {
        let tandem = Tandem::run_with(&format!("{STORMY}{rate_control}"))?;
        let computing = work::burn(1).on(&[CPU]).start()?;
        let storm = work::pulse(2, 20 * US, 200 * US).on(&[CPU]).nice(nice).start()?;
        cpus::wait_for_own_time(&[CPU], BEGIN)?;
        let look = || [&computing, &storm].map(|work| tasks::usage_of_process(work.pid()));
        let before = look();
        cpus::wait_for_own_time(&[CPU], LOOK)?;
        let used = look().into_iter().zip(before).map(|(now, before)| Ok(now?.since(&before?)));
        let used = used.collect::<Result<Vec<Usage>>>()?;
        let counters = tandem::counters()?;
        drop((computing, storm));
        tandem.stop()?;
        let switches: u64 = used.iter().map(Usage::switches).sum();
        // The task never sleeps.
        let Usage { run_ns, wait_ns, .. } = used[0];
        Ok(Self {
            switches_per_ms: switches as f64 * 1e6 / run_ns as f64,
            computed: run_ns as f64 / (run_ns + wait_ns) as f64,
            counters,
        })
    }

    fn describe(&self) -> String {
        format!(
            "{:.2} switches for a ms that the task computes, which has {:.0}% of the CPU",
            self.switches_per_ms,
            100.0 * self.computed
        )
    }

    /// How many context switches there are for one in another storm.
    fn to(&self, other: &Self) -> f64 {
        self.switches_per_ms / other.switches_per_ms
    }
}

/// Limited windows, and a minimum run time, each for itself: fewer switches, and no less gets done.
pub fn storm_of_wake_ups(guest: &Guest) -> Result<()> {
    for (name, settings, counter) in [
        ("windows", "threshold = 1\nratelimit = \"0 s\"\n", "rate_limited"),
        ("ratelimit", "threshold = 100000\nratelimit = \"100 ms\"\n", "ratelimit_delayed"),
    ] {
        let (off, on) = (Storm::rage("enabled = false\n", 0)?, Storm::rage(settings, 0)?);
        let count = on.counters[counter];
        guest.note(format!("off: {}", off.describe()))?;
        guest.note(format!("{name}: {}; {counter} {count}", on.describe()))?;
        ensure!(count > 0, "{name}: nothing was limited");
        ensure!(off.counters[counter] == 0, "rate control was off, and did something");
        ensure!(on.to(&off) < 0.7, "{name}: switches did not fall");
        ensure!(on.computed > 0.95 * off.computed, "{name}: throughput fell");
    }
    Ok(())
}

/// A storm of latency-critical tasks, which nice values below 0 make, passes rate control, if settings say
/// so.
pub fn exemption(guest: &Guest) -> Result<()> {
    let run = |exempt: bool| {
        Storm::rage(&format!("threshold = 1\nratelimit = \"100 ms\"\nlatency_exempt = {exempt}\n"), -5)
    };
    let (limited, exempt) = (run(false)?, run(true)?);
    let count = exempt.counters["latency_exempted"];
    guest.note(format!("limited: {}", limited.describe()))?;
    guest.note(format!("exempt: {}; latency_exempted {count}", exempt.describe()))?;
    ensure!(count > 0 && limited.counters["latency_exempted"] == 0, "the setting was not followed");
    ensure!(exempt.to(&limited) > 1.3, "the exempt storm was limited");
    Ok(())
}
