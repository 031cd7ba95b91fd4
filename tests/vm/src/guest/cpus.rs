//! The guest's CPUs: lists, nodes, hotplug.

use anyhow::{Context, Result};
use std::fs;
use std::path::Path;
use tandem_sim::machine::parse_cpulist;

const CPUS: &str = "/sys/devices/system/cpu";
const NODES: &str = "/sys/devices/system/node";

/// CPUs that are there, online or not.
pub fn present() -> Result<Vec<u32>> {
    read_list(&format!("{CPUS}/present"))
}

/// CPUs that run.
pub fn online() -> Result<Vec<u32>> {
    read_list(&format!("{CPUS}/online"))
}

/// NUMA nodes that run.
pub fn nodes() -> Result<Vec<u32>> {
    read_list(&format!("{NODES}/online"))
}

/// The CPUs of a node.
pub fn of_node(node: u32) -> Result<Vec<u32>> {
    read_list(&format!("{NODES}/node{node}/cpulist"))
}

/// The CPUs that share the largest cache with a CPU.
pub fn sharing_cache(cpu: u32) -> Result<Vec<u32>> {
    let cache = (0..)
        .map(|index| format!("{CPUS}/cpu{cpu}/cache/index{index}"))
        .take_while(|cache| Path::new(cache).exists())
        .last()
        .with_context(|| format!("CPU {cpu} has no caches"))?;
    read_list(&format!("{cache}/shared_cpu_list"))
}

/// Starts or stops a CPU.
pub fn set_online(cpu: u32, online: bool) -> Result<()> {
    let file = format!("{CPUS}/cpu{cpu}/online");
    fs::write(&file, if online { "1" } else { "0" }).with_context(|| format!("cannot write to {file}"))
}

/// Starts all CPUs that do not run; which they were.
pub fn bring_all_online() -> Result<Vec<u32>> {
    let online = online()?;
    let mut offline = present()?;
    offline.retain(|cpu| !online.contains(cpu));
    offline.iter().try_for_each(|&cpu| set_online(cpu, true))?;
    Ok(offline)
}

fn read_list(file: &str) -> Result<Vec<u32>> {
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {file}"))?;
    parse_cpulist(&text).with_context(|| format!("cannot understand {file}"))
}
