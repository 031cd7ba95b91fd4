//! What a baseline leaves open: free constants, and the points that meet the baseline.
//!
//! **Problem.** A few published baseline cells rarely determine the constants of a model. Several sets of
//! values meet them equally well and may predict different effects, so that the effect at one of them says
//! more than is known.
//!
//! **Approach.** A `[[calibration]]` names the free constants, which are parameters of scenarios, each with
//! bounds from a source. A *point* gives each a value; together the bounds are a *box*. A point is *accepted*
//! if it meets every calibrated cell of the baseline within the noise of that cell
//! ([`Calibration::misfit`]). [`mod@crate::calibrate`] searches the box, and writes the accepted points into
//! [`SET_FILE`] beside the experiment. The runner then measures every effect at some of them
//! ([`Calibration::representatives`]); the range of an effect is that over these points.
//!
//! The file holds a fingerprint of what acceptance depends on: the scenarios as they are built, with their
//! machine, policy and lengths, the metrics, bounds, tolerance and published cells. If it differs, the set is
//! *stale* and does not count. Limits: the simulator's code has no part in the fingerprint. Instead, the
//! runner judges each point again, by its own runs ([`Calibration::is_missed`]).

use super::file::{CalibrationTable, ExperimentMetric};
use super::{Case, Experiment};
use crate::results::{Decimal, Key, SetWord};
use crate::scenario::Parameters;
use crate::statistics::t_quantile;
use crate::summary::scenario_hash;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
use tandem_file::file_error::{FileError, read_text};
use tandem_file::located::{Located, SourceFile, quoted_list};
use tandem_file::new_file::NewFile;
use tandem_file::units::Duration;

/// The file with the accepted points of an experiment's calibrations, beside the experiment.
pub const SET_FILE: &str = "calibrated.json";
/// Most free constants of a calibration: [`crate::calibrate`] has a base of its sequence for each.
pub const FREE_MAX: usize = 6;

/// A calibration of an experiment.
#[derive(Clone, Debug)]
pub struct Calibration {
    /// What the file says.
    pub table: CalibrationTable,
    /// The free constants, in the order of the file.
    pub free: Vec<Free>,
    /// Positions of the cases whose effects get ranges.
    pub cases: Vec<usize>,
    /// Stands for all that the accepted points depend on.
    pub fingerprint: String,
    /// The accepted points, where they are known.
    pub set: SetState,
}

/// What is known of the accepted points.
#[derive(Clone, Debug, PartialEq)]
pub enum SetState {
    /// Nothing: the box was not searched.
    Missing,
    /// The box was searched, but the experiment has changed since.
    Stale,
    /// The result of the search.
    Known(CalibratedSet),
}

/// Result of a search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CalibratedSet {
    /// The fingerprint of the calibration at that time.
    pub against: String,
    /// How many points the search should try.
    pub planned: usize,
    /// How many it has tried; less than planned after an interruption.
    pub tried: usize,
    /// Misfits of the points of the running wave that were judged before an interruption, by their positions
    /// in the wave.
    #[serde(default)]
    pub running: Vec<(usize, f64)>,
    /// The accepted points, in the order in which they were found.
    pub accepted: Vec<Parameters>,
    /// The points with the least misfits, and these; accepted ones among them.
    pub nearest: Vec<(Parameters, f64)>,
}

/// The sets of an experiment, by the names of its calibrations.
pub type Sets = BTreeMap<String, CalibratedSet>;

/// A free constant.
#[derive(Clone, Debug, PartialEq)]
pub struct Free {
    /// Name of the parameter.
    pub name: String,
    low: f64,
    high: f64,
    is_time: bool,
}

impl Free {
    pub(crate) fn of(name: &str, low: &Key, high: &Key) -> Option<Self> {
        let ((low, is_time), (high, high_is_time)) = (number(low)?, number(high)?);
        let is_range = low.is_finite() && high.is_finite() && low < high && is_time == high_is_time;
        is_range.then(|| Self { name: name.into(), low, high, is_time })
    }

