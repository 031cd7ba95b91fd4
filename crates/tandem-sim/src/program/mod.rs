//! Programs: the operations of a task.
//!
//! A program is a list of [`Op`]s that the engine executes on behalf of a task. Operations that take CPU time
//! ([`Op::Compute`]) need the task to run; the others are instantaneous, or block the task until something
//! happens. When the list ends, the task exits; [`Op::Repeat`] makes programs that go on.
//!
//! A *channel* belongs to a VM and counts tokens, as a semaphore does: a token is a message, an interrupt or
//! a request of a client. Tasks wait on channels; tasks and interrupt sources signal them.
//!
//! A *gate* is machine-wide and opens once, for one task: what a program that was recorded waits for is one
//! thing that another did.

pub(crate) mod channel;
pub(crate) mod code;

pub use code::LOOP_DEPTH_MAX;

use std::sync::Arc;

/// How a task uses the caches and the memory while it computes.
///
/// Work is measured in ns on an undisturbed core of the reference machine: alone on the core, caches warm, no
/// waiting for memory.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct MemoryProfile {
    /// Bytes that the task uses again and again, and needs in the caches.
    pub footprint_bytes: u64,
    /// Work in which the footprint is touched once, ns.
    pub sweep_ns: u64,
    /// Cache lines per microsecond of work that come from memory, with the whole last-level cache to itself.
    pub memory_lines_per_us: f64,
    /// How much those misses shrink with the share of the cache: the exponent of a power law (0: streaming,
    /// no reuse; 0.5: the square-root rule).
    pub cache_sensitivity: f64,
    /// Misses that overlap: the latency that the task sees is divided by this. At least 1.
    pub parallelism: f64,
    /// Time that its work takes with a busy sibling thread, relative to alone on the core; that of the
    /// machine ([`crate::cost::Smt`]) if `None`. At least 1.
    pub smt_slowdown: Option<f64>,
    /// Data that it also shares with other tasks of its VM; `None` for none.
    pub shared: Option<SharedData>,
}

/// How a task uses data that tasks of its VM share, and that some of them write.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SharedData {
    /// The data set: a number within the VM, below [`SharedData::SETS_MAX`]. Those of different VMs are
    /// different.
    pub data: usize,
    /// Accesses to its cache lines that miss the private caches, per microsecond of work.
    pub lines_per_us: f64,
    /// Share of these that write, 0 to 1.
    pub write_share: f64,
}

impl SharedData {
    /// Most data sets of a VM.
    pub const SETS_MAX: usize = 100;
}

/// Most cache lines of a message, or of a channel's queue: 64 MB.
pub const CHANNEL_LINES_MAX: u32 = 1_000_000;

/// An amount of time or work, possibly drawn anew each time it is needed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    /// Always this, ns.
    Fixed(u64),
    /// Evenly between the two (both included), ns.
    Uniform(u64, u64),
    /// Exponential with this mean, ns.
    Exponential(u64),
}

impl Amount {
    /// Whether it is always 0.
    pub fn is_nothing(&self) -> bool {
        matches!(self, Self::Fixed(0) | Self::Uniform(_, 0) | Self::Exponential(0))
    }

    /// Changes each of its times, ns.
    pub fn each_ns(&mut self, mut change: impl FnMut(&mut u64)) {
        match self {
            Self::Fixed(ns) | Self::Exponential(ns) => change(ns),
            Self::Uniform(low_ns, high_ns) => {
                change(low_ns);
                change(high_ns);
            }
        }
    }
}

