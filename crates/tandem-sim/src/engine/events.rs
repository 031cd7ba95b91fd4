//! What happens to the host while a scenario runs, when its time has come.

use super::build::host_weight;
use super::simulation::Simulation;
use crate::kernel::CpuRef;
use crate::kernel::presence::{come_online, go_offline, reload};
use crate::policy::sched_ext::Ending;
use crate::policy::{AnyPolicy, Context};
use crate::scenario::HostAction;
use crate::trace::Observer;
use tandem_machine::ids::VmId;

impl<O: Observer> Simulation<'_, O> {
    /// Lets the events of this time happen.
    pub(super) fn happen(&mut self, now_ns: u64) {
        let scenario = self.scenario;
        while let Some((at_ns, which)) = self.host_events.pop_due(now_ns) {
            let event = &scenario.events[which];
            if let Some(every_ns) = event.every_ns {
                self.host_events.add(at_ns.saturating_add(every_ns), which);
            }
            self.act(&event.action, now_ns);
        }
    }

    fn act(&mut self, action: &HostAction, now_ns: u64) {
        match action {
            HostAction::SetWeight { cgroup, weight } => {
                self.notify(now_ns, |policy, ctx| policy.group_weight_changed(ctx, *cgroup, *weight));
            }
            HostAction::SetLimit { cgroup, limit } => {
                self.notify(now_ns, |policy, ctx| policy.group_limit_changed(ctx, *cgroup, *limit));
            }
            HostAction::SetNice { vms, nice } => vms.iter().for_each(|&vm| self.set_nice(vm, *nice, now_ns)),
            HostAction::SetAffinity { vms, tasks, cpus } => {
                vms.iter().for_each(|&vm| self.set_affinity(vm, tasks, cpus, None, now_ns));
            }
            HostAction::Offline(cpus) => {
                cpus.iter().for_each(|cpu| go_offline(&mut self.system, cpu, now_ns))
            }
            HostAction::Online(cpus) => {
                cpus.iter().for_each(|cpu| come_online(&mut self.system, cpu, now_ns))
            }
            HostAction::Intrude { cpus, length_ns } => {
                for cpu in cpus.iter() {
                    self.system.kernels.host_mut()[cpu].intrude(*length_ns, now_ns);
                    self.system.processors.refresh(&self.system.kernels, cpu);
                }
            }
            HostAction::Reload => reload(&mut self.system, Ending::Unloaded, now_ns),
        }
    }

    fn set_nice(&mut self, vm: VmId, nice: i8, now_ns: u64) {
        let weight = self.scenario.workloads[vm.index()].weight;
        for task in self.vms[vm.index()].tasks() {
            let facts = self.system.kernels.host_mut().tasks_mut().facts_mut(task.into());
            (facts.weight, facts.nice) = (host_weight(weight, facts.policy.weight(nice)), nice);
            self.notify(now_ns, |policy, ctx| policy.weight_changed(ctx, task.into()));
        }
    }

    /// Notifies the host's scheduler.
    fn notify(&mut self, now_ns: u64, what: impl FnOnce(&mut AnyPolicy, &mut Context<'_>)) {
        self.system.kernels.host_mut().ask(now_ns, what);
        let by = CpuRef::host(self.system.first_online());
        self.system.deliver_kicks(by, now_ns);
    }
}
