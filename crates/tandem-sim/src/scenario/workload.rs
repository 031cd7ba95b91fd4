//! Workloads: what runs on the host, as virtual machines or as processes.

use super::{Guest, MemoryPolicy, Pages, TaskPolicy};
use crate::program::{Amount, Program};
use std::ops::RangeInclusive;
use std::sync::Arc;
use tandem_machine::cpumask::CpuMask;
use tandem_machine::ids::CpuId;

/// A virtual machine, or processes of the host that belong together.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Unique name.
    pub name: String,
    /// Results are summed up by group.
    pub group: String,
    /// The cgroup below which a VM makes its own, or which processes join, by position in
    /// [`Scenario::cgroups`](super::Scenario::cgroups); `None`: the root.
    pub cgroup: Option<usize>,
    /// Weight against other workloads.
    pub weight: u32,
    /// How much memory it has, bytes.
    pub memory_bytes: u64,
    /// Share of its memory on each node of the machine; sums to 1.
    pub memory_shares: Vec<f64>,
    /// Its memory lies where its tasks first touch it: once all of them have started, the shares become those
    /// of the nodes that they are on then.
    pub first_touch: bool,
    /// Who says where its memory lies.
    pub memory_policy: MemoryPolicy,
    /// The pages that its memory is in. Only NUMA balancing asks.
    pub pages: Pages,
    /// How many channels its programs and sources use.
    pub channels: usize,
    /// Names of its counters.
    pub counters: Vec<String>,
    /// Sources of its interrupts.
    pub sources: Vec<Source>,
    /// Changes of its affinity during the run, in the order of time.
    pub affinity_changes: Vec<AffinityChange>,
    /// Its tasks ran for long before the start of the run, and the host moved them about: they start on pCPUs
    /// drawn at random, each on another one as far as its affinity and the number of pCPUs allow.
    pub has_past: bool,
    /// The tasks of the host that it consists of.
    pub kind: WorkloadKind,
}

/// What the tasks of a [`Workload`] are to the host.
#[derive(Clone, Debug)]
pub enum WorkloadKind {
    /// vCPUs: they leave the VM for the host and enter it again, which takes time.
    Vm(Vm),
    /// Processes, each with an address space of its own. They are in the host anyway, and they do not start
    /// others. There may be more of them than pCPUs.
    Processes(Vec<HostTask>),
    /// Threads of one process: the same with one address space for all of them.
    Threads(Vec<HostTask>),
    /// Threads of the host's own kernel. They have no address space, nothing is measured of them by workload,
    /// and no count of theirs ends a run.
    KernelThreads(Vec<HostTask>),
}

/// What a virtual machine has beyond other workloads.
#[derive(Clone, Debug)]
pub struct Vm {
    /// Its vCPUs and what runs on them.
    pub vcpus: Vcpus,
    /// Most CPU time that it may use, in percent of one pCPU; 0 for no cap.
    pub cap_pct: u32,
    /// When it starts, ns since the start of the run; `None`: it is there from the start.
    pub start: Option<Amount>,
    /// Who chooses its home.
    pub home: HomeChoice,
}

/// The vCPUs of a virtual machine.
#[derive(Clone, Debug)]
pub enum Vcpus {
    /// Without a guest kernel: each runs its own program and nothing else.
    Programs {
        /// The vCPUs.
        vcpus: Vec<HostTask>,
        /// How long the VM is there, ns; `None`: to the end of the run. Then it is killed, and its memory is
        /// free.
        life: Option<Amount>,
    },
    /// With a guest kernel, which schedules its tasks on them.
    Guest {
        /// Where each vCPU may run.
        vcpus: Vec<Affinity>,
        /// The kernel, with what runs on it.
        guest: Box<Guest>,
    },
    /// With a guest kernel, on threads that are to the host like any others, as those that were recorded are:
    /// each has a nice value of its own, and is in the cgroup of the workload rather than in one below it.
    Threads {
        /// The vCPUs. Their programs do not count.
        vcpus: Vec<HostTask>,
        /// The kernel, with what runs on it.
        guest: Box<Guest>,
    },
}

