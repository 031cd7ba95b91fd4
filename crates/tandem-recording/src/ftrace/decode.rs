//! From the bytes of a record to what its tracepoint reports.

use super::format::{Field, Format};
use crate::error::TraceError;
use crate::event::{Context, TaskState};

/// When and where a tracepoint was hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The time of the trace's clock, ns.
    pub clock_ns: u64,
    /// The CPU.
    pub cpu: u32,
    /// What ran there, by the kernel's number; 0 is the idle task.
    pub tid: u32,
    /// On whose behalf.
    pub context: Context,
}

/// What a tracepoint reports. Numbers of tasks are the kernel's; names are as the kernel has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tracepoint<'a> {
    /// `sched_switch`.
    Switch {
        /// The task that leaves.
        previous: TaskSeen<'a>,
        /// How it leaves.
        state: TaskState,
        /// The one that comes.
        next: TaskSeen<'a>,
    },
    /// `sched_waking`: in the context of the waker.
    Waking(TaskSeen<'a>),
    /// `sched_wakeup`: when the task is on a run queue, which may be after an interrupt to its CPU.
    Wakeup(TaskSeen<'a>),
    /// `sched_wakeup_new`.
    WakeupNew(TaskSeen<'a>),
    /// `task_newtask`: before its fork is reported.
    NewTask {
        /// The new task.
        tid: u32,
        /// It is a thread of its parent's process.
        is_thread: bool,
    },
    /// `sched_process_fork`.
    Fork {
        /// Who forks.
        parent: u32,
        /// The new task.
        child: u32,
        /// Its name.
        name: &'a [u8],
    },
    /// `sched_process_exec`.
    Exec {
        /// The task's number from now on.
        tid: u32,
        /// Its number until now: another one if a process has threads, and one that is not its first
        /// executes.
        old_tid: u32,
    },
    /// `sched_process_exit`.
    Exit {
        /// The task.
        tid: u32,
    },
    /// `irq_handler_entry`.
    Interrupt {
        /// Its number.
        number: u32,
        /// The device's name.
        name: &'a [u8],
    },
    /// `softirq_entry`.
    Softirq {
        /// Its number.
        number: u32,
    },
    /// `hrtimer_expire_entry`.
    HrTimer {
        /// The address of the function that handles it.
        function: u64,
    },
    /// `timer_expire_entry`.
    Timer {
        /// The address of the function that handles it.
        function: u64,
    },
    /// `kvm_exit`.
    GuestExit {
        /// The reason, as the processor numbers it.
        reason: u32,
        /// The vCPU, if the kernel says which.
        vcpu: Option<u32>,
    },
    /// `kvm_entry`.
    GuestEnter {
        /// The vCPU, if the kernel says which.
        vcpu: Option<u32>,
    },
    /// `kvm_vcpu_wakeup`.
    VcpuWakeup {
        /// How long the vCPU has halted, ns.
        halted_ns: u64,
        /// It has blocked, after it had polled without success.
        has_blocked: bool,
    },
}

/// A task as a tracepoint reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskSeen<'a> {
    /// The kernel's number; 0 is the idle task.
    pub tid: u32,
    /// Its name, without a zero.
    pub name: &'a [u8],
    /// Its priority, if reported.
    pub priority: Option<i32>,
}

/// The tracepoints that are decoded, with their systems and fields. Those of names with a question mark may
/// be missing.
const KNOWN: &[(&str, &str, &[&str])] = &[
    (
        "sched",
        "sched_switch",
        &["prev_comm", "prev_pid", "prev_prio", "prev_state", "next_comm", "next_pid", "next_prio"],
    ),
    ("sched", "sched_waking", &["comm", "pid", "prio"]),
    ("sched", "sched_wakeup", &["comm", "pid", "prio"]),
    ("sched", "sched_wakeup_new", &["comm", "pid", "prio"]),
    ("sched", "sched_process_fork", &["parent_pid", "child_comm", "child_pid"]),
    ("sched", "sched_process_exec", &["pid", "old_pid"]),
    ("sched", "sched_process_exit", &["pid"]),
    ("task", "task_newtask", &["pid", "clone_flags"]),
    ("irq", "irq_handler_entry", &["irq", "name"]),
    ("irq", "softirq_entry", &["vec"]),
    ("timer", "hrtimer_expire_entry", &["function"]),
    ("timer", "timer_expire_entry", &["function"]),
    // The reason has another name on Arm, whose kernel does not name the vCPU.
    ("kvm", "kvm_exit", &["?exit_reason", "?esr_ec", "?vcpu_id"]),
    ("kvm", "kvm_entry", &["?vcpu_id"]),
    ("kvm", "kvm_vcpu_wakeup", &["ns", "waited"]),
];

/// The flag of clone(2).
const CLONE_THREAD: i64 = 0x1_0000;
/// Fields of the tracepoint that has most.
const FIELDS_MAX: usize = 7;

/// The tracepoints that a trace has, by number.
#[derive(Clone, Debug, Default)]
pub struct Formats {
    /// One more than the position in `known`, by number; 0 for those that are not decoded.
    by_id: Vec<u8>,
    known: Vec<Resolved>,
    states: States,
}

/// A tracepoint whose fields have been found.
#[derive(Clone, Debug)]
struct Resolved {
    /// Position in [`KNOWN`].
    which: usize,
    fields: [Option<Field>; FIELDS_MAX],
    tid: Field,
    flags: Field,
}

impl Formats {
    /// The tracepoints that are decoded: systems and names, by which they are enabled.
    pub fn known() -> impl Iterator<Item = (&'static str, &'static str)> {
        KNOWN.iter().map(|&(system, name, _)| (system, name))
    }

    /// Adds a tracepoint by the text of its `format` file. One that is not decoded is left out.
    ///
    /// # Errors
    /// If the text is not of that form, or lacks a field that is needed.
    pub fn add(&mut self, text: &str) -> Result<(), TraceError> {
        let format = Format::parse(text)?;
        let Some(which) = KNOWN.iter().position(|(_, name, _)| *name == format.name) else { return Ok(()) };
        let need = |name: &str| {
            format.field(name).cloned().ok_or_else(|| {
                TraceError::Unsupported(format!("has records of {} without the field `{name}`", format.name))
            })
        };
        let mut fields = [const { None }; FIELDS_MAX];
        for (place, name) in fields.iter_mut().zip(KNOWN[which].2) {
            *place = match name.strip_prefix('?') {
                Some(name) => format.field(name).cloned(),
                None => Some(need(name)?),
            };
        }
        let known = Resolved { which, fields, tid: need("common_pid")?, flags: need("common_flags")? };
        if format.name == "sched_switch" {
            self.states = States::parse(&format.print);
        }
        let id = usize::from(format.id);
        if self.by_id.len() <= id {
            self.by_id.resize(id + 1, 0);
        }
        // A tracepoint that comes twice replaces itself, so that a file cannot have too many of them.
        let at = self.known.iter().position(|known| known.which == which).unwrap_or(self.known.len());
        match self.known.get_mut(at) {
            Some(place) => *place = known,
            None => self.known.push(known),
        }
        self.by_id[id] = at as u8 + 1;
        Ok(())
    }

    /// Whether there is a tracepoint of a name.
    pub fn has(&self, name: &str) -> bool {
        self.known.iter().any(|known| KNOWN[known.which].1 == name)
    }

    /// Decodes a record. `None` if its tracepoint is not decoded, or it is shorter than its format says.
    pub fn decode<'a>(&self, clock_ns: u64, cpu: u32, record: &'a [u8]) -> Option<(Moment, Tracepoint<'a>)> {
        let id = u16::from_le_bytes(*record.first_chunk()?);
        let known = self.known.get(usize::from(self.by_id.get(usize::from(id))?.checked_sub(1)?))?;
        let flags = known.flags.number(record)? as u8;
        let moment = Moment { clock_ns, cpu, tid: known.tid.number(record)? as u32, context: context(flags) };
        Some((moment, known.tracepoint(record, &self.states)?))
    }
}

