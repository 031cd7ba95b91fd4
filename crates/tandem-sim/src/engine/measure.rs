//! Measurements of a run: where they start, and the results at the end.
//!
//! What a task does counts from its start to its end, within the measured time. The delay of a wake-up or a
//! start counts if that comes in the measured time; where the task still waits at the end, so far. A response
//! counts if it is given in the measured time.
//!
//! **Limits.** A kernel decides first, and then takes the time of its code. A vCPU that blocks, and that
//! another wakes before its kernel's code on the way to the block has ended, is for that long on two pCPUs.

use super::deadlock;
use super::vm::VmState;
use crate::kernel::{HOST, Kernel, Kernels, System, TaskState, TimerTarget};
use crate::metrics::{
    GuestCpuMetrics, GuestMetrics, HaltPollMetrics, HomeMove, HostMetrics, ParavirtMetrics, PauseLoopMetrics,
    ProgramMetrics, RunMetrics, TaskMetrics, VmMetrics,
};
use crate::policy::Policy;
use crate::program::channel::Channel;
use crate::scenario::{Guest, Scenario};
use crate::times::Times;
use crate::trace::Observer;
use std::cmp::Reverse;

/// The warm-up is over: forgets what was measured.
pub(super) fn start<O: Observer>(system: &mut System<O>, vms: &mut [VmState], now_ns: u64) {
    system.settle_all(now_ns);
    system.kernels.iter_mut().for_each(|kernel| kernel.start_measuring(now_ns));
    system.pause_loops.metrics = PauseLoopMetrics::default();
    system.paravirt = ParavirtMetrics::default();
    system.idle_beside.iter_mut().for_each(|kernel| kernel.reset(now_ns));
    system.halt_polls.metrics = HaltPollMetrics::default();
    if let Some(numa) = &mut system.numa {
        numa.start_measuring();
    }
    system.processors.account_ahead(&mut system.kernels, now_ns, |account_ns, ns| *account_ns += ns);
    vms.iter_mut().for_each(VmState::start_measuring);
}

/// What was measured since that time, until now.
pub(super) fn results<O: Observer>(
    scenario: &Scenario,
    mut system: System<O>,
    vms: &[VmState],
    home_moves: Vec<HomeMove>,
    measured_since_ns: u64,
    now_ns: u64,
) -> RunMetrics {
    system.settle_all(now_ns);
    system.processors.account_ahead(&mut system.kernels, now_ns, |account_ns, ns| *account_ns -= ns);
    system.kernels.iter_mut().for_each(|kernel| kernel.count_delays(now_ns));
    let length_ns = now_ns - measured_since_ns;
    let host = system.kernels.host();
    let tasks_of =
        |state: &VmState| host.tasks().all()[state.tasks()].iter().map(|task| task.measured(now_ns));
    let all = || scenario.workloads.iter().zip(vms).zip(host.usage().delays());
    let mut kernel_threads = TaskMetrics::default();
    for ((_, state), _) in all().filter(|((spec, _), _)| spec.is_kernel()) {
        tasks_of(state).for_each(|task| kernel_threads.add(&task));
    }
    let metrics = HostMetrics {
        kernel_threads,
        pause_loop: system.pause_loops.metrics,
        paravirt: system.paravirt,
        halt_poll: HaltPollMetrics {
            polled_ns: system.kernels.iter().flat_map(Kernel::cpus).map(|cpu| cpu.used.polled_ns).sum(),
            ..system.halt_polls.metrics
        },
        home_moves,
        idle_beside_ns: system.idle_beside[HOST].total_ns(now_ns),
        deadlocks: deadlock::find(scenario, vms, &system.kernels),
        numa: system.numa.as_ref().map(|numa| numa.metrics()).unwrap_or_default(),
        ..host_metrics(host)
    };
    let vms = all().filter(|((spec, _), _)| !spec.is_kernel()).map(|((spec, state), delays)| {
        let (guest, measured) = (spec.guest(), state.measured());
        let lived_ns = state.life.within_ns(measured_since_ns, now_ns);
        VmMetrics {
            name: spec.name.clone(),
            group: spec.group.clone(),
            lived_ns,
            counts: spec.counters.iter().cloned().zip(measured.counts.iter().copied()).collect(),
            coherence_ns: measured.coherence_ns,
            response: measured.responses.clone(),
            unanswered: unanswered(state, &system.kernels, now_ns),
            vcpus: tasks_of(state).collect(),
            vcpu_delay: delays.clone(),
            guest: guest.map(|guest| GuestMetrics {
                idle_beside_ns: system.idle_beside[state.kernel].total_ns(now_ns),
                ..guest_metrics(guest, &system.kernels[state.kernel], lived_ns, now_ns)
            }),
        }
    });
    let vms = vms.collect();
    RunMetrics { length_ns, events: system.events, trace_hash: system.trace_hash.value(), host: metrics, vms }
}