    /// The value at this part of the way from the lower to the upper bound: in equal ratios if both are
    /// positive, in equal differences otherwise.
    pub fn value(&self, part: f64) -> Key {
        let number = match (part <= 0.0, part >= 1.0) {
            (true, _) => self.low,
            (_, true) => self.high,
            _ if self.low > 0.0 => {
                libm::exp(libm::log(self.low) * (1.0 - part) + libm::log(self.high) * part)
            }
            _ => self.low * (1.0 - part) + self.high * part,
        };
        if self.is_time {
            return Key::Text(format!("{}ns", number.round() as u64));
        }
        let short: f64 = format!("{number:.4e}").parse().unwrap_or(number);
        Key::Decimal(Decimal(short.clamp(self.low, self.high)))
    }

    /// Whether a value is within the bounds.
    fn is_within(&self, value: &Key) -> bool {
        number(value).is_some_and(|(number, is_time)| {
            is_time == self.is_time && (self.low..=self.high).contains(&number)
        })
    }

    /// The part of the way at which this value is.
    pub fn part(&self, value: &Key) -> Option<f64> {
        let (number, _) = number(value)?;
        let part = match self.low > 0.0 {
            true => libm::log(number / self.low) / libm::log(self.high / self.low),
            false => (number - self.low) / (self.high - self.low),
        };
        part.is_finite().then(|| part.clamp(0.0, 1.0))
    }
}

/// The number of a value, times in ns, and whether it is a time.
fn number(value: &Key) -> Option<(f64, bool)> {
    match value {
        Key::Number(number) => Some((*number as f64, false)),
        Key::Decimal(Decimal(number)) => Some((*number, false)),
        Key::Text(text) => text.parse().ok().map(|time: Duration| (time.ns as f64, true)),
    }
}

impl Calibration {
    /// The point at these parts of the ways between the bounds.
    pub fn point(&self, parts: &[f64]) -> Parameters {
        self.free.iter().zip(parts).map(|(free, &part)| (free.name.clone(), free.value(part))).collect()
    }

    /// The parts of the ways between the bounds at which a point is; `None` if it lacks a value.
    pub fn parts(&self, point: &Parameters) -> Option<Vec<f64>> {
        self.free.iter().map(|free| free.part(point.get(&free.name)?)).collect()
    }

    /// The points that the experiment's own values of the constants make, where they are within the bounds:
    /// one, unless its cases differ in them.
    pub fn own_points(&self, experiment: &Experiment) -> Vec<Parameters> {
        let mut points: Vec<Parameters> = Vec::new();
        for &case in &self.cases {
            let Case { parameters, source, .. } = &experiment.cases[case];
            let value = |free: &Free| {
                let value = parameters.get(&free.name).or_else(|| source.parameters().get(&free.name))?;
                free.is_within(value).then(|| (free.name.clone(), value.clone()))
            };
            let point: Option<Parameters> = self.free.iter().map(value).collect();
            points.extend(point.filter(|point| !points.contains(point)));
        }
        points
    }

    /// The calibrated cells of the baseline that have a published value: positions of their case and metric.
    pub fn cells<'a>(&'a self, experiment: &'a Experiment) -> impl Iterator<Item = (usize, usize)> + 'a {
        self.cases
            .iter()
            .flat_map(move |&case| {
                let Case { metrics, .. } = &experiment.cases[case];
                (0..metrics.len()).map(move |metric| (case, metric))
            })
            .filter(|&(case, metric)| {
                let Case { keys, baseline, metrics, .. } = &experiment.cases[case];
                metrics[metric].is_calibrated_at(keys, baseline, baseline)
                    && experiment
                        .published
                        .value(keys, &metrics[metric].name, baseline)
                        .is_some_and(|it| it > 0.0)
            })
    }

    /// How far a point is from the baseline: the largest distance of a calibrated cell from its published
    /// value, relative to what noise allows; up to 1 the point is accepted. `values` has the simulated values
    /// of a cell, a replication each.
    ///
    /// Distances are those of logarithms. Noise is that of the publication, twice the standard deviation or
    /// else `within_pct`, and twice the standard error of the simulated mean; the two are independent, so
    /// that their squares add up. Of a `relative` metric the geometric mean of the cells is as published by
    /// definition: nothing but how they relate to each other counts.
    pub fn misfit(&self, experiment: &Experiment, values: impl Fn(usize, usize) -> Vec<f64>) -> f64 {
        self.largest_miss(experiment, values, |noise, error, _| libm::hypot(noise, 2.0 * error))
    }

