//! Pause-loop exits, and the search for a vCPU to yield to.
//!
//! Problem: a vCPU that spins for a lock leaves its guest after a while, and the host looks for another vCPU
//! of the VM that may hold the lock. What that costs is the point: the search takes locks that all CPUs need.
//!
//! Approach, as in `kvm_vcpu_on_spin()` and `yield_to()`: the search goes from candidate to candidate. A
//! candidate that is not passed over costs a reference to its task (`get_pid_task()` and
//! `put_task_struct()`), whose counter travels to the CPU that searches, and the locks of two run queues, the
//! lower CPU's first; only with both in hand is it tested for good whether it runs, and if not, the policy is
//! asked to run it. Between two candidates the CPU takes its ticks. Where a search waits for a lock, its
//! processor stands still ([`super::run_queue_locks`]). Xen has no such search: the vCPU gives way to any
//! other.
//!
//! Limits: a scan finds all candidates that it passes over in the state of one instant, although it takes
//! time. Searches that count references to the same task fetch the counter's cache line, but do not wait for
//! each other.

use super::cpu::{Processor, Spinning};
use super::{
    CpuRef, Due, Kernel, Kernels, Leaving, ProcessorDue, Processors, System, TaskState, TimerTarget,
};
use crate::engine::event_queue::NEVER;
use crate::metrics::PauseLoopMetrics;
use crate::policy::Policy;
use crate::policy::pause_loop::{DirectedYield, KernelMode, PauseLoop, RunningCheck};
use crate::trace::Observer;
use std::cmp::Reverse;
use tandem_machine::ids::{CpuId, TaskId};

/// A search for a vCPU to yield to, while it goes on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Search {
    settings: DirectedYield,
    /// The guest CPU that spins.
    spinner: CpuRef,
    /// The candidate that comes next, and how many there are to go.
    next: CpuId,
    to_go: u32,
    tries_left: u32,
    step: Step,
    /// From when on its time has not been accounted for in the guest, ns.
    since_ns: u64,
}

/// Where a search stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Scans candidates, and holds no lock.
    Scan,
    /// Has the lock of the lower CPU of the two, and needs the other's.
    Second(Target),
    /// Has all locks.
    Test(Target),
}

/// A candidate that is to be yielded to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Target {
    candidate: CpuId,
    task: TaskId,
    /// The CPU in whose queue it stood when the search asked for the locks.
    queue: CpuId,
}

/// The searches of all processors, and what came of them.
pub(crate) struct PauseLoops {
    pub metrics: PauseLoopMetrics,
    /// By processor.
    searches: Vec<Option<Search>>,
}

impl<O: Observer> System<O> {
    /// The vCPU on the processor has spun for the whole window.
    pub fn pause_loop_exit(&mut self, pcpu: CpuId, now_ns: u64) {
        self.processors.settle(&mut self.kernels, pcpu, now_ns);
        self.processors[pcpu].burst_end_ns = NEVER;
        let (Some(settings), Some(spinner)) = (self.processors.pause_loop, self.processors[pcpu].guest)
        else {
            return;
        };
        self.events += 1;
        self.pause_loops.metrics.exits += 1;
        if let Some(task) = self.kernels[spinner].current {
            self.kernels[spinner.kernel][task].spin.look_if_unqueued();
        }
        let spinning = &mut self.kernels[spinner].spinning;
        spinning.referenced_by = None;
        grow_window(spinning, settings);
        match settings.directed_yield {
            Some(directed) => {
                self.processors.charge_exit(&mut self.kernels, pcpu);
                let search = Search::new(directed, spinner, &mut self.kernels[spinner.kernel], now_ns);
                self.pause_loops.set(&mut self.processors, pcpu, Some(search));
            }
            None => {
                self.decide(CpuRef::host(pcpu), now_ns, Leaving::Yield);
                back_to_guest(&self.kernels, &mut self.processors, pcpu);
            }
        }
    }

    /// The search at the processor goes on.
    pub fn continue_search(&mut self, pcpu: CpuId, now_ns: u64) {
        let Some(search) = self.pause_loops.searches[pcpu.index()] else { return };
        match search.step {
            Step::Scan => self.scan_candidates(pcpu, search, now_ns),
            Step::Second(target) => {
                self.pause_loops.take_second_lock(
                    &mut self.kernels,
                    &mut self.processors,
                    pcpu,
                    search,
                    target,
                );
            }
            Step::Test(target) => self.yield_to_target(pcpu, search, target, now_ns),
        }
    }

