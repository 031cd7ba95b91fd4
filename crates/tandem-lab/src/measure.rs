//! The measures that an experiment can name, and their values in a run.

use schemars::JsonSchema;
use serde::Deserialize;
use tandem_sim::metrics::{GuestMetrics, PauseLoopMetrics, RunMetrics, TaskMetrics, VmMetrics};
use tandem_sim::times::Times;

/// A measure of a run. Those of VMs are over all VMs of the metric's group, or all VMs.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Rate of a counter of the VMs, all VMs together, per second.
    Rate(String),
    /// Rate of a counter of the VMs in the average VM, per second of its life.
    RatePerVm(String),
    /// Rate of a counter by the CPU time of the tasks of a program in guests: per second that one of them
    /// runs, summed over them, as a benchmark reports that measures by its own CPU time.
    RateByCpuTime {
        /// The counter.
        counter: String,
        /// The program.
        program: String,
    },
    /// Fairness among VMs, percent: Jain's index over the rates of a counter, each in the time in which its
    /// VM existed. 100 if all rates are equal; 100 / n if only one of n VMs makes progress.
    Fairness(String),
    /// Rate of a counter in the slowest VM, in percent of the mean over VMs, each in the time in which it
    /// existed.
    SlowestShare(String),
    /// Time that it takes to add one to a counter of the VMs, all VMs together, s.
    TimePer(String),
    /// Times that tasks of guest kernels were put on another vCPU for each one added to a counter, all VMs
    /// together. As in Linux, children that start on another CPU than their parents count.
    TaskMigrationsPer(String),
    /// Times that tasks of guest kernels left their vCPU for each one added to a counter, all VMs together.
    TaskSwitchesPer(String),
    /// Response times of all VMs together, us.
    Response(ResponseStatistic),
    /// Delays of wake-ups of all VMs together, us: from a wake-up of a vCPU, or of a process of the host, to the
    /// moment that it runs.
    Wakeup(ResponseStatistic),
    /// Time until the scenario's `stop_at_count` was reached, s.
    TimeToCount,
    /// Scheduling decisions per second and pCPU.
    SchedulesPerPcpu,
    /// Context switches: times that a vCPU left its pCPU, per second and pCPU.
    ContextSwitchesPerPcpu,
    /// How long a vCPU runs from being put on a pCPU to leaving it, us.
    MeanRunTime,
    /// Share of the pCPUs' time in which VMs run, percent.
    BusyShare,
    /// Share of the pCPUs' time in which they idle, percent.
    IdleShare,
    /// Share of the pCPUs' time in which they idle while tasks wait that could run there, percent.
    IdleBesideShare,
    /// Share of the pCPUs' time in which they are not the scheduler's: tasks of higher classes have them, or
    /// they are offline, percent.
    AwayShare,
    /// Share of the pCPUs' time in the host's own code, percent.
    OverheadShare,
    /// Share of the pCPUs' time in which the host waits for locks of run queues, percent; part of its own
    /// code.
    SpinShare,
    /// Share of the pCPUs' time, without that in which they idle, in which the VMs' tasks fetch the cache
    /// lines of messages and channels from other cores, percent.
    CoherenceShare,
    /// Share of the VMs' run time that is close to their memory, percent.
    LocalShare,
    /// Share of the lives of the VMs' vCPUs in which they run, percent.
    RunShare,
    /// Share of the lives of the VMs' vCPUs in which they wait for a pCPU, percent.
    WaitShare,
    /// Share of the lives of the VMs' vCPUs in which they sleep, percent.
    SleepShare,
    /// Times that a vCPU lost its pCPU while it could have gone on, per second and pCPU.
    PreemptionsPerPcpu,
    /// Pause-loop exits: times that a vCPU left its guest because it had spun for too long, per second and
    /// pCPU.
    PauseExitsPerPcpu,
    /// Times that the host ran another vCPU of the VM instead of one that spun, per second, all pCPUs
    /// together.
    DirectedYields,
    /// Directed yields that failed because the other vCPU already ran, per second, all pCPUs together.
    FailedYields,
    /// Directed yields for each one added to a counter, all VMs together.
    DirectedYieldsPer(String),
    /// Failed directed yields for each one added to a counter, all VMs together.
    FailedYieldsPer(String),
    /// Directed yields in percent of directed and failed yields.
    YieldSuccessShare,
    /// Hinting faults of the host's NUMA balancing, as `/proc/vmstat` counts them.
    NumaHintFaults,
    /// Hinting faults on pages of the node of the CPU.
    NumaHintFaultsLocal,
    /// Pages that hinting faults moved to another node.
    NumaPagesMigrated,
    /// Share of the hinting faults on pages of the node of the CPU, percent.
    LocalFaultShare,
    /// Share of the hinting faults that moved a page, percent.
    MigratedFaultShare,
    /// Moves of vCPUs to another pCPU with the same last-level cache, per second, all VMs together.
    MigrationsInLlc,
    /// Moves of vCPUs to another last-level cache of the same node, per second, all VMs together.
    MigrationsInNode,
    /// Moves of vCPUs to another node, per second, all VMs together.
    MigrationsAcrossNodes,
    /// Times that tasks left their vCPU in the guests, per second of task clock: of the time that tasks had
    /// vCPUs, all of them together, as `perf stat` has it.
    TaskSwitchRate,
    /// Moves of tasks to another vCPU in the guests, per second of task clock.
    TaskMigrationRate,
    /// Share of the guests' time in which a vCPU had something to do but no pCPU, percent.
    StealShare,
    /// Times that the agent gave another home to a VM that had one, per second.
    HomeMoves,
    /// Rate of a counter of the host's policy, per second, all pCPUs together.
    PolicyCounter(String),
}

