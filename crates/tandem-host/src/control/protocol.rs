//! What is said over the socket: a JSON object a line, a request and its answer in turn.

use crate::agent::VmReport;
use crate::scheduler::Status;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Longest line, bytes: a set of all CPUs that the scheduler can hold has 5 KB.
pub const LINE_MAX: usize = 64 << 10;

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Sets what somebody prefers, in the place of what it did; with neither place nor mark, clears it.
    Prefer {
        /// Whom it is for.
        whom: Whom,
        /// Where it would rather run.
        place: Option<WantedPlace>,
        /// Whether it is exempt from rate control.
        latency_critical: bool,
    },
    /// Reads what somebody prefers.
    PreferenceOf {
        /// Who that is.
        whom: Whom,
    },
    /// Reads what the scheduler does, and its counters.
    Status,
    /// Reads what the agent knows of the VMs.
    Vms,
}

/// Whom a preference is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Whom {
    /// A thread, by its number.
    Task(u32),
    /// A cgroup, by its path from where the hierarchy is mounted.
    Cgroup(PathBuf),
}

/// Where somebody would rather run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WantedPlace {
    /// On these CPUs.
    Cpus(Vec<u32>),
    /// On these nodes.
    Nodes(Vec<u32>),
}

/// What the service answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// It was done.
    Done,
    /// What somebody prefers, if anything.
    Preference(Option<PreferenceTold>),
    /// What the scheduler does.
    Status(Box<Status>),
    /// The VMs; nothing if the settings say that no VMs are given homes, so that nobody looks for any.
    Vms(Option<Vec<VmReport>>),
    /// It was not done.
    Error(ErrorTold),
}

/// What somebody prefers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreferenceTold {
    /// Where it would rather run.
    pub place: Option<WantedPlace>,
    /// The CPUs of that.
    pub cpus: Vec<u32>,
    /// Whether it is exempt from rate control.
    pub latency_critical: bool,
    /// Whether the agent chose that.
    pub by_agent: bool,
    /// How long it has run there, ns.
    pub home_ns: u64,
    /// How long it has run elsewhere, ns.
    pub away_ns: u64,
}

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorTold {
    /// One word, for programs.
    pub kind: ErrorKind,
    /// One sentence, for people.
    pub message: String,
}

/// Why something was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The request is no such, or names what cannot be.
    BadRequest,
    /// The task or cgroup does not exist any more.
    Gone,
    /// Who asks may not.
    Refused,
    /// There are too many connections.
    Busy,
    /// Something else went wrong.
    Failed,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_look_as_the_book_says() {
        let request = Request::Prefer {
            whom: Whom::Task(4711),
            place: Some(WantedPlace::Nodes(vec![1])),
            latency_critical: false,
        };
        let line = r#"{"prefer":{"whom":{"task":4711},"place":{"nodes":[1]},"latency_critical":false}}"#;
        assert_eq!(serde_json::to_string(&request).unwrap(), line);
        assert_eq!(serde_json::from_str::<Request>(line).unwrap(), request);
        assert_eq!(serde_json::from_str::<Request>(r#""status""#).unwrap(), Request::Status);
        assert_eq!(serde_json::from_str::<Request>(r#""vms""#).unwrap(), Request::Vms);
        assert_eq!(serde_json::to_string(&Answer::Vms(None)).unwrap(), r#"{"vms":null}"#);
    }

    #[test]
    fn a_request_with_more_than_it_should_have_is_none() {
        for line in [
            r#"{"preference_of":{"whom":{"task":1},"uid":0}}"#,
            r#"{"status":{}}"#,
            r#"{"preference_of":{"whom":{"task":-1}}}"#,
            r#"{"preference_of":{"whom":{"task":1}},"status":null}"#,
            "[]",
            "",
        ] {
            assert!(serde_json::from_str::<Request>(line).is_err(), "{line}");
        }
    }
}
