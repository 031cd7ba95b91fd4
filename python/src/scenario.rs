//! Scenarios as Python gives them: a path, a name of the library, or a dictionary.

use crate::error::{self, input};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use tandem_file::shown::one_line;
use tandem_lab::library::Library;
use tandem_lab::request::Request;
use tandem_lab::results::{Decimal, Key};
use tandem_lab::scenario::{Parameters, ScenarioSource};
use toml::Value;

/// What results and messages call a scenario that is a dictionary.
const DICTIONARY: &str = "scenario";
/// How deep a dictionary may be nested: scenarios are less than twenty deep, and one may hold itself.
const DEPTH_MAX: u32 = 100;

/// The folder of the scenarios and experiments that come with the package.
static INSTALLED: OnceLock<PathBuf> = OnceLock::new();

/// Say where the scenarios and experiments are that come with the package.
#[pyfunction]
pub fn _set_library(folder: PathBuf) {
    // The first import counts; a second one is of the same package.
    let _ = INSTALLED.set(folder);
}

/// The scenarios here, in a folder above, or of the package.
pub fn library() -> Library {
    Library { installed: INSTALLED.get().cloned() }
}

/// The names of the ready scenarios.
#[pyfunction]
pub fn scenarios(py: Python<'_>) -> PyResult<Vec<String>> {
    library().ready().map_err(|error| error::library(py, error))
}

/// Reads a scenario with values for its parameters.
pub fn read(
    scenario: &Bound<'_, PyAny>,
    name: Option<String>,
    parameters: &Bound<'_, PyDict>,
    machine: Option<&str>,
) -> PyResult<Request> {
    let (given, source) = source(scenario, name.as_deref())?;
    let name = one_line(&name.unwrap_or(given));
    let mut request = Request { name, source, parameters: keys(parameters)? };
    if machine.is_some_and(|machine| !request.set_machine(machine)) {
        return Err(input(scenario.py(), "`machine` is given twice, once in `set`; leave one out"));
    }
    Ok(request)
}

/// Reads a scenario, with what it is called if nothing else is said. Messages about a dictionary have the name.
pub fn source(scenario: &Bound<'_, PyAny>, name: Option<&str>) -> PyResult<(String, ScenarioSource)> {
    let py = scenario.py();
    if let Ok(dictionary) = scenario.cast::<PyDict>() {
        let name = name.unwrap_or(DICTIONARY);
        let parsed = ScenarioSource::parse(Path::new(name), &text(dictionary)?);
        return Ok((name.to_owned(), parsed.map_err(|error| error::file(py, &error))?));
    }
    let path: PathBuf = scenario.extract()?;
    let source = library().scenario(&path).map_err(|error| error::library(py, error))?;
    Ok((path.display().to_string(), source))
}

fn keys(parameters: &Bound<'_, PyDict>) -> PyResult<Parameters> {
    let value = |(name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
        let name: String = name.extract()?;
        let value = key(&name, &value)?;
        Ok((name, value))
    };
    parameters.iter().map(value).collect()
}

/// The value of a parameter of that name.
pub fn key(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Key> {
    let key = if value.is_instance_of::<PyBool>() {
        None
    } else if value.is_instance_of::<PyInt>() {
        value.extract().ok().map(Key::Number)
    } else if value.is_instance_of::<PyFloat>() {
        value.extract().ok().map(|number| Key::Decimal(Decimal(number)))
    } else {
        value.extract().ok().map(Key::Text)
    };
    key.ok_or_else(|| {
        let allowed = "allowed are texts, numbers and 64-bit whole numbers";
        input(value.py(), format!("parameter `{name}` is {value}; {allowed}"))
    })
}

/// The text of the scenario file that a dictionary stands for: what lines of errors refer to.
#[pyfunction]
pub fn to_toml(scenario: &Bound<'_, PyDict>) -> PyResult<String> {
    text(scenario)
}

/// The same for any file of the package.
pub fn text(scenario: &Bound<'_, PyDict>) -> PyResult<String> {
    let value = value(scenario.as_any(), &mut Vec::new())?;
    toml::to_string_pretty(&value).map_err(|error| input(scenario.py(), error))
}

/// A value as TOML. `place` are the keys that lead there.
fn value(object: &Bound<'_, PyAny>, place: &mut Vec<String>) -> PyResult<Value> {
    let py = object.py();
    let wrong = |place: &[String], what: String| {
        let at = if place.is_empty() { String::new() } else { format!("`{}`: ", place.join(".")) };
        input(py, format!("{at}{what}"))
    };
    if place.len() as u32 > DEPTH_MAX {
        return Err(wrong(&place[..5], format!("it is nested more than {DEPTH_MAX} deep")));
    }
    if let Ok(dictionary) = object.cast::<PyDict>() {
        let mut table = toml::Table::new();
        for (key, inner) in dictionary {
            let Ok(key) = key.extract::<String>() else {
                return Err(wrong(place, format!("the key {} is no text", key.repr()?)));
            };
            // What is None is as if it were not there, as an optional field of a typed class.
            if inner.is_none() {
                continue;
            }
            place.push(key.clone());
            table.insert(key, value(&inner, place)?);
            place.pop();
        }
        return Ok(Value::Table(table));
    }
    if object.is_instance_of::<PyList>() || object.is_instance_of::<PyTuple>() {
        let mut list = Vec::new();
        for (at, inner) in object.try_iter()?.enumerate() {
            place.push(at.to_string());
            list.push(value(&inner?, place)?);
            place.pop();
        }
        return Ok(Value::Array(list));
    }
    if object.is_instance_of::<PyBool>() {
        return Ok(Value::Boolean(object.extract()?));
    }
    if object.is_instance_of::<PyInt>() {
        let number = object.extract();
        return number
            .map(Value::Integer)
            .map_err(|_| wrong(place, format!("{object} has more than 64 bits")));
    }
    if object.is_instance_of::<PyFloat>() {
        return Ok(Value::Float(object.extract()?));
    }
    if object.is_instance_of::<PyString>() {
        return Ok(Value::String(object.extract()?));
    }
    // A path.
    if let Ok(path) = object.extract::<PathBuf>() {
        return Ok(Value::String(path.display().to_string()));
    }
    let kind = object.get_type().name()?;
    Err(wrong(
        place,
        format!("a {kind} is no value of a scenario; allowed are dict, list, str, int, float, bool and None"),
    ))
}
