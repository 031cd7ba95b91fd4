//! `tandem.simulate`.

use crate::error::{self, input};
use crate::scenario::read;
use crate::supervise::{Monitor, supervise};
use crate::table::PyTable;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rayon::prelude::*;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use tandem_file::shown::to_json_text;
use tandem_file::units::Duration;
use tandem_lab::request::{Level, parse_scheduler};
use tandem_lab::runner::Progress;
use tandem_lab::scenario::policy::PolicyTable;
use tandem_lab::simulate::{Simulation, SimulationError, Watched, end_ns};
use tandem_lab::tables::{self, RunTable};
use tandem_lab::trace::{Selection, TraceFile, TracedRun};
use tandem_sim::trace::Observer;

/// A run, as Python gets it.
struct Run {
    json: String,
    text: String,
    warnings: Vec<String>,
    table: RunTable,
}

/// What Python gets: the JSON, the text and the warnings of each run; the table of all; and a note.
type Simulated = (Vec<(String, String, Vec<String>)>, PyTable, Option<String>);

/// The file of a trace, and which part of the run it has: from and until these times, of these VMs, on these pCPUs.
type Trace = (PathBuf, Option<String>, Option<String>, Vec<String>, Option<String>);

/// Run a scenario once with each seed. There is a trace of the run with a single one.
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
    trace: Option<Trace>,
    progress: Option<Bound<'py, PyAny>>,
) -> PyResult<Simulated> {
    let request = read(scenario, name, parameters, machine.as_deref())?;
    let policy = policies(py, policy, guest_policy)?;
    let scenario = request.scenario(&policy).map_err(|error| error::request(py, error, &[]))?;
    let note = request.left_out(std::slice::from_ref(&policy));
    let name = request.name;
    let selection = trace.as_ref().map(|trace| selection(py, trace)).transpose()?;
    let create = |((path, ..), selection): (&Trace, &Selection)| {
        let run = TracedRun { scenario_name: &name, scenario: &scenario, seed: seeds[0], selection };
        TraceFile::create(path, run).map_err(|error| input(py, error))
    };
    let trace = trace.as_ref().zip(selection.as_ref()).map(create).transpose()?;
    let runs = supervise(py, progress.as_ref(), |monitor| {
        monitor.planned(seeds.len());
        let what = |seed: u64| Simulation { name: &name, scenario: &scenario, seed, with_stat: stat };
        if let Some(trace) = trace {
            return traced(what(seeds[0]), trace, monitor).map(|run| vec![run]);
        }
        let run = |&seed: &u64| one(what(seed), (), monitor).map(|(run, ..)| run);
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

/// Makes a run and its trace, which is gone if the run does not come to its end.
fn traced(what: Simulation, trace: TraceFile, monitor: &Monitor) -> Result<Run, String> {
    let (run, trace, end_ns) = one(what, trace, monitor)?;
    if !monitor.abort().load(Ordering::Relaxed) {
        trace.finish(end_ns).map_err(|error| error.to_string())?;
    }
    Ok(run)
}

/// The part of a run that a trace has.
fn selection(py: Python<'_>, (_, from, to, vms, cpus): &Trace) -> PyResult<Selection> {
    let time = |name: &str, text: &Option<String>| {
        let time = text.as_ref().map(|text| text.parse::<Duration>()).transpose();
        let time = time.map_err(|error| input(py, format!("`{name}`: {error}")))?;
        Ok::<_, PyErr>(time.map(|time| time.ns))
    };
    let (from_ns, to_ns) = (time("trace_from", from)?, time("trace_to", to)?);
    Ok(Selection { from_ns, to_ns, vms: vms.clone(), cpus: cpus.clone() })
}

/// Makes a run; gives the observer back, and when the run ended, ns since its start.
fn one<O: Observer>(what: Simulation, observer: O, monitor: &Monitor) -> Result<(Run, O, u64), String> {
    let end_ns = end_ns(what.scenario).max(1);
    let reported = AtomicU64::new(0);
    let reach_parts = |parts: u64| monitor.advance(parts - reported.swap(parts, Ordering::Relaxed));
    let reach =
        |now_ns: u64| reach_parts((u128::from(now_ns.min(end_ns)) * 1000 / u128::from(end_ns)) as u64);
    let watched = Watched::new(observer, what.scenario, &reach, monitor.abort());
    let (simulated, observer) = what.run(watched).map_err(|error: SimulationError| error.to_string())?;
    reach_parts(1000);
    let summary = simulated.summary();
    let run = Run {
        json: to_json_text(&summary).map_err(|error| error.to_string())?,
        text: summary.to_string(),
        warnings: summary.warnings(),
        table: simulated.table(),
    };
    Ok((run, observer, what.scenario.warmup_ns + simulated.length_ns()))
}

/// The policies that words such as "linux" or "guest=tandem" name.
pub fn levels(py: Python<'_>, words: &[String]) -> PyResult<Vec<(String, Level)>> {
    let level = |word: &String| {
        let level = tandem_lab::request::parse_policy(word).map_err(|message| input(py, message))?;
        Ok((word.clone(), level))
    };
    words.iter().map(level).collect()
}
