//! The guest has the properties that the other cases assume. None of these needs the scheduler.

use super::hackbench;
use crate::guest::{Guest, cpus, sched_ext};
use anyhow::{Result, ensure};
use std::fs;
use std::path::Path;

/// The kernel has sched_ext, and no scheduler is loaded.
pub fn sched_ext_is_there(_: &Guest) -> Result<()> {
    let state = sched_ext::state()?;
    ensure!(state == "disabled", "sched_ext is {state}");
    ensure!(Path::new("/sys/kernel/btf/vmlinux").exists(), "the kernel has no BTF");
    ensure!(sched_ext::scheduler().is_none(), "a scheduler is loaded");
    Ok(())
}

/// The guest sees the CPUs, the last-level caches and the NUMA nodes that the leg asks for.
pub fn machine_is_as_asked_for(guest: &Guest) -> Result<()> {
    let machine = &guest.leg.machine;
    let online = cpus::online()?;
    ensure!(online.iter().copied().eq(0..machine.cpus()), "CPUs {online:?} are online");
    let nodes = cpus::nodes()?;
    ensure!(nodes.iter().copied().eq(0..machine.nodes), "nodes {nodes:?} are online");
    for node in nodes {
        let cpus = cpus::of_node(node)?;
        ensure!(cpus.iter().copied().eq(machine.cpus_of(node)), "node {node} has the CPUs {cpus:?}");
    }
    let of_socket = machine.cores * machine.threads;
    for cpu in 0..machine.cpus() {
        let sharing = cpus::sharing_cache(cpu)?;
        let first = cpu / of_socket * of_socket;
        ensure!(
            sharing.iter().copied().eq(first..first + of_socket),
            "CPU {cpu} shares its cache with {sharing:?}"
        );
        let core = cpus::of_core(cpu)?;
        let first = cpu / machine.threads * machine.threads;
        ensure!(core.iter().copied().eq(first..first + machine.threads), "CPU {cpu} is of the core {core:?}");
    }
    Ok(())
}

/// A program with libraries runs, with many processes, on all CPUs.
pub fn hackbench_runs(guest: &Guest) -> Result<()> {
    guest.note(hackbench()?)
}

/// The guest can be a host: KVM works in it. Whether KVM lets a spinning vCPU continue is noted, and left to
/// other cases.
pub fn kvm_is_there(guest: &Guest) -> Result<()> {
    ensure!(Path::new("/dev/kvm").exists(), "there is no /dev/kvm");
    let count = fs::read_to_string("/sys/module/kvm_amd/parameters/pause_filter_count")?;
    guest.note(format!("pause_filter_count of KVM: {}", count.trim()))
}
