//! Tries cases on all cores, and shrinks the first one that breaks each promise.
//!
//! The seed and the number of a case determine it: it can be tried again alone, and the findings do not
//! depend on the number of threads.

use super::generate;
use super::judge::{Finding, judge};
use super::kept::Kept;
use super::plan::Plan;
use super::promises::{PROMISES, Promise, WINDOW_NS};
use super::shrink::shrink;
use crate::scenario::ScenarioSource;
use crate::scenario::policy::compiled;
use crate::scenario::policy::scheduler::SchedulerName;
use rayon::iter::{IntoParallelIterator, ParallelBridge, ParallelIterator};
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::Path;
use tandem_file::file_error::FileError;
use tandem_sim::RunError;
use tandem_sim::scenario::Scenario;

/// Seed of every run: the default of `tandem sim`.
pub const RUN_SEED: u64 = 1;
/// Number of cases after which the search checks whether to go on.
const ROUND: u64 = 64;
/// Runs to shrink a case.
const SHRINK_TRIES: usize = 400;

/// Most CPU time of a run that is made longer to see whether shares are wrong in the long run as well, ms.
const LONG_CPU_TIME_MAX_MS: u64 = 1_200_000;

/// What to search.
#[derive(Clone, Debug)]
pub struct Options {
    /// Seed of the search.
    pub seed: u64,
    /// Numbers of the cases.
    pub cases: Range<u64>,
    /// The scheduler of the host.
    pub host: SchedulerName,
    /// Findings that this scheduler has in the same case are left out.
    pub except: Option<SchedulerName>,
    /// Promises that are judged.
    pub promises: Vec<Promise>,
    /// How many cases of each promise are made small.
    pub keep: usize,
    /// Whether to end with the first case that breaks one.
    pub first_only: bool,
    /// Runs at the same time.
    pub jobs: NonZeroUsize,
}

impl Options {
    /// The plan of a case.
    fn plan(&self, case: u64) -> Plan {
        generate::plan(self.seed, case, self.host.is_compiled())
    }
}

/// Why a search could not go on.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The file of a scheduler cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// The scheduler does not fit a case, such as its machine, or, by a mistake of the search, the case is no
    /// scenario.
    #[error("case {case}: {message}")]
    Drawn {
        /// Its number.
        case: u64,
        /// What is wrong.
        message: String,
    },
    /// A run did not come to its end, for a reason other than the scheduler.
    #[error("case {case}: {error}")]
    Run {
        /// Its number.
        case: u64,
        /// What the engine says.
        error: RunError,
    },
    /// The threads could not be started.
    #[error("cannot start threads for the jobs: {0}; try fewer with --jobs")]
    Threads(#[from] rayon::ThreadPoolBuildError),
}

/// A case that breaks a promise, as drawn or smaller.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundCase {
    /// Number of the case.
    pub case: u64,
    /// The promise that it breaks as drawn.
    pub promise: Promise,
    /// The finding for the smallest version so far.
    pub finding: Finding,
    /// The smallest version so far.
    pub plan: Plan,
    /// Whether shrinking ran to its end.
    pub is_small: bool,
}

/// The outcome of a search.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Cases that were tried.
    pub cases: u64,
    /// Those of them that broke each promise.
    pub broken: BTreeMap<Promise, Vec<u64>>,
    /// The first cases of each promise, made small.
    pub found: Vec<FoundCase>,
}

/// Receives the progress of a search, and decides whether it ends. Called from several threads.
pub trait Progress: Sync {
    /// A case was tried, with these findings.
    fn tried(&self, case: u64, findings: &[Finding]);

    /// A case is kept as drawn, or has become smaller. Calls for one case do not overlap.
    fn keeps(&self, found: &FoundCase);

    /// A kept case is dropped: enough others have lower numbers, or another one is equal.
    fn drops(&self, promise: Promise, case: u64);

    /// A case is now being shrunk.
    fn shrinks(&self, promise: Promise);

    /// Whether the search ends without trying more cases.
    fn is_over(&self) -> bool;

    /// Whether shrinking ends.
    fn is_small_enough(&self) -> bool;
}

/// Searches.
///
/// # Errors
/// If the scheduler cannot be used.
pub fn search(options: &Options, progress: &dyn Progress) -> Result<Outcome, CheckError> {
    options.except.iter().chain([&options.host]).try_for_each(compiled::check)?;
    let pool = rayon::ThreadPoolBuilder::new().num_threads(options.jobs.get()).build()?;
    let kept = Kept::new(options.keep, progress);
    let mut outcome = Outcome::default();
    let mut next = options.cases.start;
    while next < options.cases.end && !progress.is_over() {
        let round = next..options.cases.end.min(next + ROUND);
        next = round.end;
        let try_case = |case: u64| {
            if progress.is_over() {
                return None;
            }
            let judged = judge_plan(&options.plan(case), case, options, &options.promises);
            if let Ok((plan, findings)) = &judged {
                progress.tried(case, findings);
                findings.iter().for_each(|finding| kept.add(case, finding, plan));
            }
            Some(judged.map(|(_, findings)| (case, findings)))
        };
        let tried: Result<Vec<_>, CheckError> =
            pool.install(|| round.into_iter().par_bridge().filter_map(try_case).collect());
        let mut tried = tried?;
        tried.sort_by_key(|(case, _)| *case);
        for (case, findings) in tried {
            outcome.cases += 1;
            for finding in findings {
                outcome.broken.entry(finding.promise).or_default().push(case);
            }
        }
        if options.first_only && !outcome.broken.is_empty() {
            break;
        }
    }
    let first = kept.finish(options.first_only);
    let small: Vec<FoundCase> =
        pool.install(|| first.into_par_iter().map(|drawn| make_small(options, progress, drawn)).collect());
    for found in small {
        // One plan may break two promises.
        if outcome.found.iter().all(|other: &FoundCase| other.plan != found.plan) {
            outcome.found.push(found);
        } else {
            progress.drops(found.promise, found.case);
        }
    }
    Ok(outcome)
}

