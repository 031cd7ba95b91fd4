//! The threads of a stock Linux kernel: what it does beside the work.
//!
//! **Problem.** On a host that runs nothing but its VMs, equal vCPUs take turns in step on all pCPUs for
//! ever. Real kernels interrupt them a few times a second, on each CPU at another time. That takes little,
//! but it parts what would otherwise run side by side.
//!
//! **Approach.** The kernel threads that an idle kernel was seen to run, as tasks that sleep and compute:
//! periods from the kernels' sources, rates and lengths as measured (`docs/src/housekeeping.md`). A CPU that
//! is isolated, or on which the tick stops, has none of its own.
//!
//! **Limits.** Their timers expire when they are due, rather than in the next tick. Work of all CPUs that the
//! kernel rounds to full seconds comes at random instead. The lockup check, which is of a higher class than
//! the fair one, is a task of the highest weight. There are no threads of devices, file systems or services.

use super::{Affinity, Guest, GuestProgram, HostTask, Process, TaskPolicy, Workload, WorkloadKind};
use crate::policy::linux::LinuxEra;
use crate::program::{Amount, Op, Program};
use std::sync::Arc;
use tandem_machine::Machine;
use tandem_machine::cpumask::CpuMask;
use tandem_machine::ids::CpuId;

/// The group of all kernel threads of the host.
const KERNEL_GROUP: &str = "kernel";
/// `THREAD_SIZE` of x86-64, bytes.
const STACK_BYTES: u64 = 16 << 10;

/// Where threads of a kind are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// One on each CPU, bound to it.
    EachCpu,
    /// One for each node, bound to that.
    EachNode,
    /// One, which may run anywhere.
    Anywhere,
}

/// Threads of one kind.
#[derive(Clone, Copy, Debug)]
struct Kind {
    name: &'static str,
    /// Releases that have them.
    since: LinuxEra,
    until: LinuxEra,
    place: Place,
    nice: i8,
    /// Between two wake-ups, ns.
    sleep: Amount,
    /// What each wake-up takes, ns; switches come on top.
    work: Amount,
}

/// Lengths are 0.7 ns for each instruction measured in 7.3 and 6.12; where they vary widely, exponential.
const KINDS: [Kind; 8] = [
    // `vmstat_update()` requeues itself on every CPU each second.
    Kind {
        name: "kworker",
        since: LinuxEra::V3_6,
        until: LinuxEra::V3_6,
        place: Place::EachCpu,
        nice: 0,
        sleep: Amount::Fixed(1_000_000_000),
        work: Amount::Exponential(7_000),
    },
    // Only where counters have changed: 0.26 a second beside a loop, 0.54 on a desktop.
    Kind {
        name: "kworker",
        since: LinuxEra::V4_2,
        until: LinuxEra::LATEST,
        place: Place::EachCpu,
        nice: 0,
        sleep: Amount::Exponential(2_500_000_000),
        work: Amount::Exponential(7_000),
    },
    // The lockup check: 2/5 of `watchdog_thresh`, 10 s; `watchdog/N` or the stopper thread.
    Kind {
        name: "migration",
        since: LinuxEra::V3_6,
        until: LinuxEra::LATEST,
        place: Place::EachCpu,
        nice: -20,
        sleep: Amount::Fixed(4_000_000_000),
        work: Amount::Fixed(2_500),
    },
    // `vmstat_shepherd()`, each second.
    Kind {
        name: "kworker/shepherd",
        since: LinuxEra::V4_2,
        until: LinuxEra::LATEST,
        place: Place::Anywhere,
        nice: 0,
        sleep: Amount::Fixed(1_000_000_000),
        work: Amount::Exponential(6_000),
    },
    // `psi_avgs_work()`, each 2 s and a tick; from 5.15 on `flush_memcg_stats()` as often.
    Kind {
        name: "kworker/u",
        since: LinuxEra::V5_2,
        until: LinuxEra::LATEST,
        place: Place::Anywhere,
        nice: 0,
        sleep: Amount::Exponential(1_000_000_000),
        work: Amount::Exponential(7_000),
    },
    // A grace period in 2 s, with two wake-ups each: 0.2 to 0.9 a second in a guest that computes.
    Kind {
        name: "rcu_sched",
        since: LinuxEra::V4_2,
        until: LinuxEra::LATEST,
        place: Place::Anywhere,
        nice: 0,
        sleep: Amount::Exponential(1_000_000_000),
        work: Amount::Fixed(3_500),
    },
    // `HPAGE_FRAG_CHECK_INTERVAL_MSEC` (5.9 and later), and a tick.
    Kind {
        name: "kcompactd",
        since: LinuxEra::V6_12,
        until: LinuxEra::LATEST,
        place: Place::EachNode,
        nice: 0,
        sleep: Amount::Fixed(504_000_000),
        work: Amount::Fixed(3_500),
    },
    // DAMON_STAT, which Debian's 7.3 has on: it samples each 0.7 to 1.3 s.
    Kind {
        name: "kdamond",
        since: LinuxEra::V7_3,
        until: LinuxEra::LATEST,
        place: Place::Anywhere,
        nice: 0,
        sleep: Amount::Uniform(700_000_000, 1_300_000_000),
        work: Amount::Exponential(12_000),
    },
];

