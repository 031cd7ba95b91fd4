//! Whether a scenario fits together.

mod guest;
mod program;
mod recorded;

use super::{
    Affinity, Arrivals, Guest, MemoryPolicy, PROCESSES_MAX, Pages, PolicySettings, Process, Scenario, Source,
    TIME_MAX_NS, Vm, Workload, WorkloadKind,
};
use crate::policy::credit::{CreditSettings, Era};
use crate::policy::credit2::Credit2Settings;
use crate::policy::halt_poll::HaltPoll;
use crate::policy::linux::{LinuxEra, LinuxSettings};
use crate::policy::pause_loop::PauseLoop;
use crate::program::Amount;
use program::{Limits, check_program};
use std::collections::HashSet;

/// What is wrong with a scenario, in one sentence.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ScenarioError {
    /// Something about the scenario as a whole.
    #[error("{0}")]
    Whole(String),
    /// Something about one VM.
    #[error("VM '{vm}': {problem}")]
    Vm {
        /// Name of the VM.
        vm: String,
        /// What is wrong with it.
        problem: String,
    },
}

/// How far memory shares may sum up to something else than 1.
const SHARES_TOLERANCE: f64 = 1e-6;

impl Scenario {
    /// Checks that the scenario can be run.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), ScenarioError> {
        self.check_whole().map_err(ScenarioError::Whole)?;
        let mut names = HashSet::new();
        for workload in &self.workloads {
            self.check_workload(workload, &mut names)
                .map_err(|problem| ScenarioError::Vm { vm: workload.name.clone(), problem })?;
        }
        recorded::check(self).map_err(ScenarioError::Whole)
    }

    fn check_whole(&self) -> Result<(), String> {
        if self.length_ns == 0 {
            return Err("the length is 0; measure for some time".into());
        }
        if self.warmup_ns.saturating_add(self.length_ns) > TIME_MAX_NS {
            return Err("warm-up and length come to more than a day".into());
        }
        if self.workloads.is_empty() {
            return Err("there is no VM; give it at least one".into());
        }
        if self.costs.idle.as_ref().is_some_and(|idle| idle.longest_ns() > TIME_MAX_NS) {
            return Err("waking an idle CPU takes more than a day".into());
        }
        if self.processes() > PROCESSES_MAX {
            return Err(format!("host and guests have more than {PROCESSES_MAX} processes"));
        }
        if let Some(pause_loop) = &self.pause_loop {
            check_pause_loop(pause_loop, &self.policy)?;
        }
        check_halt_poll(self.halt_poll_ns.unwrap_or(0), &self.policy)?;
        self.check_cgroups()?;
        self.check_events()?;
        match &self.policy {
            PolicySettings::Credit(settings) => check_credit(settings),
            PolicySettings::Credit2(settings) => check_credit2(settings),
            PolicySettings::Linux(settings) => check_linux(settings),
            PolicySettings::SchedExt(_) => Ok(()),
        }
    }

    /// How many processes run from the start, in the host and in guests.
    fn processes(&self) -> u64 {
        let of_one = |workload: &Workload| match &workload.kind {
            WorkloadKind::Processes(tasks) | WorkloadKind::Threads(tasks) => tasks.len() as u64,
            WorkloadKind::KernelThreads(_) => 0,
            WorkloadKind::Vm(vm) => vm.guest().map_or(0, Guest::started),
        };
        self.workloads.iter().map(of_one).fold(0, u64::saturating_add)
    }

    fn check_workload<'a>(&self, workload: &'a Workload, names: &mut HashSet<&'a str>) -> Result<(), String> {
        if !names.insert(&workload.name) {
            return Err("another VM has the same name".into());
        }
        let pcpus = self.machine.cpu_count();
        let tasks = workload.task_count();
        if tasks == 0 {
            return Err("it has no vCPU; give it 1 or more".into());
        }
        if workload.vm().is_some() && tasks > pcpus {
            return Err(format!("it has {tasks} vCPUs, but machine '{}' {pcpus} pCPUs", self.machine.name()));
        }
        if !Workload::WEIGHTS.contains(&workload.weight) {
            return Err(format!("its weight is {}; 1 to 65535 are allowed", workload.weight));
        }
        if let Some(vcpu) = workload.programs().iter().find(|task| !Process::NICE.contains(&task.nice)) {
            return Err(format!("the nice value is {}; -20 to 19 are allowed", vcpu.nice));
        }
        if let Some(cpu) =
            workload.programs().iter().filter_map(|task| task.past_cpu).find(|cpu| cpu.index() >= pcpus)
        {
            return Err(format!("a task of it ran on pCPU {} before, but there are {pcpus}", cpu.index()));
        }
        self.check_memory(workload)?;
        self.check_affinity(workload)?;
        workload.vm().map_or(Ok(()), check_life)?;
        for source in &workload.sources {
            check_source(source, workload.channels)?;
        }
        let limits = Limits::new(workload);
        workload.programs().iter().try_for_each(|task| check_program(&task.program, &limits))?;
        workload.guest().map_or(Ok(()), |guest| guest::check(guest, tasks, &limits))
    }

    fn check_memory(&self, workload: &Workload) -> Result<(), String> {
        if workload.memory_bytes == 0 {
            return Err("it has no memory".into());
        }
        let nodes = self.machine.node_count();
        if workload.memory_shares.len() != nodes {
            let given = workload.memory_shares.len();
            return Err(format!("its memory has a share on {given} nodes, but the machine has {nodes}"));
        }
        let sum: f64 = workload.memory_shares.iter().sum();
        if workload.memory_shares.iter().any(|share| !(0.0..=1.0).contains(share))
            || (sum - 1.0).abs() > SHARES_TOLERANCE
        {
            return Err(format!("its memory shares sum to {sum}; each is 0 to 1, and they sum to 1"));
        }
        if let Pages::Transparent(pct @ 101..) = workload.pages {
            return Err(format!("{pct}% of its memory are in huge pages; 0 to 100 are allowed"));
        }
        let MemoryPolicy::Cpuset(allowed) = &workload.memory_policy else { return Ok(()) };
        if allowed.is_empty() || allowed.iter().any(|node| node.index() >= nodes) {
            return Err("its cpuset has no nodes, or some that the machine lacks".into());
        }
        if workload.first_touch {
            return Err("its memory lies both where it is first touched and in its cpuset; choose one".into());
        }
        let lies_on = |&node: &usize| workload.memory_shares[node] > 0.0;
        match (0..nodes).filter(lies_on).all(|node| allowed.contains(&node.into())) {
            true => Ok(()),
            false => Err("its memory lies on nodes outside its cpuset".into()),
        }
    }

    fn check_affinity(&self, workload: &Workload) -> Result<(), String> {
        for (at, affinity) in workload.affinities().enumerate() {
            self.check_masks(affinity).map_err(|problem| format!("vCPU {at} {problem}"))?;
        }
        if !workload.affinity_changes.is_sorted_by_key(|change| change.at_ns) {
            return Err("its changes of affinity are not in the order of time".into());
        }
        for change in &workload.affinity_changes {
            let problem = change.tasks.problem(workload.task_count());
            let checked = problem.map_or_else(|| self.check_masks(&change.affinity), Err);
            checked.map_err(|problem| format!("from {} ns on it {problem}", change.at_ns))?;
        }
        match &self.policy {
            PolicySettings::Credit(settings) if settings.era < Era::Xen4_5 && prefers_by_vcpu(workload) => {
                Err("its vCPUs have different soft affinities, which came with Xen 4.5".into())
            }
            _ => Ok(()),
        }
    }

    /// Checks a hard and a soft affinity.
    fn check_masks(&self, Affinity { hard, soft }: &Affinity) -> Result<(), String> {
        if hard.is_empty() || !hard.is_subset(self.machine.all_cpus()) {
            return Err("may run on no CPU, or on CPUs that the machine lacks".into());
        }
        let Some(soft) = soft else { return Ok(()) };
        if soft.is_empty() || !soft.is_subset(hard) {
            return Err("prefers CPUs outside its hard affinity, or none".into());
        }
        if let PolicySettings::Credit(settings) = &self.policy
            && settings.era < Era::Xen4_3
        {
            return Err("has a soft affinity, which came with Xen 4.3".into());
        }
        Ok(())
    }
}

