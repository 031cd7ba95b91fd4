//! Scenarios as TOML files.
//!
//! [`mod@file`] is what can be written, word for word; [`ScenarioSource`] is a file that was read; building it with
//! values for its parameters and a policy gives the engine's [`Scenario`]. What is wrong in a file is told by
//! line, with what is allowed.
//!
//! ```
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
//! let scenario = source.build(&[("vms".into(), 3)].into(), &Default::default()).unwrap();
//! assert_eq!(scenario.vms[2].name, "hog-2");
//! ```

pub mod amount;
mod build;
mod compile;
pub mod costs;
pub mod cpu_list;
pub mod file;
mod guest;
pub mod policy;
pub mod program;

use crate::file_error::FileError;
use crate::located::{Located, SourceFile, quoted_list};
use crate::machine_file::load_machine;

use amount::Parameters;
use file::ScenarioFile;
use policy::PolicyTable;
use program::ProgramTable;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use tandem_sim::machine::{self, Machine};
use tandem_sim::program::MemoryProfile;
use tandem_sim::scenario::Scenario;

/// A scenario file that was read, with its machine.
#[derive(Clone, Debug)]
pub struct ScenarioSource {
    source: SourceFile,
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
        let mut file: ScenarioFile = source.parse()?;
        let machine = named_machine(&file.machine, &source)?;
        file.policy.host.get_or_insert_default();
        file.policy.check(&source)?;
        let profiles = file
            .profiles
            .iter()
            .map(|(name, table)| Ok((name.clone(), Arc::new(table.profile(&source)?))))
            .collect::<Result<_, FileError>>()?;
        Ok(Self { source, file, machine: Arc::new(machine), profiles })
    }

    /// The parameters and the values that they have if nothing else is said.
    pub fn parameters(&self) -> &Parameters {
        &self.file.parameters
    }

    /// The scenario with other values for some parameters, and with other settings of the policy.
    ///
    /// # Errors
    /// If the file has no such parameter, or does not add up: a VM is larger than the machine, a name is
    /// unknown, a number is out of range.
    pub fn build(&self, parameters: &Parameters, policy: &PolicyTable) -> Result<Scenario, FileError> {
        let mut all = self.file.parameters.clone();
        for (name, &value) in parameters {
            if all.insert(name.clone(), value).is_none() {
                let known = quoted_list(self.file.parameters.keys().map(String::as_str));
                let message =
                    format!("there is no parameter `{name}`; parameters under [parameters]: {known}");
                return Err(self.source.error_in_file(message));
            }
        }
        build::build(self, &all, &policy.over(&self.file.policy))
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

/// The machine that the scenario names.
fn named_machine(name: &Located<String>, source: &SourceFile) -> Result<Machine, FileError> {
    if name.ends_with(".toml") {
        return load_machine(&source.sibling(name));
    }
    machine::preset(name).ok_or_else(|| {
        let known = quoted_list(machine::preset_names());
        let message =
            format!("there is no machine `{}`; allowed are {known} and a path that ends in .toml", **name);
        source.error(name.span(), message)
    })
}
