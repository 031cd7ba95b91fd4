//! VMs that come and go, and homes that an agent chooses.

use super::build;
use tandem_machine::homes::HomeSettings;
use tandem_sim::program::Amount;
use tandem_sim::scenario::{HomeChoice, Homes, Workload};

const MS: u64 = 1_000_000;

const CHURN: &str = r#"length = "1s"
machine = "xeon-e5620-2s"
policy = { placement = "agent" }
programs.hog.ops = [{ forever = [{ compute = "1ms" }, { count = "rounds" }] }]

[[vm]]
group = "batch"
count = 2
vcpus = 2
memory = "1GiB"
programs = ["hog"]
start = { uniform = ["0s", "500ms"] }
life = { exponential = "300ms" }

[[vm]]
group = "dom0"
vcpus = 16
memory = "1GiB"
programs = ["hog"]
affinity = { hard = "all" }

[[vm]]
group = "local"
vcpus = 2
memory = "1GiB"
memory_policy = "local"
programs = ["hog"]
"#;

#[test]
fn lives_and_placement_reach_the_engine() {
    let scenario = build(CHURN).unwrap();
    let [batch, _, dom0, local] = &scenario.workloads[..] else { panic!() };
    assert_eq!(batch.start(), Some(Amount::Uniform(0, 500 * MS)));
    assert_eq!(batch.vm().unwrap().life(), Some(Amount::Exponential(300 * MS)));
    assert_eq!((dom0.start(), dom0.vm().unwrap().life()), (None, None));
    let homes = [HomeChoice::ChosenWithMemory, HomeChoice::Own, HomeChoice::Chosen];
    assert_eq!([batch, dom0, local].map(Workload::home), homes, "dom0 has its own affinity");
    assert!(local.first_touch);
}

#[test]
fn placement_at_the_start_of_the_run_is_done_beforehand() {
    for (mode, homes) in [("pin", Homes::Pin), ("prefer", Homes::Prefer), ("none", Homes::Given)] {
        let scenario = build(&CHURN.replace("agent", mode)).unwrap();
        assert_eq!(scenario.homes, homes);
        let placed: Vec<_> = scenario.workloads.iter().map(|vm| vm.home().is_chosen()).collect();
        let late = mode != "none";
        assert_eq!(placed, [late, late, false, false], "{mode}");
        let is_narrow = |at: usize| scenario.workloads[at].affinity(0).hard.count() < 16;
        assert_eq!([is_narrow(0), is_narrow(3)], [false, mode == "pin"], "{mode}");
    }
}

#[test]
fn the_agent_is_a_hundred_times_faster_than_a_real_one_unless_told() {
    let real = HomeSettings::default();
    let default = HomeSettings {
        look_interval_ns: real.look_interval_ns / 100,
        horizon_ns: real.horizon_ns / 100,
        rest_ns: real.rest_ns / 100,
        ..real
    };
    assert_eq!(build(CHURN).unwrap().homes, Homes::Agent(default));
    let text = r#"placement = "agent", agent = { look_interval = "20ms", looks_in_a_row = 1, horizon = "1s", rest = "0s", gain_min_pct = 0 }"#;
    let told = HomeSettings {
        look_interval_ns: 20 * MS,
        looks_in_a_row: 1,
        horizon_ns: 1_000 * MS,
        rest_ns: 0,
        gain_min_pct: 0,
    };
    assert_eq!(build(&CHURN.replace(r#"placement = "agent""#, text)).unwrap().homes, Homes::Agent(told));
}

#[test]
fn mistakes_are_told() {
    let cases = [
        (r#"life = { exponential = "300ms" }"#, r#"life = "0s""#, "13: the life takes no time"),
        (
            r#"start = { uniform = ["0s", "500ms"] }"#,
            r#"start = { uniform = ["1s", "500ms"] }"#,
            "12: `uniform` goes from",
        ),
        (
            r#"placement = "agent""#,
            r#"placement = "agent", agent = { look_interval = "10us" }"#,
            "3: `look_interval` is 10 us; allowed are \"1ms\" and more",
        ),
        (
            r#"placement = "agent""#,
            r#"placement = "agent", agent = { looks_in_a_row = 0 }"#,
            "3: `looks_in_a_row` is 0; at least 1 is needed",
        ),
        (
            r#"placement = "agent""#,
            r#"placement = "agent", agent = { horizon = "0s" }"#,
            "3: the horizon is nothing; it must be longer than \"0s\"",
        ),
        (
            r#"placement = "agent""#,
            r#"placement = "agent", agent = { gain_min_pct = 101 }"#,
            "3: `gain_min_pct` is 101; allowed are 0 to 100",
        ),
        (
            r#"programs = ["hog"]"#,
            r#"guest = { process = [{ program = "hog" }] }"#,
            "13: a VM with a guest kernel cannot end during the run",
        ),
    ];
    for (line, instead, says) in cases {
        assert!(CHURN.contains(line), "{line}");
        let error = build(&CHURN.replacen(line, instead, 1)).unwrap_err();
        assert!(error.starts_with(&format!("dir/s.toml:{says}")), "{instead}: {error}");
    }
}

#[test]
fn a_guest_can_start_late() {
    let text = CHURN
        .replace(
            "programs = [\"hog\"]\nstart",
            "guest = { process = [{ program = \"hog\", copies = 2 }] }\nstart",
        )
        .replace("life = { exponential = \"300ms\" }\n", "")
        .replace(r#"uniform = ["0s", "500ms"]"#, r#"uniform = ["400ms", "600ms"]"#);
    let scenario = build(&text).unwrap();
    let metrics = tandem_sim::run(&scenario, 1).unwrap();
    for vm in &metrics.vms[..2] {
        assert!((400..=600).contains(&(vm.lived_ns / MS)), "{}", vm.lived_ns);
        assert!(vm.counts["rounds"] > 0);
        let run_ns: u64 = vm.vcpus.iter().map(|vcpu| vcpu.run_ns).sum();
        assert!(run_ns <= 2 * vm.lived_ns, "{run_ns}");
    }
}
