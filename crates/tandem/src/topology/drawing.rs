//! Draws a machine as a tree of at most 80 columns.
//!
//! Packages hold nodes, or nodes hold packages where a node has several; both hold last-level caches, and
//! these hold cores. To stay readable with hundreds of CPUs, equal caches side by side share a line, equal
//! cores do always, and lists that are too long show their beginning and end.

use std::fmt::Write;
use tandem_machine::cpumask::CpuMask;
use tandem_machine::ids::{CpuId, NodeId};
use tandem_machine::{Core, Machine, Node, Package};

const WIDTH: usize = 80;
/// Equal caches side by side beyond this number share a line.
const CACHES_DRAWN_ONE_BY_ONE: usize = 2;

/// A line and what hangs below it.
struct Branch {
    text: String,
    /// Parts that follow the text as far as there is room.
    list: Vec<String>,
    children: Vec<Branch>,
}

impl Branch {
    fn new(text: String, children: Vec<Branch>) -> Self {
        Self { text, list: Vec::new(), children }
    }

    fn leaf(text: String, list: Vec<String>) -> Self {
        Self { text, list, children: Vec::new() }
    }
}

/// The drawing, with a newline at the end of each line.
pub fn draw(machine: &Machine) -> String {
    let mut text = String::new();
    let hardware = machine.hardware();
    let memory = machine.nodes().iter().fold(0, |sum: u64, node| sum.saturating_add(node.memory_bytes));
    let _ = writeln!(
        text,
        "{}\n{} · {} · {} · {} · {} · {}",
        machine.name(),
        count(machine.packages().len(), "package"),
        count(machine.node_count(), "NUMA node"),
        count(machine.llcs().len(), "LLC"),
        count(machine.cores().len(), "core"),
        count(machine.cpu_count(), "CPU"),
        memory_size(memory),
    );
    let _ = writeln!(
        text,
        "{} MHz · L2 {} · latency: LLC {} ns, memory {} ns, remote {} ns\n",
        hardware.clock_mhz,
        memory_size(hardware.l2_bytes),
        hardware.llc_latency_ns,
        hardware.local_memory_latency_ns,
        hardware.remote_memory_latency_ns,
    );
    render(&top_level(machine), "", &mut text);
    text.push_str(&distances(machine));
    text
}

/// Writes the branches below a line that begins with `indent`.
fn render(branches: &[Branch], indent: &str, text: &mut String) {
    for (at, branch) in branches.iter().enumerate() {
        let last = at + 1 == branches.len();
        let (fork, below) = if last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        let start = format!("{indent}{fork}{}", branch.text);
        let room = WIDTH.saturating_sub(start.chars().count());
        let _ = writeln!(text, "{start}{}", fit(&branch.list, room));
        render(&branch.children, &format!("{indent}{below}"), text);
    }
}

/// The parts, each after a space; if there is no room for all, the first ones, an ellipsis and the last one.
fn fit(parts: &[String], room: usize) -> String {
    let length = |part: &String| 1 + part.chars().count();
    if parts.iter().map(length).sum::<usize>() <= room {
        return parts.iter().map(|part| format!(" {part}")).collect();
    }
    let Some(last) = parts.last() else {
        return String::new();
    };
    let mut text = String::new();
    let mut left = room.saturating_sub(length(last) + " …".chars().count());
    for part in parts {
        let Some(rest) = left.checked_sub(length(part)) else {
            break;
        };
        left = rest;
        let _ = write!(text, " {part}");
    }
    let _ = write!(text, " … {last}");
    text
}

