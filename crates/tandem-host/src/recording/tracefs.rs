//! The kernel's tracing: its file system, and an instance of it.
//!
//! An instance (`Documentation/trace/ftrace.rst`) has buffers, events and options of its own, so that a
//! recording neither disturbs nor sees what others trace. It is a directory that the kernel keeps until it is
//! removed: [`Instance`] removes its own when it is dropped, and [`Tracefs::remove_stale`] removes those of
//! processes that were killed.
//!
//! Where the file system is not mounted, this process mounts it for itself: a mount that has a descriptor and
//! no place in the tree of files (`fsmount(2)`, since Linux 5.2). Nobody else sees it, and the kernel drops
//! it with the process.

use super::RecordingError;
use crate::mounts::mount_points;
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The beginning of the names of instances; the number of the process follows.
const PREFIX: &str = "tandem-";
/// Largest file that is read, bytes: the format of an event has some thousand.
const FILE_MAX: usize = 1 << 16;

/// A file system of the kernel's, mounted by somebody or by this process.
#[derive(Debug)]
pub struct KernelFiles {
    folder: PathBuf,
    /// Keeps the mount of this process.
    _mount: Option<OwnedFd>,
}

impl KernelFiles {
    /// Finds the file system of this type, or mounts it if `root` is this machine's.
    ///
    /// # Errors
    /// The system's error if it is not mounted and cannot be.
    pub fn find(root: &Path, file_system: &str) -> Result<Self, Errno> {
        let mounted = mount_points(root, file_system).into_iter().map(|at| below(root, &at));
        if let Some(folder) = mounted.into_iter().find(|folder| folder.is_dir()) {
            return Ok(Self { folder, _mount: None });
        }
        if root != Path::new("/") {
            return Err(Errno::NOENT);
        }
        let context = fsopen(file_system, FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_create(&context)?;
        let mount = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::MOUNT_ATTR_NOEXEC)?;
        let folder = PathBuf::from(format!("/proc/self/fd/{}", mount.as_raw_fd()));
        Ok(Self { folder, _mount: Some(mount) })
    }

    /// The directory of its files. It is another one for another process.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// The kernel's tracing.
#[derive(Debug)]
pub struct Tracefs {
    files: KernelFiles,
}

impl Tracefs {
    /// Finds it, and mounts it for this process if nobody has.
    ///
    /// # Errors
    /// If the kernel has no tracing, or this process may not use it.
    pub fn open(root: &Path) -> Result<Self, RecordingError> {
        let files = KernelFiles::find(root, "tracefs").map_err(|error| match error {
            Errno::NODEV => RecordingError::NoTracing,
            Errno::PERM | Errno::ACCESS => RecordingError::not_permitted(),
            // Linux before 5.2.
            error => RecordingError::NotMounted { cause: error.into() },
        })?;
        match fs::read_dir(files.folder().join("instances")) {
            Ok(_) => Ok(Self { files }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(RecordingError::NoTracing),
            Err(error) => Err(RecordingError::file(&files.folder().join("instances"), error)),
        }
    }

    fn instances(&self) -> PathBuf {
        self.files.folder().join("instances")
    }

    /// Removes the instances of processes that have ended. The kernel keeps one whose files somebody has
    /// open.
    pub fn remove_stale(&self, root: &Path) {
        for entry in fs::read_dir(self.instances()).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let pid = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.parse::<u32>().ok());
            if pid.is_some_and(|pid| !root.join(format!("proc/{pid}")).exists()) {
                let _ = fs::remove_dir(entry.path());
            }
        }
    }

    /// Makes the instance of this process, in which no event is enabled yet.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn make_instance(&self, pid: u32) -> Result<Instance, RecordingError> {
        let folder = self.instances().join(format!("{PREFIX}{pid}"));
        // Of a process that had this number and was killed.
        let _ = fs::remove_dir(&folder);
        fs::create_dir(&folder).map_err(|error| RecordingError::file(&folder, error))?;
        Ok(Instance { folder })
    }

    /// Whether anybody else traces events.
    pub fn is_in_use(&self, own: &Instance) -> bool {
        let others = fs::read_dir(self.instances()).into_iter().flatten().flatten().map(|entry| entry.path());
        let mut all = std::iter::once(self.files.folder().to_owned()).chain(others);
        // One that cannot be read counts as in use.
        all.any(|folder| {
            folder != own.folder && fs::read(folder.join("set_event")).map_or(true, |text| !text.is_empty())
        })
    }
}

/// An instance of the kernel's tracing. It is removed when it is dropped, after the files in it are closed.
#[derive(Debug)]
pub struct Instance {
    folder: PathBuf,
}

impl Instance {
    /// The path of a file in it.
    pub fn path(&self, file: &str) -> PathBuf {
        self.folder.join(file)
    }

    /// Writes a setting.
    ///
    /// # Errors
    /// If the kernel does not know the file, or refuses the value.
    pub fn set(&self, file: &str, value: &str) -> Result<(), RecordingError> {
        let path = self.path(file);
        let write = || OpenOptions::new().write(true).truncate(true).open(&path)?.write_all(value.as_bytes());
        write().map_err(|error| RecordingError::file(&path, error))
    }

