//! The protocol of the socket: one JSON object per line, a request and its answer in turn.

use crate::agent::VmReport;
use crate::scheduler::Status;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Longest line, bytes: a set of all CPUs that the scheduler's tables hold has 5 KB.
pub const LINE_MAX: usize = 64 << 10;

/// A request of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Replaces the preference of a task or cgroup; clears it if there is neither place nor mark.
    Prefer {
        /// The task or cgroup.
        whom: Whom,
        /// Where to run.
        place: Option<WantedPlace>,
        /// Whether rate control exempts it.
        latency_critical: bool,
    },
    /// Reads the preference of a task or cgroup.
    PreferenceOf {
        /// The task or cgroup.
        whom: Whom,
    },
    /// Reads the scheduler's status and its counters.
    Status,
    /// Reads the agent's reports of the VMs.
    Vms,
}

/// The subject of a preference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Whom {
    /// A thread, by its number.
    Task(u32),
    /// A cgroup, by its path from the mount point of the hierarchy.
    Cgroup(PathBuf),
}

/// Where to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WantedPlace {
    /// On these CPUs.
    Cpus(Vec<u32>),
    /// On these nodes.
    Nodes(Vec<u32>),
}

/// An answer of the service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The change is made.
    Done,
    /// The preference, if there is one.
    Preference(Option<PreferenceTold>),
    /// The scheduler's status.
    Status(Box<Status>),
    /// The VMs; `None` if the settings disable homes, so that no agent runs.
    Vms(Option<Vec<VmReport>>),
    /// The request failed.
    Error(ErrorTold),
}

/// A preference and its effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreferenceTold {
    /// Where to run.
    pub place: Option<WantedPlace>,
    /// The CPUs of that place.
    pub cpus: Vec<u32>,
    /// Whether rate control exempts it.
    pub latency_critical: bool,
    /// Whether the agent set it.
    pub by_agent: bool,
    /// How long the task has run on those CPUs, ns.
    pub home_ns: u64,
    /// How long it has run elsewhere, ns.
    pub away_ns: u64,
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorTold {
    /// Machine-readable.
    pub kind: ErrorKind,
    /// One sentence for the user.
    pub message: String,
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The request is malformed, or names something impossible.
    BadRequest,
    /// The task or cgroup no longer exists.
    Gone,
    /// The user is not permitted.
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
    fn lines_are_as_in_the_book() {
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
