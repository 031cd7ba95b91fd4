//! `perf.data` with tracepoints, as `perf sched record` makes it.
//!
//! A record of a tracepoint has the same bytes as in the kernel's ring buffer, and the file has the formats.
//! Records of CPUs are in pieces that perf has written as they came; they are sorted by time here.
//!
//! **Limits.** Files, not what perf writes to a pipe; little-endian machines; no compression (`perf record
//! -z`).
//!
//! There is no library for it that this project could use: `linux-perf-data` needs `prost`, which is under
//! Apache-2.0 alone.
//!
//! Source: Linux 6.12, `tools/perf/Documentation/perf.data-file-format.txt`,
//! `include/uapi/linux/perf_event.h` (`PERF_RECORD_*`, `PERF_SAMPLE_*`).

use super::trace_dat::{self, Head};
use super::{Import, Known};
use crate::bytes::Bytes;
use crate::error::TraceError;
use crate::facts::{About, Lost};
use crate::file::CPUS_MAX;
use crate::ftrace::Translator;
use std::collections::{BTreeMap, HashMap};

const MAGIC: &[u8] = b"PERFILE2";

/// Bits of the features of a file, whose sections follow the data.
mod feature {
    pub const TRACING_DATA: usize = 1;
    pub const OSRELEASE: usize = 4;
    pub const NRCPUS: usize = 7;
    pub const COUNT: usize = 256;
}

/// Types of records.
mod record {
    pub const LOST: u32 = 2;
    pub const COMM: u32 = 3;
    pub const FORK: u32 = 7;
    pub const SAMPLE: u32 = 9;
    pub const AUXTRACE: u32 = 71;
    pub const COMPRESSED: u32 = 81;
    pub const COMPRESSED2: u32 = 83;
}

/// Bits of `perf_event_sample_format`.
mod sample {
    pub const IP: u64 = 1 << 0;
    pub const TID: u64 = 1 << 1;
    pub const TIME: u64 = 1 << 2;
    pub const ADDR: u64 = 1 << 3;
    pub const READ: u64 = 1 << 4;
    pub const CALLCHAIN: u64 = 1 << 5;
    pub const ID: u64 = 1 << 6;
    pub const CPU: u64 = 1 << 7;
    pub const PERIOD: u64 = 1 << 8;
    pub const STREAM_ID: u64 = 1 << 9;
    pub const RAW: u64 = 1 << 10;
    pub const IDENTIFIER: u64 = 1 << 16;
}

/// `PERF_TYPE_TRACEPOINT`.
const TRACEPOINT: u32 = 2;
/// The attribute's flag that records other than samples have the time and the CPU at their end.
const SAMPLE_ID_ALL: u64 = 1 << 18;
/// The attribute's flag that a clock was chosen.
const USE_CLOCKID: u64 = 1 << 25;
/// Bytes of the first version of the attribute, as `PERF_ATTR_SIZE_VER0`.
const ATTRIBUTE_MIN: u64 = 64;

/// Whether bytes are the beginning of such a file.
pub(super) fn is_perf_data(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

/// How the samples of an event are laid out.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Layout {
    is_tracepoint: bool,
    sample: u64,
    read: u64,
    flags: u64,
}

/// A record that matters, with its time.
struct Found<'a> {
    clock_ns: u64,
    cpu: u32,
    what: What<'a>,
}