/// A vCPU or a process that runs a program.
#[derive(Clone, Debug)]
pub struct HostTask {
    /// What it runs.
    pub program: Arc<Program>,
    /// Where it may run.
    pub affinity: Affinity,
    /// Nice value, -20 (most urgent) to 19: a factor on the weight of its workload.
    pub nice: i8,
    /// Its scheduling policy.
    pub policy: TaskPolicy,
    /// Where it ran last before the run, and starts; `None`: as its workload says.
    pub past_cpu: Option<CpuId>,
    /// It does not start with its workload but when another task starts it, by
    /// [`Op::StartTask`](crate::program::Op::StartTask).
    pub is_forked: bool,
    /// It is a thread of the host's kernel, and measured all the same.
    pub is_kernel_thread: bool,
}

/// Where a task of the host may run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Affinity {
    /// CPUs on which it may run.
    pub hard: Arc<CpuMask>,
    /// CPUs on which it prefers to run; they must lie within the hard affinity.
    pub soft: Option<Arc<CpuMask>>,
}

/// Who chooses the home of a VM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HomeChoice {
    /// Its affinities are its home.
    #[default]
    Own,
    /// One is chosen when it starts, as [`Scenario::homes`](super::Scenario::homes) says. Its affinities hold
    /// until then, its hard ones also beyond that. Its memory lies where its shares say.
    Chosen,
    /// The same, and its memory lies evenly on the nodes of that home; if it gets none, its shares hold.
    ChosenWithMemory,
}

impl HomeChoice {
    /// Whether a home is chosen when the VM starts.
    pub fn is_chosen(self) -> bool {
        self != Self::Own
    }
}

impl Affinity {
    /// May run on these CPUs, and prefers none.
    pub fn hard(cpus: impl Into<Arc<CpuMask>>) -> Self {
        Self { hard: cpus.into(), soft: None }
    }
}

impl HostTask {
    /// Runs the program with the usual nice value and policy.
    pub fn new(program: Arc<Program>, affinity: Affinity) -> Self {
        Self {
            program,
            affinity,
            nice: 0,
            policy: TaskPolicy::Normal,
            past_cpu: None,
            is_forked: false,
            is_kernel_thread: false,
        }
    }
}

impl Vm {
    /// A VM without a cap that is there from the start, where its affinities say.
    pub fn new(vcpus: Vcpus) -> Self {
        Self { vcpus, cap_pct: 0, start: None, home: HomeChoice::Own }
    }

    /// How long it is there, ns; `None`: to the end of the run.
    pub fn life(&self) -> Option<Amount> {
        match self.vcpus {
            Vcpus::Programs { life, .. } => life,
            Vcpus::Guest { .. } | Vcpus::Threads { .. } => None,
        }
    }

    /// Its guest kernel, if it has one.
    pub fn guest(&self) -> Option<&Guest> {
        match &self.vcpus {
            Vcpus::Programs { .. } => None,
            Vcpus::Guest { guest, .. } | Vcpus::Threads { guest, .. } => Some(guest),
        }
    }

    /// Whether its vCPUs are in a cgroup of their own, below that of the workload.
    pub fn has_cgroup(&self) -> bool {
        !matches!(self.vcpus, Vcpus::Threads { .. })
    }
}

impl WorkloadKind {
    /// A VM without a guest kernel, from the start to the end of the run.
    pub fn vm(vcpus: Vec<HostTask>) -> Self {
        Self::Vm(Vm::new(Vcpus::Programs { vcpus, life: None }))
    }

    /// A VM with a guest kernel.
    pub fn guest(vcpus: Vec<Affinity>, guest: Guest) -> Self {
        Self::Vm(Vm::new(Vcpus::Guest { vcpus, guest: Box::new(guest) }))
    }
}

