//! Finds the VMs among all processes.
//!
//! A host has thousands of processes and some dozen VMs, and looking at a process costs some system calls. So every
//! process is looked at when it is new, once more in the next scan (a manager's child is not the monitor yet when it
//! has only been forked), and then no more. What looks like a monitor and is none is looked at ever more rarely. That a number is another process's by now is told by the inode number of
//! its directory in `/proc`, which comes with the list of processes for free.
//!
//! Limits: a process that waits for long before it becomes a monitor is missed, unless [`Finder::examine`] is called when
//! the kernel tells of its `exec`, or [`Finder::forget`] now and then.

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
    /// Where they should be.
    pub directory: PathBuf,
    /// What the system says.
    pub cause: io::Error,
}

/// Looks for VMs, and remembers what it has seen.
#[derive(Debug)]
pub struct Finder {
    root: Arc<Path>,
    /// What a process calls itself makes it a VM, whatever the kernel says.
    believes_names: bool,
    seen: HashMap<u32, Seen>,
    vms: HashMap<u32, Vm>,
    /// Threads of the kernel that work for a process.
    helpers: HashMap<u32, Vec<u32>>,
    shares: Shares,
    progress: fn(),
}

/// What became of a process when it was looked at.
#[derive(Clone, Copy, Debug)]
struct Seen {
    inode: u64,
    state: State,
    /// How often it was looked at.
    looks: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// No VM, when it was looked at for the first time, or as long as nothing tells.
    New,
    /// No VM, nor will it be one.
    Settled,
    /// A monitor without vCPUs, or a VM: looked at in every scan.
    Watched,
}

/// What a scan has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// VMs that were not there in the scan before.
    pub appeared: Vec<Identity>,
    /// VMs that are not there any more.
    pub gone: Vec<Vm>,
    /// Processes for which there was no time: their users have had their share of it.
    pub postponed: usize,
}

impl Changes {
    /// Adds what was found after these.
    pub fn add(&mut self, later: Self) {
        self.appeared.extend(later.appeared);
        self.gone.extend(later.gone);
        self.postponed += later.postponed;
    }
}

impl Seen {
    /// Whether a monitor without vCPUs is due: in the first 30 looks, in which vCPUs mostly come, and every 32nd one after. That it is
    /// asked counts as a look.
    fn is_due(&mut self) -> bool {
        let is_due = self.looks < 30 || self.looks.is_multiple_of(32);
        self.looks = self.looks.saturating_add(1);
        is_due
    }
}

impl Finder {
    /// Has seen nothing yet. The root is `/` for this machine.
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

    /// Calls this after each process that it has looked at.
    pub fn with_progress(mut self, progress: fn()) -> Self {
        self.progress = progress;
        self
    }

    /// Begins a round in which each user has its share of time; a scan is one.
    pub fn begin_round(&mut self) {
        self.shares.begin();
    }

    /// Whether monitors that run without KVM count as VMs, which nobody but their own names and those of their threads vouches for.
    pub fn with_emulated(mut self, with_emulated: bool) -> Self {
        self.believes_names = with_emulated;
        self
    }

    /// The VMs that are known, in no order.
    pub fn vms(&self) -> impl Iterator<Item = &Vm> {
        self.vms.values()
    }

    /// The VM of that process, if it is known.
    pub fn vm(&self, pid: u32) -> Option<&Vm> {
        self.vms.get(&pid)
    }

    /// Processes of monitors that are no VMs, for no thread of theirs is known to be a vCPU: they start or end, or only root
    /// can tell their threads apart. In no order.
    pub fn monitors_without_vcpus(&self) -> impl Iterator<Item = u32> {
        let watched = self.seen.iter().filter(|(_, seen)| seen.state == State::Watched);
        watched.map(|(&pid, _)| pid).filter(|pid| !self.vms.contains_key(pid))
    }

    /// Looks at processes that were not there before.
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
                self.look(pid, inode, before, &mut changes);
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

    /// Looks at one process, however often that was done: for callers whom the kernel tells that it runs another program
    /// now, has new threads, or has ended. What came or went is not told again by the next scan.
    pub fn examine(&mut self, pid: u32) -> Changes {
        let mut changes = Changes::default();
        match fs::metadata(self.root.join(format!("proc/{pid}"))) {
            Ok(directory) => self.look(pid, directory.ino(), None, &mut changes),
            Err(_) => {
                self.seen.remove(&pid);
                changes.gone.extend(self.vms.remove(&pid));
            }
        }
        changes
    }

    /// Looks again at monitors that had no vCPUs yet; ever more rarely, since a process may look like one for ever.
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

    /// Forgets which processes are VMs and which are not: the next scan looks at all of them. One that runs another program now is a VM
    /// no longer.
    pub fn forget(&mut self) {
        self.seen.retain(|pid, seen| seen.state == State::Watched && !self.vms.contains_key(pid));
    }

