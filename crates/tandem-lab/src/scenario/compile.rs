//! From the programs of a scenario file to the engine's, one VM or set of processes at a time.

use super::amount::{AmountForm, Count, check_time, count_in};
use super::program::{ComputeForm, CountForm, OpForm, ProgramTable, SendForm, each_op};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use tandem_file::file_error::FileError;
use tandem_file::located::{Located, SourceFile, quoted_list};
use tandem_sim::program::{Amount, CHANNEL_LINES_MAX, MemoryProfile, Op, Program};

/// Most operations in a row that take no time.
const MAX_INSTANT_OPS: u64 = 1_000_000;

/// The program that is being translated.
struct Within {
    /// The profile of its computing, by position in `profiles`.
    default: Option<usize>,
    /// The profiles that it uses.
    profiles: Vec<Arc<MemoryProfile>>,
    /// The place of its operations.
    ops: Range<usize>,
}

/// What the programs of a VM use.
pub struct Used {
    /// Number of channels that all of them share.
    pub channels: usize,
    /// Number of spin locks.
    pub locks: usize,
    /// Names of the counters.
    pub counters: Vec<String>,
}

/// What only the programs of a guest can name.
#[derive(Default)]
pub struct GuestNames<'a> {
    /// The programs that its tasks run, by number.
    pub programs: Vec<&'a str>,
    /// The channels that each process of the start has for itself and its descendants, by number.
    pub family_channels: Vec<&'a str>,
}

/// Names with the place in the file where each stands first.
type Places = BTreeMap<String, Range<usize>>;

/// Translates the programs of one VM or set of processes, and notes the names that they use: the engine knows
/// channels, locks and counters by number, in the order in which they first appear.
pub struct Compiler<'a> {
    source: &'a SourceFile,
    profiles: &'a BTreeMap<String, Arc<MemoryProfile>>,
    is_vm: bool,
    /// In a VM with a guest kernel.
    guest: Option<GuestNames<'a>>,
    channels: Vec<String>,
    locks: Vec<String>,
    counters: Vec<String>,
    /// Channels that something waits on.
    waits: Places,
    /// Channels from which something takes all tokens at once.
    empties: BTreeSet<String>,
    /// Channels that something signals.
    signals: Places,
    /// Locks that something takes.
    taken: Places,
    /// Locks that something gives back.
    given: Places,
    responds: bool,
}

impl<'a> Compiler<'a> {
    /// Nothing translated yet.
    pub fn new(
        source: &'a SourceFile,
        profiles: &'a BTreeMap<String, Arc<MemoryProfile>>,
        is_vm: bool,
    ) -> Self {
        Self {
            source,
            profiles,
            is_vm,
            guest: None,
            channels: Vec::new(),
            locks: Vec::new(),
            counters: Vec::new(),
            waits: Places::new(),
            empties: BTreeSet::new(),
            signals: Places::new(),
            taken: Places::new(),
            given: Places::new(),
            responds: false,
        }
    }