/// The times since the requests of a VM arrived that nobody has answered: those on their way through its guest kernel, those
/// in its channels, and those that its tasks have taken.
fn unanswered(state: &VmState, kernels: &Kernels, now_ns: u64) -> Times {
    let kernel = &kernels[state.kernel];
    let (tasks, on_their_way) = match state.kernel {
        HOST => (&kernel.tasks().all()[state.tasks()], None),
        _ => (kernel.tasks().all(), Some(kernel.cpus().iter().flat_map(|cpu| &cpu.timers))),
    };
    let of_tasks = tasks.iter().filter(|task| task.state() != TaskState::Exited);
    let of_tasks = of_tasks.flat_map(|task| task.run.unanswered_since_ns());
    let in_channels = state.channels.iter().flat_map(Channel::requests).map(|request| request.arrived_ns);
    let on_their_way = on_their_way.into_iter().flatten().filter_map(|Reverse((arrived_ns, target))| {
        matches!(target, TimerTarget::Source(_)).then_some(*arrived_ns)
    });
    of_tasks.chain(in_channels).chain(on_their_way).map(|since_ns| now_ns.saturating_sub(since_ns)).collect()
}

/// Sums over the host's CPUs, and what its policy counted.
fn host_metrics(host: &Kernel) -> HostMetrics {
    let mut metrics = HostMetrics {
        pcpus: host.cpus().len(),
        policy: host.policy().counters().into_iter().collect(),
        scheduler_costs: host.policy().decision_costs(),
        ..HostMetrics::default()
    };
    for cpu in host.cpus() {
        metrics.busy_ns += cpu.used.busy_ns;
        metrics.overhead_ns += cpu.used.overhead_ns;
        metrics.spin_ns += cpu.used.spin_ns;
        metrics.idle_ns += cpu.used.idle_ns;
        metrics.away_ns += cpu.used.away_ns;
        metrics.schedules += cpu.used.schedules;
    }
    metrics
}

fn guest_metrics(guest: &Guest, kernel: &Kernel, lived_ns: u64, now_ns: u64) -> GuestMetrics {
    let cpus = kernel.cpus().iter().map(|cpu| {
        let used = &cpu.used;
        let taken_ns = used.busy_ns + used.overhead_ns + used.searched_ns + used.stolen_ns;
        GuestCpuMetrics {
            busy_ns: used.busy_ns,
            kernel_ns: used.overhead_ns,
            pause_exit_ns: used.searched_ns,
            idle_ns: lived_ns.saturating_sub(taken_ns),
            polled_ns: used.polled_ns,
            stolen_ns: used.stolen_ns,
        }
    });
    let mut totals: Vec<TaskMetrics> =
        kernel.usage().programs().iter().map(|program| program.total.clone()).collect();
    for task in kernel.tasks().all().iter().filter(|task| task.state() != TaskState::Exited) {
        totals[task.group as usize].add(&task.measured(now_ns));
    }
    let used = guest.programs.iter().zip(kernel.usage().programs()).zip(kernel.usage().delays()).zip(totals);
    let mut programs = Vec::new();
    let mut kernel_threads =
        ProgramMetrics { name: GuestMetrics::KERNEL_THREADS.into(), ..ProgramMetrics::default() };
    for (((spec, program), delay), total) in
        used.filter(|(((_, program), _), total)| program.tasks > 0 || total.wait_ns > 0)
    {
        match spec.is_kernel_thread {
            true => {
                kernel_threads.tasks += program.tasks;
                kernel_threads.total.add(&total);
                kernel_threads.delay.add(delay);
            }
            false => programs.push(ProgramMetrics {
                name: spec.name.clone(),
                tasks: program.tasks,
                total,
                delay: delay.clone(),
            }),
        }
    }
    GuestMetrics {
        cpus: cpus.collect(),
        programs,
        kernel_threads,
        policy: kernel.policy().counters().into_iter().collect(),
        ..GuestMetrics::default()
    }
}
