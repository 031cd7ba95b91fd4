//! Rate control: a storm of wake-ups against tasks that compute.

use crate::guest::tandem::{self, Counters, Tandem};
use crate::guest::{Guest, tasks, work};
use anyhow::{Result, ensure};
use std::thread;
use std::time::{Duration, Instant};

/// The CPU on which the storm rages.
const CPU: u32 = 1;
const US: Duration = Duration::from_micros(1);
/// How often, and for how long, context switches are counted. The most counts: in the other looks the emulated CPU may
/// have stood still.
const LOOKS: u32 = 10;
const LOOK: Duration = Duration::from_millis(300);

/// How often a storm is compared with a limited one, at most: on a busy machine the emulated CPU may be slower in one of
/// the two, and the storm with it.
const TRIES: u32 = 3;

/// Every wake-up may preempt at once, so that rate control alone makes the difference. The thresholds below are
/// lower than the usual 50, so that an emulated CPU reaches them, and in limited windows too: all of them are.
const STORMY: &str = "[fairness]\npreempt_margin = \"0 s\"\n[rate_control]\nwindow = \"10 ms\"\n";

/// What a task that computes, and the system, did under the storm.
struct Storm {
    /// Context switches of the system a second, at the height of the storm.
    switches_per_s: f64,
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
        let (start, run_before) = (Instant::now(), tasks::usage(computing.pid())?.run_ns);
        let mut switches_per_s = 0.0_f64;
        for _ in 0..LOOKS {
            let (look, before) = (Instant::now(), tasks::context_switches()?);
            thread::sleep(LOOK);
            let switches = (tasks::context_switches()? - before) as f64;
            switches_per_s = switches_per_s.max(switches / look.elapsed().as_secs_f64());
        }
        let run = (tasks::usage(computing.pid())?.run_ns - run_before) as f64 / 1e9;
        let computed = run / start.elapsed().as_secs_f64();
        let counters = tandem::counters()?;
        drop((computing, storm));
        tandem.stop()?;
        Ok(Self { switches_per_s, computed, counters })
    }

    fn describe(&self) -> String {
        format!(
            "{:.0} switches a second, {:.0}% for the computing task",
            self.switches_per_s,
            100.0 * self.computed
        )
    }
}

/// Limited windows, and a minimum run time, each for itself: fewer switches, and no less gets done.
pub fn storm_of_wake_ups(guest: &Guest) -> Result<()> {
    for (name, settings, counter) in [
        ("windows", "threshold = 3\nratelimit = \"0 s\"\n", "rate_limited"),
        ("ratelimit", "threshold = 100000\nratelimit = \"5 ms\"\n", "ratelimit_delayed"),
    ] {
        let mut is_calmed = false;
        for _ in 0..TRIES {
            let (off, on) = (Storm::rage("enabled = false\n", 0)?, Storm::rage(settings, 0)?);
            let count = on.counters[counter];
            guest.note(format!("off: {}", off.describe()))?;
            guest.note(format!("{name}: {}; {counter} {count}", on.describe()))?;
            ensure!(count > 0, "{name}: nothing was limited");
            ensure!(off.counters[counter] == 0, "rate control was off, and did something");
            is_calmed = on.switches_per_s < 0.7 * off.switches_per_s && on.computed > 0.95 * off.computed;
            if is_calmed {
                break;
            }
        }
        ensure!(is_calmed, "{name}: switches did not fall, or throughput did");
    }
    Ok(())
}

/// A storm of latency-critical tasks, which nice values below 0 make, passes rate control, if settings say so.
pub fn exemption(guest: &Guest) -> Result<()> {
    let run = |exempt: bool| {
        Storm::rage(&format!("threshold = 3\nratelimit = \"5 ms\"\nlatency_exempt = {exempt}\n"), -5)
    };
    let (limited, exempt) = (run(false)?, run(true)?);
    let count = exempt.counters["latency_exempted"];
    guest.note(format!("limited: {}", limited.describe()))?;
    guest.note(format!("exempt: {}; latency_exempted {count}", exempt.describe()))?;
    ensure!(count > 0 && limited.counters["latency_exempted"] == 0, "the setting was not followed");
    ensure!(exempt.switches_per_s > 1.3 * limited.switches_per_s, "the exempt storm was limited");
    Ok(())
}
