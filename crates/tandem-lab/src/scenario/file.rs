//! A scenario file, as it is written.

use super::amount::{AmountForm, Count, Parameters};
use super::costs::CostSwitches;
use super::policy::PolicyTable;
use super::program::{ProfileTable, ProgramTable};
use crate::located::Located;
use crate::units::{Duration, Size};
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;

/// A scenario: a machine, the policy of its host, virtual machines with what they do, and how long to run.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Tandem scenario")]
pub struct ScenarioFile {
    /// Measured time, such as "2s".
    pub length: Located<Duration>,
    /// Time to run before measuring starts, such as "200ms"; none if absent.
    #[serde(default)]
    pub warmup: Located<Duration>,
    /// End earlier: once the first counter of every VM has come to this since the warm-up.
    pub stop_at_count: Option<Located<Count>>,
    /// The name of a machine that the program knows, or the path of a machine file (one that ends in ".toml"),
    /// relative to this file.
    pub machine: Located<String>,
    /// Whole numbers that can be changed from outside: by an experiment, or with `--set`. Used as "$name".
    #[serde(default)]
    pub parameters: Parameters,
    /// The host's policy and its settings.
    #[serde(default)]
    pub policy: PolicyTable,
    /// Which costs count.
    #[serde(default)]
    pub costs: CostSwitches,
    /// Memory profiles by name.
    #[serde(default)]
    pub profiles: BTreeMap<String, ProfileTable>,
    /// Programs by name.
    pub programs: BTreeMap<String, ProgramTable>,
    /// The virtual machines.
    #[serde(rename = "vm")]
    pub vms: Located<Vec<VmTable>>,
}

/// Virtual machines that are alike. They are named after their group: "web-0", "web-1".
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VmTable {
    /// What kind of VM it is; results are summed up by group.
    pub group: Located<String>,
    /// How many of them; 1 if absent.
    pub count: Option<Located<Count>>,
    /// Virtual CPUs of each.
    pub vcpus: Located<Count>,
    /// Memory of each, such as "960MiB".
    pub memory: Located<Size>,
    /// Weight against other VMs, 1 to 65535; 256 if absent.
    pub weight: Option<Located<Count>>,
    /// Most CPU time of each, in percent of one pCPU; 0, which is no cap, if absent.
    pub cap: Option<Located<Count>>,
    /// Names of the programs that the vCPUs run: one for each vCPU, or one for all.
    pub programs: Located<Vec<Located<String>>>,
    /// Where the vCPUs may and prefer to run; if absent, that is for the policy's placement to say.
    pub affinity: Option<AffinityTable>,
    /// What an administrator changes about that during the run, in the order of time.
    #[serde(default, rename = "affinity_change")]
    pub affinity_changes: Vec<AffinityChangeTable>,
    /// What interrupts each of them.
    #[serde(default, rename = "source")]
    pub sources: Vec<SourceTable>,
}

/// Where vCPUs run. Lists of CPUs are such as "0-3,8", "node:0" or "all". The memory of the VM lies evenly on the
/// nodes of the CPUs that it prefers, or else on those where it may run.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AffinityTable {
    /// They run on these CPUs only; all if absent.
    pub hard: Option<Located<String>>,
    /// They prefer these CPUs, which must be among the hard ones.
    pub soft: Option<Located<String>>,
}

/// From a time of the run on, other CPUs where vCPUs may and prefer to run. The memory of the VM stays where it is.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AffinityChangeTable {
    /// When, such as "500ms": time from the start of the run, which is that of the warm-up.
    pub at: Located<Duration>,
    /// They run on these CPUs only; all if absent, whatever held before.
    pub hard: Option<Located<String>>,
    /// They prefer these CPUs, which must be among the hard ones; none if absent, whatever held before.
    pub soft: Option<Located<String>>,
}

/// A source of interrupts that put tokens into a channel.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SourceTable {
    /// The channel that gets a token with each interrupt.
    pub channel: Located<String>,
    /// When they come.
    pub arrivals: ArrivalsForm,
}

/// When interrupts come.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ArrivalsForm {
    /// With this time between two, whatever the VM does.
    Every(Located<AmountForm>),
    /// At random (exponential times between two), this many a second.
    PerSecond(Located<Count>),
    /// From clients that each send a request, await its answer, and think.
    Clients {
        /// Number of clients.
        number: Located<Count>,
        /// Time from an answer to the next request.
        think: Located<AmountForm>,
    },
}
