//! Studies: a scenario at many points of a space of its parameters and schedulers.
//!
//! **Problem.** A study has more simulations than one machine makes in an evening, on machines of which some fail on the
//! way. Nothing that was computed may be lost or computed again, and what comes out may not depend on where it was computed, in
//! which order, or by how many.
//!
//! **Approach.** A study's [`file`](mod@file) says the space, from which its [`points`](mod@points) follow. A point's [`task`](mod@task) makes all its replications, and
//! depends on nothing else: how many there are follows from its own first ones. Results are [`shards`](mod@shards): Parquet files, each of
//! some points, that are named by what they have. A point's key is a hash over the scenario as it is built, with the objects of its
//! schedulers, over the seeds and the program: a folder has the results of a point, or it has them not, whoever put them there. Folders merge
//! by copying. [`Results`] are made from the shards alone, in the order of the points.
//!
//! **Limits.** A point is computed as a whole, by one thread. What a scenario needs beside its own text, such as machine files and
//! objects, must be at the same path wherever points are computed: keys tell if it is not the same.

mod dimension;
mod file;
mod plan;
mod points;
mod results;
mod run;
mod shards;
mod task;
#[cfg(test)]
mod tests;

pub use dimension::{Dimension, Domain};
pub use file::{Method, Objective, POINTS_MAX, Replications, StudyFile};
pub use plan::{Job, Part, Plan, batches};
pub use points::Point;
pub use results::{PointResult, Results, Standing};
pub use run::{StudyError, run};
pub use shards::{Shard, Shards, ShardsError};
pub use task::{Done, compute};

use crate::library::{Library, LibraryError, may_be_name};
use crate::request::{Level, scheduler_in};
use crate::results::Key;
use crate::scenario::policy::PolicyTable;
use crate::scenario::policy::former;
use crate::scenario::{Parameters, ScenarioSource};
use crate::schema;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tandem_file::file_error::FileError;
use tandem_file::located::{SourceFile, quoted_list};
use tandem_sim::scenario::Scenario;

/// The program that makes results: those of others are others.
pub const PROGRAM: &str = concat!(env!("CARGO_PKG_VERSION"), "+", env!("TANDEM_SOURCES"));

/// A study that was read, with its scenario.
#[derive(Clone, Debug)]
pub struct Study {
    /// The title.
    pub title: String,
    /// What results call the scenario.
    pub scenario_name: String,
    /// How often each point is run.
    pub replications: Replications,
    /// What is to be made small or large.
    pub objective: Option<Objective>,
    source: SourceFile,
    scenario: ScenarioSource,
    set: Parameters,
    dimensions: Vec<(String, Dimension)>,
    points: Vec<Point>,
}

/// A study's texts, from which it can be read again elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Texts {
    /// The path of its file, and the text.
    pub study: (PathBuf, String),
    /// The same of its scenario.
    pub scenario: (PathBuf, String),
}

impl Study {
    /// Reads a study's file, and its scenario.
    ///
    /// # Errors
    /// If one cannot be read, or says something that is not allowed; the error names the line.
    pub fn read(path: &Path, library: &Library) -> Result<Self, LibraryError> {
        let source = SourceFile::read(path)?;
        let file = parse(&source)?;
        let named = Path::new(file.scenario.as_str());
        let scenario = match may_be_name(named) {
            true => library.scenario(named),
            false => ScenarioSource::read(&source.sibling(&file.scenario)).map_err(LibraryError::from),
        };
        let scenario = scenario.map_err(|error| match error {
            LibraryError::File(error) => LibraryError::File(error),
            other => LibraryError::File(source.error(file.scenario.span(), other.to_string())),
        })?;
        Ok(Self::new(source, file, scenario)?)
    }

    /// Takes these texts as those of its files.
    ///
    /// # Errors
    /// As [`Study::read`].
    pub fn parse(texts: &Texts) -> Result<Self, FileError> {
        let scenario = ScenarioSource::parse(&texts.scenario.0, &texts.scenario.1)?;
        Self::of(&texts.study.0, &texts.study.1, scenario)
    }

    /// Takes the text as that of the study's file, for this scenario, which the file names but where it is.
    ///
    /// # Errors
    /// As [`Study::read`].
    pub fn of(path: &Path, text: &str, scenario: ScenarioSource) -> Result<Self, FileError> {
        let source = SourceFile::new(path, text);
        let file = parse(&source)?;
        Self::new(source, file, scenario)
    }

    /// The same study of these points instead.
    ///
    /// # Errors
    /// A sentence, if one has not a value for each dimension.
    pub fn with_points(&self, points: Vec<Point>) -> Result<Self, String> {
        let dimensions = self.dimensions.len();
        match points.iter().find(|point| point.len() != dimensions) {
            Some(point) => Err(format!(
                "a point has {} values; give one for each of {dimensions} dimensions",
                point.len()
            )),
            None => Ok(Self { points, ..self.clone() }),
        }
    }

    /// The same study with so many replications of each point, from this seed on.
    ///
    /// # Errors
    /// A sentence, if there are no such seeds.
    pub fn with_seeds(&self, seed: u64, count: usize) -> Result<Self, String> {
        if !(1..=file::REPLICATIONS_MAX).contains(&count) || seed.checked_add(count as u64 - 1).is_none() {
            return Err(format!(
                "{count} seeds from {seed} on are asked for; allowed are 1 to {}, of which the last is at most {}",
                file::REPLICATIONS_MAX,
                u64::MAX
            ));
        }
        let replications = Replications { seed, min: count, max: count, precision_pct: None };
        Ok(Self { replications, ..self.clone() })
    }

