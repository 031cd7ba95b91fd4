//! Objects compiled by clang, linked.

mod common;
#[path = "common/running.rs"]
#[allow(dead_code)]
mod running;

use common::{compile, environment};
use proptest::prelude::*;
use std::sync::LazyLock;
use tandem_ebpf::{
    AluOp, AtomicOp, Condition, DataType, Environment, Function, Image, Import, KernelFunction, KnownResult,
    MapKind, Memory, Op, Operand, Size, Swap,
};

fn link(source: &str) -> Image {
    let images = ["v3", "v4"].map(|cpu| Image::link(&compile(source, cpu), &environment()).unwrap());
    let [_, image] = images;
    image
}

fn link_error(source: &str) -> String {
    Image::link(&compile(source, "v4"), &environment()).unwrap_err().to_string()
}

fn function<'a>(image: &'a Image, name: &str) -> &'a Function {
    image.functions.iter().find(|function| function.name == name).unwrap()
}

fn constants(function: &Function) -> Vec<u64> {
    let ops = function.ops.iter();
    ops.filter_map(|op| match op {
        Op::LoadImmediate { value, .. } => Some(*value),
        _ => None,
    })
    .collect()
}

/// The constant that a function returns.
fn returned(image: &Image, name: &str) -> i64 {
    match function(image, name).ops[..] {
        [Op::Move { src: Operand::Imm(value), .. }, Op::Exit] => value,
        [Op::LoadImmediate { value, .. }, Op::Exit] => value as i64,
        ref other => panic!("{name}: {other:?}"),
    }
}

#[test]
fn finds_programs_and_the_functions_that_they_reach() {
    let image = link(
        r#"
        static __noinline u64 leaf(u64 x) { asm volatile("" : "+r"(x)); return x + 1; }
        __noinline u64 other(u64 x) { asm volatile("" : "+r"(x)); return leaf(x) * 3; }
        __noinline u64 unused(u64 x) { return x; }
        static u64 callback(u64 x, void *context) { return leaf(x); }
        static long (*bpf_loop)(u32, void *, void *, u64) = (void *)181;
        SEC("syscall") u64 first(u64 *context) { return other(*context); }
        SEC("syscall") u64 second(u64 *context) { return bpf_loop(3, callback, 0, 0); }
        SEC("fentry/somewhere") u64 not_wanted(u64 *context) { return 0; }
        "#,
    );
    let names: Vec<&str> = image.programs.keys().map(String::as_str).collect();
    assert_eq!(names, ["first", "second"]);
    let mut names: Vec<&str> = image.functions.iter().map(|function| &function.name[..]).collect();
    names.sort();
    assert_eq!(names, ["callback", "first", "leaf", "other", "second"]);
    let number = |name| image.functions.iter().position(|function| function.name == name).unwrap() as u32;
    assert!(function(&image, "first").ops.contains(&Op::Call { function: number("other") }));
    assert!(function(&image, "other").ops.contains(&Op::Call { function: number("leaf") }));
    assert!(function(&image, "callback").ops.contains(&Op::Call { function: number("leaf") }));
    assert_eq!(image.imports, [Import::Runtime("bpf_loop")]);
    assert_eq!(constants(function(&image, "second")), [Image::FUNCTIONS + u64::from(number("callback"))]);
}

#[test]
fn calls_within_a_section_have_no_symbols() {
    let image = link(
        r#"
        SEC("syscall") __noinline u64 callee(u64 *context) { return *context + 1; }
        SEC("syscall") u64 caller(u64 *context) { u64 copy = *context; return callee(&copy); }
        "#,
    );
    let callee = image.programs["callee"].function.0;
    assert!(function(&image, "caller").ops.contains(&Op::Call { function: callee }));
}