impl Workload {
    /// Weight unless something else is said: Xen's default.
    pub const DEFAULT_WEIGHT: u32 = 256;
    /// Weights that Xen allows.
    pub const WEIGHTS: RangeInclusive<u32> = 1..=65_535;

    /// Memory unless something else is said: 1 GiB, an assumption. Only NUMA balancing asks how much it is.
    pub const DEFAULT_MEMORY_BYTES: u64 = 1 << 30;

    /// A workload that is a group of its own, of usual weight, and that nothing interrupts.
    pub fn new(name: impl Into<String>, kind: WorkloadKind, memory_shares: Vec<f64>) -> Self {
        let name = name.into();
        Self {
            group: name.clone(),
            name,
            cgroup: None,
            weight: Self::DEFAULT_WEIGHT,
            memory_bytes: Self::DEFAULT_MEMORY_BYTES,
            memory_shares,
            first_touch: false,
            memory_policy: MemoryPolicy::default(),
            pages: Pages::default(),
            channels: 0,
            counters: Vec::new(),
            sources: Vec::new(),
            affinity_changes: Vec::new(),
            has_past: false,
            kind,
        }
    }

    /// Whether it is of the host's own kernel.
    pub fn is_kernel(&self) -> bool {
        matches!(self.kind, WorkloadKind::KernelThreads(_))
    }

    /// What it has as a VM; `None`: processes or threads.
    pub fn vm(&self) -> Option<&Vm> {
        match &self.kind {
            WorkloadKind::Vm(vm) => Some(vm),
            WorkloadKind::Processes(_) | WorkloadKind::Threads(_) | WorkloadKind::KernelThreads(_) => None,
        }
    }

    /// Mutable access to what it has as a VM.
    pub fn vm_mut(&mut self) -> Option<&mut Vm> {
        match &mut self.kind {
            WorkloadKind::Vm(vm) => Some(vm),
            WorkloadKind::Processes(_) | WorkloadKind::Threads(_) | WorkloadKind::KernelThreads(_) => None,
        }
    }

    /// Who chooses its home; that of processes is where their affinities say.
    pub fn home(&self) -> HomeChoice {
        self.vm().map_or(HomeChoice::Own, |vm| vm.home)
    }

    /// When it starts, ns since the start of the run; `None`: it is there from the start, as processes are.
    pub fn start(&self) -> Option<Amount> {
        self.vm().and_then(|vm| vm.start)
    }

    /// Its guest kernel, if it has one.
    pub fn guest(&self) -> Option<&Guest> {
        self.vm().and_then(Vm::guest)
    }

    /// Mutable access to its guest kernel.
    pub fn guest_mut(&mut self) -> Option<&mut Guest> {
        match &mut self.vm_mut()?.vcpus {
            Vcpus::Programs { .. } => None,
            Vcpus::Guest { guest, .. } | Vcpus::Threads { guest, .. } => Some(guest),
        }
    }

    /// Its vCPUs or processes, unless they are those of a [guest kernel](Vcpus::Guest).
    pub fn programs(&self) -> &[HostTask] {
        match &self.kind {
            WorkloadKind::Vm(Vm {
                vcpus: Vcpus::Programs { vcpus: tasks, .. } | Vcpus::Threads { vcpus: tasks, .. },
                ..
            })
            | WorkloadKind::Processes(tasks)
            | WorkloadKind::Threads(tasks)
            | WorkloadKind::KernelThreads(tasks) => tasks,
            WorkloadKind::Vm(Vm { vcpus: Vcpus::Guest { .. }, .. }) => &[],
        }
    }

    /// Mutable access to these.
    pub fn programs_mut(&mut self) -> &mut [HostTask] {
        match &mut self.kind {
            WorkloadKind::Vm(Vm {
                vcpus: Vcpus::Programs { vcpus: tasks, .. } | Vcpus::Threads { vcpus: tasks, .. },
                ..
            })
            | WorkloadKind::Processes(tasks)
            | WorkloadKind::Threads(tasks)
            | WorkloadKind::KernelThreads(tasks) => tasks,
            WorkloadKind::Vm(Vm { vcpus: Vcpus::Guest { .. }, .. }) => &mut [],
        }
    }

