//! Where and how the programs of a model run: as they did, or otherwise.

use super::model::{End, Model, ModelTask, Step, Wait};
use super::ticks::phase_ns;
use crate::machine_file::parse_machine;
use crate::scenario::policy::PolicyTable;
use crate::scenario::policy::scheduler::SchedulerName;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use tandem_file::file_error::FileError;
use tandem_file::located::SourceFile;
use tandem_machine::cpumask::CpuMask;
use tandem_machine::{Machine, MachineBuilder, parse_cpulist};
use tandem_recording::Recording;
use tandem_settings::Settings;
use tandem_sim::cost::{CostModels, Idle, Timer};
use tandem_sim::policy::linux::{LinuxEra, LinuxSettings, Preemption};
use tandem_sim::program::{Amount, Op, Program};
use tandem_sim::scenario::{
    Affinity, BandwidthLimit, Cgroup, Homes, HostTask, PolicySettings, Process, Scenario, TIME_MAX_NS,
    Workload, WorkloadKind,
};

/// Slices that a kernel can have been set to, ns: those that `/sys/kernel/debug/sched` takes.
const SLICES_NS: RangeInclusive<u64> = 100_000..=1_000_000_000;
/// How many times as long as the recording a run may take.
const LONGER_MAX: u64 = 10;
/// What each workload counts up to when all its tasks have done their work.
const DONE: u64 = 1 << 40;

/// A machine, its scheduler, and what else differs from the recording.
#[derive(Clone, Debug, PartialEq)]
pub struct Situation {
    /// The machine.
    pub machine: Arc<Machine>,
    /// The host's scheduler.
    pub policy: PolicySettings,
    /// What is different for a group, by its name.
    pub changes: BTreeMap<String, Change>,
    /// The CPUs that are there for all tasks; `None`: all of the machine.
    pub within: Option<CpuMask>,
    /// Where single tasks may run instead, by position in the recording.
    pub pins: BTreeMap<usize, CpuMask>,
}

/// What is different for a group of tasks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Change {
    /// Its weight is that many times what it was.
    pub weight_factor: Option<f64>,
    /// The nice value of its tasks.
    pub nice: Option<i8>,
    /// Where its tasks may run.
    pub cpus: Option<CpuMask>,
    /// Where its tasks prefer to run.
    pub prefers: Option<CpuMask>,
    /// How much CPU time it may use.
    pub limit: Option<BandwidthLimit>,
    /// How often it is there; 1 if `None`.
    pub copies: Option<u32>,
}

impl Situation {
    /// That of the recording.
    ///
    /// # Errors
    /// If the recorded machine is not one.
    pub fn recorded(recording: &Recording) -> Result<Self, FileError> {
        let about = &recording.about;
        let machine = match &about.machine {
            Some(text) => parse_machine(text, "the recorded machine")?,
            None => flat(about.cpus.max(1))
                .map_err(|problem| SourceFile::new(Path::new("the recording"), "").error_in_file(problem))?,
        };
        Ok(Self {
            machine: Arc::new(machine),
            policy: PolicySettings::Linux(linux(recording)),
            changes: BTreeMap::new(),
            within: None,
            pins: BTreeMap::new(),
        })
    }

    /// Gives the machine another scheduler, with its defaults; Linux is the recorded one. Paths begin in the
    /// current folder.
    ///
    /// # Errors
    /// A sentence, if it cannot be used there.
    pub fn set_scheduler(&mut self, name: SchedulerName) -> Result<(), String> {
        if name == SchedulerName::Linux {
            return Ok(());
        }
        self.set_table(PolicyTable { host: Some(name.into()), ..PolicyTable::default() }, "")
    }

    /// Sets the slice of the recorded scheduler, ns.
    ///
    /// # Errors
    /// A sentence, if it has none.
    pub fn set_slice(&mut self, slice_ns: u64) -> Result<(), String> {
        match &mut self.policy {
            PolicySettings::Linux(settings)
                if settings.era >= LinuxEra::V6_12 && SLICES_NS.contains(&slice_ns) =>
            {
                settings.base_slice_ns = Some(slice_ns);
                Ok(())
            }
            PolicySettings::Linux(settings) if settings.era >= LinuxEra::V6_12 => {
                Err("a slice is from 100 us to 1 s".into())
            }
            _ => Err("the scheduler has no slice to set; Linux has one from version 6.6 on".into()),
        }
    }

