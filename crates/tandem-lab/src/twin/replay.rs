//! Runs a model, and measures the run as its recording is measured.

use super::comparison::Comparison;
use super::grouping::{GroupBy, Grouped, names};
use super::guest::{GuestTwin, StagedGuest};
use super::latency::idle_exits;
use super::measures::{Measures, Measuring};
use super::model::{End, Model, ModelTask};
use super::observed::{Kernels, Observed};
use super::plan::Plan;
use super::situation::Situation;
use super::stage::{Staged, longest_ns, stage};
use super::together::{GuestRecording, Together};
use crate::runner::{Abortable, NEVER, Progress};
use rayon::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};
use tandem_file::shown::readable;
use tandem_machine::Machine;
use tandem_machine::ids::KernelId;
use tandem_recording::{Event, Recording};
use tandem_sim::cost::Idle;
use tandem_sim::scenario::{PROCESSES_MAX, ScenarioError, TIME_MAX_NS};
use tandem_sim::{RunError, run_observed};

/// Most groups that an error lists.
const GROUPS_LISTED: usize = 20;
/// Most steps of the programs of a run: as many as a recording may have events.
const STEPS_MAX: u64 = tandem_recording::file::EVENTS_MAX as u64;

/// Measures of each group, in the order of the twin's groups, and of all.
#[derive(Clone, Debug)]
pub struct Measured {
    /// By group.
    pub groups: Vec<Measures>,
    /// Of all tasks of the host.
    pub total: Measures,
    /// All tasks have done their work.
    pub is_complete: bool,
    /// The longest that the run could take, ns.
    pub longest_ns: u64,
}

/// That in some of these runs not all work was done, in words.
pub fn unfinished(runs: &[Measured]) -> Option<String> {
    let late = runs.iter().filter(|run| !run.is_complete).count();
    let longest_s = runs.first()?.longest_ns as f64 / 1e9;
    (late > 0).then(|| {
        format!(
            "in {late} of {} runs not all of the work was done in {longest_s:.1} s, the longest that a run may take",
            runs.len()
        )
    })
}

/// A recording, understood, and ready to run again.
#[derive(Debug)]
pub struct Twin<'a> {
    /// The recording.
    pub recording: &'a Recording,
    /// Its model.
    pub model: Model,
    /// Guests that were recorded, too.
    pub guests: Vec<GuestTwin<'a>>,
    /// The names of the groups that are measured: those of the model, and then those of each guest.
    pub groups: Vec<String>,
    /// What tells the recording from others; see [`Plan::made_of`].
    pub made_of: String,
    /// How long idle CPUs took to wake.
    idle: Idle,
}

impl<'a> Twin<'a> {
    /// Of a recording, whose tasks are measured in such groups.
    pub fn new(recording: &'a Recording, by: GroupBy) -> Self {
        let model = Model::of(recording, by);
        Self {
            recording,
            groups: model.groups.clone(),
            model,
            guests: Vec::new(),
            made_of: Plan::made_of(recording),
            idle: idle_exits(recording),
        }
    }

    /// Of a host and its guests.
    ///
    /// # Errors
    /// A sentence, if the recorded machine of a guest is not one.
    pub fn of(together: &'a Together, by: GroupBy) -> Result<Self, String> {
        let recording = &together.host;
        let vcpus = together.guests.iter().flat_map(|guest| guest.vcpus.iter().copied()).collect();
        let mut model = Model::of_host(recording, by, &vcpus);
        let guest = |guest: &'a GuestRecording| GuestTwin::new(guest, &model, by);
        let mut guests = together.guests.iter().map(guest).collect::<Result<Vec<_>, _>>()?;
        let host = Grouped { guest: None, groups: &model.kinds, about: &recording.about };
        let kernels: Vec<Grouped<'_>> =
            std::iter::once(host).chain(guests.iter().map(GuestTwin::grouped)).collect();
        let groups = names(&kernels);
        let mut named = groups.iter().cloned();
        for model in std::iter::once(&mut model).chain(guests.iter_mut().map(|guest| &mut guest.model)) {
            model.groups = named.by_ref().take(model.kinds.len()).collect();
        }
        let made_of = together.made_of.clone();
        Ok(Self { recording, model, guests, groups, made_of, idle: idle_exits(recording) })
    }

