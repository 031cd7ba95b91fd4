//! The cases that a search keeps: the first ones that break each promise.
//!
//! Threads find them in any order. Each is kept from when it is found, so that it can be written down at once, until enough with
//! lower numbers are found: which are kept in the end does not depend on the order.

use super::judge::Finding;
use super::plan::Plan;
use super::promises::Promise;
use super::search::{Found, Progress};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// The first cases of each promise so far, as they were drawn.
pub struct Kept<'a> {
    most: usize,
    progress: &'a dyn Progress,
    all: Mutex<BTreeMap<(Promise, u64), Found>>,
}

impl<'a> Kept<'a> {
    /// None yet, and at most so many of each promise.
    pub fn new(most: usize, progress: &'a dyn Progress) -> Self {
        Self { most, progress, all: Mutex::default() }
    }

    /// A case breaks a promise.
    pub fn add(&self, case: u64, finding: &Finding, plan: &Plan) {
        let promise = finding.promise;
        // Reports are made under the lock, so that their order is that of the changes.
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
        let found = Found { case, promise, finding: finding.clone(), plan: plan.clone(), is_small: false };
        self.progress.keeps(&found);
        all.insert((promise, case), found);
    }

    /// All of them, by promise and number, or the very first one only.
    pub fn finish(self, first_only: bool) -> Vec<Found> {
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
