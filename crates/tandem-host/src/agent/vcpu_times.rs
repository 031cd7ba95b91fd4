//! Run and wait times of a VM's vCPUs since it was started, as counters that never decrease.

use crate::vms::{OpenTimes, Thread, ThreadKind, ThreadTimes, Vm};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The vCPUs of a VM and their times. The agent shares it with threads that ask for reports.
///
/// vCPUs that have ended still count, with the times that were read last. An agent that takes over does not
/// know of those that ended before.
#[derive(Debug)]
pub struct VcpuTimes {
    vm: Vm,
    vcpus: Vec<Thread>,
    /// Their open files; `None` where too many files are open: then each reading opens them.
    open: Option<OpenTimes>,
    counted: Mutex<Counted>,
}

#[derive(Clone, Debug)]
struct Counted {
    /// The last reading, by vCPU; `None` for a thread that was already gone.
    last: Vec<Option<ThreadTimes>>,
    /// The times of vCPUs that have ended.
    ended: ThreadTimes,
}

impl VcpuTimes {
    /// Opens the files of those threads that are vCPUs.
    pub fn start(vm: &Vm, threads: &[Thread]) -> Self {
        let vcpus: Vec<Thread> =
            threads.iter().filter(|thread| thread.kind == ThreadKind::Vcpu).cloned().collect();
        let open = vm.open_times(&vcpus).ok();
        let counted =
            Counted { last: vec![None; vcpus.len()], ended: ThreadTimes { run_ns: 0, wait_ns: Some(0) } };
        Self { vm: vm.clone(), vcpus, open, counted: Mutex::new(counted) }
    }

    /// The same VM with other threads.
    pub fn with_threads(&self, threads: &[Thread]) -> Self {
        let next = Self::start(&self.vm, threads);
        // The last reading of those that are about to be dropped.
        self.total();
        let counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let mut ended = counted.ended;
        for (vcpu, last) in self.vcpus.iter().zip(&counted.last) {
            if let (Some(last), false) = (last, next.vcpus.iter().any(|stays| stays.tid == vcpu.tid)) {
                ended = sum(ended, *last);
            }
        }
        drop(counted);
        next.counted.lock().unwrap_or_else(PoisonError::into_inner).ended = ended;
        next
    }

    pub fn vm(&self) -> &Vm {
        &self.vm
    }

    /// The times of all vCPUs so far.
    pub fn total(&self) -> ThreadTimes {
        let counted = self.read();
        counted.last.iter().flatten().copied().fold(counted.ended, sum)
    }

    /// How long each existing vCPU has run so far, ns.
    pub fn by_vcpu(&self) -> Vec<(Thread, u64)> {
        let last = self.read().last.clone();
        let known = self.vcpus.iter().zip(last);
        known.filter_map(|(vcpu, times)| Some((vcpu.clone(), times?.run_ns))).collect()
    }

    /// How long the existing vCPUs of each part have run and waited so far, ns; `part_of` returns the part of
    /// a vCPU.
    fn asked_ns(&self, parts: usize, part_of: impl Fn(&Thread) -> Option<usize>) -> Vec<u64> {
        let mut asked_ns = vec![0u64; parts];
        for (vcpu, times) in self.vcpus.iter().zip(&self.read().last) {
            if let (Some(part), Some(times)) = (part_of(vcpu), times) {
                let times = times.run_ns.saturating_add(times.wait_ns.unwrap_or(0));
                asked_ns[part] = asked_ns[part].saturating_add(times);
            }
        }
        asked_ns
    }

    fn read(&self) -> MutexGuard<'_, Counted> {
        // Two threads that read at the same time must not replace newer values with older ones.
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let mut times = Vec::with_capacity(self.vcpus.len());
        match &self.open {
            Some(open) => open.read(&mut times),
            None => self.vm.read_times(&self.vcpus, &mut times),
        }
        for (last, now) in counted.last.iter_mut().zip(times) {
            *last = now.or(*last);
        }
        counted
    }
}

/// CPUs that the vCPUs of each part of a VM ran on and waited for, on average between two scans.
#[derive(Debug)]
pub(super) struct Demand {
    asked_ns: Vec<u64>,
    read: Duration,
}

impl Demand {
    /// Begins now with this many parts; `part_of` returns the part of a vCPU.
    pub fn start(
        times: &VcpuTimes,
        parts: usize,
        part_of: impl Fn(&Thread) -> Option<usize>,
        now: Duration,
    ) -> Self {
        Self { asked_ns: times.asked_ns(parts, part_of), read: now }
    }

    /// The demand since the last call, by part; `None` if no time has passed.
    pub fn take(
        &mut self,
        times: &VcpuTimes,
        part_of: impl Fn(&Thread) -> Option<usize>,
        now: Duration,
    ) -> Option<Vec<f64>> {
        let time_ns = now.saturating_sub(self.read).as_nanos() as f64;
        if time_ns == 0.0 {
            return None;
        }
        let before = std::mem::replace(self, Self::start(times, self.asked_ns.len(), part_of, now));
        let asked = self.asked_ns.iter().zip(before.asked_ns);
        Some(asked.map(|(now, before)| now.saturating_sub(before) as f64 / time_ns).collect())
    }
}

/// The wait is unknown if one of the two is.
fn sum(a: ThreadTimes, b: ThreadTimes) -> ThreadTimes {
    ThreadTimes {
        run_ns: a.run_ns.saturating_add(b.run_ns),
        wait_ns: a.wait_ns.zip(b.wait_ns).map(|(a, b)| a.saturating_add(b)),
    }
}
