//! Settings of Linux's fair scheduler, of hosts and of guests.

use super::soft_affinity::SoftAffinitySetting;
use super::words::{Word, Words};
use schemars::JsonSchema;
use serde::Deserialize;
use std::ops::Range;
use tandem_file::file_error::FileError;
use tandem_file::located::{Located, SourceFile};
use tandem_sim::policy::linux::{Domains, LinuxEra, LinuxSettings, Preemption, SoftAffinity, SpinLockKind};
use tandem_sim::scenario::TaskPolicy;

impl Words for LinuxEra {
    const WORDS: &'static [(&'static str, Self, &'static str)] = &[
        ("3.6", Self::V3_6, "CFS of 2012."),
        ("4.2", Self::V4_2, "CFS of 2015, with the load of each task."),
        ("5.2", Self::V5_2, "CFS of 2019, whose CPUs remember what tasks that sleep have used."),
        ("6.12", Self::V6_12, "EEVDF of 2024, with what its stable releases have added up to 2026."),
        ("6.18", Self::V6_18, "EEVDF of 2025, as its stable releases have it."),
        ("7.3", Self::V7_3, "EEVDF of 2026, whose slices end by a timer, and which preempts lazily."),
    ];
}

impl Words for Preemption {
    const WORDS: &'static [(&'static str, Self, &'static str)] = &[
        ("voluntary", Self::Voluntary, "At once, unless the kernel itself runs, which the model leaves out."),
        ("full", Self::Full, "At once."),
        (
            "lazy",
            Self::Lazy,
            "For a wake-up and the end of a slice, when the CPU next returns to its task; else at once.",
        ),
    ];
}

impl Words for TaskPolicy {
    const WORDS: &'static [(&'static str, Self, &'static str)] = &[
        ("normal", Self::Normal, "SCHED_OTHER: it may preempt another task when it wakes up."),
        ("batch", Self::Batch, "SCHED_BATCH: it does not preempt others when it wakes up."),
        ("idle", Self::Idle, "SCHED_IDLE: it has a weight of 3, and other tasks preempt it."),
    ];
}

impl Words for Domains {
    const WORDS: &'static [(&'static str, Self, &'static str)] = &[
        (
            "topology",
            Self::Topology,
            "From the topology that the kernel sees: a level for threads, caches, packages and nodes.",
        ),
        ("flat", Self::Flat, "One level over all CPUs, without flags: the flat domain."),
    ];
}

impl Words for SpinLockKind {
    const WORDS: &'static [(&'static str, Self, &'static str)] = &[
        ("ticket", Self::Ticket, "All waiters watch one cache line for their number."),
        ("queued", Self::Queued, "Each waiter watches a cache line of its own."),
    ];
}

/// Settings of Linux's fair scheduler on a host, where each vCPU is a task, as under KVM.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LinuxHostTable {
    /// The release whose scheduler to follow: "3.6", "4.2", "5.2", "6.12", "6.18" or "7.3";
    /// "6.12" if absent.
    pub version: Option<Word<LinuxEra>>,
    /// From what the scheduling domains are built; "topology" if absent.
    pub domains: Option<Word<Domains>>,
    /// Ticks per second (`CONFIG_HZ`): 100, 250, 300 or 1000; 250 if absent.
    pub tick_hz: Option<Located<u32>>,
    /// How the waiters of a spin lock of the host, such as a run queue's, stand in line; if absent "queued",
    /// and "ticket" in version "3.6".
    pub spin_locks: Option<Word<SpinLockKind>>,
    /// When a CPU that has to reschedule does so: "voluntary" (up to version "6.18"), "full" or "lazy" (from
    /// "6.18" on); if absent "lazy" in "7.3", else "voluntary".
    pub preemption: Option<Located<Word<Preemption>>>,
    /// What the scheduler makes of soft affinities: "ignored", "work-conserving" (from version "5.2" on), or
    /// the table of tunables of the patches of 2019 (version "5.2"), where {} is as they were posted;
    /// "ignored" if absent.
    pub soft_affinity: Option<Located<SoftAffinitySetting>>,
    /// Whether the host moves tasks and memory to each other (`kernel.numa_balancing`), from version "4.2"
    /// on; false if absent. Stock kernels do if there are several nodes.
    pub numa_balancing: Option<Located<bool>>,
    /// Whether each VM is a group of tasks, as its cgroup is with systemd and libvirt, and has its weight as
    /// a group; if absent, true if the scenario has cgroups. If false, each vCPU has the weight of its VM.
    pub groups: Option<bool>,
}

/// Settings of Linux's fair scheduler in guests.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LinuxGuestTable {
    /// The release whose scheduler to follow: "3.6", "4.2", "5.2", "6.12", "6.18" or "7.3";
    /// "6.12" if absent.
    pub version: Option<Word<LinuxEra>>,
    /// From what the scheduling domains are built; "topology" if absent.
    pub domains: Option<Word<Domains>>,
    /// Ticks per second (`CONFIG_HZ`): 100, 250, 300 or 1000; 250 if absent.
    pub tick_hz: Option<Located<u32>>,
    /// How the waiters of a spin lock stand in line; if absent "queued", and "ticket" in version "3.6".
    pub spin_locks: Option<Word<SpinLockKind>>,
    /// When a CPU that has to reschedule does so: "voluntary" (up to version "6.18"), "full" or "lazy" (from
    /// "6.18" on); if absent "lazy" in "7.3", else "voluntary".
    pub preemption: Option<Located<Word<Preemption>>>,
    /// Whether a vCPU that waits for a spin lock halts after a while, from version "4.2" on, where the host
    /// can wake it, which the host "linux" of version "3.6" cannot; true if absent, false as with the boot
    /// parameter `nopvspin`.
    pub paravirt_locks: Option<Located<bool>>,
    /// Whether time that the host stole is taken off the time that tasks are charged for
    /// (`CONFIG_PARAVIRT_TIME_ACCOUNTING`); false if absent, as in Debian's kernels.
    pub steal_clock: Option<bool>,
    /// Whether all tasks of a guest are in one group, as those of a session are with
    /// `sched_autogroup_enabled`; false if absent.
    pub autogroup: Option<bool>,
}

