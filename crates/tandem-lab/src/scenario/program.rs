//! Programs and memory profiles of a scenario file, and how they become the engine's.

use super::amount::{AmountForm, Count, Parameters, check_time};
use crate::file_error::FileError;
use crate::located::{Located, SourceFile, quoted_list};
use crate::units::{Duration, Size};
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use tandem_sim::program::{Amount, MemoryProfile, Op, Program};

/// Most operations in a row that take no time.
const MAX_INSTANT_OPS: u64 = 1_000_000;

/// How a program uses the caches and the memory while it computes.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProfileTable {
    /// What the program keeps using and wants in the caches, such as "2MiB".
    pub footprint: Size,
    /// Computing time in which it touches all of that once, such as "300us".
    pub sweep: Duration,
    /// Cache lines that come from memory per microsecond of computing, with the whole last-level cache to itself.
    pub memory_lines_per_us: Located<f64>,
    /// How far that falls with a larger share of the cache: the exponent of a power law. 0: not at all
    /// (streaming); 0.5: with the square root.
    pub cache_sensitivity: Located<f64>,
    /// Misses in flight at once: the program waits for memory this many times less. At least 1.
    pub parallelism: Located<f64>,
}

/// What a task does.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProgramTable {
    /// Memory profile of its computing; if absent, it lives in registers and warm caches.
    pub profile: Option<Located<String>>,
    /// The operations, in order. The task ends after the last.
    pub ops: Vec<OpForm>,
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
    /// Put a token into this channel of the VM, which wakes one waiting task.
    Signal(Located<String>),
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
    /// What to add.
    pub amount: u64,
}

impl ProfileTable {
    /// The engine's form.
    ///
    /// # Errors
    /// Names the line of a number out of range.
    pub fn profile(&self, source: &SourceFile) -> Result<MemoryProfile, FileError> {
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
            smt_slowdown: None,
        })
    }
}

/// The number of a name, added if it is new.
fn number_of(names: &mut Vec<String>, name: &str) -> usize {
    names.iter().position(|known| known == name).unwrap_or_else(|| {
        names.push(name.into());
        names.len() - 1
    })
}

/// Translates the programs of one VM, and notes the names that they use: the engine knows channels and counters
/// by number, in the order in which they first appear.
pub struct Compiler<'a> {
    source: &'a SourceFile,
    parameters: &'a Parameters,
    profiles: &'a BTreeMap<String, Arc<MemoryProfile>>,
    channels: Vec<String>,
    counters: Vec<String>,
    /// Channels that something waits on, with the place of the first wait.
    waits: BTreeMap<String, Range<usize>>,
    /// Channels that something signals, with the place of the first signal.
    signals: BTreeMap<String, Range<usize>>,
    responds: bool,
}

impl<'a> Compiler<'a> {
    /// Nothing translated yet.
    pub fn new(
        source: &'a SourceFile,
        parameters: &'a Parameters,
        profiles: &'a BTreeMap<String, Arc<MemoryProfile>>,
    ) -> Self {
        Self {
            source,
            parameters,
            profiles,
            channels: Vec::new(),
            counters: Vec::new(),
            waits: BTreeMap::new(),
            signals: BTreeMap::new(),
            responds: false,
        }
    }

    /// The number of a channel that the place in the file signals.
    pub fn signalled(&mut self, channel: &Located<String>) -> usize {
        self.signals.entry((**channel).clone()).or_insert(channel.span());
        number_of(&mut self.channels, channel)
    }

    /// Whether a program answers requests.
    pub fn responds(&self) -> bool {
        self.responds
    }

    /// The number of channels, and the names of the counters.
    ///
    /// # Errors
    /// If a channel is waited on that nothing signals, or the other way round; names the line.
    pub fn finish(self) -> Result<(usize, Vec<String>), FileError> {
        let check =
            |these: &BTreeMap<String, Range<usize>>, those: &BTreeMap<String, Range<usize>>, lack: &str| {
                match these.iter().find(|(channel, _)| !those.contains_key(*channel)) {
                    None => Ok(()),
                    Some((channel, span)) => {
                        let others = quoted_list(those.keys().map(String::as_str));
                        let message = format!("nothing in this VM {lack} channel `{channel}`, only {others}");
                        Err(self.source.error(span.clone(), message))
                    }
                }
            };
        check(&self.waits, &self.signals, "signals")?;
        check(&self.signals, &self.waits, "waits on")?;
        Ok((self.channels.len(), self.counters))
    }

    /// The engine's form of a program.
    ///
    /// # Errors
    /// Names the line of an unknown profile or parameter, of a number out of range, and of an endless loop that
    /// takes no time.
    pub fn program(&mut self, table: &ProgramTable) -> Result<Program, FileError> {
        let mut profiles = Vec::new();
        let default = match &table.profile {
            Some(name) => Some(self.profile(name, name.span(), &mut profiles)?),
            None => None,
        };
        let ops = self.ops(&table.ops, default, &mut profiles)?;
        Ok(Program { ops, profiles })
    }

