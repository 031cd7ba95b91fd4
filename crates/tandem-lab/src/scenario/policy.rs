//! The policy table: all that a variant of an experiment may change.

pub mod agent;
#[cfg(feature = "scheduler")]
pub mod compiled;
#[cfg(not(feature = "scheduler"))]
#[path = "policy/not_compiled.rs"]
pub mod compiled;
pub mod linux;
pub mod pause_loop;
pub mod scheduler;
pub mod soft_affinity;
pub mod switch;

use super::amount::{Count, check_time, count_in};
use agent::AgentTable;
use compiled::{SettingValue, TandemTable};
use linux::{DomainsName, LINUX_ERAS, LinuxTable, SpinLocksName, check_tick};
use pause_loop::PauseLoopTable;
use scheduler::SchedulerName;
use schemars::JsonSchema;
use serde::Deserialize;
use soft_affinity::SoftAffinitySetting;
use std::collections::BTreeMap;
use std::ops::Range;
use switch::Switch;
use tandem_file::file_error::FileError;
use tandem_file::located::{Located, SourceFile};
use tandem_file::units::Duration;
use tandem_machine::Machine;
use tandem_sim::policy::credit::{CreditSettings, Era, RateControl};
use tandem_sim::policy::linux::{LinuxEra, LinuxSettings, SoftAffinity};
use tandem_sim::policy::pause_loop::PauseLoop;
use tandem_sim::policy::sched_ext::{KernelVersion, SchedExtSettings};
use tandem_sim::scenario::{Homes, PolicySettings};

/// The policies of the host and of the guests, and their settings. A variant of an experiment is such a table too:
/// what it leaves out is as in the scenario. If it names another `host`, the settings of the scenario's host are left
/// behind with it.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyTable {
    /// The scheduler of the host: "xen-credit", which it is if absent, "linux", "tandem", which is Tandem's own, compiled
    /// for a real kernel, or "file:" and the path of another such scheduler's object file.
    pub host: Option<SchedulerName>,
    /// The release whose scheduler to follow. For "xen-credit": "4.2", "4.3", "4.5" or "4.9" (and later), which it is
    /// if absent. For "linux": "3.6", "4.2", "5.2" or "6.12", which it is if absent. For a compiled scheduler, the kernel
    /// that runs it: "6.12" or "7.3", which it is if absent.
    pub era: Option<Located<EraName>>,
    /// For "linux": from what the scheduling domains are built; "topology" if absent.
    pub domains: Option<Located<DomainsName>>,
    /// For "tandem": its settings, as in the file that `tandem run` reads.
    pub tandem: Option<Located<TandemTable>>,
    /// For "file:": its settings, by the names of its read-only variables: numbers, booleans, or lists of numbers.
    pub settings: Option<Located<BTreeMap<String, SettingValue>>>,
    /// For "linux" and compiled schedulers: ticks a second (`CONFIG_HZ`), 100, 250, 300 or 1000; 250 if absent.
    pub tick_hz: Option<Located<u32>>,
    /// For compiled schedulers: how long a task that can run may wait before the kernel unloads them, "30s" at most; if absent,
    /// for Tandem the `watchdog` of its settings, "10s" unless they say otherwise, and for others what their objects ask for,
    /// or "30s".
    pub watchdog_timeout: Option<Located<Duration>>,
    /// For compiled schedulers, as are the next three, which try how they bear it: the longest time by which a tick comes late,
    /// at random; "0us" if absent.
    pub tick_delay_max: Option<Located<Duration>>,
    /// The longest time by which a timer of the scheduler's expires late, at random; "0us" if absent.
    pub timer_delay_max: Option<Located<Duration>>,
    /// How often, in percent, a timer cannot be started for want of memory, as with interrupts off since Linux 7.0; 0 if absent.
    pub timer_failure_pct: Option<Located<Count>>,
    /// How often, in percent, storage for a task or a cgroup cannot be made, so that `bpf_task_storage_get()` returns NULL; 0
    /// if absent.
    pub storage_failure_pct: Option<Located<Count>>,
    /// For "linux": how those that wait for a spin lock of the host, such as a run queue's, stand in line; if absent
    /// "queued", and "ticket" with era "3.6".
    pub spin_locks: Option<Located<SpinLocksName>>,
    /// For "linux": what is made of soft affinities: "ignored", "work-conserving" (eras "5.2" and "6.12"), or the table of
    /// tunables of the patches of 2019 (era "5.2"), where {} is as they were posted; "ignored" if absent.
    pub soft_affinity: Option<Located<SoftAffinitySetting>>,
    /// For "linux", from era "4.2" on: whether the host moves tasks and memory to each other (`kernel.numa_balancing`);
    /// false if absent. Stock kernels do if there are several nodes.
    pub numa_balancing: Option<Located<bool>>,
    /// What the host does about vCPUs that spin: "off", or a table of settings, where {} is as the host's scheduler has
    /// it; "off" if absent. A variant's table changes what it names in the scenario's.
    pub pause_loop: Option<Switch<PauseLoopTable>>,
    /// For "xen-credit", as are the next three: how long a vCPU may run at a stretch (`sched_credit_tslice_ms`), "1ms"
    /// to "1s"; "30ms" if absent.
    pub timeslice: Option<Located<Duration>>,
    /// How long a vCPU may run before another can preempt it (`sched_ratelimit_us`), "100us" to "500ms", or
    /// "0us" for no limit; "1ms" if absent.
    pub ratelimit: Option<Located<Duration>>,
    /// A vCPU that ran less than this ago is not moved to another pCPU (`vcpu_migration_delay`); "0us", which is
    /// off, if absent.
    pub migration_delay: Option<Located<Duration>>,
    /// The scheduler rate controller of 2011 (`sched_rate_control`): "off", or a table of settings, where {} is as it was
    /// posted; "off" if absent.
    pub rate_control: Option<Located<Switch<RateControlTable>>>,
    /// The policy of every guest kernel.
    #[serde(default)]
    pub guest: LinuxTable,
    /// How VMs without an affinity of their own get one, and what the homes of processes mean; "none" if absent.
    pub placement: Option<PlacementMode>,
    /// For placement "agent": how often it looks and when it moves homes.
    pub agent: Option<Located<AgentTable>>,
}