    fn new(source: SourceFile, file: StudyFile, scenario: ScenarioSource) -> Result<Self, FileError> {
        let objective = file.objective.as_ref().map(|table| Objective::new(table, &source)).transpose()?;
        let replications = Replications::new(&file.replications, objective.is_some(), &source)?;
        let mut dimensions = Vec::new();
        for (name, dimension) in file.space.iter() {
            let wrong = |message: String| source.error(name.span(), format!("`{}`: {message}", **name));
            dimension.check().map_err(wrong)?;
            let is_level = is_level(name, &scenario);
            if !is_level && !scenario.parameters().contains_key(name.as_str()) {
                let known = quoted_list(scenario.parameters().keys().map(String::as_str));
                return Err(wrong(format!("is no parameter of the scenario, which has {known}")));
            }
            if file.set.contains_key(name.as_str()) {
                return Err(wrong("is in [set], too; leave it out of one".into()));
            }
            if is_level {
                levels(name, dimension, &source.directory()).map_err(wrong)?;
            }
            dimensions.push(((**name).clone(), dimension.clone()));
        }
        let points = points::points(*file.points, &dimensions)
            .map_err(|message| source.error(file.points.span(), message))?;
        Ok(Self {
            title: file.title.unwrap_or_else(|| (*file.scenario).clone()),
            scenario_name: (*file.scenario).clone(),
            replications,
            objective,
            source,
            scenario,
            set: file.set,
            dimensions,
            points,
        })
    }

    /// Its texts.
    pub fn texts(&self) -> Texts {
        // A path has to mean the same from any folder.
        let of = |source: &SourceFile| {
            let path = std::path::absolute(source.path()).unwrap_or_else(|_| source.path().into());
            (path, source.text().to_owned())
        };
        Texts { study: of(&self.source), scenario: of(self.scenario.source()) }
    }

    /// The dimensions of the space, in the order of the file.
    pub fn dimensions(&self) -> &[(String, Dimension)] {
        &self.dimensions
    }

    /// Its points, in order.
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// The point that the scenario itself is, with what is [set](StudyFile::set); `None` if a dimension is a scheduler, of which the scenario
    /// has no name.
    pub fn default_point(&self) -> Option<Point> {
        let value = |(name, _): &(String, Dimension)| self.scenario.parameters().get(name).cloned();
        self.dimensions.iter().map(value).collect()
    }

    /// The scenario at a point.
    ///
    /// # Errors
    /// If it does not fit.
    pub fn scenario_at(&self, point: &Point) -> Result<Scenario, FileError> {
        let (mut parameters, mut policy) = (self.set.clone(), PolicyTable::default());
        for ((name, _), value) in self.dimensions.iter().zip(point) {
            match is_level(name, &self.scenario) {
                true => {
                    let level = level(name, value, &self.source.directory());
                    match level.map_err(|message| self.source.error_in_file(message))? {
                        Level::Host(host) => policy.host = Some(host),
                        Level::Guest(guest) => policy.guest = Some(guest),
                    }
                }
                false => drop(parameters.insert(name.clone(), value.clone())),
            }
        }
        if policy.guest.is_some() && !self.scenario.has_guests() {
            let message = "`guest` has no effect: no VM of the scenario has a guest kernel; remove it";
            return Err(self.source.error_in_file(message));
        }
        self.scenario.build(&parameters, &policy)
    }

    /// The values of a point by the names of the dimensions, to display.
    pub fn shown(&self, point: &Point) -> String {
        let shown = |((name, _), value): (&(String, Dimension), &Key)| format!("{name}={value}");
        let all: Vec<String> = self.dimensions.iter().zip(point).map(shown).collect();
        all.join(" ")
    }

    /// The values of a point by the names of the dimensions.
    pub fn values(&self, point: &Point) -> BTreeMap<String, Key> {
        self.dimensions.iter().map(|(name, _)| name.clone()).zip(point.iter().cloned()).collect()
    }
}

fn parse(source: &SourceFile) -> Result<StudyFile, FileError> {
    source.check_shape(&schema::STUDY)?;
    let file: StudyFile = source.parse().map_err(|error| former::explain(error, source))?;
    source.check_texts()?;
    Ok(file)
}

/// Whether a dimension is a scheduler, not a parameter.
fn is_level(name: &str, scenario: &ScenarioSource) -> bool {
    ["host", "guest"].contains(&name) && !scenario.parameters().contains_key(name)
}

/// The scheduler that a value of such a dimension names. The path of an object begins in the folder.
fn level(name: &str, value: &Key, folder: &Path) -> Result<Level, String> {
    let scheduler = scheduler_in(folder, &value.to_string())?;
    match name {
        "host" => Ok(Level::Host(scheduler.into())),
        _ => Ok(Level::Guest(scheduler.try_into()?)),
    }
}

/// Checks that all values of such a dimension name schedulers.
fn levels(name: &str, dimension: &Dimension, folder: &Path) -> Result<(), String> {
    match dimension.domain() {
        Domain::Choice(values) => values.iter().try_for_each(|value| level(name, value, folder).map(drop)),
        Domain::Numbers { .. } => Err("a scheduler is no range; list names".into()),
    }
}
