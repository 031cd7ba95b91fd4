//! The agent's knowledge of a VM, and how it stays up to date at little cost.

use super::actuator::Actuator;
use super::locality::Locality;
use super::parts::{Part, part_of, planner_numbers, virtual_nodes};
use super::rules::fits;
use super::vcpu_times::{Demand, VcpuTimes};
use crate::scheduler::PreferenceError;
use crate::tasks;
use crate::untrusted::Untrusted;
use crate::vms::homes_file::{HomeEntry, HomeSaving};
use crate::vms::{Limits, Memory, Thread, ThreadKind, Vm, name_nodes, nodes_of};
use std::collections::BTreeMap;
use std::ops::Add;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tandem_machine::homes::{Home, Saving};
use tandem_machine::ids::NodeId;
use tandem_machine::{Machine, format_cpulist};
use tandem_settings::{Partial, Place, VmRule};

/// Maximum age of the list of threads, and of their limits, when nothing indicates a change. Every scan reads
/// the limits of the first vCPU.
const THREADS_AGE_MAX: Duration = Duration::from_secs(60);
const LIMITS_AGE_MAX: Duration = Duration::from_secs(300);
/// Reading where the memory of all VMs is may take one part in so many of a CPU; it is postponed otherwise.
/// It costs 0.1 ms per VM, and up to seconds where page tables have to be read.
const MEMORY_SHARE: u32 = 2000;
/// How long it is postponed at most.
const MEMORY_AGE_MAX: Duration = Duration::from_secs(3600);

/// A VM that the agent tracks.
pub struct TrackedVm {
    /// Unique; numbers of earlier VMs are not reused.
    pub id: u64,
    /// What does not change.
    pub vm: Vm,
    /// Its threads; up to a minute old.
    pub threads: Vec<Thread>,
    /// Its limits.
    pub limits: Limits,
    /// Its memory, by node.
    pub memory: Memory,
    /// The parts that have homes of their own, in the order of the virtual nodes; at least one.
    pub parts: Vec<Part>,
    /// A decision that the agent respects.
    pub decided: Option<Decided>,
    /// Whether it uses core scheduling, and the warning about that is logged.
    pub has_cookie: bool,
    /// What isolates it from others on their cores; `None` until the first check.
    pub apart: Option<Apart>,
    pub(super) rule: Option<VmRule>,
    threads_read: Duration,
    limits_read: Duration,
    pub(super) vcpu_times: Arc<VcpuTimes>,
    asked: Demand,
    pub(super) locality: Locality,
    pub(super) saving: Option<HomeSaving>,
    memory_due: Duration,
}

/// What isolates a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Apart {
    /// Cores have one thread each.
    OneThread,
    /// A core scheduling cookie.
    Cookie,
    /// Its home, if the VM can be alone on its nodes.
    Home,
}

/// A decision about a VM that is not the agent's: the agent leaves the VM alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decided {
    /// The nodes that follow from it; empty for no home.
    pub nodes: Vec<u32>,
    /// The reason, a clause for readers.
    pub why: String,
}

impl TrackedVm {
    /// Reads everything about a VM that has just been found.
    pub fn new(id: u64, vm: Vm, rules: &[VmRule], online: &[u32], now: Duration) -> Self {
        let threads = vm.read_threads();
        let limits = vm.read_limits(&threads, online);
        let vcpu_times = Arc::new(VcpuTimes::start(&vm, &threads));
        let cgroup = limits.cgroup.as_ref().map(|cgroup| cgroup.path.as_path());
        let rule = rules.iter().find(|rule| fits(rule, &vm, cgroup)).cloned();
        let mut tracked = Self {
            id,
            memory: Memory { resident_bytes: None, by_node: None },
            threads,
            limits,
            parts: vec![Part::default()],
            decided: None,
            has_cookie: false,
            apart: None,
            rule,
            threads_read: now,
            limits_read: now,
            asked: Demand::start(&vcpu_times, 1, |_| Some(0), now),
            vcpu_times,
            locality: Locality::default(),
            saving: None,
            memory_due: now,
            vm,
        };
        tracked.read_memory(1, now);
        tracked
    }

    /// Nodes that the settings give it and the machine does not have, by their numbers.
    pub fn missing_nodes(&self, machine: &Machine) -> Vec<u32> {
        let home = self.rule.as_ref().and_then(|rule| rule.home.as_ref());
        home.into_iter().flatten().copied().filter(|&node| id_of(machine, node).is_none()).collect()
    }

    /// Whether the settings ask to isolate it on its cores.
    pub fn is_to_be_apart(&self) -> bool {
        self.rule.as_ref().is_some_and(VmRule::keeps_apart)
    }

