use super::*;
use crate::simulate::{Simulation, Watched};
use crate::statistics::{mean_interval, pairs_for};
use crate::tables;
use proptest::prelude::*;
use std::fs;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tandem_recording::parquet::Values;

const SCENARIO: &str = "length = \"3ms\"\nmachine = \"1x2x1\"\n\
    [parameters]\nhogs = 2\nwork = \"1ms\"\nsleep = 1.5\n\
    [policy]\nhost = \"linux\"\n\
    [programs.hog]\nops = [{ forever = [{ compute = { exponential = \"$work\" } }, { count = \"rounds\" }] }]\n\
    [[vm]]\ngroup = \"hogs\"\nvcpus = 2\ncount = \"$hogs\"\nmemory = \"64MiB\"\nprograms = [\"hog\"]\n";

const STUDY: &str = "scenario = \"s.toml\"\n\
    [space]\nhogs = { from = 1, to = 3 }\nhost = [\"linux\", \"xen-credit\"]\n\
    [replications]\nmin = 2\n\
    [objective]\nmaximize = \"rounds\"\ngroup = \"hogs\"\n";

fn parse(study: &str) -> Result<Study, FileError> {
    let texts =
        Texts { study: ("study.toml".into(), study.into()), scenario: ("s.toml".into(), SCENARIO.into()) };
    Study::parse(&texts)
}

fn study(text: &str) -> Study {
    parse(text).unwrap_or_else(|error| panic!("{error}"))
}

/// Computes a part into a folder, until so many points are done.
fn compute_part(study: &Study, folder: &Path, part: Part, batch: usize, threads: usize, cut: Option<usize>) {
    let plan = Plan::new(study);
    let mut shards = Shards::open(folder).unwrap();
    let jobs = batches(study, &plan, NonZeroUsize::new(batch), part, |key| shards.has(key));
    let (cancel, done) = (AtomicBool::new(false), AtomicUsize::new(0));
    let count = || {
        if cut == Some(done.fetch_add(1, Ordering::Relaxed) + 1) {
            cancel.store(true, Ordering::Relaxed);
        }
    };
    run(study, jobs, &mut shards, NonZeroUsize::new(threads).unwrap(), &cancel, &count).unwrap();
}

/// All that comes out of what is in the folder.
fn results(study: &Study, folder: &Path) -> (String, String, Vec<u8>) {
    let (plan, shards) = (Plan::new(study), Shards::open(folder).unwrap());
    let results = Results::collect(study, &plan, &shards).unwrap();
    let mut parquet = Vec::new();
    results.write_parquet(&shards, &mut parquet).unwrap();
    (results.to_string(), serde_json::to_string(&results).unwrap(), parquet)
}

fn whole(study: &Study) -> (String, String, Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    compute_part(study, folder.path(), Part::WHOLE, 1, 1, None);
    results(study, folder.path())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// However a study is cut into parts, batches and threads, interrupted, and merged: the same bytes.
    #[test]
    fn what_comes_out_does_not_depend_on_who_computed_it(
        of in 1_usize..4, batch in 1_usize..5, threads in 1_usize..4, cuts in proptest::collection::vec(0_usize..4, 0..3),
    ) {
        let study = study(STUDY);
        let folders: Vec<_> = (0..of).map(|_| tempfile::tempdir().unwrap()).collect();
        for (number, folder) in folders.iter().enumerate() {
            let part = Part { number, of };
            for &cut in &cuts {
                compute_part(&study, folder.path(), part, batch, threads, Some(cut));
            }
            compute_part(&study, folder.path(), part, batch, threads, None);
        }
        let merged = tempfile::tempdir().unwrap();
        for file in folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap()) {
            let path = file.unwrap().path();
            fs::copy(&path, merged.path().join(path.file_name().unwrap())).unwrap();
        }
        prop_assert_eq!(results(&study, merged.path()), whole(&study));
        // Nothing is left to be done.
        let (plan, shards) = (Plan::new(&study), Shards::open(merged.path()).unwrap());
        prop_assert!(batches(&study, &plan, None, Part::WHOLE, |key| shards.has(key)).is_empty());
    }

    /// A damaged file is left aside, and its points are computed again.
    #[test]
    fn damaged_files_do_not_count(at: prop::sample::Index, byte in 1_u8.., cut: Option<prop::sample::Index>) {
        let study = study(STUDY);
        let folder = tempfile::tempdir().unwrap();
        compute_part(&study, folder.path(), Part::WHOLE, 3, 1, None);
        let before = results(&study, folder.path());
        let path = fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        let at = at.index(bytes.len());
        bytes[at] ^= byte;
        bytes.truncate(cut.map_or(bytes.len(), |cut| cut.index(bytes.len())));
        fs::write(&path, bytes).unwrap();
        compute_part(&study, folder.path(), Part::WHOLE, 3, 1, None);
        prop_assert_eq!(results(&study, folder.path()), before);
    }
}

