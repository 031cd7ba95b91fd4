//! Packs the guest's first file system: its programs with their libraries, workloads, modules of the kernel.
//!
//! The same archive serves all legs. It is not compressed: the emulated CPU would take longer to expand it
//! than QEMU takes to load it.

use super::cpio::Archive;
use crate::leg::{AGREEMENT_FOLDER, LEGS, MODULES_FOLDER};
use anyhow::{Context, Result, bail, ensure};
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Programs that cargo builds beside this one.
const BUILT: [&str; 3] = ["tandem", "tandemd", "vm-guest"];
/// Programs of the machine.
const INSTALLED: [&str; 4] = ["busybox", "chrt", "hackbench", "stress-ng"];
/// What busybox is called by cases.
const APPLETS: [&str; 2] = ["sh", "true"];
/// Folders on which the guest mounts something.
const MOUNT_POINTS: [&str; 5] = ["/dev", "/proc", "/run", "/sys", "/tmp"];

/// Writes the archive to `file`.
///
/// `built` is the folder of the built programs, `modules` has those of the kernel, and `work` is for
/// intermediate files. `add_more` adds what only some guests need.
pub fn pack(
    file: &Path,
    built: &Path,
    modules: &Path,
    work: &Path,
    add_more: impl FnOnce(&mut Archive) -> Result<()>,
) -> Result<()> {
    let mut archive = Archive::default();
    for folder in MOUNT_POINTS {
        archive.directory(Path::new(folder));
    }
    for name in BUILT {
        let path = built.join(name);
        ensure!(path.is_file(), "there is no {}; `make test-vm` builds it", path.display());
        let stripped = work.join(name);
        // Nine tenths of a program in cargo's dev profile are for debuggers.
        run(Command::new("strip").arg("--strip-debug").arg("-o").args([&stripped, &path]))?;
        add_program(&mut archive, name, &stripped)?;
    }
    archive.link(Path::new("/init"), "bin/vm-guest");
    for name in INSTALLED {
        add_program(&mut archive, name, &find_program(name)?)?;
    }
    for name in APPLETS {
        archive.link(&in_bin(name), "busybox");
    }
    for (name, program) in compile_workloads(work)? {
        add_program(&mut archive, &name, &program)?;
    }
    for name in LEGS.iter().flat_map(|leg| leg.modules) {
        // A module that is not there is built in, or the leg's cases will miss it.
        if let Some(module) = find_module(modules, name)? {
            archive.file(&Path::new(MODULES_FOLDER).join(format!("{name}.ko")), &expand(&module)?);
        }
    }
    for file in files_below(&Path::new(env!("CARGO_MANIFEST_DIR")).join("agreement"))? {
        let name = file.file_name().context("it is a file")?;
        archive.file(&Path::new(AGREEMENT_FOLDER).join(name), &read(&file)?);
    }
    add_more(&mut archive)?;
    fs::write(file, archive.finish()).with_context(|| format!("cannot write {}", file.display()))
}

/// The path of a program of the guest.
pub fn in_bin(name: &str) -> PathBuf {
    Path::new("/bin").join(name)
}

/// Adds a program as /bin/NAME, with the libraries that it is linked with.
pub fn add_program(archive: &mut Archive, name: &str, program: &Path) -> Result<()> {
    add_program_at(archive, &in_bin(name), program)
}

/// Adds a program with this path, with the libraries that it is linked with.
pub fn add_program_at(archive: &mut Archive, path: &Path, program: &Path) -> Result<()> {
    archive.file(path, &read(program)?);
    let ldd = Command::new("ldd").arg(program).output().context("cannot run ldd")?;
    let libraries = libraries(&String::from_utf8_lossy(&ldd.stdout))
        .with_context(|| format!("{} cannot run", program.display()))?;
    for library in libraries {
        if !archive.contains(&library) {
            archive.file(&library, &read(&library)?);
        }
    }
    Ok(())
}

