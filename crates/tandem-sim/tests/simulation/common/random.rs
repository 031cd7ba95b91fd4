//! Random scenarios: everything that a scenario can hold, valid whatever is drawn.
//!
//! Parts are drawn independently, indices and masks are then fitted to what the machine and the VM have. That
//! way a failing scenario shrinks part by part.

use super::{Kind, MS, US};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use std::sync::Arc;
use tandem_machine::cpumask::CpuMask;
use tandem_machine::ids::{CpuId, NodeId};
use tandem_machine::{CpuSpec, Machine, MachineBuilder, NodeSpec};
use tandem_sim::cost::{ContextSwitch, CostModels};
use tandem_sim::policy::credit::{CreditSettings, Era, RateControl};
use tandem_sim::policy::credit2::{Credit2Settings, Release, Sharing};
use tandem_sim::policy::linux::{LinuxEra, LinuxSettings};
use tandem_sim::program::{Amount, MemoryProfile, Op, Program, SharedData};
use tandem_sim::scenario::{
    Affinity, AffinityChange, Arrivals, HostTask, MemoryPolicy, Pages, PolicySettings, Scenario, Source,
    Which, Workload, WorkloadKind,
};

const PROFILES: usize = 2;
const COUNTERS: usize = 2;
pub const ERAS: [Era; 5] = [Era::Xen4_2, Era::Xen4_3, Era::Xen4_5, Era::Xen4_9, Era::Xen4_13];

/// How many cases a property gets: a quarter of proptest's own number, which `PROPTEST_CASES` sets.
pub fn some_cases() -> ProptestConfig {
    let config = ProptestConfig::default();
    ProptestConfig { cases: config.cases.div_ceil(4), failure_persistence: None, ..config }
}

/// Any scenario.
pub fn scenario() -> impl Strategy<Value = Scenario> {
    let times = (prop_oneof![Just(0), MS..40 * MS], 20 * MS..150 * MS, prop::option::weighted(0.1, 1..50u64));
    (machine(), costs(), xen(), vec(vm_plan(), 1..8), times).prop_map(
        |(machine, costs, policy, vms, (warmup_ns, length_ns, stop_at_count))| {
            let vms = vms.into_iter().enumerate();
            let era = match &policy {
                PolicySettings::Credit(settings) => settings.era,
                _ => Era::Xen4_13,
            };
            Scenario {
                workloads: vms.map(|(at, plan)| plan.build(at, &machine, era)).collect(),
                machine: Arc::new(machine),
                costs,
                policy,
                warmup_ns,
                length_ns,
                stop_at_count,
                gates: 0,
                cgroups: Vec::new(),
                events: Vec::new(),
                homes: Default::default(),
                pause_loop: None,
                halt_poll_ns: None,
            }
        },
    )
}

/// A scenario with few VMs, on a Linux host that balances NUMA nodes, long enough for it to move something.
pub fn balanced_scenario() -> impl Strategy<Value = Scenario> {
    let memory = prop_oneof![1u64..64 << 20, 1u64..4 << 30];
    let vms = vec((vm_plan(), memory, any::<bool>(), 0..4u8, pages()), 1..3);
    (machine(), costs(), vms, select(vec![LinuxEra::V4_2, LinuxEra::V6_12, LinuxEra::V7_3])).prop_map(
        |(machine, costs, vms, era)| {
            let vms =
                vms.into_iter().enumerate().map(|(at, (plan, memory_bytes, first_touch, policy, pages))| {
                    let vm = plan.build(at, &machine, Era::Xen4_9);
                    let memory_policy = match policy {
                        0 if !first_touch => MemoryPolicy::Cpuset(nodes_of_memory(&vm)),
                        1 => MemoryPolicy::Own,
                        _ => MemoryPolicy::FirstTouch,
                    };
                    Workload { memory_bytes, first_touch, memory_policy, pages, ..vm }
                });
            Scenario {
                workloads: vms.collect(),
                machine: Arc::new(machine),
                costs,
                policy: PolicySettings::Linux(LinuxSettings {
                    era,
                    numa_balancing: true,
                    ..LinuxSettings::default()
                }),
                warmup_ns: 900 * MS,
                length_ns: 500 * MS,
                stop_at_count: None,
                gates: 0,
                cgroups: Vec::new(),
                events: Vec::new(),
                homes: Default::default(),
                pause_loop: None,
                halt_poll_ns: None,
            }
        },
    )
}

