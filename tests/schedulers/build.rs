//! Compiles schedulers with clang: the examples of this crate, and published ones if Cargo has fetched their
//! sources.
//!
//! Nothing is fetched here: without the published sources a build still works, and the tests that need them
//! explain how to fetch them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

type Error = Box<dyn std::error::Error>;

/// The published schedulers, with their versions there.
const PUBLISHED: [(&str, &str); 3] =
    [("scx_beerland", "1.1.4"), ("scx_bpfland", "1.1.4"), ("scx_flash", "1.1.4")];
/// Manifest of the published schedulers.
const SOURCES: &str = "sources/Cargo.toml";

fn main() {
    if let Err(error) = compile_all() {
        println!("cargo::error=a scheduler cannot be compiled: {error:#}");
        println!(
            "cargo::error=it needs clang 17 or later (BPF_CLANG names it), and libclang (LIBCLANG_PATH)"
        );
        std::process::exit(1);
    }
}

fn compile_all() -> Result<(), Error> {
    for path in ["examples", SOURCES, "sources/Cargo.lock"] {
        println!("cargo::rerun-if-changed={path}");
    }
    let mut builder = scx_cargo::BpfBuilder::new()?;
    for entry in fs::read_dir("examples")? {
        let source = entry?.path();
        let name = source.file_name().and_then(|name| name.to_str()?.strip_suffix(".bpf.c"));
        if let Some(name) = name {
            builder.enable_skel(text(&source)?, name).build()?;
        }
    }
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let missing = out.join("published.missing");
    match published() {
        Ok(schedulers) => {
            for (name, source) in schedulers {
                builder.enable_skel(text(&source)?, &name).build()?;
            }
            if missing.exists() {
                fs::remove_file(&missing)?;
            }
        }
        Err(error) => {
            fs::write(&missing, error.to_string())?;
            // A file that is not there makes Cargo come back each time.
            println!("cargo::rerun-if-changed={}", out.join("published.found").display());
        }
    }
    Ok(())
}

/// Names of the published schedulers and their sources, if Cargo has them on this machine.
fn published() -> Result<Vec<(String, PathBuf)>, Error> {
    let cargo = env::var_os("CARGO").ok_or("Cargo has not said where it is")?;
    let output = Command::new(cargo)
        .args([
            "metadata",
            "--locked",
            "--offline",
            "--quiet",
            "--format-version=1",
            "--manifest-path",
            SOURCES,
        ])
        .output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().into());
    }
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    // The library among them, which Cargo knows.
    let library = metadata["packages"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|package| package["name"] == "scx_cargo")
        .and_then(|package| Path::new(package["manifest_path"].as_str()?).ancestors().nth(2))
        .ok_or("`cargo metadata` has not said where the sources lie")?;
    let find = |(name, version): &(&str, &str)| {
        let source = library.join(format!("{name}-{version}/src/bpf/main.bpf.c"));
        match source.exists() {
            true => Ok(((*name).to_owned(), source)),
            false => Err(format!("there is no {}", source.display()).into()),
        }
    };
    PUBLISHED.iter().map(find).collect()
}

fn text(path: &Path) -> Result<&str, Error> {
    Ok(path.to_str().ok_or("a path is not UTF-8")?)
}
