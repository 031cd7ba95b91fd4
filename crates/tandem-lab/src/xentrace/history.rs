//! The demand of each vCPU of a trace, and the CPU time that it got.
//!
//! A *burst* is one demand of the guest: from a wake-up until the vCPU blocks. A *run* is one stay on a pCPU.
//! A burst that is preempted takes several runs.

use super::record::{EventKind, Trace, VcpuKey};
use std::collections::BTreeMap;

/// The vCPUs of a trace, without idle pCPUs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct History {
    /// Length of the trace, ns.
    pub length_ns: u64,
    /// Every vCPU that the trace mentions.
    pub vcpus: BTreeMap<VcpuKey, VcpuHistory>,
}

/// What one vCPU did, in time order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct VcpuHistory {
    /// Its demand.
    pub bursts: Vec<Burst>,
    /// Its stays on pCPUs.
    pub runs: Vec<Run>,
}

/// From a wake-up until the vCPU blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Burst {
    /// When it woke up, ns; 0 if it was awake when the trace began.
    pub wake_ns: u64,
    /// CPU time that it used within the trace, ns.
    pub run_ns: u64,
    /// When it asked to block, ns; `None` if it was awake when the trace ended.
    pub block_ns: Option<u64>,
}

/// A stay on a pCPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// The pCPU.
    pub pcpu: u32,
    /// When it began, ns; `None` if it was running when the trace began.
    pub start_ns: Option<u64>,
    /// How long it ran within the trace, ns.
    pub run_ns: u64,
    /// How it ended.
    pub end: RunEnd,
}

/// How a stay on a pCPU ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RunEnd {
    /// It blocked.
    Blocked,
    /// It could have gone on, but another vCPU came, or it was paused or moved.
    Preempted,
    /// It was still running when the trace ended.
    TraceEnd,
}

impl History {
    /// Follows each vCPU through the trace.
    ///
    /// A vCPU whose first event is a wake-up was asleep when the trace began, otherwise it was awake.
    pub fn of(trace: &Trace) -> Self {
        let mut followers: BTreeMap<VcpuKey, Follower> = BTreeMap::new();
        for event in &trace.events {
            let vcpu = match event.kind {
                EventKind::Wake(vcpu)
                | EventKind::Block(vcpu)
                | EventKind::SwitchTo(vcpu)
                | EventKind::SwitchFrom { vcpu, .. }
                | EventKind::Continue(vcpu) => vcpu,
                EventKind::Switch | EventKind::RateLimited(_) => continue,
            };
            if !vcpu.is_idle() {
                let follower = followers.entry(vcpu);
                let follower = follower.or_insert_with(|| Follower::meet(event.kind, event.pcpu));
                follower.follow(event.kind, event.pcpu, event.time_ns);
            }
        }
        let finish = |(vcpu, follower): (VcpuKey, Follower)| (vcpu, follower.finish(trace.length_ns));
        Self { length_ns: trace.length_ns, vcpus: followers.into_iter().map(finish).collect() }
    }
}

/// The state of a vCPU at one moment of the trace, and its history until then.
#[derive(Default)]
struct Follower {
    history: VcpuHistory,
    /// The burst that goes on; `None` while it is blocked.
    burst: Option<Burst>,
    /// The run that goes on: its pCPU, and its start if that lies in the trace.
    running: Option<(u32, Option<u64>)>,
    /// When it asked to block; cleared if it is woken, or continues, before it has left its pCPU.
    blocking_ns: Option<u64>,
}

impl Follower {
    /// The state at the start of the trace, derived from the vCPU's first event.
    fn meet(first: EventKind, pcpu: u32) -> Self {
        let asleep = matches!(first, EventKind::Wake(_));
        let waiting = matches!(first, EventKind::SwitchTo(_));
        Self {
            burst: (!asleep).then(Burst::default),
            running: (!asleep && !waiting).then_some((pcpu, None)),
            ..Self::default()
        }
    }

    fn follow(&mut self, kind: EventKind, pcpu: u32, time_ns: u64) {
        match kind {
            EventKind::Wake(_) => {
                self.blocking_ns = None;
                self.burst_at(time_ns);
            }
            EventKind::Block(_) => self.blocking_ns = Some(time_ns),
            EventKind::Continue(_) => self.blocking_ns = None,
            EventKind::SwitchTo(_) => {
                self.burst_at(time_ns);
                self.running = Some((pcpu, Some(time_ns)));
            }
            EventKind::SwitchFrom { ran_ns, .. } => {
                let (pcpu, start_ns) = self.running.take().unwrap_or((pcpu, None));
                let end = match self.blocking_ns {
                    Some(_) => RunEnd::Blocked,
                    None => RunEnd::Preempted,
                };
                let run = Run {
                    pcpu,
                    start_ns,
                    // It may have begun before the trace did.
                    run_ns: u64::from(ran_ns).min(time_ns),
                    end,
                };
                self.add_run(run, time_ns);
                if self.blocking_ns.is_some() {
                    self.end_burst();
                }
            }
            EventKind::Switch | EventKind::RateLimited(_) => {}
        }
    }

    fn finish(mut self, length_ns: u64) -> VcpuHistory {
        if let Some((pcpu, start_ns)) = self.running {
            let run =
                Run { pcpu, start_ns, run_ns: length_ns - start_ns.unwrap_or(0), end: RunEnd::TraceEnd };
            self.add_run(run, length_ns);
        }
        self.end_burst();
        self.history
    }

    fn add_run(&mut self, run: Run, time_ns: u64) {
        let burst = self.burst_at(time_ns);
        burst.run_ns = burst.run_ns.saturating_add(run.run_ns);
        self.history.runs.push(run);
    }

    fn end_burst(&mut self) {
        let block_ns = self.blocking_ns.take();
        let burst = self.burst.take().map(|burst| Burst { block_ns, ..burst });
        self.history.bursts.extend(burst);
    }

    /// The burst that goes on, or else one that starts now.
    fn burst_at(&mut self, wake_ns: u64) -> &mut Burst {
        self.burst.get_or_insert(Burst { wake_ns, ..Burst::default() })
    }
}
