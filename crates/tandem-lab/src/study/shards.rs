//! A folder of results: Parquet files, each with some points of any studies.
//!
//! A file is named by a hash over its bytes, which tells whether it is whole. Its rows are the measures of its points' runs, so that other
//! programs read the folder as one table; its footer says which points it has.

use super::{Done, PROGRAM};
use crate::compare::Measurement;
use crate::tables::RunTable;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use tandem_file::named_file::read_bytes;
use tandem_file::new_file::NewFile;
use tandem_file::shown::one_line;
use tandem_file::units::Size;
use tandem_recording::parquet::{Column, Table, TableFile, Values, Words, text_of};
use twox_hash::XxHash3_128;

/// The key of what is known beside the rows.
const ABOUT_KEY: &str = "tandem_study";
/// The largest file that is read.
const FILE_MAX: Size = Size { bytes: 1 << 30 };
/// What shards end with.
const EXTENSION: &str = "parquet";

/// What a file knows beside its rows.
#[derive(Serialize, Deserialize)]
struct About {
    /// The program that made it.
    program: String,
    points: Vec<AboutPoint>,
}

#[derive(Serialize, Deserialize)]
struct AboutPoint {
    key: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    failure: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    warning: Option<String>,
}

/// A folder of results.
#[derive(Debug)]
pub struct Shards {
    folder: PathBuf,
    /// The file of each point.
    files: HashMap<String, PathBuf>,
    /// Files that end as shards do and are none, or damaged; to display.
    strangers: Vec<String>,
}

/// Why a folder of results cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {message}")]
pub struct ShardsError {
    path: String,
    message: String,
}

impl ShardsError {
    fn new(path: &Path, error: impl ToString) -> Self {
        Self { path: one_line(&path.display().to_string()), message: error.to_string() }
    }
}

impl Shards {
    /// Finds out what a folder has. One that does not exist yet has nothing.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn open(folder: &Path) -> Result<Self, ShardsError> {
        let wrong = |error: io::Error| ShardsError::new(folder, error);
        let mut shards = Self { folder: folder.into(), files: HashMap::new(), strangers: Vec::new() };
        let mut paths = Vec::new();
        let entries = match fs::read_dir(folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(shards),
            entries => entries.map_err(wrong)?,
        };
        for entry in entries {
            let path = entry.map_err(wrong)?.path();
            if path.extension().is_some_and(|extension| extension == EXTENSION) {
                paths.push(path);
            }
        }
        // Of two files with a point the same one is read each time.
        paths.sort();
        for path in paths {
            match read(&path) {
                Ok((about, _)) => shards.know(&path, about.points.into_iter().map(|point| point.key)),
                Err(message) => {
                    shards.strangers.push(one_line(&format!("{}: {message}", path.display())));
                }
            }
        }
        Ok(shards)
    }

    fn know(&mut self, path: &Path, keys: impl Iterator<Item = String>) {
        for key in keys {
            self.files.entry(key).or_insert_with(|| path.into());
        }
    }

    /// Files that are left aside, and why, each in a sentence without a full stop.
    pub fn strangers(&self) -> &[String] {
        &self.strangers
    }

    /// Whether there are results of a point.
    pub fn has(&self, key: &str) -> bool {
        self.files.contains_key(key)
    }

    /// Adds a shard, as [`Shard::new`] makes it. What is there already stays.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn add(&mut self, shard: &Shard) -> Result<(), ShardsError> {
        let path = shard.write(&self.folder)?;
        self.know(&path, shard.keys.iter().cloned());
        Ok(())
    }

    /// The results of a file's points.
    ///
    /// # Errors
    /// If the file cannot be read any more.
    fn read(&self, path: &Path, scenario: &str) -> Result<HashMap<String, Done>, ShardsError> {
        let wrong = |error: String| {
            ShardsError::new(path, format!("{error}; remove the file to have its points computed again"))
        };
        let (about, bytes) = read(path).map_err(wrong)?;
        let table = Table::read_parquet(&bytes, &rows(&[])).map_err(|error| wrong(error.to_string()))?;
        let mut points: HashMap<String, Done> = HashMap::new();
        for AboutPoint { key, failure, warning } in about.points {
            points.insert(key.clone(), Done { key, runs: Vec::new(), failure, warning });
        }
        collect(&table, scenario, &mut points)
            .ok_or_else(|| wrong("has rows without their point, seed or value".into()))?;
        Ok(points)
    }

    /// A reader of the points' results, which call the scenario so.
    pub(super) fn reader<'a>(&'a self, scenario: &'a str) -> Reader<'a> {
        Reader { shards: self, scenario, path: PathBuf::new(), points: HashMap::new() }
    }
}

/// Reads results, of which those of the last file are kept: points that are next to each other are in one file.
pub(super) struct Reader<'a> {
    shards: &'a Shards,
    scenario: &'a str,
    path: PathBuf,
    points: HashMap<String, Done>,
}

impl Reader<'_> {
    /// The results of a point; `None` if there are none.
    ///
    /// # Errors
    /// If its file cannot be read any more.
    pub fn read(&mut self, key: &str) -> Result<Option<&Done>, ShardsError> {
        let Some(path) = self.shards.files.get(key) else { return Ok(None) };
        if *path != self.path {
            self.points = self.shards.read(path, self.scenario)?;
            self.path.clone_from(path);
        }
        Ok(self.points.get(key))
    }
}

