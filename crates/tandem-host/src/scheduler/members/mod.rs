//! Partial mode: keeps the tasks of some cgroups under the scheduler, and all others out.
//!
//! **Problem.** An operator wants to begin small. sched_ext has a mode in which a scheduler has only the
//! tasks with the policy `SCHED_EXT`. Another program has to set that policy, and tasks come, go, fork, and
//! change their cgroup and their policy.
//!
//! **Approach.** A walk through the lists of the part's cgroups gives each task there that policy; then one
//! through all tasks gives the usual policy to every other task that has it. So it does not matter how a task
//! came to be where it is, and a user who hides a cgroup puts it outside of the part. The walk asks for no
//! path of a task: the kernel takes long for that in deeply nested cgroups. It leaves a task that was born
//! since it began to the next walk, because the lists may not have the task yet; so too a task that was on a
//! list of the walk before, because it may have moved to a cgroup that had been read already. Tasks of
//! `SCHED_BATCH` and `SCHED_IDLE` are taken as well, because they would run before all others of the part;
//! their former policy is remembered, but not for their children. After a walk that changes something follows
//! another, which finds children that tasks got meanwhile. Walks consist of steps, so that the caller can do
//! other things in between, however many cgroups and tasks users create.
//!
//! **Limits.** A walk begins a second after the last one, or later where walks take long. Until then, a task
//! that enters the part is not scheduled with it, and a task that changes its own policy keeps that, and so
//! do its children. Tasks in a cgroup that cannot be read count as outside, where they run before those of
//! the part; the log reports that. Such a cgroup is one whose owner has withdrawn the right to read it from a
//! caller without `CAP_DAC_READ_SEARCH`, or whose path is longer than `PATH_MAX`, or deeper than
//! [`DEPTH_MAX`](crate::cgroups::DEPTH_MAX). Tasks in namespaces around this one, and those that `/proc`
//! hides (`hidepid=`), are invisible. Real-time tasks and kernel threads stay where they are. If this process
//! is killed, policies stay as they are; without a loaded scheduler `SCHED_EXT` means the usual one. Cgroups
//! of version 1 are not supported.

mod part;
#[cfg(test)]
mod tests;

use super::policy::{KernelPolicies, Policies, Policy, TaskPolicy};
use crate::cgroups::CgroupError;
use crate::cpu_time::TICK_NS;
use crate::privileges::{Capabilities, held};
use crate::tasks::{TaskWalk, Tid};
use crate::vms::read_stat;
use part::PartThreads;
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tandem_settings::Partial;

/// Most walks in a row.
const WALKS_MAX: u32 = 3;
/// The time between the end of a walk and the beginning of the next, if nothing has to be done.
const INTERVAL: Duration = Duration::from_secs(1);
/// Walks take at most one part in so many of a CPU; otherwise they begin more rarely, but not more rarely
/// than this.
const SHARE: u32 = 100;
const INTERVAL_MAX: Duration = Duration::from_secs(60);
/// After this time a walk leaves the rest to steps: systemd considers a service dead that is silent for
/// longer.
const LOOK_MAX: Duration = Duration::from_secs(5);
/// Approximate duration of a step.
const STEP: Duration = Duration::from_millis(20);

/// The tasks of the cgroups that the scheduler is to have.
#[derive(Debug)]
pub struct Members<P: Policies = KernelPolicies> {
    root: PathBuf,
    partial: Partial,
    policies: P,
    /// The unusual policies that tasks had, with the tasks' start times.
    had: BTreeMap<Tid, (Policy, u64)>,
    /// Whether policies may have to change.
    is_at_work: bool,
    walk: Option<Walk>,
    /// The tasks on a list of the walk before.
    was_inside: HashSet<Tid>,
    /// Walks in a row so far, and their CPU time.
    walks: u32,
    took: Duration,
    due: Instant,
    step_max: Duration,
}

/// A walk in progress.
#[derive(Debug)]
struct Walk {
    /// When it began, in ticks since the machine booted.
    begin_ticks: u64,
    /// The threads of the part, until all are found.
    part: Option<PartThreads>,
    inside: HashSet<Tid>,
    tasks: TaskWalk,
    /// Whether a task is left to the next walk, which is to come soon.
    has_left_some: bool,
    result: WalkResult,
}

