//! The search, and the ranges that follow, with an engine whose results are known.
//!
//! Its constants are a and b. A cell of the baseline is their product, another is a alone; the effect of the
//! variant depends on a. So the first cell leaves the effect open, and both together determine it.

use super::*;
use crate::experiment::calibration::{Free, read_sets, write_sets};
use crate::results::{Cell, ExperimentResults, Key, RangeBasis, SetWord};
use crate::runner::run_with;
use proptest::prelude::*;
use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::atomic::AtomicUsize;
use tandem_sim::metrics::VmMetrics;
use tandem_sim::scenario::PolicySettings;

/// The constants are the times of the scenario, in s.
const SCENARIO: &str = r#"
length = "$a"
warmup = "$b"
machine = "xeon-e5620-2s"
[parameters]
vms = 1
a = "2s"
b = "2s"
[programs.hog]
ops = [{ forever = [{ compute = "1ms" }, { count = "done" }] }]
[[vm]]
group = "hog"
count = "$vms"
vcpus = 1
memory = "1GiB"
programs = ["hog"]
"#;

/// Product of the constants according to the published table.
const PRODUCT: f64 = 4.0;

const OPEN: &str = "{ vms = 1 }";
const DETERMINED: &str = "{ vms = 1 }, { vms = 2 }";

/// Writes an experiment whose baseline was published by somebody who knows a; `calibrated_at` names the cells
/// that were calibrated on.
fn write(folder: &Path, a: f64, calibrated_at: &str) {
    let text = format!(
        r#"
        title = "T"
        story = []
        source = "S"
        modelled = []
        not_modelled = []
        baseline = "plain"
        replications = {{ min = 3 }}
        [variants.plain]
        [variants.limited]
        host = {{ xen-credit = {{ ratelimit = "700us" }} }}
        [[calibration]]
        name = "constants"
        runs = [{{}}]
        within_pct = 2
        because = "made up"
        free = {{ a = {{ low = "1s", high = "4s", source = "made up" }}, b = {{ low = "1s", high = "4s", source = "made up" }} }}
        [[run]]
        scenario = "s.toml"
        sweep = {{ vms = [1, 2] }}
        metrics = [{{ name = "done", of = {{ rate = "done" }}, unit = "1/s", better = "higher", calibrated_at = [{calibrated_at}] }}]
        "#
    );
    let published = format!(
        "vms,metric,variant,value,effect_pct\n1,done,plain,{},\n2,done,plain,{},\n1,done,limited,,{}\n",
        1e6 * PRODUCT,
        1e6 * a,
        gain_pct(a)
    );
    for (name, text) in [("experiment.toml", &*text), ("s.toml", SCENARIO), ("published.csv", &published)] {
        fs::write(folder.join(name), text).unwrap();
    }
}

/// The effect of the variant: the sign changes where a is 1.5.
fn gain_pct(a: f64) -> f64 {
    8.0 * (a - 1.5)
}

/// The engine, with a noise of up to 0.2% that a variant shares with its baseline.
fn engine(scenario: &Scenario, seed: u64) -> Result<RunMetrics, std::io::Error> {
    let PolicySettings::Credit(credit) = scenario.policy else { panic!("the host schedules with credit") };
    let (a, b) = (scenario.length_ns as f64 / 1e9, scenario.warmup_ns as f64 / 1e9);
    let baseline = if scenario.workloads.len() == 1 { a * b } else { a };
    let gain = if credit.ratelimit_ns == 700_000 { gain_pct(a) } else { 0.0 };
    let noise = 1.0 + 0.002 * (uniform(seed, 0) - 0.5);
    let done = 1e6 * baseline * noise * (1.0 + gain / 100.0);
    Ok(RunMetrics {
        length_ns: 1_000_000_000,
        events: 0,
        trace_hash: 0,
        host: Default::default(),
        vms: vec![VmMetrics {
            group: "hog".into(),
            counts: [("done".into(), done as u64)].into(),
            ..VmMetrics::default()
        }],
    })
}

fn options(jobs: usize) -> RunOptions {
    RunOptions { seed: 1, jobs: NonZeroUsize::new(jobs).unwrap() }
}

