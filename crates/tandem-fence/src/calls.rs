//! The system calls that the work behind a fence takes: seccomp(2).
//!
//! All others fail with `ENOSYS`, as on a kernel that does not have them: the C library then does without, or says so. Among
//! those are all that reach the network, other processes, or another user, and all that write by name.

use super::{Duty, FenceError};
use libc::c_long;
use seccompiler::{
    BpfProgram, Error, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};

/// Reading and writing what is open, own memory, own threads, time, and the end.
const COMPUTE: [c_long; 37] = [
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_close,
    libc::SYS_fstat,
    libc::SYS_lseek,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_brk,
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
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getrandom,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_getrusage,
    libc::SYS_ppoll,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// What a program and its libraries need beyond that to start, and a compiler to find its files.
const COMPILE: [c_long; 19] = [
    libc::SYS_execve,
    libc::SYS_pread64,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_readlinkat,
    libc::SYS_getdents64,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_getcwd,
    libc::SYS_uname,
    libc::SYS_sysinfo,
    libc::SYS_fadvise64,
    libc::SYS_set_tid_address,
    libc::SYS_dup,
    libc::SYS_getppid,
    libc::SYS_times,
    libc::SYS_gettimeofday,
];

/// The same on an architecture with calls of an earlier time.
#[cfg(target_arch = "x86_64")]
const COMPILE_BEFORE: [c_long; 6] = [
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_readlink,
    libc::SYS_access,
    libc::SYS_arch_prctl,
    libc::SYS_time,
];
#[cfg(not(target_arch = "x86_64"))]
const COMPILE_BEFORE: [c_long; 0] = [];

/// Lets this thread, and what it starts, make the calls of a duty alone.
pub(crate) fn allow(duty: Duty) -> Result<(), FenceError> {
    let failed = |error: &dyn std::fmt::Display| FenceError::Calls(error.to_string());
    let architecture = TargetArch::try_from(std::env::consts::ARCH).map_err(|error| failed(&error))?;
    let program = program(duty, architecture).map_err(|error| failed(&error))?;
    apply_filter(&program).map_err(|error| failed(&error))
}

fn program(duty: Duty, architecture: TargetArch) -> Result<BpfProgram, Error> {
    let mut rules: Vec<(c_long, Vec<SeccompRule>)> = COMPUTE.map(|call| (call, Vec::new())).into();
    // A thread that is aborted ends itself with a signal.
    rules.push((libc::SYS_tgkill, vec![argument(0, SeccompCmpOp::Eq, std::process::id().into())?]));
    // Threads, and no processes. clone3(2) has its flags in memory, where a filter does not see them; the C library does
    // without it.
    let thread = libc::CLONE_THREAD as u64;
    rules.push((libc::SYS_clone, vec![argument(0, SeccompCmpOp::MaskedEq(thread), thread)?]));
    rules.push((libc::SYS_prctl, vec![argument(0, SeccompCmpOp::Eq, libc::PR_SET_NAME as u64)?]));
    if duty == Duty::Compile {
        rules.extend(COMPILE.iter().chain(&COMPILE_BEFORE).map(|call| (*call, Vec::new())));
        rules.extend(narrowed()?);
    }
    let refuse = SeccompAction::Errno(libc::ENOSYS as u32);
    let filter = SeccompFilter::new(rules.into_iter().collect(), refuse, SeccompAction::Allow, architecture)?;
    Ok(filter.try_into()?)
}

/// The calls of a compiler that could do more than it needs: with these arguments alone.
fn narrowed() -> Result<Vec<(c_long, Vec<SeccompRule>)>, Error> {
    // Landlock's first version knows nothing of files that are emptied as they are opened.
    let writes = libc::O_ACCMODE
        | libc::O_CREAT
        | libc::O_TRUNC
        | libc::O_APPEND
        | libc::O_TMPFILE & !libc::O_DIRECTORY;
    let reads = |number: u8| word(number, SeccompCmpOp::MaskedEq(writes as u32 as u64), 0);
    let one_of = |number: u8, values: &[u64]| {
        values.iter().map(|&value| word(number, SeccompCmpOp::Eq, value)).collect::<Result<Vec<_>, _>>()
    };
    // Not whom a file sends signals, nor when.
    let about_files = [libc::F_GETFD, libc::F_SETFD, libc::F_GETFL, libc::F_DUPFD, libc::F_DUPFD_CLOEXEC];
    // Whether a file is a terminal, and how wide; not the flags of what is on a disk.
    let about_devices = [libc::TCGETS, libc::TIOCGWINSZ, libc::FIOCLEX, libc::FIONCLEX];
    // Own limits are read; those of others, and what is set, are not for it.
    let own = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, 0)?;
    let unset = SeccompCondition::new(2, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, 0)?;
    let rules = vec![
        (libc::SYS_openat, vec![reads(2)?]),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_open, vec![reads(1)?]),
        (libc::SYS_fcntl, one_of(1, &about_files.map(|command| command as u64))?),
        (libc::SYS_ioctl, one_of(1, &about_devices)?),
        (libc::SYS_prlimit64, vec![SeccompRule::new(vec![own, unset])?]),
    ];
    Ok(rules)
}

