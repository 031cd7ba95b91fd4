//! Builds objects from small sources, and a kernel to link them against.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use tandem_ebpf::{
    Environment, FieldType, KernelEnum, KernelField, KernelFunction, KernelStruct, KernelVariable,
    KnownResult,
};

/// The beginning of each test source: the parts of libbpf's headers that it needs.
const PRELUDE: &str = r#"
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32; typedef unsigned long long u64;
typedef signed char s8; typedef short s16; typedef int s32; typedef long long s64; typedef _Bool bool;
#define SEC(name) __attribute__((section(name), used))
#define __weak __attribute__((weak))
#define __ksym __attribute__((section(".ksyms")))
#define __kconfig __attribute__((section(".kconfig")))
#define __noinline __attribute__((noinline))
#define __core __attribute__((preserve_access_index))
#define __uint(name, val) int (*name)[val]
#define __type(name, val) typeof(val) *name
#define exists(field) __builtin_preserve_field_info(field, 2)
char _license[] SEC("license") = "GPL";
"#;

/// Compiles a source for an instruction set (`v3`, `v4`).
pub fn compile(source: &str, cpu: &str) -> Vec<u8> {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let path = |extension: &str| directory.join(format!("{}-{number}.{extension}", std::process::id()));
    let (source_path, object_path) = (path("bpf.c"), path("bpf.o"));
    fs::write(&source_path, format!("{PRELUDE}\n{source}")).unwrap();
    let clang = std::env::var("BPF_CLANG").unwrap_or_else(|_| "clang".into());
    let output = Command::new(&clang)
        .args(["-target", "bpf", "-g", "-O2", "-Wall", "-Wno-unused-function"])
        .args([&format!("-mcpu={cpu}"), "-c", "-o"])
        .args([&object_path, &source_path])
        .output()
        .unwrap_or_else(|error| panic!("{clang} cannot be run: {error}"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let object = fs::read(&object_path).unwrap();
    fs::remove_file(source_path).unwrap();
    fs::remove_file(object_path).unwrap();
    object
}

/// A small kernel.
pub fn environment() -> Environment {
    const SCALAR: FieldType = FieldType::Scalar;
    const fn field(name: &'static str, offset: u32, size: u32, kind: FieldType) -> KernelField {
        KernelField { name, offset, size, kind }
    }
    const TASK: &[KernelField] = &[
        field("pid", 100, 4, SCALAR),
        field("wide", 104, 8, SCALAR),
        field("signed_wide", 112, 8, SCALAR),
        field("scx", 128, 64, FieldType::Struct("sched_ext_entity")),
        field("comm", 200, 16, FieldType::Array(1)),
        field("in_iowait", 216, 1, SCALAR),
    ];
    const ENTITY: &[KernelField] = &[field("slice", 8, 8, SCALAR), field("weight", 16, 4, SCALAR)];
    let mut kernel = Environment::default();
    kernel.structs.insert("task_struct", KernelStruct { size: 256, fields: TASK });
    kernel.structs.insert("sched_ext_entity", KernelStruct { size: 64, fields: ENTITY });
    kernel.enums.insert("scx_enq_flags", KernelEnum { values: &[("SCX_ENQ_HEAD", 1 << 40)] });
    let functions = ["bpf_ktime_get_ns", "scx_bpf_now", "scx_bpf_insert", "scx_bpf_insert___v2"];
    for (number, name) in functions.into_iter().enumerate() {
        kernel.functions.insert(name, KernelFunction(number as u16));
    }
    kernel.functions.insert("scx_bpf_kick___v2", KernelFunction(100));
    kernel.known.insert("bpf_task_release", KnownResult::Nothing);
    kernel.variables.insert("runqueues", KernelVariable { size: 64, per_cpu: true });
    kernel.variables.insert("kernel_cpustat", KernelVariable { size: 128, per_cpu: true });
    kernel.variables.insert("nr_cpu_ids", KernelVariable { size: 4, per_cpu: false });
    kernel.config.insert("CONFIG_HZ", 250);
    kernel.config.insert("LINUX_KERNEL_VERSION", 0x0006_0c00);
    kernel
}
