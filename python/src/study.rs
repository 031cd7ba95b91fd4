//! `tandem.Study`: what computes a study, and what keeps its results.
//!
//! A study is sent to other processes as its texts. What they compute comes back as the bytes of a shard, so that they need no folder in
//! common with the process that asked.

use crate::error::{self, input};
use crate::scenario::{key, library, source};
use crate::simulate::pool;
use crate::supervise::supervise;
use crate::table::PyTable;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::thread::available_parallelism;
use tandem_file::new_file::NewFile;
use tandem_file::shown::to_json_text;
use tandem_lab::results::{Decimal, Key};
use tandem_lab::runner::Progress;
use tandem_lab::study::{
    Domain, Job, Part, Plan, Results, Shard, Shards, Study, StudyError, Texts, batches, compute, run,
};

/// What Python gets of a shard: its name, the keys of its points and its bytes.
type PyShard = (String, Vec<String>, Py<PyBytes>);
/// Points with their keys.
type PyJob<'py> = (Vec<Bound<'py, PyList>>, Vec<String>);
/// The texts of a study: the path of its file and the text, and both of its scenario.
type PyTexts = (PathBuf, String, PathBuf, String);

/// A study.
#[pyclass(name = "Study", module = "tandem._tandem", frozen)]
pub struct PyStudy {
    study: Study,
}

/// The keys of a study's points.
#[pyclass(name = "Plan", module = "tandem._tandem", frozen)]
pub struct PyPlan {
    plan: Plan,
}

/// A folder of results.
#[pyclass(name = "Shards", module = "tandem._tandem", frozen)]
pub struct PyShards {
    shards: Mutex<Shards>,
}

#[pymethods]
impl PyStudy {
    /// Read a study's file and its scenario.
    #[staticmethod]
    fn read(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let study = Study::read(&path, &library()).map_err(|error| error::library(py, error))?;
        Ok(Self { study })
    }

    /// Take this text as that of a study's file, for a scenario that is a path, a name or a dictionary.
    #[staticmethod]
    fn new(py: Python<'_>, path: PathBuf, text: &str, scenario: &Bound<'_, PyAny>) -> PyResult<Self> {
        let (_, scenario) = source(scenario, None)?;
        let study = Study::of(&path, text, scenario).map_err(|error| error::file(py, &error))?;
        Ok(Self { study })
    }

    /// The study that has these texts.
    #[staticmethod]
    fn from_texts(py: Python<'_>, study: (PathBuf, String), scenario: (PathBuf, String)) -> PyResult<Self> {
        let study = Study::parse(&Texts { study, scenario }).map_err(|error| error::file(py, &error))?;
        Ok(Self { study })
    }

    /// Its texts.
    fn texts(&self) -> PyTexts {
        let Texts { study, scenario } = self.study.texts();
        (study.0, study.1, scenario.0, scenario.1)
    }

    /// The same with these points, and, if they are given, with so many replications from a seed on.
    #[pyo3(signature = (points, seed=None, replications=None))]
    fn with_points(
        &self,
        py: Python<'_>,
        points: Vec<Vec<Bound<'_, PyAny>>>,
        seed: Option<u64>,
        replications: Option<usize>,
    ) -> PyResult<Self> {
        let mut study = self.study.with_points(keys(points)?).map_err(|message| input(py, message))?;
        if let Some((seed, replications)) = seed.zip(replications) {
            study = study.with_seeds(seed, replications).map_err(|message| input(py, message))?;
        }
        Ok(Self { study })
    }

