//! JSON Schemas of the file formats, for editors and other programs. The meaning of each key is written once,
//! at the field that it is read into.

use crate::experiment::file::ExperimentFile;
use crate::machine_file::MachineFile;
use crate::scenario::file::ScenarioFile;
use crate::study::StudyFile;
use schemars::{Schema, schema_for};
use serde_json::{Value, json};
use std::sync::LazyLock;

/// The schema of scenario files in which no parameter stands for a value.
pub(crate) static SCENARIO: LazyLock<Value> = LazyLock::new(|| schema_for!(ScenarioFile).to_value());
/// The schema of experiment files.
pub(crate) static EXPERIMENT: LazyLock<Value> = LazyLock::new(|| schema_for!(ExperimentFile).to_value());
/// The schema of machine files.
pub(crate) static MACHINE: LazyLock<Value> = LazyLock::new(|| schema_for!(MachineFile).to_value());
/// The schema of study files.
pub(crate) static STUDY: LazyLock<Value> = LazyLock::new(|| schema_for!(StudyFile).to_value());

/// The schema of scenario files.
pub fn scenario() -> Schema {
    with_parameters(schema_for!(ScenarioFile))
}

/// The schema of experiment files. They have no parameters; their `set` gives values to those of scenarios.
pub fn experiment() -> Schema {
    schema_for!(ExperimentFile)
}

/// The schema of machine files.
pub fn machine() -> Schema {
    schema_for!(MachineFile)
}

/// The schema of study files.
pub fn study() -> Schema {
    schema_for!(StudyFile)
}

/// Allows the name of a parameter in the place of any number, quantity or word.
fn with_parameters(schema: Schema) -> Schema {
    let mut whole = schema.to_value();
    // The values of parameters have no parameters themselves.
    let values = whole["$defs"]["Key"].take();
    allow_parameters(&mut whole);
    whole["$defs"]["Key"] = values;
    whole.try_into().expect("the schema of a file is an object")
}

/// The form of a parameter's name.
const PARAMETER: &str = r"^\$.+$";

fn allow_parameters(schema: &mut Value) {
    let parameter = json!({
        "type": "string",
        "description": "\"$name\" for the value of a parameter.",
        "pattern": PARAMETER,
    });
    let is_parameter = |form: &Value| form.get("pattern").is_some_and(|pattern| pattern == PARAMETER);
    if let Some(Value::Array(forms)) = schema.get_mut("anyOf") {
        if forms.iter().any(is_value) && !forms.iter().any(is_parameter) {
            forms.push(parameter);
        }
        forms.iter_mut().filter(|form| !is_value(form)).for_each(allow_parameters);
        return;
    }
    for (key, value) in schema.as_object_mut().into_iter().flatten() {
        match (key.as_str(), value) {
            ("properties" | "$defs", Value::Object(schemas)) => {
                schemas.values_mut().for_each(allow_parameters);
            }
            // A word among them allows the name of a parameter beside all of them, not in its own place:
            // exactly one may fit.
            ("oneOf", Value::Array(forms)) => {
                forms.iter_mut().filter(|form| !is_value(form)).for_each(allow_parameters);
            }
            ("items" | "additionalProperties", schema) => allow_parameters(schema),
            _ => {}
        }
    }
    if is_value(schema) {
        let description = schema.get("description").cloned();
        *schema = json!({ "anyOf": [schema.take(), parameter] });
        if let Some(description) = description {
            schema["description"] = description;
        }
    }
}

/// Whether a schema is that of a number, a quantity or a word, or has words among its forms.
fn is_value(schema: &Value) -> bool {
    let is_number = match schema.get("type") {
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "integer" || kind == "number"),
        kind => kind.is_some_and(|kind| kind == "integer" || kind == "number"),
    };
    let words = schema.get("oneOf").and_then(Value::as_array);
    is_number
        || ["enum", "const", "pattern"].iter().any(|key| schema.get(key).is_some())
        || words.is_some_and(|words| words.iter().any(is_value))
}
