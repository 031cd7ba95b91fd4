//! The search as a whole.

use super::generate;
use super::judge::Finding;
use super::plan::Plan;
use super::promises::Promise;
use super::search::{Options, Progress, all_promises, scenario, search};
use crate::scenario::policy::scheduler::SchedulerName;
use std::num::NonZeroUsize;

struct Quiet;

impl Progress for Quiet {
    fn tried(&self, _: u64, _: &[Finding]) {}

    fn shrinks(&self, _: Promise) {}

    fn is_over(&self) -> bool {
        false
    }
}

#[test]
fn every_plan_is_a_scenario() {
    for case in 0..300 {
        let plan = generate::plan(3, case, false);
        if let Err(error) = scenario(&plan, &SchedulerName::Linux) {
            panic!("case {case}: {error}\n{}", plan.to_toml("linux"));
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
        assert!(plan.to_toml("linux").contains("\ntickless = \""));
    }
}

#[test]
fn what_is_found_does_not_depend_on_the_number_of_threads() {
    let with_jobs = |jobs| {
        let options = Options {
            seed: 5,
            cases: 0..24,
            host: SchedulerName::XenCredit,
            except: None,
            promises: all_promises(),
            keep: 1,
            first_only: true,
            jobs: NonZeroUsize::new(jobs).unwrap(),
        };
        search(&options, &Quiet).unwrap()
    };
    let one = with_jobs(1);
    assert_eq!(one, with_jobs(2));
    assert!(!one.found.is_empty(), "Xen's credit scheduler lets tasks wait for longer than promised");
}
