//! The agent: finds the VMs of the host as they start and end, and gives them home nodes.
//!
//! ```text
//! exec, exit ──> Discovery ──> TrackedVm (threads, demand, memory, limits: one for each VM)
//! /proc, cgroups ─────────────────┘ │ VmView
//!                                   v
//!                    tandem_machine::homes::Planner ──Decision──> Actuator ──> the scheduler's preferences
//! ```
//!
//! **Problem.** A VM is fastest on the nodes of its memory, and hosts change: VMs come, go, work and idle.
//! Pinning by hand leaves CPUs idle, and is soon out of date.
//!
//! **Approach.** A new VM gets a home at once, before it has touched much memory; in every scan the planner
//! decides whether one VM should have another (`tandem_machine::homes` has the rules). A home is the
//! preference of all threads of the VM: a preference of the scheduler, never an affinity. The agent respects
//! decisions of people: an affinity or a cpuset limits the nodes to choose from; vCPUs that are pinned one by
//! one, and preferences that another process has set, stay as they are, and so does what the settings say of
//! a VM. VMs that stay with the kernel's scheduler have no home.
//!
//! A VM whose guest sees virtual nodes has a home for each: see [`parts`]. VMs whose settings ask for it are
//! [isolated](apart) from others on their cores.
//!
//! On a kernel that hangs when a VM uses core scheduling beside a sched_ext scheduler, the agent also warns
//! of VMs that do, once each.
//!
//! **Cost.** A scan reads an open file for each vCPU and a file for the VM. It reads where memory is only as
//! often as that takes a two-thousandth of a CPU. See [`tracked_vm`], and `benches/agent.rs` of `tandemd`.
//!
//! **Limits.** The agent believes a VM's name and manager for the VMs of its user. Memory stays where it is
//! unless the operator wants it [moved](mover). The agent notices within five minutes that vCPUs other than
//! the first are pinned anew.

mod about;
mod actuator;
mod apart;
mod discovery;
mod free_memory;
mod locality;
mod log_quota;
mod mover;
mod moving_process;
mod pages;
mod parts;
mod pass;
mod report;
mod rules;
mod seen;
mod tracked_vm;
mod vcpu_times;
mod whereabouts;

pub use actuator::{Actuator, DryRun, SchedulerActuator};
pub use discovery::Discovery;
pub use free_memory::{available_bytes, free_bytes};
pub use moving_process::{PagesByHelper, serve_moves};
pub use pages::{KernelPages, Pages, Status};
pub use parts::Part;
pub use pass::MovedMemory;
pub use report::{HomeDecisions, MemoryReport, Reports, VmReport};
pub use tracked_vm::{Decided, TrackedVm};

use crate::core_scheduling::CookieVm;
use crate::log_entry::{Level, LogEntry};
use crate::scheduler::{PreferenceError, RunningKernel, is_endangered_by_cookies};
use crate::vms::homes_file::{HomesFile, VERSION};
use crate::vms::{Identity, ProcUnreadable, name_nodes};
use apart::Keeper;
use log_quota::{Line, LogQuota};
use mover::Mover;
use parts::vm_of;
use report::Published;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tandem_machine::Machine;
use tandem_machine::homes::{Decision, Home, Planner, View, VmView};
use tandem_settings::{Partial, Settings, VmRule};
use thiserror::Error;

