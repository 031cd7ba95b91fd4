//! What a guest's kernel makes of its host: which of its CPUs it takes for preempted (`vcpu_is_preempted()`,
//! `xen_vcpu_stolen()`), and how it interrupts several of them at once.
//!
//! Problem: a CPU that interrupts others and spins until all have answered waits for those that have no
//! pCPU.
//!
//! Approach: the host notes for each vCPU why it lost its pCPU, where the other vCPUs of the guest can read
//! that. A guest of KVM leaves out the preempted ones if it flushes TLBs: the host does that for them before
//! they run again (`kvm_flush_tlb_others()`, in later kernels `kvm_flush_tlb_multi()`). A guest of Xen gives
//! way once, to any other vCPU, and then spins (`xen_smp_send_call_function_ipi()`).
//!
//! Limits: guests of Xen are HVM guests; those of PV flush by a hypercall, which interrupts pCPUs and not
//! vCPUs. KVM guests that leave out preempted vCPUs have none left to yield to when they have sent their
//! interrupts (`kvm_smp_send_call_func_ipi()`).

use super::cpu::Cpu;
use crate::policy::linux::LinuxEra;
use crate::scenario::PolicySettings;

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
}

impl Paravirt {
    /// That of the host itself.
    pub const NONE: Self = Self { seen_preempted: SeenPreempted::None, shootdown: Shootdown::Native };

    /// That of a guest on a host, both as they are configured by default.
    pub fn of(host: &PolicySettings, guest: &PolicySettings) -> Self {
        let (Some(guest), host) = (linux_era(guest), linux_era(host)) else { return Self::NONE };
        let Some(host) = host else {
            return Self { seen_preempted: SeenPreempted::Runnable, shootdown: Shootdown::Yields };
        };
        // Hosts offer KVM_FEATURE_PV_TLB_FLUSH, and guests use it, since 4.16; the mark is from 4.10.
        if host < LinuxEra::V5_2 || guest < LinuxEra::V5_2 {
            return Self::NONE;
        }
        let seen_preempted = match host {
            LinuxEra::V5_2 => SeenPreempted::WithoutPcpu,
            _ => SeenPreempted::Interrupted,
        };
        Self { seen_preempted, shootdown: Shootdown::SkipsPreempted }
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
                if host < LinuxEra::V5_2 || guest < LinuxEra::V5_2 {
                    assert_eq!(found, Paravirt::NONE, "{guest:?} on {host:?}");
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
