//! What happens to the host while a scenario runs, when its time has come.

use super::build::host_weight;
use super::event_queue::NEVER;
use super::simulation::Simulation;
use crate::kernel::CpuRef;
use crate::policy::Context;
use crate::policy::sched_ext::{Ending, SchedExt};
use crate::scenario::{HostAction, Scenario};
use crate::trace::Observer;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use tandem_machine::ids::{CpuId, TaskId, VmId};

/// Events to come: when, ns, and which of the scenario's. The next one comes first.
#[derive(Clone, Debug)]
pub(super) struct HostEvents(BinaryHeap<Reverse<(u64, usize)>>);

impl HostEvents {
    pub fn new(scenario: &Scenario) -> Self {
        Self(scenario.events.iter().enumerate().map(|(at, event)| Reverse((event.at_ns, at))).collect())
    }

    /// When the next one comes, ns.
    pub fn next_ns(&self) -> u64 {
        self.0.peek().map_or(NEVER, |Reverse((at_ns, _))| *at_ns)
    }
}

impl<O: Observer> Simulation<'_, O> {
    /// Lets the events of this time happen.
    pub fn happen(&mut self, now_ns: u64) {
        let scenario = self.scenario;
        while self.host_events.next_ns() <= now_ns
            && let Some(Reverse((at_ns, which))) = self.host_events.0.pop()
        {
            let event = &scenario.events[which];
            if let Some(every_ns) = event.every_ns {
                self.host_events.0.push(Reverse((at_ns.saturating_add(every_ns), which)));
            }
            self.act(&event.action, now_ns);
        }
    }

    fn act(&mut self, action: &HostAction, now_ns: u64) {
        match action {
            HostAction::SetWeight { cgroup, weight } => {
                self.tell(now_ns, |scx, ctx| scx.group_weight_changed(ctx, *cgroup, *weight));
            }
            HostAction::SetLimit { cgroup, limit } => {
                self.tell(now_ns, |scx, ctx| scx.group_limit_changed(ctx, *cgroup, *limit));
            }
            HostAction::SetNice { vms, nice } => vms.iter().for_each(|&vm| self.set_nice(vm, *nice, now_ns)),
            HostAction::SetAffinity { vms, cpus } => {
                for &vm in vms {
                    for task in self.tasks_of(vm).map(TaskId::from) {
                        self.system.change_affinity(task, Arc::clone(cpus), None, now_ns);
                    }
                    self.keep_home(vm, now_ns);
                }
            }
            HostAction::Offline(cpus) => cpus.iter().for_each(|cpu| self.system.go_offline(cpu, now_ns)),
            HostAction::Online(cpus) => cpus.iter().for_each(|cpu| self.system.come_online(cpu, now_ns)),
            HostAction::Intrude { cpus, length_ns } => {
                cpus.iter().for_each(|cpu: CpuId| self.system.intrude(cpu, *length_ns, now_ns));
            }
            HostAction::Reload => self.system.reload(Ending::Unloaded, now_ns),
        }
    }

    fn set_nice(&mut self, vm: VmId, nice: i8, now_ns: u64) {
        let weight = host_weight(self.scenario.workloads[vm.index()].weight, nice);
        for task in self.tasks_of(vm) {
            let facts = self.system.kernels.host_mut().tasks_mut().facts_mut(task.into());
            (facts.weight, facts.nice) = (weight, nice);
            self.tell(now_ns, |scx, ctx| scx.weight_changed(ctx, task.into()));
        }
    }

    /// Tells the host's scheduler something; only compiled ones are told.
    fn tell(&mut self, now_ns: u64, what: impl FnOnce(&mut SchedExt, &mut Context<'_>)) {
        self.system
            .kernels
            .host_mut()
            .ask(now_ns, |policy, ctx| policy.sched_ext().map(|scx| what(scx, ctx)));
        let by = CpuRef::host(self.system.first_online());
        self.system.deliver_kicks(by, now_ns);
    }
}
