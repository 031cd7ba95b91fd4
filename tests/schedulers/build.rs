//! Compiles schedulers with clang: the examples of this crate, and published ones if Cargo has fetched their
//! sources.
//!
//! Nothing is fetched here: without the published sources a build still works, and the tests that need them
//! explain how to fetch them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

type Error = Box<dyn std::error::Error>;

/// A published scheduler.
struct Published {
    name: &'static str,
    version: &'static str,
    /// The source with the scheduler, in `src/bpf/`.
    main: &'static str,
    /// The other sources, which it is linked with.
    others: &'static [&'static [&'static str]],
}

/// One whose sources are one.
const fn whole(name: &'static str, version: &'static str) -> Published {
    Published { name, version, main: "main", others: &[] }
}

const PUBLISHED: [Published; 14] = [
    whole("scx_beerland", "1.1.4"),
    whole("scx_bpfland", "1.1.4"),
    Published { main: "cake", ..whole("scx_cake", "1.2.2") },
    Published { others: &[ARENA, &["lib/dhq"]], ..whole("scx_chaos", "1.1.4") },
    Published { others: &[&["lib/pmu"]], ..whole("scx_cosmos", "1.1.7") },
    whole("scx_flash", "1.1.4"),
    whole("scx_flow", "4.8.15"),
    Published { others: &[&["lib/pmu"]], ..whole("scx_forge", "1.1.3") },
    Published { others: &[ARENA, LAVD], ..whole("scx_lavd", "1.1.4") },
    Published { others: &[&["timer", "util", "lib/pmu"]], ..whole("scx_layered", "1.1.4") },
    Published { others: &[ARENA, &["lib/dhq"]], ..whole("scx_p2dq", "1.1.4") },
    whole("scx_pandemonium", "5.23.1"),
    Published { others: &[&["sdt_task", "sdt_alloc"]], ..whole("scx_rusty", "1.1.4") },
    whole("scx_tickless", "1.1.4"),
];

/// scx's library of arenas.
const ARENA: &[&str] = &[
    "lib/arena",
    "lib/atq",
    "lib/bitmap",
    "lib/common",
    "lib/cpumask",
    "lib/minheap",
    "lib/rbtree",
    "lib/sdt_alloc",
    "lib/sdt_task",
    "lib/topology",
];

/// What belongs to scx_lavd.
const LAVD: &[&str] = &[
    "balance",
    "idle",
    "introspec",
    "lat_cri",
    "lock",
    "power",
    "preempt",
    "sys_stat",
    "util",
    "lib/cgroup_bw",
    "lib/ravg",
];

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
    for path in ["examples", "cheats", SOURCES, "sources/Cargo.lock"] {
        println!("cargo::rerun-if-changed={path}");
    }
    let mut builder = scx_cargo::BpfBuilder::new()?;
    for entry in fs::read_dir("examples")?.chain(fs::read_dir("cheats")?) {
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
            for (scheduler, folder) in schedulers {
                compile_published(&scheduler, &folder, &out)?;
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

/// Compiles a published scheduler, and links it if it has several sources.
fn compile_published(scheduler: &Published, folder: &Path, out: &Path) -> Result<(), Error> {
    let source = |name: &str| folder.join(format!("{name}.bpf.c"));
    let mut builder = scx_cargo::BpfBuilder::new()?;
    if scheduler.others.is_empty() {
        builder.enable_skel(text(&source(scheduler.main))?, scheduler.name).build()?;
        return Ok(());
    }
    builder.enable_skel(text(&source(scheduler.main))?, scheduler.name);
    for other in scheduler.others.concat() {
        builder.add_source(text(&source(other))?);
    }
    builder.compile_link_gen()?;
    // Each linked object has this name.
    fs::rename(out.join("bpf.bpf.o"), out.join(format!("{}.bpf.o", scheduler.name)))?;
    Ok(())
}

/// The published schedulers and the folders of their sources, if Cargo has them on this machine.
fn published() -> Result<Vec<(Published, PathBuf)>, Error> {
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
    let find = |scheduler: Published| {
        let folder = library.join(format!("{}-{}/src/bpf", scheduler.name, scheduler.version));
        match folder.exists() {
            true => Ok((scheduler, folder)),
            false => Err(format!("there is no {}", folder.display()).into()),
        }
    };
    PUBLISHED.into_iter().map(find).collect()
}

fn text(path: &Path) -> Result<&str, Error> {
    Ok(path.to_str().ok_or("a path is not UTF-8")?)
}
