//! The summary of one run, as a table and as JSON.

use crate::latency::{LatencyColumns, LatencyFigures};
use crate::measure::Measure;
use crate::scenario::policy::named::{named, named_guests};
use crate::stat::{NumaStat, RunStat};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};
use tandem_sim::metrics::{Awaited, HomeMove, RunMetrics, VmMetrics};
use tandem_sim::scenario::Scenario;
use tandem_sim::times::Times;

/// From so much wasted CPU time on, in percent, the table has a line about it: as much as it prints.
const IDLE_BESIDE_SHOWN_PCT: f64 = 0.05;
/// From so much on a run ends with a warning, percent.
const IDLE_BESIDE_WARNED_PCT: f64 = 5.0;
/// The same of a guest's vCPUs. Others than the ones that wait for a pCPU idle beside the tasks of these even under Linux,
/// as a guest cannot see which ones wait: 6% of a web server's beside batch work.
const GUEST_IDLE_BESIDE_WARNED_PCT: f64 = 25.0;
/// Those warnings need a wait of at least this, ms.
const LONG_WAIT_MS: f64 = 1.0;
/// How many waits of a deadlock a warning names.
const WAITS_SHOWN: usize = 4;
/// Widest line of a summary.
const COLUMNS: usize = 100;

/// A run: its input and its measurements.
#[derive(Clone, Debug, Serialize)]
pub struct RunSummary {
    /// Version of the program.
    pub version: &'static str,
    /// The scenario, by the name that the user gave.
    pub scenario: String,
    /// Hash over everything that the run depends on except the seed and the version, in hexadecimal.
    pub scenario_hash: String,
    /// The seed.
    pub seed: u64,
    /// Hash over the run's scheduling events, in hexadecimal: equal runs have equal hashes.
    pub trace_hash: String,
    /// The machine.
    pub machine: String,
    /// Measured time, s.
    pub length_s: f64,
    /// Whether its user ended it before its time was up.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_cut: bool,
    /// Number of events that the model handled.
    pub events: u64,
    /// The host.
    pub host: HostSummary,
    /// The schedulers of the guest kernels and their releases, each once, if there are any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub guest_schedulers: Vec<String>,
    /// The VMs by group, in the order of the scenario.
    pub groups: Vec<GroupSummary>,
    /// Tasks that wait for each other for ever at the end.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deadlocks: Vec<DeadlockSummary>,
    /// Accounting of every kernel, VM and program, if asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stat: Option<RunStat>,
}

/// The host of a run.
#[derive(Clone, Debug, Serialize)]
pub struct HostSummary {
    /// Its scheduler and the release that this follows, such as "linux 6.12".
    pub scheduler: String,
    /// Number of pCPUs.
    pub pcpus: usize,
    /// Share of the pCPUs' time in which VMs ran.
    pub busy_pct: Option<f64>,
    /// Share of the pCPUs' time in which they idled.
    pub idle_pct: Option<f64>,
    /// Share of the pCPUs' time in which they idled while tasks waited that could have run there.
    pub idle_beside_pct: Option<f64>,
    /// Share of the pCPUs' time in which they were not the scheduler's, if it was not always 0: tasks of
    /// higher classes had them, or they were offline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub away_pct: Option<f64>,
    /// Share of the pCPUs' time in the host's own code.
    pub overhead_pct: Option<f64>,
    /// Share of the pCPUs' time in which that code waits for locks of run queues.
    pub spin_pct: Option<f64>,
    /// Share of the pCPUs' time, without that in which they idle, in which tasks fetch the cache lines of
    /// messages and channels from other cores, if they do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub coherence_pct: Option<f64>,
    /// Scheduling decisions per second and pCPU.
    pub schedules_per_s_per_pcpu: Option<f64>,
    /// Context switches: times that a vCPU left its pCPU, per second and pCPU.
    pub context_switches_per_s_per_pcpu: Option<f64>,
    /// Those of these in which the vCPU could have gone on, per second and pCPU.
    pub preemptions_per_s_per_pcpu: Option<f64>,
    /// How long a vCPU runs from being put on a pCPU to leaving it, us.
    pub mean_run_us: Option<f64>,
    /// Pause-loop exits and directed yields, if a vCPU spun for too long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause_loop: Option<PauseLoopSummary>,
    /// Counts of NUMA balancing, if any is not 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa: Option<NumaStat>,
    /// Moves and losses of homes that VMs had, by the agent.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub home_moves: Vec<HomeMoveSummary>,
    /// Counters of the policy.
    pub policy: BTreeMap<&'static str, u64>,
}