/// The smallest version of a case that breaks the promise and is found in time.
fn make_small(options: &Options, progress: &dyn Progress, drawn: FoundCase) -> FoundCase {
    if progress.is_small_enough() {
        return drawn;
    }
    progress.shrinks(drawn.promise);
    let kin = drawn.promise.kin();
    let case = drawn.case;
    let mut smallest = drawn;
    let mut is_ended = false;
    let breaks = |plan: &Plan| {
        is_ended |= progress.is_small_enough();
        if is_ended {
            return false;
        }
        let Ok((plan, findings)) = judge_plan(plan, case, options, &kin) else { return false };
        let Some(finding) = findings.into_iter().next() else { return false };
        smallest = FoundCase { finding, plan, ..smallest.clone() };
        progress.keeps(&smallest);
        true
    };
    shrink(options.plan(case), SHRINK_TRIES, breaks);
    if !is_ended {
        smallest.is_small = true;
        progress.keeps(&smallest);
    }
    smallest
}

impl Promise {
    /// This promise and the more general ones: a share that is wrong after a change may be wrong without one.
    fn kin(self) -> Vec<Self> {
        match self {
            Self::Changes => {
                vec![
                    Self::Waits,
                    Self::Shares,
                    Self::TaskShares,
                    Self::Idle,
                    Self::Preferences,
                    Self::Changes,
                ]
            }
            Self::Preferences | Self::Yields => vec![Self::Shares, self],
            other => vec![other],
        }
    }
}

/// All promises.
pub fn all_promises() -> Vec<Promise> {
    PROMISES.iter().map(|text| text.promise).collect()
}

/// Runs a plan as a file and judges it, without the findings that another scheduler has as well. Returns the
/// plan as it was judged.
fn judge_plan(
    plan: &Plan,
    case: u64,
    options: &Options,
    promises: &[Promise],
) -> Result<(Plan, Vec<Finding>), CheckError> {
    let (plan, mut findings) = judge_long_enough(plan, case, &options.host, promises)?;
    if let Some(other) = &options.except
        && !findings.is_empty()
    {
        let of_other = judge_once(&plan, case, other, promises)?;
        findings.retain(|finding| of_other.iter().all(|other| other.promise != finding.promise));
    }
    Ok((plan, findings))
}

/// Shares are promised over a certain time: a share that is wrong over a shorter one is judged again in a
/// longer run.
fn judge_long_enough(
    plan: &Plan,
    case: u64,
    host: &SchedulerName,
    promises: &[Promise],
) -> Result<(Plan, Vec<Finding>), CheckError> {
    let findings = judge_once(plan, case, host, promises)?;
    let Some(over_ns) = findings.iter().filter_map(|finding| finding.over_ns).min() else {
        return Ok((plan.clone(), findings));
    };
    let missing_ms = WINDOW_NS.saturating_sub(over_ns).div_ceil(1_000_000);
    let most_ms = LONG_CPU_TIME_MAX_MS / u64::from(plan.machine.cpus());
    let length_ms = (plan.length_ms + missing_ms).min(most_ms.max(plan.length_ms));
    if length_ms == plan.length_ms {
        return Ok((plan.clone(), findings));
    }
    let longer = Plan { length_ms, ..plan.clone() };
    let findings = judge_once(&longer, case, host, promises)?;
    Ok((longer, findings))
}

fn judge_once(
    plan: &Plan,
    case: u64,
    host: &SchedulerName,
    promises: &[Promise],
) -> Result<Vec<Finding>, CheckError> {
    // The mistake is in a generated file, which the user does not have.
    let scenario =
        scenario(plan, host).map_err(|error| CheckError::Drawn { case, message: error.message })?;
    judge(&scenario, RUN_SEED, promises).map_err(|error| CheckError::Run { case, error })
}

/// The scenario of a plan, by way of its file.
///
/// # Errors
/// If the scheduler cannot be used.
pub fn scenario(plan: &Plan, host: &SchedulerName) -> Result<Scenario, FileError> {
    let source = ScenarioSource::parse(Path::new("drawn.toml"), &plan.to_toml(host))?;
    source.build(&Default::default(), &Default::default())
}
