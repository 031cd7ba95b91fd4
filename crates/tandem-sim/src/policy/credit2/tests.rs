//! The scheduler's decisions one by one, in situations that are set up by hand. Each test is named after the
//! function of Xen's `credit2.c` that decides.

mod balancing;
mod queues;
mod turns;

use super::*;
use crate::scenario::TaskPolicy;
use std::sync::Arc;
use tandem_machine::MachineBuilder;

const MS: u64 = 1_000_000;
const US: u64 = 1_000;

const RELEASES: [Release; 4] = [Release::Xen4_12, Release::Xen4_14, Release::Xen4_17, Release::Xen4_20];

/// Hard and soft affinity of a vCPU; an empty one means none.
type Affinities = (&'static [u32], &'static [u32]);

const ANYWHERE: Affinities = (&[], &[]);

/// A scheduler in a situation: every vCPU is a VM of its own, assigned to the queue of CPU 0 or the first
/// that it may use, and asleep; every CPU idles.
struct Situation {
    machine: Machine,
    facts: Vec<TaskFacts>,
    credit2: Credit2,
    now_ns: u64,
}

impl Situation {
    fn new(settings: Credit2Settings, shape: (u32, u32, u32), affinities: &[Affinities]) -> Self {
        Self::of_vms(settings, shape, affinities, &vec![(256, 0); affinities.len()])
    }

    /// `vms`: the weight and the cap of each.
    fn of_vms(
        settings: Credit2Settings,
        (packages, cores, threads): (u32, u32, u32),
        affinities: &[Affinities],
        vms: &[(u32, u32)],
    ) -> Self {
        let machine = MachineBuilder::symmetric(packages, cores, threads).build().unwrap();
        let mask = |cpus: &[u32]| {
            let mask = CpuMask::from_cpus(machine.cpu_count(), cpus.iter().copied().map(CpuId));
            (!cpus.is_empty()).then(|| Arc::new(mask))
        };
        let facts = affinities.iter().enumerate().map(|(at, (hard, soft))| TaskFacts {
            vm: at.into(),
            weight: 1024,
            nice: 0,
            policy: TaskPolicy::Normal,
            hard_affinity: mask(hard).unwrap_or_else(|| Arc::new(machine.all_cpus().clone())),
            soft_affinity: mask(soft),
            past_cpu: None,
            is_kernel_thread: false,
        });
        let facts: Vec<TaskFacts> = facts.collect();
        let vms =
            vms.iter().map(|&(weight, cap_pct)| VmFacts { weight, cap_pct, is_cgroup: true, cgroup: None });
        let mut credit2 = Credit2::new(settings, &machine, &facts, &vms.collect::<Vec<_>>());
        for task in (0..facts.len()).map(TaskId::from) {
            let queue = credit2.queue_of_cpu(credit2.vcpus[task.index()].cpu);
            credit2.assign(task, queue);
        }
        Self { machine, facts, credit2, now_ns: 100 * MS }
    }

    /// Asks the scheduler; returns the answer and the CPUs that it kicks.
    fn ask<R>(&mut self, question: impl FnOnce(&mut Credit2, &mut Context<'_>) -> R) -> (R, Vec<u32>) {
        let mut kicked = Vec::new();
        let mut context = Context {
            now_ns: self.now_ns,
            machine: &self.machine,
            tasks: &self.facts,
            stolen_ns: &[],
            kicked: &mut kicked,
            peers_scanned: &mut 0,
            locked: &mut Vec::new(),
            shared_locked: &mut Vec::new(),
            alarms: &mut Vec::new(),
            later: &mut Vec::new(),
            failure: &mut None,
        };
        let answer = question(&mut self.credit2, &mut context);
        (answer, kicked.into_iter().map(|cpu| cpu.0).collect())
    }

    fn vcpu(&mut self, task: u32) -> &mut Vcpu {
        &mut self.credit2.vcpus[task as usize]
    }

    /// The vCPU has run on the CPU for so long, with so much credit left.
    fn runs(&mut self, task: u32, cpu: u32, ran_ns: u64, credit: i64) {
        let now_ns = self.now_ns;
        let vcpu = self.vcpu(task);
        vcpu.awake = true;
        vcpu.scheduled = true;
        vcpu.cpu = CpuId(cpu);
        vcpu.started_ns = now_ns - ran_ns;
        vcpu.burnt_until_ns = now_ns;
        vcpu.credit = credit;
        self.credit2.pcpus[cpu as usize].current = Some(TaskId(task));
        self.credit2.idle.remove(CpuId(cpu));
        self.credit2.core_no_longer_idles(CpuId(cpu));
    }

    /// The vCPU waits; it was on the CPU last.
    fn waits(&mut self, task: u32, cpu: u32, credit: i64) {
        let vcpu = self.vcpu(task);
        vcpu.awake = true;
        vcpu.cpu = CpuId(cpu);
        vcpu.credit = credit;
        self.credit2.insert(TaskId(task));
    }

    fn waiting(&self, queue: usize) -> Vec<u32> {
        self.credit2.queues[queue].waiting.iter().map(|task| task.0).collect()
    }

    /// Wakes the vCPU; returns the CPUs that this kicks.
    fn wake(&mut self, task: u32) -> Vec<u32> {
        self.vcpu(task).awake = true;
        self.ask(|credit2, ctx| credit2.wake(ctx, TaskId(task))).1
    }

    /// Asks the CPU to decide; `previous` could go on.
    fn dispatch(&mut self, cpu: u32, previous: Option<u32>) -> (Option<u32>, u64) {
        let previous = previous.map(TaskId);
        let dispatch = self.ask(|credit2, ctx| credit2.dispatch(ctx, CpuId(cpu), previous)).0;
        (dispatch.task.map(|task| task.0), dispatch.slice_ns)
    }
}

fn settings() -> Credit2Settings {
    Credit2Settings::default()
}
