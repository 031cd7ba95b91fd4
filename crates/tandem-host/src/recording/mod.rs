//! Records what the kernel's scheduler does, on any kernel that can trace events.
//!
//! **Problem.** A machine may switch tasks some hundred thousand times a second. To record that, with what
//! woke each task, must take little of the time that the tasks need, a limited amount of memory, and must say
//! what it has missed.
//!
//! **Approach.** The kernel's own tracing writes events to a buffer for each CPU ([`tracefs`]). One thread
//! copies these buffers to a file without a name ([`pages`], [`spool`]); when the recording has ended, it
//! decodes them, brings the CPUs' events into one order, and writes the recording. Tasks, their cgroups and
//! VMs are counted before and after ([`census`]).
//!
//! | events | what for |
//! |---|---|
//! | `sched_switch` | which task runs where, and why it stops |
//! | `sched_waking`, `sched_wakeup_new` | which task becomes runnable, and what ran on the CPU that woke it |
//! | `sched_process_fork`, `_exec`, `_exit`, `task_newtask` | which tasks there are |
//! | `irq_handler_entry`, `softirq_entry`, `hrtimer_expire_entry`, `timer_expire_entry` | what wakes tasks that no task wakes |
//! | `kvm_vcpu_wakeup`, `kvm_exit` | vCPUs that halt, poll and spin |
//!
//! **Limits.** Two events come for each time that a task blocks: on a processor for which an event takes 100
//! ns, that is 1% of a CPU at 50,000 switches a second on it. The page of the book on recording has
//! measurements.

mod census;
mod pages;
mod settings;
mod spool;
#[cfg(test)]
mod testing;
mod tracefs;

use crate::scheduler::RunningKernel;
use census::{Census, Tasks};
use pages::PageReader;
use rustix::process::setpriority_process;
use rustix::time::{ClockId, clock_gettime};
use spool::{Spool, SpoolReader};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tandem_recording::file::EVENTS_MAX;
use tandem_recording::ftrace::{Formats, Merge, PageLayout, Symbols, Translator};
use tandem_recording::{About, Kind, Lost, NO_TASK, RecordingWriter, WriteError};
use thiserror::Error;
use tracefs::{Instance, Tracefs};

/// Buffer of a CPU unless the user sets another size, bytes: with 110 bytes for a switch and a wake-up, it
/// holds more than half a second of 100,000 switches a second.
const BUFFER_BYTES: u64 = 8 << 20;
/// Smallest buffer of a CPU, bytes.
const BUFFER_MIN: u64 = 64 << 10;
/// The share of the machine's memory that all buffers may take: one in so many.
const MEMORY_SHARE: u64 = 32;

/// Raw events after which a recording ends, bytes: those of the shortest record, of a softirq, would be as
/// many as a recording may have.
const RAW_MAX: u64 = 16 * EVENTS_MAX as u64;
/// The kernel's name of the clock of events: all CPUs share it, and other programs can read it.
const CLOCK: &str = "mono";
/// How far from the time that this process reads an event may be, ns: it has its time before it is complete,
/// and the kernel reads the clock in a way that is quicker and less exact.
const UNCERTAINTY_NS: u64 = 1_000_000;
/// The nice value of the recorder's thread while it records.
const NICE: i32 = -10;

/// Events without which a recording says nothing.
const NEEDED: [&str; 5] =
    ["sched_switch", "sched_waking", "sched_wakeup_new", "sched_process_fork", "sched_process_exit"];
/// Softirqs whose handlers wake tasks: TIMER, NET_TX, NET_RX, BLOCK, TASKLET and HRTIMER of the kernel's
/// `include/linux/interrupt.h`. SCHED and RCU are as frequent as ticks.
const SOFTIRQS: &str = "vec == 1 || vec == 2 || vec == 3 || vec == 4 || vec == 6 || vec == 8";
/// Exits of guests that halt or spin: HLT and PAUSE of VMX (`isa` is 1) and SVM (2), in the kernel's
/// `arch/x86/include/uapi/asm/vmx.h` and `svm.h`.
const IDLE_EXITS: &str = "(isa == 1 && (exit_reason == 12 || exit_reason == 40)) || \
    (isa == 2 && (exit_reason == 0x78 || exit_reason == 0x77))";

