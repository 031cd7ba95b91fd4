//! The scenario of a model in a situation: its tasks as workloads in their cgroups, its steps as programs, and its
//! guests in VMs.

use super::cgroups::Cgroups;
use super::guest::{GuestTwin, StagedGuest, halt_poll_ns, kernel_of};
use super::model::{Model, ModelTask, Step, Wait};
use super::situation::{Change, Situation, tick_hz};
use super::ticks::phase_ns;
use super::work::{Deed, nice_of, policy_of, recorded_cpus, work_of};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use tandem_machine::cpumask::CpuMask;
use tandem_recording::Recording;
use tandem_sim::cost::{CostModels, Idle, Timer};
use tandem_sim::program::{Op, Program};
use tandem_sim::scenario::{
    Affinity, Cgroup, Homes, HostTask, PolicySettings, Scenario, TIME_MAX_NS, Vcpus, Vm, Workload,
    WorkloadKind,
};

/// How many times as long as the recording a run may take.
const LONGER_MAX: u64 = 10;
/// What each workload counts up to when all its tasks have done their work.
const DONE: u64 = 1 << 40;

/// The longest that a run of a model may take, ns.
pub(super) fn longest_ns(model: &Model) -> u64 {
    model.length_ns.saturating_mul(LONGER_MAX).clamp(1, TIME_MAX_NS)
}

/// A scenario, and which of its tasks is which of the model.
#[derive(Clone, Debug)]
pub struct Staged {
    /// The scenario.
    pub scenario: Scenario,
    /// The position in the model of each task of the host, but those at the end, which are none of it.
    pub tasks: Vec<usize>,
    /// Guests whose inside is known, once for each copy of their VM.
    pub guests: Vec<StagedGuest>,
}

/// Puts the programs of a model into a situation. `idle` is how long idle CPUs take to wake.
pub fn stage(
    recording: &Recording,
    model: &Model,
    guests: &[GuestTwin<'_>],
    situation: &Situation,
    idle: Idle,
) -> Staged {
    let mut stage = Stage {
        recording,
        model,
        guests,
        situation,
        gates: model.gates as usize,
        workloads: Vec::new(),
        names: HashSet::new(),
        cgroups: Cgroups::of(recording),
        everywhere: Arc::new(situation.machine.housekeeping_cpus().clone()),
    };
    let all = stage.members();
    stage.weigh_cgroups(&all);
    for members in all {
        let copies = stage.change(&members).and_then(|change| change.copies).unwrap_or(1);
        for copy in 0..copies {
            stage.add(&members, copy);
        }
    }
    stage.finish(idle)
}

/// Tasks of the model that make a workload.
#[derive(Clone, Debug)]
struct Members {
    group: usize,
    cgroup: Option<usize>,
    tasks: Vec<usize>,
    /// They are the vCPUs of this guest.
    guest: Option<usize>,
}

/// A workload, with where each task of the model is in it.
struct Placed {
    workload: Workload,
    tasks: Vec<usize>,
    copy: u32,
    guest: Option<usize>,
}

struct Stage<'a> {
    recording: &'a Recording,
    model: &'a Model,
    guests: &'a [GuestTwin<'a>],
    situation: &'a Situation,
    gates: usize,
    workloads: Vec<Placed>,
    /// Names of workloads.
    names: HashSet<String>,
    cgroups: Cgroups,
    everywhere: Arc<CpuMask>,
}

