//! Caps: a budget of CPU time for each capped VM, anew every period.
//!
//! A vCPU that wants to run takes a part of its VM's budget, and returns what is left when it stops. A vCPU
//! that finds none is *parked* until another one returns some, or the period ends.
//!
//! Limit: the periods of all VMs begin at the start of the run. In Xen, each begins when its cap is set.

use super::credits::MIN_TIMER_NS;
use super::{Context, Credit2};
use crate::policy::VmFacts;
use tandem_machine::ids::{TaskId, VmId};

/// The budget of vCPUs without a cap, ns.
pub(super) const UNCAPPED: i64 = i64::MAX;

/// The budget of a VM.
#[derive(Clone, Debug, Default)]
pub(super) struct Budget {
    /// What it gets each period, ns; 0: it has no cap.
    total_ns: i64,
    /// What no vCPU has taken, ns.
    left_ns: i64,
    /// The most that a vCPU takes at once, ns.
    part_ns: i64,
    /// The vCPUs that wait for some; the last was parked last.
    parked: Vec<TaskId>,
}

impl Budget {
    /// That of a VM with so many vCPUs (`csched2_dom_cntl()`).
    pub fn new(vm: &VmFacts, vcpus: usize, period_ns: u64) -> Self {
        let total_ns = period_ns as i64 * i64::from(vm.cap_pct) / 100;
        let part_ns = (total_ns / vcpus.max(1) as i64).max(MIN_TIMER_NS);
        Self { total_ns, left_ns: total_ns, part_ns, parked: Vec::new() }
    }

    /// The budget that a vCPU starts with, ns.
    pub fn first_ns(&self) -> i64 {
        if self.total_ns == 0 { UNCAPPED } else { 0 }
    }

    pub fn is_capped(&self) -> bool {
        self.total_ns > 0
    }

    #[cfg(test)]
    pub fn parked_count(&self) -> usize {
        self.parked.len()
    }
}

impl Credit2 {
    /// Takes budget for the vCPU unless it has some, or parks it. Returns whether it may run
    /// (`unit_grab_budget()`).
    pub(super) fn grab_budget(&mut self, task: TaskId, now_ns: u64) -> bool {
        let vcpu = &mut self.vcpus[task.index()];
        if vcpu.budget_ns > 0 {
            return true;
        }
        let budget = &mut self.budgets[vcpu.vm.index()];
        // What it has overdrawn is the VM's debt.
        budget.left_ns += vcpu.budget_ns;
        vcpu.budget_ns = budget.left_ns.clamp(0, budget.part_ns);
        budget.left_ns -= vcpu.budget_ns;
        if vcpu.budget_ns > 0 {
            return true;
        }
        self.park(task, now_ns);
        false
    }

    /// `park_unit()`
    fn park(&mut self, task: TaskId, now_ns: u64) {
        self.counters.parked += 1;
        let vcpu = &mut self.vcpus[task.index()];
        vcpu.parked = true;
        self.budgets[vcpu.vm.index()].parked.push(task);
        if vcpu.waits {
            self.remove(task);
            self.update_load(task, -1, now_ns);
        }
    }

    /// The vCPU has ended and waits for no budget.
    pub(super) fn forget_parked(&mut self, task: TaskId) {
        let vcpu = &mut self.vcpus[task.index()];
        if std::mem::take(&mut vcpu.parked) {
            self.budgets[vcpu.vm.index()].parked.retain(|&other| other != task);
        }
    }

    /// A vCPU that has stopped returns what it has left, for those that are parked (`unit_return_budget()`).
    pub(super) fn return_budget(&mut self, ctx: &mut Context<'_>, task: TaskId) {
        let vcpu = &mut self.vcpus[task.index()];
        if !vcpu.is_capped() || vcpu.budget_ns <= 0 {
            return;
        }
        let vm = vcpu.vm;
        self.budgets[vm.index()].left_ns += std::mem::take(&mut vcpu.budget_ns);
        if self.budgets[vm.index()].left_ns > 0 {
            self.unpark(ctx, vm);
        }
    }

    /// Lets the parked vCPUs of the VM try again, the last one first (`unpark_parked_units()`).
    fn unpark(&mut self, ctx: &mut Context<'_>, vm: VmId) {
        let mut parked = std::mem::take(&mut self.budgets[vm.index()].parked);
        for &task in parked.iter().rev() {
            self.vcpus[task.index()].parked = false;
            if self.vcpus[task.index()].is_runnable() {
                self.update_load(task, 1, ctx.now_ns);
                self.insert(task);
                self.tickle(ctx, task);
            }
        }
        parked.clear();
        // Keeps its room; none is parked in the meantime.
        self.budgets[vm.index()].parked = parked;
    }

    /// A period ends: capped VMs get their budget (`replenish_domain_budget()`).
    pub(super) fn replenish(&mut self, ctx: &mut Context<'_>) {
        for vm in (0..self.budgets.len()).map(VmId::from) {
            let budget = &mut self.budgets[vm.index()];
            if !budget.is_capped() {
                continue;
            }
            budget.left_ns += budget.total_ns;
            if budget.left_ns > 0 {
                budget.left_ns = budget.left_ns.min(budget.total_ns);
                self.unpark(ctx, vm);
            }
        }
    }
}
