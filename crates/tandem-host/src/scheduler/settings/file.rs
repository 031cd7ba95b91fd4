//! The file of settings: reading it, and what each value may be.

use super::Settings;
use schemars::{Schema, schema_for};
use std::fmt::Display;
use std::path::Path;
use tandem_file::file_error::FileError;
use tandem_file::located::SourceFile;
use tandem_file::units::Duration;

/// The JSON Schema of the file.
pub fn settings_schema() -> Schema {
    schema_for!(Settings)
}

impl Settings {
    /// Reads a file. What it does not say is the default.
    ///
    /// # Errors
    /// If it cannot be read, has an unknown key, or a value that is not allowed.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        Self::parse(&SourceFile::read(path)?)
    }

    fn parse(source: &SourceFile) -> Result<Self, FileError> {
        let settings: Self = source.parse()?;
        settings.check().map_err(|message| source.error_in_file(message))?;
        Ok(settings)
    }

    /// Each value against what is allowed.
    fn check(&self) -> Result<(), String> {
        let Self {
            mode: _,
            watchdog,
            fairness,
            soft_affinity,
            numa_homes,
            rate_control,
            directed_yield: _,
            guest,
        } = self;
        let zero = Duration { ns: 0 };
        let ms = |ms: u64| Duration { ns: ms * 1_000_000 };
        let us = |us: u64| Duration { ns: us * 1_000 };
        within("watchdog", *watchdog, ms(1_000), ms(30_000))?;
        within("slice of [fairness]", fairness.slice, us(100), ms(1_000))?;
        within("slice_min of [fairness]", fairness.slice_min, us(50), fairness.slice)?;
        within("sleeper_credit of [fairness]", fairness.sleeper_credit, zero, ms(1_000))?;
        within("preempt_margin of [fairness]", fairness.preempt_margin, zero, ms(1_000))?;
        within("sync_run_max of [fairness]", fairness.sync_run_max, zero, ms(1_000))?;
        within("balance_interval of [fairness]", fairness.balance_interval, ms(1), ms(10_000))?;
        within("allowed of [soft_affinity]", soft_affinity.allowed, 0, 10_000)?;
        within("preferred of [soft_affinity]", soft_affinity.preferred, 0, 10_000)?;
        within("away_min of [numa_homes]", numa_homes.away_min, zero, ms(10_000))?;
        within("window of [rate_control]", rate_control.window, ms(1), ms(1_000))?;
        within("threshold of [rate_control]", rate_control.threshold, 1, 100_000)?;
        within("ratelimit of [rate_control]", rate_control.ratelimit, zero, ms(500))?;
        within("steal_memory of [guest]", guest.steal_memory, zero, ms(10_000))
    }
}

fn within<T: Ord + Display>(key: &str, value: T, min: T, max: T) -> Result<(), String> {
    match min <= value && value <= max {
        true => Ok(()),
        false => Err(format!("{key} is {value}; allowed is from {min} to {max}")),
    }
}