#[test]
fn data_has_addresses_and_pointers() {
    let image = link(
        r#"
        const volatile u32 setting = 7;
        const volatile u16 settings[2][3];
        struct pair { u64 a, b; };
        struct pair pair = { 1, 2 };
        u64 zeros[5];
        static __noinline u64 callee(void) { return 5; }
        static u64 hidden = 3;
        u64 *pointer = &pair.b;
        u64 (*pointer_to_function)(void) = callee;
        const char *text = "hello";
        SEC(".data.own") bool own = 1;
        SEC("syscall") u64 program(u64 *context) {
            return setting + settings[1][1] + zeros[4] + *pointer + pair.a + hidden++ + own
                + (u64)pointer_to_function + (u64)text;
        }
        "#,
    );
    let mut end = Memory::BASE;
    for section in &image.sections {
        assert_eq!(section.address, end.next_multiple_of(64), "{}", section.name);
        end = section.address + section.bytes.len() as u64;
    }
    let read = |address: u64, length: usize| {
        let sections = image.sections.iter();
        let section = sections.rev().find(|section| section.address <= address).unwrap();
        let start = (address - section.address) as usize;
        section.bytes[start..start + length].to_vec()
    };
    let number = |name: &str| {
        let variable = &image.variables[name];
        let mut bytes = read(variable.address, variable.size);
        bytes.resize(8, 0);
        u64::from_le_bytes(bytes.try_into().unwrap())
    };
    assert_eq!(number("setting"), 7);
    assert_eq!(number("own"), 1);
    assert_eq!(number("pointer"), image.variables["pair"].address + 8);
    assert_eq!(read(number("text"), 6), b"hello\0");
    let callee = image.functions.iter().position(|function| function.name == "callee").unwrap() as u64;
    assert_eq!(number("pointer_to_function"), Image::FUNCTIONS + callee);
    let shape = |name: &str| {
        let variable = &image.variables[name];
        let mut of = variable.of;
        let size = loop {
            match image.types.get(of) {
                DataType::Number { size, .. } => break Some(*size),
                DataType::Array { element, .. } => of = *element,
                _ => break None,
            }
        };
        (variable.size, variable.is_setting, size)
    };
    assert_eq!(shape("setting"), (4, true, Some(4)));
    assert_eq!(shape("settings"), (12, true, Some(2)));
    assert_eq!(shape("pair"), (16, false, None));
    assert_eq!(shape("zeros"), (40, false, Some(8)));
    assert_eq!(shape("own"), (1, false, Some(1)));
    assert!(!image.variables.contains_key("hidden"));
    let program = constants(function(&image, "program"));
    assert!(program.contains(&image.variables["setting"].address));
    let zeros = image.variables["zeros"].address;
    assert!(program.contains(&zeros) || program.contains(&(zeros + 32)), "{program:x?}");
}

const MAPS: &str = r#"
    struct { __uint(type, 11); __uint(max_entries, 1); __type(key, u64); __type(value, u32); } trie SEC(".maps");
    struct { __uint(type, 1); __uint(max_entries, 10); __type(key, u64); __type(value, u32); } hash SEC(".maps");
    struct { __uint(type, 6); __uint(max_entries, 2); __uint(key_size, 4); __uint(value_size, 24); } cpus SEC(".maps");
    struct { __uint(type, 27); __uint(max_entries, 4096); } ring SEC(".maps");
    static void *(*bpf_map_lookup_elem)(void *, const void *) = (void *)1;
"#;

/// `RESIZABLE_ARRAY` of scx's headers.
#[test]
fn an_array_of_any_length_has_room_for_the_largest_machine() {
    let image = link(
        r#"
        u64 SEC(".data.clocks") clocks[1];
        const volatile s32 SEC(".rodata.pairs") pairs[1];
        u64 SEC(".data.other") one[1];
        u64 SEC(".data.two") two[2];
        SEC("syscall") u64 program(u64 *context) { return ++clocks[*context] + pairs[*context] + ++one[0] + ++two[1]; }
        "#,
    );
    let size = |name: &str| (image.variables[name].size, image.variables[name].is_setting);
    assert_eq!(size("clocks"), (8192 * 8, false));
    assert_eq!(size("pairs"), (8192 * 4, true));
    assert_eq!(size("one"), (8, false), "its section has another name");
    assert_eq!(size("two"), (16, false));
    let clocks = &image.variables["clocks"];
    assert!(matches!(image.types.get(clocks.of), DataType::Array { stride: 8, count: 8192, .. }));
    let section = image.sections.iter().find(|section| section.name == ".data.clocks").unwrap();
    assert_eq!((section.address, section.bytes.len()), (clocks.address, clocks.size));
}

#[test]
fn maps_are_defined_by_their_types() {
    let image = link(&format!(
        "{MAPS} {}",
        r#"SEC("syscall") u64 program(u64 *context) {
            u32 key = 0; u64 *found = bpf_map_lookup_elem(&cpus, &key); return found ? *found : (u64)&hash;
        }"#
    ));
    let mut maps: Vec<_> = image
        .maps
        .iter()
        .map(|map| (&map.name[..], map.kind, map.key_size, map.value_size, map.max_entries))
        .collect();
    maps.sort_by_key(|map| map.0);
    assert_eq!(
        maps,
        [
            ("cpus", MapKind::PerCpuArray, 4, 24, 2),
            ("hash", MapKind::Hash, 8, 4, 10),
            ("ring", MapKind::RingBuffer, 0, 0, 4096),
        ]
    );
    let address = |name| Image::MAPS + image.maps.iter().position(|map| map.name == name).unwrap() as u64;
    assert_eq!(constants(function(&image, "program")), [address("cpus"), address("hash")]);
    assert_eq!(image.imports, [Import::Runtime("bpf_map_lookup_elem")]);
}

#[test]
fn a_map_of_a_type_that_is_not_supported_is_an_error_if_it_is_used() {
    let source =
        r#"SEC("syscall") u64 program(u64 *context) { return (u64)bpf_map_lookup_elem(&trie, context); }"#;
    assert_eq!(
        link_error(&format!("{MAPS} {source}")),
        "map `trie` is of type BPF_MAP_TYPE_LPM_TRIE, which the simulator does not have"
    );
}

