//! A real host and its guest, recorded at the same time: their replay through both levels, and predictions from it.
//!
//! `pairs` has a VM under KVM beside a program of its host, recorded on both sides by `tandem record`
//! (`scripts/record-pair`), and both again after a change. What is wrong is listed, as for single machines.

use crate::held::{MEASURES, Measure, Score, mean, run, unlisted};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use tandem_lab::twin::comparison::Row;
use tandem_lab::twin::grouping::GroupBy;
use tandem_lab::twin::replay::{Measured, Twin};
use tandem_lab::twin::situation::{Change, Situation};
use tandem_lab::twin::together::Together;
use tandem_recording::Recording;

const VM: &str = "web";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/twin/pairs")
}

fn read(name: &str, level: &str) -> Recording {
    tandem_recording::open(&folder().join(format!("{name}.{level}.parquet"))).unwrap()
}

fn together(name: &str) -> Together {
    Together::new(read(name, "host"), vec![(VM.into(), read(name, "guest"))]).unwrap()
}

/// A group of a run; `total` is all.
fn row(twin: &Twin<'_>, measured: &Measured, group: &str) -> Row {
    Row::from(match group {
        "total" => &measured.total,
        group => &measured.groups[position(twin, group)],
    })
}

fn position(twin: &Twin<'_>, group: &str) -> usize {
    let found = twin.groups.iter().position(|known| known == group);
    found.unwrap_or_else(|| panic!("{group} in {:?}", twin.groups))
}

/// The mean of a measure of a group.
fn mean_of(twin: &Twin<'_>, runs: &[Measured], group: &str, of: fn(&Row) -> f64) -> f64 {
    match group {
        "total" => mean(runs, |run| &run.total, of),
        group => {
            let at = position(twin, group);
            mean(runs, |run| &run.groups[at], of)
        }
    }
}

/// Groups, and where their replay is more than 10% off: the measure, and how far, percent.
const REPLAYED: &[(&str, &[(&str, f64)])] = &[
    ("total", &[("wait", 12.7)]),
    ("web", &[("wait", 23.7)]),
    ("gzip", &[("switches", -14.1)]),
    ("web/gzip", &[]),
    ("web/bzip2", &[("switches", 10.5)]),
    ("web/cyclictest", &[("wait", 23.3), ("p99", 39.7)]),
];

#[test]
fn the_pair_replays_like_its_recordings() {
    let together = together("base");
    let twin = Twin::of(&together, GroupBy::Vm).unwrap();
    let runs = run(&twin, &Situation::recorded(&together.host).unwrap());
    assert!(runs.iter().all(|run| run.is_complete));
    let recorded = twin.recorded().unwrap();
    let wrong: String = (REPLAYED.iter())
        .map(|(group, misses)| {
            let simulated = |of| mean_of(&twin, &runs, group, of);
            unlisted(group, misses, &row(&twin, &recorded, group), simulated)
        })
        .collect();
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// How far from the truth the times of the guests are at most, ns, as docs/src/replay.md says.
const RESIDUAL_MAX_NS: f64 = 12_500.0;

#[test]
fn clocks_of_pairs_match_and_those_of_strangers_do_not() {
    for name in ["base", "weight400", "twohogs", "gznice"] {
        let clocks = together(name).guests[0].clocks;
        assert!(clocks.residual_ns <= RESIDUAL_MAX_NS, "{name}: {clocks}");
    }
    let problem =
        Together::new(read("weight400", "host"), vec![(VM.into(), read("base", "guest"))]).unwrap_err();
    assert!(problem.contains("idles at other times than its vCPUs sleep"), "{problem}");
}

/// A line of `predicted.json`: each value before the change, and as foretold.
#[derive(Deserialize)]
struct Predicted {
    change: String,
    group: String,
    switches: [f64; 2],
    run_s: [f64; 2],
    wait_s: [f64; 2],
    span_s: [f64; 2],
}

/// What predictions of the pair are about.
const FORETOLD: [Measure; 4] = [MEASURES[0], ("run", |row| row.run_s, 0.01), MEASURES[1], MEASURES[4]];

/// The changes, and the group that each is of.
fn changes() -> [(&'static str, &'static str, Change); 3] {
    [
        ("weight400", VM, Change { weight_factor: Some(4.0), ..Change::default() }),
        ("twohogs", "gzip", Change { copies: Some(2), ..Change::default() }),
        ("gznice", "web/gzip", Change { nice: Some(10), ..Change::default() }),
    ]
}

#[test]
fn predictions_of_the_pair_score_as_the_book_says() {
    let text = std::fs::read_to_string(folder().join("predicted.json")).unwrap();
    let lines: Vec<Predicted> = serde_json::from_str(&text).unwrap();
    let base = together("base");
    let twin = Twin::of(&base, GroupBy::Vm).unwrap();
    let recorded = twin.recorded().unwrap();
    // As they were before anything was measured, and as the model foretells now.
    let (mut committed, mut now) = (Score::default(), Score::default());
    for (name, group, change) in changes() {
        let mut situation = Situation::recorded(&base.host).unwrap();
        situation.changes.insert(group.into(), change);
        let runs = run(&twin, &situation);
        let after = together(name);
        let after_twin = Twin::of(&after, GroupBy::Vm).unwrap();
        let measured = after_twin.recorded().unwrap();
        let lines: Vec<&Predicted> = lines.iter().filter(|line| line.change == name).collect();
        assert_eq!(lines.len(), REPLAYED.len(), "{name}");
        for line in lines {
            let group = line.group.as_str();
            let (was, is) = (row(&twin, &recorded, group), row(&after_twin, &measured, group));
            let values = [line.switches, line.run_s, line.wait_s, line.span_s];
            for ((measure, of, least), [said_before, foretold]) in FORETOLD.into_iter().zip(values) {
                let (before, what) = (of(&was), format!("{name:10} {group:14} {measure:9}"));
                assert!(
                    (before - said_before).abs() < 1e-4 + 1e-4 * before,
                    "{what}: {before} {said_before}"
                );
                committed.add(&what, least, (before, foretold, of(&is)));
                now.add(&what, least, (before, mean_of(&twin, &runs, group, of), of(&is)));
            }
        }
    }
    println!("committed:\n{}now:\n{}", committed.shown(), now.shown());
    for score in [committed, now] {
        let sums = (score.values(), score.effects, score.signs);
        assert!(sums == (72, 45, 36) && score.error_pct() <= 5.0, "\n{}", score.shown());
    }
}
