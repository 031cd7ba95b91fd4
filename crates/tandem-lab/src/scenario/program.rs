//! Programs and memory profiles, as they are written in a scenario file.

use super::amount::{AmountForm, Count};
use schemars::JsonSchema;
use serde::Deserialize;
use tandem_file::file_error::FileError;
use tandem_file::located::{Located, SourceFile};
use tandem_file::units::{Duration, Size};
use tandem_sim::program::{MemoryProfile, SharedData};

/// How a program uses the caches and the memory while it computes.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProfileTable {
    /// What the program keeps using and wants in the caches, such as "2MiB".
    pub footprint: Size,
    /// Computing time in which it touches all of that once, such as "300us".
    pub sweep: Duration,
    /// Cache lines that come from memory per microsecond of computing, with the whole last-level cache to
    /// itself.
    pub memory_lines_per_us: Located<f64>,
    /// How far that falls with a larger share of the cache: the exponent of a power law. 0: not at all
    /// (streaming); 0.5: with the square root.
    pub cache_sensitivity: Located<f64>,
    /// Misses in flight at once: the program waits for memory this many times less. At least 1.
    pub parallelism: Located<f64>,
    /// Time that computing takes while a sibling thread is busy, against alone on the core. At least 1; that
    /// of the machine if absent.
    pub smt_slowdown: Option<Located<f64>>,
    /// Data that the program shares with other tasks of its VM.
    pub shared: Option<SharedTable>,
}

/// How a program uses data that tasks of a VM share. It stays in the last-level caches, and moves between
/// them when it is written.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SharedTable {
    /// Name of the data: profiles with the same name, in programs of the same VM, share it.
    pub data: String,
    /// Accesses to its cache lines that miss the private caches, per microsecond of computing.
    pub lines_per_us: Located<f64>,
    /// How many of these write, in percent.
    pub writes_pct: Located<f64>,
}

/// What a task does.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProgramTable {
    /// Memory profile of its computing; if absent, it lives in registers and warm caches.
    pub profile: Option<Located<String>>,
    /// The operations, in order. The task ends after the last.
    pub ops: Located<Vec<OpForm>>,
}

/// One operation.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum OpForm {
    /// Compute for this long: the time it takes alone on the machine with warm caches.
    Compute(Located<ComputeForm>),
    /// Sleep for a time.
    Sleep(Located<AmountForm>),
    /// Sleep until this time of the run; goes on at once if it is past.
    SleepUntil(Located<Duration>),
    /// Take a token from this channel of the VM; sleep while there is none.
    Wait(Located<String>),
    /// Take all tokens that are in this channel of the VM, at least one; sleep while there is none.
    WaitAll(Located<String>),
    /// Put a token into this channel of the VM, which wakes one waiting task.
    Signal(Located<String>),
    /// Put as many tokens into this channel of the VM as the last `wait_all` took, once.
    SignalAll(Located<String>),
    /// Write into a pipe: put a token into this channel once it holds fewer than its capacity.
    Send(SendForm),
    /// Take this spin lock of the VM, keeping the CPU busy until it is free. With a guest kernel only.
    Lock(Located<String>),
    /// Release this spin lock to the task that has waited longest. With a guest kernel only.
    Unlock(Located<String>),
    /// Interrupt every other vCPU that runs a task of the same family (a process of the start and its
    /// descendants), and keep the CPU busy until all have answered: what changing the memory map of a process
    /// with threads takes. With a guest kernel only.
    FlushTlbs,
    /// Start a task, a child of this one, that runs this program. With a guest kernel only.
    Fork(Located<String>),
    /// Go on as this program, which does not come back here. With a guest kernel only.
    Exec(Located<String>),
    /// Sleep until a child has ended that was not waited for yet. With a guest kernel only.
    WaitChild,
    /// The same by a program that handles the signal of a child's end, as shells and make do: the signal
    /// wakes it, and does not say that the child is about to leave its CPU. With a guest kernel only.
    WaitChildSignal,
    /// Answer the request taken last: its response time is recorded, and its client goes on to think.
    Respond,
    /// Add to the work done.
    Count(CountForm),
    /// Start of a measured stretch.
    StartTimer,
    /// End of a measured stretch: the time since "start_timer" is a response time.
    StopTimer,
    /// Do the operations of the body a number of times.
    Repeat {
        /// How often.
        times: Located<Count>,
        /// What to repeat.
        body: Vec<OpForm>,
    },
    /// Do these operations over and over.
    Forever(Located<Vec<OpForm>>),
    /// Let others have the CPU for now.
    Yield,
}

