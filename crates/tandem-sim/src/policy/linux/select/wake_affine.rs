//! Whether a task that wakes up is pulled to its waker (`wake_affine()`, `wake_wide()`).

use super::WakeUp;
use crate::policy::Context;
use crate::policy::linux::domains::DomainTree;
use crate::policy::linux::features::{PlacementFeatures, WakeWide};
use crate::policy::linux::queues::Runqueues;
use tandem_machine::ids::{CpuId, TaskId};

/// Period after which flips are halved, ns.
const FLIP_DECAY_NS: u64 = 1_000_000_000;

/// The history of a task as a waker.
#[derive(Clone, Debug)]
struct Waker {
    /// How often it woke a different task than the time before, halved every second.
    flips: u32,
    /// The task that it woke last.
    last_wakee: Option<TaskId>,
    /// When the flips were last halved, ns.
    flip_decay_ns: u64,
    /// 5.2, 6.12: the CPU where it was before its present one or, in 5.2, where it last woke another task.
    recent_used_cpu: CpuId,
}

/// The history of all tasks as wakers, by task.
#[derive(Clone, Debug, Default)]
pub(in crate::policy::linux) struct Wakers(Vec<Waker>);

impl Wakers {
    /// Starts the history of a task number for a new task that was born on this CPU; new numbers come in
    /// order. A child has its parent's history: `dup_task_struct()` copies it, and nothing outside of
    /// `record_wakee()` and `wake_wide()` touches it.
    pub fn begin(&mut self, task: TaskId, parent: Option<TaskId>, cpu: CpuId) {
        let without_past = Waker { flips: 0, last_wakee: None, flip_decay_ns: 0, recent_used_cpu: cpu };
        let of_parent = parent.and_then(|parent| self.0.get(parent.index())).cloned();
        let new = Waker { recent_used_cpu: cpu, ..of_parent.unwrap_or(without_past) };
        match self.0.get_mut(task.index()) {
            Some(known) => *known = new,
            None => self.0.push(new),
        }
    }

    /// Counts how often the waker wakes a different task than the time before (`record_wakee()`).
    pub(super) fn record(&mut self, now_ns: u64, wake: WakeUp<'_>) {
        let Some(waker) = wake.waker else { return };
        let waker = &mut self.0[waker.index()];
        if now_ns > waker.flip_decay_ns + FLIP_DECAY_NS {
            waker.flips /= 2;
            waker.flip_decay_ns = now_ns;
        }
        if waker.last_wakee != Some(wake.task) {
            waker.last_wakee = Some(wake.task);
            waker.flips += 1;
        }
    }

    fn flips(&self, task: TaskId) -> u64 {
        self.0[task.index()].flips.into()
    }

    /// The CPU where it was before, or last woke another task (`recent_used_cpu`).
    pub(super) fn recent_cpu(&self, task: TaskId) -> CpuId {
        self.0[task.index()].recent_used_cpu
    }

    pub(super) fn set_recent_cpu(&mut self, task: TaskId, cpu: CpuId) {
        self.0[task.index()].recent_used_cpu = cpu;
    }

    #[cfg(test)]
    pub fn flips_of(&self, task: TaskId) -> u64 {
        self.flips(task)
    }

    #[cfg(test)]
    pub fn set_flips(&mut self, task: TaskId, flips: u32) {
        self.0[task.index()].flips = flips;
    }
}

/// The question whether a task is pulled to its waker.
#[derive(Clone, Copy)]
pub(super) struct WakeAffine<'a> {
    pub queues: &'a Runqueues,
    pub domains: &'a DomainTree,
    pub wakers: &'a Wakers,
    pub features: &'a PlacementFeatures,
    pub wake: &'a WakeUp<'a>,
}

