//! Virtual machines in the guest: real QEMU processes with KVM, whose vCPUs compute: see
//! `programs/busy_firmware.S`.

use super::process::Process;
use super::{tasks, wait};
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::fs;
use std::process::{Command, ExitStatus};

/// Where the firmware lies.
pub const FIRMWARE: &str = "/firmware/busy.bin";
/// The file in which the agent publishes which VM lives where.
const HOMES: &str = "/run/tandem/homes.json";

/// A VM.
pub struct Vm {
    name: String,
    process: Process,
    vcpus: Vec<u32>,
}

/// The agent's entry of a VM.
#[derive(Clone, Debug, Deserialize)]
pub struct Home {
    /// Its process.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// Its nodes.
    pub home: Vec<u32>,
    /// Why these.
    pub why: String,
    /// Where its virtual nodes live, if each has a home of its own.
    #[serde(default)]
    pub parts: Vec<Part>,
}

/// The agent's entry of a virtual node of a VM.
#[derive(Clone, Debug, Deserialize)]
pub struct Part {
    /// Its nodes.
    pub home: Vec<u32>,
}

impl Vm {
    /// Starts one with that many vCPUs, and waits until these are there.
    pub fn start(name: &str, vcpus: u32) -> Result<Self> {
        Self::start_by(name, vcpus, &[])
    }

    /// Starts one by another command, such as taskset.
    pub fn start_by(name: &str, vcpus: u32, by: &[&str]) -> Result<Self> {
        Self::start_as(name, vcpus, by, &[])
    }

    /// Starts one whose guest sees two virtual nodes, each with half of the vCPUs and of the memory.
    pub fn start_with_virtual_nodes(name: &str, vcpus: u32) -> Result<Self> {
        let half = vcpus / 2;
        let nodes = [(0, 0, half - 1), (1, half, vcpus - 1)].map(|(node, first, last)| {
            let backend = format!("memory-backend-ram,id=node{node},size=32M");
            let numa = format!("node,nodeid={node},cpus={first}-{last},memdev=node{node}");
            ["-object".into(), backend, "-numa".into(), numa]
        });
        Self::start_as(name, vcpus, &[], &nodes.concat())
    }

    fn start_as(name: &str, vcpus: u32, by: &[&str], more: &[String]) -> Result<Self> {
        let program = "qemu-system-x86_64";
        let mut command = match by {
            [] => Command::new(program),
            [first, more @ ..] => {
                let mut command = Command::new(first);
                command.args(more).arg(program);
                command
            }
        };
        command
            .args(["-name", &format!("{name},debug-threads=on")])
            .args(["-M", "microvm,x-option-roms=off,pit=off,pic=off,rtc=off,acpi=off"])
            .args(["-accel", "kvm", "-cpu", "host", "-m", "64", "-smp", &vcpus.to_string()])
            .args(["-nodefaults", "-display", "none", "-bios", FIRMWARE])
            .args(more);
        let mut process = Process::start(&mut command)?;
        let numbers = wait::until(&format!("the start of the VM {name}"), || {
            let status = process.ended()?;
            ensure!(status.is_none(), "QEMU ended: {}", process.output().trim());
            let mut numbers = Vec::new();
            for thread in tasks::threads(process.pid()).unwrap_or_default() {
                let name = fs::read_to_string(format!("/proc/{thread}/comm")).unwrap_or_default();
                if name.starts_with("CPU ") {
                    numbers.push(thread);
                }
            }
            Ok((numbers.len() == vcpus as usize).then_some(numbers))
        })?;
        Ok(Self { name: name.to_owned(), process, vcpus: numbers })
    }

    /// Its process.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Waits until it has ended.
    pub fn wait(&mut self) -> Result<ExitStatus> {
        self.process.wait()
    }

    /// Its vCPUs' threads.
    pub fn vcpus(&self) -> &[u32] {
        &self.vcpus
    }

    /// The agent's entry of this VM.
    pub fn home(&self) -> Result<Option<Home>> {
        Ok(homes()?.into_iter().find(|home| home.pid == self.process.pid()))
    }

    /// Waits until the agent has given it a home; which.
    pub fn wait_for_home(&self) -> Result<Home> {
        wait::until(&format!("a home for {}", self.name), || {
            Ok(self.home()?.filter(|home| !home.home.is_empty()))
        })
    }

    /// Waits until its home is this node.
    pub fn wait_for_home_on(&self, node: u32) -> Result<Home> {
        wait::until(&format!("that {} lives on node {node}", self.name), || {
            Ok(self.home()?.filter(|home| home.home == [node]))
        })
    }
}

/// The agent's entries of VMs.
pub fn homes() -> Result<Vec<Home>> {
    #[derive(Deserialize)]
    struct File {
        vms: Vec<Home>,
    }
    let Ok(text) = fs::read_to_string(HOMES) else { return Ok(Vec::new()) };
    let file: File = serde_json::from_str(&text).with_context(|| format!("{HOMES} holds {text}"))?;
    Ok(file.vms)
}
