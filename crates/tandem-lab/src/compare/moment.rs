//! The worst moment of a run: who waited longest for a CPU, and what the CPUs did meanwhile.
//!
//! **Problem.** A percentile says that somebody waited. Why shows only in what ran, or idled, at that time.
//!
//! **Approach.** The run of the seed with the longest wait is made twice more, which gives the same run. The first time
//! finds the wait; the second keeps who had which CPU around it, in as many parts of that time as a picture has columns.
//! A run of any length takes the same memory.
//!
//! **Limits.** A wait ends when a kernel has decided; the wait that a run reports goes on until the kernel's code for that has
//! ended, some microseconds later. Of the host's tasks; what a guest did on its vCPUs is in a [trace](crate::trace).

use super::Comparison;
use crate::runner::Progress;
use std::sync::atomic::{AtomicBool, Ordering};
use tandem_machine::ids::KernelId;
use tandem_sim::RunError;
use tandem_sim::scenario::Scenario;
use tandem_sim::trace::{Event, EventKind, Observer};

/// Parts of the time around a wait.
pub(super) const COLUMNS: usize = 300;
/// The time that is shown before the wait, and after it, in percent of the wait.
const AROUND_PCT: u64 = 20;
/// Most CPUs that are shown.
const CPUS_SHOWN: usize = 16;

/// The longest wait of a run, and what happened around it.
#[derive(Clone, Debug, PartialEq)]
pub struct Moment {
    /// The seed.
    pub seed: u64,
    /// Who waited.
    pub task: String,
    /// Its group, by position among those of the scenario.
    pub group: Option<usize>,
    /// From when to when, ns since the start of the run.
    pub wait_ns: (u64, u64),
    /// What is shown, ns since the start of the run.
    pub shown_ns: (u64, u64),
    /// CPUs: the one where it ran in the end, if it did, then those that idled most meanwhile, in the order of their
    /// numbers.
    pub cpus: Vec<Lane>,
    /// How many CPUs there are.
    pub cpus_of_machine: usize,
}

/// A CPU over the time that is shown.
#[derive(Clone, Debug, PartialEq)]
pub struct Lane {
    /// The operating system's number of the CPU.
    pub cpu: u32,
    /// Whether the task that waited ran there in the end.
    pub is_where_it_ran: bool,
    /// Who had most of each part of the time.
    pub columns: Vec<Who>,
}

/// Who has a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// Nobody that the scheduler knows.
    Nobody,
    /// A task of that group.
    Group(usize),
    /// A thread of the host's own kernel.
    Kernel,
    /// The one that waited.
    Waiter,
}

/// A wait that is going on or over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Wait {
    task: usize,
    from_ns: u64,
    to_ns: u64,
    cpu: Option<usize>,
}

impl Wait {
    fn length_ns(&self) -> u64 {
        self.to_ns.saturating_sub(self.from_ns)
    }
}

/// Finds the longest wait.
struct Waits {
    /// The time that counts begins here.
    begin_ns: u64,
    /// By task, since when it waits.
    waiting: Vec<Option<u64>>,
    /// By task, whether its waits count: those of threads of the kernel do not.
    counts: Vec<bool>,
    longest: Wait,
}

impl Waits {
    fn end(&mut self, task: usize, at_ns: u64, cpu: Option<usize>) {
        let Some(from_ns) = self.waiting[task].take() else { return };
        let wait = Wait { task, from_ns: from_ns.max(self.begin_ns), to_ns: at_ns, cpu };
        if self.counts[task] && wait.length_ns() > self.longest.length_ns() {
            self.longest = wait;
        }
    }
}

impl Observer for Waits {
    fn observe(&mut self, event: Event) {
        let task = event.task.index();
        // Threads that the kernel starts later are nobody's.
        if event.kernel != KernelId::HOST || task >= self.waiting.len() {
            return;
        }
        match event.kind {
            EventKind::Wake | EventKind::Preempt | EventKind::Yield => self.waiting[task] = Some(event.at_ns),
            EventKind::Start => self.end(task, event.at_ns, Some(event.cpu.index())),
            EventKind::Block | EventKind::Exit => self.waiting[task] = None,
            EventKind::Continue => {}
        }
    }
}

