//! Settings of Linux's fair scheduler.

use super::EraName;
use super::compiled::{self, SettingValue, TandemTable};
use super::scheduler::{SchedulerName, Told};
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;
use tandem_file::file_error::FileError;
use tandem_file::located::{Located, SourceFile};
use tandem_machine::Machine;
use tandem_sim::policy::linux::{Domains, LinuxSettings, SpinLockKind};
use tandem_sim::policy::sched_ext::SchedExtSettings;
use tandem_sim::scenario::PolicySettings;

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

/// The policy of guest kernels: Linux's fair scheduler, or a compiled one.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LinuxTable {
    /// The scheduler: "linux", which it is if absent, "tandem", in guest mode, or "file:" and the path of another compiled
    /// scheduler's object file.
    pub scheduler: Option<Located<SchedulerName>>,
    /// For "tandem": its settings, as in the file that `tandem run` reads.
    pub tandem: Option<Located<TandemTable>>,
    /// For "file:": its settings, by the names of its read-only variables.
    pub settings: Option<Located<BTreeMap<String, SettingValue>>>,
    /// The release whose scheduler to follow: "3.6", "4.2", "5.2" or "6.12", which it is if absent; for a compiled
    /// scheduler, the kernel that runs it: "6.12" or "7.3", which it is if absent.
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
        let linux = SchedulerName::Linux;
        let is_other = |name: &SchedulerName| !name.is_like(base.scheduler.as_deref().unwrap_or(&linux));
        let base = match self.scheduler.as_deref().is_some_and(is_other) {
            true => Self { tick_hz: base.tick_hz, ..Self::default() },
            false => base,
        };
        Self {
            scheduler: self.scheduler.or(base.scheduler),
            tandem: self.tandem.or(base.tandem),
            settings: self.settings.or(base.settings),
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
        let compiled = self.scheduler.as_ref().is_some_and(|name| name.is_compiled());
        if let Some(name) = &self.scheduler
            && **name == SchedulerName::XenCredit
        {
            return Err(
                source.error(name.span(), "a guest's scheduler is \"linux\", \"tandem\" or \"file:...\"")
            );
        }
        match &self.era {
            Some(era) if compiled && era.sched_ext().is_none() => {
                Err(source.error(era.span(), super::SCHED_EXT_ERAS))
            }
            // A variant may leave the scheduler to the scenario.
            Some(era) if !compiled && era.linux().is_none() && era.sched_ext().is_none() => {
                Err(source.error(era.span(), LINUX_ERAS))
            }
            _ => Ok(()),
        }
    }

    /// The engine's form of a guest's policy that was checked, for CPUs as the guest sees them. Paths begin where the source lies.
    ///
    /// # Errors
    /// A sentence, if a compiled scheduler cannot be used, or settings are not those of the guest's scheduler.
    pub fn guest_settings(&self, topology: &Machine, source: &SourceFile) -> Result<PolicySettings, String> {
        let name = self.scheduler.as_deref().cloned().unwrap_or(SchedulerName::Linux);
        let foreign = [
            ("tandem", self.tandem.is_some() && name != SchedulerName::Tandem),
            ("settings", self.settings.is_some() && !matches!(name, SchedulerName::File(_))),
            ("domains", self.domains.is_some() && name.is_compiled()),
            ("spin_locks", self.spin_locks.is_some() && name.is_compiled()),
            ("steal_clock", self.steal_clock.is_some() && name.is_compiled()),
        ];
        if let Some((setting, _)) = foreign.iter().find(|(_, is_foreign)| *is_foreign) {
            return Err(format!(
                "`{setting}` under `guest` is no setting of the guest's scheduler; leave it out"
            ));
        }
        if !name.is_compiled() {
            return Ok(PolicySettings::Linux(self.settings()));
        }
        Ok(PolicySettings::SchedExt(self.compiled_settings(name, true, topology, source)?.into()))
    }

    /// The compiled scheduler of that name with the settings of a table that was checked, for a kernel with these CPUs.
    ///
    /// # Errors
    /// A sentence, if it cannot be used.
    pub(super) fn compiled_settings(
        &self,
        name: SchedulerName,
        is_guest: bool,
        machine: &Machine,
        source: &SourceFile,
    ) -> Result<SchedExtSettings, String> {
        let told = Told {
            tandem: self.tandem.as_deref(),
            variables: self.settings.as_deref(),
            kernel: self.era.as_ref().and_then(|era| era.sched_ext()).unwrap_or_default(),
            tick_hz: self.tick_hz.as_ref().map(|hz| **hz),
            is_guest,
        };
        compiled::settings(&name.in_directory(&source.directory()), &told, machine)
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
