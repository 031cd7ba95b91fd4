//! Measurements: what VMs count and record, where measuring starts, and the results at the end.

use super::simulation::Simulation;
use crate::ids::{TaskId, VmId};
use crate::kernel::CpuUse;
use crate::metrics::{HostMetrics, LatencySummary, RunMetrics, TaskMetrics, VmMetrics};
use crate::policy::Policy;
use crate::program::channel::Channel;
use crate::scenario::Vm;
use crate::trace::Observer;
use hdrhistogram::Histogram;

/// Digits of a response time that are kept: percentiles are good to 1%.
const SIGNIFICANT_DIGITS: u8 = 2;

/// A VM while it runs.
pub(super) struct VmState {
    pub channels: Vec<Channel>,
    pub first_task: TaskId,
    counts: Vec<u64>,
    /// Made when the first one comes; few VMs have any.
    responses: Option<Box<Histogram<u64>>>,
    reached_count: bool,
}

impl VmState {
    pub fn new(spec: &Vm, first_task: TaskId) -> Self {
        Self {
            channels: vec![Channel::new(first_task); spec.channels],
            first_task,
            counts: vec![0; spec.counters.len()],
            responses: None,
            reached_count: false,
        }
    }

    /// Records a response time, ns.
    pub fn responded(&mut self, elapsed_ns: u64) {
        let responses = self.responses.get_or_insert_with(new_histogram);
        responses.record(elapsed_ns).expect("it resizes to any value");
    }
}

fn new_histogram() -> Box<Histogram<u64>> {
    let mut histogram = Histogram::new(SIGNIFICANT_DIGITS).expect("between 0 and 5 digits");
    histogram.auto(true);
    Box::new(histogram)
}

impl<P: Policy, O: Observer> Simulation<'_, P, O> {
    /// Adds to a counter of a VM, up to the largest number that there is, and ends the run when every VM has done enough.
    pub fn count(&mut self, vm: VmId, counter: usize, amount: u64) {
        let state = &mut self.vms[vm.index()];
        state.counts[counter] = state.counts[counter].saturating_add(amount);
        if let Some(enough) = self.scenario.stop_at_count
            && counter == 0
            && !state.reached_count
            && state.counts[0] >= enough
            && self.measuring_since_ns.is_some()
        {
            state.reached_count = true;
            self.vms_to_go -= 1;
            if self.vms_to_go == 0 {
                self.end();
            }
        }
    }

    /// The warm-up is over: forget what was measured.
    pub fn start_measuring(&mut self, now_ns: u64) {
        self.measuring_since_ns = Some(now_ns);
        let ahead_ns = self.kernel.settle_all(now_ns);
        for (cpu, ahead_ns) in self.kernel.cpus.iter_mut().zip(ahead_ns) {
            cpu.used = CpuUse { overhead_ns: ahead_ns, ..CpuUse::default() };
        }
        for task in &mut self.kernel.tasks {
            task.metrics = TaskMetrics::default();
        }
        for vm in &mut self.vms {
            vm.counts.fill(0);
            vm.responses = None;
        }
        self.kernel.policy.reset_counters();
    }

    /// What was measured until now.
    pub fn results(mut self, now_ns: u64) -> RunMetrics {
        self.kernel.settle_all(now_ns);
        let length_ns = now_ns - self.measuring_since_ns.unwrap_or(0);
        let mut host = HostMetrics {
            pcpus: self.kernel.cpus.len(),
            policy: self.kernel.policy.counters().into_iter().collect(),
            ..HostMetrics::default()
        };
        for cpu in &self.kernel.cpus {
            host.busy_ns += cpu.used.busy_ns;
            host.idle_ns += cpu.used.idle_ns;
            host.overhead_ns += cpu.used.overhead_ns;
            host.schedules += cpu.used.schedules;
            host.context_switches += cpu.used.context_switches;
            host.preemptions += cpu.used.preemptions;
        }
        let vms = self.scenario.vms.iter().zip(&self.vms).map(|(spec, state)| {
            let first = state.first_task.index();
            let tasks = &self.kernel.tasks[first..first + spec.vcpus.len()];
            VmMetrics {
                name: spec.name.clone(),
                group: spec.group.clone(),
                counts: spec.counters.iter().cloned().zip(state.counts.iter().copied()).collect(),
                response: state.responses.as_deref().map(summary).unwrap_or_default(),
                vcpus: tasks.iter().map(|task| finished(task.metrics.clone(), length_ns)).collect(),
                vcpu_wakeup: LatencySummary::default(),
                guest: None,
            }
        });
        RunMetrics {
            length_ns,
            events: self.kernel.events,
            trace_hash: self.kernel.trace_hash.value(),
            host,
            vms: vms.collect(),
        }
    }
}

/// Time that a task neither ran nor slept, it waited.
fn finished(mut metrics: TaskMetrics, length_ns: u64) -> TaskMetrics {
    metrics.wait_ns = length_ns.saturating_sub(metrics.run_ns + metrics.sleep_ns);
    metrics
}

fn summary(times: &Histogram<u64>) -> LatencySummary {
    LatencySummary {
        count: times.len(),
        mean_ns: times.mean(),
        p50_ns: times.value_at_quantile(0.50),
        p95_ns: times.value_at_quantile(0.95),
        p99_ns: times.value_at_quantile(0.99),
        max_ns: times.max(),
    }
}
