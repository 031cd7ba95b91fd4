//! Measures the VMs of this host over an interval.

use crate::access::Access;
use crate::open_files;
use nix::unistd::geteuid;
use std::cell::LazyCell;
use std::collections::HashMap;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};
use tandem_file::units;
use tandem_host::agent::{TrackedVm, VmReport};
use tandem_host::control::{Client, SOCKET};
use tandem_host::vms::homes_file::{Cores, HomeEntry, HomesFile, HomesFileError};
use tandem_host::vms::{
    HomeSource, Homes, Identity, Limits, Memory, Thread, ThreadKind, ThreadUsage, Usage, Vm, VmUsage, home_of,
};
use tandem_machine::Machine;

/// How often the positions of threads are read: ten times in the default interval of a second.
pub const SAMPLE: Duration = Duration::from_millis(100);

/// Measurements of all VMs.
pub struct Observation {
    /// How long the observation took.
    pub interval: Duration,
    /// The agent only observes: its homes are those that it would give.
    pub is_plan: bool,
    /// The VMs that were there to the end, in the order in which they were asked for.
    pub vms: Vec<ObservedVm>,
    /// What could not be read, and what to do: a sentence each, without a full stop.
    pub notes: Vec<String>,
}

/// Measurements of one VM.
pub struct ObservedVm {
    /// Which VM it is.
    pub vm: Vm,
    /// Its threads, vCPUs among them.
    pub threads: Vec<ObservedThread>,
    /// What its threads used in the interval.
    pub usage: VmUsage,
    /// The CPUs, CPU time and memory nodes that it may use.
    pub limits: Limits,
    /// How much memory it has, and on which nodes.
    pub memory: Memory,
    /// Its home nodes, and who chose them.
    pub homes: Homes,
    /// How it is kept apart on its cores, if the settings ask for it.
    pub cores: Option<Cores>,
}

/// Measurements of one thread.
pub struct ObservedThread {
    /// Which thread it is.
    pub thread: Thread,
    /// What it used in the interval.
    pub usage: ThreadUsage,
    /// The CPUs that it may use; read by [`ObservedVm::read_allowed`] alone.
    pub cpus: Option<Vec<u32>>,
    /// Changes of its CPU, since it began.
    pub migrations: Option<u64>,
}

impl ObservedVm {
    /// How many of its threads are vCPUs.
    pub fn vcpu_count(&self) -> usize {
        self.threads.iter().filter(|observed| observed.thread.kind == ThreadKind::Vcpu).count()
    }

    /// Reads which CPUs each of its threads may use.
    pub fn read_allowed(&mut self) {
        for observed in &mut self.threads {
            observed.cpus = self.vm.read_allowed(&observed.thread);
        }
    }
}

/// VMs that are being observed.
pub struct Window {
    vms: Vec<(Vm, Usage)>,
    start: Instant,
}

impl Window {
    /// Begins to observe. Files of threads stay open, as far as enough are left for all else that is read.
    pub fn open<'a>(vms: impl IntoIterator<Item = &'a Vm>) -> Self {
        let start = Instant::now();
        // Without it, fewer files stay open.
        let _ = open_files::raise();
        let observed = |vm: &Vm| {
            let threads = vm.read_threads();
            let usage = Usage::start_open(vm, threads.clone());
            (vm.clone(), usage.unwrap_or_else(|_| Usage::start(vm, threads)))
        };
        Self { vms: vms.into_iter().map(observed).collect(), start }
    }

    /// Samples the CPU of each thread; call it at least every [`SAMPLE`].
    pub fn sample(&mut self, machine: &Machine) {
        for (vm, usage) in &mut self.vms {
            usage.sample(vm, machine);
        }
    }

    /// Ends the observation and reads everything else. `root` is `/` for this machine; `read` tells what a VM
    /// may use, and where its memory is.
    pub fn close(
        self,
        root: &Path,
        machine: &Machine,
        mut read: impl FnMut(&Vm) -> (Limits, Memory),
    ) -> Observation {
        let interval = self.start.elapsed();
        let mut notes = Vec::new();
        let homes = homes_of_agent(root).unwrap_or_else(|error| {
            notes.push(format!("the agent's homes cannot be read, so those shown are inferred: {error}"));
            None
        });
        let alive = self.vms.into_iter().filter(|(vm, _)| vm.is_alive());
        let vms: Vec<ObservedVm> = alive
            .map(|(vm, usage)| {
                let threads: Vec<ObservedThread> = usage
                    .threads()
                    .map(|(thread, &usage)| ObservedThread {
                        cpus: None,
                        migrations: vm.read_migrations(thread),
                        thread: thread.clone(),
                        usage,
                    })
                    .collect();
                let (limits, memory) = read(&vm);
                let cores = homes.as_ref().and_then(|file| file.entry(vm.identity)?.cores);
                let homes = told(homes.as_ref(), &vm).unwrap_or_else(|| home_of(machine, &limits, &memory));
                ObservedVm { threads, usage: usage.vm(), limits, memory, homes, cores, vm }
            })
            .collect();
        notes.extend(unreadable(&vms.iter().map(Gaps::of_observed).collect::<Vec<_>>()));
        let is_plan = homes.is_some_and(|file| file.are_planned);
        Observation { interval, is_plan, vms, notes }
    }
}

