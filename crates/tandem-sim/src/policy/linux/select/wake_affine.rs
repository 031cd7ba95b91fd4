//! Whether a task that wakes up is pulled to its waker (`wake_affine()`, `wake_wide()`).

use super::WakeUp;
use crate::policy::linux::features::WakeWide;
use crate::policy::linux::{Context, Linux};

/// Flips are halved that often.
const FLIP_DECAY_NS: u64 = 1_000_000_000;

impl Linux {
    /// Counts how often the waker wakes another task than the time before (`record_wakee()`).
    pub(super) fn record_wakee(&mut self, now_ns: u64, wake: WakeUp<'_>) {
        let Some(waker) = wake.waker else { return };
        let waker = &mut self.entities[waker.index()];
        if now_ns > waker.wakee_flip_decay_ns + FLIP_DECAY_NS {
            waker.wakee_flips /= 2;
            waker.wakee_flip_decay_ns = now_ns;
        }
        if waker.last_wakee != Some(wake.task) {
            waker.last_wakee = Some(wake.task);
            waker.wakee_flips += 1;
        }
    }

    /// Whether so many different tasks are woken here that they do not fit near one another (`wake_wide()`).
    pub(super) fn wakes_wide(&self, wake: WakeUp<'_>) -> bool {
        let flips = |task: tandem_machine::ids::TaskId| u64::from(self.entities[task.index()].wakee_flips);
        let waker = wake.waker.map_or(0, flips);
        let wakee = flips(wake.task);
        let factor = u64::from(self.domains.llc_size(wake.cpu));
        match self.features.placement.wake_wide {
            WakeWide::Absent => false,
            WakeWide::OfWaker => wakee > factor && waker > factor * wakee,
            WakeWide::OfEither => {
                let (slave, master) = (wakee.min(waker), wakee.max(waker));
                slave >= factor && master >= factor * slave
            }
        }
    }

    /// Whether the task goes to the waker's CPU rather than to its old one; the domain `at` holds both.
    pub(super) fn pulls(&self, ctx: &mut Context<'_>, wake: WakeUp<'_>, at: usize) -> bool {
        *ctx.peers_scanned += 1;
        let imbalance_pct = u64::from(self.domains.domain(at).tunables.imbalance_pct);
        // Half of the imbalance that balancing tolerates speaks for the waker's CPU.
        let bias_pct = 100 + (imbalance_pct - 100) / 2;
        if self.features.placement.wa_idle {
            self.pulls_by_idleness(wake).unwrap_or_else(|| self.pulls_by_load(wake, bias_pct))
        } else {
            self.pulls_by_weight(wake, bias_pct)
        }
    }

    /// 3.6 and 4.2: whether the waker's CPU is not busier than the old one, the task's weight added and, at a
    /// synchronous wake-up, the waker's weight taken off.
    fn pulls_by_weight(&self, wake: WakeUp<'_>, bias_pct: u64) -> bool {
        let weight = |task: tandem_machine::ids::TaskId| self.entities[task.index()].weight;
        let mut this_load = self.target_load(wake.cpu, 0);
        let prev_load = self.source_load(wake.prev, 0);
        if wake.sync {
            this_load = this_load.saturating_sub(wake.waker.map_or(0, |waker| u64::from(weight(waker))));
        }
        let task_load = u64::from(weight(wake.task));
        if this_load == 0 || 100 * (this_load + task_load) <= bias_pct * (prev_load + task_load) {
            return true;
        }
        // 3.6 also pulls if both CPUs together have no more than a usual task of this CPU.
        let tasks = self.cpus[wake.cpu.index()].nr_running() as u64;
        self.features.placement.wa_avg_load_per_task
            && this_load <= prev_load
            && tasks > 0
            && this_load + self.target_load(wake.prev, 0) <= self.cpu_load(wake.cpu) / tasks
    }

    /// Since 5.2: an idle CPU decides, or a waker that is alone and about to leave (`wake_affine_idle()`).
    fn pulls_by_idleness(&self, wake: WakeUp<'_>) -> Option<bool> {
        let idle = |cpu| self.idle.contains(cpu);
        if idle(wake.cpu) && self.domains.share_cache(wake.cpu, wake.prev) {
            return Some(!idle(wake.prev));
        }
        if wake.sync && self.cpus[wake.cpu.index()].nr_running() == 1 {
            return Some(true);
        }
        // Since 5.11, an old CPU that idles keeps the task, wherever it is.
        (self.features.placement.wa_idle_prev && idle(wake.prev)).then_some(false)
    }

    /// Since 5.2: the lower load decides (`wake_affine_weight()`).
    fn pulls_by_load(&self, wake: WakeUp<'_>, bias_pct: u64) -> bool {
        let mut this_load = self.cpu_load(wake.cpu);
        if wake.sync {
            let leaving = wake.waker.map_or(0, |waker| self.task_load(waker));
            if leaving > this_load {
                return true;
            }
            this_load -= leaving;
        }
        let task_load = self.task_load(wake.task);
        let this = 100 * (this_load + task_load);
        let prev = bias_pct * self.cpu_load(wake.prev).saturating_sub(task_load);
        this < prev + u64::from(wake.sync)
    }
}
