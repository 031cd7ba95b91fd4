//! Observes VMs for a while.

use nix::unistd::geteuid;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};
use tandem_host::vms::homes_file::HomesFile;
use tandem_host::vms::{
    HomeSource, Homes, Limits, Memory, Thread, ThreadKind, ThreadUsage, Usage, Vm, VmUsage, home_of,
};
use tandem_sim::machine::Machine;

/// Where threads are is looked at as often: ten times in the interval of a second that is the default.
const SAMPLE: Duration = Duration::from_millis(100);

/// What was seen of all VMs.
pub struct Observation {
    /// How long it took.
    pub interval: Duration,
    /// The VMs that were there to the end, in the order in which they were asked for.
    pub vms: Vec<ObservedVm>,
    /// What could not be read, and what to do: a sentence each, without a full stop.
    pub notes: Vec<String>,
}

/// What was seen of one VM.
pub struct ObservedVm {
    pub vm: Vm,
    pub threads: Vec<ObservedThread>,
    pub usage: VmUsage,
    pub limits: Limits,
    pub memory: Memory,
    pub homes: Homes,
}

/// What was seen of one thread.
pub struct ObservedThread {
    pub thread: Thread,
    pub usage: ThreadUsage,
    pub cpus: Option<Vec<u32>>,
}

impl ObservedVm {
    pub fn vcpu_count(&self) -> usize {
        self.threads.iter().filter(|observed| observed.thread.kind == ThreadKind::Vcpu).count()
    }
}

impl Observation {
    /// Observes them for that long. `root` is `/` for this machine.
    pub fn make(root: &Path, machine: &Machine, vms: &[&Vm], interval: Duration) -> Self {
        let start = Instant::now();
        let mut usages: Vec<Usage> = vms.iter().map(|vm| Usage::start(vm, vm.read_threads())).collect();
        while !vms.is_empty() && start.elapsed() < interval {
            sleep(SAMPLE.min(interval.saturating_sub(start.elapsed())));
            for (vm, usage) in vms.iter().zip(&mut usages) {
                usage.sample(vm, machine);
            }
        }
        let interval = start.elapsed();

        let mut notes = Vec::new();
        let homes = HomesFile::read(root).unwrap_or_else(|error| {
            notes.push(format!("homes are not those that the agent says: {error}"));
            None
        });
        let online: Vec<u32> = machine.cpus().iter().map(|cpu| cpu.os_index).collect();
        let alive = vms.iter().zip(usages).filter(|(vm, _)| vm.is_alive());
        let vms: Vec<ObservedVm> = alive
            .map(|(&vm, usage)| {
                let threads: Vec<ObservedThread> = usage
                    .threads()
                    .map(|(thread, &usage)| ObservedThread {
                        cpus: vm.read_allowed(thread),
                        thread: thread.clone(),
                        usage,
                    })
                    .collect();
                let limits = vm.read_limits(&vm.read_threads(), &online);
                let memory = vm.read_memory(&limits);
                let told = homes.as_ref().and_then(|file| file.entry(vm.identity));
                let homes = match told {
                    Some(entry) => {
                        let source = Some(HomeSource::Agent);
                        Homes { nodes: entry.home.clone(), source, why: entry.why.clone() }
                    }
                    None => home_of(machine, &limits, &memory),
                };
                ObservedVm { vm: vm.clone(), threads, usage: usage.vm(), limits, memory, homes }
            })
            .collect();
        notes.extend(unreadable(&vms));
        Self { interval, vms, notes }
    }
}

/// What is missing in some of them, and the cure.
fn unreadable(vms: &[ObservedVm]) -> Vec<String> {
    let is_root = geteuid().is_root();
    let how_many = |is_it: &dyn Fn(&ObservedVm) -> bool| vms.iter().filter(|vm| is_it(vm)).count();
    let of = |count: usize| match vms.len() {
        1 => "the VM".to_owned(),
        all if count == all => format!("all {all} VMs"),
        all => format!("{count} of {all} VMs"),
    };
    let mut notes = Vec::new();
    let places = how_many(&|vm| vm.memory.by_node.is_none());
    if places > 0 {
        let cure = match is_root {
            false => "run tandem as root, or give each VM a cgroup of its own",
            true => "this kernel does not tell (CONFIG_NUMA), or the VM has just ended",
        };
        notes.push(format!("on which nodes the memory is cannot be read, of {}: {cure}", of(places)));
    }
    let sizes = how_many(&|vm| vm.vm.memory_bytes.is_none());
    if sizes > 0 {
        let cure =
            if is_root { "its monitor was not told on its command line" } else { "run tandem as root" };
        notes.push(format!("how much memory was given is not known, of {}: {cure}", of(sizes)));
    }
    let waits = how_many(&|vm| vm.usage.steal_ns.is_none() || vm.usage.wait_ns.is_none());
    if waits > 0 {
        notes.push("this kernel does not count how long threads wait: it needs CONFIG_SCHED_INFO".into());
    }
    // QEMU that runs all vCPUs on one thread names it.
    let is_guessed = |observed: &ObservedThread| {
        observed.thread.kind == ThreadKind::Vcpu
            && observed.thread.vcpu.is_none()
            && !observed.thread.name.starts_with("ALL CPUs")
    };
    let guessed = how_many(&|vm| vm.threads.iter().any(is_guessed));
    if guessed > 0 {
        let cure = match is_root {
            false => "run tandem as root, or start QEMU with -name NAME,debug-threads=on",
            true => "start QEMU with -name NAME,debug-threads=on, or mount /sys/kernel/debug",
        };
        let of = of(guessed);
        notes.push(format!("vCPUs that have not run yet are not known, of {of}: {cure}"));
    }
    notes
}
