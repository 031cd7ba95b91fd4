//! The search as a whole.

use super::generate;
use super::judge::{Finding, judge};
use super::plan::Plan;
use super::promises::Promise;
use super::search::{FoundCase, Options, Progress, all_promises, scenario, search};
use crate::scenario::ScenarioSource;
use crate::scenario::policy::scheduler::SchedulerName;
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Mutex;

/// Keeps what a folder would hold, and ends after a number of shrinking steps.
#[derive(Default)]
struct Folder {
    files: Mutex<BTreeMap<(Promise, u64), Vec<FoundCase>>>,
    smaller_max: Option<usize>,
}

impl Progress for Folder {
    fn tried(&self, _: u64, _: &[Finding]) {}

    fn keeps(&self, found: &FoundCase) {
        let mut files = self.files.lock().unwrap();
        files.entry((found.promise, found.case)).or_default().push(found.clone());
    }

    fn drops(&self, promise: Promise, case: u64) {
        assert!(self.files.lock().unwrap().remove(&(promise, case)).is_some());
    }

    fn shrinks(&self, _: Promise) {}

    fn is_over(&self) -> bool {
        false
    }

    fn is_small_enough(&self) -> bool {
        let files = self.files.lock().unwrap();
        let smaller = files.values().map(|versions| versions.len() - 1).sum::<usize>();
        self.smaller_max.is_some_and(|most| smaller >= most)
    }
}

/// A search under Xen's credit scheduler, which lets tasks wait for longer than promised.
fn options(jobs: usize) -> Options {
    Options {
        seed: 5,
        cases: 0..24,
        host: SchedulerName::XenCredit,
        except: None,
        promises: all_promises(),
        keep: 1,
        first_only: true,
        jobs: NonZeroUsize::new(jobs).unwrap(),
    }
}

#[test]
fn every_plan_is_a_scenario() {
    for case in 0..300 {
        let plan = generate::plan(3, case, false);
        if let Err(error) = scenario(&plan, &SchedulerName::Linux) {
            panic!("case {case}: {error}\n{}", plan.to_toml(&SchedulerName::Linux));
        }
    }
}

#[test]
fn some_machines_have_cpus_without_a_tick() {
    let plans: Vec<_> = (0..400).map(|case| generate::plan(3, case, true)).collect();
    let counts = |plan: &Plan| (plan.machine.tickless.len(), plan.machine.cpus() as usize);
    let some: Vec<_> = plans.iter().filter(|plan| !plan.machine.tickless.is_empty()).collect();
    assert!((30..70).contains(&some.len()), "{}", some.len());
    assert!(some.iter().any(|plan| counts(plan).0 == counts(plan).1));
    assert!(some.iter().any(|plan| counts(plan).0 < counts(plan).1));
    for plan in some {
        let last = plan.machine.tickless.last().copied();
        assert!(last < Some(plan.machine.cpus()));
        assert!(plan.to_toml(&SchedulerName::Linux).contains("\ntickless = \""));
    }
}

#[test]
fn what_is_found_does_not_depend_on_the_number_of_threads() {
    let with_jobs = |jobs| {
        let folder = Folder::default();
        let outcome = search(&options(jobs), &folder).unwrap();
        let mut files = folder.files.into_inner().unwrap();
        let last: Vec<_> = files.values_mut().filter_map(Vec::pop).collect();
        assert_eq!(last, outcome.found);
        outcome
    };
    let one = with_jobs(1);
    assert_eq!(one, with_jobs(2));
    assert!(!one.found.is_empty() && one.found.iter().all(|found| found.is_small));
}

#[test]
fn what_is_found_is_kept_as_drawn_until_it_is_smaller() {
    let folder = |smaller_max| {
        let folder = Folder { smaller_max: Some(smaller_max), ..Folder::default() };
        let found = search(&options(1), &folder).unwrap().found;
        let [found] = &found[..] else { panic!("{found:?}") };
        assert!(!found.is_small);
        let versions = folder.files.into_inner().unwrap().remove(&(found.promise, found.case)).unwrap();
        assert_eq!(versions.last(), Some(found));
        assert_eq!(versions.len(), 1 + smaller_max);
        versions
    };
    let drawn = folder(0);
    let drawn_plan = &drawn[0].plan;
    let plan = generate::plan(5, drawn[0].case, false);
    assert_eq!(plan, Plan { length_ms: plan.length_ms, ..drawn_plan.clone() }, "but for the length");
    let smaller = folder(1);
    assert_eq!(smaller[0], drawn[0]);
    assert_ne!(smaller[1].plan, drawn[0].plan);
}

#[test]
fn the_first_cases_of_each_promise_are_kept() {
    let folder = Folder { smaller_max: Some(0), ..Folder::default() };
    let outcome = search(&Options { first_only: false, keep: 2, ..options(2) }, &folder).unwrap();
    let mut first = Vec::new();
    for (promise, cases) in &outcome.broken {
        first.extend(cases.iter().take(2).map(|case| (*promise, *case)));
    }
    let found: Vec<_> = outcome.found.iter().map(|found| (found.promise, found.case)).collect();
    assert!(found.iter().all(|key| first.contains(key)));
    assert_eq!(folder.files.into_inner().unwrap().into_keys().collect::<Vec<_>>(), found);
    // A case that breaks several promises appears once.
    let mut cases: Vec<_> = first.into_iter().map(|(_, case)| case).collect();
    cases.sort_unstable();
    cases.dedup();
    assert_eq!(found.len(), cases.len());
}

