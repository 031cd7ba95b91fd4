//! How often the kernel calls one of its functions, counted by a kprobe.

use anyhow::{Context, Result};
use std::fs::{self, File};
use std::io::Write;

const TRACING: &str = "/sys/kernel/tracing";

/// Counts the calls of a function, until it goes out of scope.
pub struct Probe {
    function: &'static str,
}

impl Probe {
    /// Counts from now on. There can be one for each function.
    pub fn set(function: &'static str) -> Result<Self> {
        write_event(&format!("p:calls/{function} {function}"))
            .with_context(|| format!("cannot probe {function}"))?;
        let probe = Self { function };
        probe.enable(true)?;
        Ok(probe)
    }

    /// How often it has been called.
    pub fn calls(&self) -> Result<u64> {
        let profile = fs::read_to_string(format!("{TRACING}/kprobe_profile"))?;
        parse(&profile, self.function).with_context(|| format!("{} is not in kprobe_profile", self.function))
    }

    fn enable(&self, enable: bool) -> Result<()> {
        let file = format!("{TRACING}/events/calls/{}/enable", self.function);
        fs::write(&file, if enable { "1" } else { "0" }).with_context(|| format!("cannot write to {file}"))
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        // A probe that stays would make the next one for this function fail, and so be seen.
        let _ = self.enable(false);
        let _ = write_event(&format!("-:calls/{}", self.function));
    }
}

/// Adds an event to the list, or removes one: the file is opened to append, since otherwise it loses all
/// other events.
fn write_event(line: &str) -> Result<()> {
    let mut events = File::options().append(true).open(format!("{TRACING}/kprobe_events"))?;
    Ok(events.write_all(line.as_bytes())?)
}

/// Calls that were counted, and those that were missed because another probe was at work.
fn parse(profile: &str, function: &str) -> Option<u64> {
    let line =
        profile.lines().map(str::trim).find_map(|line| line.strip_prefix(function)?.strip_prefix(' '))?;
    line.split_whitespace().map(|number| number.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_those_counted_and_those_missed() {
        let profile =
            "  yield_to_task_scx                    12               3\n  yield_to       700    0\n";
        assert_eq!(parse(profile, "yield_to_task_scx"), Some(15));
        assert_eq!(parse(profile, "yield_to"), Some(700));
        assert_eq!(parse(profile, "yield"), None);
    }
}
