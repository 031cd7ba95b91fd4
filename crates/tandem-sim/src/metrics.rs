//! The measurements of a run.

use crate::times::Times;
use std::collections::BTreeMap;
use tandem_machine::homes::Reason;
use tandem_machine::ids::VmId;

/// Measurements of one run, over its measured time (without the warm-up).
#[derive(Clone, Debug, PartialEq)]
pub struct RunMetrics {
    /// Measured time, ns.
    pub length_ns: u64,
    /// Events handled in the whole run: wake-ups, ends of slices and bursts, pause-loop exits, and targets of
    /// directed yields for which locks were taken.
    pub events: u64,
    /// Hash over every scheduling event of the run; equal runs have equal hashes.
    pub trace_hash: u64,
    /// The host as a whole.
    pub host: HostMetrics,
    /// Each VM, in the scenario's order.
    pub vms: Vec<VmMetrics>,
}

/// Measurements of the host.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct HostMetrics {
    /// Number of pCPUs.
    pub pcpus: usize,
    /// Time that tasks ran, summed over pCPUs, ns.
    pub busy_ns: u64,
    /// Time that pCPUs idled, ns.
    pub idle_ns: u64,
    /// Part of that in which tasks waited that could have run there; not those with a cap or a limit, ns.
    pub idle_beside_ns: u64,
    /// Time that pCPUs were not the scheduler's: higher scheduling classes had them, or they were offline,
    /// ns.
    pub away_ns: u64,
    /// Time in the host's own code (interrupts, scheduling, switching), ns.
    pub overhead_ns: u64,
    /// Part of that in which it waits for locks of run queues, ns.
    pub spin_ns: u64,
    /// Pause-loop exits, and the directed yields that followed.
    pub pause_loop: PauseLoopMetrics,
    /// Counts of what guests do because they know of their host.
    pub paravirt: ParavirtMetrics,
    /// Polling for vCPUs that halt.
    pub halt_poll: HaltPollMetrics,
    /// Counts of NUMA balancing.
    pub numa: NumaMetrics,
    /// Moves and losses of homes that VMs had, by the agent, in the order of time.
    pub home_moves: Vec<HomeMove>,
    /// Tasks that wait for each other for ever at the end, by VM.
    pub deadlocks: Vec<Deadlock>,
    /// Scheduling decisions.
    pub schedules: u64,
    /// The threads of its own kernel, which are part of no workload, summed up.
    pub kernel_threads: TaskMetrics,
    /// Counters of the policy by name, as it declares them.
    pub policy: BTreeMap<&'static str, u64>,
    /// The cost of a compiled scheduler's decisions.
    pub scheduler_costs: Option<SchedulerCosts>,
}

/// The cost of a compiled scheduler's decisions.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct SchedulerCosts {
    /// Wake-ups: `select_cpu` and `enqueue`.
    pub wake: DecisionCost,
    /// Choices of the next task.
    pub dispatch: DecisionCost,
    /// Ticks.
    pub tick: DecisionCost,
    /// Each callback that was called, by name.
    pub callbacks: BTreeMap<String, DecisionCost>,
}

/// The cost of the decisions of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct DecisionCost {
    /// Number of decisions.
    pub count: u64,
    /// BPF instructions of all of them; 0 if they were not counted
    /// ([`counting`](crate::policy::sched_ext::SchedExtSettings::counting)).
    pub instructions: u64,
    /// Most instructions of one decision.
    pub instructions_max: u64,
    /// Queued tasks that all of them visited under locks of dispatch queues; an insertion by virtual time
    /// counts as one.
    pub visited: u64,
    /// Most visits of one decision.
    pub visited_max: u64,
}

impl DecisionCost {
    /// Adds one decision.
    pub fn add(&mut self, instructions: u64, visited: u64) {
        self.count += 1;
        self.instructions += instructions;
        self.instructions_max = self.instructions_max.max(instructions);
        self.visited += visited;
        self.visited_max = self.visited_max.max(visited);
    }

    /// Instructions of one decision, on average.
    pub fn instructions_mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.instructions as f64 / self.count as f64)
    }

    /// Visits of one decision, on average.
    pub fn visited_mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.visited as f64 / self.count as f64)
    }
}

/// The agent gave a VM another home, or took its home away.
#[derive(Clone, Debug, PartialEq)]
pub struct HomeMove {
    /// When, ns since the start of the run.
    pub at_ns: u64,
    /// The VM.
    pub vm: VmId,
    /// The destination and the reason.
    pub reason: Reason,
}