enum What<'a> {
    /// A tracepoint was hit by a task of a process.
    Hit { pid: u32, tid: u32, raw: &'a [u8] },
    /// A task has a name, or another one.
    Named { pid: u32, tid: u32, name: &'a [u8] },
    /// A task is of a process.
    Forked { pid: u32, tid: u32 },
}

/// Reads the file.
pub(super) fn read(bytes: &[u8]) -> Result<Import, TraceError> {
    let mut rest = Bytes::new(bytes);
    rest.take(MAGIC.len() as u64)?;
    let (header_size, attribute_size) = (rest.u64()?, rest.u64()?);
    let (attributes, data, _types) = (section(&mut rest)?, section(&mut rest)?, section(&mut rest)?);
    if header_size < 104 || attribute_size < ATTRIBUTE_MIN + 16 {
        return Err(TraceError::Unsupported(
            "is a perf.data of a pipe, or of another byte order, which is not supported".into(),
        ));
    }
    let features = rest.take(feature::COUNT as u64 / 8)?;
    if data.1 == 0 {
        return Err(TraceError::Unsupported(
            "is a perf.data without data, as that of a perf that was killed".into(),
        ));
    }
    let (layouts, clock) = Layouts::read(bytes, attributes, attribute_size)?;
    let mut about = About { recorder: "perf.data".into(), clock: clock.into(), ..About::default() };
    let mut head = Head::default();
    let after = data.0.checked_add(data.1).ok_or_else(|| TraceError::damaged(40, "its data does not end"))?;
    let mut table = Bytes::at(bytes, after)?;
    for bit in (0..feature::COUNT).filter(|bit| features[bit / 8] & 1 << (bit % 8) != 0) {
        let (at, size) = section(&mut table)?;
        let mut part = Bytes::new(Bytes::at(bytes, at)?.take(size)?);
        match bit {
            feature::TRACING_DATA => tracing_data(&mut part, &mut head)?,
            feature::OSRELEASE => {
                let length = part.u32()?.into();
                about.kernel = String::from_utf8_lossy(Bytes::new(part.take(length)?).text()?).into_owned();
            }
            feature::NRCPUS => about.cpus = part.u32()?,
            _ => {}
        }
    }
    let mut lost = BTreeMap::new();
    let mut found = records(Bytes::at(bytes, data.0)?.take(data.1)?, data.0, &layouts, &mut lost)?;
    found.sort_by_key(|found| found.clock_ns);
    about.lost = lost.into_iter().map(|(cpu, events)| Lost { cpu, events }).collect();
    let mut import = Import { about, translator: Translator::new(head.symbols), ..Import::default() };
    for Found { clock_ns, cpu, what } in found {
        match what {
            What::Hit { pid, tid, raw } => {
                if let Some((moment, point)) = head.formats.decode(clock_ns, cpu, raw) {
                    import.push(&moment, &point)?;
                    if let Some(task) = import.translator.tasks().living(tid) {
                        task.pid = pid;
                    }
                }
            }
            What::Named { pid, tid, name } => {
                let name = String::from_utf8_lossy(name).into_owned();
                import.know(tid, Known { pid, name, is_kernel: false });
            }
            What::Forked { pid, tid } => import.know(tid, Known { pid, ..Known::default() }),
        }
    }
    Ok(import)
}

/// Where a section is, and its size.
fn section(rest: &mut Bytes) -> Result<(u64, u64), TraceError> {
    Ok((rest.u64()?, rest.u64()?))
}

/// What perf has taken from the beginning of a trace.dat.
fn tracing_data(part: &mut Bytes, head: &mut Head) -> Result<(), TraceError> {
    trace_dat::first(part)?;
    head.header_info(part)?;
    Head::skip_ftrace_formats(part)?;
    head.event_formats(part)?;
    head.kallsyms(part)
}

/// The layouts of the samples of all events.
struct Layouts {
    /// That of all events, if they have the same.
    same: Option<Layout>,
    /// By the number of an event, which is the first in its samples.
    by_id: HashMap<u64, Layout>,
}

impl Layouts {
    /// Reads the attributes of events. Also gives the name of the clock.
    fn read(bytes: &[u8], place: (u64, u64), size: u64) -> Result<(Self, &'static str), TraceError> {
        let mut rest = Bytes::new(Bytes::at(bytes, place.0)?.take(place.1)?);
        let mut all = Vec::new();
        let mut by_id = HashMap::new();
        let mut clock = "perf";
        while !rest.is_empty() {
            let mut entry = Bytes::new(rest.take(size)?);
            let attribute = entry.take(size - 16)?;
            let number = |at: usize| Bytes::at(attribute, at as u64)?.u64();
            let layout = Layout {
                is_tracepoint: Bytes::new(attribute).u32()? == TRACEPOINT,
                sample: number(24)?,
                read: number(32)?,
                flags: number(40)?,
            };
            if layout.flags & USE_CLOCKID != 0 && attribute.len() >= 96 {
                clock = match Bytes::at(attribute, 92)?.u32()? {
                    1 => "mono",
                    4 => "mono_raw",
                    7 => "boot",
                    11 => "tai",
                    _ => "",
                };
            }
            let (at, length) = section(&mut entry)?;
            let mut ids = Bytes::new(Bytes::at(bytes, at)?.take(length)?);
            while ids.left() >= 8 {
                by_id.insert(ids.u64()?, layout);
            }
            all.push(layout);
        }
        let needed = sample::TIME | sample::CPU | sample::RAW;
        if let Some(lacking) = all.iter().find(|it| it.is_tracepoint && it.sample & needed != needed) {
            return Err(TraceError::Unsupported(format!(
                "has samples without time, CPU or content (sample_type {:#x}); record with `perf sched record`, or \
                 `perf record -a -R -T`",
                lacking.sample
            )));
        }
        let same = all.first().copied().filter(|first| all.iter().all(|layout| layout == first));
        Ok((Self { same, by_id }, clock))
    }

    /// The layout of a sample.
    fn of(&self, sample: &[u8]) -> Option<Layout> {
        let by_id = || self.by_id.get(&u64::from_le_bytes(*sample.first_chunk()?)).copied();
        self.same.or_else(|| by_id().filter(|layout| layout.sample & sample::IDENTIFIER != 0))
    }

    /// The layout of what is at the end of a record that is no sample.
    fn of_end(&self, record: &[u8]) -> Option<Layout> {
        let by_id = || self.by_id.get(&u64::from_le_bytes(*record.last_chunk()?)).copied();
        let layout = self.same.or_else(|| by_id().filter(|layout| layout.sample & sample::IDENTIFIER != 0));
        layout.filter(|layout| layout.flags & SAMPLE_ID_ALL != 0)
    }
}

/// The records that matter, in the order of the file, which begins at `start`. Counts lost ones by CPU.
fn records<'a>(
    data: &'a [u8],
    start: u64,
    layouts: &Layouts,
    lost: &mut BTreeMap<u32, u64>,
) -> Result<Vec<Found<'a>>, TraceError> {
    let mut rest = Bytes::new(data);
    let mut found = Vec::new();
    while !rest.is_empty() {
        let at = start as usize + rest.position();
        let (kind, _misc, size) = (rest.u32()?, rest.u16()?, rest.u16()?);
        let body = u64::from(size).checked_sub(8).and_then(|size| rest.take(size).ok());
        let Some(body) = body else {
            return Err(TraceError::damaged(at, format!("a record of type {kind} has {size} bytes")));
        };
        let mut bytes = Bytes::new(body);
        match kind {
            record::SAMPLE => {
                if let Some(layout) = layouts.of(body).filter(|layout| layout.is_tracepoint) {
                    found.push(hit(&mut bytes, layout).map_err(|error| {
                        TraceError::damaged(at, format!("a sample is too short: it {error}"))
                    })?);
                }
            }
            record::LOST => {
                let (_id, count) = (bytes.u64()?, bytes.u64()?);
                let (_, cpu) = end(body, layouts);
                if cpu >= CPUS_MAX {
                    return Err(TraceError::damaged(at, format!("CPU {cpu} lost records")));
                }
                let events = lost.entry(cpu).or_insert(0_u64);
                *events = events.saturating_add(count);
            }
            record::COMM => {
                let (pid, tid, name) = (bytes.u32()?, bytes.u32()?, bytes.text()?);
                let (clock_ns, cpu) = end(body, layouts);
                found.push(Found { clock_ns, cpu, what: What::Named { pid, tid, name } });
            }
            record::FORK => {
                let (pid, _, tid, _) = (bytes.u32()?, bytes.u32()?, bytes.u32()?, bytes.u32()?);
                let (clock_ns, cpu) = end(body, layouts);
                found.push(Found { clock_ns, cpu, what: What::Forked { pid, tid } });
            }
            record::COMPRESSED | record::COMPRESSED2 => {
                return Err(TraceError::Unsupported(
                    "is a compressed perf.data, which is not supported; record without -z".into(),
                ));
            }
            record::AUXTRACE => {
                return Err(TraceError::Unsupported(
                    "has traces of the processor, which are not supported; record tracepoints only".into(),
                ));
            }
            _ => {}
        }
    }
    Ok(found)
}