fn top_level(machine: &Machine) -> Vec<Branch> {
    let package_has_nodes =
        |package: &Package| machine.nodes().iter().filter(|node| node.cpus.intersects(&package.cpus)).count();
    let node_has_packages =
        |node: &Node| machine.packages().iter().filter(|package| package.cpus.intersects(&node.cpus)).count();
    let nodes_hold_packages = machine.nodes().iter().any(|node| node_has_packages(node) > 1)
        && machine.packages().iter().all(|package| package_has_nodes(package) == 1);

    let mut branches: Vec<Branch> = Vec::new();
    if nodes_hold_packages {
        for node in machine.nodes().iter().filter(|node| !node.cpus.is_empty()) {
            let inside = machine.packages().iter().filter(|package| package.cpus.intersects(&node.cpus));
            let children = inside
                .map(|package| Branch::new(package_text(package), caches(machine, &package.cpus)))
                .collect();
            branches.push(Branch::new(node_text(node), children));
        }
    } else {
        for package in machine.packages() {
            let inside = machine.nodes().iter().filter(|node| node.cpus.intersects(&package.cpus));
            let children = inside.map(|node| {
                let cpus = node.cpus.and(&package.cpus);
                let part = if cpus == node.cpus { "" } else { ", partly here" };
                Branch::new(format!("{}{part}", node_text(node)), caches(machine, &cpus))
            });
            branches.push(Branch::new(package_text(package), children.collect()));
        }
    }
    let without_cpus = machine.nodes().iter().filter(|node| node.cpus.is_empty());
    branches
        .extend(without_cpus.map(|node| Branch::new(format!("{}, no CPUs", node_text(node)), Vec::new())));
    branches
}

fn package_text(package: &Package) -> String {
    format!("package {}", package.os_index)
}

fn node_text(node: &Node) -> String {
    match node.memory_bytes {
        0 => format!("node {}, no memory", node.os_index),
        bytes => format!(
            "node {}, {} at {:.1} GB/s",
            node.os_index,
            memory_size(bytes),
            node.bandwidth_bytes_per_s as f64 / 1e9
        ),
    }
}

/// Cores with equal numbers of threads and equal speed.
#[derive(Clone)]
struct Cores<'a> {
    threads: usize,
    capacity_permille: u32,
    cores: Vec<&'a Core>,
}

impl Cores<'_> {
    /// "4 cores x 2 threads"
    fn text(&self) -> String {
        let mut text = count(self.cores.len(), "core");
        if self.threads > 1 {
            let _ = write!(text, " × {} threads", self.threads);
        }
        if self.capacity_permille != 1000 {
            let _ = write!(text, " at {:.0}% speed", f64::from(self.capacity_permille) / 10.0);
        }
        text
    }

    fn is_like(&self, other: &Cores<'_>) -> bool {
        let key = |cores: &Cores<'_>| (cores.threads, cores.capacity_permille, cores.cores.len());
        key(self) == key(other)
    }

    /// The CPUs, core by core where a core has several.
    fn list(&self, machine: &Machine) -> Vec<String> {
        match self.threads {
            1 => ranges(machine, self.cores.iter().flat_map(|core| core.cpus.iter())),
            _ => self.cores.iter().map(|core| machine.os_list(&core.cpus)).collect(),
        }
    }
}

/// CPUs under one last-level cache, or under none.
struct Cache<'a> {
    size_bytes: Option<u64>,
    /// Whether it has CPUs elsewhere, too.
    shared: bool,
    groups: Vec<Cores<'a>>,
}

impl Cache<'_> {
    /// "LLC 12 MiB"
    fn text(&self) -> String {
        match self.size_bytes {
            None => "no LLC".to_owned(),
            Some(bytes) if self.shared => format!("LLC {}, partly here", memory_size(bytes)),
            Some(bytes) => format!("LLC {}", memory_size(bytes)),
        }
    }

    fn is_like(&self, other: &Cache<'_>) -> bool {
        self.size_bytes == other.size_bytes
            && self.shared == other.shared
            && self.groups.len() == other.groups.len()
            && self.groups.iter().zip(&other.groups).all(|(a, b)| a.is_like(b))
    }
}

/// The caches over these CPUs, with their cores.
fn caches(machine: &Machine, cpus: &CpuMask) -> Vec<Branch> {
    let mut seen = Vec::new();
    let mut caches = Vec::new();
    for first in cpus.iter() {
        let llc = machine.cpu(first).llc;
        if seen.contains(&llc) {
            continue;
        }
        seen.push(llc);
        let with_llc = cpus.iter().filter(|&cpu| machine.cpu(cpu).llc == llc);
        let here = CpuMask::from_cpus(machine.cpu_count(), with_llc);
        let llc = llc.map(|llc| &machine.llcs()[llc.index()]);
        caches.push(Cache {
            size_bytes: llc.map(|llc| llc.size_bytes),
            shared: llc.is_some_and(|llc| llc.cpus != here),
            groups: core_groups(machine, &here),
        });
    }
    let mut branches = Vec::new();
    for run in caches.chunk_by(Cache::is_like) {
        if run.len() > CACHES_DRAWN_ONE_BY_ONE {
            branches.push(folded(machine, run));
        } else {
            branches.extend(run.iter().map(|cache| unfolded(machine, cache)));
        }
    }
    branches
}