/// Whether its tasks ever have different soft affinities.
fn prefers_by_vcpu(workload: &Workload) -> bool {
    let mut soft: Vec<_> = workload.affinities().map(|affinity| affinity.soft.as_ref()).collect();
    let differ = |soft: &[Option<_>]| soft.iter().any(|one| *one != soft[0]);
    differ(&soft)
        || workload.affinity_changes.iter().any(|change| {
            let changed = soft.iter_mut().enumerate().filter(|(task, _)| change.tasks.contains(*task));
            changed.for_each(|(_, soft)| *soft = change.affinity.soft.as_ref());
            differ(&soft)
        })
}

fn check_credit(settings: &CreditSettings) -> Result<(), String> {
    if !CreditSettings::TIMESLICES_NS.contains(&settings.timeslice_ns) {
        return Err("the timeslice is outside 1 ms to 1000 ms".into());
    }
    let ratelimit_ns = settings.ratelimit_ns;
    if ratelimit_ns != 0 && !CreditSettings::RATELIMITS_NS.contains(&ratelimit_ns) {
        return Err("the rate limit is neither 0 nor between 100 us and 500 ms".into());
    }
    if ratelimit_ns > settings.timeslice_ns {
        return Err("the rate limit is longer than the timeslice".into());
    }
    match settings.rate_control {
        Some(control) if control.interval_ns == 0 || control.rate_high == 0 => {
            Err("the rate control needs an interval and a number of decisions above 0".into())
        }
        _ => Ok(()),
    }
}

