//! Cost of waking an idle CPU.
//!
//! An idle CPU sleeps; it takes a while until it handles the interrupt that ends its idling, and until the
//! task runs that it was woken for. How long depends on the sleep state that the CPU is in, on its firmware,
//! and on the hypervisor below it, so it is a constant that somebody knows, or was measured.
//!
//! Limit: whatever the length of the idle time, times are drawn from the same ones.

use std::sync::Arc;

/// Cost of waking an idle CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Idle {
    /// From an interrupt to the first instruction of its handler it takes always as long, ns.
    Fixed(u64),
    /// From a wake-up to the first instruction of the woken task it takes as long as one of these times, ns,
    /// all of them as often. No time if there is none.
    Measured {
        /// Of wake-ups by another CPU.
        by_others_ns: Arc<[u64]>,
        /// Of wake-ups by an interrupt of the CPU itself, which has begun to be handled.
        by_itself_ns: Arc<[u64]>,
    },
}

/// What an idle CPU is woken by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IdleEnd {
    /// Another CPU that has something for it to run.
    Kick,
    /// Itself, having something to run.
    OwnKick,
    /// A timer or a device.
    Interrupt,
}

impl Idle {
    /// The longest time that it takes, ns.
    pub fn longest_ns(&self) -> u64 {
        match self {
            Self::Fixed(ns) => *ns,
            Self::Measured { by_others_ns, by_itself_ns } => {
                by_others_ns.iter().chain(by_itself_ns.iter()).copied().max().unwrap_or(0)
            }
        }
    }

    /// The time for an idle period, ns. Equal keys give equal times.
    pub(crate) fn exit_ns(&self, end: IdleEnd, key: u64) -> u64 {
        match (self, end) {
            (Self::Fixed(_), IdleEnd::OwnKick) | (Self::Measured { .. }, IdleEnd::Interrupt) => 0,
            (Self::Fixed(ns), IdleEnd::Kick | IdleEnd::Interrupt) => *ns,
            (Self::Measured { by_others_ns, .. }, IdleEnd::Kick) => draw(by_others_ns, key),
            (Self::Measured { by_itself_ns, .. }, IdleEnd::OwnKick) => draw(by_itself_ns, key),
        }
    }
}

/// One of these times.
fn draw(times_ns: &[u64], key: u64) -> u64 {
    if times_ns.is_empty() {
        return 0;
    }
    // The finaliser of SplitMix64 spreads neighbouring keys.
    let mixed = (key ^ key >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    times_ns[((mixed ^ mixed >> 31) % times_ns.len() as u64) as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_measured_time_comes_as_often() {
        let idle = Idle::Measured { by_others_ns: Arc::new([10, 20, 30, 40]), by_itself_ns: Arc::new([]) };
        let mut counts = [0; 5];
        for key in 0..4_000 {
            counts[idle.exit_ns(IdleEnd::Kick, key) as usize / 10] += 1;
        }
        assert!(counts[1..].iter().all(|count| (900..1_100).contains(count)), "{counts:?}");
        assert_eq!(idle.exit_ns(IdleEnd::OwnKick, 3), 0);
        assert_eq!(Idle::Fixed(7).exit_ns(IdleEnd::Interrupt, 3), 7);
    }
}
