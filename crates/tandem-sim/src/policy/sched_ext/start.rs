//! The start of a scheduler: makes the structures of the kernel, writes settings, and initialises cgroups and
//! tasks.

use super::kernel::{CgroupState, Purpose};
use super::scheduler::Scheduler;
use super::settings::SchedExtSettings;
use super::structures::{field, store};
use super::types::{self, CgroupInitArgs, InitTaskArgs, Task};
use crate::policy::TaskFacts;
use tandem_ebpf::{Fault, State};
use tandem_machine::cpumask::CpuMask;
use tandem_machine::ids::{CpuId, TaskId};

impl Scheduler {
    /// Makes the structures that programs see, and starts the scheduler with the present cgroups.
    pub fn boot(&mut self) -> Result<(), Fault> {
        let state = self.instance.state_mut();
        for (address, bytes) in &self.settings.data {
            state.memory.slice_mut(*address, bytes.len())?.copy_from_slice(bytes);
        }
        set_constants(&self.settings, state)?;
        self.kernel.prepare(state)?;
        self.prepare()?;
        if let Some(callback) = self.kernel.callbacks().init_cids {
            self.call_checked_for("init_cids", Some(callback), Purpose::NumberCids, &[])?;
            let (kernel, state) = self.parts();
            kernel.show_online_cids(state)?;
        }
        self.call_checked("init", self.kernel.callbacks().init, &[])?;
        self.start_cgroups()
    }

    /// Initialises the cgroups.
    fn start_cgroups(&mut self) -> Result<(), Fault> {
        let Some(callback) = self.kernel.callbacks().cgroup_init else { return Ok(()) };
        for at in self.kernel.cgroups().in_order() {
            let CgroupState { address, weight, quota_us, period_us, .. } = *self.kernel.cgroups().get(at);
            let memory = &mut self.instance.state_mut().memory;
            let arguments = memory.allocate(CgroupInitArgs::SIZE)?;
            store(memory, arguments, field!(CgroupInitArgs, weight), weight)?;
            store(memory, arguments, field!(CgroupInitArgs, bw_period_us), period_us)?;
            store(memory, arguments, field!(CgroupInitArgs, bw_quota_us), quota_us)?;
            self.call_checked("cgroup_init", Some(callback), &[address, arguments])?;
        }
        Ok(())
    }

    /// A task that was there before the scheduler, or is forked, gets a structure, and the scheduler initialises it.
    /// Without `cpu` it comes from the first CPU that it may use. [`Scheduler::enable_task`] follows.
    pub fn init_task(
        &mut self,
        task: TaskId,
        facts: &TaskFacts,
        cpu: Option<CpuId>,
        forked: bool,
    ) -> Result<(), Fault> {
        let first = facts.hard_affinity.iter().next().unwrap_or(CpuId(0));
        let (kernel, state) = self.parts();
        let address = kernel.make_task(state, task, facts, cpu.unwrap_or(first))?;
        let cgroup = kernel.cgroups().of_vm(facts.vm).cgroup;
        let arguments = state.memory.allocate(InitTaskArgs::SIZE)?;
        store(&mut state.memory, arguments, field!(InitTaskArgs, fork), u64::from(forked))?;
        store(&mut state.memory, arguments, field!(InitTaskArgs, cgroup), cgroup)?;
        self.call_checked("init_task", self.kernel.callbacks().init_task, &[address, arguments])?;
        self.instance.state_mut().memory.free(arguments, InitTaskArgs::SIZE);
        Ok(())
    }

    /// A task that was initialised comes to the scheduler. At the start all are initialised before the first one comes.
    pub fn enable_task(&mut self, task: TaskId, facts: &TaskFacts, forked: bool) -> Result<(), Fault> {
        let address = self.address(task);
        self.call(self.kernel.callbacks().enable, Purpose::Other, &[address]);
        let (queues, state) = self.queues();
        let weight = queues.tasks().get(state, task, field!(Task, scx.weight));
        self.call(self.kernel.callbacks().set_weight, Purpose::Other, &[address, weight]);
        // A task that is forked brings its affinity; one that was there gets it now (`switching_to_scx()`).
        if !forked {
            self.tell_affinity(task, &facts.hard_affinity);
        }
        match facts.soft_affinity {
            Some(_) => self.set_preference(task, facts),
            None => Ok(()),
        }
    }

    /// Tells the scheduler which CPUs a task may use.
    pub fn tell_affinity(&mut self, task: TaskId, cpus: &CpuMask) {
        let Some(callback) = self.kernel.callbacks().set_cpumask else { return };
        let address = self.address(task);
        let (kernel, state) = self.parts();
        match kernel.affinity_argument(state, task, cpus) {
            Ok(argument) => _ = self.call(Some(callback), Purpose::Other, &[address, argument]),
            Err(fault) => self.fail(fault.to_string()),
        }
    }

    /// Sends the preferred CPUs of a task to the scheduler.
    pub fn set_preference(&mut self, task: TaskId, facts: &TaskFacts) -> Result<(), Fault> {
        let Some(preferences) = self.settings.preferences else { return Ok(()) };
        let pid = self.kernel.run_queues().tasks()[task].pid as u64;
        let mut request = (preferences.request)(pid, facts.soft_affinity.as_deref(), self.kernel.machine());
        self.run_program(preferences.program, &mut request)
    }
}

/// Fills the variables by which scx's headers name the constants of the kernel that runs: `__SCX_ENQ_HEAD`
/// and the like.
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
