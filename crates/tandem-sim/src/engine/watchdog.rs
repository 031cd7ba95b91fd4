//! The watchdog of sched_ext: a task that can run and does not for too long ends the run, as the kernel would unload the
//! scheduler (`scx_watchdog_workfn()`).

use super::event_queue::NEVER;
use super::simulation::Simulation;
use crate::kernel::{HOST, TaskState};
use crate::trace::Observer;

impl<O: Observer> Simulation<'_, O> {
    /// When the watchdog looks next, ns: twice in the shortest time that a scheduler allows.
    pub fn next_watch_ns(&self, now_ns: u64) -> u64 {
        let timeouts = self.system.kernels.iter().filter_map(|kernel| kernel.policy().watchdog_timeout_ns());
        timeouts.min().map_or(NEVER, |timeout_ns| now_ns.saturating_add((timeout_ns / 2).max(1)))
    }

    /// The watchdog looks at all tasks that wait.
    pub fn watch(&mut self, now_ns: u64) {
        for kernel in self.system.kernels.positions() {
            let state = &self.system.kernels[kernel];
            let Some(timeout_ns) = state.policy().watchdog_timeout_ns() else { continue };
            let waits_ns = |task: &crate::kernel::Task| match task.state {
                TaskState::Runnable => now_ns - task.runnable_since_ns.max(state.scheduler_since_ns()),
                _ => 0,
            };
            let stalled = state.tasks().all().iter().position(|task| waits_ns(task) > timeout_ns);
            if let Some(task) = stalled {
                let (name, waited_ms) =
                    (self.task_name(kernel, task), waits_ns(&state.tasks().all()[task]) / 1_000_000);
                let message = format!(
                    "runnable task stall ({name} failed to run for {}.{:03}s)",
                    waited_ms / 1000,
                    waited_ms % 1000
                );
                self.system.kernels[kernel].outbox().fail(message);
                self.system.has_failed = true;
            }
        }
    }

    /// What a task is called: by its VM or set of processes on the host, by its program in a guest; with its number there.
    fn task_name(&self, kernel: usize, task: usize) -> String {
        let state = &self.system.kernels[kernel].tasks().all()[task];
        let vm = &self.scenario.workloads[state.vm.index()];
        match (kernel, vm.guest()) {
            (HOST, _) | (_, None) => {
                format!("{}[{}]", vm.name, task - self.vms[state.vm.index()].first_vcpu.index())
            }
            (_, Some(guest)) => format!("{}[{task}]", guest.programs[state.group as usize].name),
        }
    }
}
