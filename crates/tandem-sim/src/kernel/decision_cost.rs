//! What a kernel's decisions cost the CPU that makes them.

use super::{CpuRef, Kernels, Processors};
use crate::policy::Policy;
use tandem_machine::ids::TaskId;

/// Charges the CPU for the other queues that the policy scanned and locked on its behalf. Tasks that are
/// moved under such a lock come from the other CPU's cache.
pub(super) fn charge_queues(kernels: &mut Kernels, processors: &mut Processors, on: CpuRef) {
    let cost_ns = kernels[on.kernel].take_scan_cost_ns();
    if cost_ns > 0 {
        processors.charge(kernels, on, cost_ns);
    }
    charge_locked(kernels, processors, on);
}

/// Charges the CPU for deciding, and for the switch to `next` if there is one.
pub(super) fn charge_decision(
    kernels: &mut Kernels,
    processors: &mut Processors,
    on: CpuRef,
    next: Option<TaskId>,
) {
    let kernel = &mut kernels[on.kernel];
    let costs = kernel.context_switch().map_or((0, 0), |cost| (cost.decision_ns, cost.switch_ns));
    let decision_ns = kernel.take_scan_cost_ns() + costs.0;
    let loaded = kernel[on.cpu].loaded;
    let switch_ns = match next {
        Some(next) if loaded != Some(next) => costs.1 + kernel.address_space_ns(loaded, next),
        _ => 0,
    };
    match on.is_host() {
        true if kernel.policy().holds_locks_long() => {
            processors.lock_queue(kernels, on.cpu, on.cpu, decision_ns + switch_ns);
        }
        true => {
            processors.lock_queue(kernels, on.cpu, on.cpu, decision_ns);
            processors.charge(kernels, on, switch_ns);
        }
        false => processors.charge(kernels, on, decision_ns + switch_ns),
    }
    charge_locked(kernels, processors, on);
}

/// Charges the CPU for the queues that the policy locked on its behalf.
#[inline]
pub(super) fn charge_locked(kernels: &mut Kernels, processors: &mut Processors, on: CpuRef) {
    if !kernels[on.kernel].outbox_mut().has_locked() {
        return;
    }
    charge_shared_locks(kernels, processors, on);
    let locked = kernels[on.kernel].outbox_mut().take_locked();
    if on.is_host() && !locked.is_empty() {
        let since_ns = processors[on.cpu].settled_ns;
        for &queue in &locked {
            let move_ns = processors.hardware.line_transfer_ns(queue, on.cpu);
            processors.lock_queue(kernels, on.cpu, queue, move_ns);
        }
        let spent_ns = processors[on.cpu].settled_ns - since_ns;
        kernels.host_mut().policy_mut().spent_on_locks(on.cpu, spent_ns);
    }
    kernels[on.kernel].outbox_mut().reuse_locked(locked);
}

/// Charges a CPU of the host for the queues of no CPU that it locked. Those of a guest cost nothing.
fn charge_shared_locks(kernels: &mut Kernels, processors: &mut Processors, on: CpuRef) {
    let locked = kernels[on.kernel].outbox_mut().take_shared_locked();
    if on.is_host() {
        for lock in locked.iter().filter(|lock| lock.cpu == on.cpu) {
            processors.lock_shared_queue(kernels, *lock);
        }
    }
    kernels[on.kernel].outbox_mut().reuse_shared_locked(locked);
}
