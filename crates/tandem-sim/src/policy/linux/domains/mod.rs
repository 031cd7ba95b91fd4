//! Scheduling domains: the sets of CPUs over which a kernel spreads its tasks.
//!
//! Each CPU has a chain of domains, from its core up to the whole machine. A domain spans CPUs and cuts them
//! into groups, which are the spans of the domains below; balancing a domain means balancing its groups. The
//! chain is built as the kernel builds it: one level after the other, then levels that add nothing are
//! removed. `level.rs` has the levels and their constants.
//!
//! [`Domains::Flat`] replaces the levels by one over all CPUs without flags of its own, as
//! `set_sched_topology()` does in Xen's flat-domain patch. To the scheduler, no CPU then shares a cache with
//! another: [`DomainTree::llc_size`] is 1. Levels for NUMA nodes, if the kernel sees nodes, stay.

mod describe;
mod flags;
mod level;

pub use describe::describe;
pub(super) use flags::Flags;
pub(super) use level::{CPU_CAPACITY, Tunables};

use super::features::{DomainFeatures, Features};
use super::{Domains, LinuxSettings};
use level::Level;
use std::ops::Range;
use tandem_machine::Machine;
use tandem_machine::cpumask::CpuMask;
use tandem_machine::ids::CpuId;

/// CPUs that balancing treats as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    pub cpus: CpuMask,
    /// Number of CPUs.
    pub weight: u32,
    /// Sum of the CPUs' capacities; 1024 is a core without threads.
    pub capacity: u32,
    /// Balancing within the group failed because of affinity, so it should be relieved from outside.
    pub imbalanced: bool,
}

/// The CPUs of a domain and their groups; CPUs with the same view share one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub cpus: CpuMask,
    /// Number of CPUs.
    pub weight: u32,
    /// A ring: each CPU begins with its own group.
    groups: Vec<Group>,
    /// Number of CPUs that a wake-up examines for an idle one, as of the last balance (6.12, `nr_idle_scan`).
    pub idle_scan: u32,
}

/// A scheduling domain of one CPU.
#[derive(Clone, Debug)]
pub(super) struct Domain {
    name: &'static str,
    span: usize,
    own_group: usize,
    pub tunables: Tunables,
    /// Between NUMA nodes: up to this many running tasks, small imbalances are tolerated (6.12).
    pub imb_numa_nr: u32,
    /// Tick at which it was last balanced.
    pub last_balance_tick: u64,
    /// Time between balances, between the two bounds in `tunables`, ms.
    pub interval_ms: u32,
    /// Attempts that found an imbalance and moved nothing, since the last that did.
    pub failed: u32,
    /// Time in which a cache line from each of its other CPUs travels to its CPU, one after the other, ns.
    pub lines_ns: u64,
    /// Longest time that a new-idle balance of it took, ns; it decays.
    pub newidle_cost_ns: u64,
    /// When that cost last decayed, ns.
    pub newidle_decay_ns: u64,
    pub newidle: NewidleRate,
    /// Average time of a search of it for an idle CPU, ns (5.2, `avg_scan_cost`).
    pub scan_cost_ns: u64,
}

/// How often searches of a domain by newly idle CPUs have found work of late (`newidle_ratio`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NewidleRate {
    calls: u32,
    successes: u32,
    /// In 1024ths.
    pub ratio: u32,
    /// When that was last found, ns.
    found_ns: u64,
}

impl NewidleRate {
    /// The whole, and the number of calls after which the ratio is found anew.
    pub const SCALE: u32 = 1024;

    /// As `sd_init()` sets it.
    fn new() -> Self {
        Self { calls: 512, successes: 256, ratio: 512, found_ns: 0 }
    }

