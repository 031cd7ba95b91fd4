//! `tandem what-if`: what changes of a recorded machine would do.

use crate::bar::Bar;
use crate::out_file::OutFile;
use crate::recording_source::RecordingSource;
use crate::reproduce::make_writable;
use crate::sim::parse_seed;
use std::io::Write;
use std::path::PathBuf;
use tandem_lab::twin::picture;
use tandem_lab::twin::situation::Situation;
use tandem_lab::twin::what_if::what_if;
use tandemd::error::BadInput;
use tandemd::out::out;
use tandemd::text::to_json_text;

/// Arguments of `tandem what-if`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    tandem record --out host.parquet && tandem what-if host.parquet\n  \
    tandem what-if host.parquet --format json --runs 10\n  \
    tandem what-if host.parquet --out report")]
pub struct Args {
    #[command(flatten)]
    source: RecordingSource,
    /// Seed of the first run of each variant; the next ones count up from it
    #[arg(long, value_name = "NUMBER", default_value_t = 1, allow_negative_numbers = true, value_parser = parse_seed)]
    seed: u64,
    /// Runs of each variant
    #[arg(long, value_name = "NUMBER", default_value_t = 5, value_parser = clap::value_parser!(u16).range(2..=1000))]
    runs: u16,
    /// How to print the result
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Write what-if.html, with pictures, and what-if.json into this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// How to print the result.
#[derive(Clone, Copy, clap::ValueEnum)]
enum Format {
    /// Readable text
    Table,
    /// One JSON object
    Json,
}

/// Runs the variants and prints them.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let together = args.source.read()?;
    let twin = args.source.understand(&together, args.source.path())?;
    let situation = Situation::recorded(twin.recording).map_err(BadInput::new)?;
    let recorded = twin.recorded().map_err(BadInput::new)?;
    if let Some(folder) = &args.out {
        make_writable(folder)
            .map_err(|error| BadInput::new(format!("--out {}: {error}", folder.display())))?;
    }
    let seeds: Vec<u64> = (0..u64::from(args.runs)).map(|at| args.seed.wrapping_add(at)).collect();
    let bar = Bar::new("what-if", "runs");
    let answer = what_if(&twin, &recorded, &situation, &seeds, &bar)
        .map_err(|message| BadInput::new(format!("{}: {message}", args.source.name())))?;
    bar.line();
    drop(bar);
    if let Some(folder) = &args.out {
        let page = picture::html(&args.source.name(), &answer)?;
        for (name, text) in [("what-if.html", page), ("what-if.json", to_json_text(&answer)?)] {
            OutFile::create(&folder.join(name), &args.source.paths())?.write(&text)?;
        }
    }
    // Last: who reads it may not read to its end.
    let mut out = out();
    match args.format {
        Format::Table => write!(out, "{answer}")?,
        Format::Json => out.write_all(to_json_text(&answer)?.as_bytes())?,
    }
    Ok(())
}
