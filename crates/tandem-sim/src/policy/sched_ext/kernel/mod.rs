//! The kernel around a scheduler: its state of tasks and CPUs, and its functions for programs.
//!
//! Each part owns its state: tasks and their structures ([`tasks`]), dispatch queues ([`queues`]), the places
//! of tasks ([`run_queues`]), sets of CPUs in memory ([`sets`]) and those of idle ones ([`idle`]), cgroups,
//! timers, and insertions. Effects of callbacks wait in [`pending`]. [`ScxKernel`] combines the parts, and
//! answers the calls of programs ([`calls`]), one method for each function of the kernel.

mod calls;
mod cgroups;
mod cids;
mod disturbances;
mod idle;
mod immediate;
mod insertions;
mod iteration;
mod number_map;
mod pending;
mod queue;
mod queues;
mod run_queues;
mod select;
mod sets;
mod tasks;
mod timers;

pub use cgroups::{CgroupState, Cgroups};
pub use disturbances::Disturbances;
pub use insertions::{Insertions, Purpose};
pub use run_queues::RunQueues;
pub use select::Wakeup;
pub use tasks::{Custody, PF_EXITING, TaskState};
pub use timers::Timers;

use super::callbacks::Callbacks;
use super::settings::{KernelVersion, SchedExtSettings};
use super::structures::{Field, TaskBlock, field, store};
use super::types::{CPUTIME_STEAL, ExitTaskArgs, RunQueue, SCX_OPS_BUILTIN_IDLE_PER_NODE, Task};
use crate::policy::TaskFacts;
use cids::Cids;
use idle::IdleCpus;
use pending::Pending;
use queues::Queues;
use run_queues::CpuState;
use sets::CpuSets;
use std::sync::Arc;
use tandem_ebpf::{Fault, Kernel, State};
use tandem_machine::Machine;
use tandem_machine::cpumask::CpuMask;
use tandem_machine::ids::{CpuId, TaskId};
use tasks::{NewTask, PF_KTHREAD};

/// Age of the kernel when a run begins, ns: no clock that a program reads shows 0.
const BOOTED_NS: u64 = 1_000_000_000;

/// The task that runs where no other does (`PF_IDLE`).
const PF_IDLE: u64 = 2;
const SCHED_FIFO: u64 = 1;
/// Priority of the task that takes CPUs: in the middle of the real-time range.
const INTRUDER_RT_PRIORITY: u64 = 50;
/// `MAX_RT_PRIO - 1`: a real-time priority is subtracted from it.
const PRIO_OF_RT_0: u64 = 99;

/// The kernel of one scheduler. See the [module](self).
#[derive(Debug)]
pub struct ScxKernel {
    machine: Arc<Machine>,
    version: KernelVersion,
    callbacks: Callbacks,
    now_ns: u64,
    /// The CPU on which the program runs.
    cpu: usize,
    /// The present event comes from outside of all CPUs, such as the start of a task.
    from_outside: bool,
    run_queues: RunQueues,
    insertions: Insertions,
    sets: CpuSets,
    idle: IdleCpus,
    cids: Cids,
    cgroups: Cgroups,
    timers: Timers,
    /// Address of the arguments of `exit_task`, which say that the task was not cancelled.
    exit_task_args: u64,
    /// The structure of the task of a higher class that takes CPUs; 0 before one has.
    intruder: u64,
    random: Random,
    disturbances: Disturbances,
}

impl ScxKernel {
    pub fn new(
        settings: &SchedExtSettings,
        machine: &Arc<Machine>,
        callbacks: Callbacks,
        cgroups: Cgroups,
        disturbances: Disturbances,
    ) -> Self {
        let cpu_count = machine.cpu_count();
        let cpus = vec![CpuState { is_idle: true, ..CpuState::default() }; cpu_count];
        Self {
            version: settings.kernel,
            now_ns: 0,
            cpu: 0,
            from_outside: false,
            run_queues: RunQueues::new(cpus, Queues::new(machine, 0), Pending::default()),
            insertions: Insertions::new(settings.kernel, &callbacks),
            sets: CpuSets::new(cpu_count),
            idle: IdleCpus::new(machine, is_idle_per_node(settings.kernel, &callbacks)),
            cids: Cids::new(callbacks.is_by_cid, callbacks.shard_size),
            cgroups,
            timers: Timers::new(0),
            exit_task_args: 0,
            intruder: 0,
            random: Random(0x9e37_79b9_7f4a_7c15),
            disturbances,
            callbacks,
            machine: Arc::clone(machine),
        }
    }

