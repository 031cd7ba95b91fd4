//! The host's treatment of vCPUs that spin, and its spin locks.

use super::build;
use std::path::Path;
use tandem_lab::scenario::ScenarioSource;
use tandem_lab::scenario::policy::PolicyTable;
use tandem_sim::policy::linux::SpinLockKind;
use tandem_sim::policy::pause_loop::{DirectedYield, KernelMode, PauseLoop, RunningCheck};
use tandem_sim::scenario::{PolicySettings, Scenario};

/// A scenario with these lines under `[policy]`.
fn with_policy(lines: &str) -> String {
    format!(
        "length = \"1s\"\nmachine = \"xeon-e5620-2s\"\n[programs.hog]\nops = [{{ compute = \"1ms\" }}]\n\
         [[vm]]\ngroup = \"hog\"\nvcpus = 2\nmemory = \"1GiB\"\nguest = {{ process = [{{ program = \"hog\" }}] }}\n\
         [policy]\n{lines}\n"
    )
}

fn pause_loop(lines: &str) -> Option<PauseLoop> {
    build(&with_policy(lines)).unwrap().pause_loop
}

#[test]
fn a_pause_loop_is_as_in_the_hosts_scheduler_unless_the_table_says_more() {
    for host in ["host = \"linux\"", "host = \"xen-credit\"", ""] {
        assert_eq!(pause_loop(host), None, "{host}");
        assert_eq!(pause_loop(&format!("{host}\npause_loop = \"off\"")), None, "{host}");
    }
    for (lines, expected) in [
        ("pause_loop = {}", PauseLoop::XEN),
        ("host = \"xen-credit\"\npause_loop = {}", PauseLoop::XEN),
        ("host = \"linux\"\npause_loop = {}", PauseLoop::V6_12),
        ("host = { linux = { version = \"6.12\" } }\npause_loop = {}", PauseLoop::V6_12),
        ("host = { linux = { version = \"5.2\" } }\npause_loop = {}", PauseLoop::V5_2),
        ("host = { linux = { version = \"4.2\" } }\npause_loop = {}", PauseLoop::V4_2),
        ("host = { linux = { version = \"3.6\" } }\npause_loop = {}", PauseLoop::V3_6),
        (
            "host = \"linux\"\npause_loop = { directed_yield = \"off\" }",
            PauseLoop { directed_yield: None, ..PauseLoop::V6_12 },
        ),
        ("host = \"linux\"\npause_loop = { directed_yield = {} }", PauseLoop::V6_12),
        ("pause_loop = { window_cycles = 10_000 }", PauseLoop { window_cycles: 10_000, ..PauseLoop::XEN }),
    ] {
        assert_eq!(pause_loop(lines), Some(expected), "{lines}");
    }
}

#[test]
fn every_setting_of_a_pause_loop_reaches_the_engine() {
    let settings = pause_loop(
        "host = { linux = { version = \"3.6\" } }\n[policy.pause_loop]\ngap_cycles = 41\nwindow_cycles = 42\n\
         window_growth = 3\nwindow_max_cycles = 43\ndirected_yield = { running_check = \"before-locks\", \
         kernel_mode = \"required\", alternate_spinners = true, undercommit_check = true, skip = [\"yielding-cpus\", \"host-mode-cpus\"] }",
    );
    let directed_yield = DirectedYield {
        running_check: RunningCheck::BeforeLocks,
        kernel_mode: KernelMode::Required,
        alternates_spinners: true,
        undercommit_check: true,
        skips_yielding_cpus: true,
        skips_host_mode_cpus: true,
    };
    let expected = PauseLoop {
        gap_cycles: 41,
        window_cycles: 42,
        window_growth: 3,
        window_max_cycles: 43,
        directed_yield: Some(directed_yield),
    };
    assert_eq!(settings, Some(expected));

    let other = pause_loop(
        "host = \"linux\"\npause_loop = { directed_yield = { running_check = \"guest-mode\", \
         kernel_mode = \"any\", alternate_spinners = false, undercommit_check = false, skip = [\"host-mode-cpus\"] } }",
    );
    let expected = DirectedYield { skips_host_mode_cpus: true, ..DirectedYield::V3_6 };
    assert_eq!(other.unwrap().directed_yield, Some(expected));
}

/// The scenario with these lines of policy, changed by a variant.
fn varied(lines: &str, variant: &str) -> Result<Scenario, String> {
    let source = ScenarioSource::parse(Path::new("s.toml"), &with_policy(lines)).unwrap();
    let variant: PolicyTable = toml::from_str(variant).unwrap();
    source.build(&Default::default(), &variant).map_err(|error| error.to_string())
}

