//! How a scheduler starts: structures of the kernel are made, settings written, and it is told of cgroups and tasks.

use super::SchedExt;
use super::cgroups::USUAL_WEIGHT;
use super::cost::Costs;
use super::kernel::{
    Callbacks, CpuState, Disturbances, Purpose, ScxKernel, TaskBlock, TaskState, field, store,
};
use super::masks;
use super::number_map::NumberMap;
use super::settings::SchedExtSettings;
use super::types::{
    self, CPUTIME_STEAL, ExitTaskArgs, InitTaskArgs, RunQueue, SCX_DSQ_GLOBAL, SCX_DSQ_LOCAL_ON,
    SCX_SLICE_DFL, SignalStruct, Task,
};
use crate::policy::{TaskFacts, VmFacts};
use crate::scenario::Cgroup;
use std::sync::Arc;
use tandem_ebpf::{Fault, Instance, Kernel, State};
use tandem_machine::Machine;
use tandem_machine::ids::{CpuId, TaskId};

/// A usual task's weight in the simulator, and in Linux's fair scheduler.
const NICE_0_WEIGHT: u64 = 1024;
/// `MAX_RT_PRIO + 20`: the priority of a task with nice 0.
pub(super) const DEFAULT_PRIO: u64 = 120;

impl SchedExt {
    /// The scheduler for a kernel with these CPUs, tasks and groups of tasks. What goes wrong is told with
    /// the first question, as [`Context::failure`](crate::policy::Context::failure).
    pub fn new(
        settings: &SchedExtSettings,
        machine: &Arc<Machine>,
        tasks: &[TaskFacts],
        vms: &[VmFacts],
        cgroups: &[Cgroup],
        seed: u64,
    ) -> Self {
        let mut failure = None;
        let instance = Instance::new(Arc::clone(&settings.code), machine.cpu_count());
        let callbacks = Callbacks::of(settings.code.image());
        let disturbances = Disturbances::new(settings, seed);
        let mut kernel =
            ScxKernel::new(settings, machine, callbacks.clone().unwrap_or_default(), disturbances);
        kernel.plan_cgroups(cgroups, vms);
        let instance = match (instance, callbacks) {
            (Ok(instance), Some(_)) => Some(instance),
            (Ok(_), None) => {
                failure = Some("the object defines no scheduler (no `.struct_ops`)".to_owned());
                None
            }
            (Err(fault), _) => {
                failure = Some(fault.to_string());
                None
            }
        };
        let mut policy = Self {
            settings: settings.clone(),
            instance,
            kernel,
            failure,
            kicks: 0,
            wakeups: 0,
            decisions: 0,
            costs: Costs::default(),
            visited_before: 0,
            counted_before: Vec::new(),
        };
        if let Err(fault) = policy.start(tasks) {
            policy.fail(fault.to_string());
        }
        policy
    }

    fn start(&mut self, tasks: &[TaskFacts]) -> Result<(), Fault> {
        if self.instance.is_none() {
            return Ok(());
        }
        self.boot()?;
        for (number, facts) in tasks.iter().enumerate() {
            self.begin_task(TaskId::from(number), facts, facts.past_cpu, false)?;
        }
        Ok(())
    }

    /// Makes what programs see, and tells the scheduler that it begins, and of cgroups.
    pub(super) fn boot(&mut self) -> Result<(), Fault> {
        let Some(instance) = &mut self.instance else { return Ok(()) };
        let state = instance.state_mut();
        for (address, bytes) in &self.settings.data {
            state.memory.slice_mut(*address, bytes.len())?.copy_from_slice(bytes);
        }
        set_constants(&self.settings, state)?;
        self.kernel.prepare(state)?;
        self.kernel.make_cgroups(state)?;
        self.call_checked("init", self.kernel.callbacks.init, &[])?;
        self.start_cgroups()
    }

    /// Calls a callback that may refuse.
    pub(super) fn call_checked<const COUNT: usize>(
        &mut self,
        name: &str,
        callback: Option<tandem_ebpf::FunctionId>,
        arguments: &[u64; COUNT],
    ) -> Result<u64, Fault> {
        let result = self.call(callback, Purpose::Other, arguments) as i32;
        match result {
            ..0 => Err(Fault(format!("`{name}` of the scheduler failed with error {}", -result))),
            _ => Ok(result as u64),
        }
    }

