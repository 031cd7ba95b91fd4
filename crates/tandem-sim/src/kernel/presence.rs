//! CPUs of the host that its scheduler does not have: tasks of higher classes take them, or they are offline.

use super::{CpuRef, System};
use crate::engine::event_queue::NEVER;
use crate::policy::sched_ext::{Ending, Taker};
use crate::trace::Observer;
use tandem_machine::ids::{CpuId, TaskId};

/// Whether a CPU is its scheduler's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Presence {
    /// It is.
    #[default]
    Present,
    /// A task of a higher class has it, or gets it at the next decision.
    Taken {
        /// For how long, ns.
        until_ns: u64,
    },
    /// It runs nothing.
    Offline,
}

impl<O: Observer> System<O> {
    /// A task of a higher class takes a CPU of the host for that long.
    pub fn intrude(&mut self, cpu: CpuId, length_ns: u64, now_ns: u64) {
        let until_ns = now_ns.saturating_add(length_ns);
        let state = &mut self.kernels.host_mut()[cpu];
        state.presence = match state.presence {
            Presence::Offline => return,
            Presence::Present => Presence::Taken { until_ns },
            // One after the other, at the same priority.
            Presence::Taken { until_ns } => Presence::Taken { until_ns: until_ns.saturating_add(length_ns) },
        };
        if state.is_away {
            state.slice_end_ns = state.returns_ns();
        } else {
            state.resched_ns = now_ns;
        }
        self.processors.refresh(&self.kernels, cpu);
    }

    /// A CPU of the host goes offline. Tasks that may run nowhere else may run everywhere from then on.
    pub fn go_offline(&mut self, cpu: CpuId, now_ns: u64) {
        let host = self.kernels.host_mut();
        let goes_on =
            host.ask(now_ns, |policy, ctx| policy.sched_ext().is_none_or(|scx| scx.goes_offline(ctx, cpu)));
        self.online.remove(cpu);
        let first = self.first_online();
        let state = &mut self.kernels.host_mut()[cpu];
        state.presence = Presence::Offline;
        state.resched_ns = now_ns;
        let timers = std::mem::take(&mut state.timers);
        self.kernels.host_mut()[first].timers.extend(timers);
        for task in (0..self.kernels.host().tasks().all().len()).map(TaskId::from) {
            let facts = &self.kernels.host().tasks().facts()[task.index()];
            if !facts.hard_affinity.intersects(&self.online) {
                let everywhere = self.machine.all_cpus().clone().into();
                self.change_affinity(task, everywhere, None, now_ns);
            }
        }
        self.end_hotplug(goes_on, now_ns);
        self.processors.refresh(&self.kernels, first);
        self.processors.refresh(&self.kernels, cpu);
    }

    /// A CPU of the host comes back.
    pub fn come_online(&mut self, cpu: CpuId, now_ns: u64) {
        self.processors.settle(&mut self.kernels, cpu, now_ns);
        self.online.insert(cpu);
        let state = &mut self.kernels.host_mut()[cpu];
        (state.presence, state.is_away, state.resched_ns) = (Presence::Present, false, now_ns);
        let host = self.kernels.host_mut();
        let goes_on =
            host.ask(now_ns, |policy, ctx| policy.sched_ext().is_none_or(|scx| scx.comes_online(ctx, cpu)));
        self.end_hotplug(goes_on, now_ns);
        self.processors.refresh(&self.kernels, cpu);
    }

    /// A scheduler that is not told of CPUs is unloaded by the kernel, and loaded again by user space.
    fn end_hotplug(&mut self, goes_on: bool, now_ns: u64) {
        match goes_on {
            true => self.deliver_kicks(CpuRef::host(self.first_online()), now_ns),
            false => self.reload(Ending::Hotplug, now_ns),
        }
    }

    /// The host's scheduler is unloaded and loaded again.
    pub fn reload(&mut self, ending: Ending, now_ns: u64) {
        self.kernels.host_mut().reload_scheduler(ending, now_ns);
        self.deliver_kicks(CpuRef::host(self.first_online()), now_ns);
    }

    /// The first CPU of the host that is online.
    pub fn first_online(&self) -> CpuId {
        self.online.iter().next().unwrap_or(CpuId(0))
    }

    /// A decision is due on a CPU of the host; whether there is one to make.
    pub(super) fn is_present(&mut self, cpu: CpuId, now_ns: u64) -> bool {
        if self.kernels.host()[cpu].presence == Presence::Present {
            return true;
        }
        self.processors.settle(&mut self.kernels, cpu, now_ns);
        let state = &mut self.kernels.host_mut()[cpu];
        match state.presence {
            Presence::Taken { until_ns } if state.is_away && until_ns <= now_ns => {
                (state.presence, state.is_away) = (Presence::Present, false);
                true
            }
            // The decision is that of a higher class.
            _ if !state.is_away => true,
            _ => {
                state.resched_ns = NEVER;
                state.slice_end_ns = state.returns_ns();
                false
            }
        }
    }

    /// Takes a CPU from the scheduler at a decision, if somebody above wants it; whether that is so. `before`
    /// ran there.
    pub(super) fn take(&mut self, on: CpuRef, before: Option<TaskId>, can_go_on: bool, now_ns: u64) -> bool {
        let kernel = &mut self.kernels[on.kernel];
        let by = match kernel[on.cpu].presence {
            Presence::Present => return false,
            Presence::Taken { .. } => Taker::RealTime,
            Presence::Offline => Taker::Hotplug,
        };
        kernel[on.cpu].is_away = true;
        kernel.ask(now_ns, |policy, ctx| {
            if let Some(scx) = policy.sched_ext() {
                scx.taken(ctx, on.cpu, before, can_go_on, by);
            }
        });
        true
    }
}
