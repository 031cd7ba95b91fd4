//! Settings of the agent that chooses homes of VMs while they run.

use crate::scenario::amount::check_time;
use schemars::JsonSchema;
use serde::Deserialize;
use tandem_file::file_error::FileError;
use tandem_file::located::{Located, SourceFile};
use tandem_file::units::Duration;
use tandem_machine::homes::HomeSettings;

/// The simulated agent's times are this many times shorter than those of one on a real host, so that runs of
/// seconds see what happens there in minutes.
const TIMES_SHORTER: u64 = 100;

/// How often the agent scans and when it moves homes.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentTable {
    /// Time between two scans, "1ms" or more; "100ms" if absent.
    pub look_interval: Option<Located<Duration>>,
    /// In how many scans in a row a move must be worth it, at least 1; 3 if absent.
    pub looks_in_a_row: Option<Located<u32>>,
    /// Time over which a move must pay; "3s" if absent.
    pub horizon: Option<Located<Duration>>,
    /// How long a VM keeps a home at least; "1200ms" if absent.
    pub rest: Option<Located<Duration>>,
    /// What a move must gain beyond its cost, in percent of what the VM asks for, at most 100; 5 if absent.
    pub gain_min_pct: Option<Located<u32>>,
}

impl AgentTable {
    /// Shortest time between two scans, ns.
    const INTERVAL_MIN_NS: u64 = 1_000_000;

    /// Checks ranges.
    ///
    /// # Errors
    /// Names the line of the first setting that is out of range.
    pub fn check(&self, source: &SourceFile) -> Result<(), FileError> {
        for time in [&self.look_interval, &self.horizon, &self.rest].into_iter().flatten() {
            check_time(**time).map_err(|message| source.error(time.span(), message))?;
        }
        if let Some(interval) = self.look_interval.as_ref().filter(|time| time.ns < Self::INTERVAL_MIN_NS) {
            let message = format!("`look_interval` is {}; allowed are \"1ms\" and more", **interval);
            return Err(source.error(interval.span(), message));
        }
        if let Some(horizon) = self.horizon.as_ref().filter(|time| time.ns == 0) {
            return Err(source.error(horizon.span(), "the horizon is nothing; it must be longer than \"0s\""));
        }
        if let Some(looks) = self.looks_in_a_row.as_ref().filter(|looks| ***looks == 0) {
            return Err(source.error(looks.span(), "`looks_in_a_row` is 0; at least 1 is needed"));
        }
        if let Some(gain) = self.gain_min_pct.as_ref().filter(|gain| ***gain > 100) {
            let message = format!("`gain_min_pct` is {}; allowed are 0 to 100", **gain);
            return Err(source.error(gain.span(), message));
        }
        Ok(())
    }

    /// The engine's form.
    pub fn settings(&self) -> HomeSettings {
        let default = HomeSettings::default();
        let time = |time: &Option<Located<Duration>>, default_ns: u64| {
            time.as_ref().map_or(default_ns / TIMES_SHORTER, |time| time.ns)
        };
        HomeSettings {
            look_interval_ns: time(&self.look_interval, default.look_interval_ns),
            looks_in_a_row: self.looks_in_a_row.as_deref().copied().unwrap_or(default.looks_in_a_row),
            horizon_ns: time(&self.horizon, default.horizon_ns),
            rest_ns: time(&self.rest, default.rest_ns),
            gain_min_pct: self.gain_min_pct.as_deref().copied().unwrap_or(default.gain_min_pct),
        }
    }
}