/// Searches with so many points, and leaves the set beside the experiment.
fn calibrate(folder: &Path, points: usize, jobs: usize) -> CalibratedSet {
    calibrate_as(folder, Plan { points: Some(points), again: false }, jobs)
}

fn calibrate_as(folder: &Path, plan: Plan, jobs: usize) -> CalibratedSet {
    let experiment = Experiment::read(folder).unwrap();
    let save = |set: &CalibratedSet| {
        write_sets(folder, &[("constants".to_owned(), set.clone())].into()).unwrap();
        Ok::<(), ExperimentError>(())
    };
    let (calibration, no_cancel) = (&experiment.calibrations[0], AtomicBool::new(false));
    search_with(&experiment, calibration, plan, options(jobs), &(), &no_cancel, save, &engine).unwrap()
}

fn reproduce(folder: &Path) -> ExperimentResults {
    let experiment = Experiment::read(folder).unwrap();
    run_with(&experiment, options(2), &(), &AtomicBool::new(false), engine).unwrap()
}

fn effect(results: &ExperimentResults) -> &Cell {
    results.cells.iter().find(|cell| cell.published_effect_pct.is_some()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Whatever a is, a baseline that does not tell it gives a range that holds the effect; one that does
    /// gives a narrow range about the effect.
    #[test]
    fn ranges_hold_the_truth_and_are_narrow_where_the_baseline_determines_it(a in 1.15f64..3.5) {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), a, OPEN);
        calibrate(folder.path(), 256, 2);
        let results = reproduce(folder.path());
        let (low, high) = effect(&results).open_range_pct().unwrap();
        let truth = gain_pct(a);
        prop_assert!(low <= truth && truth <= high, "{low} {truth} {high}");
        // All of the box is open, though the point of the scenario predicts a single effect.
        prop_assert!(low < gain_pct(1.15) && gain_pct(3.5) < high, "{low} {high}");

        write(folder.path(), a, DETERMINED);
        let set = calibrate(folder.path(), 1_024, 2);
        prop_assert!(!set.accepted.is_empty());
        let results = reproduce(folder.path());
        let experiment = Experiment::read(folder.path()).unwrap();
        // The scenario's own point is not in this set, and counts all the same: look at the points.
        let effects = experiment.calibrations[0].representatives(&set, usize::MAX).into_iter().map(|point| {
            let case = &experiment.cases[0];
            let a = experiment.scenario_at(case, "plain", &point).unwrap().length_ns as f64 / 1e9;
            gain_pct(a)
        });
        let effects: Vec<f64> = effects.collect();
        let (low, high) = effect(&results).open_range_pct().unwrap();
        for effect in effects {
            prop_assert!((effect - truth).abs() < 8.0 * 0.025 * a, "{effect} {truth}");
            prop_assert!(low <= effect + 0.5 && effect - 0.5 <= high);
        }
    }
}

#[test]
fn a_sign_that_changes_over_the_set_is_open() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), 2.0, OPEN);
    let verdict = reproduce(folder.path()).verdict;
    assert_eq!((verdict.sign_right, verdict.sign_open), (0, 1), "nothing is known of the set");
    calibrate(folder.path(), 128, 2);
    let verdict = reproduce(folder.path()).verdict;
    assert_eq!((verdict.sign_right, verdict.sign_open), (0, 1));
    write(folder.path(), 2.0, DETERMINED);
    calibrate(folder.path(), 1_024, 2);
    let results = reproduce(folder.path());
    assert_eq!((results.verdict.sign_right, results.verdict.sign_open), (1, 0));
    let (low, high) = effect(&results).open_range_pct().unwrap();
    assert!(high - low < 0.8 && low <= 4.0 && 4.0 <= high, "{low} {high}");
}

