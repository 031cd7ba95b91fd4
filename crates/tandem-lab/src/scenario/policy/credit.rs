//! Settings of Xen's credit scheduler.

use super::switch::Switch;
use super::words::{Word, Words};
use schemars::JsonSchema;
use serde::Deserialize;
use tandem_file::file_error::FileError;
use tandem_file::located::{Located, SourceFile};
use tandem_file::units::Duration;
use tandem_sim::policy::credit::{CreditSettings, Era, RateControl};

impl Words for Era {
    const WORDS: &'static [(&'static str, Self, &'static str)] = &[
        ("4.2", Self::Xen4_2, "And 4.1: hard affinity only."),
        ("4.3", Self::Xen4_3, "One preferred set of nodes per VM."),
        ("4.5", Self::Xen4_5, "Soft affinity per vCPU."),
        ("4.9", Self::Xen4_9, "And up to 4.12."),
        ("4.13", Self::Xen4_13, "And later releases."),
    ];
}

/// Settings of Xen's credit scheduler.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CreditTable {
    /// The release of Xen whose scheduler to follow: "4.2", "4.3", "4.5", "4.9" or "4.13" (and later);
    /// "4.9" if absent.
    pub version: Option<Word<Era>>,
    /// How long a vCPU may run at a stretch (`sched_credit_tslice_ms`), "1ms" to "1s"; "30ms" if absent.
    pub timeslice: Option<Located<Duration>>,
    /// How long a vCPU may run before another can preempt it (`sched_ratelimit_us`), "100us" to "500ms", or
    /// "0us" for no limit; "1ms" if absent.
    pub ratelimit: Option<Located<Duration>>,
    /// A vCPU that ran less than this ago is not moved to another pCPU (`vcpu_migration_delay`); "0us", which
    /// is off, if absent.
    pub migration_delay: Option<Located<Duration>>,
    /// The scheduler rate controller of 2011 (`sched_rate_control`): "off", or a table of settings, where {}
    /// is as it was posted; "off" if absent.
    pub rate_control: Option<Switch<RateControlTable>>,
}

/// Settings of the scheduler rate controller.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RateControlTable {
    /// Scheduling decisions in one interval from which on the running vCPU goes on (`sched_rate_high`); 50 if
    /// absent.
    pub rate_high: Option<u32>,
    /// The interval; "10ms" if absent.
    pub interval: Option<Duration>,
}

impl CreditTable {
    /// This table, with what it leaves out taken from `base`.
    pub(super) fn over(self, base: Self) -> Self {
        laid_over!(self, base: version, timeslice, ratelimit, migration_delay, rate_control)
    }

    /// Checks the ranges that Xen allows.
    pub(super) fn check(&self, source: &SourceFile) -> Result<(), FileError> {
        if let Some(timeslice) = &self.timeslice
            && !CreditSettings::TIMESLICES_NS.contains(&timeslice.ns)
        {
            return Err(source
                .error(timeslice.span(), "the timeslice is out of range; allowed are \"1ms\" to \"1s\""));
        }
        if let Some(ratelimit) = &self.ratelimit
            && ratelimit.ns != 0
            && !CreditSettings::RATELIMITS_NS.contains(&ratelimit.ns)
        {
            let message =
                "the rate limit is out of range; allowed are \"0us\" (off) and \"100us\" to \"500ms\"";
            return Err(source.error(ratelimit.span(), message));
        }
        Ok(())
    }

    /// The engine's form of a table that was checked, with defaults for what is left out.
    pub(super) fn settings(&self) -> CreditSettings {
        let default = CreditSettings::default();
        let time_ns =
            |time: &Option<Located<Duration>>, default_ns| time.as_ref().map_or(default_ns, |it| it.ns);
        CreditSettings {
            era: self.version.map_or(default.era, |version| version.0),
            timeslice_ns: time_ns(&self.timeslice, default.timeslice_ns),
            ratelimit_ns: time_ns(&self.ratelimit, default.ratelimit_ns),
            migration_delay_ns: time_ns(&self.migration_delay, default.migration_delay_ns),
            rate_control: self.rate_control.as_ref().and_then(Switch::on).map(|table| {
                let posted = RateControl::default();
                RateControl {
                    rate_high: table.rate_high.unwrap_or(posted.rate_high),
                    interval_ns: table.interval.map_or(posted.interval_ns, |time| time.ns),
                }
            }),
        }
    }
}