/// A rule about one argument.
fn argument(number: u8, op: SeccompCmpOp, value: u64) -> Result<SeccompRule, Error> {
    let condition = SeccompCondition::new(number, SeccompCmpArgLen::Qword, op, value)?;
    Ok(SeccompRule::new(vec![condition])?)
}

/// A rule about one argument that the kernel takes 32 bits of.
fn word(number: u8, op: SeccompCmpOp, value: u64) -> Result<SeccompRule, Error> {
    let condition = SeccompCondition::new(number, SeccompCmpArgLen::Dword, op, value)?;
    Ok(SeccompRule::new(vec![condition])?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{Mode, OFlags, fcntl_getfl, openat};
    use rustix::process::{Resource, getrlimit, setrlimit};
    use std::fs::{self, File, OpenOptions};
    use std::io;
    use std::thread;

    /// Runs a closure behind the filter; the other threads of the tests' process are not.
    fn confined<T: Send + 'static>(duty: Duty, act: impl FnOnce() -> T + Send + 'static) -> T {
        let confined = move || {
            rustix::thread::set_no_new_privs(true).unwrap();
            allow(duty).unwrap();
            act()
        };
        thread::spawn(confined).join().unwrap()
    }

    fn is_refused<T>(result: Result<T, impl Into<io::Error>>) -> bool {
        result.is_err_and(|error| error.into().raw_os_error() == Some(libc::ENOSYS))
    }

    #[test]
    fn a_compiler_reads_files_and_changes_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        fs::write(&path, "text").unwrap();
        confined(Duty::Compile, move || {
            assert_eq!(fs::read(&path).unwrap(), b"text");
            assert!(fs::read_dir(path.parent().unwrap()).unwrap().count() == 1);
            for options in [
                OpenOptions::new().write(true),
                OpenOptions::new().read(true).write(true),
                OpenOptions::new().append(true),
                OpenOptions::new().write(true).create(true),
                OpenOptions::new().write(true).truncate(true),
            ] {
                assert!(is_refused(options.open(&path)), "{options:?}");
            }
            // The library's options do not have this one.
            assert!(is_refused(openat(rustix::fs::CWD, &path, OFlags::TRUNC, Mode::empty())));
            assert!(is_refused(fs::rename(&path, path.with_extension("new"))));
            assert!(is_refused(fs::remove_file(&path)));
            assert!(is_refused(fs::set_permissions(&path, fs::metadata(&path).unwrap().permissions())));
            let file = File::open(&path).unwrap();
            assert!(is_refused(rustix::fs::ioctl_setflags(&file, rustix::fs::IFlags::NOATIME)));
            assert!(is_refused(file.set_len(0)));
            assert_eq!(fs::read(&path).unwrap(), b"text");
        });
    }

    #[test]
    fn a_compiler_reaches_no_other_process() {
        confined(Duty::Compile, || {
            let file = File::open("/proc/self/maps").unwrap();
            assert!(fcntl_getfl(&file).is_ok());
            assert!(is_refused(rustix::fs::fcntl_setfl(&file, OFlags::NONBLOCK)));
            assert!(is_refused(rustix::process::kill_process(
                rustix::process::getpid(),
                rustix::process::Signal::URG
            )));
            let limit = getrlimit(Resource::Nofile);
            assert!(limit.current.is_some());
            assert!(is_refused(setrlimit(Resource::Nofile, limit)));
            let parent = rustix::process::getppid();
            assert!(is_refused(rustix::process::prlimit(parent, Resource::Nofile, limit)));
            assert!(is_refused(std::process::Command::new("true").spawn()));
            assert!(is_refused(std::net::TcpStream::connect("127.0.0.1:9")));
            assert!(is_refused(std::os::unix::net::UnixStream::pair()));
        });
    }

    #[test]
    fn a_simulator_opens_nothing() {
        confined(Duty::Compute, || {
            assert!(is_refused(File::open("/etc/passwd")));
            assert!(is_refused(std::process::Command::new("true").spawn()));
            let sum: u64 = thread::spawn(|| (0..1000_u64).sum()).join().unwrap();
            assert_eq!(sum, 499_500, "threads begin");
        });
    }

    #[test]
    fn all_architectures_have_a_program() {
        for architecture in [TargetArch::x86_64, TargetArch::aarch64] {
            assert!(!program(Duty::Compile, architecture).unwrap().is_empty());
        }
    }
}
