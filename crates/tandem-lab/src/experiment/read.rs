//! Reads an experiment, and checks all that can be checked before it runs.

use super::calibration::calibrations_of;
use super::composite::composites_of;
use super::file::{ExperimentFile, ExperimentMetric, RunTable};
use super::length;
use super::series::{check_heat_map, check_order};
use super::{Case, Composite, Experiment};
use crate::measure::Measure;
use crate::published::{CellKeys, Published, has_all};
use crate::results::{Better, Key};
use crate::scenario::Parameters;
use crate::scenario::ScenarioSource;
use crate::scenario::amount::check_time;
use crate::scenario::policy::former;
use crate::schema;
use std::path::Path;
use std::sync::Arc;
use tandem_file::file_error::FileError;
use tandem_file::located::{Located, SourceFile, quoted_list};
use tandem_sim::scenario::Scenario;

impl Experiment {
    /// Reads the experiment in a folder, with its scenarios and its published table.
    ///
    /// # Errors
    /// If a file cannot be read or has a value that is not allowed; the error names the line.
    pub fn read(folder: &Path) -> Result<Self, FileError> {
        let source = SourceFile::read(&folder.join("experiment.toml"))?;
        source.check_shape(&schema::EXPERIMENT)?;
        let parsed = source.parse();
        let file: ExperimentFile = parsed.map_err(|error| former::explain(error, &source))?;
        source.check_texts()?;
        check_file(&file, &source)?;
        let mut cases: Vec<Case> = Vec::new();
        for position in 0..file.runs.len() {
            let run = &file.runs[position];
            for case in cases_of(position, &file, &source)? {
                if cases.iter().any(|other| other.keys == case.keys) {
                    let message = format!(
                        "two runs have the same keys ({}); `keys` must tell them apart",
                        case.label()
                    );
                    return Err(source.error(run.scenario.span(), message));
                }
                cases.push(case);
            }
        }
        let composites = file.composites.iter().map(|table| composites_of(table, &cases, &source));
        let composites: Vec<Composite> = composites.collect::<Result<Vec<_>, _>>()?.concat();
        let all = ExperimentCells { cases: &cases, composites: &composites };
        let path = folder.join("published.csv");
        let published = Published::read(&path)?;
        check_published(&published, &all, &path)?;
        check_targets(&file, &all, &source)?;
        let name = folder.canonicalize().unwrap_or_else(|_| folder.into());
        let mut experiment = Self {
            name: name.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            replications: (*file.replications).clone(),
            file,
            published,
            cases,
            composites,
            calibrations: Vec::new(),
            is_quick: false,
        };
        experiment.calibrations = calibrations_of(&experiment, folder, &source)?;
        Ok(experiment)
    }
}

/// Checks what concerns the experiment's file alone.
fn check_file(file: &ExperimentFile, source: &SourceFile) -> Result<(), FileError> {
    if file.variants.get(&file.baseline).is_none() {
        let message = format!("there is no variant `{}`; variants: {}", *file.baseline, file.variants.list());
        return Err(source.error(file.baseline.span(), message));
    }
    for (_, policy) in file.variants.iter() {
        policy.check(source)?;
    }
    if file.runs.is_empty() {
        return Err(source.error(file.runs.span(), "there is nothing to run; at least one [[run]] is needed"));
    }
    let replications = &file.replications;
    if replications.min == 0 || replications.max.is_some_and(|max| max < replications.min) {
        let message =
            "the replications are out of range; `min` must be at least 1, and `max` not less than `min`";
        return Err(source.error(replications.span(), message));
    }
    if replications.precision_pct < 0.0 {
        let message = format!("`precision_pct` is {}; allowed are 0 and more", replications.precision_pct);
        return Err(source.error(replications.span(), message));
    }
    if file.quick.replications == 0 || !(1..=100).contains(&file.quick.length_pct) {
        let message = "allowed are at least 1 for `replications`, and 1 to 100 for `length_pct`";
        return Err(source.error(file.quick.span(), message));
    }
    Ok(())
}

