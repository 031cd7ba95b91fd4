//! One run of a scenario, from its seed to its summary and its table: what `tandem sim` and Python share.

use crate::compare::Measurement;
use crate::scenario::policy::named::{named, named_guests};
use crate::stat::RunStat;
use crate::summary::RunSummary;
use crate::tables::RunTable;
use std::sync::atomic::{AtomicBool, Ordering};
use tandem_machine::ids::{KernelId, TaskId};
use tandem_sim::metrics::RunMetrics;
use tandem_sim::scenario::{PolicySettings, Scenario};
use tandem_sim::trace::{Event, Observer};
use tandem_sim::{RunError, run_observed};

/// How often a run says how far it is, in parts of its time.
const STEPS: u64 = 1_000;

/// A run that is to be made.
#[derive(Clone, Copy)]
pub struct Simulation<'a> {
    /// What results call the scenario.
    pub name: &'a str,
    /// The scenario.
    pub scenario: &'a Scenario,
    /// The seed.
    pub seed: u64,
    /// Whether the summary has accounting, and counts instructions of a compiled scheduler of the host.
    pub with_stat: bool,
}

/// A run that was made.
pub struct Simulated<'a> {
    what: Simulation<'a>,
    metrics: RunMetrics,
    /// When it was ended before its time, ns since its start, the warm-up included.
    pub cut_ns: Option<u64>,
}

/// Why a run cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum SimulationError {
    /// The instructions of the host's scheduler cannot be counted.
    #[error("{0}")]
    Counting(String),
    /// The engine refused it.
    #[error(transparent)]
    Run(#[from] RunError),
}

impl<'a> Simulation<'a> {
    /// Makes the run, and gives the observer back.
    ///
    /// # Errors
    /// If the engine refuses the scenario.
    pub fn run<O: Observer>(
        self,
        mut watched: Watched<'_, O>,
    ) -> Result<(Simulated<'a>, O), SimulationError> {
        let counting = if self.with_stat { Some(counting(self.scenario)?) } else { None };
        let scenario = counting.as_ref().unwrap_or(self.scenario);
        let metrics = run_observed(scenario, self.seed, &mut watched)?;
        let cut_ns = watched.is_cut.then_some(watched.now_ns);
        Ok((Simulated { what: self, metrics, cut_ns }, watched.inner))
    }
}

/// The scenario with a host that counts the instructions of its scheduler, if that is a compiled one. It
/// decides the same.
fn counting(scenario: &Scenario) -> Result<Scenario, SimulationError> {
    let mut scenario = scenario.clone();
    if let PolicySettings::SchedExt(settings) = &mut scenario.policy {
        let counting = settings.counting();
        *settings = counting.map_err(|error| SimulationError::Counting(error.to_string()))?.into();
    }
    Ok(scenario)
}

impl Simulated<'_> {
    /// Measured time, ns.
    pub fn length_ns(&self) -> u64 {
        self.metrics.length_ns
    }

    /// Whether it was ended before anything was measured.
    pub fn is_cut_in_warmup(&self) -> bool {
        self.cut_ns.is_some_and(|cut_ns| cut_ns <= self.what.scenario.warmup_ns)
    }

    /// Its summary.
    pub fn summary(&self) -> RunSummary {
        let Simulation { name, scenario, seed, with_stat } = self.what;
        let mut summary = RunSummary::new(name, scenario, seed, &self.metrics);
        summary.is_cut = self.cut_ns.is_some();
        summary.stat = with_stat.then(|| RunStat::new(&self.metrics));
        summary
    }

    /// Its part of a table of results.
    pub fn table(&self) -> RunTable {
        let Simulation { name, scenario, seed, .. } = self.what;
        RunTable {
            scenario: name.to_owned(),
            machine: scenario.machine.name().to_owned(),
            policy: policy_name(scenario),
            seed,
            measurements: Measurement::all(scenario, &self.metrics),
        }
    }
}

/// The schedulers of a scenario, as results name them.
pub(crate) fn policy_name(scenario: &Scenario) -> String {
    let guests = named_guests(scenario);
    let guests = if guests.is_empty() { String::new() } else { format!(", guests {}", guests.join(" and ")) };
    format!("{}{guests}", named(&scenario.policy))
}

/// An observer that says how far a run is, and ends it when it is cancelled.
pub struct Watched<'a, O> {
    inner: O,
    /// Is given the simulated time, ns since the start of the run.
    reach: &'a (dyn Fn(u64) + Sync),
    cancel: &'a AtomicBool,
    step_ns: u64,
    next_ns: u64,
    now_ns: u64,
    is_cut: bool,
}

impl<'a, O> Watched<'a, O> {
    /// Watches a run of the scenario for this observer.
    pub fn new(
        inner: O,
        scenario: &Scenario,
        reach: &'a (dyn Fn(u64) + Sync),
        cancel: &'a AtomicBool,
    ) -> Self {
        let step_ns = (end_ns(scenario) / STEPS).max(1);
        Self { inner, reach, cancel, step_ns, next_ns: 0, now_ns: 0, is_cut: false }
    }
}

/// When a run of the scenario ends if nothing ends it earlier, ns since its start.
pub fn end_ns(scenario: &Scenario) -> u64 {
    scenario.warmup_ns.saturating_add(scenario.length_ns)
}

impl<O: Observer> Observer for Watched<'_, O> {
    #[inline]
    fn observe(&mut self, event: Event) {
        self.inner.observe(event);
    }

    #[inline]
    fn named(&mut self, at_ns: u64, kernel: KernelId, task: TaskId, name: &str) {
        self.inner.named(at_ns, kernel, task, name);
    }

    #[inline]
    fn goes_on(&mut self, now_ns: u64) -> bool {
        self.now_ns = now_ns;
        if now_ns >= self.next_ns {
            self.next_ns = now_ns + self.step_ns;
            (self.reach)(now_ns);
        }
        self.is_cut = self.cancel.load(Ordering::Relaxed);
        !self.is_cut && self.inner.goes_on(now_ns)
    }
}