/// Bits of `enum trace_flag_type`. Those that Linux has changed mean other things.
mod flag {
    pub const HARDIRQ: u8 = 0x08;
    pub const SOFTIRQ: u8 = 0x10;
    pub const NMI: u8 = 0x40;
}

/// Where code ran, by `common_flags`.
pub(crate) fn context(flags: u8) -> Context {
    match flags {
        _ if flags & (flag::HARDIRQ | flag::NMI) != 0 => Context::Interrupt,
        _ if flags & flag::SOFTIRQ != 0 => Context::SoftInterrupt,
        _ => Context::Task,
    }
}

/// The `common_flags` of a context.
pub(crate) fn flags(context: Context) -> u8 {
    match context {
        Context::Task => 0,
        Context::SoftInterrupt => flag::SOFTIRQ,
        Context::Interrupt => flag::HARDIRQ,
    }
}

impl Resolved {
    fn tracepoint<'a>(&self, record: &'a [u8], states: &States) -> Option<Tracepoint<'a>> {
        let number = |at: usize| self.fields[at].as_ref()?.number(record);
        let text = |at: usize| self.fields[at].as_ref()?.text(record);
        let task = |name, tid, priority| {
            Some(TaskSeen {
                name: text(name)?,
                tid: number(tid)? as u32,
                priority: Some(number(priority)? as i32),
            })
        };
        Some(match KNOWN[self.which].1 {
            "sched_switch" => Tracepoint::Switch {
                previous: task(0, 1, 2)?,
                state: states.of(number(3)?),
                next: task(4, 5, 6)?,
            },
            "sched_waking" => Tracepoint::Waking(task(0, 1, 2)?),
            "sched_wakeup" => Tracepoint::Wakeup(task(0, 1, 2)?),
            "sched_wakeup_new" => Tracepoint::WakeupNew(task(0, 1, 2)?),
            "sched_process_fork" => {
                Tracepoint::Fork { parent: number(0)? as u32, name: text(1)?, child: number(2)? as u32 }
            }
            "task_newtask" => {
                Tracepoint::NewTask { tid: number(0)? as u32, is_thread: number(1)? & CLONE_THREAD != 0 }
            }
            "sched_process_exec" => Tracepoint::Exec { tid: number(0)? as u32, old_tid: number(1)? as u32 },
            "sched_process_exit" => Tracepoint::Exit { tid: number(0)? as u32 },
            "irq_handler_entry" => Tracepoint::Interrupt { number: number(0)? as u32, name: text(1)? },
            "softirq_entry" => Tracepoint::Softirq { number: number(0)? as u32 },
            "hrtimer_expire_entry" => Tracepoint::HrTimer { function: number(0)? as u64 },
            "timer_expire_entry" => Tracepoint::Timer { function: number(0)? as u64 },
            "kvm_exit" => Tracepoint::GuestExit {
                reason: number(0).or(number(1)).unwrap_or(0) as u32,
                vcpu: number(2).map(|vcpu| vcpu as u32),
            },
            "kvm_entry" => Tracepoint::GuestEnter { vcpu: number(0).map(|vcpu| vcpu as u32) },
            _ => Tracepoint::VcpuWakeup { halted_ns: number(0)? as u64, has_blocked: number(1)? != 0 },
        })
    }
}