/// A release of Xen or of Linux where the scheduler changed.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, JsonSchema)]
pub enum EraName {
    /// Linux: CFS of 2012.
    #[serde(rename = "3.6")]
    V3_6,
    /// Xen, and 4.1: hard affinity only. Linux: CFS of 2015, with the load of each task.
    #[serde(rename = "4.2")]
    V4_2,
    /// Xen: one preferred set of nodes a VM.
    #[serde(rename = "4.3")]
    V4_3,
    /// Xen: soft affinity a vCPU.
    #[serde(rename = "4.5")]
    V4_5,
    /// Xen: later releases.
    #[serde(rename = "4.9")]
    V4_9,
    /// Linux: CFS of 2019, whose CPUs remember what tasks that sleep have used.
    #[serde(rename = "5.2")]
    V5_2,
    /// Linux: EEVDF of 2024.
    #[serde(rename = "6.12")]
    V6_12,
    /// Linux of 2026: runs compiled schedulers only.
    #[serde(rename = "7.3")]
    V7_3,
}

const SCHED_EXT_ERAS: &str = "the `era` of a compiled scheduler is that of its kernel, \"6.12\" or \"7.3\"";
const XEN_ERAS: &str = "the `era` of the host `xen-credit` is one of \"4.2\", \"4.3\", \"4.5\", \"4.9\"";

impl EraName {
    /// The release of Xen.
    fn xen(self) -> Option<Era> {
        match self {
            Self::V4_2 => Some(Era::Xen4_2),
            Self::V4_3 => Some(Era::Xen4_3),
            Self::V4_5 => Some(Era::Xen4_5),
            Self::V4_9 => Some(Era::Xen4_9),
            Self::V3_6 | Self::V5_2 | Self::V6_12 | Self::V7_3 => None,
        }
    }

    /// The release of Linux.
    fn linux(self) -> Option<LinuxEra> {
        match self {
            Self::V3_6 => Some(LinuxEra::V3_6),
            Self::V4_2 => Some(LinuxEra::V4_2),
            Self::V5_2 => Some(LinuxEra::V5_2),
            Self::V6_12 => Some(LinuxEra::V6_12),
            Self::V4_3 | Self::V4_5 | Self::V4_9 | Self::V7_3 => None,
        }
    }

