//! Experiment files: the resulting experiments, and the errors about mistakes.

use std::fs;
use std::path::Path;
use tandem_lab::experiment::Experiment;
use tandem_lab::results::Key;
use tandem_sim::scenario::{MemoryPolicy, Pages, Workload};

const SCENARIO: &str = r#"length = "1s"
warmup = "100ms"
machine = "xeon-e5620-2s"
[parameters]
vms = 1
[programs.hog]
ops = [{ forever = [{ compute = "1ms" }, { count = "done" }] }]
[[vm]]
group = "hog"
count = "$vms"
vcpus = 2
memory = "960MiB"
programs = ["hog"]
"#;

const EXPERIMENT: &str = r#"title = "Hogs"
story = ["They run."]
source = "Nowhere"
modelled = ["hogs"]
not_modelled = ["frogs"]
baseline = "plain"
quick = { replications = 1, length_pct = 10 }

[variants.plain]
placement = "none"
[variants.home]
placement = "pin"
[variants.away]
host = { xen-credit = { timeslice = "5ms" } }

[[run]]
scenario = "s.toml"
keys = { benchmark = "hog" }
sweep = { vms = [2, 6] }
variants = ["home"]
metrics = [
  { name = "throughput", of = { rate_per_vm = "done" }, unit = "1/s", better = "higher" },
]

[[run]]
scenario = "s.toml"
keys = { benchmark = "busy" }
set = { vms = 3 }
metrics = [{ name = "busy", of = "busy_share", group = "hog", unit = "%", better = "neither" }]

[[target]]
text = "homes help"
cell = { benchmark = "hog", vms = 6 }
metric = "throughput"
variant = "home"
effect_pct = 5
within_pct = 2
"#;

const PUBLISHED: &str = "benchmark,vms,metric,variant,value,effect_pct\nhog,6,throughput,plain,100,\nhog,6,throughput,home,105,\nbusy,,busy,away,,1\n";

fn read_with(files: [(&str, &str); 3]) -> Result<Experiment, String> {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("hogs");
    fs::create_dir(&folder).unwrap();
    for (name, text) in files {
        fs::write(folder.join(name), text).unwrap();
    }
    Experiment::read(&folder).map_err(|error| {
        let message = error.to_string();
        message.strip_prefix(&format!("{}/", folder.display())).unwrap_or(&message).to_owned()
    })
}

fn read(experiment: &str, published: &str) -> Result<Experiment, String> {
    read_with([("experiment.toml", experiment), ("s.toml", SCENARIO), ("published.csv", published)])
}

#[test]
fn loads_and_variants_become_scenarios() {
    let experiment = read(EXPERIMENT, PUBLISHED).unwrap();
    assert_eq!((experiment.name.as_str(), experiment.cases[0].baseline.as_str()), ("hogs", "plain"));
    let labels: Vec<_> = experiment.cases.iter().map(|case| case.label()).collect();
    assert_eq!(labels, ["benchmark=hog vms=2", "benchmark=hog vms=6", "benchmark=busy"]);
    let variants: Vec<Vec<_>> = experiment
        .cases
        .iter()
        .map(|case| {
            case.variants.iter().map(|(name, scenario)| (name.as_str(), scenario.workloads.len())).collect()
        })
        .collect();
    assert_eq!(variants[0], [("plain", 2), ("home", 2)]);
    assert_eq!(variants[1], [("plain", 6), ("home", 6)]);
    assert_eq!(variants[2], [("plain", 3), ("home", 3), ("away", 3)]);
    assert_eq!(experiment.cases[0].keys["vms"], Key::Number(2));
    assert_eq!(experiment.cases[0].variants[1].1.workloads[0].affinity(0).hard.count(), 8);
    assert_eq!(experiment.replications.min, 5);
}

