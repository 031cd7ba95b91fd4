//! `tandem evaluate`: one number for a scheduler, or the reasons why it has none. [`tandem_evaluate`] judges.

use crate::sim::parse_seed;
use anyhow::anyhow;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use tandem_evaluate::{Error, Own, Subject};
use tandem_lab::evaluate::suite::{Split, Suite};
use tandem_lab::evaluate::{Evaluation, Options};
use tandem_settings::Settings;
use tandemd::error::{BadInput, one_line};
use tandemd::out::out;
use tandemd::text::to_json_text;

/// This program. An update may have replaced the file of that name.
const PROGRAM: &str = "/proc/self/exe";
/// The candidate that is Tandem's own scheduler.
const TANDEM: &str = "tandem";

/// Arguments of `tandem evaluate`.
#[derive(clap::Args)]
#[command(
    after_help = "The number is 1 for a scheduler that is as good as Linux, and more for a better one. One that breaks a rule has \
    \"-inf\", and reasons. The exit status is 0 in either case.\n\nExamples:\n  \
    tandem evaluate my-sched.bpf.c --suite hosts --format json\n  \
    tandem evaluate my-sched.bpf.o --suite hosts --split validation\n  \
    tandem evaluate --settings tandem.toml --suite hosts"
)]
pub struct Args {
    /// The scheduler: a C source, NAME.bpf.c, an object file, NAME.bpf.o, or tandem [default: tandem, if there are settings]
    #[arg(required_unless_present = "settings")]
    candidate: Option<PathBuf>,
    /// Judge Tandem's own scheduler with this file of settings, as `tandem run` reads it
    #[arg(long, value_name = "FILE")]
    settings: Option<PathBuf>,
    /// What to judge it by: hosts with some 20 VMs, guests, or tasks of machines without VMs
    #[arg(long, value_name = "NAME", value_parser = Suite::named)]
    suite: Suite,
    /// Which cases of the suite: train, validation or test
    #[arg(long, value_name = "NAME", default_value = "train", value_parser = Split::named)]
    split: Split,
    /// The seed that the cases are drawn from; candidates compare under one seed
    #[arg(long, value_name = "NUMBER", default_value_t = 1, allow_negative_numbers = true, value_parser = parse_seed)]
    seed: u64,
    /// How to print the result
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

/// Arguments of `tandem confined`.
#[derive(clap::Args)]
pub struct ConfinedArgs {
    /// What to do
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Format {
    /// Readable text
    Table,
    /// One JSON object
    Json,
}

/// Judges the candidate.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let options = Options { split: args.split, seed: args.seed };
    let evaluation = evaluate(args, options)?;
    let mut out = out();
    match args.format {
        Format::Json => out.write_all(to_json_text(&evaluation)?.as_bytes())?,
        Format::Table => write!(out, "{evaluation}")?,
    }
    Ok(out.flush()?)
}

fn evaluate(args: &Args, options: Options) -> anyhow::Result<Evaluation> {
    let evaluate = |subject: Subject<'_>| {
        tandem_evaluate::evaluate(subject, args.suite, options, &own(), &AtomicBool::new(false)).map_err(told)
    };
    match (args.candidate.as_deref().filter(|path| *path != Path::new(TANDEM)), &args.settings) {
        (Some(path), None) => evaluate(Subject::File(path)),
        (Some(path), Some(_)) => {
            let path = one_line(&path.display().to_string());
            let message = "--settings are for Tandem's own scheduler; leave them out, or the candidate";
            Err(BadInput::new(format!("{path}: {message}")).into())
        }
        (None, None) => evaluate(Subject::Tandem(TANDEM, &Settings::default())),
        (None, Some(path)) => {
            let settings = Settings::read(path).map_err(BadInput::new)?;
            let name = one_line(&path.file_name().unwrap_or_default().to_string_lossy());
            evaluate(Subject::Tandem(&name, &settings))
        }
    }
}

fn own() -> Own {
    Own { name: "tandem", file: PROGRAM.into(), command: PROGRAM.into(), arguments: vec!["confined".into()] }
}

/// Does one piece of an evaluation's work, behind a fence.
pub fn confined(args: &ConfinedArgs) -> anyhow::Result<()> {
    tandem_evaluate::confined::run(&args.arguments).map_err(told)
}

/// An error of the library as one of the command.
pub fn told(error: Error) -> anyhow::Error {
    match error {
        Error::Input(message) => BadInput::new(message).into(),
        other => anyhow!("{other}"),
    }
}
