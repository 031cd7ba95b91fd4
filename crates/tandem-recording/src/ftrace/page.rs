//! Pages of the kernel's ring buffers, as `trace_pipe_raw` gives them: records with the time since the one
//! before.

use super::format::field;
use crate::bytes::Bytes;
use crate::error::TraceError;
use std::ops::Range;

/// Where the parts of a page are: what `events/header_page` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageLayout {
    /// Bytes of the kernel's `long`, in which the length of the data is.
    long_bytes: usize,
    /// Where the length is.
    commit: usize,
    /// Where the data begins.
    data: usize,
}

impl Default for PageLayout {
    /// That of kernels of 64 bits.
    fn default() -> Self {
        Self { long_bytes: 8, commit: 8, data: 16 }
    }
}

impl PageLayout {
    /// Reads `events/header_page`.
    ///
    /// # Errors
    /// If it is not of that form.
    pub fn parse(text: &str) -> Result<Self, TraceError> {
        let fields: Vec<_> = text.lines().filter_map(field).collect();
        let find = |name| fields.iter().find(|field| field.name == name);
        match (find("commit"), find("data")) {
            (Some(commit), Some(data))
                if matches!(commit.size, 4 | 8) && commit.offset < 64 && data.offset < 128 =>
            {
                Ok(Self { long_bytes: commit.size, commit: commit.offset, data: data.offset })
            }
            _ => Err(TraceError::Unsupported("has an unknown layout of pages of the ring buffer".into())),
        }
    }
}

/// Bits of the length that are one (`RB_WRITE_MASK` is narrower, but trace-cmd has always taken so many).
const LENGTH_MASK: u64 = (1 << 27) - 1;
/// `RB_MISSED_EVENTS`.
const MISSED: u64 = 1 << 31;
/// `RB_MISSED_STORED`.
const MISSED_STORED: u64 = 1 << 30;

/// `RINGBUF_TYPE_PADDING` and what follows it.
const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;
/// Bits of a time beside those that are with the length of a record.
const TIME_SHIFT: u32 = 27;
/// Bits that an absolute time has; those above are the page's (`TS_MSB`).
const ABSOLUTE_BITS: u32 = 59;

/// A position in a page.
#[derive(Clone, Copy, Debug)]
pub struct PageCursor {
    at: usize,
    end: usize,
    time_ns: u64,
    /// Records that were lost before the page: the kernel may not know how many, then it is 1.
    pub missed: u64,
}

impl PageCursor {
    /// At the first record.
    ///
    /// # Errors
    /// If the page is shorter than its head says.
    pub fn new(layout: PageLayout, page: &[u8]) -> Result<Self, TraceError> {
        let time_ns = Bytes::new(page).u64()?;
        let mut rest = Bytes::at(page, layout.commit as u64)?;
        let long = |bytes: &mut Bytes| match layout.long_bytes {
            4 => bytes.u32().map(u64::from),
            _ => bytes.u64(),
        };
        let commit = long(&mut rest)?;
        let mut data = Bytes::at(page, layout.data as u64)?;
        data.take(commit & LENGTH_MASK)?;
        let end = data.position();
        let missed = match (commit & MISSED != 0, commit & MISSED_STORED != 0) {
            (false, _) => 0,
            (true, true) => long(&mut data)?.max(1),
            (true, false) => 1,
        };
        Ok(Self { at: layout.data, end, time_ns, missed })
    }