    /// Whether it can run as it was recorded.
    ///
    /// # Errors
    /// A sentence: what is wrong with the recording, and what to do.
    pub fn check(&self) -> Result<(), String> {
        if self.model.tasks.is_empty() {
            return Err(
                "nothing ran while it was recorded; record for longer, or while something runs".into()
            );
        }
        if let Some(guest) = self.guests.iter().find(|guest| guest.model.tasks.is_empty()) {
            return Err(format!(
                "nothing ran in the guest of VM '{}' while both were recorded; record both for longer, or while \
                 something runs in it",
                readable(&guest.recorded.name, &[])
            ));
        }
        if self.model.length_ns > TIME_MAX_NS {
            let hours = |ns: u64| ns as f64 / 3.6e12;
            return Err(format!(
                "the recording is {:.1} h long, and a replay takes {:.0} h at most; record for less, as with \
                 `tandem record --for 10min`",
                hours(self.model.length_ns),
                hours(TIME_MAX_NS)
            ));
        }
        Situation::recorded(self.recording).map(drop)
    }

    /// What the recording says.
    ///
    /// # Errors
    /// A sentence, if the recorded machine is not one.
    pub fn recorded(&self) -> Result<Measured, String> {
        let situation = Situation::recorded(self.recording)?;
        // Tasks that the recording never met are in no group; they have no events either.
        let mut groups = vec![0; self.recording.about.tasks.len()];
        for task in &self.model.tasks {
            groups[task.recorded] = task.group;
        }
        let mut measuring = Measuring::new(&situation.machine, &groups, self.model.groups.len());
        self.recording.events.iter().for_each(|event| measuring.read(event));
        let (mut groups, total) = measuring.end(self.model.length_ns);
        groups.extend(self.guests.iter().flat_map(GuestTwin::measured));
        Ok(Measured { groups, total, is_complete: true, longest_ns: self.model.length_ns })
    }

    /// The recorded `cpu.weight` of a group: of the first of its tasks that has one, or the usual one.
    pub fn recorded_weight(&self, group: &str) -> f64 {
        let about = &self.recording.about;
        let weight = |task: &ModelTask| {
            let cgroup = about.tasks[task.recorded].cgroup.and_then(|cgroup| about.cgroups.get(cgroup));
            cgroup.and_then(|cgroup| cgroup.weight)
        };
        let members = self.model.tasks.iter().filter(|task| self.model.groups[task.group] == group);
        members.filter_map(weight).next().map_or(100.0, |weight| weight as f64)
    }

    /// The scenario of a situation.
    pub fn stage(&self, situation: &Situation) -> Staged {
        stage(self.recording, &self.model, &self.guests, situation, self.idle.clone())
    }

    /// Whether a situation is not too large to run.
    fn check_size(&self, situation: &Situation) -> Result<(), String> {
        let copies: Vec<u64> = (self.model.groups.iter())
            .map(|group| situation.changes.get(group).and_then(|change| change.copies).unwrap_or(1).into())
            .collect();
        let (mut tasks, mut steps) = (0, 0);
        for task in &self.model.tasks {
            tasks += copies[task.group];
            steps += copies[task.group] * task.steps.len() as u64;
        }
        for guest in &self.guests {
            let copies = copies[self.model.tasks[guest.vcpus[0]].group];
            tasks += copies * guest.model.tasks.len() as u64;
            steps += copies * guest.model.tasks.iter().map(|task| task.steps.len() as u64).sum::<u64>();
        }
        // One more keeps the time.
        if tasks < PROCESSES_MAX && steps <= STEPS_MAX {
            return Ok(());
        }
        Err(format!(
            "the replay would have {tasks} tasks with {steps} steps; at most {} and {STEPS_MAX} can run: let groups be \
             there less often, or record for less",
            PROCESSES_MAX - 1
        ))
    }

    /// Runs it in a situation.
    ///
    /// # Errors
    /// A sentence, if the scheduler cannot run it.
    pub fn run(&self, situation: &Situation, seed: u64) -> Result<Measured, String> {
        self.run_unless(situation, seed, &NEVER)
    }

