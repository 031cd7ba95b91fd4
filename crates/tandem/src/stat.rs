//! `tandem stat`: what the loaded scheduler has counted.

use crate::access::{Access, Status};
use crate::counters::write_table;
use serde_json::json;
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, SystemTime};
use tandem_host::scheduler::{Counter, Kernel};

/// Arguments of `tandem stat`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    tandem stat\n  \
    tandem stat --json | jq '.counters[] | select(.name == \"wake_idle\").value'")]
pub struct Args {
    /// Print JSON: state, mode, kernel, loaded_unix_s, and counters with name, value and description
    #[arg(long)]
    json: bool,
}

/// Prints what the scheduler is doing and its counters.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let kernel = Kernel::new(Path::new("/"));
    let Status { state, mode, since, counters } = Access::find()?.status()?;
    let mut out = io::stdout().lock();
    if args.json {
        let all = counters.iter().map(|Counter { name, description, value }| {
            json!({ "name": name, "value": value, "description": description })
        });
        let unix = since.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let all = json!({
            "state": state,
            "mode": mode,
            "kernel": kernel.release(),
            "loaded_unix_s": unix.as_secs(),
            "counters": all.collect::<Vec<_>>(),
        });
        serde_json::to_writer_pretty(&mut out, &all)?;
        writeln!(out)?;
    } else {
        let age = age(since.elapsed().unwrap_or_default());
        writeln!(out, "{state} in {mode} mode for {age}, Linux {}", kernel.release())?;
        write_table(&counters, &mut out)?;
    }
    Ok(())
}

/// A time in its two largest units.
fn age(time: Duration) -> String {
    let s = time.as_secs();
    match (s / 86_400, s / 3_600 % 24, s / 60 % 60, s % 60) {
        (0, 0, 0, s) => format!("{s} s"),
        (0, 0, min, s) => format!("{min} min {s} s"),
        (0, h, min, _) => format!("{h} h {min} min"),
        (days, h, ..) => format!("{days} d {h} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_two_units() {
        let cases = [(5, "5 s"), (65, "1 min 5 s"), (3_600, "1 h 0 min"), (90_061, "1 d 1 h")];
        for (s, expected) in cases {
            assert_eq!(age(Duration::from_secs(s)), expected);
        }
    }
}