/// The cases of a run: one for each combination of the parameters that it sweeps over, the first varying
/// slowest.
fn cases_of(position: usize, file: &ExperimentFile, source: &SourceFile) -> Result<Vec<Case>, FileError> {
    let run = &file.runs[position];
    let scenario = Arc::new(ScenarioSource::read(&source.sibling(&run.scenario))?);
    let is_decimal = |key: &Key| matches!(key, Key::Decimal(_));
    if run.keys.values().chain(run.sweep.values().flatten()).any(is_decimal) {
        let message = "a key of cells is a decimal; allowed are whole numbers and texts";
        return Err(source.error(run.scenario.span(), message));
    }
    if let Some((name, _)) = run.sweep.iter().find(|(_, values)| values.is_empty()) {
        let message = format!("the sweep has no values for `{name}`; give at least one");
        return Err(source.error(run.sweep.span(), message));
    }
    if run.metrics.is_empty() {
        let message = "the run measures nothing; name at least one metric";
        return Err(source.error(run.scenario.span(), message));
    }
    let known = scenario.parameters();
    let mut shared = Parameters::new();
    for name in &run.with {
        let Some(values) = file.parameters.get(&**name) else {
            let known = quoted_list(file.parameters.keys().map(String::as_str));
            let message = format!("there are no parameters `{}`; under [parameters]: {known}", **name);
            return Err(source.error(name.span(), message));
        };
        shared.extend(values.clone());
    }
    let from_shared = run.with.first().map_or(0..0, Located::span);
    let shared_names = shared.keys().map(|name| (name, from_shared.clone()));
    let swept = run.sweep.keys().map(|name| (name, run.sweep.span()));
    let set = run.set.keys().map(|name| (name, run.set.span()));
    for (name, span) in shared_names.chain(swept).chain(set) {
        if !known.contains_key(name) {
            let known = quoted_list(known.keys().map(String::as_str));
            let message = format!("`{}` has no parameter `{name}`; its parameters: {known}", *run.scenario);
            return Err(source.error(span, message));
        }
    }
    let named = run.baseline.iter().chain(run.variants.iter().flatten());
    for name in named.chain(run.warmup.iter().map(|(name, _)| name)) {
        if file.variants.get(name).is_none() {
            let message = format!("there is no variant `{}`; variants: {}", **name, file.variants.list());
            return Err(source.error(name.span(), message));
        }
    }
    for (_, time) in run.warmup.iter() {
        check_time(**time).map_err(|message| source.error(time.span(), message))?;
    }
    if let Some(replications) = &run.replications
        && **replications == 0
    {
        return Err(source.error(replications.span(), "`replications` is 0; at least 1 is needed"));
    }
    let baseline = run.baseline.as_ref().unwrap_or(&file.baseline);
    let takes_part = |name: &String| {
        *name == **baseline
            || run.variants.as_ref().is_none_or(|names| names.iter().any(|other| **other == *name))
    };

    shared.extend((*run.set).clone());
    let mut loads = vec![(run.keys.clone(), shared)];
    for (parameter, values) in run.sweep.iter() {
        loads = loads
            .iter()
            .flat_map(|load| values.iter().map(move |value| with_value(load, parameter, value)))
            .collect();
    }
    let mut cases = Vec::new();
    let mut is_short = false;
    for (keys, parameters) in loads {
        let mut variants = Vec::new();
        for (name, _) in file.variants.iter().filter(|(name, _)| takes_part(name)) {
            variants.push(((**name).clone(), scenario_of(run, name, file, &scenario, &parameters)?));
        }
        let too_short = variants.iter().find_map(|(_, built)| length::problem(built));
        is_short |= too_short.is_some();
        if let Some(problem) = too_short.filter(|_| run.short.is_none()) {
            return Err(source.error(run.scenario.span(), problem));
        }
        let built = &variants[0].1;
        run.metrics.iter().try_for_each(|metric| check_metric(metric, built, run, source))?;
        let replications = run.replications.as_deref().copied();
        let (metrics, baseline) = (run.metrics.clone(), (**baseline).clone());
        let (source, run) = (scenario.clone(), position);
        cases.push(Case { keys, metrics, baseline, variants, replications, source, parameters, run });
    }
    match &run.short {
        Some(short) if !is_short => {
            Err(source.error(short.span(), "the run is long enough; leave `short` out"))
        }
        _ => Ok(cases),
    }
}

/// The scenario of a run with a variant's policy.
pub(super) fn scenario_of(
    run: &RunTable,
    variant: &str,
    file: &ExperimentFile,
    scenario: &ScenarioSource,
    parameters: &Parameters,
) -> Result<Scenario, FileError> {
    let policy = file.variants.get(variant).expect("the names of variants were checked");
    let mut built = scenario.build(parameters, policy).map_err(|error| FileError {
        message: format!("{} (with variant `{variant}`)", error.message),
        ..error
    })?;
    if let Some(warmup) = run.warmup.get(variant) {
        built.warmup_ns = warmup.ns;
    }
    Ok(built)
}

/// A load with one more parameter, which is a key too.
fn with_value(
    (keys, parameters): &(CellKeys, Parameters),
    name: &str,
    value: &Key,
) -> (CellKeys, Parameters) {
    let (mut keys, mut parameters) = (keys.clone(), parameters.clone());
    keys.insert(name.into(), value.clone());
    parameters.insert(name.into(), value.clone());
    (keys, parameters)
}

