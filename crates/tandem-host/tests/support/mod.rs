//! Writes machines in the form of a kernel or hwloc, and generates random ones.

#![allow(dead_code, reason = "each test file uses a part")]

use proptest::prelude::*;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use tandem_machine::ids::NodeId;
use tandem_machine::{CpuSpec, Hardware, Machine, MachineBuilder, NodeSpec, format_cpulist};
use tempfile::TempDir;

/// A copied `/sys` of a machine, which tests then damage.
pub struct Tree {
    dir: TempDir,
}

impl Tree {
    pub fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    /// The tree that a kernel would show for this machine.
    pub fn of(machine: &Machine) -> Self {
        let tree = Self::new();
        let os_list = |cpus| machine.os_list(cpus);
        tree.cpu("online", &os_list(machine.all_cpus()));
        for cpu in machine.cpus() {
            let dir = format!("cpu{}", cpu.os_index);
            tree.cpu(
                &format!("{dir}/topology/core_cpus_list"),
                &os_list(&machine.cores()[cpu.core.index()].cpus),
            );
            let package = machine.packages()[cpu.package.index()].os_index;
            tree.cpu(&format!("{dir}/topology/physical_package_id"), &package.to_string());
            tree.cpu(&format!("{dir}/cpu_capacity"), &cpu.capacity_permille.to_string());
            let khz = machine.hardware().clock_mhz * 1000;
            tree.cpu(&format!("{dir}/cpufreq/cpuinfo_max_freq"), &khz.to_string());
            let own = &os_list(&machine.cores()[cpu.core.index()].cpus);
            let l2_kib = machine.hardware().l2_bytes / 1024;
            tree.cache(cpu.os_index, 0, ("1", "Data", "32K", own));
            tree.cache(cpu.os_index, 1, ("1", "Instruction", "32K", own));
            if let Some(llc) = cpu.llc {
                let llc = &machine.llcs()[llc.index()];
                tree.cache(cpu.os_index, 2, ("2", "Unified", &format!("{l2_kib}K"), own));
                let size = format!("{}K", llc.size_bytes / 1024);
                tree.cache(cpu.os_index, 3, ("3", "Unified", &size, &os_list(&llc.cpus)));
            } else {
                tree.remove(&format!("cpu/cpu{}/cache", cpu.os_index));
            }
        }
        tree.node("online", &format_cpulist(machine.nodes().iter().map(|node| node.os_index)));
        for (from, node) in machine.nodes().iter().enumerate() {
            let dir = format!("node{}", node.os_index);
            tree.node(&format!("{dir}/cpulist"), &os_list(&node.cpus));
            let kib = node.memory_bytes / 1024;
            tree.node(
                &format!("{dir}/meminfo"),
                &format!("Node {0} MemTotal: {kib:>15} kB\nNode {0} MemFree: 1 kB", node.os_index),
            );
            let row: Vec<String> = (0..machine.node_count())
                .map(|to| machine.distance(NodeId::from(from), NodeId::from(to)).to_string())
                .collect();
            tree.node(&format!("{dir}/distance"), &row.join(" "));
        }
        tree
    }

    pub fn root(&self) -> &Path {
        self.dir.path()
    }

    /// Writes a file of `/sys/devices/system/cpu`.
    pub fn cpu(&self, path: &str, text: &str) {
        self.write(&format!("sys/devices/system/cpu/{path}"), text);
    }

    /// Writes a file of `/sys/devices/system/node`.
    pub fn node(&self, path: &str, text: &str) {
        self.write(&format!("sys/devices/system/node/{path}"), text);
    }

    /// Writes level, type, size and sharing of a cache.
    pub fn cache(&self, cpu: u32, index: u32, (level, kind, size, shared): (&str, &str, &str, &str)) {
        for (file, text) in [("level", level), ("type", kind), ("size", size), ("shared_cpu_list", shared)] {
            self.cpu(&format!("cpu{cpu}/cache/index{index}/{file}"), text);
        }
    }

    /// Writes a file under the root.
    pub fn write(&self, path: &str, text: &str) {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }

    /// Removes a file or directory of `/sys/devices/system`.
    pub fn remove(&self, path: &str) {
        let path: PathBuf = self.root().join("sys/devices/system").join(path);
        match path.is_dir() {
            true => fs::remove_dir_all(path).unwrap(),
            false => fs::remove_file(path).unwrap(),
        }
    }
}

