//! Properties of spin locks, of guests and of the host's run queues, checked before every event of random
//! runs: one holder at a time, served in the order of arrival, and no task lost, whichever loses a pCPU
//! meanwhile.

use super::vm::VmState;
use super::waiters::{LockRules, SpinLock};
use crate::cost::{ContextSwitch, CostModels, Interrupt};
use crate::kernel::{CpuRef, System, Task, TaskState};
use crate::policy::credit::CreditSettings;
use crate::policy::linux::{LinuxEra, LinuxSettings, SpinLockKind};
use crate::policy::pause_loop::{DirectedYield, KernelMode, PauseLoop, RunningCheck};
use crate::program::{Amount, Op, Program};
use crate::scenario::{
    Affinity, Guest, GuestProgram, PolicySettings, Process, Scenario, TaskPolicy, Workload, WorkloadKind,
};
use crate::trace::Observer;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use std::sync::Arc;
use tandem_machine::MachineBuilder;
use tandem_machine::ids::TaskId;

const LOCKS: usize = 2;
const LENGTH_NS: u64 = 60_000_000;

/// Panics unless all locks are as they should be between two events, and so is what polls.
pub(super) fn check_locks<O: Observer>(system: &System<O>, vms: &[VmState], now_ns: u64) {
    system.check_queue_locks();
    system.check_polls(now_ns);
    for vm in vms {
        let tasks = system.kernels[vm.kernel].tasks().all();
        let mut waiting: Vec<TaskId> = Vec::new();
        for lock in &vm.locks {
            check_lock(system, vm.kernel, tasks, lock);
            waiting.extend(lock.waiting());
        }
        let waits = waiting.len();
        waiting.sort_unstable();
        waiting.dedup();
        assert_eq!(waiting.len(), waits, "a task waits for one lock at a time");
        if vm.locks.is_empty() {
            continue;
        }
        let spinning = tasks.iter().enumerate().filter(|(_, task)| {
            let lives = task.state() != TaskState::Exited;
            lives && task.spin.awaits_lock()
        });
        let spinning: Vec<_> = spinning.map(|(task, _)| TaskId::from(task)).collect();
        assert_eq!(spinning, waiting, "the tasks that spin are those in a line");
        let held: u32 = tasks.iter().map(|task| task.spin.locks_held()).sum();
        let holders = vm.locks.iter().filter(|lock| lock.holder().is_some()).count();
        assert_eq!(held as usize, holders, "a lock has one holder, which knows of it");
    }
}

fn check_lock<O: Observer>(system: &System<O>, kernel: usize, tasks: &[Task], lock: &SpinLock) {
    let vcpu_state = |task: TaskId| {
        let vcpu = system.kernels.vcpu_task(CpuRef { kernel, cpu: tasks[task.index()].last_cpu });
        system.kernels.host()[vcpu].state()
    };
    for task in lock.waiting().filter(|&task| vcpu_state(task) == TaskState::Blocked) {
        assert!(lock.is_halted(task), "only waiters that have halted sleep");
    }
    let check_ns = system.processors.hardware().prev_check_ns();
    for task in lock.waiting().filter(|_| lock.rules() == LockRules::PvHybrid) {
        let vcpu = CpuRef { kernel, cpu: tasks[task.index()].last_cpu };
        if system.kernels[kernel].paravirt().waits_early_behind(&system.kernels[vcpu])
            && let Some(behind) = lock.spinning_behind(task)
            && system.processors.spins_now(&system.kernels, kernel, behind)
        {
            let left_ns = tasks[behind.index()].spin.left_ns();
            assert!(left_ns.is_some_and(|left_ns| left_ns <= check_ns), "pv_wait_early(): {left_ns:?}");
        }
    }
    let is_in_order = !matches!(lock.rules(), LockRules::TestAndSet | LockRules::PvHybrid);
    match lock.holder() {
        Some(holder) => {
            assert!(tasks[holder.index()].spin.locks_held() > 0, "the holder knows that it holds the lock");
            assert!(lock.waiting().all(|task| task != holder), "the holder does not wait for its own lock");
        }
        None if is_in_order => assert_eq!(lock.waiting().count(), 0, "no task waits for a free lock"),
        None => {
            if let Some(first) = lock.waiting().next() {
                assert_ne!(vcpu_state(first), TaskState::Blocked, "no wake-up is lost: {lock:?}");
            }
            for &task in lock.crowd() {
                let spins = system.processors.spins_now(&system.kernels, kernel, task);
                assert!(!spins || tasks[task.index()].spin.is_to_look(), "no task spins for a free lock");
            }
        }
    }
}

