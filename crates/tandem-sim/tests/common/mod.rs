//! Short constructors for scenarios of tests.

// Each test file uses a different part of this module.
#![allow(dead_code)]

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
use tandem_sim::scenario::{PolicySettings, Scenario, Vcpu, Vm};

pub const MS: u64 = 1_000_000;
pub const US: u64 = 1_000;

/// A machine of single-threaded cores in one package.
pub fn cores(count: u32) -> Arc<Machine> {
    Arc::new(MachineBuilder::symmetric(1, count, 1).build().unwrap())
}

/// A scenario with all costs off.
pub fn textbook(machine: Arc<Machine>, policy: CreditSettings, length_ns: u64, vms: Vec<Vm>) -> Scenario {
    Scenario {
        machine,
        costs: CostModels::off(),
        policy: PolicySettings::Credit(policy),
        vms,
        warmup_ns: 0,
        length_ns,
        stop_at_count: None,
        cgroups: Vec::new(),
        events: Vec::new(),
        homes: Default::default(),
        pause_loop: None,
    }
}

/// A VM whose vCPUs run the same program and may run anywhere.
pub fn vm(name: &str, machine: &Machine, vcpus: usize, ops: Vec<Op>) -> Vm {
    let program = Arc::new(Program { ops, profiles: vec![] });
    let all = Arc::new(machine.all_cpus().clone());
    let vcpu = || Vcpu {
        program: Arc::clone(&program),
        hard_affinity: Arc::clone(&all),
        soft_affinity: None,
        nice: 0,
    };
    let nodes = machine.node_count();
    Vm {
        channels: 1,
        counters: vec!["work".into()],
        ..Vm::new(name, (0..vcpus).map(|_| vcpu()).collect(), vec![1.0 / nodes as f64; nodes])
    }
}

/// Restricts all vCPUs of a VM.
pub fn with_affinity(mut vm: Vm, hard: CpuMask, soft: Option<CpuMask>) -> Vm {
    let (hard, soft) = (Arc::new(hard), soft.map(Arc::new));
    for vcpu in &mut vm.vcpus {
        vcpu.hard_affinity = Arc::clone(&hard);
        vcpu.soft_affinity = soft.clone();
    }
    vm
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
