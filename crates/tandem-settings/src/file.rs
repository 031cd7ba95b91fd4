//! The settings file: how it is read, and which values are allowed.

use super::{Settings, VmRule};
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
    /// Reads a settings file. A setting that the file does not contain has its default.
    ///
    /// # Errors
    /// If the file cannot be read, has an unknown key, or a value that is not allowed.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        Self::parse(&SourceFile::read(path)?)
    }

    /// Reads the text of a settings file; errors name the file.
    ///
    /// # Errors
    /// As [`Settings::read`].
    pub fn from_toml(file: &Path, text: &str) -> Result<Self, FileError> {
        Self::parse(&SourceFile::new(file, text))
    }

    /// The settings as TOML, as a settings file has them.
    pub fn to_toml(&self) -> String {
        // A table of strings, numbers and switches always serialises to TOML.
        toml::to_string(self).unwrap_or_default()
    }

    fn parse(source: &SourceFile) -> Result<Self, FileError> {
        source.check_shape(settings_schema().as_value())?;
        let settings: Self = source.parse()?;
        settings.check().map_err(|message| source.error_in_file(message))?;
        Ok(settings)
    }

    /// Checks that each value is allowed.
    ///
    /// # Errors
    /// A sentence about the first value that is not allowed.
    pub fn check(&self) -> Result<(), String> {
        let Self {
            mode: _,
            watchdog,
            ignore: _,
            partial,
            fairness,
            soft_affinity,
            numa_homes,
            rate_control,
            directed_yield: _,
            guest,
            agent,
            steering: _,
            // `Listen` checks an address when it reads it.
            metrics: _,
            vm,
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
        within("migration_margin of [fairness]", fairness.migration_margin, zero, ms(1_000))?;
        within("balance_interval of [fairness]", fairness.balance_interval, ms(1), ms(10_000))?;
        within("allowed of [soft_affinity]", soft_affinity.allowed, 0, 10_000)?;
        within("preferred of [soft_affinity]", soft_affinity.preferred, 0, 10_000)?;
        within("away_min of [numa_homes]", numa_homes.away_min, zero, ms(10_000))?;
        within("window of [rate_control]", rate_control.window, ms(1), ms(1_000))?;
        within("threshold of [rate_control]", rate_control.threshold, 1, 100_000)?;
        within("ratelimit of [rate_control]", rate_control.ratelimit, zero, ms(500))?;
        within("steal_memory of [guest]", guest.steal_memory, zero, ms(10_000))?;
        partial.check()?;
        agent.check()?;
        vm.iter().try_for_each(VmRule::check)
    }
}

/// Checks that a value is allowed; `key` names the setting in the error.
pub(super) fn within<T: Ord + Display>(key: &str, value: T, min: T, max: T) -> Result<(), String> {
    match min <= value && value <= max {
        true => Ok(()),
        false => Err(format!("{key} is {value}; allowed is from {min} to {max}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Mode;

    fn parse(text: &str) -> Result<Settings, String> {
        let source = SourceFile::new(Path::new("tandem.toml"), text);
        Settings::parse(&source).map_err(|error| error.to_string())
    }

    #[test]
    fn missing_settings_have_their_defaults() {
        assert_eq!(parse(""), Ok(Settings::default()));
        let settings = parse("mode = \"guest\"\n[fairness]\nslice = \"5 ms\"\n").unwrap();
        let mut expected = Settings { mode: Mode::Guest, ..Settings::default() };
        expected.fairness.slice = Duration { ns: 5_000_000 };
        assert_eq!(settings, expected);
    }

    #[test]
    fn a_printed_file_reads_back_the_same() {
        let mut settings = Settings::default();
        settings.numa_homes.enabled = false;
        settings.rate_control.ratelimit = Duration { ns: 0 };
        settings.partial.cgroups.push("/machine.slice".into());
        let rule = |name: &str| VmRule { name: name.into(), user: Some("root".into()), ..VmRule::default() };
        settings.vm.push(VmRule { home: Some(vec![1]), ..rule("db*") });
        settings.vm.push(VmRule { isolated: true, ..rule("rt") });
        settings.vm.push(VmRule { cores: Some(crate::CoreUse::Apart), ..rule("secret") });
        assert_eq!(parse(&settings.to_toml()), Ok(settings));
    }

    #[test]
    fn settings_of_the_agent_alone_are_not_the_schedulers() {
        let settings = parse("[metrics]\nlisten = \"[::1]:9764\"\n[agent]\nenabled = false\n").unwrap();
        assert_ne!(settings, Settings::default());
        assert_eq!(settings.scheduler_only(), Settings::default());
        let line = serde_json::to_string(&settings).unwrap();
        assert_eq!(
            serde_json::from_str::<Settings>(&line).unwrap(),
            settings,
            "the agent's process receives the same"
        );
    }

    #[test]
    fn the_defaults_are_allowed() {
        assert_eq!(Settings::default().check(), Ok(()));
    }

    #[test]
    fn errors_name_what_is_allowed() {
        let cases = [
            ("watchdog = \"500 ms\"", "tandem.toml: watchdog is 500 ms; allowed is from 1 s to 30 s"),
            (
                "[fairness]\nslice_min = \"40 ms\"",
                "tandem.toml: slice_min of [fairness] is 40 ms; allowed is from 50 us to 20 ms",
            ),
            (
                "[rate_control]\nthreshold = 0",
                "tandem.toml: threshold of [rate_control] is 0; allowed is from 1 to 100000",
            ),
            (
                "[agent]\nlook_interval = \"10 ms\"",
                "tandem.toml: look_interval of [agent] is 10 ms; allowed is from 1 s to 600 s",
            ),
            (
                "[metrics]\nlisten = \"0.0.0.0:9764\"",
                "tandem.toml:2: listen of [metrics] is \"0.0.0.0:9764\"; allowed is a loopback address with a port, such \
                 as \"127.0.0.1:9764\" or \"[::1]:9764\", or \"\" for none",
            ),
            (
                "[partial]\ncgroups = [\"machine.slice\"]",
                "tandem.toml: cgroups of [partial] has \"machine.slice\"; give its path in the hierarchy, such as \
                 \"/machine.slice\"",
            ),
            (
                "[[vm]]\nname = \"db\"\n",
                "tandem.toml: [[vm]] with name \"db\" has no effect; add home, isolated, exempt or cores",
            ),
            (
                "\n[fairness]\nslice = 3",
                "tandem.toml:3: `3` has no unit; allowed are ns, us, ms, s, min, as in \"1.5 ms\"",
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text).unwrap_err(), expected);
        }
    }

    #[test]
    fn errors_of_unknown_keys_name_the_line() {
        for text in ["\nmodes = 1", "[fairness]\nslices = 1", "\n[fair]\nslice = 1"] {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with("tandem.toml:2: unknown field"), "{error}");
        }
    }
}
