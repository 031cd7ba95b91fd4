//! Traces of Perfetto with records of ftrace.
//!
//! Perfetto writes records of `sched_switch` and `sched_waking` as columns of numbers (`CompactSched`), or
//! one by one; both are read. A column says which task comes, not which one leaves: that is the one that came
//! before.
//!
//! **Limits.** The first switch of a CPU in a column is one from the idle task, because what ran is unknown.
//! Packets that are compressed are refused. Addresses of functions of timers have no names.
//!
//! Source: Perfetto v59, `protos/perfetto/trace/perfetto_trace.proto`.

use super::{Import, Known};
use crate::bytes::Bytes;
use crate::error::TraceError;
use crate::event::TaskState;
use crate::facts::{About, Lost};
use crate::file::CPUS_MAX;
use crate::ftrace::decode::{self, States, TaskSeen};
use crate::ftrace::{Moment, Tracepoint};
use crate::perfetto::field::{
    self, bundle, compact_sched, ftrace_event, process_tree, system_info, trace_packet,
};
use std::collections::{BTreeMap, HashMap};

/// A value of a field.
#[derive(Clone, Copy)]
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// Of fixed size: none of the fields that matter is.
    Fixed,
}

/// Calls a function with each field of a message.
fn fields<'a>(
    message: &'a [u8],
    mut each: impl FnMut(u64, Value<'a>) -> Result<(), TraceError>,
) -> Result<(), TraceError> {
    let mut rest = Bytes::new(message);
    while !rest.is_empty() {
        let at = rest.position();
        let key = rest.varint()?;
        let value = match key & 7 {
            0 => Value::Number(rest.varint()?),
            1 => rest.take(8).map(|_| Value::Fixed)?,
            2 => {
                let length = rest.varint()?;
                Value::Bytes(rest.take(length)?)
            }
            5 => rest.take(4).map(|_| Value::Fixed)?,
            other => return Err(TraceError::damaged(at, format!("a field has the type {other}"))),
        };
        each(key >> 3, value)?;
    }
    Ok(())
}

/// Whether bytes are the beginning of such a file: a packet whose fields can be read.
pub(super) fn is_perfetto(bytes: &[u8]) -> bool {
    let mut rest = Bytes::new(bytes);
    let packet = match (rest.varint(), rest.varint()) {
        (Ok(key), Ok(length)) if key == field::trace::PACKET << 3 | 2 => rest.take(length),
        _ => return false,
    };
    packet.is_ok_and(|packet| !packet.is_empty() && fields(packet, |_, _| Ok(())).is_ok())
}

/// A record, before it is known what ran on its CPU.
struct Found<'a> {
    clock_ns: u64,
    cpu: u32,
    what: What<'a>,
}

