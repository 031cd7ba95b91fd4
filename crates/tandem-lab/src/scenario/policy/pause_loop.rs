//! Settings of pause-loop exits and of directed yield.

use super::switch::Switch;
use super::words::{Word, Words};
use crate::scenario::amount::{Count, count_in};
use schemars::JsonSchema;
use serde::Deserialize;
use std::ops::Range;
use tandem_file::file_error::FileError;
use tandem_file::located::{Located, SourceFile};
use tandem_sim::policy::linux::LinuxEra;
use tandem_sim::policy::pause_loop::{DirectedYield, KernelMode, PauseLoop, RunningCheck};

/// Most that a window is multiplied by at each exit.
const GROWTH_MAX: u32 = 1_000;

/// When a vCPU that spins leaves its guest, and what the host does then. What is absent is as in the host's
/// scheduler and version. Cycles are those of the machine's clock.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PauseLoopTable {
    /// Most cycles between two PAUSE instructions of one loop (`ple_gap`), at least 1; 128 if absent.
    pub gap_cycles: Option<Located<Count>>,
    /// Cycles of such a loop after which the vCPU leaves its guest (`ple_window`), at least the gap; 4096 if
    /// absent.
    pub window_cycles: Option<Located<Count>>,
    /// What the window is multiplied by at each exit (`ple_window_grow`), 1 to 1000, until the vCPU next gets
    /// a pCPU; if absent 2 for the host "linux" from version "4.2" on, else 1, which leaves the window as it
    /// is.
    pub window_growth: Option<Located<Count>>,
    /// What the window may grow to (`ple_window_max`), at least the window; 4294967295 if absent.
    pub window_max_cycles: Option<Located<Count>>,
    /// For "linux": how the host finds a vCPU of the same VM to yield to. "off": a vCPU that spins gives way
    /// to any other.
    pub directed_yield: Option<Located<Switch<DirectedYieldTable>>>,
}

/// How a vCPU is found and yielded to.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DirectedYieldTable {
    /// How the host finds out that the candidate runs already; if absent "guest-mode" in version "3.6",
    /// "preempted" in "4.2" and "5.2", and "ready" from "6.12" on.
    pub running_check: Option<Word<RunningCheck>>,
    /// Whether a candidate is passed over that was preempted outside of its guest's kernel; if absent "any"
    /// in version "3.6" and "4.2", "required" in "5.2", and "required-or-interrupt" from "6.12" on.
    pub kernel_mode: Option<Word<KernelMode>>,
    /// Whether a candidate that spins is passed over at every second look; if absent true from version "4.2"
    /// on.
    pub alternate_spinners: Option<bool>,
    /// Whether a yield is given up before the locks if no task waits in either run queue; if absent true from
    /// version "4.2" on.
    pub undercommit_check: Option<bool>,
    /// Candidates that are passed over because of what the pCPU does in whose queue they stand; none if
    /// absent.
    pub skip: Option<Vec<SkipName>>,
}

impl Words for RunningCheck {
    const WORDS: &'static [(&'static str, Self, &'static str)] = &[
        ("under-locks", Self::UnderLocks, "Holding the locks of both run queues."),
        (
            "guest-mode",
            Self::GuestMode,
            "One that executes its guest's code is passed over; others are tested under the locks.",
        ),
        ("before-locks", Self::BeforeLocks, "Before it takes the locks, and once more when it has them."),
        (
            "preempted",
            Self::Preempted,
            "Only one that was preempted is considered, and tested under the locks.",
        ),
        (
            "ready",
            Self::Ready,
            "Only one that was preempted or has woken up is considered, and tested under the locks.",
        ),
    ];
}

impl Words for KernelMode {
    const WORDS: &'static [(&'static str, Self, &'static str)] = &[
        ("any", Self::Any, "Wherever it was preempted."),
        ("required", Self::Required, "Only in its guest's kernel."),
        (
            "required-or-interrupt",
            Self::RequiredOrInterrupt,
            "Only in its guest's kernel, or when another vCPU has sent it an interrupt.",
        ),
    ];
}

/// pCPUs whose candidates are passed over.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SkipName {
    /// Those that are themselves looking for a vCPU to yield to.
    YieldingCpus,
    /// Those that execute the host's code for whatever reason.
    HostModeCpus,
}

