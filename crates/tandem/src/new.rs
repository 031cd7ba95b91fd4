//! `tandem new`: a folder with a small scheduler of one's own.
//!
//! The files are those in `new/`, with the user's name in the place of theirs. The folder is made beside its place
//! under a hidden name, and takes its own when it is complete: an interrupted command leaves nothing, and a
//! folder that is there already is left as it is.

use crate::build::is_identifier;
use crate::reproduce::cancelled_by_interrupt;
use anyhow::Context;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::collections::HashSet;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use tandem_bpf::headers::HEADERS;
use tandem_evaluate::headers;
use tandemd::error::{BadInput, one_line};
use tandemd::out::out;

/// Arguments of `tandem new`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    tandem new my-sched\n  \
    tandem build my-sched/my-sched.bpf.c\n  \
    tandem compare my-sched/my-sched.toml --policy linux --policy object:my-sched/my-sched.bpf.o")]
pub struct Args {
    /// Its name, and that of the folder, which is made here: letters, digits, - and _
    name: String,
}

/// The name that the files have here, as a file's and as C's: there, a name has no hyphen.
const NAME: [&str; 2] = ["my-sched", "my_sched"];
/// The files, with that name in theirs and in their texts.
const FILES: [(&str, &str); 4] = [
    ("my-sched.bpf.c", include_str!("new/my-sched.bpf.c")),
    ("my-sched.toml", include_str!("new/my-sched.toml")),
    ("Makefile", include_str!("new/Makefile")),
    ("README.md", include_str!("new/README.md")),
];
/// Longest name of a scheduler: `SCX_OPS_NAME_LEN` of the kernel, less the zero at its end.
const NAME_MAX: usize = 127;

/// Makes the folder.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let name = checked(&args.name)?;
    let there = || BadInput::new(format!("{name} is there already; choose another name, or remove it"));
    if Path::new(name).symlink_metadata().is_ok() {
        return Err(there().into());
    }
    let cancel = cancelled_by_interrupt()?;
    let cannot = || format!("cannot make {name}");
    let unfinished = Unfinished::create(name).with_context(cannot)?;
    for (file, text) in FILES {
        fs::write(unfinished.0.join(named(file, name)), named(text, name)).with_context(cannot)?;
    }
    if cancel.load(Ordering::Relaxed) {
        anyhow::bail!("interrupted; nothing was made");
    }
    unfinished.complete(name).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists | io::ErrorKind::DirectoryNotEmpty => there().into(),
        _ => anyhow::Error::new(error).context(cannot()),
    })?;
    let mut out = out();
    for (file, _) in FILES {
        writeln!(out, "{name}/{}", named(file, name))?;
    }
    Ok(())
}

/// A name that does for a folder, in C, and in the kernel.
fn checked(name: &str) -> anyhow::Result<&str> {
    let wrong = |what: &str| Err(BadInput::new(format!("'{}' {what}", one_line(name))).into());
    let in_c = name.replace('-', "_");
    if !is_identifier(&in_c) || !name.starts_with(|first: char| first.is_ascii_alphabetic()) {
        return wrong(
            "cannot be the name of a scheduler; begin with a letter, and use letters, digits, - and _",
        );
    }
    if name.len() > NAME_MAX {
        return wrong("is too long for the kernel; 127 characters are allowed");
    }
    let source = named(FILES[0].1, name);
    let ours: HashSet<_> = words(&source).filter(|word| word.starts_with(&format!("{in_c}_"))).collect();
    for (_, packed) in HEADERS {
        let header = headers::text(packed).context("a header of this command cannot be read")?;
        if let Some(taken) = words(&String::from_utf8_lossy(&header)).find(|word| ours.contains(word)) {
            return wrong(&format!("would make a second `{taken}` beside the kernel's; choose another name"));
        }
    }
    Ok(name)
}

/// The words of a text in C.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|character: char| !character.is_ascii_alphanumeric() && character != '_')
}

/// The text with the user's name in the place of ours.
fn named(text: &str, name: &str) -> String {
    let [in_files, in_c] = NAME;
    // First one, then the other within what is left: the user's name may be like ours.
    let parts: Vec<_> = text.split(in_c).map(|part| part.replace(in_files, name)).collect();
    parts.join(&name.replace('-', "_"))
}

/// A folder under construction, which goes if it is not completed.
struct Unfinished(PathBuf);

impl Unfinished {
    fn create(name: &str) -> io::Result<Self> {
        let folder = PathBuf::from(format!(".{name}.{}", std::process::id()));
        fs::create_dir(&folder)?;
        Ok(Self(folder))
    }

    /// Gives it its own name, which nothing has.
    fn complete(self, name: &str) -> io::Result<()> {
        match renameat_with(CWD, &self.0, CWD, name, RenameFlags::NOREPLACE) {
            // Some file systems cannot; what is there is replaced only if it is an empty folder.
            Err(rustix::io::Errno::INVAL) => fs::rename(&self.0, name),
            done => Ok(done?),
        }
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // Gone if it is complete; otherwise the error that led here is the one that counts.
        let _ = fs::remove_dir_all(&self.0);
    }
}