#[test]
fn what_is_no_shard_is_left_aside() {
    let study = study(STUDY);
    let folder = tempfile::tempdir().unwrap();
    compute_part(&study, folder.path(), Part::WHOLE, 3, 1, None);
    let before = results(&study, folder.path());
    let shard = fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
    let path = |name: &str| folder.path().join(name).with_extension("parquet");
    fs::copy(&shard, path("0000 copy")).unwrap();
    fs::write(path("text"), "text").unwrap();
    fs::create_dir(path("folder")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", path("zero")).unwrap();
    // Nobody writes into it: to open it would wait for ever.
    assert!(std::process::Command::new("mkfifo").arg(path("pipe")).status().unwrap().success());
    assert_eq!(results(&study, folder.path()), before);
    assert_eq!(Shards::open(folder.path()).unwrap().strangers().len(), 5);
}

#[test]
fn a_folder_that_is_not_there_has_nothing_and_is_not_made() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing");
    assert!(!Shards::open(&missing).unwrap().has("key") && !missing.exists());
    fs::write(&missing, "a file").unwrap();
    assert!(Shards::open(&missing).is_err());
}

#[test]
fn points_have_the_very_values_of_their_simulations() {
    let study = study(STUDY);
    let folder = tempfile::tempdir().unwrap();
    compute_part(&study, folder.path(), Part::WHOLE, 2, 2, None);
    let (plan, shards) = (Plan::new(&study), Shards::open(folder.path()).unwrap());
    let rows = Results::collect(&study, &plan, &shards).unwrap().rows(&shards).unwrap();
    let mut expected = Vec::new();
    for hogs in 1..=3 {
        for host in ["linux", "xen-credit"] {
            let scenario = SCENARIO.replace("hogs = 2\n", &format!("hogs = {hogs}\n")).replace("linux", host);
            let scenario = ScenarioSource::parse(Path::new("s.toml"), &scenario).unwrap();
            let scenario = scenario.build(&Parameters::new(), &PolicyTable::default()).unwrap();
            for seed in [1, 2] {
                let never = AtomicBool::new(false);
                let run = Simulation { name: "s.toml", scenario: &scenario, seed, with_stat: false };
                let (run, ()) = run.run(Watched::new((), &scenario, &|_| (), &never)).unwrap();
                expected.push(run.table());
            }
        }
    }
    let expected = tables::of_runs(&expected);
    let own = |name: &str| ["hogs", "host"].contains(&name);
    let runs: Vec<_> = rows.columns().iter().filter(|column| !own(&column.name)).collect();
    for (column, expected) in runs.iter().zip(expected.columns()) {
        let (shown, expected) = (shown(&column.values), shown(&expected.values));
        assert_eq!((&column.name, shown), (&column.name, expected));
    }
    let Values::Numbers(hogs) = &rows.columns()[0].values else { panic!("hogs are numbers") };
    assert_eq!((hogs.first(), hogs.last()), (Some(&Some(1.0)), Some(&Some(3.0))));
}

fn shown(values: &Values) -> Vec<String> {
    match values {
        Values::Texts(words) => words.iter().map(|word| format!("{word:?}")).collect(),
        Values::Counts(counts) => counts.iter().map(u64::to_string).collect(),
        Values::Numbers(numbers) => numbers.iter().map(|number| format!("{number:?}")).collect(),
    }
}

#[test]
fn a_key_changes_with_all_that_a_result_depends_on_and_with_nothing_else() {
    let keys = |text: &str| -> Vec<String> { Plan::new(&study(text)).points.into_iter().flatten().collect() };
    let before = keys(STUDY);
    let mut distinct = before.clone();
    distinct.sort();
    distinct.dedup();
    assert_eq!(distinct.len(), 6);
    for same in [
        format!("title = \"another\"\n{STUDY}"),
        STUDY.replace("maximize = \"rounds\"\ngroup = \"hogs\"", "minimize = \"busy\""),
        STUDY.replace("{ from = 1, to = 3 }", "[1, 2, 3]"),
    ] {
        assert_eq!(keys(&same), before, "{same}");
    }
    for other in [
        STUDY.replace("min = 2", "min = 3"),
        STUDY.replace("min = 2", "min = 2\nseed = 2"),
        STUDY.replace("min = 2", "min = 2\nmax = 4\nprecision_pct = 5"),
        format!("set = {{ work = \"2ms\" }}\n{STUDY}"),
    ] {
        assert!(keys(&other).iter().all(|key| !before.contains(key)), "{other}");
    }
}