    /// Gives the machine the scheduler tandem with these settings.
    ///
    /// # Errors
    /// A sentence, if it cannot be used there.
    pub fn set_tandem(&mut self, settings: &Settings) -> Result<(), String> {
        let own = toml::Table::try_from(settings.scheduler_only()).map_err(|error| error.to_string())?;
        let keys = ["host", "tandem", "settings"];
        let text =
            keys.iter().rev().fold(own, |value, key| toml::Table::from_iter([((*key).into(), value.into())]));
        let text = toml::to_string(&text).map_err(|error| error.to_string())?;
        let source = SourceFile::new(Path::new("settings"), &text);
        self.set_table(source.parse().map_err(|error| error.to_string())?, &text)
    }

    fn set_table(&mut self, table: PolicyTable, text: &str) -> Result<(), String> {
        self.policy = table.host_settings(&self.machine, &SourceFile::new(Path::new("settings"), text))?;
        Ok(())
    }
}

/// A machine of which nothing is known but how many CPUs it has: one package, whose cores have one thread.
fn flat(cpus: u32) -> Result<Machine, String> {
    let machine = MachineBuilder::symmetric(1, cpus, 1).name("unknown").every_llc(1 << 25);
    machine.every_node(1 << 36, 1 << 34).build().map_err(|error| error.to_string())
}

/// The kernel's scheduler as it was set.
fn linux(recording: &Recording) -> LinuxSettings {
    let about = &recording.about;
    let era = era(&about.kernel);
    let known = &about.scheduler;
    let preemption = match known.preemption.as_deref() {
        Some("full") => Some(Preemption::Full),
        Some("lazy") => Some(Preemption::Lazy),
        Some("voluntary" | "none") => Some(Preemption::Voluntary),
        _ => None,
    };
    LinuxSettings {
        era,
        tick_hz: tick_hz(recording),
        base_slice_ns: known.base_slice_ns.filter(|ns| SLICES_NS.contains(ns)),
        preemption: preemption.filter(|preemption| preemption.problem(era).is_none()),
        ..LinuxSettings::default()
    }
}

/// The recorded ticks a second, or the usual ones.
fn tick_hz(recording: &Recording) -> u32 {
    let known = recording.about.scheduler.hz.filter(|hz| LinuxSettings::TICKS_HZ.contains(hz));
    known.unwrap_or(LinuxSettings::default().tick_hz)
}

/// The newest release that is modelled and not newer than that one; the newest for an unknown one.
fn era(release: &str) -> LinuxEra {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|text| text.parse::<u32>().ok());
    let (Some(Some(major)), Some(Some(minor))) = (numbers.next(), numbers.next()) else {
        return LinuxEra::V7_3;
    };
    let known = [
        ((7, 0), LinuxEra::V7_3),
        ((6, 18), LinuxEra::V6_18),
        ((6, 6), LinuxEra::V6_12),
        ((5, 0), LinuxEra::V5_2),
        ((4, 0), LinuxEra::V4_2),
    ];
    known.iter().find(|(since, _)| (major, minor) >= *since).map_or(LinuxEra::V3_6, |(_, era)| *era)
}

/// A scenario, and which of its tasks is which of the model.
#[derive(Clone, Debug)]
pub struct Staged {
    /// The scenario.
    pub scenario: Scenario,
    /// The position in the model of each task of the host, but those at the end, which are none of it.
    pub tasks: Vec<usize>,
}

/// Puts the programs of a model into a situation. `idle` is how long idle CPUs take to wake.
pub fn stage(recording: &Recording, model: &Model, situation: &Situation, idle: Idle) -> Staged {
    let mut stage = Stage {
        recording,
        model,
        situation,
        gates: model.gates as usize,
        workloads: Vec::new(),
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
}

/// A workload, with where each task of the model is in it.
struct Placed {
    workload: Workload,
    tasks: Vec<usize>,
    copy: u32,
}

struct Stage<'a> {
    recording: &'a Recording,
    model: &'a Model,
    situation: &'a Situation,
    gates: usize,
    workloads: Vec<Placed>,
    cgroups: Cgroups,
    everywhere: Arc<CpuMask>,
}

