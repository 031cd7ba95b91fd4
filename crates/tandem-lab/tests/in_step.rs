//! Hosts do not run in step: whole ratios of overcommitment are nothing special.
//!
//! Where all CPUs switch at the same instants and nothing else runs, VMs as large as the host are scheduled
//! together by accident at 200%, and lose less to each other than at 190% or 210%.

use std::path::Path;
use tandem_lab::results::Key;
use tandem_lab::scenario::ScenarioSource;
use tandem_lab::scenario::policy::PolicyTable;
use tandem_sim::run;

/// A VM as large as the host, a second one, and VMs of two vCPUs. Their clients take short locks.
const SCENARIO: &str = r#"
length = "200ms"
warmup = "200ms"

[machine]
name = "twenty"
[[machine.node]]
number = 0
memory = "64GiB"
bandwidth = "40GB/s"
[[machine.llc]]
number = 0
size = "16MiB"
[[machine.cores]]
package = 0
node = 0
llc = 0
cpus = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15", "16", "17", "18", "19"]

[parameters]
host = "linux"
second = 20
third = 0

[policy]
host = "$host"
pause_loop = {}

[programs.client]
ops = [{ forever = [
  { compute = { exponential = "15us" } },
  { lock = "page-cache" },
  { compute = "200ns" },
  { unlock = "page-cache" },
  { count = "operations" },
] }]

[[vm]]
group = "first"
vcpus = 20
memory = "1GiB"
has_past = true
guest = { process = [{ program = "client", copies = 20 }] }

[[vm]]
group = "second"
vcpus = "$second"
memory = "1GiB"
has_past = true
guest = { process = [{ program = "client", copies = "$second" }] }

[[vm]]
group = "third"
count = "$third"
vcpus = 2
memory = "1GiB"
has_past = true
guest = { process = [{ program = "client", copies = 2 }] }
"#;

const SEEDS: u64 = 6;

/// Operations a second of all VMs with each seed.
fn operations(source: &ScenarioSource, host: &str, second: i64, third: i64) -> Vec<f64> {
    let values = [
        ("host".to_owned(), Key::Text(host.into())),
        ("second".to_owned(), Key::Number(second)),
        ("third".to_owned(), Key::Number(third)),
    ];
    let scenario = source.build(&values.into(), &PolicyTable::default()).unwrap();
    let done = |seed| {
        let run = run(&scenario, seed).unwrap();
        run.vms.iter().map(|vm| vm.counts["operations"]).sum::<u64>() as f64 * 1e9 / run.length_ns as f64
    };
    (1..=SEEDS).map(done).collect()
}

/// Mean, and the square of its standard error.
fn mean(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, squares / (count - 1.0) / count)
}

#[test]
fn twice_as_many_vcpus_as_pcpus_is_between_its_neighbours() {
    let source = ScenarioSource::parse(Path::new("in-step.toml"), SCENARIO).unwrap();
    for host in ["linux", "xen-credit", "tandem"] {
        let [below, at, above] = [(18, 0), (20, 0), (20, 1)]
            .map(|(second, third)| mean(&operations(&source, host, second, third)));
        let difference = at.0 - (below.0 + above.0) / 2.0;
        let error = (at.1 + (below.1 + above.1) / 4.0).sqrt();
        // Student's t of some ten degrees of freedom at 99.9%.
        assert!(
            difference.abs() < 4.6 * error + 0.05 * at.0,
            "{host}: {:.0}, {:.0} and {:.0} operations a second at 190, 200 and 210%: off by {difference:.0} of {error:.0}",
            below.0,
            at.0,
            above.0
        );
    }
}
