//! The demand of the guests of a trace, as a small CSV file and as programs.

use super::history::{Burst, History};
use super::record::VcpuKey;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use tandem_sim::program::{Amount, Op, Program};

/// The bursts of each vCPU, in time order.
pub type Bursts = BTreeMap<VcpuKey, Vec<Burst>>;

impl From<&History> for Bursts {
    fn from(history: &History) -> Self {
        let bursts = history.vcpus.iter();
        bursts.map(|(&vcpu, history)| (vcpu, history.bursts.clone())).collect()
    }
}

/// A line of the file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    domain: u32,
    vcpu: u32,
    wake_ns: u64,
    run_ns: u64,
    block_ns: Option<u64>,
}

/// Writes bursts as CSV: a line for each, the vCPUs one after another.
///
/// # Errors
/// If the writer fails.
pub fn write_bursts(bursts: &Bursts, to: impl io::Write) -> Result<(), csv::Error> {
    let mut writer = csv::Writer::from_writer(to);
    for (&VcpuKey { domain, vcpu }, bursts) in bursts {
        for &Burst { wake_ns, run_ns, block_ns } in bursts {
            writer.serialize(Line { domain, vcpu, wake_ns, run_ns, block_ns })?;
        }
    }
    writer.flush()?;
    Ok(())
}

/// Reads what [`write_bursts`] wrote.
///
/// # Errors
/// If the reader fails, or a line is not as [`write_bursts`] writes it; the error names the line.
pub fn read_bursts(from: impl io::Read) -> Result<Bursts, csv::Error> {
    let mut bursts = Bursts::new();
    for line in csv::Reader::from_reader(from).into_deserialize() {
        let Line { domain, vcpu, wake_ns, run_ns, block_ns } = line?;
        bursts.entry(VcpuKey { domain, vcpu }).or_default().push(Burst { wake_ns, run_ns, block_ns });
    }
    Ok(bursts)
}

/// Programs with the same demand: each vCPU computes for as long as it did, and sleeps for as long as it did
/// in between.
///
/// Sleeps begin at the end of the previous burst, as with a guest's timers. With the recorded instants
/// instead, a vCPU that the scheduler under test delays would never catch up, and would no longer sleep. A
/// burst that the end of the trace cuts off goes on for ever, so a run must not last longer than the trace.
///
/// `wake_latency_ns`: the time that Xen itself took from a wake-up of the vCPU until it ran. It is slept,
/// too: other vCPUs ran on.
pub fn replay_programs(bursts: &Bursts, wake_latency_ns: impl Fn(VcpuKey) -> u64) -> Vec<(VcpuKey, Program)> {
    let programs = bursts.iter().map(|(&vcpu, bursts)| {
        let mut ops = Vec::with_capacity(2 * bursts.len());
        let mut asleep_since_ns = Some(0);
        for burst in bursts {
            let slept_ns = burst.wake_ns.saturating_sub(asleep_since_ns.unwrap_or(burst.wake_ns));
            let latency_ns = if burst.wake_ns > 0 { wake_latency_ns(vcpu) } else { 0 };
            ops.push(Op::Sleep(Amount::Fixed(slept_ns + latency_ns)));
            ops.push(replay_work(burst));
            asleep_since_ns = burst.block_ns;
        }
        (vcpu, Program { ops, profiles: Vec::new() })
    });
    programs.collect()
}

fn replay_work(burst: &Burst) -> Op {
    let compute = |work_ns| Op::Compute { work: Amount::Fixed(work_ns), profile: None };
    match burst.block_ns {
        Some(_) => compute(burst.run_ns),
        None => Op::Repeat { times: None, body: vec![compute(1_000_000_000)] },
    }
}