    /// Whether runs show that a point misses the baseline: one of its cells is off by more than the noise of
    /// the publication and the 95% interval of the simulated mean together. Fewer than two runs of each cell
    /// say nothing about chance, and show nothing.
    pub fn is_missed(&self, experiment: &Experiment, values: impl Fn(usize, usize) -> Vec<f64>) -> bool {
        let is_known = self.cells(experiment).all(|(case, metric)| values(case, metric).len() >= 2);
        let allowed = |noise, error, runs| noise + t_quantile(0.95, (runs - 1) as f64) * error;
        is_known && self.largest_miss(experiment, values, allowed) > 1.0
    }

    /// The largest distance of a calibrated cell from its published value, relative to what is `allowed` by
    /// the noise of the publication, the relative standard error of the distance, and the number of runs.
    fn largest_miss(
        &self,
        experiment: &Experiment,
        values: impl Fn(usize, usize) -> Vec<f64>,
        allowed: impl Fn(f64, f64, usize) -> f64,
    ) -> f64 {
        struct Miss<'a> {
            metric: &'a str,
            distance: f64,
            noise: f64,
            error: f64,
            runs: usize,
        }
        let mut cells: Vec<Miss> = Vec::new();
        for (case, metric) in self.cells(experiment) {
            let Case { keys, baseline, metrics, .. } = &experiment.cases[case];
            let metric_name = metrics[metric].name.as_str();
            let published = experiment.published.value(keys, metric_name, baseline).unwrap_or(f64::NAN);
            let noise = experiment.published.noise_pct(keys, metric_name, baseline, baseline);
            let values = values(case, metric);
            let (mean, error) = mean_and_error(&values);
            cells.push(Miss {
                metric: metric_name,
                distance: libm::log(mean / published),
                noise: noise.unwrap_or(self.table.within_pct) / 100.0,
                error: error / mean,
                runs: values.len(),
            });
        }
        let miss = |cell: &Miss| {
            let level = match self.is_relative(cell.metric) {
                true => {
                    let of_metric = || {
                        cells.iter().filter(|other| other.metric == cell.metric).map(|other| other.distance)
                    };
                    of_metric().sum::<f64>() / of_metric().count() as f64
                }
                false => 0.0,
            };
            (cell.distance - level).abs() / allowed(cell.noise, cell.error, cell.runs)
        };
        // A value of zero or less is infinitely far off.
        let misses = cells.iter().map(miss).map(|it| if it.is_nan() { f64::INFINITY } else { it });
        misses.fold(0.0, f64::max)
    }

    /// At most so many of the accepted points, each once: those with the least value of each constant, those
    /// with the largest, and then always the one that is farthest from all that were chosen before.
    pub fn representatives(&self, set: &CalibratedSet, most: usize) -> Vec<Parameters> {
        let mut points: Vec<(&Parameters, Vec<f64>)> = Vec::new();
        for point in &set.accepted {
            if let (true, Some(parts)) = (points.iter().all(|(other, _)| *other != point), self.parts(point))
            {
                points.push((point, parts));
            }
        }
        let along = |at: usize, dimension: usize| points[at].1[dimension];
        let (all, dimensions) = (0..points.len(), 0..self.free.len());
        let least = dimensions
            .clone()
            .filter_map(|it| all.clone().min_by(|&a, &b| along(a, it).total_cmp(&along(b, it))));
        let largest = dimensions
            .clone()
            .filter_map(|it| all.clone().max_by(|&a, &b| along(a, it).total_cmp(&along(b, it))));
        let mut chosen: Vec<usize> = Vec::new();
        for end in least.chain(largest) {
            if !chosen.contains(&end) {
                chosen.push(end);
            }
        }
        let distance = |one: usize, other: usize| -> f64 {
            points[one].1.iter().zip(&points[other].1).map(|(a, b)| (a - b) * (a - b)).sum()
        };
        while chosen.len() < most.min(points.len()) {
            let nearest =
                |&at: &usize| chosen.iter().map(|&other| distance(at, other)).fold(f64::INFINITY, f64::min);
            let rest = (0..points.len()).filter(|at| !chosen.contains(at));
            match rest.max_by(|a, b| nearest(a).total_cmp(&nearest(b))) {
                Some(farthest) => chosen.push(farthest),
                None => break,
            }
        }
        chosen.truncate(most);
        chosen.into_iter().map(|at| points[at].0.clone()).collect()
    }

    /// What is known of the points that meet the baseline, in a word.
    pub fn set_word(&self) -> SetWord {
        match &self.set {
            SetState::Missing => SetWord::Missing,
            SetState::Stale => SetWord::Stale,
            SetState::Known(set) if set.tried < set.planned => SetWord::Interrupted,
            SetState::Known(set) if set.accepted.is_empty() => SetWord::Empty,
            SetState::Known(_) => SetWord::Complete,
        }
    }

    /// How many points meet the baseline, as far as is known.
    pub fn accepted(&self) -> Option<usize> {
        match &self.set {
            SetState::Known(set) => Some(set.accepted.len()),
            SetState::Missing | SetState::Stale => None,
        }
    }

    /// What is known of the set, in a sentence or two.
    pub fn sentence(&self, experiment: &Experiment) -> String {
        let (calibration, name) = (&*self.table.name, &experiment.name);
        let set = match &self.set {
            SetState::Known(set) => set,
            SetState::Missing => {
                return format!(
                    "{calibration}: the points that meet the baseline are not known; run `tandem calibrate {name}`"
                );
            }
            SetState::Stale => {
                return format!(
                    "{calibration}: the experiment has changed since the points that meet the baseline were found; \
                     run `tandem calibrate {name}`"
                );
            }
        };
        let within = format!("within {}%, or its published noise", self.table.within_pct);
        let within = within + &self.relative_words(experiment);
        let count = match (set.accepted.len(), set.nearest.first()) {
            (0, Some((_, f64::MAX))) => format!("none of {} points could be measured", set.tried),
            (0, Some((point, misfit))) => format!(
                "none of {} points meets the baseline {within}; the nearest ({}) is off by {misfit:.1} times that",
                set.tried,
                point_text(point)
            ),
            (0, None) => "no point was tried".to_owned(),
            (1, _) => format!("a single one of {} points meets the baseline {within}", set.tried),
            (count, _) => format!("{count} of {} points meet the baseline {within}", set.tried),
        };
        let interrupted = match set.tried < set.planned {
            true => format!(", of {} planned", set.planned),
            false => String::new(),
        };
        let extents: Vec<String> = self.free.iter().filter_map(|free| self.extent(free, set)).collect();
        let extents = if extents.is_empty() { String::new() } else { format!(": {}", extents.join("; ")) };
        format!("{calibration}: {count}{interrupted}{extents}")
    }

    fn is_relative(&self, metric: &str) -> bool {
        self.table.relative.iter().any(|name| **name == metric)
    }

    /// What `relative` means for the cells, in words that go on.
    fn relative_words(&self, experiment: &Experiment) -> String {
        let mut cells_of: BTreeMap<&str, usize> = BTreeMap::new();
        for (case, metric) in self.cells(experiment) {
            *cells_of.entry(experiment.cases[case].metrics[metric].name.as_str()).or_default() += 1;
        }
        let relative = cells_of.into_iter().filter(|(metric, _)| self.is_relative(metric));
        let words = relative.map(|(metric, cells)| {
            let alone =
                if cells > 1 { "" } else { ", of which there are none, so that it determines nothing" };
            format!(", `{metric}` relative to its other cells{alone}")
        });
        words.collect()
    }

    /// Where in its bounds the accepted values of a constant lie.
    fn extent(&self, free: &Free, set: &CalibratedSet) -> Option<String> {
        let values = || set.accepted.iter().filter_map(|point| point.get(&free.name));
        let part = |value: &&Key| free.part(value).unwrap_or(0.0);
        let least = values().min_by(|a, b| part(a).total_cmp(&part(b)))?;
        let most = values().max_by(|a, b| part(a).total_cmp(&part(b)))?;
        let edge = match (part(&least) <= 0.0, part(&most) >= 1.0) {
            (false, false) => {
                format!(" of {} to {}", value_text(&free.value(0.0)), value_text(&free.value(1.0)))
            }
            (true, true) => ", from edge to edge: not determined".to_owned(),
            (true, false) => format!(" of at most {}, at its lower edge", value_text(&free.value(1.0))),
            (false, true) => format!(" of at least {}, at its upper edge", value_text(&free.value(0.0))),
        };
        Some(format!("{} {} to {}{edge}", free.name, value_text(least), value_text(most)))
    }
}