/// As clang puts data of address space 1, and casts to and from it (`addr_space_cast`).
#[test]
fn an_arena_has_data_pages_and_casts() {
    let image = link(
        r#"
        #define __arena __attribute__((address_space(1)))
        struct {
            __uint(type, 33); __uint(max_entries, 100); __uint(map_flags, 1024);
        } arena SEC(".maps");
        u64 __arena number = 7;
        void __arena *bpf_arena_alloc_pages(void *, void __arena *, u32, int, u64) __ksym __weak;
        SEC("syscall") u64 program(u64 *context) {
            u64 __arena *page = bpf_arena_alloc_pages(&arena, (void __arena *)0, 1, -1, 0);
            if (page) *page = number;
            *context = (u64)(u64 *)page;
            return 0;
        }
        "#,
    );
    let shape: Vec<_> = image.maps.iter().map(|map| (map.kind, map.max_entries)).collect();
    assert_eq!(shape, [(MapKind::Arena, 100)]);
    assert_eq!(image.imports, [Import::Runtime("bpf_arena_alloc_pages")]);
    let address = image.variables["number"].address;
    assert!(address > Memory::BASE, "a lower half of 0 is no pointer");
    assert_eq!(address % Memory::PAGE as u64, 0);
    assert!(constants(function(&image, "program")).contains(&address));
    assert!(function(&image, "program").ops.iter().any(|op| matches!(op, Op::CastArena { .. })));
}

#[test]
fn functions_of_the_kernel_are_found_by_their_names_without_flavours() {
    let image = link(
        r#"
        u64 scx_bpf_now(void) __ksym __weak;
        u64 scx_bpf_insert___v2___compat(u64) __ksym __weak;
        u64 scx_bpf_insert___v1(u64) __ksym __weak;
        u64 scx_bpf_kick___v1(u64) __ksym __weak;
        u64 scx_bpf_kick___v2(u64) __ksym __weak;
        u64 scx_bpf_kick___v2___compat(u64) __ksym __weak;
        u64 scx_bpf_gone___compat(u64) __ksym __weak;
        void bpf_rcu_read_lock(void) __ksym;
        void bpf_task_release(void *) __ksym;
        static u64 (*bpf_ktime_get_ns)(void) = (void *)5;
        SEC("syscall") u64 all(u64 *context) {
            bpf_rcu_read_lock();
            bpf_task_release(context);
            return scx_bpf_now() + scx_bpf_insert___v2___compat(1) + scx_bpf_insert___v1(1)
                + scx_bpf_kick___v2___compat(1) + bpf_ktime_get_ns();
        }
        SEC("syscall") u64 gone(u64 *context) { 
            return scx_bpf_gone___compat(1) + scx_bpf_kick___v1(1) + scx_bpf_kick___v2(1);
        }
        SEC("syscall") u64 asks_present(u64 *context) { return (u64)scx_bpf_insert___v1; }
        SEC("syscall") u64 asks_gone(u64 *context) { return (u64)scx_bpf_gone___compat; }
        "#,
    );
    let kernel = |number, name: &str| Import::Kernel(KernelFunction(number), name.into());
    let imports = [
        Import::Runtime("bpf_rcu_read_lock"),
        Import::Known(KnownResult::Nothing),
        kernel(1, "scx_bpf_now"),
        kernel(3, "scx_bpf_insert___v2"),
        kernel(2, "scx_bpf_insert"),
        kernel(100, "scx_bpf_kick___v2"),
        kernel(0, "bpf_ktime_get_ns"),
    ];
    assert_eq!(image.imports.len(), imports.len());
    assert!(imports.iter().all(|import| image.imports.contains(import)), "{:?}", image.imports);
    let calls = |name| {
        let ops = function(&image, name).ops.iter();
        ops.filter(|op| matches!(op, Op::CallKernel { .. })).count()
    };
    assert_eq!((calls("all"), calls("gone")), (7, 0));
    assert_eq!(
        image.poisons,
        ["scx_bpf_gone___compat", "scx_bpf_kick___v1", "scx_bpf_kick___v2"]
            .map(|name| format!("function `{name}`, which the simulated kernel does not have"))
    );
    assert_ne!(returned(&image, "asks_present"), 0);
    assert_eq!(returned(&image, "asks_gone"), 0);
}

/// Declarations in C, and the prototypes that they are.
const DECLARED: [(&str, &str); 17] = [
    ("u64 NAME(void)", "(i)"),
    ("void NAME(void)", "(v)"),
    ("bool NAME(struct a *)", "(ips)"),
    ("int NAME(const struct b *)", "(ips)"),
    ("bool NAME(void *)", "(ipv)"),
    ("bool NAME(u64 *)", "(ipi)"),
    ("struct a *NAME(s32)", "(psi)"),
    ("void *NAME(u64)", "(pvi)"),
    ("u8 NAME(u64)", "(ii)"),
    ("s64 NAME(u64, bool)", "(iii)"),
    ("void NAME(struct a **)", "(vpps)"),
    ("void NAME(enum e)", "(ve)"),
    ("void NAME(alias *, enum e)", "(vpse)"),
    ("int NAME(int (*)(struct a *, u64))", "(ip(ipsi))"),
    ("int NAME(int (*)(struct a *))", "(ip(ips))"),
    ("int NAME(void (*)(struct a *), struct b *)", "(ip(vps)ps)"),
    // Never: as for libbpf, a structure that the object only names is none.
    ("int NAME(struct unknown *, struct b *)", "(ipsps)"),
];