    /// Counts a call that found work so many times. `with_rate`: rare calls raise the ratio, up to the whole
    /// if 512 of them take 4 s.
    pub fn count(&mut self, now_ns: u64, successes: u32, with_rate: bool) {
        self.calls += 1;
        self.successes += successes;
        if self.calls < Self::SCALE {
            return;
        }
        let rate =
            if with_rate { ((now_ns - self.found_ns) >> 22).min(Self::SCALE.into()) as u32 } else { 0 };
        self.found_ns = now_ns;
        self.ratio = (rate + self.successes).min(Self::SCALE);
        self.calls /= 2;
        self.successes /= 2;
    }
}

impl Domain {
    /// Doubles the time between balances, up to its longest; `pinned`: while tasks cannot move because of
    /// their affinity, up to `MAX_PINNED_INTERVAL`.
    pub fn stretch_interval(&mut self, pinned: bool) {
        const MAX_PINNED_INTERVAL_MS: u32 = 512;
        let limit_ms = self.tunables.max_interval_ms;
        if self.interval_ms < limit_ms || (pinned && self.interval_ms < MAX_PINNED_INTERVAL_MS) {
            self.interval_ms *= 2;
        }
    }
}

/// The time between two balances of the domain that a kernel balances least often, while nothing is wrong
/// there and its CPUs idle, ns; 0 if it has no domains.
pub fn slowest_balancing_ns(settings: &LinuxSettings, machine: &Machine) -> u64 {
    let tree = DomainTree::new(&Features::of(settings.era).domains, settings.domains, machine);
    let slowest_ms = tree.domains.iter().map(|domain| domain.tunables.min_interval_ms).max();
    u64::from(slowest_ms.unwrap_or(0)) * 1_000_000
}

/// The domains of a kernel.
#[derive(Clone, Debug)]
pub(super) struct DomainTree {
    spans: Vec<Span>,
    /// CPU after CPU, each from the lowest level up.
    domains: Vec<Domain>,
    /// Position in `domains` at which those of each CPU begin; one more entry for the end.
    first: Vec<usize>,
    /// The highest domain of each CPU whose CPUs share a cache.
    llc: Vec<Option<usize>>,
}

impl DomainTree {
    /// Builds the domains of all CPUs.
    pub fn new(features: &DomainFeatures, domains: Domains, machine: &Machine) -> Self {
        let levels = level::levels(features, domains, machine);
        let mut tree = Self { spans: Vec::new(), domains: Vec::new(), first: vec![0], llc: Vec::new() };
        let by_level = make_spans(&levels, features, machine, &mut tree.spans);
        for cpu in machine.all_cpus().iter() {
            let mut chain: Vec<_> = levels
                .iter()
                .zip(&by_level)
                .map(|(level, by_cpu)| {
                    let span = by_cpu[cpu.index()];
                    Domain::new(level, features, (span, &tree.spans[span]), machine, cpu)
                })
                .collect();
            allow_numa_imbalance(&mut chain, &tree.spans);
            let kept = remove_degenerate(chain, &tree.spans, features);
            let start = tree.domains.len();
            let sharing =
                kept.iter().take_while(|domain| domain.tunables.flags.contains(Flags::SHARE_LLC)).count();
            tree.llc.push(sharing.checked_sub(1).map(|highest| start + highest));
            tree.domains.extend(kept);
            tree.first.push(tree.domains.len());
        }
        tree
    }

    /// The domains of a CPU, from the lowest up, as indices for [`domain`](Self::domain).
    #[inline]
    pub fn of(&self, cpu: CpuId) -> Range<usize> {
        self.first[cpu.index()]..self.first[cpu.index() + 1]
    }

    /// One domain.
    #[inline]
    pub fn domain(&self, at: usize) -> &Domain {
        &self.domains[at]
    }

    /// One domain, to change its state.
    #[inline]
    pub fn domain_mut(&mut self, at: usize) -> &mut Domain {
        &mut self.domains[at]
    }

    /// The CPUs of a domain.
    #[inline]
    pub fn span(&self, at: usize) -> &Span {
        &self.spans[self.domains[at].span]
    }

    /// The CPUs of a domain, to change what all of them share.
    #[inline]
    pub fn span_mut(&mut self, at: usize) -> &mut Span {
        &mut self.spans[self.domains[at].span]
    }

