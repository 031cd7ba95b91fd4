//! Random scenarios with guest kernels: those of [`super::random`], some of whose VMs get a kernel that runs
//! their programs as tasks, with forks, pipes, spin locks and TLB flushes added; on any host policy, with and
//! without pause-loop exits.

use super::guest::ERAS;
use super::random::{lines, scenario};
use super::{MS, US};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use std::sync::Arc;
use tandem_machine::MachineBuilder;
use tandem_machine::cpumask::CpuMask;
use tandem_machine::ids::CpuId;
use tandem_sim::cost::{ContextSwitch, CostModels, Interrupt};
use tandem_sim::policy::linux::{Domains, LinuxSettings, Preemption, SoftAffinity, SpinLockKind};
use tandem_sim::policy::pause_loop::{DirectedYield, KernelMode, PauseLoop, RunningCheck};
use tandem_sim::program::{Amount, Op, Program};
use tandem_sim::scenario::{
    Guest, GuestProgram, PolicySettings, Process, Scenario, TaskPolicy, Vcpus, Vm, Which, Workload,
    WorkloadKind,
};

/// Channels that a family has for itself, besides those of its VM.
const FAMILY_CHANNELS: usize = 2;

/// Any scenario, with any number of guest kernels.
pub fn scenario_with_guests() -> impl Strategy<Value = Scenario> {
    let plans = vec(prop::option::weighted(0.7, guest_plan()), 8);
    let host = (prop::option::of(linux()), prop::option::of(pause_loop()));
    (scenario(), host, plans).prop_map(|(mut scenario, (host, pause_loop), plans)| {
        scenario.pause_loop = pause_loop;
        match host {
            Some(settings) => scenario.policy = PolicySettings::Linux(settings),
            None => scenario.pause_loop.iter_mut().for_each(|settings| settings.directed_yield = None),
        }
        let with_costs = scenario.costs != CostModels::off();
        let host_cpus = scenario.machine.cpu_count();
        let vms = scenario.workloads.into_iter().zip(plans);
        let vms = vms.map(|(vm, plan)| match plan {
            Some(plan) => plan.build(vm, host_cpus, with_costs),
            None => vm,
        });
        scenario.workloads = vms.collect();
        scenario
    })
}

/// Any settings of Linux's scheduler.
fn linux() -> impl Strategy<Value = LinuxSettings> {
    let domains = select(vec![Domains::Topology, Domains::Flat]);
    let spin_locks = prop::option::of(select(vec![SpinLockKind::Ticket, SpinLockKind::Queued]));
    let tunables = (SoftAffinity::TUNABLES, SoftAffinity::TUNABLES)
        .prop_map(|(allowed, preferred)| SoftAffinity::Tunables { allowed, preferred });
    let soft_affinity = prop_oneof![
        Just(SoftAffinity::Ignored),
        Just(SoftAffinity::POSTED),
        tunables,
        Just(SoftAffinity::WorkConserving),
    ];
    let preemption =
        prop::option::of(select(vec![Preemption::Voluntary, Preemption::Full, Preemption::Lazy]));
    (
        select(&ERAS[..]),
        domains,
        select(vec![100, 250, 1000]),
        any::<[bool; 2]>(),
        (spin_locks, soft_affinity, preemption),
    )
        .prop_map(
            |(era, domains, tick_hz, [steal_clock, groups], (spin_locks, soft_affinity, preemption))| {
                LinuxSettings {
                    preemption: preemption.filter(|preemption| preemption.problem(era).is_none()),
                    era,
                    domains,
                    tick_hz,
                    steal_clock,
                    groups: Some(groups),
                    base_slice_ns: None,
                    queue_scan_ns: 0,
                    spin_locks,
                    paravirt_locks: true,
                    soft_affinity: match soft_affinity.problem(era) {
                        Some(_) => SoftAffinity::Ignored,
                        None => soft_affinity,
                    },
                    numa_balancing: false,
                }
            },
        )
}

/// Any settings of pause-loop exits.
pub fn pause_loop() -> impl Strategy<Value = PauseLoop> {
    let running_check = select(vec![
        RunningCheck::UnderLocks,
        RunningCheck::GuestMode,
        RunningCheck::BeforeLocks,
        RunningCheck::Preempted,
        RunningCheck::Ready,
    ]);
    let kernel_mode = select(vec![KernelMode::Any, KernelMode::Required, KernelMode::RequiredOrInterrupt]);
    let checks = (running_check, kernel_mode, any::<[bool; 4]>());
    let directed = checks.prop_map(|(running_check, kernel_mode, switches)| {
        let [alternates_spinners, undercommit_check, skips_yielding_cpus, skips_host_mode_cpus] = switches;
        DirectedYield {
            running_check,
            kernel_mode,
            alternates_spinners,
            undercommit_check,
            skips_yielding_cpus,
            skips_host_mode_cpus,
        }
    });
    let windows = (1_000..20_000u32, 1..4u32);
    (windows, prop::option::weighted(0.8, directed)).prop_map(
        |((window_cycles, window_growth), directed_yield)| PauseLoop {
            window_cycles,
            window_growth,
            window_max_cycles: 100_000,
            directed_yield,
            ..PauseLoop::V3_6
        },
    )
}