/// The statistic of times.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ResponseStatistic {
    /// The mean.
    Mean,
    /// The median.
    P50,
    /// The time that 95% stay below.
    P95,
    /// The time that 99% stay below.
    P99,
    /// The time that 99.9% stay below.
    #[serde(rename = "p99.9")]
    P999,
    /// The longest.
    Max,
}

impl ResponseStatistic {
    /// Its value, us; `None` of no times.
    fn of(self, times: &Times) -> Option<f64> {
        let value_ns = match self {
            Self::Mean => times.mean_ns(),
            Self::P50 => times.quantile_ns(0.50) as f64,
            Self::P95 => times.quantile_ns(0.95) as f64,
            Self::P99 => times.quantile_ns(0.99) as f64,
            Self::P999 => times.quantile_ns(0.999) as f64,
            Self::Max => times.max_ns() as f64,
        };
        (times.count() > 0).then_some(value_ns / 1e3)
    }
}

impl Measure {
    /// Whether it measures guest kernels.
    pub fn is_of_guests(&self) -> bool {
        matches!(
            self,
            Self::RateByCpuTime { .. }
                | Self::TaskSwitchesPer(_)
                | Self::TaskMigrationsPer(_)
                | Self::TaskSwitchRate
                | Self::TaskMigrationRate
                | Self::StealShare
        )
    }

    /// The counter of the VMs that it needs, if it needs one.
    pub fn counter(&self) -> Option<&str> {
        match self {
            Self::Rate(counter)
            | Self::RatePerVm(counter)
            | Self::Fairness(counter)
            | Self::SlowestShare(counter)
            | Self::RateByCpuTime { counter, .. }
            | Self::TimePer(counter)
            | Self::TaskMigrationsPer(counter)
            | Self::TaskSwitchesPer(counter)
            | Self::DirectedYieldsPer(counter)
            | Self::FailedYieldsPer(counter) => Some(counter),
            _ => None,
        }
    }