/// Why a machine cannot be recorded. Each message is one sentence: what is wrong, and what to do.
#[derive(Debug, Error)]
pub enum RecordingError {
    /// The user is not root.
    #[error(
        "recording a machine needs root, because the kernel shows its scheduling events to nobody else; run it with sudo"
    )]
    NotRoot,
    /// Root in a container, or a kernel that is locked down.
    #[error(
        "the kernel does not let this process see its scheduling events; run it outside of containers, with \
         CAP_SYS_ADMIN, and without kernel lockdown in confidentiality mode"
    )]
    Refused,
    /// The kernel was built without tracing.
    #[error(
        "this kernel has no event tracing; it needs CONFIG_FTRACE=y and CONFIG_SCHED_TRACER=y or another tracer"
    )]
    NoTracing,
    /// The file system is not mounted, and this process cannot mount it for itself.
    #[error("tracefs is not mounted: {cause}; run `mount -t tracefs tracefs /sys/kernel/tracing`")]
    NotMounted {
        /// The system's error.
        cause: io::Error,
    },
    /// The kernel does not have an event.
    #[error("this kernel has no event `{event}`, which a recording needs")]
    NoEvent {
        /// Its name.
        event: &'static str,
    },
    /// A file of the kernel's tracing.
    #[error("{}: {cause}", path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
    /// The buffer of a CPU.
    #[error("the events of CPU {cpu} cannot be read: {cause}")]
    Buffer {
        /// The kernel's number of the CPU.
        cpu: u32,
        /// The system's error.
        cause: io::Error,
    },
    /// The recording itself.
    #[error("the recording cannot be made: {cause}")]
    Write {
        /// What is wrong with it, or with its file.
        cause: WriteError,
    },
    /// The file in which events wait to be decoded.
    #[error("the folder of the recording has no room for its raw events: {cause}")]
    Spool {
        /// The system's error.
        cause: io::Error,
    },
}

impl RecordingError {
    fn not_permitted() -> Self {
        if rustix::process::geteuid().is_root() { Self::Refused } else { Self::NotRoot }
    }

    fn file(path: &Path, cause: io::Error) -> Self {
        match cause.kind() {
            io::ErrorKind::PermissionDenied => Self::not_permitted(),
            _ => Self::File { path: path.to_owned(), cause },
        }
    }

    fn write(cause: impl Into<WriteError>) -> Self {
        Self::Write { cause: cause.into() }
    }

    fn spool(cause: io::Error) -> Self {
        Self::Spool { cause }
    }
}

/// What to record, and how.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Size of the buffer of each CPU, bytes; `None` for one that suits most machines.
    pub buffer_bytes: Option<u64>,
    /// Record all entries and exits of guests, rather than those exits in which they halt or spin.
    pub all_guest_exits: bool,
}

/// A machine that is being recorded. Dropping it ends that, and removes what it has set up in the kernel.
///
/// Its fields are dropped in their order: files of the instance are closed before the kernel removes it, and
/// that is before the file system is gone.
#[derive(Debug)]
pub struct Recorder {
    root: PathBuf,
    census: Census,
    before: Tasks,
    about: About,
    formats: Formats,
    layout: PageLayout,
    spool: Spool,
    reader: PageReader,
    instance: Instance,
    /// Keeps the mount of this process.
    _tracefs: Tracefs,
    page_size: usize,
    start: Instant,
    last_round: Instant,
}

impl Recorder {
    /// Sets up everything, and begins to record. The root is `/` for this machine; the folder is that of the
    /// file that will have the recording.
    ///
    /// # Errors
    /// If this process may not do that, or the kernel cannot.
    pub fn start(root: &Path, folder: &Path, options: Options) -> Result<Self, RecordingError> {
        let tracefs = Tracefs::open(root)?;
        tracefs.remove_stale(root);
        let instance = tracefs.make_instance(std::process::id())?;
        instance.set("tracing_on", "0")?;
        // The kernel would remember the name of each task that runs, at a fifth of the cost of a switch;
        // events have the names. Others' events need it, and would lose it.
        if !tracefs.is_in_use(&instance) {
            let _ = instance.set("trace_options", "norecord-cmd");
        }
        instance.set("trace_clock", CLOCK)?;
        let mut census = Census::new(root);
        let before = census.count();
        let page_size = page_size(&instance);
        let cpus = instance.open_pages()?.len() as u64;
        let buffer_bytes = buffer_bytes(root, cpus, options.buffer_bytes);
        instance.set("buffer_size_kb", &(buffer_bytes >> 10).to_string())?;
        let spool = Spool::create(folder).map_err(RecordingError::spool)?;
        let reader = PageReader::open(&instance, page_size, buffer_bytes)?;
        let layout = instance.read("events/header_page").unwrap_or_default();
        let layout = PageLayout::parse(&layout).map_err(RecordingError::write)?;
        let formats = enable_events(&instance, !census.vms.is_empty(), options.all_guest_exits)?;
        let about = About {
            recorder: concat!("tandem ", env!("CARGO_PKG_VERSION")).into(),
            kernel: RunningKernel::new(root).release(),
            scheduler: settings::read_settings(root),
            cpus: reader.cpus().max().map_or(0, |last| last + 1),
            clock: CLOCK.into(),
            ..About::default()
        };
        let start = Instant::now();
        let mut recorder = Self {
            root: root.to_owned(),
            census,
            before,
            about,
            formats,
            layout,
            spool,
            reader,
            instance,
            _tracefs: tracefs,
            page_size,
            start,
            last_round: start,
        };
        recorder.begin()?;
        Ok(recorder)
    }