    /// The scheduler is unloaded: its state goes, the kernel's stays. A pending complaint is still reported.
    pub fn unload(&mut self) {
        let cpus = self.run_queues.cpus.iter().map(CpuState::without_scheduler).collect();
        let queues = Queues::new(&self.machine, self.run_queues.queues.visited());
        let complaint = self.run_queues.pending.take_complaint();
        self.run_queues = RunQueues::new(cpus, queues, Pending::with_complaint(complaint));
        self.insertions = Insertions::new(self.version, &self.callbacks);
        self.sets = CpuSets::new(self.machine.cpu_count());
        self.idle = IdleCpus::new(&self.machine, is_idle_per_node(self.version, &self.callbacks));
        self.cids = self.cids.forgotten();
        self.timers = Timers::new(self.timers.next_token());
        self.intruder = 0;
    }

    /// Makes the structures of CPUs and cgroups that programs see: sets, run queues, the kernel's dispatch
    /// queues.
    pub fn prepare(&mut self, state: &mut State) -> Result<(), Fault> {
        let mut online = self.machine.all_cpus().clone();
        let is_offline = |cpu: &CpuId| self.run_queues.cpus[cpu.index()].is_offline;
        self.machine.all_cpus().iter().filter(is_offline).for_each(|cpu| online.remove(cpu));
        self.sets.prepare(state, &self.machine, &online)?;
        self.idle.prepare(state, &self.sets, &online, self.version)?;
        self.cids.prepare(state, &self.machine, &online)?;
        self.exit_task_args = state.memory.allocate(ExitTaskArgs::SIZE)?;
        let run_queues = &mut self.run_queues;
        run_queues.idle_task = state.memory.allocate(TaskBlock::SIZE + self.sets.bytes())?;
        for cpu in 0..self.machine.cpu_count() {
            run_queues.queues.prepare_local(state, cpu)?;
            let rq = match state.variable("runqueues", cpu) {
                Some(address) => address,
                None => state.memory.allocate(RunQueue::SIZE)?,
            };
            run_queues.prepare_cpu(state, cpu, rq)?;
            let stat = state.variable("kernel_cpustat", cpu);
            run_queues.cpus[cpu].steal = stat.map_or(0, |stat| stat + CPUTIME_STEAL as u64 * 8);
        }
        run_queues.queues.prepare_global(state)?;
        self.cgroups.make(state)?;
        self.describe(state, self.run_queues.idle_task, &[(field!(Task, flags), PF_IDLE | PF_KTHREAD)])
    }

    /// Fills the structure of a task of the kernel's own, which the scheduler does not have: what all of them
    /// share, and more.
    fn describe(&self, state: &mut State, address: u64, more: &[(Field, u64)]) -> Result<(), Fault> {
        let shared = [
            (field!(Task, cpus_ptr), self.sets.possible()),
            (field!(Task, nr_cpus_allowed), self.machine.cpu_count() as u64),
            (field!(TaskBlock, number), u64::MAX),
            (field!(TaskBlock, cgroup), self.cgroups.root()),
            (field!(TaskBlock, address), address),
        ];
        shared
            .iter()
            .chain(more)
            .try_for_each(|&(field, value)| store(&mut state.memory, address, field, value))
    }

    /// An event happens now, on a CPU or from outside of all CPUs.
    pub fn begin(&mut self, now_ns: u64, cpu: usize, from_outside: bool) {
        self.now_ns = now_ns;
        self.cpu = cpu;
        self.from_outside = from_outside;
    }

    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// The CPU on which programs run.
    pub fn set_cpu(&mut self, cpu: usize) {
        self.cpu = cpu;
    }

    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Shows the set of online CPUs with the scheduler's own cids.
    pub fn show_online_cids(&self, state: &mut State) -> Result<(), Fault> {
        let cpus = self.run_queues.cpus.iter().enumerate();
        cpus.into_iter().try_for_each(|(cpu, own)| self.cids.set_online(state, cpu, !own.is_offline))
    }

    /// The number of a CPU that callbacks get.
    #[inline]
    pub fn cpu_argument(&self, cpu: usize) -> u64 {
        self.cids.argument(cpu)
    }

    /// The CPU of a number that a callback returns.
    #[inline]
    pub fn cpu_returned(&self, number: i32) -> Option<usize> {
        u64::try_from(number).ok().and_then(|number| self.cids.named(number))
    }

    /// The set of CPUs that `set_cpumask` gets for a task that may use these.
    pub fn affinity_argument(&self, state: &mut State, task: TaskId, cpus: &CpuMask) -> Result<u64, Fault> {
        match self.cids.replace_cpus() {
            true => self.cids.allowed(state, cpus),
            false => Ok(self.run_queues.tasks[task].cpus_mask),
        }
    }

    pub fn version(&self) -> KernelVersion {
        self.version
    }

    pub fn callbacks(&self) -> &Callbacks {
        &self.callbacks
    }

    #[inline]
    pub fn run_queues(&self) -> &RunQueues {
        &self.run_queues
    }

