//! From a scenario to kernels with their tasks.

use super::life::Life;
use super::random::{Entity, Stream};
use super::vm::VmState;
use super::waiters::LockRules;
use crate::kernel::{CpuRef, HOST, Kernel, KernelParts, Kernels, Paravirt, Task, TaskKind};
use crate::policy::{AnyPolicy, TaskFacts, VmFacts};
use crate::program::code::{Compiler, Instruction, ProfileTable};
use crate::scenario::{Affinity, Guest, Scenario, Vm, Workload, WorkloadKind};
use std::sync::Arc;
use tandem_machine::Machine;
use tandem_machine::cpumask::CpuMask;
use tandem_machine::ids::{CpuId, KernelId, TaskId, VmId};

/// A scenario made ready to run.
pub(super) struct Built {
    pub kernels: Kernels,
    pub vms: Vec<VmState>,
    pub profiles: ProfileTable,
}

/// Builds the kernels, the states of the VMs, and what runs from the start.
pub(super) fn build(scenario: &Scenario, seed: u64) -> Built {
    let mut compiler = Compiler::new();
    let mut vms = Vec::with_capacity(scenario.workloads.len());
    let vcpus = scenario.workloads.iter().map(Workload::task_count).sum();
    let (mut host_tasks, mut host_facts) = (Vec::with_capacity(vcpus), Vec::with_capacity(vcpus));
    let mut guests = Vec::new();
    for (id, vm) in scenario.workloads.iter().enumerate().map(|(at, vm)| (VmId::from(at), vm)) {
        let first_vcpu = TaskId::from(host_tasks.len());
        let kernel = if vm.guest().is_some() { 1 + guests.len() } else { HOST };
        let mut past_cpus = past_cpus(scenario, id, vm, seed);
        let nothing = Arc::default();
        for (at, affinity) in vm.affinities().enumerate() {
            let program = vm.programs().get(at).map_or(&nothing, |task| &task.program);
            let (nice, policy) = (vm.nice(at), vm.policy(at));
            let code = compiler.compile(program);
            let mut task = Task::new(id, id.index(), code, seed, host_tasks.len() as u64);
            task.kind = match vm.kind {
                WorkloadKind::Vm(_) => TaskKind::Vcpu,
                WorkloadKind::Processes(_) => TaskKind::Process,
                WorkloadKind::Threads(_) => TaskKind::Thread,
                WorkloadKind::KernelThreads(_) => TaskKind::KernelThread,
            };
            if vm.guest().is_some() {
                task.set_guest(CpuRef { kernel, cpu: at.into() });
            }
            host_tasks.push(task);
            host_facts.push(TaskFacts {
                vm: id,
                weight: host_weight(vm.weight, policy.weight(nice)),
                nice,
                policy,
                hard_affinity: affinity.hard.clone(),
                soft_affinity: affinity.soft.clone(),
                past_cpu: (vm.programs().get(at).and_then(|task| task.past_cpu))
                    .or_else(|| take_past_cpu(&mut past_cpus, affinity)),
                is_kernel_thread: vm.is_kernel()
                    || vm.programs().get(at).is_some_and(|task| task.is_kernel_thread),
            });
        }
        let mut families = 0;
        let mut programs = Vec::new();
        if let Some(guest) = vm.guest() {
            programs = guest.programs.iter().map(|known| compiler.compile(&known.program)).collect();
            let (tasks, facts) = guest_tasks(id, guest, &programs, seed);
            families = tasks.len();
            guests.push(guest_kernel(scenario, id, guest, first_vcpu, (tasks, facts), seed));
        }
        vms.push(VmState::new(
            vm,
            kernel,
            first_vcpu,
            Life::drawn(scenario, id.index(), seed),
            families,
            programs,
            lock_rules(scenario, vm),
        ));
    }
    let host = host_kernel(scenario, host_tasks, host_facts, seed);
    let kernels = Kernels::new(std::iter::once(host).chain(guests).collect());
    Built { kernels, vms, profiles: compiler.profiles }
}

/// How the spin locks of the VM's guest treat waiters. Without the model of locks, these are fair.
fn lock_rules(scenario: &Scenario, vm: &Workload) -> LockRules {
    match (scenario.costs.spin_lock, vm.guest()) {
        (Some(_), Some(guest)) => LockRules::of(&scenario.policy, &guest.policy),
        _ => LockRules::Fair,
    }
}

