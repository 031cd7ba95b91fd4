//! Judges schedulers, also those that strangers wrote.
//!
//! **Problem.** A program that searches for schedulers hands over whatever it has come up with, thousands of times, and
//! nobody looks at it before. The command and the Python package judge alike.
//!
//! **Approach.** Two processes that can do nothing else ([`confined`]), the compiler and the simulator, see what a stranger wrote, one
//! after the other. This one reads the file, knows what Linux does in the same cases ([`references`]), and makes the number.
//! Whoever uses this library names a command that starts such a process ([`Own`]). Settings of Tandem's own scheduler are
//! judged in this process: the code is ours.
//!
//! **Limits.** One candidate at a time, on one CPU; a search judges as many at a time as it has CPUs.

pub mod clang;
pub mod compile;
pub mod confined;
pub mod headers;
pub mod references;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use tandem_file::named_file::{OBJECT_MAX, read_bytes};
use tandem_file::shown::one_line;
use tandem_file::units::Size;
use tandem_lab::evaluate::reasons::{Kind, Reason};
use tandem_lab::evaluate::run::Loaded;
use tandem_lab::evaluate::suite::Suite;
use tandem_lab::evaluate::{Candidate, Evaluation, Options};
use tandem_settings::Settings;

/// Most bytes of a source: ten times as many as the largest scheduler of scx has.
const SOURCE_MAX: Size = Size { bytes: 4 << 20 };

/// Why a candidate was not judged, or a source not compiled: not for what it is.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What the user gave is wrong.
    #[error("{0}")]
    Input(String),
    /// This machine, or this program, cannot do it.
    #[error("{0}")]
    Machine(String),
    /// The caller has ended it.
    #[error("it was ended")]
    Ended,
}

impl Error {
    /// That something cannot be done here, for a cause.
    pub(crate) fn machine(what: impl AsRef<str>, cause: impl std::fmt::Display) -> Self {
        Self::Machine(format!("{}: {cause}", what.as_ref()))
    }
}

/// The program that this library is part of.
#[derive(Clone, Debug)]
pub struct Own {
    /// A word that tells it from the other programs with this library.
    pub name: &'static str,
    /// The file that this library is in. What is kept of Linux is that of the file as it is.
    pub file: PathBuf,
    /// The command that starts a process which calls [`confined::run`], with the arguments that follow these.
    pub command: PathBuf,
    /// The first arguments of the command.
    pub arguments: Vec<OsString>,
}

/// What is judged.
#[derive(Clone, Copy, Debug)]
pub enum Subject<'a> {
    /// A C source, NAME.bpf.c, or an object file, NAME.bpf.o.
    File(&'a Path),
    /// Tandem's own scheduler, with settings of that name.
    Tandem(&'a str, &'a Settings),
}

/// Judges a candidate. The evaluation ends early once `ended` is set.
///
/// # Errors
/// If the file is none, or this machine cannot judge. What is wrong with the candidate is in the evaluation.
pub fn evaluate(
    subject: Subject<'_>,
    suite: Suite,
    options: Options,
    own: &Own,
    ended: &AtomicBool,
) -> Result<Evaluation, Error> {
    let cases = suite.cases(options);
    let refused = |name: &str, reason| Ok(Evaluation::refused(name, suite, options, reason));
    let (name, object);
    let (candidate, outcomes) = match subject {
        Subject::File(path) => {
            name = one_line(&path.file_name().unwrap_or_default().to_string_lossy());
            object = match object_of(path, &name, own, ended)? {
                Ok(object) => object,
                Err(reason) => return refused(&name, reason),
            };
            match confined::judge(&name, &object, suite, options, own, ended)? {
                Ok(outcomes) => (Candidate::object(&name, &object), outcomes),
                Err(reason) => return refused(&name, reason),
            }
        }
        Subject::Tandem(name, settings) => {
            let candidate = Candidate::tandem(name, settings);
            let outcomes = Loaded::new(candidate, suite).and_then(|loaded| loaded.outcomes(&cases, ended));
            match outcomes.map_err(Error::Machine)? {
                Some(outcomes) => (candidate, outcomes),
                None => return Err(Error::Ended),
            }
        }
    };
    let references = references::of(suite, options, &cases, own).map_err(Error::Machine)?;
    Ok(Evaluation::new(candidate, suite, options, &cases, &outcomes, &references))
}

/// The object in a file, or of the source in it; or why there is none.
fn object_of(
    path: &Path,
    name: &str,
    own: &Own,
    ended: &AtomicBool,
) -> Result<Result<Vec<u8>, Reason>, Error> {
    let shown = one_line(&path.display().to_string());
    let read = |most| read_bytes(path, most).map_err(|error| Error::Input(format!("{shown}: {error}")));
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("c") => compile::compile(name, &read(SOURCE_MAX)?, own, ended),
        Some("o") => Ok(Ok(read(OBJECT_MAX)?)),
        _ => {
            let message =
                "is neither a C source nor an object by its name; name a file that ends in .bpf.c or .bpf.o";
            Err(Error::Input(format!("{shown}: {message}")))
        }
    }
}

/// A reason about a bound of a process.
fn limit(message: String) -> Reason {
    Reason::new(Kind::Limit, None, message)
}