/// With a kernel that has all of these functions with one prototype, a program means those that have it.
#[test]
fn a_function_with_other_parameters_or_another_result_is_another_one() {
    let mut source = String::from(
        "struct a { u64 x; }; struct b { u32 y; }; enum e { ONE = 1 }; typedef const struct a alias;",
    );
    let mut calls = String::new();
    for (number, (declared, _)) in DECLARED.iter().enumerate() {
        let name = format!("bpf_f{number}___flavour");
        source += &format!("extern {} __weak __ksym;\n", declared.replace("NAME", &name));
        // The address alone, for each has other parameters.
        calls += &format!("if ((u64)&{name}) found |= 1 << {number};\n");
    }
    source +=
        &format!("SEC(\"syscall\") u64 program(u64 *context) {{ u64 found = 0; {calls} return found; }}");
    let object = compile(&source, "v3");
    let names: Vec<&'static str> =
        (0..DECLARED.len()).map(|number| &*format!("bpf_f{number}").leak()).collect();
    for (_, prototype) in DECLARED {
        let mut kernel = environment();
        for name in &names {
            kernel.functions.insert(name, KernelFunction(7));
            kernel.prototypes.insert(name, prototype);
        }
        let image = Image::link(&object, &kernel).unwrap();
        let code =
            std::sync::Arc::new(tandem_ebpf::Code::new(image, tandem_ebpf::Engine::Interpreted).unwrap());
        let mut instance = tandem_ebpf::Instance::new(code, 1).unwrap();
        let function = instance.image().programs["program"].function;
        let found = instance.call(&mut running::NoKernel, function, [0; 5]).unwrap();
        let same = |at: usize| DECLARED[at].1 == prototype && !DECLARED[at].0.contains("unknown");
        let expected = (0..DECLARED.len()).filter(|&at| same(at)).map(|at| 1 << at).sum::<u64>();
        assert_eq!(found, expected, "{prototype}");
    }
}

#[test]
fn a_function_that_must_be_there_and_is_another_one_is_an_error() {
    let source = r#"
        u64 scx_bpf_now(u64 wrong) __ksym;
        u64 scx_bpf_absent(void) __ksym;
        SEC("syscall") u64 program(u64 *context) { return scx_bpf_now(1) + scx_bpf_absent(); }
    "#;
    let mut kernel = environment();
    kernel.prototypes.insert("scx_bpf_now", "(i)");
    let error = Image::link(&compile(source, "v3"), &kernel).unwrap_err().to_string();
    assert_eq!(
        error,
        "the object needs functions that the simulated kernel does not have: `scx_bpf_absent` (called by `program`); \
         the object declares functions of the kernel with other parameters or results than the simulated kernel's: \
         `scx_bpf_now` (called by `program`)"
    );
    // A function of the runtime that this kernel lacks.
    kernel = environment();
    kernel.lacks.insert("bpf_preempt_disable");
    let source = r#"
        void bpf_preempt_disable(void) __ksym;
        SEC("syscall") u64 program(u64 *context) { bpf_preempt_disable(); return 0; }
    "#;
    let object = compile(source, "v3");
    assert!(Image::link(&object, &environment()).is_ok());
    let error = Image::link(&object, &kernel).unwrap_err().to_string();
    assert!(error.contains("does not have: `bpf_preempt_disable` (called by `program`)"), "{error}");
}

#[test]
fn all_functions_that_the_kernel_lacks_are_named_at_once() {
    let error = link_error(
        r#"
        u64 scx_bpf_b(void) __ksym;
        u64 scx_bpf_a(void) __ksym;
        static u64 (*bpf_send_signal)(u32) = (void *)109;
        static __noinline u64 deep(void) { return scx_bpf_a(); }
        SEC("syscall") u64 one(u64 *context) { return deep() + 1; }
        SEC("syscall") u64 two(u64 *context) { return scx_bpf_b() + bpf_send_signal(1); }
        "#,
    );
    assert_eq!(
        error,
        "the object needs functions that the simulated kernel does not have: `bpf_send_signal` (called by `two`), \
         `scx_bpf_a` (called by `one`), `scx_bpf_b` (called by `two`)"
    );
}