    /// A task begins to exist: its structure is made, and the scheduler is told. Without `cpu` it comes from the first one that it
    /// may use.
    pub(super) fn begin_task(
        &mut self,
        task: TaskId,
        facts: &TaskFacts,
        cpu: Option<CpuId>,
        forked: bool,
    ) -> Result<(), Fault> {
        let Some(instance) = &mut self.instance else { return Ok(()) };
        let state = instance.state_mut();
        let first = facts.hard_affinity.iter().next().unwrap_or(CpuId(0));
        self.kernel.make_task(state, task, facts, cpu.unwrap_or(first))?;
        let arguments = state.memory.allocate(InitTaskArgs::SIZE)?;
        store(&mut state.memory, arguments, field!(InitTaskArgs, fork), u64::from(forked))?;
        let cgroup = self.kernel.cgroup_of(state, task);
        store(&mut state.memory, arguments, field!(InitTaskArgs, cgroup), cgroup)?;
        let address = self.kernel.tasks[task.index()].address;
        self.call_checked("init_task", self.kernel.callbacks.init_task, &[address, arguments])?;
        if let Some(instance) = &mut self.instance {
            instance.state_mut().memory.free(arguments, InitTaskArgs::SIZE);
        }
        self.call(self.kernel.callbacks.enable, Purpose::Other, &[address]);
        let weight = self.kernel.get_if(self.instance.as_ref(), task, field!(Task, scx.weight));
        self.call(self.kernel.callbacks.set_weight, Purpose::Other, &[address, weight]);
        if facts.soft_affinity.is_some() {
            self.tell_preference(task, facts)?;
        }
        Ok(())
    }

    /// Tells the scheduler which CPUs a task prefers.
    pub(super) fn tell_preference(&mut self, task: TaskId, facts: &TaskFacts) -> Result<(), Fault> {
        let Some(preferences) = self.settings.preferences else { return Ok(()) };
        let Some(instance) = &mut self.instance else { return Ok(()) };
        let Some(program) = instance.image().programs.get(preferences.program) else {
            return Err(Fault(format!(
                "the object has no program `{}` to tell a preference",
                preferences.program
            )));
        };
        let function = program.function;
        let pid = self.kernel.tasks[task.index()].pid as u64;
        let request = (preferences.request)(pid, facts.soft_affinity.as_deref(), &self.kernel.machine);
        let memory = &mut instance.state_mut().memory;
        let address = memory.allocate(request.len())?;
        memory.slice_mut(address, request.len())?.copy_from_slice(&request);
        let result = instance.call(&mut self.kernel, function, [address, 0, 0, 0, 0])? as i32;
        instance.state_mut().memory.free(address, request.len());
        match result {
            0 => Ok(()),
            error => {
                Err(Fault(format!("`{}` refused a preference with error {}", preferences.program, -error)))
            }
        }
    }
}

/// Fills the variables by which scx's headers name the constants of the kernel that runs: `__SCX_ENQ_HEAD` and the like.
fn set_constants(settings: &SchedExtSettings, state: &mut State) -> Result<(), Fault> {
    let variables = &settings.code.image().variables;
    for constants in types::enums_of(settings.kernel).values() {
        for (name, value) in constants.values {
            if let Some(variable) = variables.get(&format!("__{name}"))
                && variable.size == 8
            {
                state.memory.store(variable.address, 8, *value)?;
            }
        }
    }
    Ok(())
}

/// The weight that a scheduler sees of a task (`sched_weight_to_cgroup()`).
pub(super) fn cgroup_weight(weight: u32) -> u64 {
    let weight = (u64::from(weight) * USUAL_WEIGHT + NICE_0_WEIGHT / 2) / NICE_0_WEIGHT;
    weight.clamp(1, 10_000)
}

