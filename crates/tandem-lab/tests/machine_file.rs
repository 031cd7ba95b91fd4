//! Machine files: their contents, the errors about mistakes, and that writing and reading agree.

use proptest::prelude::*;
use std::path::Path;
use tandem_lab::machine_file::{MachineFile, load_machine, parse_machine, to_toml};
use tandem_machine::ids::{CpuId, NodeId};
use tandem_machine::{CpuSpec, Hardware, Machine, MachineBuilder, NodeSpec, preset, preset_names};

/// Two nodes, of which the second has no memory, its core no cache and half the speed.
const ODD: &str = r#"name = "odd"

[hardware]
clock = "2.4 GHz"
llc_latency = "17 ns"

[[node]]
number = 0
memory = "6 GiB"
bandwidth = "20.4 GB/s"
distances = [10, 21]

[[node]]
number = 4
distances = [20, 10]

[[llc]]
number = 7
size = "12 MiB"

[[cores]]
package = 0
node = 0
llc = 7
cpus = ["0,4", "1,5"]

[[cores]]
package = 1
node = 4
cpus = ["2-3"]
capacity = 500
"#;

#[test]
fn a_file_says_what_the_machine_is() {
    let machine = parse_machine(ODD, "odd.toml").unwrap();
    assert_eq!(machine.name(), "odd");
    assert_eq!((machine.packages().len(), machine.node_count(), machine.llcs().len()), (2, 2, 1));
    assert_eq!((machine.cores().len(), machine.cpu_count()), (3, 6));
    assert_eq!(machine.os_list(machine.siblings(CpuId(4))), "0,4");
    assert_eq!(machine.os_list(machine.llc_cpus(CpuId(0))), "0-1,4-5");
    assert_eq!(machine.cpu(CpuId(2)).capacity_permille, 500);
    assert_eq!(machine.nodes()[0].memory_bytes, 6 << 30);
    assert_eq!(machine.nodes()[0].bandwidth_bytes_per_s, 20_400_000_000);
    assert_eq!(machine.distance(NodeId(0), NodeId(1)), 21);
    assert!(machine.isolated().is_empty());
    let isolated = parse_machine(&format!("isolated = \"2-3\"\n{ODD}"), "odd.toml").unwrap();
    assert_eq!(isolated.os_list(isolated.isolated()), "2-3");
    let tickless = parse_machine(&format!("tickless = \"1,4\"\n{ODD}"), "odd.toml").unwrap();
    assert_eq!(tickless.os_list(tickless.tickless()), "1,4");
    assert!(tickless.isolated().is_empty() && machine.tickless().is_empty());
    let expected = Hardware { clock_mhz: 2400, llc_latency_ns: 17, ..Hardware::GENERIC };
    assert_eq!(machine.hardware(), &expected);
}

#[test]
fn mistakes_are_shown_with_file_line_and_what_is_allowed() {
    let cases = [
        (
            "clock = \"2.4 GHz\"",
            "clok = \"2.4 GHz\"",
            "odd.toml:4: unknown field `clok`, expected one of `clock`,",
        ),
        ("\"6 GiB\"", "6", "odd.toml:9: `6` has no unit; allowed are B, kB, MB, GB, TB, KiB, MiB, GiB, TiB,"),
        (
            "\"17 ns\"",
            "\"17 parsec\"",
            "odd.toml:5: `17 parsec` has the unknown unit `parsec`; allowed are ns,",
        ),
        (
            "\n\n[hardware]",
            "\nisolated = \"2-4,6\"\n[hardware]",
            "odd.toml:2: CPU 6 is isolated and in no core; CPUs of cores are allowed",
        ),
        ("\n\n[hardware]", "\nisolated = \"x\"\n[hardware]", "odd.toml:2: `x` is not a number or range"),
        (
            "\n\n[hardware]",
            "\ntickless = \"6\"\n[hardware]",
            "odd.toml:2: CPU 6 is tickless and in no core; CPUs of cores are allowed",
        ),
        ("\"17 ns\"", "\"5 s\"", "odd.toml:3: llc_latency is 5 s; at most 4.294 s are allowed"),
        ("\"17 ns\"", "\"1 us\"", "odd.toml:3: latencies must rise with distance: last-level cache 1000 ns,"),
        ("2.4 GHz", "2.4005 MHz", "odd.toml:3: clock is 2400.5 kHz; a whole number of MHz is needed"),
        ("bandwidth = \"20.4 GB/s\"", "", "odd.toml:7: NUMA node 0 has memory but a bandwidth of 0"),
        ("[10, 21]", "[10]", "odd.toml:11: 1 distances for 2 nodes; one for each is needed"),
        ("[10, 21]", "[10, 2]", "odd.toml:7: the distance from NUMA node 0 to 4 is 2; allowed is 10"),
        ("distances = [20, 10]", "", "odd.toml:13: distances are missing here; give them for every node or"),
        ("number = 4", "number = 0", "odd.toml:13: NUMA node 0 is described twice"),
        ("12 MiB", "0 MiB", "odd.toml:17: last-level cache 7 has a size of 0; it must be positive"),
        ("llc = 7", "llc = 8", "odd.toml:25: CPU 0 uses last-level cache 8, which is not described"),
        (
            "\"1,5\"",
            "\"1-\"",
            "odd.toml:25: `1-` is not a number or range from 0 to 65535; a list looks like",
        ),
        ("\"1,5\"", "\"0-65535\"", "odd.toml:25: the machine has 65538 CPUs; at most 8192 are supported"),
        ("\"1,5\"", "\"\"", "odd.toml:25: a core needs at least one CPU, as in \"0\" or \"0,8\""),
        ("\"2-3\"", "\"3-4\"", "odd.toml:30: CPU 4 is described twice"),
        ("node = 4", "node = 5", "odd.toml:30: CPU 2 is on NUMA node 5, which is not described"),
        ("capacity = 500", "capacity = 1001", "odd.toml:27: capacity 1001 is outside 1 to 1000"),
    ];
    for (good, bad, expected) in cases {
        assert!(ODD.contains(good), "{good}");
        let error = parse_machine(&ODD.replacen(good, bad, 1), "odd.toml").unwrap_err().to_string();
        assert!(error.starts_with(expected), "{good} -> {bad}:\n{error}\n{expected}");
        assert_eq!(error.lines().count(), 1);
    }
}