/// A point in words.
fn point_text(point: &Parameters) -> String {
    let values: Vec<String> =
        point.iter().map(|(name, value)| format!("{name} {}", value_text(value))).collect();
    values.join(", ")
}

/// A value with three digits and, if it is a time, a readable unit.
fn value_text(value: &Key) -> String {
    let short = |number: f64| -> String {
        let number: f64 = format!("{number:.2e}").parse().unwrap_or(number);
        number.to_string()
    };
    match number(value) {
        Some((ns, true)) if ns >= 1e6 => format!("{} ms", short(ns / 1e6)),
        Some((ns, true)) => format!("{} us", short(ns / 1e3)),
        Some((number, false)) => short(number),
        None => value.to_string(),
    }
}

/// The mean of the values and its standard error; no error from a single value.
fn mean_and_error(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    if values.len() < 2 {
        return (mean, 0.0);
    }
    let squares: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
    (mean, (squares / (count - 1.0) / count).sqrt())
}

/// The sets beside an experiment; none if there is no file.
///
/// # Errors
/// If the file cannot be read, or is not one that `tandem calibrate` has written.
pub fn read_sets(folder: &Path) -> Result<Sets, FileError> {
    let path = folder.join(SET_FILE);
    if !path.exists() {
        return Ok(Sets::new());
    }
    serde_json::from_str(&read_text(&path)?).map_err(|error| FileError {
        file: path.display().to_string(),
        line: Some(error.line()),
        message: format!("is not what `tandem calibrate` writes ({error}); delete it and run that again"),
    })
}