impl WakeAffine<'_> {
    /// Whether the waker wakes too many different tasks to keep them near one another (`wake_wide()`).
    pub fn is_wide(&self) -> bool {
        let waker = self.wake.waker.map_or(0, |waker| self.wakers.flips(waker));
        let wakee = self.wakers.flips(self.wake.task);
        let factor = u64::from(self.domains.llc_size(self.wake.cpu));
        match self.features.wake_wide {
            WakeWide::Absent => false,
            WakeWide::OfWaker => wakee > factor && waker > factor * wakee,
            WakeWide::OfEither => {
                let (slave, master) = (wakee.min(waker), wakee.max(waker));
                slave >= factor && master >= factor * slave
            }
        }
    }

    /// Whether the task goes to the waker's CPU rather than to its old one; the domain `at` holds both.
    pub fn pulls(&self, ctx: &mut Context<'_>, at: usize) -> bool {
        *ctx.peers_scanned += 1;
        let imbalance_pct = u64::from(self.domains.domain(at).tunables.imbalance_pct);
        // Half of the imbalance that balancing tolerates favours the waker's CPU.
        let bias_pct = 100 + (imbalance_pct - 100) / 2;
        if self.features.wa_idle {
            self.pulls_by_idleness().unwrap_or_else(|| self.pulls_by_load(bias_pct))
        } else {
            self.pulls_by_weight(bias_pct)
        }
    }

    /// 3.6 and 4.2: whether the waker's CPU, with the task, and at a synchronous wake-up without the waker,
    /// is not busier than the old one is without the task. What a task makes of the load of a CPU depends on
    /// its group (`effective_load()`); without groups, its weight on its waker's CPU, and nothing on its old
    /// one.
    fn pulls_by_weight(&self, bias_pct: u64) -> bool {
        let wake = self.wake;
        let mut this_load = self.queues.loads().target(wake.cpu, 0) as i64;
        let mut prev_load = self.queues.loads().source(wake.prev, 0) as i64;
        if let Some(waker) = wake.waker.filter(|_| wake.sync) {
            let entity = self.queues.entity(waker);
            let weight = i64::from(entity.weight);
            if entity.exiting {
                this_load -= self.queues.load_of_exiting(waker);
            } else {
                this_load += self.queues.effective_load(waker, wake.cpu, -weight, -weight);
                prev_load += self.queues.effective_load(waker, wake.prev, 0, -weight);
            }
        }
        let weight = i64::from(self.queues.entity(wake.task).weight);
        let with_task = this_load + self.queues.effective_load(wake.task, wake.cpu, weight, weight);
        let without_task = prev_load + self.queues.effective_load(wake.task, wake.prev, 0, weight);
        let [this_capacity, prev_capacity] = self.capacities().map(|capacity| capacity as i64);
        if this_load <= 0 || 100 * with_task * prev_capacity <= bias_pct as i64 * without_task * this_capacity
        {
            return true;
        }
        // 3.6 also pulls if both CPUs together have no more load than an average task of this CPU.
        let tasks = self.queues.of(wake.cpu).nr_running() as i64;
        self.features.wa_avg_load_per_task
            && this_load <= prev_load
            && tasks > 0
            && this_load + self.queues.loads().target(wake.prev, 0) as i64
                <= self.queues.loads().of_cpu(wake.cpu) as i64 / tasks
    }

    /// Since 5.2: an idle CPU decides, or a waker that is alone and about to leave (`wake_affine_idle()`).
    fn pulls_by_idleness(&self) -> Option<bool> {
        let wake = self.wake;
        let idle = |cpu| self.queues.available().contains(cpu);
        if idle(wake.cpu) && self.domains.share_cache(wake.cpu, wake.prev) {
            return Some(!idle(wake.prev));
        }
        if wake.sync && self.queues.of(wake.cpu).nr_runnable() == 1 {
            return Some(true);
        }
        // Since 5.11, an old CPU that idles keeps the task, at any distance.
        (self.features.wa_idle_prev && idle(wake.prev)).then_some(false)
    }

    /// Since 5.2: the lower load decides (`wake_affine_weight()`).
    fn pulls_by_load(&self, bias_pct: u64) -> bool {
        let wake = self.wake;
        let mut this_load = self.queues.loads().of_cpu(wake.cpu);
        if wake.sync {
            let leaving = wake.waker.map_or(0, |waker| self.queues.loads().of_task(waker));
            if leaving > this_load {
                return true;
            }
            this_load -= leaving;
        }
        let task_load = self.queues.loads().of_task(wake.task);
        let [this_capacity, prev_capacity] = self.capacities();
        let this = 100 * (this_load + task_load) * prev_capacity;
        let prev = bias_pct * self.queues.loads().of_cpu(wake.prev).saturating_sub(task_load) * this_capacity;
        this < prev + u64::from(wake.sync)
    }

    /// What stolen time leaves of the capacities of the waker's CPU and of the old one, in 1024ths.
    fn capacities(&self) -> [u64; 2] {
        [self.wake.cpu, self.wake.prev].map(|cpu| self.queues.of(cpu).capacity_left())
    }
}
