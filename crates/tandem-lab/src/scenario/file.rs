//! A scenario file, as it is written.

use super::Parameters;
use super::amount::{AmountForm, Count};
use super::costs::CostSwitches;
use super::memory::MemoryPolicyForm;
use super::pages::HugePagesForm;
use super::policy::PolicyTable;
use super::policy::words::Word;
use super::program::{ProfileTable, ProgramTable};
use crate::machine_file::MachineForm;
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;
use tandem_file::located::Located;
use tandem_file::units::{Duration, Size};
use tandem_sim::scenario::TaskPolicy;

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
    /// The name of a machine that the program knows, or the path of a machine file (one that ends in
    /// ".toml"), relative to this file; or what a machine file says, in tables such as [[machine.node]].
    pub machine: Located<MachineForm>,
    /// What can be changed from outside, by an experiment or with `--set`: whole numbers, times, sizes and
    /// names. "$name" stands for the value of one wherever that may stand.
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
    #[serde(default)]
    pub programs: BTreeMap<String, ProgramTable>,
    /// Cgroups of the host. A VM makes its own.
    #[serde(default, rename = "cgroup")]
    pub cgroups: Vec<CgroupTable>,
    /// The virtual machines.
    #[serde(default, rename = "vm")]
    pub vms: Vec<VmTable>,
    /// What runs on the host outside of VMs.
    #[serde(default)]
    pub processes: Vec<ProcessesTable>,
    /// What happens to the host while it runs.
    #[serde(default, rename = "event")]
    pub events: Vec<EventTable>,
}

/// A cgroup of the host. Those above it that are not there as tables of their own have a weight of 100 and no
/// limit.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CgroupTable {
    /// From the root: "machine.slice/web".
    pub path: Located<String>,
    /// `cpu.weight`, 1 to 10000; 100 if absent.
    pub weight: Option<Located<Count>>,
    /// `cpu.max`: CPU time in percent of one CPU, such as "150%", or "max", which it is if absent.
    pub limit: Option<Located<String>>,
    /// The period of the limit, "1ms" to "1s"; "100ms" if absent.
    pub period: Option<Located<Duration>>,
}

/// Something that happens to the host, for which there must be one key beside `at` and `every`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EventTable {
    /// When, such as "300ms": time from the start of the warm-up.
    pub at: Located<Duration>,
    /// Time until it happens again, and again; once if absent. At most 1000000 things may happen in a run,
    /// where each CPU counts that `intrude` takes.
    pub every: Option<Located<Duration>>,
    /// A cgroup gets another weight.
    pub set_weight: Option<SetWeightTable>,
    /// A cgroup gets another limit. Only kernel "7.3" reports limits to its scheduler.
    pub set_limit: Option<SetLimitTable>,
    /// The tasks of a group get another nice value.
    pub set_nice: Option<SetNiceTable>,
    /// The tasks of a group may run on these CPUs only, and prefer none.
    pub set_affinity: Option<SetAffinityTable>,
    /// CPUs go offline, such as "3" or "4-7".
    pub offline: Option<Located<String>>,
    /// CPUs come back.
    pub online: Option<Located<String>>,
    /// A task of a higher scheduling class takes each of these CPUs at once.
    pub intrude: Option<IntrudeTable>,
    /// True: the scheduler is unloaded and loaded again.
    pub reload: Option<Located<bool>>,
}

/// A cgroup gets another weight.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetWeightTable {
    /// Its path. That of a VM ends with its name: "machine.slice/web-0".
    pub cgroup: Located<String>,
    /// The new `cpu.weight`, 1 to 10000.
    pub weight: Located<Count>,
}

/// A cgroup gets another limit.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetLimitTable {
    /// Its path. That of a VM ends with its name: "machine.slice/web-0".
    pub cgroup: Located<String>,
    /// CPU time in percent of one CPU, such as "150%", or "max".
    pub limit: Located<String>,
    /// The period of the limit, "1ms" to "1s"; "100ms" if absent.
    pub period: Option<Located<Duration>>,
}

