//! `tandem.experiments`, `tandem.experiment` and what these do.

use crate::error::{self, input, internal};
use crate::scenario::library;
use crate::supervise::supervise;
use crate::table::PyTable;
use pyo3::prelude::*;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;
use tandem_lab::experiment::{Experiment, ExperimentFolder};
use tandem_lab::report::{self, Format};
use tandem_lab::results::ExperimentResults;
use tandem_lab::runner::{self, Progress, RunOptions};
use tandem_lab::tables;

/// The name, the title, the source, the story and the folder of an experiment.
type Described = (String, String, String, Vec<String>, PathBuf);

fn folder(py: Python<'_>, named: Option<PathBuf>) -> PyResult<ExperimentFolder> {
    let found = match named {
        Some(path) => ExperimentFolder::open(&path),
        None => library().experiments(&std::env::current_dir()?),
    };
    found.map_err(|error| input(py, error))
}

fn read(py: Python<'_>, path: &Path) -> PyResult<Experiment> {
    py.detach(|| Experiment::read(path)).map_err(|error| error::file(py, &error))
}

/// The names of the experiments.
#[pyfunction]
pub fn experiments(py: Python<'_>, named: Option<PathBuf>) -> PyResult<Vec<String>> {
    Ok(folder(py, named)?.names().to_vec())
}

/// What an experiment is.
#[pyfunction]
pub fn experiment(py: Python<'_>, name: &str, named: Option<PathBuf>) -> PyResult<Described> {
    let path = folder(py, named)?.path_of(name).map_err(|error| input(py, error))?;
    let path = path.canonicalize().unwrap_or(path);
    let Experiment { name, file, .. } = read(py, &path)?;
    Ok((name, file.title, file.source, file.story, path))
}

/// The published table of the experiment in a folder.
#[pyfunction]
pub fn published(py: Python<'_>, path: PathBuf) -> PyResult<PyTable> {
    PyTable::new(py, tables::of_published(&read(py, &path)?.published))
}

/// Run an experiment. Gives the JSON, the text and the table.
#[pyfunction]
pub fn reproduce<'py>(
    py: Python<'py>,
    path: PathBuf,
    is_quick: bool,
    seed: u64,
    jobs: Option<NonZeroUsize>,
    progress: Option<Bound<'py, PyAny>>,
) -> PyResult<(String, String, PyTable)> {
    let experiment = read(py, &path)?;
    let experiment = if is_quick { experiment.quick() } else { experiment };
    let jobs = jobs.or_else(|| available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN);
    let options = RunOptions { seed, jobs };
    let results = supervise(py, progress.as_ref(), |monitor| {
        runner::run(&experiment, options, monitor, monitor.abort())
    })?;
    let results = [results.map_err(|error| error::scenario(py, &experiment.name, error))?];
    let table = PyTable::new(py, tables::of_experiments(&results))?;
    Ok((text(&report::Json, &results)?, text(&report::Table, &results)?, table))
}

fn text(format: &dyn Format, results: &[ExperimentResults]) -> PyResult<String> {
    let mut text = Vec::new();
    format.write(results, &mut text)?;
    String::from_utf8(text).map_err(|_| internal("a report is no text"))
}
