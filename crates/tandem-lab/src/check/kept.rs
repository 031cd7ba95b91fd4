//! The cases that a search keeps: the first ones that break each promise.
//!
//! Threads find cases in any order. A case is kept as soon as it is found, so that it can be written at once,
//! and dropped when enough cases with lower numbers are found: the final set does not depend on the order.

use super::judge::Finding;
use super::plan::Plan;
use super::promises::Promise;
use super::search::{FoundCase, Progress};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// The first cases of each promise so far, as they were drawn.
pub struct Kept<'a> {
    most: usize,
    progress: &'a dyn Progress,
    all: Mutex<BTreeMap<(Promise, u64), FoundCase>>,
}

impl<'a> Kept<'a> {
    /// An empty set that keeps at most this many cases of each promise.
    pub fn new(most: usize, progress: &'a dyn Progress) -> Self {
        Self { most, progress, all: Mutex::default() }
    }

    /// Adds a case that breaks a promise, if it is among the first.
    pub fn add(&self, case: u64, finding: &Finding, plan: &Plan) {
        let promise = finding.promise;
        // Reports under the lock, so that reports come in the order of the changes.
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let mut of_promise = all.range((promise, 0)..=(promise, u64::MAX)).map(|(&(_, case), _)| case);
        let (count, last) = (of_promise.clone().count(), of_promise.next_back());
        if count >= self.most {
            match last.filter(|last| *last > case) {
                Some(last) => {
                    all.remove(&(promise, last));
                    self.progress.drops(promise, last);
                }
                None => return,
            }
        }
        let found =
            FoundCase { case, promise, finding: finding.clone(), plan: plan.clone(), is_small: false };
        self.progress.keeps(&found);
        all.insert((promise, case), found);
    }

    /// All of them, by promise and number, or the very first one only.
    pub fn finish(self, first_only: bool) -> Vec<FoundCase> {
        let mut all = self.all.into_inner().unwrap_or_else(PoisonError::into_inner);
        if first_only && let Some(first) = all.keys().copied().min_by_key(|(_, case)| *case) {
            all.retain(|key, _| {
                if *key != first {
                    self.progress.drops(key.0, key.1);
                }
                *key == first
            });
        }
        all.into_values().collect()
    }
}
