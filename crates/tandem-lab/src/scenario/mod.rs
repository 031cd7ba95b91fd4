//! Scenarios as TOML files.
//!
//! [`mod@file`] is what can be written, word for word; [`ScenarioSource`] is a file that was read; building
//! it with values for its parameters and a policy gives the engine's [`Scenario`]. What is wrong in a file is
//! told by line, with what is allowed.
//!
//! ```
//! use tandem_lab::results::Key;
//! use tandem_lab::scenario::ScenarioSource;
//! # use std::path::Path;
//!
//! let text = r#"
//!     length = "1s"
//!     machine = "xeon-e5620-2s"
//!     [parameters]
//!     vms = 2
//!     [programs.hog]
//!     ops = [{ forever = [{ compute = "1ms" }, { count = "done" }] }]
//!     [[vm]]
//!     group = "hog"
//!     count = "$vms"
//!     vcpus = 4
//!     memory = "1GiB"
//!     programs = ["hog"]
//! "#;
//! let source = ScenarioSource::parse(Path::new("hogs.toml"), text).unwrap();
//! let scenario = source.build(&[("vms".into(), Key::Number(3))].into(), &Default::default()).unwrap();
//! assert_eq!(scenario.workloads[2].name, "hog-2");
//! ```

mod affinity;
pub mod amount;
mod build;
mod cgroups;
mod compile;
pub mod costs;
pub mod cpu_list;
mod events;
pub mod file;
mod guest;
mod hackbench;
pub mod memory;
pub mod pages;
pub mod policy;
mod processes;
pub mod program;
mod sources;

use crate::machine_file::{MachineForm, load_machine};
use tandem_file::file_error::FileError;
use tandem_file::located::{Located, SourceFile, quoted_list};

use crate::results::{Decimal, Key};
use crate::schema;
use file::ScenarioFile;
use policy::{PolicyTable, former};
use program::ProgramTable;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use tandem_machine::{Machine, machine_named, preset_names};
use tandem_sim::program::MemoryProfile;
use tandem_sim::scenario::{PolicySettings, Scenario};

/// Values of a scenario's parameters by name: numbers, whole or not, and texts such as times and names.
pub type Parameters = BTreeMap<String, Key>;

/// The part of a scenario file that says what may stand in the rest.
#[derive(Deserialize)]
struct Defaults {
    #[serde(default)]
    parameters: Parameters,
}

/// A scenario file that was read, with its machine.
#[derive(Clone, Debug)]
pub struct ScenarioSource {
    source: SourceFile,
    parameters: Parameters,
    file: ScenarioFile,
    machine: Arc<Machine>,
    profiles: BTreeMap<String, Arc<MemoryProfile>>,
}

