//! Translates the operator's settings into the scheduler's.

use super::{Mode, Settings};
use tandem_bpf::types;

impl Settings {
    /// Fills the settings that the scheduler reads; [`Places`](crate::Places) fills the counts.
    pub(super) fn write(&self, to: &mut types::settings) {
        let Self {
            mode,
            watchdog: _,
            ignore: _,
            fairness,
            soft_affinity,
            numa_homes,
            rate_control,
            directed_yield,
            guest,
            // Flags at load time and the policies of tasks express this.
            partial: _,
            // For user space only.
            agent: _,
            steering: _,
            metrics: _,
            vm: _,
        } = self;
        to.guest.write(*mode == Mode::Guest);
        to.cgroup_weights.write(fairness.cgroup_weights);
        to.slice_ns = fairness.slice.ns;
        to.slice_min_ns = fairness.slice_min.ns;
        to.sleeper_credit_ns = fairness.sleeper_credit.ns;
        to.preempt_margin_ns = fairness.preempt_margin.ns;
        to.sync_run_max_ns = fairness.sync_run_max.ns;
        to.migration_margin_ns = fairness.migration_margin.ns;
        to.balance_interval_ns = fairness.balance_interval.ns;

        to.soft_affinity.write(soft_affinity.enabled);
        to.allowed = soft_affinity.allowed;
        to.preferred = soft_affinity.preferred;

        to.numa_homes.write(numa_homes.enabled);
        to.away_min_ns = numa_homes.away_min.ns;

        to.rate_control.write(rate_control.enabled);
        to.rate_window_ns = rate_control.window.ns;
        to.rate_threshold = rate_control.threshold;
        to.ratelimit_ns = rate_control.ratelimit.ns;
        to.latency_exempt.write(rate_control.latency_exempt);

        to.directed_yield.write(directed_yield.enabled);
        to.steal_memory_ns = guest.steal_memory.ns;
    }
}
