//! What is known about the tasks of a scenario before it runs: where they may run, what they weigh, whether
//! they always have something to do, and what is fair.

use super::oracle::{Claim, fair_rates};
use super::promises::{SETTLE_NS, SLICE_NS, TICK_NS, TURNS_MAX, WAIT_MAX_NS};
use std::collections::HashMap;
use tandem_machine::cpumask::CpuMask;
use tandem_sim::policy::linux::weight_of_nice;
use tandem_sim::program::{Amount, Op, Program};
use tandem_sim::scenario::{CgroupName, HostAction, Scenario, TaskPolicy, Vm, Which, Workload, WorkloadKind};

/// A task that pauses for less than one part in this many of its time counts as one that never pauses.
const PAUSES_MAX: u64 = 100;
/// A usual weight for sched_ext, and in the simulator.
const WEIGHT: u64 = 100;

/// What a task asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// It computes all the time from `from_ns` on, except for pauses too short to count.
    Busy {
        /// When it begins to compute, ns since the start of the run.
        from_ns: u64,
        /// Whether there are pauses.
        pauses: bool,
    },
    /// It computes all the time, and yields now and then.
    Yielding,
    /// The program does not say.
    Unknown,
}

/// A task of the host.
#[derive(Clone, Copy, Debug)]
pub struct TaskFacts {
    /// Its VM, or its set of processes.
    pub vm: usize,
    /// What it asks for.
    pub demand: Demand,
    /// Its weight at the end of the run, flattened: the fraction that its cgroup has of the root, times the
    /// task's fraction of that, while all tasks are runnable.
    pub weight: f64,
    /// The same while only the tasks that always compute are runnable.
    pub weight_of_busy: f64,
    /// Where it may run at the start: position in [`Facts::masks`].
    pub mask: usize,
    /// Longest that it may wait, ns.
    pub wait_max_ns: u64,
    /// Its fair rate if all tasks computed, CPUs.
    pub rate: f64,
}

/// All that is known.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The tasks of the host, by their numbers.
    pub tasks: Vec<TaskFacts>,
    /// Names of VMs and sets of processes.
    pub vms: Vec<VmFacts>,
    /// Where tasks may run.
    pub masks: Vec<CpuMask>,
    /// Changes of affinity, in the order of time.
    pub changes: Vec<MaskChange>,
    /// When CPUs go (true) and come back, ns, in the order of time: higher classes take them, or they are
    /// offline.
    pub absences: Vec<(u64, usize, bool)>,
    /// Times of all changes after which the run needs time to settle, ns, in order.
    pub happenings_ns: Vec<u64>,
    /// Whether there are cgroups besides those of VMs.
    pub is_nested: bool,
    /// CPUs of the machine.
    pub cpus: usize,
    /// When the run ends, ns.
    pub end_ns: u64,
    /// Start of the time over which shares can be judged, ns.
    pub window_ns: u64,
}

/// A change of where tasks may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MaskChange {
    /// When, ns since the start of the run.
    pub at_ns: u64,
    /// Number of the first task.
    pub first: usize,
    /// How many tasks.
    pub count: usize,
    /// Where they may run from then on: position in [`Facts::masks`].
    pub mask: usize,
}

/// What is known about a VM.
#[derive(Clone, Debug)]
pub struct VmFacts {
    /// Its name.
    pub name: String,
    /// Number of its first task.
    pub first: usize,
    /// Number of tasks.
    pub count: usize,
    /// Whether it exists during a part of the run only.
    pub comes_and_goes: bool,
    /// Whether it has a soft affinity at any time.
    pub prefers: bool,
}

