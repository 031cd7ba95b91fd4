//! Plans of replays: a recording, and what differs from it, as a file to be edited.

use super::replay::Twin;
use super::situation::{Change, Situation};
use crate::scenario::policy::scheduler::SchedulerName;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tandem_file::file_error::FileError;
use tandem_file::located::SourceFile;
use tandem_file::shown::readable;
use tandem_file::units::Duration;
use tandem_machine::cpumask::CpuMask;
use tandem_machine::{Machine, parse_cpulist};
use tandem_settings::Settings;

/// The group that stands for all.
pub const ALL: &str = "*";

/// What a replay runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// The recording; a relative path begins where the plan lies.
    pub recording: PathBuf,
    /// Another machine: a preset or a machine file; the recorded one if absent.
    pub machine: Option<String>,
    /// Another scheduler; the recorded one if absent.
    pub scheduler: Option<String>,
    /// A file with settings for the scheduler tandem.
    pub settings: Option<PathBuf>,
    /// Another slice for Linux's scheduler.
    pub slice: Option<Duration>,
    /// What differs for a group, by its name; `*` is all.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub group: BTreeMap<String, GroupPlan>,
}

/// What differs for a group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupPlan {
    /// Its weight (`cpu.weight`), 1 to 10000; 100 if nothing else was recorded.
    pub weight: Option<u32>,
    /// The nice value of its tasks, -20 to 19.
    pub nice: Option<i8>,
    /// The CPUs that its tasks may use.
    pub cpus: Option<String>,
    /// How often it is there, 1 to 1000.
    pub copies: Option<u32>,
}

impl GroupPlan {
    /// What is not allowed about it, in words that follow its name.
    pub fn problem(&self) -> Option<&'static str> {
        if self.weight.is_some_and(|weight| !(1..=10_000).contains(&weight)) {
            return Some("a weight is a whole number from 1 to 10000");
        }
        if self.nice.is_some_and(|nice| !(-20..=19).contains(&nice)) {
            return Some("a nice value is a whole number from -20 to 19");
        }
        if self.copies.is_some_and(|copies| !(1..=1000).contains(&copies)) {
            return Some("a group is there 1 to 1000 times");
        }
        None
    }
}