#[test]
fn variables_and_configuration_of_the_kernel() {
    let image = link(
        r#"
        struct rq; struct cpustat;
        extern const struct rq runqueues __ksym;
        extern const struct cpustat kernel_cpustat __ksym;
        extern const u32 nr_cpu_ids __ksym;
        extern const u32 gone __ksym __weak;
        extern u32 CONFIG_HZ __kconfig;
        extern int LINUX_KERNEL_VERSION __kconfig;
        extern bool CONFIG_GONE __kconfig __weak;
        SEC("syscall") u64 queues(u64 *context) { return (u64)&runqueues; }
        SEC("syscall") u64 stat(u64 *context) { return (u64)&kernel_cpustat; }
        SEC("syscall") u64 count(u64 *context) { return (u64)&nr_cpu_ids; }
        SEC("syscall") u64 none(u64 *context) { return (u64)&gone; }
        SEC("syscall") u64 hz(u64 *context) { return (u64)&CONFIG_HZ; }
        SEC("syscall") u64 version(u64 *context) { return (u64)&LINUX_KERNEL_VERSION; }
        SEC("syscall") u64 config(u64 *context) { return (u64)&CONFIG_GONE; }
        "#,
    );
    let address = |name| returned(&image, name) as u64;
    let listed =
        [("runqueues", Image::VARIABLES), ("kernel_cpustat", Image::VARIABLES + Image::VARIABLE_SPACING)];
    assert_eq!(image.kernel_variables, listed.map(|(name, address)| (name.to_string(), address)));
    assert_eq!((address("queues"), address("stat"), address("none")), (listed[0].1, listed[1].1, 0));
    let section = |name: &str| image.sections.iter().find(|section| section.name == name).unwrap();
    let count = section("nr_cpu_ids");
    assert_eq!((count.address, &count.bytes[..]), (address("count"), &[0; 4][..]));
    let config = section(".kconfig");
    let value = |name, size: usize| {
        let start = (address(name) - config.address) as usize;
        let mut bytes = config.bytes[start..start + size].to_vec();
        bytes.resize(4, 0);
        u32::from_le_bytes(bytes.try_into().unwrap())
    };
    assert_eq!((value("hz", 4), value("version", 4), value("config", 1)), (250, 0x0006_0c00, 0));
}

#[test]
fn what_the_kernel_lacks_and_is_not_optional_is_an_error() {
    let config = r#"extern u32 CONFIG_X __kconfig; SEC("syscall") u64 p(u64 *c) { return CONFIG_X; }"#;
    assert!(link_error(config).contains("program `p` uses `CONFIG_X`"));
    let variable = r#"extern u32 missing __ksym; SEC("syscall") u64 p(u64 *c) { return missing; }"#;
    assert!(link_error(variable).contains("the kernel's variable `missing`"));
}

const TASK: &str = r#"
    struct sched_ext_entity { u64 slice; u32 weight; u64 absent; } __core;
    struct task_struct {
        int pid; u32 wide; int signed_wide; struct sched_ext_entity scx; char comm[16];
        union { struct { int deep; }; u32 also; }; u32 in_iowait : 1;
    } __core;
    struct task_struct___old { int pid; u32 state; } __core;
    struct unknown { int x; } __core;
    enum scx_enq_flags { SCX_ENQ_HEAD = 1, SCX_ENQ_GONE = 2 };
    enum own { OWN = 77 };
"#;

/// The first load of a program, or its first poison.
fn first_access(image: &Image, name: &str) -> Op {
    let mut ops = function(image, name).ops.iter();
    *ops.find(|op| matches!(op, Op::Load { probe: true, .. } | Op::Store { .. } | Op::Poison { .. })).unwrap()
}

#[test]
fn fields_are_where_the_kernel_has_them() {
    let image = link(&format!(
        "{TASK} {}",
        r#"
        SEC("syscall") u64 pid(struct task_struct *p) { return p->pid; }
        SEC("syscall") u64 flavoured(struct task_struct___old *p) { return p->pid; }
        SEC("syscall") u64 nested(struct task_struct *p) { return p->scx.weight; }
        SEC("syscall") u64 element(struct task_struct *p) { return p->comm[3]; }
        SEC("syscall") u64 wide(struct task_struct *p) { return p->wide; }
        SEC("syscall") u64 deep(struct task_struct *p) { return p->deep; }
        SEC("syscall") u64 absent(struct task_struct *p) { return p->scx.absent; }
        SEC("syscall") u64 unknown(struct unknown *p) { return p->x; }
        SEC("syscall") u64 bit(struct task_struct *p) { return p->in_iowait; }
        SEC("syscall") u64 store(struct task_struct *p) { p->scx.slice = 5; return 0; }
        SEC("syscall") u64 address(struct task_struct *p) {
            return (u64)__builtin_preserve_access_index(&p->scx.slice) ;
        }
        "#
    ));
    let load = |name| match first_access(&image, name) {
        Op::Load { offset, size, probe, .. } => (offset, size, probe),
        other => panic!("{name}: {other:?}"),
    };
    assert_eq!(load("pid"), (100, Size::W, true));
    assert_eq!(load("flavoured"), (100, Size::W, true));
    assert_eq!(load("nested"), (128 + 16, Size::W, true));
    assert_eq!(load("element"), (203, Size::B, true));
    assert_eq!(load("wide"), (104, Size::D, true));
    assert!(matches!(first_access(&image, "store"), Op::Store { offset: 136, size: Size::D, .. }));
    let adds = |op: &Op| {
        matches!(op, Op::Alu { src: Operand::Imm(136), .. } | Op::Move { src: Operand::Imm(136), .. })
    };
    assert!(function(&image, "address").ops.iter().any(adds));
    let reason = |name| match first_access(&image, name) {
        Op::Poison { reason } => &image.poisons[reason as usize][..],
        other => panic!("{name}: {other:?}"),
    };
    let not_modelled = |field: &str| format!("field `{field}, which the simulator does not model");
    assert_eq!(reason("deep"), not_modelled("deep` of `struct task_struct`"));
    assert_eq!(reason("absent"), not_modelled("scx.absent` of `struct task_struct`"));
    assert_eq!(reason("unknown"), not_modelled("x` of `struct unknown`"));
    assert!(
        reason("bit").starts_with("the bit-field `in_iowait` of `struct task_struct`"),
        "{}",
        reason("bit")
    );
}