    fn begin(&mut self) -> Result<(), RecordingError> {
        self.about.clock_start_ns = now_ns();
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.about.started_unix_ns = u64::try_from(since_1970.as_nanos()).ok();
        self.start = Instant::now();
        self.last_round = self.start;
        self.instance.set("tracing_on", "1")
    }

    /// Records for as long as `pause` returns true: it waits for the time that it is given, or less. When
    /// this returns, nothing is left of it in the kernel.
    ///
    /// # Errors
    /// If events cannot be read or stored.
    pub fn record(
        mut self,
        mut pause: impl FnMut(Duration, &Self) -> bool,
    ) -> Result<Recorded, RecordingError> {
        // It has little to do and must do it in time. A command that was started before does not inherit
        // this.
        let _ = setpriority_process(None, NICE);
        loop {
            let goes_on = self.spool.bytes < RAW_MAX && pause(self.reader.sleep, &self);
            if !goes_on {
                self.instance.set("tracing_on", "0")?;
                self.about.length_ns = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
            }
            let since = self.last_round.elapsed();
            self.last_round = Instant::now();
            self.reader.read_round(&mut self.spool, now_ns(), since)?;
            if !goes_on {
                break;
            }
        }
        let _ = setpriority_process(None, 0);
        self.about.lost = self.lost();
        let after = self.census.count();
        // Last, because it takes long; modules may have come meanwhile.
        let functions = std::fs::read(self.root.join("proc/kallsyms")).unwrap_or_default();
        Ok(Recorded {
            is_full: self.spool.bytes >= RAW_MAX,
            formats: self.formats,
            layout: self.layout,
            symbols: Symbols::from_kallsyms(&String::from_utf8_lossy(&functions)),
            page_size: self.page_size,
            spool: self.spool.finish().map_err(RecordingError::spool)?,
            before: self.before,
            after,
            about: About { cgroups: self.census.cgroups, vms: self.census.vms, ..self.about },
        })
    }

    /// How long it has recorded so far.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Bytes of raw events so far.
    pub fn raw_bytes(&self) -> u64 {
        self.spool.bytes
    }

    fn lost(&self) -> Vec<Lost> {
        let of = |cpu| Lost { cpu, events: self.instance.lost(cpu) };
        self.reader.cpus().map(of).filter(|lost| lost.events > 0).collect()
    }
}

/// What was recorded, as the kernel wrote it.
#[derive(Debug)]
pub struct Recorded {
    is_full: bool,
    formats: Formats,
    layout: PageLayout,
    symbols: Symbols,
    page_size: usize,
    spool: SpoolReader,
    before: Tasks,
    after: Tasks,
    about: About,
}

/// What a recording has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// How many events.
    pub events: u64,
    /// Of how many tasks.
    pub tasks: usize,
    /// How long it took.
    pub length: Duration,
    /// Events that were lost.
    pub lost: Vec<Lost>,
    /// It ended because it could have no more events.
    pub is_full: bool,
}

