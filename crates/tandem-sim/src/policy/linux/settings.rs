//! Settings of Linux's fair scheduler.

/// Releases whose scheduler is modelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LinuxEra {
    /// CFS of 2012: load as weights, without tracking of single tasks.
    V3_6,
    /// CFS of 2015: load tracked for each task.
    V4_2,
    /// EEVDF of 2024.
    V6_12,
}

/// From what the scheduling domains are built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Domains {
    /// From the topology that the kernel sees: a level for threads, caches, packages and nodes.
    Topology,
    /// One level 'VCPU' over all CPUs, without flags: the flat domain.
    Flat,
}

/// Settings of Linux's fair scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinuxSettings {
    /// Release whose behaviour to follow.
    pub era: LinuxEra,
    /// From what the scheduling domains are built.
    pub domains: Domains,
    /// Ticks a second (`CONFIG_HZ`): 100, 250, 300 or 1000.
    pub tick_hz: u32,
    /// Whether a vCPU's stolen time is taken off the time that its tasks are charged for, as with
    /// `CONFIG_PARAVIRT_TIME_ACCOUNTING` and a hypervisor that tells. Makes no difference on real CPUs.
    pub steal_clock: bool,
}

impl LinuxSettings {
    /// Ticks a second that Linux can be configured with on x86.
    pub const TICKS_HZ: [u32; 4] = [100, 250, 300, 1000];
}

impl Default for LinuxSettings {
    /// 6.12 as Debian builds it: 250 Hz, steal clock.
    fn default() -> Self {
        Self { era: LinuxEra::V6_12, domains: Domains::Topology, tick_hz: 250, steal_clock: true }
    }
}
