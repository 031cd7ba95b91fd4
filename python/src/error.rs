//! Exceptions. Their classes are Python's, in `tandem/_errors.py`.

use pyo3::exceptions::{PyOSError, PyRuntimeError};
use pyo3::prelude::*;
use std::fmt::Display;
use tandem_file::file_error::FileError;
use tandem_file::shown::one_line;
use tandem_lab::library::LibraryError;
use tandem_lab::request::RequestError;

/// That something asked for is wrong, in a sentence.
pub fn input(py: Python<'_>, message: impl Display) -> PyErr {
    raised(py, "InputError", |class| class.call1((one_line(&message.to_string()),)))
}

/// That this machine cannot do what is asked for, in a sentence.
pub fn machine(py: Python<'_>, message: impl Display) -> PyErr {
    raised(py, "TandemError", |class| class.call1((one_line(&message.to_string()),)))
}

/// That a file, or a dictionary, is wrong: what, and where.
pub fn file(py: Python<'_>, error: &FileError) -> PyErr {
    let message = one_line(&error.message);
    raised(py, "ScenarioError", |class| class.call1((message, one_line(&error.file), error.line)))
}

/// That a scenario is wrong as a whole.
pub fn scenario(py: Python<'_>, name: &str, message: impl Display) -> PyErr {
    file(py, &FileError::whole(name, message.to_string()))
}

/// That there is no such scenario, or it is wrong.
pub fn library(py: Python<'_>, error: LibraryError) -> PyErr {
    match error {
        LibraryError::File(error) => file(py, &error),
        other => input(py, other),
    }
}

/// That a scenario does not fit what is asked of it.
pub fn request(py: Python<'_>, error: RequestError, policies: &[String]) -> PyErr {
    match error {
        RequestError::File(error) => file(py, &error),
        RequestError::Same { one, other } => {
            let one = one.map_or("the scenario's own policy".into(), |at| format!("`{}`", policies[at]));
            let other = &policies[other];
            input(
                py,
                format!(
                    "policy `{other}` is the same as {one}, which leaves nothing to compare; give another"
                ),
            )
        }
        other => input(py, other),
    }
}

/// That a file cannot be read or written.
pub fn os(error: &dyn Display) -> PyErr {
    PyOSError::new_err(one_line(&error.to_string()))
}

/// That this package has a bug.
pub fn internal(what: &str) -> PyErr {
    let version = env!("CARGO_PKG_VERSION");
    PyRuntimeError::new_err(format!(
        "internal error: {what}; please report this bug with the program and its files (tandem {version})"
    ))
}

fn raised<'py>(
    py: Python<'py>,
    class: &str,
    new: impl FnOnce(Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>>,
) -> PyErr {
    let class = py.import("tandem._errors").and_then(|module| module.getattr(class));
    class.and_then(new).map_or_else(|error| error, PyErr::from_value)
}
