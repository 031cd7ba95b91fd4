//! Tasks of this machine, from `/proc`: the kernel's `Documentation/filesystems/proc.rst`.
//!
//! Tasks start and end at any time, so a task that cannot be read counts as gone.

mod walk;

pub use walk::{TaskWalk, Tid};

use crate::untrusted::Untrusted;
use std::fs;
use std::path::Path;
use tandem_machine::parse_cpulist;

/// A thread of a process, or of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Its number.
    pub tid: u32,
    /// The number of its process; that of its first thread.
    pub pid: u32,
    /// The number of its real user.
    pub user: u32,
    /// Its name, of at most 15 bytes, safe to display.
    pub name: String,
    /// The CPUs that it may use.
    pub allowed: Vec<u32>,
    /// The NUMA nodes on which it may allocate memory; empty on a kernel without NUMA.
    pub allowed_nodes: Vec<u32>,
}

/// The task with this number; `None` if there is none, or it has ended and only waits for its parent to
/// notice.
pub fn task(root: &Path, tid: u32) -> Option<Task> {
    read(&root.join(format!("proc/{tid}")), tid)
}

/// The thread with this number, if it belongs to that process.
pub fn thread(root: &Path, pid: u32, tid: u32) -> Option<Task> {
    read(&root.join(format!("proc/{pid}/task/{tid}")), tid)
}

fn read(directory: &Path, tid: u32) -> Option<Task> {
    let status = fs::read(directory.join("status")).ok()?;
    // A name of 15 bytes may end within a character.
    let status = String::from_utf8_lossy(&status);
    let value =
        |key: &str| status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':')).map(str::trim);
    if value("State")?.starts_with(['Z', 'X']) {
        return None;
    }
    Some(Task {
        tid,
        pid: value("Tgid")?.parse().ok()?,
        user: value("Uid")?.split_ascii_whitespace().next()?.parse().ok()?,
        name: Untrusted::new(value("Name")?).shown(),
        allowed: parse_cpulist(value("Cpus_allowed_list")?).ok()?,
        allowed_nodes: value("Mems_allowed_list")
            .and_then(|list| parse_cpulist(list).ok())
            .unwrap_or_default(),
    })
}

/// The numbers of a process's threads, in ascending order.
pub fn threads(root: &Path, pid: u32) -> Vec<u32> {
    numbers_in(&root.join(format!("proc/{pid}/task")))
}

/// The numbers of all processes, in ascending order.
pub fn processes(root: &Path) -> Vec<u32> {
    numbers_in(&root.join("proc"))
}

fn numbers_in(directory: &Path) -> Vec<u32> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut numbers: Vec<u32> =
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    numbers.sort_unstable();
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root_with(tid: u32, status: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join(format!("proc/{tid}"));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("status"), status).unwrap();
        root
    }

    #[test]
    fn reads_what_the_kernel_writes() {
        let status = "Name:\tCPU 0/KVM\nUmask:\t0022\nState:\tR (running)\nTgid:\t41\nNgid:\t0\nPid:\t42\n\
            Uid:\t64055\t0\t0\t0\n\
            Cpus_allowed:\tf3\nCpus_allowed_list:\t0-1,4-7\nMems_allowed_list:\t0\n";
        let root = root_with(42, status);
        let expected = Task {
            tid: 42,
            pid: 41,
            user: 64055,
            name: "CPU 0/KVM".into(),
            allowed: vec![0, 1, 4, 5, 6, 7],
            allowed_nodes: vec![0],
        };
        assert_eq!(task(root.path(), 42), Some(expected));
        assert_eq!(task(root.path(), 43), None);
    }

    #[test]
    fn a_task_that_has_ended_is_gone() {
        let root = root_with(
            7,
            "Name:\tsh\nState:\tZ (zombie)\nTgid:\t7\nUid:\t0\t0\t0\t0\nCpus_allowed_list:\t0\n",
        );
        assert_eq!(task(root.path(), 7), None);
    }

    #[test]
    fn this_process_has_this_thread() {
        let root = Path::new("/");
        let pid = std::process::id();
        assert!(threads(root, pid).contains(&pid) && processes(root).contains(&pid));
        assert_eq!(task(root, pid).unwrap().pid, pid);
    }
}
