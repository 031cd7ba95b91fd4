//! The models of Xen's schedulers against the real Xen: they get the demand of the guests in recorded traces,
//! and their decisions are compared with Xen's (see `xen/README.md`).

mod credit;
mod credit2;

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
use tandem_sim::run_observed;
use tandem_sim::scenario::{
    Affinity, AffinityChange, HostTask, PolicySettings, Scenario, Which, Workload, WorkloadKind,
};
use tandem_sim::trace::{Event, EventKind};

const PCPUS: usize = 6;
const DOM0: u32 = 0;
/// Computes all the time.
const A: u32 = 1;
/// Computes and sleeps in turns.
const B: u32 = 2;
/// As A.
const C: u32 = 3;

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

/// The first vCPUs of A and B on pCPU 4, the second ones on 5.
fn pinned_pairs(key: VcpuKey) -> Affinity {
    match key.domain {
        DOM0 => on(0..=0),
        _ => on(4 + key.vcpu..=4 + key.vcpu),
    }
}

/// A vCPU and its affinity for the model.
type AffinityOf<'a> = &'a dyn Fn(VcpuKey) -> Affinity;

/// How to replay a trace.
struct Plan<'a> {
    trace: &'a str,
    policy: PolicySettings,
    affinity: AffinityOf<'a>,
    /// Changes of affinity: the vCPU, and when it gets which.
    changes: Vec<(VcpuKey, AffinityChange)>,
    /// Weight and cap of a domain.
    share: fn(u32) -> (u32, u32),
}

impl<'a> Plan<'a> {
    fn new(trace: &'a str, policy: PolicySettings, affinity: AffinityOf<'a>) -> Self {
        Self { trace, policy, affinity, changes: Vec::new(), share: |_| (Workload::DEFAULT_WEIGHT, 0) }
    }
}

/// The events in the model, and those in Xen.
struct Replay {
    metrics: RunMetrics,
    events: Vec<Event>,
    vcpus: Vec<VcpuKey>,
    xen: Summary,
}

/// Replays a trace. vCPUs whose affinities change apart are VMs of their own, which makes no difference
/// without caps and with equal weights.
fn replay(plan: &Plan<'_>) -> Replay {
    let path = |extension| format!("{}/tests/xen/{}.{extension}", env!("CARGO_MANIFEST_DIR"), plan.trace);
    let xen: Summary = toml::from_str(&fs::read_to_string(path("toml")).unwrap()).unwrap();
    let bursts = read_bursts(&fs::read(path("csv")).unwrap()[..]).unwrap();
    let mut vms: BTreeMap<(u32, u32), Vec<HostTask>> = BTreeMap::new();
    let mut vcpus = Vec::new();
    let latency_ns = |key: VcpuKey| {
        let vcpu = xen.vcpus.iter().find(|vcpu| (vcpu.domain, vcpu.vcpu) == (key.domain, key.vcpu));
        vcpu.and_then(|vcpu| vcpu.wake_latency_ns).unwrap_or(0)
    };
    for (key, program) in replay_programs(&bursts, latency_ns) {
        let alone = plan.changes.iter().any(|(changed, _)| *changed == key);
        let vm = (key.domain, if alone { key.vcpu } else { 0 });
        vms.entry(vm).or_default().push(HostTask::new(Arc::new(program), (plan.affinity)(key)));
        vcpus.push(key);
    }
    let workload = |((domain, vcpu), vcpus)| {
        let key = VcpuKey { domain, vcpu };
        let changes = plan.changes.iter().filter(|(changed, _)| *changed == key);
        let (weight, cap_pct) = (plan.share)(domain);
        let mut workload = Workload {
            weight,
            affinity_changes: changes.map(|(_, change)| change.clone()).collect(),
            ..Workload::new(format!("dom{domain}.{vcpu}"), WorkloadKind::vm(vcpus), vec![0.5, 0.5])
        };
        if let WorkloadKind::Vm(vm) = &mut workload.kind {
            vm.cap_pct = cap_pct;
        }
        workload
    };
    let scenario = Scenario {
        machine: Arc::new(MachineBuilder::symmetric(2, 3, 1).build().unwrap()),
        costs: CostModels::off(),
        policy: plan.policy.clone(),
        workloads: vms.into_iter().map(workload).collect(),
        warmup_ns: 0,
        length_ns: xen.length_ns,
        stop_at_count: None,
        gates: 0,
        cgroups: Vec::new(),
        events: Vec::new(),
        homes: Default::default(),
        pause_loop: None,
        halt_poll_ns: None,
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

    /// Decisions that put another vCPU, or none, on a pCPU, as Xen counts switches: a vCPU leaves, or one
    /// starts where none has left at that instant.
    fn switches(&self) -> u64 {
        let mut left_ns = BTreeMap::new();
        let is_switch = |event: &&Event| match event.kind {
            EventKind::Preempt | EventKind::Block | EventKind::Exit | EventKind::Yield => {
                left_ns.insert(event.cpu, event.at_ns);
                true
            }
            EventKind::Start => left_ns.get(&event.cpu) != Some(&event.at_ns),
            EventKind::Wake | EventKind::Continue => false,
        };
        self.events.iter().filter(is_switch).count() as u64
    }

    /// When a task was put on which pCPU, from an instant on.
    fn starts_since(&self, task: TaskId, at_ns: u64) -> Vec<(u64, u32)> {
        let starts = self.events.iter().filter(|event| event.kind == EventKind::Start && event.task == task);
        starts.filter(|event| event.at_ns >= at_ns).map(|event| (event.at_ns, event.cpu.0)).collect()
    }

    /// The pCPUs that a task was put on from an instant on.
    fn pcpus_since(&self, task: TaskId, at_ns: u64) -> BTreeSet<u32> {
        self.starts_since(task, at_ns).into_iter().map(|(_, cpu)| cpu).collect()
    }

    fn run_ns(&self, key: VcpuKey) -> u64 {
        let at = self.vcpus.iter().position(|vcpu| *vcpu == key).unwrap();
        self.metrics.vms.iter().flat_map(|vm| &vm.vcpus).nth(at).unwrap().run_ns
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
