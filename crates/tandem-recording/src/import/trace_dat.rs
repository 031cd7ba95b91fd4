//! `trace.dat` of trace-cmd, versions 6 and 7.
//!
//! Both have the same parts: the formats of tracepoints, addresses of functions, names of tasks, and pages of
//! the ring buffers of each CPU. Version 6 has them one after the other, version 7 in sections that options
//! point to, most of them compressed. perf has the first parts of version 6 in its own files.
//!
//! **Limits.** Little-endian machines; compression by Zstandard (or none); of several buffers the largest;
//! clocks that count ns.
//!
//! Source: trace-cmd, `Documentation/trace-cmd/trace-cmd.dat.v6.5.txt` and `.v7.5.txt`; the size of pages in
//! version 7's option for buffers, which the second leaves out, is as trace-cmd 3.1.6 writes it.

use super::{Import, Known};
use crate::bytes::Bytes;
use crate::error::TraceError;
use crate::facts::About;
use crate::file::FILE_MAX;
use crate::ftrace::{Formats, Merge, PageLayout, Symbols, Translator};
use std::borrow::Cow;
use std::io::Read;

const MAGIC: &[u8] = b"\x17\x08\x44tracing";

/// Options of both versions.
mod option {
    pub const DONE: u16 = 0;
    pub const BUFFER: u16 = 3;
    pub const TRACECLOCK: u16 = 4;
    pub const UNAME: u16 = 5;
    pub const CPUCOUNT: u16 = 8;
    pub const HEADER_INFO: u16 = 16;
    pub const EVENT_FORMATS: u16 = 18;
    pub const KALLSYMS: u16 = 19;
    pub const CMDLINES: u16 = 21;
}

/// A flag of sections.
const COMPRESSED: u16 = 1;
/// Sections of options that follow each other: trace-cmd writes one for each buffer.
const OPTION_SECTIONS_MAX: usize = 1 << 12;
/// Bytes of a section that is no data of CPUs, decompressed. The largest, with all functions of a kernel, has
/// some 10 MiB.
const SECTION_MAX: u64 = 128 << 20;

/// Whether bytes are the beginning of such a file.
pub(super) fn is_trace_dat(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

/// What both versions have before their pages, and perf has as well.
#[derive(Default)]
pub(super) struct Head {
    pub formats: Formats,
    pub layout: PageLayout,
    pub symbols: Symbols,
    names: Vec<(u32, String)>,
    page_size: usize,
}

/// The pages of a CPU: where they are, and their bytes in the file.
struct CpuData {
    cpu: u32,
    at: u64,
    size: u64,
}

/// What is known of the trace as a whole.
#[derive(Default)]
struct Facts {
    clock: String,
    kernel: String,
    cpus: u32,
    /// Whether the data of CPUs is compressed.
    is_compressed: bool,
    /// How much may still be decompressed.
    unpacked_left: u64,
    /// The largest buffer.
    data: Vec<CpuData>,
}

/// Reads the file.
pub(super) fn read(bytes: &[u8]) -> Result<Import, TraceError> {
    let mut rest = Bytes::new(bytes);
    let (version, page_size) = first(&mut rest)?;
    let mut head = Head { page_size, ..Head::default() };
    let mut facts = Facts { clock: "local".into(), unpacked_left: FILE_MAX.bytes, ..Facts::default() };
    match version {
        b"6" => version_6(bytes, &mut rest, &mut head, &mut facts)?,
        b"7" => version_7(bytes, &mut rest, &mut head, &mut facts)?,
        other => {
            let other = String::from_utf8_lossy(other);
            return Err(TraceError::Unsupported(format!(
                "has version {other:.20} of trace.dat; 6 and 7 are supported"
            )));
        }
    }
    check_clock(&facts.clock)?;
    let mut merge = Merge::new(head.formats, head.layout);
    for part in &facts.data {
        let mut data = Bytes::at(bytes, part.at)?;
        let pages = match facts.is_compressed {
            false => Cow::Borrowed(data.take(part.size)?),
            true if part.size == 0 => continue,
            // The size leaves out the count of chunks, which decides.
            true => Cow::Owned(unpack_chunks(&mut data, &mut facts.unpacked_left)?),
        };
        push_pages(&mut merge, part.cpu, pages, page_size)?;
    }
    let about = About {
        recorder: format!("trace.dat version {}", String::from_utf8_lossy(version)),
        kernel: facts.kernel,
        clock: facts.clock,
        cpus: facts.cpus,
        ..About::default()
    };
    let mut import = Import { about, translator: Translator::new(head.symbols), ..Import::default() };
    for (tid, name) in head.names {
        import.know(tid, Known { name, ..Known::default() });
    }
    merge.release(u64::MAX, |moment, point| import.push(moment, point))?;
    import.about.lost = merge.lost();
    Ok(import)
}

/// The beginning of both versions: the version, and the size of pages.
pub(super) fn first<'a>(rest: &mut Bytes<'a>) -> Result<(&'a [u8], usize), TraceError> {
    if rest.take(MAGIC.len() as u64)? != MAGIC {
        return Err(TraceError::damaged(0, "it does not begin as a trace.dat"));
    }
    let version = rest.text()?;
    if rest.u8()? != 0 {
        return Err(TraceError::Unsupported(
            "was made on a big-endian machine, which is not supported".into(),
        ));
    }
    let _long_bytes_of_programs = rest.u8()?;
    let page_size = rest.u32()? as usize;
    if !(512..=1 << 20).contains(&page_size) {
        return Err(TraceError::damaged(rest.position(), format!("pages have {page_size} bytes")));
    }
    Ok((version, page_size))
}