impl ScxKernel {
    pub(super) fn new(
        settings: &SchedExtSettings,
        machine: &Arc<Machine>,
        callbacks: Callbacks,
        disturbances: Disturbances,
    ) -> Self {
        let cpu_count = machine.cpu_count();
        Self {
            machine: Arc::clone(machine),
            version: settings.kernel,
            callbacks,
            cpu_count,
            mask_words: cpu_count.div_ceil(64),
            now_ns: 0,
            cpu: 0,
            purpose: Purpose::Other,
            tasks: Vec::new(),
            by_pid: NumberMap::default(),
            // Those below are the kernel's own, and the init process.
            next_pid: 1000,
            cpus: vec![CpuState { is_idle: true, ..CpuState::default() }; cpu_count],
            queues: Vec::new(),
            own_queues: NumberMap::default(),
            possible_mask: 0,
            online_mask: 0,
            idle_mask: 0,
            idle_core_mask: 0,
            has_smt: machine.cores().iter().any(|core| core.cpus.count() > 1),
            llc_masks: Vec::new(),
            node_masks: Vec::new(),
            scratch_masks: [0; 2],
            exit_task_args: 0,
            idle_task: 0,
            intruder: 0,
            from_outside: false,
            in_timer: false,
            cgroups: Vec::new(),
            memberships: Vec::new(),
            kicks: Vec::new(),
            resched: Vec::new(),
            insertions: Vec::new(),
            to_reenqueue: Vec::new(),
            visited: 0,
            timers: NumberMap::default(),
            armed: NumberMap::default(),
            next_token: 0,
            returning: Vec::new(),
            alarms: Vec::new(),
            random: 0x9e37_79b9_7f4a_7c15,
            disturbances,
            error: None,
        }
    }

    /// Makes what programs see of CPUs: masks, run queues, the kernel's dispatch queues. All CPUs idle at first.
    fn prepare(&mut self, state: &mut State) -> Result<(), Fault> {
        let all = self.machine.all_cpus().clone();
        let mut online = all.clone();
        let is_offline = |cpu: &CpuId| self.cpus[cpu.index()].is_offline;
        all.iter().filter(is_offline).for_each(|cpu| online.remove(cpu));
        for (mask, cpus) in [
            (&mut self.possible_mask, &all),
            (&mut self.idle_mask, &online),
            (&mut self.idle_core_mask, &online),
            (&mut self.online_mask, &online),
        ] {
            *mask = state.memory.allocate(self.mask_words * 8 + 8)?;
            masks::write(&mut state.memory, *mask, self.mask_words, cpus)?;
        }
        self.scratch_masks = [self.new_mask(state)?, self.new_mask(state)?];
        self.prepare_near_masks(state)?;
        self.exit_task_args = state.memory.allocate(ExitTaskArgs::SIZE)?;
        self.idle_task = state.memory.allocate(TaskBlock::SIZE)?;
        let (offset, bytes) = field!(TaskBlock, number);
        state.memory.store(self.idle_task + offset, bytes, u64::MAX)?;
        for cpu in 0..self.cpu_count {
            self.add_queue(state, SCX_DSQ_LOCAL_ON | cpu as u64)?;
            let rq = match state.variable("runqueues", cpu) {
                Some(address) => address,
                None => state.memory.allocate(RunQueue::SIZE)?,
            };
            store(&mut state.memory, rq, field!(RunQueue, cpu), cpu as u64)?;
            store(&mut state.memory, rq, field!(RunQueue, curr), self.idle_task)?;
            store(&mut state.memory, rq, field!(RunQueue, idle), self.idle_task)?;
            self.cpus[cpu].rq = rq;
            let stat = state.variable("kernel_cpustat", cpu);
            self.cpus[cpu].steal = stat.map_or(0, |stat| stat + CPUTIME_STEAL as u64 * 8);
        }
        for _ in 0..self.machine.node_count() {
            self.add_queue(state, SCX_DSQ_GLOBAL)?;
        }
        Ok(())
    }

    /// The cgroup of a task.
    pub fn cgroup_of(&self, state: &State, task: TaskId) -> u64 {
        self.get(state, task, field!(TaskBlock, cgroup))
    }

    /// A field of a task's structure, if there is an instance.
    pub fn get_if(&self, instance: Option<&Instance>, task: TaskId, field: (u64, usize)) -> u64 {
        instance.map_or(0, |instance| self.get(instance.state(), task, field))
    }