    /// The position of a profile among those of the program, which it joins if it is new.
    fn profile(
        &self,
        name: &str,
        span: Range<usize>,
        profiles: &mut Vec<Arc<MemoryProfile>>,
    ) -> Result<usize, FileError> {
        let Some(profile) = self.profiles.get(name) else {
            let known = quoted_list(self.profiles.keys().map(String::as_str));
            let message = format!("there is no memory profile `{name}`; profiles under [profiles]: {known}");
            return Err(self.source.error(span, message));
        };
        let position = profiles.iter().position(|known| Arc::ptr_eq(known, profile));
        Ok(position.unwrap_or_else(|| {
            profiles.push(profile.clone());
            profiles.len() - 1
        }))
    }

    fn ops(
        &mut self,
        forms: &[OpForm],
        default: Option<usize>,
        profiles: &mut Vec<Arc<MemoryProfile>>,
    ) -> Result<Vec<Op>, FileError> {
        forms.iter().map(|form| self.op(form, default, profiles)).collect()
    }

    fn op(
        &mut self,
        form: &OpForm,
        default: Option<usize>,
        profiles: &mut Vec<Arc<MemoryProfile>>,
    ) -> Result<Op, FileError> {
        let source = self.source;
        let amount = |form: &AmountForm, span| form.amount().map_err(|message| source.error(span, message));
        Ok(match form {
            OpForm::Compute(form) => {
                let (work, profile) = match &**form {
                    ComputeForm::Plain(work) => (work, default),
                    ComputeForm::Profiled(own) => {
                        (&own.work, Some(self.profile(&own.profile, form.span(), profiles)?))
                    }
                };
                let work = amount(work, form.span())?;
                Op::Compute { work, profile }
            }
            OpForm::Sleep(time) => Op::Sleep(amount(time, time.span())?),
            OpForm::SleepUntil(instant) => {
                check_time(**instant).map_err(|message| source.error(instant.span(), message))?;
                Op::SleepUntil(instant.ns)
            }
            OpForm::Wait(channel) => {
                self.waits.entry((**channel).clone()).or_insert(channel.span());
                Op::Wait { channel: number_of(&mut self.channels, channel) }
            }
            OpForm::Signal(channel) => Op::Signal { channel: self.signalled(channel) },
            OpForm::Respond => {
                self.responds = true;
                Op::Respond
            }
            OpForm::Count(form) => {
                let (counter, amount) = match form {
                    CountForm::One(counter) => (counter, 1),
                    CountForm::Many(many) => (&many.counter, many.amount),
                };
                Op::Count { counter: number_of(&mut self.counters, counter), amount }
            }
            OpForm::StartTimer => Op::StartTimer,
            OpForm::StopTimer => Op::StopTimer,
            OpForm::Yield => Op::Yield,
            OpForm::Repeat { times: count, body } => {
                let times = count.resolve(self.parameters, source)?;
                let op = Op::Repeat { times: Some(times), body: self.ops(body, default, profiles)? };
                self.check_takes_time(op, count.span())?
            }
            OpForm::Forever(body) => {
                let op = Op::Repeat { times: None, body: self.ops(body, default, profiles)? };
                self.check_takes_time(op, body.span())?
            }
        })
    }

    /// Refuses a loop that would hold the clock for ever.
    fn check_takes_time(&self, op: Op, span: Range<usize>) -> Result<Op, FileError> {
        if instant_ops(std::slice::from_ref(&op)).is_some_and(|ops| ops > MAX_INSTANT_OPS) {
            let message = format!(
                "the loop takes no time; it needs a `compute` or `sleep` longer than nothing, a `wait`, or at most \
                 {MAX_INSTANT_OPS} operations"
            );
            return Err(self.source.error(span, message));
        }
        Ok(op)
    }
}

/// How many operations these are if they take no time; `None` if they take some.
fn instant_ops(ops: &[Op]) -> Option<u64> {
    ops.iter().try_fold(0u64, |sum, op| {
        let steps = match op {
            Op::Compute { work: amount, .. } | Op::Sleep(amount) if longest(*amount) > 0 => return None,
            Op::Wait { .. } => return None,
            Op::Repeat { times, body } => instant_ops(body)?.max(1).saturating_mul(times.unwrap_or(u64::MAX)),
            _ => 1,
        };
        Some(sum.saturating_add(steps))
    })
}

/// The longest that an amount can be, or its mean.
fn longest(amount: Amount) -> u64 {
    match amount {
        Amount::Fixed(ns) | Amount::Uniform(_, ns) | Amount::Exponential(ns) => ns,
    }
}
