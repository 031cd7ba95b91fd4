//! Packs what a guest needs to build a small C project: zlib's sources, a compiler, make.
//!
//! The sources are those in the crate libbpf-sys, which cargo has fetched. Of the machine's headers, it packs
//! only those that the compiler reads.

use super::cpio::Archive;
use super::initramfs::{add_program, add_program_at, files_below, find_program, in_bin, read, run};
use anyhow::{Context, Result};
use serde::Deserialize;
use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the project lies in the guest, ready for `make`.
const FOLDER: &str = "/zlib";
/// The crate that has the sources in the folder `zlib`.
const CRATE: &str = "libbpf-sys";
/// What `make` runs besides the compiler.
const TOOLS: [&str; 3] = ["make", "as", "ar"];

/// Adds the project and its tools.
pub fn add(archive: &mut Archive) -> Result<()> {
    let sources = sources_folder()?;
    for file in files_below(&sources)? {
        let extension = file.extension().and_then(OsStr::to_str);
        // Folders below that of the library have examples and ports.
        if file.parent() == Some(&sources) && matches!(extension, Some("c" | "h")) {
            archive
                .file(&Path::new(FOLDER).join(file.file_name().expect("it has an extension")), &read(&file)?);
        }
    }
    let makefile = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/zlib.mk");
    archive.file(&Path::new(FOLDER).join("makefile"), &read(&makefile)?);

    for tool in TOOLS {
        add_program(archive, tool, &find_program(tool)?)?;
    }
    // The driver looks for the compiler and for headers relative to its own path.
    let driver = find_program("cc")?.canonicalize().context("cannot find cc")?;
    let compiler = text(run(Command::new(&driver).arg("-print-prog-name=cc1"))?)?;
    for program in [driver.as_path(), Path::new(compiler.trim())] {
        add_program_at(archive, program, program)?;
    }
    archive.link(&in_bin("cc"), driver.to_str().context("the path of cc is no text")?);
    for header in headers(&sources, &makefile)? {
        archive.file(&header, &read(&header)?);
    }
    Ok(())
}

/// The folder of the sources, where cargo has unpacked the crate.
fn sources_folder() -> Result<PathBuf> {
    #[derive(Deserialize)]
    struct Metadata {
        packages: Vec<Package>,
    }
    #[derive(Deserialize)]
    struct Package {
        name: String,
        manifest_path: PathBuf,
    }
    let cargo = env::var_os("CARGO").unwrap_or("cargo".into());
    let mut command = Command::new(cargo);
    command.args(["metadata", "--format-version=1", "--locked"]);
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    let metadata: Metadata = serde_json::from_slice(&run(&mut command)?).context("cargo metadata is odd")?;
    let package = metadata.packages.into_iter().find(|package| package.name == CRATE);
    let manifest = package.with_context(|| format!("the workspace does not use {CRATE}"))?.manifest_path;
    Ok(manifest.with_file_name("zlib"))
}

/// The machine's headers that the sources include.
fn headers(sources: &Path, makefile: &Path) -> Result<Vec<PathBuf>> {
    let mut make = Command::new("make");
    make.args(["--silent", "--no-print-directory", "headers", "--directory"]).arg(sources);
    // This program may itself have been started by a make.
    make.arg("--file").arg(makefile).env_remove("MAKEFLAGS");
    // Rules for make: `FILE.o: FILE.c HEADER...`, with a backslash at the end of lines that go on.
    let rules = text(run(&mut make)?)?;
    let mut headers: Vec<PathBuf> =
        rules.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from).collect();
    headers.sort();
    headers.dedup();
    Ok(headers)
}

fn text(bytes: Vec<u8>) -> Result<String> {
    String::from_utf8(bytes).context("the compiler printed something that is not text")
}
