//! Compiled schedulers for Linux's sched_ext, as policies.
//!
//! Problem: the simulation should run the deployed code, so the object file that the kernel loads has to run
//! here, and the kernel around it (`kernel/sched/ext.c`) has to behave as the real one does.
//!
//! Approach: [`tandem_ebpf`] runs the object, and this module provides the rest. The kernel ([`kernel`]) has
//! the state of tasks, CPUs, dispatch queues and cgroups, provides the structures that programs read
//! ([`types`]) and the functions that they call ([`functions`]). A [`scheduler`] is an instance of the object
//! with its kernel. The cycle of callbacks ([`cycle`], [`questions`]) is: `select_cpu`, `runnable` and
//! `enqueue` where a task wakes; where a CPU decides, the running task first, if it has slice left, then its
//! local queue, the global one, `dispatch`, and the task that ran, in that order; `stopping` and `running`
//! around a switch; `tick`, where slices end. The task that ran enters a queue a moment after the choice of
//! the next one, so that CPUs which decide at the same tick do not find each other's. Each kernel of a
//! scenario has an instance of its own, with memory and maps of its own.
//!
//! An error of the scheduler (an access outside of its memory, a task sent to a CPU that it may not use, a
//! call of `scx_bpf_error()`) ends the run with a message: the kernel would unload it.
//!
//! Events around the scheduler come from the scenario: settings of cgroups and tasks change ([`world`]),
//! higher classes take CPUs, CPUs go offline and come back ([`away`]), and it is loaded again ([`reload`]).
//! [`cost`] counts the cost of decisions.
//!
//! Limits: a decision takes as long as one of Linux, independent of the scheduler's code; locks of its queues
//! cost nothing. A kernel has one scheduler, with none below it for a cgroup (`sub_attach`). The tasks of a guest are all in
//! the root cgroup. The kernel enforces no CPU bandwidth, and
//! no core scheduling. A running task whose affinity changes is not stopped and started for that. The CPUs
//! run at one frequency.

mod away;
mod callbacks;
mod cost;
mod cycle;
mod functions;
mod kernel;
mod preparation;
mod prototypes;
mod questions;
mod reload;
mod scheduler;
mod settings;
mod start;
mod structures;
mod types;
mod world;

pub(crate) use away::Taker;
pub use functions::environment;
pub use preparation::{Call, CpuSetUse, Element, InnerMap, InnerMapContents, Preparation};
pub(crate) use reload::Ending;
pub use settings::{KernelVersion, OwnCounters, Preferences, SchedExtSettings};

use super::{Context, TaskFacts, VmFacts};
use crate::metrics::SchedulerCosts;
use crate::scenario::Cgroup;
use callbacks::Callbacks;
use kernel::{Cgroups, Disturbances, ScxKernel};
use scheduler::Scheduler;
use std::sync::Arc;
use tandem_ebpf::{Fault, Import, Instance};
use tandem_machine::Machine;
use tandem_machine::ids::TaskId;

/// A scheduler for sched_ext.
#[derive(Debug)]
pub struct SchedExt {
    settings: Arc<SchedExtSettings>,
    /// The scheduler, or why it could not be loaded.
    scheduler: Result<Scheduler, String>,
    /// Counters.
    wakeups: u64,
    kicks: u64,
    decisions: u64,
    /// Values of the scheduler's own counters when counting began.
    counted_before: Vec<u64>,
}

impl SchedExt {
    /// The scheduler for a kernel with these CPUs, tasks and groups of tasks. Errors are reported with the
    /// first question, as [`Context::failure`](crate::policy::Context::failure).
    pub fn new(
        settings: &SchedExtSettings,
        machine: &Arc<Machine>,
        tasks: &[TaskFacts],
        vms: &[VmFacts],
        cgroups: &[Cgroup],
        seed: u64,
    ) -> Self {
        let settings = Arc::new(settings.clone());
        let scheduler = load(&settings, machine, Cgroups::new(cgroups, vms), seed).map(|mut scheduler| {
            let result = start(&mut scheduler, tasks);
            scheduler.check(result);
            scheduler
        });
        Self { settings, scheduler, kicks: 0, wakeups: 0, decisions: 0, counted_before: Vec::new() }
    }

