//! Traces for Perfetto: open them at <https://ui.perfetto.dev>.
//!
//! A trace is a list of packets, each a Protocol Buffers message. A track of the [timeline](super::timeline)
//! is a track of Perfetto's; those of the pCPUs are children of a track for the host, those of vCPUs of one
//! for their VM. A name is sent once; later packets refer to it by number. A wake-up is an instant on the
//! track of the waker, and an arrow from there to the next slice of the task that was woken.
//!
//! Source: Perfetto v59, `protos/perfetto/trace/perfetto_trace.proto`; documentation, "Converting custom data
//! to Perfetto".

use super::names::Names;
use super::output::Output;
use super::selection::Filter;
use super::timeline::{Mark, Timeline, Track};
use super::{TraceError, TracedRun};
use std::io::{self, Write};
use tandem_file::protobuf::Message;
use tandem_machine::ids::{KernelId, TaskId};
use tandem_sim::trace::{Event, Observer};

/// The fields of the messages that are written, and values of their enumerations.
mod field {
    pub mod trace {
        pub const PACKET: u64 = 1;
    }
    pub mod trace_packet {
        pub const TIMESTAMP: u64 = 8;
        pub const TRUSTED_PACKET_SEQUENCE_ID: u64 = 10;
        pub const TRACK_EVENT: u64 = 11;
        pub const INTERNED_DATA: u64 = 12;
        pub const SEQUENCE_FLAGS: u64 = 13;
        pub const SEQ_INCREMENTAL_STATE_CLEARED: u64 = 1;
        pub const SEQ_NEEDS_INCREMENTAL_STATE: u64 = 2;
        pub const TRACK_DESCRIPTOR: u64 = 60;
    }
    pub mod interned_data {
        pub const EVENT_NAMES: u64 = 2;
        pub const DEBUG_ANNOTATION_NAMES: u64 = 3;
    }
    /// The fields of both `EventName` and `DebugAnnotationName`.
    pub mod interned_name {
        pub const IID: u64 = 1;
        pub const NAME: u64 = 2;
    }
    pub mod track_descriptor {
        pub const UUID: u64 = 1;
        pub const NAME: u64 = 2;
        pub const PARENT_UUID: u64 = 5;
        pub const CHILD_ORDERING: u64 = 11;
        pub const CHILD_ORDERING_EXPLICIT: u64 = 3;
        pub const SIBLING_ORDER_RANK: u64 = 12;
        pub const DESCRIPTION: u64 = 14;
    }
    pub mod track_event {
        pub const DEBUG_ANNOTATIONS: u64 = 4;
        pub const TYPE: u64 = 9;
        pub const TYPE_SLICE_BEGIN: u64 = 1;
        pub const TYPE_SLICE_END: u64 = 2;
        pub const TYPE_INSTANT: u64 = 3;
        pub const NAME_IID: u64 = 10;
        pub const TRACK_UUID: u64 = 11;
        pub const FLOW_IDS: u64 = 47;
        pub const TERMINATING_FLOW_IDS: u64 = 48;
    }
    pub mod debug_annotation {
        pub const NAME_IID: u64 = 1;
        pub const UINT_VALUE: u64 = 3;
        pub const STRING_VALUE: u64 = 6;
    }
}

/// Annotations of a slice or a wake-up. The names are sent in the first packet.
#[derive(Clone, Copy)]
enum Note {
    CameFromCpu,
    Pcpu,
    End,
    Task,
    By,
}

impl Note {
    const ALL: [(Self, &str); 5] = [
        (Self::CameFromCpu, "came_from_cpu"),
        (Self::Pcpu, "pcpu"),
        (Self::End, "end"),
        (Self::Task, "task"),
        (Self::By, "by"),
    ];

    /// The number of its name, from 1.
    fn iid(self) -> u64 {
        1 + self as u64
    }
}

/// An observer that writes a Perfetto trace. Its memory does not grow with the length of the run.
pub struct PerfettoTrace<W> {
    names: Names,
    timeline: Timeline,
    writer: Packets<W>,
}

impl<W: Write> PerfettoTrace<W> {
    /// Begins the trace of a run.
    ///
    /// # Errors
    /// If the run has no such part as is to be traced.
    pub fn new(out: W, run: TracedRun) -> Result<Self, TraceError> {
        let filter = run.selection.filter(run.scenario).map_err(TraceError::Selection)?;
        let mut names = Names::new(run.scenario);
        let mut writer = Packets::new(out, &mut names);
        writer.tracks(run, &filter);
        let timeline = Timeline::new(run.scenario, filter, &mut names);
        Ok(Self { names, timeline, writer })
    }

