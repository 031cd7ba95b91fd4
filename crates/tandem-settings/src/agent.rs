//! The settings of the agent, which gives VMs their homes, and the exceptions for single VMs.

use super::{ms, within};
use nix::unistd::User;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tandem_file::units::Duration;
use tandem_machine::homes::HomeSettings;

/// Home nodes for the VMs of the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Agent {
    /// Whether the agent finds VMs and gives them homes; this includes the homes of the `[[vm]]` tables
    pub enabled: bool,
    /// Whether VMs without KVM count, such as those that QEMU emulates. Any process can pretend to be one
    pub emulated: bool,
    /// Time between two scans, each of which checks whether a home should move: 1 s to 10 min
    pub look_interval: Duration,
    /// Number of consecutive scans in which a move must be worth its cost: 1 to 100
    pub looks_in_a_row: u32,
    /// Time within which a move must recover its cost: 1 s to 1 day
    pub horizon: Duration,
    /// Least time that a VM keeps a home before the agent moves the home, or memory to it: 0 s to 1 day
    pub rest: Duration,
    /// What a move must gain beyond its cost, in percent of the CPU time that the VM demands: 0 to 100
    pub gain_min_pct: u32,
    /// Rate at which the agent moves memory to homes, in MiB per second for all VMs together: 0 (memory
    /// stays) to 100000
    pub memory_mib_per_s: u32,
}

impl Default for Agent {
    fn default() -> Self {
        let HomeSettings { look_interval_ns, looks_in_a_row, horizon_ns, rest_ns, gain_min_pct } =
            HomeSettings::default();
        Self {
            enabled: true,
            emulated: false,
            look_interval: Duration { ns: look_interval_ns },
            looks_in_a_row,
            horizon: Duration { ns: horizon_ns },
            rest: Duration { ns: rest_ns },
            gain_min_pct,
            memory_mib_per_s: 0,
        }
    }
}

impl Agent {
    /// The settings of the planner of homes.
    pub fn home_settings(&self) -> HomeSettings {
        HomeSettings {
            look_interval_ns: self.look_interval.ns,
            looks_in_a_row: self.looks_in_a_row,
            horizon_ns: self.horizon.ns,
            rest_ns: self.rest.ns,
            gain_min_pct: self.gain_min_pct,
        }
    }

    pub(super) fn check(&self) -> Result<(), String> {
        let day = ms(24 * 3_600_000);
        within("look_interval of [agent]", self.look_interval, ms(1_000), ms(600_000))?;
        within("looks_in_a_row of [agent]", self.looks_in_a_row, 1, 100)?;
        within("horizon of [agent]", self.horizon, ms(1_000), day)?;
        within("rest of [agent]", self.rest, Duration { ns: 0 }, day)?;
        within("gain_min_pct of [agent]", self.gain_min_pct, 0, 100)?;
        // No node has so much memory that a higher rate would help.
        within("memory_mib_per_s of [agent]", self.memory_mib_per_s, 0, 100_000)
    }
}

/// An exception for some VMs. The first one whose conditions all match a VM applies to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VmRule {
    /// The VM's name, as `tandem vms` shows it; * matches any characters, ? a single one
    pub name: String,
    /// The VM's user, by name or number. The kernel vouches for it, unlike for the name
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"root")]
    pub user: Option<String>,
    /// The VM's cgroup, as a path from the mount point of cgroups, with * and ?. The kernel vouches for it,
    /// too
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"machine.slice/*")]
    pub cgroup: Option<String>,
    /// The manager that started the VM, as the VM itself claims
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = ManagerName::Libvirt)]
    pub manager: Option<ManagerName>,
    /// The VM's UUID, as libvirt and Proxmox show it and as the VM's command line contains it
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"4dea22b3-1d52-d8f3-2516-782e98ab3fa0")]
    pub uuid: Option<String>,
    /// The NUMA nodes that are the VM's home
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home: Option<Vec<u32>>,
    /// No other VM gets a home on this VM's nodes, as long as there are enough nodes
    #[serde(default, skip_serializing_if = "is_false")]
    pub isolated: bool,
    /// The VM gets no home
    #[serde(default, skip_serializing_if = "is_false")]
    pub exempt: bool,
    /// Whether the VM shares cores with others; allowed beside home, isolated or exempt
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = CoreUse::Apart)]
    pub cores: Option<CoreUse>,
}