    /// Its threads that are vCPUs.
    pub fn vcpus(&self) -> impl Iterator<Item = &Thread> {
        self.threads.iter().filter(|thread| thread.kind == ThreadKind::Vcpu)
    }

    /// Whether the kernel reports how long its vCPUs wait.
    pub fn are_waits_known(&self) -> bool {
        self.vcpu_times.total().wait_ns.is_some()
    }

    /// Reads what has changed since the last scan; `vms` is the number of VMs.
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
                self.measure_anew(now);
            }
            self.threads_read = now;
        }
        if is_other || are_others || now.saturating_sub(self.limits_read) >= LIMITS_AGE_MAX {
            self.limits = self.vm.read_limits(&self.threads, online);
            self.limits_read = now;
        }
        let part_of = |thread: &Thread| part_of(&self.parts, &self.vm, thread);
        let demands = self.asked.take(&self.vcpu_times, part_of, now).unwrap_or_default();
        for (part, demand) in self.parts.iter_mut().zip(demands) {
            part.demand = Some(demand);
        }
        if now >= self.memory_due {
            self.read_memory(vms, now);
        }
    }

    fn measure_anew(&mut self, now: Duration) {
        let part_of = |thread: &Thread| part_of(&self.parts, &self.vm, thread);
        self.asked = Demand::start(&self.vcpu_times, self.parts.len(), part_of, now);
    }

    /// Makes these virtual nodes its parts. Existing parts stay as they are; a VM that is no longer divided
    /// lives where its parts did. Returns whether the parts changed.
    fn divide_into(&mut self, nodes: &[Option<usize>], now: Duration) -> bool {
        if self.parts.iter().map(|part| part.node).eq(nodes.iter().copied()) {
            return false;
        }
        let home = if nodes.len() == 1 { self.home() } else { None };
        let why = home.is_some().then(|| self.why());
        let mut before = std::mem::take(&mut self.parts);
        let part_of = |&node: &Option<usize>| match before.iter().position(|part| part.node == node) {
            Some(at) => before.swap_remove(at),
            None => Part { node, home: home.clone(), why: why.clone(), ..Part::default() },
        };
        self.parts = nodes.iter().map(part_of).collect();
        self.measure_anew(now);
        true
    }

    /// Its memory was moved: the next scan reads where it is.
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

    /// Checks whether another process has decided where it lives, takes over the home that an earlier agent
    /// gave it, and gives its home to threads that have none; withdraws the home where affinities leave no
    /// room for one.
    ///
    /// # Errors
    /// If the scheduler is gone.
    pub fn read_decisions(
        &mut self,
        actuator: &impl Actuator,
        machine: &Machine,
        partial: &Partial,
        now: Duration,
    ) -> Result<(), PreferenceError> {
        let mut decided = self.not_scheduled(partial);
        decided = decided.or_else(|| self.confined_to_isolated(machine)).or_else(|| self.pinned_apart());
        let is_without_home = decided.is_some();
        let (mut homeless, mut homed) = (Vec::new(), Vec::new());
        let mut earlier = BTreeMap::new();
        let mut helds = Vec::with_capacity(self.threads.len());
        for thread in &self.threads {
            match actuator.held(thread.tid) {
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
                    earlier.insert(thread.tid, nodes);
                }
                // The operator's rule comes first: the thread gets its home again.
                Some(_) if self.has_ruled_home() => homeless.push(thread.tid),
                Some(Place::Nodes { nodes, .. }) => {
                    let why = format!("another process made it prefer {}", name_nodes(&nodes));
                    decided = Some(Decided { nodes, why });
                }
                Some(Place::Cpus(cpus)) => {
                    let why = format!("another process made it prefer CPUs {}", list(&cpus));
                    decided = Some(Decided { nodes: nodes_of(machine, &cpus), why });
                }
            }
        }
        // A decision of another process applies to all of it.
        let nodes = if decided.is_some() { vec![None] } else { virtual_nodes(&self.vm, &self.threads) };
        let had_home = self.has_home();
        let are_other_parts = self.divide_into(&nodes, now);
        // A preference from before the VM was divided is not the home of a part.
        let is_stale = earlier.is_empty() || are_other_parts && had_home;
        if is_without_home {
            give(actuator, &homed, &[])?;
        } else if !is_stale && self.parts.iter().any(|part| part.home.is_none()) {
            let homes: Vec<_> = (0..self.parts.len()).map(|part| self.earlier_home(part, &earlier)).collect();
            self.take_over(&homes, |_| "it had this home before the agent started", machine, now);
        }
        if self.decided.is_some() && decided.is_none() {
            // The decision no longer holds: the planner has to find a new home.
            self.parts.iter_mut().for_each(|part| part.home = None);
        }
        self.decided = decided;
        if self.decided.is_some() || !self.has_home() {
            return Ok(());
        }
        if are_other_parts && self.parts.len() == 1 {
            return self.give_home(actuator, machine);
        }
        let is_homeless = |thread: &&Thread| homeless.binary_search(&thread.tid).is_ok();
        for thread in self.threads.iter().filter(is_homeless) {
            let nodes = self.home_of(thread, machine);
            if !nodes.is_empty() {
                give(actuator, &[thread.tid], &nodes)?;
            }
        }
        Ok(())
    }

    /// The home that an earlier agent gave to the first of a part's vCPUs, or to all threads if there is one
    /// part.
    fn earlier_home(&self, part: usize, earlier: &BTreeMap<u32, Vec<u32>>) -> Vec<u32> {
        let is_its =
            |thread: &&Thread| self.parts.len() == 1 || part_of(&self.parts, &self.vm, thread) == Some(part);
        let given = self.threads.iter().filter(is_its).find_map(|thread| earlier.get(&thread.tid));
        given.cloned().unwrap_or_default()
    }

    /// Observes where its vCPUs run, where the scheduler does not count it.
    pub fn sample_locality(&mut self, machine: &Machine) {
        let vcpus = self.vcpu_times.by_vcpu();
        let parts: Vec<_> = vcpus.iter().map(|(thread, _)| part_of(&self.parts, &self.vm, thread)).collect();
        for (at, part) in self.parts.iter_mut().enumerate() {
            let its = vcpus.iter().zip(&parts).filter(|(_, part)| **part == Some(at)).map(|(vcpu, _)| vcpu);
            let home = numbers(machine, part.home.as_ref());
            part.whereabouts.sample(&self.vm, its, &home, machine);
        }
    }

    /// The share of the time of each part's vCPUs on each node, as far as it was observed; by the planner's
    /// numbers.
    pub fn runs(&self) -> impl Iterator<Item = (u64, Vec<f64>)> {
        let runs = |(part, id): (&Part, u64)| Some((id, part.whereabouts.parts()?.to_vec()));
        self.parts.iter().zip(self.ids()).filter_map(runs)
    }

    /// The planner's numbers of its parts.
    pub fn ids(&self) -> impl Iterator<Item = u64> {
        planner_numbers(self.id, &self.parts)
    }

    /// Stores what its planned homes are expected to save, as far as that is known of its parts.
    pub fn expect(&mut self, savings: &BTreeMap<u64, Saving>) {
        let known = self.parts.iter().zip(self.ids()).filter_map(|(_, id)| savings.get(&id));
        self.saving = known.map(|saving| HomeSaving::from(*saving)).reduce(Add::add);
    }

    /// Takes over an entry in a file of homes.
    pub fn take_over_entry(&mut self, entry: &HomeEntry, machine: &Machine, now: Duration) {
        self.divide_into(&virtual_nodes(&self.vm, &self.threads), now);
        let of_part = |part: &Part| {
            let number = part.virtual_node(&self.vm)?.number;
            entry.parts.iter().find(|told| told.virtual_node == number)
        };
        let told: Vec<_> = self.parts.iter().map(of_part).collect();
        let homes: Vec<_> =
            told.iter().map(|told| told.map_or(&entry.home, |told| &told.home).clone()).collect();
        self.take_over(&homes, |part| told[part].map_or(&entry.why, |told| &told.why), machine, now);
    }

    /// Takes over earlier homes for parts that have none. Ignores one home of several nodes for all virtual
    /// nodes: an agent that did not know virtual nodes has given it.
    fn take_over<'a>(
        &mut self,
        homes: &[Vec<u32>],
        why: impl Fn(usize) -> &'a str,
        machine: &Machine,
        now: Duration,
    ) {
        let is_of_all = |home: &Vec<u32>| home.len() > 1 && homes.iter().all(|other| other == home);
        if homes.len() > 1 && is_of_all(&homes[0]) {
            return;
        }
        for (at, part) in self.parts.iter_mut().enumerate().filter(|(_, part)| part.home.is_none()) {
            let nodes = ids_of(machine, &homes[at]);
            if !nodes.is_empty() {
                part.home = Some(Home { nodes, since_ns: now.as_nanos() as u64 });
                part.why = Some(why(at).to_owned());
            }
        }
    }

    /// Its home: the nodes of all its parts, since the last of them moved.
    pub(super) fn home(&self) -> Option<Home> {
        let homes = self.parts.iter().filter_map(|part| part.home.as_ref());
        homes.cloned().reduce(|mut all, home| {
            all.nodes.extend(home.nodes);
            all.nodes.sort_unstable();
            all.nodes.dedup();
            all.since_ns = all.since_ns.max(home.since_ns);
            all
        })
    }

    /// Whether a part of it has a home.
    pub fn has_home(&self) -> bool {
        self.parts.iter().any(|part| part.home.is_some())
    }

    /// The home of a thread: a vCPU's is that of its virtual node, other threads are at home with any of
    /// them.
    fn home_of(&self, thread: &Thread, machine: &Machine) -> Vec<u32> {
        match part_of(&self.parts, &self.vm, thread) {
            Some(part) => numbers(machine, self.parts[part].home.as_ref()),
            None => self.home_numbers(machine),
        }
    }

    /// Gives all its threads their homes, or withdraws the homes of those that have none.
    ///
    /// # Errors
    /// If the scheduler is gone, or has no room.
    pub fn give_home(&self, actuator: &impl Actuator, machine: &Machine) -> Result<(), PreferenceError> {
        self.threads
            .iter()
            .try_for_each(|thread| give(actuator, &[thread.tid], &self.home_of(thread, machine)))
    }

    /// Withdraws the home from what is left of its process: a process that runs another program now is not a
    /// VM any more, or another one.
    ///
    /// # Errors
    /// If the scheduler is gone.
    pub fn leave(&self, actuator: &impl Actuator, root: &Path) -> Result<(), PreferenceError> {
        if !self.vm.is_alive() {
            return Ok(());
        }
        let mut homed = tasks::threads(root, self.vm.identity.pid);
        homed.retain(|&tid| actuator.held(tid).is_ok_and(|held| held.is_some_and(|held| held.by_agent)));
        give(actuator, &homed, &[])
    }

    /// The numbers of its home's nodes; empty if it has no home.
    pub fn home_numbers(&self, machine: &Machine) -> Vec<u32> {
        numbers(machine, self.home().as_ref())
    }

    /// A VM that stays with the kernel's scheduler. It may be started elsewhere and enter its cgroup later.
    fn not_scheduled(&self, partial: &Partial) -> Option<Decided> {
        if !partial.is_on() {
            return None;
        }
        let cgroup = self.vm.read_unified_cgroup(self.vcpus().next()?)?;
        (!partial.covers(&cgroup)).then(|| Decided {
            nodes: Vec::new(),
            why: format!(
                "its cgroup {} stays with the kernel's scheduler",
                Untrusted::new(cgroup.to_string_lossy()).shown()
            ),
        })
    }

    /// vCPUs that may use only isolated CPUs: another program has put them there.
    fn confined_to_isolated(&self, machine: &Machine) -> Option<Decided> {
        let vcpus = &self.limits.vcpus;
        let are = !vcpus.is_empty() && vcpus.iter().all(|(_, cpus)| is_confined(machine, cpus));
        are.then(|| Decided {
            nodes: Vec::new(),
            why: format!("its vCPUs may use only CPUs {}, which are isolated", list(&self.limits.cpus)),
        })
    }

    /// vCPUs that are pinned to different CPUs: no home can be right for all of them.
    fn pinned_apart(&self) -> Option<Decided> {
        let mut sets = self.limits.vcpus.iter().map(|(_, cpus)| cpus);
        let first = sets.next()?;
        sets.any(|cpus| cpus != first).then(|| Decided {
            nodes: Vec::new(),
            why: format!("its vCPUs are pinned one by one, to CPUs {}", list(&self.limits.cpus)),
        })
    }
}

