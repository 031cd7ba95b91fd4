//! `tandem doctor`: what this machine lacks to run the scheduler, and how to cure it.

use serde_json::json;
use std::io::{self, Write};
use std::path::Path;
use tandem_host::doctor::{Finding, Severity, examine, is_loadable};
use tandemd::out::out;
use tandemd::text::to_json_text;

/// Arguments of `tandem doctor`.
#[derive(clap::Args)]
#[command(
    after_help = "It changes nothing. What it finds is `ok`, a `warning`, with which the scheduler does less than it \
    could, or `missing`, without which it cannot be loaded: then the exit status is 1.\n\n\
    Examples:\n  \
    tandem doctor\n  \
    tandem doctor --json | jq '.findings[] | select(.level != \"ok\")'"
)]
pub struct Args {
    /// Print JSON: is_loadable, and findings with subject, level and message
    #[arg(long)]
    json: bool,
}

/// Prints a line for each check.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let findings = examine(Path::new("/"));
    let mut out = out();
    if args.json {
        let all = json!({ "is_loadable": is_loadable(&findings), "findings": findings });
        out.write_all(to_json_text(&all)?.as_bytes())?;
    } else {
        write_lines(&findings, &mut out)?;
    }
    out.flush()?;
    match findings.iter().filter(|finding| finding.level == Severity::Missing).count() {
        0 => Ok(()),
        1 => anyhow::bail!("the scheduler cannot be loaded here: one thing is missing"),
        count => anyhow::bail!("the scheduler cannot be loaded here: {count} things are missing"),
    }
}

fn write_lines(findings: &[Finding], out: &mut impl Write) -> io::Result<()> {
    let width = findings.iter().map(|finding| finding.subject.len()).max().unwrap_or(0);
    for Finding { subject, level, message } in findings {
        writeln!(out, "{:7}  {subject:width$}  {message}", level.name())?;
    }
    Ok(())
}