/// A sample of a tracepoint. Its fields come in the order of `PERF_RECORD_SAMPLE` in `perf_event.h`.
fn hit<'a>(bytes: &mut Bytes<'a>, layout: Layout) -> Result<Found<'a>, TraceError> {
    let has = |bit| layout.sample & bit != 0;
    let skip = |bytes: &mut Bytes, bits: &[u64]| -> Result<(), TraceError> {
        bytes.take(8 * bits.iter().filter(|&&bit| has(bit)).count() as u64)?;
        Ok(())
    };
    skip(bytes, &[sample::IDENTIFIER, sample::IP])?;
    let (pid, tid) = if has(sample::TID) { (bytes.u32()?, bytes.u32()?) } else { (0, 0) };
    let clock_ns = bytes.u64()?;
    skip(bytes, &[sample::ADDR, sample::ID, sample::STREAM_ID])?;
    let (cpu, _) = (bytes.u32()?, bytes.u32()?);
    skip(bytes, &[sample::PERIOD])?;
    if has(sample::READ) {
        // Times of being on and of running, a number and a count of lost ones for each value.
        let (times, each) = ((layout.read & 3).count_ones(), 1 + (layout.read & (4 | 16)).count_ones());
        let values = match layout.read & 8 {
            0 => each + times,
            _ => {
                let group = u32::try_from(bytes.u64()?).ok().and_then(|count| count.checked_mul(each));
                group.unwrap_or(u32::MAX).saturating_add(times)
            }
        };
        bytes.take(8 * u64::from(values))?;
    }
    if has(sample::CALLCHAIN) {
        let calls = bytes.u64()?;
        bytes.take(calls.saturating_mul(8))?;
    }
    let length = bytes.u32()?.into();
    Ok(Found { clock_ns, cpu, what: What::Hit { pid, tid, raw: bytes.take(length)? } })
}

/// The time and the CPU of a record that is no sample, from its end; 0 if it has none, as those that perf
/// makes up for what there was before.
fn end(record: &[u8], layouts: &Layouts) -> (u64, u32) {
    let Some(layout) = layouts.of_end(record) else { return (0, 0) };
    let has = |bit| layout.sample & bit != 0;
    // From the last to the first.
    let mut rest = record;
    let mut last = |bit| -> Option<u64> {
        let (before, last) = rest.split_last_chunk().filter(|_| has(bit))?;
        rest = before;
        Some(u64::from_le_bytes(*last))
    };
    last(sample::IDENTIFIER);
    let cpu = last(sample::CPU).unwrap_or(0) as u32;
    last(sample::STREAM_ID);
    last(sample::ID);
    (last(sample::TIME).unwrap_or(0), cpu)
}
