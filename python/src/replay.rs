//! `tandem.replay`.

use crate::error;
use crate::supervise::supervise;
use crate::table::PyTable;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tandem_file::shown::{one_line, to_json_text};
use tandem_lab::machine_file::named_or_file;
use tandem_lab::tables;
use tandem_lab::twin::comparison::Comparison;
use tandem_lab::twin::grouping::GroupBy;
use tandem_lab::twin::plan::{GroupPlan, Plan};
use tandem_lab::twin::replay::Twin;
use tandem_lab::twin::situation::parse_scheduler;
use tandem_lab::twin::together::Together;

/// Replay a recording. Gives the JSON, the text and the table.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "Python has keyword arguments")]
pub fn replay<'py>(
    py: Python<'py>,
    recording: PathBuf,
    policy: Option<String>,
    settings: Option<PathBuf>,
    slice: Option<String>,
    machine: Option<String>,
    groups: BTreeMap<String, Bound<'py, PyDict>>,
    guests: BTreeMap<String, PathBuf>,
    by: &str,
    seeds: Vec<u64>,
    progress: Option<Bound<'py, PyAny>>,
) -> PyResult<(String, String, PyTable)> {
    let wrong = |message: String| error::input(py, message);
    let by = match by {
        "vm" => GroupBy::Vm,
        "process" => GroupBy::Process,
        "cgroup" => GroupBy::Cgroup,
        "thread" => GroupBy::Thread,
        other => return Err(wrong(format!("`by` is `{other}`; allowed are vm, process, cgroup or thread"))),
    };
    policy.as_deref().map(parse_scheduler).transpose().map_err(wrong)?;
    let slice = slice.map(|text| text.parse()).transpose();
    let group = |(name, changes): (String, Bound<'py, PyDict>)| {
        let text = crate::scenario::to_toml(&changes)?;
        let plan: GroupPlan =
            toml::from_str(&text).map_err(|error| wrong(format!("group `{name}`: {}", error.message())))?;
        match plan.problem() {
            Some(problem) => Err(wrong(format!("group `{name}`: {problem}"))),
            None => Ok((name, plan)),
        }
    };
    let plan = Plan {
        recording: recording.clone(),
        machine: machine.clone(),
        scheduler: policy,
        settings,
        slice: slice.map_err(|error| wrong(format!("`slice`: {error}")))?,
        guest: guests,
        group: groups.into_iter().map(group).collect::<PyResult<_>>()?,
        ..Plan::default()
    };
    let machine = machine.as_deref().map(named_or_file).transpose();
    let machine = machine.map_err(|error| wrong(error.to_string()))?;
    let name = one_line(&recording.display().to_string());
    let replayed = supervise(py, progress.as_ref(), |monitor| -> Result<Comparison, String> {
        let together = read(&plan)?;
        let twin = Twin::of(&together, by)?;
        twin.check()?;
        let situation = plan.situation(&twin, machine)?;
        twin.compare(&situation, &seeds, monitor)
    })?;
    let comparison = replayed.map_err(|message| {
        // Errors of files begin with the file's name.
        let message = message.strip_prefix(&format!("{name}: ")).unwrap_or(&message);
        error::scenario(py, &name, message)
    })?;
    let json = to_json_text(&comparison.to_json()).map_err(|error| error::internal(&error.to_string()))?;
    Ok((json, comparison.to_string(), PyTable::new(py, tables::of_replay(&comparison))?))
}

fn read(plan: &Plan) -> Result<Together, String> {
    let open = |path: &Path| tandem_recording::open(path).map_err(|error| error.to_string());
    let guests: Result<Vec<_>, String> =
        plan.guest.iter().map(|(name, path)| Ok((name.clone(), open(path)?))).collect();
    Together::new(open(&plan.recording)?, guests?)
}
