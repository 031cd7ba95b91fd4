//! A VM that the agent looks after: what it knows of it, and how that is kept up to date at little cost.

use super::hands::Hands;
use super::locality::Locality;
use super::report::{Known, MemoryReport, VmReport};
use super::vcpu_times::VcpuTimes;
use super::whereabouts::Whereabouts;
use crate::scheduler::{Place, PreferenceError, VmRule};
use crate::tasks;
use crate::vms::homes_file::{HomeEntry, HomeSaving};
use crate::vms::{Limits, Memory, Thread, ThreadKind, Vm, name_nodes, nodes_of};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tandem_sim::homes::{Home, Saving, VmView, Wish};
use tandem_sim::ids::NodeId;
use tandem_sim::machine::{Machine, format_cpulist};
use tandem_sim::placement::usable_nodes;

/// Why a VM has no home before the planner was asked.
const JUST_FOUND: &str = "it has just been found";
/// How old the list of threads, and what each of them may use, may become when nothing points to a change. What the first
/// vCPU may use is read in every look.
const THREADS_AGE_MAX: Duration = Duration::from_secs(60);
const LIMITS_AGE_MAX: Duration = Duration::from_secs(300);
/// Reading where the memory of all VMs is takes one part in so many of a CPU; it is put off otherwise. It costs 0.1 ms a VM,
/// and where page tables have to be read, up to seconds.
const MEMORY_SHARE: u32 = 2000;
/// How long it is put off at most.
const MEMORY_AGE_MAX: Duration = Duration::from_secs(3600);

/// A VM that the agent looks after.
pub struct Resident {
    /// Never that of an earlier one.
    pub id: u64,
    /// What does not change.
    pub vm: Vm,
    /// Its threads; up to a minute old.
    pub threads: Vec<Thread>,
    /// What it may use.
    pub limits: Limits,
    /// Where its memory is.
    pub memory: Memory,
    /// CPUs that its vCPUs ran on and waited for, in the mean since the look before; nothing before the second look.
    pub demand: Option<f64>,
    /// Where it lives.
    pub home: Option<Home>,
    /// Why it has its home, or none.
    pub why: String,
    /// What somebody else has decided.
    pub decided: Option<Decided>,
    /// It uses core scheduling, and that was told.
    pub has_cookie: bool,
    rule: Option<VmRule>,
    threads_read: Duration,
    limits_read: Duration,
    vcpu_times: Arc<VcpuTimes>,
    asked: Demand,
    locality: Locality,
    /// Only where homes are plans.
    whereabouts: Whereabouts,
    saving: Option<HomeSaving>,
    memory_due: Duration,
}

/// CPUs that vCPUs ran on and waited for, in the mean between two looks.
struct Demand {
    asked_ns: u64,
    read: Duration,
}

impl Demand {
    fn start(times: &VcpuTimes, now: Duration) -> Self {
        let total = times.total();
        Self { asked_ns: total.run_ns.saturating_add(total.wait_ns.unwrap_or(0)), read: now }
    }

    /// Since the last call; nothing if no time has passed.
    fn take(&mut self, times: &VcpuTimes, now: Duration) -> Option<f64> {
        let time = now.saturating_sub(self.read);
        if time.is_zero() {
            return None;
        }
        let before = std::mem::replace(self, Self::start(times, now));
        Some(self.asked_ns.saturating_sub(before.asked_ns) as f64 / time.as_nanos() as f64)
    }
}

/// What somebody else than the agent has decided about a VM: it keeps its hands off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decided {
    /// The nodes that this comes to; none if it comes to no home.
    pub nodes: Vec<u32>,
    /// A clause for people.
    pub why: String,
}

impl Resident {
    /// Reads all about a VM that has just been found.
    pub fn new(id: u64, vm: Vm, rules: &[VmRule], online: &[u32], now: Duration) -> Self {
        let threads = vm.read_threads();
        let limits = vm.read_limits(&threads, online);
        let vcpu_times = Arc::new(VcpuTimes::start(&vm, &threads));
        let cgroup = limits.cgroup.as_ref().map(|cgroup| cgroup.path.as_path());
        let rule = rules.iter().find(|rule| rule.fits(&vm, cgroup)).cloned();
        let mut resident = Self {
            id,
            memory: Memory { resident_bytes: None, by_node: None },
            threads,
            limits,
            demand: None,
            home: None,
            why: JUST_FOUND.into(),
            decided: None,
            has_cookie: false,
            rule,
            threads_read: now,
            limits_read: now,
            asked: Demand::start(&vcpu_times, now),
            vcpu_times,
            locality: Locality::default(),
            whereabouts: Whereabouts::default(),
            saving: None,
            memory_due: now,
            vm,
        };
        resident.read_memory(1, now);
        resident
    }