/// Tasks of a VM wait for others that wait for ever.
#[derive(Clone, Debug, Serialize)]
pub struct DeadlockSummary {
    /// The VM, or set of processes.
    pub vm: String,
    /// The program of tasks that wait; of a set of processes, the name of a task.
    pub task: String,
    /// What they wait for: "lock", "token", or "room" in a channel.
    pub awaits: &'static str,
    /// The program or task that has the lock, that puts tokens into the channel, or that takes them from it.
    pub of: String,
}

/// The agent gave a VM another home, or took its home away.
#[derive(Clone, Debug, Serialize)]
pub struct HomeMoveSummary {
    /// When, s since the start of the run.
    pub at_s: f64,
    /// Name of the VM.
    pub vm: String,
    /// The destination and the reason: a sentence without its full stop.
    pub reason: String,
}

/// Pause-loop exits and directed yields.
#[derive(Clone, Debug, Serialize)]
pub struct PauseLoopSummary {
    /// Pause-loop exits per second and pCPU.
    pub exits_per_s_per_pcpu: Option<f64>,
    /// Directed yields per second, all pCPUs together.
    pub directed_yields_per_s: Option<f64>,
    /// Yields that failed because the other vCPU already ran, per second, all pCPUs together.
    pub failed_yields_per_s: Option<f64>,
    /// Directed yields in percent of directed and failed yields; `None` if there are neither.
    pub yield_success_pct: Option<f64>,
}

/// The VMs of a group.
#[derive(Clone, Debug, Serialize)]
pub struct GroupSummary {
    /// The group.
    pub group: String,
    /// Its VMs.
    pub vms: usize,
    /// The vCPUs of all of them.
    pub vcpus: usize,
    /// Share of the vCPUs' lives in the measured time in which they ran.
    pub run_pct: Option<f64>,
    /// Share of these in which they waited for a pCPU.
    pub wait_pct: Option<f64>,
    /// The longest uninterrupted wait of a vCPU for a pCPU, ms.
    pub longest_wait_ms: f64,
    /// Share of these in which they slept.
    pub sleep_pct: Option<f64>,
    /// Share of their run time close to their memory.
    pub local_pct: Option<f64>,
    /// Moves to another pCPU with the same last-level cache, per second.
    pub migrations_in_llc_per_s: Option<f64>,
    /// Moves to another last-level cache of the same node, per second.
    pub migrations_in_node_per_s: Option<f64>,
    /// Moves to another node, per second.
    pub migrations_across_nodes_per_s: Option<f64>,
    /// Rate of each counter, all VMs together, per second.
    pub counts_per_s: BTreeMap<String, f64>,
    /// Response times of all VMs together, if there were responses.
    pub response: Option<LatencyFigures>,
    /// Share of the vCPUs' lives in which they idled while tasks of their guest waited that could have run there; `None`
    /// without a guest kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guest_idle_beside_pct: Option<f64>,
    /// Who waited from the beginning to the end, if somebody did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub starved: Option<Starved>,
}

/// Tasks that waited for a CPU for as good as the whole measured time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Starved {
    /// vCPUs, or processes, that waited for a pCPU.
    pub tasks: usize,
    /// VMs in which a task waited for a vCPU.
    pub guests: usize,
}