    fn look(&mut self, pid: u32, inode: u64, before: Option<State>, changes: &mut Changes) {
        if before == Some(State::Watched) && self.vms.get(&pid).is_some_and(Vm::is_alive) {
            return;
        }
        let looks = self.seen.get(&pid).filter(|seen| seen.inode == inode).map_or(0, |seen| seen.looks);
        let look = look_at(&self.root, pid, self.vms.get(&pid), self.believes_names, &mut self.shares);
        (self.progress)();
        let (state, vm) = match look {
            Look::Postponed => {
                changes.postponed += 1;
                if self.vms.get(&pid).is_some_and(|vm| !vm.is_alive()) {
                    changes.gone.extend(self.vms.remove(&pid));
                }
                // Whether it is a VM still is asked by the next scan.
                self.seen.remove(&pid);
                return;
            }
            Look::Vm(vm) => (State::Watched, Some(vm)),
            Look::MonitorWithoutVcpus => (State::Watched, None),
            Look::Helper { of } => {
                let helpers = self.helpers.entry(of).or_default();
                if !helpers.contains(&pid) {
                    helpers.push(pid);
                }
                (State::Settled, None)
            }
            Look::KernelThread => (State::Settled, None),
            Look::Other if before == Some(State::New) => (State::Settled, None),
            Look::Other | Look::Unknown => (State::New, None),
        };
        self.seen.insert(pid, Seen { inode, state, looks });
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

/// Whether two looks have found the same VM. A process that runs another program meanwhile keeps its identity. Memory and devices are
/// what they were at the start, and may be seen otherwise later.
fn is_same(one: &Vm, other: &Vm) -> bool {
    let Vm { identity, monitor, manager, name, user, uuid, virtual_nodes, .. } = other;
    (one.identity, one.monitor, one.user) == (*identity, *monitor, *user)
        && (&one.manager, &one.name, &one.uuid, &one.virtual_nodes) == (manager, name, uuid, virtual_nodes)
}

/// The VM of a process, if it is one. The root is `/` for this machine.
pub fn examine(root: &Path, pid: u32) -> Option<Vm> {
    match look_at(&root.into(), pid, None, false, &mut Shares::default()) {
        Look::Vm(vm) => Some(*vm),
        _ => None,
    }
}

/// What a process turns out to be.
enum Look {
    Vm(Box<Vm>),
    /// It starts, or asks QEMU what it can do, as libvirt does.
    MonitorWithoutVcpus,
    /// A thread of the kernel that works for a process.
    Helper {
        of: u32,
    },
    KernelThread,
    Other,
    /// What would tell does not answer now.
    Unknown,
    /// Its user has had its share of time.
    Postponed,
}

/// Looks at a process; `known` is the VM that it was before.
fn look_at(
    root: &Arc<Path>,
    pid: u32,
    known: Option<&Vm>,
    believes_names: bool,
    shares: &mut Shares,
) -> Look {
    let begin = Instant::now();
    let directory = root.join(format!("proc/{pid}"));
    let named = Monitor::of_process(&directory);
    if named.is_none() {
        match read_stat(&directory) {
            Some(stat) if stat.is_kernel_thread => {
                return match read_name(&directory).as_ref().and_then(served_by) {
                    Some(of) => Look::Helper { of },
                    None => Look::KernelThread,
                };
            }
            // A VM of any monitor has a thread for each vCPU, and one besides.
            Some(stat) if stat.threads > 1 => {}
            _ => return Look::Other,
        }
    }
    let Some(user) = read_user(&directory) else { return Look::Other };
    if !shares.has_left(root, user) {
        return Look::Postponed;
    }
    let look = look_closely(root, pid, named, user, known, believes_names);
    shares.spend(root, user, begin.elapsed());
    look
}

/// Looks at a process of that user which may be a VM, by its name or since it has threads.
fn look_closely(
    root: &Arc<Path>,
    pid: u32,
    named: Option<Monitor>,
    user: u32,
    known: Option<&Vm>,
    believes_names: bool,
) -> Look {
    let directory = root.join(format!("proc/{pid}"));
    let has_vm = has_vm(&directory, user, named.is_some());
    // Whoever may see it has no answer now.
    let is_silent = has_vm.is_none() && sees_all_processes() && **root == *Path::new("/");
    if let Some(known) = known.filter(|vm| is_silent && vm.is_alive()) {
        return Look::Vm(Box::new(known.clone()));
    }
    let monitor = match (named, has_vm) {
        (Some(monitor), Some(true)) => monitor,
        (Some(monitor), _) if believes_names => monitor,
        // Whoever may not see it has to believe it. Who may knows that there is something wrong with that process.
        (Some(monitor), None) if !is_silent => monitor,
        // It opens its VM soon, or it never will.
        (Some(_), _) => return Look::MonitorWithoutVcpus,
        (None, Some(true)) => Monitor::Other,
        (None, None) if is_silent => return Look::Unknown,
        (None, _) => return Look::Other,
    };
    // Twice, so that a process which has taken the number meanwhile is not mixed up with this one.
    let started = || read_stat(&directory).filter(|stat| !stat.has_ended()).map(|stat| stat.start_ticks);
    let Some(start_ticks) = started() else { return Look::Other };
    if !threads::read(root, pid, &[]).iter().any(|thread| thread.kind == ThreadKind::Vcpu) {
        return Look::MonitorWithoutVcpus;
    }
    let identity = Identity { pid, start_ticks };
    // A VM is one whatever it says, and if it says nothing: then it is what it was.
    let arguments = match (read_arguments(&directory), known.filter(|vm| vm.identity == identity)) {
        (None, Some(known)) => return Look::Vm(Box::new(known.clone())),
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
        true => Look::Vm(Box::new(vm)),
        false => Look::Other,
    }
}