/// One operation of a program.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// Compute.
    Compute {
        /// Amount of work, ns on an undisturbed core.
        work: Amount,
        /// Memory profile by index in [`Program::profiles`]; `None` for registers and warm caches only.
        profile: Option<usize>,
    },
    /// Block for a time.
    Sleep(Amount),
    /// Block until this instant of the run, ns; continue at once if it is past.
    SleepUntil(u64),
    /// Take a token from a channel of the VM; block while there is none.
    Wait {
        /// Index of the channel.
        channel: usize,
    },
    /// Take all tokens that are in a channel of the VM, at least one; block while there is none. Of requests,
    /// [`Op::Respond`] answers the first alone.
    WaitAll {
        /// Index of the channel.
        channel: usize,
    },
    /// Put as many tokens into a channel of the VM as the last [`Op::WaitAll`] has taken, each waking one
    /// waiting task. This answers them: until the next `WaitAll`, another one puts none.
    SignalAll {
        /// Index of the channel.
        channel: usize,
    },
    /// Put a token into a channel of the VM, waking one waiting task.
    Signal {
        /// Index of the channel.
        channel: usize,
    },
    /// Write a message into a channel used as a pipe: block while it holds `capacity` tokens, then put one,
    /// telling the scheduler that the task is about to block.
    Send {
        /// Index of the channel.
        channel: usize,
        /// Most tokens in it, at least 1.
        capacity: u32,
        /// Number of tokens, below the capacity, at which all senders that found it full are woken, as with
        /// sockets; `None`: one sender for each token that is taken.
        resume_at: Option<u32>,
        /// Cache lines of the message, which the task has written and the one that takes it reads.
        message_lines: u32,
        /// Cache lines of the channel itself (its lock and lists), which every task writes that sends to it
        /// or waits on it.
        queue_lines: u32,
    },
    /// Take a spin lock of the VM; the task keeps its CPU busy until its turn comes. In a guest kernel only.
    Lock {
        /// Index of the lock.
        lock: usize,
    },
    /// Release the spin lock; the task that has waited longest gets it.
    Unlock {
        /// Index of the lock.
        lock: usize,
    },
    /// Interrupt every other CPU of the guest that runs a task of the same family (a process of the start and
    /// its descendants), and keep the CPU busy until all have answered: this is the cost of changing the
    /// memory map of a process with threads. In a guest kernel only.
    FlushTlbs,
    /// Start a new task, a child of this one. In a guest kernel only.
    Fork {
        /// Its program: index in [`crate::scenario::Guest::programs`].
        program: usize,
    },
    /// Continue with another program, and never return. In a guest kernel only.
    Exec {
        /// The program: index in [`crate::scenario::Guest::programs`].
        program: usize,
    },
    /// Block until a child ends, or take one that has ended and was not yet waited for. In a guest kernel
    /// only.
    WaitChild,
    /// The same for a program that handles the signal of a child's end, as shells and make do: the signal
    /// wakes it, and is not a synchronous wake-up by a child that is about to leave its CPU. In a guest
    /// kernel only.
    WaitChildSignal,
    /// Answer the request whose token was taken last: its response time is recorded, its client begins to
    /// think.
    Respond,
    /// Add to the work done.
    Count {
        /// Counter by index in [`crate::scenario::Workload::counters`].
        counter: usize,
        /// How much to add.
        amount: u64,
    },
    /// Start of a measured stretch.
    StartTimer,
    /// End of a measured stretch: the time since [`Op::StartTimer`] goes into the VM's response times.
    StopTimer,
    /// Run the body over and over.
    Repeat {
        /// How often; `None` for ever.
        times: Option<u64>,
        /// The operations to repeat.
        body: Vec<Op>,
    },
    /// Yield the CPU.
    Yield,
    /// Block until a gate is open.
    Pass {
        /// Index of the gate, below [`crate::scenario::Scenario::gates`]. One operation of the scenario passes
        /// it.
        gate: usize,
    },
    /// Open a gate for good, waking the task that waits for that.
    Open {
        /// Index of the gate.
        gate: usize,
        /// Tell the scheduler that the task is about to block.
        sync: bool,
    },
    /// Start a task of the same kernel, as a child of this one: one of the host that
    /// [starts so](crate::scenario::HostTask::is_forked), or one of the guest, which then does not run from the
    /// start. Not within a [`Op::Repeat`].
    StartTask {
        /// Its workload: index in [`crate::scenario::Scenario::workloads`]. In a guest, that of its VM.
        workload: usize,
        /// Its number in the workload; in a guest, among its [processes](crate::scenario::Guest::processes).
        task: usize,
    },
}

/// A program, shared by the tasks that run it.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Program {
    /// Its operations, in order.
    pub ops: Vec<Op>,
    /// The memory profiles that the operations refer to.
    pub profiles: Vec<Arc<MemoryProfile>>,
}
