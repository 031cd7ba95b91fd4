//! Iterates over all tasks of a machine.

use std::fs::{self, ReadDir};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

/// The number of a thread. 0 means the caller to the kernel.
pub type Tid = NonZeroU32;

/// All threads of all processes, with their directories in `/proc`. The iterator reads directories as it
/// advances, so the caller may pause at any time, however many threads there are; it may miss a thread that
/// starts meanwhile, or one with a sibling that ends.
#[derive(Debug)]
pub struct TaskWalk {
    processes: Option<ReadDir>,
    threads: Option<ReadDir>,
}

impl TaskWalk {
    /// Begins at the first process. Without `/proc` there are no tasks.
    pub fn begin(root: &Path) -> Self {
        Self { processes: fs::read_dir(root.join("proc")).ok(), threads: None }
    }
}

impl Iterator for TaskWalk {
    type Item = (Tid, PathBuf);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(thread) = self.threads.as_mut().and_then(next_number) {
                return Some(thread);
            }
            let (_, process) = next_number(self.processes.as_mut()?)?;
            // A process that has ended has no threads.
            self.threads = fs::read_dir(process.join("task")).ok();
        }
    }
}

/// The next entry that is a number.
fn next_number(entries: &mut ReadDir) -> Option<(Tid, PathBuf)> {
    // Reading fails where the process has just ended.
    let mut entries = entries.map_while(Result::ok);
    entries.find_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_all_threads_and_nothing_else() {
        let root = tempfile::tempdir().unwrap();
        for path in ["1/task/1", "30/task/30", "30/task/31", "30/task/x", "40", "self/task/30", "sys"] {
            fs::create_dir_all(root.path().join("proc").join(path)).unwrap();
        }
        let mut threads: Vec<_> = TaskWalk::begin(root.path()).collect();
        threads.sort();
        let at = |path: &str| root.path().join("proc").join(path);
        let tid = |tid| Tid::new(tid).unwrap();
        let expected = [(1, "1/task/1"), (30, "30/task/30"), (31, "30/task/31")];
        assert_eq!(threads, expected.map(|(number, path)| (tid(number), at(path))));
        assert_eq!(TaskWalk::begin(&root.path().join("none")).count(), 0);
    }

    #[test]
    fn finds_this_thread() {
        let own = rustix::thread::gettid().as_raw_nonzero().get();
        assert!(TaskWalk::begin(Path::new("/")).any(|(tid, _)| tid.get().cast_signed() == own));
    }
}
