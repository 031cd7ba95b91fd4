//! Credits: how they are burnt and handed out.
//!
//! Every timeslice the credits that all CPUs can burn in it (10 a millisecond each) are shared out. A VM's
//! fair share goes by its weight times its active vCPUs; it gets no more than its vCPUs can burn or its cap
//! allows, and the rest goes to the VMs after it. A vCPU that has accumulated the credit of a full timeslice
//! is not using its share: it leaves the active list with half of that, until a tick finds it running again.

use super::run_queue::Priority;
use super::{Context, Credit, Era};
use crate::policy::VmFacts;
use std::collections::VecDeque;
use tandem_machine::ids::{TaskId, VmId};

/// Time that burns a credit, ns.
const CREDIT_NS: u64 = 100_000;

/// A VM in the accounting.
#[derive(Clone, Debug)]
struct VmAccount {
    facts: VmFacts,
    active: Vec<TaskId>,
}

/// State of the accounting.
#[derive(Clone, Debug)]
pub(super) struct Accounting {
    credits_per_timeslice: i64,
    cpus: i64,
    /// Sum of all active credits after the last accounting.
    balance: i64,
    vms: Vec<VmAccount>,
    /// Accountings that have changed priorities.
    pub(super) rounds: u32,
    /// VMs with active vCPUs; those that leave credit come first.
    active_vms: VecDeque<VmId>,
}

impl Accounting {
    pub fn new(timeslice_ns: u64, cpus: usize, vms: &[VmFacts]) -> Self {
        Self {
            credits_per_timeslice: (timeslice_ns / CREDIT_NS) as i64,
            cpus: cpus as i64,
            balance: 0,
            rounds: 0,
            vms: vms.iter().map(|&facts| VmAccount { facts, active: Vec::new() }).collect(),
            active_vms: VecDeque::new(),
        }
    }

    fn activate(&mut self, vm: VmId, task: TaskId) {
        let account = &mut self.vms[vm.index()];
        if account.active.is_empty() {
            self.active_vms.push_front(vm);
        }
        account.active.push(task);
    }

    fn deactivate(&mut self, vm: VmId, task: TaskId) {
        let account = &mut self.vms[vm.index()];
        account.active.retain(|&active| active != task);
        if account.active.is_empty() {
            self.active_vms.retain(|&active| active != vm);
        }
    }

    fn weight(&self, vm: VmId) -> i64 {
        let account = &self.vms[vm.index()];
        i64::from(account.facts.weight) * account.active.len() as i64
    }
}

/// The credit that an accounting grants to each active vCPU of a VM.
struct Grant {
    vm: VmId,
    credit: i64,
    /// Cap of one vCPU in credits; `None` without a cap.
    cap: Option<i64>,
}

fn div_ceil(a: i64, b: i64) -> i64 {
    (a + b - 1).div_euclid(b)
}

impl Accounting {
    /// Shares out the credits of a timeslice.
    fn grants(&mut self) -> Vec<Grant> {
        let weight_total: i64 = self.active_vms.iter().map(|&vm| self.weight(vm)).sum();
        let debt = (-self.balance).max(0);
        let mut total = self.cpus * self.credits_per_timeslice + debt;
        let mut weight_left = weight_total;
        let mut someone_wants_more = false;
        let mut grants = Vec::with_capacity(self.active_vms.len());
        for vm in self.active_vms.clone() {
            let weight = self.weight(vm);
            let account = &self.vms[vm.index()];
            let active = account.active.len() as i64;
            weight_left -= weight;
            let mut peak = active * self.credits_per_timeslice + div_ceil(debt * weight, weight_total);
            let mut cap = None;
            if account.facts.cap_pct > 0 {
                let cap_vm = div_ceil(i64::from(account.facts.cap_pct) * self.credits_per_timeslice, 100);
                peak = peak.min(cap_vm);
                cap = Some(div_ceil(cap_vm, active));
            }
            let mut fair = div_ceil(total * weight, weight_total);
            if fair < peak {
                someone_wants_more = true;
            } else {
                if weight_left > 0 {
                    total += div_ceil((fair - peak) * weight_total, weight_left);
                }
                if someone_wants_more {
                    // It comes earlier the next time, so that its surplus reaches others.
                    self.active_vms.retain(|&other| other != vm);
                    self.active_vms.push_front(vm);
                }
                fair = peak;
            }
            grants.push(Grant { vm, credit: div_ceil(fair, active), cap });
        }
        grants
    }
}

impl Credit {
    /// Burns credit for the time that the running vCPU has used.
    pub(super) fn burn(&mut self, task: TaskId, now_ns: u64) {
        let vcpu = &mut self.vcpus[task.index()];
        let burnt_ns = now_ns - vcpu.burnt_until_ns + vcpu.residual_ns;
        vcpu.burnt_until_ns = now_ns;
        vcpu.credit -= (burnt_ns / CREDIT_NS) as i64;
        vcpu.residual_ns = burnt_ns % CREDIT_NS;
    }

    /// Makes the vCPU active in the accounting.
    pub(super) fn activate(&mut self, task: TaskId) {
        let vcpu = &mut self.vcpus[task.index()];
        vcpu.active = true;
        self.accounting.activate(vcpu.vm, task);
    }

    /// Hands out a timeslice's credits.
    pub(super) fn account(&mut self, ctx: &mut Context<'_>) {
        let mut balance = 0;
        let grants = self.accounting.grants();
        let grants_are_empty = grants.is_empty();
        for Grant { vm, credit, cap } in grants {
            for task in self.accounting.vms[vm.index()].active.clone() {
                self.vcpus[task.index()].credit += credit;
                self.settle_account(ctx, task, cap);
                balance += self.vcpus[task.index()].credit;
            }
        }
        self.accounting.balance = balance;
        self.accounting.rounds += u32::from(!grants_are_empty);
    }

