//! The runner, with an engine whose results are known.

use super::*;
use crate::results::{Key, Target};
use std::fs;
use std::sync::atomic::AtomicUsize;
use tandem_sim::metrics::VmMetrics;
use tandem_sim::policy::credit::RateControl;
use tandem_sim::scenario::PolicySettings;

const SCENARIO: &str = r#"
    length = "1s"
    machine = "xeon-e5620-2s"
    [parameters]
    vms = 1
    [programs.hog]
    ops = [{ forever = [{ compute = "1ms" }, { count = "done" }] }]
    [[vm]]
    group = "hog"
    count = "$vms"
    vcpus = 1
    memory = "1GiB"
    programs = ["hog"]
"#;

fn experiment(replications: &str) -> Experiment {
    experiment_with(replications, "", "")
}

/// An experiment with additional text in its file, and additional published rows.
fn experiment_with(replications: &str, more: &str, published: &str) -> Experiment {
    experiment_beside(
        replications,
        more,
        &format!("1,done,plain,100,\n1,done,src,110,\n2,done,src,,5\n{published}"),
    )
}

/// An experiment with additional text in its file, beside these published rows.
fn experiment_beside(replications: &str, more: &str, published: &str) -> Experiment {
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        r#"
        title = "T"
        story = []
        source = "S"
        modelled = []
        not_modelled = []
        baseline = "plain"
        replications = {replications}
        [variants.plain]
        [variants.src]
        host = {{ xen-credit = {{ rate_control = {{}} }} }}
        [[run]]
        scenario = "s.toml"
        sweep = {{ vms = [1, 2] }}
        metrics = [{{ name = "done", of = {{ rate = "done" }}, unit = "1/s", better = "higher", calibrated = true }}]
        {more}
        "#
    );
    let published = format!("vms,metric,variant,value,effect_pct\n{published}");
    for (name, text) in
        [("experiment.toml", text.as_str()), ("s.toml", SCENARIO), ("published.csv", &published)]
    {
        fs::write(folder.path().join(name), text).unwrap();
    }
    Experiment::read(folder.path()).unwrap()
}

fn options(jobs: usize) -> RunOptions {
    RunOptions { seed: 10, jobs: NonZeroUsize::new(jobs).unwrap() }
}

/// An engine whose noise comes from the seed alone, and whose rate control gains 8 % plus a little noise.
fn engine(scenario: &Scenario, seed: u64) -> Result<RunMetrics, std::io::Error> {
    let PolicySettings::Credit(credit) = scenario.policy else { panic!("the host schedules with credit") };
    let noise = seed * 7 % 5;
    let done = 1_000 * scenario.workloads.len() as u64 + noise * 100;
    let gain = if credit.rate_control == Some(RateControl::default()) { 80 + noise } else { 0 };
    Ok(RunMetrics {
        length_ns: scenario.length_ns,
        events: 0,
        trace_hash: 0,
        host: Default::default(),
        vms: vec![VmMetrics {
            group: "hog".into(),
            counts: [("done".into(), done + done * gain / 1_000)].into(),
            ..VmMetrics::default()
        }],
    })
}