/// The homes that the running agent gives VMs, or would give; nothing if no agent runs. `root` is `/` for
/// this machine.
///
/// # Errors
/// If its file cannot be used.
pub fn homes_of_agent(root: &Path) -> Result<Option<HomesFile>, HomesFileError> {
    // Plans of an observer that was killed are nobody's.
    let socket = root.join(SOCKET.trim_start_matches('/'));
    let file = HomesFile::read(root)?;
    Ok(file.filter(|file| !file.are_planned || Client::connect_to(&socket).is_ok()))
}

/// What an agent says of the home of a VM. One that only observes says nothing of a VM for which it plans
/// none.
fn told(file: Option<&HomesFile>, vm: &Vm) -> Option<Homes> {
    let file = file?;
    let HomeEntry { home, why, parts, saving, .. } = file.entry(vm.identity)?.clone();
    if file.are_planned && home.is_empty() {
        return None;
    }
    let source = if file.are_planned { HomeSource::Planned } else { HomeSource::Agent };
    Some(Homes { nodes: home, source: Some(source), why, parts, saving })
}

/// What the agent knows of VMs.
pub type Reports = HashMap<Identity, VmReport>;

/// Asks the agent; nothing if there is none, or the user may not ask.
pub fn reports(access: &Access) -> Reports {
    let vms = access.vms().ok().flatten().unwrap_or_default();
    vms.into_iter().map(|report| (report.identity, report)).collect()
}

/// The memory of a VM, from the agent if it cannot be read.
pub fn with_reports<F: FnOnce() -> Reports>(
    memory: Memory,
    vm: &Vm,
    reports: &LazyCell<Reports, F>,
) -> Memory {
    match memory.by_node {
        None => reports.get(&vm.identity).map_or(memory, |report| report.memory.memory()),
        Some(_) => memory,
    }
}

/// The CPUs of a machine, in ascending order, as [`Vm::read_limits`] wants them.
pub fn online(machine: &Machine) -> Vec<u32> {
    machine.cpus().iter().map(|cpu| cpu.os_index).collect()
}

impl Observation {
    /// Observes VMs for that long, and reads all that there is to know of them. `ask` tells what the agent
    /// knows, for what cannot be read.
    pub fn make(
        root: &Path,
        machine: &Machine,
        vms: &[&Vm],
        interval: Duration,
        ask: impl FnOnce() -> Reports,
    ) -> Self {
        let mut window = Window::open(vms.iter().copied());
        while !vms.is_empty() && window.start.elapsed() < interval {
            sleep(SAMPLE.min(interval.saturating_sub(window.start.elapsed())));
            window.sample(machine);
        }
        let online = online(machine);
        let reports = LazyCell::new(ask);
        let mut observation = window.close(root, machine, |vm| {
            let limits = vm.read_limits(&vm.read_threads(), &online);
            let memory = vm.read_memory(&limits);
            (limits, with_reports(memory, vm, &reports))
        });
        observation.vms.iter_mut().for_each(ObservedVm::read_allowed);
        observation
    }
}

/// Takes a time from an option: how long to observe. A number alone is one of seconds.
pub fn parse_interval(text: &str, shortest: Duration) -> Result<Duration, String> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let with_unit = if is_number { format!("{text} s") } else { text.to_owned() };
    let interval: units::Duration = with_unit.parse().map_err(|error| match error {
        units::UnitError::NoUnit { .. } => {
            let number = text.trim();
            format!("`{number:.60}` has no unit; write `{number:.60}s` for seconds, or `{number:.60}ms`")
        }
        other => other.to_string(),
    })?;
    match Duration::from_nanos(interval.ns) {
        interval if interval < shortest => {
            Err(format!("`{text}` is too short; at least {} ms are needed", shortest.as_millis()))
        }
        interval => Ok(interval),
    }
}