impl Starved {
    fn of(vms: &[&VmMetrics], length_ns: u64) -> Option<Self> {
        // Nobody waits that long by chance.
        let is_long = |wait_ns: u64| length_ns > 0 && wait_ns >= length_ns / 10 * 9;
        let waits_in_guest = |vm: &&&VmMetrics| {
            let programs = vm.guest.iter().flat_map(|guest| &guest.programs);
            // In a guest whose vCPUs get nothing, nobody gets a vCPU.
            vm.vcpus.iter().any(|vcpu| vcpu.run_ns > 0)
                && programs.into_iter().any(|program| is_long(program.total.longest_wait_ns))
        };
        let tasks = vms.iter().flat_map(|vm| &vm.vcpus).filter(|task| is_long(task.longest_wait_ns)).count();
        let guests = vms.iter().filter(waits_in_guest).count();
        (tasks + guests > 0).then_some(Self { tasks, guests })
    }
}

impl RunSummary {
    /// Sums up a run of a scenario; `name` is the user's name for it.
    pub fn new(name: &str, scenario: &Scenario, seed: u64, run: &RunMetrics) -> Self {
        let of_host = |measure: Measure| measure.value(run, None);
        let groups = scenario.groups();
        Self {
            version: env!("CARGO_PKG_VERSION"),
            scenario: name.into(),
            scenario_hash: format!("{:016x}", scenario_hash(scenario)),
            seed,
            trace_hash: format!("{:016x}", run.trace_hash),
            machine: scenario.machine.name().into(),
            length_s: run.length_ns as f64 / 1e9,
            is_cut: false,
            events: run.events,
            host: HostSummary {
                scheduler: named(&scenario.policy),
                pcpus: run.host.pcpus,
                busy_pct: of_host(Measure::BusyShare),
                idle_pct: of_host(Measure::IdleShare),
                idle_beside_pct: of_host(Measure::IdleBesideShare),
                away_pct: of_host(Measure::AwayShare).filter(|&pct| pct > 0.0),
                overhead_pct: of_host(Measure::OverheadShare),
                spin_pct: of_host(Measure::SpinShare),
                coherence_pct: of_host(Measure::CoherenceShare).filter(|&pct| pct > 0.0),
                schedules_per_s_per_pcpu: of_host(Measure::SchedulesPerPcpu),
                context_switches_per_s_per_pcpu: of_host(Measure::ContextSwitchesPerPcpu),
                preemptions_per_s_per_pcpu: of_host(Measure::PreemptionsPerPcpu),
                mean_run_us: of_host(Measure::MeanRunTime),
                pause_loop: (run.host.pause_loop.exits > 0).then(|| PauseLoopSummary {
                    exits_per_s_per_pcpu: of_host(Measure::PauseExitsPerPcpu),
                    directed_yields_per_s: of_host(Measure::DirectedYields),
                    failed_yields_per_s: of_host(Measure::FailedYields),
                    yield_success_pct: of_host(Measure::YieldSuccessShare),
                }),
                numa: NumaStat::new(&run.host.numa),
                home_moves: run.host.home_moves.iter().map(|it| HomeMoveSummary::new(it, run)).collect(),
                policy: run.host.policy.clone(),
            },
            guest_schedulers: named_guests(scenario),
            groups: groups.into_iter().map(|group| GroupSummary::new(group, run)).collect(),
            deadlocks: run
                .host
                .deadlocks
                .iter()
                .map(|it| DeadlockSummary {
                    vm: scenario.workloads[it.vm.index()].name.clone(),
                    task: it.task.clone(),
                    awaits: match it.awaited {
                        Awaited::Lock => "lock",
                        Awaited::Token => "token",
                        Awaited::Room => "room",
                    },
                    of: it.of.clone(),
                })
                .collect(),
            stat: None,
        }
    }
}