    /// The text of a file, if there is one.
    pub fn read(&self, file: &str) -> Option<String> {
        let mut file = File::open(self.path(file)).ok()?;
        // Some files give what the first read takes, and then nothing.
        let mut bytes = vec![0; FILE_MAX];
        let mut length = 0;
        while length < FILE_MAX {
            match file.read(&mut bytes[length..]).ok()? {
                0 => break,
                more => length += more,
            }
        }
        Some(String::from_utf8_lossy(&bytes[..length]).into_owned())
    }

    /// Enables an event, such as `sched/sched_switch`, where its filter lets it pass. Whether the kernel has
    /// it.
    pub fn enable(&self, event: &str, filter: Option<&str>) -> bool {
        let set = |file: &str, value: &str| self.set(&format!("events/{event}/{file}"), value).is_ok();
        filter.is_none_or(|filter| set("filter", filter)) && set("enable", "1")
    }

    /// The files of raw pages, each with the number of its CPU, in ascending order. Reading them never waits.
    ///
    /// # Errors
    /// If one of them cannot be opened.
    pub fn open_pages(&self) -> Result<Vec<(u32, File)>, RecordingError> {
        let folder = self.path("per_cpu");
        let entries = fs::read_dir(&folder).map_err(|error| RecordingError::file(&folder, error))?;
        let number = |name: &str| name.strip_prefix("cpu")?.parse().ok();
        let mut cpus: Vec<u32> =
            entries.flatten().filter_map(|entry| number(entry.file_name().to_str()?)).collect();
        cpus.sort_unstable();
        let open = |cpu| {
            let path = folder.join(format!("cpu{cpu}/trace_pipe_raw"));
            let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
            let file = OpenOptions::new().read(true).custom_flags(flags).open(&path);
            file.map(|file| (cpu, file)).map_err(|error| RecordingError::file(&path, error))
        };
        cpus.into_iter().map(open).collect()
    }

    /// How many events of a CPU are lost: those that were overwritten before they were read, and those for
    /// which there was no room.
    pub fn lost(&self, cpu: u32) -> u64 {
        let text = self.read(&format!("per_cpu/cpu{cpu}/stats")).unwrap_or_default();
        let count = |line: &str| {
            let (name, number) = line.split_once(':')?;
            let is_loss = ["overrun", "commit overrun", "dropped events"].contains(&name.trim());
            number.trim().parse::<u64>().ok().filter(|_| is_loss)
        };
        text.lines().filter_map(count).sum()
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.set("tracing_on", "0");
        let _ = fs::remove_dir(&self.folder);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Fake;
    use super::*;

    #[test]
    fn an_instance_is_removed_and_so_are_those_of_processes_that_have_ended() {
        let fake = Fake::new();
        let tracefs = Tracefs::open(fake.root()).unwrap();
        let instances = fake.root().join("sys/kernel/tracing/instances");
        fs::create_dir_all(fake.root().join("proc/70")).unwrap();
        for name in ["tandem-70", "tandem-71", "tandem-x", "other-71"] {
            fs::create_dir(instances.join(name)).unwrap();
        }
        tracefs.remove_stale(fake.root());
        let names = || {
            let entries = fs::read_dir(&instances).unwrap();
            let mut names: Vec<_> =
                entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        };
        assert_eq!(names(), ["other-71", "tandem-70", "tandem-x"]);
    }

    #[test]
    fn losses_are_of_all_kinds() {
        let fake = Fake::new();
        let instance = fake.instance();
        fake.write_to(
            &instance,
            "per_cpu/cpu3/stats",
            "entries: 12\noverrun: 100\ncommit overrun: 20\nbytes: 4000\noldest event ts: 99.1\n\
             now ts: 77\ndropped events: 3\nread events: 5\n",
        );
        assert_eq!((instance.lost(3), instance.lost(4)), (123, 0));
    }

    #[test]
    fn others_trace_if_their_events_are_enabled() {
        let fake = Fake::new();
        let tracefs = Tracefs::open(fake.root()).unwrap();
        let instance = fake.instance();
        let other = fake.root().join("sys/kernel/tracing/instances/x");
        fs::create_dir(&other).unwrap();
        fs::write(fake.root().join("sys/kernel/tracing/set_event"), "").unwrap();
        fake.write_to(&instance, "set_event", "sched:sched_switch\n");
        assert!(tracefs.is_in_use(&instance), "its events are unknown");
        fs::write(other.join("set_event"), "").unwrap();
        assert!(!tracefs.is_in_use(&instance));
        fs::write(other.join("set_event"), "irq:irq_handler_entry\n").unwrap();
        assert!(tracefs.is_in_use(&instance));
    }

    #[test]
    fn a_machine_without_tracing_is_reported() {
        let root = tempfile::tempdir().unwrap();
        let error = Tracefs::open(root.path()).unwrap_err();
        assert!(matches!(error, RecordingError::NotMounted { .. }), "{error}");
    }
}