impl PauseLoopTable {
    /// This table, with what it leaves out taken from `base`.
    pub(super) fn over(self, base: Self) -> Self {
        let directed_yield = match (self.directed_yield, base.directed_yield) {
            (Some(top), Some(base)) => {
                let base = (*base).clone();
                Some(top.map(|top| top.over(base, DirectedYieldTable::over)))
            }
            (top, base) => top.or(base),
        };
        Self {
            gap_cycles: self.gap_cycles.or(base.gap_cycles),
            window_cycles: self.window_cycles.or(base.window_cycles),
            window_growth: self.window_growth.or(base.window_growth),
            window_max_cycles: self.window_max_cycles.or(base.window_max_cycles),
            directed_yield,
        }
    }

    /// Checks each number by itself.
    pub(super) fn check(&self, source: &SourceFile) -> Result<(), FileError> {
        for (count, name, most) in [
            (&self.gap_cycles, "`gap_cycles`", u32::MAX),
            (&self.window_cycles, "`window_cycles`", u32::MAX),
            (&self.window_growth, "`window_growth`", GROWTH_MAX),
            (&self.window_max_cycles, "`window_max_cycles`", u32::MAX),
        ] {
            if let Some(count) = count {
                count_in(count, name, 1..=most, source)?;
            }
        }
        Ok(())
    }

    /// The engine's form of a table that was checked, with `default` for what is left out.
    ///
    /// # Errors
    /// If the numbers do not go together: the place of one of them in its file, and a sentence.
    pub(super) fn settings(&self, default: PauseLoop) -> Result<PauseLoop, (Range<usize>, String)> {
        let number = |count: &Option<Located<Count>>, default| {
            count.as_ref().map_or(default, |count| u32::try_from(count.0).unwrap_or(u32::MAX))
        };
        let settings = PauseLoop {
            gap_cycles: number(&self.gap_cycles, default.gap_cycles),
            window_cycles: number(&self.window_cycles, default.window_cycles),
            window_growth: number(&self.window_growth, default.window_growth),
            window_max_cycles: number(&self.window_max_cycles, default.window_max_cycles),
            directed_yield: match self.directed_yield.as_deref() {
                None => default.directed_yield,
                Some(switch) => {
                    switch.on().zip(default.directed_yield).map(|(table, default)| table.settings(default))
                }
            },
        };
        let PauseLoop { gap_cycles, window_cycles, window_max_cycles, .. } = settings;
        let place = |one: &Option<Located<Count>>, other: &Option<Located<Count>>| {
            one.as_ref().or(other.as_ref()).map_or(0..0, Located::span)
        };
        if window_cycles < gap_cycles {
            let message = format!("`window_cycles` is {window_cycles}, less than `gap_cycles`, {gap_cycles}");
            return Err((place(&self.window_cycles, &self.gap_cycles), message));
        }
        if window_max_cycles < window_cycles {
            let message = format!(
                "`window_max_cycles` is {window_max_cycles}, less than `window_cycles`, {window_cycles}"
            );
            return Err((place(&self.window_max_cycles, &self.window_cycles), message));
        }
        Ok(settings)
    }
}

/// What an empty table stands for under KVM.
pub(super) fn of_kvm(version: LinuxEra) -> PauseLoop {
    match version {
        LinuxEra::V3_6 => PauseLoop::V3_6,
        LinuxEra::V4_2 => PauseLoop::V4_2,
        LinuxEra::V5_2 => PauseLoop::V5_2,
        // Up to 7.1 read.
        LinuxEra::V6_12 | LinuxEra::V6_18 | LinuxEra::V7_3 => PauseLoop::V6_12,
    }
}

impl DirectedYieldTable {
    /// This table, with what it leaves out taken from `base`.
    fn over(self, base: Self) -> Self {
        Self {
            running_check: self.running_check.or(base.running_check),
            kernel_mode: self.kernel_mode.or(base.kernel_mode),
            alternate_spinners: self.alternate_spinners.or(base.alternate_spinners),
            undercommit_check: self.undercommit_check.or(base.undercommit_check),
            skip: self.skip.or(base.skip),
        }
    }

    /// The engine's form.
    fn settings(&self, default: DirectedYield) -> DirectedYield {
        let skips = |cpus, default| self.skip.as_ref().map_or(default, |skip| skip.contains(&cpus));
        DirectedYield {
            running_check: self.running_check.map_or(default.running_check, |check| check.0),
            kernel_mode: self.kernel_mode.map_or(default.kernel_mode, |mode| mode.0),
            alternates_spinners: self.alternate_spinners.unwrap_or(default.alternates_spinners),
            undercommit_check: self.undercommit_check.unwrap_or(default.undercommit_check),
            skips_yielding_cpus: skips(SkipName::YieldingCpus, default.skips_yielding_cpus),
            skips_host_mode_cpus: skips(SkipName::HostModeCpus, default.skips_host_mode_cpus),
        }
    }
}
