//! Finds the VMs among all processes.
//!
//! A host has thousands of processes and some dozen VMs, and examining a process costs some system calls. So
//! a scan examines every new process, examines it once more in the next scan (a process that a manager has
//! only forked is not the monitor yet), and then no more. It examines a process that looks like a monitor
//! without being one ever more rarely. The inode number of a process's directory in `/proc` shows that
//! another process has its number now; it comes with the list of processes at no cost.
//!
//! Limits: the finder misses a process that waits for long before it becomes a monitor, unless the caller
//! calls [`Finder::examine`] when the kernel reports its `exec`, or [`Finder::forget`] now and then.

use super::description::Source;
use super::kvm::has_vm;
use super::process::{read_arguments, read_name, read_stat, read_text, read_user};
use super::threads::served_by;
use super::{Device, Identity, Monitor, ThreadKind, Vm, memory, threads};
use crate::privileges::sees_all_processes;
use crate::shares::Shares;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use thiserror::Error;

/// The list of processes cannot be read.
#[derive(Debug, Error)]
#[error("the processes in {} cannot be listed: {cause}", directory.display())]
pub struct ProcUnreadable {
    /// The directory of the list.
    pub directory: PathBuf,
    /// The system's error.
    pub cause: io::Error,
}

/// Finds VMs, and remembers the processes that it has examined.
#[derive(Debug)]
pub struct Finder {
    root: Arc<Path>,
    /// A process with a monitor's name counts as a VM even without evidence from the kernel.
    believes_names: bool,
    seen: HashMap<u32, Seen>,
    vms: HashMap<u32, Vm>,
    /// Threads of the kernel that work for a process.
    helpers: HashMap<u32, Vec<u32>>,
    shares: Shares,
    progress: fn(),
}

/// The result of examining a process.
#[derive(Clone, Copy, Debug)]
struct Seen {
    inode: u64,
    state: State,
    /// How often it was examined.
    examinations: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Not a VM: examined once, or without an answer so far.
    New,
    /// Not a VM, and will not become one.
    Settled,
    /// A monitor without vCPUs, or a VM: examined in every scan.
    Watched,
}

/// What a scan has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// VMs that the scan before had not found.
    pub appeared: Vec<Identity>,
    /// VMs that no longer exist.
    pub gone: Vec<Vm>,
    /// Number of processes that were not examined, because their users have used up their share of time.
    pub postponed: usize,
}

impl Changes {
    /// Adds the changes of a later scan.
    pub fn add(&mut self, later: Self) {
        self.appeared.extend(later.appeared);
        self.gone.extend(later.gone);
        self.postponed += later.postponed;
    }
}

impl Seen {
    /// Whether a monitor without vCPUs is due: in the first 30 examinations, in which vCPUs usually appear,
    /// and in every 32nd after. Each call counts as an examination.
    fn is_due(&mut self) -> bool {
        let is_due = self.examinations < 30 || self.examinations.is_multiple_of(32);
        self.examinations = self.examinations.saturating_add(1);
        is_due
    }
}

impl Finder {
    /// A finder that has examined nothing. The root is `/` for this machine.
    pub fn new(root: &Path) -> Self {
        Self {
            root: root.into(),
            believes_names: false,
            seen: HashMap::new(),
            vms: HashMap::new(),
            helpers: HashMap::new(),
            shares: Shares::default(),
            progress: || {},
        }
    }

    /// Calls `progress` after each process that it has examined.
    pub fn with_progress(mut self, progress: fn()) -> Self {
        self.progress = progress;
        self
    }

    /// Begins a round in which each user has a share of time; each scan is one.
    pub fn begin_round(&mut self) {
        self.shares.begin();
    }

    /// Whether monitors that run without KVM count as VMs. Only their own names and those of their threads
    /// identify them.
    pub fn with_emulated(mut self, with_emulated: bool) -> Self {
        self.believes_names = with_emulated;
        self
    }

    /// The known VMs, in no order.
    pub fn vms(&self) -> impl Iterator<Item = &Vm> {
        self.vms.values()
    }

    /// The VM of a process, if it is known.
    pub fn vm(&self, pid: u32) -> Option<&Vm> {
        self.vms.get(&pid)
    }

    /// Processes of monitors that are not VMs, because no thread is known to be a vCPU: they start or end, or
    /// only root can distinguish their threads. In no order.
    pub fn monitors_without_vcpus(&self) -> impl Iterator<Item = u32> {
        let watched = self.seen.iter().filter(|(_, seen)| seen.state == State::Watched);
        watched.map(|(&pid, _)| pid).filter(|pid| !self.vms.contains_key(pid))
    }

