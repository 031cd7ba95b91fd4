//! Where threads run, and how much, from /proc.

use super::wait;
use anyhow::{Context, Result};
use std::fs;
use std::iter::Sum;
use std::str::FromStr;
use std::time::Duration;

/// How often a thread must be seen running to determine where it is.
const SAMPLES: u32 = 60;

/// Accounting of a thread since it began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Time on a CPU, ns.
    pub run_ns: u64,
    /// Time runnable but not on a CPU, ns.
    pub wait_ns: u64,
    /// Context switches because it blocked.
    pub voluntary_switches: u64,
    /// Context switches because another was to run.
    pub forced_switches: u64,
}

impl Usage {
    /// Context switches.
    pub fn switches(&self) -> u64 {
        self.voluntary_switches + self.forced_switches
    }

    /// Time on a CPU.
    pub fn run(&self) -> Duration {
        Duration::from_nanos(self.run_ns)
    }

    /// The increase since an earlier accounting.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            run_ns: self.run_ns - earlier.run_ns,
            wait_ns: self.wait_ns - earlier.wait_ns,
            voluntary_switches: self.voluntary_switches - earlier.voluntary_switches,
            forced_switches: self.forced_switches - earlier.forced_switches,
        }
    }
}

impl Sum for Usage {
    fn sum<I: Iterator<Item = Self>>(usages: I) -> Self {
        usages.fold(Self::default(), |sum, usage| Self {
            run_ns: sum.run_ns + usage.run_ns,
            wait_ns: sum.wait_ns + usage.wait_ns,
            voluntary_switches: sum.voluntary_switches + usage.voluntary_switches,
            forced_switches: sum.forced_switches + usage.forced_switches,
        })
    }
}

/// The threads of a process.
pub fn threads(pid: u32) -> Result<Vec<u32>> {
    let folder = format!("/proc/{pid}/task");
    let entries = fs::read_dir(&folder).with_context(|| format!("cannot read {folder}"))?;
    let mut threads: Vec<u32> =
        entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    threads.sort_unstable();
    Ok(threads)
}

/// The CPU on which a thread runs, or ran last.
pub fn cpu_of(thread: u32) -> Result<u32> {
    stat_field(thread, 39)
}

/// A number in `/proc/TID/stat`, by the number of its field in the manual.
pub fn stat_field<T: FromStr>(thread: u32, number: usize) -> Result<T> {
    let file = format!("/proc/{thread}/stat");
    parse_field(&read(&file)?, number).with_context(|| format!("cannot understand field {number} of {file}"))
}

/// Accounting of a thread.
pub fn usage(thread: u32) -> Result<Usage> {
    let schedstat = read(&format!("/proc/{thread}/schedstat"))?;
    let status = read(&format!("/proc/{thread}/status"))?;
    parse_usage(&schedstat, &status).with_context(|| format!("cannot understand the accounting of {thread}"))
}

/// Accounting of all threads that a process has.
pub fn usage_of_process(pid: u32) -> Result<Usage> {
    threads(pid)?.into_iter().map(usage).sum()
}

/// The share of their time, 0 to 1, that the threads spend on these CPUs.
///
/// A sample of a thread counts if it has run since the previous one. So all threads count equally, and one on
/// a CPU that QEMU does not run counts there no more often than elsewhere.
pub fn share_on(threads: &[u32], cpus: &[u32]) -> Result<f64> {
    // Nothing else is read, so that this process does not take the CPUs itself.
    let ran = |thread: &u32| {
        let schedstat = read(&format!("/proc/{thread}/schedstat"))?;
        let run_ns = schedstat.split_whitespace().next().and_then(|time| time.parse::<u64>().ok());
        run_ns.with_context(|| format!("cannot understand the accounting of {thread}"))
    };
    let mut before = threads.iter().map(ran).collect::<Result<Vec<_>>>()?;
    let mut seen = vec![0; threads.len()];
    let mut there = 0;
    wait::until("that all threads have run as often as it takes to tell where they are", || {
        for ((thread, before), seen) in threads.iter().zip(&mut before).zip(&mut seen) {
            let now = ran(thread)?;
            if now != *before && *seen < SAMPLES {
                (*before, *seen) = (now, *seen + 1);
                there += u32::from(cpus.contains(&cpu_of(*thread)?));
            }
        }
        Ok(seen.iter().all(|&seen| seen == SAMPLES).then_some(()))
    })?;
    Ok(f64::from(there) / f64::from(SAMPLES * threads.len() as u32))
}

fn read(file: &str) -> Result<String> {
    fs::read_to_string(file).with_context(|| format!("cannot read {file}"))
}

/// The second field, the name, may contain anything but ends with the last parenthesis.
fn parse_field<T: FromStr>(stat: &str, number: usize) -> Option<T> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(number - 3)?.parse().ok()
}

fn parse_usage(schedstat: &str, status: &str) -> Option<Usage> {
    let mut times = schedstat.split_whitespace().map(str::parse);
    let switches = |key| status.lines().find_map(|line| line.strip_prefix(key))?.trim().parse().ok();
    Some(Usage {
        run_ns: times.next()?.ok()?,
        wait_ns: times.next()?.ok()?,
        voluntary_switches: switches("voluntary_ctxt_switches:")?,
        forced_switches: switches("nonvoluntary_ctxt_switches:")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_is_found_behind_an_odd_name() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194304 95 0 0 0 0 0 0 0 20 0 1 0 9 2310144 200 18446744073709551615 \
                    1 1 0 0 0 0 0 4096 0 0 0 0 17 3 0 0 0 0 0 0 0 0 0 0 0 0 0\n";
        assert_eq!(parse_field(stat, 39), Some(3));
        assert_eq!(parse_field::<u32>("7 (a", 39), None);
    }

    #[test]
    fn usage_is_time_and_switches() {
        let status = "Name:\ta\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t3\n";
        let expected = Usage { run_ns: 500, wait_ns: 40, voluntary_switches: 12, forced_switches: 3 };
        assert_eq!(parse_usage("500 40 15\n", status), Some(expected));
        assert_eq!(parse_usage("500 40 15\n", ""), None);
    }

    #[test]
    fn this_process_is_seen() {
        let pid = std::process::id();
        assert!(threads(pid).unwrap().contains(&pid));
        assert!(usage(pid).unwrap().run_ns > 0);
        let cpus: Vec<u32> = (0..1024).collect();
        let this = rustix::thread::gettid().as_raw_pid() as u32;
        assert_eq!(share_on(&[this], &cpus).unwrap(), 1.0);
        assert_eq!(share_on(&[this], &[]).unwrap(), 0.0);
    }
}