impl Stage<'_> {
    /// The tasks of each workload: those of a group that share a cgroup.
    fn members(&self) -> Vec<Members> {
        let mut found: BTreeMap<(usize, Option<usize>), Vec<usize>> = BTreeMap::new();
        for (at, task) in self.model.tasks.iter().enumerate() {
            let cgroup = self.recording.about.tasks[task.recorded].cgroup;
            let cgroup = cgroup.and_then(|cgroup| self.cgroups.of_recorded[cgroup]);
            found.entry((task.group, cgroup)).or_default().push(at);
        }
        found.into_iter().map(|((group, cgroup), tasks)| Members { group, cgroup, tasks }).collect()
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
        if copy > 0 {
            name = format!("{name} (copy {copy})");
        }
        let change = self.change(members).cloned().unwrap_or_default();
        let tasks = members.tasks.iter().map(|&at| self.host_task(&self.model.tasks[at], &change)).collect();
        let cgroup = match change.limit {
            Some(limit) => {
                let spans = self.spans_cgroups(members.group);
                Some(self.cgroups.limited(group, members.cgroup.filter(|_| !spans), limit))
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
            ..Workload::new(name, WorkloadKind::Processes(tasks), vec![1.0 / nodes as f64; nodes])
        };
        self.workloads.push(Placed { workload, tasks: members.tasks.clone(), copy });
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
        let recorded_cpus = || {
            let mut mask = CpuMask::empty(machine.cpu_count());
            for cpu in parse_cpulist(facts.cpus.as_deref()?).ok()? {
                if let Some(cpu) = machine.find_cpu(cpu) {
                    mask.insert(cpu);
                }
            }
            (!mask.is_empty() && mask != *machine.all_cpus()).then(|| Arc::new(mask))
        };
        let pin = self.situation.pins.get(&task.recorded).or(change.cpus.as_ref());
        let cpus = pin.cloned().map(Arc::new).or_else(recorded_cpus);
        let cpus = cpus.unwrap_or_else(|| self.everywhere.clone());
        // One that may run on none of those that are left may run on all of them, as after a hotplug.
        let left = self.situation.within.as_ref().map(|within| (within, within.and(&cpus)));
        let cpus =
            left.map_or(cpus, |(within, left)| Arc::new(if left.is_empty() { within.clone() } else { left }));
        let nice = facts.nice().unwrap_or(if facts.is_real_time() { *Process::NICE.start() } else { 0 });
        let past_cpu = task.first_cpu.and_then(|cpu| machine.find_cpu(cpu)).filter(|cpu| cpus.contains(*cpu));
        let soft = change.prefers.as_ref().map(|prefers| Arc::new(prefers.and(&cpus)));
        let affinity = Affinity { hard: cpus, soft: soft.filter(|soft| !soft.is_empty()) };
        HostTask {
            nice: change.nice.unwrap_or(nice),
            past_cpu,
            is_forked: task.is_forked,
            ..HostTask::new(Arc::default(), affinity)
        }
    }

    fn finish(mut self, idle: Idle) -> Staged {
        let programs = self.programs();
        let mut tasks = Vec::new();
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
            halt_poll_ns: None,
            cgroups: self.cgroups.cgroups,
            workloads: self.workloads.into_iter().map(|placed| placed.workload).collect(),
            gates: self.gates,
            events: Vec::new(),
            homes: Homes::Given,
            warmup_ns: 0,
            length_ns: self.model.length_ns.saturating_mul(LONGER_MAX).clamp(1, TIME_MAX_NS),
            stop_at_count: Some(DONE),
        };
        Staged { scenario, tasks }
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
        Placed { workload, tasks: Vec::new(), copy: 0 }
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
            let mut ops = Vec::with_capacity(task.steps.len() + 2);
            for step in &task.steps {
                match *step {
                    Step::Work(work_ns) => {
                        ops.push(Op::Compute { work: Amount::Fixed(work_ns), profile: None });
                    }
                    Step::Wait(Wait::Gate(gate)) => ops.push(Op::Pass { gate: copies[gate as usize][copy] }),
                    Step::Wait(Wait::For(ns)) => ops.push(Op::Sleep(Amount::Fixed(ns))),
                    Step::Wait(Wait::Until(at_ns)) => ops.push(Op::SleepUntil(at_ns)),
                    Step::Open { gate, sync } => {
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
                    Step::Fork(child) => {
                        let child_task = &self.model.tasks[child as usize];
                        let places = &places[child as usize];
                        let start = |&(workload, task): &(usize, usize)| Op::StartTask { workload, task };
                        match (child_task.group == task.group, copy) {
                            (true, copy) => ops.extend(places.get(copy).map(start)),
                            (false, 0) => ops.extend(places.iter().map(start)),
                            (false, _) => {}
                        }
                    }
                }
            }
            let count = placed.tasks.len() as u64;
            let done =
                Op::Count { counter: 0, amount: DONE / count + if number == 0 { DONE % count } else { 0 } };
            match task.end {
                End::Ended => ops.push(done),
                End::Waits => ops.extend([done, Op::SleepUntil(TIME_MAX_NS)]),
                // Nobody waits for the end of what has none.
                End::GoesOn => {
                    ops.insert(0, done);
                    ops.push(Op::Compute { work: Amount::Fixed(TIME_MAX_NS), profile: None });
                }
            }
            Program { ops, profiles: Vec::new() }
        };
        (self.workloads.iter())
            .map(|placed| (0..placed.tasks.len()).map(|number| program(placed, number)).collect())
            .collect()
    }
}

