//! Halt polling: how long KVM waits for the next event of a vCPU that halts, before it lets the vCPU sleep.
//!
//! Problem: a vCPU that sleeps for a moment costs two switches, and the time in which its pCPU wakes up.
//!
//! Approach, as in `kvm_vcpu_halt()` (up to 5.16 `kvm_vcpu_block()`): the host's code polls for a window, as
//! long as no other task wants the pCPU. From 4.3 on, each vCPU has a window of its own, which grows after
//! halts that were a little too long for it, and shrinks after halts that polling could not have shortened.

use super::linux::LinuxEra;
use crate::scenario::PolicySettings;

/// The polling of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HaltPoll {
    /// Longest window, ns (`halt_poll_ns`).
    pub max_ns: u64,
    /// How windows change; `None`: all are of the greatest length.
    pub adapts: Option<Adapts>,
}

/// How the window of a vCPU changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adapts {
    /// What a window is divided by; 0: it closes (`halt_poll_ns_shrink`).
    pub shrink: u64,
    /// A window that has shrunk below [`HaltPoll::GROW_START_NS`] closes.
    pub has_least: bool,
}

impl HaltPoll {
    /// Greatest window by default, from 5.2 on, ns (`KVM_HALT_POLL_NS_DEFAULT`).
    pub const DEFAULT_NS: u64 = 200_000;
    /// Greatest that can be set, ns: the module parameter is a number of 32 bits.
    pub const MAX_NS: u64 = u32::MAX as u64;
    /// Least window of a vCPU that polls, ns (`halt_poll_ns_grow_start`).
    pub const GROW_START_NS: u64 = 10_000;
    /// What a window is multiplied by (`halt_poll_ns_grow`).
    pub const GROW: u64 = 2;

    /// That of a host, with that greatest window or the one by default, ns; `None` if it does not poll.
    pub fn of(host: &PolicySettings, max_ns: Option<u64>) -> Option<Self> {
        let era = match host {
            PolicySettings::Linux(settings) => settings.era,
            PolicySettings::SchedExt(_) => LinuxEra::V6_12,
            PolicySettings::Credit(_) | PolicySettings::Credit2(_) => return None,
        };
        let (default_ns, adapts) = match era {
            LinuxEra::V3_6 => return None,
            LinuxEra::V4_2 => (0, None),
            LinuxEra::V5_2 => (Self::DEFAULT_NS, Some(Adapts { shrink: 0, has_least: false })),
            _ => (Self::DEFAULT_NS, Some(Adapts { shrink: 2, has_least: true })),
        };
        let max_ns = max_ns.unwrap_or(default_ns);
        (max_ns > 0).then_some(Self { max_ns, adapts })
    }

    /// The window of a vCPU that has none yet, ns.
    pub fn first_ns(self) -> u64 {
        if self.adapts.is_some() { 0 } else { self.max_ns }
    }

    /// The window after a halt of that length, ns.
    pub fn next_ns(self, window_ns: u64, halted_ns: u64) -> u64 {
        let Some(adapts) = self.adapts else { return window_ns };
        if halted_ns <= window_ns {
            window_ns
        } else if window_ns > 0 && halted_ns > self.max_ns {
            let shrunk_ns = window_ns.checked_div(adapts.shrink).unwrap_or(0);
            if adapts.has_least && shrunk_ns < Self::GROW_START_NS { 0 } else { shrunk_ns }
        } else if window_ns < self.max_ns && halted_ns < self.max_ns {
            (window_ns * Self::GROW).max(Self::GROW_START_NS).min(self.max_ns)
        } else {
            window_ns
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::credit::CreditSettings;
    use crate::policy::linux::LinuxSettings;
    use proptest::prelude::*;

    const US: u64 = 1_000;

    fn of(era: LinuxEra, max_ns: Option<u64>) -> Option<HaltPoll> {
        HaltPoll::of(&PolicySettings::Linux(LinuxSettings { era, ..LinuxSettings::default() }), max_ns)
    }

    #[test]
    fn halt_poll_ns_is_by_default_as_the_release_has_it() {
        assert_eq!(of(LinuxEra::V3_6, Some(1)), None);
        assert_eq!(of(LinuxEra::V4_2, None), None);
        assert_eq!(of(LinuxEra::V4_2, Some(7)).map(|it| (it.max_ns, it.first_ns())), Some((7, 7)));
        assert_eq!(of(LinuxEra::V5_2, None).map(|it| (it.max_ns, it.first_ns())), Some((200 * US, 0)));
        assert_eq!(of(LinuxEra::V6_12, Some(0)), None);
        assert_eq!(HaltPoll::of(&PolicySettings::Credit(CreditSettings::default()), None), None);
    }

    #[test]
    fn grow_halt_poll_ns_doubles_and_shrink_halt_poll_ns_closes_in_5_2_and_halves_later() {
        let (old, new) = (of(LinuxEra::V5_2, None).unwrap(), of(LinuxEra::V6_12, None).unwrap());
        for poll in [old, new] {
            let mut windows_us = vec![];
            let mut window_ns = poll.first_ns();
            for _ in 0..7 {
                window_ns = poll.next_ns(window_ns, 199 * US);
                windows_us.push(window_ns / US);
            }
            assert_eq!(windows_us, [10, 20, 40, 80, 160, 200, 200]);
            assert_eq!(poll.next_ns(40 * US, 40 * US), 40 * US, "long enough");
            assert_eq!(poll.next_ns(0, 300 * US), 0, "too long to be polled for");
        }
        assert_eq!(old.next_ns(160 * US, 201 * US), 0);
        assert_eq!(new.next_ns(160 * US, 201 * US), 80 * US);
        assert_eq!(new.next_ns(16 * US, 201 * US), 0);
        let fixed = of(LinuxEra::V4_2, Some(50 * US)).unwrap();
        assert_eq!((fixed.next_ns(50 * US, 1), fixed.next_ns(50 * US, 1_000 * US)), (50 * US, 50 * US));
    }

    proptest! {
        #[test]
        fn a_window_is_never_greater_than_the_greatest(
            max_ns in 1..1_000_000u64,
            era in prop::sample::select(vec![LinuxEra::V4_2, LinuxEra::V5_2, LinuxEra::V6_12]),
            halts_ns in prop::collection::vec(0..2_000_000u64, 1..50),
        ) {
            let poll = of(era, Some(max_ns)).unwrap();
            let mut window_ns = poll.first_ns();
            for halted_ns in halts_ns {
                window_ns = poll.next_ns(window_ns, halted_ns);
                prop_assert!(window_ns <= max_ns);
            }
        }
    }
}