#[test]
fn a_variant_changes_only_what_it_names_of_a_pause_loop() {
    let base = "host = { linux = { version = \"3.6\" } }\npause_loop = { gap_cycles = 50, directed_yield = { \
                undercommit_check = true, skip = [\"yielding-cpus\"] } }";
    let scenario = pause_loop(base).unwrap();
    let found = scenario.directed_yield.unwrap();
    for (variant, expected) in [
        ("host = { linux = { tick_hz = 100 } }", Some(scenario)),
        ("host = \"linux\"", Some(scenario)),
        ("pause_loop = {}", Some(scenario)),
        ("pause_loop = { directed_yield = {} }", Some(scenario)),
        ("pause_loop = \"off\"", None),
        ("pause_loop = { window_growth = 2 }", Some(PauseLoop { window_growth: 2, ..scenario })),
        ("pause_loop = { directed_yield = \"off\" }", Some(PauseLoop { directed_yield: None, ..scenario })),
        (
            "pause_loop = { directed_yield = { skip = [] } }",
            Some(PauseLoop {
                directed_yield: Some(DirectedYield { skips_yielding_cpus: false, ..found }),
                ..scenario
            }),
        ),
        // Settings that the scenario omits follow the variant's version.
        (
            "host = { linux = { version = \"6.12\" } }",
            Some(PauseLoop {
                gap_cycles: 50,
                directed_yield: Some(DirectedYield { skips_yielding_cpus: true, ..DirectedYield::V6_12 }),
                ..PauseLoop::V6_12
            }),
        ),
        // Settings of one host do not exist for another.
        ("host = \"xen-credit\"", None),
        ("host = \"xen-credit\"\npause_loop = {}", Some(PauseLoop::XEN)),
    ] {
        assert_eq!(varied(base, variant).unwrap().pause_loop, expected, "{variant}");
    }

    for off in ["host = \"linux\"", "host = \"linux\"\npause_loop = \"off\""] {
        assert_eq!(varied(off, "pause_loop = {}").unwrap().pause_loop, Some(PauseLoop::V6_12));
    }
    let no_yield = "host = \"linux\"\npause_loop = { directed_yield = \"off\" }";
    assert_eq!(
        varied(no_yield, "pause_loop = { directed_yield = {} }").unwrap().pause_loop,
        Some(PauseLoop::V6_12)
    );

    // Settings that do not fit together are found when the two tables are combined.
    assert_eq!(
        varied(base, "pause_loop = { window_cycles = 49 }").unwrap_err(),
        "s.toml: `window_cycles` is 49, less than `gap_cycles`, 50"
    );
    assert_eq!(
        varied("", "pause_loop = { directed_yield = {} }").unwrap_err(),
        "s.toml: `directed_yield` has no effect under the host `xen-credit`; remove it"
    );
}

#[test]
fn spin_locks_are_those_of_the_version_unless_the_file_says_more() {
    use SpinLockKind::{Queued, Ticket};
    for (lines, host, guest) in [
        ("host = \"linux\"", Queued, Queued),
        (
            "host = { linux = { version = \"3.6\" } }\nguest = { linux = { version = \"3.6\" } }",
            Ticket,
            Ticket,
        ),
        ("host = { linux = { spin_locks = \"ticket\" } }", Ticket, Queued),
        ("host = \"linux\"\nguest = { linux = { spin_locks = \"ticket\" } }", Queued, Ticket),
        ("host = { linux = { version = \"3.6\", spin_locks = \"queued\" } }", Queued, Queued),
    ] {
        let scenario = build(&with_policy(lines)).unwrap();
        let kind = |policy| match policy {
            PolicySettings::Linux(settings) => settings.spin_lock_kind(),
            PolicySettings::Credit(_) | PolicySettings::Credit2(_) | PolicySettings::SchedExt(_) => {
                panic!("host and guest run Linux")
            }
        };
        let guest_policy = scenario.workloads[0].guest().unwrap().policy.clone();
        assert_eq!((kind(scenario.policy), kind(guest_policy)), (host, guest), "{lines}");
    }
    let varied = varied(
        "host = \"linux\"\nguest = { linux = { version = \"3.6\" } }",
        "guest = { linux = { spin_locks = \"queued\" } }",
    );
    let guest_policy = varied.unwrap().workloads[0].guest().unwrap().policy.clone();
    let PolicySettings::Linux(settings) = guest_policy else { panic!("guests run Linux") };
    assert_eq!(settings.spin_lock_kind(), Queued);
}