    fn scan_candidates(&mut self, pcpu: CpuId, search: Search, now_ns: u64) {
        let Self { kernels, processors, pause_loops, .. } = self;
        let is_found = pause_loops.scan_candidates(kernels, processors, pcpu, search, now_ns);
        self.events += u64::from(is_found);
        if !is_found {
            self.returns_to_task(CpuRef::host(pcpu), now_ns);
        }
    }

    /// Yields to the target if it still waits, and lets go of the locks.
    fn yield_to_target(&mut self, pcpu: CpuId, mut search: Search, target: Target, now_ns: u64) {
        let host = CpuRef::host(pcpu);
        let state = self.kernels.host()[target.task].state();
        let has_moved =
            self.kernels.host().policy().queue_of(target.task).is_some_and(|at| at != target.queue);
        let mut has_yielded = false;
        if state == TaskState::Runnable
            && !has_moved
            && let Some(spinner) = self.kernels.host()[pcpu].current
        {
            let kernel = self.kernels.host_mut();
            has_yielded = kernel.ask(now_ns, |policy, ctx| policy.yield_to(ctx, pcpu, spinner, target.task));
        } else if state == TaskState::Running {
            self.pause_loops.metrics.failed_running += 1;
            self.pause_loops.metrics.failed_under_locks += 1;
        }
        let mut released_ns = now_ns;
        if has_yielded {
            let work_ns = self.kernels.host().work_under_lock_ns();
            self.processors.charge(&mut self.kernels, host, work_ns);
            released_ns += work_ns;
        }
        let Self { kernels, processors, kicks, .. } = self;
        kicks.unlock_queue(kernels, processors, pcpu, pcpu, released_ns);
        if target.queue != pcpu {
            kicks.unlock_queue(kernels, processors, pcpu, target.queue, released_ns);
        }
        if !has_moved {
            let candidate = CpuRef { kernel: search.spinner.kernel, cpu: target.candidate };
            let put_ns = reference_ns(kernels, processors, pcpu, candidate, target.queue);
            processors.charge(kernels, host, put_ns);
        }
        if has_moved {
            // As `yield_to()`, it tries again with the locks of the queue where the target is now.
            search.next = target.candidate;
            search.to_go += 1;
        }
        if !has_yielded {
            search.step = Step::Scan;
            self.pause_loops.set(&mut self.processors, pcpu, Some(search));
            if interrupt_in_search(&self.kernels, pcpu, now_ns).is_none() {
                self.scan_candidates(pcpu, search, now_ns);
            }
            return;
        }
        self.pause_loops.account(&mut self.kernels, pcpu, now_ns);
        self.pause_loops.metrics.yields += 1;
        *self.kernels[search.spinner.kernel].last_boosted_mut() = target.candidate;
        // It stays in its search, as others see it, until it gets a pCPU again.
        self.pause_loops.set(&mut self.processors, pcpu, None);
        self.deliver_kicks(host, now_ns);
        self.decide(host, now_ns, Leaving::YieldTo);
        back_to_guest(&self.kernels, &mut self.processors, pcpu);
    }
}

impl Search {
    /// It begins after the vCPU of the guest that the host has yielded to last.
    fn new(settings: DirectedYield, spinner: CpuRef, guest: &mut Kernel, now_ns: u64) -> Self {
        guest[spinner.cpu].spinning.in_search = true;
        let vcpus = guest.cpus().len() as u32;
        Self {
            settings,
            spinner,
            next: CpuId((guest.last_boosted_mut().0 + 1) % vcpus),
            to_go: vcpus,
            tries_left: DirectedYield::TRIES,
            step: Step::Scan,
            since_ns: now_ns,
        }
    }
}

impl PauseLoops {
    /// None searches yet.
    pub fn new(pcpus: usize) -> Self {
        Self { metrics: PauseLoopMetrics::default(), searches: vec![None; pcpus] }
    }

