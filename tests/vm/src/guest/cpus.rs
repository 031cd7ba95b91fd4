//! The guest's CPUs: lists, nodes, hotplug.

use super::wait;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;
use tandem_machine::parse_cpulist;

const CPUS: &str = "/sys/devices/system/cpu";
const NODES: &str = "/sys/devices/system/node";

/// CPUs that are there, online or not.
pub fn present() -> Result<Vec<u32>> {
    read_list(&format!("{CPUS}/present"))
}

/// CPUs that run.
pub fn online() -> Result<Vec<u32>> {
    read_list(&format!("{CPUS}/online"))
}

/// CPUs of `nohz_full=`; none where the kernel does not know that.
pub fn without_ticks() -> Result<Vec<u32>> {
    let file = format!("{CPUS}/nohz_full");
    match fs::read_to_string(&file).as_deref().map(str::trim) {
        // Output of kernels that support the parameter and did not get it.
        Err(_) | Ok("" | "(null)") => Ok(Vec::new()),
        Ok(list) => parse_cpulist(list).with_context(|| format!("cannot understand {file}")),
    }
}

/// NUMA nodes that run.
pub fn nodes() -> Result<Vec<u32>> {
    read_list(&format!("{NODES}/online"))
}

/// The CPUs of a node.
pub fn of_node(node: u32) -> Result<Vec<u32>> {
    read_list(&format!("{NODES}/node{node}/cpulist"))
}

/// The CPUs that are threads of the same core as a CPU.
pub fn of_core(cpu: u32) -> Result<Vec<u32>> {
    read_list(&format!("{CPUS}/cpu{cpu}/topology/thread_siblings_list"))
}

/// The CPUs that share the largest cache with a CPU.
pub fn sharing_cache(cpu: u32) -> Result<Vec<u32>> {
    let cache = (0..)
        .map(|index| format!("{CPUS}/cpu{cpu}/cache/index{index}"))
        .take_while(|cache| Path::new(cache).exists())
        .last()
        .with_context(|| format!("CPU {cpu} has no caches"))?;
    read_list(&format!("{cache}/shared_cpu_list"))
}

/// How often the local timer of each CPU has interrupted it since boot: its ticks, and other timers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimerInterrupts(BTreeMap<u32, u64>);

impl TimerInterrupts {
    /// Those now.
    pub fn read() -> Result<Self> {
        let interrupts = fs::read_to_string("/proc/interrupts").context("cannot read /proc/interrupts")?;
        Self::parse(&interrupts).context("cannot understand /proc/interrupts")
    }

    /// How many of a CPU came since earlier ones.
    pub fn since(&self, earlier: &Self, cpu: u32) -> u64 {
        let of = |counts: &Self| counts.0.get(&cpu).copied().unwrap_or_default();
        of(self).saturating_sub(of(earlier))
    }

    /// The first line names the CPUs that run; `LOC` begins the line of the local timers.
    fn parse(interrupts: &str) -> Option<Self> {
        let mut lines = interrupts.lines();
        let cpus = lines.next()?.split_whitespace().map(|name| name.strip_prefix("CPU")?.parse::<u32>().ok());
        let counts = lines.find_map(|line| line.trim_start().strip_prefix("LOC:"))?;
        let counts = counts.split_whitespace().map(|count| count.parse::<u64>().ok());
        cpus.zip(counts).map(|(cpu, count)| Some((cpu?, count?))).collect::<Option<_>>().map(Self)
    }
}

/// How long each CPU has run tasks since boot, by its own clock: the ticks that it has taken while it did. A
/// CPU that QEMU does not run takes none, while the guest's clock goes on. Not for CPUs without ticks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnTimes(BTreeMap<u32, Duration>);

impl OwnTimes {
    /// Those now.
    pub fn read() -> Result<Self> {
        let stat = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
        Self::parse(&stat).context("cannot understand /proc/stat")
    }

    /// How long each of these CPUs has run since earlier ones.
    pub fn since(&self, earlier: &Self, cpus: &[u32]) -> impl Iterator<Item = Duration> {
        let of = |times: &Self, cpu| times.0.get(cpu).copied().unwrap_or_default();
        cpus.iter().map(move |cpu| of(self, cpu).saturating_sub(of(earlier, cpu)))
    }

    /// Ticks for user and nice, then those for the kernel, in hundredths of a second (`USER_HZ`).
    fn parse(stat: &str) -> Option<Self> {
        let mut times = BTreeMap::new();
        for line in stat.lines().filter_map(|line| line.strip_prefix("cpu")) {
            let mut fields = line.split_whitespace().map(str::parse::<u64>);
            // The first line, of all CPUs together, has a blank.
            if !line.starts_with(' ') {
                let cpu = fields.next()?.ok()?;
                let ticks = fields.take(3).sum::<Result<u64, _>>().ok()?;
                times.insert(u32::try_from(cpu).ok()?, Duration::from_millis(10 * ticks));
            }
        }
        Some(Self(times))
    }
}

/// Waits until each of these CPUs has run that long by its own clock.
pub fn wait_for_own_time(cpus: &[u32], time: Duration) -> Result<()> {
    let begin = OwnTimes::read()?;
    wait::until("that CPUs run for some seconds", || {
        Ok(OwnTimes::read()?.since(&begin, cpus).all(|ran| ran >= time).then_some(()))
    })
}

/// Starts or stops a CPU.
pub fn set_online(cpu: u32, online: bool) -> Result<()> {
    let file = format!("{CPUS}/cpu{cpu}/online");
    fs::write(&file, if online { "1" } else { "0" }).with_context(|| format!("cannot write to {file}"))
}

/// Starts all CPUs that do not run; which they were.
pub fn bring_all_online() -> Result<Vec<u32>> {
    let online = online()?;
    let mut offline = present()?;
    offline.retain(|cpu| !online.contains(cpu));
    offline.iter().try_for_each(|&cpu| set_online(cpu, true))?;
    Ok(offline)
}

fn read_list(file: &str) -> Result<Vec<u32>> {
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {file}"))?;
    parse_cpulist(&text).with_context(|| format!("cannot understand {file}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timer_interrupts_are_by_cpu() {
        let text = "           CPU0       CPU2\n   0:         40          0   IO-APIC   2-edge   timer\n\
                    LOC:       1200         34   Local timer interrupts\nSPU:          0          0   Spurious\n";
        let counts = TimerInterrupts::parse(text).unwrap();
        let none = TimerInterrupts(BTreeMap::new());
        assert_eq!([0, 1, 2].map(|cpu| counts.since(&none, cpu)), [1200, 0, 34]);
        assert_eq!(TimerInterrupts::parse("  CPU0\n 0: 4 timer\n"), None);
    }

    #[test]
    fn own_time_is_that_of_tasks() {
        let stat = "cpu  9 9 9 9 9\ncpu1 1 1 1 9 9\ncpu11 100 20 3 4000 0 7\nintr 5\n";
        let times = OwnTimes::parse(stat).unwrap();
        let since: Vec<Duration> = times.since(&OwnTimes(BTreeMap::new()), &[11, 1, 2]).collect();
        assert_eq!(since, [1230, 30, 0].map(Duration::from_millis));
        assert_eq!(OwnTimes::parse("cpu0 1 x 3\n"), None);
    }
}
