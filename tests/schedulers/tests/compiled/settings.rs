//! Settings: read-only variables that have an effect, and those that are named wrongly.

use crate::support::{build, count, file_with, run, tasks, try_build};
use std::sync::Arc;
use tandem_sim::policy::sched_ext::OwnCounters;
use tandem_sim::scenario::PolicySettings;

/// Two hogs on one CPU under a scheduler with these settings.
fn two_hogs(scheduler: &str, settings: &str) -> String {
    two_hogs_under(&file_with(scheduler, &format!("settings = {settings}")))
}

fn two_hogs_under(host: &str) -> String {
    format!(
        r#"length = "1s"
machine = "xeon-e5620-2s"
[policy]
host = {host}
[programs.hog]
ops = [{{ forever = [{{ compute = "100us" }}, {{ count = "rounds" }}] }}]
[[processes]]
group = "hogs"
memory = "1GiB"
affinity = {{ hard = "2" }}
process = [{{ program = "hog", copies = 2 }}]
"#
    )
}

#[test]
fn a_slice_is_as_long_as_its_setting() {
    // Ticks end slices, every 4 ms: a turn takes up to a tick longer.
    for (slice_ns, slice_ms) in [(8_000_000, 8.0), (40_000_000, 40.0)] {
        for (scheduler, setting) in
            [("weighted", "slice_ns"), ("scx_bpfland", "slice_max"), ("scx_flash", "slice_max")]
        {
            let metrics =
                run(&two_hogs_under(&file_with(scheduler, &format!("settings.{setting} = {slice_ns}"))));
            let task = tasks(&metrics, "hogs")[0];
            let run_ms = task.run_ns as f64 / 1e6 / task.dispatches as f64;
            assert!(
                run_ms >= slice_ms && run_ms < slice_ms + 4.0,
                "{scheduler}: {run_ms} ms for {slice_ms} ms"
            );
        }
    }
}

#[test]
fn a_map_of_counters_records_what_the_scheduler_did() {
    let mut scenario = build(&two_hogs("weighted", "{ slice_ns = 8_000_000 }"));
    let PolicySettings::SchedExt(settings) = &mut scenario.policy else { panic!("it is compiled") };
    let names = Arc::from(["to_idle_cpu", "queued", "runs"]);
    Arc::make_mut(settings).counters = Some(OwnCounters { map: "counters", names });
    let metrics = tandem_sim::run(&scenario, 1).unwrap();
    let switches: u64 = tasks(&metrics, "hogs").iter().map(|task| task.dispatches).sum();
    assert_eq!(metrics.host.policy["runs"], switches);
    // Each turn begins in the queue, but the first: there was an idle CPU.
    assert!(metrics.host.policy["queued"].abs_diff(switches) <= 2);
}

#[test]
fn wrong_settings_are_named() {
    let cases = [
        (
            "weighted",
            "{ slice_us = 5 }",
            "there is no setting `slice_us`; read-only variables are: `scx_lib_features`, `slice_ns`; variables that",
        ),
        // Constants of the kernel, which scx's headers keep in such variables.
        ("weighted", "{ __SCX_SLICE_DFL = 5 }", "there is no setting `__SCX_SLICE_DFL`; "),
        ("broken", "{ small_setting = 256 }", "256 does not fit into `small_setting`, which has 8 bits"),
        ("broken", "{ small_setting = -129 }", "-129 does not fit into `small_setting`"),
        ("broken", "{ settings_list = [1, 2, 3, 4, 5] }", "`settings_list` has room for 4 elements, not 5"),
        ("broken", "{ settings_list = [1, 65536] }", "65536 does not fit into `settings_list[1]`"),
    ];
    for (scheduler, settings, expected) in cases {
        let error = try_build(&two_hogs(scheduler, settings)).expect_err(settings);
        assert!(error.contains(expected), "{error}");
        assert!(error.starts_with("s.toml: "), "{error}");
    }
}

#[test]
fn settings_of_every_form_are_taken() {
    for settings in ["{ small_setting = 255 }", "{ small_setting = true, settings_list = [1, 65535] }"] {
        assert!(count(&run(&two_hogs("broken", settings)), "hogs") > 9_900, "{settings}");
    }
}
