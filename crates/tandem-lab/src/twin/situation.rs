//! Where a model runs: on the recorded machine under its scheduler, or otherwise.

use crate::machine_file::parse_machine;
use crate::scenario::policy::PolicyTable;
use crate::scenario::policy::scheduler::SchedulerName;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use tandem_file::located::SourceFile;
use tandem_file::shown::readable;
use tandem_machine::cpumask::CpuMask;
use tandem_machine::{Machine, MachineBuilder};
use tandem_recording::Recording;
use tandem_settings::Settings;
use tandem_sim::policy::linux::{LinuxEra, LinuxSettings, Preemption};
use tandem_sim::scenario::{BandwidthLimit, PolicySettings, TaskPolicy};

/// What a recorded machine can run.
const SCHEDULERS: &str = "a replay takes linux, tandem, or object: and the path of an object file";
/// Slices that a kernel can have been set to, ns: those that `/sys/kernel/debug/sched` takes.
const SLICES_NS: RangeInclusive<u64> = 100_000..=1_000_000_000;

/// A machine, its scheduler, and what else differs from the recording.
#[derive(Clone, Debug, PartialEq)]
pub struct Situation {
    /// The machine.
    pub machine: Arc<Machine>,
    /// The host's scheduler.
    pub policy: PolicySettings,
    /// What is different for a group, by its name.
    pub changes: BTreeMap<String, Change>,
    /// The CPUs that are there for all tasks; `None`: all of the machine.
    pub within: Option<CpuMask>,
    /// Where single tasks may run instead, by position in the recording.
    pub pins: BTreeMap<usize, CpuMask>,
}

/// What is different for a group of tasks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Change {
    /// Its weight is that many times what it was.
    pub weight_factor: Option<f64>,
    /// The nice value of its tasks.
    pub nice: Option<i8>,
    /// The scheduling policy of its tasks.
    pub policy: Option<TaskPolicy>,
    /// Where its tasks may run.
    pub cpus: Option<CpuMask>,
    /// Where its tasks prefer to run.
    pub prefers: Option<CpuMask>,
    /// How much CPU time it may use.
    pub limit: Option<BandwidthLimit>,
    /// How often it is there; 1 if `None`.
    pub copies: Option<u32>,
}

impl Situation {
    /// That of the recording.
    ///
    /// # Errors
    /// A sentence, if the recorded machine is not one.
    pub fn recorded(recording: &Recording) -> Result<Self, String> {
        let about = &recording.about;
        let machine = match &about.machine {
            Some(text) => parse_machine(text, "machine").map_err(|error| match error.line {
                Some(line) => format!("line {line}: {}", error.message),
                None => error.message,
            }),
            None => flat(about.cpus.max(1)),
        };
        let machine = machine.map_err(|problem| {
            format!("the machine in the recording cannot be used ({problem}); record again with this tandem")
        })?;
        Ok(Self {
            machine: Arc::new(machine),
            policy: PolicySettings::Linux(linux(recording)),
            changes: BTreeMap::new(),
            within: None,
            pins: BTreeMap::new(),
        })
    }

    /// Gives the machine another scheduler, with its defaults; Linux is the recorded one. Paths begin in the
    /// current folder.
    ///
    /// # Errors
    /// A sentence, if it cannot be used there.
    pub fn set_scheduler(&mut self, name: SchedulerName) -> Result<(), String> {
        if name == SchedulerName::Linux {
            return Ok(());
        }
        self.set_table(PolicyTable { host: Some(name.into()), ..PolicyTable::default() }, "")
    }

    /// Sets the slice of the recorded scheduler, ns.
    ///
    /// # Errors
    /// A sentence, if it has none.
    pub fn set_slice(&mut self, slice_ns: u64) -> Result<(), String> {
        match &mut self.policy {
            PolicySettings::Linux(settings)
                if settings.era >= LinuxEra::V6_12 && SLICES_NS.contains(&slice_ns) =>
            {
                settings.base_slice_ns = Some(slice_ns);
                Ok(())
            }
            PolicySettings::Linux(settings) if settings.era >= LinuxEra::V6_12 => {
                Err("a slice is from 100 us to 1 s".into())
            }
            _ => Err("the scheduler has no slice to set; Linux has one from version 6.6 on".into()),
        }
    }

