//! Why a file is no recording.

use std::path::{Path, PathBuf};

/// Why a recording or a trace cannot be used. Displayed as one sentence without the file's name; it may quote
/// the file, so [`tandem_file::shown`] is for whoever prints it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// It is something else.
    #[error(
        "is not a recording; `tandem record`, trace-cmd (trace.dat), perf (perf.data) and Perfetto make \
         recordings"
    )]
    Unknown,
    /// It is a Parquet file of another program.
    #[error("is a Parquet file that was not written by tandem: {0}")]
    Foreign(String),
    /// It contradicts its format.
    #[error("is damaged at byte {at}: {what}")]
    Damaged {
        /// Where, from the start of the file, or of the part that `what` names.
        at: u64,
        /// What is wrong.
        what: String,
    },
    /// An event contradicts the rest of the recording.
    #[error("event {event} {what}")]
    Event {
        /// Its position, from 0.
        event: u64,
        /// What is wrong.
        what: String,
    },
    /// What it says of itself contradicts itself.
    #[error("{0}")]
    Contradiction(String),
    /// It is in order, but of a kind that is not supported, or lacks what a recording needs.
    #[error("{0}")]
    Unsupported(String),
}

impl TraceError {
    /// What to do about it, after the message.
    fn cure(&self) -> &'static str {
        match self {
            Self::Damaged { .. } | Self::Event { .. } | Self::Contradiction(_) => {
                "; copy the file again from where it was recorded, or record again"
            }
            // The others say it.
            Self::Unknown | Self::Foreign(_) | Self::Unsupported(_) => "",
        }
    }

    /// An error at a byte.
    pub(crate) fn damaged(at: usize, what: impl Into<String>) -> Self {
        Self::Damaged { at: at as u64, what: what.into() }
    }
}

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It cannot be read.
    #[error("{}: cannot be read: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: std::io::Error,
    },
    /// What is in it cannot be used.
    #[error("{}: {error}{}", path.display(), error.cure())]
    Trace {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: TraceError,
    },
}

impl OpenError {
    /// The same error, with the file that it is about.
    pub(crate) fn trace(path: &Path, error: TraceError) -> Self {
        Self::Trace { path: path.to_owned(), error }
    }
}