    /// Nodes that the settings give it and the machine does not have, by their numbers.
    pub fn missing_nodes(&self, machine: &Machine) -> Vec<u32> {
        let home = self.rule.as_ref().and_then(|rule| rule.home.as_ref());
        home.into_iter().flatten().copied().filter(|&node| id_of(machine, node).is_none()).collect()
    }

    /// Its vCPUs.
    pub fn vcpus(&self) -> impl Iterator<Item = &Thread> {
        self.threads.iter().filter(|thread| thread.kind == ThreadKind::Vcpu)
    }

    /// Reads what has changed since the last look; `vms` is how many there are.
    pub fn update(&mut self, root: &Path, online: &[u32], vms: usize, now: Duration) {
        let pid = self.vm.identity.pid;
        let first = self.limits.vcpus.first();
        let is_other = first.is_some_and(|(tid, cpus)| {
            tasks::thread(root, pid, *tid).is_none_or(|task| task.allowed != *cpus)
        });
        let mut are_others = false;
        if is_other || now.saturating_sub(self.threads_read) >= THREADS_AGE_MAX {
            let numbers = self.threads.iter().map(|thread| &thread.tid);
            are_others = !tasks::threads(root, pid).iter().eq(numbers);
            if are_others {
                self.threads = self.vm.read_threads();
                self.vcpu_times = Arc::new(self.vcpu_times.with_threads(&self.threads));
                self.asked = Demand::start(&self.vcpu_times, now);
            }
            self.threads_read = now;
        }
        if is_other || are_others || now.saturating_sub(self.limits_read) >= LIMITS_AGE_MAX {
            self.limits = self.vm.read_limits(&self.threads, online);
            self.limits_read = now;
        }
        self.demand = self.asked.take(&self.vcpu_times, now).or(self.demand);
        if now >= self.memory_due {
            self.read_memory(vms, now);
        }
    }

    /// Its memory was moved: where it is will be read in the next look.
    pub fn forget_memory(&mut self) {
        self.memory_due = Duration::ZERO;
    }

    fn read_memory(&mut self, vms: usize, now: Duration) {
        let begin = Instant::now();
        self.memory = self.vm.read_memory(&self.limits);
        let vms = u32::try_from(vms).unwrap_or(u32::MAX);
        let pause = begin.elapsed().saturating_mul(MEMORY_SHARE).saturating_mul(vms);
        self.memory_due = now + pause.min(MEMORY_AGE_MAX);
    }

    /// Looks whether somebody else has decided where it lives, takes over the home that an earlier agent has given it, and
    /// gives its home to threads that have none; takes it away where affinities leave no room for one.
    ///
    /// # Errors
    /// If the scheduler is gone.
    pub fn look_for_decisions(
        &mut self,
        hands: &impl Hands,
        machine: &Machine,
        now: Duration,
    ) -> Result<(), PreferenceError> {
        let mut decided = self.confined_to_isolated(machine).or_else(|| self.pinned_apart());
        let are_pinned = decided.is_some();
        let (mut homeless, mut homed) = (Vec::new(), Vec::new());
        let mut earlier = None;
        let mut helds = Vec::with_capacity(self.threads.len());
        for thread in &self.threads {
            match hands.held(thread.tid) {
                Ok(held) => helds.push((thread, held)),
                Err(PreferenceError::Gone) => {}
                Err(error) => return Err(error),
            }
        }
        let vcpus = helds.iter().filter(|(thread, _)| thread.kind == ThreadKind::Vcpu);
        self.locality.count(vcpus.map(|(thread, held)| (thread.tid, held.as_ref())));
        for (thread, held) in helds {
            let by_agent = held.as_ref().is_some_and(|held| held.by_agent);
            match held.and_then(|held| held.preference.place) {
                None => homeless.push(thread.tid),
                Some(Place::Nodes { nodes, .. }) if by_agent => {
                    homed.push(thread.tid);
                    earlier = earlier.or(Some(nodes));
                }
                // The operator's rule comes first: it is given its home again.
                Some(_) if self.has_ruled_home() => homeless.push(thread.tid),
                Some(Place::Nodes { nodes, .. }) => {
                    let why = format!("somebody has set that it prefers {}", name_nodes(&nodes));
                    decided = Some(Decided { nodes, why });
                }
                Some(Place::Cpus(cpus)) => {
                    let why = format!("somebody has set that it prefers CPUs {}", list(&cpus));
                    decided = Some(Decided { nodes: nodes_of(machine, &cpus), why });
                }
            }
        }
        if are_pinned {
            give(hands, &homed, &[])?;
        } else if let (None, Some(nodes)) = (&self.home, earlier) {
            self.take_over(&nodes, "it was there when the agent began", machine, now);
        }
        if self.decided.is_some() && decided.is_none() {
            // What was decided is no more: a new home is to be found.
            self.home = None;
        }
        self.decided = decided;
        let nodes = self.home_numbers(machine);
        if self.decided.is_none() && !nodes.is_empty() {
            give(hands, &homeless, &nodes)?;
        }
        Ok(())
    }

