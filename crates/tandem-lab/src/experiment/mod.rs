//! Experiments: scenarios, at several loads and with several policies, beside a published table.
//!
//! An experiment is a folder of its name: `experiment.toml` ([`mod@file`]), the scenarios that it names, and
//! the published table in `published.csv`. Reading it builds every scenario that it will run and checks every
//! published number, so that mistakes are reported before anything runs.
//!
//! A variant is a table of policy settings and nothing else: schedulers, placement, and of each group the memory
//! policy and the homes. The format cannot express calibration on a treatment: `calibrated` belongs to a metric, and
//! holds for its baseline alone.

pub mod calibration;
mod composite;
pub mod file;
mod folder;
mod length;
mod read;
mod series;
mod verdict;

pub use calibration::Calibration;
pub use composite::Composite;
pub use file::NOISE_PCT;
pub use folder::{ExperimentFolder, ExperimentFolderError};
pub use verdict::verdict;

use crate::published::{CellKeys, Published};
use crate::scenario::{Parameters, ScenarioSource};
use file::{ExperimentFile, ExperimentMetric, ReplicationsTable};
use std::sync::Arc;
use tandem_file::file_error::FileError;
use tandem_sim::scenario::{Scenario, Vcpus, Workload};

/// An experiment that was read and checked.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// Its name: that of its folder.
    pub name: String,
    /// What its file says.
    pub file: ExperimentFile,
    /// The published table.
    pub published: Published,
    /// What to run, in the order of the file.
    pub cases: Vec<Case>,
    /// Scores that sum up several cases.
    pub composites: Vec<Composite>,
    /// What the baseline leaves open.
    pub calibrations: Vec<Calibration>,
    /// How often to repeat each run.
    pub replications: ReplicationsTable,
    /// Whether it is the quick form.
    pub is_quick: bool,
}

/// One scenario at one load, with several policies.
#[derive(Clone, Debug)]
pub struct Case {
    /// Keys of its cells.
    pub keys: CellKeys,
    /// What to measure.
    pub metrics: Vec<ExperimentMetric>,
    /// Name of the variant that effects are measured against.
    pub baseline: String,
    /// The scenario with the policy of each variant; the baseline is one of them.
    pub variants: Vec<(String, Scenario)>,
    /// Most replications of it; `None`: those of the experiment.
    pub replications: Option<usize>,
    /// The scenario's file, and the values of its parameters.
    pub source: Arc<ScenarioSource>,
    /// Values of the scenario's parameters at this load.
    pub parameters: Parameters,
    /// The position in the file of the run that it belongs to.
    run: usize,
}

impl Experiment {
    /// The experiment with the replications and the length of runs from its `[quick]`.
    pub fn quick(mut self) -> Self {
        let quick = (*self.file.quick).clone();
        self.replications = ReplicationsTable { min: quick.replications, max: None, ..self.replications };
        for case in &mut self.cases {
            case.replications = case.replications.map(|number| number.min(quick.replications));
        }
        let scenarios = self.cases.iter_mut().flat_map(|case| &mut case.variants);
        scenarios.for_each(|(_, scenario)| shorten(scenario, quick.length_pct));
        self.is_quick = true;
        self
    }

    /// The scenario of a variant of a case with other values for some of its parameters.
    ///
    /// # Errors
    /// If the scenario does not add up with these values.
    pub fn scenario_at(
        &self,
        case: &Case,
        variant: &str,
        values: &Parameters,
    ) -> Result<Scenario, FileError> {
        let mut parameters = case.parameters.clone();
        parameters.extend(values.clone());
        let mut scenario =
            read::scenario_of(&self.file.runs[case.run], variant, &self.file, &case.source, &parameters)?;
        if self.is_quick {
            shorten(&mut scenario, self.file.quick.length_pct);
        }
        Ok(scenario)
    }
}

/// Makes all times of a run, and the count that it stops at, this share of what they are.
fn shorten(scenario: &mut Scenario, pct: u64) {
    let shorten = |value: &mut u64| *value = (u128::from(*value) * u128::from(pct) / 100).max(1) as u64;
    shorten(&mut scenario.length_ns);
    if scenario.warmup_ns > 0 {
        shorten(&mut scenario.warmup_ns);
    }
    scenario.stop_at_count.iter_mut().for_each(shorten);
    for vm in scenario.workloads.iter_mut().filter_map(Workload::vm_mut) {
        vm.start.iter_mut().for_each(|start| start.each_ns(shorten));
        if let Vcpus::Programs { life: Some(life), .. } = &mut vm.vcpus {
            life.each_ns(shorten);
        }
    }
    let changes = scenario.workloads.iter_mut().flat_map(|vm| &mut vm.affinity_changes);
    changes.for_each(|change| shorten(&mut change.at_ns));
}

impl Case {
    /// The case in words, for errors and progress: "benchmark=specjbb2005 vms=2".
    pub fn label(&self) -> String {
        let keys: Vec<_> = self.keys.iter().map(|(key, value)| format!("{key}={value}")).collect();
        keys.join(" ")
    }

    /// Names of its variants, in the order of the file.
    pub fn variant_names(&self) -> impl Iterator<Item = &str> {
        self.variants.iter().map(|(name, _)| name.as_str())
    }
}