#[test]
fn a_set_depends_neither_on_jobs_nor_on_interruptions() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), 2.0, OPEN);
    let whole = calibrate(folder.path(), 96, 1);
    assert_eq!(calibrate_as(folder.path(), Plan { points: Some(96), again: true }, 3), whole);
    fs::remove_file(folder.path().join("calibrated.json")).unwrap();

    let experiment = Experiment::read(folder.path()).unwrap();
    let (cancel, runs) = (AtomicBool::new(false), AtomicUsize::new(0));
    let interrupted = |scenario: &Scenario, seed| {
        if runs.fetch_add(1, Ordering::Relaxed) == 200 {
            cancel.store(true, Ordering::Relaxed);
        }
        engine(scenario, seed)
    };
    let save = |set: &CalibratedSet| {
        write_sets(folder.path(), &[("constants".to_owned(), set.clone())].into()).unwrap();
        Ok::<(), ExperimentError>(())
    };
    let calibration = &experiment.calibrations[0];
    let plan = Plan { points: Some(96), again: false };
    search_with(&experiment, calibration, plan, options(2), &(), &cancel, save, &interrupted).unwrap();
    let kept = &read_sets(folder.path()).unwrap()["constants"];
    assert_eq!((kept.tried, kept.planned), (64, 96));
    assert!((1..32).contains(&kept.running.len()), "of the running wave what was judged is kept");
    let results = reproduce(folder.path());
    assert!(results.calibrations[0].contains("of 64 points meet the baseline"), "{:?}", results.calibrations);
    assert!(results.calibrations[0].contains(", of 96 planned"), "{:?}", results.calibrations);
    assert_eq!(calibrate(folder.path(), 32, 2), whole, "it goes on as planned, however few are asked for");
}

#[test]
fn a_complete_set_is_kept_until_more_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), 2.0, OPEN);
    let set = calibrate(folder.path(), 50, 2);
    assert_eq!((set.tried, set.planned), (50, 50), "as many as asked for");
    let experiment = Experiment::read(folder.path()).unwrap();
    for plan in [Plan::default(), Plan { points: Some(10), again: false }] {
        let never = |_: &Scenario, _| -> Result<RunMetrics, std::io::Error> { panic!("nothing is run") };
        let save = |_: &CalibratedSet| -> Result<(), ExperimentError> { panic!("nothing is written") };
        let (calibration, cancel) = (&experiment.calibrations[0], AtomicBool::new(false));
        let kept = search_with(&experiment, calibration, plan, options(2), &(), &cancel, save, &never);
        assert_eq!(kept.unwrap(), set);
    }
    let more = calibrate(folder.path(), 70, 2);
    assert_eq!((more.tried, &more.accepted[..set.accepted.len()]), (70, &set.accepted[..]));
    let anew = calibrate_as(folder.path(), Plan { points: Some(50), again: true }, 2);
    assert_eq!(anew, set);
}

#[test]
fn the_experiments_own_values_are_tried_first() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), 2.0, DETERMINED);
    let set = calibrate(folder.path(), 1, 2);
    let own: Parameters = ["a", "b"].map(|name| (name.to_owned(), Key::Text("2s".into()))).into();
    assert_eq!((set.tried, set.accepted), (1, vec![own]));
}

#[test]
fn points_are_counted_once() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), 2.0, OPEN);
    let set = calibrate(folder.path(), 256, 2);
    let distinct: std::collections::BTreeSet<&Parameters> = set.accepted.iter().collect();
    assert_eq!(distinct.len(), set.accepted.len());
}

#[test]
fn a_point_that_cannot_be_measured_does_not_meet_the_baseline() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), 2.0, OPEN);
    let experiment = Experiment::read(folder.path()).unwrap();
    let fragile = |scenario: &Scenario, seed| match scenario.length_ns > 2_500_000_000 {
        true => Err(std::io::Error::other("refused")),
        false => engine(scenario, seed),
    };
    let (calibration, cancel) = (&experiment.calibrations[0], AtomicBool::new(false));
    let plan = Plan { points: Some(96), again: false };
    let save = |_: &CalibratedSet| Ok::<(), ExperimentError>(());
    let set = search_with(&experiment, calibration, plan, options(2), &(), &cancel, save, &fragile).unwrap();
    assert_eq!(set.tried, 96);
    // log2 of 2.5 is 1.32, from 1 s to 4 s.
    let part = |point: &Parameters| calibration.parts(point).unwrap()[0];
    assert!(!set.accepted.is_empty() && set.accepted.iter().all(|point| part(point) < 0.67));
}

