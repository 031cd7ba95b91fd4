//! The credit model against the real Xen: the model gets the demand of the guests in recorded traces, and its
//! decisions are compared with Xen's (see `xen/README.md`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::RangeInclusive;
use std::sync::Arc;
use tandem_lab::xentrace::{Summary, VcpuKey, VcpuSummary, read_bursts, replay_programs};
use tandem_machine::MachineBuilder;
use tandem_machine::cpumask::CpuMask;
use tandem_machine::ids::{CpuId, TaskId};
use tandem_sim::cost::CostModels;
use tandem_sim::metrics::RunMetrics;
use tandem_sim::policy::credit::{CreditSettings, Era};
use tandem_sim::run_observed;
use tandem_sim::scenario::{
    Affinity, AffinityChange, HostTask, PolicySettings, Scenario, Workload, WorkloadKind,
};
use tandem_sim::trace::{Event, EventKind};

const PCPUS: usize = 6;
const DOM0: u32 = 0;
const A: u32 = 1;
const B: u32 = 2;

/// Time at which A's hard affinity was removed, in `credit.soft.n0`, ns.
const SET_FREE_NS: u64 = 1_063_600_000;

/// Allowed relative difference from Xen of counts and times that depend on unrecorded state.
const LOOSE: f64 = 0.05;

fn cpus(range: RangeInclusive<u32>) -> CpuMask {
    CpuMask::from_cpus(PCPUS, range.map(CpuId))
}

fn on(hard: RangeInclusive<u32>) -> Affinity {
    Affinity::hard(cpus(hard))
}

fn preferring(hard: RangeInclusive<u32>, soft: RangeInclusive<u32>) -> Affinity {
    Affinity { soft: Some(cpus(soft).into()), ..on(hard) }
}

/// The events in the model, and those in Xen.
struct Replay {
    metrics: RunMetrics,
    events: Vec<Event>,
    vcpus: Vec<VcpuKey>,
    xen: Summary,
}

/// Replays a trace. `affinity` gives the affinity of a vCPU, `later` that of A's vCPUs after the change.
fn replay(
    trace: &str,
    ratelimit_ns: u64,
    affinity: impl Fn(VcpuKey) -> Affinity,
    later: Option<Affinity>,
) -> Replay {
    let path = |extension| format!("{}/tests/xen/{trace}.{extension}", env!("CARGO_MANIFEST_DIR"));
    let xen: Summary = toml::from_str(&fs::read_to_string(path("toml")).unwrap()).unwrap();
    let bursts = read_bursts(&fs::read(path("csv")).unwrap()[..]).unwrap();
    let mut domains: BTreeMap<u32, Vec<HostTask>> = BTreeMap::new();
    let mut vcpus = Vec::new();
    for (key, program) in replay_programs(&bursts) {
        domains.entry(key.domain).or_default().push(HostTask::new(Arc::new(program), affinity(key)));
        vcpus.push(key);
    }
    let domain = |(domain, vcpus)| {
        let change = |affinity| AffinityChange { at_ns: SET_FREE_NS, affinity };
        Workload {
            affinity_changes: later.clone().filter(|_| domain == A).map(change).into_iter().collect(),
            ..Workload::new(format!("dom{domain}"), WorkloadKind::vm(vcpus), vec![0.5, 0.5])
        }
    };
    let scenario = Scenario {
        machine: Arc::new(MachineBuilder::symmetric(2, 3, 1).build().unwrap()),
        costs: CostModels::off(),
        policy: PolicySettings::Credit(CreditSettings {
            era: Era::Xen4_13,
            ratelimit_ns,
            ..CreditSettings::default()
        }),
        workloads: domains.into_iter().map(domain).collect(),
        warmup_ns: 0,
        length_ns: xen.length_ns,
        stop_at_count: None,
        cgroups: Vec::new(),
        events: Vec::new(),
        homes: Default::default(),
        pause_loop: None,
    };
    let mut events: Vec<Event> = Vec::new();
    let metrics = run_observed(&scenario, 1, &mut events).unwrap();
    Replay { metrics, events, vcpus, xen }
}

impl Replay {
    fn xen_vcpus(&self, domain: u32) -> impl Iterator<Item = &VcpuSummary> {
        self.xen.vcpus.iter().filter(move |vcpu| vcpu.domain == domain)
    }

    fn tasks(&self, domain: u32) -> Vec<TaskId> {
        (0..self.vcpus.len()).filter(|&at| self.vcpus[at].domain == domain).map(TaskId::from).collect()
    }

    /// Every stretch of a task on a pCPU: the pCPU, start, end, and why it ended.
    fn runs(&self, task: TaskId) -> Vec<(CpuId, u64, u64, EventKind)> {
        let mut runs = Vec::new();
        let mut start = None;
        for event in self.events.iter().filter(|event| event.task == task) {
            match event.kind {
                EventKind::Start => start = Some(event.at_ns),
                EventKind::Preempt | EventKind::Block | EventKind::Exit | EventKind::Yield => {
                    let start_ns = start.take().expect("a task stops only after it started");
                    runs.push((event.cpu, start_ns, event.at_ns, event.kind));
                }
                EventKind::Wake | EventKind::Continue => {}
            }
        }
        runs
    }

    /// The pCPUs that a task was put on from an instant on.
    fn pcpus_since(&self, task: TaskId, at_ns: u64) -> BTreeSet<u32> {
        let starts = self.events.iter().filter(|event| event.kind == EventKind::Start && event.task == task);
        starts.filter(|event| event.at_ns >= at_ns).map(|event| event.cpu.0).collect()
    }