#[test]
fn mistakes_about_pause_loops_name_the_line_and_what_is_allowed() {
    // Lines of the policy after that of the host, from line 12 on, and the text of the error.
    let linux = [
        ("pause_loop = true", ":12: invalid type: boolean `true`, expected \"off\" or a table of settings"),
        ("pause_loop = \"on\"", ":12: invalid value: string \"on\", expected \"off\" or a table of settings"),
        ("pause_loop = { gap = 1 }", ":12: unknown field `gap`, expected one of `gap_cycles`"),
        ("[policy.pause_loop]\ngap_cycles = 0", ":13: `gap_cycles` is 0; allowed are 1 to 4294967295"),
        ("pause_loop = { gap_cycles = -1 }", ":12: expected a whole number such as 2"),
        (
            "[policy.pause_loop]\ngap_cycles = 100\nwindow_cycles = 99",
            ":14: `window_cycles` is 99, less than `gap_cycles`, 100",
        ),
        (
            "[policy.pause_loop]\nwindow_growth = 2\ngap_cycles = 5000",
            ":14: `window_cycles` is 4096, less than `gap_cycles`, 5000",
        ),
        (
            "pause_loop = { window_cycles = 4294967296 }",
            ":12: `window_cycles` is 4294967296; allowed are 1 to 4294967295",
        ),
        ("pause_loop = { window_growth = 0 }", ":12: `window_growth` is 0; allowed are 1 to 1000"),
        ("pause_loop = { window_growth = 1001 }", ":12: `window_growth` is 1001; allowed are 1 to 1000"),
        (
            "pause_loop = { window_max_cycles = 4000 }",
            ":12: `window_max_cycles` is 4000, less than `window_cycles`, 4096",
        ),
        (
            "pause_loop = { directed_yield = 1 }",
            ":12: invalid type: integer `1`, expected \"off\" or a table",
        ),
        (
            "[policy.pause_loop.directed_yield]\nrunning_check = \"never\"",
            ":13: unknown variant `never`, expected one of `under-locks`, `guest-mode`",
        ),
        (
            "pause_loop = { directed_yield = { skip = [\"idle-cpus\"] } }",
            ":12: unknown variant `idle-cpus`, expected `yielding-cpus` or `host-mode-cpus`",
        ),
    ];
    let xen = [(
        "pause_loop = { directed_yield = {} }",
        ":12: `directed_yield` has no effect under the host `xen-credit`; remove it",
    )];
    let of_host = |host, cases: &[(&'static str, &'static str)]| {
        cases.iter().map(|&(lines, says)| (host, lines, says)).collect::<Vec<_>>()
    };
    for (host, lines, says) in [of_host("linux", &linux), of_host("xen-credit", &xen)].concat() {
        let error = build(&with_policy(&format!("host = \"{host}\"\n{lines}"))).unwrap_err();
        assert!(error.contains(&format!("dir/s.toml{says}")), "{lines}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
    let error = build(&with_policy("host = { linux = { spin_locks = \"mcs\" } }")).unwrap_err();
    assert_eq!(error, "dir/s.toml:11: unknown variant `mcs`, expected `ticket` or `queued`");
}

#[test]
fn halt_polling_is_the_hosts_own_unless_the_file_says_more() {
    let found = |lines: &str| build(&with_policy(lines)).unwrap().halt_poll_ns;
    assert_eq!(found("host = \"linux\""), None);
    assert_eq!(found("host = \"linux\"\nhalt_poll = \"50us\""), Some(50_000));
    assert_eq!(found("host = \"tandem\"\nhalt_poll = \"0us\""), Some(0));
    assert_eq!(found("halt_poll = \"0us\""), Some(0), "Xen does not poll anyway");
    assert_eq!(found("halt_poll = \"default\""), None);
    let base = "host = \"linux\"\nhalt_poll = \"50us\"";
    for (variant, expected) in [
        ("placement = \"none\"", Some(50_000)),
        ("halt_poll = \"1ms\"", Some(1_000_000)),
        ("host = { linux = { version = \"3.6\" } }\nhalt_poll = \"0us\"", Some(0)),
        ("host = \"xen-credit\"", None),
    ] {
        assert_eq!(varied(base, variant).unwrap().halt_poll_ns, expected, "{variant}");
    }
    assert_eq!(
        varied(base, "host = { linux = { version = \"3.6\" } }").unwrap_err(),
        "s.toml: `halt_poll` begins with version \"4.2\" of the host; remove it, or set \"0us\""
    );
}

#[test]
fn mistakes_about_halt_polling_name_the_line_and_what_to_do() {
    for (lines, says) in [
        ("halt_poll = \"1us\"", ":11: `halt_poll` has no effect under the host `xen-credit`; remove it"),
        (
            "host = { linux = { version = \"3.6\" } }\nhalt_poll = \"1us\"",
            ":12: `halt_poll` begins with version \"4.2\" of the host; remove it, or set \"0us\"",
        ),
        (
            "host = \"linux\"\nhalt_poll = \"5s\"",
            ":12: `halt_poll` is longer than \"4294ms\", the longest that KVM allows",
        ),
    ] {
        let error = build(&with_policy(lines)).unwrap_err();
        assert_eq!(error, format!("dir/s.toml{says}"), "{lines}");
    }
}
