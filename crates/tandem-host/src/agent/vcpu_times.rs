//! How long the vCPUs of a VM have run and waited since it was started, as counters that never go down.

use crate::vms::{OpenTimes, Thread, ThreadKind, ThreadTimes, Vm};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The vCPUs of a VM and what they have had. The agent and those who ask for reports share it.
///
/// What vCPUs that have ended had still counts, as it was when it was read last. An agent that takes over does not know of
/// those that ended before.
#[derive(Debug)]
pub struct VcpuTimes {
    vm: Vm,
    vcpus: Vec<Thread>,
    /// Their files; without them, as where too many files are open, they are looked up each time.
    open: Option<OpenTimes>,
    counted: Mutex<Counted>,
}

#[derive(Clone, Debug)]
struct Counted {
    /// By vCPU, as it was read last; none for one that was never there.
    last: Vec<Option<ThreadTimes>>,
    /// Of those that have ended.
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
        // Last words of those that are about to be dropped.
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

    /// The VM.
    pub fn vm(&self) -> &Vm {
        &self.vm
    }

    /// What all of them have had so far.
    pub fn total(&self) -> ThreadTimes {
        let counted = self.read();
        counted.last.iter().flatten().copied().fold(counted.ended, sum)
    }

    /// How long each vCPU that is there has run so far, ns.
    pub fn by_vcpu(&self) -> Vec<(Thread, u64)> {
        let last = self.read().last.clone();
        let known = self.vcpus.iter().zip(last);
        known.filter_map(|(vcpu, times)| Some((vcpu.clone(), times?.run_ns))).collect()
    }

    /// How long the vCPUs of each part that are there have run and waited so far, ns; `part_of` says to which one a vCPU belongs.
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
        // Two who read at the same time must not put the older values in the place of the newer.
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

/// CPUs that the vCPUs of each part of a VM ran on and waited for, on average between two looks.
#[derive(Debug)]
pub(super) struct Demand {
    asked_ns: Vec<u64>,
    read: Duration,
}

impl Demand {
    /// Begins now with so many parts; `part_of` says to which one a vCPU belongs.
    pub fn start(
        times: &VcpuTimes,
        parts: usize,
        part_of: impl Fn(&Thread) -> Option<usize>,
        now: Duration,
    ) -> Self {
        Self { asked_ns: times.asked_ns(parts, part_of), read: now }
    }

    /// Since the last call, by part; nothing if no time has passed.
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

/// Waits are unknown if one is.
fn sum(a: ThreadTimes, b: ThreadTimes) -> ThreadTimes {
    ThreadTimes {
        run_ns: a.run_ns.saturating_add(b.run_ns),
        wait_ns: a.wait_ns.zip(b.wait_ns).map(|(a, b)| a.saturating_add(b)),
    }
}
