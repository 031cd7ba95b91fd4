//! Tests of suites and scores that need no compiled candidate.

use super::fair::{Sharer, Shares};
use super::reasons::Kind;
use super::run::{Got, Outcome, Reference, References};
use super::score::{GAIN_MAX, Score, parts};
use super::suite::{Role, Split, Suite};
use super::*;
use crate::scenario::policy::PolicyTable;
use crate::scenario::policy::scheduler::{HostScheduler, SchedulerName};
use std::collections::BTreeSet;

#[test]
fn every_case_of_every_suite_is_a_scenario() {
    for suite in Suite::ALL {
        for split in Split::ALL {
            for seed in [0, 1, 2, u64::MAX] {
                for case in suite.cases(Options { split, seed }) {
                    // Only a compiled scheduler can run guards.
                    let source = case.source().unwrap();
                    let host = HostScheduler::from(SchedulerName::Tandem);
                    let policy = PolicyTable { host: Some(host), ..PolicyTable::default() };
                    let built = source.build(&Default::default(), &policy);
                    built.unwrap_or_else(|error| panic!("{error}\n{}", case.text));
                }
            }
        }
    }
}

#[test]
fn splits_and_seeds_share_no_case_and_no_machine() {
    let cases = |split, seed| Suite::Hosts.cases(Options { split, seed });
    let mut seen = BTreeSet::new();
    for (split, seed) in [(Split::Train, 1), (Split::Train, 2), (Split::Validation, 1), (Split::Test, 1)] {
        assert_eq!(cases(split, seed), cases(split, seed));
        assert!(cases(split, seed).into_iter().all(|case| seen.insert((case.seed, case.text))));
    }
    let machines = |split| {
        let all = (1..20).flat_map(|seed| cases(split, seed));
        all.filter(|case| case.role == Role::Scored)
            .map(|case| case.source().unwrap().machine().cpu_count())
            .collect::<BTreeSet<_>>()
    };
    let (train, validation, test) =
        (machines(Split::Train), machines(Split::Validation), machines(Split::Test));
    assert!(train.is_disjoint(&validation) && train.is_disjoint(&test) && validation.is_disjoint(&test));
    assert!(train.len() > 2);
}

/// Work and tails of four VMs, against a reference of 1,000 and 1 ms each.
fn scored(work: [u64; 4], tails_us: [u64; 4]) -> (f64, Vec<Reason>) {
    let case = Suite::Hosts.cases(Options::default()).pop().unwrap();
    let got = |work: [u64; 4], tails_us: [u64; 4]| -> Vec<Got> {
        let of = |(at, (&work, &us)): (usize, (&u64, &u64))| Got {
            name: format!("v{at}"),
            work: [("done".to_owned(), work - 1)].into(),
            ran_ns: work,
            longest_wait_ns: 0,
            least_served: None,
            tail_ns: Some(us * 1_000),
        };
        work.iter().zip(&tails_us).enumerate().map(of).collect()
    };
    let sharer = Sharer { weight: 256, tasks: 2, alone_ns: 1_000 };
    let shares = Shares { cpus: 4, length_ns: 1_000, all: vec![sharer; 4] };
    let references = References::with(&case, Reference { linux: got([1_000; 4], [1_000; 4]), shares });
    let outcome = Outcome { got: got(work, tails_us), broken: vec![] };
    let (parts, reasons) = parts(&[case], &[outcome], &references);
    (parts.values().next().unwrap().score.0, reasons)
}

#[test]
fn the_score_is_one_for_linux_and_pays_for_no_loss() {
    let even = [1_000; 4];
    assert_eq!(scored(even, even), (1.0, vec![]));
    let (better, _) = scored([1_000; 4], [500; 4]);
    assert!((better - 2.0_f64.sqrt()).abs() < 1e-12, "{better}");
    // What one loses, another gains: the mean of ratios is as before.
    assert!(scored([1_400, 600, 1_000, 1_000], even).0 < 1.0);
    // No gain is worth more than that.
    let (most, _) = scored([1_000_000, 1_000, 1_000, 1_000], even);
    assert!((most - GAIN_MAX.powf(1.0 / 8.0)).abs() < 1e-12);
    let (_, reasons) = scored([4_000, 4_000, 4_000, 150], even);
    assert_eq!(reasons.iter().map(|reason| reason.kind).collect::<Vec<_>>(), [Kind::Sold]);
    assert!(reasons[0].message.contains("`v3` gets 15% of its fair share"), "{}", reasons[0].message);
    let (_, reasons) = scored([4_000; 4], [100, 100, 100, 20_000]);
    assert!(reasons[0].message.contains("`v3` waits 20.0 times as long"), "{}", reasons[0].message);
}

