//! How the programs report errors.
//!
//! A verb returns any error; an error that another file or option cures is wrapped in [`BadInput`]
//! where it arises:
//!
//! ```
//! use tandemd::error::BadInput;
//!
//! fn vcpus(text: &str) -> Result<u32, BadInput> {
//!     text.parse().map_err(|error| BadInput::new(format!("vcpus is `{text}`: {error}")))
//! }
//! assert!(vcpus("-1").is_err());
//! ```

use crate::journal;
use std::error::Error;
use std::fmt;
use std::io::{self, Write};
use std::panic;
use std::process::{self, ExitCode};
pub use tandem_file::shown::one_line;
use tandem_host::log_entry::Level;

/// End of `tandem --help`.
pub const EXIT_STATUS_HELP: &str = "Exit status: 0 for success, 2 for a wrong option or file, 1 for any other \
    failure, 70 for a bug in Tandem.";

const FAILURE: u8 = 1;
const BAD_INPUT: u8 = 2;
/// `EX_SOFTWARE` of BSD's sysexits.h.
const BUG: i32 = 70;

/// An error in the user's input; the message says what, where, and what is allowed.
#[derive(Debug)]
pub struct BadInput(Box<dyn Error + Send + Sync>);

impl BadInput {
    /// Marks an error, or a sentence, as being about the user's input.
    pub fn new(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self(error.into())
    }
}

impl fmt::Display for BadInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for BadInput {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}

/// Prints an error and its causes in one line; returns the exit status.
///
/// A closed pipe, as in `tandem ... | head`, is no error.
pub fn report(error: &anyhow::Error) -> ExitCode {
    if error.chain().any(is_broken_pipe) {
        return ExitCode::SUCCESS;
    }
    journal::log(Level::Error, "failed", one_line(&format!("{error:#}")));
    let bad_input = error.downcast_ref::<BadInput>().is_some();
    ExitCode::from(if bad_input { BAD_INPUT } else { FAILURE })
}

fn is_broken_pipe(cause: &(dyn Error + 'static)) -> bool {
    let kind = match cause.downcast_ref::<serde_json::Error>() {
        Some(json) => json.io_error_kind(),
        None => cause.downcast_ref::<io::Error>().map(io::Error::kind),
    };
    kind == Some(io::ErrorKind::BrokenPipe)
}

/// Makes a panic, which is always a bug, end the command with one line that asks for a report.
pub fn install_panic_hook() {
    panic::set_hook(Box::new(|panic| {
        let message = one_line(panic.payload_as_str().unwrap_or("no message"));
        let place = panic.location().map(|location| format!(" at {location}")).unwrap_or_default();
        let _ = writeln!(
            io::stderr(),
            "tandem: internal error{place}: {message}; please report this bug with the command and its files \
             (tandem {})",
            env!("CARGO_PKG_VERSION"),
        );
        process::exit(BUG);
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(error: anyhow::Error) -> String {
        format!("{:?}", report(&error))
    }

    fn code(code: u8) -> String {
        format!("{:?}", ExitCode::from(code))
    }

    #[test]
    fn bad_input_is_told_from_other_failures() {
        let cases = [
            (BadInput::new("no such machine").into(), 2),
            (anyhow::Error::new(BadInput::new("no unit")).context("a.toml"), 2),
            (io::Error::from(io::ErrorKind::PermissionDenied).into(), 1),
            (io::Error::from(io::ErrorKind::BrokenPipe).into(), 0),
            (serde_json::Error::io(io::ErrorKind::BrokenPipe.into()).into(), 0),
        ];
        for (error, expected) in cases {
            let text = format!("{error:#}");
            assert_eq!(status(error), code(expected), "{text}");
        }
    }

    #[test]
    fn each_cause_is_told_once() {
        let error = anyhow::anyhow!("no such file").context("a.toml");
        let error = anyhow::Error::new(BadInput::new(error));
        assert_eq!(format!("{error:#}"), "a.toml: no such file");
    }
}
