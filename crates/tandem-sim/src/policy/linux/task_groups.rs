//! The groups of tasks of a kernel: the cgroups of a host and of its VMs, or the session of a guest.
//!
//! On a host, each VM is a group, as its cgroup is with systemd and libvirt, below the cgroup that it names;
//! its weight and its cap are those of the group, and its vCPUs share them. Processes are in the group of
//! their cgroup, or in the root. In a guest, all tasks are in one group, as with autogroups those of a
//! session are (`autogroup.c`).
//!
//! Limits: no groups of single vCPUs and of the emulator's threads, which libvirt makes, and no levels that a
//! scenario does not name. 7.3 has its groups in one queue per CPU; the model keeps the queues of 6.12.

use super::queues::{GroupFacts, GroupId};
use crate::policy::{TaskFacts, VmFacts};
use crate::scenario::{BandwidthLimit, Cgroup, CgroupName, Workload};

/// Shares of a cgroup of usual weight.
const USUAL_SHARES: u64 = 1024;
/// Shares that Linux allows (`MIN_SHARES`, `MAX_SHARES`).
const SHARES: [u64; 2] = [2, 262_144];

/// Which tasks are in which groups.
#[derive(Clone, Debug, Default)]
pub(super) struct TaskGroups {
    /// By VM or set of processes; a kernel without these has one for all tasks. Empty without groups.
    of_vm: Vec<Membership>,
    /// Of the cgroups that the scenario has.
    of_cgroup: Vec<GroupId>,
}

/// The group of the tasks of a VM.
#[derive(Clone, Copy, Debug)]
struct Membership {
    group: GroupId,
    /// The VM's weight is the group's, not its tasks'.
    has_weight: bool,
}

impl TaskGroups {
    /// The groups of a kernel, and what they are to begin with; the root group is not among these.
    pub fn new(vms: &[VmFacts], cgroups: &[Cgroup]) -> (Self, Vec<GroupFacts>) {
        let mut groups = Vec::new();
        let mut add = |parent, shares, limit| {
            groups.push(GroupFacts { parent, shares, limit });
            GroupId(groups.len() as u32)
        };
        let mut of_cgroup: Vec<GroupId> = Vec::with_capacity(cgroups.len());
        for cgroup in cgroups {
            let parent = cgroup.parent.map_or(GroupId::ROOT, |parent| of_cgroup[parent]);
            of_cgroup.push(add(parent, shares_of_cgroup(cgroup.weight), cgroup.limit));
        }
        let mut of_vm: Vec<Membership> = Vec::with_capacity(vms.len());
        for vm in vms {
            let above = vm.cgroup.map_or(GroupId::ROOT, |cgroup| of_cgroup[cgroup]);
            let group = if vm.is_cgroup { add(above, shares_of_vm(vm.weight), limit_of(vm)) } else { above };
            of_vm.push(Membership { group, has_weight: vm.is_cgroup });
        }
        if of_vm.is_empty() {
            of_vm.push(Membership { group: add(GroupId::ROOT, USUAL_SHARES, None), has_weight: false });
        }
        (Self { of_vm, of_cgroup }, groups)
    }

    /// The group of a task, and its weight in it. Threads of the kernel stay in the root.
    pub fn of(&self, facts: &TaskFacts) -> (GroupId, u32) {
        if facts.is_kernel_thread {
            return (GroupId::ROOT, facts.weight);
        }
        match self.of_vm.get(facts.vm.index()) {
            Some(&Membership { group, has_weight: true }) => (group, facts.policy.weight(facts.nice)),
            Some(&Membership { group, has_weight: false }) => (group, facts.weight),
            None => (GroupId::ROOT, facts.weight),
        }
    }

    /// The group of a cgroup, if there are groups.
    pub fn named(&self, cgroup: CgroupName) -> Option<GroupId> {
        match cgroup {
            CgroupName::Declared(at) => self.of_cgroup.get(at).copied(),
            CgroupName::OfVm(vm) => self.of_vm.get(vm.index()).map(|of| of.group),
        }
    }
}

/// Shares by `cpu.weight` (`sched_weight_from_cgroup()`).
pub(super) fn shares_of_cgroup(weight: u32) -> u64 {
    let usual = u64::from(Cgroup::DEFAULT_WEIGHT);
    clamped((u64::from(weight) * USUAL_SHARES + usual / 2) / usual)
}

fn shares_of_vm(weight: u32) -> u64 {
    clamped(u64::from(weight) * USUAL_SHARES / u64::from(Workload::DEFAULT_WEIGHT))
}

fn clamped(shares: u64) -> u64 {
    let [least, most] = SHARES;
    shares.clamp(least, most)
}

/// The cap of a VM as a `cpu.max`.
fn limit_of(vm: &VmFacts) -> Option<BandwidthLimit> {
    let period_us = BandwidthLimit::DEFAULT_PERIOD_US;
    let quota_us = (u64::from(vm.cap_pct) * period_us / 100).max(BandwidthLimit::QUOTA_MIN_US);
    (vm.cap_pct > 0).then_some(BandwidthLimit { quota_us, period_us })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sched_weight_from_cgroup() {
        assert_eq!([1, 50, 100, 10_000].map(shares_of_cgroup), [10, 512, 1024, 102_400]);
        assert_eq!([1, 128, 256, 65_535].map(shares_of_vm), [4, 512, 1024, 262_140]);
    }
}
