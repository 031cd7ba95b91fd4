//! What is measured of tasks by group: by VM in the host's kernel, by program in a guest's.

use super::task::{Task, TaskState};
use crate::metrics::TaskMetrics;
use crate::times::Times;

/// What is measured of a program's tasks in a guest, besides delays.
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
    delays: Vec<Times>,
    /// In a guest's kernel.
    programs: Vec<ProgramUse>,
}

impl Usage {
    /// Of so many groups, which are programs or not, with these tasks.
    pub fn new(groups: usize, are_programs: bool, tasks: &[Task]) -> Self {
        let programs = if are_programs { groups } else { 0 };
        let mut usage =
            Self { delays: vec![Times::default(); groups], programs: vec![ProgramUse::default(); programs] };
        usage.reset(tasks);
        usage
    }

    /// Begins to measure anew, with these tasks.
    pub fn reset(&mut self, tasks: &[Task]) {
        self.delays.fill(Times::default());
        self.programs.fill_with(ProgramUse::default);
        for task in tasks.iter().filter(|task| task.state() != TaskState::Exited) {
            if let Some(program) = self.programs.get_mut(task.group as usize) {
                program.tasks += 1;
            }
        }
    }

    /// A task of a group ran so long after it had woken up or started, ns.
    #[inline]
    pub fn delayed(&mut self, group: u32, after_ns: u64) {
        self.delays[group as usize].record(after_ns);
    }

    /// A task begins to run a program.
    pub fn begins(&mut self, program: u32) {
        self.programs[program as usize].tasks += 1;
    }

    /// A task runs a program no longer; what it has come to.
    pub fn ends(&mut self, program: u32, metrics: &TaskMetrics) {
        self.programs[program as usize].total.add(metrics);
    }

    /// Times from wake-ups and starts to runs, by group.
    pub fn delays(&self) -> &[Times] {
        &self.delays
    }

    pub fn programs(&self) -> &[ProgramUse] {
        &self.programs
    }
}
