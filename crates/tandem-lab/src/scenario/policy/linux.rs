//! Settings of Linux's fair scheduler.

use super::EraName;
use schemars::JsonSchema;
use serde::Deserialize;
use tandem_file::file_error::FileError;
use tandem_file::located::{Located, SourceFile};
use tandem_sim::policy::linux::{Domains, LinuxSettings, SpinLockKind};

/// The eras that a Linux kernel has, for errors.
pub(super) const LINUX_ERAS: &str =
    "the `era` of a Linux kernel is one of \"3.6\", \"4.2\", \"5.2\", \"6.12\"";

/// From what the scheduling domains of a Linux kernel are built.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DomainsName {
    /// From the topology that the kernel sees: a level for threads, caches, packages and nodes.
    Topology,
    /// One level over all CPUs, without flags: the flat domain.
    Flat,
}

impl From<DomainsName> for Domains {
    fn from(name: DomainsName) -> Self {
        match name {
            DomainsName::Topology => Self::Topology,
            DomainsName::Flat => Self::Flat,
        }
    }
}

/// How the waiters of a Linux kernel's spin lock stand in line.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SpinLocksName {
    /// All watch one cache line for their number.
    Ticket,
    /// Each watches a cache line of its own.
    Queued,
}

impl From<SpinLocksName> for SpinLockKind {
    fn from(name: SpinLocksName) -> Self {
        match name {
            SpinLocksName::Ticket => Self::Ticket,
            SpinLocksName::Queued => Self::Queued,
        }
    }
}

/// The policy of guest kernels: Linux's fair scheduler.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LinuxTable {
    /// The release whose scheduler to follow: "3.6", "4.2", "5.2" or "6.12", which it is if absent.
    pub era: Option<Located<EraName>>,
    /// From what the scheduling domains are built; "topology" if absent.
    pub domains: Option<Located<DomainsName>>,
    /// Ticks a second (`CONFIG_HZ`): 100, 250, 300 or 1000; 250 if absent.
    pub tick_hz: Option<Located<u32>>,
    /// How those that wait for a spin lock stand in line; if absent "queued", and "ticket" with era "3.6".
    pub spin_locks: Option<Located<SpinLocksName>>,
    /// Whether time that the host stole is taken off the time that tasks are charged for
    /// (`CONFIG_PARAVIRT_TIME_ACCOUNTING`); true if absent.
    pub steal_clock: Option<bool>,
}

impl LinuxTable {
    /// This table, with what it leaves out taken from `base`.
    pub(super) fn over(self, base: Self) -> Self {
        Self {
            era: self.era.or(base.era),
            domains: self.domains.or(base.domains),
            tick_hz: self.tick_hz.or(base.tick_hz),
            spin_locks: self.spin_locks.or(base.spin_locks),
            steal_clock: self.steal_clock.or(base.steal_clock),
        }
    }

    /// Checks what Linux allows.
    pub(super) fn check(&self, source: &SourceFile) -> Result<(), FileError> {
        check_tick(self.tick_hz.as_ref(), source)?;
        match &self.era {
            Some(era) if era.linux().is_none() => Err(source.error(era.span(), LINUX_ERAS)),
            _ => Ok(()),
        }
    }

    /// The engine's form of a table that was checked, with defaults for what is left out.
    pub fn settings(&self) -> LinuxSettings {
        let default = LinuxSettings::default();
        LinuxSettings {
            era: self.era.as_ref().and_then(|era| era.linux()).unwrap_or(default.era),
            domains: self.domains.as_ref().map_or(default.domains, |domains| (**domains).into()),
            tick_hz: self.tick_hz.as_ref().map_or(default.tick_hz, |hz| **hz),
            steal_clock: self.steal_clock.unwrap_or(default.steal_clock),
            spin_locks: self.spin_locks.as_ref().map(|kind| (**kind).into()),
            // Guests give their tasks none.
            soft_affinity: default.soft_affinity,
            numa_balancing: false,
        }
    }
}

/// Checks that Linux can be configured with that tick.
pub(super) fn check_tick(tick_hz: Option<&Located<u32>>, source: &SourceFile) -> Result<(), FileError> {
    match tick_hz {
        Some(tick_hz) if !LinuxSettings::TICKS_HZ.contains(tick_hz) => {
            let message = format!("`tick_hz` is {}; allowed are 100, 250, 300 and 1000", **tick_hz);
            Err(source.error(tick_hz.span(), message))
        }
        _ => Ok(()),
    }
}