/// The tasks of a group get another nice value.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetNiceTable {
    /// Of VMs or processes.
    pub group: Located<String>,
    /// The new value, -20 (most urgent) to 19.
    pub nice: Located<i64>,
}

/// The tasks of a group may run elsewhere.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetAffinityTable {
    /// Of VMs or processes.
    pub group: Located<String>,
    /// Whose of each VM, such as "0" or "0-1"; those of all vCPUs if absent.
    pub vcpus: Option<Located<String>>,
    /// Where they may run, such as "0-3".
    pub cpus: Located<String>,
}

/// A task of a higher scheduling class takes CPUs.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IntrudeTable {
    /// Which, such as "0-3": one such task on each.
    pub cpus: Located<String>,
    /// For how long, such as "20ms".
    pub length: Located<Duration>,
}

/// Processes of the host that belong together, such as the workers of a database. With a `count`, there are
/// as many such sets, named after their group: "db-0", "db-1". They do what either `hackbench` or the
/// `process` list says.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProcessesTable {
    /// What kind of processes they are; results are summed up by group.
    pub group: Located<String>,
    /// How many sets of them; 1 if absent.
    pub count: Option<Located<Count>>,
    /// Memory of each set, such as "4GiB".
    pub memory: Located<Size>,
    /// Where that lies at the start; if absent, evenly on the nodes of the CPUs that `affinity` or `homes`
    /// say.
    pub memory_policy: Option<Located<MemoryPolicyForm>>,
    /// Its huge pages; none if absent.
    pub huge_pages: Option<Located<HugePagesForm>>,
    /// Whether those of a set are threads of one process, which share its address space; false if absent.
    #[serde(default)]
    pub threads: bool,
    /// The path of the cgroup that they are in, such as "system.slice/db"; the root if absent.
    pub cgroup: Option<Located<String>>,
    /// Weight of each task against others, 1 to 65535; if absent 256, which is that of nice 0.
    pub weight: Option<Located<Count>>,
    /// Hackbench: groups of senders and receivers that chat.
    pub hackbench: Option<HackbenchTable>,
    /// The processes of each set.
    #[serde(default, rename = "process")]
    pub processes: Vec<CopiesTable>,
    /// Where they may and prefer to run, whatever the policy's placement says.
    pub affinity: Option<AffinityTable>,
    /// CPUs such as "node:0" that each set calls its home, in turn: the policy's placement pins it there,
    /// lets it prefer to be there, or leaves it alone. Without homes they run everywhere.
    #[serde(default)]
    pub homes: Vec<Located<String>>,
    /// What an administrator changes about that during the run, in the order of time.
    #[serde(default, rename = "affinity_change")]
    pub affinity_changes: Vec<AffinityChangeTable>,
    /// Whether they have run for long before, so that they start wherever the host has moved them: on CPUs
    /// drawn at random. False if absent: they start as the host's policy places new ones.
    #[serde(default)]
    pub has_past: bool,
}

/// Processes that run the same program.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CopiesTable {
    /// Name of the program.
    pub program: Located<String>,
    /// How many of them; 1 if absent.
    pub copies: Option<Located<Count>>,
    /// Nice value, -20 (most urgent) to 19; 0 if absent.
    #[serde(default)]
    pub nice: Located<i64>,
    /// Scheduling policy: "normal", "batch" or "idle"; "normal" if absent.
    pub policy: Option<Word<TaskPolicy>>,
}

/// Hackbench: in each group every sender writes a message to every receiver in turn, over and over. Each
/// receiver has a socket or pipe of its own. The counter "messages" counts what was received.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HackbenchTable {
    /// Number of groups.
    pub groups: Located<Count>,
    /// Senders of a group, and its receivers; 20 of each if absent.
    pub fds: Option<Located<Count>>,
    /// Whether they talk through sockets or pipes; "sockets" if absent.
    #[serde(default)]
    pub transport: Transport,
    /// Messages that each sender sends to each receiver before it ends; if absent, they go on for ever.
    pub loops: Option<Located<Count>>,
}

