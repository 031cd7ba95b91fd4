//! `tandem stat`: what the loaded scheduler has counted.

use serde_json::json;
use std::io::Write;
use std::path::Path;
use tandem_host::scheduler::{RunningKernel, Status};
use tandem_settings::Counter;
use tandemd::access::Access;
use tandemd::counters::write_table;
use tandemd::out::out;
use tandemd::text::{age, to_json_text};

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
    let kernel = RunningKernel::new(Path::new("/"));
    let status = Access::find()?.status()?;
    let loaded_unix_s = status.loaded_unix_s();
    let Status { state, mode, since, counters } = status;
    let mut out = out();
    if args.json {
        let all = counters.iter().map(|Counter { name, description, value }| {
            json!({ "name": name, "value": value, "description": description })
        });
        let all = json!({
            "state": state,
            "mode": mode,
            "kernel": kernel.release(),
            "loaded_unix_s": loaded_unix_s,
            "counters": all.collect::<Vec<_>>(),
        });
        out.write_all(to_json_text(&all)?.as_bytes())?;
    } else {
        let age = age(since.elapsed().unwrap_or_default());
        writeln!(out, "{state} in {} mode for {age}, Linux {}", mode.name(), kernel.release())?;
        write_table(&counters, &mut out)?;
    }
    Ok(())
}