/// The result of a walk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WalkResult {
    /// The number of tasks of the part that the scheduler has.
    pub tasks: usize,
    /// How many of these it did not have before.
    pub taken: usize,
    /// How many it no longer has.
    pub given_back: usize,
    /// The first task that the kernel refused to take or give back, and why.
    pub refused: Option<(Tid, Errno)>,
    /// The first cgroup that could not be read, and why; safe to display.
    pub hidden: Option<String>,
}

impl Members {
    /// The members on this machine; takes none yet.
    pub fn new(partial: Partial) -> Self {
        Self::with(Path::new("/"), partial, KernelPolicies)
    }

    /// Checks with this process itself whether it may take tasks.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn probe() -> Result<(), Errno> {
        let own = Tid::new(std::process::id()).unwrap_or(Tid::MIN);
        let before = KernelPolicies.policy(own)?;
        if before.policy != Policy::Higher {
            KernelPolicies.set_policy(own, TaskPolicy { policy: Policy::Ext, ..before })?;
            KernelPolicies.set_policy(own, before)?;
        }
        let may_others = held(Capabilities::SYS_NICE)?;
        if may_others.is_empty() { Err(Errno::PERM) } else { Ok(()) }
    }
}

impl<P: Policies> Members<P> {
    fn with(root: &Path, partial: Partial, policies: P) -> Self {
        Self {
            root: root.to_owned(),
            is_at_work: partial.is_on(),
            partial,
            policies,
            had: BTreeMap::new(),
            walk: None,
            was_inside: HashSet::new(),
            walks: 0,
            took: Duration::ZERO,
            due: Instant::now(),
            step_max: STEP,
        }
    }

    /// Changes the settings; the next walk applies them.
    pub fn set(&mut self, partial: Partial) {
        self.is_at_work |= partial.is_on();
        self.partial = partial;
        self.walk = None;
        self.was_inside.clear();
        self.walks = 0;
        self.due = Instant::now();
    }

    /// Does a step of a walk, if one is due; returns the result of a walk that has ended.
    ///
    /// # Errors
    /// If no unified hierarchy is mounted.
    pub fn step(&mut self) -> Result<Option<WalkResult>, CgroupError> {
        let (begin, begin_cpu) = (Instant::now(), time_of(ClockId::ThreadCPUTime));
        if !self.is_at_work || self.walk.is_none() && begin < self.due {
            return Ok(None);
        }
        let mut walk = match self.walk.take() {
            Some(walk) => walk,
            None => self.begin()?,
        };
        let is_over = loop {
            if !self.advance(&mut walk) {
                break true;
            }
            if begin.elapsed() >= self.step_max {
                break false;
            }
        };
        if is_over {
            // A walk may miss a task.
            let policies = &self.policies;
            self.had.retain(|tid, _| policies.policy(*tid).is_ok_and(|task| task.policy == Policy::Ext));
        }
        self.took += time_of(ClockId::ThreadCPUTime).saturating_sub(begin_cpu);
        if is_over {
            return Ok(Some(self.end(walk)));
        }
        self.walk = Some(walk);
        Ok(None)
    }

    fn begin(&self) -> Result<Walk, CgroupError> {
        let part = self.partial.is_on().then(|| PartThreads::begin(&self.root, &self.partial)).transpose()?;
        Ok(Walk {
            begin_ticks: now_ticks(),
            part,
            inside: HashSet::new(),
            tasks: TaskWalk::begin(&self.root),
            has_left_some: false,
            result: WalkResult::default(),
        })
    }

    /// Processes the next task, if there is one.
    fn advance(&mut self, walk: &mut Walk) -> bool {
        let (tid, done) = match walk.part.as_mut().map(Iterator::next) {
            Some(Some(Ok(None))) => return true,
            Some(Some(Ok(Some(tid)))) => {
                walk.inside.insert(tid);
                (tid, self.take(tid, &mut walk.result))
            }
            Some(Some(Err(hidden))) => {
                walk.result.hidden.get_or_insert(hidden);
                return true;
            }
            Some(None) => {
                walk.part = None;
                return true;
            }
            None => match walk.tasks.next() {
                Some((tid, directory)) => (tid, self.give_back(tid, &directory, walk)),
                None => return false,
            },
        };
        match done {
            // The task has ended.
            Ok(()) | Err(Errno::SRCH) => {}
            Err(error) => walk.result.refused = walk.result.refused.or(Some((tid, error))),
        }
        true
    }