/// Keeps who had which CPU.
struct Shown {
    shown_ns: (u64, u64),
    /// By CPU, who runs there, and since when.
    running: Vec<(Who, u64)>,
    /// By CPU and column, the time of each that had it, ns.
    times_ns: Vec<Vec<Vec<(Who, u64)>>>,
    whose: Vec<Who>,
}

impl Shown {
    fn switch(&mut self, cpu: usize, at_ns: u64, to: Who) {
        let (who, since_ns) = std::mem::replace(&mut self.running[cpu], (to, at_ns));
        let (begin_ns, end_ns) = self.shown_ns;
        let width_ns = (end_ns - begin_ns).div_ceil(COLUMNS as u64).max(1);
        let (mut from_ns, to_ns) = (since_ns.max(begin_ns), at_ns.min(end_ns));
        while from_ns < to_ns {
            let column = (from_ns - begin_ns) / width_ns;
            let until_ns = to_ns.min(begin_ns + (column + 1) * width_ns);
            let times_ns = &mut self.times_ns[cpu][column as usize];
            match times_ns.iter_mut().find(|(known, _)| *known == who) {
                Some((_, time_ns)) => *time_ns += until_ns - from_ns,
                None => times_ns.push((who, until_ns - from_ns)),
            }
            from_ns = until_ns;
        }
    }
}

impl Observer for Shown {
    fn observe(&mut self, event: Event) {
        if event.kernel != KernelId::HOST {
            return;
        }
        let cpu = event.cpu.index();
        match event.kind {
            EventKind::Start => {
                let who = self.whose.get(event.task.index()).copied().unwrap_or(Who::Kernel);
                self.switch(cpu, event.at_ns, who);
            }
            EventKind::Preempt | EventKind::Yield | EventKind::Block | EventKind::Exit => {
                self.switch(cpu, event.at_ns, Who::Nobody);
            }
            EventKind::Wake | EventKind::Continue => {}
        }
    }
}

/// The worst moment of the run of a scenario with a seed; `None` if nobody waited.
///
/// # Errors
/// The engine's.
pub fn moment(scenario: &Scenario, seed: u64) -> Result<Option<Moment>, RunError> {
    let tasks: Vec<(String, Option<usize>)> = tasks(scenario);
    let mut waits = Waits {
        begin_ns: scenario.warmup_ns,
        waiting: vec![None; tasks.len()],
        counts: tasks.iter().map(|(_, group)| group.is_some()).collect(),
        longest: Wait::default(),
    };
    let metrics = tandem_sim::run_observed(scenario, seed, &mut waits)?;
    let run_ns = scenario.warmup_ns + metrics.length_ns;
    for task in 0..tasks.len() {
        waits.end(task, run_ns, None);
    }
    let longest = waits.longest;
    if longest.length_ns() == 0 {
        return Ok(None);
    }
    let around_ns = (longest.length_ns() / 100).saturating_mul(AROUND_PCT).max(1);
    let shown_ns = (longest.from_ns.saturating_sub(around_ns), (longest.to_ns + around_ns).min(run_ns));
    let mut whose: Vec<Who> = tasks.iter().map(|(_, group)| group.map_or(Who::Kernel, Who::Group)).collect();
    whose[longest.task] = Who::Waiter;
    let cpus = scenario.machine.cpus();
    let mut shown = Shown {
        shown_ns,
        running: vec![(Who::Nobody, 0); cpus.len()],
        times_ns: vec![vec![Vec::new(); COLUMNS]; cpus.len()],
        whose,
    };
    tandem_sim::run_observed(scenario, seed, &mut shown)?;
    for cpu in 0..cpus.len() {
        shown.switch(cpu, shown_ns.1, Who::Nobody);
    }
    let lanes = shown.times_ns.iter().enumerate().map(|(cpu, columns)| Lane {
        cpu: cpus[cpu].os_index,
        is_where_it_ran: longest.cpu == Some(cpu),
        columns: columns.iter().map(|times_ns| most(times_ns)).collect(),
    });
    let mut lanes: Vec<Lane> = lanes.collect();
    // Those that idled could have run it; for the others, one is like another.
    lanes.sort_by_key(|lane| {
        let idle = lane.columns.iter().filter(|who| **who == Who::Nobody).count();
        (!lane.is_where_it_ran, std::cmp::Reverse(idle), lane.cpu)
    });
    lanes.truncate(CPUS_SHOWN);
    lanes.sort_by_key(|lane| lane.cpu);
    let (task, group) = tasks[longest.task].clone();
    let wait_ns = (longest.from_ns, longest.to_ns);
    Ok(Some(Moment { seed, task, group, wait_ns, shown_ns, cpus: lanes, cpus_of_machine: cpus.len() }))
}