/// The files of the libraries in what ldd prints; none for a static program.
fn libraries(ldd: &str) -> Result<Vec<PathBuf>> {
    let mut libraries = Vec::new();
    for line in ldd.lines().map(str::trim) {
        // Either `NAME => FILE (ADDRESS)` or `FILE (ADDRESS)`; the kernel's own, linux-vdso, has no file.
        let (name, file) = line.split_once(" => ").unwrap_or((line, line));
        ensure!(!file.starts_with("not found"), "its library {name} is missing");
        let file = file.split(" (").next().unwrap_or(file);
        if file.starts_with('/') {
            libraries.push(file.into());
        }
    }
    Ok(libraries)
}

/// A program that the machine has in PATH, or where programs of administrators are.
pub fn find_program(name: &str) -> Result<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    folders
        .map(|folder| folder.join(name))
        .find(|program| program.is_file())
        .with_context(|| format!("the program {name} is missing; `scripts/setup vm` installs it"))
}

/// Compiles `programs/*.c`; their names and the programs.
fn compile_workloads(work: &Path) -> Result<Vec<(String, PathBuf)>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs");
    let mut workloads = Vec::new();
    for source in files_below(&folder)? {
        if source.extension() == Some(OsStr::new("c")) {
            let name = file_stem(&source);
            let program = work.join(&name);
            let warnings = ["-Wall", "-Wextra", "-Werror"];
            run(Command::new("cc")
                .args(["-O2", "-static", "-pthread"])
                .args(warnings)
                .arg("-o")
                .args([&program, &source]))?;
            workloads.push((name, program));
        }
    }
    Ok(workloads)
}

/// The file of a module, compressed or not.
fn find_module(folder: &Path, name: &str) -> Result<Option<PathBuf>> {
    Ok(files_below(folder)?.into_iter().find(|file| {
        let file = file.file_name().and_then(OsStr::to_str).unwrap_or_default();
        file.strip_prefix(name).is_some_and(|rest| [".ko", ".ko.xz"].contains(&rest))
    }))
}

/// All files below a folder, sorted; none if there is no folder.
pub fn files_below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    if !folder.exists() {
        return Ok(files);
    }
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(files_below(&path)?);
        } else {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// The contents of a module.
fn expand(module: &Path) -> Result<Vec<u8>> {
    match module.extension().and_then(OsStr::to_str) {
        Some("xz") => run(Command::new("xz").args(["--decompress", "--stdout"]).arg(module)),
        _ => read(module),
    }
}

/// Runs a command that must succeed; returns its output.
pub fn run(command: &mut Command) -> Result<Vec<u8>> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(output.stdout)
}

pub fn read(file: &Path) -> Result<Vec<u8>> {
    fs::read(file).with_context(|| format!("cannot read {}", file.display()))
}

fn file_stem(file: &Path) -> String {
    file.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_the_files_that_ldd_names() {
        let ldd = "\tlinux-vdso.so.1 (0x00007f7d8ac19000)\n\
                   \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f7d8aa18000)\n\
                   \t/lib64/ld-linux-x86-64.so.2 (0x00007f7d8ac1b000)\n";
        let expected = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"].map(PathBuf::from);
        assert_eq!(libraries(ldd).unwrap(), expected);
        assert_eq!(libraries("\tstatically linked\n").unwrap(), [] as [PathBuf; 0]);
        assert_eq!(libraries("").unwrap(), [] as [PathBuf; 0]);
        let missing = libraries("\tlibodd.so.1 => not found\n").unwrap_err();
        assert_eq!(missing.to_string(), "its library libodd.so.1 is missing");
    }

    #[test]
    fn a_module_is_found_by_its_whole_name() {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("arch/x86/kvm");
        fs::create_dir_all(&below).unwrap();
        for file in ["kvm-amd.ko.xz", "kvm.ko", "kvm-intel.ko"] {
            fs::write(below.join(file), "").unwrap();
        }
        let found = |name| find_module(folder.path(), name).unwrap();
        assert_eq!(found("kvm"), Some(below.join("kvm.ko")));
        assert_eq!(found("kvm-amd"), Some(below.join("kvm-amd.ko.xz")));
        assert_eq!(found("irqbypass"), None);
        assert_eq!(find_module(&folder.path().join("none"), "kvm").unwrap(), None);
    }
}