/// A channel used as a pipe.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SendForm {
    /// The channel.
    pub channel: Located<String>,
    /// Most tokens in it, at least 1.
    pub capacity: Located<Count>,
    /// Cache lines of the message, which the sender has written and the receiver reads; 0 if absent.
    pub message_lines: Option<Located<Count>>,
    /// Cache lines of the channel itself, its lock and lists, which all write that send to it or wait on it;
    /// 0 if absent.
    pub queue_lines: Option<Located<Count>>,
}

/// A time to compute, with the program's memory profile or another.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "expected a time with its unit such as \"100us\" (units: ns, us, ms, s), \
                 { uniform = [\"1ms\", \"2ms\"] }, { exponential = \"5ms\" }, \
                 or { work = one of these, profile = \"name\" }"
)]
pub enum ComputeForm {
    /// With the program's profile.
    Plain(AmountForm),
    /// With a profile of its own.
    Profiled(ProfiledCompute),
}

/// A time to compute with another memory profile than the program's.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProfiledCompute {
    /// How long.
    pub work: AmountForm,
    /// Name of the memory profile.
    pub profile: String,
}

/// Work done: the name of a counter, to add 1 to it, or a counter and an amount.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "expected the name of a counter, or a table such as { counter = \"bytes\", amount = 4096 }"
)]
pub enum CountForm {
    /// Adds 1 to this counter.
    One(String),
    /// Adds more.
    Many(CountMany),
}

/// A counter and what to add to it.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CountMany {
    /// The counter.
    pub counter: String,
    /// What to add: a whole number, or a time, which counts in ns.
    pub amount: CountAmount,
}

/// What to add to a counter.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "expected a whole number such as 4096, or a time such as \"150us\", which counts in ns"
)]
pub enum CountAmount {
    /// So many.
    Number(u64),
    /// So many ns.
    Time(Duration),
}

impl CountAmount {
    /// The number to add.
    pub fn number(self) -> u64 {
        match self {
            Self::Number(number) => number,
            Self::Time(time) => time.ns,
        }
    }
}

impl ProgramTable {
    /// Whether it waits on the channel, signals it or sends to it.
    pub fn uses_channel(&self, name: &str) -> bool {
        let mut uses = false;
        each_op(&self.ops, &mut |op| {
            uses |= match op {
                OpForm::Wait(channel)
                | OpForm::WaitAll(channel)
                | OpForm::Signal(channel)
                | OpForm::SignalAll(channel)
                | OpForm::Send(SendForm { channel, .. }) => **channel == *name,
                _ => false,
            }
        });
        uses
    }
}

impl ProfileTable {
    /// The engine's form, which knows shared data by its position among these names.
    ///
    /// # Errors
    /// Names the line of a number out of range.
    pub fn profile(&self, source: &SourceFile, shared_data: &[&str]) -> Result<MemoryProfile, FileError> {
        let checked = |value: &Located<f64>, name: &str, least: f64, most: f64| {
            if (least..=most).contains(&**value) {
                return Ok(**value);
            }
            let message = format!("`{name}` is {}; allowed are {least} to {most}", **value);
            Err(source.error(value.span(), message))
        };
        Ok(MemoryProfile {
            footprint_bytes: self.footprint.bytes,
            sweep_ns: self.sweep.ns,
            memory_lines_per_us: checked(&self.memory_lines_per_us, "memory_lines_per_us", 0.0, 1e6)?,
            cache_sensitivity: checked(&self.cache_sensitivity, "cache_sensitivity", 0.0, 10.0)?,
            parallelism: checked(&self.parallelism, "parallelism", 1.0, 1e3)?,
            smt_slowdown: match &self.smt_slowdown {
                None => None,
                Some(slowdown) => Some(checked(slowdown, "smt_slowdown", 1.0, 1e3)?),
            },
            shared: match &self.shared {
                None => None,
                Some(shared) => Some(SharedData {
                    data: shared_data.partition_point(|name| **name < *shared.data),
                    lines_per_us: checked(&shared.lines_per_us, "lines_per_us", 0.0, 1e6)?,
                    write_share: checked(&shared.writes_pct, "writes_pct", 0.0, 100.0)? / 100.0,
                }),
            },
        })
    }
}

/// Calls `f` with each operation, those inside of loops too.
pub fn each_op<'f>(forms: &'f [OpForm], f: &mut impl FnMut(&'f OpForm)) {
    for form in forms {
        f(form);
        if let OpForm::Repeat { body, .. } = form {
            each_op(body, f);
        } else if let OpForm::Forever(body) = form {
            each_op(body, f);
        }
    }
}