/// Checks that the scenario has what the metric measures.
fn check_metric(
    metric: &ExperimentMetric,
    scenario: &Scenario,
    run: &RunTable,
    source: &SourceFile,
) -> Result<(), FileError> {
    let at = metric.group.as_ref().map_or(run.scenario.span(), Located::span);
    let in_group =
        || scenario.measured().filter(|vm| metric.group.as_ref().is_none_or(|group| vm.group == **group));
    if in_group().next().is_none() {
        let groups = scenario.groups();
        let message = format!("the metric `{}` has no VMs; groups: {}", metric.name, quoted_list(groups));
        return Err(source.error(at, message));
    }
    if let Some(counter) = metric.of.counter()
        && !in_group().any(|vm| vm.counters.iter().any(|known| known == counter))
    {
        let counters: std::collections::BTreeSet<_> =
            in_group().flat_map(|vm| vm.counters.iter().map(String::as_str)).collect();
        let message = format!(
            "the metric `{}` is of the counter `{counter}`, which no VM has; counters: {}",
            metric.name,
            quoted_list(counters),
        );
        return Err(source.error(at, message));
    }
    if metric.of.is_of_guests() && !in_group().any(|vm| vm.guest().is_some()) {
        let message = format!("the metric `{}` is of guests, but none of its VMs has one", metric.name);
        return Err(source.error(at, message));
    }
    if metric.of == Measure::TimeToCount && scenario.stop_at_count.is_none() {
        let message = format!("the metric `{}` needs a `stop_at_count` in `{}`", metric.name, *run.scenario);
        return Err(source.error(at, message));
    }
    Ok(())
}

/// All cells of an experiment: those of its runs, and those of its composites.
pub(super) struct ExperimentCells<'a> {
    cases: &'a [Case],
    composites: &'a [Composite],
}

impl ExperimentCells<'_> {
    /// The cells of each metric of each set of keys; composites first.
    pub fn sets(&self) -> impl Iterator<Item = CellSet<'_>> {
        let composites = self.composites.iter().map(|composite| CellSet {
            keys: &composite.keys,
            metric: &composite.name,
            better: composite.better,
            case: &self.cases[composite.parts[0].0],
        });
        let cases = self.cases.iter().flat_map(|case| case.metrics.iter().map(move |metric| (case, metric)));
        composites.chain(cases.map(|(case, metric)| CellSet {
            keys: &case.keys,
            metric: &metric.name,
            better: metric.better,
            case,
        }))
    }

    /// The metrics of the cells with these keys, and the case that they belong to; `None` if there are no
    /// such cells.
    fn cells(&self, keys: &CellKeys) -> Option<(Vec<&str>, &Case)> {
        let sets: Vec<CellSet> = self.sets().filter(|set| set.keys == keys).collect();
        Some((sets.iter().map(|set| set.metric).collect(), sets.first()?.case))
    }

    /// The keys of all cells, for errors.
    pub fn list(&self) -> String {
        let labels: Vec<_> = self.cases.iter().map(Case::label).collect();
        quoted_list(labels.iter().map(String::as_str))
    }
}

/// The cells of one metric with one set of keys: one for each variant of their case.
#[derive(Clone, Copy)]
pub(super) struct CellSet<'a> {
    pub keys: &'a CellKeys,
    pub metric: &'a str,
    pub better: Better,
    pub case: &'a Case,
}

/// Checks that every published number belongs to something that is run.
fn check_published(published: &Published, all: &ExperimentCells, path: &Path) -> Result<(), FileError> {
    for row in published.rows() {
        let error = |message: String| {
            Err(FileError { file: path.display().to_string(), line: Some(row.line), message })
        };
        let Some((metrics, case)) = all.cells(&row.keys) else {
            return error(format!("no run has these keys; there are {}", all.list()));
        };
        if !metrics.contains(&row.metric.as_str()) {
            let known = quoted_list(metrics);
            return error(format!("its run has no metric `{}`; there are {known}", row.metric));
        }
        if !case.variant_names().any(|name| name == row.variant) {
            let known = quoted_list(case.variant_names());
            return error(format!("its run has no variant `{}`; there are {known}", row.variant));
        }
        if row.variant == case.baseline && row.effect_pct.is_some() {
            return error(format!(
                "`{}` is the baseline, which has no effect against itself; leave `effect_pct` empty",
                case.baseline
            ));
        }
    }
    Ok(())
}

/// Checks that targets, orders and heat maps are about cells that are run.
fn check_targets(file: &ExperimentFile, all: &ExperimentCells, source: &SourceFile) -> Result<(), FileError> {
    for target in &file.targets {
        let is_run = all.cells(&target.cell).is_some_and(|(metrics, case)| {
            metrics.contains(&target.metric.as_str())
                && target.variant != case.baseline
                && case.variant_names().any(|name| name == target.variant)
        });
        if !is_run {
            let message =
                format!("the target is about no effect of this experiment; cells are {}", all.list());
            return Err(source.error(target.text.span(), message));
        }
    }
    for accuracy in &file.accuracies {
        let of_metric = || all.sets().filter(|set| set.metric == accuracy.metric);
        let message = if of_metric().next().is_none() {
            format!("no run has the metric `{}`", accuracy.metric)
        } else if !of_metric().any(|set| has_all(set.keys, &accuracy.keys)) {
            format!("no run with the metric `{}` has these keys; cells are {}", accuracy.metric, all.list())
        } else {
            continue;
        };
        return Err(source.error(accuracy.text.span(), message));
    }
    file.orders.iter().try_for_each(|order| check_order(order, all, source))?;
    file.heat_maps.iter().try_for_each(|map| check_heat_map(map, all, source))
}
