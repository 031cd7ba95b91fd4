//! What happens to a host while it runs: an administrator changes settings, CPUs go and come, others take
//! them.

use super::cgroups::check_weight;
use super::{BandwidthLimit, CgroupName, PolicySettings, Process, Scenario, Which};
use crate::policy::sched_ext::KernelVersion;
use std::sync::Arc;
use tandem_machine::cpumask::CpuMask;
use tandem_machine::ids::VmId;

/// Something that happens to the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostEvent {
    /// When, ns since the start of the run.
    pub at_ns: u64,
    /// From one time to the next, if it happens again and again, ns.
    pub every_ns: Option<u64>,
    /// What.
    pub action: HostAction,
}

/// What happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostAction {
    /// A cgroup gets another `cpu.weight`.
    SetWeight {
        /// Which.
        cgroup: CgroupName,
        /// The new weight.
        weight: u32,
    },
    /// A cgroup gets another `cpu.max`.
    SetLimit {
        /// Which.
        cgroup: CgroupName,
        /// The new limit; `None`: none.
        limit: Option<BandwidthLimit>,
    },
    /// The tasks of VMs or sets of processes get another nice value.
    SetNice {
        /// Whose.
        vms: Vec<VmId>,
        /// The new value.
        nice: i8,
    },
    /// Tasks of VMs or sets of processes may run elsewhere, and prefer nothing.
    SetAffinity {
        /// Of which.
        vms: Vec<VmId>,
        /// Whose of each.
        tasks: Which,
        /// Where they may run from then on.
        cpus: Arc<CpuMask>,
    },
    /// CPUs go offline, one after the other.
    Offline(CpuMask),
    /// CPUs come back.
    Online(CpuMask),
    /// On each of these CPUs, a task of a higher scheduling class runs.
    Intrude {
        /// Where.
        cpus: CpuMask,
        /// For how long, ns.
        length_ns: u64,
    },
    /// The scheduler is unloaded and loaded again.
    Reload,
}

impl Scenario {
    /// Checks that the host's scheduler knows what happens, and that it can happen.
    pub(super) fn check_events(&self) -> Result<(), String> {
        if !self.events.is_sorted_by_key(|event| event.at_ns) {
            return Err("the events are not in the order of time".into());
        }
        let mut online = self.machine.all_cpus().clone();
        for event in &self.events {
            self.check_event(event, &mut online)
                .map_err(|problem| format!("the event at {} ms: {problem}", event.at_ns as f64 / 1e6))?;
        }
        Ok(())
    }

    fn check_event(&self, event: &HostEvent, online: &mut CpuMask) -> Result<(), String> {
        if event.every_ns == Some(0) {
            return Err("it happens again after no time".into());
        }
        self.check_policy_of(&event.action)?;
        let exist = |cpus: &CpuMask| match cpus.is_empty() || !cpus.is_subset(self.machine.all_cpus()) {
            true => Err("it names no CPU, or one that the machine lacks".to_owned()),
            false => Ok(()),
        };
        match &event.action {
            HostAction::SetWeight { cgroup, weight } => {
                self.check_cgroup(*cgroup)?;
                check_weight(*weight)
            }
            HostAction::SetLimit { cgroup, limit } => {
                self.check_cgroup(*cgroup)?;
                Self::check_limit(*limit)
            }
            HostAction::SetNice { vms, nice } => {
                self.check_vms(vms)?;
                match Process::NICE.contains(nice) {
                    true => Ok(()),
                    false => Err(format!("the nice value is {nice}; -20 to 19 are allowed")),
                }
            }
            HostAction::SetAffinity { vms, tasks, cpus } => {
                self.check_vms(vms)?;
                for vm in vms {
                    if let Some(problem) = tasks.problem(self.workloads[vm.index()].task_count()) {
                        return Err(format!("it {problem}"));
                    }
                }
                exist(cpus)?;
                match cpus.intersects(online) {
                    true => Ok(()),
                    false => Err("none of these CPUs is online then, which Linux refuses".into()),
                }
            }
            HostAction::Offline(cpus) | HostAction::Online(cpus) if event.every_ns.is_some() => {
                exist(cpus)?;
                Err("CPUs going offline or online cannot repeat; write one event for each time".into())
            }
            HostAction::Offline(cpus) => {
                exist(cpus)?;
                if !cpus.is_subset(online) {
                    return Err("a CPU that is to go offline is offline already".into());
                }
                cpus.iter().for_each(|cpu| online.remove(cpu));
                match online.is_empty() {
                    true => Err("no CPU would be left online".into()),
                    false => Ok(()),
                }
            }
            HostAction::Online(cpus) => {
                exist(cpus)?;
                if cpus.intersects(online) {
                    return Err("a CPU that is to come online is online already".into());
                }
                cpus.iter().for_each(|cpu| online.insert(cpu));
                Ok(())
            }
            HostAction::Intrude { cpus, length_ns } => {
                exist(cpus)?;
                match *length_ns {
                    0 => Err("it takes CPUs for no time".into()),
                    _ => Ok(()),
                }
            }
            HostAction::Reload => Ok(()),
        }
    }

    /// Checks that the host's scheduler can be told.
    fn check_policy_of(&self, action: &HostAction) -> Result<(), String> {
        let what = match action {
            HostAction::SetAffinity { .. } => return Ok(()),
            HostAction::SetLimit { .. } => "set_limit",
            HostAction::SetWeight { .. } => "set_weight",
            HostAction::SetNice { .. } => "set_nice",
            HostAction::Offline(_) => "offline",
            HostAction::Online(_) => "online",
            HostAction::Intrude { .. } => "intrude",
            HostAction::Reload => "reload",
        };
        match &self.policy {
            PolicySettings::SchedExt(settings)
                if matches!(action, HostAction::SetLimit { .. }) && settings.kernel < KernelVersion::V7_3 =>
            {
                Err("Linux 6.12 does not report `set_limit` to schedulers; use kernel \"7.3\"".into())
            }
            PolicySettings::SchedExt(_) => Ok(()),
            PolicySettings::Linux(settings) => match action {
                HostAction::SetNice { .. } => Ok(()),
                HostAction::SetWeight { .. } | HostAction::SetLimit { .. }
                    if settings.groups.unwrap_or(!self.cgroups.is_empty()) =>
                {
                    Ok(())
                }
                HostAction::SetWeight { .. } | HostAction::SetLimit { .. } => {
                    Err(format!("`{what}` needs `groups` on the host `linux`, as VMs are no cgroups without"))
                }
                _ => Err(format!("`{what}` is modelled for hosts with a compiled scheduler only")),
            },
            PolicySettings::Credit(_) | PolicySettings::Credit2(_) => {
                Err(format!("`{what}` is modelled for hosts with a compiled scheduler only"))
            }
        }
    }

    fn check_vms(&self, vms: &[VmId]) -> Result<(), String> {
        match vms.is_empty() || vms.iter().any(|vm| vm.index() >= self.workloads.len()) {
            true => Err("it names no VM, or one that does not exist".into()),
            false => Ok(()),
        }
    }

    fn check_cgroup(&self, name: CgroupName) -> Result<(), String> {
        let exists = match name {
            CgroupName::Declared(at) => at < self.cgroups.len(),
            CgroupName::OfVm(vm) => {
                self.workloads.get(vm.index()).is_some_and(|workload| workload.vm().is_some())
            }
        };
        if exists { Ok(()) } else { Err("it names a cgroup that does not exist".into()) }
    }
}
