//! Pause-loop exits, and the search for a vCPU to yield to.
//!
//! Problem: a vCPU that spins for a lock leaves its guest after a while, and the host looks for another vCPU
//! of the VM that may hold the lock. What that costs is the point: the search takes locks that all CPUs need.
//!
//! Approach, as in `kvm_vcpu_on_spin()` and `yield_to()`: the search goes from candidate to candidate. A
//! candidate that is not passed over costs the locks of two run queues, the lower CPU's first; only with both
//! in hand is it tested for good whether it runs, and if not, the policy is asked to run it. Between two
//! candidates the CPU takes its ticks. Where a search waits for a lock, its processor stands still
//! ([`super::run_queue_locks`]). Xen has no such search: the vCPU gives way to any other.
//!
//! Limits: candidates that are passed over are all looked at in the state of one instant, although looking
//! takes time.

use super::{CpuRef, Due, ProcessorDue, System, TaskState};
use crate::engine::event_queue::NEVER;
use crate::policy::Policy;
use crate::policy::pause_loop::{DirectedYield, RunningCheck};
use crate::trace::Observer;
use tandem_machine::ids::{CpuId, TaskId};

/// A search for a vCPU to yield to, while it goes on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Search {
    settings: DirectedYield,
    /// The guest CPU that spins.
    spinner: CpuRef,
    /// The candidate that is looked at next, and how many there are to go.
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
    /// Holds no lock.
    Look,
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
    /// In whose queue it stood when the locks were asked for.
    queue: CpuId,
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
        self.pause_loop_use.exits += 1;
        let guest = &mut self.kernels[spinner.kernel];
        let last_boosted = *guest.last_boosted();
        let vcpus = guest.cpus().len() as u32;
        let spinning = &mut guest[spinner.cpu].spinning;
        if settings.window_growth > 1 {
            let window_cycles = spinning.window_cycles.unwrap_or(settings.window_cycles);
            let grown = window_cycles.saturating_mul(settings.window_growth).min(settings.window_max_cycles);
            spinning.window_cycles = Some(grown);
        }
        let Some(directed) = settings.directed_yield else {
            self.yield_cpu(CpuRef::host(pcpu), now_ns);
            return self.back_to_guest(pcpu);
        };
        spinning.in_search = true;
        self.processors.charge_exit(&mut self.kernels, pcpu);
        let search = Search {
            settings: directed,
            spinner,
            next: CpuId((last_boosted.0 + 1) % vcpus),
            to_go: vcpus,
            tries_left: DirectedYield::TRIES,
            step: Step::Look,
            since_ns: now_ns,
        };
        self.set_search(pcpu, Some(search));
    }

    /// What comes next on a processor that searches: between two candidates it takes interrupts.
    pub(super) fn due_in_search(&self, pcpu: CpuId, now_ns: u64) -> ProcessorDue {
        let interrupt = self.interrupt_in_search(pcpu, now_ns);
        match self.midway[pcpu.index()].search {
            Some(Search { step: Step::Look, .. }) => interrupt.unwrap_or(ProcessorDue::Search),
            _ => ProcessorDue::Search,
        }
    }

    fn interrupt_in_search(&self, pcpu: CpuId, now_ns: u64) -> Option<ProcessorDue> {
        let due = self.kernels.host()[pcpu].due(now_ns);
        let interrupt = due.filter(|due| matches!(due, Due::Timer | Due::Tick))?;
        Some(ProcessorDue::Kernel(CpuRef::host(pcpu), interrupt))
    }

    /// The search at the processor goes on.
    pub fn continue_search(&mut self, pcpu: CpuId, now_ns: u64) {
        let Some(search) = self.midway[pcpu.index()].search else { return };
        match search.step {
            Step::Look => self.look(pcpu, search, now_ns),
            Step::Second(target) => self.take_second_lock(pcpu, search, target),
            Step::Test(target) => self.test(pcpu, search, target, now_ns),
        }
    }

    /// Looks at candidates up to the next one that is worth the locks.
    fn look(&mut self, pcpu: CpuId, mut search: Search, now_ns: u64) {
        let host = CpuRef::host(pcpu);
        let look_ns = self.kernels.host().context_switch().map_or(0, |cost| cost.peer_scan_ns);
        let vcpus = self.kernels[search.spinner.kernel].cpus().len() as u32;
        let mut looked_ns = 0;
        while search.to_go > 0 && search.tries_left > 0 {
            let candidate = search.next;
            search.next = CpuId((candidate.0 + 1) % vcpus);
            search.to_go -= 1;
            if candidate == search.spinner.cpu {
                continue;
            }
            looked_ns += look_ns;
            if let Some(target) = self.target(pcpu, &mut search, candidate, now_ns) {
                self.processors.charge(&mut self.kernels, host, looked_ns);
                self.events += 1;
                let is_here = target.queue == pcpu;
                search.step = if is_here { Step::Test(target) } else { Step::Second(target) };
                self.set_search(pcpu, Some(search));
                if self.processors.lock_queue_openly(&mut self.kernels, pcpu, pcpu.min(target.queue), 0)
                    && !is_here
                {
                    self.take_second_lock(pcpu, search, target);
                }
                return;
            }
        }
        self.processors.charge(&mut self.kernels, host, looked_ns);
        self.end_search(pcpu, search);
        self.back_to_guest(pcpu);
    }

    /// The candidate as a target, unless it is passed over.
    fn target(&mut self, pcpu: CpuId, search: &mut Search, candidate: CpuId, now_ns: u64) -> Option<Target> {
        let settings = search.settings;
        let task = self.kernels.vcpu_task(CpuRef { kernel: search.spinner.kernel, cpu: candidate });
        let host = self.kernels.host();
        let state = host[task].state();
        if !matches!(state, TaskState::Running | TaskState::Runnable) {
            return None;
        }
        self.pause_loop_use.candidates += 1;
        let spinning = &mut self.kernels[search.spinner.kernel][candidate].spinning;
        if settings.alternates_spinners && spinning.in_search {
            spinning.is_eligible = !spinning.is_eligible;
            if spinning.is_eligible {
                return None;
            }
        }
        if settings.running_check == RunningCheck::BeforeLocks && state == TaskState::Running {
            self.pause_loop_use.failed_running += 1;
            return None;
        }
        let policy = self.kernels.host().policy();
        let queue = policy.queue_of(task)?;
        if settings.undercommit_check && policy.queue_length(pcpu) == 1 && policy.queue_length(queue) == 1 {
            search.tries_left -= 1;
            return None;
        }
        let passed_over = queue != pcpu
            && (settings.skips_yielding_cpus && self.processors[queue].searches
                || settings.skips_host_mode_cpus && self.is_in_host_mode(queue, now_ns));
        (!passed_over).then_some(Target { candidate, task, queue })
    }

    fn set_search(&mut self, pcpu: CpuId, search: Option<Search>) {
        self.processors[pcpu].searches = search.is_some();
        self.midway[pcpu.index()].search = search;
    }

    /// Whether the processor executes code of the host.
    fn is_in_host_mode(&self, pcpu: CpuId, now_ns: u64) -> bool {
        let processor = &self.processors[pcpu];
        let by_guest_ns = processor.ahead_by_guest.map_or(0, |(_, ns)| ns);
        self.kernels.host()[pcpu].current.is_none()
            || processor.searches
            || self.processors.waits_for_lock(pcpu)
            || processor.settled_ns > now_ns + by_guest_ns
    }

    /// Asks for the lock of the higher CPU. What is then looked at of the target comes from the other CPU's
    /// cache.
    fn take_second_lock(&mut self, pcpu: CpuId, mut search: Search, target: Target) {
        let work_ns = self.processors.line_transfer_ns(target.queue, pcpu);
        search.step = Step::Test(target);
        self.set_search(pcpu, Some(search));
        self.processors.lock_queue_openly(&mut self.kernels, pcpu, pcpu.max(target.queue), work_ns);
    }

    /// Yields to the target if it still waits, and lets go of the locks.
    fn test(&mut self, pcpu: CpuId, mut search: Search, target: Target, now_ns: u64) {
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
            self.pause_loop_use.failed_running += 1;
            self.pause_loop_use.failed_under_locks += 1;
        }
        let mut released_ns = now_ns;
        if has_yielded {
            let work_ns = self.kernels.host().work_under_lock_ns();
            self.processors.charge(&mut self.kernels, host, work_ns);
            released_ns += work_ns;
        }
        self.unlock_queue(pcpu, pcpu, released_ns);
        if target.queue != pcpu {
            self.unlock_queue(pcpu, target.queue, released_ns);
        }
        if has_moved {
            // As `yield_to()`, it tries again with the locks of the queue where the target is now.
            search.next = target.candidate;
            search.to_go += 1;
        }
        if !has_yielded {
            search.step = Step::Look;
            self.set_search(pcpu, Some(search));
            if self.interrupt_in_search(pcpu, now_ns).is_none() {
                self.look(pcpu, search, now_ns);
            }
            return;
        }
        self.account_search(pcpu, now_ns);
        self.pause_loop_use.yields += 1;
        *self.kernels[search.spinner.kernel].last_boosted() = target.candidate;
        // It stays in its search, as others see it, until it gets a pCPU again.
        self.set_search(pcpu, None);
        self.deliver_kicks(host, now_ns);
        self.yield_directed(host, now_ns);
        self.back_to_guest(pcpu);
    }

    /// Accounts in the guest for the time up to that instant in which one of its CPUs was out of it.
    pub(super) fn account_search(&mut self, pcpu: CpuId, until_ns: u64) {
        let Some(search) = &mut self.midway[pcpu.index()].search else { return };
        let spent_ns = until_ns.saturating_sub(search.since_ns);
        search.since_ns = search.since_ns.max(until_ns);
        let spinner = search.spinner;
        self.kernels[spinner].used.searched_ns += spent_ns;
    }

    fn end_search(&mut self, pcpu: CpuId, search: Search) {
        self.account_search(pcpu, self.processors[pcpu].settled_ns);
        self.set_search(pcpu, None);
        let spinning = &mut self.kernels[search.spinner].spinning;
        spinning.in_search = false;
        spinning.is_eligible = false;
    }

    /// What is now on the processor goes on, if it had stopped for the host.
    fn back_to_guest(&mut self, pcpu: CpuId) {
        if self.processors[pcpu].burst_end_ns == NEVER {
            self.processors.rerate(&self.kernels, pcpu);
        }
    }
}