    /// Makes the structure of a task, which comes from a CPU.
    fn make_task(
        &mut self,
        state: &mut State,
        task: TaskId,
        facts: &TaskFacts,
        cpu: CpuId,
    ) -> Result<(), Fault> {
        if self.tasks.len() <= task.index() {
            self.tasks.resize(task.index() + 1, TaskState::NONE);
        }
        let address = state.memory.allocate(TaskBlock::SIZE)?;
        let cpus_mask = state.memory.allocate(self.mask_words * 8)?;
        let pid = self.next_pid;
        self.next_pid += 1;
        self.by_pid.insert(pid, task);
        let prio = DEFAULT_PRIO.wrapping_add_signed(facts.nice.into());
        // Tasks of guests are all in the root.
        let membership = self.memberships.get(facts.vm.index());
        let group = &self.cgroups[membership.map_or(0, |membership| membership.cgroup)];
        let (cgroup, css_set) = (group.address, group.css_set);
        let signal = match membership.map_or(0, |membership| membership.signal) {
            0 => address + field!(TaskBlock, signal).0,
            shared => shared,
        };
        self.tasks[task.index()] =
            TaskState { address, cpus_mask, signal, pid, cpu: cpu.index(), ..TaskState::NONE };
        for (field, value) in [
            (field!(Task, pid), pid as u64),
            (field!(Task, tgid), pid as u64),
            (field!(Task, thread_info.cpu), cpu.index() as u64),
            (field!(Task, wake_cpu), cpu.index() as u64),
            (field!(Task, recent_used_cpu), cpu.index() as u64),
            (field!(Task, prio), prio),
            (field!(Task, static_prio), prio),
            (field!(Task, normal_prio), prio),
            (field!(Task, cpus_ptr), cpus_mask),
            (field!(Task, group_leader), address),
            (field!(Task, real_parent), address),
            (field!(Task, parent), address),
            // It has an address space: kernel threads have none.
            (field!(Task, mm), self.possible_mask),
            (field!(Task, start_time), self.clock_ns()),
            (field!(Task, start_boottime), self.clock_ns()),
            (field!(Task, cgroups), css_set),
            (field!(Task, signal), signal),
            (field!(Task, scx.slice), SCX_SLICE_DFL),
            (field!(Task, scx.weight), cgroup_weight(facts.weight)),
            (field!(Task, scx.sticky_cpu), u64::MAX),
            (field!(Task, scx.holding_cpu), u64::MAX),
            (field!(TaskBlock, number), task.index() as u64),
            (field!(TaskBlock, cgroup), cgroup),
            (field!(TaskBlock, address), address),
        ] {
            self.set(state, task, field, value);
        }
        Self::count_thread(state, signal, 1)?;
        self.set_affinity(state, task, &facts.hard_affinity)
    }

    /// Counts a thread of a process that begins (1) or ends (-1).
    fn count_thread(state: &mut State, signal: u64, by: i64) -> Result<(), Fault> {
        let (offset, bytes) = field!(SignalStruct, nr_threads);
        let threads = state.memory.load(signal + offset, bytes)?.wrapping_add_signed(by);
        state.memory.store(signal + offset, bytes, threads)
    }

    /// Where a task may run.
    pub fn set_affinity(
        &mut self,
        state: &mut State,
        task: TaskId,
        cpus: &tandem_machine::cpumask::CpuMask,
    ) -> Result<(), Fault> {
        masks::write(&mut state.memory, self.tasks[task.index()].cpus_mask, self.mask_words, cpus)?;
        self.set(state, task, field!(Task, nr_cpus_allowed), cpus.count() as u64);
        Ok(())
    }

    /// Gives back the structure of a task that has ended.
    pub fn free_task(&mut self, state: &mut State, task: TaskId) {
        self.set(state, task, field!(TaskBlock, address), 0);
        let TaskState { address, cpus_mask, signal, pid, .. } =
            std::mem::replace(&mut self.tasks[task.index()], TaskState::NONE);
        Self::count_thread(state, signal, -1).expect("the kernel's own structures are in memory");
        self.by_pid.remove(&pid);
        state.forget(address);
        state.memory.free(address, TaskBlock::SIZE);
        state.memory.free(cpus_mask, self.mask_words * 8);
    }
}