impl ScenarioSource {
    /// Reads a scenario file, and the machine file that it names, if it names one.
    ///
    /// # Errors
    /// If a file cannot be read or says something that is not allowed.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        Self::from_source(SourceFile::read(path)?)
    }

    /// Takes the text as that of the scenario file.
    ///
    /// # Errors
    /// As [`ScenarioSource::read`].
    pub fn parse(path: &Path, text: &str) -> Result<Self, FileError> {
        Self::from_source(SourceFile::new(path, text))
    }

    fn from_source(source: SourceFile) -> Result<Self, FileError> {
        let Defaults { parameters } = source.parse()?;
        source.check_shape(&schema::SCENARIO)?;
        Self::filled_in(source, parameters)
    }

    /// The file with these values in the place of its parameters.
    fn filled_in(source: SourceFile, parameters: Parameters) -> Result<Self, FileError> {
        let values = parameters.iter().map(|(name, value)| (name.clone(), value.to_toml()));
        let parsed = source.parse_with(&values.collect());
        let mut file: ScenarioFile = parsed.map_err(|error| former::explain(error, &source))?;
        let machine = machine_of(&file.machine, &source)?;
        file.policy.check_whole(&source)?;
        let shared = file.profiles.values().filter_map(|profile| profile.shared.as_ref());
        let shared_data: BTreeSet<&str> = shared.map(|shared| shared.data.as_str()).collect();
        let shared_data = Vec::from_iter(shared_data);
        let profiles = file
            .profiles
            .iter()
            .map(|(name, table)| Ok((name.clone(), Arc::new(table.profile(&source, &shared_data)?))))
            .collect::<Result<_, FileError>>()?;
        Ok(Self { source, parameters, file, machine: Arc::new(machine), profiles })
    }

    /// Which tables of the file's policy do not hold under another policy, as that has another host scheduler.
    pub fn left_out_by(&self, policy: &PolicyTable) -> Vec<&'static str> {
        self.file.policy.left_out_by(policy)
    }

    /// Whether a VM of the file has a guest kernel.
    pub fn has_guests(&self) -> bool {
        self.file.vms.iter().any(|vm| vm.guest.is_some())
    }

    /// The machine, under the values that the file gives its parameters.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// The file.
    pub fn source(&self) -> &SourceFile {
        &self.source
    }

    /// The parameters and the values that they have if nothing else is said.
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// The scenario with other values for some parameters, and with other settings of the policy.
    ///
    /// # Errors
    /// If the file has no such parameter, or does not add up: a VM is larger than the machine, a name is
    /// unknown, a number is out of range.
    pub fn build(&self, parameters: &Parameters, policy: &PolicyTable) -> Result<Scenario, FileError> {
        self.build_under(parameters, policy, None)
    }

    /// The same with another host scheduler, which may be in no file.
    ///
    /// # Errors
    /// As [`ScenarioSource::build`].
    pub fn build_under(
        &self,
        parameters: &Parameters,
        policy: &PolicyTable,
        host: Option<PolicySettings>,
    ) -> Result<Scenario, FileError> {
        let mut all = self.parameters.clone();
        for (name, value) in parameters {
            // Where the file has a decimal, any number is one, from a command line too.
            let value = match (self.parameters.get(name), value) {
                (Some(Key::Decimal(_)), Key::Number(number)) => Key::Decimal(Decimal(*number as f64)),
                (Some(Key::Decimal(_)), Key::Text(text)) => {
                    text.parse().map_or_else(|_| value.clone(), |number| Key::Decimal(Decimal(number)))
                }
                _ => value.clone(),
            };
            if all.insert(name.clone(), value).is_none() {
                let known = quoted_list(self.parameters.keys().map(String::as_str));
                let message =
                    format!("there is no parameter `{name}`; parameters under [parameters]: {known}");
                return Err(self.source.error_in_file(message));
            }
        }
        let scenario = Self::filled_in(self.source.clone(), all)?;
        build::build(&scenario, &policy.over(&scenario.file.policy), host)
    }

    /// The program of that name.
    fn program(&self, name: &Located<String>) -> Result<&ProgramTable, FileError> {
        self.file.programs.get(&**name).ok_or_else(|| {
            let known = quoted_list(self.file.programs.keys().map(String::as_str));
            let message = format!("there is no program `{}`; programs under [programs]: {known}", **name);
            self.source.error(name.span(), message)
        })
    }
}

/// The machine that the scenario names or describes.
fn machine_of(form: &Located<MachineForm>, source: &SourceFile) -> Result<Machine, FileError> {
    let name = match &**form {
        MachineForm::Named(name) => name,
        MachineForm::Inline(file) => {
            return file.machine(|span, message| source.error(span.unwrap_or_else(|| form.span()), message));
        }
    };
    if name.ends_with(".toml") {
        return load_machine(&source.sibling(name));
    }
    let machine = machine_named(name).map_err(|error| source.error(form.span(), error.to_string()))?;
    machine.ok_or_else(|| {
        let known = quoted_list(preset_names());
        let message = format!(
            "there is no machine `{name}`; allowed are {known}, PACKAGESxCORESxTHREADS such as `2x64x2`, and a \
             path that ends in .toml"
        );
        source.error(form.span(), message)
    })
}
