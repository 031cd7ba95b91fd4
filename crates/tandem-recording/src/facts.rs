//! What a recording knows beside its events. It is JSON in the file.

use serde::{Deserialize, Serialize};

/// The machine, its tasks, and how complete the recording is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct About {
    /// What made the recording, with its version, such as `tandem 0.1.0` or `perf.data`.
    pub recorder: String,
    /// The release of the kernel, as `uname -r` prints it; empty if unknown.
    pub kernel: String,
    /// How many CPUs the kernel has numbers for: one more than the highest number.
    pub cpus: u32,
    /// The machine, as a machine file (`tandem topology --format toml`); `None` if unknown, as in traces of
    /// other tools.
    pub machine: Option<String>,
    /// What the kernel's scheduler was set to.
    pub scheduler: Scheduler,
    /// When it started, ns since 1970; `None` if unknown.
    pub started_unix_ns: Option<u64>,
    /// The clock of the events at their time 0, ns, and its name, to bring recordings of a host and of its
    /// guest together.
    pub clock_start_ns: u64,
    /// The name of that clock, as the kernel names its trace clocks; empty if unknown.
    pub clock: String,
    /// From the start to the end, ns.
    pub length_ns: u64,
    /// Events that were lost because they came faster than they could be stored, for each CPU that lost some.
    pub lost: Vec<Lost>,
    /// All tasks that it has met.
    pub tasks: Vec<Task>,
    /// The cgroups of tasks.
    pub cgroups: Vec<Cgroup>,
    /// The virtual machines of the machine.
    pub vms: Vec<Vm>,
    /// Names of interrupts of devices, by number.
    pub devices: Vec<(u32, String)>,
    /// Names of the kernel functions that handle timers.
    pub timers: Vec<String>,
}

/// What the kernel's scheduler was set to; `None` is unknown.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scheduler {
    /// The sched_ext scheduler that was loaded.
    pub sched_ext: Option<String>,
    /// The slice of the fair class, ns.
    pub base_slice_ns: Option<u64>,
    /// Its features, as the kernel lists them: those that are off have `NO_` in front.
    pub features: Vec<String>,
    /// Whether sessions are task groups.
    pub autogroup: Option<bool>,
    /// The preemption model, such as `voluntary`, `full` or `lazy`.
    pub preemption: Option<String>,
    /// Ticks a second.
    pub hz: Option<u32>,
    /// CPUs that the fair class does not balance.
    pub isolated_cpus: String,
}

/// Events that a CPU lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lost {
    /// The kernel's number of the CPU.
    pub cpu: u32,
    /// How many.
    pub events: u64,
}

/// A task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// The kernel's number of it.
    pub tid: u32,
    /// The kernel's number of its process; 0 if unknown.
    pub pid: u32,
    /// Its name when the recording met it last; of at most 15 bytes, as a stranger chose it.
    pub name: String,
    /// The name of its process's first thread; empty if unknown.
    pub process: String,
    /// It is a thread of the kernel.
    pub is_kernel: bool,
    /// Its scheduling policy as `sched_setscheduler` numbers it (0 normal, 1 FIFO, 2 round robin, 3 batch, 5
    /// idle, 6 deadline, 7 ext); `None` if unknown.
    pub policy: Option<u32>,
    /// Its priority as the kernel's events give it: 100 to 139 are nice values -20 to 19, those below are of
    /// real-time tasks; `None` if it was never seen.
    pub priority: Option<i32>,
    /// The slice that it has asked for, ns.
    pub slice_ns: Option<u64>,
    /// The CPUs that it may use, as a list; `None` if unknown.
    pub cpus: Option<String>,
    /// Its cgroup, by position in [`About::cgroups`].
    pub cgroup: Option<usize>,
    /// Its virtual machine, by position in [`About::vms`].
    pub vm: Option<usize>,
    /// The number of the vCPU that it is.
    pub vcpu: Option<u32>,
}

/// A cgroup with tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cgroup {
    /// Its path below the root of the hierarchy, such as `/system.slice/nginx.service`.
    pub path: String,
    /// `cpu.weight`; `None` if unknown, or the controller is not on there.
    pub weight: Option<u64>,
    /// The quota of `cpu.max`, us a period; `None` for no limit.
    pub quota_us: Option<u64>,
    /// The period of `cpu.max`, us.
    pub period_us: Option<u64>,
}

/// A virtual machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vm {
    /// Its name, as its manager shows it.
    pub name: String,
    /// The kernel's number of its process.
    pub pid: u32,
    /// Its memory, bytes; `None` if unknown.
    pub memory_bytes: Option<u64>,
}

impl About {
    /// Events that were lost on all CPUs.
    pub fn lost_events(&self) -> u64 {
        self.lost.iter().fold(0, |sum, lost| sum.saturating_add(lost.events))
    }
}

impl Task {
    /// Whether it is a real-time or a deadline task.
    pub fn is_real_time(&self) -> bool {
        self.priority.is_some_and(|priority| priority < 100)
    }

    /// Its nice value; `None` if it is a real-time task or its priority is unknown.
    pub fn nice(&self) -> Option<i8> {
        let nice = self.priority?.checked_sub(120)?;
        (-20..=19).contains(&nice).then_some(nice as i8)
    }
}
