//! Ways to raise a number without being a better scheduler, and what stops each.
//!
//! Each cheat is a change of one honest scheduler. A naive measure, such as many evaluators have, shows that the cheat pays
//! there; the evaluation refuses it, or does not think it better than the honest one.

use std::fs;
use std::sync::OnceLock;
use tandem_lab::evaluate::reasons::Kind;
use tandem_lab::evaluate::run::{Loaded, References};
use tandem_lab::evaluate::suite::{Role, Split, Suite};
use tandem_lab::evaluate::{Candidate, Evaluation, Options, evaluate};
use tandem_sim::metrics::RunMetrics;
use tandem_sim::times::Times;

/// Half a percent: two honest schedulers that differ in nothing but luck differ by as much.
const LUCK: f64 = 0.005;

/// What a careless evaluator would look at: more is better.
#[derive(Clone, Copy, Debug)]
enum Naive {
    /// How short the 99th percentile of all answers is.
    Answers,
    /// How short the mean of all answers is.
    MeanAnswer,
    /// All that is counted, summed up.
    Work,
    /// The work of VMs that compute and answer nobody.
    Batch,
    /// Work for each switch between tasks.
    Switches,
    /// Work for each busy CPU.
    Busy,
    /// Nothing that is measured.
    Nothing,
}

fn runs(name: &str) -> Vec<RunMetrics> {
    let object = object(name);
    let loaded = Loaded::new(Candidate::object(name, &object), Suite::Hosts).unwrap();
    let scored = Suite::Hosts.cases(Options::default()).into_iter().filter(|case| case.role == Role::Scored);
    let run = |case| tandem_sim::run(&loaded.scenario(&case).unwrap(), case.seed).ok();
    scored.filter_map(run).collect()
}

fn object(name: &str) -> Vec<u8> {
    fs::read(scheduler_tests::object(name)).unwrap()
}

fn judged(name: &str, split: Split) -> Evaluation {
    static REFERENCES: OnceLock<std::sync::Mutex<References>> = OnceLock::new();
    let mut references = REFERENCES.get_or_init(Default::default).lock().unwrap();
    let object = object(name);
    let candidate = Candidate::object(name, &object);
    evaluate(candidate, Suite::Hosts, Options { split, seed: 1 }, &mut references).unwrap()
}

impl Naive {
    fn of(self, runs: &[RunMetrics]) -> f64 {
        let vms = || runs.iter().flat_map(|run| &run.vms);
        let count = |run: &RunMetrics| run.vms.iter().flat_map(|vm| vm.counts.values()).sum::<u64>() as f64;
        let work = || runs.iter().map(count).sum::<f64>();
        match self {
            Self::Answers => 1.0 / Times::sum(vms().map(|vm| &vm.response)).quantiles_ns([0.99])[0] as f64,
            Self::MeanAnswer => 1.0 / Times::sum(vms().map(|vm| &vm.response)).mean_ns(),
            Self::Work => work(),
            Self::Batch => {
                let batch = vms().filter(|vm| vm.response.count() + vm.unanswered.count() == 0);
                batch.flat_map(|vm| vm.counts.values()).sum::<u64>() as f64
            }
            Self::Switches => {
                work() / vms().flat_map(|vm| &vm.vcpus).map(|vcpu| vcpu.switches()).sum::<u64>() as f64
            }
            Self::Busy => work() / runs.iter().map(|run| run.host.busy_ns).sum::<u64>() as f64,
            Self::Nothing => 0.0,
        }
    }
}

/// What stops a cheat.
enum Defence {
    /// It has no number, for a reason of one of these kinds.
    Refused(&'static [Kind]),
    /// It is no better than the honest scheduler.
    NoBetter,
    /// It cannot tell what it looks for: its number is the very same.
    Same,
    /// It is no better where it has not been before: its number for validation is the very same.
    SameElsewhere,
}

use Defence::{NoBetter, Refused, Same, SameElsewhere};
use Kind::{Fault, Promise, Sold, Starvation, Watchdog};

/// Each cheat, what it is good for in the eyes of a careless evaluator, and what stops it.
const CHEATS: [(&str, Naive, Defence); 22] = [
    ("starves_batch", Naive::Answers, Refused(&[Watchdog, Starvation])),
    ("starves_when_busy", Naive::Batch, Refused(&[Promise])),
    ("starves_one", Naive::MeanAnswer, Refused(&[Watchdog, Starvation])),
    ("batch_first", Naive::Batch, NoBetter),
    ("sells_batch", Naive::Work, NoBetter),
    ("ignores_weights", Naive::Work, Refused(&[Promise])),
    ("raises_weight", Naive::Answers, Refused(&[Watchdog, Starvation, Promise])),
    ("knows_names", Naive::Nothing, Same),
    ("knows_pids", Naive::Switches, NoBetter),
    ("knows_cgroups", Naive::Work, Refused(&[Promise])),
    ("knows_sizes", Naive::Work, NoBetter),
    ("knows_the_cases", Naive::MeanAnswer, SameElsewhere),
    ("knows_the_end", Naive::Nothing, Refused(&[Watchdog])),
    ("detects_warm_up", Naive::Work, NoBetter),
    ("hurries_at_the_end", Naive::MeanAnswer, Refused(&[Watchdog, Starvation])),
    ("holds_back_slow", Naive::Answers, Refused(&[Watchdog, Starvation])),
    ("drops_work", Naive::Answers, Refused(&[Watchdog, Starvation])),
    ("kicks_some", Naive::Busy, NoBetter),
    ("closes_cpus", Naive::Busy, Refused(&[Watchdog, Promise, Sold])),
    ("never_preempts", Naive::Switches, Refused(&[Watchdog, Starvation])),
    ("rolls_dice", Naive::Batch, NoBetter),
    ("gives_up", Naive::Nothing, Refused(&[Fault])),
];

#[test]
fn no_cheat_is_worth_more_than_an_honest_scheduler() {
    let (honest_runs, honest) = (runs("honest"), judged("honest", Split::Train));
    assert_eq!(honest.reasons, [], "the honest scheduler breaks no rule");
    let mut wrong = Vec::new();
    for (name, naive, defence) in CHEATS {
        let cheat = judged(name, Split::Train);
        let (score, honest_score) = (cheat.combined_score.0, honest.combined_score.0);
        let kinds: Vec<Kind> = cheat.reasons.iter().map(|reason| reason.kind).collect();
        let is_stopped = match defence {
            Refused(expected) => {
                score == f64::NEG_INFINITY && kinds.iter().any(|kind| expected.contains(kind))
            }
            NoBetter => score <= honest_score + LUCK,
            Same => score == honest_score,
            SameElsewhere => {
                judged(name, Split::Validation).combined_score
                    == judged("honest", Split::Validation).combined_score
            }
        };
        let gain = match naive {
            Naive::Nothing => 1.0,
            naive => naive.of(&runs(name)) / naive.of(&honest_runs),
        };
        println!("{name:<20} {naive:?} {gain:.3}, {score:.4} against {honest_score:.4}, {kinds:?}");
        if !is_stopped {
            wrong.push(format!("{name} is not stopped: {score} against {honest_score}, {:?}", cheat.reasons));
        }
        if !matches!(naive, Naive::Nothing) && gain <= 1.0 {
            let all =
                [Naive::Answers, Naive::MeanAnswer, Naive::Work, Naive::Batch, Naive::Switches, Naive::Busy];
            let gains = all.map(|naive| (naive, naive.of(&runs(name)) / naive.of(&honest_runs)));
            wrong.push(format!("{name} does not even pay for the careless by {naive:?}: {gains:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