#[test]
fn a_signed_field_of_another_size_is_adapted_only_where_the_load_extends_the_sign() {
    let source = format!("{TASK} SEC(\"syscall\") s64 p(struct task_struct *p) {{ return p->signed_wide; }}");
    let first = |cpu| {
        let image = Image::link(&compile(&source, cpu), &environment()).unwrap();
        first_access(&image, "p")
    };
    assert!(matches!(first("v3"), Op::Poison { .. }));
    assert!(matches!(first("v4"), Op::Load { offset: 112, size: Size::D, signed: false, .. }));
}

#[test]
fn questions_about_types_are_answered() {
    let image = link(&format!(
        "{TASK} {}",
        r#"
        #define P ((struct task_struct *)0)
        #define FIELD(name, kind, field) \
            SEC("syscall") u64 name(u64 *c) { return __builtin_preserve_field_info(field, kind); }
        #define TYPE(name, type, kind) \
            SEC("syscall") u64 name(u64 *c) { return __builtin_preserve_type_info(*(type *)0, kind); }
        #define ENUM(name, type, value, kind) \
            SEC("syscall") u64 name(u64 *c) { return __builtin_preserve_enum_value(*(type *)value, kind); }
        FIELD(offset, 0, P->scx.weight)
        FIELD(size, 1, P->wide)
        FIELD(has_pid, 2, P->pid)
        FIELD(has_absent, 2, P->scx.absent)
        FIELD(has_old, 2, ((struct task_struct___old *)0)->state)
        FIELD(is_signed, 3, P->pid)
        FIELD(is_unsigned, 3, P->wide)
        FIELD(left, 4, P->in_iowait)
        FIELD(right, 5, P->in_iowait)
        TYPE(has_task, struct task_struct, 0)
        TYPE(has_unknown, struct unknown, 0)
        TYPE(task_size, struct task_struct, 1)
        TYPE(unknown_size, struct unknown, 1)
        TYPE(task_matches, struct task_struct, 2)
        ENUM(head, enum scx_enq_flags, SCX_ENQ_HEAD, 1)
        ENUM(has_head, enum scx_enq_flags, SCX_ENQ_HEAD, 0)
        ENUM(has_gone, enum scx_enq_flags, SCX_ENQ_GONE, 0)
        ENUM(gone, enum scx_enq_flags, SCX_ENQ_GONE, 1)
        ENUM(own, enum own, OWN, 1)
        "#
    ));
    let answers = [
        ("offset", 144),
        ("size", 8),
        ("has_pid", 1),
        ("has_absent", 0),
        ("has_old", 0),
        ("is_signed", 1),
        ("is_unsigned", 0),
        ("left", 56),
        ("right", 56),
        ("has_task", 1),
        ("has_unknown", 0),
        ("task_size", 256),
        ("unknown_size", 0),
        ("task_matches", 0),
        ("head", 1 << 40),
        ("has_head", 1),
        ("has_gone", 0),
        ("own", 77),
    ];
    for (name, answer) in answers {
        assert_eq!(returned(&image, name), answer, "{name}");
    }
    assert!(matches!(function(&image, "gone").ops[0], Op::Poison { .. }));
    assert_eq!(
        image.poisons,
        ["value `SCX_ENQ_GONE` of `enum scx_enq_flags`, which the simulator does not model"]
    );
}

#[test]
fn a_scheduler_has_callbacks_numbers_and_texts() {
    let image = link(
        r#"
        struct task_struct;
        struct sched_ext_ops {
            s32 (*select_cpu)(struct task_struct *p, s32 prev_cpu, u64 wake_flags);
            void (*enqueue)(struct task_struct *p, u64 enq_flags);
            void (*dispatch)(s32 cpu, struct task_struct *prev);
            u32 dispatch_max_batch; u64 flags; u32 timeout_ms; void *priv; char name[128];
        };
        SEC("struct_ops/own_enqueue") void own_enqueue(u64 *context) {}
        SEC("struct_ops.s/own_select") s32 own_select(u64 *context) { return 1; }
        SEC("struct_ops/unused") void unused(u64 *context) {}
        SEC("?struct_ops/optional") void optional(u64 *context) {}
        SEC(".struct_ops.link") struct sched_ext_ops own = {
            .select_cpu = (void *)own_select, .enqueue = (void *)own_enqueue, .flags = 1ull << 33,
            .timeout_ms = 5000, .name = "own",
        };
        "#,
    );
    let [own] = &image.struct_ops[..] else { panic!("{:?}", image.struct_ops) };
    assert_eq!(own.name, "own");
    let callbacks: Vec<_> = own
        .callbacks
        .iter()
        .map(|(name, function)| (&name[..], &image.functions[function.0 as usize].name[..]))
        .collect();
    assert_eq!(callbacks, [("enqueue", "own_enqueue"), ("select_cpu", "own_select")]);
    let numbers: Vec<_> = own.numbers.iter().map(|(name, &value)| (&name[..], value)).collect();
    assert_eq!(numbers, [("dispatch_max_batch", 0), ("flags", 1 << 33), ("timeout_ms", 5000)]);
    assert_eq!(own.texts["name"], "own");
    assert_eq!(image.programs.keys().collect::<Vec<_>>(), ["unused"]);
    assert_eq!(image.programs["unused"].section, "struct_ops/unused");
}