/// The worst moment under each scheduler that was compared; none of those that an interrupt left out.
///
/// # Errors
/// The engine's.
pub fn moments(
    comparison: &Comparison,
    contenders: &[(Option<String>, Scenario)],
    progress: &dyn Progress,
    cancel: &AtomicBool,
) -> Result<Vec<Option<Moment>>, RunError> {
    progress.planned(contenders.len());
    let one = |((_, scenario), seed): (&(Option<String>, Scenario), &u64)| {
        if cancel.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let moment = moment(scenario, *seed);
        progress.done();
        moment
    };
    contenders.iter().zip(&comparison.worst_seeds).map(one).collect()
}

/// Who had most of a time.
fn most(times_ns: &[(Who, u64)]) -> Who {
    times_ns.iter().max_by_key(|(_, time_ns)| *time_ns).map_or(Who::Nobody, |(who, _)| *who)
}

/// The name and the group of each task of the host; none of the threads of its kernel.
fn tasks(scenario: &Scenario) -> Vec<(String, Option<usize>)> {
    let groups = scenario.groups();
    let mut tasks = Vec::new();
    for workload in &scenario.workloads {
        let group =
            groups.iter().position(|group| *group == workload.group).filter(|_| !workload.is_kernel());
        tasks.extend((0..workload.task_count()).map(|task| (format!("{}/{task}", workload.name), group)));
    }
    tasks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::tests::contenders;

    /// The kernel's code from a decision to the task: deciding, switching, and a lock, in any of these kernels.
    const SWITCH_MAX_NS: u64 = 5_000;

    /// What is shown is what the run measures: the wait is its longest, and all that had no CPU waited or slept.
    #[test]
    fn the_worst_moment_is_that_of_the_run() {
        for (scenario, seed) in contenders(&["xen-credit", "linux", "tandem"]).iter().zip(1..) {
            let metrics = tandem_sim::run(scenario, seed).unwrap();
            let longest_ns =
                metrics.vms.iter().flat_map(|vm| &vm.vcpus).map(|task| task.longest_wait_ns).max().unwrap();
            let moment = moment(scenario, seed).unwrap().expect("somebody waits");
            let (from_ns, to_ns) = moment.wait_ns;
            let decided_ns = from_ns + longest_ns - to_ns;
            assert!(decided_ns < SWITCH_MAX_NS, "{}: {decided_ns}", moment.task);
            assert!(moment.shown_ns.0 <= from_ns && to_ns <= moment.shown_ns.1);
            assert!(moment.cpus.iter().all(|lane| lane.columns.len() == COLUMNS));
            assert!(moment.cpus.iter().filter(|lane| lane.is_where_it_ran).count() <= 1);
            let waited = moment.cpus.iter().flat_map(|lane| {
                let width_ns = (moment.shown_ns.1 - moment.shown_ns.0).div_ceil(COLUMNS as u64);
                let at = |ns: u64| ((ns - moment.shown_ns.0) / width_ns) as usize;
                lane.columns[at(from_ns) + 1..at(to_ns)].iter()
            });
            assert!(waited.clone().all(|who| *who != Who::Waiter), "{} ran while it waited", moment.task);
        }
    }
}