/// What the bits of `prev_state` mean, which changed in Linux 4.14 and is in the format of `sched_switch`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct States(Vec<(i64, TaskState)>);

impl Default for States {
    /// Those since Linux 4.14.
    fn default() -> Self {
        Self(
            [
                (0x01, "S"),
                (0x02, "D"),
                (0x04, "T"),
                (0x08, "t"),
                (0x10, "X"),
                (0x20, "Z"),
                (0x40, "P"),
                (0x80, "I"),
            ]
            .into_iter()
            .filter_map(|(bit, letter)| Some((bit, state(letter)?)))
            .collect(),
        )
    }
}

/// The state of a letter, as the kernel prints it.
fn state(letter: &str) -> Option<TaskState> {
    Some(match letter {
        "S" => TaskState::Interruptible,
        "D" | "I" | "P" => TaskState::Uninterruptible,
        "T" | "t" => TaskState::Stopped,
        "X" | "Z" | "x" => TaskState::Dead,
        // Others add to one of these.
        _ => return None,
    })
}

impl States {
    /// Reads them from how `sched_switch` is printed, where they are as `{ 0x00000001, "S" }`.
    fn parse(print: &str) -> Self {
        let pairs = print.split('{').filter_map(|part| {
            let (bit, letter) = part.split_once('}')?.0.split_once(',')?;
            let bit = bit.trim();
            let bit = match bit.strip_prefix("0x") {
                Some(hexadecimal) => i64::from_str_radix(hexadecimal, 16).ok()?,
                None => bit.parse().ok()?,
            };
            Some((bit, state(letter.trim().trim_matches('"'))?))
        });
        match pairs.collect::<Vec<_>>() {
            none if none.is_empty() => Self::default(),
            pairs => Self(pairs),
        }
    }

