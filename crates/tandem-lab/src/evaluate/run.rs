//! Runs cases: under the candidate, and under Linux for reference.

use super::fair::Shares;
use super::suite::{Case, Role, Suite};
use super::{Candidate, Scheduler};
use crate::check::judge::{Finding, judge_and_measure, time};
use crate::check::promises::{Promise, WAKE_UP_NS};
use crate::scenario::policy::compiled::{self, Program};
use crate::scenario::policy::user_space::UserSpace;
use crate::summary::hash_of_texts;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tandem_ebpf::{Code, Engine};
use tandem_machine::Machine;
use tandem_settings::Settings;
use tandem_sim::RunError;
use tandem_sim::metrics::{RunMetrics, TaskMetrics, VmMetrics};
use tandem_sim::policy::sched_ext::KernelVersion;
use tandem_sim::scenario::{PolicySettings, Scenario};
use tandem_sim::times::Times;

/// Time for which a runnable task may not run before the watchdog ends the run, ns: much more than any scheduler needs in
/// cases of seconds.
const WATCHDOG_NS: u64 = 1_000_000_000;
/// Instructions that the programs of a scheduler may execute in a case, as [`Code::bounded`] counts them. Tandem's take up to 440
/// million in the cases of `hosts`, those of small schedulers 10 million.
pub const INSTRUCTIONS_MAX: u64 = 10_000_000_000;
/// The percentile that is the tail of a delay.
const TAIL: f64 = 0.99;
/// The part of the measured time for which a task can run that its VM's other tasks are compared with.
pub const WANTS_MIN: f64 = 0.2;
/// Times that a tail needs.
const TAIL_TIMES_MIN: u64 = 50;

/// What a VM, or a set of processes, got in a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Got {
    /// Its name.
    pub name: String,
    /// Work done, by counter.
    pub work: BTreeMap<String, u64>,
    /// CPU time of its tasks, ns.
    pub ran_ns: u64,
    /// The longest that one of its tasks, on the host or in its guest, could run and did not, ns.
    pub longest_wait_ns: u64,
    /// Of a task's time in which it can run, the part in which it runs, against that of all tasks together: the least of those
    /// that can run for [`WANTS_MIN`] of the time. `None` if none can.
    pub least_served: Option<f64>,
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

impl Broken {
    /// Whether it spent all instructions that it may execute.
    pub(super) fn is_limit(&self) -> bool {
        self.seen.contains(Code::BUDGET_SPENT)
    }
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
    code: LoadedCode,
    suite: Suite,
}

/// What runs.
#[derive(Debug)]
enum LoadedCode {
    /// A stranger's.
    Object(Arc<Code>),
    /// Tandem's own, which is compiled once for all settings.
    Tandem(Box<Settings>),
}

impl Loaded {
    /// Links and compiles the object, if it is one.
    ///
    /// # Errors
    /// A sentence: why it cannot be used.
    pub fn new(candidate: Candidate<'_>, suite: Suite) -> Result<Self, String> {
        Self::bounded(candidate, suite, false, INSTRUCTIONS_MAX)
    }

    /// The same with another bound than [`INSTRUCTIONS_MAX`], and with an interpreter in the place of machine code, which is many
    /// times slower, if that is wanted. For tests: they have to agree.
    ///
    /// # Errors
    /// As [`Loaded::new`].
    pub fn bounded(
        candidate: Candidate<'_>,
        suite: Suite,
        is_interpreted: bool,
        instructions: u64,
    ) -> Result<Self, String> {
        let engine = if is_interpreted { Engine::Interpreted } else { Engine::Compiled };
        let code = match candidate.scheduler {
            Scheduler::Object(object) => {
                LoadedCode::Object(compiled::load(object, KernelVersion::default(), engine, instructions)?)
            }
            // What is for real hosts alone has nothing to do with how it schedules.
            Scheduler::Tandem(settings) => LoadedCode::Tandem(settings.scheduler_only().into()),
        };
        Ok(Self { name: candidate.name.into(), code, suite })
    }

