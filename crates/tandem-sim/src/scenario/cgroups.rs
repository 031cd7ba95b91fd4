//! Cgroups of the host: a tree, with weights and limits.
//!
//! A VM makes a cgroup of its own, with its weight, below the one that it names; processes join the one that
//! they name.

use super::{HostAction, PolicySettings, Scenario, TaskPolicy, Workload};
use std::collections::HashSet;
use std::ops::RangeInclusive;
use tandem_machine::ids::VmId;

/// A cgroup that is there besides those of VMs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroup {
    /// From the root, which has none: "machine.slice/web".
    pub path: String,
    /// Position of the one above; `None`: the root.
    pub parent: Option<usize>,
    /// `cpu.weight`.
    pub weight: u32,
    /// `cpu.max`; `None`: no limit.
    pub limit: Option<BandwidthLimit>,
}

impl Cgroup {
    /// Weight unless something else is said (`CGROUP_WEIGHT_DFL`).
    pub const DEFAULT_WEIGHT: u32 = 100;
    /// Weights that Linux allows (`CGROUP_WEIGHT_MIN`, `CGROUP_WEIGHT_MAX`).
    pub const WEIGHTS: RangeInclusive<u32> = 1..=10_000;
    /// Most levels below the root. Linux has no such limit; schedulers that keep a path of each cgroup do.
    pub const LEVELS_MAX: usize = 16;

    /// The name that a path ends with.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }
}

/// How much CPU time a cgroup may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BandwidthLimit {
    /// Time that it may use in each period, on all CPUs together, us.
    pub quota_us: u64,
    /// The period, us.
    pub period_us: u64,
}

impl BandwidthLimit {
    /// The period unless something else is said (`default_bw_period_us()`), us.
    pub const DEFAULT_PERIOD_US: u64 = 100_000;
    /// Periods that Linux allows (`min_cfs_quota_period`, `max_cfs_quota_period`), us.
    pub const PERIODS_US: RangeInclusive<u64> = 1_000..=1_000_000;
    /// The smallest quota that Linux allows, us.
    pub const QUOTA_MIN_US: u64 = 1_000;

    /// What is wrong with it.
    fn problem(self) -> Option<String> {
        if !Self::PERIODS_US.contains(&self.period_us) {
            return Some(format!("its period is {} us; 1 ms to 1 s are allowed", self.period_us));
        }
        (self.quota_us < Self::QUOTA_MIN_US)
            .then(|| format!("it may use {} us in a period; 1 ms or more is allowed", self.quota_us))
    }
}

/// One of the host's cgroups below the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupName {
    /// By position in [`Scenario::cgroups`].
    Declared(usize),
    /// The one that a VM has made.
    OfVm(VmId),
}

impl Scenario {
    /// The path of a cgroup.
    pub fn cgroup_path(&self, name: CgroupName) -> String {
        match name {
            CgroupName::Declared(at) => self.cgroups[at].path.clone(),
            CgroupName::OfVm(vm) => {
                let vm = &self.workloads[vm.index()];
                match vm.cgroup {
                    Some(above) => format!("{}/{}", self.cgroups[above].path, vm.name),
                    None => vm.name.clone(),
                }
            }
        }
    }

    /// Whether tasks of a workload may have to wait while CPUs idle: it has a cap, or is below a limit, or gets
    /// one during the run.
    pub(crate) fn may_be_held(&self, vm: VmId) -> bool {
        let workload = &self.workloads[vm.index()];
        let above = || std::iter::successors(workload.cgroup, |&at| self.cgroups[at].parent);
        let is_limited = |name: CgroupName| match name {
            CgroupName::Declared(at) => above().any(|it| it == at),
            CgroupName::OfVm(it) => it == vm,
        };
        workload.vm().is_some_and(|vm| vm.cap_pct > 0)
            || above().any(|at| self.cgroups[at].limit.is_some())
            || self.events.iter().any(|event| match event.action {
                HostAction::SetLimit { cgroup, limit } => limit.is_some() && is_limited(cgroup),
                _ => false,
            })
    }