    /// What comes next on a processor that searches: between two candidates it takes interrupts.
    pub(super) fn due(&self, kernels: &Kernels, pcpu: CpuId, now_ns: u64) -> ProcessorDue {
        match self.searches[pcpu.index()] {
            Some(Search { step: Step::Scan, .. }) => {
                interrupt_in_search(kernels, pcpu, now_ns).unwrap_or(ProcessorDue::Search)
            }
            _ => ProcessorDue::Search,
        }
    }

    /// Accounts in the guest for the time up to that instant in which one of its CPUs was out of it.
    pub(super) fn account(&mut self, kernels: &mut Kernels, pcpu: CpuId, until_ns: u64) {
        let Some(search) = &mut self.searches[pcpu.index()] else { return };
        let spent_ns = until_ns.saturating_sub(search.since_ns);
        search.since_ns = search.since_ns.max(until_ns);
        kernels[search.spinner].used.searched_ns += spent_ns;
    }

    #[cfg(test)]
    pub(super) fn is_searching(&self, pcpu: CpuId) -> bool {
        self.searches[pcpu.index()].is_some()
    }

    fn set(&mut self, processors: &mut Processors, pcpu: CpuId, search: Option<Search>) {
        processors[pcpu].searches = search.is_some();
        self.searches[pcpu.index()] = search;
    }

    /// Scans candidates up to the next one that is worth the locks, and asks for these; whether there is one.
    /// If not, the search ends.
    fn scan_candidates(
        &mut self,
        kernels: &mut Kernels,
        processors: &mut Processors,
        pcpu: CpuId,
        mut search: Search,
        now_ns: u64,
    ) -> bool {
        let host = CpuRef::host(pcpu);
        let scan_ns = kernels.host().context_switch().map_or(0, |cost| cost.peer_scan_ns);
        let vcpus = kernels[search.spinner.kernel].cpus().len() as u32;
        let mut scanned_ns = 0;
        while search.to_go > 0 && search.tries_left > 0 {
            let candidate = search.next;
            search.next = CpuId((candidate.0 + 1) % vcpus);
            search.to_go -= 1;
            if candidate == search.spinner.cpu {
                continue;
            }
            scanned_ns += scan_ns;
            let Some(target) = self.candidate(kernels, &search, candidate) else { continue };
            scanned_ns += processors.hardware.uncontended_lock_ns()
                + reference_ns(
                    kernels,
                    processors,
                    pcpu,
                    CpuRef { kernel: search.spinner.kernel, cpu: candidate },
                    target.queue,
                );
            if self.is_worth_locks(kernels, processors, pcpu, &mut search, target, now_ns) {
                processors.charge(kernels, host, scanned_ns);
                let is_here = target.queue == pcpu;
                search.step = if is_here { Step::Test(target) } else { Step::Second(target) };
                self.set(processors, pcpu, Some(search));
                if processors.lock_queue_openly(kernels, pcpu, pcpu.min(target.queue), 0) && !is_here {
                    self.take_second_lock(kernels, processors, pcpu, search, target);
                }
                return true;
            }
        }
        processors.charge(kernels, host, scanned_ns);
        self.account(kernels, pcpu, processors[pcpu].settled_ns);
        self.set(processors, pcpu, None);
        let spinning = &mut kernels[search.spinner].spinning;
        spinning.in_search = false;
        spinning.is_eligible = false;
        spinning.referenced_by = None;
        back_to_guest(kernels, processors, pcpu);
        false
    }

    /// The candidate as a target, unless it is passed over before KVM asks for its task
    /// (`kvm_vcpu_on_spin()`).
    fn candidate(&mut self, kernels: &mut Kernels, search: &Search, candidate: CpuId) -> Option<Target> {
        let settings = search.settings;
        let vcpu = CpuRef { kernel: search.spinner.kernel, cpu: candidate };
        let task = kernels.vcpu_task(vcpu);
        let state = kernels.host()[task].state();
        if !matches!(state, TaskState::Running | TaskState::Runnable) {
            return None;
        }
        self.metrics.candidates += 1;
        let guest = &kernels[vcpu.kernel];
        let seen = Seen {
            is_running: state == TaskState::Running,
            is_in_kernel: settings.kernel_mode == KernelMode::Any || is_in_kernel(guest, candidate),
            has_interrupt: settings.kernel_mode == KernelMode::RequiredOrInterrupt
                && has_interrupt(guest, candidate),
        };
        if !is_candidate(settings, seen, &mut kernels[vcpu].spinning) {
            return None;
        }
        let queue = kernels.host().policy().queue_of(task)?;
        Some(Target { candidate, task, queue })
    }