    /// The policy that it is for a kernel on a machine.
    fn policy(&self, is_guest: bool, machine: &Machine) -> Result<PolicySettings, String> {
        let program = match &self.code {
            LoadedCode::Object(code) => Program::Loaded {
                name: self.name.clone(),
                code: Arc::clone(code),
                user_space: UserSpace::default(),
            },
            LoadedCode::Tandem(settings) => Program::Tandem(Some(settings)),
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

    /// Runs cases one after the other, and judges them; `None` if `ended` is set before the last one. What spends all
    /// instructions that it may execute does so in every case: none comes after that.
    ///
    /// # Errors
    /// By a mistake of the suite alone.
    pub fn outcomes(&self, cases: &[Case], ended: &AtomicBool) -> Result<Option<Vec<Outcome>>, String> {
        let mut outcomes = Vec::new();
        for case in cases {
            if ended.load(Ordering::Relaxed) {
                return Ok(None);
            }
            let outcome = self.run(case)?;
            let is_limited = outcome.broken.iter().any(Broken::is_limit);
            outcomes.push(outcome);
            if is_limited {
                break;
            }
        }
        Ok(Some(outcomes))
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
    let of_vm = |vm: &VmMetrics| {
        let sum = TaskMetrics::sum(&vm.vcpus);
        let programs = vm.guest.iter().flat_map(|guest| &guest.programs);
        let in_guest = programs.map(|program| program.total.longest_wait_ns).max().unwrap_or(0);
        Got {
            name: vm.name.clone(),
            work: vm.counts.clone(),
            ran_ns: sum.run_ns,
            longest_wait_ns: sum.longest_wait_ns.max(in_guest),
            least_served: least_served(vm, &sum, metrics.length_ns),
            tail_ns: tail_ns(vm),
        }
    };
    metrics.vms.iter().map(of_vm).collect()
}

/// See [`Got::least_served`].
fn least_served(vm: &VmMetrics, sum: &TaskMetrics, length_ns: u64) -> Option<f64> {
    let wants = |task: &TaskMetrics| (task.run_ns + task.wait_ns) as f64;
    let served = |task: &TaskMetrics| task.run_ns as f64 / wants(task);
    let want = vm.vcpus.iter().filter(|task| wants(task) >= WANTS_MIN * length_ns as f64);
    want.map(|task| served(task) / served(sum).max(1e-9)).min_by(f64::total_cmp)
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

/// What a candidate is compared with in a case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reference {
    /// What each gets under Linux.
    pub linux: Vec<Got>,
    /// What is fair.
    pub shares: Shares,
}

impl Reference {
    /// Whether it says something of each.
    fn is_whole(&self) -> bool {
        !self.linux.is_empty() && self.linux.len() == self.shares.all.len()
    }
}

/// The references of all cases. They depend on the suite and the program, and on nothing else.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct References(BTreeMap<String, Reference>);

impl References {
    /// Runs the scored cases that are missing; whether there were any.
    ///
    /// # Errors
    /// By a mistake of the suite alone.
    pub fn complete(&mut self, cases: &[Case]) -> Result<bool, String> {
        let mut is_new = false;
        for case in cases.iter().filter(|case| case.role == Role::Scored) {
            let key = Self::key(case);
            if self.0.get(&key).is_some_and(Reference::is_whole) {
                continue;
            }
            let scenario = case.scenario(None)?;
            let failed = |error: RunError| format!("{}: {error}", case.name);
            let metrics = tandem_sim::run(&scenario, case.seed).map_err(failed)?;
            let shares = Shares::new(&scenario, case.seed).map_err(failed)?;
            self.0.insert(key, Reference { linux: got(&metrics), shares });
            is_new = true;
        }
        Ok(is_new)
    }

    /// Those of a case.
    pub fn of(&self, case: &Case) -> Option<&Reference> {
        self.0.get(&Self::key(case))
    }

    /// Those of one case alone.
    #[cfg(test)]
    pub(super) fn with(case: &Case, reference: Reference) -> Self {
        Self([(Self::key(case), reference)].into())
    }

    fn key(case: &Case) -> String {
        hash_of_texts([case.text.as_str(), &case.seed.to_string()].into_iter())
    }
}