    /// The dimensions: their names and either lists of values, or the least and the largest number, whether all are whole, and
    /// whether factors count.
    #[getter]
    fn dimensions<'py>(&self, py: Python<'py>) -> PyResult<Vec<(String, Bound<'py, PyAny>)>> {
        let dimension = |(name, dimension): &(String, tandem_lab::study::Dimension)| {
            let domain = match dimension.domain() {
                Domain::Choice(values) => values_of(py, &values)?.into_any(),
                Domain::Numbers { from, to, is_whole, is_log } => {
                    (from, to, is_whole, is_log).into_pyobject(py)?.into_any()
                }
            };
            Ok((name.clone(), domain))
        };
        self.study.dimensions().iter().map(dimension).collect()
    }

    /// The value that a number of a dimension stands for.
    fn value<'py>(&self, py: Python<'py>, dimension: usize, number: f64) -> PyResult<Bound<'py, PyAny>> {
        let value = self.study.dimensions().get(dimension).and_then(|(_, it)| it.value(number));
        to_python(py, &value.ok_or_else(|| input(py, "the dimension has no numbers"))?)
    }

    /// The points, each as the values of the dimensions.
    #[getter]
    fn points<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyList>>> {
        self.study.points().iter().map(|point| values_of(py, point)).collect()
    }

    /// The point that the scenario itself is; None if a dimension is a scheduler.
    fn default_point<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyList>>> {
        self.study.default_point().map(|point| values_of(py, &point)).transpose()
    }

    /// The first seed and how many there are at most.
    #[getter]
    fn seeds(&self) -> (u64, usize) {
        (self.study.replications.seed, self.study.replications.max)
    }

    /// Whether the objective is to be large; None if there is none.
    #[getter]
    fn is_larger_better(&self) -> Option<bool> {
        self.study.objective.as_ref().map(|objective| objective.is_larger_better)
    }

    /// The keys of the points.
    #[pyo3(signature = (jobs=None))]
    fn plan(&self, py: Python<'_>, jobs: Option<NonZeroUsize>) -> PyResult<PyPlan> {
        let plan = py.detach(|| pool(jobs).map(|pool| pool.install(|| Plan::new(&self.study))));
        let plan = plan.map_err(|message| input(py, message))?;
        match plan.refusal() {
            Some(refusal) => Err(error::scenario(py, &self.study.scenario_name, refusal)),
            None => Ok(PyPlan { plan }),
        }
    }

    /// What the folder lacks, in batches: points with their keys.
    #[pyo3(signature = (plan, shards, batch=None))]
    fn missing<'py>(
        &self,
        py: Python<'py>,
        plan: &PyPlan,
        shards: &PyShards,
        batch: Option<NonZeroUsize>,
    ) -> PyResult<Vec<PyJob<'py>>> {
        let shards = shards.lock();
        let jobs = batches(&self.study, &plan.plan, batch, Part::WHOLE, |key| shards.has(key));
        let job = |job: Job| {
            let points = job.points.iter().map(|point| values_of(py, point)).collect::<PyResult<_>>()?;
            Ok((points, job.keys))
        };
        jobs.into_iter().map(job).collect()
    }

    /// Compute points that have these keys, on one thread.
    fn compute(
        &self,
        py: Python<'_>,
        points: Vec<Vec<Bound<'_, PyAny>>>,
        expected: Vec<String>,
    ) -> PyResult<PyShard> {
        let job = Job { points: keys(points)?, keys: expected };
        let done = supervise(py, None, |monitor| compute(&self.study, &job, monitor.abort(), &|| ()))?;
        let shard = Shard::new(&done.map_err(|message| input(py, message))?);
        Ok((shard.name, shard.keys, PyBytes::new(py, &shard.bytes).unbind()))
    }

    /// Compute what the folder lacks, on threads of this process.
    #[pyo3(signature = (plan, shards, jobs=None, batch=None, progress=None))]
    fn run(
        &self,
        py: Python<'_>,
        plan: &PyPlan,
        shards: &PyShards,
        jobs: Option<NonZeroUsize>,
        batch: Option<NonZeroUsize>,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let threads = jobs.or_else(|| available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN);
        let outcome = supervise(py, progress.as_ref(), |monitor| {
            let mut shards = shards.lock();
            let jobs = batches(&self.study, &plan.plan, batch, Part::WHOLE, |key| shards.has(key));
            monitor.planned(jobs.iter().map(|job| job.points.len()).sum());
            run(&self.study, jobs, &mut shards, threads, monitor.abort(), &|| monitor.done())
        })?;
        outcome.map_err(|error| match error {
            StudyError::Shards(error) => error::os(&error),
            StudyError::Point(message) => input(py, message),
        })
    }

    /// What is in the folder: the JSON, the text and a row for each point.
    fn results(
        &self,
        py: Python<'_>,
        plan: &PyPlan,
        shards: &PyShards,
    ) -> PyResult<(String, String, PyTable)> {
        let results = self.collected(py, plan, shards)?;
        let json = to_json_text(&results).map_err(|error| input(py, error))?;
        Ok((json, results.to_string(), PyTable::new(py, results.table())?))
    }

    /// The objective of each run of a point, by the position of the point.
    fn values(&self, py: Python<'_>, plan: &PyPlan, shards: &PyShards) -> PyResult<Vec<Vec<f64>>> {
        Ok(self.collected(py, plan, shards)?.points.into_iter().map(|point| point.values).collect())
    }

    /// A row for each measure of each run.
    fn rows(&self, py: Python<'_>, plan: &PyPlan, shards: &PyShards) -> PyResult<PyTable> {
        let results = self.collected(py, plan, shards)?;
        let table = py.detach(|| results.rows(&shards.lock()));
        PyTable::new(py, table?)
    }

    /// Write these rows as a Parquet file, which appears under its name when it is complete.
    fn to_parquet(&self, py: Python<'_>, plan: &PyPlan, shards: &PyShards, path: PathBuf) -> PyResult<()> {
        let results = self.collected(py, plan, shards)?;
        let write = || {
            let mut file = std::io::BufWriter::new(NewFile::create(&path)?);
            results.write_parquet(&shards.lock(), &mut file)?;
            file.into_inner()?.complete()
        };
        Ok(py.detach(write)?)
    }
}