    /// The next record: its time, and where in the page it is. `None` at the end of the page.
    ///
    /// # Errors
    /// If a record is longer than what is left.
    pub fn next(&mut self, page: &[u8]) -> Result<Option<(u64, Range<usize>)>, TraceError> {
        let page = page.get(..self.end).unwrap_or(page);
        loop {
            let mut bytes = Bytes::at(page, self.at as u64)?;
            if bytes.left() < 4 {
                return Ok(None);
            }
            let head = bytes.u32()?;
            let (kind, step_ns) = (head & 31, u64::from(head >> 5));
            let length = match kind {
                PADDING if step_ns == 0 => return Ok(None),
                TIME_EXTEND => {
                    self.time_ns = self.time_ns.wrapping_add(u64::from(bytes.u32()?) << TIME_SHIFT | step_ns);
                    self.at = bytes.position();
                    continue;
                }
                TIME_STAMP => {
                    let low = (u64::from(bytes.u32()?) << TIME_SHIFT | step_ns) & ((1 << ABSOLUTE_BITS) - 1);
                    let mut time_ns = self.time_ns >> ABSOLUTE_BITS << ABSOLUTE_BITS | low;
                    if time_ns < self.time_ns && self.time_ns >> ABSOLUTE_BITS != 0 {
                        time_ns = time_ns.wrapping_add(1 << ABSOLUTE_BITS);
                    }
                    self.time_ns = time_ns;
                    self.at = bytes.position();
                    continue;
                }
                // The length includes the word in which it is.
                0 | PADDING => u64::from(bytes.u32()?).saturating_sub(4),
                words => u64::from(4 * words),
            };
            self.time_ns = self.time_ns.wrapping_add(step_ns);
            let start = bytes.position();
            let length = bytes.take(length)?.len();
            // Records are aligned.
            self.at = (start + length).next_multiple_of(4);
            if kind != PADDING {
                return Ok(Some((self.time_ns, start..start + length)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn page(time_ns: u64, flags: u64, data: &[u32]) -> Vec<u8> {
        let mut page = Vec::from(time_ns.to_le_bytes());
        page.extend(((4 * data.len() as u64) | flags).to_le_bytes());
        page.extend(data.iter().flat_map(|word| word.to_le_bytes()));
        page
    }

    fn records(page: &[u8]) -> Vec<(u64, Vec<u8>)> {
        let mut cursor = PageCursor::new(PageLayout::default(), page).unwrap();
        std::iter::from_fn(|| cursor.next(page).unwrap())
            .map(|(time_ns, place)| (time_ns, page[place].to_vec()))
            .collect()
    }

    #[test]
    fn each_kind_of_record_is_read() {
        let page = page(
            1_000,
            0,
            &[
                10 << 5 | 1,
                0x11, // 4 bytes, 10 ns later
                5 << 5,
                12,
                0x22,
                0x33, // 8 bytes whose length is a word of its own
                1 << 5 | PADDING,
                8,
                0xff, // discarded, 1 ns later
                3 << 5 | TIME_EXTEND,
                1, // 2^27 + 3 ns
                1,
                0x44,
                7 << 5 | TIME_STAMP,
                2, // at 2 * 2^27 + 7 ns
                2 << 5 | 1,
                0x55,
                PADDING,
                0xdead,
                0xbeef, // the rest of the page
            ],
        );
        let expected = [
            (1_010, vec![0x11, 0, 0, 0]),
            (1_015, vec![0x22, 0, 0, 0, 0x33, 0, 0, 0]),
            (1_016 + (1 << 27) + 3, vec![0x44, 0, 0, 0]),
            ((2 << 27) + 9, vec![0x55, 0, 0, 0]),
        ];
        assert_eq!(records(&page), expected);
    }

    #[test]
    fn absolute_times_have_the_highest_bits_of_the_page() {
        let high = 3_u64 << ABSOLUTE_BITS;
        let page = page(high + 5_000, 0, &[9 << 5 | TIME_STAMP, 1, 1, 0, 9 << 5 | TIME_STAMP, 0, 1, 0]);
        let times: Vec<_> = records(&page).into_iter().map(|(time_ns, _)| time_ns).collect();
        // The second is lower, so those bits have changed.
        assert_eq!(times, [high + (1 << 27) + 9, high + (1 << ABSOLUTE_BITS) + 9]);
    }

    #[test]
    fn lost_records_are_counted() {
        let missed = |flags: u64, data: &[u32]| {
            let mut page = page(0, 0, data);
            page[8..16].copy_from_slice(&(8 | flags).to_le_bytes());
            PageCursor::new(PageLayout::default(), &page).map(|cursor| cursor.missed)
        };
        assert_eq!(missed(0, &[1, 0]), Ok(0));
        assert_eq!(missed(MISSED, &[1, 0]), Ok(1));
        assert_eq!(missed(MISSED | MISSED_STORED, &[1, 0, 77, 0]), Ok(77));
        assert!(missed(MISSED | MISSED_STORED, &[1, 0]).is_err());
    }

    #[test]
    fn a_layout_of_32_bits_is_read() {
        let text = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
                    \tfield: local_t commit;\toffset:8;\tsize:4;\tsigned:1;\n\
                    \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
                    \tfield: char data;\toffset:12;\tsize:4084;\tsigned:0;\n";
        let layout = PageLayout::parse(text).unwrap();
        assert_eq!(layout, PageLayout { long_bytes: 4, commit: 8, data: 12 });
        assert!(PageLayout::parse("nothing").is_err());
        let mut page = vec![0; 20];
        page[8] = 8;
        page[12] = 1;
        assert_eq!(PageCursor::new(layout, &page).unwrap().next(&page), Ok(Some((0, 16..20))));
    }

    proptest! {
        #[test]
        fn any_bytes_are_records_or_an_error(mut page in prop::collection::vec(any::<u8>(), 0..300)) {
            // Often a length that fits.
            if page.len() > 20 && page[0] < 200 {
                let length = page.len() as u64 - 16;
                page[8..16].copy_from_slice(&length.to_le_bytes());
            }
            if let Ok(mut cursor) = PageCursor::new(PageLayout::default(), &page) {
                while let Ok(Some((_, place))) = cursor.next(&page) {
                    prop_assert!(place.end <= page.len());
                }
            }
        }
    }
}
