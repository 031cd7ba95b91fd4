//! The user's clang: which one it is, and its options.

use crate::Error;
use crate::headers::{FOLDER, Headers};
use rustix::fs::{Access, access};
use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tandem_bpf::headers::TARGET;
use tandem_file::named_file::OBJECT_MAX;
use tandem_file::shown::one_line;

/// The environment's name of a compiler; scx's own build has the same.
const VARIABLE: &str = "BPF_CLANG";
/// The first release that knows the instructions of [`INSTRUCTIONS`].
const OLDEST: u32 = 18;
/// The instruction set: that of Linux 6.6, which sched_ext's first kernel has.
const INSTRUCTIONS: &str = "-mcpu=v4";
/// The first release that makes jump tables, which need Linux 6.19.
const JUMP_TABLES: u32 = 22;
/// What a source may cost, whoever wrote it: the largest of scx takes some seconds and some hundred megabytes. The compiler
/// ends by itself after that, even if this command has ended before.
const CPU_TIME_MAX_S: u64 = 120;
const MEMORY_MAX: u64 = 8 << 30;

/// A compiler that can be used.
pub struct Clang {
    program: PathBuf,
    version: u32,
    /// Where it finds the C library's headers for this machine. For BPF it would leave out those that depend on
    /// the architecture.
    folders: Vec<OsString>,
}

impl Clang {
    /// The one that the environment names, or else the one of the usual name, or else the newest.
    ///
    /// # Errors
    /// If there is none, or none is new enough: which package to install.
    pub fn find() -> Result<Self, Error> {
        if let Some(named) = env::var_os(VARIABLE).filter(|named| !named.is_empty()) {
            let shown = one_line(&named.display().to_string());
            let wrong = |what: String| Error::Input(format!("{VARIABLE} names {shown}, {what}"));
            let program = program_named(&named).ok_or_else(|| wrong("which is no program".into()))?;
            let clang = Self::probe(program).ok_or_else(|| wrong("which is no clang".into()))?;
            if clang.version < OLDEST {
                let version = clang.version;
                return Err(wrong(format!("which is clang {version}; {OLDEST} or later is needed")));
            }
            return Ok(clang);
        }
        let found: Vec<_> = candidates().into_iter().filter_map(Self::probe).collect();
        let newest = found.iter().map(|clang| clang.version).max();
        if let Some(clang) = found.into_iter().find(|clang| clang.version >= OLDEST) {
            return Ok(clang);
        }
        Err(Error::Machine(match newest {
            None => format!(
                "there is no clang in PATH; install the package clang, {OLDEST} or later, or name it in {VARIABLE}"
            ),
            Some(version) => format!(
                "clang {version} is too old; install the package clang-{OLDEST} or a later one, or name it in {VARIABLE}"
            ),
        }))
    }

    /// What a program says of itself; `None` if it is no clang.
    fn probe(program: PathBuf) -> Option<Self> {
        let arguments = ["-v", "-E", "-x", "c", "/dev/null"];
        let mut command = Command::new(&program);
        // Folders that these add are the user's, and no installation's.
        for variable in ["CPATH", "C_INCLUDE_PATH"] {
            command.env_remove(variable);
        }
        let output = command.args(arguments).stdin(Stdio::null()).output().ok()?;
        let said = String::from_utf8_lossy(&output.stderr);
        // "Debian clang version 19.1.7 (3)", then the folders, one a line, between two lines of text.
        let (_, version) = said.split_once("clang version ")?;
        let version = version.split('.').next()?.parse().ok()?;
        let folders = said.lines().skip_while(|line| !line.starts_with("#include <...>")).skip(1);
        let folders = folders.take_while(|line| line.starts_with(' ')).map(|line| line.trim().into());
        Some(Self { program, version, folders: folders.collect() })
    }

    /// Its path.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Where it finds the C library's headers.
    pub fn folders(&self) -> &[OsString] {
        &self.folders
    }