    /// The kernel that runs compiled schedulers.
    fn sched_ext(self) -> Option<KernelVersion> {
        match self {
            Self::V6_12 => Some(KernelVersion::V6_12),
            Self::V7_3 => Some(KernelVersion::V7_3),
            Self::V3_6 | Self::V4_2 | Self::V4_3 | Self::V4_5 | Self::V4_9 | Self::V5_2 => None,
        }
    }
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

/// How VMs without an affinity of their own get one, and what the homes of processes mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PlacementMode {
    /// They run everywhere, their memory is spread evenly over all nodes. Homes count for nothing.
    #[default]
    None,
    /// Automatic placement chooses nodes for VMs, processes have homes; their memory lies there, and they run nowhere
    /// else.
    Pin,
    /// The same, but they prefer to run there.
    Prefer,
    /// An agent chooses nodes for VMs when they start, and others while they run; they prefer to run there. Processes
    /// prefer their homes, which stay.
    Agent,
}

impl PolicyTable {
    /// This table, with what it leaves out taken from `base`; but settings of one scheduler are none of another's.
    pub fn over(&self, base: &Self) -> Self {
        let (top, mut base) = (self.clone(), base.clone());
        if top.host.as_ref().is_some_and(|host| !host.is_like(&base.host())) {
            base =
                Self { guest: base.guest, placement: base.placement, agent: base.agent, ..Self::default() };
        }
        Self {
            host: top.host.or(base.host),
            era: top.era.or(base.era),
            tandem: top.tandem.or(base.tandem),
            settings: top.settings.or(base.settings),
            domains: top.domains.or(base.domains),
            tick_hz: top.tick_hz.or(base.tick_hz),
            watchdog_timeout: top.watchdog_timeout.or(base.watchdog_timeout),
            tick_delay_max: top.tick_delay_max.or(base.tick_delay_max),
            timer_delay_max: top.timer_delay_max.or(base.timer_delay_max),
            timer_failure_pct: top.timer_failure_pct.or(base.timer_failure_pct),
            storage_failure_pct: top.storage_failure_pct.or(base.storage_failure_pct),
            spin_locks: top.spin_locks.or(base.spin_locks),
            soft_affinity: top.soft_affinity.or(base.soft_affinity),
            numa_balancing: top.numa_balancing.or(base.numa_balancing),
            pause_loop: match (top.pause_loop, base.pause_loop) {
                (Some(top), Some(base)) => Some(top.over(base, PauseLoopTable::over)),
                (top, base) => top.or(base),
            },
            timeslice: top.timeslice.or(base.timeslice),
            ratelimit: top.ratelimit.or(base.ratelimit),
            migration_delay: top.migration_delay.or(base.migration_delay),
            rate_control: top.rate_control.or(base.rate_control),
            guest: top.guest.over(base.guest),
            placement: top.placement.or(base.placement),
            agent: top.agent.or(base.agent),
        }
    }

    /// The scheduler of the host.
    fn host(&self) -> SchedulerName {
        self.host.clone().unwrap_or_default()
    }

