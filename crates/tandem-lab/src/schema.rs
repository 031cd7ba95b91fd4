//! JSON Schemas of the file formats, for editors and other programs. The meaning of each key is written once,
//! at the field that it is read into.

use crate::experiment::file::ExperimentFile;
use crate::machine_file::MachineFile;
use crate::scenario::file::ScenarioFile;
use schemars::{Schema, schema_for};
use serde_json::{Map, Value, json};

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

/// Allows the name of a parameter in the place of any number, quantity or word.
fn with_parameters(mut schema: Schema) -> Schema {
    // The values of parameters have no parameters themselves.
    let values = schema.get_mut("$defs").and_then(|definitions| definitions.get_mut("Key")).map(Value::take);
    schema.as_object_mut().into_iter().for_each(allow_parameters);
    if let Some(values) = values {
        schema.get_mut("$defs").expect("it has definitions")["Key"] = values;
    }
    schema
}

/// The form of a parameter's name.
const PARAMETER: &str = r"^\$.+$";

fn allow_parameters(schema: &mut Map<String, Value>) {
    let parameter = json!({
        "type": "string",
        "description": "\"$name\" for the value of a parameter.",
        "pattern": PARAMETER,
    });
    let is_parameter = |form: &Value| form.get("pattern").is_some_and(|pattern| pattern == PARAMETER);
    if let Some(Value::Array(forms)) = schema.get_mut("anyOf") {
        let has_values = forms.iter().any(is_value);
        if !forms.iter().any(is_parameter) && has_values {
            forms.push(parameter);
        }
        for form in forms.iter_mut().filter(|form| !is_value(form)).filter_map(Value::as_object_mut) {
            allow_parameters(form);
        }
        return;
    }
    for (key, value) in &mut *schema {
        match (key.as_str(), value) {
            ("properties" | "$defs", Value::Object(schemas)) => {
                schemas.values_mut().filter_map(Value::as_object_mut).for_each(allow_parameters);
            }
            // A word among them allows the name of a parameter beside all of them, not in its own place: exactly
            // one may fit.
            ("oneOf", Value::Array(forms)) => {
                for form in forms.iter_mut().filter(|form| !is_value(form)).filter_map(Value::as_object_mut) {
                    allow_parameters(form);
                }
            }
            ("items" | "additionalProperties", Value::Object(schema)) => allow_parameters(schema),
            _ => {}
        }
    }
    if is_value(&Value::Object(schema.clone())) {
        let value = Value::Object(std::mem::take(schema));
        if let Some(description) = value.get("description") {
            schema.insert("description".into(), description.clone());
        }
        schema.insert("anyOf".into(), json!([value, parameter]));
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