    /// Its options; the name of the source follows. The object goes to standard output.
    pub fn options(&self, headers: &Headers, folders: &[PathBuf], macros: &[String]) -> Vec<OsString> {
        let mut options: Vec<OsString> = Vec::new();
        let mut add = |texts: &[&str]| options.extend(texts.iter().map(OsString::from));
        add(&["-target", "bpf", "-g", "-O2", "-Wall", "-Wno-compare-distinct-pointer-types"]);
        // Sign-extending loads from arenas need Linux 6.18.
        add(&[INSTRUCTIONS, "-mllvm", "-disable-ldsx", "-fno-stack-protector"]);
        if self.version >= JUMP_TABLES {
            add(&["-mllvm", "-disable-gotox"]);
        }
        add(&[&format!("-D__TARGET_ARCH_{TARGET}"), &format!("-D__SCX_TARGET_ARCH_{TARGET}")]);
        options.extend(macros.iter().map(|text| format!("-D{text}").into()));
        options.extend(["-ivfsoverlay".into(), headers.overlay.clone().into()]);
        let own = [Path::new(FOLDER).into(), Path::new(FOLDER).join("bpf-compat")];
        options.extend(folders.iter().chain(&own).map(|folder| with_option("-I", folder.as_os_str())));
        options.extend(self.folders.iter().flat_map(|folder| ["-idirafter".into(), folder.clone()]));
        options.extend(["-c", "-o", "-"].map(OsString::from));
        options
    }

    /// The object of a source, or `None` if that is wrong. What the compiler says goes where this command's
    /// errors go.
    ///
    /// # Errors
    /// If the compiler cannot be run, or does not do its work.
    pub fn compile(
        &self,
        source: &Path,
        folders: &[PathBuf],
        macros: &[String],
    ) -> Result<Option<Vec<u8>>, Error> {
        let headers = Headers::unpack()?;
        let shown = one_line(&self.program.display().to_string());
        let mut command = Command::new(&self.program);
        command.args(self.options(&headers, folders, macros)).arg(as_no_option(source));

        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| Error::machine(format!("{shown} cannot be run"), error))?;
        // At the first limit of CPU time the kernel says so, at the second one it kills.
        let limits =
            [(Resource::Cpu, CPU_TIME_MAX_S, CPU_TIME_MAX_S + 5), (Resource::As, MEMORY_MAX, MEMORY_MAX)];
        for (resource, current, maximum) in limits {
            let limit = Rlimit { current: Some(current), maximum: Some(maximum) };
            // It may have ended.
            let _ = prlimit(Some(Pid::from_child(&child)), resource, limit);
        }
        let failed = |error: std::io::Error| Error::machine(&shown, error);
        let mut object = Vec::new();
        if let Some(output) = child.stdout.take() {
            output.take(OBJECT_MAX.bytes + 1).read_to_end(&mut object).map_err(failed)?;
        }
        let status = child.wait().map_err(failed)?;
        if object.len() as u64 > OBJECT_MAX.bytes {
            return Err(Error::Input(format!("the object is larger than {OBJECT_MAX}")));
        }
        match status.signal() {
            Some(signal) if signal == Signal::XCPU.as_raw() => {
                let what = format!("{shown} had {CPU_TIME_MAX_S} s of CPU time and did not come to an end");
                Err(Error::Input(what))
            }
            Some(signal) => Err(Error::Machine(format!("{shown} was ended by signal {signal}"))),
            None => Ok(status.success().then_some(object)),
        }
    }
}

/// An option and its value in one argument, so that the value is taken for nothing else.
fn with_option(option: &str, value: &OsStr) -> OsString {
    let mut argument = OsString::from(option);
    argument.push(value);
    argument
}

/// The same path, which clang takes neither for an option nor for a file with options. `--` would not do: the driver passes
/// the bare name on.
fn as_no_option(path: &Path) -> PathBuf {
    match path.as_os_str().as_encoded_bytes().first() {
        Some(b'-' | b'@') => Path::new(".").join(path),
        _ => path.into(),
    }
}

/// The folders of PATH. Where it is empty in part, a shell would look in the current folder; this does not.
fn folders_of_path() -> Vec<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).filter(|folder| folder.is_absolute()).collect()
}

/// A program by its path, or by its name in PATH.
fn program_named(name: &OsStr) -> Option<PathBuf> {
    let places = match name.as_encoded_bytes().contains(&b'/') {
        true => vec![name.into()],
        false => folders_of_path().into_iter().map(|folder| folder.join(name)).collect(),
    };
    places.into_iter().find(|place| place.is_file() && access(place, Access::EXEC_OK).is_ok())
}

/// Programs that may be a clang: that of the usual name, and then those with a number, the newest first.
fn candidates() -> Vec<PathBuf> {
    let mut numbers: Vec<u32> = Vec::new();
    for folder in folders_of_path() {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        numbers.extend(names.filter_map(|name| name.strip_prefix("clang-")?.parse::<u32>().ok()));
    }
    numbers.sort_unstable_by(|a, b| b.cmp(a));
    numbers.dedup();
    let names =
        ["clang".to_owned()].into_iter().chain(numbers.iter().map(|number| format!("clang-{number}")));
    names.filter_map(|name| program_named(name.as_ref())).collect()
}