#[test]
fn a_set_says_where_it_ends_and_what_it_lacks() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), 2.0, OPEN);
    let sentence = |folder: &Path| reproduce(folder).calibrations.remove(0);
    assert!(sentence(folder.path()).contains("are not known; run `tandem calibrate"));

    calibrate(folder.path(), 256, 2);
    let known = sentence(folder.path());
    assert!(known.contains("a 1000 ms to 4000 ms, from edge to edge: not determined"), "{known}");
    let accepted = read_sets(folder.path()).unwrap()["constants"].accepted.len();
    let used = format!("ranges are over 12 of the {accepted} points that meet the baseline");
    assert!(known.ends_with(&used), "{known}");
    let results = reproduce(folder.path());
    let RangeBasis { calibrated_set, points_accepted, points_measured, doubt_pct } = effect(&results).basis;
    assert_eq!((calibrated_set, doubt_pct), (Some(SetWord::Complete), None));
    assert_eq!((points_accepted, points_measured), (Some(accepted), Some(12)));

    // Comments change nothing; what is published does.
    fs::write(folder.path().join("s.toml"), format!("# a comment\n{SCENARIO}")).unwrap();
    assert_eq!(sentence(folder.path()), known);
    write(folder.path(), 2.0, DETERMINED);
    let results = reproduce(folder.path());
    assert!(results.calibrations[0].contains("has changed since"), "{:?}", results.calibrations);
    assert_eq!(effect(&results).open_range_pct(), None);
    assert_eq!((results.verdict.sign_right, results.verdict.sign_open), (0, 1));

    // No a of the box is that large.
    write(folder.path(), 4.5, DETERMINED);
    let set = calibrate(folder.path(), 64, 2);
    assert_eq!((set.accepted.len(), set.nearest.len()), (0, 16));
    let results = reproduce(folder.path());
    assert!(results.calibrations[0].contains("none of 64 points meets the baseline"));
    assert!(results.calibrations[0].contains("effects have no range; signs and targets of these"));
    assert_eq!(effect(&results).open_range_pct(), None);
    assert_eq!((results.verdict.sign_right, results.verdict.sign_open), (0, 1));

    fs::write(folder.path().join("calibrated.json"), "{").unwrap();
    let error = Experiment::read(folder.path()).unwrap_err().to_string();
    assert!(error.contains("delete it and run that again"), "{error}");
}

#[test]
fn points_that_no_longer_meet_the_baseline_are_left_out() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), 2.0, OPEN);
    calibrate(folder.path(), 256, 2);
    let experiment = Experiment::read(folder.path()).unwrap();
    let slower = |scenario: &Scenario, seed| {
        let mut run = engine(scenario, seed)?;
        let done = run.vms[0].counts.get_mut("done").unwrap();
        *done = *done * 9 / 10;
        Ok::<_, std::io::Error>(run)
    };
    let results = run_with(&experiment, options(2), &(), &AtomicBool::new(false), slower).unwrap();
    let sentence = &results.calibrations[0];
    assert!(sentence.contains("effects have no range; 12 of 12 measured points are left out"), "{sentence}");
    assert_eq!(effect(&results).open_range_pct(), None);
    assert_eq!((results.verdict.sign_right, results.verdict.sign_open), (0, 1));
}

/// The quick form runs each point once: chance moves cells by far more than the tolerance.
#[test]
fn a_single_run_shows_of_no_point_that_it_misses_the_baseline() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), 2.0, OPEN);
    calibrate(folder.path(), 256, 2);
    let experiment = Experiment::read(folder.path()).unwrap().quick();
    let noisy = |scenario: &Scenario, seed| {
        let mut run = engine(scenario, seed)?;
        let done = run.vms[0].counts.get_mut("done").unwrap();
        *done = (*done as f64 * (1.0 + 0.2 * (uniform(seed, 1) - 0.5)) * 4.0) as u64;
        Ok::<_, std::io::Error>(run)
    };
    let results = run_with(&experiment, options(2), &(), &AtomicBool::new(false), noisy).unwrap();
    assert_eq!(effect(&results).basis.points_measured, Some(8));
}