    /// Whether the locks of both queues are taken for the target (`kvm_vcpu_yield_to()` and `yield_to()`).
    fn is_worth_locks(
        &mut self,
        kernels: &Kernels,
        processors: &Processors,
        pcpu: CpuId,
        search: &mut Search,
        Target { task, queue, .. }: Target,
        now_ns: u64,
    ) -> bool {
        let settings = search.settings;
        let is_running = kernels.host()[task].state() == TaskState::Running;
        let is_in_host_mode = || is_in_host_mode(kernels, &processors[queue], queue, now_ns);
        if settings.running_check == RunningCheck::GuestMode && is_running && !is_in_host_mode() {
            return false;
        }
        if settings.running_check == RunningCheck::BeforeLocks && is_running {
            self.metrics.failed_running += 1;
            return false;
        }
        let policy = kernels.host().policy();
        if settings.undercommit_check && policy.queue_length(pcpu) == 1 && policy.queue_length(queue) == 1 {
            search.tries_left -= 1;
            return false;
        }
        let is_passed_over = queue != pcpu
            && (settings.skips_yielding_cpus && processors[queue].searches
                || settings.skips_host_mode_cpus && is_in_host_mode());
        !is_passed_over
    }

    /// Asks for the lock of the higher CPU. What is then read of the target comes from the other CPU's cache.
    fn take_second_lock(
        &mut self,
        kernels: &mut Kernels,
        processors: &mut Processors,
        pcpu: CpuId,
        mut search: Search,
        target: Target,
    ) {
        let work_ns = processors.hardware.line_transfer_ns(target.queue, pcpu);
        search.step = Step::Test(target);
        self.set(processors, pcpu, Some(search));
        processors.lock_queue_openly(kernels, pcpu, pcpu.max(target.queue), work_ns);
    }
}

/// A vCPU has spun for its whole window, which may grow by that.
fn grow_window(spinning: &mut Spinning, settings: PauseLoop) {
    if settings.window_growth > 1 {
        let window_cycles = spinning.window_cycles.unwrap_or(settings.window_cycles);
        let grown = window_cycles.saturating_mul(settings.window_growth).min(settings.window_max_cycles);
        spinning.window_cycles = Some(grown);
    }
}

/// The interrupt that a processor takes between two candidates, if one is due.
fn interrupt_in_search(kernels: &Kernels, pcpu: CpuId, now_ns: u64) -> Option<ProcessorDue> {
    let due = kernels.host()[pcpu].due(now_ns);
    let interrupt = due.filter(|due| matches!(due, Due::Timer | Due::Tick | Due::TurnEnd))?;
    Some(ProcessorDue::Kernel(CpuRef::host(pcpu), interrupt))
}

/// What the search sees of a vCPU that does not sleep.
#[derive(Clone, Copy, Debug)]
struct Seen {
    is_running: bool,
    /// For one that was preempted: it was in its guest's kernel.
    is_in_kernel: bool,
    /// An interrupt from another vCPU waits for it.
    has_interrupt: bool,
}

/// Whether `kvm_vcpu_on_spin()` yields to the vCPU. Only one that passes all other tests is tested for its
/// turn, which that test changes (`kvm_vcpu_eligible_for_directed_yield()`).
fn is_candidate(settings: DirectedYield, seen: Seen, spinning: &mut Spinning) -> bool {
    let may_be = match settings.running_check {
        RunningCheck::Preempted => spinning.is_preempted,
        RunningCheck::Ready => !seen.is_running,
        RunningCheck::UnderLocks | RunningCheck::GuestMode | RunningCheck::BeforeLocks => true,
    };
    let is_in_right_mode = match settings.kernel_mode {
        KernelMode::Any => true,
        KernelMode::Required => seen.is_in_kernel,
        KernelMode::RequiredOrInterrupt => !spinning.is_preempted || seen.has_interrupt || seen.is_in_kernel,
    };
    if !may_be || !is_in_right_mode {
        return false;
    }
    if settings.alternates_spinners && spinning.in_search {
        spinning.is_eligible = !spinning.is_eligible;
        return !spinning.is_eligible;
    }
    true
}

