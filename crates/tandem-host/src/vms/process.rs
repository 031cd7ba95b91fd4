//! Small files in which the kernel describes a process: its `Documentation/filesystems/proc.rst`.
//!
//! Processes end at any time, and files may be cut or garbled in a copied tree: a function returns `None` for
//! what it cannot read.

use crate::cpu_time::TICK_NS;
use crate::guarded::{ProcessFile, read_of_process};
use crate::untrusted::Untrusted;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Most arguments that are read. Managers pass some hundred.
const ARGUMENTS_MAX: usize = 1 << 13;
/// Most bytes that are read of other files: `status` has some thousand, `cgroup` a path in each line.
const FILE_MAX_BYTES: u64 = 1 << 16;

/// `PF_KTHREAD` of the kernel's `include/linux/sched.h`, the same since 2.6.39.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// The fields of `/proc/PID/stat` or `/proc/PID/task/TID/stat` that matter here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    /// The state: `R`, `S`, `D` and so on.
    pub state: u8,
    pub is_kernel_thread: bool,
    /// Time on CPUs, in user space and in the kernel.
    pub run_ns: u64,
    /// Number of threads of its process.
    pub threads: u64,
    /// Start time, in ticks since the machine booted.
    pub start_ticks: u64,
    /// The CPU on which it runs or ran last.
    pub cpu: Option<u32>,
    /// Time in which it ran a guest, in ticks.
    pub guest_ticks: u64,
}

impl Stat {
    pub fn parse(line: &[u8]) -> Option<Self> {
        // The name may contain blanks and parentheses; nothing after it does.
        let name_end = line.iter().rposition(|&byte| byte == b')')?;
        let rest = str::from_utf8(&line[name_end + 1..]).ok()?;
        let mut stat = Self {
            state: 0,
            is_kernel_thread: false,
            threads: 0,
            run_ns: 0,
            start_ticks: 0,
            cpu: None,
            guest_ticks: 0,
        };
        let mut is_complete = false;
        // Numbers of fields as in the manual.
        for (number, field) in (3..).zip(rest.split_ascii_whitespace()) {
            match number {
                3 => stat.state = *field.as_bytes().first()?,
                9 => stat.is_kernel_thread = field.parse::<u64>().ok()? & KERNEL_THREAD != 0,
                14 | 15 => {
                    let ns = field.parse::<u64>().ok()?.saturating_mul(TICK_NS);
                    stat.run_ns = stat.run_ns.saturating_add(ns);
                }
                20 => stat.threads = field.parse().ok()?,
                22 => {
                    stat.start_ticks = field.parse().ok()?;
                    is_complete = true;
                }
                39 => stat.cpu = field.parse().ok(),
                43 => {
                    stat.guest_ticks = field.parse().unwrap_or(0);
                    break;
                }
                _ => {}
            }
        }
        is_complete.then_some(stat)
    }

    pub fn has_ended(&self) -> bool {
        matches!(self.state, b'Z' | b'X')
    }
}

/// Reads a small file of `/proc` with one system call and without a copy: the kernel returns all of it at
/// once. What does not fit is cut.
pub(super) fn read_small<'a>(path: &Path, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
    let length = File::open(path).ok()?.read(buffer).ok()?;
    Some(&buffer[..length])
}

/// The `stat` line of a process or thread, by its directory in `/proc`.
pub(crate) fn read_stat(directory: &Path) -> Option<Stat> {
    let mut buffer = [0; 1024];
    Stat::parse(read_small(&directory.join("stat"), &mut buffer)?)
}

/// The start of a file that the kernel writes, as text.
pub(super) fn read_text(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(FILE_MAX_BYTES).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The real user of a process, for which the kernel vouches. The owner of its directory is root if it may not
/// be traced.
pub(crate) fn read_user(directory: &Path) -> Option<u32> {
    let status = read_text(&directory.join("status"))?;
    status.lines().find_map(|line| line.strip_prefix("Uid:")?.split_ascii_whitespace().next()?.parse().ok())
}

/// The name of a process or thread, of at most 15 bytes, which it may choose itself.
pub(super) fn read_name(directory: &Path) -> Option<Untrusted> {
    let mut buffer = [0; 64];
    let name = read_small(&directory.join("comm"), &mut buffer)?;
    Some(Untrusted::new(String::from_utf8_lossy(name.strip_suffix(b"\n").unwrap_or(name))))
}

/// The arguments that a process was started with, its own name first; none for threads of the kernel. The
/// process may overwrite them.
pub(super) fn read_arguments(directory: &Path) -> Option<Vec<Untrusted>> {
    let user = read_user(directory)?;
    let bytes = read_of_process(directory, ProcessFile::Cmdline, user)?;
    let bytes = bytes.strip_suffix(b"\0").unwrap_or(&bytes);
    if bytes.is_empty() {
        return Some(Vec::new());
    }
    let arguments = bytes.split(|&byte| byte == 0).take(ARGUMENTS_MAX);
    Some(arguments.map(|one| Untrusted::new(String::from_utf8_lossy(one))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LINE: &str = "4711 (CPU 0) (KVM) S 1 4711 4711 0 -1 138412416 4708 0 1 0 150 50 0 0 20 0 4 0 1297913 \
        1440960512 9226 18446744073709551615 1 1 0 0 0 0 268444224 4100 16451 0 0 0 17 3 0 0 0 77 0 0 0 0 0 0 0 0 0";

    #[test]
    fn a_name_may_look_like_the_rest() {
        let stat = Stat::parse(LINE.as_bytes()).unwrap();
        assert_eq!((stat.state, stat.threads), (b'S', 4));
        assert_eq!((stat.start_ticks, stat.cpu), (1_297_913, Some(3)));
        assert_eq!((stat.run_ns, stat.guest_ticks), (2_000_000_000, 77));
        assert!(!stat.is_kernel_thread && !stat.has_ended());
    }

    #[test]
    fn threads_of_the_kernel_are_identified() {
        let line = LINE.replace("138412416", "2129984");
        assert!(Stat::parse(line.as_bytes()).unwrap().is_kernel_thread);
    }

    #[test]
    fn what_is_cut_is_not_taken_for_whole() {
        for end in 0..LINE.find("1297913").unwrap() {
            assert_eq!(Stat::parse(&LINE.as_bytes()[..end]), None, "{end}");
        }
    }

    #[test]
    fn this_process_can_be_read() {
        let directory = Path::new("/proc/self");
        assert!(read_stat(directory).unwrap().start_ticks > 0);
        assert!(!read_name(directory).unwrap().text().is_empty());
        assert_eq!(read_user(directory), Some(rustix::process::getuid().as_raw()));
        let arguments = read_arguments(directory).unwrap();
        assert!(arguments.iter().map(|one| one.text().to_owned()).eq(std::env::args()));
    }

    proptest! {
        #[test]
        fn no_line_makes_it_panic(line: Vec<u8>, cut: prop::sample::Index, byte: u8) {
            let _ = Stat::parse(&line);
            let mut line = LINE.as_bytes().to_vec();
            let at = cut.index(line.len());
            line[at] = byte;
            let _ = Stat::parse(&line);
        }
    }
}
