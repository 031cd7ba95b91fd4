//! One sample: what the machine, the scheduler and the VMs did in an interval.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, SystemTime};
use tandem_host::cpu_time::CpuTimes;
use tandem_host::scheduler::Status;
use tandem_host::vms::Identity;
use tandem_machine::Machine;
use tandem_settings::{Counters, Held, Mode};
use tandemd::observe::{Observation, ObservedVm};

/// What was seen in one interval.
pub struct Sample {
    pub machine: MachineSample,
    /// The scheduler, or why nothing is known of it: a sentence without a full stop.
    pub scheduler: Result<SchedulerSample, String>,
    pub vms: Observation,
    /// Changes of CPU a second of each VM's vCPUs, and of each thread by its number; those that are not known
    /// are missing.
    pub vm_migrations: HashMap<Identity, f64>,
    pub thread_migrations: HashMap<u32, f64>,
    /// What the threads of the VM that is shown in detail prefer, by their numbers.
    pub preferences: HashMap<u32, Held>,
}

impl Sample {
    /// The VM with that identity.
    pub fn vm(&self, identity: Identity) -> Option<&ObservedVm> {
        self.vms.vms.iter().find(|vm| vm.vm.identity == identity)
    }
}

/// What the CPUs did.
pub struct MachineSample {
    /// In ascending order of their numbers.
    pub nodes: Vec<NodeSample>,
}

/// What the CPUs of a node did.
pub struct NodeSample {
    /// By the operating system.
    pub number: u32,
    /// Its CPUs by last-level cache.
    pub llcs: Vec<Vec<CpuSample>>,
    /// Free memory, and such as only holds files; bytes.
    pub free_bytes: u64,
}

/// What a CPU did, in shares of the time from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuSample {
    pub busy: f64,
    /// The hypervisor below ran something else.
    pub stolen: f64,
}

impl CpuSample {
    fn between(earlier: &CpuTimes, later: &CpuTimes) -> Self {
        let [busy, idle, stolen] = [
            later.busy_ns.saturating_sub(earlier.busy_ns),
            later.idle_ns.saturating_sub(earlier.idle_ns),
            later.steal_ns.saturating_sub(earlier.steal_ns),
        ]
        .map(|ns| ns as f64);
        // Idle time may be counted late: none of it may have passed.
        let all = (busy + idle + stolen).max(1.0);
        Self { busy: busy / all, stolen: stolen / all }
    }
}

impl NodeSample {
    /// Its CPUs.
    pub fn cpus(&self) -> impl Iterator<Item = &CpuSample> {
        self.llcs.iter().flatten()
    }
}

/// The busy share of CPUs; 0 of none.
pub fn busy<'a>(cpus: impl IntoIterator<Item = &'a CpuSample>) -> f64 {
    let (count, sum) = cpus.into_iter().fold((0, 0.0), |(count, sum), cpu| (count + 1, sum + cpu.busy));
    sum / f64::from(count.max(1))
}

impl MachineSample {
    /// What the CPUs did between two readings of their times; `free_bytes` are those of the machine's nodes
    /// in its order.
    pub fn between(machine: &Machine, free_bytes: &[u64], earlier: &[CpuTimes], later: &[CpuTimes]) -> Self {
        let find = |times: &[CpuTimes], cpu: u32| {
            times.binary_search_by_key(&cpu, |times| times.cpu).ok().map(|at| times[at])
        };
        let sample_of = |cpu| match (find(earlier, cpu), find(later, cpu)) {
            (Some(earlier), Some(later)) => CpuSample::between(&earlier, &later),
            _ => CpuSample::default(),
        };
        let mut nodes: Vec<NodeSample> = machine
            .nodes()
            .iter()
            .zip(free_bytes)
            .map(|(node, &free_bytes)| {
                let mut llcs = BTreeMap::<_, Vec<CpuSample>>::new();
                for cpu in node.cpus.iter().map(|cpu| machine.cpu(cpu)) {
                    llcs.entry(cpu.llc).or_default().push(sample_of(cpu.os_index));
                }
                NodeSample { number: node.os_index, llcs: llcs.into_values().collect(), free_bytes }
            })
            .collect();
        nodes.sort_by_key(|node| node.number);
        Self { nodes }
    }

    /// All CPUs.
    pub fn cpus(&self) -> impl Iterator<Item = &CpuSample> {
        self.nodes.iter().flat_map(NodeSample::cpus)
    }
}

/// What the scheduler did.
pub struct SchedulerSample {
    pub mode: Mode,
    pub since: SystemTime,
    /// What it counted in the interval, and how long that was; nothing at the first sample.
    pub counted: Option<(Counters, Duration)>,
}

impl SchedulerSample {
    /// What it did between two readings.
    pub fn between(earlier: Option<&(Status, Duration)>, now: &Status, time: Duration) -> Self {
        let counted = earlier
            .map(|(earlier, then)| (now.counters.since(&earlier.counters), time.saturating_sub(*then)));
        Self { mode: now.mode, since: now.since, counted }
    }

    /// A counter's events a second; nothing at the first sample.
    pub fn rate(&self, counter: &str) -> Option<f64> {
        let (counters, time) = self.counted.as_ref()?;
        let value = counters.iter().find(|known| known.name == counter)?.value;
        Some(value as f64 / time.as_secs_f64().max(f64::EPSILON))
    }
}