    /// Sees where its vCPUs run, where the scheduler does not count it.
    pub fn look_where_it_runs(&mut self, machine: &Machine) {
        let home = self.home_numbers(machine);
        self.whereabouts.look(&self.vcpu_times, &home, machine);
    }

    /// Which part of their time its vCPUs run on each node, as far as that was seen.
    pub fn runs(&self) -> Option<&[f64]> {
        self.whereabouts.parts()
    }

    /// Takes what its planned home is expected to save.
    pub fn expect(&mut self, saving: Option<Saving>) {
        self.saving = saving.map(|Saving { least, expected, most }| HomeSaving {
            least_cpus: least,
            expected_cpus: expected,
            most_cpus: most,
        });
    }

    /// Has had this home before.
    pub fn take_over(&mut self, nodes: &[u32], why: &str, machine: &Machine, now: Duration) {
        let nodes = ids_of(machine, nodes);
        if !nodes.is_empty() {
            self.home = Some(Home { nodes, since_ns: now.as_nanos() as u64 });
            why.clone_into(&mut self.why);
        }
    }

    /// Says why it has no home, if the planner had nothing to say about it.
    pub fn explain_no_home(&mut self, machine: &Machine) {
        if self.why == JUST_FOUND {
            self.why = match (&self.decided, &self.rule) {
                (Some(decided), _) => format!("left alone; {}", decided.why),
                (None, Some(VmRule { exempt: true, .. })) => "the configuration says so".into(),
                _ if machine.node_count() == 1 => "the machine has one NUMA node".into(),
                _ => "no nodes have what it needs".into(),
            };
        }
    }

    /// Where it lives and why, as a sentence without its full stop.
    pub fn home_and_why(&self, machine: &Machine) -> String {
        match &self.home_numbers(machine)[..] {
            [] => format!("no home: {}", self.why),
            nodes => format!("{}: {}", name_nodes(nodes), self.why),
        }
    }

    /// Gives all its threads its home, or takes it away if it has none.
    ///
    /// # Errors
    /// If the scheduler is gone, or has no room.
    pub fn give_home(&self, hands: &impl Hands, machine: &Machine) -> Result<(), PreferenceError> {
        let threads: Vec<u32> = self.threads.iter().map(|thread| thread.tid).collect();
        give(hands, &threads, &self.home_numbers(machine))
    }

    /// The numbers of its home's nodes; none if it has no home.
    pub fn home_numbers(&self, machine: &Machine) -> Vec<u32> {
        let nodes = self.home.iter().flat_map(|home| &home.nodes);
        nodes.map(|node| machine.nodes()[node.index()].os_index).collect()
    }

    /// What the file of homes says of it.
    pub(super) fn entry(&self, machine: &Machine) -> HomeEntry {
        HomeEntry {
            identity: self.vm.identity,
            name: self.vm.name.clone(),
            home: self.home_numbers(machine),
            why: self.why.clone(),
            saving: self.saving,
        }
    }

    /// What others may know of it.
    pub(super) fn known(&self, machine: &Machine) -> Known {
        let Vm { identity, monitor, manager, name, memory_bytes, .. } = &self.vm;
        let by_node = self.memory.by_node.as_ref();
        let time = self.locality.total().or(self.whereabouts.time());
        let report = VmReport {
            identity: *identity,
            name: name.clone(),
            manager: manager.clone(),
            monitor: *monitor,
            vcpus: self.vcpus().count(),
            quota_cpus: self.limits.quota_cpus,
            memory: MemoryReport {
                given_bytes: *memory_bytes,
                resident_bytes: self.memory.resident_bytes,
                by_node: by_node.map(|by_node| by_node.bytes.clone()),
                source: by_node.map(|by_node| by_node.source),
            },
            home: self.home_numbers(machine),
            why: self.why.clone(),
            cpu_ns: 0,
            vcpu_ns: 0,
            steal_ns: None,
            home_ns: time.map(|time| time.home_ns),
            away_ns: time.map(|time| time.away_ns),
            saving: self.saving,
        };
        Known { report, vcpu_times: self.vcpu_times.clone() }
    }

    /// vCPUs that may use isolated CPUs alone: somebody has put them there.
    fn confined_to_isolated(&self, machine: &Machine) -> Option<Decided> {
        let vcpus = &self.limits.vcpus;
        let are = !vcpus.is_empty() && vcpus.iter().all(|(_, cpus)| is_confined(machine, cpus));
        are.then(|| Decided {
            nodes: Vec::new(),
            why: format!("its vCPUs may use CPUs {} alone, which are isolated", list(&self.limits.cpus)),
        })
    }