fn pages() -> impl Strategy<Value = Pages> {
    prop_oneof![
        2 => Just(Pages::Small),
        2 => Just(Pages::Transparent(100)),
        1 => (0..=100u8).prop_map(Pages::Transparent),
        1 => Just(Pages::Hugetlb),
    ]
}

/// The nodes that the memory of a workload lies on.
fn nodes_of_memory(workload: &Workload) -> Vec<NodeId> {
    let shares = workload.memory_shares.iter().enumerate();
    shares.filter(|(_, share)| **share > 0.0).map(|(node, _)| node.into()).collect()
}

/// A scenario without costs, caps, restricting affinities or control of the rate, in which vCPUs compute and
/// sleep in turn for spans drawn from `spans`: one to three for each two pCPUs, mostly.
pub fn busy_scenario<S: Strategy<Value = Amount>>(spans: fn() -> S) -> impl Strategy<Value = Scenario> {
    let round = (spans(), spans(), prop::bool::weighted(0.2)).prop_map(|(work, pause, yields)| {
        let mut body = vec![Op::Compute { work, profile: None }, Op::Sleep(pause)];
        if yields {
            body.extend([Op::Compute { work, profile: None }, Op::Yield]);
        }
        vec![Op::Repeat { times: None, body }]
    });
    let vms = vec((vec(round, 1..=3), prop_oneof![Just(256), 1..1024u32]), 1..=6);
    (1..=2u32, 1..=3u32, 1..=2u32, settings(), vms).prop_map(|(packages, cores, threads, settings, vms)| {
        let machine = Arc::new(MachineBuilder::symmetric(packages, cores, threads).build().unwrap());
        let vms = vms.into_iter().enumerate().map(|(at, (programs, weight))| {
            let vcpus = programs.len().min(machine.cpu_count());
            let mut vm = super::vm(&format!("vm{at}"), &machine, vcpus, vec![]);
            for (vcpu, ops) in vm.programs_mut().iter_mut().zip(programs) {
                vcpu.program = Arc::new(Program { ops, profiles: vec![] });
            }
            Workload { weight, ..vm }
        });
        let vms = vms.collect();
        let policy = CreditSettings {
            timeslice_ns: settings.timeslice_ns.min(30 * MS),
            ratelimit_ns: 0,
            migration_delay_ns: 0,
            rate_control: None,
            ..settings
        };
        super::textbook(machine, policy, 300 * MS, vms)
    })
}

/// Spans of which hardly two are ever equal.
pub fn uneven_span() -> impl Strategy<Value = Amount> {
    (US..500 * US, MS..20 * MS).prop_map(|(low_ns, high_ns)| Amount::Uniform(low_ns, high_ns))
}

/// Spans that make many things happen at one instant.
pub fn round_span() -> impl Strategy<Value = Amount> {
    select(vec![MS / 2, MS, 2 * MS, 5 * MS, 10 * MS]).prop_map(Amount::Fixed)
}

/// Any small machine: up to 4 packages of 4 cores of 2 threads, some without last-level caches, some hybrid.
pub fn machine() -> impl Strategy<Value = Machine> {
    let size = || prop_oneof![2 => Just(1), 3 => 1..=4u32];
    (size(), size(), 1..=2u32, any::<bool>(), prop_oneof![3 => Just(1000), 1 => 300..1000u32]).prop_map(
        |(packages, cores, threads, has_llc, small_core_capacity)| {
            let mut builder = MachineBuilder::new("random");
            for package in 0..packages {
                builder = builder.node(NodeSpec {
                    os_index: package,
                    memory_bytes: 1 << 30,
                    bandwidth_bytes_per_s: NodeSpec::GENERIC_BANDWIDTH_BYTES_PER_S,
                });
                if has_llc {
                    builder = builder.llc(package, 4 << 20);
                }
            }
            for cpu in 0..packages * cores * threads {
                let core = cpu / threads;
                let package = core / cores;
                builder = builder.cpu(CpuSpec {
                    os_index: cpu,
                    core,
                    llc: has_llc.then_some(package),
                    node: package,
                    package,
                    capacity: if core % 2 == 0 { 1000 } else { small_core_capacity },
                });
            }
            builder.build().unwrap()
        },
    )
}

