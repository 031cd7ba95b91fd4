//! Compiles `tandem.bpf.c` with clang, against the kernel's types as `scx_cargo` carries them, and makes the skeleton.

fn main() {
    // The headers too: the builder tells Cargo of the source alone.
    println!("cargo::rerun-if-changed=.");
    let built = scx_cargo::BpfBuilder::new()
        .and_then(|mut builder| builder.enable_skel("tandem.bpf.c", "tandem").build());
    if let Err(error) = built {
        println!("cargo::error=tandem.bpf.c cannot be compiled: {error:#}");
        println!(
            "cargo::error=it needs clang 17 or later (BPF_CLANG names it), and libclang (LIBCLANG_PATH)"
        );
        std::process::exit(1);
    }
}