    /// Walks from the beginning, at once and until a walk changes nothing, or for as long as a service may be
    /// silent; returns the sum of the results.
    ///
    /// # Errors
    /// If no unified hierarchy is mounted.
    pub fn walk(&mut self) -> Result<WalkResult, CgroupError> {
        self.set(self.partial.clone());
        let mut all = WalkResult::default();
        let deadline = Instant::now() + LOOK_MAX;
        while self.is_at_work
            && (self.walk.is_some() || self.due <= Instant::now())
            && Instant::now() < deadline
        {
            if let Some(result) = self.step()? {
                all = WalkResult {
                    tasks: result.tasks,
                    taken: all.taken + result.taken,
                    given_back: all.given_back + result.given_back,
                    refused: all.refused.or(result.refused),
                    hidden: all.hidden.or(result.hidden),
                };
            }
        }
        Ok(all)
    }

    fn end(&mut self, walk: Walk) -> WalkResult {
        let Walk { result, inside, has_left_some, .. } = walk;
        self.was_inside = inside;
        let is_changed = has_left_some || result.taken + result.given_back > 0;
        self.walks += 1;
        self.due = Instant::now();
        if !is_changed || self.walks == WALKS_MAX {
            self.walks = 0;
            self.is_at_work = self.partial.is_on() || is_changed;
            self.due += self.took.saturating_mul(SHARE).clamp(INTERVAL, INTERVAL_MAX);
            self.took = Duration::ZERO;
        }
        result
    }

    /// Takes a task of the part.
    fn take(&mut self, tid: Tid, result: &mut WalkResult) -> Result<(), Errno> {
        let task = self.policies.policy(tid)?;
        match task.policy {
            Policy::Higher => return Ok(()),
            Policy::Ext => {
                result.tasks += 1;
                return Ok(());
            }
            Policy::Other | Policy::Batch | Policy::Idle => {}
        }
        // KVM's threads are in the cgroups of VMs. Reads the thread's own directory: that of a process has
        // the sum of all its threads.
        let stat = read_stat(&self.root.join(format!("proc/{tid}/task/{tid}")));
        let Some(stat) = stat.filter(|stat| !stat.is_kernel_thread && !stat.has_ended()) else {
            return Ok(());
        };
        if self.policies.policy(tid)? != task {
            // The next walk examines the policy that it has chosen meanwhile.
            return Ok(());
        }
        self.policies.set_policy(tid, TaskPolicy { policy: Policy::Ext, ..task })?;
        result.tasks += 1;
        result.taken += 1;
        match task.policy {
            Policy::Other => self.had.remove(&tid),
            policy => self.had.insert(tid, (policy, stat.start_ticks)),
        };
        Ok(())
    }

    /// Gives a task back, unless it is or may be of the part.
    fn give_back(&mut self, tid: Tid, directory: &Path, walk: &mut Walk) -> Result<(), Errno> {
        let task = self.policies.policy(tid)?;
        if task.policy != Policy::Ext || walk.inside.contains(&tid) {
            return Ok(());
        }
        let Some(stat) = read_stat(directory).filter(|stat| !stat.has_ended()) else { return Ok(()) };
        if self.partial.is_on() && stat.start_ticks >= walk.begin_ticks {
            return Ok(());
        }
        if self.was_inside.contains(&tid) {
            walk.has_left_some = true;
            return Ok(());
        }
        if self.policies.policy(tid)? != task {
            return Ok(());
        }
        let policy = match self.had.get(&tid) {
            Some(&(policy, start_ticks)) if start_ticks == stat.start_ticks => policy,
            _ => Policy::Other,
        };
        self.policies.set_policy(tid, TaskPolicy { policy, ..task })?;
        self.had.remove(&tid);
        walk.result.given_back += 1;
        Ok(())
    }
}

/// The time since the machine booted, in the unit of start times in `/proc`.
fn now_ticks() -> u64 {
    let ticks = time_of(ClockId::Boottime).as_nanos() / u128::from(TICK_NS);
    u64::try_from(ticks).unwrap_or(u64::MAX)
}

/// The time of a clock.
fn time_of(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
}

impl<P: Policies> Drop for Members<P> {
    fn drop(&mut self) {
        self.set(Partial::default());
        // If there is too much to do, policies stay.
        let _ = self.walk();
    }
}
