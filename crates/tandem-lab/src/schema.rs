//! JSON Schemas of the file formats, for editors and other programs. The meaning of each key is written once,
//! at the field that it is read into.

use crate::experiment::file::ExperimentFile;
use crate::machine_file::MachineFile;
use crate::scenario::file::ScenarioFile;
use schemars::{Schema, schema_for};
use serde_json::{Value, json};

/// Quantities, by the names of their schemas.
const QUANTITIES: [&str; 4] = ["Duration", "Size", "Bandwidth", "Frequency"];

/// The schema of scenario files.
pub fn scenario() -> Schema {
    with_parameters(schema_for!(ScenarioFile))
}

/// The schema of experiment files.
pub fn experiment() -> Schema {
    with_parameters(schema_for!(ExperimentFile))
}

/// The schema of machine files.
pub fn machine() -> Schema {
    schema_for!(MachineFile)
}

/// Allows the name of a parameter in the place of any quantity.
fn with_parameters(mut schema: Schema) -> Schema {
    let definitions = schema.get_mut("$defs").and_then(Value::as_object_mut);
    for (name, quantity) in definitions.into_iter().flatten() {
        if QUANTITIES.contains(&name.as_str()) {
            let parameter = json!({
                "type": "string",
                "description": "\"$name\" for the value of a parameter.",
                "pattern": r"^\$.+$",
            });
            *quantity = json!({ "anyOf": [quantity.take(), parameter] });
        }
    }
    schema
}
