//! One stream of records from the pages of all CPUs.
//!
//! Each CPU has a queue of pages, of which each is read once, from its start to its end; a heap has the time
//! of the next record of each CPU. So memory is that of the pages, whoever owns them: a recorder hands over a
//! few at a time and releases what is old enough, an importer lends all pages of a file.

use super::decode::{Formats, Moment, Tracepoint};
use super::page::{PageCursor, PageLayout};
use crate::error::TraceError;
use crate::facts::Lost;
use crate::file::CPUS_MAX;
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::ops::Range;

/// Pages of all CPUs, and the place in each.
#[derive(Debug)]
pub struct Merge<'a> {
    formats: Formats,
    layout: PageLayout,
    cpus: BTreeMap<u32, Queue<'a>>,
    /// The time of the next record of each CPU that has one.
    next: BinaryHeap<Reverse<(u64, u32)>>,
}

#[derive(Debug, Default)]
struct Queue<'a> {
    pages: VecDeque<Cow<'a, [u8]>>,
    /// The place in the first page.
    cursor: Option<PageCursor>,
    /// The next record: where in the first page it is.
    record: Option<Range<usize>>,
    lost: u64,
}

impl<'a> Merge<'a> {
    /// An empty one.
    pub fn new(formats: Formats, layout: PageLayout) -> Self {
        Self { formats, layout, cpus: BTreeMap::new(), next: BinaryHeap::new() }
    }

    /// Adds a page of a CPU, after those that it has.
    ///
    /// # Errors
    /// If it is the CPU's next page, and damaged; or if the number of the CPU is too large.
    pub fn push(&mut self, cpu: u32, page: impl Into<Cow<'a, [u8]>>) -> Result<(), TraceError> {
        if cpu >= CPUS_MAX {
            return Err(TraceError::Unsupported(format!(
                "has a CPU {cpu}; at most {CPUS_MAX} are supported"
            )));
        }
        let queue = self.cpus.entry(cpu).or_default();
        queue.pages.push_back(page.into());
        if queue.record.is_none()
            && let Some(time_ns) = queue.advance(self.layout)?
        {
            self.next.push(Reverse((time_ns, cpu)));
        }
        Ok(())
    }

    /// Calls a function for each record before this time of the clock, in the order of time. Those of one
    /// time come in the order of CPUs, and of each CPU in its own. Records that are not decoded are left out.
    ///
    /// # Errors
    /// If a page is damaged, or the function's.
    pub fn release<E: From<TraceError>>(
        &mut self,
        before_ns: u64,
        mut each: impl FnMut(&Moment, &Tracepoint) -> Result<(), E>,
    ) -> Result<(), E> {
        while let Some(&Reverse((time_ns, cpu))) = self.next.peek()
            && time_ns < before_ns
        {
            self.next.pop();
            let Some(queue) = self.cpus.get_mut(&cpu) else { continue };
            if let (Some(page), Some(place)) = (queue.pages.front(), queue.record.take())
                && let Some((moment, point)) = self.formats.decode(time_ns, cpu, &page[place])
            {
                each(&moment, &point)?;
            }
            if let Some(time_ns) = queue.advance(self.layout)? {
                self.next.push(Reverse((time_ns, cpu)));
            }
        }
        Ok(())
    }

    /// Records that CPUs have lost, as far as the pages that were read say. If the kernel does not know how
    /// many a CPU lost at a time, that counts as one.
    pub fn lost(&self) -> Vec<Lost> {
        let lost = self.cpus.iter().filter(|(_, queue)| queue.lost > 0);
        lost.map(|(&cpu, queue)| Lost { cpu, events: queue.lost }).collect()
    }
}

impl Queue<'_> {
    /// Goes to the next record, and gives its time.
    fn advance(&mut self, layout: PageLayout) -> Result<Option<u64>, TraceError> {
        while let Some(page) = self.pages.front() {
            let cursor = match &mut self.cursor {
                Some(cursor) => cursor,
                None => {
                    let cursor = PageCursor::new(layout, page)?;
                    self.lost = self.lost.saturating_add(cursor.missed);
                    self.cursor.insert(cursor)
                }
            };
            if let Some((time_ns, place)) = cursor.next(page)? {
                self.record = Some(place);
                return Ok(Some(time_ns));
            }
            self.cursor = None;
            self.pages.pop_front();
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SOFTIRQ: &str = "name: softirq_entry\nID: 5\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\
        \tfield:unsigned int vec;\toffset:8;\tsize:4;\tsigned:0;\n";

    /// A page with records at these times: the first is the page's.
    fn page(times: &[u64]) -> Vec<u8> {
        let mut page = Vec::from(times[0].to_le_bytes());
        page.extend((16 * times.len() as u64).to_le_bytes());
        let mut last = times[0];
        for &time_ns in times {
            let head = ((time_ns - last) as u32) << 5 | 3;
            page.extend([head, 5, 0, time_ns as u32].iter().flat_map(|word| word.to_le_bytes()));
            last = time_ns;
        }
        page
    }

    fn merge() -> Merge<'static> {
        let mut formats = Formats::default();
        formats.add(SOFTIRQ).unwrap();
        Merge::new(formats, PageLayout::default())
    }

    fn released(merge: &mut Merge, before_ns: u64) -> Vec<(u64, u32)> {
        let mut released = Vec::new();
        merge
            .release::<TraceError>(before_ns, |moment, point| {
                assert_eq!(*point, Tracepoint::Softirq { number: moment.clock_ns as u32 });
                released.push((moment.clock_ns, moment.cpu));
                Ok(())
            })
            .unwrap();
        released
    }

    #[test]
    fn what_is_not_old_enough_waits() {
        let mut merge = merge();
        merge.push(0, page(&[10, 20])).unwrap();
        merge.push(0, page(&[30, 40])).unwrap();
        merge.push(7, page(&[15, 35])).unwrap();
        assert_eq!(released(&mut merge, 20), [(10, 0), (15, 7)]);
        merge.push(2, page(&[25])).unwrap();
        assert_eq!(released(&mut merge, 36), [(20, 0), (25, 2), (30, 0), (35, 7)]);
        assert_eq!(released(&mut merge, u64::MAX), [(40, 0)]);
        merge.push(7, page(&[50])).unwrap();
        assert_eq!(released(&mut merge, u64::MAX), [(50, 7)]);
    }

    proptest! {
        #[test]
        fn records_come_in_the_order_of_time(
            cpus in prop::collection::vec(prop::collection::vec(prop::collection::vec(0..1_000_u64, 1..5), 0..5), 1..5),
        ) {
            let mut merge = merge();
            let mut expected = Vec::new();
            for (pages, cpu) in cpus.into_iter().zip(0..) {
                let mut all: Vec<_> = pages.iter().flatten().copied().collect();
                all.sort();
                expected.extend(all.iter().map(|&time_ns| (time_ns, cpu)));
                for part in pages {
                    let rest = all.split_off(part.len());
                    merge.push(cpu, page(&all)).unwrap();
                    all = rest;
                }
            }
            expected.sort();
            prop_assert_eq!(released(&mut merge, u64::MAX), expected);
        }
    }
}