/// Which tasks a VM shares cores with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CoreUse {
    /// The VM shares cores with no other task: core scheduling gives its threads a cookie. Where the kernel
    /// cannot do that, or hangs with it, no other VM gets a home on its nodes, as long as there are enough
    /// nodes
    Apart,
}

/// A manager of VMs, as `tandem vms` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ManagerName {
    /// No manager: started by hand or by a script
    None,
    /// libvirt, and tools that build on it
    Libvirt,
    /// Proxmox VE
    Proxmox,
    /// LXD
    Lxd,
    /// Incus
    Incus,
}

/// The number of a user that is given by name or number.
fn user_of(text: &str) -> Option<u32> {
    text.parse().ok().or_else(|| Some(User::from_name(text).ok()??.uid.as_raw()))
}

fn is_false(value: &bool) -> bool {
    !value
}

impl VmRule {
    /// Whether the matching VMs share cores with no other task.
    pub fn keeps_apart(&self) -> bool {
        self.cores == Some(CoreUse::Apart)
    }

    /// The number of the rule's user; `None` if the rule names none, or one that does not exist.
    pub fn user_number(&self) -> Option<u32> {
        self.user.as_deref().and_then(user_of)
    }

    pub(super) fn check(&self) -> Result<(), String> {
        let table = format!("[[vm]] with name \"{:.60}\"", self.name.escape_debug());
        if let Some(user) = self.user.as_ref().filter(|_| self.user_number().is_none()) {
            return Err(format!("user of {table} is `{:.60}`, but no such user exists", user.escape_debug()));
        }
        let said = [self.home.is_some(), self.isolated, self.exempt].into_iter().filter(|said| *said).count();
        match (said, &self.home) {
            (0, _) if self.cores.is_some() => Ok(()),
            (0, _) => Err(format!("{table} has no effect; add home, isolated, exempt or cores")),
            (1, Some(nodes)) if nodes.is_empty() => {
                Err(format!("home of {table} names no node; name at least one, as in home = [1]"))
            }
            (1, _) => Ok(()),
            _ => Err(format!("{table} has more than one of home, isolated and exempt; keep one")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(name: &str) -> VmRule {
        VmRule { name: name.into(), exempt: true, ..VmRule::default() }
    }

    #[test]
    fn the_defaults_are_the_planners() {
        assert_eq!(Agent::default().home_settings(), HomeSettings::default());
        assert_eq!(Agent::default().check(), Ok(()));
    }

    #[test]
    fn a_user_must_exist() {
        let of = |user: &str| VmRule { user: Some(user.into()), ..rule("db") };
        assert_eq!(["root", "1000"].map(|user| of(user).user_number()), [Some(0), Some(1000)]);
        assert_eq!(of("root").check(), Ok(()));
        let nobody = of("no-such-user").check().unwrap_err();
        assert!(nobody.ends_with("is `no-such-user`, but no such user exists"), "{nobody}");
    }

    #[test]
    fn a_rule_has_one_effect() {
        assert_eq!(rule("db").check(), Ok(()));
        let nothing = VmRule { exempt: false, ..rule("db") }.check().unwrap_err();
        assert_eq!(nothing, "[[vm]] with name \"db\" has no effect; add home, isolated, exempt or cores");
        let apart = VmRule { exempt: false, cores: Some(CoreUse::Apart), ..rule("db") };
        assert_eq!(apart.check(), Ok(()));
        assert_eq!(VmRule { exempt: true, ..apart }.check(), Ok(()));
        let two = VmRule { home: Some(vec![1]), ..rule("db") }.check().unwrap_err();
        assert!(two.contains("more than one"), "{two}");
        let nowhere = VmRule { home: Some(vec![]), exempt: false, ..rule("db") }.check().unwrap_err();
        assert!(nowhere.contains("names no node"), "{nowhere}");
    }
}
