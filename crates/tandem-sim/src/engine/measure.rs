//! Measurements: what VMs count and record, where measuring starts, and the results at the end.

use super::life::Life;
use super::simulation::Simulation;
use super::spin_lock::SpinLock;
use crate::kernel::{HOST, Kernel, Task, TaskState, record};
use crate::metrics::{
    GuestCpuMetrics, GuestMetrics, HostMetrics, LatencySummary, PauseLoopMetrics, ProgramMetrics, RunMetrics,
    TaskMetrics, VmMetrics,
};
use crate::policy::Policy;
use crate::program::channel::Channel;
use crate::program::code::Instruction;
use crate::scenario::{Guest, Workload};
use crate::trace::Observer;
use hdrhistogram::Histogram;
use std::sync::Arc;
use tandem_machine::ids::{TaskId, VmId};

/// A VM while it runs.
pub(super) struct VmState {
    /// Position of the kernel that its tasks belong to: the host's if it has none of its own.
    pub kernel: usize,
    pub first_vcpu: TaskId,
    pub life: Life,
    /// It has started and not ended.
    pub is_there: bool,
    /// Those that all its tasks share, then those of each family.
    pub channels: Vec<Channel>,
    /// How many all its tasks share.
    pub shared_channels: u32,
    pub locks: Box<[SpinLock]>,
    /// The programs of its guest kernel.
    pub programs: Box<[Arc<[Instruction]>]>,
    /// Time in which its tasks fetched the lines of messages and channels, ns.
    pub coherence_ns: u64,
    counts: Vec<u64>,
    /// Made when the first one comes; few VMs have any.
    responses: Option<Box<Histogram<u64>>>,
    reached_count: bool,
}

impl VmState {
    /// A VM whose tasks belong to that kernel, with so many families among them.
    pub fn new(
        spec: &Workload,
        kernel: usize,
        first_vcpu: TaskId,
        life: Life,
        families: usize,
        programs: Vec<Arc<[Instruction]>>,
    ) -> Self {
        let family_channels = spec.guest().map_or(0, |guest| guest.family_channels);
        let first_taker = if kernel == HOST { first_vcpu } else { TaskId(0) };
        Self {
            kernel,
            first_vcpu,
            life,
            is_there: false,
            channels: vec![Channel::new(first_taker); spec.channels + families * family_channels],
            shared_channels: spec.channels as u32,
            locks: vec![SpinLock::default(); spec.guest().map_or(0, |guest| guest.locks)].into(),
            programs: programs.into(),
            coherence_ns: 0,
            counts: vec![0; spec.counters.len()],
            responses: None,
            reached_count: false,
        }
    }

    /// Records a response time, ns.
    pub fn responded(&mut self, elapsed_ns: u64) {
        record(&mut self.responses, elapsed_ns);
    }
}