impl RunSummary {
    /// What is wrong with a run although it came to its end: sentences without their full stops.
    pub fn warnings(&self) -> Vec<String> {
        // Where all waits are short, CPUs were on their way.
        let waits_long = self.groups.iter().any(|group| group.longest_wait_ms >= LONG_WAIT_MS);
        let wasted = self.host.idle_beside_pct.filter(|&pct| waits_long && pct >= IDLE_BESIDE_WARNED_PCT);
        let wasted = wasted.map(|pct| {
            format!(
                "the pCPUs idled for {pct:.1}% of their time while tasks waited that could have run there; a scheduler \
                 that keeps CPUs busy leaves less than {IDLE_BESIDE_WARNED_PCT}%"
            )
        });
        wasted
            .into_iter()
            .chain(self.idle_guest_warnings())
            .chain(self.starved_warnings())
            .chain(self.deadlock_warning())
            .collect()
    }

    /// The groups whose guests leave vCPUs idle beside work.
    fn idle_guest_warnings(&self) -> impl Iterator<Item = String> + '_ {
        self.groups.iter().filter_map(|group| {
            let pct = group.guest_idle_beside_pct.filter(|&pct| pct >= GUEST_IDLE_BESIDE_WARNED_PCT)?;
            Some(format!(
                "the vCPUs of {} idled for {pct:.1}% of their time while tasks of their guests waited that could have run \
                 there",
                group.group
            ))
        })
    }

    /// The groups in which somebody never got a CPU.
    fn starved_warnings(&self) -> impl Iterator<Item = String> + '_ {
        let starved = self.groups.iter().filter_map(|group| Some((group, group.starved?)));
        starved.flat_map(|(GroupSummary { group, vms, vcpus, .. }, Starved { tasks, guests })| {
            let host = format!("{tasks} of the {vcpus} tasks of {group} waited for a pCPU from the beginning to the end");
            let guest = format!("in {guests} of the {vms} VMs of {group}, a task waited for a vCPU from the beginning to the end");
            [(tasks, host), (guests, guest)].into_iter().filter(|(count, _)| *count > 0).map(|(_, text)| text)
        })
    }

    /// The first VM whose tasks wait for each other, and how many other ones there are.
    fn deadlock_warning(&self) -> Option<String> {
        let vm = &self.deadlocks.first()?.vm;
        let waits: Vec<String> = self
            .deadlocks
            .iter()
            .filter(|wait| wait.vm == *vm)
            .map(|DeadlockSummary { task, awaits, of, .. }| match *awaits {
                "lock" => format!("`{task}` for a lock that `{of}` has"),
                "token" => format!("`{task}` for a token from `{of}`"),
                _ => format!("`{task}` for `{of}` to take a token"),
            })
            .collect();
        let shown = waits.iter().take(WAITS_SHOWN).cloned().collect::<Vec<_>>().join(", ");
        let more = match waits.len().saturating_sub(WAITS_SHOWN) {
            0 => String::new(),
            count => format!(", and {count} more such waits"),
        };
        let mut vms: Vec<&str> = self.deadlocks.iter().map(|wait| wait.vm.as_str()).collect();
        vms.dedup();
        let others = match vms.len() - 1 {
            0 => String::new(),
            count => format!("; so it is in {count} more"),
        };
        Some(format!("tasks of {vm} wait for each other to the end: {shown}{more}{others}"))
    }
}