impl Facts {
    /// What is known about a scenario.
    pub fn new(scenario: &Scenario) -> Self {
        let mut facts = Self {
            tasks: Vec::new(),
            vms: Vec::new(),
            masks: Vec::new(),
            changes: Vec::new(),
            absences: Vec::new(),
            happenings_ns: Vec::new(),
            is_nested: !scenario.cgroups.is_empty(),
            cpus: scenario.machine.cpu_count(),
            end_ns: scenario.warmup_ns + scenario.length_ns,
            window_ns: scenario.warmup_ns,
        };
        for (vm, spec) in scenario.workloads.iter().enumerate() {
            facts.add(vm, spec);
        }
        facts.add_events(scenario);
        facts.changes.sort_unstable();
        facts.absences.sort_unstable();
        facts.happenings_ns.extend(facts.changes.iter().map(|change| change.at_ns));
        facts.happenings_ns.sort_unstable();
        if let Some(last_ns) = facts.happenings_ns.last() {
            facts.window_ns = facts.window_ns.max(last_ns + SETTLE_NS);
        }
        for task in &facts.tasks {
            if let Demand::Busy { from_ns, .. } = task.demand
                && from_ns > 0
            {
                facts.window_ns = facts.window_ns.max(from_ns + SETTLE_NS);
            }
        }
        if scenario.events.iter().any(|event| event.every_ns.is_some()) {
            facts.window_ns = facts.end_ns; // there is no time in which nothing happens
        }
        facts.find_bounds(scenario);
        facts
    }

    /// What happens to CPUs, and when things settle.
    fn add_events(&mut self, scenario: &Scenario) {
        let mut online = scenario.machine.all_cpus().clone();
        for event in &scenario.events {
            match &event.action {
                HostAction::Intrude { cpus, length_ns } => {
                    let mut at_ns = event.at_ns;
                    while at_ns < self.end_ns {
                        for cpu in cpus.iter().map(|cpu| cpu.index()) {
                            self.absences.push((at_ns, cpu, true));
                            self.absences.push((at_ns + length_ns, cpu, false));
                        }
                        at_ns = at_ns.saturating_add(event.every_ns.unwrap_or(u64::MAX));
                    }
                    continue;
                }
                HostAction::Offline(cpus) => {
                    self.absences.extend(cpus.iter().map(|cpu| (event.at_ns, cpu.index(), true)));
                    cpus.iter().for_each(|cpu| online.remove(cpu));
                    // A task whose CPUs have all gone may run on every CPU from then on.
                    self.changes.sort_unstable();
                    let masks = self.masks_after(self.changes.partition_point(|it| it.at_ns <= event.at_ns));
                    let everywhere = self.mask(scenario.machine.all_cpus());
                    let lost = |first: &usize| !self.masks[masks[*first]].intersects(&online);
                    let change = |first| MaskChange { at_ns: event.at_ns, first, count: 1, mask: everywhere };
                    self.changes.extend((0..self.tasks.len()).filter(lost).map(change));
                }
                HostAction::Online(cpus) => {
                    self.absences.extend(cpus.iter().map(|cpu| (event.at_ns, cpu.index(), false)));
                    cpus.iter().for_each(|cpu| online.insert(cpu));
                }
                HostAction::SetAffinity { vms, tasks, cpus } => {
                    vms.iter().for_each(|vm| self.change(event.at_ns, vm.index(), tasks, cpus));
                }
                HostAction::SetWeight { .. }
                | HostAction::SetLimit { .. }
                | HostAction::SetNice { .. }
                | HostAction::Reload => {}
            }
            self.happenings_ns.push(event.at_ns);
        }
    }

