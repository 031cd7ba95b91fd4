//! A folder that has the files of a kernel's tracing.

use super::tracefs::{Instance, Tracefs};
use std::path::Path;
use tempfile::TempDir;

/// A root with an empty tracing file system.
pub struct Fake {
    root: TempDir,
}

impl Fake {
    pub fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let fake = Self { root };
        fake.write("proc/self/mountinfo", "40 35 0:13 / /sys/kernel/tracing rw - tracefs tracefs rw\n");
        std::fs::create_dir_all(fake.root().join("sys/kernel/tracing/instances")).unwrap();
        fake
    }

    pub fn root(&self) -> &Path {
        self.root.path()
    }

    pub fn write(&self, path: &str, text: &str) {
        let path = self.root().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// An instance without any files.
    pub fn instance(&self) -> Instance {
        Tracefs::open(self.root()).unwrap().make_instance(7).unwrap()
    }

    pub fn write_to(&self, instance: &Instance, file: &str, text: &str) {
        let path = instance.path(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
}
