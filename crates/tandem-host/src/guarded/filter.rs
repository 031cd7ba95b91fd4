//! The system calls that a helper process may make once it serves: seccomp(2).
//!
//! A reader has `CAP_SYS_PTRACE`, which allows it to write into the memory of any process through a file of
//! `/proc`. The filter removes that: files can be opened only for reading, and all other calls that reading
//! does not need fail with `EPERM`.
//!
//! Limits: a filter sees numbers, not the memory behind pointers. So openat2(2), which has its flags in
//! memory, is not allowed, nor is io_uring(7). Where the kernel has no filters, or on an architecture that
//! `seccompiler` does not know, the helper serves without one.

use libc::c_long;
use seccompiler::{
    BpfProgram, Error, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};
use std::io;

/// Calls that any helper needs to read questions, write answers, manage its own memory, and end.
const SERVE: [c_long; 22] = [
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_close,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_brk,
    libc::SYS_madvise,
    libc::SYS_futex,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getrandom,
    libc::SYS_clock_gettime,
    libc::SYS_ppoll,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Calls that inspect files, and change nothing.
const LOOK: [c_long; 6] = [
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_fstatfs,
    libc::SYS_readlinkat,
    libc::SYS_lseek,
];

/// The work of a helper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    /// Reads files.
    Read,
    /// Moves pages.
    Move,
}

/// Confines the calling thread, and threads that it starts, to a duty. This cannot be undone.
///
/// # Errors
/// If the kernel has filters and refuses this one.
pub fn confine_to(duty: Duty) -> io::Result<()> {
    let Ok(architecture) = TargetArch::try_from(std::env::consts::ARCH) else { return Ok(()) };
    let program = program(duty, architecture).map_err(io::Error::other)?;
    match apply_filter(&program) {
        Err(Error::Prctl(error) | Error::Seccomp(error)) if has_no_filters(&error) => Ok(()),
        applied => applied.map_err(io::Error::other),
    }
}

/// Whether the error means that the kernel was built without filters: seccomp(2).
fn has_no_filters(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS))
}

fn program(duty: Duty, architecture: TargetArch) -> Result<BpfProgram, Error> {
    // None of these bits may be set in the argument with this number.
    let without = |argument: u8, bits: libc::c_int| {
        let op = SeccompCmpOp::MaskedEq(bits as u32 as u64);
        let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, op, 0)?;
        Ok::<_, Error>(vec![SeccompRule::new(vec![condition])?])
    };
    let mut rules: Vec<(c_long, Vec<SeccompRule>)> = SERVE.map(|call| (call, Vec::new())).into();
    // Memory must not become executable.
    rules.push((libc::SYS_mmap, without(2, libc::PROT_EXEC)?));
    rules.push((libc::SYS_mprotect, without(2, libc::PROT_EXEC)?));
    // A thread that panics, or is aborted, ends itself with a signal; the rule allows no other process.
    rules.push((libc::SYS_tgkill, vec![equal(0, std::process::id())?]));
    rules.push((
        libc::SYS_fcntl,
        vec![equal(1, libc::F_GETFD as u32)?, equal(1, libc::F_DUPFD_CLOEXEC as u32)?],
    ));
    #[cfg(target_arch = "x86_64")]
    rules.push((libc::SYS_poll, Vec::new()));
    match duty {
        Duty::Read => {
            let writes = libc::O_ACCMODE
                | libc::O_CREAT
                | libc::O_TRUNC
                | libc::O_APPEND
                | libc::O_TMPFILE & !libc::O_DIRECTORY;
            rules.push((libc::SYS_openat, without(2, writes)?));
            rules.extend(LOOK.map(|call| (call, Vec::new())));
            #[cfg(target_arch = "x86_64")]
            rules.extend([(libc::SYS_open, without(1, writes)?), (libc::SYS_readlink, Vec::new())]);
        }
        Duty::Move => rules.push((libc::SYS_move_pages, Vec::new())),
    }
    let refuse = SeccompAction::Errno(libc::EPERM as u32);
    let filter = SeccompFilter::new(rules.into_iter().collect(), refuse, SeccompAction::Allow, architecture)?;
    Ok(filter.try_into()?)
}

/// The argument with this number has this value.
fn equal(argument: u8, value: u32) -> Result<SeccompRule, Error> {
    let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value.into())?;
    Ok(SeccompRule::new(vec![condition])?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File, OpenOptions};
    use std::path::Path;
    use std::process::Command;
    use std::thread;

    /// Runs a closure on a confined thread; the other threads of the tests' process are not confined.
    fn confined<T: Send + 'static>(duty: Duty, act: impl FnOnce() -> T + Send + 'static) -> T {
        let confined = move || {
            rustix::thread::set_no_new_privs(true).unwrap();
            confine_to(duty).unwrap();
            act()
        };
        thread::spawn(confined).join().unwrap()
    }

    fn is_refused<T>(result: io::Result<T>) -> bool {
        result.is_err_and(|error| error.raw_os_error() == Some(libc::EPERM))
    }

    #[test]
    fn a_reader_reads_and_cannot_do_anything_else() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a");
        fs::write(&file, "text").unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("/etc/passwd", &link).unwrap();
        let link = link.to_str().unwrap()[1..].to_owned();
        confined(Duty::Read, move || {
            assert_eq!(fs::read(&file).unwrap(), b"text");
            assert!(fs::read("/proc/self/maps").unwrap().len() > 100);
            let named = crate::untrusted::read_file(Path::new("/"), "etc/passwd", 0, 1 << 20);
            assert_eq!(named, fs::read("/etc/passwd").ok(), "as it reads what a command line names");
            let user = rustix::process::geteuid().as_raw();
            assert_eq!(crate::untrusted::read_file(Path::new("/"), &link, user, 1 << 20), named, "by a link");
            assert!(fs::read_link("/proc/self/cwd").is_ok());
            let big = vec![1_u8; 1 << 24];
            assert_eq!(big.iter().map(|&byte| usize::from(byte)).sum::<usize>(), 1 << 24);
            for options in [
                OpenOptions::new().write(true),
                OpenOptions::new().read(true).write(true),
                OpenOptions::new().append(true),
                OpenOptions::new().write(true).create(true),
                OpenOptions::new().write(true).truncate(true),
            ] {
                assert!(is_refused(options.open("/proc/self/mem")), "{options:?}");
                assert!(is_refused(options.open(&file)), "{options:?}");
            }
            assert!(is_refused(File::create(file.with_extension("new"))));
            assert!(is_refused(fs::remove_file(&file)));
            assert!(is_refused(fs::rename(&file, file.with_extension("new"))));
            assert!(is_refused(std::os::unix::net::UnixStream::pair()));
            assert!(is_refused(Command::new("true").spawn()));
            assert!(is_refused(std::net::TcpStream::connect("127.0.0.1:9")));
            assert_eq!(fs::read(&file).unwrap(), b"text");
        });
    }

    #[test]
    fn a_helper_that_moves_pages_opens_nothing() {
        confined(Duty::Move, || {
            assert!(is_refused(File::open("/etc/passwd")));
            assert!(is_refused(Command::new("true").spawn()));
        });
    }

    #[test]
    fn all_architectures_have_a_program() {
        for architecture in [TargetArch::x86_64, TargetArch::aarch64] {
            assert!(!program(Duty::Read, architecture).unwrap().is_empty());
        }
    }
}