#[test]
fn runs_share_parameters_and_set_some_of_their_own() {
    let with = |set: &str| {
        let text = EXPERIMENT.replace("set = { vms = 3 }", &format!("with = [\"few\", \"many\"]\n{set}"));
        let text =
            text.replace("[[target]]", "[parameters]\nfew = { vms = 1 }\nmany = { vms = 4 }\n[[target]]");
        read(&text, PUBLISHED).unwrap().cases[2].variants[0].1.workloads.len()
    };
    assert_eq!(with(""), 4, "the last one counts");
    assert_eq!(with("set = { vms = 2 }"), 2, "what the run sets itself counts");
}

#[test]
fn a_sweep_over_several_parameters_runs_every_combination() {
    let scenario = SCENARIO
        .replace("vms = 1", "vcpus = 2\novercommit_pct = 100")
        .replace("count = \"$vms\"\nvcpus = 2", "overcommit_pct = \"$overcommit_pct\"\nvcpus = \"$vcpus\"")
        .replace("960MiB", "100MiB");
    let (runs, _) =
        EXPERIMENT.split_once("[[run]]\nscenario = \"s.toml\"\nkeys = { benchmark = \"busy\"").unwrap();
    let experiment = |sweep: &str| {
        let text = runs.replace("sweep = { vms = [2, 6] }", sweep);
        let published = "metric,variant,value,effect_pct\n";
        read_with([("experiment.toml", &text), ("s.toml", &scenario), ("published.csv", published)])
    };
    let cases =
        experiment("sweep = { vcpus = [4, 16], overcommit_pct = [100, 150, 200] }").map(|read| read.cases);
    // 1.5 VMs with 16 vCPUs each are impossible.
    let error = cases.map(|_| ()).unwrap_err();
    let says =
        "s.toml:11: no number of VMs with 16 vCPUs each comes to 150% of the 16 pCPUs (with variant `plain`)";
    assert_eq!(error, says);

    let cases = experiment("sweep = { vcpus = [4, 16], overcommit_pct = [100, 400] }").unwrap().cases;
    let loads: Vec<_> = cases.iter().map(|case| (case.label(), case.variants[0].1.workloads.len())).collect();
    let load = |overcommit_pct: u32, vcpus: u32, vms: usize| {
        (format!("benchmark=hog overcommit_pct={overcommit_pct} vcpus={vcpus}"), vms)
    };
    assert_eq!(loads, [load(100, 4, 4), load(100, 16, 1), load(400, 4, 16), load(400, 16, 4)]);
}

#[test]
fn the_quick_form_has_fewer_and_shorter_runs() {
    let experiment = read(EXPERIMENT, PUBLISHED).unwrap().quick();
    assert_eq!((experiment.replications.min, experiment.replications.max), (1, None));
    for (_, scenario) in experiment.cases.iter().flat_map(|case| &case.variants) {
        assert_eq!((scenario.length_ns, scenario.warmup_ns), (100_000_000, 10_000_000));
    }
}

#[test]
fn a_run_may_settle_by_variant_and_be_repeated_less_often() {
    let settling = EXPERIMENT.replace(
        "variants = [\"home\"]",
        "variants = [\"home\"]\nwarmup = { home = \"300ms\" }\nreplications = 2",
    );
    let experiment = read(&settling, PUBLISHED).unwrap();
    let warmups_ms = |case: usize| -> Vec<u64> {
        experiment.cases[case].variants.iter().map(|(_, scenario)| scenario.warmup_ns / 1_000_000).collect()
    };
    assert_eq!(warmups_ms(0), [100, 300]);
    assert_eq!(warmups_ms(2), [100, 100, 100], "of another run");
    let replications = |experiment: &Experiment| -> Vec<Option<usize>> {
        experiment.cases.iter().map(|case| case.replications).collect()
    };
    assert_eq!(replications(&experiment), [Some(2), Some(2), None]);
    let quick = experiment.clone().quick();
    assert_eq!(replications(&quick), [Some(1), Some(1), None]);
    assert_eq!(quick.cases[0].variants[1].1.warmup_ns, 30_000_000);
}

