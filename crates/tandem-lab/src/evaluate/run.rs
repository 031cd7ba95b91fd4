//! Runs cases: under the candidate, and under Linux for reference.

use super::Candidate;
use super::suite::{Case, Role, Suite};
use crate::check::judge::{Finding, judge_and_measure, time};
use crate::check::promises::{Promise, WAKE_UP_NS};
use crate::scenario::policy::compiled::{self, Program};
use crate::scenario::policy::user_space::UserSpace;
use crate::summary::hash_of_texts;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use tandem_ebpf::Code;
use tandem_machine::Machine;
use tandem_sim::RunError;
use tandem_sim::metrics::{RunMetrics, VmMetrics};
use tandem_sim::policy::sched_ext::KernelVersion;
use tandem_sim::scenario::{PolicySettings, Scenario};
use tandem_sim::times::Times;

/// Time for which a runnable task may not run before the watchdog ends the run, ns: much more than any scheduler needs in
/// cases of seconds.
const WATCHDOG_NS: u64 = 1_000_000_000;
/// The percentile that is the tail of a delay.
const TAIL: f64 = 0.99;
/// Times that a tail needs.
const TAIL_TIMES_MIN: u64 = 50;

/// What a VM, or a set of processes, got in a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Got {
    /// Its name.
    pub name: String,
    /// Work done, by counter.
    pub work: BTreeMap<String, u64>,
    /// The 99th percentile of its response times, or of the delays of its wake-ups where it answers nobody, ns. What has not
    /// been answered at the end, and who still waits, count with the time so far. `None` if there are too few.
    pub tail_ns: Option<u64>,
}

/// What became of a case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// What each got; empty in guards, and if the scheduler failed.
    pub got: Vec<Got>,
    /// Promises that it broke.
    pub broken: Vec<Broken>,
}

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Broken {
    /// Its name.
    pub promise: String,
    /// For whom.
    pub who: String,
    /// What was seen, and what is allowed.
    pub seen: String,
    /// When, in words.
    pub at: String,
}

impl From<Finding> for Broken {
    fn from(finding: Finding) -> Self {
        Self {
            promise: finding.promise.text().name.into(),
            who: finding.who,
            seen: finding.seen,
            at: time(finding.at_ns),
        }
    }
}

/// A candidate that can run.
#[derive(Debug)]
pub struct Loaded {
    name: String,
    code: Arc<Code>,
    suite: Suite,
}

impl Loaded {
    /// Links and compiles the object.
    ///
    /// # Errors
    /// A sentence: why it cannot be used.
    pub fn new(candidate: Candidate<'_>, suite: Suite) -> Result<Self, String> {
        let code = compiled::load(candidate.object, KernelVersion::default())?;
        Ok(Self { name: candidate.name.into(), code, suite })
    }

    /// The policy that it is for a kernel on a machine.
    fn policy(&self, is_guest: bool, machine: &Machine) -> Result<PolicySettings, String> {
        let program = Program::Loaded {
            name: self.name.clone(),
            code: Arc::clone(&self.code),
            user_space: UserSpace::default(),
        };
        let settings = compiled::settings(program, KernelVersion::default(), is_guest, machine)?;
        let watchdog_ns = settings.watchdog_timeout_ns.unwrap_or(WATCHDOG_NS).min(WATCHDOG_NS);
        Ok(PolicySettings::SchedExt(
            tandem_sim::policy::sched_ext::SchedExtSettings {
                watchdog_timeout_ns: Some(watchdog_ns),
                ..settings
            }
            .into(),
        ))
    }

    /// The scenario of a case with the candidate in the place of Linux.
    ///
    /// # Errors
    /// A sentence: why the candidate cannot run on that machine.
    pub fn scenario(&self, case: &Case) -> Result<Scenario, String> {
        if self.suite != Suite::Guests || case.role != Role::Scored {
            let host = self.policy(false, case.source()?.machine())?;
            return case.scenario(Some(host));
        }
        let mut scenario = case.scenario(None)?;
        for guest in scenario.workloads.iter_mut().filter_map(|workload| workload.guest_mut()) {
            guest.policy = self.policy(true, &guest.topology)?;
        }
        Ok(scenario)
    }

    /// Runs a case, and judges it.
    ///
    /// # Errors
    /// By a mistake of the suite alone.
    pub fn run(&self, case: &Case) -> Result<Outcome, String> {
        let scenario = match self.scenario(case) {
            Ok(scenario) => scenario,
            Err(seen) => {
                let (promise, who) = (Promise::Runs.text().name.into(), "the scheduler".into());
                let broken = Broken { promise, who, seen, at: time(0) };
                return Ok(Outcome { got: Vec::new(), broken: vec![broken] });
            }
        };
        let promises: &[Promise] = match case.role {
            Role::Guard(kind) => kind.promises(),
            Role::Scored => &[Promise::Runs, Promise::Waits, Promise::Cost],
        };
        let judged = judge_and_measure(&scenario, case.seed, promises)
            .map_err(|error: RunError| format!("{}: {error}", case.name))?;
        let got = judged.metrics.filter(|_| case.role == Role::Scored).map(|metrics| got(&metrics));
        Ok(Outcome {
            got: got.unwrap_or_default(),
            broken: judged.findings.into_iter().map(Broken::from).collect(),
        })
    }
}

/// What each got.
fn got(metrics: &RunMetrics) -> Vec<Got> {
    let of_vm = |vm: &VmMetrics| Got { name: vm.name.clone(), work: vm.counts.clone(), tail_ns: tail_ns(vm) };
    metrics.vms.iter().map(of_vm).collect()
}

/// The tail of what a VM waits for.
fn tail_ns(vm: &VmMetrics) -> Option<u64> {
    let times = match vm.response.count() + vm.unanswered.count() {
        0 => vm.vcpu_delay.clone(),
        _ => Times::sum([&vm.response, &vm.unanswered]),
    };
    // Differences of less than a wake-up takes are none.
    (times.count() >= TAIL_TIMES_MIN).then(|| times.quantiles_ns([TAIL])[0] + WAKE_UP_NS)
}

/// What each gets under Linux, by case. It depends on the suite and the program, and on nothing else.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct References(BTreeMap<String, Vec<Got>>);

impl References {
    /// Runs the scored cases that are missing; whether there were any.
    ///
    /// # Errors
    /// By a mistake of the suite alone.
    pub fn complete(&mut self, cases: &[Case]) -> Result<bool, String> {
        let mut is_new = false;
        for case in cases.iter().filter(|case| case.role == Role::Scored) {
            let key = Self::key(case);
            if self.0.contains_key(&key) {
                continue;
            }
            let scenario = case.scenario(None)?;
            let metrics =
                tandem_sim::run(&scenario, case.seed).map_err(|error| format!("{}: {error}", case.name))?;
            self.0.insert(key, got(&metrics));
            is_new = true;
        }
        Ok(is_new)
    }

    /// Those of a case.
    pub fn of(&self, case: &Case) -> Option<&[Got]> {
        self.0.get(&Self::key(case)).map(Vec::as_slice)
    }

    /// Those of one case alone.
    #[cfg(test)]
    pub(super) fn with(case: &Case, got: Vec<Got>) -> Self {
        Self([(Self::key(case), got)].into())
    }

    fn key(case: &Case) -> String {
        hash_of_texts([case.text.as_str(), &case.seed.to_string()].into_iter())
    }
}
