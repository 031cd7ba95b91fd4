//! Errors of loading and querying the scheduler.

use crate::topology::TopologyError;
use std::io;
use std::path::PathBuf;
use tandem_settings::PlacesError;
use thiserror::Error;

/// Why the scheduler cannot be loaded or queried. Each message is one sentence: what is wrong, and what to
/// do.
#[derive(Debug, Error)]
pub enum SchedulerError {
    /// The user is not root.
    #[error("loading and steering the scheduler needs root; run it with sudo")]
    NotRoot,
    /// The kernel was built without sched_ext, or is older.
    #[error(
        "this kernel ({release}) has no sched_ext, which begins with Linux 6.12 and needs CONFIG_SCHED_CLASS_EXT=y"
    )]
    NoSchedExt {
        /// The kernel's release, as `uname -r` prints it.
        release: String,
    },
    /// The kernel was built without its type information.
    #[error(
        "this kernel ({release}) has no type information in /sys/kernel/btf; it needs CONFIG_DEBUG_INFO_BTF=y"
    )]
    NoTypes {
        /// The kernel's release.
        release: String,
    },
    /// No BPF file system is mounted.
    #[error("no BPF file system is mounted at /sys/fs/bpf; run `mount -t bpf bpf /sys/fs/bpf`")]
    NoBpfFileSystem,
    /// BPF programs are interpreted, which sched_ext does not allow.
    #[error("the kernel does not compile BPF programs; run `sysctl net.core.bpf_jit_enable=1`")]
    NoCompiler,
    /// Another `tandem run` is running.
    #[error("another `tandem run` is running; stop it first")]
    AlreadyRunning,
    /// Another `tandem verify` is running.
    #[error("another `tandem verify` is running; wait for its end")]
    TrialRunning,
    /// The kernel runs another scheduler.
    #[error("the kernel runs another sched_ext scheduler, `{name}`; stop it first")]
    OtherScheduler {
        /// Its name.
        name: String,
    },
    /// `tandem` is not loaded.
    #[error("the scheduler is not loaded; `tandem run` loads it")]
    NotLoaded,
    /// The loaded scheduler is of another version.
    #[error(
        "the loaded scheduler is of another version of tandem ({what} differs); use the command that loaded it"
    )]
    OtherVersion {
        /// What differs from this version.
        what: String,
    },
    /// The topology cannot be read.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// The machine is larger than the scheduler's tables.
    #[error(transparent)]
    Places(#[from] PlacesError),
    /// The kernel refused something.
    #[error("the kernel refused to {action}: {cause}")]
    Refused {
        /// The action, as in "to load the scheduler".
        action: String,
        /// The kernel's answer.
        cause: String,
    },
    /// A file of the system cannot be used.
    #[error("{}: {cause}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
}

impl SchedulerError {
    /// Turns an error of the system into one about a file.
    pub(super) fn file(file: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let file = file.into();
        |cause| Self::File { file, cause }
    }

    /// Turns an error of libbpf into one about an action.
    pub(super) fn refused(action: impl Into<String>) -> impl FnOnce(libbpf_rs::Error) -> Self {
        let action = action.into();
        |cause| Self::Refused { action, cause: cause.to_string() }
    }
}