/// Writes the sets beside an experiment, a point a line. The file appears when it is complete.
///
/// # Errors
/// If it cannot be written.
pub fn write_sets(folder: &Path, sets: &Sets) -> io::Result<()> {
    let mut text = String::new();
    for (name, CalibratedSet { against, planned, tried, running, accepted, nearest }) in sets {
        let points: Vec<String> = accepted.iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
        let nearest: Vec<String> = nearest.iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
        text += if text.is_empty() { "{\n" } else { ",\n" };
        text += &format!(
            "{}: {{\"against\": {}, \"planned\": {planned}, \"tried\": {tried}, \"running\": {},\n\"nearest\": [\n{}\n],\n\"accepted\": [\n{}\n]}}",
            serde_json::to_string(name)?,
            serde_json::to_string(against)?,
            serde_json::to_string(running)?,
            nearest.join(",\n"),
            points.join(",\n"),
        );
    }
    let mut file = NewFile::create(&folder.join(SET_FILE))?;
    file.write_all((text + "\n}\n").as_bytes())?;
    file.complete()
}

/// The calibrations of an experiment that was read but for them.
///
/// # Errors
/// If one does not add up, or the file of sets cannot be read.
pub(super) fn calibrations_of(
    experiment: &Experiment,
    folder: &Path,
    source: &SourceFile,
) -> Result<Vec<Calibration>, FileError> {
    let mut sets = read_sets(folder)?;
    let mut calibrations: Vec<Calibration> = Vec::new();
    for table in &experiment.file.calibrations {
        let mut calibration = calibration_of(table, experiment, source)?;
        let taken = calibrations.iter().find(|other| {
            *other.table.name == *table.name
                || other.cases.iter().any(|case| calibration.cases.contains(case))
        });
        if let Some(other) = taken {
            let message = format!("has the name or a run of the calibration `{}`", *other.table.name);
            return Err(source.error(table.name.span(), message));
        }
        calibration.set = match sets.remove(&**table.name) {
            None => SetState::Missing,
            Some(set) if set.against != calibration.fingerprint => SetState::Stale,
            Some(set) => SetState::Known(set),
        };
        calibrations.push(calibration);
    }
    Ok(calibrations)
}

