//! Compiles `tandem.bpf.c` with clang, against the kernel's types in `scx_cargo`, generates the skeleton, and packs the
//! headers for schedulers that users compile.

use libbpf_rs::libbpf_sys::API_HEADERS;
use std::error::Error;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};
use walkdir::WalkDir;

/// Where `scx_cargo` unpacks its headers, in the folder for what is built: scx's own, and `vmlinux.h` of each
/// architecture.
const SCX_HEADERS: &str = "scx_utils-bpf_h";
/// Compression of zstd: what takes a second here makes the command smaller for ever.
const LEVEL: i32 = 19;

fn main() {
    // The headers too: the builder names only the source to Cargo.
    println!("cargo::rerun-if-changed=.");
    let built = scx_cargo::BpfBuilder::new()
        .and_then(|mut builder| builder.enable_skel("tandem.bpf.c", "tandem").build());
    if let Err(error) = built {
        println!("cargo::error=tandem.bpf.c cannot be compiled: {error:#}");
        println!("cargo::error=install clang 18 or later (BPF_CLANG names it), and libclang (LIBCLANG_PATH)");
        std::process::exit(1);
    }
    if let Err(error) = pack_headers() {
        println!("cargo::error=the headers for schedulers cannot be packed: {error}");
        std::process::exit(1);
    }
}

/// Writes `headers.rs`: a table of the headers that schedulers include, each compressed.
fn pack_headers() -> Result<(), Box<dyn Error>> {
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let target = kernel_target(&env::var("CARGO_CFG_TARGET_ARCH")?)?;
    let mut headers = vec![];
    for (name, text) in API_HEADERS {
        headers.push((format!("bpf/{name}"), text.as_bytes().to_vec()));
    }
    let scx = out.join(SCX_HEADERS);
    let vmlinux = scx.join("arch").join(target).join("vmlinux.h");
    headers.push(("vmlinux.h".into(), fs::read(vmlinux)?));
    for entry in WalkDir::new(&scx).sort_by_file_name() {
        let entry = entry?;
        let name = entry.path().strip_prefix(&scx)?;
        let is_of_kernel = name.starts_with("arch") || name == Path::new("vmlinux.h");
        if entry.file_type().is_file() && !is_of_kernel && name.extension() == Some("h".as_ref()) {
            let name = name.to_str().ok_or("a header's name is not UTF-8")?;
            headers.push((name.into(), fs::read(entry.path())?));
        }
    }

    let folder = out.join("headers");
    fs::create_dir_all(&folder)?;
    let mut table =
        format!("pub const TARGET: &str = {target:?};\npub const HEADERS: &[(&str, &[u8])] = &[\n");
    for (number, (name, text)) in headers.iter().enumerate() {
        fs::write(folder.join(format!("{number}.zst")), zstd::encode_all(&text[..], LEVEL)?)?;
        let packed = format!("include_bytes!(concat!(env!(\"OUT_DIR\"), \"/headers/{number}.zst\"))");
        writeln!(table, "    ({name:?}, {packed}),")?;
    }
    table.push_str("];\n");
    fs::write(out.join("headers.rs"), table)?;
    Ok(())
}

/// The kernel's name of an architecture, as in the macro `__TARGET_ARCH_x86` of libbpf's `bpf_tracing.h`.
fn kernel_target(architecture: &str) -> Result<&'static str, String> {
    match architecture {
        "x86_64" => Ok("x86"),
        "aarch64" => Ok("arm64"),
        "powerpc64" => Ok("powerpc"),
        "riscv64" => Ok("riscv"),
        "s390x" => Ok("s390"),
        other => Err(format!("there is no vmlinux.h of {other}")),
    }
}
