//! The policy table: all that a variant of an experiment may change.

use crate::file_error::FileError;
use crate::located::{Located, SourceFile};
use crate::units::Duration;
use schemars::JsonSchema;
use serde::Deserialize;
use tandem_sim::policy::credit::{CreditSettings, Era, RateControl};
use tandem_sim::scenario::PolicySettings;

/// The host's policy and its settings. A variant of an experiment is such a table too: what it leaves out is as
/// in the scenario.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyTable {
    /// The scheduler of the host; "xen-credit" if absent.
    pub host: Option<HostPolicy>,
    /// The release of Xen whose scheduler to follow; "4.9" (and later) if absent.
    pub era: Option<EraName>,
    /// How long a vCPU may run at a stretch (`sched_credit_tslice_ms`), "1ms" to "1s"; "30ms" if absent.
    pub timeslice: Option<Located<Duration>>,
    /// How long a vCPU may run before another can preempt it (`sched_ratelimit_us`), "100us" to "500ms", or
    /// "0us" for no limit; "1ms" if absent.
    pub ratelimit: Option<Located<Duration>>,
    /// A vCPU that ran less than this ago is not moved to another pCPU (`vcpu_migration_delay`); "0us", which is
    /// off, if absent.
    pub migration_delay: Option<Duration>,
    /// The scheduler rate controller of 2011 (`sched_rate_control`); off if absent.
    pub rate_control: Option<RateControlSwitch>,
    /// How VMs without an affinity of their own get one; "none" if absent.
    pub placement: Option<PlacementMode>,
}

/// A scheduler for the host.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HostPolicy {
    /// Xen's credit scheduler.
    XenCredit,
}

/// A release of Xen where the scheduler changed.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, JsonSchema)]
pub enum EraName {
    /// And 4.1: hard affinity only.
    #[serde(rename = "4.2")]
    Xen4_2,
    /// One preferred set of nodes a VM.
    #[serde(rename = "4.3")]
    Xen4_3,
    /// Soft affinity a vCPU.
    #[serde(rename = "4.5")]
    Xen4_5,
    /// Later releases.
    #[serde(rename = "4.9")]
    Xen4_9,
}

impl From<EraName> for Era {
    fn from(name: EraName) -> Self {
        match name {
            EraName::Xen4_2 => Self::Xen4_2,
            EraName::Xen4_3 => Self::Xen4_3,
            EraName::Xen4_5 => Self::Xen4_5,
            EraName::Xen4_9 => Self::Xen4_9,
        }
    }
}

/// The scheduler rate controller: "off", or a table; {} is the controller as it was posted.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected \"off\" or a table such as { rate_high = 50, interval = \"10ms\" }")]
pub enum RateControlSwitch {
    /// No rate control.
    Off(Off),
    /// Rate control with these settings.
    On(RateControlTable),
}

/// The word "off".
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Off {
    /// Switched off.
    Off,
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

/// How VMs without an affinity of their own get one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PlacementMode {
    /// They run everywhere, their memory is spread evenly over all nodes.
    #[default]
    None,
    /// Automatic placement chooses nodes; their memory lies there, and they run nowhere else.
    Pin,
    /// Automatic placement chooses nodes; their memory lies there, and they prefer to run there.
    Prefer,
}

impl PolicyTable {
    /// This table, with what it leaves out taken from `base`.
    pub fn over(&self, base: &Self) -> Self {
        let (top, base) = (self.clone(), base.clone());
        Self {
            host: top.host.or(base.host),
            era: top.era.or(base.era),
            timeslice: top.timeslice.or(base.timeslice),
            ratelimit: top.ratelimit.or(base.ratelimit),
            migration_delay: top.migration_delay.or(base.migration_delay),
            rate_control: top.rate_control.or(base.rate_control),
            placement: top.placement.or(base.placement),
        }
    }

    /// Checks the ranges that Xen allows.
    ///
    /// # Errors
    /// Names the line of the first setting out of range, and the range.
    pub fn check(&self, source: &SourceFile) -> Result<(), FileError> {
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

    /// The engine's form, with defaults for what is left out.
    pub fn settings(&self) -> PolicySettings {
        let default = CreditSettings::default();
        match self.host.unwrap_or(HostPolicy::XenCredit) {
            HostPolicy::XenCredit => PolicySettings::Credit(CreditSettings {
                era: self.era.map_or(default.era, Era::from),
                timeslice_ns: self.timeslice.as_ref().map_or(default.timeslice_ns, |time| time.ns),
                ratelimit_ns: self.ratelimit.as_ref().map_or(default.ratelimit_ns, |time| time.ns),
                migration_delay_ns: self.migration_delay.map_or(default.migration_delay_ns, |time| time.ns),
                rate_control: match &self.rate_control {
                    None | Some(RateControlSwitch::Off(_)) => None,
                    Some(RateControlSwitch::On(table)) => {
                        let posted = RateControl::default();
                        Some(RateControl {
                            rate_high: table.rate_high.unwrap_or(posted.rate_high),
                            interval_ns: table.interval.map_or(posted.interval_ns, |time| time.ns),
                        })
                    }
                },
            }),
        }
    }
}
