//! One number for a scheduler, for programs that search for better ones.
//!
//! **Problem.** A search by machine, of settings or of code, tries thousands of schedulers and believes one number. It finds
//! whatever raises that number: a task that starves beside many that gain, a scenario that it recognises, a slow answer
//! that comes after the end of the run.
//!
//! **Approach.** A [`suite`] draws scenarios from ranges: for training, for validation and for tests, which differ in seeds
//! and in machines. Each case runs the candidate ([`run`](mod@run)) and follows it from the first event on, with the judges of the
//! [promises](crate::check::promises). What each VM gets is compared with what it gets under Linux with the same seed; the
//! [`score`](mod@score) is the geometric mean of these factors, so that no VM can be sold for another. A candidate that breaks a rule
//! has no number but minus infinity, with [`reasons`] that help to mend it.
//!
//! **Limits.** The number is good for the simulator's machines and loads; a search may still find what is good in the
//! simulator alone. Validation and test cases tell memorised cases from better schedulers, not a fault of the model.

mod draw;
pub mod fair;
pub mod guard;
pub mod reasons;
pub mod run;
pub mod score;
pub mod suite;
mod table;
#[cfg(test)]
mod tests;

use crate::summary::hash_of_bytes;
use reasons::{Kind, Reason};
use run::{Loaded, Outcome, References};
use score::{Part, Score};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use suite::{Case, Split, Suite};
use tandem_settings::{OBJECT, Settings};

/// A scheduler to be judged.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// Its name in reports.
    pub name: &'a str,
    /// What it is.
    pub scheduler: Scheduler<'a>,
}

/// What a candidate is.
#[derive(Clone, Copy, Debug)]
pub enum Scheduler<'a> {
    /// An object file's bytes, which may be a stranger's.
    Object(&'a [u8]),
    /// Tandem's own scheduler, which is compiled once, with these settings.
    Tandem(&'a Settings),
}

impl<'a> Candidate<'a> {
    /// An object of that name.
    pub fn object(name: &'a str, object: &'a [u8]) -> Self {
        Self { name, scheduler: Scheduler::Object(object) }
    }

    /// Tandem's own scheduler, with settings of that name.
    pub fn tandem(name: &'a str, settings: &'a Settings) -> Self {
        Self { name, scheduler: Scheduler::Tandem(settings) }
    }

    fn hash(&self) -> String {
        match self.scheduler {
            Scheduler::Object(object) => hash_of_bytes(object),
            Scheduler::Tandem(settings) => {
                hash_of_bytes(&[OBJECT, settings.scheduler_only().to_toml().as_bytes()].concat())
            }
        }
    }
}

/// What to judge it by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Which part of the suite.
    pub split: Split,
    /// The seed from which the part's cases are drawn; the results of two candidates compare under one seed.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { split: Split::Train, seed: 1 }
    }
}

/// What became of a candidate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Evaluation {
    /// 1 is as good as Linux, 1.1 better by a tenth; minus infinity if there is a reason. In JSON a number, or the text
    /// `"-inf"`.
    pub combined_score: Score,
    /// By the name of each scored case.
    pub parts: BTreeMap<String, Part>,
    /// Why it has no number, the most useful first; empty if it has one.
    pub reasons: Vec<Reason>,
    /// Its name.
    pub candidate: String,
    /// Hash over the object, and the settings if it is Tandem's; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object_hash: Option<String>,
    /// The suite.
    pub suite: Suite,
    /// The part of it.
    pub split: Split,
    /// The seed that its cases were drawn from.
    pub seed: u64,
    /// Hash over all cases with their seeds: evaluations of one version with equal hashes compare.
    pub suite_hash: String,
    /// Version of the program.
    pub version: &'static str,
}

impl Evaluation {
    /// That of a candidate with these reasons, which did not come to run.
    pub fn refused(name: &str, suite: Suite, options: Options, reason: Reason) -> Self {
        Self {
            combined_score: Score::REFUSED,
            parts: BTreeMap::new(),
            reasons: vec![reason],
            candidate: name.into(),
            object_hash: None,
            suite,
            split: options.split,
            seed: options.seed,
            suite_hash: suite_hash(&suite.cases(options)),
            version: env!("CARGO_PKG_VERSION"),
        }
    }

    /// That of a candidate by the outcomes of all cases.
    pub fn new(
        candidate: Candidate<'_>,
        suite: Suite,
        options: Options,
        cases: &[Case],
        outcomes: &[Outcome],
        references: &References,
    ) -> Self {
        let (parts, mut reasons) = score::parts(cases, outcomes, references);
        reasons.sort_by_key(|reason: &Reason| reason.kind);
        reasons.truncate(reasons::REASONS_MAX);
        let combined_score = match reasons.is_empty() {
            true => score::combined(parts.values()),
            false => Score::REFUSED,
        };
        Self {
            combined_score,
            parts,
            reasons,
            candidate: candidate.name.into(),
            object_hash: Some(candidate.hash()),
            suite,
            split: options.split,
            seed: options.seed,
            suite_hash: suite_hash(cases),
            version: env!("CARGO_PKG_VERSION"),
        }
    }
}

/// Judges a candidate in this process, on this thread. [`run::References`] of another evaluation of the same suite spare their time.
///
/// A stranger's object belongs into a process of its own: `tandem evaluate` does that.
///
/// # Errors
/// By a mistake of the suite alone: a case that is no scenario, or that does not run under Linux.
pub fn evaluate(
    candidate: Candidate<'_>,
    suite: Suite,
    options: Options,
    references: &mut References,
) -> Result<Evaluation, String> {
    let cases = suite.cases(options);
    let loaded = match Loaded::new(candidate, suite) {
        Ok(loaded) => loaded,
        Err(message) => {
            let reason = Reason::new(Kind::Load, None, message);
            return Ok(Evaluation::refused(candidate.name, suite, options, reason));
        }
    };
    references.complete(&cases)?;
    let outcomes = loaded.outcomes(&cases, &AtomicBool::new(false))?.unwrap_or_default();
    Ok(Evaluation::new(candidate, suite, options, &cases, &outcomes, references))
}

/// Hash over cases.
fn suite_hash(cases: &[Case]) -> String {
    let texts = cases.iter().flat_map(|case| [case.text.clone(), case.seed.to_string()]);
    crate::summary::hash_of_bytes(texts.collect::<Vec<_>>().join("\n").as_bytes())
}