    #[inline]
    pub fn run_queues_mut(&mut self) -> &mut RunQueues {
        &mut self.run_queues
    }

    pub fn cgroups(&self) -> &Cgroups {
        &self.cgroups
    }

    pub fn cgroups_mut(&mut self) -> &mut Cgroups {
        &mut self.cgroups
    }

    pub fn timers(&self) -> &Timers {
        &self.timers
    }

    pub fn timers_mut(&mut self) -> &mut Timers {
        &mut self.timers
    }

    /// Address of the arguments of `exit_task`.
    pub fn exit_task_args(&self) -> u64 {
        self.exit_task_args
    }

    /// Sets the purpose for which programs run from now on.
    #[inline]
    pub fn set_purpose(&mut self, purpose: Purpose) {
        self.insertions.purpose = purpose;
    }

    /// Carries out the requests of `dispatch`; returns the number of insertions.
    pub fn carry_out(&mut self, state: &mut State) -> usize {
        self.insertions.carry_out(&mut self.run_queues, state, self.cpu)
    }

    pub fn random(&mut self) -> &mut Random {
        &mut self.random
    }

    /// Makes the structure of a task, which comes from a CPU; returns its address.
    pub fn make_task(
        &mut self,
        state: &mut State,
        task: TaskId,
        facts: &TaskFacts,
        cpu: CpuId,
    ) -> Result<u64, Fault> {
        let belonging = self.cgroups.of_vm(facts.vm);
        let new = NewTask { facts, belonging, cpu, clock_ns: self.clock_ns() };
        self.run_queues.tasks.begin(state, &self.sets, task, new)
    }

    /// Frees the structure of a task that has ended.
    pub fn free_task(&mut self, state: &mut State, task: TaskId) {
        self.run_queues.tasks.end(state, &self.sets, task);
    }

    /// Sets the CPUs that a task may use.
    pub fn set_affinity(&mut self, state: &mut State, task: TaskId, cpus: &CpuMask) -> Result<(), Fault> {
        self.run_queues.tasks.set_affinity(state, &self.sets, task, cpus)
    }

    /// An online CPU that the task may use: this one if possible.
    pub fn allowed_cpu(&self, state: &State, task: TaskId, cpu: usize) -> usize {
        let RunQueues { tasks, cpus, .. } = &self.run_queues;
        if tasks.may_run(state, task, cpu) && !cpus[cpu].is_offline {
            return cpu;
        }
        self.sets
            .first(state, tasks[task].cpus_mask, self.sets.online())
            .map_or(cpu, |first| (first as usize).min(cpus.len() - 1))
    }

    /// Charges the running task of a CPU for the time up to now.
    #[inline]
    pub fn account(&mut self, state: &mut State, cpu: usize) {
        self.run_queues.account(state, cpu, self.now_ns);
    }

    /// A CPU begins or stops idling, if the kernel keeps track of that.
    pub fn note_idle(&mut self, state: &mut State, cpu: usize, idles: bool) {
        if self.callbacks.builtin_idle() {
            let _ = self.idle.set(state, cpu, idles);
        }
    }

    /// A CPU comes online or goes offline.
    pub fn note_online(&mut self, state: &mut State, cpu: usize, is_online: bool) -> Result<(), Fault> {
        self.cids.set_online(state, cpu, is_online)?;
        sets::assign(&mut state.memory, self.sets.online(), cpu, is_online).map(drop)
    }

    /// Shows programs that a task of a higher class runs on a CPU; returns its address.
    pub fn show_intruder(&mut self, state: &mut State, cpu: usize) -> Result<(), Fault> {
        if self.intruder == 0 {
            self.intruder = state.memory.allocate(TaskBlock::SIZE + self.sets.bytes())?;
            let more = [
                (field!(Task, policy), SCHED_FIFO),
                (field!(Task, rt_priority), INTRUDER_RT_PRIORITY),
                (field!(Task, prio), PRIO_OF_RT_0 - INTRUDER_RT_PRIORITY),
            ];
            self.describe(state, self.intruder, &more)?;
        }
        store(&mut state.memory, self.run_queues.cpus[cpu].rq, field!(RunQueue, curr), self.intruder)
    }

    /// The structure of the task of a higher class; 0 before one has taken a CPU.
    pub fn intruder(&self) -> u64 {
        self.intruder
    }
}

/// Whether the kernel keeps track of idle CPUs by node.
fn is_idle_per_node(version: KernelVersion, callbacks: &Callbacks) -> bool {
    version >= KernelVersion::V7_3 && callbacks.has(SCX_OPS_BUILTIN_IDLE_PER_NODE)
}

/// The kernel's random numbers: xorshift64*.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// The next number, of 32 bits.
    pub fn next(&mut self) -> u64 {
        let mut x = self.0;
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.0 = x;
        x.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32
    }
}
