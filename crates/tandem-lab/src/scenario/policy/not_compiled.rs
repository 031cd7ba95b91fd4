//! Stands for compiled schedulers in a build without them: a file that asks for one cannot be used.

use super::scheduler::{SchedulerName, Told};
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;
use tandem_file::file_error::FileError;
use tandem_machine::Machine;
use tandem_sim::policy::sched_ext::SchedExtSettings;

/// Any table.
pub type TandemTable = BTreeMap<String, SettingValue>;

/// Any value.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(untagged)]
#[allow(missing_docs)]
pub enum SettingValue {
    Switch(bool),
    Number(i64),
    Numbers(Vec<i64>),
    Text(String),
    Table(BTreeMap<String, SettingValue>),
}

/// Nothing is wrong with what is not there; [`settings`] tells.
///
/// # Errors
/// None.
pub fn check(_: &SchedulerName) -> Result<(), FileError> {
    Ok(())
}

/// There is none.
///
/// # Errors
/// Always.
pub fn settings(name: &SchedulerName, _: &Told<'_>, _: &Machine) -> Result<SchedExtSettings, String> {
    Err(format!("the scheduler {name:?} is compiled; this program was built without compiled schedulers"))
}