    /// Checks the ranges that Xen and Linux allow. Whether the settings are those of the host's scheduler is checked
    /// if the table names one.
    ///
    /// # Errors
    /// Names the line of the first setting that is not allowed, and what is.
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
        check_tick(self.tick_hz.as_ref(), source)?;
        self.check_tunables(source)?;
        for delay in [&self.tick_delay_max, &self.timer_delay_max].into_iter().flatten() {
            check_time(**delay).map_err(|message| source.error(delay.span(), message))?;
        }
        if let Some(timeout) = &self.watchdog_timeout
            && !(1..=SchedExtSettings::WATCHDOG_TIMEOUT_NS).contains(&timeout.ns)
        {
            let message = "the watchdog's time is out of range; allowed are times up to \"30s\"";
            return Err(source.error(timeout.span(), message));
        }
        for (pct, key) in [
            (&self.timer_failure_pct, "`timer_failure_pct`"),
            (&self.storage_failure_pct, "`storage_failure_pct`"),
        ] {
            if let Some(pct) = pct {
                count_in(pct, key, 0..=100, source)?;
            }
        }
        self.guest.check(source)?;
        if let Some(table) = self.pause_loop_table() {
            table.check(source)?;
        }
        if let Some(agent) = &self.agent {
            agent.check(source)?;
        }
        match self.host.as_ref().and_then(|host| self.foreign_setting(host)) {
            Some((span, message)) => Err(source.error(span, message)),
            None => Ok(()),
        }
    }

    /// Checks a table that is a whole policy: that its settings are those of its host's scheduler and go together, too.
    ///
    /// # Errors
    /// As [`PolicyTable::check`].
    pub fn check_whole(&mut self, source: &SourceFile) -> Result<(), FileError> {
        self.host.get_or_insert_default();
        self.check(source)?;
        self.checked_pause_loop().map_err(|(span, message)| source.error(span, message))?;
        match self.soft_affinity_problem() {
            Some((span, problem)) => Err(source.error(span, problem)),
            None => Ok(()),
        }
    }

    /// The first setting that the scheduler of the host does not have, with what is wrong.
    fn foreign_setting(&self, host: &SchedulerName) -> Option<(Range<usize>, String)> {
        use SchedulerName::{File, Linux, Tandem, XenCredit};
        fn place<T>(setting: &Option<Located<T>>) -> Option<Range<usize>> {
            setting.as_ref().map(Located::span)
        }
        let any_file = File("OBJECT".into());
        let yields = self.pause_loop_table().and_then(|table| place(&table.directed_yield));
        type Known<'a> = (&'static str, Option<Range<usize>>, &'a [&'a SchedulerName]);
        let compiled: &[&SchedulerName] = &[&Tandem, &any_file];
        let known: [Known<'_>; 17] = [
            ("timeslice", place(&self.timeslice), &[&XenCredit]),
            ("ratelimit", place(&self.ratelimit), &[&XenCredit]),
            ("migration_delay", place(&self.migration_delay), &[&XenCredit]),
            ("rate_control", place(&self.rate_control), &[&XenCredit]),
            ("domains", place(&self.domains), &[&Linux]),
            ("tick_hz", place(&self.tick_hz), &[&Linux, &Tandem, &any_file]),
            ("watchdog_timeout", place(&self.watchdog_timeout), compiled),
            ("tick_delay_max", place(&self.tick_delay_max), compiled),
            ("timer_delay_max", place(&self.timer_delay_max), compiled),
            ("timer_failure_pct", place(&self.timer_failure_pct), compiled),
            ("storage_failure_pct", place(&self.storage_failure_pct), compiled),
            ("spin_locks", place(&self.spin_locks), &[&Linux]),
            ("soft_affinity", place(&self.soft_affinity), &[&Linux]),
            ("numa_balancing", place(&self.numa_balancing), &[&Linux]),
            ("directed_yield", yields, &[&Linux, &Tandem, &any_file]),
            ("tandem", place(&self.tandem), &[&Tandem]),
            ("settings", place(&self.settings), &[&any_file]),
        ];
        if let Some(era) = &self.era {
            let (knows, eras) = match host {
                XenCredit => (era.xen().is_some(), XEN_ERAS),
                Linux => (era.linux().is_some(), LINUX_ERAS),
                Tandem | File(_) => (era.sched_ext().is_some(), SCHED_EXT_ERAS),
            };
            if !knows {
                return Some((era.span(), eras.into()));
            }
            if era.linux() == Some(LinuxEra::V3_6) && self.balances_numa() {
                let message = "`numa_balancing` is not modelled for era \"3.6\"; allowed are \"4.2\", \"5.2\" and \"6.12\"";
                return Some((place(&self.numa_balancing)?, message.into()));
            }
        }
        let foreign = known
            .into_iter()
            .find(|(_, span, owners)| span.is_some() && !owners.iter().any(|owner| owner.is_like(host)));
        let (name, span, owners) = foreign?;
        let owner = match owners[0] {
            XenCredit => "xen-credit",
            Linux => "linux",
            Tandem => "tandem",
            File(_) => "file:...",
        };
        Some((span?, format!("`{name}` is a setting of the host `{owner}`; leave it out")))
    }

    /// The engine's form of the host's policy on a machine, with defaults for what is left out. Paths begin where the source lies.
    ///
    /// # Errors
    /// A sentence, if there are settings that the host's scheduler does not have, or a compiled one cannot be used.
    pub fn settings(&self, machine: &Machine, source: &SourceFile) -> Result<PolicySettings, String> {
        let host = self.host();
        if let Some((_, message)) = self.foreign_setting(&host) {
            return Err(message);
        }
        if let Some((_, problem)) = self.soft_affinity_problem() {
            return Err(problem.into());
        }
        Ok(match host {
            SchedulerName::XenCredit => PolicySettings::Credit(self.credit_settings()),
            SchedulerName::Linux => PolicySettings::Linux(self.linux_settings()),
            name => {
                let mut settings = self.linux_table().compiled_settings(name, false, machine, source)?;
                self.disturb(&mut settings);
                PolicySettings::SchedExt(settings.into())
            }
        })
    }

    /// Lets things come late or fail, as the table says.
    fn disturb(&self, settings: &mut SchedExtSettings) {
        let delay_ns = |delay: &Option<Located<Duration>>| delay.as_ref().map_or(0, |delay| delay.ns);
        let pct = |pct: &Option<Located<Count>>| pct.as_ref().map_or(0, |pct| pct.0.min(100) as u8);
        if let Some(timeout) = &self.watchdog_timeout {
            settings.watchdog_timeout_ns = Some(timeout.ns);
        }
        settings.tick_delay_max_ns = delay_ns(&self.tick_delay_max);
        settings.timer_delay_max_ns = delay_ns(&self.timer_delay_max);
        settings.timer_failure_pct = pct(&self.timer_failure_pct);
        settings.storage_failure_pct = pct(&self.storage_failure_pct);
    }

    /// Checks the tunables of soft affinity, whatever the era turns out to be.
    fn check_tunables(&self, source: &SourceFile) -> Result<(), FileError> {
        let Some(setting) = &self.soft_affinity else { return Ok(()) };
        match SoftAffinity::from(**setting).problem(LinuxEra::V5_2) {
            Some(problem) => Err(source.error(setting.span(), problem)),
            None => Ok(()),
        }
    }

    /// What is wrong with the soft affinity in the era of the host, and where it stands.
    fn soft_affinity_problem(&self) -> Option<(Range<usize>, &'static str)> {
        let setting = self.soft_affinity.as_ref()?;
        let settings = self.linux_settings();
        Some((setting.span(), settings.soft_affinity.problem(settings.era)?))
    }

    fn linux_settings(&self) -> LinuxSettings {
        let settings = self.linux_table().settings();
        let soft_affinity = self.soft_affinity.as_ref().map_or(settings.soft_affinity, |it| (**it).into());
        LinuxSettings { soft_affinity, numa_balancing: self.balances_numa(), ..settings }
    }

    /// The engine's form of who chooses homes.
    pub fn homes(&self) -> Homes {
        match self.placement.unwrap_or_default() {
            PlacementMode::None => Homes::Given,
            PlacementMode::Pin => Homes::Pin,
            PlacementMode::Prefer => Homes::Prefer,
            PlacementMode::Agent => {
                Homes::Agent(self.agent.as_deref().cloned().unwrap_or_default().settings())
            }
        }
    }

    /// The engine's form of what the host does about vCPUs that spin.
    ///
    /// # Errors
    /// A sentence, if the settings do not go together.
    pub fn pause_loop_settings(&self) -> Result<Option<PauseLoop>, String> {
        self.checked_pause_loop().map_err(|(_, message)| message)
    }

    /// The same, with the place of what is wrong.
    fn checked_pause_loop(&self) -> Result<Option<PauseLoop>, (Range<usize>, String)> {
        let default = match self.host() {
            SchedulerName::XenCredit => PauseLoop::XEN,
            SchedulerName::Linux => PauseLoopTable::of_kvm(self.linux_settings().era),
            SchedulerName::Tandem | SchedulerName::File(_) => PauseLoop::V6_12,
        };
        let settings = |table: &PauseLoopTable| table.settings(default);
        self.pause_loop_table().map(settings).transpose()
    }

    fn pause_loop_table(&self) -> Option<&PauseLoopTable> {
        self.pause_loop.as_ref().and_then(Switch::on)
    }

    fn balances_numa(&self) -> bool {
        self.numa_balancing.as_deref().is_some_and(|&is_on| is_on)
    }

    /// Those settings of the host that a guest can have too.
    fn linux_table(&self) -> LinuxTable {
        LinuxTable {
            era: self.era.clone(),
            domains: self.domains.clone(),
            tick_hz: self.tick_hz.clone(),
            spin_locks: self.spin_locks.clone(),
            tandem: self.tandem.clone(),
            settings: self.settings.clone(),
            ..LinuxTable::default()
        }
    }

    fn credit_settings(&self) -> CreditSettings {
        let default = CreditSettings::default();
        CreditSettings {
            era: self.era.as_ref().and_then(|era| era.xen()).unwrap_or(default.era),
            timeslice_ns: self.timeslice.as_ref().map_or(default.timeslice_ns, |time| time.ns),
            ratelimit_ns: self.ratelimit.as_ref().map_or(default.ratelimit_ns, |time| time.ns),
            migration_delay_ns: self
                .migration_delay
                .as_ref()
                .map_or(default.migration_delay_ns, |time| time.ns),
            rate_control: self.rate_control.as_deref().and_then(Switch::on).map(|table| {
                let posted = RateControl::default();
                RateControl {
                    rate_high: table.rate_high.unwrap_or(posted.rate_high),
                    interval_ns: table.interval.map_or(posted.interval_ns, |time| time.ns),
                }
            }),
        }
    }
}