impl GroupSummary {
    fn new(group: &str, run: &RunMetrics) -> Self {
        let value = |measure: Measure| measure.value(run, Some(group));
        let vms: Vec<_> = run.vms.iter().filter(|vm| vm.group == group).collect();
        // Each once: a rate takes a look at all VMs.
        let counters: BTreeSet<&String> = vms.iter().flat_map(|vm| vm.counts.keys()).collect();
        let rate = |counter: &String| Some((counter.clone(), value(Measure::Rate(counter.clone()))?));
        let response = Times::sum(vms.iter().map(|vm| &vm.response));
        Self {
            group: group.into(),
            vms: vms.len(),
            vcpus: vms.iter().map(|vm| vm.vcpus.len()).sum(),
            run_pct: value(Measure::RunShare),
            wait_pct: value(Measure::WaitShare),
            longest_wait_ms: vms
                .iter()
                .flat_map(|vm| &vm.vcpus)
                .map(|vcpu| vcpu.longest_wait_ns)
                .max()
                .unwrap_or(0) as f64
                / 1e6,
            sleep_pct: value(Measure::SleepShare),
            local_pct: value(Measure::LocalShare),
            migrations_in_llc_per_s: value(Measure::MigrationsInLlc),
            migrations_in_node_per_s: value(Measure::MigrationsInNode),
            migrations_across_nodes_per_s: value(Measure::MigrationsAcrossNodes),
            counts_per_s: counters.into_iter().filter_map(rate).collect(),
            guest_idle_beside_pct: guest_idle_beside_pct(&vms),
            starved: Starved::of(&vms, run.length_ns),
            response: (response.count() > 0).then(|| LatencyFigures::from(&response)),
        }
    }
}

/// Of VMs with guest kernels. Where all waits in them are short, CPUs were on their way: that is 0.
fn guest_idle_beside_pct(vms: &[&VmMetrics]) -> Option<f64> {
    let guests: Vec<_> = vms.iter().filter_map(|vm| Some((vm, vm.guest.as_ref()?))).collect();
    let lives_ns: u64 = guests.iter().map(|(vm, guest)| vm.lived_ns * guest.cpus.len() as u64).sum();
    let wasted_ns: u64 = guests.iter().map(|(_, guest)| guest.idle_beside_ns).sum();
    let longest_ns = guests.iter().map(|(_, guest)| guest.all_tasks().longest_wait_ns).max()?;
    let is_long = longest_ns as f64 >= LONG_WAIT_MS * 1e6;
    (lives_ns > 0).then(|| if is_long { 100.0 * wasted_ns as f64 / lives_ns as f64 } else { 0.0 })
}

impl HomeMoveSummary {
    fn new(home_move: &HomeMove, run: &RunMetrics) -> Self {
        Self {
            at_s: home_move.at_ns as f64 / 1e9,
            vm: run.vms[home_move.vm.index()].name.clone(),
            reason: home_move.reason.to_string(),
        }
    }
}

/// Hash over everything that a run depends on except the seed and the version of the program.
///
/// It covers the debug output of the scenario, which holds every field, with floating-point numbers to the
/// last bit.
pub fn scenario_hash(scenario: &Scenario) -> u64 {
    let mut hash = Fnv1a::default();
    write!(hash, "{scenario:?}").expect("hashing cannot fail");
    hash.0
}

/// Hash over texts, in hexadecimal.
pub(crate) fn hash_of_texts<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    let mut hash = Fnv1a::default();
    texts.for_each(|text| write!(hash, "{text} ").expect("hashing cannot fail"));
    format!("{:016x}", hash.0)
}

/// Hash over bytes, in hexadecimal.
pub(crate) fn hash_of_bytes(bytes: &[u8]) -> String {
    let mut hash = Fnv1a::default();
    hash.add(bytes);
    format!("{:016x}", hash.0)
}

/// The FNV-1a hash (G. Fowler, L. C. Noll, K.-P. Vo, 1991), 64 bits: short, and the same everywhere.
struct Fnv1a(u64);