/// Points are left out where a is small. Over the others the variant gains, as at the experiment's own point;
/// at them it may lose.
#[test]
fn what_is_left_out_makes_no_sign_certain() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), 2.0, OPEN);
    calibrate(folder.path(), 256, 2);
    let experiment = Experiment::read(folder.path()).unwrap();
    let other_model = |factor: f64| {
        move |scenario: &Scenario, seed| {
            let mut run = engine(scenario, seed)?;
            let done = run.vms[0].counts.get_mut("done").unwrap();
            let is_small = scenario.length_ns < 1_900_000_000;
            *done = (*done as f64 * if is_small { factor } else { 1.0 }) as u64;
            Ok::<_, std::io::Error>(run)
        }
    };
    let run = |factor| {
        run_with(&experiment, options(2), &(), &AtomicBool::new(false), other_model(factor)).unwrap()
    };
    assert_eq!((run(1.0).verdict.sign_right, run(1.0).verdict.sign_open), (0, 1));
    let results = run(0.8);
    let cell = effect(&results);
    assert!(cell.basis.points_measured.unwrap() < 12 && cell.range_low_pct.unwrap() > 2.0, "{cell:?}");
    assert_eq!((results.verdict.sign_right, results.verdict.sign_open), (0, 1), "{cell:?}");
    assert!(results.calibrations[0].contains("the search has judged them by shorter runs"));
}

#[test]
fn points_that_cannot_be_measured_leave_effects_open() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), 2.0, DETERMINED);
    calibrate(folder.path(), 1_024, 2);
    let experiment = Experiment::read(folder.path()).unwrap();
    let fragile = |scenario: &Scenario, seed| match scenario.length_ns > 2_000_000_000 {
        true => Err(std::io::Error::other("refused")),
        false => engine(scenario, seed),
    };
    let results = run_with(&experiment, options(2), &(), &AtomicBool::new(false), fragile).unwrap();
    assert!(results.calibrations[0].contains("could not be measured"), "{:?}", results.calibrations);
    assert!(effect(&results).open_range_pct().is_some());
    assert_eq!((results.verdict.sign_right, results.verdict.sign_open), (0, 1));
}

#[test]
fn representatives_have_the_ends_of_every_constant_and_no_point_twice() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), 2.0, OPEN);
    let experiment = Experiment::read(folder.path()).unwrap();
    let calibration = &experiment.calibrations[0];
    let at = |a: f64, b: f64| calibration.point(&[a, b]);
    let middle = (0..20).map(|it| at(0.4 + 0.01 * f64::from(it), 0.5));
    let ends = [at(0.0, 0.5), at(1.0, 0.5), at(0.5, 0.0), at(0.5, 1.0)];
    let accepted: Vec<Parameters> =
        middle.chain(ends.clone()).flat_map(|point| [point.clone(), point]).collect();
    let set = CalibratedSet { accepted, ..Plan::default().start(calibration) };
    let chosen = calibration.representatives(&set, 4);
    assert!(chosen.len() == 4 && ends.iter().all(|end| chosen.contains(end)), "{chosen:?}");
    let all = calibration.representatives(&set, 100);
    assert_eq!(all.len(), 24);
    assert_eq!(all.iter().collect::<std::collections::BTreeSet<_>>().len(), 24);
}

#[test]
fn with_one_cell_relative_determines_nothing_and_the_sentence_says_so() {
    let folder = tempfile::tempdir().unwrap();
    for (cells, said) in [
        (OPEN, "`done` relative to its other cells, of which there are none, so that it determines nothing"),
        (DETERMINED, "`done` relative to its other cells:"),
    ] {
        write(folder.path(), 2.0, cells);
        let path = folder.path().join("experiment.toml");
        let text = fs::read_to_string(&path)
            .unwrap()
            .replace("within_pct = 2", "relative = [\"done\"]\nwithin_pct = 2");
        fs::write(&path, text).unwrap();
        calibrate_as(folder.path(), Plan { points: Some(256), again: true }, 2);
        let sentence = reproduce(folder.path()).calibrations.remove(0);
        assert!(sentence.contains(said), "{sentence}");
    }
}