/// Tasks of a VM wait for others that wait for ever, in the end for them, or that have ended with a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deadlock {
    /// The VM, or set of processes.
    pub vm: VmId,
    /// The program of tasks that wait; of a set of processes, the name of a task.
    pub task: String,
    /// What they wait for.
    pub awaited: Awaited,
    /// The program or task that they need for that.
    pub of: String,
}

/// What a task waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Awaited {
    /// A spin lock.
    Lock,
    /// A token in a channel.
    Token,
    /// Room for another token in a channel.
    Room,
}

/// Pause-loop exits and directed yields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PauseLoopMetrics {
    /// Pause-loop exits.
    pub exits: u64,
    /// Candidates that were examined and did not sleep.
    pub candidates: u64,
    /// Yields to a candidate.
    pub yields: u64,
    /// Candidates that were to be yielded to and already ran. One that the host passes over before it asks
    /// for its task does not count.
    pub failed_running: u64,
    /// Those of these whose locks had been taken before.
    pub failed_under_locks: u64,
}

/// Counts of what guests do because they know of their host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ParavirtMetrics {
    /// Halts of vCPUs that waited for a lock.
    pub lock_halts: u64,
    /// Kicks of such vCPUs by the holder of a lock.
    pub lock_kicks: u64,
    /// Times that such a kick made its sender give way to the one that it had kicked.
    pub kick_yields: u64,
    /// vCPUs that a TLB flush did not interrupt, as they were preempted.
    pub flush_skips: u64,
    /// Times that a vCPU gave way because another, which it had interrupted, was preempted.
    pub flush_yields: u64,
}

/// Polling for vCPUs that halt, in KVM's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct HaltPollMetrics {
    /// Halts for which the host polled, if only for one look (`halt_attempted_poll`).
    pub attempted: u64,
    /// Those of these in which the vCPU went on without having slept (`halt_successful_poll`).
    pub successful: u64,
    /// Time of the polling, with or without success, ns.
    pub polled_ns: u64,
}

/// Counts of NUMA balancing, by the names of `/proc/vmstat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct NumaMetrics {
    /// Hinting faults: accesses to pages that had been marked to find out which tasks use them.
    pub numa_hint_faults: u64,
    /// Those of these on pages of the node of the CPU.
    pub numa_hint_faults_local: u64,
    /// Pages that faults moved to another node.
    pub numa_pages_migrated: u64,
}

/// Measurements of a VM, summed over its vCPUs.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct VmMetrics {
    /// Name of the VM.
    pub name: String,
    /// Group of the VM.
    pub group: String,
    /// The part of the measured time in which it existed, ns.
    pub lived_ns: u64,
    /// Work done by counter name.
    pub counts: BTreeMap<String, u64>,
    /// Time in which its tasks fetched the cache lines of messages and channels from other cores, ns, begun
    /// in the measured time; part of its kernel's time, or of the host's.
    pub coherence_ns: u64,
    /// Response times of the requests that were answered in the measured time, each from its arrival.
    pub response: Times,
    /// Of requests that have no answer at the end, the time since each arrived; of tasks that measure a time
    /// themselves, the time so far. A scheduler that holds up what would answer late has them here.
    pub unanswered: Times,
    /// Each vCPU.
    pub vcpus: Vec<TaskMetrics>,
    /// From each wake-up or start of its vCPUs in the measured time to the moment the vCPU ran, or to the
    /// end.
    pub vcpu_delay: Times,
    /// Its kernel, if it has one.
    pub guest: Option<GuestMetrics>,
}

/// Measurements of a guest kernel.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct GuestMetrics {
    /// Each of its CPUs.
    pub cpus: Vec<GuestCpuMetrics>,
    /// Time of its CPUs that idled while its tasks waited that could have run there, ns.
    pub idle_beside_ns: u64,
    /// Its tasks, summed up by program in the order of [`crate::scenario::Guest::programs`]; programs that
    /// never ran are left out.
    pub programs: Vec<ProgramMetrics>,
    /// The threads of the kernel itself, which are part of no program, summed up under the name of
    /// [`GuestMetrics::KERNEL_THREADS`].
    pub kernel_threads: ProgramMetrics,
    /// Counters of its policy by name, as it declares them.
    pub policy: BTreeMap<&'static str, u64>,
}

impl GuestMetrics {
    /// The name of all threads of the kernel together.
    pub const KERNEL_THREADS: &str = "kernel threads";

    /// Sums over its CPUs.
    pub fn all_cpus(&self) -> GuestCpuMetrics {
        self.cpus.iter().fold(GuestCpuMetrics::default(), |sum, cpu| GuestCpuMetrics {
            busy_ns: sum.busy_ns + cpu.busy_ns,
            kernel_ns: sum.kernel_ns + cpu.kernel_ns,
            pause_exit_ns: sum.pause_exit_ns + cpu.pause_exit_ns,
            idle_ns: sum.idle_ns + cpu.idle_ns,
            polled_ns: sum.polled_ns + cpu.polled_ns,
            stolen_ns: sum.stolen_ns + cpu.stolen_ns,
        })
    }