    /// The value in a run, over the VMs of that group or all VMs; `None` if the run has nothing to measure.
    pub fn value(&self, run: &RunMetrics, group: Option<&str>) -> Option<f64> {
        const US: f64 = 1e3;
        let in_group = |vm: &&VmMetrics| group.is_none_or(|group| vm.group == group);
        let vms: Vec<_> = run.vms.iter().filter(in_group).collect();
        let seconds = run.length_ns as f64 / 1e9;
        let host = &run.host;
        let pcpus = host.pcpus as f64;
        let share = |part_ns: u64| {
            ratio(
                100.0 * part_ns as f64,
                (host.busy_ns + host.idle_ns + host.away_ns + host.overhead_ns) as f64,
            )
        };
        let sum = |what: fn(&TaskMetrics) -> u64| -> f64 {
            vms.iter().flat_map(|vm| &vm.vcpus).map(what).sum::<u64>() as f64
        };
        let time_share = |part: fn(&TaskMetrics) -> u64| {
            ratio(100.0 * sum(part), sum(|vcpu| vcpu.run_ns + vcpu.wait_ns + vcpu.sleep_ns))
        };
        let count = |counter: &str| -> Option<f64> {
            vms.iter().filter_map(|vm| vm.counts.get(counter)).map(|&count| count as f64).reduce(|a, b| a + b)
        };
        let guests: Vec<_> = vms.iter().filter_map(|vm| vm.guest.as_ref()).collect();
        let guest_sum = |what: fn(&GuestMetrics) -> u64| {
            (!guests.is_empty()).then(|| guests.iter().map(|guest| what(guest)).sum::<u64>() as f64)
        };
        let task_clock_s = || Some(guest_sum(|guest| guest.all_cpus().busy_ns)? / 1e9);
        let switches = || guest_sum(|guest| guest.all_tasks().switches());
        let migrations = || guest_sum(|guest| guest.all_tasks().migrations());
        let numa = &host.numa;
        let of_faults = |some: u64| ratio(100.0 * some as f64, numa.numa_hint_faults as f64);
        match self {
            Self::Rate(counter) => ratio(count(counter)?, seconds),
            Self::RatePerVm(counter) => {
                let counting = vms.iter().filter(|vm| vm.counts.contains_key(counter));
                let lived_ns: u64 = counting.map(|vm| vm.lived_ns).sum();
                ratio(count(counter)?, lived_ns as f64 / 1e9)
            }
            Self::Fairness(counter) => {
                let rates = rates(&vms, counter);
                let sum: f64 = rates.iter().sum();
                let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
                ratio(100.0 * sum * sum, rates.len() as f64 * squares)
            }
            Self::SlowestShare(counter) => {
                let rates = rates(&vms, counter);
                let sum: f64 = rates.iter().sum();
                let slowest = rates.iter().copied().reduce(f64::min)?;
                ratio(100.0 * slowest * rates.len() as f64, sum)
            }
            Self::RateByCpuTime { counter, program } => {
                let programs = || guests.iter().flat_map(|guest| &guest.programs);
                let of_program = || programs().filter(|known| known.name == *program);
                let tasks: u64 = of_program().map(|program| program.tasks).sum();
                let run_ns: u64 = of_program().map(|program| program.total.run_ns).sum();
                ratio(count(counter)? * tasks as f64, run_ns as f64 / 1e9)
            }
            Self::TimePer(counter) => ratio(seconds, count(counter)?),
            Self::TaskMigrationsPer(counter) => ratio(migrations()?, count(counter)?),
            Self::TaskSwitchesPer(counter) => ratio(switches()?, count(counter)?),
            Self::Response(statistic) => statistic.of(&Times::sum(vms.iter().map(|vm| &vm.response))),
            Self::Wakeup(statistic) => statistic.of(&Times::sum(vms.iter().map(|vm| &vm.vcpu_delay))),
            Self::TimeToCount => Some(seconds),
            Self::SchedulesPerPcpu => ratio(host.schedules as f64, seconds * pcpus),
            Self::ContextSwitchesPerPcpu => ratio(sum(TaskMetrics::switches), seconds * pcpus),
            Self::MeanRunTime => ratio(sum(|vcpu| vcpu.run_ns) / US, sum(|vcpu| vcpu.dispatches)),
            Self::BusyShare => share(host.busy_ns),
            Self::IdleShare => share(host.idle_ns),
            Self::IdleBesideShare => share(host.idle_beside_ns),
            Self::AwayShare => share(host.away_ns),
            Self::OverheadShare => share(host.overhead_ns),
            Self::SpinShare => share(host.spin_ns),
            Self::CoherenceShare => {
                let coherence_ns: u64 = vms.iter().map(|vm| vm.coherence_ns).sum();
                ratio(100.0 * coherence_ns as f64, (host.busy_ns + host.overhead_ns) as f64)
            }
            Self::LocalShare => ratio(100.0 * sum(|vcpu| vcpu.local_run_ns), sum(|vcpu| vcpu.run_ns)),
            Self::RunShare => time_share(|vcpu| vcpu.run_ns),
            Self::WaitShare => time_share(|vcpu| vcpu.wait_ns),
            Self::SleepShare => time_share(|vcpu| vcpu.sleep_ns),
            Self::PreemptionsPerPcpu => ratio(sum(|vcpu| vcpu.preemptions), seconds * pcpus),
            Self::PauseExitsPerPcpu => ratio(host.pause_loop.exits as f64, seconds * pcpus),
            Self::DirectedYields => ratio(host.pause_loop.yields as f64, seconds),
            Self::FailedYields => ratio(host.pause_loop.failed_running as f64, seconds),
            Self::DirectedYieldsPer(counter) => ratio(host.pause_loop.yields as f64, count(counter)?),
            Self::FailedYieldsPer(counter) => ratio(host.pause_loop.failed_running as f64, count(counter)?),
            Self::YieldSuccessShare => {
                let PauseLoopMetrics { yields, failed_running, .. } = host.pause_loop;
                ratio(100.0 * yields as f64, (yields + failed_running) as f64)
            }
            Self::NumaHintFaults => Some(numa.numa_hint_faults as f64),
            Self::NumaHintFaultsLocal => Some(numa.numa_hint_faults_local as f64),
            Self::NumaPagesMigrated => Some(numa.numa_pages_migrated as f64),
            Self::LocalFaultShare => of_faults(numa.numa_hint_faults_local),
            Self::MigratedFaultShare => of_faults(numa.numa_pages_migrated),
            Self::MigrationsInLlc => ratio(sum(|vcpu| vcpu.migrations_in_llc), seconds),
            Self::MigrationsInNode => ratio(sum(|vcpu| vcpu.migrations_in_node), seconds),
            Self::MigrationsAcrossNodes => ratio(sum(|vcpu| vcpu.migrations_across_nodes), seconds),
            Self::TaskSwitchRate => ratio(switches()?, task_clock_s()?),
            Self::TaskMigrationRate => ratio(migrations()?, task_clock_s()?),
            Self::StealShare => ratio(
                100.0 * guest_sum(|guest| guest.all_cpus().stolen_ns)?,
                guest_sum(|guest| guest.all_cpus().total_ns())?,
            ),
            Self::HomeMoves => ratio(host.home_moves.len() as f64, seconds),
            Self::PolicyCounter(counter) => ratio(*host.policy.get(counter.as_str())? as f64, seconds),
        }
    }
}

