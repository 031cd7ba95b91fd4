//! Recordings of a real kernel, their replays, and predictions from them.
//!
//! `recordings` has programs on Debian's 7.3.4, recorded by `tandem record` in QEMU (`scripts/record-twin`), and
//! the same programs after a change. A replay of a program as it was must be like the recording; a replay with
//! the change is a prediction, and the recording after the change says whether it was right. What is wrong is
//! listed, so that the lists only get shorter.

use crate::held::{MEASURES, Score, mean, run, unlisted};
use std::path::PathBuf;
use tandem_lab::scenario::policy::scheduler::SchedulerName;
use tandem_lab::twin::comparison::Row;
use tandem_lab::twin::grouping::GroupBy;
use tandem_lab::twin::replay::{Measured, Twin};
use tandem_lab::twin::situation::{Change, Situation};
use tandem_machine::cpumask::CpuMask;
use tandem_machine::ids::CpuId;
use tandem_recording::Recording;
use tandem_sim::scenario::TaskPolicy;

fn read(name: &str) -> Recording {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/twin/recordings");
    tandem_recording::open(&folder.join(format!("{name}.parquet"))).unwrap()
}

/// Programs, and where their replay is more than 10% off: the measure, and how far, percent.
const REPLAYS: &[(&str, &[(&str, f64)])] = &[
    ("build", &[]),
    ("sqlite", &[]),
    ("web", &[("switches", -74.4), ("wait", -15.7), ("p50", 810.2), ("p99", 63.0)]),
    ("pipe", &[("p50", 25.6)]),
    ("mix", &[]),
    ("timers", &[("wait", 21.4)]),
    ("cpu", &[]),
    ("locks", &[("p50", 159.8)]),
    ("hbsock", &[("switches", -45.5), ("wait", -10.7), ("p50", 166.2), ("p99", -16.9)]),
    ("hbpipe", &[("switches", -28.0), ("wait", -10.9)]),
    ("xz", &[("wait", 17.8), ("p99", 89.1)]),
    ("hogs", &[]),
    ("two-build", &[("p99", -22.8)]),
    ("two-mix", &[("p50", 71.2)]),
    ("two-cpu", &[("p99", -28.1)]),
    ("two-hogs", &[("p99", -24.3)]),
    ("two-pipe", &[("p99", -12.2)]),
    ("two-sqlite", &[("wait", -19.4), ("p50", 85.3), ("p99", -40.8)]),
];

#[test]
fn replays_are_like_their_recordings() {
    let mut wrong = String::new();
    for (program, misses) in REPLAYS {
        let recording = read(program);
        let twin = Twin::new(&recording, GroupBy::Process);
        let recorded = Row::from(&twin.recorded().unwrap().total);
        let runs = run(&twin, &Situation::recorded(&recording).unwrap());
        assert!(twin.model.wakeups.attributed_pct() > 90.0, "{program}");
        wrong += &unlisted(program, misses, &recorded, |of| mean(&runs, |run| &run.total, of));
    }
    assert!(wrong.is_empty(), "\n{wrong}");
    let right = REPLAYS.iter().filter(|(_, misses)| misses.is_empty()).count();
    assert!(REPLAYS.len() >= 10 && right >= 5, "{right} of {}", REPLAYS.len());
}