impl Recorded {
    /// Decodes the events, and writes the recording, with the machine as a machine file.
    ///
    /// # Errors
    /// If the writer fails, or the kernel's events are not as their formats say.
    pub fn write<W: Write>(self, machine: Option<String>, out: W) -> Result<(W, Summary), RecordingError> {
        let Self { is_full, formats, layout, symbols, page_size, mut spool, before, after, mut about } = self;
        let knows_threads = formats.has("task_newtask");
        let mut merge = Merge::new(formats, layout);
        let mut translator = Translator::new(symbols);
        translator.start_at(about.clock_start_ns);
        let mut writer = RecordingWriter::new(out).map_err(RecordingError::write)?;
        let mut forked_by: Vec<u32> = Vec::new();
        let mut release = |merge: &mut Merge, translator: &mut Translator, before_ns| {
            merge.release(before_ns, |moment, point| {
                let Some(event) = translator.translate(moment, point)? else { return Ok(()) };
                if event.kind == Kind::Fork && event.task != NO_TASK {
                    let task = event.task as usize;
                    forked_by.resize(forked_by.len().max(task + 1), NO_TASK);
                    forked_by[task] = event.other;
                }
                writer.push(event)
            })
        };
        loop {
            let mut damaged = None;
            let take = |cpu, page: Vec<u8>| {
                damaged = merge.push(cpu, page).err().or(damaged.take());
                Ok(())
            };
            let began_ns = spool.next_round(page_size, take).map_err(RecordingError::spool)?;
            if let Some(error) = damaged {
                return Err(RecordingError::write(error));
            }
            // A page may have an event of a moment ago that was not complete when the one before was read.
            let safe_ns = began_ns.map_or(u64::MAX, |began_ns| began_ns.saturating_sub(UNCERTAINTY_NS));
            release(&mut merge, &mut translator, safe_ns).map_err(RecordingError::write)?;
            if began_ns.is_none() {
                break;
            }
        }
        translator.finish(&mut about);
        about.machine = machine;
        add_losses(&mut about.lost, merge.lost());
        census::complete(&mut about.tasks, &forked_by, knows_threads, before, after);
        let summary = Summary {
            events: writer.events(),
            tasks: about.tasks.len(),
            length: Duration::from_nanos(about.length_ns),
            lost: about.lost.clone(),
            is_full,
        };
        Ok((writer.finish(&about).map_err(RecordingError::write)?, summary))
    }
}

/// Pages say where events were lost, the kernel's statistics how many: the larger number is right.
fn add_losses(lost: &mut Vec<Lost>, of_pages: Vec<Lost>) {
    for found in of_pages {
        match lost.iter_mut().find(|known| known.cpu == found.cpu) {
            Some(known) => known.events = known.events.max(found.events),
            None => lost.push(found),
        }
    }
    lost.sort_by_key(|lost| lost.cpu);
}

/// The events to enable of those that can be decoded, and their formats.
fn enable_events(
    instance: &Instance,
    has_vms: bool,
    all_guest_exits: bool,
) -> Result<Formats, RecordingError> {
    let mut formats = Formats::default();
    for (system, name) in Formats::known() {
        let filter = match name {
            // `sched_waking` says the same, and who woke the task.
            "sched_wakeup" => continue,
            "softirq_entry" => Some(SOFTIRQS),
            "kvm_exit" if all_guest_exits => None,
            "kvm_exit" if has_vms => Some(IDLE_EXITS),
            "kvm_entry" if all_guest_exits => None,
            "kvm_exit" | "kvm_entry" => continue,
            _ => None,
        };
        // Kernels differ in these, and a module may have them.
        let Some(format) = instance.read(&format!("events/{system}/{name}/format")) else { continue };
        if instance.enable(&format!("{system}/{name}"), filter) {
            formats.add(&format).map_err(RecordingError::write)?;
        }
    }
    match NEEDED.into_iter().find(|event| !formats.has(event)) {
        None => Ok(formats),
        Some(event) => Err(RecordingError::NoEvent { event }),
    }
}

/// The time of the events' clock.
fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// The size of the kernel's pages of events.
fn page_size(instance: &Instance) -> usize {
    // As in `field: char data; offset:16; size:4080; signed:0;`.
    let text = instance.read("events/header_page").unwrap_or_default();
    let number = |line: &str, key: &str| -> Option<usize> {
        line.split(';').find_map(|part| part.trim().strip_prefix(key)?.parse().ok())
    };
    let data = text.lines().find(|line| line.contains("char data;"));
    data.and_then(|line| Some(number(line, "offset:")? + number(line, "size:")?)).unwrap_or(4096)
}

/// The size of each buffer, in a machine with so many CPUs.
fn buffer_bytes(root: &Path, cpus: u64, wanted: Option<u64>) -> u64 {
    let memory = census::read(&root.join("proc/meminfo")).unwrap_or_default();
    let kib = memory.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB"));
    let memory = kib.and_then(|kib| kib.trim().parse::<u64>().ok()).map_or(u64::MAX, |kib| kib << 10);
    let most = memory / MEMORY_SHARE / cpus.max(1);
    wanted.unwrap_or(BUFFER_BYTES).min(most).max(BUFFER_MIN)
}