    fn run_ns(&self, key: VcpuKey) -> u64 {
        let vm = self.metrics.vms.iter().find(|vm| vm.name == format!("dom{}", key.domain)).unwrap();
        vm.vcpus[key.vcpu as usize].run_ns
    }

    fn assert_run_times(&self) {
        for vcpu in &self.xen.vcpus {
            let key = VcpuKey { domain: vcpu.domain, vcpu: vcpu.vcpu };
            assert_loosely(&format!("run time of {key:?}"), self.run_ns(key), vcpu.run_ns);
        }
    }
}

fn assert_loosely(what: &str, model: u64, xen: u64) {
    let ratio = model as f64 / xen as f64;
    println!("{what}: model {model}, Xen {xen}, ratio {ratio:.4}");
    assert!((ratio - 1.0).abs() <= LOOSE, "{what}: {model} in the model, {xen} in Xen");
}

fn pinned_pairs(key: VcpuKey) -> Affinity {
    match key.domain {
        DOM0 => on(0..=0),
        _ => on(4 + key.vcpu..=4 + key.vcpu),
    }
}

#[test]
fn without_a_rate_limit() {
    let replay = replay("credit.r0", 0, pinned_pairs, None);
    assert_loosely("switches", replay.metrics.host.context_switches, replay.xen.switches);
    replay.assert_run_times();
    assert_eq!(replay.metrics.host.policy["ratelimited"], 0);
    for (task, xen) in replay.tasks(A).into_iter().zip(replay.xen_vcpus(A)) {
        let preempted = replay.runs(task).iter().filter(|run| run.3 == EventKind::Preempt).count();
        assert_loosely("preemptions of A", preempted as u64, xen.preemptions);
    }
}

#[test]
fn with_a_rate_limit_of_a_millisecond() {
    const LIMIT_NS: u64 = 1_000_000;
    let replay = replay("credit.r1000", LIMIT_NS, pinned_pairs, None);
    assert_loosely("switches", replay.metrics.host.context_switches, replay.xen.switches);
    assert_loosely("held back", replay.metrics.host.policy["ratelimited"], replay.xen.rate_limited);
    replay.assert_run_times();
    for task in replay.tasks(A) {
        let runs = replay.runs(task);
        let preempted = || runs.iter().filter(|run| run.3 == EventKind::Preempt);
        assert!(preempted().count() > 1_000);
        assert!(preempted().all(|&(_, start_ns, end_ns, _)| end_ns - start_ns >= LIMIT_NS));
        // Held back first, preempted when the limit is over: never the other way round, unless the slice
        // ends.
        let mut held = 0;
        let mut started_ns = 0;
        for event in replay.events.iter().filter(|event| event.task == task) {
            match event.kind {
                EventKind::Start => started_ns = event.at_ns,
                EventKind::Continue => held += 1,
                EventKind::Preempt => {
                    let whole_slice = event.at_ns - started_ns >= CreditSettings::default().timeslice_ns;
                    assert!(
                        held > 0 || whole_slice,
                        "preempted at {} ns without having been held back",
                        event.at_ns
                    );
                    held = 0;
                }
                _ => {}
            }
        }
    }
}

/// A's two vCPUs are no longer bound to node 1, and prefer two pCPUs of node 0: both go there and stay.
#[test]
fn soft_affinity_moves_running_vcpus() {
    let pinned = |key: VcpuKey| match key.domain {
        DOM0 => on(0..=0),
        _ => on(4..=5),
    };
    let replay = replay("credit.soft.n0", 1_000_000, pinned, Some(preferring(1..=5, 1..=2)));
    let tasks = replay.tasks(A);
    let after: Vec<BTreeSet<u32>> = tasks.iter().map(|&task| replay.pcpus_since(task, SET_FREE_NS)).collect();
    let all: BTreeSet<u32> = after.iter().flatten().copied().collect();
    assert!(after.iter().all(|pcpus| pcpus.len() == 1), "each moves once: {after:?}");
    assert_eq!(all, BTreeSet::from([1, 2]), "to the pCPUs they prefer: {after:?}");
    let moved_ns =
        replay.events.iter().filter(|event| event.kind == EventKind::Start && tasks.contains(&event.task));
    let last_ns = moved_ns.map(|event| event.at_ns).max().unwrap();
    assert!(last_ns - SET_FREE_NS < 1_000_000, "within a millisecond, as Xen did");
}

/// Four vCPUs prefer two pCPUs: two get one each and keep it, the others find one each elsewhere.
#[test]
fn soft_affinity_spills_over() {
    let affinity = |key: VcpuKey| match key.domain {
        DOM0 => on(0..=0),
        _ => preferring(1..=5, 4..=5),
    };
    let replay = replay("credit.soft.spill", 1_000_000, affinity, None);
    // Where B began is not recorded: the model may have to move it once, at a tick.
    let settled_ns = 500_000_000;
    for task in replay.tasks(A) {
        let preemptions =
            replay.events.iter().filter(|event| event.task == task && event.kind == EventKind::Preempt);
        assert_eq!(preemptions.count(), 0, "A computes all the time and keeps its pCPU");
        let start = replay.events.iter().find(|event| event.task == task && event.kind == EventKind::Start);
        assert!(cpus(4..=5).contains(start.unwrap().cpu), "the one that it prefers");
    }
    let b: Vec<BTreeSet<u32>> =
        replay.tasks(B).iter().map(|&task| replay.pcpus_since(task, settled_ns)).collect();
    let all: BTreeSet<u32> = b.iter().flatten().copied().collect();
    assert!(b.iter().all(|pcpus| pcpus.len() == 1) && all.len() == 2, "each keeps one of its own: {b:?}");
    assert!(all.iter().all(|pcpu| (1..=3).contains(pcpu)), "outside the full soft set: {b:?}");
    replay.assert_run_times();
}