impl<O: Observer> Simulation<'_, O> {
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
        self.agent_reads_clocks(now_ns);
        self.system.settle_all(now_ns);
        self.system.kernels.iter_mut().for_each(|kernel| kernel.start_measuring(now_ns));
        self.system.pause_loop_use = PauseLoopMetrics::default();
        if let Some(numa) = &mut self.system.numa {
            numa.start_measuring();
        }
        self.system
            .processors
            .account_ahead(&mut self.system.kernels, now_ns, |account_ns, ns| *account_ns += ns);
        for vm in &mut self.vms {
            vm.counts.fill(0);
            vm.coherence_ns = 0;
            vm.responses = None;
        }
    }

    /// What was measured until now.
    pub fn results(mut self, now_ns: u64) -> RunMetrics {
        self.system.settle_all(now_ns);
        self.system
            .processors
            .account_ahead(&mut self.system.kernels, now_ns, |account_ns, ns| *account_ns -= ns);
        let measured_since_ns = self.measuring_since_ns.unwrap_or(0);
        let length_ns = now_ns - measured_since_ns;
        let host = self.system.kernels.host();
        let mut metrics = HostMetrics {
            pcpus: host.cpus().len(),
            policy: host.policy().counters().into_iter().collect(),
            scheduler_costs: host.policy().decision_costs(),
            pause_loop: self.system.pause_loop_use,
            home_moves: self.agent.take().map_or_else(Vec::new, |agent| agent.moves),
            numa: self.system.numa.as_ref().map(|numa| numa.metrics()).unwrap_or_default(),
            ..HostMetrics::default()
        };
        for cpu in host.cpus() {
            metrics.busy_ns += cpu.used.busy_ns;
            metrics.overhead_ns += cpu.used.overhead_ns;
            metrics.spin_ns += cpu.used.spin_ns;
            metrics.idle_ns += cpu.used.idle_ns;
            metrics.away_ns += cpu.used.away_ns;
            metrics.schedules += cpu.used.schedules;
            metrics.context_switches += cpu.used.context_switches;
            metrics.preemptions += cpu.used.preemptions;
        }
        let vms = self.scenario.workloads.iter().zip(&self.vms).zip(host.usage().wakeups());
        let vms = vms.map(|((spec, state), wakeups)| {
            let first = state.first_vcpu.index();
            let tasks = &host.tasks().all()[first..first + spec.task_count()];
            VmMetrics {
                name: spec.name.clone(),
                group: spec.group.clone(),
                lived_ns: state.life.within_ns(measured_since_ns, now_ns),
                counts: spec.counters.iter().cloned().zip(state.counts.iter().copied()).collect(),
                coherence_ns: state.coherence_ns,
                response: state.responses.as_deref().map(summary).unwrap_or_default(),
                vcpus: tasks.iter().map(|task| finished(task, now_ns)).collect(),
                vcpu_wakeup: wakeups.map(summary).unwrap_or_default(),
                guest: spec
                    .guest()
                    .map(|guest| guest_metrics(guest, &self.system.kernels[state.kernel], length_ns, now_ns)),
            }
        });
        let vms = vms.collect();
        RunMetrics {
            length_ns,
            events: self.system.events,
            trace_hash: self.system.trace_hash.value(),
            host: metrics,
            vms,
        }
    }
}

fn guest_metrics(guest: &Guest, kernel: &Kernel, length_ns: u64, now_ns: u64) -> GuestMetrics {
    let cpus = kernel.cpus().iter().map(|cpu| {
        let used = &cpu.used;
        let taken_ns = used.busy_ns + used.overhead_ns + used.searched_ns + used.stolen_ns;
        GuestCpuMetrics {
            busy_ns: used.busy_ns,
            kernel_ns: used.overhead_ns,
            pause_exit_ns: used.searched_ns,
            idle_ns: length_ns.saturating_sub(taken_ns),
            stolen_ns: used.stolen_ns,
        }
    });
    let mut totals: Vec<TaskMetrics> =
        kernel.usage().programs().iter().map(|program| program.total.clone()).collect();
    for task in kernel.tasks().all().iter().filter(|task| task.state != TaskState::Exited) {
        totals[task.group as usize].add(&finished(task, now_ns));
    }
    let used = guest.programs.iter().zip(kernel.usage().programs()).zip(kernel.usage().wakeups()).zip(totals);
    let programs =
        used.filter(|(((_, program), _), _)| program.tasks > 0).map(|(((spec, program), wakeup), total)| {
            ProgramMetrics {
                name: spec.name.clone(),
                tasks: program.tasks,
                total,
                wakeup: wakeup.map(summary).unwrap_or_default(),
            }
        });
    GuestMetrics {
        cpus: cpus.collect(),
        programs: programs.collect(),
        policy: kernel.policy().counters().into_iter().collect(),
    }
}

/// What a task has come to. Time that it neither ran nor slept nor was robbed of, it waited.
pub(super) fn finished(task: &Task, now_ns: u64) -> TaskMetrics {
    let mut metrics = task.metrics.clone();
    let life_ns = now_ns - task.measured_since_ns;
    metrics.wait_ns = life_ns.saturating_sub(metrics.run_ns + metrics.sleep_ns + metrics.stolen_ns);
    if task.state == TaskState::Runnable {
        metrics.longest_wait_ns = metrics.longest_wait_ns.max(task.waited_ns(now_ns));
    }
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
