//! Reads the kernel's buffers.
//!
//! **Problem.** Each time that the recorder wakes up costs the machine two switches, and each page that it
//! reads a system call. A buffer that is not read in time loses events.
//!
//! **Approach.** It sleeps, reads all CPUs' buffers, and sleeps again, as long as the fullest buffer would
//! take for a quarter of its size at the pace of the last round. It does not wait for events: the kernel
//! would wake it for a page at a time, or, before Linux 5.1, for each event.

use super::RecordingError;
use super::spool::Spool;
use super::tracefs::Instance;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::time::Duration;

/// The system's error of a CPU that has never been online, and so has no buffer.
const NODEV: i32 = rustix::io::Errno::NODEV.raw_os_error();
/// The header of a page: its time, and how many bytes of it are in use (`events/header_page`).
const HEADER: usize = 16;
/// The bits of the second number that are not flags: `RB_WRITE_MASK` of the kernel's ring buffer.
const LENGTH_MASK: u64 = 0xf_ffff;
/// The kernel may add how many events were lost, after the data.
const LOST_COUNT: usize = 8;
/// Shortest and longest sleep. A longer one would save nothing: the recorder takes microseconds for a round
/// without events. In a quarter of a second of silence, a burst can begin.
const SLEEP: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(250));
/// The sleep before the pace is known.
const FIRST_SLEEP: Duration = Duration::from_millis(50);

/// Reads pages of all CPUs.
#[derive(Debug)]
pub struct PageReader {
    files: Vec<(u32, File)>,
    page: Vec<u8>,
    buffer_bytes: u64,
    /// The time to sleep before the next round.
    pub sleep: Duration,
}

impl PageReader {
    /// Opens the buffers, which have this size each.
    ///
    /// # Errors
    /// If one cannot be opened.
    pub fn open(instance: &Instance, page_size: usize, buffer_bytes: u64) -> Result<Self, RecordingError> {
        let files = instance.open_pages()?;
        Ok(Self { files, page: vec![0; page_size], buffer_bytes, sleep: FIRST_SLEEP })
    }

    /// The numbers of the CPUs.
    pub fn cpus(&self) -> impl Iterator<Item = u32> {
        self.files.iter().map(|&(cpu, _)| cpu)
    }

    /// Copies what is there to the spool. The round begins at this time of the events' clock, so long after
    /// the last one.
    ///
    /// # Errors
    /// If a buffer cannot be read, or the spool not written.
    pub fn read_round(
        &mut self,
        spool: &mut Spool,
        now_ns: u64,
        since: Duration,
    ) -> Result<(), RecordingError> {
        let mut most = 0;
        // A CPU that is faster than this is read on in the next round.
        let pages_max = self.buffer_bytes / self.page.len() as u64 + 1;
        for (cpu, file) in &mut self.files {
            let mut bytes = 0;
            for _ in 0..pages_max {
                let length = match file.read(&mut self.page) {
                    Ok(0) => break,
                    Ok(length) => length,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                    Err(error) if error.raw_os_error() == Some(NODEV) => break,
                    Err(cause) => return Err(RecordingError::Buffer { cpu: *cpu, cause }),
                };
                let used = used(&self.page[..length]);
                if used <= HEADER {
                    break;
                }
                spool.add(*cpu, &self.page[..used]).map_err(RecordingError::spool)?;
                bytes += used as u64;
            }
            most = most.max(bytes);
        }
        spool.end_round(now_ns).map_err(RecordingError::spool)?;
        let quarter = self.buffer_bytes / 4;
        let factor = quarter as f64 / most.max(1) as f64;
        let sleep = since.max(SLEEP.0).as_secs_f64() * factor;
        self.sleep = Duration::from_secs_f64(sleep.clamp(SLEEP.0.as_secs_f64(), SLEEP.1.as_secs_f64()));
        Ok(())
    }
}

/// How many bytes of a page are in use.
fn used(page: &[u8]) -> usize {
    let Some(number) = page.get(HEADER - 8..HEADER) else { return page.len() };
    let number = u64::from_le_bytes(number.try_into().unwrap_or_default());
    match (number & LENGTH_MASK) as usize {
        0 => 0,
        length => page.len().min(HEADER + length + LOST_COUNT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_a_length_and_flags() {
        let mut page = vec![0; 4096];
        assert_eq!(used(&page), 0);
        page[8..16].copy_from_slice(&(100_u64 | 1 << 31).to_le_bytes());
        assert_eq!(used(&page), 124);
        page[8..16].copy_from_slice(&4080_u64.to_le_bytes());
        assert_eq!(used(&page), 4096);
        assert_eq!(used(&page[..9]), 9);
    }
}
