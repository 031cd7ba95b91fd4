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
const COMPILE: [c_long; 23] = [
    libc::SYS_execve,
    libc::SYS_openat,
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
    libc::SYS_ioctl,
    libc::SYS_set_tid_address,
    libc::SYS_prlimit64,
    libc::SYS_fcntl,
    libc::SYS_dup,
    libc::SYS_getppid,
    libc::SYS_times,
    libc::SYS_gettimeofday,
];

/// The same on an architecture with calls of an earlier time.
#[cfg(target_arch = "x86_64")]
const COMPILE_BEFORE: [c_long; 7] = [
    libc::SYS_open,
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
    }
    let refuse = SeccompAction::Errno(libc::ENOSYS as u32);
    let filter = SeccompFilter::new(rules.into_iter().collect(), refuse, SeccompAction::Allow, architecture)?;
    Ok(filter.try_into()?)
}

/// A rule about one argument.
fn argument(number: u8, op: SeccompCmpOp, value: u64) -> Result<SeccompRule, Error> {
    let condition = SeccompCondition::new(number, SeccompCmpArgLen::Qword, op, value)?;
    Ok(SeccompRule::new(vec![condition])?)
}