/// Times of other clocks are no ns.
fn check_clock(clock: &str) -> Result<(), TraceError> {
    match clock {
        "" | "local" | "global" | "perf" | "mono" | "mono_raw" | "boot" | "tai" => Ok(()),
        other => Err(TraceError::Unsupported(format!(
            "has times of the clock {other:?}, which are not ns; record with `trace-cmd record -C mono`"
        ))),
    }
}

fn push_pages<'a>(
    merge: &mut Merge<'a>,
    cpu: u32,
    pages: Cow<'a, [u8]>,
    page_size: usize,
) -> Result<(), TraceError> {
    match pages {
        Cow::Borrowed(pages) => pages.chunks(page_size).try_for_each(|page| merge.push(cpu, page)),
        Cow::Owned(pages) => pages.chunks(page_size).try_for_each(|page| merge.push(cpu, page.to_vec())),
    }
}

impl Head {
    /// The layout of pages: both versions, and perf.
    pub fn header_info(&mut self, rest: &mut Bytes) -> Result<(), TraceError> {
        for name in ["header_page", "header_event"] {
            let at = rest.position();
            if rest.text()? != name.as_bytes() {
                return Err(TraceError::damaged(at, format!("{name} is missing")));
            }
            let length = rest.u64()?;
            let text = String::from_utf8_lossy(rest.take(length)?);
            if name == "header_page" {
                self.layout = PageLayout::parse(&text)?;
            }
        }
        Ok(())
    }

    /// Formats of ftrace's own records, which are not used.
    pub fn skip_ftrace_formats(rest: &mut Bytes) -> Result<(), TraceError> {
        for _ in 0..rest.u32()? {
            let length = rest.u64()?;
            rest.take(length)?;
        }
        Ok(())
    }

    /// Formats of tracepoints.
    pub fn event_formats(&mut self, rest: &mut Bytes) -> Result<(), TraceError> {
        for _ in 0..rest.u32()? {
            let _system = rest.text()?;
            for _ in 0..rest.u32()? {
                let length = rest.u64()?;
                let text = String::from_utf8_lossy(rest.take(length)?);
                self.formats.add(&text)?;
            }
        }
        Ok(())
    }

    /// Addresses of functions.
    pub fn kallsyms(&mut self, rest: &mut Bytes) -> Result<(), TraceError> {
        let length = rest.u32()?.into();
        self.symbols = Symbols::from_kallsyms(&String::from_utf8_lossy(rest.take(length)?));
        Ok(())
    }

