//! Counts of requests at the socket, for metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The counts since the service began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// Preferences that were set or cleared.
    pub changed: u64,
    /// Requests that were malformed, or not permitted.
    pub refused: u64,
    /// Connections that were refused for lack of a place.
    pub turned_away: u64,
}

/// The counters; all clones belong to the same service.
#[derive(Clone, Debug, Default)]
pub struct RequestCounts(Arc<Counters>);

#[derive(Debug, Default)]
struct Counters {
    changed: AtomicU64,
    refused: AtomicU64,
    turned_away: AtomicU64,
}

impl RequestCounts {
    /// The counts so far.
    pub fn read(&self) -> Requests {
        let Counters { changed, refused, turned_away } = &*self.0;
        let [changed, refused, turned_away] =
            [changed, refused, turned_away].map(|counter| counter.load(Ordering::Relaxed));
        Requests { changed, refused, turned_away }
    }

    pub(super) fn count_change(&self) {
        self.0.changed.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_refusal(&self) {
        self.0.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_turned_away(&self) {
        self.0.turned_away.fetch_add(1, Ordering::Relaxed);
    }
}