#[test]
fn cells_stand_beside_published_numbers_with_their_roles() {
    let no_cancel = AtomicBool::new(false);
    let results = run_with(&experiment("{ min = 3 }"), options(1), &(), &no_cancel, engine).unwrap();
    assert_eq!((results.replications, results.seed, results.cells.len()), (3, 10, 4));
    assert!(!results.is_cut);
    let told: Vec<_> = results
        .cells
        .iter()
        .map(|cell| {
            (&cell.cell["vms"], cell.variant.as_str(), cell.published, cell.published_effect_pct, cell.role)
        })
        .collect();
    let (one, two) = (Key::Number(1), Key::Number(2));
    let expected = [
        (&one, "plain", Some(100.0), None, Role::Calibrated),
        (&one, "src", Some(110.0), Some(10.0), Role::Predicted),
        (&two, "plain", None, None, Role::Predicted),
        (&two, "src", None, Some(5.0), Role::Predicted),
    ];
    for (cell, (keys, variant, published, effect, role)) in told.iter().zip(expected) {
        let effect_is_right = match (cell.3, effect) {
            (Some(told), Some(expected)) => (told - expected).abs() < 1e-9,
            (told, expected) => told == expected,
        };
        assert!(effect_is_right, "{cell:?}");
        assert_eq!((cell.0, cell.1, cell.2, cell.4), (keys, variant, published, role));
    }
    // The noise of a pair is common: it moves the values by up to a third, the effect by tenths of a point.
    let src = &results.cells[1];
    assert!((8.0..8.5).contains(&src.simulated_effect_pct.unwrap()), "{src:?}");
    assert!(src.ci_high_pct.unwrap() - src.ci_low_pct.unwrap() < 1.0, "{src:?}");
    assert_eq!(results.verdict.sign_right, 2);
}

#[test]
fn a_composite_is_the_geometric_mean_of_its_parts_run_by_run() {
    let composite = "[[composite]]\nname = \"score\"\nof = \"done\"\nover = \"vms\"\nparts = [1, 2]\n\
        keys = { vms = \"all\" }\n[[accuracy]]\ntext = \"score\"\nmetric = \"score\"\nerror = \"largest\"\nwithin_pct = 1";
    let experiment = experiment_with("{ min = 3 }", composite, "all,score,plain,10,\nall,score,src,11,\n");
    let results = run_with(&experiment, options(1), &(), &AtomicBool::new(false), engine).unwrap();
    let [one, _, two, _, plain, src] = &results.cells[..] else { panic!("six cells") };
    assert_eq!((plain.cell["vms"].clone(), plain.metric.as_str()), (Key::Text("all".into()), "score"));
    // Its parts have published effects, which count.
    assert_eq!((plain.published, plain.role, src.role), (Some(10.0), Role::Calibrated, Role::Composite));
    // Nearly the geometric mean of the means, as the runs are much alike.
    let of_means = (one.simulated * two.simulated).sqrt();
    assert!((plain.simulated / of_means - 1.0).abs() < 0.01, "{} against {of_means}", plain.simulated);
    let effects = [1, 3].map(|cell| results.cells[cell].simulated_effect_pct.unwrap());
    let effect = src.simulated_effect_pct.unwrap();
    assert!(
        effect > effects[0].min(effects[1]) && effect < effects[0].max(effects[1]),
        "{effect} of {effects:?}"
    );
    let (target, met) = &results.verdict.targets[1];
    assert!(target.starts_with("score: largest absolute error: 1.") && *met == Target::Missed, "{target}");
}

#[test]
fn effects_of_a_run_are_against_its_own_baseline() {
    let other = "[[run]]\nscenario = \"s.toml\"\nbaseline = \"src\"\nkeys = { vms = 3 }\nset = { vms = 3 }\n\
        metrics = [{ name = \"done\", of = { rate = \"done\" }, unit = \"1/s\", better = \"higher\", calibrated = true }]";
    let published = "3,done,plain,90,\n3,done,src,100,\n";
    let results = run_with(
        &experiment_with("{ min = 3 }", other, published),
        options(1),
        &(),
        &AtomicBool::new(false),
        engine,
    )
    .unwrap();
    let [plain, src] = &results.cells[4..] else { panic!("two cells more") };
    assert_eq!((plain.baseline.as_str(), src.baseline.as_str()), ("src", "src"));
    assert_eq!((plain.published_effect_pct, src.published_effect_pct), (Some(-10.0), None));
    assert!((-8.0..-7.0).contains(&plain.simulated_effect_pct.unwrap()), "{plain:?}");
    assert_eq!(src.simulated_effect_pct, None);
    assert_eq!((plain.role, src.role), (Role::Predicted, Role::Calibrated));
}

