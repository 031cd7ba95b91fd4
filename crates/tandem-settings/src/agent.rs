//! What an operator may set of the agent, which gives VMs their homes, and the exceptions for single VMs.

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
    /// Whether VMs are found and given homes; those of the `[[vm]]` tables, too
    pub enabled: bool,
    /// Whether VMs count that run without KVM, such as QEMU's emulated ones. Any process can look like one
    pub emulated: bool,
    /// How often it looks whether a home should move: 1 s to 10 min
    pub look_interval: Duration,
    /// In how many looks in a row a move must be worth it: 1 to 100
    pub looks_in_a_row: u32,
    /// Time over which a move must pay: 1 s to 1 day
    pub horizon: Duration,
    /// How long a VM keeps a home at least: 0 s to 1 day
    pub rest: Duration,
    /// What a move must gain beyond its cost, in percent of the CPU time that the VM asks for: 0 to 100
    pub gain_min_pct: u32,
    /// How fast memory of VMs is moved to their homes, MiB a second of all together: 0 (not at all) to 100000
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
    /// What the planner is told.
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
        // More than the memory of any node takes.
        within("memory_mib_per_s of [agent]", self.memory_mib_per_s, 0, 100_000)
    }
}

/// An exception for some VMs. The first one that fits a VM in all that it says of it holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VmRule {
    /// The VM's name, as `tandem vms` shows it; * stands for any characters, ? for one
    pub name: String,
    /// Its user, by name or number. Unlike the name, this is the kernel's word
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"root")]
    pub user: Option<String>,
    /// Its cgroup, as a path from where cgroups are mounted, with * and ?: the kernel's word, too
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"machine.slice/*")]
    pub cgroup: Option<String>,
    /// Who started it, as it says itself
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = ManagerName::Libvirt)]
    pub manager: Option<ManagerName>,
    /// Its UUID, as libvirt and Proxmox show it and the VM's command line has it
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"4dea22b3-1d52-d8f3-2516-782e98ab3fa0")]
    pub uuid: Option<String>,
    /// NUMA nodes that are its home
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home: Option<Vec<u32>>,
    /// No other VM gets a home on its nodes, as far as there are enough nodes
    #[serde(default, skip_serializing_if = "is_false")]
    pub isolated: bool,
    /// It gets no home
    #[serde(default, skip_serializing_if = "is_false")]
    pub exempt: bool,
    /// Whether it shares cores with others; may stand beside any of the others
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = CoreUse::Apart)]
    pub cores: Option<CoreUse>,
}

/// With whom a VM shares cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CoreUse {
    /// With nobody: its threads have a cookie of core scheduling, or where the kernel cannot, no other VM its home on their nodes
    Apart,
}

/// A manager of VMs, as `tandem vms` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ManagerName {
    /// None: by hand, or by a script
    None,
    /// libvirt, and what is built on it
    Libvirt,
    /// Proxmox VE
    Proxmox,
    /// LXD
    Lxd,
    /// Incus
    Incus,
}

/// A user by name or number.
fn user_of(text: &str) -> Option<u32> {
    text.parse().ok().or_else(|| Some(User::from_name(text).ok()??.uid.as_raw()))
}

fn is_false(value: &bool) -> bool {
    !value
}

impl VmRule {
    /// Whether it keeps VMs apart from others on their cores.
    pub fn keeps_apart(&self) -> bool {
        self.cores == Some(CoreUse::Apart)
    }

    /// The number of its user, if it names one and there is such a user.
    pub fn user_number(&self) -> Option<u32> {
        self.user.as_deref().and_then(user_of)
    }

    pub(super) fn check(&self) -> Result<(), String> {
        let table = format!("[[vm]] with name \"{:.60}\"", self.name.escape_debug());
        if let Some(user) = self.user.as_ref().filter(|_| self.user_number().is_none()) {
            return Err(format!(
                "user of {table} is `{:.60}`, and there is no such user here",
                user.escape_debug()
            ));
        }
        let said = [self.home.is_some(), self.isolated, self.exempt].into_iter().filter(|said| *said).count();
        match (said, &self.home) {
            (0, _) if self.cores.is_some() => Ok(()),
            (0, _) => Err(format!("{table} says nothing; give it home, isolated, exempt or cores")),
            (1, Some(nodes)) if nodes.is_empty() => {
                Err(format!("home of {table} names no node; a home has one at least, as in home = [1]"))
            }
            (1, _) => Ok(()),
            _ => Err(format!("{table} says more than one of home, isolated and exempt; leave one")),
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
    fn a_user_is_one_who_is_there() {
        let of = |user: &str| VmRule { user: Some(user.into()), ..rule("db") };
        assert_eq!(["root", "1000"].map(|user| of(user).user_number()), [Some(0), Some(1000)]);
        assert_eq!(of("root").check(), Ok(()));
        let nobody = of("no-such-user").check().unwrap_err();
        assert!(nobody.ends_with("is `no-such-user`, and there is no such user here"), "{nobody}");
    }

    #[test]
    fn a_rule_says_one_thing() {
        assert_eq!(rule("db").check(), Ok(()));
        let nothing = VmRule { exempt: false, ..rule("db") }.check().unwrap_err();
        assert_eq!(nothing, "[[vm]] with name \"db\" says nothing; give it home, isolated, exempt or cores");
        let apart = VmRule { exempt: false, cores: Some(CoreUse::Apart), ..rule("db") };
        assert_eq!(apart.check(), Ok(()));
        assert_eq!(VmRule { exempt: true, ..apart }.check(), Ok(()));
        let two = VmRule { home: Some(vec![1]), ..rule("db") }.check().unwrap_err();
        assert!(two.contains("more than one"), "{two}");
        let nowhere = VmRule { home: Some(vec![]), exempt: false, ..rule("db") }.check().unwrap_err();
        assert!(nowhere.contains("names no node"), "{nowhere}");
    }
}
