//! Wake-ups, and the CPUs that they tickle.
//!
//! Limit: of several idle CPUs, each wake-up tickles the next in a cycle; Xen keeps the cycle for the CPU
//! that does the waking, the model for the CPU in whose queue the vCPU is.

use super::run_queue::Priority;
use super::{Context, Credit, Era, Step};
use tandem_machine::ids::{CpuId, TaskId};

impl Credit {
    /// The vCPU wants to run.
    pub(super) fn wake(&mut self, ctx: &mut Context<'_>, task: TaskId, cpu: CpuId) {
        let vcpu = &mut self.vcpus[task.index()];
        vcpu.runnable = true;
        vcpu.cpu = cpu;
        if vcpu.parked {
            return; // queued when the cap allows it again
        }
        self.queue_awake(ctx, task, true);
    }

    /// A vCPU that wants to run woke up, or comes from another CPU or out of its parking place: boosts it if
    /// it has credit and `may_boost`, queues it, and tickles (`csched_vcpu_wake()`). Since Xen 4.7, one whose
    /// CPU was picked anew gets no boost the next time.
    pub(super) fn queue_awake(&mut self, ctx: &mut Context<'_>, task: TaskId, may_boost: bool) {
        let vcpu = &mut self.vcpus[task.index()];
        let moved = std::mem::take(&mut vcpu.picked) && self.settings.era >= Era::Xen4_9;
        let cpu = vcpu.cpu;
        if may_boost && !moved && vcpu.priority == Priority::Under {
            self.set_priority(task, Priority::Boost);
        }
        self.queue(cpu, task);
        self.tickle(ctx, task);
    }

    /// Tickles CPUs for a vCPU that was just queued.
    pub(super) fn tickle(&mut self, ctx: &mut Context<'_>, task: TaskId) {
        let cpu = self.vcpus[task.index()].cpu;
        let priority = self.vcpus[task.index()].priority;
        let current = self.current_priority(cpu);
        let more_urgent = Some(priority) > current;
        if self.settings.era < Era::Xen4_3 {
            self.tickle_early(ctx, task, cpu, more_urgent);
        } else if current.is_none() || (self.idlers.is_empty() && more_urgent) {
            self.kick(ctx, cpu);
        } else if let Some(idler) = self.idler_for(ctx, task, cpu) {
            // An idle CPU will steal it; the vCPU that runs here stays.
            self.kick(ctx, idler);
        } else if more_urgent {
            if let Some(running) = self.pcpus[cpu.index()].current
                && self.gives_way(ctx, running)
            {
                self.counters.kicked_away += 1;
                self.vcpus[running.index()].migrating = true;
            }
            self.kick(ctx, cpu);
        }
    }

    /// Whether a running vCPU moves because a more urgent one, for which no CPU idles, preempts it while
    /// another CPU does idle (`__runq_tickle()`). Xen 4.3 to 4.6 move it anywhere, which may be back to this
    /// CPU; later ones only if it may use an idle CPU. Since 4.13 the test uses the affinity of the other
    /// vCPU, which has no idle CPU, so that it always fails.
    fn gives_way(&self, ctx: &Context<'_>, running: TaskId) -> bool {
        match self.settings.era {
            Era::Xen4_2 | Era::Xen4_13 => false,
            Era::Xen4_3 | Era::Xen4_5 => !self.idlers.is_empty(),
            Era::Xen4_9 => ctx.tasks[running.index()].hard_affinity.intersects(&self.idlers),
        }
    }

    /// Until December 2012: a more urgent vCPU preempts here; in either case, an idle CPU is tickled if there
    /// is more than one vCPU to run.
    fn tickle_early(&mut self, ctx: &mut Context<'_>, task: TaskId, cpu: CpuId, more_urgent: bool) {
        if more_urgent {
            self.kick(ctx, cpu);
        }
        if self.pcpus[cpu.index()].current.is_some()
            && let Some(idler) = self.idler_for(ctx, task, cpu)
        {
            self.kick(ctx, idler);
        }
    }

    /// An idle CPU for the vCPU, in a cycle: one that it prefers, else one that it may use.
    fn idler_for(&mut self, ctx: &Context<'_>, task: TaskId, cpu: CpuId) -> Option<CpuId> {
        let last = self.pcpus[cpu.index()].last_tickled;
        let idler = [Step::Soft, Step::Hard]
            .into_iter()
            .find_map(|step| self.mask(ctx, task, step)?.next_and_after(&self.idlers, last))?;
        self.pcpus[cpu.index()].last_tickled = idler;
        Some(idler)
    }

    fn kick(&mut self, ctx: &mut Context<'_>, cpu: CpuId) {
        if self.pcpus[cpu.index()].current.is_some() {
            self.counters.tickled_busy += 1;
        } else {
            self.counters.tickled_idle += 1;
        }
        if self.settings.era >= Era::Xen4_9 {
            self.idlers.remove(cpu);
        }
        ctx.kicked.push(cpu);
    }
}
