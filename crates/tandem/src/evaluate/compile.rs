//! Compiles a stranger's source behind a fence.
//!
//! The compiler reads the source from standard input, the headers of the command from memory, and beyond these only its own
//! installation and the system's libraries and C headers, which everybody may read.

use super::confined::{PROGRAM, become_arguments};
use super::limit;
use crate::build::clang::{Clang, NO_HEADERS};
use crate::build::headers::Headers;
use anyhow::{Context, bail};
use rustix::process::Signal;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tandem_fence::run::{Bounds, Broke, run};
use tandem_file::named_file::OBJECT_MAX;
use tandem_lab::evaluate::reasons::{Kind, MESSAGE_MAX, Reason};
use tandemd::error::one_line;

/// CPU time that a source may take, s: the largest of scx takes 5.
pub const CPU_S: u64 = 10;
/// Address space, bytes: the largest of scx takes some hundred MiB beside the compiler's libraries.
pub const MEMORY_BYTES: u64 = 2 << 30;
/// How long it may take if it gets little CPU time.
const TIME: Duration = Duration::from_secs(60);
/// Where the system's libraries are; folders that do not exist are left out.
const LIBRARIES: [&str; 7] =
    ["/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/libexec", "/etc/ld.so.cache", "/nix/store"];

/// The object of a source, or why there is none.
///
/// # Errors
/// If there is no compiler, or no fence.
pub fn compile(name: &str, source: &[u8]) -> anyhow::Result<Result<Vec<u8>, Reason>> {
    let clang = Clang::find()?;
    let headers = Headers::unpack().context(NO_HEADERS)?;
    let mut command = Command::new(PROGRAM);
    command.args(become_arguments(&reads(&clang))).arg("--").arg(clang.program());
    command.args(clang.options(&headers, &[], &[]));
    command.args(["-fno-color-diagnostics", "-fno-crash-diagnostics", "-ferror-limit=20", "-x", "c", "-"]);
    command.env_clear().env("LANG", "C").env("PATH", "/nonexistent").current_dir("/");
    let bounds = Bounds { output_bytes: OBJECT_MAX.bytes, error_bytes: MESSAGE_MAX as u64, time: TIME };
    // Messages name the file, not standard input.
    let shown = name.replace(['\\', '"'], "_");
    let input = [format!("#line 1 \"{shown}\"\n").as_bytes(), source].concat();
    let ended = run(&mut command, &input, bounds).context("the compiler cannot be run")?;
    let said = String::from_utf8_lossy(&ended.errors);
    Ok(match (ended.broke, ended.status.signal(), ended.status.code()) {
        (Some(Broke::Output), ..) => Err(limit(format!("the object is larger than {OBJECT_MAX}"))),
        (Some(Broke::Time), ..) => {
            Err(limit(format!("the compiler did not come to an end in {} s", TIME.as_secs())))
        }
        (None, Some(signal), _) if signal == Signal::XCPU.as_raw() || signal == Signal::KILL.as_raw() => {
            Err(limit(format!("the compiler had {CPU_S} s of CPU time and did not come to an end")))
        }
        (None, ..) if said.contains("out of memory") => Err(limit(format!(
            "the compiler takes more than the {} MiB that it may have",
            MEMORY_BYTES >> 20
        ))),
        (None, Some(signal), _) => Err(Reason::new(
            Kind::Compile,
            None,
            format!(
                "the compiler was ended by signal {signal}, for want of memory or by a fault of its own\n{said}"
            ),
        )),
        (None, None, Some(0)) => Ok(ended.output),
        // No compiler ends with this: there was no fence, or no program.
        (None, None, Some(NO_FENCE)) => bail!("{}", one_line(&said)),
        (None, None, _) => Err(Reason::new(Kind::Compile, None, said)),
    })
}

/// The exit status of a process that could not build its fence.
pub const NO_FENCE: i32 = 113;

/// What the compiler may read: its installation, the system's libraries, and the C library's headers.
fn reads(clang: &Clang) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = LIBRARIES.map(PathBuf::from).into();
    let program = clang.program().canonicalize().unwrap_or_else(|_| clang.program().into());
    // Of /usr/lib/llvm-19/bin/clang that is all below llvm-19, but of /usr/bin/clang the program alone.
    let installation = program.parent().and_then(Path::parent);
    let is_own =
        |folder: &&Path| ![Path::new("/"), Path::new("/usr"), Path::new("/usr/local")].contains(folder);
    all.extend(installation.filter(is_own).map(PathBuf::from));
    all.push(clang.program().into());
    all.push(program);
    all.extend(clang.folders().iter().map(PathBuf::from));
    all
}
