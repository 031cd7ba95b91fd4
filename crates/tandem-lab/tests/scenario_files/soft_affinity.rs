//! Soft affinities under a Linux host.

use super::build;
use std::path::Path;
use tandem_lab::scenario::ScenarioSource;
use tandem_lab::scenario::policy::PolicyTable;
use tandem_sim::policy::linux::{LinuxEra, SoftAffinity};
use tandem_sim::scenario::PolicySettings;

/// A scenario with these lines under `[policy]`, which is line 10.
fn with_policy(lines: &str) -> String {
    format!(
        "length = \"1s\"\nmachine = \"xeon-e5620-2s\"\n[programs.hog]\nops = [{{ compute = \"1ms\" }}]\n\
         [[vm]]\ngroup = \"hog\"\nvcpus = 2\nmemory = \"1GiB\"\nguest = {{ process = [{{ program = \"hog\" }}] }}\n[policy]\n{lines}\n"
    )
}

#[test]
fn soft_affinity_is_ignored_unless_the_host_is_told_otherwise() {
    let tunables = |allowed, preferred| SoftAffinity::Tunables { allowed, preferred };
    for (version, setting, expected) in [
        ("3.6", "", SoftAffinity::Ignored),
        ("3.6", "soft_affinity = \"ignored\"", SoftAffinity::Ignored),
        ("5.2", "", SoftAffinity::Ignored),
        ("5.2", "soft_affinity = {}", tunables(100, 1)),
        ("5.2", "soft_affinity = { allowed = 7 }", tunables(7, 1)),
        ("5.2", "soft_affinity = { allowed = 1, preferred = 1_000_000 }", tunables(1, 1_000_000)),
        ("5.2", "soft_affinity = \"work-conserving\"", SoftAffinity::WorkConserving),
        ("6.12", "soft_affinity = \"work-conserving\"", SoftAffinity::WorkConserving),
        ("7.3", "soft_affinity = \"work-conserving\"", SoftAffinity::WorkConserving),
    ] {
        let host = format!("[policy.host.linux]\nversion = \"{version}\"\n{setting}");
        let scenario = build(&with_policy(&host)).unwrap();
        let PolicySettings::Linux(settings) = scenario.policy else { panic!("the host runs Linux") };
        assert_eq!(settings.soft_affinity, expected, "{version}: {setting}");
    }
}

#[test]
fn mistakes_name_the_line_and_what_is_allowed() {
    for (lines, expected) in [
        (
            "[policy.host.linux]\nversion = \"5.2\"\nsoft_affinity = { allowed = 0 }",
            ":13: the tunables of soft affinity are out of range; 1 to 1000000 are allowed",
        ),
        (
            "[policy.host.linux]\nversion = \"5.2\"\nsoft_affinity = { preferred = 1000001 }",
            ":13: the tunables of soft affinity are out of range; 1 to 1000000 are allowed",
        ),
        (
            "[policy.host.linux]\nversion = \"6.12\"\nsoft_affinity = {}",
            ":13: soft affinity with tunables is for version 5.2 only",
        ),
        (
            "[policy.host.linux]\nsoft_affinity = {}",
            ":12: soft affinity with tunables is for version 5.2 only",
        ),
        (
            "[policy.host.linux]\nversion = \"4.2\"\nsoft_affinity = \"work-conserving\"",
            ":13: work-conserving soft affinity begins with version 5.2",
        ),
        (
            "host = { tandem = { soft_affinity = {} } }",
            ":11: unknown field `soft_affinity`, expected one of `settings`",
        ),
        (
            "[policy.host.linux]\nsoft_affinity = \"hard\"",
            ":12: invalid value: string \"hard\", expected \"ignored\", \"work-conserving\" or a table of tunables",
        ),
        ("[policy.host.linux]\nsoft_affinity = { alowed = 1 }", ":12: unknown field `alowed`"),
    ] {
        let error = build(&with_policy(lines)).unwrap_err().to_string();
        assert!(error.contains(expected), "{lines}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
}

#[test]
fn a_variant_changes_it_alone() {
    let text = with_policy("host = { linux = { version = \"5.2\" } }");
    let source = ScenarioSource::parse(Path::new("s.toml"), &text).unwrap();
    let with = |variant: &str| {
        let policy: PolicyTable = toml::from_str(variant).unwrap();
        source.build(&Default::default(), &policy)
    };
    let PolicySettings::Linux(settings) = with("host = { linux = { soft_affinity = {} } }").unwrap().policy
    else {
        panic!("Linux")
    };
    assert_eq!((settings.era, settings.soft_affinity), (LinuxEra::V5_2, SoftAffinity::POSTED));
    let error =
        with("host = { linux = { version = \"6.12\", soft_affinity = {} } }").unwrap_err().to_string();
    assert_eq!(error, "s.toml: soft affinity with tunables is for version 5.2 only");
}
