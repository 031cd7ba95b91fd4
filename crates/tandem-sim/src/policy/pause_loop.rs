//! What a host does about vCPUs that spin: settings of pause-loop exits and of directed yield.
//!
//! Problem: a guest's spin lock assumes that its holder runs. On a shared host the holder may have lost its pCPU, and
//! those that wait for it burn theirs.
//!
//! Approach: the processor counts `PAUSE` instructions. When a vCPU has executed them at most a *gap* apart for as long
//! as a *window*, it leaves its guest for the host: a pause-loop exit. Xen lets another vCPU run in its place. KVM looks
//! for a vCPU of the same VM that has no pCPU and might hold the lock, and yields to it: a directed yield. The kernel
//! carries both out ([`crate::scenario::Scenario::pause_loop`]); the host's policy only says whom it runs next
//! ([`super::Policy::yield_to`]).
//!
//! Cycles are those of the machine's clock ([`tandem_machine::Hardware::clock_mhz`]).

/// Pause-loop exits and what follows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PauseLoop {
    /// Most cycles between two `PAUSE`s of one loop (`ple_gap`).
    pub gap_cycles: u32,
    /// Cycles of such a loop after which the vCPU leaves its guest (`ple_window`).
    pub window_cycles: u32,
    /// What the window of a vCPU is multiplied by at each exit (`ple_window_grow`); 1 leaves it as it is. It is as at
    /// first again when the vCPU next gets a pCPU.
    pub window_growth: u32,
    /// What the window may grow to (`ple_window_max`), cycles.
    pub window_max_cycles: u32,
    /// How a vCPU to yield to is looked for; `None`: the one that spins gives way to any other, as in Xen.
    pub directed_yield: Option<DirectedYield>,
}

/// How a vCPU is found and yielded to (`kvm_vcpu_on_spin()` and `yield_to()`).
///
/// The other vCPUs of the VM are looked at in turn, from behind the one that was yielded to last; those that sleep are
/// passed over. The first to which the host yields ends the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectedYield {
    /// When it is tested whether the candidate runs already.
    pub running_check: RunningCheck,
    /// A candidate that spins is passed over at every second look (`kvm_vcpu_eligible_for_directed_yield()`).
    pub alternates_spinners: bool,
    /// A yield is given up before the locks if neither of the two run queues has anybody waiting; after
    /// [`DirectedYield::TRIES`] of them so is the search.
    pub undercommit_check: bool,
    /// A candidate is passed over while the pCPU in whose queue it stands is itself looking for a vCPU to yield to.
    pub skips_yielding_cpus: bool,
    /// A candidate is passed over while the pCPU in whose queue it stands executes the host's code for whatever reason.
    pub skips_host_mode_cpus: bool,
}

/// When a directed yield tests whether its target runs already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunningCheck {
    /// Holding the locks of both run queues.
    UnderLocks,
    /// Before it takes the locks, and once more when it has them.
    BeforeLocks,
}

impl DirectedYield {
    /// Yields given up after which a search ends.
    pub const TRIES: u32 = 3;

    /// As in Linux 3.6.
    pub const V3_6: Self = Self {
        running_check: RunningCheck::UnderLocks,
        alternates_spinners: false,
        undercommit_check: false,
        skips_yielding_cpus: false,
        skips_host_mode_cpus: false,
    };

    /// As in Linux 6.12, where vCPUs that run are passed over because they are not marked as ready.
    pub const V6_12: Self = Self {
        running_check: RunningCheck::BeforeLocks,
        alternates_spinners: true,
        undercommit_check: true,
        ..Self::V3_6
    };
}

impl PauseLoop {
    /// Intel's gap and window, with KVM's names; window fixed, as in Linux 3.6.
    pub const V3_6: Self = Self {
        gap_cycles: 128,
        window_cycles: 4_096,
        window_growth: 1,
        window_max_cycles: u32::MAX,
        directed_yield: Some(DirectedYield::V3_6),
    };

    /// As in Linux 6.12: the window doubles at each exit.
    pub const V6_12: Self =
        Self { window_growth: 2, directed_yield: Some(DirectedYield::V6_12), ..Self::V3_6 };

    /// As in Xen: any other vCPU may run.
    pub const XEN: Self = Self { directed_yield: None, ..Self::V3_6 };
}
