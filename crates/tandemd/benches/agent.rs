//! What the agent costs a host: CPU time and memory with 200 VMs of 8 vCPUs on 8 nodes, among 1,000 other
//! processes.
//!
//! The host is a copy of `/proc`, `/sys` and cgroups in files, and time passes in steps of a second without
//! being waited for. So there are no events: the agent lists all processes every two seconds, which it does
//! once a minute where the kernel tells of new ones. A file of `/proc` costs more than one of a disk's cache:
//! the second line is the same work beside a list of this machine's own `/proc`, which says by how much.

use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::time::Duration;
use tandem_host::agent::{Agent, DryRun};
use tandem_host::metrics::{Exporter, Format};
use tandem_host::scheduler::SchedulerError;
use tandem_host::topology::read_sysfs;
use tandem_host::vms::testing::{Process, Tree, host};
use tandem_settings::Settings;

const VMS: u32 = 200;
const VCPUS: u32 = 8;
const NODES: u32 = 8;
const CPUS_OF_NODE: u32 = 32;
const OTHERS: u32 = 1_000;
/// Ten minutes of a host.
const STEPS: u64 = 600;
/// How often a page of metrics is made.
const PAGES: u32 = 100;
/// How often a file is read to compare.
const READS: u32 = 20_000;

fn main() {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let tree = host(folder.path(), VMS, VCPUS);
    tree.machine(NODES, CPUS_OF_NODE);
    for node in 0..NODES {
        let file = format!("sys/devices/system/node/node{node}/meminfo");
        tree.write(
            &file,
            &format!("Node {node} MemTotal: 268435456 kB\nNode {node} MemFree: 134217728 kB\n"),
        );
    }
    for other in 0..OTHERS {
        tree.process(&Process::new(100_000 + other, "/usr/bin/other", &[]));
    }

    let machine = read_sysfs(tree.root()).expect("the tree has a machine");
    let resident_before = resident_kib();
    let mut agent = Agent::new(tree.root(), machine.clone(), &Settings::default(), DryRun);
    let begin = cpu_time();
    agent.step(Duration::from_secs(1)).expect("the tree can be read");
    let found = cpu_time() - begin;
    assert_eq!(agent.tracked_vms().filter(|resident| resident.has_home()).count(), VMS as usize);
    let begin = cpu_time();
    for second in 2..2 + STEPS {
        black_box(agent.step(Duration::from_secs(second)).expect("the tree can be read"));
    }
    let used = cpu_time() - begin;
    let share_pct = 100.0 * used.as_secs_f64() / STEPS as f64;
    let exporter = Exporter::of_scheduler(tree.root(), || Err(SchedulerError::NotLoaded));
    let exporter = exporter.with_host(&machine, Some(agent.reports()));
    let begin = cpu_time();
    for _ in 0..PAGES {
        black_box(exporter.page(Format::OpenMetrics));
    }
    let page_ms = (cpu_time() - begin).as_secs_f64() * 1e3 / f64::from(PAGES);
    let page_kib = exporter.page(Format::OpenMetrics).len() >> 10;
    println!("{VMS} VMs of {VCPUS} vCPUs on {NODES} nodes, {OTHERS} other processes");
    println!("found and given homes      {:8.1} ms", found.as_secs_f64() * 1e3);
    println!("then, of one CPU           {share_pct:8.3} %");
    println!("a page of metrics          {page_ms:8.1} ms, {page_kib} KiB");
    println!("memory, with this program  {:8.1} MiB", resident_kib() as f64 / 1024.0);
    println!("memory that was added      {:8.1} MiB", (resident_kib() - resident_before) as f64 / 1024.0);
    println!("a file of /proc costs      {:8.2} x one of the copy", file_ratio(&tree));
}

/// How much longer it takes to read a thread's status from `/proc` than from the copy.
fn file_ratio(tree: &Tree) -> f64 {
    let time = |file: &Path| {
        let begin = cpu_time();
        for _ in 0..READS {
            black_box(fs::read(file).expect("the file is there"));
        }
        (cpu_time() - begin).as_secs_f64()
    };
    let copy = tree.root().join("proc/1000/status");
    time(Path::new("/proc/self/status")) / time(&copy)
}

/// CPU time of this process.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Memory of this process that is resident, KiB.
fn resident_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("/proc is mounted");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|kib| kib.trim().strip_suffix(" kB")?.parse().ok()).expect("the kernel tells VmRSS")
}