    /// Names of tasks.
    fn names(&mut self, rest: &mut Bytes) -> Result<(), TraceError> {
        let length = rest.u64()?;
        let text = String::from_utf8_lossy(rest.take(length)?);
        self.names = text
            .lines()
            .filter_map(|line| {
                let (tid, name) = line.split_once(' ')?;
                Some((tid.parse().ok()?, name.to_owned()))
            })
            .collect();
        Ok(())
    }
}

impl Facts {
    /// Uses what an option of either version says, if it says something.
    fn option(&mut self, id: u16, data: &[u8]) -> Result<(), TraceError> {
        match id {
            // The clock that is used is in brackets, among the others.
            option::TRACECLOCK => {
                let text = String::from_utf8_lossy(data);
                if let Some((clock, _)) = text.split_once('[').and_then(|(_, rest)| rest.split_once(']')) {
                    self.clock = clock.into();
                }
            }
            // `Linux NAME RELEASE MACHINE`.
            option::UNAME => {
                let text = String::from_utf8_lossy(data);
                self.kernel = text.split_whitespace().nth(2).unwrap_or_default().into();
            }
            option::CPUCOUNT => self.cpus = Bytes::new(data).u32()?,
            _ => {}
        }
        Ok(())
    }

    /// Uses a buffer if it is larger than the one so far.
    fn buffer(&mut self, data: Vec<CpuData>) {
        let size = |data: &[CpuData]| data.iter().map(|part| u128::from(part.size)).sum::<u128>();
        if size(&data) > size(&self.data) {
            self.data = data;
        }
    }
}

/// Everything of version 6 but the data of CPUs.
fn version_6(bytes: &[u8], rest: &mut Bytes, head: &mut Head, facts: &mut Facts) -> Result<(), TraceError> {
    head.header_info(rest)?;
    Head::skip_ftrace_formats(rest)?;
    head.event_formats(rest)?;
    head.kallsyms(rest)?;
    let printk = rest.u32()?.into();
    rest.take(printk)?;
    head.names(rest)?;
    let cpus = rest.u32()?;
    facts.cpus = cpus;
    let mut buffers = Vec::new();
    loop {
        let at = rest.position();
        match rest.take(10)? {
            b"options  \0" => loop {
                let id = rest.u16()?;
                if id == option::DONE {
                    break;
                }
                let length = rest.u32()?.into();
                let data = rest.take(length)?;
                match id {
                    option::BUFFER => buffers.push(Bytes::new(data).u64()?),
                    _ => facts.option(id, data)?,
                }
            },
            b"flyrecord\0" => break,
            b"latency  \0" => {
                return Err(TraceError::Unsupported(
                    "is a trace.dat of text only, which is not supported".into(),
                ));
            }
            _ => return Err(TraceError::damaged(at, "there is no start of the data of CPUs")),
        }
    }
    facts.buffer(cpu_table(rest, cpus)?);
    for at in buffers {
        let mut buffer = Bytes::at(bytes, at)?;
        if buffer.take(10)? == b"flyrecord\0" {
            facts.buffer(cpu_table(&mut buffer, cpus)?);
        }
    }
    Ok(())
}

fn cpu_table(rest: &mut Bytes, cpus: u32) -> Result<Vec<CpuData>, TraceError> {
    (0..cpus).map(|cpu| Ok(CpuData { cpu, at: rest.u64()?, size: rest.u64()? })).collect()
}

