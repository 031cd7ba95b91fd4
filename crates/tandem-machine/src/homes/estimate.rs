//! What a choice of homes costs, in CPUs: CPU time lost per second.
//!
//! Four effects lose time. For a VM with demand *d*, in CPUs:
//! - *Far memory*: *d* x [`MEMORY_SHARE`] x share of its memory on each node x how much longer a load from
//!   there takes than one from the CPU's own node, over the CPUs of its home. Memory that it has not touched
//!   yet lies in its home, as far as there is room, then on the nearest nodes.
//! - *Far devices*: *d* x [`DEVICE_SHARE`] x how much longer a load from the nearest of its devices' nodes
//!   takes.
//! - *Crowding*, of all VMs together. Demand is spread over the CPUs of a home. Demand beyond a node's cores
//!   goes where cores idle, and beyond its CPUs where CPUs idle; there it is far from its memory, and fills
//!   its caches twice for each stay of [`STAY_NS`]. Demand that may go nowhere, or finds nothing idle, waits:
//!   all of it is lost. Where all CPUs are busy, crowding a node loses nothing more, but VMs that live there
//!   get less than their share, and others more: a CPU of that counts as [`UNFAIR_SHARE`] of a lost one.
//! - *Virtual nodes that share a node*: see [`super::parts`].

use super::{HomeRequest, View, VmView};
use crate::CACHE_LINE_BYTES;
use crate::ids::NodeId;
use crate::placement;
use crate::{Core, Machine, Node};

/// Share of its time that a VM waits for near memory. The value is that of the warehouses of SPECjbb2005 in
/// the experiment numa-affinity, which was calibrated on the baseline there: 8 lines per us of work x 84 ns
/// per line are 0.67 us, of 1.67 us in all. Of the other two, sysbench-memory waits for 0.59 of its time and
/// lmbench-proc for 0.14.
pub const MEMORY_SHARE: f64 = 0.4;

/// Share of its time that a VM with a device waits for that device's node: registers, and what the device has
/// written to memory there. An assumption.
pub const DEVICE_SHARE: f64 = 0.1;

/// The weight, compared with a lost CPU, of a CPU that VMs miss of their share because others live on less
/// crowded nodes. An assumption: to the host it is not lost, to its VM it is.
pub const UNFAIR_SHARE: f64 = 0.5;

/// How long a vCPU that left its home stays away, ns: a slice of Tandem's scheduler.
const STAY_NS: f64 = 20e6;

/// A view with derived data.
pub(super) struct Situation<'a> {
    pub machine: &'a Machine,
    /// The VMs in the order of their numbers.
    pub vms: Vec<PlannedVm<'a>>,
    /// Free memory of each node, bytes, regardless of what VMs have not touched yet.
    free_bytes: &'a [u64],
    /// How much longer a load from a node takes, by node of the CPU, then by node of the memory: 0 for the
    /// own one.
    far: Vec<f64>,
    /// Cores of each node with a CPU that is not isolated.
    cores: Vec<f64>,
    /// CPUs of each node that are not isolated.
    cpus: Vec<f64>,
    /// Time to refill a core's private cache from far memory, ns.
    pub refill_ns: f64,
    /// Share of its time that a VM waits for near memory: [`MEMORY_SHARE`], unless the caller evaluates
    /// another one.
    pub memory_share: f64,
}

/// A VM, with data derived from its view.
#[derive(Clone)]
pub(super) struct PlannedVm<'a> {
    pub view: &'a VmView,
    /// CPUs. At least a little, because a VM that sleeps now will work again.
    pub demand: f64,
    /// Nodes with CPUs that are not isolated and that it may use, ascending.
    pub allowed: Vec<NodeId>,
    /// The nodes among which its home is chosen: the allowed ones, except for [parts](super::parts).
    pub choices: Vec<NodeId>,
    /// Its home as decided so far; empty for none.
    pub home: Vec<NodeId>,
}

/// What the other VMs leave to one, by node.
pub(super) struct Others {
    /// CPUs that they demand.
    pub asked: Vec<f64>,
    /// The part of the demand that may go elsewhere.
    mobile: Vec<f64>,
    /// Free memory less what they have not touched yet, bytes.
    pub free_bytes: Vec<u64>,
}

