//! Recordings of a real kernel, their replays, and predictions from them.
//!
//! `recordings` has programs on Debian's 7.3.4, recorded by `tandem record` in QEMU (`scripts/record-twin`), and
//! the same programs after a change. A replay of a program as it was must be like the recording; a replay with
//! the change is a prediction, and the recording after the change says whether it was right. What is wrong is
//! listed, so that the lists only get shorter.

use std::fmt::Write as _;
use std::path::PathBuf;
use tandem_lab::scenario::policy::scheduler::SchedulerName;
use tandem_lab::statistics::median;
use tandem_lab::twin::comparison::Row;
use tandem_lab::twin::grouping::GroupBy;
use tandem_lab::twin::measures::Measures;
use tandem_lab::twin::replay::{Measured, Twin};
use tandem_lab::twin::situation::{Change, Situation};
use tandem_recording::Recording;

fn read(name: &str) -> Recording {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/twin/recordings");
    tandem_recording::open(&folder.join(format!("{name}.parquet"))).unwrap()
}

/// A measure: its name, how to get it, and the least that matters.
type Measure = (&'static str, fn(&Row) -> f64, f64);

/// What is compared.
const MEASURES: [Measure; 5] = [
    ("switches", |row| row.switches, 20.0),
    ("wait", |row| row.wait_s, 0.002),
    ("p50", |row| row.wait_p50_us, 10.0),
    ("p99", |row| row.wait_p99_us, 10.0),
    ("span", |row| row.span_s, 0.01),
];

fn mean(runs: &[Measured], measures: impl Fn(&Measured) -> &Measures, of: fn(&Row) -> f64) -> f64 {
    runs.iter().map(|run| of(&Row::from(measures(run)))).sum::<f64>() / runs.len() as f64
}

fn run(twin: &Twin<'_>, situation: &Situation) -> Vec<Measured> {
    twin.run_all(situation, &[1, 2, 3, 4, 5]).unwrap()
}

/// Programs, and where their replay is more than 10% off: the measure, and how far, percent.
const REPLAYS: &[(&str, &[(&str, f64)])] = &[
    ("build", &[]),
    ("sqlite", &[]),
    ("web", &[("switches", -74.4), ("wait", -15.7), ("p50", 810.2), ("p99", 63.0)]),
    ("pipe", &[("p50", 25.6)]),
    ("mix", &[]),
    ("timers", &[("wait", 13.7)]),
    ("cpu", &[]),
    ("locks", &[("p50", 159.8)]),
    ("hbsock", &[("switches", -45.5), ("wait", -10.7), ("p50", 166.2), ("p99", -16.9)]),
    ("hbpipe", &[("switches", -28.0), ("wait", -10.9)]),
    ("xz", &[("wait", 17.8), ("p99", 89.1)]),
    ("hogs", &[]),
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
        for (measure, of, least) in MEASURES {
            let (was, is) = (of(&recorded), mean(&runs, |run| &run.total, of));
            let off_pct = if was.max(is) < least { 0.0 } else { 100.0 * (is / was - 1.0) };
            let listed_pct = misses.iter().find(|(known, _)| *known == measure).map(|(_, pct)| *pct);
            let is_fine = match listed_pct {
                None => off_pct.abs() <= 10.0,
                Some(listed_pct) => off_pct.abs() > 10.0 && (off_pct - listed_pct).abs() <= 5.0,
            };
            if !is_fine {
                let _ = writeln!(wrong, "{program}: {measure} was {was:.4}, is {is:.4}: {off_pct:+.1}%");
            }
        }
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
];

/// Effects below this are noise, percent: two recordings of a program, with other seeds of the emulator, differ
/// by up to so much.
const NOISE_PCT: f64 = 5.0;

#[test]
fn predictions_come_true() {
    let (mut signs, mut effects, mut errors_pct, mut table) = (0, 0, Vec::new(), String::new());
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
        }
        let runs = run(&twin, &situation);
        let recorded = twin.recorded().unwrap();
        let measured_twin = Twin::new(&after_recording, by);
        let measured = measured_twin.recorded().unwrap();
        let groups = twin.model.groups.iter().enumerate().filter_map(|(at, name)| {
            let other = measured_twin.model.groups.iter().position(|known| known == name)?;
            let is_large = 10 * recorded.groups[at].run_ns >= recorded.total.run_ns;
            is_large.then_some((name.as_str(), Some((at, other))))
        });
        for (name, at) in std::iter::once(("total", None)).chain(groups) {
            let of =
                |all: &Measured, at: Option<usize>| Row::from(at.map_or(&all.total, |at| &all.groups[at]));
            let (was, is) = (of(&recorded, at.map(|it| it.0)), of(&measured, at.map(|it| it.1)));
            for (measure, value, least) in [MEASURES[0], MEASURES[1], MEASURES[4]] {
                let predicted = mean(&runs, |run| at.map_or(&run.total, |it| &run.groups[it.0]), value);
                let (was, is) = (value(&was), value(&is));
                if was.max(is) < least {
                    continue;
                }
                let (effect, foretold) = (100.0 * (is / was - 1.0), 100.0 * (predicted / was - 1.0));
                errors_pct.push(100.0 * (predicted / is - 1.0).abs());
                if effect.abs() > NOISE_PCT {
                    effects += 1;
                    signs += usize::from(effect * foretold > 0.0);
                }
                let _ = writeln!(
                    table,
                    "{after:16} {name:12} {measure:9} was {was:9.3} predicted {predicted:9.3} ({foretold:+7.1}%) \
                     measured {is:9.3} ({effect:+7.1}%)"
                );
            }
        }
    }
    let error_pct = median(&errors_pct).unwrap();
    println!("{table}{signs} of {effects} signs, median error {error_pct:.1}% of {}", errors_pct.len());
    assert!(effects >= 20 && 10 * signs >= 9 * effects && error_pct <= 10.0, "\n{table}");
}
