//! Control groups.

use super::wait;
use anyhow::{Context, Result};
use std::fs;
use std::time::Duration;

const ROOT: &str = "/sys/fs/cgroup";

/// A cgroup, with the controllers of CPU time and of CPU sets. It is removed when it goes out of scope.
pub struct Cgroup {
    directory: String,
}

impl Cgroup {
    /// Makes one.
    pub fn create(name: &str) -> Result<Self> {
        Self::create_in(ROOT, name)
    }

    /// Makes one below this one, which may have no processes of its own then.
    pub fn create_below(&self, name: &str) -> Result<Self> {
        Self::create_in(&self.directory, name)
    }

    fn create_in(parent: &str, name: &str) -> Result<Self> {
        let controllers = format!("{parent}/cgroup.subtree_control");
        fs::write(&controllers, "+cpu +cpuset").with_context(|| format!("cannot write to {controllers}"))?;
        let directory = format!("{parent}/{name}");
        fs::create_dir(&directory).with_context(|| format!("cannot make the cgroup {directory}"))?;
        Ok(Self { directory })
    }

    /// Its directory.
    pub fn directory(&self) -> &str {
        &self.directory
    }

    /// The CPU time that its processes have used.
    pub fn cpu_time(&self) -> Result<Duration> {
        let file = format!("{}/cpu.stat", self.directory);
        let stat = fs::read_to_string(&file).with_context(|| format!("cannot read {file}"))?;
        let usage_us = stat.lines().find_map(|line| line.strip_prefix("usage_usec ")?.parse().ok());
        usage_us.map(Duration::from_micros).with_context(|| format!("{file} has no usage_usec"))
    }

    /// Sets one of its values, such as `cpu.weight`.
    pub fn set(&self, name: &str, value: &str) -> Result<()> {
        let file = format!("{}/{name}", self.directory);
        fs::write(&file, value).with_context(|| format!("cannot write {value} to {file}"))
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Its processes, which are dropped before it, may need a moment more; the kernel kills the rest.
        let _ = fs::write(format!("{}/cgroup.kill", self.directory), "1");
        let _ = wait::until("the end of a cgroup", || Ok(fs::remove_dir(&self.directory).ok()));
    }
}
