//! The status of the loaded scheduler: one form for the command, the socket and the metrics.

use super::{Loaded, SchedulerError};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::time::{Duration, SystemTime};
use tandem_settings::{Counters, Mode};

/// The status of the loaded scheduler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// State of sched_ext: `enabled` while it runs.
    pub state: String,
    /// Its mode.
    pub mode: Mode,
    /// When it was loaded first; in JSON, seconds of Unix time.
    #[serde(rename = "loaded_unix_s", serialize_with = "to_unix", deserialize_with = "from_unix")]
    pub since: SystemTime,
    /// Its counters; in JSON, pairs of name and value.
    pub counters: Counters,
}

impl Status {
    /// When it was loaded first, seconds of Unix time.
    pub fn loaded_unix_s(&self) -> u64 {
        unix_s(&self.since)
    }
}

impl Loaded {
    /// Reads the status.
    ///
    /// # Errors
    /// If it is gone, or of another version.
    pub fn status(&self) -> Result<Status, SchedulerError> {
        Ok(Status {
            state: self.state()?.name,
            mode: self.mode()?,
            since: self.since()?,
            counters: self.counters()?,
        })
    }
}

fn to_unix<S: Serializer>(since: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(unix_s(since))
}

fn unix_s(time: &SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn from_unix<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SystemTime, D::Error> {
    let unix_s = u64::deserialize(deserializer)?;
    let since = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(unix_s));
    since.ok_or_else(|| serde::de::Error::custom("a time that no clock has"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_serialised_as_in_the_book() {
        let named: Vec<(String, u64)> =
            Counters::names().zip(1..).map(|(name, value)| (name.to_owned(), value)).collect();
        let counters = Counters::try_from(named.clone()).unwrap();
        let since = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let status = Status { state: "enabled".into(), mode: Mode::Guest, since, counters };
        let value = serde_json::json!({
            "state": "enabled",
            "mode": "guest",
            "loaded_unix_s": 1_800_000_000,
            "counters": named,
        });
        assert_eq!(serde_json::to_value(&status).unwrap(), value);
        assert_eq!(serde_json::from_value::<Status>(value.clone()).unwrap(), status);
        let mut other = value;
        other["counters"][0][0] = "another_name".into();
        assert!(serde_json::from_value::<Status>(other).is_err(), "counters of another version");
        let far = format!(
            "{{\"state\":\"\",\"mode\":\"host\",\"loaded_unix_s\":{},\"counters\":{}}}",
            u64::MAX,
            serde_json::to_string(&named).unwrap()
        );
        assert!(serde_json::from_str::<Status>(&far).is_err());
    }
}