/// One to three VMs with guests on few pCPUs, whose tasks take locks, flush TLBs and sleep, on a host of Linux
/// or Xen that notices vCPUs that spin, or does not.
fn scenario() -> impl Strategy<Value = Scenario> {
    let eras =
        || select(vec![LinuxEra::V3_6, LinuxEra::V4_2, LinuxEra::V5_2, LinuxEra::V6_12, LinuxEra::V7_3]);
    let kinds = || prop::option::of(select(vec![SpinLockKind::Ticket, SpinLockKind::Queued]));
    let linux = || {
        (eras(), kinds(), any::<bool>()).prop_map(|(era, spin_locks, paravirt_locks)| LinuxSettings {
            era,
            tick_hz: 1_000,
            spin_locks,
            paravirt_locks,
            ..LinuxSettings::default()
        })
    };
    let checks = select(vec![
        RunningCheck::UnderLocks,
        RunningCheck::GuestMode,
        RunningCheck::BeforeLocks,
        RunningCheck::Preempted,
        RunningCheck::Ready,
    ]);
    let modes = select(vec![KernelMode::Any, KernelMode::Required, KernelMode::RequiredOrInterrupt]);
    let handler = (checks, modes, any::<[bool; 4]>()).prop_map(|(running_check, kernel_mode, switches)| {
        DirectedYield {
            running_check,
            kernel_mode,
            alternates_spinners: switches[0],
            undercommit_check: switches[1],
            skips_yielding_cpus: switches[2],
            skips_host_mode_cpus: switches[3],
        }
    });
    let handler = prop::option::weighted(0.8, handler);
    let pause_loop = prop::option::weighted(
        0.9,
        handler.prop_map(|directed_yield| PauseLoop { directed_yield, ..PauseLoop::V3_6 }),
    );
    let vm = (1..7usize, 1..9u32, vec((0..3u8, 0..LOCKS, 1_000..60_000u64), 1..4), linux());
    let hosts = prop::option::weighted(0.8, linux());
    let halt_polls = prop::option::of(select(vec![0, 30_000, 500_000, 20_000_000]));
    // Short turns, so that every VM gets on.
    let xen = CreditSettings { timeslice_ns: 1_000_000, ratelimit_ns: 0, ..CreditSettings::default() };
    (1..3u32, 1..4u32, vec(vm, 1..4), hosts, (pause_loop, halt_polls), any::<[bool; 2]>()).prop_map(
        move |(packages, cores, vms, host, (mut pause_loop, halt_poll_ns), [with_costs, is_family])| {
            if let (None, Some(pause_loop)) = (host, &mut pause_loop) {
                pause_loop.directed_yield = None;
            }
            let machine =
                Arc::new(MachineBuilder::symmetric(packages, cores, 1).build().expect("a regular machine"));
            let vms = vms.into_iter().enumerate().map(|(at, (vcpus, tasks, parts, guest))| {
                let vcpus = vcpus.min(machine.cpu_count());
                let ops = vec![Op::Repeat { times: None, body: parts.into_iter().flat_map(part).collect() }];
                // Threads of one process flush each other's TLBs.
                let (forks, copies) = if is_family { (tasks as usize - 1, 1) } else { (0, tasks) };
                let first = vec![Op::Fork { program: 1 }; forks].into_iter().chain(ops.clone()).collect();
                let program = |ops| Arc::new(Program { ops, profiles: vec![] });
                let nodes = machine.node_count();
                let shares = vec![1.0 / nodes as f64; nodes];
                let guest = Guest {
                    policy: PolicySettings::Linux(guest),
                    topology: Arc::new(
                        MachineBuilder::symmetric(1, vcpus as u32, 1).build().expect("a regular machine"),
                    ),
                    context_switch: with_costs.then(ContextSwitch::linux),
                    interrupt: with_costs.then(Interrupt::default),
                    programs: vec![
                        GuestProgram::new("user", program(first)),
                        GuestProgram::new("thread", program(ops)),
                    ],
                    processes: vec![Process {
                        program: 0,
                        copies,
                        nice: 0,
                        policy: TaskPolicy::Normal,
                        affinity: None,
                    }],
                    locks: LOCKS,
                    family_channels: 0,
                };
                let vcpus = vec![Affinity::hard(machine.all_cpus().clone()); vcpus];
                Workload {
                    counters: vec!["rounds".into()],
                    ..Workload::new(format!("vm-{at}"), WorkloadKind::guest(vcpus, guest), shares)
                }
            });
            Scenario {
                workloads: vms.collect(),
                costs: if with_costs { CostModels::all() } else { CostModels::off() },
                policy: host.map_or(PolicySettings::Credit(xen), PolicySettings::Linux),
                pause_loop,
                halt_poll_ns: halt_poll_ns.filter(|_| host.is_some_and(|it| it.era > LinuxEra::V3_6)),
                warmup_ns: 0,
                length_ns: LENGTH_NS,
                stop_at_count: None,
                gates: 0,
                cgroups: Vec::new(),
                events: Vec::new(),
                homes: Default::default(),
                machine,
            }
        },
    )
}

/// A part of a round: it computes, and then holds a lock, flushes TLBs or sleeps.
fn part((kind, lock, time_ns): (u8, usize, u64)) -> Vec<Op> {
    let compute = |work_ns| Op::Compute { work: Amount::Fixed(work_ns), profile: None };
    let mut ops = vec![compute(1 + time_ns / 7), Op::Count { counter: 0, amount: 1 }];
    ops.extend(match kind {
        0 => vec![Op::Lock { lock }, compute(time_ns), Op::Unlock { lock }],
        1 => vec![Op::FlushTlbs],
        _ => vec![Op::Sleep(Amount::Fixed(time_ns))],
    });
    ops
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn locks_exclude_each_other_and_lose_nobody(scenario in scenario(), seed in any::<u64>()) {
        let metrics = super::run(&scenario, seed).expect("the scenario runs");
        let host = &metrics.host;
        prop_assert_eq!(
            host.busy_ns + host.overhead_ns + host.idle_ns,
            metrics.length_ns * host.pcpus as u64,
            "time is conserved"
        );
        prop_assert!(host.spin_ns <= host.overhead_ns);
        for vm in &metrics.vms {
            prop_assert!(vm.counts["rounds"] > 0, "the VM gets on");
        }
    }
}