/// The rate of the counter in each VM that existed, per second of the time in which it did.
fn rates(vms: &[&VmMetrics], counter: &str) -> Vec<f64> {
    let rate = |vm: &&VmMetrics| ratio(*vm.counts.get(counter)? as f64, vm.lived_ns as f64 / 1e9);
    vms.iter().filter_map(rate).collect()
}

/// The ratio; `None` over nothing.
fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tandem_machine::homes::{Fact, Reason};
    use tandem_machine::ids::VmId;
    use tandem_sim::metrics::{GuestCpuMetrics, HomeMove, HostMetrics, ProgramMetrics};

    fn vm(group: &str, done: u64, responses_ns: &[u64]) -> VmMetrics {
        VmMetrics {
            name: format!("{group}-0"),
            group: group.into(),
            counts: [("done".to_owned(), done)].into(),
            lived_ns: 2_000_000_000,
            response: responses_ns.iter().copied().collect(),
            vcpu_delay: responses_ns.iter().map(|ns| ns + 3_000).collect(),
            vcpus: vec![TaskMetrics {
                run_ns: 600_000_000,
                wait_ns: 300_000_000,
                sleep_ns: 1_100_000_000,
                local_run_ns: 150_000_000,
                dispatches: 300,
                preemptions: 120,
                voluntary_switches: 180,
                ..TaskMetrics::default()
            }],
            ..VmMetrics::default()
        }
    }

    fn guest() -> GuestMetrics {
        let total = TaskMetrics {
            voluntary_switches: 9_000,
            preemptions: 1_000,
            migrations_in_llc: 300,
            migrations_across_nodes: 100,
            ..TaskMetrics::default()
        };
        GuestMetrics {
            cpus: vec![
                GuestCpuMetrics { busy_ns: 4_000_000_000, idle_ns: 2_000_000_000, ..Default::default() },
                GuestCpuMetrics { stolen_ns: 1_000_000_000, kernel_ns: 1_000_000_000, ..Default::default() },
            ],
            programs: vec![ProgramMetrics { total, ..ProgramMetrics::default() }],
            ..GuestMetrics::default()
        }
    }

    #[test]
    fn fairness_is_about_rates_while_vms_are_there() {
        let lived = |done: u64, lived_ns: u64| VmMetrics { lived_ns, ..vm("a", done, &[]) };
        let reason = Reason { nodes: vec![1], facts: vec![Fact::Device] };
        let home_move = HomeMove { at_ns: 5, vm: VmId(0), reason };
        let run = |vms: Vec<VmMetrics>| RunMetrics {
            length_ns: 2_000_000_000,
            events: 0,
            trace_hash: 0,
            host: HostMetrics { home_moves: vec![home_move.clone(); 3], ..HostMetrics::default() },
            vms,
        };
        let counter = || "done".to_owned();
        let even = run(vec![lived(100, 1_000_000_000), lived(200, 2_000_000_000), lived(0, 0)]);
        assert_eq!(Measure::Fairness(counter()).value(&even, Some("a")), Some(100.0));
        assert_eq!(Measure::SlowestShare(counter()).value(&even, Some("a")), Some(100.0));
        assert_eq!(Measure::HomeMoves.value(&even, None), Some(1.5));
        let uneven = run(vec![lived(100, 1_000_000_000), lived(300, 1_000_000_000)]);
        assert_eq!(Measure::Fairness(counter()).value(&uneven, Some("a")), Some(80.0));
        assert_eq!(Measure::SlowestShare(counter()).value(&uneven, Some("a")), Some(50.0));
        let nobody = run(vec![lived(0, 0)]);
        assert_eq!(Measure::Fairness(counter()).value(&nobody, Some("a")), None);
        assert_eq!(Measure::SlowestShare(counter()).value(&nobody, Some("a")), None);
    }

    #[test]
    fn tasks_of_guests_count_for_each_unit_of_work() {
        let program = |name: &str, tasks, run_ns| ProgramMetrics {
            name: name.into(),
            tasks,
            total: TaskMetrics {
                run_ns,
                voluntary_switches: 30,
                preemptions: 5,
                migrations_in_llc: 4,
                migrations_in_node: 2,
                migrations_across_nodes: 1,
                ..TaskMetrics::default()
            },
            ..ProgramMetrics::default()
        };
        let guest = GuestMetrics {
            programs: vec![program("a", 3, 4_000_000_000), program("b", 1, 1_000_000_000)],
            ..GuestMetrics::default()
        };
        let run = RunMetrics {
            length_ns: 2_000_000_000,
            events: 0,
            trace_hash: 0,
            host: HostMetrics::default(),
            vms: vec![VmMetrics { guest: Some(guest), ..vm("a", 10, &[]) }],
        };
        let counter = || "done".to_owned();
        for (measure, expected) in [
            (Measure::RateByCpuTime { counter: counter(), program: "a".into() }, 10.0 * 3.0 / 4.0),
            (Measure::TimePer(counter()), 0.2),
            (Measure::TaskMigrationsPer(counter()), 1.4),
            (Measure::TaskSwitchesPer(counter()), 7.0),
        ] {
            assert_eq!(measure.value(&run, None), Some(expected), "{measure:?}");
        }
    }

    #[test]
    fn values_worked_by_hand() {
        let run = RunMetrics {
            length_ns: 2_000_000_000,
            events: 0,
            trace_hash: 0,
            host: HostMetrics {
                pcpus: 4,
                busy_ns: 6_000_000_000,
                idle_ns: 1_600_000_000,
                overhead_ns: 400_000_000,
                spin_ns: 160_000_000,
                pause_loop: PauseLoopMetrics {
                    exits: 1_600,
                    candidates: 9_000,
                    yields: 300,
                    failed_running: 100,
                    failed_under_locks: 40,
                },
                schedules: 800,
                policy: [("src", 30)].into(),
                ..HostMetrics::default()
            },
            vms: vec![
                vm("a", 100, &[2_000]),
                vm("a", 300, &[6_000, 4_000, 1_000]),
                VmMetrics { guest: Some(guest()), coherence_ns: 64_000_000, ..vm("b", 1_000, &[]) },
            ],
        };
        let rate = Measure::Rate("done".into());
        for (measure, group, expected) in [
            (&rate, Some("a"), Some(200.0)),
            (&rate, None, Some(700.0)),
            (&Measure::RatePerVm("done".into()), Some("a"), Some(100.0)),
            (&Measure::Rate("other".into()), None, None),
            (&Measure::Response(ResponseStatistic::P50), Some("a"), Some(2.0)),
            (&Measure::Response(ResponseStatistic::P99), Some("a"), Some(6.0)),
            (&Measure::Response(ResponseStatistic::Mean), Some("a"), Some(3.25)),
            (&Measure::Response(ResponseStatistic::P99), Some("b"), None),
            (&Measure::Response(ResponseStatistic::Max), Some("a"), Some(6.0)),
            (&Measure::Wakeup(ResponseStatistic::P999), Some("a"), Some(9.0)),
            (&Measure::Wakeup(ResponseStatistic::Mean), Some("b"), None),
            (&Measure::TimeToCount, None, Some(2.0)),
            (&Measure::SchedulesPerPcpu, None, Some(100.0)),
            (&Measure::ContextSwitchesPerPcpu, None, Some(112.5)),
            (&Measure::ContextSwitchesPerPcpu, Some("a"), Some(75.0)),
            (&Measure::PreemptionsPerPcpu, None, Some(45.0)),
            (&Measure::MeanRunTime, Some("b"), Some(2_000.0)),
            (&Measure::BusyShare, None, Some(75.0)),
            (&Measure::OverheadShare, None, Some(5.0)),
            (&Measure::SpinShare, None, Some(2.0)),
            (&Measure::PauseExitsPerPcpu, None, Some(200.0)),
            (&Measure::DirectedYields, None, Some(150.0)),
            (&Measure::FailedYields, None, Some(50.0)),
            (&Measure::YieldSuccessShare, None, Some(75.0)),
            (&Measure::DirectedYieldsPer("done".into()), Some("a"), Some(0.75)),
            (&Measure::FailedYieldsPer("done".into()), Some("a"), Some(0.25)),
            (&Measure::CoherenceShare, None, Some(1.0)),
            (&Measure::CoherenceShare, Some("a"), Some(0.0)),
            (&Measure::LocalShare, None, Some(25.0)),
            (&Measure::WaitShare, None, Some(15.0)),
            (&Measure::TaskSwitchRate, Some("b"), Some(2_500.0)),
            (&Measure::TaskMigrationRate, None, Some(100.0)),
            (&Measure::StealShare, Some("b"), Some(12.5)),
            (&Measure::StealShare, Some("a"), None),
            (&Measure::PolicyCounter("src".into()), None, Some(15.0)),
            (&Measure::PolicyCounter("none".into()), None, None),
        ] {
            assert_eq!(measure.value(&run, group), expected, "{measure:?} of {group:?}");
        }
    }
}