    /// Where each of its tasks of the host may run.
    pub fn affinities(&self) -> impl ExactSizeIterator<Item = &Affinity> {
        (0..self.task_count()).map(|task| self.affinity(task))
    }

    /// Where one of its tasks may run.
    pub fn affinity(&self, task: usize) -> &Affinity {
        match &self.kind {
            WorkloadKind::Vm(Vm { vcpus: Vcpus::Guest { vcpus, .. }, .. }) => &vcpus[task],
            _ => &self.programs()[task].affinity,
        }
    }

    /// Mutable access to where one of its tasks may run.
    pub fn affinity_mut(&mut self, task: usize) -> &mut Affinity {
        match &mut self.kind {
            WorkloadKind::Vm(Vm { vcpus: Vcpus::Guest { vcpus, .. }, .. }) => &mut vcpus[task],
            WorkloadKind::Vm(Vm {
                vcpus: Vcpus::Programs { vcpus: tasks, .. } | Vcpus::Threads { vcpus: tasks, .. },
                ..
            })
            | WorkloadKind::Processes(tasks)
            | WorkloadKind::Threads(tasks)
            | WorkloadKind::KernelThreads(tasks) => &mut tasks[task].affinity,
        }
    }

    /// The nice value of one of its tasks; 0 for vCPUs of a guest kernel.
    pub fn nice(&self, task: usize) -> i8 {
        self.programs().get(task).map_or(0, |task| task.nice)
    }

    /// The scheduling policy of one of its tasks; the usual one for vCPUs of a guest kernel.
    pub fn policy(&self, task: usize) -> TaskPolicy {
        self.programs().get(task).map_or(TaskPolicy::Normal, |task| task.policy)
    }

    /// Whether one of its tasks is started by another.
    pub fn is_forked(&self, task: usize) -> bool {
        self.programs().get(task).is_some_and(|task| task.is_forked)
    }

    /// How many tasks of the host it consists of: its vCPUs or processes.
    pub fn task_count(&self) -> usize {
        match &self.kind {
            WorkloadKind::Vm(Vm { vcpus: Vcpus::Guest { vcpus, .. }, .. }) => vcpus.len(),
            _ => self.programs().len(),
        }
    }
}

/// Some of the tasks of a workload, or all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Which {
    /// All.
    #[default]
    All,
    /// Those with these numbers in the workload, as vCPUs have.
    These(Vec<usize>),
}

impl Which {
    /// Whether a task is one of them.
    pub fn contains(&self, task: usize) -> bool {
        match self {
            Self::All => true,
            Self::These(tasks) => tasks.contains(&task),
        }
    }

    /// What is wrong with them as those of a workload of so many tasks, in words that follow its name.
    pub(super) fn problem(&self, task_count: usize) -> Option<String> {
        match self {
            Self::All => None,
            Self::These(tasks) if tasks.is_empty() => Some("names no task".into()),
            Self::These(tasks) => {
                let missing = tasks.iter().find(|task| **task >= task_count)?;
                Some(format!("names task {missing}, but there are {task_count}"))
            }
        }
    }
}

/// A change of the affinity of tasks of a workload during the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AffinityChange {
    /// When, ns since the start of the run.
    pub at_ns: u64,
    /// Whose.
    pub tasks: Which,
    /// Where they may run from then on.
    pub affinity: Affinity,
}

/// A source of interrupts that put tokens into a channel of its VM.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// The channel that gets a token with each interrupt.
    pub channel: usize,
    /// When they come.
    pub arrivals: Arrivals,
}

/// How interrupts of a source arrive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrivals {
    /// Independently of what the VM does, with this time between two.
    Open {
        /// Time between two arrivals.
        interval: Amount,
    },
    /// From clients that each send a request, await its answer, and think.
    Closed {
        /// Number of clients.
        clients: u32,
        /// From an answer to the next request.
        think: Amount,
    },
}
