//! Control groups.

use anyhow::{Context, Result};
use std::fs;

const ROOT: &str = "/sys/fs/cgroup";

/// A cgroup below the root, with the controllers of CPU time and of CPU sets. It is removed when it goes out of scope.
pub struct Cgroup {
    directory: String,
}

impl Cgroup {
    /// Makes one.
    pub fn create(name: &str) -> Result<Self> {
        let controllers = format!("{ROOT}/cgroup.subtree_control");
        fs::write(&controllers, "+cpu +cpuset").with_context(|| format!("cannot write to {controllers}"))?;
        let directory = format!("{ROOT}/{name}");
        fs::create_dir(&directory).with_context(|| format!("cannot make the cgroup {directory}"))?;
        Ok(Self { directory })
    }

    /// Its directory.
    pub fn directory(&self) -> &str {
        &self.directory
    }

    /// Sets one of its values, such as `cpu.weight`.
    pub fn set(&self, name: &str, value: &str) -> Result<()> {
        let file = format!("{}/{name}", self.directory);
        fs::write(&file, value).with_context(|| format!("cannot write {value} to {file}"))
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Its processes, which are dropped before it, may need a moment more; the kernel kills who is left.
        let _ = fs::write(format!("{}/cgroup.kill", self.directory), "1");
        for _ in 0..100 {
            if fs::remove_dir(&self.directory).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}