#[test]
fn nobody_starves_behind_siblings() {
    let kinds = |change: &dyn Fn(&mut Got)| {
        let case = Suite::Hosts.cases(Options::default()).pop().unwrap();
        let mut got = Got {
            name: "v0".into(),
            work: [("done".to_owned(), 9)].into(),
            ran_ns: 2_000,
            longest_wait_ns: 250,
            least_served: Some(0.25),
            tail_ns: None,
        };
        let shares = Shares {
            cpus: 4,
            length_ns: 1_000,
            all: vec![Sharer { weight: 256, tasks: 2, alone_ns: 2_000 }],
        };
        let references = References::with(&case, Reference { linux: vec![got.clone()], shares });
        change(&mut got);
        let (_, reasons) = parts(&[case], &[Outcome { got: vec![got], broken: vec![] }], &references);
        reasons.into_iter().map(|reason| reason.kind).collect::<Vec<_>>()
    };
    assert_eq!(kinds(&|_| {}), []);
    assert_eq!(kinds(&|got| got.longest_wait_ns += 1), [Kind::Starvation]);
    assert_eq!(kinds(&|got| got.least_served = Some(0.24)), [Kind::Starvation]);
    assert_eq!(kinds(&|got| got.least_served = None), []);
}

#[test]
fn shares_are_by_weight_and_demand() {
    let sharer = |weight, tasks, alone_ns| Sharer { weight, tasks, alone_ns };
    let shares = |all: &[Sharer]| Shares { cpus: 4, length_ns: 1_000, all: all.to_vec() };
    let fair = |all: &[Sharer], got: &[u64]| -> Vec<u64> {
        shares(all).fair_ns(got).into_iter().map(|ns| ns.round() as u64).collect()
    };
    // Who needs little has all of it; the others share the rest, whatever they got.
    let two = [sharer(256, 4, 4_000), sharer(256, 4, 4_000)];
    assert_eq!(fair(&two, &[4_000, 0]), [2_000, 2_000]);
    assert_eq!(fair(&[sharer(256, 4, 1_000), two[1].clone()], &[0, 4_000]), [1_000, 3_000]);
    assert_eq!(fair(&[sharer(768, 4, 4_000), two[1].clone()], &[0, 0]), [3_000, 1_000]);
    // One that took more than it does alone needed more.
    assert_eq!(fair(&[sharer(256, 4, 1_000), two[1].clone()], &[1_500, 2_500]), [1_500, 2_500]);
    // Between VMs, or between their tasks: the smaller of the two counts.
    assert_eq!(fair(&[sharer(256, 1, 1_000), sharer(256, 7, 4_000)], &[0, 0]), [500, 3_000]);
    assert_eq!(fair(&[sharer(256, 4, 0), two[1].clone()], &[0, 0]), [1, 3_999]);
}

#[test]
fn a_score_is_a_number_or_a_text_in_json() {
    assert_eq!(serde_json::to_string(&Score(1.25)).unwrap(), "1.25");
    assert_eq!(serde_json::to_string(&Score::REFUSED).unwrap(), "\"-inf\"");
    assert_eq!("-inf".parse::<f64>().unwrap(), f64::NEG_INFINITY);
}

#[test]
fn a_reason_is_bounded_and_shows_no_control_characters() {
    let reason = Reason::new(Kind::Compile, None, format!("\u{1b}[31mred\n{}", "x".repeat(100_000)));
    assert!(reason.message.starts_with("\\u{1b}[31mred\nx"), "{:.40}", reason.message);
    assert!(reason.message.len() < reasons::MESSAGE_MAX + 10);
}

#[test]
fn what_is_no_object_is_refused_with_a_reason() {
    let candidate = Candidate::object("none", b"text");
    let evaluation =
        evaluate(candidate, Suite::Hosts, Options::default(), &mut References::default()).unwrap();
    assert_eq!(evaluation.combined_score, Score::REFUSED);
    assert_eq!(evaluation.reasons[0].kind, Kind::Load);
}

#[test]
fn what_has_no_answer_at_the_end_has_a_time() {
    // Requests come each 4 ms, and an answer takes 10: the first is there at 14 ms, and three wait or are worked on at 19. Of work that a
    // task times itself, 15 ms each, a second round has begun at 15.
    const TEXT: &str = r#"
        length = "19ms"
        machine = "1x2x1"
        policy = { host = "linux" }
        programs.server.ops = [{ forever = [{ wait = "requests" }, { compute = "10ms" }, "respond"] }]
        programs.timer.ops = [{ forever = ["start_timer", { compute = "15ms" }, "stop_timer"] }]
        [[vm]]
        group = "served"
        vcpus = 1
        memory = "1GiB"
        programs = ["server"]
        [[vm.source]]
        channel = "requests"
        arrivals = { every = "4ms" }
        [[vm]]
        group = "timed"
        vcpus = 1
        memory = "1GiB"
        programs = ["timer"]
    "#;
    let case = Case { name: "late".into(), role: Role::Scored, seed: 1, text: TEXT.into() };
    let metrics = tandem_sim::run(&case.scenario(None).unwrap(), 1).unwrap();
    let [served, timed] = &metrics.vms[..] else { panic!("two VMs") };
    let longest_ms = |times: &tandem_sim::times::Times| times.quantiles_ns([1.0])[0].div_ceil(1_000_000);
    assert_eq!((served.response.count(), served.unanswered.count()), (1, 3));
    assert!((10..=12).contains(&longest_ms(&served.unanswered)), "{}", longest_ms(&served.unanswered));
    assert_eq!((timed.response.count(), timed.unanswered.count()), (1, 1));
    assert!((3..=5).contains(&longest_ms(&timed.unanswered)), "{}", longest_ms(&timed.unanswered));
}