    /// The own group of a domain.
    #[inline]
    pub fn own_group_mut(&mut self, at: usize) -> &mut Group {
        let domain = &self.domains[at];
        &mut self.spans[domain.span].groups[domain.own_group]
    }

    /// The groups of a domain, the one that holds the domain's CPU first.
    #[inline]
    pub fn groups(&self, at: usize) -> impl Iterator<Item = &Group> {
        let groups = &self.span(at).groups;
        let (before, from_own) = groups.split_at(self.domains[at].own_group);
        from_own.iter().chain(before)
    }

    /// The group of a domain that comes `nth` after the own one.
    #[inline]
    pub fn group(&self, at: usize, nth: usize) -> &Group {
        let groups = &self.span(at).groups;
        &groups[(self.domains[at].own_group + nth) % groups.len()]
    }

    /// The highest domain of the CPU whose CPUs share a cache.
    #[inline]
    pub fn llc_domain(&self, cpu: CpuId) -> Option<usize> {
        self.llc[cpu.index()]
    }

    /// Number of CPUs that share a cache with this one according to the domains, itself included.
    #[inline]
    pub fn llc_size(&self, cpu: CpuId) -> u32 {
        self.llc_domain(cpu).map_or(1, |at| self.span(at).weight)
    }

    /// Whether the two CPUs share a cache according to the domains.
    #[inline]
    pub fn share_cache(&self, a: CpuId, b: CpuId) -> bool {
        a == b || self.llc_domain(a).is_some_and(|at| self.span(at).cpus.contains(b))
    }
}

impl Domain {
    fn new(
        level: &Level,
        features: &DomainFeatures,
        (span_index, span): (usize, &Span),
        machine: &Machine,
        cpu: CpuId,
    ) -> Self {
        let own_group = span.groups.iter().position(|group| group.cpus.contains(cpu));
        let tunables = level.tunables(features, span.weight);
        let threads = machine.siblings(cpu);
        let lines_ns = |other| if threads.contains(other) { 0 } else { machine.line_transfer_ns(other, cpu) };
        Self {
            name: level.name,
            span: span_index,
            own_group: own_group.expect("the groups of a span cover it"),
            tunables,
            imb_numa_nr: 0,
            last_balance_tick: 0,
            interval_ms: tunables.min_interval_ms,
            failed: 0,
            lines_ns: span.cpus.iter().filter(|&other| other != cpu).map(lines_ns).sum(),
            newidle_cost_ns: 0,
            newidle_decay_ns: 0,
            newidle: NewidleRate::new(),
            scan_cost_ns: 0,
        }
    }
}

/// Makes the spans of all levels; returns them and the span of each CPU, level by level.
fn make_spans(
    levels: &[Level],
    features: &DomainFeatures,
    machine: &Machine,
    spans: &mut Vec<Span>,
) -> Vec<Vec<usize>> {
    let mut by_level: Vec<Vec<usize>> = Vec::new();
    for level in levels {
        let mut by_cpu: Vec<usize> = Vec::new();
        for cpu in machine.all_cpus().iter() {
            let below = by_level.last();
            // CPUs of one domain share its span; where domains may overlap, those that share the domain
            // below.
            let twin = match below {
                Some(below) if level.is_numa() => {
                    (0..cpu.index()).find(|&other| below[other] == below[cpu.index()])
                }
                _ => (0..cpu.index()).find(|&other| spans[by_cpu[other]].cpus.contains(cpu)),
            };
            let span = twin.map(|other| by_cpu[other]).unwrap_or_else(|| {
                let mut cpus = level.span(machine, cpu);
                // The kernel widens a level that is narrower than the one below it.
                if let Some(below) = below {
                    spans[below[cpu.index()]].cpus.iter().for_each(|member| cpus.insert(member));
                }
                let of_child = |member: CpuId| match below {
                    Some(below) => spans[below[member.index()]].cpus.and(&cpus),
                    None => CpuMask::from_cpus(machine.cpu_count(), [member]),
                };
                let capacity =
                    |member: CpuId| levels[0].cpu_capacity(features, machine.siblings(member).count());
                let groups = cut(&cpus, cpu, of_child, capacity);
                let weight = cpus.count() as u32;
                spans.push(Span { cpus, weight, groups, idle_scan: weight });
                spans.len() - 1
            });
            by_cpu.push(span);
        }
        by_level.push(by_cpu);
    }
    by_level
}