#[test]
fn a_precision_takes_as_many_runs_as_the_first_ones_say() {
    let mut counts = std::collections::BTreeSet::new();
    for asked_pct in [15.0, 30.0, 60.0, 90.0] {
        let study =
            study(&STUDY.replace("min = 2", &format!("min = 4\nmax = 40\nprecision_pct = {asked_pct}")));
        let folder = tempfile::tempdir().unwrap();
        compute_part(&study, folder.path(), Part::WHOLE, 2, 2, None);
        let (plan, shards) = (Plan::new(&study), Shards::open(folder.path()).unwrap());
        let results = Results::collect(&study, &plan, &shards).unwrap();
        for point in &results.points {
            let (mean, half) = mean_interval(&point.values[..4], 4).unwrap();
            let half_pct = 100.0 * half / mean;
            assert_eq!(point.runs, pairs_for(4, (-half_pct, half_pct), asked_pct).clamp(4, 40));
            counts.insert(point.runs);
        }
    }
    assert!(counts.len() > 3, "{counts:?}");
}

#[test]
fn points_that_do_not_fit_are_said_and_the_others_run() {
    let study = study(&STUDY.replace("{ from = 1, to = 3 }", "[1, 0, \"two\"]"));
    let (text, json, _) = whole(&study);
    assert!(text.contains("do not fit the scenario") && json.contains("\"refused\""), "{text}");
    let plan = Plan::new(&study);
    assert_eq!((plan.runnable(), plan.refusal()), (plan.points.iter().flatten().count(), None));
    assert!(plan.runnable() > 0 && plan.runnable() < 6);
}

#[test]
fn the_best_point_is_the_first_and_the_ranking_follows_the_objective() {
    for (way, sign) in [("maximize", -1.0), ("minimize", 1.0)] {
        let study = study(&STUDY.replace("maximize", way));
        let folder = tempfile::tempdir().unwrap();
        compute_part(&study, folder.path(), Part::WHOLE, 2, 2, None);
        let (plan, shards) = (Plan::new(&study), Shards::open(folder.path()).unwrap());
        let results = Results::collect(&study, &plan, &shards).unwrap();
        let means: Vec<f64> =
            results.ranking().iter().map(|&at| sign * results.points[at].mean.unwrap()).collect();
        assert!(means.len() == 6 && means.is_sorted(), "{way}: {means:?}");
    }
}

#[test]
fn a_measure_that_no_run_has_is_no_value() {
    let (text, ..) = whole(&study(&STUDY.replace("\"rounds\"", "\"round\"")));
    assert!(text.contains("6 have no value of the objective"), "{text}");
}

#[test]
fn another_program_or_other_files_are_found_out() {
    let study = study(STUDY);
    let job = Job { points: vec![study.points()[0].clone()], keys: vec!["0".repeat(32)] };
    let said = compute(&study, &job, &AtomicBool::new(false), &|| ()).unwrap_err();
    assert!(said.contains("hogs=1 host=linux is another one here"), "{said}");
}

#[test]
fn texts_are_the_study_again() {
    let study = study(STUDY);
    let again = Study::parse(&study.texts()).unwrap();
    let keys = |study: &Study| Plan::new(study).points;
    assert_eq!((keys(&again), again.points()), (keys(&study), study.points()));
    assert!(study.texts().study.0.is_absolute());
}

#[test]
fn mistakes_name_their_line() {
    for (text, says) in [
        (
            STUDY.replace("hogs = {", "hog = {"),
            "study.toml:3: `hog`: is no parameter of the scenario, which has `hogs`",
        ),
        (STUDY.replace("\"linux\", ", "\"cfs\", "), "study.toml:4: `host`: 'cfs' is no scheduler"),
        (STUDY.replace("from = 1", "from = 5"), "`hogs`: the range from 5 to 3 is empty"),
        (STUDY.replace("min = 2", "min = 0"), "`min` is 0"),
        (STUDY.replace("min = 2", "min = 2\nmax = 3"), "no effect without `precision_pct`"),
        (STUDY.replace("min = 2", "min = 1\nprecision_pct = 5"), "a `min` of 2 or more"),
        (
            STUDY.replace("maximize = \"rounds\"", "maximize = \"a\"\nminimize = \"b\""),
            "either `minimize` or `maximize`",
        ),
        (
            STUDY
                .replace("[objective]\nmaximize = \"rounds\"\ngroup = \"hogs\"\n", "")
                .replace("min = 2", "min = 2\nprecision_pct = 5"),
            "add [objective]",
        ),
        (format!("set = {{ hogs = 1 }}\n{STUDY}"), "is in [set], too"),
        (format!("{STUDY}[points]\nmethod = \"sobol\"\ncount = 0\n"), "0 points"),
        (format!("nothing = 1\n{STUDY}"), "unknown field"),
        (STUDY.replace("[space]", "[space]\nguest = [\"linux\"]"), "`guest` has no effect"),
    ] {
        let said = parse(&text).map(|study| Plan::new(&study).refusal().unwrap_or("nothing").to_owned());
        let said = said.unwrap_or_else(|error| error.to_string());
        assert!(said.contains(says), "{text}\n{said}");
    }
}