/// Everything of version 7 but the data of CPUs.
fn version_7(bytes: &[u8], rest: &mut Bytes, head: &mut Head, facts: &mut Facts) -> Result<(), TraceError> {
    let compression = rest.text()?;
    let _version = rest.text()?;
    match compression {
        b"zstd" => facts.is_compressed = true,
        b"none" => {}
        other => {
            let other = String::from_utf8_lossy(other);
            return Err(TraceError::Unsupported(format!(
                "is compressed by {other:.20}; convert it with `trace-cmd convert --compression none`"
            )));
        }
    }
    let mut next = rest.u64()?;
    for _ in 0..OPTION_SECTIONS_MAX {
        if next == 0 {
            return Ok(());
        }
        let options = section(bytes, next, &mut facts.unpacked_left)?;
        let mut options = Bytes::new(&options);
        next = 0;
        while !options.is_empty() {
            let id = options.u16()?;
            let length = options.u32()?.into();
            let data = options.take(length)?;
            let mut value = Bytes::new(data);
            let mut part = |value: &mut Bytes| section(bytes, value.u64()?, &mut facts.unpacked_left);
            match id {
                option::DONE => {
                    next = value.u64()?;
                    break;
                }
                option::HEADER_INFO => head.header_info(&mut Bytes::new(&part(&mut value)?))?,
                option::EVENT_FORMATS => head.event_formats(&mut Bytes::new(&part(&mut value)?))?,
                option::KALLSYMS => head.kallsyms(&mut Bytes::new(&part(&mut value)?))?,
                option::CMDLINES => head.names(&mut Bytes::new(&part(&mut value)?))?,
                option::BUFFER => buffer_7(&mut value, head.page_size, facts)?,
                _ => facts.option(id, data)?,
            }
        }
    }
    Err(TraceError::damaged(0, "its sections of options do not end"))
}

/// An option that describes a buffer.
fn buffer_7(value: &mut Bytes, page_size: usize, facts: &mut Facts) -> Result<(), TraceError> {
    let _section = value.u64()?;
    let _name = value.text()?;
    let clock = String::from_utf8_lossy(value.text()?).into_owned();
    let pages_at = value.position();
    if value.u32()? as usize != page_size {
        return Err(TraceError::damaged(pages_at, "a buffer has pages of another size than the file"));
    }
    let cpus = value.u32()?;
    let data = (0..cpus)
        .map(|_| Ok(CpuData { cpu: value.u32()?, at: value.u64()?, size: value.u64()? }))
        .collect::<Result<_, TraceError>>()?;
    if !clock.is_empty() {
        facts.clock = clock;
    }
    facts.buffer(data);
    Ok(())
}

/// The bytes of a section, decompressed, at most `left` with those before.
fn section<'a>(bytes: &'a [u8], at: u64, left: &mut u64) -> Result<Cow<'a, [u8]>, TraceError> {
    let mut rest = Bytes::at(bytes, at)?;
    let _id = rest.u16()?;
    let flags = rest.u16()?;
    let _description = rest.u32()?;
    let length = rest.u64()?;
    let body = rest.take(length)?;
    match flags & COMPRESSED {
        0 => Ok(Cow::Borrowed(body)),
        _ => {
            let section = unpack(&mut Bytes::new(body), SECTION_MAX.min(*left))?;
            *left -= section.len() as u64;
            Ok(Cow::Owned(section))
        }
    }
}

/// The data of a CPU: chunks, of which each is decompressed for itself.
fn unpack_chunks(rest: &mut Bytes, left: &mut u64) -> Result<Vec<u8>, TraceError> {
    let mut data = Vec::new();
    for _ in 0..rest.u32()? {
        let chunk = unpack(rest, *left)?;
        *left -= chunk.len() as u64;
        data.extend(chunk);
    }
    Ok(data)
}

/// A compressed part: its size, its size when decompressed, at most `most`, and its bytes.
fn unpack(rest: &mut Bytes, most: u64) -> Result<Vec<u8>, TraceError> {
    let at = rest.position();
    let (packed, size) = (rest.u32()?, u64::from(rest.u32()?));
    let packed = rest.take(packed.into())?;
    let wrong = |what: String| TraceError::damaged(at, format!("a compressed part cannot be used: {what}"));
    if size > most {
        return Err(wrong(format!("it has {size} bytes, too many in all")));
    }
    // Memory grows with what is there, not with what is claimed.
    let mut data = Vec::new();
    zstd::Decoder::with_buffer(packed)
        .and_then(|decoder| decoder.take(size + 1).read_to_end(&mut data))
        .map_err(|error| wrong(error.to_string()))?;
    match data.len() as u64 == size {
        true => Ok(data),
        false => Err(wrong(format!("it has not the {size} bytes that it should have"))),
    }
}
