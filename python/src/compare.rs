//! `tandem.compare`.

use crate::error::{self, input};
use crate::scenario::read;
use crate::simulate::levels;
use crate::supervise::supervise;
use crate::table::PyTable;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::num::NonZeroUsize;
use std::sync::atomic::AtomicBool;
use std::thread::available_parallelism;
use tandem_file::shown::to_json_text;
use tandem_lab::compare::{Runs, compare as compare_runs, moments, page};
use tandem_lab::runner::Progress;
use tandem_lab::tables;

/// What Python gets of a comparison: its JSON, its text, its page if that was asked for, the values of its runs and its
/// effects and the distributions of times as tables, and a note.
type Compared = (String, String, Option<String>, [PyTable; 3], Option<String>);

/// Run a scenario under several policies with the same seeds.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "Python has keyword arguments")]
pub fn compare<'py>(
    py: Python<'py>,
    scenario: &Bound<'py, PyAny>,
    name: Option<String>,
    parameters: &Bound<'py, PyDict>,
    machine: Option<String>,
    policies: Vec<String>,
    seed: u64,
    seeds: usize,
    precision_pct: Option<f64>,
    jobs: Option<NonZeroUsize>,
    with_page: bool,
    progress: Option<Bound<'py, PyAny>>,
) -> PyResult<Compared> {
    let request = read(scenario, name, parameters, machine.as_deref())?;
    let levels = levels(py, &policies)?;
    let contenders = request.contenders(&levels).map_err(|error| error::request(py, error, &policies))?;
    let tables: Vec<_> = levels.into_iter().map(|(_, level)| level.alone()).collect();
    let note = request.left_out(&tables);
    let name = request.name;
    let jobs = jobs.or_else(|| available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN);
    let runs = Runs { seed, seeds, precision_pct, jobs };
    let compared = supervise(py, progress.as_ref(), |monitor| {
        let never = AtomicBool::new(false);
        let Some(comparison) = compare_runs(&name, &contenders, runs, monitor, &never)? else {
            return Err("no policy is given; name at least one".into());
        };
        let page = match with_page {
            true => {
                let moments = moments(&comparison, &contenders, monitor, monitor.abort());
                let moments = moments.map_err(|error| error.to_string())?;
                Some(page::html(&comparison, &moments).map_err(|error| error.to_string())?)
            }
            false => None,
        };
        Ok((comparison, page))
    })?;
    let (comparison, page) = compared.map_err(|message: String| error::scenario(py, &name, message))?;
    let json = to_json_text(&comparison).map_err(|error| input(py, error))?;
    let tables = [
        PyTable::new(py, tables::of_comparisons([&comparison]))?,
        PyTable::new(py, tables::effects([&comparison]))?,
        PyTable::new(py, tables::distributions(&comparison))?,
    ];
    Ok((json, comparison.to_string(), page, tables, note))
}
