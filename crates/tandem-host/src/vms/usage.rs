//! How much CPU time a VM used in an interval, and on which nodes.
//!
//! The kernel counts how long a thread has run, and reports the CPU on which it is, but not how long it ran
//! on each. So a caller samples both several times in the interval, and the time between two samples counts
//! for the node of the thread's CPU at the second. The shares of nodes are estimates, exact for threads that
//! stay. Threads that started within the interval do not count.

use super::{OpenTimes, Thread, ThreadKind, ThreadTimes, Vm};
use std::collections::BTreeMap;
use std::io;
use tandem_machine::Machine;

/// The times of one thread in the interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadUsage {
    /// Time on CPUs.
    pub run_ns: u64,
    /// Time in which it was ready and waited, ns; `None` if the kernel does not count it.
    pub wait_ns: Option<u64>,
    /// The CPU where it was at the last sample.
    pub cpu: Option<u32>,
}

/// The times of a VM in the interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VmUsage {
    /// Time of all threads on CPUs, ns.
    pub run_ns: u64,
    /// Time in which vCPUs were ready and waited, ns: what KVM reports to the guest as steal time.
    pub steal_ns: Option<u64>,
    /// Time in which other threads were ready and waited, ns.
    pub wait_ns: Option<u64>,
    /// Time of vCPUs on the CPUs of each node, ns.
    pub vcpu_run_ns_by_node: BTreeMap<u32, u64>,
    /// Time of each vCPU whose number is known, ns, by vCPU and node.
    pub run_ns_by_vcpu: BTreeMap<(u32, u32), u64>,
}

impl VmUsage {
    /// The share of the vCPUs' time that was on these nodes; `None` if they did not run.
    pub fn share_on(&self, nodes: &[u32]) -> Option<f64> {
        let all: u64 = self.vcpu_run_ns_by_node.values().sum();
        let on = self.vcpu_run_ns_by_node.iter().filter(|(node, _)| nodes.contains(node));
        let on: u64 = on.map(|(_, ns)| ns).sum();
        (all > 0).then(|| on as f64 / all as f64)
    }

    /// The share of the vCPUs' time that was on their own nodes, which `nodes_of` returns; `None` if they did
    /// not run. vCPUs with unknown numbers are nowhere at home.
    pub fn share_of_vcpus<'a>(&self, nodes_of: impl Fn(u32) -> &'a [u32]) -> Option<f64> {
        let all: u64 = self.vcpu_run_ns_by_node.values().sum();
        let at_home = self.run_ns_by_vcpu.iter().filter(|((vcpu, node), _)| nodes_of(*vcpu).contains(node));
        let at_home: u64 = at_home.map(|(_, ns)| ns).sum();
        (all > 0).then(|| at_home as f64 / all as f64)
    }
}

/// Adds up the times of a VM's threads between samples.
#[derive(Debug)]
pub struct Usage {
    threads: Vec<Thread>,
    /// Files that stay open, if the caller has room for them.
    open: Option<OpenTimes>,
    last: Vec<Option<ThreadTimes>>,
    next: Vec<Option<ThreadTimes>>,
    sums: Vec<ThreadUsage>,
    by_node: BTreeMap<u32, u64>,
    by_vcpu: BTreeMap<(u32, u32), u64>,
}

impl Usage {
    /// Starts an interval for these threads.
    pub fn start(vm: &Vm, threads: Vec<Thread>) -> Self {
        let mut last = Vec::new();
        vm.read_times(&threads, &mut last);
        Self::start_from(vm, threads, last, None)
    }

    /// As [`Usage::start`], with files that stay open: see [`OpenTimes`].
    ///
    /// # Errors
    /// As [`Vm::open_times`].
    pub fn start_open(vm: &Vm, threads: Vec<Thread>) -> io::Result<Self> {
        let open = vm.open_times(&threads)?;
        let mut last = Vec::new();
        open.read(&mut last);
        Ok(Self::start_from(vm, threads, last, Some(open)))
    }

    fn start_from(
        vm: &Vm,
        threads: Vec<Thread>,
        last: Vec<Option<ThreadTimes>>,
        open: Option<OpenTimes>,
    ) -> Self {
        let sums = threads
            .iter()
            .zip(&last)
            .map(|(thread, times)| ThreadUsage {
                run_ns: 0,
                wait_ns: times.and_then(|times| times.wait_ns).map(|_| 0),
                cpu: vm.read_cpu(thread),
            })
            .collect();
        Self {
            threads,
            open,
            last,
            next: Vec::new(),
            sums,
            by_node: BTreeMap::new(),
            by_vcpu: BTreeMap::new(),
        }
    }

    /// Takes a sample. A thread that has not run costs reading one file, others two.
    pub fn sample(&mut self, vm: &Vm, machine: &Machine) {
        match &self.open {
            Some(open) => open.read(&mut self.next),
            None => vm.read_times(&self.threads, &mut self.next),
        }
        for (at, thread) in self.threads.iter().enumerate() {
            let (Some(last), Some(next)) = (self.last[at], self.next[at]) else { continue };
            let sum = &mut self.sums[at];
            // A new thread with the number of one that ended has smaller times.
            let run_ns = next.run_ns.saturating_sub(last.run_ns);
            sum.run_ns += run_ns;
            sum.wait_ns = match (sum.wait_ns, last.wait_ns, next.wait_ns) {
                (Some(sum), Some(last), Some(next)) => Some(sum + next.saturating_sub(last)),
                _ => None,
            };
            if run_ns == 0 {
                continue;
            }
            sum.cpu = vm.read_cpu(thread).or(sum.cpu);
            let node = sum.cpu.and_then(|cpu| node_of(machine, cpu));
            if let (ThreadKind::Vcpu, Some(node)) = (thread.kind, node) {
                *self.by_node.entry(node).or_insert(0) += run_ns;
                if let Some(vcpu) = thread.vcpu {
                    *self.by_vcpu.entry((vcpu, node)).or_insert(0) += run_ns;
                }
            }
        }
        std::mem::swap(&mut self.last, &mut self.next);
    }

    /// The threads with their times since the start of the interval.
    pub fn threads(&self) -> impl Iterator<Item = (&Thread, &ThreadUsage)> {
        self.threads.iter().zip(&self.sums)
    }

    /// The times of the VM since the start of the interval.
    pub fn vm(&self) -> VmUsage {
        let waits = |is_vcpu: bool| {
            let of_kind =
                self.threads().filter(move |(thread, _)| (thread.kind == ThreadKind::Vcpu) == is_vcpu);
            of_kind.map(|(_, usage)| usage.wait_ns).sum::<Option<u64>>()
        };
        VmUsage {
            run_ns: self.sums.iter().map(|sum| sum.run_ns).sum(),
            steal_ns: waits(true),
            wait_ns: waits(false),
            vcpu_run_ns_by_node: self.by_node.clone(),
            run_ns_by_vcpu: self.by_vcpu.clone(),
        }
    }
}

/// The node of a CPU. Both are numbers of the operating system.
pub(crate) fn node_of(machine: &Machine, cpu: u32) -> Option<u32> {
    let at = machine.cpus().binary_search_by_key(&cpu, |cpu| cpu.os_index).ok()?;
    Some(machine.nodes()[machine.cpus()[at].node.index()].os_index)
}
