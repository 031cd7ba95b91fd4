//! `tandem schema`: the JSON Schema of a file format.

use std::io::Write;
use tandem_lab::schema;
use tandem_settings::settings_schema;
use tandemd::out::out;

/// Arguments of `tandem schema`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    tandem schema scenario > scenario.schema.json\n  \
    tandem schema experiment | jq '.properties | keys'")]
pub struct Args {
    /// The file format
    #[arg(value_enum)]
    format: FileFormat,
}

/// A file format.
#[derive(Clone, Copy, clap::ValueEnum)]
enum FileFormat {
    /// A machine, its host's policy, VMs and what they do
    Scenario,
    /// Scenarios with several policies, beside a published table
    Experiment,
    /// A scenario at many points of a space of its parameters
    Study,
    /// The hardware of a host
    Machine,
    /// The settings of `tandem run`
    Settings,
}

/// Prints the schema.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let schema = match args.format {
        FileFormat::Scenario => schema::scenario(),
        FileFormat::Experiment => schema::experiment(),
        FileFormat::Study => schema::study(),
        FileFormat::Machine => schema::machine(),
        FileFormat::Settings => settings_schema(),
    };
    let mut out = out();
    serde_json::to_writer_pretty(&mut out, &schema)?;
    writeln!(out)?;
    Ok(())
}