/// The operation that a program of a guest adds in each round to those of the VM's program.
fn extra_op() -> impl Strategy<Value = Vec<Op>> {
    let short = |work_ns| Op::Compute { work: Amount::Fixed(work_ns), profile: None };
    let locked =
        (US..200 * US).prop_map(move |ns| vec![Op::Lock { lock: 0 }, short(ns), Op::Unlock { lock: 0 }]);
    let forked = any::<bool>().prop_map(move |waits| {
        let mut ops = vec![short(10 * US), Op::Fork { program: 0 }];
        ops.extend(waits.then_some(Op::WaitChild));
        ops
    });
    // A reader exists only by chance: a writer may block for good.
    let sent = (0..FAMILY_CHANNELS, 1..4u32, lines(), lines()).prop_map(
        |(channel, capacity, message_lines, queue_lines)| {
            vec![Op::Send { channel, capacity, resume_at: None, message_lines, queue_lines }]
        },
    );
    let taken = (0..FAMILY_CHANNELS).prop_map(|channel| vec![Op::Wait { channel }]);
    let piped = prop_oneof![sent, taken];
    prop_oneof![2 => locked, 2 => forked, 1 => piped, 1 => Just(vec![Op::Yield]), 1 => Just(vec![Op::FlushTlbs])]
}

#[derive(Clone, Debug)]
struct GuestPlan {
    policy: LinuxSettings,
    threads: bool,
    extra: Vec<Vec<Op>>,
    child_work: (u64, bool),
    processes: Vec<(u32, i8, Option<u32>)>,
}

fn guest_plan() -> impl Strategy<Value = GuestPlan> {
    let process = (0..4u32, -20..20i8, prop::option::weighted(0.2, any::<u32>()));
    (linux(), any::<bool>(), vec(extra_op(), 0..4), (0..2 * MS, any::<bool>()), vec(process, 4)).prop_map(
        |(policy, threads, extra, child_work, processes)| GuestPlan {
            policy,
            threads,
            extra,
            child_work,
            processes,
        },
    )
}

impl GuestPlan {
    /// The VM with a kernel, in which its vCPUs' programs are tasks. Program 0 is what they fork.
    fn build(self, mut workload: Workload, host_cpus: usize, with_costs: bool) -> Workload {
        let cap_pct = workload.vm().map_or(0, |vm| vm.cap_pct);
        let mut tasks = workload.programs().to_vec();
        tasks.truncate(host_cpus);
        let cpus = tasks.len();
        for change in &mut workload.affinity_changes {
            if let Which::These(vcpus) = &mut change.tasks {
                vcpus.iter_mut().for_each(|vcpu| *vcpu %= cpus);
            }
        }
        let threads = if self.threads && cpus.is_multiple_of(2) { 2 } else { 1 };
        let topology = MachineBuilder::symmetric(1, cpus as u32 / threads, threads).build().unwrap();
        let (work_ns, execs) = self.child_work;
        let mut child = vec![Op::Compute { work: Amount::Fixed(work_ns), profile: None }];
        if execs {
            child.push(Op::Exec { program: 1 });
        }
        let last =
            vec![Op::Sleep(Amount::Fixed(50 * US)), Op::Compute { work: Amount::Fixed(US), profile: None }];
        let mut programs = vec![named("child", child, vec![]), named("last", last, vec![])];
        let mut processes = Vec::new();
        for (vcpu, (copies, nice, affinity)) in tasks.iter_mut().zip(self.processes) {
            let program = std::mem::take(Arc::make_mut(&mut vcpu.program));
            let ops = with_extra(program.ops, &self.extra, workload.channels);
            let affinity = affinity.map(|bits| {
                let chosen = (0..cpus).map(CpuId::from).filter(|cpu| bits >> cpu.0 & 1 == 1);
                CpuMask::from_cpus(cpus, chosen)
            });
            processes.push(Process {
                program: programs.len(),
                copies,
                nice,
                policy: TaskPolicy::Normal,
                affinity: affinity.filter(|mask| !mask.is_empty()).map(Arc::new),
            });
            programs.push(named("program", ops, program.profiles));
        }
        let guest = Guest {
            policy: PolicySettings::Linux(self.policy),
            topology: Arc::new(topology),
            context_switch: with_costs.then(ContextSwitch::linux),
            interrupt: with_costs.then(Interrupt::default),
            programs,
            processes,
            locks: 1,
            family_channels: FAMILY_CHANNELS,
        };
        let vcpus = tasks.into_iter().map(|task| task.affinity).collect();
        let vm = Vm { cap_pct, ..Vm::new(Vcpus::Guest { vcpus, guest: guest.into() }) };
        Workload { kind: WorkloadKind::Vm(vm), ..workload }
    }
}

fn named(name: &str, ops: Vec<Op>, profiles: Vec<Arc<tandem_sim::program::MemoryProfile>>) -> GuestProgram {
    GuestProgram::new(name, Arc::new(Program { ops, profiles }))
}

/// Adds the extra operations to each round of the endless loop, where there is one.
fn with_extra(mut ops: Vec<Op>, extra: &[Vec<Op>], shared_channels: usize) -> Vec<Op> {
    if let Some(Op::Repeat { times: None, body }) = ops.last_mut() {
        body.extend(extra.iter().flatten().cloned().map(|mut op| {
            if let Op::Send { channel, .. } | Op::Wait { channel } = &mut op {
                *channel += shared_channels;
            }
            op
        }));
    }
    ops
}