impl Default for Fnv1a {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv1a {
    fn add(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

impl Write for Fnv1a {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.add(text.as_bytes());
        Ok(())
    }
}

/// A table of at most 100 columns.
impl fmt::Display for RunSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = &self.host;
        writeln!(f, "run       {}, seed {}, tandem {}", self.scenario, self.seed, self.version)?;
        writeln!(f, "          scenario {}, trace {}", self.scenario_hash, self.trace_hash)?;
        writeln!(
            f,
            "machine   {}, {} pCPUs; {} s measured{}, {} events",
            self.machine,
            host.pcpus,
            self.length_s,
            if self.is_cut { ", CUT SHORT" } else { "" },
            self.events
        )?;
        write!(f, "scheduler {} in the host", host.scheduler)?;
        match self.guest_schedulers.is_empty() {
            true => writeln!(f)?,
            false => writeln!(f, ", {} in guests", self.guest_schedulers.join(" and "))?,
        }
        writeln!(
            f,
            "host      {} % busy, {} % idle, {} % overhead ({} % waits for locks); mean run {} us",
            number(host.busy_pct),
            number(host.idle_pct),
            number(host.overhead_pct),
            number(host.spin_pct),
            number(host.mean_run_us),
        )?;
        writeln!(
            f,
            "          per second and pCPU: {} schedules, {} context switches, {} preemptions",
            number(host.schedules_per_s_per_pcpu),
            number(host.context_switches_per_s_per_pcpu),
            number(host.preemptions_per_s_per_pcpu),
        )?;
        if let Some(pct) = host.idle_beside_pct.filter(|&pct| pct >= IDLE_BESIDE_SHOWN_PCT) {
            let pct = number(Some(pct));
            writeln!(f, "wasted    {pct} % of the pCPUs' time idles while tasks wait that could run there")?;
        }
        if host.away_pct.is_some() {
            let pct = number(host.away_pct);
            writeln!(f, "away      {pct} % of the pCPUs' time is not the scheduler's")?;
        }
        if host.coherence_pct.is_some() {
            let pct = number(host.coherence_pct);
            writeln!(f, "messages  {pct} % of the time that is not idle fetches cache lines of channels")?;
        }
        if let Some(pause_loop) = &host.pause_loop {
            write!(f, "{pause_loop}")?;
        }
        if let Some(numa) = &host.numa {
            writeln!(f, "numa      {numa}")?;
        }
        for (position, HomeMoveSummary { at_s, vm, reason }) in host.home_moves.iter().enumerate() {
            let title = if position == 0 { "homes" } else { "" };
            let sentence = format!("{at_s:.1} s: {vm} to {reason}");
            let words: Vec<_> = sentence.split(' ').map(str::to_owned).collect();
            for (at, line) in wrapped(&words, " ", COLUMNS - 12).iter().enumerate() {
                let (title, indent) = if at == 0 { (title, "") } else { ("", "  ") };
                writeln!(f, "{title:10}{indent}{line}")?;
            }
        }
        let counters: Vec<_> = host.policy.iter().map(|(name, count)| format!("{name} {count}")).collect();
        for (position, line) in wrapped(&counters, ", ", COLUMNS - 10).iter().enumerate() {
            writeln!(f, "{:10}{line}", if position == 0 { "policy" } else { "" })?;
        }