/// The recorded cgroups that matter.
struct Cgroups {
    cgroups: Vec<Cgroup>,
    /// For each: it has the changed weight of a group.
    is_weighed: Vec<bool>,
    /// The position among them of each recorded one.
    of_recorded: Vec<Option<usize>>,
}

impl Cgroups {
    fn of(recording: &Recording) -> Self {
        let recorded = &recording.about.cgroups;
        let mut made = Self { cgroups: Vec::new(), is_weighed: Vec::new(), of_recorded: Vec::new() };
        let has_controller = recorded.iter().any(|cgroup| cgroup.weight.is_some());
        for cgroup in recorded {
            let path = cgroup.path.trim_matches('/');
            let is_deep = path.split('/').count() > Cgroup::LEVELS_MAX;
            let at = (has_controller && !path.is_empty() && !is_deep).then(|| made.declare(recording, path));
            made.of_recorded.push(at.flatten());
        }
        made.is_weighed = vec![false; made.cgroups.len()];
        made
    }

    /// The cgroup with the limit of a group, below that one.
    fn limited(&mut self, group: &str, parent: Option<usize>, limit: BandwidthLimit) -> usize {
        let above = parent.map_or(String::new(), |parent| format!("{}/", self.cgroups[parent].path));
        let path = format!("{above}limit of {}", group.replace('/', "-"));
        if let Some(at) = self.cgroups.iter().position(|known| known.path == path) {
            return at;
        }
        self.is_weighed.push(false);
        let weight = Cgroup::DEFAULT_WEIGHT;
        self.cgroups.push(Cgroup { path, parent, weight, limit: Some(limit) });
        self.cgroups.len() - 1
    }

    /// The cgroup of this path, after those above it.
    fn declare(&mut self, recording: &Recording, path: &str) -> Option<usize> {
        if let Some(at) = self.cgroups.iter().position(|known| known.path == path) {
            return Some(at);
        }
        let parent = path.rsplit_once('/').map(|(above, _)| above);
        let parent = parent.and_then(|above| self.declare(recording, above));
        let facts = recording.about.cgroups.iter().find(|cgroup| cgroup.path.trim_matches('/') == path);
        let known = facts.and_then(|facts| facts.weight);
        // Without the controller it is no group of its own.
        let Some(weight) = known else { return parent };
        let limit = facts.and_then(|facts| facts.quota_us).map(|quota_us| BandwidthLimit {
            quota_us,
            period_us: facts.and_then(|facts| facts.period_us).unwrap_or(BandwidthLimit::DEFAULT_PERIOD_US),
        });
        let weight = (weight as u32).clamp(*Cgroup::WEIGHTS.start(), *Cgroup::WEIGHTS.end());
        self.cgroups.push(Cgroup { path: path.into(), parent, weight, limit });
        Some(self.cgroups.len() - 1)
    }
}
