//! Runs a model, and measures the run as its recording is measured.

use super::grouping::GroupBy;
use super::latency::idle_exits;
use super::measures::{Measures, Measuring};
use super::model::{End, Model, ModelTask};
use super::observed::Observed;
use super::situation::{Situation, Staged, stage};
use rayon::prelude::*;
use tandem_file::file_error::FileError;
use tandem_file::shown::readable;
use tandem_recording::Recording;
use tandem_sim::cost::Idle;
use tandem_sim::{RunError, run_observed};

/// Most groups that an error lists.
const GROUPS_LISTED: usize = 20;

/// Measures of each group, in the order of the model's groups, and of all.
#[derive(Clone, Debug)]
pub struct Measured {
    /// By group.
    pub groups: Vec<Measures>,
    /// Of all.
    pub total: Measures,
    /// All tasks have done their work.
    pub is_complete: bool,
}

/// A recording, understood, and ready to run again.
#[derive(Debug)]
pub struct Twin<'a> {
    /// The recording.
    pub recording: &'a Recording,
    /// Its model.
    pub model: Model,
    /// How long idle CPUs took to wake.
    idle: Idle,
}

impl<'a> Twin<'a> {
    /// Of a recording, whose tasks are measured in such groups.
    pub fn new(recording: &'a Recording, by: GroupBy) -> Self {
        Self { recording, model: Model::of(recording, by), idle: idle_exits(recording) }
    }

    /// What the recording says.
    ///
    /// # Errors
    /// If the recorded machine is not one.
    pub fn recorded(&self) -> Result<Measured, FileError> {
        let situation = Situation::recorded(self.recording)?;
        // Tasks that the recording never met are in no group; they have no events either.
        let mut groups = vec![0; self.recording.about.tasks.len()];
        for task in &self.model.tasks {
            groups[task.recorded] = task.group;
        }
        let mut measuring = Measuring::new(&situation.machine, &groups, self.model.groups.len());
        self.recording.events.iter().for_each(|event| measuring.read(event));
        let (groups, total) = measuring.end(self.model.length_ns);
        Ok(Measured { groups, total, is_complete: true })
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
        stage(self.recording, &self.model, situation, self.idle.clone())
    }

    /// Runs it in a situation.
    ///
    /// # Errors
    /// If the scheduler cannot run it.
    pub fn run(&self, situation: &Situation, seed: u64) -> Result<Measured, RunError> {
        let staged = self.stage(situation);
        let groups: Vec<usize> = staged.tasks.iter().map(|&task| self.model.tasks[task].group).collect();
        let mut measuring = Measuring::new(&situation.machine, &groups, self.model.groups.len());
        for (at, &task) in staged.tasks.iter().enumerate() {
            if self.model.tasks[task].end == End::GoesOn {
                measuring.cut(at, self.model.length_ns);
            }
        }
        let mut observed = Observed::new(&situation.machine, |event| measuring.read(event));
        let metrics = run_observed(&staged.scenario, seed, &mut observed)?;
        let is_complete = metrics.length_ns < staged.scenario.length_ns;
        let (groups, total) = measuring.end(metrics.length_ns);
        Ok(Measured { groups, total, is_complete })
    }

    /// Runs it in a situation once for each seed, at the same time as far as there are CPUs.
    ///
    /// # Errors
    /// The first one of a run.
    pub fn run_all(&self, situation: &Situation, seeds: &[u64]) -> Result<Vec<Measured>, RunError> {
        seeds.par_iter().map(|&seed| self.run(situation, seed)).collect()
    }

    /// Whether the recording has a group of that name.
    ///
    /// # Errors
    /// A sentence that lists those that it has.
    pub fn check_group(&self, name: &str) -> Result<(), String> {
        let groups = &self.model.groups;
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