/// Why the agent cannot continue.
#[derive(Debug, Error)]
pub enum AgentError {
    /// It cannot list the processes.
    #[error(transparent)]
    Proc(#[from] ProcUnreadable),
    /// It cannot set preferences in the scheduler.
    #[error("cannot give homes: {0}")]
    Preference(#[from] PreferenceError),
}

/// Gives the VMs of a machine their homes.
pub struct Agent<H> {
    root: PathBuf,
    machine: Machine,
    /// Numbers of the CPUs, in ascending order.
    online: Vec<u32>,
    rules: Vec<VmRule>,
    partial: Partial,
    planner: Planner,
    discovery: Discovery,
    actuator: H,
    tracked: BTreeMap<Identity, TrackedVm>,
    next_id: u64,
    scanned: Duration,
    /// Whether something has changed that readers see.
    is_changed: bool,
    decisions: HomeDecisions,
    reports: Reports,
    /// Whether the kernel hangs when a VM uses core scheduling.
    is_endangered_by_cookies: bool,
    log_quota: LogQuota,
    /// `None` if no VM is to be isolated.
    keeper: Option<Keeper>,
    /// `None` if memory stays where it is.
    mover: Option<Mover>,
    progress: fn(),
}

impl<H: Actuator> Agent<H> {
    /// An agent that knows no VM yet. The root is `/` for this machine.
    pub fn new(root: &Path, machine: Machine, settings: &Settings, actuator: H) -> Self {
        let mut online: Vec<u32> = machine.cpus().iter().map(|cpu| cpu.os_index).collect();
        online.sort_unstable();
        Self {
            root: root.to_owned(),
            is_endangered_by_cookies: is_endangered_by_cookies(&RunningKernel::new(root), &machine),
            keeper: Keeper::new(&RunningKernel::new(root), &machine, &settings.vm),
            machine,
            online,
            rules: settings.vm.clone(),
            partial: settings.partial.clone(),
            planner: Planner::new(settings.agent.home_settings()),
            discovery: Discovery::new(root, settings.agent.emulated),
            actuator,
            tracked: BTreeMap::new(),
            next_id: 0,
            scanned: Duration::ZERO,
            is_changed: true,
            decisions: HomeDecisions::default(),
            reports: Reports::default(),
            log_quota: LogQuota::default(),
            mover: None,
            progress: || {},
        }
    }

    /// Calls `progress` after each VM of a scan, which shows that the agent is alive: a scan of many VMs
    /// takes its time.
    pub fn with_progress(mut self, progress: fn()) -> Self {
        self.progress = progress;
        self.discovery = self.discovery.with_progress(progress);
        self
    }

    /// Also moves memory of VMs to their homes, at most this much per second.
    pub fn with_moved_memory(mut self, mib_per_s: u32, pages: Arc<dyn Pages>) -> Self {
        self.mover = Some(Mover::new(mib_per_s, pages));
        self
    }

    /// Whether the kernel reports VMs that start.
    pub fn has_events(&self) -> bool {
        self.discovery.has_events()
    }

    /// Descriptors that become readable when a VM ends: [`Agent::step`] is due then.
    pub fn ends(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.discovery.ends()
    }

    /// The VMs that it knows.
    pub fn tracked_vms(&self) -> impl Iterator<Item = &TrackedVm> {
        self.tracked.values()
    }

    /// The planner of homes.
    pub fn planner(&self) -> &Planner {
        &self.planner
    }

    /// Processes that may be VMs, as
    /// [`Finder::monitors_without_vcpus`](crate::vms::Finder::monitors_without_vcpus) returns them.
    pub fn monitors_without_vcpus(&self) -> impl Iterator<Item = u32> {
        self.discovery.monitors_without_vcpus()
    }

    /// A handle through which other threads read what the agent publishes after each scan.
    pub fn reports(&self) -> Reports {
        self.reports.clone()
    }

    /// Does what is due; to be called about once a second. `now` is the time since the agent began. Returns
    /// what to log, one entry per line.
    ///
    /// # Errors
    /// If processes cannot be listed, or the scheduler is gone.
    pub fn step(&mut self, now: Duration) -> Result<Vec<LogEntry>, AgentError> {
        let mut told = Vec::new();
        let found = self.find(now, &mut told)?;
        if let Some((identity, line)) = self.mover.as_mut().and_then(|mover| mover.take_ended(now)) {
            told.push(line);
            self.tracked.get_mut(&identity).into_iter().for_each(TrackedVm::forget_memory);
        }
        let interval = u128::from(self.planner.settings().look_interval_ns);
        if now.saturating_sub(self.scanned).as_nanos() >= interval {
            told.extend(self.scan_all(now)?);
        } else if found.are_new {
            self.decide(now, |planner, view| planner.place(view), &mut told)?;
            self.publish();
        } else if found.are_gone {
            self.publish();
        }
        self.reports.count_step();
        Ok(self.log_quota.share(&self.root, told, now))
    }

    /// Finds VMs and takes their homes from a file; decides nothing.
    ///
    /// # Errors
    /// If processes cannot be listed.
    pub fn observe(&mut self, now: Duration, file: Option<&HomesFile>) -> Result<(), AgentError> {
        self.find(now, &mut Vec::new())?;
        for entry in file.iter().flat_map(|file| &file.vms) {
            if let Some(tracked) = self.tracked.get_mut(&entry.identity) {
                tracked.take_over_entry(entry, &self.machine, now);
            }
        }
        Ok(())
    }

    /// Scans all VMs, whether that is due or not. Returns what to log.
    ///
    /// # Errors
    /// If the scheduler is gone.
    pub fn scan(&mut self, now: Duration) -> Result<Vec<LogEntry>, AgentError> {
        let told = self.scan_all(now)?;
        Ok(self.log_quota.share(&self.root, told, now))
    }

    fn scan_all(&mut self, now: Duration) -> Result<Vec<Line>, AgentError> {
        self.scanned = now;
        let vms = self.tracked.len();
        for tracked in self.tracked.values_mut() {
            tracked.update(&self.root, &self.online, vms, now);
            tracked.read_decisions(&self.actuator, &self.machine, &self.partial, now)?;
            if !self.actuator.has_effect() {
                tracked.sample_locality(&self.machine);
            }
            (self.progress)();
        }
        let mut told = self.check_cookies();
        self.decide(now, |planner, view| planner.plan(view), &mut told)?;
        if !self.actuator.has_effect() {
            self.expect(now);
        }
        told.extend(self.move_memory(now));
        (self.progress)();
        self.publish();
        Ok(told)
    }

    /// Isolates VMs, and warns of those that use core scheduling themselves where that is dangerous.
    fn check_cookies(&mut self) -> Vec<Line> {
        let mut told = Vec::new();
        if let Some(keeper) = &mut self.keeper {
            let (is_changed, lines) = keeper.check(self.tracked.values_mut(), &self.actuator);
            self.is_changed |= is_changed;
            told = lines;
        }
        told.extend(self.warn_of_cookies());
        told
    }

    /// Warns of each VM that uses core scheduling, once, where that is dangerous. A VM may begin with it at
    /// any time.
    fn warn_of_cookies(&mut self) -> Vec<Line> {
        if !self.is_endangered_by_cookies {
            return Vec::new();
        }
        let mut told = Vec::new();
        for tracked in self.tracked.values_mut().filter(|tracked| !tracked.has_cookie) {
            if CookieVm::of(&self.root, &tracked.vm).is_some() {
                tracked.has_cookie = true;
                let text = " uses core scheduling, with which this kernel hangs under a sched_ext scheduler; start it without core scheduling, or boot \
                            a kernel that `tandem doctor` names";
                told.push(Line::about(&tracked.vm, Level::Warning, "core-scheduling", text));
            }
        }
        told
    }

    /// Estimates what planned homes would save.
    fn expect(&mut self, now: Duration) {
        let (free_bytes, vms) = self.seen();
        let now_ns = now.as_nanos() as u64;
        let view = View { machine: &self.machine, free_bytes: &free_bytes, vms: &vms, now_ns };
        let runs: BTreeMap<u64, Vec<f64>> = self.tracked.values().flat_map(TrackedVm::runs).collect();
        let savings = self.planner.savings(&view, |vm| runs.get(&vm).cloned());
        for tracked in self.tracked.values_mut() {
            tracked.expect(&savings);
        }
        self.is_changed = true;
    }

    fn publish(&self) {
        let vms = self.tracked.values().map(|tracked| tracked.known(&self.machine)).collect();
        let memory = self.mover.as_ref().map(Mover::totals);
        self.reports.publish(Published { vms, decisions: self.decisions, memory });
    }

    /// Notes which VMs have appeared and gone.
    fn find(&mut self, now: Duration, told: &mut Vec<Line>) -> Result<VmChanges, AgentError> {
        let changes = self.discovery.update(now)?;
        let mut found = VmChanges { are_new: false, are_gone: !changes.gone.is_empty() };
        for vm in &changes.gone {
            if let Some(tracked) = self.tracked.remove(&vm.identity) {
                tracked.leave(&self.actuator, &self.root)?;
                told.push(Line::about(vm, Level::Info, "vm-ended", " has ended"));
                self.is_changed = true;
            }
        }
        for identity in changes.appeared {
            let Some(vm) = self.discovery.vm(identity.pid).filter(|vm| vm.identity == identity) else {
                continue;
            };
            let mut tracked = TrackedVm::new(self.next_id, vm.clone(), &self.rules, &self.online, now);
            self.next_id += 1;
            tracked.read_decisions(&self.actuator, &self.machine, &self.partial, now)?;
            (self.progress)();
            let (vcpus, monitor) = (tracked.vcpus().count(), tracked.vm.monitor);
            let text = format!(" was found: {vcpus} vCPUs, {monitor}");
            told.push(Line::about(&tracked.vm, Level::Info, "vm-found", &text));
            let missing = tracked.missing_nodes(&self.machine);
            if !missing.is_empty() {
                let nodes = name_nodes(&missing);
                let text = format!(": the settings give it {nodes}, which this machine does not have");
                told.push(Line::about(&tracked.vm, Level::Warning, "settings", &text));
            }
            self.tracked.insert(identity, tracked);
            found.are_new = true;
        }
        if found.are_new {
            told.extend(self.check_cookies());
        }
        Ok(found)
    }

    /// Asks the planner, and does what it decides.
    fn decide(
        &mut self,
        now: Duration,
        ask: impl FnOnce(&mut Planner, &View<'_>) -> Vec<Decision>,
        told: &mut Vec<Line>,
    ) -> Result<(), AgentError> {
        let now_ns = now.as_nanos() as u64;
        let (free_bytes, vms) = self.seen();
        let view = View { machine: &self.machine, free_bytes: &free_bytes, vms: &vms, now_ns };
        let decisions = ask(&mut self.planner, &view);
        // Threads that serve all virtual nodes live where these do: their homes follow when all is decided.
        let mut movers = BTreeSet::new();
        for Decision { vm, nodes, reason } in decisions {
            let is_its = |tracked: &&mut TrackedVm| tracked.id == vm_of(vm);
            let Some(tracked) = self.tracked.values_mut().find(is_its) else { continue };
            let Some(at) = tracked.ids().take(tracked.parts.len()).position(|id| id == vm) else {
                continue;
            };
            let had_home = tracked.parts[at].home.is_some();
            tracked.parts[at].home = (!nodes.is_empty()).then_some(Home { nodes, since_ns: now_ns });
            self.is_changed = true;
            let whose = tracked.part_name(&tracked.parts[at]);
            let mut tell = |what: &str| {
                told.push(Line::about(&tracked.vm, Level::Info, "home", &format!("{whose}: {what}")))
            };
            if let Some(decided) = &tracked.decided {
                tell(&format!("left alone; {}", decided.why));
                tracked.parts[at].why = Some(decided.why.clone());
            } else {
                self.decisions.count(had_home, tracked.parts[at].home.is_some());
                match self.actuator.has_effect() {
                    true => tell(&reason.to_string()),
                    false => tell(&format!("would get {reason}")),
                }
                tracked.parts[at].why = Some(reason.why());
                movers.insert(tracked.vm.identity);
            }
        }
        for identity in movers {
            self.tracked[&identity].give_home(&self.actuator, &self.machine)?;
        }
        // Those about which there was nothing to decide.
        self.tracked.values_mut().for_each(|tracked| tracked.explain_no_home(&self.machine));
        Ok(())
    }

    /// The planner's input: free memory by node, and the VMs.
    pub fn seen(&self) -> (Vec<u64>, Vec<VmView>) {
        let vms = self.tracked.values().flat_map(|tracked| tracked.views(&self.machine)).collect();
        (free_bytes(&self.root, &self.machine), vms)
    }

    /// Passes the VMs to the mover for which moving memory pays.
    fn move_memory(&mut self, now: Duration) -> Option<Line> {
        self.mover.as_ref()?;
        let (free_bytes, vms) = self.seen();
        let now_ns = now.as_nanos() as u64;
        let view = View { machine: &self.machine, free_bytes: &free_bytes, vms: &vms, now_ns };
        let far = self.planner.far_memory(&view);
        let worth = far.iter().filter_map(|far| {
            let tracked = self.tracked.values().find(|tracked| tracked.id == vm_of(far.vm))?;
            Some((tracked, tracked.home_numbers(&self.machine), far.bytes))
        });
        self.mover.as_mut()?.step(worth, now)
    }

    /// The file of homes, if it has changed since the last call.
    pub fn homes_file(&mut self) -> Option<HomesFile> {
        std::mem::take(&mut self.is_changed).then(|| HomesFile {
            version: VERSION,
            written_unix_s: SystemTime::now()
                .duration_since(SystemTime::UNIX_EPOCH)
                .unwrap_or_default()
                .as_secs(),
            are_planned: !self.actuator.has_effect(),
            vms: self.tracked.values().map(|tracked| tracked.entry(&self.machine)).collect(),
        })
    }
}

/// The VMs that have changed.
struct VmChanges {
    are_new: bool,
    are_gone: bool,
}

#[cfg(test)]
mod tests;
