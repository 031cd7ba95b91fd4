//! Why a candidate has no number, in words that help a program, or a person, to mend it.

use serde::{Deserialize, Serialize};
use tandem_file::shown::readable;

/// Most reasons that are given: the first ones are the most useful.
pub const REASONS_MAX: usize = 12;
/// Most bytes of a message that are given, such as of a compiler's errors.
pub const MESSAGE_MAX: usize = 8 << 10;

/// What is wrong, from what comes first in the life of a candidate to what comes last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The source cannot be compiled.
    Compile,
    /// The object cannot be linked, or defines no scheduler.
    Load,
    /// It took too long, or too much memory.
    Limit,
    /// It did what it may not do, or gave up: what a kernel would unload it for.
    Fault,
    /// A task could run, and did not for so long that the watchdog of a kernel would unload the scheduler.
    Watchdog,
    /// A task waited for too long.
    Starvation,
    /// It broke another promise.
    Promise,
    /// It takes from some what it gives to others.
    Sold,
    /// The simulator itself failed, which is a fault of it.
    Simulator,
}

impl Kind {
    /// What helps against it.
    fn advice(self) -> &'static str {
        match self {
            Self::Compile => {
                "mend what the compiler names; only the headers of `tandem build` can be included"
            }
            Self::Load => {
                "define one scheduler with SCX_OPS_DEFINE, and call only what sched_ext of Linux 7.3 has"
            }
            Self::Limit => "make each callback short: bound its loops, and visit few tasks",
            Self::Fault => "mend the access or the call that the message names",
            Self::Watchdog => "insert every task that `enqueue` gets into a queue that `dispatch` serves",
            Self::Starvation => {
                "let each waiting task run in its turn, whatever it weighs and wherever it may run"
            }
            Self::Promise => "share CPU time by weight, and let no CPU idle beside a task that may run there",
            Self::Simulator => "report this candidate to those who make Tandem, and try another",
            Self::Sold => "give each VM its share of CPU time at least in part, then improve",
        }
    }
}

/// A reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// What is wrong.
    pub kind: Kind,
    /// The case in which it showed; absent if none had run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub case: Option<String>,
    /// What happened, to whom and when.
    pub message: String,
    /// What to do.
    pub advice: String,
}

impl Reason {
    /// A reason with the advice of its kind. Control characters of the message, but line breaks, are escaped, and what is beyond
    /// [`MESSAGE_MAX`] is left out.
    pub fn new(kind: Kind, case: Option<&str>, message: impl AsRef<str>) -> Self {
        let mut message = readable(message.as_ref().trim_end(), &['\n', '\t']);
        if message.len() > MESSAGE_MAX {
            message.truncate(message.floor_char_boundary(MESSAGE_MAX));
            message.push_str(" ...");
        }
        Self { kind, case: case.map(Into::into), message, advice: kind.advice().into() }
    }
}
