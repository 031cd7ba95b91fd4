//! Processes that do one thing for a stranger, and can do nothing else.
//!
//! **Problem.** A compiler reads what a stranger wrote, and a simulator runs it. Either may be made to read files, to reach the
//! network, to fill the memory, or not to end.
//!
//! **Approach.** A process of this program begins for that one thing, builds a *fence* around itself, and goes on behind it:
//! limits of CPU time, memory and files ([`Limits`]), a list of what it may read (Landlock, [`Reading`]), and the list of
//! system calls that its work takes (seccomp(2), [`calls`]). Each of these only ever gets narrower, also in a program
//! that the process becomes. The parent bounds what comes out, and for how long ([`mod@run`]). No privilege is needed, and
//! root has no way around it. What a kernel does not have is an error: nothing runs without its fence.
//!
//! **Limits.** A fence is as good as the kernel. Processes are not hidden from each other: what can be read of others in
//! `/proc` is not among what may be read.

pub mod calls;
pub mod run;

use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreatedAttr,
    path_beneath_rules,
};
use rustix::process::{
    Resource, Rlimit, Signal, getppid, getrlimit, set_parent_process_death_signal, setrlimit,
};
use rustix::thread::set_no_new_privs;
use std::io;
use std::path::PathBuf;

/// Why there is no fence.
#[derive(Debug, thiserror::Error)]
pub enum FenceError {
    /// The kernel has no Landlock.
    #[error(
        "this kernel has no Landlock, behind which strangers' sources are compiled ({0}); it needs CONFIG_SECURITY_LANDLOCK, \
         and `landlock` among its lsm= at boot"
    )]
    Landlock(String),
    /// The kernel has no filters of system calls, or this architecture is not known.
    #[error("this kernel has no filter of system calls that the fence around strangers' programs needs: {0}")]
    Calls(String),
    /// A limit cannot be set.
    #[error("a limit of the fence around strangers' programs cannot be set: {0}")]
    Limit(#[from] io::Error),
}

/// What a process may use.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// CPU time, s: it is ended by the signal `SIGXCPU`, and a second later by `SIGKILL`.
    pub cpu_s: u64,
    /// Address space, bytes.
    pub memory_bytes: u64,
    /// Open files at a time.
    pub files: u64,
}

impl Limits {
    /// Sets them, and that nothing is written into files, core dumps among them. Narrower ones that the process has already, as in a
    /// job of a batch system, stay.
    fn set(self) -> io::Result<()> {
        for (resource, current, maximum) in [
            (Resource::Cpu, self.cpu_s, self.cpu_s + 1),
            (Resource::As, self.memory_bytes, self.memory_bytes),
            (Resource::Nofile, self.files, self.files),
            (Resource::Fsize, 0, 0),
            (Resource::Core, 0, 0),
        ] {
            let most = getrlimit(resource).maximum.unwrap_or(u64::MAX);
            setrlimit(
                resource,
                Rlimit { current: Some(current.min(most)), maximum: Some(maximum.min(most)) },
            )?;
        }
        Ok(())
    }
}

/// What a process may open, to read and to execute. Files that it has open already stay open.
#[derive(Clone, Debug)]
pub enum Reading {
    /// Nothing: its calls do not even open files.
    Nothing,
    /// These files, and what is in these folders. Those that do not exist are left out.
    Beneath(Vec<PathBuf>),
}

/// The work behind a fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    /// Compute: from standard input to standard output, on threads, with machine code that it makes itself.
    Compute,
    /// Become a compiler, which has threads and reads files, and starts no process.
    Compile,
}

/// Builds the fence around this process, which must have one thread. It cannot be taken down. The process ends with its
/// parent, which has this number.
///
/// # Errors
/// If the kernel lacks a part of it; the process must end then.
pub fn build(parent: u32, limits: Limits, reading: &Reading, duty: Duty) -> Result<(), FenceError> {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(io::Error::from)?;
    if getppid().is_none_or(|now| now.as_raw_pid() as u32 != parent) {
        return Err(FenceError::Limit(io::Error::other("its parent has ended")));
    }
    limits.set()?;
    set_no_new_privs(true).map_err(io::Error::from)?;
    if let Reading::Beneath(paths) = reading {
        read_only(paths).map_err(|error| FenceError::Landlock(error.to_string()))?;
    }
    calls::allow(duty)
}

/// Leaves reading and executing of these alone.
fn read_only(paths: &[PathBuf]) -> Result<(), landlock::RulesetError> {
    // Of the first version, Linux 5.13. What later ones have beyond it takes calls, or arguments of them, that the filter refuses.
    let abi = ABI::V1;
    Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(abi))?
        .create()?
        .add_rules(path_beneath_rules(paths, AccessFs::from_read(abi)))?
        .restrict_self()?;
    Ok(())
}