impl Kind {
    /// Sleeps and computes by turns, beginning anywhere within a period.
    fn program(&self) -> Arc<Program> {
        let phase = match self.sleep {
            Amount::Fixed(period_ns) => Amount::Uniform(0, period_ns),
            drawn => drawn,
        };
        let turn = [Op::Compute { work: self.work, profile: None }, Op::Sleep(self.sleep)];
        let forever = Op::Repeat { times: None, body: turn.into() };
        Arc::new(Program { ops: vec![Op::Sleep(phase), forever], profiles: Vec::new() })
    }

    /// Where each of its threads may run.
    fn affinities(&self, machine: &Machine) -> Vec<CpuMask> {
        let mut cpus = machine.housekeeping_cpus().clone();
        cpus.remove_all(machine.tickless());
        if cpus.is_empty() {
            // Linux always leaves a CPU for them: the one that booted.
            cpus = CpuMask::from_cpus(machine.cpu_count(), machine.all_cpus().iter().take(1));
        }
        match self.place {
            Place::EachCpu => cpus.iter().map(|cpu| only(cpu, machine)).collect(),
            Place::EachNode => {
                let of_nodes = machine.nodes().iter().map(|node| node.cpus.and(&cpus));
                of_nodes.filter(|it| !it.is_empty()).collect()
            }
            Place::Anywhere => vec![cpus],
        }
    }
}

fn only(cpu: CpuId, machine: &Machine) -> CpuMask {
    CpuMask::from_cpus(machine.cpu_count(), [cpu])
}

fn kinds(era: LinuxEra) -> impl Iterator<Item = &'static Kind> {
    KINDS.iter().filter(move |kind| (kind.since..=kind.until).contains(&era))
}

impl Workload {
    /// The kernel threads of a host of this release, a workload for each kind.
    pub fn kernel_threads(era: LinuxEra, machine: &Machine) -> Vec<Self> {
        let nodes = machine.node_count();
        let workload = |kind: &Kind| {
            let program = kind.program();
            let task = |cpus| HostTask {
                nice: kind.nice,
                ..HostTask::new(Arc::clone(&program), Affinity::hard(cpus))
            };
            let tasks: Vec<HostTask> = kind.affinities(machine).into_iter().map(task).collect();
            let memory_bytes = STACK_BYTES * tasks.len() as u64;
            let shares = vec![1.0 / nodes as f64; nodes];
            Self {
                group: KERNEL_GROUP.into(),
                memory_bytes,
                ..Self::new(kind.name, WorkloadKind::KernelThreads(tasks), shares)
            }
        };
        kinds(era).map(workload).filter(|workload| workload.task_count() > 0).collect()
    }
}

impl Guest {
    /// Adds the threads of its kernel, if it is of this release.
    pub fn add_kernel_threads(&mut self, era: LinuxEra) {
        for kind in kinds(era) {
            let program = self.programs.len();
            let mut of_kernel = GuestProgram::new(kind.name, kind.program());
            of_kernel.is_kernel_thread = true;
            self.programs.push(of_kernel);
            for cpus in kind.affinities(&self.topology) {
                let affinity = Some(Arc::new(cpus));
                self.processes.push(Process {
                    program,
                    copies: 1,
                    nice: kind.nice,
                    policy: TaskPolicy::Normal,
                    affinity,
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tandem_machine::MachineBuilder;

    fn machine() -> Machine {
        MachineBuilder::symmetric(2, 4, 1).build().expect("a regular machine")
    }

    #[test]
    fn each_release_has_its_threads() {
        let names = |era| {
            let workloads = Workload::kernel_threads(era, &machine());
            workloads.iter().map(|it| (it.name.clone(), it.task_count())).collect::<Vec<_>>()
        };
        let expected = |list: &[(&str, usize)]| -> Vec<(String, usize)> {
            list.iter().map(|&(name, count)| (name.to_owned(), count)).collect()
        };
        assert_eq!(names(LinuxEra::V3_6), expected(&[("kworker", 8), ("migration", 8)]));
        let v6_12 = names(LinuxEra::V6_12);
        assert!(v6_12.contains(&("kcompactd".into(), machine().node_count())));
        assert!(!names(LinuxEra::V5_2).iter().any(|(name, _)| name == "kcompactd"));
        let latest = names(LinuxEra::LATEST);
        assert!(v6_12.iter().all(|of_6_12| latest.contains(of_6_12)), "{latest:?}");
    }

    #[test]
    fn cpus_that_are_left_alone_have_none_of_their_own() {
        let quiet = MachineBuilder::symmetric(1, 4, 1).isolated([1]).tickless([2]).build().unwrap();
        let workloads = Workload::kernel_threads(LinuxEra::V6_12, &quiet);
        let per_cpu = workloads.iter().find(|it| it.name == "kworker").unwrap();
        let cpus: Vec<_> = per_cpu.affinities().flat_map(|it| it.hard.iter()).collect();
        assert_eq!(cpus, [CpuId(0), CpuId(3)]);
        for workload in &workloads {
            assert!(workload.affinities().all(|it| !it.hard.contains(CpuId(1))));
        }
    }
}