    fn settle_account(&mut self, ctx: &mut Context<'_>, task: TaskId, cap: Option<i64>) {
        let full = self.accounting.credits_per_timeslice;
        let vcpu = &mut self.vcpus[task.index()];
        if vcpu.credit < 0 {
            let over_cap = cap.is_some_and(|cap| vcpu.credit < -cap);
            vcpu.credit = vcpu.credit.max(-full);
            self.set_priority(task, Priority::Over);
            if over_cap && !self.vcpus[task.index()].parked {
                self.park(ctx, task);
            }
            return;
        }
        self.set_priority(task, Priority::Under);
        if self.vcpus[task.index()].parked {
            self.unpark(ctx, task);
        }
        let vcpu = &mut self.vcpus[task.index()];
        if vcpu.credit > full {
            vcpu.credit /= 2;
            vcpu.active = false;
            self.accounting.deactivate(vcpu.vm, task);
        }
    }

    /// Stops a vCPU whose VM has used up its cap.
    fn park(&mut self, ctx: &mut Context<'_>, task: TaskId) {
        self.counters.parked += 1;
        let vcpu = &mut self.vcpus[task.index()];
        vcpu.parked = true;
        if self.queues.contains(task) {
            self.queues.remove(task);
        } else if self.pcpus[vcpu.cpu.index()].current == Some(task) {
            ctx.kicked.push(vcpu.cpu);
        }
    }

    /// Lets a parked vCPU run again (`csched_acct()`). It gets no boost, but in Xen 4.3 to 4.12, which clear
    /// the flag that prevents one too early.
    fn unpark(&mut self, ctx: &mut Context<'_>, task: TaskId) {
        let boosts = matches!(self.settings.era, Era::Xen4_3 | Era::Xen4_5 | Era::Xen4_9);
        let vcpu = &mut self.vcpus[task.index()];
        vcpu.parked = false;
        let off_cpu = self.pcpus[vcpu.cpu.index()].current != Some(task);
        if vcpu.runnable && off_cpu {
            self.queue_awake(ctx, task, boosts);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// VMs as (weight, cap in percent, active vCPUs). They take part in this order.
    fn accounting(cpus: usize, vms: &[(u32, u32, u32)]) -> Accounting {
        let facts: Vec<VmFacts> = vms
            .iter()
            .map(|&(weight, cap_pct, _)| VmFacts { weight, cap_pct, is_cgroup: true, cgroup: None })
            .collect();
        let mut accounting = Accounting::new(30_000_000, cpus, &facts);
        for (at, &(_, _, active)) in vms.iter().enumerate().rev() {
            for task in 0..active {
                accounting.activate(VmId::from(at), TaskId(at as u32 * 100 + task));
            }
        }
        accounting
    }

    /// Credit of a vCPU of each VM, in the order of the VMs.
    fn credits(accounting: &mut Accounting) -> Vec<i64> {
        let mut grants = accounting.grants();
        grants.sort_by_key(|grant| grant.vm);
        grants.iter().map(|grant| grant.credit).collect()
    }

    #[test]
    fn credits_go_by_weight_and_active_vcpus() {
        type Case = (&'static str, usize, &'static [(u32, u32, u32)], &'static [i64]);
        let cases: [Case; 8] = [
            ("by weight", 1, &[(256, 0, 1), (512, 0, 1)], &[100, 200]),
            ("evenly", 2, &[(256, 0, 1), (256, 0, 1), (256, 0, 1)], &[200, 200, 200]),
            ("by active vCPUs", 2, &[(256, 0, 1), (256, 0, 3)], &[150, 150]),
            ("rounded up", 1, &[(256, 0, 1), (256, 0, 6)], &[43, 43]),
            ("no more than can be burnt", 4, &[(256, 0, 2)], &[300]),
            ("what one leaves is for those after it", 2, &[(1024, 0, 1), (256, 0, 2)], &[300, 150]),
            ("no more than the cap", 1, &[(256, 50, 1)], &[150]),
            ("what a cap leaves, too", 1, &[(256, 20, 1), (256, 0, 1)], &[60, 240]),
        ];
        for (what, cpus, vms, expected) in cases {
            assert_eq!(credits(&mut accounting(cpus, vms)), expected, "{what}");
        }
    }

    #[test]
    fn a_cap_is_shared_by_the_active_vcpus() {
        let grants = accounting(2, &[(256, 25, 2)]).grants();
        assert_eq!((grants[0].credit, grants[0].cap), (38, Some(38)), "75 for the VM");
    }

    #[test]
    fn who_leaves_credit_comes_first_the_next_time() {
        let mut accounting = accounting(2, &[(256, 0, 2), (1024, 0, 1)]);
        assert_eq!(credits(&mut accounting), [100, 300], "too late for the VM before it");
        assert_eq!(accounting.active_vms, [VmId(1), VmId(0)]);
        assert_eq!(credits(&mut accounting), [150, 300]);
    }

    #[test]
    fn debt_is_handed_out_again() {
        let mut accounting = accounting(1, &[(256, 0, 1), (256, 0, 1)]);
        accounting.balance = -100;
        assert_eq!(credits(&mut accounting), [200, 200]);
    }

    #[test]
    fn nobody_active_gets_nothing() {
        assert!(accounting(4, &[(256, 0, 0)]).grants().is_empty());
    }
}