    /// Ends the trace at the end of the run, and gives the writer back.
    ///
    /// # Errors
    /// The first one that the writer gave.
    pub fn finish(self, end_ns: u64) -> io::Result<W> {
        let Self { names, mut timeline, mut writer } = self;
        timeline.advance(end_ns, &names, |at_ns, mark| writer.mark(at_ns, mark, &names));
        timeline.finish(|mark| writer.mark(end_ns, mark, &names));
        writer.out.finish()
    }
}

impl<W: Write> Observer for PerfettoTrace<W> {
    fn observe(&mut self, event: Event) {
        let Self { names, timeline, writer } = self;
        timeline.advance(event.at_ns, names, |at_ns, mark| writer.mark(at_ns, mark, names));
        timeline.observe(event, names, |mark| writer.mark(event.at_ns, mark, names));
    }

    fn named(&mut self, at_ns: u64, kernel: KernelId, task: TaskId, name: &str) {
        if kernel != KernelId::HOST {
            let Self { names, timeline, writer } = self;
            timeline.advance(at_ns, names, |at_ns, mark| writer.mark(at_ns, mark, names));
            names.set(kernel, task, name);
            timeline.renamed(kernel, task, names, |mark| writer.mark(at_ns, mark, names));
        }
    }
}

/// The writer of packets.
struct Packets<W> {
    out: Output<W>,
    /// How many of the names have been sent.
    names_sent: usize,
    /// The number of the name of every wake-up.
    wake_iid: u64,
    // Kept, so that events need no allocation. Each is nested in the one above it.
    trace: Message,
    packet: Message,
    event: Message,
    note: Message,
}

/// The number of a name: in the order of first use, from 1.
fn iid(name: usize) -> u64 {
    1 + name as u64
}

/// The number of the track of a CPU: as on the timeline, from 1.
fn uuid(track: Track) -> u64 {
    1 + track.0 as u64
}

impl<W: Write> Packets<W> {
    fn new(out: W, names: &mut Names) -> Self {
        let mut packets = Self {
            out: Output::new(out),
            names_sent: 0,
            wake_iid: iid(names.intern("wake").index()),
            trace: Message::default(),
            packet: Message::default(),
            event: Message::default(),
            note: Message::default(),
        };
        packets.first();
        packets
    }

    /// The packet with which the numbering of names begins.
    fn first(&mut self) {
        self.event.clear();
        for (note, name) in Note::ALL {
            self.note
                .clear()
                .number(field::interned_name::IID, note.iid())
                .text(field::interned_name::NAME, name);
            self.event.message(field::interned_data::DEBUG_ANNOTATION_NAMES, &self.note);
        }
        self.packet
            .clear()
            .number(field::trace_packet::SEQUENCE_FLAGS, field::trace_packet::SEQ_INCREMENTAL_STATE_CLEARED)
            .message(field::trace_packet::INTERNED_DATA, &self.event);
        self.send();
    }

    /// Writes the traced tracks. The track of each CPU is a child of that of the host or of its VM; the numbers of
    /// these follow those of the CPUs.
    fn tracks(&mut self, run: TracedRun, filter: &Filter) {
        let scenario = run.scenario;
        let pcpus = scenario.machine.cpus();
        let vcpus: usize = scenario.workloads.iter().map(|workload| workload.task_count()).sum();
        let host = uuid(Track(pcpus.len() + vcpus));
        let description =
            format!("tandem {}: {} with seed {}", env!("CARGO_PKG_VERSION"), run.scenario_name, run.seed);
        self.parent(host, &format!("host {}", scenario.machine.name()), &description);
        for (rank, cpu) in pcpus.iter().enumerate().filter(|(rank, _)| filter.has_cpu((*rank).into())) {
            self.child(Track(rank), host, rank, &format!("CPU {}", cpu.os_index));
        }
        let mut first = pcpus.len();
        for ((number, vm), parent) in scenario.workloads.iter().enumerate().zip(host + 1..) {
            let track = first;
            first += vm.task_count();
            if !filter.has_vm(number) {
                continue;
            }
            let (what, each) = if vm.is_kernel() { ("threads", "thread") } else { ("VM", "vCPU") };
            self.parent(parent, &format!("{what} {}", vm.name), &format!("group {}", vm.group));
            for rank in 0..vm.task_count() {
                self.child(Track(track + rank), parent, rank, &format!("{each} {rank}"));
            }
        }
    }