    fn add(&mut self, vm: usize, spec: &Workload) {
        let comes_and_goes = spec.start().is_some() || spec.vm().and_then(Vm::life).is_some();
        let is_capped = spec.vm().is_some_and(|vm| vm.cap_pct > 0);
        let changes_soft = spec.affinity_changes.iter().any(|change| change.affinity.soft.is_some());
        self.vms.push(VmFacts {
            name: spec.name.clone(),
            first: self.tasks.len(),
            count: spec.task_count(),
            comes_and_goes,
            prefers: changes_soft || spec.affinities().any(|affinity| affinity.soft.is_some()),
        });
        for change in &spec.affinity_changes {
            self.change(change.at_ns, vm, &change.tasks, &change.affinity.hard);
        }
        for (task, affinity) in spec.affinities().enumerate() {
            let mask = self.mask(&affinity.hard);
            let demand = match spec.programs().get(task) {
                Some(task) if !comes_and_goes && !is_capped => demand(&task.program),
                _ => Demand::Unknown,
            };
            let (weight, weight_of_busy) = (0.0, 0.0);
            self.tasks.push(TaskFacts {
                vm,
                demand,
                weight,
                weight_of_busy,
                mask,
                wait_max_ns: 0,
                rate: 0.0,
            });
        }
    }

    /// Tasks of a VM that is known may run on these CPUs from then on.
    fn change(&mut self, at_ns: u64, vm: usize, tasks: &Which, cpus: &CpuMask) {
        let mask = self.mask(cpus);
        let VmFacts { first, count, .. } = self.vms[vm];
        match tasks {
            Which::All => self.changes.push(MaskChange { at_ns, first, count, mask }),
            Which::These(tasks) => {
                let one = |task: &usize| MaskChange { at_ns, first: first + task, count: 1, mask };
                self.changes.extend(tasks.iter().map(one));
            }
        }
    }

    fn mask(&mut self, cpus: &CpuMask) -> usize {
        self.masks.iter().position(|mask| mask == cpus).unwrap_or_else(|| {
            self.masks.push(cpus.clone());
            self.masks.len() - 1
        })
    }

    /// The masks of all tasks after the first so many changes.
    pub fn masks_after(&self, changes: usize) -> Vec<usize> {
        let mut masks: Vec<usize> = self.tasks.iter().map(|task| task.mask).collect();
        for &MaskChange { first, count, mask, .. } in &self.changes[..changes] {
            masks[first..first + count].fill(mask);
        }
        masks
    }

    /// Fair rates of all tasks, CPUs, at these masks; `at_most` is the most that a task asks for, or `None`
    /// if its use is in `used` already.
    pub fn fair(
        &self,
        masks: &[usize],
        used: &[f64],
        at_most: impl Fn(usize) -> Option<f64>,
        weight: impl Fn(usize) -> f64,
    ) -> Vec<f64> {
        let mut claims: Vec<Claim> = Vec::new();
        let mut claim_of = vec![None; self.tasks.len()];
        for task in 0..self.tasks.len() {
            let Some(at_most) = at_most(task) else { continue };
            let claim = Claim { mask: masks[task], weight: weight(task), at_most, count: 1 };
            let same = |other: &Claim| Claim { count: 1, ..*other } == claim;
            // Tasks of a group follow each other.
            match claims.iter().rposition(same) {
                Some(at) => {
                    claims[at].count += 1;
                    claim_of[task] = Some(at);
                }
                None => {
                    claim_of[task] = Some(claims.len());
                    claims.push(claim);
                }
            }
        }
        let rates = fair_rates(&self.masks, used, &claims);
        claim_of.into_iter().map(|claim| claim.map_or(0.0, |claim| rates[claim])).collect()
    }