fn calibration_of(
    table: &CalibrationTable,
    experiment: &Experiment,
    source: &SourceFile,
) -> Result<Calibration, FileError> {
    let at = || table.name.span();
    let is_meant = |case: &Case| table.runs.iter().any(|keys| crate::published::has_all(&case.keys, keys));
    let cases: Vec<usize> =
        (0..experiment.cases.len()).filter(|&case| is_meant(&experiment.cases[case])).collect();
    if cases.is_empty() {
        return Err(source.error(at(), "no run has keys that `runs` of this calibration names"));
    }
    if !(table.within_pct > 0.0 && table.within_pct <= 100.0) {
        return Err(source.error(at(), "`within_pct` is out of range; allowed are more than 0 to 100"));
    }
    let count = table.free.iter().count();
    if !(1..=FREE_MAX).contains(&count) {
        let message = format!("has {count} constants under `free`; allowed are 1 to {FREE_MAX}");
        return Err(source.error(at(), message));
    }
    let mut free = Vec::new();
    for (name, bounds) in table.free.iter() {
        let lacks = |&&case: &&usize| !experiment.cases[case].source.parameters().contains_key(&**name);
        if let Some(&case) = cases.iter().find(lacks) {
            let known = quoted_list(experiment.cases[case].source.parameters().keys().map(String::as_str));
            let message = format!("the scenario has no parameter `{}`; its parameters: {known}", **name);
            return Err(source.error(name.span(), message));
        }
        free.push(bounds_of(name, &bounds.low, &bounds.high, source)?);
    }
    let mut calibration =
        Calibration { table: table.clone(), free, cases, fingerprint: String::new(), set: SetState::Missing };
    let cells: Vec<(usize, usize)> = calibration.cells(experiment).collect();
    if cells.is_empty() {
        let message = "no metric of its runs is calibrated on a baseline cell with a published value above 0";
        return Err(source.error(at(), message));
    }
    let is_calibrated =
        |name: &str| cells.iter().any(|&(case, metric)| experiment.cases[case].metrics[metric].name == name);
    if let Some(name) = table.relative.iter().find(|name| !is_calibrated(name)) {
        let message = format!(
            "`relative` names the metric `{}`, which is not calibrated on a published cell of these runs",
            **name
        );
        return Err(source.error(name.span(), message));
    }
    let mut text = inputs(&calibration, &cells, experiment);
    // Both corners must be scenarios; what lies between mostly is then one, too.
    for corner in [0.0, 1.0] {
        let point = calibration.point(&vec![corner; calibration.free.len()]);
        for &case in &calibration.cases {
            let case = &experiment.cases[case];
            let built = experiment.scenario_at(case, &case.baseline, &point)?;
            text += &format!(" {:016x}", scenario_hash(&built));
        }
    }
    calibration.fingerprint = format!("{:016x}", fnv(text.as_bytes()));
    Ok(calibration)
}

fn bounds_of(name: &Located<String>, low: &Key, high: &Key, source: &SourceFile) -> Result<Free, FileError> {
    Free::of(name, low, high).ok_or_else(|| {
        let message = format!(
            "`{}` goes from {low} to {high}; allowed are two numbers or two times such as \"5us\", the smaller first",
            **name
        );
        source.error(name.span(), message)
    })
}

/// What the accepted points depend on, but for the scenarios at other values of the constants.
fn inputs(calibration: &Calibration, cells: &[(usize, usize)], experiment: &Experiment) -> String {
    let table = &calibration.table;
    let length_pct = experiment.file.quick.length_pct;
    let relative: Vec<&str> = table.relative.iter().map(|name| name.as_str()).collect();
    let mut text = format!("{:?} {relative:?} {} {length_pct}", calibration.free, table.within_pct);
    for &(case, metric) in cells {
        let Case { keys, baseline, metrics, parameters, source, variants, .. } = &experiment.cases[case];
        let ExperimentMetric { name, of, group, scale, .. } = &metrics[metric];
        let value = experiment.published.value(keys, name, baseline);
        let noise = experiment.published.noise_pct(keys, name, baseline, baseline);
        // Of the scenario what counts, without comments and layout.
        let scenario = toml::from_str::<toml::Table>(source.source().text()).map(|table| table.to_string());
        let built = variants.iter().find(|(name, _)| name == baseline).map(|(_, built)| scenario_hash(built));
        text += &format!("{keys:?} {name} {of:?} {:?} {scale:?}", group.as_deref());
        text += &format!("{baseline} {parameters:?} {value:?} {noise:?} {scenario:?} {built:?}");
    }
    text
}

/// The 64-bit hash FNV-1a (G. Fowler, L. C. Noll, K.-P. Vo).
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