/// What hackbench talks through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// Pairs of stream sockets of the UNIX domain.
    #[default]
    Sockets,
    /// Pipes (hackbench's option -p).
    Pipes,
}

/// Virtual machines that are alike. They are named after their group: "web-0", "web-1".
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VmTable {
    /// What kind of VM it is; results are summed up by group.
    pub group: Located<String>,
    /// How many of them; 1 if absent.
    pub count: Option<Located<Count>>,
    /// In the place of `count`: as many of them as have together this many vCPUs, in percent of the machine's
    /// pCPUs; 200 is two vCPUs on each pCPU.
    pub overcommit_pct: Option<Located<Count>>,
    /// Virtual CPUs of each.
    pub vcpus: Located<Count>,
    /// Memory of each, such as "960MiB".
    pub memory: Located<Size>,
    /// Where that lies at the start; if absent, evenly on the nodes of the CPUs that `affinity` or the
    /// policy's placement says.
    pub memory_policy: Option<Located<MemoryPolicyForm>>,
    /// Its huge pages; transparent ones for all of it if absent.
    pub huge_pages: Option<Located<HugePagesForm>>,
    /// When each of them starts, such as "300ms" or { uniform = ["0s", "8s"] }, drawn for each by itself:
    /// time from the start of the warm-up. They are there from the start if absent. A home by the policy's
    /// placement is chosen then.
    pub start: Option<Located<AmountForm>>,
    /// How long each of them is there, such as { exponential = "2s" }, drawn for each by itself; to the end
    /// of the run if absent. Not for VMs with a `guest`.
    pub life: Option<Located<AmountForm>>,
    /// The path of the cgroup below which each of them makes its own, such as "machine.slice"; the root if
    /// absent.
    pub cgroup: Option<Located<String>>,
    /// Weight against other VMs, 1 to 65535; 256 if absent.
    pub weight: Option<Located<Count>>,
    /// Most CPU time of each, in percent of one pCPU; 0, which is no cap, if absent.
    pub cap: Option<Located<Count>>,
    /// Names of the programs that the vCPUs run: one for each vCPU, or one for all. None in a VM with a
    /// `guest`.
    pub programs: Option<Located<Vec<Located<String>>>>,
    /// The kernel of the VM, which schedules tasks on the vCPUs. Without it each vCPU runs its program and
    /// nothing else.
    pub guest: Option<GuestTable>,
    /// Where the vCPUs may and prefer to run; if absent, that is for the policy's placement to say.
    pub affinity: Option<AffinityTable>,
    /// Where single vCPUs of each may and prefer to run instead. The policy's placement then leaves all of the
    /// VM alone: without an `affinity`, its other vCPUs run everywhere.
    #[serde(default)]
    pub vcpu_affinity: Vec<VcpuAffinityTable>,
    /// What an administrator changes about that during the run, in the order of time.
    #[serde(default, rename = "affinity_change")]
    pub affinity_changes: Vec<AffinityChangeTable>,
    /// Whether they have run for long before, so that their vCPUs start wherever the host has moved them: on
    /// pCPUs drawn at random. False if absent: they start as the host's policy places new ones.
    #[serde(default)]
    pub has_past: bool,
    /// What interrupts each of them.
    #[serde(default, rename = "source")]
    pub sources: Vec<SourceTable>,
}

