//! Scenarios whose schedulers are object files.

use scheduler_tests::{WITH_RECIPES, object, recipe};
use std::path::Path;
use std::sync::Arc;
use tandem_ebpf::{Code, Engine};
use tandem_lab::scenario::ScenarioSource;
use tandem_sim::metrics::{RunMetrics, TaskMetrics};
use tandem_sim::policy::sched_ext::SchedExtSettings;
use tandem_sim::scenario::{PolicySettings, Scenario};

/// A scheduler as a scenario has it, a published one with its recipe.
pub fn file(scheduler: &str) -> String {
    file_with(scheduler, "")
}

/// The same with more keys, which are separated by commas. A recipe has a key in each line.
pub fn file_with(scheduler: &str, more: &str) -> String {
    let recipe = match WITH_RECIPES.contains(&scheduler) {
        true => recipe(scheduler).unwrap_or_else(|error| panic!("the recipe of {scheduler}: {error}")),
        false => String::new(),
    };
    let keys = recipe.lines().filter(|line| !line.starts_with('#')).chain([more]);
    let keys: String = keys.filter(|key| !key.is_empty()).map(|key| format!(", {key}")).collect();
    format!("{{ object = \"{}\"{keys} }}", object(scheduler).display())
}

/// A scenario, or its error. The kernel has no threads of its own: figures are those of the tasks listed.
pub fn try_build(text: &str) -> Result<Scenario, String> {
    ScenarioSource::parse(Path::new("s.toml"), text)
        .and_then(|source| source.build(&Default::default(), &Default::default()))
        .map_err(|error| error.to_string())
        .map(|mut scenario| {
            scenario.remove_kernel_threads();
            scenario
        })
}

pub fn build(text: &str) -> Scenario {
    try_build(text).unwrap_or_else(|error| panic!("{error}"))
}

pub fn run(text: &str) -> RunMetrics {
    tandem_sim::run(&build(text), 1).unwrap_or_else(|error| panic!("{error}"))
}

/// The same scenario with the code of its compiled schedulers run by an engine.
pub fn with_engine(scenario: &Scenario, engine: Engine) -> Scenario {
    let mut scenario = scenario.clone();
    let guests = scenario.workloads.iter_mut().filter_map(|vm| vm.guest_mut()).map(|guest| &mut guest.policy);
    for policy in guests.chain([&mut scenario.policy]) {
        if let PolicySettings::SchedExt(settings) = policy {
            let code = Code::new(settings.code.image().clone(), engine).expect("it was compiled before");
            *settings = Arc::new(SchedExtSettings { code: Arc::new(code), ..(**settings).clone() });
        }
    }
    scenario
}

/// The vCPUs, or processes, of a group.
pub fn tasks<'a>(metrics: &'a RunMetrics, group: &str) -> Vec<&'a TaskMetrics> {
    let vms = metrics.vms.iter().filter(|vm| vm.group == group);
    let tasks: Vec<_> = vms.flat_map(|vm| &vm.vcpus).collect();
    assert!(!tasks.is_empty(), "no group {group}");
    tasks
}

/// What a group has counted in all.
pub fn count(metrics: &RunMetrics, group: &str) -> u64 {
    metrics.vms.iter().filter(|vm| vm.group == group).flat_map(|vm| vm.counts.values()).sum()
}
