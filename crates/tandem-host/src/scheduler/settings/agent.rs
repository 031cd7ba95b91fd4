//! What an operator may set of the agent, which gives VMs their homes, and the exceptions for single VMs.

use super::{ms, within};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tandem_file::units::Duration;
use tandem_sim::homes::HomeSettings;

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
        within("gain_min_pct of [agent]", self.gain_min_pct, 0, 100)
    }
}

/// An exception for VMs of some name. The first one that fits a VM holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VmRule {
    /// The VM's name, as `tandem vms` shows it; * stands for any characters, ? for one
    pub name: String,
    /// NUMA nodes that are its home
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home: Option<Vec<u32>>,
    /// No other VM gets a home on its nodes, as far as there are enough nodes
    #[serde(default, skip_serializing_if = "is_false")]
    pub isolated: bool,
    /// It gets no home
    #[serde(default, skip_serializing_if = "is_false")]
    pub exempt: bool,
}

fn is_false(value: &bool) -> bool {
    !value
}

impl VmRule {
    /// Whether it is about a VM of this name.
    pub fn fits(&self, name: &str) -> bool {
        wildmatch::WildMatch::new(&self.name).matches(name)
    }

    pub(super) fn check(&self) -> Result<(), String> {
        let table = format!("[[vm]] with name \"{:.60}\"", self.name.escape_debug());
        let said = [self.home.is_some(), self.isolated, self.exempt].into_iter().filter(|said| *said).count();
        match (said, &self.home) {
            (0, _) => Err(format!("{table} says nothing; give it home, isolated or exempt")),
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
        VmRule { name: name.into(), home: None, isolated: false, exempt: true }
    }

    #[test]
    fn the_defaults_are_the_planners() {
        assert_eq!(Agent::default().home_settings(), HomeSettings::default());
        assert_eq!(Agent::default().check(), Ok(()));
    }

    #[test]
    fn names_may_have_wildcards() {
        let cases = [("db", "db", true), ("db", "db1", false), ("db*", "db1", true), ("db?", "db12", false)];
        for (pattern, name, fits) in cases {
            assert_eq!(rule(pattern).fits(name), fits, "{pattern} {name}");
        }
    }

    #[test]
    fn a_rule_says_one_thing() {
        assert_eq!(rule("db").check(), Ok(()));
        let nothing = VmRule { exempt: false, ..rule("db") }.check().unwrap_err();
        assert_eq!(nothing, "[[vm]] with name \"db\" says nothing; give it home, isolated or exempt");
        let two = VmRule { home: Some(vec![1]), ..rule("db") }.check().unwrap_err();
        assert!(two.contains("more than one"), "{two}");
        let nowhere = VmRule { home: Some(vec![]), exempt: false, ..rule("db") }.check().unwrap_err();
        assert!(nowhere.contains("names no node"), "{nowhere}");
    }
}