    /// Finds how long tasks may wait, which is the worst over all times between changes, and their weights at
    /// the end.
    fn find_bounds(&mut self, scenario: &Scenario) {
        let used = vec![0.0; self.masks.len()];
        let mut worst = vec![(f64::INFINITY, f64::INFINITY); self.tasks.len()];
        let mut weights = Weights::new(scenario);
        let mut next = 0;
        for at_ns in std::iter::once(0).chain(self.happenings_ns.clone()) {
            while let Some(event) = scenario.events.get(next).filter(|event| event.at_ns <= at_ns) {
                weights.change(&event.action);
                next += 1;
            }
            let masks = self.masks_after(self.changes.partition_point(|change| change.at_ns <= at_ns));
            let flat = weights.flattened(scenario, |_| true);
            let rates = self.fair(&masks, &used, |_| Some(1.0), |task| flat[task]);
            let even = self.fair(&masks, &used, |_| Some(1.0), |_| 1.0);
            for (worst, (rate, even)) in worst.iter_mut().zip(rates.into_iter().zip(even)) {
                *worst = (worst.0.min(rate), worst.1.min(even));
            }
            for (task, weight) in self.tasks.iter_mut().zip(flat) {
                task.weight = weight;
            }
        }
        let busy: Vec<bool> = self.tasks.iter().map(|task| task.demand != Demand::Unknown).collect();
        let of_busy = weights.flattened(scenario, |task| busy[task]);
        for (task, weight) in self.tasks.iter_mut().zip(of_busy) {
            task.weight_of_busy = weight;
        }
        // While CPUs are away, the others have twice the work at most.
        let turns = if self.absences.is_empty() { TURNS_MAX } else { 2 * TURNS_MAX };
        for (task, (rate, even)) in self.tasks.iter_mut().zip(worst) {
            let turn_ns = SLICE_NS as f64 * (1.0 + 1.0 / even.max(1e-9)) + TICK_NS as f64 / rate.max(1e-9);
            task.wait_max_ns = (turn_ns as u64).saturating_mul(turns).min(WAIT_MAX_NS);
            task.rate = rate;
        }
    }

    /// The name of a task, for findings.
    pub fn name(&self, task: usize) -> String {
        let vm = &self.vms[self.tasks[task].vm];
        match vm.count {
            1 => vm.name.clone(),
            _ => format!("{}/{}", vm.name, task - vm.first),
        }
    }
}

/// Weights of cgroups and tasks at one time.
struct Weights {
    cgroups: Vec<f64>,
    vms: Vec<f64>,
    nice: Vec<Option<i8>>,
}

impl Weights {
    fn new(scenario: &Scenario) -> Self {
        let default = u64::from(Workload::DEFAULT_WEIGHT);
        Self {
            cgroups: scenario.cgroups.iter().map(|cgroup| cgroup.weight.into()).collect(),
            vms: scenario
                .workloads
                .iter()
                .map(|vm| (u64::from(vm.weight) * WEIGHT / default).max(1) as f64)
                .collect(),
            nice: vec![None; scenario.workloads.len()],
        }
    }

    fn change(&mut self, action: &HostAction) {
        match action {
            HostAction::SetWeight { cgroup: CgroupName::Declared(at), weight } => {
                self.cgroups[*at] = (*weight).into();
            }
            HostAction::SetWeight { cgroup: CgroupName::OfVm(vm), weight } => {
                self.vms[vm.index()] = (*weight).into();
            }
            HostAction::SetNice { vms, nice } => {
                vms.iter().for_each(|vm| self.nice[vm.index()] = Some(*nice))
            }
            _ => {}
        }
    }

