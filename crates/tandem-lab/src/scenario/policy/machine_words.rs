//! Words for numbers of the machine, as user space computes them for a scheduler: `"@cpus"`, `"@llc"`.
//!
//! Some are of the whole machine. Others are of one of its parts, where the file says `each` of which: each
//! CPU, core, last-level cache, node, or pair of CPUs that share a core.

use super::words::Words;
use tandem_ebpf::Value;
use tandem_machine::Machine;
use tandem_machine::cpumask::CpuMask;
use tandem_machine::ids::CpuId;

/// What something is repeated for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A CPU.
    Cpu,
    /// A core.
    Core,
    /// A last-level cache.
    Llc,
    /// A NUMA node.
    Node,
    /// An ordered pair of CPUs of one core.
    Siblings,
}

impl Words for Part {
    const WORDS: &'static [(&'static str, Self, &'static str)] = &[
        ("cpu", Self::Cpu, "Each CPU, by its number."),
        ("core", Self::Core, "Each core."),
        ("llc", Self::Llc, "Each last-level cache."),
        ("node", Self::Node, "Each NUMA node."),
        ("siblings", Self::Siblings, "Each ordered pair of CPUs that share a core."),
    ];
}

/// The whole machine, or one of its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    Machine,
    Cpu(CpuId),
    Core(usize),
    Llc(usize),
    Node(usize),
    Siblings(CpuId, CpuId),
    /// One of a number of repetitions, which is no part of the machine.
    Number(usize),
}

/// Words of the whole machine, which all parts have too.
const OF_MACHINE: &[&str] = &["cpus", "cores", "llcs", "nodes", "smt", "mask", "mask_bytes"];

impl At {
    /// All parts of a kind.
    pub fn each(machine: &Machine, part: Part) -> Vec<Self> {
        let cpus = || machine.all_cpus().iter();
        match part {
            Part::Cpu => cpus().map(Self::Cpu).collect(),
            Part::Core => (0..machine.cores().len()).map(Self::Core).collect(),
            Part::Llc => (0..machine.llcs().len()).map(Self::Llc).collect(),
            Part::Node => (0..machine.node_count()).map(Self::Node).collect(),
            Part::Siblings => cpus()
                .flat_map(|cpu| machine.siblings(cpu).iter().map(move |sibling| (cpu, sibling)))
                .filter(|(cpu, sibling)| cpu != sibling)
                .map(|(cpu, sibling)| Self::Siblings(cpu, sibling))
                .collect(),
        }
    }

