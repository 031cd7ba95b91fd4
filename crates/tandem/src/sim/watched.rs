//! A run that shows how far it is, and that Ctrl-C ends early.

use crate::bar::Bar;
use std::sync::atomic::{AtomicBool, Ordering};
use tandem_lab::runner::Progress;
use tandem_machine::ids::{KernelId, TaskId};
use tandem_sim::scenario::Scenario;
use tandem_sim::trace::{Event, Observer};

/// How often a run says how far it is, in parts of its time.
const STEPS: u64 = 1_000;
const NS_PER_MS: u64 = 1_000_000;

/// An observer that counts simulated milliseconds on a bar, and ends the run when it is cancelled.
pub struct Watched<'a, O> {
    inner: O,
    bar: &'a Bar,
    cancel: &'a AtomicBool,
    step_ns: u64,
    next_ns: u64,
    now_ns: u64,
    is_cut: bool,
}

impl<'a, O> Watched<'a, O> {
    /// Watches a run of the scenario for this observer.
    pub fn new(inner: O, scenario: &Scenario, bar: &'a Bar, cancel: &'a AtomicBool) -> Self {
        let length_ns = scenario.warmup_ns.saturating_add(scenario.length_ns);
        bar.planned(usize::try_from(length_ns.div_ceil(NS_PER_MS)).unwrap_or(usize::MAX));
        Self { inner, bar, cancel, step_ns: (length_ns / STEPS).max(1), next_ns: 0, now_ns: 0, is_cut: false }
    }

    /// The observer, and, if the run was cancelled, when it ended: ns since its start.
    pub fn end(self) -> (O, Option<u64>) {
        (self.inner, self.is_cut.then_some(self.now_ns))
    }
}

impl<O: Observer> Observer for Watched<'_, O> {
    #[inline]
    fn observe(&mut self, event: Event) {
        self.inner.observe(event);
    }

    #[inline]
    fn named(&mut self, at_ns: u64, kernel: KernelId, task: TaskId, name: &str) {
        self.inner.named(at_ns, kernel, task, name);
    }

    #[inline]
    fn goes_on(&mut self, now_ns: u64) -> bool {
        self.now_ns = now_ns;
        if now_ns >= self.next_ns {
            self.next_ns = now_ns + self.step_ns;
            self.bar.reach(now_ns / NS_PER_MS, String::new());
        }
        self.is_cut = self.cancel.load(Ordering::Relaxed);
        !self.is_cut && self.inner.goes_on(now_ns)
    }
}
