//! Run and wait times of a VM's threads, and their CPUs.
//!
//! `/proc/PID/task/TID/schedstat` has three numbers, which the scheduler counts in ns: time on CPUs, time in
//! which the thread was ready to run and waited for a CPU, and how often it got one
//! (`Documentation/scheduler/sched-stats.rst`). Every user may read it. On a kernel without this file, `stat`
//! has the run time of a thread in ticks of 10 ms; its wait time is unknown then.
//!
//! KVM reports steal time to a guest from the same counter (`record_steal_time` in `arch/x86/kvm/x86.c` takes
//! `sched_info.run_delay` of the vCPU's thread), so the wait of a vCPU is exactly the guest's steal.

use super::process::{Stat, read_small};
use super::threads::Thread;
use rustix::process::{Resource, getrlimit};
use std::fmt::Write;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// The times of a thread since it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadTimes {
    /// Time on CPUs.
    pub run_ns: u64,
    /// Time in which it was ready to run and waited, the steal of a vCPU; `None` if the kernel does not count
    /// it.
    pub wait_ns: Option<u64>,
}

impl ThreadTimes {
    /// Takes the first two numbers of a text such as `1360126 40348334 9`.
    fn parse(schedstat: &[u8]) -> Option<Self> {
        let mut numbers = str::from_utf8(schedstat).ok()?.split_ascii_whitespace().map(str::parse);
        let (run, wait) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
        // Only a third number shows that the second one is complete.
        numbers.next()?.ok()?;
        Some(Self { run_ns: run, wait_ns: Some(wait) })
    }
}

/// The times of some threads, read from files that stay open: a tenth of the work, most of which is finding a
/// file in `/proc`. A thread that has ended stays gone, even if another thread reuses its number.
///
/// Each thread takes a file descriptor. A process gets 1,024 by default, and may raise that with
/// `RLIMIT_NOFILE`. All [`OpenTimes`] together take at most half of the descriptors, so that VMs with many
/// threads leave some for everything else.
#[derive(Debug)]
pub struct OpenTimes {
    /// `None` for a thread that was gone.
    files: Vec<Option<File>>,
    _permits: Permits,
}

/// Descriptors that all [`OpenTimes`] hold.
static TAKEN: AtomicU64 = AtomicU64::new(0);

/// A share of these descriptors, returned on drop.
#[derive(Debug)]
struct Permits(u64);

impl Permits {
    fn take(count: u64) -> Option<Self> {
        let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) / 2;
        let permits = Self(count);
        // Dropping `permits` returns them if there are too many.
        (TAKEN.fetch_add(count, Ordering::Relaxed).saturating_add(count) <= most).then_some(permits)
    }
}

impl Drop for Permits {
    fn drop(&mut self) {
        TAKEN.fetch_sub(self.0, Ordering::Relaxed);
    }
}

impl OpenTimes {
    pub(super) fn open(root: &Path, threads: &[Thread]) -> io::Result<Self> {
        // The permits cover the files opened below.
        let permits = Permits::take(threads.len() as u64).ok_or(io::ErrorKind::QuotaExceeded)?;
        let mut path = ThreadPath::new(root);
        let open = |thread| match File::open(path.file(thread, "schedstat")) {
            Ok(file) => Ok(Some(file)),
            // Either the thread is gone, or no thread has such a file.
            Err(error) if error.kind() == io::ErrorKind::NotFound && path.file(thread, "stat").exists() => {
                Err(error)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        };
        Ok(Self { files: threads.iter().map(open).collect::<io::Result<_>>()?, _permits: permits })
    }

    /// Reads the times into `times`, one entry per thread in the order in which they were opened; `None` for
    /// a thread that is gone.
    pub fn read(&self, times: &mut Vec<Option<ThreadTimes>>) {
        let mut buffer = [0; 128];
        times.clear();
        times.extend(self.files.iter().map(|file| {
            // The kernel generates the text anew for a read from its start.
            let length = file.as_ref()?.read_at(&mut buffer, 0).ok()?;
            ThreadTimes::parse(&buffer[..length])
        }));
    }
}

/// The directory of a thread in `/proc`, in a buffer that is reused.
struct ThreadPath {
    text: String,
    root_length: usize,
}

impl ThreadPath {
    fn new(root: &Path) -> Self {
        let mut text = root.to_string_lossy().into_owned();
        if !text.ends_with('/') {
            text.push('/');
        }
        let root_length = text.len();
        Self { text, root_length }
    }

