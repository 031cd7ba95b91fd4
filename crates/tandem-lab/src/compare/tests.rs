use super::*;
use crate::scenario::ScenarioSource;
use crate::scenario::policy::PolicyTable;
use std::path::Path;

/// A host whose CPUs are all busy, and a VM that sleeps most of the time.
pub(crate) fn contenders(policies: &[&str]) -> Vec<Scenario> {
    let text = "length = \"50ms\"\nmachine = \"xeon-e5620-2s\"\n[policy]\nhost = \"HOST\"\n\
        [programs.hog]\nops = [{ forever = [{ compute = \"1ms\" }, { count = \"rounds\" }] }]\n\
        [programs.guest]\nops = [{ forever = [{ compute = { exponential = \"100us\" } }, { sleep = \"1ms\" }] }]\n\
        [[vm]]\ngroup = \"hogs\"\nvcpus = 16\nmemory = \"1GiB\"\nprograms = [\"hog\"]\n\
        [[vm]]\ngroup = \"light\"\nvcpus = 4\nmemory = \"1GiB\"\nprograms = [\"guest\"]\n";
    let build = |policy: &&str| {
        let source = ScenarioSource::parse(Path::new("s.toml"), &text.replace("HOST", policy)).unwrap();
        source.build(&BTreeMap::new(), &PolicyTable::default()).unwrap()
    };
    policies.iter().map(build).collect()
}

pub(crate) fn run(policies: &[&str], seeds: usize, jobs: usize, cancel: bool) -> Option<Comparison> {
    let runs = Runs { seed: 1, seeds, precision_pct: None, jobs: NonZeroUsize::new(jobs).unwrap() };
    let contenders: Vec<_> = contenders(policies).into_iter().map(|it| (None, it)).collect();
    compare("s.toml", &contenders, runs, &(), &AtomicBool::new(cancel)).unwrap()
}

#[test]
fn effects_are_those_of_runs_with_the_same_seeds() {
    let comparison = run(&["xen-credit", "linux", "linux"], 4, 2, false).unwrap();
    assert_eq!(comparison.policies, ["xen-credit 4.9", "linux 6.12", "linux 6.12 #2"]);
    assert_eq!(comparison.seeds, [1, 2, 3, 4]);
    let row = |group: Option<&str>, measure: &str| {
        let is_it = |row: &&Row| row.group.as_deref() == group && row.measure == measure;
        comparison.rows.iter().find(is_it).unwrap_or_else(|| panic!("{measure} of {group:?}"))
    };
    let rounds = row(Some("hogs"), "rounds /s");
    assert!(rounds.figures[0].effect_pct.is_none(), "the baseline has no effect");
    let direct = tandem_sim::run(&contenders(&["linux"])[0], 3).unwrap();
    let count = direct.vms[0].counts["rounds"] as f64;
    assert_eq!(rounds.figures[1].values[2], Some(count / 0.05), "seed 3 gives what the engine gives");
    for row in &comparison.rows {
        assert_eq!(row.figures[1].values, row.figures[2].values, "{}: the same scheduler twice", row.measure);
        let [base, other, _] = &row.figures[..] else { panic!("{}", row.measure) };
        if let Some(effect_pct) = other.effect_pct {
            let (base, other) = (base.mean.unwrap(), other.mean.unwrap());
            assert!((other - base * (1.0 + effect_pct / 100.0)).abs() < 1e-6 * base.abs() + 1e-9);
        }
    }
    assert!(row(Some("light"), "wake-up p99, us").figures[1].interval_pct.is_some());
    let mut intervals =
        comparison.rows.iter().flat_map(|row| &row.figures).filter_map(|figure| figure.interval_pct);
    assert!(intervals.all(|(low_pct, _)| low_pct >= -100.0), "nothing takes away more than all");
    row(None, "idle while tasks wait, % of pCPUs");
}

#[test]
fn the_number_of_jobs_changes_nothing_and_a_cancelled_comparison_has_no_result() {
    let text = |jobs| run(&["linux", "xen-credit2"], 3, jobs, false).unwrap().to_string();
    assert_eq!(text(1), text(3));
    assert!(run(&["linux", "xen-credit"], 2, 1, true).is_none());
}

#[test]
fn an_interval_says_better_or_worse_only_beyond_zero() {
    assert_eq!(Better::Higher.word((1.0, 2.0)), "better");
    assert_eq!(Better::Higher.word((-1.0, 2.0)), "");
    assert_eq!(Better::Lower.word((1.0, 2.0)), "worse");
    assert_eq!(Better::Neither.word((1.0, 2.0)), "");
}