/// The file that hwloc 2 would write for this machine.
pub fn hwloc_xml(machine: &Machine) -> String {
    let mut xml = String::from("<?xml version=\"1.0\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n");
    let all: Vec<u32> = machine.cpus().iter().map(|cpu| cpu.os_index).collect();
    let _ = writeln!(xml, "<topology version=\"2.0\"><object type=\"Machine\" cpuset=\"{}\">", words(&all));
    for node in machine.nodes() {
        let cpus: Vec<u32> = node.cpus.iter().map(|cpu| machine.cpu(cpu).os_index).collect();
        let _ = writeln!(
            xml,
            "<object type=\"NUMANode\" os_index=\"{}\" cpuset=\"{}\" local_memory=\"{}\"/>",
            node.os_index,
            words(&cpus),
            node.memory_bytes
        );
    }
    for package in machine.packages() {
        let _ = writeln!(xml, "<object type=\"Package\" os_index=\"{}\">", package.os_index);
        for core in machine.cores().iter().filter(|core| core.cpus.is_subset(&package.cpus)) {
            let first = machine.cpu(core.cpus.iter().next().unwrap());
            if first.llc.is_none() {
                xml.push_str(&core_xml(machine, core));
            }
        }
        for llc in machine.llcs().iter().filter(|llc| llc.cpus.is_subset(&package.cpus)) {
            let size = llc.size_bytes;
            let _ =
                writeln!(xml, "<object type=\"L3Cache\" cache_size=\"{size}\" depth=\"3\" cache_type=\"0\">");
            for core in machine.cores().iter().filter(|core| core.cpus.is_subset(&llc.cpus)) {
                let _ = writeln!(
                    xml,
                    "<object type=\"L2Cache\" cache_size=\"{}\" depth=\"2\" cache_type=\"0\">{}</object>",
                    machine.hardware().l2_bytes,
                    core_xml(machine, core)
                );
            }
            xml.push_str("</object>\n");
        }
        xml.push_str("</object>\n");
    }
    xml.push_str("</object>\n");
    let _ = writeln!(xml, "<distances2 type=\"NUMANode\" kind=\"5\" indexing=\"os\">");
    for node in machine.nodes() {
        let _ = writeln!(xml, "<indexes length=\"2\">{} </indexes>", node.os_index);
    }
    for from in 0..machine.node_count() {
        let row: Vec<_> = (0..machine.node_count())
            .map(|to| machine.distance(NodeId::from(from), NodeId::from(to)).to_string())
            .collect();
        let _ = writeln!(xml, "<u64values length=\"2\">{} </u64values>", row.join(" "));
    }
    xml.push_str("</distances2>\n");
    for cpu in machine.cpus() {
        let _ = writeln!(
            xml,
            "<cpukind cpuset=\"{}\"><info name=\"LinuxCapacity\" value=\"{}\"/>\
             <info name=\"FrequencyMaxMHz\" value=\"{}\"/></cpukind>",
            words(&[cpu.os_index]),
            cpu.capacity_permille,
            machine.hardware().clock_mhz
        );
    }
    xml.push_str("</topology>\n");
    xml
}

fn core_xml(machine: &Machine, core: &tandem_machine::Core) -> String {
    let pus: String = core
        .cpus
        .iter()
        .map(|cpu| machine.cpu(cpu).os_index)
        .map(|cpu| format!("<object type=\"PU\" os_index=\"{cpu}\" cpuset=\"{}\"/>", words(&[cpu])))
        .collect();
    format!("<object type=\"Core\">{pus}</object>\n")
}

/// A bitmap as hwloc writes it.
fn words(numbers: &[u32]) -> String {
    let mut words = vec![0u32; 1 + numbers.iter().max().map_or(0, |&max| max as usize / 32)];
    for number in numbers {
        words[*number as usize / 32] |= 1 << (number % 32);
    }
    let words: Vec<String> = words
        .iter()
        .rev()
        .enumerate()
        .map(|(at, &word)| if word == 0 && at > 0 { String::new() } else { format!("0x{word:08x}") })
        .collect();
    // hwloc omits a word only between others.
    let text = words.join(",");
    if text.ends_with(',') { format!("{text}0x0") } else { text }
}

prop_compose! {
    /// A machine of several packages with numbers that have gaps and interleave, some nodes without CPUs or
    /// memory, caches that are not reported, and cores of several speeds and thread counts.
    pub fn machines()(
        nodes in prop::collection::vec((0..4u64, prop::collection::vec(10..255u32, 5)), 1..5),
        cores in prop::collection::vec((1..4u32, 0..5usize, prop::option::of(0..2u32), 1..1001u32), 1..24),
        clock_mhz in 1..5000u32,
        gap in 1..40u32,
        interleaved: bool,
    ) -> Machine {
        let count = nodes.len();
        let mut builder = MachineBuilder::new("random");
        let mut rows = Vec::new();
        for (at, (gib, row)) in (0..).zip(&nodes) {
            builder = builder.node(NodeSpec {
                os_index: at * gap,
                memory_bytes: gib << 30,
                bandwidth_bytes_per_s: NodeSpec::GENERIC_BANDWIDTH_BYTES_PER_S,
            });
            rows.push((0..count).map(|to| if to == at as usize { 10 } else { row[to] }).collect());
        }
        let total: u32 = cores.iter().map(|core| core.0).sum();
        let mut position = 0;
        let mut has_llc = false;
        for (core, &(threads, node, llc, capacity)) in (0..).zip(&cores) {
            let node = u32::try_from(node % count).unwrap();
            has_llc |= llc.is_some();
            for thread in 0..threads {
                // Threads side by side, or the second threads after all first ones.
                let os_index = if interleaved { thread * total + core } else { position * gap };
                position += 1;
                let llc = llc.map(|llc| node * 2 + llc);
                builder = builder.cpu(CpuSpec { os_index, core, llc, node: node * gap, package: node / 2, capacity });
            }
        }
        for label in 0..10 {
            builder = builder.llc(label, u64::from(label + 1) << 20);
        }
        // The trees of these tests have the size of an L2 only along with a last-level cache.
        let l2_bytes = if has_llc { 512 << 10 } else { Hardware::GENERIC.l2_bytes };
        builder.distances(rows).hardware(Hardware { clock_mhz, l2_bytes, ..Hardware::GENERIC }).build().unwrap()
    }
}