fn give(actuator: &impl Actuator, threads: &[u32], nodes: &[u32]) -> Result<(), PreferenceError> {
    for &tid in threads {
        match actuator.give(tid, nodes) {
            // The thread has ended meanwhile.
            Ok(()) | Err(PreferenceError::Gone) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The numbers of a home's nodes; empty if there is no home.
pub(super) fn numbers(machine: &Machine, home: Option<&Home>) -> Vec<u32> {
    let nodes = home.into_iter().flat_map(|home| &home.nodes);
    nodes.map(|node| machine.nodes()[node.index()].os_index).collect()
}

/// Whether these CPUs of a vCPU are all isolated.
pub(super) fn is_confined(machine: &Machine, cpus: &[u32]) -> bool {
    let mut usable = cpus.iter().filter_map(|&cpu| machine.find_cpu(cpu)).peekable();
    usable.peek().is_some() && !usable.any(|cpu| machine.housekeeping_cpus().contains(cpu))
}

/// The node with this number.
pub(super) fn id_of(machine: &Machine, number: u32) -> Option<NodeId> {
    machine.nodes().iter().position(|node| node.os_index == number).map(NodeId::from)
}

pub(super) fn ids_of(machine: &Machine, numbers: &[u32]) -> Vec<NodeId> {
    let mut ids: Vec<NodeId> = numbers.iter().filter_map(|&number| id_of(machine, number)).collect();
    ids.sort_unstable();
    ids
}

fn list(numbers: &[u32]) -> String {
    format_cpulist(numbers.iter().copied())
}