#[cfg(test)]
mod tests {
    use super::testing::Fake;
    use super::*;

    /// The format of an event that has these fields, all of 4 bytes.
    fn format(name: &str, id: u32, fields: &[&str]) -> String {
        let common = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
            \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
            \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n";
        let fields: String = (2..)
            .zip(fields)
            .map(|(at, field)| format!("\tfield:int {field};\toffset:{};\tsize:4;\tsigned:1;\n", 4 * at))
            .collect();
        format!("name: {name}\nID: {id}\nformat:\n{common}{fields}\nprint fmt: \"\"\n")
    }

    const SWITCH: [&str; 7] =
        ["prev_comm", "prev_pid", "prev_prio", "prev_state", "next_comm", "next_pid", "next_prio"];

    fn add(fake: &Fake, instance: &Instance, event: &str, fields: &[&str]) {
        let (_, name) = event.split_once('/').unwrap();
        fake.write_to(instance, &format!("events/{event}/format"), &format(name, 7, fields));
        fake.write_to(instance, &format!("events/{event}/filter"), "none\n");
        fake.write_to(instance, &format!("events/{event}/enable"), "0\n");
    }

    #[test]
    fn only_exits_that_halt_or_spin_are_recorded_and_only_beside_vms() {
        let fake = Fake::new();
        let instance = fake.instance();
        add(&fake, &instance, "sched/sched_switch", &SWITCH);
        for event in ["sched/sched_waking", "sched/sched_wakeup", "sched/sched_wakeup_new"] {
            add(&fake, &instance, event, &["comm", "pid", "prio"]);
        }
        add(&fake, &instance, "sched/sched_process_fork", &["parent_pid", "child_comm", "child_pid"]);
        add(&fake, &instance, "kvm/kvm_exit", &["exit_reason"]);
        add(&fake, &instance, "kvm/kvm_entry", &["vcpu_id"]);
        let error = enable_events(&instance, false, false).unwrap_err();
        assert_eq!(
            error.to_string(),
            "this kernel has no event `sched_process_exit`, which a recording needs"
        );
        add(&fake, &instance, "sched/sched_process_exit", &["pid"]);

        let state = |event: &str| {
            let read = |file| instance.read(&format!("events/{event}/{file}")).unwrap();
            (read("enable"), read("filter"))
        };
        let off = ("0\n".to_owned(), "none\n".to_owned());
        let on = |filter: &str| ("1".to_owned(), filter.to_owned());
        enable_events(&instance, false, false).unwrap();
        assert_eq!(state("sched/sched_waking"), on("none\n"));
        assert_eq!([state("sched/sched_wakeup"), state("kvm/kvm_exit"), state("kvm/kvm_entry")], {
            [off.clone(), off.clone(), off.clone()]
        });
        enable_events(&instance, true, false).unwrap();
        assert_eq!([state("kvm/kvm_exit"), state("kvm/kvm_entry")], [on(IDLE_EXITS), off]);
    }

    #[test]
    fn buffers_take_a_small_part_of_the_memory() {
        let fake = Fake::new();
        let of = |cpus, wanted| buffer_bytes(fake.root(), cpus, wanted);
        assert_eq!(of(4, None), BUFFER_BYTES, "the memory is unknown");
        fake.write("proc/meminfo", "MemTotal:       16777216 kB\nMemFree:  1 kB\n");
        assert_eq!(of(4, None), BUFFER_BYTES);
        assert_eq!(of(4, Some(1 << 40)), 128 << 20);
        assert_eq!(of(512, None), 1 << 20);
        assert_eq!(of(4, Some(0)), BUFFER_MIN);
    }

    #[test]
    fn a_page_is_as_large_as_its_header_says() {
        let fake = Fake::new();
        let instance = fake.instance();
        assert_eq!(page_size(&instance), 4096);
        let header = "\tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
            \tfield: char data;\toffset:16;\tsize:65520;\tsigned:0;\n";
        fake.write_to(&instance, "events/header_page", header);
        assert_eq!(page_size(&instance), 65536);
    }

    #[test]
    fn of_two_counts_of_losses_the_larger_is_right() {
        let lost = |cpu, events| Lost { cpu, events };
        let mut all = vec![lost(1, 5), lost(2, 3)];
        add_losses(&mut all, vec![lost(2, 9), lost(1, 1), lost(0, 4)]);
        assert_eq!(all, [lost(0, 4), lost(1, 5), lost(2, 9)]);
    }
}
