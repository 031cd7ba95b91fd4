//! `tandem.evaluate`.

use crate::error::{self, input};
use crate::scenario::text;
use crate::supervise::supervise;
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process;
use tandem_evaluate::{Error, Own, Subject};
use tandem_file::shown::{one_line, to_json_text};
use tandem_lab::evaluate::Options;
use tandem_lab::evaluate::suite::{Split, Suite};
use tandem_settings::Settings;

/// What a process of an evaluation runs, in an interpreter that has loaded nothing of the user's: this extension alone, which
/// builds the fence before it reads anything.
const CONFINED: &str = "\
import sys
from importlib.util import module_from_spec, spec_from_file_location
spec = spec_from_file_location('_tandem', sys.argv[1])
module = module_from_spec(spec)
spec.loader.exec_module(module)
module._confined(sys.argv[2:])
";
/// What results and messages call settings that are a dictionary.
const DICTIONARY: &str = "settings";
/// The candidate that is Tandem's own scheduler.
const TANDEM: &str = "tandem";

/// Judge a scheduler. `own` is the path of the interpreter, and that of this extension. Gives the JSON and the text.
#[pyfunction]
pub fn evaluate(
    py: Python<'_>,
    candidate: Option<PathBuf>,
    settings: Option<Bound<'_, PyAny>>,
    suite: &str,
    split: &str,
    seed: u64,
    own: (PathBuf, PathBuf),
) -> PyResult<(String, String)> {
    let suite = Suite::named(suite).map_err(|message| input(py, message))?;
    let split = Split::named(split).map_err(|message| input(py, message))?;
    let (command, file) = own;
    let start = ["-I", "-S", "-c", CONFINED].map(OsString::from);
    let arguments = start.into_iter().chain([file.clone().into_os_string()]).collect();
    let own = Own { name: "python", file, command, arguments };
    let candidate = candidate.filter(|path| path != Path::new(TANDEM));
    if candidate.is_some() && settings.is_some() {
        return Err(input(py, "`settings` are for Tandem's own scheduler; leave them out, or the candidate"));
    }
    let (name, settings) = match settings {
        Some(settings) => read(&settings)?,
        None => (TANDEM.into(), Settings::default()),
    };
    let evaluation = supervise(py, None, |monitor| {
        let subject = match &candidate {
            Some(path) => Subject::File(path),
            None => Subject::Tandem(&name, &settings),
        };
        tandem_evaluate::evaluate(subject, suite, Options { split, seed }, &own, monitor.ended())
    })?;
    let evaluation = evaluation.map_err(|error| match error {
        Error::Input(message) => input(py, message),
        Error::Machine(message) => error::machine(py, message),
        Error::Ended => PyKeyboardInterrupt::new_err(()),
    })?;
    let json = to_json_text(&evaluation).map_err(|error| error::internal(&error.to_string()))?;
    Ok((json, evaluation.to_string()))
}

/// Settings with their name: of a file, or of a dictionary with what a file has.
fn read(settings: &Bound<'_, PyAny>) -> PyResult<(String, Settings)> {
    let py = settings.py();
    let (name, settings) = match settings.cast::<PyDict>() {
        Ok(dictionary) => (DICTIONARY.into(), Settings::from_toml(Path::new(DICTIONARY), &text(dictionary)?)),
        Err(_) => {
            let path: PathBuf = settings.extract()?;
            let name = one_line(&path.file_name().unwrap_or_default().to_string_lossy());
            (name, Settings::read(&path))
        }
    };
    Ok((name, settings.map_err(|error| error::file(py, &error))?))
}

/// Do one piece of an evaluation's work behind a fence, and end this process. `evaluate` starts a process for it.
#[pyfunction]
pub fn _confined(arguments: Vec<OsString>) {
    let status = match tandem_evaluate::confined::run(&arguments) {
        Ok(()) => 0,
        Err(error) => {
            // Standard error may be closed.
            let _ = writeln!(std::io::stderr(), "{error}");
            1
        }
    };
    // The interpreter would do more than the fence allows.
    process::exit(status)
}
