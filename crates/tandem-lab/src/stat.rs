//! Accounting of a run in the form of well-known tools: for each kernel the counts of `perf stat`, for each
//! guest a table like that of `perf sched latency`, and for each vCPU how it spent its time.
//!
//! As with `perf stat` of a command, a context switch is a task that leaves its CPU, and rates are per second
//! of *task clock*, the time that tasks had CPUs. *Steal* is the share of a guest's time in which a vCPU had
//! something to do but no pCPU; *spin* is the share of the pCPUs' time in which the host waited for locks of
//! run queues. A guest counts migrations by the topology that it sees.

mod scheduler;
#[cfg(test)]
mod tests;

pub use scheduler::{DecisionStat, SchedulerStat};

use crate::latency::{LatencyColumns, LatencyFigures};
use serde::Serialize;
use std::fmt;
use tandem_sim::metrics::{
    GuestMetrics, HaltPollMetrics, NumaMetrics, ParavirtMetrics, PauseLoopMetrics, ProgramMetrics,
    RunMetrics, TaskMetrics, VmMetrics,
};

/// Accounting of a run.
#[derive(Clone, Debug, Serialize)]
pub struct RunStat {
    /// The host's kernel, whose tasks are the vCPUs.
    pub host: KernelStat,
    /// The VMs, in the order of the scenario.
    pub vms: Vec<VmStat>,
}

/// The counts of `perf stat` for one kernel.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KernelStat {
    /// Measured time, s.
    pub elapsed_s: f64,
    /// Time that tasks had CPUs, over all CPUs, ms.
    pub task_clock_ms: f64,
    /// CPUs that tasks had on average.
    pub cpus_utilized: f64,
    /// Times that tasks left their CPU: the sum of voluntary and involuntary switches.
    pub context_switches: u64,
    /// The same in thousands per second of task clock.
    pub context_switches_k_per_s: Option<f64>,
    /// Moves of tasks to another CPU.
    pub migrations: u64,
    /// The same in thousands per second of task clock.
    pub migrations_k_per_s: Option<f64>,
    /// Moves to another CPU with the same last-level cache.
    pub migrations_in_llc: u64,
    /// Moves to another last-level cache of the same node.
    pub migrations_in_node: u64,
    /// Moves to another node.
    pub migrations_across_nodes: u64,
    /// Wake-ups of tasks.
    pub wakeups: u64,
    /// Times that tasks left their CPU voluntarily.
    pub voluntary_switches: u64,
    /// Times that tasks lost their CPU while they could have gone on.
    pub involuntary_switches: u64,
    /// Share of the guest's time in which a vCPU had something to do but no pCPU; for the host, of all
    /// guests' time.
    pub steal_pct: Option<f64>,
    /// For the host: share of its CPUs' time in which it waited for locks of run queues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spin_pct: Option<f64>,
    /// For the host: pause-loop exits and directed yields, if a vCPU spun for too long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause_loop: Option<PauseLoopStat>,
    /// For the host: what guests did because they know of it, if anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paravirt: Option<ParavirtStat>,
    /// For the host: polling for vCPUs that halted, if there was any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub halt_poll: Option<HaltPollStat>,
    /// For the host: counts of NUMA balancing, if any is not 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa: Option<NumaStat>,
    /// For a host with a compiled scheduler: the cost of its decisions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<SchedulerStat>,
}

/// What guests did because they know of their host.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ParavirtStat {
    /// Halts of vCPUs that waited for a lock.
    pub lock_halts: u64,
    /// Kicks of such vCPUs.
    pub lock_kicks: u64,
    /// Times that such a kick made its sender give way to the one that it had kicked.
    pub kick_yields: u64,
    /// vCPUs that a TLB flush did not interrupt, as they were preempted.
    pub flush_skips: u64,
    /// Times that a vCPU gave way because another, which it had interrupted, was preempted.
    pub flush_yields: u64,
}

impl ParavirtStat {
    /// `None` if none of it has happened.
    fn new(counts: ParavirtMetrics) -> Option<Self> {
        let ParavirtMetrics { lock_halts, lock_kicks, kick_yields, flush_skips, flush_yields } = counts;
        (counts != ParavirtMetrics::default()).then_some(Self {
            lock_halts,
            lock_kicks,
            kick_yields,
            flush_skips,
            flush_yields,
        })
    }
}

/// Polling for vCPUs that halted, in KVM's terms.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HaltPollStat {
    /// Halts for which the host polled, if only for one look.
    pub halt_attempted_poll: u64,
    /// Those of these in which the vCPU went on without having slept.
    pub halt_successful_poll: u64,
    /// Time of the polling, ms.
    pub polled_ms: f64,
}

