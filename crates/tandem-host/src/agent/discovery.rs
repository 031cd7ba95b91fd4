//! Finds VMs as they start and end: by events where the kernel sends them, otherwise by scans.
//!
//! The kernel reports programs that are executed and processes that end ([`ProcessEvents`], pidfds). A
//! monitor's vCPUs start some time after its program, so it is examined again until they exist. A scan of all
//! of `/proc` still happens once a minute, and at once if events were lost; without events, as in a
//! container, every two seconds.

use crate::process_events::ProcessEvents;
use crate::vms::{Changes, Finder, ProcUnreadable, Vm};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Resource, getrlimit, pidfd_open};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

/// Time between two scans of all processes, with events and without.
const SCAN_INTERVAL: Duration = Duration::from_secs(60);
const SCAN_INTERVAL_WITHOUT_EVENTS: Duration = Duration::from_secs(2);

/// Finds the VMs of a host, and watches for their ends.
#[derive(Debug)]
pub struct Discovery {
    finder: Finder,
    events: Option<ProcessEvents>,
    /// By process.
    ends: BTreeMap<u32, OwnedFd>,
    scanned: Option<Duration>,
    /// When the finder last forgot the processes that are not VMs, which is only necessary without events.
    forgot: Duration,
    /// Whether some processes were postponed in the last call.
    has_postponed: bool,
}

impl Discovery {
    /// Discovery that has found nothing yet. The root is `/` for this machine; for any other there are no
    /// events. `with_emulated`: as [`Finder::with_emulated`].
    pub fn new(root: &Path, with_emulated: bool) -> Self {
        let is_this_machine = root == Path::new("/");
        Self {
            finder: Finder::new(root).with_emulated(with_emulated),
            events: is_this_machine.then(ProcessEvents::subscribe).and_then(Result::ok),
            ends: BTreeMap::new(),
            scanned: None,
            forgot: Duration::ZERO,
            has_postponed: false,
        }
    }

    /// Calls `progress` after each process that it has examined.
    pub fn with_progress(mut self, progress: fn()) -> Self {
        self.finder = self.finder.with_progress(progress);
        self
    }

    /// Whether the kernel reports new programs.
    pub fn has_events(&self) -> bool {
        self.events.is_some()
    }

    /// Descriptors that become readable when a VM ends.
    pub fn ends(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.ends.values().map(AsFd::as_fd)
    }

    /// The VM of a process.
    pub fn vm(&self, pid: u32) -> Option<&Vm> {
        self.finder.vm(pid)
    }

    /// As [`Finder::monitors_without_vcpus`].
    pub fn monitors_without_vcpus(&self) -> impl Iterator<Item = u32> {
        self.finder.monitors_without_vcpus()
    }

    /// The VMs that have appeared and gone; `now` is the time since some start. To be called about once a
    /// second, and when a VM ends.
    ///
    /// # Errors
    /// If `/proc` cannot be read.
    pub fn update(&mut self, now: Duration) -> Result<Changes, ProcUnreadable> {
        let since_scan = self.scanned.map(|scanned| now.saturating_sub(scanned));
        let mut changes = Changes::default();
        self.finder.begin_round();
        match &mut self.events {
            Some(events) => {
                let happened = events.take().unwrap_or_default();
                if happened.is_incomplete
                    || self.has_postponed
                    || since_scan.is_none_or(|since| since >= SCAN_INTERVAL)
                {
                    changes = self.scan(now)?;
                    // A scan identifies VMs by properties that do not change when they run another program.
                    for pid in happened.executed {
                        if self.finder.vm(pid).is_some() {
                            changes.add(self.finder.examine(pid));
                        }
                    }
                } else {
                    let ended = ended(&self.ends);
                    for pid in happened.executed.into_iter().chain(ended) {
                        // The next scan finds those that were postponed.
                        changes.add(self.finder.examine(pid));
                    }
                    changes.add(self.finder.examine_unfinished());
                }
            }
            None if since_scan.is_none_or(|since| since >= SCAN_INTERVAL_WITHOUT_EVENTS) => {
                if now.saturating_sub(self.forgot) >= SCAN_INTERVAL {
                    self.finder.forget();
                    self.forgot = now;
                }
                changes = self.scan(now)?;
            }
            None => {
                for pid in ended(&self.ends) {
                    changes.add(self.finder.examine(pid));
                }
            }
        }
        self.has_postponed = changes.postponed > 0;
        for vm in &changes.gone {
            self.ends.remove(&vm.identity.pid);
        }
        for identity in &changes.appeared {
            let pid = Pid::from_raw(identity.pid as i32);
            // Without one, the next scan finds that it has ended.
            if self.ends.len() as u64 >= most_ends() {
                break;
            }
            if let Some(end) = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) {
                self.ends.insert(identity.pid, end);
            }
        }
        Ok(changes)
    }

    fn scan(&mut self, now: Duration) -> Result<Changes, ProcUnreadable> {
        self.scanned = Some(now);
        self.finder.scan()
    }
}

/// Most descriptors for ends: a quarter of all, so that many VMs leave some for everything else.
fn most_ends() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) / 4
}

/// The processes that have ended.
fn ended(ends: &BTreeMap<u32, OwnedFd>) -> Vec<u32> {
    let mut fds: Vec<_> = ends.values().map(|end| PollFd::new(end, PollFlags::IN)).collect();
    let no_time = Timespec { tv_sec: 0, tv_nsec: 0 };
    match poll(&mut fds, Some(&no_time)) {
        Ok(ready) if ready > 0 => {
            let is_ready = |(fd, pid): (&PollFd<'_>, &u32)| (!fd.revents().is_empty()).then_some(*pid);
            fds.iter().zip(ends.keys()).filter_map(is_ready).collect()
        }
        _ => Vec::new(),
    }
}