impl Plan {
    /// Reads a plan, with paths from the current folder.
    ///
    /// # Errors
    /// If it cannot be read, or says something that is not allowed.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        let source = SourceFile::read(path)?;
        let mut plan: Self = source.parse()?;
        let folder = path.parent().unwrap_or(Path::new(""));
        plan.recording = folder.join(&plan.recording);
        plan.settings = plan.settings.map(|settings| folder.join(settings));
        match plan.group.iter().find_map(|(name, group)| Some((name, group.problem()?))) {
            Some((name, problem)) => {
                Err(source.error_in_file(format!("group '{}': {problem}", readable(name, &[]))))
            }
            None => Ok(plan),
        }
    }

    /// The situation that it describes; `machine` is the one that it names.
    ///
    /// # Errors
    /// A sentence, if the recording has no such group or the machine no such CPU, or a scheduler or its settings
    /// cannot be used.
    pub fn situation(&self, twin: &Twin<'_>, machine: Option<Machine>) -> Result<Situation, String> {
        let mut situation = Situation::recorded(twin.recording).map_err(|error| error.to_string())?;
        if let Some(machine) = machine {
            situation.machine = Arc::new(machine);
        }
        let name = self.scheduler.as_deref().map(SchedulerName::parse).transpose()?;
        match (&self.settings, name) {
            (Some(path), Some(SchedulerName::Tandem)) => {
                let settings = Settings::read(path).map_err(|error| error.to_string())?;
                situation.set_tandem(&settings)?;
            }
            (Some(_), _) => return Err("settings are for the scheduler tandem; name that, too".into()),
            (None, Some(name)) => {
                let here = std::env::current_dir().map_err(|error| error.to_string())?;
                situation.set_scheduler(name.in_directory(&here))?;
            }
            (None, None) => {}
        }
        if let Some(slice) = self.slice {
            situation.set_slice(slice.ns)?;
        }
        // What is said of one group counts more than what is said of all.
        let all = self.group.get_key_value(ALL);
        for (name, plan) in all.into_iter().chain(self.group.iter().filter(|(name, _)| *name != ALL)) {
            for group in groups(twin, name)? {
                let change = situation.changes.entry(group.clone()).or_default();
                plan.apply(change, twin.recorded_weight(&group), &situation.machine)?;
            }
        }
        Ok(situation)
    }

    /// As a file to be edited: with all groups of the recording, and what could differ for them.
    pub fn to_toml(&self, twin: &Twin<'_>) -> String {
        let mut text = String::from(
            "# What `tandem replay` runs when it is given this file: a recording, and what differs from it. Lines with\n\
             # a # in front are as it was recorded.\n\n",
        );
        let own = Self { group: BTreeMap::new(), ..self.clone() };
        text += &toml::to_string(&own).unwrap_or_default();
        for (key, example) in [
            ("machine", "\"xeon-e5620-2s\""),
            ("scheduler", "\"tandem\""),
            ("settings", "\"tandem.toml\""),
            ("slice", "\"3 ms\""),
        ] {
            if !text.lines().any(|line| line.starts_with(&format!("{key} "))) {
                let _ = writeln!(text, "#{key} = {example}");
            }
        }
        let all = self.group.get_key_value(ALL).map(|(name, _)| name);
        for name in all.into_iter().chain(&twin.model.groups) {
            let plan = self.group.get(name).cloned().unwrap_or_default();
            let _ = writeln!(text, "\n[group.{}]", toml::Value::from(name.as_str()));
            let mut line = |key: &str, value: Option<String>, recorded: String| {
                let _ = match value {
                    Some(value) => writeln!(text, "{key} = {value}"),
                    None => writeln!(text, "#{key} = {recorded}"),
                };
            };
            let weight = twin.recorded_weight(name);
            line("weight", plan.weight.map(|it| it.to_string()), format!("{weight:.0}"));
            line("nice", plan.nice.map(|it| it.to_string()), "0".into());
            line("cpus", plan.cpus.map(|it| toml::Value::from(it).to_string()), "\"0-3\"".into());
            line("copies", plan.copies.map(|it| it.to_string()), "1".into());
        }
        text
    }
}

impl GroupPlan {
    fn apply(&self, change: &mut Change, recorded_weight: f64, machine: &Machine) -> Result<(), String> {
        if let Some(weight) = self.weight {
            change.weight_factor = Some(f64::from(weight) / recorded_weight);
        }
        change.nice = self.nice.or(change.nice);
        change.copies = self.copies.or(change.copies);
        if let Some(list) = &self.cpus {
            change.cpus = Some(cpus(list, machine)?);
        }
        Ok(())
    }
}

/// The groups of that name: all for [`ALL`].
fn groups(twin: &Twin<'_>, name: &str) -> Result<Vec<String>, String> {
    match name {
        ALL => Ok(twin.model.groups.clone()),
        name => twin.check_group(name).map(|()| vec![name.to_owned()]),
    }
}

/// CPUs of the machine.
fn cpus(list: &str, machine: &Machine) -> Result<CpuMask, String> {
    let shown = readable(list, &[]);
    let numbers = parse_cpulist(list).map_err(|error| format!("'{shown}' is no list of CPUs: {error}"))?;
    let mut mask = CpuMask::empty(machine.cpu_count());
    for number in numbers {
        let missing =
            || format!("'{shown}' names CPU {number}, which machine '{}' does not have", machine.name());
        mask.insert(machine.find_cpu(number).ok_or_else(missing)?);
    }
    if mask.is_empty() { Err(format!("'{shown}' names no CPU")) } else { Ok(mask) }
}