impl HaltPollStat {
    /// `None` if the host did not poll.
    fn new(counts: HaltPollMetrics) -> Option<Self> {
        let HaltPollMetrics { attempted, successful, polled_ns } = counts;
        (attempted > 0).then_some(Self {
            halt_attempted_poll: attempted,
            halt_successful_poll: successful,
            polled_ms: polled_ns as f64 / 1e6,
        })
    }
}

/// Pause-loop exits and directed yields.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PauseLoopStat {
    /// Pause-loop exits.
    pub exits: u64,
    /// Other vCPUs that the host then examined, and that did not sleep.
    pub candidates: u64,
    /// Directed yields to one of them.
    pub directed_yields: u64,
    /// Candidates that were not yielded to because they already ran.
    pub failed_running: u64,
    /// Those of these whose locks had been taken before.
    pub failed_under_locks: u64,
}

/// Counts of NUMA balancing, by the names of `/proc/vmstat`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct NumaStat {
    /// Hinting faults.
    pub numa_hint_faults: u64,
    /// Hinting faults on pages of the node of the CPU.
    pub numa_hint_faults_local: u64,
    /// Pages that hinting faults moved to another node.
    pub numa_pages_migrated: u64,
}

impl NumaStat {
    /// The counts; `None` if all are 0.
    pub fn new(counted: &NumaMetrics) -> Option<Self> {
        let NumaMetrics { numa_hint_faults, numa_hint_faults_local, numa_pages_migrated } = *counted;
        (numa_hint_faults > 0).then_some(Self {
            numa_hint_faults,
            numa_hint_faults_local,
            numa_pages_migrated,
        })
    }
}

/// One line.
impl fmt::Display for NumaStat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { numa_hint_faults, numa_hint_faults_local, numa_pages_migrated } = self;
        write!(
            f,
            "numa_hint_faults {numa_hint_faults}, numa_hint_faults_local {numa_hint_faults_local}, \
             numa_pages_migrated {numa_pages_migrated}"
        )
    }
}

/// Accounting of a VM.
#[derive(Clone, Debug, Serialize)]
pub struct VmStat {
    /// Its name.
    pub vm: String,
    /// Its vCPUs, in their order.
    pub vcpus: Vec<VcpuStat>,
    /// From the wake-ups and starts of its vCPUs to the moments they ran.
    pub vcpu_delay: LatencyFigures,
    /// Its kernel, if it has one.
    pub guest: Option<GuestStat>,
}

/// How a vCPU spent its time.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct VcpuStat {
    /// On a pCPU, in the VM's code, ms.
    pub run_ms: f64,
    /// Something to do, but no pCPU, or the host's code on it, ms.
    pub wait_ms: f64,
    /// Nothing to do, ms.
    pub sleep_ms: f64,
    /// Times that it was taken off its pCPU or left it.
    pub switches: u64,
    /// Moves to another pCPU.
    pub migrations: u64,
}

/// Accounting of a guest kernel.
#[derive(Clone, Debug, Serialize)]
pub struct GuestStat {
    /// The counts of `perf stat`.
    #[serde(flatten)]
    pub kernel: KernelStat,
    /// Its tasks by program.
    pub programs: Vec<ProgramStat>,
}

/// The tasks of a program, in the columns of `perf sched latency`.
#[derive(Clone, Debug, Serialize)]
pub struct ProgramStat {
    /// Name of the program.
    pub program: String,
    /// Number of tasks that ran it.
    pub tasks: u64,
    /// Time that they had vCPUs, ms.
    pub runtime_ms: f64,
    /// Times that they were taken off their vCPU or left it.
    pub switches: u64,
    /// From their wake-ups and starts to the moments they ran.
    pub delay: LatencyFigures,
}

impl RunStat {
    /// Takes the accounting from what a run measured.
    pub fn new(run: &RunMetrics) -> Self {
        let vcpus = run.vms.iter().flat_map(|vm| &vm.vcpus);
        let tasks = TaskMetrics::sum(vcpus.chain([&run.host.kernel_threads]));
        let guests = || run.vms.iter().filter_map(|vm| vm.guest.as_ref());
        let stolen_ns = guests().map(|guest| guest.all_cpus().stolen_ns).sum();
        let guests_ns = guests().map(|guest| guest.all_cpus().total_ns()).sum();
        let steal_pct = share_pct(stolen_ns, guests_ns);
        let pcpus_ns = run.host.busy_ns + run.host.idle_ns + run.host.away_ns + run.host.overhead_ns;
        let host = KernelStat {
            spin_pct: share_pct(run.host.spin_ns, pcpus_ns),
            pause_loop: PauseLoopStat::new(&run.host.pause_loop),
            paravirt: ParavirtStat::new(run.host.paravirt),
            halt_poll: HaltPollStat::new(run.host.halt_poll),
            numa: NumaStat::new(&run.host.numa),
            scheduler: run.host.scheduler_costs.as_ref().map(SchedulerStat::new),
            ..KernelStat::new(run.length_ns, run.host.busy_ns, &tasks, steal_pct)
        };
        Self { host, vms: run.vms.iter().map(|vm| VmStat::new(vm, run.length_ns)).collect() }
    }
}

