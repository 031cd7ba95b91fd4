//! Settings of Xen's credit2 scheduler.

use super::words::{Word, Words};
use schemars::JsonSchema;
use serde::Deserialize;
use tandem_file::file_error::FileError;
use tandem_file::located::{Located, SourceFile};
use tandem_file::units::Duration;
use tandem_sim::policy::credit2::{Credit2Settings, Release, Sharing};

impl Words for Release {
    const WORDS: &'static [(&'static str, Self, &'static str)] = &[
        ("4.12", Self::Xen4_12, "And 4.13: run queues of any number of CPUs."),
        ("4.14", Self::Xen4_14, "And 4.15: run queues of a limited number of CPUs."),
        ("4.17", Self::Xen4_17, "And 4.16 and 4.18: `runqueue = \"all\"` may part the threads of a core."),
        ("4.20", Self::Xen4_20, "And 4.19 and later: turns end when a preempted vCPU is due."),
    ];
}

impl Words for Sharing {
    const WORDS: &'static [(&'static str, Self, &'static str)] = &[
        ("cpu", Self::Cpu, "Each CPU has its own."),
        ("core", Self::Core, "The threads of a core share one."),
        ("socket", Self::Socket, "The CPUs of a socket share one."),
        ("node", Self::Node, "The CPUs of a NUMA node share one."),
        ("all", Self::All, "All CPUs share one."),
    ];
}

/// Settings of Xen's credit2 scheduler.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Credit2Table {
    /// The release of Xen whose scheduler to follow: "4.12", "4.14", "4.17" or "4.20"; "4.20" if absent.
    pub version: Option<Word<Release>>,
    /// Which CPUs share a run queue (`credit2_runqueue`); "socket" if absent.
    pub runqueue: Option<Word<Sharing>>,
    /// Most CPUs of a run queue (`sched_credit2_max_cpus_runqueue`), at least 1; 16 if absent. "4.12" has no
    /// limit.
    pub max_cpus_runqueue: Option<Located<u32>>,
    /// How long a vCPU may run before another can preempt it (`sched_ratelimit_us`), "100us" to "500ms", or
    /// "0us" for no limit; "1ms" if absent.
    pub ratelimit: Option<Located<Duration>>,
    /// Credit that a vCPU must be ahead of another to take a CPU other than its last
    /// (`sched_credit2_migrate_resist`), at most "10ms"; "500us" if absent.
    pub migrate_resist: Option<Located<Duration>>,
    /// Time after which capped VMs get their budget anew (`credit2_cap_period_ms`), "1ms" to "1s"; "10ms" if
    /// absent.
    pub cap_period: Option<Located<Duration>>,
}

impl Credit2Table {
    /// This table, with what it leaves out taken from `base`.
    pub(super) fn over(self, base: Self) -> Self {
        laid_over!(self, base: version, runqueue, max_cpus_runqueue, ratelimit, migrate_resist, cap_period)
    }

    /// Checks the ranges that Xen allows.
    pub(super) fn check(&self, source: &SourceFile) -> Result<(), FileError> {
        if let Some(most) = &self.max_cpus_runqueue
            && **most == 0
        {
            return Err(source.error(most.span(), "a run queue needs at least 1 CPU"));
        }
        let check = |time: &Option<Located<Duration>>, is_allowed: fn(u64) -> bool, problem: &str| match time
        {
            Some(time) if !is_allowed(time.ns) => Err(source.error(time.span(), problem)),
            _ => Ok(()),
        };
        check(
            &self.ratelimit,
            |ns| ns == 0 || Credit2Settings::RATELIMITS_NS.contains(&ns),
            "the rate limit is out of range; allowed are \"0us\" (off) and \"100us\" to \"500ms\"",
        )?;
        check(
            &self.migrate_resist,
            |ns| ns <= Credit2Settings::MIGRATE_RESIST_MAX_NS,
            "the resistance against migration is out of range; allowed are \"0us\" to \"10ms\"",
        )?;
        check(
            &self.cap_period,
            |ns| Credit2Settings::CAP_PERIODS_NS.contains(&ns),
            "the period of caps is out of range; allowed are \"1ms\" to \"1s\"",
        )
    }

    /// The engine's form of a table that was checked, with defaults for what is left out.
    pub(super) fn settings(&self) -> Credit2Settings {
        let default = Credit2Settings::default();
        let time_ns =
            |time: &Option<Located<Duration>>, default_ns| time.as_ref().map_or(default_ns, |it| it.ns);
        Credit2Settings {
            release: self.version.map_or(default.release, |version| version.0),
            sharing: self.runqueue.map_or(default.sharing, |sharing| sharing.0),
            queue_cpus_max: self.max_cpus_runqueue.as_ref().map_or(default.queue_cpus_max, |most| **most),
            ratelimit_ns: time_ns(&self.ratelimit, default.ratelimit_ns),
            migrate_resist_ns: time_ns(&self.migrate_resist, default.migrate_resist_ns),
            cap_period_ns: time_ns(&self.cap_period, default.cap_period_ns),
        }
    }
}