/// No costs, all of them, or one model alone.
pub fn costs() -> impl Strategy<Value = CostModels> {
    let (off, all) = (CostModels::off(), CostModels::all());
    let alone = vec![
        CostModels { context_switch: all.context_switch, ..off.clone() },
        CostModels { context_switch: Some(ContextSwitch::linux()), ..off.clone() },
        CostModels { cache: all.cache, ..off.clone() },
        CostModels { smt: all.smt, ..off.clone() },
        CostModels { memory: all.memory, ..off.clone() },
        CostModels { coherence: all.coherence, ..off.clone() },
        CostModels { ipi: all.ipi, ..off.clone() },
        CostModels { vm_exit: all.vm_exit, ..off.clone() },
        CostModels { spin_lock: all.spin_lock, ..off.clone() },
        CostModels { interrupt: all.interrupt, ..off.clone() },
    ];
    prop_oneof![Just(off), Just(all), select(alone)]
}

/// Either of Xen's schedulers, with any settings.
fn xen() -> impl Strategy<Value = PolicySettings> {
    prop_oneof![
        settings().prop_map(PolicySettings::Credit),
        credit2_settings().prop_map(PolicySettings::Credit2),
    ]
}

/// Any settings of the credit2 scheduler.
pub fn credit2_settings() -> impl Strategy<Value = Credit2Settings> {
    let sharing = vec![Sharing::Cpu, Sharing::Core, Sharing::Socket, Sharing::Node, Sharing::All];
    (
        select(vec![Release::Xen4_12, Release::Xen4_14, Release::Xen4_17, Release::Xen4_20]),
        select(sharing),
        1..20u32,
        prop_oneof![Just(0), Just(MS), 100 * US..20 * MS],
        prop_oneof![Just(500 * US), 0..10 * MS],
        MS..50 * MS,
    )
        .prop_map(
            |(release, sharing, queue_cpus_max, ratelimit_ns, migrate_resist_ns, cap_period_ns)| {
                Credit2Settings {
                    release,
                    sharing,
                    queue_cpus_max,
                    ratelimit_ns,
                    migrate_resist_ns,
                    cap_period_ns,
                }
            },
        )
}

/// Any settings of the credit scheduler.
pub fn settings() -> impl Strategy<Value = CreditSettings> {
    let control = (1..60u32, 100 * US..20 * MS)
        .prop_map(|(rate_high, interval_ns)| RateControl { rate_high, interval_ns });
    (
        select(&ERAS[..]),
        prop_oneof![Just(30 * MS), Just(MS), MS..50 * MS],
        prop_oneof![Just(0), Just(100 * US), Just(MS), 100 * US..20 * MS],
        prop_oneof![Just(0), 0..20 * MS],
        prop::option::weighted(0.3, control),
    )
        .prop_map(|(era, timeslice_ns, ratelimit_ns, migration_delay_ns, rate_control)| CreditSettings {
            era,
            timeslice_ns,
            ratelimit_ns: ratelimit_ns.min(timeslice_ns),
            migration_delay_ns,
            rate_control,
        })
}

/// An amount of at most about `most_ns`.
fn amount(most_ns: u64) -> impl Strategy<Value = Amount> {
    prop_oneof![
        (0..=most_ns).prop_map(Amount::Fixed),
        (0..=most_ns, 0..=most_ns).prop_map(|(a, b)| Amount::Uniform(a.min(b), a.max(b))),
        (0..=most_ns / 3).prop_map(Amount::Exponential),
    ]
}

/// From a moment to some slices.
fn span() -> impl Strategy<Value = Amount> {
    prop_oneof![amount(300), amount(100 * US), amount(5 * MS), amount(40 * MS)]
}

/// Cache lines of a message or a channel.
pub fn lines() -> impl Strategy<Value = u32> {
    prop_oneof![Just(0), 1..5u32, 1..2_000u32]
}

