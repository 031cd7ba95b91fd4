//! What a scheduler's user space would tell it, from the scenario: variables, maps, operations, calls.

use crate::support::{file_with, run, tasks, try_build};
use tandem_sim::metrics::{RunMetrics, TaskMetrics};

/// What `domains.bpf.c` needs on a machine of 16 CPUs, whose caches have 8 of them each.
const DOMAINS: &str = r#"
nr_domains = "@llcs"
cpu_domain = { each = "cpu", value = "@llc" }
domains = [{ each = "llc", key = "@llc", value = { cpus = "@count", turn = { slice_ns = 8_000_000 } } }]
"#;
const CALLS: &str = r#"[
    { program = "add_cpu", each = "cpu", args = { cpu = "@cpu" } },
    { program = "start", started = true },
]"#;

/// Hogs, half of which begin on the one cache and half on the other.
fn scenario(settings: &str, calls: &str, rest: &str) -> String {
    let settings = settings.trim().replace('\n', ", ");
    let host = file_with("domains", &format!("settings = {{ {settings} }}, calls = {calls}, {rest}"));
    format!(
        r#"length = "400ms"
machine = "xeon-e5620-2s"
[policy]
host = {host}
[programs.hog]
ops = [{{ forever = [{{ compute = "100us" }}, {{ count = "rounds" }}] }}]
[[processes]]
group = "first"
memory = "1GiB"
affinity = {{ hard = "0-7" }}
process = [{{ program = "hog", copies = 12 }}]
[[processes]]
group = "second"
memory = "1GiB"
affinity = {{ hard = "8-15" }}
process = [{{ program = "hog", copies = 12 }}]
"#
    )
}

fn run_ns(metrics: &RunMetrics, group: &str) -> u64 {
    TaskMetrics::sum(tasks(metrics, group)).run_ns
}

const KERNEL: &str = "kernel = \"7.3\"";

#[test]
fn a_scheduler_that_was_told_all_it_needs_uses_all_cpus() {
    for kernel in ["6.12", "7.3"] {
        let metrics = run(&scenario(DOMAINS, CALLS, &format!("kernel = \"{kernel}\"")));
        let busy_ns = run_ns(&metrics, "first") + run_ns(&metrics, "second");
        assert!(busy_ns > 16 * 390_000_000, "{kernel}: {busy_ns}");
    }
}

#[test]
fn each_thing_that_is_told_has_its_effect() {
    let calls = |cpus: &str| CALLS.replace("each = \"cpu\", args = { cpu = \"@cpu\" }", cpus);
    // One CPU takes part: the other cache's tasks wait.
    let one = run(&scenario(DOMAINS, &calls("args = { cpu = 9 }"), KERNEL));
    assert_eq!(run_ns(&one, "first"), 0);
    assert!(run_ns(&one, "second").abs_diff(400_000_000) < 5_000_000);
    // Turns of the map's length, in whichever queue.
    for (turn, slice_ms) in [("slice_ns = 16_000_000", 16.0), ("slice_ns = 24_000_000, ordered = true", 24.0)]
    {
        let settings = DOMAINS.replace("slice_ns = 8_000_000", turn);
        let metrics = run(&scenario(&settings, CALLS, KERNEL));
        let all = TaskMetrics::sum(tasks(&metrics, "first"));
        let run_ms = all.run_ns as f64 / 1e6 / all.dispatches as f64;
        // A tick ends each; those of the end are cut off.
        assert!(run_ms > slice_ms * 0.7 && run_ms < slice_ms + 4.5, "{turn}: {run_ms} ms");
    }
}

#[test]
fn operations_change_too() {
    // Without an own choice of CPUs, the kernel's puts tasks where nobody waits.
    let without =
        format!("{DOMAINS}domains_ops = {{ select_cpu = false, stopping = false, timeout_ms = 100 }}");
    let metrics = run(&scenario(&without, CALLS, KERNEL));
    assert!(run_ns(&metrics, "first") > 8 * 390_000_000);
    // The watchdog looks for those that nobody runs.
    let calls = CALLS.replace("each = \"cpu\", args = { cpu = \"@cpu\" }", "args = { cpu = 9 }");
    let built =
        try_build(&scenario(&format!("{DOMAINS}domains_ops = {{ timeout_ms = 100 }}"), &calls, KERNEL));
    let error = tandem_sim::run(&built.unwrap(), 1).expect_err("nobody runs the first ones").to_string();
    assert!(error.contains("runnable task stall"), "{error}");
}