#[test]
fn results_do_not_depend_on_the_number_of_jobs() {
    let no_cancel = AtomicBool::new(false);
    let experiment = experiment("{ min = 4 }");
    let run = |jobs| format!("{:?}", run_with(&experiment, options(jobs), &(), &no_cancel, engine));
    assert_eq!(run(1), run(3));
}

#[test]
fn replications_grow_until_the_intervals_are_narrow_enough() {
    let no_cancel = AtomicBool::new(false);
    for (replications, expected) in [
        ("{ min = 2, max = 9, precision_pct = 100 }", 2),
        ("{ min = 2, max = 9, precision_pct = 0 }", 9),
        ("{ min = 1, max = 2, precision_pct = 100 }", 2),
    ] {
        let results = run_with(&experiment(replications), options(2), &(), &no_cancel, engine).unwrap();
        assert_eq!(results.replications, expected, "{replications}");
    }
}

#[test]
fn a_run_may_be_repeated_less_often() {
    let often = experiment_with(
        "{ min = 4 }",
        "[[run]]\nscenario = \"s.toml\"\nkeys = { vms = 3 }\nset = { vms = 3 }\nreplications = 1\n\
            metrics = [{ name = \"done\", of = { rate = \"done\" }, unit = \"1/s\", better = \"higher\" }]",
        "",
    );
    let runs = AtomicUsize::new(0);
    let engine = |scenario: &Scenario, seed| {
        runs.fetch_add(1, Ordering::Relaxed);
        engine(scenario, seed)
    };
    let results = run_with(&often, options(2), &(), &AtomicBool::new(false), engine).unwrap();
    assert_eq!(runs.load(Ordering::Relaxed), 2 * 2 * 4 + 2);
    assert_eq!(results.replications, 4, "that of the others");
    let intervals: Vec<_> = results.cells.iter().map(|cell| cell.ci_low_pct.is_some()).collect();
    assert_eq!(intervals, [false, true, false, true, false, false]);
}

#[test]
fn a_cancelled_experiment_reports_whole_replications() {
    let cancel = AtomicBool::new(false);
    let started = AtomicUsize::new(0);
    // A replication has four runs; the seventh completes the first case's second replication with the sixth.
    let engine = |scenario: &Scenario, seed| {
        if started.fetch_add(1, Ordering::Relaxed) + 1 == 7 {
            cancel.store(true, Ordering::Relaxed);
        }
        engine(scenario, seed)
    };
    let results = run_with(&experiment("{ min = 5 }"), options(1), &(), &cancel, engine).unwrap();
    assert_eq!(started.load(Ordering::Relaxed), 7);
    assert_eq!((results.replications, results.cells.len(), results.is_cut), (1, 4, true));
    assert!(results.cells[1].ci_low_pct.is_some() && results.cells[3].ci_low_pct.is_none());

    let results =
        run_with(&experiment("{ min = 5 }"), options(1), &(), &AtomicBool::new(true), engine).unwrap();
    assert_eq!((results.replications, results.cells.len(), results.is_cut), (0, 0, true));
}

#[test]
fn what_the_engine_refuses_or_cannot_measure_is_told_with_its_place() {
    let no_cancel = AtomicBool::new(false);
    let refuse = |_: &Scenario, _| Err::<RunMetrics, _>(std::io::Error::other("no"));
    let mut error =
        run_with(&experiment("{ min = 1 }"), options(1), &(), &no_cancel, refuse).unwrap_err().to_string();
    assert!(error.ends_with("`, vms=1, variant `plain`: no"), "{error}");
    let nothing =
        |scenario: &Scenario, seed| engine(scenario, seed).map(|run| RunMetrics { vms: Vec::new(), ..run });
    error =
        run_with(&experiment("{ min = 1 }"), options(1), &(), &no_cancel, nothing).unwrap_err().to_string();
    assert!(error.contains("nothing happened that metric `done` could be measured on"), "{error}");
}

