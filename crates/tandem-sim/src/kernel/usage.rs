//! What is measured of tasks by group: by VM in the host's kernel, by program in a guest's.

use super::task::{Task, TaskState};
use crate::metrics::TaskMetrics;
use hdrhistogram::Histogram;

/// Digits of a time in a histogram that are kept: percentiles are good to 1%.
const SIGNIFICANT_DIGITS: u8 = 2;

/// An empty histogram of times.
fn new_histogram() -> Box<Histogram<u64>> {
    let mut histogram = Histogram::new(SIGNIFICANT_DIGITS).expect("between 0 and 5 digits");
    histogram.auto(true);
    Box::new(histogram)
}

/// Records a time in a histogram, which is made when the first one comes.
pub(crate) fn record(histogram: &mut Option<Box<Histogram<u64>>>, time_ns: u64) {
    histogram.get_or_insert_with(new_histogram).record(time_ns).expect("it resizes to any value");
}

/// What is measured of a program's tasks in a guest, besides wake-ups.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProgramUse {
    /// Tasks that ran it since the measuring started.
    pub tasks: u64,
    /// Sums over those that do no more.
    pub total: TaskMetrics,
}

/// Measurements since the measuring started.
#[derive(Debug)]
pub(crate) struct Usage {
    wakeups: Vec<Option<Box<Histogram<u64>>>>,
    /// In a guest's kernel.
    programs: Vec<ProgramUse>,
}

impl Usage {
    /// Of so many groups, which are programs or not, with these tasks.
    pub fn new(groups: usize, are_programs: bool, tasks: &[Task]) -> Self {
        let programs = if are_programs { groups } else { 0 };
        let mut usage = Self { wakeups: vec![None; groups], programs: vec![ProgramUse::default(); programs] };
        usage.reset(tasks);
        usage
    }

    /// Begins to measure anew, with these tasks.
    pub fn reset(&mut self, tasks: &[Task]) {
        self.wakeups.fill(None);
        self.programs.fill_with(ProgramUse::default);
        for task in tasks.iter().filter(|task| task.state() != TaskState::Exited) {
            if let Some(program) = self.programs.get_mut(task.group as usize) {
                program.tasks += 1;
            }
        }
    }

    /// A task of a group ran so long after it had woken up, ns.
    #[inline]
    pub fn woke(&mut self, group: u32, after_ns: u64) {
        record(&mut self.wakeups[group as usize], after_ns);
    }

    /// A task begins to run a program.
    pub fn begins(&mut self, program: u32) {
        self.programs[program as usize].tasks += 1;
    }

    /// A task runs a program no longer; what it has come to.
    pub fn ends(&mut self, program: u32, metrics: &TaskMetrics) {
        self.programs[program as usize].total.add(metrics);
    }

    /// Times from wake-ups to runs, ns, by group; none where there were no wake-ups.
    pub fn wakeups(&self) -> impl Iterator<Item = Option<&Histogram<u64>>> {
        self.wakeups.iter().map(Option::as_deref)
    }

    pub fn programs(&self) -> &[ProgramUse] {
        &self.programs
    }
}
