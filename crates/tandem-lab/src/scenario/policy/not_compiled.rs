//! Stands for compiled schedulers in a build without them: a file that asks for one cannot be used.

use super::scheduler::SchedulerName;
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;
use tandem_sim::machine::Machine;
use tandem_sim::policy::sched_ext::{KernelVersion, SchedExtSettings};

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

/// What a compiled scheduler is told before it starts.
#[allow(missing_docs)]
pub struct Told<'a> {
    pub tandem: Option<&'a TandemTable>,
    pub variables: Option<&'a BTreeMap<String, SettingValue>>,
    pub kernel: KernelVersion,
    pub tick_hz: Option<u32>,
    pub is_guest: bool,
}

/// There is none.
///
/// # Errors
/// Always.
pub fn settings(name: &SchedulerName, _: &Told<'_>, _: &Machine) -> Result<SchedExtSettings, String> {
    Err(format!("the scheduler {name:?} is compiled; this program was built without compiled schedulers"))
}