#[test]
fn variants_can_hold_policy_settings_only() {
    for setting in ["length = \"1s\"", "machine = \"xeon-e5620-2s\"", "costs = { all = false }", "vms = 2"] {
        let error = read(&EXPERIMENT.replace("placement = \"pin\"", setting), PUBLISHED).unwrap_err();
        assert!(error.starts_with("experiment.toml:12: unknown field `"), "{error}");
        assert!(error.contains("expected one of `host`, `guest`, `pause_loop`"), "{error}");
    }
}

/// The experiment with one more variant, of group "hog" of the scenario.
fn with_group(variant: &str) -> Result<Experiment, String> {
    let text = EXPERIMENT.replace(
        "[[run]]\nscenario = \"s.toml\"\nkeys = { benchmark = \"busy\" }",
        &format!(
            "[variants.moved]\n{variant}\n[[run]]\nscenario = \"s.toml\"\nkeys = {{ benchmark = \"busy\" }}"
        ),
    );
    read(&text, PUBLISHED)
}

/// How many CPUs each vCPU may use, and prefers.
fn affinities(vm: &Workload) -> Vec<(usize, usize)> {
    vm.affinities().map(|it| (it.hard.count(), it.soft.as_ref().map_or(0, |soft| soft.count()))).collect()
}

#[test]
fn variants_change_memory_and_homes_of_a_group() {
    let experiment = with_group(
        "group.hog.memory_policy = { bind = \"1\" }\ngroup.hog.huge_pages = \"none\"\n\
         group.hog.affinity = { soft = \"node:1\" }\ngroup.hog.vcpu_affinity = [{ vcpus = \"1\", hard = \"0\" }]",
    )
    .unwrap();
    let vm = |variant: &str| {
        let (_, scenario) =
            experiment.cases[2].variants.iter().find(|(name, _)| name == variant).expect("it is run");
        scenario.workloads[2].clone()
    };
    let (plain, moved) = (vm("plain"), vm("moved"));
    assert_eq!((plain.memory_policy, plain.pages), (MemoryPolicy::FirstTouch, Pages::Transparent(100)));
    assert_eq!((plain.memory_shares, affinities(&vm("plain"))), (vec![0.5, 0.5], vec![(16, 0); 2]));
    assert_eq!((moved.memory_policy, moved.pages), (MemoryPolicy::Own, Pages::Small));
    assert_eq!((moved.memory_shares, affinities(&vm("moved"))), (vec![0.0, 1.0], vec![(16, 8), (1, 0)]));
}

