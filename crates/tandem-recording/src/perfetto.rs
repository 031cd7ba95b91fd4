//! Recordings as traces for Perfetto: open them at <https://ui.perfetto.dev>.
//!
//! Events become those of the kernel's tracepoints, as Perfetto's own recorder writes them, so that its views
//! of CPUs and of threads with their states and wakers show a recording. Forks and the starts and ends of
//! programs are there as well, as are interrupts and timers; exits of guests are not, because Perfetto knows
//! those of one architecture only.
//!
//! A packet has the events of one CPU, at most [`BUNDLE`] of them, so the memory does not grow with the
//! recording.
//!
//! Source: Perfetto v59, `protos/perfetto/trace/perfetto_trace.proto`.

use crate::event::{Context, Event, Kind, Source, TaskState};
use crate::facts::{About, Task};
use crate::{Recording, ftrace::decode};
use std::io::{self, Write};
use tandem_file::protobuf::Message;

/// The number of the only writer of packets.
const SEQUENCE: u64 = 1;
/// Events of a packet.
const BUNDLE: usize = 1024;

/// The fields of the messages that are written and read.
pub(crate) mod field {
    pub mod trace {
        pub const PACKET: u64 = 1;
    }
    pub mod trace_packet {
        pub const FTRACE_EVENTS: u64 = 1;
        pub const PROCESS_TREE: u64 = 2;
        pub const TRUSTED_PACKET_SEQUENCE_ID: u64 = 10;
        pub const SYSTEM_INFO: u64 = 45;
        pub const COMPRESSED_PACKETS: u64 = 50;
    }
    pub mod system_info {
        pub const UTSNAME: u64 = 1;
        pub const NUM_CPUS: u64 = 8;
    }
    pub mod utsname {
        pub const SYSNAME: u64 = 1;
        pub const RELEASE: u64 = 3;
    }
    pub mod process_tree {
        pub const PROCESSES: u64 = 1;
        pub const THREADS: u64 = 2;
    }
    pub mod process {
        pub const PID: u64 = 1;
        pub const CMDLINE: u64 = 3;
        pub const IS_KTHREAD: u64 = 8;
    }
    pub mod thread {
        pub const TID: u64 = 1;
        pub const NAME: u64 = 2;
        pub const TGID: u64 = 3;
    }
    pub mod bundle {
        pub const CPU: u64 = 1;
        pub const EVENT: u64 = 2;
        pub const LOST_EVENTS: u64 = 3;
        pub const COMPACT_SCHED: u64 = 4;
        pub const FTRACE_CLOCK: u64 = 5;
    }
    pub mod compact_sched {
        pub const SWITCH_TIMESTAMP: u64 = 1;
        pub const SWITCH_PREV_STATE: u64 = 2;
        pub const SWITCH_NEXT_PID: u64 = 3;
        pub const SWITCH_NEXT_PRIO: u64 = 4;
        pub const INTERN_TABLE: u64 = 5;
        pub const SWITCH_NEXT_COMM_INDEX: u64 = 6;
        pub const WAKING_TIMESTAMP: u64 = 7;
        pub const WAKING_PID: u64 = 8;
        pub const WAKING_PRIO: u64 = 10;
        pub const WAKING_COMM_INDEX: u64 = 11;
        pub const WAKING_COMMON_FLAGS: u64 = 12;
    }
    pub mod ftrace_event {
        pub const TIMESTAMP: u64 = 1;
        pub const PID: u64 = 2;
        pub const SCHED_SWITCH: u64 = 4;
        pub const COMMON_FLAGS: u64 = 5;
        pub const SCHED_WAKEUP: u64 = 17;
        pub const SCHED_WAKING: u64 = 20;
        pub const SOFTIRQ_ENTRY: u64 = 24;
        pub const IRQ_HANDLER_ENTRY: u64 = 36;
        pub const SCHED_WAKEUP_NEW: u64 = 114;
        pub const SCHED_PROCESS_EXEC: u64 = 237;
        pub const SCHED_PROCESS_EXIT: u64 = 238;
        pub const SCHED_PROCESS_FORK: u64 = 239;
        pub const KVM_ENTRY: u64 = 376;
        pub const KVM_EXIT: u64 = 377;
        pub const KVM_VCPU_WAKEUP: u64 = 400;
        pub const HRTIMER_EXPIRE_ENTRY: u64 = 553;
        pub const TIMER_EXPIRE_ENTRY: u64 = 557;
    }
    pub mod switch {
        pub const PREV_COMM: u64 = 1;
        pub const PREV_PID: u64 = 2;
        pub const PREV_PRIO: u64 = 3;
        pub const PREV_STATE: u64 = 4;
        pub const NEXT_COMM: u64 = 5;
        pub const NEXT_PID: u64 = 6;
        pub const NEXT_PRIO: u64 = 7;
    }
    /// Fields of `sched_waking`, `sched_wakeup` and `sched_wakeup_new`.
    pub mod wake {
        pub const COMM: u64 = 1;
        pub const PID: u64 = 2;
        pub const PRIO: u64 = 3;
        pub const TARGET_CPU: u64 = 5;
    }
    pub mod fork {
        pub const PARENT_COMM: u64 = 1;
        pub const PARENT_PID: u64 = 2;
        pub const CHILD_COMM: u64 = 3;
        pub const CHILD_PID: u64 = 4;
    }
    pub mod exec {
        pub const FILENAME: u64 = 1;
        pub const PID: u64 = 2;
        pub const OLD_PID: u64 = 3;
    }
    pub mod exit {
        pub const COMM: u64 = 1;
        pub const PID: u64 = 2;
    }
    pub mod irq {
        pub const IRQ: u64 = 1;
        pub const NAME: u64 = 2;
    }
    pub mod softirq {
        pub const VEC: u64 = 1;
    }
    /// Fields of `hrtimer_expire_entry` and `timer_expire_entry`.
    pub mod timer {
        pub const FUNCTION: u64 = 3;
    }
    pub mod kvm_exit {
        pub const ESR_EC: u64 = 1;
    }
    pub mod kvm_vcpu_wakeup {
        pub const NS: u64 = 1;
        pub const WAITED: u64 = 3;
    }
}