        writeln!(f, "\n{:>COLUMNS$}", "moves to another pCPU per second:")?;
        writeln!(
            f,
            "{:16} {:>5} {:>6} {:>7} {:>7} {:>7} {:>7}   {:>10} {:>10} {:>10}",
            "group", "count", "tasks", "run %", "wait %", "sleep %", "local %", "in LLC", "in node", "across"
        )?;
        for group in &self.groups {
            writeln!(
                f,
                "{:16} {:>5} {:>6} {:>7} {:>7} {:>7} {:>7}   {:>10} {:>10} {:>10}",
                group.group,
                group.vms,
                group.vcpus,
                number(group.run_pct),
                number(group.wait_pct),
                number(group.sleep_pct),
                number(group.local_pct),
                number(group.migrations_in_llc_per_s),
                number(group.migrations_in_node_per_s),
                number(group.migrations_across_nodes_per_s),
            )?;
        }
        writeln!(f, "\n{:16} {:>14}", "group", "longest wait ms")?;
        for group in &self.groups {
            writeln!(f, "{:16} {:>15}", group.group, number(Some(group.longest_wait_ms)))?;
        }
        if self.groups.iter().any(|group| !group.counts_per_s.is_empty()) {
            writeln!(f, "\n{:16} {:24} {:>14}", "group", "counter", "count/s")?;
        }
        for group in &self.groups {
            for (counter, &rate) in &group.counts_per_s {
                writeln!(f, "{:16} {counter:24} {:>14}", group.group, number(Some(rate)))?;
            }
        }
        if self.groups.iter().any(|group| group.response.is_some()) {
            writeln!(f, "\n{:16} {:>10} {LatencyColumns:#}", "group", "responses")?;
        }
        for group in &self.groups {
            if let Some(response) = &group.response {
                writeln!(f, "{:16} {:>10} {response:#}", group.group, response.count)?;
            }
        }
        match &self.stat {
            None => Ok(()),
            Some(stat) => write!(f, "\n{stat}"),
        }
    }
}

/// One or two lines.
impl fmt::Display for PauseLoopSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "spinners  per second and pCPU: {} pause-loop exits", number(self.exits_per_s_per_pcpu))?;
        if self.yield_success_pct.is_some() {
            writeln!(
                f,
                "          per second: {} directed yields, {} failed ({} % successful)",
                number(self.directed_yields_per_s),
                number(self.failed_yields_per_s),
                number(self.yield_success_pct),
            )?;
        }
        Ok(())
    }
}

/// A number with as many decimals as matter; a dash for none.
pub(crate) fn number(value: Option<f64>) -> String {
    match value {
        None => "-".into(),
        Some(value) if value.abs() >= 1_000.0 => format!("{value:.0}"),
        Some(value) => format!("{value:.1}"),
    }
}

/// The items with the separator between them, in lines of at most that width.
fn wrapped(items: &[String], separator: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for item in items {
        match lines.last_mut() {
            Some(line) if line.len() + separator.len() + item.len() < width => {
                write!(line, "{separator}{item}").expect("a string takes all")
            }
            Some(line) => {
                line.push_str(separator.trim_end());
                lines.push(item.clone());
            }
            None => lines.push(item.clone()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_fnv_1a() {
        for (text, expected) in
            [("", 0xcbf2_9ce4_8422_2325), ("a", 0xaf63_dc4c_8601_ec8c), ("foobar", 0x8594_4171_f739_67e8)]
        {
            let mut hash = Fnv1a::default();
            hash.write_str(text).unwrap();
            assert_eq!(hash.0, expected, "{text}");
        }
    }

    #[test]
    fn vcpus_that_spin_have_a_line_of_their_own() {
        let xen = PauseLoopSummary {
            exits_per_s_per_pcpu: Some(12.34),
            directed_yields_per_s: Some(0.0),
            failed_yields_per_s: Some(0.0),
            yield_success_pct: None,
        };
        assert_eq!(xen.to_string(), "spinners  per second and pCPU: 12.3 pause-loop exits\n");
        let kvm = PauseLoopSummary {
            exits_per_s_per_pcpu: Some(123_456.0),
            directed_yields_per_s: Some(1_234.5),
            failed_yields_per_s: Some(411.5),
            yield_success_pct: Some(75.0),
        };
        assert_eq!(
            kvm.to_string(),
            "spinners  per second and pCPU: 123456 pause-loop exits\n          \
             per second: 1234 directed yields, 411.5 failed (75.0 % successful)\n"
        );
    }

    #[test]
    fn long_lists_wrap() {
        let items = ["one 1", "two 2", "three 3"].map(String::from);
        assert_eq!(wrapped(&items, ", ", 15), ["one 1, two 2,", "three 3"]);
        assert_eq!(wrapped(&[], ", ", 15), [""; 0]);
    }
}