#[test]
fn the_example_of_the_documentation_is_a_machine() {
    let source = include_str!("../src/machine_file.rs");
    let example = source.split("//! ```toml").nth(1).and_then(|rest| rest.split("//! ```").next()).unwrap();
    let example = example.replace("//! ", "").replace("//!", "");
    assert_eq!(parse_machine(&example, "example").unwrap().cpu_count(), 6);
}

#[test]
fn an_empty_machine_is_refused() {
    let error = parse_machine("name = \"none\"\nnode = []\ncores = []\n", "m.toml").unwrap_err();
    assert_eq!(error.to_string(), "m.toml: the machine has no NUMA node; at least one is needed");
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let error = load_machine(Path::new("no-such.toml")).unwrap_err().to_string();
    assert!(error.starts_with("no-such.toml: cannot be read: "), "{error}");
}

#[test]
fn the_schema_allows_what_the_reader_does() {
    let schema = schemars::schema_for!(MachineFile);
    assert_eq!(schema.get("additionalProperties"), Some(&false.into()));
    let required = schema.get("required").and_then(|names| names.as_array()).unwrap();
    assert_eq!(required, &["name", "node", "cores"]);
    let definitions = schema.get("$defs").and_then(|definitions| definitions.as_object()).unwrap();
    for table in ["HardwareTable", "NodeTable", "LlcTable", "CoresTable", "Size", "Bandwidth"] {
        assert!(definitions.contains_key(table), "{table}");
    }
}

#[test]
fn presets_survive_a_round_trip() {
    for name in preset_names() {
        let machine = preset(name).unwrap();
        assert_eq!(parse_machine(&to_toml(&machine), name).unwrap(), machine);
    }
}

prop_compose! {
    /// A machine with gaps in every numbering, nodes without CPUs or memory, cores of any threads and speed.
    fn machines()(
        nodes in prop::collection::vec((0..3u64, prop::collection::vec(10..255u32, 4)), 1..4),
        cores in prop::collection::vec((1..4u32, 0..4usize, prop::option::of(0..3u32), 1..1000u32), 1..12),
        clock_mhz in 1..5000u32,
        gap in 1..4u32,
        isolated in prop::collection::vec(0..40u32, 0..4),
        tickless in prop::collection::vec(0..40u32, 0..4),
    ) -> Machine {
        let count = nodes.len();
        let mut builder = MachineBuilder::new("any \"name\"").isolated(isolated).tickless(tickless)
            .hardware(Hardware { clock_mhz, ..Hardware::GENERIC })
            .llc(0, 1).llc(1, 12 << 20).llc(2, 1_234_567);
        let mut rows = Vec::new();
        for (at, (gib, row)) in nodes.iter().enumerate() {
            let os_index = u32::try_from(at).unwrap() * gap;
            builder = builder.node(NodeSpec {
                os_index,
                memory_bytes: gib << 30,
                bandwidth_bytes_per_s: 20_400_000_001,
            });
            rows.push((0..count).map(|to| if to == at { 10 } else { row[to] }).collect());
        }
        builder = builder.distances(rows);
        let mut os_index = 0;
        for (core, &(threads, node, llc, capacity)) in cores.iter().enumerate() {
            let core = u32::try_from(core).unwrap();
            let node = u32::try_from(node % count).unwrap() * gap;
            for _ in 0..threads {
                builder = builder.cpu(CpuSpec { os_index, core, llc, node, package: node + 1, capacity });
                os_index += gap;
            }
        }
        builder.build().unwrap()
    }
}

proptest! {
    #[test]
    fn any_machine_survives_a_round_trip(machine in machines()) {
        prop_assert_eq!(parse_machine(&to_toml(&machine), "m.toml").unwrap(), machine);
    }

    #[test]
    fn no_text_makes_the_reader_panic(at in 0..ODD.len(), length in 0..40usize, insert in "[ -~\n]{0,20}") {
        let end = (at + length).min(ODD.len());
        let mangled = format!("{}{insert}{}", &ODD[..at], &ODD[end..]);
        let _ = parse_machine(&mangled, "m.toml");
    }
}