    /// The cgroup with a path, if there is one.
    pub fn cgroup_named(&self, path: &str) -> Option<CgroupName> {
        self.cgroup_names().find(|&name| self.cgroup_path(name) == path)
    }

    /// All cgroups below the root.
    pub fn cgroup_names(&self) -> impl Iterator<Item = CgroupName> {
        let declared = (0..self.cgroups.len()).map(CgroupName::Declared);
        let vms = self.workloads.iter().enumerate().filter(|(_, workload)| workload.vm().is_some());
        declared.chain(vms.map(|(at, _)| CgroupName::OfVm(at.into())))
    }

    /// Checks the cgroups, and that the host's scheduler knows what they are.
    pub(super) fn check_cgroups(&self) -> Result<(), String> {
        let mut levels: Vec<usize> = Vec::with_capacity(self.cgroups.len());
        for (at, cgroup) in self.cgroups.iter().enumerate() {
            let wrong = |problem: String| Err(format!("cgroup `{}`: {problem}", cgroup.path));
            if cgroup.name().is_empty() {
                return wrong("a name in its path is empty".into());
            }
            let level = match cgroup.parent {
                None => 1,
                Some(parent) if parent < at => levels[parent] + 1,
                Some(_) => return wrong("it comes before the one above it".into()),
            };
            // A VM may still make one below.
            if level >= Cgroup::LEVELS_MAX {
                return wrong(format!("it is on level {level}; {} are allowed", Cgroup::LEVELS_MAX - 1));
            }
            levels.push(level);
            check_weight(cgroup.weight).or_else(wrong)?;
            if let Some(problem) = cgroup.limit.and_then(BandwidthLimit::problem) {
                return wrong(problem);
            }
        }
        if self
            .workloads
            .iter()
            .filter_map(|workload| workload.cgroup)
            .any(|cgroup| cgroup >= self.cgroups.len())
        {
            return Err("a VM or a set of processes is in a cgroup that does not exist".into());
        }
        let mut paths = HashSet::new();
        // Without cgroups of its own, a scenario has but VMs, whose names differ.
        if !self.cgroups.is_empty()
            && let Some(twice) = self
                .cgroup_names()
                .map(|name| self.cgroup_path(name))
                .find(|path| !paths.insert(path.clone()))
        {
            return Err(format!("there are two cgroups `{twice}`; give one another name"));
        }
        match &self.policy {
            PolicySettings::Credit(_) | PolicySettings::Credit2(_) if !self.cgroups.is_empty() => {
                Err("Xen has no cgroups; leave them out, or name a compiled scheduler as host".into())
            }
            PolicySettings::Linux(settings) if !self.cgroups.is_empty() && settings.groups == Some(false) => {
                Err("`groups` is false, but there are cgroups; leave one of them out".into())
            }
            PolicySettings::Credit(_) | PolicySettings::Credit2(_)
                if self.workloads.iter().flat_map(Workload::programs).any(|task| task.nice != 0) =>
            {
                Err("Xen has no nice values; leave `nice` out, or name another host".into())
            }
            PolicySettings::Credit(_) | PolicySettings::Credit2(_)
                if (self.workloads.iter().flat_map(Workload::programs))
                    .any(|task| task.policy != TaskPolicy::Normal) =>
            {
                Err("Xen has no policies of tasks; leave `policy` out, or name another host".into())
            }
            _ => Ok(()),
        }
    }

    /// Checks a limit that a cgroup gets.
    pub(super) fn check_limit(limit: Option<BandwidthLimit>) -> Result<(), String> {
        limit.and_then(BandwidthLimit::problem).map_or(Ok(()), Err)
    }
}

/// Checks a `cpu.weight`.
pub(super) fn check_weight(weight: u32) -> Result<(), String> {
    match Cgroup::WEIGHTS.contains(&weight) {
        true => Ok(()),
        false => Err(format!("its weight is {weight}; 1 to 10000 are allowed")),
    }
}