/// A guest kernel and what runs on it. Its policy is `guest` under `[policy]`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GuestTable {
    /// The topology that the guest sees. If absent: "host" if it has as many vCPUs as the machine has pCPUs,
    /// else "flat".
    pub topology: Option<Located<TopologyForm>>,
    /// Whether topology "host" shows the NUMA nodes. Xen's PV guests see packages and caches but no nodes;
    /// false if absent.
    pub numa: Option<Located<bool>>,
    /// What scheduling costs the guest kernel.
    #[serde(default)]
    pub context_switch: ContextSwitchTable,
    /// Channels that each process of the start has for itself and its descendants; all others are the VM's.
    #[serde(default)]
    pub family_channels: Vec<Located<String>>,
    /// What runs from the start.
    #[serde(rename = "process")]
    pub processes: Vec<ProcessTable>,
}

/// The topology that a guest sees: "host", "flat", or packages, cores and threads.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "expected \"host\", \"flat\", or a table such as { packages = 1, cores = 8, threads = 2 }"
)]
pub enum TopologyForm {
    /// One of those that have a name.
    Named(TopologyName),
    /// Any regular one.
    Regular(RegularTopology),
}

/// A reported topology that has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TopologyName {
    /// That of the host: vCPU 0 appears as pCPU 0, and so on. Needs as many vCPUs as pCPUs.
    Host,
    /// One package with one last-level cache; each vCPU is a core.
    Flat,
}

/// A topology of equal packages. Each has a last-level cache; there is one NUMA node.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RegularTopology {
    /// Number of packages.
    pub packages: u32,
    /// Cores of each package.
    pub cores: u32,
    /// Threads of each core.
    pub threads: u32,
}

/// What scheduling costs a guest kernel; exits to the host come on top.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ContextSwitchTable {
    /// A decision, such as "1us"; "464ns" if absent.
    pub decision: Option<Located<Duration>>,
    /// On top of it when another task is put on the CPU, such as "1us"; "927ns" if absent.
    pub switch: Option<Located<Duration>>,
    /// On top of it for each other vCPU whose queue is looked at, in a search for an idle one or for work;
    /// "60ns" if absent.
    pub peer_scan: Option<Located<Duration>>,
}

/// Processes that run in a guest from the start.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProcessTable {
    /// Name of the program that they run.
    pub program: Located<String>,
    /// How many of them; 1 if absent.
    pub copies: Option<Located<Count>>,
    /// Nice value, -20 (most urgent) to 19; 0 if absent. What they fork inherits it.
    #[serde(default)]
    pub nice: Located<i64>,
    /// Scheduling policy: "normal", "batch" or "idle"; "normal" if absent. What they fork inherits it.
    pub policy: Option<Word<TaskPolicy>>,
    /// vCPUs on which they run, such as "0-3"; all if absent. What they fork inherits it.
    pub cpus: Option<Located<String>>,
}

/// Where vCPUs run. Lists of CPUs are such as "0-3,8", "node:0" or "all". The memory of the VM lies evenly on
/// the nodes of the CPUs that it prefers, or else on those where it may run, unless it has a `memory_policy`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AffinityTable {
    /// They run on these CPUs only; all if absent.
    pub hard: Option<Located<String>>,
    /// They prefer these CPUs, which must be among the hard ones.
    pub soft: Option<Located<String>>,
}

/// Where single vCPUs run, as libvirt's `vcpupin` and Xen's `xl vcpu-pin` say.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VcpuAffinityTable {
    /// Which, such as "0" or "0-1".
    pub vcpus: Located<String>,
    /// They run on these CPUs only; all if absent, whatever the `affinity` of the VM is.
    pub hard: Option<Located<String>>,
    /// They prefer these CPUs, which must be among the hard ones; none if absent.
    pub soft: Option<Located<String>>,
}

/// From a time of the run on, other CPUs where vCPUs may and prefer to run. The memory of the VM stays where
/// it is.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AffinityChangeTable {
    /// When, such as "500ms": time from the start of the warm-up.
    pub at: Located<Duration>,
    /// Which vCPUs of the VM, such as "0" or "0-1"; all if absent.
    pub vcpus: Option<Located<String>>,
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