/// Some points' results as a file.
pub struct Shard {
    /// Its name, without the extension.
    pub name: String,
    /// The keys of its points.
    pub keys: Vec<String>,
    /// The file.
    pub bytes: Vec<u8>,
}

impl Shard {
    /// That of these points; the same each time.
    pub fn new(points: &[Done]) -> Self {
        let about = points.iter().map(|point| AboutPoint {
            key: point.key.clone(),
            failure: point.failure.clone(),
            warning: point.warning.clone(),
        });
        let about = About { program: PROGRAM.into(), points: about.collect() };
        let about = serde_json::to_string(&about).expect("texts are JSON");
        let write = || {
            let mut file = TableFile::new(Vec::new())?;
            file.push(&rows(points))?;
            file.finish(&[(ABOUT_KEY, &about)])
        };
        let bytes = write().expect("memory can be written");
        Self { name: name_of(&bytes), keys: points.iter().map(|point| point.key.clone()).collect(), bytes }
    }

    /// Writes it into a folder: all of it, or nothing.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, folder: &Path) -> Result<PathBuf, ShardsError> {
        let path = folder.join(&self.name).with_extension(EXTENSION);
        let write = || {
            fs::create_dir_all(folder)?;
            let mut file = NewFile::create(&path)?;
            file.write_all(&self.bytes)?;
            file.complete()
        };
        write().map_err(|error: io::Error| ShardsError::new(&path, error))?;
        Ok(path)
    }
}

/// The name of a file.
fn name_of(bytes: &[u8]) -> String {
    format!("{:032x}", XxHash3_128::oneshot(bytes))
}

/// What a file knows beside its rows, with its bytes; or what is wrong with it.
fn read(path: &Path) -> Result<(About, Vec<u8>), String> {
    let bytes = read_bytes(path, FILE_MAX).map_err(|error| error.to_string())?;
    if path.file_stem().is_none_or(|name| name != name_of(&bytes).as_str()) {
        return Err("is damaged, was renamed, or is no shard of a study".into());
    }
    let text = text_of(&bytes, ABOUT_KEY).map_err(|error| error.to_string())?;
    let about = serde_json::from_slice(text.ok_or("is no shard of a study")?);
    Ok((about.map_err(|error| format!("is no shard of a study: {error}"))?, bytes))
}

/// The rows of a file.
fn rows(points: &[Done]) -> Table {
    let mut texts: [Words; 6] = Default::default();
    let (mut seeds, mut values) = (Vec::new(), Vec::new());
    for point in points {
        for run in &point.runs {
            for Measurement { group, measure, unit, value } in &run.measurements {
                let row = [
                    Some(&*point.key),
                    Some(&*run.machine),
                    Some(&*run.policy),
                    group.as_deref(),
                    Some(measure),
                    Some(unit),
                ];
                texts.iter_mut().zip(row).for_each(|(words, text)| words.push(text));
                seeds.push(run.seed);
                values.push(Some(*value));
            }
        }
    }
    let [point, machine, policy, group, measure, unit] = texts.map(Values::Texts);
    let columns = [
        ("point", point),
        ("machine", machine),
        ("policy", policy),
        ("seed", Values::Counts(seeds)),
        ("group", group),
        ("measure", measure),
        ("unit", unit),
        ("value", Values::Numbers(values)),
    ];
    Table::new(columns.map(|(name, values)| Column { name: name.into(), values }).into())
}

/// Gives the points the runs that the rows are of. `None` if a row has not all that it needs.
fn collect(table: &Table, scenario: &str, points: &mut HashMap<String, Done>) -> Option<()> {
    let texts = |name: &str| match &table.columns().iter().find(|column| column.name == name)?.values {
        Values::Texts(words) => Some(words.iter()),
        Values::Counts(_) | Values::Numbers(_) => None,
    };
    let [mut point, mut machine, mut policy, mut group, mut measure, mut unit] = [
        texts("point")?,
        texts("machine")?,
        texts("policy")?,
        texts("group")?,
        texts("measure")?,
        texts("unit")?,
    ];
    let (mut seeds, mut values) = (None, None);
    for column in table.columns() {
        match &column.values {
            Values::Counts(counts) => seeds = Some(counts),
            Values::Numbers(numbers) => values = Some(numbers),
            Values::Texts(_) => {}
        }
    }
    for (&seed, value) in seeds?.iter().zip(values?) {
        let (machine, policy) = (machine.next()??, policy.next()??);
        let done = points.get_mut(point.next()??)?;
        let (group, measure, unit) = (group.next()?, measure.next()??, unit.next()??);
        if done.runs.last().is_none_or(|run| run.seed != seed) {
            done.runs.push(RunTable {
                scenario: scenario.to_owned(),
                machine: machine.to_owned(),
                policy: policy.to_owned(),
                seed,
                measurements: Vec::new(),
            });
        }
        done.runs.last_mut()?.measurements.push(Measurement {
            group: group.map(str::to_owned),
            measure: measure.to_owned(),
            unit: unit.to_owned().into(),
            value: (*value)?,
        });
    }
    Some(())
}