    /// vCPUs that are pinned each to other CPUs: no home can be right for all of them.
    fn pinned_apart(&self) -> Option<Decided> {
        let mut sets = self.limits.vcpus.iter().map(|(_, cpus)| cpus);
        let first = sets.next()?;
        sets.any(|cpus| cpus != first).then(|| Decided {
            nodes: Vec::new(),
            why: format!("its vCPUs are pinned one by one, to CPUs {}", list(&self.limits.cpus)),
        })
    }

    /// What the planner is shown.
    pub fn view(&self, machine: &Machine) -> VmView {
        let mut resident_bytes = vec![0; machine.node_count()];
        let known = self.memory.by_node.iter().flat_map(|by_node| &by_node.bytes);
        for (&node, &bytes) in known {
            if let Some(at) = id_of(machine, node) {
                resident_bytes[at.index()] = bytes;
            }
        }
        let resident: u64 = resident_bytes.iter().sum();
        let confined = self.limits.vcpus.iter().filter(|(_, cpus)| is_confined(machine, cpus)).count();
        VmView {
            id: self.id,
            vcpus: self.vcpus().count().saturating_sub(confined) as u32,
            memory_bytes: self.vm.memory_bytes.unwrap_or(0).max(resident),
            resident_bytes,
            demand: self.demand,
            allowed: self.allowed(machine),
            devices: self.vm.devices.iter().filter_map(|device| id_of(machine, device.node?)).collect(),
            wish: self.wish(machine),
            home: self.home.clone(),
        }
    }

    /// The nodes that it may use, by CPUs that are not isolated and by memory; none stands for all.
    fn allowed(&self, machine: &Machine) -> Vec<NodeId> {
        let usable = usable_nodes(machine);
        let may_use = |node: &NodeId| {
            let mut cpus = machine.node_cpus(*node).iter_and(machine.housekeeping_cpus());
            cpus.any(|cpu| self.limits.cpus.binary_search(&machine.cpu(cpu).os_index).is_ok())
        };
        let of_cpus: Vec<NodeId> = usable.iter().copied().filter(may_use).collect();
        let of_memory = ids_of(machine, &self.limits.memory_nodes);
        let both: Vec<NodeId> = of_cpus.iter().filter(|node| of_memory.contains(node)).copied().collect();
        let allowed = if both.is_empty() { of_cpus } else { both };
        if allowed.len() == usable.len() { Vec::new() } else { allowed }
    }

    /// Whether the operator has said where it is to live, which comes before what its user prefers.
    fn has_ruled_home(&self) -> bool {
        self.rule.as_ref().is_some_and(|rule| rule.home.is_some() || rule.isolated)
    }

    fn wish(&self, machine: &Machine) -> Wish {
        match (&self.decided, &self.rule) {
            (Some(decided), _) if decided.nodes.is_empty() => Wish::Exempt,
            (Some(decided), _) => Wish::Nodes(ids_of(machine, &decided.nodes)),
            (None, Some(VmRule { home: Some(nodes), .. })) => Wish::Nodes(ids_of(machine, nodes)),
            (None, Some(VmRule { isolated: true, .. })) => Wish::Isolated,
            (None, Some(VmRule { exempt: true, .. })) => Wish::Exempt,
            (None, _) => Wish::Any,
        }
    }
}

/// Whether isolated CPUs are all that a vCPU with these may use.
fn is_confined(machine: &Machine, cpus: &[u32]) -> bool {
    let mut usable = cpus.iter().filter_map(|&cpu| machine.find_cpu(cpu)).peekable();
    usable.peek().is_some() && !usable.any(|cpu| machine.housekeeping_cpus().contains(cpu))
}

fn give(hands: &impl Hands, threads: &[u32], nodes: &[u32]) -> Result<(), PreferenceError> {
    for &tid in threads {
        match hands.give(tid, nodes) {
            // A thread that has ended meanwhile.
            Ok(()) | Err(PreferenceError::Gone) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The node with that number.
fn id_of(machine: &Machine, number: u32) -> Option<NodeId> {
    machine.nodes().iter().position(|node| node.os_index == number).map(NodeId::from)
}

fn ids_of(machine: &Machine, numbers: &[u32]) -> Vec<NodeId> {
    let mut ids: Vec<NodeId> = numbers.iter().filter_map(|&number| id_of(machine, number)).collect();
    ids.sort_unstable();
    ids
}

fn list(numbers: &[u32]) -> String {
    format_cpulist(numbers.iter().copied())
}
