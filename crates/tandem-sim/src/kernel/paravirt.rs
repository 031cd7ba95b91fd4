//! What a guest's kernel makes of its host: which of its CPUs it takes for preempted (`vcpu_is_preempted()`,
//! `xen_vcpu_stolen()`), and how it interrupts several of them at once.
//!
//! Problem: a CPU that interrupts others and spins until all have answered waits for those that have no
//! pCPU.
//!
//! Approach: the host notes for each vCPU why it lost its pCPU, where the other vCPUs of the guest can read
//! that. A guest of KVM leaves out the preempted ones if it flushes TLBs: the host does that for them before
//! they run again (`kvm_flush_tlb_others()`, in later kernels `kvm_flush_tlb_multi()`). A guest of Xen gives
//! way once, to any other vCPU, and then spins (`xen_smp_send_call_function_ipi()`). A host that wakes a vCPU
//! for another, which has let go of a spin lock, may run it in place of that ([`System::yield_to_kicked`]).
//!
//! Limits: guests of Xen are HVM guests; those of PV flush by a hypercall, which interrupts pCPUs and not
//! vCPUs. KVM guests that leave out preempted vCPUs have none left to yield to when they have sent their
//! interrupts (`kvm_smp_send_call_func_ipi()`).

use super::cpu::Cpu;
use super::{CpuRef, Leaving, System, TaskRef, TaskState};
use crate::policy::Policy;
use crate::policy::linux::LinuxEra;
use crate::scenario::PolicySettings;
use crate::trace::Observer;

/// Which vCPUs the others of their guest take for preempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SeenPreempted {
    /// None: the host does not say.
    None,
    /// All that have no pCPU, whatever for: KVM sets the mark whenever it takes a vCPU off, also one that
    /// halts (`kvm_arch_vcpu_put()` of 5.2).
    WithoutPcpu,
    /// Those that an interrupt of the host has taken off: neither those that halt nor those that have given
    /// way themselves (`at_instruction_boundary` in `kvm_steal_time_set_preempted()`, 5.19).
    Interrupted,
    /// Those that could have gone on when they were taken off. Xen writes the state of a vCPU for the guest
    /// when it switches (`_update_runstate_area()`): one that has woken up since is not among them.
    Runnable,
}

/// How a guest's kernel interrupts several of its CPUs to have them flush their TLBs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shootdown {
    /// All of them, and it waits.
    Native,
    /// All but the preempted ones.
    SkipsPreempted,
    /// All of them; it gives way once before it waits, if one of several is preempted.
    Yields,
}

/// What a guest's kernel has of its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Paravirt {
    pub seen_preempted: SeenPreempted,
    pub shootdown: Shootdown,
    /// Whether a vCPU that kicks another one, which has halted, gives way to it if that waits
    /// (`kvm_sched_yield()` at `KVM_HC_KICK_CPU`, 5.4).
    pub kick_yields: bool,
    /// Whether a waiter for a spin lock halts if the one before it is preempted (`pv_wait_early()` from 4.11
    /// to 5.3).
    pub waits_early: bool,
    /// Whether the scheduler counts vCPUs that are preempted as busy (`available_idle_cpu()`). Only where
    /// those that halt are among them does that make a difference: others do not idle.
    pub hides_idle: bool,
}

impl Paravirt {
    /// That of the host itself.
    pub const NONE: Self = Self {
        seen_preempted: SeenPreempted::None,
        shootdown: Shootdown::Native,
        kick_yields: false,
        waits_early: false,
        hides_idle: false,
    };

    /// That of a guest on a host, both as they are configured by default.
    pub fn of(host: &PolicySettings, guest: &PolicySettings) -> Self {
        // In 5.2, and under Xen, locks and scheduler ask only if the locks are paravirtual.
        let asks = match guest {
            PolicySettings::Linux(it) => it.paravirt_locks,
            PolicySettings::SchedExt(it) => it.paravirt_locks,
            PolicySettings::Credit(_) | PolicySettings::Credit2(_) => true,
        };
        let is_fair = matches!(guest, PolicySettings::Linux(_));
        let (Some(guest), host) = (linux_era(guest), linux_era(host)) else { return Self::NONE };
        let waits_early = asks && guest == LinuxEra::V5_2;
        let Some(host) = host else {
            let seen_preempted = SeenPreempted::Runnable;
            return Self { seen_preempted, shootdown: Shootdown::Yields, waits_early, ..Self::NONE };
        };
        let kick_yields = host >= LinuxEra::V6_12;
        // Hosts offer KVM_FEATURE_PV_TLB_FLUSH, and guests use it, since 4.16; the mark is from 4.10.
        if host < LinuxEra::V5_2 || guest < LinuxEra::V5_2 {
            return Self { kick_yields, ..Self::NONE };
        }
        let seen_preempted = match host {
            LinuxEra::V5_2 => SeenPreempted::WithoutPcpu,
            _ => SeenPreempted::Interrupted,
        };
        let hides_idle = is_fair && host == LinuxEra::V5_2 && (asks || guest > LinuxEra::V5_2);
        Self { seen_preempted, shootdown: Shootdown::SkipsPreempted, kick_yields, waits_early, hides_idle }
    }
}

/// The release of a Linux; `None` for Xen. Tandem needs 6.12.
fn linux_era(policy: &PolicySettings) -> Option<LinuxEra> {
    match policy {
        PolicySettings::Linux(settings) => Some(settings.era),
        PolicySettings::SchedExt(_) => Some(LinuxEra::V6_12),
        PolicySettings::Credit(_) | PolicySettings::Credit2(_) => None,
    }
}

