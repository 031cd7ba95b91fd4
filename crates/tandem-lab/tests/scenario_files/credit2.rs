//! Settings of Xen's credit2 scheduler.

use super::build;
use tandem_sim::policy::credit2::{Credit2Settings, Release, Sharing};
use tandem_sim::scenario::PolicySettings;

/// The settings of a scenario with this host, or the error about it.
fn settings(host: &str) -> Result<Credit2Settings, String> {
    let scenario = format!(
        r#"length = "1s"
machine = "xeon-e5620-2s"
policy = {{ host = {host} }}
programs.hog.ops = [{{ forever = [{{ compute = "1ms" }}] }}]

[[vm]]
group = "one"
vcpus = 2
memory = "1GiB"
programs = ["hog"]
"#
    );
    match build(&scenario)?.policy {
        PolicySettings::Credit2(settings) => Ok(settings),
        other => Err(format!("{other:?}")),
    }
}

#[test]
fn defaults_are_those_of_xen() {
    assert_eq!(settings("\"xen-credit2\""), Ok(Credit2Settings::default()));
    assert_eq!(settings("{ xen-credit2 = {} }"), Ok(Credit2Settings::default()));
}

#[test]
fn every_setting_is_read() {
    let table = "version = \"4.12\", runqueue = \"core\", max_cpus_runqueue = 8, ratelimit = \"0us\", \
                 migrate_resist = \"1ms\", cap_period = \"20ms\"";
    let expected = Credit2Settings {
        release: Release::Xen4_12,
        sharing: Sharing::Core,
        queue_cpus_max: 8,
        ratelimit_ns: 0,
        migrate_resist_ns: 1_000_000,
        cap_period_ns: 20_000_000,
    };
    assert_eq!(settings(&format!("{{ xen-credit2 = {{ {table} }} }}")), Ok(expected));
}

#[test]
fn mistakes_are_named() {
    let cases = [
        ("version = \"4.9\"", "unknown variant `4.9`, expected one of `4.12`, `4.14`, `4.17`, `4.20`"),
        (
            "runqueue = \"llc\"",
            "unknown variant `llc`, expected one of `cpu`, `core`, `socket`, `node`, `all`",
        ),
        ("max_cpus_runqueue = 0", "a run queue needs at least 1 CPU"),
        ("ratelimit = \"50us\"", "the rate limit is out of range; allowed are \"0us\" (off) and"),
        ("migrate_resist = \"11ms\"", "the resistance against migration is out of range; allowed are"),
        ("cap_period = \"0us\"", "the period of caps is out of range; allowed are"),
        ("timeslice = \"1ms\"", "unknown field `timeslice`, expected one of `version`, `runqueue`"),
    ];
    for (setting, message) in cases {
        let error = settings(&format!("{{ xen-credit2 = {{ {setting} }} }}")).unwrap_err();
        assert!(error.starts_with("dir/s.toml:3: ") && error.contains(message), "{setting}: {error}");
    }
}
