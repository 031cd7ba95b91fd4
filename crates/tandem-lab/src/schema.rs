//! JSON Schemas of the file formats, for editors and other programs. What the keys mean is written once: at the
//! fields that they are read into.

use crate::experiment::file::ExperimentFile;
use crate::machine_file::MachineFile;
use crate::scenario::file::ScenarioFile;
use schemars::{Schema, schema_for};

/// The schema of scenario files.
pub fn scenario() -> Schema {
    schema_for!(ScenarioFile)
}

/// The schema of experiment files.
pub fn experiment() -> Schema {
    schema_for!(ExperimentFile)
}

/// The schema of machine files.
pub fn machine() -> Schema {
    schema_for!(MachineFile)
}
