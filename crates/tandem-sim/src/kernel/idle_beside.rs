//! CPU time of a kernel that idles while its tasks wait that could have had it.
//!
//! Problem: a scheduler that leaves tasks in a queue while CPUs idle gives results that look like any other's.
//!
//! Approach: follow the kernel's events. Between two of them, the time counts as many times as there are CPUs that
//! idle and may run one of the tasks that wait, but no more often than there are such tasks.
//!
//! Limits: tasks whose VM or cgroup has a cap or a limit of CPU time do not count, as they may have to wait. A CPU
//! that was told to reschedule does not idle: so neither does a vCPU that was woken and waits for a pCPU.

use crate::policy::TaskFacts;
use crate::trace::{Event, EventKind};
use std::sync::Arc;
use tandem_machine::cpumask::CpuMask;
use tandem_machine::ids::{CpuId, TaskId};

/// Follows a kernel. See the [module](self).
#[derive(Debug)]
pub(crate) struct IdleBeside {
    /// VMs whose tasks may have to wait, by their position; those that are left out do not have to.
    held: Vec<bool>,
    /// CPUs that run no task.
    idle: CpuMask,
    /// Affinities of tasks that wait, and how many have each.
    waiting: Vec<(Arc<CpuMask>, usize)>,
    /// The affinity with which each task waits, if it does.
    tasks: Vec<Option<Arc<CpuMask>>>,
    /// How many CPUs idle that should not, since when, ns.
    wasted: usize,
    since_ns: u64,
    total_ns: u64,
}

impl IdleBeside {
    /// All CPUs idle, and no task waits. Tasks of the VMs that are `held` do not count.
    pub fn new(cpus: &CpuMask, held: Vec<bool>) -> Self {
        Self {
            held,
            idle: cpus.clone(),
            waiting: Vec::new(),
            tasks: Vec::new(),
            wasted: 0,
            since_ns: 0,
            total_ns: 0,
        }
    }

    /// An event of the kernel about a task. Of CPUs without a task, those idle that `may_idle`.
    #[inline]
    pub fn follow(&mut self, event: Event, facts: &TaskFacts, may_idle: impl Fn(CpuId) -> bool) {
        match event.kind {
            EventKind::Continue => return,
            EventKind::Wake => self.waits(event.task, facts),
            EventKind::Start => {
                self.idle.remove(event.cpu);
                self.waits_no_more(event.task);
            }
            EventKind::Preempt | EventKind::Yield => {
                self.idle.insert(event.cpu);
                self.waits(event.task, facts);
            }
            EventKind::Block | EventKind::Exit => self.idle.insert(event.cpu),
        }
        self.count(event.at_ns, may_idle);
    }

    /// Some CPUs may have been told to reschedule.
    #[inline]
    pub fn kicked(&mut self, now_ns: u64, may_idle: impl Fn(CpuId) -> bool) {
        if self.wasted > 0 {
            self.count(now_ns, may_idle);
        }
    }

    /// A task has another affinity from now on.
    pub fn moves(&mut self, task: TaskId, facts: &TaskFacts) {
        if self.waits_no_more(task) {
            self.waits(task, facts);
        }
    }

    /// The kernel has come to its end.
    pub fn end(&mut self, now_ns: u64) {
        self.total_ns = self.total_ns(now_ns);
        self.waiting.clear();
        self.tasks.clear();
        self.wasted = 0;
    }

    /// Begins to measure anew.
    pub fn reset(&mut self, now_ns: u64) {
        (self.total_ns, self.since_ns) = (0, now_ns);
    }

    /// The time since the measuring began, summed over CPUs, ns.
    pub fn total_ns(&self, now_ns: u64) -> u64 {
        self.total_ns + self.wasted as u64 * now_ns.saturating_sub(self.since_ns)
    }

    fn waits(&mut self, task: TaskId, facts: &TaskFacts) {
        if self.held.get(facts.vm.index()).copied().unwrap_or(false) {
            return;
        }
        let affinity = &facts.hard_affinity;
        if self.tasks.len() <= task.index() {
            self.tasks.resize(task.index() + 1, None);
        }
        // vCPUs that may run everywhere have masks of their own that say the same.
        let is_same = |known: &Arc<CpuMask>| Arc::ptr_eq(known, affinity) || known == affinity;
        let affinity = match self.waiting.iter_mut().find(|(known, _)| is_same(known)) {
            Some((known, count)) => {
                *count += 1;
                known.clone()
            }
            None => {
                self.waiting.push((affinity.clone(), 1));
                affinity.clone()
            }
        };
        self.tasks[task.index()] = Some(affinity);
    }

