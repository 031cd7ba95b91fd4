//! `tandem build`: compile a scheduler for sched_ext into an object file, for the simulator and for kernels.
//!
//! Problem: such a source needs a compiler for BPF with options that kernels accept, and headers of three
//! projects: the kernel's types, libbpf's, and those of sched-ext/scx. A scheduler engineer gathers them from a
//! build system that is larger than the scheduler.
//!
//! Approach: the user's [clang](tandem_evaluate::clang) compiles, with the [headers](tandem_evaluate::headers) that come with
//! the command. What
//! it says passes through. The simulator's own reader looks at the object, so that what it cannot run is known
//! now. The object appears when it is complete; nothing else is written to a file system.
//!
//! Limits: one source is one object, which keeps what only debuggers read, nine tenths of it. There is no
//! verifier: what a kernel refuses shows when a kernel loads it.

use crate::bar::Bar;
use crate::evaluate::told;
use crate::out_file::OutFile;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use tandem_evaluate::clang::Clang;
use tandem_lab::scenario::policy::compiled;
use tandem_lab::scenario::policy::scheduler::SchedulerName;
use tandemd::error::{BadInput, one_line};
use tandemd::out::out;

/// Arguments of `tandem build`.
#[derive(clap::Args)]
#[command(
    after_help = "The headers come with the command: <scx/common.bpf.h> and the others of sched-ext/scx, libbpf's \
    <bpf/...>, and vmlinux.h. The compiler is BPF_CLANG, clang, or the newest clang-NUMBER in PATH.\n\nExamples:\n  \
    tandem build my-sched.bpf.c\n  \
    tandem build -I include -D SLICE_NS=1000000 my-sched.bpf.c --out short.bpf.o\n  \
    tandem sim scenario.toml --policy host=object:my-sched.bpf.o"
)]
pub struct Args {
    /// The source of a sched_ext scheduler, NAME.bpf.c
    source: PathBuf,
    /// The object file [default: beside the source, NAME.bpf.o]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Search this folder for headers, before those of the command; may be given several times
    #[arg(short = 'I', value_name = "DIR")]
    folders: Vec<PathBuf>,
    /// Define a macro, as 1 or as VALUE; may be given several times
    #[arg(short = 'D', value_name = "NAME[=VALUE]", value_parser = parse_macro)]
    macros: Vec<String>,
}

fn parse_macro(text: &str) -> Result<String, String> {
    let name = text.split('=').next().unwrap_or_default();
    match is_identifier(name) {
        true => Ok(text.into()),
        false => Err(format!("'{}' is no name of a macro; write NAME or NAME=VALUE", one_line(name))),
    }
}

/// Whether C takes this for a name.
pub fn is_identifier(name: &str) -> bool {
    !name.starts_with(|first: char| first.is_ascii_digit())
        && !name.is_empty()
        && name.chars().all(|character| character.is_ascii_alphanumeric() || character == '_')
}

/// Compiles the source.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let name = one_line(&args.source.display().to_string());
    let path = object_path(args, &name)?;
    let clang = Clang::find().map_err(told)?;
    let file = OutFile::create(&path, &[&args.source])?;
    let busy = Bar::busy(&name, "compiling");
    let object = clang.compile(&args.source, &args.folders, &args.macros).map_err(told)?;
    drop(busy);
    let object =
        object.ok_or_else(|| BadInput::new(format!("{name} cannot be compiled: clang says why above")))?;
    file.write(&object)?;

    let shown = one_line(&path.display().to_string());
    writeln!(out(), "{shown}")?;
    if let Err(refusal) = compiled::check(&SchedulerName::Object(path)) {
        // Standard error may be closed.
        let _ = writeln!(std::io::stderr(), "tandem: warning: the simulator refuses {refusal}");
    }
    Ok(())
}

/// Where the object comes to be. Looks at the source, too.
fn object_path(args: &Args, name: &str) -> Result<PathBuf, BadInput> {
    let wrong = |what: &str| BadInput::new(format!("{name}: {what}"));
    let kind = fs::metadata(&args.source).map_err(|error| wrong(&format!("cannot be read: {error}")))?;
    if !kind.is_file() {
        return Err(wrong("is no regular file; name the C source of a scheduler"));
    }
    if args.source.extension() != Some("c".as_ref()) {
        return Err(wrong("is no C source by its name; name a file that ends in .bpf.c"));
    }
    let path = args.out.clone().unwrap_or_else(|| args.source.with_extension("o"));
    let same = |path: &Path| fs::canonicalize(path).ok();
    if same(&path).is_some_and(|path| same(&args.source) == Some(path)) {
        return Err(wrong("--out names the source itself; name another file"));
    }
    Ok(path)
}