    /// Gives the machine the scheduler tandem with these settings.
    ///
    /// # Errors
    /// A sentence, if it cannot be used there.
    pub fn set_tandem(&mut self, settings: &Settings) -> Result<(), String> {
        let own = toml::Table::try_from(settings.scheduler_only()).map_err(|error| error.to_string())?;
        let keys = ["host", "tandem", "settings"];
        let text =
            keys.iter().rev().fold(own, |value, key| toml::Table::from_iter([((*key).into(), value.into())]));
        let text = toml::to_string(&text).map_err(|error| error.to_string())?;
        let source = SourceFile::new(Path::new("settings"), &text);
        self.set_table(source.parse().map_err(|error| error.to_string())?, &text)
    }

    fn set_table(&mut self, table: PolicyTable, text: &str) -> Result<(), String> {
        self.policy = table.host_settings(&self.machine, &SourceFile::new(Path::new("settings"), text))?;
        Ok(())
    }
}

/// The scheduler of that name, if a recorded machine can run it.
///
/// # Errors
/// A sentence that lists those that it can run.
pub fn parse_scheduler(text: &str) -> Result<SchedulerName, String> {
    match SchedulerName::parse(text) {
        Ok(SchedulerName::XenCredit | SchedulerName::XenCredit2) => Err(format!(
            "'{text}' schedules vCPUs of Xen, and not the tasks of a Linux machine; {SCHEDULERS}"
        )),
        Ok(name) => Ok(name),
        Err(_) => Err(format!("there is no scheduler '{}'; {SCHEDULERS}", readable(text, &[]))),
    }
}

/// A machine of which nothing is known but how many CPUs it has: one package, whose cores have one thread.
fn flat(cpus: u32) -> Result<Machine, String> {
    let machine = MachineBuilder::symmetric(1, cpus, 1).name("unknown").every_llc(1 << 25);
    machine.every_node(1 << 36, 1 << 34).build().map_err(|error| error.to_string())
}

/// The kernel's scheduler as it was set.
fn linux(recording: &Recording) -> LinuxSettings {
    let about = &recording.about;
    let era = era(&about.kernel);
    let known = &about.scheduler;
    let preemption = match known.preemption.as_deref() {
        Some("full") => Some(Preemption::Full),
        Some("lazy") => Some(Preemption::Lazy),
        Some("voluntary" | "none") => Some(Preemption::Voluntary),
        _ => None,
    };
    LinuxSettings {
        era,
        tick_hz: tick_hz(recording),
        base_slice_ns: known.base_slice_ns.filter(|ns| SLICES_NS.contains(ns)),
        preemption: preemption.filter(|preemption| preemption.problem(era).is_none()),
        ..LinuxSettings::default()
    }
}

/// The recorded ticks a second, or the usual ones.
pub(super) fn tick_hz(recording: &Recording) -> u32 {
    let known = recording.about.scheduler.hz.filter(|hz| LinuxSettings::TICKS_HZ.contains(hz));
    known.unwrap_or(LinuxSettings::default().tick_hz)
}

/// The newest release that is modelled and not newer than that one; the newest for an unknown one.
fn era(release: &str) -> LinuxEra {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|text| text.parse::<u32>().ok());
    let (Some(Some(major)), Some(Some(minor))) = (numbers.next(), numbers.next()) else {
        return LinuxEra::V7_3;
    };
    let known = [
        ((7, 0), LinuxEra::V7_3),
        ((6, 18), LinuxEra::V6_18),
        ((6, 6), LinuxEra::V6_12),
        ((5, 0), LinuxEra::V5_2),
        ((4, 0), LinuxEra::V4_2),
    ];
    known.iter().find(|(since, _)| (major, minor) >= *since).map_or(LinuxEra::V3_6, |(_, era)| *era)
}
