//! CPUs of the host that its scheduler does not have: tasks of higher classes take them, or they are offline.

use super::cpu::Cpu;
use super::{CpuRef, Kernel, System};
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

impl Cpu {
    /// A task of a higher class takes the CPU for that long, unless it is offline; after such a task, if one
    /// has it.
    pub fn intrude(&mut self, length_ns: u64, now_ns: u64) {
        let free_ns = match self.presence {
            Presence::Offline => return,
            Presence::Present => now_ns,
            Presence::Taken { until_ns } => until_ns,
        };
        self.presence = Presence::Taken { until_ns: free_ns.saturating_add(length_ns) };
        if self.is_away {
            self.slice_end_ns = self.returns_ns();
        } else {
            self.resched_ns = now_ns;
        }
    }

    /// Whether it idles if it has no task: its scheduler has it, and nobody has told it to reschedule.
    pub fn may_idle(&self) -> bool {
        self.presence == Presence::Present && self.resched_ns == NEVER
    }

    /// When its scheduler has it back, ns.
    pub fn returns_ns(&self) -> u64 {
        match self.presence {
            Presence::Taken { until_ns } => until_ns,
            Presence::Present | Presence::Offline => NEVER,
        }
    }

    /// A decision is due on the CPU, whose time is settled. Returns whether the CPU must make it.
    pub(super) fn is_to_decide(&mut self, now_ns: u64) -> bool {
        match self.presence {
            Presence::Taken { until_ns } if self.is_away && until_ns <= now_ns => {
                (self.presence, self.is_away) = (Presence::Present, false);
                true
            }
            // Without having left its scheduler yet, it decides for the higher class.
            _ if !self.is_away => true,
            _ => {
                self.resched_ns = NEVER;
                self.slice_end_ns = self.returns_ns();
                false
            }
        }
    }
}

/// Takes a CPU from the scheduler of the host's kernel at a decision, if a higher class wants it or it goes
/// offline; whether that is so. `before` ran there.
pub(super) fn take(
    host: &mut Kernel,
    cpu: CpuId,
    before: Option<TaskId>,
    can_go_on: bool,
    now_ns: u64,
) -> bool {
    let by = match host[cpu].presence {
        Presence::Present => return false,
        Presence::Taken { .. } => Taker::RealTime,
        Presence::Offline => Taker::Hotplug,
    };
    host[cpu].is_away = true;
    host.ask(now_ns, |policy, ctx| {
        if let Some(scx) = policy.sched_ext() {
            scx.taken(ctx, cpu, before, can_go_on, by);
        }
    });
    true
}

/// A CPU of the host goes offline. Tasks that may run nowhere else may run everywhere from then on.
pub(crate) fn go_offline<O: Observer>(system: &mut System<O>, cpu: CpuId, now_ns: u64) {
    let host = system.kernels.host_mut();
    let goes_on =
        host.ask(now_ns, |policy, ctx| policy.sched_ext().is_none_or(|scx| scx.goes_offline(ctx, cpu)));
    system.online.remove(cpu);
    let first = system.first_online();
    let host = system.kernels.host_mut();
    let state = &mut host[cpu];
    state.presence = Presence::Offline;
    state.resched_ns = now_ns;
    let timers = std::mem::take(&mut state.timers);
    host[first].timers.extend(timers);
    for task in (0..host.tasks().all().len()).map(TaskId::from) {
        let facts = &system.kernels.host().tasks().facts()[task.index()];
        if !facts.hard_affinity.intersects(&system.online) {
            let everywhere = system.processors.hardware.machine().all_cpus().clone().into();
            system.change_affinity(task, everywhere, None, now_ns);
        }
    }
    end_hotplug(system, goes_on, now_ns);
    system.processors.refresh(&system.kernels, first);
    system.processors.refresh(&system.kernels, cpu);
}

/// A CPU of the host comes back.
pub(crate) fn come_online<O: Observer>(system: &mut System<O>, cpu: CpuId, now_ns: u64) {
    system.processors.settle(&mut system.kernels, cpu, now_ns);
    system.online.insert(cpu);
    let host = system.kernels.host_mut();
    let state = &mut host[cpu];
    (state.presence, state.is_away, state.resched_ns) = (Presence::Present, false, now_ns);
    let goes_on =
        host.ask(now_ns, |policy, ctx| policy.sched_ext().is_none_or(|scx| scx.comes_online(ctx, cpu)));
    end_hotplug(system, goes_on, now_ns);
    system.processors.refresh(&system.kernels, cpu);
}

/// The kernel unloads a scheduler that has no callbacks for hotplug, and user space loads it again.
fn end_hotplug<O: Observer>(system: &mut System<O>, goes_on: bool, now_ns: u64) {
    match goes_on {
        true => system.deliver_kicks(CpuRef::host(system.first_online()), now_ns),
        false => reload(system, Ending::Hotplug, now_ns),
    }
}

/// The host's scheduler is unloaded and loaded again.
pub(crate) fn reload<O: Observer>(system: &mut System<O>, ending: Ending, now_ns: u64) {
    system.kernels.host_mut().reload_scheduler(ending, now_ns);
    system.deliver_kicks(CpuRef::host(system.first_online()), now_ns);
}