/// Any operation without a body. Channels, counters and profiles are fitted later.
fn simple_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        5 => (span(), prop::option::of(0..PROFILES)).prop_map(|(work, profile)| Op::Compute { work, profile }),
        2 => span().prop_map(Op::Sleep),
        1 => prop_oneof![9 => 0..150 * MS, 1 => Just(u64::MAX)].prop_map(Op::SleepUntil),
        1 => (0..3usize).prop_map(|channel| Op::Wait { channel }),
        2 => (0..3usize).prop_map(|channel| Op::Signal { channel }),
        1 => (0..3usize).prop_map(|channel| Op::WaitAll { channel }),
        1 => (0..3usize).prop_map(|channel| Op::SignalAll { channel }),
        1 => (0..3usize, 1..4u32, any::<bool>(), lines(), lines()).prop_map(|(channel, capacity, waits, message_lines, queue_lines)| {
            Op::Send { channel, capacity, resume_at: waits.then_some(capacity - 1), message_lines, queue_lines }
        }),
        1 => Just(Op::Respond),
        1 => (0..COUNTERS, prop_oneof![0..3u64, Just(u64::MAX)]).prop_map(|(counter, amount)| Op::Count { counter, amount }),
        1 => Just(Op::StartTimer),
        1 => Just(Op::StopTimer),
        1 => Just(Op::Yield),
    ]
}

/// Any operations; loops without end take time in each round.
fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = simple_op().prop_recursive(3, 12, 4, |inner| {
        (0..4u64, vec(inner, 0..4)).prop_map(|(times, body)| Op::Repeat { times: Some(times), body })
    });
    let tail =
        (vec(op.clone(), 0..6), 100 * US..3 * MS, any::<bool>()).prop_map(|(mut body, time_ns, works)| {
            let time = Amount::Fixed(time_ns);
            body.push(if works { Op::Compute { work: time, profile: Some(0) } } else { Op::Sleep(time) });
            Op::Repeat { times: None, body }
        });
    (vec(op, 0..4), prop::option::weighted(0.8, tail)).prop_map(|(mut ops, tail)| {
        ops.extend(tail);
        ops
    })
}

fn fit_channels(ops: &mut [Op], channels: usize) {
    for op in ops {
        match op {
            Op::Wait { channel }
            | Op::WaitAll { channel }
            | Op::Signal { channel }
            | Op::SignalAll { channel }
            | Op::Send { channel, .. } => *channel %= channels,
            Op::Repeat { body, .. } => fit_channels(body, channels),
            _ => {}
        }
    }
}

fn profile() -> impl Strategy<Value = Arc<MemoryProfile>> {
    let shared = (0..2usize, 0.0..30.0, 0.0..=1.0).prop_map(|(data, lines_per_us, write_share)| SharedData {
        data,
        lines_per_us,
        write_share,
    });
    (0..8u64 << 20, US..MS, 0.0..30.0, 0.0..1.0, 1.0..8.0, prop::option::of(shared)).prop_map(
        |(footprint_bytes, sweep_ns, memory_lines_per_us, cache_sensitivity, parallelism, shared)| {
            Arc::new(MemoryProfile {
                footprint_bytes,
                sweep_ns,
                memory_lines_per_us,
                cache_sensitivity,
                parallelism,
                smt_slowdown: None,
                shared,
            })
        },
    )
}

fn source() -> impl Strategy<Value = Source> {
    let open = (50 * US..10 * MS, any::<bool>()).prop_map(|(ns, even)| Arrivals::Open {
        interval: if even { Amount::Uniform(ns / 2, ns) } else { Amount::Exponential(ns) },
    });
    let closed = (1..5u32, amount(5 * MS)).prop_map(|(clients, think)| Arrivals::Closed { clients, think });
    (0..3usize, prop_oneof![open, closed]).prop_map(|(channel, arrivals)| Source { channel, arrivals })
}

/// Bits of a hard and of a soft affinity, before they are fitted to a machine.
type MaskBits = (u32, Option<u32>);

fn mask_bits() -> impl Strategy<Value = MaskBits> {
    (prop_oneof![Just(u32::MAX), any::<u32>()], prop::option::of(any::<u32>()))
}

/// The CPUs of the bits that are in `within`; all of these if there is none.
fn mask(bits: u32, within: &CpuMask, cpus: usize) -> CpuMask {
    let chosen = CpuMask::from_cpus(cpus, (0..cpus).map(CpuId::from).filter(|cpu| bits >> cpu.0 & 1 == 1));
    let both = chosen.and(within);
    if both.is_empty() { within.clone() } else { both }
}

