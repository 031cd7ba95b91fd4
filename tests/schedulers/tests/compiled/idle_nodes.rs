//! Idle CPUs as the kernel tells them: of the machine, or of a node.

use crate::support::{build, file_with};
use std::collections::BTreeMap;
use std::sync::Arc;
use tandem_sim::policy::sched_ext::OwnCounters;
use tandem_sim::scenario::PolicySettings;

/// The ways in which `idle_nodes.bpf.c` asks.
const OF_THE_MACHINE: u32 = 0;
const OF_A_NODE: u32 = 1;
const THE_KERNELS_CHOICE: u32 = 2;
const A_WHOLE_CORE: u32 = 3;

const KEEP: &str = "SCX_OPS_KEEP_BUILTIN_IDLE";
const KEEP_PER_NODE: &str = "SCX_OPS_KEEP_BUILTIN_IDLE | SCX_OPS_BUILTIN_IDLE_PER_NODE";

/// Runs sleepers, more or fewer than there are CPUs, on a machine of `cpus` CPUs; returns what the scheduler found.
fn found(
    machine: (&str, u32),
    sleepers: u32,
    way: u32,
    flags: &str,
) -> Result<BTreeMap<&'static str, u64>, String> {
    found_with(machine, sleepers, way, flags, "")
}

/// The same, with events.
fn found_with(
    (machine, cpus): (&str, u32),
    sleepers: u32,
    way: u32,
    flags: &str,
    events: &str,
) -> Result<BTreeMap<&'static str, u64>, String> {
    let host = file_with(
        "idle_nodes",
        &format!(
            "settings = {{ way = {way}, sibling_of = {{ each = \"cpu\", value = \"@sibling\" }}, \
             idle_nodes_ops = {{ flags = \"{flags}\" }} }}"
        ),
    );
    let mut scenario = build(&format!(
        r#"length = "100ms"
machine = "{machine}"
policy = {{ host = {host} }}
[programs.sleeper]
ops = [{{ forever = [{{ compute = {{ exponential = "200us" }} }}, {{ sleep = {{ exponential = "300us" }} }}] }}]
[[processes]]
group = "free"
memory = "1GiB"
process = [{{ program = "sleeper", copies = {sleepers} }}]
[[processes]]
group = "bound"
memory = "1GiB"
affinity = {{ hard = "{half}-{last}" }}
process = [{{ program = "sleeper", copies = {bound} }}]
{events}"#,
        half = cpus / 2,
        last = cpus - 1,
        bound = cpus / 2,
    ));
    let PolicySettings::SchedExt(settings) = &mut scenario.policy else { panic!("it is compiled") };
    let names = Arc::from(["near", "far", "nowhere", "sibling"]);
    Arc::make_mut(settings).counters = Some(OwnCounters { map: "found_map", names });
    let metrics = tandem_sim::run(&scenario, 1).map_err(|error| error.to_string())?;
    Ok(metrics.host.policy.clone())
}

#[test]
fn a_search_begins_at_its_node_and_leaves_it_only_if_no_cpu_idles_there() {
    for (machine, cpus) in [("2x3x2", 12), ("4x2x1", 8), ("3x30x1", 90), ("1x4x2", 8)] {
        let mut sums = [0; 3];
        for sleepers in [cpus / 2, cpus * 2, cpus * 4] {
            let found = found((machine, cpus), sleepers, OF_A_NODE, KEEP_PER_NODE)
                .unwrap_or_else(|error| panic!("{machine} with {sleepers}: {error}"));
            for (sum, what) in sums.iter_mut().zip(["near", "far", "nowhere"]) {
                *sum += found[what];
            }
        }
        // Where there is one node, no other one is found.
        let [near, far, nowhere] = sums;
        assert!(near > 100 && nowhere > 100 && (far > 20) != machine.starts_with('1'), "{machine}: {sums:?}");
    }
}

#[test]
fn a_sibling_that_idles_is_chosen_before_other_cpus_where_no_core_idles() {
    for flags in [KEEP, "SCX_OPS_KEEP_BUILTIN_IDLE | SCX_OPS_ENQ_EXITING"] {
        let found =
            found(("2x4x2", 16), 20, THE_KERNELS_CHOICE, flags).unwrap_or_else(|error| panic!("{error}"));
        assert!(found["sibling"] > 20 && found["near"] > found["sibling"], "{found:?}");
    }
}

#[test]
fn a_core_whose_other_thread_is_offline_idles_as_a_whole() {
    // The second thread of each core.
    let event = |at: &str, what: &str| format!("[[event]]\nat = \"{at}\"\n{what} = \"1,3,5,7,9,11,13,15\"\n");
    let count = |events: &str| {
        found_with(("2x4x2", 16), 5, A_WHOLE_CORE, KEEP, events).unwrap_or_else(|error| panic!("{error}"))
    };
    let lone = count(&event("1ms", "offline"));
    assert!(lone["sibling"] > 100 && lone["near"] < lone["sibling"] / 10, "{lone:?}");
    let back = count(&(event("1ms", "offline") + &event("50ms", "online")));
    assert!(back["sibling"] > 50 && back["near"] > 50, "{back:?}");
    assert_eq!(count("")["sibling"], 0);
}

#[test]
fn questions_that_do_not_fit_the_flags_end_the_run_with_a_sentence() {
    let machine = ("2x4x2", 16);
    for (way, flags, expected) in [
        (OF_A_NODE, KEEP, "idle CPUs of a node were asked for without SCX_OPS_BUILTIN_IDLE_PER_NODE"),
        (
            OF_THE_MACHINE,
            KEEP_PER_NODE,
            "idle CPUs of the machine were asked for with SCX_OPS_BUILTIN_IDLE_PER_NODE",
        ),
        (
            OF_THE_MACHINE,
            "SCX_OPS_ENQ_EXITING",
            "`update_idle` without SCX_OPS_KEEP_BUILTIN_IDLE tracks itself",
        ),
        (
            THE_KERNELS_CHOICE,
            "SCX_OPS_ENQ_EXITING",
            "`update_idle` without SCX_OPS_KEEP_BUILTIN_IDLE tracks itself",
        ),
    ] {
        let error = found(machine, 20, way, flags).expect_err(expected);
        assert!(error.contains(expected), "{way} with {flags}: {error}");
    }
    assert!(found(machine, 20, OF_THE_MACHINE, KEEP).is_ok());
}
