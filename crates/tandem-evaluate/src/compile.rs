//! Compiles a stranger's source behind a fence.
//!
//! The compiler reads the source from standard input, the headers of the command from memory, and beyond these only its own
//! installation and the system's libraries and C headers, which everybody may read.

use crate::clang::Clang;
use crate::confined::to_become;
use crate::headers::Headers;
use crate::{Error, Own, limit};
use rustix::process::Signal;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tandem_fence::run::{Bounds, Broke, run};
use tandem_file::named_file::OBJECT_MAX;
use tandem_file::shown::one_line;
use tandem_lab::evaluate::reasons::{Kind, MESSAGE_MAX, Reason};

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
pub fn compile(
    name: &str,
    source: &[u8],
    own: &Own,
    ended: &AtomicBool,
) -> Result<Result<Vec<u8>, Reason>, Error> {
    let clang = Clang::find()?;
    let headers = Headers::unpack()?;
    let mut command = to_become(own, &reads(&clang), clang.program());
    command.args(clang.options(&headers, &[], &[]));
    command.args(["-fno-color-diagnostics", "-fno-crash-diagnostics", "-ferror-limit=20", "-x", "c", "-"]);
    // The same source is the same object, whatever the time.
    command.env("LANG", "C").env("PATH", "/nonexistent").env("SOURCE_DATE_EPOCH", "0");
    let bounds = Bounds { output_bytes: OBJECT_MAX.bytes, error_bytes: MESSAGE_MAX as u64, time: TIME };
    // Messages name the file, not standard input.
    let shown = name.replace(['\\', '"'], "_");
    let input = [format!("#line 1 \"{shown}\"\n").as_bytes(), source].concat();
    let ended = run(&mut command, &input, bounds, ended);
    let ended = ended.map_err(|error| Error::machine("the compiler cannot be run", error))?;
    let said = String::from_utf8_lossy(&ended.errors);
    Ok(match (ended.broke, ended.status.signal(), ended.status.code()) {
        (Some(Broke::Ended), ..) => return Err(Error::Ended),
        (Some(Broke::Output), ..) => Err(limit(format!("the object is larger than {OBJECT_MAX}"))),
        (Some(Broke::Time), ..) => {
            Err(limit(format!("the compiler did not come to an end in {} s", TIME.as_secs())))
        }
        (None, Some(signal), _) if signal == Signal::KILL.as_raw() => {
            Err(limit(format!("the compiler had {CPU_S} s of CPU time and did not come to an end")))
        }
        // Messages about the source do not begin a line with this.
        (None, ..) if said.lines().any(|line| line.starts_with("LLVM ERROR: out of memory")) => Err(limit(
            format!("the compiler takes more than the {} MiB that it may have", MEMORY_BYTES >> 20),
        )),
        (None, Some(signal), _) => Err(Reason::new(
            Kind::Compile,
            None,
            format!(
                "the compiler was ended by signal {signal}, for want of memory or by a fault of its own\n{said}"
            ),
        )),
        (None, None, Some(0)) => Ok(ended.output),
        // No compiler ends with this: there was no fence, or no program.
        (None, None, Some(NO_FENCE)) => return Err(Error::Machine(one_line(&said))),
        (None, None, _) => Err(Reason::new(Kind::Compile, None, said)),
    })
}

/// The exit status of a process that could not build its fence.
pub const NO_FENCE: i32 = 113;

/// What the compiler may read: its installation, the system's libraries, and the C library's headers.
fn reads(clang: &Clang) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = LIBRARIES.map(PathBuf::from).into();
    let program = clang.program().canonicalize().unwrap_or_else(|_| clang.program().into());
    // Of /opt/llvm/bin/clang that is /opt/llvm/lib. Its headers are among the folders.
    let bin = program.parent().filter(|folder| folder.ends_with("bin"));
    all.extend(bin.and_then(|bin| bin.parent()).map(|installation| installation.join("lib")));
    all.push(clang.program().into());
    all.push(program);
    all.extend(clang.folders().iter().map(PathBuf::from));
    all
}