/// Code that clang translates word by word.
fn assembled(code: &str) -> Vec<Op> {
    let source = format!(
        "SEC(\"syscall\") __attribute__((naked)) u64 p(u64 *c) {{ asm volatile(\"{}\"); }}",
        code.replace('\n', "\\n")
    );
    let image = Image::link(&compile(&source, "v4"), &environment()).unwrap();
    function(&image, "p").ops.clone()
}

#[test]
fn instructions_are_decoded() {
    use Operand::{Imm, Reg};
    let cases = [
        ("r1 += -5", Op::Alu { op: AluOp::Add, wide: true, dst: 1, src: Imm(-5) }),
        ("w1 >>= w2", Op::Alu { op: AluOp::ShiftRight, wide: false, dst: 1, src: Reg(2) }),
        ("r1 s>>= 3", Op::Alu { op: AluOp::ShiftRightSigned, wide: true, dst: 1, src: Imm(3) }),
        ("r3 /= r4", Op::Alu { op: AluOp::Div, wide: true, dst: 3, src: Reg(4) }),
        ("r3 s/= r4", Op::Alu { op: AluOp::SignedDiv, wide: true, dst: 3, src: Reg(4) }),
        ("w3 s%= 7", Op::Alu { op: AluOp::SignedMod, wide: false, dst: 3, src: Imm(7) }),
        ("r2 = -r2", Op::Negate { wide: true, dst: 2 }),
        ("w2 = w3", Op::Move { wide: false, dst: 2, src: Reg(3), sign_extend_from: 0 }),
        ("r2 = (s8)r3", Op::Move { wide: true, dst: 2, src: Reg(3), sign_extend_from: 8 }),
        ("r2 = (s32)r3", Op::Move { wide: true, dst: 2, src: Reg(3), sign_extend_from: 32 }),
        ("w2 = (s16)w3", Op::Move { wide: false, dst: 2, src: Reg(3), sign_extend_from: 16 }),
        ("r2 = be32 r2", Op::Swap { dst: 2, swap: Swap::Reverse, bits: 32 }),
        ("r2 = le16 r2", Op::Swap { dst: 2, swap: Swap::Truncate, bits: 16 }),
        ("r2 = bswap64 r2", Op::Swap { dst: 2, swap: Swap::Reverse, bits: 64 }),
        ("r2 = 0xfedcba9876543210 ll", Op::LoadImmediate { dst: 2, value: 0xfedc_ba98_7654_3210 }),
        (
            "r2 = *(u16 *)(r1 - 2)",
            Op::Load { dst: 2, base: 1, offset: -2, size: Size::H, signed: false, probe: false },
        ),
        (
            "r2 = *(s32 *)(r1 + 4)",
            Op::Load { dst: 2, base: 1, offset: 4, size: Size::W, signed: true, probe: false },
        ),
        ("*(u64 *)(r10 - 8) = r1", Op::Store { base: 10, offset: -8, size: Size::D, src: Reg(1) }),
        ("*(u8 *)(r1 + 1) = -1", Op::Store { base: 1, offset: 1, size: Size::B, src: Imm(-1) }),
        (
            "lock *(u32 *)(r1 + 0) += w2",
            Op::Atomic { op: AtomicOp::Add, size: Size::W, fetch: false, base: 1, offset: 0, src: 2 },
        ),
        (
            "r2 = atomic_fetch_xor((u64 *)(r1 + 8), r2)",
            Op::Atomic { op: AtomicOp::Xor, size: Size::D, fetch: true, base: 1, offset: 8, src: 2 },
        ),
        (
            "r2 = xchg_64(r1 + 8, r2)",
            Op::Atomic { op: AtomicOp::Exchange, size: Size::D, fetch: true, base: 1, offset: 8, src: 2 },
        ),
        (
            "w0 = cmpxchg32_32(r1 + 0, w0, w2)",
            Op::Atomic {
                op: AtomicOp::CompareExchange,
                size: Size::W,
                fetch: true,
                base: 1,
                offset: 0,
                src: 2,
            },
        ),
        // Instructions that clang 19 cannot assemble: may_goto, and loads and stores with an order.
        (".byte 0xe5, 0, 0, 0, 0, 0, 0, 0", Op::MayGoto { target: 1 }),
        (
            ".byte 0xd3, 0x12, 4, 0, 0, 1, 0, 0",
            Op::Atomic { op: AtomicOp::LoadAcquire, size: Size::B, fetch: false, base: 1, offset: 4, src: 2 },
        ),
        (
            ".byte 0xcb, 0x21, 4, 0, 0x10, 1, 0, 0",
            Op::Atomic {
                op: AtomicOp::StoreRelease,
                size: Size::H,
                fetch: false,
                base: 1,
                offset: 4,
                src: 2,
            },
        ),
    ];
    for (code, op) in cases {
        assert_eq!(assembled(&format!("{code}\nexit")), [op, Op::Exit], "{code}");
    }
}

