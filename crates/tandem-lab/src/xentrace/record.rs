//! The raw format: records of 32-bit words, little-endian, buffer by buffer.
//!
//! A record is a header (bits 0 to 27: the event; 28 to 30: how many words follow; 31: whether a 64-bit stamp
//! comes before them), the stamp, and the words. `xentrace` writes the buffers of the pCPUs one after
//! another, each after a record that names the pCPU, so the file as a whole is not in time order.
//!
//! Source: `trace.h` of Xen's public headers.

use serde::{Deserialize, Serialize};

const LOST_RECORDS: u32 = 0x1f001;
const PCPU_CHANGE: u32 = 0x1f003;
const RATE_LIMIT_CREDIT: u32 = 0x2200a;
const WAKE: u32 = 0x28004;
const BLOCK: u32 = 0x28006;
const SWITCH: u32 = 0x2800a;
const SWITCH_FROM: u32 = 0x2800e;
const SWITCH_TO: u32 = 0x2800f;
const CONTINUE: u32 = 0x28011;

/// A vCPU of the traced host.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct VcpuKey {
    /// Number of its domain; domain 0 manages the host.
    pub domain: u32,
    /// Its number within the domain.
    pub vcpu: u32,
}

impl VcpuKey {
    /// The domain whose vCPUs stand for idle pCPUs.
    const IDLE_DOMAIN: u32 = 0x7fff;

    /// Whether this stands for an idle pCPU.
    pub fn is_idle(self) -> bool {
        self.domain == Self::IDLE_DOMAIN
    }
}

/// An event of the scheduler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// Since the first record of the trace, ns.
    pub time_ns: u64,
    /// The pCPU that recorded it.
    pub pcpu: u32,
    /// What happened.
    pub kind: EventKind,
}

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventKind {
    /// The vCPU woke up. Also recorded while it runs, if it was about to block; it then does not block.
    Wake(VcpuKey),
    /// The vCPU asks to block.
    Block(VcpuKey),
    /// A scheduling decision that put another vCPU on the pCPU.
    Switch,
    /// Recorded with each switch: the vCPU that left the pCPU.
    SwitchFrom {
        /// The vCPU.
        vcpu: VcpuKey,
        /// How long it ran, ns. More exact than the distance between stamps, but modulo 2^32.
        ran_ns: u32,
    },
    /// Recorded with each switch: the vCPU that came.
    SwitchTo(VcpuKey),
    /// A scheduling decision after which the same vCPU continues.
    Continue(VcpuKey),
    /// The credit scheduler is about to let the vCPU continue, because it has run for less than the rate
    /// limit.
    RateLimited(VcpuKey),
}

/// The scheduler's events of a trace.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Trace {
    /// From the first stamp to the last, ns.
    pub length_ns: u64,
    /// In time order.
    pub events: Vec<Event>,
    /// Records that Xen dropped because its buffers were full.
    pub lost_records: u64,
    /// Bytes at the end that are not a whole record, as in a truncated file.
    pub incomplete_bytes: usize,
}

/// Reads a raw trace.
///
/// Never fails: it skips records of unknown events, and an incomplete one at the end.
pub fn read_trace(bytes: &[u8]) -> Trace {
    let mut trace = Trace::default();
    let mut pcpu = None;
    let mut stamps: Option<(u64, u64)> = None;
    let mut rest = bytes;
    while let Some(record) = Record::split_from(&mut rest) {
        let words = record.words();
        match (record.event, words) {
            (PCPU_CHANGE, &[number, ..]) => pcpu = Some(number),
            (LOST_RECORDS, &[lost, ..]) => trace.lost_records += u64::from(lost),
            _ => {}
        }
        let Some(stamp) = record.stamp else { continue };
        let (first, last) = stamps.unwrap_or((stamp, stamp));
        stamps = Some((first.min(stamp), last.max(stamp)));
        if let (Some(pcpu), Some(kind)) = (pcpu, event_kind(record.event, words)) {
            trace.events.push(Event { time_ns: stamp, pcpu, kind });
        }
    }
    trace.incomplete_bytes = rest.len();
    if let Some((first, last)) = stamps {
        trace.length_ns = last - first;
        trace.events.iter_mut().for_each(|event| event.time_ns -= first);
    }
    // Stable, so that events of one pCPU with one stamp stay in order.
    trace.events.sort_by_key(|event| event.time_ns);
    trace
}

fn event_kind(event: u32, words: &[u32]) -> Option<EventKind> {
    let key = |domain, vcpu| VcpuKey { domain, vcpu };
    Some(match (event, words) {
        (WAKE, &[domain, vcpu]) => EventKind::Wake(key(domain, vcpu)),
        (BLOCK, &[domain, vcpu]) => EventKind::Block(key(domain, vcpu)),
        (SWITCH, &[_, _, _, _]) => EventKind::Switch,
        (SWITCH_FROM, &[domain, vcpu, ran_ns]) => EventKind::SwitchFrom { vcpu: key(domain, vcpu), ran_ns },
        (SWITCH_TO, &[domain, vcpu, _waited_ns, _slice_ns]) => EventKind::SwitchTo(key(domain, vcpu)),
        (CONTINUE, &[domain, vcpu, _ran_ns, _slice_ns]) => EventKind::Continue(key(domain, vcpu)),
        (RATE_LIMIT_CREDIT, &[domain_and_vcpu, _ran_ns]) => {
            EventKind::RateLimited(key(domain_and_vcpu >> 16, domain_and_vcpu & 0xffff))
        }
        _ => return None,
    })
}

/// Most words that a header can announce.
const WORDS_MAX: usize = 7;

struct Record {
    event: u32,
    stamp: Option<u64>,
    words: [u32; WORDS_MAX],
    word_count: usize,
}

impl Record {
    /// Removes the first record from the bytes; if it is incomplete, returns `None` and removes nothing.
    fn split_from(bytes: &mut &[u8]) -> Option<Self> {
        let mut rest = *bytes;
        let header = take_word(&mut rest)?;
        let stamp = if header >> 31 == 1 {
            let (low, high) = (take_word(&mut rest)?, take_word(&mut rest)?);
            Some(u64::from(high) << 32 | u64::from(low))
        } else {
            None
        };
        let word_count = (header >> 28 & 7) as usize;
        let mut words = [0; WORDS_MAX];
        for word in &mut words[..word_count] {
            *word = take_word(&mut rest)?;
        }
        *bytes = rest;
        Some(Self { event: header & 0x0fff_ffff, stamp, words, word_count })
    }

    fn words(&self) -> &[u32] {
        &self.words[..self.word_count]
    }
}

fn take_word(bytes: &mut &[u8]) -> Option<u32> {
    let (word, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u32::from_le_bytes(*word))
}
