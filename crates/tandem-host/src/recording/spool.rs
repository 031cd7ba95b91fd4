//! Pages of the kernel's buffers, as they were read.
//!
//! **Problem.** To decode events and to compress them takes several times as long as to copy them. While the
//! machine is recorded, that would take the time of the tasks that are to be observed.
//!
//! **Approach.** While it records, the recorder copies pages into a file, and decodes them afterwards. The
//! file has no name, so that nothing is left of it however the process ends. The recorder reads the buffers
//! of all CPUs in *rounds*: see [`SpoolReader::next_round`] for what a round is good for.
//!
//! **Format.** For each page the number of its CPU and its length, both `u32`, and the part of the page that
//! is in use. [`END_OF_ROUND`] in the place of a CPU ends a round; the time at which it began follows.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::path::Path;

/// Ends a round, in the place of a CPU.
const END_OF_ROUND: u32 = u32::MAX;
/// As much is written, and read, at a time.
const AT_A_TIME: usize = 1 << 20;
/// Largest page: `buffer_subbuf_size_kb` allows 1 MiB at most.
const PAGE_MAX: usize = 1 << 20;

/// Where pages are kept.
#[derive(Debug)]
pub struct Spool {
    file: BufWriter<File>,
    /// Bytes so far.
    pub bytes: u64,
}

impl Spool {
    /// Begins an empty one, on the file system of this folder.
    ///
    /// # Errors
    /// If no file can be created there.
    pub fn create(folder: &Path) -> io::Result<Self> {
        let file = tempfile::tempfile_in(folder)?;
        Ok(Self { file: BufWriter::with_capacity(AT_A_TIME, file), bytes: 0 })
    }

    /// Adds a page of a CPU.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn add(&mut self, cpu: u32, page: &[u8]) -> io::Result<()> {
        self.header(cpu, page.len())?;
        self.bytes += page.len() as u64;
        self.file.write_all(page)
    }

    /// Ends a round, in which the buffer of every CPU has been read, the first after this time.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn end_round(&mut self, began_ns: u64) -> io::Result<()> {
        self.header(END_OF_ROUND, size_of::<u64>())?;
        self.file.write_all(&began_ns.to_le_bytes())
    }

    fn header(&mut self, cpu: u32, length: usize) -> io::Result<()> {
        let length = u32::try_from(length).map_err(io::Error::other)?;
        self.file.write_all(&cpu.to_le_bytes())?;
        self.file.write_all(&length.to_le_bytes())
    }

    /// Ends it, to read it from its beginning.
    ///
    /// # Errors
    /// If the rest cannot be written.
    pub fn finish(self) -> io::Result<SpoolReader> {
        let mut file = self.file.into_inner()?;
        file.rewind()?;
        Ok(SpoolReader { file: BufReader::with_capacity(AT_A_TIME, file) })
    }
}

/// Reads pages in the order in which they were added.
#[derive(Debug)]
pub struct SpoolReader {
    file: BufReader<File>,
}

impl SpoolReader {
    /// Passes the pages of the next round to `take`, those of a CPU in their order, each filled up with zeros
    /// to
    /// `page_size` bytes. Returns the time at which the round began; `None` after the last one.
    ///
    /// All events before that time are in this round or an earlier one.
    ///
    /// # Errors
    /// If the file cannot be read, or `take` fails.
    pub fn next_round(
        &mut self,
        page_size: usize,
        mut take: impl FnMut(u32, Vec<u8>) -> io::Result<()>,
    ) -> io::Result<Option<u64>> {
        let mut is_first = true;
        loop {
            let Some(cpu) = self.number(is_first)? else { return Ok(None) };
            let length = self.number(false)?.unwrap_or(0) as usize;
            if length > PAGE_MAX {
                return Err(io::ErrorKind::InvalidData.into());
            }
            let mut page = vec![0; length.max(page_size)];
            self.file.read_exact(&mut page[..length])?;
            if cpu == END_OF_ROUND {
                return Ok(page.first_chunk().map(|time| u64::from_le_bytes(*time)));
            }
            is_first = false;
            take(cpu, page)?;
        }
    }

    /// The next number; `None` at the end of the file, if that may come here.
    fn number(&mut self, may_end: bool) -> io::Result<Option<u32>> {
        let mut bytes = [0; 4];
        match self.file.read_exact(&mut bytes) {
            Err(error) if may_end && error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            read => read.map(|()| Some(u32::from_le_bytes(bytes))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_come_back_in_rounds_and_leave_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = Spool::create(folder.path()).unwrap();
        let large = vec![7; 5000];
        for (at, round) in
            [&[(0, &b"ab"[..]), (3, b"cde"), (0, b"f")][..], &[], &[(1, &large)]].iter().enumerate()
        {
            for &(cpu, page) in *round {
                spool.add(cpu, page).unwrap();
            }
            spool.end_round(10 + at as u64).unwrap();
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        assert_eq!(spool.bytes, 5006);
        let mut reader = spool.finish().unwrap();
        let mut rounds = Vec::new();
        loop {
            let mut pages = Vec::new();
            let take = |cpu, page| {
                pages.push((cpu, page));
                Ok(())
            };
            let Some(began_ns) = reader.next_round(8, take).unwrap() else { break };
            rounds.push((began_ns, pages));
        }
        let padded = |bytes: &[u8; 8]| bytes.to_vec();
        let first = vec![
            (0, padded(b"ab\0\0\0\0\0\0")),
            (3, padded(b"cde\0\0\0\0\0")),
            (0, padded(b"f\0\0\0\0\0\0\0")),
        ];
        assert_eq!(rounds, [(10, first), (11, vec![]), (12, vec![(1, large)])]);
    }
}