    /// Whether it waited.
    fn waits_no_more(&mut self, task: TaskId) -> bool {
        let Some(affinity) = self.tasks.get_mut(task.index()).and_then(Option::take) else { return false };
        let known = |(known, _): &(Arc<CpuMask>, usize)| Arc::ptr_eq(known, &affinity);
        let at = self.waiting.iter().position(known).expect("the affinity of a task that waits is known");
        self.waiting[at].1 -= 1;
        if self.waiting[at].1 == 0 {
            self.waiting.swap_remove(at);
        }
        true
    }

    #[inline]
    fn count(&mut self, now_ns: u64, may_idle: impl Fn(CpuId) -> bool) {
        self.total_ns = self.total_ns(now_ns);
        self.since_ns = now_ns.max(self.since_ns);
        self.wasted = match self.waiting.is_empty() || self.idle.is_empty() {
            true => 0,
            false => self.wasted_now(may_idle),
        };
    }

    fn wasted_now(&self, may_idle: impl Fn(CpuId) -> bool) -> usize {
        let mut tasks = 0;
        for (affinity, count) in &self.waiting {
            if self.idle.iter_and(affinity).any(&may_idle) {
                tasks += count;
            }
        }
        let is_wanted = |cpu: CpuId| self.waiting.iter().any(|(affinity, _)| affinity.contains(cpu));
        let cpus = self.idle.iter().filter(|&cpu| is_wanted(cpu) && may_idle(cpu));
        cpus.take(tasks).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::TaskPolicy;
    use EventKind::{Block, Preempt, Start, Wake};
    use tandem_machine::ids::{KernelId, VmId};

    fn event(at_ns: u64, kind: EventKind, cpu: u32, task: u32) -> Event {
        let (cpu, task) = (CpuId(cpu), TaskId(task));
        Event { at_ns, kernel: KernelId(0), kind, cpu, task, by: None }
    }

    fn facts(vm: u32, cpus: &[u32]) -> TaskFacts {
        TaskFacts {
            vm: VmId(vm),
            weight: 1024,
            nice: 0,
            policy: TaskPolicy::Normal,
            hard_affinity: Arc::new(CpuMask::from_cpus(2, cpus.iter().copied().map(CpuId))),
            soft_affinity: None,
            past_cpu: None,
            is_kernel_thread: false,
        }
    }

    /// Two CPUs; task 0 may run on both, task 1 on CPU 0 alone.
    fn total_ns(events: &[Event], to_ns: u64) -> u64 {
        let mut follower = IdleBeside::new(&CpuMask::first(2), vec![false]);
        let facts = [facts(0, &[0, 1]), facts(0, &[0])];
        for &event in events {
            follower.follow(event, &facts[event.task.index()], |_| true);
        }
        follower.total_ns(to_ns)
    }

    #[test]
    fn time_counts_while_a_cpu_idles_that_a_task_could_have() {
        assert_eq!(total_ns(&[event(10, Wake, 0, 0)], 30), 20, "one task waits, so one of two CPUs counts");
        assert_eq!(total_ns(&[event(10, Wake, 0, 0), event(15, Start, 1, 0)], 30), 5);
        let both_wait = [event(10, Wake, 0, 0), event(10, Wake, 0, 1)];
        assert_eq!(total_ns(&both_wait, 30), 40);
        let behind = [event(0, Wake, 0, 0), event(0, Start, 0, 0), event(10, Wake, 0, 1)];
        assert_eq!(total_ns(&behind, 30), 0, "the CPU that idles is not among its own");
        let preempted = [behind[0], behind[1], behind[2], event(20, Preempt, 0, 0), event(20, Start, 0, 1)];
        assert_eq!(total_ns(&preempted, 30), 10, "the one that lost its CPU could have the other");
        let gone = [behind[0], behind[1], behind[2], event(20, Block, 0, 0)];
        assert_eq!(total_ns(&gone, 30), 10);
    }

    #[test]
    fn absent_cpus_and_tasks_that_are_held_do_not_count_and_new_affinities_do() {
        let mut follower = IdleBeside::new(&CpuMask::first(2), vec![false, true]);
        follower.follow(event(0, Wake, 0, 0), &facts(0, &[0, 1]), |_| false);
        assert_eq!(follower.total_ns(10), 0);
        follower.moves(TaskId(0), &facts(0, &[1]));
        follower.follow(event(10, Wake, 0, 1), &facts(1, &[0, 1]), |_| true);
        assert_eq!(follower.total_ns(30), 20, "one task, and one CPU for it");
        follower.reset(30);
        assert_eq!(follower.total_ns(35), 5);
        follower.end(40);
        assert_eq!(follower.total_ns(50), 10, "where the kernel has ended nobody waits");
    }
}