    /// The flattened weight of each task while those that count are runnable: from the root down, each cgroup
    /// divides its fraction among its children. Tasks that do not count have weight 0.
    fn flattened(&self, scenario: &Scenario, counts: impl Fn(usize) -> bool) -> Vec<f64> {
        let own = |vm: usize, (nice, policy): (i8, TaskPolicy)| {
            let spec = &scenario.workloads[vm];
            let of_set = if spec.vm().is_some() { Workload::DEFAULT_WEIGHT } else { spec.weight };
            let nice = self.nice[vm].unwrap_or(nice);
            let weight = f64::from(policy.weight(nice)) / f64::from(weight_of_nice(0))
                * (u64::from(of_set) * WEIGHT) as f64
                / f64::from(Workload::DEFAULT_WEIGHT);
            weight.round().clamp(1.0, 10_000.0)
        };
        // Sum of the weights directly inside each cgroup; `None` is the root.
        let mut sums: HashMap<Option<usize>, f64> = HashMap::new();
        let mut is_used = vec![false; scenario.cgroups.len()];
        let mut of_vm = Vec::new();
        let mut first = 0;
        for (vm, spec) in scenario.workloads.iter().enumerate() {
            let tasks = (0..spec.task_count()).filter(|task| counts(first + task));
            let tasks: f64 = tasks.map(|task| own(vm, (spec.nice(task), spec.policy(task)))).sum();
            first += spec.task_count();
            of_vm.push(tasks);
            if tasks == 0.0 {
                continue;
            }
            let is_vm = spec.vm().is_some();
            *sums.entry(spec.cgroup).or_default() += if is_vm { self.vms[vm] } else { tasks };
            let mut above = spec.cgroup;
            while let Some(at) = above {
                is_used[at] = true;
                above = scenario.cgroups[at].parent;
            }
        }
        for (at, cgroup) in scenario.cgroups.iter().enumerate().filter(|(at, _)| is_used[*at]) {
            *sums.entry(cgroup.parent).or_default() += self.cgroups[at];
        }
        // Fraction of the root for one unit of weight in each cgroup; parents come before their children.
        let mut worth: HashMap<Option<usize>, f64> = HashMap::from([(None, 1.0)]);
        for (at, cgroup) in scenario.cgroups.iter().enumerate().filter(|(at, _)| is_used[*at]) {
            let here = worth[&cgroup.parent] * self.cgroups[at] / sums[&Some(at)];
            worth.insert(Some(at), here);
        }
        let task = |(task, (vm, urgency)): (usize, (usize, (i8, TaskPolicy)))| {
            let spec = &scenario.workloads[vm];
            let above = worth.get(&spec.cgroup).copied().filter(|_| counts(task)).unwrap_or(0.0);
            match &spec.kind {
                _ if above == 0.0 => 0.0,
                WorkloadKind::Vm(_) => above * self.vms[vm] * own(vm, urgency) / of_vm[vm],
                WorkloadKind::Processes(_) | WorkloadKind::Threads(_) | WorkloadKind::KernelThreads(_) => {
                    above * own(vm, urgency)
                }
            }
        };
        let vms = scenario.workloads.iter().enumerate();
        let urgency = |spec: &Workload, task| (spec.nice(task), spec.policy(task));
        vms.flat_map(|(vm, spec)| (0..spec.task_count()).map(move |task| (vm, urgency(spec, task))))
            .enumerate()
            .map(task)
            .collect()
    }
}

/// What a program asks for.
fn demand(program: &Program) -> Demand {
    let mut from_ns = 0;
    for op in &program.ops {
        match op {
            Op::SleepUntil(at_ns) => from_ns = from_ns.max(*at_ns),
            Op::Sleep(Amount::Fixed(ns)) => from_ns += ns,
            Op::Count { .. } => {}
            Op::Repeat { times: None, body } => return demand_of_loop(body, from_ns),
            _ => return Demand::Unknown,
        }
    }
    Demand::Unknown
}

fn demand_of_loop(body: &[Op], from_ns: u64) -> Demand {
    let (mut computes_ns, mut sleeps_ns, mut yields) = (0u64, 0u64, false);
    for op in body {
        match op {
            Op::Compute { work: Amount::Fixed(ns) | Amount::Exponential(ns), .. } => computes_ns += ns,
            Op::Sleep(Amount::Fixed(ns)) => sleeps_ns += ns,
            Op::Yield => yields = true,
            Op::Count { .. } => {}
            _ => return Demand::Unknown,
        }
    }
    match (sleeps_ns * PAUSES_MAX <= computes_ns, yields) {
        (true, false) if computes_ns > 0 => Demand::Busy { from_ns, pauses: sleeps_ns > 0 },
        (true, true) if sleeps_ns == 0 && from_ns == 0 => Demand::Yielding,
        _ => Demand::Unknown,
    }
}
