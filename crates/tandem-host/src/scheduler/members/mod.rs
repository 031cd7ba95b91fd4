//! Partial mode: keeps the tasks of some cgroups under the scheduler, and all others out.
//!
//! **Problem.** An operator wants to begin small. sched_ext has a mode in which a scheduler has the tasks with the policy `SCHED_EXT`
//! alone; which tasks these are is for somebody else to say, and tasks come, go, fork, and change their cgroup and their policy.
//!
//! **Approach.** A walk through the lists of the part's cgroups gives each task there that policy; then one through all tasks gives the usual
//! one to each other that has it: so it does not matter how a task came to be where it is, and who hides a cgroup is outside.
//! No path of a task is asked for: the kernel takes long for that where somebody nests cgroups. A task that was born since the walk began is
//! left to the next one, for the lists may not have it yet; so is one that was on a list of the walk before, for it may have gone to a cgroup
//! that had been read already. Tasks of `SCHED_BATCH` and `SCHED_IDLE` are taken as well, for they would
//! run before all others of the part; what they had is remembered, but not for their children. A walk that changes something is followed by
//! another one, which finds children that tasks got meanwhile. Walks are cut into steps, so that who takes them does other things in
//! between, however many cgroups and tasks somebody makes.
//!
//! **Limits.** A walk begins a second after the last one, or later where they take long. Until then, who comes into the part is not
//! scheduled with it, and a task that changes its own policy has that, as its children do which it gets again and again. Tasks in a cgroup
//! that cannot be read count as outside, where they run before those of the part; that is told: one whose owner has taken away the right to read it from a caller without
//! `CAP_DAC_READ_SEARCH`, or whose path is longer than `PATH_MAX`, or deeper than [`DEPTH_MAX`](crate::cgroups::DEPTH_MAX). Tasks in
//! namespaces around this one, and those that `/proc` hides (`hidepid=`), are not seen. Real-time tasks and kernel threads stay where they are.
//! If this process is killed, policies stay as they are; without a loaded scheduler `SCHED_EXT` means the usual one. Cgroups of
//! version 1 are not known.

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
/// The time between the end of a walk and the beginning of the next one, if nothing is to be done.
const INTERVAL: Duration = Duration::from_secs(1);
/// Walks take one part in so many of a CPU; they begin more rarely otherwise, but not more rarely than this.
const SHARE: u32 = 100;
const INTERVAL_MAX: Duration = Duration::from_secs(60);
/// After how long who looks at once leaves the rest to steps: systemd takes a service for dead that is silent for longer.
const LOOK_MAX: Duration = Duration::from_secs(5);
/// About how long a step takes.
const STEP: Duration = Duration::from_millis(20);

/// The tasks of the cgroups that the scheduler is to have.
#[derive(Debug)]
pub struct Members<P: Policies = KernelPolicies> {
    root: PathBuf,
    partial: Partial,
    policies: P,
    /// What tasks had that was not usual, and when they were started.
    had: BTreeMap<Tid, (Policy, u64)>,
    /// Policies may have to be changed.
    is_at_work: bool,
    walk: Option<Walk>,
    /// Who was on a list of the walk before.
    was_inside: HashSet<Tid>,
    /// Walks in a row so far, and the CPU time that they took.
    walks: u32,
    took: Duration,
    due: Instant,
    step_max: Duration,
}

/// A walk that is under way.
#[derive(Debug)]
struct Walk {
    /// When it began, in ticks since the machine was started.
    begin_ticks: u64,
    /// Those of the part, until all are found.
    part: Option<PartThreads>,
    inside: HashSet<Tid>,
    tasks: TaskWalk,
    /// Somebody is left to the next walk, which is to come soon.
    has_left_some: bool,
    look: Look,
}

/// What came of a walk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// How many tasks the scheduler has of the part.
    pub tasks: usize,
    /// Of these, how many it did not have before.
    pub taken: usize,
    /// How many it has no longer.
    pub given_back: usize,
    /// The first task that the kernel did not let it take or give back, and why.
    pub refused: Option<(Tid, Errno)>,
    /// The first cgroup that it could not look into, and why; as it may be shown.
    pub hidden: Option<String>,
}

impl Members {
    /// Those of this machine; takes none yet.
    pub fn new(partial: Partial) -> Self {
        Self::with(Path::new("/"), partial, KernelPolicies)
    }

    /// Whether this process may take tasks, which it tries with itself.
    ///
    /// # Errors
    /// What the kernel says.
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

