//! A loaded scheduler: its instance, the kernel around it, and the calls of its callbacks.

use super::cost::Costs;
use super::kernel::{Purpose, RunQueues, ScxKernel, Timers};
use super::settings::SchedExtSettings;
use super::types::RunQueue;
use crate::policy::{Alarm, Context};
use std::mem::offset_of;
use std::sync::Arc;
use tandem_ebpf::{Fault, FunctionId, Instance, Kernel, State};
use tandem_machine::ids::{CpuId, TaskId};

/// A scheduler and its kernel. [`super::cycle`] has what the kernel does with tasks.
#[derive(Debug)]
pub(super) struct Scheduler {
    pub(super) settings: Arc<SchedExtSettings>,
    pub(super) instance: Instance,
    pub(super) kernel: ScxKernel,
    pub(super) costs: Costs,
    /// Its first error, after which it does nothing.
    failure: Option<String>,
}

impl Scheduler {
    /// One that has not begun yet.
    pub fn new(settings: &Arc<SchedExtSettings>, instance: Instance, kernel: ScxKernel) -> Self {
        Self { settings: Arc::clone(settings), instance, kernel, costs: Costs::default(), failure: None }
    }

    /// Calls a callback, if there is one and no error has occurred; returns its result, or 0.
    pub fn call<const COUNT: usize>(
        &mut self,
        callback: Option<FunctionId>,
        purpose: Purpose,
        arguments: &[u64; COUNT],
    ) -> u64 {
        let (Some(callback), None) = (callback, &self.failure) else { return 0 };
        self.kernel.set_purpose(purpose);
        let before = self.spent();
        let result = self.instance.call_back(&mut self.kernel, callback, arguments);
        self.kernel.set_purpose(Purpose::Other);
        self.costs.called(callback, before, self.spent());
        result.unwrap_or_else(|fault| {
            self.fail(fault.to_string());
            0
        })
    }

    /// Calls a callback that may refuse.
    pub fn call_checked<const COUNT: usize>(
        &mut self,
        name: &str,
        callback: Option<FunctionId>,
        arguments: &[u64; COUNT],
    ) -> Result<u64, Fault> {
        self.call_checked_for(name, callback, Purpose::Other, arguments)
    }

    /// The same for a purpose.
    pub fn call_checked_for<const COUNT: usize>(
        &mut self,
        name: &str,
        callback: Option<FunctionId>,
        purpose: Purpose,
        arguments: &[u64; COUNT],
    ) -> Result<u64, Fault> {
        let result = self.call(callback, purpose, arguments) as i32;
        if result >= 0 {
            return Ok(result as u64);
        }
        let error = format!("`{name}` of the scheduler failed with error {}", result.unsigned_abs());
        let said = self.kernel.run_queues_mut().pending_mut().take_complaint();
        let said = said.or_else(|| {
            self.instance.state().printed().last().map(|line| format!("it printed: {}", line.escape_debug()))
        });
        Err(Fault(match said {
            Some(said) => format!("{error}: {said}"),
            None => error,
        }))
    }

    /// Runs the callback of a timer that has expired.
    pub fn call_timer(&mut self, timer: u64) {
        if self.failure.is_some() {
            return;
        }
        self.kernel.set_purpose(Purpose::Timer);
        let result = self.instance.timer_expired(&mut self.kernel, timer);
        self.kernel.set_purpose(Purpose::Other);
        self.check(result);
    }

    /// The scheduler does nothing from now on; the first reason counts.
    pub fn fail(&mut self, message: String) {
        self.failure.get_or_insert(message);
    }

    /// The same for a fault.
    pub fn check(&mut self, result: Result<(), Fault>) {
        if let Err(fault) = result {
            self.fail(fault.to_string());
        }
    }

    pub fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// Updates the clocks of a CPU's run queue that programs read (`update_rq_clock()`).
    #[inline]
    pub fn show_clock(&mut self, cpu: usize) {
        const FIRST: u64 = offset_of!(RunQueue, clock) as u64;
        const CLOCKS: usize = offset_of!(RunQueue, lost_idle_time) - FIRST as usize;
        let clock_ns = self.kernel.clock_ns();
        let place = self.kernel.run_queues().cpu(cpu).rq + FIRST;
        // There is no run queue before the scheduler has begun.
        if let Ok(clocks) = self.instance.state_mut().memory.slice_mut(place, CLOCKS) {
            clocks.as_chunks_mut().0.fill(clock_ns.to_le_bytes());
        }
    }

    /// The kernel and the instance's state.
    #[inline]
    pub fn parts(&mut self) -> (&mut ScxKernel, &mut State) {
        (&mut self.kernel, self.instance.state_mut())
    }

    /// Tasks, CPUs and queues, and the instance's state.
    #[inline]
    pub fn queues(&mut self) -> (&mut RunQueues, &mut State) {
        (self.kernel.run_queues_mut(), self.instance.state_mut())
    }

    /// The address of a task's structure.
    #[inline]
    pub fn address(&self, task: TaskId) -> u64 {
        self.kernel.run_queues().tasks()[task].address
    }

    pub fn is_known(&self, task: TaskId) -> bool {
        self.kernel.run_queues().tasks().state(task).is_some_and(|task| task.address != 0)
    }

    /// The CPU to which a task belongs; CPU 0 if it has never begun.
    pub fn cpu_of(&self, task: TaskId) -> usize {
        self.kernel.run_queues().tasks().state(task).map_or(0, |task| task.cpu)
    }

    /// Instructions and visits so far.
    pub fn spent(&self) -> [u64; 2] {
        [self.instance.state().instructions(), self.kernel.run_queues().queues().visited()]
    }

    /// Passes on the effects of callbacks: kicks, timers, complaints; usually none. Returns the number of
    /// kicks.
    #[inline]
    pub fn end(&mut self, ctx: &mut Context<'_>) -> usize {
        let cpu = CpuId::from(self.kernel.cpu());
        ctx.shared_locked.extend(self.kernel.run_queues_mut().queues_mut().take_locked(cpu));
        let is_quiet =
            self.kernel.run_queues_mut().pending_mut().is_empty() && !self.kernel.timers().has_alarms();
        if is_quiet && self.failure.is_none() {
            return 0;
        }
        self.pass_on(ctx)
    }

    fn pass_on(&mut self, ctx: &mut Context<'_>) -> usize {
        self.reenqueue();
        let (queues, state) = self.queues();
        queues.send_kicks(state);
        let kicks = queues.pending_mut().move_reschedules(ctx.kicked);
        let complaint = queues.pending_mut().take_complaint();
        let cpu = CpuId::from(self.kernel.cpu());
        let alarms = Timers::take_alarms(self.kernel.timers_mut());
        ctx.alarms.extend(alarms.map(|(at_ns, token)| Alarm { cpu, at_ns, token }));
        if let Some(complaint) = complaint {
            self.fail(complaint);
        }
        if let Some(failure) = &self.failure {
            ctx.failure.get_or_insert_with(|| failure.clone());
        }
        kicks
    }
}