fn check_credit2(settings: &Credit2Settings) -> Result<(), String> {
    let ratelimit_ns = settings.ratelimit_ns;
    if ratelimit_ns != 0 && !Credit2Settings::RATELIMITS_NS.contains(&ratelimit_ns) {
        return Err("the rate limit is neither 0 nor between 100 us and 500 ms".into());
    }
    if !Credit2Settings::CAP_PERIODS_NS.contains(&settings.cap_period_ns) {
        return Err("the period of caps is outside 1 ms to 1000 ms".into());
    }
    if settings.migrate_resist_ns > Credit2Settings::MIGRATE_RESIST_MAX_NS {
        return Err("the resistance against migration is longer than 10 ms".into());
    }
    match settings.queue_cpus_max {
        0 => Err("a run queue needs at least 1 CPU".into()),
        _ => Ok(()),
    }
}

fn check_linux(settings: &LinuxSettings) -> Result<(), String> {
    if settings.numa_balancing && settings.era < LinuxEra::V4_2 {
        return Err("NUMA balancing is modelled for Linux 4.2 and later".into());
    }
    if !LinuxSettings::TICKS_HZ.contains(&settings.tick_hz) {
        return Err(format!(
            "Linux has no tick of {} Hz; 100, 250, 300 and 1000 Hz are allowed",
            settings.tick_hz
        ));
    }
    match settings.soft_affinity.problem(settings.era) {
        Some(problem) => Err(problem.into()),
        None => Ok(()),
    }
}

fn check_pause_loop(pause_loop: &PauseLoop, policy: &PolicySettings) -> Result<(), String> {
    if pause_loop.gap_cycles == 0 || pause_loop.window_cycles < pause_loop.gap_cycles {
        return Err("the gap of pause loops is 0, or longer than their window".into());
    }
    if pause_loop.window_growth == 0 || pause_loop.window_max_cycles < pause_loop.window_cycles {
        return Err("the window of pause loops would shrink when it should grow".into());
    }
    let is_xen = matches!(policy, PolicySettings::Credit(_) | PolicySettings::Credit2(_));
    if pause_loop.directed_yield.is_some() && is_xen {
        return Err("Xen has no directed yield".into());
    }
    Ok(())
}

fn check_halt_poll(max_ns: u64, policy: &PolicySettings) -> Result<(), String> {
    if max_ns > HaltPoll::MAX_NS {
        return Err("the greatest window of halt polling does not fit into 32 bits".into());
    }
    match policy {
        PolicySettings::Linux(settings) if settings.era < LinuxEra::V4_2 && max_ns > 0 => {
            Err("Linux 3.6 has no halt polling".into())
        }
        PolicySettings::Credit(_) | PolicySettings::Credit2(_) if max_ns > 0 => {
            Err("Xen has no halt polling".into())
        }
        _ => Ok(()),
    }
}

fn check_life(vm: &Vm) -> Result<(), String> {
    if vm.life().is_some_and(|life| life.is_nothing()) {
        return Err("its life takes no time".into());
    }
    [vm.start, vm.life()].into_iter().flatten().try_for_each(check_amount)
}

fn check_source(source: &Source, channels: usize) -> Result<(), String> {
    if source.channel >= channels {
        return Err(format!("a source uses channel {}, but there are {channels}", source.channel));
    }
    match source.arrivals {
        Arrivals::Open { interval } => {
            if interval.is_nothing() {
                return Err("a source's interrupts come without time in between".into());
            }
            check_amount(interval)
        }
        Arrivals::Closed { clients: 0, .. } => Err("a source has no clients; give it 1 or more".into()),
        Arrivals::Closed { think, .. } => check_amount(think),
    }
}

fn check_amount(amount: Amount) -> Result<(), String> {
    match amount {
        Amount::Uniform(low_ns, high_ns) if low_ns > high_ns => {
            Err(format!("a uniform amount goes from {low_ns} ns down to {high_ns} ns"))
        }
        Amount::Fixed(ns) | Amount::Uniform(_, ns) | Amount::Exponential(ns) if ns > TIME_MAX_NS => {
            Err("an amount is longer than a day".into())
        }
        _ => Ok(()),
    }
}
