//! VMs as they start and end: by events where the kernel has them, by looking where it has not.
//!
//! A program that is executed, and a process that ends, are told by the kernel ([`ProcessEvents`], pidfds). A monitor's
//! vCPUs come some time after it was executed, so it is looked at again until they are there. The whole of `/proc` is
//! looked at once a minute all the same, and at once if events were lost. Without events, as in a container, every two
//! seconds.

use crate::process_events::ProcessEvents;
use crate::vms::{Changes, Finder, ProcUnreadable, Vm};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Resource, getrlimit, pidfd_open};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

/// Time between two looks at all processes, where events tell of new ones, and where nothing does.
const SCAN_INTERVAL: Duration = Duration::from_secs(60);
const SCAN_INTERVAL_WITHOUT_EVENTS: Duration = Duration::from_secs(2);

/// Finds VMs.
#[derive(Debug)]
pub struct Discovery {
    finder: Finder,
    events: Option<ProcessEvents>,
    /// By process.
    ends: BTreeMap<u32, OwnedFd>,
    scanned: Option<Duration>,
    /// When everything that was no VM was looked at again, which only a kernel that tells nothing makes necessary.
    forgot: Duration,
    /// There was no time for some in the last look.
    has_postponed: bool,
}

impl Discovery {
    /// Has found nothing yet. The root is `/` for this machine; for any other there are no events. `with_emulated`: as
    /// [`Finder::with_emulated`].
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

    /// Calls this after each process that it has looked at.
    pub fn with_progress(mut self, progress: fn()) -> Self {
        self.finder = self.finder.with_progress(progress);
        self
    }

    /// Whether the kernel tells of new programs.
    pub fn has_events(&self) -> bool {
        self.events.is_some()
    }

    /// What becomes readable when a VM ends.
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

    /// What has come and gone; `now` is the time since some start. To be called about once a second, and when a VM ends.
    ///
    /// # Errors
    /// If `/proc` cannot be read.
    pub fn look(&mut self, now: Duration) -> Result<Changes, ProcUnreadable> {
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
                    // A scan tells VMs by what does not change when they run another program.
                    for pid in happened.executed {
                        if self.finder.vm(pid).is_some() {
                            changes.add(self.finder.examine(pid));
                        }
                    }
                } else {
                    let ended = ended(&self.ends);
                    for pid in happened.executed.into_iter().chain(ended) {
                        // What was postponed is found by the next scan.
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

/// Most descriptors for ends: a quarter of all, so that whoever has many VMs leaves some for all else.
fn most_ends() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) / 4
}

/// Those whose process has ended.
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