impl LinuxHostTable {
    /// This table, with what it leaves out taken from `base`.
    pub(super) fn over(self, base: Self) -> Self {
        laid_over!(self, base: version, domains, tick_hz, spin_locks, preemption, soft_affinity, numa_balancing, groups)
    }

    /// Checks what Linux allows, each setting by itself.
    pub(super) fn check(&self, source: &SourceFile) -> Result<(), FileError> {
        check_tick(self.tick_hz.as_ref(), source)?;
        // A variant may leave the version to the scenario: this one allows any tunables that are in range.
        let in_range = |it: &Located<_>| SoftAffinity::from(**it).problem(LinuxEra::V5_2);
        match self.soft_affinity.as_ref().and_then(|it| Some((it.span(), in_range(it)?))) {
            Some((span, problem)) => Err(source.error(span, problem)),
            None => Ok(()),
        }
    }

    /// What the version does not have, and where it stands.
    pub(super) fn problem(&self) -> Option<(Range<usize>, &'static str)> {
        let settings = self.settings();
        if let Some(balancing) = self.numa_balancing.as_ref().filter(|it| ***it)
            && settings.era == LinuxEra::V3_6
        {
            let message = "`numa_balancing` is not modelled for version \"3.6\"; it begins with \"4.2\"";
            return Some((balancing.span(), message));
        }
        if let Some(problem) = preemption_problem(self.preemption.as_ref(), settings.era) {
            return Some(problem);
        }
        Some((self.soft_affinity.as_ref()?.span(), settings.soft_affinity.problem(settings.era)?))
    }

    /// The engine's form of a table that was checked, with defaults for what is left out.
    pub(super) fn settings(&self) -> LinuxSettings {
        let shared = shared_settings(
            self.version,
            self.domains,
            self.tick_hz.as_ref(),
            self.spin_locks,
            self.preemption.as_ref(),
        );
        LinuxSettings {
            soft_affinity: self.soft_affinity.as_deref().map_or(shared.soft_affinity, |&it| it.into()),
            numa_balancing: self.numa_balancing.as_deref().is_some_and(|&is_on| is_on),
            groups: self.groups,
            ..shared
        }
    }
}

impl LinuxGuestTable {
    /// This table, with what it leaves out taken from `base`.
    pub(super) fn over(self, base: Self) -> Self {
        laid_over!(self, base: version, domains, tick_hz, spin_locks, preemption, paravirt_locks, steal_clock, autogroup)
    }

    /// Checks what Linux allows.
    pub(super) fn check(&self, source: &SourceFile) -> Result<(), FileError> {
        check_tick(self.tick_hz.as_ref(), source)
    }

    /// What the version does not have, and where it stands.
    pub(super) fn problem(&self) -> Option<(Range<usize>, &'static str)> {
        let era = self.settings().era;
        if let Some(locks) = self.paravirt_locks.as_ref().filter(|it| ***it)
            && era == LinuxEra::V3_6
        {
            let message =
                "version \"3.6\" has no `paravirt_locks`, which begin with \"4.2\"; remove the setting";
            return Some((locks.span(), message));
        }
        preemption_problem(self.preemption.as_ref(), era)
    }

    /// The engine's form of a table that was checked, with defaults for what is left out.
    pub(super) fn settings(&self) -> LinuxSettings {
        let shared = shared_settings(
            self.version,
            self.domains,
            self.tick_hz.as_ref(),
            self.spin_locks,
            self.preemption.as_ref(),
        );
        LinuxSettings {
            steal_clock: self.steal_clock.unwrap_or(shared.steal_clock),
            paravirt_locks: self.paravirt_locks.as_deref().map_or(shared.paravirt_locks, |&is_on| is_on),
            groups: Some(self.autogroup.unwrap_or(false)),
            ..shared
        }
    }
}

/// The settings that hosts and guests share, with defaults for what is left out.
fn shared_settings(
    version: Option<Word<LinuxEra>>,
    domains: Option<Word<Domains>>,
    tick_hz: Option<&Located<u32>>,
    spin_locks: Option<Word<SpinLockKind>>,
    preemption: Option<&Located<Word<Preemption>>>,
) -> LinuxSettings {
    let default = LinuxSettings::default();
    LinuxSettings {
        era: version.map_or(default.era, |version| version.0),
        domains: domains.map_or(default.domains, |domains| domains.0),
        tick_hz: tick_hz.map_or(default.tick_hz, |hz| **hz),
        spin_locks: spin_locks.map(|kind| kind.0),
        preemption: preemption.map(|preemption| preemption.0),
        ..default
    }
}

/// Why that release cannot preempt like that, and where it stands.
fn preemption_problem(
    preemption: Option<&Located<Word<Preemption>>>,
    era: LinuxEra,
) -> Option<(Range<usize>, &'static str)> {
    let preemption = preemption?;
    Some((preemption.span(), preemption.0.problem(era)?))
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