impl KernelStat {
    /// Takes the time that tasks had CPUs, and sums over the tasks.
    fn new(length_ns: u64, busy_ns: u64, tasks: &TaskMetrics, steal_pct: Option<f64>) -> Self {
        let task_clock_s = busy_ns as f64 / 1e9;
        let k_per_s = |count: u64| (busy_ns > 0).then(|| count as f64 / 1e3 / task_clock_s);
        let elapsed_s = length_ns as f64 / 1e9;
        Self {
            elapsed_s,
            task_clock_ms: ms(busy_ns),
            cpus_utilized: if length_ns > 0 { task_clock_s / elapsed_s } else { 0.0 },
            context_switches: tasks.switches(),
            context_switches_k_per_s: k_per_s(tasks.switches()),
            migrations: tasks.migrations(),
            migrations_k_per_s: k_per_s(tasks.migrations()),
            migrations_in_llc: tasks.migrations_in_llc,
            migrations_in_node: tasks.migrations_in_node,
            migrations_across_nodes: tasks.migrations_across_nodes,
            wakeups: tasks.wakeups,
            voluntary_switches: tasks.voluntary_switches,
            involuntary_switches: tasks.preemptions,
            steal_pct,
            spin_pct: None,
            pause_loop: None,
            paravirt: None,
            halt_poll: None,
            numa: None,
            scheduler: None,
        }
    }
}

impl PauseLoopStat {
    /// `None` if no vCPU spun for too long.
    fn new(metrics: &PauseLoopMetrics) -> Option<Self> {
        (metrics.exits > 0).then_some(Self {
            exits: metrics.exits,
            candidates: metrics.candidates,
            directed_yields: metrics.yields,
            failed_running: metrics.failed_running,
            failed_under_locks: metrics.failed_under_locks,
        })
    }
}

impl VmStat {
    fn new(vm: &VmMetrics, length_ns: u64) -> Self {
        Self {
            vm: vm.name.clone(),
            vcpus: vm.vcpus.iter().map(VcpuStat::new).collect(),
            vcpu_delay: LatencyFigures::from(&vm.vcpu_delay),
            guest: vm.guest.as_ref().map(|guest| GuestStat::new(guest, length_ns)),
        }
    }
}

impl VcpuStat {
    fn new(vcpu: &TaskMetrics) -> Self {
        Self {
            run_ms: ms(vcpu.run_ns),
            wait_ms: ms(vcpu.wait_ns),
            sleep_ms: ms(vcpu.sleep_ns),
            switches: vcpu.switches(),
            migrations: vcpu.migrations(),
        }
    }
}

impl GuestStat {
    fn new(guest: &GuestMetrics, length_ns: u64) -> Self {
        let cpus = guest.all_cpus();
        let steal_pct = share_pct(cpus.stolen_ns, cpus.total_ns());
        let tasks = TaskMetrics::sum([&guest.all_tasks(), &guest.kernel_threads.total]);
        let kernel = KernelStat::new(length_ns, cpus.busy_ns, &tasks, steal_pct);
        let threads = Some(&guest.kernel_threads).filter(|threads| threads.tasks > 0);
        Self { kernel, programs: guest.programs.iter().chain(threads).map(ProgramStat::new).collect() }
    }
}

impl ProgramStat {
    fn new(program: &ProgramMetrics) -> Self {
        Self {
            program: program.name.clone(),
            tasks: program.tasks,
            runtime_ms: ms(program.total.run_ns),
            switches: program.total.switches(),
            delay: LatencyFigures::from(&program.delay),
        }
    }
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

fn share_pct(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| 100.0 * part as f64 / whole as f64)
}

/// A block for the host, then one for each VM; at most 100 columns.
impl fmt::Display for RunStat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Accounting of the host:\n\n{}", self.host)?;
        for vm in &self.vms {
            write!(f, "Accounting of VM {}:\n\n{vm}", vm.vm)?;
        }
        Ok(())
    }
}