    fn file(&mut self, thread: &Thread, file: &str) -> &Path {
        self.text.truncate(self.root_length);
        let _ = write!(self.text, "proc/{}/task/{}/{file}", thread.process, thread.tid);
        Path::new(&self.text)
    }
}

/// Reads the times of threads into `times`, one entry per thread in their order; `None` for a thread that is
/// gone.
pub(super) fn read(root: &Path, threads: &[Thread], times: &mut Vec<Option<ThreadTimes>>) {
    let mut path = ThreadPath::new(root);
    let mut buffer = [0; 1024];
    times.clear();
    times.extend(threads.iter().map(|thread| {
        if let Some(text) = read_small(path.file(thread, "schedstat"), &mut buffer) {
            return ThreadTimes::parse(text);
        }
        let stat = Stat::parse(read_small(path.file(thread, "stat"), &mut buffer)?)?;
        Some(ThreadTimes { run_ns: stat.run_ns, wait_ns: None })
    }));
}

/// The CPU on which a thread runs or ran last.
pub(super) fn read_cpu(root: &Path, thread: &Thread) -> Option<u32> {
    let mut buffer = [0; 1024];
    Stat::parse(read_small(ThreadPath::new(root).file(thread, "stat"), &mut buffer)?)?.cpu
}

/// How often a thread has changed its CPU; `None` if it is gone, or the kernel does not count it
/// (`CONFIG_SCHED_DEBUG` in older ones). The counter is `se.nr_migrations` in `/proc/PID/task/TID/sched`,
/// which every user may read (`proc_sched_show_task` in `kernel/sched/debug.c`).
pub(super) fn read_migrations(root: &Path, thread: &Thread) -> Option<u64> {
    let mut buffer = [0; 1024];
    parse_migrations(read_small(ThreadPath::new(root).file(thread, "sched"), &mut buffer)?)
}

/// Takes the number of the line `se.nr_migrations   :   12`, which is among the first.
fn parse_migrations(sched: &[u8]) -> Option<u64> {
    let text = String::from_utf8_lossy(sched);
    let value = text.lines().find_map(|line| line.strip_prefix("se.nr_migrations")?.split_once(':'));
    value?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn three_numbers_are_whole() {
        let times = ThreadTimes { run_ns: 1_360_126, wait_ns: Some(40_348_334) };
        assert_eq!(ThreadTimes::parse(b"1360126 40348334 9\n"), Some(times));
        for cut in ["", "1360126", "1360126 40348334", "1360126 x 9", "-1 2 3", "18446744073709551616 0 0"] {
            assert_eq!(ThreadTimes::parse(cut.as_bytes()), None, "{cut}");
        }
    }

    #[test]
    fn half_of_the_descriptors_are_for_all_else() {
        let most = getrlimit(Resource::Nofile).current.unwrap() / 2;
        assert!(Permits::take(most + 1).is_none(), "and they went back");
        let few = Permits::take(1).unwrap();
        assert!(Permits::take(most).is_none());
        drop(few);
        assert!(Permits::take(1).is_some());
    }

    #[test]
    fn migrations_have_a_line() {
        let text = b"head (21840, #threads: 1)\n-----\nse.exec_start      :   24928357.233326\n\
            se.nr_migrations                             :                   12\nnr_switches  :  7\n";
        assert_eq!(parse_migrations(text), Some(12));
        for text in [&b""[..], b"se.nr_migrations", b"se.nr_migrations : x\n", b"nr_migrations : 1\n"] {
            assert_eq!(parse_migrations(text), None);
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text: Vec<u8>) {
            let _ = ThreadTimes::parse(&text);
            let _ = parse_migrations(&text);
        }
    }
}