enum What<'a> {
    /// A message of its own.
    Event(&'a [u8]),
    /// A row of the columns of switches.
    Switch { state: TaskState, next: TaskSeen<'a> },
    /// A row of those of wake-ups.
    Waking { task: TaskSeen<'a>, flags: u8 },
}

/// What is known of the trace as a whole.
#[derive(Default)]
struct Trace<'a> {
    found: Vec<Found<'a>>,
    tasks: HashMap<u32, Known>,
    lost: BTreeMap<u32, u64>,
    kernel: String,
    cpus: u32,
    clock: &'static str,
    states: States,
}

/// Reads the file.
pub(super) fn read(bytes: &[u8]) -> Result<Import, TraceError> {
    let mut trace = Trace { clock: "boot", ..Trace::default() };
    fields(bytes, |number, value| match (number, value) {
        (field::trace::PACKET, Value::Bytes(packet)) => trace.packet(packet),
        _ => Ok(()),
    })?;
    trace.found.sort_by_key(|found| found.clock_ns);
    let lost = trace.lost.into_iter().map(|(cpu, events)| Lost { cpu, events }).collect();
    let about = About {
        recorder: "Perfetto".into(),
        kernel: trace.kernel,
        cpus: trace.cpus,
        clock: trace.clock.into(),
        lost,
        ..About::default()
    };
    let mut import = Import { about, known: trace.tasks, ..Import::default() };
    // What runs on each CPU, as far as the columns say.
    let mut current: HashMap<u32, TaskSeen> = HashMap::new();
    let idle = TaskSeen { tid: 0, name: b"", priority: None };
    for Found { clock_ns, cpu, what } in trace.found {
        let running = current.get(&cpu).copied().unwrap_or(idle);
        let mut moment = Moment { clock_ns, cpu, tid: running.tid, context: decode::context(0) };
        let point = match what {
            What::Event(event) => {
                let Some(point) = tracepoint(event, &mut moment, &trace.states)? else { continue };
                point
            }
            What::Switch { state, next } => Tracepoint::Switch { previous: running, state, next },
            What::Waking { task, flags } => {
                moment.context = decode::context(flags);
                Tracepoint::Waking(task)
            }
        };
        if let Tracepoint::Switch { next, .. } = point {
            current.insert(cpu, next);
        }
        import.push(&moment, &point)?;
    }
    Ok(import)
}

impl<'a> Trace<'a> {
    fn packet(&mut self, packet: &'a [u8]) -> Result<(), TraceError> {
        fields(packet, |number, value| match (number, value) {
            (trace_packet::FTRACE_EVENTS, Value::Bytes(bundle)) => self.bundle(bundle),
            (trace_packet::PROCESS_TREE, Value::Bytes(tree)) => self.process_tree(tree),
            (trace_packet::SYSTEM_INFO, Value::Bytes(info)) => self.system_info(info),
            (trace_packet::COMPRESSED_PACKETS, _) => Err(TraceError::Unsupported(
                "has compressed packets, which are not supported; record without compression_type".into(),
            )),
            _ => Ok(()),
        })
    }

    fn system_info(&mut self, info: &'a [u8]) -> Result<(), TraceError> {
        fields(info, |number, value| match (number, value) {
            (system_info::UTSNAME, Value::Bytes(uname)) => fields(uname, |number, value| {
                if let (field::utsname::RELEASE, Value::Bytes(release)) = (number, value) {
                    self.kernel = text(release);
                }
                Ok(())
            }),
            (system_info::NUM_CPUS, Value::Number(cpus)) => {
                self.cpus = cpus as u32;
                Ok(())
            }
            _ => Ok(()),
        })
    }

    fn process_tree(&mut self, tree: &'a [u8]) -> Result<(), TraceError> {
        fields(tree, |number, value| {
            let Value::Bytes(item) = value else { return Ok(()) };
            let (mut tid, mut known) = (0, Known::default());
            match number {
                process_tree::PROCESSES => {
                    fields(item, |number, value| {
                        match (number, value) {
                            (field::process::PID, Value::Number(pid)) => {
                                (tid, known.pid) = (pid as u32, pid as u32)
                            }
                            (field::process::CMDLINE, Value::Bytes(program)) if known.name.is_empty() => {
                                known.name = text(program);
                            }
                            (field::process::IS_KTHREAD, Value::Number(is)) => known.is_kernel = is != 0,
                            _ => {}
                        }
                        Ok(())
                    })?;
                    // A path is longer than a name.
                    if let Some((_, name)) = known.name.rsplit_once('/') {
                        known.name = name.into();
                    }
                }
                process_tree::THREADS => fields(item, |number, value| {
                    match (number, value) {
                        (field::thread::TID, Value::Number(number)) => tid = number as u32,
                        (field::thread::TGID, Value::Number(pid)) => known.pid = pid as u32,
                        (field::thread::NAME, Value::Bytes(name)) => known.name = text(name),
                        _ => {}
                    }
                    Ok(())
                })?,
                _ => return Ok(()),
            }
            self.tasks.insert(tid, known);
            Ok(())
        })
    }

    /// Records of one CPU, whose number may come after them.
    fn bundle(&mut self, bundle: &'a [u8]) -> Result<(), TraceError> {
        let (first, mut cpu, mut has_lost) = (self.found.len(), 0, false);
        fields(bundle, |number, value| {
            match (number, value) {
                (bundle::CPU, Value::Number(number)) => cpu = u32::try_from(number).unwrap_or(u32::MAX),
                (bundle::EVENT, Value::Bytes(event)) => {
                    let mut clock_ns = 0;
                    fields(event, |number, value| {
                        if let (ftrace_event::TIMESTAMP, Value::Number(time_ns)) = (number, value) {
                            clock_ns = time_ns;
                        }
                        Ok(())
                    })?;
                    self.found.push(Found { clock_ns, cpu: 0, what: What::Event(event) });
                }
                (bundle::LOST_EVENTS, Value::Number(lost)) => has_lost = lost != 0,
                (bundle::COMPACT_SCHED, Value::Bytes(columns)) => self.compact(columns)?,
                (bundle::FTRACE_CLOCK, Value::Number(clock)) => {
                    self.clock = match clock {
                        0 => "boot",
                        2 => "global",
                        3 => "local",
                        4 => "mono_raw",
                        _ => "",
                    };
                }
                _ => {}
            }
            Ok(())
        })?;
        if cpu >= CPUS_MAX {
            return Err(TraceError::Unsupported(format!(
                "has a CPU {cpu}; at most {CPUS_MAX} are supported"
            )));
        }
        self.found[first..].iter_mut().for_each(|found| found.cpu = cpu);
        if has_lost {
            // Perfetto does not say how many.
            *self.lost.entry(cpu).or_insert(0) += 1;
        }
        Ok(())
    }

    /// Rows of columns of numbers.
    fn compact(&mut self, columns: &'a [u8]) -> Result<(), TraceError> {
        let mut names: Vec<&[u8]> = Vec::new();
        let mut numbers: HashMap<u64, Vec<u64>> = HashMap::new();
        fields(columns, |number, value| {
            match value {
                Value::Bytes(name) if number == compact_sched::INTERN_TABLE => names.push(name),
                Value::Bytes(packed) => {
                    let mut packed = Bytes::new(packed);
                    let column = numbers.entry(number).or_default();
                    while !packed.is_empty() {
                        column.push(packed.varint()?);
                    }
                }
                Value::Number(value) => numbers.entry(number).or_default().push(value),
                Value::Fixed => {}
            }
            Ok(())
        })?;
        let column = |number| numbers.get(&number).map(Vec::as_slice).unwrap_or_default();
        let name = |index: u64| names.get(index as usize).copied().unwrap_or_default();
        let wrong = || TraceError::damaged(0, "columns of records of the scheduler have different lengths");
        use compact_sched::*;
        let times = column(SWITCH_TIMESTAMP);
        let rest = [SWITCH_PREV_STATE, SWITCH_NEXT_PID, SWITCH_NEXT_PRIO, SWITCH_NEXT_COMM_INDEX].map(column);
        if rest.iter().any(|column| column.len() != times.len()) {
            return Err(wrong());
        }
        // The first time is whole, each other one is the difference to the one before.
        let mut clock_ns = 0_u64;
        for (at, step_ns) in times.iter().enumerate() {
            clock_ns = clock_ns.wrapping_add(*step_ns);
            let [state, tid, priority, comm] = rest.map(|column| column[at]);
            let next = TaskSeen { tid: tid as u32, name: name(comm), priority: Some(priority as i32) };
            let what = What::Switch { state: self.states.of(state as i64), next };
            self.found.push(Found { clock_ns, cpu: 0, what });
        }
        let times = column(WAKING_TIMESTAMP);
        let rest = [WAKING_PID, WAKING_PRIO, WAKING_COMM_INDEX].map(column);
        // Older versions of Perfetto do not write flags.
        let flags = column(WAKING_COMMON_FLAGS);
        if rest.iter().any(|column| column.len() != times.len()) {
            return Err(wrong());
        }
        let mut clock_ns = 0_u64;
        for (at, step_ns) in times.iter().enumerate() {
            clock_ns = clock_ns.wrapping_add(*step_ns);
            let [tid, priority, comm] = rest.map(|column| column[at]);
            let task = TaskSeen { tid: tid as u32, name: name(comm), priority: Some(priority as i32) };
            let flags = flags.get(at).copied().unwrap_or(0) as u8;
            self.found.push(Found { clock_ns, cpu: 0, what: What::Waking { task, flags } });
        }
        Ok(())
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What a record reports, and what ran. `None` if it is of no tracepoint that is used.
fn tracepoint<'a>(
    event: &'a [u8],
    moment: &mut Moment,
    states: &States,
) -> Result<Option<Tracepoint<'a>>, TraceError> {
    let mut point = None;
    fields(event, |number, value| {
        match value {
            Value::Number(tid) if number == ftrace_event::PID => moment.tid = tid as u32,
            Value::Number(flags) if number == ftrace_event::COMMON_FLAGS => {
                moment.context = decode::context(flags as u8);
            }
            Value::Bytes(message) => {
                if let Some(found) = Message::read(message)?.tracepoint(number, states) {
                    point = Some(found);
                }
            }
            _ => {}
        }
        Ok(())
    })?;
    Ok(point)
}

/// The first fields of a message of a tracepoint. None that is used has more.
#[derive(Default)]
struct Message<'a> {
    numbers: [u64; 8],
    texts: [&'a [u8]; 8],
}

impl<'a> Message<'a> {
    fn read(message: &'a [u8]) -> Result<Self, TraceError> {
        let mut read = Self::default();
        fields(message, |number, value| {
            let at = usize::try_from(number).unwrap_or(usize::MAX);
            match value {
                Value::Number(value) => read.numbers.get_mut(at).into_iter().for_each(|place| *place = value),
                Value::Bytes(value) => read.texts.get_mut(at).into_iter().for_each(|place| *place = value),
                Value::Fixed => {}
            }
            Ok(())
        })?;
        Ok(read)
    }

    fn number(&self, field: u64) -> u64 {
        self.numbers[field as usize]
    }

    fn task(&self, name: u64, tid: u64, priority: u64) -> TaskSeen<'a> {
        TaskSeen {
            tid: self.number(tid) as u32,
            name: self.texts[name as usize],
            priority: Some(self.number(priority) as i32),
        }
    }

    fn tracepoint(&self, field: u64, states: &States) -> Option<Tracepoint<'a>> {
        use field::{exec, exit, fork, irq, kvm_exit, kvm_vcpu_wakeup, softirq, switch, timer, wake};
        let woken = || self.task(wake::COMM, wake::PID, wake::PRIO);
        Some(match field {
            ftrace_event::SCHED_SWITCH => Tracepoint::Switch {
                previous: self.task(switch::PREV_COMM, switch::PREV_PID, switch::PREV_PRIO),
                state: states.of(self.number(switch::PREV_STATE) as i64),
                next: self.task(switch::NEXT_COMM, switch::NEXT_PID, switch::NEXT_PRIO),
            },
            ftrace_event::SCHED_WAKING => Tracepoint::Waking(woken()),
            ftrace_event::SCHED_WAKEUP => Tracepoint::Wakeup(woken()),
            ftrace_event::SCHED_WAKEUP_NEW => Tracepoint::WakeupNew(woken()),
            ftrace_event::SCHED_PROCESS_FORK => Tracepoint::Fork {
                parent: self.number(fork::PARENT_PID) as u32,
                child: self.number(fork::CHILD_PID) as u32,
                name: self.texts[fork::CHILD_COMM as usize],
            },
            ftrace_event::SCHED_PROCESS_EXEC => Tracepoint::Exec {
                tid: self.number(exec::PID) as u32,
                old_tid: self.number(exec::OLD_PID) as u32,
            },
            ftrace_event::SCHED_PROCESS_EXIT => Tracepoint::Exit { tid: self.number(exit::PID) as u32 },
            ftrace_event::IRQ_HANDLER_ENTRY => Tracepoint::Interrupt {
                number: self.number(irq::IRQ) as u32,
                name: self.texts[irq::NAME as usize],
            },
            ftrace_event::SOFTIRQ_ENTRY => Tracepoint::Softirq { number: self.number(softirq::VEC) as u32 },
            ftrace_event::HRTIMER_EXPIRE_ENTRY => {
                Tracepoint::HrTimer { function: self.number(timer::FUNCTION) }
            }
            ftrace_event::TIMER_EXPIRE_ENTRY => Tracepoint::Timer { function: self.number(timer::FUNCTION) },
            ftrace_event::KVM_EXIT => {
                Tracepoint::GuestExit { reason: self.number(kvm_exit::ESR_EC) as u32, vcpu: None }
            }
            ftrace_event::KVM_ENTRY => Tracepoint::GuestEnter { vcpu: None },
            ftrace_event::KVM_VCPU_WAKEUP => Tracepoint::VcpuWakeup {
                halted_ns: self.number(kvm_vcpu_wakeup::NS),
                has_blocked: self.number(kvm_vcpu_wakeup::WAITED) != 0,
            },
            _ => return None,
        })
    }
}