/// The release of the kernel that is written if the recording does not know it: the first one whose states of
/// tasks have the numbers of [`state_bits`], by which Perfetto reads them.
const RELEASE: &str = "4.14.0";

impl Recording {
    /// Writes it as a trace for Perfetto.
    ///
    /// # Errors
    /// If the writer fails.
    pub fn write_perfetto(&self, out: impl Write) -> io::Result<()> {
        let mut packets = Packets { out, trace: Message::default(), packet: Message::default() };
        packets.system_info(&self.about)?;
        packets.process_tree(&self.about.tasks)?;
        let mut cpus: Vec<Bundle> = Vec::new();
        for event in &self.events {
            let cpu = event.cpu as usize;
            if cpus.len() <= cpu {
                cpus.resize_with(cpu + 1, Bundle::default);
            }
            let bundle = &mut cpus[cpu];
            bundle.add(event, &self.about);
            if bundle.events == BUNDLE {
                packets.bundle(event.cpu, bundle)?;
            }
        }
        for (cpu, bundle) in cpus.iter_mut().enumerate().filter(|(_, bundle)| bundle.events > 0) {
            packets.bundle(cpu as u32, bundle)?;
        }
        packets.out.flush()
    }
}

/// The writer of packets.
struct Packets<W> {
    out: W,
    trace: Message,
    packet: Message,
}

impl<W: Write> Packets<W> {
    /// Writes a packet with one message.
    fn send(&mut self, field: u64, message: &Message) -> io::Result<()> {
        self.packet
            .clear()
            .message(field, message)
            .number(field::trace_packet::TRUSTED_PACKET_SEQUENCE_ID, SEQUENCE);
        self.trace.clear().message(field::trace::PACKET, &self.packet);
        self.out.write_all(self.trace.as_bytes())
    }

    fn system_info(&mut self, about: &About) -> io::Result<()> {
        let release = if about.kernel.is_empty() { RELEASE } else { &about.kernel };
        let (mut uname, mut info) = (Message::default(), Message::default());
        uname.text(field::utsname::SYSNAME, "Linux").text(field::utsname::RELEASE, release);
        info.message(field::system_info::UTSNAME, &uname)
            .number(field::system_info::NUM_CPUS, about.cpus.into());
        self.send(field::trace_packet::SYSTEM_INFO, &info)
    }

    /// Processes and threads, as far as known.
    fn process_tree(&mut self, tasks: &[Task]) -> io::Result<()> {
        let (mut item, mut tree) = (Message::default(), Message::default());
        for task in tasks.iter().filter(|task| task.pid != 0) {
            item.clear();
            if task.tid == task.pid {
                item.number(field::process::PID, task.pid.into())
                    .text(
                        field::process::CMDLINE,
                        if task.process.is_empty() { &task.name } else { &task.process },
                    )
                    .number(field::process::IS_KTHREAD, task.is_kernel.into());
                tree.message(field::process_tree::PROCESSES, &item);
            } else {
                item.number(field::thread::TID, task.tid.into())
                    .text(field::thread::NAME, &task.name)
                    .number(field::thread::TGID, task.pid.into());
                tree.message(field::process_tree::THREADS, &item);
            }
        }
        self.send(field::trace_packet::PROCESS_TREE, &tree)
    }

    /// Writes the events of a CPU that wait.
    fn bundle(&mut self, cpu: u32, bundle: &mut Bundle) -> io::Result<()> {
        bundle.message.number(field::bundle::CPU, cpu.into());
        self.send(field::trace_packet::FTRACE_EVENTS, &bundle.message)?;
        bundle.message.clear();
        bundle.events = 0;
        Ok(())
    }
}

