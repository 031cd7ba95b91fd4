//! `tandem evaluate`: one number for a scheduler, or the reasons why it has none.
//!
//! Problem: a program that searches for schedulers hands over whatever it has come up with, thousands of times, and
//! nobody looks at it before.
//!
//! Approach: two processes that can do nothing else ([`confined`]), the compiler and the simulator, one after the other. This one
//! reads the file, knows what Linux does in the same cases ([`references`]), and makes the number.
//!
//! Limits: one candidate at a time, on one CPU; a search starts as many commands as it has CPUs.

mod compile;
pub mod confined;
mod references;

use crate::sim::parse_seed;
use std::io::Write;
use std::path::{Path, PathBuf};
use tandem_file::named_file::{OBJECT_MAX, read_bytes};
use tandem_file::units::Size;
use tandem_lab::evaluate::reasons::{Kind, Reason};
use tandem_lab::evaluate::suite::{Split, Suite};
use tandem_lab::evaluate::{Candidate, Evaluation, Options};
use tandemd::error::{BadInput, one_line};
use tandemd::out::out;
use tandemd::text::to_json_text;

/// Most bytes of a source: ten times as many as the largest scheduler of scx has.
const SOURCE_MAX: Size = Size { bytes: 4 << 20 };

/// Arguments of `tandem evaluate`.
#[derive(clap::Args)]
#[command(
    after_help = "The number is 1 for a scheduler that is as good as Linux, and more for a better one. One that breaks a rule has \
    \"-inf\", and reasons. The exit status is 0 in either case.\n\nExamples:\n  \
    tandem evaluate my-sched.bpf.c --suite hosts --format json\n  \
    tandem evaluate my-sched.bpf.o --suite hosts --split validation\n  \
    tandem evaluate my-sched.bpf.c --suite tasks --seed 7"
)]
pub struct Args {
    /// The scheduler: a C source, NAME.bpf.c, or an object file, NAME.bpf.o
    candidate: PathBuf,
    /// What to judge it by: hosts with some 20 VMs, guests, or tasks of machines without VMs
    #[arg(long, value_name = "NAME", value_parser = parse_suite)]
    suite: Suite,
    /// Which cases of the suite: train, validation or test
    #[arg(long, value_name = "NAME", default_value = "train", value_parser = parse_split)]
    split: Split,
    /// The seed that the cases are drawn from; candidates compare under one seed
    #[arg(long, value_name = "NUMBER", default_value_t = 1, allow_negative_numbers = true, value_parser = parse_seed)]
    seed: u64,
    /// How to print the result
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Format {
    /// Readable text
    Table,
    /// One JSON object
    Json,
}

pub(crate) fn parse_suite(text: &str) -> Result<Suite, String> {
    Suite::named(text).ok_or_else(|| {
        let names = Suite::ALL.map(Suite::name).join(", ");
        format!("there is no suite '{}'; there are {names}", one_line(text))
    })
}

pub(crate) fn parse_split(text: &str) -> Result<Split, String> {
    Split::named(text).ok_or_else(|| {
        let names = Split::ALL.map(Split::name).join(", ");
        format!("there is no split '{}'; there are {names}", one_line(text))
    })
}

/// Judges the candidate.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let options = Options { split: args.split, seed: args.seed };
    let evaluation = evaluate(&args.candidate, args.suite, options)?;
    let mut out = out();
    match args.format {
        Format::Json => out.write_all(to_json_text(&evaluation)?.as_bytes())?,
        Format::Table => write!(out, "{evaluation}")?,
    }
    Ok(out.flush()?)
}

fn evaluate(path: &Path, suite: Suite, options: Options) -> anyhow::Result<Evaluation> {
    let shown = one_line(&path.display().to_string());
    let name = one_line(&path.file_name().unwrap_or_default().to_string_lossy());
    let read = |most| read_bytes(path, most).map_err(|error| BadInput::new(format!("{shown}: {error}")));
    let object = match path.extension().and_then(|extension| extension.to_str()) {
        Some("c") => match compile::compile(&name, &read(SOURCE_MAX)?)? {
            Ok(object) => object,
            Err(reason) => return Ok(Evaluation::refused(&name, suite, options, reason)),
        },
        Some("o") => read(OBJECT_MAX)?,
        _ => {
            let message =
                "is neither a C source nor an object by its name; name a file that ends in .bpf.c or .bpf.o";
            return Err(BadInput::new(format!("{shown}: {message}")).into());
        }
    };
    let cases = suite.cases(options);
    let outcomes = match confined::judge(&name, &object, suite, options)? {
        Ok(outcomes) => outcomes,
        Err(reason) => return Ok(Evaluation::refused(&name, suite, options, reason)),
    };
    let references = references::of(suite, options, &cases).map_err(anyhow::Error::msg)?;
    let candidate = Candidate { name: &name, object: &object };
    Ok(Evaluation::new(candidate, suite, options, &cases, &outcomes, &references))
}

/// A reason about a bound of a process.
fn limit(message: String) -> Reason {
    Reason::new(Kind::Limit, None, message)
}