    fn parent(&mut self, uuid: u64, name: &str, description: &str) {
        use field::track_descriptor::*;
        self.event
            .clear()
            .number(UUID, uuid)
            .text(NAME, name)
            .number(CHILD_ORDERING, CHILD_ORDERING_EXPLICIT)
            .text(DESCRIPTION, description);
        self.descriptor();
    }

    fn child(&mut self, track: Track, parent: u64, rank: usize, name: &str) {
        use field::track_descriptor::*;
        self.event
            .clear()
            .number(UUID, uuid(track))
            .text(NAME, name)
            .number(PARENT_UUID, parent)
            .number(SIBLING_ORDER_RANK, rank as u64);
        self.descriptor();
    }

    fn descriptor(&mut self) {
        self.packet.clear().message(field::trace_packet::TRACK_DESCRIPTOR, &self.event);
        self.send();
    }

    /// Writes a mark of this time.
    fn mark(&mut self, at_ns: u64, mark: Mark, names: &Names) {
        use field::track_event::*;
        self.send_new_names(names);
        self.event.clear();
        match mark {
            Mark::Begin { track, name, flow, came_from, pcpu } => {
                self.event
                    .number(TYPE, TYPE_SLICE_BEGIN)
                    .number(TRACK_UUID, uuid(track))
                    .number(NAME_IID, iid(name.index()));
                if let Some(flow) = flow {
                    self.event.fixed64(TERMINATING_FLOW_IDS, flow.0);
                }
                for (note, cpu) in [(Note::CameFromCpu, came_from), (Note::Pcpu, pcpu)] {
                    if let Some(cpu) = cpu {
                        self.note(note, |value| {
                            value.number(field::debug_annotation::UINT_VALUE, cpu.into())
                        });
                    }
                }
            }
            Mark::End { track, why } => {
                self.event.number(TYPE, TYPE_SLICE_END).number(TRACK_UUID, uuid(track));
                self.note(Note::End, |value| value.text(field::debug_annotation::STRING_VALUE, why));
            }
            Mark::Wake { track, task, by, flow } => {
                self.event
                    .number(TYPE, TYPE_INSTANT)
                    .number(TRACK_UUID, uuid(track))
                    .number(NAME_IID, self.wake_iid)
                    .fixed64(FLOW_IDS, flow.0);
                let task = names.text(task);
                self.note(Note::Task, |value| value.text(field::debug_annotation::STRING_VALUE, task));
                let by = by.map_or("an interrupt", |by| names.text(by));
                self.note(Note::By, |value| value.text(field::debug_annotation::STRING_VALUE, by));
            }
        }
        self.packet
            .clear()
            .number(field::trace_packet::TIMESTAMP, at_ns)
            .number(field::trace_packet::SEQUENCE_FLAGS, field::trace_packet::SEQ_NEEDS_INCREMENTAL_STATE)
            .message(field::trace_packet::TRACK_EVENT, &self.event);
        self.send();
    }

    fn note(&mut self, note: Note, value: impl FnOnce(&mut Message) -> &mut Message) {
        value(self.note.clear().number(field::debug_annotation::NAME_IID, note.iid()));
        self.event.message(field::track_event::DEBUG_ANNOTATIONS, &self.note);
    }

    /// Writes the numbers of new names.
    fn send_new_names(&mut self, names: &Names) {
        let texts = names.texts();
        if self.names_sent == texts.len() {
            return;
        }
        self.event.clear();
        for (name, text) in texts.iter().enumerate().skip(self.names_sent) {
            self.note
                .clear()
                .number(field::interned_name::IID, iid(name))
                .text(field::interned_name::NAME, text);
            self.event.message(field::interned_data::EVENT_NAMES, &self.note);
        }
        self.names_sent = texts.len();
        self.packet
            .clear()
            .number(field::trace_packet::SEQUENCE_FLAGS, field::trace_packet::SEQ_NEEDS_INCREMENTAL_STATE)
            .message(field::trace_packet::INTERNED_DATA, &self.event);
        self.send();
    }

    /// Writes the packet. All packets belong to one sequence, as if one thread had recorded them.
    fn send(&mut self) {
        self.packet.number(field::trace_packet::TRUSTED_PACKET_SEQUENCE_ID, 1);
        self.trace.clear().message(field::trace::PACKET, &self.packet);
        self.out.write(self.trace.as_bytes());
    }
}
