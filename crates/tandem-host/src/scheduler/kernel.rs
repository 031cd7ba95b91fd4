//! What the running kernel offers: sched_ext, type information, the BPF file system.
//!
//! Paths are under a root, `/` for this machine, so that tests bring their own. What the files of
//! `/sys/kernel/sched_ext` say is described in the kernel's `Documentation/scheduler/sched-ext.rst`.

use super::SchedulerError;
use nix::sys::statfs::{BPF_FS_MAGIC, statfs};
use std::fs;
use std::path::{Path, PathBuf};
use tandem_sim::machine::parse_cpulist;

/// The running kernel.
#[derive(Clone, Debug)]
pub struct Kernel {
    root: PathBuf,
}

/// What sched_ext is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// `enabled`, `disabled`, or a step between the two.
    pub name: String,
    /// The scheduler that is loaded.
    pub scheduler: Option<String>,
}

impl State {
    /// Whether a scheduler runs the machine's tasks.
    pub fn is_enabled(&self) -> bool {
        self.name == "enabled"
    }

    /// Whether none does, and one may be loaded.
    pub fn is_disabled(&self) -> bool {
        self.name == "disabled"
    }
}

impl Kernel {
    /// The kernel whose `/sys` and `/proc` are under `root`: `/` for this one.
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// The directory under which its `/sys` and `/proc` are.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The release, as `uname -r` prints it.
    pub fn release(&self) -> String {
        let release = fs::read_to_string(self.root.join("proc/sys/kernel/osrelease"));
        release.map_or_else(|_| "of unknown release".to_owned(), |text| text.trim().to_owned())
    }

    /// Checks that a scheduler could be loaded: sched_ext, type information, and the BPF file system are there.
    ///
    /// # Errors
    /// The first of these that is not.
    pub fn check(&self) -> Result<(), SchedulerError> {
        if !self.sched_ext().is_dir() {
            return Err(SchedulerError::NoSchedExt { release: self.release() });
        }
        if !self.root.join("sys/kernel/btf/vmlinux").exists() {
            return Err(SchedulerError::NoTypes { release: self.release() });
        }
        match statfs(&self.bpf_file_system()) {
            Ok(found) if found.filesystem_type() == BPF_FS_MAGIC => Ok(()),
            _ => Err(SchedulerError::NoBpfFileSystem),
        }
    }

    /// What sched_ext is doing.
    ///
    /// # Errors
    /// If the kernel has no sched_ext.
    pub fn state(&self) -> Result<State, SchedulerError> {
        let name = fs::read_to_string(self.sched_ext().join("state"))
            .map_err(|_| SchedulerError::NoSchedExt { release: self.release() })?;
        let scheduler = fs::read_to_string(self.sched_ext().join("root/ops")).ok();
        Ok(State {
            name: name.trim().to_owned(),
            scheduler: scheduler.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()),
        })
    }

    /// How often CPUs came or went since boot. A scheduler that was made for another number is sent away when it is
    /// loaded.
    ///
    /// # Errors
    /// If the kernel does not tell it.
    pub fn hotplug_seq(&self) -> Result<u64, SchedulerError> {
        let file = self.sched_ext().join("hotplug_seq");
        let text = fs::read_to_string(&file).map_err(SchedulerError::file(&file))?;
        let wrong = |_| std::io::Error::new(std::io::ErrorKind::InvalidData, "is not a number");
        text.trim().parse().map_err(wrong).map_err(SchedulerError::file(&file))
    }

    /// One more than the highest number that a CPU of this machine can ever have, if the kernel tells it.
    pub fn possible_cpus(&self) -> Option<usize> {
        let possible = fs::read_to_string(self.root.join("sys/devices/system/cpu/possible")).ok()?;
        parse_cpulist(&possible).ok()?.last().map(|&last| last as usize + 1)
    }

    /// Where the BPF file system is mounted.
    pub fn bpf_file_system(&self) -> PathBuf {
        self.root.join("sys/fs/bpf")
    }

    fn sched_ext(&self) -> PathBuf {
        self.root.join("sys/kernel/sched_ext")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel_with(files: &[(&str, &str)]) -> (tempfile::TempDir, Kernel) {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let kernel = Kernel::new(root.path());
        (root, kernel)
    }

    #[test]
    fn a_kernel_without_sched_ext_says_so() {
        let (_root, kernel) = kernel_with(&[("proc/sys/kernel/osrelease", "6.1.0-1-amd64\n")]);
        let expected = "this kernel (6.1.0-1-amd64) has no sched_ext: it begins with Linux 6.12 and needs \
            CONFIG_SCHED_CLASS_EXT=y";
        assert_eq!(kernel.check().unwrap_err().to_string(), expected);
        assert_eq!(kernel.state().unwrap_err().to_string(), expected);
    }

    #[test]
    fn what_else_is_missing_is_told_one_by_one() {
        let state = ("sys/kernel/sched_ext/state", "disabled\n");
        let (_root, kernel) = kernel_with(&[state]);
        assert!(matches!(kernel.check(), Err(SchedulerError::NoTypes { .. })));
        let (_root, kernel) = kernel_with(&[state, ("sys/kernel/btf/vmlinux", ""), ("sys/fs/bpf/not", "")]);
        assert!(matches!(kernel.check(), Err(SchedulerError::NoBpfFileSystem)));
    }

    #[test]
    fn reads_what_sched_ext_does() {
        let (_root, kernel) = kernel_with(&[
            ("sys/kernel/sched_ext/state", "enabled\n"),
            ("sys/kernel/sched_ext/root/ops", "simple\n"),
            ("sys/kernel/sched_ext/hotplug_seq", "17\n"),
            ("sys/devices/system/cpu/possible", "0-7\n"),
        ]);
        let state = kernel.state().unwrap();
        assert_eq!(state, State { name: "enabled".into(), scheduler: Some("simple".into()) });
        assert!(state.is_enabled() && !state.is_disabled());
        assert_eq!(kernel.hotplug_seq().unwrap(), 17);
        assert_eq!(kernel.possible_cpus(), Some(8));
    }

    #[test]
    fn names_the_file_that_it_cannot_read() {
        let (_root, kernel) = kernel_with(&[
            ("sys/kernel/sched_ext/state", "disabled\n"),
            ("sys/kernel/sched_ext/hotplug_seq", "many\n"),
        ]);
        assert_eq!(kernel.state().unwrap(), State { name: "disabled".into(), scheduler: None });
        let error = kernel.hotplug_seq().unwrap_err().to_string();
        assert!(error.ends_with("sys/kernel/sched_ext/hotplug_seq: is not a number"), "{error}");
    }
}