    /// Goes over to other settings; the next walk does what they say.
    pub fn set(&mut self, partial: Partial) {
        self.is_at_work |= partial.is_on();
        self.partial = partial;
        self.walk = None;
        self.was_inside.clear();
        self.walks = 0;
        self.due = Instant::now();
    }

    /// A step of a walk, if one is due; what came of the walk if it has ended.
    ///
    /// # Errors
    /// If no unified hierarchy is mounted.
    pub fn step(&mut self) -> Result<Option<Look>, CgroupError> {
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
            // A walk may miss one that is there.
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
            look: Look::default(),
        })
    }

    /// Does what is to be done with the next task, if there is one.
    fn advance(&mut self, walk: &mut Walk) -> bool {
        let (tid, done) = match walk.part.as_mut().map(Iterator::next) {
            Some(Some(Ok(None))) => return true,
            Some(Some(Ok(Some(tid)))) => {
                walk.inside.insert(tid);
                (tid, self.take(tid, &mut walk.look))
            }
            Some(Some(Err(hidden))) => {
                walk.look.hidden.get_or_insert(hidden);
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
            // It has ended.
            Ok(()) | Err(Errno::SRCH) => {}
            Err(error) => walk.look.refused = walk.look.refused.or(Some((tid, error))),
        }
        true
    }

    /// Walks from the beginning, at once and until a walk changes nothing, or for as long as a service may be silent; what came of all together.
    ///
    /// # Errors
    /// If no unified hierarchy is mounted.
    pub fn look(&mut self) -> Result<Look, CgroupError> {
        self.set(self.partial.clone());
        let mut all = Look::default();
        let deadline = Instant::now() + LOOK_MAX;
        while self.is_at_work
            && (self.walk.is_some() || self.due <= Instant::now())
            && Instant::now() < deadline
        {
            if let Some(look) = self.step()? {
                all = Look {
                    tasks: look.tasks,
                    taken: all.taken + look.taken,
                    given_back: all.given_back + look.given_back,
                    refused: all.refused.or(look.refused),
                    hidden: all.hidden.or(look.hidden),
                };
            }
        }
        Ok(all)
    }

    fn end(&mut self, walk: Walk) -> Look {
        let Walk { look, inside, has_left_some, .. } = walk;
        self.was_inside = inside;
        let is_changed = has_left_some || look.taken + look.given_back > 0;
        self.walks += 1;
        self.due = Instant::now();
        if !is_changed || self.walks == WALKS_MAX {
            self.walks = 0;
            self.is_at_work = self.partial.is_on() || is_changed;
            self.due += self.took.saturating_mul(SHARE).clamp(INTERVAL, INTERVAL_MAX);
            self.took = Duration::ZERO;
        }
        look
    }

    /// Takes a task of the part.
    fn take(&mut self, tid: Tid, look: &mut Look) -> Result<(), Errno> {
        let task = self.policies.policy(tid)?;
        match task.policy {
            Policy::Higher => return Ok(()),
            Policy::Ext => {
                look.tasks += 1;
                return Ok(());
            }
            Policy::Other | Policy::Batch | Policy::Idle => {}
        }
        // KVM's threads are in the cgroups of VMs. By the directory of its own: that of a process has the sum of all its threads.
        let stat = read_stat(&self.root.join(format!("proc/{tid}/task/{tid}")));
        let Some(stat) = stat.filter(|stat| !stat.is_kernel_thread && !stat.has_ended()) else {
            return Ok(());
        };
        if self.policies.policy(tid)? != task {
            // The next walk looks at what it has chosen meanwhile.
            return Ok(());
        }
        self.policies.set_policy(tid, TaskPolicy { policy: Policy::Ext, ..task })?;
        look.tasks += 1;
        look.taken += 1;
        match task.policy {
            Policy::Other => self.had.remove(&tid),
            policy => self.had.insert(tid, (policy, stat.start_ticks)),
        };
        Ok(())
    }

    /// Gives a task back, unless it is of the part or may be.
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
        walk.look.given_back += 1;
        Ok(())
    }
}

/// The time since the machine was started, in the unit in which `/proc` tells when a task was.
fn now_ticks() -> u64 {
    let ticks = time_of(ClockId::Boottime).as_nanos() / u128::from(TICK_NS);
    u64::try_from(ticks).unwrap_or(u64::MAX)
}

/// What a clock shows.
fn time_of(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
}

impl<P: Policies> Drop for Members<P> {
    fn drop(&mut self) {
        self.set(Partial::default());
        // Where there is too much to do, policies stay.
        let _ = self.look();
    }
}