fn unfolded(machine: &Machine, cache: &Cache<'_>) -> Branch {
    if let [cores] = &cache.groups[..] {
        return Branch::leaf(format!("{}: {}:", cache.text(), cores.text()), cores.list(machine));
    }
    let children = cache
        .groups
        .iter()
        .map(|cores| Branch::leaf(format!("{}:", cores.text()), cores.list(machine)))
        .collect();
    Branch::new(cache.text(), children)
}

/// One line for several equal caches.
fn folded(machine: &Machine, run: &[Cache<'_>]) -> Branch {
    let cores: Vec<String> = run[0].groups.iter().map(Cores::text).collect();
    let cpus = run.iter().flat_map(|cache| &cache.groups).flat_map(|cores| &cores.cores);
    let mut cpus: Vec<CpuId> = cpus.flat_map(|core| core.cpus.iter()).collect();
    cpus.sort_unstable();
    let text = format!("{} × {}, each {}:", run.len(), run[0].text(), cores.join(" and "));
    Branch::leaf(text, ranges(machine, cpus))
}

fn core_groups<'a>(machine: &'a Machine, cpus: &CpuMask) -> Vec<Cores<'a>> {
    let mut groups: Vec<Cores<'a>> = Vec::new();
    for core in machine.cores().iter().filter(|core| core.cpus.intersects(cpus)) {
        let Some(first) = core.cpus.iter().next() else {
            continue;
        };
        let (threads, capacity_permille) = (core.cpus.count(), machine.cpu(first).capacity_permille);
        let like =
            |group: &&mut Cores<'_>| (group.threads, group.capacity_permille) == (threads, capacity_permille);
        match groups.iter_mut().find(like) {
            Some(group) => group.cores.push(core),
            None => groups.push(Cores { threads, capacity_permille, cores: vec![core] }),
        }
    }
    groups
}

/// The CPUs' numbers as ranges: "0-7", "16-23".
fn ranges(machine: &Machine, cpus: impl IntoIterator<Item = CpuId>) -> Vec<String> {
    let mask = CpuMask::from_cpus(machine.cpu_count(), cpus);
    machine.os_list(&mask).split(',').map(str::to_owned).collect()
}

/// The matrix of distances, or what it holds if it is too wide.
fn distances(machine: &Machine) -> String {
    let ids: Vec<NodeId> = (0..machine.node_count()).map(NodeId::from).collect();
    if ids.len() == 1 {
        return String::new();
    }
    let number = |id: &NodeId| machine.nodes()[id.index()].os_index.to_string();
    let all = || ids.iter().flat_map(|&from| ids.iter().map(move |&to| machine.distance(from, to)));
    let names = ids.iter().map(|id| number(id).len()).max().unwrap_or(0);
    let cell = 1 + names.max(all().max().map_or(0, |distance| distance.to_string().len()));
    let mut text = String::new();
    if "node".len() + ids.len() * cell > WIDTH {
        let mut values: Vec<u32> = all().collect();
        values.sort_unstable();
        values.dedup();
        let values: Vec<String> = values.iter().map(u32::to_string).collect();
        let start = "distances (the matrix is in --format json):";
        let _ = writeln!(text, "\n{start}{}", fit(&values, WIDTH - start.len()));
        return text;
    }
    let _ = writeln!(text, "\ndistances from a node (row) to another (column)");
    let header: String = ids.iter().map(|id| format!("{:>cell$}", number(id))).collect();
    let _ = writeln!(text, "node{header}");
    for from in &ids {
        let row: String = ids.iter().map(|&to| format!("{:>cell$}", machine.distance(*from, to))).collect();
        let _ = writeln!(text, "{:>4}{row}", number(from));
    }
    text
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// A size to read, with at most one decimal.
fn memory_size(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let power = (bytes.max(1).ilog2() / 10) as usize;
    let value = bytes as f64 / (1u64 << (10 * power)) as f64;
    let number = format!("{value:.1}");
    format!("{} {}", number.trim_end_matches(".0"), units[power])
}

#[cfg(test)]
mod tests;