/// The time in which the counter of references to a vCPU's task gets to the pCPU, ns: from the pCPU that has
/// changed it last or, if none has since the task ran, from the one in whose queue the task is.
fn reference_ns(
    kernels: &mut Kernels,
    processors: &Processors,
    pcpu: CpuId,
    vcpu: CpuRef,
    queue: CpuId,
) -> u64 {
    let from = kernels[vcpu].spinning.referenced_by.replace(pcpu).unwrap_or(queue);
    if from == pcpu { 0 } else { processors.hardware.line_transfer_ns(from, pcpu) }
}

/// Whether a CPU of the guest, which has no pCPU, was in its kernel when it lost that: it idles, holds or
/// wants a spin lock, or waits for answers. The kernel's own code is not interrupted.
fn is_in_kernel(guest: &Kernel, cpu: CpuId) -> bool {
    guest[cpu].current.is_none_or(|task| guest[task].spin.forbids_preemption())
}

/// Whether an interrupt from another CPU of the guest waits for the CPU, which has no pCPU.
fn has_interrupt(guest: &Kernel, cpu: CpuId) -> bool {
    let is_sent = |&Reverse((_, what)): &Reverse<(u64, TimerTarget)>| matches!(what, TimerTarget::Flush(_));
    guest[cpu].resched_ns != NEVER || guest[cpu].timers.iter().any(is_sent)
}

/// Whether the processor executes code of the host.
fn is_in_host_mode(kernels: &Kernels, processor: &Processor, pcpu: CpuId, now_ns: u64) -> bool {
    let by_guest_ns = processor.ahead_by_guest.map_or(0, |(_, ns)| ns);
    kernels.host()[pcpu].current.is_none()
        || processor.searches
        || processor.polls
        || processor.waits_for_lock
        || processor.settled_ns > now_ns + by_guest_ns
}

/// What is now on the processor goes on, if it had stopped for the host.
fn back_to_guest(kernels: &Kernels, processors: &mut Processors, pcpu: CpuId) {
    if processors[pcpu].burst_end_ns == NEVER {
        processors.rerate(kernels, pcpu);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOLS: [bool; 2] = [false, true];

    fn all(mut check: impl FnMut(Seen, Spinning)) {
        for is_running in BOOLS {
            for is_in_kernel in BOOLS {
                for has_interrupt in BOOLS {
                    for is_preempted in if is_running { vec![false] } else { BOOLS.to_vec() } {
                        let seen = Seen { is_running, is_in_kernel, has_interrupt };
                        check(seen, Spinning { is_preempted, ..Default::default() });
                    }
                }
            }
        }
    }

    #[test]
    fn kvm_vcpu_on_spin_considers_by_release_who_runs_and_who_was_preempted() {
        all(|seen, spinning| {
            let is = |settings| is_candidate(settings, seen, &mut spinning.clone());
            assert!(is(DirectedYield::V3_6), "all that do not sleep: {seen:?}");
            assert_eq!(is(DirectedYield::V4_2), spinning.is_preempted, "{seen:?}");
            assert_eq!(is(DirectedYield::V5_2), spinning.is_preempted && seen.is_in_kernel, "{seen:?}");
            let in_kernel = seen.is_in_kernel || seen.has_interrupt || !spinning.is_preempted;
            assert_eq!(is(DirectedYield::V6_12), !seen.is_running && in_kernel, "{seen:?}");
        });
    }

    #[test]
    fn kvm_vcpu_eligible_for_directed_yield_is_the_last_test_and_alternates() {
        for settings in [DirectedYield::V4_2, DirectedYield::V5_2, DirectedYield::V6_12] {
            all(|seen, spinning| {
                let would_be = is_candidate(settings, seen, &mut spinning.clone());
                let mut spinner = Spinning { in_search: true, ..spinning };
                let turns = [(); 4].map(|()| is_candidate(settings, seen, &mut spinner));
                let expected = if would_be { [false, true, false, true] } else { [false; 4] };
                assert_eq!(turns, expected, "{seen:?}");
                assert!(!spinner.is_eligible, "what fails another test does not change whose turn it is");
            });
        }
    }
}