/// A number that is close to normal, from a key: the sum of twelve uniform ones, less its mean.
fn noise(key: u64) -> f64 {
    // The finaliser of SplitMix64: neighbouring keys have nothing in common.
    let uniform = |nth: u64| {
        let mut z = (12 * key + nth).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    };
    (0..12).map(uniform).sum::<f64>() - 6.0
}

/// An engine with noise that the two runs of a pair have in common, and with noise of their own, in percent; rate
/// control gains 10%.
fn noisy(noise_pct: f64) -> impl Fn(&Scenario, u64) -> Result<RunMetrics, std::io::Error> + Sync {
    move |scenario, seed| {
        let PolicySettings::Credit(credit) = scenario.policy else {
            panic!("the host schedules with credit")
        };
        let of_variant = u64::from(credit.rate_control.is_some());
        let key = seed << 8 | (scenario.workloads.len() as u64) << 4;
        let common = 1.0 + 0.03 * noise(key);
        let own = 1.0 + noise_pct / 100.0 * noise(key | 2 | of_variant);
        let gain = 1.0 + 0.1 * of_variant as f64;
        let mut run = engine(scenario, seed)?;
        run.trace_hash = key | of_variant;
        run.vms[0].counts = [("done".into(), (1e9 * common * own * gain) as u64)].into();
        Ok(run)
    }
}

/// The number of replications follows from the first ones, and from nothing else: here it is worked out once more, from
/// the intervals that these give by themselves.
#[test]
fn a_precision_is_obeyed_with_published_numbers_and_without() {
    let run = |experiment: &Experiment, seed: u64, noise_pct: f64| {
        let options = RunOptions { seed, ..options(1) };
        run_with(experiment, options, &(), &AtomicBool::new(false), noisy(noise_pct)).unwrap()
    };
    let rows = ["", "1,done,plain,100,\n1,done,src,110,\n2,done,src,,5\n"];
    let (mut more, mut too_many) = (0, 0);
    for published in rows {
        let first = experiment_beside("{ min = 4 }", "", published);
        let all = experiment_beside("{ min = 4, max = 60, precision_pct = 1 }", "", published);
        for (seed, noise_pct) in (0..30).map(|seed| (seed * 1_000, [0.2, 1.0, 2.0][seed as usize % 3])) {
            let halves = run(&first, seed, noise_pct).cells.into_iter().filter_map(|cell| {
                assert_eq!(cell.precision_pct, None, "nothing is asked of what cannot grow");
                Some((cell.ci_high_pct? - cell.ci_low_pct?) / 2.0)
            });
            let widest = halves.fold(0.0_f64, f64::max);
            let expected = (4.0 * widest * widest).ceil().max(4.0) as usize;
            let results = run(&all, seed, noise_pct);
            assert_eq!(results.replications, expected.min(60), "{published:?} {seed}");
            let precision = results.precision.expect("one was asked for");
            assert_eq!((precision.is_reached, precision.wanted), (expected <= 60, Some(expected)));
            for cell in results.cells {
                assert_eq!(cell.precision_pct, (cell.variant == "src").then_some(1.0));
                assert_eq!(cell.runs.n, results.replications);
            }
            more += usize::from(expected > 4);
            too_many += usize::from(expected > 60);
        }
    }
    assert!(more > 20 && too_many > 5, "{more} {too_many}: the noises make both happen");
}