#[test]
fn tandem_has_the_watchdog_that_it_is_loaded_with() {
    use tandem_settings::Settings;
    use tandem_sim::scenario::{PolicySettings, Scenario};

    let watchdog_ns = |scenario: &Scenario| match &scenario.policy {
        PolicySettings::SchedExt(settings) => settings.watchdog_timeout_ns,
        other => panic!("{other:?}"),
    };
    let plan = generate::plan(3, 0, true);
    let of_run_ns = Settings::default().watchdog.ns;
    assert_eq!(watchdog_ns(&scenario(&plan, &SchedulerName::Tandem).unwrap()), Some(of_run_ns));
    for (policy, expected_ns) in [
        ("", of_run_ns),
        ("settings = { watchdog = \"4 s\" }", 4_000_000_000),
        ("settings = { watchdog = \"4 s\" }, watchdog_timeout = \"2s\"", 2_000_000_000),
    ] {
        let host = "host = \"tandem\"\n";
        let text = plan.to_toml(&SchedulerName::Tandem);
        assert!(text.contains(host));
        let text = text.replacen(host, &format!("host = {{ tandem = {{ {policy} }} }}\n"), 1);
        let source = ScenarioSource::parse(Path::new("s.toml"), &text).unwrap();
        let built = source.build(&Default::default(), &Default::default()).unwrap();
        assert_eq!(watchdog_ns(&built), Some(expected_ns), "{policy}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Threads of cgroups in cgroups have the CPUs almost to themselves until a VM comes that weighs up to
    /// some million times as much as they do. What they ran before must not keep them waiting for longer than
    /// is promised, whatever the weights are; the seed moves the ticks, which say how much that was.
    #[test]
    fn the_lightest_run_beside_the_heaviest_whenever_ticks_come(
        seed: u64,
        heavy in vec((2_560..=25_600u32, any::<bool>()), 1..=3),
        (above, weight) in (1..=100u32, 1..=100u32),
        light in vec(any::<bool>(), 1..=3),
        begins_ms in 100..1_000u32,
    ) {
        let cpus: Vec<String> = (0..heavy.len()).map(|cpu| format!("\"{cpu}\"")).collect();
        let processes: Vec<_> = light
            .iter()
            .map(|pauses| if *pauses { "{ program = \"pauses\" }" } else { "{ program = \"early\" }" })
            .collect();
        let vms: String = heavy
            .iter()
            .enumerate()
            .map(|(number, (weight, beside))| {
                let program = if number == 0 { "late" } else { "early" };
                let cgroup = if *beside && number > 0 { "cgroup = \"a\"\n" } else { "" };
                format!(
                    "[[vm]]\ngroup = \"vm{number}\"\nmemory = \"64MiB\"\nvcpus = 1\nweight = {weight}\n\
                     programs = [\"{program}\"]\n{cgroup}"
                )
            })
            .collect();
        let text = format!(
            "length = \"13s\"\nwarmup = \"500ms\"\n[policy]\nhost = \"tandem\"\n\
             [machine]\nname = \"m\"\n[[machine.node]]\nnumber = 0\nmemory = \"16GiB\"\nbandwidth = \"40GB/s\"\n\
             [[machine.llc]]\nnumber = 0\nsize = \"8MiB\"\n\
             [[machine.cores]]\npackage = 0\nnode = 0\nllc = 0\ncpus = [{}]\n\
             [programs.late]\nops = [{{ sleep = \"{begins_ms}ms\" }}, {{ forever = [{{ compute = \"10ms\" }}] }}]\n\
             [programs.early]\nops = [{{ forever = [{{ compute = \"10ms\" }}] }}]\n\
             [programs.pauses]\nops = [{{ forever = [{{ compute = \"8ms\" }}, {{ sleep = \"200us\" }}] }}]\n\
             [[cgroup]]\npath = \"a\"\nweight = {above}\n[[cgroup]]\npath = \"a/b\"\nweight = {weight}\n\
             {vms}[[processes]]\ngroup = \"light\"\nmemory = \"64MiB\"\ncgroup = \"a/b\"\nthreads = true\n\
             process = [{}]\n",
            cpus.join(", "),
            processes.join(", "),
        );
        let source = ScenarioSource::parse(Path::new("s.toml"), &text).unwrap();
        let scenario = source.build(&Default::default(), &Default::default()).unwrap();
        let found = judge(&scenario, seed, &[Promise::Waits, Promise::Runs]).unwrap();
        let starves = |found: &&Finding| found.promise == Promise::Runs || found.who.starts_with("light");
        prop_assert!(!found.iter().any(|it| starves(&it)), "{found:?}\n{text}");
    }
}
