//! The kernel's log, and its complaints.

use anyhow::{Context, Result};
use rustix::fs::OFlags;
use std::fmt;
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;

const DEVICE: &str = "/dev/kmsg";
/// Longest record of /dev/kmsg (`PRINTK_MESSAGE_MAX` in the kernel's `kernel/printk/internal.h`), bytes.
const RECORD_BYTES_MAX: usize = 2048;
/// `KERN_ERR`: this and lower levels are errors.
const ERROR_LEVEL: u8 = 3;
/// The kernel's messages when something is wrong, but not always as an error.
const COMPLAINTS: [&str; 8] = [
    "WARNING:",
    "BUG:",
    "Oops",
    "Call Trace:",
    "detected stall", // RCU: "rcu_sched self-detected stall on CPU"
    "soft lockup",
    "blocked for more than", // hung tasks
    "possible recursive locking",
];
/// Begin and end of what the kernel prints for one warning.
const WARNING_BEGIN: &str = "[ cut here ]";
const WARNING_END: &str = "---[ end trace";
/// Warnings of kernels that are not a scheduler's fault: beginning of the kernel's release, and a text in the
/// warning.
///
/// 6.12 loses count of its deadline server's bandwidth when CPUs come and go and schedulers are switched,
/// also with a sched_ext scheduler without any callback.
const KNOWN_WARNINGS: [(&str, &str); 1] = [("6.12.", "kernel/sched/deadline.c")];
/// Begins each message of sched_ext.
const SCHED_EXT: &str = "sched_ext:";

/// Reads records from a place in the log on.
pub struct KernelLog {
    device: File,
}

/// One record of the log.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// From 0, an emergency, to 7, for debugging.
    pub level: u8,
    /// Time since boot, microseconds.
    pub time_us: u64,
    /// The message.
    pub text: String,
}

impl KernelLog {
    /// The log from now on.
    pub fn from_now() -> Result<Self> {
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let open = File::options().read(true).custom_flags(flags).open(DEVICE);
        let mut device = open.with_context(|| format!("cannot open {DEVICE}"))?;
        device.seek(SeekFrom::End(0)).with_context(|| format!("cannot seek in {DEVICE}"))?;
        Ok(Self { device })
    }

    /// The records since the last call.
    pub fn read_new(&mut self) -> Result<Vec<Record>> {
        let mut records = Vec::new();
        let mut buffer = [0; RECORD_BYTES_MAX];
        loop {
            match self.device.read(&mut buffer) {
                Ok(length) => records.extend(Record::parse(&String::from_utf8_lossy(&buffer[..length]))),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(records),
                // EPIPE: records were overwritten before they were read; the oldest existing one is next.
                Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::Interrupted) => {}
                Err(error) => return Err(error).with_context(|| format!("cannot read {DEVICE}")),
            }
        }
    }
}

impl Record {
    /// Reads `LEVEL_AND_FACILITY,SEQUENCE,TIME,FLAGS;TEXT`, with further lines that describe a device.
    fn parse(record: &str) -> Option<Self> {
        let (head, text) = record.split_once(';')?;
        let mut fields = head.split(',');
        let priority: u32 = fields.next()?.parse().ok()?;
        let time_us = fields.nth(1)?.parse().ok()?;
        let text = text.lines().next().unwrap_or_default().to_owned();
        Some(Self { level: (priority % 8) as u8, time_us, text })
    }

    /// Whether something is wrong. That a scheduler was ejected is not, if it is expected.
    fn is_complaint(&self, ejection_expected: bool) -> bool {
        if self.text.starts_with(SCHED_EXT) {
            return self.level <= ERROR_LEVEL && !ejection_expected;
        }
        self.level <= ERROR_LEVEL || COMPLAINTS.iter().any(|complaint| self.text.contains(complaint))
    }
}

/// The first record with a complaint, in the output of a kernel of this release.
pub fn first_complaint<'a>(
    records: &'a [Record],
    release: &str,
    ejection_expected: bool,
) -> Option<&'a Record> {
    let mut rest = records;
    while let Some((record, others)) = rest.split_first() {
        rest = others;
        if record.text.contains(WARNING_BEGIN) {
            let end = others.iter().position(|record| record.text.starts_with(WARNING_END));
            let (warning, after) = others.split_at(end.unwrap_or(others.len()));
            if is_known(warning, release) {
                rest = after;
            }
        } else if record.is_complaint(ejection_expected) {
            return Some(record);
        }
    }
    None
}

fn is_known(warning: &[Record], release: &str) -> bool {
    KNOWN_WARNINGS.iter().any(|(releases, text)| {
        release.starts_with(releases) && warning.iter().any(|record| record.text.contains(text))
    })
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{:.6}] {}", self.time_us as f64 / 1e6, self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(level: u8, text: &str) -> Record {
        Record { level, time_us: 5_140_900, text: text.into() }
    }

    #[test]
    fn records_are_read_without_what_describes_a_device() {
        let text = "30,339,5140900,-;NET: Registered protocol family 10\n SUBSYSTEM=net\n";
        let parsed = Record::parse(text).unwrap();
        assert_eq!(parsed, record(6, "NET: Registered protocol family 10"));
        assert_eq!(parsed.to_string(), "[5.140900] NET: Registered protocol family 10");
        assert_eq!(Record::parse("no record"), None);
    }

    #[test]
    fn complaints_are_errors_warnings_and_ejections() {
        let stall = record(3, "sched_ext: tandem: watchdog failed to check in for 5.0s");
        assert!(stall.is_complaint(false) && !stall.is_complaint(true));
        for complaint in [
            record(4, "WARNING: CPU: 0 PID: 1 at kernel/sched/ext.c:1"),
            record(4, "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:"),
            record(1, "BUG: kernel NULL pointer dereference"),
            record(3, "some device: it failed"),
        ] {
            assert!(complaint.is_complaint(true), "{complaint}");
        }
        for message in
            [record(6, "smpboot: CPU 3 is now offline"), record(6, "sched_ext: BPF scheduler enabled")]
        {
            assert!(!message.is_complaint(false), "{message}");
        }
    }

    #[test]
    fn a_known_warning_is_passed_over_as_a_whole_and_on_its_kernel_alone() {
        let begin = record(4, "------------[ cut here ]------------");
        let end = record(4, "---[ end trace 0000000000000000 ]---");
        let warning = record(
            4,
            "WARNING: CPU: 0 PID: 1 at kernel/sched/deadline.c:265 inactive_task_timer+0x404/0x530",
        );
        let trace = record(4, "Call Trace:");
        let other = record(4, "WARNING: CPU: 0 PID: 1 at kernel/sched/ext.c:1");
        let log =
            [begin.clone(), warning.clone(), trace.clone(), end.clone(), begin, other.clone(), trace, end];
        assert_eq!(first_complaint(&log[..4], "6.12.95", false), None);
        assert_eq!(first_complaint(&log, "6.12.95", false), Some(&other));
        assert_eq!(first_complaint(&log, "7.3.4", false), Some(&warning));
        assert_eq!(first_complaint(&log[..3], "6.12.95", false), None);
    }
}
