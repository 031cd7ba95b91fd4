//! Schedulers for sched_ext that were not written for the simulator, compiled as for a kernel.
//!
//! Problem: a simulator that runs compiled schedulers has to run those of other projects, which use any part
//! of sched_ext.
//!
//! Approach: the build script compiles two kinds, from which the tests of this crate and of others take their
//! objects. The examples in `examples/` are written to be read, and one to be wrong; published schedulers
//! come from crates.io, through `sources/Cargo.toml`, and are compiled unchanged. Nothing of the latter is
//! part of this project.

pub mod preparation;

use std::fs;
use std::path::{Path, PathBuf};

/// Those of the examples that work.
pub const EXAMPLES: [&str; 5] = ["fifo", "weighted", "central", "tree", "topological"];
/// Those of the published ones whose recipes are short, for tests of what any scheduler does.
pub const PUBLISHED: [&str; 3] = ["scx_beerland", "scx_bpfland", "scx_flash"];
/// All published ones: `docs/recipes/` says what the user space of each would tell it.
pub const WITH_RECIPES: [&str; 14] = [
    "scx_beerland",
    "scx_bpfland",
    "scx_cake",
    "scx_chaos",
    "scx_cosmos",
    "scx_flash",
    "scx_flow",
    "scx_forge",
    "scx_lavd",
    "scx_layered",
    "scx_p2dq",
    "scx_pandemonium",
    "scx_rusty",
    "scx_tickless",
];

/// What the user space of a scheduler tells it: TOML for the table of a host's or a guest's scheduler, besides `object`.
///
/// # Errors
/// If there is no recipe of that name.
pub fn recipe(name: &str) -> std::io::Result<String> {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../docs/recipes/{name}.toml")))
}

/// The object file of a scheduler.
///
/// # Panics
/// If there is none: the sources of published ones have to be fetched before the build.
pub fn object(name: &str) -> PathBuf {
    let built = Path::new(env!("OUT_DIR"));
    if WITH_RECIPES.contains(&name)
        && let Ok(reason) = fs::read_to_string(built.join("published.missing"))
    {
        panic!(
            "the source of {name} is not on this machine; with a network, `scripts/setup test` fetches it: {reason}"
        );
    }
    let object = built.join(format!("{name}.bpf.o"));
    assert!(object.exists(), "there is no scheduler {name}; in examples/ there may be");
    object
}