fn affinity((hard, soft): MaskBits, machine: &Machine, era: Era) -> Affinity {
    let cpus = machine.cpu_count();
    let hard = mask(hard, machine.all_cpus(), cpus);
    let soft = soft.filter(|_| era >= Era::Xen4_3).map(|bits| Arc::new(mask(bits, &hard, cpus)));
    Affinity { hard: Arc::new(hard), soft }
}

/// A workload before it is fitted to a machine.
#[derive(Clone, Debug)]
struct VmPlan {
    kind: Kind,
    vcpus: Vec<(Vec<Op>, MaskBits)>,
    profiles: Vec<Arc<MemoryProfile>>,
    channels: usize,
    sources: Vec<Source>,
    weight: u32,
    cap_pct: u32,
    home_node: Option<usize>,
    has_past: bool,
    /// When, of which vCPU (of all if there is none), to where.
    affinity_changes: Vec<(u64, Option<usize>, MaskBits)>,
}

fn vm_plan() -> impl Strategy<Value = VmPlan> {
    let share = (
        prop_oneof![Just(256), 1..1024u32, Just(65_535)],
        prop_oneof![3 => Just(0), 1 => 1..400u32],
        prop::option::of(0..4usize),
        any::<bool>(),
    );
    let kind = prop_oneof![2 => Just(Kind::Vm), 1 => Just(Kind::Processes), 1 => Just(Kind::Threads)];
    (
        kind,
        vec((ops(), mask_bits()), 1..=4),
        vec(profile(), PROFILES),
        1..=3usize,
        vec(source(), 0..3),
        share,
        prop_oneof![2 => Just(vec![]), 1 => vec((0..150 * MS, prop::option::of(0..4usize), mask_bits()), 1..4)],
    )
        .prop_map(
            |(
                kind,
                vcpus,
                profiles,
                channels,
                sources,
                (weight, cap_pct, home_node, has_past),
                affinity_changes,
            )| VmPlan {
                kind,
                vcpus,
                profiles,
                channels,
                sources,
                weight,
                cap_pct,
                home_node,
                has_past,
                affinity_changes,
            },
        )
}

impl VmPlan {
    fn build(mut self, number: usize, machine: &Machine, era: Era) -> Workload {
        self.affinity_changes.sort_by_key(|(at_ns, ..)| *at_ns);
        if self.kind == Kind::Vm {
            self.vcpus.truncate(machine.cpu_count());
        }
        self.sources.iter_mut().for_each(|source| source.channel %= self.channels);
        let nodes = machine.node_count();
        let share = |node| match self.home_node {
            Some(home) => f64::from(u8::from(home % nodes == node)),
            None => 1.0 / nodes as f64,
        };
        let first_mask = self.vcpus[0].1;
        let vcpu = |(mut ops, bits): (Vec<Op>, MaskBits)| {
            fit_channels(&mut ops, self.channels);
            // Until 4.5, preferences are those of the VM.
            let bits = if era < Era::Xen4_5 { first_mask } else { bits };
            let program = Arc::new(Program { ops, profiles: self.profiles.clone() });
            HostTask::new(program, affinity(bits, machine, era))
        };
        let vcpus = self.vcpus.len();
        let change = |(at_ns, vcpu, bits): (u64, Option<usize>, _)| {
            // Until 4.5, preferences are those of the VM.
            let tasks = match vcpu.filter(|_| era >= Era::Xen4_5) {
                Some(vcpu) => Which::These(vec![vcpu % vcpus]),
                None => Which::All,
            };
            AffinityChange { at_ns, tasks, affinity: affinity(bits, machine, era) }
        };
        let tasks = self.vcpus.into_iter().map(vcpu).collect();
        let mut kind = self.kind.of(tasks);
        if let WorkloadKind::Vm(vm) = &mut kind {
            vm.cap_pct = self.cap_pct;
        }
        Workload {
            group: "all".into(),
            has_past: self.has_past,
            weight: self.weight,
            channels: self.channels,
            counters: (0..COUNTERS).map(|counter| format!("counter{counter}")).collect(),
            sources: self.sources,
            affinity_changes: self.affinity_changes.into_iter().map(change).collect(),
            ..Workload::new(format!("vm{number}"), kind, (0..nodes).map(share).collect())
        }
    }
}