#[test]
fn relative_names_a_metric_of_the_runs() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), 2.0, OPEN);
    let path = folder.path().join("experiment.toml");
    let text =
        fs::read_to_string(&path).unwrap().replace("within_pct = 2", "relative = [\"dnoe\"]\nwithin_pct = 2");
    fs::write(&path, text).unwrap();
    let error = Experiment::read(folder.path()).expect_err("no such metric").to_string();
    assert!(
        error.contains(
            "`relative` names the metric `dnoe`, which is not calibrated on a published cell of these runs"
        ),
        "{error}"
    );
}

#[test]
fn a_set_is_stale_after_any_change_that_acceptance_depends_on() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), 2.0, OPEN);
    let fingerprint = || Experiment::read(folder.path()).unwrap().calibrations[0].fingerprint.clone();
    let known = fingerprint();
    let path = folder.path().join("experiment.toml");
    let text = fs::read_to_string(&path).unwrap();
    for (from, to, is_other) in [
        ("title = \"T\"", "title = \"U\"", false),
        ("ratelimit = \"700us\"", "ratelimit = \"800us\"", false),
        ("[variants.plain]", "[variants.plain]\nhost = { xen-credit = { ratelimit = \"300us\" } }", true),
        ("of = { rate = \"done\" }", "of = { rate = \"done\" }, scale = 2.0", true),
        ("of = { rate = \"done\" }", "of = \"busy_share\"", true),
        ("replications = { min = 3 }", "replications = { min = 3 }\nquick = { length_pct = 30 }", true),
        ("within_pct = 2", "within_pct = 3", true),
        ("within_pct = 2", "relative = [\"done\"]\nwithin_pct = 2", true),
        ("sweep = { vms = [1, 2] }", "sweep = { vms = [1, 2] }\nwarmup = { plain = \"1s\" }", true),
        ("sweep = { vms = [1, 2] }", "sweep = { vms = [1, 2] }\nset = { a = \"3s\" }", true),
    ] {
        assert!(text.contains(from), "{from}");
        fs::write(&path, text.replacen(from, to, 1)).unwrap();
        assert_eq!(fingerprint() != known, is_other, "{to}");
    }
}

/// Also where accepted points lie close together, so that steps lead nowhere else.
#[test]
fn every_tenth_of_each_constant_is_visited() {
    let constants = (b'a'..).take(BASES.len()).map(|letter| (letter as char).to_string());
    let free = constants.map(|name| Free::of(&name, &Key::Number(0), &Key::Number(1)).unwrap());
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), 2.0, OPEN);
    let experiment = Experiment::read(folder.path()).unwrap();
    let calibration = Calibration { free: free.collect(), ..experiment.calibrations[0].clone() };
    let mut set = Plan::default().start(&calibration);
    let mut visited = [[false; 10]; BASES.len()];
    while set.tried < set.planned {
        for point in wave(&calibration, &[], &set) {
            let parts = calibration.parts(&point).unwrap();
            for (tenths, part) in visited.iter_mut().zip(&parts) {
                tenths[((10.0 * part) as usize).min(9)] = true;
            }
            if set.accepted.is_empty() {
                set.nearest.push((point, 2.0));
                set.nearest.truncate(1);
            }
        }
        set.tried += WAVE;
    }
    assert_eq!(visited, [[true; 10]; BASES.len()]);
}

#[test]
fn the_sequence_fills_the_box_evenly() {
    let places: Vec<f64> = (1..=7).map(|number| halton(number, 2)).collect();
    assert_eq!(places, [0.5, 0.25, 0.75, 0.125, 0.625, 0.375, 0.875]);
    assert_eq!([halton(1, 3), halton(2, 3)].map(|it| (it * 3.0).round()), [1.0, 2.0]);
}
