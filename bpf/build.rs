//! Compiles `tandem.bpf.c` with clang, against the kernel's types in `scx_cargo`, and generates the skeleton.

fn main() {
    // The headers too: the builder names only the source to Cargo.
    println!("cargo::rerun-if-changed=.");
    let built = scx_cargo::BpfBuilder::new()
        .and_then(|mut builder| builder.enable_skel("tandem.bpf.c", "tandem").build());
    if let Err(error) = built {
        println!("cargo::error=tandem.bpf.c cannot be compiled: {error:#}");
        println!("cargo::error=install clang 17 or later (BPF_CLANG names it), and libclang (LIBCLANG_PATH)");
        std::process::exit(1);
    }
}