/// What happens to the demand that finds no place at home, CPUs.
struct Spill {
    /// Lost by going elsewhere.
    away: f64,
    /// Demand that finds no place anywhere.
    waiting: f64,
    /// CPUs that VMs miss which are served less than the average.
    unfair: f64,
}

/// Least demand of a VM, CPUs per vCPU.
const DEMAND_MIN: f64 = 0.01;

impl<'a> Situation<'a> {
    /// Derives the data; `demand` is the demand of each VM, CPUs, if known.
    pub fn new(view: &View<'a>, demand: impl Fn(&VmView) -> Option<f64>) -> Self {
        let machine = view.machine;
        let nodes = machine.node_count();
        assert_eq!(view.free_bytes.len(), nodes, "free memory is of another machine");
        let usable = placement::usable_nodes(machine);
        let known = |view: &'a VmView| {
            assert_eq!(view.resident_bytes.len(), nodes, "memory of VM {} is of another machine", view.id);
            let vcpus = f64::from(view.vcpus);
            let is_allowed = |node: &&NodeId| view.allowed.is_empty() || view.allowed.contains(node);
            let allowed: Vec<NodeId> = usable.iter().filter(is_allowed).copied().collect();
            PlannedVm {
                view,
                demand: demand(view).unwrap_or(vcpus).clamp(vcpus * DEMAND_MIN, vcpus),
                choices: view.choices(&allowed),
                allowed,
                home: view.home.as_ref().map_or_else(Vec::new, |home| home.nodes.clone()),
            }
        };
        let mut vms: Vec<_> = view.vms.iter().map(known).collect();
        vms.sort_by_key(|vm| vm.view.id);
        let latency = |cpu: usize, memory: usize| machine.memory_latency_ns(cpu.into(), memory.into());
        let far = |at: usize| {
            let (cpu, memory) = (at / nodes, at % nodes);
            (latency(cpu, memory) / latency(cpu, cpu) - 1.0).max(0.0)
        };
        let housekeeping = machine.housekeeping_cpus();
        let cores_of = |node: &Node| {
            let in_node = |core: &&Core| core.cpus.iter_and(housekeeping).any(|cpu| node.cpus.contains(cpu));
            machine.cores().iter().filter(in_node).count() as f64
        };
        let hardware = machine.hardware();
        let lines = (hardware.l2_bytes / CACHE_LINE_BYTES) as f64;
        Self {
            machine,
            vms,
            free_bytes: view.free_bytes,
            far: (0..nodes * nodes).map(far).collect(),
            cores: machine.nodes().iter().map(cores_of).collect(),
            cpus: (0..nodes).map(|node| placement::pcpus(machine, node.into()) as f64).collect(),
            refill_ns: lines * f64::from(hardware.remote_memory_latency_ns),
            memory_share: MEMORY_SHARE,
        }
    }

    /// The nodes that the configuration requests for the VM and that it may use, ascending.
    pub fn requested(&self, at: usize) -> Vec<NodeId> {
        let vm = &self.vms[at];
        match &vm.view.request {
            HomeRequest::Nodes(nodes) => {
                vm.allowed.iter().filter(|node| nodes.contains(node)).copied().collect()
            }
            HomeRequest::Any | HomeRequest::Isolated | HomeRequest::Exempt => Vec::new(),
        }
    }

    /// Whether the VM may stay at its home.
    pub fn is_possible(&self, at: usize) -> bool {
        let vm = &self.vms[at];
        let is_all_of_few = vm.is_narrowed() && vm.home == vm.choices;
        vm.home.iter().all(|node| vm.choices.contains(node)) && (self.has_cpus(at, &vm.home) || is_all_of_few)
    }

    /// Whether the nodes have a CPU for each vCPU.
    pub fn has_cpus(&self, at: usize, nodes: &[NodeId]) -> bool {
        self.cpus(nodes) >= self.vms[at].view.vcpus as usize
    }

    /// Pairs of an isolated VM and another VM's home on the same node, of which this VM is one, if it lived
    /// on these nodes.
    pub fn pairs(&self, at: usize, nodes: &[NodeId]) -> usize {
        let is_isolated = |vm: &PlannedVm<'_>| vm.view.request == HomeRequest::Isolated;
        let counts = |(other, vm): &(usize, &PlannedVm<'_>)| {
            *other != at
                && !vm.view.is_of_the_same_vm(self.vms[at].view)
                && (is_isolated(vm) || is_isolated(&self.vms[at]))
                && vm.home.iter().any(|node| nodes.contains(node))
        };
        self.vms.iter().enumerate().filter(counts).count()
    }

    /// The demand of all VMs but this one.
    pub fn others(&self, except: usize) -> Others {
        let mut others = Others {
            asked: vec![0.0; self.cpus.len()],
            mobile: vec![0.0; self.cpus.len()],
            free_bytes: self.free_bytes.to_vec(),
        };
        for (_, vm) in self.vms.iter().enumerate().filter(|(at, _)| *at != except) {
            let live_on = if vm.home.is_empty() { &vm.allowed } else { &vm.home };
            self.ask(&mut others, vm, live_on);
            if !vm.home.is_empty() {
                let untouched = self.untouched(vm.view, &vm.home, &others.free_bytes);
                for (free, taken) in others.free_bytes.iter_mut().zip(untouched) {
                    *free = free.saturating_sub(taken);
                }
            }
        }
        others
    }

    /// Adds the demand of a VM that lives on these nodes.
    fn ask(&self, others: &mut Others, vm: &PlannedVm<'_>, nodes: &[NodeId]) {
        let cpus: f64 = nodes.iter().map(|node| self.cpus[node.index()]).sum();
        let is_mobile = vm.allowed.iter().any(|node| !nodes.contains(node));
        for node in nodes.iter().map(|node| node.index()) {
            let demand = vm.demand * self.cpus[node] / cpus;
            others.asked[node] += demand;
            others.mobile[node] += if is_mobile { demand } else { 0.0 };
        }
    }

    /// Where the memory that a VM has not touched yet will lie, bytes by node: in its home, evenly as far as
    /// there is room, then on the nearest nodes.
    pub fn untouched(&self, vm: &VmView, home: &[NodeId], free_bytes: &[u64]) -> Vec<u64> {
        let mut taken = vec![0; free_bytes.len()];
        let mut missing = vm.memory_bytes.saturating_sub(vm.resident_bytes.iter().sum());
        let mut nodes = home.to_vec();
        nodes.sort_by_key(|node| (free_bytes[node.index()], *node));
        for (done, node) in nodes.iter().map(|node| node.index()).enumerate() {
            let part = free_bytes[node].min(missing.div_ceil((nodes.len() - done) as u64));
            taken[node] += part;
            missing -= part;
        }
        for node in self.machine.nodes_by_distance(home[0]).iter().map(|node| node.index()) {
            let part = (free_bytes[node] - taken[node].min(free_bytes[node])).min(missing);
            taken[node] += part;
            missing -= part;
        }
        taken[home[0].index()] += missing;
        taken
    }

    /// CPUs lost by all VMs, as far as that depends on this VM's home, if the home is these nodes.
    pub fn lost(&self, at: usize, others: &Others, nodes: &[NodeId]) -> f64 {
        let vm = &self.vms[at];
        let mut all =
            Others { asked: others.asked.clone(), mobile: others.mobile.clone(), free_bytes: Vec::new() };
        self.ask(&mut all, vm, nodes);
        let far = vm.demand * (self.memory_loss(vm, others, nodes) + self.device_loss(vm, nodes));
        self.crowding(&all) + far + self.together_loss(at, nodes)
    }

    /// Loss by far memory per CPU of demand.
    pub fn memory_loss(&self, vm: &PlannedVm<'_>, others: &Others, nodes: &[NodeId]) -> f64 {
        let untouched = self.untouched(vm.view, nodes, &others.free_bytes);
        let bytes: Vec<u64> =
            untouched.iter().zip(&vm.view.resident_bytes).map(|(a, b)| a.saturating_add(*b)).collect();
        self.memory_share * self.mean_over_cpus(nodes, |cpu| self.far_of(&bytes, cpu))
    }

    /// How much longer loads of these bytes on each node take from a CPU's node than if all of them were
    /// there.
    pub fn far_of(&self, bytes: &[u64], cpu: NodeId) -> f64 {
        let all: f64 = bytes.iter().map(|&bytes| bytes as f64).sum();
        if all == 0.0 {
            return 0.0;
        }
        bytes.iter().enumerate().map(|(node, &bytes)| bytes as f64 / all * self.far(cpu, node.into())).sum()
    }

    /// Loss by far devices per CPU of demand.
    fn device_loss(&self, vm: &PlannedVm<'_>, nodes: &[NodeId]) -> f64 {
        let nearest = |cpu: NodeId| {
            vm.view.devices.iter().map(|&device| self.far(cpu, device)).reduce(f64::min).unwrap_or(0.0)
        };
        DEVICE_SHARE * self.mean_over_cpus(nodes, nearest)
    }

    fn far(&self, cpu: NodeId, memory: NodeId) -> f64 {
        self.far[cpu.index() * self.cpus.len() + memory.index()]
    }

    pub fn mean_over_cpus(&self, nodes: &[NodeId], value: impl Fn(NodeId) -> f64) -> f64 {
        let cpus = |node: NodeId| self.cpus[node.index()];
        let sum: f64 = nodes.iter().map(|&node| cpus(node) * value(node)).sum();
        sum / nodes.iter().map(|&node| cpus(node)).sum::<f64>()
    }

    /// CPUs lost because VMs demand more of nodes than these have.
    pub fn crowding(&self, all: &Others) -> f64 {
        let on_cores = self.spill(all, &self.cores);
        let on_cpus = self.spill(all, &self.cpus);
        on_cpus.away.max(on_cores.away) + on_cpus.waiting + UNFAIR_SHARE * on_cpus.unfair
    }

    /// What happens to the demand with this many places on each node.
    fn spill(&self, all: &Others, places: &[f64]) -> Spill {
        let excess: Vec<f64> =
            all.asked.iter().zip(places).map(|(asked, places)| (asked - places).max(0.0)).collect();
        let idle: Vec<f64> =
            all.asked.iter().zip(places).map(|(asked, places)| (places - asked).max(0.0)).collect();
        let wants: Vec<f64> =
            excess.iter().zip(&all.mobile).map(|(excess, mobile)| excess.min(*mobile)).collect();
        let (all_want, all_idle): (f64, f64) = (wants.iter().sum(), idle.iter().sum());
        let part = if all_want > 0.0 { (all_idle / all_want).min(1.0) } else { 0.0 };
        let away = wants.iter().enumerate().filter(|(_, wants)| **wants * part > 0.0).map(|(from, wants)| {
            let distance: f64 = (idle.iter().enumerate())
                .map(|(to, idle)| idle / all_idle * self.far(to.into(), from.into()))
                .sum();
            wants * part * (self.memory_share * distance + 2.0 * self.refill_ns / STAY_NS)
        });
        let asked: f64 = all.asked.iter().sum();
        let share = (places.iter().sum::<f64>() / asked).min(1.0);
        let missed = all.asked.iter().zip(places).zip(&wants);
        let unfair = missed.map(|((asked, places), wants)| (asked * share - places - wants * part).max(0.0));
        Spill {
            away: away.sum(),
            waiting: excess.iter().sum::<f64>() - all_want * part,
            unfair: if asked > 0.0 { unfair.sum() } else { 0.0 },
        }
    }

    /// CPUs that all VMs demand of these nodes, including this one if it lived on `lives_on`.
    pub fn asked(&self, at: usize, lives_on: &[NodeId], nodes: &[NodeId]) -> f64 {
        let mut all = self.others(at);
        if !lives_on.is_empty() {
            self.ask(&mut all, &self.vms[at], lives_on);
        }
        nodes.iter().map(|node| all.asked[node.index()]).sum()
    }

    /// CPUs of the nodes that are not isolated.
    pub fn cpus(&self, nodes: &[NodeId]) -> usize {
        nodes.iter().map(|&node| placement::pcpus(self.machine, node)).sum()
    }
}
