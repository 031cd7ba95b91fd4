//! Experiments: scenarios, at several loads and with several policies, beside a published table.
//!
//! An experiment is a folder of its name: `experiment.toml` ([`mod@file`]), the scenarios that it names, and
//! the published table in `published.csv`. Reading it builds every scenario that it will run and checks every
//! published number, so that mistakes are reported before anything runs.
//!
//! A variant is a table of policy settings and nothing else. The format cannot express calibration on a
//! treatment: `calibrated` belongs to a metric, and holds for its baseline alone.

mod composite;
pub mod file;
mod folder;
mod length;
mod read;
mod series;
mod verdict;

pub use composite::Composite;
pub use file::NOISE_PCT;
pub use folder::{ExperimentFolder, ExperimentFolderError};
pub use verdict::verdict;

use crate::published::{CellKeys, Published};
use file::{ExperimentFile, ExperimentMetric, ReplicationsTable};
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
    /// How often to repeat each run.
    pub replications: ReplicationsTable,
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
}

impl Experiment {
    /// The experiment with the replications and the length of runs from its `[quick]`.
    pub fn quick(mut self) -> Self {
        let quick = (*self.file.quick).clone();
        self.replications = ReplicationsTable { min: quick.replications, max: None, ..self.replications };
        let shorten = |value: &mut u64| {
            *value = (u128::from(*value) * u128::from(quick.length_pct) / 100).max(1) as u64
        };
        for case in &mut self.cases {
            case.replications = case.replications.map(|number| number.min(quick.replications));
        }
        for (_, scenario) in self.cases.iter_mut().flat_map(|case| &mut case.variants) {
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
        self
    }
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
