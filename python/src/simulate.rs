//! `tandem.simulate`.

use crate::error::{self, input};
use crate::scenario::read;
use crate::supervise::{Monitor, supervise};
use crate::table::PyTable;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rayon::prelude::*;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use tandem_file::shown::to_json_text;
use tandem_lab::request::{Level, parse_scheduler};
use tandem_lab::runner::Progress;
use tandem_lab::scenario::policy::PolicyTable;
use tandem_lab::simulate::{Simulation, SimulationError, Watched, end_ns};
use tandem_lab::tables::{self, RunTable};

/// A run, as Python gets it.
struct Run {
    json: String,
    text: String,
    warnings: Vec<String>,
    table: RunTable,
}

/// What Python gets: the JSON, the text and the warnings of each run; the table of all; and a note.
type Simulated = (Vec<(String, String, Vec<String>)>, PyTable, Option<String>);

/// Run a scenario once with each seed.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "Python has keyword arguments")]
pub fn simulate<'py>(
    py: Python<'py>,
    scenario: &Bound<'py, PyAny>,
    name: Option<String>,
    parameters: &Bound<'py, PyDict>,
    machine: Option<String>,
    policy: Option<String>,
    guest_policy: Option<String>,
    seeds: Vec<u64>,
    jobs: Option<NonZeroUsize>,
    stat: bool,
    progress: Option<Bound<'py, PyAny>>,
) -> PyResult<Simulated> {
    let request = read(scenario, name, parameters, machine.as_deref())?;
    let policy = policies(py, policy, guest_policy)?;
    let scenario = request.scenario(&policy).map_err(|error| error::request(py, error, &[]))?;
    let note = request.left_out(std::slice::from_ref(&policy));
    let name = request.name;
    let runs = supervise(py, progress.as_ref(), |monitor| {
        monitor.planned(seeds.len());
        let run = |&seed: &u64| {
            one(Simulation { name: &name, scenario: &scenario, seed, with_stat: stat }, monitor)
        };
        let all = || seeds.par_iter().map(run).collect::<Result<Vec<_>, String>>();
        pool(jobs).and_then(|pool| pool.install(all))
    })?;
    let runs = runs.map_err(|message| error::scenario(py, &name, message))?;
    let table = PyTable::new(py, tables::of_runs(runs.iter().map(|run| &run.table)))?;
    let runs = runs.into_iter().map(|run| (run.json, run.text, run.warnings));
    Ok((runs.collect(), table, note))
}

/// Threads for so many jobs, by default one for each CPU.
pub fn pool(jobs: Option<NonZeroUsize>) -> Result<rayon::ThreadPool, String> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(jobs.map_or(0, NonZeroUsize::get)).build();
    pool.map_err(|error| format!("cannot start threads for the jobs: {error}; try fewer with `jobs`"))
}

fn policies(py: Python<'_>, host: Option<String>, guest: Option<String>) -> PyResult<PolicyTable> {
    let wrong = |message: String| input(py, message);
    let mut policy = PolicyTable::default();
    if let Some(name) = host {
        policy.host = Some(parse_scheduler(&name).map_err(wrong)?.into());
    }
    if let Some(name) = guest {
        let scheduler = parse_scheduler(&name).map_err(wrong)?;
        policy.guest = Some(scheduler.try_into().map_err(|message: &str| wrong(message.into()))?);
    }
    Ok(policy)
}

fn one(what: Simulation, monitor: &Monitor) -> Result<Run, String> {
    let end_ns = end_ns(what.scenario).max(1);
    let reported = AtomicU64::new(0);
    let reach_parts = |parts: u64| monitor.advance(parts - reported.swap(parts, Ordering::Relaxed));
    let reach =
        |now_ns: u64| reach_parts((u128::from(now_ns.min(end_ns)) * 1000 / u128::from(end_ns)) as u64);
    let watched = Watched::new((), what.scenario, &reach, monitor.abort());
    let (simulated, ()) = what.run(watched).map_err(|error: SimulationError| error.to_string())?;
    reach_parts(1000);
    let summary = simulated.summary();
    Ok(Run {
        json: to_json_text(&summary).map_err(|error| error.to_string())?,
        text: summary.to_string(),
        warnings: summary.warnings(),
        table: simulated.table(),
    })
}

/// The policies that words such as "linux" or "guest=tandem" name.
pub fn levels(py: Python<'_>, words: &[String]) -> PyResult<Vec<(String, Level)>> {
    let level = |word: &String| {
        let level = tandem_lab::request::parse_policy(word).map_err(|message| input(py, message))?;
        Ok((word.clone(), level))
    };
    words.iter().map(level).collect()
}