/// Most processes that are named in a note.
const MONITORS_NAMED_MAX: usize = 16;

/// That these processes are monitors and may be VMs, and how to find out.
pub fn note_of_monitors(mut pids: Vec<u32>) -> Option<String> {
    pids.sort_unstable();
    let named: Vec<_> = pids.iter().take(MONITORS_NAMED_MAX).map(u32::to_string).collect();
    let numbers = named.join(", ");
    let who = match pids.len() {
        0 => return None,
        1 => format!("process {numbers} is a monitor whose vCPUs are"),
        all if all > named.len() => {
            format!("processes {numbers} and {} more are monitors whose vCPUs are", all - named.len())
        }
        _ => format!("processes {numbers} are monitors whose vCPUs are"),
    };
    Some(format!(
        "{who} unknown, because it has just started, runs without KVM (see --emulated), or {}",
        unnamed_threads()
    ))
}

/// How QEMU's threads can be told apart that have no names.
fn unnamed_threads() -> &'static str {
    match geteuid().is_root() {
        false => {
            "only root can identify them: run tandem as root, or start QEMU with -name NAME,debug-threads=on"
        }
        true => {
            "they cannot be identified: start QEMU with -name NAME,debug-threads=on, or mount /sys/kernel/debug"
        }
    }
}

/// What is not known of a VM.
pub struct Gaps {
    /// On which nodes its memory is.
    memory_nodes: bool,
    /// How much it was given.
    memory_size: bool,
    /// How long its threads wait.
    waits: bool,
    /// Which of its threads are vCPUs, before they run.
    vcpus: bool,
}

impl Gaps {
    fn of_observed(vm: &ObservedVm) -> Self {
        let waits = vm.usage.steal_ns.is_none() || vm.usage.wait_ns.is_none();
        Self::new(&vm.vm, &vm.memory, vm.threads.iter().map(|observed| &observed.thread), waits)
    }

    /// The gaps of a VM that an agent tracks.
    pub fn of_tracked(tracked: &TrackedVm) -> Self {
        Self::new(&tracked.vm, &tracked.memory, tracked.threads.iter(), !tracked.are_waits_known())
    }

    fn new<'a>(vm: &Vm, memory: &Memory, mut threads: impl Iterator<Item = &'a Thread>, waits: bool) -> Self {
        // QEMU that runs all vCPUs on one thread names it.
        let is_guessed = |thread: &Thread| {
            thread.kind == ThreadKind::Vcpu && thread.vcpu.is_none() && !thread.name.starts_with("ALL CPUs")
        };
        Self {
            memory_nodes: memory.by_node.is_none(),
            memory_size: vm.memory_bytes.is_none(),
            waits,
            vcpus: threads.any(is_guessed),
        }
    }
}

/// What is missing in some of them, and the cure.
pub fn unreadable(vms: &[Gaps]) -> Vec<String> {
    let is_root = geteuid().is_root();
    let how_many = |is_it: fn(&Gaps) -> bool| vms.iter().filter(|vm| is_it(vm)).count();
    let of = |count: usize| match vms.len() {
        1 => "the VM".to_owned(),
        all if count == all => format!("all {all} VMs"),
        all => format!("{count} of {all} VMs"),
    };
    let mut notes = Vec::new();
    let places = how_many(|vm| vm.memory_nodes);
    if places > 0 {
        let cure = match is_root {
            false => "run tandem as root, or give each VM a cgroup of its own",
            true => "this kernel does not report it (CONFIG_NUMA), or the VM has just ended",
        };
        notes.push(format!("the nodes of the memory of {} cannot be read: {cure}", of(places)));
    }
    let sizes = how_many(|vm| vm.memory_size);
    if sizes > 0 {
        let cure = if is_root { "the monitor's command line does not say it" } else { "run tandem as root" };
        notes.push(format!("the memory size of {} is unknown: {cure}", of(sizes)));
    }
    if how_many(|vm| vm.waits) > 0 {
        notes.push("this kernel does not count how long threads wait: it needs CONFIG_SCHED_INFO".into());
    }
    let guessed = how_many(|vm| vm.vcpus);
    if guessed > 0 {
        let of = of(guessed);
        notes.push(format!("vCPUs that have not run yet are not known, of {of}; {}", unnamed_threads()));
    }
    notes
}