    /// The same, which ends in the middle when `abort` becomes true: then the measures mean nothing.
    fn run_unless(&self, situation: &Situation, seed: u64, abort: &AtomicBool) -> Result<Measured, String> {
        self.check_size(situation)?;
        let staged = self.stage(situation);
        let groups: Vec<usize> = staged.tasks.iter().map(|&task| self.model.tasks[task].group).collect();
        let mut measuring = Measuring::new(&situation.machine, &groups, self.model.groups.len());
        for (at, &task) in staged.tasks.iter().enumerate() {
            let mut guest = self.guests.iter().filter(|guest| guest.vcpus.contains(&task));
            if self.model.tasks[task].end == End::GoesOn || guest.any(GuestTwin::goes_on) {
                measuring.cut(at, self.model.length_ns);
            }
        }
        // Of each copy of each guest.
        let of_guests: Vec<Vec<usize>> = self.guests.iter().map(GuestTwin::groups).collect();
        let copies =
            staged.guests.iter().map(|copy| self.guests[copy.guest].measuring(&of_guests[copy.guest]));
        let mut copies: Vec<Measuring<'_>> = copies.collect();
        let mut kernels = vec![observed(KernelId::HOST, &situation.machine, &mut measuring)];
        for (StagedGuest { guest, kernel }, measuring) in staged.guests.iter().zip(&mut copies) {
            kernels.push(observed(*kernel, self.guests[*guest].machine(), measuring));
        }
        let mut kernels = Abortable(Kernels(kernels), abort);
        let metrics = run_observed(&staged.scenario, seed, &mut kernels).map_err(in_words)?;
        drop(kernels);
        let is_complete = metrics.length_ns < staged.scenario.length_ns;
        let (mut groups, total) = measuring.end(metrics.length_ns);
        let copies: Vec<Vec<Measures>> =
            copies.into_iter().map(|copy| copy.end(metrics.length_ns).0).collect();
        for (number, guest) in self.guests.iter().enumerate() {
            let mut sum = vec![Measures::default(); guest.model.groups.len()];
            for (_, copy) in staged.guests.iter().zip(&copies).filter(|(staged, _)| staged.guest == number) {
                sum.iter_mut().zip(copy).for_each(|(sum, copy)| sum.add_copy(copy));
            }
            groups.extend(sum);
        }
        Ok(Measured { groups, total, is_complete, longest_ns: longest_ns(&self.model) })
    }

    /// Runs it in a situation once for each seed, at the same time as far as there are CPUs.
    ///
    /// # Errors
    /// The first one of a run.
    pub fn run_all(&self, situation: &Situation, seeds: &[u64]) -> Result<Vec<Measured>, String> {
        self.run_reporting(situation, seeds, &())
    }

    /// The same, and reports each run that is done. When [`Progress::abort`] becomes true, runs end in the middle.
    ///
    /// # Errors
    /// As [`Twin::run_all`], or that it was aborted.
    pub fn run_reporting(
        &self,
        situation: &Situation,
        seeds: &[u64],
        progress: &dyn Progress,
    ) -> Result<Vec<Measured>, String> {
        let run = |&seed: &u64| {
            // To prepare a run takes time, too.
            if progress.abort().load(Ordering::Relaxed) {
                return Err("the replay was aborted".into());
            }
            let measured = self.run_unless(situation, seed, progress.abort());
            progress.done();
            measured
        };
        seeds.par_iter().map(run).collect()
    }

    /// Runs it in a situation with each seed, and in the recorded situation, which says how far to trust that; and puts
    /// the recording beside it.
    ///
    /// # Errors
    /// As [`Twin::run_all`].
    pub fn compare(
        &self,
        situation: &Situation,
        seeds: &[u64],
        progress: &dyn Progress,
    ) -> Result<Comparison, String> {
        let recorded = self.recorded()?;
        let original = Situation::recorded(self.recording)?;
        let is_other = *situation != original;
        progress.planned(seeds.len() * if is_other { 2 } else { 1 });
        let runs = self.run_reporting(situation, seeds, progress)?;
        let baseline = if is_other { Some(self.run_reporting(&original, seeds, progress)?) } else { None };
        Ok(Comparison::new(self, &recorded, &runs, baseline.as_deref().unwrap_or(&runs)))
    }

    /// Whether the recording has a group of that name.
    ///
    /// # Errors
    /// A sentence that lists those that it has.
    pub fn check_group(&self, name: &str) -> Result<(), String> {
        let groups = &self.groups;
        if groups.iter().any(|known| known == name) {
            return Ok(());
        }
        let listed = groups.iter().take(GROUPS_LISTED).map(|name| format!("'{}'", readable(name, &[])));
        let listed: Vec<String> = listed.collect();
        let more = match groups.len() - listed.len() {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        let name = readable(name, &[]);
        Err(format!("there is no group '{name}' in the recording; groups: {}{more}", listed.join(", ")))
    }
}

/// An error of a run in the words of recordings: what a scenario calls a VM is a group of tasks.
fn in_words(error: RunError) -> String {
    match error {
        RunError::Scenario(ScenarioError::Vm { vm, problem }) => {
            format!("the tasks of '{}' cannot run: {problem}", readable(&vm, &[]))
        }
        RunError::Stuck { vm, at_ns, .. } => format!(
            "the replay stands still at {at_ns} ns, where tasks of '{}' wake each other and take no time; record again",
            readable(&vm, &[])
        ),
        other => other.to_string(),
    }
}

/// Lets a kernel be measured.
fn observed<'m>(
    kernel: KernelId,
    machine: &'m Machine,
    measuring: &'m mut Measuring<'_>,
) -> Observed<'m, impl FnMut(&Event)> {
    Observed::of_kernel(kernel, machine, |event| measuring.read(event))
}