    /// The state that bits mean. No bit is one that has been preempted, as is the bit that says so since
    /// Linux 4.14, for which there is no letter.
    pub fn of(&self, bits: i64) -> TaskState {
        let mut found = self.0.iter().filter(|(bit, _)| bits & bit != 0).map(|&(_, state)| state);
        let first = found.next().unwrap_or(TaskState::Runnable);
        found.fold(first, |most, state| if state as u32 > most as u32 { state } else { most })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_those_of_the_kernel_that_was_traced() {
        let new = States::default();
        assert_eq!(new.of(0), TaskState::Runnable);
        assert_eq!(new.of(0x100), TaskState::Runnable);
        assert_eq!(new.of(0x01), TaskState::Interruptible);
        assert_eq!(new.of(0x10), TaskState::Dead);
        assert_eq!(new.of(0x80), TaskState::Uninterruptible);
        // Before Linux 4.14, a zombie had the bit of those that are dead, and `K` was added to `D`.
        let old = States::parse(
            r#"REC->prev_state & 1024 ? "+" : "", __print_flags(REC->prev_state, "|", { 1, "S"} , { 2, "D" },
               { 4, "T" }, { 8, "t" }, { 16, "Z" }, { 32, "X" }, { 64, "x" }, { 128, "K" })"#,
        );
        assert_eq!(old.of(64), TaskState::Dead);
        assert_eq!(old.of(2 | 128), TaskState::Uninterruptible);
        assert_eq!(old.of(1024), TaskState::Runnable);
    }

    #[test]
    fn contexts_are_bits_of_the_flags() {
        assert_eq!(context(0x01 | 0x04 | 0x20 | 0x80), Context::Task);
        assert_eq!(context(0x10), Context::SoftInterrupt);
        assert_eq!(context(0x08 | 0x10), Context::Interrupt);
        assert_eq!(context(0x40), Context::Interrupt);
    }

    /// The head of each record, then fields of eight bytes.
    fn format(name: &str, id: u16, fields: &[&str]) -> String {
        let mut text = format!(
            "name: {name}\nID: {id}\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
             \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
             \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n"
        );
        for (at, field) in fields.iter().enumerate() {
            text.push_str(&format!("\tfield:u64 {field};\toffset:{};\tsize:8;\tsigned:0;\n", 8 + 8 * at));
        }
        text
    }

    #[test]
    fn vcpus_are_known_as_far_as_the_kernel_names_them() {
        let decoded = |name, fields: &[&str]| {
            let mut formats = Formats::default();
            formats.add(&format(name, 9, fields)).unwrap();
            let mut record = vec![9, 0, 0x08, 0, 77, 0, 0, 0];
            (0..fields.len() as u64).for_each(|at| record.extend((40 + at).to_le_bytes()));
            let (moment, point) = formats.decode(5, 3, &record).unwrap();
            assert_eq!(moment, Moment { clock_ns: 5, cpu: 3, tid: 77, context: Context::Interrupt });
            assert_eq!(formats.decode(5, 3, &record[..7]), None);
            format!("{point:?}")
        };
        // x86, and its older kernels; Arm.
        assert_eq!(
            decoded("kvm_exit", &["exit_reason", "guest_rip", "vcpu_id"]),
            "GuestExit { reason: 40, vcpu: Some(42) }"
        );
        assert_eq!(decoded("kvm_exit", &["exit_reason"]), "GuestExit { reason: 40, vcpu: None }");
        assert_eq!(decoded("kvm_exit", &["ret", "esr_ec"]), "GuestExit { reason: 41, vcpu: None }");
        assert_eq!(decoded("kvm_entry", &["vcpu_id", "rip"]), "GuestEnter { vcpu: Some(40) }");
        assert_eq!(
            decoded("kvm_vcpu_wakeup", &["ns", "waited", "valid"]),
            "VcpuWakeup { halted_ns: 40, has_blocked: true }"
        );
    }

    #[test]
    fn a_format_without_a_field_that_is_needed_is_refused() {
        let mut formats = Formats::default();
        formats.add("name: another\nID: 3\n").unwrap();
        let error = formats.add("name: softirq_entry\nID: 4\n").unwrap_err().to_string();
        assert_eq!(error, "has records of softirq_entry without the field `vec`");
        assert!(!formats.has("softirq_entry"));
        assert_eq!(formats.decode(0, 0, &[4, 0, 0, 0]), None);
    }
}