    /// The words that have a meaning here, without their `@`.
    pub fn words(self) -> impl Iterator<Item = &'static str> {
        let own: &[&str] = match self {
            Self::Machine => &[],
            Self::Cpu(_) => &[
                "cpu",
                "core",
                "llc",
                "node",
                "capacity",
                "sibling",
                "thread",
                "near",
                "near_core",
                "near_llc",
                "near_node",
            ],
            Self::Core(_) => &["core", "llc", "node", "count"],
            Self::Llc(_) => &["llc", "node", "count", "near", "near_node", "others", "other_count"],
            Self::Node(_) => &["node", "count", "others", "other_count", "caches", "cache_count"],
            Self::Siblings(..) => &["cpu", "sibling", "core", "llc", "node"],
            Self::Number(_) => &["number"],
        };
        own.iter().chain(OF_MACHINE).copied()
    }

    /// What a word means here.
    pub fn meaning(self, machine: &Machine, word: &str) -> Option<Value> {
        if !self.words().any(|known| known == word) {
            return None;
        }
        Some(match (word, self) {
            ("cpus", _) => number(machine.cpu_count()),
            ("cores", _) => number(machine.cores().len()),
            ("llcs", _) => number(machine.llcs().len()),
            ("nodes", _) => number(machine.node_count()),
            ("smt", _) => number(machine.has_smt().into()),
            ("mask", _) => list(self.cpus(machine).words()),
            ("mask_bytes", _) => list(self.cpus(machine).words().flat_map(u64::to_le_bytes)),
            ("count", _) => number(self.cpus(machine).count()),
            ("sibling", Self::Siblings(_, sibling)) => number(sibling.index()),
            ("sibling", Self::Cpu(cpu)) => number(sibling_of(machine, cpu).index()),
            ("number", Self::Number(at)) => number(at),
            ("core", Self::Core(at)) | ("llc", Self::Llc(at)) | ("node", Self::Node(at)) => number(at),
            ("caches", _) => list(self.caches(machine)),
            ("cache_count", _) => number(self.caches(machine).len()),
            ("others", _) => list(self.others(machine)),
            ("other_count", _) => number(self.others(machine).len()),
            ("near", Self::Llc(at)) => list([at].into_iter().chain(self.others(machine))),
            ("near_node", Self::Llc(_)) => {
                let node = self.first(machine).map(|cpu| machine.cpu(cpu).node.index());
                number(node.map_or(0, |node| Self::Node(node).caches(machine).len()))
            }
            (word, _) => of_cpu(machine, self.first(machine)?, word)?,
        })
    }

    fn cpus(self, machine: &Machine) -> CpuMask {
        match self {
            Self::Machine | Self::Number(_) => machine.all_cpus().clone(),
            Self::Cpu(cpu) | Self::Siblings(cpu, _) => CpuMask::from_cpus(machine.cpu_count(), [cpu]),
            Self::Core(at) => machine.cores()[at].cpus.clone(),
            Self::Llc(at) => machine.llcs()[at].cpus.clone(),
            Self::Node(at) => machine.nodes()[at].cpus.clone(),
        }
    }

    fn first(self, machine: &Machine) -> Option<CpuId> {
        self.cpus(machine).iter().next()
    }

    /// The last-level caches of a node.
    fn caches(self, machine: &Machine) -> Vec<usize> {
        let cpus = self.cpus(machine);
        let llcs = machine.llcs().iter().enumerate();
        llcs.filter(|(_, llc)| llc.cpus.intersects(&cpus)).map(|(at, _)| at).collect()
    }

    /// The other caches or nodes, near ones first.
    fn others(self, machine: &Machine) -> Vec<usize> {
        let node_of = |at: Self| match at {
            Self::Node(at) => Some(at.into()),
            at => at.first(machine).map(|cpu| machine.cpu(cpu).node),
        };
        let own = node_of(self);
        let distance =
            |other: Self| own.zip(node_of(other)).map_or(u32::MAX, |(a, b)| machine.distance(a, b));
        let (count, at, other): (_, _, fn(usize) -> Self) = match self {
            Self::Llc(at) => (machine.llcs().len(), at, Self::Llc),
            Self::Node(at) => (machine.node_count(), at, Self::Node),
            _ => return Vec::new(),
        };
        let mut others: Vec<_> = (0..count).filter(|&position| position != at).collect();
        others.sort_by_key(|&position| distance(other(position)));
        others
    }
}

/// What a word means for a CPU: a part that contains it, or those around it.
fn of_cpu(machine: &Machine, cpu: CpuId, word: &str) -> Option<Value> {
    let about = machine.cpu(cpu);
    Some(match word {
        "cpu" => number(cpu.index()),
        "core" => number(about.core.index()),
        "llc" => number(about.llc.map_or(0, |llc| llc.index())),
        "node" => number(about.node.index()),
        // Permille, in units of 1024 as sched_ext has them.
        "capacity" => number(about.capacity_permille as usize * 1024 / 1000),
        "thread" => number(machine.siblings(cpu).iter().take_while(|&other| other != cpu).count()),
        "near_core" => number(machine.siblings(cpu).count()),
        "near_llc" => number(machine.llc_cpus(cpu).count()),
        "near_node" => number(machine.node_cpus(about.node).count()),
        "near" => {
            let ring = |other: CpuId| {
                let near = [machine.siblings(cpu), machine.llc_cpus(cpu), machine.node_cpus(about.node)];
                near.iter().position(|cpus| cpus.contains(other)).unwrap_or(near.len())
            };
            let mut all: Vec<_> = machine.all_cpus().iter().collect();
            all.sort_by_key(|&other| (other != cpu, ring(other), other.index().abs_diff(cpu.index())));
            list(all.into_iter().map(|other| other.index()))
        }
        _ => return None,
    })
}

/// The next CPU of the same core, round and round.
fn sibling_of(machine: &Machine, cpu: CpuId) -> CpuId {
    let siblings = machine.siblings(cpu);
    siblings.next_after(cpu).or_else(|| siblings.iter().next()).unwrap_or(cpu)
}

fn number(number: usize) -> Value {
    Value::Number(number as i128)
}

fn list<T: TryInto<i128>>(numbers: impl IntoIterator<Item = T>) -> Value {
    let number = |number: T| Value::Number(number.try_into().unwrap_or_default());
    Value::List(numbers.into_iter().map(number).collect())
}
