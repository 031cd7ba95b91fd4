//! Plans of replays: a recording, and what differs from it, as a file to be edited.

use super::replay::Twin;
use super::situation::{Change, Situation, parse_scheduler};
use crate::scenario::policy::scheduler::SchedulerName;
use crate::scenario::policy::words::Word;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tandem_file::file_error::FileError;
use tandem_file::located::SourceFile;
use tandem_file::shown::{readable, toml_string};
use tandem_file::units::Duration;
use tandem_machine::cpumask::CpuMask;
use tandem_machine::{Machine, parse_cpulist, preset};
use tandem_recording::Recording;
use tandem_settings::Settings;
use tandem_sim::scenario::TaskPolicy;

/// The group that stands for all.
pub const ALL: &str = "*";

/// What is before the path of a scheduler in an object file.
const OBJECT: &str = "object:";

/// What a replay runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// The recording; a relative path begins where the plan lies, as do those of the machine, of the scheduler and
    /// of its settings.
    pub recording: PathBuf,
    /// What tells the recording that the plan was made of from others; see [`Plan::made_of`].
    pub made_of: Option<String>,
    /// Another machine: its name, or a machine file; the recorded one if absent.
    pub machine: Option<String>,
    /// Another scheduler; the recorded one if absent.
    pub scheduler: Option<String>,
    /// A file with settings for the scheduler tandem.
    pub settings: Option<PathBuf>,
    /// Another slice for Linux's scheduler.
    pub slice: Option<Duration>,
    /// Recordings of guests, by the names of their VMs; relative paths begin where the plan lies.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub guest: BTreeMap<String, PathBuf>,
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
    /// The scheduling policy of its tasks: normal, batch or idle.
    pub policy: Option<Word<TaskPolicy>>,
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
    /// What tells a recording from others, in words.
    pub fn made_of(recording: &Recording) -> String {
        let about = &recording.about;
        let start =
            about.started_unix_ns.map_or("at an unknown time".into(), |ns| format!("{ns} ns after 1970"));
        format!(
            "{} events of {} tasks in {}, recorded {start}",
            recording.events.len(),
            about.tasks.len(),
            Duration { ns: about.length_ns },
        )
    }

    /// Whether it was made of that recording, as far as it says.
    pub fn is_of(&self, twin: &Twin<'_>) -> bool {
        self.made_of.as_ref().is_none_or(|made_of| *made_of == twin.made_of)
    }

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
        plan.guest.values_mut().for_each(|guest| *guest = folder.join(&guest));
        plan.map_files(|file| Some(folder.join(file)));
        match plan.group.iter().find_map(|(name, group)| Some((name, group.problem()?))) {
            Some((name, problem)) => {
                Err(source.error_in_file(format!("group '{}': {problem}", readable(name, &[]))))
            }
            None => Ok(plan),
        }
    }

    /// Gives it paths that are good in any folder.
    pub fn make_absolute(&mut self) {
        let own = [Some(&mut self.recording), self.settings.as_mut()].into_iter().flatten();
        for path in own.chain(self.guest.values_mut()) {
            *path = path.canonicalize().unwrap_or_else(|_| path.clone());
        }
        self.map_files(|file| file.canonicalize().ok());
    }

    /// Replaces the files among the names of machine and scheduler.
    fn map_files(&mut self, map: impl Fn(&Path) -> Option<PathBuf>) {
        // A path that is no text stays as it is: there is no way to write it.
        let mapped = |file: &str| map(Path::new(file))?.into_os_string().into_string().ok();
        if let Some(machine) = self.machine.as_mut().filter(|name| preset(name).is_none()) {
            *machine = mapped(machine).unwrap_or_else(|| machine.clone());
        }
        if let Some(scheduler) = &mut self.scheduler
            && let Some(file) = scheduler.strip_prefix(OBJECT).and_then(mapped)
        {
            *scheduler = format!("{OBJECT}{file}");
        }
    }

    /// The situation that it describes; `machine` is the one that it names.
    ///
    /// # Errors
    /// A sentence, if the recording has no such group or the machine no such CPU, or a scheduler or its settings
    /// cannot be used.
    pub fn situation(&self, twin: &Twin<'_>, machine: Option<Machine>) -> Result<Situation, String> {
        let mut situation = Situation::recorded(twin.recording)?;
        if let Some(machine) = machine {
            situation.machine = Arc::new(machine);
        }
        let name = self.scheduler.as_deref().map(parse_scheduler).transpose()?;
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
                if !twin.model.groups.contains(&group)
                    && (plan.weight, &plan.cpus, plan.copies) != (None, &None, None)
                {
                    let group = readable(&group, &[]);
                    return Err(format!(
                        "group '{group}' is in a guest, where only nice and policy can be set; set weight, cpus and copies of \
                         its VM"
                    ));
                }
                let change = situation.changes.entry(group.clone()).or_default();
                plan.apply(change, twin.recorded_weight(&group), &situation.machine)
                    .map_err(|problem| format!("group '{}': {problem}", readable(name, &[])))?;
            }
        }
        Ok(situation)
    }

    /// As a file to be edited: with all groups of the recording, and what could differ for them.
    ///
    /// # Errors
    /// A sentence, if the path of a file is no text.
    pub fn to_toml(&self, twin: &Twin<'_>) -> Result<String, String> {
        let mut text = String::from(
            "# What `tandem replay` runs when it is given this file: a recording, and what differs from it. A line\n\
             # with a # in front changes nothing; its value is an example, but for weights, which are those that\n\
             # were recorded.\n\n",
        );
        let own = Self {
            made_of: Some(twin.made_of.clone()),
            guest: BTreeMap::new(),
            group: BTreeMap::new(),
            ..self.clone()
        };
        let no_text = "a path in the plan is no text in UTF-8; rename the file or folder";
        text += &toml::to_string(&own).map_err(|_| no_text)?;
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
        if !self.guest.is_empty() {
            let _ = writeln!(text, "\n[guest]");
            for (name, path) in &self.guest {
                let path = toml_string(path.to_str().ok_or(no_text)?);
                let _ = writeln!(text, "{} = {path}", toml_string(name));
            }
        }
        let all = self.group.get_key_value(ALL).map(|(name, _)| name);
        for name in all.into_iter().chain(&twin.groups) {
            let plan = self.group.get(name).cloned().unwrap_or_default();
            let _ = writeln!(text, "\n[group.{}]", toml_string(name));
            let mut line = |key: &str, value: Option<String>, recorded: String| {
                let _ = match value {
                    Some(value) => writeln!(text, "{key} = {value}"),
                    None => writeln!(text, "#{key} = {recorded}"),
                };
            };
            let is_of_host = name == ALL || twin.model.groups.contains(name);
            if is_of_host {
                let weight = twin.recorded_weight(name);
                line("weight", plan.weight.map(|it| it.to_string()), format!("{weight:.0}"));
            }
            line("nice", plan.nice.map(|it| it.to_string()), "0".into());
            line("policy", plan.policy.map(|it| format!("\"{}\"", it.text())), "\"normal\"".into());
            if is_of_host {
                line("cpus", plan.cpus.map(|it| toml_string(&it)), "\"0-3\"".into());
                line("copies", plan.copies.map(|it| it.to_string()), "1".into());
            }
        }
        Ok(text)
    }
}

impl GroupPlan {
    fn apply(&self, change: &mut Change, recorded_weight: f64, machine: &Machine) -> Result<(), String> {
        if let Some(weight) = self.weight {
            change.weight_factor = Some(f64::from(weight) / recorded_weight);
        }
        change.nice = self.nice.or(change.nice);
        change.policy = self.policy.map(|word| word.0).or(change.policy);
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
