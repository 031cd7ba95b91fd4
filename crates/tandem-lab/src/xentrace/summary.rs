//! The figures of a trace that a model is compared with.

use super::history::{Burst, History, Run, RunEnd, VcpuHistory};
use super::record::{EventKind, Trace, VcpuKey};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The figures of a trace.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Summary {
    /// Length of the trace, ns.
    pub length_ns: u64,
    /// Records that Xen dropped.
    pub lost_records: u64,
    /// Decisions that put another vCPU, or none, on a pCPU.
    pub switches: u64,
    /// Decisions that let a vCPU go on because of the rate limit.
    pub rate_limited: u64,
    /// Each pCPU with a switch.
    pub pcpus: Vec<PcpuSummary>,
    /// Each vCPU.
    pub vcpus: Vec<VcpuSummary>,
}

/// The figures of a pCPU.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PcpuSummary {
    /// Its number.
    pub pcpu: u32,
    /// Decisions that put another vCPU, or none, on it.
    pub switches: u64,
}

/// The figures of a vCPU.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VcpuSummary {
    /// Its domain.
    pub domain: u32,
    /// Its number in the domain.
    pub vcpu: u32,
    /// Time on a pCPU, ns.
    pub run_ns: u64,
    /// Bursts, including those that the start or the end of the trace cuts.
    pub bursts: u64,
    /// CPU time of a whole burst, median, ns; `None` if no burst is whole.
    pub burst_p50_ns: Option<u64>,
    /// Runs, including those that the start or the end of the trace cuts.
    pub runs: u64,
    /// Runs that ended although the vCPU could have gone on.
    pub preemptions: u64,
    /// The shortest of these, ns; those that the start of the trace cuts do not count.
    pub preempted_run_min_ns: Option<u64>,
    /// Their median, ns.
    pub preempted_run_p50_ns: Option<u64>,
    /// How long Xen itself takes from a wake-up until the vCPU runs, ns: the mean of the wake-ups after which
    /// it did not wait; `None` if it waited after most.
    pub wake_latency_ns: Option<u64>,
    /// The pCPUs that it ran on, one after another.
    pub pcpus: Vec<u32>,
}

/// A vCPU that runs less than this after its wake-up did not wait for a pCPU, ns.
const NO_WAIT_NS: u64 = 200_000;

impl Summary {
    /// Sums up a trace and its history.
    pub fn of(trace: &Trace, history: &History) -> Self {
        let mut switches: BTreeMap<u32, u64> = BTreeMap::new();
        let mut rate_limited = 0;
        for event in &trace.events {
            match event.kind {
                EventKind::Switch => *switches.entry(event.pcpu).or_default() += 1,
                EventKind::RateLimited(_) => rate_limited += 1,
                _ => {}
            }
        }
        Self {
            length_ns: trace.length_ns,
            lost_records: trace.lost_records,
            switches: switches.values().sum(),
            rate_limited,
            pcpus: switches.into_iter().map(|(pcpu, switches)| PcpuSummary { pcpu, switches }).collect(),
            vcpus: history.vcpus.iter().map(|(&key, history)| VcpuSummary::of(key, history)).collect(),
        }
    }
}

impl VcpuSummary {
    fn of(key: VcpuKey, history: &VcpuHistory) -> Self {
        let VcpuHistory { bursts, runs } = history;
        let whole_bursts = bursts.iter().filter(|burst| burst.wake_ns > 0 && burst.block_ns.is_some());
        let preempted = || runs.iter().filter(|run| run.end == RunEnd::Preempted);
        let whole_preempted = || preempted().filter(|run| run.start_ns.is_some()).map(|run| run.run_ns);
        let mut pcpus: Vec<u32> = runs.iter().map(|run| run.pcpu).collect();
        pcpus.dedup();
        Self {
            domain: key.domain,
            vcpu: key.vcpu,
            run_ns: runs.iter().map(|run| run.run_ns).fold(0, u64::saturating_add),
            bursts: bursts.len() as u64,
            burst_p50_ns: median(whole_bursts.map(|burst| burst.run_ns)),
            runs: runs.len() as u64,
            preemptions: preempted().count() as u64,
            preempted_run_min_ns: whole_preempted().min(),
            preempted_run_p50_ns: median(whole_preempted()),
            wake_latency_ns: wake_latency_ns(bursts, runs),
            pcpus,
        }
    }
}

/// The mean time from a wake-up to the run, of those that are shorter than [`NO_WAIT_NS`], if most are.
fn wake_latency_ns(bursts: &[Burst], runs: &[Run]) -> Option<u64> {
    let starts: Vec<u64> = runs.iter().filter_map(|run| run.start_ns).collect();
    let wakes = || bursts.iter().map(|burst| burst.wake_ns).filter(|&wake_ns| wake_ns > 0);
    let latencies = wakes().filter_map(|wake_ns| {
        let start_ns = starts.get(starts.partition_point(|&start_ns| start_ns < wake_ns))?;
        Some(start_ns - wake_ns).filter(|&latency_ns| latency_ns < NO_WAIT_NS)
    });
    let latencies: Vec<u64> = latencies.collect();
    let most = 2 * latencies.len() >= wakes().count();
    latencies.iter().sum::<u64>().checked_div(latencies.len() as u64).filter(|_| most)
}

/// The median; the upper one of an even number.
fn median(values: impl Iterator<Item = u64>) -> Option<u64> {
    let mut values: Vec<u64> = values.collect();
    values.sort_unstable();
    values.get(values.len() / 2).copied()
}