#[test]
fn what_is_missing_is_named_when_the_scheduler_starts() {
    let fails = |settings: &str, calls: &str| {
        let scenario =
            try_build(&scenario(settings, calls, KERNEL)).unwrap_or_else(|error| panic!("{error}"));
        tandem_sim::run(&scenario, 1).expect_err(settings).to_string()
    };
    let error = fails("cpu_domain = [0]", CALLS);
    assert!(error.contains("`init` of the scheduler failed with error 22: "), "{error}");
    assert!(error.contains("nr_domains is 0, not 1 to 64"), "{error}");
    for (calls, expected) in [
        (
            r#"[{ program = "add_cpu", args = { cpu = -1 } }]"#,
            "the program `add_cpu`, called by user space, returned -22",
        ),
        (r#"[{ program = "add_cpu", args = { reserved = 1 } }]"#, "returned -22"),
        // Before the start, there are no tasks.
        (r#"[{ program = "start" }]"#, "the program `start`, called by user space, returned -2"),
    ] {
        let error = fails(DOMAINS, calls);
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn what_does_not_fit_is_named() {
    let cases = [
        ("nr_domains = \"@caches\"", "[]", "there is no `@caches` here; there are `@cpus`, `@cores`"),
        ("nr_domains = \"@cpu\"", "[]", "there is no `@cpu` here"),
        ("nr_domains = [1]", "[]", "`nr_domains` is a number, not a list"),
        ("nr_domains = \"MANY\"", "[]", "`MANY` is no constant that its type or the kernel has"),
        ("cpu_domain = { 1024 = 1 }", "[]", "`cpu_domain` has no element `1024`; positions are 0 to 1023"),
        ("cpu_domain = { each = \"socket\", value = 1 }", "[]", "`each` is one of "),
        ("cpu_domain = { each = \"cpu\" }", "[]", "a table with `each` has `value` besides"),
        (
            "cpu_domain = { each = \"cpu\", value = { each = \"cpu\", value = 1 } }",
            "[]",
            "an `each` stands inside of another one",
        ),
        ("domains = { key = 1 }", "[]", "the elements of the map `domains` are a list of tables"),
        (
            "domains = [{ key = 1, value = { size = 1 } }]",
            "[]",
            "`domains.value` has no member `size`; it has `cpus`, `turn`",
        ),
        (
            "domains = [{ key = 1, value = { turn = { ordered = 256 } } }]",
            "[]",
            "256 does not fit into `domains.value.turn.ordered`",
        ),
        ("domains_ops = { enqueue = true }", "[]", "`domains_ops.enqueue` is neither a number"),
        (
            "domains_ops = { flags = 0x4_0000_0000 }",
            "[]",
            "`flags` has 0x400000000, which linux 7.3 does not know",
        ),
        (
            "domains_ops = { timeout_ms = 30001 }",
            "[]",
            "`timeout_ms` is 30001: a kernel refuses more than 30000",
        ),
        (
            "domains_ops = { dispatch_max_batch = 3000000000 }",
            "[]",
            "`dispatch_max_batch` is 3000000000: a kernel refuses",
        ),
        ("domains_ops = { flags = \"SCX_OPS_NONE\" }", "[]", "the kernel has no constant `SCX_OPS_NONE`"),
        ("domain = 1", "[]", "there is no setting `domain`; read-only variables are: "),
        (
            "nr_domains = 1",
            "[{ program = \"add\" }]",
            "there is no program `add` to call; there are `add_cpu`, `start`",
        ),
        (
            "nr_domains = 1",
            "[{ program = \"add_cpu\", args = { core = 1 } }]",
            "`add_cpu` has no member `core`; it has `cpu`, `reserved`",
        ),
        (
            "nr_domains = 1",
            "[{ program = \"start\", args = { core = 1 } }]",
            "the program `start` takes no `args`",
        ),
        ("nr_domains = 1", "[], scx_arena = \"domain\"", "the object has no program `arena_init`"),
        (
            "nr_domains = 1",
            "[], scx_arena = \"nothing\"",
            "`scx_arena` names `struct nothing`, which the object does not have",
        ),
    ];
    for (settings, calls, expected) in cases {
        let error = try_build(&scenario(settings, calls, KERNEL))
            .and_then(|built| tandem_sim::run(&built, 1).map_err(|error| error.to_string()))
            .expect_err(expected);
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_reload_tells_it_again() {
    let text = scenario(DOMAINS, CALLS, KERNEL) + "[[event]]\nat = \"100ms\"\nreload = true\n";
    let metrics = run(&text);
    assert!(run_ns(&metrics, "first") > 8 * 380_000_000);
}
