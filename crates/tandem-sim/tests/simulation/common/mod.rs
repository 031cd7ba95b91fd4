//! Short constructors for scenarios of tests.

pub mod follow;
pub mod guest;
pub mod random;
pub mod random_guests;
pub mod stacked;

use std::sync::Arc;
use tandem_machine::cpumask::CpuMask;
use tandem_machine::{Machine, MachineBuilder};
use tandem_sim::cost::CostModels;
use tandem_sim::policy::credit::CreditSettings;
use tandem_sim::program::{Amount, Op, Program};
use tandem_sim::scenario::{Affinity, HostTask, PolicySettings, Scenario, Vm, Workload, WorkloadKind};

pub const MS: u64 = 1_000_000;
pub const US: u64 = 1_000;

/// A machine of single-threaded cores in one package.
pub fn cores(count: u32) -> Arc<Machine> {
    Arc::new(MachineBuilder::symmetric(1, count, 1).build().unwrap())
}

/// A scenario with all costs off.
pub fn textbook(
    machine: Arc<Machine>,
    policy: CreditSettings,
    length_ns: u64,
    vms: Vec<Workload>,
) -> Scenario {
    Scenario {
        machine,
        costs: CostModels::off(),
        policy: PolicySettings::Credit(policy),
        workloads: vms,
        warmup_ns: 0,
        length_ns,
        stop_at_count: None,
        gates: 0,
        cgroups: Vec::new(),
        events: Vec::new(),
        homes: Default::default(),
        pause_loop: None,
        halt_poll_ns: None,
    }
}

/// A VM whose vCPUs run the same program and may run anywhere.
pub fn vm(name: &str, machine: &Machine, vcpus: usize, ops: Vec<Op>) -> Workload {
    let program = Arc::new(Program { ops, profiles: vec![] });
    let vcpu = HostTask::new(program, Affinity::hard(machine.all_cpus().clone()));
    let nodes = machine.node_count();
    Workload {
        channels: 1,
        counters: vec!["work".into()],
        ..Workload::new(name, WorkloadKind::vm(vec![vcpu; vcpus]), vec![1.0 / nodes as f64; nodes])
    }
}

/// The kinds of workloads that need no guest kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Vm,
    Processes,
    Threads,
}

impl Kind {
    pub const ALL: [Self; 3] = [Self::Vm, Self::Processes, Self::Threads];

    /// A workload of the kind that consists of these tasks.
    pub fn of(self, tasks: Vec<HostTask>) -> WorkloadKind {
        match self {
            Self::Vm => WorkloadKind::vm(tasks),
            Self::Processes => WorkloadKind::Processes(tasks),
            Self::Threads => WorkloadKind::Threads(tasks),
        }
    }
}

/// What is said of VMs only.
pub fn vm_of(workload: &mut Workload) -> &mut Vm {
    workload.vm_mut().expect("it is a VM")
}

/// Restricts all tasks of a workload.
pub fn with_affinity(mut workload: Workload, hard: CpuMask, soft: Option<CpuMask>) -> Workload {
    let affinity = Affinity { hard: Arc::new(hard), soft: soft.map(Arc::new) };
    for task in 0..workload.task_count() {
        *workload.affinity_mut(task) = affinity.clone();
    }
    workload
}

pub fn forever(body: Vec<Op>) -> Vec<Op> {
    vec![Op::Repeat { times: None, body }]
}

/// Computes without end.
pub fn hog() -> Vec<Op> {
    forever(vec![compute(MS), Op::Count { counter: 0, amount: 1 }])
}

pub fn compute(work_ns: u64) -> Op {
    Op::Compute { work: Amount::Fixed(work_ns), profile: None }
}

pub fn sleep(time_ns: u64) -> Op {
    Op::Sleep(Amount::Fixed(time_ns))
}

/// Sends a token of which only the arrival matters.
pub fn send(channel: usize, capacity: u32) -> Op {
    Op::Send { channel, capacity, resume_at: None, message_lines: 0, queue_lines: 0 }
}