    /// Lets the kernel around the scheduler act on an event on a CPU, or from outside of all CPUs, and passes
    /// on the effects. `None` if there is no scheduler.
    #[inline]
    fn act_from<R>(
        &mut self,
        ctx: &mut Context<'_>,
        (cpu, from_outside): (usize, bool),
        act: impl FnOnce(&mut Scheduler, &Context<'_>) -> R,
    ) -> Option<R> {
        match &mut self.scheduler {
            Ok(scheduler) => {
                scheduler.kernel.begin(ctx.now_ns, cpu, from_outside);
                scheduler.show_clock(cpu);
                let result = act(scheduler, ctx);
                self.kicks += scheduler.end(ctx) as u64;
                Some(result)
            }
            Err(failure) => {
                ctx.failure.get_or_insert_with(|| failure.clone());
                None
            }
        }
    }

    /// The same for an event on a CPU.
    #[inline]
    fn act<R>(
        &mut self,
        ctx: &mut Context<'_>,
        cpu: usize,
        act: impl FnOnce(&mut Scheduler, &Context<'_>) -> R,
    ) -> Option<R> {
        self.act_from(ctx, (cpu, false), act)
    }

    /// The CPU to which a task belongs that the scheduler knows.
    fn cpu_of_known(&self, task: TaskId) -> Option<usize> {
        let scheduler = self.scheduler.as_ref().ok()?;
        scheduler.is_known(task).then(|| scheduler.cpu_of(task))
    }

    /// The scheduler's own counters, summed over the CPUs.
    fn own_counters(&self) -> Vec<u64> {
        match (&self.settings.counters, &self.scheduler) {
            (Some(own), Ok(scheduler)) => {
                own.read(scheduler.instance.state(), scheduler.kernel.machine().cpu_count())
            }
            _ => Vec::new(),
        }
    }

    /// The scheduler's own counts since counting began.
    fn counted(&self) -> impl Iterator<Item = u64> + '_ {
        let before = self.counted_before.iter().copied().chain(std::iter::repeat(0));
        self.own_counters().into_iter().zip(before).map(|(now, before)| now.wrapping_sub(before))
    }

    /// Time for which a runnable task may not run before the run ends with an error, ns.
    pub(crate) fn watchdog_timeout_ns(&self) -> Option<u64> {
        let scheduler = self.scheduler.as_ref().ok()?;
        let asked_for_ns = scheduler.kernel.callbacks().timeout_ns;
        Some(self.settings.watchdog_timeout_ns.unwrap_or(asked_for_ns))
    }

    /// The cost of decisions since the counters were reset.
    pub(crate) fn decision_costs(&self) -> SchedulerCosts {
        match &self.scheduler {
            Ok(scheduler) => scheduler.costs.by_callback(self.settings.code.image()),
            Err(_) => SchedulerCosts::default(),
        }
    }
}

/// Makes an instance of the object, and the kernel around it.
fn load(
    settings: &Arc<SchedExtSettings>,
    machine: &Arc<Machine>,
    cgroups: Cgroups,
    seed: u64,
) -> Result<Scheduler, String> {
    let instance = Instance::new(Arc::clone(&settings.code), machine.cpu_count());
    let instance = instance.map_err(|fault| fault.to_string())?;
    let operations = settings.operations();
    let operations = operations.ok_or("the object defines no scheduler (no `.struct_ops`)")?;
    let callbacks = Callbacks::of(&operations, settings.kernel)?;
    if callbacks.is_by_cid {
        check_by_cid(settings)?;
    }
    let disturbances = Disturbances::new(settings, seed);
    let kernel = ScxKernel::new(settings, machine, callbacks, cgroups, disturbances);
    Ok(Scheduler::new(settings, instance, kernel))
}

/// Refuses a scheduler by cid as the kernel does: 6.12 has none, and others may not call functions of CPUs.
fn check_by_cid(settings: &SchedExtSettings) -> Result<(), String> {
    if settings.kernel < KernelVersion::V7_3 {
        return Err("the kernel 6.12 has no `sched_ext_ops_cid`; choose `kernel = \"7.3\"`".into());
    }
    let is_task_cpu = |import: &Import| *import == Import::Known(functions::TASK_CPU);
    let called = settings.code.image().imports.iter().find_map(|import| match import {
        Import::Kernel(_, name) => functions::BY_CPU.iter().find(|&other| other == name).copied(),
        import => is_task_cpu(import).then_some("scx_bpf_task_cpu"),
    });
    called.map_or(Ok(()), |name| {
        Err(format!("a scheduler with `sched_ext_ops_cid` may not call `{name}()`, which is about CPUs"))
    })
}

/// Lets a scheduler begin with these tasks.
fn start(scheduler: &mut Scheduler, tasks: &[TaskFacts]) -> Result<(), Fault> {
    scheduler.boot()?;
    for (number, facts) in tasks.iter().enumerate() {
        scheduler.init_task(TaskId::from(number), facts, facts.past_cpu, false)?;
    }
    for (number, facts) in tasks.iter().enumerate() {
        scheduler.enable_task(TaskId::from(number), facts, false)?;
    }
    scheduler.finish_start()
}