#[test]
fn targets_are_positions() {
    let ops =
        assembled("if r1 > 5 goto +4\nr2 = 1 ll\nif w1 s<= w2 goto +1\ngoto +1\ngotol +0\nr0 = 0\nexit");
    let branch = |condition, wide, src, target| Op::Branch { condition, wide, dst: 1, src, target };
    assert_eq!(
        ops[..5],
        [
            branch(Condition::Greater, true, Operand::Imm(5), 4),
            Op::LoadImmediate { dst: 2, value: 1 },
            branch(Condition::SignedLessOrEqual, false, Operand::Reg(2), 4),
            Op::Jump { target: 5 },
            Op::Jump { target: 5 },
        ]
    );
}

#[test]
fn code_that_is_wrong_is_an_error() {
    let cases = [
        ("r10 = 1\nexit", "writes to the frame pointer"),
        ("goto +7\nexit", "jumps to where no instruction begins"),
        ("if r1 > 1 goto +1\nr2 = 1 ll\nexit", "jumps to where no instruction begins"),
        ("r0 = 1", "does not end with"),
        (".byte 0xff, 0, 0, 0, 0, 0, 0, 0\nexit", "opcode 0xff"),
        ("call 4000\nexit", "calls helper 4000"),
    ];
    for (code, expected) in cases {
        let source = format!(
            "SEC(\"syscall\") __attribute__((naked)) u64 p(u64 *c) {{ asm volatile(\"{}\"); }}",
            code.replace('\n', "\\n")
        );
        let error = Image::link(&compile(&source, "v4"), &environment()).unwrap_err().to_string();
        assert!(error.contains(expected), "{code}: {error}");
    }
}

#[test]
fn a_file_without_information_about_types_is_an_error() {
    let error = Image::link(b"text", &environment()).unwrap_err().to_string();
    assert!(error.starts_with("the object file cannot be read"), "{error}");
}

/// A kernel that has everything that this project's scheduler needs.
fn complete_environment() -> Environment {
    let mut kernel = environment();
    // Each attempt names what is missing.
    loop {
        match Image::link(tandem_bpf::OBJECT, &kernel) {
            Ok(_) => return kernel,
            Err(error) => {
                let message = error.to_string();
                let (_, list) = message.split_once("does not have: ").unwrap_or_else(|| panic!("{message}"));
                for name in list.split('`').skip(1).step_by(4) {
                    let number = KernelFunction(kernel.functions.len() as u16);
                    let known = kernel.functions.insert(name.to_string().leak(), number);
                    assert_eq!(known, None, "{message}");
                }
            }
        }
    }
}

static COMPLETE: LazyLock<Environment> = LazyLock::new(complete_environment);

#[test]
fn the_scheduler_of_this_project_links() {
    let image = Image::link(tandem_bpf::OBJECT, &COMPLETE).unwrap();
    let [scheduler] = &image.struct_ops[..] else { panic!("{:?}", image.struct_ops) };
    assert_eq!(scheduler.name, "tandem");
    assert_eq!(scheduler.callbacks.len(), 20);
    assert!(scheduler.callbacks.contains_key("enqueue"));
    assert_eq!(image.programs.keys().collect::<Vec<_>>(), ["prefer", "preference_of"]);
    assert!(image.variables["settings"].is_setting);
    assert!(image.maps.iter().any(|map| map.name == "counters"));
    assert!(image.kernel_variables.iter().any(|(name, _)| name == "kernel_cpustat"));
}

static SMALL: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let source = r#"
        u64 scx_bpf_now(void) __ksym __weak;
        struct task { int pid; };
        u64 number = 5; u64 *pointer = &number;
        const char *text = "hello";
        SEC("syscall") u64 p(struct task_struct *p) { return p->pid + *pointer + scx_bpf_now() + p->scx.weight; }
    "#;
    compile(&format!("{TASK} {MAPS} {source}"), "v4")
});

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn bytes_at_random_are_an_error(bytes in prop::collection::vec(any::<u8>(), 0..4096)) {
        prop_assert!(Image::link(&bytes, &environment()).is_err());
    }

    #[test]
    fn objects_with_bytes_changed_do_not_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
        length in prop::option::of(any::<prop::sample::Index>()),
        large in any::<bool>(),
    ) {
        let mut bytes = if large { tandem_bpf::OBJECT.to_vec() } else { SMALL.clone() };
        for (index, value) in changes {
            let index = index.index(bytes.len());
            bytes[index] = value;
        }
        if let Some(length) = length {
            bytes.truncate(length.index(bytes.len()) + bytes.len() / 2);
        }
        let _ = Image::link(&bytes, &COMPLETE);
    }
}
