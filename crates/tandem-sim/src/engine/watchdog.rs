//! The watchdog of sched_ext: a task that can run and does not for too long ends the run, as the kernel would
//! unload the scheduler (`scx_watchdog_workfn()`).

use super::event_queue::NEVER;
use super::vm::VmState;
use crate::kernel::{HOST, System};
use crate::scenario::Scenario;

/// When the watchdog checks the tasks next, ns: twice in the shortest time that a scheduler allows.
pub(super) fn next_ns<O>(system: &System<O>, now_ns: u64) -> u64 {
    let timeouts = system.kernels.iter().filter_map(|kernel| kernel.policy().watchdog_timeout_ns());
    timeouts.min().map_or(NEVER, |timeout_ns| now_ns.saturating_add((timeout_ns / 2).max(1)))
}

/// The watchdog checks all tasks that wait.
pub(super) fn check<O>(scenario: &Scenario, system: &mut System<O>, vms: &[VmState], now_ns: u64) {
    for kernel in system.kernels.positions() {
        let state = &system.kernels[kernel];
        let Some(timeout_ns) = state.policy().watchdog_timeout_ns() else { continue };
        let waits =
            state.tasks().all().iter().map(|task| task.runnable_ns(state.scheduler_since_ns(), now_ns));
        if let Some((task, waited_ns)) = waits.enumerate().find(|&(_, waits_ns)| waits_ns > timeout_ns) {
            let name = task_name(scenario, system, vms, kernel, task);
            let waited_ms = waited_ns / 1_000_000;
            let message = format!(
                "runnable task stall ({name} failed to run for {}.{:03}s)",
                waited_ms / 1000,
                waited_ms % 1000
            );
            system.kernels[kernel].outbox_mut().fail(message);
            system.has_failed = true;
        }
    }
}

/// The name of a task with its number: that of its VM or set of processes on the host, that of its program in
/// a guest.
fn task_name<O>(
    scenario: &Scenario,
    system: &System<O>,
    vms: &[VmState],
    kernel: usize,
    task: usize,
) -> String {
    let state = &system.kernels[kernel].tasks().all()[task];
    let vm = &scenario.workloads[state.vm.index()];
    match (kernel, vm.guest()) {
        (HOST, _) | (_, None) => format!("{}[{}]", vm.name, task - vms[state.vm.index()].tasks().start),
        (_, Some(guest)) => format!("{}[{task}]", guest.programs[state.group as usize].name),
    }
}