    /// Examines new processes, and those that may have changed.
    ///
    /// # Errors
    /// If `/proc` cannot be read.
    pub fn scan(&mut self) -> Result<Changes, ProcUnreadable> {
        self.begin_round();
        let mut changes = Changes::default();
        let mut present = HashSet::with_capacity(self.seen.len());
        let directory = self.root.join("proc");
        let unreadable = |cause| ProcUnreadable { directory: directory.clone(), cause };
        for entry in fs::read_dir(&directory).map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?;
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            present.insert(pid);
            let inode = entry.ino();
            let seen = self.seen.get_mut(&pid).filter(|seen| seen.inode == inode);
            let before = seen.as_ref().map(|seen| seen.state);
            let is_due = match (seen, before) {
                (_, Some(State::Settled)) => false,
                (Some(seen), Some(State::Watched)) if !self.vms.contains_key(&pid) => seen.is_due(),
                _ => true,
            };
            if is_due {
                self.update(pid, inode, before, &mut changes);
            }
        }
        self.seen.retain(|pid, _| present.contains(pid));
        self.helpers.retain(|pid, _| present.contains(pid));
        let gone: Vec<u32> = self.vms.keys().filter(|pid| !present.contains(pid)).copied().collect();
        changes.gone.extend(gone.iter().filter_map(|pid| self.vms.remove(pid)));
        for (pid, vm) in &mut self.vms {
            vm.helpers = self.helpers.get(pid).cloned().unwrap_or_default();
        }
        Ok(changes)
    }

    /// Examines one process, however often that was done: for callers to which the kernel reports that it
    /// runs another program, has new threads, or has ended. The next scan does not report these changes
    /// again.
    pub fn examine(&mut self, pid: u32) -> Changes {
        let mut changes = Changes::default();
        match fs::metadata(self.root.join(format!("proc/{pid}"))) {
            Ok(directory) => self.update(pid, directory.ino(), None, &mut changes),
            Err(_) => {
                self.seen.remove(&pid);
                changes.gone.extend(self.vms.remove(&pid));
            }
        }
        changes
    }

    /// Examines monitors that had no vCPUs yet again; ever more rarely, since a process may look like a
    /// monitor for ever.
    pub fn examine_unfinished(&mut self) -> Changes {
        let unfinished: Vec<u32> = self.monitors_without_vcpus().collect();
        let mut changes = Changes::default();
        for pid in unfinished {
            if self.seen.get_mut(&pid).is_none_or(Seen::is_due) {
                changes.add(self.examine(pid));
            }
        }
        changes
    }

    /// Forgets which processes are VMs and which are not: the next scan examines all of them. A process that
    /// runs another program now is no longer a VM.
    pub fn forget(&mut self) {
        self.seen.retain(|pid, seen| seen.state == State::Watched && !self.vms.contains_key(pid));
    }

    fn update(&mut self, pid: u32, inode: u64, before: Option<State>, changes: &mut Changes) {
        if before == Some(State::Watched) && self.vms.get(&pid).is_some_and(Vm::is_alive) {
            return;
        }
        let examinations =
            self.seen.get(&pid).filter(|seen| seen.inode == inode).map_or(0, |seen| seen.examinations);
        let kind =
            examine_process(&self.root, pid, self.vms.get(&pid), self.believes_names, &mut self.shares);
        (self.progress)();
        let (state, vm) = match kind {
            ProcessKind::Postponed => {
                changes.postponed += 1;
                if self.vms.get(&pid).is_some_and(|vm| !vm.is_alive()) {
                    changes.gone.extend(self.vms.remove(&pid));
                }
                // The next scan checks whether it still is a VM.
                self.seen.remove(&pid);
                return;
            }
            ProcessKind::Vm(vm) => (State::Watched, Some(vm)),
            ProcessKind::MonitorWithoutVcpus => (State::Watched, None),
            ProcessKind::Helper { of } => {
                let helpers = self.helpers.entry(of).or_default();
                if !helpers.contains(&pid) {
                    helpers.push(pid);
                }
                (State::Settled, None)
            }
            ProcessKind::KernelThread => (State::Settled, None),
            ProcessKind::Other if before == Some(State::New) => (State::Settled, None),
            ProcessKind::Other | ProcessKind::Unknown => (State::New, None),
        };
        self.seen.insert(pid, Seen { inode, state, examinations });
        let old = match vm {
            Some(mut vm) => {
                let identity = vm.identity;
                vm.helpers = self.helpers.get(&pid).cloned().unwrap_or_default();
                let is_same = self.vms.get(&pid).is_some_and(|old| is_same(old, &vm));
                let old = self.vms.insert(pid, *vm);
                if !is_same {
                    changes.appeared.push(identity);
                }
                old.filter(|_| !is_same)
            }
            None => self.vms.remove(&pid),
        };
        changes.gone.extend(old);
    }
}

/// Whether two examinations have found the same VM. A process that has started another program keeps its
/// identity. Memory and devices are as they were at the start, and a later examination may see them
/// differently.
fn is_same(one: &Vm, other: &Vm) -> bool {
    let Vm { identity, monitor, manager, name, user, uuid, virtual_nodes, .. } = other;
    (one.identity, one.monitor, one.user) == (*identity, *monitor, *user)
        && (&one.manager, &one.name, &one.uuid, &one.virtual_nodes) == (manager, name, uuid, virtual_nodes)
}

/// The VM of a process, if it is one. The root is `/` for this machine.
pub fn examine(root: &Path, pid: u32) -> Option<Vm> {
    match examine_process(&root.into(), pid, None, false, &mut Shares::default()) {
        ProcessKind::Vm(vm) => Some(*vm),
        _ => None,
    }
}