/// What was changed.
enum Changed {
    /// The nice value of a group.
    Nice(&'static str, i8),
    /// The weight of a cgroup, against what it was.
    Weight(&'static str, f64),
    /// The slice, ns.
    Slice(u64),
    /// The scheduler, now ours.
    Tandem,
    /// The scheduler, now this one of sched_ext.
    Object(&'static str),
    /// All but the kernel's threads may run on CPU 0 alone.
    OneCpu,
    /// The scheduling policy of some groups.
    Policy(&'static [&'static str], TaskPolicy),
}

/// Programs, the name of the recording after the change, and the change.
const PREDICTIONS: &[(&str, &str, Changed)] = &[
    ("mix", "mix-gznice", Changed::Nice("gzip", 10)),
    ("mix", "mix-bznice", Changed::Nice("bzip2", 10)),
    ("pipe", "pipe-gznice", Changed::Nice("gzip", 10)),
    ("build", "build-slice3", Changed::Slice(3_000_000)),
    ("pipe", "pipe-slice3", Changed::Slice(3_000_000)),
    ("sqlite", "sqlite-slice3", Changed::Slice(3_000_000)),
    ("mix", "mix-slice3", Changed::Slice(3_000_000)),
    ("cpu", "cpu-slice3", Changed::Slice(3_000_000)),
    ("hogs", "hogs-slice3", Changed::Slice(3_000_000)),
    ("build", "build-tandem", Changed::Tandem),
    ("pipe", "pipe-tandem", Changed::Tandem),
    ("sqlite", "sqlite-tandem", Changed::Tandem),
    ("mix", "mix-tandem", Changed::Tandem),
    ("cpu", "cpu-tandem", Changed::Tandem),
    ("hogs", "hogs-tandem", Changed::Tandem),
    ("cg", "cg-cga300", Changed::Weight("/a", 3.0)),
    ("cg", "cg-cgb25", Changed::Weight("/b", 0.25)),
    ("two-build", "two-build-onecpu", Changed::OneCpu),
    ("two-cpu", "two-cpu-onecpu", Changed::OneCpu),
    ("two-hogs", "two-hogs-onecpu", Changed::OneCpu),
    ("two-build", "two-build-slice3", Changed::Slice(3_000_000)),
    ("two-cpu", "two-cpu-slice3", Changed::Slice(3_000_000)),
    ("two-mix", "two-mix-tandem", Changed::Tandem),
    ("two-build", "two-build-tandem", Changed::Tandem),
    ("two-cpu", "two-cpu-tandem", Changed::Tandem),
    ("two-hogs", "two-hogs-tandem", Changed::Tandem),
    ("mix", "mix-bzidle", Changed::Policy(&["bzip2"], TaskPolicy::Idle)),
    ("mix", "mix-cycbatch", Changed::Policy(&["cyclictest"], TaskPolicy::Batch)),
    ("mix", "mix-shbatch", Changed::Policy(&["sh", "md5sum", "sleep"], TaskPolicy::Batch)),
    ("mix", "mix-bzbatch", Changed::Policy(&["bzip2"], TaskPolicy::Batch)),
    ("mix", "mix-fifo", Changed::Object("fifo")),
    ("mix", "mix-weighted", Changed::Object("weighted")),
    ("cpu", "cpu-fifo", Changed::Object("fifo")),
    ("cpu", "cpu-weighted", Changed::Object("weighted")),
    ("build", "build-fifo", Changed::Object("fifo")),
    ("build", "build-weighted", Changed::Object("weighted")),
];

#[test]
fn predictions_come_true() {
    let mut score = Score::default();
    for (program, after, change) in PREDICTIONS {
        let (before, after_recording) = (read(program), read(after));
        let by = if matches!(change, Changed::Weight(..)) { GroupBy::Cgroup } else { GroupBy::Process };
        let twin = Twin::new(&before, by);
        let mut situation = Situation::recorded(&before).unwrap();
        match *change {
            Changed::Nice(group, nice) => {
                situation.changes.insert(group.into(), Change { nice: Some(nice), ..Change::default() });
            }
            Changed::Weight(group, factor) => {
                let change = Change { weight_factor: Some(factor), ..Change::default() };
                situation.changes.insert(group.into(), change);
            }
            Changed::Slice(slice_ns) => situation.set_slice(slice_ns).unwrap(),
            Changed::Tandem => situation.set_scheduler(SchedulerName::Tandem).unwrap(),
            Changed::Object(name) => {
                let object = SchedulerName::Object(scheduler_tests::object(name));
                situation.set_scheduler(object).unwrap();
            }
            Changed::OneCpu => {
                for group in twin.model.groups.iter().filter(|group| *group != "kernel") {
                    let cpus = Some(CpuMask::from_cpus(2, [CpuId(0)]));
                    situation.changes.insert(group.clone(), Change { cpus, ..Change::default() });
                }
            }
            Changed::Policy(groups, policy) => {
                for group in groups {
                    let change = Change { policy: Some(policy), ..Change::default() };
                    situation.changes.insert((*group).into(), change);
                }
            }
        }
        let runs = run(&twin, &situation);
        let recorded = twin.recorded().unwrap();
        let measured_twin = Twin::new(&after_recording, by);
        let measured = measured_twin.recorded().unwrap();
        let groups = twin.model.groups.iter().enumerate().filter_map(|(at, name)| {
            let other = measured_twin.model.groups.iter().position(|known| known == name)?;
            let is_large = 10 * recorded.groups[at].run_ns >= recorded.total.run_ns;
            let is_named = matches!(change, Changed::Policy(groups, _) if groups.contains(&name.as_str()));
            (is_large || is_named).then_some((name.as_str(), Some((at, other))))
        });
        for (name, at) in std::iter::once(("total", None)).chain(groups) {
            let of =
                |all: &Measured, at: Option<usize>| Row::from(at.map_or(&all.total, |at| &all.groups[at]));
            let (was, is) = (of(&recorded, at.map(|it| it.0)), of(&measured, at.map(|it| it.1)));
            for (measure, value, least) in [MEASURES[0], MEASURES[1], MEASURES[4]] {
                let predicted = mean(&runs, |run| at.map_or(&run.total, |it| &run.groups[it.0]), value);
                score.add(
                    &format!("{after:16} {name:12} {measure:9}"),
                    least,
                    (value(&was), predicted, value(&is)),
                );
            }
        }
    }
    println!("{}", score.shown());
    let Score { signs, effects, .. } = score;
    assert!(effects >= 20 && 10 * signs >= 9 * effects && score.error_pct() <= 10.0, "\n{}", score.shown());
}