impl Paravirt {
    /// Whether a waiter for a spin lock halts because the one before it, on that vCPU, is preempted.
    pub fn waits_early_behind(self, vcpu: &Cpu) -> bool {
        self.waits_early && self.seen_preempted.holds(vcpu)
    }
}

impl SeenPreempted {
    /// Whether the vCPU, a CPU of a guest, is among them.
    #[inline]
    pub fn holds(self, vcpu: &Cpu) -> bool {
        let spinning = &vcpu.spinning;
        match self {
            Self::None => false,
            Self::WithoutPcpu => vcpu.pcpu.is_none() && !vcpu.is_polled_for(),
            Self::Interrupted => spinning.is_preempted && !spinning.has_yielded,
            Self::Runnable => spinning.is_preempted,
        }
    }
}

impl<O: Observer> System<O> {
    /// The vCPU has been taken off its pCPU, which others of its guest may notice.
    #[inline]
    pub(super) fn note_preempted(&mut self, vcpu: CpuRef) {
        let Paravirt { waits_early, hides_idle, .. } = self.kernels[vcpu.kernel].paravirt();
        if hides_idle {
            self.kernels[vcpu.kernel].policy_mut().set_preempted(vcpu.cpu, true);
        }
        if waits_early && let Some(task) = self.kernels[vcpu].current {
            let task = TaskRef { kernel: vcpu.kernel, task };
            if self.kernels[task].spin.is_spinning() && self.kernels[vcpu].spinning.is_preempted {
                self.preempted_waiters.push(task);
            }
        }
    }

    /// A vCPU, which runs, has woken another one of its guest by a kick: it gives way to that one, if that
    /// waits in a queue and its own pCPU has something else to run (`kvm_sched_yield()`); whether it does.
    pub fn yield_to_kicked(&mut self, by: CpuRef, target: CpuRef, now_ns: u64) -> bool {
        let Some(pcpu) = self.kernels[by].pcpu else { return false };
        let (host, task) = (self.kernels.host(), self.kernels.vcpu_task(target));
        let policy = host.policy();
        let (Some(current), Some(queue)) = (host[pcpu].current, policy.queue_of(task)) else { return false };
        let is_ready = host[task].state() == TaskState::Runnable;
        // One that an interrupt is to put in its queue is not in it yet, and what idles is about to run it.
        let is_on_its_way = host[queue].current.is_none() || policy.wakes_by_interrupt(pcpu, queue);
        if policy.queue_length(pcpu) <= 1 || !is_ready || is_on_its_way {
            return false;
        }
        let hold_ns = host.work_under_lock_ns();
        self.processors.lock_queue(&mut self.kernels, pcpu, pcpu, 0);
        if queue != pcpu {
            self.processors.lock_queue(&mut self.kernels, pcpu, queue, hold_ns);
        }
        let host = self.kernels.host_mut();
        if !host.ask(now_ns, |policy, ctx| policy.yield_to(ctx, pcpu, current, task)) {
            return false;
        }
        self.paravirt.kick_yields += 1;
        self.deliver_kicks(CpuRef::host(pcpu), now_ns);
        self.decide(CpuRef::host(pcpu), now_ns, Leaving::YieldTo);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::credit::CreditSettings;
    use crate::policy::linux::LinuxSettings;
    use tandem_machine::ids::CpuId;

    #[test]
    fn pv_tlb_flush_supported_by_release_of_guest_and_host() {
        let linux = |era| PolicySettings::Linux(LinuxSettings { era, ..LinuxSettings::default() });
        let credit = PolicySettings::Credit(CreditSettings::default());
        let eras = [LinuxEra::V3_6, LinuxEra::V4_2, LinuxEra::V5_2, LinuxEra::V6_12, LinuxEra::V7_3];
        for guest in eras {
            let on_xen = Paravirt::of(&credit, &linux(guest));
            assert_eq!(on_xen.shootdown, Shootdown::Yields, "{guest:?}");
            assert_eq!(on_xen.seen_preempted, SeenPreempted::Runnable);
            for host in eras {
                let found = Paravirt::of(&linux(host), &linux(guest));
                assert_eq!(found.kick_yields, host >= LinuxEra::V6_12, "{guest:?} on {host:?}");
                if host < LinuxEra::V5_2 || guest < LinuxEra::V5_2 {
                    let found = (found.seen_preempted, found.shootdown);
                    assert_eq!(found, (SeenPreempted::None, Shootdown::Native), "{guest:?} on {host:?}");
                } else {
                    assert_eq!(found.shootdown, Shootdown::SkipsPreempted, "{guest:?} on {host:?}");
                }
            }
        }
    }

    #[test]
    fn vcpu_is_preempted_depends_on_why_the_vcpu_has_no_pcpu() {
        let on = Cpu::new(Some(CpuId(0)));
        let halted = Cpu::new(None);
        let mut interrupted = Cpu::new(None);
        interrupted.spinning.is_preempted = true;
        let mut gave_way = interrupted.clone();
        gave_way.spinning.has_yielded = true;
        for (seen, expected) in [
            (SeenPreempted::None, [false, false, false, false]),
            (SeenPreempted::WithoutPcpu, [false, true, true, true]),
            (SeenPreempted::Interrupted, [false, false, true, false]),
            (SeenPreempted::Runnable, [false, false, true, true]),
        ] {
            let found = [&on, &halted, &interrupted, &gave_way].map(|vcpu| seen.holds(vcpu));
            assert_eq!(found, expected, "{seen:?}");
        }
    }
}