impl Stage<'_> {
    /// The tasks of each workload: those of a group that share a cgroup, and the vCPUs of each guest.
    fn members(&self) -> Vec<Members> {
        let mut found: BTreeMap<(usize, Option<usize>), Vec<usize>> = BTreeMap::new();
        let cgroup = |at: usize| {
            let cgroup = self.recording.about.tasks[self.model.tasks[at].recorded].cgroup;
            cgroup.and_then(|cgroup| self.cgroups.of_recorded[cgroup])
        };
        for (at, task) in self.model.tasks.iter().enumerate() {
            if !self.guests.iter().any(|guest| guest.vcpus.contains(&at)) {
                found.entry((task.group, cgroup(at))).or_default().push(at);
            }
        }
        let plain = found.into_iter();
        let plain = plain.map(|((group, cgroup), tasks)| Members { group, cgroup, tasks, guest: None });
        let of_guest = |(number, guest): (usize, &GuestTwin<'_>)| Members {
            group: self.model.tasks[guest.vcpus[0]].group,
            cgroup: self.cgroups.common(guest.vcpus.iter().map(|vcpu| cgroup(*vcpu))),
            tasks: guest.vcpus.clone(),
            guest: Some(number),
        };
        plain.chain(self.guests.iter().enumerate().map(of_guest)).collect()
    }

    fn change(&self, members: &Members) -> Option<&Change> {
        self.situation.changes.get(&self.model.groups[members.group])
    }

    /// Changes the weights of cgroups in which all tasks are of one group whose weight changes.
    fn weigh_cgroups(&mut self, all: &[Members]) {
        for at in 0..self.cgroups.cgroups.len() {
            let mut within = all.iter().filter(|members| members.cgroup == Some(at));
            let Some(first) = within.next() else { continue };
            let is_own = within.all(|members| members.group == first.group);
            if let Some(factor) = self.change(first).and_then(|change| change.weight_factor)
                && is_own
            {
                let cgroup = &mut self.cgroups.cgroups[at];
                let weight = (f64::from(cgroup.weight) * factor).round();
                cgroup.weight = weight.clamp(1.0, f64::from(*Cgroup::WEIGHTS.end())) as u32;
                self.cgroups.is_weighed[at] = true;
            }
        }
    }

    /// Adds a workload; its programs follow when all workloads are known.
    fn add(&mut self, members: &Members, copy: u32) {
        let group = &self.model.groups[members.group];
        let mut name = group.clone();
        if let Some(cgroup) = members.cgroup {
            name = format!("{name} in {}", self.cgroups.cgroups[cgroup].path);
        }
        if members.guest.is_some() {
            name += " (vCPUs)";
        }
        if copy > 0 {
            name = format!("{name} (copy {copy})");
        }
        // Names of groups and cgroups are what strangers chose.
        while !self.names.insert(name.clone()) {
            name.push('\'');
        }
        let change = self.change(members).cloned().unwrap_or_default();
        let tasks: Vec<HostTask> =
            members.tasks.iter().map(|&at| self.host_task(&self.model.tasks[at], &change)).collect();
        let kind = match members.guest {
            Some(guest) => WorkloadKind::Vm(Vm::new(Vcpus::Threads {
                vcpus: tasks,
                guest: Box::new(self.guests[guest].staged(
                    self.situation,
                    self.workloads.len(),
                    self.gates,
                    DONE,
                )),
            })),
            None => WorkloadKind::Processes(tasks),
        };
        self.gates += members.guest.map_or(0, |guest| self.guests[guest].model.gates as usize);
        let cgroup = match change.limit {
            Some(limit) => {
                let spans = self.spans_cgroups(members.group);
                Some(self.cgroups.limited((members.group, group), members.cgroup.filter(|_| !spans), limit))
            }
            None => members.cgroup,
        };
        let nodes = self.situation.machine.node_count();
        // Where the cgroup is the group's alone, it has the weight.
        let own = members.cgroup.is_none_or(|cgroup| !self.cgroups.is_weighed[cgroup]);
        let factor = change.weight_factor.filter(|_| own).unwrap_or(1.0);
        let weight = f64::from(Workload::DEFAULT_WEIGHT) * factor;
        let workload = Workload {
            group: group.clone(),
            cgroup,
            weight: weight.round().clamp(1.0, 65_535.0) as u32,
            counters: vec!["done".into()],
            ..Workload::new(name, kind, vec![1.0 / nodes as f64; nodes])
        };
        self.workloads.push(Placed { workload, tasks: members.tasks.clone(), copy, guest: members.guest });
    }

    /// Whether tasks of a group are in different cgroups. A limit of theirs is then below the root: where their
    /// cgroups are does not count.
    fn spans_cgroups(&self, group: usize) -> bool {
        let cgroup = |task: &ModelTask| self.recording.about.tasks[task.recorded].cgroup;
        let mut members = self.model.tasks.iter().filter(|task| task.group == group).map(cgroup);
        let first = members.next();
        members.any(|cgroup| Some(cgroup) != first)
    }

    fn host_task(&self, task: &ModelTask, change: &Change) -> HostTask {
        let facts = &self.recording.about.tasks[task.recorded];
        let machine = &self.situation.machine;
        let pin = self.situation.pins.get(&task.recorded).or(change.cpus.as_ref());
        let cpus = pin.cloned().map(Arc::new).or_else(|| recorded_cpus(facts, machine));
        let cpus = cpus.unwrap_or_else(|| self.everywhere.clone());
        // One that may run on none of those that are left may run on all of them, as after a hotplug.
        let left = self.situation.within.as_ref().map(|within| (within, within.and(&cpus)));
        let cpus =
            left.map_or(cpus, |(within, left)| Arc::new(if left.is_empty() { within.clone() } else { left }));
        let past_cpu = task.first_cpu.and_then(|cpu| machine.find_cpu(cpu)).filter(|cpu| cpus.contains(*cpu));
        let soft = change.prefers.as_ref().map(|prefers| Arc::new(prefers.and(&cpus)));
        let affinity = Affinity { hard: cpus, soft: soft.filter(|soft| !soft.is_empty()) };
        HostTask {
            nice: nice_of(facts, Some(change)),
            policy: policy_of(facts, Some(change)),
            past_cpu,
            is_forked: task.is_forked,
            is_kernel_thread: facts.is_kernel,
            ..HostTask::new(Arc::default(), affinity)
        }
    }

    fn finish(mut self, idle: Idle) -> Staged {
        let programs = self.programs();
        let mut tasks = Vec::new();
        let guests = self
            .workloads
            .iter()
            .enumerate()
            .filter_map(|(at, placed)| Some(StagedGuest { guest: placed.guest?, kernel: kernel_of(at) }));
        let guests: Vec<StagedGuest> = guests.collect();
        for (placed, programs) in self.workloads.iter_mut().zip(programs) {
            for (task, program) in placed.workload.programs_mut().iter_mut().zip(programs) {
                task.program = Arc::new(program);
            }
            tasks.extend(&placed.tasks);
        }
        self.workloads.push(self.clock());
        let has_groups = !self.cgroups.cgroups.is_empty();
        let mut policy = self.situation.policy.clone();
        if let PolicySettings::Linux(settings) = &mut policy
            && has_groups
        {
            settings.groups = Some(true);
        }
        let phase_ns = phase_ns(self.recording, 1_000_000_000 / u64::from(tick_hz(self.recording)));
        let timer = phase_ns.map_or(Timer::Hardware, |phase_ns| Timer::Phased { phase_ns });
        let scenario = Scenario {
            machine: self.situation.machine.clone(),
            costs: CostModels { timer: Some(timer), idle: Some(idle), ..CostModels::off() },
            policy,
            pause_loop: None,
            halt_poll_ns: if guests.is_empty() { None } else { halt_poll_ns(self.recording) },
            cgroups: self.cgroups.cgroups,
            workloads: self.workloads.into_iter().map(|placed| placed.workload).collect(),
            gates: self.gates,
            events: Vec::new(),
            homes: Homes::Given,
            warmup_ns: 0,
            length_ns: longest_ns(self.model),
            stop_at_count: Some(DONE),
        };
        Staged { scenario, tasks, guests }
    }

    /// What keeps a run from ending before the time at which the recording did.
    fn clock(&self) -> Placed {
        let ops = vec![
            Op::SleepUntil(self.model.length_ns),
            Op::Count { counter: 0, amount: DONE },
            Op::SleepUntil(TIME_MAX_NS),
        ];
        let program = Arc::new(Program { ops, profiles: Vec::new() });
        let task = HostTask::new(program, Affinity::hard(self.everywhere.clone()));
        let nodes = self.situation.machine.node_count();
        let kind = WorkloadKind::Processes(vec![task]);
        let shares = vec![1.0 / nodes as f64; nodes];
        let workload = Workload {
            counters: vec!["done".into()],
            ..Workload::new("the length of the recording", kind, shares)
        };
        Placed { workload, tasks: Vec::new(), copy: 0, guest: None }
    }

    /// The programs of all workloads.
    fn programs(&mut self) -> Vec<Vec<Program>> {
        // Where each task of the model is, once for each copy of its group.
        let mut places: Vec<Vec<(usize, usize)>> = vec![Vec::new(); self.model.tasks.len()];
        // Who passes each gate, as the copy of its group.
        let mut copies: Vec<Vec<usize>> = vec![Vec::new(); self.model.gates as usize];
        for (workload, placed) in self.workloads.iter().enumerate() {
            for (number, &task) in placed.tasks.iter().enumerate() {
                places[task].push((workload, number));
            }
        }
        // The group that passes each gate.
        let mut passed_by = vec![None; self.model.gates as usize];
        for task in &self.model.tasks {
            for step in &task.steps {
                if let Step::Wait(Wait::Gate(gate)) = step {
                    passed_by[*gate as usize] = Some(task.group);
                }
            }
        }
        // The gate of each copy; the first has that of the model.
        for (gate, group) in passed_by.iter().enumerate() {
            let Some(group) = group else { continue };
            let change = self.situation.changes.get(&self.model.groups[*group]);
            let more = change.and_then(|change| change.copies).unwrap_or(1).saturating_sub(1) as usize;
            copies[gate] = std::iter::once(gate).chain(self.gates..self.gates + more).collect();
            self.gates += more;
        }
        let program = |placed: &Placed, number: usize| {
            let task = &self.model.tasks[placed.tasks[number]];
            let copy = placed.copy as usize;
            let count = placed.tasks.len() as u64;
            let amount = DONE / count + if number == 0 { DONE % count } else { 0 };
            let ops = work_of(task, Op::Count { counter: 0, amount }, |ops, deed| match deed {
                Deed::Pass(gate) => ops.push(Op::Pass { gate: copies[gate as usize][copy] }),
                Deed::Open { gate, sync } => {
                    let gates = &copies[gate as usize];
                    let is_own_group = passed_by[gate as usize] == Some(task.group);
                    let open = |&gate: &usize| Op::Open { gate, sync };
                    match (is_own_group, copy) {
                        // Within a group each copy has its own.
                        (true, copy) => ops.extend(gates.get(copy).map(open)),
                        // One of another group does it for all copies; copies do nothing for others.
                        (false, 0) => ops.extend(gates.iter().map(open)),
                        (false, _) => {}
                    }
                }
                Deed::Fork(child) => {
                    let child_task = &self.model.tasks[child as usize];
                    let places = &places[child as usize];
                    let start = |&(workload, task): &(usize, usize)| Op::StartTask { workload, task };
                    match (child_task.group == task.group, copy) {
                        (true, copy) => ops.extend(places.get(copy).map(start)),
                        (false, 0) => ops.extend(places.iter().map(start)),
                        (false, _) => {}
                    }
                }
            });
            Program { ops, profiles: Vec::new() }
        };
        (self.workloads.iter())
            .map(|placed| (0..placed.tasks.len()).map(|number| program(placed, number)).collect())
            .collect()
    }
}