/// Cuts a span into groups, once around from `start`.
fn cut(
    cpus: &CpuMask,
    start: CpuId,
    of_child: impl Fn(CpuId) -> CpuMask,
    capacity: impl Fn(CpuId) -> u32,
) -> Vec<Group> {
    let mut groups = Vec::new();
    let mut rest = cpus.clone();
    let mut at = start;
    while let Some(cpu) = rest.next_and_wrapping(cpus, at) {
        let group = of_child(cpu);
        rest.remove_all(&group);
        at = cpu;
        groups.push(Group {
            weight: group.count() as u32,
            capacity: group.iter().map(&capacity).sum(),
            cpus: group,
            imbalanced: false,
        });
    }
    groups
}

/// Sets the number of running tasks up to which a chain tolerates imbalances between nodes: an eighth of a
/// node, or as many as the node has last-level caches; more for domains of several nodes (6.12,
/// `imb_numa_nr`).
fn allow_numa_imbalance(chain: &mut [Domain], spans: &[Span]) {
    let weight = |domain: &Domain| spans[domain.span].weight;
    let shares_llc = |domain: &Domain| domain.tunables.flags.contains(Flags::SHARE_LLC);
    let Some(above_llc) = chain.windows(2).position(|pair| shares_llc(&pair[0]) && !shares_llc(&pair[1]))
    else {
        return;
    };
    let (llc, node) = (weight(&chain[above_llc]), weight(&chain[above_llc + 1]));
    let caches = node / llc;
    let imbalance = if caches == 1 { node >> 3 } else { caches }.max(1);
    let first_numa = chain.iter().find(|domain| domain.tunables.flags.contains(Flags::NUMA));
    let numa_weight = first_numa.map_or(node, weight);
    chain[above_llc + 1].imb_numa_nr = imbalance;
    for domain in &mut chain[above_llc + 2..] {
        domain.imb_numa_nr = imbalance * (weight(domain) / numa_weight).max(1);
    }
}

/// Removes levels that add nothing: with a single CPU, or with the CPUs and the meaning of the level below.
/// `PREFER_SIBLING` of a removed level goes down to the level that replaces it (since 3.13).
fn remove_degenerate(chain: Vec<Domain>, spans: &[Span], features: &DomainFeatures) -> Vec<Domain> {
    let mut kept: Vec<Domain> = Vec::new();
    for domain in chain {
        let span = &spans[domain.span];
        if span.weight == 1 {
            continue;
        }
        if let Some(below) = kept.last_mut() {
            let flags = domain.tunables.flags;
            let lost = without_groups(flags, features).without(below.tunables.flags);
            if spans[below.span].weight == span.weight && span.groups.len() == 1 && lost == Flags::NONE {
                if features.keeps_prefer_sibling && flags.contains(Flags::PREFER_SIBLING) {
                    below.tunables.flags = below.tunables.flags | Flags::PREFER_SIBLING;
                }
                continue;
            }
        }
        kept.push(domain);
    }
    kept
}

/// The flags that mean something even if there is only one group.
fn without_groups(flags: Flags, features: &DomainFeatures) -> Flags {
    let need_groups = Flags::NEWIDLE
        | Flags::EXEC
        | Flags::FORK
        | Flags::SHARE_CAPACITY
        | Flags::SHARE_LLC
        | Flags::PREFER_SIBLING;
    let flags = flags.without(need_groups);
    if features.removes_numa { flags.without(Flags::SERIALIZE | Flags::NUMA) } else { flags }
}

#[cfg(test)]
mod tests;
