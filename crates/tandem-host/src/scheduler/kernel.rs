//! Features of the running kernel: sched_ext, type information, the BPF file system.
//!
//! Paths are below a root, `/` for this machine, so that tests can use their own. The kernel's
//! `Documentation/scheduler/sched-ext.rst` describes the files of `/sys/kernel/sched_ext`.

use super::SchedulerError;
use crate::mounts::mount_points;
use std::fs;
use std::path::{Path, PathBuf};
use tandem_machine::parse_cpulist;

/// The mount point of the BPF file system, below the root.
const BPF_FILE_SYSTEM: &str = "sys/fs/bpf";

/// The running kernel.
#[derive(Clone, Debug)]
pub struct RunningKernel {
    root: PathBuf,
}

/// The state of sched_ext.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchedExtState {
    /// `enabled`, `disabled`, or a step between the two.
    pub name: String,
    /// The scheduler that is loaded.
    pub scheduler: Option<String>,
}

impl SchedExtState {
    /// Whether a scheduler runs the machine's tasks.
    pub fn is_enabled(&self) -> bool {
        self.name == "enabled"
    }

    /// Whether no scheduler is loaded, so that one may be.
    pub fn is_disabled(&self) -> bool {
        self.name == "disabled"
    }
}

impl RunningKernel {
    /// The kernel whose `/sys` and `/proc` are under `root`: `/` for this machine.
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// The directory above its `/sys` and `/proc`.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The release, as `uname -r` prints it.
    pub fn release(&self) -> String {
        let release = fs::read_to_string(self.root.join("proc/sys/kernel/osrelease"));
        release.map_or_else(|_| "of unknown release".to_owned(), |text| text.trim().to_owned())
    }

    /// Checks that a scheduler could be loaded: that all its [needs](Self::needs) are met.
    ///
    /// # Errors
    /// The first need that is not met.
    pub fn check(&self) -> Result<(), SchedulerError> {
        self.needs().into_iter().try_for_each(|(_, found)| found)
    }

    /// What a scheduler needs of the kernel, by name, and whether that is met.
    pub fn needs(&self) -> [(&'static str, Result<(), SchedulerError>); 4] {
        let release = || self.release();
        let unless = |is_there: bool, error: SchedulerError| if is_there { Ok(()) } else { Err(error) };
        let types = self.types();
        // The service sees only its own folder of it.
        let places =
            [Path::new("/").join(BPF_FILE_SYSTEM), Path::new("/").join(BPF_FILE_SYSTEM).join("tandem")];
        let mounts = mount_points(&self.root, "bpf");
        let compiler = fs::read_to_string(self.root.join("proc/sys/net/core/bpf_jit_enable"));
        [
            (
                "sched_ext",
                unless(self.sched_ext().is_dir(), SchedulerError::NoSchedExt { release: release() }),
            ),
            ("type information", unless(types.exists(), SchedulerError::NoTypes { release: release() })),
            // Only root may read it: an unreadable setting counts as on, which is the default.
            (
                "BPF compiler",
                unless(compiler.map_or(true, |on| on.trim() != "0"), SchedulerError::NoCompiler),
            ),
            (
                "BPF file system",
                unless(places.iter().any(|place| mounts.contains(place)), SchedulerError::NoBpfFileSystem),
            ),
        ]
    }

    /// The state of sched_ext.
    ///
    /// # Errors
    /// If the kernel has no sched_ext.
    pub fn state(&self) -> Result<SchedExtState, SchedulerError> {
        let name = fs::read_to_string(self.sched_ext().join("state"))
            .map_err(|_| SchedulerError::NoSchedExt { release: self.release() })?;
        let scheduler = fs::read_to_string(self.sched_ext().join("root/ops")).ok();
        Ok(SchedExtState {
            name: name.trim().to_owned(),
            scheduler: scheduler.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()),
        })
    }

    /// How often CPUs came or went since boot. The kernel ends a scheduler on loading if it was prepared for
    /// another number.
    ///
    /// # Errors
    /// If the kernel does not report it.
    pub fn hotplug_seq(&self) -> Result<u64, SchedulerError> {
        let file = self.sched_ext().join("hotplug_seq");
        let text = fs::read_to_string(&file).map_err(SchedulerError::file(&file))?;
        let wrong = |_| std::io::Error::new(std::io::ErrorKind::InvalidData, "is not a number");
        text.trim().parse().map_err(wrong).map_err(SchedulerError::file(&file))
    }

    /// One more than the highest number that a CPU of this machine can have, if the kernel reports it.
    pub fn possible_cpus(&self) -> Option<usize> {
        let possible = fs::read_to_string(self.root.join("sys/devices/system/cpu/possible")).ok()?;
        parse_cpulist(&possible).ok()?.last().map(|&last| last as usize + 1)
    }

    /// The file of its types.
    pub(super) fn types(&self) -> PathBuf {
        self.root.join("sys/kernel/btf/vmlinux")
    }

    /// The mount point of the BPF file system.
    pub fn bpf_file_system(&self) -> PathBuf {
        self.root.join(BPF_FILE_SYSTEM)
    }

    fn sched_ext(&self) -> PathBuf {
        self.root.join("sys/kernel/sched_ext")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel_with(files: &[(&str, &str)]) -> (tempfile::TempDir, RunningKernel) {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let kernel = RunningKernel::new(root.path());
        (root, kernel)
    }

    #[test]
    fn a_kernel_without_sched_ext_is_an_error() {
        let (_root, kernel) = kernel_with(&[("proc/sys/kernel/osrelease", "6.1.0-1-amd64\n")]);
        let expected = "this kernel (6.1.0-1-amd64) has no sched_ext, which begins with Linux 6.12 and needs \
            CONFIG_SCHED_CLASS_EXT=y";
        assert_eq!(kernel.check().unwrap_err().to_string(), expected);
        assert_eq!(kernel.state().unwrap_err().to_string(), expected);
    }

    #[test]
    fn other_missing_needs_are_reported_one_by_one() {
        let state = ("sys/kernel/sched_ext/state", "disabled\n");
        let (_root, kernel) = kernel_with(&[state]);
        assert!(matches!(kernel.check(), Err(SchedulerError::NoTypes { .. })));
        let types = ("sys/kernel/btf/vmlinux", "");
        let (_root, kernel) = kernel_with(&[state, types, ("sys/fs/bpf/not", "")]);
        assert!(matches!(kernel.check(), Err(SchedulerError::NoBpfFileSystem)));
        let mounts = ("proc/self/mountinfo", "35 24 0:31 / /sys/fs/bpf rw shared:10 - bpf bpf rw,mode=700\n");
        let off = ("proc/sys/net/core/bpf_jit_enable", "0\n");
        let (_root, kernel) = kernel_with(&[state, types, mounts, off]);
        assert!(matches!(kernel.check(), Err(SchedulerError::NoCompiler)));
        let (_root, kernel) = kernel_with(&[state, types, mounts]);
        assert!(kernel.check().is_ok());
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
        assert_eq!(state, SchedExtState { name: "enabled".into(), scheduler: Some("simple".into()) });
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
        assert_eq!(kernel.state().unwrap(), SchedExtState { name: "disabled".into(), scheduler: None });
        let error = kernel.hotplug_seq().unwrap_err().to_string();
        assert!(error.ends_with("sys/kernel/sched_ext/hotplug_seq: is not a number"), "{error}");
    }
}