    /// Sums over its tasks, threads of the kernel left out.
    pub fn all_tasks(&self) -> TaskMetrics {
        TaskMetrics::sum(self.programs.iter().map(|program| &program.total))
    }
}

/// How a guest's CPU spent its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct GuestCpuMetrics {
    /// In tasks, ns.
    pub busy_ns: u64,
    /// In the guest kernel's own code (interrupts, scheduling, switching), ns.
    pub kernel_ns: u64,
    /// Outside of the guest because it spun, while it had a pCPU, ns. The guest counts this as time of its
    /// tasks.
    pub pause_exit_ns: u64,
    /// Idle, ns.
    pub idle_ns: u64,
    /// Part of that in which it had a pCPU, as the host polled for it, ns.
    pub polled_ns: u64,
    /// Something to do, but no pCPU, ns.
    pub stolen_ns: u64,
}

impl GuestCpuMetrics {
    /// All of its time, ns.
    pub fn total_ns(&self) -> u64 {
        self.busy_ns + self.kernel_ns + self.pause_exit_ns + self.idle_ns + self.stolen_ns
    }
}

/// Measurements of the tasks of one program in a guest.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct ProgramMetrics {
    /// Name of the program.
    pub name: String,
    /// Tasks that were started with it, or became it by exec, in the measured time.
    pub tasks: u64,
    /// Their sums.
    pub total: TaskMetrics,
    /// From each wake-up or start in the measured time to the moment the task ran, or to the end.
    pub delay: Times,
}

/// Measurements of a task.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct TaskMetrics {
    /// Time on a CPU, ns.
    pub run_ns: u64,
    /// Time runnable without a CPU, ns. Run, wait, sleep and stolen time add up to its life in the measured
    /// time, which begins when it starts and ends when it does.
    pub wait_ns: u64,
    /// The longest uninterrupted time for which it was runnable without a CPU, ns.
    pub longest_wait_ns: u64,
    /// Time asleep or blocked, ns.
    pub sleep_ns: u64,
    /// Time on a CPU of a guest that had no pCPU, ns. Part of neither of the others.
    pub stolen_ns: u64,
    /// Run time on CPUs of the nodes that hold its memory, weighted by the fraction that each holds, ns.
    pub local_run_ns: u64,
    /// Times that it was put on a CPU.
    pub dispatches: u64,
    /// Times that it lost the CPU while it could have gone on, be it to move at its exec: involuntary
    /// switches.
    pub preemptions: u64,
    /// Times that it blocked, yielded or ended: voluntary switches.
    pub voluntary_switches: u64,
    /// Wake-ups; its start is none.
    pub wakeups: u64,
    /// Moves to another CPU with the same last-level cache.
    pub migrations_in_llc: u64,
    /// Moves to another last-level cache of the same node.
    pub migrations_in_node: u64,
    /// Moves to another node.
    pub migrations_across_nodes: u64,
}

impl TaskMetrics {
    /// Sums over tasks; for the longest wait, the maximum.
    pub fn sum<'a>(tasks: impl IntoIterator<Item = &'a Self>) -> Self {
        tasks.into_iter().fold(Self::default(), |mut sum, task| {
            sum.add(task);
            sum
        })
    }

    /// Context switches: times that it left the CPU, voluntarily or not.
    pub fn switches(&self) -> u64 {
        self.voluntary_switches + self.preemptions
    }

    /// Moves to another CPU, near or far.
    pub fn migrations(&self) -> u64 {
        self.migrations_in_llc + self.migrations_in_node + self.migrations_across_nodes
    }

    /// Adds those of another task.
    pub fn add(&mut self, other: &Self) {
        self.run_ns += other.run_ns;
        self.wait_ns += other.wait_ns;
        self.longest_wait_ns = self.longest_wait_ns.max(other.longest_wait_ns);
        self.sleep_ns += other.sleep_ns;
        self.stolen_ns += other.stolen_ns;
        self.local_run_ns += other.local_run_ns;
        self.dispatches += other.dispatches;
        self.preemptions += other.preemptions;
        self.voluntary_switches += other.voluntary_switches;
        self.wakeups += other.wakeups;
        self.migrations_in_llc += other.migrations_in_llc;
        self.migrations_in_node += other.migrations_in_node;
        self.migrations_across_nodes += other.migrations_across_nodes;
    }
}