#[test]
fn a_precision_is_asked_of_what_is_published_then_of_gains_then_of_descriptions() {
    let asked = |published: &str, run: &str| {
        let experiment = experiment_beside("{ min = 2, max = 3, precision_pct = 0.01 }", run, published);
        let results = run_with(&experiment, options(1), &(), &AtomicBool::new(false), noisy(1.0)).unwrap();
        let cells = results.cells.into_iter().filter(|cell| cell.precision_pct.is_some());
        cells.map(|cell| format!("{} {}", cell.cell["vms"], cell.metric)).collect::<Vec<_>>()
    };
    let description = "[[run]]\nscenario = \"s.toml\"\nkeys = { vms = 3 }\nset = { vms = 3 }\n\
        metrics = [{ name = \"told\", of = { rate = \"done\" }, unit = \"1/s\", better = \"neither\" }]";
    assert_eq!(asked("2,done,src,,5\n", description), ["2 done"]);
    assert_eq!(asked("", description), ["1 done", "2 done"]);
    let alone = experiment_beside("{ min = 2, max = 3, precision_pct = 0.01 }", "", "");
    let mut alone = alone;
    alone
        .cases
        .iter_mut()
        .flat_map(|case| &mut case.metrics)
        .for_each(|metric| metric.better = Better::Neither);
    let results = run_with(&alone, options(1), &(), &AtomicBool::new(false), noisy(1.0)).unwrap();
    assert_eq!(results.replications, 3, "where all describe, it is asked of all");
}

#[test]
fn cells_say_which_runs_they_are_from() {
    let composite = "[[composite]]\nname = \"score\"\nof = \"done\"\nover = \"vms\"\nparts = [1, 2]\n\
        keys = { vms = \"all\" }\n";
    let experiment = experiment_with("{ min = 3 }", composite, "");
    let results = run_with(&experiment, options(2), &(), &AtomicBool::new(false), noisy(1.0)).unwrap();
    for cell in &results.cells {
        let runs = &cell.runs;
        assert_eq!((runs.n, &runs.seeds[..]), (3, &[10, 11, 12][..]));
        assert_eq!(runs.scheduler, "xen-credit 4.9");
        let mean = runs.values.iter().sum::<f64>() / 3.0;
        assert!((mean / cell.simulated - 1.0).abs() < 1e-12, "{cell:?}");
        let Key::Number(vms) = cell.cell["vms"] else {
            assert_eq!((&runs.scenario_hash, runs.trace_hashes.len()), (&None, 0));
            continue;
        };
        let scenario = &experiment.cases[vms as usize - 1].variants[usize::from(cell.variant == "src")].1;
        assert_eq!(runs.scenario_hash, Some(format!("{:016x}", scenario_hash(scenario))));
        let hash = |&seed: &u64| noisy(1.0)(scenario, seed).unwrap().trace_hash;
        let expected: Vec<String> = runs.seeds.iter().map(|seed| format!("{:016x}", hash(seed))).collect();
        assert_eq!(runs.trace_hashes, expected);
    }
}

/// Intervals hold the true effect in 95% of cases, also where they have decided how often to run.
#[test]
fn intervals_hold_what_they_promise_whatever_the_noise() {
    let with = experiment("{ min = 4, max = 40, precision_pct = 1 }");
    let without = experiment_beside("{ min = 4, max = 40, precision_pct = 1 }", "", "");
    let trials = 1_500;
    for (experiment, noise_pct) in [(&with, 0.3), (&with, 1.0), (&with, 1.6), (&with, 2.5), (&without, 1.0)] {
        let mut replications = 0;
        let mut held = 0;
        for trial in 0..trials {
            let options = RunOptions { seed: 1_000 * trial, ..options(1) };
            let results =
                run_with(experiment, options, &(), &AtomicBool::new(false), noisy(noise_pct)).unwrap();
            replications += results.replications;
            let cell = &results.cells[1];
            held += u64::from(cell.ci_low_pct.unwrap() <= 10.0 && 10.0 <= cell.ci_high_pct.unwrap());
        }
        let share = held as f64 / trials as f64;
        let mean = replications as f64 / trials as f64;
        assert!((0.94..0.965).contains(&share), "{share} with {noise_pct} % noise, {mean} replications");
    }
}
