//! The host's treatment of vCPUs that spin: settings of pause-loop exits and of directed yield.
//!
//! Problem: a guest's spin lock assumes that its holder runs. On a shared host the holder may have lost its
//! pCPU, and the waiters waste theirs.
//!
//! Approach: the processor counts `PAUSE` instructions. A vCPU that executes them at most a *gap* apart for
//! the length of a *window* leaves its guest for the host: a pause-loop exit. Xen then lets another vCPU run
//! in its place. KVM looks for a vCPU of the same VM that has no pCPU and might hold the lock, and yields to
//! it: a directed yield. The kernel carries both out ([`crate::scenario::Scenario::pause_loop`]); the host's
//! policy only chooses the next vCPU ([`super::Policy::yield_to`]).
//!
//! Cycles are those of the machine's clock ([`tandem_machine::Hardware::clock_mhz`]).

/// Pause-loop exits and what follows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PauseLoop {
    /// Most cycles between two `PAUSE`s of one loop (`ple_gap`).
    pub gap_cycles: u32,
    /// Cycles of such a loop after which the vCPU leaves its guest (`ple_window`).
    pub window_cycles: u32,
    /// Factor on the window of a vCPU at each exit (`ple_window_grow`); 1 keeps it. The window returns to its
    /// initial length when the vCPU next gets a pCPU.
    pub window_growth: u32,
    /// Largest window (`ple_window_max`), cycles.
    pub window_max_cycles: u32,
    /// The search for a vCPU to yield to; `None`: the one that spins yields to any other, as in Xen.
    pub directed_yield: Option<DirectedYield>,
}

/// The search for a vCPU to yield to (`kvm_vcpu_on_spin()` and `yield_to()`).
///
/// The host examines the other vCPUs of the VM in turn, starting after the last one that it yielded to, and
/// skips those that sleep. The first successful yield ends the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectedYield {
    /// How the host finds out that the candidate already runs.
    pub running_check: RunningCheck,
    /// Whether a candidate that was preempted as it executed its programs is skipped.
    pub kernel_mode: KernelMode,
    /// A candidate that spins is skipped every second time (`kvm_vcpu_eligible_for_directed_yield()`).
    pub alternates_spinners: bool,
    /// A yield is abandoned before it takes the locks if no task waits in either of the two run queues; after
    /// [`DirectedYield::TRIES`] such yields, so is the search.
    pub undercommit_check: bool,
    /// A candidate is skipped while the pCPU in whose queue it waits is itself searching for a vCPU to yield
    /// to.
    pub skips_yielding_cpus: bool,
    /// A candidate is skipped while the pCPU in whose queue it waits executes the host's code for any reason.
    pub skips_host_mode_cpus: bool,
}

/// How a directed yield finds out that its target already runs. Whatever the check, it is asked once more
/// under the locks of both run queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunningCheck {
    /// Only under the locks.
    UnderLocks,
    /// Before the locks, a candidate that executes its guest's code is skipped (`PF_VCPU`). One that runs in
    /// the host's code is not.
    GuestMode,
    /// In `yield_to()`, before it takes the locks.
    BeforeLocks,
    /// Only a candidate that was preempted is considered (`kvm_vcpu.preempted`); one that has woken up and
    /// waits is not.
    Preempted,
    /// Only a candidate that was preempted or has woken up is considered (`kvm_vcpu.ready`).
    Ready,
}

/// Which candidates may have been preempted outside of their guest's kernel (`yield_to_kernel_mode`). A vCPU
/// whose program neither holds nor waits for a spin lock or an answer executes its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelMode {
    /// All.
    Any,
    /// None.
    Required,
    /// Those for which another vCPU has sent an interrupt.
    RequiredOrInterrupt,
}

impl DirectedYield {
    /// Abandoned yields after which a search ends.
    pub const TRIES: u32 = 3;

    /// As in Linux 3.6.
    pub const V3_6: Self = Self {
        running_check: RunningCheck::GuestMode,
        kernel_mode: KernelMode::Any,
        alternates_spinners: false,
        undercommit_check: false,
        skips_yielding_cpus: false,
        skips_host_mode_cpus: false,
    };

    /// As in Linux 4.2.
    pub const V4_2: Self = Self {
        running_check: RunningCheck::Preempted,
        alternates_spinners: true,
        undercommit_check: true,
        ..Self::V3_6
    };

    /// As in Linux 5.2, which considers only vCPUs that were preempted in their kernel.
    pub const V5_2: Self = Self { kernel_mode: KernelMode::Required, ..Self::V4_2 };

    /// As in Linux 6.12.
    pub const V6_12: Self = Self {
        running_check: RunningCheck::Ready,
        kernel_mode: KernelMode::RequiredOrInterrupt,
        ..Self::V4_2
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

    /// As in Linux 4.2: the window doubles at each exit (`grow_ple_window()`).
    pub const V4_2: Self = Self { window_growth: 2, directed_yield: Some(DirectedYield::V4_2), ..Self::V3_6 };

    /// As in Linux 5.2.
    pub const V5_2: Self = Self { directed_yield: Some(DirectedYield::V5_2), ..Self::V4_2 };

    /// As in Linux 6.12.
    pub const V6_12: Self = Self { directed_yield: Some(DirectedYield::V6_12), ..Self::V4_2 };

    /// As in Xen: any other vCPU may run.
    pub const XEN: Self = Self { directed_yield: None, ..Self::V3_6 };
}