impl PyStudy {
    fn collected<'a>(&'a self, py: Python<'_>, plan: &'a PyPlan, shards: &PyShards) -> PyResult<Results<'a>> {
        let results = py.detach(|| Results::collect(&self.study, &plan.plan, &shards.lock()));
        results.map_err(|error| error::os(&error))
    }
}

#[pymethods]
impl PyPlan {
    /// How many points there are.
    fn __len__(&self) -> usize {
        self.plan.points.len()
    }
}

#[pymethods]
impl PyShards {
    /// Open a folder, which is made if there is none.
    #[new]
    fn open(py: Python<'_>, folder: PathBuf) -> PyResult<Self> {
        let shards = py.detach(|| Shards::open(&folder)).map_err(|error| error::os(&error))?;
        Ok(Self { shards: Mutex::new(shards) })
    }

    /// Files that are left aside, and why.
    #[getter]
    fn strangers(&self) -> Vec<String> {
        self.lock().strangers().to_vec()
    }

    /// Add a shard: its name, the keys of its points and its bytes.
    fn add(&self, py: Python<'_>, name: String, keys: Vec<String>, bytes: &[u8]) -> PyResult<()> {
        let shard = Shard { name, keys, bytes: bytes.to_vec() };
        py.detach(|| self.lock().add(&shard)).map_err(|error| error::os(&error))
    }
}

impl PyShards {
    fn lock(&self) -> std::sync::MutexGuard<'_, Shards> {
        self.shards.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The effect of a variant against its baseline, from values with the same seeds: percent of the baseline, with the ends of its
/// 95% confidence interval.
#[pyfunction]
pub fn paired_effect(baseline: Vec<f64>, variant: Vec<f64>) -> Option<(f64, Option<(f64, f64)>)> {
    let pairs: Vec<(f64, f64)> = baseline.into_iter().zip(variant).collect();
    let effect = tandem_lab::statistics::paired_effect(&pairs, pairs.len())?;
    Some((effect.percent, effect.interval_pct))
}

fn keys(points: Vec<Vec<Bound<'_, PyAny>>>) -> PyResult<Vec<Vec<Key>>> {
    let point = |point: Vec<Bound<'_, PyAny>>| point.iter().map(|value| key("point", value)).collect();
    points.into_iter().map(point).collect()
}

fn values_of<'py>(py: Python<'py>, values: &[Key]) -> PyResult<Bound<'py, PyList>> {
    PyList::new(py, values.iter().map(|value| to_python(py, value)).collect::<PyResult<Vec<_>>>()?)
}

fn to_python<'py>(py: Python<'py>, value: &Key) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Key::Number(number) => number.into_pyobject(py)?.into_any(),
        Key::Decimal(Decimal(number)) => number.into_pyobject(py)?.into_any(),
        Key::Text(text) => text.into_pyobject(py)?.into_any(),
    })
}