/// The kind of a process.
enum ProcessKind {
    Vm(Box<Vm>),
    /// It starts, or asks QEMU for its capabilities, as libvirt does.
    MonitorWithoutVcpus,
    /// A thread of the kernel that works for a process.
    Helper {
        of: u32,
    },
    KernelThread,
    Other,
    /// The files that would identify it cannot be read now.
    Unknown,
    /// Its user has used up the share of time.
    Postponed,
}

/// Examines a process; `known` is the VM that it was before.
fn examine_process(
    root: &Arc<Path>,
    pid: u32,
    known: Option<&Vm>,
    believes_names: bool,
    shares: &mut Shares,
) -> ProcessKind {
    let begin = Instant::now();
    let directory = root.join(format!("proc/{pid}"));
    let named = Monitor::of_process(&directory);
    if named.is_none() {
        match read_stat(&directory) {
            Some(stat) if stat.is_kernel_thread => {
                return match read_name(&directory).as_ref().and_then(served_by) {
                    Some(of) => ProcessKind::Helper { of },
                    None => ProcessKind::KernelThread,
                };
            }
            // A VM of any monitor has a thread for each vCPU, and one besides.
            Some(stat) if stat.threads > 1 => {}
            _ => return ProcessKind::Other,
        }
    }
    let Some(user) = read_user(&directory) else { return ProcessKind::Other };
    if !shares.has_left(root, user) {
        return ProcessKind::Postponed;
    }
    let kind = examine_candidate(root, pid, named, user, known, believes_names);
    shares.spend(root, user, begin.elapsed());
    kind
}

/// Examines a process of this user which may be a VM, by its name or because it has several threads.
fn examine_candidate(
    root: &Arc<Path>,
    pid: u32,
    named: Option<Monitor>,
    user: u32,
    known: Option<&Vm>,
    believes_names: bool,
) -> ProcessKind {
    let directory = root.join(format!("proc/{pid}"));
    let has_vm = has_vm(&directory, user, named.is_some());
    // A caller that may read the evidence gets none now.
    let is_silent = has_vm.is_none() && sees_all_processes() && **root == *Path::new("/");
    if let Some(known) = known.filter(|vm| is_silent && vm.is_alive()) {
        return ProcessKind::Vm(Box::new(known.clone()));
    }
    let monitor = match (named, has_vm) {
        (Some(monitor), Some(true)) => monitor,
        (Some(monitor), _) if believes_names => monitor,
        // A caller without the right to read the evidence has to believe the name. One with the right knows
        // that something is wrong with that process.
        (Some(monitor), None) if !is_silent => monitor,
        // It opens its VM soon, or never.
        (Some(_), _) => return ProcessKind::MonitorWithoutVcpus,
        (None, Some(true)) => Monitor::Other,
        (None, None) if is_silent => return ProcessKind::Unknown,
        (None, _) => return ProcessKind::Other,
    };
    // Reads the start time twice, so that another process which has taken the number meanwhile is not
    // confused with this one.
    let started = || read_stat(&directory).filter(|stat| !stat.has_ended()).map(|stat| stat.start_ticks);
    let Some(start_ticks) = started() else { return ProcessKind::Other };
    if !threads::read(root, pid, &[]).iter().any(|thread| thread.kind == ThreadKind::Vcpu) {
        return ProcessKind::MonitorWithoutVcpus;
    }
    let identity = Identity { pid, start_ticks };
    // A VM stays one even if its arguments cannot be read: then its description stays the same.
    let arguments = match (read_arguments(&directory), known.filter(|vm| vm.identity == identity)) {
        (None, Some(known)) => return ProcessKind::Vm(Box::new(known.clone())),
        (arguments, _) => arguments.unwrap_or_default(),
    };
    let cgroups = &read_text(&directory.join("cgroup")).unwrap_or_default();
    let source = Source { root, directory: &directory, user, arguments: &arguments, cgroups };
    let description = source.describe(monitor);
    let claimed_bytes = description.memory_bytes.or_else(|| memory::largest_mapping(&directory, user));
    let memory_max_bytes = memory::most(root, pid);
    let vm = Vm {
        identity,
        monitor,
        manager: description.manager,
        name: description
            .name
            .filter(|name| !name.text().trim_matches(' ').is_empty())
            .map_or_else(|| format!("{monitor}-{pid}"), |name| name.shown()),
        user,
        uuid: description.uuid.map(|uuid| uuid.shown()),
        memory_bytes: claimed_bytes.map(|bytes| memory_max_bytes.map_or(bytes, |most| bytes.min(most))),
        devices: description.devices.iter().map(|told| Device::find(root, told)).collect(),
        virtual_nodes: description.virtual_nodes,
        root: Arc::clone(root),
        helpers: Vec::new(),
        directory: directory.clone(),
    };
    match started() == Some(start_ticks) {
        true => ProcessKind::Vm(Box::new(vm)),
        false => ProcessKind::Other,
    }
}
