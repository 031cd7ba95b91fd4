//! The reader of Xen traces on a real trace, and the files made with it.

use std::fs;
use tandem_lab::xentrace::{Bursts, History, Summary, VcpuSummary, read_bursts, read_trace, write_bursts};

const TRACES: [&str; 20] = [
    "credit.cap",
    "credit.r0",
    "credit.r1000",
    "credit.soft.n0",
    "credit.soft.spill",
    "credit.wpin",
    "credit2.apart.r0",
    "credit2.apart.r1000",
    "credit2.apart.r5000",
    "credit2.cap",
    "credit2.r0",
    "credit2.r1000",
    "credit2.r5000",
    "credit2.soft.n0",
    "credit2.soft.n1",
    "credit2.soft.spill",
    "credit2.w1",
    "credit2.w2",
    "credit2.w4",
    "credit2.wpin",
];

fn file(name: &str) -> Vec<u8> {
    let path = format!("{}/tests/xen/{name}", env!("CARGO_MANIFEST_DIR"));
    fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn text(name: &str) -> String {
    String::from_utf8(file(name)).unwrap()
}

fn summary(trace: &str) -> Summary {
    toml::from_str(&text(&format!("{trace}.toml"))).unwrap()
}

fn bursts(trace: &str) -> Bursts {
    read_bursts(&file(&format!("{trace}.csv"))[..]).unwrap()
}

fn vcpus(summary: &Summary, domain: u32) -> Vec<&VcpuSummary> {
    summary.vcpus.iter().filter(|vcpu| vcpu.domain == domain).collect()
}

#[test]
fn a_raw_trace_gives_the_files_beside_it() {
    let trace = read_trace(&file("credit.soft.n0.bin"));
    assert_eq!((trace.lost_records, trace.incomplete_bytes), (0, 0));
    let history = History::of(&trace);
    let mut csv = Vec::new();
    write_bursts(&Bursts::from(&history), &mut csv).unwrap();
    assert_eq!(String::from_utf8(csv).unwrap(), text("credit.soft.n0.csv"));
    assert_eq!(Summary::of(&trace, &history), summary("credit.soft.n0"));
}

#[test]
fn both_files_of_a_trace_tell_the_same() {
    for trace in TRACES {
        let (summary, bursts) = (summary(trace), bursts(trace));
        assert_eq!(summary.lost_records, 0, "{trace}");
        assert_eq!(summary.vcpus.len(), bursts.len(), "{trace}");
        for (vcpu, (key, bursts)) in summary.vcpus.iter().zip(&bursts) {
            assert_eq!((vcpu.domain, vcpu.vcpu), (key.domain, key.vcpu), "{trace}");
            assert_eq!(vcpu.bursts, bursts.len() as u64, "{trace} {key:?}");
            let run_ns: u64 = bursts.iter().map(|burst| burst.run_ns).sum();
            assert_eq!(vcpu.run_ns, run_ns, "{trace} {key:?}");
        }
    }
}

/// The figures of Xen's own `xenalyze` from when the traces were recorded.
#[test]
fn figures_are_those_of_xenalyze() {
    let unlimited = summary("credit.r0");
    let limited = summary("credit.r1000");
    assert_eq!((unlimited.switches, limited.switches), (11243, 5580));
    for vcpu in vcpus(&unlimited, 1) {
        assert!((18_000..130_000).contains(&vcpu.preempted_run_min_ns.unwrap()), "{vcpu:?}");
    }
    for vcpu in vcpus(&limited, 1) {
        assert!((1_001_600..1_004_200).contains(&vcpu.preempted_run_min_ns.unwrap()), "{vcpu:?}");
    }
    for summary in [&unlimited, &limited] {
        for vcpu in vcpus(summary, 2) {
            // Rounded to 100 us.
            assert_eq!((vcpu.burst_p50_ns.unwrap() + 50_000) / 100_000, 4, "{vcpu:?}");
        }
    }
}

#[test]
fn soft_affinity_is_taken_where_there_is_room() {
    let pcpus = |trace, domain| -> Vec<Vec<u32>> {
        let summary = summary(trace);
        vcpus(&summary, domain).iter().map(|vcpu| vcpu.pcpus.clone()).collect()
    };
    assert_eq!(pcpus("credit.soft.n0", 1), [[5, 1], [4, 2]]);
    assert_eq!(pcpus("credit.soft.spill", 1), [[5], [4]]);
    assert_eq!(pcpus("credit.soft.spill", 2), [[2], [1]]);
}