    /// Says that the programs to come run in a guest: these. Family channels have the numbers after those
    /// that the VM shares, so that the latter are numbered now.
    pub fn enter_guest(&mut self, names: GuestNames<'a>, programs: &[&'a ProgramTable]) {
        for table in programs {
            each_op(&table.ops, &mut |op| {
                if let OpForm::Wait(channel)
                | OpForm::WaitAll(channel)
                | OpForm::Signal(channel)
                | OpForm::SignalAll(channel)
                | OpForm::Send(SendForm { channel, .. }) = op
                    && !names.family_channels.contains(&channel.as_str())
                {
                    number_of(&mut self.channels, channel);
                }
            });
        }
        self.guest = Some(names);
    }

    /// The number of the channel that a source at this place of the file signals.
    ///
    /// # Errors
    /// If there is one such channel for each process; names the line.
    pub fn source_channel(&mut self, channel: &Located<String>) -> Result<usize, FileError> {
        if self.family_channel(channel).is_some() {
            let message = format!(
                "each process has a channel `{}` of its own; a source needs a channel of the VM",
                **channel
            );
            return Err(self.source.error(channel.span(), message));
        }
        Ok(self.signalled(channel))
    }

    /// The number of a channel that the place in the file signals.
    fn signalled(&mut self, channel: &Located<String>) -> usize {
        note(&mut self.signals, channel);
        self.channel(channel)
    }

    fn channel(&mut self, name: &str) -> usize {
        match self.family_channel(name) {
            Some(position) => self.channels.len() + position,
            None => number_of(&mut self.channels, name),
        }
    }

    fn family_channel(&self, name: &str) -> Option<usize> {
        self.guest.as_ref()?.family_channels.iter().position(|own| *own == name)
    }

    /// Whether a program takes all tokens of the channel at once.
    pub fn empties(&self, channel: &str) -> bool {
        self.empties.contains(channel)
    }

    /// Whether a program answers requests.
    pub fn responds(&self) -> bool {
        self.responds
    }

    /// What was used.
    ///
    /// # Errors
    /// If a channel is waited on that nothing signals, a lock is taken that nothing gives back, or the other
    /// way round; names the line.
    pub fn finish(self) -> Result<Used, FileError> {
        let check = |these: &Places, those: &Places, lack: &str| match these
            .iter()
            .find(|(name, _)| !those.contains_key(*name))
        {
            None => Ok(()),
            Some((name, span)) => {
                let only = match those.is_empty() {
                    true => String::new(),
                    false => format!(", only {}", quoted_list(those.keys().map(String::as_str))),
                };
                let these = if self.is_vm { "nothing in this VM" } else { "none of these processes" };
                let message = format!("{these} {lack} `{name}`{only}");
                Err(self.source.error(span.clone(), message))
            }
        };
        check(&self.waits, &self.signals, "signals channel")?;
        check(&self.signals, &self.waits, "waits on channel")?;
        check(&self.taken, &self.given, "unlocks")?;
        check(&self.given, &self.taken, "locks")?;
        Ok(Used { channels: self.channels.len(), locks: self.locks.len(), counters: self.counters })
    }

    /// The engine's form of a program.
    ///
    /// # Errors
    /// Names the line of an unknown profile or parameter, of a number out of range, of an endless loop that
    /// takes no time, and of what needs a guest kernel where there is none.
    pub fn program(&mut self, table: &ProgramTable) -> Result<Program, FileError> {
        let mut profiles = Vec::new();
        let default = match &table.profile {
            Some(name) => Some(self.profile(name, name.span(), &mut profiles)?),
            None => None,
        };
        let mut within = Within { default, profiles, ops: table.ops.span() };
        let ops = self.ops(&table.ops, &mut within)?;
        Ok(Program { ops, profiles: within.profiles })
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

    fn ops(&mut self, forms: &[OpForm], within: &mut Within) -> Result<Vec<Op>, FileError> {
        forms.iter().map(|form| self.op(form, within)).collect()
    }

    fn op(&mut self, form: &OpForm, within: &mut Within) -> Result<Op, FileError> {
        let source = self.source;
        let amount = |form: &AmountForm, span| form.amount().map_err(|message| source.error(span, message));
        Ok(match form {
            OpForm::Compute(form) => {
                let (work, profile) = match &**form {
                    ComputeForm::Plain(work) => (work, within.default),
                    ComputeForm::Profiled(own) => {
                        (&own.work, Some(self.profile(&own.profile, form.span(), &mut within.profiles)?))
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
                note(&mut self.waits, channel);
                Op::Wait { channel: self.channel(channel) }
            }
            OpForm::WaitAll(channel) => {
                note(&mut self.waits, channel);
                self.empties.insert((**channel).clone());
                Op::WaitAll { channel: self.channel(channel) }
            }
            OpForm::SignalAll(channel) => Op::SignalAll { channel: self.signalled(channel) },
            OpForm::Signal(channel) => Op::Signal { channel: self.signalled(channel) },
            OpForm::Send(SendForm { channel, capacity, message_lines, queue_lines }) => {
                let lines = |lines: &Option<Located<Count>>, what| match lines {
                    None => Ok(0),
                    Some(lines) => count_in(lines, what, 0..=CHANNEL_LINES_MAX, source),
                };
                Op::Send {
                    channel: self.signalled(channel),
                    capacity: count_in(capacity, "`capacity`", 1..=1_000_000, source)?,
                    resume_at: None,
                    message_lines: lines(message_lines, "`message_lines`")?,
                    queue_lines: lines(queue_lines, "`queue_lines`")?,
                }
            }
            OpForm::Lock(lock) => {
                self.guest_names("lock", lock.span())?;
                note(&mut self.taken, lock);
                Op::Lock { lock: number_of(&mut self.locks, lock) }
            }
            OpForm::Unlock(lock) => {
                self.guest_names("unlock", lock.span())?;
                note(&mut self.given, lock);
                Op::Unlock { lock: number_of(&mut self.locks, lock) }
            }
            OpForm::FlushTlbs => {
                self.guest_names("flush_tlbs", within.ops.clone())?;
                Op::FlushTlbs
            }
            OpForm::Fork(name) => Op::Fork { program: self.guest_program("fork", name)? },
            OpForm::Exec(name) => Op::Exec { program: self.guest_program("exec", name)? },
            OpForm::WaitChild => {
                self.guest_names("wait_child", within.ops.clone())?;
                Op::WaitChild
            }
            OpForm::WaitChildSignal => {
                self.guest_names("wait_child_signal", within.ops.clone())?;
                Op::WaitChildSignal
            }
            OpForm::Respond => {
                self.responds = true;
                Op::Respond
            }
            OpForm::Count(form) => {
                let (counter, amount) = match form {
                    CountForm::One(counter) => (counter, 1),
                    CountForm::Many(many) => (&many.counter, many.amount.number()),
                };
                Op::Count { counter: number_of(&mut self.counters, counter), amount }
            }
            OpForm::StartTimer => Op::StartTimer,
            OpForm::StopTimer => Op::StopTimer,
            OpForm::Yield => Op::Yield,
            OpForm::Repeat { times: count, body } => {
                let times = count.0;
                let op = Op::Repeat { times: Some(times), body: self.ops(body, within)? };
                self.check_takes_time(op, count.span())?
            }
            OpForm::Forever(body) => {
                let op = Op::Repeat { times: None, body: self.ops(body, within)? };
                self.check_takes_time(op, body.span())?
            }
        })
    }

    /// What a guest's programs can name; `operation` needs it.
    fn guest_names(&self, operation: &str, span: Range<usize>) -> Result<&GuestNames<'a>, FileError> {
        self.guest.as_ref().ok_or_else(|| {
            let lack = match self.is_vm {
                true => "which this VM lacks; give it a [vm.guest] with processes",
                false => "which processes of the host do not have",
            };
            self.source.error(span, format!("`{operation}` needs a guest kernel, {lack}"))
        })
    }

    fn guest_program(&self, operation: &str, name: &Located<String>) -> Result<usize, FileError> {
        let names = self.guest_names(operation, name.span())?;
        let position = names.programs.iter().position(|known| *known == name.as_str());
        Ok(position.expect("a guest has all programs that its programs name"))
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

/// Notes the place of a name, if it is the first.
fn note(places: &mut Places, name: &Located<String>) {
    places.entry((**name).clone()).or_insert(name.span());
}

/// The number of a name, added if it is new.
fn number_of(names: &mut Vec<String>, name: &str) -> usize {
    names.iter().position(|known| known == name).unwrap_or_else(|| {
        names.push(name.into());
        names.len() - 1
    })
}

/// Whether an operation can take time.
pub fn takes_time(op: &Op) -> bool {
    instant_ops(std::slice::from_ref(op)).is_none()
}

/// How many operations these are if they take no time; `None` if they can take some, or leave the program.
fn instant_ops(ops: &[Op]) -> Option<u64> {
    ops.iter().try_fold(0u64, |sum, op| {
        let steps = match op {
            Op::Compute { work: amount, .. } | Op::Sleep(amount) if longest(*amount) > 0 => return None,
            Op::Wait { .. }
            | Op::WaitAll { .. }
            | Op::Send { .. }
            | Op::WaitChild
            | Op::WaitChildSignal
            | Op::Exec { .. } => {
                return None;
            }
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