/// The weight of a task of the host: that of its VM or set of processes, by its own (1024 at nice 0).
pub(super) fn host_weight(weight: u32, own: u32) -> u32 {
    let weight = u64::from(weight) * u64::from(own) / u64::from(Workload::DEFAULT_WEIGHT);
    weight.clamp(1, u64::from(u32::MAX)) as u32
}

/// Where a task was before the run: on the next of these pCPUs that it prefers, or else may use. It goes to
/// the end of the order.
fn take_past_cpu(past_cpus: &mut Vec<CpuId>, affinity: &Affinity) -> Option<CpuId> {
    let first_of = |mask: &CpuMask| past_cpus.iter().position(|&cpu| mask.contains(cpu));
    let preferred = affinity.soft.as_ref().map(|soft| soft.and(&affinity.hard));
    let at = preferred.and_then(|mask| first_of(&mask)).or_else(|| first_of(&affinity.hard))?;
    let cpu = past_cpus.remove(at);
    past_cpus.push(cpu);
    Some(cpu)
}

/// All pCPUs, in the order in which the vCPUs of a VM with a past take them; none for another VM.
fn past_cpus(scenario: &Scenario, id: VmId, vm: &Workload, seed: u64) -> Vec<CpuId> {
    if !vm.has_past {
        return Vec::new();
    }
    let mut cpus: Vec<CpuId> = scenario.machine.all_cpus().iter().collect();
    Stream::new(seed, Entity::Past, id.index() as u64).shuffle(&mut cpus);
    cpus
}

fn host_kernel(scenario: &Scenario, tasks: Vec<Task>, facts: Vec<TaskFacts>, seed: u64) -> Kernel {
    let vms: Vec<VmFacts> = scenario
        .workloads
        .iter()
        .map(|workload| VmFacts {
            weight: workload.weight,
            cap_pct: workload.vm().map_or(0, |vm| vm.cap_pct),
            is_cgroup: workload.vm().is_some_and(Vm::has_cgroup),
            cgroup: workload.cgroup,
        })
        .collect();
    Kernel::new(KernelParts {
        id: KernelId::HOST,
        machine: Arc::clone(&scenario.machine),
        context_switch: scenario.costs.context_switch,
        interrupt: scenario.costs.interrupt,
        timer: scenario.costs.timer,
        seed,
        policy: AnyPolicy::new(&scenario.policy, &scenario.machine, &facts, &vms, &scenario.cgroups, seed),
        tasks,
        facts,
        groups: vms.len(),
        first_vcpu: TaskId(0),
        paravirt: Paravirt::NONE,
    })
}

fn guest_kernel(
    scenario: &Scenario,
    vm: VmId,
    guest: &Guest,
    first_vcpu: TaskId,
    (tasks, facts): (Vec<Task>, Vec<TaskFacts>),
    seed: u64,
) -> Kernel {
    Kernel::new(KernelParts {
        id: KernelId::from(vm.index() + 1),
        machine: Arc::clone(&guest.topology),
        context_switch: guest.context_switch,
        interrupt: guest.interrupt,
        timer: scenario.costs.timer,
        seed,
        policy: AnyPolicy::new(&guest.policy, &guest.topology, &facts, &[], &[], seed),
        tasks,
        facts,
        groups: guest.programs.len(),
        first_vcpu,
        paravirt: Paravirt::of(&scenario.policy, &guest.policy),
    })
}

/// The processes that a guest starts with; each begins a family, which its children join.
fn guest_tasks(
    id: VmId,
    guest: &Guest,
    programs: &[Arc<[Instruction]>],
    seed: u64,
) -> (Vec<Task>, Vec<TaskFacts>) {
    let machine: &Machine = &guest.topology;
    let everywhere = Arc::new(machine.housekeeping_cpus().clone());
    let (mut tasks, mut all_facts) = (Vec::new(), Vec::new());
    for process in &guest.processes {
        for _ in 0..process.copies {
            let family = tasks.len();
            let key = u64::from(id.0) << 32 | (1 << 31) | family as u64;
            let mut task = Task::new(id, process.program, programs[process.program].clone(), seed, key);
            task.lineage.found(family as u32, (family * guest.family_channels) as u32);
            let facts = TaskFacts {
                vm: VmId(0),
                weight: process.policy.weight(process.nice),
                nice: process.nice,
                policy: process.policy,
                hard_affinity: process.affinity.clone().unwrap_or_else(|| everywhere.clone()),
                soft_affinity: None,
                past_cpu: None,
                is_kernel_thread: guest.programs[process.program].is_kernel_thread,
            };
            tasks.push(task);
            all_facts.push(facts);
        }
    }
    (tasks, all_facts)
}
