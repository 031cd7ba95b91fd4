//! Chooses a CPU for a vCPU that is new, must move, or might run better elsewhere.

use super::{Context, Credit, Era, Step};
use tandem_machine::cpumask::CpuMask;
use tandem_machine::ids::{CpuId, TaskId};

impl Credit {
    /// The best CPU for the vCPU: its own if none is better; one that it prefers, unless none of these idles
    /// but another one that it may use does. `commit`: the caller will move it there.
    pub(super) fn pick_cpu(&mut self, ctx: &Context<'_>, task: TaskId, commit: bool) -> CpuId {
        let [mut candidates, mut idlers, mut near] = std::mem::take(&mut self.scratch);
        let own = self.vcpus[task.index()].cpu;
        let mut picked = own;
        for step in [Step::Soft, Step::Hard] {
            let Some(mask) = self.mask(ctx, task, step) else {
                continue;
            };
            picked = if mask.contains(own) { own } else { mask.next_after(own).unwrap_or(own) };
            idlers.assign_and(&self.idlers, ctx.machine.all_cpus());
            if self.settings.era < Era::Xen4_3 {
                idlers.insert(picked);
            } else if own == picked && self.queues.is_empty(own) && self.has_to_itself(own, task) {
                idlers.insert(own);
            }
            candidates.assign_and(mask, &idlers);
            picked = self.most_idle(ctx, picked, &mut candidates, &idlers, &mut near, commit);
            if idlers.contains(picked) {
                break;
            }
        }
        self.scratch = [candidates, idlers, near];
        picked
    }

    /// Whether no other vCPU uses the CPU.
    fn has_to_itself(&self, cpu: CpuId, task: TaskId) -> bool {
        self.pcpus[cpu.index()].current.is_none_or(|current| current == task)
    }

    /// Goes from one idle candidate to the next whenever that has more idle neighbours: within a socket,
    /// threads of its core; across sockets, cores of its socket, at least more than twice as many.
    fn most_idle(
        &mut self,
        ctx: &Context<'_>,
        start: CpuId,
        candidates: &mut CpuMask,
        idlers: &CpuMask,
        near: &mut CpuMask,
        commit: bool,
    ) -> CpuId {
        let machine = ctx.machine;
        let mut best = start;
        if !candidates.contains(best) {
            best = candidates.next_after(best).unwrap_or(best);
        }
        candidates.remove(best);
        while let Some(next) = candidates.next_after(best) {
            let same_socket = machine.cpu(best).package == machine.cpu(next).package;
            let neighbours = |cpu: CpuId| {
                if same_socket {
                    machine.siblings(cpu)
                } else {
                    machine.package_cpus(machine.cpu(cpu).package)
                }
            };
            let factor = if same_socket { 1 } else { 2 };
            let idle_here = idlers.count_and(neighbours(best));
            let idle_there = idlers.count_and(neighbours(next));
            near.assign_and(idlers, neighbours(next));
            if idle_here * factor < idle_there {
                near.retain(candidates);
                let bias = self.pcpus[next.index()].idle_bias;
                best = near.next_after(bias).unwrap_or(next);
                if commit {
                    self.pcpus[next.index()].idle_bias = best;
                }
                candidates.remove_all(machine.siblings(best));
            } else {
                candidates.remove_all(near);
            }
            // The candidate itself is done, even if the masks do not contain it.
            candidates.remove(next);
        }
        best
    }
}