/// A line for each count, as `perf stat` prints them.
impl fmt::Display for KernelStat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let clock = format!("{:.2}", self.task_clock_ms);
        writeln!(f, "{clock:>18} msec {:28} # {:9.3} CPUs utilized", "task-clock", self.cpus_utilized)?;
        let rate = |k_per_s: Option<f64>| k_per_s.map(|rate| format!("# {rate:9.3} K/sec"));
        let of_tasks = [
            (self.context_switches, "context-switches", rate(self.context_switches_k_per_s)),
            (self.voluntary_switches, "  voluntary", None),
            (self.involuntary_switches, "  involuntary", None),
            (self.migrations, "cpu-migrations", rate(self.migrations_k_per_s)),
            (self.migrations_in_llc, "  within a last-level cache", None),
            (self.migrations_in_node, "  within a node", None),
            (self.migrations_across_nodes, "  across nodes", None),
            (self.wakeups, "wake-ups", None),
        ];
        let of_spinners = self.pause_loop.iter().flat_map(|pause_loop| {
            [
                (pause_loop.exits, "pause-loop exits", None),
                (pause_loop.candidates, "  candidates", None),
                (pause_loop.directed_yields, "  directed yields", None),
                (pause_loop.failed_running, "  ran already", None),
                (pause_loop.failed_under_locks, "  ran already, locks taken", None),
            ]
        });
        let of_guests = self.paravirt.iter().flat_map(|paravirt| {
            [
                (paravirt.lock_halts, "lock_halts", None),
                (paravirt.lock_kicks, "lock_kicks", None),
                (paravirt.kick_yields, "kick_yields", None),
                (paravirt.flush_skips, "flush_skips", None),
                (paravirt.flush_yields, "flush_yields", None),
            ]
        });
        let of_halts = self.halt_poll.iter().flat_map(|polls| {
            [
                (polls.halt_attempted_poll, "halt_attempted_poll", None),
                (polls.halt_successful_poll, "halt_successful_poll", None),
            ]
        });
        let of_numa = self.numa.iter().flat_map(|numa| {
            [
                (numa.numa_hint_faults, "numa_hint_faults", None),
                (numa.numa_hint_faults_local, "numa_hint_faults_local", None),
                (numa.numa_pages_migrated, "numa_pages_migrated", None),
            ]
        });
        for (count, name, note) in
            of_tasks.into_iter().chain(of_spinners).chain(of_guests).chain(of_halts).chain(of_numa)
        {
            let note = note.unwrap_or_default();
            writeln!(f, "{}", format!("{:>18}      {name:28} {note}", grouped(count)).trim_end())?;
        }
        for (share_pct, name) in [(self.steal_pct, "steal"), (self.spin_pct, "spin")] {
            if let Some(share_pct) = share_pct {
                writeln!(f, "{:>18} %    {name}", format!("{share_pct:.2}"))?;
            }
        }
        writeln!(f, "\n{:18.9} seconds time elapsed\n", self.elapsed_s)?;
        self.scheduler.as_ref().map_or(Ok(()), |scheduler| write!(f, "{scheduler}"))
    }
}

/// The vCPUs as the host sees them, then the guest.
impl fmt::Display for VmStat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:>20} {:>13} {:>13} {:>13} {:>10} {:>10}",
            "vCPU", "run ms", "wait ms", "sleep ms", "switches", "migrations"
        )?;
        for (number, vcpu) in self.vcpus.iter().enumerate() {
            writeln!(
                f,
                "{number:>20} {:13.3} {:13.3} {:13.3} {:>10} {:>10}",
                vcpu.run_ms, vcpu.wait_ms, vcpu.sleep_ms, vcpu.switches, vcpu.migrations
            )?;
        }
        writeln!(f, "\n{:28} {:>10} {LatencyColumns}", "from wake-up or start to run", "times")?;
        writeln!(f, "{:28} {:>10} {}\n", "vCPUs", self.vcpu_delay.count, self.vcpu_delay)?;
        match &self.guest {
            None => Ok(()),
            Some(guest) => writeln!(f, "Accounting of the guest in {}:\n\n{guest}", self.vm),
        }
    }
}

/// The counts of `perf stat`, then the table of `perf sched latency`.
impl fmt::Display for GuestStat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kernel)?;
        writeln!(
            f,
            "{:18} {:>7} {:>13} {:>9} {LatencyColumns}",
            "program", "tasks", "runtime ms", "switches"
        )?;
        for program in &self.programs {
            writeln!(
                f,
                "{:18} {:>7} {:13.3} {:>9} {}",
                program.program, program.tasks, program.runtime_ms, program.switches, program.delay
            )?;
        }
        Ok(())
    }
}

/// A count with commas between thousands.
fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