/// Events of a CPU.
#[derive(Default)]
struct Bundle {
    message: Message,
    events: usize,
    // Kept, so that events need no allocation.
    event: Message,
    what: Message,
}

impl Bundle {
    fn add(&mut self, event: &Event, about: &About) {
        let task = |at: u32| about.tasks.get(at as usize);
        let tid = |at| task(at).map_or(0, |task| u64::from(task.tid));
        let name = |at| task(at).map_or("swapper", |task| task.name.as_str());
        // A priority that is unknown is that of nice 0.
        let priority = |at| task(at).and_then(|task| task.priority).unwrap_or(120) as i64 as u64;
        let Self { what, .. } = self;
        what.clear();
        let mut flags = 0;
        let (field, runs) = match event.kind {
            Kind::Switch => {
                use field::switch::*;
                what.text(PREV_COMM, name(event.task))
                    .number(PREV_PID, tid(event.task))
                    .number(PREV_PRIO, priority(event.task))
                    .number(PREV_STATE, state_bits(event.state()))
                    .text(NEXT_COMM, name(event.other))
                    .number(NEXT_PID, tid(event.other))
                    .number(NEXT_PRIO, priority(event.other));
                (field::ftrace_event::SCHED_SWITCH, event.task)
            }
            Kind::Wake | Kind::WakeNew => {
                use field::wake::*;
                what.text(COMM, name(event.task))
                    .number(PID, tid(event.task))
                    .number(PRIO, priority(event.task))
                    .number(TARGET_CPU, event.cpu.into());
                if event.kind == Kind::WakeNew {
                    (field::ftrace_event::SCHED_WAKEUP_NEW, event.other)
                } else {
                    flags = decode::flags(event.context());
                    (field::ftrace_event::SCHED_WAKING, event.other)
                }
            }
            Kind::Fork => {
                use field::fork::*;
                what.text(PARENT_COMM, name(event.other))
                    .number(PARENT_PID, tid(event.other))
                    .text(CHILD_COMM, name(event.task))
                    .number(CHILD_PID, tid(event.task));
                (field::ftrace_event::SCHED_PROCESS_FORK, event.other)
            }
            Kind::Exec => {
                use field::exec::*;
                what.text(FILENAME, name(event.task))
                    .number(PID, tid(event.task))
                    .number(OLD_PID, tid(event.task));
                (field::ftrace_event::SCHED_PROCESS_EXEC, event.task)
            }
            Kind::Exit => {
                use field::exit::*;
                what.text(COMM, name(event.task)).number(PID, tid(event.task));
                (field::ftrace_event::SCHED_PROCESS_EXIT, event.task)
            }
            Kind::Interrupt => {
                flags = decode::flags(Context::Interrupt);
                let field = match event.source() {
                    Source::Device(number) => {
                        let device = about.devices.iter().find(|(device, _)| *device == number);
                        what.number(field::irq::IRQ, number.into())
                            .text(field::irq::NAME, device.map_or("", |(_, name)| name));
                        field::ftrace_event::IRQ_HANDLER_ENTRY
                    }
                    Source::Softirq(number) => {
                        flags = decode::flags(Context::SoftInterrupt);
                        what.number(field::softirq::VEC, number.into());
                        field::ftrace_event::SOFTIRQ_ENTRY
                    }
                    // Perfetto has addresses, for which there is no name here: the number stands for one.
                    Source::HrTimer(timer) => {
                        what.number(field::timer::FUNCTION, timer.into());
                        field::ftrace_event::HRTIMER_EXPIRE_ENTRY
                    }
                    Source::Timer(timer) => {
                        what.number(field::timer::FUNCTION, timer.into());
                        field::ftrace_event::TIMER_EXPIRE_ENTRY
                    }
                };
                (field, event.task)
            }
            Kind::HaltPoll => {
                what.number(field::kvm_vcpu_wakeup::NS, u64::from(event.detail) * 1_000);
                (field::ftrace_event::KVM_VCPU_WAKEUP, event.task)
            }
            Kind::GuestExit | Kind::GuestEnter => return,
        };
        let clock_ns = about.clock_start_ns.saturating_add(event.at_ns);
        self.event
            .clear()
            .number(field::ftrace_event::TIMESTAMP, clock_ns)
            .number(field::ftrace_event::PID, tid(runs));
        if flags != 0 {
            self.event.number(field::ftrace_event::COMMON_FLAGS, flags.into());
        }
        self.event.message(field, &self.what);
        self.message.message(field::bundle::EVENT, &self.event);
        self.events += 1;
    }
}

/// The bits of a state since Linux 4.14.
fn state_bits(state: TaskState) -> u64 {
    match state {
        TaskState::Runnable => 0,
        TaskState::Interruptible => 0x01,
        TaskState::Uninterruptible => 0x02,
        TaskState::Stopped => 0x04,
        TaskState::Dead => 0x10,
    }
}