#[test]
fn what_a_variant_says_of_a_group_is_checked_against_the_scenario() {
    for (variant, expected) in [
        (
            "group.hgo.huge_pages = \"none\"",
            "s.toml: the policy is about a group `hgo`, which is not there; groups: `hog`",
        ),
        ("group.hog.memory_policy = { bind = \"7\" }", "s.toml:9: `7` names no nodes of the machine"),
        ("group.hog.affinity = { hard = \"99\" }", "s.toml:9: `99` names no CPUs of the machine"),
        ("group.hog.vcpu_affinity = [{ vcpus = \"2\" }]", "s.toml:9: `2` names no vCPUs of the VM"),
        ("group.hog.homes = [\"node:0\"]", "s.toml:9: the policy gives homes to the VMs of group `hog`"),
        ("group.hog.vcpus = 3", "experiment.toml:26: unknown field `vcpus`"),
    ] {
        let error = with_group(variant).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn mistakes_name_the_file_the_line_and_what_is_allowed() {
    let cases = [
        (
            "baseline = \"plain\"",
            "baseline = \"none\"",
            "experiment.toml:6: there is no variant `none`; variants: `plain`, `home`, `away`",
        ),
        (
            "variants = [\"home\"]",
            "baseline = \"hom\"",
            "experiment.toml:20: there is no variant `hom`; variants: `plain`",
        ),
        (
            "variants = [\"home\"]",
            "variants = [\"hom\"]",
            "experiment.toml:20: there is no variant `hom`; variants: `plain`",
        ),
        (
            "variants = [\"home\"]",
            "warmup = { hom = \"1s\" }",
            "experiment.toml:20: there is no variant `hom`; variants: `plain`",
        ),
        (
            "variants = [\"home\"]",
            "warmup = { home = \"2000min\" }",
            "experiment.toml:20: 2000 min is too long; at most a day",
        ),
        (
            "variants = [\"home\"]",
            "replications = 0",
            "experiment.toml:20: `replications` is 0; at least 1 is needed",
        ),
        (
            "length_pct = 10",
            "length_pct = 0",
            "experiment.toml:7: allowed are at least 1 for `replications`, and 1 to 100",
        ),
        (
            "baseline = \"plain\"",
            "baseline = \"plain\"\nreplications = { min = 3, max = 2 }",
            "experiment.toml:7: the replications are out of range; `min` must be",
        ),
        (
            "sweep = { vms = [2, 6] }",
            "sweep = { vm = [2, 6] }",
            "experiment.toml:19: `s.toml` has no parameter `vm`; its parameters: `vms`",
        ),
        (
            "set = { vms = 3 }",
            "with = [\"many\"]",
            "experiment.toml:28: there are no parameters `many`; under [parameters]: none",
        ),
        (
            "set = { vms = 3 }",
            "set = { clients = 3 }",
            "experiment.toml:28: `s.toml` has no parameter `clients`; its parameters: `vms`",
        ),
        (
            "sweep = { vms = [2, 6] }",
            "sweep = { vms = [2, 100] }",
            "s.toml:12: 960 MiB of memory do not fit on the nodes",
        ),
        (
            "keys = { benchmark = \"busy\" }\nset = { vms = 3 }",
            "keys = { benchmark = \"hog\" }\nsweep = { vms = [6] }",
            "experiment.toml:26: two runs have the same keys (benchmark=hog vms=6)",
        ),
        (
            "{ rate_per_vm = \"done\" }",
            "{ rate_per_vm = \"dun\" }",
            "experiment.toml:17: the metric `throughput` is of the counter `dun`, which no VM has; counters: `done`",
        ),
        (
            "{ rate_per_vm = \"done\" }",
            "\"time_to_count\"",
            "experiment.toml:17: the metric `throughput` needs a `stop_at_count` in `s.toml`",
        ),
        (
            "\"busy_share\"",
            "\"busyness\"",
            "experiment.toml:29: unknown variant `busyness`, expected one of `rate`",
        ),
        (
            "group = \"hog\"",
            "group = \"frog\"",
            "experiment.toml:29: the metric `busy` has no VMs; groups: `hog`",
        ),
        (
            "cell = { benchmark = \"hog\", vms = 6 }",
            "cell = { vms = 6 }",
            "experiment.toml:32: the target is about no effect of this experiment; cells are `benchmark=hog vms=2`",
        ),
        (
            "[[target]]\ntext",
            "[[composite]]\nname = \"all\"\nof = \"throughput\"\nover = \"vms\"\nparts = [2, 4]\nkeys = {}\n[[target]]\ntext",
            "experiment.toml:32: no runs have all parts of this composite, which are values of `vms`",
        ),
        (
            "[[target]]\ntext",
            "[[composite]]\nname = \"all\"\nof = \"throughput\"\nover = \"vm\"\nparts = [2]\nkeys = {}\n[[target]]\ntext",
            "experiment.toml:32: no runs have all parts of this composite, which are values of `vm`",
        ),
        (
            "[[target]]\ntext",
            "[[accuracy]]\ntext = \"all\"\nmetric = \"speed\"\nerror = \"median\"\nwithin_pct = 3\n[[target]]\ntext",
            "experiment.toml:32: no run has the metric `speed`",
        ),
        (
            "[[target]]\ntext",
            "[[accuracy]]\ntext = \"all\"\nmetric = \"busy\"\nkeys = { vms = 2 }\nerror = \"median\"\nwithin_pct = 3\n[[target]]\ntext",
            "experiment.toml:32: no run with the metric `busy` has these keys; cells are `benchmark=hog vms=2`",
        ),
        (
            "host = { xen-credit = { timeslice = \"5ms\" } }",
            "host = { xen-credit = { timeslice = \"5min\" } }",
            "experiment.toml:14: the timeslice is out of range; allowed are",
        ),
        (
            "host = { xen-credit = { timeslice = \"5ms\" } }",
            "pause_loop = { window_growth = 0 }",
            "experiment.toml:14: `window_growth` is 0; allowed are 1 to 1000",
        ),
        (
            "host = { xen-credit = { timeslice = \"5ms\" } }",
            "pause_loop = { directed_yield = {} }",
            "s.toml: `directed_yield` has no effect under the host `xen-credit`; remove it (with variant `away`)",
        ),
        (
            "host = { xen-credit = { timeslice = \"5ms\" } }",
            "host = { linux = { ratelimit = \"1ms\" } }",
            "experiment.toml:14: unknown field `ratelimit`, expected one of `version`, `domains`",
        ),
        (
            "host = { xen-credit = { timeslice = \"5ms\" } }",
            "host = { xen-credit = { ratelimit = \"50ms\" } }",
            "s.toml: the rate limit is longer than the timeslice (with variant `away`)",
        ),
    ];
    for (line, instead, says) in cases {
        assert!(EXPERIMENT.contains(line), "{line}");
        let error = read(&EXPERIMENT.replacen(line, instead, 1), PUBLISHED).map(|_| ()).expect_err(instead);
        assert!(error.starts_with(says), "{instead}: {error}");
    }
}

/// The error about a table at line 31 of the experiment, before its target.
fn said_of(table: &str, line: &str, instead: &str) -> String {
    assert!(table.contains(line), "{line}");
    let table = table.replacen(line, instead, 1);
    let read = read(&EXPERIMENT.replace("[[target]]", &format!("{table}[[target]]")), PUBLISHED);
    read.map(|_| String::new()).unwrap_or_else(|error| error)
}

/// Mistakes in the cells that an order or a heat map names, in lines 33 to 35.
const SERIES_MISTAKES: [(&str, &str, &str); 4] = [
    (
        "throughput",
        "speed",
        "experiment.toml:33: no run has the metric `speed`; there are `busy`, `throughput`",
    ),
    ("throughput", "busy", "experiment.toml:33: neither way is better for the metric `busy`"),
    (
        "\"hog\"",
        "\"dog\"",
        "experiment.toml:34: no run with the metric `throughput` has these keys; cells are",
    ),
    ("\"vms\"", "\"vm\"", "experiment.toml:35: these cells have no key `vm`; their keys: `benchmark`, `vms`"),
];

/// Checks the error about each of these changes of the table, and about those that any series may have; an
/// empty text means no error.
fn check_said(table: &str, own: &[(&str, &str, &str)]) {
    for (line, instead, says) in SERIES_MISTAKES.iter().chain(own) {
        let said = said_of(table, line, instead);
        assert!(said.starts_with(says) && said.is_empty() == says.is_empty(), "{instead}: {said}");
    }
}

#[test]
fn orders_are_of_variants_that_are_run_along_a_key() {
    let order = "[[order]]\ntext = \"home\"\nmetric = \"throughput\"\nkeys = { benchmark = \"hog\" }\nover = \"vms\"\n\
        variants = [\"plain\", \"home\"]\n";
    let own = [
        ("[[order]]", "[[order]]", ""),
        (
            "over = \"vms\"",
            "over = \"benchmark\"",
            "experiment.toml:34: several runs have these keys and benchmark=hog; `keys`",
        ),
        (
            "\"plain\"",
            "\"away\"",
            "experiment.toml:36: the runs of these cells have no variant `away`; there are `home`, `plain`",
        ),
        ("\"plain\", ", "", "experiment.toml:32: an order needs at least two variants"),
    ];
    check_said(order, &own);
}

#[test]
fn heat_maps_show_variants_that_are_run_along_a_key() {
    let map = "[[heat_map]]\ntitle = \"Homes\"\nmetric = \"throughput\"\nkeys = { benchmark = \"hog\" }\ncolumns = \"vms\"\n\
        rows = [\"home\"]\nlabels = { home = \"at home\" }\nrows_title = \"where\"\n";
    let own = [
        ("[[heat_map]]", "[[heat_map]]", ""),
        (
            "\"home\"",
            "\"away\"",
            "experiment.toml:36: the runs of these cells have no variant `away`; there are `home`",
        ),
        ("[\"home\"]", "[]", "experiment.toml:32: the heat map has no rows; name at least one variant"),
        ("{ home =", "{ hom =", "experiment.toml:37: the heat map has no row `hom`; its rows: `home`"),
        ("columns", "colums", "experiment.toml:35: unknown field `colums`, expected one of `title`"),
    ];
    check_said(map, &own);
}

#[test]
fn a_run_may_have_a_baseline_of_its_own() {
    let with_baseline =
        EXPERIMENT.replace("variants = [\"home\"]", "baseline = \"away\"\nvariants = [\"home\"]");
    let published = |rows: &str| format!("benchmark,vms,metric,variant,value,effect_pct\n{rows}\n");
    let experiment =
        read(&with_baseline, &published("hog,6,throughput,home,,5\nbusy,,busy,away,,1")).unwrap();
    let runs: Vec<(&str, Vec<&str>)> = experiment
        .cases
        .iter()
        .map(|case| (case.baseline.as_str(), case.variant_names().collect()))
        .collect();
    let hog = ("away", vec!["home", "away"]);
    assert_eq!(runs, [hog.clone(), hog, ("plain", vec!["plain", "home", "away"])]);

    for (row, says) in [
        (
            "hog,6,throughput,away,,1",
            "published.csv:2: `away` is the baseline, which has no effect against itself",
        ),
        (
            "hog,6,throughput,plain,1,",
            "published.csv:2: its run has no variant `plain`; there are `home`, `away`",
        ),
    ] {
        let error = read(&with_baseline, &published(row)).map(|_| ()).expect_err(row);
        assert!(error.starts_with(says), "{error}");
    }
    let target = with_baseline.replace("variant = \"home\"", "variant = \"away\"");
    let error = read(&target, &published("")).map(|_| ()).unwrap_err();
    assert!(error.contains("the target is about no effect of this experiment"), "{error}");

    let composite = "[[composite]]\nname = \"all\"\nof = \"busy\"\nover = \"benchmark\"\nparts = [\"busy\", \"idle\"]\nkeys = {}\n\
        [[run]]\nscenario = \"s.toml\"\nkeys = { benchmark = \"idle\" }\nbaseline = \"home\"\n\
        metrics = [{ name = \"busy\", of = \"busy_share\", unit = \"%\", better = \"neither\" }]\n";
    assert_eq!(said_of(composite, "baseline = \"home\"\n", ""), "");
    let said = said_of(composite, "", "");
    let says =
        "experiment.toml:32: the parts of this composite are runs with different baselines or variants";
    assert!(said.starts_with(says), "{said}");
}

#[test]
fn published_numbers_must_belong_to_something_that_is_run() {
    for (line, instead, says) in [
        (
            "hog,6,throughput,plain",
            "hog,8,throughput,plain",
            "published.csv:2: no run has these keys; there are `benchmark=hog vms=2`",
        ),
        (
            "hog,6,throughput,home",
            "hog,6,latency,home",
            "published.csv:3: its run has no metric `latency`; there are `throughput`",
        ),
        (
            "hog,6,throughput,home",
            "hog,6,throughput,away",
            "published.csv:3: its run has no variant `away`; there are `plain`, `home`",
        ),
        (
            "plain,100,",
            "plain,100,1",
            "published.csv:2: `plain` is the baseline, which has no effect against itself",
        ),
    ] {
        let error = read(EXPERIMENT, &PUBLISHED.replacen(line, instead, 1)).map(|_| ()).expect_err(instead);
        assert!(error.starts_with(says), "{instead}: {error}");
    }
}

#[test]
fn every_schema_compiles_and_describes_its_fields() {
    for (schema, field) in [
        (tandem_lab::schema::scenario(), "length"),
        (tandem_lab::schema::experiment(), "baseline"),
        (tandem_lab::schema::machine(), "name"),
    ] {
        let schema = serde_json::to_value(schema).unwrap();
        assert_eq!(schema["additionalProperties"], false, "{schema}");
        assert!(schema["properties"][field]["description"].is_string(), "{field}");
    }
}

#[test]
fn a_parameter_may_stand_for_any_value_where_there_are_parameters() {
    let duration = |schema| serde_json::to_value(schema).unwrap()["$defs"]["Duration"].clone();
    let scenario = duration(tandem_lab::schema::scenario());
    assert_eq!(scenario["anyOf"][1]["pattern"], r"^\$.+$", "{scenario}");
    let machine = duration(tandem_lab::schema::machine());
    assert_eq!(machine["type"], "string", "{machine}");
    let scenario = serde_json::to_value(tandem_lab::schema::scenario()).unwrap();
    let word = &scenario["$defs"]["LinuxHostTable"]["properties"]["version"]["anyOf"];
    let forms: Vec<_> = word.as_array().unwrap().iter().map(|form| form["pattern"].as_str()).collect();
    assert_eq!(forms, [None, None, Some(r"^\$.+$")], "words, nothing, or one parameter: {word}");
    let operations = &scenario["$defs"]["OpForm"]["anyOf"];
    assert!(operations[0]["oneOf"].is_array() && operations[1]["pattern"] == r"^\$.+$", "{operations}");
    let experiment = duration(tandem_lab::schema::experiment());
    assert_eq!(experiment["type"], "string", "an experiment has no parameters: {experiment}");
    let values = &scenario["$defs"]["Key"];
    assert!(!values.to_string().contains("pattern"), "{values}");
}

/// The experiments of the project itself.
#[test]
fn the_published_tables_of_the_project_can_be_read() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    for (name, rows) in [("rate-control", 4), ("numa-affinity", 27), ("flat-domain", 436)] {
        let published =
            tandem_lab::published::Published::read(&root.join(name).join("published.csv")).unwrap();
        assert_eq!(published.rows().len(), rows, "{name}");
    }
}

#[test]
fn a_run_is_as_long_as_ten_periods_of_balancing_or_says_why_not() {
    let scenario = |length: &str| SCENARIO.replace("length = \"1s\"", &format!("length = \"{length}\""));
    let read = |length: &str, experiment: &str| {
        let files =
            [("experiment.toml", experiment), ("s.toml", &scenario(length)), ("published.csv", PUBLISHED)];
        read_with(files).map(|_| ())
    };
    let keys = "keys = { benchmark = \"hog\" }";
    let experiment = EXPERIMENT.replace("[variants.plain]\n", "[variants.plain]\nhost = \"linux\"\n");
    let short = experiment.replace(keys, &format!("{keys}\nshort = \"nothing moves\""));
    let short_everywhere = short
        .replace("keys = { benchmark = \"busy\" }", "keys = { benchmark = \"busy\" }\nshort = \"so here\"");
    // With 16 CPUs the largest domain is balanced each 16 ms; 100 ms are the warm-up.
    assert_eq!(read("60ms", &experiment), Ok(()));
    let error = read("59ms", &experiment).unwrap_err();
    let expected = "the run takes 159 ms with its warm-up, while the host balances its largest domain each 16 ms; \
                    make it 160 ms or longer, or say in `short` why less is enough";
    assert!(error.ends_with(expected), "{error}");
    assert!(read("59ms", &short).is_err(), "each run says it for itself");
    assert_eq!(read("59ms", &short_everywhere), Ok(()));
    let error = read("60ms", &short).unwrap_err();
    assert!(error.ends_with("the run is long enough; leave `short` out"), "{error}");
}
