//! Runs repeat exactly, in either engine, and beside any other run.

use crate::levels::{LEVELS, two_levels};
use crate::support::{build, with_engine};
use tandem_ebpf::Engine;

#[test]
fn a_seed_gives_one_run_whatever_the_engine() {
    for (host, guest) in LEVELS {
        let scenario = build(&two_levels(host, guest));
        let hash = |engine, seed| {
            tandem_sim::run(&with_engine(&scenario, engine), seed)
                .unwrap_or_else(|error| panic!("{error}"))
                .trace_hash
        };
        let first = hash(Engine::Compiled, 1);
        assert_eq!(first, hash(Engine::Compiled, 1), "{host} and {guest}, again");
        assert_eq!(first, hash(Engine::Interpreted, 1), "{host} and {guest}, interpreted");
        assert_ne!(first, hash(Engine::Compiled, 2), "{host} and {guest}, another seed");
    }
}

#[test]
fn runs_at_the_same_time_do_not_disturb_each_other() {
    let alone: Vec<_> = LEVELS.map(|(host, guest)| hash(host, guest)).into();
    let together = std::thread::scope(|scope| {
        let runs = LEVELS.map(|(host, guest)| scope.spawn(move || hash(host, guest)));
        Vec::from(runs.map(|run| run.join().expect("no run panics")))
    });
    assert_eq!(alone, together);
}

fn hash(host: &str, guest: &str) -> u64 {
    tandem_sim::run(&build(&two_levels(host, guest)), 1).unwrap_or_else(|error| panic!("{error}")).trace_hash
}
